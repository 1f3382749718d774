//! Answers the reads of one call.
//!
//! Reads are answered from a snapshot of each kind, taken when the call first uses the kind. They
//! are checked against the processor's declarations, and recorded as dependencies, so that a later
//! change triggers the key again.

mod again;
mod allowed;
mod credential;
mod dependencies;
mod pace;
mod page;
pub mod record;
#[cfg(test)]
mod tests;

pub use again::Answers;
pub use dependencies::{Dependency, DependsOn, IndexTerm, Reads, Wait};
pub(crate) use pace::yield_now;
pub use pace::{Pace, Unpaced};
pub use page::{read as read_page_token, token as page_token};

use std::{collections::HashMap, sync::Arc};

use futures::FutureExt as _;
use serde_json::Value;

use crate::{
    contract::{
        Kind, ObjectRef, Page, ReadError, Selection,
        bounds::{self, text::shortened},
        display_kind,
    },
    grant::{
        DeclaredReconciler, Grant, Limited, RECONCILE,
        rights::{Denial, Rights},
    },
    path::{Extent, Fields},
    reads::record::{Question, SnapshotPosition},
    store::{Entry, KindSnapshot, Query, Rendered, Shape, Snapshot, StoreId, Stores},
};

/// The most bytes of JSON on one page of a list, unless one object alone is larger.
pub const PAGE_BYTES: usize = 1 << 20;

/// The bytes of a stored object that count as one byte of a page: projecting a large object takes
/// time too.
const STORED_BYTES_PER_PAGE_BYTE: usize = 16;

/// The bytes of JSON that a read examines between two pauses: about a millisecond of parsing.
const SLICE_BYTES: usize = 256 << 10;

/// The bytes as which an examined object counts beside those of its JSON that are read.
const EXAMINED_BYTES: usize = 128;

/// The stores, the declarations and the rights that one call reads with, and its reads.
#[derive(Debug)]
pub struct View {
    stores: Stores,
    grant: Arc<Grant>,
    page_bytes: usize,
    /// The few kinds that a call reads, each as it was at its first use.
    kinds: Vec<ReadKind>,
    /// The position of the snapshot that answers the current read.
    stood: Option<SnapshotPosition>,
    reads: Reads,
    /// The rights of the processor's account; `None` if it may read all that the host may.
    rights: Option<Arc<dyn Rights>>,
    /// The objects that were read from the API server, each once per call.
    live: HashMap<ObjectRef, Option<Arc<Entry>>>,
    /// The bytes of live objects that `take_fetched` has not returned yet.
    fetched: usize,
    /// The bytes that were examined since the last pause, and the slices of all before it.
    examined: usize,
    pauses: usize,
    /// True if the current read is not recorded: it is not declared, and not one of the first few
    /// such reads.
    forgets: bool,
    /// The selection that was listed last: a call often lists several kinds by the same labels.
    listed: Option<Listed>,
}

/// A kind that a call reads. Only stores that may answer are locked for it, each once.
#[derive(Debug)]
struct ReadKind {
    all: Arc<KindSnapshot>,
    /// The namespaces of the queries so far; `*` for queries in all namespaces.
    namespaces: foldhash::HashSet<Box<str>>,
}

/// The reconciled object of a call.
#[derive(Clone, Debug, Default)]
pub struct ReconciledObject {
    /// The stored object; `None` if it is gone.
    pub entry: Option<Arc<Entry>>,
    /// The JSON of the object that the processor is given; `None` if it is gone.
    pub json: Option<String>,
    /// True if the object is in the reconciler's selection.
    pub selected: bool,
    /// True if the object holds one of the reconciler's finalizers.
    pub held: bool,
}

/// A stored object, and the fields to project it to.
type Kept = (Arc<Entry>, Arc<Fields>);

/// The objects of a page, and the token of the next one.
type Paged = (Vec<Rendered>, Option<String>);

/// An object that was compared with a query.
enum Examined {
    /// A selected object, with its JSON if that was parsed.
    Selected(Option<Value>),
    /// An object that is not selected.
    Other { is_parsed: bool },
}

/// The source of a page: the selected objects after a position.
struct Listing {
    query: Arc<Query>,
    fields: Arc<Fields>,
    after: Option<(String, String)>,
    answering: Answering,
}

/// A selection, and the query that was parsed from it.
#[derive(Debug)]
struct Listed {
    of: Selection,
    query: Arc<Query>,
}

