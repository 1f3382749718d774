//! Faults of the provider, and of the way to it: they are told, nothing hangs or is deleted, and all
//! is well soon after their end.

use std::{pin::Pin, time::Duration};

use mortise_host::host::Host;
use serde_json::json;
use tokio::time::timeout;

use super::world::{
    Mode, PLACE, TEAM, World, config_map, find, is_ready, put, rocket, rockets, secret, send,
    server, with,
};
use crate::host::{CONFIG_MAP, applies, object, play::Play, scripted, selection};

/// The time within which a fault is told, and the one within which all is well after its end.
const TOLD: Duration = Duration::from_secs(30);
pub(super) const WELL: Duration = Duration::from_mins(1);
/// The time of a fault: longer than the longest pause of the breaker.
const LASTS: Duration = Duration::from_mins(10);

type Acted<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;
type Act = for<'a> fn(&'a World) -> Acted<'a>;

/// A fault.
struct Case {
    name: &'static str,
    begins: Act,
    ends: Act,
    /// A part of what is told.
    tells: &'static str,
}

pub(super) fn mode(world: &World, mode: Mode) {
    world.line.set(mode);
    world.provider.faults().drop_watches(&mortise_embedded_api::Filter::all());
}

fn now(world: &World, of: Mode) -> Acted<'_> {
    mode(world, of);
    Box::pin(async {})
}

fn well(world: &World) -> Acted<'_> {
    now(world, Mode::Well)
}

const SECRET: &str = "/api/v1/namespaces/kube-bind/secrets/provider";
const BINDING: &str = "/apis/kube-bind.io/v1alpha2/apiservicebindings/rockets";

async fn rotate(world: &World, token: &str) {
    send(&world.home, "PATCH", SECRET, Some(&secret(&server("a"), token))).await;
}

/// Deletes the place of the consumer, as the API server does when its namespace goes.
async fn delete_place(world: &World) {
    for plural in ["apiserviceexports", "boundschemas", "clusterbindings", "apiservicenamespaces"] {
        let path = format!("/apis/kube-bind.io/v1alpha2/namespaces/{PLACE}/{plural}");
        send(&world.provider, "DELETE", &path, None).await;
    }
}

/// Returns a case in which the provider answers in another way.
fn answers(name: &'static str, begins: Act, tells: &'static str) -> Case {
    Case { name, begins, ends: well, tells }
}

fn cases() -> Vec<Case> {
    vec![
        answers(
            "the provider is killed",
            |world| now(world, Mode::Away("connection refused")),
            "connection refused",
        ),
        answers("the provider hangs", |world| now(world, Mode::Hangs), "no answer within 10 s"),
        answers(
            "the provider is slow",
            |world| now(world, Mode::Slow(Duration::from_secs(4))),
            "takes 4 s to answer",
        ),
        answers(
            "the provider is slower than the time limit",
            |world| now(world, Mode::Slow(Duration::from_secs(12))),
            "no answer within 10 s",
        ),
        answers(
            "the provider has another certificate",
            |world| now(world, Mode::Away("invalid peer certificate: UnknownIssuer")),
            "UnknownIssuer",
        ),
        answers("429", |world| now(world, Mode::Refuses(429)), "429"),
        Case {
            name: "lists are cut in the middle, after 410",
            begins: |world| {
                world.provider.compact();
                mode(world, Mode::CutLists);
                Box::pin(async {})
            },
            ends: well,
            tells: "before its list is complete",
        },
        answers("watches are cut at their begin", |world| now(world, Mode::Cut), "ends it at once"),
        Case {
            name: "the token is rotated, and the Secret with it",
            begins: |world| {
                world.line.accept("t2");
                mode(world, Mode::Well);
                Box::pin(async {})
            },
            ends: |world| Box::pin(rotate(world, "t2")),
            tells: "401",
        },
        Case {
            name: "the place of the consumer is deleted",
            begins: |world| Box::pin(delete_place(world)),
            ends: |world| Box::pin(world.refill()),
            tells: "APIServiceExportNotFound",
        },
    ]
}

/// A processor at home: it makes the object that a `ConfigMap` wants.
async fn neighbour() -> mortise_host::host::Loaded {
    let play = Play::new("puppet")
        .reconciles("objects", &selection(CONFIG_MAP, "play=yes"))
        .writes(&selection(CONFIG_MAP, ""), &["create", "update"]);
    play.load().await
}

/// Returns two clusters with an object that is synchronised, and what belongs to others.
pub(super) async fn synchronised() -> (World, Host) {
    synchronised_in(World::bound().await).await
}

