//! The reconciliation of the definition, which keeps the Secret, and of the configurations.

use std::time::Duration;

use mortise_sdk::{Event, Failure, Host, Level, Outcome, Request};

use crate::{
    Config,
    client::{ClientConfig, Clients, Configuration, Definition, definition_patch},
    config::Name,
    describe::DEFINITION,
    renewal::{Plan, Situation, Step, plan},
    store::Stored,
};

/// Reconciles one client.
///
/// # Errors
///
/// Fails if something cannot be read, or if no certificate can be made.
pub fn reconcile(request: &Request, config: &Config, host: &Host) -> Result<Outcome, Failure> {
    if !request.failed_writes.is_empty() {
        return Ok(Outcome::new());
    }
    if request.reconciler == DEFINITION {
        definition(request, config, host)
    } else {
        configuration(request, config, host)
    }
}

/// Has the API server trust the authorities for the webhooks of a configuration.
fn configuration(request: &Request, config: &Config, host: &Host) -> Result<Outcome, Failure> {
    let Some(configuration) = request.object::<Configuration>()? else {
        return Ok(Outcome::new());
    };
    let trusted = Stored::read(host, &config.secret)?.trusted();
    let patch = trusted.and_then(|trusted| configuration.patch(&request.ref_, &trusted));
    Ok(match patch {
        Some(patch) => Outcome::new().patch(patch),
        None => Outcome::new(),
    })
}

/// Keeps the Secret, and has the API server trust the authorities for the webhook that converts.
fn definition(request: &Request, config: &Config, host: &Host) -> Result<Outcome, Failure> {
    let Some(definition) = request.object::<Definition>()? else { return Ok(Outcome::new()) };
    let (converts, fault) = match definition.client() {
        Ok(client) => (Some(client.clone()), None),
        Err(fault) => (None, Some(fault)),
    };
    let is_called = converts.as_ref().is_some_and(ClientConfig::is_of_service);
    let clients = Clients::read(converts, config, host)?;
    let plan = next(&clients, config, host)?;
    let mut outcome =
        Outcome::new().apply(plan.stored.manifest(&config.secret)).requeue_after(plan.again);
    if let Some(trusted) = plan.stored.trusted().filter(|_| is_called) {
        outcome = outcome.patch(definition_patch(&request.ref_, &trusted));
    }
    if let Some(fault) = fault {
        host.log(Level::Warn, &fault, &[]);
        outcome = outcome.event(Event::warning("ConversionMissing", fault));
    }
    Ok(match told(&plan, config) {
        Some(event) => outcome.event(event),
        None => outcome,
    })
}

fn next(clients: &Clients, config: &Config, host: &Host) -> Result<Plan, Failure> {
    let mut services = clients.services();
    let named: Vec<String> = services.iter().map(host_name).collect();
    services.remove(&config.service);
    let wanted: Vec<String> =
        std::iter::once(&config.service).chain(&services).map(host_name).collect();
    let situation = Situation {
        now: Duration::from_millis(host.now()),
        named: &named,
        wanted: &wanted,
        announced: config.announced(),
    };
    let stored = Stored::read(host, &config.secret)?;
    plan(stored, &situation, |authority| clients.hold(authority)).map_err(Failure::new)
}

/// Returns the name by which the API server reaches a Service.
fn host_name(service: &Name) -> String {
    format!("{}.{}.svc", service.name, service.namespace)
}

fn told(plan: &Plan, config: &Config) -> Option<Event> {
    let secret = &config.secret;
    let (reason, message) = match plan.step {
        Step::Kept | Step::Waiting => return None,
        Step::Made => ("CertificateMade", format!("Secret {secret} has a new certificate")),
        Step::Announced => (
            "CertificateAnnounced",
            format!("the authority of the next certificate in Secret {secret} is announced"),
        ),
        Step::Replaced => {
            ("CertificateReplaced", format!("Secret {secret} has the next certificate"))
        }
    };
    Some(Event::normal(reason, message))
}

#[cfg(test)]
mod tests;
