//! The parts of a spec that decide whether a version has to be loaded anew, in the host's own
//! types.

use std::{sync::Arc, time::Duration};

use mortise_core::{grant::rights::Account, outbound::Egress};

use super::{egress, fault::Fault};
use crate::{
    host::{ClusterGrant, LimitMet, Mode, Removal, Settings},
    operator::api::{self, ProcessorSpec},
    reason::Reason,
    wasm::{self, Digest},
};

const MIN_CALL_MEMORY_BYTES: u64 = 1 << 20;
/// The memory that 32 bits address.
const MAX_CALL_MEMORY_BYTES: u64 = 4 << 30;
const MAX_CALL_DEADLINE: Duration = Duration::from_mins(10);

/// The upper bounds on the limits of a Processor, whatever its spec asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Largest {
    /// The memory of one call, in MiB.
    pub memory_mib: u32,
    /// The longest duration of one call.
    pub deadline: Duration,
    /// The number of calls that run at the same time.
    pub concurrency: u32,
}

/// The inputs of a version. Equal recipes give equal versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Recipe {
    /// The digest of the module.
    pub(super) digest: Digest,
    pub(super) config: Arc<str>,
    pub(super) account: Account,
    pub(super) mode: Mode,
    pub(super) take_over: Arc<[String]>,
    pub(super) clusters: Arc<[ClusterGrant]>,
    pub(super) egress: Arc<[Arc<Egress>]>,
    pub(super) limits: wasm::Limits,
    pub(super) libraries: Vec<LibraryRecipe>,
    pub(super) removal: Option<Removal>,
}

/// A library of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LibraryRecipe {
    pub(super) interface: String,
    /// The digest of the library's module.
    pub(super) digest: Digest,
    pub(super) limits: wasm::Limits,
}

/// The digests of the files that a spec names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Digests {
    pub(super) module: Digest,
    /// The digests of the libraries, in the order of the spec.
    pub(super) libraries: Vec<Digest>,
}

/// The concurrency of calls, and the rate of runs per second. The pace can change without a new
/// version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pace {
    pub(super) concurrency: usize,
    pub(super) rate: Option<u32>,
}

// === impl Digests ===

impl Digests {
    /// Takes the digest of the module first, and then those of the libraries.
    pub(super) fn of(mut digests: impl Iterator<Item = Digest>) -> Result<Self, Fault> {
        let module = digests.next();
        let module = module.ok_or_else(|| {
            Fault::new(Reason::ModuleNotNamed, "spec.module names no module".to_owned())
        })?;
        Ok(Self { module, libraries: digests.collect() })
    }
}

// === impl Recipe ===

impl Recipe {
    pub(super) fn new(
        spec: &ProcessorSpec,
        account: &Account,
        digests: &Digests,
        removal: Option<Removal>,
        largest: &Largest,
    ) -> Result<Self, Fault> {
        // Without a configuration, the processor gets an empty object, as in `mortise dev`.
        let config = spec.config.as_ref().map_or_else(|| "{}".into(), |of| Arc::clone(of.text()));
        let libraries = spec.libraries.iter().zip(&digests.libraries).map(|(library, digest)| {
            let limits = largest.limit(&library_limits(library)?);
            Ok(LibraryRecipe { interface: library.interface.clone(), digest: *digest, limits })
        });
        Ok(Self {
            digest: digests.module,
            config,
            account: account.clone(),
            mode: match spec.mode {
                api::Mode::Reconcile => Mode::Reconcile,
                api::Mode::Observe => Mode::Observe,
            },
            take_over: spec.take_over.as_slice().into(),
            clusters: spec.clusters.iter().map(clusters).collect(),
            egress: egress::grants(spec)?,
            limits: largest.limit(&limits(&spec.limits)?),
            libraries: libraries.collect::<Result<_, Fault>>()?,
            removal,
        })
    }

