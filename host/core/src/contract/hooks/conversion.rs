//! The parts of an object that a component gets for a conversion, and the check of its answer.
//!
//! Objects are split into fields, not parsed as a whole, since lists may hold many objects.

use std::{collections::BTreeMap, ops::Range};

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

use super::{Converted, Hooks};
use crate::contract::{
    Kind, api_version,
    bounds::{CONVERTED_BYTES, CONVERTED_OBJECTS, MAX_LEVELS, is_deeper_than, text::quoted},
    display_kind_in_any_version,
};

/// The fields of a JSON object, as raw text.
type Fields<'a> = BTreeMap<String, &'a RawValue>;

/// The version that objects are converted to.
#[derive(Debug)]
pub struct Target<'a> {
    of: &'a Converted,
    version: &'a str,
}

/// An object to convert.
#[derive(Debug)]
pub struct Given<'a> {
    fields: Fields<'a>,
    metadata: Fields<'a>,
    version: String,
    name: String,
}

/// The fields that hold an object's kind.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TypeMeta {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
}

/// The fields of metadata that a component may change.
pub(super) const OF_COMPONENT: [&str; 2] = ["labels", "annotations"];
/// The fields of metadata that the answer must not change.
const IDENTITY: [&str; 3] = ["name", "namespace", "uid"];

// === impl Target ===

impl<'a> Target<'a> {
    /// Returns the target for a kind and a version, which is given as the apiVersion of the wanted
    /// objects.
    ///
    /// # Errors
    ///
    /// Fails if the component does not convert the kind, or not to this version.
    pub fn new(hooks: &'a Hooks, kind: &str, to: &'a str) -> Result<Self, String> {
        let (group, version) = to.split_once('/').unwrap_or(("", to));
        let Some(of) = hooks.converted(group, kind) else {
            let all = hooks.conversions.iter().map(Converted::display);
            let all: Vec<String> = all.collect();
            return Err(format!(
                "{} is not converted here: there are {}",
                quoted(&display_kind_in_any_version(group, kind)),
                if all.is_empty() { "none".to_owned() } else { all.join(", ") }
            ));
        };
        let target = Self { of, version };
        target.known(version)?;
        Ok(target)
    }

    /// Returns the kind that is converted.
    pub fn kind(&self) -> (&str, &str) {
        (&self.of.group, &self.of.kind)
    }

    /// Returns the version that is wanted.
    pub fn version(&self) -> &str {
        self.version
    }

    fn known(&self, version: &str) -> Result<(), String> {
        if self.of.versions.iter().any(|known| known == version) {
            return Ok(());
        }
        Err(format!(
            "version {} of {} is unknown: there are {}",
            quoted(version),
            self.of.display(),
            self.of.versions.join(", ")
        ))
    }

    fn api_version(&self) -> String {
        let Converted { group, kind, .. } = self.of;
        let (group, kind) = (group.clone(), kind.clone());
        api_version(&Kind::home(group, self.version, kind))
    }
}

/// Splits objects of these sizes into batches, one for each call.
pub fn batches(sizes: &[usize]) -> Vec<Range<usize>> {
    let mut batches = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (at, size) in sizes.iter().enumerate() {
        let is_full = at - start == CONVERTED_OBJECTS || bytes + size > CONVERTED_BYTES;
        if at > start && is_full {
            batches.push(start..at);
            (start, bytes) = (at, 0);
        }
        bytes += size;
    }
    if start < sizes.len() {
        batches.push(start..sizes.len());
    }
    batches
}

// === impl Given ===

impl<'a> Given<'a> {
    /// Splits an object into its fields.
    ///
    /// # Errors
    ///
    /// Fails if the text is not an object of the target's kind in one of its versions.
    pub fn parse(target: &Target<'_>, text: &'a str) -> Result<Self, String> {
        let (group, kind) = target.kind();
        let no_object = |error| format!("an object cannot be read: {error}");
        let fields: Fields<'a> = serde_json::from_str(text).map_err(no_object)?;
        let of: TypeMeta = serde_json::from_str(text).map_err(no_object)?;
        let metadata = metadata_of(&fields)?;
        let name = name_of(&metadata);
        let version = match of.api_version.split_once('/') {
            Some((of_group, version)) if (of_group, of.kind.as_str()) == (group, kind) => version,
            _ => {
                return Err(format!(
                    "an object of apiVersion {} and kind {}: only {} is accepted here",
                    quoted(&of.api_version),
                    quoted(&of.kind),
                    target.of.display()
                ));
            }
        };
        target.known(version).map_err(|error| format!("`{name}`: {error}"))?;
        // Parsers of components refuse it, or end with their call.
        if version != target.version && is_deeper_than(text.as_bytes(), MAX_LEVELS) {
            return Err(format!("`{name}`: an object has at most {MAX_LEVELS} levels here"));
        }
        Ok(Self { version: version.to_owned(), fields, metadata, name })
    }

