//! The steps from a guest's sources to a running processor: build, load, swap.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use mortise_core::contract::Selection;
use mortise_embedded_api::EmbeddedApi;
use mortise_host::{
    cluster::Cluster,
    host::{Host, Loaded},
    wasm::{Digest, Engine},
};
use tokio_util::sync::CancellationToken;

use super::{
    build::{self, Built},
    change::Sources,
    message::{Message, Running, Sender, short},
};
use crate::{
    args::ModuleArgs,
    egress::{self, Grant},
    files,
    guest::Guest,
    hooks,
    local::{self, Parts},
};

/// The data for one renewal of a guest.
pub(super) struct Renewal {
    /// The guest's place in the command line.
    pub(super) index: usize,
    pub(super) guest: Arc<Guest>,
    pub(super) config: Arc<str>,
    /// The systems outside of the cluster that the guest may call.
    pub(super) egress: Arc<[Grant]>,
    pub(super) with: ModuleArgs,
    /// The running version of this guest, if any.
    pub(super) present: Option<Version>,
    /// The processor names of the other guests, with their folders.
    pub(super) taken: Vec<(String, String)>,
    pub(super) engine: Engine,
    pub(super) api: Arc<EmbeddedApi>,
    pub(super) cluster: Cluster,
    /// The host in which the processor is swapped; `None` until all guests have been built once.
    pub(super) host: Option<Arc<Host>>,
    pub(super) messages: Sender,
}

/// A version of a processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) name: String,
    pub(super) number: String,
    pub(super) digest: Digest,
    /// The interfaces and digests of its libraries.
    libraries: Vec<(String, Digest)>,
    /// The declared credentials.
    pub(super) credentials: Vec<Selection>,
}

/// The result of a renewal.
pub(super) enum Renewed {
    /// The renewal was cancelled by a newer save.
    GivenUp,
    /// The build is equal to the running version.
    Unchanged,
    /// The renewal failed; the running version stays.
    Failed(anyhow::Error),
    /// The guest was loaded, and waits for the host's start.
    First { guest: Arc<Guest>, sources: Sources, loaded: Loaded, built: Duration },
    /// The new version runs.
    Swapped { guest: Arc<Guest>, sources: Sources, running: Running, version: Version },
}

// === impl Version ===

impl Version {
    /// Returns the version of a loaded processor.
    pub(super) fn of(loaded: &Loaded) -> Self {
        Self {
            name: loaded.description.name.clone(),
            number: loaded.description.version.clone(),
            digest: loaded.processor.digest(),
            libraries: loaded.processor.libraries().map(|(of, by)| (of.to_owned(), by)).collect(),
            credentials: loaded.description.credentials().cloned().collect(),
        }
    }
}

// === impl Renewal ===

impl Renewal {
    /// Builds, loads and swaps. Once cancelled, it ends soon and swaps no version.
    pub(super) async fn run(mut self, give_up: &CancellationToken) -> Renewed {
        let started = Instant::now();
        // The save may have changed the manifest itself.
        let sources = match self.read_again().await {
            Ok(sources) => sources,
            Err(error) => return Renewed::Failed(error),
        };
        let (messages, index) = (self.messages.clone(), self.index);
        // A closed channel means that the program ends.
        let say = move |line| _ = messages.send(Message::Line(index, line));
        let module = match build::build(&self.guest, say, give_up).await {
            Built::Component(module) => module,
            Built::Failed(error) => return Renewed::Failed(error.into()),
            Built::GivenUp => return Renewed::GivenUp,
        };
        let built = started.elapsed();
        tokio::select! {
            () = give_up.cancelled() => Renewed::GivenUp,
            renewed = self.take_up(&module, sources, built) => renewed.unwrap_or_else(Renewed::Failed),
        }
    }

    async fn read_again(&mut self) -> anyhow::Result<Sources> {
        let folder = self.guest.folder().to_owned();
        let read = move || {
            let guest = Guest::open(&folder)?;
            let sources = Sources::of(&guest)?;
            anyhow::Ok((guest, sources))
        };
        let (guest, sources) =
            tokio::task::spawn_blocking(read).await.context("reading the manifest broke off")??;
        self.guest = Arc::new(guest);
        Ok(sources)
    }

    async fn take_up(
        &self,
        module: &Path,
        sources: Sources,
        built: Duration,
    ) -> anyhow::Result<Renewed> {
        let started = Instant::now();
        let parts = Parts::of_guest(Some(&self.guest), module.to_owned(), &self.with)?;
        let mut loaded = local::load_into(&self.engine, parts, self.config.to_string()).await?;
        egress::grant(&mut loaded, self.egress.iter().cloned())?;
        let guest = Arc::clone(&self.guest);
        let Some(host) = &self.host else {
            return Ok(Renewed::First { guest, sources, loaded, built });
        };
        let crds: Result<Vec<_>, _> = guest.crds.iter().map(|folder| files::open(folder)).collect();
        local::apply_files(&self.cluster, crds?.concat()).await?;
        let version = Version::of(&loaded);
        if self.present.as_ref() == Some(&version) {
            return Ok(Renewed::Unchanged);
        }
        if let Some((name, folder)) = self.taken.iter().find(|(name, _)| *name == version.name) {
            anyhow::bail!(
                "the processor of `{folder}` is called `{name}` too: rename one in its description"
            );
        }
        let served = hooks::serve_converted_of(&self.api, &loaded.hooks)?;
        if !served.is_empty() {
            // A closed channel means that the program ends.
            let _ = self.messages.send(Message::Note(hooks::served_note(&served)));
        }
        for kind in local::serve_untyped(&self.api, &loaded.description, |_| false) {
            // A closed channel means that the program ends.
            let _ = self.messages.send(Message::Note(local::untyped(&kind)));
        }
        host.swap(loaded).await?;
        if let Some(former) = self.present.as_ref().filter(|former| former.name != version.name) {
            host.remove(&former.name).await?;
        }
        let running = Running {
            guest: self.index,
            name: version.name.clone(),
            version: version.number.clone(),
            digest: short(version.digest),
            former: self.present.as_ref().map(|former| short(former.digest)),
            built,
            taken_up: started.elapsed(),
        };
        Ok(Renewed::Swapped { guest, sources, running, version })
    }
}
