//! Ory Oathkeeper: installed where v1beta1 is allowed, removed where nobody needs it any more.

mod deployment;
mod jwks;
mod object;
mod rule;

use std::time::Duration;

use api_gateway_module::{MODULE_NAMESPACE, domain, object::Existing};
use istio::{cluster::Size, kubernetes::Node};
use mortise_sdk::{
    Error, GrantedRule, Kind, Level, Manifest, ObjectRef, Selection, kubernetes, time,
};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    blocker,
    status::{READY, Reason, Report, State},
    work::{Stop, Work, managed, unreadable},
};

/// The fields that are read of Nodes.
pub(crate) const NODE_FIELDS: [&str; 1] = ["status.capacity"];
/// The fields that are read of the Deployment.
pub(crate) const DEPLOYMENT_FIELDS: [&str; 2] = ["metadata.labels", "status.conditions"];
const NAME: &str = "ory-oathkeeper";
const ACCOUNT: &str = "oathkeeper-maester-account";
const ROLE: &str = "oathkeeper-maester-role";
const BINDING: &str = "oathkeeper-maester-role-binding";
const KEYS: &str = "ory-oathkeeper-jwks-secret";
const CONFIGURATION: &str = "ory-oathkeeper-config";
const NOT_RECONCILED: &str = "Oathkeeper did not reconcile successfully";
const NOT_DELETED: &str = "Oathkeeper did not delete properly";
const NOT_STARTED: &str = "Oathkeeper did not start successfully";
const VERBS: [&str; 8] =
    ["deletecollection", "create", "delete", "get", "list", "patch", "update", "watch"];

/// Returns the rules of the role of Oathkeeper Maester, which the processor grants.
pub fn grants() -> [GrantedRule; 1] {
    [GrantedRule::new(["oathkeeper.ory.sh"], ["rules"], VERBS)]
}

/// Returns the definition of Oathkeeper's rules.
pub fn rule_definition() -> Value {
    rule::definition()
}

/// Returns all objects, those first without which others do not work.
pub(crate) fn parts() -> Vec<ObjectRef> {
    let of_core = |kind| Kind::new("", "v1", kind);
    let access = |kind| Kind::new("rbac.authorization.k8s.io", "v1", kind);
    let here = |kind, name: &str| ObjectRef::new(kind, Some(MODULE_NAMESPACE), name);
    vec![
        definition(),
        here(Kind::new("security.istio.io", "v1beta1", "PeerAuthentication"), object::METRICS),
        here(of_core("ServiceAccount"), ACCOUNT),
        ObjectRef::new(access("ClusterRole"), None, ROLE),
        ObjectRef::new(access("ClusterRoleBinding"), None, BINDING),
        here(of_core("Secret"), KEYS),
        here(of_core("ConfigMap"), CONFIGURATION),
        autoscaler(),
        here(of_core("ServiceAccount"), NAME),
        here(of_core("Service"), object::API),
        here(of_core("Service"), object::METRICS),
        here(of_core("Service"), object::PROXY),
        deployment(),
        here(Kind::new("policy", "v1", "PodDisruptionBudget"), NAME),
    ]
}

fn definition() -> ObjectRef {
    let kind = Kind::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    ObjectRef::new(kind, None, rule::NAME)
}

fn autoscaler() -> ObjectRef {
    let kind = Kind::new("autoscaling", "v2", "HorizontalPodAutoscaler");
    ObjectRef::new(kind, Some(MODULE_NAMESPACE), NAME)
}

pub(crate) fn deployment() -> ObjectRef {
    ObjectRef::new(Kind::new("apps", "v1", "Deployment"), Some(MODULE_NAMESPACE), NAME)
}

/// Returns the description for a write that failed.
pub(crate) fn failed_write(is_deleted: bool) -> Report {
    let description = if is_deleted { NOT_DELETED } else { NOT_RECONCILED };
    Report::error(Reason::OathkeeperReconcileFailed, description)
}

/// Installs Oathkeeper, or removes it.
pub(crate) fn reconcile(work: &mut Work<'_>) -> Result<(), Stop> {
    let host = work.host;
    let failed = |description| unreadable(Reason::OathkeeperReconcileFailed, description, host);
    if work.is_deleted() {
        return remove(work).map_err(failed(NOT_DELETED));
    }
    let refused = |message| Report::error(Reason::OathkeeperReconcileFailed, message);
    let grant = work.config.grant().map_err(|message| Stop::Report(refused(message)))?;
    if grant.is_granted(host).map_err(failed(NOT_RECONCILED))? {
        install(work)?;
        return wait(work);
    }
    if blocker::has_ory_rules(host).map_err(failed("Failed to list Ory rules"))? {
        return Ok(());
    }
    remove(work).map_err(failed(NOT_DELETED))
}

