use super::*;

#[tokio::test]
async fn two_keys_that_patch_one_object_keep_both_their_fields() {
    let mut bed = Bed::new().await;
    bed.make(&config_map("c", json!({"theirs": "0"}))).await;
    let by = |key: &str| patch([&config_map("c", json!({key: "1"}))]);
    for round in 0..2 {
        for rule in ["r", "s"] {
            bed.catch_up().await;
            fine(&bed.run_for(rule, by(rule)).await);
        }
        assert_eq!(
            bed.object(&config_map_ref("c")).await["data"],
            json!({"theirs": "0", "r": "1", "s": "1"}),
            "round {round}"
        );
        bed.restart().await;
    }
    bed.writes();
    for rule in ["r", "s"] {
        let written = bed.run_for(rule, by(rule)).await;
        assert_eq!((written.skipped, bed.writes()), (1, 0), "{rule}");
    }
}

#[tokio::test]
async fn a_patch_of_an_object_that_is_not_there_fails_with_404_and_is_not_sent() {
    let bed = Bed::new().await;
    bed.writes();
    let written = bed.run(patch([&config_map("c", json!({"k": "v"}))])).await;
    assert_eq!(codes(&written), [(contract::Action::Patch, 404)]);
    assert_eq!(bed.writes(), 0);
    assert_eq!(bed.get(&config_map_ref("c")).await, None);
}

#[tokio::test]
async fn a_patch_of_an_object_that_the_store_still_has_never_makes_it() {
    let bed = Bed::new().await;
    bed.make(&config_map("c", json!({}))).await;
    bed.catch_up().await;
    bed.foreign(Method::Delete, &config_map_ref("c"), "", json!({})).await;
    let written = bed.run_for("r", patch([&config_map("c", json!({"k": "v"}))])).await;
    assert_eq!(codes(&written), [(contract::Action::Patch, 404)]);
    assert_eq!(bed.get(&config_map_ref("c")).await, None);
}

#[tokio::test]
async fn a_patch_carries_the_uid_of_a_live_get_where_the_store_knows_nothing() {
    let mut bed = Bed::new().await;
    bed.make(&config_map("c", json!({}))).await;
    bed.stores = Stores::new();
    bed.writer = Writer::new(bed.stores.clone(), Arc::new(jiff::Timestamp::now));
    fine(&bed.run_for("r", patch([&config_map("c", json!({"k": "v"}))])).await);
    assert_eq!(bed.object(&config_map_ref("c")).await["data"], json!({"k": "v"}));
    assert_eq!(
        codes(&bed.run_for("r", patch([&config_map("none", json!({"k": "v"}))])).await),
        [(contract::Action::Patch, 404)]
    );
}

#[tokio::test]
async fn fields_left_out_of_a_patch_are_removed_and_a_dropped_patch_stays() {
    let bed = Bed::new().await;
    bed.make(&config_map("c", json!({}))).await;
    fine(&bed.run(patch([&config_map("c", json!({"k": "v", "old": "v"}))])).await);
    fine(&bed.run(patch([&config_map("c", json!({"k": "v"}))])).await);
    assert_eq!(bed.object(&config_map_ref("c")).await["data"], json!({"k": "v"}));
    fine(&bed.run(outcome()).await);
    assert_eq!(bed.object(&config_map_ref("c")).await["data"], json!({"k": "v"}));
}

#[tokio::test]
async fn a_field_that_must_be_absent_is_removed_from_any_manager() {
    let mut bed = Bed::new().await;
    let mut theirs = config_map("c", json!({}));
    theirs["metadata"]["labels"] = json!({"old/label": "1", "new": "1"});
    bed.foreign(Method::Post, &config_map_ref("c"), "?fieldManager=former", theirs).await;
    let wanted = || Outcome {
        apply: vec![Given {
            absent: vec!["metadata.labels[\"old/label\"]".into(), "data.none".into()],
            ..given(&config_map("c", json!({"k": "v"})))
        }],
        ..outcome()
    };
    let written = bed.run(wanted()).await;
    fine(&written);
    assert_eq!(actions(&written), ["update ConfigMap c", "update ConfigMap c"], "after the apply");
    assert_eq!(bed.object(&config_map_ref("c")).await["metadata"]["labels"], json!({"new": "1"}));
    for restart in [false, true] {
        if restart {
            bed.restart().await;
        }
        bed.writes();
        assert_eq!(bed.run(wanted()).await.skipped, 1);
        assert_eq!(bed.writes(), 0, "restart {restart}");
        bed.edit(&config_map_ref("c"), json!({"metadata": {"labels": {"old/label": "2"}}})).await;
        assert_eq!(actions(&bed.run(wanted()).await), ["update ConfigMap c"], "restart {restart}");
        assert_eq!(
            bed.object(&config_map_ref("c")).await["metadata"]["labels"],
            json!({"new": "1"})
        );
    }
}

