//! Whether an outcome is one that the host would carry out: whole, or not at all.
//!
//! What is refused is said in the host's words, so that a case means the same on both. Limits of size are not looked at.

mod manifest;
mod owner;
mod removal;

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    cluster::{Cluster, Resource},
    form,
    identity::{Identity, reference_of},
    known::{Query, fits, is_of, is_unconditional, without_any},
    path::Path,
};
use crate::{
    Deletion, Description, Event, Kind, Manifest, Mode, ObjectRef, Outcome, Reconciler, Selection,
    Verbs, WriteRule,
};

/// A checked outcome.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) finalizers: Option<Finalizers>,
    /// In the order of writing.
    pub(super) apply: Vec<Planned>,
    pub(super) patch: Vec<Planned>,
    pub(super) evict: Vec<Deletion>,
    pub(super) delete: Vec<Deletion>,
    pub(super) prune: Vec<Selection>,
    pub(super) status: Option<Value>,
    pub(super) events: Vec<Event>,
    /// It only tells how it went: what it does not hold is not given up.
    pub(super) is_report: bool,
}

/// The finalizers of the reconciled object.
pub(super) struct Finalizers {
    pub(super) wanted: Vec<String>,
    /// Declared, and not to be there.
    pub(super) released: Vec<String>,
}

/// A checked manifest.
pub(super) struct Planned {
    pub(super) to: ObjectRef,
    pub(super) class: Class,
    pub(super) object: Value,
    pub(super) create_only: bool,
    pub(super) leave: Vec<Path>,
    pub(super) absent: Vec<Path>,
    /// Owners that this outcome makes: index in `metadata.ownerReferences`, and the object.
    pub(super) made_owners: Vec<(usize, ObjectRef)>,
}

/// What is applied together: all of one class is tried before the next one begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    Namespace,
    Definition,
    Access,
    Configuration,
    Workload,
    Other,
}

/// The object that was reconciled.
pub(super) struct Reconciled {
    pub(super) reference: ObjectRef,
    pub(super) object: Option<Value>,
}

/// What an outcome is checked against.
pub(super) struct Check<'a> {
    pub(super) description: &'a Description,
    pub(super) reconciler: &'a Reconciler,
    pub(super) reconciled: &'a Reconciled,
    pub(super) cluster: &'a Cluster,
    /// The uids of what was read in this run.
    pub(super) read: &'a BTreeMap<Identity, String>,
}

/// What is wrong, and with what: `apply[0].object`, the object, the fault.
type Fault = (String, Option<String>, String);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Apply,
    Patch,
}

// === impl Reconciled ===

impl Reconciled {
    pub(super) fn uid(&self) -> Option<&str> {
        self.object.as_ref()?.pointer("/metadata/uid")?.as_str()
    }

    pub(super) fn is_deleting(&self) -> bool {
        let time =
            self.object.as_ref().and_then(|object| object.pointer("/metadata/deletionTimestamp"));
        time.is_some_and(|time| !time.is_null())
    }
}

// === impl Class ===

impl Class {
    pub(super) fn of(kind: &Kind) -> Self {
        match (kind.group.as_str(), kind.kind.as_str()) {
            ("", "Namespace") => Self::Namespace,
            ("apiextensions.k8s.io", "CustomResourceDefinition") => Self::Definition,
            ("rbac.authorization.k8s.io", _) | ("", "ServiceAccount") => Self::Access,
            (
                "",
                "ConfigMap"
                | "Secret"
                | "LimitRange"
                | "ResourceQuota"
                | "PersistentVolume"
                | "PersistentVolumeClaim",
            )
            | ("scheduling.k8s.io", "PriorityClass")
            | ("storage.k8s.io", "StorageClass") => Self::Configuration,
            ("", "Pod" | "ReplicationController")
            | ("apps", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
            | ("batch", "Job" | "CronJob") => Self::Workload,
            _ => Self::Other,
        }
    }
}

// === impl Check ===

impl Check<'_> {
    /// The plan of an outcome, or why there is none.
    pub(super) fn outcome(&self, outcome: &Outcome) -> Result<Plan, String> {
        self.try_outcome(outcome).map_err(|(place, object, fault)| {
            let object = object.map(|of| format!(" ({of})")).unwrap_or_default();
            format!("the outcome is not valid: `{place}`{object}: {fault}")
        })
    }

    /// The plan of what comes with a failure, or beside failed writes.
    pub(super) fn report(&self, status: Option<&str>, events: &[Event]) -> Result<Plan, String> {
        let outcome = Outcome {
            status: status.map(str::to_owned),
            events: events.to_vec(),
            ..Outcome::new()
        };
        Ok(Plan { is_report: true, ..self.outcome(&outcome)? })
    }

