use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, advance, sleep};

use super::*;
use crate::{
    api::{Answer, Api, Method, NotEstablished, Outgoing, Refusal, Unavailable},
    applied_fields::manager::{self, FieldManagers, Owner},
    contract::{
        self, Description, Failure, Manifest, ObjectRef, Outcome, Request, Requeue, Retry,
        Selection, Start, bounds::STARTED,
    },
    digest::ModuleDigest,
    dispatch::Dispatch,
    fixture::{all, given, labelled, outcome, resource, v1, whole, with},
    grant::Grant,
    queue::Cause,
    reconcile::{Call, Called, Input, Parts, Report, Settings, Setup, Usage, Version},
    resource::Resource,
    store::Stores,
};

const OWN: &str = "x.dev/own";
const HELD: &str = "x.dev/held";

/// An API server that knows objects by path, and the processor that is called.
#[derive(Debug, Default)]
struct Fake {
    objects: Mutex<BTreeMap<String, Value>>,
    revision: AtomicU64,
    /// The calls: reconciler, name, and `gone` if there is no object.
    calls: Mutex<Vec<String>>,
    /// True if lists have pages without an end, one a second.
    endless: AtomicBool,
}

fn path_of(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap();
    let (kind, namespace, name) =
        (text("/kind"), text("/metadata/namespace"), text("/metadata/name"));
    format!("/apis/g/v1/namespaces/{namespace}/{}s/{name}", kind.to_lowercase())
}

impl Fake {
    fn answer(&self, outgoing: &Outgoing) -> Result<Answer, Refusal> {
        let mut objects = self.objects.lock();
        let found = objects.get_mut(outgoing.path.split('?').next().unwrap());
        let (Method::JsonPatch, Some(object), Some(Value::Array(steps))) =
            (outgoing.method, found, &outgoing.body)
        else {
            return Err(Refusal { code: 403, ..Refusal::default() });
        };
        for step in steps.iter().filter(|step| step["op"] == "add") {
            let place = step["path"].as_str().unwrap();
            *object = with(object.take(), place.trim_start_matches('/'), step["value"].clone());
        }
        let version = json!(self.next_version());
        *object = with(object.take(), "metadata/resourceVersion", version);
        let body = object.clone();
        Ok(Answer { created: false, body })
    }

    fn next_version(&self) -> String {
        (10 + self.revision.fetch_add(1, Ordering::Relaxed)).to_string()
    }

    fn reconcile(&self, request: &Request) -> Result<Outcome, Failure> {
        let object = request.object.as_deref().map(|json| serde_json::from_str(json).unwrap());
        let object: Value = object.unwrap_or_default();
        let gone = if object.is_null() { " gone" } else { "" };
        self.calls.lock().push(format!("{} {}{gone}", request.reconciler, request.ref_.name));
        if object["spec"]["fails"] == true {
            let (message, events) = ("no".to_owned(), Vec::new());
            let retry = Retry::OnChange;
            return Err(Failure { message, status: None, events, retry, note: None });
        }
        let start = object["spec"]["start"].as_array().into_iter().flatten();
        let start = start.map(|of| start_of(of.as_str().unwrap())).collect();
        let apply: Vec<Manifest> = object["spec"].get("apply").into_iter().map(given).collect();
        let release = object["spec"]["release"] == true;
        let finalizers = release.then(Vec::new);
        let status = object["spec"].get("status").map(Value::to_string);
        Ok(Outcome { apply, start, status, finalizers, requeue: Requeue::Never, ..outcome() })
    }
}

/// Returns the start of `objects` for a text like `Thing`, `Thing:n1` or `Thing:n1:a=b`.
fn start_of(text: &str) -> Start {
    let mut parts = text.split(':');
    let of = all(parts.next().unwrap());
    let namespace = parts.next().map(str::to_owned);
    let of = labelled(Selection { namespace, ..of }, parts.next().unwrap_or_default());
    Start { reconciler: "objects".into(), of }
}

impl Api for Fake {
    fn is_leading(&self) -> bool {
        true
    }

    fn send<'a>(&'a self, outgoing: &'a Outgoing) -> BoxFuture<'a, Result<Answer, Refusal>> {
        if outgoing.method == Method::Get && self.endless.load(Ordering::Relaxed) {
            let body = json!({"items": [], "metadata": {"continue": "more"}});
            let page = Ok(Answer { created: false, body });
            return sleep(Duration::from_secs(1)).map(|()| page).boxed();
        }
        let answer = self.answer(outgoing);
        async move { answer }.boxed()
    }

