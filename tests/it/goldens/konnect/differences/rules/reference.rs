//! Entities whose references are not there.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    super::{
        super::{
            format::Named,
            request::{Request, sort_lists},
            state::{Key, conditions, recorded},
        },
        Consequences, Facts,
    },
    deletion::CLEANUP,
    set_programmed, uid_of,
};
use crate::goldens::scenario::text;

/// The fields of bodies that refer to other entities: of status, of the body, and whether it is a
/// list.
const REFERENCES: [(&str, &str, bool); 3] = [
    ("certificateID", "client_certificate", false),
    ("caCertificateIDs", "ca_certificates", true),
    ("keySetID", "set", false),
];
/// The conditions of references to entities that are no parents, but for an SNI.
const WAITED_FOR: [&str; 3] =
    ["KeySetRefValid", "KongCertificateRefValid", "KongCACertificateRefsValid"];
/// The message of `Programmed` of an object of which another condition is False.
const FALSE_EXISTS: &str = "Some conditions have status set to False";
/// The reason of `Programmed` of a consumer that is not in all its groups.
const WITHOUT_GROUPS: &str = "FailedToAttachConsumerToConsumerGroup";

/// An entity is sent when the entities that it refers to are there, and with them; the original may
/// send it before.
pub(super) fn references_are_waited_for(_: &Facts<'_>, expected: &mut Consequences) {
    let mut late = Vec::new();
    let Consequences { requests, objects } = expected;
    for request in &mut *requests {
        let uid = request.uid().unwrap_or_default();
        let its = objects.iter().find(|(key, _)| uid == uid_of(key));
        let Some((_, object)) = its.filter(|_| request.method == "POST") else { continue };
        if refer(request, object) {
            late.push(request.key());
        }
    }
    requests.sort_by_key(|request| late.contains(&request.key()));
}

/// Adds the references that an object has to the body of its entity. Returns whether one was missing.
fn refer(request: &mut Request, object: &Value) -> bool {
    let mut is_late = false;
    for (field, sent, is_list) in REFERENCES {
        let id = &object["status"]["konnect"][field];
        // A certificate is the parent of an SNI, and not in its body.
        if id.is_null() || request.body.get(sent).is_some() || request.path.ends_with("/snis") {
            continue;
        }
        request.body[sent] = if is_list { id.clone() } else { json!({"id": id}) };
        is_late = true;
    }
    is_late
}

/// An entity is not sent while one that it refers to is not programmed, and `Programmed` says so;
/// the original sends it without the reference, which follows with the next period.
pub(super) fn unprogrammed_references_are_waited_for(
    facts: &Facts<'_>,
    expected: &mut Consequences,
) {
    let Consequences { requests, objects } = expected;
    let is_created =
        |uid: &str| facts.history.created.values().any(|made| made.uid().as_deref() == Some(uid));
    for (key, object) in objects.iter_mut().filter(|(key, _)| key.kind != "KongSNI") {
        let (uid, state) = (uid_of(key), reference_of(object));
        let is_its = |request: &Request| {
            request.uid().as_ref() == Some(&uid) || uid_asked(request) == Some(uid.as_str())
        };
        if state == Some(false) {
            set_programmed(object, "ConditionWithStatusFalseExists", FALSE_EXISTS);
        }
        if state.is_none() || is_created(&uid) || object["deleting"] == true {
            continue;
        }
        if state == Some(false) {
            requests.retain(|request| !is_its(request));
            without_entity(object);
            continue;
        }
        let mut sent = facts.earlier.iter().flat_map(|step| &step.requests);
        let made = sent.find(|request| is_its(request) && request.answer.id.is_some());
        if let Some(mut late) = made.cloned() {
            requests.retain(|request| !is_its(request));
            sort_lists(&mut late.body);
            refer(&mut late, object);
            requests.push(late);
        }
    }
}

/// Returns whether the entities to which an object refers are programmed; `None` if there are none,
/// or not all.
fn reference_of(object: &Value) -> Option<bool> {
    let conditions = conditions(object);
    let held: Vec<&Value> = WAITED_FOR.iter().filter_map(|of| conditions.get(*of)).collect();
    let is_late = |of: &&Value| text(of, "/message").ends_with(" is not programmed yet");
    if held.iter().any(is_late) {
        return Some(false);
    }
    (!held.is_empty() && held.iter().all(|of| of["status"] == "True")).then_some(true)
}

