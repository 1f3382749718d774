//! What one processor's account may do: the answers that the processor relies on, and what follows from them for reads.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use futures::{StreamExt as _, stream};
use parking_lot::RwLock;
use serde_json::Value;

use super::Question;
use crate::{
    cluster::{Account, Cluster, Method, Outgoing, Resource, Unavailable},
    contract::{Description, Kind},
    rbac::{Roles, Served},
    record::Digest,
    store::Scope,
};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// How many questions are on their way at once.
const AT_ONCE: usize = 16;
/// How many answers are kept for a processor. One that may do things to single objects only has a question for each of them;
/// past this number those for single objects are forgotten, and asked again by the next run.
const MOST: usize = 20_000;
/// What the host does for a processor to read a kind from the store: a get for each object, a list for selections, and the watch.
const GET: [&str; 3] = ["get", "list", "watch"];
const LIST: [&str; 2] = ["list", "watch"];

/// What one processor's account may do, as far as that was asked. One for each loaded version of the processor.
#[derive(Debug)]
pub struct Rights {
    account: Account,
    /// The host's own.
    own: Cluster,
    /// Acting as the account.
    cluster: Cluster,
    description: Arc<Description>,
    answers: RwLock<Answers>,
}

#[derive(Debug, Default)]
struct Answers {
    known: BTreeMap<Question, Answer>,
    /// Kinds of which every object may be read: what most reads are answered by.
    whole: HashSet<Kind>,
    /// What the description needs, of the kinds that are served.
    needed: Vec<Question>,
    /// Of the answers to that.
    digest: Option<Digest>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Allowed,
    Denied,
    /// The API server did not say; asked again soon.
    Unanswered,
}

/// How a read may be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Permit {
    /// From the store.
    Stored,
    /// By a request as the account: it may get the object, but not list or watch it.
    Live,
    /// Not at all.
    Denied(Question),
    /// The cluster does not serve the kind.
    Unserved,
}

/// What is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// None: of all namespaces, or of what has none.
    pub(crate) namespace: Option<&'a str>,
    /// None: every object.
    pub(crate) name: Option<&'a str>,
    pub(crate) read: Read,
}

/// How something is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// One object; live where it cannot be watched.
    Get,
    /// A list.
    List,
    /// The object that a call is about: its changes must be seen.
    Reconciled,
}

/// The API server did not say what an account may do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unanswered {
    /// It does not say how the kind is served.
    #[error(transparent)]
    Kind(#[from] Unavailable),

    /// It does not say whether this is allowed.
    #[error("could not ask whether `{account}` may {question}")]
    Question { account: Account, question: Question },
}

// === impl Rights ===

impl Rights {
    pub(super) fn new(own: &Cluster, account: &Account, description: &Arc<Description>) -> Self {
        Self {
            account: account.clone(),
            own: own.clone(),
            cluster: own.acting_as(account),
            description: Arc::clone(description),
            answers: RwLock::default(),
        }
    }

    /// Whose they are.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// The cluster, where every request is made as the account.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// What the description needs and the account may not do, each in words: `may not patch services in all namespaces`. Of kinds
    /// that are not served nothing is said.
    pub fn missing(&self) -> Vec<String> {
        let answers = self.answers.read();
        let is_denied = |question: &&Question| answers.is(question, Answer::Denied);
        let missing = answers.needed.iter().filter(is_denied);
        missing.map(|question| format!("may not {question}")).collect()
    }

    /// The identity of what the account may do of that which the description needs.
    pub(crate) fn digest(&self) -> Option<Digest> {
        self.answers.read().digest
    }

    /// Asks for all that the description needs.
    pub(crate) async fn ask_needed(&self) {
        let needed = self.needed().await;
        self.ask(&needed).await;
        let mut answers = self.answers.write();
        answers.needed = needed;
        answers.settle();
    }

    /// What the description needs, of the kinds that are served.
    async fn needed(&self) -> Vec<Question> {
        let mut description = Description::clone(&self.description);
        let kinds = crate::run::declared_kinds(&description);
        // What the cluster does not answer for now is asked for with the next renewal.
        let mut served = HashMap::new();
        for kind in kinds {
            let is_any = kind.kind == "*" || kind.group == "*";
            let resource = if is_any { None } else { self.own.resolve(&kind).await.ok().flatten() };
            let known = resource.as_deref().map(Served::from).or(is_any.then(Served::of_any));
            served.extend(known.map(|known| (kind, known)));
        }
        description.reconcilers.retain(|reconciler| served.contains_key(&reconciler.of.kind));
        description.reads.retain(|read| served.contains_key(&read.kind));
        description.writes.retain(|rule| served.contains_key(&rule.of.kind));
        let served = |kind: &Kind| served.get(kind).cloned().unwrap_or_else(Served::of_any);
        Roles::of(&description, served).questions()
    }

