//! `CustomResourceDefinition`s at home, made from `BoundSchema`s.

use mortise_sdk::{
    Error, Host, Kind, Manifest, Object, Selection,
    object::{Metadata, OwnerReference},
};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use crate::api::{self, Binding, BoundSchema, Condition, Names, Subresources, Version};

/// The fields that are read of definitions.
pub(crate) const FIELDS: [&str; 8] = [
    "metadata.ownerReferences",
    "spec.group",
    "spec.names",
    "spec.scope",
    "spec.versions[].name",
    "spec.versions[].served",
    "spec.versions[].subresources",
    "status",
];
/// The longest definition, in bytes of JSON.
const MAX_BYTES: usize = 1024 * 1024;
/// The most levels of a definition: parsers of JSON accept 128, and the API server adds some.
const MAX_LEVELS: usize = 110;
/// The condition of a definition whose kind is served.
const ESTABLISHED: &str = "Established";

/// A `CustomResourceDefinition`, reduced to what is read.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Definition {
    pub(crate) metadata: Metadata,
    pub(crate) spec: Spec,
    pub(crate) status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Spec {
    pub(crate) group: String,
    pub(crate) names: Names,
    pub(crate) scope: String,
    pub(crate) versions: Vec<DefinedVersion>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DefinedVersion {
    pub(crate) name: String,
    pub(crate) served: bool,
    pub(crate) subresources: Option<Subresources>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Status {
    #[serde(deserialize_with = "or_empty")]
    pub(crate) conditions: Vec<Condition>,
    pub(crate) accepted_names: Option<Names>,
    #[serde(deserialize_with = "or_empty")]
    pub(crate) stored_versions: Vec<String>,
}

/// Reads a list that the API server writes as null while it is empty, as in a new definition.
fn or_empty<'a, T: Deserialize<'a>, D: Deserializer<'a>>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

impl Object for Definition {
    const GROUP: &'static str = "apiextensions.k8s.io";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "CustomResourceDefinition";
}

impl Definition {
    /// Reads the definition of a name.
    pub(crate) fn get(host: &Host, name: &str) -> Result<Option<Self>, Error> {
        host.get(None, name, &FIELDS)
    }

    /// Reads the definition whose kind the API server serves.
    pub(crate) fn of_kind(host: &Host, kind: &Kind) -> Result<Option<Self>, Error> {
        let of = Selection::of::<Self>()
            .matching("spec.group", &kind.group)
            .matching("spec.names.kind", &kind.kind)
            .fields(FIELDS);
        Ok(host.list::<Self>(&of)?.into_iter().find(Self::is_established))
    }

    /// Reads the definitions that a binding owns.
    pub(crate) fn owned_by(host: &Host, binding: &Binding) -> Result<Vec<Self>, Error> {
        let uid = binding.metadata.uid.as_deref().unwrap_or_default();
        let of = Selection::of::<Self>().matching("metadata.ownerReferences[].uid", uid);
        let all: Vec<Self> = host.list(&of.fields(FIELDS))?;
        Ok(all.into_iter().filter(|definition| definition.owner_of(binding).is_some()).collect())
    }

    /// Returns whether the kind is served under its names.
    pub(crate) fn is_established(&self) -> bool {
        api::holds(&self.status.conditions, ESTABLISHED)
    }

    pub(crate) fn is_namespaced(&self) -> bool {
        self.spec.scope == "Namespaced"
    }

    /// Returns whether objects of a version have a status of their own.
    pub(crate) fn has_status(&self, version: &str) -> bool {
        let version = self.spec.versions.iter().find(|defined| defined.name == version);
        let subresources = version.and_then(|version| version.subresources.as_ref());
        subresources.is_some_and(|subresources| subresources.status.is_some())
    }

    /// Returns whether the API server serves a version.
    pub(crate) fn serves(&self, version: &str) -> bool {
        let mut versions = self.spec.versions.iter();
        self.is_established() && versions.any(|defined| defined.name == version && defined.served)
    }

    /// Returns the kind in the version in which objects are read at home: the first that is served.
    pub(crate) fn served_kind(&self) -> Option<Kind> {
        let version = self.spec.versions.iter().find(|version| version.served)?;
        Some(Kind::new(&self.spec.group, &version.name, &self.spec.names.kind))
    }

    /// Returns the references to bindings as owners.
    pub(crate) fn bindings(&self) -> impl Iterator<Item = &OwnerReference> {
        self.metadata.owner_references.iter().filter(|owner| {
            let group = owner.api_version.split('/').next().unwrap_or_default();
            group == Binding::GROUP && owner.kind == Binding::KIND
        })
    }

    /// Returns the reference to this binding as the owner.
    pub(crate) fn owner_of(&self, binding: &Binding) -> Option<&OwnerReference> {
        self.bindings().find(|owner| {
            owner.name == binding.metadata.name && Some(&owner.uid) == binding.metadata.uid.as_ref()
        })
    }
}

/// Returns the version in which objects of a schema are synchronised: the first that is served.
pub(crate) fn sync_version(schema: &BoundSchema) -> Option<&Version> {
    schema.spec.versions.iter().find(|version| version.served)
}

/// Returns the definition that a `BoundSchema` describes. `former` is the definition that is
/// there, which the binding owns.
///
/// # Errors
///
/// The schema is not one of its name, has no served version, or is too large.
pub(crate) fn manifest(
    schema: &BoundSchema,
    binding: &Binding,
    former: Option<&Definition>,
) -> Result<Manifest, String> {
    let spec = &schema.spec;
    let name = format!("{}.{}", spec.names.plural, spec.group);
    if name != schema.metadata.name {
        return Err(format!("BoundSchema {} describes {name}", schema.metadata.name));
    }
    if sync_version(schema).is_none() {
        return Err(format!("BoundSchema {name} has no served version"));
    }
    let owner = former.and_then(|former| former.owner_of(binding)).cloned();
    let owner = owner.unwrap_or_else(|| OwnerReference {
        block_owner_deletion: None,
        ..OwnerReference::controller::<Binding>(&binding.metadata)
    });
    let mut fields = Map::new();
    fields.insert("group".to_owned(), json!(spec.group));
    fields.insert("names".to_owned(), json!(with_defaults(&spec.names)));
    fields.insert("scope".to_owned(), json!(spec.scope));
    let versions: Vec<Value> = spec.versions.iter().map(version).collect();
    fields.insert("versions".to_owned(), versions.into());
    if let Some(conversion) = &spec.conversion {
        // The API server at home would call an address that the provider chooses, with all objects.
        if conversion.strategy != "None" || conversion.webhook.is_some() {
            return Err(format!(
                "BoundSchema {name} is converted by {:?}; only the strategy `None` is accepted",
                conversion.strategy
            ));
        }
    }
    fields.insert("conversion".to_owned(), json!({"strategy": "None"}));
    let object = json!({"metadata": Metadata::new(&name).owned_by(owner), "spec": fields});
    if !is_within(&object, MAX_LEVELS) {
        return Err(format!("BoundSchema {name} has more than {MAX_LEVELS} levels of fields"));
    }
    let mut manifest = Manifest::with_kind(&Definition::kind(), &object);
    if manifest.object.len() > MAX_BYTES {
        return Err(format!("BoundSchema {name} is larger than {} KiB", MAX_BYTES / 1024));
    }
    let unwanted = [
        ("spec.names.shortNames", spec.names.short_names.is_empty()),
        ("spec.names.categories", spec.names.categories.is_empty()),
        ("spec.conversion.webhook", true),
    ];
    for (path, _) in unwanted.iter().filter(|(_, is_unwanted)| *is_unwanted && former.is_some()) {
        manifest = manifest.absent(*path);
    }
    Ok(manifest)
}

/// Returns names with the API server's defaults: what somebody else writes there instead goes.
fn with_defaults(names: &Names) -> Names {
    let or = |name: &str, default: String| if name.is_empty() { default } else { name.to_owned() };
    Names {
        singular: or(&names.singular, names.kind.to_lowercase()),
        list_kind: or(&names.list_kind, format!("{}List", names.kind)),
        ..names.clone()
    }
}

/// Returns whether a value has at most this many levels. What was parsed has few.
fn is_within(value: &Value, levels: usize) -> bool {
    let Some(inner) = levels.checked_sub(1) else { return false };
    match value {
        Value::Object(fields) => fields.values().all(|value| is_within(value, inner)),
        Value::Array(items) => items.iter().all(|value| is_within(value, inner)),
        _ => true,
    }
}

fn version(version: &Version) -> Value {
    let mut fields = Map::new();
    let mut set = |key: &str, value: Value| fields.insert(key.to_owned(), value);
    set("name", json!(version.name));
    set("served", json!(version.served));
    set("storage", json!(version.storage));
    if version.deprecated {
        set("deprecated", json!(true));
    }
    if let Some(warning) = &version.deprecation_warning {
        set("deprecationWarning", json!(warning));
    }
    if let Some(schema) = open_api(&version.schema) {
        set("schema", json!({"openAPIV3Schema": schema}));
    }
    if let Some(subresources) = &version.subresources {
        set("subresources", json!(subresources));
    }
    if !version.additional_printer_columns.is_empty() {
        set("additionalPrinterColumns", json!(version.additional_printer_columns));
    }
    Value::Object(fields)
}

/// Returns the schema, which stands as such or under `openAPIV3Schema`.
fn open_api(schema: &Value) -> Option<&Value> {
    let fields = schema.as_object()?;
    fields.get("openAPIV3Schema").or((!fields.is_empty()).then_some(schema))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(change: impl Fn(&mut Value)) -> BoundSchema {
        let mut schema = json!({
            "metadata": {"name": "rockets.golden.example.dev", "namespace": "cn"},
            "spec": {
                "informerScope": "Namespaced", "group": "golden.example.dev", "scope": "Namespaced",
                "names": {"kind": "Rocket", "listKind": "RocketList", "plural": "rockets", "singular": "rocket"},
                "versions": [{"name": "v1", "storage": true, "schema": {"type": "object"}, "subresources": {"status": {}}}],
            },
        });
        change(&mut schema["spec"]);
        serde_json::from_value(schema).unwrap()
    }

    fn binding() -> Binding {
        serde_json::from_value(json!({"metadata": {"name": "rockets", "uid": "u1"}})).unwrap()
    }

    fn made(schema: &BoundSchema) -> Result<Value, String> {
        manifest(schema, &binding(), None).map(|made| serde_json::from_str(&made.object).unwrap())
    }

    #[test]
    fn a_new_definition_is_not_established_yet() {
        let status = json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": null});
        let definition =
            json!({"metadata": {"name": "rockets.golden.example.dev"}, "status": status});
        let definition: Definition = serde_json::from_value(definition).unwrap();
        assert!(!definition.is_established());
        assert!(definition.status.stored_versions.is_empty());
    }

    #[test]
    fn a_schema_becomes_a_definition_that_the_binding_owns() {
        let expected = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {
                "name": "rockets.golden.example.dev",
                "ownerReferences": [{
                    "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceBinding", "name": "rockets",
                    "uid": "u1", "controller": true,
                }],
            },
            "spec": {
                "group": "golden.example.dev", "scope": "Namespaced",
                "names": {"kind": "Rocket", "listKind": "RocketList", "plural": "rockets", "singular": "rocket"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
                    "subresources": {"status": {}},
                }],
                "conversion": {"strategy": "None"},
            },
        });
        assert_eq!(made(&schema(|_| ())).unwrap(), expected);
        let wrapped = json!({"openAPIV3Schema": {"type": "object"}});
        let wrapped = schema(|spec| spec["versions"][0]["schema"] = wrapped.clone());
        assert_eq!(made(&wrapped).unwrap(), expected);
        let short = schema(|spec| spec["names"] = json!({"kind": "Rocket", "plural": "rockets"}));
        assert_eq!(made(&short).unwrap(), expected);
    }

    #[test]
    fn each_field_of_a_version_is_kept() {
        let full = json!([
            {"name": "v2", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
             "additionalPrinterColumns": [{"name": "Age", "type": "date", "priority": 0, "jsonPath": ".metadata.creationTimestamp"}],
             "subresources": {"scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}}},
            {"name": "v1", "served": false, "storage": false, "deprecated": true, "deprecationWarning": "use v2",
             "schema": {"openAPIV3Schema": {"type": "object"}}},
        ]);
        let schema = schema(|spec| {
            spec["versions"] = full.clone();
            spec["conversion"] = json!({"strategy": "None"});
        });
        let made = made(&schema).unwrap();
        assert_eq!(
            (&made["spec"]["versions"], &made["spec"]["conversion"]),
            (&full, &json!({"strategy": "None"}))
        );
    }

    #[test]
    fn a_schema_that_is_not_what_its_name_says_is_refused() {
        let config = json!({"url": "https://p.example/convert"});
        let webhook = json!({"strategy": "Webhook", "webhook": {"clientConfig": config}});
        let cases = [
            (schema(|spec| spec["group"] = "mortise.dev".into()), "describes rockets.mortise.dev"),
            (schema(|spec| spec["versions"][0]["served"] = false.into()), "has no served version"),
            (
                schema(|spec| spec["conversion"] = webhook.clone()),
                "is converted by \"Webhook\"; only the strategy `None` is accepted",
            ),
            (
                schema(|spec| spec["versions"][0]["schema"]["x"] = "x".repeat(MAX_BYTES).into()),
                "is larger than 1024 KiB",
            ),
        ];
        for (schema, expected) in cases {
            let error = made(&schema).unwrap_err();
            assert!(error.ends_with(expected), "{error}");
        }
    }

    #[test]
    fn names_that_somebody_has_added_go_and_the_owner_stays_as_it_is() {
        let former: Definition = serde_json::from_value(json!({"metadata": {"ownerReferences": [
            {"apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceBinding", "name": "rockets", "uid": "u1"},
        ]}})).unwrap();
        let made = manifest(&schema(|_| ()), &binding(), Some(&former)).unwrap();
        assert_eq!(
            made.absent,
            ["spec.names.shortNames", "spec.names.categories", "spec.conversion.webhook"]
        );
        let object: Value = serde_json::from_str(&made.object).unwrap();
        assert_eq!(object["metadata"]["ownerReferences"][0].get("controller"), None);
    }

    #[test]
    fn only_the_binding_of_name_and_uid_owns_a_definition() {
        let owner = |api: &str, kind: &str, name: &str, uid: &str| {
            let owners = json!([{"apiVersion": api, "kind": kind, "name": name, "uid": uid}]);
            let definition = json!({"metadata": {"ownerReferences": owners}});
            serde_json::from_value::<Definition>(definition).unwrap().owner_of(&binding()).is_some()
        };
        let (api, kind) = ("kube-bind.io/v1alpha2", "APIServiceBinding");
        assert!(owner(api, kind, "rockets", "u1"));
        assert!(owner("kube-bind.io/v1alpha1", kind, "rockets", "u1"));
        assert!(!owner(api, kind, "rockets", "u2"));
        assert!(!owner(api, kind, "moons", "u1"));
        assert!(!owner(api, "APIServiceBindingBundle", "rockets", "u1"));
        assert!(!owner("example.com/v1", kind, "rockets", "u1"));
        let owner =
            |name: &str| json!({"apiVersion": api, "kind": kind, "name": name, "uid": "u1"});
        let owners = [owner("moons"), owner("rockets")];
        let definition = json!({"metadata": {"ownerReferences": owners}});
        let definition: Definition = serde_json::from_value(definition).unwrap();
        assert_eq!(definition.owner_of(&binding()).unwrap().name, "rockets");
    }
}
