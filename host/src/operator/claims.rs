//! The finalizers that each Processor claims. If two Processors used one finalizer on one object,
//! the first to finish would remove it, and the other could never finish. So the first Processor
//! that claims a finalizer holds it.
//!
//! *Guarantees.* A claim holds until its Processor gives it up, loses the right to patch the
//! objects, or is deleted; a later claim of another Processor changes nothing. A claim holds over
//! restarts and changes of the leader: it is stored in the status of the Processor, and the
//! statuses of all Processors are read before anything is claimed.
//!
//! *Assumption.* Only hosts write the statuses of Processors. Even so, a claim in a status counts
//! only as far as the account of the Processor may patch the objects.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use mortise_core::{
    contract::{Description, Selection},
    labels::{LabelSelector, Requirement, Test},
};
use parking_lot::Mutex;
use tokio::sync::watch as latest;

use super::fault::Fault;
use crate::{
    cluster::lease::Guard,
    operator::api::{HeldFinalizer, Processor},
    reason::Reason,
};

/// The finalizers that all Processors hold.
#[derive(Debug)]
pub(super) struct Claims {
    /// The guard of the Lease. Only the leader decides claims; a standby follows the statuses.
    lease: Guard,
    all: Mutex<BTreeMap<Arc<str>, Entry>>,
    changes: latest::Sender<u64>,
    listed: latest::Sender<bool>,
}

/// The finalizers that one Processor holds.
#[derive(Debug, Default)]
struct Entry {
    held: Vec<HeldFinalizer>,
    /// Their label selectors, each parsed once.
    labels: Vec<Labels>,
    /// True if this host has decided the claim. Then the status follows the claim, and not the
    /// reverse.
    is_decided: bool,
}

/// A label selector; `None` if it cannot be parsed.
type Labels = Option<LabelSelector>;

/// The finalizers that one version claims.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Claim(Vec<HeldFinalizer>);

