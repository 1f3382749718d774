//! Calls to systems outside of the cluster: the client behind the rules of
//! [`mortise_core::outbound`], with its connections, pauses and rates.
//!
//! *Guarantees.* HTTP/1.1 only; redirects are not followed, no proxy is used, cookies are not kept
//! and bodies not decompressed. A call is sent once. It fails with [`CallError::NotSent`] only if no
//! byte has left this machine; a kept connection on which nothing could be written any more is
//! replaced by a new one, once. Each address is checked after its name was resolved, and the checked
//! address is connected to. Neither a header, a body, a path nor a query is logged.

mod code;
mod exchange;
mod places;
mod pool;
mod rates;
mod request;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use futures::{FutureExt as _, future::BoxFuture};
use mortise_core::{
    contract::bounds::text::shortened,
    error_chain,
    key::tenant_of,
    outbound::{
        Allowed, Answer, CallError, Origin, Outbound,
        pauses::{PauseKey, Pauses},
    },
    write::Clock,
};
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use self::{
    code::Code,
    exchange::{Failure, Link},
    places::{Place, Places},
    pool::{Peer, Pool},
    rates::Rates,
    request::Head,
};
#[cfg(test)]
pub(crate) use self::{
    exchange::{MAX_BODY_BYTES, MAX_HEAD_BYTES, MAX_HEADERS},
    places::{MAX_OF_HOST, MAX_OF_ORIGIN},
};
use crate::{
    http::{Address, Home, Network, Policy, Reach, System},
    metrics::Metrics,
};

/// The longest text of an error, in bytes.
const MAX_ERROR_BYTES: usize = 1 << 10;

/// The options for calls to systems outside of the cluster.
#[derive(Clone, Default)]
pub struct Options {
    /// The origins that Processors may grant; none: no call is sent.
    pub origins: Arc<[Origin]>,
    /// True if Processors may grant addresses that are not public.
    pub private: bool,
    /// The home API server, to which no call is sent.
    pub home: Option<Home>,
    /// Sends the calls in place of the host's own client.
    pub client: Option<Arc<dyn Outbound>>,
}

/// Sends calls for the processors of a host. Clones share their state.
#[derive(Clone)]
pub struct Client(Arc<State>);

struct State {
    network: Arc<dyn Network>,
    /// The home API server, to which no call is sent.
    home: Option<Home>,
    now: Clock,
    metrics: Metrics,
    places: Places,
    pool: Pool,
    pauses: Pauses,
    /// The moment from which the times of pauses are counted.
    start: Instant,
    rates: Rates,
}

// === impl Client ===

impl fmt::Debug for Client {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    /// Creates a client without connections. `home`: the home API server.
    pub fn new(home: Option<Home>, now: Clock, metrics: Metrics) -> Self {
        Self::over(Arc::new(System), home, now, metrics)
    }

    fn over(network: Arc<dyn Network>, home: Option<Home>, now: Clock, metrics: Metrics) -> Self {
        Self(Arc::new(State {
            network,
            home,
            now,
            metrics,
            places: Places::default(),
            pool: Pool::default(),
            pauses: Pauses::default(),
            start: Instant::now(),
            rates: Rates::default(),
        }))
    }

    /// Closes connections that nothing has used for a while, for ever.
    pub async fn close_idle(self) {
        self.0.pool.close_idle().await;
    }

    /// Forgets the rates of a processor that was removed.
    pub(crate) fn forget_processor(&self, processor: &str) {
        self.0.rates.forget_processor(processor);
    }
}

impl Outbound for Client {
    fn send(&self, call: Allowed) -> BoxFuture<'_, Result<Answer, CallError>> {
        self.0.send(call).boxed()
    }
}

// === impl State ===

impl State {
    /// Sends a call, and counts it.
    async fn send(&self, call: Allowed) -> Result<Answer, CallError> {
        let start = Instant::now();
        let sent = self.sent(&call).await;
        let (took, origin) = (start.elapsed(), &call.egress.origin);
        let (method, code) = (call.method.name().to_ascii_lowercase(), Code::of(&sent));
        self.metrics.called_outside(&call.processor, (origin, &method, &code.label()), took);
        debug!(processor = %call.processor, %origin, method, %code, ?took, "called outside");
        sent
    }

