use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt as _;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::{
    api::{self, Api, NotEstablished, Outgoing, Refusal, Unavailable},
    contract::{
        self, Description, Failure, Kind, Methods, Note, ObjectRef, Outcome,
        Reconciler as Declared, Request, Retry,
    },
    digest::ModuleDigest,
    dispatch::Dispatch,
    fixture::{
        all, description, fields, kind, labelled, object, object_ref, outcome, resource, v1, whole,
        with,
    },
    grant::{
        Grant,
        rights::{self, Account, NotRead, Permit, Question, ReadTarget, Rights},
    },
    queue::{Cause, Key, Priority},
    reads::View,
    reconcile::{
        self, Called, Fault, Input, Mode, Outside, Parts, Reconciler, Report, Settings, Setup,
        Tried, Usage, Version,
    },
    resource::Resource,
    store::{Scope, Stores},
};

const OWN: &str = "x.dev/own";
const TOKEN: &str = "marker-of-the-token";
/// `marker-of-the-token`
const ENCODED: &str = "bWFya2VyLW9mLXRoZS10b2tlbg==";

/// A client that keeps what it is asked to send, and answers with the path and the credential, as
/// servers do that quote a request.
#[derive(Default)]
struct Client(Mutex<Vec<Allowed>>);

impl Outbound for Client {
    fn send(&self, call: Allowed) -> BoxFuture<'_, Result<Answer, CallError>> {
        let body = call.target.path_and_query.clone().into_bytes();
        let quoted = call.authorization.as_ref().map(|with| with.value.to_string());
        let headers = quoted.into_iter().map(|value| ("x-quoted".to_owned(), value)).collect();
        self.0.lock().push(call);
        std::future::ready(Ok(Answer { status: 201, headers, body })).boxed()
    }
}

type Answers = Vec<Result<Answer, CallError>>;
type Returned = Result<Result<Outcome, Failure>, reconcile::CallError>;

/// A processor that makes calls, and the API server of its host.
struct Guest {
    calls: Mutex<Vec<Call>>,
    /// The answers to the calls, by call of the processor.
    answers: Mutex<Vec<Answers>>,
    requests: Mutex<Vec<Request>>,
    returns: Mutex<Returned>,
    /// Done at the begin of the next call.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    is_leading: AtomicBool,
}

impl std::fmt::Debug for Guest {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("guest")
    }
}

struct Native(Arc<Guest>);

impl reconcile::Call for Native {
    fn digest(&self) -> ModuleDigest {
        ModuleDigest::of(b"native")
    }

    fn outcome_limit(&self) -> usize {
        8 << 20
    }

    fn call<'a>(&'a self, input: Input<'a>) -> BoxFuture<'a, Called> {
        async move {
            let Input { outside: Outside { mut view, mut sending }, request, .. } = input;
            self.0.requests.lock().push(request.clone());
            if let Some(meanwhile) = self.0.meanwhile.lock().take() {
                meanwhile();
            }
            let (calls, mut answers) = (self.0.calls.lock().clone(), Vec::new());
            for call in calls {
                answers.push(sending.send(&mut view, call).await);
            }
            self.0.answers.lock().push(answers);
            let outcome = self.0.returns.lock().clone();
            Called { outcome, outside: Outside { view, sending }, usage: Usage::default() }
        }
        .boxed()
    }
}

impl Api for Guest {
    fn is_leading(&self) -> bool {
        self.is_leading.load(Ordering::Relaxed)
    }

    fn send<'a>(&'a self, _: &'a Outgoing) -> BoxFuture<'a, Result<api::Answer, Refusal>> {
        async { Err(Refusal { code: 403, ..Refusal::default() }) }.boxed()
    }

    fn resolve<'a>(
        &'a self,
        kind: &'a Kind,
    ) -> BoxFuture<'a, Result<Option<Arc<Resource>>, Unavailable>> {
        async { Ok(Some(Arc::new(resource(kind)))) }.boxed()
    }

    fn forget(&self, _: &Kind) {}

    fn established<'a>(&'a self, _: &'a ObjectRef) -> BoxFuture<'a, Result<(), NotEstablished>> {
        async { Ok(()) }.boxed()
    }
}

