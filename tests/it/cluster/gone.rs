//! Fields whose key is gone, on a real control plane: whoever wants them gets them. Fields of a
//! living key stay.

use mortise_sdk::{
    Description, Manifest, Outcome, Reconciler, Selection, Verbs, kubernetes::ConfigMap,
};
use serde_json::{Value, json};

use super::{
    ground::Rights,
    kind,
    stage::{Stage, returns},
};

const PROCESSOR: &str = "mortise.dev/v1alpha1/Processor";
const CONFIG_MAP: &str = "v1/ConfigMap";
const RIGHTS: Rights<'static> =
    &[("configmaps", "get list watch create patch"), ("events", "create patch")];
const SHARED: &str = "shared";

impl Stage {
    /// Returns a Processor that applies one `ConfigMap` and patches another for each object with
    /// its label, both with the object's name.
    fn sets(&self, name: &str, reconciler: &str, label: &str) -> Value {
        let of_namespace = || Selection::of::<ConfigMap>().namespace(&self.namespace);
        let description = Description::new(name, "1.0.0")
            .reconciles(Reconciler::new(reconciler, of_namespace().labels(format!("play={label}"))))
            .writes(of_namespace(), Verbs::CREATE | Verbs::UPDATE);
        let value = json!({"value": format!("$(name)-{reconciler}-{name}")});
        let with = |name: &str, data: &Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": self.named(name), "data": data});
        let outcome = Outcome::new()
            .apply(Manifest::json(&with(SHARED, &value)))
            .patch(Manifest::json(&with("theirs", &value)));
        json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor", "metadata": self.named(name),
            "spec": {
                "module": {"path": "puppet.wasm"}, "serviceAccountName": "painter", "onDelete": "Release",
                "config": {"description": description, "script": returns(&outcome)},
            },
        })
    }

    fn played(&self, name: &str, label: &str) -> Value {
        let mut metadata = self.named(name);
        super::merge(&mut metadata, &json!({"labels": {"play": label}}));
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    }

    async fn value_of(&self, name: &str) -> Value {
        let found = self.get(&kind(CONFIG_MAP), name).await.unwrap_or_default();
        found.pointer("/data/value").cloned().unwrap_or_default()
    }

    /// Waits until the applied and the patched object have a value.
    async fn until_set(&self, value: &str) {
        self.until(&format!("the fields are {value}"), async || {
            self.value_of(SHARED).await == value && self.value_of("theirs").await == value
        })
        .await;
    }

    async fn until_deleted(&self, of: &str, name: &str) {
        self.delete(&kind(of), name).await;
        self.until("it is gone", async || self.get(&kind(of), name).await.is_none()).await;
    }
}

#[tokio::test]
async fn fields_of_a_key_that_is_gone_are_free_and_those_of_a_living_key_are_not() {
    let account = "painter".to_owned();
    let Some(stage) = Stage::new("gone", std::slice::from_ref(&account)).await else { return };
    stage.account("painter", RIGHTS).await;
    stage.consent("painter").await;
    stage.until_granted(&[account]).await;
    let _running = stage.supervise().await;
    let theirs =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": stage.named("theirs")});
    stage.apply(vec![theirs, stage.played("one", "yes")]).await;
    stage.apply(vec![stage.sets("former", "objects", "yes")]).await;
    stage.until_set("one-objects-former").await;

    // Another Processor of the namespace is refused as long as the key is alive.
    stage
        .apply(vec![stage.played("attack", "attack"), stage.sets("attacker", "objects", "attack")])
        .await;
    let part = "`.data.value` of ConfigMap v1";
    stage.until_said_of("attacker", "Synced", "False", "FieldConflict", part).await;
    let suspend = |of: Value, is: bool| {
        let mut of = of;
        of["spec"]["suspend"] = json!(is);
        of
    };
    stage.apply(vec![suspend(stage.sets("former", "objects", "yes"), true)]).await;
    stage.until_said_of("former", "Ready", "False", "Suspended", "").await;
    let runs = stage.status_of("attacker").runs;
    stage.until("it is tried again", async || stage.status_of("attacker").runs > runs).await;
    stage.until_set("one-objects-former").await;
    stage.until_deleted(PROCESSOR, "attacker").await;
    stage.apply(vec![suspend(stage.sets("former", "objects", "yes"), false)]).await;
    stage.until_said_of("former", "Ready", "True", "Runs", "").await;

    // Its object is replaced by one of another name.
    stage.until_deleted(CONFIG_MAP, "one").await;
    stage.apply(vec![stage.played("two", "yes")]).await;
    stage.until_set("two-objects-former").await;

    // Its reconciler is renamed.
    stage.apply(vec![stage.sets("former", "renamed", "yes")]).await;
    stage.until_set("two-renamed-former").await;

    // Its Processor is.
    stage.until_deleted(PROCESSOR, "former").await;
    stage.apply(vec![stage.sets("later", "renamed", "yes")]).await;
    stage.until_set("two-renamed-later").await;
    stage.until_said_of("later", "Synced", "True", "Synced", "").await;
    assert_eq!(stage.beyond_installed(&stage.requests().await), Vec::<String>::new());
}

#[tokio::test]
async fn a_host_of_one_namespace_takes_no_fields_from_another_host() {
    let account = "painter".to_owned();
    let Some(one) = Stage::new("host-one", std::slice::from_ref(&account)).await else { return };
    let Some(other) = Stage::new("host-other", std::slice::from_ref(&account)).await else {
        return;
    };
    for stage in [&one, &other] {
        stage.account("painter", RIGHTS).await;
        stage.consent("painter").await;
    }
    // The account of the other namespace may write in the first one.
    let painter = one.binding("other-painter", "Role", "painter", &other.subject("painter"));
    one.apply(vec![painter]).await;
    let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": one.named("theirs")});
    one.apply(vec![theirs, one.played("mine", "yes"), one.played("attack", "attack")]).await;
    let (_one, _other) = (one.supervise().await, other.supervise().await);
    one.apply(vec![one.sets("victim", "objects", "yes")]).await;
    one.until_set("mine-objects-victim").await;

    let mut attacker = one.sets("attacker", "objects", "attack");
    attacker["metadata"] = other.named("attacker");
    other.apply(vec![attacker]).await;
    let part = "`.data.value` of ConfigMap v1";
    other.until_said_of("attacker", "Synced", "False", "FieldConflict", part).await;
    // Whether the Processor is gone is not for this host to say.
    one.until_deleted(PROCESSOR, "victim").await;
    let runs = other.status_of("attacker").runs;
    other.until("it is tried again", async || other.status_of("attacker").runs > runs).await;
    one.until_set("mine-objects-victim").await;
}
