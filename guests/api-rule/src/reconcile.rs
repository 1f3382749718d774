//! The reconciliation of an APIRule: from the object to the changes that it needs.

pub use crate::stop::Stop;

use mortise_sdk::{Error, Failure, Host, Outcome, Request};

use crate::{
    annotation,
    api::{ApiRule, ApiRuleStatus, FINALIZER},
    authorization_policy::{self, Callers},
    change::{self, Change},
    config::{self, Config},
    existing,
    gateway::{self, Choice, Lookup},
    istio,
    migration::{self, Round},
    ory,
    produced::{Needed, OryRules, Produced, known},
    request_authentication, status,
    stop::{RETRY_DELAY, too_long},
    v1beta1,
    validation::{self, Failure as Wrong},
    virtual_service,
    workload::{Labels, Missing, Workloads},
};

/// Reconciles one APIRule.
pub fn reconcile(request: &Request, config: &Config, host: &Host) -> Result<Outcome, Failure> {
    let rule = match request.object::<ApiRule>() {
        Ok(Some(rule)) => rule,
        Ok(None) => return Ok(Outcome::new().requeue_never()),
        Err(error) => {
            let status = status::stamp(
                &ApiRule::default(),
                status::error(status::general(&error.to_string())),
                host,
            );
            return Err(Failure::from(error).status(request, &status));
        }
    };
    let is_v1beta1 = annotation::is_v1beta1(&rule);
    if !request.failed_writes.is_empty() {
        let next = if is_v1beta1 {
            v1beta1::failed(&request.failed_writes, host)
        } else {
            status::error(status::describe_failed_writes(&request.failed_writes, host))
        };
        let status = status::stamp(&rule, next, host);
        return Ok(Outcome::new().status(request, &status).requeue_after(RETRY_DELAY));
    }
    if rule.metadata.is_deleted() {
        return delete(&rule, host);
    }
    if is_v1beta1 {
        return v1beta1::reconcile(&rule, request, config, host);
    }
    reconcile_v2(&rule.without_empty_lists(), request, config, host)
}

/// Reconciles an APIRule that was not written in v1beta1.
fn reconcile_v2(
    rule: &ApiRule,
    request: &Request,
    config: &Config,
    host: &Host,
) -> Result<Outcome, Failure> {
    let with_status = |status: ApiRuleStatus| {
        let status = status::stamp(rule, status, host);
        Outcome::new().status(request, &status).finalizers([FINALIZER])
    };
    match changes(rule, config, host) {
        Ok((changes, round)) => {
            let outcome = change::carry_out(changes, with_status(status::ready()));
            Ok(round.carry_out(outcome, rule, request, host))
        }
        Err(Stop::Waiting(description)) => Ok(with_status(status::warning(description))),
        Err(Stop::Wrong(description)) => {
            let failure = Failure::new(&description).retry_after(RETRY_DELAY);
            let status = status::stamp(rule, status::error(description), host);
            Err(failure.status(request, &status))
        }
        Err(Stop::Untold(message)) => Err(Failure::new(message).retry_after(RETRY_DELAY)),
        Err(Stop::Unavailable(error)) => Err(error.into()),
    }
}

/// Returns all errors of an APIRule, even if its gateway cannot be found.
pub fn validate(rule: &ApiRule, host: &Host) -> Result<Vec<Wrong>, Error> {
    validation::validate(rule, &gateway::look_up(rule, host)?, &Workloads::new(host), host)
}

/// Returns the changes that an APIRule needs, if it has no errors, and the round of its migration.
fn changes(rule: &ApiRule, config: &Config, host: &Host) -> Result<(Vec<Change>, Round), Stop> {
    let lookup = gateway::look_up(rule, host)?;
    if let Choice::Gateway(name) = lookup.choice
        && gateway::split(name).is_none()
    {
        return Err(Stop::Untold(format!(
            "expected Gateway {name} to be in the namespace/name format"
        )));
    }
    if let Some(wrong) = validation::discover(&lookup) {
        return Err(Stop::Wrong(validation::describe(&[wrong])));
    }
    if let Some(message) = too_long(rule) {
        return Err(Stop::Wrong(status::general(&message)));
    }
    let existing = Produced::list(rule, host, OryRules::Deleted)?;
    if let Err(message) = config::handler(host)? {
        return Err(Stop::Wrong(validation::describe(&[Wrong::new("", message)])));
    }
    let workloads = Workloads::new(host);
    let wrong = validation::validate(rule, &lookup, &workloads, host)?;
    if !wrong.is_empty() {
        return Err(Stop::Wrong(validation::describe(&wrong)));
    }
    let round = migration::round(rule, !existing.ory_rules.is_empty(), config, host)?;
    let needed = needed(rule, &lookup, &workloads, &round)?;
    Ok((existing.changes(rule, needed, host)?, round))
}

