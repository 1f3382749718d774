//! The conversion from and to v1beta1.
//!
//! An object that was written in v1beta1 keeps its spec in an annotation, word for word, and has in
//! v2 what v2 can express of it. One that was written in v2 has no spec in v1beta1; it takes its
//! own along in an annotation, which is taken away again when it is written back.

use mortise_sdk::duration;
use serde_json::{Map, Value, json as value};

use super::{annotation_of, drop_empty, in_version, namespace_of, rule, set_annotation};
use crate::{
    annotation::{ORIGINAL_VERSION, V1BETA1, V1BETA1_SPEC, V2ALPHA1_RULES, V2ALPHA1_SPEC},
    api::v1beta1::{CorsPolicy, Spec, Status},
    json,
};

const NANOSECONDS_PER_SECOND: i64 = 1_000_000_000;

/// The states of the stored version, each with its code. SKIPPED has no state of its own.
const STATES: [(&str, &str); 4] =
    [("Ready", "OK"), ("Error", "ERROR"), ("Warning", "WARNING"), ("Deleting", "OK")];

/// Converts to the stored version.
pub(super) fn to_stored(object: &Value) -> Result<Value, String> {
    let spec = spec_of(object)?;
    let mut stored = in_version(object, super::V2ALPHA1);
    let is_v2 = annotation_of(object, ORIGINAL_VERSION).is_some_and(is_other);
    if let Some(members) = stored.as_object_mut() {
        members.remove("spec");
        members.remove("status");
    }
    if !is_v2 {
        keep(spec.as_ref(), object, &mut stored)?;
    }
    let carried = annotation_of(object, V2ALPHA1_SPEC).and_then(parsed);
    set_annotation(&mut stored, V2ALPHA1_SPEC, None)?;
    let converted = match spec {
        None => carried,
        Some(spec) => {
            let former = annotation_of(object, V2ALPHA1_RULES).filter(|_| is_v2);
            let mut converted = exposure(&spec, namespace_of(object))?;
            converted.extend(rules(&spec, former).map(|rules| ("rules".to_owned(), rules)));
            Some(Value::Object(converted))
        }
    };
    let status = object.get("status").and_then(stored_status);
    let members = stored.as_object_mut().ok_or("it must be an object")?;
    members.extend(converted.map(|spec| ("spec".to_owned(), spec)));
    members.extend(status.map(|status| ("status".to_owned(), status)));
    Ok(stored)
}

/// Returns the spec of an object in v1beta1; `None` if nothing is in it.
fn spec_of(object: &Value) -> Result<Option<Spec>, String> {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let spec = json::read::<Option<Spec>>(spec).map_err(|error| format!("spec: {error}"))?;
    Ok(spec.filter(|spec| *spec != Spec::default()))
}

/// Returns whether an object was written in another version than v1beta1.
fn is_other(version: &str) -> bool {
    matches!(version, super::V2 | super::V2ALPHA1)
}

/// Keeps the spec in an annotation. The annotation of a spec that is the same stays word for word,
/// and so does that of an object from which the spec is missing.
fn keep(spec: Option<&Spec>, object: &Value, stored: &mut Value) -> Result<(), String> {
    let is_kept = match (annotation_of(object, V1BETA1_SPEC), spec) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(_), Some(spec)) => annotated(object).as_ref() == Some(spec),
    };
    if !is_kept {
        let text = text_of(spec.unwrap_or(&Spec::default()))?;
        set_annotation(stored, V1BETA1_SPEC, Some(&text))?;
    }
    set_annotation(stored, ORIGINAL_VERSION, Some(V1BETA1))
}

/// Returns a spec as the original writes it: its encoder escapes some characters.
fn text_of(spec: &Spec) -> Result<String, String> {
    let text = serde_json::to_string(spec).map_err(|error| error.to_string())?;
    let escapes = [
        ('<', "\\u003c"),
        ('>', "\\u003e"),
        ('&', "\\u0026"),
        ('\u{2028}', "\\u2028"),
        ('\u{2029}', "\\u2029"),
    ];
    Ok(escapes.into_iter().fold(text, |text, (character, escape)| text.replace(character, escape)))
}

/// Returns the spec in v1beta1 that an object carries in its annotation, if it can be read.
pub(super) fn annotated(object: &Value) -> Option<Spec> {
    json::parse(annotation_of(object, V1BETA1_SPEC)?).ok()
}

