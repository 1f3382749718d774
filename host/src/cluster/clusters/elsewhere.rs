//! The rights of a kubeconfig's user in its cluster, which the user itself asks for.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use mortise_core::{
    api::{Refusal, Unavailable},
    contract::Kind,
    grant::rights::{Permit, Question, ReadTarget},
    store::Scope,
};
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use crate::cluster::{
    Cluster,
    answers::{Answer, Answered, Answers, SELF_REVIEWS, reviewed, rungs},
};

/// The number of questions to one cluster at once: fewer than requests.
const MAX_IN_FLIGHT: usize = 4;
/// The time after which a right is asked for again.
const MAX_ALLOWED_AGE: Duration = Duration::from_mins(1);
/// The time after which a missing right is asked for again: it may be granted soon.
const MAX_DENIED_AGE: Duration = Duration::from_secs(10);
/// The number of answers about writes that are kept: more than namespaces with events at once.
const MAX_WRITES: usize = 1024;

/// The rights in one cluster, as far as they were asked for.
#[derive(Debug)]
pub(crate) struct Elsewhere {
    cluster: Cluster,
    answers: RwLock<Answers>,
    /// The answers about writes that are asked for beforehand. They are not renewed: no run waits
    /// for them.
    writes: Mutex<HashMap<Question, Answered>>,
    /// True if a right is known that earlier runs asked for in vain: they are to be told.
    is_news: AtomicBool,
}

/// The cluster did not say whether a right is held.
#[derive(Debug, thiserror::Error)]
enum Unanswered {
    /// The cluster does not say how the kind is served.
    #[error(transparent)]
    Kind(#[from] Unavailable),

    /// The cluster does not say whether its user has this right.
    #[error("could not ask whether the user of the kubeconfig may {0}")]
    Question(Question),
}

// === impl Elsewhere ===

impl Elsewhere {
    pub(super) fn new(cluster: &Cluster) -> Self {
        Self {
            cluster: cluster.clone(),
            answers: RwLock::default(),
            writes: Mutex::default(),
            is_news: AtomicBool::default(),
        }
    }

    /// Returns how a read may be answered, if that is known without a request.
    pub(crate) fn known(&self, kind: &Kind, place: ReadTarget<'_>) -> Option<Permit> {
        let resource = self.cluster.known(kind)?;
        self.answers.read().permit(&resource, place).ok()
    }

    /// Returns how a read may be answered; asks if necessary.
    pub(crate) async fn permit(&self, kind: &Kind, place: ReadTarget<'_>) -> Permit {
        let permit = self.ask_permit(kind, place).await;
        permit.unwrap_or_else(|unanswered| Permit::Unreachable(unanswered.to_string()))
    }

    async fn ask_permit(&self, kind: &Kind, place: ReadTarget<'_>) -> Result<Permit, Unanswered> {
        let Some(resource) = self.cluster.resolve(kind).await? else { return Ok(Permit::Unserved) };
        for (namespace, name) in rungs(&resource, place.namespace, place.name) {
            let of = |verb: &&'static str| Question::of(&resource, verb, namespace, name);
            self.ask(place.verbs().iter().map(of).collect()).await;
            if self.answers.read().permit(&resource, place) == Ok(Permit::Stored) {
                break;
            }
        }
        let permit = self.answers.read().permit(&resource, place);
        permit.map_err(Unanswered::Question)
    }

    /// Returns whether a scope may be watched; `None` if that is not known.
    pub(crate) fn may_watch(&self, kind: &Kind, scope: &Scope) -> Option<bool> {
        let resource = self.cluster.known(kind)?;
        self.answers.read().may_watch(&resource, scope)
    }

    /// Fails unless the user is known to have the right to a verb on the objects of a kind in a
    /// namespace; asks if necessary.
    pub(crate) async fn permitted(
        &self,
        kind: &Kind,
        verb: &'static str,
        namespace: &str,
    ) -> Result<(), Refusal> {
        let unanswered =
            |why: Unanswered| Refusal { message: why.to_string(), ..Refusal::default() };
        let resource =
            self.cluster.resolve(kind).await.map_err(|error| unanswered(error.into()))?;
        let resource = resource.ok_or_else(|| Refusal { code: 404, ..Refusal::default() })?;
        let question = Question::of(&resource, verb, Some(namespace), None);
        match self.write_answer(&question).await {
            Answer::Allowed => Ok(()),
            Answer::Denied => {
                let message = format!("the user of the kubeconfig may not {question}");
                Err(Refusal { code: 403, message, ..Refusal::default() })
            }
            Answer::Unanswered => Err(unanswered(Unanswered::Question(question))),
        }
    }

