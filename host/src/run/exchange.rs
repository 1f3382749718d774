//! Processors come, are exchanged and go while the host runs.
//!
//! *Guarantees.* Runs that are on their way end on the version that they began on; what begins after the exchange begins on the
//! new one, and as the queue never gives a key out twice at once, no key runs on two versions at once. Nothing is lost: queued
//! keys stay queued, changes go on to be told to the same keys, and each key runs once more on the new version, after what
//! has changed. A version reads what it needs from when it is put to work until its last run has ended. A version that is
//! refused leaves all as it was.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::Context as _;
use tokio::sync::OwnedMutexGuard;

use super::{
    Drive, Host, Loaded, Settings, Shared, declared_kinds,
    registry::{Active, Version},
    watches::Want,
};
use crate::{
    contract::{self, Kind},
    processor::Tenant,
    queue::{self, Cause, Key, Priority},
    reconciler::Reconciler,
    store::Scope,
    triggers::{Standing, Triggers},
    view::Readable,
    watch::Watch,
};

/// A version that can be put to work: all that can be wrong with its description has been looked at.
pub(super) struct Prepared {
    pub(super) active: Active,
    pub(super) wanted: Vec<Want>,
    pub(super) standing: Vec<Standing>,
    /// Its reconcilers.
    reconcilers: Vec<contract::Reconciler>,
    settings: Settings,
}

/// The watches that a version was given; it gives them back unless it is put to work.
pub(super) struct Claim<'a> {
    shared: &'a Shared,
    user: Option<super::watches::User>,
}

// === impl Host ===

impl Host {
    /// Adds a processor, or puts a new version in the place of the one of its name, whatever it does; [`Host::exchange_tried`] looks
    /// first. The kinds that it needs and that are not watched yet are listed before, for ten seconds at most; meanwhile the former
    /// version goes on.
    ///
    /// Where the future is dropped before it is done, nothing is exchanged. Exchanges of one processor are made one after the other.
    ///
    /// # Errors
    ///
    /// A description that makes no processor. Then the former version, if there is one, goes on.
    pub async fn exchange(&self, loaded: Loaded) -> anyhow::Result<()> {
        let _turn = self.turn(&loaded.name()).await;
        let prepared = self.prepare(loaded)?;
        self.claim(&prepared).await.keep();
        self.put(prepared);
        Ok(())
    }

