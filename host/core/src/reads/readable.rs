//! The reads that a processor's description declares: the objects and fields that it may read, and
//! the watches that this needs.

use std::sync::Arc;

use parking_lot::Mutex;

use super::Limited;
use crate::{
    contract::{Description, Kind, ObjectRef, ReadError, Selection, display_ref},
    grant::{self, Declared},
    path::{Fields, Path},
    store::{Entry, Query, Scope, Stores, Wanted},
};

/// The annotation that requests a run: any new value does.
pub(super) const RECONCILE: &str = "mortise.dev/reconcile";

/// The fields of a reconciled object that the host itself reads.
const HOST_FIELDS: [&str; 3] = [
    "metadata.finalizers",
    "metadata.annotations[\"mortise.dev/paused\"]",
    "metadata.annotations[\"mortise.dev/reconcile\"]",
];

/// The most lists of fields that are cached.
const MAX_CACHED_LISTS: usize = 512;
/// The most steps of all paths in the cached lists: each step takes up to a kilobyte in a tree.
const MAX_CACHED_STEPS: usize = 16 << 10;
/// The most bytes of a list of fields that is cached; longer ones are seldom requested again.
const MAX_CACHED_LIST_BYTES: usize = 2048;

/// The reads that one loaded version of a processor may make.
#[derive(Debug, Default)]
pub struct Readable {
    parts: Vec<Part>,
    written: Vec<DeclaredWrite>,
    wanted: Vec<(Kind, Scope, Wanted)>,
    /// The cache of parsed and checked lists of fields.
    granted: Mutex<Remembered>,
    /// The interned lists of fields in run records.
    shared: Mutex<foldhash::HashSet<Arc<[String]>>>,
    limited: Limited,
}

/// Parsed fields, by the requested list.
type Lists = foldhash::HashMap<Box<[String]>, Arc<Fields>>;

/// The granted fields, by the declared parts and by the requested list. Refusals are not cached.
#[derive(Debug, Default)]
struct Remembered {
    of: foldhash::HashMap<Box<[usize]>, Lists>,
    lists: usize,
    steps: usize,
}

/// A declared selection.
#[derive(Debug)]
pub(super) struct Part {
    of: Declared,
    scope: Scope,
    pub(super) fields: Arc<Fields>,
    /// The declared fields, and those that the host itself reads.
    pub(super) kept: Arc<Fields>,
    /// The name of the reconciler; `None` if the selection is only read.
    reconciler: Option<String>,
    finalizers: Vec<String>,
    pub(super) triggered_by_status: bool,
}

/// A watch that a run needs and that is not open.
///
/// Either its kind is declared by a wildcard, or the account may read in its namespace but not in
/// the whole declared scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    pub kind: Kind,
    /// The candidate scopes, widest first: the first that the account may watch is used.
    pub scopes: Vec<Scope>,
    /// The fields and indexes that are needed.
    pub wanted: Wanted,
}

/// A declared selection of objects to be written.
#[derive(Debug)]
struct DeclaredWrite {
    of: Declared,
    scope: Scope,
    wanted: Wanted,
}

/// The query that the object must match (`None`: any object), and its readable fields.
pub(super) type Granted<'a> = (Option<&'a Query>, Arc<Fields>);

// === impl Readable ===