    /// Returns the settings for the reconciler.
    pub(super) fn settings(&self, name: &str, pace: Pace) -> Settings {
        Settings {
            name: Some(name.into()),
            account: Some(self.account.clone()),
            mode: self.mode,
            take_over: Arc::clone(&self.take_over),
            clusters: Arc::clone(&self.clusters),
            egress: Arc::clone(&self.egress),
            concurrency: Some(pace.concurrency),
            rate: pace.rate,
            removal: self.removal,
            ..Settings::in_namespace(&self.account.namespace)
        }
    }
}

fn clusters(of: &api::Clusters) -> ClusterGrant {
    let namespace = of.secrets.as_ref().map(|secrets| secrets.namespace.clone());
    ClusterGrant { servers: of.servers.clone(), namespace }
}

// === impl Pace ===

impl Pace {
    /// Reads the pace of a spec. The deletion of a suspended Processor is carried out all the same,
    /// so its calls run.
    pub(super) fn new(spec: &ProcessorSpec, is_ending: bool, largest: &Largest) -> Self {
        let concurrency = spec.limits.concurrency.min(largest.concurrency) as usize;
        let concurrency = if spec.suspend && !is_ending { 0 } else { concurrency };
        Self { concurrency, rate: spec.limits.rate }
    }
}

// === impl Largest ===

impl Default for Largest {
    /// Returns memory for a large Go guest and the data that it works on, a minute for the longest
    /// reconcile, and as many calls at the same time as a slow API server ever needs.
    fn default() -> Self {
        Self { memory_mib: 256, deadline: Duration::from_mins(1), concurrency: 16 }
    }
}

impl Largest {
    fn memory(&self) -> usize {
        usize::try_from(u64::from(self.memory_mib) << 20).unwrap_or(usize::MAX)
    }

    fn limit(&self, limits: &wasm::Limits) -> wasm::Limits {
        let (memory, deadline) =
            (limits.memory.min(self.memory()), limits.deadline.min(self.deadline));
        wasm::Limits { memory, deadline, ..limits.clone() }
    }

    /// Returns the limits of a spec that the host lowers; `None` if it lowers none, or if the
    /// limits are not valid.
    pub(super) fn lowered(&self, spec: &ProcessorSpec) -> Option<LimitMet> {
        let of = &spec.limits;
        let mut calls = vec![("spec".to_owned(), &of.memory, &of.deadline, limits(of).ok()?)];
        for library in &spec.libraries {
            let asked = library_limits(library).ok()?;
            let api::LibraryLimits { memory, deadline } = &library.limits;
            calls.push((library.field(), memory, deadline, asked));
        }
        let mut lowered = Vec::new();
        let mut record_lowered =
            |is_more: bool, what: &str, asked: &str, given: String, option: &str| {
                if is_more {
                    lowered.push(format!("{what} is {asked}, given is {given} ({option})"));
                }
            };
        for (field, memory, deadline, asked) in calls {
            let (is_more, given) = (asked.memory > self.memory(), format!("{}Mi", self.memory_mib));
            let field_of = |limit: &str| format!("{field}.limits.{limit}");
            record_lowered(is_more, &field_of("memory"), memory, given, "--max-memory-mib");
            let (is_more, given) = (asked.deadline > self.deadline, format!("{:?}", self.deadline));
            let option = "--max-deadline-seconds";
            record_lowered(is_more, &field_of("deadline"), deadline, given, option);
        }
        let (is_more, given) = (of.concurrency > self.concurrency, self.concurrency.to_string());
        let asked = of.concurrency.to_string();
        record_lowered(is_more, "spec.limits.concurrency", &asked, given, "--max-concurrency");
        let message = format!("more is asked for than this host gives: {}", lowered.join("; "));
        (!lowered.is_empty()).then_some(LimitMet { reason: Reason::LimitsLowered, message })
    }
}

