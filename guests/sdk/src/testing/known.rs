//! What is known of a cluster at one time, and what reads answer of it.

use std::collections::BTreeSet;

use mortise_embedded_api::LabelSelector;
use serde_json::Value;

use super::{
    identity::{Identity, text},
    path::{Fields, Path},
};
use crate::{
    Description, Kind, ObjectRef, Selection, bindings::mortise::host::types::ReadError, selection,
};

/// Objects, and what may be read of them.
#[derive(Clone, Default)]
pub(super) struct Known {
    /// Ordered by namespace and name.
    pub(super) objects: Vec<Value>,
    /// Group and kind of what the cluster does not know.
    pub(super) missing: BTreeSet<(String, String)>,
    /// Kinds that cannot be read now.
    pub(super) unavailable: BTreeSet<String>,
    /// None: everything may be read.
    pub(super) declared: Option<Description>,
}

/// A selection, parsed.
pub(super) struct Query<'a> {
    of: &'a Selection,
    labels: LabelSelector,
    matching: Vec<(Path, &'a str)>,
}

// === impl Known ===

impl Known {
    /// Adds one object, or replaces it.
    pub(super) fn set(&mut self, object: Value) {
        self.remove(&Identity::of(&object));
        let at = self.objects.partition_point(|other| place(other) <= place(&object));
        self.objects.insert(at, object);
    }

    pub(super) fn remove(&mut self, identity: &Identity) {
        self.objects.retain(|other| Identity::of(other) != *identity);
    }

    /// The object of a reference, whole.
    pub(super) fn find(&self, of: &ObjectRef) -> Option<&Value> {
        let identity = Identity::of_ref(of);
        self.objects.iter().find(|object| Identity::of(object) == identity)
    }

    /// One object, with the fields that were asked for.
    pub(super) fn get(
        &self,
        of: &ObjectRef,
        fields: &[String],
    ) -> Result<Option<Value>, ReadError> {
        let named = Selection {
            cluster: of.cluster.clone(),
            namespace: of.namespace.clone(),
            ..Selection::new(of.kind.clone()).name(&of.name).fields(fields)
        };
        let what = selection::named(of);
        let granted = self.granted(&named, &what, |declared| {
            fits(declared.namespace.as_ref(), of.namespace.as_ref())
                && fits(declared.name.as_ref(), Some(&of.name))
        })?;
        self.answers(&named, &what)?;
        let Some(object) = self.find(of) else { return Ok(None) };
        let open = granted.iter().any(|part| part.is_none_or(is_unconditional));
        let is_in = |part: &&Selection| {
            let part = without_any(part);
            Query::new(&part).is_ok_and(|query| query.matches(object))
        };
        if !open && !granted.iter().flatten().any(is_in) {
            return Ok(None);
        }
        Ok(Some(answer(object, &wanted(&named, &granted)?, &of.kind)))
    }

    /// The objects of a selection.
    pub(super) fn list(&self, of: &Selection) -> Result<Vec<Value>, ReadError> {
        let what = format!("a list of `{}`", of.kind.kind);
        let granted = self.granted(of, &what, |declared| covers(declared, of))?;
        let query = Query::new(of).map_err(ReadError::Invalid)?;
        for (path, _) in &query.matching {
            let may = |part: Option<&Selection>| part.is_none_or(|part| may_match(part, path));
            if !granted.iter().copied().any(may) {
                let why = "is not declared, neither in `fields` nor in `matching`";
                return Err(ReadError::Denied(format!("a path in `matching` of {what} {why}")));
            }
        }
        self.answers(of, &what)?;
        let fields = wanted(of, &granted)?;
        let found = self.objects.iter().filter(|object| query.matches(object));
        Ok(found.map(|object| answer(object, &fields, &of.kind)).collect())
    }

    /// The declared selections that let this be read; `[None]` where everything may be.
    fn granted<'a>(
        &'a self,
        of: &Selection,
        what: &str,
        holds: impl Fn(&Selection) -> bool,
    ) -> Result<Vec<Option<&'a Selection>>, ReadError> {
        if !of.cluster.is_empty() {
            return Err(ReadError::Denied(format!("{what}: there is no cluster `{}`", of.cluster)));
        }
        let Some(declared) = &self.declared else { return Ok(vec![None]) };
        let reconciled = declared.reconcilers.iter().map(|reconciler| &reconciler.of);
        let asked: Result<Vec<Path>, String> =
            of.fields.iter().map(|field| Path::parse(field)).collect();
        let asked = asked.map_err(ReadError::Invalid)?;
        let parts: Vec<_> = reconciled
            .chain(&declared.reads)
            .filter(|part| is_of(&part.kind, &of.kind) && holds(part))
            .collect();
        let all: Vec<Path> = parts
            .iter()
            .flat_map(|part| &part.fields)
            .filter_map(|field| Path::parse(field).ok())
            .collect();
        let is_whole = parts.iter().any(|part| part.fields.is_empty());
        let may = |path: &Path| path.is_always_there() || all.iter().any(|held| held.covers(path));
        if parts.is_empty() || !(is_whole || asked.iter().all(may)) {
            let fields = &of.fields;
            return Err(ReadError::Denied(format!("{what} with {fields:?} is not declared")));
        }
        Ok(parts.into_iter().map(Some).collect())
    }

    /// Whether the kind can be read now.
    fn answers(&self, of: &Selection, what: &str) -> Result<(), ReadError> {
        if self.unavailable.contains(&of.kind.kind) {
            return Err(ReadError::Unavailable(format!("{what}: as the test wants it")));
        }
        if self.missing.contains(&(of.kind.group.clone(), of.kind.kind.clone())) {
            return Err(ReadError::UnknownKind);
        }
        Ok(())
    }
}

