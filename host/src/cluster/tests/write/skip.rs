use proptest::prelude::*;

use super::*;

/// Returns the applied objects, and the number of times that each may be sent again after a
/// restart: once, if the server writes it in another way.
fn kinds_of_objects() -> Vec<(&'static str, Value, u64)> {
    let rule = json!({"apiVersion": "x.dev/v1", "kind": "Rule", "metadata": {"name": "new", "namespace": "a"}, "spec": {"hosts": ["a", "b"], "n": 1.0, "deep": [{"x": {}}]}});
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "e", "namespace": "a"},
        "spec": {"selector": {"app": "x"}, "ports": [{"port": 80, "name": "web"}, {"port": 53, "protocol": "UDP", "name": "dns", "targetPort": 5353}]},
    });
    vec![
        ("a map", config_map("c", json!({"k": "v"})), 0),
        (
            "labels and annotations",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "l", "namespace": "a", "labels": {"a": "b"}, "annotations": {"x/y": "z"}}}),
            0,
        ),
        (
            "no fields at all",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n", "namespace": "a"}}),
            1,
        ),
        ("a custom resource with lists", rule, 0),
        ("defaulted fields and keys", service, 0),
        ("quantities", deployment(Some(2)), 1),
        (
            "stringData",
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "a"}, "stringData": {"k": "v"}}),
            1,
        ),
    ]
}

#[tokio::test]
async fn an_unchanged_apply_is_not_sent() {
    for (case, object, _) in kinds_of_objects() {
        let bed = Bed::new().await;
        let written = bed.run(apply([&object])).await;
        fine(&written);
        assert_eq!((written.changes.len(), bed.writes()), (1, 1), "{case}");
        for round in 0..3 {
            let written = bed.run(apply([&object])).await;
            assert_eq!((written.skipped, bed.writes()), (1, 0), "{case}, round {round}");
        }
    }
}

#[tokio::test]
async fn an_unchanged_apply_is_sent_at_most_once_after_a_restart() {
    for (case, object, again) in kinds_of_objects() {
        let mut bed = Bed::new().await;
        fine(&bed.run(apply([&object])).await);
        bed.restart().await;
        bed.writes();
        let written = bed.run(apply([&object])).await;
        fine(&written);
        assert_eq!(written.changes.len(), 0, "{case}: nothing is changed");
        assert_eq!(bed.writes(), again, "{case}");
        fine(&bed.run(apply([&object])).await);
        assert_eq!(bed.writes(), 0, "{case}: not for ever");
    }
}

#[tokio::test]
async fn an_unchanged_apply_is_not_sent_after_a_foreign_change_was_reverted() {
    for restart in [false, true] {
        let mut bed = Bed::new().await;
        let object = deployment(Some(2));
        fine(&bed.run(apply([&object])).await);
        let cpu = json!({"spec": {"template": {"spec": {"containers": [{"name": "app", "image": "i", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}, "ports": [{"containerPort": 80, "protocol": "TCP"}]}]}}}});
        bed.edit(&deployment_ref(), cpu).await;
        if restart {
            bed.restart().await;
        }
        let written = bed.run(apply([&object])).await;
        fine(&written);
        assert_eq!(actions(&written), ["update Deployment d"], "restart {restart}");
        let now = bed.object(&deployment_ref()).await;
        assert_eq!(
            now["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"],
            "1"
        );
        bed.writes();
        fine(&bed.run(apply([&object])).await);
        assert_eq!(bed.writes(), 0, "restart {restart}");
    }
}

#[tokio::test]
async fn a_foreign_change_outside_of_our_fields_sends_nothing() {
    for restart in [false, true] {
        let mut bed = Bed::new().await;
        let object = config_map("c", json!({"k": "v"}));
        fine(&bed.run(apply([&object])).await);
        bed.edit(&config_map_ref("c"), json!({"metadata": {"labels": {"theirs": "1"}}})).await;
        if restart {
            bed.restart().await;
        }
        bed.writes();
        fine(&bed.run(apply([&object])).await);
        assert_eq!(bed.writes(), 0, "restart {restart}");
    }
}

#[tokio::test]
async fn a_field_that_is_no_longer_sent_is_given_up() {
    for restart in [false, true] {
        let mut bed = Bed::new().await;
        fine(&bed.run(apply([&config_map("c", json!({"k": "v", "old": "v"}))])).await);
        bed.edit(&config_map_ref("c"), json!({"data": {"theirs": "1"}})).await;
        if restart {
            bed.restart().await;
        }
        let written = bed.run(apply([&config_map("c", json!({"k": "v"}))])).await;
        assert_eq!(actions(&written), ["update ConfigMap c"], "restart {restart}");
        assert_eq!(
            bed.object(&config_map_ref("c")).await["data"],
            json!({"k": "v", "theirs": "1"})
        );
    }
}

