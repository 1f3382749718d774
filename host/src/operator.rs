//! Watches the Processor resources and runs a `Controller` for each of them.
//!
//! *Guarantees.* Each Processor has its own controller, so a fault of one stops no other. If a new
//! spec cannot be loaded or swapped in, the former version keeps running, and the conditions say
//! so; a version whose account withdraws its consent is removed. A status is written at most about
//! once a second, and only if it differs from the last one.
//!
//! *Assumption.* The cluster acts with the host's own rights, and the host runs no other
//! processors.

mod accounts;
pub mod admin;
pub mod api;
mod claims;
mod controller;
mod egress;
mod fault;
mod images;
mod load;
mod module;
mod owners;
mod progress;
mod recipe;
mod resource;
mod retry;
mod source;
pub mod status;
mod stored;

pub use egress::granted;
pub use fault::{Fault, Former};
pub use images::{Away, Options as ImageOptions};
pub use progress::Progress;
pub use recipe::{Largest, limits_of_call};

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use futures::StreamExt as _;
use kube::{
    ResourceExt as _,
    api::ApiResource,
    runtime::watcher::{self, Event},
};
use mortise_core::write::Clock;
use tokio::{sync::watch as latest, task::JoinSet};
use tokio_util::sync::CancellationToken;

use self::{
    accounts::Accounts,
    claims::Claims,
    controller::{Controller, Newest},
    images::Images,
    module::Modules,
    owners::Owners,
    progress::{Phase, Phases},
    stored::Shares,
};
use crate::{
    cluster::{
        Cluster,
        lean::{self, LeanObject},
        lease::Guard,
    },
    host::Host,
    operator::api::Processor,
    wasm::{Engine, namespace_of},
};

#[cfg(any(test, fuzzing))]
use self::recipe::{Pace, Recipe};
#[cfg(any(test, fuzzing))]
use mortise_core::grant::rights::Account;

/// The time limit for the last statuses, which are written when the operator stops.
const LAST_STATUSES_TIMEOUT: Duration = Duration::from_secs(5);

/// The settings of an [`Operator`].
#[derive(Clone)]
pub struct Options {
    /// The namespace whose Processors are run; `None`: all namespaces.
    pub namespace: Option<String>,
    /// The folder of module files.
    pub modules: PathBuf,
    /// The options for modules from registries.
    pub images: ImageOptions,
    /// The clock for the times in conditions.
    pub now: Clock,
    /// The guard of the Lease: held if this host may write. A standby loads the same versions as
    /// the leader, and writes no statuses.
    pub lease: Guard,
    /// The upper bounds on the limits of a Processor.
    pub largest: Largest,
}

/// The owner of the controllers of all Processors.
pub struct Operator {
    shared: Arc<OperatorState>,
    namespace: Option<String>,
    /// The tasks of the controllers; each returns the name of its Processor.
    tasks: JoinSet<Arc<str>>,
    /// The senders of the newest state of each Processor to its controller.
    senders: BTreeMap<Arc<str>, latest::Sender<Newest>>,
    /// The Processors of the list that the watch is delivering.
    coming: BTreeSet<Arc<str>>,
    shares: Shares,
    is_listed: bool,
}

/// The state that all controllers share.
struct OperatorState {
    cluster: Cluster,
    engine: Engine,
    host: Arc<Host>,
    modules: Modules,
    images: Images,
    now: Clock,
    lease: Guard,
    largest: Largest,
    accounts: Accounts,
    claims: Claims,
    progress: Arc<Phases>,
    /// Cancelled to end the controllers.
    stop: CancellationToken,
}

// === impl Operator ===

impl Operator {
    /// Opens the folder of modules, and asks the API server for the user name of the host.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be opened, or if the API server refuses the `SelfSubjectReview`.
    pub async fn open(
        cluster: &Cluster,
        engine: &Engine,
        host: &Arc<Host>,
        options: Options,
    ) -> anyhow::Result<Self> {
        let modules = Modules::open(&options.modules)?;
        let shared = OperatorState {
            cluster: cluster.clone(),
            engine: engine.clone(),
            host: Arc::clone(host),
            modules,
            images: Images::new(options.images, Arc::clone(&options.now)),
            now: options.now,
            lease: options.lease.clone(),
            largest: options.largest,
            accounts: Accounts::build(cluster).await?,
            claims: Claims::new(&options.lease),
            progress: Arc::default(),
            stop: CancellationToken::new(),
        };
        let owners = Owners::new(cluster, host, options.namespace.as_deref());
        host.ask_about_managers(Arc::new(owners));
        Ok(Self {
            shared: Arc::new(shared),
            namespace: options.namespace,
            tasks: JoinSet::new(),
            senders: BTreeMap::new(),
            coming: BTreeSet::new(),
            shares: Shares::default(),
            is_listed: false,
        })
    }

    /// Returns a receiver of the progress of all Processors.
    pub fn progress(&self) -> latest::Receiver<Progress> {
        self.shared.progress.subscribe()
    }

    /// Runs the controllers until `stop` is cancelled. Versions that run then keep running.
    ///
    /// # Errors
    ///
    /// Fails if the host may not watch Processors or accounts, if one of these watches ended, or if
    /// a controller panicked.
    pub async fn run(mut self, stop: CancellationToken) -> anyhow::Result<()> {
        let (shared, namespace) = (Arc::clone(&self.shared), self.namespace.clone());
        let ended = tokio::select! {
            () = stop.cancelled() => Ok(()),
            ended = shared.accounts.watch(&shared.cluster, namespace.as_deref()) => ended,
            ended = self.follow() => ended,
            () = shared.modules.watch() => Ok(()),
        };
        self.write_last_statuses().await;
        ended
    }

