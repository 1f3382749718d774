//! The reconciliation of an APIRule: from the object to the changes that it needs.

use std::time::Duration;

use mortise_sdk::{Error, Failure, Host, Kind, Level, Outcome, Request, Selection};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::{
    api::{ApiRule, ApiRuleStatus},
    authorization_policy,
    change::{self, Change, Comparison, Desired},
    config,
    describe::FINALIZER,
    existing::{self, Existing, HASH, INDEX, LONGEST_LABEL},
    gateway::{self, Choice, Lookup},
    istio, request_authentication, status,
    validation::{self, Failure as Wrong},
    virtual_service,
    workload::{Labels, Missing, Workloads},
};

/// The time after which a failed APIRule is reconciled again even if nothing that was read has
/// changed.
const RETRY: Duration = Duration::from_mins(1);

/// The reason why an APIRule cannot be reconciled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// An error, with the text for a status in state Error.
    Wrong(String),
    /// A CRD must be installed first; with the text for a status in state Warning.
    Waiting(String),
    /// An error that the status does not mention.
    Untold(String),
    /// A read cannot be answered at the moment.
    Unavailable(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        match error {
            Error::Unavailable { .. } => Self::Unavailable(error),
            error => Self::Wrong(status::general(&error.to_string())),
        }
    }
}

/// Reconciles one APIRule.
pub fn reconcile(request: &Request, host: &Host) -> Result<Outcome, Failure> {
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
    if !request.failed_writes.is_empty() {
        let description = status::describe_failed_writes(&request.failed_writes, host);
        let status = status::stamp(&rule, status::error(description), host);
        return Ok(Outcome::new().status(request, &status).requeue_after(RETRY));
    }
    if rule.metadata.is_deleted() {
        return delete(&rule, host);
    }
    let with_status = |status: ApiRuleStatus| {
        let status = status::stamp(&rule, status, host);
        Outcome::new().status(request, &status).finalizers([FINALIZER])
    };
    match changes(&rule, host) {
        Ok(changes) => Ok(change::carry_out(changes, with_status(status::ready()))),
        Err(Stop::Waiting(description)) => Ok(with_status(status::warning(description))),
        Err(Stop::Wrong(description)) => {
            let failure = Failure::new(&description).retry_after(RETRY);
            let status = status::stamp(&rule, status::error(description), host);
            Err(failure.status(request, &status))
        }
        Err(Stop::Untold(message)) => Err(Failure::new(message).retry_after(RETRY)),
        Err(Stop::Unavailable(error)) => Err(error.into()),
    }
}

/// Returns all errors of an APIRule, even if its gateway cannot be found.
pub fn validate(rule: &ApiRule, host: &Host) -> Result<Vec<Wrong>, Error> {
    validation::validate(rule, &gateway::look_up(rule, host)?, &Workloads::new(host), host)
}

/// Returns the changes that an APIRule needs, if it has no errors.
pub fn changes(rule: &ApiRule, host: &Host) -> Result<Vec<Change>, Stop> {
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
    if rule.metadata.name.len() > LONGEST_LABEL {
        let message = format!(
            "the name is longer than {LONGEST_LABEL} characters, which is the most that a label holds"
        );
        return Err(Stop::Wrong(status::general(&message)));
    }
    let existing = Produced::list(rule, host)?;
    if let Err(message) = config::check_jwt_handler(host)? {
        return Err(Stop::Wrong(validation::describe(&[Wrong::new("", message)])));
    }
    let workloads = Workloads::new(host);
    let wrong = validation::validate(rule, &lookup, &workloads, host)?;
    if !wrong.is_empty() {
        return Err(Stop::Wrong(validation::describe(&wrong)));
    }
    compare(rule, &lookup, existing, &workloads, host)
}

/// Returns the changes that an APIRule needs, without checking it for errors first as [`changes`]
/// does.
pub fn changes_unchecked(rule: &ApiRule, host: &Host) -> Result<Vec<Change>, Stop> {
    let existing = Produced::list(rule, host)?;
    compare(rule, &gateway::look_up(rule, host)?, existing, &Workloads::new(host), host)
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
        istio::ory_rule(),
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
    let is_found = |change: &Change| matches!(change, Change::Delete { reference, .. } if reference.kind == kind);
    if found.iter().any(is_found) {
        return Ok(None);
    }
    let name = virtual_service::name(rule);
    let lost = existing::get(host, &kind, rule.namespace(), &name, &existing::NAME_ONLY);
    let lost = known(lost)?.flatten();
    Ok(change::deletions(&kind, lost.into_iter().collect()).next())
}