/// Parses the limits of a call, in the format of a Processor resource, with its defaults. `field`
/// is their name in messages.
///
/// # Errors
///
/// Fails if a text is not a quantity or a duration, or is out of bounds; the message says what is
/// accepted.
pub fn limits_of_call(
    field: &str,
    memory: Option<&str>,
    deadline: Option<&str>,
) -> Result<wasm::Limits, String> {
    let default = api::Limits::default();
    let (memory, deadline) =
        (memory.unwrap_or(&default.memory), deadline.unwrap_or(&default.deadline));
    of_call(field, memory, deadline).map_err(|fault| fault.message)
}

fn limits(limits: &api::Limits) -> Result<wasm::Limits, Fault> {
    of_call("spec.limits", &limits.memory, &limits.deadline)
}

fn library_limits(library: &api::Library) -> Result<wasm::Limits, Fault> {
    of_call(
        &format!("{}.limits", library.field()),
        &library.limits.memory,
        &library.limits.deadline,
    )
}

fn of_call(field: &str, memory: &str, deadline: &str) -> Result<wasm::Limits, Fault> {
    let (asked_memory, asked_deadline) = (memory, deadline);
    let memory = bytes(memory)
        .filter(|memory| (MIN_CALL_MEMORY_BYTES..=MAX_CALL_MEMORY_BYTES).contains(memory))
        .and_then(|memory| usize::try_from(memory).ok())
        .ok_or_else(|| invalid(field, "memory", asked_memory, "1Mi to 4Gi"))?;
    let deadline = duration(deadline)
        .filter(|deadline| !deadline.is_zero() && *deadline <= MAX_CALL_DEADLINE)
        .ok_or_else(|| invalid(field, "deadline", asked_deadline, "1ms to 10m"))?;
    Ok(wasm::Limits { memory, deadline, ..wasm::Limits::default() })
}

fn invalid(field: &str, limit: &str, value: &str, accepted: &str) -> Fault {
    let message = format!("{field}.{limit} is `{value}`; {accepted} is accepted");
    Fault::new(Reason::LimitsInvalid, message)
}

/// Parses a quantity of bytes, as Kubernetes writes it.
fn bytes(text: &str) -> Option<u64> {
    let units = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("k", 1000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
    ];
    let unit = units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)));
    let (number, factor) = unit.unwrap_or((text, 1));
    number.parse::<u64>().ok()?.checked_mul(factor)
}

