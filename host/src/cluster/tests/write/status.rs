use super::*;

#[tokio::test]
async fn a_status_is_applied_and_not_sent_again() {
    let mut bed = Bed::new().await;
    let ready = json!({"state": "Ready", "conditions": [{"type": "Ready", "status": "True"}]});
    assert_eq!(actions(&bed.run(status(&ready)).await), ["status Rule r"]);
    let live = bed.object(&rule_ref("r")).await;
    assert_eq!((&live["status"], &live["metadata"]["generation"]), (&ready, &json!(1)));
    for restart in [false, true] {
        if restart {
            bed.restart().await;
        }
        bed.writes();
        let written = bed.run(status(&ready)).await;
        assert_eq!((written.skipped, bed.writes()), (1, 0), "restart {restart}");
    }
}

#[tokio::test]
async fn a_part_of_a_status_that_is_no_longer_sent_is_given_up_and_that_of_others_stays() {
    let bed = Bed::new().await;
    fine(&bed.run(status(&json!({"state": "Error", "message": "m"}))).await);
    bed.foreign(
        Method::MergePatch,
        &rule_ref("r"),
        "/status?fieldManager=other",
        json!({"status": {"theirs": 1}}),
    )
    .await;
    fine(&bed.run(status(&json!({"state": "Ready"}))).await);
    assert_eq!(bed.object(&rule_ref("r")).await["status"], json!({"state": "Ready", "theirs": 1}));
}

#[tokio::test]
async fn a_status_that_somebody_changed_is_taken_back() {
    for restart in [false, true] {
        let mut bed = Bed::new().await;
        fine(&bed.run(status(&json!({"state": "Ready"}))).await);
        bed.foreign(
            Method::MergePatch,
            &rule_ref("r"),
            "/status?fieldManager=other",
            json!({"status": {"state": "Broken"}}),
        )
        .await;
        if restart {
            bed.restart().await;
        }
        assert_eq!(actions(&bed.run(status(&json!({"state": "Ready"}))).await), ["status Rule r"]);
        assert_eq!(bed.object(&rule_ref("r")).await["status"], json!({"state": "Ready"}));
    }
}

#[tokio::test]
async fn two_keys_own_a_part_of_one_status_each() {
    let bed = Bed::new().await;
    fine(&bed.run(status(&json!({"r": 1}))).await);
    let reconciled = Reconciled { reference: rule_ref("r"), object: bed.get(&rule_ref("r")).await };
    let plan = bed.plan(&reconciled, &status(&json!({"other": 1}))).await;
    let key = Key::new(&"q".into(), &"rule".into(), Some("a"), "r");
    fine(
        &bed.writer
            .carry_out(
                &plan,
                &bed.cluster,
                &Context {
                    key: &key,
                    namespace: "system",
                    processor: "q",
                    reconciled: &reconciled,
                    take_over: &[],
                    rights: None,
                    whole_status: false,
                },
            )
            .await,
    );
    assert_eq!(bed.object(&rule_ref("r")).await["status"], json!({"r": 1, "other": 1}));
}

#[tokio::test]
async fn the_status_of_an_object_that_has_gone_is_no_failure() {
    let bed = Bed::new().await;
    let old = bed.get(&rule_ref("r")).await;
    bed.foreign(Method::Delete, &rule_ref("r"), "", json!({})).await;
    fine(
        &bed.run_with(
            Reconciled { reference: rule_ref("r"), object: old.clone() },
            status(&json!({"state": "Ready"})),
        )
        .await,
    );
    assert_eq!(bed.get(&rule_ref("r")).await, None);
    bed.make(&rule("r")).await;
    bed.catch_up().await;
    fine(
        &bed.run_with(
            Reconciled { reference: rule_ref("r"), object: old },
            status(&json!({"state": "Ready"})),
        )
        .await,
    );
    assert_eq!(
        bed.object(&rule_ref("r")).await["status"],
        Value::Null,
        "another incarnation is not told"
    );
}

