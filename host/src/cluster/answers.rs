//! Access reviews, the answers to them, and the permits for reads that follow from the answers.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use mortise_core::{
    api::{Method, Outgoing, Refusal},
    contract::Kind,
    grant::rights::{Account, GET, LIST, Permit, Question, Read, ReadTarget},
    reads::record::Digest,
    resource::Resource,
    store::Scope,
};
use serde_json::Value;
use tokio::time::Instant;

use super::Cluster;

/// The paths of reviews: about any user, and about the user who asks.
pub(super) const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
pub(super) const SELF_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
/// The maximum number of answers kept for a processor: some MiB, and as many questions each minute.
/// An account with rights to single objects only needs a question for each object; above the limit,
/// answers for single objects and namespaces that the description does not need are dropped, and the
/// next run asks again. A guest can name any number of them.
const MAX_ANSWERS: usize = 10_000;

/// The API server's answers about one account.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) known: BTreeMap<Question, Answered>,
    /// The kinds of which every object may be read: most reads are permitted by this set alone.
    pub(super) whole: HashSet<Kind>,
    /// The questions that the description needs, for the kinds that are served.
    pub(super) needed: Vec<Question>,
    /// The further questions that it needs for started selections.
    pub(super) started: BTreeSet<Question>,
    /// The digest of the answers to `needed`; `None` before the first answers.
    pub(super) digest: Option<Digest>,
}

/// An answer of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Allowed,
    Denied,
    /// The API server did not answer; the question is asked again soon.
    Unanswered,
}

/// An answer, and the time at which it was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) answer: Answer,
    pub(super) at: Instant,
}

/// The answers to ask for again. Questions without an answer are always asked again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stale {
    pub(super) all: bool,
    pub(super) denied: bool,
    /// Answers that were asked for before this time.
    pub(super) before: Option<Instant>,
}

/// The answers of one renewal, for all accounts of a namespace: no question is asked twice in a
/// renewal.
#[derive(Debug)]
pub(super) struct Fresh {
    pub(super) known: HashMap<(Account, Question), Answered>,
    /// The time after which no further questions are asked: the others wait for the next renewal.
    pub(super) ends: Instant,
}

/// The result of a renewal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Renewed {
    /// True if an answer differs from the previous one.
    pub(super) changed: bool,
    /// True if the API server left a question unanswered.
    pub(super) unanswered: bool,
}

/// Sends an access review to a cluster of a name. Returns whether the right is held.
pub(super) async fn reviewed(
    cluster: &Cluster,
    path: &str,
    review: Value,
    name: &Arc<str>,
) -> Result<bool, Refusal> {
    let review = Outgoing::new(Method::Post, path.to_owned(), Some(review)).to(name);
    let answer = cluster.send(&review).await?;
    let allowed = answer.body.pointer("/status/allowed").and_then(Value::as_bool);
    Ok(allowed.unwrap_or_default())
}

/// Returns the scopes of rights that may allow an access, the widest first: all objects, the
/// objects of the namespace, the object alone.
pub(super) fn rungs<'a>(
    resource: &Resource,
    namespace: Option<&'a str>,
    name: Option<&'a str>,
) -> Vec<(Option<&'a str>, Option<&'a str>)> {
    let namespace = namespace.filter(|namespace| resource.namespaced && !namespace.is_empty());
    let mut rungs = vec![(None, None), (namespace, None), (namespace, name)];
    rungs.dedup();
    rungs
}

// === impl Answers ===

impl Answers {
    pub(super) fn is(&self, question: &Question, answer: Answer) -> bool {
        self.known.get(question).is_some_and(|answered| answered.answer == answer)
    }

