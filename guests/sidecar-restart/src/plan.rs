//! The restarts of one run.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use istio::{
    action::{Action, Object, RESTARTED_AT, Warning},
    kubernetes::Pod,
    predicate::Phase,
};
use mortise_sdk::{Deletion, Error, Manifest, ObjectRef, Outcome, Request, time};
use serde_json::json;

use crate::{
    config::Config,
    record::{Cause, Causes, Record, Skew},
    survey::{Affected, Group, Owner, Replacements, Survey},
    workload::{self, Workload, Workloads},
};

const UNSUPPORTED: &str =
    "pod sidecar could not be updated because its owner cannot be rolled out.";

/// The time after which a run looks again for free places, and for budgets.
pub(crate) const RETRY_DELAY: Duration = Duration::from_secs(30);

/// The most owners that a run looks at: each takes up to three of the 10,000 reads of a call.
const MAX_OWNERS: usize = 2000;

/// The restarts that are due, in their order, and what else there is to say.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Due {
    /// The workloads to roll out, those of Kyma's modules first.
    roll_outs: Vec<RollOut>,
    /// The Pods to evict, in the same order.
    evictions: Vec<Eviction>,
    /// The workloads that come after a roll-out for another reason.
    waiting: Vec<Object>,
    /// The workloads whose roll-outs have not come to their end, with the times of their restarts.
    under_way: BTreeMap<Object, u64>,
    /// Pods that were made by a restart and are not ready, by owner, with the times of the
    /// restarts.
    unready: BTreeMap<Owner, (Pod, u64)>,
    /// The owners with Pods that go before others are made, with the restarts that made those.
    going: BTreeMap<Owner, BTreeSet<Option<String>>>,
    /// Pods that are not ready and may have taken the place of evicted ones.
    replacements: Replacements,
    /// The number of owners that were not looked at.
    later: usize,
    /// The Pods of Kyma's modules that have to be restarted by hand.
    pub kyma: Vec<Warning>,
    /// The other Pods that have to be restarted by hand.
    pub customers: Vec<Warning>,
}

/// A workload to roll out.
#[derive(Debug, Clone, PartialEq)]
struct RollOut {
    phase: Phase,
    workload: Object,
    uid: Option<String>,
    /// Sidecars are missing.
    is_missing: bool,
}

/// A Pod to evict.
#[derive(Debug, Clone, PartialEq)]
struct Eviction {
    phase: Phase,
    namespace: String,
    name: String,
    uid: Option<String>,
}

/// The Pods of a workload, from all of its owners.
#[derive(Debug, Clone)]
struct Members {
    phase: Phase,
    first: Pod,
    pods: Vec<Affected>,
}

/// The bounds of one run.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The most restarts at a time.
    pub limit: usize,
    /// The time after which a roll-out that has not come to its end does not count, nor a Pod that
    /// takes the place of an evicted one.
    pub patience: Duration,
    /// The number of runs in a row that failed.
    pub attempt: u32,
    /// The time of the run, in Unix time in milliseconds.
    pub now: u64,
    /// The time from which Pods are evicted: those that take their place are younger than the
    /// latest change, and seen to be so.
    pub evicts_from: u64,
}

/// The restarts of one run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    roll_outs: Vec<RollOut>,
    evictions: Vec<Eviction>,
    /// The number of restarts that are left for later runs.
    pub pending: usize,
}

// === impl Bounds ===

impl Bounds {
    pub(crate) fn of(config: &Config, request: &Request, record: &Record, now: u64) -> Self {
        Self {
            limit: config.limit(),
            patience: config.patience(),
            attempt: request.attempt,
            now,
            evicts_from: record.latest(),
        }
    }
}

// === impl Due ===

impl Due {
    /// Finds the restarts that are due.
    ///
    /// # Errors
    ///
    /// Fails if owners cannot be read.
    pub(crate) fn of(
        survey: Survey,
        record: &Record,
        workloads: &mut Workloads,
    ) -> Result<Self, Error> {
        let Survey { groups, unready, going, replacements } = survey;
        let mut due = Self { unready, going, replacements, ..Self::default() };
        let mut by_workload: BTreeMap<(bool, Object), Members> = BTreeMap::new();
        let mut looked_at = 0;
        for group in groups {
            // What a restart cannot help needs no look at its owners.
            let is_due = |pod: &Affected| !left(pod, record, Skew::Allowed).is_empty();
            if !group.pods.iter().any(is_due) {
                continue;
            }
            if looked_at == MAX_OWNERS {
                due.later += 1;
                continue;
            }
            looked_at += usize::from(!group.owner.kind.is_empty());
            match workloads.action(&group.first)? {
                Action::Warn(warning) => due.warn_of_pods(&group, record, warning.message),
                Action::Remove(_) => due.evict(&group, record),
                Action::Unsupported(workload) => due.warn_of_workload(&group, record, workload),
                Action::RollOut(workload) | Action::Wait(workload) => {
                    let Group { phase, first, pods, .. } = group;
                    let key = (phase == Phase::Customer, workload);
                    let none = || Members { phase, first, pods: Vec::new() };
                    by_workload.entry(key).or_insert_with(none).pods.extend(pods);
                }
            }
        }
        let mut known = BTreeSet::new();
        for ((_, object), members) in by_workload {
            // A workload may have Pods of both phases; the first one counts.
            if known.insert(object.clone())
                && let Some(workload) = workloads.get(&object)?
            {
                due.add(object, workload, members, record, workloads)?;
            }
        }
        for warnings in [&mut due.kyma, &mut due.customers] {
            warnings.sort_by(|one, other| place(one).cmp(&place(other)));
        }
        Ok(due)
    }

