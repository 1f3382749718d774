//! Cases of the table of permissions: a [`Way`] as a Processor, with right and declaration or with
//! only one of them; its objects, and the expected conditions, log lines and metrics.

use std::fmt;

use mortise_sdk::{Description, Reconciler, Selection};
use mortise_tests::cluster::Event;
use serde_json::{Value, json};

use super::{
    Seen,
    way::{Through, Way, guest_kind, nothing},
};
use crate::{
    cluster::{
        ground::{Ground, Rights},
        kind,
    },
    host::merge,
};

/// The rights that every account here has in addition: to read reconciled objects, and to write
/// events.
const RECONCILES: Rights<'static> =
    &[("configmaps services", "get list watch"), ("events", "create patch")];

/// The right and the declaration of a way, both or one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Has {
    Both,
    /// The account lacks the right.
    Declaration,
    /// The processor declares nothing of it.
    Right,
}

/// A case: a Processor, its account and its objects, all of the same name.
pub(super) struct Case<'a> {
    way: &'a Way,
    pub(super) has: Has,
    namespace: String,
}

/// An expected condition: its type, status and reason, and possible parts of its message.
type Said = (&'static str, &'static str, &'static str, Vec<String>);

// === impl Case ===

impl fmt::Display for Case<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {:?}", self.way.name, self.has)
    }
}

impl<'a> Case<'a> {
    pub(super) fn all(ways: &'a [Way], namespace: &str) -> Vec<Self> {
        let case = |way, has| Self { way, has, namespace: namespace.to_owned() };
        let all = [Has::Both, Has::Declaration, Has::Right];
        ways.iter().flat_map(|way| all.map(|has| case(way, has))).collect()
    }

    pub(super) fn account(&self) -> String {
        format!("{}-{:?}", self.way.name, self.has).to_lowercase()
    }

    /// Returns the processor's name in the host.
    fn processor(&self) -> String {
        format!("{}/{}", self.namespace, self.account())
    }

    /// Creates the account and the objects, then the Processor.
    pub(super) async fn set_up(&self, ground: &Ground) {
        ground.account(&self.account(), &self.rights()).await;
        ground.consent(&self.account()).await;
        let mut objects = self.objects();
        if let Some(first) = self.way.first {
            let script = first(&self.namespace, &self.account()).to_string();
            objects[1]["data"] = json!({"script": script});
        }
        ground.apply(objects).await;
        let config = json!({
            "description": self.description(), "script": (self.way.script)(&self.namespace),
        });
        ground
            .apply(vec![json!({
                "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor",
                "metadata": ground.named(&self.account()),
                "spec": {
                    "module": {"path": "puppet.wasm"}, "serviceAccountName": self.account(),
                    "config": config,
                },
            })])
            .await;
    }

    /// Returns a description with one reconciler, for objects labelled with the account's name.
    /// Without a declaration, `ConfigMaps` are reconciled.
    fn description(&self) -> Description {
        let of = if self.has == Has::Right { "v1/ConfigMap" } else { self.way.of };
        let mine = format!("play={}", self.account());
        let of = Selection::new(guest_kind(of)).namespace(&self.namespace).labels(mine);
        let mut description =
            Description::new("puppet", "1.0.0").reconciles(Reconciler::new("objects", of));
        (self.way.besides)(&mut description, &self.namespace);
        if self.has != Has::Right {
            (self.way.declare)(&mut description, &self.namespace, &self.account());
        }
        description
    }

    fn rights(&self) -> Vec<(&'static str, &'static str)> {
        let all = RECONCILES.iter().chain(self.way.rights).copied();
        if self.has == Has::Declaration {
            // The common rights may include the lacking one; it is removed there too.
            all.filter(|right| *right != self.way.lacking).collect()
        } else {
            all.chain([self.way.lacking]).collect()
        }
    }

    /// Returns the object that the way is about, and the reconciled `ConfigMap`.
    pub(super) fn objects(&self) -> Vec<Value> {
        let account = self.account();
        let metadata = json!({"metadata": {
            "namespace": self.namespace, "name": account, "labels": {"play": account},
        }});
        [(self.way.before)(), nothing()]
            .map(|mut object| {
                merge(&mut object, &metadata);
                object
            })
            .to_vec()
    }

