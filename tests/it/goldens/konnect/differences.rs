//! The rules by which ours differs from the original on purpose. What a rule expects is computed
//! here, for all scenarios alike; why ours differs is in `tests/goldens-differ-konnect.yaml`, by
//! the rule's name.

mod rules;

use std::collections::{BTreeMap, BTreeSet};

use self::rules::RULES;
use super::{
    format::{Scenario, Step},
    request::{Request, Timed},
    state::State,
};
use crate::goldens::scenario::{self, Reasons};

/// What a step leads to.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Consequences {
    pub(super) requests: Vec<Request>,
    pub(super) objects: State,
}

/// What a rule may look at.
pub(super) struct Facts<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) step: &'a Step,
    /// The steps before it.
    pub(super) earlier: &'a [Step],
    /// The steps after it.
    pub(super) later: &'a [Step],
    /// What the step has led to with ours.
    pub(super) ours: &'a Consequences,
    /// What ours has sent in earlier steps.
    pub(super) history: &'a History,
}

/// The requests in earlier steps: those of ours, if nothing else is said.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The calls of each pass.
    asked: BTreeSet<String>,
    /// The calls of each pass of the original.
    recorded: BTreeSet<String>,
    /// The last write for each object or entity, with its answer.
    sent: BTreeMap<String, Request>,
    /// The create of each entity that is there, by its path.
    created: BTreeMap<String, Request>,
    /// The paths of the entities that are gone.
    deleted: BTreeSet<String>,
}

/// The reasons of all rules, by name.
pub(super) struct Differences(Reasons);

// === impl History ===

impl History {
    /// Learns the requests of a step, in the record and of ours.
    pub(super) fn learn(&mut self, step: &Step, timed: &[Timed]) {
        let of_pass = step.requests.iter().filter(|request| request.is_of_each_pass());
        self.recorded.extend(of_pass.map(Request::key));
        for Timed { request, .. } in timed {
            if request.is_of_each_pass() {
                self.asked.insert(request.key());
            }
            if !request.is_read() {
                self.sent.insert(request.place(), request.clone());
            }
            let is_at_uid = request.uid().is_some_and(|uid| request.path.ends_with(&uid));
            match (request.method.as_str(), &request.answer.id) {
                ("POST", Some(_)) => _ = self.created.insert(request.entity(), request.clone()),
                ("PUT", Some(_)) if is_at_uid => {
                    _ = self.created.insert(request.path.clone(), request.clone());
                }
                ("DELETE", _) if !request.has_failed() => {
                    self.created.remove(&request.path);
                    self.deleted.insert(request.path.clone());
                }
                _ => {}
            }
            if request.method != "DELETE" && !request.is_read() && !request.has_failed() {
                self.deleted.remove(&request.entity());
            }
        }
    }
}

// === impl Differences ===

impl Differences {
    pub(super) fn read() -> Self {
        let rules = RULES.iter().map(|(name, _)| *name);
        Self(scenario::reasons("goldens-differ-konnect.yaml", rules))
    }

    /// Returns no rules.
    pub(super) fn none() -> Self {
        Self(Reasons::new())
    }

    /// Returns what is expected of ours, and the reasons why it differs from the record.
    pub(super) fn apply(
        &self,
        facts: &Facts<'_>,
        record: &Consequences,
    ) -> (Consequences, BTreeSet<String>) {
        let rules = RULES
            .iter()
            .map(|(name, rule)| (*name, |expected: &mut Consequences| rule(facts, expected)));
        let (mut expected, reasons) = scenario::apply_rules(&self.0, rules, record);
        if facts.step.requests_in_any_order {
            expected.requests.sort_by_cached_key(Request::key);
        }
        (expected, reasons)
    }
}
