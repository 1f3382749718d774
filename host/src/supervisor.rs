//! Watches the Processor resources, and sees that what runs is what they ask for.
//!
//! *Guarantees.* One Processor's fault stops nothing else: each has a keeper of its own. Where a new spec cannot be put to work, the
//! former version goes on, and the conditions say so; a version whose account does not consent any more is taken out. A status
//! is written at most about once a second, and only where it differs.
//!
//! *Assumption.* The cluster acts with the host's own rights, and the host runs no processors but these.

mod accounts;
mod claims;
mod fault;
mod keeper;
mod load;
mod module;
mod progress;
mod recipe;
mod resource;

pub use fault::{Fault, Former};
pub use progress::Progress;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context as _;
use futures::StreamExt as _;
use kube::{
    Api, Resource as _, ResourceExt as _,
    api::{ApiResource, DynamicObject},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event},
    },
};
use tokio::{sync::watch as latest, task::JoinSet};
use tokio_util::sync::CancellationToken;

use self::{
    accounts::Accounts,
    claims::Claims,
    keeper::{Keeper, Newest},
    module::Modules,
    progress::{Phase, Phases},
};
use crate::{
    api::Processor,
    cluster::Cluster,
    lease::Guard,
    processor::Engine,
    run::{Clock, Host},
};

/// How long the last statuses may take.
const FAREWELL: Duration = Duration::from_secs(5);

/// How Processors are looked after.
#[derive(Clone)]
pub struct Options {
    /// The namespace whose Processors are run; none: all.
    pub namespace: Option<String>,
    /// The folder of modules.
    pub modules: PathBuf,
    /// The time.
    pub now: Clock,
    /// Whether this host writes. One that does not loads what it would run, and says nothing.
    pub lease: Guard,
}

/// Looks after the Processors.
pub struct Supervisor {
    shared: Arc<Shared>,
    namespace: Option<String>,
    keepers: JoinSet<Arc<str>>,
    kept: BTreeMap<Arc<str>, latest::Sender<Newest>>,
    /// Those of the list that is coming in.
    coming: Vec<Arc<str>>,
    is_listed: bool,
}

/// What the keepers share.
struct Shared {
    cluster: Cluster,
    engine: Engine,
    host: Arc<Host>,
    modules: Modules,
    now: Clock,
    lease: Guard,
    accounts: Accounts,
    claims: Claims,
    progress: Arc<Phases>,
    /// Cancelled when the keepers are to end.
    stop: CancellationToken,
}

// === impl Supervisor ===

impl Supervisor {
    /// Opens the folder of modules, and asks the API server who the host is.
    ///
    /// # Errors
    ///
    /// A folder that cannot be opened; an API server that does not say who the host is.
    pub async fn open(
        cluster: &Cluster,
        engine: &Engine,
        host: &Arc<Host>,
        options: Options,
    ) -> anyhow::Result<Self> {
        let modules = Modules::open(&options.modules)?;
        let shared = Shared {
            cluster: cluster.clone(),
            engine: engine.clone(),
            host: Arc::clone(host),
            modules,
            now: options.now,
            lease: options.lease,
            accounts: Accounts::build(cluster).await?,
            claims: Claims::default(),
            progress: Arc::default(),
            stop: CancellationToken::new(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            namespace: options.namespace,
            keepers: JoinSet::new(),
            kept: BTreeMap::new(),
            coming: Vec::new(),
            is_listed: false,
        })
    }

    /// How far the Processors are.
    pub fn progress(&self) -> latest::Receiver<Progress> {
        self.shared.progress.subscribe()
    }

    /// Looks after the Processors until it is told to stop. What runs, runs on.
    ///
    /// # Errors
    ///
    /// What makes the host of no use: it may not watch Processors or accounts, or a part of it has failed.
    pub async fn run(mut self, stop: CancellationToken) -> anyhow::Result<()> {
        let (shared, namespace) = (Arc::clone(&self.shared), self.namespace.clone());
        let ended = tokio::select! {
            () = stop.cancelled() => Ok(()),
            ended = shared.accounts.watch(&shared.cluster, namespace.as_deref()) => ended,
            ended = self.follow() => ended,
            () = shared.modules.watch() => Ok(()),
        };
        self.farewell().await;
        ended
    }

