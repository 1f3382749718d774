//! The writes that a processor's description declares, and the check of wanted writes.
//!
//! A description is checked once, when the processor is loaded ([`Grant::new`]); from then on every
//! write of an outcome is checked against the grant. A check takes the wanted write and returns the
//! rules that allow it, or [`Denied`], whose message names the accepted declarations. Reads are
//! checked by the module `reads`.
//!
//! Pure: no I/O, no clock. Does not cut the declaration down to the rights of a `ServiceAccount`.

mod declared;
pub mod granted;
pub mod rights;
pub mod role;
#[cfg(test)]
mod tests;
pub mod text;
mod within;

pub use declared::Declared;
pub use text::{accepted, display_selection, verb_names};
pub use within::Outside;

use std::{
    fmt::{self, Display},
    sync::Arc,
};

use serde_json::Value;

use self::{
    declared::{ANY, matches_kind},
    text::display_verbs,
    within::outside,
};
use crate::{
    contract::{
        Description, Kind, ObjectRef, Selection, Verbs, WriteRule, bounds::text::is_finalizer,
        display_kind, display_ref,
    },
    labels::LabelSelector,
    path::Path,
};

/// The parsed declarations of a description.
#[derive(Debug)]
pub struct Grant {
    reconcilers: Vec<DeclaredReconciler>,
    reads: Vec<Declared>,
    writes: Vec<Arc<Rule>>,
}

/// The objects of one reconciler.
#[derive(Debug)]
pub struct DeclaredReconciler {
    pub name: String,
    /// The objects.
    pub of: Declared,
    /// The finalizers that the reconciler may hold on these objects.
    pub finalizers: Vec<String>,
}

#[derive(Debug)]
struct Rule {
    of: Declared,
    verbs: Verbs,
    /// The fields that apply and patch may write; empty: all fields.
    fields: Vec<Path>,
}

/// The rules that allow a write. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Writable {
    rules: Vec<Arc<Rule>>,
}

/// A description that cannot be granted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// A path, selector or name that does not parse.
    #[error("`{place}`: `{value}`: {reason}")]
    Malformed {
        /// The place in the description: `reads[2].labels`.
        place: String,
        /// The value at that place.
        value: String,
        /// The reason why the value is malformed.
        reason: String,
    },
    /// A cluster other than the home cluster, which a later version of the host will support.
    #[error(
        "`{place}`: cluster `{cluster}`: only the home cluster \"\" is supported by this version of the host"
    )]
    OtherCluster {
        /// The place in the description.
        place: String,
        /// The cluster's name.
        cluster: String,
    },
}

/// A write or event that the description does not declare.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} is not declared; {accepted}")]
pub struct Denied {
    /// The write or object that was asked for, in words.
    wanted: String,
    /// The declarations that would have been accepted, in words.
    accepted: String,
    /// The verbs that are not declared; `CREATE` for the object of an event.
    missing: Verbs,
    /// The kind of the object that was asked for.
    pub kind: Arc<Kind>,
}

// === impl Denied ===

impl Denied {
    /// Returns the first verb that is not declared, as a declaration names it.
    pub fn verb(&self) -> &'static str {
        verb_names(self.missing).next().unwrap_or_default()
    }
}

// === impl Grant ===

impl Grant {
    /// Parses the declarations of a description.
    pub fn new(description: &Description) -> Result<Self, Invalid> {
        let mut reconcilers = Vec::new();
        for (index, reconciler) in description.reconcilers.iter().enumerate() {
            let place = format!("reconcilers[{index}]");
            if reconcilers.iter().any(|known: &DeclaredReconciler| known.name == reconciler.name) {
                return Err(malformed(
                    format!("{place}.name"),
                    &reconciler.name,
                    "another reconciler has this name",
                ));
            }
            let of = Declared::parse(&format!("{place}.of"), &reconciler.of)?;
            if of.kind.kind == ANY || of.kind.group == ANY {
                return Err(malformed(
                    format!("{place}.of.kind"),
                    &display_kind(&of.kind),
                    "objects of one kind are reconciled, not of any",
                ));
            }
            if let Some(bad) = reconciler.finalizers.iter().find(|name| !is_finalizer(name)) {
                return Err(malformed(
                    format!("{place}.finalizers"),
                    bad,
                    "a finalizer is named `<domain>/<name>`",
                ));
            }
            reconcilers.push(DeclaredReconciler {
                name: reconciler.name.clone(),
                of,
                finalizers: reconciler.finalizers.clone(),
            });
        }
        let reads = numbered("reads", &description.reads)
            .map(|(place, of)| Declared::parse(&place, of))
            .collect::<Result<_, _>>()?;
        let writes = numbered("writes", &description.writes)
            .map(|(place, rule)| Rule::parse(&place, rule).map(Arc::new))
            .collect::<Result<_, _>>()?;
        Ok(Self { reconcilers, reads, writes })
    }

