//! The dependencies of one run: its reads and writes. The triggers compare changes with them, and
//! the run record holds them.

use std::{cell::OnceCell, fmt, sync::Arc};

use zeroize::Zeroizing;

use crate::{
    applied_fields::Pair,
    contract::{Kind, ObjectRef, ReadError, Selection, bounds},
    grant::{Demand, Grant, rights::Denial},
    path::{Extent, Fields},
    reads::record::{self, Digest, Pruned, Question, SnapshotPosition, WriteRecord},
    store::{Entry, IndexUser, Query, Rendered, StoreId, Stores, hashed},
};

/// The reads of one run, and its writes, which count as reads.
#[derive(Debug)]
pub struct Reads {
    stores: Stores,
    /// The user for which indexes are requested.
    index_user: IndexUser,
    dependencies: Vec<Dependency>,
    waits: Vec<Wait>,
    object: Option<Digest>,
    records: Vec<record::Read>,
    wrote: Vec<WriteRecord>,
    removed: Vec<ObjectRef>,
    pruned: Vec<Pruned>,
    finalizers: Option<record::Finalizers>,
    answered: Vec<(Arc<Kind>, Arc<Entry>)>,
    /// The number of objects in `answered` that belong to recorded answers.
    recorded: usize,
    saw_secret: bool,
    /// The values of the credentials that calls to the outside were authenticated with.
    credentials: Credentials,
    /// True if the reconciled object is gone or no longer one of the reconciler's.
    gone: bool,
    /// The watches that the run's reads need and that are not open.
    demands: Vec<Demand>,
    /// The selections that the run wrote or pruned and that no store covers.
    unwatched: Vec<(Arc<Kind>, Arc<Query>)>,
    /// The first few denials, each once.
    denials: Vec<Denial>,
    /// The number of further denials.
    more_denials: usize,
    /// The bytes of the arguments of all reads.
    asked_bytes: usize,
}

/// Values of credentials. `Debug` prints their number only.
#[derive(Default)]
struct Credentials(Vec<Zeroizing<String>>);

/// A dependency of a run.
#[derive(Clone, Debug)]
pub struct Dependency {
    pub kind: Arc<Kind>,
    /// The store whose changes count; `None` for every store of the kind.
    pub store: Option<StoreId>,
    /// The number of the last change that the run has seen; `None` for the changes before it began.
    pub sequence: Option<u64>,
    pub index_term: IndexTerm,
    pub depends_on: DependsOn,
}

/// A kind that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    pub kind: Arc<Kind>,
    /// True if the cluster does not serve the kind; false if its objects are not listed yet.
    pub for_itself: bool,
}

/// The term by which a changed object finds a dependency. Every object that affects the dependency
/// has this term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IndexTerm {
    /// The hash of a namespace and name.
    Object(u64),
    /// The hash of a label or value.
    Term(u64),
    /// The hash of a namespace.
    Namespace(u64),
    /// No term: any object may affect the dependency.
    Any,
}

/// The condition under which a change affects the run.
///
/// Dependencies are kept as long as their key exists, so they share equal parts.
#[derive(Clone, Debug, PartialEq)]
pub enum DependsOn {
    /// The reconciled object.
    Reconciled { query: Arc<Query>, fields: Arc<Fields>, extent: Extent },
    /// The set of selected objects, and the values that they hold in these fields.
    Read { query: Arc<Query>, fields: Arc<Fields> },
    /// The fields that a manager owns of an object (without `own`, only its existence), and the
    /// absence of the fields that must be absent.
    Written { query: Arc<Query>, manager: Arc<str>, own: Option<Pair> },
    /// The selected objects that a manager has applied.
    Pruned { query: Arc<Query>, manager: Arc<str> },
}

/// The uids of the objects that were read, indexed by name if there are many.
pub struct Uids<'a> {
    reads: &'a Reads,
    index: OnceCell<Index<'a>>,
}

/// The first answer with each kind, namespace and name.
type Index<'a> = foldhash::HashMap<(&'a Kind, &'a str, &'a str), &'a Entry>;

/// The most answers that are searched linearly, which is faster than indexing so few.
const MAX_UNINDEXED_ANSWERS: usize = 64;

/// The approximate bytes that are kept of a write: its object, the manager and the dependency on
/// it. So many are kept of a kind that is waited for.
const WRITE_BYTES: usize = 256;

/// The bytes that a dependency counts beside its texts, like each entry of a list.
const DEPENDENCY_BYTES: usize = 64;

/// The number of latest dependencies, or waits, that a new one is compared with: a small run has
/// fewer, and in a large run the comparisons take a negligible time.
const COMPARED_DEPENDENCIES: usize = 16;

