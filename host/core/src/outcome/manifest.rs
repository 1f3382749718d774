//! Checks the manifests of `apply` and `patch`.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::{Check, Class, Fault, Invalid, Limits, Manifest};
use crate::{
    applied_fields::sent_fields,
    contract::{self, Kind, Mode, ObjectRef, Outcome, Verbs, bounds::FIELDS, display_ref},
    grant::{Undeclared, Writable},
    path::{Path, Segment},
};

/// The most steps of looking in one manifest for the fields that it declares absent.
const MAX_ABSENT_STEPS: usize = 1 << 21;

/// The list of an outcome that holds a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Apply,
    Patch,
}

/// A parsed manifest with the reference to its object.
pub(super) struct Head {
    pub(super) to: ObjectRef,
    pub(super) object: Value,
}

/// The heads of all manifests.
pub(super) struct Heads {
    pub(super) apply: Vec<Head>,
    pub(super) patch: Vec<Head>,
}

/// Parses the manifests and the references to their objects.
pub(super) fn heads(outcome: &Outcome, limits: &Limits) -> Result<Heads, Invalid> {
    let read = |list: &'static str, manifests: &[contract::Manifest]| {
        let numbered = manifests.iter().enumerate();
        numbered
            .map(|(index, manifest)| {
                head(manifest, limits).map_err(|(name, fault)| Invalid {
                    place: format!("{list}[{index}].object"),
                    object: name,
                    kind: None,
                    fault,
                })
            })
            .collect::<Result<Vec<_>, _>>()
    };
    Ok(Heads { apply: read("apply", &outcome.apply)?, patch: read("patch", &outcome.patch)? })
}

fn head(manifest: &contract::Manifest, limits: &Limits) -> Result<Head, (Option<String>, Fault)> {
    let text = &manifest.object;
    if text.len() > limits.object {
        return Err((name_of(text), Fault::TooLarge { bytes: text.len(), limit: limits.object }));
    }
    let object: Value =
        serde_json::from_str(text).map_err(|error| (None, Fault::NotJson(error.to_string())))?;
    let mut to = reference(&object).map_err(|fault| (name_of(text), fault))?;
    Arc::make_mut(&mut to.kind).cluster = Arc::clone(&manifest.cluster);
    Ok(Head { to, object })
}

/// Parses the reference to an object of the host's cluster from its JSON: kind, namespace and name.
pub fn reference(object: &Value) -> Result<ObjectRef, Fault> {
    if !object.is_object() {
        return Err(Fault::malformed("", "a Kubernetes object is a JSON object"));
    }
    let text = |pointer: &str, field: &str| match object.pointer(pointer) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.as_str())),
        Some(_) => Err(Fault::malformed(field, "a text that is not empty")),
    };
    let required = |pointer: &str, field: &str| {
        text(pointer, field)?.ok_or_else(|| Fault::malformed(field, "is required"))
    };
    let kind = required("/kind", "kind")?;
    let kind = parse_kind(required("/apiVersion", "apiVersion")?, kind)
        .ok_or_else(|| Fault::malformed("apiVersion", "`<version>` or `<group>/<version>`"))?;
    Ok(ObjectRef {
        kind: kind.into(),
        namespace: text("/metadata/namespace", "metadata.namespace")?.map(str::to_owned),
        name: required("/metadata/name", "metadata.name")?.to_owned(),
    })
}

fn parse_kind(api_version: &str, kind: &str) -> Option<Kind> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let right = !version.is_empty()
        && !version.contains('/')
        && (api_version == version || !group.is_empty());
    right.then(|| Kind::home(group, version, kind))
}

