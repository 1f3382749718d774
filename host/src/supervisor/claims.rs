//! Which Processors hold which finalizers. Two that hold one finalizer on one object would take it from each other: the one whose work
//! is done lets the object go, and the other's is never done. So the first that claims it has it.
//!
//! *Guarantees.* A claim holds until its Processor gives it up, loses the right to patch the objects or is gone; a later one changes
//! nothing for it. It holds over restarts and changes of the leader: it is in the status of the Processor, and what statuses say is
//! noted before anything is claimed.
//!
//! *Assumption.* Nobody but hosts writes the statuses of Processors. Even so, what one says counts only as far as the account of
//! the Processor may patch the objects.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::watch as latest;

use super::fault::Fault;
use crate::{
    api::{HeldFinalizer, Processor},
    contract::Description,
    labels::{LabelSelector, Test},
    lease::Guard,
};

/// The reason of a Processor whose finalizer another one holds.
pub(super) const SHARED: &str = "FinalizerShared";

/// All that is held.
#[derive(Debug)]
pub(super) struct Claims {
    /// Only the host that leads claims. The others know what its statuses say.
    lease: Guard,
    all: Mutex<BTreeMap<Arc<str>, Entry>>,
    changes: latest::Sender<u64>,
    listed: latest::Sender<bool>,
}

/// What one Processor holds.
#[derive(Debug, Default)]
struct Entry {
    held: Vec<HeldFinalizer>,
    /// Whether this host has decided so. Then the status follows, and not the other way round.
    is_decided: bool,
}

/// What one version claims.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Claim(Vec<HeldFinalizer>);

// === impl Claims ===

impl Claims {
    pub(super) fn new(lease: &Guard) -> Self {
        Self {
            lease: lease.clone(),
            all: Mutex::default(),
            changes: latest::Sender::new(0),
            listed: latest::Sender::new(false),
        }
    }

    /// Moves when something is not held any more, or another host has let a Processor hold something.
    pub(super) fn changes(&self) -> latest::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Notes what the status of a Processor says that it holds.
    pub(super) fn note(&self, name: &Arc<str>, processor: &Processor) {
        let held = processor.status.as_ref().map(|status| status.finalizers.clone());
        let held = held.unwrap_or_default();
        let mut all = self.all.lock();
        let known = all.get(name);
        if known.is_some_and(|known| known.is_decided || known.held == held)
            || (known.is_none() && held.is_empty())
        {
            return;
        }
        all.insert(Arc::clone(name), Entry { held, is_decided: false });
        drop(all);
        self.tell();
    }

    /// The statuses of all Processors are noted.
    pub(super) fn all_noted(&self) {
        self.listed.send_replace(true);
    }

    /// Waits until the statuses of all Processors are noted.
    pub(super) async fn listed(&self) {
        let mut listed = self.listed.subscribe();
        // The sender lives as long as this does.
        let _ = listed.wait_for(|listed| *listed).await;
    }

    /// Lets a Processor hold this and no more, unless another one holds a part of it already. Where it is refused, nothing changes.
    pub(super) fn claim(&self, name: &Arc<str>, wanted: &[HeldFinalizer]) -> Result<(), Fault> {
        let mut all = self.all.lock();
        let own = all.get(name).map_or(&[][..], |entry| &entry.held);
        let new = wanted.iter().filter(|wanted| !own.iter().any(|own| own.covers(wanted)));
        for wanted in new {
            let is_others = |(other, entry): &(&Arc<str>, &Entry)| {
                *other != name && entry.held.iter().any(|held| shared(held, wanted))
            };
            if let Some((other, _)) = all.iter().find(is_others) {
                return Err(refused(other, wanted));
            }
        }
        if self.lease.is_held() {
            let is_less = own.iter().any(|own| !wanted.contains(own));
            all.insert(Arc::clone(name), Entry { held: wanted.to_vec(), is_decided: true });
            drop(all);
            if is_less {
                self.tell();
            }
        }
        Ok(())
    }

    /// What a Processor holds.
    pub(super) fn of(&self, name: &str) -> Vec<HeldFinalizer> {
        self.all.lock().get(name).map(|entry| entry.held.clone()).unwrap_or_default()
    }

