//! The reconciliation of an APIRule that was written in v1beta1, by one of two handlers: Istio, or
//! Ory Oathkeeper.
//!
//! | module | holds |
//! | --- | --- |
//! | `domain` | the domain of hosts without one |
//! | `validation` | all errors that such an APIRule can have |
//! | `strategy` | the access strategies of a rule |
//! | `virtual_service`, `authorization` | builders of Istio's kinds |
//! | `ory_rule` | the builder of Oathkeeper's `Rule`s |
//! | `status` | the status, by kind of object, and what is stored of it |

mod authorization;
mod domain;
mod ory_rule;
mod status;
mod strategy;
mod validation;
mod virtual_service;

pub use domain::read as default_domain;
pub(crate) use domain::{FIELDS as DOMAIN_FIELDS, KYMA_GATEWAY};
pub(crate) use status::failed;

use mortise_sdk::{Error, Failure, Host, Outcome, Request};

use crate::{
    annotation,
    api::{
        ApiRule, ApiRuleStatus, FINALIZER,
        v1beta1::{Rule, Spec, Status},
    },
    change::{self, Change},
    config::{self, Config, Handler},
    produced::{Needed, OryRules, Produced, Unlisted},
    status as stored,
    stop::{RETRY_DELAY, too_long},
    validation::Failure as Wrong,
    workload::{Labels, Missing, Workloads},
};

/// The reason why an APIRule cannot be reconciled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The status says why.
    Told(Box<Status>),
    /// A read cannot be answered at the moment.
    Unavailable(Error),
}

/// An APIRule with its spec in v1beta1.
struct Subject<'a> {
    rule: &'a ApiRule,
    spec: Spec,
    /// The host, with the default domain if it has none and there is one.
    host: String,
    handler: Handler,
}

/// Reconciles one APIRule.
pub(crate) fn reconcile(
    rule: &ApiRule,
    request: &Request,
    config: &Config,
    host: &Host,
) -> Result<Outcome, Failure> {
    let grant = config.grant().map_err(Failure::new)?;
    let stamped = |next: ApiRuleStatus| stored::stamp(rule, next, host);
    if !grant.is_granted(host)? {
        // Nothing is retried: a grant triggers.
        return Ok(Outcome::new().status(request, &stamped(status::unsupported())));
    }
    let with_status = |status: &Status| {
        let status = stamped(status::stored(status));
        Outcome::new().status(request, &status).finalizers([FINALIZER])
    };
    match changes(rule, host) {
        Ok((changes, handler)) => Ok(change::carry_out(changes, with_status(&status::ok(handler)))),
        Err(Stop::Told(status)) if status::is_error(&status) => {
            let status = status::stored(&status);
            let message = status.description.as_deref().unwrap_or_default();
            let failure = Failure::new(message).retry_after(RETRY_DELAY);
            Err(failure.status(request, &stamped(status)))
        }
        Err(Stop::Told(status)) => Ok(with_status(&status)),
        Err(Stop::Unavailable(error)) => Err(error.into()),
    }
}

/// Returns the changes that an APIRule needs, if it has no errors, and its handler.
fn changes(rule: &ApiRule, host: &Host) -> Result<(Vec<Change>, Handler), Stop> {
    let domain = domain::read(host).map_err(Stop::Unavailable)?;
    // The handler of the status, until it is known.
    let told = |message: &str| Stop::told(status::error(Handler::Ory, message));
    let spec = annotation::v1beta1_spec(rule).map_err(|message| told(&message))?;
    if let (Err(message), true) = (&domain, is_short(&spec)) {
        return Err(told(message));
    }
    if let Some(message) = too_long(rule) {
        return Err(told(&message));
    }
    let existing = Produced::list(rule, host, OryRules::Written)?;
    let handler = config::handler(host).map_err(Stop::Unavailable)?;
    let handler = handler.map_err(|message| {
        Stop::told(status::failures(Handler::Ory, &[Wrong::new("", message)]))
    })?;
    let subject = Subject::new(rule, spec, domain.ok().flatten().as_deref(), handler);
    let workloads = Workloads::new(host);
    let wrong = validation::validate(&subject, &workloads, host).map_err(Stop::Unavailable)?;
    if !wrong.is_empty() {
        return Err(Stop::told(status::failures(handler, &wrong)));
    }
    let needed = subject.needed(&workloads)?;
    let changes = existing.changes(rule, needed, host);
    Ok((changes.map_err(|error| subject.stop(error))?, handler))
}

/// Returns all errors of an APIRule, for a handler.
///
/// # Errors
///
/// Fails if a read cannot be answered at the moment, or if the APIRule has no spec in v1beta1.
pub fn validate(rule: &ApiRule, handler: Handler, host: &Host) -> Result<Vec<Wrong>, String> {
    let subject = Subject::read(rule, handler, host)?;
    validation::validate(&subject, &Workloads::new(host), host).map_err(|error| error.to_string())
}

