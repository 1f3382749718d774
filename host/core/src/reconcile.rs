//! Runs one reconcile, from the key to the requeue: reads the object, calls the processor, checks
//! the outcome, writes it, and decides when the key runs again.
//!
//! Owns the order of these steps, and the end of a run. The steps themselves are elsewhere:
//! [`crate::reads`] reads, [`Call`] calls, [`crate::outcome`] checks, [`crate::write`]
//! writes.

mod call;
mod carry_out;
mod course;
mod done;
mod living;
mod mask;
mod memory;
mod reconcilers;
mod removal;
mod report;
mod settings;
mod skip;
mod started;
mod trial;

pub use call::{
    Call, CallError, Called, Fault, Input, Line, Moment, Occasion, Outside, Source, Usage,
};
pub use done::Ended;
pub use report::{Report, Version, mask_texts};
pub use settings::{ClusterGrant, Mode, Removal, Settings};
pub use started::{Finalizing, StartedReconciler, StartedSelection};
pub use trial::Tried;

use std::sync::Arc;

use serde_json::Value;
use tokio::time::Instant;
use tracing::{Instrument as _, debug};

use self::{
    carry_out::{Answered, Planned, Turn},
    course::{Course, Left},
    living::Living,
    memory::Dependencies,
    reconcilers::Reconcilers,
    removal::Decision,
    report::why,
};
use crate::{
    api::Api,
    contract::{Description, Note, ObjectRef, ReadError, Request, Selection},
    dispatch::{Dispatch, Token},
    grant::{self, DeclaredReconciler, Grant, Limited, rights::Rights},
    outbound::{Egress, Gate, Granted, Made, Outbound, Sending},
    outcome::Reconciled,
    queue::{Again, Cause, Done, Key, Run},
    reads::{
        self, Answers, Reads, ReconciledObject, View,
        record::{Basis, Digest, Record, Records},
    },
    triggers::Registration,
    write::{self, Clock, Writer},
};

/// The reason why a processor that declares no calls makes none.
const UNDECLARED: &str = "the description declares no `outbound`: no origin is accepted";
/// The reason why a processor that is asked what it has started calls nothing.
const ASKED: &str = "the processor is being removed, and is asked only what it has started";

/// The loop around one version of a processor.
pub struct Reconciler {
    version: Setup,
    reconcilers: Reconcilers,
    /// The identity of the version among those whose outcomes start reconcilers.
    token: Token,
    /// The part of each run's [`Basis`] that depends neither on the time nor on the account's
    /// rights.
    basis: Basis,
    /// The cached answers to lists, for the verification of records.
    answers: Answers,
    /// The counted dependencies of each key's last run.
    dependencies: Dependencies,
    /// The field managers of the objects in the last list from the API server.
    living: Living,
    /// The origins that the Processor grants, parsed.
    granted: Arc<Granted>,
    parts: Parts,
}

/// A version of a processor, and its access to the cluster.
#[derive(Clone)]
pub struct Setup {
    /// The identity of the version, for reports.
    pub identity: Arc<Version>,
    /// The processor that is called.
    pub call: Arc<dyn Call>,
    /// The description that the processor returned for this configuration.
    pub description: Arc<Description>,
    /// The configuration, as JSON.
    pub config: Arc<str>,
    /// The settings that the description does not hold.
    pub settings: Settings,
    /// The declarations of the description, parsed.
    pub grant: Arc<Grant>,
    /// The API server, with the rights of the processor's account, or with the host's own if it has
    /// none.
    pub api: Arc<dyn Api>,
    /// The rights of the processor's account; `None` if its rights are the host's own.
    pub rights: Option<Arc<dyn Rights>>,
    /// The client that sends calls to systems outside of the cluster; `None`: there are none.
    pub outbound: Option<Arc<dyn Outbound>>,
    /// The origins that the Processor grants, within those that the host allows.
    pub egress: Vec<Arc<Egress>>,
}

/// The parts that a reconciler shares with the reconcilers of other processors.
#[derive(Clone)]
pub struct Parts {
    /// The stores, the triggers and the queue.
    pub dispatch: Arc<Dispatch>,
    /// The writer that carries plans out.
    pub writer: Arc<Writer>,
    /// The API server, with the host's own rights.
    pub api: Arc<dyn Api>,
    /// The clock that gives the time of a call.
    pub now: Clock,
    /// The last run record of each key.
    pub records: Arc<Records>,
    /// True if a key is skipped when nothing that its last run read has changed.
    pub skips: bool,
}

