//! The tables of deploy/README.md, compared with the code in both directions.

use std::{collections::BTreeSet, path::Path};

use regex::Regex;
use walkdir::WalkDir;

use super::{mortise, read, root, rows, section};

/// The guide with the tables.
const GUIDE: &str = "deploy/README.md";
/// The reason of a fault that no condition shows.
const NOT_SHOWN: &str = "Superseded";
/// Expressions that forward a reason that is a literal elsewhere.
const FORWARDED: [&str; 4] = ["reason", "fault.reason", "first.reason", "not.reason"];

/// Returns the sources of the host, without tests.
fn sources() -> Vec<String> {
    let files = WalkDir::new(root().join("host")).into_iter().filter_map(Result::ok);
    let is_source = |path: &Path| {
        let text = path.to_string_lossy();
        let is_other = ["/tests", "/embedded-api/"].iter().any(|other| text.contains(other));
        path.extension().is_some_and(|ending| ending == "rs") && !is_other
    };
    let files = files.filter(|file| is_source(file.path()));
    let texts = files.map(|file| std::fs::read_to_string(file.path()).unwrap());
    texts.map(|text| text.split("mod tests {").next().unwrap_or_default().to_owned()).collect()
}

/// Returns the first group of every match.
fn found<'a>(pattern: &str, text: &'a str) -> Vec<&'a str> {
    let pattern = Regex::new(pattern).unwrap();
    pattern.captures_iter(text).filter_map(|found| Some(found.get(1)?.as_str().trim())).collect()
}

/// Returns the literal that an expression for a reason is: itself, or the value of a constant.
fn literal(expression: &str, source: &str) -> Option<String> {
    if FORWARDED.contains(&expression) {
        return None;
    }
    let text = expression.trim_matches('"');
    if text != expression {
        return Some(text.to_owned());
    }
    let values = found(&format!("const {expression}: &str = \"([^\"]*)\""), source);
    let value = values.first().unwrap_or_else(|| {
        panic!("`{expression}` is the reason of a condition, and neither a literal nor a constant")
    });
    Some((*value).to_owned())
}

