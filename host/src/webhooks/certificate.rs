//! The TLS certificate of the port, read from a Secret and reloaded when the Secret changes.
//!
//! *Guarantee.* If the Secret is deleted or its certificate cannot be used, the last usable
//! certificate is still served, and the reason is logged.

use std::{sync::Arc, time::Duration};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    runtime::watcher::{self, Event},
};
use mortise_core::key::NamespacedName;
use rustls::{
    CertificateError, RootCertStore,
    client::{verify_server_cert_signed_by_trust_anchor, verify_server_name},
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
    server::ParsedCertificate,
    sign::CertifiedKey,
};
use tokio::sync::watch as latest;
use tracing::{debug, info, warn};

use super::client_config::ClientConfig;
use crate::{
    cluster::Guarded,
    host::{NotServed, Source},
    http,
    reason::Reason,
};

const CHAIN: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITIES: &str = "ca.crt";

/// The certificate in a Secret. Cheap to clone.
#[derive(Clone)]
pub struct Certificate {
    state: latest::Receiver<State>,
}

/// A certificate that is served, with its key.
#[derive(Clone)]
pub struct Served {
    pub(super) key: Arc<CertifiedKey>,
    /// The certificates in `ca.crt` of the Secret, if there are any.
    authorities: Vec<CertificateDer<'static>>,
}

#[derive(Clone, Default)]
struct State {
    served: Option<Served>,
    /// The reason why the Secret's certificate is not served, if it is not.
    problem: Option<String>,
}

// === impl Certificate ===

impl Certificate {
    /// Returns the certificate in a Secret, and the task that watches the Secret. `client` must be
    /// allowed to read it.
    pub fn watch(
        client: Client,
        secret: NamespacedName,
    ) -> (Self, impl Future<Output = anyhow::Result<()>> + Send + 'static) {
        let problem = format!("the Secret {secret} has not been read yet");
        let (sender, state) = latest::channel(State { served: None, problem: Some(problem) });
        (Self { state }, run(client, secret, sender))
    }

    /// Returns the source of the certificate that is served, if there is one.
    pub fn source(&self) -> Source<Option<Served>> {
        let state = self.state.clone();
        Arc::new(move || state.borrow().served.clone())
    }

    /// Returns the reason why the Secret's certificate is not served, if it is not.
    pub fn problem(&self) -> Option<String> {
        self.state.borrow().problem.clone()
    }

    /// Returns the reason why clients get no answer at `now`, as Unix time, if any.
    pub fn not_served(&self, now: Duration) -> Option<NotServed> {
        let state = self.state.borrow();
        let Some(served) = &state.served else {
            let message = state.problem.clone().unwrap_or_default();
            return Some(NotServed { reason: Reason::CertificateMissing, message });
        };
        let fault =
            served.fault(now).map(|fault| format!("the certificate that is served: {fault}"));
        let message = fault.or_else(|| state.problem.clone())?;
        Some(NotServed { reason: Reason::CertificateInvalid, message })
    }

    /// Waits until the certificate changes.
    pub async fn changed(&mut self) {
        if self.state.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

async fn run(
    client: Client,
    secret: NamespacedName,
    state: latest::Sender<State>,
) -> anyhow::Result<()> {
    let only = watcher::Config::default().fields(&format!("metadata.name={}", secret.name));
    let api = |client| Api::<Secret>::namespaced(client, &secret.namespace);
    let mut events = Guarded::new(&client, usize::MAX).watch(api, only);
    let mut is_there = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => is_there = false,
            Ok(Event::Apply(found) | Event::InitApply(found)) => {
                is_there = true;
                take(&secret, load(&found), &state);
            }
            Ok(Event::Delete(_)) => missing(&secret, &state),
            Ok(Event::InitDone) if !is_there => missing(&secret, &state),
            Ok(Event::InitDone) => {}
            Err(error) => debug!(%error, "watch of the certificate failed, trying again"),
        }
    }
    anyhow::bail!("the watch of the certificate ended")
}

fn take(secret: &NamespacedName, loaded: Result<Served, String>, state: &latest::Sender<State>) {
    match loaded {
        Ok(served) => {
            let is_same = |before: &Served| before.key.cert == served.key.cert;
            if !state.borrow().served.as_ref().is_some_and(is_same) {
                info!(%secret, "the certificate of the webhooks is served");
            }
            state.send_replace(State { served: Some(served), problem: None });
        }
        Err(problem) => {
            warn!(%secret, problem, "the certificate of the webhooks cannot be used");
            let problem = format!("the Secret {secret}: {problem}");
            state.send_modify(|state| state.problem = Some(problem));
        }
    }
}

fn missing(secret: &NamespacedName, state: &latest::Sender<State>) {
    warn!(%secret, "the certificate of the webhooks is missing");
    let problem = format!("there is no Secret {secret}");
    state.send_modify(|state| state.problem = Some(problem));
}