/// A store that can answer a read.
struct Answering {
    store: StoreId,
    kind: Arc<Kind>,
    snapshot: Snapshot,
}

/// Projects objects to fields.
struct Cut<'a> {
    fields: &'a Fields,
    /// The shape of the last object, and whether it keeps exactly `fields`.
    met: Option<(Arc<Shape>, bool)>,
}

// === impl View ===

impl Default for View {
    /// Creates a view without readable objects.
    fn default() -> Self {
        Self::new(Stores::new(), Arc::default(), PAGE_BYTES)
    }
}

impl View {
    /// Creates a view. The first read of a kind takes the snapshot for all reads of that kind.
    pub fn new(stores: Stores, grant: Arc<Grant>, page_bytes: usize) -> Self {
        let reads = Reads::new(stores.clone(), grant.limited().index_user().clone());
        Self {
            stores,
            grant,
            page_bytes,
            kinds: Vec::new(),
            stood: None,
            reads,
            rights: None,
            live: HashMap::new(),
            fetched: 0,
            examined: 0,
            pauses: 0,
            forgets: false,
            listed: None,
        }
    }

    /// Limits [`View::get_allowed`] and [`View::list_allowed`] to what the processor's account may
    /// read, if it has one.
    #[must_use]
    pub fn with_rights(self, rights: Option<Arc<dyn Rights>>) -> Self {
        Self { rights, ..self }
    }

    /// Records an object that the call is given: the values of a Secret are masked in its texts.
    pub fn given(&mut self, kind: &Arc<Kind>, object: &Value) {
        self.reads.answered(kind, &Arc::new(Entry::alone(object)));
    }

    /// Reads the reconciled object.
    ///
    /// A change of the object triggers the key again; a change of its status only if the reconciler
    /// declares `triggered-by-status`. If the object is gone, or has left the selection and holds
    /// none of the reconciler's finalizers, no other change triggers the key: this is its last run
    /// until the object is back.
    pub fn reconciled(
        &mut self,
        of: &ObjectRef,
        reconciler: &DeclaredReconciler,
    ) -> Result<ReconciledObject, ReadError> {
        let readable = &reconciler.readable;
        let query = Arc::new(Query::object(of.namespace.as_deref(), &of.name));
        let answering = self.answering(&of.kind, &query, &readable.kept)?;
        let (fields, extent) = (Arc::clone(&readable.kept), reconciler.extent());
        self.depends_on(&answering, DependsOn::Reconciled { query, fields, extent });
        let snapshot = &answering.snapshot;
        let Some(entry) = snapshot.get(of.namespace.as_deref().unwrap_or_default(), &of.name)
        else {
            return Ok(self.object_is_gone());
        };
        let rendered = Cut::new(&readable.fields).give(entry);
        self.reads.answered(&answering.kind, entry);
        let asked_for = entry.annotation(RECONCILE);
        let secret = self.is_secret(&of.kind);
        self.reads.record_object(secret, &rendered, asked_for.as_deref());
        let (selected, held) = (reconciler.selects(entry), reconciler.holds_finalizer(entry));
        if !selected && !held {
            self.reads.object_is_gone();
        }
        Ok(ReconciledObject {
            entry: Some(Arc::clone(entry)),
            json: Some(rendered.json),
            selected,
            held,
        })
    }

    /// Records that the reconciled object is gone: this is its last run until it is back.
    pub(crate) fn object_is_gone(&mut self) -> ReconciledObject {
        self.reads.object_is_gone();
        ReconciledObject::default()
    }

    /// Reads an object of the first reconciler.
    #[cfg(test)]
    pub(crate) fn reconciled_by_first(&mut self, of: &ObjectRef) -> ReconciledObject {
        let first = Arc::clone(&self.grant.reconcilers()[0]);
        self.reconciled(of, &first).unwrap()
    }

    /// Reads one object.
    pub fn get(&mut self, of: &ObjectRef, fields: &[String]) -> Result<Option<String>, ReadError> {
        let answer = self.find(of, fields);
        self.record_get(of, fields, answer)
    }

    /// Returns whether the digests of objects of a kind are keyed: an object as it is stored may
    /// hold the value of a Secret, or a declared credential.
    fn is_secret(&self, kind: &Kind) -> bool {
        record::is_secret(kind) || self.grant.holds_credentials(kind)
    }