    /// Returns whether there is anything to restart.
    pub fn is_empty(&self) -> bool {
        self.roll_outs.is_empty() && self.evictions.is_empty()
    }

    /// Returns whether there are Pods to evict.
    pub fn evicts(&self) -> bool {
        !self.evictions.is_empty()
    }

    /// Returns the number of restarts that are due.
    pub fn len(&self) -> usize {
        self.roll_outs.len() + self.evictions.len()
    }

    /// Returns the number of restarts that are due now or later, or under way.
    pub(crate) fn all(&self) -> usize {
        self.len() + self.waiting.len() + self.under_way.len()
    }

    /// Returns whether there is nothing to restart, neither now nor after another roll-out.
    pub(crate) fn is_done(&self) -> bool {
        self.is_empty() && self.waiting.is_empty()
    }

    /// Leaves the Pods that are not of Kyma's modules alone.
    pub fn hold_customers(&mut self) {
        self.roll_outs.retain(|one| one.phase == Phase::Kyma);
        self.evictions.retain(|one| one.phase == Phase::Kyma);
    }

    /// Returns the names of what is due.
    pub fn names(&self) -> Vec<String> {
        let workloads = self.roll_outs.iter().map(|one| &one.workload).chain(&self.waiting);
        let workloads = workloads.map(|of| format!("{} {}/{}", of.kind, of.namespace, of.name));
        let evictions =
            self.evictions.iter().map(|pod| format!("Pod {}/{}", pod.namespace, pod.name));
        workloads.chain(evictions).collect()
    }

    fn warn(&mut self, phase: Phase, warning: Warning) {
        match phase {
            Phase::Kyma => self.kyma.push(warning),
            Phase::Customer => self.customers.push(warning),
        }
    }

    fn warn_of_pods(&mut self, group: &Group, record: &Record, message: &'static str) {
        for pod in group.pods.iter().filter(|pod| affects(pod, record)) {
            let namespace = group.owner.namespace.clone();
            let pod = Object { kind: "Pod".to_owned(), namespace, name: pod.name.clone() };
            self.warn(group.phase, Warning { pod, message });
        }
    }

    fn warn_of_workload(&mut self, group: &Group, record: &Record, workload: Object) {
        let is_new = !self.kyma.iter().chain(&self.customers).any(|known| known.pod == workload);
        if is_new && group.pods.iter().any(|pod| affects(pod, record)) {
            self.warn(group.phase, Warning { pod: workload, message: UNSUPPORTED });
        }
    }

    fn evict(&mut self, group: &Group, record: &Record) {
        let due = |pod: &&Affected| !left(pod, record, Skew::None).is_empty();
        self.evictions.extend(group.pods.iter().filter(due).map(|pod| Eviction {
            phase: group.phase,
            namespace: group.owner.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        }));
    }

    fn add(
        &mut self,
        object: Object,
        workload: Workload,
        members: Members,
        record: &Record,
        workloads: &mut Workloads,
    ) -> Result<(), Error> {
        let Members { phase, first, pods } = members;
        let Workload { uid, restarted_at, is_excluded } = workload;
        let mut causes = Causes::default();
        for pod in &pods {
            causes.add_all(left(pod, record, Skew::Allowed));
        }
        let mut due = record.due(causes, restarted_at.as_deref());
        if record.was_restarted(uid.as_deref()) {
            due = due.without_missing();
        }
        if !is_excluded && !due.is_empty() {
            // A roll-out for another reason comes to its end first.
            if matches!(workloads.action_beside_siblings(&first)?, Action::RollOut(_)) {
                let is_missing = due.has(Cause::Missing);
                self.roll_outs.push(RollOut { phase, workload: object, uid, is_missing });
            } else {
                self.waiting.push(object);
            }
        } else if pods.iter().any(|pod| pod.restarted_at != restarted_at) {
            self.add_under_way(object, restarted_at.as_deref());
        }
        Ok(())
    }

    /// Adds a workload with Pods of a former template: its roll-out is under way.
    fn add_under_way(&mut self, object: Object, restarted_at: Option<&str>) {
        let at = restarted_at.and_then(time::parse);
        self.under_way.extend(at.map(|at| (object, at)));
    }