/// Returns `None` if the cluster does not know the kind.
fn known<T>(read: Result<T, Error>) -> Result<Option<T>, Error> {
    match read {
        Err(error) if error.is_unknown_kind() => Ok(None),
        read => read.map(Some),
    }
}

/// The objects that exist for an APIRule.
struct Produced {
    virtual_services: Vec<Existing>,
    authorization_policies: Vec<Existing>,
    request_authentications: Vec<Existing>,
    ory_rules: Vec<Existing>,
}

impl Produced {
    fn list(rule: &ApiRule, host: &Host) -> Result<Self, Stop> {
        let list = |kind: Kind, plural| {
            required(existing::list(host, &kind, rule, &existing::FIELDS), plural, host)
        };
        Ok(Self {
            virtual_services: list(
                istio::virtual_service(),
                "virtualservices.networking.istio.io",
            )?,
            authorization_policies: list(
                istio::authorization_policy(),
                "authorizationpolicies.security.istio.io",
            )?,
            request_authentications: list(
                istio::request_authentication(),
                "requestauthentications.security.istio.io",
            )?,
            ory_rules: known(existing::list(host, &istio::ory_rule(), rule, &existing::NAME_ONLY))?
                .unwrap_or_default(),
        })
    }
}

fn required<T>(read: Result<T, Error>, crd: &str, host: &Host) -> Result<T, Stop> {
    read.map_err(|error| match error {
        Error::UnknownKind { .. } => Stop::Waiting(format!(
            "CRD {crd} is not present. Make sure to install required dependencies for the component"
        )),
        Error::Unavailable { .. } => Stop::Unavailable(error),
        error => {
            host.log(
                Level::Warn,
                "cannot read a dependency",
                &[("crd", crd), ("error", &error.to_string())],
            );
            Stop::Wrong("Error happened during discovering dependencies".to_owned())
        }
    })
}

fn compare(
    rule: &ApiRule,
    lookup: &Lookup<'_>,
    existing: Produced,
    workloads: &Workloads<'_>,
    host: &Host,
) -> Result<Vec<Change>, Stop> {
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
    let service = virtual_service::build(rule, &hosts, &gateway.name);
    let mut changes = compare_virtual_services(rule, &service, existing.virtual_services, host)?;
    let policies = existing.authorization_policies;
    changes.extend(compare_authorization_policies(rule, &hosts, &labels, policies, host)?);
    let authentications = existing.request_authentications;
    changes.extend(compare_request_authentications(rule, &labels, authentications, host)?);
    changes.extend(change::deletions(&istio::ory_rule(), existing.ory_rules));
    Ok(changes)
}

/// Returns, for each rule, the labels of the Pods behind it.
fn labels_of_rules(rule: &ApiRule, workloads: &Workloads<'_>) -> Result<Vec<Labels>, Stop> {
    let labels = |of| match workloads.selector(rule, of).as_ref() {
        Ok(labels) => Ok(labels.clone()),
        Err(Missing::Service(message)) => Err(Stop::Wrong(status::general(message))),
        Err(Missing::Unavailable(error)) => Err(Stop::Unavailable(error.clone())),
    };
    rule.spec.rules.iter().map(labels).collect()
}

/// Returns the changes of the only `VirtualService`. If several are found, one in the APIRule's own
/// namespace is preferred, and the others stay as they are.
fn compare_virtual_services(
    rule: &ApiRule,
    service: &istio::VirtualServiceSpec,
    mut existing: Vec<Existing>,
    host: &Host,
) -> Result<Vec<Change>, Stop> {
    let kind = istio::virtual_service();
    existing.sort_by_key(|object| {
        let is_here = object.metadata.namespace.as_deref() == Some(rule.namespace());
        (!is_here, !virtual_service::is_made_for(rule, &object.metadata))
    });
    existing.truncate(1);
    let there = existing.first().and_then(|object| object.metadata.namespace.clone());
    let desired = Desired {
        key: virtual_service::KEY.to_owned(),
        namespace: there.unwrap_or_else(|| rule.namespace().to_owned()),
        labels: existing::labels(rule),
        spec: raw(service)?,
    };
    let existing = existing
        .into_iter()
        .map(|object| (Some(virtual_service::KEY.to_owned()), object))
        .collect();
    let lost = |desired: &Desired, name: &str| {
        let found = existing::get(host, &kind, &desired.namespace, name, &existing::FIELDS)?;
        if found.is_some() {
            return Ok(found);
        }
        let with_host = |host| Selection::new(kind.clone()).matching("spec.hosts[]", host);
        let selections = service.hosts.iter().map(with_host);
        first_generated(rule, host, selections.map(|of| of.namespace(&desired.namespace)))
    };
    let desired = vec![desired];
    Ok(Comparison { rule, kind: kind.clone(), existing, desired, lost: &lost }.changes()?)
}

