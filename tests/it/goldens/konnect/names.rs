//! The placeholders of the record: uids, ids that Konnect chooses, names that the API server
//! chooses, and times.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use anyhow::{Context as _, bail};
use konnect_fake::{Konnect, id::Minted, log::Entry};
use regex::{Captures, Regex};
use serde_json::Value;

use super::{
    format::{Object, Scenario},
    request::uid_of,
    state::{owners, spec_of},
};
use crate::goldens::scenario::{TIME, UID, mapped, regex, text};

/// The collection of the identities of organizations.
const ORGANIZATIONS: &str = "organizations";
/// The placeholder of the first organization, and the beginning of those of others.
const ORGANIZATION: &str = "ID-organization";
/// What stands for the part of a name that the server chooses.
const NAME: &str = "NAME-";

/// A placeholder in what a scenario does.
static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| regex(r"\$\{([^}]*)\}"));
/// The first digits of an id in the name of a host.
static SHORT: LazyLock<Regex> = LazyLock::new(|| regex(r"\b([0-9a-f]{8})(\.\w+\.[ct]p0\.)"));
/// The number of a trace, which Konnect chooses.
static TRACE: LazyLock<Regex> = LazyLock::new(|| regex("kong:trace:[0-9a-f]+"));
const TRACED: &str = "kong:trace:1234567890123456789";

/// The placeholders so far.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// The placeholder of each uid and id.
    ids: BTreeMap<String, String>,
    /// The names that the API server has chosen, with their placeholders.
    made: Vec<(String, String)>,
    /// The number of objects, or of made names, of each title.
    numbers: BTreeMap<String, usize>,
    /// The number of ids of each collection.
    counts: BTreeMap<String, usize>,
    /// The objects that a scenario has created, in this order.
    applied: Vec<String>,
}

// === impl Names ===

impl Names {
    /// Learns an object that a step has created.
    pub(super) fn apply(&mut self, object: &Value, scenario: &Scenario) {
        self.applied.push(text(object, "/metadata/uid").to_owned());
        self.learn_uid(object, text(object, "/metadata/name"), scenario);
    }

    /// Returns whether an object was made by the operator.
    pub(super) fn is_made(&self, object: &Value) -> bool {
        !self.applied.iter().any(|uid| uid == text(object, "/metadata/uid"))
    }

    /// Learns the objects that the operator has made in a step.
    pub(super) fn learn_made(
        &mut self,
        objects: &[Value],
        recorded: &[Object],
        scenario: &Scenario,
    ) {
        let new: Vec<&Value> = objects
            .iter()
            .filter(|object| !self.ids.contains_key(text(object, "/metadata/uid")))
            .filter(|object| !owners(object).is_empty() && self.is_made(object))
            .collect();
        let mut free: Vec<&Object> =
            recorded.iter().filter(|object| object.name.contains(NAME)).collect();
        for object in new {
            let Some(prefix) = prefix_of(object) else { continue };
            let is_same = |recorded: &&Object| {
                text(object, "/kind") == recorded.kind
                    && recorded.name.starts_with(&format!("{prefix}{NAME}"))
                    && spec_of(object) == recorded.spec
            };
            let name = match free.iter().position(is_same) {
                Some(at) => free.remove(at).name.clone(),
                None => format!("{prefix}{NAME}{}", self.number(&format!("{prefix}{NAME}"))),
            };
            self.made.push((text(object, "/metadata/name").to_owned(), name.clone()));
            // A name may be a part of another.
            self.made.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
            self.learn_uid(object, &name, scenario);
        }
    }

    fn learn_uid(&mut self, object: &Value, name: &str, scenario: &Scenario) {
        let [uid, kind, namespace] =
            ["/metadata/uid", "/kind", "/metadata/namespace"].map(|at| text(object, at));
        let is_second = scenario.second_namespace.as_deref() == Some(namespace);
        let title = format!("UID-{kind}-{name}{}", if is_second { "-in-b" } else { "" });
        let number = self.number(&title);
        let title = if number == 1 { title } else { format!("{title}#{number}") };
        self.ids.insert(uid.to_owned(), title);
    }

    fn number(&mut self, title: &str) -> usize {
        let number = self.numbers.entry(title.to_owned()).or_default();
        *number += 1;
        *number
    }

