//! The hooks of processors as webhooks of the API in memory.
//!
//! The API calls hooks while its state is locked, and waits for the answer: so hooks run on their
//! own threads, and read from the stores of the host, never from the API.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use bytes::Bytes;
use mortise_core::{
    contract::{
        Kind, ObjectRef, display_kind_in_any_version,
        hooks::{self, Decision, Hook, Operation, Otherwise, serve_converted, shown},
    },
    store::Stores,
    write::Clock,
};
use mortise_embedded_api::{Admitted, EmbeddedApi, Refused, Review, Webhooks};
use mortise_host::host::{Hooking, Host, Loaded, NoAnswer};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

/// The time limit of a conversion, as on an API server.
const CONVERSION_TIMEOUT: Duration = Duration::from_secs(30);
/// The threads on which hooks run.
const HOOK_THREADS: usize = 2;
/// The suffix of the names of webhooks: the default namespace of processors without a resource, as
/// in the output of `mortise inspect --webhooks`.
const SUFFIX: &str = "default.mortise.dev";

/// The hooks of the running processors.
pub struct Hooks {
    of: Mutex<BTreeMap<Arc<str>, Hooking>>,
    /// True if admission hooks are called too.
    admits: bool,
    /// The threads on which hooks run; `None` only while the value is dropped.
    runtime: Option<Runtime>,
}

// === impl Hooks ===

impl Hooks {
    /// Creates the webhooks of an API, at first without hooks.
    ///
    /// # Errors
    ///
    /// Fails if no thread can be started.
    pub fn of_api(api: &EmbeddedApi) -> anyhow::Result<Arc<Self>> {
        let hooks = Arc::new(Self::new(true)?);
        api.set_webhooks(Some(Arc::clone(&hooks) as Arc<dyn Webhooks>));
        Ok(hooks)
    }

    /// Creates webhooks that only convert.
    ///
    /// # Errors
    ///
    /// Fails if no thread can be started.
    pub fn converting_only() -> anyhow::Result<Self> {
        Self::new(false)
    }

    fn new(admits: bool) -> anyhow::Result<Self> {
        let mut runtime = Builder::new_multi_thread();
        let runtime =
            runtime.worker_threads(HOOK_THREADS).thread_name("hooks").enable_time().build();
        let runtime = Some(runtime.context("cannot start threads for hooks")?);
        Ok(Self { of: Mutex::default(), admits, runtime })
    }

    /// Answers with the hooks of a processor that no host runs yet: their reads are unavailable.
    ///
    /// # Errors
    ///
    /// Fails if the description of the processor is not valid.
    pub fn begin(&self, loaded: &Loaded, now: &Clock) -> anyhow::Result<()> {
        if !loaded.hooks.is_empty() {
            let hooking = Hooking::apart(loaded, Stores::new(), Clock::clone(now))?;
            self.of.lock().insert(loaded.name(), hooking);
        }
        Ok(())
    }

    /// Answers with the hooks of the processors that a host runs now, and with no others.
    pub fn follow(&self, host: &Host, names: &[Arc<str>]) {
        let of = names.iter().filter_map(|name| Some((Arc::clone(name), host.hooking(name)?)));
        *self.of.lock() = of.collect();
    }

    /// Returns the hooks of the processor that converts a kind.
    fn converter(&self, group: &str, kind: &str) -> Option<Hooking> {
        let of = self.of.lock();
        of.values().find(|hooking| hooking.hooks().converted(group, kind).is_some()).cloned()
    }

    /// Runs a call on the threads of the hooks, and waits for its end.
    fn run<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        let runtime = self.runtime.as_ref().ok_or("the program ends")?;
        let (send, receive) = mpsc::sync_channel(1);
        runtime.spawn(async move {
            // The caller waits for the answer.
            let _ = send.send(call.await);
        });
        receive.recv().map_err(|_| "the call broke off".to_owned())
    }

    /// Calls one hook.
    fn ask(
        &self,
        hooking: &Hooking,
        hook: &Hook,
        review: &Review<'_>,
        object: Option<&Value>,
    ) -> Result<Decision, String> {
        let asked = question(hook, review, object)?;
        let ends = Instant::now() + Duration::from_millis(hook.timeout);
        let hooking = hooking.clone();
        let call = async move { hooking.admit(asked, ends, |_| Ok(())).await };
        self.run(call)?.map_err(|error: NoAnswer| error.message())
    }
}

impl Webhooks for Hooks {
    fn converts(&self, group: &str, kind: &str) -> bool {
        self.converter(group, kind).is_some()
    }