    /// Returns the name of the Secret that is created before, if there is one.
    pub(super) fn former(&self) -> Option<String> {
        self.way.first.map(|_| format!("{}-former", self.account()))
    }

    /// Returns what is wrong or missing in the conditions, the log and the metrics.
    pub(super) fn untold(&self, seen: &Seen) -> Option<String> {
        let fault = self.untold_in_status(seen).or_else(|| self.untold_elsewhere(seen));
        fault.map(|fault| format!("{self}: {fault}"))
    }

    fn untold_in_status(&self, seen: &Seen) -> Option<String> {
        let conditions = &seen.processors[&self.account()]["status"]["conditions"];
        let is_so = |(of, status, reason, parts): &Said| {
            conditions.as_array().into_iter().flatten().any(|condition| {
                let message = condition["message"].as_str().unwrap_or_default();
                condition["type"] == *of
                    && condition["status"] == *status
                    && condition["reason"] == *reason
                    && parts.iter().any(|part| message.contains(part.as_str()))
            })
        };
        let said = self.said();
        let missing = said.iter().find(|said| !is_so(said))?;
        Some(format!("it does not say {missing:?}, but {conditions:#}"))
    }

    /// Returns the expected conditions.
    fn said(&self) -> [Said; 2] {
        let synced = |status, reason, parts| ("Synced", status, reason, parts);
        let runs = ("Ready", "True", "Runs", vec!["runs".to_owned()]);
        match (self.has, self.way.place) {
            (Has::Both, _) => [synced("True", "Synced", vec!["reconciled".into()]), runs],
            (Has::Declaration, _) => [
                synced("False", "Denied", self.lacking()),
                ("Ready", "False", "RightsMissing", self.lacking()),
            ],
            (Has::Right, None) => [synced("False", "Denied", vec!["is not declared".into()]), runs],
            // The status is that of the reconciled object or invalid: no declaration is needed or
            // possible.
            (Has::Right, Some("status")) => {
                let parts = vec!["the outcome is not valid: `status`".to_owned()];
                [synced("False", "ObjectsFail", parts), runs]
            }
            (Has::Right, Some(place)) => {
                [synced("False", "Denied", vec![format!("`{place}")]), runs]
            }
        }
    }

    /// Returns the possible reports of the lacking right; of several verbs, the one that was needed
    /// first is reported.
    fn lacking(&self) -> Vec<String> {
        let (resource, verbs) = self.way.lacking;
        verbs.split(' ').map(|verb| format!("may not {verb} {resource} ")).collect()
    }

    fn untold_elsewhere(&self, seen: &Seen) -> Option<String> {
        let (is_denied, is_failed) = (self.is_logged(seen, "denied: "), self.is_refused(seen));
        let denied = self.counted(seen, "mortise_denied_total");
        let (_, verbs) = self.way.lacking;
        let counts = |verb: &str| denied.iter().any(|of| of.contains(&format!("verb=\"{verb}\"")));
        match (self.has, self.way.place) {
            (Has::Both, _) if is_denied => Some("a denial is in the log".into()),
            (Has::Both, _) => {
                (!denied.is_empty()).then(|| format!("it is called a denial: {denied:?}"))
            }
            (Has::Declaration, _)
                if !self
                    .lacking()
                    .iter()
                    .any(|of| self.is_logged(seen, &format!("denied: {of}"))) =>
            {
                Some("no line in the log".into())
            }
            (Has::Right, None) if !is_denied => Some("no line in the log".into()),
            (Has::Declaration, _) | (Has::Right, None) => {
                (!verbs.split(' ').any(counts)).then(|| format!("not counted: {denied:?}"))
            }
            (Has::Right, Some(place)) => {
                let declarable = place != "status";
                if !is_failed || is_denied != declarable {
                    return Some("no line in the log, or one too many".into());
                }
                let failed = self.counted(seen, "mortise_reconciles_total");
                let is_counted = failed.iter().any(|of| of.contains("result=\"failure\""));
                let is_all = is_counted && denied.is_empty() != declarable;
                (!is_all).then(|| format!("not counted: {failed:?}, {denied:?}"))
            }
        }
    }

