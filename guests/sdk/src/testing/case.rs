//! Cases: folders that say what a processor makes of a cluster. The same folder runs natively, with [`cases!`](crate::cases), and
//! against the real component, with `mortise test`.
//!
//! | file | holds |
//! | --- | --- |
//! | `objects.yaml` | the objects that exist; or a folder `objects` of such files. Namespaces need not be written |
//! | `config.yaml` | the configuration, where the processor has one |
//! | `case.yaml` | how the case runs, where there is more to say than reconcile all that is there |
//! | `expected.yaml` | what the reconciles led to; `mortise test --update` writes it |
//!
//! Any other file, and any other field, is an error.
//!
//! # How it runs
//!
//! The objects are loaded, then everything is reconciled until nothing is due any more. Each step of `case.yaml` changes something,
//! and again everything is reconciled that is due then. All fields may be left out:
//!
//! ```yaml
//! now: 2026-01-01T00:00:00Z              # the time at the beginning; this is the default
//! only: Greeting/default/world           # reconcile this object alone: KIND/NAMESPACE/NAME
//! missing: [greetings.example.com]       # kinds that are not installed: PLURAL.GROUP
//! validate: false                        # load objects past their schemas, as those stored under an older one
//! refuse: [{write: ConfigMap/default/world, verb: apply, code: 403, message: no, times: 1}]
//! steps:
//! - note: the greeting is another one    # for who reads it
//!   after: 60s                           # time moves on; what is due by then runs once
//!   missing: []                          # the kinds that are not installed from here on
//!   delete: [ConfigMap/default/old]
//!   apply: [{…}]                         # objects, as kubectl apply --server-side does, with their status
//!   patch: [{…}]                         # JSON merge patches that name their object, with its status
//!   refuse: [{…}]                        # writes that are refused until the next step
//! ```
//!
//! An object is named `KIND/NAMESPACE/NAME`, `KIND//NAME` where the kind has no namespaces, and `KIND.GROUP/…` where two groups have
//! the kind. In `delete` and in `write` of a refusal, `*` stands for any. `verb` is `apply` (patches and finalizers too), `create`
//! (what is made only once; events), `status`, `delete` (prune too), `evict`, or `any`, which is the default; `code` is a 4xx other
//! than 429 (what is busy is asked again by the host, and does not reach a processor), 403 by default; without `times` it
//! is refused until the next step.
//!
//! # What is expected
//!
//! A document for the first reconciles, and one for each step. It says only what the *reconciles* have changed:
//!
//! ```yaml
//! objects:            # new ones whole; of those that were there, what differs: a JSON merge patch (`null`: the field is gone)
//! - apiVersion: v1
//!   kind: ConfigMap
//!   metadata: {name: world, namespace: default}
//!   data: {text: Hello}
//! - apiVersion: example.com/v1
//!   kind: Greeting
//!   metadata: {name: world, namespace: default}
//!   status: {state: Ready}
//! gone: [ConfigMap/default/old]
//! events: [{type: Normal, reason: Greeted, on: Greeting/default/world, message: Hello}]
//! requeues: {Greeting/default/world: 30m}     # `null`: not any more
//! failures: {Greeting/default/world: no}      # `null`: not any more
//! ```
//!
//! What is empty is left out; where nothing changes the document is `{}`. Not compared are what the server gives (uid,
//! resourceVersion, generation, creationTimestamp, managedFields, the uids of owners), how often an event was said, and how many
//! reconciles it took.

mod document;
mod file;
mod stage;

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use super::{Stub, cluster::declared_kinds};
use crate::Processor;
pub use document::{Difference, Document};
pub use file::{Case, Expected, Refuse, Step, all, load_objects};
pub use stage::Stage;

