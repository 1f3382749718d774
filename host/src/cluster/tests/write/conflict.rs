use mortise_core::write::{MAX_TAKINGS, TAKINGS_PERIOD};

use super::*;

async fn take(bed: &Bed, value: &str) {
    bed.edit(&config_map_ref("c"), json!({"data": {"k": value}})).await;
}

#[tokio::test]
async fn a_foreign_change_of_an_applied_field_is_reverted() {
    let bed = Bed::new().await;
    let wanted = config_map("c", json!({"k": "ours"}));
    fine(&bed.run(apply([&wanted])).await);
    take(&bed, "theirs").await;
    let written = bed.run(apply([&wanted])).await;
    fine(&written);
    assert_eq!(actions(&written), ["update ConfigMap c"]);
    assert_eq!(bed.object(&config_map_ref("c")).await["data"], json!({"k": "ours"}));
}

#[tokio::test]
async fn a_field_added_by_another_client_is_kept() {
    let bed = Bed::new().await;
    let wanted = config_map("c", json!({"k": "ours"}));
    fine(&bed.run(apply([&wanted])).await);
    bed.edit(&config_map_ref("c"), json!({"data": {"other": "theirs"}})).await;
    bed.writes();
    fine(&bed.run(apply([&wanted])).await);
    assert_eq!(bed.writes(), 0);
    assert_eq!(
        bed.object(&config_map_ref("c")).await["data"],
        json!({"k": "ours", "other": "theirs"})
    );
}

#[tokio::test]
async fn a_field_held_by_another_key_is_a_conflict_that_names_its_manager() {
    let bed = Bed::new().await;
    fine(&bed.run(apply([&config_map("c", json!({"k": "r"}))])).await);
    bed.catch_up().await;
    let written = bed.run_for("s", apply([&config_map("c", json!({"k": "s", "own": "s"}))])).await;
    assert_eq!(codes(&written), [(contract::Action::Apply, 409)]);
    assert_eq!(written.failures[0].conflicting_managers, [managers("r").apply]);
    assert_eq!(bed.object(&config_map_ref("c")).await["data"], json!({"k": "r"}));
}

#[tokio::test]
async fn both_keys_of_a_field_conflict_are_told_about_each_other() {
    let bed = Bed::new().await;
    let held = config_map("c", json!({"k": "r"}));
    fine(&bed.run(apply([&held])).await);
    let refused = bed.run_for("s", apply([&config_map("c", json!({"k": "s"}))])).await;
    let message = &refused.failures[0].message;
    assert_eq!(
        message,
        "field conflict: `p/rule:a/r` has set other values in `.data.k` of ConfigMap v1 `a/c`, which are kept"
    );
    let told = bed.run(apply([&held])).await;
    assert_eq!(
        told.warnings,
        [
            "field conflict: `p/rule:a/s` wants other values in `.data.k` of ConfigMap v1 `a/c`, and is refused"
        ]
    );
    // The warning lasts as long as the conflict.
    assert_eq!(bed.run(apply([&held])).await.warnings.len(), 1);
    fine(&bed.run_for("s", apply([])).await);
    fine(&bed.run(apply([&held])).await);
}

/// A run that does not read again must not recreate an object that another client has deleted on
/// purpose.
#[tokio::test]
async fn an_apply_to_an_object_deleted_since_the_read_writes_nothing() {
    let wanted = config_map("c", json!({"k": "ours"}));
    for is_made_anew in [false, true] {
        let bed = Bed::new().await;
        fine(&bed.run(apply([&wanted])).await);
        let read = uid(&bed.object(&config_map_ref("c")).await).unwrap().to_owned();
        let reconciled =
            Reconciled { reference: rule_ref("r"), object: bed.get(&rule_ref("r")).await };
        let outcome =
            Outcome { status: Some("{}".into()), ..apply([&config_map("c", json!({"k": "new"}))]) };
        let plan = bed.plan_having_read(&reconciled, &outcome, &|_| Some(read.clone())).await;
        bed.foreign(Method::Delete, &config_map_ref("c"), "", json!({})).await;
        if is_made_anew {
            bed.make(&config_map("c", json!({"k": "theirs"}))).await;
        }
        let revision = bed.api.revision();
        let written = bed.carry_out(&reconciled, &plan).await;
        assert_eq!(written.stale, [config_map_ref("c")], "{written:?}");
        assert!(written.failures.is_empty() && written.changes.is_empty(), "{written:?}");
        assert_eq!(bed.api.revision(), revision, "neither this nor anything later was written");
        let left = bed.get(&config_map_ref("c")).await.map(|object| object["data"].clone());
        assert_eq!(left, is_made_anew.then(|| json!({"k": "theirs"})));
    }
}

