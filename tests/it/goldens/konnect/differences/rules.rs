//! The rules, each for all scenarios alike.

mod adoption;
mod deletion;
mod lookup;
mod reference;
mod source;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::{Value, json};

use self::{
    adoption::adoptions_need_no_mode,
    deletion::{
        deletions_complete, deletions_wait_for_children, deletions_without_token_say_so,
        services_take_their_entities_along, targets_take_their_bindings_along,
    },
    lookup::{looked_up_before_created, second_ones_are_looked_for},
    reference::{
        children_keep_their_ids, consumers_without_groups_are_sent_once,
        control_planes_are_waited_for, groups_that_are_there_are_joined, references_are_waited_for,
        unmet_references_are_told, unprogrammed_references_are_waited_for,
    },
    source::{configuration_from_secrets_is_sent, sources_are_sent_at_once},
};
use super::{
    super::{
        format::Operator,
        request::Request,
        state::{Key, conditions},
    },
    Consequences, Facts,
};
use crate::goldens::scenario::{conditions_mut, regex, text};

/// The end of the message of a condition about a pause.
const UNTIL: &str = "; nothing is sent until ";
/// The seconds of a pause for which Konnect gives no time.
const PAUSE: u64 = 15;
/// The seconds of the longest pause.
const LONGEST_PAUSE: u64 = 600;
/// The year in which the scenarios were recorded.
const RECORDED: &str = "2026";
/// The answers after which nothing is sent again without a change, within the period.
const REFUSED: [u16; 3] = [400, 403, 409];
/// The collection whose entities have no marks.
const DATA_PLANE: &str = "/dp-client-certificates";
/// A rule: changes what the record has to what is expected of ours.
type Rule = fn(&Facts<'_>, &mut Consequences);

pub(super) const RULES: [(&str, Rule); 28] = [
    ("asked-when-needed", asked_when_needed),
    ("keys-of-tokens-are-unknown", keys_of_tokens_are_unknown),
    ("messages-have-no-request-number", messages_have_no_request_number),
    ("refused-is-sent-once", refused_is_sent_once),
    ("refused-is-sent-again-each-period", refused_is_sent_again_each_period),
    ("pauses-are-kept", pauses_are_kept),
    ("configuration-from-secrets-is-sent", configuration_from_secrets_is_sent),
    ("sources-are-sent-at-once", sources_are_sent_at_once),
    ("deletions-complete", deletions_complete),
    ("deletions-without-token-say-so", deletions_without_token_say_so),
    ("services-take-their-entities-along", services_take_their_entities_along),
    ("deletions-wait-for-children", deletions_wait_for_children),
    ("targets-take-their-bindings-along", targets_take_their_bindings_along),
    ("adoptions-need-no-mode", adoptions_need_no_mode),
    ("failed-mirrors-say-so", failed_mirrors_say_so),
    ("conflicts-of-data-plane-certificates-are-told", conflicts_are_told),
    ("one-writer-of-a-reason", one_writer_of_a_reason),
    ("endpoints-are-of-the-region", endpoints_are_of_the_region),
    ("regions-are-told", regions_are_told),
    ("references-are-waited-for", references_are_waited_for),
    ("unmet-references-are-told", unmet_references_are_told),
    ("control-planes-are-waited-for", control_planes_are_waited_for),
    ("unprogrammed-references-are-waited-for", unprogrammed_references_are_waited_for),
    ("children-keep-their-ids", children_keep_their_ids),
    ("consumers-without-groups-are-sent-once", consumers_without_groups_are_sent_once),
    ("groups-that-are-there-are-joined", groups_that_are_there_are_joined),
    ("looked-up-before-created", looked_up_before_created),
    ("second-ones-are-looked-for", second_ones_are_looked_for),
];

/// The organization and the endpoints of a control plane are asked for when something has changed,
/// not with each event: what ours has asked before with this answer need not come, and what the
/// original has asked before, or asks later, may come.
fn asked_when_needed(facts: &Facts<'_>, expected: &mut Consequences) {
    let sent: BTreeSet<String> = facts.ours.requests.iter().map(Request::key).collect();
    expected.requests.retain(|request| {
        let key = request.key();
        !request.is_of_each_pass() || sent.contains(&key) || !facts.history.asked.contains(&key)
    });
    let later = facts.later.iter().flat_map(|step| &step.requests).map(Request::key);
    let recorded: BTreeSet<String> = later.chain(facts.history.recorded.clone()).collect();
    let now: BTreeSet<String> = expected.requests.iter().map(Request::key).collect();
    let is_at_other_time = |request: &&Request| {
        let key = request.key();
        request.is_of_each_pass() && recorded.contains(&key) && !now.contains(&key)
    };
    let others = facts.ours.requests.iter().filter(is_at_other_time);
    expected.requests.splice(0..0, others.cloned().collect::<Vec<_>>());
    expected
        .requests
        .sort_by_key(|request| (!request.is_of_organization(), !request.is_of_each_pass()));
}

/// A Secret with a token and no data lacks the key of the token, as any other one does.
fn keys_of_tokens_are_unknown(_: &Facts<'_>, expected: &mut Consequences) {
    for object in expected.objects.values_mut() {
        for condition in conditions_mut(object) {
            if let Some(Value::String(message)) = condition.get_mut("message")
                && let Some(secret) = message.strip_suffix(" has no data")
            {
                *message = format!("{secret} does not have key token");
            }
        }
    }
}

/// The number that Konnect gives to a request is never in a condition.
fn messages_have_no_request_number(_: &Facts<'_>, expected: &mut Consequences) {
    let instance = regex(r#""instance":\s?"kong:trace:[0-9a-f]+""#);
    for object in expected.objects.values_mut() {
        for condition in conditions_mut(object) {
            if let Some(Value::String(message)) = condition.get_mut("message") {
                *message = instance.replace_all(message, r#""instance":"""#).into_owned();
            }
        }
    }
}

/// What Konnect refuses is sent once; then again when it is changed, and after a start.
fn refused_is_sent_once(facts: &Facts<'_>, expected: &mut Consequences) {
    let is_start = matches!(facts.step.operator, Some(Operator::Start | Operator::Restart));
    let is_changed = |request: &Request| {
        let name = request.uid().unwrap_or_default();
        facts.step.patch.iter().any(|patch| name == uid_of(&Key::named(&patch.of())))
    };
    for request in &mut expected.requests {
        if is_of_entity(request) && is_refused(request) {
            request.repeated = false;
        }
    }
    expected.requests.retain(|request| {
        let last = facts.history.sent.get(&request.place());
        let is_same = last.is_some_and(|last| is_refused(last) && last.body == request.body);
        let is_due = is_start || facts.step.has_periods();
        !is_of_entity(request) || is_due || !is_same || is_changed(request)
    });
}

/// Returns whether a request writes an entity: it neither deletes one, nor sets members.
fn is_of_entity(request: &Request) -> bool {
    let is_write = matches!(request.method.as_str(), "POST" | "PUT" | "PATCH");
    is_write && request.uid().is_some() || request.path.ends_with(DATA_PLANE)
}

fn is_refused(request: &Request) -> bool {
    request.answer.status.is_some_and(|status| REFUSED.contains(&status))
}

/// A create that Konnect refuses is tried again once a period, as an update is.
fn refused_is_sent_again_each_period(facts: &Facts<'_>, expected: &mut Consequences) {
    let periods = facts.step.wait_periods.filter(|_| facts.step.has_periods());
    let (Some(periods), None) = (periods, &facts.step.konnect) else { return };
    for refused in facts.history.sent.values() {
        let is_there = expected.requests.iter().any(|request| request.place() == refused.place());
        if refused.method != "POST" || !is_refused(refused) || is_there {
            continue;
        }
        let mut again = refused.clone();
        again.periods_since_previous = Some(1);
        again.repeated = false;
        let count = (1..1_000).take_while(|number| f64::from(*number) <= periods).count();
        expected.requests.extend(std::iter::repeat_n(again, count));
    }
}

/// Nothing is sent for as long as Konnect asks for, whatever wakes the operator, and the condition
/// says until when.
fn pauses_are_kept(facts: &Facts<'_>, expected: &mut Consequences) {
    let mut ends: BTreeMap<String, u64> = BTreeMap::new();
    let mut kept: Vec<Request> = Vec::new();
    for mut request in std::mem::take(&mut expected.requests) {
        let of = format!("{} {}", request.method, request.path);
        let last = kept.iter().rfind(|other| format!("{} {}", other.method, other.path) == of);
        let paused = last.and_then(pause);
        if let (Some(passed), Some(pause)) = (request.seconds_since_previous, paused) {
            let pause = passed.max(pause);
            request.seconds_since_previous = Some(pause);
            *ends.entry(of.clone()).or_default() += pause;
        }
        let end = ends.get(&of).copied().unwrap_or_default();
        if facts.step.wait_seconds.is_none_or(|wait| Duration::from_secs(end).as_secs_f64() <= wait)
        {
            kept.push(request);
        }
    }
    expected.requests = kept;
    for object in expected.objects.values_mut() {
        for condition in conditions_mut(object) {
            if let Some(Value::String(message)) = condition.get_mut("message")
                && message.contains("API error occurred: Status 429")
                && !message.contains(UNTIL)
            {
                message.push_str(UNTIL);
                message.push_str("TIME");
            }
        }
    }
}

/// Returns the seconds of the pause that an answer asks for. A date that was past when the scenarios
/// were recorded is no time that can be used; a later one ends no step.
fn pause(request: &Request) -> Option<u64> {
    let header = request.answer.headers.get("Retry-After").map_or("", String::as_str);
    let year = regex(r"(\d{4}) [\d:]{8} GMT$").captures(header).map(|year| year[1].to_owned());
    let asked = match year {
        Some(year) if year.as_str() > RECORDED => Some(LONGEST_PAUSE),
        _ => header.parse().ok().filter(|seconds| *seconds > 0),
    };
    (request.answer.status == Some(429)).then(|| asked.unwrap_or(PAUSE))
}

/// A mirror of nothing is not mirrored.
fn failed_mirrors_say_so(_: &Facts<'_>, expected: &mut Consequences) {
    for condition in expected.objects.values_mut().flat_map(conditions_mut) {
        if condition["type"] == "Mirrored" && condition["reason"] == "Failed" {
            condition["status"] = "False".into();
        }
    }
}

/// A conflict of which nothing was found is told, also of a kind that the original does not look up.
fn conflicts_are_told(facts: &Facts<'_>, expected: &mut Consequences) {
    let is_conflict = |request: &&Request| {
        request.path.ends_with(DATA_PLANE) && request.answer.status == Some(409)
    };
    let Some(body) = expected
        .requests
        .iter()
        .find(is_conflict)
        .map(|conflict| conflict.answer.body.clone().unwrap_or_default())
    else {
        return;
    };
    for (Key { kind, name, .. }, object) in &mut expected.objects {
        let namespace = &facts.scenario.namespace;
        let message = format!(
            "trying to find a matching Konnect entity matching the ID failed: {kind} {name} (matching UID UID-{kind}-{name}) \
             not found on Konnect, failed to create {kind} {namespace}/{name}: API error occurred: Status 409\n{body}"
        );
        if conditions(object).values().any(|held| held["reason"] == "Pending") {
            set_programmed(object, "FailedToCreate", &message);
        }
    }
}

/// Where two writers take turns with a reason, each turn sends the entity again: ours has one.
fn one_writer_of_a_reason(facts: &Facts<'_>, expected: &mut Consequences) {
    let is_flipping = |object: &Value| {
        conditions(object).values().any(|held| text(held, "/reason").contains('|'))
    };
    let flipping = expected.objects.iter().filter(|(_, object)| is_flipping(object));
    let uids: Vec<String> = flipping.map(|(key, _)| uid_of(key)).collect();
    let sent: BTreeSet<String> = facts.ours.requests.iter().map(Request::key).collect();
    let has_flipping = !uids.is_empty();
    expected.requests.retain(|request| {
        let is_again = matches!(request.method.as_str(), "PUT" | "PATCH")
            && request.uid().is_some_and(|uid| uids.contains(&uid));
        let is_of_pass = request.is_of_each_pass();
        !(has_flipping && (is_again || is_of_pass)) || sent.contains(&request.key())
    });
}

/// The API behind the record gives endpoints of one region to all control planes.
fn endpoints_are_of_the_region(_: &Facts<'_>, expected: &mut Consequences) {
    let region = regex(r"\.\w\w\.([ct]p0)\.");
    for object in expected.objects.values_mut() {
        let url = text(object, "/status/serverURL").trim_start_matches("https://").to_owned();
        let of = url.split('.').next().unwrap_or_default().to_owned();
        let endpoints =
            object.pointer_mut("/status/konnectEndpoints").and_then(Value::as_object_mut);
        for endpoint in endpoints.into_iter().flat_map(serde_json::Map::values_mut) {
            let told = endpoint.as_str().unwrap_or_default();
            *endpoint = region.replace(told, format!(".{of}.$1.")).into_owned().into();
        }
    }
}

/// A server URL without a region is told in the status of the auth object.
fn regions_are_told(facts: &Facts<'_>, expected: &mut Consequences) {
    for auth in applied(facts, "KonnectAPIAuthConfiguration") {
        let url = text(auth, "/spec/serverURL").trim_start_matches("https://");
        let region = url.split('.').next().unwrap_or_default();
        let is_region = region.len() == 2 && region.chars().all(|c| c.is_ascii_lowercase());
        let name = text(auth, "/metadata/name");
        let objects = expected.objects.iter_mut();
        let mut its =
            objects.filter(|(key, _)| auth["kind"] == key.kind.as_str() && key.name == name);
        let Some((_, object)) = its.next().filter(|_| !is_region && region != "global") else {
            continue;
        };
        let message = format!("failed to parse region from hostname: invalid region {region}");
        object["status"] = json!({"conditions": [{
            "type": "APIAuthValid", "status": "False", "reason": "Invalid", "message": message,
            "observedGeneration": object["generation"],
        }]});
    }
}

/// Sets `Programmed` of an object that has one to False, for its present generation.
fn set_programmed(object: &mut Value, reason: &str, message: &str) {
    let generation = object["generation"].clone();
    for condition in conditions_mut(object).filter(|held| held["type"] == "Programmed") {
        *condition = json!({
            "type": "Programmed", "status": "False", "reason": reason,
            "observedGeneration": generation, "message": message,
        });
    }
}

/// Returns the placeholder of the uid of an object.
fn uid_of(Key { kind, namespace, name }: &Key) -> String {
    let second = if namespace.is_empty() { "" } else { "-in-b" };
    format!("UID-{kind}-{name}{second}")
}

/// Returns the objects of a kind that the steps up to this one have applied.
fn applied<'a>(facts: &'a Facts<'_>, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    let steps = facts.earlier.iter().chain([facts.step]);
    steps.flat_map(|step| &step.apply).filter(move |object| object["kind"] == kind)
}

#[cfg(test)]
mod tests;
