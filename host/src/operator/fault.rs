//! Faults: reasons why a Processor does not run as its spec asks, with messages for the person who
//! can fix them.

use mortise_core::{error_chain, grant::rights::Account};

use crate::{
    cluster::remote::{InvalidServer, Servers, listed},
    host::{NotSwapped, Verdict},
    oci::{self, Reference, signature::policy::Unsigned},
    operator::api::ProcessorSpec,
    reason::Reason,
    wasm::{self, LoadError},
};

/// The reason why a Processor does not run as its spec asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The reason of the condition.
    pub reason: Reason,
    /// The message of the condition, in one sentence: the fault, and the values that would be
    /// accepted.
    pub message: String,
    /// The effect on the running version.
    pub former: Former,
    /// True if a retry can succeed without a change that the host watches.
    pub passes: bool,
    /// The module that this host cannot load, whatever the rest of the spec is.
    pub unusable: Option<String>,
}

/// The effect of a fault on the running version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Former {
    KeepsRunning,
    /// The version is removed, since it may not run any longer.
    Ends,
    /// The version that the spec asks for keeps running, though it is broken.
    StaysBroken,
}

/// Returns the number of objects on which a version broke, as part of a message.
fn broke(Verdict { objects, broke, .. }: &Verdict) -> String {
    format!("broke on {broke} of the first {objects} objects that it was called for")
}

// === impl Fault ===

impl Fault {
    /// Creates a fault that only a change of the spec or of the module fixes.
    pub(super) fn new(reason: Reason, message: impl Into<String>) -> Self {
        let (message, former) = (message.into(), Former::KeepsRunning);
        Self { reason, message, former, passes: false, unusable: None }
    }

    /// Creates a fault that a retry may fix.
    pub(super) fn passing(reason: Reason, message: impl Into<String>) -> Self {
        Self { passes: true, ..Self::new(reason, message) }
    }

    /// Makes the fault remove the running version, unless a retry may fix the fault.
    pub(super) fn ending_what_runs(self) -> Self {
        let former = if self.passes { Former::KeepsRunning } else { Former::Ends };
        Self { former, ..self }
    }

    /// Returns the fault of a spec that cannot be used, if there is one.
    pub(super) fn unreadable(spec: &ProcessorSpec) -> Option<Self> {
        spec.unreadable.as_ref().map(|(reason, why)| Self::new(*reason, why))
    }

    /// Checks the other clusters that a spec grants. `servers` are those that the host grants.
    ///
    /// # Errors
    ///
    /// Fails for an entry that names no servers, or some that the host does not grant.
    pub(super) fn check_clusters(spec: &ProcessorSpec, servers: &[Servers]) -> Result<(), Self> {
        let all = spec.clusters.iter().enumerate().flat_map(|(at, clusters)| {
            let servers = clusters.servers.iter().enumerate();
            servers
                .map(move |(index, text)| (format!("spec.clusters[{at}].servers[{index}]"), text))
        });
        for (field, text) in all {
            let invalid =
                |why: String| Self::new(Reason::ClustersInvalid, format!("{field}: {why}"));
            let server: Servers =
                text.parse().map_err(|error: InvalidServer| invalid(error.to_string()))?;
            if !servers.iter().any(|granted| granted.cover(&server)) {
                let accepted = listed(servers);
                return Err(invalid(format!(
                    "this host does not grant `{server}`; --clusters grants {accepted}"
                )));
            }
        }
        Ok(())
    }

    /// Creates the fault of a host that may not act as an account. `granted` is the API server's
    /// answer; `None` if it does not answer.
    pub(super) fn not_granted(account: &Account, granted: Option<bool>) -> Self {
        let Account { namespace, name } = account;
        if granted.is_none() {
            let message = format!(
                "the API server does not say whether this host may act as the ServiceAccount `{name}`; it is asked again"
            );
            return Self::passing(Reason::AccountNotGranted, message);
        }
        let message = format!(
            "this host may not act as the ServiceAccount `{name}`: it lacks the verb impersonate; bind its own account to a Role in the namespace `{namespace}` with apiGroups [\"\"], resources [serviceaccounts], resourceNames [{name}], verbs [impersonate]"
        );
        Self::new(Reason::AccountNotGranted, message)
    }