#[tokio::test]
async fn an_apply_after_a_read_carries_the_uid_of_the_read_object() {
    let bed = Bed::new().await;
    let reconciled = Reconciled { reference: rule_ref("r"), object: bed.get(&rule_ref("r")).await };
    bed.make(&config_map("c", json!({"theirs": "v"}))).await;
    bed.catch_up().await;
    let read = uid(&bed.object(&config_map_ref("c")).await).unwrap().to_owned();
    let outcome = apply([&config_map("c", json!({"k": "ours"}))]);
    let plan = bed.plan_having_read(&reconciled, &outcome, &|_| Some(read.clone())).await;
    assert_eq!(plan.apply[0].object["metadata"]["uid"], json!(read));
    let written = bed.carry_out(&reconciled, &plan).await;
    assert_eq!(actions(&written), ["update ConfigMap c"]);
    bed.writes();
    let again = bed.carry_out(&reconciled, &plan).await;
    assert_eq!((again.skipped, bed.writes()), (1, 0));
}

#[tokio::test]
async fn the_same_value_can_be_held_by_two_keys() {
    let bed = Bed::new().await;
    let shared = config_map("c", json!({"k": "v"}));
    fine(&bed.run(apply([&shared])).await);
    bed.catch_up().await;
    fine(&bed.run_for("s", apply([&shared])).await);
    bed.catch_up().await;
    fine(&bed.run_for("s", apply([&config_map("c", json!({}))])).await);
    assert_eq!(
        bed.object(&config_map_ref("c")).await["data"],
        json!({"k": "v"}),
        "the other still holds it"
    );
}

#[tokio::test]
async fn an_apply_over_a_patch_of_the_same_key_does_not_conflict() {
    let bed = Bed::new().await;
    bed.make(&config_map("c", json!({}))).await;
    fine(&bed.run(patch([&config_map("c", json!({"k": "1"}))])).await);
    fine(&bed.run(apply([&config_map("c", json!({"k": "2"}))])).await);
    assert_eq!(bed.object(&config_map_ref("c")).await["data"], json!({"k": "2"}));
}

#[tokio::test(start_paused = true)]
async fn after_five_takings_of_one_field_within_ten_minutes_it_backs_off_with_a_warning_that_names_both()
 {
    let bed = Bed::new().await;
    let wanted = config_map("c", json!({"k": "ours"}));
    fine(&bed.run(apply([&wanted])).await);
    for round in 0..MAX_TAKINGS {
        take(&bed, &format!("theirs {round}")).await;
        fine(&bed.run(apply([&wanted])).await);
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    take(&bed, "theirs").await;
    let written = bed.run(apply([&wanted])).await;
    assert_eq!(codes(&written), [(contract::Action::Apply, 409)]);
    assert!(written.is_failure(), "the key backs off");
    let warning = written.warnings.join("\n");
    for part in [".data.k", "kubectl-edit", &managers("r").apply, "ConfigMap v1 `a/c`"] {
        assert!(warning.contains(part), "`{warning}` should name `{part}`");
    }
    assert_eq!(bed.object(&config_map_ref("c")).await["data"], json!({"k": "theirs"}));
    tokio::time::advance(TAKINGS_PERIOD).await;
    fine(&bed.run(apply([&wanted])).await);
    assert_eq!(bed.object(&config_map_ref("c")).await["data"], json!({"k": "ours"}));
}