// === impl Parts ===

impl Parts {
    /// Creates the parts that the reconcilers of one host share. No key is skipped.
    pub fn new(dispatch: &Arc<Dispatch>, api: Arc<dyn Api>, now: &Clock) -> Self {
        let writer = Writer::new(dispatch.stores().clone(), Arc::clone(now));
        Self {
            dispatch: Arc::clone(dispatch),
            writer: Arc::new(writer),
            api,
            now: Arc::clone(now),
            records: Arc::default(),
            skips: false,
        }
    }
}

// === impl Reconciler ===

impl Reconciler {
    /// Creates the loop around a processor.
    pub fn new(version: Setup, parts: Parts) -> Self {
        let description = &version.description;
        let granted = format!("{:?}{:?}", description.declared(), description.outbound);
        let Settings {
            namespace,
            name,
            account,
            mode,
            take_over,
            clusters,
            // Those of the version.
            egress: _,
            // These decide when a key runs; with a removal, none is skipped.
            concurrency: _,
            rate: _,
            removal: _,
        } = &version.settings;
        let egress = &version.egress;
        let settings =
            format!("{:?}", (namespace, name, account, mode, take_over, clusters, egress));
        let basis = Basis {
            module: version.call.digests().into(),
            config: Digest::of(false, [version.config.as_bytes()]),
            grant: Digest::of(false, [granted.as_bytes()]),
            settings: Digest::of(false, [settings.as_bytes()]),
            now_ms: 0,
            seed: 0,
        };
        let answers = Answers::default();
        let dependencies = Dependencies::default();
        let living = Living::default();
        let reconcilers = Reconcilers::new(version.grant.reconcilers());
        let token = Token::default();
        let processor = name.as_deref().unwrap_or(&description.name);
        let processor = format!("{namespace}/{processor}").into();
        let granted = Arc::new(Granted::new(processor, &version.egress, version.outbound.clone()));
        let new = Self {
            version,
            reconcilers,
            token,
            basis,
            answers,
            dependencies,
            living,
            granted,
            parts,
        };
        if new.version.grant.has_on_demand() {
            new.preview();
        }
        new
    }

    /// Returns the reads that are not watched because a limit of the host is met.
    pub fn limited(&self) -> Limited {
        self.version.grant.limited().clone()
    }

    /// Returns the reconciled selections that the account may not watch in full.
    pub fn unwatched(&self) -> Vec<String> {
        let Some(rights) = &self.version.rights else { return Vec::new() };
        let may = |of: &Selection| rights.may_watch(&of.kind, &grant::watched(of)) != Some(false);
        let unwatched = |reconciler: Arc<DeclaredReconciler>| {
            let unwatched = reconciler.selections().iter().filter(|selected| !may(&selected.of));
            unwatched.map(|selected| grant::display_selection(&selected.of)).collect::<Vec<_>>()
        };
        self.reconcilers.all().flat_map(unwatched).collect()
    }

    /// Returns the reconcilers that have objects: the on-demand ones as they are started.
    pub fn reconcilers(&self) -> impl Iterator<Item = Arc<DeclaredReconciler>> {
        self.reconcilers.all()
    }

    /// Returns the reconciler of a key, if the processor has it.
    fn reconciler(&self, key: &Key) -> Option<Arc<DeclaredReconciler>> {
        self.reconcilers.of(key.reconciler())
    }

    /// Returns the reference to a key's object; `None` if the processor does not have the key's
    /// reconciler.
    pub fn object_of(&self, key: &Key) -> Option<ObjectRef> {
        self.reconciler(key).map(|of| object(&of, key))
    }

    /// Returns the reconcilers as the triggers know them.
    pub fn registrations(&self) -> Vec<Registration> {
        self.reconcilers.all().map(|of| self.registration(&of)).collect()
    }

    fn registration(&self, of: &Arc<DeclaredReconciler>) -> Registration {
        let (settings, home) = (&self.version.settings, self.parts.writer.home());
        let registration = Registration::new(&self.version.identity.processor, of);
        registration.writing_as(&settings.namespace, self.processor(), home)
    }