    /// Waits until nobody else exchanges or removes this processor.
    pub(super) async fn turn(&self, processor: &Arc<str>) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock();
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(turns.entry(Arc::clone(processor)).or_default())
        };
        turn.lock_owned().await
    }

    /// Asks what a version may do of that which it needs, and opens and lists what it reads.
    pub(super) async fn claim(&self, prepared: &Prepared) -> Claim<'_> {
        prepared.ask_rights().await;
        let claim = Claim { shared: &self.shared, user: Some(prepared.active.id) };
        let watches = self.open([prepared]);
        self.shared.listed(&watches).await;
        claim
    }

    /// Takes a processor out. Its calls that are on their way are cancelled, writes that have begun are finished; what it has written, its
    /// finalizers too, stays.
    ///
    /// # Errors
    ///
    /// No processor is called so.
    pub async fn remove(&self, name: &str) -> anyhow::Result<()> {
        let _turn = self.turn(&name.into()).await;
        let mut triggers = self.shared.triggers.lock();
        let over = {
            let mut registry = self.shared.registry.lock();
            let tenant = registry.get(name).map(|active| active.reconciler.processor().tenant());
            let tenant = tenant.cloned();
            let over = registry.remove(name)?;
            tenant.iter().for_each(Tenant::close);
            over
        };
        triggers.remove_processor(name);
        self.shared.queue.remove_processor(name);
        self.shared.parts.records.forget_processor(name);
        self.shared.denials.forget_processor(name);
        self.shared.parts.metrics.forget_processor(name);
        drop(triggers);
        self.shared.release(over);
        self.shared.moved();
        tracing::info!(processor = name, "removed");
        Ok(())
    }

    /// Looks at all that can be wrong with a version.
    pub(super) fn prepare(&self, loaded: Loaded) -> anyhow::Result<Prepared> {
        let description = Arc::clone(&loaded.description);
        let name = loaded.name();
        let loaded = self.as_version(loaded, &name);
        let of = || format!("processor `{name}`");
        let readable = Readable::new(&description).with_context(of)?;
        let wanted = readable.wanted().to_vec();
        let own_name = loaded.settings.name.as_deref().unwrap_or(&description.name);
        let standing = |of| {
            let standing = Standing::new(&name, of)?;
            Ok(standing.writing_as(&loaded.settings.namespace, own_name))
        };
        let standing: Result<Vec<Standing>, String> =
            description.reconcilers.iter().map(standing).collect();
        let standing = standing.map_err(anyhow::Error::msg).with_context(of)?;
        let version = Version {
            processor: Arc::clone(&name),
            version: description.version.clone(),
            digest: loaded.processor.digest(),
        };
        let settings = loaded.settings.clone();
        let reconciler = Reconciler::new(loaded, Arc::new(readable), self.shared.parts.clone())
            .with_context(of)?;
        let since = (self.shared.parts.now)();
        let kinds = declared_kinds(&description);
        let active = Active::new(self.next_user(), version, reconciler, kinds, since);
        let reconcilers = description.reconcilers.clone();
        Ok(Prepared { active, wanted, standing, reconcilers, settings })
    }

    /// All versions of a processor share what its calls may hold.
    fn as_version(&self, loaded: Loaded, name: &Arc<str>) -> Loaded {
        let registry = self.shared.registry.lock();
        let tenant = registry.get(name).map(|active| active.reconciler.processor().tenant());
        let processor = match tenant {
            Some(tenant) => loaded.processor.of(tenant.clone()),
            None => loaded.processor.of_new(name),
        };
        Loaded { processor, ..loaded }
    }

    /// Opens and widens the watches that versions need.
    pub(super) fn open<'a>(&self, prepared: impl IntoIterator<Item = &'a Prepared>) -> Vec<Watch> {
        // Nothing is closed in between.
        let mut watches = self.shared.watches.lock();
        let mut users = Vec::new();
        for of in prepared {
            let limited = of.active.reconciler.limited();
            watches.add(of.active.id, of.active.reconciler.rights().cloned(), &of.wanted, limited);
            users.push(of.active.id);
        }
        let steps = watches.plan();
        self.shared.carry_out(steps);
        watches.of_users(&users)
    }

    /// Puts a version to work, at once.
    pub(super) fn put(&self, prepared: Prepared) {
        let Prepared { active, standing, reconcilers, settings, .. } = prepared;
        let active = Arc::new(active);
        let version = Arc::clone(&active.version);
        let tenant = active.reconciler.processor().tenant().clone();
        let (shared, name) = (&self.shared, Arc::clone(&version.processor));
        // No run begins or ends, and no change is told, in between.
        let mut triggers = shared.triggers.lock();
        let former = shared.registry.lock().get(&name).cloned();
        let gone = former.iter().flat_map(|former| former.reconciler.gone_from(&reconcilers));
        let gone: Vec<&str> = gone.collect();
        for gone in &gone {
            triggers.remove_reconciler(&name, gone);
            shared.queue.remove_reconciler(&name, gone);
        }
        let over = shared.registry.lock().put(active);
        // A run that ends from now on leaves no record under such a key any more.
        for gone in gone {
            shared.parts.records.forget_reconciler(&name, gone);
        }
        let concurrency = self.limit(&name, &settings, &reconcilers);
        if settings.ending.is_some() {
            // Nothing comes of these any more, and what is held is to be seen to under the same keys.
            tenant.cancel_calls();
        }
        let_begin(&tenant, concurrency);
        let keys = keys(&mut triggers, &name, standing, shared);
        for key in keys {
            if former.is_some() {
                shared.queue.renew(&key, Cause::NewVersion, Priority::Background);
            } else {
                shared.queue.add(&key, Cause::Start, Priority::Change);
            }
        }
        drop(triggers);
        shared.release(over);
        shared.moved();
        tracing::info!(processor = %name, version = version.version, digest = %version.digest, "put to work");
    }

    /// Sets how many of a processor's calls run at once and how many runs begin in a second, from now on. Where it is 0, none: those that run
    /// are cancelled.
    pub fn set_pace(&self, processor: &Arc<str>, concurrency: usize, rate: Option<u32>) {
        if self.options.drive == Drive::Host {
            let limits = queue::Limits { concurrency, rate: rate.map(f64::from) };
            self.shared.queue.set_processor(processor, limits);
            if let Some(active) = self.shared.registry.lock().get(processor) {
                let_begin(active.reconciler.processor().tenant(), concurrency);
            }
        }
    }

    /// Says how many calls may run at once.
    fn limit(
        &self,
        name: &Arc<str>,
        settings: &Settings,
        reconcilers: &[contract::Reconciler],
    ) -> usize {
        let is_driven = self.options.drive == Drive::Caller;
        let limits = if is_driven {
            queue::Limits { concurrency: usize::MAX, rate: None }
        } else {
            queue::Limits {
                concurrency: settings.concurrency.unwrap_or(self.options.concurrency),
                rate: settings.rate.map(f64::from),
            }
        };
        self.shared.queue.set_processor(name, limits);
        for reconciler in reconcilers {
            let interval = if is_driven {
                Duration::ZERO
            } else {
                Duration::from_millis(reconciler.min_interval)
            };
            let of = reconciler.name.as_str().into();
            self.shared.queue.set_min_interval(name, &of, interval);
        }
        limits.concurrency
    }
}

/// Of a processor that runs none at once, no call goes on or begins.
fn let_begin(tenant: &Tenant, concurrency: usize) {
    if concurrency == 0 { tenant.close() } else { tenant.open() }
}

/// Every key of a processor: of the objects that are there, and those that the former version knew.
fn keys(
    triggers: &mut Triggers,
    processor: &str,
    standing: Vec<Standing>,
    shared: &Shared,
) -> BTreeSet<Key> {
    let mut keys = BTreeSet::from_iter(triggers.keys_of(processor));
    for standing in standing {
        keys.extend(triggers.add_reconciler(standing, &shared.parts.stores));
    }
    keys
}

// === impl Prepared ===

impl Prepared {
    /// Asks what its account may do of that which it needs.
    async fn ask_rights(&self) {
        if let Some(rights) = self.active.reconciler.rights() {
            rights.ask_needed().await;
            let scopes: Vec<(Kind, Scope)> =
                self.wanted.iter().map(|(kind, scope, _)| (kind.clone(), scope.clone())).collect();
            rights.ask_watches(&scopes).await;
            self.active.tell_missing_rights();
        }
    }
}

// === impl Claim ===

impl Claim<'_> {
    /// Who it was made for is put to work.
    pub(super) fn keep(mut self) {
        self.user = None;
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.shared.release(self.user);
    }
}
