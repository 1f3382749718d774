//! The credentials that a consumer has in Secrets.
//!
//! A Secret that `credentials` of a `KongConsumer` names, with the label `konghq.com/credential`,
//! becomes an object of the kind that the label means, which consumer and Secret own.

use std::collections::BTreeSet;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use mortise_sdk::{
    Deletion, Error, Event, Failure, Host, Manifest, Outcome, Request, Selection, derived_name,
    kubernetes::Secret,
};
use serde_json::{Map, Value, json};

use crate::{
    binding::{is_owned_by, own, owners},
    kind::{self, CONSUMER, Entity, at, text},
};

/// The label that says of which kind the credential in a Secret is.
const LABEL: &str = "konghq.com/credential";
/// The Secrets that are read.
pub(crate) const SECRETS: &str = "konghq.com/secret=true,konghq.com/credential in \
     (acl,basic-auth,hmac,jwt,key-auth)";
/// The fields of credentials that are read.
pub(crate) const FIELDS: [&str; 2] = ["metadata.ownerReferences", "metadata.finalizers"];
/// The path by which credentials are found.
pub(crate) const OWNER: &str = "metadata.ownerReferences[].uid";

/// A form of credentials.
struct Form {
    /// The value of the label.
    label: &'static str,
    kind: &'static str,
    /// The keys of the Secret, which are the fields of the spec as well.
    required: &'static [&'static str],
    optional: &'static [&'static str],
}

const FORMS: [Form; 5] = [
    Form {
        label: "basic-auth",
        kind: "KongCredentialBasicAuth",
        required: &["username", "password"],
        optional: &[],
    },
    Form { label: "key-auth", kind: "KongCredentialAPIKey", required: &["key"], optional: &[] },
    Form { label: "acl", kind: "KongCredentialACL", required: &["group"], optional: &[] },
    Form {
        label: "jwt",
        kind: "KongCredentialJWT",
        required: &["key", "algorithm"],
        optional: &["secret", "rsa_public_key"],
    },
    Form {
        label: "hmac",
        kind: "KongCredentialHMAC",
        required: &["username", "secret"],
        optional: &[],
    },
];

/// Returns the kinds of credentials.
pub(crate) fn kinds() -> impl Iterator<Item = &'static Entity> {
    FORMS.iter().filter_map(|form| kind::find(form.kind))
}

/// Reconciles a `KongConsumer`: keeps the credentials of its Secrets.
pub(crate) fn reconcile(request: &Request, host: &Host) -> Result<Outcome, Failure> {
    let Some(consumer) = request.object::<Value>()? else { return Ok(Outcome::new()) };
    let is_deleted = at(&consumer, "metadata.deletionTimestamp").is_some();
    // With the consumer gone, Kubernetes deletes what it owns.
    if is_deleted || !request.failed_writes.is_empty() {
        return Ok(Outcome::new());
    }
    let run = Run { host, consumer: &consumer };
    let existing = run.existing()?;
    let mut outcome = Outcome::new();
    let mut kept = BTreeSet::new();
    let (secrets, missing) = run.secrets()?;
    for secret in secrets {
        let Some(form) = FORMS.iter().find(|form| label(&secret) == Some(form.label)) else {
            continue;
        };
        match run.credential(form, &secret, &existing) {
            Ok((name, manifest)) => {
                kept.insert((form.kind, name));
                outcome = outcome.apply(manifest);
            }
            Err(message) => {
                // One that was made before stays: an edit in two steps is no reason to lock a
                // consumer out.
                kept.extend(run.name_of(form, &secret, &existing).map(|name| (form.kind, name)));
                outcome = outcome.event(Event::warning("CredentialSecretInvalid", message));
            }
        }
    }
    for (entity, credential) in &existing {
        let name = own(credential, "name");
        let is_kept = kept.contains(&(entity.kind, name.to_owned()));
        if !is_kept && !is_of_missing(credential, &missing) {
            let of = entity.object(run.namespace(), name);
            outcome = outcome.delete(Deletion::new(of).uid(own(credential, "uid")));
        }
    }
    Ok(outcome)
}

type Existing = (&'static Entity, Value);

struct Run<'a> {
    host: &'a Host,
    consumer: &'a Value,
}