/// Runs the cases in a folder of the guest natively, as one test: `cases!(MyProcessor, "cases");`.
#[macro_export]
macro_rules! cases {
    ($processor:ty, $folder:literal) => {
        #[test]
        fn cases() {
            $crate::testing::check_cases::<$processor>(env!("CARGO_MANIFEST_DIR"), $folder);
        }
    };
}

/// With this variable set to 1, [`check`] writes into expected.yaml what came out where it differs.
const UPDATE: &str = "MORTISE_UPDATE";

/// Runs the cases in a folder of a package, with the CRDs that `package.metadata.mortise` of its Cargo.toml names. With the variable
/// `MORTISE_UPDATE=1` in the environment, what came out is accepted.
///
/// # Panics
///
/// If a case cannot be read, or does not end as it expects; with the difference.
pub fn check<P: Processor>(package: &str, folder: &str) {
    let crds = definitions(Path::new(package)).unwrap_or_else(|error| panic!("{error}"));
    let cases = all(&Path::new(package).join(folder)).unwrap_or_else(|error| panic!("{error}"));
    let update = std::env::var_os(UPDATE).is_some_and(|value| value == "1");
    let mut text = String::new();
    let mut failed = 0;
    for case in &cases {
        let differences = differences::<P>(case, &crds, update);
        if !differences.is_empty() {
            failed += 1;
            let _ = writeln!(text, "\ncase `{}`:", case.name);
        }
        for difference in &differences {
            let _ = write!(text, "{difference}");
        }
    }
    assert!(
        failed == 0,
        "{failed} of {} cases differ (- expected, + now)\n{text}\nAccept what is right with `mortise test {package} --update`, or with \
         {UPDATE}=1 in the environment of this test.",
        cases.len()
    );
}

/// Where a case does not end as it expects; with `update` it does from now on.
fn differences<P: Processor>(case: &Case, crds: &[Value], update: bool) -> Vec<Difference> {
    let stage = match run::<P>(case, crds) {
        Ok(stage) => stage,
        Err(error) => return vec![Difference::error(error)],
    };
    let differences = stage.differences();
    if !update || differences.is_empty() {
        return differences;
    }
    match std::fs::write(case.expected_file(), stage.accepted()) {
        Ok(()) => Vec::new(),
        Err(error) => {
            vec![Difference::error(format!("{}: {error}", case.expected_file().display()))]
        }
    }
}

/// Runs one case natively, to its end.
///
/// # Errors
///
/// A case that cannot be run: objects that the API refuses, a configuration that the processor does, no rest.
pub fn run<P: Processor>(case: &Case, crds: &[Value]) -> Result<Stage, String> {
    let description = crate::processor::described::<P>(&case.config)?;
    let mut stage = Stage::open(case.clone(), crds, &declared_kinds(&description))?;
    let stub = Stub::over(stage.cluster().clone());
    loop {
        let settled = stub.try_settle::<P>(&case.config, case.only.as_ref())?;
        stage.settled(&settled);
        if stage.next_step()?.is_none() {
            return Ok(stage);
        }
    }
}

/// The CRDs that a package says it needs.
fn definitions(package: &Path) -> Result<Vec<Value>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = package.join("Cargo.toml");
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path"])
        .arg(&manifest)
        .output()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let packages = metadata.get("packages").and_then(Value::as_array);
    let is_it = |package: &&Value| {
        package.get("manifest_path").and_then(Value::as_str).map(Path::new) == Some(&manifest)
    };
    let folders = packages.and_then(|packages| {
        packages.iter().find(is_it)?.pointer("/metadata/mortise/crds").cloned()
    });
    let folders: Vec<PathBuf> = match folders {
        None => Vec::new(),
        Some(folders) => serde_json::from_value(folders).map_err(|error| {
            format!("`package.metadata.mortise.crds` of {}: {error}", manifest.display())
        })?,
    };
    let loaded: Result<Vec<Vec<Value>>, String> =
        folders.iter().map(|folder| load_objects(&package.join(folder))).collect();
    Ok(loaded?.concat())
}
