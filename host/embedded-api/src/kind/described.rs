//! The resources of a CRD.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Form, Registry, Resource, Subresource,
    custom::{self, CustomVersion},
    table::READ_AND_CHANGE,
};
use crate::{
    builtin::edit::{at, items, set, text},
    schema::Schema,
    structural::CustomSchema,
};

/// The verbs of custom resources, in the order in which discovery lists them.
const VERBS: &[&str] =
    &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

impl Registry {
    /// Serves the versions of a CRD, instead of those that it described before: its served
    /// versions, if its names were accepted.
    pub(crate) fn set_crd(&mut self, crd: &Value) {
        let spec = &crd["spec"];
        let (group, plural) = (text(spec, "group"), text(&spec["names"], "plural"));
        let unchanged =
            self.versions_of(group, plural).next().and_then(|resource| match &resource.form {
                Form::Custom(version) if version.crd == text(&crd["metadata"], "name") => {
                    Some(version.stamp)
                }
                _ => None,
            });
        let before = unchanged.filter(|_| self.schemas_equal(crd));
        let stamp = before.unwrap_or_else(|| self.next_stamp());
        self.remove(group, plural);
        if !is_established(crd) {
            return;
        }
        for resource in resources(crd, stamp) {
            self.add(resource, false);
        }
    }

    /// Stops serving all versions of a CRD.
    pub(crate) fn remove_crd(&mut self, crd: &Value) {
        let spec = &crd["spec"];
        self.remove(text(spec, "group"), text(&spec["names"], "plural"));
    }

    /// Returns whether the CRD has the schemas with which its versions are served now.
    fn schemas_equal(&self, crd: &Value) -> bool {
        let spec = &crd["spec"];
        let (group, plural) = (text(spec, "group"), text(&spec["names"], "plural"));
        let storage = storage_version(spec).map_or("", |version| text(version, "name"));
        let served: Vec<_> =
            items(&spec["versions"]).iter().filter(|version| version["served"] == true).collect();
        served.len() == self.versions_of(group, plural).count()
            && served.iter().all(|version| {
                let found = self.find(group, text(version, "name"), plural);
                found.is_some_and(|resource| match &resource.form {
                    Form::Custom(custom) => {
                        resource.storage_version == storage
                            && custom.open_api == *at(version, &["schema", "openAPIV3Schema"])
                    }
                    Form::BuiltIn(_) | Form::Untyped => false,
                })
            })
    }
}

/// Returns whether the names of a CRD were accepted, so that it is served.
pub(crate) fn is_established(crd: &Value) -> bool {
    let conditions = items(at(crd, &["status", "conditions"]));
    conditions
        .iter()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

/// Returns the version in which objects are stored.
fn storage_version(spec: &Value) -> Option<&Value> {
    items(&spec["versions"]).iter().find(|version| version["storage"] == true)
}

fn resources(crd: &Value, stamp: u64) -> Vec<Resource> {
    let spec = &crd["spec"];
    let Some(storage) = storage_version(spec) else { return Vec::new() };
    let storage_schema = Arc::new(compile(spec, storage));
    let served = items(&spec["versions"]).iter().filter(|version| version["served"] == true);
    let resources = served.map(|version| {
        let same = version["schema"] == storage["schema"];
        let schema =
            if same { Arc::clone(&storage_schema) } else { Arc::new(compile(spec, version)) };
        let custom = CustomVersion {
            crd: text(&crd["metadata"], "name").to_owned(),
            schema,
            open_api: at(version, &["schema", "openAPIV3Schema"]).clone(),
            storage_schema: (!same).then(|| Arc::clone(&storage_schema)),
            columns: custom::columns(version),
            selectable: selectable(version),
            deprecation: custom::deprecation(crd, version),
            terminating: !at(crd, &["metadata", "deletionTimestamp"]).is_null(),
            stamp,
        };
        resource(spec, version, storage, custom)
    });
    resources.collect()
}

fn compile(spec: &Value, version: &Value) -> CustomSchema {
    if spec["preserveUnknownFields"] == true {
        let mut schema = at(version, &["schema", "openAPIV3Schema"]).clone();
        if !schema.is_object() {
            schema = json!({"type": "object"});
        }
        set(&mut schema, "x-kubernetes-preserve-unknown-fields", true);
        return CustomSchema::compile(&schema);
    }
    CustomSchema::compile(at(version, &["schema", "openAPIV3Schema"]))
}

fn selectable(version: &Value) -> Vec<String> {
    let paths = items(&version["selectableFields"]).iter().map(|field| text(field, "jsonPath"));
    paths.map(|path| path.trim_start_matches('.').to_owned()).collect()
}

fn resource(spec: &Value, version: &Value, storage: &Value, custom: CustomVersion) -> Resource {
    let names = &spec["names"];
    let name = |key: &str| text(names, key).to_owned();
    let list = |key: &str| {
        let texts = items(&names[key]).iter().filter_map(Value::as_str);
        texts.map(str::to_owned).collect::<Vec<_>>()
    };
    let scale = custom::scale(version);
    Resource {
        group: text(spec, "group").to_owned(),
        version: text(version, "name").to_owned(),
        plural: name("plural"),
        singular: name("singular"),
        kind: name("kind"),
        list_kind: name("listKind"),
        short_names: list("shortNames"),
        categories: list("categories"),
        namespaced: text(spec, "scope") == "Namespaced",
        storage_group: text(spec, "group").to_owned(),
        storage_version: text(storage, "name").to_owned(),
        verbs: VERBS,
        subresources: subresources(version, text(names, "kind"), scale.is_some()),
        scale,
        schema: Schema::custom(&custom.open_api, spec["preserveUnknownFields"] == true),
        form: Form::Custom(Arc::new(custom)),
        addresses: Arc::default(),
        webhooks: Arc::default(),
    }
}

fn subresources(version: &Value, kind: &str, scale: bool) -> Vec<Subresource> {
    let status = Subresource {
        name: "status".to_owned(),
        kind: kind.to_owned(),
        group_version: None,
        verbs: READ_AND_CHANGE,
    };
    let scale = scale.then(|| Subresource {
        name: "scale".to_owned(),
        kind: "Scale".to_owned(),
        group_version: Some(("autoscaling".to_owned(), "v1".to_owned())),
        verbs: READ_AND_CHANGE,
    });
    let has_status = at(version, &["subresources", "status"]).is_object();
    has_status.then_some(status).into_iter().chain(scale).collect()
}