#[tokio::test]
async fn an_object_that_was_deleted_is_made_again() {
    for restart in [false, true] {
        let mut bed = Bed::new().await;
        let object = config_map("c", json!({"k": "v"}));
        fine(&bed.run(apply([&object])).await);
        bed.foreign(Method::Delete, &config_map_ref("c"), "", json!({})).await;
        if restart {
            bed.restart().await;
        }
        assert_eq!(
            actions(&bed.run(apply([&object])).await),
            ["create ConfigMap c"],
            "restart {restart}"
        );
    }
}

#[tokio::test]
async fn the_same_outcome_is_not_sent_twice_while_the_watch_is_behind() {
    let bed = Bed::new().await;
    let object = config_map("c", json!({"k": "v"}));
    fine(&bed.run_for("r", apply([&object])).await);
    bed.writes();
    let written = bed.run_for("r", apply([&object])).await;
    assert_eq!(
        (written.skipped, bed.writes()),
        (1, 0),
        "the answer of the write went into the store"
    );
}

#[tokio::test]
async fn a_report_in_between_does_not_have_anything_sent_again() {
    let bed = Bed::new().await;
    fine(&bed.run(apply([&deployment(Some(2))])).await);
    let reconciled = Reconciled { reference: rule_ref("r"), object: bed.get(&rule_ref("r")).await };
    let report = bed.plan(&reconciled, &status(&json!({"state": "Error"}))).await.only_report();
    fine(&bed.carry_out(&reconciled, &report).await);
    bed.writes();
    fine(&bed.run(apply([&deployment(Some(2))])).await);
    assert_eq!(bed.writes(), 0);
}

#[tokio::test]
async fn a_manifest_with_a_precondition_that_does_not_hold_is_sent_and_refused() {
    let bed = Bed::new().await;
    let object = config_map("c", json!({"k": "v"}));
    fine(&bed.run(apply([&object])).await);
    let live = bed.object(&config_map_ref("c")).await;
    let with = |key: &str, value: &Value| {
        let mut object = object.clone();
        object["metadata"][key] = value.clone();
        object
    };
    bed.writes();
    fine(&bed.run(apply([&with("resourceVersion", &live["metadata"]["resourceVersion"])])).await);
    fine(&bed.run(apply([&with("uid", &live["metadata"]["uid"])])).await);
    assert_eq!(bed.writes(), 0, "they hold");
    assert_eq!(
        codes(&bed.run(apply([&with("resourceVersion", &json!("1"))])).await),
        [(contract::Action::Apply, 409)]
    );
    let written =
        bed.run(apply([&with("uid", &json!("00000000-0000-0000-0000-000000000000"))])).await;
    assert!(matches!(codes(&written)[..], [(contract::Action::Apply, 409 | 422)]), "{written:?}");
}

#[tokio::test]
async fn a_precondition_never_makes_an_object() {
    let bed = Bed::new().await;
    for (key, value) in [("resourceVersion", "1"), ("uid", "00000000-0000-0000-0000-000000000000")]
    {
        let mut object = config_map("c", json!({"k": "v"}));
        object["metadata"][key] = json!(value);
        assert_eq!(
            codes(&bed.run(apply([&object])).await),
            [(contract::Action::Apply, 409)],
            "{key}"
        );
        assert_eq!(bed.get(&config_map_ref("c")).await, None, "{key}");
    }
}

#[tokio::test]
async fn an_object_that_is_only_created_is_left_alone_if_it_exists() {
    let mut bed = Bed::new().await;
    let create = |key: &str| Outcome {
        apply: vec![Given { mode: Mode::Create, ..given(&config_map("c", json!({"key": key}))) }],
        ..outcome()
    };
    assert_eq!(actions(&bed.run(create("1")).await), ["create ConfigMap c"]);
    bed.writes();
    assert_eq!(bed.run(create("2")).await.skipped, 1);
    assert_eq!(bed.writes(), 0);
    bed.restart().await;
    fine(&bed.run(create("3")).await);
    bed.stores = Stores::new();
    bed.writer = Writer::new(bed.stores.clone(), Arc::new(jiff::Timestamp::now));
    let written = bed.run_for("r", create("4")).await;
    fine(&written);
    assert_eq!(
        (written.changes.len(), written.skipped),
        (0, 1),
        "a store that knows nothing does not matter"
    );
    assert_eq!(bed.object(&config_map_ref("c")).await["data"], json!({"key": "1"}));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Objects of several kinds with any of their fields; then others; then the same again.
    #[test]
    fn an_outcome_applied_twice_writes_once(choices in proptest::collection::vec((0..7_usize, any::<bool>(), 0..3_u8), 1..12)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut bed = Bed::new().await;
            for (which, restarts, value) in choices {
                let mut object = kinds_of_objects()[which].1.clone();
                object["metadata"]["annotations"]["n"] = json!(value.to_string());
                fine(&bed.run(apply([&object])).await);
                if restarts {
                    bed.restart().await;
                    let written = bed.run(apply([&object])).await;
                    prop_assert_eq!(written.changes.len(), 0);
                }
                bed.writes();
                let written = bed.run(apply([&object])).await;
                fine(&written);
                prop_assert_eq!((written.skipped, bed.writes()), (1, 0));
            }
            Ok(())
        })?;
    }
}