/// Rights of an account that may read everything but Secrets, whose permit is this one.
#[derive(Debug)]
struct AccountRights(Account, Permit);

impl Rights for AccountRights {
    fn account(&self) -> &Account {
        &self.0
    }

    fn known(&self, kind: &Kind, _: ReadTarget<'_>) -> Option<Permit> {
        Some(if kind.kind == "Secret" { self.1.clone() } else { Permit::Stored })
    }

    fn permit<'a>(
        &'a self,
        kind: &'a Kind,
        place: ReadTarget<'a>,
    ) -> BoxFuture<'a, Result<Permit, String>> {
        let known = self.known(kind, place);
        async move { known.ok_or_else(String::new) }.boxed()
    }

    fn get<'a>(&'a self, _: &'a ObjectRef) -> BoxFuture<'a, Result<Option<Value>, NotRead>> {
        async { Ok(Some(secret("token", "a=b", ENCODED))) }.boxed()
    }

    fn may_watch(&self, _: &Kind, _: &Scope) -> Option<bool> {
        Some(true)
    }

    fn relies_on(&self, _: &Question) {}

    fn digest(&self) -> Option<String> {
        None
    }
}

/// A host of one processor with one object, `Thing default/a`.
struct World {
    client: Arc<Client>,
    guest: Arc<Guest>,
    parts: Parts,
    setup: Setup,
    objects: Vec<Value>,
}

fn secret(name: &str, label: &str, token: &str) -> Value {
    let (key, value) = label.split_once('=').unwrap();
    let labels = json!({key: value});
    let object = with(object("Secret", name, 1), "apiVersion", json!("v1"));
    let object = with(object, "metadata/labels", labels);
    with(object, "data", json!({"token": token, "other": ENCODED}))
}

fn thing() -> Value {
    with(object("Thing", "a", 1), "metadata/finalizers", json!([OWN]))
}

fn rules() -> Vec<contract::OutboundRule> {
    let secrets = || fields(labelled(whole(v1("", "Secret")), "a=b"), &["data.token"]);
    let auths = fields(all("Auth"), &["spec.token", "spec.keys[].value"]);
    let auths = contract::Selection { namespace: Some("default".into()), ..auths };
    let rule = |origin: &str, credentials| contract::OutboundRule {
        origin: origin.to_owned(),
        methods: Methods::GET | Methods::POST,
        credentials,
        pause: 15_000,
    };
    vec![
        rule("https://*.api.example.com", vec![secrets(), auths]),
        rule("http://plain.example.com", vec![secrets()]),
    ]
}

fn egress(origin: &str, kind: &Kind, labels: &str) -> Arc<Egress> {
    let held = GrantedCredential {
        group: kind.group.clone(),
        kind: kind.kind.clone(),
        labels: labels.to_owned(),
    };
    Arc::new(Egress {
        origin: origin.to_owned(),
        credentials: vec![held],
        rate: None,
        ca_bundle: None,
        private: false,
        connect: None,
    })
}

