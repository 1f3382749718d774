//! The processor takes over from the original, and the original from the processor: the writes of
//! the original are played, as its golden data have them.

use futures::future;
use mortise_core::api::{Method, Outgoing};
use serde_json::{Value, json};

use super::{
    NAME, Side,
    backend::{self, EXPORTS, Export, kube_bind, within},
    consumer::{Consumer, Stand, TEAM, fields_by_manager},
    named,
};

/// The manager of the original's updates, and that of what it applies.
const ORIGINAL: [&str; 2] = ["konnector", "kube-bind.io"];
const FINALIZER: &str = "kubebind.io/syncer";
/// The conditions of a binding that works.
const OF_BINDING: [&str; 6] =
    ["Ready", "Connected", "Heartbeating", "InformersSynced", "SchemaInSync", "SecretValid"];
const OF_EXPORT: [&str; 2] = ["Connected", "ConsumerInSync"];
/// The time at which all conditions came to hold.
const SINCE: &str = "2026-01-01T00:00:00Z";

/// An object at home, and the one at the provider.
struct Pair {
    export: &'static Export,
    here: Value,
    there: Value,
}

/// Both sides as the original leaves them.
struct Left<'a> {
    stand: &'a Stand,
    pairs: Vec<Pair>,
}

fn conditions(names: &[&str]) -> Value {
    let condition =
        |name: &&str| json!({"type": name, "status": "True", "lastTransitionTime": SINCE});
    names.iter().map(condition).collect()
}

/// Sends a request of the original.
async fn send(side: &Side, method: Method, object: &Value, subresource: &str) -> Value {
    let path = side.path(object).await;
    let of_one =
        |manager: &str, force: &str| format!("{path}{subresource}?fieldManager={manager}{force}");
    let [updates, applies] = ORIGINAL;
    let path = match method {
        Method::Post => {
            format!("{}?fieldManager={updates}", path.rsplit_once('/').unwrap().0)
        }
        Method::Apply => of_one(applies, "&force=true"),
        _ => of_one(updates, ""),
    };
    let mut request = Outgoing::new(method, path, Some(object.clone()));
    request.retry_not_found = true;
    let answer = side.cluster.send(&request).await;
    answer.unwrap_or_else(|refusal| panic!("{refusal}: {object}")).body
}

/// Sets the status of an object, as the original.
async fn set_status(side: &Side, mut object: Value, status: Value) {
    object["status"] = status;
    send(side, Method::MergePatch, &object, "/status").await;
}

// === impl Left ===

impl<'a> Left<'a> {
    async fn by_the_original(stand: &'a Stand) -> Self {
        let mut left = Self { stand, pairs: Vec::new() };
        for export in EXPORTS.iter().filter(|export| ["rockets", "moons"].contains(&export.plural))
        {
            left.bind(export).await;
            left.synchronise(export).await;
        }
        left
    }

