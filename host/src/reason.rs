//! The reasons of the conditions of Processors: the text in the condition, the conditions in which
//! a reason occurs, and the advice for an operator. `cargo reference` writes `deploy/REFERENCE.md`
//! from this table.

use std::fmt;

/// Builds [`Reason`] from a table. Each row is a reason, the conditions in which it occurs, each
/// with its status, and the advice.
macro_rules! reasons {
    ($($name:ident [$($kind:ident $status:ident),*] $advice:literal;)+) => {
        /// The reason of a condition of a Processor, in one word.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Reason {
            $(#[doc = $advice] $name,)+
        }

        impl Reason {
            /// Every reason, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Returns the text in the condition.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            /// Returns the conditions in which the reason occurs, each with its status; empty for a
            /// reason that no condition shows. If `Loaded` is false and no version runs, `Ready`
            /// has the same reason, which is not listed again.
            pub const fn conditions(self) -> &'static [(&'static str, &'static str)] {
                match self {
                    $(Self::$name => &[$((stringify!($kind), stringify!($status))),*],)+
                }
            }

            /// Returns what the reason means and what to do, for an operator, in Markdown.
            pub const fn advice(self) -> &'static str {
                match self {
                    $(Self::$name => $advice,)+
                }
            }
        }
    };
}