/// To remove it again and again would never end.
#[tokio::test]
async fn a_field_that_comes_back_from_its_default_is_removed_once_and_told() {
    let bed = Bed::new().await;
    let mut things = definition("Thing", "things");
    let schema = &mut things["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["count"] = json!({"type": "integer", "default": 3});
    fine(&bed.run(apply([&things])).await);
    let thing = json!({"apiVersion": "x.dev/v1", "kind": "Thing", "metadata": {"name": "t", "namespace": "a"}});
    let wanted = Outcome {
        apply: vec![Given { absent: vec!["count".into()], ..given(&thing) }],
        ..outcome()
    };
    let written = bed.run(wanted).await;
    assert_eq!(codes(&written), [(contract::Action::Apply, 422)]);
    let message = &written.failures[0].message;
    assert!(message.contains("`/count` of Thing") && message.contains("default"), "{message}");
    assert_eq!(bed.object(&object_ref(v1("x.dev", "Thing"), Some("a"), "t")).await["count"], 3);
}

/// No request can both apply and remove others' fields, so drift of both sorts takes two.
#[tokio::test]
async fn a_repair_is_one_write_for_own_and_one_for_absent_fields() {
    let bed = Bed::new().await;
    let wanted = || Outcome {
        apply: vec![Given {
            absent: vec!["data.old".into()],
            ..given(&config_map("c", json!({"k": "v"})))
        }],
        ..outcome()
    };
    fine(&bed.run(wanted()).await);
    let cases = [
        ("ours", json!({"k": "x"}), 1),
        ("what must be absent", json!({"old": "x"}), 1),
        ("both", json!({"k": "x", "old": "x"}), 2),
        ("neither", json!({"theirs": "x"}), 0),
    ];
    for (case, drift, count) in cases {
        bed.edit(&config_map_ref("c"), json!({"data": drift})).await;
        let before = bed.api.revision();
        let written = bed.run(wanted()).await;
        fine(&written);
        assert_eq!(
            (written.changes.len(), bed.api.revision() - before),
            (count, count as u64),
            "{case}"
        );
    }
}

#[tokio::test]
async fn a_patch_by_a_rule_with_labels_reaches_objects_that_have_them_only() {
    let bed = Bed::new().await;
    bed.make(&labelled("x")).await;
    bed.make(&config_map("y", json!({}))).await;
    bed.catch_up().await;
    let of = Selection { labels: "app=x".into(), ..whole(v1("", "ConfigMap")) };
    let rules = vec![write_rule(of, Verbs::UPDATE | Verbs::DELETE, &[])];
    let description = Description {
        name: "p".into(),
        version: "1".into(),
        reconcilers: vec![],
        reads: vec![],
        writes: rules,
        grants: Vec::new(),
        outbound: Vec::new(),
        config_schema: None,
    };
    let grant = Grant::new(&description).unwrap();
    let reconciled = Reconciled { reference: rule_ref("r"), object: bed.get(&rule_ref("r")).await };
    let outcome = Outcome {
        delete: vec![deletion(config_map_ref("y"))],
        ..patch([&config_map("x", json!({"k": "v"})), &config_map("y", json!({"k": "v"}))])
    };
    let known = bed.cluster.resolve_all(&kinds(&outcome, &reconciled.reference)).await.unwrap();
    let by = mortise_core::fixture::reconciler(whole(v1("", "ConfigMap")));
    let build = |outcome: &Outcome| {
        let against = Against {
            grant: &grant,
            reconciler: &by,
            reconciled: &reconciled,
            kinds: &known,
            read: &|_| None,
            limits: Limits::default(),
        };
        Plan::build(outcome, &against).unwrap()
    };
    let written = bed.carry_out(&reconciled, &build(&outcome)).await;
    assert_eq!(codes(&written), [(contract::Action::Patch, 403)]);
    assert!(
        written.failures[0].message.contains("labels `app=x`"),
        "{}",
        written.failures[0].message
    );
    assert_eq!(bed.object(&config_map_ref("x")).await["data"], json!({"k": "v"}));
    let written = bed.carry_out(&reconciled, &build(&Outcome { patch: vec![], ..outcome })).await;
    assert_eq!(codes(&written), [(contract::Action::Delete, 403)]);
    assert!(bed.get(&config_map_ref("y")).await.is_some());
}