/// What an answer holds: what was asked for, or all that was declared.
fn wanted(of: &Selection, granted: &[Option<&Selection>]) -> Result<Fields, ReadError> {
    let declared = || granted.iter().flatten().flat_map(|part| &part.fields).collect();
    let paths: Vec<&String> =
        if of.fields.is_empty() { declared() } else { of.fields.iter().collect() };
    let is_whole = |part: Option<&Selection>| part.is_none_or(|part| part.fields.is_empty());
    if of.fields.is_empty() && granted.iter().copied().any(is_whole) {
        return Ok(Fields::whole());
    }
    let paths: Result<Vec<Path>, String> =
        paths.into_iter().map(|path| Path::parse(path)).collect();
    Ok(Fields::of(&paths.map_err(ReadError::Invalid)?))
}

/// An object as the contract answers it: cut down to the fields, in the version that was asked for.
pub(super) fn answer(object: &Value, wanted: &Fields, kind: &Kind) -> Value {
    let mut projected = wanted.project(object);
    if let Some(object) = projected.as_object_mut() {
        object.insert("apiVersion".to_owned(), kind.api_version().into());
    }
    projected
}

/// Namespace and name, by which lists are ordered.
fn place(object: &Value) -> (&str, &str) {
    (text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}

// === declarations ===

/// Whether a declared kind holds another.
pub(super) fn is_of(declared: &Kind, kind: &Kind) -> bool {
    let holds = |declared: &str, wanted: &str| declared == "*" || declared == wanted;
    holds(&declared.group, &kind.group)
        && (declared.group == "*" || holds(&declared.version, &kind.version))
        && holds(&declared.kind, &kind.kind)
}

/// Whether a declared namespace or name holds another.
pub(super) fn fits(declared: Option<&String>, wanted: Option<&String>) -> bool {
    declared.is_none() || declared == wanted
}

/// Whether a declared selection holds all that another can select, whatever its kind.
pub(super) fn covers(declared: &Selection, of: &Selection) -> bool {
    let asked = requirements(&of.labels);
    fits(declared.namespace.as_ref(), of.namespace.as_ref())
        && fits(declared.name.as_ref(), of.name.as_ref())
        && declared.matching.iter().all(|pair| pair.1 == "*" || of.matching.contains(pair))
        && requirements(&declared.labels).iter().all(|requirement| asked.contains(requirement))
}

/// Whether kind and names tell all.
pub(super) fn is_unconditional(declared: &Selection) -> bool {
    declared.labels.trim().is_empty() && declared.matching.iter().all(|(_, value)| value == "*")
}

/// Without the paths that only ask for an index.
pub(super) fn without_any(declared: &Selection) -> Selection {
    let mut declared = declared.clone();
    declared.matching.retain(|(_, value)| value != "*");
    declared
}

fn may_match(part: &Selection, path: &Path) -> bool {
    let is = |held: Path| held.covers(path);
    part.fields.is_empty()
        || part.fields.iter().any(|field| Path::parse(field).is_ok_and(is))
        || part.matching.iter().any(|(held, _)| Path::parse(held).as_ref() == Ok(path))
}

/// The parts of a label selector, at the commas that are not in parentheses, without spaces.
fn requirements(selector: &str) -> BTreeSet<String> {
    let mut depth = 0;
    let parts = selector.split(|character| {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        character == ',' && depth == 0
    });
    parts
        .map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|part| !part.is_empty())
        .collect()
}

// === impl Query ===

impl<'a> Query<'a> {
    /// Parses what a selection says.
    pub(super) fn new(of: &'a Selection) -> Result<Self, String> {
        let labels = LabelSelector::parse(&of.labels).map_err(|error| error.to_string())?;
        let parse = |(path, value): &'a (String, String)| Ok((Path::parse(path)?, value.as_str()));
        let matching: Result<Vec<(Path, &str)>, String> = of.matching.iter().map(parse).collect();
        Ok(Self { of, labels, matching: matching? })
    }

    /// Whether an object is in the selection. Every version of a kind shows the same objects.
    pub(super) fn matches(&self, object: &Value) -> bool {
        let identity = Identity::of(object);
        let label = |key: &str| object.pointer("/metadata/labels")?.get(key)?.as_str();
        identity.group == self.of.kind.group
            && identity.kind == self.of.kind.kind
            && self.of.namespace.as_ref().is_none_or(|wanted| identity.namespace == *wanted)
            && self.of.name.as_ref().is_none_or(|wanted| identity.name == *wanted)
            && self.labels.matches_by(label)
            && self.matching.iter().all(|(path, value)| path.holds(object, value))
    }
}
