//! The readiness of the API server, for the host's own readiness endpoint.

use std::{sync::Arc, time::Duration};

use http::Request;
use kube::{Client, client::Body};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use super::{bounded, cause_of};

/// The time limit for an answer. The timeout of a kubelet's probe has to be longer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// The time for which an answer is cached, so that frequent checks do not load the API server.
const ANSWER_TTL: Duration = Duration::from_secs(1);

/// The readiness check of the API server. All clones share its last answer.
#[derive(Clone)]
pub struct Reach {
    client: Client,
    last: Arc<Mutex<Option<Last>>>,
}

struct Last {
    at: Instant,
    answer: Result<(), String>,
}

// === impl Reach ===

impl Reach {
    /// Creates a check. The first request is sent by the first [`Reach::check`].
    pub fn new(client: &Client) -> Self {
        Self { client: client.clone(), last: Arc::default() }
    }

    /// Asks the API server whether it is ready, or reuses an answer within its TTL.
    ///
    /// # Errors
    ///
    /// The API server does not answer, or reports a failing check, mostly of etcd.
    pub async fn check(&self) -> Result<(), String> {
        let mut last = self.last.lock().await;
        if let Some(last) = last.as_ref().filter(|last| last.at.elapsed() < ANSWER_TTL) {
            return last.answer.clone();
        }
        let answer = timeout(ANSWER_TIMEOUT, self.ask()).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {ANSWER_TIMEOUT:?}")));
        *last = Some(Last { at: Instant::now(), answer: answer.clone() });
        answer
    }

    async fn ask(&self) -> Result<(), String> {
        // Every authenticated user may get `/readyz`, by a role that Kubernetes itself creates.
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = http::Uri::from_static("/readyz");
        let answer = self.client.send(request).await.map_err(|error| cause_of(&error))?;
        let status = answer.status();
        // Without that role, the API server refuses, and so has answered.
        let is_refusal = matches!(status.as_u16(), 401 | 403 | 404);
        if status.is_success() || is_refusal {
            return Ok(());
        }
        let (head, body) = answer.into_parts();
        let text = bounded::answer(&head, body).await.unwrap_or_default();
        Err(failing(&String::from_utf8_lossy(&text)).unwrap_or_else(|| status.to_string()))
    }
}

/// Returns the failing checks in an answer of the API server, which has a line for each check, with
/// `[-]` before a failed one; `None` if none fails.
fn failing(text: &str) -> Option<String> {
    let failing: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("[-]")).collect();
    (!failing.is_empty()).then(|| failing.join(", "))
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    /// Returns the check of an API server with this answer, and the number of requests that it got.
    fn answering(code: u16, text: &'static str) -> (Reach, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            assert_eq!(request.uri(), "/readyz");
            counted.fetch_add(1, Ordering::Relaxed);
            let answer = http::Response::builder().status(code).body(text.to_owned()).unwrap();
            async move { Ok::<_, Infallible>(answer) }
        });
        (Reach::new(&Client::new(service, "default")), asked)
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_of_the_api_server_is_cached_for_its_ttl() {
        let (reach, asked) = answering(200, "ok");
        for seconds in [0, 0, 2, 0] {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            assert_eq!(reach.check().await, Ok(()));
        }
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn failing_checks_of_the_api_server_are_named() {
        let text = "[+]ping ok\n[-]etcd failed: reason withheld\n[-]shutdown failed\nreadyz check failed\n";
        let cases = [
            (500, text, Err("etcd failed: reason withheld, shutdown failed".to_owned())),
            (502, "bad gateway", Err("502 Bad Gateway".to_owned())),
            (429, "", Err("429 Too Many Requests".to_owned())),
            (403, "", Ok(())),
        ];
        for (code, text, expected) in cases {
            assert_eq!(answering(code, text).0.check().await, expected, "{code}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_does_not_answer_is_not_waited_for() {
        let service = tower::service_fn(async |_: Request<Body>| {
            std::future::pending::<Result<http::Response<String>, Infallible>>().await
        });
        let reach = Reach::new(&Client::new(service, "default"));
        assert_eq!(reach.check().await, Err("no answer within 3s".to_owned()));
    }
}
