//! The reason why a workload does not become ready.

use mortise_sdk::{Error, Host, Kind, Selection, object::Metadata};
use serde::Deserialize;

use crate::workload::{Condition, Workload};

pub(crate) const POD_FIELDS: [&str; 9] = [
    "metadata.labels",
    "spec.containers[].name",
    "spec.containers[].image",
    "status.conditions",
    "status.phase",
    "status.containerStatuses[].name",
    "status.containerStatuses[].state",
    "status.initContainerStatuses[].name",
    "status.initContainerStatuses[].state",
];
pub(crate) const EVENT_FIELDS: [&str; 6] =
    ["type", "reason", "message", "lastTimestamp", "eventTime", "involvedObject.uid"];

/// Reasons why a container waits that do not pass by themselves, or not soon.
const STUCK: [&str; 8] = [
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
];
/// The longest text that is taken over from other objects, in characters.
const MAX_CAUSE_CHARACTERS: usize = 300;

/// The reason why a workload is not ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) message: String,
    /// True if there is no use in waiting.
    pub(crate) is_certain: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Pod {
    metadata: Metadata,
    status: PodStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodStatus {
    conditions: Vec<Condition>,
    container_statuses: Vec<ContainerStatus>,
    init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct ContainerStatus {
    name: String,
    state: ContainerState,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct ContainerState {
    waiting: Option<Halt>,
    terminated: Option<Halt>,
}

/// Why a container does not run.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Halt {
    reason: String,
    message: String,
    exit_code: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Event {
    metadata: Metadata,
    #[serde(rename = "type")]
    severity: String,
    reason: String,
    message: String,
    last_timestamp: Option<String>,
    #[serde(rename = "eventTime")]
    time: Option<String>,
}

/// Returns the kind of events.
pub(crate) fn event() -> Kind {
    Kind::new("", "v1", "Event")
}

/// Returns the reason why a workload is not ready.
pub(crate) fn of(workload: &Workload, host: &Host) -> Result<Cause, Error> {
    let title = workload.title();
    let conditions = |condition_type: &str, status: &str| {
        let condition = workload.live.as_ref()?.condition(condition_type)?;
        (condition.status == status).then(|| told(&condition.reason, &condition.message))
    };
    let failure = conditions("ReplicaFailure", "True");
    let overdue = conditions("Progressing", "False");
    let is_certain = failure.is_some() || overdue.is_some();
    let (what, is_stuck) = match (of_pods(workload, host)?, failure.or(overdue)) {
        (Some((pod, is_stuck)), _) => (pod, is_stuck),
        (None, Some(condition)) => (condition, true),
        (None, None) => (
            of_events(workload.live.as_ref().map(|live| &live.metadata), host)?
                .unwrap_or_else(|| workload.progress()),
            false,
        ),
    };
    Ok(Cause {
        message: format!("{title} is not ready: {what}"),
        is_certain: is_certain || is_stuck,
    })
}

/// Returns the first Pod that is not ready and why, and whether that will not pass by itself. Pods
/// that are stuck come first.
fn of_pods(workload: &Workload, host: &Host) -> Result<Option<(String, bool)>, Error> {
    let namespace = workload.reference.namespace.as_deref().unwrap_or_default();
    let labels = format!("{}=istio,{}", istio::predicate::MODULE_LABEL, workload.pods());
    let of = Selection::new(Kind::new("", "v1", "Pod"));
    let of = of.namespace(namespace).labels(labels).fields(POD_FIELDS);
    let pods: Vec<Pod> = host.list(&of)?;
    let mut waiting = None;
    for pod in pods.iter().filter(|pod| !pod.metadata.is_deleted() && !pod.is_ready()) {
        let halt = pod.halt();
        let is_stuck = halt.as_ref().is_some_and(|(_, is_stuck)| *is_stuck);
        if is_stuck || waiting.is_none() {
            waiting = Some((pod, halt.map(|(text, _)| text), is_stuck));
        }
        if is_stuck {
            break;
        }
    }
    let Some((pod, halt, is_stuck)) = waiting else { return Ok(None) };
    let event = of_events(Some(&pod.metadata), host)?;
    let unmet = || pod.unmet_condition();
    let reasons: Vec<String> = halt.or_else(unmet).into_iter().chain(event).collect();
    let reasons =
        if reasons.is_empty() { "it is not ready".to_owned() } else { reasons.join("; ") };
    Ok(Some((format!("Pod {}: {reasons}", pod.metadata.name), is_stuck)))
}

/// Returns the last warning about an object.
fn of_events(metadata: Option<&Metadata>, host: &Host) -> Result<Option<String>, Error> {
    let Some(uid) = metadata.and_then(|metadata| metadata.uid.as_deref()) else { return Ok(None) };
    let of = Selection::new(event())
        .namespace(istio::api::ISTIO_NAMESPACE)
        .matching("involvedObject.uid", uid)
        .fields(EVENT_FIELDS);
    let events: Vec<Event> = host.list(&of)?;
    let warnings = events.into_iter().filter(|event| event.severity == "Warning");
    let last = warnings.max_by_key(|event| {
        let time = event.last_timestamp.clone().or_else(|| event.time.clone());
        (time, event.metadata.name.clone())
    });
    Ok(last.map(|event| format!("event {}", told(&event.reason, &event.message))))
}

fn told(reason: &str, message: &str) -> String {
    let message: String = message
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MAX_CAUSE_CHARACTERS)
        .collect();
    if message.is_empty() { reason.to_owned() } else { format!("{reason}: {message}") }
}

// === impl Pod ===

impl Pod {
    fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|one| one.of == "Ready" && one.status == "True")
    }

    /// Returns why a container does not run, and whether that will not pass by itself.
    fn halt(&self) -> Option<(String, bool)> {
        let status = &self.status;
        let all = status.init_container_statuses.iter().chain(&status.container_statuses);
        let mut halts = all.filter_map(|container| {
            let state = &container.state;
            if let Some(halt) = &state.waiting {
                let is_stuck = STUCK.contains(&halt.reason.as_str());
                let text = format!("container {} waits: {}", container.name, halt.told());
                return (is_stuck || !halt.message.is_empty()).then_some((text, is_stuck));
            }
            let halt = state.terminated.as_ref().filter(|halt| halt.exit_code != Some(0))?;
            Some((format!("container {} has ended: {}", container.name, halt.told()), false))
        });
        halts.next()
    }

    /// Returns the condition that keeps the Pod from being ready: the schedule first.
    fn unmet_condition(&self) -> Option<String> {
        let unmet = |condition_type: &str| {
            let mut conditions = self.status.conditions.iter();
            conditions.find(|one| one.of == condition_type && one.status == "False")
        };
        let condition = unmet("PodScheduled").or_else(|| unmet("Ready"))?;
        Some(told(&condition.reason, &condition.message))
    }
}

impl Halt {
    fn told(&self) -> String {
        told(&self.reason, &self.message)
    }
}

/// Returns the Pods that tell the installed version.
pub(crate) fn istio_pods(host: &Host) -> Result<Vec<istio::kubernetes::Pod>, Error> {
    let of = Selection::of::<istio::kubernetes::Pod>()
        .namespace(istio::api::ISTIO_NAMESPACE)
        .labels(format!("{}=istio", istio::predicate::MODULE_LABEL))
        .fields(["metadata.labels", "spec.containers[].name", "spec.containers[].image"]);
    host.list(&of)
}
