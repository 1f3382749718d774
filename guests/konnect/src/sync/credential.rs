//! The token of an object: the `KonnectAPIAuthConfiguration` of its control plane.

use mortise_sdk::{
    Error, Host, ObjectRef, kubernetes::Secret, object::Metadata, outbound::Credential,
};
use serde::Deserialize;
use serde_json::Value;

use super::{
    grant::{self, From, SECRET, To},
    reference::{SECRET_LABEL, shown},
    run::Run,
    server::Server,
    session::Session,
    status::{self, reason},
};
use crate::kind::{self, AUTH, CONTROL_PLANE, Name, Reference};

/// The condition of the reference to a `KonnectAPIAuthConfiguration`.
const RESOLVED: &str = "APIAuthResolvedRef";
/// The condition of the token.
pub(crate) const VALID: &str = "APIAuthValid";
/// The label by which a Secret offers its value as a token.
const TOKEN_LABEL: (&str, &str) = ("konghq.com/credential", "konnect");
/// The fields of a `KonnectAPIAuthConfiguration` that are read: never `spec.token`.
pub(crate) const FIELDS: [&str; 4] = ["spec.type", "spec.secretRef", "spec.serverURL", "status"];

/// Why a token cannot be used.
pub(crate) struct Unusable {
    pub(crate) message: String,
    /// The reference to its Secret is not granted.
    pub(crate) is_refused: bool,
}

/// The metadata of a Secret.
#[derive(Deserialize)]
struct Labelled {
    metadata: Metadata,
}

impl Run<'_> {
    /// Finds the token of the object, and sets the conditions that tell about it. `None`: there is
    /// none that may be used.
    pub(crate) fn find_session(&mut self, control_plane: &Value) -> Result<Option<Session>, Error> {
        let Some(reference) = CONTROL_PLANE.references.first() else { return Ok(None) };
        let Some(name) = reference.names(control_plane).into_iter().next() else { return Ok(None) };
        if !self.may_use_auth(control_plane, &name)? {
            return Ok(None);
        }
        let shown = shown(&name);
        let Some(auth) = self.read(&AUTH, &name, &FIELDS)? else {
            let message = format!("Referenced KonnectAPIAuthConfiguration {shown} not found");
            self.status.set(RESOLVED, false, "RefNotFound", message);
            self.status.set_false_exists();
            return Ok(None);
        };
        let message = format!("KonnectAPIAuthConfiguration reference {shown} is resolved");
        self.status.set(RESOLVED, true, "ResolvedRef", message);
        let session = if status::is_true(&auth, VALID) {
            session(self.host, &auth, self.config.request_timeout())?
        } else {
            None
        };
        if session.is_some() {
            let message = format!("referenced KonnectAPIAuthConfiguration {shown} is valid");
            self.status.set(VALID, true, reason::VALID, message);
        } else {
            let message = format!("referenced KonnectAPIAuthConfiguration {shown} is invalid");
            self.status.set(VALID, false, reason::INVALID, message);
            self.status.set_false_exists();
        }
        Ok(session)
    }

    /// Returns whether the control plane may refer to its `KonnectAPIAuthConfiguration`. A deletion
    /// may always: the grant was there when the entity was created.
    fn may_use_auth(&mut self, control_plane: &Value, name: &Name) -> Result<bool, Error> {
        if self.metadata.is_deleted() {
            return Ok(true);
        }
        let namespace = kind::text(control_plane, "metadata.namespace").unwrap_or_default();
        let from = From { entity: &CONTROL_PLANE, namespace };
        let granted =
            grant::check(self.host, from, To { group: AUTH.group, kind: AUTH.kind }, name)?;
        if let Err(message) = granted {
            self.status.set(RESOLVED, false, reason::NOT_PERMITTED, message);
            self.status.set_false_exists();
            return Ok(false);
        }
        Ok(true)
    }
}

/// Returns the session for a valid configuration; `None` if its Secret may not be used any more.
fn session(
    host: &Host,
    auth: &Value,
    timeout: std::time::Duration,
) -> Result<Option<Session>, Error> {
    let url = kind::text(auth, "spec.serverURL").unwrap_or_default();
    let (Ok(server), Ok(credential)) = (Server::parse(url), of(host, auth)?) else {
        return Ok(None);
    };
    let organization = kind::text(auth, "status.organizationID").map(str::to_owned);
    Ok(Some(Session { url: server.url(), credential: credential.0, organization, timeout }))
}

/// Returns the credential of a `KonnectAPIAuthConfiguration`, with the name of the Secret that
/// holds it, or the message that says why it has none. The value is not read.
pub(crate) fn of(
    host: &Host,
    auth: &Value,
) -> Result<Result<(Credential, Option<Name>), Unusable>, Error> {
    let unusable = |message: String| Ok(Err(Unusable { message, is_refused: false }));
    let namespace = kind::text(auth, "metadata.namespace").unwrap_or_default();
    if kind::text(auth, "spec.type") != Some("secretRef") {
        let name = kind::text(auth, "metadata.name").unwrap_or_default();
        let at = AUTH.object(namespace, name);
        return Ok(Ok((Credential::bearer(&at, "spec.token"), None)));
    }
    let name = AUTH.references.first().map(|reference: &Reference| reference.names(auth));
    let Some(name) = name.into_iter().flatten().next() else {
        return unusable("spec.secretRef names no Secret".to_owned());
    };
    if let Err(message) = grant::check(host, From { entity: &AUTH, namespace }, SECRET, &name)? {
        return Ok(Err(Unusable { message, is_refused: true }));
    }
    let secret = ObjectRef::of::<Secret>(Some(&name.namespace), &name.name);
    let labelled: Option<Labelled> = match host.get_ref(&secret, &["metadata.labels"]) {
        // The right to read Secrets is the operator's to take: the token is not used any more.
        Err(Error::Denied { message, .. }) => {
            return unusable(format!("failed to get Secret {}: {message}", shown(&name)));
        }
        read => read?,
    };
    let has = |secret: &Labelled, (key, value): (&str, &str)| {
        secret.metadata.labels.get(key).is_some_and(|found| found == value)
    };
    let Some(labelled) = labelled.filter(|secret| has(secret, SECRET_LABEL)) else {
        return unusable(no_secret(&name));
    };
    if !has(&labelled, TOKEN_LABEL) {
        let (key, value) = TOKEN_LABEL;
        return unusable(format!("secret {} does not have label {key}: {value}", shown(&name)));
    }
    Ok(Ok((Credential::bearer(&secret, "data.token"), Some(name))))
}

/// Returns the message about a Secret that is not there.
pub(crate) fn no_secret(name: &Name) -> String {
    format!("failed to get Secret {}: Secret \"{}\" not found", shown(name), name.name)
}
