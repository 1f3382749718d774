//! The reads that a description declares, the watches that these need, and the check of wanted
//! reads.

use std::{cell::OnceCell, collections::BTreeSet, sync::Arc};

use super::{Declared, Grant, Invalid, Limited, accepted, display_selection};
use crate::{
    contract::{
        Kind, ObjectRef, ReadError, Selection, bounds::INDEXED_PATHS, display_kind, display_ref,
    },
    path::{self, Fields, Path},
    store::{Query, Scope, Wanted},
};

/// The annotation that requests a run: any new value does.
pub(crate) const RECONCILE: &str = "mortise.dev/reconcile";

/// The most lists of fields that are cached.
const MAX_CACHED_LISTS: usize = 512;
/// The most steps of all paths in the cached lists: each step takes up to a kilobyte in a tree.
const MAX_CACHED_STEPS: usize = 16 << 10;
/// The most bytes of a list of fields that is cached; longer ones are seldom requested again.
const MAX_CACHED_LIST_BYTES: usize = 2048;

/// A declared selection of objects that may be read.
#[derive(Debug)]
pub struct Readable {
    pub(crate) of: Declared,
    pub(super) scope: Scope,
    pub(crate) fields: Arc<Fields>,
    /// The declared fields, and those that the host itself reads.
    pub(crate) kept: Arc<Fields>,
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

/// The query that the object must match (`None`: any object), and its readable fields.
pub(crate) type Granted<'a> = (Option<&'a Query>, Arc<Fields>);

/// The caches of lists of fields.
#[derive(Debug, Default)]
pub(super) struct Lists {
    granted: Parsed,
    /// The interned lists of fields in run records.
    shared: foldhash::HashSet<Arc<[String]>>,
}

type ByList = foldhash::HashMap<Box<[String]>, Arc<Fields>>;

/// The fields that a read asks for, parsed once for all declared selections.
struct Asked<'a> {
    texts: &'a [String],
    parsed: OnceCell<Result<Arc<Fields>, path::Invalid>>,
}

/// The granted fields, by the selections and by the requested list. Refusals are not cached.
#[derive(Debug, Default)]
struct Parsed {
    of: foldhash::HashMap<Box<[usize]>, ByList>,
    lists: usize,
    steps: usize,
}

// === impl Readable ===

impl Readable {
    pub(super) fn parse(place: &str, of: &Selection) -> Result<Self, Invalid> {
        let declared = Declared::parse(place, of)?;
        let fields = Fields::parse(&of.fields).map_err(|invalid| Invalid::Malformed {
            place: format!("{place}.fields"),
            value: of.fields.join(", "),
            reason: invalid.to_string(),
        })?;
        let fields = Arc::new(fields);
        Ok(Self { of: declared, scope: Scope::of(of), kept: Arc::clone(&fields), fields })
    }

    /// Keeps these fields too, for the host itself.
    pub(super) fn keeping(self, paths: &[&str]) -> Self {
        let paths = Fields::of(paths.iter().filter_map(|path| path.parse().ok()));
        Self { kept: Arc::new(self.fields.union(&paths)), ..self }
    }

    /// Returns the fields and indexes that the selection needs.
    pub(super) fn wanted(&self) -> Wanted {
        let (fields, matching) = (self.kept.as_ref().clone(), self.of.indexed.clone());
        Wanted { fields, matching, written: false }
    }

    fn may_match(&self, path: &Path) -> bool {
        self.fields.covers(path) || self.of.indexed.contains(path)
    }

    /// Fails if a selection is not within this one, with the path by which it may not select
    /// objects, if that is the reason.
    pub(crate) fn covers<'a>(
        &self,
        of: &Selection,
        query: &'a Query,
    ) -> Result<(), Option<&'a Path>> {
        if !self.of.covers(of, query.labels()) {
            return Err(None);
        }
        match query.matching().find(|(path, _)| !self.may_match(path)) {
            Some((path, _)) => Err(Some(path)),
            None => Ok(()),
        }
    }
}

// === impl Grant ===