fn duration(text: &str) -> Option<Duration> {
    let units = [("ms", 1), ("s", 1000), ("m", 60_000)];
    let (number, factor) =
        units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    Some(Duration::from_millis(number.parse::<u64>().ok()?.checked_mul(*factor)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(memory: &str, deadline: &str) -> Result<(usize, Duration), String> {
        let of = api::Limits {
            memory: memory.into(),
            deadline: deadline.into(),
            ..api::Limits::default()
        };
        limits(&of).map(|limits| (limits.memory, limits.deadline)).map_err(|fault| fault.message)
    }

    #[test]
    fn limits_are_read_as_kubernetes_writes_them() {
        let cases = [
            ("64Mi", "5s", 64 << 20, 5_000),
            ("4Gi", "10m", 4 << 30, 600_000),
            ("1024Ki", "1ms", 1 << 20, 1),
            ("2M", "600s", 2_000_000, 600_000),
            ("1048576", "1m", 1 << 20, 60_000),
        ];
        for (memory, deadline, bytes, milliseconds) in cases {
            assert_eq!(
                with(memory, deadline),
                Ok((bytes, Duration::from_millis(milliseconds))),
                "{memory} {deadline}"
            );
        }
    }

    #[test]
    fn the_error_of_an_invalid_limit_names_the_accepted_range() {
        let memory =
            |value: &str| format!("spec.limits.memory is `{value}`; 1Mi to 4Gi is accepted");
        let deadline =
            |value: &str| format!("spec.limits.deadline is `{value}`; 1ms to 10m is accepted");
        for value in ["0", "1023Ki", "5Gi", "64Ti", "Mi", "-1Mi", "99999999999999999999"] {
            assert_eq!(with(value, "5s"), Err(memory(value)));
        }
        for value in ["0s", "11m", "601s", "5", "5h", "s", "1.5s"] {
            assert_eq!(with("64Mi", value), Err(deadline(value)));
        }
    }

    #[test]
    fn the_limits_of_a_processor_that_names_none_are_the_host_s() {
        assert_eq!(limits(&api::Limits::default()), Ok(wasm::Limits::default()));
    }

    #[test]
    fn limits_above_the_host_maximum_are_lowered_and_reported() {
        let largest =
            Largest { memory_mib: 128, deadline: Duration::from_secs(30), concurrency: 8 };
        let spec = |memory: &str, deadline: &str, concurrency| ProcessorSpec {
            limits: api::Limits {
                memory: memory.to_owned(),
                deadline: deadline.to_owned(),
                concurrency,
                ..api::Limits::default()
            },
            ..ProcessorSpec::default()
        };
        let greedy = spec("2Gi", "10m", 256);
        let given = largest.limit(&limits(&greedy.limits).unwrap());
        assert_eq!((given.memory, given.deadline), (128 << 20, Duration::from_secs(30)));
        assert_eq!(Pace::new(&greedy, false, &largest).concurrency, 8);
        let met = largest.lowered(&greedy).unwrap();
        assert_eq!(met.reason, Reason::LimitsLowered);
        for part in [
            "spec.limits.memory is 2Gi, given is 128Mi (--max-memory-mib)",
            "spec.limits.deadline is 10m, given is 30s (--max-deadline-seconds)",
            "spec.limits.concurrency is 256, given is 8 (--max-concurrency)",
        ] {
            assert!(met.message.contains(part), "{}", met.message);
        }
        let modest = spec("128Mi", "30s", 8);
        assert_eq!(largest.lowered(&modest), None);
        assert_eq!(Pace::new(&modest, false, &largest).concurrency, 8);
        assert_eq!(Largest::default().lowered(&ProcessorSpec::default()), None);
        let suspended = ProcessorSpec { suspend: true, ..greedy };
        assert_eq!(Pace::new(&suspended, false, &largest).concurrency, 0);
        assert_eq!(Pace::new(&suspended, true, &largest).concurrency, 8);
    }

    #[test]
    fn a_library_has_limits_and_a_file_of_its_own() {
        let library = |memory: &str, module: serde_json::Value| {
            let spec = serde_json::json!({
                "module": {"path": "a.wasm"}, "serviceAccountName": "a",
                "libraries": [{
                    "interface": "a:b/c", "module": module,
                    "limits": {"memory": memory, "deadline": "2m"},
                }],
            });
            serde_json::from_value::<ProcessorSpec>(spec).unwrap()
        };
        let path = || serde_json::json!({"path": "c.wasm"});
        let spec = library("2Gi", path());
        let largest = Largest::default();
        let account = Account { namespace: "n".into(), name: "a".into() };
        let [module, other] = [Digest::of(b"a"), Digest::of(b"c")];
        let recipe = |spec: &ProcessorSpec, library| {
            let digests = Digests { module, libraries: vec![library] };
            Recipe::new(spec, &account, &digests, None, &largest)
        };
        let of = recipe(&spec, other).unwrap();
        let limits = &of.libraries[0].limits;
        assert_eq!((limits.memory, limits.deadline), (256 << 20, Duration::from_mins(1)));
        let met = largest.lowered(&spec).unwrap().message;
        assert!(
            met.contains("spec.libraries[a:b/c].limits.memory is 2Gi, given is 256Mi"),
            "{met}"
        );
        assert_ne!(of, recipe(&spec, module).unwrap(), "another library is another version");
        assert_ne!(of, recipe(&library("1Mi", path()), other).unwrap());
        let fault = recipe(&library("1Ki", path()), other).unwrap_err().message;
        assert!(fault.starts_with("spec.libraries[a:b/c].limits.memory is `1Ki`; "), "{fault}");
    }
}