    fn try_outcome(&self, outcome: &Outcome) -> Result<Plan, Fault> {
        if !outcome.children.is_empty() {
            let fault = "child reconcilers are not supported by this version of the host";
            return Err(("children".to_owned(), None, fault.to_owned()));
        }
        let apply = manifest::heads("apply", &outcome.apply)?;
        let patch = manifest::heads("patch", &outcome.patch)?;
        let defined: Vec<Resource> =
            apply.iter().flat_map(|(_, object)| manifest::defined(object)).collect();
        let applied: Vec<ObjectRef> = apply.iter().map(|(to, _)| to.clone()).collect();
        let manifests = |heads: Vec<(ObjectRef, Value)>, of: &[Manifest], part| {
            let numbered = heads.into_iter().zip(of).enumerate();
            let checked: Result<Vec<Planned>, Fault> = numbered
                .map(|(index, ((to, object), manifest))| {
                    let place =
                        format!("{}[{index}]", if part == Part::Apply { "apply" } else { "patch" });
                    self.manifest((to, object), manifest, part, &place, (&defined, &applied))
                })
                .collect();
            checked
        };
        let mut plan = Plan {
            apply: manifests(apply, &outcome.apply, Part::Apply)?,
            patch: manifests(patch, &outcome.patch, Part::Patch)?,
            evict: self.removals("evict", &outcome.evict, Verbs::EVICT)?,
            delete: self.removals("delete", &outcome.delete, Verbs::DELETE)?,
            prune: self.prunes(&outcome.prune)?,
            finalizers: self.finalizers(outcome.finalizers.as_deref())?,
            status: self.status(outcome.status.as_deref())?,
            events: self.events(&outcome.events)?,
            is_report: false,
        };
        refuse_duplicates(&plan)?;
        plan.apply.sort_by_key(|planned| planned.class);
        Ok(plan)
    }

    fn manifest(
        &self,
        (to, object): (ObjectRef, Value),
        given: &Manifest,
        part: Part,
        place: &str,
        (defined, applied): (&[Resource], &[ObjectRef]),
    ) -> Result<Planned, Fault> {
        let at = |field: &str| {
            let (place, to) = (format!("{place}{field}"), shown(&to));
            move |fault: String| (place, Some(to), fault)
        };
        self.check_reference(&to, defined).map_err(at(".object.metadata"))?;
        let create_only = given.mode == Mode::Create;
        let verbs = match (part, create_only) {
            (Part::Patch, true) => {
                return Err(at("")("`mode` is refused: a patch never makes the object".to_owned()));
            }
            (Part::Patch, false) => Verbs::UPDATE,
            (Part::Apply, true) => Verbs::CREATE,
            (Part::Apply, false) => Verbs::CREATE | Verbs::UPDATE,
        };
        let rules = self.rules(verbs, &to).map_err(at(".object"))?;
        manifest::refuse_fields(&object, part).map_err(at(".object"))?;
        manifest::refuse_undeclared(&object, &rules, verbs).map_err(at(".object"))?;
        let made_owners = match part {
            Part::Apply => self.owners(&to, &object, applied).map_err(at(".object"))?,
            Part::Patch => Vec::new(),
        };
        let leave = manifest::paths(&given.leave, &rules, part).map_err(at(".leave"))?;
        let absent = manifest::paths(&given.absent, &rules, part).map_err(at(".absent"))?;
        if let (Part::Patch, Some(path)) = (part, given.leave.first()) {
            return Err(at(".leave")(format!(
                "`{path}` is refused: a patch never makes the object"
            )));
        }
        if let (true, Some(path)) = (create_only, given.absent.first()) {
            let why = "with mode `create` an object that exists is left alone";
            return Err(at(".absent")(format!("`{path}` is refused: {why}")));
        }
        let held = absent.iter().position(|path| !path.pointers(&object).is_empty());
        if let Some(path) = held.and_then(|index| given.absent.get(index)) {
            return Err(at(".absent")(format!("`{path}` is refused: the manifest holds it")));
        }
        if part == Part::Apply && !each(verbs).all(|verb| holds(&rules, verb, &object)) {
            return Err(at(".object")("``: lies outside of what is declared".to_owned()));
        }
        Ok(Planned {
            class: Class::of(&to.kind),
            to,
            object,
            create_only,
            leave,
            absent,
            made_owners,
        })
    }

