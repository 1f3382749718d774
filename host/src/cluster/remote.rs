//! Another cluster: from the bytes of a kubeconfig to a client.
//!
//! *Guarantees.* No process is started and no file is read, whatever the kubeconfig says. A
//! connection is opened only to the server that it names, by the rules of [`crate::http`], and
//! redirects are not followed. No more than [`MAX_REQUESTS`] requests are sent at once; a server that
//! fails again and again is left alone for a while.

mod gate;
mod kubeconfig;
mod server;
#[cfg(test)]
mod tests;

pub(crate) use self::{gate::Gate, server::listed};
pub use self::{
    kubeconfig::Refused,
    server::{InvalidServer, Servers},
};

use std::{sync::Arc, time::Duration};

use axum::body::{Body as Answered, BodyDataStream};
use futures::{StreamExt as _, stream};
use http::{HeaderValue, Request, Response, Uri, header, uri::PathAndQuery};
use hyper_util::{
    client::legacy::Client as Hyper,
    rt::{TokioExecutor, TokioTimer},
};
use kube::{Client, client::Body};
use mortise_core::error_chain;
use tokio::time::{Instant, timeout_at};
use tower::BoxError;

use self::kubeconfig::Kubeconfig;
use super::request::Policy;
use crate::{
    http::{Address, Dial, Home, Policy as Addresses, Reach},
    share::Part,
};

/// The time limit for a connection, and for the head of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The time after which an idle connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// The time limit for a body. A watch ends by itself within five minutes, as it is asked to.
const BODY_TIMEOUT: Duration = Duration::from_secs(310);
/// The largest head of an answer, in bytes.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Makes the clients of other clusters.
pub trait Connect: Send + Sync {
    /// Reads a kubeconfig. Opens no connection yet.
    ///
    /// # Errors
    ///
    /// Fails if the kubeconfig has a part that is not accepted, and names the part.
    fn connect(&self, cluster: &str, kubeconfig: &[u8]) -> Result<Connected, Refused>;
}

/// A cluster that can be asked.
pub struct Connected {
    /// The origin of the server: `https://api.provider.example:6443`.
    pub server: String,
    /// Sends the requests.
    pub client: Client,
}

/// Makes clients from kubeconfigs with inline credentials.
#[derive(Debug, Clone, Default)]
pub struct Inline {
    /// The address of the home API server, to which no client is connected.
    pub home: Option<Home>,
}

/// Sends the requests of one client.
#[derive(Clone)]
struct Sender {
    hyper: Hyper<Dial, Body>,
    to: Address,
    token: Option<HeaderValue>,
}

/// Returns the retries and time limits of requests to other clusters: a call that waits for a dead
/// server holds a slot.
pub(crate) fn policy() -> Policy {
    let longest_wait = Duration::from_secs(2);
    Policy { attempts: 2, answer: ANSWER_TIMEOUT, longest_wait, ..Policy::default() }
}

// === impl Inline ===

impl Connect for Inline {
    fn connect(&self, _: &str, kubeconfig: &[u8]) -> Result<Connected, Refused> {
        let Kubeconfig { server: to, certified, token, tls } = Kubeconfig::parse(kubeconfig)?;
        let server = to.origin();
        let never = self.home.clone();
        // An IP address is granted by its own text only: there are no wildcards for addresses.
        let policy = Addresses { literal: true, ..Addresses::default() };
        let dial = Dial::new(to.clone(), certified, tls, Reach { policy, never }, ANSWER_TIMEOUT);
        let hyper = Hyper::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(gate::MAX_REQUESTS)
            .http1_max_buf_size(MAX_HEAD_BYTES)
            // A write is repeated by its own rules only.
            .retry_canceled_requests(false)
            .build(dial);
        let sender = Sender { hyper, to, token };
        let service = tower::service_fn(move |request: Request<Body>| {
            let sender = sender.clone();
            async move { sender.send(request).await }
        });
        Ok(Connected { server, client: Client::new(service, "default") })
    }
}

// === impl Sender ===

impl Sender {
    async fn send(&self, mut request: Request<Body>) -> Result<Response<Answered>, BoxError> {
        *request.uri_mut() = self.uri(request.uri())?;
        if let Some(token) = &self.token {
            request.headers_mut().insert(header::AUTHORIZATION, token.clone());
        }
        let answer = self.hyper.request(request).await;
        // The outer error only says in which part of the client it occurred.
        let answer = answer.map_err(|error| error_chain::without_repeats(&error))?;
        Ok(answer.map(|body| in_time(Answered::new(body))))
    }

    /// Returns the URL at the server of a path of the Kubernetes API.
    fn uri(&self, of: &Uri) -> Result<Uri, BoxError> {
        let base = self.to.path_and_query.trim_end_matches('/');
        let path = of.path_and_query().map_or("/", PathAndQuery::as_str);
        Ok(format!("{}{base}{path}", self.to.origin()).parse()?)
    }
}

/// Returns the body with an error once it takes too long, however little of it comes at a time: a
/// watch is opened again.
fn in_time(body: Answered) -> Answered {
    let end = Instant::now() + BODY_TIMEOUT;
    let next = move |chunks: Option<BodyDataStream>| async move {
        let mut chunks = chunks?;
        let Ok(chunk) = timeout_at(end, chunks.next()).await else {
            let why = format!("the answer has not ended within {} s", BODY_TIMEOUT.as_secs());
            return Some((Err(why.into()), None));
        };
        Some((chunk?.map_err(BoxError::from), Some(chunks)))
    };
    Answered::from_stream(stream::unfold(Some(body.into_data_stream()), next))
}

/// Returns the client with its requests limited, and the state of the limit. What comes in of answers
/// counts to `part`.
pub(crate) fn gated(client: &Client, part: Part) -> (Client, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let (shared, client) = (Arc::clone(&gate), client.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (gate, client, part) = (Arc::clone(&shared), client.clone(), part.clone());
        async move {
            let sent = async { client.send(request).await.map_err(BoxError::from) };
            let mut answer = gate.pass(ANSWER_TIMEOUT, sent).await?;
            answer.extensions_mut().insert(part);
            Ok::<_, BoxError>(answer)
        }
    });
    (Client::new(service, "default"), gate)
}
