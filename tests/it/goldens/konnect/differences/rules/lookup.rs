//! Entities that are looked up before they are created.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::{
    super::request::{Answer, Request},
    Consequences, Facts,
};
use crate::goldens::scenario::regex;

/// The collections in which nothing but a mark tells an entity of one object from that of another.
const WITHOUT_UNIQUE_FIELD: [&str; 3] = ["ca_certificates", "acls", "dp-client-certificates"];
/// The collections whose entities are looked up once a period: the one above, and that in which the
/// original looks up as well before it creates.
const LOOKED_UP_EACH_PERIOD: [&str; 3] = ["ca_certificates", "acls", "certificates"];

/// Before an entity is created in a collection that takes equal ones, it is looked up: its answer
/// may have been lost.
pub(super) fn looked_up_before_created(facts: &Facts<'_>, expected: &mut Consequences) {
    let mut requests: Vec<Request> = Vec::new();
    let mut is_lost = false;
    for request in std::mem::take(&mut expected.requests) {
        let collection = request.path.rsplit('/').next().unwrap_or_default().to_owned();
        if request.method != "POST" || !WITHOUT_UNIQUE_FIELD.contains(&collection.as_str()) {
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
    expected.requests = with_lookups_of_periods(facts, requests);
}

/// Adds the look-up before each update of a period: what a lost answer may have left is looked for.
fn with_lookups_of_periods(facts: &Facts<'_>, requests: Vec<Request>) -> Vec<Request> {
    if !facts.step.has_periods() {
        return requests;
    }
    let is_lookup = |request: &&Request| request.is_read() && request.query.contains_key("tags");
    let mut lookups: Vec<&Request> = facts.ours.requests.iter().filter(is_lookup).collect();
    let mut all = Vec::new();
    for request in requests {
        let (above, _) = request.path.rsplit_once('/').unwrap_or_default();
        let (_, collection) = above.rsplit_once('/').unwrap_or_default();
        let tag = format!("k8s-uid:{}", request.uid().unwrap_or_default());
        let is_its = |lookup: &&Request| lookup.query["tags"].split(',').any(|of| of == tag);
        if request.method == "PUT"
            && LOOKED_UP_EACH_PERIOD.contains(&collection)
            && let Some(at) = lookups.iter().position(is_its)
        {
            all.push(lookups.remove(at).clone());
        }
        all.push(request);
    }
    all
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