async fn synchronised_in(mut world: World) -> (World, Host) {
    world.loaded.push(neighbour().await);
    for object in [config_map("team", "theirs"), namespace("a")] {
        world.home.load(object, true).unwrap();
    }
    world.provider.load(rocket(TEAM, "theirs", 1), true).unwrap();
    let host = world.start();
    world.within(WELL, "the binding is ready", |world| world.is_ready("rockets")).await;
    send(&world.home, "POST", &rockets("team"), Some(&rocket("team", "saturn", 1))).await;
    world.within(WELL, "the object is up", |world| world.at_provider("saturn").is_some()).await;
    (world, host)
}

fn namespace(name: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// Checks that spec and status go to the other side in time.
pub(super) async fn is_well(world: &World, stages: u64) {
    let change = json!({"spec": {"stages": stages}});
    let path = |namespace: &str| format!("{}/saturn", rockets(namespace));
    send(&world.home, "PATCH", &path("team"), Some(&change)).await;
    world
        .within(WELL, "the spec goes up", |world| {
            world.at_provider("saturn").is_some_and(|of| of["spec"]["stages"] == stages)
        })
        .await;
    let status = json!({"status": {"height": stages}});
    send(&world.provider, "PATCH", &format!("{}/status", path(TEAM)), Some(&status)).await;
    world
        .within(WELL, "the status comes back and the binding is ready", |world| {
            let home = world.at_home("saturn").unwrap();
            home["status"]["height"] == stages && world.is_ready("rockets")
        })
        .await;
}

/// Returns everything that tells of a fault: the host's reasons, and the objects at home.
pub(super) fn told(world: &World, host: &Host) -> Vec<String> {
    let status = host.status();
    let of_host = status.iter().flat_map(|of| &of.clusters.problems);
    of_host.map(|(_, problem)| problem.message.clone()).chain(world.told()).collect()
}

/// Checks that a processor at home is served as before.
pub(super) async fn neighbour_is_served(world: &World, host: &Host, made: &str) {
    let wanted = object(CONFIG_MAP, made, &json!({"data": {"a": "1"}}));
    world.home.load(scripted(&format!("of-{made}"), &applies(&[wanted])), true).unwrap();
    let is_made = |world: &World| find(&world.home, "ConfigMap", "a", made).is_some();
    world.within(Duration::from_secs(2), "the neighbour is served", is_made).await;
    assert!(is_ready(host).await, "readyz");
}

async fn passes(case: &Case) {
    let (world, host) = synchronised().await;
    is_well(&world, 2).await;
    let uid = world.at_provider("saturn").unwrap()["metadata"]["uid"].clone();
    (case.begins)(&world).await;
    let is_told =
        |world: &World| told(world, &host).iter().any(|message| message.contains(case.tells));
    let what = format!("{}: `{}` is told", case.name, case.tells);
    world.within(TOLD, &what, is_told).await;
    neighbour_is_served(&world, &host, "during").await;
    tokio::time::sleep(LASTS).await;
    neighbour_is_served(&world, &host, "later").await;
    (case.ends)(&world).await;
    is_well(&world, 3).await;
    assert_eq!(world.at_provider("saturn").unwrap()["metadata"]["uid"], uid, "{}", case.name);
    assert!(world.at_provider("theirs").is_some(), "{}", case.name);
    assert!(find(&world.home, "ConfigMap", "team", "theirs").is_some(), "{}", case.name);
    timeout(WELL, host.stop()).await.expect(case.name).unwrap();
}

#[tokio::test(start_paused = true)]
async fn faults_of_the_provider_are_told_and_pass() {
    for case in cases() {
        println!("{}", case.name);
        passes(&case).await;
    }
}

/// Returns a role with all rights, and its binding to the account `default/kube-bind`.
fn all_rights() -> Vec<serde_json::Value> {
    let group = "rbac.authorization.k8s.io";
    let of = |kind: &str| json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": "all"}});
    let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let subject = json!({"kind": "ServiceAccount", "namespace": "default", "name": "kube-bind"});
    let role = json!({"apiGroup": group, "kind": "ClusterRole", "name": "all"});
    vec![
        with(of("ClusterRole"), &json!({"rules": rules})),
        with(of("ClusterRoleBinding"), &json!({"roleRef": role, "subjects": [subject]})),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_binding_says_that_its_provider_cannot_be_watched() {
    let mut world = World::bound().await;
    // Without an account, reads are answered from the stores.
    world.loaded[0].settings.account = Some("default/kube-bind".parse().unwrap());
    put(&world.home, all_rights()).await;
    let (world, host) = synchronised_in(world).await;
    mode(&world, Mode::Cut);
    let is_told =
        |world: &World| world.told().iter().any(|text| text.contains("InformerSyncTimeout"));
    world.within(WELL, "the binding tells it", is_told).await;
    tokio::time::sleep(LASTS).await;
    assert!(is_told(&world) && !world.is_ready("rockets"), "it stays so");
    mode(&world, Mode::Well);
    is_well(&world, 2).await;
    assert!(!is_told(&world));
    timeout(WELL, host.stop()).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_kubeconfig_that_moves_to_another_cluster_under_load_moves_all_objects() {
    let (world, host) = synchronised().await;
    let other = World::new().await.provider;
    world.line.add(&server("b"), &other);
    for number in 0..20 {
        let load = rocket("team", &format!("r{number}"), 1);
        send(&world.home, "POST", &rockets("team"), Some(&load)).await;
        if number == 10 {
            send(&world.home, "PATCH", SECRET, Some(&secret(&server("b"), "t"))).await;
        }
    }
    let is_there = |world: &World| {
        let names = (0..20).map(|number| format!("r{number}")).chain(["saturn".to_owned()]);
        let mut names = names.map(|name| find(&other, "Rocket", TEAM, &name));
        names.all(|found| found.is_some()) && world.is_ready("rockets")
    };
    world.within(WELL, "all objects are at the other cluster", is_there).await;
    assert!(world.at_provider("theirs").is_some() && world.at_provider("saturn").is_some());
    let before = world.provider.revision();
    send(&world.home, "DELETE", &format!("{}/saturn", rockets("team")), None).await;
    world.within(WELL, "it is gone", |world| world.at_home("saturn").is_none()).await;
    assert_eq!(world.provider.revision(), before, "the former cluster is left alone");
    timeout(WELL, host.stop()).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_is_deleted_while_the_provider_is_away_goes_when_it_is_back() {
    let (world, host) = synchronised().await;
    mode(&world, Mode::Away("connection refused"));
    send(&world.home, "DELETE", BINDING, None).await;
    let is_told = |world: &World| {
        ["APIServiceBinding", "Rocket"].iter().all(|kind| {
            let events = world.home.objects().into_iter().filter(|of| of["kind"] == "Event");
            let mut events = events.filter(|of| of["involvedObject"]["kind"] == *kind);
            events.any(|of| of["reason"] == "WaitingForProvider")
        })
    };
    world.within(TOLD, "the binding and its object say that they wait", is_told).await;
    tokio::time::sleep(LASTS).await;
    assert!(world.at_home("saturn").is_some(), "nothing is lost");
    mode(&world, Mode::Well);
    let is_gone = |world: &World| {
        let binding = find(&world.home, "APIServiceBinding", "", "rockets");
        binding.is_none() && world.at_provider("saturn").is_none()
    };
    world.within(WELL, "the binding is gone", is_gone).await;
    assert!(world.at_provider("theirs").is_some());
    timeout(WELL, host.stop()).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn objects_of_a_consumer_namespace_that_is_deleted_go_up_to_the_finalizers() {
    let (world, host) = synchronised().await;
    mode(&world, Mode::Away("connection refused"));
    send(&world.home, "DELETE", "/api/v1/namespaces/team", None).await;
    tokio::time::sleep(LASTS).await;
    assert!(world.at_home("saturn").is_some(), "it waits for the provider");
    mode(&world, Mode::Well);
    let is_gone = |world: &World| {
        find(&world.home, "Namespace", "", "team").is_none()
            && world.at_provider("saturn").is_none()
    };
    world.within(WELL, "the namespace is gone", is_gone).await;
    assert!(world.at_provider("theirs").is_some());
    timeout(WELL, host.stop()).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_hands_out_a_kubeconfig_of_home_is_refused_and_told() {
    let (world, host) = synchronised().await;
    world.line.add(&server("home"), &world.home);
    let mut handed = secret(&server("home"), "t");
    handed["metadata"] = json!({"name": "kubeconfig", "namespace": PLACE});
    world.provider.load(handed, true).unwrap();
    let is_told = |world: &World| {
        told(world, &host).iter().any(|text| text.contains("it is the home cluster"))
    };
    world.within(TOLD, "the host tells that it is home", is_told).await;
    neighbour_is_served(&world, &host, "meanwhile").await;
    let is_foreign =
        |of: &serde_json::Value| of["kind"] == "Rocket" && of["metadata"]["namespace"] != "team";
    assert!(!world.home.objects().iter().any(is_foreign), "nothing is written at home");
    // Whoever may write the Secret mends it.
    send(
        &world.provider,
        "DELETE",
        &format!("/api/v1/namespaces/{PLACE}/secrets/kubeconfig"),
        None,
    )
    .await;
    rotate(&world, "t").await;
    is_well(&world, 4).await;
    timeout(WELL, host.stop()).await.unwrap().unwrap();
}
