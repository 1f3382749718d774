//! Adds, swaps and removes processors while the host runs.
//!
//! *Guarantees.* A run ends on the version that it began on; a run that begins after the swap
//! begins on the new version. The queue never gives a key out twice at once, so no key runs on two
//! versions at once. No key is lost: queued keys stay queued, changes still trigger the same keys,
//! and each key runs once more on the new version, after the keys that have changed. The watches
//! that a version needs are open from the swap until its last run has ended. A refused version
//! changes nothing.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use mortise_core::{
    contract::Kind,
    grant::{Grant, rights},
    outbound::Outbound,
    queue,
    reconcile::{Reconciler, Setup, Version},
    store::Scope,
};
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use super::{
    Drive, Hooking, Host, HostState, Loaded, Settings, egress, registry::Active, watches::Want,
};
use crate::{
    cluster::{Routes, watch::Watch},
    wasm::Tenant,
};

/// A version that can be swapped in: its description has been checked.
pub(super) struct Prepared {
    pub(super) active: Active,
    pub(super) hooking: Hooking,
    pub(super) wanted: Vec<Want>,
    settings: Settings,
}

/// The watches of a version that is not swapped in yet. Dropping the claim releases them, unless
/// [`Claim::keep`] was called.
pub(super) struct Claim<'a> {
    shared: &'a HostState,
    user: Option<super::watches::User>,
    processor: Arc<str>,
}

// === impl Host ===

impl Host {
    /// Adds a processor, or swaps in a new version of it without any trial;
    /// [`Host::swap_tried`] tries the version first. Kinds that the version needs and that are
    /// not watched yet are listed before the swap, for ten seconds at most; the former version runs
    /// on meanwhile.
    ///
    /// If the future is dropped before it is done, nothing is swapped. Swaps of one processor are
    /// serialized.
    ///
    /// # Errors
    ///
    /// Fails if the description is not valid. The former version, if any, runs on.
    pub async fn swap(&self, loaded: Loaded) -> anyhow::Result<()> {
        let _turn = self.turn(&loaded.name()).await;
        let prepared = self.prepare(loaded)?;
        self.claim(&prepared).await.keep();
        self.put(prepared);
        Ok(())
    }

