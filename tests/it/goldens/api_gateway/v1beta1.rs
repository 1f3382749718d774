//! Cases of APIRules in v1beta1.

use api_rule::{change::Change, config::Handler, v1beta1};
use mortise::commands::simulate::simulate;
use mortise_host::host::Loaded;
use mortise_tests::goldens::{Case, sorted};
use serde_json::{Value, json};

use super::{Comparison, differences, input, output};

pub(super) async fn run(case: &Case, loaded: &Loaded, comparison: &mut Comparison) {
    if let Err(error) = input::stored(case) {
        return comparison.tally.failed(&case.name, "conversion", &error);
    }
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
    let (rule, stub, handler) = (input::rule(case), input::stub(case), handler(case));
    let failures = v1beta1::validate(&rule, handler, &stub.host()).unwrap();
    if let Some(original) = expected.get("validationFailures") {
        comparison.part(case, "validationFailures", original, &output::failures(&failures));
    }
    let changes = v1beta1::changes_unchecked(&rule, handler, &stub.host());
    if let Some(original) = expected.get("changes") {
        let original = sorted(original.as_array().unwrap().iter().map(output::change).collect());
        let ours = match &changes {
            _ if status["description"] == differences::DEPRECATED => {
                output::folded(&end).iter().map(output::change).collect()
            }
            Ok(changes) => changes.iter().map(output::native).collect(),
            Err(stop) => {
                return comparison.tally.failed(&case.name, "changes", &format!("{stop:?}"));
            }
        };
        comparison.part(case, "changes", &original, &sorted(ours));
    }
    if let Some(original) = expected.get("v1beta1Status") {
        let ours = json!(v1beta1::status_of(handler, &failures, &changes));
        comparison.part(case, "v1beta1Status", original, &ours);
    }
    if let Some(original) = expected.get("defaultDomain") {
        let original = json!([original, expected.get("defaultDomainError")]);
        comparison.part(case, "defaultDomain", &original, &domain(case));
    }
}

/// Returns the default domain and why there is none.
fn domain(case: &Case) -> Value {
    match v1beta1::default_domain(&input::stub(case).host()).unwrap() {
        Ok(Some(domain)) => json!([domain, null]),
        Ok(None) => json!(["", "gateways.networking.istio.io \"kyma-gateway\" not found"]),
        Err(message) => json!(["", message]),
    }
}

fn handler(case: &Case) -> Handler {
    if input::handler(case) == Some("istio") { Handler::Istio } else { Handler::Ory }
}

/// Returns the changes for a valid rule of a case; `None` if the case is another one.
pub(super) fn changes(case: &Case) -> Option<Vec<Change>> {
    if input::mode(case) != "v1beta1" {
        return None;
    }
    let (rule, stub, handler) = (input::rule(case), input::stub(case), handler(case));
    let failures = v1beta1::validate(&rule, handler, &stub.host()).unwrap();
    let changes =
        failures.is_empty().then(|| v1beta1::changes_unchecked(&rule, handler, &stub.host()));
    changes?.ok()
}
