//! Swaps of versions: loads the version that the spec asks for, checks it, tries it and swaps it
//! in, and rolls it back if it turns out bad.
//!
//! *Guarantee.* A running version is replaced only by one that passed its checks, and is restored
//! if more than half of the calls of the new one break in its first minute. A version that was
//! rolled back is not tried again until the spec or the module changes. A new process, which does
//! not know of refusals, takes the version that ran last, if that came from a registry and can be
//! loaded, as the former version of its first swap.

use std::{future::pending, sync::Arc};

use mortise_core::grant::rights::Account;
use tokio::{sync::watch as latest, time::Instant};

use super::{
    Controller, Newest,
    modules::{Named, spec_of_last_version},
    versions::Served,
};
use crate::{
    host::{Loaded, NotSwapped, Removal, Trust, Verdict},
    operator::{
        api::{Processor, ProcessorSpec},
        claims::Claim,
        fault::Fault,
        images::Use,
        load::load,
        recipe::{Pace, Recipe},
        resource::Finalizer,
        source::{ReadModule, Source},
    },
    wasm::{self, LibraryModule},
};

impl Controller {
    /// Runs the version that the spec asks for. While nothing runs, the version that ran last, by
    /// the status, runs first: it is the former version of the first swap.
    ///
    /// Faults that may end have two minutes; then only the version of the spec is loaded.
    pub(super) async fn put_to_work(
        &mut self,
        newest: &Processor,
        removal: Option<Removal>,
    ) -> Result<(), Fault> {
        if let Some(last) = self.last_version(newest) {
            match self.run_version(newest, &last, removal).await {
                // The version that has worked cleans up, and none takes its place untried.
                Ok(()) if removal.is_some() => return Ok(()),
                Ok(()) => {
                    tracing::info!(processor = %self.name, "the version that ran last runs again");
                }
                Err(fault) if fault.is_superseded() => return Err(fault),
                Err(fault) if fault.may_end() => return Err(fault.of_last_version()),
                Err(fault) => {
                    self.versions.give_up_last(Instant::now());
                    tracing::warn!(processor = %self.name, reason = fault.reason.as_str(), why = fault.message, "the version that ran last is not run");
                }
            }
        }
        self.run_version(newest, &newest.spec, removal).await
    }

    /// Returns the spec with the artifacts that ran last, if these are others and are to run first.
    fn last_version(&mut self, newest: &Processor) -> Option<ProcessorSpec> {
        let last = spec_of_last_version(&newest.spec, &self.last_status)?;
        self.versions.wait_for_last(Instant::now()).then_some(last)
    }

    /// Loads the version of a spec and swaps it in, unless it runs already.
    async fn run_version(
        &mut self,
        newest: &Processor,
        spec: &ProcessorSpec,
        removal: Option<Removal>,
    ) -> Result<(), Fault> {
        let named = self.named(spec)?;
        let pace = Pace::new(spec, removal.is_some(), &self.shared.largest);
        // The running version is suspended at once, however long the version of the spec takes to
        // load.
        self.keep_pace(pace);
        let account = self.account(newest);
        self.check_account(&account).await?;
        let largest = self.shared.largest;
        self.follow(&named, spec, &account)?;
        // Unchanged files, which may be large, are not read again.
        if let Some(read) = self.digests_as_read(&named).await
            && let Ok(recipe) = Recipe::new(spec, &account, &read.digests, removal, &largest)
            && self.versions.runs(&recipe)
        {
            return self.keep_at_work(newest, removal).await;
        }
        let modules = self.read_modules(&named).await?;
        let Some(read) = &self.versions.read else { return Err(Fault::superseded()) };
        let origins = read.origins.clone();
        let recipe = Recipe::new(spec, &account, &read.digests, removal, &largest)?;
        if self.versions.runs(&recipe) {
            // Equal modules may have another origin now, and other signatures.
            self.versions.running.iter_mut().for_each(|of| of.served.origins = origins.clone());
            self.keep_images();
            return self.keep_at_work(newest, removal).await;
        }
        self.versions.check(&recipe, newest.metadata.generation)?;
        let loaded = self.load(newest, (&named, modules), &recipe, pace).await?;
        let claim = Claim::of(&loaded.description);
        // The claims of the running version are added, since it may keep running.
        let all = claim.clone().and(&self.claimed(Some(&loaded.description)));
        let before = self.shared.claims.of(&self.name);
        self.claim(newest, &account, all).await?;
        let served = Served { recipe, loaded, claim, origins };
        let done = match self.hold(newest, removal).await {
            Ok(()) => self.swap(served, pace).await,
            Err(fault) => Err(fault),
        };
        if done.is_err() {
            // A version that is not swapped in claims nothing.
            self.shared.claims.keep_only(&self.name, &before);
            self.stake = None;
        }
        done
    }