fn parsed(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok().filter(Value::is_object)
}

/// Returns all members of a spec but its rules.
pub(super) fn exposure(spec: &Spec, namespace: &str) -> Result<Map<String, Value>, String> {
    let gateway = spec.gateway.as_deref();
    let gateway = gateway.and_then(|gateway| super::gateway::translate(gateway, namespace));
    let mut exposure = value!({
        "gateway": gateway,
        "service": spec.service,
        "timeout": spec.timeout,
        "hosts": spec.host.as_ref().map(|host| [host]),
        "corsPolicy": spec.cors_policy.as_ref().map(cors_policy).transpose()?,
    });
    drop_empty(&mut exposure);
    Ok(match exposure {
        Value::Object(members) => members,
        _ => Map::new(),
    })
}

fn cors_policy(policy: &CorsPolicy) -> Result<Value, String> {
    let max_age = policy.max_age.as_deref().map(seconds).transpose()?;
    Ok(value!({
        "allowHeaders": policy.allow_headers,
        "allowMethods": policy.allow_methods,
        "allowOrigins": policy.allow_origins,
        "allowCredentials": policy.allow_credentials,
        "exposeHeaders": policy.expose_headers,
        "maxAge": max_age,
    }))
}

/// Returns the whole seconds of a duration.
fn seconds(text: &str) -> Result<i64, String> {
    let nanoseconds =
        duration::parse(text).map_err(|error| format!("spec.corsPolicy.maxAge: {error}"))?;
    Ok(nanoseconds / NANOSECONDS_PER_SECOND)
}

/// Returns the rules in v2: those of an annotation if it has some, else those that are converted.
fn rules(spec: &Spec, former: Option<&str>) -> Option<Value> {
    let converted = rule::convert(spec.rules())?;
    let former = former.and_then(|text| serde_json::from_str(text).ok()).filter(Value::is_array);
    former.or_else(|| (!converted.is_empty()).then(|| converted.into()))
}

/// Converts from the stored version.
pub(super) fn from_stored(stored: &Value) -> Result<Value, String> {
    let mut object = in_version(stored, V1BETA1);
    let is_v1beta1 = annotation_of(stored, ORIGINAL_VERSION) == Some(V1BETA1);
    let spec = annotated(stored).filter(|_| is_v1beta1);
    if let Some(members) = object.as_object_mut() {
        members.remove("status");
        match &spec {
            Some(spec) => {
                let mut spec = serde_json::to_value(spec).map_err(|error| error.to_string())?;
                drop_nulls(&mut spec);
                members.insert("spec".to_owned(), spec);
            }
            None => drop(members.remove("spec")),
        }
        let status = stored.get("status").and_then(status_of);
        members.extend(status.map(|status| ("status".to_owned(), status)));
    }
    if let (None, Some(spec)) = (spec, stored.get("spec").filter(|spec| spec.is_object())) {
        set_annotation(&mut object, V2ALPHA1_SPEC, Some(&spec.to_string()))?;
    }
    Ok(object)
}

/// Drops the fields of a spec that are null, which stand only in its annotation.
fn drop_nulls(spec: &mut Value) {
    if let Some(members) = spec.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
}

/// Converts a status to the stored version, if it says anything.
fn stored_status(status: &Value) -> Option<Value> {
    let status = json::read::<Status>(status).ok()?;
    let part = status.api_rule_status?;
    let code = if part.code == "SKIPPED" { "WARNING" } else { part.code.as_str() };
    let (state, _) = STATES.iter().find(|(_, other)| *other == code)?;
    let mut stored = value!({
        "state": state,
        "description": (!part.description.is_empty()).then_some(part.description),
        "lastProcessedTime": status.last_processed_time,
    });
    drop_nulls(&mut stored);
    Some(stored)
}

/// Converts a status from the stored version, if it says anything.
fn status_of(status: &Value) -> Option<Value> {
    let text = |key: &str| status.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let state = text("state")?;
    let code = STATES.iter().find(|(other, _)| *other == state).map(|(_, code)| *code);
    let mut part = value!({"code": code, "desc": text("description")});
    drop_nulls(&mut part);
    let mut status =
        value!({"APIRuleStatus": part, "lastProcessedTime": text("lastProcessedTime")});
    drop_nulls(&mut status);
    Some(status)
}
