//! The APIRule processor as a component: its declaration covers its reads, and a second run has the
//! same outcome.

use std::sync::Arc;

use mortise_core::{
    contract::{Kind, Manifest, ObjectRef, Outcome, Request, Requeue},
    grant::Grant,
    reads::{PAGE_BYTES, View},
    store::Stores,
};
use mortise_host::wasm::{Called, Input, Limits, Moment, Processor};
use serde_json::{Value, json};

use super::{NOW_MS, engine};

/// The processor, with the stores that it reads from.
struct Setting {
    processor: Processor,
    grant: Arc<Grant>,
    stores: Stores,
}

/// The guest's own examples.
fn examples() -> Vec<Value> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../guests/api-rule/examples");
    let mut objects = Vec::new();
    for file in ["1-cluster.yaml", "2-shop.yaml", "3-rules.yaml"] {
        let text = std::fs::read_to_string(format!("{folder}/{file}")).unwrap();
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        objects.extend(documents);
    }
    objects
}

fn kind_of(object: &Value) -> Kind {
    let api_version = object["apiVersion"].as_str().unwrap();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = object["kind"].as_str().unwrap();
    Kind::home(group, version, kind)
}

async fn setting() -> Setting {
    let path = tokio::task::spawn_blocking(|| mortise_tests::guest("guests/api-rule")).await;
    let module = std::fs::read(path.unwrap().unwrap()).unwrap();
    let processor =
        Processor::load(engine(), "api-rule", module.into(), Limits::default()).await.unwrap();
    let description = processor.describe("").await.unwrap();
    let grant = Arc::new(Grant::new(&description).unwrap());
    Setting { processor, grant, stores: Stores::new() }
}

impl Setting {
    /// Replaces the stores by new ones, filled with the objects that the watches of the declared
    /// kinds would return.
    fn fill(&mut self, objects: &[Value]) {
        self.stores = Stores::new();
        for (kind, scope, wanted) in self.grant.wanted() {
            self.stores.open(kind, scope, wanted);
            let feed = self.stores.feed(kind, scope).unwrap();
            feed.begin_list();
            for (index, object) in objects.iter().enumerate() {
                let of = kind_of(object);
                if (&of.group, &of.kind) == (&kind.group, &kind.kind) && scope.holds(object) {
                    let mut object = object.clone();
                    object["metadata"]["uid"] = format!("uid-{index}").into();
                    object["metadata"]["resourceVersion"] = (index + 1).to_string().into();
                    feed.list_item(&object);
                }
            }
            feed.end_list();
        }
    }

    async fn call(&self, name: &str) -> Called {
        let kind = Kind::home("gateway.kyma-project.io", "v2alpha1", "APIRule");
        let ref_ =
            ObjectRef { kind: kind.into(), namespace: Some("shop".into()), name: name.into() };
        let mut view = View::new(self.stores.clone(), Arc::clone(&self.grant), PAGE_BYTES);
        let reconciler = self.grant.reconciler("api-rules").unwrap();
        let object = view.reconciled(&ref_, reconciler).unwrap().json;
        let request = Request {
            reconciler: "api-rules".into(),
            ref_,
            object,
            config: String::new(),
            attempt: 0,
            failed_writes: Vec::new(),
            note: None,
        };
        let moment = Moment { now_ms: NOW_MS, seed: 1 };
        self.processor.call(Input::new(view, &request, moment)).await
    }

    async fn outcome(&self, name: &str) -> (Outcome, bool) {
        let called = self.call(name).await;
        (called.outcome.unwrap().unwrap(), called.asked.clock)
    }
}

fn object(manifest: &Manifest) -> Value {
    serde_json::from_str(&manifest.object).unwrap()
}

fn kinds(outcome: &Outcome) -> Vec<String> {
    outcome.apply.iter().map(|manifest| kind_of(&object(manifest)).kind).collect()
}

#[tokio::test]
async fn the_examples_become_ready() {
    let mut setting = setting().await;
    setting.fill(&examples());
    let (catalogue, _) = setting.outcome("catalogue").await;
    assert_eq!(kinds(&catalogue), ["VirtualService", "AuthorizationPolicy"]);
    assert_eq!(object(&catalogue.apply[0])["spec"]["hosts"], json!(["catalogue.local.kyma.dev"]));
    let (orders, _) = setting.outcome("orders").await;
    let policy = "AuthorizationPolicy";
    assert_eq!(kinds(&orders), ["VirtualService", policy, policy, policy, "RequestAuthentication"]);
    for outcome in [catalogue, orders] {
        let status: Value = serde_json::from_str(&outcome.status.unwrap()).unwrap();
        assert_eq!(
            (&status["status"]["state"], outcome.requeue),
            (&json!("Ready"), Requeue::ByDefault)
        );
    }
}

#[tokio::test]
async fn a_run_on_its_own_output_writes_the_same_and_reads_no_clock() {
    let mut setting = setting().await;
    let mut objects = examples();
    setting.fill(&objects);
    let (first, asked_clock) = setting.outcome("orders").await;
    assert!(asked_clock, "the first status needs a time");

    let status: Value = serde_json::from_str(first.status.as_deref().unwrap()).unwrap();
    let rule = objects
        .iter_mut()
        .find(|object| object["metadata"]["name"] == "orders" && object["kind"] == "APIRule");
    rule.unwrap()["status"] = status["status"].clone();
    objects.extend(first.apply.iter().map(object));
    setting.fill(&objects);
    let (second, asked_clock) = setting.outcome("orders").await;
    assert!(!asked_clock);
    let sorted = |outcome: &Outcome| {
        let mut objects: Vec<(String, Vec<String>)> = outcome
            .apply
            .iter()
            .map(|manifest| (object(manifest).to_string(), manifest.absent.clone()))
            .collect();
        objects.sort();
        objects
    };
    assert_eq!(sorted(&first), sorted(&second));
    assert_eq!((first.status, second.delete.len()), (second.status, 0));
}

#[tokio::test]
async fn a_missing_service_is_named_in_the_validation_error() {
    let mut setting = setting().await;
    let without: Vec<Value> =
        examples().into_iter().filter(|object| object["kind"] != "Service").collect();
    setting.fill(&without);
    let failure = setting.call("catalogue").await.outcome.unwrap().unwrap_err();
    let expected = "Validation errors: Attribute '.spec.rules[0]': Failed to execute sidecar injection validation, err: Service \"orders\" not found";
    assert_eq!(failure.message, expected);
}