    /// Activates the version, in place of `former` if there is one; see [`Dispatch::set`].
    pub fn put<T>(&self, former: Option<&Self>, swap: impl FnOnce() -> T) -> T {
        let processor = &self.version.identity.processor;
        let started = self.parts.dispatch.starting(processor);
        let mut started = started.lock();
        let mut changed = self.adopt(&mut started);
        let (gone, cause) = match former {
            Some(former) => (former.reconcilers.gone_from(&self.reconcilers), Cause::NewVersion),
            None => (Vec::new(), Cause::Start),
        };
        let swapped =
            self.parts.dispatch.set(processor, self.registrations(), &gone, &cause, || {
                let swapped = swap();
                // From now on, a run that ends leaves no record under such a key.
                for gone in &gone {
                    self.parts.records.forget_reconciler(processor, gone);
                }
                let is_gone =
                    |key: &Key| key.processor() == processor && gone.contains(key.reconciler());
                self.parts.writer.forget_keys(is_gone);
                swapped
            });
        for gone in &gone {
            changed.extend(started.forget_reconciler(gone));
        }
        self.follow(&mut started, changed);
        swapped
    }

    /// Returns the name of the Processor resource, or of the description if there is none.
    fn processor(&self) -> &str {
        self.version.settings.name.as_deref().unwrap_or(&self.version.description.name)
    }

    /// Runs one key to its end, or skips it.
    pub async fn run(&self, run: &mut Run) -> (Report, Ended) {
        let start = Instant::now();
        let version = Some(Arc::clone(&self.version.identity));
        let Some(reconciler) = self.reconciler(&run.key) else {
            return (Report { version, ..Report::new(run) }, Ended::nothing());
        };
        let reference = object(&reconciler, &run.key);
        let kind = reference.kind.clone();
        let span = report::span(&run.key, &kind, Some(self.version.call.digest()));
        let reconciler = &*reconciler;
        let verification = self.verify_due(run, reconciler, &reference);
        let why = match verification.instrument(span.clone()).await {
            Ok(record) => return span.in_scope(|| self.skip(run, reconciler, &reference, record)),
            Err(why) => why,
        };
        let began = self.parts.dispatch.begin(run);
        // Boxed, as the future is large: a skipped key need not carry it.
        let given = self.parts.dispatch.queue().note(&run.key, &self.basis.module);
        let is_given = given.is_some();
        let reconcile = Box::pin(self.reconcile(run, reconciler, reference.clone(), given));
        let (course, mut reads) = reconcile.instrument(span.clone()).await;
        // `reads` is emptied step by step. First its size is counted, and it is cut if it is too
        // large, since `end` registers the dependencies and `record` takes the reads and writes.
        // Last, when the report has all its texts, the Secrets that were read are masked in them.
        let course = self.keep_dependencies(&run.key, course, &mut reads);
        let (course, mut starts) = self.take_over(&run.key, course, reads.is_last());
        let mut causes = self.parts.dispatch.end(began, &mut reads);
        let demands = reads.take_demands(&self.version.grant);
        let done = course.done.clone();
        let note = course.note();
        let noted = is_given || matches!(note, Left::Note(Some(_)));
        let record = Arc::new(Record { noted, ..course.record(run, &mut reads) });
        self.keep_note(&run.key, note, reads.is_last());
        let took = start.elapsed();
        let report = Report { version, kind, took, not_skipped: why, record, ..Report::new(run) };
        let report = report.with_course(course, reads.take_denials()).masked(&reads);
        if report.cancelled {
            // The record of the last run that was not cancelled is kept: no better one is known.
            return (report, Ended { done, causes, demands, starts });
        }
        self.keep_record(&report.record, reads.is_last());
        if reads.is_last() {
            starts |= self.left(&run.key, &done);
        } else if self.has_left(&run.key) {
            causes.push(Cause::Stopped);
        }
        span.in_scope(|| {
            report.record.calls.iter().for_each(Made::log);
            debug!(took = ?report.took, failure = report.failure, "reconciled");
        });
        (report, Ended { done, causes, demands, starts })
    }

