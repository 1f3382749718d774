//! `LimitRange`s: the amounts that containers of new pods get where they ask for none, and the
//! least and the most that pods and claims may ask for.

#[cfg(test)]
mod tests;

use std::{cmp::Ordering, collections::BTreeMap};

use serde_json::Value;

use super::super::{
    edit::{at, child, items, items_mut, members, set, text},
    pod::containers,
    quantity::Quantity,
};
use crate::field_error::aggregate;

/// Quantities by the name of their resource.
type Amounts = BTreeMap<String, Quantity>;

/// The requests and limits of a container, a pod or a claim.
struct Asked {
    requests: Amounts,
    limits: Amounts,
}

/// Fills in requests and limits that a pod's containers lack, and names them in an annotation.
pub(super) fn fill(pod: &mut Value, range: &Value) {
    let defaults = |key| -> BTreeMap<&String, &Value> {
        let limits = items(at(range, &["spec", "limits"])).iter();
        let of_containers = limits.filter(|limit| text(limit, "type") == "Container");
        of_containers.flat_map(|limit| members(&limit[key])).collect()
    };
    let defaults = [
        ("requests", "request", defaults("defaultRequest")),
        ("limits", "limit", defaults("default")),
    ];
    let mut filled = Vec::new();
    let Some(spec) = child(pod, "spec") else { return };
    for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
        for container in items_mut(spec, list) {
            let name = text(container, "name").to_owned();
            for (key, word, defaults) in &defaults {
                let asked = at(container, &["resources", key]).clone();
                let is_absent = |resource: &str| asked.get(resource).is_none();
                let mut absent = Vec::new();
                for (resource, amount) in
                    defaults.iter().filter(|(resource, _)| is_absent(resource))
                {
                    absent.push(resource.as_str());
                    if let Some(resources) = child(container, "resources")
                        && let Some(amounts) = child(resources, key)
                    {
                        set(amounts, resource, (*amount).clone());
                    }
                }
                if !absent.is_empty() {
                    filled.push(format!("{} {word} for {what} {name}", absent.join(", ")));
                }
            }
        }
    }
    if filled.is_empty() {
        return;
    }
    if let Some(metadata) = child(pod, "metadata")
        && let Some(annotations) = child(metadata, "annotations")
    {
        let text = format!("LimitRanger plugin set: {}", filled.join("; "));
        set(annotations, "kubernetes.io/limit-ranger", text);
    }
}

/// Returns why a pod or a claim asks for less or more than it may; nothing for other kinds.
pub(super) fn check(definition: &str, object: &Value, range: &Value) -> Option<String> {
    let spec = &object["spec"];
    let containers: Vec<Asked> = containers(spec).map(Asked::by).collect();
    let mut faults = Vec::new();
    for limit in items(at(range, &["spec", "limits"])) {
        match (definition, text(limit, "type")) {
            ("api.core.v1.Pod", "Container") => {
                for asked in &containers {
                    check_limit(limit, asked, &mut faults);
                }
            }
            ("api.core.v1.Pod", "Pod") => check_limit(limit, &Asked::by_pod(spec), &mut faults),
            ("api.core.v1.PersistentVolumeClaim", "PersistentVolumeClaim") => {
                let asked = Asked { limits: Amounts::new(), ..Asked::by(spec) };
                check_limit(limit, &asked, &mut faults);
            }
            _ => {}
        }
    }
    aggregate(&faults)
}

fn check_limit(limit: &Value, asked: &Asked, faults: &mut Vec<String>) {
    let kind = text(limit, "type");
    let is_of_claims = kind == "PersistentVolumeClaim";
    // A claim has only requests.
    let of_max = if is_of_claims { ["request", "limit"] } else { ["limit", "request"] };
    let bounds = [
        ("min", "minimum", Ordering::Less, ["request", "limit"]),
        ("max", "maximum", Ordering::Greater, of_max),
    ];
    let mut add = |fault| {
        if !faults.contains(&fault) {
            faults.push(fault);
        }
    };
    for (key, word, beyond, names) in bounds {
        for (resource, bound) in amounts(&limit[key]) {
            let usage = format!("{word} {resource} usage per {kind} is {}", bound.text());
            match asked.beyond(&resource, bound, beyond, names) {
                Err(absent) => add(format!("{usage}.  No {absent} is specified")),
                Ok(Some((name, amount))) => {
                    add(format!("{usage}, but {name} is {}", amount.text()));
                }
                Ok(None) => {}
            }
        }
    }
    for (resource, bound) in amounts(&limit["maxLimitRequestRatio"]) {
        if let Some(fault) = asked.ratio_fault(&resource, bound).filter(|_| !is_of_claims) {
            let text = bound.text();
            add(format!("{resource} max limit to request ratio per {kind} is {text}, but {fault}"));
        }
    }
}

