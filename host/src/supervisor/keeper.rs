//! Sees that what runs is what one Processor asks for, and says how it stands. One thing after the other; each Processor has a
//! keeper of its own, so that none waits for another.

use std::{future::pending, sync::Arc, time::Duration};

use tokio::{
    sync::watch as latest,
    time::{Instant, sleep_until},
};

use super::{
    Shared,
    claims::Claim,
    fault::{Fault, Former},
    load::load,
    progress::Phase,
    recipe::{Pace, Recipe, check_supported},
    resource::{Finalizer, Resource},
};
use crate::{
    api::{self, FINALIZER, OnDelete, Processor, ProcessorStatus},
    cluster::Account,
    contract::Description,
    processor::Digest,
    run::{self, Ending, Loaded},
    status,
};

/// The shortest time between two looks at how a processor stands, and so between two writes of a status.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
/// When what failed is tried again the first time; twice as long after each more time.
const FIRST_AGAIN: Duration = Duration::from_secs(5);
const LAST_AGAIN: Duration = Duration::from_mins(5);

/// The newest state of a resource; none once it is gone.
pub(super) type Newest = Option<Arc<Processor>>;

pub(super) struct Keeper {
    shared: Arc<Shared>,
    /// As the host knows it: `namespace/name`.
    name: Arc<str>,
    account_namespace: String,
    own_name: String,
    resource: Resource,
    newest: latest::Receiver<Newest>,
    running: Option<Running>,
    fault: Option<Fault>,
    /// Why the deletion of the Processor is not done yet.
    waits: Option<String>,
    /// What was looked at last.
    seen: Option<Seen>,
    /// With what the version was put to work that sees to what is held.
    ends_as: Option<Seen>,
    /// How often in a row it was tried in vain.
    attempts: u32,
    again: Option<Instant>,
    said: ProcessorStatus,
    /// When it may be looked how it stands.
    may_say: Instant,
    /// It was too early to look.
    owes: bool,
}

/// What of a resource asks for something to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    uid: Option<String>,
    generation: Option<i64>,
    is_deleting: bool,
    has_finalizer: bool,
}

/// A version at work.
struct Running {
    recipe: Recipe,
    pace: Pace,
    description: Arc<Description>,
    /// Whether the first runs are still to be made.
    is_new: bool,
    /// Whether the objects that hold a finalizer were told that the processor is to go.
    told_to_end: bool,
}

// === impl Keeper ===

impl Keeper {
    pub(super) fn new(
        shared: &Arc<Shared>,
        namespace: &str,
        name: &str,
        newest: latest::Receiver<Newest>,
    ) -> Self {
        let said = newest.borrow().as_ref().and_then(|newest| newest.status.clone());
        Self {
            shared: Arc::clone(shared),
            name: format!("{namespace}/{name}").into(),
            account_namespace: namespace.to_owned(),
            own_name: name.to_owned(),
            resource: Resource::new(namespace, name),
            newest,
            running: None,
            fault: None,
            waits: None,
            seen: None,
            ends_as: None,
            attempts: 0,
            again: None,
            said: said.unwrap_or_default(),
            may_say: Instant::now(),
            owes: false,
        }
    }

    /// Keeps until the resource is gone.
    pub(super) async fn run(mut self) -> Arc<str> {
        let mut accounts = self.shared.accounts.changes();
        let mut claims = self.shared.claims.changes();
        let mut activity = self.shared.host.activity();
        let mut stores = self.shared.host.progress();
        let (lease, stop) = (self.shared.lease.clone(), self.shared.stop.clone());
        let (mut look, mut leads) = (true, lease.is_held());
        loop {
            let newest = self.newest.borrow_and_update().clone();
            let Some(newest) = newest else { break };
            let seen = Seen::of(&newest);
            if look || self.seen.as_ref() != Some(&seen) {
                self.seen = Some(seen);
                self.attend(&newest).await;
            }
            self.say(&newest).await;
            look = tokio::select! {
                gone = self.newest.changed() => match gone { Ok(()) => false, Err(_) => break },
                () = stop.cancelled() => {
                    // What runs, runs on: only what is owed is said.
                    self.may_say = Instant::now();
                    self.say(&newest).await;
                    return self.name;
                }
                Ok(()) = accounts.changed() => true,
                Ok(()) = claims.changed() => true,
                () = lease.held(), if !leads => { leads = true; true }
                () = until(self.again) => true,
                () = until(self.owes.then_some(self.may_say)) => false,
                Ok(()) = activity.changed(), if !self.owes => self.waits.is_some(),
                Ok(()) = stores.changed(), if !self.owes => self.waits.is_some(),
            };
        }
        self.leave().await;
        self.name
    }

    /// The resource is gone: nothing of it runs any more.
    async fn leave(&mut self) {
        self.take_out().await;
        self.shared.claims.forget(&self.name);
        self.shared.progress.gone(&self.name);
    }

