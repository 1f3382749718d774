//! The writes that a description declares, and the check of wanted writes.
//!
//! A check takes the wanted write and returns the rules that allow it, or [`Denied`], whose message
//! names the accepted declarations.

use std::{
    fmt::{self, Display},
    sync::Arc,
};

use serde_json::Value;

use super::{
    Declared, Grant, Invalid, Readable, accepted,
    declared::matches_kind,
    display_selection, malformed,
    text::display_verbs,
    verb_names,
    within::{Undeclared, outside},
};
use crate::{
    contract::{Kind, ObjectRef, Selection, Verbs, WriteRule, display_ref},
    labels::LabelSelector,
    path::{Fields, Path},
    store::{Scope, Wanted},
};

/// The fields of a written object that the host itself reads.
const HOST_FIELDS: [&str; 3] =
    ["metadata.labels", "metadata.ownerReferences", "metadata.finalizers"];

/// A rule of the declared writes.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) of: Declared,
    pub(super) scope: Scope,
    /// The fields and indexes that the host itself needs of these objects.
    pub(super) wanted: Wanted,
    verbs: Verbs,
    /// The fields that apply and patch may write; empty: all fields.
    fields: Vec<Path>,
}

/// The rules that allow a write. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Writable {
    rules: Vec<Arc<Rule>>,
}

/// A write or event that the description does not declare.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} is not declared; {accepted}")]
pub struct Denied {
    /// The write or object that was asked for, in words.
    pub(super) wanted: String,
    /// The declarations that would have been accepted, in words.
    pub(super) accepted: String,
    /// The verbs that are not declared; `CREATE` for the object of an event, none for a read.
    pub(super) missing: Verbs,
    /// The kind of the object that was asked for.
    pub kind: Arc<Kind>,
}

// === impl Grant ===

impl Grant {
    /// Returns the rules by which one object may be written with all of these verbs; each verb may
    /// come from another rule.
    pub fn may_write(&self, verbs: Verbs, wanted: &ObjectRef) -> Result<Writable, Denied> {
        let rules = self
            .writes
            .iter()
            .filter(|rule| rule.of.could_hold(wanted) && rule.verbs.intersects(verbs))
            .cloned()
            .collect();
        self.with_verbs(rules, verbs, || display_ref(wanted), &wanted.kind)
    }

    /// Returns the rules by which all objects of a selection may be deleted.
    pub fn may_prune(&self, wanted: &Selection) -> Result<Writable, Denied> {
        let labels = LabelSelector::parse(&wanted.labels);
        let covers =
            |rule: &&Arc<Rule>| labels.as_ref().is_ok_and(|labels| rule.of.covers(wanted, labels));
        let rules = self.writes.iter().filter(covers);
        let rules = rules.filter(|rule| rule.verbs.contains(Verbs::DELETE)).cloned().collect();
        self.with_verbs(rules, Verbs::DELETE, || display_selection(wanted), &wanted.kind)
    }

    fn with_verbs(
        &self,
        rules: Vec<Arc<Rule>>,
        verbs: Verbs,
        wanted: impl Fn() -> String,
        kind: &Kind,
    ) -> Result<Writable, Denied> {
        let held = rules.iter().fold(Verbs::empty(), |held, rule| held | rule.verbs);
        if !held.contains(verbs) {
            let of_kind = self.writes.iter().filter(|rule| matches_kind(&rule.of.kind, kind));
            let missing = verbs ^ (verbs & held);
            return Err(Denied {
                wanted: format!("{} of {}", display_verbs(missing), wanted()),
                accepted: accepted("writes of that kind", of_kind.map(ToString::to_string)),
                missing,
                kind: kind.clone().into(),
            });
        }
        Ok(Writable { rules })
    }

    /// Fails unless the processor declares to reconcile, read or write the object, so that it may
    /// put an event on it.
    pub fn may_mention(&self, wanted: &ObjectRef) -> Result<(), Denied> {
        if self.declared().any(|declared| declared.could_hold(wanted)) {
            return Ok(());
        }
        let all = self.declared().map(ToString::to_string);
        Err(Denied {
            wanted: display_ref(wanted),
            accepted: accepted("objects", all),
            missing: Verbs::CREATE,
            kind: Arc::clone(&wanted.kind),
        })
    }
}

// === impl Writable ===

impl Writable {
    /// Returns the first field of a manifest that no rule with this verb allows, if any.
    pub fn first_undeclared(&self, verb: Verbs, fields: &Value) -> Option<Undeclared> {
        if self.is_unlimited(verb) {
            return None;
        }
        outside(fields, self.with(verb).flat_map(|rule| &rule.fields))
    }

    /// Returns whether a rule with this verb allows every field.
    pub fn is_unlimited(&self, verb: Verbs) -> bool {
        self.with(verb).any(|rule| rule.fields.is_empty())
    }

    /// Returns whether a rule with any verb allows a path.
    pub fn allows(&self, path: &Path) -> bool {
        self.rules.iter().any(|rule| {
            rule.fields.is_empty() || rule.fields.iter().any(|field| field.covers(path))
        })
    }

    /// Returns the paths that may be written, for messages.
    pub fn accepted_fields(&self) -> String {
        accepted(
            "fields",
            self.rules.iter().flat_map(|rule| &rule.fields).map(|path| format!("`{path}`")),
        )
    }

    /// Returns whether a rule with this verb has no condition on labels and fields.
    pub fn unconditional(&self, verb: Verbs) -> bool {
        self.with(verb).any(|rule| rule.of.unconditional())
    }

    /// Returns whether a rule with this verb holds for an object with these labels and fields.
    pub fn holds(&self, verb: Verbs, object: &Value) -> bool {
        self.with(verb).any(|rule| rule.of.holds(object))
    }

    /// Returns the declarations, for messages.
    pub fn accepted(&self) -> String {
        accepted("writes", self.rules.iter().map(ToString::to_string))
    }

    fn with(&self, verb: Verbs) -> impl Iterator<Item = &Rule> {
        self.rules.iter().map(AsRef::as_ref).filter(move |rule| rule.verbs.contains(verb))
    }
}

// === impl Rule ===

impl Rule {
    pub(super) fn parse(place: &str, rule: &WriteRule) -> Result<Self, Invalid> {
        let field = |text: &String| {
            text.parse().map_err(|error: crate::path::Invalid| {
                malformed(format!("{place}.fields"), text, &error.to_string())
            })
        };
        let Readable { of, scope, .. } = Readable::parse(&format!("{place}.of"), &rule.of)?;
        let fields = Fields::of(HOST_FIELDS.iter().filter_map(|path| path.parse().ok()));
        let fields = fields.union(&Fields::of(of.indexed.iter().cloned()));
        Ok(Self {
            scope,
            wanted: Wanted { fields, matching: of.indexed.clone(), written: true },
            of,
            verbs: rule.verbs,
            fields: rule.fields.iter().map(field).collect::<Result<_, _>>()?,
        })
    }
}

impl Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} of {}", display_verbs(self.verbs), self.of)
    }
}

// === impl Denied ===

impl Denied {
    /// Returns the first verb that is not declared, as a declaration names it.
    pub fn verb(&self) -> &'static str {
        verb_names(self.missing).next().unwrap_or("get")
    }
}
