//! The DNS record and the certificate of the domain within the cluster's, which Gardener makes.

use api_gateway_module::{ISTIO_NAMESPACE, gardener, ingress, object};
use mortise_sdk::{Error, Host, Kind, Manifest, ObjectRef, Selection, object::Metadata};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    api::ExternalGateway,
    names::{self, Names},
    owned,
    status::{Conditions, Fault, Of, reason},
};

/// The fields that are read of both kinds.
pub(crate) const FIELDS: [&str; 4] = ["metadata.labels", "spec", "status.message", "status.state"];

/// The objects of Gardener, and what is known of them.
#[derive(Default)]
pub(crate) struct Made {
    pub(crate) apply: Vec<Manifest>,
    /// True if one of them is not ready yet.
    pub(crate) is_pending: bool,
    pub(crate) faults: Vec<Fault>,
}

/// An object of Gardener that exists.
#[derive(Deserialize)]
struct Found {
    metadata: Metadata,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    state: Option<String>,
    message: Option<String>,
}

/// The words for one of the kinds.
struct Words {
    of: Of,
    /// The attempt, as messages name it.
    attempt: &'static str,
    ready: &'static str,
    pending: (&'static str, &'static str),
    error: (&'static str, &'static str),
    /// The states in which Gardener has given up.
    terminal: &'static [&'static str],
}

const DNS: Words = Words {
    of: Of::Dns,
    attempt: "failed to reconcile DNSEntry",
    ready: "DNSEntry is ready",
    pending: (reason::DNS_PENDING, "DNSEntry is being provisioned"),
    error: (reason::DNS_ERROR, "DNSEntry is in a terminal error state"),
    terminal: &["Error", "Invalid", "Stale"],
};
const CERTIFICATE: Words = Words {
    of: Of::Certificate,
    attempt: "failed to reconcile Certificate",
    ready: "Certificate is ready",
    pending: (reason::CERTIFICATE_PENDING, "Certificate is being issued"),
    error: (reason::CERTIFICATE_ERROR, "certificate is in a terminal error state"),
    terminal: &["Error", "Revoked"],
};

/// Returns the selection of one of the kinds, as it is declared.
pub(crate) fn selection(kind: Kind) -> Selection {
    Selection::new(kind).namespace(ISTIO_NAMESPACE).fields(FIELDS)
}

pub(crate) fn is_available(host: &Host) -> Result<bool, Error> {
    gardener::is_available(host, [gardener::dns_entry(), gardener::certificate()].map(selection))
}

/// Says that there is no Gardener: then others see to the record and the certificate.
pub(crate) fn skip(conditions: &mut Conditions) {
    for (of, what) in [(Of::Dns, "DNSEntry"), (Of::Certificate, "Certificate")] {
        let message = format!("Gardener CRDs are not available; {what} management skipped");
        conditions.set(of, false, reason::NO_GARDENER, &message);
    }
}

/// Returns the record and the certificate of a domain. A fault of the one does not keep the other
/// from being made.
pub(crate) fn make(
    gateway: &ExternalGateway,
    (names, domain): (&Names, &str),
    conditions: &mut Conditions,
    host: &Host,
) -> Result<Made, Error> {
    let labels = json!(names::labels(gateway));
    let mut made = Made::default();
    match ingress::read(host)? {
        Err(missing) => {
            let cause = match missing {
                ingress::Missing::Service => {
                    format!("failed to get istio-ingressgateway service: {missing}")
                }
                missing => missing.to_string(),
            };
            let message = format!("failed to fetch Istio ingress gateway IP: {cause}");
            let fault = Fault::new(reason::FAILED, message);
            conditions.fail(DNS.of, &fault);
            made.faults.push(fault.while_doing(DNS.attempt));
        }
        Ok(ingress) => {
            let place = (ISTIO_NAMESPACE, names.dns.as_str());
            let mut entry = gardener::dns_entry_object(place, domain, &ingress.targets);
            set_labels(&mut entry, &labels);
            made.add(&entry, &DNS, gateway, conditions, host)?;
        }
    }
    let place = (ISTIO_NAMESPACE, names.certificate.as_str());
    let mut certificate = gardener::certificate_object(place, domain, (&names.tls, &labels));
    set_labels(&mut certificate, &labels);
    made.add(&certificate, &CERTIFICATE, gateway, conditions, host)?;
    Ok(made)
}

fn set_labels(object: &mut Value, labels: &Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("labels".to_owned(), labels.clone());
    }
}

impl Made {
    fn add(
        &mut self,
        desired: &Value,
        words: &Words,
        gateway: &ExternalGateway,
        conditions: &mut Conditions,
        host: &Host,
    ) -> Result<(), Error> {
        let of: ObjectRef = object::reference(desired);
        let found: Option<Found> = host.get_ref(&of, &FIELDS)?;
        let metadata = found.as_ref().map(|found| &found.metadata);
        if let Err(fault) = owned::check(metadata, gateway, host)? {
            conditions.fail(words.of, &fault);
            self.faults.push(fault.while_doing(words.attempt));
            return Ok(());
        }
        let (existing, status) = match found {
            Some(Found { metadata, spec, status }) => {
                (Some(object::Existing { metadata, spec }), status)
            }
            None => (None, Status::default()),
        };
        self.apply.push(object::replacing(desired, existing.as_ref()));
        self.judge(status, words, conditions);
        Ok(())
    }

    fn judge(&mut self, status: Status, words: &Words, conditions: &mut Conditions) {
        let state = status.state.unwrap_or_default();
        let message = status.message.unwrap_or_default();
        if state == "Ready" {
            conditions.set(words.of, true, reason::READY, words.ready);
        } else if words.terminal.contains(&state.as_str()) {
            let (reason, title) = words.error;
            conditions.set(words.of, false, reason, &message);
            self.faults.push(Fault::new(reason::FAILED, format!("{title} {state:?}: {message}")));
        } else {
            let (reason, text) = words.pending;
            let text = if message.is_empty() { text } else { &message };
            conditions.set(words.of, false, reason, text);
            self.is_pending = true;
        }
    }
}
