//! The recorded scenarios of a real kube-apiserver, run against the embedded API.
//!
//! Reads the folder named by `MORTISE_GOLDENS`, else the copy under `tests/goldens`, and our own
//! recordings in `recorded` (kube-apiserver 1.34.4, in the same form). Each scenario has a fresh
//! server. Known differences are in `scenarios-differ.yaml`, with the reason; all else must be
//! equal, and the differences must exist.
//! `SCENARIOS=crud-` runs only those whose names begin so, and prints all differences.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "it is a test from end to end")]

#[path = "scenarios/normalise.rs"]
mod normalise;
#[path = "scenarios/run.rs"]
mod run;

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use jiff::Timestamp;
use mortise_embedded_api::{EmbeddedApi, Options};
use serde_json::Value;

#[test]
fn recorded_scenarios_are_answered_as_by_kubernetes() {
    let only = std::env::var("SCENARIOS").unwrap_or_default();
    let mut files: Vec<PathBuf> = Vec::new();
    for folder in folders() {
        let found = self::files(&folder, &only);
        assert!(!found.is_empty() || !only.is_empty(), "no scenarios in {}", folder.display());
        files.extend(found);
    }
    let differ = known_differences();
    let mut groups: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut wrong = String::new();
    for file in &files {
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        let group = name.split('-').next().unwrap().to_owned();
        let count = groups.entry(group).or_default();
        count.1 += 1;
        let reason = differ.get(&name);
        match (run_alone(&read(file)), reason) {
            (Ok(()), None) => count.0 += 1,
            (Ok(()), Some(_)) => {
                count.0 += 1;
                writeln!(wrong, "{name}: is equal, but listed in scenarios-differ.yaml").unwrap();
            }
            (Err(_), Some(_)) if only.is_empty() => {}
            (Err(difference), _) => writeln!(wrong, "{name}: {difference}").unwrap(),
        }
    }
    for name in differ.keys().filter(|_| only.is_empty()) {
        if !files.iter().any(|file| file.file_stem().unwrap() == name.as_str()) {
            writeln!(wrong, "{name}: no such scenario, but listed in scenarios-differ.yaml")
                .unwrap();
        }
    }
    let (mut equal, mut all) = (0, 0);
    for (group, (group_equal, group_all)) in &groups {
        println!("{group:12} {group_equal:3} of {group_all:3} equal");
        equal += group_equal;
        all += group_all;
    }
    println!("{:12} {equal:3} of {all:3} equal", "all");
    for (name, reason) in &differ {
        println!("differs: {name}: {reason}");
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// Runs a scenario against a server of its own, whose time passes when it is waited for.
fn run_alone(scenario: &Value) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let began = tokio::time::Instant::now();
        let start: Timestamp = "2024-06-01T12:00:00Z".parse().unwrap();
        let now = move || start + began.elapsed();
        let api = EmbeddedApi::new(Options { now: Arc::new(now), ..Options::default() });
        run::scenario(&api.router(), scenario).await
    })
}

fn folders() -> [PathBuf; 2] {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let goldens = std::env::var("MORTISE_GOLDENS").map(PathBuf::from);
    let goldens = goldens.unwrap_or_else(|_| crate_folder.join("../../tests/goldens"));
    [goldens.join("kubernetes-api"), crate_folder.join("tests/recorded")]
}

fn files(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|fault| panic!("{}: {fault}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.retain(|file| file.file_name().unwrap().to_str().unwrap().starts_with(prefix));
    files.sort();
    files
}

fn known_differences() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios-differ.yaml"),
    )
    .unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

fn read(file: &Path) -> Value {
    let text = std::fs::read_to_string(file).unwrap();
    serde_saphyr::from_str(&text).unwrap_or_else(|fault| panic!("{}: {fault}", file.display()))
}
