//! The scale of an object: its replicas, read and written through the subresource `scale`.

use serde_json::{Map, Value, json};

use super::{
    Call,
    decode::{Part, complaints},
    metadata::text,
    patch::{Mechanism, complain, live},
    write::{Live, Writer},
};
use crate::{
    Failure,
    answer::{Answer, Shown},
    field_error::{FieldError, FieldPath},
    kind::{Resource, Scale, ScaleSelector},
    managed_fields::BEFORE_FIRST_APPLY,
    name::{MetadataRules, NameRule, validate_metadata},
    request::{Body, Encoding, Verb, WriteOptions},
    selector::LabelSelector,
    status::Named,
    storage::metadata_mut,
};

pub(super) const SCALE: &str = "scale";

/// The replicas of a custom resource that has none yet, as a patch finds them.
const UNSET_REPLICAS: i64 = -2_147_483_648;

/// Reads or writes the scale of an object.
pub(super) fn perform(call: &mut Call<'_>, verb: Verb) -> Result<Answer, Failure> {
    let resource = call.resource.clone();
    let scale = resource.scale.as_ref().ok_or_else(Failure::no_such_resource)?;
    match verb {
        Verb::Get => {
            let live = live(call, &call.shared.state.read(), &call.place())?;
            if resource.is_custom() && at(&live.value, &scale.spec_replicas).is_none() {
                let path = scale.spec_replicas.join(".");
                let why = format!("the spec replicas field \".{path}\" does not exist");
                return Err(Failure::internal(&why));
            }
            Ok(answer(Shown::Value(live.value), scale))
        }
        Verb::Update => replace(call, scale),
        Verb::Patch => patch(call, scale),
        _ => Err(Failure::method_not_allowed()),
    }
}

fn replace(call: &mut Call<'_>, scale: &Scale) -> Result<Answer, Failure> {
    let options = WriteOptions::of(call.request, "UpdateOptions", None)?;
    let mut sent = call.decode_part(Part::SCALE, options.field_validation)?;
    call.fit(&mut sent, true)?;
    write(call, scale, &options, &sent)
}

fn patch(call: &mut Call<'_>, scale: &Scale) -> Result<Answer, Failure> {
    let mechanism = Mechanism::of(call)?;
    let is_apply = mechanism == Mechanism::Apply;
    let options = WriteOptions::of(call.request, "PatchOptions", Some(is_apply))?;
    let encoding = if is_apply { Encoding::Yaml } else { Encoding::Json };
    let Body { value: body, duplicates } = Body::read(&call.request.body, encoding)?;
    if is_apply {
        return apply(call, scale, &options, &body);
    }
    let shared = call.shared;
    let live = live(call, &shared.state.read(), &call.place())?.value;
    let mut before = scale_of(&live, scale);
    if call.resource.is_custom() && at(&live, &scale.spec_replicas).is_none() {
        set_at(&mut before, &["spec", "replicas"].map(str::to_owned), Value::from(UNSET_REPLICAS));
    }
    let mechanism = if mechanism == Mechanism::Strategic { Mechanism::Merge } else { mechanism };
    let (mut sent, unknown) = Part::SCALE.read(mechanism.change(&before, &body, call)?)?;
    let shown = |call: &Call<'_>| mechanism.shown(&before, &body, call);
    complain(call, shown, complaints(duplicates, unknown), options.field_validation)?;
    call.fit(&mut sent, true)?;
    write(call, scale, &options, &sent)
}

/// Writes the replicas of a scale to its object.
fn write(
    call: &mut Call<'_>,
    scale: &Scale,
    options: &WriteOptions,
    sent: &Value,
) -> Result<Answer, Failure> {
    let place = call.place();
    let mut state = call.shared.state.write();
    let live = live(call, &state, &place)?;
    let replicas = check(call, scale, sent)?;
    check_uid(call, sent, &live)?;
    let mut new = live.value.clone();
    // A scale of 0 counts as one without replicas: their owner loses them, and no other manager
    // gets them.
    let is_none = replicas == 0;
    if is_none {
        remove_at(&mut new, &scale.spec_replicas);
    } else {
        set_at(&mut new, &scale.spec_replicas, Value::from(replicas));
    }
    let was_none = at(&live.value, &scale.spec_replicas).and_then(Value::as_i64).unwrap_or(0) == 0;
    let writer = Writer::new(&mut state, call, options);
    if is_tracked(&live.value, scale, call.resource) && !(is_none && was_none) {
        new = writer.track(Some(&live.value), new, Some(SCALE));
    }
    set_at(&mut new, &scale.spec_replicas, Value::from(replicas));
    store(call, writer, scale, sent, &live, new)
}