/// The identifying fields of a guest's object, parsed without the rest: each may be missing or
/// wrong.
#[derive(Deserialize)]
struct Name {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
struct Metadata {
    namespace: Option<String>,
    name: Option<String>,
}

fn parse_name(text: &str) -> Option<(Kind, Metadata)> {
    let name: Name = serde_json::from_str(text).ok()?;
    Some((parse_kind(&name.api_version, &name.kind)?, name.metadata))
}

pub(super) fn kind_of(text: &str) -> Option<Kind> {
    parse_name(text).map(|(kind, _)| kind)
}

/// Returns the object's name for messages.
pub(super) fn name_of(text: &str) -> Option<String> {
    let (kind, metadata) = parse_name(text)?;
    let name = metadata.name.unwrap_or_else(|| "(no name)".to_owned());
    Some(display_ref(&ObjectRef { kind: kind.into(), namespace: metadata.namespace, name }))
}

/// Inserts the uid, if it is known and the object has none. Returns whether it was inserted.
fn pin(object: &mut Value, uid: impl FnOnce() -> Option<String>) -> bool {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    let Some(metadata) = metadata.filter(|metadata| !metadata.contains_key("uid")) else {
        return false;
    };
    let Some(uid) = uid() else { return false };
    metadata.insert("uid".to_owned(), Value::String(uid));
    true
}

impl Check<'_> {
    pub(super) fn manifests(
        &self,
        heads: Vec<Head>,
        manifests: &[contract::Manifest],
        part: Part,
    ) -> Result<Vec<Manifest>, Invalid> {
        let list = if part == Part::Apply { "apply" } else { "patch" };
        let pairs = heads.into_iter().zip(manifests).enumerate();
        pairs
            .map(|(index, (head, manifest))| {
                self.manifest(head, manifest, part, &format!("{list}[{index}]"))
            })
            .collect()
    }

    fn manifest(
        &self,
        head: Head,
        manifest: &contract::Manifest,
        part: Part,
        place: &str,
    ) -> Result<Manifest, Invalid> {
        let Head { to, mut object } = head;
        self.check_reference(&to, &format!("{place}.object.metadata"))?;
        let refuse = |fault: Fault| fault.on(format!("{place}.object"), &to);
        let create_only = manifest.mode == Mode::Create;
        if part == Part::Patch && create_only {
            return Err(Fault::refused("mode", "a patch never makes the object").on(place, &to));
        }
        let verbs = needed(part, create_only);
        let writable =
            self.against.grant.may_write(verbs, &to).map_err(|denied| refuse(denied.into()))?;
        check_fields(&object, part, verbs, &writable).map_err(refuse)?;
        let made_owners = self.owners(&to, &object, part).map_err(refuse)?;
        let (leave, absent) = self
            .paths(manifest, part, &object, &to, &writable)
            .map_err(|(list, fault)| fault.on(format!("{place}.{list}"), &to))?;
        let within = match part {
            Part::Apply if verbs_hold(&writable, verbs, &object) => None,
            Part::Apply => {
                return Err(refuse(Fault::malformed(
                    "",
                    format!("lies outside of what is declared; {}", writable.accepted()),
                )));
            }
            Part::Patch => (!writable.unconditional(Verbs::UPDATE)).then_some(writable),
        };
        let pinned =
            part == Part::Apply && !create_only && pin(&mut object, || (self.against.read)(&to));
        Ok(Manifest {
            class: Class::of(&to.kind),
            to,
            object,
            create_only,
            pinned,
            leave,
            absent,
            made_owners,
            within,
        })
    }

    /// Parses `leave` and `absent`.
    #[expect(clippy::type_complexity, reason = "two lists, or which of them is at fault")]
    fn paths(
        &self,
        manifest: &contract::Manifest,
        part: Part,
        object: &Value,
        to: &ObjectRef,
        writable: &Writable,
    ) -> Result<(Vec<Path>, Vec<Path>), (&'static str, Fault)> {
        let leave =
            parse_paths(&manifest.leave, writable, part).map_err(|fault| ("leave", fault))?;
        let absent =
            parse_paths(&manifest.absent, writable, part).map_err(|fault| ("absent", fault))?;
        for (list, paths) in [("leave", &leave), ("absent", &absent)] {
            let mut compared = paths.iter().map(|path| self.compares_no_credential(&to.kind, path));
            compared.try_for_each(|compared| compared.map_err(|fault| (list, fault)))?;
        }
        if part == Part::Patch
            && let Some(path) = leave.first()
        {
            return Err((
                "leave",
                Fault::refused(path.to_string(), "a patch never makes the object"),
            ));
        }
        if let Some(path) = absent.first() {
            if manifest.mode == Mode::Create {
                return Err((
                    "absent",
                    Fault::refused(
                        path.to_string(),
                        "with mode `create` an object that exists is left alone",
                    ),
                ));
            }
            self.against
                .grant
                .may_write(Verbs::UPDATE, to)
                .map_err(|denied| ("absent", denied.into()))?;
        }
        let mut steps = MAX_ABSENT_STEPS;
        if let Some(path) = absent.iter().find(|path| path.finds(object, &mut steps)) {
            let why =
                if steps > 0 { "the manifest holds it" } else { "too many fields to look for" };
            return Err(("absent", Fault::refused(path.to_string(), why)));
        }
        Ok((leave, absent))
    }
}