/// Returns the changes that an APIRule needs, without checking it for errors first.
pub fn changes_unchecked(rule: &ApiRule, host: &Host) -> Result<Vec<Change>, Stop> {
    let existing = Produced::list(rule, host, OryRules::Deleted)?;
    let lookup = gateway::look_up(rule, host)?;
    let needed = needed(rule, &lookup, &Workloads::new(host), &Round::none())?;
    Ok(existing.changes(rule, needed, host)?)
}

/// Deletes the objects that were made for an APIRule, then removes its finalizer.
fn delete(rule: &ApiRule, host: &Host) -> Result<Outcome, Failure> {
    if !rule.metadata.finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        return Ok(Outcome::new().requeue_never());
    }
    let kinds = [
        istio::authorization_policy(),
        istio::request_authentication(),
        istio::virtual_service(),
        ory::kind(),
    ];
    let mut changes = Vec::new();
    for kind in kinds {
        let existing = known(existing::list(host, &kind, rule, &existing::NAME_ONLY))?;
        changes.extend(change::deletions(&kind, existing.unwrap_or_default()));
    }
    changes.extend(lost_virtual_service(rule, &changes, host)?);
    let no_finalizers: [&str; 0] = [];
    Ok(change::carry_out(changes, Outcome::new().finalizers(no_finalizers).requeue_never()))
}

/// Deletes the `VirtualService` whose labels were changed, if no `VirtualService` was found by its
/// labels.
fn lost_virtual_service(
    rule: &ApiRule,
    found: &[Change],
    host: &Host,
) -> Result<Option<Change>, Error> {
    let kind = istio::virtual_service();
    let is_found = |change: &Change| {
        let Change::Delete { reference, .. } = change else { return false };
        reference.kind == kind
    };
    if found.iter().any(is_found) {
        return Ok(None);
    }
    let name = virtual_service::name(rule);
    let lost = existing::get(host, &kind, rule.namespace(), &name, &existing::NAME_ONLY);
    let lost = known(lost)?.flatten();
    Ok(change::deletions(&kind, lost.into_iter().collect()).next())
}

/// Builds the objects that an APIRule needs in this round of its migration.
fn needed(
    rule: &ApiRule,
    lookup: &Lookup<'_>,
    workloads: &Workloads<'_>,
    round: &Round,
) -> Result<Needed, Stop> {
    let Some(gateway) = &lookup.gateway else {
        let message = "gateway must be provided when using short host name";
        return Err(Stop::Wrong(status::general(message)));
    };
    let hosts: Result<Vec<String>, _> =
        rule.spec.hosts.iter().map(|name| gateway.qualified(name)).collect();
    let hosts = hosts.map_err(|error| {
        Stop::Wrong(status::general(&format!("getting hosts from api rule: {error}")))
    })?;
    let labels = labels_of_rules(rule, workloads)?;
    let mut needed = Needed {
        virtual_service: round
            .switches_route()
            .then(|| virtual_service::build(rule, &hosts, &gateway.name)),
        ory_rules: round.is_last().then(ory::Rules::default),
        ..Needed::default()
    };
    let callers = if round.is_last() { Callers::Ingress } else { Callers::IngressOrOathkeeper };
    for (at, (of, labels)) in rule.spec.rules.iter().zip(&labels).enumerate() {
        let namespace = rule.service_namespace(of);
        let policies = authorization_policy::build(rule, at, &hosts, labels, callers);
        needed.policies.extend(policies.into_iter().map(|policy| (namespace.to_owned(), policy)));
        if let Some(tokens) = of.tokens() {
            let spec = request_authentication::build(&tokens.authentications, labels);
            needed.authentications.push((namespace.to_owned(), spec));
        }
    }
    Ok(needed)
}

/// Returns, for each rule, the labels of the Pods behind it.
fn labels_of_rules(rule: &ApiRule, workloads: &Workloads<'_>) -> Result<Vec<Labels>, Stop> {
    let labels = |of| match workloads.selector_of(rule, of).as_ref() {
        Ok(labels) => Ok(labels.clone()),
        Err(Missing::Service(message)) => Err(Stop::Wrong(status::general(message))),
        Err(Missing::Unavailable(error)) => Err(Stop::Unavailable(error.clone())),
    };
    rule.spec.rules.iter().map(labels).collect()
}

#[cfg(test)]
mod tests;
