//! Conversions between the types that are generated from wit/ and those of the host.

use crate::bindings::{
    admitter::exports::mortise::host::admission,
    converter::exports::mortise::host::conversion,
    exports::mortise::host::reconciliation as guest,
    mortise::host::{cluster, log, outbound, types},
};

mortise_core::contract_conversions!();
mortise_core::hook_conversions!();

// A kind alone is one of the home cluster; what it is part of names the cluster.

impl From<types::Kind> for Kind {
    fn from(types::Kind { group, version, kind }: types::Kind) -> Self {
        Self::home(group, version, kind)
    }
}

impl From<Kind> for types::Kind {
    fn from(Kind { cluster: _, group, version, kind }: Kind) -> Self {
        Self { group, version, kind }
    }
}

impl From<Selection> for types::Selection {
    fn from(Selection { kind, namespace, name, labels, matching, fields }: Selection) -> Self {
        let (cluster, fields) = (kind.cluster.to_string(), fields.to_vec());
        let kind = Kind::clone(&kind).into();
        Self { cluster, kind, namespace, name, labels, matching, fields }
    }
}
