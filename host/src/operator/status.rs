//! The status and the conditions of a Processor. Pure: computed here, written by the controller.
//!
//! *Loaded*: the version that the spec asks for runs. *Synced*: all objects are as the processor
//! wants them. *Ready*: the processor runs, and has what it needs.

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use mortise_core::{
    contract::{
        Description, Kind,
        bounds::text::{escaped_lines, shortened_to_characters},
        display_kind,
    },
    grant::granted,
};

use crate::{
    cluster::clusters::{Problem, unusable},
    host,
    oci::Reference,
    operator::{
        Away, Fault, Former,
        api::{
            Condition, Counts, HeldFinalizer, LastFailure, LibraryStatus, ModuleStatus,
            ProcessorStatus, ReconciledKind,
        },
    },
    reason::Reason,
};

/// The type of the condition about the limits of the host.
const LIMITED: &str = "Limited";
/// The type of the condition about other clusters.
const CONNECTED: &str = "Connected";
/// The type of the condition about hooks.
const SERVING: &str = "Serving";
/// The values that the status of a condition can have.
const STATUSES: [&str; 3] = ["True", "False", "Unknown"];
/// The number of items that a message lists.
const MAX_LISTED_ITEMS: usize = 5;
/// The longest message, in characters: an object in etcd holds many messages, and people have to
/// read them.
const MAX_MESSAGE_CHARACTERS: usize = 2000;
/// The longest message that lists rules, in characters.
const MAX_RULES_CHARACTERS: usize = 2000 + granted::MAX_LINES_BYTES;

/// The inputs from which the status of a Processor is computed.
#[derive(Debug)]
pub struct Known<'a> {
    /// The generation of the spec.
    pub generation: Option<i64>,
    /// The reason why the Processor does not run as its spec asks, if any.
    pub fault: Option<&'a Fault>,
    /// The tags that the registries do not resolve now, and since when.
    pub away: Vec<(Reference, Away)>,
    /// The limits of the spec that are higher than the host allows, if any.
    pub lowered: Option<host::LimitMet>,
    /// The running version, if any.
    pub running: Option<Running<'a>>,
    /// The reasons why on-demand reconcilers do not run that outcomes ask for.
    pub not_started: &'a [String],
    /// The finalizers that no other Processor may put on these objects.
    pub finalizers: Vec<HeldFinalizer>,
    /// The state of the Processor: running, observing, suspended or ending.
    pub state: State<'a>,
    /// The last status that was written.
    pub before: &'a ProcessorStatus,
    /// The current time.
    pub now: Timestamp,
}

/// A running version.
#[derive(Debug, Clone)]
pub struct Running<'a> {
    /// The description that the version gave of itself.
    pub description: &'a Description,
    /// The status of the version in the host.
    pub status: &'a host::ProcessorStatus,
    /// The artifacts that the module and the libraries come from.
    pub images: Vec<Option<Reference>>,
    /// True until the version has made its first runs.
    pub is_new: bool,
}

/// The state of a Processor, as its spec or its deletion asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State<'a> {
    /// The version runs, and its outcomes are written.
    Runs,
    /// The version runs, and nothing is written.
    Observes,
    /// No run begins.
    Suspended,
    /// The Processor is being deleted. The text says what the deletion waits for.
    Ends(&'a str),
}

/// The status, reason and message of a condition.
struct Finding {
    status: &'static str,
    reason: String,
    message: String,
    /// The longest message, in characters.
    longest: usize,
}

/// Computes the status of a Processor.
pub fn compute(known: &Known<'_>) -> ProcessorStatus {
    let findings = [("Loaded", loaded(known)), ("Synced", synced(known)), ("Ready", ready(known))];
    let findings = findings.into_iter().chain(limited(known).map(|finding| (LIMITED, finding)));
    let findings = findings.chain(serving(known).map(|finding| (SERVING, finding)));
    let findings = findings.chain(connected(known).map(|finding| (CONNECTED, finding)));
    let conditions = findings.map(|(kind, finding)| condition(kind, finding, known)).collect();
    let running = known.running.as_ref();
    // A new process runs the artifact that ran last, whatever the spec names, unless that must not
    // run any longer.
    let may_come = known.fault.is_none_or(|fault| fault.former != Former::Ends);
    let before = may_come.then_some(known.before);
    let last_failure = running.and_then(|running| running.status.last_failure.as_ref());
    ProcessorStatus {
        observed_generation: known.generation,
        module: running.map(module).or_else(|| before.and_then(|before| before.module.clone())),
        libraries: running
            .map(libraries)
            .or_else(|| before.map(|before| before.libraries.clone()))
            .unwrap_or_default(),
        reconciles: running.map(reconciles).unwrap_or_default(),
        finalizers: known.finalizers.clone(),
        counts: running.and_then(|running| counts(known, running)),
        last_failure: last_failure.map(failure).or_else(|| known.before.last_failure.clone()),
        conditions,
    }
}

