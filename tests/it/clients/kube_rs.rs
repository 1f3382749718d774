//! kube's runtime, as controllers in Rust use it.

use std::{
    collections::BTreeMap,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{Stream, StreamExt as _, TryStreamExt as _};
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{ConfigMap, Event, Namespace},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, CustomResource, CustomResourceExt as _, Resource as _, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::PartialObjectMeta,
    discovery::Discovery,
    runtime::{
        Controller, WatchStreamExt as _,
        controller::Action,
        events::{EventType, Recorder, Reporter},
        finalizer::{self, finalizer},
        reflector,
        wait::{await_condition, conditions},
        watcher,
    },
};
use mortise_embedded_api::Verb;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::timeout;

use super::Served;

/// Timeout that only a fault reaches.
const TIMEOUT: Duration = Duration::from_mins(1);
const HISTORY: usize = 1_000;

type Events = Pin<Box<dyn Stream<Item = watcher::Result<watcher::Event<ConfigMap>>> + Send>>;

/// Returns the two ways of watching, which must give the same events.
fn ways() -> [(&'static str, watcher::Config); 2] {
    let list = watcher::Config::default();
    [("list and watch", list.clone()), ("streaming list", list.streaming_lists())]
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"value": value}})).unwrap()
}

fn maps(client: &Client) -> Api<ConfigMap> {
    Api::default_namespaced(client.clone())
}

async fn create(api: &Api<ConfigMap>, names: &[&str]) {
    for name in names {
        api.create(&PostParams::default(), &config_map(name, "0")).await.unwrap();
    }
}