    fn resolve<'a>(
        &'a self,
        kind: &'a Kind,
    ) -> BoxFuture<'a, Result<Option<Arc<Resource>>, Unavailable>> {
        async { Ok(Some(Arc::new(resource(kind)))) }.boxed()
    }

    fn forget(&self, _kind: &Kind) {}

    fn established<'a>(
        &'a self,
        _definition: &'a ObjectRef,
    ) -> BoxFuture<'a, Result<(), NotEstablished>> {
        async { Ok(()) }.boxed()
    }
}

struct Native(Arc<Fake>);

impl Call for Native {
    fn digest(&self) -> ModuleDigest {
        ModuleDigest::of(b"native")
    }

    fn outcome_limit(&self) -> usize {
        8 << 20
    }

    fn call<'a>(&'a self, input: Input<'a>) -> BoxFuture<'a, Called> {
        let outcome = Ok(self.0.reconcile(input.request));
        async move { Called { outcome, outside: input.outside, usage: Usage::default() } }.boxed()
    }
}

/// A host of one processor without watches of its own.
struct World {
    fake: Arc<Fake>,
    parts: Parts,
    version: Arc<Reconciler>,
    open: Vec<(Kind, Scope)>,
}

/// Returns the reconcilers `rules` and, on demand within `of`, `objects`.
fn description(of: Selection, finalizers: &[&str]) -> Description {
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    let rules = contract::Reconciler {
        name: "rules".into(),
        finalizers: texts(&[OWN]),
        resync: 1000,
        ..crate::fixture::reconciler(all("Rule"))
    };
    let objects = contract::Reconciler {
        name: "objects".into(),
        finalizers: texts(finalizers),
        on_demand: true,
        ..crate::fixture::reconciler(of)
    };
    let description = crate::fixture::description(all("Rule"), Vec::new());
    Description { reconcilers: vec![rules, objects], ..description }
}

fn any() -> Selection {
    whole(v1("g", "*"))
}

impl World {
    fn new(description: Description) -> Self {
        let dispatch = Arc::new(Dispatch::new(&Stores::new()));
        dispatch.queue().stand_still();
        let fake = Arc::new(Fake::default());
        let clock: crate::write::Clock = Arc::new(|| jiff::Timestamp::UNIX_EPOCH);
        let parts = Parts::new(&dispatch, Arc::clone(&fake) as Arc<dyn Api>, &clock);
        let parts = Parts { skips: true, ..parts };
        let version = Arc::new(loaded(&fake, &parts, description, None));
        let mut world = Self { fake, parts, version, open: Vec::new() };
        world.watch();
        world.version.put(None, || ());
        world
    }

    fn swap(&mut self, description: Description, removal: Option<Removal>) {
        let version = Arc::new(loaded(&self.fake, &self.parts, description, removal));
        version.put(Some(&self.version), || ());
        self.version = version;
    }

    /// Returns what a restart of the host leaves: the objects.
    fn restarted(&self, description: Description, removal: Option<Removal>) -> Self {
        let mut world = Self::new(description.clone());
        *world.fake.objects.lock() = self.fake.objects.lock().clone();
        let revision = self.fake.revision.load(Ordering::Relaxed);
        world.fake.revision.store(revision, Ordering::Relaxed);
        world.parts.dispatch.remove("p");
        world.version = Arc::new(loaded(&world.fake, &world.parts, description, removal));
        let stores = world.parts.dispatch.stores();
        world.open.drain(..).for_each(|(kind, scope)| stores.close(&kind, &scope));
        world.watch();
        world.version.put(None, || ());
        world
    }

    /// Opens the watches that are needed and closes the others, as a host does.
    fn watch(&mut self) {
        let stores = self.parts.dispatch.stores();
        let declared = self.version.version.grant.wanted().to_vec();
        let started = self.version.started();
        let wants: Vec<_> =
            declared.into_iter().chain(started.into_iter().flat_map(|of| of.watches)).collect();
        self.open.retain(|(kind, scope)| {
            let stays = wants.iter().any(|want| (&want.0, &want.1) == (kind, scope));
            if !stays {
                stores.close(kind, scope);
            }
            stays
        });
        for (kind, scope, wanted) in wants {
            if self.open.contains(&(kind.clone(), scope.clone())) {
                continue;
            }
            let feed = stores.open(&kind, &scope, &wanted).unwrap();
            feed.begin_list();
            let objects = self.fake.objects.lock();
            let of_kind = objects.values().filter(|of| of["kind"] == *kind.kind);
            of_kind.filter(|of| scope.holds(of)).for_each(|of| feed.list_item(of));
            feed.end_list();
            self.open.push((kind, scope));
        }
    }