    /// Waits until no other task swaps or removes this processor.
    pub(super) async fn turn(&self, processor: &Arc<str>) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock();
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(turns.entry(Arc::clone(processor)).or_default())
        };
        turn.lock_owned().await
    }

    /// Asks for the rights that a version needs, opens its watches, and waits for their first
    /// lists. The hooks of a first version are served from now on: the lists may need them.
    pub(super) async fn claim(&self, prepared: &Prepared) -> Claim<'_> {
        let processor = Arc::clone(prepared.name());
        let claim = Claim { shared: &self.shared, user: Some(prepared.active.id), processor };
        if claim.is_first() {
            self.shared.hooks.begin(prepared);
            self.shared.notify_activity();
        }
        prepared.ask_rights().await;
        let watches = self.open([prepared]);
        self.shared.listed(&watches).await;
        claim
    }

    /// Removes a processor. Its running calls are cancelled; writes that have begun are finished.
    /// Objects that it has written stay, and so do its finalizers.
    ///
    /// # Errors
    ///
    /// Fails if there is no processor of this name.
    pub async fn remove(&self, name: &str) -> anyhow::Result<()> {
        let _turn = self.turn(&name.into()).await;
        let over = {
            let mut registry = self.shared.registry.lock();
            let tenant = registry.get(name).map(|active| active.processor.tenant());
            let tenant = tenant.cloned();
            let over = registry.remove(name)?;
            tenant.iter().for_each(Tenant::close);
            over
        };
        self.shared.parts.dispatch.remove(name);
        self.shared.parts.records.forget_processor(name);
        self.shared.parts.writer.forget_keys(|key| &**key.processor() == name);
        self.shared.hooks.remove(name);
        self.shared.denials.forget_processor(name);
        self.shared.metrics.forget_processor(name);
        self.shared.outbound.forget_processor(name);
        self.shared.release(over);
        self.shared.notify_activity();
        tracing::info!(processor = name, "removed");
        Ok(())
    }

    /// Builds a version and validates its description.
    pub(super) fn prepare(&self, loaded: Loaded) -> anyhow::Result<Prepared> {
        let description = Arc::clone(&loaded.description);
        let name = loaded.name();
        let loaded = self.as_version(loaded, &name);
        let of = || format!("processor `{name}`");
        let grant = Arc::new(Grant::new(&description).with_context(of)?);
        let wanted = grant.wanted().to_vec();
        let version = Arc::new(Version {
            processor: Arc::clone(&name),
            version: description.version.clone(),
            digest: loaded.processor.digest(),
            libraries: loaded.processor.libraries().map(|(of, by)| (of.to_owned(), by)).collect(),
        });
        let Loaded { processor, hooks, config, settings, .. } = loaded;
        let shared = &self.shared;
        let rights = settings.account.as_ref();
        let rights = rights.map(|account| shared.access.of(account, &description));
        let cluster = rights.as_ref().map_or(&shared.cluster, |rights| rights.cluster());
        let names = (&name, &settings.namespace);
        let remotes = shared.clusters.of(names, &settings.clusters, &grant, cluster);
        let remotes = remotes.with_context(of)?;
        if let Some(rights) = &rights {
            rights.set_remotes(&remotes);
        }
        let hooking = shared.hooking(
            &processor,
            (hooks, Arc::clone(&config)),
            &grant,
            rights.clone().map(|rights| rights as Arc<dyn rights::Rights>),
        );
        let setup = Setup {
            identity: Arc::clone(&version),
            call: Arc::new(processor.clone()),
            description: Arc::clone(&description),
            config,
            settings: settings.clone(),
            grant,
            api: Arc::new(Routes::new(cluster, &remotes, rights.as_ref())),
            rights: rights.clone().map(|rights| rights as Arc<dyn rights::Rights>),
            outbound: Some(self.outbound()),
            egress: settings.egress.to_vec(),
        };
        let reconciler = Reconciler::new(setup, shared.parts.clone());
        let egress_gaps = egress::gaps(&description.outbound, &settings.egress);
        let active = Active {
            id: self.next_user(),
            egress_gaps,
            version,
            reconciler,
            processor,
            rights,
            kinds: description.kinds(),
            named: [description.at_home(), description.elsewhere()].map(|of| of.kinds()),
            since: (shared.parts.now)(),
            tally: Mutex::default(),
            conduct: Mutex::default(),
        };
        active.need_rights_of(&active.reconciler.started());
        Ok(Prepared { active, hooking, wanted, settings })
    }

    /// Returns the client for calls to systems outside of the cluster.
    fn outbound(&self) -> Arc<dyn Outbound> {
        let given = self.options.outbound.client.clone();
        given.unwrap_or_else(|| Arc::new(self.shared.outbound.clone()))
    }

    /// Assigns a component to the tenant of its processor: all versions of a processor share the
    /// bounds on memory and call slots.
    fn as_version(&self, loaded: Loaded, name: &Arc<str>) -> Loaded {
        let registry = self.shared.registry.lock();
        let tenant = registry.get(name).map(|active| active.processor.tenant());
        let processor = match tenant {
            Some(tenant) => loaded.processor.of(tenant.clone()),
            None => loaded.processor.of_new(name),
        };
        Loaded { processor, ..loaded }
    }

    /// Opens and widens the watches that versions need. Returns these watches.
    pub(super) fn open<'a>(&self, prepared: impl IntoIterator<Item = &'a Prepared>) -> Vec<Watch> {
        // Locked until the steps are carried out: no watch is closed in between.
        let mut watches = self.shared.watches.lock();
        let mut users = Vec::new();
        for of in prepared {
            let limited = of.active.reconciler.limited();
            watches.add(of.active.id, of.active.rights.clone(), &of.wanted, limited);
            watches.set_started(of.active.id, &of.active.reconciler.started());
            users.push(of.active.id);
        }
        let steps = watches.plan();
        self.shared.carry_out(steps);
        watches.of_users(&users)
    }

    /// Swaps a version in at once, in place of the former version, if any.
    pub(super) fn put(&self, prepared: Prepared) {
        let Prepared { active, hooking, settings, .. } = prepared;
        let active = Arc::new(active);
        let version = Arc::clone(&active.version);
        let tenant = active.processor.tenant().clone();
        let (shared, name) = (&self.shared, Arc::clone(&version.processor));
        let former = shared.registry.lock().get(&name).cloned();
        let former = former.as_ref().map(|former| &former.reconciler);
        let put = Arc::clone(&active);
        let over = active.reconciler.put(former, || {
            let over = shared.registry.lock().put(put);
            shared.hooks.put(&name, hooking);
            let concurrency = self.limit(&name, &settings, &active);
            if settings.removal.is_some() {
                // The outcomes of running calls are not needed any more, but their keys are, to
                // handle the finalizers.
                tenant.cancel_calls();
            }
            let_begin(&tenant, concurrency);
            over
        });
        shared.follow_started(&active);
        shared.release(over);
        shared.notify_activity();
        tracing::info!(processor = %name, version = version.version, digest = %version.digest, "swapped in");
        for (interface, digest) in version.libraries.iter() {
            tracing::info!(processor = %name, %interface, %digest, "calls a library");
        }
    }

    /// Sets how many calls of a processor run at once and how many runs begin in a second, from now
    /// on. With a concurrency of 0 no call runs, and running calls are cancelled. Does nothing with
    /// [`Drive::Caller`].
    pub(crate) fn set_pace(&self, processor: &Arc<str>, concurrency: usize, rate: Option<u32>) {
        if self.options.drive == Drive::Host {
            let limits = queue::Limits { concurrency, rate: rate.map(f64::from) };
            self.shared.parts.dispatch.queue().set_processor(processor, limits);
            if let Some(active) = self.shared.registry.lock().get(processor) {
                let_begin(active.processor.tenant(), concurrency);
            }
        }
    }

    /// Sets the limits of a processor and the minimum intervals of its reconcilers in the queue.
    /// Returns the concurrency of calls.
    fn limit(&self, name: &Arc<str>, settings: &Settings, active: &Active) -> usize {
        let is_driven = self.options.drive == Drive::Caller;
        let limits = if is_driven {
            queue::Limits { concurrency: usize::MAX, rate: None }
        } else {
            queue::Limits {
                concurrency: settings.concurrency.unwrap_or(self.options.concurrency),
                rate: settings.rate.map(f64::from),
            }
        };
        self.shared.parts.dispatch.queue().set_processor(name, limits);
        for reconciler in active.reconciler.reconcilers() {
            let spec = &reconciler.spec;
            let interval =
                if is_driven { Duration::ZERO } else { Duration::from_millis(spec.min_interval) };
            self.shared.parts.dispatch.queue().set_min_interval(name, &reconciler.id, interval);
        }
        limits.concurrency
    }
}