    /// Returns whether the object is in this version already.
    pub fn is_in(&self, version: &str) -> bool {
        self.version == version
    }

    /// Returns the object as a component sees it: without the managed fields.
    pub fn shown(&self) -> String {
        let mut metadata = self.metadata.clone();
        metadata.remove("managedFields");
        written(&self.fields, &metadata)
    }

    /// Returns the converted object: the component's answer with the original metadata, but with
    /// the answer's labels and annotations.
    ///
    /// # Errors
    ///
    /// Fails if the answer is not an object of the target version, or has another identity.
    pub fn converted(&self, target: &Target<'_>, answer: &str) -> Result<String, String> {
        let wrong = |problem: String| {
            format!("the answer for {} `{}` is not accepted: {problem}", target.of.kind, self.name)
        };
        self.merged(target, answer).map_err(wrong)
    }

    fn merged(&self, target: &Target<'_>, answer: &str) -> Result<String, String> {
        let no_object = |error| format!("it is no object: {error}");
        let fields: Fields<'_> = serde_json::from_str(answer).map_err(no_object)?;
        let of: TypeMeta = serde_json::from_str(answer).map_err(no_object)?;
        let wanted = target.api_version();
        if of.api_version != wanted || of.kind != target.of.kind {
            return Err(format!(
                "it has apiVersion {} and kind {}, wanted are `{wanted}` and `{}`",
                quoted(&of.api_version),
                quoted(&of.kind),
                target.of.kind
            ));
        }
        let answered = metadata_of(&fields)?;
        for key in IDENTITY {
            if text_of(&answered, key) != text_of(&self.metadata, key) {
                return Err(format!("its metadata.{key} is another one"));
            }
        }
        let mut metadata = self.metadata.clone();
        for key in OF_COMPONENT {
            match answered.get(key) {
                Some(value) if is_map_of_texts(value) => {
                    metadata.insert(key.to_owned(), value);
                }
                Some(_) => return Err(format!("its metadata.{key} must be a map of texts")),
                None => {
                    metadata.remove(key);
                }
            }
        }
        Ok(written(&fields, &metadata))
    }
}

/// Returns an object as a hook sees it: without the managed fields.
///
/// # Errors
///
/// Fails if the text is not an object.
pub fn shown(text: &str) -> Result<String, String> {
    let no_object = |error| format!("an object cannot be read: {error}");
    let fields: Fields<'_> = serde_json::from_str(text).map_err(no_object)?;
    let mut metadata = metadata_of(&fields)?;
    metadata.remove("managedFields");
    Ok(written(&fields, &metadata))
}

/// Returns the fields of an object's metadata; none for a partial object without metadata.
fn metadata_of<'a>(fields: &Fields<'a>) -> Result<Fields<'a>, String> {
    let Some(metadata) = fields.get("metadata") else { return Ok(Fields::new()) };
    serde_json::from_str::<Option<Fields<'a>>>(metadata.get())
        .map(Option::unwrap_or_default)
        .map_err(|error| format!("its metadata is no object: {error}"))
}

/// Returns a text in a field; "" if there is none.
fn text_of(fields: &Fields<'_>, key: &str) -> String {
    let text = fields.get(key).and_then(|raw| serde_json::from_str(raw.get()).ok());
    text.unwrap_or_default()
}