    /// Does what the spec asks for, and notes why it cannot.
    async fn attend(&mut self, newest: &Processor) {
        self.check_running_account().await;
        self.waits = None;
        let done = if newest.metadata.deletion_timestamp.is_some() {
            self.end(newest).await
        } else {
            self.put_to_work(newest, None).await
        };
        let fault = done.err();
        if fault.as_ref().is_some_and(|fault| fault.former == Former::Ends) {
            self.take_out().await;
        }
        if let Some(fault) = fault.as_ref().filter(|fault| self.fault.as_ref() != Some(fault)) {
            tracing::warn!(processor = %self.name, reason = fault.reason, message = fault.message, "not run as asked for");
        }
        let passes = fault.as_ref().is_some_and(|fault| fault.passes);
        self.attempts = if passes { self.attempts.saturating_add(1) } else { 0 };
        self.again = passes.then(|| Instant::now() + wait_after(self.attempts));
        self.shared
            .progress
            .set(&self.name, if fault.is_some() { Phase::Faulty } else { Phase::AtWork });
        self.fault = fault;
    }

    /// Loads what the spec asks for, unless that is at work, and exchanges it.
    async fn put_to_work(
        &mut self,
        newest: &Processor,
        ending: Option<Ending>,
    ) -> Result<(), Fault> {
        let spec = &newest.spec;
        let path = check_supported(spec)?;
        let account = Account {
            namespace: self.account_namespace.clone(),
            name: spec.service_account_name.clone(),
        };
        self.shared.accounts.check(&account, &self.own_name)?;
        let bytes = self.shared.modules.read(path).await?;
        let recipe = Recipe::new(spec, &account, Digest::of(&bytes), ending)?;
        let pace = Pace::new(spec, ending.is_some());
        if let Some(running) = self.running.as_mut().filter(|running| running.recipe == recipe) {
            if running.pace != pace {
                self.shared.host.set_pace(&self.name, pace.concurrency, pace.rate);
                running.pace = pace;
            }
            let claim = Claim::new(created(newest), &running.description);
            self.shared.claims.claim(&self.name, &claim)?;
            return self.hold(newest, ending).await;
        }
        let as_named = (self.own_name.as_str(), pace);
        let loaded = load(&self.shared.engine, path, bytes, &recipe, as_named).await?;
        let claim = Claim::new(created(newest), &loaded.description);
        self.shared.claims.claim(&self.name, &claim)?;
        self.hold(newest, ending).await?;
        self.exchange(loaded, recipe, pace).await
    }

    /// Before something of it runs, the resource has to stay until what was left on other objects is seen to.
    async fn hold(&self, newest: &Processor, ending: Option<Ending>) -> Result<(), Fault> {
        match ending {
            None if newest.metadata.deletion_timestamp.is_none() && self.shared.lease.is_held() => {
                self.set_finalizer(newest, Finalizer::There).await
            }
            _ => Ok(()),
        }
    }

    /// Takes out what runs if its account does not consent any more, whatever the spec says by now.
    async fn check_running_account(&mut self) {
        let Some(running) = &self.running else { return };
        if self.shared.accounts.check(&running.recipe.account, &self.own_name).is_err() {
            self.take_out().await;
        }
    }

    async fn exchange(&mut self, loaded: Loaded, recipe: Recipe, pace: Pace) -> Result<(), Fault> {
        let description = Arc::clone(&loaded.description);
        let exchanged = self.shared.host.exchange(loaded).await;
        exchanged.map_err(|error| Fault::new("DescriptionInvalid", format!("{error:#}")))?;
        self.running =
            Some(Running { recipe, pace, description, is_new: true, told_to_end: false });
        Ok(())
    }

    async fn take_out(&mut self) {
        if self.running.take().is_none() {
            return;
        }
        if let Err(error) = self.shared.host.remove(&self.name).await {
            tracing::warn!(processor = %self.name, error = %format!("{error:#}"), "not removed");
        }
    }

    async fn set_finalizer(&self, newest: &Processor, wanted: Finalizer) -> Result<(), Fault> {
        let set = self.resource.set_finalizer(&self.shared.cluster, newest, wanted).await;
        set.map_err(|refusal| {
            let message =
                format!("the finalizer {FINALIZER} of this Processor cannot be changed: {refusal}");
            Fault::passing("FinalizerRefused", message)
        })
    }

    /// The Processor is being deleted: sees to what it holds, then lets it go.
    async fn end(&mut self, newest: &Processor) -> Result<(), Fault> {
        if !holds(newest) {
            self.take_out().await;
            return Ok(());
        }
        if !self.shared.lease.is_held() {
            return Ok(());
        }
        if let Err(fault) = self.prepare_end(newest).await {
            self.waits = Some(format!(
                "is being deleted, and what it holds cannot be seen to: {}; mend that, or take the finalizer {FINALIZER} away by hand",
                fault.message
            ));
            return Err(fault);
        }
        if self.is_ended() {
            self.set_finalizer(newest, Finalizer::Gone).await?;
            self.take_out().await;
        }
        Ok(())
    }

