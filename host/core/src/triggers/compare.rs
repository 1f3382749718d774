//! The comparison of a change with dependencies.

use std::{ops::AddAssign, sync::Arc};

use foldhash::HashMap;
use serde_json::Value;

use crate::{
    path::{Extent, Fields},
    queue::Key,
    reads::{Dependency, DependsOn, IndexTerm},
    store::{Change, Entry, Query, Source, lay_over},
};

/// The most steps for comparing one change with queries and fields, each once: some milliseconds.
/// Further queries and fields count as affected.
const MAX_STEPS: usize = 1 << 17;
/// The bytes of JSON that are parsed in the time of one step.
const PARSED_PER_STEP: usize = 4;
/// The bytes of parsed objects that are compared in the time of one step.
const COMPARED_PER_STEP: usize = 16;
/// The number of sets of fields that are read from the JSON of a change. For more of them, parsing
/// the whole object once is cheaper.
const MAX_PARTIAL_READS: usize = 2;

/// A change that is compared with many dependencies. Each object is parsed at most once, and each
/// query and each set of fields, which dependencies share, is compared once.
#[derive(Debug)]
pub(super) struct Compare {
    pub(super) change: Change,
    old: Parsed,
    new: Parsed,
    /// The object before the change, with the manifest of the key's run merged into it.
    expected: Option<Value>,
    /// The answers of [`Compare::selects`], by the address of the query. The queries are kept, so
    /// that each has another address.
    selects: HashMap<usize, (Arc<Query>, (bool, bool))>,
    /// The answers of [`Compare::differ`], by the address of the fields and the extent; the last part
    /// of the key is true if they are compared with the expected object.
    differ: HashMap<(usize, Extent, bool), (Arc<Fields>, bool)>,
    /// The number of sets of fields that were read from JSON.
    partial_reads: usize,
    /// The steps of the answers that are kept.
    steps: usize,
    pub(super) spent: Spent,
}

/// The JSON of an object, once it was needed.
type Parsed = Option<Value>;

/// The work of comparisons.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    /// The number of steps, each of some nanoseconds, without those of parsing.
    pub(super) steps: usize,
    /// The bytes of JSON that were parsed.
    pub(super) parsed_bytes: usize,
    /// The number of queries and fields that were compared with an object.
    pub(super) compared: usize,
    /// The number of objects that were parsed whole.
    pub(super) parsed: usize,
}

// === impl Spent ===

impl Spent {
    /// Returns all work, in steps.
    pub(super) fn work(&self) -> usize {
        self.steps + self.parsed_bytes / PARSED_PER_STEP
    }

    /// Counts the parse of an object if `parsed` was empty before and is not now.
    fn count_parse(&mut self, before: bool, parsed: &Parsed, of: &Entry) {
        if !before && parsed.is_some() {
            self.parsed += 1;
            self.parsed_bytes += of.json().len();
        }
    }
}

impl AddAssign for Spent {
    fn add_assign(&mut self, more: Self) {
        self.steps += more.steps;
        self.parsed_bytes += more.parsed_bytes;
        self.compared += more.compared;
        self.parsed += more.parsed;
    }
}

// === impl Compare ===

impl Compare {
    pub(super) fn new(change: Change) -> Self {
        Self {
            change,
            old: None,
            new: None,
            expected: None,
            selects: HashMap::default(),
            differ: HashMap::default(),
            partial_reads: 0,
            steps: 0,
            spent: Spent::default(),
        }
    }

    /// Returns whether too much is to be compared: queries and fields count as affected.
    pub(super) fn is_exhausted(&self) -> bool {
        self.steps > MAX_STEPS
    }

    /// Frees the parsed objects. Only the answers that are known by now are used from now on.
    pub(super) fn suspend(&mut self) {
        let parsed = [self.old.take(), self.new.take(), self.expected.take()];
        if parsed.iter().any(Option::is_some) {
            self.steps = usize::MAX;
        }
    }

    /// Returns whether the change is newer than the run's snapshot of the store that it has read.
    pub(super) fn is_open(&self, of: &Dependency) -> bool {
        of.store.is_none_or(|held| held == self.change.store)
            && of.sequence.is_none_or(|seen| seen < self.change.sequence)
    }

