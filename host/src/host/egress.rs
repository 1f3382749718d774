//! The differences between what a processor declares to call and what its Processor grants.

use std::{collections::BTreeSet, sync::Arc};

use mortise_core::{
    contract::OutboundRule,
    outbound::{Egress, Origin},
};

use super::LimitMet;
use crate::{cluster::remote::listed, reason::Reason};

/// An origin, and the kinds of the objects that may hold credentials for it.
struct Place {
    origin: Origin,
    /// In the form that `kubectl` accepts: `Secret`, `Widget.example.com`.
    kinds: Vec<String>,
}

/// Returns the declared origins and credentials that are not granted, for which calls are denied,
/// and the granted ones that are not declared.
pub(super) fn gaps(declared: &[OutboundRule], granted: &[Arc<Egress>]) -> Vec<LimitMet> {
    let declared: Vec<Place> = declared.iter().filter_map(Place::declared).collect();
    let granted: Vec<Place> = granted.iter().filter_map(|of| Place::granted(of)).collect();
    let mut gaps = Vec::new();
    for of in &declared {
        let origin = &of.origin;
        let message = match of.lacks(&granted) {
            Lack::Nothing => continue,
            Lack::Origin(known) => format!(
                "the processor declares calls to `{origin}`, which are denied: spec.egress grants {}",
                listed(&known)
            ),
            Lack::Kinds { lacking, known } => format!(
                "the processor declares credentials for `{origin}` that spec.egress does not grant, so calls with them are denied: {}; its `credentials` grant {}",
                listed(&lacking),
                listed(&known)
            ),
        };
        gaps.push(LimitMet { reason: Reason::EgressNotGranted, message });
    }
    for (at, of) in granted.iter().enumerate() {
        let origin = &of.origin;
        let message = match of.lacks(&declared) {
            Lack::Nothing => continue,
            Lack::Origin(known) => format!(
                "spec.egress[{at}].origin: the processor does not declare calls to `{origin}`; it declares {}",
                listed(&known)
            ),
            Lack::Kinds { lacking, known } => format!(
                "spec.egress[{at}].credentials: the processor declares none for `{origin}` of the kinds {}; it declares {}",
                listed(&lacking),
                listed(&known)
            ),
        };
        gaps.push(LimitMet { reason: Reason::EgressNotDeclared, message });
    }
    gaps
}

/// The part of a place that others do not have.
enum Lack {
    Nothing,
    /// The whole origin. The origins of the others.
    Origin(Vec<Origin>),
    /// Some kinds of credentials. `known`: those of the others.
    Kinds {
        lacking: Vec<String>,
        known: Vec<String>,
    },
}

// === impl Place ===

impl Place {
    fn declared(of: &OutboundRule) -> Option<Self> {
        let kinds = of.credentials.iter().map(|of| name(&of.kind.group, &of.kind.kind));
        Self::new(&of.origin, kinds)
    }

    fn granted(of: &Egress) -> Option<Self> {
        Self::new(&of.origin, of.credentials.iter().map(|of| name(&of.group, &of.kind)))
    }

    /// Origins have been checked with the description and the spec.
    fn new(origin: &str, kinds: impl Iterator<Item = String>) -> Option<Self> {
        Some(Self { origin: origin.parse().ok()?, kinds: kinds.collect() })
    }

    fn lacks(&self, others: &[Self]) -> Lack {
        let meets =
            |other: &&Self| self.origin.covers(&other.origin) || other.origin.covers(&self.origin);
        let met: Vec<&Self> = others.iter().filter(meets).collect();
        if met.is_empty() {
            return Lack::Origin(others.iter().map(|other| other.origin.clone()).collect());
        }
        let is_lacking = |kind: &&String| !met.iter().any(|other| other.kinds.contains(*kind));
        let lacking: Vec<String> = self.kinds.iter().filter(is_lacking).cloned().collect();
        if lacking.is_empty() {
            return Lack::Nothing;
        }
        let known: BTreeSet<&String> = met.iter().flat_map(|other| &other.kinds).collect();
        Lack::Kinds { lacking, known: known.into_iter().cloned().collect() }
    }
}

fn name(group: &str, kind: &str) -> String {
    if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") }
}

#[cfg(test)]
mod tests {
    use mortise_core::{contract::Methods, fixture::all, outbound::GrantedCredential};

    use super::*;

    fn rule(origin: &str, credentials: &[&str]) -> OutboundRule {
        let of = |name: &&str| all(name);
        let credentials = credentials.iter().map(of).collect();
        OutboundRule { origin: origin.to_owned(), methods: Methods::all(), credentials, pause: 0 }
    }

    fn grant(origin: &str, credentials: &[&str]) -> Arc<Egress> {
        let of = |kind: &&str| GrantedCredential {
            group: "g".to_owned(),
            kind: (*kind).to_owned(),
            labels: String::new(),
        };
        Arc::new(Egress {
            origin: origin.to_owned(),
            credentials: credentials.iter().map(of).collect(),
            rate: None,
            ca_bundle: None,
            private: false,
            connect: None,
        })
    }

    #[test]
    fn what_is_only_declared_or_only_granted_is_told_by_origin_and_field() {
        let (wide, narrow) = ("https://*.example.com", "https://eu.example.com");
        let messages = |declared: &[OutboundRule], granted: &[Arc<Egress>]| {
            let gaps = gaps(declared, granted).into_iter();
            gaps.map(|met| format!("{}: {}", met.reason, met.message)).collect::<Vec<_>>()
        };
        assert!(messages(&[], &[]).is_empty());
        for (declared, granted) in [(wide, narrow), (narrow, wide), (wide, wide)] {
            let found = messages(&[rule(declared, &["A"])], &[grant(granted, &["A"])]);
            assert!(found.is_empty(), "{found:?}");
        }
        let other = "https://other.example.com:8443";
        let cases = [
            (
                vec![rule(wide, &[])],
                vec![],
                vec![
                    "EgressNotGranted: the processor declares calls to `https://*.example.com`, which are denied: spec.egress grants none",
                ],
            ),
            (
                vec![rule(wide, &[])],
                vec![grant(narrow, &[]), grant(other, &[])],
                vec![
                    "EgressNotDeclared: spec.egress[1].origin: the processor does not declare calls to `https://other.example.com:8443`; it declares `https://*.example.com`",
                ],
            ),
            (
                vec![rule(wide, &["A", "B"])],
                vec![grant(wide, &["B", "C"])],
                vec![
                    "EgressNotGranted: the processor declares credentials for `https://*.example.com` that spec.egress does not grant, so calls with them are denied: `A.g`; its `credentials` grant `B.g`, `C.g`",
                    "EgressNotDeclared: spec.egress[0].credentials: the processor declares none for `https://*.example.com` of the kinds `C.g`; it declares `A.g`, `B.g`",
                ],
            ),
        ];
        for (declared, granted, expected) in cases {
            assert_eq!(messages(&declared, &granted), expected);
        }
    }
}
