//! The controller of one Processor: runs the version that its spec asks for, and writes its status.
//! A controller works sequentially; each Processor has its own, so that none waits for another.

mod claim;
mod end;
mod modules;
mod pacing;
mod started;
mod status;
mod swap;
mod versions;

use std::{sync::Arc, time::Duration};

use futures::future::select_all;
use mortise_core::grant::rights::Account;
use tokio::{
    sync::watch::{self as latest, error::RecvError},
    time::{Instant, sleep_until},
};

use self::{claim::Stake, end::Ending, pacing::Pacing, started::Starts, versions::Versions};
use super::{
    OperatorState,
    fault::{Fault, Former},
    images::Follower,
    progress::Phase,
    resource::{Finalizer, Resource},
};
use crate::{
    cluster::access::Acting,
    operator::api::{FINALIZER, Processor, ProcessorStatus},
    reason::Reason,
};

/// The time that a spec must be stable before its version is swapped in: of several changes in a
/// row, only the last one is wanted.
const STABLE_AFTER: Duration = Duration::from_millis(200);
/// The longest wait for a stable spec.
const MAX_STABLE_SPEC_WAIT: Duration = Duration::from_secs(2);

/// The newest state of a Processor resource; `None` once it is gone.
pub(super) type Newest = Option<Arc<Processor>>;

pub(super) struct Controller {
    shared: Arc<OperatorState>,
    /// The name of the processor in the host: `namespace/name`.
    name: Arc<str>,
    resource: Resource,
    /// The host's right to act as the account of the spec, if it was asked for. The right is
    /// renewed as long as this value is held.
    acting: Option<Arc<Acting>>,
    /// The claim of the processor, and the rights that the claim needs, if any.
    stake: Option<Stake>,
    /// The claims of on-demand reconcilers.
    starts: Starts,
    newest: latest::Receiver<Newest>,
    /// The artifacts that the spec names.
    follower: Follower,
    versions: Versions,
    ending: Ending,
    /// The resource state that was last acted on.
    seen: Option<Seen>,
    fault: Option<Fault>,
    last_status: ProcessorStatus,
    pacing: Pacing,
}

/// The fields of a resource whose changes need an action.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    uid: Option<String>,
    generation: Option<i64>,
    is_deleting: bool,
    has_finalizer: bool,
}

/// The reason why the controller woke.
enum Woken {
    /// The resource is gone.
    Gone,
    /// The host stops.
    Stopped,
    /// The spec may ask for another version than the one that runs.
    Check,
    /// A module's file may have changed.
    Files,
    /// The account's right to patch objects may have changed.
    Rights,
    /// A status write may be due, or the resource may have changed.
    Rest,
}

/// The receivers that wake a controller.
struct Wakers {
    /// The consent of accounts, and the right to act as them.
    accounts: [latest::Receiver<u64>; 2],
    claims: latest::Receiver<u64>,
    files: latest::Receiver<u64>,
    circumstances: latest::Receiver<u64>,
    verdicts: latest::Receiver<u64>,
    /// Runs, stores, and delays of calls: all that a status shows.
    work: [latest::Receiver<u64>; 3],
    /// True if this host has led since the controller started.
    leads: bool,
}

// === impl Controller ===

impl Controller {
    pub(super) fn new(
        shared: &Arc<OperatorState>,
        namespace: &str,
        name: &str,
        newest: latest::Receiver<Newest>,
    ) -> Self {
        let last_status = newest.borrow().as_ref().and_then(|newest| newest.status.clone());
        let last_status = last_status.unwrap_or_default();
        let full_name: Arc<str> = format!("{namespace}/{name}").into();
        Self {
            shared: Arc::clone(shared),
            follower: Follower::new(&shared.images, &shared.cluster, &full_name),
            name: full_name,
            resource: Resource::new(namespace, name),
            acting: None,
            stake: None,
            starts: Starts::new(&last_status.finalizers),
            newest,
            versions: Versions::default(),
            ending: Ending::default(),
            seen: None,
            fault: None,
            last_status,
            pacing: Pacing::default(),
        }
    }

