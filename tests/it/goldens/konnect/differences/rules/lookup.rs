//! Entities that are looked up: before they are created, and for a second one.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::{
    super::request::{Answer, Request},
    Consequences, Facts,
};
use crate::goldens::scenario::regex;

/// The collections in which nothing but a mark tells an entity of one object from that of another.
const WITHOUT_UNIQUE_FIELD: [&str; 4] =
    ["ca_certificates", "acls", "dp-client-certificates", "config-stores"];
/// The collections that take equal entities without a name.
const WITH_NAME: [&str; 2] = ["upstreams", "consumer_groups"];
/// The collections in which a second entity of an object is looked for.
const WITH_SECOND_ONES: [&str; 4] =
    ["certificates", "ca_certificates", "acls", "dp-client-certificates"];

/// Before an entity is created in a collection that takes equal ones, it is looked up: its answer
/// may have been lost.
pub(super) fn looked_up_before_created(facts: &Facts<'_>, expected: &mut Consequences) {
    let mut requests: Vec<Request> = Vec::new();
    let mut is_lost = false;
    for request in std::mem::take(&mut expected.requests) {
        let collection = request.path.rsplit('/').next().unwrap_or_default().to_owned();
        let is_unnamed = request.body["name"] == "" && WITH_NAME.contains(&collection.as_str());
        let takes_equal = is_unnamed || WITHOUT_UNIQUE_FIELD.contains(&collection.as_str());
        if request.method != "POST" || !takes_equal {
            requests.push(request);
            continue;
        }
        let created = facts.history.created.values().filter(|other| other.path == request.path);
        let is_its = |other: &&Request| match request.uid() {
            Some(uid) => other.uid() == Some(uid),
            None => other.body == request.body,
        };
        let found = created.clone().find(is_its).and_then(|other| other.answer.id.clone());
        let lost = request.answer.id.as_ref().filter(|_| is_lost).and_then(|id| before(id));
        let found = found.or(lost);
        let ids = match request.uid() {
            Some(_) => found.iter().cloned().collect(),
            None => created
                .filter_map(|other| other.answer.id.clone())
                .chain(found.clone())
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect(),
        };
        let lookup = lookup(&request, ids);
        let is_told = requests.iter().any(|other| other.key() == lookup.key());
        if !is_told && !facts.step.without_reads {
            requests.push(lookup);
        }
        if let (Some(found), Some(id)) = (found, &request.answer.id) {
            rename(expected, id, &found);
        } else {
            is_lost |= request.answer.none.is_some() && is_acted(facts, &request);
            requests.push(request);
        }
    }
    expected.requests = requests;
}

/// Once a period, a second entity of an object is looked for in a collection that takes equal ones.
pub(super) fn second_ones_are_looked_for(facts: &Facts<'_>, expected: &mut Consequences) {
    if !facts.step.has_periods() {
        return;
    }
    for (index, request) in facts.ours.requests.iter().enumerate() {
        let collection = request.path.rsplit('/').next().unwrap_or_default();
        if request.is_read() && WITH_SECOND_ONES.contains(&collection) {
            expected.requests.insert(index.min(expected.requests.len()), request.clone());
        }
    }
}

/// Returns whether a fault has a request carried out whose answer is lost.
fn is_acted(facts: &Facts<'_>, request: &Request) -> bool {
    let faults = facts.step.konnect.iter().flatten();
    let of = |fault: &&konnect_fake::Fault| {
        fault.method.as_ref().is_none_or(|method| *method == request.method)
            && regex(&fault.path).is_match(&request.path)
    };
    faults.filter(of).any(|fault| fault.act)
}

/// Returns the id that was given out before another.
fn before(id: &str) -> Option<String> {
    let (collection, number) = id.rsplit_once('-')?;
    Some(format!("{collection}-{}", number.parse::<u64>().ok()?.checked_sub(1)?))
}

/// Returns the request that looks an entity up before it is created.
fn lookup(create: &Request, ids: Vec<String>) -> Request {
    let mut lookup = create.clone();
    "GET".clone_into(&mut lookup.method);
    lookup.body = Value::Null;
    lookup.answer = Answer { status: Some(200), ids: Some(ids), ..Answer::default() };
    lookup.repeated = false;
    if let Some(uid) = create.uid() {
        let query = [("size", "100".to_owned()), ("tags", format!("k8s-uid:{uid}"))];
        lookup.query = query.map(|(name, value)| (name.to_owned(), value)).into();
        if let Some((control_plane, _)) = create.path.split_once("/consumers/") {
            lookup.path = format!("{control_plane}/acls");
        }
    }
    lookup
}

/// Replaces an id in all objects.
fn rename(expected: &mut Consequences, from: &str, to: &str) {
    for object in expected.objects.values_mut() {
        let id = object.pointer_mut("/status/konnect/id").filter(|id| **id == from);
        if let Some(id) = id {
            *id = to.into();
        }
    }
}