    fn consumer(&self) -> &'a Consumer {
        &self.stand.consumers[0]
    }

    /// Makes the definition, and tells both sides that all is well.
    async fn bind(&self, export: &Export) {
        let (consumer, provider) = (self.consumer(), &self.stand.provider);
        let binding = kube_bind("APIServiceBinding", export.plural);
        let uid = consumer.home.get(&binding).await.unwrap()["metadata"]["uid"].clone();
        let mut definition = backend::definition(export);
        definition["metadata"] = json!({
            "name": export.title(),
            "ownerReferences": [{
                "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceBinding",
                "name": export.plural, "uid": uid, "controller": true,
            }],
        });
        send(&consumer.home, Method::Post, &definition, "").await;
        consumer.until_defined(export).await;
        let bound = json!([{"group": backend::GROUP, "resource": export.plural}]);
        let status = json!({
            "conditions": conditions(&OF_BINDING), "boundSchemas": bound,
            "providerPrettyName": "Example Provider",
        });
        set_status(&consumer.home, binding, status).await;
        let at = within(kube_bind("APIServiceExport", export.plural), &consumer.place);
        set_status(provider, at, json!({"conditions": conditions(&OF_EXPORT)})).await;
    }

    /// Makes an object at home as its user, and the one at the provider: it is created, and its
    /// spec is applied with the first change.
    async fn synchronise(&mut self, export: &'static Export) {
        let (consumer, provider) = (self.consumer(), &self.stand.provider);
        let (mut here, mut there) = (export.here(TEAM, "mars"), consumer.there(export, "mars"));
        here["spec"] = json!({"stages": 1, "parts": {"first": "a", "second": "b"}});
        consumer.home.apply(&here).await;
        if export.is_namespaced() {
            let mut asked = within(kube_bind("APIServiceNamespace", TEAM), &consumer.place);
            asked["spec"] = json!({});
            send(provider, Method::Post, &asked, "").await;
            provider
                .until(&asked, "it has a namespace", |of| {
                    of.is_some_and(|of| of["status"]["namespace"].is_string())
                })
                .await;
        }
        let uid = consumer.home.get(&here).await.unwrap()["metadata"]["uid"].clone();
        let namespace = here["metadata"]["namespace"].as_str().unwrap_or_default();
        there["metadata"]["annotations"] = json!({
            "kube-bind.io/cluster-namespace": consumer.place,
            "kube-bind.io/consumer-namespace": namespace, "kube-bind.io/consumer-uid": uid,
        });
        there["spec"] = here["spec"].clone();
        let made = send(provider, Method::Post, &there, "").await;
        here["spec"]["stages"] = json!(2);
        consumer.home.apply(&here).await;
        there["spec"] = here["spec"].clone();
        send(provider, Method::Apply, &there, "").await;
        self.mark(&here, &made).await;
        self.pairs.push(Pair { export, here, there });
    }

    /// Marks the object at home, and copies the status.
    async fn mark(&self, here: &Value, made: &Value) {
        let home = &self.consumer().home;
        let metadata = &made["metadata"];
        let mut marked = here.clone();
        marked["metadata"]["finalizers"] = json!([FINALIZER]);
        marked["metadata"]["annotations"] = json!({
            "kube-bind.io/provider-namespace": metadata["namespace"].as_str().unwrap_or_default(),
            "kube-bind.io/provider-uid": metadata["uid"],
        });
        marked.as_object_mut().unwrap().remove("spec");
        send(home, Method::MergePatch, &marked, "").await;
    }

    async fn uids(&self) -> Vec<Value> {
        let (home, provider) = (&self.consumer().home, &self.stand.provider);
        let mut objects = Vec::new();
        for Pair { export, here, there } in &self.pairs {
            let definition =
                named("apiextensions.k8s.io/v1", "CustomResourceDefinition", &export.title());
            let of_home = [here, &definition, &kube_bind("APIServiceBinding", export.plural)];
            objects.extend(future::join_all(of_home.map(|of| home.get(of))).await);
            objects.push(provider.get(there).await);
        }
        objects
            .into_iter()
            .map(|of| of.expect("the object is there")["metadata"]["uid"].clone())
            .collect()
    }

    /// No condition has been False or away in between: none has another time.
    async fn no_condition_has_moved(&self) {
        let consumer = self.consumer();
        for Pair { export, .. } in &self.pairs {
            let binding = kube_bind("APIServiceBinding", export.plural);
            let at = within(kube_bind("APIServiceExport", export.plural), &consumer.place);
            let sides = [
                (consumer.home.get(&binding).await, &OF_BINDING[..]),
                (self.stand.provider.get(&at).await, &OF_EXPORT[..]),
            ];
            for (object, names) in sides {
                let object = object.unwrap();
                let found = object["status"]["conditions"].as_array().unwrap();
                for name in names {
                    let condition = found.iter().find(|of| of["type"] == *name);
                    let since = condition.map(|of| &of["lastTransitionTime"]);
                    assert_eq!(since, Some(&json!(SINCE)), "{name}: {object:#}");
                }
            }
        }
    }

    /// A field that is taken out of spec at home goes at the provider, others come.
    async fn fields_come_and_go(&self, round: usize) {
        for Pair { here, there, .. } in &self.pairs {
            let parts = json!({"second": null, "third": format!("round {round}")});
            let change = json!({"spec": {"stages": round, "parts": parts}});
            self.consumer().home.merge(here, "", change).await;
            let parts = json!({"first": "a", "third": format!("round {round}")});
            let spec = json!({"stages": round, "parts": parts});
            self.stand.provider.until_is(there, "/spec", &spec).await;
            let status = json!({"height": round});
            self.stand.provider.merge(there, "/status", json!({"status": status})).await;
            self.consumer().home.until_is(here, "/status", &status).await;
        }
    }

    /// The original goes on: it applies a spec that has changed, and copies a status.
    async fn goes_back(&self) {
        let (home, provider) = (&self.consumer().home, &self.stand.provider);
        for Pair { here, there, .. } in &self.pairs {
            home.merge(here, "", json!({"spec": {"stages": 50}})).await;
            let spec = home.get(here).await.unwrap()["spec"].clone();
            let mut whole = provider.get(there).await.unwrap();
            whole["metadata"].as_object_mut().unwrap().remove("managedFields");
            whole["spec"] = spec.clone();
            send(provider, Method::Apply, &whole, "").await;
            provider.until_is(there, "/spec", &spec).await;
            set_status(home, here.clone(), json!({"height": 51})).await;
            home.until_is(here, "/status/height", &json!(51)).await;
        }
    }

    /// The fields of spec at the provider have one manager: the processor.
    async fn fields_were_taken_over(&self) {
        for Pair { there, .. } in &self.pairs {
            let there = self.stand.provider.get(there).await.unwrap();
            for (manager, fields) in fields_by_manager(&there) {
                let has_spec = fields.iter().any(|field| field.starts_with("/f:spec"));
                assert_eq!(has_spec, manager.starts_with("mortise/"), "{manager}: {fields:#?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts two control planes"]
async fn the_processor_and_the_original_take_over_from_each_other() {
    let Some(mut stand) = Stand::prepared(&["cluster-a"]).await else { return };
    let left = Left::by_the_original(&stand).await;
    let (before, pairs) = (left.uids().await, left.pairs);
    let consumer = &mut stand.consumers[0];
    let mut processor = within(named("mortise.dev/v1alpha1", "Processor", NAME), NAME);
    processor["spec"] = json!({"takeOver": ORIGINAL});
    consumer.home.merge(&processor, "", processor.clone()).await;
    consumer.host = Some(consumer.start());

    let left = Left { stand: &stand, pairs };
    left.fields_come_and_go(10).await;
    left.fields_were_taken_over().await;
    left.no_condition_has_moved().await;
    // The account may not write the exports themselves, so their status is not taken over.
    assert_eq!(left.uids().await, before, "nothing was made anew");

    let pairs = left.pairs;
    stand.consumers[0].host.take().unwrap().kill();
    let left = Left { stand: &stand, pairs };
    left.goes_back().await;
    assert_eq!(left.uids().await, before, "nothing was made anew");
}