    /// Returns whether the change may affect a dependency. [`Index`](super::index::Index) finds
    /// those of all keys.
    pub(super) fn is_about(&mut self, of: &Dependency) -> bool {
        of.kind == self.change.kind && self.is_open(of) && {
            let (saw, sees) = self.selects(of.depends_on.query());
            saw || sees
        }
    }

    /// Returns whether the change affects a dependency of a key's run. `all` are the dependencies
    /// of the run, sorted by index term.
    pub(super) fn affects(&mut self, of: &Dependency, all: &[Dependency], key: &Key) -> bool {
        let is_pruned = matches!(of.depends_on, DependsOn::Pruned { .. });
        self.hits(&of.depends_on, key) && !(is_pruned && self.is_written(all))
    }

    /// Returns whether the run itself has written the object, which is then not to be pruned.
    fn is_written(&self, all: &[Dependency]) -> bool {
        self.change.new.as_ref().is_some_and(|new| {
            let (_, of_object) = of_term(all, IndexTerm::of_object(new));
            of_object.iter().filter(|of| of.kind == self.change.kind).any(|of| {
                matches!(&of.depends_on, DependsOn::Written { query, .. } if query.matches(new))
            })
        })
    }

    fn hits(&mut self, depends_on: &DependsOn, key: &Key) -> bool {
        let sent = match &self.change.source {
            Source::Write { by, sent } if by == key => Some(sent.clone()),
            _ => None,
        };
        match (depends_on, sent) {
            (DependsOn::Read { query, fields }, Some(sent)) => {
                self.surprises(query, fields, Extent::Counted, sent.as_deref())
            }
            (DependsOn::Reconciled { query, fields, extent }, Some(sent)) => {
                self.change.new.is_none() || self.surprises(query, fields, *extent, sent.as_deref())
            }
            // Other objects are selected, or they hold other values.
            (DependsOn::Read { query, fields }, None) => {
                let (saw, sees) = self.selects(query);
                saw != sees || (sees && self.differ(fields, Extent::Counted))
            }
            (DependsOn::Reconciled { query, fields, extent }, None) => {
                let (was, is) = self.selects(query);
                (was || is) && self.differ(fields, *extent)
            }
            (DependsOn::Written { .. } | DependsOn::Pruned { .. }, Some(_)) => false,
            (DependsOn::Written { query, manager, own }, None) => {
                let (was, is) = self.selects(query);
                self.change.new.as_ref().map_or(was, |new| {
                    let is_other = || own.is_some() && new.own().get(manager, "") != *own;
                    is && (is_other() || new.breaks_absence_of(manager))
                })
            }
            (DependsOn::Pruned { query, manager }, None) => {
                let (was, is) = self.selects(query);
                let holds = |entry: &Option<Arc<Entry>>| {
                    entry.as_ref().is_some_and(|entry| entry.own().holds(manager))
                };
                is && holds(&self.change.new) && !(was && holds(&self.change.old))
            }
        }
    }

    /// Returns whether a query selects the object before and after the change.
    fn selects(&mut self, query: &Arc<Query>) -> (bool, bool) {
        self.spent.steps += 1;
        if query.is_by_name() {
            return self.compare(query);
        }
        let by = Arc::as_ptr(query).addr();
        if let Some((_, selects)) = self.selects.get(&by) {
            return *selects;
        }
        let is_exhausted = self.is_exhausted();
        let selects = self.selects_once(query);
        if !is_exhausted {
            self.selects.insert(by, (Arc::clone(query), selects));
        }
        selects
    }

    /// Returns the same as [`Compare::selects`] for a query that is compared with no other
    /// dependency, and keeps no answer.
    pub(super) fn selects_once(&mut self, query: &Query) -> (bool, bool) {
        if self.is_exhausted() {
            // As if the object came into the selection.
            return (false, true);
        }
        let change = &self.change;
        let cost = change.old.iter().chain(&change.new).map(|entry| query.cost(entry)).sum();
        self.count(cost);
        self.compare(query)
    }