impl World {
    fn new() -> Self {
        let dispatch = Arc::new(Dispatch::new(&Stores::new()));
        dispatch.queue().stand_still();
        let guest = Arc::new(Guest {
            calls: Mutex::default(),
            answers: Mutex::default(),
            requests: Mutex::default(),
            returns: Mutex::new(Ok(Ok(outcome()))),
            meanwhile: Mutex::default(),
            is_leading: AtomicBool::new(true),
        });
        let clock: crate::write::Clock = Arc::new(|| jiff::Timestamp::UNIX_EPOCH);
        let parts = Parts::new(&dispatch, Arc::clone(&guest) as Arc<dyn Api>, &clock);
        let client = Arc::new(Client::default());
        let identity = Version {
            processor: "p".into(),
            version: "1".into(),
            digest: ModuleDigest::of(b"native"),
            libraries: Arc::default(),
        };
        let setup = Setup {
            identity: Arc::new(identity),
            call: Arc::new(Native(Arc::clone(&guest))),
            description: Arc::new(Self::description(Vec::new())),
            config: "".into(),
            settings: Settings::in_namespace("default"),
            grant: Arc::default(),
            api: Arc::clone(&guest) as Arc<dyn Api>,
            rights: None,
            outbound: Some(Arc::clone(&client) as Arc<dyn Outbound>),
            egress: vec![
                egress("https://eu.api.example.com", &v1("", "Secret"), "a=b,!off"),
                egress("https://*.api.example.com", &kind("Auth"), ""),
                egress("http://plain.example.com", &v1("", "Secret"), ""),
            ],
        };
        let auth = with(object("Auth", "auth", 1), "spec/token", json!(TOKEN));
        let off = with(secret("off", "a=b", ENCODED), "metadata/labels/off", json!(""));
        let objects = vec![
            thing(),
            secret("token", "a=b", ENCODED),
            secret("other-label", "a=c", ENCODED),
            secret("empty", "a=b", ""),
            secret("lines", "a=b", "YQpi"),
            off,
            auth,
        ];
        Self { client, guest, parts, setup, objects }
    }

    fn description(outbound: Vec<contract::OutboundRule>) -> Description {
        let of = description(fields(all("Thing"), &["spec", "metadata.finalizers"]), Vec::new());
        let [declared] = <[Declared; 1]>::try_from(of.reconcilers).unwrap();
        let reconcilers = vec![Declared { finalizers: vec![OWN.to_owned()], ..declared }];
        Description { reconcilers, outbound, ..of }
    }

    /// Loads the version and lists what it watches.
    fn start(&mut self, outbound: Vec<contract::OutboundRule>) -> Reconciler {
        let description = Self::description(outbound);
        let grant = Grant::new(&description).unwrap();
        self.setup.description = Arc::new(description);
        self.setup.grant = Arc::new(grant);
        let stores = self.parts.dispatch.stores();
        for (kind, scope, wanted) in self.setup.grant.wanted() {
            // Two rules declare the same Secrets.
            let Some(feed) = stores.open(kind, scope, wanted) else { continue };
            feed.begin_list();
            let of_kind = self.objects.iter().filter(|of| of["kind"] == *kind.kind);
            of_kind.filter(|of| scope.holds(of)).for_each(|of| feed.list_item(of));
            feed.end_list();
        }
        let version = Reconciler::new(self.setup.clone(), self.parts.clone());
        version.put(None, || ());
        self.parts.dispatch.feed();
        version
    }

    fn run(&self, version: &Reconciler) -> Report {
        let queue = self.parts.dispatch.queue();
        let key = key();
        queue.add(&key, Cause::Requeue, Priority::Change);
        let mut run = queue.take_key(&key).unwrap();
        let (report, ended) = version.run(&mut run).now_or_never().unwrap();
        self.parts.dispatch.done(&run.key, ended.done, ended.causes);
        report
    }

    /// Runs the object once with these calls. Returns the answers to them.
    fn answers(&mut self, calls: &[Call]) -> (Answers, Report) {
        *self.guest.calls.lock() = calls.to_vec();
        let version = self.start(rules());
        let report = self.run(&version);
        let answers = std::mem::take(&mut *self.guest.answers.lock());
        (answers.into_iter().next().unwrap_or_default(), report)
    }

    /// Sees a change of an object, as by its watch.
    fn change(&self, object: &Value) {
        change(self.parts.dispatch.stores(), &self.setup.grant, object);
        self.parts.dispatch.feed();
    }
}

fn change(stores: &Stores, grant: &Grant, object: &Value) {
    for (kind, scope, _) in grant.wanted() {
        if object["kind"] == *kind.kind && scope.holds(object) {
            stores.feed(kind, scope).unwrap().upsert(object);
        }
    }
}

fn key() -> Key {
    Key::new(&"p".into(), &"r".into(), Some("default"), "a")
}

fn get(url: &str) -> Call {
    Call {
        method: Method::Get,
        url: url.to_owned(),
        headers: Vec::new(),
        body: None,
        credential: None,
        timeout: 5_000,
    }
}