    /// Returns the reconciler of that name, if any.
    pub fn reconciler(&self, name: &str) -> Option<&DeclaredReconciler> {
        self.reconcilers.iter().find(|reconciler| reconciler.name == name)
    }

    /// Returns the rules by which one object may be written with all of these verbs; each verb may
    /// come from another rule.
    pub fn may_write(&self, verbs: Verbs, wanted: &ObjectRef) -> Result<Writable, Denied> {
        let rules = self
            .writes
            .iter()
            .filter(|rule| rule.of.could_hold(wanted) && rule.verbs.intersects(verbs))
            .cloned()
            .collect();
        self.write(rules, verbs, || display_ref(wanted), &wanted.kind)
    }

    /// Returns the rules by which all objects of a selection may be deleted.
    pub fn may_prune(&self, wanted: &Selection) -> Result<Writable, Denied> {
        let labels = LabelSelector::parse(&wanted.labels);
        let covers =
            |rule: &&Arc<Rule>| labels.as_ref().is_ok_and(|labels| rule.of.covers(wanted, labels));
        let rules = self.writes.iter().filter(covers);
        let rules = rules.filter(|rule| rule.verbs.contains(Verbs::DELETE)).cloned().collect();
        self.write(rules, Verbs::DELETE, || display_selection(wanted), &wanted.kind)
    }

    fn write(
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
        let known = self
            .readable()
            .chain(self.writes.iter().map(|rule| &rule.of))
            .any(|declared| declared.could_hold(wanted));
        if known {
            return Ok(());
        }
        let all = self
            .readable()
            .map(ToString::to_string)
            .chain(self.writes.iter().map(|rule| rule.of.to_string()));
        Err(Denied {
            wanted: display_ref(wanted),
            accepted: accepted("objects", all),
            missing: Verbs::CREATE,
            kind: Arc::clone(&wanted.kind),
        })
    }

    /// Returns whether objects of a kind are declared at all, to be read, reconciled or written.
    pub fn names(&self, kind: &Kind) -> bool {
        let writes = self.writes.iter().map(|rule| &rule.of);
        self.readable().chain(writes).any(|declared| declared.is_of(kind))
    }

    fn readable(&self) -> impl Iterator<Item = &Declared> {
        self.reconcilers.iter().map(|reconciler| &reconciler.of).chain(&self.reads)
    }
}

// === impl Writable ===

impl Writable {
    /// Returns the first field of a manifest that no rule with this verb allows, if any.
    pub fn outside(&self, verb: Verbs, fields: &Value) -> Option<Outside> {
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
    fn parse(place: &str, rule: &WriteRule) -> Result<Self, Invalid> {
        let field = |text: &String| {
            text.parse().map_err(|error: crate::path::Invalid| {
                malformed(format!("{place}.fields"), text, &error.to_string())
            })
        };
        Ok(Self {
            of: Declared::parse(&format!("{place}.of"), &rule.of)?,
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

fn numbered<'a, T>(list: &'a str, items: &'a [T]) -> impl Iterator<Item = (String, &'a T)> {
    items.iter().enumerate().map(move |(index, item)| (format!("{list}[{index}]"), item))
}

fn malformed(place: String, value: &str, reason: &str) -> Invalid {
    Invalid::Malformed { place, value: value.to_owned(), reason: reason.to_owned() }
}