    /// Creates the fault of a load that was cancelled, because the Processor has changed meanwhile.
    pub(super) fn superseded() -> Self {
        let message = "the Processor was changed while its module was loaded: what it asks for now is loaded next";
        Self::passing(Reason::Superseded, message)
    }

    pub(super) fn is_superseded(&self) -> bool {
        self.reason == Reason::Superseded
    }

    /// Creates the state of a module that is being pulled, which is no fault yet.
    pub(super) fn pulling(reference: &Reference) -> Self {
        Self::new(Reason::Pulling, format!("`{reference}` is being pulled"))
    }

    /// Returns whether the module is being pulled, which is no fault yet.
    pub(super) fn is_pulling(&self) -> bool {
        self.reason == Reason::Pulling
    }

    /// Returns whether waiting may help: the module is being pulled, or a retry may succeed. Not if
    /// an artifact is gone, is no module, or lacks a signature, though a registry may change that
    /// too.
    pub(super) fn may_end(&self) -> bool {
        let is_lasting = matches!(
            self.reason,
            Reason::ImageNotFound | Reason::ImageNotWasm | Reason::SignatureMissing
        );
        self.is_pulling() || (self.passes && !is_lasting)
    }

    /// Names the version that ran last in the message, which the spec does not.
    pub(super) fn of_last_version(self) -> Self {
        let message =
            format!("the version that ran last, which is started first: {}", self.message);
        Self { message, ..self }
    }

    /// Creates the fault of an artifact that cannot be pulled from its registry.
    pub(super) fn of_registry(reference: &Reference, error: &oci::Error) -> Self {
        let reason = match error {
            oci::Error::Refused { status: 401 | 403, .. } => Reason::RegistryDenied,
            oci::Error::Refused { status: 404, .. } => Reason::ImageNotFound,
            oci::Error::Refused { status: 429, .. } => Reason::RegistryBusy,
            oci::Error::AddressRefused { .. } => Reason::AddressRefused,
            oci::Error::Truncated { .. } | oci::Error::TooSlow { .. } => Reason::PullFailed,
            oci::Error::OtherDigest { .. } | oci::Error::OtherLength { .. } => Reason::ImageDiffers,
            oci::Error::TooLarge { .. } => Reason::ModuleTooLarge,
            oci::Error::NotWasm { .. } => Reason::ImageNotWasm,
            oci::Error::Disk { .. } => Reason::CacheFull,
            _ => Reason::RegistryUnavailable,
        };
        Self::passing(reason, format!("`{reference}`: {}", error_chain::whole(error)))
    }

    /// Creates the fault of a module that is not signed as required.
    pub(super) fn unsigned(module: &str, unsigned: &Unsigned) -> Self {
        Self::passing(Reason::SignatureMissing, format!("`{module}`: {unsigned}"))
    }

    pub(super) fn of_load(error: &LoadError) -> Self {
        let reason = match error {
            LoadError::OtherVersion { .. } | LoadError::OtherTypes { .. } => {
                Reason::ModuleOtherVersion
            }
            LoadError::NotGranted { .. } => Reason::ImportsNotGranted,
            LoadError::LibraryInvalid { .. } => Reason::LibraryInvalid,
            LoadError::LibraryOtherTypes { .. } => Reason::LibraryOtherTypes,
            LoadError::CompileFailed { .. } => Reason::CompileFailed,
            LoadError::TooLarge { .. } => Reason::ModuleTooLarge,
            LoadError::OutOfMemory { .. } => Reason::ModuleMemoryLimited,
            _ => Reason::ModuleInvalid,
        };
        let passes = match error {
            LoadError::BrokenOff { .. }
            | LoadError::Unreadable { .. }
            | LoadError::OutOfMemory { .. } => true,
            LoadError::CompileFailed { source, .. } => source.passes(),
            _ => false,
        };
        let unusable = error.unusable().map(str::to_owned);
        Self { passes, unusable, ..Self::new(reason, error_chain::whole(error)) }
    }

