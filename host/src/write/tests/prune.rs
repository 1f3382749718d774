use super::*;

fn and_prune(outcome: Outcome) -> Outcome {
    Outcome { prune: pruning("app=x").prune, ..outcome }
}

async fn there(bed: &Bed) -> Vec<String> {
    let mut names = Vec::new();
    for name in ["one", "two", "theirs", "patched"] {
        if bed.get(&config_map_ref(name)).await.is_some() {
            names.push(name.to_owned());
        }
    }
    names
}

/// A store that has not listed anything: candidates come from the API server.
fn forget_store(bed: &mut Bed) {
    bed.stores = Stores::new();
    bed.writer =
        Writer::new(bed.cluster.clone(), bed.stores.clone(), Arc::new(jiff::Timestamp::now));
}

#[tokio::test]
async fn what_was_applied_for_this_object_and_is_not_any_more_is_deleted() {
    for listed in ["by the store", "after a restart", "by the server"] {
        let mut bed = Bed::new().await;
        fine(&bed.run(and_prune(apply([&labelled("one"), &labelled("two")]))).await);
        bed.make(&labelled("theirs")).await;
        match listed {
            "after a restart" => bed.restart().await,
            "by the server" => forget_store(&mut bed),
            _ => bed.catch_up().await,
        }
        let written = bed.run_for("r", and_prune(apply([&labelled("two")]))).await;
        fine(&written);
        assert_eq!(actions(&written).last().unwrap(), "delete ConfigMap one", "{listed}");
        assert_eq!(there(&bed).await, ["two", "theirs"], "{listed}");
        assert_eq!(written.pruned.len(), 1);
    }
}

#[tokio::test]
async fn what_does_not_match_the_selection_is_left() {
    let bed = Bed::new().await;
    fine(&bed.run(apply([&config_map("one", json!({})), &labelled("two")])).await);
    fine(&bed.run(and_prune(outcome())).await);
    assert_eq!(there(&bed).await, ["one"]);
}

#[tokio::test]
async fn what_was_only_patched_is_never_pruned() {
    for server in [false, true] {
        let mut bed = Bed::new().await;
        bed.make(&labelled("patched")).await;
        fine(&bed.run(patch([&config_map("patched", json!({"ours": "1"}))])).await);
        if server {
            forget_store(&mut bed);
        }
        fine(&bed.run_for("r", and_prune(outcome())).await);
        let live = bed.object(&config_map_ref("patched")).await;
        assert_eq!(live["data"], json!({"k": "v", "ours": "1"}), "it stays as it was written");
    }
}

#[tokio::test]
async fn what_another_key_applied_is_never_pruned() {
    let bed = Bed::new().await;
    bed.catch_up().await;
    fine(&bed.run_for("s", apply([&labelled("one")])).await);
    fine(&bed.run(and_prune(outcome())).await);
    assert_eq!(there(&bed).await, ["one"]);
}

#[tokio::test]
async fn what_others_have_applied_too_is_let_go() {
    for server in [false, true] {
        let mut bed = Bed::new().await;
        let mut ours = labelled("one");
        ours["data"]["ours"] = json!("1");
        fine(&bed.run(apply([&ours])).await);
        bed.catch_up().await;
        fine(&bed.run_for("s", apply([&labelled("one")])).await);
        bed.catch_up().await;
        if server {
            forget_store(&mut bed);
        }
        let written = bed.run_for("r", and_prune(outcome())).await;
        fine(&written);
        assert_eq!(actions(&written), ["update ConfigMap one"]);
        let live = bed.object(&config_map_ref("one")).await;
        assert_eq!(live["data"], json!({"k": "v"}), "our fields are given up");
        assert!(!managers_of(&live).contains_key(&managers("r").apply));
        bed.catch_up().await;
        bed.writes();
        fine(&bed.run_for("r", and_prune(outcome())).await);
        assert_eq!(bed.writes(), 0);
        fine(&bed.run_for("s", and_prune(outcome())).await);
        assert_eq!(there(&bed).await, Vec::<String>::new(), "the last one deletes it");
    }
}

#[tokio::test]
async fn what_others_patched_is_deleted() {
    let bed = Bed::new().await;
    fine(&bed.run(apply([&labelled("one")])).await);
    bed.catch_up().await;
    fine(&bed.run_for("s", patch([&config_map("one", json!({"s": "1"}))])).await);
    fine(&bed.run(and_prune(outcome())).await);
    assert_eq!(there(&bed).await, Vec::<String>::new());
}

#[tokio::test]
async fn what_was_created_only_is_pruned_too() {
    let bed = Bed::new().await;
    let create = Outcome {
        apply: vec![Given { mode: Mode::Create, ..given(&labelled("one")) }],
        ..outcome()
    };
    fine(&bed.run(create).await);
    fine(&bed.run(and_prune(outcome())).await);
    assert_eq!(there(&bed).await, Vec::<String>::new());
}

#[tokio::test]
async fn an_object_that_has_changed_since_is_looked_at_again() {
    let cases = [
        ("something else was changed", json!({"data": {"theirs": "1"}}), false),
        ("it left the selection", json!({"metadata": {"labels": {"app": "y"}}}), true),
    ];
    for (case, change, stays) in cases {
        let bed = Bed::new().await;
        fine(&bed.run(apply([&labelled("one")])).await);
        bed.catch_up().await;
        bed.edit(&config_map_ref("one"), change).await;
        fine(&bed.run_for("r", and_prune(outcome())).await);
        assert_eq!(there(&bed).await.contains(&"one".to_owned()), stays, "{case}");
    }
}

#[tokio::test]
async fn an_object_that_was_made_anew_is_left() {
    let bed = Bed::new().await;
    fine(&bed.run(apply([&labelled("one")])).await);
    bed.catch_up().await;
    bed.foreign(Method::Delete, &config_map_ref("one"), "", json!({})).await;
    bed.make(&labelled("one")).await;
    fine(&bed.run_for("r", and_prune(outcome())).await);
    assert_eq!(there(&bed).await, ["one"]);
}

#[tokio::test]
async fn a_kind_that_the_cluster_does_not_know_has_nothing_to_prune() {
    let bed = Bed::new().await;
    let of = Selection { labels: "app=x".into(), ..whole(v1("none.dev", "None")) };
    fine(&bed.run(Outcome { prune: vec![of], ..outcome() }).await);
}

#[tokio::test]
async fn a_selection_can_name_fields_instead_of_labels() {
    for server in [false, true] {
        let mut bed = Bed::new().await;
        fine(
            &bed.run(apply([
                &config_map("one", json!({"of": "r"})),
                &config_map("two", json!({"of": "q"})),
            ]))
            .await,
        );
        bed.catch_up().await;
        if server {
            forget_store(&mut bed);
        }
        let of = Selection {
            matching: vec![("data.of".into(), "r".into())],
            ..whole(v1("", "ConfigMap"))
        };
        fine(&bed.run_for("r", Outcome { prune: vec![of], ..outcome() }).await);
        assert_eq!(there(&bed).await, ["two"], "server {server}");
    }
}
