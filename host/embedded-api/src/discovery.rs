//! Discovery: groups, versions and resources, in the unaggregated form (a document for each
//! version) and in the aggregated form (`Accept: …;as=APIGroupDiscoveryList`); the server's
//! version, health, and schemas ([`crate::openapi`]).

#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

use crate::{
    kind::{Form, GroupVersions, Registry, Resource, api_version},
    openapi,
};

/// An answer that is not an object of a resource.
#[derive(Debug, PartialEq)]
pub(crate) enum Document {
    /// `application/json`.
    Json(Value),
    /// JSON with a content type of its own.
    Typed(Value, String),
    /// Plain text.
    Text(String),
    /// Bytes, with their content type.
    Bytes(&'static [u8], &'static str),
    /// No accepted content type can be served; the text names those that can.
    NotAcceptable(&'static str),
}

/// Answers a path that names no resource; `None` if nothing is served there.
pub(crate) fn answer(registry: &Registry, path: &str, accept: &str) -> Option<Document> {
    let path = path.trim_end_matches('/');
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    match segments.as_slice() {
        [] => Some(Document::Json(paths(registry))),
        ["version"] => Some(Document::Json(version())),
        ["healthz" | "readyz" | "livez"] | ["healthz" | "readyz" | "livez", "ping"] => {
            Some(Document::Text("ok".to_owned()))
        }
        ["api"] => Some(aggregated(registry, accept, true).unwrap_or_else(|| {
            Document::Json(json!({
                "kind": "APIVersions",
                "versions": ["v1"],
                "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}],
            }))
        })),
        ["apis"] => Some(
            aggregated(registry, accept, false).unwrap_or_else(|| Document::Json(groups(registry))),
        ),
        ["apis", name] => {
            let group = registry.group(name).filter(|_| !name.is_empty())?;
            Some(Document::Json(with_type("APIGroup", "v1", group_entry(&group))))
        }
        ["api", "v1"] => Some(Document::Json(resources(registry, "", "v1"))),
        ["apis", group, version] => registry
            .has_version(group, version)
            .then(|| Document::Json(resources(registry, group, version))),
        ["openapi", rest @ ..] => openapi::answer(registry, rest, accept),
        _ => None,
    }
}

/// Returns the answer of `/version`: the version whose behaviour is copied.
fn version() -> Value {
    json!({
        "major": "1",
        "minor": "34",
        "emulationMajor": "1",
        "emulationMinor": "34",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "33",
        "gitVersion": "v1.34.4",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "",
    })
}

fn paths(registry: &Registry) -> Value {
    let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()];
    for group in registry.groups().filter(|group| !group.group.is_empty()) {
        paths.push(format!("/apis/{}", group.group));
        paths.extend(
            group.versions.iter().map(|version| format!("/apis/{}/{version}", group.group)),
        );
    }
    let more = ["/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"];
    paths.extend(more.map(str::to_owned));
    json!({"paths": paths})
}

fn with_type(kind: &str, api_version: &str, mut value: Value) -> Value {
    if let Some(object) = value.as_object_mut() {
        object.insert("kind".to_owned(), kind.into());
        object.insert("apiVersion".to_owned(), api_version.into());
    }
    value
}