fn needed(part: Part, create_only: bool) -> Verbs {
    match (part, create_only) {
        (Part::Patch, _) => Verbs::UPDATE,
        (Part::Apply, true) => Verbs::CREATE,
        (Part::Apply, false) => Verbs::CREATE | Verbs::UPDATE,
    }
}

fn each(verbs: Verbs) -> impl Iterator<Item = Verbs> {
    [Verbs::CREATE, Verbs::UPDATE].into_iter().filter(move |verb| verbs.contains(*verb))
}

fn verbs_hold(writable: &Writable, verbs: Verbs, object: &Value) -> bool {
    each(verbs).all(|verb| writable.holds(verb, object))
}

/// The fields that are refused in a manifest: JSON pointer, field, and the place where they belong.
const REFUSED: [(&str, &str, &str); 5] = [
    (
        "/status",
        "status",
        "a status is written by `status` of the outcome, of the reconciled object only",
    ),
    (
        "/metadata/finalizers",
        "metadata.finalizers",
        "finalizers are written by `finalizers` of the outcome, of the reconciled object only",
    ),
    ("/metadata/managedFields", "metadata.managedFields", "the API server writes it"),
    (
        "/metadata/generateName",
        "metadata.generateName",
        "an object is named by the processor, so that a crash does not make a second one",
    ),
    (
        "/metadata/deletionTimestamp",
        "metadata.deletionTimestamp",
        "objects are deleted by `delete` of the outcome",
    ),
];

fn check_fields(
    object: &Value,
    part: Part,
    verbs: Verbs,
    writable: &Writable,
) -> Result<(), Fault> {
    if let Some((_, field, reason)) =
        REFUSED.iter().find(|(pointer, _, _)| object.pointer(pointer).is_some())
    {
        return Err(Fault::refused(*field, *reason));
    }
    if part == Part::Patch && object.pointer("/metadata/ownerReferences").is_some() {
        return Err(Fault::refused(
            "metadata.ownerReferences",
            "an object of others is not given an owner",
        ));
    }
    for key in ["uid", "resourceVersion"] {
        if object
            .pointer(&format!("/metadata/{key}"))
            .is_some_and(|held| held.as_str().is_none_or(str::is_empty))
        {
            return Err(Fault::malformed(format!("metadata.{key}"), "a text that is not empty"));
        }
    }
    if each(verbs).all(|verb| writable.is_unlimited(verb)) {
        return Ok(());
    }
    let sent = sent_fields(object);
    if sent.as_object().is_some_and(serde_json::Map::is_empty) {
        return Ok(());
    }
    match each(verbs).find_map(|verb| writable.first_undeclared(verb, &sent)) {
        Some(Undeclared::Field(field)) => {
            Err(Fault::FieldNotDeclared { field, accepted: writable.accepted_fields() })
        }
        Some(Undeclared::NotCompared(field)) => Err(Fault::refused(
            field,
            "the object has too many fields to be compared with all paths that are declared for it",
        )),
        None => Ok(()),
    }
}

fn parse_paths(texts: &[String], writable: &Writable, part: Part) -> Result<Vec<Path>, Fault> {
    if texts.len() > FIELDS {
        return Err(Fault::TooMany { count: texts.len(), limit: FIELDS });
    }
    texts.iter().map(|text| parse_path(text, writable, part)).collect()
}

fn parse_path(text: &str, writable: &Writable, part: Part) -> Result<Path, Fault> {
    let path: Path = text
        .parse()
        .map_err(|error: crate::path::Invalid| Fault::malformed(text, error.to_string()))?;
    let keys: Vec<&str> = path
        .segments()
        .iter()
        .map_while(|segment| if let Segment::Key(key) = segment { Some(&**key) } else { None })
        .collect();
    let refused = match keys.as_slice() {
        ["apiVersion" | "kind" | "metadata"]
        | ["metadata", "name" | "namespace" | "uid" | "resourceVersion" | "managedFields", ..] => {
            "it names the object"
        }
        ["status", ..] => "a status is written by `status` of the outcome",
        ["metadata", "finalizers", ..] => "finalizers are written by `finalizers` of the outcome",
        ["metadata", "ownerReferences", ..] if part == Part::Patch => {
            "the owners of an object of others are left alone"
        }
        _ => "",
    };
    if !refused.is_empty() {
        return Err(Fault::refused(text, refused));
    }
    if !writable.allows(&path) {
        return Err(Fault::FieldNotDeclared {
            field: text.to_owned(),
            accepted: writable.accepted_fields(),
        });
    }
    Ok(path)
}
