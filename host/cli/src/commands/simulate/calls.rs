//! Calls to systems outside of the cluster in a simulation: they are refused, sent if they only
//! read, or answered from a file. A call that would change something ends the simulation.

use std::sync::Arc;

use futures::future::{self, BoxFuture};
use mortise_core::{
    outbound::{Allowed, Answer, CallError, Method, Outbound},
    reads::View,
    reconcile::mask_texts,
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

use crate::print;

/// The reason why a call that only reads is not sent.
const REFUSED: &str = "`mortise simulate` sends nothing: --call-safe sends GET and HEAD, --answers FILE answers calls from a file";

/// A call that was not made: its method, and its URL without the query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unmade {
    pub(super) method: Method,
    pub(super) url: String,
}

/// The calls of a simulation.
pub struct Calls {
    by: By,
    unmade: Mutex<Option<Unmade>>,
    called: Notify,
}

/// The way in which calls are answered.
enum By {
    /// None is.
    Nobody,
    /// What only reads is sent.
    Safe(Arc<dyn Outbound>),
    /// All are answered from a file.
    File(Arc<dyn Outbound>),
}

// === impl Unmade ===

impl Unmade {
    /// Masks the values of the Secrets of these objects in the URL, as in those of calls that are
    /// made.
    pub(super) fn masked(mut self, objects: &[Value]) -> Self {
        let mut view = View::default();
        for object in objects {
            view.given(&print::kind_of(object).into(), object);
        }
        mask_texts(&view.finish(), vec![&mut self.url]);
        self
    }
}

// === impl Calls ===

impl Calls {
    /// Creates calls that are refused.
    pub fn refused() -> Self {
        Self::by(By::Nobody)
    }

    /// Creates calls of which those that only read are sent by a client.
    pub fn safe(client: Arc<dyn Outbound>) -> Self {
        Self::by(By::Safe(client))
    }

    /// Creates calls that are all answered.
    pub fn answered(answers: Arc<dyn Outbound>) -> Self {
        Self::by(By::File(answers))
    }

    fn by(by: By) -> Self {
        Self { by, unmade: Mutex::default(), called: Notify::new() }
    }

    /// Waits for a call that would change something, and returns it. It has no answer: what the
    /// processor would do next is not known.
    pub(super) async fn unmade(&self) -> Unmade {
        loop {
            if let Some(unmade) = self.unmade.lock().take() {
                return unmade;
            }
            self.called.notified().await;
        }
    }
}

impl Outbound for Calls {
    fn send(&self, call: Allowed) -> BoxFuture<'_, Result<Answer, CallError>> {
        match &self.by {
            By::File(answers) => answers.send(call),
            _ if !call.method.is_safe() => {
                let (method, url) = (call.method, call.target.to_string());
                *self.unmade.lock() = Some(Unmade { method, url });
                self.called.notify_one();
                Box::pin(future::pending())
            }
            By::Safe(client) => client.send(call),
            By::Nobody => {
                let refused = CallError::Denied(REFUSED.to_owned());
                Box::pin(future::ready(Err(refused)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt as _;
    use mortise_core::outbound::{Egress, Target};

    use super::*;

    /// A client that answers each call with its method.
    struct Echo;

    impl Outbound for Echo {
        fn send(&self, call: Allowed) -> BoxFuture<'_, Result<Answer, CallError>> {
            let body = call.method.name().into();
            Box::pin(future::ready(Ok(Answer { status: 200, headers: Vec::new(), body })))
        }
    }

    fn call(method: Method) -> Allowed {
        Allowed {
            method,
            target: Target::parse("https://a.example/items?key=hidden").unwrap(),
            headers: Vec::new(),
            body: None,
            authorization: None,
            egress: Arc::new(Egress {
                origin: "https://a.example".to_owned(),
                credentials: Vec::new(),
                rate: None,
                ca_bundle: None,
                private: false,
                connect: None,
            }),
            pause: Duration::ZERO,
            timeout: Duration::from_secs(1),
            processor: "a".into(),
        }
    }

    #[test]
    fn what_only_reads_is_sent_or_refused_and_all_else_ends_the_simulation() {
        for calls in [Calls::refused(), Calls::safe(Arc::new(Echo))] {
            let is_sent = matches!(calls.by, By::Safe(_));
            for method in [Method::Get, Method::Head] {
                let answer = calls.send(call(method)).now_or_never().unwrap();
                assert_eq!(answer.is_ok(), is_sent, "{method:?}");
                assert!(calls.unmade().now_or_never().is_none(), "{method:?}");
            }
            for method in [Method::Post, Method::Put, Method::Patch, Method::Delete] {
                assert!(calls.send(call(method)).now_or_never().is_none(), "{method:?}");
                let url = "https://a.example/items".to_owned();
                assert_eq!(calls.unmade().now_or_never(), Some(Unmade { method, url }));
            }
        }
    }

    #[test]
    fn the_value_of_a_secret_is_masked_in_the_url_of_a_call_that_is_not_made() {
        let url = "https://a.example/hidden".to_owned();
        let unmade = Unmade { method: Method::Post, url };
        for (kind, expected) in [("Secret", "https://a.example/***"), ("Rule", &*unmade.url)] {
            let data = serde_json::json!({"k": "aGlkZGVu"});
            let object = serde_json::json!({"apiVersion": "v1", "kind": kind, "data": data});
            assert_eq!(unmade.clone().masked(&[object]).url, expected);
        }
    }

    #[test]
    fn a_file_answers_every_call() {
        let calls = Calls::answered(Arc::new(Echo));
        let answer = calls.send(call(Method::Post)).now_or_never().unwrap().unwrap();
        assert_eq!(answer.body, b"POST");
        assert!(calls.unmade().now_or_never().is_none());
    }
}