impl Grant {
    /// Returns the watches that the declarations need, one for each selection without a wildcard
    /// kind or group. Not merged.
    pub fn wanted(&self) -> &[(Kind, Scope, Wanted)] {
        &self.wanted
    }

    /// Returns the declared reads that are refused because a limit of the host is reached.
    pub fn limited(&self) -> &Limited {
        &self.limited
    }

    /// Returns the watch that a query needs; `None` if no declaration covers the query.
    ///
    /// The scopes are the declared one and, for accounts that may not watch that, those of the
    /// query's namespace and name.
    pub(crate) fn demand(&self, kind: &Kind, query: &Query) -> Option<Demand> {
        let read = self.watched_reads().filter(|read| read.of.is_of(kind));
        let mut written = self.writes.iter().filter(|rule| rule.of.is_of(kind));
        let mut scopes = read.map(|read| &read.scope);
        let scope = scopes
            .find(|scope| scope.covers(query))
            .or_else(|| written.find_map(|rule| Some(&rule.scope).filter(|of| of.covers(query))))?;
        let some = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        let namespace = some(query.namespace.as_deref());
        let of_namespace =
            Scope { namespace: namespace.or_else(|| scope.namespace.clone()), ..scope.clone() };
        let name = some(query.name.as_deref());
        let of_name = Scope { name, ..of_namespace.clone() };
        let mut scopes = vec![scope.clone(), of_namespace, of_name];
        scopes.dedup();
        Some(Demand { kind: kind.clone(), scopes, wanted: self.wanted_of(kind)? })
    }

    /// Returns the declared selections whose objects are watched so that their fields can be read:
    /// by the processor, or by the host as credentials.
    fn watched_reads(&self) -> impl Iterator<Item = &Arc<Readable>> {
        self.reads.iter().chain(self.credentials())
    }

    /// Returns the fields and indexes that all declarations need of a kind; `None` if no
    /// declaration is of that kind.
    pub(super) fn wanted_of(&self, kind: &Kind) -> Option<Wanted> {
        let read = self.watched_reads().filter(|read| read.of.is_of(kind));
        let written = self.writes.iter().filter(|rule| rule.of.is_of(kind));
        let wanted = read.map(|read| read.wanted());
        let wanted: Vec<Wanted> = wanted.chain(written.map(|rule| rule.wanted.clone())).collect();
        Some(Wanted::union_of(&wanted)?.with_places(&self.indexed(kind)))
    }