/// Stores an object with changed replicas, if it has the version that the scale names, and answers
/// with its scale.
fn store(
    call: &mut Call<'_>,
    writer: Writer<'_>,
    scale: &Scale,
    sent: &Value,
    live: &Live,
    mut new: Value,
) -> Result<Answer, Failure> {
    let version = text(sent, "resourceVersion");
    if let Some(fields) = new.as_object_mut().filter(|_| !version.is_empty()) {
        metadata_mut(fields).insert("resourceVersion".to_owned(), Value::from(version));
    }
    let shown = writer.change(call, live, new)?;
    Ok(answer(shown, scale))
}

/// Fails if the scale of a built-in kind names a uid that is not that of the object.
fn check_uid(call: &Call<'_>, sent: &Value, live: &Live) -> Result<(), Failure> {
    let (uid, of_live) = (text(sent, "uid"), &live.image.head.uid);
    if call.resource.is_custom() || uid.is_empty() || uid == *of_live {
        return Ok(());
    }
    let why =
        format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {of_live}");
    let Resource { group, plural, .. } = &**call.resource;
    let scales = format!("{plural}/{SCALE}");
    Err(Failure::conflict(Named::new(group, &scales, &call.path.name), &why))
}

/// Applies a scale: its replicas are applied to the object.
fn apply(
    call: &mut Call<'_>,
    scale: &Scale,
    options: &WriteOptions,
    sent: &Value,
) -> Result<Answer, Failure> {
    let part = |key: &str| sent.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (part("apiVersion"), part("kind"));
    if api_version != "autoscaling/v1" || kind != "Scale" {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        return Err(Failure::bad_request(format!(
            "invalid object type: {group}/{version}, Kind={kind}"
        )));
    }
    if sent.pointer("/metadata/managedFields").is_some_and(|sent| !sent.is_null()) {
        return Err(Failure::bad_request("metadata.managedFields must be nil"));
    }
    let replicas = replicas_of(sent)?;
    let place = call.place();
    let mut state = call.shared.state.write();
    let live = live(call, &state, &place)?;
    let resource = call.resource;
    let metadata = json!({"name": call.path.name, "namespace": call.path.namespace});
    let mut applied =
        json!({"apiVersion": resource.api_version(), "kind": resource.kind, "metadata": metadata});
    set_at(&mut applied, &scale.spec_replicas, Value::from(replicas));
    let before = before_apply(&live.value, scale, resource)?;
    let writer = Writer::new(&mut state, call, options);
    let path = format!(".{}", scale.spec_replicas.join("."));
    let own = format!("using {}", resource.api_version());
    // The messages of conflicts name the fields of the scale.
    let in_words =
        |text: &str| text.replace(&path, ".spec.replicas").replace(&own, "using autoscaling/v1");
    let new = writer
        .apply(Some(&before), &applied, Some(SCALE))
        .map_err(|failure| failure.map_texts(in_words))?;
    let changes = at(&new, &scale.spec_replicas) != at(&live.value, &scale.spec_replicas);
    if resource.is_custom() && changes {
        return Err(unconverted(sent));
    }
    let mut fitted = sent.clone();
    if text(&fitted, "name").is_empty() {
        set_at(
            &mut fitted,
            &["metadata", "name"].map(str::to_owned),
            call.path.name.clone().into(),
        );
    }
    call.fit(&mut fitted, true)?;
    check(call, scale, &fitted)?;
    check_uid(call, sent, &live)?;
    store(call, writer, scale, sent, &live, new)
}

/// Returns whether a manager owns the replicas; for a custom resource, in this version. Only then
/// Kubernetes tracks the scale of an object.
fn is_tracked(object: &Value, scale: &Scale, resource: &Resource) -> bool {
    let path = format!("/f:{}", scale.spec_replicas.join("/f:"));
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    let version = resource.api_version();
    let owns = |entry: &Value| {
        let is_known =
            !resource.is_custom() || entry.get("apiVersion").is_some_and(|found| *found == version);
        is_known && entry.get("fieldsV1").is_some_and(|set| set.pointer(&path).is_some())
    };
    entries.into_iter().flatten().any(owns)
}

/// Returns the live object for the apply of a scale. Replicas of a built-in kind that no manager
/// owns get an entry of the manager for writes before the first apply. For a custom resource
/// Kubernetes cannot make that entry, and fails.
fn before_apply(live: &Value, scale: &Scale, resource: &Resource) -> Result<Value, Failure> {
    let mut before = live.clone();
    if is_tracked(live, scale, resource) {
        return Ok(before);
    }
    if resource.is_custom() {
        return Err(Failure::unclassified(
            "failed to create manager for existing fields: failed to convert live object (/; autoscaling/v1, Kind=Scale) to proper \
             version: request to convert CR to an invalid group/version: autoscaling/v1",
        ));
    }
    if at(live, &scale.spec_replicas).and_then(Value::as_i64).unwrap_or_default() != 0 {
        let owned = scale.spec_replicas.iter().rev().fold(json!({}), |set, key| {
            let mut outer = Map::new();
            outer.insert(format!("f:{key}"), set);
            Value::Object(outer)
        });
        let entry = json!({"apiVersion": resource.api_version(), "fieldsType": "FieldsV1", "fieldsV1": owned,
            "manager": BEFORE_FIRST_APPLY, "operation": "Update", "subresource": SCALE});
        let metadata = before.as_object_mut().map(metadata_mut);
        let entries =
            metadata.map(|metadata| metadata.entry("managedFields").or_insert_with(|| json!([])));
        if let Some(entries) = entries.and_then(Value::as_array_mut) {
            entries.push(entry);
        }
    }
    Ok(before)
}

