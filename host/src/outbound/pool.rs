//! Connections that are kept for the next call, and the settings of TLS.

use std::{sync::Arc, time::Duration};

use mortise_core::outbound::{Allowed, Target};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsConnector;

use super::{exchange::Link, namespace};
use crate::http::{Trust, build_with};

/// The time after which an idle connection is closed.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// The interval between checks for idle connections.
const IDLE_INTERVAL: Duration = Duration::from_secs(15);
/// The idle connections of a host, as many as calls at once; of more, the one that is idle for
/// longest is closed.
pub(crate) const MAX_IDLE: usize = 64;
/// The settings of TLS that are kept, one for each text of authorities.
const MAX_CONNECTORS: usize = 64;

/// The kept connections, the longest idle first.
#[derive(Default)]
pub(super) struct Pool {
    idle: Mutex<Vec<Idle>>,
    connectors: Mutex<Vec<(Option<Arc<str>>, TlsConnector)>>,
}

struct Idle {
    peer: Peer,
    link: Link,
    since: Instant,
}

/// All that a connection depends on: calls that agree in it may use the same one. Each namespace has
/// its own, as some servers authenticate a connection rather than each request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Peer {
    namespace: String,
    tls: bool,
    host: String,
    port: u16,
    authorities: Option<Arc<str>>,
    private: bool,
    connect: Option<Arc<str>>,
}

// === impl Peer ===

impl Peer {
    pub(super) fn of(call: &Allowed) -> Self {
        let Target { tls, host, port, path_and_query: _ } = &call.target;
        let egress = &call.egress;
        Self {
            namespace: namespace(&call.processor).to_owned(),
            tls: *tls,
            host: host.clone(),
            port: *port,
            authorities: egress.ca_bundle.clone(),
            private: egress.private,
            connect: egress.connect.clone(),
        }
    }

    pub(super) fn authorities(&self) -> Option<&Arc<str>> {
        self.authorities.as_ref()
    }
}

// === impl Pool ===

impl Pool {
    /// Takes the last used connection to a peer that can still be used.
    pub(super) fn take(&self, peer: &Peer) -> Option<Link> {
        let mut all = self.idle.lock();
        while let Some(at) = all.iter().rposition(|idle| idle.peer == *peer) {
            let Idle { mut link, since, .. } = all.remove(at);
            if since.elapsed() < IDLE_TIMEOUT && link.is_ready() {
                return Some(link);
            }
        }
        None
    }

    pub(super) fn keep(&self, peer: &Peer, link: Link, now: Instant) {
        let mut all = self.idle.lock();
        if all.len() >= MAX_IDLE {
            all.remove(0);
        }
        all.push(Idle { peer: peer.clone(), link, since: now });
    }

    /// Closes connections that have been idle for long, for ever.
    pub(super) async fn close_idle(&self) {
        loop {
            sleep(IDLE_INTERVAL).await;
            self.idle.lock().retain(|idle| idle.since.elapsed() < IDLE_TIMEOUT);
        }
    }

    /// Returns the number of kept connections.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.idle.lock().len()
    }

    /// Returns the settings of TLS with these authorities (PEM), or with the compiled-in ones.
    pub(super) fn connector(&self, authorities: Option<&Arc<str>>) -> Result<TlsConnector, String> {
        let mut all = self.connectors.lock();
        if let Some((_, known)) = all.iter().find(|(of, _)| of.as_ref() == authorities) {
            return Ok(known.clone());
        }
        let pem = authorities.map(|pem| pem.as_bytes());
        let new = build_with(&Trust { authorities: pem, identity: None })?;
        if all.len() >= MAX_CONNECTORS {
            all.remove(0);
        }
        all.push((authorities.cloned(), new.clone()));
        Ok(new)
    }
}