/// Returns the arguments of a call, up to the parenthesis that closes it.
fn arguments(source: &str) -> &str {
    let (mut depth, mut is_text) = (1, false);
    let end = source.find(|character| {
        match character {
            '"' => is_text = !is_text,
            '(' if !is_text => depth += 1,
            ')' if !is_text => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    &source[..end.unwrap_or(source.len())]
}

/// Returns the levels at which a source logs a text.
fn levels(source: &str, text: &str) -> Vec<&'static str> {
    let calls = source.match_indices(text).filter_map(|(at, _)| {
        let call = ["error!(", "warn!(", "info!(", "debug!("];
        call.into_iter().max_by_key(|call| source[..at].rfind(call))
    });
    calls.map(|call| call.trim_end_matches("!(")).collect()
}

/// Returns every reason that the code gives to a condition.
fn reasons() -> BTreeSet<String> {
    let mut reasons = BTreeSet::new();
    for source in sources() {
        let mut expressions = found(r"\bFault::(?:new|passing)\(\s*([^,()]+),", &source);
        expressions.extend(found(r"\bFinding::(?:yes|no|unknown)\(\s*([^,()]+),", &source));
        expressions.extend(found(r"\b(?:LimitMet|NotServed) \{\s*reason: ([^,]+),", &source));
        if source.contains("impl Fault {") {
            expressions.extend(found(r"\bSelf::(?:new|passing)\(\s*([^,()]+),", &source));
        }
        if !expressions.is_empty() {
            for choice in found(r"(?s)\blet reason = (.*?);\n", &source) {
                expressions.extend(found(r#"("[A-Z]\w+")"#, choice));
            }
        }
        reasons.extend(expressions.iter().filter_map(|of| literal(of, &source)));
    }
    reasons.remove(NOT_SHOWN);
    reasons
}

#[test]
fn the_guide_has_every_reason_of_a_condition_and_no_other() {
    let guide = read(GUIDE);
    let rows = rows(section(&guide, "### Conditions", "### Log lines"));
    let named: Vec<String> = rows.iter().map(|row| row[0].to_owned()).collect();
    let unique: BTreeSet<String> = named.iter().cloned().collect();
    assert_eq!(unique.len(), named.len(), "a reason has two rows");
    let reasons = reasons();
    let missing: Vec<_> = reasons.difference(&unique).collect();
    let unknown: Vec<_> = unique.difference(&reasons).collect();
    assert!(missing.is_empty(), "{GUIDE}, Conditions, lacks {missing:?}");
    assert!(unknown.is_empty(), "{GUIDE}, Conditions, has {unknown:?}, which no code gives");
}

#[test]
fn the_log_lines_of_the_guide_are_in_the_code_at_that_level() {
    let sources = sources();
    let guide = read(GUIDE);
    for row in rows(section(&guide, "### Log lines", "## Security")) {
        let (line, level) = (row[0], row[1]);
        let levels: BTreeSet<&str> =
            sources.iter().flat_map(|source| levels(source, &format!("\"{line}"))).collect();
        assert!(levels.contains(level), "{GUIDE}, Log lines: `{line}` is {levels:?} in the code");
    }
}

#[test]
fn every_warning_and_error_of_the_log_has_a_row() {
    let guide = read(GUIDE);
    let rows = rows(section(&guide, "### Log lines", "## Security"));
    let calls = Regex::new(r"\b(?:warn|error)!\(").unwrap();
    for source in sources() {
        for call in calls.find_iter(&source).map(|start| arguments(&source[start.end()..])) {
            let message = found(r#""([^"]*)"\s*$"#, call).first().copied().unwrap_or(call);
            // Lines of guests and panics have a text of their own.
            let is_there = rows.iter().any(|row| message.starts_with(row[0]));
            assert!(is_there || message.starts_with('{'), "{GUIDE}, Log lines, lacks `{message}`");
        }
    }
}

#[test]
fn the_guide_has_every_metric_and_no_other() {
    let source = read("host/src/metrics.rs");
    let registered = r#"\.register(?:_with_unit)?\(\s*"(\w+)""#;
    let registered: BTreeSet<String> =
        found(registered, &source).into_iter().map(Into::into).collect();
    let guide = read(GUIDE);
    let rows = rows(section(&guide, "### Metrics", "### Conditions"));
    let suffixes = ["_total", "_seconds", "_bytes"];
    let named = rows.iter().map(|row| {
        let name = row[0].trim_start_matches("mortise_");
        let name = suffixes.iter().fold(name, |name, suffix| name.trim_end_matches(suffix));
        name.to_owned()
    });
    assert_eq!(named.collect::<BTreeSet<_>>(), registered, "{GUIDE}, Metrics, and the code");
}

#[test]
fn the_guide_has_every_option_of_run_with_its_variable_and_default() {
    let output = mortise().args(["run", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let starts = Regex::new(r"(?m)^ +(?:-\w, )?--").unwrap();
    let options = starts.split(&help).skip(1).map(|option| {
        let name = format!("--{}", found(r"^([a-z-]+)", option)[0]);
        let variable = found(r"\[env: (\w+)[=\]]", option).first().copied().unwrap_or_default();
        let default = found(r"\[default: ([^\]]+)\]", option).first().copied().unwrap_or_default();
        [name, variable.to_owned(), default.to_owned()]
    });
    let options: Vec<_> = options.filter(|[name, ..]| name != "--help").collect();
    let guide = read(GUIDE);
    let rows = rows(section(&guide, "## Options", "## Running"));
    let rows: Vec<_> = rows.iter().map(|row| [row[0], row[1], row[2]].map(str::to_owned)).collect();
    assert_eq!(rows, options, "{GUIDE}, Options, and `mortise run --help`");
}