fn counts(known: &Known<'_>, running: &Running<'_>) -> Option<Counts> {
    if is_repeated(known, running) {
        return known.before.counts.clone();
    }
    let (objects, failing) = (running.status.objects as u64, running.status.failing as u64);
    Some(Counts { objects, failing })
}

fn module(running: &Running<'_>) -> ModuleStatus {
    let version = &running.status.version;
    ModuleStatus {
        digest: version.digest.to_string(),
        name: running.description.name.clone(),
        version: version.version.clone(),
        image: image(running, 0),
    }
}

fn libraries(running: &Running<'_>) -> Vec<LibraryStatus> {
    let libraries = running.status.version.libraries.iter().zip(1..);
    let of = libraries.map(|((interface, digest), at)| LibraryStatus {
        interface: interface.clone(),
        digest: digest.to_string(),
        image: image(running, at),
    });
    of.collect()
}

/// Returns the artifact that a module comes from, the processor's own first.
fn image(running: &Running<'_>, at: usize) -> Option<String> {
    running.images.get(at)?.as_ref().map(Reference::to_string)
}

fn reconciles(running: &Running<'_>) -> Vec<ReconciledKind> {
    let reconcilers = running.description.reconcilers.iter();
    let of = reconcilers.map(|of| ReconciledKind {
        name: of.name.clone(),
        group: of.of.kind.group.clone(),
        version: of.of.kind.version.clone(),
        kind: of.of.kind.kind.clone(),
        finalizers: of.finalizers.clone(),
    });
    of.collect()
}

fn failure(failure: &host::LastFailure) -> LastFailure {
    let (key, message) = (&failure.key, shortened(&failure.message));
    let place = key.namespace().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    let object = format!("{} {place}{}", key.reconciler(), key.name());
    LastFailure { object, time: time(failure.at), message }
}

// === conditions ===

fn loaded(known: &Known<'_>) -> Finding {
    match (known.fault, &known.running) {
        (Some(fault), running) if fault.is_pulling() => {
            let former = running.as_ref().map(|running| {
                format!("; the former version {} keeps running", running.status.version.version)
            });
            let message = format!("{}{}", fault.message, former.unwrap_or_default());
            Finding::unknown(fault.reason, message)
        }
        (Some(fault), Some(_)) if fault.former == Former::StaysBroken => {
            Finding::no(fault.reason, fault.message.clone())
        }
        (Some(fault), Some(running)) => {
            let version = &running.status.version.version;
            // Rules come last, one per line, so that they can be copied.
            let message = if fault.reason == Reason::RightsMissing && fault.message.contains('\n') {
                format!("the former version {version} keeps running; {}", fault.message)
            } else {
                format!("{}; the former version {version} keeps running", fault.message)
            };
            Finding::no(fault.reason, message).with_rules()
        }
        (Some(fault), None) => Finding::no(fault.reason, fault.message.clone()).with_rules(),
        (None, Some(running)) => {
            let version = &running.status.version;
            let (name, number) = (&running.description.name, &version.version);
            let message = format!("{name} {number} is loaded");
            match not_resolved(&known.away) {
                None => Finding::yes(Reason::Loaded, message),
                Some(away) => {
                    Finding::yes(Reason::RegistryUnavailable, format!("{message}; {away}"))
                }
            }
        }
        (None, None) => Finding::unknown(Reason::Loading, "the module is being loaded"),
    }
}

/// Lists the tags that are not resolved, and since when, for a message.
fn not_resolved(away: &[(Reference, Away)]) -> Option<String> {
    let texts: Vec<String> = away
        .iter()
        .map(|(reference, Away { since, why })| {
            format!("`{reference}` has not been resolved since {}: {why}", time(*since))
        })
        .collect();
    (!texts.is_empty()).then(|| listed(&texts))
}