    /// The declared rules by which an object may be written.
    pub(super) fn rules(&self, verbs: Verbs, to: &ObjectRef) -> Result<Vec<&WriteRule>, String> {
        let rules: Vec<&WriteRule> = self
            .description
            .writes
            .iter()
            .filter(|rule| {
                is_of(&rule.of.kind, &to.kind)
                    && fits(rule.of.namespace.as_ref(), to.namespace.as_ref())
                    && fits(rule.of.name.as_ref(), Some(&to.name))
                    && each_of(verbs).any(|verb| has(rule.verbs, verb))
            })
            .collect();
        let held = rules.iter().fold(Verbs::empty(), |held, rule| held | rule.verbs);
        if has(held, verbs) {
            return Ok(rules);
        }
        Err(format!("{} of {} is not declared", names(verbs ^ (verbs & held)), shown(to)))
    }

    /// Whether the live object is one that the declaration lets be written.
    pub(super) fn may_write(&self, verb: Verbs, to: &ObjectRef, live: &Value) -> bool {
        self.rules(verb, to).is_ok_and(|rules| holds(&rules, verb, live))
    }

    fn check_reference(&self, of: &ObjectRef, defined: &[Resource]) -> Result<(), String> {
        if !of.cluster.is_empty() {
            let what = "clusters other than the home cluster";
            return Err(format!("{what} are not supported by this version of the host"));
        }
        for (field, text) in [("namespace", of.namespace.as_deref()), ("name", Some(&*of.name))] {
            if text.is_some_and(|text| !form::is_name(text)) {
                return Err(format!("`{field}`: {}", form::NAME));
            }
        }
        if !form::is_kind(&of.kind) {
            return Err(format!("`kind`: {}", form::KIND));
        }
        let known = || defined.iter().find(|resource| resource.kind == of.kind).cloned();
        match self.cluster.resource(&of.kind).or_else(known).map(|resource| resource.namespaced) {
            Some(true) if of.namespace.is_none() => {
                Err("`namespace`: objects of this kind live in namespaces".to_owned())
            }
            Some(false) if of.namespace.is_some() => {
                Err("`namespace`: objects of this kind have no namespace".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn finalizers(&self, wanted: Option<&[String]>) -> Result<Option<Finalizers>, Fault> {
        let Some(wanted) = wanted else { return Ok(None) };
        let declared = &self.reconciler.finalizers;
        let refuse = |fault: String| {
            Err(("finalizers".to_owned(), Some(shown(&self.reconciled.reference)), fault))
        };
        for (index, name) in wanted.iter().enumerate() {
            if !declared.contains(name) {
                let accepted = if declared.is_empty() {
                    "the reconciler declares no finalizers".to_owned()
                } else {
                    format!("declared finalizers: `{}`", declared.join("`, `"))
                };
                return refuse(format!("`{name}` is not declared; {accepted}"));
            }
            if wanted.iter().take(index).any(|other| other == name) {
                return refuse(format!("`{name}`: a finalizer stands in the list once"));
            }
        }
        if self.reconciled.object.is_none() && !wanted.is_empty() {
            return refuse("``: there is no object to hold a finalizer".to_owned());
        }
        let released = declared.iter().filter(|name| !wanted.contains(name)).cloned().collect();
        Ok(Some(Finalizers { wanted: wanted.to_vec(), released }))
    }

    fn status(&self, status: Option<&str>) -> Result<Option<Value>, Fault> {
        let Some(json) = status else { return Ok(None) };
        let of = &self.reconciled.reference;
        let refuse = |fault: String| ("status".to_owned(), Some(shown(of)), fault);
        let mut status: Value =
            serde_json::from_str(json).map_err(|error| refuse(format!("not JSON: {error}")))?;
        if status.get("apiVersion").is_some() && status.get("kind").is_some() {
            let mut named = reference_of(&status);
            named.namespace = named.namespace.or_else(|| of.namespace.clone());
            if Identity::of_ref(&named) != Identity::of_ref(of) {
                let other = shown(&named);
                return Err(refuse(format!("`metadata`: the status of another object, {other}")));
            }
            status = status.get_mut("status").map_or(Value::Null, Value::take);
        }
        if !status.is_object() {
            return Err(refuse("``: a status is a JSON object".to_owned()));
        }
        if self.reconciled.object.is_none() {
            return Err(refuse("``: there is no object to hold a status".to_owned()));
        }
        if self.cluster.resource(&of.kind).is_some_and(|resource| !resource.status) {
            return Err(refuse("``: the kind has no status".to_owned()));
        }
        Ok(Some(status))
    }

    fn events(&self, events: &[Event]) -> Result<Vec<Event>, Fault> {
        /// The API server's own limit.
        const LONGEST_REASON: usize = 128;
        let reads = self.description.reads.iter();
        let known: Vec<&Selection> = reads
            .chain(self.description.reconcilers.iter().map(|reconciler| &reconciler.of))
            .chain(self.description.writes.iter().map(|rule| &rule.of))
            .collect();
        for (index, event) in events.iter().enumerate() {
            if let Some(on) = &event.on {
                let refuse =
                    |fault: String| (format!("events[{index}].on"), Some(shown(on)), fault);
                self.check_reference(on, &[]).map_err(refuse)?;
                let could_hold = |of: &&Selection| {
                    is_of(&of.kind, &on.kind)
                        && fits(of.namespace.as_ref(), on.namespace.as_ref())
                        && fits(of.name.as_ref(), Some(&on.name))
                };
                let is_own = Identity::of_ref(on) == Identity::of_ref(&self.reconciled.reference);
                if !is_own && !known.iter().any(could_hold) {
                    return Err(refuse(format!("{} is not declared", shown(on))));
                }
            }
            if event.reason.is_empty() || event.reason.len() > LONGEST_REASON {
                let fault = format!("`reason`: 1 to {LONGEST_REASON} bytes");
                return Err((format!("events[{index}]"), None, fault));
            }
        }
        Ok(events.to_vec())
    }
}

fn refuse_duplicates(plan: &Plan) -> Result<(), Fault> {
    let manifests = |list: &str, of: &[Planned]| -> Vec<(String, ObjectRef)> {
        let numbered = of.iter().enumerate();
        numbered.map(|(index, planned)| (format!("{list}[{index}]"), planned.to.clone())).collect()
    };
    let removals = |list: &str, of: &[Deletion]| -> Vec<(String, ObjectRef)> {
        let numbered = of.iter().enumerate();
        numbered
            .map(|(index, removal)| (format!("{list}[{index}]"), removal.ref_.clone()))
            .collect()
    };
    let apply = manifests("apply", &plan.apply);
    for others in [
        manifests("patch", &plan.patch),
        removals("delete", &plan.delete),
        removals("evict", &plan.evict),
    ] {
        let mut seen: BTreeMap<Identity, &String> = BTreeMap::new();
        for (place, of) in apply.iter().chain(&others) {
            if let Some(other) = seen.insert(Identity::of_ref(of), place) {
                let fault = format!("the object stands in `{other}` already");
                return Err((place.clone(), Some(shown(of)), fault));
            }
        }
    }
    Ok(())
}

// === rules and words ===

/// The verbs among these, one by one.
fn each_of(verbs: Verbs) -> impl Iterator<Item = Verbs> {
    let all = [Verbs::CREATE, Verbs::UPDATE, Verbs::DELETE, Verbs::EVICT];
    all.into_iter().filter(move |verb| has(verbs, *verb))
}

fn each(verbs: Verbs) -> impl Iterator<Item = Verbs> {
    [Verbs::CREATE, Verbs::UPDATE].into_iter().filter(move |verb| has(verbs, *verb))
}

/// Whether an object with these labels and fields may be written.
fn holds(rules: &[&WriteRule], verb: Verbs, object: &Value) -> bool {
    rules.iter().filter(|rule| has(rule.verbs, verb)).any(|rule| {
        let identity = Identity::of(object);
        // Kind and names fit already; any kind has none to compare.
        let of = Selection {
            kind: Kind::new(identity.group, "", identity.kind),
            namespace: None,
            name: None,
            ..without_any(&rule.of)
        };
        is_unconditional(&of) || Query::new(&of).is_ok_and(|query| query.matches(object))
    })
}

fn has(verbs: Verbs, wanted: Verbs) -> bool {
    verbs & wanted == wanted
}

fn names(verbs: Verbs) -> String {
    let all = [
        (Verbs::CREATE, "`create`"),
        (Verbs::UPDATE, "`update`"),
        (Verbs::DELETE, "`delete`"),
        (Verbs::EVICT, "`evict`"),
    ];
    let held = all.iter().filter(|(verb, _)| has(verbs, *verb)).map(|(_, name)| *name);
    held.collect::<Vec<_>>().join(", ")
}

/// Kind, version and place of an object, as the host's messages name it.
pub(super) fn shown(of: &ObjectRef) -> String {
    let group =
        if of.kind.group.is_empty() { String::new() } else { format!("{}/", of.kind.group) };
    let namespace =
        of.namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    format!("{} {group}{} `{namespace}{}`", of.kind.kind, of.kind.version, of.name)
}
