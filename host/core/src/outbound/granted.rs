//! The grants of a Processor: its `spec.egress`, parsed.

use std::sync::Arc;

use super::{Egress, Origin, Outbound, Target};
use crate::{contract::Kind, labels::LabelSelector};

/// The grants of a Processor for a version of a processor, and the client that sends.
#[derive(Default)]
pub(crate) struct Granted {
    /// The Processor, as `namespace/name`.
    pub(super) processor: Arc<str>,
    pub(super) egress: Vec<GrantedOrigin>,
    pub(super) client: Option<Arc<dyn Outbound>>,
}

/// An entry of `spec.egress`, parsed.
pub(super) struct GrantedOrigin {
    origin: Origin,
    credentials: Vec<Holder>,
    pub(super) egress: Arc<Egress>,
}

/// Objects that may hold credentials.
struct Holder {
    group: String,
    kind: String,
    labels: LabelSelector,
}

// === impl Granted ===

impl Granted {
    /// Parses the grants. An entry, or a selector of labels, that does not parse grants nothing: the
    /// host refuses the Processor for it.
    pub(crate) fn new(
        processor: Arc<str>,
        egress: &[Arc<Egress>],
        client: Option<Arc<dyn Outbound>>,
    ) -> Self {
        let parsed = egress.iter().filter_map(|egress| {
            let origin = egress.origin.parse().ok()?;
            let holders = egress.credentials.iter().filter_map(|of| {
                let labels = LabelSelector::parse(&of.labels).ok()?;
                Some(Holder { group: of.group.clone(), kind: of.kind.clone(), labels })
            });
            Some(GrantedOrigin {
                origin,
                credentials: holders.collect(),
                egress: Arc::clone(egress),
            })
        });
        Self { processor, egress: parsed.collect(), client }
    }

    /// Returns the entries that grant calls to a target. Fails if there are none.
    pub(super) fn to(&self, target: &Target) -> Result<Vec<&GrantedOrigin>, String> {
        let found: Vec<_> = self.of(target).collect();
        if !found.is_empty() {
            return Ok(found);
        }
        let origins = self.egress.iter().map(|of| format!("`{}`", of.origin));
        let accepted = listed(origins);
        Err(format!("the Processor does not grant calls to `{}`; {accepted}", target.origin()))
    }

    /// Returns the entries that grant calls to a target.
    pub(super) fn of(&self, target: &Target) -> impl Iterator<Item = &GrantedOrigin> {
        self.egress.iter().filter(|of| of.origin.holds(target))
    }
}

// === impl GrantedOrigin ===

impl GrantedOrigin {
    /// Returns whether some objects of a kind may hold credentials.
    pub(super) fn names(&self, kind: &Kind) -> bool {
        self.credentials.iter().any(|of| of.is_of(kind))
    }

    /// Returns whether an object of a kind with these labels may hold credentials.
    pub(super) fn holds<'a>(&self, kind: &Kind, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.credentials.iter().any(|of| of.is_of(kind) && of.labels.matches(&label))
    }
}

// === impl Holder ===

impl Holder {
    fn is_of(&self, kind: &Kind) -> bool {
        kind.cluster.is_empty() && self.group == kind.group && self.kind == kind.kind
    }
}

/// Describes the credentials that entries grant.
pub(super) fn credentials(of: &[&GrantedOrigin]) -> String {
    let granted = of.iter().flat_map(|of| &of.egress.credentials).map(|of| {
        let group = if of.group.is_empty() { String::new() } else { format!(" of {}", of.group) };
        let labels = if of.labels.is_empty() {
            String::new()
        } else {
            format!(" with labels `{}`", of.labels)
        };
        format!("{}{group}{labels}", of.kind)
    });
    listed(granted)
}

/// Names the first few of what is granted.
fn listed(all: impl Iterator<Item = String>) -> String {
    /// A longer list is of no use in a message.
    const MAX_LISTED: usize = 10;
    let all: Vec<String> = all.take(MAX_LISTED).collect();
    if all.is_empty() {
        "`spec.egress` grants none".to_owned()
    } else {
        format!("`spec.egress` grants: {}", all.join("; "))
    }
}
