//! Names, and connections in memory or of this machine.

use std::{
    cell::Cell,
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::atomic::AtomicUsize,
};

use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt as _, duplex},
    net::{TcpListener, TcpStream},
};

use super::*;
use crate::http::{Error, Stream as AnyStream};

pub(super) type Stream = Box<dyn AnyStream>;
type Serve = Arc<dyn Fn(Stream) -> BoxFuture<'static, ()> + Send + Sync>;

thread_local! {
    /// True if connections of this test are of this machine.
    static OVER_SOCKETS: Cell<bool> = const { Cell::new(false) };
}

/// Opens connections over sockets of this machine from now on in this test, whose time must not be
/// paused.
pub(super) fn use_sockets() {
    OVER_SOCKETS.set(true);
}

/// Returns both ends of a connection.
async fn connection() -> io::Result<(Stream, Stream)> {
    if !OVER_SOCKETS.get() {
        let (ours, theirs) = duplex(64 << 10);
        return Ok((Box::new(ours), Box::new(theirs)));
    }
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (ours, theirs) =
        tokio::try_join!(TcpStream::connect(listener.local_addr()?), listener.accept())?;
    Ok((Box::new(ours), Box::new(theirs.0)))
}

/// Servers by name. Whoever connects to the address of a name is served by its server.
#[derive(Default)]
pub(super) struct Names {
    servers: Mutex<BTreeMap<String, Server>>,
    asked: Mutex<Vec<String>>,
    /// The requests that servers have read, as far as they count them.
    pub(super) requests: Arc<AtomicUsize>,
    connected: Mutex<Vec<(String, SocketAddr)>>,
}

struct Server {
    /// The addresses at the first look, and at further ones.
    addresses: Vec<Vec<IpAddr>>,
    /// `None`: a connection is never opened.
    serve: Option<Serve>,
}

/// Reads the head of a request; `None` at the end of the connection.
pub(super) async fn head(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Option<String> {
    let mut all = Vec::new();
    while !all.ends_with(b"\r\n\r\n") {
        all.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(all).unwrap())
}

fn parsed(addresses: &[&str]) -> Vec<IpAddr> {
    addresses.iter().map(|text| text.parse().unwrap()).collect()
}

// === impl Names ===

impl Names {
    pub(super) fn serving<F: Future<Output = ()> + Send + 'static>(
        host: &str,
        addresses: &[&str],
        serve: impl Fn(Stream) -> F + Send + Sync + 'static,
    ) -> Arc<Self> {
        let names = Arc::new(Self::default());
        names.serve(host, addresses, serve);
        names
    }

    pub(super) fn serve<F: Future<Output = ()> + Send + 'static>(
        &self,
        host: &str,
        addresses: &[&str],
        serve: impl Fn(Stream) -> F + Send + Sync + 'static,
    ) {
        let serve: Serve = Arc::new(move |stream| serve(stream).boxed());
        self.add(host, vec![parsed(addresses)], Some(serve));
    }

    /// Returns names one of which has addresses that never answer.
    pub(super) fn serving_none(host: &str, addresses: &[&str]) -> Arc<Self> {
        let names = Arc::new(Self::default());
        names.add(host, vec![parsed(addresses)], None);
        names
    }

    /// Returns names one of which is looked up for ever.
    pub(super) fn hanging(host: &str) -> Arc<Self> {
        let names = Arc::new(Self::default());
        names.add(host, Vec::new(), None);
        names
    }

    /// Sets the addresses of a name from its second look on.
    pub(super) fn then(&self, host: &str, addresses: &[&str]) {
        self.servers.lock().get_mut(host).unwrap().addresses.push(parsed(addresses));
    }

    fn add(&self, host: &str, addresses: Vec<Vec<IpAddr>>, serve: Option<Serve>) {
        self.servers.lock().insert(host.to_owned(), Server { addresses, serve });
    }

    /// Returns the number of connections.
    pub(super) fn opened(&self) -> usize {
        self.connected.lock().len()
    }

    pub(super) fn opened_to(&self, host: &str) -> usize {
        self.connected.lock().iter().filter(|(name, _)| name == host).count()
    }

    /// Returns the addresses of all connections.
    pub(super) fn connected(&self) -> Vec<String> {
        self.connected.lock().iter().map(|(_, to)| to.to_string()).collect()
    }

    /// Returns the names that were looked up.
    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

impl Network for Names {
    fn addresses<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, Error>> {
        async move {
            if let Ok(ip) = host.parse() {
                return Ok(vec![ip]);
            }
            let looks = {
                let mut asked = self.asked.lock();
                asked.push(host.to_owned());
                asked.iter().filter(|name| *name == host).count()
            };
            let addresses = {
                let servers = self.servers.lock();
                let all = &servers[host].addresses;
                all.get(looks - 1).or(all.last()).cloned()
            };
            match addresses {
                Some(addresses) => Ok(addresses),
                None => std::future::pending().await,
            }
        }
        .boxed()
    }

    fn open(&self, to: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn AnyStream>>> {
        async move {
            // The server of the name that was looked up last.
            let name = self.asked.lock().last().cloned().unwrap_or_default();
            let serve = self.servers.lock().get(&name).and_then(|server| server.serve.clone());
            let Some(serve) = serve else { return std::future::pending().await };
            self.connected.lock().push((name, to));
            let (ours, theirs) = connection().await?;
            tokio::spawn(serve(theirs));
            Ok(ours)
        }
        .boxed()
    }
}