impl Readable {
    /// Parses the declarations of a description.
    pub fn new(description: &Description) -> Result<Self, grant::Invalid> {
        let mut readable = Self::default();
        for (index, reconciler) in description.reconcilers.iter().enumerate() {
            let mut part = Part::new(&format!("reconcilers[{index}].of"), &reconciler.of)?;
            part.reconciler = Some(reconciler.name.clone());
            part.finalizers.clone_from(&reconciler.finalizers);
            part.triggered_by_status = reconciler.triggered_by_status;
            part.kept = Arc::new(part.fields.union(&fields_of(&HOST_FIELDS)));
            let scope = watched(&reconciler.of);
            let wanted = Wanted {
                fields: part.kept.as_ref().clone(),
                matching: part.of.indexed.clone(),
                written: true,
            };
            readable.want(&reconciler.of.kind, scope, wanted);
            readable.parts.push(part);
        }
        for (index, read) in description.reads.iter().enumerate() {
            let part = Part::new(&format!("reads[{index}]"), read)?;
            readable.want(&read.kind, scope(read), part.wanted());
            readable.parts.push(part);
        }
        for (index, write) in description.writes.iter().enumerate() {
            let part = Part::new(&format!("writes[{index}].of"), &write.of)?;
            let needed =
                fields_of(&["metadata.labels", "metadata.ownerReferences", "metadata.finalizers"]);
            let needed = needed.union(&Fields::of(part.of.indexed.iter().cloned()));
            let wanted =
                Wanted { fields: needed, matching: part.of.indexed.clone(), written: true };
            let scope = scope(&write.of);
            readable.want(&write.of.kind, scope.clone(), wanted.clone());
            readable.written.push(DeclaredWrite { of: part.of, scope, wanted });
        }
        Ok(readable)
    }

    /// Returns the watches that the declarations need, one for each selection without a wildcard
    /// kind or group. Not merged.
    pub fn wanted(&self) -> &[(Kind, Scope, Wanted)] {
        &self.wanted
    }

    /// Returns the declared reads that are refused because a limit of the host is reached.
    pub fn limited(&self) -> &Limited {
        &self.limited
    }

    /// Returns the objects that hold a declared finalizer, each with the name of the reconciler
    /// that may have added it; `None` if no complete store covers them. A kind that is not served
    /// has no objects.
    pub fn holding(&self, stores: &Stores) -> Option<Vec<(&str, Arc<Entry>)>> {
        let mut holding = Vec::new();
        for part in self.parts.iter().filter(|part| !part.finalizers.is_empty()) {
            let Some(name) = part.reconciler.as_deref() else { continue };
            if stores.is_unknown(&part.of.kind) {
                continue;
            }
            let entries = stores.selected(&part.of.kind, &part.of.query.anywhere())?;
            let held = entries.into_iter().filter(|entry| part.holds_finalizer(entry));
            holding.extend(held.map(|entry| (name, entry)));
        }
        Some(holding)
    }

    /// Returns the watch that a query needs; `None` if no declaration covers the query.
    ///
    /// The scopes are the declared one and, for accounts that may not watch that, those of the
    /// query's namespace and name.
    pub(super) fn demand(&self, kind: &Kind, query: &Query) -> Option<Demand> {
        let read = self.parts.iter().filter(|part| part.of.is_of(kind));
        let written = self.written.iter().filter(|written| written.of.is_of(kind));
        let mut scopes = read.clone().map(|part| &part.scope);
        let scope = scopes.find(|scope| scope.covers(query)).or_else(|| {
            written.clone().map(|written| &written.scope).find(|of| of.covers(query))
        })?;
        let some = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        let namespace = some(query.namespace.as_deref());
        let of_namespace =
            Scope { namespace: namespace.or_else(|| scope.namespace.clone()), ..scope.clone() };
        let name = some(query.name.as_deref());
        let of_name = Scope { name, ..of_namespace.clone() };
        let mut scopes = vec![scope.clone(), of_namespace, of_name];
        scopes.dedup();
        let wanted = read.map(Part::wanted).chain(written.map(|written| written.wanted.clone()));
        let wanted = wanted.reduce(|all, wanted| all.union(&wanted))?;
        Some(Demand { kind: kind.clone(), scopes, wanted })
    }

    /// Returns the objects that a swap from `former` to this version would leave with a finalizer
    /// that no version removes: only `former` declares it for their kind. The finalizer's name
    /// comes first.
    pub fn abandoned(&self, former: &Self, stores: &Stores) -> Vec<(String, ObjectRef)> {
        let mut abandoned = Vec::new();
        for part in former.parts.iter().filter(|part| !part.finalizers.is_empty()) {
            // The two versions may read the kind in different API versions.
            let still = self.parts.iter().filter(|still| still.of.kind.is_same(&part.of.kind));
            let still: Vec<&String> = still.flat_map(|still| &still.finalizers).collect();
            let dropped: Vec<&String> =
                part.finalizers.iter().filter(|name| !still.contains(name)).collect();
            if dropped.is_empty() {
                continue;
            }
            let known = stores.selected(&part.of.kind, &part.of.query.anywhere());
            for entry in known.iter().flatten() {
                if let Some(name) = dropped.iter().find(|name| entry.holds_finalizer(name)) {
                    abandoned.push(((*name).clone(), entry.reference(&part.of.kind)));
                }
            }
        }
        abandoned
    }

