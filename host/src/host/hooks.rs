//! Calls the hooks of processors: those of the running version, or of the first version once it is
//! loaded.
//!
//! *Guarantees.* The hooks of a processor are served before its first lists are complete: the API
//! server may need its conversions to answer them. A request in flight during a swap ends on the
//! version that it began on.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use bytes::Bytes;
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use mortise_core::{
    contract::{
        Kind, Level,
        bounds::ENTRY,
        hooks::{self, Conversion, Decision, Given, Hooks, Review, Target},
    },
    error_chain,
    grant::{Grant, rights::Rights},
    reads::{PAGE_BYTES, View},
    store::Stores,
    write::Clock,
};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio_util::task::TaskTracker;
use tracing::{debug, error, info, trace, warn};

use super::{Host, HostState, Loaded, NotServed, swap::Prepared};
use crate::{
    blocking::on_text,
    wasm::{self, Line, Moment, Processor},
};

/// The maximum number of batches of one conversion that run concurrently.
const MAX_CONCURRENT_BATCHES: usize = 4;
/// Converted objects take at most so many times the bytes of the given ones, and these more.
const MAX_CONVERTED_GROWTH: usize = 3;
const SMALL_CONVERTED_BYTES: usize = 8 << 20;

/// The hooks of a version of a processor. Cheap to clone.
#[derive(Clone)]
pub struct Hooking {
    shared: Arc<Version>,
}

struct Version {
    processor: Processor,
    hooks: Arc<Hooks>,
    config: Arc<str>,
    grant: Arc<Grant>,
    rights: Option<Arc<dyn Rights>>,
    stores: Stores,
    now: Clock,
    /// The running calls: a call outlives its caller and ends at its deadline.
    calls: TaskTracker,
}

/// The reason why a hook call has no valid answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoAnswer {
    /// The request is invalid, or not for the hooks of this processor.
    #[error("{0}")]
    NotAsked(String),

    /// The processor refused: it returned this error.
    #[error("{0}")]
    Refused(String),

    /// The answer breaks a rule of the contract.
    #[error("{0}")]
    Broken(String),

    /// The call ended without an answer.
    #[error(transparent)]
    Failed(#[from] wasm::Error),
}

/// Returns the reason why the hooks of a processor are not served to the API server, if any.
pub type Port = Arc<dyn Fn(&str) -> Option<NotServed> + Send + Sync>;

/// The hooks of all processors, by their names.
#[derive(Default)]
pub(super) struct Serving {
    of: Mutex<BTreeMap<Arc<str>, Hooking>>,
    /// The state of the port, if the host has one.
    port: Mutex<Option<Port>>,
    calls: TaskTracker,
    /// The number of versions that wait only for lists whose objects this host converts.
    waiting: AtomicUsize,
}

/// A version that waits only for lists whose objects this host converts, counted until it is
/// dropped.
pub(super) struct Waiting<'a>(&'a AtomicUsize);

/// Returns whether `converted`, pairs of group and kind, holds a kind.
pub(crate) fn is_converted(of: &Kind, converted: &[(String, String)]) -> bool {
    converted.iter().any(|(group, kind)| (group, kind) == (&of.group, &of.kind))
}

// === impl Host ===

impl Host {
    /// Returns the hooks of a processor; `None` if no version of it is loaded, or if it has none.
    pub fn hooking(&self, processor: &str) -> Option<Hooking> {
        self.shared.hooks.of.lock().get(processor).cloned()
    }

    /// Returns the hooks of all processors, each with the name of its processor.
    pub(crate) fn all_hooks(&self) -> Vec<(Arc<str>, Hooking)> {
        let all = self.shared.hooks.of.lock();
        all.iter().map(|(name, hooking)| (Arc::clone(name), hooking.clone())).collect()
    }

    /// Sets the port that serves the hooks, and has statuses computed anew. To be called again when
    /// the state of the port changes.
    pub(crate) fn hooks_served_at(&self, port: Port) {
        *self.shared.hooks.port.lock() = Some(port);
        self.shared.notify_activity();
    }

