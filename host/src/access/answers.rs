//! The answers that one processor relies on, and what follows from them for reads. Pure.

use std::collections::{BTreeMap, HashMap, HashSet};

use tokio::time::Instant;

use super::Question;
use crate::{
    cluster::{Account, Resource},
    contract::Kind,
    record::Digest,
};

/// How many answers are kept for a processor: some MiB at most, and as many questions each minute. One that may do things to single
/// objects only has a question for each of them; past this number those for single objects are forgotten, and asked again by the next
/// run.
const MOST: usize = 10_000;
/// What the host does for a processor to read a kind from the store: a get for each object, a list for selections, and the watch.
pub(super) const GET: [&str; 3] = ["get", "list", "watch"];
pub(super) const LIST: [&str; 2] = ["list", "watch"];

/// The answers.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) known: BTreeMap<Question, Told>,
    /// Kinds of which every object may be read: what most reads are answered by.
    pub(super) whole: HashSet<Kind>,
    /// What the description needs, of the kinds that are served.
    pub(super) needed: Vec<Question>,
    /// Of the answers to that.
    pub(super) digest: Option<Digest>,
}

/// What the API server has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Allowed,
    Denied,
    /// The API server did not say; asked again soon.
    Unanswered,
}

/// An answer, and when it was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) answer: Answer,
    pub(super) at: Instant,
}

/// Which answers are asked for again. What was not answered always is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stale {
    pub(super) all: bool,
    pub(super) denied: bool,
    /// What was asked for before this.
    pub(super) before: Option<Instant>,
}

/// What was answered in one renewal, for all accounts: nothing is asked twice in it.
pub(super) type Fresh = HashMap<(Account, Question), Told>;

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

/// What came of a renewal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Renewed {
    /// Whether an answer differs from the one before.
    pub(super) changed: bool,
    /// Whether the API server has left something open.
    pub(super) unanswered: bool,
}

/// Where a right to something may come from, the widest first: to all, to those in the namespace, to the object alone.
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
        self.known.get(question).is_some_and(|told| told.answer == answer)
    }

    /// What is to be asked again, and what is needed and was never asked.
    pub(super) fn stale(&self, stale: Stale, needed: &[Question]) -> Vec<Question> {
        let known = self.known.iter().filter(|(_, told)| stale.is(**told));
        let known = known.map(|(question, _)| question);
        let new = needed.iter().filter(|question| !self.known.contains_key(question));
        known.chain(new).cloned().collect()
    }

    /// Takes the answers of a renewal.
    pub(super) fn take(&mut self, told: Vec<(Question, Told)>, needed: Vec<Question>) -> Renewed {
        let mut renewed = Renewed { changed: self.needed != needed, unanswered: false };
        for (question, told) in told {
            let is_open = told.answer == Answer::Unanswered;
            renewed.unanswered |= is_open;
            let former = self.known.get(&question).map(|former| former.answer);
            if !(is_open && former.is_some()) {
                renewed.changed |= former != Some(told.answer);
                self.known.insert(question, told);
            }
        }
        self.needed = needed;
        if renewed.changed {
            self.whole.clear();
        }
        self.settle();
        renewed
    }

    /// Whether something may be done: by a right to it, or to more. An error names the question that is open.
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
        // The API server's answer for the narrowest takes rights to more into account.
        let narrowest = of((namespace, name));
        if self.is(&narrowest, Answer::Denied) { Ok(Err(narrowest)) } else { Err(narrowest) }
    }

    pub(super) fn permit(&self, resource: &Resource, place: Place<'_>) -> Result<Permit, Question> {
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

    /// Checks again under the lock: the answers may have been renewed since they were looked at.
    pub(super) fn insert_whole(&mut self, resource: &Resource) {
        if self.may_read_all(resource) {
            self.whole.insert(resource.kind.clone());
        }
    }

    /// After a change: what follows from the answers, and, where they are too many, those for single objects are forgotten.
    pub(super) fn settle(&mut self) {
        if self.known.len() > MOST {
            let needed: HashSet<&Question> = self.needed.iter().collect();
            self.known.retain(|question, _| question.name.is_none() || needed.contains(question));
        }
        let answer = |question: &Question| self.known.get(question).map(|told| told.answer);
        let told = |question: &Question| format!("{question:?} {:?}\n", answer(question));
        let told: Vec<String> = self.needed.iter().map(told).collect();
        self.digest = Some(Digest::of(false, told.iter().map(String::as_bytes)));
    }
}

// === impl Told ===

impl Told {
    pub(super) fn now(answer: Answer) -> Self {
        Self { answer, at: Instant::now() }
    }
}

// === impl Stale ===

impl Stale {
    /// Every answer.
    pub(super) const ALL: Self = Self { all: true, denied: false, before: None };

    fn is(self, told: Told) -> bool {
        self.all
            || told.answer == Answer::Unanswered
            || (self.denied && told.answer == Answer::Denied)
            || self.before.is_some_and(|before| told.at < before)
    }

    /// What one of the two is about.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            all: self.all || other.all,
            denied: self.denied || other.denied,
            before: self.before.max(other.before),
        }
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

    pub(super) fn verbs(&self) -> &'static [&'static str] {
        if self.read == Read::List { &LIST } else { &GET }
    }
}
