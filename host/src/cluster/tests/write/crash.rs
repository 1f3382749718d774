//! Tests that the host may be killed after any of its writes: after a restart it reaches the same
//! state.

use super::*;

/// Returns the outcome that the same host wrote before.
fn before() -> Outcome {
    let mut held = deployment(Some(2));
    held["metadata"]["name"] = json!("held");
    Outcome {
        finalizers: finalizers(&["x.dev/g"]).finalizers,
        ..apply([
            &labelled("old"),
            &labelled("shared"),
            &held,
            &config_map("kept", json!({"k": "v", "old": "v"})),
        ])
    }
}

/// Returns an outcome with every kind of write.
fn everything() -> Outcome {
    let leaving = |name: &str| {
        let mut object = deployment(Some(3));
        object["metadata"]["name"] = json!(name);
        Given { leave: vec!["spec.replicas".into()], ..given(&object) }
    };
    let mut dependent = config_map("dependent", json!({}));
    dependent["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "kept"}]);
    Outcome {
        apply: vec![
            leaving("d"),
            leaving("held"),
            given(&config_map("kept", json!({"k": "v"}))),
            given(&dependent),
            Given { mode: Mode::Create, ..given(&config_map("created", json!({"k": "v"}))) },
            Given {
                absent: vec!["data.former".into()],
                ..given(&config_map("cleaned", json!({"k": "v"})))
            },
        ],
        patch: vec![given(&config_map("theirs", json!({"ours": "v"})))],
        delete: vec![deletion(config_map_ref("unwanted"))],
        prune: pruning("app=x").prune,
        status: Some(json!({"state": "Ready"}).to_string()),
        events: vec![said("Done", "m")],
        finalizers: finalizers(&["x.dev/f"]).finalizers,
        ..outcome()
    }
}

async fn prepared() -> Bed {
    let bed = Bed::new().await;
    for (name, data) in
        [("theirs", json!({})), ("unwanted", json!({})), ("cleaned", json!({"former": "v"}))]
    {
        bed.make(&config_map(name, data)).await;
    }
    fine(&bed.run(before()).await);
    fine(&bed.run_for("s", apply([&labelled("shared")])).await);
    bed.writes();
    bed
}

/// Returns the objects and the owners of their fields, without events and parts that differ between
/// runs.
fn state(bed: &Bed) -> Vec<String> {
    let is_of_interest = |object: &Value| {
        matches!(object["kind"].as_str(), Some("ConfigMap" | "Deployment" | "Rule"))
    };
    let objects = bed.api.objects();
    let owner = objects.iter().find(|object| object["metadata"]["name"] == "kept").unwrap();
    let uid = owner["metadata"]["uid"].as_str().unwrap().to_owned();
    let strip = |mut object: Value| {
        let metadata = object["metadata"].as_object_mut().unwrap();
        for key in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
            metadata.remove(key);
        }
        let entries = metadata["managedFields"].as_array_mut().unwrap();
        for entry in entries.iter_mut() {
            entry["time"] = Value::Null;
        }
        entries.sort_by_key(Value::to_string);
        object.to_string().replace(&uid, "uid")
    };
    let mut all: Vec<String> = objects.into_iter().filter(is_of_interest).map(strip).collect();
    all.sort();
    all
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_at_any_write_the_next_start_reaches_the_same_state() {
    let bed = prepared().await;
    fine(&bed.run(everything()).await);
    let wanted = state(&bed);
    let writes = usize::try_from(bed.writes()).unwrap();
    assert!(writes > 15, "{writes} writes");
    for survived in 0..writes {
        let mut bed = prepared().await;
        *bed.gate.lock() = Some(survived);
        let crashed = bed.run(everything()).await;
        assert!(
            crashed.is_failure() || survived + 1 == writes || crashed.changes.len() < 15,
            "after {survived}"
        );
        *bed.gate.lock() = None;
        bed.restart().await;
        fine(&bed.run(everything()).await);
        let now = state(&bed);
        assert_eq!(now.len(), wanted.len(), "after {survived} writes");
        for (now, wanted) in now.iter().zip(&wanted) {
            assert_eq!(now, wanted, "after {survived} writes");
        }
        bed.writes();
        let written = bed.run(Outcome { delete: vec![], events: vec![], ..everything() }).await;
        fine(&written);
        assert_eq!(
            (written.changes.len(), bed.writes()),
            (0, 0),
            "after {survived} writes, settled"
        );
    }
}
