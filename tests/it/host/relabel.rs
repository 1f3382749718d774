//! Labels of produced objects that a user changes.

use serde_json::{Value, json};

use super::{POLICY, RULE, VIRTUAL_SERVICE, text, with_rules};

const OWNER: &str = "apirule.gateway.kyma-project.io/name";

#[tokio::test(start_paused = true)]
async fn a_produced_object_whose_owner_label_is_changed_is_repaired() {
    let stage = with_rules(&["alpha", "orders"]).await;
    let before = stage.state();
    for of in [VIRTUAL_SERVICE, POLICY] {
        for owner in [Value::Null, json!("nobody"), json!("alpha")] {
            let produced = stage.only(of, "orders-");
            let labels = json!({"metadata": {"labels": {OWNER: owner}}});
            stage.edit(of, text(&produced, "/metadata/name"), labels).await;
            let reports = stage.settle().await;
            let failed: Vec<_> =
                reports.iter().filter_map(|report| report.failure.as_ref()).collect();
            assert!(failed.is_empty(), "{of}, owner {owner}: {failed:#?}");
            assert_eq!(stage.state(), before, "{of}, owner {owner}");
            let uid = |object: &Value| text(object, "/metadata/uid").to_owned();
            assert_eq!(uid(&stage.only(of, "orders-")), uid(&produced), "{of}, owner {owner}");
        }
    }
}

/// The processor finds its object by its name, and leaves alone what a user has set.
#[tokio::test(start_paused = true)]
async fn a_host_that_is_taken_by_hand_stays_taken() {
    let stage = with_rules(&["orders"]).await;
    let produced = stage.only(VIRTUAL_SERVICE, "orders-");
    let mut by_hand = produced.clone();
    by_hand["metadata"] = json!({"name": "orders-https", "namespace": "a"});
    stage.apply(&[by_hand]).await;
    stage.settle().await;
    let rule = stage.get(RULE, "orders").unwrap();
    let said = text(&rule, "/status/description");
    assert!(said.contains("Host is occupied by another Virtual Service"), "{said}");
    let by_hand = stage.get(VIRTUAL_SERVICE, "orders-https").unwrap();
    assert_eq!(by_hand["metadata"].get("labels"), None);
}