    fn change(&mut self, object: &Value, is_there: bool) {
        let version = json!(self.fake.next_version());
        let object = with(object.clone(), "metadata/resourceVersion", version);
        if is_there {
            self.fake.objects.lock().insert(path_of(&object), object.clone());
        } else {
            self.fake.objects.lock().remove(&path_of(&object));
        }
        for (kind, scope) in &self.open {
            if object["kind"] == *kind.kind && scope.holds(&object) {
                let feed = self.parts.dispatch.stores().feed(kind, scope).unwrap();
                if is_there {
                    feed.upsert(&object);
                } else {
                    feed.delete(&object);
                }
            }
        }
    }

    fn put(&mut self, object: &Value) {
        self.change(object, true);
    }

    /// Puts a Rule whose outcome starts selections.
    fn start(&mut self, rule: &str, start: &[&str]) {
        self.put(&with(object("Rule", "n", rule), "spec/start", json!(start)));
    }

    fn run(&self, mut run: crate::queue::Run) -> Report {
        let (report, ended) = self.version.run(&mut run).now_or_never().unwrap();
        self.parts.dispatch.done(&run.key, ended.done, ended.causes);
        report
    }

    /// Runs what is due until nothing is. Returns the calls, sorted.
    fn settle(&mut self) -> Vec<String> {
        loop {
            self.watch();
            self.parts.dispatch.feed();
            let Some(run) = self.parts.dispatch.queue().try_next() else { break };
            self.run(run);
        }
        let mut calls = std::mem::take(&mut *self.fake.calls.lock());
        calls.sort();
        calls
    }

    /// Returns the watches of kinds other than `Rule`.
    fn watched(&self) -> Vec<String> {
        let of = self.open.iter().filter(|(kind, _)| kind.kind != "Rule");
        let shown = |(kind, scope): &(Kind, Scope)| {
            format!("{} {}", kind.kind, scope.namespace.as_deref().unwrap_or("*"))
        };
        let mut shown: Vec<String> = of.map(shown).collect();
        shown.sort();
        shown
    }
}

fn loaded(
    fake: &Arc<Fake>,
    parts: &Parts,
    description: Description,
    removal: Option<Removal>,
) -> Reconciler {
    let grant = Grant::new(&description).unwrap();
    let identity = Version {
        processor: "p".into(),
        version: "1".into(),
        digest: ModuleDigest::of(b"native"),
        libraries: Arc::default(),
    };
    let setup = Setup {
        identity: Arc::new(identity),
        call: Arc::new(Native(Arc::clone(fake))),
        description: Arc::new(description),
        config: "".into(),
        settings: Settings { removal, ..Settings::in_namespace("default") },
        grant: Arc::new(grant),
        api: Arc::clone(fake) as Arc<dyn Api>,
        rights: None,
        outbound: None,
        egress: Vec::new(),
    };
    Reconciler::new(setup, parts.clone())
}

fn object(kind: &str, namespace: &str, name: &str) -> Value {
    let object = crate::fixture::object(kind, name, 1);
    let object = with(object, "metadata/namespace", json!(namespace));
    if kind == "Rule" { with(object, "metadata/finalizers", json!([OWN])) } else { object }
}

fn held(kind: &str, namespace: &str, name: &str) -> Value {
    with(object(kind, namespace, name), "metadata/finalizers", json!([HELD]))
}

