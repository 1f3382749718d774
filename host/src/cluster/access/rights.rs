//! The rights of one processor's account: asks for them and keeps the answers that the processor
//! uses.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock, Weak},
};

use futures::{FutureExt as _, StreamExt as _, TryFutureExt as _, future::BoxFuture, stream};
use mortise_core::{
    api::{Outgoing, Refusal, Unavailable},
    contract::{Description, GrantedRule, Kind, ObjectRef},
    grant::{
        Selected, effective,
        rights::{self, Account, LIST, NotRead, Permit, Question, ReadTarget, Rights as _},
        role::{Roles, Served},
        secret_of,
    },
    store::Scope,
};
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio::{
    sync::{Semaphore, watch as latest},
    time::Instant,
};

use super::Acting;
use crate::cluster::{
    Cluster,
    answers::{
        Answer, Answered, Answers, Fresh, REVIEWS, Renewed, SELF_REVIEWS, Stale, reviewed, rungs,
    },
    clusters::{Link, Problem, Remotes, unusable},
};

/// The maximum number of questions in flight, of all processors: many declarations need many
/// questions.
pub(super) const MAX_IN_FLIGHT: usize = 16;

/// The number of questions of a processor after which its renewal looks at the time.
const QUESTIONS_AT_ONCE: usize = 256;

/// The maximum number of started selections whose rights are asked for, as many as watches of a
/// processor by default. Those of others are reported when a request is refused.
const MAX_ASKED_SELECTIONS: usize = 256;

/// The rights of one processor's account, as far as they were asked for. One for each loaded
/// version of the processor.
#[derive(Debug)]
pub struct Rights {
    pub(super) account: Account,
    /// The host's right to act as the account.
    acting: Arc<Acting>,
    /// The cluster, accessed with the host's own account.
    pub(super) own: Cluster,
    /// The cluster, accessed as the account.
    cluster: Cluster,
    pub(super) description: Arc<Description>,
    answers: RwLock<Answers>,
    /// The selections for which on-demand reconcilers were started.
    started: Mutex<Vec<Arc<Selected>>>,
    /// The granted rules of the description that the account does not hold.
    pub(super) not_held: Mutex<Vec<GrantedRule>>,
    /// The rights of all processors: a question that was answered for another processor with the
    /// same account is not asked again.
    all: All,
    /// Limits the questions in flight of all processors: one permit each.
    pub(super) asking: Arc<Semaphore>,
    /// True if the account itself asks.
    asks_itself: bool,
    /// The other clusters that the version may use.
    remotes: OnceLock<Arc<Remotes>>,
}

/// The rights of all processors of a host.
pub(super) type All = Arc<Mutex<Vec<Weak<Rights>>>>;

/// The API server did not say whether an account has a right.
#[derive(Debug, thiserror::Error)]
enum Unanswered {
    /// The API server does not say how the kind is served.
    #[error(transparent)]
    Kind(#[from] Unavailable),

    /// The API server does not say whether the host may act as the account.
    #[error("could not ask whether this host may act as the ServiceAccount `{0}`")]
    Acting(Account),

    /// The API server does not say whether the account has this right.
    #[error("could not ask whether `{account}` may {question}")]
    Question { account: Account, question: Question },
}

// === impl Rights ===

impl Rights {
    pub(super) fn new(
        own: &Cluster,
        acting: Arc<Acting>,
        account: &Account,
        description: &Arc<Description>,
        all: &All,
        (asking, asks_itself): (&Arc<Semaphore>, bool),
    ) -> Self {
        Self {
            account: account.clone(),
            acting,
            own: own.clone(),
            cluster: own.acting_as(account),
            description: Arc::clone(description),
            answers: RwLock::default(),
            started: Mutex::default(),
            not_held: Mutex::default(),
            all: Arc::clone(all),
            asking: Arc::clone(asking),
            asks_itself,
            remotes: OnceLock::new(),
        }
    }

    /// Sets the other clusters that the version may use. Only the first call has an effect.
    pub(crate) fn set_remotes(&self, remotes: &Arc<Remotes>) {
        let _ = self.remotes.set(Arc::clone(remotes));
    }

    /// Returns the cluster; every request to it is made as the account.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns the rights that the description needs and the account lacks, each in words:
    /// `may not patch services in all namespaces`. Kinds that are not served are not reported.
    pub fn missing(&self) -> Vec<String> {
        self.denied().iter().map(|question| format!("may not {question}")).collect()
    }