    /// Counts the run's dependencies, and fails the run if the dependencies of all keys of the
    /// processor together take too much memory.
    ///
    /// Such a run keeps only the dependency on its object. The key is retried after a back-off,
    /// since only a change of its object can trigger it.
    fn keep_dependencies(&self, key: &Key, course: Course, reads: &mut Reads) -> Course {
        if reads.is_last() {
            self.dependencies.forget(key);
            return course;
        }
        let writes = self.of_writes(key, |context| self.parts.writer.kept_bytes(context));
        let bytes = reads.kept_bytes() + course.call_bytes() + writes.unwrap_or_default();
        if self.dependencies.keep(key, bytes) {
            return course;
        }
        reads.drop_all_but_object();
        self.of_writes(key, |context| self.parts.writer.forget_writes(context));
        if course.is_cancelled() {
            return course;
        }
        let (done, failure) = (Done::Failure(Again::BackOff), Some(self.dependencies_limit()));
        Course { done, failure: course.failure.or(failure), ..course }
    }

    fn dependencies_limit(&self) -> String {
        format!(
            "the recorded reads and writes of processor `{}` take more than {} MiB of memory: it must read with fewer or shorter arguments",
            self.version.description.name,
            memory::MAX_DEPENDENCY_BYTES >> 20
        )
    }

    /// Returns the limit on dependencies and the number of keys that fail because of it, in words;
    /// `None` if it is not met.
    pub fn dependencies_limited(&self) -> Option<String> {
        let refused = self.dependencies.refused();
        (refused > 0).then(|| format!("{refused} objects fail: {}", self.dependencies_limit()))
    }

    /// Keeps a run's record until the key's next run, or forgets the key if the object is gone.
    fn keep_record(&self, record: &Arc<Record>, is_last: bool) {
        if is_last {
            self.parts.records.forget(&record.key);
            self.of_writes(&record.key, |context| self.parts.writer.forget(context));
        } else {
            self.parts.records.keep(record);
        }
    }

    /// Keeps the note of a run until the key's next run, or drops it if the object is gone.
    fn keep_note(&self, key: &Key, note: Left, is_last: bool) {
        let note = if is_last { Left::Note(None) } else { note };
        if let Left::Note(note) = note {
            self.parts.dispatch.queue().set_note(key, &self.basis.module, note);
        }
    }

