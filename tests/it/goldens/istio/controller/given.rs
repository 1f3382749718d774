//! The cluster of a case, as the processors find it.

use istio::{
    api::{ISTIO_NAMESPACE, Istio, IstioSpec},
    blocking,
    cluster::Flavour,
    features::Features,
    images::{Images, PULL_SECRET},
    installed::COMPONENT_LABEL,
    last_applied::LastApplied,
    merge,
};
use istio_installation::{Rendering as _, double::Double};
use mortise_sdk::Object as _;
use mortise_tests::goldens::group::GroupCase;
use serde_json::Value;

use super::super::{
    context::{Surroundings, environment, object, text},
    istio_of,
};

/// The kinds of Istio's workloads.
pub(super) const WORKLOADS: [&str; 2] = ["Deployment", "DaemonSet"];
/// The time at which Istio was installed, long before the case.
const INSTALLED_AT: &str = "2025-01-01T00:00:00Z";
/// The groups of kinds that processors read, besides those of Istio.
const GROUPS: [&str; 10] = [
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apps",
    "autoscaling",
    "autoscaling.k8s.io",
    "batch",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
];
/// The labels by which Istio's installer tells its objects.
const OWNED: [(&str, &str); 4] = [
    ("operator.istio.io/managed", "Reconcile"),
    ("install.operator.istio.io/owning-resource", "default-operator"),
    ("install.operator.istio.io/owning-resource-namespace", ISTIO_NAMESPACE),
    ("istio.io/rev", "default"),
];

/// Returns the objects around the resource that processors can read. Of Istio, only outlines of the
/// workloads were recorded: they get what the installer has written for the last applied
/// configuration, and so does the `ConfigMap` of the mesh.
pub(super) fn objects(case: &GroupCase) -> Vec<Value> {
    let recorded = case.documents("cluster.yaml");
    let last = LastApplied::read(&istio_of(case)).ok().flatten();
    let rendered = rendered(case, &last.as_ref().map(|last| last.spec.clone()).unwrap_or_default());
    let find = |kind: &str, name: &str| object(&rendered, kind, ISTIO_NAMESPACE, name).cloned();
    let mut objects: Vec<Value> = recorded.iter().filter_map(known).collect();
    for object in &mut objects {
        let is_outline = WORKLOADS.contains(&text(object, "/kind"))
            && object
                .pointer("/metadata/labels")
                .and_then(|labels| labels.get(COMPONENT_LABEL))
                .is_some()
            && text(object, "/metadata/namespace") == ISTIO_NAMESPACE;
        let Some(installed) =
            find(text(object, "/kind"), text(object, "/metadata/name")).filter(|_| is_outline)
        else {
            continue;
        };
        object["spec"] = installed["spec"].clone();
        object["metadata"]["creationTimestamp"] = INSTALLED_AT.into();
        let labels = object["metadata"]["labels"].as_object_mut().unwrap();
        for (key, value) in OWNED {
            labels.insert(key.to_owned(), value.into());
        }
    }
    let is_installed = last.is_some_and(|last| !last.tag.is_empty());
    if is_installed && object(recorded, "ConfigMap", ISTIO_NAMESPACE, "istio").is_none() {
        objects.extend(find("ConfigMap", "istio"));
    }
    objects
}

/// Returns an object as it is when its kind is read; `None` for definitions, and for kinds that no
/// processor reads.
fn known(object: &Value) -> Option<Value> {
    let mut object = object.clone();
    let (api_version, kind) = (text(&object, "/apiVersion"), text(&object, "/kind"));
    let (group, _) = api_version.split_once('/').unwrap_or_default();
    // An API server shows an object in all versions of its kind.
    let of_istio = blocking::kinds().find(|of| (of.group.as_str(), &*of.kind) == (group, kind));
    if let Some(of_istio) = of_istio {
        object["apiVersion"] = of_istio.api_version().into();
        return Some(object);
    }
    let is_read = GROUPS.contains(&group) || (group, kind) == (Istio::GROUP, Istio::KIND);
    if !is_read || kind == "CustomResourceDefinition" {
        return None;
    }
    Some(object)
}

/// Returns the objects of an Istio with this spec; those of the default one if it cannot be merged,
/// and none if the cluster cannot be told.
pub(super) fn rendered(case: &GroupCase, spec: &IstioSpec) -> Vec<Value> {
    let (surroundings, environment) = (Surroundings::of(case), environment(case));
    let Ok(cluster) = surroundings.cluster() else { return Vec::new() };
    let merged = |spec: &IstioSpec| {
        merge::merge(&merge::Input {
            spec,
            cluster: &cluster,
            flavour: Flavour::Experimental,
            features: Features::default(),
            images: &Images::read(&environment).unwrap(),
            pull_secret: environment.get(PULL_SECRET).map(String::as_str),
        })
    };
    let operator = merged(spec).or_else(|_| merged(&IstioSpec::default())).unwrap();
    let rendered = Double::render(&operator.to_string(), None).unwrap();
    let manifests = rendered.components.into_iter().flat_map(|component| component.manifests);
    manifests.map(|manifest| serde_json::from_str(&manifest.content).unwrap()).collect()
}

/// Returns a definition that lets all values in, as the API of the records did.
pub(super) fn lenient(mut definition: Value) -> Value {
    fn relax(schema: &mut Value) {
        match schema {
            Value::Object(map) => {
                for limit in [
                    "enum",
                    "maxLength",
                    "maximum",
                    "minLength",
                    "minimum",
                    "pattern",
                    "x-kubernetes-validations",
                ] {
                    // A property may have the same name.
                    if map.get(limit).is_some_and(|limit| !limit.is_object()) {
                        map.remove(limit);
                    }
                }
                map.values_mut().for_each(relax);
            }
            Value::Array(items) => items.iter_mut().for_each(relax),
            _ => {}
        }
    }
    for version in definition["spec"]["versions"].as_array_mut().unwrap() {
        relax(&mut version["schema"]);
    }
    definition
}