    /// Returns the rights that the description needs and the account lacks.
    pub fn denied(&self) -> Vec<Question> {
        let answers = self.answers.read();
        let is_denied = |question: &&Question| answers.is(question, Answer::Denied);
        answers.needed.iter().chain(&answers.started).filter(is_denied).cloned().collect()
    }

    /// Sets the selections for which on-demand reconcilers are started: the rights for these are
    /// needed, too. Returns whether they have changed, so that questions may be open.
    pub(crate) fn set_started(&self, mut started: Vec<Arc<Selected>>) -> bool {
        started.truncate(MAX_ASKED_SELECTIONS);
        let mut held = self.started.lock();
        let has_changed = *held != started;
        *held = started;
        has_changed
    }

    /// Asks for all rights that the description needs, and for those that it grants in roles.
    pub(crate) async fn ask_needed(&self) {
        self.acting.ask().await;
        let (needed, started) = self.needed().await;
        self.ask(&needed).await;
        self.ask(&started).await;
        self.compare_granted().await;
        let mut answers = self.answers.write();
        (answers.needed, answers.started) = (needed, started.into_iter().collect());
        answers.settle();
    }

    /// Returns the questions that the description always needs, and those that it needs for started
    /// selections.
    async fn needed(&self) -> (Vec<Question>, Vec<Question>) {
        let always = self.questions(effective::always(&self.description)).await;
        let started = self.started.lock().clone();
        let mut while_started =
            self.questions(effective::while_started(&self.description, &started)).await;
        while_started.retain(|question| !always.contains(question));
        (always, while_started)
    }

    /// Returns the questions that a description needs, for the kinds that are served.
    async fn questions(&self, mut description: Description) -> Vec<Question> {
        // Rights in other clusters are those of a kubeconfig. Those of a declaration for every
        // cluster are asked for where they are used.
        let mut kinds = description.kinds();
        kinds.retain(|kind| kind.cluster.is_empty());
        // Kinds for which the cluster gives no answer now are asked for with the next renewal.
        let mut served = HashMap::new();
        for kind in kinds {
            let resource = self.own.resolve(&kind).await.ok().flatten();
            served.extend(resource.map(|resource| (kind, Served::from(&*resource))));
        }
        let Description {
            reconcilers,
            reads,
            writes,
            name: _,
            version: _,
            grants: _,
            outbound,
            config_schema: _,
        } = &mut description;
        reconcilers.retain(|reconciler| served.contains_key(&reconciler.of.kind));
        reads.retain(|read| served.contains_key(&read.kind));
        writes.retain(|rule| served.contains_key(&rule.of.kind));
        let credentials = outbound.iter_mut().map(|rule| &mut rule.credentials);
        credentials.for_each(|all| all.retain(|of| served.contains_key(&of.kind)));
        let served = |kind: &Kind| served.get(kind).cloned().unwrap_or_else(Served::of_any);
        Roles::needed(&description, served).questions()
    }