fn synced(known: &Known<'_>) -> Finding {
    let Some(running) = &known.running else {
        return Finding::unknown(Reason::NotRunning, "nothing runs");
    };
    let status = running.status;
    if !status.conflicts.is_empty() {
        return Finding::no(Reason::FieldConflict, listed(&status.conflicts));
    }
    if !status.denied.is_empty() {
        return Finding::no(Reason::Denied, listed(&status.denied));
    }
    if status.failing > 0 {
        let last = status.last_failure.as_ref();
        let last = last.map(|last| format!("; the last: {}", last.message)).unwrap_or_default();
        let message = format!("{} of {} objects fail{last}", status.failing, status.objects);
        return Finding::no(Reason::ObjectsFail, message);
    }
    match known.state {
        State::Suspended => {
            Finding::unknown(Reason::Suspended, "no runs begin: spec.suspend is true")
        }
        State::Observes => {
            Finding::unknown(Reason::Observed, "nothing is written: spec.mode is Observe")
        }
        State::Ends(_) => Finding::unknown(Reason::Ending, "the Processor is being deleted"),
        State::Runs if !missing(running).0.is_empty() => Finding::unknown(
            Reason::KindNotServed,
            "a reconciled kind is not served by the cluster",
        ),
        State::Runs if !status.unwatched.is_empty() => {
            Finding::unknown(Reason::NotWatched, not_watched(&status.unwatched))
        }
        State::Runs if running.is_new => repeated(known, running).unwrap_or_else(|| {
            Finding::unknown(Reason::Reconciling, "the first runs are being made")
        }),
        State::Runs => {
            Finding::yes(Reason::Synced, format!("all {} objects are reconciled", status.objects))
        }
    }
}

fn not_watched(unwatched: &[String]) -> String {
    format!(
        "nothing is reconciled of {}, since the ServiceAccount may not list and watch all of it: allow that, or have the processor declare less, as a namespace in its configuration",
        listed(unwatched)
    )
}

/// Returns the last written `Synced` if a former host wrote it about the same version and spec:
/// until the first runs are made, nothing is known to have changed.
fn repeated(known: &Known<'_>, running: &Running<'_>) -> Option<Finding> {
    let before = known.before.conditions.iter().find(|before| before.type_ == "Synced")?;
    let status = STATUSES.into_iter().find(|status| before.status == *status)?;
    is_repeated(known, running)
        .then(|| Finding::new(status, &before.reason, before.message.clone()))
}

fn is_repeated(known: &Known<'_>, running: &Running<'_>) -> bool {
    running.is_new
        && known.before.observed_generation == known.generation
        && known.before.module.as_ref() == Some(&module(running))
        && known.before.libraries == libraries(running)
}

fn ready(known: &Known<'_>) -> Finding {
    let Some(running) = &known.running else {
        return match (known.state, known.fault) {
            (State::Ends(waits), Some(fault)) => Finding::no(fault.reason, waits),
            (_, Some(fault)) => {
                Finding::no(fault.reason, format!("nothing runs: {}", fault.message))
            }
            (_, None) => Finding::no(Reason::Loading, "the module is being loaded"),
        };
    };
    if let State::Ends(waits) = known.state {
        return Finding::no(Reason::Ending, waits);
    }
    if known.state == State::Suspended {
        return Finding::no(Reason::Suspended, "no runs begin: spec.suspend is true");
    }
    let (missed, other) = missing(running);
    if !missed.is_empty() {
        let message = format!("waits for the CustomResourceDefinition of {}", listed(&missed));
        return Finding::no(Reason::KindNotServed, message);
    }
    if !running.status.missing_rights.is_empty() {
        let rights = listed(&running.status.missing_rights);
        let mut message = format!("the ServiceAccount lacks what the processor declares: {rights}");
        if !running.status.unwatched.is_empty() {
            message = format!("{message}; {}", not_watched(&running.status.unwatched));
        }
        return Finding::no(Reason::RightsMissing, message);
    }
    if !running.status.not_held.is_empty() {
        let message = format!(
            "the ServiceAccount does not hold in all namespaces the rules that the processor grants; the rules of a ClusterRole for it:\n{}",
            granted::lines(&running.status.not_held)
        );
        return Finding::no(Reason::RightsMissing, message).with_rules();
    }
    if !known.not_started.is_empty() {
        return Finding::no(Reason::FinalizerShared, listed(known.not_started));
    }
    works(known, running, &other)
}

/// Returns `Ready` of a running version, with the kinds that are not served.
fn works(known: &Known<'_>, running: &Running<'_>, missing: &[String]) -> Finding {
    let mut message = match known.state {
        State::Observes => "runs, and nothing is written: spec.mode is Observe".to_owned(),
        _ => "runs".to_owned(),
    };
    if !missing.is_empty() {
        message = format!("{message}; not served by the cluster: {}", listed(missing));
    }
    if let Some(fault) = known.fault.filter(|fault| fault.former != Former::StaysBroken) {
        let version = &running.status.version.version;
        return Finding::yes(
            Reason::FormerVersion,
            format!(
                "the former version {version} {message}; what the spec asks for is not loaded ({})",
                fault.reason
            ),
        );
    }
    let reason = if known.state == State::Observes { Reason::Observes } else { Reason::Runs };
    Finding::yes(reason, message)
}

