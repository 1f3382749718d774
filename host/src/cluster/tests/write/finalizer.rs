use super::*;

async fn held(bed: &Bed) -> Value {
    bed.object(&rule_ref("r")).await["metadata"]["finalizers"].clone()
}

#[tokio::test]
async fn finalizers_are_added_and_taken_away_and_those_of_others_stay() {
    let bed = Bed::new().await;
    bed.edit(&rule_ref("r"), json!({"metadata": {"finalizers": ["other.dev/x"]}})).await;
    fine(&bed.run(finalizers(&["x.dev/f"])).await);
    assert_eq!(held(&bed).await, json!(["other.dev/x", "x.dev/f"]));
    bed.writes();
    fine(&bed.run(finalizers(&["x.dev/f"])).await);
    fine(&bed.run(outcome()).await);
    assert_eq!(bed.writes(), 0, "as they are");
    fine(&bed.run(finalizers(&["x.dev/g"])).await);
    assert_eq!(held(&bed).await, json!(["other.dev/x", "x.dev/g"]));
    fine(&bed.run(finalizers(&[])).await);
    assert_eq!(held(&bed).await, json!(["other.dev/x"]));
}

#[tokio::test]
async fn finalizers_are_not_lost_to_a_change_that_was_not_seen() {
    let bed = Bed::new().await;
    let old = bed.get(&rule_ref("r")).await;
    bed.edit(&rule_ref("r"), json!({"metadata": {"finalizers": ["other.dev/x"]}})).await;
    fine(
        &bed.run_with(
            Reconciled { reference: rule_ref("r"), object: old },
            finalizers(&["x.dev/f"]),
        )
        .await,
    );
    assert_eq!(held(&bed).await, json!(["other.dev/x", "x.dev/f"]));
}

#[tokio::test]
async fn a_later_apply_of_the_same_object_does_not_take_finalizers_away() {
    let bed = Bed::new().await;
    let rule = json!({"apiVersion": "x.dev/v1", "kind": "Rule", "metadata": {"name": "r", "namespace": "a", "labels": {"l": "1"}}});
    let written = bed
        .run(Outcome { finalizers: finalizers(&["x.dev/f"]).finalizers, ..apply([&rule]) })
        .await;
    fine(&written);
    assert_eq!(actions(&written), ["finalizers Rule r", "update Rule r"]);
    assert_eq!(held(&bed).await, json!(["x.dev/f"]));
}

#[tokio::test]
async fn without_its_last_finalizer_a_deleted_object_is_gone() {
    let bed = Bed::new().await;
    fine(&bed.run(finalizers(&["x.dev/f"])).await);
    bed.foreign(Method::Delete, &rule_ref("r"), "", json!({})).await;
    let written =
        bed.run(Outcome { finalizers: Some(vec![]), ..status(&json!({"state": "Gone"})) }).await;
    fine(&written);
    assert_eq!(actions(&written), ["status Rule r", "finalizers Rule r"]);
    assert_eq!(bed.get(&rule_ref("r")).await, None);
    assert!(
        matches!(bed.stores.known(&rule_ref("r")), mortise_core::store::Known::Absent),
        "the store knows at once"
    );
}

#[tokio::test]
async fn finalizers_of_another_incarnation_are_left_alone() {
    let bed = Bed::new().await;
    let old = bed.get(&rule_ref("r")).await;
    bed.foreign(Method::Delete, &rule_ref("r"), "", json!({})).await;
    bed.make(&rule("r")).await;
    fine(
        &bed.run_with(
            Reconciled { reference: rule_ref("r"), object: old },
            finalizers(&["x.dev/f"]),
        )
        .await,
    );
    assert_eq!(held(&bed).await, Value::Null);
}

#[tokio::test]
async fn a_finalizer_that_cannot_be_added_stops_everything_else() {
    let bed = Bed::new().await;
    bed.edit(&rule_ref("r"), json!({"metadata": {"finalizers": ["other.dev/x"]}})).await;
    bed.foreign(Method::Delete, &rule_ref("r"), "", json!({})).await;
    let written = bed
        .run(Outcome {
            finalizers: finalizers(&["x.dev/f"]).finalizers,
            ..apply([&config_map("c", json!({}))])
        })
        .await;
    assert_eq!(codes(&written), [(contract::Action::Finalize, 422)]);
    assert_eq!(bed.get(&config_map_ref("c")).await, None);
}
