//! The steps of an installation that need no cluster.

use serde_json::Value;

use crate::{
    api::State,
    check::Refusal,
    condition, installed,
    kubernetes::Pod,
    last_applied::LastApplied,
    merge::{self, Input},
    template, version,
};

/// Returns the `IstioOperator` to install, and checks that it may follow the installed one.
///
/// # Errors
///
/// Fails if the last applied configuration cannot be read, if the update is not allowed, or if the
/// resource cannot be merged.
pub fn prepare(
    last: &Result<Option<LastApplied>, String>,
    input: &Input,
) -> Result<Value, Refusal> {
    let last = last.as_ref().map_err(|error| {
        let description = format!("Istio install check failed: {error}");
        Refusal::new(State::Error, condition::INSTALL_UNINSTALL_FAILED, description)
    })?;
    if let Some(last) = last {
        version::check_update(&last.tag, &template::tag()).map_err(|error| {
            let description = format!("Istio version update is not allowed: {error}");
            Refusal::new(State::Warning, condition::UPDATE_NOT_ALLOWED, description)
        })?;
    }
    merge::merge(input).map_err(|error| {
        let description = format!("Could not merge Istio operator configuration: {error}");
        Refusal::new(State::Error, condition::MISCONFIGURED, description)
    })
}

/// Checks that the Pods in `istio-system` run the version that was installed.
///
/// # Errors
///
/// Fails if they do not, or not yet.
pub fn verify(pods: &[Pod]) -> Result<(), Refusal> {
    installed::check_version(pods, &template::version()).map_err(|error| {
        let description =
            format!("Verifying Pod versions in istio-system namespace failed: {error}");
        Refusal::new(State::Error, condition::INSTALL_UNINSTALL_FAILED, description)
    })
}
