//! The table of the ways in, in `deploy/SECURITY.md`, has the figures of the code.

use super::read;

const GUIDE: &str = "deploy/SECURITY.md";
/// The cells of a row.
const BOUND: usize = 2;
const CONSTANTS: usize = 4;

/// Returns the cells of each row of the table.
fn rows() -> Vec<Vec<String>> {
    let text = read(GUIDE);
    let (_, section) = text.split_once("## The ways in\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| "));
    let cells = |row: &str| row.trim_end_matches(" |").split(" | ").map(str::to_owned).collect();
    rows.skip(2).map(cells).collect()
}

/// Returns the figures of a cell, in bytes, or without a unit.
fn figures(cell: &str) -> Vec<u64> {
    // What is within backquotes is a name.
    let plain: String = cell.split('`').step_by(2).collect();
    let words: Vec<&str> = plain.split_whitespace().collect();
    let at = |at: usize| words.get(at).map_or("", |word| word.trim_end_matches([',', ';', '.']));
    let unit = |at_unit: usize| match at(at_unit) {
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => 1,
    };
    let figure = |index: usize| Some(at(index).parse::<u64>().ok()? * unit(index + 1));
    (0..words.len()).filter_map(figure).collect()
}

/// Returns the values of the constants that a cell names: files, each with its constants.
fn constants(cell: &str) -> Vec<u64> {
    let mut source = String::new();
    let names = cell.split('`').skip(1).step_by(2);
    names
        .filter_map(|name| match name.strip_suffix(".rs") {
            Some(_) => {
                let path = match name.strip_prefix("core/") {
                    Some(of_core) => format!("host/core/src/{of_core}"),
                    None => format!("host/src/{name}"),
                };
                source = read(&path);
                None
            }
            None => Some(value(&source, name)),
        })
        .collect()
}

/// Returns the value of a constant of a source.
fn value(source: &str, name: &str) -> u64 {
    let start = format!("const {name}: ");
    let lines = source.lines().filter_map(|line| line.split_once(&start));
    let text = lines.map(|(_, rest)| rest).next().unwrap_or_else(|| panic!("no `{name}`"));
    let (_, text) = text.trim_end_matches(';').split_once(" = ").unwrap();
    let number = |text: &str| match text {
        "MIB" => 1 << 20,
        "KIB" => 1 << 10,
        _ => text
            .trim_end_matches(".0")
            .replace('_', "")
            .parse()
            .unwrap_or_else(|_| panic!("{text}")),
    };
    match (text.split_once(" << "), text.split_once(" * ")) {
        (Some((one, bits)), _) => number(one) << number(bits),
        (_, Some((one, other))) => number(one) * number(other),
        _ => number(text),
    }
}

#[test]
fn each_way_in_has_the_bounds_that_the_guide_names() {
    let rows = rows();
    assert!(rows.len() > 12, "{} rows", rows.len());
    for row in rows {
        let figures = figures(&row[BOUND]);
        assert!(!figures.is_empty(), "{}: no bound", row[0]);
        assert_eq!(figures, constants(&row[CONSTANTS]), "{}", row[0]);
    }
}
