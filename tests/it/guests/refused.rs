//! Outcomes of a real component that are refused as a whole; the message names the object and the
//! field.

use std::sync::Arc;

use mortise_core::{
    contract::Kind,
    grant::Grant,
    outcome::{Against, Limits, Plan, Reconciled},
    resource::{Kinds, Resource},
};
use serde_json::json;

use super::{call, misbehave, outcome, request};

fn known_kinds() -> Kinds {
    let mut kinds = Kinds::default();
    for name in ["ConfigMap", "Secret"] {
        let kind = Kind::home("", "v1", name);
        let plural = format!("{}s", name.to_lowercase());
        let (namespaced, status) = (true, false);
        kinds.insert(Arc::new(Resource { kind, plural, namespaced, status }));
    }
    kinds
}

/// Makes the plan of the outcome for an object of this name: returns the number of applied objects,
/// or the reason of the refusal.
async fn plan(name: &str) -> Result<usize, String> {
    let processor = misbehave().await;
    let grant = Grant::new(&processor.describe("").await.unwrap()).unwrap();
    let outcome = outcome(call(&processor, name).await);
    let reference = request(name).ref_;
    let object = json!({"metadata": {"name": name, "namespace": "default"}});
    let against = Against {
        grant: &grant,
        reconciler: &grant.reconciler("config-maps").unwrap().spec,
        reconciled: &Reconciled { reference, object: Some(object) },
        kinds: &known_kinds(),
        read: &|_| None,
        limits: Limits::default(),
    };
    let plan = Plan::build(&outcome, &against);
    plan.map(|plan| plan.apply.len())
        .map_err(|invalid| format!("{:#}", anyhow::Error::from(invalid)))
}

#[tokio::test]
async fn an_outcome_that_is_not_valid_is_refused_by_name_of_the_object_and_the_field() {
    let cases: [(&str, &[&str]); 3] = [
        ("nameless", &["apply[0]", "ConfigMap", "metadata.name"]),
        ("undeclared-kind", &["apply[0]", "Secret", "stolen", "is not declared"]),
        ("not-json", &["apply[0]", "JSON"]),
    ];
    for (name, expected) in cases {
        let message = plan(name).await.unwrap_err();
        for part in expected {
            assert!(message.contains(part), "{name}: no `{part}` in: {message}");
        }
    }
    assert_eq!(plan("good").await, Ok(1));
}
