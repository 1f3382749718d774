//! Which Processors declare which finalizers. Two that hold one finalizer on one object would take it from each other: the one
//! whose work is done lets the object go, and the other's is never done. So the older Processor has it.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::watch as latest;

use super::fault::Fault;
use crate::{
    contract::{Description, Selection},
    labels::{LabelSelector, Test},
};

/// All that is declared.
#[derive(Debug)]
pub(super) struct Claims {
    all: Mutex<BTreeMap<Arc<str>, Claim>>,
    changes: latest::Sender<u64>,
}

/// What one Processor declares.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Claim {
    /// When its resource was made.
    since: String,
    of: Vec<Held>,
}

/// A finalizer, and the objects that it may be put on.
#[derive(Debug, Clone, PartialEq)]
struct Held {
    finalizer: String,
    on: Selection,
}

// === impl Claims ===

impl Default for Claims {
    fn default() -> Self {
        Self { all: Mutex::default(), changes: latest::Sender::new(0) }
    }
}

impl Claims {
    /// Moves when Processors declare other finalizers, or go.
    pub(super) fn changes(&self) -> latest::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Notes what a Processor declares; refused if an older one declares the same.
    pub(super) fn claim(&self, name: &Arc<str>, claim: &Claim) -> Result<(), Fault> {
        let mut all = self.all.lock();
        let before = all.insert(Arc::clone(name), claim.clone());
        let older =
            all.iter().filter(|(other, theirs)| (&theirs.since, *other) < (&claim.since, name));
        let shared =
            older.into_iter().find_map(|(other, theirs)| Some((other, claim.shares(theirs)?)));
        let result = shared.map_or(Ok(()), |(other, held)| {
            let kind = &held.on.kind.kind;
            let message = format!(
                "the Processor `{other}` declares the finalizer `{}` of {kind} too, and is older: only one of them may hold it; delete one, or let them select other objects",
                held.finalizer
            );
            Err(Fault::ending("FinalizerShared", message))
        });
        drop(all);
        if before.as_ref() != Some(claim) {
            self.changes.send_modify(|count| *count += 1);
        }
        result
    }

    /// What is said of those that wait for a Processor to go.
    pub(super) fn waiting_for(&self, name: &Arc<str>) -> Vec<String> {
        let all = self.all.lock();
        let Some(claim) = all.get(name) else { return Vec::new() };
        let younger =
            all.iter().filter(|(other, theirs)| (&theirs.since, *other) > (&claim.since, name));
        let shared = younger.filter_map(|(other, theirs)| Some((other, claim.shares(theirs)?)));
        let said = shared.map(|(other, held)| {
            let kind = &held.on.kind.kind;
            format!("the Processor `{other}` declares the finalizer `{}` of {kind} too, is younger, and is not run", held.finalizer)
        });
        said.collect()
    }

    /// A Processor is gone.
    pub(super) fn forget(&self, name: &Arc<str>) {
        if self.all.lock().remove(name).is_some() {
            self.changes.send_modify(|count| *count += 1);
        }
    }
}

// === impl Claim ===

impl Claim {
    pub(super) fn new(since: String, description: &Description) -> Self {
        let held = description.reconcilers.iter().flat_map(|reconciler| {
            let on = &reconciler.of;
            reconciler
                .finalizers
                .iter()
                .map(|finalizer| Held { finalizer: finalizer.clone(), on: on.clone() })
        });
        Self { since, of: held.collect() }
    }

    /// What either claims.
    pub(super) fn and(mut self, other: &Self) -> Self {
        for held in &other.of {
            if !self.of.contains(held) {
                self.of.push(held.clone());
            }
        }
        self
    }

    /// What both declare.
    fn shares(&self, other: &Self) -> Option<&Held> {
        let is_shared = |mine: &&Held| {
            other
                .of
                .iter()
                .any(|theirs| mine.finalizer == theirs.finalizer && overlap(&mine.on, &theirs.on))
        };
        self.of.iter().find(is_shared)
    }
}

/// Whether an object may be in both selections, as far as they show it.
fn overlap(one: &Selection, other: &Selection) -> bool {
    let agree = |one: &Option<String>, other: &Option<String>| {
        one.is_none() || other.is_none() || one == other
    };
    let kinds = (&one.kind.group, &one.kind.kind) == (&other.kind.group, &other.kind.kind);
    kinds
        && agree(&one.namespace, &other.namespace)
        && agree(&one.name, &other.name)
        && !are_apart(&one.labels, &other.labels)
}

