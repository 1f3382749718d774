//! Cases: folders that say how a processor changes a cluster. The same folder runs natively, with
//! [`cases!`](crate::cases), and against the real component, with `mortise test`.
//!
//! | file | holds |
//! | --- | --- |
//! | `objects.yaml` | the objects that exist at first; Namespaces need not be among them |
//! | `objects` | a folder of such files, instead of `objects.yaml` |
//! | `clusters/NAME` | a folder of such files for each other cluster, described below |
//! | `config.yaml` | the configuration, if the processor has one |
//! | `calls.yaml` | the calls to systems outside of the cluster, and their answers, described below |
//! | `case.yaml` | how the case runs, if it does more than reconcile all objects |
//! | `expected.yaml` | the changes that the reconciles make; `mortise test --update` writes it |
//!
//! Any other file, and any other field, is an error.
//!
//! The folders `convert` and `review` are not cases: they hold cases of hooks, described below.
//!
//! # How a case runs
//!
//! The objects are loaded, then all objects are reconciled until no reconcile is due any more. Each
//! step of `case.yaml` changes the cluster, and then everything that has become due is reconciled.
//! All fields may be left out:
//!
//! ```yaml
//! now: 2026-01-01T00:00:00Z              # the time at the beginning; this is the default
//! only: Greeting/default/world           # reconcile this object alone: KIND/NAMESPACE/NAME
//! missing: [greetings.example.com]       # kinds that are not installed: PLURAL.GROUP
//! validate: false                        # skip schemas, as for objects stored under older ones
//! refuse: [{write: ConfigMap/default/world, verb: apply, code: 403, message: no, times: 1}]
//! steps:
//! - note: the greeting is another one    # for readers of the case
//!   after: 60s                           # moves the time; what is due by then runs once
//!   missing: []                          # the kinds that are not installed from here on
//!   delete: [ConfigMap/default/old]
//!   apply: [{…}]                         # objects, as kubectl apply --server-side, with status
//!   patch: [{…}]                         # JSON merge patches that name their object, with status
//!   refuse: [{…}]                        # writes that are refused until the next step
//! ```
//!
//! An object is named `KIND/NAMESPACE/NAME`, `KIND//NAME` if the kind has no namespaces, and
//! `KIND.GROUP/…` if two groups have the kind. In `delete`, and in `write` of a refusal, `*` stands
//! for any kind, namespace or name.
//!
//! In a refusal, `verb` is one of these, `any` by default:
//!
//! | verb | refuses |
//! | --- | --- |
//! | `any` | every write |
//! | `apply` | applies, patches and changes of finalizers |
//! | `create` | objects that are only created, never updated; events |
//! | `status` | writes of a status |
//! | `delete` | deletions and prunes |
//! | `evict` | evictions |
//!
//! A refusal of `create` ignores the name; `any` with a name refuses no creation.
//!
//! `code` is the HTTP status, 403 by default: a 4xx other than 429. The host itself repeats a
//! request after a 429 or 5xx, so that these do not reach a processor; a refused eviction is tested
//! with a `PodDisruptionBudget`. `times` is the number of refusals; without it, the writes are
//! refused until the next step.
//!
//! # Other clusters
//!
//! `clusters` in `case.yaml` names the folder of each other cluster, and the cluster by which the
//! processor reads and writes it:
//!
//! ```yaml
//! clusters:
//!   provider: {name: kube-bind/provider/kubeconfig}    # and missing, refuse, unreachable
//! steps:
//! - clusters:                            # what a step does there: the fields of a step, and
//!     provider: {unreachable: true}      # reads are unavailable and writes unanswered from here on
//! ```
//!
//! A cluster without objects needs no folder. Kinds of the guest's CRDs are installed in each
//! cluster; definitions that one cluster alone has are among its objects. The Secret with the
//! kubeconfig is added, without one that could be used, unless it is among the objects. `mortise
//! test` cannot make a cluster unreachable: such a case runs natively only.
//!
//! In `expected.yaml`, `clusters` holds `objects`, `gone` and `events` of other clusters by their
//! folders, and the name of a key of another cluster ends with ` in NAMESPACE/NAME/KEY`.
//!
//! # Calls to the outside
//!
//! `calls.yaml` holds a document for the first reconciles, and one for each step:
//!
//! ```yaml
//! any-order: false          # true: the calls may be made in any order
//! calls:
//! - method: GET
//!   url: https://eu.api.example.com/v1/items?tag=1
//!   token: secret           # the value of the credential; left out: any, or none
//!   answer: {status: 200, body: []}
//! - method: POST
//!   url: https://eu.api.example.com/v1/items
//!   body: {tag: '1'}        # a part of the JSON; left out: any
//!   answer: {status: 429, headers: {retry-after: '7'}}
//! - {method: PUT, url: https://eu.api.example.com/v1/items/7, error: no-answer}    # or not-sent
//! ```
//!
//! The rules of the host come first: a call that they refuse does not count. Granted is what the
//! processor declares. A call that is sent and not there fails the case, and one that is there and
//! not made fails it, too. A `body` of an answer that is a text is sent as it is, anything else as
//! JSON.
//!
//! A case of a processor that declares calls, or that leaves notes, runs a second time, in which all
//! notes are forgotten before each reconcile. Only the requeue delays may differ then; calls of the
//! file may be left out, or made again.
//!
//! # Expected changes
//!
//! `expected.yaml` holds a document for the first reconciles, and one for each step. A document
//! holds only what the *reconciles* have changed:
//!
//! ```yaml
//! objects:   # new objects whole; of others, a JSON merge patch (`null`: the field is gone)
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
//! Empty fields are left out; a document without changes is `{}`. Not compared are fields that the
//! API server sets (uid, resourceVersion, generation, creationTimestamp, managedFields, the uids of
//! owners), the count of an event, and the number of reconciles. A text that is the uid of an object
//! is `UID of KIND/NAMESPACE/NAME`, with ` in FOLDER` for one of another cluster. While a case of
//! reconciles runs, objects are converted; hooks of admission are not asked.
//!
//! # Cases of hooks
//!
//! Each folder in `convert` holds the conversion of an object, each folder in `review` the review
//! of a request by a hook:
//!
//! | file | holds |
//! | --- | --- |
//! | `object.yaml` | the object; in a review as it is to be stored, none in a deletion |
//! | `old.yaml` | in a review: the object as it is stored, none in a creation |
//! | `case.yaml` | `to: v2`, the version; in a review `hook: NAME` and, if needed, `user: jane` |
//! | `objects.yaml`, `objects` | in a review: the objects that the hook can read |
//! | `config.yaml` | the configuration, if the processor has one |
//! | `expected.yaml` | the answer |
//!
//! ```yaml
//! object: {…}                            # converted, or as the hook changed it; whole
//! deny: {code: 403, message: no}         # the request is refused
//! warnings: [it is marked]
//! error: spec must be an object          # the conversion is refused, or the hook fails
//! ```
//!
//! `{}` allows a request. The rules of the host apply: an answer that it would not accept is an
//! error.