    fn want(&mut self, kind: &Kind, scope: Scope, wanted: Wanted) {
        if kind.kind != "*" && kind.group != "*" {
            self.wanted.push((kind.clone(), scope, wanted));
        }
    }

    pub(super) fn reconciler(&self, name: &str) -> Option<&Part> {
        self.parts.iter().find(|part| part.reconciler.as_deref() == Some(name))
    }

    /// Returns the declared parts that may hold an object, in order. Fails if the object or the
    /// fields are not declared.
    pub(super) fn get(
        &self,
        of: &ObjectRef,
        asked: &[String],
    ) -> Result<Vec<Granted<'_>>, ReadError> {
        let fitting = self.fitting(|part| part.of.could_hold(of));
        let shown = || display_ref(of);
        if fitting.is_empty() {
            return Err(self.denied(&shown(), &of.kind));
        }
        let open = self.fitting(|part| part.of.could_hold(of) && part.of.unconditional());
        if !open.is_empty() {
            let fields = self.fields(&open, asked, shown);
            if fields.is_ok() || open.len() == fitting.len() {
                return fields.map(|fields| vec![(None, fields)]);
            }
        }
        let conditional = fitting.iter().filter(|at| !open.contains(at));
        let granted: Vec<_> = conditional
            .filter_map(|at| {
                Some((
                    Some(&self.parts.get(*at)?.of.query),
                    self.fields(&[*at], asked, shown).ok()?,
                ))
            })
            .collect();
        if granted.is_empty() {
            // This error names the fields of all parts.
            return self.fields(&fitting, asked, shown).and_then(|_| {
                Err(ReadError::Denied(format!(
                    "these fields of {} are declared apart, not together",
                    shown()
                )))
            });
        }
        Ok(granted)
    }

    /// Returns the fields that may be read of a selection's objects. Fails if the selection, the
    /// fields or a path to match is not declared.
    pub(super) fn list(&self, of: &Selection, query: &Query) -> Result<Arc<Fields>, ReadError> {
        let fitting = self.fitting(|part| part.of.covers(of, query.labels()));
        let shown = || grant::display_selection(of);
        if fitting.is_empty() {
            return Err(self.denied(&shown(), &of.kind));
        }
        let fields = self.fields(&fitting, &of.fields, shown)?;
        for (path, _) in query.matching() {
            let may = |at: &usize| self.parts.get(*at).is_some_and(|part| part.may_match(path));
            if !fitting.iter().any(may) {
                let why = "is not declared, neither in `fields` nor in `matching`";
                return Err(ReadError::Denied(format!("`{path}` of {} {why}", shown())));
            }
        }
        Ok(fields)
    }

    fn fitting(&self, fits: impl Fn(&Part) -> bool) -> Box<[usize]> {
        self.parts.iter().enumerate().filter(|(_, part)| fits(part)).map(|(at, _)| at).collect()
    }

    /// Returns the requested fields, or all fields that these parts declare if none are requested.
    fn fields(
        &self,
        fitting: &[usize],
        asked: &[String],
        of: impl Fn() -> String,
    ) -> Result<Arc<Fields>, ReadError> {
        if let Some(held) = self.granted.lock().get(fitting, asked) {
            return Ok(held);
        }
        let parts = fitting.iter().filter_map(|at| self.parts.get(*at));
        let declared =
            parts.map(|part| part.fields.as_ref().clone()).reduce(|all, fields| all.union(&fields));
        let declared = declared.unwrap_or_else(Fields::metadata_only);
        let fields = Arc::new(check(declared, asked, of)?);
        if is_short(asked) {
            self.granted.lock().insert(fitting, asked, &fields);
        }
        Ok(fields)
    }

    /// Returns the list of fields, shared with earlier reads of the same list.
    pub(super) fn shared(&self, asked: &[String]) -> Arc<[String]> {
        let mut shared = self.shared.lock();
        if let Some(held) = shared.get(asked) {
            return Arc::clone(held);
        }
        let asked: Arc<[String]> = asked.into();
        if shared.len() < MAX_CACHED_LISTS && is_short(&asked) {
            shared.insert(Arc::clone(&asked));
        }
        asked
    }

    fn denied(&self, what: &str, kind: &Kind) -> ReadError {
        let of_kind = self.parts.iter().map(|part| &part.of).filter(|of| of.is_of(kind));
        let accepted = grant::accepted("reads of that kind", of_kind.map(ToString::to_string));
        ReadError::Denied(format!("{what} is not declared; {accepted}"))
    }
}