    /// Returns the restarts of this run: no more at a time than the limit allows.
    ///
    /// # Errors
    ///
    /// Fails if the owners of Pods cannot be read.
    pub(crate) fn plan(mut self, bounds: Bounds, workloads: &mut Workloads) -> Result<Plan, Error> {
        let mut free = bounds.limit.saturating_sub(self.under_way(bounds, workloads)?);
        // Restarts that the API server refuses must not keep all others from their turn.
        let turn = usize::try_from(bounds.attempt).unwrap_or_default();
        rotate(&mut self.roll_outs, turn.saturating_mul(bounds.limit), |one| one.phase);
        let minute = usize::try_from(bounds.now / 60_000).unwrap_or_default();
        rotate(&mut self.evictions, minute.saturating_mul(bounds.limit), |one| one.phase);
        if bounds.now < bounds.evicts_from {
            self.evictions.clear();
        }
        let all = self.len();
        self.roll_outs.truncate(free);
        free -= self.roll_outs.len();
        self.evictions.truncate(free);
        let pending = all - self.len() + self.later;
        Ok(Plan { roll_outs: self.roll_outs, evictions: self.evictions, pending })
    }

    /// Returns the number of roll-outs that have not come to their end and of Pods that take the
    /// place of evicted ones, as far as they still count.
    fn under_way(&mut self, bounds: Bounds, workloads: &mut Workloads) -> Result<usize, Error> {
        let patience = u64::try_from(bounds.patience.as_millis()).unwrap_or(u64::MAX);
        let is_awaited = |at: u64| bounds.now < at.saturating_add(patience);
        for (owner, (pod, at)) in std::mem::take(&mut self.unready) {
            if is_awaited(at) {
                let object = match workloads.action(&pod)? {
                    Action::RollOut(workload) => workload,
                    // Evicted Pods count one by one, as replacements.
                    Action::Remove(_) => continue,
                    _ => Object { kind: owner.kind, namespace: owner.namespace, name: owner.name },
                };
                self.under_way.insert(object, at);
            }
        }
        for (Owner { namespace, kind, name }, made_by) in std::mem::take(&mut self.going) {
            let object = Object { kind, namespace, name };
            let restarted_at = workloads.get(&object)?.and_then(|workload| workload.restarted_at);
            if made_by.iter().any(|at| *at != restarted_at) {
                self.add_under_way(object, restarted_at.as_deref());
            }
        }
        let roll_outs = self.under_way.values().filter(|at| is_awaited(**at)).count();
        Ok(roll_outs + workloads.replacements(&self.replacements, is_awaited)?)
    }
}

fn place(warning: &Warning) -> (&str, &str) {
    (&warning.pod.namespace, &warning.pod.name)
}

/// Returns the causes of a Pod's restart that a restart can help.
fn left(pod: &Affected, record: &Record, skew: Skew) -> Causes {
    record.not_in_vain(pod.causes, pod.created, skew)
}

/// Returns whether somebody should restart a Pod by hand: not only for want of a sidecar.
fn affects(pod: &Affected, record: &Record) -> bool {
    record.is_from_the_start(pod.causes) || !left(pod, record, Skew::None).is_only_missing()
}

/// Begins the list of each phase with another item.
fn rotate<T>(items: &mut [T], by: usize, phase: impl Fn(&T) -> Phase) {
    let customers = items.partition_point(|item| phase(item) == Phase::Kyma);
    let (kyma, customers) = items.split_at_mut(customers);
    for part in [kyma, customers] {
        if !part.is_empty() {
            part.rotate_left(by % part.len());
        }
    }
}

// === impl Plan ===

impl Plan {
    /// Returns the plan that leaves restarts for later.
    pub fn later(pending: usize) -> Self {
        Self { pending, ..Self::default() }
    }

    /// Returns whether the run restarts nothing.
    pub fn is_empty(&self) -> bool {
        self.roll_outs.is_empty() && self.evictions.is_empty()
    }

    /// Returns the uids of the workloads that are restarted because sidecars are missing.
    pub(crate) fn for_missing(&self) -> Vec<String> {
        let missing = self.roll_outs.iter().filter(|one| one.is_missing);
        missing.filter_map(|one| one.uid.clone()).collect()
    }

    /// Adds the writes to an outcome. `now` is the time that templates get.
    #[must_use]
    pub fn add_to(self, outcome: Outcome, now: &str) -> Outcome {
        let outcome =
            self.roll_outs.iter().fold(outcome, |outcome, RollOut { workload, uid, .. }| {
                outcome.patch(roll_out_patch(workload, uid.as_deref(), now))
            });
        self.evictions.iter().fold(outcome, |outcome, pod| {
            let of = ObjectRef::of::<Pod>(Some(&pod.namespace), pod.name.as_str());
            let deletion = Deletion::new(of);
            outcome.evict(match &pod.uid {
                Some(uid) => deletion.uid(uid.as_str()),
                None => deletion,
            })
        })
    }
}

fn roll_out_patch(of: &Object, uid: Option<&str>, now: &str) -> Manifest {
    Manifest::json(&json!({
        "apiVersion": workload::kind(&of.kind).api_version(),
        "kind": of.kind,
        // A uid of null is none.
        "metadata": {"namespace": of.namespace, "name": of.name, "uid": uid},
        "spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: now}}}},
    }))
}
