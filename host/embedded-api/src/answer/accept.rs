//! The header `Accept`: the encoding, and whether objects are shown whole, as a table, or as
//! metadata alone.

use super::BODIES;
use crate::Failure;

/// The form in which objects are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Form {
    #[default]
    Whole,
    Table,
    Metadata,
    MetadataList,
}

/// The negotiated encoding and form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Accept {
    pub(crate) yaml: bool,
    pub(crate) form: Form,
    /// True for a table or metadata in `meta.k8s.io/v1beta1`.
    pub(crate) beta: bool,
}

// === impl Accept ===

impl Accept {
    /// Returns the encoding and form of the supported media type with the highest quality; no
    /// header accepts everything. Protobuf is not supported: clients that request it accept JSON,
    /// too.
    pub(crate) fn negotiate(header: Option<&str>) -> Result<Self, Failure> {
        let header = header.map(str::trim).filter(|header| !header.is_empty()).unwrap_or("*/*");
        let mut clauses: Vec<(f32, &str)> =
            header.split(',').map(|clause| (quality(clause), clause)).collect();
        clauses.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        clauses
            .into_iter()
            .find_map(|(_, clause)| Self::of_clause(clause))
            .ok_or_else(|| Failure::not_acceptable(BODIES))
    }

    fn of_clause(clause: &str) -> Option<Self> {
        let mut parts = clause.split(';').map(str::trim);
        let yaml = match parts.next()? {
            "application/json" | "application/*" | "*/*" => false,
            "application/yaml" => true,
            _ => return None,
        };
        let (mut kind, mut group, mut version) = ("", "", "");
        for parameter in parts {
            match parameter.split_once('=') {
                Some(("as", value)) => kind = value,
                Some(("g", value)) => group = value,
                Some(("v", value)) => version = value,
                _ => {}
            }
        }
        let known = group == "meta.k8s.io" && matches!(version, "v1" | "v1beta1");
        let form = match kind {
            "" => Form::Whole,
            "Table" if known => Form::Table,
            "PartialObjectMetadata" if known => Form::Metadata,
            "PartialObjectMetadataList" if known => Form::MetadataList,
            _ => return None,
        };
        let beta = form != Form::Whole && version == "v1beta1";
        Some(Self { yaml, form, beta })
    }
}

fn quality(clause: &str) -> f32 {
    let mut parameters =
        clause.split(';').skip(1).filter_map(|parameter| parameter.trim().strip_prefix("q="));
    parameters.find_map(|value| value.parse().ok()).unwrap_or(1.0)
}