    /// Returns whether a warning about the processor begins with this text.
    fn is_logged(&self, seen: &Seen, begins: &str) -> bool {
        let processor = self.processor();
        seen.log.iter().any(|line| {
            let message = line["message"].as_str().unwrap_or_default();
            line["level"] == "WARN" && line["processor"] == processor && message.starts_with(begins)
        })
    }

    /// Returns whether the log says that an outcome was refused because of this way.
    fn is_refused(&self, seen: &Seen) -> bool {
        let place = format!("`{}", self.way.place.unwrap_or_default());
        self.lines(seen, "a reconcile failed").any(|line| {
            let failure = line["failure"].as_str().unwrap_or_default();
            line["level"] == "WARN" && failure.contains(&place)
        })
    }

    /// Returns the log lines of the processor's runs.
    fn lines<'s>(&self, seen: &'s Seen, message: &str) -> impl Iterator<Item = &'s Value> {
        let processor = self.processor();
        seen.log.iter().filter(move |line| {
            line["message"] == message && line["span"]["processor"] == processor
        })
    }

    /// Returns the series of a metric that are about the processor.
    fn counted<'s>(&self, seen: &'s Seen, metric: &str) -> Vec<&'s str> {
        let (begins, of) = (format!("{metric}{{"), format!("processor=\"{}\"", self.processor()));
        let lines = seen.metrics.lines();
        lines.filter(|line| line.starts_with(&begins) && line.contains(&of)).collect()
    }

    pub(super) async fn is_through(&self, ground: &Ground, seen: &Seen) -> bool {
        let name = self.account();
        let get =
            async |of: &str, ending: &str| ground.get(&kind(of), &format!("{name}{ending}")).await;
        let holds = |object: Option<Value>, place: &str| {
            object.is_some_and(|object| object.pointer(place).is_some())
        };
        match self.way.through {
            Through::Answered => self.answers(seen).iter().any(|answer| answer.get("Ok").is_some()),
            Through::There(of) => get(of, "").await.is_some(),
            Through::Gone(of, ending) => {
                let object = get(of, ending).await;
                object.is_none() || holds(object, "/metadata/deletionTimestamp")
            }
            Through::Holds(of, place) => holds(get(of, "").await, place),
            Through::Lacks(of, place) => !holds(get(of, "").await, place),
            Through::Event(reason) => {
                let events = ground.list(&kind("v1/Event")).await;
                events.iter().any(|event| {
                    event["reason"] == reason && event["involvedObject"]["name"] == *name
                })
            }
        }
    }

    /// Returns the answers to the processor's reads, of which there is at least one.
    fn answers(&self, seen: &Seen) -> Vec<Value> {
        let answer = |line: &Value| {
            let text = line["fields"].as_str().unwrap();
            let fields: Option<Value> = serde_json::from_str(text).ok();
            let whole =
                fields.and_then(|fields| serde_json::from_str(fields["answer"].as_str()?).ok());
            // The log cuts long answers; refusals are never long.
            whole.unwrap_or_else(|| {
                assert!(text.starts_with(r#"{"answer":"{\"Ok\""#), "{text}");
                json!({"Ok": null})
            })
        };
        let answers: Vec<Value> = self.lines(seen, "read").map(answer).collect();
        assert!(!answers.is_empty(), "{self}: nothing was read");
        answers
    }

    /// Returns whether the case makes a write that succeeds.
    pub(super) fn writes(&self) -> bool {
        self.has == Has::Both && self.way.place.is_some()
    }

    /// Returns whether the host may send this request on behalf of the case's account. Without a
    /// declaration, only reads, events and the first script's writes are allowed, and to ask for the
    /// account's own rights.
    pub(super) fn may_ask(&self, event: &Event) -> bool {
        let is_read = ["get", "list", "watch"].contains(&event.verb.as_str());
        let is_first = self.way.first.is_some() && event.verb == "patch";
        let is_other = ["events", "selfsubjectaccessreviews"].contains(&&*event.resource());
        self.has != Has::Right || is_read || is_first || is_other
    }
}