/// The requirements and values of label selectors that are compared for one claim, some
/// milliseconds: all claims wait meanwhile. Further selections count as ones that overlap.
const MAX_COMPARED: usize = 1 << 17;

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

    /// Returns a number that changes when a finalizer is released, or when a status brings claims
    /// that another host has decided.
    pub(super) fn changes(&self) -> latest::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Takes over the claims in the status of a Processor, unless this host has decided them.
    pub(super) fn record(&self, name: &Arc<str>, processor: &Processor) {
        let held = processor.status.as_ref().map(|status| status.finalizers.clone());
        let new = Entry::new(held.unwrap_or_default(), false);
        let mut all = self.all.lock();
        let known = all.get(name);
        if known.is_some_and(|known| known.is_decided || known.held == new.held)
            || (known.is_none() && new.held.is_empty())
        {
            return;
        }
        all.insert(Arc::clone(name), new);
        drop(all);
        self.notify();
    }

    /// Marks the statuses of all Processors as read.
    pub(super) fn all_recorded(&self) {
        self.listed.send_replace(true);
    }

    /// Waits until the statuses of all Processors have been read.
    pub(super) async fn listed(&self) {
        let mut listed = self.listed.subscribe();
        // The sender lives as long as `self`.
        let _ = listed.wait_for(|listed| *listed).await;
    }

    /// Replaces the claims of a Processor by `wanted`; on a standby, only checks them. Fails, and
    /// changes nothing, if another Processor holds a part of `wanted` that is new.
    pub(super) fn claim(&self, name: &Arc<str>, wanted: &[HeldFinalizer]) -> Result<(), Fault> {
        let new = Entry::new(wanted.to_vec(), true);
        let mut all = self.all.lock();
        let own = all.get(name).map_or(&[][..], |entry| &entry.held);
        let is_new = |(wanted, _): &(&HeldFinalizer, _)| !own.iter().any(|own| own.covers(wanted));
        let compared: Vec<_> = new.each().filter(is_new).collect();
        let kinds: HashSet<_> = compared.iter().map(|(wanted, _)| wanted.key()).collect();
        let others = all.iter().filter(|(other, _)| *other != name);
        let mut held: HashMap<_, Vec<_>> = HashMap::new();
        for (other, entry) in others {
            for (of, labels) in entry.each().filter(|(of, _)| kinds.contains(&of.key())) {
                held.entry(of.key()).or_default().push((other, of, labels));
            }
        }
        let mut left = MAX_COMPARED;
        for (wanted, labels) in compared {
            let mut others = held.get(&wanted.key()).into_iter().flatten();
            let shared = others.find(|(_, held, theirs)| {
                left = left.saturating_sub(1);
                left == 0 || wanted.meets(held) && !are_apart(labels, theirs, &mut left)
            });
            if let Some((other, ..)) = shared {
                return Err(refused(other, wanted));
            }
        }
        if self.lease.is_held() {
            let is_less = own.iter().any(|own| !wanted.contains(own));
            all.insert(Arc::clone(name), new);
            drop(all);
            if is_less {
                self.notify();
            }
        }
        Ok(())
    }

    /// Returns the finalizers that a Processor holds.
    pub(super) fn of(&self, name: &str) -> Vec<HeldFinalizer> {
        self.all.lock().get(name).map(|entry| entry.held.clone()).unwrap_or_default()
    }

    /// Releases the finalizers of a Processor that are not in `kept`. Does nothing on a standby.
    pub(super) fn keep_only(&self, name: &str, kept: &[HeldFinalizer]) {
        if !self.lease.is_held() {
            return;
        }
        let mut all = self.all.lock();
        let Some(entry) = all.get_mut(name) else { return };
        let before = entry.held.len();
        let Entry { held, labels, .. } = std::mem::take(entry);
        let left = held.into_iter().zip(labels).filter(|(held, _)| kept.contains(held));
        let (held, labels) = left.unzip();
        *entry = Entry { held, labels, is_decided: true };
        let is_less = entry.held.len() < before;
        drop(all);
        if is_less {
            self.notify();
        }
    }

    /// Releases all finalizers of a Processor that is gone.
    pub(super) fn forget(&self, name: &Arc<str>) {
        if self.all.lock().remove(name).is_some_and(|entry| !entry.held.is_empty()) {
            self.notify();
        }
    }

    fn notify(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

// === impl Entry ===

impl Entry {
    fn new(held: Vec<HeldFinalizer>, is_decided: bool) -> Self {
        let labels = held.iter().map(|held| LabelSelector::parse(&held.labels).ok()).collect();
        Self { held, labels, is_decided }
    }

    /// Returns each finalizer, with its label selector.
    fn each(&self) -> impl Iterator<Item = (&HeldFinalizer, &Labels)> {
        self.held.iter().zip(&self.labels)
    }
}

fn refused(other: &str, wanted: &HeldFinalizer) -> Fault {
    let HeldFinalizer { finalizer, kind, .. } = wanted;
    let message = format!(
        "the Processor `{other}` holds the finalizer `{finalizer}` of {kind} already: only one of them may; delete one, or let them select other objects"
    );
    Fault::new(Reason::FinalizerShared, message)
}

// === impl Claim ===

impl Claim {
    /// Builds the claim of a version: each finalizer that it declares, with the objects that the
    /// finalizer may be put on. Those of on-demand reconcilers are claimed when they are started.
    pub(super) fn of(description: &Description) -> Self {
        let always = description.reconcilers.iter().filter(|reconciler| !reconciler.on_demand);
        let held = always.map(|reconciler| Self::on(&reconciler.finalizers, &reconciler.of));
        held.fold(Self::default(), |all, of| all.and(&of))
    }

    /// Builds the claim of finalizers on a selection.
    pub(super) fn on(finalizers: &[String], of: &Selection) -> Self {
        Self(finalizers.iter().map(|finalizer| HeldFinalizer::new(finalizer, of)).collect())
    }

    /// Returns the union of both claims.
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
    /// The finalizer, and the kind of the objects in any version.
    fn key(&self) -> (&str, &str, &str) {
        (&self.finalizer, &self.group, &self.kind)
    }

    fn covers(&self, other: &Self) -> bool {
        let is_wider =
            |mine: &Option<String>, theirs: &Option<String>| mine.is_none() || mine == theirs;
        self.key() == other.key()
            && is_wider(&self.namespace, &other.namespace)
            && is_wider(&self.object_name, &other.object_name)
            && (self.labels.is_empty() || self.labels == other.labels)
    }

    /// Returns whether objects of one namespace and name may be in both selections.
    fn meets(&self, other: &Self) -> bool {
        let agree = |one: &Option<String>, other: &Option<String>| {
            one.is_none() || other.is_none() || one == other
        };
        agree(&self.namespace, &other.namespace) && agree(&self.object_name, &other.object_name)
    }
}

/// Returns the number of values that a test names.
fn values(test: &Test) -> usize {
    match test {
        Test::In(values) | Test::NotIn(values) => values.len(),
        Test::Exists | Test::Absent => 0,
    }
}

/// Returns whether no labels match both selectors, because one label would need two values. Returns
/// false for a selector that cannot be parsed, and for one that takes more than what is left to
/// compare.
fn are_apart(one: &Labels, other: &Labels, left: &mut usize) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return false };
    let (one, other) = (one.requirements(), other.requirements());
    let values = |of: &[Requirement]| of.iter().map(|of| values(&of.test)).sum::<usize>();
    let compared = (one.len() + 1) * (other.len() + 1) + values(one) + values(other);
    *left = left.saturating_sub(compared);
    if *left == 0 {
        return false;
    }
    let excludes = |mine: &Test, theirs: &Test| match (mine, theirs) {
        (Test::In(mine), Test::In(theirs)) => mine.is_disjoint(theirs),
        (Test::In(mine), Test::NotIn(theirs)) => mine.is_subset(theirs),
        (Test::Absent, Test::In(_) | Test::Exists) => true,
        _ => false,
    };
    one.iter().any(|mine| {
        let mut theirs = other.iter().filter(|theirs| theirs.key == mine.key);
        theirs
            .any(|theirs| excludes(&mine.test, &theirs.test) || excludes(&theirs.test, &mine.test))
    })
}

