//! Exports that start and stop, and kubeconfigs that change: nothing is left of them.

use std::{fs, time::Duration};

use mortise_embedded_api::{EmbeddedApi, Filter, RequestKind, Verb};
use mortise_host::host::Host;
use mortise_tests::hostile::host::resident;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::world::{PLACE, World, find, put, rocket, rockets, secret, send, server, with};

/// The number of exports that start and stop at once.
const AT_ONCE: usize = 20;
/// The time within which exports are bound, and gone.
const SOON: Duration = Duration::from_mins(2);
/// The time after which a host has nothing to do.
const AT_REST: Duration = Duration::from_secs(10);
/// Longer than watches stay open that runs have asked for, and that clusters do that nothing uses.
const UNUSED: Duration = Duration::from_mins(15);
/// What may be left of file descriptors and memory: other tests of the process take some.
const MAX_FILES: usize = 16;
const MAX_MEMORY: u64 = 64 << 20;
const BINDINGS: &str = "/apis/kube-bind.io/v1alpha2/apiservicebindings";

fn plural(number: usize) -> String {
    format!("rockets{number}")
}

/// Returns the objects of another export at the provider: those of the example under another kind.
fn export(world: &World, number: usize) -> Vec<Value> {
    let (kind, plural) = (format!("Rocket{number}"), plural(number));
    let names = json!({"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()});
    let name = format!("{plural}.example.com");
    let like = |kind: &str, namespace: &str, of: &str, name: &str| {
        let mut object = find(&world.provider, kind, namespace, of).unwrap();
        object["metadata"] = json!({"name": name});
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = namespace.into();
        }
        object.as_object_mut().unwrap().remove("status");
        object
    };
    let resources = json!([{"group": "example.com", "resource": plural, "versions": ["v1"]}]);
    let names = json!({"spec": {"names": names}});
    vec![
        with(like("CustomResourceDefinition", "", "rockets.example.com", &name), &names),
        with(like("BoundSchema", PLACE, "rockets.example.com", &name), &names),
        with(
            like("APIServiceExport", PLACE, "rockets", &plural),
            &json!({"spec": {"resources": resources}}),
        ),
    ]
}

fn binding(name: &str) -> Value {
    let of = json!({"namespace": "kube-bind", "name": "provider", "key": "kubeconfig"});
    json!({
        "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceBinding",
        "metadata": {"name": name}, "spec": {"kubeconfigSecretRef": of},
    })
}

/// Returns the number of watches that were opened at an API, and of those that are open.
fn watches(api: &EmbeddedApi) -> (u64, usize) {
    let requests = api.requests();
    let of_watches = |(kind, _): &(&RequestKind, &u64)| kind.verb == Verb::Watch;
    (requests.iter().filter(of_watches).map(|(_, count)| count).sum(), api.faults().live_watches())
}

fn open(world: &World) -> [usize; 2] {
    [&world.home, &world.provider].map(|api| watches(api).1)
}

/// Returns the number of watches of a kind that are open at an API, and ends them.
fn ended(api: &EmbeddedApi, plural: &str) -> usize {
    api.faults().drop_watches(&Filter::resource(format!("{plural}.example.com")))
}

/// Prints what may be left of exports and connections. Returns the number of file descriptors, and
/// the memory in bytes.
fn figures(world: &World, title: &str) -> (usize, u64) {
    let watches = [&world.home, &world.provider].map(|api| {
        let (opened, open) = watches(api);
        format!("{opened} watches opened and {open} open, {} objects", api.objects().len())
    });
    let files = fs::read_dir("/proc/self/fd").unwrap().count();
    let memory = resident(std::process::id());
    println!(
        "{title}: {} at home, {} at the provider; {} connections, {files} file descriptors, {} KiB of memory",
        watches[0],
        watches[1],
        world.line.clients(),
        memory >> 10,
    );
    (files, memory)
}

/// Checks that file descriptors and memory are as they were before.
fn check_figures((files, memory): (usize, u64), after: (usize, u64)) {
    assert!(after.0 <= files + MAX_FILES, "{} file descriptors, {files} before", after.0);
    assert!(after.1 <= memory + MAX_MEMORY, "{} bytes, {memory} before", after.1);
}

/// Binds all exports, with an object of each, and lets them go again.
async fn bound_and_gone(world: &World) {
    for number in 0..AT_ONCE {
        world.home.load(binding(&plural(number)), true).unwrap();
    }
    let all_ready = |world: &World| (0..AT_ONCE).all(|number| world.is_ready(&plural(number)));
    world.within(SOON, "all are bound", all_ready).await;
    for number in 0..AT_ONCE {
        let object = json!({
            "apiVersion": "example.com/v1", "kind": format!("Rocket{number}"),
            "metadata": {"name": "saturn", "namespace": "team"}, "spec": {"stages": 1},
        });
        world.home.load(object, true).unwrap();
    }
    let there = |world: &World, number: usize| {
        find(&world.provider, &format!("Rocket{number}"), super::world::TEAM, "saturn")
    };
    let all_up = |world: &World| (0..AT_ONCE).all(|number| there(world, number).is_some());
    world.within(SOON, "the objects are up", all_up).await;
    for number in 0..AT_ONCE {
        send(&world.home, "DELETE", &format!("{BINDINGS}/{}", plural(number)), None).await;
    }
    let all_gone = |world: &World| {
        (0..AT_ONCE).all(|number| {
            find(&world.home, "APIServiceBinding", "", &plural(number)).is_none()
                && there(world, number).is_none()
        })
    };
    world.within(SOON, "all are gone", all_gone).await;
    // Those of selections are closed long before those that runs have asked for.
    sleep(AT_REST).await;
    for number in 0..AT_ONCE {
        let open = [&world.home, &world.provider].map(|api| ended(api, &plural(number)));
        assert_eq!(open, [0, 0], "watches of {}", plural(number));
    }
}

/// Starts a host with one export bound, beside which others come and go.
async fn started() -> (World, Host) {
    let world = World::bound().await;
    for number in 0..AT_ONCE {
        put(&world.provider, export(&world, number)).await;
    }
    let host = world.start();
    world.within(SOON, "the first is bound", |world| world.is_ready("rockets")).await;
    (world, host)
}

/// Stops a host. None of its watches stays open.
async fn ends(world: &World, host: Host) {
    timeout(SOON, host.stop()).await.unwrap().unwrap();
    world.within(SOON, "all watches are closed", |world| open(world) == [0, 0]).await;
}

/// Runs a test while the reports of its host are taken: a host runs no more keys while too many
/// wait.
async fn reported(host: &Host, test: impl Future<Output = ()>) {
    let taken = async {
        loop {
            if let Err(ended) = host.next_report().await {
                break ended;
            }
        }
    };
    tokio::select! {
        () = test => {}
        ended = taken => panic!("{ended:#}"),
    }
}

async fn come_and_go(rounds: usize) {
    let (world, host) = started().await;
    reported(&host, nothing_is_left(&world, rounds)).await;
    ends(&world, host).await;
}

async fn nothing_is_left(world: &World, rounds: usize) {
    // What a round leaves for a while is there before the first measurement, too.
    bound_and_gone(world).await;
    sleep(UNUSED).await;
    let (before, clients) = (open(world), world.line.clients());
    let first = figures(world, "before");
    for round in 0..rounds {
        let opened = watches(&world.provider).0;
        bound_and_gone(world).await;
        assert!(watches(&world.provider).0 >= opened + AT_ONCE as u64, "round {round}");
        sleep(UNUSED).await;
        assert_eq!(open(world), before, "watches after round {round}");
        assert_eq!(world.line.clients(), clients, "clients after round {round}");
    }
    check_figures(first, figures(world, &format!("after {} exports", rounds * AT_ONCE)));
}

#[tokio::test(start_paused = true)]
#[ignore = "100 exports"]
async fn exports_that_stop_leave_no_watch_open() {
    come_and_go(4).await;
}

#[tokio::test(start_paused = true)]
#[ignore = "1,000 exports"]
async fn a_thousand_exports_that_stop_leave_no_watch_open() {
    come_and_go(50).await;
}

async fn rotated(times: usize) {
    let (world, host) = started().await;
    reported(&host, nothing_is_left_of_tokens(&world, times)).await;
    ends(&world, host).await;
}

async fn nothing_is_left_of_tokens(world: &World, times: usize) {
    sleep(UNUSED).await;
    let before = open(world);
    let first = figures(world, "before");
    for turn in 0..times {
        let opened = watches(&world.provider).0;
        let token = format!("t{turn}");
        world.line.accept(&token);
        let path = "/api/v1/namespaces/kube-bind/secrets/provider";
        send(&world.home, "PATCH", path, Some(&secret(&server("a"), &token))).await;
        let is_open = |world: &World| {
            let is_anew = watches(&world.provider).0 >= opened + before[1] as u64;
            is_anew && open(world) == before && world.is_ready("rockets")
        };
        world.within(SOON, "the watches are open again", is_open).await;
    }
    let after = figures(world, &format!("after {times} kubeconfigs"));
    // Tests of CI run beside others.
    if times > 100 {
        check_figures(first, after);
    }
    assert_eq!(world.line.clients(), 1, "former connections are given up");
}

#[tokio::test(start_paused = true)]
async fn a_kubeconfig_that_changes_again_and_again_leaves_no_connection() {
    rotated(20).await;
}

#[tokio::test(start_paused = true)]
#[ignore = "1,000 kubeconfigs"]
async fn a_kubeconfig_that_changes_a_thousand_times_leaves_no_connection() {
    rotated(1_000).await;
}

/// Stops an export while an object of its is up: nothing is written for it any more, no watch of its
/// kind stays open at the provider, and the object can still be deleted.
async fn stops(deleted: &str) {
    let world = World::bound().await;
    let host = world.start();
    world.within(SOON, "it is bound", |world| world.is_ready("rockets")).await;
    send(&world.home, "POST", &rockets("team"), Some(&rocket("team", "saturn", 1))).await;
    world.within(SOON, "the object is up", |world| world.at_provider("saturn").is_some()).await;
    let path = format!("/apis/kube-bind.io/v1alpha2/namespaces/{PLACE}/{deleted}");
    send(&world.provider, "DELETE", &path, None).await;
    sleep(UNUSED).await;
    assert_eq!(ended(&world.provider, "rockets"), 0, "{deleted}: watches at the provider");
    let there = world.at_provider("saturn");
    let saturn = format!("{}/saturn", rockets("team"));
    send(&world.home, "PATCH", &saturn, Some(&json!({"spec": {"stages": 2}}))).await;
    sleep(AT_REST).await;
    assert_eq!(world.at_provider("saturn"), there, "{deleted}: nothing is written");
    send(&world.home, "DELETE", &saturn, None).await;
    world.within(SOON, "it goes", |world| world.at_home("saturn").is_none()).await;
    timeout(SOON, host.stop()).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_export_that_is_deleted_leaves_no_watch_and_lets_objects_go() {
    stops("apiserviceexports/rockets").await;
}

#[tokio::test(start_paused = true)]
async fn a_schema_that_is_deleted_leaves_no_watch_and_lets_objects_go() {
    stops("boundschemas/rockets.example.com").await;
}