    /// Calls `act` for the writes of a key, whatever its object is now.
    fn of_writes<T>(&self, key: &Key, act: impl FnOnce(&write::Context<'_>) -> T) -> Option<T> {
        let reconciled = Reconciled { reference: self.object_of(key)?, object: None };
        Some(act(&self.context(key, &reconciled)))
    }

    fn context<'a>(&'a self, key: &'a Key, reconciled: &'a Reconciled) -> write::Context<'a> {
        let settings = &self.version.settings;
        write::Context {
            key,
            namespace: &settings.namespace,
            processor: self.processor(),
            reconciled,
            take_over: &settings.take_over,
            rights: self.version.rights.as_deref(),
            whole_status: false,
        }
    }

    async fn reconcile(
        &self,
        run: &Run,
        declared: &DeclaredReconciler,
        reference: ObjectRef,
        note: Option<Note>,
    ) -> (Course, Reads) {
        let api = self.pinned();
        let mut view = self.view();
        let known = match self.read_object(&mut view, declared, &reference).await {
            Ok(known) => known,
            Err(error) => {
                // The kind is not served, or its first list has not arrived: when that changes, the
                // key runs again.
                let failure = Some(format!("the object cannot be read: {}", why(&error)));
                let course = Course::ended(Done::Failure(Again::OnChange));
                return (Course { failure, ..course }, view.finish());
            }
        };
        let (object, value, is_asked) = match self.decide(&run.key, known) {
            Decision::Leave(why) => {
                let course = Course::ended(Done::Success { requeue: None });
                return (Course { left: Some(why), ..course }, view.finish());
            }
            Decision::Release(object) => {
                let (reconciled, reads) = (Reconciled { reference, object }, view.finish());
                let mut turn =
                    Turn { key: &run.key, declared, reconciled: &reconciled, reads, api };
                return (self.remove_finalizers(&mut turn).await, turn.reads);
            }
            Decision::Wait => return (removal::waiting(), view.finish()),
            Decision::Ask(object, value) => (object, value, true),
            Decision::Call(object, value) => (object, value, false),
        };
        let request = Request { note, ..self.request(&run.key, &reference, object, run.attempt) };
        let reconciled = Reconciled { reference, object: value };
        let sending =
            if is_asked { Sending::closed(ASKED) } else { self.sending(declared, &reconciled) };
        let (answered, reads) = self.call(Outside { view, sending }, &request, Occasion::Run).await;
        let mut turn = Turn { key: &run.key, declared, reconciled: &reconciled, reads, api };
        let course = if is_asked {
            self.asked(answered, &mut turn, run.attempt).await
        } else {
            self.carry_out(answered, request, &mut turn).await
        };
        (course, turn.reads)
    }

    /// Reads the object of a run, if its reconciler is not done with it.
    async fn read_object(
        &self,
        view: &mut View,
        declared: &DeclaredReconciler,
        reference: &ObjectRef,
    ) -> Result<ReconciledObject, ReadError> {
        if declared.is_done_with(reference, self.parts.dispatch.stores()) {
            return Ok(view.object_is_gone());
        }
        view.check_reconciled(reference).await?;
        view.reconciled(reference, declared)
    }

    fn request(
        &self,
        key: &Key,
        reference: &ObjectRef,
        object: Option<String>,
        attempt: u32,
    ) -> Request {
        Request {
            reconciler: key.reconciler().name().to_owned(),
            ref_: reference.clone(),
            object,
            config: self.version.config.to_string(),
            attempt,
            failed_writes: Vec::new(),
            note: None,
        }
    }

    fn view(&self) -> View {
        let stores = self.parts.dispatch.stores().clone();
        View::new(stores, Arc::clone(&self.version.grant), reads::PAGE_BYTES)
            .with_rights(self.version.rights.clone())
    }

    /// Returns the API servers for a run that begins now.
    fn pinned(&self) -> Arc<dyn Api> {
        self.version.api.pinned().unwrap_or_else(|| Arc::clone(&self.version.api))
    }

    /// Returns the basis of a run at this time, with the rights that the account has now.
    fn basis(&self, now_ms: u64) -> Basis {
        let mut basis = Basis { now_ms, seed: now_ms, ..self.basis.clone() };
        if let Some(rights) = &self.version.rights {
            let parts = [basis.grant.to_string(), format!("{:?}", rights.digest())];
            basis.grant = Digest::of(false, parts.iter().map(String::as_bytes));
        }
        basis
    }

    fn moment(&self) -> Moment {
        let now = u64::try_from((self.parts.now)().as_millisecond()).unwrap_or_default();
        Moment { now_ms: now, seed: now }
    }

    /// Returns what decides about the calls to the outside of one run.
    fn sending(&self, declared: &DeclaredReconciler, reconciled: &Reconciled) -> Sending {
        let Setup { grant, settings, api, .. } = &self.version;
        if !grant.calls_out() {
            return Sending::closed(UNDECLARED);
        }
        if settings.mode == Mode::Observe {
            return Sending::closed("the Processor only observes: it calls nothing");
        }
        let uid = reconciled.object.as_ref().and_then(|object| {
            object.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned)
        });
        Sending::open(Gate {
            grant: Arc::clone(grant),
            granted: Arc::clone(&self.granted),
            api: Arc::clone(api),
            stores: self.parts.dispatch.stores().clone(),
            finalizers: declared.spec.finalizers.clone(),
            object: uid.map(|uid| (reconciled.reference.clone(), uid)),
        })
    }

    async fn call(
        &self,
        outside: Outside,
        request: &Request,
        occasion: Occasion,
    ) -> (Answered, Reads) {
        let moment = self.moment();
        let input = Input { outside, request, moment, occasion };
        let Called { outcome, outside, mut usage } = self.version.call.call(input).await;
        usage.calls = outside.sending.finish();
        usage.asked.network |= !usage.calls.is_empty();
        let basis = self.basis(moment.now_ms);
        (Answered { answer: outcome, basis, usage }, outside.view.finish())
    }
}

/// Returns the reference to the object of a key of this reconciler.
fn object(reconciler: &DeclaredReconciler, key: &Key) -> ObjectRef {
    ObjectRef {
        kind: Arc::clone(&reconciler.spec.of.kind),
        namespace: key.namespace().map(str::to_owned),
        name: key.name().to_owned(),
    }
}