reasons! {
    // Normal states.
    Loaded [Loaded True]
        "The version that the spec names runs.";
    Pulling [Loaded Unknown, Ready False]
        "The module is being pulled; a former version keeps running meanwhile. After a start, the version that ran last may be pulled first. Wait.";
    RegistryUnavailable [Loaded True, Loaded False]
        "True: the version runs, and the tag cannot be resolved now. False: the registry gives no valid answer, and no copy is on the disk. See the message. The host retries.";
    Loading [Loaded Unknown, Ready False]
        "The module is being read, compiled, described or tried. Wait; `mortise_compile_duration_seconds` shows how long compilations take.";
    Runs [Ready True]
        "The processor runs and writes.";
    Observes [Ready True]
        "The processor runs, and nothing is written: `spec.mode` is `Observe`.";
    Observed [Synced Unknown]
        "Nothing is written: `spec.mode` is `Observe`. Read `/reports` for what would be written.";
    Synced [Synced True]
        "All objects are reconciled.";
    Reconciling [Synced Unknown]
        "The first runs have not ended. Wait.";
    NotRunning [Synced Unknown]
        "No version runs. See `Loaded`.";
    Suspended [Ready False, Synced Unknown]
        "No run starts: `spec.suspend` is true. Set it to false to resume.";
    Ending [Ready False, Synced Unknown]
        "The Processor is being deleted; the message says what the deletion waits for. Let the host run, restore what the message names, or remove the finalizer `mortise.dev/processor`.";
    Serving [Serving True]
        "Conversions and admissions are answered.";
    WithinLimits [Limited False]
        "No limit is reached any more.";

    // Other clusters.
    Connected [Connected True]
        "All clusters that the processor uses are connected.";
    ClusterConnecting [Connected Unknown]
        "The Secret with the kubeconfig is being read, or the cluster has not answered yet. Wait.";
    ClusterUnreachable [Connected False]
        "The cluster does not answer, or what its lists and watches bring is cut off. See the message. The host retries.";
    ClusterSlow [Connected True]
        "All clusters are connected, and one takes seconds to answer.";
    KubeconfigMissing [Connected False]
        "There is no Secret of that name, or it lacks the key. Create it.";
    KubeconfigRefused [Connected False]
        "The kubeconfig has a part that is not accepted, or leads to the home cluster. Use inline credentials (`token`, or `client-certificate-data` and `client-key-data`) as the message says.";
    ServerNotGranted [Connected False]
        "`spec.clusters` of the Processor, or `--clusters` of the host, does not name the server; or no declared read selects the Secret. Grant what the message names.";
    SecretUnreadable [Connected False]
        "The account may not get, list and watch the Secret with the kubeconfig. Bind a Role with these verbs on it.";
    HomeUnknown [Connected False]
        "The host may not get the namespace `kube-system` of its own cluster. Bind the `ClusterRole` in the message.";
    ClustersLimited [Connected False]
        "The processor, or those of its namespace, use as many clusters as they may. Use fewer.";
    ClustersInvalid [Loaded False]
        "An entry of `spec.clusters` names no servers, or some that `--clusters` of the host does not grant. Use those in the message.";

    // Systems outside of the cluster.
    EgressInvalid [Loaded False]
        "An entry of `spec.egress` cannot be read, or grants what the options `--egress` and `--egress-private` of the host do not allow. Change the field in the message.";
    EgressNotGranted [Limited True]
        "The processor declares calls, or credentials for them, that `spec.egress` does not grant: such calls are denied. Add what the message names to `spec.egress`, if it shall be called.";
    EgressNotDeclared [Limited True]
        "`spec.egress` grants an origin, or credentials for it, that the processor does not declare: they are not used. Remove them, or correct the origin.";

    // The spec, the module and the account.
    SpecInvalid [Loaded False]
        "The stored spec is too large, or does not fit this host's version of the kind. Change what the message names, or apply the CRD of this host.";
    ModuleNotNamed [Loaded False]
        "The spec names no module, or no module of a library. Set `image` or `path` where the message says.";
    ImageInvalid [Loaded False]
        "`image` is not a valid reference: it has no registry, neither tag nor digest, an invalid digest, or credentials. Use the form in the message.";
    ImageNotFound [Loaded False]
        "The registry has no such artifact. Push it, or name another one. The host retries.";
    ImageNotWasm [Loaded False]
        "The artifact is not a Wasm artifact, but for example a container image. Push the module with `mortise push`. The host retries.";
    ImageDiffers [Loaded False]
        "The registry sent other bytes than were requested: another digest, or another length. Check the registry, and proxies before it. The host retries.";
    PullFailed [Loaded False]
        "The registry ended the transfer early, or was too slow: nothing for 30 s, or 10 minutes in all. Check the network. The host retries.";
    RegistryDenied [Loaded False]
        "The registry answers 401 or 403. Check the pull secret. The host retries.";
    RegistryBusy [Loaded False]
        "The registry answers 429. Wait, or use credentials. The host retries after the time that the registry names.";
    AddressRefused [Loaded False]
        "The registry, a redirect or its token service has an address that the host does not access: link-local, of a metadata service, of this machine, or without TLS. See the message.";
    PullSecretUnreadable [Loaded False]
        "The account may not get a pull secret, or there is none of that name. Bind the Role in the message, or create the Secret.";
    PullSecretInvalid [Loaded False]
        "A pull secret holds no valid credentials. Use a Secret of the type `kubernetes.io/dockerconfigjson`.";
    CacheMissing [Loaded False]
        "The host has no folder for modules from registries. Start it with `--cache`.";
    CacheFull [Loaded False]
        "The folder of modules from registries has no room for more of this namespace, or cannot be written. Raise `--max-modules-mib`, or delete Processors; check `--cache`.";
    VerificationInvalid [Loaded False]
        "`spec.verification.keys` is empty, or has an entry that is not a public key. Use keys as in the message.";
    SignatureMissing [Loaded False]
        "The module or a library has no signature by a key that is required, or no rule of `--require-signatures` covers it. Sign it, or change the keys. The host retries.";
    LimitsInvalid [Loaded False]
        "A value in `spec.limits`, or in those of a library, is not accepted. Use the range in the message.";
    ModuleNotFound [Loaded False]
        "No file of that name is in the folder of modules. Add it; the message lists the files that are there.";
    ModuleUnreadable [Loaded False]
        "The file cannot be read, is not a regular file, or is outside of the folder of modules. Check its type, its mode and its links.";
    ModuleTooLarge [Loaded False]
        "The file or artifact is larger than the message says, or its tables are. Build with `--release`.";
    ModuleMemoryLimited [Loaded False]
        "The modules and calls of the namespace take its share of the memory. Delete Processors, or raise `--call-memory-mib`. The host retries.";
    ModuleChanging [Loaded False]
        "The file is being written. Write another file and rename it.";
    ModuleInvalid [Loaded False]
        "The file is not a component that a host can load. Run `mortise inspect` on it.";
    ModuleOtherVersion [Loaded False]
        "The component uses another version of `mortise:host`. Build it with the SDK of this host.";
    ImportsNotGranted [Loaded False]
        "The component imports an interface that no processor gets, such as `wasi:http`, or one that no library answers. Remove the import, or name a library for it in `spec.libraries`.";
    LibraryInvalid [Loaded False]
        "A module in `spec.libraries` is not a library of its interface: it imports something, or does not export the interface as functions of plain values. Build another one; the message names the import or export.";
    LibraryOtherTypes [Loaded False]
        "A function of a library has another type than the module imports. Use matching builds of module and library; the message has both types.";
    CompileFailed [Loaded False]
        "The compiler failed, or took more than its limits. Raise the option in the message, or make the module smaller.";
    DescribeFailed [Loaded False]
        "The processor trapped or exceeded a limit in `describe`. Run `mortise inspect` on the module. The host retries.";
    DescriptionInvalid [Loaded False]
        "The description is not valid. Change what the message names.";
    ConfigInvalid [Loaded False]
        "`spec.config` is too large, breaks the schema, or the processor refuses it. Change `spec.config`.";
    ConfigSchemaInvalid [Loaded False]
        "The schema that the processor declares cannot be used. Change the processor.";
    ConfigNotChecked [Loaded False]
        "The child process that checks `spec.config` was interrupted. Wait; the host retries.";
    AccountNotFound [Loaded False]
        "There is no such `ServiceAccount`. Create it.";
    AccountDoesNotConsent [Loaded False]
        "The account does not consent to this Processor. Set the annotation or label `mortise.dev/processor` on it.";
    AccountIsHosts [Loaded False]
        "The account is the host's own. Name another one.";
    AccountNotGranted [Loaded False]
        "The host may not impersonate the account, or the API server does not answer whether it may. Bind the Role in the message.";
    RightsUnknown [Loaded False]
        "The API server does not answer which objects the account may patch. Wait; the host retries.";
    FinalizerRefused [Loaded False]
        "The Processor's own finalizer cannot be set or removed. See the API server's message. The host retries.";
    FinalizerShared [Loaded False, Ready False]
        "Another Processor holds a finalizer of the same objects. Delete one of them, or select other objects. With `Ready`: on-demand reconcilers do not run for these objects, or the account may not patch them.";
    ClaimNotWritten [Loaded False]
        "The finalizers that the processor holds cannot be written into the status of the Processor. The API server's message is in the log of the host. The host retries.";

    // A new version that does not replace the running one, which keeps running.
    FormerVersion [Ready True]
        "The former version runs, since the new one is refused. See `Loaded`.";
    FinalizersHeld [Loaded False]
        "The new version does not declare a finalizer that objects hold. Declare it until no object holds it.";
    TrialFailed [Loaded False]
        "The new version failed on most of the objects that it was tried with, or an object changed by a conversion to another version and back. See the failure in the message.";
    RolledBack [Loaded False]
        "The new version failed on most objects in its first minute, and the former one runs again. Fix the module, or change the Processor to try it again.";

    // Kinds, rights and objects.
    KindNotServed [Loaded False, Ready False, Synced Unknown]
        "The cluster does not serve a kind that is reconciled. Install its CRD.";
    RightsMissing [Loaded False, Ready False]
        "The account lacks rights that the processor declares, or rules that it grants in roles (`grants`); for a new version, the message ends with the rules, one per line. Put the rules into the role, or apply the roles that `mortise inspect --rbac` prints.";
    NotWatched [Synced Unknown]
        "The account may not list and watch all objects that are reconciled, so none is reconciled. Grant that, or declare namespaces in the configuration.";
    Denied [Synced False]
        "Runs were refused reads or writes. Grant the right, or declare the read or write.";
    FieldConflict [Synced False]
        "Two reconciled objects want different values of one field; objects that are gone, or whose Processor is gone, do not count. Let only one of them apply the field.";
    ObjectsFail [Synced False]
        "The last run of some objects failed. See the message, `status.lastFailure`, and `/keys?state=failing`.";

    // Limits of the host, and webhooks.
    LimitsLowered [Limited True]
        "`spec.limits`, or those of a library, are higher than the host's options allow. Lower them, or raise the option in the message.";
    WatchesLimited [Limited True]
        "The processor needs more than `--max-watches`; further reads are answered as unavailable. Declare less, or raise the option.";
    StoresLimited [Limited True]
        "The objects of the processor take more than `--max-store-mib`; those kinds are not stored, and are tried again later. Declare fewer fields or objects, or raise the option.";
    DependenciesLimited [Limited True]
        "The reads and writes of all objects of the processor take too much memory, or too much work for each change: then objects run again without a change of what they have read. See the message; read with fewer, shorter or less different arguments.";
    CallMemoryLimited [Limited True]
        "A call of the last minute got no more memory. Raise `--call-memory-mib`, or lower `spec.limits.concurrency`.";
    WaitsForSlot [Limited True]
        "Calls wait a second or longer for a slot, since other calls have the slots. `mortise_calls_waiting` shows how many calls of each processor wait.";
    LogLimited [Limited True]
        "Log lines about the processor are dropped. Let it log less.";
    CertificateMissing [Serving False]
        "There is no certificate to serve: the Secret of `--webhook-certificate` is missing, or has none. See the message; install `webhook-certificate`, or create the Secret.";
    CertificateInvalid [Serving False]
        "The certificate has expired or is not valid yet, or the new one in the Secret cannot be used and the former one is served. Renew it.";
    CertificateOfOtherName [Serving False]
        "The certificate is not for the Service, or the host of the URL, by which a CRD or a webhook configuration calls the processor. Create one for this name, or change the name there.";
    CaBundleInvalid [Serving False]
        "The `caBundle` of a CRD or of a webhook configuration does not verify the certificate. See the message; put the CA of the certificate there, as `webhook-certificate` does.";

    // Shown in no condition.
    Superseded []
        "The Processor was changed while its module was loaded: the new spec is loaded next.";
}

// === impl Reason ===

impl fmt::Display for Reason {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_shown_in_a_condition_except_superseded() {
        const TYPES: [&str; 6] = ["Loaded", "Synced", "Ready", "Limited", "Serving", "Connected"];
        let hidden = Reason::ALL.iter().filter(|reason| reason.conditions().is_empty());
        assert_eq!(hidden.collect::<Vec<_>>(), [&Reason::Superseded]);
        for reason in Reason::ALL {
            assert!(reason.advice().ends_with('.'), "{reason}");
            for (kind, status) in reason.conditions() {
                let is_type = TYPES.contains(kind);
                let is_status = ["True", "False", "Unknown"].contains(status);
                assert!(is_type && is_status, "{reason}: {kind} {status}");
            }
        }
    }
}
