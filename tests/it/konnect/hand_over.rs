//! The fields of Kong's operator become the processor's, and what the processor leaves.

use std::iter::successors;

use konnect::kind::CLEANUP;
use kube::api::{Api, DeleteParams};
use mortise_host::operator::api::Processor;
use serde_json::{Value, json};

use super::{
    objects,
    rig::{HOME, NAME, Rig},
};

/// The field manager of Kong's operator.
const ORIGINAL: &str = "manager";
/// What the names of our field managers begin with.
const OURS: &str = "mortise/";
const CERTIFICATE_ID: &str = "/status/konnect/certificateID";

/// Returns the fields of an object's status that managers with this prefix own.
fn owned(object: &Value, prefix: &str) -> Vec<Value> {
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    let is_of = |entry: &&Value| {
        entry["subresource"] == "status" && entry["manager"].as_str().unwrap().starts_with(prefix)
    };
    entries.into_iter().flatten().filter(is_of).map(|entry| entry["fieldsV1"].clone()).collect()
}

/// Makes the field managers of a host those of Kong's operator, which updates and does not apply.
fn as_of_the_original(mut object: Value) -> Value {
    let entries = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
    for entry in entries.into_iter().flatten() {
        if entry["manager"].as_str().unwrap().starts_with(OURS) {
            entry["manager"] = ORIGINAL.into();
            entry["operation"] = "Update".into();
        }
    }
    object
}

fn without_managers(mut object: Value) -> Value {
    for field in ["managedFields", "resourceVersion"] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    object
}

/// Starts a cluster in which all objects are programmed, with the field managers of Kong's operator
/// and a Processor that takes over from it.
async fn left_by_the_original() -> Rig {
    let more = json!({"takeOver": [ORIGINAL], "onDelete": "Release"});
    let config = json!({"syncPeriodSeconds": 3600});
    let rig = Rig::start().await.with_processor(&config, &more).await;
    rig.apply(objects::shared()).await;
    rig.apply(objects::round(1)).await;
    rig.apply(vec![objects::with_certificate(1)]).await;
    let host = rig.host(&[]);
    rig.until_programmed().await;
    host.kill();
    for object in rig.objects() {
        rig.api.load(as_of_the_original(object), false).unwrap();
    }
    rig
}

/// Waits until the status of each object is the processor's.
async fn until_taken_over(rig: &Rig) {
    rig.until(|| {
        let mut objects = rig.objects();
        objects.retain(|of| owned(of, OURS).is_empty() || !owned(of, ORIGINAL).is_empty());
        (!objects.is_empty()).then(|| format!("these are not taken over: {objects:#?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fields_of_the_operator_are_taken_over_and_nothing_else_changes() {
    let rig = left_by_the_original().await;
    let before = rig.objects();
    let [created, deleted] = ["POST", "DELETE"].map(|method| rig.requests(method).len());
    let _host = rig.host(&[]);
    until_taken_over(&rig).await;
    for (object, before) in rig.objects().into_iter().zip(before) {
        let versions = successors(Some(object.clone()), |of| rig.api.before(of));
        for version in versions.take_while(|of| {
            of["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]
        }) {
            assert_eq!(without_managers(version), without_managers(before.clone()));
        }
    }
    assert_eq!(rig.requests("POST").len(), created);
    assert_eq!(rig.requests("DELETE").len(), deleted);
    rig.assert_one_each();

    // What the operator set and the processor does not want any more goes.
    let with = |rig: &Rig| {
        let mut services = rig.objects();
        services.retain(|of| of["metadata"]["name"] == "certified-1");
        services.pop().unwrap()
    };
    assert!(with(&rig).pointer(CERTIFICATE_ID).is_some());
    rig.apply(vec![objects::without_certificate(1)]).await;
    rig.until(|| {
        let service = with(&rig);
        service.pointer(CERTIFICATE_ID).map(|_| format!("it still has an ID: {service:#}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_processor_that_is_deleted_leaves_objects_and_entities_to_the_operator() {
    let rig = left_by_the_original().await;
    let _host = rig.host(&[]);
    until_taken_over(&rig).await;
    let (before, entities) = (rig.objects(), rig.entities());
    let processors: Api<Processor> = Api::namespaced(rig.cluster.client().clone(), HOME);
    processors.delete(NAME, &DeleteParams::default()).await.unwrap();
    rig.until(|| {
        let is_there = rig.api.objects().iter().any(|of| of["kind"] == "Processor");
        is_there.then(|| "the Processor is still there".to_owned())
    })
    .await;
    for (object, before) in rig.objects().iter().zip(&before) {
        assert_eq!(object["status"], before["status"]);
        let finalizers = object["metadata"]["finalizers"].as_array();
        assert!(finalizers.is_none_or(|all| !all.contains(&json!(CLEANUP))), "{object:#}");
    }
    assert_eq!((rig.entities(), rig.requests("DELETE")), (entities, Vec::new()));
}
