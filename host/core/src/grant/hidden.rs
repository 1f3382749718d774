//! The fields of credentials. A processor that could select objects by them would learn their
//! values: by comparing them with one guess after another.

use std::sync::Arc;

use super::{Invalid, OutboundRule, declared::matches_kind, malformed, numbered};
use crate::{
    contract::{Description, Kind, Selection},
    path::{Fields, Path},
};

/// The fields that hold credentials, or a copy of one, by kind.
#[derive(Debug, Default)]
pub(super) struct Hidden(Vec<(Arc<Kind>, Path)>);

// === impl Hidden ===

impl Hidden {
    /// `copy`: the field of each kind that may hold a copy.
    pub(super) fn of(rules: &[OutboundRule], copy: &str) -> Self {
        let mut all = Vec::new();
        for held in rules.iter().flat_map(|rule| &rule.credentials) {
            let copy = copy.parse().ok();
            let paths = held.fields.paths().cloned().chain(copy);
            all.extend(paths.map(|path| (Arc::clone(&held.of.kind), path)));
        }
        Self(all)
    }

    /// Returns whether objects of a kind, which may be a declared wildcard, hold credentials.
    pub(super) fn is_in(&self, kind: &Kind) -> bool {
        self.of_kind(kind).next().is_some()
    }

    /// Returns the field of a credential that the steps `[key=value]` of a path compare, if any.
    pub(super) fn compared(&self, kind: &Kind, path: &Path) -> Option<&Path> {
        self.of_kind(kind).find(|hidden| path.compared().any(|by| by.meets(hidden)))
    }

    /// Returns the field of a credential by which a condition on a path would select, if any.
    pub(super) fn selected(&self, kind: &Kind, path: &Path) -> Option<&Path> {
        let found = self.of_kind(kind).find(|hidden| path.meets(hidden));
        found.or_else(|| self.compared(kind, path))
    }

    /// Refuses declared selections by credentials.
    pub(super) fn check(&self, description: &Description) -> Result<(), Invalid> {
        let (reconcilers, reads, writes) = description.declared();
        let reconciled = numbered("reconcilers", reconcilers);
        let reconciled = reconciled.map(|(place, one)| (format!("{place}.of"), &one.of));
        let written = numbered("writes", writes);
        let written = written.map(|(place, rule)| (format!("{place}.of"), &rule.of));
        for (place, of) in reconciled.chain(numbered("reads", reads)).chain(written) {
            self.check_selection(&place, of)?;
        }
        for (place, rule) in numbered("outbound", &description.outbound) {
            for (place, of) in numbered(&format!("{place}.credentials"), &rule.credentials) {
                self.check_selection(&place, of)?;
            }
        }
        Ok(())
    }

    fn check_selection(&self, place: &str, of: &Selection) -> Result<(), Invalid> {
        let refused = |part: &str, value: &str, hidden: &Path| {
            let reason = format!(
                "the processor would learn the credential `{hidden}` by comparing it with guesses: other fields are accepted"
            );
            malformed(format!("{place}.{part}"), value, &reason)
        };
        for (text, _) in &of.matching {
            let path = text.parse::<Path>().ok();
            if let Some(hidden) = path.and_then(|path| self.selected(&of.kind, &path)) {
                return Err(refused("matching", text, hidden));
            }
        }
        // Texts that are no paths have been refused.
        let Ok(fields) = Fields::parse(&of.fields) else { return Ok(()) };
        let found = fields.paths().find_map(|path| Some((path, self.compared(&of.kind, path)?)));
        match found {
            Some((path, hidden)) => Err(refused("fields", &path.to_string(), hidden)),
            None => Ok(()),
        }
    }

    fn of_kind(&self, kind: &Kind) -> impl Iterator<Item = &Path> {
        let of_kind = self.0.iter().filter(|(held, _)| matches_any_version(kind, held));
        of_kind.map(|(_, path)| path)
    }
}

/// Returns whether a declared kind, in any version, may be this one.
fn matches_any_version(declared: &Kind, kind: &Kind) -> bool {
    matches_kind(declared, &Kind { version: declared.version.clone(), ..kind.clone() })
}
