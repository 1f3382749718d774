//! The texts of one object at the indexed paths, as hashed terms.

use std::{collections::BTreeSet, sync::OnceLock};

use serde_json::Value;

use super::{
    entry::{Rendered, Shape},
    term::{Term, hashed},
};
use crate::{
    contract::bounds::INDEXED_VALUES,
    path::{Extent, Fields, Path, text},
};

/// The most texts of an object at all paths together that are indexed, so that a change of one
/// object changes few rows.
const MAX_OBJECT_TERMS: usize = 4000;

/// The hashed terms of an object's texts at the paths of its shape.
///
/// A path with too many texts is not indexed for the object. One term stands for all its texts in
/// the index, so that every query on the path finds the object and compares it.
#[derive(Clone, Debug)]
pub(super) struct Indexed {
    /// The sorted terms of each path, one path after the other.
    terms: Box<[u64]>,
    /// The end of each path's terms.
    ends: Box<[u32]>,
    too_many: Option<Box<TooMany>>,
}

/// The paths with too many texts.
#[derive(Clone, Debug)]
struct TooMany {
    /// The positions of the paths in the shape, each with the number of its texts.
    paths: Box<[(usize, usize)]>,
    /// The JSON with the texts; `None` if the kept fields contain them.
    json: Option<String>,
    /// The sorted terms, computed when a query is first compared with them.
    terms: OnceLock<Box<[u64]>>,
}

// === impl Indexed ===

impl Indexed {
    pub(super) fn new(object: &Value, shape: &Shape) -> Self {
        let (mut terms, mut ends, mut too_many) = (Vec::new(), Vec::new(), Vec::new());
        for (at, path) in shape.matching.iter().enumerate() {
            let values = path.values(object);
            if values.len() > INDEXED_VALUES || terms.len() + values.len() > MAX_OBJECT_TERMS {
                too_many.push((at, values.len()));
                terms.push(hashed(Term::TooMany(path)));
            } else {
                terms.extend(sorted(values.into_iter(), path));
            }
            ends.push(u32::try_from(terms.len()).unwrap_or(u32::MAX));
        }
        let too_many = (!too_many.is_empty()).then(|| TooMany::new(object, shape, too_many));
        Self { terms: terms.into(), ends: ends.into(), too_many: too_many.map(Box::new) }
    }

    /// Returns all terms under which the object is indexed.
    pub(super) fn terms(&self) -> &[u64] {
        &self.terms
    }

    /// Returns whether the terms of a path do not tell all texts of the object.
    pub(super) fn has_too_many(&self) -> bool {
        self.too_many.is_some()
    }

    /// Returns whether the object holds the text of a term at its path; `None` if the shape does
    /// not index the path. `json` is the object's JSON.
    pub(super) fn holds(&self, shape: &Shape, path: &Path, term: u64, json: &str) -> Option<bool> {
        let at = shape.position(path)?;
        let too_many = self.too_many.as_ref().filter(|of| of.count(at).is_some());
        let terms = too_many.map_or_else(|| self.of_path(at), |of| of.terms(shape, json));
        Some(terms.binary_search(&term).is_ok())
    }

    /// Returns the number of terms under which the object is indexed because of these paths, and
    /// the approximate bytes that it holds for them.
    pub(super) fn held_for(&self, shape: &Shape, paths: &BTreeSet<Path>) -> (usize, usize) {
        let mut held = (0, 0);
        for at in paths.iter().filter_map(|path| shape.position(path)) {
            let (terms, many) = (self.of_path(at).len(), self.too_many.as_ref());
            held.0 += terms;
            held.1 += (terms + many.and_then(|of| of.count(at)).unwrap_or(0)) * size_of::<u64>();
        }
        held
    }

    /// Returns the approximate bytes in memory, with those of the terms that may be computed later.
    pub(super) fn bytes(&self) -> usize {
        let many = self.too_many.as_ref().map_or(0, |of| {
            let texts = of.paths.iter().map(|(_, count)| count).sum::<usize>();
            size_of::<TooMany>()
                + of.json.as_ref().map_or(0, String::len)
                + texts * size_of::<u64>()
        });
        size_of_val(&*self.terms) + size_of_val(&*self.ends) + many
    }

    fn of_path(&self, at: usize) -> &[u64] {
        let end = |at: usize| self.ends.get(at).map_or(0, |end| *end as usize);
        let start = at.checked_sub(1).map_or(0, end);
        self.terms.get(start..end(at)).unwrap_or_default()
    }
}

// === impl TooMany ===

impl TooMany {
    fn new(object: &Value, shape: &Shape, paths: Vec<(usize, usize)>) -> Self {
        let of = paths.iter().filter_map(|(at, _)| shape.matching.get(*at));
        let is_kept = of.clone().all(|path| shape.fields.covers(path));
        let json = (!is_kept)
            .then(|| Rendered::of(&Fields::of(of.cloned()).select(object, Extent::Shown)).json);
        Self { paths: paths.into(), json, terms: OnceLock::new() }
    }

    /// Returns the number of texts at a path; `None` if it has not too many.
    fn count(&self, at: usize) -> Option<usize> {
        self.paths.iter().find(|(of, _)| *of == at).map(|(_, count)| *count)
    }

    fn terms(&self, shape: &Shape, json: &str) -> &[u64] {
        self.terms.get_or_init(|| {
            let json = self.json.as_deref().unwrap_or(json);
            let object: Value = serde_json::from_str(json).unwrap_or_default();
            let paths = self.paths.iter().filter_map(|(at, _)| shape.matching.get(*at));
            let mut terms: Vec<u64> =
                paths.flat_map(|path| sorted(path.values(&object).into_iter(), path)).collect();
            terms.sort_unstable();
            terms.into()
        })
    }
}

/// Returns the hashed terms of the scalars among the values at a path, sorted, each once.
fn sorted<'a>(values: impl Iterator<Item = &'a Value>, path: &Path) -> Vec<u64> {
    let term = |value| Some(hashed(Term::Path(path, &text(value)?)));
    let mut terms: Vec<u64> = values.filter_map(term).collect();
    terms.sort_unstable();
    terms.dedup();
    terms
}