    /// Returns how a read may be answered; asks the API server if necessary.
    async fn ask_permit(&self, kind: &Kind, place: ReadTarget<'_>) -> Result<Permit, Unanswered> {
        if self.acting.ask().await.is_none() {
            return Err(Unanswered::Acting(self.account.clone()));
        }
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

    /// Returns whether objects of a kind may be patched, in a namespace and with a name. `None` if
    /// the question has no answer, or the kind is not served.
    pub(crate) fn may_patch(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: Option<&str>,
    ) -> Option<bool> {
        let resource = self.own.known(kind)?;
        let may = self.answers.read().may(&resource, "patch", namespace, name);
        may.ok().map(|may| may.is_ok())
    }

    /// Asks whether objects of kinds may be patched, in a namespace and with a name. Returns
    /// whether all questions were answered; kinds that are not served are not asked for.
    pub(crate) async fn ask_patches(
        &self,
        places: &[(Kind, Option<String>, Option<String>)],
    ) -> bool {
        let (mut questions, mut is_answered) = (Vec::new(), true);
        for (kind, namespace, name) in places {
            match self.own.resolve(kind).await {
                Ok(Some(resource)) => {
                    let (namespace, name) = (namespace.as_deref(), name.as_deref());
                    questions.push(Question::of(&resource, "patch", namespace, name));
                }
                Ok(None) => {}
                Err(_) => is_answered = false,
            }
        }
        self.ask(&questions).await;
        let answers = self.answers.read();
        let is_open = |question| answers.is(question, Answer::Unanswered);
        is_answered && !questions.iter().any(is_open)
    }

    /// Asks whether scopes may be watched.
    pub(crate) async fn ask_watches(&self, scopes: &[(Kind, Scope)]) {
        self.acting.ask().await;
        let mut questions = Vec::new();
        for (kind, scope) in scopes {
            // A kind that is not served is asked for once it is served.
            let Ok(Some(resource)) = self.own.resolve(kind).await else { continue };
            let (namespace, name) = (scope.namespace.as_deref(), scope.name.as_deref());
            // The answer for a narrow scope takes wider rights into account.
            let of = |verb| Question::of(&resource, verb, namespace, name);
            questions.extend(LIST.map(of));
        }
        self.ask(&questions).await;
    }

    /// Stores an answer to the questions whether objects of a kind of the core group may be listed
    /// and watched.
    #[cfg(test)]
    pub(crate) fn set_answer(&self, kind: &str, namespace: Option<&str>, is_allowed: bool) {
        self.acting.set_granted(true);
        let resource = self.own.known(&mortise_core::fixture::v1("", kind)).unwrap();
        let answer = if is_allowed { Answer::Allowed } else { Answer::Denied };
        let answered = Answered::now(answer);
        let answered = LIST.map(|verb| (Question::of(&resource, verb, namespace, None), answered));
        self.answers.write().known.extend(answered);
    }

    /// Asks the questions that have no answer yet.
    async fn ask(&self, questions: &[Question]) {
        let unknown: Vec<Question> = {
            let answers = self.answers.read();
            let is_unknown = |question: &&Question| {
                matches!(
                    answers.known.get(question),
                    None | Some(Answered { answer: Answer::Unanswered, .. })
                )
            };
            questions.iter().filter(is_unknown).cloned().collect()
        };
        let (mut answered, open) = self.split_answered(unknown);
        answered.extend(self.answers(open).await);
        let mut answers = self.answers.write();
        answers.known.extend(answered);
        answers.settle();
    }

    /// Splits questions into those that were answered for other processors with the same account,
    /// such as the former version of this one, and the open ones. Shared answers are renewed
    /// together.
    fn split_answered(
        &self,
        questions: Vec<Question>,
    ) -> (Vec<(Question, Answered)>, Vec<Question>) {
        let all: Vec<Arc<Self>> = self.all.lock().iter().filter_map(Weak::upgrade).collect();
        let is_other =
            |one: &&Arc<Self>| one.account == self.account && !std::ptr::eq(Arc::as_ptr(one), self);
        let others: Vec<&Arc<Self>> = all.iter().filter(is_other).collect();
        let (mut answered, mut open) = (Vec::new(), Vec::new());
        for question in questions {
            let known = others.iter().find_map(|other| other.answered(&question));
            match known {
                Some(known) => answered.push((question, known)),
                None => open.push(question),
            }
        }
        (answered, open)
    }

    fn answered(&self, question: &Question) -> Option<Answered> {
        let answered = self.answers.read().known.get(question).copied();
        answered.filter(|answered| answered.answer != Answer::Unanswered)
    }

    async fn answers(&self, questions: Vec<Question>) -> Vec<(Question, Answered)> {
        let answers = questions.into_iter().map(async |question| {
            let at = Instant::now();
            let (question, answer) = self.answer(question).await;
            (question, Answered { answer, at })
        });
        stream::iter(answers).buffer_unordered(MAX_IN_FLIGHT).collect().await
    }

    async fn answer(&self, question: Question) -> (Question, Answer) {
        let answer = match self.review(question.review(&self.account), &question.cluster).await {
            Ok(true) => Answer::Allowed,
            Ok(false) => Answer::Denied,
            Err(refusal) => {
                tracing::warn!(account = %self.account, %question, %refusal, "could not ask what an account may do");
                Answer::Unanswered
            }
        };
        (question, answer)
    }

    /// Sends a `SubjectAccessReview` about the account, or asks the same as the account itself.
    pub(super) async fn review(
        &self,
        mut review: Value,
        cluster: &Arc<str>,
    ) -> Result<bool, Refusal> {
        // The semaphore is never closed.
        let _permit = self.asking.acquire().await;
        let (asker, path) =
            if self.asks_itself { (&self.cluster, SELF_REVIEWS) } else { (&self.own, REVIEWS) };
        if self.asks_itself
            && let Some(fields) = review.as_object_mut()
        {
            fields.insert("kind".to_owned(), "SelfSubjectAccessReview".into());
            let spec = fields.get_mut("spec").and_then(Value::as_object_mut);
            if let Some(spec) = spec {
                spec.retain(|key, _| key.ends_with("Attributes"));
            }
        }
        reviewed(asker, path, review, cluster).await
    }

    /// Asks the stale questions again, and the needed ones that were never asked, as long as there
    /// is time. If the API server does not answer, the previous answer stays. Returns whether an
    /// answer has changed, and whether one is missing.
    pub(super) async fn renew(&self, stale: Stale, fresh: &mut Fresh) -> Renewed {
        let (needed, started) = self.needed().await;
        let questions = self.answers.read().stale(stale, needed.iter().chain(&started));
        let of_account = |question: &Question| (self.account.clone(), question.clone());
        let (known, open): (Vec<Question>, Vec<Question>) = questions
            .into_iter()
            .partition(|question| fresh.known.contains_key(&of_account(question)));
        let known = known.into_iter().filter_map(|question| {
            let answered = *fresh.known.get(&of_account(&question))?;
            Some((question, answered))
        });
        let (mut answered, mut open) = (known.collect::<Vec<_>>(), open.into_iter());
        let mut renewed = Renewed::default();
        loop {
            let asked: Vec<Question> = open.by_ref().take(QUESTIONS_AT_ONCE).collect();
            let new = self.answers(asked).await;
            let of =
                |(question, answered): &(Question, Answered)| (of_account(question), *answered);
            fresh.known.extend(new.iter().map(of));
            answered.extend(new);
            renewed = renewed.or(self.take(std::mem::take(&mut answered), &needed, &started));
            let is_late = Instant::now() >= fresh.ends;
            if open.len() == 0 || is_late {
                renewed.unanswered |= open.len() > 0;
                break;
            }
        }
        let (changed, unanswered) = self.compare_granted().await;
        renewed.or(Renewed { changed, unanswered })
    }

    fn take(
        &self,
        answered: Vec<(Question, Answered)>,
        needed: &[Question],
        started: &[Question],
    ) -> Renewed {
        self.answers.write().take(answered, needed.to_vec(), started.to_vec())
    }

    /// Returns the connection to a cluster, if the account is known to have the rights to its Secret.
    fn known_link(&self, cluster: &Arc<str>) -> Option<Arc<Link>> {
        let secret = secret_of(cluster)?;
        let target = secret_target(&secret);
        let is_permitted = rights::Rights::known(self, &secret.kind, target)? == Permit::Stored;
        self.remotes.get().filter(|_| is_permitted)?.connected(cluster).ok()
    }

    async fn permit_elsewhere(&self, kind: &Kind, place: ReadTarget<'_>) -> Permit {
        match self.secret_permit(&kind.cluster).await {
            Ok(Permit::Stored) => match self.connected(&kind.cluster) {
                Ok(link) => match link.watches.failure_of(kind) {
                    Some(why) => Permit::Unreachable(format!("cluster `{}`: {why}", kind.cluster)),
                    None => link.rights.permit(kind, place).await,
                },
                Err(why) => Permit::Unreachable(why),
            },
            Ok(refused) => refused,
            Err(why) => Permit::Unreachable(why),
        }
    }

    /// Returns whether the account may get, list and watch the Secret of a cluster.
    async fn secret_permit(&self, cluster: &Arc<str>) -> Result<Permit, String> {
        let Some(secret) = secret_of(cluster) else { return Ok(Permit::Unserved) };
        let permit = self.ask_permit(&secret.kind, secret_target(&secret)).await;
        permit.map_err(|unanswered| unanswered.to_string())
    }

    /// Returns the connection to a cluster, if the account has the rights to its Secret.
    pub(crate) async fn link(&self, cluster: &Arc<str>) -> Result<Arc<Link>, String> {
        self.check_secret(cluster).await?;
        self.connected(cluster)
    }

    async fn check_secret(&self, cluster: &Arc<str>) -> Result<(), String> {
        match self.secret_permit(cluster).await? {
            Permit::Stored => Ok(()),
            Permit::Denied(question) => Err(format!(
                "cluster `{cluster}`: its kubeconfig is not read: `{}` may not {question}",
                self.account
            )),
            _ => Err(format!("cluster `{cluster}`: its Secret cannot be read")),
        }
    }

    fn connected(&self, cluster: &Arc<str>) -> Result<Arc<Link>, String> {
        let connected = self.remotes(cluster)?.connected(cluster);
        connected.map_err(|problem| unusable(cluster, &problem))
    }

    /// Returns the state of a cluster and its changes, if the account has the rights to its Secret.
    pub(crate) async fn changes(
        &self,
        cluster: &Arc<str>,
    ) -> Result<latest::Receiver<Result<Arc<Link>, Problem>>, String> {
        self.check_secret(cluster).await?;
        let changes = self.remotes(cluster)?.changes(cluster);
        changes.map_err(|problem| unusable(cluster, &problem))
    }

    fn remotes(&self, cluster: &str) -> Result<&Arc<Remotes>, String> {
        self.remotes.get().ok_or_else(|| format!("cluster `{cluster}` is not used"))
    }

    /// Gets the object as it is now from the API server; `None` if it does not exist.
    async fn get_live(&self, of: &ObjectRef) -> Result<Option<Value>, NotRead> {
        let cluster = if of.kind.cluster.is_empty() {
            self.cluster.clone()
        } else {
            self.link(&of.kind.cluster).await.map_err(NotRead::Failed)?.cluster.clone()
        };
        let resource = cluster.resolve(&of.kind).await;
        let resource = resource.map_err(|error| NotRead::Failed(error.to_string()))?;
        let path = resource.ok_or(NotRead::Unserved)?.path_of(of.namespace.as_deref(), &of.name);
        let name = &of.kind.cluster;
        match cluster.send(&Outgoing::get(path).to(name)).await {
            Ok(answer) => Ok(Some(answer.body)),
            Err(refusal) if refusal.code == 404 => Ok(None),
            Err(refusal) => match Question::refused(&refusal.message, &self.account, name) {
                // The right was revoked after the API server was asked about it.
                Some(question) => {
                    self.relies_on(&question);
                    Err(NotRead::Denied(question))
                }
                None => Err(NotRead::Failed(refusal.to_string())),
            },
        }
    }
}

/// Returns the target of the read of a cluster's Secret, which is watched by its name.
fn secret_target(secret: &ObjectRef) -> ReadTarget<'_> {
    ReadTarget::reconciled(secret.namespace.as_deref(), &secret.name)
}

impl rights::Rights for Rights {
    fn account(&self) -> &Account {
        &self.account
    }

