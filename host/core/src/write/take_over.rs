//! Takes over the fields of a former operator before our first apply, as client-go's `csaupgrade`
//! does: fields that we do not want any more can then be removed, and fields that we want as they
//! are do not count as conflicts.

use serde_json::{Map, Value, json};

use super::{
    Run, Stop,
    apply::Target,
    leave::MAX_ATTEMPTS,
    live::{addressed, resource_version},
};
use crate::{
    api::{Method, Outgoing},
    applied_fields::{MANAGER_PREFIX, manager},
    contract::display_ref,
    store::Known,
};

impl Run<'_> {
    /// Moves the fields of the managers in `take_over` to our manager, unless we have applied the
    /// object before.
    pub(super) async fn take_over(&mut self, target: &Target<'_>) -> Result<(), Stop> {
        if self.context.take_over.is_empty() || !self.is_first(target) {
            return Ok(());
        }
        for round in 1.. {
            let Some(live) = self.live(target.resource, target.to).await? else { return Ok(()) };
            let Some(entries) = taken_over(&live, self.context.take_over, target) else {
                return Ok(());
            };
            let version = resource_version(&live).unwrap_or_default();
            let operations = json!([
                {"op": "test", "path": "/metadata/resourceVersion", "value": version},
                {"op": "replace", "path": "/metadata/managedFields", "value": entries},
            ]);
            // A patch of the object itself: the API server ignores managedFields in a request to a
            // subresource.
            let path = addressed(target.resource, target.to, "", target.manager, false);
            let taking = Outgoing::new(Method::JsonPatch, path, Some(operations));
            match self.send(taking, target.to).await {
                Ok(_) => return Ok(()),
                Err(refusal) if matches!(refusal.code, 404 | 409 | 422) && round < MAX_ATTEMPTS => {
                }
                // The account may have the right to write the status but not the object. Unwanted
                // fields of the former operator then stay.
                Err(refusal) if refusal.code == 403 && !target.subresource.is_empty() => {
                    let object = display_ref(target.to);
                    let warning = format!("the status of {object} is not taken over: {refusal}");
                    self.warn(warning);
                    return Ok(());
                }
                Err(refusal) => return Err(Stop::of(refusal, target.to)),
            }
        }
        Ok(())
    }

    /// Returns whether our manager owns nothing of the object, as far as the store knows; false if
    /// the object does not exist.
    fn is_first(&self, target: &Target<'_>) -> bool {
        match self.writer.stores.known(target.to) {
            Known::Absent => false,
            Known::Unwatched => true,
            Known::Present(entry) => entry.own().get(target.manager, target.subresource).is_none(),
        }
    }
}