// === impl Credentials ===

impl fmt::Debug for Credentials {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} credentials", self.0.len())
    }
}

// === impl Reads ===

impl Reads {
    pub(super) fn new(stores: Stores, index_user: IndexUser) -> Self {
        Self {
            stores,
            index_user,
            dependencies: Vec::new(),
            waits: Vec::new(),
            object: None,
            records: Vec::new(),
            wrote: Vec::new(),
            removed: Vec::new(),
            pruned: Vec::new(),
            finalizers: None,
            answered: Vec::new(),
            recorded: 0,
            saw_secret: false,
            credentials: Credentials::default(),
            gone: false,
            demands: Vec::new(),
            unwatched: Vec::new(),
            denials: Vec::new(),
            more_denials: 0,
            asked_bytes: 0,
        }
    }

    pub(super) fn reserve(&mut self, reads: usize, writes: usize) {
        self.records.reserve_exact(reads);
        // The object of the request is one more.
        self.dependencies.reserve_exact(1 + reads + writes);
    }

    /// Returns the recorded reads, in order.
    pub fn records(&self) -> &[record::Read] {
        &self.records
    }

    /// Moves the reads and writes into the record of the run.
    pub fn hand_over(&mut self, record: &mut record::Record) {
        record.object = self.object;
        record.reads = std::mem::take(&mut self.records).into();
        record.wrote = std::mem::take(&mut self.wrote).into();
        record.removed = std::mem::take(&mut self.removed).into();
        record.pruned = std::mem::take(&mut self.pruned).into();
        record.finalizers = self.finalizers.take();
    }

    /// Records the bytes of the arguments of all reads of a call.
    pub(super) fn asked_with(&mut self, bytes: usize) {
        self.asked_bytes += bytes;
    }

    /// Returns the approximate bytes that are kept of the run until the next one of its key.
    pub fn kept_bytes(&self) -> usize {
        let pruned = self.pruned.iter().map(|pruned| bounds::list_size(&pruned.of, None));
        let named = self.wrote.len() + self.removed.len() + self.pruned.len() + self.waits.len();
        self.asked_bytes
            + pruned.sum::<usize>()
            + named * WRITE_BYTES
            + self.dependencies.len() * DEPENDENCY_BYTES
    }

    /// Drops all dependencies of the run but the one on its object.
    pub fn drop_all_but_object(&mut self) {
        self.dependencies.retain(|of| matches!(of.depends_on, DependsOn::Reconciled { .. }));
        self.waits.clear();
        self.records.clear();
        self.wrote.clear();
        self.removed.clear();
        self.pruned.clear();
        self.unwatched.clear();
    }

    /// Returns the digest of the object of the request; `None` if it is gone.
    pub fn object(&self) -> Option<Digest> {
        self.object
    }

    pub fn saw_secret(&self) -> bool {
        self.saw_secret
    }

    /// Records the value of a credential.
    pub(super) fn saw_credential(&mut self, value: Zeroizing<String>) {
        self.saw_secret = true;
        if !self.credentials.0.contains(&value) {
            self.credentials.0.push(value);
        }
    }

    /// Returns the values of the credentials that the run has used.
    pub fn credentials(&self) -> impl Iterator<Item = &str> {
        self.credentials.0.iter().map(|value| value.as_str())
    }

    pub fn secrets(&self) -> impl Iterator<Item = &Entry> {
        let secrets = self.answered.iter().filter(|(kind, _)| record::is_secret(kind));
        secrets.map(|(_, entry)| &**entry)
    }

    /// Records that this call follows `earlier` in the same run. Its request names failed writes,
    /// which may contain Secret data that `earlier` read.
    pub(super) fn comes_after(&mut self, earlier: &Self) {
        self.saw_secret |= earlier.saw_secret;
    }

    /// Returns the uid of an object, if it was read. For the uids of many objects, use
    /// [`Reads::uids`].
    pub fn uid_of(&self, of: &ObjectRef) -> Option<&str> {
        self.find(&of.kind, of.namespace.as_deref(), &of.name)?.uid()
    }