    fn convert(&self, kind: &str, to: &str, objects: Vec<Value>) -> Result<Vec<Value>, String> {
        let group = to.split_once('/').map_or("", |(group, _)| group);
        let hooking = self.converter(group, kind);
        let hooking = hooking.ok_or_else(|| {
            format!("no processor converts {}", display_kind_in_any_version(group, kind))
        })?;
        let objects = objects.iter().map(|object| Bytes::from(object.to_string())).collect();
        let (kind, to) = (kind.to_owned(), to.to_owned());
        let ends = Instant::now() + CONVERSION_TIMEOUT;
        let call = async move { hooking.convert(&kind, &to, objects, ends).await };
        let converted = self.run(call)?.map_err(|error| error.message())?;
        let parse = |text: &String| serde_json::from_str(text);
        converted.iter().map(parse).collect::<Result<_, _>>().map_err(|error| error.to_string())
    }

    fn admit(&self, review: &Review<'_>) -> Result<Admitted, Refused> {
        let mut all: Vec<(Arc<str>, Hooking, Hook)> = Vec::new();
        for (name, hooking) in self.of.lock().iter().filter(|_| self.admits) {
            let meant = hooking.hooks().admission.iter().filter(|hook| is_meant(hook, review));
            all.extend(meant.map(|hook| (Arc::clone(name), hooking.clone(), hook.clone())));
        }
        // Mutating hooks are called first.
        all.sort_by_key(|(.., hook)| !hook.changes);
        let mut admitted = Admitted::default();
        for (processor, hooking, hook) in all {
            let object = admitted.object.as_ref().or(review.object);
            let name = || format!("{}.{processor}.{SUFFIX}", hook.name);
            let decision = match self.ask(&hooking, &hook, review, object) {
                Ok(decision) => decision,
                Err(message) if hook.on_failure == Otherwise::LetPass => {
                    tracing::warn!(hook = name(), message, "a hook failed, the request is allowed");
                    continue;
                }
                Err(message) => return Err(Refused::Failed { hook: name(), message }),
            };
            admitted.warnings.extend(decision.warnings);
            if let Some(denial) = decision.denial {
                let (code, message) = (denial.code, denial.message);
                return Err(Refused::Denied { hook: name(), code, message });
            }
            if let (Some(patch), Some(object)) = (decision.patch, object) {
                let mut changed = object.clone();
                json_patch::patch(&mut changed, &patch).map_err(|error| Refused::Failed {
                    hook: name(),
                    message: error.to_string(),
                })?;
                admitted.object = Some(changed);
            }
        }
        Ok(admitted)
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("of", &self.of.lock().keys()).finish_non_exhaustive()
    }
}

impl Drop for Hooks {
    fn drop(&mut self) {
        // The last owner may be a task, which must not block on threads.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn operation(review: &Review<'_>) -> Operation {
    match (review.object, review.old) {
        (None, _) => Operation::Delete,
        (_, Some(_)) => Operation::Update,
        (Some(_), None) => Operation::Create,
    }
}

fn kind_of(review: &Review<'_>) -> Kind {
    let Review { group, version, kind, .. } = *review;
    Kind::home(group, version, kind)
}

/// Returns whether the webhook configuration of a hook would match a request.
fn is_meant(hook: &Hook, review: &Review<'_>) -> bool {
    *hook.of.kind == kind_of(review) && hook.operations.contains(&operation(review))
}

fn question(
    hook: &Hook,
    review: &Review<'_>,
    object: Option<&Value>,
) -> Result<hooks::Review, String> {
    let text = |object: &Value| shown(&object.to_string());
    Ok(hooks::Review {
        hook: hook.name.clone(),
        operation: operation(review),
        ref_: ObjectRef {
            kind: kind_of(review).into(),
            namespace: Some(review.namespace.to_owned()).filter(|of| !of.is_empty()),
            name: review.name.to_owned(),
        },
        object: object.map(text).transpose()?,
        old: review.old.map(text).transpose()?,
        user: review.user.to_owned(),
        groups: review.groups.to_vec(),
        dry_run: review.dry_run,
        // Set by the caller of the processor.
        config: String::new(),
    })
}

/// Serves the converted versions of the definitions that an API holds, as
/// [`serve_converted`](serve_converted()) does.
///
/// # Errors
///
/// Fails if the API refuses a definition.
pub fn serve_converted_of(api: &EmbeddedApi, hooks: &hooks::Hooks) -> anyhow::Result<Vec<String>> {
    let mut served = Vec::new();
    let is_definition = |object: &Value| {
        object.get("kind").and_then(Value::as_str) == Some("CustomResourceDefinition")
    };
    for mut definition in api.objects().into_iter().filter(is_definition) {
        let of_it = serve_converted(&mut definition, hooks);
        if !of_it.is_empty() {
            api.load(definition, true).context("cannot serve a converted version")?;
            served.extend(of_it);
        }
    }
    Ok(served)
}

/// Returns the note about the versions served for the hooks of a processor.
pub fn served_note(served: &[String]) -> String {
    let all = served.join(", ");
    format!("served because the processor converts it, though its CRD does not say so: {all}")
}