    /// Returns the questions to ask again, and the needed questions that were never asked.
    pub(super) fn stale<'a>(
        &'a self,
        stale: Stale,
        needed: impl Iterator<Item = &'a Question>,
    ) -> Vec<Question> {
        let known = self.known.iter().filter(|(_, answered)| stale.is(**answered));
        let known = known.map(|(question, _)| question);
        let new = needed.filter(|question| !self.known.contains_key(question));
        known.chain(new).cloned().collect()
    }

    /// Stores the answers of a renewal. A question that was left unanswered keeps its previous
    /// answer. That a right is allowed which was asked for since a selection was started is no
    /// change.
    pub(super) fn take(
        &mut self,
        answered: Vec<(Question, Answered)>,
        needed: Vec<Question>,
        started: Vec<Question>,
    ) -> Renewed {
        self.started = started.into_iter().collect();
        let mut renewed = Renewed { changed: self.needed != needed, unanswered: false };
        for (question, answered) in answered {
            let is_open = answered.answer == Answer::Unanswered;
            renewed.unanswered |= is_open;
            let former = self.known.get(&question).map(|former| former.answer);
            if !(is_open && former.is_some()) {
                let is_news = former.is_some()
                    || answered.answer != Answer::Allowed
                    || !self.started.contains(&question);
                renewed.changed |= is_news && former != Some(answered.answer);
                self.known.insert(question, answered);
            }
        }
        self.needed = needed;
        if renewed.changed {
            self.whole.clear();
        }
        self.settle();
        renewed
    }

    /// Returns whether a scope may be watched, which includes a list; `None` if that is not known.
    pub(super) fn may_watch(&self, resource: &Resource, scope: &Scope) -> Option<bool> {
        let (namespace, name) = (scope.namespace.as_deref(), scope.name.as_deref());
        match LIST.map(|verb| self.may(resource, verb, namespace, name)) {
            [Ok(Ok(())), Ok(Ok(()))] => Some(true),
            [Ok(Err(_)), _] | [_, Ok(Err(_))] => Some(false),
            _ => None,
        }
    }

    /// Returns whether a verb is allowed, by a right to this scope or to a wider one; the inner
    /// error is the denied question. Fails with the question that has no answer yet.
    pub(super) fn may(
        &self,
        resource: &Resource,
        verb: &'static str,
        namespace: Option<&str>,
        name: Option<&str>,
    ) -> Result<Result<(), Question>, Question> {
        let of = |(namespace, name)| Question::of(resource, verb, namespace, name);
        for rung in rungs(resource, namespace, name) {
            if self.is(&of(rung), Answer::Allowed) {
                return Ok(Ok(()));
            }
        }
        // The API server's answer for the narrowest scope takes wider rights into account.
        let narrowest = of((namespace, name));
        if self.is(&narrowest, Answer::Denied) { Ok(Err(narrowest)) } else { Err(narrowest) }
    }

    pub(super) fn permit(
        &self,
        resource: &Resource,
        place: ReadTarget<'_>,
    ) -> Result<Permit, Question> {
        let may = |verb| self.may(resource, verb, place.namespace, place.name);
        for verb in place.verbs() {
            if let Err(denied) = may(verb)? {
                let is_live = place.read == Read::Get && *verb != "get";
                return Ok(if is_live { Permit::Live } else { Permit::Denied(denied) });
            }
        }
        Ok(Permit::Stored)
    }

    pub(super) fn may_read_all(&self, resource: &Resource) -> bool {
        GET.iter().all(|verb| self.is(&Question::of(resource, verb, None, None), Answer::Allowed))
    }

    /// Adds a kind of which every object may be read. Checks again under the lock: the answers may
    /// have been renewed since the caller checked.
    pub(super) fn insert_whole(&mut self, resource: &Resource) {
        if self.may_read_all(resource) {
            self.whole.insert(resource.kind.clone());
        }
    }

    /// Updates the digest after a change and, if there are too many answers, forgets those for
    /// single objects and namespaces that the description does not need.
    pub(super) fn settle(&mut self) {
        if self.known.len() > MAX_ANSWERS {
            let needed: HashSet<&Question> = self.needed.iter().chain(&self.started).collect();
            let is_wide = |of: &Question| of.namespace.is_none() && of.name.is_none();
            self.known.retain(|question, _| is_wide(question) || needed.contains(question));
        }
        let answer = |question: &Question| self.known.get(question).map(|answered| answered.answer);
        let answered = |question: &Question| format!("{question:?} {:?}\n", answer(question));
        let answered: Vec<String> = self.needed.iter().map(answered).collect();
        self.digest = Some(Digest::of(false, answered.iter().map(String::as_bytes)));
    }
}

// === impl Fresh ===

impl Fresh {
    pub(super) fn until(ends: Instant) -> Self {
        Self { known: HashMap::new(), ends }
    }
}

// === impl Renewed ===

impl Renewed {
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            changed: self.changed || other.changed,
            unanswered: self.unanswered || other.unanswered,
        }
    }
}

// === impl Answered ===

impl Answered {
    pub(super) fn now(answer: Answer) -> Self {
        Self { answer, at: Instant::now() }
    }
}

// === impl Stale ===

impl Stale {
    /// Every answer.
    pub(super) const ALL: Self = Self { all: true, denied: false, before: None };

    fn is(self, answered: Answered) -> bool {
        self.all
            || answered.answer == Answer::Unanswered
            || (self.denied && answered.answer == Answer::Denied)
            || self.before.is_some_and(|before| answered.at < before)
    }

    /// Returns the same answers, without those that will have been asked for since `now`.
    pub(super) fn as_of(self, now: Instant) -> Self {
        let before = self.before.max(self.all.then_some(now));
        Self { all: false, before, ..self }
    }

    /// Returns the union of the two.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            all: self.all || other.all,
            denied: self.denied || other.denied,
            before: self.before.max(other.before),
        }
    }
}

#[cfg(test)]
mod tests {
    use mortise_core::fixture::v1;

    use super::*;

    #[test]
    fn answers_for_names_that_a_guest_makes_up_are_bounded() {
        let resource = Resource {
            kind: v1("", "Pod"),
            plural: "pods".into(),
            namespaced: true,
            status: false,
        };
        let of = |namespace: &str, name| Question::of(&resource, "get", Some(namespace), name);
        let (needed, all) = (of("shop", None), Question::of(&resource, "get", None, None));
        let mut answers = Answers { needed: vec![needed.clone()], ..Answers::default() };
        let made_up = (0..MAX_ANSWERS).map(|at| of(&format!("n{at}"), None));
        let asked = made_up.chain([needed.clone(), all.clone(), of("shop", Some("x"))]);
        answers.known.extend(asked.map(|asked| (asked, Answered::now(Answer::Denied))));
        answers.settle();
        assert_eq!(answers.known.into_keys().collect::<BTreeSet<_>>(), [needed, all].into());
    }
}