/// Returns the object's `managedFields` with the fields of these managers under our name; `None` if
/// there is nothing to take over, or if we own fields already. Only entries of one API version are
/// merged: fields have other names in another version.
fn taken_over(object: &Value, from: &[String], target: &Target<'_>) -> Option<Value> {
    let text = |entry: &Value, key: &str| {
        entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let all = object.pointer("/metadata/managedFields")?.as_array()?;
    let here = |entry: &&Value| text(entry, "subresource") == target.subresource;
    if all.iter().filter(here).any(|entry| text(entry, "manager") == target.manager) {
        return None;
    }
    let is_elsewhere = !target.to.kind.cluster.is_empty();
    let is_theirs = |entry: &&Value| {
        let manager = text(entry, "manager");
        here(entry) && (from.contains(&manager) || is_elsewhere && is_of_other_home(&manager, from))
    };
    let versions: Vec<String> =
        all.iter().filter(is_theirs).map(|entry| text(entry, "apiVersion")).collect();
    let sent = super::live::api_version(target.to);
    let version = versions.iter().find(|version| **version == sent).or(versions.first())?;
    let is_taken = |entry: &&Value| is_theirs(entry) && text(entry, "apiVersion") == *version;
    let taken = all.iter().filter(is_taken);
    let fields = taken.clone().filter_map(|entry| entry.get("fieldsV1")).cloned().reduce(union)?;
    let mut ours = json!({
        "manager": target.manager, "operation": "Apply", "apiVersion": version,
        "fieldsType": "FieldsV1", "fieldsV1": fields,
    });
    let time = taken.map(|entry| text(entry, "time")).max().filter(|time| !time.is_empty());
    if let Some(ours) = ours.as_object_mut() {
        ours.extend(time.map(|time| ("time".to_owned(), time.into())));
        if !target.subresource.is_empty() {
            ours.insert("subresource".to_owned(), target.subresource.into());
        }
    }
    let left = all.iter().filter(|entry| !is_taken(entry)).cloned();
    Some(left.chain([ours]).collect())
}

/// Returns whether a manager of an object in another cluster is that of a Processor which is named as
/// `mortise/NAMESPACE/PROCESSOR`. It is not our own, which owns nothing yet, so it is another home's.
fn is_of_other_home(manager: &str, from: &[String]) -> bool {
    let Some(parts) = manager::parts(manager) else { return false };
    let named = from.iter().filter_map(|name| name.strip_prefix(MANAGER_PREFIX)?.split_once('/'));
    named.into_iter().any(|(namespace, name)| manager::owner_of(namespace, name) == parts.owner())
}

/// Merges two sets of fields. An empty set stands for the field itself; in a set with members, the
/// key `.` does.
fn union(one: Value, other: Value) -> Value {
    let fields = |set: Value| match set {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    let (mut one, mut other) = (fields(one), fields(other));
    if one.is_empty() != other.is_empty() {
        let fuller = if one.is_empty() { &mut other } else { &mut one };
        fuller.entry(".").or_insert_with(|| json!({}));
    }
    for (key, below) in other {
        let below = match one.remove(&key) {
            Some(held) => union(held, below),
            None => below,
        };
        one.insert(key, below);
    }
    Value::Object(one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        contract::{Kind, ObjectRef},
        resource::Resource,
    };

    /// Returns the managers of an object in a cluster after a first apply as `mine`.
    fn managers_after(cluster: &str, from: &str) -> Vec<String> {
        let kind = Kind { cluster: cluster.into(), ..Kind::home("", "v1", "ConfigMap") };
        let to = ObjectRef { kind: kind.into(), namespace: None, name: "a".to_owned() };
        let resource = Resource {
            kind: Kind::clone(&to.kind),
            plural: "configmaps".to_owned(),
            namespaced: true,
            status: false,
        };
        let entry = |manager: &str| json!({"manager": manager, "operation": "Apply", "apiVersion": "v1", "fieldsV1": {"f:data": {}}});
        let object = json!({"metadata": {"managedFields": [
            entry("mortise/shop/sync/a0123"), entry("mortise/shop/other/a0123"), entry("kubectl"),
        ]}});
        let target = Target { resource: &resource, to: &to, manager: "mine", subresource: "" };
        let after = taken_over(&object, &[from.to_owned()], &target).unwrap_or_default();
        let managers = after.as_array().into_iter().flatten();
        managers.map(|entry| entry["manager"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn fields_of_another_home_are_taken_over_in_other_clusters_only() {
        let taken = ["mortise/shop/other/a0123", "kubectl", "mine"];
        let cases = [
            ("the other home", "shop/p/k", "mortise/shop/sync", &taken[..]),
            ("at home", "", "mortise/shop/sync", &[]),
            ("another Processor", "shop/p/k", "mortise/shop/third", &[]),
            ("a whole name of a manager", "", "mortise/shop/sync/a0123", &taken),
        ];
        for (case, cluster, from, expected) in cases {
            assert_eq!(managers_after(cluster, from), expected, "{case}");
        }
    }

    #[test]
    fn sets_of_fields_are_joined() {
        let cases = [
            ("apart", json!({"f:a": {}}), json!({"f:b": {}}), json!({"f:a": {}, "f:b": {}})),
            (
                "deep",
                json!({"f:a": {"f:b": {}}}),
                json!({"f:a": {"f:c": {}}}),
                json!({"f:a": {"f:b": {}, "f:c": {}}}),
            ),
            (
                "the field itself and what is below it",
                json!({"f:a": {}}),
                json!({"f:a": {"f:b": {}}}),
                json!({"f:a": {".": {}, "f:b": {}}}),
            ),
            ("the same", json!({"f:a": {}}), json!({"f:a": {}}), json!({"f:a": {}})),
        ];
        for (case, one, other, expected) in cases {
            assert_eq!(union(one.clone(), other.clone()), expected, "{case}");
            assert_eq!(union(other, one), expected, "{case}, the other way round");
        }
    }
}