#[test]
fn nothing_runs_on_demand_until_an_outcome_starts_it_and_a_stop_is_its_last_run() {
    let mut world = World::new(description(any(), &[]));
    world.put(&object("Thing", "n1", "a"));
    world.put(&object("Thing", "n2", "b"));
    world.start("r", &[]);
    assert_eq!(world.settle(), ["rules r"]);
    assert!(world.watched().is_empty());
    world.start("r", &["Thing:n1", "Thing:n1"]);
    assert_eq!(world.settle(), ["objects a", "rules r"]);
    assert_eq!(world.watched(), ["Thing n1"]);
    world.put(&object("Thing", "n1", "c"));
    assert_eq!(world.settle(), ["objects c"]);
    // Only objects that were not selected before run for a further selection.
    world.start("r", &["Thing:n1", "Thing:n2"]);
    assert_eq!(world.settle(), ["objects b", "rules r"]);
    world.start("other", &["Thing:n2"]);
    assert_eq!(world.settle(), ["rules other"], "it runs already");
    world.start("r", &[]);
    assert_eq!(world.settle(), ["objects a gone", "objects c gone", "rules r"]);
    assert_eq!(world.watched(), ["Thing n2"], "another key asks for it");
    world.put(&object("Thing", "n1", "a"));
    assert!(world.settle().is_empty());
    world.change(&object("Rule", "n", "other"), false);
    assert_eq!(world.settle(), ["objects b gone", "rules other gone"]);
    assert!(world.watched().is_empty() && world.version.started().is_empty());
    assert_eq!(world.parts.dispatch.count_of("p"), 1, "the dependencies of `r` alone");
}

#[test]
fn an_outcome_that_is_not_carried_out_leaves_what_was_started() {
    let mut world = World::new(description(any(), &[]));
    world.put(&object("Thing", "n1", "a"));
    world.start("r", &["Thing:n1"]);
    world.settle();
    let rule = with(object("Rule", "n", "r"), "spec/start", json!([]));
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    let others = json!(["Thing:n2", "Other:n2"]);
    let cases = [
        ("a failure", with(rule.clone(), "spec/fails", json!(true))),
        ("a refused outcome", with(rule.clone(), "spec/apply", config_map)),
        ("a start that is refused", with(rule.clone(), "spec/start", json!(["Thing:N_1"]))),
    ];
    for (case, rule) in cases {
        world.put(&rule);
        assert!(world.settle().iter().all(|call| call == "rules r"), "{case}");
        assert_eq!(world.watched(), ["Thing n1"], "{case}");
    }
    world.put(&with(rule, "spec/start", others));
    world.settle();
    assert_eq!(world.watched(), ["Other n2", "Thing n2"], "the next success");
}

#[test]
fn what_is_started_does_not_wait_for_a_refused_write() {
    let mut world = World::new(description(any(), &[]));
    let rule = with(object("Rule", "n", "r"), "spec/start", json!(["Thing:n1"]));
    // The API server of the test refuses statuses.
    world.put(&with(rule, "spec/status", json!({"state": "Ready"})));
    assert!(world.settle().starts_with(&["rules r".to_owned()]));
    assert_eq!(world.watched(), ["Thing n1"]);
}

#[test]
fn objects_that_hold_a_finalizer_are_reconciled_until_they_hold_none() {
    let mut world = World::new(description(any(), &[HELD]));
    world.put(&held("Thing", "n1", "a"));
    world.put(&object("Thing", "n1", "b"));
    world.start("r", &["Thing:n1"]);
    assert_eq!(world.settle(), ["objects a", "objects b", "rules r"]);
    world.start("r", &["Thing:n2"]);
    assert_eq!(world.settle(), ["objects a", "objects b gone", "rules r"]);
    assert_eq!(world.watched(), ["Thing n1", "Thing n2"], "for the one that is held");
    let releasing = with(held("Thing", "n1", "a"), "spec/release", json!(true));
    world.put(&releasing);
    assert_eq!(world.settle(), ["objects a", "objects a gone"]);
    assert_eq!(world.watched(), ["Thing n2"]);
    // The kind goes together with the objects that were held.
    world.put(&held("Thing", "n2", "c"));
    world.settle();
    world.parts.dispatch.stores().set_unknown(
        &v1("g", "Thing"),
        &Scope { namespace: Some("n2".into()), ..Scope::default() },
    );
    world.start("r", &[]);
    world.settle();
    assert!(world.watched().is_empty() && world.version.started().is_empty());
}

#[test]
fn only_an_object_with_a_finalizer_starts_a_reconciler_with_finalizers() {
    let mut world = World::new(description(any(), &[HELD]));
    let rule = with(object("Rule", "n", "r"), "spec/start", json!(["Thing"]));
    world.put(&with(rule.clone(), "metadata/finalizers", json!(["foreign.dev/f"])));
    let run = world.parts.dispatch.queue();
    world.parts.dispatch.feed();
    let report = world.run(run.try_next().unwrap());
    let failure = report.failure.unwrap();
    assert!(failure.contains("`start[0]`") && failure.contains("holds a finalizer"), "{failure}");
    assert!(world.version.started().is_empty());
}