    async fn sent(&self, call: &Allowed) -> Result<Answer, CallError> {
        let deadline = Instant::now() + call.timeout;
        let namespace = tenant_of(&call.processor);
        let origin = call.target.origin().to_string();
        let key = PauseKey::of(call);
        self.check_pause(call, &key)?;
        if let Some(wait) = self.rates.wait(&call.processor, &call.egress, Instant::now()) {
            return Err(self.paused(call, "rate", wait));
        }
        let request = Head::of(call).map_err(CallError::Invalid)?;
        let place = timeout_at(deadline, self.places.take(namespace, &origin)).await;
        // Time may be over by the moment at which a place becomes free.
        let place = place.ok().filter(|_| Instant::now() < deadline).ok_or_else(|| {
            let limit = call.timeout;
            CallError::NotSent(format!("no place among the calls that are sent within {limit:?}"))
        })?;
        // Another call may have been asked for a pause since.
        self.check_pause(call, &key)?;
        let answer = self.exchanged(call, &request, (deadline, place)).await?;
        self.pauses.follow(call, &answer, (self.now)(), self.start.elapsed());
        Ok(answer)
    }

    fn check_pause(&self, call: &Allowed, key: &PauseKey) -> Result<(), CallError> {
        match self.pauses.left(key, self.start.elapsed()) {
            Some(left) => Err(self.paused(call, "asked", left)),
            None => Ok(()),
        }
    }

    fn paused(&self, call: &Allowed, reason: &'static str, left: Duration) -> CallError {
        self.metrics.call_paused(&call.processor, &call.egress.origin, reason);
        CallError::paused(left)
    }

    /// Sends a request on a kept connection, or on a new one.
    async fn exchanged(
        &self,
        call: &Allowed,
        request: &Head,
        (deadline, _place): (Instant, Place<'_>),
    ) -> Result<Answer, CallError> {
        let peer = Peer::of(call);
        if let Some(link) = self.pool.take(&peer) {
            match self.answered(link, &peer, request, deadline).await {
                // The other side has closed the connection, and knows nothing of this request.
                Err(Failure::NotSent(_)) => {}
                answered => return answered.map_err(CallError::from),
            }
        }
        let link = self.connect(call, &peer, deadline).await.map_err(|why| not_sent(&why))?;
        Ok(self.answered(link, &peer, request, deadline).await?)
    }

    async fn answered(
        &self,
        link: Link,
        peer: &Peer,
        request: &Head,
        deadline: Instant,
    ) -> Result<Answer, Failure> {
        let wire = Arc::clone(link.wire());
        let exchange = timeout_at(deadline, link.exchange(request.to_http()));
        let late = |_| Err(wire.failure("no whole answer within the time of the call".to_owned()));
        let (answer, link) = exchange.await.unwrap_or_else(late)?;
        if let Some(link) = link {
            self.pool.keep(peer, link, Instant::now());
        }
        Ok(answer)
    }

    /// Opens a connection to what the grant names, or to what the URL's host resolves to. The
    /// certificate is always that of the URL's host.
    async fn connect(&self, call: &Allowed, peer: &Peer, by: Instant) -> Result<Link, String> {
        let of = &call.target;
        let host = Address {
            is_tls: of.tls,
            host: of.host.clone(),
            port: of.port,
            path_and_query: String::new(),
        };
        let to = match &call.egress.connect {
            Some(connect) => {
                let to = Address::at(of.tls, connect, "");
                to.ok_or_else(|| format!("`{connect}` is no HOST:PORT"))?
            }
            None => host.clone(),
        };
        let is_private = call.egress.private;
        let policy = Policy { loopback: is_private, literal: false, public: !is_private };
        let reach = Reach { policy, never: self.home.clone() };
        let connected = async {
            let stream = reach.open(&*self.network, &to).await.map_err(|error| whole(&error))?;
            let tls = self.pool.connector(peer)?;
            Link::open(stream, host, &tls).await
        };
        let late = |_| Err(format!("no connection to `{}` within the time of the call", to.host));
        timeout_at(by, connected).await.unwrap_or_else(late)
    }
}

fn whole(error: &(dyn std::error::Error + 'static)) -> String {
    error_chain::without_repeats(error)
}

fn not_sent(why: &str) -> CallError {
    CallError::NotSent(shortened(why, MAX_ERROR_BYTES))
}

impl From<Failure> for CallError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NotSent(why) => not_sent(&why),
            Failure::NoAnswer(why) => Self::NoAnswer(shortened(&why, MAX_ERROR_BYTES)),
            Failure::TooLarge => Self::TooLarge,
        }
    }
}