    /// Runs the controller until the resource is gone or the host stops. Returns the name of the
    /// Processor.
    pub(super) async fn run(mut self) -> Arc<str> {
        let mut wakers = Wakers::new(&self.shared);
        let mut check = true;
        loop {
            let Some(mut newest) = self.newest.borrow_and_update().clone() else { break };
            if check || self.seen.as_ref() != Some(&Seen::of(&newest)) {
                match self.come_to_rest(newest).await {
                    Some(rested) => newest = rested,
                    None => break,
                }
                // `act` handles all changes up to now.
                wakers.circumstances.mark_unchanged();
                self.seen = Some(Seen::of(&newest));
                // Most controllers wait most of the time, so the rest of a task is boxed.
                Box::pin(self.act(&newest)).await;
            }
            let proven_at = self.judge().await;
            Box::pin(self.claim_started(&newest)).await;
            Box::pin(self.write_status(&newest)).await;
            check = match self.wake(&mut wakers, proven_at).await {
                Woken::Gone => break,
                Woken::Stopped => {
                    // The version keeps running: only a status that is due is written.
                    self.write_status_at_once(&newest).await;
                    return self.name;
                }
                Woken::Check => true,
                Woken::Files => self.module_has_moved(&newest).await,
                Woken::Rights => !self.is_claim_settled(),
                Woken::Rest => false,
            };
        }
        self.forget().await;
        self.name
    }

    /// Waits for the next reason to act. `proven_at` is the end of the probation, if any.
    async fn wake(&mut self, wakers: &mut Wakers, proven_at: Option<Instant>) -> Woken {
        let Wakers { accounts, claims, files, circumstances, verdicts, work, leads } = wakers;
        let may_pass = self.fault.as_ref().is_some_and(|fault| fault.passes);
        let of_rights = if may_pass { Woken::Check } else { Woken::Rights };
        let of_work = if self.ending.waits.is_some() { Woken::Check } else { Woken::Rest };
        let waits_for_claim = self.waits_for_claim();
        let now = Instant::now();
        let is_resting = self.pacing.rests_until(now).is_some();
        let next = self.pacing.next(now).into_iter().chain(proven_at).min();
        tokio::select! {
            gone = self.newest.changed() => if gone.is_ok() { Woken::Rest } else { Woken::Gone },
            () = self.shared.stop.cancelled() => Woken::Stopped,
            Ok(()) = any_changed(accounts) => Woken::Check,
            Ok(()) = claims.changed(), if waits_for_claim => Woken::Check,
            Ok(()) = circumstances.changed(), if may_pass || self.stake.is_some() => of_rights,
            Ok(()) = files.changed(), if !is_resting => Woken::Files,
            () = self.follower.changed(), if !is_resting => Woken::Check,
            Ok(()) = verdicts.changed() => Woken::Rest,
            () = self.shared.lease.held(), if !*leads => { *leads = true; Woken::Check }
            Ok(()) = any_changed(work), if !self.pacing.is_status_due() => of_work,
            // Several times may have come: an attempt includes all that the others ask for.
            () = sleep_until(next.unwrap_or(now)), if next.is_some() => {
                if self.pacing.is_attempt_due(Instant::now()) { Woken::Check } else { Woken::Rest }
            }
        }
    }

    /// Waits until the spec is stable, and returns the resource; `None` if it is gone. Does not
    /// wait for the first spec, nor for the spec of a resource that is being deleted.
    async fn come_to_rest(&mut self, newest: Arc<Processor>) -> Newest {
        let is_deleting = newest.metadata.deletion_timestamp.is_some();
        if is_deleting || self.seen.as_ref().is_none_or(|seen| *seen == Seen::of(&newest)) {
            return Some(newest);
        }
        let (mut newest, end) = (newest, Instant::now() + MAX_STABLE_SPEC_WAIT);
        let mut quiet = Instant::now() + STABLE_AFTER;
        loop {
            tokio::select! {
                () = self.shared.stop.cancelled() => return Some(newest),
                () = sleep_until(quiet.min(end)) => return Some(newest),
                changed = self.newest.changed() => {
                    let next = self.newest.borrow_and_update().clone();
                    let next = next.filter(|_| changed.is_ok())?;
                    if Seen::of(&next) != Seen::of(&newest) {
                        quiet = Instant::now() + STABLE_AFTER;
                    }
                    newest = next;
                }
            }
        }
    }

    /// Removes the version, the metrics and the claims of a resource that is gone.
    async fn forget(&mut self) {
        self.take_out().await;
        self.shared.host.forget_metrics(&self.name);
        self.shared.claims.forget(&self.name);
        self.shared.images.forget(&self.name).await;
        self.shared.progress.gone(&self.name);
    }

