//! The golden runner, shared by all guests: compares the output of an original operator with the
//! output of our processor for the same input.
//!
//! A root folder holds a folder for each original, which holds a folder for each case
//! (`input.yaml`, `expected.json`). Every case ends in a verdict, even if no guest of ours covers
//! it yet. Intended differences are rules, each with its reason, and never names of cases: a rule
//! must also hold for cases that are not here.

pub mod group;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use serde_json::Value;
use similar::TextDiff;

/// The environment variable that names the root folder.
pub const VARIABLE: &str = "MORTISE_GOLDENS";

/// A recorded case of an original.
#[derive(Debug, Clone)]
pub struct Case {
    /// The name of the case's folder.
    pub name: String,
    /// The input of the original.
    pub input: Value,
    /// The output of the original.
    pub expected: Value,
}

/// The result of comparing one part of a case.
#[derive(Debug)]
enum Verdict {
    Equal,
    Deviates { reason: String },
    Differs(String),
}

/// The verdicts of one original's cases.
#[derive(Debug, Default)]
pub struct Tally {
    verdicts: BTreeMap<(String, String), Verdict>,
    not_covered: BTreeMap<String, usize>,
}

/// Returns the root folder: the one that [`VARIABLE`] names, else the copy in tests/goldens.
pub fn root() -> PathBuf {
    std::env::var_os(VARIABLE).map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("goldens"),
        |root| workspace().join(root),
    )
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the cases of one original, sorted by name.
///
/// # Errors
///
/// Fails if the folder cannot be read or holds no case, or if a case does not parse.
pub fn cases(root: &Path, original: &str) -> anyhow::Result<Vec<Case>> {
    let folder = root.join(original);
    let entries = std::fs::read_dir(&folder)
        .with_context(|| format!("cannot read the goldens in `{}`", folder.display()))?;
    let mut cases = Vec::new();
    for entry in entries {
        let path = entry
            .with_context(|| format!("cannot read the goldens in `{}`", folder.display()))?
            .path();
        if path.is_dir() {
            cases.push(case(&path).with_context(|| format!("golden `{}`", path.display()))?);
        }
    }
    anyhow::ensure!(
        !cases.is_empty(),
        "`{}` holds no case: a folder with input.yaml and expected.json",
        folder.display()
    );
    cases.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(cases)
}

/// Returns the originals that are not in `known`, with the number of entries of each: cases that no
/// guest covers yet.
///
/// # Errors
///
/// Fails if a folder cannot be read.
pub fn others(root: &Path, known: &[&str]) -> anyhow::Result<BTreeMap<String, usize>> {
    let read = |folder: &Path| {
        std::fs::read_dir(folder)
            .with_context(|| format!("cannot read the goldens in `{}`", folder.display()))
    };
    let mut others = BTreeMap::new();
    for entry in read(root)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !known.contains(&name.as_str()) {
            others.insert(name, read(&path)?.count());
        }
    }
    Ok(others)
}

fn case(path: &Path) -> anyhow::Result<Case> {
    let read = |name: &str| {
        std::fs::read_to_string(path.join(name)).with_context(|| format!("cannot read {name}"))
    };
    Ok(Case {
        name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        input: serde_saphyr::from_str(&read("input.yaml")?).context("input.yaml")?,
        expected: serde_json::from_str(&read("expected.json")?).context("expected.json")?,
    })
}

// === impl Tally ===

impl Tally {
    /// Counts a case that no guest of ours covers, by what covering it would take.
    pub fn not_covered(&mut self, what: impl Into<String>) {
        *self.not_covered.entry(what.into()).or_default() += 1;
    }

    /// Compares one part of a case with the original's output after rules have changed it, for
    /// these reasons.
    pub fn compare(
        &mut self,
        case: &str,
        part: &str,
        (expected, reasons): (&Value, &[String]),
        actual: &Value,
    ) {
        let verdict = match reasons {
            _ if expected != actual => Verdict::Differs(difference(expected, actual)),
            [] => Verdict::Equal,
            reasons => Verdict::Deviates { reason: reasons.join("; ") },
        };
        self.verdicts.insert((case.to_owned(), part.to_owned()), verdict);
    }

    /// Records that a part could not be run at all.
    pub fn failed(&mut self, case: &str, part: &str, why: &str) {
        self.verdicts.insert((case.to_owned(), part.to_owned()), Verdict::Differs(why.to_owned()));
    }

    /// Returns a report: the differences, and the numbers of cases that ran and passed.
    pub fn report(&self) -> String {
        let cases: BTreeSet<&String> = self.verdicts.keys().map(|(case, _)| case).collect();
        let bad: BTreeSet<&String> = self.bad().map(|((case, _), _)| case).collect();
        let mut parts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        let mut text = String::new();
        for ((case, part), verdict) in &self.verdicts {
            let (ran, passed) = parts.entry(part).or_default();
            *ran += 1;
            match verdict {
                Verdict::Equal => *passed += 1,
                Verdict::Deviates { reason } => {
                    *passed += 1;
                    let _ = writeln!(text, "{case} [{part}] differs on purpose: {reason}");
                }
                Verdict::Differs(difference) => {
                    let _ = writeln!(
                        text,
                        "{case} [{part}] differs (- expected, + ours):\n{difference}"
                    );
                }
            }
        }
        for (what, count) in &self.not_covered {
            let _ = writeln!(text, "not covered: {count} cases ({what})");
        }
        for (part, (ran, passed)) in parts {
            let _ = writeln!(text, "{part}: {passed} of {ran}");
        }
        let _ = write!(
            text,
            "{} cases ran, {} passed, {} failed",
            cases.len(),
            cases.len() - bad.len(),
            bad.len()
        );
        text
    }

    /// Fails unless all cases passed.
    ///
    /// # Errors
    ///
    /// Fails if cases differ, or if no case ran.
    pub fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(!self.verdicts.is_empty(), "no case ran");
        let bad: BTreeSet<&str> = self.bad().map(|((case, _), _)| case.as_str()).collect();
        anyhow::ensure!(bad.is_empty(), "{} cases differ: {bad:?}", bad.len());
        Ok(())
    }

    fn bad(&self) -> impl Iterator<Item = (&(String, String), &Verdict)> {
        self.verdicts.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Differs(_)))
    }
}

fn difference(expected: &Value, actual: &Value) -> String {
    let yaml =
        |value: &Value| serde_saphyr::to_string(value).unwrap_or_else(|error| error.to_string());
    let (expected, actual) = (yaml(expected), yaml(actual));
    TextDiff::from_lines(&expected, &actual).unified_diff().context_radius(3).to_string()
}

/// Returns a list in an order that does not depend on the order of its elements.
pub fn sorted(mut values: Vec<Value>) -> Value {
    values.sort_by_cached_key(Value::to_string);
    Value::Array(values)
}

/// Returns the value without nulls: one writer omits a field that another writes as null.
pub fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key.clone(), without_nulls(value)))
            .collect(),
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}
