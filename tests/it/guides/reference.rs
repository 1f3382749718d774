//! The tables of deploy/README.md, compared with the code in both directions.

use std::{collections::BTreeSet, path::Path};

use mortise_host::metrics::Metrics;
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
    let rows = rows(section(&guide, "### Conditions", "## Security"));
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
fn the_guide_has_every_metric_and_no_other() {
    let metrics = Metrics::new();
    let described: BTreeSet<_> = metrics.described().iter().map(|(name, _)| &**name).collect();
    let guide = read(GUIDE);
    let rows = rows(section(&guide, "### Metrics", "### Conditions"));
    let named: BTreeSet<_> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(named, described, "{GUIDE}, Metrics, and the code");
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
