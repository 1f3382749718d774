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

/// Replaces the store by one without a completed list: candidates come from the API server.
fn forget_store(bed: &mut Bed) {
    bed.stores = Stores::new();
    bed.writer = Writer::new(bed.stores.clone(), Arc::new(jiff::Timestamp::now));
}

#[tokio::test]
async fn an_object_that_is_no_longer_applied_is_pruned() {
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
async fn objects_outside_the_prune_selector_are_kept() {
    let bed = Bed::new().await;
    fine(&bed.run(apply([&config_map("one", json!({})), &labelled("two")])).await);
    fine(&bed.run(and_prune(outcome())).await);
    assert_eq!(there(&bed).await, ["one"]);
}

#[tokio::test]
async fn patched_objects_are_never_pruned() {
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
async fn objects_applied_by_another_key_are_never_pruned() {
    let bed = Bed::new().await;
    bed.catch_up().await;
    fine(&bed.run_for("s", apply([&labelled("one")])).await);
    fine(&bed.run(and_prune(outcome())).await);
    assert_eq!(there(&bed).await, ["one"]);
}

#[tokio::test]
async fn an_object_applied_by_two_keys_is_deleted_by_the_last_prune() {
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
async fn an_object_that_another_key_only_patched_is_pruned() {
    let bed = Bed::new().await;
    fine(&bed.run(apply([&labelled("one")])).await);
    bed.catch_up().await;
    fine(&bed.run_for("s", patch([&config_map("one", json!({"s": "1"}))])).await);
    fine(&bed.run(and_prune(outcome())).await);
    assert_eq!(there(&bed).await, Vec::<String>::new());
}

#[tokio::test]
async fn an_object_written_in_create_mode_is_pruned() {
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

/// The number of config maps that `r` applied, which takes more than two pages of a list; every
/// other one is in the selection.
const MANY: usize = 1100;

/// Loads the config maps as copies of one that was applied: that takes a moment, while writing each
/// takes minutes.
async fn apply_many(bed: &Bed) {
    fine(&bed.run(apply([&labelled("many")])).await);
    let applied = bed.object(&config_map_ref("many")).await;
    bed.foreign(Method::Delete, &config_map_ref("many"), "", json!({})).await;
    for number in 0..MANY {
        let mut object = applied.clone();
        object["metadata"]["name"] = json!(many(number));
        object["metadata"]["uid"] = json!(format!("00000000-0000-0000-0000-{number:012}"));
        object["metadata"]["labels"] = json!({"app": if number % 2 == 0 { "x" } else { "y" }});
        bed.api.load(object, false).unwrap();
    }
}

fn many(number: usize) -> String {
    format!("many-{number:04}")
}

/// Sets up a store whose first list has not ended, and a connection that records the queries of
/// lists. If `breaks`, no further page arrives.
fn list_live(bed: &mut Bed, breaks: bool) -> Arc<parking_lot::Mutex<Vec<String>>> {
    let queries = Arc::<parking_lot::Mutex<Vec<String>>>::default();
    let (api, notes) = (bed.api.router(), Arc::clone(&queries));
    let connection = tower::service_fn(move |request: http::Request<Body>| {
        let (api, uri) = (api.clone(), request.uri().clone());
        let query = uri.query().unwrap_or_default();
        let goes_on = query.contains("continue=");
        if uri.path().ends_with("/configmaps") {
            notes.lock().push(query.to_owned());
        }
        async move {
            if breaks && goes_on {
                return Err(std::io::Error::other("crashed"));
            }
            Ok(api.oneshot(request).await.unwrap_or_else(|never| match never {}))
        }
    });
    bed.cluster = Cluster::with_policy(
        kube::Client::new(connection, "default"),
        Policy { first_wait: Duration::from_millis(1), ..Policy::default() },
    );
    forget_store(bed);
    let wanted = Wanted {
        fields: Fields::whole(),
        matching: std::collections::BTreeSet::default(),
        written: true,
    };
    let kind = v1("", "ConfigMap");
    bed.stores.open(&kind, &Scope::default(), &wanted);
    bed.stores.feed(&kind, &Scope::default()).unwrap().begin_list();
    queries
}

/// Returns the config maps that exist.
async fn all_there(bed: &Bed) -> Vec<String> {
    let list = bed.cluster.send(&Outgoing::get("/api/v1/namespaces/a/configmaps".into())).await;
    let list = list.unwrap().body;
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn each_page_of_a_live_list_is_pruned_if_the_store_is_incomplete() {
    let mut bed = Bed::new().await;
    apply_many(&bed).await;
    bed.make(&labelled("theirs")).await;
    let mut stays: Vec<String> = (0..MANY).filter(|number| number % 2 == 1).map(many).collect();
    stays.push("theirs".to_owned());
    let queries = list_live(&mut bed, false);
    let written = bed.run_for("r", and_prune(outcome())).await;
    fine(&written);
    let queries = std::mem::take(&mut *queries.lock());
    assert!(queries.iter().all(|query| query.starts_with("limit=500&labelSelector=app")));
    let goes_on: Vec<bool> = queries.iter().map(|query| query.contains("&continue=")).collect();
    assert_eq!(goes_on, [false, true]);
    let gone = (0..MANY).filter(|number| number % 2 == 0);
    let gone: Vec<String> = gone.map(|n| format!("delete ConfigMap {}", many(n))).collect();
    assert_eq!(actions(&written), gone);
    assert_eq!(all_there(&bed).await, stays);
}

#[tokio::test]
async fn a_failed_page_of_the_list_prevents_all_pruning() {
    let mut bed = Bed::new().await;
    apply_many(&bed).await;
    let queries = list_live(&mut bed, true);
    bed.writes();
    let written = bed.run_for("r", and_prune(outcome())).await;
    let failed: Vec<_> = written.failures.iter().map(|failure| failure.action).collect();
    assert_eq!(failed, [contract::Action::Prune]);
    assert!(queries.lock().len() > 1, "the first page arrived");
    assert_eq!(bed.writes(), 0);
    assert_eq!(all_there(&bed).await.len(), MANY);
}