    fn record_get(
        &mut self,
        of: &ObjectRef,
        fields: &[String],
        answer: Result<Option<Rendered>, ReadError>,
    ) -> Result<Option<String>, ReadError> {
        if self.is_forgotten(answer.as_ref().err()) {
            return answer.map(|_| None);
        }
        let question =
            Question::Get { of: self.stores.shared_ref(of), fields: self.grant.shared(fields) };
        let given = answer.as_ref().map(|found| found.iter().collect());
        self.reads.record(question, self.is_secret(&of.kind), self.stood.take(), given);
        answer.map(|found| found.map(|rendered| rendered.json))
    }

    fn find(&mut self, of: &ObjectRef, fields: &[String]) -> Result<Option<Rendered>, ReadError> {
        let found = self.find_kept(of, fields)?;
        Ok(found.map(|(entry, fields)| {
            self.examined += entry.json().len() * fields.cost();
            Cut::new(&fields).give(&entry)
        }))
    }

    /// Finds one stored object, and the fields to project it to.
    fn find_kept(&mut self, of: &ObjectRef, fields: &[String]) -> Result<Option<Kept>, ReadError> {
        let grant = Arc::clone(&self.grant);
        let (namespace, mut found) = (of.namespace.as_deref(), None);
        // Each declared part compares them.
        let asked_bytes = EXAMINED_BYTES + fields.iter().map(String::len).sum::<usize>();
        self.examined += asked_bytes;
        // The object of the last part, and its parsed JSON: mostly all parts find the same.
        let (mut last, mut parsed) = (None, None);
        for (part, fields) in self.declared("get", &of.kind, grant.may_get(of, fields))? {
            let query = Arc::new(part.map_or_else(
                || Query::object(namespace, &of.name),
                |part| part.narrowed(namespace, &of.name),
            ));
            let answering = self.answering(&of.kind, &query, &fields)?;
            let depends_on =
                DependsOn::Read { query: Arc::clone(&query), fields: Arc::clone(&fields) };
            self.depends_on(&answering, depends_on);
            self.examined += asked_bytes;
            let entry = answering.snapshot.get(namespace.unwrap_or_default(), &of.name);
            let Some(entry) = entry.filter(|_| found.is_none()).cloned() else { continue };
            if last.replace(Arc::clone(&entry)).is_none_or(|last| !Arc::ptr_eq(&last, &entry)) {
                parsed = None;
            }
            let was_parsed = parsed.is_some();
            let is_selected = query.matches_parsed(&entry, &mut parsed);
            // A step of a comparison takes as long as parsing some bytes.
            let is_parsed = parsed.is_some() && !was_parsed;
            self.examined += query.cost(&entry) + if is_parsed { entry.json().len() } else { 0 };
            if is_selected {
                self.reads.answered(&answering.kind, &entry);
                found = Some((entry, fields));
            }
        }
        Ok(found)
    }

    /// Reads a page of a list, ordered by namespace and name, without pauses.
    #[expect(clippy::missing_panics_doc, reason = "a read without pauses does not wait")]
    pub fn list(
        &mut self,
        of: &Selection,
        limit: u32,
        from: Option<&str>,
    ) -> Result<Page, ReadError> {
        let page = self.list_paced(of, limit, from, &mut Unpaced).now_or_never();
        let Ok(page) = page.expect("a read without pauses does not wait");
        page
    }

    /// Reads a page of a list, ordered by namespace and name.
    ///
    /// In one call, all pages of a selection come from one snapshot. A token can be used again,
    /// also in a later call, and continues after the same name.
    pub async fn list_paced<P: Pace>(
        &mut self,
        of: &Selection,
        limit: u32,
        from: Option<&str>,
        pace: &mut P,
    ) -> Result<Result<Page, ReadError>, P::Stop> {
        let listing = self.listing(of, from);
        let answer = match self.declared("list", &of.kind, listing) {
            Ok(listing) => {
                let paged = self.page(of, limit, &listing, pace).await?;
                self.complete_index(&listing, pace).await?;
                Ok(paged)
            }
            Err(error) => Err(error),
        };
        Ok(self.record_list(of, limit, from, answer))
    }