    /// Every keeper says how its Processor stands, unless that takes too long.
    async fn farewell(&mut self) {
        self.shared.stop.cancel();
        let said = async { while self.keepers.join_next().await.is_some() {} };
        if tokio::time::timeout(FAREWELL, said).await.is_err() {
            tracing::warn!("not all Processors have been told how they stand at the end");
        }
        self.keepers.shutdown().await;
    }

    async fn follow(&mut self) -> anyhow::Result<()> {
        self.shared.accounts.listed().await;
        let resource = ApiResource::erase::<Processor>(&());
        let client = self.shared.cluster.client().clone();
        // Not typed: one that does not fit the type would hide all others.
        let api: Api<DynamicObject> = match &self.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        let mut events =
            watcher::watcher(api, watcher::Config::default()).default_backoff().boxed();
        loop {
            tokio::select! {
                event = events.next() => match event.context("the watch of Processors ended")? {
                    Ok(event) => self.take(event),
                    Err(error) => failed("processors", &error, self.is_listed)?,
                },
                Some(ended) = self.keepers.join_next() => {
                    let name = ended.context("what looks after a Processor failed")?;
                    self.kept.retain(|kept, sender| *kept != name || !sender.is_closed());
                }
            }
        }
    }

    fn take(&mut self, event: Event<DynamicObject>) {
        match event {
            Event::Init => self.coming.clear(),
            Event::InitApply(object) => {
                self.coming.push(name_of(&object));
                self.upsert(object);
            }
            Event::Apply(object) => self.upsert(object),
            Event::InitDone => {
                let coming = std::mem::take(&mut self.coming);
                let gone = self.kept.iter().filter(|(name, _)| !coming.contains(name));
                gone.for_each(|(_, sender)| drop(sender.send_replace(None)));
                self.is_listed = true;
                self.shared.progress.listed();
            }
            Event::Delete(object) => {
                if let Some(sender) = self.kept.get(&name_of(&object)) {
                    sender.send_replace(None);
                }
            }
        }
    }

    fn upsert(&mut self, object: DynamicObject) {
        let name = name_of(&object);
        let processor = match read(object) {
            Ok(processor) => Arc::new(processor),
            Err(error) => {
                tracing::error!(processor = %name, %error, "a Processor is not of this host's version of the kind");
                return;
            }
        };
        // One whose keeper is about to leave is followed by another: the former has taken out what it ran by then.
        let alive =
            self.kept.get(&name).filter(|sender| !sender.is_closed() && sender.borrow().is_some());
        if let Some(sender) = alive {
            sender.send_replace(Some(processor));
            return;
        }
        self.shared.progress.set(&name, Phase::Pending);
        let (sender, newest) = latest::channel(Some(Arc::clone(&processor)));
        let namespace = processor.namespace().unwrap_or_default();
        let keeper = Keeper::new(&self.shared, &namespace, &processor.name_any(), newest);
        let former = self.kept.insert(name, sender);
        self.keepers.spawn(async move {
            if let Some(former) = former {
                former.closed().await;
            }
            keeper.run().await
        });
    }
}

fn name_of(object: &DynamicObject) -> Arc<str> {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any()).into()
}

fn read(object: DynamicObject) -> serde_json::Result<Processor> {
    let mut value = serde_json::to_value(object)?;
    if let Some(fields) = value.as_object_mut() {
        // Items of a list come without.
        fields.insert("apiVersion".to_owned(), Processor::api_version(&()).into());
        fields.insert("kind".to_owned(), Processor::kind(&()).into());
    }
    serde_json::from_value(value)
}

/// A watch that fails is tried again, unless it has never worked and may not.
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
