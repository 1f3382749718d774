//! A Service's part in front of hosts: connections go to one of the addresses behind it, in turn.
//!
//! A Service of the control plane itself cannot stand here, not with `--enable-aggregator-routing`
//! either: an API server refuses endpoints in the range of loopback, where the hosts of the tests
//! listen.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncWriteExt as _, copy, copy_bidirectional, sink},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::timeout,
};

use crate::cluster::program::TIMEOUT;

/// A port of loopback, and the addresses behind it. Without an address, connections are closed.
pub(super) struct Front {
    pub(super) port: u16,
    shared: Arc<Shared>,
    _serving: JoinSet<()>,
}

#[derive(Default)]
struct Shared {
    behind: Mutex<Vec<SocketAddr>>,
    turn: AtomicUsize,
    /// Connections to an address that did not answer.
    refused: AtomicUsize,
    /// The addresses to which connections are open or being opened, each once per connection.
    open: watch::Sender<Vec<SocketAddr>>,
}

// === impl Front ===

impl Front {
    pub(super) async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (shared, mut serving) = (Arc::<Shared>::default(), JoinSet::new());
        serving.spawn(Arc::clone(&shared).serve(listener));
        Self { port, shared, _serving: serving }
    }

    /// Replaces the addresses. Connections that are open stay.
    pub(super) fn set(&self, behind: &[SocketAddr]) {
        *self.shared.behind.lock().unwrap() = behind.to_vec();
    }

    /// Returns how many connections an address behind the port has refused.
    pub(super) fn refused(&self) -> usize {
        self.shared.refused.load(Ordering::Relaxed)
    }

    /// Waits until no connection to an address is open, or being opened: the callers have closed
    /// their sides, too.
    pub(super) async fn until_left(&self, address: SocketAddr) {
        let mut open = self.shared.open.subscribe();
        let left = open.wait_for(|open| !open.contains(&address));
        timeout(TIMEOUT, left).await.expect("the connections end").unwrap();
    }
}

// === impl Shared ===

impl Shared {
    async fn serve(self: Arc<Self>, listener: TcpListener) {
        let mut carried = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            carried.spawn(Arc::clone(&self).carry(stream));
            while carried.try_join_next().is_some() {}
        }
    }

    async fn carry(self: Arc<Self>, mut stream: TcpStream) {
        let Some(to) = self.next() else { return };
        if let Ok(mut host) = TcpStream::connect(to).await {
            // How a connection ends is the business of its two sides.
            let _ = copy_bidirectional(&mut stream, &mut host).await;
            // A caller may send more before it knows that the host is gone.
            let _ = stream.shutdown().await;
            let _ = copy(&mut stream, &mut sink()).await;
        } else {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        self.open.send_modify(|open| {
            let at = open.iter().position(|one| *one == to).unwrap();
            open.swap_remove(at);
        });
    }

    /// Returns the address of the next connection, which counts as open from now on.
    fn next(&self) -> Option<SocketAddr> {
        let behind = self.behind.lock().unwrap();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let to = *behind.get(turn % behind.len().max(1))?;
        self.open.send_modify(|open| open.push(to));
        Some(to)
    }
}
