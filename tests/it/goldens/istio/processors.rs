//! Recorded cases of the Kyma Istio operator, through the reconciles of the processors.
//!
//! The original does all in one pass. A case begins where that pass comes to the part of the
//! processor: after an installation the tag is in the annotation, and after the removal of Istio
//! only the processor's own finalizer is left.

use std::time::Duration;

use ingress_gateway_restart::IngressGatewayRestarts;
use istio::{
    action::RESTARTED_AT,
    api::Istio,
    cluster::INGRESS_GATEWAY,
    last_applied::{ANNOTATION, Effect, LastApplied},
    resource::AUTOSCALER_CRD,
};
use mortise_sdk::{Kind, Object as _, ObjectRef, Processor as _, testing::Stub};
use mortise_tests::goldens::{group::GroupCase, sorted};
use peer_authentication::PeerAuthentications;
use serde_json::{Map, Value, json};

use super::{
    context::{object, text},
    istio_of, run,
};

/// The tag of the installed Istio, as the cases were recorded.
const TAG: &str = "1.30.2-distroless";
/// The finalizer of peer-authentication.
const FINALIZER: &str = "istios.operator.kyma-project.io/peer-authentication";
/// The kinds of the module's own objects.
pub(super) const OWN: [&str; 4] =
    ["PeerAuthentication", "NetworkPolicy", "VerticalPodAutoscaler", "EnvoyFilter"];

/// A resource and the objects around it, in a cluster in memory.
struct Stage {
    stub: Stub,
    of: ObjectRef,
    objects: Vec<Value>,
}

impl Stage {
    fn new(case: &GroupCase, more: impl IntoIterator<Item = Value>) -> Self {
        let mut istio = case.document("istio-cr.yaml").clone();
        let resource = istio_of(case);
        if let Ok(annotation) = LastApplied::after(&resource, Effect::Installed(TAG)) {
            istio["metadata"]["annotations"][ANNOTATION] = annotation.into();
        }
        if resource.metadata.is_deleted() {
            istio["metadata"]["finalizers"] = json!([FINALIZER]);
        }
        let of = reference(&istio);
        let objects: Vec<Value> = case
            .documents("cluster.yaml")
            .iter()
            .filter(|object| object["kind"] != "CustomResourceDefinition")
            .cloned()
            .chain(more)
            .collect();
        let has_autoscalers =
            object(case.documents("cluster.yaml"), "CustomResourceDefinition", "", AUTOSCALER_CRD);
        let stub = Stub::new()
            .crds(mortise_tests::crds::folder().join(Istio::GROUP))
            .objects(objects.iter().cloned().chain([istio]));
        let stub = match has_autoscalers {
            Some(_) => stub,
            None => stub.without_kind("autoscaling.k8s.io", "VerticalPodAutoscaler"),
        };
        Self { stub, of, objects }
    }

    /// Returns the message of a condition; "" if there is none.
    fn message(&self, condition_type: &str) -> String {
        let istio = self.stub.object(&self.of).unwrap_or_default();
        let conditions = istio.pointer("/status/conditions").and_then(Value::as_array);
        let found = conditions.into_iter().flatten().find(|one| one["type"] == condition_type);
        found.map(|condition| text(condition, "/message").to_owned()).unwrap_or_default()
    }

    /// Returns the module's own objects, without what an API server adds.
    fn own_objects(&self) -> Value {
        let description =
            PeerAuthentications::describe(&peer_authentication::Config::default()).unwrap();
        let written = description.writes.into_iter().map(|rule| {
            let of = rule.of;
            ObjectRef::new(of.kind, of.namespace.as_deref(), of.name.unwrap())
        });
        let there = self.objects.iter().filter(|one| OWN.contains(&text(one, "/kind")));
        let mut all: Vec<ObjectRef> = written.collect();
        for of in there.map(reference) {
            if !all.contains(&of) {
                all.push(of);
            }
        }
        let left = all.iter().filter_map(|of| self.stub.object(of)).map(|mut object| {
            let metadata = object["metadata"].as_object_mut().unwrap();
            for added in
                ["creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"]
            {
                metadata.remove(added);
            }
            object
        });
        sorted(left.collect())
    }
}

pub(super) fn reference(object: &Value) -> ObjectRef {
    let api_version = text(object, "/apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = Kind::new(group, version, text(object, "/kind"));
    let namespace = Some(text(object, "/metadata/namespace")).filter(|name| !name.is_empty());
    ObjectRef::new(kind, namespace, text(object, "/metadata/name"))
}

#[test]
fn istio_resources_are_reconciled_as_by_the_original() {
    run("resources", |case| {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "istio-system"},
        });
        let stage = Stage::new(case, [namespace]);
        let settled = stage.stub.settle::<PeerAuthentications>("");
        let errors: Map<String, Value> =
            settled.failures.into_iter().map(|(key, why)| (key, why.into())).collect();
        let original = sorted(case.documents("expected.yaml").to_vec());
        vec![
            ("objects", original, stage.own_objects()),
            ("errors", case.document("expected.json").clone(), errors.into()),
        ]
    });
}

#[test]
fn istio_gateways_are_rolled_out_as_by_the_original() {
    run("gateway", |case| {
        let gateway = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {
                "name": INGRESS_GATEWAY, "namespace": "istio-system",
                "creationTimestamp": "2025-01-01T00:00:00Z",
            },
            "spec": {
                "selector": {"matchLabels": {"app": INGRESS_GATEWAY}},
                "template": {
                    "metadata": {"labels": {"app": INGRESS_GATEWAY}},
                    "spec": {"containers": [{"name": "istio-proxy", "image": "example.com/a:1"}]},
                },
            },
        });
        let stage = Stage::new(case, [gateway.clone()]);
        let at = || -> Option<String> {
            let gateway = stage.stub.object(&reference(&gateway))?;
            let annotations = gateway.pointer("/spec/template/metadata/annotations")?;
            annotations.get(RESTARTED_AT)?.as_str().map(str::to_owned)
        };
        let settle = |by| {
            stage.stub.settle::<IngressGatewayRestarts>("");
            stage.stub.advance(by);
        };
        // A restart takes three runs, the first of which records it.
        settle(Duration::from_secs(1));
        settle(Duration::from_secs(1));
        let restarted_at = at();
        settle(Duration::from_mins(10));
        settle(Duration::from_mins(10));
        assert_eq!(at(), restarted_at, "{}: restarted twice", case.name);
        let message = stage.message("IngressGatewayRestarted");
        let prefix = format!(
            "Could not create Ingress Gateway restart evaluator: annotation {ANNOTATION}: "
        );
        let error = message.strip_prefix(&prefix).unwrap_or_default();
        let ours = json!({"requiresRestart": restarted_at.is_some(), "error": error});
        vec![("gateway", case.document("expected.json").clone(), ours)]
    });
}
