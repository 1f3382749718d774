//! The rights of a kubeconfig's user in its cluster, which the user itself asks for.

use std::{collections::HashMap, time::Duration};

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
        Self { cluster: cluster.clone(), answers: RwLock::default(), writes: Mutex::default() }
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

    /// Asks again for the rights whose answers are too old. Returns whether an answer has changed.
    pub(super) async fn renew(&self) -> bool {
        let now = Instant::now();
        let old: Vec<Question> = {
            let answers = self.answers.read();
            let old = answers.known.iter().filter(|(_, answered)| is_old(answered, now));
            old.map(|(question, _)| question.clone()).collect()
        };
        let answered = self.answers_to(old).await;
        self.answers.write().take(answered, Vec::new(), Vec::new()).changed
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
        self.answers.write().take(answered, Vec::new(), Vec::new());
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