    /// Returns the number of versions that wait only for lists whose objects this host converts:
    /// the API server may be able to call the host, and so to answer, only once the host is ready.
    pub fn waiting_for_own_conversions(&self) -> usize {
        self.shared.hooks.waiting.load(Ordering::Relaxed)
    }

    /// Returns the source of the kinds that this host converts, each as group and kind.
    pub(crate) fn converted_source(&self) -> super::Source<Vec<(String, String)>> {
        let shared = Arc::clone(&self.shared);
        Arc::new(move || shared.hooks.converted())
    }
}

impl HostState {
    /// Creates the hooks of a version.
    pub(super) fn hooking(
        &self,
        processor: &Processor,
        (hooks, config): (Arc<Hooks>, Arc<str>),
        grant: &Arc<Grant>,
        rights: Option<Arc<dyn Rights>>,
    ) -> Hooking {
        let version = Version {
            processor: processor.clone(),
            hooks,
            config,
            grant: Arc::clone(grant),
            rights,
            stores: self.parts.dispatch.stores().clone(),
            now: Arc::clone(&self.parts.now),
            calls: self.hooks.calls.clone(),
        };
        Hooking { shared: Arc::new(version) }
    }
}

// === impl Serving ===

impl Serving {
    /// Serves the hooks of the first version of a processor before it runs.
    pub(super) fn begin(&self, first: &Prepared) {
        let mut all = self.of.lock();
        if !first.hooking.hooks().is_empty() {
            all.entry(Arc::clone(first.name())).or_insert_with(|| first.hooking.clone());
        }
    }

    /// Serves the hooks of a version that is swapped in, in place of those of the former version.
    pub(super) fn put(&self, name: &Arc<str>, hooking: Hooking) {
        let mut all = self.of.lock();
        if hooking.hooks().is_empty() {
            all.remove(name);
        } else {
            all.insert(Arc::clone(name), hooking);
        }
    }

    pub(super) fn remove(&self, name: &str) {
        self.of.lock().remove(name);
    }

    /// Returns whether the hooks of a processor are served; `None` if it has none, or if there is
    /// no port.
    pub(super) fn state_of(&self, processor: &str) -> Option<Result<(), NotServed>> {
        let port = self.port.lock().clone()?;
        self.of.lock().contains_key(processor).then(|| port(processor).map_or(Ok(()), Err))
    }

    /// Counts a version that waits only for lists whose objects this host converts.
    pub(super) fn wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(&self.waiting)
    }

    /// Returns the kinds that this host converts, each as group and kind.
    pub(super) fn converted(&self) -> Vec<(String, String)> {
        let all = self.of.lock();
        let kinds = all.values().flat_map(|hooking| &hooking.hooks().conversions);
        kinds.map(|of| (of.group.clone(), of.kind.clone())).collect()
    }
}

// === impl Waiting ===

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl Hooking ===

impl Hooking {
    /// Creates the hooks of a processor without a host. Their reads use `stores`.
    ///
    /// # Errors
    ///
    /// Fails if the description is not valid.
    pub fn apart(loaded: &Loaded, stores: Stores, now: Clock) -> anyhow::Result<Self> {
        let version = Version {
            processor: loaded.processor.clone(),
            hooks: Arc::clone(&loaded.hooks),
            config: Arc::clone(&loaded.config),
            grant: Arc::new(Grant::new(&loaded.description)?),
            rights: None,
            stores,
            now,
            calls: TaskTracker::new(),
        };
        Ok(Self { shared: Arc::new(version) })
    }

    /// Returns the name of the processor, as the host knows it.
    pub fn name(&self) -> &Arc<str> {
        self.shared.processor.tenant().name()
    }

    /// Returns the conversions and the admission hooks of the version.
    pub fn hooks(&self) -> &Hooks {
        &self.shared.hooks
    }