async fn set(api: &Api<ConfigMap>, name: &str, value: &str) {
    let patch = Patch::Merge(json!({"data": {"value": value}}));
    api.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

async fn delete(api: &Api<ConfigMap>, name: &str) {
    api.delete(name, &DeleteParams::default()).await.unwrap();
}

/// Returns the next event as text: its type and its object.
async fn next(events: &mut Events) -> String {
    let event = timeout(TIMEOUT, events.next()).await.expect("a watch event in time").unwrap();
    match event.unwrap() {
        watcher::Event::Init => "init".into(),
        watcher::Event::InitApply(object) => format!("there {}", object.name_any()),
        watcher::Event::InitDone => "all".into(),
        watcher::Event::Apply(object) => format!("applied {}", object.name_any()),
        watcher::Event::Delete(object) => format!("deleted {}", object.name_any()),
    }
}

async fn expect(events: &mut Events, way: &str, expected: &[&str]) {
    for expected in expected {
        assert_eq!(next(events).await, *expected, "{way}");
    }
}

/// Returns the number of requests for config maps with this verb.
fn requests(served: &Served, verb: Verb) -> u64 {
    let all = served.api.requests();
    let counts = all.iter().filter(|(kind, _)| kind.verb == verb && kind.resource == "configmaps");
    counts.map(|(_, count)| count).sum()
}

#[tokio::test]
async fn a_watcher_reports_existing_objects_and_changes() {
    for (way, config) in ways() {
        let served = Served::new(HISTORY);
        let api = maps(&served.client());
        create(&api, &["a", "b", "c"]).await;
        let mut events: Events = watcher(api.clone(), config).boxed();
        expect(&mut events, way, &["init", "there a", "there b", "there c", "all"]).await;
        create(&api, &["d"]).await;
        set(&api, "a", "1").await;
        delete(&api, "b").await;
        expect(&mut events, way, &["applied d", "applied a", "deleted b"]).await;
        let lists = u64::from(way == "list and watch");
        assert_eq!(
            (requests(&served, Verb::List), requests(&served, Verb::Watch)),
            (lists, 1),
            "{way}"
        );
    }
}

#[tokio::test]
async fn a_watcher_lists_page_by_page() {
    let served = Served::new(HISTORY);
    let api = maps(&served.client());
    create(&api, &["a", "b", "c", "d", "e"]).await;
    let mut events: Events = watcher(api, watcher::Config::default().page_size(2)).boxed();
    expect(
        &mut events,
        "pages",
        &["init", "there a", "there b", "there c", "there d", "there e", "all"],
    )
    .await;
    assert_eq!(requests(&served, Verb::List), 3);
}

#[tokio::test]
async fn a_watch_that_breaks_goes_on_and_one_that_is_too_old_begins_anew() {
    for (way, config) in ways() {
        let served = Served::new(HISTORY);
        let api = maps(&served.client());
        create(&api, &["a"]).await;
        // This test provokes failures: they appear between the events, and the watcher tries again
        // at once.
        let events = watcher(api.clone(), config).filter(|event| std::future::ready(event.is_ok()));
        let mut events: Events = events.boxed();
        expect(&mut events, way, &["init", "there a", "all"]).await;
        watched(&served, &mut events).await;
        served.api.faults().drop_watches(&mortise_embedded_api::Filter::all());
        set(&api, "a", "1").await;
        expect(&mut events, way, &["applied a"]).await;
        watched(&served, &mut events).await;
        served.api.faults().drop_watches(&mortise_embedded_api::Filter::all());
        create(&api, &["b"]).await;
        served.api.compact();
        expect(&mut events, way, &["init", "there a", "there b", "all"]).await;
    }
}

/// Waits until the server has a watch; a watcher only makes progress while it is polled.
async fn watched(served: &Served, events: &mut Events) {
    let watched = async {
        while served.api.faults().live_watches() == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::select! {
        event = next(events) => panic!("too early: {event}"),
        ended = timeout(TIMEOUT, watched) => ended.expect("nobody watches"),
    }
}

#[tokio::test]
async fn a_reflector_converges_to_the_listed_objects() {
    for (way, config) in ways() {
        let served = Served::new(HISTORY);
        let api = maps(&served.client());
        create(&api, &["a", "b"]).await;
        let (reader, writer) = reflector::store();
        let stream =
            watcher(api.clone(), config).default_backoff().reflect(writer).touched_objects();
        let changes = async {
            reader.wait_until_ready().await.unwrap();
            for round in 0..20 {
                let name = format!("r{}", round % 7);
                let known = api.get_opt(&name).await.unwrap().is_some();
                match round % 3 {
                    0 if known => delete(&api, &name).await,
                    _ if known => set(&api, &name, &round.to_string()).await,
                    _ => create(&api, &[&name]).await,
                }
            }
            let list = api.list(&ListParams::default()).await.unwrap();
            let listed: BTreeMap<_, _> =
                list.into_iter().map(|object| (object.name_any(), object)).collect();
            loop {
                let state = reader.state();
                let held: BTreeMap<_, _> = state
                    .iter()
                    .map(|object| (object.name_any(), ConfigMap::clone(object)))
                    .collect();
                if held == listed {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let mut stream = pin!(stream);
        let drained = async { while stream.try_next().await.unwrap().is_some() {} };
        tokio::select! {
            () = drained => panic!("{way}: the stream ended"),
            ended = timeout(TIMEOUT, changes) => ended.expect(way),
        }
    }
}

#[tokio::test]
async fn metadata_alone_is_watched() {
    let served = Served::new(HISTORY);
    let client = served.client();
    let api = maps(&client);
    create(&api, &["a"]).await;
    let metadata: Api<PartialObjectMeta<ConfigMap>> = Api::default_namespaced(client);
    let mut events = pin!(watcher(metadata, watcher::Config::default()).touched_objects());
    let first = timeout(TIMEOUT, events.try_next()).await.unwrap().unwrap().unwrap();
    set(&api, "a", "1").await;
    let second = timeout(TIMEOUT, events.try_next()).await.unwrap().unwrap().unwrap();
    assert_eq!((first.name_any(), second.name_any()), ("a".into(), "a".into()));
    assert_ne!(first.resource_version(), second.resource_version());
}

#[tokio::test]
async fn a_single_candidate_takes_a_lease_and_no_update_is_lost() {
    const CANDIDATES: usize = 8;
    let served = Served::new(HISTORY);
    let client = served.client();
    let leases: Api<Lease> = Api::default_namespaced(client.clone());
    let lease: Lease = serde_json::from_value(
        json!({"metadata": {"name": "leader"}, "spec": {"leaseTransitions": 0}}),
    )
    .unwrap();
    leases.create(&PostParams::default(), &lease).await.unwrap();
    let free = leases.get("leader").await.unwrap();
    let taken = futures::future::join_all((0..CANDIDATES).map(|number| {
        let (leases, mut lease) = (leases.clone(), free.clone());
        lease.spec.as_mut().unwrap().holder_identity = Some(format!("candidate-{number}"));
        async move { leases.replace("leader", &PostParams::default(), &lease).await }
    }));
    let taken = taken.await;
    assert_eq!(taken.iter().filter(|result| result.is_ok()).count(), 1);
    for refused in taken.into_iter().filter_map(Result::err) {
        assert!(matches!(&refused, kube::Error::Api(status) if status.is_conflict()), "{refused}");
    }
    let count = |leases: Api<Lease>| async move {
        loop {
            let mut lease = leases.get("leader").await.unwrap();
            *lease.spec.as_mut().unwrap().lease_transitions.as_mut().unwrap() += 1;
            match leases.replace("leader", &PostParams::default(), &lease).await {
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
                ended => break ended.map(|_| ()),
            }
        }
    };
    let counted = futures::future::try_join_all((0..CANDIDATES).map(|_| count(leases.clone())));
    timeout(TIMEOUT, counted).await.unwrap().unwrap();
    let transitions = leases.get("leader").await.unwrap().spec.unwrap().lease_transitions;
    assert_eq!(transitions, i32::try_from(CANDIDATES).ok());
}

/// A kind for a controller: it is to have a `ConfigMap` with its colour.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "clients.example.com",
    version = "v1",
    kind = "Lamp",
    namespaced,
    status = "LampStatus"
)]
struct LampSpec {
    colour: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct LampStatus {
    lit: bool,
}

/// The context of the lamps' controller.
struct Workshop {
    client: Client,
    cleaned: AtomicUsize,
}

const LAMP_FINALIZER: &str = "clients.example.com/lamp";

async fn reconcile(
    lamp: Arc<Lamp>,
    workshop: Arc<Workshop>,
) -> Result<Action, finalizer::Error<kube::Error>> {
    let lamps: Api<Lamp> = Api::default_namespaced(workshop.client.clone());
    finalizer(&lamps, LAMP_FINALIZER, lamp, |event| async {
        match event {
            finalizer::Event::Apply(lamp) => light(&lamps, &lamp, &workshop.client).await?,
            finalizer::Event::Cleanup(_) => {
                workshop.cleaned.fetch_add(1, Ordering::SeqCst);
            }
        }
        Ok(Action::await_change())
    })
    .await
}

/// Returns whether a finalizer could not be set or removed because the lamp has changed or gone
/// since the watch reported it. Every controller can meet this error; the change of the dependent
/// object is reported on another watch.
fn is_of_an_older_lamp(error: &finalizer::Error<kube::Error>) -> bool {
    let (finalizer::Error::AddFinalizer(kube::Error::Api(status))
    | finalizer::Error::RemoveFinalizer(kube::Error::Api(status))) = error
    else {
        return false;
    };
    status.is_not_found() || status.is_invalid()
}

async fn light(lamps: &Api<Lamp>, lamp: &Lamp, client: &Client) -> kube::Result<()> {
    let name = lamp.name_any();
    let owner = lamp.controller_owner_ref(&()).unwrap();
    let made = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": [owner]},
        "data": {"colour": lamp.spec.colour},
    });
    let parameters = PatchParams::apply("lamps").force();
    maps(client).patch(&name, &parameters, &Patch::Apply(made)).await?;
    let status = json!({"status": {"lit": true}});
    lamps.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

fn lamp(colour: &str) -> Patch<serde_json::Value> {
    let object = json!({
        "apiVersion": "clients.example.com/v1", "kind": "Lamp", "metadata": {"name": "desk"}, "spec": {"colour": colour},
    });
    Patch::Apply(object)
}

fn colour(wanted: &'static str) -> impl Fn(Option<&ConfigMap>) -> bool {
    move |object| {
        let data = object.and_then(|object| object.data.as_ref());
        data.and_then(|data| data.get("colour")).is_some_and(|colour| colour == wanted)
    }
}

#[tokio::test]
async fn a_controller_restores_its_objects_and_runs_its_finalizer() {
    let served = Served::new(HISTORY);
    let client = served.client();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &Lamp::crd()).await.unwrap();
    let established =
        await_condition(definitions, Lamp::crd_name(), conditions::is_crd_established());
    timeout(TIMEOUT, established).await.unwrap().unwrap();

    let lamps: Api<Lamp> = Api::default_namespaced(client.clone());
    let workshop = Arc::new(Workshop { client: client.clone(), cleaned: AtomicUsize::new(0) });
    let failed = |_: Arc<Lamp>, error: &finalizer::Error<kube::Error>, _: Arc<Workshop>| {
        assert!(is_of_an_older_lamp(error), "a reconcile failed: {error}");
        Action::requeue(Duration::from_millis(10))
    };
    let controller = Controller::new(lamps.clone(), watcher::Config::default())
        .owns(maps(&client), watcher::Config::default())
        .run(reconcile, failed, workshop.clone())
        .for_each(|_| std::future::ready(()));
    let story = async {
        let (author, maps) = (PatchParams::apply("author"), maps(&client));
        lamps.patch("desk", &author, &lamp("red")).await.unwrap();
        await_condition(maps.clone(), "desk", colour("red")).await.unwrap();
        lamps.patch("desk", &author, &lamp("green")).await.unwrap();
        await_condition(maps.clone(), "desk", colour("green")).await.unwrap();
        let uid = maps.get("desk").await.unwrap().uid().unwrap();
        delete(&maps, "desk").await;
        await_condition(maps.clone(), "desk", conditions::is_deleted(&uid)).await.unwrap();
        await_condition(maps.clone(), "desk", colour("green")).await.unwrap();
        let lit = |lamp: Option<&Lamp>| {
            lamp.is_some_and(|lamp| lamp.status.as_ref().is_some_and(|status| status.lit))
        };
        let lamp = await_condition(lamps.clone(), "desk", lit).await.unwrap().unwrap();
        assert_eq!(lamp.finalizers(), [LAMP_FINALIZER]);
        lamps.delete("desk", &DeleteParams::default()).await.unwrap();
        await_condition(lamps.clone(), "desk", conditions::is_deleted(&lamp.uid().unwrap()))
            .await
            .unwrap();
        assert_ne!(workshop.cleaned.load(Ordering::SeqCst), 0);
        assert_eq!(maps.get_opt("desk").await.unwrap(), None, "what it owns goes with it");
    };
    tokio::select! {
        () = controller => panic!("the controller ended"),
        ended = timeout(TIMEOUT, story) => ended.expect("the story did not end"),
    }
}

#[tokio::test]
async fn discovery_finds_deployments_and_repeated_events_are_counted() {
    let served = Served::new(HISTORY);
    let client = served.client();
    let discovery = Discovery::new(client.clone()).run().await.unwrap();
    let group = discovery.get("apps").unwrap();
    let (deployment, capabilities) = group.recommended_kind("Deployment").unwrap();
    assert_eq!(
        (&*deployment.plural, capabilities.supports_operation("patch")),
        ("deployments", true)
    );

    let namespaces: Api<Namespace> = Api::all(client.clone());
    let about = namespaces.get("default").await.unwrap().object_ref(&());
    let recorder = Recorder::new(client.clone(), Reporter::from("clients"));
    for _ in 0..3 {
        let event = kube::runtime::events::Event {
            type_: EventType::Normal,
            reason: "Tried".into(),
            note: Some("it was tried".into()),
            action: "Try".into(),
            secondary: None,
        };
        recorder.publish(&event, &about).await.unwrap();
    }
    let events: Api<Event> = Api::all(client);
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let series: Vec<_> =
        events.iter().map(|event| event.series.as_ref().and_then(|series| series.count)).collect();
    assert_eq!(series, [Some(3)], "one event that counts");
}