    /// Returns the uids of the objects that were read.
    pub fn uids(&self) -> Uids<'_> {
        Uids { reads: self, index: OnceCell::new() }
    }

    /// Returns the number of objects that were read.
    pub(super) fn answers(&self) -> usize {
        self.answered.len()
    }

    /// Finds an object as it was read.
    pub(super) fn find(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> Option<&Arc<Entry>> {
        let namespace = namespace.filter(|namespace| !namespace.is_empty());
        let is_it = |(of, entry): &&(Arc<Kind>, Arc<Entry>)| {
            entry.name() == name && entry.namespace() == namespace && **of == *kind
        };
        self.answered.iter().find(is_it).map(|(_, entry)| entry)
    }

    /// Records that the run wrote an object under a manager.
    ///
    /// `own` are the digests of the fields that the manager owns after the write. Without them,
    /// only the object's existence counts.
    pub fn wrote(&mut self, of: &ObjectRef, manager: &str, own: Option<Pair>) {
        let manager = self.shared_manager(manager);
        self.record_written(&of.kind, (of.namespace.as_deref(), &of.name), &manager, own);
        self.record_wrote(of, manager, "", own);
    }

    /// Records that the run wrote the status of its object under a manager.
    ///
    /// A later change of the status by others does not trigger the run; the verification of its
    /// record finds it.
    pub fn wrote_status(&mut self, of: &ObjectRef, manager: &str, own: Option<Pair>) {
        self.record_wrote(of, self.shared_manager(manager), "status", own);
    }

    /// Records that the run deleted an object, or found it absent.
    pub fn removed(&mut self, of: &ObjectRef) {
        self.removed.push(self.stores.shared_ref(of));
    }

    /// Records the finalizers that the run decided on.
    pub fn finalized(&mut self, finalizers: record::Finalizers) {
        self.finalizers = Some(finalizers);
    }

    fn record_wrote(
        &mut self,
        of: &ObjectRef,
        manager: Arc<str>,
        subresource: &str,
        own: Option<Pair>,
    ) {
        let object = self.stores.shared_ref(of);
        let secret = self.saw_secret || record::is_secret(&of.kind);
        let own = own.map(|pair| record::Own::of(pair, secret));
        let subresource = subresource.into();
        self.wrote.push(WriteRecord { of: object, manager, subresource, own });
    }

    /// Returns the name of the manager, shared with earlier writes: one run writes under few
    /// managers.
    fn shared_manager(&self, manager: &str) -> Arc<str> {
        let same = self.wrote.iter().find(|wrote| &*wrote.manager == manager);
        same.map_or_else(|| manager.into(), |wrote| Arc::clone(&wrote.manager))
    }

    /// Records that the run pruned a selection.
    ///
    /// An object in the selection that the manager has applied, and that the run did not write, is
    /// to be pruned. A selection that does not parse selects nothing.
    pub fn pruned(&mut self, of: &Selection, manager: &str) {
        if let Ok(query) = Query::new(of) {
            let shared = self.shared_manager(manager);
            self.record_pruned(&of.kind, query, &shared);
            let secret = self.saw_secret || record::is_secret(&of.kind);
            let kind = self.stores.shared_kind(&of.kind);
            let of = record::recorded(Selection { kind, ..of.clone() }, secret);
            self.pruned.push(Pruned { of, manager: shared });
        }
    }

    /// Records that a write failed with 404: the cluster may not serve the kind.
    pub fn not_written(&mut self, kind: &Kind) {
        let kind = self.stores.shared_kind(kind);
        self.waits_for(&kind, true);
    }

    /// Adds the reads of a later call of the same run. If both calls made the same read, the
    /// snapshot of the earlier one counts.
    pub fn merge(&mut self, later: Self) {
        for dependency in later.dependencies {
            self.add_dependency(dependency);
        }
        for wait in later.waits {
            self.waits_for(&wait.kind, wait.for_itself);
        }
        self.records.extend(later.records);
        self.wrote.extend(later.wrote);
        self.removed.extend(later.removed);
        self.pruned.extend(later.pruned);
        self.finalizers = later.finalizers.or(self.finalizers.take());
        self.answered.extend(later.answered);
        self.saw_secret |= later.saw_secret;
        self.credentials.0.extend(later.credentials.0);
        self.asked_bytes += later.asked_bytes;
        self.demands(later.demands);
        for denial in later.denials {
            self.denied(denial);
        }
        self.more_denials += later.more_denials;
    }

    fn record_written(
        &mut self,
        kind: &Kind,
        (namespace, name): (Option<&str>, &str),
        manager: &Arc<str>,
        own: Option<Pair>,
    ) {
        let query = Arc::new(Query::object(namespace, name));
        self.record_at_end(kind, DependsOn::Written { query, manager: Arc::clone(manager), own });
    }

    fn record_pruned(&mut self, kind: &Kind, query: Query, manager: &Arc<str>) {
        let (query, manager) = (Arc::new(query), Arc::clone(manager));
        self.record_at_end(kind, DependsOn::Pruned { query, manager });
    }

    /// Records a dependency on the state that the run left at its end.
    fn record_at_end(&mut self, kind: &Kind, depends_on: DependsOn) {
        let (kind, best) = self.stores.best_for(kind, depends_on.query(), &self.index_user);
        let (store, term) = best.unzip();
        let index_term = IndexTerm::of(depends_on.query(), term.flatten());
        if store.is_none() {
            self.unwatched.push((Arc::clone(&kind), Arc::clone(depends_on.query())));
        }
        self.add_dependency(Dependency { kind, store, sequence: None, index_term, depends_on });
    }

    pub(super) fn add_dependency(&mut self, mut dependency: Dependency) {
        let last = || self.dependencies.iter().rev().take(COMPARED_DEPENDENCIES);
        let is_same = |held: &Dependency| {
            held.store == dependency.store && held.depends_on == dependency.depends_on
        };
        // A list that is read page by page is recorded once.
        if last().any(is_same) {
            return;
        }
        // Several kinds are often read, and pruned, by the same labels.
        let of_same = |held: &&Dependency| held.depends_on.query() == dependency.depends_on.query();
        if let Some(held) = last().find(of_same) {
            *dependency.depends_on.parts_mut().0 = Arc::clone(held.depends_on.query());
        }
        self.dependencies.push(dependency);
    }

    pub(super) fn waits_for(&mut self, kind: &Arc<Kind>, for_itself: bool) {
        let wait = Wait { kind: Arc::clone(kind), for_itself };
        // A run that waits for many kinds may keep one of them twice.
        if !self.waits.iter().rev().take(COMPARED_DEPENDENCIES).any(|held| *held == wait) {
            self.waits.push(wait);
        }
    }

    pub(super) fn answered(&mut self, kind: &Arc<Kind>, entry: &Arc<Entry>) {
        self.saw_secret |= record::is_secret(kind);
        self.answered.push((Arc::clone(kind), Arc::clone(entry)));
    }

    /// Records a read with the digest of its answer: of the pieces of JSON that count as a change;
    /// keyed if `secret`.
    pub(super) fn record(
        &mut self,
        question: Question,
        secret: bool,
        stood: Option<SnapshotPosition>,
        answer: Result<Vec<&Rendered>, &ReadError>,
    ) {
        let mut kept = None;
        let (answer, objects, bytes) = match answer {
            Ok(objects) => {
                let counted =
                    objects.iter().map(|object| object.counted(Extent::Counted).as_bytes());
                let bytes = objects.iter().map(|object| object.json.len()).sum();
                let new = self.answered.get(self.recorded..).unwrap_or_default();
                kept = Some(of_kept(secret, new.iter().map(|(_, entry)| entry)));
                (Digest::of(secret, counted), objects.len(), bytes)
            }
            // No object's JSON begins with `error`.
            Err(error) => (Digest::of(secret, [format!("error {error:?}").as_bytes()]), 0, 0),
        };
        self.recorded = self.answered.len();
        let (kept, live) = (kept.filter(|kept| *kept != answer), false);
        self.records.push(record::Read { question, answer, kept, stood, live, objects, bytes });
    }

    /// Marks the last recorded answer as one from the API server, not from a store.
    pub(super) fn was_live(&mut self) {
        if let Some(last) = self.records.last_mut() {
            last.live = true;
        }
    }

    pub(super) fn demands(&mut self, demands: impl IntoIterator<Item = Demand>) {
        for demand in demands {
            if !self.demands.contains(&demand) {
                self.demands.push(demand);
            }
        }
    }

    /// Returns the missing watches of objects that the run tried to read or has written.
    pub fn take_demands(&mut self, grant: &Grant) -> Vec<Demand> {
        let unwatched = std::mem::take(&mut self.unwatched);
        self.demands(unwatched.iter().filter_map(|(kind, query)| grant.demand(kind, query)));
        std::mem::take(&mut self.demands)
    }

    /// Records a denial. The number of denials that are kept does not grow with the guest's reads.
    ///
    /// Returns whether the denial is kept: it is one of the first few, and not recorded before.
    pub fn denied(&mut self, denial: Denial) -> bool {
        if self.denials.contains(&denial) {
            return false;
        }
        let is_kept = self.denials.len() < bounds::DENIALS;
        if is_kept {
            self.denials.push(denial);
        } else {
            self.more_denials += 1;
        }
        is_kept
    }

    /// Returns the denials that were kept, and the number of the others.
    pub fn take_denials(&mut self) -> (Vec<Denial>, usize) {
        (std::mem::take(&mut self.denials), std::mem::take(&mut self.more_denials))
    }

    /// Records a read whose answer is already known.
    pub(super) fn record_known(&mut self, known: record::Read) {
        self.recorded = self.answered.len();
        self.records.push(known);
    }

    /// Records the object of the request, and the value of the annotation that requests a run.
    /// Its digest is keyed if `secret`.
    pub(super) fn record_object(&mut self, secret: bool, object: &Rendered, asked: Option<&str>) {
        let parts =
            [Some(object.counted(Extent::Counted)), asked].into_iter().flatten().map(str::as_bytes);
        self.object = Some(Digest::of(secret, parts));
    }

    pub(super) fn object_is_gone(&mut self) {
        self.gone = true;
    }

    /// Returns whether the run was the last one of its key until the object is back.
    pub fn is_last(&self) -> bool {
        self.gone
    }

    #[cfg(test)]
    pub(super) fn answered_of(&self, kind: &str) -> Vec<(Arc<Kind>, Arc<Entry>)> {
        let is_of = |(of, _): &&(Arc<Kind>, Arc<Entry>)| of.kind == kind;
        self.answered.iter().filter(is_of).cloned().collect()
    }

    pub fn having_read(kind: Kind, entry: Entry) -> Self {
        let mut reads = Self::new(Stores::new(), IndexUser::default());
        reads.answered(&Arc::new(kind), &Arc::new(entry));
        reads
    }

    pub fn dependencies(&self) -> &[Dependency] {
        &self.dependencies
    }

    pub fn take_dependencies(&mut self) -> Vec<Dependency> {
        std::mem::take(&mut self.dependencies)
    }

    pub fn waits(&self) -> &[Wait] {
        &self.waits
    }
}