fn name_of(metadata: &Fields<'_>) -> String {
    match (text_of(metadata, "namespace"), text_of(metadata, "name")) {
        (namespace, name) if namespace.is_empty() => name,
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

fn is_map_of_texts(value: &RawValue) -> bool {
    serde_json::from_str::<Option<BTreeMap<String, String>>>(value.get()).is_ok()
}

/// Writes an object with this metadata in place of its own.
fn written(fields: &Fields<'_>, metadata: &Fields<'_>) -> String {
    let metadata = to_raw_value(metadata).expect("fields of an object can be written");
    let mut fields = fields.clone();
    fields.insert("metadata".to_owned(), &metadata);
    serde_json::to_string(&fields).expect("fields of an object can be written")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn hooks() -> Hooks {
        let versions = vec!["v1".to_owned(), "v2".to_owned()];
        let of = Converted { group: "example.com".into(), kind: "Rule".into(), versions };
        Hooks { conversions: vec![of], admission: Vec::new() }
    }

    fn rule(version: &str) -> Value {
        json!({
            "apiVersion": format!("example.com/{version}"), "kind": "Rule",
            "metadata": {
                "name": "a", "namespace": "shop", "uid": "1", "generation": 3,
                "labels": {"l": "1"}, "managedFields": [{"manager": "kubectl"}],
            },
            "spec": {"n": 1.0}, "status": null,
        })
    }

    fn converted(answer: &Value) -> Result<Value, String> {
        let hooks = hooks();
        let target = Target::new(&hooks, "Rule", "example.com/v2").unwrap();
        let text = rule("v1").to_string();
        let given = Given::parse(&target, &text).unwrap();
        let answer = given.converted(&target, &answer.to_string())?;
        Ok(serde_json::from_str(&answer).unwrap())
    }

    #[test]
    fn a_component_sees_an_object_without_its_managed_fields() {
        let hooks = hooks();
        let target = Target::new(&hooks, "Rule", "example.com/v2").unwrap();
        let text = rule("v1").to_string();
        let shown = Given::parse(&target, &text).unwrap().shown();
        let mut expected = rule("v1");
        expected["metadata"].as_object_mut().unwrap().remove("managedFields");
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), expected);
    }

    #[test]
    fn metadata_stays_but_for_labels_and_annotations() {
        let mut answer = rule("v2");
        answer["spec"] = json!({"m": 2});
        answer["metadata"] = json!({
            "name": "a", "namespace": "shop", "uid": "1", "generation": 9,
            "annotations": {"b": "2"}, "finalizers": ["evil"],
        });
        let mut expected = rule("v2");
        expected["spec"] = json!({"m": 2});
        let metadata = expected["metadata"].as_object_mut().unwrap();
        metadata.remove("labels");
        metadata.insert("annotations".into(), json!({"b": "2"}));
        assert_eq!(converted(&answer).unwrap(), expected);
    }

    #[test]
    fn an_answer_that_breaks_a_rule_is_no_object() {
        let with = |pointer: &str, value: Value| {
            let mut answer = rule("v2");
            *answer.pointer_mut(pointer).unwrap() = value;
            answer
        };
        let cases = [
            (rule("v1"), "wanted are `example.com/v2` and `Rule`"),
            (with("/kind", json!("Pod")), "kind `Pod`"),
            (with("/metadata/name", json!("b")), "metadata.name is another one"),
            (with("/metadata/uid", json!("2")), "metadata.uid is another one"),
            (with("/metadata/namespace", json!(null)), "metadata.namespace is another one"),
            (with("/metadata/labels", json!({"a": 1})), "metadata.labels must be a map"),
            (with("/metadata", json!([])), "its metadata is no object"),
            (json!([]), "it is no object"),
        ];
        for (answer, expected) in cases {
            let message = converted(&answer).unwrap_err();
            assert!(message.contains("Rule `shop/a`"), "{message}");
            assert!(message.contains(expected), "{expected}: {message}");
        }
    }

    #[test]
    fn objects_may_be_partial() {
        let hooks = hooks();
        let target = Target::new(&hooks, "Rule", "example.com/v2").unwrap();
        let text = json!({"apiVersion": "example.com/v1", "kind": "Rule"}).to_string();
        let given = Given::parse(&target, &text).unwrap();
        let answer = json!({"apiVersion": "example.com/v2", "kind": "Rule", "metadata": {}});
        given.converted(&target, &answer.to_string()).unwrap();
    }

    #[test]
    fn other_kinds_and_versions_are_refused_by_name() {
        let hooks = hooks();
        for (kind, to, expected) in [
            ("Pod", "example.com/v1", "`Pod example.com/*` is not converted here"),
            ("Rule", "v1", "there are Rule example.com/*"),
            (
                "Rule",
                "example.com/v3",
                "version `v3` of Rule example.com/* is unknown: there are v1, v2",
            ),
        ] {
            let message = Target::new(&hooks, kind, to).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
        let target = Target::new(&hooks, "Rule", "example.com/v2").unwrap();
        let pod = json!({"apiVersion": "v1", "kind": "Pod"});
        let deep = |levels: usize, version: &str| {
            let mut rule = rule(version);
            // The rule itself and its spec are two levels.
            rule["spec"] = (0..levels - 1).fold(json!(0), |inner, _| json!([inner]));
            rule
        };
        let parse = |object: Value| Given::parse(&target, &object.to_string()).map(|_| ());
        assert_eq!(parse(deep(MAX_LEVELS, "v1")), Ok(()));
        assert_eq!(parse(deep(1_000, "v2")), Ok(()), "it stays as it is");
        for (object, expected) in [
            (deep(1_000, "v1"), "`shop/a`: an object has at most 127 levels here"),
            (pod, "an object of apiVersion `v1` and kind `Pod`"),
            (rule("v3"), "`shop/a`: version `v3` of Rule example.com/* is unknown"),
            (json!("a"), "an object cannot be read"),
        ] {
            let message = Given::parse(&target, &object.to_string()).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
    }

    proptest! {
        #[test]
        fn batches_hold_all_objects_in_order_within_the_bounds(
            sizes in prop::collection::vec(0..2 * CONVERTED_BYTES, 0..500)
        ) {
            let mut next = 0;
            for batch in batches(&sizes) {
                prop_assert_eq!(batch.start, next);
                prop_assert!(!batch.is_empty() && batch.len() <= CONVERTED_OBJECTS);
                let bytes: usize = sizes[batch.clone()].iter().sum();
                prop_assert!(batch.len() == 1 || bytes <= CONVERTED_BYTES);
                next = batch.end;
            }
            prop_assert_eq!(next, sizes.len());
        }
    }
}