    fn known(&self, kind: &Kind, place: ReadTarget<'_>) -> Option<Permit> {
        if !kind.cluster.is_empty() {
            let link = self.known_link(&kind.cluster)?;
            // The failure is named where there is time to ask.
            let fails = link.watches.failure_of(kind).is_some();
            return if fails { None } else { link.rights.known(kind, place) };
        }
        if !self.acting.is_granted()? {
            return Some(Permit::Denied(Question::impersonate(&self.account)));
        }
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

    fn permit<'a>(
        &'a self,
        kind: &'a Kind,
        place: ReadTarget<'a>,
    ) -> BoxFuture<'a, Result<Permit, String>> {
        if !kind.cluster.is_empty() {
            return self.permit_elsewhere(kind, place).map(Ok).boxed();
        }
        let permit = self.ask_permit(kind, place);
        permit.map_err(|unanswered| unanswered.to_string()).boxed()
    }

    fn get<'a>(&'a self, of: &'a ObjectRef) -> BoxFuture<'a, Result<Option<Value>, NotRead>> {
        self.get_live(of).boxed()
    }

    fn may_watch(&self, kind: &Kind, scope: &Scope) -> Option<bool> {
        if !kind.cluster.is_empty() {
            return self.known_link(&kind.cluster)?.rights.may_watch(kind, scope);
        }
        if !self.acting.is_granted()? {
            return Some(false);
        }
        let resource = self.own.known(kind)?;
        self.answers.read().may_watch(&resource, scope)
    }

    fn relies_on(&self, refused: &Question) {
        // Rights in other clusters are asked for again by the connection.
        if !refused.cluster.is_empty() {
            return;
        }
        let mut answers = self.answers.write();
        answers.known.insert(refused.clone(), Answered::now(Answer::Denied));
        answers.whole.clear();
        answers.settle();
    }

    fn digest(&self) -> Option<String> {
        self.answers.read().digest.map(|digest| digest.to_string())
    }
}