    fn record_list(
        &mut self,
        of: &Selection,
        limit: u32,
        from: Option<&str>,
        answer: Result<Paged, ReadError>,
    ) -> Result<Page, ReadError> {
        if self.is_forgotten(answer.as_ref().err()) {
            return answer.map(|_| Page { objects: Vec::new(), next: None });
        }
        // The arguments of the read may contain Secret data.
        let secret = self.reads.saw_secret() || record::is_secret(&of.kind);
        let (kind, fields) = (self.stores.shared_kind(&of.kind), self.grant.shared(&of.fields));
        let question = Question::List {
            of: Box::new(record::recorded(Selection { kind, fields, ..of.clone() }, secret)),
            limit,
            from: from.map(|token| record::asked_text(secret, token).into()),
        };
        let given = answer.as_ref().map(|(objects, _)| objects.iter().collect());
        self.reads.record(question, self.is_secret(&of.kind), self.stood.take(), given);
        let (objects, next) = answer?;
        Ok(Page { objects: objects.into_iter().map(|rendered| rendered.json).collect(), next })
    }

    /// Returns whether the current read is not recorded, since it is invalid or undeclared.
    ///
    /// The arguments of such a read may be arbitrary text. The first few undeclared reads are
    /// recorded nevertheless, so that they are reported again after a restart.
    fn is_forgotten(&mut self, error: Option<&ReadError>) -> bool {
        let forgets = std::mem::take(&mut self.forgets);
        forgets || matches!(error, Some(ReadError::Invalid(_)))
    }

    /// Records the bytes of the arguments of all reads of the call.
    pub fn asked_with(&mut self, bytes: usize) {
        self.reads.asked_with(bytes);
    }

    /// Returns the bytes of the objects that were read live since the last call of this function.
    pub fn take_fetched(&mut self) -> usize {
        std::mem::take(&mut self.fetched)
    }

    /// Finds the source of a page, and records the dependency.
    fn listing(&mut self, of: &Selection, from: Option<&str>) -> Result<Listing, ReadError> {
        let query = self.query(of)?;
        let fields = self.grant.may_list(of, &query)?;
        let after = from.map(|token| page::read(of, token)).transpose()?;
        let answering = self.answering(&of.kind, &query, &fields)?;
        self.depends_on(
            &answering,
            DependsOn::Read { query: Arc::clone(&query), fields: Arc::clone(&fields) },
        );
        Ok(Listing { query, fields, after, answering })
    }

    /// Parses a selection, or returns the query of the last one if it is the same.
    fn query(&mut self, of: &Selection) -> Result<Arc<Query>, ReadError> {
        if let Some(listed) = self.listed.as_ref().filter(|listed| listed.is_of(of)) {
            return Ok(Arc::clone(&listed.query));
        }
        let listed = Listed::new(of).map_err(ReadError::Invalid)?;
        Ok(Arc::clone(&self.listed.insert(listed).query))
    }

    async fn page<P: Pace>(
        &mut self,
        of: &Selection,
        limit: u32,
        listing: &Listing,
        pace: &mut P,
    ) -> Result<Paged, P::Stop> {
        let Listing { query, fields, answering, .. } = listing;
        let most = if limit == 0 { usize::MAX } else { limit as usize };
        let (mut objects, mut bytes, mut last) = (Vec::new(), 0, None);
        let mut cut = Cut::new(fields);
        for entry in answering.snapshot.candidates(query, listing.after()) {
            let selected = self.examine(query, entry, pace).await?;
            // Parsing a large object takes time even if little or nothing of it remains.
            let stored = entry.bytes() / STORED_BYTES_PER_PAGE_BYTE;
            let rendered = match &selected {
                Examined::Selected(parsed) => {
                    self.examined += entry.json().len() * (fields.cost() - 1);
                    Some(cut.give_parsed(entry, parsed.as_ref()))
                }
                Examined::Other { is_parsed } => {
                    bytes += if *is_parsed { stored } else { 0 };
                    None
                }
            };
            bytes += rendered.as_ref().map_or(0, |rendered| rendered.json.len().max(stored));
            let is_full = objects.len() >= most && rendered.is_some();
            if is_full || (bytes > self.page_bytes && last.is_some()) {
                // The account may list the object that the token names, even if it is not selected.
                return Ok((objects, last.map(|last: &Arc<Entry>| page::write(of, last))));
            }
            if let Some(rendered) = rendered {
                objects.push(rendered);
                self.reads.answered(&answering.kind, entry);
            }
            last = Some(entry);
        }
        Ok((objects, None))
    }

