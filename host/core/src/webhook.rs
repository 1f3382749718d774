//! The rules around the hooks of a processor: what a component is shown of an object, and what its
//! answer may change.
//!
//! Metadata and managed fields are the host's; labels and annotations are the component's, and in
//! an admission finalizers and owner references too. An answer that breaks a rule is an error and
//! never an object: whoever serves the hook says so.

mod admission;
mod conversion;
mod served;

pub use admission::{Decision, decide, looks_at};
pub use conversion::{Given, Target, batches, shown};
pub use served::serve_converted;

use crate::contract::{Kind, ObjectRef};

/// Returns the apiVersion of a kind as an object has it.
fn api_version(kind: &Kind) -> String {
    if kind.group.is_empty() {
        kind.version.clone()
    } else {
        format!("{}/{}", kind.group, kind.version)
    }
}

/// Returns how messages name an object.
fn named(of: &ObjectRef) -> String {
    match &of.namespace {
        Some(namespace) => format!("{} `{namespace}/{}`", of.kind.kind, of.name),
        None => format!("{} `{}`", of.kind.kind, of.name),
    }
}
