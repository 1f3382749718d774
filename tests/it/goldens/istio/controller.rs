//! Recorded reconciles of the original's controller, compared with the state in which all four
//! processors come to rest.
//!
//! The original does everything in one pass; here the same state is reached in steps:
//!
//! 1. istio-installation refuses the resource, or applies Istio. It says `Processing`, adds its
//!    finalizer, and looks again at once.
//! 2. The other processors take the resource over before its last applied configuration changes:
//!    peer-authentication applies its objects if the configuration has a tag; the two that restart
//!    write down which settings were rolled out.
//! 3. The workloads become ready. istio-installation verifies the Pods, records what has taken
//!    effect, and sums up all conditions in `Ready`, `state` and `description`.
//! 4. The two that restart see that changed settings are in force, and restart, each with its
//!    condition. After the last of them the whole resource is recorded.
//!
//! A deletion goes the same way: istio-installation removes Istio, then the others what is left,
//! each under a finalizer of its own.
//!
//! The cases run natively only: the library fails as the recorded installer did, by a double, and
//! the four processors take turns in one cluster.

mod facts;
mod given;
mod installation;
mod outcome;
mod stage;

use mortise_tests::goldens::group::GroupCase;
use serde_json::Value;

use self::{outcome::Outcome, stage::Stage};
use super::{Part, run_with};

#[test]
fn istio_controller_settles_as_recorded() {
    run_with("controller", facts::add, parts);
}

/// Returns the parts of a case: the record, and the settled state.
fn parts(case: &GroupCase) -> Vec<Part> {
    let stage = Stage::of(case);
    let requeue = stage.settle(&case.name);
    let (recorded, settled) = (Outcome::recorded(case), Outcome::settled(&stage, &requeue));
    let part =
        |name, of: fn(&Outcome) -> &Value| (name, of(&recorded).clone(), of(&settled).clone());
    vec![
        part("resource", |outcome| &outcome.resource),
        part("annotation", |outcome| &outcome.annotation),
        part("restarts", |outcome| &outcome.restarts),
        part("objects", |outcome| &outcome.objects),
        part("namespace", |outcome| &outcome.namespace),
        part("labels", |outcome| &outcome.labels),
        part("again", |outcome| &outcome.again),
    ]
}