    /// Learns the ids that Konnect has chosen in a step, in the order of their objects.
    pub(super) fn learn_ids(&mut self, konnect: &Konnect, log: &[Entry], scenario: &Scenario) {
        let mut new: BTreeMap<String, BTreeSet<(usize, u64, String)>> = BTreeMap::new();
        for (id, uid) in seen_ids(konnect, log) {
            let Some(Minted { collection, number }) = konnect.minted(&id) else { continue };
            if self.ids.contains_key(&id) {
                continue;
            }
            let place = self.applied.iter().position(|held| Some(held) == uid.as_ref());
            let place = place.unwrap_or(usize::MAX);
            new.entry(collection.clone()).or_default().insert((place, *number, id));
        }
        for (collection, ids) in new {
            let mut known = BTreeSet::new();
            for (_, _, id) in ids {
                if !known.insert(id.clone()) {
                    continue;
                }
                let count = self.counts.entry(collection.clone()).or_default();
                *count += 1;
                let name = match (collection.as_str(), *count) {
                    (ORGANIZATIONS, 1) => ORGANIZATION.to_owned(),
                    (ORGANIZATIONS, _) => other_organization(scenario),
                    (collection, count) => format!("ID-{collection}-{count}"),
                };
                self.ids.insert(id, name);
            }
        }
    }

    /// Returns a text in the form of the record.
    pub(super) fn shown(&self, text: &str) -> String {
        let id = |found: &Captures<'_>| {
            self.ids.get(&found[0]).cloned().unwrap_or_else(|| found[0].to_owned())
        };
        let short = |found: &Captures<'_>| {
            let whole = self.ids.iter().find(|(id, _)| id.starts_with(&found[1]));
            let shown =
                whole.map_or_else(|| found[1].to_owned(), |(_, name)| format!("{name}-short"));
            format!("{shown}{}", &found[2])
        };
        let shown = UID.replace_all(text, id);
        let shown = SHORT.replace_all(&shown, short);
        let shown = TRACE.replace_all(&shown, TRACED);
        let mut shown = TIME.replace_all(&shown, "TIME").into_owned();
        for (name, placeholder) in &self.made {
            shown = replaced(&shown, name, placeholder);
        }
        shown
    }

    /// Returns a value with all texts in the form of the record.
    pub(super) fn value(&self, value: &Value) -> Value {
        let shown = mapped(value, &mut |text| Ok(self.shown(text)));
        shown.unwrap_or_else(|error| error.to_string().into())
    }

    /// Returns a value of a scenario with the ids that stand for its placeholders.
    ///
    /// # Errors
    ///
    /// Fails if a placeholder is not known.
    pub(super) fn filled(&self, value: &Value) -> anyhow::Result<Value> {
        mapped(value, &mut |text| self.filled_text(text))
    }

    fn filled_text(&self, text: &str) -> anyhow::Result<String> {
        let mut filled = text.to_owned();
        for found in PLACEHOLDER.captures_iter(text) {
            let id = self.ids.iter().find(|(_, name)| **name == found[1]);
            let (id, _) = id.with_context(|| format!("`{}` stands for nothing", &found[0]))?;
            filled = filled.replace(&found[0], id);
        }
        if filled.contains("${") {
            bail!("`{text}` has a placeholder without an end");
        }
        Ok(filled)
    }
}

/// Returns the beginning of the name of a made object: what it asked the server to begin with, or
/// the name of its first owner that is of Kong.
fn prefix_of(object: &Value) -> Option<String> {
    let asked = text(object, "/metadata/generateName");
    if !asked.is_empty() {
        return Some(asked.to_owned());
    }
    let owner = owners(object).into_iter().find(|owner| owner.kind.starts_with("Kong"));
    owner.map(|owner| format!("{}-", owner.name))
}

/// Returns all identities in a log and in the stored data, each with the uid of its object.
fn seen_ids(konnect: &Konnect, log: &[Entry]) -> BTreeMap<String, Option<String>> {
    let mut seen: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut collections = BTreeSet::new();
    for entry in log {
        let body = entry.answer.as_ref().and_then(|answer| answer.body.as_ref());
        let answered = body.map(Value::to_string).unwrap_or_default();
        let ids = UID.find_iter(&entry.path).chain(UID.find_iter(&answered));
        ids.for_each(|id| _ = seen.entry(id.as_str().to_owned()).or_default());
        if entry.method == "POST" {
            collections.extend(entry.path.rsplit('/').next());
            let id =
                body.map(|body| text(body.get("item").unwrap_or(body), "/id")).unwrap_or_default();
            let uid = entry.body.as_ref().and_then(uid_of);
            if !id.is_empty() {
                seen.insert(id.to_owned(), uid);
            }
        }
    }
    for collection in collections {
        for entity in konnect.entities(collection) {
            let id = text(&entity, "/id").to_owned();
            let uid = uid_of(&entity);
            let held = seen.entry(id).or_default();
            *held = held.take().or(uid);
        }
    }
    seen
}

/// Returns the placeholder that the record has for a second organization.
fn other_organization(scenario: &Scenario) -> String {
    let objects = scenario.steps.iter().flat_map(|step| &step.objects);
    let ids = objects.flat_map(|object| {
        ["/organizationID", "/konnect/organizationID"].map(|at| text(&object.status, at))
    });
    let mut others = ids.filter(|id| id.len() > ORGANIZATION.len());
    others.next().map_or_else(|| format!("{ORGANIZATION}-2"), str::to_owned)
}

