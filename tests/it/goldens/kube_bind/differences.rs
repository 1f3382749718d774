//! The rules by which ours differs from the original on purpose. What a rule expects is computed
//! here, for all scenarios alike; why ours differs is in `tests/goldens-differ-kube-bind.yaml`, by
//! the rule's name.

mod claims;
mod deletion;
mod foreign;
mod objects;
mod present;
mod rules;
mod served;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::Value;

use self::{present::present, rules::RULES};
use super::{
    format::Step,
    state::{Key, State},
};
use crate::goldens::scenario::{self, Reasons, fields};

/// The rule that is applied after all others.
const AT_ONCE: &str = "noticed-at-once";

/// What a rule may look at.
pub(super) struct Facts<'a> {
    /// The state of ours.
    pub(super) actual: &'a State,
    /// The state of ours after the step before.
    pub(super) before: &'a State,
    /// The last form of each object that the record no longer has.
    pub(super) removed: &'a State,
    /// The objects that actions have deleted.
    pub(super) deleted: &'a BTreeSet<Key>,
    /// The objects that the record has lost at any time, and not by an action.
    pub(super) lost: &'a BTreeSet<Key>,
    /// The objects of ours as actions have left them.
    pub(super) given: &'a State,
    /// The former specs of each object at home.
    pub(super) former: &'a BTreeMap<Key, Vec<Value>>,
    /// The clusters with a good kubeconfig that cannot be reached, by name, and since when.
    pub(super) unreachable: &'a BTreeMap<String, Duration>,
    /// True if the processor runs.
    pub(super) is_running: bool,
    /// The steps that follow.
    pub(super) later: &'a [Step],
}

impl Facts<'_> {
    /// Returns whether ours has an object.
    fn is_there(&self, key: &Key) -> bool {
        self.actual.contains_key(key)
    }
}

/// The reasons of all rules, by name.
pub(super) struct Differences(Reasons);

// === impl Differences ===

impl Differences {
    pub(super) fn read() -> Self {
        let rules = RULES.iter().map(|(name, _)| *name).chain([AT_ONCE]);
        Self(scenario::reasons("goldens-differ-kube-bind.yaml", rules))
    }

    /// Returns no rules.
    pub(super) fn none() -> Self {
        Self(Reasons::new())
    }

    /// Returns the state that is expected of ours, and the reasons why it differs from the record.
    pub(super) fn apply(&self, facts: &Facts<'_>, record: &State) -> (State, BTreeSet<String>) {
        let (mut expected, mut reasons) = self.apply_rules(facts, record);
        if let Some(reason) = self.0.get(AT_ONCE)
            && self.notice(facts, record, &mut expected)
        {
            // What was noticed has consequences, to which the rules apply.
            let (after, more) = self.apply_rules(facts, &expected);
            reasons.extend(more);
            reasons.insert(reason.clone());
            expected = after;
        }
        (expected, reasons)
    }

    fn apply_rules(&self, facts: &Facts<'_>, record: &State) -> (State, BTreeSet<String>) {
        let rules = RULES.iter();
        let rules = rules.map(|(name, rule)| (*name, |expected: &mut State| rule(facts, expected)));
        scenario::apply_rules(&self.0, rules, record)
    }

    /// Expects ours to have already what the other objects ask for, or what the original has from a
    /// later step on, when something else makes it look. Returns whether there is such a part.
    fn notice(&self, facts: &Facts<'_>, record: &State, expected: &mut State) -> bool {
        let mut keys: BTreeSet<Key> = expected.keys().chain(facts.actual.keys()).cloned().collect();
        keys.retain(|key| expected.get(key) != facts.actual.get(key));
        let mut is_anywhere = false;
        for key in keys {
            let actual = facts.actual.get(&key);
            let mut futures = futures(&key, record, facts.later);
            if let Some(form) = present(&key, record, facts).filter(|_| facts.is_running) {
                let mut state = record.clone();
                state.insert(key.clone(), form);
                futures.push(state);
            }
            let futures: Vec<Option<Value>> = futures
                .iter()
                .map(|future| self.apply_rules(facts, future).0.remove(&key))
                .collect();
            let fits = match (actual, expected.get(&key)) {
                (Some(actual), Some(expected)) => fields(actual, expected).all(|field| {
                    let is_so = |one: &Value| one.get(field) == actual.get(field);
                    is_so(expected) || futures.iter().flatten().any(is_so)
                }),
                (actual, _) => futures.iter().any(|future| future.as_ref() == actual),
            };
            if fits {
                match actual {
                    Some(object) => expected.insert(key, object.clone()),
                    None => expected.remove(&key),
                };
                is_anywhere = true;
            }
        }
        is_anywhere
    }
}

/// Returns the state with one object as it is after each of the later steps that change it.
fn futures(key: &Key, record: &State, later: &[Step]) -> Vec<State> {
    let mut state = record.clone();
    let mut futures = Vec::new();
    for step in later {
        let changes = step.after.iter().filter(|after| after.key() == *key);
        let is_changed = changes.map(|after| after.apply(&mut state)).fold(false, |_, _| true);
        let is_gone = step.gone.contains(key) && state.remove(key).is_some();
        if is_changed || is_gone {
            futures.push(state.clone());
        }
    }
    futures
}