#[cfg(test)]
mod tests {
    use mortise_core::{
        contract::Reconciler,
        fixture::{description, reconciler, v1, whole},
    };

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

    /// Returns a Processor whose status holds these finalizers.
    fn holding(held: &[HeldFinalizer]) -> Processor {
        let status = crate::operator::api::ProcessorStatus {
            finalizers: held.to_vec(),
            ..Default::default()
        };
        let mut processor = Processor::new("p", crate::operator::api::ProcessorSpec::default());
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
            assert_eq!(fault.reason, Reason::FinalizerShared);
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
    fn finalizers_of_on_demand_reconcilers_are_claimed_for_started_kinds_only() {
        let of = |name: &str, on_demand| Reconciler {
            name: name.to_owned(),
            finalizers: vec!["f".to_owned()],
            on_demand,
            ..reconciler(whole(v1("x.dev", "*")))
        };
        let always = Reconciler { of: whole(v1("x.dev", "Own")), ..of("always", false) };
        let reconcilers = vec![always, of("objects", true)];
        let description =
            Description { reconcilers, ..description(whole(v1("x.dev", "Own")), Vec::new()) };
        let claim = Claim::of(&description);
        assert_eq!(claim.held(), [held("Own", None, "")], "nothing of any kind");
        let started = Claim::on(&["f".to_owned()], &whole(v1("x.dev", "Rule")));
        let both = claim.and(&started);
        let ((first, later), claims) = (names(), Claims::new(&Guard::none()));
        claims.claim(&first, &[held("Rule", Some("a"), "")]).unwrap();
        let fault = claims.claim(&later, both.held()).unwrap_err();
        assert!(fault.message.contains("`b/first` holds the finalizer `f` of Rule already"));
        claims.forget(&first);
        claims.claim(&later, both.held()).unwrap();
        assert_eq!(claims.of(&later), [held("Own", None, ""), all_rules()]);
    }

    #[test]
    fn a_claim_that_is_refused_in_part_is_not_made_at_all() {
        let ((first, later), claims) = (names(), Claims::new(&Guard::none()));
        claims.claim(&first, &[held("Rule", Some("a"), "")]).unwrap();
        claims.claim(&later, &[held("Rule", Some("b"), "")]).unwrap();
        claims.claim(&later, &[held("Other", None, ""), all_rules()]).unwrap_err();
        assert_eq!(claims.of(&later), [held("Rule", Some("b"), "")]);
        // A finalizer that a Processor holds already is not compared with the claims of others.
        claims.claim(&first, &[held("Rule", Some("a"), "class=a")]).unwrap();
    }

    #[test]
    fn a_claim_in_a_status_holds_after_a_restart_until_it_is_released() {
        let (first, later) = names();
        let claims = Claims::new(&Guard::none());
        claims.record(&first, &holding(&[all_rules()]));
        claims.record(&later, &holding(&[]));
        claims.claim(&later, &[all_rules()]).unwrap_err();
        claims.claim(&first, &[all_rules()]).unwrap();
        claims.keep_only(&first, &[]);
        // The status is older than what this host has decided.
        claims.record(&first, &holding(&[all_rules()]));
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
        claims.record(&first, &holding(&[all_rules()]));
        claims.claim(&later, &[all_rules()]).unwrap_err();
        claims.keep_only(&first, &[]);
        claims.claim(&first, &[all_rules()]).unwrap();
        claims.claim(&later, &[all_rules()]).unwrap_err();
        claims.record(&first, &holding(&[]));
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
            for (one, other) in [(&one, &other), (&other, &one)] {
                let ((first, later), claims) = (names(), Claims::new(&Guard::none()));
                claims.claim(&first, std::slice::from_ref(one)).unwrap();
                let claimed = claims.claim(&later, std::slice::from_ref(other));
                assert_eq!(claimed.is_err(), expected, "{case}: {one:?} and {other:?}");
            }
        }
    }

    #[test]
    fn selectors_are_compared_up_to_a_bound_and_are_shared_beyond() {
        let long =
            |of: &str| (0..100).map(|at| format!("{of}{at}=1")).collect::<Vec<_>>().join(",");
        let rules = |value: &str, of: &str| held("Rule", None, &format!("{},c={value}", long(of)));
        let ((first, later), claims) = (names(), Claims::new(&Guard::none()));
        let all = |of| (0..64).map(|at| rules(&format!("{of}{at}"), of)).collect::<Vec<_>>();
        claims.claim(&first, &all("a")).unwrap();
        let fault = claims.claim(&later, &all("b")).unwrap_err();
        assert_eq!(fault.reason, Reason::FinalizerShared);
        let few = |of: &str| {
            let each = (0..100).map(|at| held("Rule", None, &format!("c={of}{at}")));
            each.collect::<Vec<_>>()
        };
        claims.forget(&first);
        claims.claim(&first, &few("a")).unwrap();
        claims.claim(&later, &few("b")).unwrap();
    }
}