/// Reads the certificate of a Secret. Errors never contain the key.
fn load(secret: &Secret) -> Result<Served, String> {
    let data = |key: &str| {
        let data = secret.data.as_ref().and_then(|data| data.get(key));
        data.map(|bytes| bytes.0.as_slice()).ok_or_else(|| format!("it has no `{key}`"))
    };
    let chain = certificates(data(CHAIN)?).map_err(|problem| format!("`{CHAIN}` {problem}"))?;
    let key = PrivateKeyDer::from_pem_slice(data(KEY)?);
    let key = key.map_err(|_| format!("`{KEY}` holds no private key in PEM"))?;
    let key = ring::sign::any_supported_type(&key);
    let key = key.map_err(|_| format!("the key in `{KEY}` is of no kind that is supported"))?;
    let key = CertifiedKey::new(chain, key);
    if matches!(
        key.keys_match(),
        Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch))
    ) {
        return Err(format!("the key in `{KEY}` is not that of the certificate in `{CHAIN}`"));
    }
    key.end_entity_cert().map_err(|error| format!("`{CHAIN}`: {error}"))?;
    let authorities = data(AUTHORITIES).and_then(certificates).unwrap_or_default();
    Ok(Served { key: Arc::new(key), authorities })
}

/// Reads certificates in PEM.
///
/// # Errors
///
/// Fails if there are none, or if one cannot be read.
pub(super) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = http::certificates(pem).map_err(|error| format!("cannot be read: {error}"))?;
    if all.is_empty() {
        return Err("holds no certificate in PEM".to_owned());
    }
    Ok(all)
}

// === impl Served ===

impl Served {
    /// Returns the reason why clients that trust the Secret's CA reject the certificate at `now`,
    /// as Unix time, if any. Names are not compared.
    fn fault(&self, now: Duration) -> Option<String> {
        let others = self.key.cert.iter().skip(1);
        let trusted: Vec<_> = self.authorities.iter().chain(others).cloned().collect();
        let error = self.check(&trusted, now).err()?;
        // Without a CA in the Secret, clients may trust one that is unknown here.
        (!trusted.is_empty() || is_of_time(&error)).then(|| error.to_string())
    }

    /// Returns the reason why the API server rejects the certificate when it calls a hook by this
    /// `clientConfig`, if any.
    pub(super) fn not_accepted(&self, config: &ClientConfig, now: Duration) -> Option<NotServed> {
        let ClientConfig { of, host, bundle, .. } = config;
        if !self.is_for(host) {
            let message =
                format!("the certificate that is served is not for `{host}`, which {of} names");
            return Some(NotServed { reason: Reason::CertificateOfOtherName, message });
        }
        let bundle = bundle.as_ref()?;
        let problem = if bundle.is_empty() {
            "holds no certificate".to_owned()
        } else {
            let error = self.check(bundle, now).err()?;
            format!("does not verify the certificate that is served: {error}")
        };
        let message = format!("the caBundle in {of} {problem}");
        Some(NotServed { reason: Reason::CaBundleInvalid, message })
    }

    fn is_for(&self, host: &str) -> bool {
        let certificate = self.key.cert.first().map(ParsedCertificate::try_from);
        let (Some(Ok(certificate)), Ok(name)) = (certificate, ServerName::try_from(host)) else {
            return false;
        };
        verify_server_name(&certificate, &name).is_ok()
    }

    /// Verifies the certificate against trusted CAs.
    fn check(
        &self,
        trusted: &[CertificateDer<'static>],
        now: Duration,
    ) -> Result<(), rustls::Error> {
        let Some((first, others)) = self.key.cert.split_first() else { return Ok(()) };
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted.iter().cloned());
        let algorithms = ring::default_provider().signature_verification_algorithms.all;
        let (parsed, now) = (ParsedCertificate::try_from(first)?, UnixTime::since_unix_epoch(now));
        match verify_server_cert_signed_by_trust_anchor(&parsed, &roots, others, now, algorithms) {
            // The API server accepts a certificate that is itself among the trusted ones.
            Err(error) if trusted.contains(first) && !is_of_time(&error) => Ok(()),
            checked => checked,
        }
    }
}

/// Returns whether a certificate has expired, or is not valid yet.
fn is_of_time(error: &rustls::Error) -> bool {
    use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    let rustls::Error::InvalidCertificate(error) = error else { return false };
    matches!(error, Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::ByteString;

    use super::*;

    fn secret(of: &[(&str, &str)]) -> Secret {
        let data: BTreeMap<String, ByteString> = of
            .iter()
            .map(|(key, text)| ((*key).to_owned(), ByteString(text.as_bytes().to_vec())))
            .collect();
        Secret { data: Some(data), ..Secret::default() }
    }

    #[test]
    fn a_secret_that_cannot_be_served_says_why() {
        let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let cases: [(Vec<(&str, &str)>, &str); 4] = [
            (vec![], "it has no `tls.crt`"),
            (vec![(CHAIN, "a")], "`tls.crt` holds no certificate in PEM"),
            (vec![(CHAIN, pem)], "it has no `tls.key`"),
            (vec![(CHAIN, pem), (KEY, "a")], "`tls.key` holds no private key in PEM"),
        ];
        for (data, expected) in cases {
            let Err(problem) = load(&secret(&data)) else { panic!("{expected}") };
            assert_eq!(problem, expected);
        }
    }

    #[test]
    fn a_certificate_that_is_no_more_stays_served() {
        let secret = NamespacedName::new("a", "b");
        let (state, seen) = latest::channel(State::default());
        missing(&secret, &state);
        assert_eq!(seen.borrow().problem.as_deref(), Some("there is no Secret a/b"));
        take(&secret, Err("it is bad".to_owned()), &state);
        assert_eq!(seen.borrow().problem.as_deref(), Some("the Secret a/b: it is bad"));
    }
}
