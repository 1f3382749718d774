//! Connections that are kept for the next call, and the settings of TLS.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use mortise_core::{
    key::tenant_of,
    outbound::{Allowed, Target},
};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsConnector;

use super::exchange::Link;
use crate::http::{Trust, build_with};

/// The time after which an idle connection is closed.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// The interval between checks for idle connections.
const IDLE_INTERVAL: Duration = Duration::from_secs(15);
/// The idle connections of a host, as many as calls at once; of more, that of the namespace with
/// most is closed that is idle for longest.
pub(crate) const MAX_IDLE: usize = 64;
/// The settings of TLS that are kept, one for each text of authorities of a namespace; of more, the
/// first of the namespace with most are dropped.
const MAX_CONNECTORS: usize = 64;

/// The kept connections, the longest idle first.
#[derive(Default)]
pub(super) struct Pool {
    idle: Mutex<Vec<Idle>>,
    connectors: Mutex<Vec<Connector>>,
    /// The settings with the compiled-in authorities.
    public: OnceLock<TlsConnector>,
}

struct Connector {
    namespace: String,
    authorities: Arc<str>,
    settings: TlsConnector,
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
            namespace: tenant_of(&call.processor).to_owned(),
            tls: *tls,
            host: host.clone(),
            port: *port,
            authorities: egress.ca_bundle.clone(),
            private: egress.private,
            connect: egress.connect.clone(),
        }
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
            remove_of_most(&mut all, |idle| &idle.peer.namespace);
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

    /// Returns the settings of TLS with the authorities (PEM) of a peer, or with the compiled-in
    /// ones.
    pub(super) fn connector(&self, peer: &Peer) -> Result<TlsConnector, String> {
        let Some(authorities) = &peer.authorities else {
            if let Some(known) = self.public.get() {
                return Ok(known.clone());
            }
            let new = build_with(&Trust { authorities: None, identity: None })?;
            return Ok(self.public.get_or_init(|| new).clone());
        };
        let is_it =
            |of: &&Connector| of.namespace == peer.namespace && of.authorities == *authorities;
        if let Some(known) = self.connectors.lock().iter().find(is_it) {
            return Ok(known.settings.clone());
        }
        let settings =
            build_with(&Trust { authorities: Some(authorities.as_bytes()), identity: None })?;
        let mut all = self.connectors.lock();
        if all.len() >= MAX_CONNECTORS {
            remove_of_most(&mut all, |of| &of.namespace);
        }
        let (namespace, authorities) = (peer.namespace.clone(), Arc::clone(authorities));
        all.push(Connector { namespace, authorities, settings: settings.clone() });
        Ok(settings)
    }
}

/// Removes the first item of the namespace that has most.
fn remove_of_most<T>(all: &mut Vec<T>, namespace: impl Fn(&T) -> &String) {
    let count = |of: &T| all.iter().filter(|other| namespace(other) == namespace(of)).count();
    let most = all.iter().map(count).max();
    if let Some(first) = all.iter().position(|of| Some(count(of)) == most) {
        all.remove(first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_with_many_places_takes_none_of_others() {
        let namespaces = ["good", "evil", "evil", "good", "evil"];
        let mut all: Vec<(String, usize)> =
            namespaces.iter().zip(0..).map(|(of, at)| ((*of).to_owned(), at)).collect();
        for more in 5..50 {
            remove_of_most(&mut all, |(namespace, _)| namespace);
            all.push(("evil".to_owned(), more));
        }
        let left: Vec<usize> = all.iter().map(|(_, at)| *at).collect();
        assert_eq!(left, [0, 3, 47, 48, 49]);
    }
}