fn groups(registry: &Registry) -> Value {
    let groups = registry.groups().filter(|group| !group.group.is_empty());
    let groups: Vec<_> = groups.map(|group| group_entry(&group)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn group_entry(group: &GroupVersions<'_>) -> Value {
    let entry = |version: &str| json!({"groupVersion": api_version(group.group, version), "version": version});
    let versions: Vec<_> = group.versions.iter().map(|version| entry(version)).collect();
    json!({
        "name": group.group,
        "preferredVersion": versions.first(),
        "versions": versions,
    })
}

/// Returns the `APIResourceList` of one version: each resource is followed by its subresources.
fn resources(registry: &Registry, group: &str, version: &str) -> Value {
    let mut entries = Vec::new();
    for resource in registry.resources(group, version) {
        entries.push(resource_entry(resource));
        entries.extend(subresource_entries(resource));
    }
    let mut list = json!({"kind": "APIResourceList", "groupVersion": api_version(group, version), "resources": entries});
    // In kube-apiserver the core group's list has no `apiVersion`.
    if !group.is_empty() {
        list = with_type("APIResourceList", "v1", list);
    }
    list
}

/// Returns the verbs that discovery lists: while a CRD is being deleted, none that creates or
/// changes an object.
fn verbs(resource: &Resource) -> &'static [&'static str] {
    match &resource.form {
        Form::Custom(custom) if custom.terminating => {
            &["delete", "deletecollection", "get", "list", "watch"]
        }
        _ => resource.verbs,
    }
}

fn resource_entry(resource: &Resource) -> Value {
    let mut entry = Map::new();
    entry.insert("name".into(), resource.plural.as_str().into());
    entry.insert("singularName".into(), resource.singular.as_str().into());
    entry.insert("namespaced".into(), resource.namespaced.into());
    entry.insert("kind".into(), resource.kind.as_str().into());
    entry.insert("verbs".into(), verbs(resource).into());
    for (key, texts) in
        [("shortNames", &resource.short_names), ("categories", &resource.categories)]
    {
        if !texts.is_empty() {
            entry.insert(key.into(), texts.as_slice().into());
        }
    }
    if resource.is_stored() {
        entry.insert("storageVersionHash".into(), storage_hash(resource).into());
    }
    Value::Object(entry)
}

/// Returns a short hash of the group, version and kind under which objects are stored.
fn storage_hash(resource: &Resource) -> String {
    use base64::Engine as _;
    let text = format!("{}/{}/{}", resource.storage_group, resource.storage_version, resource.kind);
    // FNV-1a: any hash will do, clients only compare it.
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    base64::engine::general_purpose::STANDARD.encode(hash.to_be_bytes())
}

fn subresource_entries(resource: &Resource) -> impl Iterator<Item = Value> {
    resource.subresources.iter().map(|subresource| {
        let mut entry = json!({
            "name": format!("{}/{}", resource.plural, subresource.name),
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": subresource.kind,
            "verbs": subresource.verbs,
        });
        if let (Some((group, version)), Some(entry)) =
            (&subresource.group_version, entry.as_object_mut())
        {
            entry.insert("group".into(), group.as_str().into());
            entry.insert("version".into(), version.as_str().into());
        }
        entry
    })
}

/// Returns the aggregated form, if the client asks for it before the unaggregated one.
fn aggregated(registry: &Registry, accept: &str, core: bool) -> Option<Document> {
    let Wanted::Aggregated(version) = accept.split(',').find_map(wanted)? else { return None };
    let groups = registry.groups().filter(|group| group.group.is_empty() == core);
    let items: Vec<_> = groups.map(|group| aggregated_group(registry, &group)).collect();
    let list = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {},
        "items": items,
    });
    let content_type =
        format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
    Some(Document::Typed(list, content_type))
}

/// The forms of discovery.
enum Wanted {
    /// A document for each version.
    Separate,
    /// A single document, in this version of `APIGroupDiscoveryList`.
    Aggregated(&'static str),
}

/// Returns the form that one part of an `Accept` header asks for, if any.
fn wanted(part: &str) -> Option<Wanted> {
    let mut parameters = part.split(';').map(str::trim);
    if parameters.next() != Some("application/json") {
        return None;
    }
    let parameters: Vec<_> = parameters.collect();
    if parameters.is_empty() {
        return Some(Wanted::Separate);
    }
    let aggregated = ["as=APIGroupDiscoveryList", "g=apidiscovery.k8s.io"];
    if !aggregated.iter().all(|parameter| parameters.contains(parameter)) {
        return None;
    }
    let known = [("v=v2", "v2"), ("v=v2beta1", "v2beta1")];
    let found = known.into_iter().find(|(parameter, _)| parameters.contains(parameter));
    found.map(|(_, version)| Wanted::Aggregated(version))
}

fn aggregated_group(registry: &Registry, group: &GroupVersions<'_>) -> Value {
    let versions = group.versions.iter().map(|version| {
        let resources = registry.resources(group.group, version).map(|resource| aggregated_resource(resource));
        json!({"version": version, "resources": resources.collect::<Vec<_>>(), "freshness": "Current"})
    });
    let metadata = if group.group.is_empty() { json!({}) } else { json!({"name": group.group}) };
    json!({"metadata": metadata, "versions": versions.collect::<Vec<_>>()})
}

fn aggregated_resource(resource: &Resource) -> Value {
    let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    // Kubernetes leaves out the group and version of its own kinds where they are those of the
    // resource.
    let own = if resource.is_custom() { (&*resource.group, &*resource.version) } else { ("", "") };
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": kind(own.0, own.1, &resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": verbs(resource),
    });
    let subresources = resource.subresources.iter().map(|subresource| {
        let other = subresource.group_version.as_ref();
        let (group, version) = other.map_or(own, |(group, version)| (group, version));
        json!({
            "subresource": subresource.name,
            "responseKind": kind(group, version, &subresource.kind),
            "verbs": subresource.verbs,
        })
    });
    let subresources: Vec<_> = subresources.collect();
    if let Some(entry) = entry.as_object_mut() {
        for (key, texts) in
            [("shortNames", &resource.short_names), ("categories", &resource.categories)]
        {
            if !texts.is_empty() {
                entry.insert(key.into(), texts.as_slice().into());
            }
        }
        if !subresources.is_empty() {
            entry.insert("subresources".into(), subresources.into());
        }
    }
    entry
}