/// Lets calls of a processor begin. With a concurrency of 0, running calls are cancelled instead
/// and no call begins.
fn let_begin(tenant: &Tenant, concurrency: usize) {
    if concurrency == 0 { tenant.close() } else { tenant.open() }
}

// === impl Prepared ===

impl Prepared {
    pub(super) fn name(&self) -> &Arc<str> {
        &self.active.version.processor
    }

    /// Asks the API server for the rights that the version needs.
    async fn ask_rights(&self) {
        if let Some(rights) = &self.active.rights {
            rights.ask_needed().await;
            let scopes: Vec<(Kind, Scope)> =
                self.wanted.iter().map(|(kind, scope, _)| (kind.clone(), scope.clone())).collect();
            rights.ask_watches(&scopes).await;
            self.active.log_missing_rights();
        }
    }
}

// === impl Claim ===

impl Claim<'_> {
    /// Returns whether no version of the processor runs.
    fn is_first(&self) -> bool {
        self.shared.registry.lock().get(&self.processor).is_none()
    }

    /// Keeps the watches open: the version is swapped in.
    pub(super) fn keep(mut self) {
        self.user = None;
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if self.user.is_some() && self.is_first() {
            self.shared.hooks.remove(&self.processor);
        }
        self.shared.release(self.user);
    }
}
