//! HTTP below the parts that use it: serving connections within a limit, the check of callers, and
//! requests to addresses that are checked.

mod address;
pub mod caller;
mod connect;
mod dial;
mod network;
mod public;
mod resolve;
pub(crate) mod server;
mod tls;

pub(crate) use self::{
    address::{Address, encoded, shown},
    connect::{AGENT, Answer, Body, Connector},
    dial::Dial,
    network::{Network, Reach, System},
    resolve::Policy,
    tls::{Trust, build_with, certificates, secure},
};
pub use self::{
    connect::{InvalidOptions, Options, Times},
    network::Home,
};

use std::{net::IpAddr, time::Duration};

use mortise_core::error_chain;
use tokio::io::{AsyncRead, AsyncWrite};

/// The reason why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No connection, or no answer.
    #[error("`{host}` does not answer: {found}")]
    Unreachable { host: String, found: String },

    /// The server accepts connections, but does not speak TLS.
    #[error("`{host}` speaks no TLS: {found}")]
    NoTls { host: String, found: String },

    /// The IP address is never contacted.
    #[error("`{host}` is not asked: {found}")]
    Refused { host: String, found: String },

    /// The IP address is that of this machine, which the policy does not allow.
    #[error("`{host}` is not asked: {ip} is this machine")]
    Loopback { host: String, ip: IpAddr },
}

/// A connection.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

// === impl Error ===

impl Error {
    pub(crate) fn unreachable(host: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        Self::Unreachable { host: host.to_owned(), found: error_chain::without_repeats(error) }
    }

    fn late(host: &str, what: &str, limit: Duration) -> Self {
        let found = format!("{what} within {} s", limit.as_secs());
        Self::Unreachable { host: host.to_owned(), found }
    }
}
