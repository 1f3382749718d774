//! The cells of a pod: the number of ready containers, its status or the reason for which it does
//! not run, and the number of restarts.

use jiff::Timestamp;
use serde_json::Value;

use super::age;
use crate::builtin::edit::{at, items, text};

/// The counts of a pod's containers.
#[derive(Default)]
struct Counted {
    ready: usize,
    restarts: i64,
    last_restart: Option<Value>,
}

pub(super) fn cells(object: &Value, old: Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    // Sidecars are started before the other containers and run beside them.
    let sidecars: Vec<&str> = items(&spec["initContainers"])
        .iter()
        .filter(|container| container["restartPolicy"] == "Always")
        .map(|container| text(container, "name"))
        .collect();
    let (mut counted, mut beside) = (Counted::default(), Counted::default());
    let mut reason = initializing(spec, status, &sidecars, [&mut counted, &mut beside]);
    if reason.is_none() || holds(status, "Initialized") {
        counted = beside;
        reason = Some(running(status, &mut counted, reason));
    }
    let phase = text(status, "phase");
    let gone = !at(object, &["metadata", "deletionTimestamp"]).is_null();
    let reason = match text(status, "reason") {
        "NodeLost" if gone => "Unknown".to_owned(),
        _ if gone && !matches!(phase, "Failed" | "Succeeded") => "Terminating".to_owned(),
        _ => reason.unwrap_or_default(),
    };
    let restarts = match &counted.last_restart {
        Some(last) if counted.restarts > 0 => {
            let ago = age::since(last, now);
            format!("{} ({} ago)", counted.restarts, ago.as_str().unwrap_or(""))
        }
        _ => counted.restarts.to_string(),
    };
    let none = |text: &str| Value::from(if text.is_empty() { "<none>" } else { text });
    let gates = items(&spec["readinessGates"]);
    let all = items(&spec["containers"]).len() + sidecars.len();
    vec![
        text(&object["metadata"], "name").into(),
        format!("{}/{all}", counted.ready).into(),
        reason.into(),
        restarts.into(),
        old,
        none(text(status, "podIP")),
        none(text(spec, "nodeName")),
        none(text(status, "nominatedNodeName")),
        none(&gates_text(gates, status)),
    ]
}

fn gates_text(gates: &[Value], status: &Value) -> String {
    if gates.is_empty() {
        return String::new();
    }
    let conditions = items(&status["conditions"]);
    let open = gates.iter().filter(|gate| {
        let holds = |condition: &Value| {
            condition["type"] == gate["conditionType"] && condition["status"] == "True"
        };
        conditions.iter().any(holds)
    });
    format!("{}/{}", open.count(), gates.len())
}

impl Counted {
    fn add(&mut self, container: &Value) {
        self.restarts += container["restartCount"].as_i64().unwrap_or(0);
        let finished = at(container, &["lastState", "terminated", "finishedAt"]);
        if finished.as_str() > self.last_restart.as_ref().and_then(Value::as_str) {
            self.last_restart = Some(finished.clone());
        }
    }
}

/// Returns the status of the first init container that is not done. Counts all init containers, and
/// the sidecars separately.
fn initializing(
    spec: &Value,
    status: &Value,
    sidecars: &[&str],
    [counted, beside]: [&mut Counted; 2],
) -> Option<String> {
    let total = items(&spec["initContainers"]).len();
    for (index, container) in items(&status["initContainerStatuses"]).iter().enumerate() {
        counted.add(container);
        let is_sidecar = sidecars.contains(&text(container, "name"));
        if is_sidecar {
            beside.add(container);
        }
        let state = &container["state"];
        let terminated = &state["terminated"];
        if terminated["exitCode"] == 0 {
            continue;
        }
        if is_sidecar && container["started"] == true {
            let is_ready = usize::from(container["ready"] == true);
            counted.ready += is_ready;
            beside.ready += is_ready;
            continue;
        }
        if !terminated.is_null() {
            return Some(format!("Init:{}", exit(terminated)));
        }
        return Some(match text(&state["waiting"], "reason") {
            "" | "PodInitializing" => format!("Init:{index}/{total}"),
            reason => format!("Init:{reason}"),
        });
    }
    None
}

fn holds(status: &Value, condition: &str) -> bool {
    let is_it = |it: &Value| it["type"] == condition && it["status"] == "True";
    items(&status["conditions"]).iter().any(is_it)
}

/// Returns the status of the containers, if it is more specific than the known one.
fn running(status: &Value, counted: &mut Counted, known: Option<String>) -> String {
    let mut reason = known.unwrap_or_else(|| match text(status, "reason") {
        "" => text(status, "phase").to_owned(),
        reason => reason.to_owned(),
    });
    let gated = items(&status["conditions"]).iter().any(|condition| {
        condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated"
    });
    if gated {
        "SchedulingGated".clone_into(&mut reason);
    }
    let mut has_running = false;
    for container in items(&status["containerStatuses"]).iter().rev() {
        counted.add(container);
        let state = &container["state"];
        let waiting = text(&state["waiting"], "reason");
        if !waiting.is_empty() {
            waiting.clone_into(&mut reason);
        } else if !state["terminated"].is_null() {
            reason = exit(&state["terminated"]);
        } else if container["ready"] == true && !state["running"].is_null() {
            has_running = true;
            counted.ready += 1;
        }
    }
    if reason == "Completed" && has_running {
        let is_ready = holds(status, "Ready");
        if is_ready { "Running" } else { "NotReady" }.clone_into(&mut reason);
    }
    reason
}

/// Returns how a container ended.
fn exit(terminated: &Value) -> String {
    match (text(terminated, "reason"), terminated["signal"].as_i64().unwrap_or(0)) {
        ("", 0) => format!("ExitCode:{}", terminated["exitCode"].as_i64().unwrap_or(0)),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}