    /// Completes the index of labels that a listing lacked, so that no later one compares all
    /// objects for them.
    async fn complete_index<P: Pace>(
        &mut self,
        listing: &Listing,
        pace: &mut P,
    ) -> Result<(), P::Stop> {
        let Answering { store, kind, snapshot } = &listing.answering;
        if !snapshot.lacks_index(&listing.query) {
            return Ok(());
        }
        while self.stores.index_labels(kind, *store) {
            self.examined += SLICE_BYTES;
            self.pause_if_due(pace).await?;
        }
        Ok(())
    }

    /// Returns the first selected objects of a listing, `most` at most.
    async fn first<P: Pace>(
        &mut self,
        listing: &Listing,
        most: usize,
        pace: &mut P,
    ) -> Result<Vec<Arc<Entry>>, P::Stop> {
        let Listing { query, answering, .. } = listing;
        let mut selected = Vec::new();
        for entry in answering.snapshot.candidates(query, listing.after()) {
            if selected.len() >= most {
                break;
            }
            if let Examined::Selected(_) = self.examine(query, entry, pace).await? {
                selected.push(Arc::clone(entry));
            }
        }
        Ok(selected)
    }

    /// Compares an object with a query, after a pause if one is due.
    async fn examine<P: Pace>(
        &mut self,
        query: &Query,
        entry: &Entry,
        pace: &mut P,
    ) -> Result<Examined, P::Stop> {
        self.pause_if_due(pace).await?;
        let mut parsed = None;
        let is_selected = query.matches_parsed(entry, &mut parsed);
        let is_parsed = parsed.is_some() || entry.has_too_many_terms();
        let is_read = is_selected || is_parsed;
        let read = if is_read { entry.json().len() * query.pairs_cost() } else { 0 };
        self.examined += EXAMINED_BYTES + read;
        Ok(if is_selected { Examined::Selected(parsed) } else { Examined::Other { is_parsed } })
    }

    /// Pauses if the reads since the last pause have examined [`SLICE_BYTES`].
    pub async fn pause_if_due<P: Pace>(&mut self, pace: &mut P) -> Result<(), P::Stop> {
        if self.examined < SLICE_BYTES {
            return Ok(());
        }
        self.pauses += self.examined / SLICE_BYTES;
        self.examined = 0;
        pace.pause(self.pauses).await
    }

    /// Makes this the view of a later call of the same run, whose request may contain Secret data
    /// that the earlier call read.
    #[must_use]
    pub fn after(mut self, earlier: &Reads) -> Self {
        self.reads.comes_after(earlier);
        self
    }

    /// Returns all reads of the call.
    pub fn finish(self) -> Reads {
        self.reads
    }

    /// Finds the store that can answer a query with these fields. If there is none, the run waits
    /// for one.
    fn answering(
        &mut self,
        kind: &Kind,
        query: &Query,
        fields: &Fields,
    ) -> Result<Answering, ReadError> {
        let all = self.snapshots_for(kind, query.namespace.as_deref());
        let answering = answering(&all, query, fields, self.grant.limited());
        if let Err(error) = &answering {
            self.reads.waits_for(&all.kind, *error == ReadError::UnknownKind);
            // The watch of another processor may cover these objects, but keep fewer fields.
            let store = all.covering(query, Some(fields));
            if store.is_none_or(|(_, snapshot)| !can_answer(snapshot.shape(), query, fields)) {
                self.reads.demands(self.grant.demand(kind, query));
            }
        }
        answering
    }

    /// Returns the snapshots of a kind, with those of all stores that may answer queries in a
    /// namespace.
    fn snapshots_for(&mut self, kind: &Kind, namespace: Option<&str>) -> Arc<KindSnapshot> {
        let known = self.kinds.iter().position(|of| *of.all.kind == *kind);
        let mut of = match known {
            Some(at) => self.kinds.swap_remove(at),
            None => ReadKind {
                all: Arc::new(self.stores.snapshots(kind, |_| false)),
                namespaces: foldhash::HashSet::default(),
            },
        };
        // No object is in the namespace `*`.
        let place = namespace.unwrap_or("*");
        if !of.namespaces.contains(place) {
            of.namespaces.insert(place.into());
            let limited = self.grant.limited();
            self.stores.add_snapshots(Arc::make_mut(&mut of.all), |scope| {
                (scope.namespace.is_none() || scope.namespace.as_deref() == namespace)
                    && !limited.is_refused(kind, scope)
            });
        }
        let all = Arc::clone(&of.all);
        self.kinds.push(of);
        all
    }

