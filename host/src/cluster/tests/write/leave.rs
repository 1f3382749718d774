use super::*;

fn leaving(replicas: u32, image: &str) -> Outcome {
    let mut object = deployment(Some(replicas));
    object["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
    Outcome {
        apply: vec![Given { leave: vec!["spec.replicas".into()], ..given(&object) }],
        ..outcome()
    }
}

async fn scale(bed: &Bed, replicas: u32) {
    bed.foreign(
        Method::MergePatch,
        &deployment_ref(),
        "/scale?fieldManager=autoscaler",
        json!({"spec": {"replicas": replicas}}),
    )
    .await;
}

async fn replicas(bed: &Bed) -> Value {
    bed.object(&deployment_ref()).await["spec"]["replicas"].clone()
}

#[tokio::test]
async fn fields_that_are_left_alone_are_sent_when_the_object_is_made_and_held_by_initial() {
    let mut bed = Bed::new().await;
    let written = bed.run(leaving(3, "i")).await;
    fine(&written);
    assert_eq!(actions(&written)[0], "create Deployment d");
    assert_eq!(replicas(&bed).await, 3);
    let managers = super::managers("r");
    let live = bed.object(&deployment_ref()).await;
    let ours = own_fields_of(&live, &managers.apply);
    assert!(ours["f:spec"].get("f:replicas").is_none(), "{ours}");
    assert_eq!(own_fields_of(&live, &managers.initial), json!({"f:spec": {"f:replicas": {}}}));
    for restart in [false, true] {
        if restart {
            bed.restart().await;
            bed.run(leaving(3, "i")).await;
        }
        bed.writes();
        assert_eq!(bed.run(leaving(3, "i")).await.skipped, 1);
        assert_eq!(bed.writes(), 0, "restart {restart}");
    }
}

fn own_fields_of(live: &Value, manager: &str) -> Value {
    mortise_core::applied_fields::applied_fields(live, manager).cloned().unwrap_or_default()
}

#[tokio::test]
async fn a_scale_by_others_stays_also_when_something_else_is_changed() {
    for restart in [false, true] {
        let mut bed = Bed::new().await;
        fine(&bed.run(leaving(3, "i")).await);
        scale(&bed, 7).await;
        if restart {
            bed.restart().await;
        }
        fine(&bed.run(leaving(3, "i")).await);
        assert_eq!(replicas(&bed).await, 7, "restart {restart}");
        fine(&bed.run(leaving(4, "j")).await);
        assert_eq!(replicas(&bed).await, 7, "restart {restart}");
        assert_eq!(
            bed.object(&deployment_ref()).await["spec"]["template"]["spec"]["containers"][0]["image"],
            "j"
        );
        bed.writes();
        fine(&bed.run(leaving(4, "j")).await);
        assert_eq!(bed.writes(), 0, "restart {restart}");
    }
}

#[tokio::test]
async fn a_crash_after_any_of_the_writes_leads_to_the_same() {
    for (crash, scaled) in [
        ("after the creation", false),
        ("after the creation", true),
        ("after initial", false),
        ("after initial", true),
    ] {
        let bed = Bed::new().await;
        let managers = super::managers("r");
        let by =
            |manager: &str| format!("?fieldManager={}", mortise_core::resource::encoded(manager));
        bed.foreign(Method::Apply, &deployment_ref(), &by(&managers.apply), deployment(Some(3)))
            .await;
        if crash == "after initial" {
            let held = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "a"}, "spec": {"replicas": 3}});
            bed.foreign(Method::Apply, &deployment_ref(), &by(&managers.initial), held).await;
        }
        if scaled {
            scale(&bed, 7).await;
        }
        fine(&bed.run(leaving(3, "i")).await);
        assert_eq!(replicas(&bed).await, if scaled { 7 } else { 3 }, "{crash}, {scaled}");
        let ours = own_fields_of(&bed.object(&deployment_ref()).await, &managers.apply);
        assert!(ours["f:spec"].get("f:replicas").is_none(), "{crash}: {ours}");
        scale(&bed, 9).await;
        fine(&bed.run(leaving(3, "k")).await);
        assert_eq!(replicas(&bed).await, 9, "{crash}, {scaled}");
    }
}

#[tokio::test]
async fn an_object_that_others_made_keeps_its_values() {
    let bed = Bed::new().await;
    bed.foreign(Method::Post, &deployment_ref(), "?fieldManager=helm", deployment(Some(5))).await;
    fine(&bed.run(leaving(3, "i")).await);
    assert_eq!(replicas(&bed).await, 5);
}

#[tokio::test]
async fn a_field_that_is_not_left_alone_any_more_is_ours_again_or_given_up() {
    for restart in [false, true] {
        let mut bed = Bed::new().await;
        fine(&bed.run(leaving(3, "i")).await);
        if restart {
            bed.restart().await;
        }
        fine(&bed.run(apply([&deployment(Some(4))])).await);
        assert_eq!(replicas(&bed).await, 4, "restart {restart}");
        assert!(
            !managers_of(&bed.object(&deployment_ref()).await).contains_key(&managers("r").initial)
        );
        fine(&bed.run(leaving(4, "i")).await);
        if restart {
            bed.restart().await;
        }
        fine(&bed.run(apply([&deployment(None)])).await);
        assert_eq!(replicas(&bed).await, 1, "the default again; restart {restart}");
    }
}
