//! What the runners of recorded scenarios share: files, values, requests to an API, and the
//! report.

mod client;
mod value;

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use anyhow::{Context as _, ensure};
use mortise_tests::goldens::Tally;
use serde_json::Value;

pub(super) use self::{
    client::{Of, Refused, Requests, Verb, definitions, group_of, path_of, send},
    value::{
        TIME, UID, change, conditions_mut, fields, mapped, merged, object_differences, regex, text,
        with_differences,
    },
};

/// The result of a scenario.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// The first step that differs from the record: each difference with object and field.
    pub(super) differences: Vec<String>,
    /// The reasons of the differences that are intended.
    pub(super) reasons: BTreeSet<String>,
}

impl Report {
    /// Returns the report of a scenario that could not be set up.
    pub(super) fn broken(error: &anyhow::Error) -> Self {
        Self { differences: vec![format!("{error:#}")], ..Self::default() }
    }
}

/// The reasons of all rules of an original, by name.
pub(super) type Reasons = BTreeMap<String, String>;

/// Returns the texts of the YAML files of a folder, by the names of the files without extension.
///
/// # Errors
///
/// Fails if a file cannot be read, or if there is none.
pub(super) fn texts(folder: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let mut texts = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path);
            texts.insert(name, text.with_context(|| format!("cannot read `{}`", path.display()))?);
        }
    }
    ensure!(!texts.is_empty(), "`{}` holds no YAML file", folder.display());
    Ok(texts)
}

/// Returns the first word of the name of a scenario.
pub(super) fn subject(name: &str) -> &str {
    name.split('-').next().unwrap_or_default()
}

/// Runs scenarios, and fails if one ends otherwise than recorded. A folder of other scenarios may
/// have none that are meant.
pub(super) fn check<'a, S: 'a>(
    part: &str,
    scenarios: impl Iterator<Item = (&'a str, &'a S)>,
    run: impl Fn(&S) -> Report,
) {
    let (mut tally, mut count) = (Tally::default(), 0);
    for (name, scenario) in scenarios {
        count += 1;
        let Report { differences, reasons } = run(scenario);
        if differences.is_empty() {
            println!("{name}: as recorded, {} intended differences", reasons.len());
            let reasons: Vec<String> = reasons.into_iter().collect();
            tally.compare(name, part, (&Value::Null, &reasons), &Value::Null);
        } else {
            println!("{name}: differs");
            tally.failed(name, part, &differences.join("\n"));
        }
    }
    if count > 0 {
        println!("{}", tally.report());
        tally.check().unwrap();
    }
}

/// Reads the reasons of the rules from a file beside this package's `Cargo.toml`.
///
/// # Panics
///
/// If the file cannot be read, or if it has not exactly one reason for each rule.
pub(super) fn reasons<'a>(file: &str, rules: impl Iterator<Item = &'a str>) -> Reasons {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let reasons: Reasons = serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let mut known: Vec<&str> = rules.collect();
    known.sort_unstable();
    let named: Vec<&str> = reasons.keys().map(String::as_str).collect();
    assert_eq!(named, known, "each rule has a reason in the file");
    reasons
}

/// Runs a step. A panic of the processor ends its scenario only.
pub(super) fn caught<T>(run: impl FnOnce() -> anyhow::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(outcome) => outcome.map_err(|error| format!("{error:#}")),
        Err(panic) => Err(panic_text(panic.as_ref())),
    }
}

/// Returns the differences of a step with its number, and with the runs that have failed.
pub(super) fn of_step(
    (index, count): (usize, usize),
    differences: Vec<String>,
    failures: &[String],
) -> Vec<String> {
    let failures = failures.iter().map(|failure| format!("failed run: {failure}"));
    let told = differences.into_iter().chain(failures);
    told.map(|text| format!("step {} of {count}: {text}", index + 1)).collect()
}

/// Applies rules to a record. Returns what is expected of ours, and the reasons of the rules that
/// have changed something.
pub(super) fn apply_rules<'a, R: Clone + PartialEq, C: Fn(&mut R)>(
    reasons: &Reasons,
    rules: impl Iterator<Item = (&'a str, C)>,
    record: &R,
) -> (R, BTreeSet<String>) {
    let (mut expected, mut applied) = (record.clone(), BTreeSet::new());
    for (rule, change) in rules {
        let Some(reason) = reasons.get(rule) else { continue };
        let before = expected.clone();
        change(&mut expected);
        if before != expected {
            applied.insert(reason.clone());
        }
    }
    (expected, applied)
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panicked: {}", text.unwrap_or("without a text"))
}
