//! A request to the API server and its answer, with retries while the server is busy or down.

use std::{sync::atomic::AtomicU32, time::Duration};

use bytes::Bytes;
use http::{Request, StatusCode, header};
use kube::client::Body;
use mortise_core::{
    api::{Answer, Outgoing, Refusal},
    error_chain,
};
use serde_json::Value;
use tokio::time;

use super::{
    Cluster,
    bounded::{self, page_size},
    own::NotOwn,
};

/// The reason of a request that was not sent, since the cluster has not answered the last ones.
const UNREACHABLE: &str = "ClusterUnreachable";

/// The error of a request that was not sent, since the cluster does not answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the cluster does not answer, and is asked again in {} s: {why}", .wait.as_secs())]
pub(super) struct Closing {
    pub(super) wait: Duration,
    pub(super) why: String,
}

/// The retries and time limits of requests.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The highest number of attempts, the first one included.
    pub attempts: u32,
    /// The wait after the first attempt if the server sends no `Retry-After`. It doubles each time.
    pub first_wait: Duration,
    /// The longest wait. A request for which the server asks for a longer wait is not retried here:
    /// its caller retries later.
    pub longest_wait: Duration,
    /// The time limit for an answer.
    pub answer: Duration,
    /// The time limit for a `CustomResourceDefinition` to be established.
    pub established: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            attempts: 5,
            first_wait: Duration::from_millis(200),
            longest_wait: Duration::from_secs(10),
            answer: Duration::from_secs(30),
            established: Duration::from_secs(30),
        }
    }
}

// === impl Cluster ===

impl Cluster {
    /// Sends a request, and retries it after a 429, a 5xx or no answer, as long as the policy
    /// allows.
    pub async fn send(&self, outgoing: &Outgoing) -> Result<Answer, Refusal> {
        self.check(&outgoing.cluster).map_err(|other| Refusal::unsendable(&other))?;
        let mut wait = self.policy.first_wait;
        let mut attempt = 1;
        loop {
            let refusal = match self.send_once(outgoing).await {
                Ok(answer) => return Ok(answer),
                Err(refusal) => refusal,
            };
            let may_pass = refusal.reason != UNREACHABLE && refusal.is_passing()
                || (outgoing.retry_not_found && refusal.code == 404);
            let asked = refusal.retry_after.unwrap_or(wait.min(self.policy.longest_wait));
            let is_long = asked > self.policy.longest_wait;
            if attempt >= self.policy.attempts || !may_pass || is_long {
                return Err(refusal);
            }
            tracing::debug!(path = outgoing.path, attempt, refusal = refusal.outline(), wait = ?asked, "a request failed, retrying");
            time::sleep(asked).await;
            wait = wait.saturating_mul(2);
            attempt += 1;
        }
    }

    async fn send_once(&self, outgoing: &Outgoing) -> Result<Answer, Refusal> {
        let request = to_http(outgoing).map_err(|error| Refusal::unsendable(&error))?;
        if outgoing.is_write() && !self.lease.is_held() {
            return Err(Refusal::not_held());
        }
        let request_and_answer = async {
            if let Some(most) = page_size(request.uri()).filter(|_| !outgoing.is_write()) {
                let size = AtomicU32::new(most);
                let page = bounded::page(&self.client, request, (most, &size), usize::MAX).await;
                return Ok(page.map_err(|error| no_answer(&*error))?.into_parts());
            }
            let (head, body) =
                self.client.send(request).await.map_err(|error| no_answer(&error))?.into_parts();
            let bytes = bounded::answer(&head, body).await;
            Ok((head, bytes.map_err(|error| no_answer(&*error))?))
        };
        let answered = time::timeout(self.policy.answer, request_and_answer).await;
        let (head, bytes) = answered.unwrap_or_else(|_| {
            Err(Refusal {
                message: format!("no answer within {:?}", self.policy.answer),
                ..Refusal::default()
            })
        })?;
        read_answer(&head, &bytes)
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }
}

fn read_answer(head: &http::response::Parts, bytes: &Bytes) -> Result<Answer, Refusal> {
    let body = serde_json::from_slice::<Value>(bytes);
    if head.status.is_success() {
        let body = body.map_err(|error| Refusal {
            message: format!("the answer is not JSON: {error}"),
            ..Refusal::default()
        })?;
        return Ok(Answer { created: head.status == StatusCode::CREATED, body });
    }
    let header =
        head.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    Err(Refusal::read(head.status.as_u16(), header, body.ok().as_ref(), bytes))
}

fn to_http(of: &Outgoing) -> Result<Request<Body>, http::Error> {
    let mut request = Request::builder()
        .method(of.method.verb())
        .uri(&of.path)
        .header(header::ACCEPT, of.accept());
    if of.body.is_some() {
        request = request.header(header::CONTENT_TYPE, of.method.content_type());
    }
    request.body(
        of.body.as_ref().map_or_else(Body::empty, |body| Body::from(body.to_string().into_bytes())),
    )
}

fn no_answer(error: &(dyn std::error::Error + 'static)) -> Refusal {
    if let Some(closed) =
        anyhow::Chain::new(error).find_map(|cause| cause.downcast_ref::<Closing>())
    {
        let reason = UNREACHABLE.to_owned();
        return Refusal { reason, message: closed.to_string(), ..Refusal::default() };
    }
    if let Some(refused) =
        anyhow::Chain::new(error).find_map(|cause| cause.downcast_ref::<NotOwn>())
    {
        return Refusal::unsendable(refused);
    }
    Refusal { message: error_chain::without_repeats(error), ..Refusal::default() }
}
