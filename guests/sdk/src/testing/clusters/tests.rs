use std::{path::PathBuf, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    Action, ClusterName, Description, Error, Failure, Host, Manifest, NoConfig, ObjectRef, Outcome,
    Processor, Reconciler, Request, Selection, Verbs,
    kubernetes::{ConfigMap, Secret},
    testing::{
        Stub,
        case::{self, Case, Remote, Step},
    },
};

/// Writes each price of another cluster into it again, with what it costs at home.
struct Prices;

fn shop() -> ClusterName {
    ClusterName::secret("shop", "provider", "kubeconfig")
}

fn maps() -> Selection {
    Selection::of::<ConfigMap>().namespace("shop")
}

fn price() -> ObjectRef {
    ObjectRef::of::<ConfigMap>(Some("shop"), "tea")
}

fn total() -> ObjectRef {
    ObjectRef::of::<ConfigMap>(Some("shop"), "total-tea")
}

impl Processor for Prices {
    type Config = NoConfig;

    fn describe(_config: &NoConfig) -> Result<Description, String> {
        Ok(Description::new("prices", "1")
            .reconciles(Reconciler::new("prices", maps().labels("price").in_cluster(shop())))
            .reads(Selection::of::<Secret>().namespace("shop").name("provider"))
            .reads(maps())
            .writes(maps().in_cluster(shop()), Verbs::CREATE | Verbs::UPDATE))
    }

    fn reconcile(request: &Request, _: &NoConfig, host: &Host) -> Result<Outcome, Failure> {
        let outcome = Outcome::new();
        if let Some(failed) = request.failed_writes.first() {
            assert_eq!((failed.action, failed.code), (Action::Apply, 0));
            return Ok(outcome);
        }
        let Some(price) = request.object::<ConfigMap>()? else { return Ok(outcome) };
        let shipping: Option<ConfigMap> = host.get(Some("shop"), "shipping", &[])?;
        let shipping = shipping.map_or_else(String::new, |map| map.data["costs"].clone());
        let total = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("total-{}", price.metadata.name), "namespace": "shop"},
            "data": {"total": format!("{} + {shipping}", price.data["costs"])},
        });
        Ok(outcome.apply(Manifest::json(&total).in_cluster(&request.ref_.cluster)))
    }
}

fn map(name: &str, labels: &Value, costs: &str) -> Value {
    let metadata = json!({"name": name, "namespace": "shop", "labels": labels});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"costs": costs}})
}

fn tea(costs: &str) -> Value {
    map("tea", &json!({"price": "yes"}), costs)
}

fn stub() -> Stub {
    Stub::new()
        .objects([map("shipping", &json!({}), "1"), map("tea", &json!({"price": "yes"}), "9")])
        .cluster(shop(), [tea("2")])
}

fn told(stub: &Stub) -> Option<String> {
    let total = stub.in_cluster(shop()).object(&total())?;
    total["data"]["total"].as_str().map(str::to_owned)
}

#[test]
fn each_read_and_write_goes_to_the_cluster_that_it_names() {
    let stub = stub();
    stub.settle::<Prices>("");
    assert_eq!(told(&stub).as_deref(), Some("2 + 1"));
    assert_eq!(stub.object(&total()), None, "the home cluster");
    assert_eq!(stub.object(&total().in_cluster(shop())).unwrap()["data"]["total"], "2 + 1");
    assert_eq!((stub.all().len(), stub.in_cluster(shop()).all().len()), (2, 2));

    stub.in_cluster(shop()).patch(&tea("3"));
    assert_eq!(stub.settle::<Prices>("").runs, 1, "the reconciled object");
    stub.patch(&map("shipping", &json!({}), "0"));
    assert_eq!(stub.settle::<Prices>("").runs, 1, "what was read at home");
    assert_eq!(told(&stub).as_deref(), Some("3 + 0"));
    stub.in_cluster(shop()).delete("ConfigMap/shop/total-tea");
    stub.settle::<Prices>("");
    assert_eq!(told(&stub).as_deref(), Some("3 + 0"), "what was written");
}

#[test]
fn a_run_waits_for_a_cluster_that_cannot_be_reached() {
    let stub = stub();
    stub.unreachable(shop());
    let settled = stub.settle::<Prices>("");
    assert_eq!((settled.runs, told(&stub)), (0, None), "no object is known");
    stub.reachable(shop());
    stub.settle::<Prices>("");
    assert_eq!(told(&stub).as_deref(), Some("2 + 1"));

    stub.unreachable(shop());
    stub.patch(&map("shipping", &json!({}), "0"));
    let settled = stub.settle::<Prices>("");
    let (key, why) = settled.failures.first_key_value().unwrap();
    assert_eq!(key, "ConfigMap/shop/tea in shop/provider/kubeconfig");
    assert!(why.contains("the test makes the cluster `shop/provider/kubeconfig` unreachable"));
    assert_eq!(stub.settle::<Prices>("").runs, 0, "it waits");
    stub.reachable(shop());
    assert!(stub.settle::<Prices>("").failures.is_empty());
    assert_eq!(told(&stub).as_deref(), Some("2 + 0"));
}