    /// Returns the account that the spec names.
    pub(super) fn account(&self, newest: &Processor) -> Account {
        Account {
            namespace: self.resource.namespace().to_owned(),
            name: newest.spec.service_account_name.clone(),
        }
    }

    /// Loads a module. If the Processor changes meanwhile, an account withdraws its consent or the
    /// host stops, the load is cancelled, and the child process that compiles the module is ended.
    async fn load(
        &mut self,
        newest: &Processor,
        (named, modules): (&Named, Vec<ReadModule>),
        recipe: &Recipe,
        pace: Pace,
    ) -> Result<Loaded, Fault> {
        let mut modules = named.sources().zip(modules);
        let with = |(source, read): (&Source, ReadModule), limits: &wasm::Limits| wasm::Module {
            name: source.to_string(),
            content: read.content,
            limits: limits.clone(),
        };
        let Some(module) = modules.next() else { return Err(Fault::superseded()) };
        let module = with(module, &recipe.limits);
        let libraries = modules.zip(&recipe.libraries).map(|(read, library)| LibraryModule {
            interface: library.interface.clone(),
            module: with(read, &library.limits),
        });
        let libraries = libraries.collect();
        let start = Instant::now();
        let as_named = (self.resource.name(), pace);
        let loading = load(&self.shared.engine, (module, libraries), recipe, as_named);
        let loaded = tokio::select! {
            biased;
            loaded = Box::pin(loading) => loaded,
            () = superseded(self.newest.clone(), newest) => Err(Fault::superseded()),
            () = self.consent_withdrawn(&recipe.account) => Err(Fault::superseded()),
            () = self.shared.stop.cancelled() => Err(Fault::superseded()),
        };
        self.pacing.loaded(start.elapsed(), Instant::now());
        if let Err(fault) = &loaded
            && let Some(module) = &fault.unusable
        {
            self.follower.give_up(module, fault).await;
        }
        loaded
    }

    /// Waits until an account withdraws its consent: `account`, or the account of the running
    /// version.
    async fn consent_withdrawn(&self, account: &Account) {
        let running = self.versions.running.as_ref().map(|of| &of.served.recipe.account);
        let mut changes = self.shared.accounts.changes();
        let consents = |of: &Account| self.shared.accounts.check(of, self.resource.name()).is_ok();
        while consents(account) && running.is_none_or(consents) {
            if changes.changed().await.is_err() {
                pending::<()>().await;
            }
        }
    }

    /// Swaps a version in after its trial, whose duration depends on the processor. Cancels the
    /// trial if the Processor is deleted, suspended or resumed, an account withdraws its consent,
    /// or the host stops.
    async fn try_swap(&self, served: &Served) -> Result<Result<(), NotSwapped>, Fault> {
        let (loaded, mut newest) = (served.loaded.clone(), self.newest.clone());
        let suspends = |newest: &Newest| newest.as_ref().map(|newest| newest.spec.suspend);
        let before = suspends(&newest.borrow());
        let is_over = |newest: &Newest| {
            let is_deleted = |newest: &Arc<Processor>| newest.metadata.deletion_timestamp.is_some();
            newest.as_ref().is_none_or(is_deleted) || suspends(newest) != before
        };
        tokio::select! {
            biased;
            swapped = Box::pin(self.shared.host.swap_tried(loaded)) => Ok(swapped),
            // An error means that the sender was dropped: the Processor is gone.
            _ = newest.wait_for(is_over) => Err(Fault::superseded()),
            () = self.consent_withdrawn(&served.recipe.account) => Err(Fault::superseded()),
            () = self.shared.stop.cancelled() => Err(Fault::superseded()),
        }
    }

    /// Sets the concurrency and the rate of the running version.
    fn keep_pace(&mut self, pace: Pace) {
        if let Some(running) = self.versions.running.as_mut().filter(|of| of.pace != pace) {
            self.shared.host.set_pace(&self.name, pace.concurrency, pace.rate);
            running.pace = pace;
        }
    }

    /// Renews the claims and the finalizer of a Processor whose version runs already.
    async fn keep_at_work(
        &mut self,
        newest: &Processor,
        removal: Option<Removal>,
    ) -> Result<(), Fault> {
        let Some(running) = &self.versions.running else { return Ok(()) };
        let (claim, account) = (self.claimed(None), running.served.recipe.account.clone());
        let claimed = self.claim(newest, &account, claim).await;
        // Another Processor holds a finalizer that this one gave up, or could not claim before:
        // this version must not run beside that one.
        claimed.map_err(Fault::ending_what_runs)?;
        self.hold(newest, removal).await?;
        self.versions.check_running(newest.metadata.generation)
    }