#[test]
fn a_swap_keeps_what_is_started_and_stops_what_is_not_declared_any_more() {
    let mut world = World::new(description(any(), &[HELD]));
    world.put(&held("Thing", "n1", "a"));
    world.put(&object("Other", "n1", "b"));
    world.start("r", &["Thing:n1", "Other:n1"]);
    world.settle();
    // The asker fails on the new version: what it started stays.
    let fails = with(object("Rule", "n", "r"), "spec/fails", json!(true));
    world.put(&fails);
    world.settle();
    world.swap(description(any(), &[HELD]), None);
    assert_eq!(world.settle(), ["objects a", "objects b", "rules r"]);
    assert_eq!(world.watched(), ["Other n1", "Thing n1"]);
    // The new version declares no Other, and Thing elsewhere: the held object is still reconciled.
    let elsewhere = Selection { namespace: Some("n2".into()), ..all("Thing") };
    let narrower = description(elsewhere, &[HELD]);
    assert!(
        loaded(&world.fake, &world.parts, narrower.clone(), None)
            .abandoned(&world.version)
            .is_empty()
    );
    world.swap(narrower, None);
    assert_eq!(world.settle(), ["objects a", "rules r"]);
    assert_eq!(world.watched(), ["Thing n1"]);
    let without = description(all("Else"), &[]);
    let abandoned = loaded(&world.fake, &world.parts, without, None).abandoned(&world.version);
    assert_eq!(abandoned.len(), 1, "the object that is held");
    world.put(&with(held("Thing", "n1", "a"), "spec/release", json!(true)));
    world.settle();
    assert!(world.watched().is_empty());
}

#[test]
fn a_run_of_a_former_version_starts_nothing() {
    let mut world = World::new(description(any(), &[]));
    world.start("r", &["Thing"]);
    world.parts.dispatch.feed();
    let run = world.parts.dispatch.queue().try_next().unwrap();
    let former = Arc::clone(&world.version);
    world.swap(description(all("Else"), &[]), None);
    let (_, ended) = former.run(&mut run.clone()).now_or_never().unwrap();
    assert!(!ended.starts);
    assert!(world.version.started().is_empty() && former.started().is_empty());
}

#[test]
fn a_skipped_key_keeps_what_it_has_started() {
    let mut world = World::new(description(any(), &[]));
    world.start("r", &["Thing:n1"]);
    world.settle();
    let key = Key::new(&"p".into(), &"rules".into(), Some("n"), "r");
    world.parts.dispatch.queue().add(&key, Cause::Resync, crate::queue::Priority::Resync);
    let report = world.run(world.parts.dispatch.queue().try_next().unwrap());
    assert!(report.skipped);
    assert_eq!(world.settle().len(), 0);
    assert_eq!(world.watched(), ["Thing n1"]);
}

#[test]
fn a_run_that_starts_too_much_fails_and_keeps_its_former_selections() {
    let mut world = World::new(description(any(), &[]));
    world.start("r", &["Thing:n1"]);
    world.settle();
    let many = |from: usize| -> Vec<String> {
        (from..from + 1024).map(|n| format!("Thing:x{n}")).collect()
    };
    for number in 0..=STARTED / 1024 {
        let many = many(number * 1024);
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        world.start(&format!("r{number}"), &many);
    }
    world.parts.dispatch.feed();
    let runs = std::iter::from_fn(|| world.parts.dispatch.queue().try_next());
    let failures: Vec<String> = runs.filter_map(|run| world.run(run).failure).collect();
    assert_eq!(failures.len(), 2, "4 of 1024 are one too many with that of `r`");
    assert!(failures[0].contains("at most 4096 may run"), "{failures:?}");
    let reconcilers = world.version.reconcilers.started();
    assert_eq!(reconcilers[0].selections().len(), 3 * 1024 + 1);
}