mod calls;
mod document;
mod file;
mod hook;
mod stage;

pub use calls::{Calls, Scripted, ScriptedAnswer, ScriptedError, answers};
pub use document::{Changes, Difference, Document};
pub use file::{Case, Expected, Refuse, Remote, Step, all, load_objects};
pub use hook::{Deny, HookAnswer, HookCase, Native, Question, hooks};
pub use stage::Stage;

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use super::{Stub, run::Notes};
use crate::Processor;

/// Defines a test that runs the cases in a folder of the package natively:
/// `cases!(MyProcessor, "cases");`. Cases of hooks need the names of the interfaces that the
/// processor exports: `cases!(MyProcessor, "cases", conversion, admission);`.
#[macro_export]
macro_rules! cases {
    ($processor:ty, $folder:literal $(, $hook:ident)*) => {
        #[test]
        fn cases() {
            let hooks = &[$($crate::testing::case::Native::$hook::<$processor>()),*];
            $crate::testing::check_cases::<$processor>(env!("CARGO_MANIFEST_DIR"), $folder, hooks);
        }
    };
}

/// The environment variable that makes [`check`] accept differing results into expected.yaml, if
/// its value is 1.
const UPDATE: &str = "MORTISE_UPDATE";

/// Runs the cases in a folder of a package, with the CRDs that `package.metadata.mortise` of its
/// Cargo.toml names. `natives` answer the cases of hooks.
///
/// With `MORTISE_UPDATE=1` in the environment, the results are accepted: they are written into the
/// `expected.yaml` of each case that differs.
///
/// # Panics
///
/// If a case cannot be read, or its results differ from the expected ones. The message holds the
/// difference.
pub fn check<P: Processor>(package: &str, folder: &str, natives: &[Native]) {
    let crds = definitions(Path::new(package)).unwrap_or_else(|error| panic!("{error}"));
    let folder = Path::new(package).join(folder);
    let cases = all(&folder).unwrap_or_else(|error| panic!("{error}"));
    let of_hooks = hooks(&folder).unwrap_or_else(|error| panic!("{error}"));
    let update = std::env::var_os(UPDATE).is_some_and(|value| value == "1");
    let results =
        cases.iter().map(|case| (&case.name, differences::<P>(case, &crds, natives, update)));
    let of_hooks =
        of_hooks.iter().map(|case| (&case.name, hook_differences(case, natives, update)));
    let results: Vec<(&String, Vec<Difference>)> = results.chain(of_hooks).collect();
    let mut text = String::new();
    let mut failed = 0;
    for (name, differences) in results.iter().filter(|(_, differences)| !differences.is_empty()) {
        failed += 1;
        let _ = writeln!(text, "\ncase `{name}`:");
        for difference in differences {
            let _ = write!(text, "{difference}");
        }
    }
    assert!(
        failed == 0,
        "{failed} of {} cases differ (- expected, + now)\n{text}\nAccept what is right with `mortise test {package} --update`, or with \
         {UPDATE}=1 in the environment of this test.",
        results.len()
    );
}