fn is_short(fields: &[String]) -> bool {
    fields.iter().map(String::len).sum::<usize>() <= MAX_CACHED_LIST_BYTES
}

// === impl Remembered ===

impl Remembered {
    fn get(&self, fitting: &[usize], asked: &[String]) -> Option<Arc<Fields>> {
        self.of.get(fitting)?.get(asked).cloned()
    }

    fn insert(&mut self, fitting: &[usize], asked: &[String], fields: &Arc<Fields>) {
        let steps = fields.paths().map(|path| path.segments().len()).sum::<usize>();
        if self.lists >= MAX_CACHED_LISTS || self.steps + steps > MAX_CACHED_STEPS {
            return;
        }
        let held = self.of.entry(fitting.into()).or_default();
        if held.insert(asked.into(), Arc::clone(fields)).is_none() {
            self.lists += 1;
            self.steps += steps;
        }
    }
}

fn check(declared: Fields, asked: &[String], of: impl Fn() -> String) -> Result<Fields, ReadError> {
    if asked.is_empty() {
        return Ok(declared);
    }
    let asked = Fields::parse(asked).map_err(|invalid| ReadError::Invalid(invalid.to_string()))?;
    match declared.first_missing(&asked) {
        None => Ok(asked),
        Some(path) => Err(ReadError::Denied(format!(
            "`{path}` of {} is not declared; declared of it: {declared}",
            of()
        ))),
    }
}

fn fields_of(paths: &[&str]) -> Fields {
    Fields::of(paths.iter().filter_map(|path| path.parse().ok()))
}

/// Returns the scope in which reconciled objects are watched: without the labels, as an object that
/// leaves the selection is still reconciled while it holds a finalizer.
pub fn watched(of: &Selection) -> Scope {
    Scope { labels: String::new(), ..scope(of) }
}

fn scope(of: &Selection) -> Scope {
    Scope { namespace: of.namespace.clone(), name: of.name.clone(), labels: of.labels.clone() }
}

// === impl Part ===

impl Part {
    fn new(place: &str, of: &Selection) -> Result<Self, grant::Invalid> {
        let declared = Declared::parse(place, of)?;
        let fields = Fields::parse(&of.fields).map_err(|invalid| grant::Invalid::Malformed {
            place: format!("{place}.fields"),
            value: of.fields.join(", "),
            reason: invalid.to_string(),
        })?;
        let fields = Arc::new(fields);
        Ok(Self {
            of: declared,
            scope: scope(of),
            kept: Arc::clone(&fields),
            fields,
            reconciler: None,
            finalizers: Vec::new(),
            triggered_by_status: false,
        })
    }

    /// Returns whether an object is in the selection.
    pub(super) fn selects(&self, entry: &Entry) -> bool {
        self.of.query.matches(entry)
    }

    /// Returns whether an object holds one of the reconciler's finalizers.
    pub(super) fn holds_finalizer(&self, entry: &Entry) -> bool {
        self.finalizers.iter().any(|name| entry.holds_finalizer(name))
    }

    fn wanted(&self) -> Wanted {
        let (fields, matching) = (self.kept.as_ref().clone(), self.of.indexed.clone());
        Wanted { fields, matching, written: false }
    }

    fn may_match(&self, path: &Path) -> bool {
        self.fields.covers(path) || self.of.indexed.contains(path)
    }
}