    fn compare(&mut self, query: &Query) -> (bool, bool) {
        let Self { change, old, new, spent, .. } = self;
        spent.compared += 1;
        let mut selects = |entry: &Option<Arc<Entry>>, parsed: &mut Parsed| {
            let Some(entry) = entry else { return false };
            let before = parsed.is_some();
            let selects = query.matches_parsed(entry, parsed);
            spent.count_parse(before, parsed, entry);
            selects
        };
        (selects(&change.old, old), selects(&change.new, new))
    }

    /// Returns whether the object differs in these fields. Creation and deletion are differences.
    pub(super) fn differ(&mut self, fields: &Arc<Fields>, extent: Extent) -> bool {
        self.spent.steps += 1;
        let by = (Arc::as_ptr(fields).addr(), extent, false);
        if let Some((_, differ)) = self.differ.get(&by) {
            return *differ;
        }
        let (Some(old), Some(new)) = (self.change.old.clone(), self.change.new.clone()) else {
            return true;
        };
        if self.is_exhausted() {
            return true;
        }
        self.spent.compared += 1;
        let differ = old.rendered().counted(extent) != new.rendered().counted(extent) && {
            let bytes = old.json().len() + new.json().len();
            let compared = bytes / COMPARED_PER_STEP;
            if self.partial_reads < MAX_PARTIAL_READS && self.new.is_none() {
                self.partial_reads += 1;
                self.spent.parsed_bytes += bytes;
                self.count(compared * (fields.cost() - 1));
                let (old, new) = (fields.read(old.json()), fields.read(new.json()));
                fields.differ(Some(&old), Some(&new), extent)
            } else {
                self.count(compared * fields.cost());
                let old = parsed(&mut self.old, &old, &mut self.spent);
                let new = parsed(&mut self.new, &new, &mut self.spent);
                fields.differ(Some(old), Some(new), extent)
            }
        };
        self.differ.insert(by, (Arc::clone(fields), differ));
        differ
    }

    /// Returns whether the answer to the key's own write differs from the expected object: the
    /// object before the write, with the sent manifest merged into it.
    fn surprises(
        &mut self,
        query: &Arc<Query>,
        fields: &Arc<Fields>,
        extent: Extent,
        sent: Option<&Value>,
    ) -> bool {
        let Some(sent) = sent else {
            // The run deleted the object, and expects it to be gone.
            return self.change.new.is_some();
        };
        let (_, matches) = self.selects(query);
        if self.is_exhausted() {
            return true;
        }
        let old = self.change.old.clone();
        self.count(1 + old.as_ref().map_or(0, |old| query.cost(old)));
        let before = self.old.is_some();
        let expected = query.would_match(old.as_deref(), sent, &mut self.old);
        if let Some(old) = &old {
            self.spent.count_parse(before, &self.old, old);
        }
        if expected != matches || !matches {
            return expected != matches;
        }
        let Some(new) = self.change.new.clone() else { return true };
        let by = (Arc::as_ptr(fields).addr(), extent, true);
        if let Some((_, surprises)) = self.differ.get(&by) {
            return *surprises;
        }
        self.spent.compared += 1;
        self.count(new.json().len() / COMPARED_PER_STEP * fields.cost());
        let Self { old: before, new: after, expected, spent, .. } = self;
        let old = old.map(|old| parsed(before, &old, spent));
        let laid = expected.get_or_insert_with(|| lay_over(old, sent));
        let surprises = fields.surprise(laid, parsed(after, &new, spent), extent);
        self.differ.insert(by, (Arc::clone(fields), surprises));
        surprises
    }

    fn count(&mut self, steps: usize) {
        self.steps = self.steps.saturating_add(steps);
        self.spent.steps += steps;
    }
}

/// Returns the dependencies with an index term, and the position of the first one. `all` are sorted
/// by index term.
pub(super) fn of_term(all: &[Dependency], term: IndexTerm) -> (usize, &[Dependency]) {
    let first = all.partition_point(|of| of.index_term < term);
    let rest = all.get(first..).unwrap_or_default();
    let count = rest.partition_point(|of| of.index_term == term);
    (first, rest.get(..count).unwrap_or_default())
}

fn parsed<'a>(parsed: &'a mut Parsed, entry: &Entry, spent: &mut Spent) -> &'a Value {
    let before = parsed.is_some();
    parsed.get_or_insert_with(|| entry.value());
    spent.count_parse(before, parsed, entry);
    parsed.get_or_insert_default()
}
