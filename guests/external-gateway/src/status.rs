//! The conditions and the texts of the status.

use mortise_sdk::{
    Host,
    object::{Condition, ConditionStatus},
    status::{set_condition, stamp},
};

use crate::api::{ExternalGateway, ExternalGatewayStatus};

/// The reasons of conditions that are errors.
pub(crate) mod reason {
    pub(crate) const CA_AMBIGUOUS: &str = "CASecretKeyAmbiguous";
    pub(crate) const CA_INVALID: &str = "CASecretInvalid";
    pub(crate) const CA_NOT_FOUND: &str = "CASecretNotFound";
    pub(crate) const CERTIFICATE_ERROR: &str = "CertificateError";
    pub(crate) const CERTIFICATE_PENDING: &str = "CertificatePending";
    pub(crate) const DNS_ERROR: &str = "DNSEntryError";
    pub(crate) const DNS_PENDING: &str = "DNSEntryPending";
    pub(crate) const DOMAIN_CONFLICT: &str = "ExternalDomainConflict";
    pub(crate) const DOMAIN_TOO_LONG: &str = "InternalDomainTooLong";
    pub(crate) const FAILED: &str = "ReconciliationFailed";
    pub(crate) const NO_GARDENER: &str = "GardenerCRDUnavailable";
    pub(crate) const READY: &str = "Ready";
    pub(crate) const RECONCILING: &str = "Reconciling";
    pub(crate) const REGIONS_AMBIGUOUS: &str = "RegionsConfigMapKeyAmbiguous";
    pub(crate) const REGIONS_INVALID: &str = "RegionsConfigMapInvalid";
    pub(crate) const REGIONS_NOT_FOUND: &str = "RegionsConfigMapNotFound";
    pub(crate) const REGION_EMPTY: &str = "RegionHasNoSubjects";
    pub(crate) const REGION_NOT_FOUND: &str = "RegionNotFound";
}

/// The type of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    Ready,
    Dns,
    Certificate,
    Gateway,
}

/// A fault, with the reason for conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// The conditions that a run leaves: those that it says nothing of are unknown.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conditions(Vec<(Of, ConditionStatus, &'static str, String)>);

/// The state of an ExternalGateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Processing,
    Ready,
    Error,
}

impl Of {
    const ALL: [Self; 4] = [Self::Ready, Self::Dns, Self::Certificate, Self::Gateway];

    fn name(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Dns => "DNSEntryReady",
            Self::Certificate => "CertificateReady",
            Self::Gateway => "GatewayConfigured",
        }
    }
}

impl Fault {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// Adds what was attempted to the message.
    #[must_use]
    pub(crate) fn while_doing(self, what: &str) -> Self {
        Self { message: format!("{what}: {}", self.message), ..self }
    }
}

impl Conditions {
    pub(crate) fn set(&mut self, of: Of, is_so: bool, reason: &'static str, message: &str) {
        self.0.retain(|(other, ..)| *other != of);
        self.0.push((of, is_so.into(), reason, message.to_owned()));
    }

    pub(crate) fn fail(&mut self, of: Of, fault: &Fault) {
        self.set(of, false, fault.reason, &fault.message);
    }

    /// Says that the whole waits for its parts.
    pub(crate) fn wait(&mut self, message: &str) {
        self.0.retain(|(other, ..)| *other != Of::Ready);
        let waiting =
            (Of::Ready, ConditionStatus::Unknown, reason::RECONCILING, message.to_owned());
        self.0.push(waiting);
    }

    fn of(&self, of: Of) -> Condition {
        let said = self.0.iter().find(|(other, ..)| *other == of);
        match said {
            Some((_, status, reason, message)) => {
                Condition::new(of.name(), *status, *reason, message)
            }
            None => Condition::new(
                of.name(),
                ConditionStatus::Unknown,
                reason::RECONCILING,
                "Reconciliation in progress",
            ),
        }
    }
}

/// Returns the status. Its times change only with the rest of it.
pub(crate) fn status(
    gateway: &ExternalGateway,
    state: State,
    description: String,
    conditions: &Conditions,
    host: &Host,
) -> ExternalGatewayStatus {
    let generation = gateway.metadata.generation;
    let former = gateway.status.clone();
    let mut all = former.as_ref().map(|former| former.conditions.clone()).unwrap_or_default();
    all.retain(|condition| Of::ALL.iter().any(|of| of.name() == condition.condition_type));
    for of in Of::ALL {
        let condition = Condition { observed_generation: generation, ..conditions.of(of) };
        set_condition(&mut all, condition, host);
    }
    let observed = match state {
        State::Processing => former.as_ref().and_then(|former| former.observed_generation),
        State::Ready | State::Error => generation,
    };
    let next = ExternalGatewayStatus {
        state: format!("{state:?}"),
        description: Some(description),
        observed_generation: observed,
        last_processed_time: None,
        conditions: all,
    };
    stamp(former, next, |status| &mut status.last_processed_time, host)
}