    /// Creates the fault of a version that is not swapped in.
    pub(super) fn not_swapped(refused: &NotSwapped) -> Self {
        let message = error_chain::whole(refused);
        match refused {
            NotSwapped::Invalid(_) => Self::new(Reason::DescriptionInvalid, message),
            NotSwapped::KindNotServed { .. } => Self::passing(Reason::KindNotServed, message),
            NotSwapped::RightsMissing { .. } | NotSwapped::GrantsMissing { .. } => {
                Self::passing(Reason::RightsMissing, message)
            }
            NotSwapped::FinalizersHeld { .. } => Self::passing(Reason::FinalizersHeld, message),
            // A retry can succeed later, with other objects or less load.
            NotSwapped::TrialFailed { .. } | NotSwapped::ConversionFailed { .. } => {
                Self::passing(Reason::TrialFailed, message)
            }
        }
    }

    /// Creates the fault of a version that was swapped in and rolled back.
    pub(super) fn rolled_back(version: &str, verdict: &Verdict) -> Self {
        let (broke, key, why) = (broke(verdict), &verdict.first.key, &verdict.first.message);
        let message = format!(
            "version {version} was rolled back: it {broke}; the first, {key}: {why}; it is tried again when the Processor or the module is changed"
        );
        Self::new(Reason::RolledBack, message)
    }

    /// Creates the fault of a version that broke and keeps running, since the former one must not
    /// be restored.
    pub(super) fn stays_broken(
        version: &str,
        verdict: &Verdict,
        former: &str,
        fault: &Self,
    ) -> Self {
        let (broke, why) = (broke(verdict), &fault.message);
        let message =
            format!("version {version} {broke}, and version {former} is not restored: {why}");
        Self { former: Former::StaysBroken, ..Self::new(fault.reason, message) }
    }

    /// Creates the fault of a component whose `describe` call fails.
    pub(super) fn of_describe(error: &wasm::Error) -> Self {
        match error {
            wasm::Error::ConfigRefused { message, .. } => Self::new(
                Reason::ConfigInvalid,
                format!("the processor does not accept spec.config: {message}"),
            ),
            wasm::Error::DescriptionRefused { .. } => {
                Self::new(Reason::DescriptionInvalid, error_chain::whole(error))
            }
            error => Self::passing(
                Reason::DescribeFailed,
                format!("the module does not describe itself: {}", error_chain::whole(error)),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::api;

    #[test]
    fn servers_that_are_none_or_not_the_host_s_are_refused_with_those_that_are() {
        let granted = ["https://*.example.com:6443", "https://10.0.0.7"];
        let granted = granted.map(|text| text.parse::<Servers>().unwrap());
        let check = |server: &str, granted: &[Servers]| {
            let clusters = vec![api::Clusters { servers: vec![server.to_owned()], secrets: None }];
            let spec = ProcessorSpec { clusters, ..ProcessorSpec::default() };
            Fault::check_clusters(&spec, granted).map_err(|fault| {
                assert_eq!(fault.reason, Reason::ClustersInvalid);
                fault.message
            })
        };
        for server in ["https://a.example.com:6443", "https://*.b.example.com:6443"] {
            check(server, &granted).unwrap();
        }
        let cases = [
            ("https://example.com:6443", "--clusters grants `https://*.example.com:6443`, "),
            ("https://10.0.0.8", "this host does not grant `https://10.0.0.8:443`"),
            ("ftp://example.com", "`ftp://example.com` names no servers: "),
        ];
        for (server, expected) in cases {
            let message = check(server, &granted).unwrap_err();
            assert!(message.starts_with("spec.clusters[0].servers[0]: "), "{message}");
            assert!(message.contains(expected), "{message}");
        }
        assert!(check("https://10.0.0.7", &[]).unwrap_err().ends_with("--clusters grants none"));
    }
}