    /// Records a denial if a read is not declared.
    fn declared<T>(
        &mut self,
        verb: &'static str,
        kind: &Kind,
        granted: Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        if let Err(ReadError::Denied(message)) = &granted {
            let message = shortened(message, bounds::DENIAL);
            self.forgets = !self.reads.denied(Denial::of_declaration(verb, kind, &message));
        }
        granted
    }

    fn depends_on(&mut self, answering: &Answering, depends_on: DependsOn) {
        let snapshot = &answering.snapshot;
        snapshot.request_index(depends_on.query(), self.grant.limited().index_user());
        self.stood =
            Some(SnapshotPosition { sequence: snapshot.sequence(), revision: snapshot.revision() });
        let index_term = IndexTerm::of(depends_on.query(), snapshot.index_term(depends_on.query()));
        let (kind, sequence) = (Arc::clone(&answering.kind), snapshot.sequence());
        self.reads.add_dependency(Dependency {
            kind,
            store: Some(answering.store),
            sequence: Some(sequence),
            index_term,
            depends_on,
        });
    }
}

fn answering(
    all: &KindSnapshot,
    query: &Query,
    fields: &Fields,
    limited: &Limited,
) -> Result<Answering, ReadError> {
    if all.served == Some(false) {
        return Err(ReadError::UnknownKind);
    }
    let why = |otherwise: &str| {
        let why = all.unavailable.as_deref().unwrap_or(otherwise);
        Err(unavailable(&all.kind, why))
    };
    let Some((store, snapshot)) = all.covering(query, Some(fields)) else {
        let limited = limited.why(&all.kind);
        return match limited {
            Some(limited) => Err(unavailable(&all.kind, &limited)),
            None => why("it is not watched there"),
        };
    };
    if !snapshot.is_complete() {
        return why("its first list has not arrived");
    }
    if !can_answer(snapshot.shape(), query, fields) {
        return why("it is being listed again with more fields");
    }
    Ok(Answering { store, kind: Arc::clone(&all.kind), snapshot: snapshot.clone() })
}

fn unavailable(kind: &Kind, why: &str) -> ReadError {
    ReadError::Unavailable(format!("{}: {why}", display_kind(kind)))
}

/// Returns whether a store keeps the fields, and the paths of the query.
fn can_answer(shape: &Shape, query: &Query, fields: &Fields) -> bool {
    shape.fields.covers_all(fields) && query.matching().all(|(path, _)| shape.can_match(path))
}

// === impl Listing ===

impl Listing {
    /// Returns the namespace and name after which the page begins.
    fn after(&self) -> Option<(&str, &str)> {
        self.after.as_ref().map(|(namespace, name)| (namespace.as_str(), name.as_str()))
    }
}

// === impl Listed ===

impl Listed {
    fn new(of: &Selection) -> Result<Self, String> {
        Ok(Self { of: of.clone(), query: Arc::new(Query::new(of)?) })
    }

    /// Returns whether a selection has the same query, whatever its kind and fields.
    fn is_of(&self, other: &Selection) -> bool {
        let Selection { namespace, name, labels, matching, .. } = &self.of;
        (namespace, name, labels, matching)
            == (&other.namespace, &other.name, &other.labels, &other.matching)
    }
}

// === impl Cut ===

impl<'a> Cut<'a> {
    fn new(fields: &'a Fields) -> Self {
        Self { fields, met: None }
    }

    fn give(&mut self, entry: &Entry) -> Rendered {
        self.give_parsed(entry, None)
    }

    /// Renders the object, whose JSON may have been parsed already; reuses the stored JSON if the
    /// store keeps exactly these fields.
    fn give_parsed(&mut self, entry: &Entry, parsed: Option<&Value>) -> Rendered {
        let is_met = self.met.as_ref().filter(|(shape, _)| Arc::ptr_eq(shape, entry.shape()));
        let is_same =
            is_met.map_or_else(|| entry.shape().fields == *self.fields, |(_, is_same)| *is_same);
        self.met = Some((Arc::clone(entry.shape()), is_same));
        match parsed {
            _ if is_same => entry.rendered().clone(),
            Some(parsed) => Rendered::of(&self.fields.select(parsed, Extent::Shown)),
            None => {
                Rendered::of(&self.fields.select(&self.fields.read(entry.json()), Extent::Shown))
            }
        }
    }
}