    /// Converts objects of one kind to the apiVersion `to`. The answer holds as many objects, in
    /// the same order. `ends` is the deadline of the caller.
    ///
    /// # Errors
    ///
    /// Fails as a whole if one object cannot be converted, or if the answer is too large.
    pub async fn convert(
        &self,
        kind: &str,
        to: &str,
        objects: Vec<Bytes>,
        ends: Instant,
    ) -> Result<Vec<String>, NoAnswer> {
        self.convert_in_parts(kind, to, objects, ends)?.try_concat().await
    }

    /// Converts as [`Self::convert`] does, but returns the answer in parts, so that a caller may
    /// count what they hold.
    ///
    /// # Errors
    ///
    /// Fails if the version does not convert these objects.
    pub(crate) fn convert_in_parts(
        &self,
        kind: &str,
        to: &str,
        objects: Vec<Bytes>,
        ends: Instant,
    ) -> Result<impl Stream<Item = Result<Vec<String>, NoAnswer>> + Send + use<>, NoAnswer> {
        Target::new(self.hooks(), kind, to).map_err(NoAnswer::NotAsked)?;
        let sizes: Vec<usize> = objects.iter().map(Bytes::len).collect();
        let given: usize = sizes.iter().sum();
        let most = MAX_CONVERTED_GROWTH * given + SMALL_CONVERTED_BYTES;
        let (this, kind, to) = (self.clone(), kind.to_owned(), to.to_owned());
        // Each batch runs in a task, so that batches use several threads and a caller that
        // disconnects cancels none.
        let tasks = hooks::batches(&sizes).into_iter().map(move |batch| {
            let (this, kind, to) = (this.clone(), kind.clone(), to.clone());
            let objects = objects.get(batch).unwrap_or_default().to_vec();
            async move {
                let calls = this.shared.calls.clone();
                let task = async move { this.convert_batch(&kind, &to, &objects, ends).await };
                match calls.spawn(task).await {
                    Ok(converted) => converted,
                    Err(error) => Err(NoAnswer::Broken(error.to_string())),
                }
            }
        });
        let (name, mut all) = (self.shared.processor.name().to_owned(), 0);
        Ok(stream::iter(tasks).buffered(MAX_CONCURRENT_BATCHES).map(move |part| {
            let part = part?;
            all += part.iter().map(|object| object.len() + ENTRY).sum::<usize>();
            if all <= most {
                return Ok(part);
            }
            Err(NoAnswer::Broken(format!(
                "processor `{name}` returned more than {most} bytes for objects of {given} bytes"
            )))
        }))
    }

