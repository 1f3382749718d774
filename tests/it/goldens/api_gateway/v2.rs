//! Cases of APIRules in v2 and v2alpha1.

use api_rule::change::Change;
use mortise::commands::simulate::simulate;
use mortise_host::host::Loaded;
use mortise_tests::goldens::{Case, sorted};
use serde_json::json;

use super::{Comparison, input, output};

pub(super) async fn run(case: &Case, loaded: &Loaded, comparison: &mut Comparison) {
    let end = match simulate(loaded.clone(), input::of(case)).await {
        Ok(end) => end,
        Err(error) => {
            return comparison.tally.failed(&case.name, "controller", &format!("{error:#}"));
        }
    };
    let status = output::status(&end, case);
    let expected = &case.expected;
    if let Some(controller) = expected.get("controller") {
        let original = output::recorded_status(controller);
        comparison.part(case, "controller", &original, &status);
    }
    let (rule, stub) = (input::rule(case), input::stub(case));
    if let Some(failures) = expected.get("validationFailures") {
        let ours = api_rule::reconcile::validate(&rule, &stub.host());
        let ours = ours
            .map_or_else(|error| json!(error.to_string()), |failures| output::failures(&failures));
        comparison.part(case, "validationFailures", failures, &ours);
    }
    if let Some(changes) = expected.get("changes") {
        let original = sorted(changes.as_array().unwrap().iter().map(output::change).collect());
        let ours = if status["state"] == "Ready" {
            Ok(output::folded(&end).iter().map(output::change).collect())
        } else {
            api_rule::reconcile::changes_unchecked(&rule, &stub.host())
                .map(|changes| changes.iter().map(output::native).collect())
        };
        match ours {
            Ok(ours) => comparison.part(case, "changes", &original, &sorted(ours)),
            Err(stop) => comparison.tally.failed(&case.name, "changes", &format!("{stop:?}")),
        }
    }
}

/// Returns the changes for a valid rule of a case; `None` if the case is another one.
pub(super) fn changes(case: &Case) -> Option<Vec<Change>> {
    if input::mode(case) != "v2" {
        return None;
    }
    let (rule, stub) = (input::rule(case), input::stub(case));
    // No object is applied for an invalid rule.
    let failures = api_rule::reconcile::validate(&rule, &stub.host());
    let is_valid = failures.is_ok_and(|failures| failures.is_empty());
    let changes = is_valid.then(|| api_rule::reconcile::changes_unchecked(&rule, &stub.host()));
    changes?.ok()
}