/// Returns the first object whose name the original generated for an APIRule.
fn first_generated(
    rule: &ApiRule,
    host: &Host,
    selections: impl Iterator<Item = Selection>,
) -> Result<Option<Existing>, Error> {
    for selection in selections {
        let selection = selection.fields(existing::FIELDS);
        for object in host.objects::<Existing>(&selection, 0) {
            let object = object?;
            if existing::is_generated(&object.metadata, rule) {
                return Ok(Some(object));
            }
        }
    }
    Ok(None)
}

fn compare_authorization_policies(
    rule: &ApiRule,
    hosts: &[String],
    labels: &[Labels],
    existing: Vec<Existing>,
    host: &Host,
) -> Result<Vec<Change>, Stop> {
    let kind = istio::authorization_policy();
    let mut desired = Vec::new();
    for (at, (of, labels)) in rule.spec.rules.iter().zip(labels).enumerate() {
        let namespace = rule.service_namespace(of);
        for policy in authorization_policy::build(rule, at, hosts, labels) {
            let mut labels = existing::labels(rule);
            let key = authorization_policy::key(namespace, &policy.hash, &policy.index);
            labels.extend([(HASH.to_owned(), policy.hash), (INDEX.to_owned(), policy.index)]);
            desired.push(Desired {
                key,
                namespace: namespace.to_owned(),
                labels,
                spec: raw(&policy.spec)?,
            });
        }
    }
    let key = |object: &Existing| {
        let labels = &object.metadata.labels;
        Some(authorization_policy::key(
            object.metadata.namespace.as_deref()?,
            labels.get(HASH)?,
            labels.get(INDEX)?,
        ))
    };
    let existing = existing.into_iter().map(|object| (key(&object), object)).collect();
    let lost = |desired: &Desired, name: &str| {
        let found = existing::get(host, &kind, &desired.namespace, name, &existing::FIELDS)?;
        if found.is_some() {
            return Ok(found);
        }
        let label = |name: &str| desired.labels.get(name).map_or("", String::as_str);
        let selector = format!("{HASH}={},{INDEX}={}", label(HASH), label(INDEX));
        let selection = Selection::new(kind.clone()).namespace(&desired.namespace).labels(selector);
        first_generated(rule, host, [selection].into_iter())
    };
    Ok(Comparison { rule, kind: kind.clone(), existing, desired, lost: &lost }.changes()?)
}

fn compare_request_authentications(
    rule: &ApiRule,
    labels: &[Labels],
    existing: Vec<Existing>,
    host: &Host,
) -> Result<Vec<Change>, Stop> {
    let kind = istio::request_authentication();
    let mut desired = Vec::new();
    for (of, labels) in rule.spec.rules.iter().zip(labels) {
        let Some(tokens) = of.tokens() else { continue };
        let spec = request_authentication::build(tokens, labels);
        let namespace = rule.service_namespace(of);
        let key = request_authentication::key(namespace, &spec);
        let labels = existing::labels(rule);
        desired.push(Desired { key, namespace: namespace.to_owned(), labels, spec: raw(&spec)? });
    }
    let key = |object: &Existing| {
        let spec = serde_json::from_str(object.spec.as_deref()?.get()).ok()?;
        Some(request_authentication::key(object.metadata.namespace.as_deref()?, &spec))
    };
    let existing = existing.into_iter().map(|object| (key(&object), object)).collect();
    let lost = |desired: &Desired, name: &str| {
        existing::get(host, &kind, &desired.namespace, name, &existing::FIELDS)
    };
    Ok(Comparison { rule, kind: kind.clone(), existing, desired, lost: &lost }.changes()?)
}

fn raw(spec: &impl Serialize) -> Result<Box<RawValue>, Stop> {
    to_raw_value(spec).map_err(|error| Stop::Wrong(status::general(&error.to_string())))
}

#[cfg(test)]
mod tests;