    /// Returns the declared selections that may hold an object, in order. Fails if the object or
    /// the fields are not declared.
    pub(crate) fn may_get(
        &self,
        of: &ObjectRef,
        asked: &[String],
    ) -> Result<Vec<Granted<'_>>, ReadError> {
        self.may_connect_to_read(&of.kind)?;
        let asked = &Asked::new(asked);
        let fitting = self.fitting(|read| read.of.could_hold(of));
        let shown = || display_ref(of);
        if fitting.is_empty() {
            return Err(self.denied(&shown(), &of.kind));
        }
        let open = self.fitting(|read| read.of.could_hold(of) && read.of.unconditional());
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
                    Some(&self.reads.get(*at)?.of.query),
                    self.fields(&[*at], asked, shown).ok()?,
                ))
            })
            .collect();
        if granted.is_empty() {
            // This error names the fields of all selections.
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
    pub(crate) fn may_list(&self, of: &Selection, query: &Query) -> Result<Arc<Fields>, ReadError> {
        self.may_connect_to_read(&of.kind)?;
        let fitting = self.fitting(|read| read.of.covers(of, query.labels()));
        let shown = || display_selection(of);
        if fitting.is_empty() {
            return Err(self.denied(&shown(), &of.kind));
        }
        let fields = self.fields(&fitting, &Asked::new(&of.fields), shown)?;
        for (path, _) in query.matching() {
            self.may_compare(&of.kind, path)?;
            let may = |at: &usize| self.reads.get(*at).is_some_and(|read| read.may_match(path));
            if !fitting.iter().any(may) {
                let why = "is not declared, neither in `fields` nor in `matching`";
                return Err(ReadError::Denied(format!("`{path}` of {} {why}", shown())));
            }
        }
        Ok(fields)
    }

    fn may_connect_to_read(&self, kind: &Kind) -> Result<(), ReadError> {
        self.may_connect(&kind.cluster).map_err(|denied| ReadError::Denied(denied.to_string()))
    }

    /// Returns the declared paths of a kind that are indexed.
    pub(super) fn indexed(&self, kind: &Kind) -> BTreeSet<&Path> {
        let credentials = self.credentials().map(|read| &read.of);
        let of_kind = self.declared().chain(credentials).filter(|declared| declared.is_of(kind));
        let paths: BTreeSet<&Path> = of_kind.flat_map(|declared| &declared.indexed).collect();
        paths.into_iter().take(INDEXED_PATHS).collect()
    }

    fn fitting(&self, fits: impl Fn(&Readable) -> bool) -> Box<[usize]> {
        self.reads.iter().enumerate().filter(|(_, read)| fits(read)).map(|(at, _)| at).collect()
    }

    /// Returns the requested fields, or all fields that these selections declare if none are
    /// requested.
    fn fields(
        &self,
        fitting: &[usize],
        asked: &Asked<'_>,
        of: impl Fn() -> String,
    ) -> Result<Arc<Fields>, ReadError> {
        if let Some(held) = self.lists.lock().granted.get(fitting, asked.texts) {
            return Ok(held);
        }
        let reads = fitting.iter().filter_map(|at| self.reads.get(*at));
        let declared = if fitting.is_empty() {
            Fields::metadata_only().clone()
        } else {
            Fields::union_of(reads.map(|read| &*read.fields))
        };
        let fields = check(declared, asked, of)?;
        for read in fitting.iter().filter_map(|at| self.reads.get(*at)) {
            fields.paths().try_for_each(|path| self.may_compare(&read.of.kind, path))?;
        }
        if is_short(asked.texts) {
            self.lists.lock().granted.insert(fitting, asked.texts, &fields);
        }
        Ok(fields)
    }

    fn may_compare(&self, kind: &Kind, path: &Path) -> Result<(), ReadError> {
        self.check_compared(kind, path, || display_kind(kind)).map_err(ReadError::Denied)
    }

    /// Returns the list of fields, shared with earlier reads of the same list.
    pub(crate) fn shared(&self, asked: &[String]) -> Arc<[String]> {
        let shared = &mut self.lists.lock().shared;
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
        let of_kind = self.reads.iter().map(|read| &read.of).filter(|of| of.is_of(kind));
        let accepted = accepted("reads of that kind", of_kind.map(ToString::to_string));
        ReadError::Denied(format!("{what} is not declared; {accepted}"))
    }
}

// === impl Asked ===

impl<'a> Asked<'a> {
    fn new(texts: &'a [String]) -> Self {
        Self { texts, parsed: OnceCell::new() }
    }

    fn parsed(&self) -> Result<&Arc<Fields>, ReadError> {
        let parse = || Fields::parse(self.texts).map(Arc::new);
        let parsed = self.parsed.get_or_init(parse).as_ref();
        parsed.map_err(|invalid| ReadError::Invalid(invalid.to_string()))
    }
}

// === impl Parsed ===

impl Parsed {
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

fn is_short(fields: &[String]) -> bool {
    fields.iter().map(String::len).sum::<usize>() <= MAX_CACHED_LIST_BYTES
}

fn check(
    declared: Fields,
    asked: &Asked<'_>,
    of: impl Fn() -> String,
) -> Result<Arc<Fields>, ReadError> {
    if asked.texts.is_empty() {
        return Ok(Arc::new(declared));
    }
    let asked = asked.parsed()?;
    match declared.first_missing(asked) {
        None => Ok(Arc::clone(asked)),
        Some(path) => Err(ReadError::Denied(format!(
            "`{path}` of {} is not declared; declared of it: {declared}",
            of()
        ))),
    }
}

/// Returns the scope in which reconciled objects are watched: without the labels, as an object that
/// leaves the selection is still reconciled while it holds a finalizer.
pub fn watched(of: &Selection) -> Scope {
    Scope { labels: String::new(), ..Scope::of(of) }
}