    /// Ends the controllers, and waits at most [`LAST_STATUSES_TIMEOUT`] until each has written its
    /// last status.
    async fn write_last_statuses(&mut self) {
        self.shared.stop.cancel();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_STATUSES_TIMEOUT, ended).await.is_err() {
            tracing::warn!("last statuses of Processors were not written in time");
        }
        self.tasks.shutdown().await;
    }

    async fn follow(&mut self) -> anyhow::Result<()> {
        self.shared.accounts.listed().await;
        let resource = ApiResource::erase::<Processor>(&());
        // Untyped: in a typed list, one Processor that fails to deserialize would hide all others.
        let mut events =
            lean::all::<true>(&self.shared.cluster, &resource, self.namespace.as_deref());
        loop {
            tokio::select! {
                event = events.next() => match event.context("the watch of Processors ended")? {
                    Ok(event) => self.take(event),
                    Err(error) => failed("processors", &error, self.is_listed)?,
                },
                Some(ended) = self.tasks.join_next() => {
                    let name = ended.context("the controller of a Processor failed")?;
                    if self.senders.get(&name).is_some_and(latest::Sender::is_closed) {
                        self.senders.remove(&name);
                    }
                }
            }
        }
    }

    fn take(&mut self, event: Event<LeanObject>) {
        match event {
            Event::Init => self.coming.clear(),
            Event::InitApply(object) => {
                self.coming.insert(name_of(&object));
                self.upsert(object);
            }
            Event::Apply(object) => self.upsert(object),
            Event::InitDone => {
                let coming = std::mem::take(&mut self.coming);
                let known: Vec<Arc<str>> = self.senders.keys().cloned().collect();
                known.iter().filter(|name| !coming.contains(*name)).for_each(|name| self.end(name));
                self.is_listed = true;
                self.shared.claims.all_recorded();
                self.shared.images.all_recorded();
                self.shared.progress.listed();
            }
            Event::Delete(object) => self.end(&name_of(&object)),
        }
    }

    /// Ends the controller of a Processor that is gone.
    fn end(&mut self, name: &Arc<str>) {
        self.shares.release(namespace_of(name), name);
        if let Some(sender) = self.senders.get(name) {
            sender.send_replace(None);
        }
    }

    fn upsert(&mut self, object: LeanObject) {
        let name = name_of(&object);
        let processor = Arc::new(self.shares.read(&name, object));
        self.shared.claims.record(&name, &processor);
        self.shared.images.record(&name, &processor);
        // A Processor whose controller is about to end gets a new controller, which starts after
        // the former one has removed its version.
        let alive = self
            .senders
            .get(&name)
            .filter(|sender| !sender.is_closed() && sender.borrow().is_some());
        if let Some(sender) = alive {
            sender.send_replace(Some(processor));
            return;
        }
        self.shared.progress.set(&name, Phase::Pending);
        let (sender, newest) = latest::channel(Some(Arc::clone(&processor)));
        let namespace = processor.namespace().unwrap_or_default();
        let controller = Controller::new(&self.shared, &namespace, &processor.name_any(), newest);
        let former = self.senders.insert(name, sender);
        self.tasks.spawn(async move {
            if let Some(former) = former {
                former.closed().await;
            }
            controller.run().await
        });
    }
}

fn name_of(object: &LeanObject) -> Arc<str> {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any()).into()
}

/// Parses a stored Processor, and builds the recipe and settings of its spec.
#[cfg(any(test, fuzzing))]
pub(crate) fn check_stored(object: &str) {
    let Ok(object) = serde_json::from_str::<LeanObject>(object) else { return };
    let processor = Shares::default().read(&name_of(&object), object);
    let spec = &processor.spec;
    let account = Account { namespace: "a".to_owned(), name: spec.service_account_name.clone() };
    let library = crate::wasm::Digest::of(b"");
    let libraries = vec![library; spec.libraries.len()];
    let digests = recipe::Digests { module: library, libraries };
    let recipe = Recipe::new(spec, &account, &digests, None, &Largest::default());
    if Fault::unreadable(spec).is_none()
        && source::sources(spec).is_ok()
        && source::keys(spec).is_ok()
        && let Ok(recipe) = recipe
    {
        recipe.settings("p", Pace::new(spec, false, &Largest::default()));
    }
}

/// Logs the failure of a watch, which is retried. Fails if the watch has no first list yet, and the
/// API server answers 401 or 403.
fn failed(what: &str, error: &watcher::Error, is_listed: bool) -> anyhow::Result<()> {
    let (watcher::Error::InitialListFailed(cause)
    | watcher::Error::WatchStartFailed(cause)
    | watcher::Error::WatchFailed(cause)) = error
    else {
        tracing::debug!(what, %error, "a watch failed, trying again");
        return Ok(());
    };
    if let kube::Error::Api(status) = cause
        && !is_listed
        && matches!(status.code, 401 | 403)
    {
        anyhow::bail!("this host may not get, list and watch {what}: {}", status.message);
    }
    tracing::warn!(what, error = %cause, "a watch failed, trying again");
    Ok(())
}
