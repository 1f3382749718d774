//! The validation of an APIRule, with the order and the messages of the original.

mod ext_auth;
pub(crate) mod jwt;

pub(crate) use ext_auth::{MESH, MESH_FIELDS};

use mortise_sdk::{Error, Host, Selection, object::Metadata};
use serde::Deserialize;

use self::ext_auth::Providers;
use crate::{
    api::{ApiRule, ApiRuleSpec, Rule},
    existing,
    gateway::{Choice, Lookup},
    hostname, istio,
    path::{MANY, ONE, Trie},
    virtual_service,
    workload::{Missing, Workloads},
};

const TROUBLESHOOTING: &str =
    "https://kyma-project.io/#/api-gateway/user/troubleshooting-guides/03-70-empty-apirule-spec";
const SHORT_HOST_GATEWAY: &str = "Lowercase RFC 1123 label (short host) is only supported as the APIRule host when \
    selected Gateway has a single host definition matching *.<fqdn> format";
const ONE_GATEWAY: &str = "Either gateway or externalGateway must be specified";

/// An error in an APIRule, with the field that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The path of the field, from `.spec` on.
    pub attribute_path: String,
    /// The message about the field.
    pub message: String,
}

impl Failure {
    pub(crate) fn new(attribute_path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { attribute_path: attribute_path.into(), message: message.into() }
    }
}

/// Returns all errors of an APIRule. `Err` means that a read cannot be answered at the moment.
pub(crate) fn validate(
    rule: &ApiRule,
    lookup: &Lookup<'_>,
    workloads: &Workloads<'_>,
    host: &Host,
) -> Result<Vec<Failure>, Error> {
    if rule.spec == ApiRuleSpec::default() {
        let message = format!(
            "APIRule in version v2alpha1 contains an empty spec. To troubleshoot, see {TROUBLESHOOTING}."
        );
        return Ok(vec![Failure::new(".spec", message)]);
    }
    let mut failures = Vec::new();
    validate_rules(rule, workloads, host, &mut failures)?;
    validate_hosts(rule, lookup, host, &mut failures)?;
    failures.extend(validate_gateway(lookup));
    Ok(failures)
}

fn validate_rules(
    rule: &ApiRule,
    workloads: &Workloads<'_>,
    host: &Host,
    failures: &mut Vec<Failure>,
) -> Result<(), Error> {
    if rule.spec.rules.is_empty() {
        failures.push(Failure::new(".spec.rules", "No rules defined"));
        return Ok(());
    }
    let mut providers = Providers::new(host);
    for (index, of) in rule.spec.rules.iter().enumerate() {
        let path = format!(".spec.rules[{index}]");
        if rule.service(of).is_none() {
            let message =
                "The rule must define a service, because no service is defined on spec level";
            failures.push(Failure::new(format!("{path}.service"), message));
        }
        if let Some(config) = &of.jwt {
            jwt::validate(config, &format!("{path}.jwt"), failures);
        }
        validate_workload(rule, of, &path, workloads, failures)?;
        if let Some(ext_auth) = &of.ext_auth {
            providers.validate(ext_auth, &format!("{path}.extAuth"), failures)?;
        }
        failures.extend(
            validate_path(&of.path).map(|message| Failure::new(format!("{path}.path"), message)),
        );
    }
    failures.extend(validate_conflicts(&rule.spec.rules));
    jwt::validate_differing(&rule.spec.rules, failures);
    Ok(())
}

fn validate_workload(
    rule: &ApiRule,
    of: &Rule,
    path: &str,
    workloads: &Workloads<'_>,
    failures: &mut Vec<Failure>,
) -> Result<(), Error> {
    let selector = workloads.selector_of(rule, of);
    match selector.as_ref() {
        Err(Missing::Unavailable(error)) => return Err(error.clone()),
        Err(Missing::Service(message)) => {
            let message = format!("Failed to execute sidecar injection validation, err: {message}");
            failures.push(Failure::new(path, message));
        }
        Ok(labels) if labels.is_empty() => {
            let message = "Target service label selectors are not defined";
            failures.push(Failure::new(format!("{path}.injection"), message));
        }
        Ok(labels) => {
            let pods = workloads.pods_without_sidecar(rule.service_namespace(of), labels)?;
            failures.extend(pods.iter().map(|pod| {
                Failure::new(path, format!("Pod {pod} does not have an injected istio sidecar"))
            }));
        }
    }
    Ok(())
}

fn validate_path(path: &str) -> Option<&'static str> {
    let segments: Vec<&str> = path.split('/').collect();
    let many = |segment: &&&str| **segment == MANY;
    if segments.iter().filter(many).count() > 1 {
        return Some("Only one {**} operator is allowed in the path.");
    }
    let after = segments.iter().skip_while(|segment| **segment != MANY);
    let one_after_many = after.skip(1).any(|segment| *segment == ONE);
    one_after_many.then_some("The {**} operator must be the last operator in the path.")
}

