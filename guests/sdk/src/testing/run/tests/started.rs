//! Reconcilers that outcomes start.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    ClusterName, Description, Failure, Host, Kind, NoConfig, ObjectRef, Outcome, Processor,
    Reconciler, Request, Selection, Start,
    kubernetes::{ConfigMap, Secret},
    testing::Stub,
};

const STARTS: &str = "example.com/starts";
const HELD: &str = "example.com/held";
const RESYNC: Duration = Duration::from_hours(1);

/// Holds the objects of the kind that the `ConfigMap` `held` names, in the cluster that it names.
struct Holds;

impl Processor for Holds {
    type Config = NoConfig;

    fn describe(_config: &NoConfig) -> Result<Description, String> {
        let any = Selection::new(Kind::new("*", "*", "*")).in_cluster(ClusterName::any());
        let starts = Reconciler::new("starts", Selection::of::<ConfigMap>().labels("starts"));
        Ok(Description::new("holds", "1")
            .reconciles(starts.finalizer(STARTS))
            .reconciles(Reconciler::on_demand("holds", any).finalizer(HELD).resync(RESYNC))
            .reads(Selection::of::<Secret>().namespace("shop")))
    }

    fn reconcile(request: &Request, _: &NoConfig, host: &Host) -> Result<Outcome, Failure> {
        let outcome = Outcome::new();
        let Some(object) = request.object::<Value>()? else { return Ok(outcome) };
        let is_deleted = |object: &Value| object.pointer("/metadata/deletionTimestamp").is_some();
        if request.reconciler == "holds" {
            let asker: Option<Value> = host.get_ref(&asker(), &[])?;
            let is_wanted = !is_deleted(&object) && asker.is_some_and(|asker| !is_deleted(&asker));
            return Ok(outcome.finalizers(is_wanted.then_some(HELD)));
        }
        let text = |key: &str| object["data"][key].as_str().unwrap_or_default();
        let of = Selection::new(Kind::new("", "v1", text("kind"))).in_cluster(text("cluster"));
        if !is_deleted(&object) {
            return Ok(outcome.start("holds", of).finalizers([STARTS]));
        }
        let held: Vec<Value> = host.list(&of.matching("metadata.finalizers[]", HELD))?;
        Ok(outcome.finalizers((!held.is_empty()).then_some(STARTS)))
    }
}

fn asker() -> ObjectRef {
    ObjectRef::of::<ConfigMap>(Some("shop"), "held")
}

fn provider() -> ClusterName {
    ClusterName::secret("shop", "provider", "kubeconfig")
}

fn asks(cluster: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"kind": "Service", "cluster": cluster},
        "metadata": {"name": "held", "namespace": "shop", "labels": {"starts": "yes"}},
    })
}

fn service(name: &str) -> Value {
    let metadata = json!({"name": name, "namespace": "shop"});
    json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 80}]}})
}

fn services() -> Kind {
    Kind::new("", "v1", "Service")
}

fn is_held(stub: &Stub, name: &str) -> bool {
    let service = stub.object(&ObjectRef::new(services(), Some("shop"), name)).unwrap();
    service["metadata"]["finalizers"] == json!([HELD])
}

#[test]
fn a_started_reconciler_runs_until_it_is_stopped_and_holds_nothing() {
    let stub = Stub::new()
        .objects([asks(&provider()), service("web")])
        .cluster(provider(), [service("web")]);
    let there = stub.in_cluster(provider());
    assert_eq!(stub.started(), []);
    assert!(stub.settle::<Holds>("").failures.is_empty());
    let of = Selection::new(services()).in_cluster(provider());
    assert_eq!(stub.started(), [Start { reconciler: "holds".to_owned(), of }]);
    assert_eq!((is_held(&there, "web"), is_held(&stub, "web")), (true, false));

    there.apply(&service("db"));
    let settled = stub.settle::<Holds>("");
    assert!(is_held(&there, "db"), "a new object");
    assert_eq!(settled.requeues.len(), 2, "{settled:?}");
    let db = ObjectRef::new(services(), Some("shop"), "db").in_cluster(provider());
    assert_eq!(stub.reconcile::<Holds>(&db, "").failure, None, "by its name");

    stub.delete("ConfigMap/shop/held");
    let settled = stub.settle::<Holds>("");
    assert!(settled.failures.is_empty() && settled.requeues.is_empty(), "{settled:?}");
    assert_eq!((stub.started(), stub.object(&asker())), (vec![], None));
    assert!(!is_held(&there, "web") && !is_held(&there, "db"));
    there.apply(&service("cache"));
    assert_eq!(stub.settle::<Holds>("").runs, 0, "nobody watches");
    assert!(!is_held(&there, "cache"));
}

#[test]
fn another_selection_replaces_the_one_that_nobody_asks_for() {
    let stub = Stub::new().objects([asks(""), service("web")]).cluster(provider(), [service("db")]);
    stub.settle::<Holds>("");
    assert!(is_held(&stub, "web"));
    let name = provider();
    stub.patch(&asks(&name));
    stub.settle::<Holds>("");
    assert!(is_held(&stub.in_cluster(&*name), "db"));
    let clusters: Vec<String> = stub.started().into_iter().map(|start| start.of.cluster).collect();
    assert_eq!(clusters, [name.to_string()]);
}
