//! The life of Processors on a real control plane: taking over from a former operator, and
//! releasing objects when they are deleted.

use std::path::Path;

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use mortise::commands::inspect;
use mortise_core::contract;
use mortise_host::host::Loaded;
use mortise_sdk::{
    Description, Manifest, Outcome, Reconciler, Selection, Verbs, kubernetes::ConfigMap,
};
use mortise_tests::{cluster, definitions, guest, loaded};
use serde_json::{Value, json};

use super::{
    kind,
    stage::{Stage, returns},
};

const NAME: &str = "keeper";
const CONFIG_MAP: &str = "v1/ConfigMap";
const PROCESSOR: &str = "mortise.dev/v1alpha1/Processor";
const SECRET_COPY: &str = "guests/secret-copy";
const COPY: &str = "copy.mortise.dev/v1/SecretCopy";

impl Stage {
    /// Returns the Processor's account, which consents.
    fn consenting(&self) -> Value {
        let mut metadata = self.named(NAME);
        super::merge(&mut metadata, &json!({"labels": {"mortise.dev/processor": NAME}}));
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    }

    fn processor(&self, spec: &Value) -> Value {
        let mut processor = json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor", "metadata": self.named(NAME),
            "spec": {"serviceAccountName": NAME},
        });
        super::merge(&mut processor["spec"], spec);
        processor
    }

    /// Returns the roles that `mortise inspect --rbac` prints for a description, with bindings to
    /// the Processor's account. Their names are unique to the test, since some are for all
    /// namespaces.
    async fn printed(&self, description: &contract::Description, crds: Vec<Value>) -> Vec<Value> {
        let account = format!("{}/{NAME}", self.namespace).parse().unwrap();
        let text = inspect::rbac(description, crds, Some(&account), None).await.unwrap();
        let name = format!("mortise-{}", description.name);
        let own = text.replace(&name, &format!("{name}-{}", self.namespace));
        serde_saphyr::from_multiple(&own).unwrap()
    }

    async fn until_finalizers(&self, of: &str, name: &str, expected: &Value) {
        self.until("the finalizers are there, or are gone", async || {
            let object = self.get(&kind(of), name).await;
            object.is_some_and(|object| object["metadata"]["finalizers"] == *expected)
        })
        .await;
    }
}

#[tokio::test]
async fn fields_of_a_former_operator_are_taken_over() {
    let Some(stage) = Stage::new("take-over", &[NAME.to_owned()]).await else { return };
    let of_namespace = || Selection::of::<ConfigMap>().namespace(&stage.namespace);
    let description = Description::new(NAME, "1.0.0")
        .reconciles(Reconciler::new("objects", of_namespace().labels("play=yes")))
        .writes(of_namespace(), Verbs::CREATE | Verbs::UPDATE);
    let Loaded { description: loaded, .. } = stage.load(NAME, &description, &json!({})).await;
    stage.apply(stage.printed(&loaded, Vec::new()).await).await;
    let api: Api<k8s_openapi::api::core::v1::ConfigMap> =
        Api::namespaced(stage.cluster.client().clone(), &stage.namespace);
    let made = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": stage.named("made"), "data": data});
    let former = made(json!({"value": "0", "old": "1"}));
    let operator = PatchParams::apply("operator");
    api.patch("made", &operator, &Patch::Apply(&former)).await.unwrap();

    let _running = stage.supervise().await;
    let wanted = made(json!({"value": "1"}));
    let script = returns(&Outcome::new().apply(Manifest::json(&wanted)));
    let mut reconciled = made(json!({}));
    super::merge(&mut reconciled["metadata"], &json!({"name": "a", "labels": {"play": "yes"}}));
    let spec = json!({
        "module": {"path": "puppet.wasm"}, "config": {"description": description, "script": script},
        "takeOver": ["operator"],
    });
    stage.apply(vec![stage.consenting(), reconciled, stage.processor(&spec)]).await;
    stage
        .until("what the operator wanted alone is gone", async || {
            let made = stage.get(&kind(CONFIG_MAP), "made").await.unwrap();
            made["data"] == json!({"value": "1"})
        })
        .await;
    let managed = &stage.get(&kind(CONFIG_MAP), "made").await.unwrap()["metadata"]["managedFields"];
    let managers: Vec<&str> = managed
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["manager"].as_str().unwrap())
        .collect();
    assert!(managers.iter().all(|manager| manager.starts_with("mortise/")), "{managers:?}");
    assert_eq!(stage.status_of(NAME).conflicts, Vec::<String>::new());
}

/// Sets up a `SecretCopy` that has been carried out: the Secret `s` is copied to another namespace,
/// whose name is returned.
async fn copied(stage: &Stage, on_delete: &str) -> (impl Sized, String) {
    let control_plane = cluster::shared().await.unwrap().unwrap();
    let crds = definitions(SECRET_COPY).unwrap();
    control_plane.install(&crds).await.unwrap();
    let to = control_plane.namespace("copies").await.unwrap();
    let Loaded { description, .. } = loaded(SECRET_COPY, "").await.unwrap();
    stage.apply(stage.printed(&description, crds).await).await;
    let (tasks, modules) = stage.supervise().await;
    let module = tokio::task::spawn_blocking(|| guest(SECRET_COPY)).await.unwrap().unwrap();
    std::fs::copy(module, Path::new(modules.path()).join("copy.wasm")).unwrap();
    let spec = json!({"module": {"path": "copy.wasm"}, "onDelete": on_delete});
    let copy = json!({"secret": "s", "namespaces": format!("kubernetes.io/metadata.name={to}")});
    stage
        .apply(vec![
            stage.consenting(),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": stage.named("s"), "stringData": {"k": "v"}}),
            json!({"apiVersion": "copy.mortise.dev/v1", "kind": "SecretCopy", "metadata": stage.named("c"), "spec": copy}),
            stage.processor(&spec),
        ])
        .await;
    stage.until("the copy is made", async || has_copy(stage, &to).await).await;
    stage.until_finalizers(COPY, "c", &json!(["copy.mortise.dev/copies"])).await;
    ((tasks, modules), to)
}

async fn has_copy(stage: &Stage, namespace: &str) -> bool {
    let secrets: Api<k8s_openapi::api::core::v1::Secret> =
        Api::namespaced(stage.cluster.client().clone(), namespace);
    secrets.get_opt("s").await.unwrap().is_some()
}

/// The Processors run one after the other, because each of them reconciles the copies in all
/// namespaces.
#[tokio::test]
async fn finalizers_are_removed_before_a_processor_is_deleted() {
    for (on_delete, is_copy_left) in [("Finalize", false), ("Release", true)] {
        let prefix = on_delete.to_lowercase();
        let Some(stage) = Stage::new(&prefix, &[NAME.to_owned()]).await else { return };
        let (_running, to) = copied(&stage, on_delete).await;
        stage.delete(&kind(PROCESSOR), NAME).await;
        stage
            .until("the Processor is gone", async || {
                stage.get(&kind(PROCESSOR), NAME).await.is_none()
            })
            .await;
        let left = stage.get(&kind(COPY), "c").await.unwrap();
        assert_eq!(left["metadata"].get("finalizers"), None, "{left:#}");
        assert_eq!(left["metadata"].get("deletionTimestamp"), None, "{left:#}");
        assert!(stage.host.status().is_empty(), "nothing of it runs");
        assert_eq!(has_copy(&stage, &to).await, is_copy_left, "{on_delete}");
        // No Processor carries it out any more.
        stage.delete(&kind(COPY), "c").await;
    }
}