#[test]
fn a_release_after_a_restart_asks_what_is_started_and_then_removes_all_finalizers() {
    let mut world = World::new(description(any(), &[HELD]));
    world.put(&held("Thing", "n1", "a"));
    world.start("r", &["Thing:n1"]);
    world.settle();
    let mut world = world.restarted(description(any(), &[HELD]), Some(Removal::Release));
    assert_eq!(world.settle(), ["rules r"], "called once");
    assert_eq!(world.watched(), ["Thing n1"]);
    let holders = |world: &World| {
        let held = world.version.holding(&"p".into()).unwrap();
        held.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(holders(&world), ["p/rules:n/r"], "the on-demand object holds none any more");
    world.parts.dispatch.queue().advance(std::time::Duration::from_secs(1));
    assert_eq!(world.settle().len(), 0, "no further call");
    assert!(holders(&world).is_empty());
}

#[test]
fn a_release_asks_again_after_a_failure_but_not_for_ever() {
    let mut world = World::new(description(any(), &[HELD]));
    world.put(&held("Thing", "n1", "a"));
    world.start("r", &["Thing:n1"]);
    world.settle();
    for is_mended in [true, false] {
        let mut world = world.restarted(description(any(), &[HELD]), Some(Removal::Release));
        let rule = with(object("Rule", "n", "r"), "spec/start", json!(["Thing:n1"]));
        world.put(&with(rule.clone(), "spec/fails", json!(true)));
        assert_eq!(world.settle(), ["rules r"]);
        if is_mended {
            world.put(&rule);
            assert_eq!(world.settle(), ["rules r"], "asked again");
            assert_eq!(world.watched(), ["Thing n1"]);
        }
        let mut asked = 0;
        for _ in 0..60 {
            world.parts.dispatch.queue().advance(std::time::Duration::from_secs(1));
            asked += world.settle().len();
        }
        assert_eq!(asked, if is_mended { 0 } else { 12 });
        let holds = |kind: &str| {
            let objects = world.fake.objects.lock();
            let mut of_kind = objects.values().filter(|of| of["kind"] == kind);
            of_kind
                .any(|of| of["metadata"]["finalizers"].as_array().is_some_and(|of| !of.is_empty()))
        };
        assert_eq!((holds("Rule"), holds("Thing")), (false, !is_mended));
    }
}

#[test]
fn a_reconciler_with_finalizers_waits_until_they_are_claimed_and_its_permit_ends_with_it() {
    let mut world = World::new(description(any(), &[HELD]));
    let mut settings = Settings::in_namespace("default");
    settings.name = Some("p".into());
    let setup = Setup { settings, ..world.version.version.clone() };
    let version = Arc::new(Reconciler::new(setup, world.parts.clone()));
    version.put(Some(&world.version), || ());
    world.version = version;
    world.put(&object("Thing", "n1", "a"));
    world.start("r", &["Thing:n1"]);
    assert_eq!(world.settle(), ["rules r"]);
    assert!(world.watched().is_empty() && world.version.started().is_empty());
    let (finalizing, are_all) = world.version.finalizing();
    assert!(are_all);
    let [waiting] = &finalizing[..] else { panic!("{finalizing:?}") };
    assert_eq!((&*waiting.of.kind, waiting.is_permitted), (&v1("g", "Thing"), false));
    assert_eq!(waiting.finalizers, [HELD]);
    let other = ReconcilerId::on_demand("objects", &v1("g", "Other"));
    assert!(!world.version.permit(&[other]), "nobody asks for it");
    assert!(world.version.permit(std::slice::from_ref(&waiting.id)));
    assert!(!world.version.permit(std::slice::from_ref(&waiting.id)), "it runs already");
    assert_eq!(world.settle(), ["objects a"]);
    world.start("r", &[]);
    assert_eq!(world.settle(), ["objects a gone", "rules r"]);
    world.start("r", &["Thing:n1"]);
    assert_eq!(world.settle(), ["rules r"], "it waits again");
}

#[tokio::test(start_paused = true)]
async fn another_processor_waits_for_lists_without_an_end_a_tenth_of_the_time() {
    let world = World::new(description(all("Thing"), &[]));
    let object = crate::fixture::reference("Rule", "gone");
    let owner = Owner {
        namespace: "default",
        processor: "p",
        reconciler: "rules",
        object: &object,
        home: "",
    };
    let managers = FieldManagers::new(&owner);
    let parts = manager::parts(&managers.apply).unwrap();
    world.fake.endless.store(true, Ordering::Relaxed);
    let mut waited = Vec::new();
    for _ in 0..35 {
        let asked = Instant::now();
        assert!(world.version.may_own(&parts).await);
        waited.push(asked.elapsed().as_secs());
        advance(Duration::from_secs(10)).await;
    }
    let all: u64 = waited.iter().sum();
    assert_eq!((waited[0], waited[1], all), (30, 0, 60));
}