/// Parses a map of quantities.
fn amounts(value: &Value) -> Amounts {
    let parsed = members(value).map(|(name, amount)| (name, amount.as_str()));
    parsed.filter_map(|(name, text)| Some((name.clone(), Quantity::parse(text?)?))).collect()
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        sum.entry(name.clone()).and_modify(|sum| *sum = sum.plus(*amount)).or_insert(*amount);
    }
}

fn raise(most: &mut Amounts, to: &Amounts) {
    for (name, amount) in to {
        let most = most.entry(name.clone()).or_insert(*amount);
        if most.nanos() < amount.nanos() {
            *most = *amount;
        }
    }
}

/// Returns the amounts of a pod: of all containers that run at once, where an init container runs
/// beside the restartable ones before it; the pod's own CPU and memory come before these.
fn of_pod(spec: &Value, list: &str) -> Amounts {
    let of = |from: &Value| amounts(at(from, &["resources", list]));
    let (mut sum, mut restartable, mut most) = (Amounts::new(), Amounts::new(), Amounts::new());
    for container in items(&spec["containers"]) {
        add(&mut sum, &of(container));
    }
    for container in items(&spec["initContainers"]) {
        let mut own = of(container);
        if container["restartPolicy"] == "Always" {
            add(&mut sum, &own);
            add(&mut restartable, &own);
            raise(&mut most, &restartable);
        } else {
            add(&mut own, &restartable);
            raise(&mut most, &own);
        }
    }
    raise(&mut sum, &most);
    sum.extend(of(spec).into_iter().filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory")));
    sum
}

// === impl Asked ===

impl Asked {
    /// Returns what a container or a claim's spec asks for.
    fn by(spec: &Value) -> Self {
        let of = |list| amounts(at(spec, &["resources", list]));
        Self { requests: of("requests"), limits: of("limits") }
    }

    fn by_pod(spec: &Value) -> Self {
        Self { requests: of_pod(spec, "requests"), limits: of_pod(spec, "limits") }
    }

    fn of(&self, name: &str, resource: &str) -> Option<Quantity> {
        let amounts = if name == "limit" { &self.limits } else { &self.requests };
        amounts.get(resource).copied()
    }

    /// Returns the first of the two amounts that is beyond a bound. Fails with the first name if
    /// there is none of that name.
    fn beyond<'a>(
        &self,
        resource: &str,
        bound: Quantity,
        beyond: Ordering,
        names: [&'a str; 2],
    ) -> Result<Option<(&'a str, Quantity)>, &'a str> {
        let [first, _] = names;
        self.of(first, resource).ok_or(first)?;
        let present = names.into_iter().filter_map(|name| Some((name, self.of(name, resource)?)));
        let is_beyond = |amount: Quantity| amount.nanos().cmp(&bound.nanos()) == beyond;
        Ok(present.into_iter().find(|(_, amount)| is_beyond(*amount)))
    }

    #[expect(clippy::cast_precision_loss, reason = "Kubernetes divides with the same precision")]
    fn ratio_fault(&self, resource: &str, bound: Quantity) -> Option<String> {
        let nanos = |name| self.of(name, resource).map(Quantity::nanos).filter(|nanos| *nanos != 0);
        let absent = |name| Some(format!("no {name} is specified or {name} is 0"));
        let Some(request) = nanos("request") else { return absent("request") };
        let Some(limit) = nanos("limit") else { return absent("limit") };
        let ratio = limit as f64 / request as f64;
        let is_beyond = ratio * 1e9 > bound.nanos() as f64;
        is_beyond.then(|| format!("provided ratio is {ratio:.6}"))
    }
}