    /// Runs the version that the spec asks for, or ends a Processor that is deleted. Records the
    /// fault if that fails.
    async fn act(&mut self, newest: &Processor) {
        self.check_running_account().await;
        self.give_up_claims(newest).await;
        self.ending.waits = None;
        let done = if newest.metadata.deletion_timestamp.is_some() {
            self.end(newest).await
        } else {
            self.put_to_work(newest, None).await
        };
        let fault = done.err();
        if self.stake.is_none() {
            // The running version may still hold finalizers, though another version was refused.
            self.give_up_claims(newest).await;
        }
        if fault.as_ref().is_some_and(Fault::is_superseded) {
            // The newer spec is handled next. The phase is not `Pending`: a Processor that is
            // changed all the time must not keep the host from being ready.
            self.shared.progress.set(&self.name, Phase::Faulty);
            return;
        }
        if fault.as_ref().is_some_and(|fault| fault.former == Former::Ends) {
            self.take_out().await;
        }
        let passes = fault.as_ref().is_some_and(|fault| fault.passes);
        let now = Instant::now();
        self.pacing.attempted(passes, self.versions.waits_for_last(now), now);
        self.record(fault);
    }

    /// Records the fault of the spec, if any, and the phase. Logs a fault that is new.
    fn record(&mut self, fault: Option<Fault>) {
        let is_new = |fault: &&Fault| !fault.is_pulling() && self.fault.as_ref() != Some(fault);
        if let Some(fault) = fault.as_ref().filter(is_new) {
            tracing::warn!(processor = %self.name, reason = fault.reason.as_str(), why = fault.message, "not run as asked for");
        }
        let phase = match &fault {
            None => Phase::AtWork,
            Some(fault) if fault.is_pulling() => Phase::Pulling,
            // The version of the spec is not tried yet.
            Some(_) if self.versions.waits_for_last(Instant::now()).is_some() => Phase::Pulling,
            Some(_) => Phase::Faulty,
        };
        self.shared.progress.set(&self.name, phase);
        self.fault = fault;
    }

    /// Removes the running version if it may not act as its account any longer, even if the spec
    /// has changed.
    async fn check_running_account(&mut self) {
        let Some(running) = &self.versions.running else { return };
        let account = &running.served.recipe.account;
        let consents = self.shared.accounts.check(account, self.resource.name()).is_ok();
        // While the API server does not answer, its last answer holds.
        let is_revoked = self.shared.host.acting_as(account).is_granted() == Some(false);
        if !consents || is_revoked {
            self.take_out().await;
        }
    }

    /// Fails if an account does not consent, or if the host may not act as it.
    async fn check_account(&mut self, account: &Account) -> Result<(), Fault> {
        self.shared.accounts.check(account, self.resource.name())?;
        let acting = self.shared.host.acting_as(account);
        let granted = acting.ask().await;
        self.acting = Some(acting);
        if granted == Some(true) { Ok(()) } else { Err(Fault::not_granted(account, granted)) }
    }

    async fn take_out(&mut self) {
        if self.versions.running.take().is_none() {
            return;
        }
        if let Err(error) = self.shared.host.remove(&self.name).await {
            tracing::warn!(processor = %self.name, error = %format!("{error:#}"), "a processor could not be removed");
        }
    }

    async fn set_finalizer(&self, newest: &Processor, wanted: Finalizer) -> Result<(), Fault> {
        let set = self.resource.set_finalizer(&self.shared.cluster, newest, wanted).await;
        set.map_err(|refusal| {
            let message =
                format!("the finalizer {FINALIZER} of this Processor cannot be changed: {refusal}");
            Fault::passing(Reason::FinalizerRefused, message)
        })
    }
}

/// Returns whether the resource holds the host's finalizer.
fn holds(newest: &Processor) -> bool {
    newest.metadata.finalizers.iter().flatten().any(|name| name == FINALIZER)
}

/// Waits until one of these numbers changes.
async fn any_changed(numbers: &mut [latest::Receiver<u64>]) -> Result<(), RecvError> {
    select_all(numbers.iter_mut().map(|number| Box::pin(number.changed()))).await.0
}

// === impl Wakers ===

impl Wakers {
    fn new(shared: &OperatorState) -> Self {
        Self {
            accounts: [shared.accounts.changes(), shared.host.acting_changes()],
            claims: shared.claims.changes(),
            files: shared.modules.moves(),
            circumstances: shared.host.circumstances(),
            verdicts: shared.host.verdicts(),
            work: [shared.host.activity(), shared.host.stores().progress(), shared.engine.delays()],
            leads: shared.lease.is_held(),
        }
    }
}

// === impl Seen ===

impl Seen {
    fn of(newest: &Processor) -> Self {
        let metadata = &newest.metadata;
        Self {
            uid: metadata.uid.clone(),
            generation: metadata.generation,
            is_deleting: metadata.deletion_timestamp.is_some(),
            has_finalizer: holds(newest),
        }
    }
}