#[test]
fn a_write_to_a_cluster_that_cannot_be_reached_gets_no_answer() {
    struct AtHome;
    impl Processor for AtHome {
        type Config = NoConfig;
        fn describe(config: &NoConfig) -> Result<Description, String> {
            let mut description = Prices::describe(config)?;
            description.reconcilers = vec![Reconciler::new("prices", maps().labels("price"))];
            Ok(description)
        }
        fn reconcile(
            request: &Request,
            config: &NoConfig,
            host: &Host,
        ) -> Result<Outcome, Failure> {
            let mut outcome = Prices::reconcile(request, config, host)?;
            outcome.apply.iter_mut().for_each(|manifest| manifest.cluster = shop().to_string());
            Ok(outcome)
        }
    }
    let stub = stub();
    stub.unreachable(shop());
    let settled = stub.settle::<AtHome>("");
    assert!(settled.failures["ConfigMap/shop/tea"].contains("unreachable"), "{settled:?}");
    stub.reachable(shop());
    stub.advance(Duration::from_secs(60));
    assert!(stub.settle::<AtHome>("").failures.is_empty());
    assert_eq!(told(&stub).as_deref(), Some("9 + 1"));
}

#[test]
fn a_case_changes_and_compares_each_cluster() {
    let remote =
        Remote { folder: "provider".to_owned(), name: shop().to_string(), objects: vec![tea("2")] };
    let there = |step: Step| [("provider".to_owned(), step)].into();
    let steps = vec![
        Step::default(),
        Step {
            clusters: there(Step { patch: vec![tea("3")], ..Step::default() }),
            ..Step::default()
        },
        Step {
            patch: vec![map("shipping", &json!({}), "0")],
            clusters: there(Step { unreachable: Some(true), ..Step::default() }),
            ..Step::default()
        },
        Step {
            clusters: there(Step { unreachable: Some(false), ..Step::default() }),
            ..Step::default()
        },
    ];
    let case = Case {
        name: "prices".to_owned(),
        folder: PathBuf::new(),
        objects: vec![map("shipping", &json!({}), "1")],
        clusters: vec![remote],
        config: String::new(),
        now: Timestamp::UNIX_EPOCH,
        only: None,
        validate: true,
        steps,
        calls: Vec::new(),
        expected: None,
    };
    let documents = case::run::<Prices>(&case, &[], &[]).unwrap().documents();
    let total = |document: &case::Document| {
        let provider = document.clusters.get("provider")?;
        provider.objects[0]["data"]["total"].as_str().map(str::to_owned)
    };
    let totals: Vec<_> = documents.iter().map(total).collect();
    let expected = [Some("2 + 1"), Some("3 + 1"), None, Some("3 + 0")];
    assert_eq!(totals, expected.map(|total| total.map(str::to_owned)));
    assert!(documents.iter().all(|document| document.objects.is_empty()), "nothing at home");
    let key = "ConfigMap/shop/tea in shop/provider/kubeconfig";
    assert!(documents[2].failures[key].as_ref().unwrap().contains("unreachable"));
    assert_eq!(documents[3].failures[key], None, "not any more");
}

#[test]
fn reads_outside_of_a_reconcile_name_clusters_too() {
    let stub = stub();
    let there = price().in_cluster(shop());
    let costs = |of: &ObjectRef| {
        let map = stub.host().get_ref::<ConfigMap>(of, &[]);
        map.map(|map| map.map(|map| map.data["costs"].clone()))
    };
    let read = || (costs(&price()).unwrap().unwrap(), costs(&there).unwrap().unwrap());
    assert_eq!(read(), ("9".to_owned(), "2".to_owned()));
    let nowhere = price().in_cluster(ClusterName::secret("shop", "provider", "other"));
    let error = costs(&nowhere).unwrap_err().to_string();
    assert!(error.contains("there is no cluster `shop/provider/other` in this test"), "{error}");
    stub.settle::<Prices>("");
    assert_eq!(costs(&there).unwrap().as_deref(), Some("2"));
    stub.unreachable(shop());
    assert!(matches!(costs(&there), Err(Error::Unavailable { .. })), "{:?}", costs(&there));
}
