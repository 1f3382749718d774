//! `KonnectAPIAuthConfiguration`s: whether the API takes the token, and whose it is.
//!
//! The token is never read: the host adds it to the call. So a change of it cannot be told from
//! any other change of the object that holds it, and each run asks the API.

use std::time::Duration;

use mortise_sdk::{
    Error, Failure, Host, Outcome, Request,
    outbound::{CallError, CredentialFault},
};
use serde_json::Value;

use crate::{
    config::Config,
    kind::{self, AUTH, CONTROL_PLANE, Name},
    sync::{
        credential::{self, VALID},
        fault::{self, Fault},
        find::id_of,
        reference::shown,
        server::Server,
        session::Session,
        status::{Status, reason},
    },
};

/// The finalizer that holds the object while a control plane refers to it.
pub(crate) const IN_USE: &str = "konnect.konghq.com/konnectapiauth-in-use";
/// The path of the token's owner.
const ORGANIZATION: &str = "/v3/organizations/me";
/// The condition of a Secret in another namespace.
const RESOLVED_REFS: &str = "ResolvedRefs";
/// The time after which a token is checked again that was not accepted.
const AGAIN: Duration = Duration::from_secs(3);

/// The result of a check of a token.
enum Checked {
    /// The API takes it.
    Valid { organization: String, secret: Option<Name> },
    /// It cannot be sent: for this reason, which a change of what was read ends.
    Unusable(String),
    /// The API does not take it.
    Refused(String),
    /// Nothing is sent for this time.
    Paused(Duration),
}

/// Reconciles a `KonnectAPIAuthConfiguration`.
pub(crate) fn reconcile(
    request: &Request,
    config: &Config,
    host: &Host,
) -> Result<Outcome, Failure> {
    let Some(object) = request.object::<Value>()? else { return Ok(Outcome::new()) };
    let finalizers = is_used(host, &object)?.then_some(IN_USE);
    let outcome = Outcome::new().finalizers(finalizers).requeue_never();
    let is_deleted = object.pointer("/metadata/deletionTimestamp").is_some();
    if is_deleted || !request.failed_writes.is_empty() {
        return Ok(outcome);
    }
    let mut status = Status::of(&AUTH, &object, host);
    let outcome = match check(host, &object, &mut status, config.request_timeout())? {
        Checked::Paused(pause) => {
            if !status.is_true(VALID) {
                status.set(VALID, false, reason::INVALID, fault::paused(host.now(), pause));
            }
            outcome.requeue_after(pause)
        }
        Checked::Valid { organization, secret } => {
            status.set_id("organizationID", Some(&organization));
            let message = match secret {
                Some(secret) => format!("Token from Secret {} is valid", shown(&secret)),
                None => "Token is valid".to_owned(),
            };
            status.set(VALID, true, reason::VALID, message);
            outcome
        }
        Checked::Unusable(message) => {
            status.set(VALID, false, reason::INVALID, message);
            outcome
        }
        Checked::Refused(message) => {
            status.set_id("organizationID", None);
            status.set(VALID, false, reason::INVALID, message);
            outcome.requeue_after(AGAIN)
        }
    };
    Ok(outcome.status(request, &status.to_json()))
}

/// Returns whether a control plane refers to the object.
fn is_used(host: &Host, auth: &Value) -> Result<bool, Error> {
    let own = |field| kind::text(auth, field).unwrap_or_default();
    let (namespace, name) = (own("metadata.namespace"), own("metadata.name"));
    for reference in CONTROL_PLANE.references {
        let of = CONTROL_PLANE.selection().matching(reference.name_path(), name);
        let referring: Vec<Value> = host.list(&of.fields([reference.at]))?;
        let is_meant = |object: &Value| {
            reference.names(object).iter().any(|to| to.name == name && to.namespace == namespace)
        };
        if referring.iter().any(is_meant) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Asks the API for the organization of the token.
fn check(
    host: &Host,
    auth: &Value,
    status: &mut Status<'_>,
    timeout: Duration,
) -> Result<Checked, Error> {
    let server = match Server::parse(kind::text(auth, "spec.serverURL").unwrap_or_default()) {
        Ok(server) => server,
        Err(message) => return Ok(Checked::Unusable(message)),
    };
    let (credential, secret) = match credential::of(host, auth)? {
        Ok(found) => found,
        Err(unusable) => {
            if unusable.is_refused {
                let message = unusable.message.clone();
                status.set(RESOLVED_REFS, false, reason::NOT_PERMITTED, message);
            }
            return Ok(Checked::Unusable(unusable.message));
        }
    };
    if secret.as_ref().is_some_and(|secret| secret.is_foreign) {
        let message = "KongReferenceGrant allows access to the referenced Secret";
        status.set(RESOLVED_REFS, true, RESOLVED_REFS, message);
    }
    let url = server.global();
    let session = Session { url, credential, organization: None, timeout };
    let answer = session.get(host, ORGANIZATION, &[]);
    let answer = answer.and_then(|organization| id_of(&organization).ok_or(Fault::NoEntity));
    let is_asked =
        !matches!(answer, Err(Fault::Call(CallError::Credential(_) | CallError::Denied(_))));
    if is_asked {
        status.set_id("serverURL", Some(&server.url()));
    }
    Ok(match answer {
        Ok(organization) => Checked::Valid { organization, secret },
        Err(fault) => refused(host, &fault, secret.as_ref()),
    })
}

fn refused(host: &Host, fault: &Fault, secret: Option<&Name>) -> Checked {
    match fault {
        Fault::Call(CallError::Paused(pause)) => {
            Checked::Paused((*pause).max(Duration::from_millis(1)))
        }
        Fault::Call(CallError::Credential(of)) => Checked::Unusable(unusable(*of, secret)),
        Fault::Call(CallError::Denied(message)) => Checked::Unusable(message.clone()),
        Fault::Refused(refusal) => match refusal.pause(host.now()) {
            Some(pause) => Checked::Paused(pause),
            None => Checked::Refused(fault.text(None)),
        },
        Fault::NoEntity | Fault::Clash(_) | Fault::Call(_) => Checked::Refused(fault.text(None)),
    }
}

/// Returns the message about a token that is not there. Which other keys a Secret has is not known
/// here: its values cannot be read.
fn unusable(fault: CredentialFault, secret: Option<&Name>) -> String {
    let Some(secret) = secret else {
        return match fault {
            CredentialFault::NoObject | CredentialFault::NoValue => {
                "spec.token is empty".to_owned()
            }
            CredentialFault::NotText => "spec.token cannot be sent".to_owned(),
        };
    };
    let shown = shown(secret);
    match fault {
        CredentialFault::NoObject => credential::no_secret(secret),
        CredentialFault::NoValue => format!("secret {shown} does not have key token"),
        CredentialFault::NotText => format!("secret {shown} has no text at key token"),
    }
}
