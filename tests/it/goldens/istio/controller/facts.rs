//! The facts about a case on which rules depend.

use istio::{
    action::{Action, ReplicaSets},
    blocking,
    cluster::Size,
    features::Features,
    images::Images,
    installed::is_of_istio,
    kubernetes::Pod,
    predicate::{self, Expected, Phase},
};
use mortise_tests::goldens::group::GroupCase;
use serde_json::json;

use super::{
    super::{
        context::{Surroundings, environment, list, object, text},
        istio_of,
    },
    given,
};

/// Adds the facts as the file `facts`.
pub(super) fn add(case: &mut GroupCase) {
    let istio = istio_of(case);
    let kinds: Vec<&str> = blocking::KINDS.iter().map(|(_, _, kind)| *kind).collect();
    let blocks = case.documents("cluster.yaml").iter().any(|object| {
        let (kind, metadata) = (text(object, "/kind"), &object["metadata"]);
        let labels = serde_json::from_value(metadata["labels"].clone()).unwrap_or_default();
        let (namespace, name) =
            (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
        kinds.contains(&kind) && blocking::blocks(kind, namespace, name, &labels)
    });
    let facts = json!({
        "isDeleted": istio.metadata.is_deleted(),
        "hasBlockers": blocks,
        "hasForeignOwners": has_foreign_owners(case),
        "hasOtherObjects": has_other_objects(case),
    });
    case.add("facts", vec![facts]);
}

/// Returns whether customers' Pods that the original selects have owners that cannot be rolled out.
fn has_foreign_owners(case: &GroupCase) -> bool {
    let (surroundings, istio) = (Surroundings::of(case), istio_of(case));
    let objects = case.documents("cluster.yaml");
    let Ok(size) = Size::of(&surroundings.nodes) else { return false };
    let expected = Expected::of(&predicate::Input {
        istio: &istio,
        size,
        features: Features::read(surroundings.features.as_ref()).unwrap_or_default(),
        image: &Images::read(&environment(case)).unwrap().proxy.to_string(),
        mesh: surroundings.mesh.as_deref(),
    });
    let Ok(expected) = expected else { return false };
    let (pods, replica_sets): (Vec<Pod>, Vec<_>) =
        (list(objects, "Pod"), list(objects, "ReplicaSet"));
    let replica_sets = ReplicaSets::new(&replica_sets);
    pods.iter()
        .filter(|pod| expected.selects(pod, Phase::Customer))
        .any(|pod| matches!(Action::of(pod, &replica_sets), Action::Unsupported(_)))
}

/// Returns whether there are objects of Istio that the library does not make.
fn has_other_objects(case: &GroupCase) -> bool {
    let rendered = given::rendered(case, &istio_of(case).spec);
    case.documents("cluster.yaml").iter().any(|one| {
        let labels = serde_json::from_value(one["metadata"]["labels"].clone()).unwrap_or_default();
        let (kind, name) = (text(one, "/kind"), text(one, "/metadata/name"));
        is_of_istio(&labels)
            && object(&rendered, kind, text(one, "/metadata/namespace"), name).is_none()
    })
}