    /// Puts the host's finalizer on the resource before a version runs, so that the resource stays
    /// until the finalizers on other objects are handled.
    async fn hold(&self, newest: &Processor, removal: Option<Removal>) -> Result<(), Fault> {
        match removal {
            None if newest.metadata.deletion_timestamp.is_none() && self.shared.lease.is_held() => {
                self.set_finalizer(newest, Finalizer::There).await
            }
            _ => Ok(()),
        }
    }

    /// Swaps a version in. A version that replaces another is tried first, unless it is to end the
    /// processor.
    async fn swap(&mut self, served: Served, pace: Pace) -> Result<(), Fault> {
        let host = &self.shared.host;
        let is_tried = self.versions.running.is_some() && served.recipe.removal.is_none();
        let trust = is_tried.then(|| host.trust(&self.name));
        let swapped = if is_tried {
            self.try_swap(&served).await?
        } else {
            host.swap(served.loaded.clone()).await.map_err(NotSwapped::from)
        };
        swapped.map_err(|refused| Fault::not_swapped(&refused))?;
        self.versions.replace(served, pace, trust.as_ref());
        self.keep_for_running();
        Ok(())
    }

    /// Limits the claims to those of the running version and of the one that may be restored, and
    /// the artifacts that are kept to those of the versions.
    fn keep_for_running(&self) {
        if self.versions.running.is_none() {
            return;
        }
        self.shared.claims.keep_only(&self.name, self.claimed(None).held());
        self.keep_images();
    }

    /// Keeps the artifacts of the versions.
    fn keep_images(&self) {
        let Some(manifests) = self.versions.manifests() else { return };
        self.shared.images.keep(&self.name, Use::Runs, manifests);
    }

    /// Rolls the running version back if it has failed its probation. Drops the former version if
    /// the running one is proven. Returns the end of the probation; `None` if the version is not on
    /// probation, or not called yet.
    pub(super) async fn judge(&mut self) -> Option<Instant> {
        let running = self.versions.running.as_mut()?;
        running.former.as_ref()?;
        match self.shared.host.trust(&self.name) {
            Trust::OnProbation { until, .. } => return until,
            Trust::Broken(verdict) => self.roll_back(&verdict).await,
            Trust::Proven => {
                running.former = None;
                self.keep_for_running();
            }
        }
        None
    }

    /// Swaps the former version in again. If it must not or cannot be restored, the broken version
    /// keeps running, and the fault holds the reason.
    async fn roll_back(&mut self, verdict: &Verdict) {
        let Some(running) = &self.versions.running else { return };
        let broken = running.served.loaded.description.version.clone();
        let Some(former) = self.versions.take_former() else { return };
        let restored = self.bring_back(&former).await;
        let fault = match &restored {
            Ok(()) => Fault::rolled_back(&broken, verdict),
            Err(fault) => {
                tracing::error!(processor = %self.name, error = fault.message, "the former version is not restored");
                let former = &former.loaded.description.version;
                Fault::stays_broken(&broken, verdict, former, fault)
            }
        };
        self.versions.refuse(self.seen.as_ref().and_then(|seen| seen.generation), &fault);
        if restored.is_ok() {
            self.versions.restore(former);
            self.keep_for_running();
        }
        self.record(Some(fault));
    }

    async fn bring_back(&mut self, former: &Served) -> Result<(), Fault> {
        self.check_account(&former.recipe.account).await?;
        self.may_come_back(&former.origins)?;
        let swapped = self.shared.host.swap(former.loaded.clone()).await;
        swapped.map_err(|error| Fault::not_swapped(&error.into()))
    }

    /// Lets the running version finalize its objects, if the version of the spec does not run.
    pub(super) async fn end_with_running(
        &mut self,
        newest: &Processor,
        removal: Option<Removal>,
    ) -> Result<(), Fault> {
        let Some(running) = &self.versions.running else { return Ok(()) };
        let pace = Pace::new(&newest.spec, removal.is_some(), &self.shared.largest);
        let mut served = running.served.clone().at_pace(pace);
        served.recipe.removal = removal;
        served.loaded.settings.removal = removal;
        self.swap(served, pace).await
    }
}

/// Waits until a resource asks for another module or account, is suspended or resumed, is being
/// deleted, or is gone.
async fn superseded(mut newest: latest::Receiver<Newest>, loading: &Processor) {
    let asks = |of: &Processor| {
        let spec = &of.spec;
        let is_deleted = of.metadata.deletion_timestamp.is_some();
        let account = spec.service_account_name.clone();
        let signed = spec.verification.clone();
        let modules = (spec.module.clone(), spec.libraries.clone(), signed);
        (of.metadata.uid.clone(), is_deleted, modules, account, spec.suspend)
    };
    let asked = asks(loading);
    let changed = newest.wait_for(|newest| newest.as_deref().map(asks).as_ref() != Some(&asked));
    // An error means that the sender was dropped: the Processor is gone.
    let _ = changed.await;
}