fn answer(shown: Shown, scale: &Scale) -> Answer {
    Answer::object(200, Shown::Value(scale_of(&shown.into_value(), scale)))
}

fn scale_of(object: &Value, scale: &Scale) -> Value {
    let kept = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"];
    let metadata = object.get("metadata").and_then(Value::as_object).into_iter().flatten();
    let metadata: Map<String, Value> = metadata
        .filter(|(key, _)| kept.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let number = |keys: &[String]| at(object, keys).and_then(Value::as_i64).unwrap_or_default();
    let wanted = number(&scale.spec_replicas);
    let spec = if wanted == 0 { json!({}) } else { json!({"replicas": wanted}) };
    let replicas = number(&scale.status_replicas);
    let selector = match &scale.selector {
        ScaleSelector::None => String::new(),
        ScaleSelector::Text(keys) => {
            at(object, keys).and_then(Value::as_str).unwrap_or_default().to_owned()
        }
        ScaleSelector::Labels => {
            selector_text(object.pointer("/spec/selector").unwrap_or(&Value::Null))
        }
    };
    let status = if selector.is_empty() {
        json!({"replicas": replicas})
    } else {
        json!({"replicas": replicas, "selector": selector})
    };
    json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": spec, "status": status})
}

/// Returns a label selector as text: of a selector object, or of the plain map of a
/// `ReplicationController`.
fn selector_text(selector: &Value) -> String {
    let is_plain = selector.as_object().is_some_and(|map| map.values().all(Value::is_string));
    let selector = if is_plain { &json!({"matchLabels": selector}) } else { selector };
    LabelSelector::from_value(selector).to_string()
}

/// Returns the error of an apply that changes the scale of a custom resource: Kubernetes cannot
/// convert the result.
fn unconverted(sent: &Value) -> Failure {
    let (namespace, name) = (text(sent, "namespace"), text(sent, "name"));
    Failure::unclassified(format!(
        "failed to convert new object ({namespace}/{name}; autoscaling/v1, Kind=Scale) to proper version: \
         request to convert CR to an invalid group/version: autoscaling/v1"
    ))
}

/// Checks a scale, and returns its replicas. That of a custom resource is only checked as part of
/// the object.
fn check(call: &Call<'_>, scale: &Scale, sent: &Value) -> Result<i64, Failure> {
    let replicas = replicas_of(sent)?;
    if call.resource.is_custom() {
        if replicas == UNSET_REPLICAS {
            let path = scale.spec_replicas.join(".");
            let why = format!("the spec replicas field \".{path}\" cannot be empty");
            return Err(Failure::bad_request(why));
        }
        return Ok(replicas);
    }
    let rules =
        MetadataRules { name: NameRule::Subdomain, namespaced: true, qualified_finalizers: true };
    let mut faults = validate_metadata(&sent["metadata"], rules, &FieldPath::new("metadata"));
    if replicas < 0 {
        let fault = "must be greater than or equal to 0";
        faults.push(FieldError::invalid("spec.replicas", replicas, fault));
    }
    if faults.is_empty() {
        return Ok(replicas);
    }
    Err(Failure::invalid(Named::new("autoscaling", "Scale", &call.path.name), faults))
}

fn replicas_of(scale: &Value) -> Result<i64, Failure> {
    match scale.pointer("/spec/replicas") {
        None | Some(Value::Null) => Ok(0),
        Some(value) => value
            .as_i64()
            .ok_or_else(|| Failure::bad_request("Scale: spec.replicas is no whole number")),
    }
}

fn at<'a>(object: &'a Value, keys: &[String]) -> Option<&'a Value> {
    keys.iter().try_fold(object, |value, key| value.get(key))
}

fn remove_at(object: &mut Value, keys: &[String]) {
    let Some((last, outer)) = keys.split_last() else { return };
    let inner = outer.iter().try_fold(object, |value, key| value.get_mut(key));
    if let Some(fields) = inner.and_then(Value::as_object_mut) {
        fields.remove(last);
    }
}

fn set_at(object: &mut Value, keys: &[String], value: Value) {
    let mut target = object;
    for key in keys {
        if !target.is_object() {
            *target = json!({});
        }
        let Some(fields) = target.as_object_mut() else { return };
        target = fields.entry(key.clone()).or_insert(Value::Null);
    }
    *target = value;
}