    async fn write_answer(&self, question: &Question) -> Answer {
        let known = self.writes.lock().get(question).copied();
        if let Some(known) = known.filter(|known| !is_old(known, Instant::now())) {
            return known.answer;
        }
        let answered = self.answers_to(vec![question.clone()]).await;
        let answer = answered.first().map_or(Answer::Unanswered, |(_, answered)| answered.answer);
        let mut writes = self.writes.lock();
        if writes.len() >= MAX_WRITES {
            writes.clear();
        }
        writes.extend(answered);
        answer
    }

    /// Asks again for the rights whose answers are too old. Returns whether an answer has changed
    /// since the last time.
    pub(super) async fn renew(&self) -> bool {
        let now = Instant::now();
        let old: Vec<Question> = {
            let answers = self.answers.read();
            let old = answers.known.iter().filter(|(_, answered)| is_old(answered, now));
            old.map(|(question, _)| question.clone()).collect()
        };
        let answered = self.answers_to(old).await;
        let has_changed = self.answers.write().take(answered, Vec::new(), Vec::new()).changed;
        self.is_news.swap(false, Ordering::Relaxed) || has_changed
    }

    async fn ask(&self, mut questions: Vec<Question>) {
        {
            let answers = self.answers.read();
            let is_known = |question: &Question| {
                answers.is(question, Answer::Allowed) || answers.is(question, Answer::Denied)
            };
            questions.retain(|question| !is_known(question));
        }
        let answered = self.answers_to(questions).await;
        let mut answers = self.answers.write();
        let was_open =
            answered.iter().any(|(question, _)| answers.is(question, Answer::Unanswered));
        if answers.take(answered, Vec::new(), Vec::new()).changed && was_open {
            self.is_news.store(true, Ordering::Relaxed);
        }
    }

    async fn answers_to(&self, questions: Vec<Question>) -> Vec<(Question, Answered)> {
        let asked = questions.into_iter().map(async |question| {
            let answer = match reviewed(&self.cluster, SELF_REVIEWS, question.self_review(), &question.cluster).await {
                Ok(true) => Answer::Allowed,
                Ok(false) => Answer::Denied,
                Err(refusal) => {
                    tracing::debug!(cluster = %question.cluster, %question, %refusal, "could not ask what the user of a kubeconfig may do");
                    Answer::Unanswered
                }
            };
            (question, Answered::now(answer))
        });
        stream::iter(asked).buffer_unordered(MAX_IN_FLIGHT).collect().await
    }
}

/// Returns whether an answer has to be asked for again.
fn is_old(answered: &Answered, now: Instant) -> bool {
    let most = if answered.answer == Answer::Allowed { MAX_ALLOWED_AGE } else { MAX_DENIED_AGE };
    now.saturating_duration_since(answered.at) >= most
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Request;
    use kube::{Client, client::Body};
    use mortise_core::fixture::v1;
    use mortise_embedded_api::{EmbeddedApi, Options};
    use tower::{BoxError, Service as _};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_right_that_only_a_later_run_was_told_of_is_news_once() {
        let api = EmbeddedApi::new(Options::default());
        let is_away = Arc::new(AtomicBool::new(true));
        let (router, fails) = (api.router(), Arc::clone(&is_away));
        let service = tower::service_fn(move |request: Request<Body>| {
            let fails = request.uri().path() == SELF_REVIEWS && fails.load(Ordering::Relaxed);
            let mut router = router.clone();
            async move {
                if fails {
                    return Err(BoxError::from("connection refused"));
                }
                Ok::<_, BoxError>(router.call(request).await?)
            }
        });
        let elsewhere = Elsewhere::new(&Cluster::new(Client::new(service, "default")));
        let permit = async || {
            let place = ReadTarget::object(Some("a"), "c");
            elsewhere.permit(&v1("", "ConfigMap"), place).await
        };
        assert!(matches!(permit().await, Permit::Unreachable(_)));
        is_away.store(false, Ordering::Relaxed);
        assert_eq!(permit().await, Permit::Stored);
        assert!(elsewhere.renew().await, "the first run is told");
        assert!(!elsewhere.renew().await);
    }
}