fn post(url: &str) -> Call {
    Call { method: Method::Post, ..get(url) }
}

const URL: &str = "https://eu.api.example.com/v1/items?size=10";

fn bearer(kind: Kind, name: &str, at: &str) -> Credential {
    let of = object_ref(kind, Some("default"), name);
    Credential { of, at: at.to_owned(), scheme: Scheme::Bearer }
}

fn with_token(call: Call) -> Call {
    let credential = Some(bearer(v1("", "Secret"), "token", "data.token"));
    Call { credential, ..call }
}

#[test]
fn a_call_that_is_let_through_is_sent_as_it_was_asked_for() {
    let mut world = World::new();
    let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
    let call = Call { headers, body: Some(b"{}".to_vec()), ..with_token(post(URL)) };
    let (answers, report) = world.answers(&[call]);
    let body = b"/v1/items?size=10".to_vec();
    let headers = vec![("x-quoted".to_owned(), "Bearer ***".to_owned())];
    assert_eq!(answers, [Ok(Answer { status: 201, headers, body })]);
    let sent = std::mem::take(&mut *world.client.0.lock());
    let [sent] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(sent.method, Method::Post);
    assert_eq!(sent.target, Target::parse(URL).unwrap());
    assert_eq!(sent.headers, [("content-type".to_owned(), "application/json".to_owned())]);
    assert_eq!(sent.body.as_deref(), Some(&b"{}"[..]));
    let authorization = sent.authorization.as_ref().unwrap();
    assert_eq!(authorization.header, "authorization");
    assert_eq!(*authorization.value, format!("Bearer {TOKEN}"));
    assert!(Arc::ptr_eq(&sent.egress, &world.setup.egress[0]));
    assert_eq!((sent.pause, sent.timeout), (Duration::from_secs(15), Duration::from_secs(5)));
    assert_eq!(&*sent.processor, "default/p");
    let [made] = &report.record.calls[..] else { panic!("{report:?}") };
    assert_eq!((made.method, made.status, made.error), (Method::Post, Some(201), None));
    assert_eq!(made.refused, None);
    assert_eq!(made.url, "https://eu.api.example.com/v1/items");
    assert!(report.record.asked.network && report.record.skippable().is_err());
    let printed = format!("{report:?}{sent:?}{}", serde_json::to_string(&*report.record).unwrap());
    assert!(!printed.contains(TOKEN) && !printed.contains(ENCODED), "{printed}");
}