/// Returns where the results of a case differ from the expected ones. With `update`, writes them
/// into `expected.yaml` instead.
fn differences<P: Processor>(
    case: &Case,
    crds: &[Value],
    natives: &[Native],
    update: bool,
) -> Vec<Difference> {
    let ran = || {
        let (stage, is_noted) = run_once::<P>(case, crds, natives, Notes::Kept)?;
        let file = case.expected_file();
        let mut wrong = accepted(stage.differences(), update, &file, || stage.accepted());
        wrong.extend(stage.wrong_calls());
        if wrong.is_empty() && (is_noted || !stage.egress().is_empty()) {
            let (forgetful, _) = run_once::<P>(case, crds, natives, Notes::Forgotten)?;
            wrong = stage.differences_without_notes(&forgetful);
        }
        Ok(wrong)
    };
    ran().unwrap_or_else(|error: String| vec![Difference::error(error)])
}

/// Does the same as [`differences`] for a case of a hook.
fn hook_differences(case: &HookCase, natives: &[Native], update: bool) -> Vec<Difference> {
    let answer = match Native::answer(natives, case) {
        Ok(answer) => answer,
        Err(error) => return vec![Difference::error(error)],
    };
    accepted(case.differences(&answer), update, &case.expected_file(), || answer.to_yaml())
}

fn accepted(
    differences: Vec<Difference>,
    update: bool,
    file: &Path,
    text: impl FnOnce() -> String,
) -> Vec<Difference> {
    if !update || differences.is_empty() {
        return differences;
    }
    match std::fs::write(file, text()) {
        Ok(()) => Vec::new(),
        Err(error) => vec![Difference::error(format!("{}: {error}", file.display()))],
    }
}

/// Runs a case natively, to its end. The `natives` convert objects, if they hold conversions.
///
/// # Errors
///
/// The API refuses an object of the case, the processor refuses the configuration, or the
/// reconciles do not come to rest.
pub fn run<P: Processor>(case: &Case, crds: &[Value], natives: &[Native]) -> Result<Stage, String> {
    run_once::<P>(case, crds, natives, Notes::Kept).map(|(stage, _)| stage)
}

/// Runs a case once. Returns whether a note was left, too.
fn run_once<P: Processor>(
    case: &Case,
    crds: &[Value],
    natives: &[Native],
    notes: Notes,
) -> Result<(Stage, bool), String> {
    let description = crate::processor::described::<P>(&case.config)?;
    let mut crds = crds.to_vec();
    let webhooks = hook::webhooks(natives, &case.config, &mut crds)?;
    let description = description.into();
    let mut stage = Stage::open(case.clone(), &crds, &description, webhooks)?;
    if notes == Notes::Forgotten {
        stage = stage.without_notes();
    }
    let stub = Stub::over(stage.clusters().clone()).answered(stage.replies(), notes);
    loop {
        let settled = stub.try_settle::<P>(&case.config, case.only.as_ref())?;
        stage.settled(&settled);
        if stage.next_step()?.is_none() {
            return Ok((stage, stub.is_noted()));
        }
    }
}

/// Reads the CRDs that `package.metadata.mortise` of a package's Cargo.toml names.
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