    /// How a read may be answered, if that is known without asking.
    pub(crate) fn known(&self, kind: &Kind, place: Place<'_>) -> Option<Permit> {
        let answers = self.answers.read();
        if answers.whole.contains(kind) {
            return Some(Permit::Stored);
        }
        let resource = self.own.known(kind)?;
        let permit = answers.permit(&resource, place).ok()?;
        let is_whole = permit == Permit::Stored && answers.may_read_all(&resource);
        drop(answers);
        if is_whole {
            self.answers.write().insert_whole(&resource);
        }
        Some(permit)
    }

    /// How a read may be answered; asks the API server where it has to.
    pub(crate) async fn permit(&self, kind: &Kind, place: Place<'_>) -> Result<Permit, Unanswered> {
        if let Some(known) = self.known(kind, place) {
            return Ok(known);
        }
        let Some(resource) = self.own.resolve(kind).await? else { return Ok(Permit::Unserved) };
        let verbs = place.verbs();
        for (namespace, name) in rungs(&resource, place.namespace, place.name) {
            let of = |verb: &&'static str| Question::of(&resource, verb, namespace, name);
            self.ask(&verbs.iter().map(of).collect::<Vec<_>>()).await;
            if self.answers.read().permit(&resource, place) == Ok(Permit::Stored) {
                break;
            }
        }
        let permit = self.answers.read().permit(&resource, place);
        let account = self.account.clone();
        permit.map_err(|question| Unanswered::Question { account, question })
    }

    /// Whether a scope may be watched: listed, too. None where that was not asked yet, or could not be.
    pub(crate) fn may_watch(&self, kind: &Kind, scope: &Scope) -> Option<bool> {
        let resource = self.own.known(kind)?;
        let answers = self.answers.read();
        let (namespace, name) = (scope.namespace.as_deref(), scope.name.as_deref());
        let may = |verb| answers.may(&resource, verb, namespace, name);
        match LIST.map(may) {
            [Ok(Ok(())), Ok(Ok(()))] => Some(true),
            [Ok(Err(_)), _] | [_, Ok(Err(_))] => Some(false),
            _ => None,
        }
    }

    /// Asks whether scopes may be watched.
    pub(crate) async fn ask_watches(&self, scopes: &[(Kind, Scope)]) {
        let mut questions = Vec::new();
        for (kind, scope) in scopes {
            // A kind that is not served is asked for when it is.
            let Ok(Some(resource)) = self.own.resolve(kind).await else { continue };
            let (namespace, name) = (scope.namespace.as_deref(), scope.name.as_deref());
            for (namespace, name) in rungs(&resource, namespace, name) {
                let of = |verb| Question::of(&resource, verb, namespace, name);
                questions.extend(LIST.map(of));
            }
        }
        self.ask(&questions).await;
    }

    /// Notes that the API server has refused something, so that the answer is renewed with the others.
    pub(crate) fn relies_on(&self, refused: &Question) {
        let mut answers = self.answers.write();
        answers.known.insert(refused.clone(), Answer::Denied);
        answers.whole.clear();
        answers.settle();
    }

    /// Has an answer to whether objects of a kind of the core group may be listed and watched.
    #[cfg(test)]
    pub(crate) fn tell(&self, kind: &str, namespace: Option<&str>, is_allowed: bool) {
        let resource = self.own.known(&crate::fixture::v1("", kind)).unwrap();
        let answer = if is_allowed { Answer::Allowed } else { Answer::Denied };
        let told = LIST.map(|verb| (Question::of(&resource, verb, namespace, None), answer));
        self.answers.write().known.extend(told);
    }

    /// Asks what is not known yet.
    async fn ask(&self, questions: &[Question]) {
        let unknown: Vec<Question> = {
            let answers = self.answers.read();
            let is_unknown = |question: &&Question| {
                matches!(answers.known.get(question), None | Some(Answer::Unanswered))
            };
            questions.iter().filter(is_unknown).cloned().collect()
        };
        let told = self.answers(unknown).await;
        let mut answers = self.answers.write();
        answers.known.extend(told);
        answers.settle();
    }

    async fn answers(&self, questions: Vec<Question>) -> Vec<(Question, Answer)> {
        let answers = questions.into_iter().map(|question| self.answer(question));
        stream::iter(answers).buffer_unordered(AT_ONCE).collect().await
    }