impl Run<'_> {
    fn namespace(&self) -> &str {
        own(self.consumer, "namespace")
    }

    fn name(&self) -> &str {
        own(self.consumer, "name")
    }

    /// Returns the credentials that were made for the consumer.
    fn existing(&self) -> Result<Vec<Existing>, Error> {
        let mut existing = Vec::new();
        for entity in kinds() {
            let of = entity.selection().namespace(self.namespace()).fields(FIELDS);
            let of = of.matching(OWNER, own(self.consumer, "uid"));
            let credentials: Vec<Value> = self.host.list(&of)?;
            existing.extend(credentials.into_iter().map(|credential| (entity, credential)));
        }
        Ok(existing)
    }

    /// Returns the Secrets that the consumer names, and the names of those that are not there; none
    /// for a consumer outside of Konnect.
    fn secrets(&self) -> Result<(Vec<Secret>, BTreeSet<String>), Error> {
        let is_konnect = CONSUMER.parents().any(|parent| !parent.names(self.consumer).is_empty());
        let references = CONSUMER.references.iter().filter(|reference| reference.to == "Secret");
        let all = references.flat_map(|reference| reference.names(self.consumer));
        let mut missing: BTreeSet<String> =
            all.filter(|_| is_konnect).map(|secret| secret.name).collect();
        let mut secrets = Vec::new();
        for name in &missing {
            let of = Selection::of::<Secret>().namespace(self.namespace()).name(name.as_str());
            let of = of.labels(SECRETS).fields(["metadata.labels", "data"]);
            secrets.extend(self.host.list::<Secret>(&of)?);
        }
        for secret in &secrets {
            missing.remove(&secret.metadata.name);
        }
        Ok((secrets, missing))
    }

    /// Returns the name of the credential that was made from a Secret.
    fn name_of(&self, form: &Form, secret: &Secret, existing: &[Existing]) -> Option<String> {
        let derived = self.derived(form, secret);
        let uid = secret.metadata.uid.as_deref().unwrap_or_default();
        let of_secret = existing.iter().filter(|(entity, credential)| {
            entity.kind == form.kind
                && (own(credential, "name") == derived || is_owned_by(credential, uid))
        });
        let mut names: Vec<&str> =
            of_secret.map(|(_, credential)| own(credential, "name")).collect();
        names.sort_unstable();
        let first = names.iter().find(|name| **name == derived).or_else(|| names.first());
        first.map(|name| (*name).to_owned())
    }

    fn derived(&self, form: &Form, secret: &Secret) -> String {
        derived_name(self.name(), &[form.kind, &secret.metadata.name])
    }

    /// Returns name and manifest of the credential of a Secret, or what is wrong with the Secret.
    fn credential(
        &self,
        form: &Form,
        secret: &Secret,
        existing: &[Existing],
    ) -> Result<(String, Manifest), String> {
        let mut spec = Map::new();
        spec.insert("consumerRef".to_owned(), json!({"name": self.name()}));
        let mut absent = Vec::new();
        for key in form.required.iter().chain(form.optional) {
            match value(secret, key)? {
                Some(value) => drop(spec.insert((*key).to_owned(), value.into())),
                None if form.required.contains(key) => {
                    return Err(format!("Secret {} has no key {key}", secret.metadata.name));
                }
                None => absent.push(format!("spec.{key}")),
            }
        }
        let name = self.name_of(form, secret, existing);
        let name = name.unwrap_or_else(|| self.derived(form, secret));
        let entity = kind::find(form.kind).ok_or_else(|| format!("no kind {}", form.kind))?;
        let metadata = json!({
            "name": name, "namespace": self.namespace(),
            "ownerReferences": [self.owner(), owner_of(secret)],
        });
        let object = json!({"metadata": metadata, "spec": spec});
        let manifest = Manifest::with_kind(&entity.of(), &object);
        Ok((name, absent.into_iter().fold(manifest, Manifest::absent)))
    }

    fn owner(&self) -> Value {
        json!({
            "apiVersion": CONSUMER.of().api_version(), "kind": CONSUMER.kind, "name": self.name(),
            "uid": own(self.consumer, "uid"), "controller": true, "blockOwnerDeletion": true,
        })
    }
}

/// Returns whether a credential was made from a Secret that is not there. Kubernetes may have taken
/// the reference to it away.
fn is_of_missing(credential: &Value, missing: &BTreeSet<String>) -> bool {
    let mut secrets = owners(credential).filter(|owner| text(owner, "kind") == Some("Secret"));
    match secrets.next() {
        Some(secret) => text(secret, "name").is_some_and(|name| missing.contains(name)),
        None => !missing.is_empty(),
    }
}

fn owner_of(secret: &Secret) -> Value {
    let uid = secret.metadata.uid.as_deref().unwrap_or_default();
    json!({"apiVersion": "v1", "kind": "Secret", "name": secret.metadata.name, "uid": uid})
}

fn label(secret: &Secret) -> Option<&str> {
    secret.metadata.labels.get(LABEL).map(String::as_str)
}

/// Returns the text at a key. Errors name the key only.
fn value(secret: &Secret, key: &str) -> Result<Option<String>, String> {
    let Some(value) = secret.data.get(key) else { return Ok(None) };
    let bytes = BASE64_STANDARD.decode(value).ok();
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    match text {
        Some(text) => Ok(Some(text).filter(|text| !text.is_empty())),
        None => Err(format!("key {key} of Secret {} is not text", secret.metadata.name)),
    }
}