    async fn convert_batch(
        &self,
        kind: &str,
        to: &str,
        objects: &[Bytes],
        ends: Instant,
    ) -> Result<Vec<String>, NoAnswer> {
        let target = Target::new(self.hooks(), kind, to).map_err(NoAnswer::NotAsked)?;
        let mut given = Vec::with_capacity(objects.len());
        for object in objects {
            let text = std::str::from_utf8(object)
                .map_err(|error| NoAnswer::NotAsked(format!("an object is no text: {error}")))?;
            let of = Given::parse(&target, text).map_err(NoAnswer::NotAsked)?;
            given.push((text, of));
        }
        let is_other = |of: &&(&str, Given<'_>)| !of.1.is_in(target.version());
        let shown: Vec<String> = given.iter().filter(is_other).map(|of| of.1.shown()).collect();
        let mut answers = if shown.is_empty() {
            Vec::new().into_iter()
        } else {
            self.ask_to_convert(&target, shown, ends).await?.into_iter()
        };
        let merged = given.iter().map(|(text, of)| {
            if of.is_in(target.version()) {
                return Ok((*text).to_owned());
            }
            let answer = answers.next().unwrap_or_default();
            of.converted(&target, &answer).map_err(NoAnswer::Broken)
        });
        merged.collect()
    }

    async fn ask_to_convert(
        &self,
        target: &Target<'_>,
        objects: Vec<String>,
        ends: Instant,
    ) -> Result<Vec<String>, NoAnswer> {
        let count = objects.len();
        let (group, kind) = target.kind();
        let request = Conversion {
            group: group.to_owned(),
            kind: kind.to_owned(),
            to: target.version().to_owned(),
            objects,
            config: self.shared.config.to_string(),
        };
        let called = self.shared.processor.convert(request, ends).await;
        self.log("conversion", &called.log);
        let answers = called.answer?.map_err(NoAnswer::Refused)?;
        if answers.len() == count {
            return Ok(answers);
        }
        let (name, found) = (self.shared.processor.name(), answers.len());
        Err(NoAnswer::Broken(format!("processor `{name}` returned {found} objects for {count}")))
    }

    /// Calls an admission hook with a request, and sets the configuration in the request. `charge`
    /// is called with the bytes that are held beside the request, before they are.
    ///
    /// # Errors
    ///
    /// Fails if the request is not for the hook, if the hook fails, or if its answer breaks a rule.
    pub async fn admit(
        &self,
        review: Review,
        ends: Instant,
        mut charge: impl FnMut(usize) -> Result<(), NoAnswer> + Send,
    ) -> Result<Decision, NoAnswer> {
        let hooks = Arc::clone(&self.shared.hooks);
        let Some(hook) = hooks.hook(&review.hook) else {
            let all: Vec<&str> = hooks.admission.iter().map(|hook| hook.name.as_str()).collect();
            let all = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
            let message = format!("there is no hook `{}`; there are: {all}", review.hook);
            return Err(NoAnswer::NotAsked(message));
        };
        charge(hooks::account_of_matching(hook, &review))?;
        if !hooks::matches(hook, &review).map_err(NoAnswer::NotAsked)? {
            return Ok(Decision { denial: None, patch: None, warnings: Vec::new() });
        }
        let review = Review { config: self.shared.config.to_string(), ..review };
        let now = u64::try_from((self.shared.now)().as_millisecond()).unwrap_or_default();
        let moment = Moment { now_ms: now, seed: now };
        let of = self.clone();
        let asked = review.clone();
        // Runs in a task, so that a caller that disconnects does not cancel the call.
        let call = async move { of.shared.processor.admit(of.view(), asked, moment, ends).await };
        let called = self.shared.calls.spawn(call).await;
        let called = called.map_err(|error| NoAnswer::Broken(error.to_string()))?;
        self.log(&hook.name, &called.log);
        let answer = called.answer?.map_err(NoAnswer::Refused)?;
        let (hook, bytes) = (hook.clone(), hooks::account_of_deciding(&review, &answer));
        charge(bytes)?;
        // The account has the objects some four times.
        let decided = on_text(bytes / 4, move || hooks::decide(&hook, &review, answer)).await;
        decided.map_err(|error| NoAnswer::Broken(error.to_string()))?.map_err(NoAnswer::Broken)
    }

    /// Returns a view that allows the reads that the version declares.
    pub(super) fn view(&self) -> View {
        let Version { stores, grant, rights, .. } = &*self.shared;
        View::new(stores.clone(), Arc::clone(grant), PAGE_BYTES).with_rights(rights.clone())
    }

    fn log(&self, hook: &str, lines: &[Line]) {
        if lines.is_empty() {
            return;
        }
        let processor = self.shared.processor.tenant().name();
        let span = tracing::info_span!("hook", %processor, hook);
        span.in_scope(|| log_lines(lines));
    }
}

// === impl NoAnswer ===

impl NoAnswer {
    /// Returns the error and its causes as one message.
    pub fn message(&self) -> String {
        error_chain::whole(self)
    }
}

/// Logs the lines of a guest.
pub(crate) fn log_lines(lines: &[Line]) {
    for Line { level, message, fields, .. } in lines {
        let fields: Map<String, Value> =
            fields.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
        let fields = Value::Object(fields);
        match level {
            Level::Trace => trace!(%fields, "{message}"),
            Level::Debug => debug!(%fields, "{message}"),
            Level::Info => info!(%fields, "{message}"),
            Level::Warn => warn!(%fields, "{message}"),
            Level::Error => error!(%fields, "{message}"),
        }
    }
}