    /// Puts the version to work that sees to what is held.
    async fn prepare_end(&mut self, newest: &Processor) -> Result<(), Fault> {
        let ending = match (newest.spec.mode, newest.spec.on_delete) {
            // Nothing is written of what it wants, so nothing can be given up either.
            (api::Mode::Observe, _) => None,
            (api::Mode::Reconcile, OnDelete::Finalize) => Some(Ending::Finalize),
            (api::Mode::Reconcile, OnDelete::Release) => Some(Ending::Release),
        };
        let is_prepared = self.running.as_ref().is_some_and(|running| {
            let mut finalizers = running.description.reconcilers.iter().map(|of| &of.finalizers);
            let holds_none = finalizers.all(Vec::is_empty);
            holds_none || (running.recipe.ending == ending && self.ends_as == self.seen)
        });
        if is_prepared {
            return Ok(());
        }
        self.put_to_work(newest, ending).await?;
        self.ends_as.clone_from(&self.seen);
        Ok(())
    }

    /// Whether no object holds a finalizer of the processor any more; notes what is waited for.
    fn is_ended(&mut self) -> bool {
        let Some(running) = &mut self.running else { return true };
        let Some(held) = self.shared.host.holding(&self.name) else {
            self.waits =
                Some("waits for the lists of the objects that may hold its finalizers".to_owned());
            return false;
        };
        if held.is_empty() {
            return true;
        }
        if !std::mem::replace(&mut running.told_to_end, true) {
            self.shared.host.run_again(&held);
        }
        let is_observing = running.recipe.mode == run::Mode::Observe;
        self.waits = Some(ending_text(&held, is_observing));
        false
    }

    /// Writes how it stands, if that differs from what was said last, and not too often.
    async fn say(&mut self, newest: &Processor) {
        if !self.shared.lease.is_held() {
            return;
        }
        if Instant::now() < self.may_say {
            self.owes = true;
            return;
        }
        self.owes = false;
        self.may_say = Instant::now() + BETWEEN_LOOKS;
        let status = self.status(newest);
        if status == self.said {
            return;
        }
        match self.resource.write_status(&self.shared.cluster, &status).await {
            Ok(()) => self.said = status,
            Err(refusal) => {
                tracing::warn!(processor = %self.name, %refusal, "the status of a Processor is not written");
                self.may_say = Instant::now() + FIRST_AGAIN;
                self.owes = true;
            }
        }
    }

    fn status(&mut self, newest: &Processor) -> ProcessorStatus {
        let host = self.shared.host.status_of(&self.name);
        let twins = self.shared.claims.waiting_for(&self.name);
        if let (Some(running), Some(host)) = (&mut self.running, &host) {
            let known = (host.objects + host.ready) as u64;
            running.is_new &= host.ready + host.running > 0 && host.runs < known;
        }
        let running = self.running.as_ref().zip(host.as_ref()).map(|(running, host)| {
            let description = &*running.description;
            status::Running { description, status: host, is_new: running.is_new, twins: &twins }
        });
        let state = match (&self.waits, self.running.as_ref()) {
            (Some(waits), _) => status::State::Ends(waits),
            (None, Some(running)) if running.pace.concurrency == 0 => status::State::Suspended,
            (None, Some(running)) if running.recipe.mode == run::Mode::Observe => {
                status::State::Observes
            }
            _ => status::State::Runs,
        };
        status::compute(&status::Known {
            generation: newest.metadata.generation,
            fault: self.fault.as_ref(),
            running,
            state,
            before: &self.said,
            now: (self.shared.now)(),
        })
    }
}

fn ending_text(held: &[crate::queue::Key], is_observing: bool) -> String {
    const LISTED: usize = 3;
    let names: Vec<String> = held
        .iter()
        .take(LISTED)
        .map(|key| {
            let namespace =
                key.namespace().map(|namespace| format!("{namespace}/")).unwrap_or_default();
            format!("{} {namespace}{}", key.reconciler(), key.name())
        })
        .collect();
    let more = if held.len() > LISTED { ", …" } else { "" };
    let names = names.join(", ");
    let advice = if is_observing { "; nothing is written while spec.mode is Observe" } else { "" };
    format!(
        "is being deleted: {} objects hold its finalizers still ({names}{more}){advice}",
        held.len()
    )
}

/// Whether the resource holds the host's finalizer.
fn holds(newest: &Processor) -> bool {
    newest.metadata.finalizers.iter().flatten().any(|name| name == FINALIZER)
}

fn created(newest: &Processor) -> String {
    newest.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default()
}

fn wait_after(attempts: u32) -> Duration {
    let doubled = 2_u32
        .checked_pow(attempts.saturating_sub(1))
        .and_then(|times| FIRST_AGAIN.checked_mul(times));
    doubled.unwrap_or(LAST_AGAIN).min(LAST_AGAIN)
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
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