    /// A Processor holds nothing else any more.
    pub(super) fn keep_only(&self, name: &str, kept: &[HeldFinalizer]) {
        if !self.lease.is_held() {
            return;
        }
        let mut all = self.all.lock();
        let Some(entry) = all.get_mut(name) else { return };
        let before = entry.held.len();
        entry.held.retain(|held| kept.contains(held));
        entry.is_decided = true;
        let is_less = entry.held.len() < before;
        drop(all);
        if is_less {
            self.tell();
        }
    }

    /// A Processor is gone.
    pub(super) fn forget(&self, name: &Arc<str>) {
        if self.all.lock().remove(name).is_some_and(|entry| !entry.held.is_empty()) {
            self.tell();
        }
    }

    fn tell(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

fn refused(other: &str, wanted: &HeldFinalizer) -> Fault {
    let HeldFinalizer { finalizer, kind, .. } = wanted;
    let message = format!(
        "the Processor `{other}` holds the finalizer `{finalizer}` of {kind} already: only one of them may; delete one, or let them select other objects"
    );
    Fault::new(SHARED, message)
}

// === impl Claim ===

impl Claim {
    /// The finalizers that a version declares, each with the objects that it may be put on.
    pub(super) fn of(description: &Description) -> Self {
        let held = description.reconcilers.iter().flat_map(|reconciler| {
            reconciler
                .finalizers
                .iter()
                .map(|finalizer| HeldFinalizer::new(finalizer, &reconciler.of))
        });
        Self(held.collect())
    }

    /// What either claims.
    pub(super) fn and(mut self, other: &Self) -> Self {
        for held in &other.0 {
            if !self.0.contains(held) {
                self.0.push(held.clone());
            }
        }
        self
    }

    pub(super) fn held(&self) -> &[HeldFinalizer] {
        &self.0
    }
}

impl From<Vec<HeldFinalizer>> for Claim {
    fn from(held: Vec<HeldFinalizer>) -> Self {
        Self(held)
    }
}

// === impl HeldFinalizer ===

impl HeldFinalizer {
    fn covers(&self, other: &Self) -> bool {
        let is_wider =
            |mine: &Option<String>, theirs: &Option<String>| mine.is_none() || mine == theirs;
        (&self.finalizer, &self.group, &self.kind) == (&other.finalizer, &other.group, &other.kind)
            && is_wider(&self.namespace, &other.namespace)
            && is_wider(&self.object_name, &other.object_name)
            && (self.labels.is_empty() || self.labels == other.labels)
    }
}

/// Whether both are the same finalizer on an object that may be in both selections.
fn shared(one: &HeldFinalizer, other: &HeldFinalizer) -> bool {
    one.finalizer == other.finalizer && overlap(one, other)
}

/// Whether an object may be in both selections, as far as they show it.
fn overlap(one: &HeldFinalizer, other: &HeldFinalizer) -> bool {
    let agree = |one: &Option<String>, other: &Option<String>| {
        one.is_none() || other.is_none() || one == other
    };
    (&one.group, &one.kind) == (&other.group, &other.kind)
        && agree(&one.namespace, &other.namespace)
        && agree(&one.object_name, &other.object_name)
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

    fn held(kind: &str, namespace: Option<&str>, labels: &str) -> HeldFinalizer {
        HeldFinalizer {
            finalizer: "f".into(),
            group: "x.dev".into(),
            version: "v1".into(),
            kind: kind.into(),
            namespace: namespace.map(str::to_owned),
            object_name: None,
            labels: labels.into(),
        }
    }

    fn all_rules() -> HeldFinalizer {
        held("Rule", None, "")
    }

    fn names() -> (Arc<str>, Arc<str>) {
        ("b/first".into(), "a/later".into())
    }

    /// A Processor of which the status says that it holds this.
    fn holding(held: &[HeldFinalizer]) -> Processor {
        let status =
            crate::api::ProcessorStatus { finalizers: held.to_vec(), ..Default::default() };
        let mut processor = Processor::new("p", crate::api::ProcessorSpec::default());
        processor.status = Some(status);
        processor
    }

    #[test]
    fn the_first_that_claims_a_finalizer_has_it_and_a_later_one_leaves_no_trace() {
        let ((first, later), claims) = (names(), Claims::new(&Guard::none()));
        claims.claim(&first, &[all_rules()]).unwrap();
        let changes = claims.changes();
        for _ in 0..2 {
            let fault = claims.claim(&later, &[all_rules()]).unwrap_err();
            assert_eq!(fault.reason, "FinalizerShared");
            let said = "`b/first` holds the finalizer `f` of Rule already";
            assert!(fault.message.contains(said), "{}", fault.message);
        }
        assert_eq!(claims.of(&later), []);
        claims.claim(&first, &[all_rules()]).unwrap();
        assert!(!changes.has_changed().unwrap(), "the first hears nothing of it");
        claims.forget(&first);
        assert!(changes.has_changed().unwrap());
        claims.claim(&later, &[all_rules()]).unwrap();
    }

    #[test]
    fn a_claim_that_is_refused_in_part_is_not_made_at_all() {
        let ((first, later), claims) = (names(), Claims::new(&Guard::none()));
        claims.claim(&first, &[held("Rule", Some("a"), "")]).unwrap();
        claims.claim(&later, &[held("Rule", Some("b"), "")]).unwrap();
        claims.claim(&later, &[held("Other", None, ""), all_rules()]).unwrap_err();
        assert_eq!(claims.of(&later), [held("Rule", Some("b"), "")]);
        // What one holds already is no matter of others.
        claims.claim(&first, &[held("Rule", Some("a"), "class=a")]).unwrap();
    }

    #[test]
    fn what_a_status_says_holds_over_a_restart_whoever_comes_first() {
        let (first, later) = names();
        let claims = Claims::new(&Guard::none());
        claims.note(&first, &holding(&[all_rules()]));
        claims.note(&later, &holding(&[]));
        claims.claim(&later, &[all_rules()]).unwrap_err();
        claims.claim(&first, &[all_rules()]).unwrap();
        claims.keep_only(&first, &[]);
        // The status is older than what this host has decided.
        claims.note(&first, &holding(&[all_rules()]));
        claims.claim(&later, &[all_rules()]).unwrap();
    }

    #[test]
    fn a_host_that_does_not_lead_follows_the_statuses() {
        let (first, later) = names();
        let (_until, lease) = Guard::not_held();
        let claims = Claims::new(&lease);
        for name in [&first, &later] {
            claims.claim(name, &[all_rules()]).unwrap();
            assert_eq!(claims.of(name), [], "it decides nothing");
        }
        claims.note(&first, &holding(&[all_rules()]));
        claims.claim(&later, &[all_rules()]).unwrap_err();
        claims.keep_only(&first, &[]);
        claims.claim(&first, &[all_rules()]).unwrap();
        claims.claim(&later, &[all_rules()]).unwrap_err();
        claims.note(&first, &holding(&[]));
        claims.claim(&later, &[all_rules()]).unwrap();
    }

    #[test]
    fn selections_that_no_object_is_in_at_once_may_share_a_finalizer() {
        let rules = |labels: &str| held("Rule", None, labels);
        let of = |namespace: &str| held("Rule", Some(namespace), "");
        let cases = [
            ("another kind", held("Other", None, ""), all_rules(), false),
            ("one and all namespaces", of("a"), all_rules(), true),
            ("two namespaces", of("a"), of("b"), false),
            ("two values", rules("class=a"), rules("class=b"), false),
            ("values that meet", rules("class in (a,b)"), rules("class in (b,c)"), true),
            ("one and no value", rules("class=a"), rules("!class"), false),
            ("one and not that", rules("class=a"), rules("class!=a"), false),
            ("two labels", rules("a=1"), rules("b=2"), true),
        ];
        for (case, one, other, expected) in cases {
            assert_eq!(overlap(&one, &other), expected, "{case}");
            assert_eq!(overlap(&other, &one), expected, "{case}, the other way round");
        }
    }
}