// === impl Uids ===

impl Uids<'_> {
    pub fn of(&self, of: &ObjectRef) -> Option<&str> {
        let answered = &self.reads.answered;
        if answered.len() <= MAX_UNINDEXED_ANSWERS {
            return self.reads.uid_of(of);
        }
        let index = self.index.get_or_init(|| {
            let mut index = Index::default();
            for (kind, entry) in answered {
                let name = (&**kind, entry.namespace().unwrap_or_default(), entry.name());
                index.entry(name).or_insert(entry);
            }
            index
        });
        index.get(&(&of.kind, of.namespace.as_deref().unwrap_or_default(), &*of.name))?.uid()
    }
}

// === impl IndexTerm ===

impl IndexTerm {
    /// Returns the narrowest index term of a query. `term` is a term that all objects of the query
    /// have in its store, if any.
    pub(super) fn of(query: &Query, term: Option<u64>) -> Self {
        match (query.namespace.as_deref(), query.name.as_deref(), term) {
            (Some(namespace), Some(name), _) => Self::Object(hashed((namespace, name))),
            (_, _, Some(term)) => Self::Term(term),
            (Some(namespace), _, None) => Self::Namespace(hashed(namespace)),
            (None, _, None) => Self::Any,
        }
    }

    /// Returns all index terms of an object, to find the dependencies on it; without `Any`.
    pub fn all_of(entry: &Entry) -> impl Iterator<Item = Self> {
        let namespace = Self::Namespace(hashed(entry.namespace().unwrap_or_default()));
        let terms = entry.terms().map(Self::Term);
        [Self::of_object(entry), namespace].into_iter().chain(terms)
    }

    /// Returns the index term of the queries for one object.
    pub fn of_object(entry: &Entry) -> Self {
        Self::Object(hashed((entry.namespace().unwrap_or_default(), entry.name())))
    }
}

/// Returns the digest of stored objects; keyed if `secret`.
pub(super) fn of_kept<'a>(secret: bool, of: impl Iterator<Item = &'a Arc<Entry>>) -> Digest {
    Digest::of(secret, of.map(|entry| entry.rendered().counted(Extent::Counted).as_bytes()))
}

// === impl DependsOn ===

impl DependsOn {
    pub fn query(&self) -> &Arc<Query> {
        match self {
            Self::Reconciled { query, .. }
            | Self::Read { query, .. }
            | Self::Written { query, .. }
            | Self::Pruned { query, .. } => query,
        }
    }

    /// Returns the parts that equal dependencies share.
    pub fn parts_mut(&mut self) -> (&mut Arc<Query>, Option<&mut Arc<Fields>>) {
        match self {
            Self::Reconciled { query, fields, .. } | Self::Read { query, fields } => {
                (query, Some(fields))
            }
            Self::Written { query, .. } | Self::Pruned { query, .. } => (query, None),
        }
    }
}
