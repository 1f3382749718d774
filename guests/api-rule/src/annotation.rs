//! The annotations of an APIRule by which its versions and its migration are told apart.

use crate::{
    api::{ApiRule, v1beta1},
    json,
};

/// The version in which the object was written.
pub(crate) const ORIGINAL_VERSION: &str = "gateway.kyma-project.io/original-version";
/// The spec of an object that was written in v1beta1, as JSON.
pub(crate) const V1BETA1_SPEC: &str = "gateway.kyma-project.io/v1beta1-spec";
/// The rules of an object that was not written in v1beta1, as JSON; former versions of the original
/// set it.
pub(crate) const V2ALPHA1_RULES: &str = "gateway.kyma-project.io/v2alpha1-rules";
/// The spec of an object that has none in v1beta1, as JSON. Only objects in v1beta1 carry it, so
/// that nothing is lost when they are written back.
pub(crate) const V2ALPHA1_SPEC: &str = "gateway.kyma-project.io/v2alpha1-spec";
/// The step of the migration that was done last.
pub(crate) const MIGRATION_STEP: &str = "gateway.kyma-project.io/migration-step";

/// The value of [`ORIGINAL_VERSION`] of an object that was written in v1beta1.
pub(crate) const V1BETA1: &str = "v1beta1";

/// Returns whether an APIRule was written in v1beta1.
pub(crate) fn is_v1beta1(rule: &ApiRule) -> bool {
    rule.metadata.annotations.get(ORIGINAL_VERSION).is_some_and(|version| version == V1BETA1)
}

/// Returns the spec in v1beta1 of an APIRule that was written in that version.
pub(crate) fn v1beta1_spec(rule: &ApiRule) -> Result<v1beta1::Spec, String> {
    let text = rule.metadata.annotations.get(V1BETA1_SPEC);
    let text = text.ok_or_else(|| format!("the annotation `{V1BETA1_SPEC}` is missing"))?;
    json::parse(text)
        .map_err(|error| format!("the annotation `{V1BETA1_SPEC}` holds no spec: {error}"))
}