/// Leaves the status of an object that has no entity.
fn without_entity(object: &mut Value) {
    object.as_object_mut().and_then(|fields| fields.remove("finalizers"));
    let held = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    if let Some(held) = held {
        held.retain(|of| !text(of, "/type").starts_with("APIAuth"));
    }
    if let Some(ids) = object.pointer_mut("/status/konnect").and_then(Value::as_object_mut) {
        ids.retain(|field, _| field == "controlPlaneID");
    }
}

/// An entity whose control plane is not programmed, or is a group, waits for it: `Programmed` says
/// so, nothing is asked for, and its deletion completes. The original panics, and a deletion asks
/// for a path with an empty ID until the control plane is there; of one that is made anew it still
/// asks the one before.
pub(super) fn control_planes_are_waited_for(facts: &Facts<'_>, expected: &mut Consequences) {
    let sent: BTreeSet<String> = facts.ours.requests.iter().map(Request::key).collect();
    let went_before = |uid: &str| {
        let of = |gone: &&Named| uid == uid_of(&Key::named(gone));
        let gone = facts.step.gone.iter().find(of);
        gone.is_some_and(|gone| !facts.step.delete.contains(gone))
    };
    let deleted = facts.ours.requests.iter().filter(|request| request.method == "DELETE");
    let deleted: BTreeSet<String> = deleted.map(|request| request.path.clone()).collect();
    let is_of_gone = |request: &Request| {
        let mut gone = facts.history.deleted.iter().chain(&deleted);
        let is_below = gone.any(|gone| request.path.starts_with(&format!("{gone}/")));
        is_below && request.answer.status == Some(404)
    };
    expected.requests.retain(|request| {
        let uid = uid_asked(request);
        let is_late = request.is_read() && uid.is_some_and(went_before) || is_of_gone(request);
        !request.path.contains("/control-planes//") && (!is_late || sent.contains(&request.key()))
    });
    expected.objects.retain(|_, object| object["deleting"] != true || !is_waiting(object));
    for (key, object) in expected.objects.iter_mut().filter(|(_, object)| is_waiting(object)) {
        let namespace = match key.namespace.as_str() {
            _ if key.kind == "KongVault" => "",
            "" => &facts.scenario.namespace,
            namespace => namespace,
        };
        let of = format!("{} {namespace}/{}", key.kind, key.name);
        let message = format!("can't create {of} without a Konnect ControlPlane ID");
        if conditions(object).values().any(|held| held["reason"] == "Pending") {
            set_programmed(object, "FailedToCreate", &message);
        }
    }
}

/// A child whose parent could not be updated keeps its ID; the original creates it once more, which
/// clashes, and finds it.
pub(super) fn children_keep_their_ids(facts: &Facts<'_>, expected: &mut Consequences) {
    let sent: BTreeSet<String> = facts.ours.requests.iter().map(Request::key).collect();
    let is_known = |uid: &str, ids: Option<&Vec<String>>| {
        let mut created = facts.history.created.values();
        created.any(|made| {
            let id = made.answer.id.as_ref();
            let is_it = ids.is_none_or(|ids| id.is_some_and(|id| ids == std::slice::from_ref(id)));
            made.uid().as_deref() == Some(uid) && is_it
        })
    };
    expected.requests.retain(|request| {
        let is_again = match request.method.as_str() {
            "POST" => {
                let is_clash = matches!(request.answer.status, Some(400 | 409));
                is_clash && request.uid().is_some_and(|uid| is_known(&uid, None))
            }
            "GET" => {
                uid_asked(request).is_some_and(|uid| is_known(uid, request.answer.ids.as_ref()))
            }
            _ => false,
        };
        !is_again || sent.contains(&request.key())
    });
}

/// Returns the uid by whose tag a request looks for an entity.
fn uid_asked(request: &Request) -> Option<&str> {
    let tags = request.query.get("tags")?;
    tags.split(',').find_map(|tag| tag.strip_prefix("k8s-uid:"))
}