/// Returns an error for the first path that an earlier path covers, for a method that both rules
/// have. A rule that names a method twice conflicts with itself.
fn validate_conflicts(rules: &[Rule]) -> Option<Failure> {
    let mut methods: Vec<&str> = Vec::new();
    for method in rules.iter().flat_map(|rule| &rule.methods) {
        if !methods.contains(&method.as_str()) {
            methods.push(method);
        }
    }
    methods.into_iter().find_map(|method| {
        let mut trie = Trie::default();
        let mut of_method = rules.iter().flat_map(|rule| {
            rule.methods.iter().filter(|other| *other == method).map(move |_| rule)
        });
        let rule = of_method.find(|rule| !trie.insert(&rule.path))?;
        let message = format!(
            "Path {} with method {method} conflicts with at least one of the previous rule paths",
            rule.path
        );
        Some(Failure::new(".spec.rules", message))
    })
}

fn validate_hosts(
    rule: &ApiRule,
    lookup: &Lookup<'_>,
    host: &Host,
    failures: &mut Vec<Failure>,
) -> Result<(), Error> {
    if rule.spec.hosts.is_empty() {
        failures.push(Failure::new(".spec.hosts", "No hosts defined"));
    }
    for (index, name) in rule.spec.hosts.iter().enumerate() {
        let path = format!(".spec.hosts[{index}]");
        match qualify(name, lookup) {
            Err(message) => failures.push(Failure::new(path, message)),
            Ok(None) => {}
            Ok(Some(qualified)) => {
                for _ in 0..occupants(rule, &qualified, host)? {
                    failures
                        .push(Failure::new(&path, "Host is occupied by another Virtual Service"));
                }
            }
        }
    }
    Ok(())
}

/// Returns the host as a fully qualified domain name; `None` if the missing choice of a gateway is
/// reported anyway.
fn qualify(name: &str, lookup: &Lookup<'_>) -> Result<Option<String>, String> {
    if hostname::is_qualified(name) {
        return Ok(Some(name.to_owned()));
    }
    if !hostname::is_short(name) {
        return Err("Host must be a valid FQDN or short host name".to_owned());
    }
    let (Choice::Gateway(asked) | Choice::External(asked)) = lookup.choice else { return Ok(None) };
    let Some(gateway) = &lookup.gateway else {
        return Err(format!("Unable to find Gateway \"{asked}\""));
    };
    if !gateway.has_one_wildcard_host() {
        return Err(SHORT_HOST_GATEWAY.to_owned());
    }
    gateway.qualified(name).map(Some).map_err(ToOwned::to_owned)
}

/// Returns the number of `VirtualService`s of other owners that have the host. An index finds them,
/// so the cost follows their number.
pub(crate) fn occupants(rule: &ApiRule, qualified: &str, host: &Host) -> Result<usize, Error> {
    #[derive(Deserialize)]
    struct Labelled {
        metadata: Metadata,
    }
    let selection = Selection::new(istio::virtual_service())
        .matching("spec.hosts[]", qualified)
        .fields(existing::OWNERS);
    let found: Vec<Labelled> = host.list(&selection)?;
    let is_own = |service: &&Labelled| {
        existing::is_owned(&service.metadata.labels, rule)
            || virtual_service::is_made_for(rule, &service.metadata)
    };
    Ok(found.iter().filter(|service| !is_own(service)).count())
}

fn validate_gateway(lookup: &Lookup<'_>) -> Option<Failure> {
    match lookup.choice {
        Choice::Neither => Some(Failure::new(".spec", ONE_GATEWAY)),
        Choice::Both => {
            Some(Failure::new(".spec", "Only one of gateway or externalGateway can be specified"))
        }
        Choice::Gateway(_) => {
            lookup.gateway.is_none().then(|| Failure::new(".spec.gateway", "Gateway not found"))
        }
        Choice::External(_) => (!lookup.external)
            .then(|| Failure::new(".spec.externalGateway", "ExternalGateway not found")),
    }
}

/// Returns an error if the APIRule does not choose exactly one gateway, or if that gateway does not
/// exist. Called before the rest of the validation; its messages differ from those of
/// `validate_gateway`, as in the original.
pub(crate) fn discover(lookup: &Lookup<'_>) -> Option<Failure> {
    match lookup.choice {
        Choice::Neither | Choice::Both => Some(Failure::new("spec", ONE_GATEWAY)),
        Choice::Gateway(_) => lookup
            .gateway
            .is_none()
            .then(|| Failure::new("spec.gateway", "Could not get specified Gateway")),
        Choice::External(_) if !lookup.external => {
            Some(Failure::new("spec.externalGateway", "Could not get specified ExternalGateway"))
        }
        Choice::External(_) => lookup.gateway.is_none().then(|| {
            let expected = lookup.expected.as_deref().unwrap_or_default();
            let message = format!(
                "Could not find generated Gateway for ExternalGateway (expected: {expected})"
            );
            Failure::new("spec.externalGateway", message)
        }),
    }
}

/// Returns the status text for failures: up to three of them, and the number of the rest.
pub(crate) fn describe(failures: &[Failure]) -> String {
    const MAX_LISTED_FAILURES: usize = 3;
    let mut lines: Vec<String> = failures
        .iter()
        .take(MAX_LISTED_FAILURES)
        .map(|failure| format!("Attribute '{}': {}", failure.attribute_path, failure.message))
        .collect();
    if failures.len() > MAX_LISTED_FAILURES {
        lines.push(format!("{} more error(s)...", failures.len() - MAX_LISTED_FAILURES));
    }
    format!("Validation errors: {}", lines.join("\n"))
}

#[cfg(test)]
mod tests;