/// Returns `Limited`, with the limits of the host that the processor meets; `None` as long as it
/// has never met one.
fn limited(known: &Known<'_>) -> Option<Finding> {
    let met = known.running.as_ref().map_or(&[][..], |running| &running.status.limits_met);
    let met: Vec<&host::LimitMet> = met.iter().chain(&known.lowered).collect();
    let messages: Vec<String> = met.iter().map(|met| met.message.clone()).collect();
    if let Some(first) = met.first() {
        return Some(Finding::yes(first.reason, listed(&messages)));
    }
    let was_met = known.before.conditions.iter().any(|before| before.type_ == LIMITED);
    was_met.then(|| Finding::no(Reason::WithinLimits, "no limit of the host is met"))
}

fn serving(known: &Known<'_>) -> Option<Finding> {
    let state = known.running.as_ref().and_then(|running| running.status.hooks.as_ref())?;
    Some(match state {
        Ok(()) => Finding::yes(Reason::Serving, "conversions and admissions are answered"),
        Err(not) => Finding::no(not.reason, not.message.clone()),
    })
}

/// Returns `Connected`, with the clusters that the processor cannot use; `None` if it uses none.
fn connected(known: &Known<'_>) -> Option<Finding> {
    let clusters = &known.running.as_ref()?.status.clusters;
    if clusters.used == 0 {
        return None;
    }
    let problems = &clusters.problems;
    let messages: Vec<String> = problems.iter().map(|(of, why)| unusable(of, why)).collect();
    // The worst one is told.
    let rank = |(_, problem): &&(_, Problem)| match problem.reason {
        Reason::ClusterSlow => 2,
        Reason::ClusterConnecting => 1,
        _ => 0,
    };
    Some(match problems.iter().min_by_key(rank).map(|(_, worst)| worst.reason) {
        Some(slow @ Reason::ClusterSlow) => Finding::yes(slow, listed(&messages)),
        Some(open @ Reason::ClusterConnecting) => Finding::unknown(open, listed(&messages)),
        Some(lasting) => Finding::no(lasting, listed(&messages)),
        None => {
            let message = format!("all {} other clusters are connected", clusters.used);
            Finding::yes(Reason::Connected, message)
        }
    })
}

/// Returns the kinds that the cluster does not serve: those that are reconciled, and the others.
fn missing(running: &Running<'_>) -> (Vec<String>, Vec<String>) {
    let is_reconciled = |kind: &&Kind| {
        let mut always = running.description.reconcilers.iter().filter(|of| !of.on_demand);
        always.any(|reconciler| *reconciler.of.kind == **kind)
    };
    let (reconciled, other): (Vec<&Kind>, Vec<&Kind>) =
        running.status.missing.iter().partition(is_reconciled);
    let shown = |kinds: Vec<&Kind>| kinds.into_iter().map(display_kind).collect();
    (shown(reconciled), shown(other))
}

fn condition(kind: &str, finding: Finding, known: &Known<'_>) -> Condition {
    let before = known.before.conditions.iter().find(|before| before.type_ == kind);
    let since = before.filter(|before| before.status == finding.status);
    let since = since.map(|before| before.last_transition_time.clone());
    Condition {
        type_: kind.to_owned(),
        status: finding.status.to_owned(),
        reason: finding.reason,
        // It may hold what a processor, a registry or another cluster has sent.
        message: shortened_to_characters(&escaped_lines(&finding.message), finding.longest),
        last_transition_time: since.unwrap_or_else(|| time(known.now)),
        observed_generation: known.generation,
    }
}

fn listed(texts: &[String]) -> String {
    let more = texts.len().saturating_sub(MAX_LISTED_ITEMS);
    let mut shown: Vec<&str> = texts.iter().take(MAX_LISTED_ITEMS).map(String::as_str).collect();
    let rest = format!("and {more} more");
    if more > 0 {
        shown.push(&rest);
    }
    shown.join("; ")
}

fn shortened(message: &str) -> String {
    shortened_to_characters(message, MAX_MESSAGE_CHARACTERS)
}

fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

// === impl Finding ===

impl Finding {
    fn new(status: &'static str, reason: &str, message: impl Into<String>) -> Self {
        let longest = MAX_MESSAGE_CHARACTERS;
        Self { status, reason: reason.to_owned(), message: message.into(), longest }
    }

    /// Leaves room for the rules that a message may list.
    fn with_rules(self) -> Self {
        let has_rules = self.reason == Reason::RightsMissing.as_str();
        let longest = if has_rules { MAX_RULES_CHARACTERS } else { self.longest };
        Self { longest, ..self }
    }

    fn yes(reason: Reason, message: impl Into<String>) -> Self {
        Self::new("True", reason.as_str(), message)
    }

    fn no(reason: Reason, message: impl Into<String>) -> Self {
        Self::new("False", reason.as_str(), message)
    }

    fn unknown(reason: Reason, message: impl Into<String>) -> Self {
        Self::new("Unknown", reason.as_str(), message)
    }
}