/// A change to the world, then a call, and the code and a part of the text of its refusal.
type Refusals = Vec<(&'static str, fn(&mut World), Call, &'static str, &'static str)>;

#[expect(clippy::too_many_lines, reason = "one flat table")]
fn refusals() -> Refusals {
    let elsewhere = "https://eu.api.example.com.evil.example/";
    let credential = |kind: Kind, name: &str, at: &str| {
        let credential = Some(bearer(kind, name, at));
        Call { credential, ..post(URL) }
    };
    let secrets = |name: &str, at: &str| credential(v1("", "Secret"), name, at);
    let same: fn(&mut World) = |_| {};
    vec![
        ("other origin", same, post(elsewhere), "denied", "declared origins: `https://*.api."),
        ("other method", same, Call { method: Method::Put, ..post(URL) }, "denied", "PUT to"),
        (
            "not granted",
            |world| drop(world.setup.egress.drain(..2)),
            post(URL),
            "denied",
            "`spec.egress` grants: `http://plain.example.com`",
        ),
        ("nothing granted", |world| world.setup.egress.clear(), get(URL), "denied", "grants none"),
        ("no client", |world| world.setup.outbound = None, get(URL), "denied", "makes no calls"),
        (
            "Observe",
            |world| world.setup.settings.mode = Mode::Observe,
            get(URL),
            "denied",
            "only observes",
        ),
        (
            "no Lease",
            |world| world.guest.is_leading.store(false, Ordering::Relaxed),
            get(URL),
            "denied",
            "Lease",
        ),
        ("object gone", |world| drop(world.objects.remove(0)), get(URL), "denied", "gone"),
        (
            "no finalizer",
            |world| world.objects[0] = object("Thing", "a", 1),
            with_token(post(URL)),
            "not-held",
            "",
        ),
        (
            "foreign finalizer",
            |world| {
                world.objects[0] = with(thing(), "metadata/finalizers", json!(["x.dev/other"]));
            },
            post(URL),
            "not-held",
            "",
        ),
        (
            "other namespace",
            |world| {
                let auth = with(object("Auth", "auth", 1), "spec/token", json!(TOKEN));
                world.objects.push(with(auth, "metadata/namespace", json!("other")));
            },
            {
                let of = object_ref(kind("Auth"), Some("other"), "auth");
                let of = Credential { of, ..bearer(kind("Auth"), "auth", "spec.token") };
                Call { credential: Some(of), ..post(URL) }
            },
            "denied",
            "not declared",
        ),
        (
            "undeclared kind",
            same,
            credential(kind("Thing"), "a", "spec.token"),
            "denied",
            "not declared",
        ),
        ("undeclared field", same, secrets("token", "data.other"), "denied", "not declared"),
        ("wider field", same, secrets("token", "data"), "denied", "not declared"),
        (
            "field that compares the credential with a guess",
            same,
            credential(kind("Auth"), "auth", "spec.keys[value=guess].value"),
            "denied",
            "compares the credential `spec.keys[].value`",
        ),
        (
            "other kind's field",
            same,
            credential(kind("Auth"), "auth", "data.token"),
            "denied",
            "not declared",
        ),
        (
            "credential not granted for the origin",
            same,
            Call { url: "https://us.api.example.com/".into(), ..with_token(post(URL)) },
            "denied",
            "`spec.egress` grants: Auth of g",
        ),
        (
            "credential with other labels",
            same,
            secrets("off", "data.token"),
            "denied",
            "with labels `a=b,!off`",
        ),
        (
            "credential without TLS",
            same,
            with_token(post("http://plain.example.com/")),
            "denied",
            "over `https` only",
        ),
        (
            "account may not get",
            |world| world.setup.rights = Some(rights_of(denied())),
            with_token(post(URL)),
            "denied",
            "may not",
        ),
        ("no such Secret", same, secrets("absent", "data.token"), "credential-no-object", ""),
        (
            "outside the declared labels",
            same,
            secrets("other-label", "data.token"),
            "credential-no-object",
            "",
        ),
        ("no value", same, secrets("empty", "data.token"), "credential-no-value", ""),
        ("no header value", same, secrets("lines", "data.token"), "credential-not-text", ""),
        ("bad URL", same, get("https://u@eu.api.example.com/"), "invalid", "names a user"),
        ("bad name", same, secrets("../token", "data.token"), "invalid", ""),
        ("bad path", same, secrets("token", "data..token"), "invalid", ""),
        (
            "bad header",
            same,
            Call { headers: vec![("Host".into(), "evil.example".into())], ..post(URL) },
            "invalid",
            "`host`",
        ),
        (
            "header beside the credential",
            same,
            Call { headers: vec![("authorization".into(), "x".into())], ..with_token(post(URL)) },
            "invalid",
            "beside",
        ),
        ("body of a GET", same, Call { body: Some(Vec::new()), ..get(URL) }, "invalid", "no body"),
        (
            "large body",
            same,
            Call { body: Some(vec![0; bounds::CALL_BODY + 1]), ..post(URL) },
            "invalid",
            "at most",
        ),
        ("no time", same, Call { timeout: 0, ..get(URL) }, "not-sent", "no time"),
    ]
}

fn denied() -> Permit {
    Permit::Denied(Question {
        cluster: Arc::default(),
        group: "".into(),
        resource: "secrets".into(),
        verb: "get".into(),
        namespace: Some("default".into()),
        name: None,
    })
}

fn rights_of(permit: Permit) -> Arc<dyn Rights> {
    let account = Account { namespace: "default".into(), name: "p".into() };
    Arc::new(AccountRights(account, permit)) as Arc<dyn rights::Rights>
}

#[test]
fn nothing_is_sent_unless_every_rule_lets_it_through() {
    for (case, change, call, code, text) in refusals() {
        let mut world = World::new();
        change(&mut world);
        let (answers, report) = world.answers(&[call]);
        let [Err(error)] = &answers[..] else { panic!("{case}: {answers:?}") };
        assert_eq!(error.code(), code, "{case}: {error:?}");
        assert!(format!("{error:?}").contains(text), "{case}: {error:?}");
        assert!(world.client.0.lock().is_empty(), "{case}");
        let [made] = &report.record.calls[..] else { panic!("{case}: {report:?}") };
        assert_eq!((made.error, made.status), (Some(code), None), "{case}");
        assert!(made.refused.is_some(), "{case}");
        assert!(report.record.asked.network, "{case}");
        assert!(!format!("{error:?}{report:?}").contains(TOKEN), "{case}");
    }
}

#[test]
fn a_refused_call_is_counted_by_the_origin_as_granted() {
    let elsewhere = "https://guest-chosen.evil.example/";
    let cases = [(URL, "https://eu.api.example.com"), (elsewhere, ""), ("no URL", "")];
    for (url, expected) in cases {
        let mut world = World::new();
        let (_, report) = world.answers(&[Call { method: Method::Put, ..get(url) }]);
        assert_eq!(report.record.calls[0].refused.as_deref(), Some(expected), "{url}");
    }
}

#[test]
fn a_read_needs_no_finalizer_and_a_credential_no_watch() {
    let mut world = World::new();
    world.objects[0] = object("Thing", "a", 1);
    world.setup.rights = Some(rights_of(Permit::Live));
    let (answers, _) = world.answers(&[get(URL), with_token(get(URL))]);
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

#[test]
fn the_finalizer_counts_as_it_is_stored_at_the_call() {
    let other = with(thing(), "metadata/uid", json!("another"));
    let released = object("Thing", "a", 2);
    for (case, object) in [("released", released), ("another object", other)] {
        let mut world = World::new();
        *world.guest.calls.lock() = vec![post(URL)];
        let version = world.start(rules());
        let (stores, grant) = (world.parts.dispatch.stores().clone(), world.setup.grant.clone());
        let object = with(object, "metadata/resourceVersion", json!("5"));
        *world.guest.meanwhile.lock() = Some(Box::new(move || change(&stores, &grant, &object)));
        world.run(&version);
        assert_eq!(world.guest.answers.lock()[..], [vec![Err(CallError::NotHeld)]], "{case}");
        assert!(world.client.0.lock().is_empty(), "{case}");
    }
}

#[test]
fn a_processor_that_declares_nothing_sends_nothing() {
    let mut world = World::new();
    *world.guest.calls.lock() = vec![get(URL)];
    let version = world.start(Vec::new());
    world.run(&version);
    let answers = world.guest.answers.lock().clone();
    assert!(matches!(&answers[0][..], [Err(CallError::Denied(_))]), "{answers:?}");
    assert!(world.client.0.lock().is_empty());
}

#[test]
fn calls_of_a_run_are_bounded_in_number_refused_ones_too() {
    let mut world = World::new();
    let calls = (0..=bounds::CALLS).map(|at| if at == 0 { get("") } else { get(URL) });
    let (answers, report) = world.answers(&calls.collect::<Vec<_>>());
    assert_eq!(world.client.0.lock().len(), bounds::CALLS - 1);
    assert!(matches!(answers.last(), Some(Err(CallError::Denied(_)))));
    assert_eq!(report.record.calls.len(), bounds::CALLS);
    let mut sending = Sending::default();
    for _ in 0..=bounds::CALLS {
        assert_eq!(sending.ended(), None);
        sending.send(&mut View::default(), get(URL)).now_or_never().unwrap().unwrap_err();
    }
    assert_eq!(sending.ended(), Some(Ended::TooMany));
}

#[test]
fn a_call_that_is_given_up_after_it_was_sent_has_no_answer() {
    struct Silent;
    impl Outbound for Silent {
        fn send(&self, _: Allowed) -> BoxFuture<'_, Result<Answer, CallError>> {
            std::future::pending().boxed()
        }
    }
    let mut world = World::new();
    let version = world.start(rules());
    let granted = Granted::new("p".into(), &world.setup.egress, Some(Arc::new(Silent)));
    let mut sending = Sending::open(Gate {
        grant: Arc::clone(&world.setup.grant),
        granted: Arc::new(granted),
        api: Arc::clone(&world.guest) as Arc<dyn Api>,
        stores: world.parts.dispatch.stores().clone(),
        finalizers: vec![OWN.to_owned()],
        object: Some((object_ref(kind("Thing"), Some("default"), "a"), "Thing-a".into())),
    });
    assert!(sending.send(&mut View::default(), post(URL)).now_or_never().is_none());
    assert!(matches!(sending.late(), CallError::NoAnswer(_)));
    assert_eq!(sending.finish()[0].error, Some("no-answer"));
    drop(version);
}

#[test]
fn the_texts_of_errors_are_bounded() {
    let long = "x".repeat(10_000);
    let CallError::NotSent(text) = CallError::NotSent(long).bounded() else { panic!() };
    assert!(text.len() <= bounds::CALL_ERROR + '…'.len_utf8());
}

#[test]
fn a_changed_credential_triggers_and_is_used_by_the_next_call() {
    let mut world = World::new();
    world.objects.retain(|of| of["metadata"]["name"] != "token");
    *world.guest.calls.lock() = vec![with_token(get(URL))];
    let version = world.start(rules());
    world.run(&version);
    let is_queued = |world: &World| world.parts.dispatch.queue().ready().contains(&key());
    assert!(!is_queued(&world));
    for (revision, token, expected) in
        [("2", ENCODED, TOKEN), ("3", "b3RoZXItdG9rZW4=", "other-token")]
    {
        let changed = secret("token", "a=b", token);
        world.change(&with(changed, "metadata/resourceVersion", json!(revision)));
        assert!(is_queued(&world), "{expected}");
        world.run(&version);
        let sent = world.client.0.lock().pop().unwrap();
        assert_eq!(*sent.authorization.unwrap().value, format!("Bearer {expected}"));
    }
    let same = with(secret("token", "a=b", "b3RoZXItdG9rZW4="), "data/other", json!("eA=="));
    world.change(&with(same, "metadata/resourceVersion", json!("4")));
    assert!(!is_queued(&world), "another field");
}

#[test]
fn a_credential_is_masked_in_what_a_processor_says() {
    let mut world = World::new();
    let failure = Failure {
        message: format!("refused: {TOKEN}"),
        status: None,
        events: Vec::new(),
        retry: Retry::OnChange,
        note: None,
    };
    *world.guest.returns.lock() = Ok(Err(failure));
    let credential = Some(bearer(kind("Auth"), "auth", "spec.token"));
    let url = format!("https://eu.api.example.com/{TOKEN}");
    let (answers, report) = world.answers(&[Call { credential, ..get(&url) }]);
    assert!(answers[0].is_ok(), "{answers:?}");
    assert!(report.failure.as_deref().unwrap().ends_with("refused: ***"), "{report:?}");
    assert_eq!(report.record.calls[0].url, "https://eu.api.example.com/***");
}

#[test]
fn the_call_with_failed_writes_sends_nothing_and_has_the_first_note() {
    let mut world = World::new();
    let note = Some(Note::from("first"));
    let status = Some("{\"a\":1}".to_owned());
    *world.guest.returns.lock() = Ok(Ok(Outcome { status, note, ..outcome() }));
    *world.guest.calls.lock() = vec![get(URL)];
    let version = world.start(rules());
    world.run(&version);
    let answers = world.guest.answers.lock().clone();
    let [first, second] = &answers[..] else { panic!("{answers:?}") };
    assert!(first[0].is_ok());
    let Err(CallError::Denied(text)) = &second[0] else { panic!("{second:?}") };
    assert!(text.contains("failed writes"), "{text}");
    assert_eq!(world.client.0.lock().len(), 1);
    assert_eq!(noted(&world), [None, Some("first".to_owned())]);
}

/// Returns the notes of the requests since the last call of this function.
fn noted(world: &World) -> Vec<Option<String>> {
    let requests = std::mem::take(&mut *world.guest.requests.lock());
    requests.into_iter().map(|request| request.note.map(String::from)).collect()
}

#[test]
fn a_trial_ends_at_its_first_call_and_says_nothing() {
    let mut world = World::new();
    *world.guest.calls.lock() = vec![get(URL)];
    let version = world.start(rules());
    let tried = || version.try_out(&key()).now_or_never().unwrap();
    assert!(matches!(tried(), Tried::Not));
    *world.guest.returns.lock() = Err(trap());
    assert!(matches!(tried(), Tried::Not));
    assert!(world.client.0.lock().is_empty());
    world.guest.calls.lock().clear();
    assert!(matches!(tried(), Tried::Broke(_)));
    *world.guest.returns.lock() = Ok(Ok(outcome()));
    assert!(matches!(tried(), Tried::Well));
}

fn trap() -> reconcile::CallError {
    reconcile::CallError {
        fault: Fault::Processor,
        reason: "trapped",
        message: "trapped".to_owned(),
        backtrace: None,
    }
}

#[test]
fn a_note_is_for_the_next_run_and_printed_nowhere() {
    const NOTE: &str = "marker-of-a-note";
    let mut world = World::new();
    let version = world.start(rules());
    let leave = |note: Option<&str>| {
        let note = note.map(Note::from);
        *world.guest.returns.lock() = Ok(Ok(Outcome { note, ..outcome() }));
    };
    leave(Some(NOTE));
    let report = world.run(&version);
    assert!(report.record.noted && report.record.skippable().is_err());
    let printed = format!("{report:?}{}", serde_json::to_string(&*report.record).unwrap());
    assert!(!printed.contains(NOTE), "{printed}");
    let entries = format!("{:?}", world.parts.dispatch.queue());
    assert!(!entries.contains(NOTE), "{entries}");
    leave(None);
    let report = world.run(&version);
    assert!(report.record.noted, "a note was given");
    assert!(!format!("{:?}", world.guest.requests.lock()).contains(NOTE));
    assert!(!world.run(&version).record.noted);
    assert_eq!(noted(&world), [None, Some(NOTE.to_owned()), None]);
}

#[test]
fn notes_go_with_a_trap_a_refused_outcome_and_the_object() {
    let mut world = World::new();
    let version = world.start(rules());
    let note = || Some(Note::from("kept"));
    let failure = |note| Failure {
        message: "no".to_owned(),
        status: None,
        events: Vec::new(),
        retry: Retry::OnChange,
        note,
    };
    let long = |bytes| Some(Note::from("x".repeat(bytes)));
    let cancelled = reconcile::CallError { fault: Fault::Cancelled, ..trap() };
    let cases: [(&str, Returned, bool); 6] = [
        ("failure", Ok(Err(failure(note()))), true),
        ("cancelled", Err(cancelled), true),
        ("trap", Err(trap()), false),
        ("long note", Ok(Ok(Outcome { note: long(bounds::NOTE + 1), ..outcome() })), false),
        ("long note of a failure", Ok(Err(failure(long(bounds::NOTE + 1)))), false),
        ("longest note", Ok(Ok(Outcome { note: long(bounds::NOTE), ..outcome() })), true),
    ];
    for (case, returned, stays) in cases {
        *world.guest.returns.lock() = Ok(Ok(Outcome { note: note(), ..outcome() }));
        world.run(&version);
        *world.guest.returns.lock() = returned;
        let report = world.run(&version);
        assert_eq!(report.broke, !stays, "{case}");
        noted(&world);
        world.run(&version);
        assert_eq!(noted(&world)[0].is_some(), stays, "{case}");
    }
    let stores = world.parts.dispatch.stores();
    stores.feed(&kind("Thing"), &Scope::of(&all("Thing"))).unwrap().delete(&thing());
    world.run(&version);
    world.change(&with(thing(), "metadata/resourceVersion", json!("9")));
    world.run(&version);
    let noted = noted(&world);
    assert_eq!(noted.last(), Some(&None), "{noted:?}");
}