fn remove(work: &mut Work<'_>) -> Result<(), Error> {
    parts().into_iter().try_for_each(|part| work.delete(part))
}

fn install(work: &mut Work<'_>) -> Result<(), Stop> {
    let failed = unreadable(Reason::OathkeeperReconcileFailed, NOT_RECONCILED, work.host);
    let nodes = Selection::of::<Node>().fields(NODE_FIELDS);
    let nodes: Vec<Node> = work.host.list(&nodes).map_err(&failed)?;
    let size = Size::of(&nodes).map_err(|error| fault(work, &error.to_string()))?;
    let domain = domain::of_cluster(work.host).map_err(&failed)?;
    work.apply(Manifest::json(&managed(rule_definition())));
    for part in object::before_keys() {
        work.apply(Manifest::json(&managed(part)));
    }
    keys(work)?;
    work.apply(Manifest::json(&managed(object::configuration(&domain))));
    if size == Size::Production {
        work.apply(Manifest::json(&managed(object::autoscaler())));
    } else {
        work.delete(autoscaler()).map_err(&failed)?;
    }
    for part in object::after_keys() {
        work.apply(Manifest::json(&managed(part)));
    }
    let deployment = managed(deployment::build(size, &work.config.images));
    // The number of Pods belongs to the autoscaler, or to people.
    work.apply(Manifest::json(&deployment).leave("spec.replicas"));
    work.apply(Manifest::json(&managed(object::budget())));
    Ok(())
}

/// Makes the key with which tokens are signed, once: services that know its public half would
/// refuse tokens of another one.
fn keys(work: &mut Work<'_>) -> Result<(), Stop> {
    let failed = unreadable(Reason::OathkeeperReconcileFailed, NOT_RECONCILED, work.host);
    let of = ObjectRef::of::<kubernetes::Secret>(Some(MODULE_NAMESPACE), KEYS);
    if Existing::find(work.host, &of).map_err(failed)?.is_some() {
        return Ok(());
    }
    let keys = jwks::make().map_err(|error| fault(work, &error))?;
    work.apply(Manifest::json(&managed(object::keys(&keys))).create_only());
    Ok(())
}

fn fault(work: &Work<'_>, cause: &str) -> Stop {
    work.host.log(Level::Warn, NOT_RECONCILED, &[("error", cause)]);
    Stop::Report(Report::error(Reason::OathkeeperReconcileFailed, NOT_RECONCILED))
}

/// Fails if the Deployment is not available: it is being started for a while, then it is an error.
fn wait(work: &mut Work<'_>) -> Result<(), Stop> {
    let failed = unreadable(Reason::OathkeeperReconcileFailed, NOT_RECONCILED, work.host);
    let found: Option<Started> =
        work.host.get_ref(&deployment(), &DEPLOYMENT_FIELDS).map_err(failed)?;
    if found.is_some_and(|found| found.is_available()) {
        return Ok(());
    }
    let error = || Report::error(Reason::OathkeeperReconcileFailed, NOT_STARTED);
    let former = work.gateway.status.as_ref();
    let condition = former.and_then(|status| {
        status.conditions.iter().find(|condition| condition.condition_type == READY)
    });
    let reason = condition.map(|condition| condition.reason.as_str()).unwrap_or_default();
    let is_error = former.is_some_and(|status| status.state == format!("{:?}", State::Error));
    if is_error && reason == Reason::OathkeeperReconcileFailed.name() {
        return Err(Stop::Report(error()));
    }
    let patience = work.config.oathkeeper_start();
    let began = condition
        .filter(|_| reason == Reason::ReconcileProcessing.name())
        .and_then(|condition| time::parse(&condition.last_transition_time));
    let now = work.host.now();
    let passed = Duration::from_millis(began.map_or(0, |began| now.saturating_sub(began)));
    let Some(rest) = patience.checked_sub(passed).filter(|rest| !rest.is_zero()) else {
        return Err(Stop::Report(error()));
    };
    let outcome = std::mem::take(&mut work.outcome);
    work.outcome = outcome.requeue_after(rest);
    Err(Stop::Report(Report::processing()))
}

/// The Deployment, of which only its availability matters.
#[derive(Deserialize)]
struct Started {
    #[serde(default)]
    status: Value,
}

impl Started {
    fn is_available(&self) -> bool {
        let conditions = self.status.get("conditions").and_then(Value::as_array);
        let is_it =
            |condition: &Value| condition["type"] == "Available" && condition["status"] == "True";
        conditions.into_iter().flatten().any(is_it)
    }
}