/// Replaces a name that stands alone: nothing that belongs to a name is beside it.
fn replaced(text: &str, name: &str, by: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    let (mut replaced, mut end) = (String::new(), 0);
    for (at, _) in text.match_indices(name) {
        let (before, after) = (&text[..at], &text[at + name.len()..]);
        if !before.ends_with(is_part) && !after.starts_with(is_part) {
            replaced += &text[end..at];
            replaced += by;
            end = at + name.len();
        }
    }
    replaced + &text[end..]
}

#[cfg(test)]
mod tests {
    use konnect_fake::log::Answered;
    use serde_json::json;

    use super::*;

    const FIRST: &str = "11111111-2222-3333-4444-555555555555";
    const SECOND: &str = "aaaaaaaa-2222-3333-4444-555555555555";

    fn scenario(objects: &str) -> Scenario {
        let text = format!(
            "about: a test\nsyncPeriod: 1h\nnamespace: a\nsecondNamespace: b\nsteps: [{{objects: {objects}}}]"
        );
        Scenario::parse("a", &text).unwrap()
    }

    fn service(namespace: &str, name: &str, uid: &str) -> Value {
        json!({"kind": "KongService", "metadata": {"name": name, "namespace": namespace, "uid": uid}})
    }

    #[test]
    fn uids_are_named_by_kind_name_and_namespace() {
        let (mut names, scenario) = (Names::default(), scenario("[]"));
        let third = SECOND.replace('a', "c");
        for (namespace, uid) in [("a", FIRST), ("a", SECOND), ("b", third.as_str())] {
            names.apply(&service(namespace, "svc", uid), &scenario);
        }
        let shown = names.shown(&format!("k8s-uid:{FIRST} {SECOND}|{third} 2026-01-01T00:00:00Z"));
        let expected =
            "k8s-uid:UID-KongService-svc UID-KongService-svc#2|UID-KongService-svc-in-b TIME";
        assert_eq!(shown, expected);
    }

    #[test]
    fn made_objects_have_the_name_of_the_recorded_one_with_their_spec() {
        let scenario = scenario(
            "[{kind: KongPluginBinding, name: p-NAME-1, owners: [{kind: KongPlugin, name: p}], spec: {a: 1}}, \
             {kind: KongPluginBinding, name: p-NAME-2, owners: [{kind: KongPlugin, name: p}], spec: {a: 2}}]",
        );
        let made = |name: &str, uid: &str, a: u8| {
            json!({
                "kind": "KongPluginBinding", "spec": {"a": a},
                "metadata": {"name": name, "namespace": "a", "uid": uid, "ownerReferences": [{"kind": "KongPlugin", "name": "p"}]},
            })
        };
        let mut names = Names::default();
        let objects = [made("p-x", FIRST, 2), made("p-xy", SECOND, 1)];
        names.learn_made(&objects, &scenario.steps[0].objects, &scenario);
        let shown = names.shown(&format!("p-x p-xy k8s-name:p-x p-x-1 {FIRST}"));
        assert_eq!(
            shown,
            "p-NAME-2 p-NAME-1 k8s-name:p-NAME-2 p-x-1 UID-KongPluginBinding-p-NAME-2"
        );
        assert!(names.is_made(&objects[0]));
    }

    #[test]
    fn placeholders_that_stand_for_nothing_are_refused() {
        let mut names = Names::default();
        names.ids.insert(FIRST.to_owned(), "ID-services-1".to_owned());
        let filled = names.filled(&json!({"id": "${ID-services-1}"})).unwrap();
        assert_eq!(filled, json!({"id": FIRST}));
        assert_eq!(
            names.shown("https://11111111.eu.cp0.konghq.com"),
            "https://ID-services-1-short.eu.cp0.konghq.com"
        );
        for text in ["${ID-services-2}", "${ID"] {
            assert!(names.filled_text(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_id_belongs_to_the_object_that_it_was_created_for() {
        let entry = Entry {
            number: 1,
            at: 0,
            method: "POST".to_owned(),
            host: String::new(),
            path: "/services".to_owned(),
            query: Vec::new(),
            token: None,
            body: Some(json!({"tags": [format!("k8s-uid:{SECOND}")]})),
            answer: Some(Answered {
                status: 201,
                headers: Vec::new(),
                body: Some(json!({"id": FIRST})),
            }),
            delay: 0,
            fault: false,
        };
        let seen = seen_ids(
            &Konnect::new(konnect_fake::Config::default()),
            &[Entry { path: "/x".to_owned(), ..entry }],
        );
        assert_eq!(seen[FIRST].as_deref(), Some(SECOND));
    }
}