/// Returns whether an object has a finalizer, but no entity for want of a control plane.
fn is_waiting(object: &Value) -> bool {
    let held = conditions(object).get("ControlPlaneRefValid").cloned().unwrap_or_default();
    let is_group = text(&held, "/message").starts_with("Attaching to ControlPlane ");
    let finalizers = object["finalizers"].as_array();
    finalizers.is_some_and(|all| all.iter().any(|one| one == CLEANUP))
        && object.pointer("/status/konnect").is_none()
        && held["status"] == "False"
        && (is_group || held["reason"] == "NotProgrammed")
}

/// A reference that is not permitted, and a Secret that does not serve, make `Programmed` False,
/// whatever the kind.
pub(super) fn unmet_references_are_told(_: &Facts<'_>, expected: &mut Consequences) {
    for object in expected.objects.values_mut().filter(|object| object["deleting"] != true) {
        let held = conditions(object);
        let is_unmet = held.get("ResolvedRefs").is_some_and(|of| of["reason"] == "RefNotPermitted")
            || held.get("SecretRefValid").is_some_and(|of| of["status"] == "False");
        if is_unmet {
            set_programmed(object, "ConditionWithStatusFalseExists", FALSE_EXISTS);
        }
    }
}

/// A consumer whose groups are not there is sent once; in the original its status write wakes it.
pub(super) fn consumers_without_groups_are_sent_once(
    facts: &Facts<'_>,
    expected: &mut Consequences,
) {
    let uids: Vec<String> = expected
        .objects
        .iter()
        .filter(|(_, object)| is_without_groups(object))
        .map(|(key, _)| uid_of(key))
        .collect();
    let sent: BTreeSet<String> = facts.ours.requests.iter().map(Request::key).collect();
    let created: Vec<Request> =
        expected.requests.iter().filter(|request| request.method == "POST").cloned().collect();
    expected.requests.retain(|request| {
        let is_its = request.uid().is_some_and(|uid| uids.contains(&uid));
        let is_again = created
            .iter()
            .any(|create| create.entity() == request.path && create.body == request.body);
        request.method != "PUT" || !is_its || !is_again || sent.contains(&request.key())
    });
}

/// A consumer joins the groups that are there at once; in the original only when all are.
pub(super) fn groups_that_are_there_are_joined(facts: &Facts<'_>, expected: &mut Consequences) {
    let earlier = facts.earlier.iter().flat_map(|step| &step.objects).filter_map(recorded);
    let consumers = earlier.chain(expected.objects.values().cloned()).filter(is_without_groups);
    let ids: BTreeSet<String> =
        consumers.map(|object| text(&object, "/status/konnect/id").to_owned()).collect();
    let is_list = |request: &Request| {
        let rest = request.path.split_once("/consumers/").map(|(_, rest)| rest);
        let id = rest.and_then(|rest| rest.strip_suffix("/consumer_groups"));
        request.is_read() && id.is_some_and(|id| ids.contains(id))
    };
    let is_join = |request: &Request| ids.contains(text(&request.body, "/consumer"));
    let is_joined = |request: &Request| {
        let sent = facts.history.sent.get(&request.place());
        sent.is_some_and(|sent| sent.key() == request.key())
    };
    expected.requests.retain(|request| !is_join(request) || !is_joined(request));
    let ours = || facts.ours.requests.iter().filter(|request| is_list(request) || is_join(request));
    for list in expected.requests.iter_mut().filter(|request| is_list(request)) {
        if let Some(ours) = ours().find(|ours| ours.path == list.path) {
            *list = ours.clone();
        }
    }
    let held: BTreeSet<String> = expected.requests.iter().map(Request::key).collect();
    let more = ours().filter(|ours| !held.contains(&ours.key()));
    expected.requests.extend(more.cloned().collect::<Vec<_>>());
}

/// Returns whether an object is a consumer that is not in all its groups.
fn is_without_groups(object: &Value) -> bool {
    let programmed = conditions(object).get("Programmed").cloned().unwrap_or_default();
    programmed["reason"] == WITHOUT_GROUPS
}