/// Whether no labels fit both selectors: some label would have to have two values.
fn are_apart(one: &str, other: &str) -> bool {
    let (Ok(one), Ok(other)) = (LabelSelector::parse(one), LabelSelector::parse(other)) else {
        return false;
    };
    let excludes = |mine: &Test, theirs: &Test| match (mine, theirs) {
        (Test::In(mine), Test::In(theirs)) => mine.is_disjoint(theirs),
        (Test::In(mine), Test::NotIn(theirs)) => mine.is_subset(theirs),
        (Test::Absent, Test::In(_) | Test::Exists) => true,
        _ => false,
    };
    one.requirements().iter().any(|mine| {
        let mut theirs = other.requirements().iter().filter(|theirs| theirs.key == mine.key);
        theirs
            .any(|theirs| excludes(&mine.test, &theirs.test) || excludes(&theirs.test, &mine.test))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Kind;

    fn selection(kind: &str, namespace: Option<&str>, labels: &str) -> Selection {
        Selection {
            cluster: String::new(),
            kind: Kind { group: "x.dev".into(), version: "v1".into(), kind: kind.into() },
            namespace: namespace.map(str::to_owned),
            name: None,
            labels: labels.into(),
            matching: Vec::new(),
            fields: Vec::new(),
        }
    }

    fn claim(since: &str, finalizer: &str, on: Selection) -> Claim {
        Claim { since: since.into(), of: vec![Held { finalizer: finalizer.into(), on }] }
    }

    #[test]
    fn of_two_with_one_finalizer_the_older_has_it_whoever_comes_first() {
        let (old, young): (Arc<str>, Arc<str>) = ("b/old".into(), "a/young".into());
        let of = || selection("Rule", None, "");
        for old_first in [true, false] {
            let claims = Claims::default();
            let (mine, theirs) = (claim("2025", "f", of()), claim("2026", "f", of()));
            if old_first {
                claims.claim(&old, &mine).unwrap();
            }
            let refused = claims.claim(&young, &theirs);
            assert_eq!(refused.is_err(), old_first);
            claims.claim(&old, &mine).unwrap();
            let fault = claims.claim(&young, &theirs).unwrap_err();
            assert!(
                fault
                    .message
                    .contains("`b/old` declares the finalizer `f` of Rule too, and is older"),
                "{}",
                fault.message
            );
            assert_eq!(claims.waiting_for(&old).len(), 1);
            assert!(claims.waiting_for(&young).is_empty());
            claims.forget(&old);
            claims.claim(&young, &theirs).unwrap();
        }
    }

    #[test]
    fn selections_that_no_object_is_in_at_once_may_share_a_finalizer() {
        let all = || selection("Rule", None, "");
        let cases = [
            ("another kind", selection("Other", None, ""), all(), false),
            ("one and all namespaces", selection("Rule", Some("a"), ""), all(), true),
            (
                "two namespaces",
                selection("Rule", Some("a"), ""),
                selection("Rule", Some("b"), ""),
                false,
            ),
            (
                "two values",
                selection("Rule", None, "class=a"),
                selection("Rule", None, "class=b"),
                false,
            ),
            (
                "values that meet",
                selection("Rule", None, "class in (a,b)"),
                selection("Rule", None, "class in (b,c)"),
                true,
            ),
            (
                "one and no value",
                selection("Rule", None, "class=a"),
                selection("Rule", None, "!class"),
                false,
            ),
            (
                "one and not that",
                selection("Rule", None, "class=a"),
                selection("Rule", None, "class!=a"),
                false,
            ),
            ("two labels", selection("Rule", None, "a=1"), selection("Rule", None, "b=2"), true),
        ];
        for (case, one, other, expected) in cases {
            assert_eq!(overlap(&one, &other), expected, "{case}");
            assert_eq!(overlap(&other, &one), expected, "{case}, the other way round");
        }
    }

    #[test]
    fn only_what_is_new_is_told() {
        let (claims, name): (Claims, Arc<str>) = (Claims::default(), "a/b".into());
        let of = || claim("2025", "f", selection("Rule", None, ""));
        claims.claim(&name, &of()).unwrap();
        let changes = claims.changes();
        claims.claim(&name, &of()).unwrap();
        assert!(!changes.has_changed().unwrap());
        claims.forget(&name);
        assert!(changes.has_changed().unwrap());
    }
}