/// Returns the changes that an APIRule needs, without checking it for errors first.
pub fn changes_unchecked(
    rule: &ApiRule,
    handler: Handler,
    host: &Host,
) -> Result<Vec<Change>, Stop> {
    let existing = Produced::list(rule, host, OryRules::Written)?;
    let subject = Subject::read(rule, handler, host)
        .map_err(|message| Stop::told(status::error(handler, &message)))?;
    let needed = subject.needed(&Workloads::new(host))?;
    existing.changes(rule, needed, host).map_err(|error| subject.stop(error))
}

/// Returns the status of an APIRule with these errors or, without any, after these changes.
pub fn status_of(handler: Handler, wrong: &[Wrong], changes: &Result<Vec<Change>, Stop>) -> Status {
    match changes {
        _ if !wrong.is_empty() => status::failures(handler, wrong),
        Err(Stop::Told(status)) => (**status).clone(),
        Err(Stop::Unavailable(error)) => status::error(handler, &error.to_string()),
        Ok(_) => status::ok(handler),
    }
}

/// Returns whether a host has no domain.
fn is_short(spec: &Spec) -> bool {
    spec.host.as_deref().is_some_and(|host| !host.contains('.'))
}

// === impl Stop ===

impl Stop {
    fn told(status: Status) -> Self {
        Self::Told(Box::new(status))
    }
}

impl From<Unlisted> for Stop {
    fn from(unlisted: Unlisted) -> Self {
        match unlisted {
            Unlisted::Missing(message) => Self::told(status::warning(Handler::Ory, &message)),
            Unlisted::Unreadable(message) => Self::told(status::error(Handler::Ory, &message)),
            Unlisted::Unavailable(error) => Self::Unavailable(error),
        }
    }
}

// === impl Subject ===

impl<'a> Subject<'a> {
    fn new(rule: &'a ApiRule, spec: Spec, domain: Option<&str>, handler: Handler) -> Self {
        let host = match (spec.host.as_deref().unwrap_or_default(), domain) {
            (short, Some(domain)) if is_short(&spec) => format!("{short}.{domain}"),
            (host, _) => host.to_owned(),
        };
        Self { rule, spec, host, handler }
    }

    /// Takes the spec and the domain from where they are. A domain that cannot be told is none.
    fn read(rule: &'a ApiRule, handler: Handler, host: &Host) -> Result<Self, String> {
        let domain = domain::read(host).map_err(|error| error.to_string())?;
        let spec = annotation::v1beta1_spec(rule)?;
        Ok(Self::new(rule, spec, domain.ok().flatten().as_deref(), handler))
    }

    /// Returns the namespace of the service behind a rule.
    fn namespace<'b>(&'b self, of: &'b Rule) -> &'b str {
        self.spec.service_namespace(of).unwrap_or_else(|| self.rule.namespace())
    }

    /// Returns the host name of the service behind a rule within the cluster, and its port.
    fn service(&self, of: &Rule) -> (String, i64) {
        let service = self.spec.service(of);
        let name = service.and_then(|service| service.name.as_deref()).unwrap_or_default();
        let port = service.map_or(0, |service| service.port);
        (format!("{name}.{}.svc.cluster.local", self.namespace(of)), port)
    }

    /// Returns the labels of the Pods behind a rule.
    fn labels(&self, of: &Rule, workloads: &Workloads<'_>) -> Result<Labels, Missing> {
        let name = self.spec.service(of).and_then(|service| service.name.as_deref());
        workloads.selector(self.namespace(of), name).as_ref().clone()
    }

    /// Builds the objects that the APIRule needs. All of Istio's policies go if Oathkeeper checks
    /// the tokens.
    fn needed(&self, workloads: &Workloads<'_>) -> Result<Needed, Stop> {
        let service = virtual_service::build(self);
        let service =
            service.map_err(|message| Stop::told(status::error(self.handler, &message)))?;
        let mut needed = Needed {
            virtual_service: Some(service),
            ory_rules: Some(ory_rule::build(self)),
            ..Needed::default()
        };
        if self.handler == Handler::Istio {
            for of in self.spec.rules() {
                self.add_policies(of, workloads, &mut needed)?;
            }
        }
        Ok(needed)
    }

    fn add_policies(
        &self,
        of: &Rule,
        workloads: &Workloads<'_>,
        needed: &mut Needed,
    ) -> Result<(), Stop> {
        let (has_policies, has_tokens) =
            (authorization::is_needed(self.spec.rules()), strategy::is_jwt(of));
        if !has_policies && !has_tokens {
            return Ok(());
        }
        let labels = self.labels(of, workloads).map_err(|missing| match missing {
            Missing::Service(message) => Stop::told(status::error(self.handler, &message)),
            Missing::Unavailable(error) => Stop::Unavailable(error),
        })?;
        let namespace = self.namespace(of);
        if has_tokens {
            let spec = authorization::tokens(of, &labels);
            needed.authentications.push((namespace.to_owned(), spec));
        }
        let policies = authorization::policies(of, namespace, &labels).into_iter();
        needed.policies.extend(policies.map(|policy| (namespace.to_owned(), policy)));
        Ok(())
    }

    fn stop(&self, error: Error) -> Stop {
        match error {
            Error::Unavailable { .. } => Stop::Unavailable(error),
            error => Stop::told(status::error(self.handler, &error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests;