/// Returns a bed that writes whole statuses, with a rule of which two managers own the status.
async fn bed_of_whole_statuses() -> Bed {
    let bed = Bed { whole_status: true, ..Bed::new().await };
    fine(&bed.run(status(&json!({"state": "Error", "message": "m"}))).await);
    theirs(&bed, json!({"theirs": 1})).await;
    bed
}

async fn theirs(bed: &Bed, status: Value) {
    let body = json!({"status": status});
    bed.foreign(Method::MergePatch, &rule_ref("r"), "/status?fieldManager=other", body).await;
}

#[tokio::test]
async fn a_whole_status_removes_the_fields_of_others_and_is_not_sent_again() {
    let mut bed = bed_of_whole_statuses().await;
    let ready = json!({"state": "Ready"});
    assert_eq!(actions(&bed.run(status(&ready)).await), ["status Rule r"]);
    assert_eq!(bed.object(&rule_ref("r")).await["status"], ready);
    for restart in [false, true] {
        if restart {
            bed.restart().await;
        }
        bed.writes();
        let written = bed.run(status(&ready)).await;
        assert_eq!((written.skipped, bed.writes()), (1, 0), "restart {restart}");
    }
}

#[tokio::test]
async fn an_empty_whole_status_removes_the_status() {
    let bed = bed_of_whole_statuses().await;
    assert_eq!(actions(&bed.run(status(&json!({}))).await), ["status Rule r"]);
    assert_eq!(bed.object(&rule_ref("r")).await.get("status"), None);
    bed.writes();
    fine(&bed.run(status(&json!({}))).await);
    assert_eq!(bed.writes(), 0);
}

#[tokio::test]
async fn a_whole_status_is_compared_again_when_the_object_has_changed_meanwhile() {
    let bed = bed_of_whole_statuses().await;
    bed.catch_up().await;
    theirs(&bed, json!({"later": 2})).await;
    let ready = json!({"state": "Ready"});
    assert_eq!(actions(&bed.run_for("r", status(&ready)).await), ["status Rule r"]);
    assert_eq!(bed.object(&rule_ref("r")).await["status"], ready);
    // What another one has written meanwhile may be the status that is wanted.
    bed.catch_up().await;
    theirs(&bed, json!({"state": "Error"})).await;
    bed.writes();
    let written = bed.run_for("r", status(&json!({"state": "Error"}))).await;
    assert_eq!((actions(&written).len(), written.skipped), (0, 1), "{:?}", written.failures);
}

#[tokio::test]
async fn the_whole_status_of_a_kind_without_the_subresource_is_refused() {
    let bed = Bed { whole_status: true, ..Bed::new().await };
    let reconciled = Reconciled { reference: rule_ref("r"), object: bed.get(&rule_ref("r")).await };
    let ready = status(&json!({"state": "Ready"}));
    let plan = bed.plan(&reconciled, &ready).await;
    let kind = v1("apiextensions.k8s.io", "CustomResourceDefinition");
    let mut whole = definition("Rule", "rules");
    whole["spec"]["versions"][0].as_object_mut().unwrap().remove("subresources");
    bed.edit(&object_ref(kind, None, "rules.x.dev"), whole).await;
    // By the API server, if the host has not noticed it, and then by the host.
    let written = bed.carry_out(&reconciled, &plan).await;
    assert_eq!((written.failures.len(), actions(&written)), (1, Vec::new()), "{written:?}");
    bed.cluster.forget("x.dev");
    let known = bed.cluster.resolve_all(&kinds(&ready, &reconciled.reference)).await.unwrap();
    let grant = grant();
    let against = Against {
        grant: &grant,
        reconciler: &grant.reconciler("rule").unwrap().spec,
        reconciled: &reconciled,
        kinds: &known,
        read: &|_| None,
        limits: Limits::default(),
    };
    let error = Plan::build(&ready, &against).unwrap_err().to_string();
    assert!(error.contains("the kind has no status"), "{error}");
    assert_eq!(bed.object(&rule_ref("r")).await.get("status"), None);
}