    async fn answer(&self, question: Question) -> (Question, Answer) {
        let body = question.review(&self.account);
        let answer = match self
            .own
            .send(&Outgoing::new(Method::Post, REVIEWS.into(), Some(body)))
            .await
        {
            Ok(answer) => match answer.body.pointer("/status/allowed").and_then(Value::as_bool) {
                Some(true) => Answer::Allowed,
                _ => Answer::Denied,
            },
            Err(refusal) => {
                tracing::warn!(account = %self.account, %question, %refusal, "could not ask what an account may do");
                Answer::Unanswered
            }
        };
        (question, answer)
    }

    /// Asks everything again. Where the API server does not answer, the former answer stands. Says whether one differs.
    pub(super) async fn renew(&self) -> Renewed {
        let needed = self.needed().await;
        let mut questions: Vec<Question> = self.answers.read().known.keys().cloned().collect();
        questions.extend(
            needed
                .iter()
                .filter(|of| questions.binary_search(of).is_err())
                .cloned()
                .collect::<Vec<_>>(),
        );
        let told = self.answers(questions).await;
        let mut answers = self.answers.write();
        let mut renewed = Renewed { changed: answers.needed != needed, unanswered: false };
        for (question, answer) in told {
            renewed.unanswered |= answer == Answer::Unanswered;
            let former = answers.known.get(&question).copied();
            let stands = answer == Answer::Unanswered && former.is_some();
            if !stands && former != Some(answer) {
                renewed.changed = true;
                answers.known.insert(question, answer);
            }
        }
        answers.needed = needed;
        if renewed.changed {
            answers.whole.clear();
        }
        answers.settle();
        renewed
    }
}

/// What came of a renewal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Renewed {
    /// Whether an answer differs from the one before.
    pub(super) changed: bool,
    /// Whether the API server has left something open.
    pub(super) unanswered: bool,
}

/// Where a right to something may come from, the widest first: to all, to those in the namespace, to the object alone.
fn rungs<'a>(
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
    fn is(&self, question: &Question, answer: Answer) -> bool {
        self.known.get(question) == Some(&answer)
    }

    /// Whether something may be done: by a right to it, or to more. An error names the question that is open.
    fn may(
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
        // The API server's answer for the narrowest takes rights to more into account.
        let narrowest = of((namespace, name));
        if self.is(&narrowest, Answer::Denied) { Ok(Err(narrowest)) } else { Err(narrowest) }
    }

    fn permit(&self, resource: &Resource, place: Place<'_>) -> Result<Permit, Question> {
        let may = |verb| self.may(resource, verb, place.namespace, place.name);
        for verb in place.verbs() {
            if let Err(denied) = may(verb)? {
                let is_live = place.read == Read::Get && *verb != "get";
                return Ok(if is_live { Permit::Live } else { Permit::Denied(denied) });
            }
        }
        Ok(Permit::Stored)
    }

    fn may_read_all(&self, resource: &Resource) -> bool {
        GET.iter().all(|verb| self.is(&Question::of(resource, verb, None, None), Answer::Allowed))
    }

    /// Checks again under the lock: the answers may have been renewed since they were looked at.
    fn insert_whole(&mut self, resource: &Resource) {
        if self.may_read_all(resource) {
            self.whole.insert(resource.kind.clone());
        }
    }

    /// After a change: what follows from the answers, and, where they are too many, those for single objects are forgotten.
    fn settle(&mut self) {
        if self.known.len() > MOST {
            let needed: HashSet<&Question> = self.needed.iter().collect();
            self.known.retain(|question, _| question.name.is_none() || needed.contains(question));
        }
        let told = |question: &Question| format!("{question:?} {:?}\n", self.known.get(question));
        let told: Vec<String> = self.needed.iter().map(told).collect();
        self.digest = Some(Digest::of(false, told.iter().map(String::as_bytes)));
    }
}

// === impl Place ===

impl<'a> Place<'a> {
    /// One object.
    pub(crate) fn object(namespace: Option<&'a str>, name: &'a str) -> Self {
        Self { namespace, name: Some(name), read: Read::Get }
    }

    /// A list.
    pub(crate) fn list(namespace: Option<&'a str>, name: Option<&'a str>) -> Self {
        Self { namespace, name, read: Read::List }
    }

    /// The object that a call is about.
    pub(crate) fn reconciled(namespace: Option<&'a str>, name: &'a str) -> Self {
        Self { namespace, name: Some(name), read: Read::Reconciled }
    }

    fn verbs(&self) -> &'static [&'static str] {
        if self.read == Read::List { &LIST } else { &GET }
    }
}
