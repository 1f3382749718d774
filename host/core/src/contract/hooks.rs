//! The types of wit/conversion.wit and wit/admission.wit, and the rules of hooks: the parts of an
//! object that a component sees, and those that its answer may change.
//!
//! A component may change labels and annotations, and in an admission finalizers and owner
//! references too; the host owns all other metadata. An answer that breaks a rule is an error,
//! which the server of the hook reports.

mod admission;
mod conversion;
mod round_trip;
mod served;

pub use admission::{Decision, account_of_deciding, account_of_matching, decide, matches};
pub use conversion::{Given, Target, batches, shown};
pub use round_trip::first_difference;
pub use served::serve_converted;

use super::{ObjectRef, Selection, display_kind_in_any_version};

/// The exports of a component beside `reconciliation`: the kinds that it converts, and its hooks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hooks {
    pub conversions: Vec<Converted>,
    pub admission: Vec<Hook>,
}

/// A kind whose objects are converted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converted {
    pub group: String,
    pub kind: String,
    pub versions: Vec<String>,
}

/// The input of a conversion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversion {
    pub group: String,
    pub kind: String,
    pub to: String,
    /// The JSON of each object.
    pub objects: Vec<String>,
    pub config: String,
}

/// A request that changes an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
}

/// The failure policy of a hook: the decision about a request when the hook fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    Refuse,
    LetPass,
}

/// A hook of admission: the requests that it reviews before they are carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    pub name: String,
    pub of: Selection,
    pub operations: Vec<Operation>,
    pub changes: bool,
    pub on_failure: Otherwise,
    /// In milliseconds.
    pub timeout: u64,
}

/// The input of an admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Review {
    pub hook: String,
    pub operation: Operation,
    pub ref_: ObjectRef,
    /// The JSON of the object.
    pub object: Option<String>,
    /// The JSON of the object as it is stored.
    pub old: Option<String>,
    pub user: String,
    pub groups: Vec<String>,
    pub dry_run: bool,
    pub config: String,
}

/// A refusal of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    pub code: u16,
    pub message: String,
}

/// A hook's verdict on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    Deny(Denial),
    /// The JSON of the object that is stored instead.
    Change(String),
}

/// The result of an admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub verdict: Verdict,
    pub warnings: Vec<String>,
}

// === impl Converted ===

impl Converted {
    /// Formats the kind in any version.
    fn display(&self) -> String {
        display_kind_in_any_version(&self.group, &self.kind)
    }
}

// === impl Hooks ===

impl Hooks {
    /// Returns the kind of this name, if its objects are converted.
    pub fn converted(&self, group: &str, kind: &str) -> Option<&Converted> {
        self.conversions.iter().find(|one| one.group == group && one.kind == kind)
    }

    pub fn hook(&self, name: &str) -> Option<&Hook> {
        self.admission.iter().find(|hook| hook.name == name)
    }

    /// Returns whether there are neither conversions nor hooks.
    pub fn is_empty(&self) -> bool {
        self.conversions.is_empty() && self.admission.is_empty()
    }
}
