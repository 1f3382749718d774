//! A host between two clusters that is killed in the middle of its writes to either.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use mortise_embedded_api::EmbeddedApi;
use mortise_host::host::{Host, Removal};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::world::{TEAM, World, rocket, rockets, send};
use crate::host::{tap::Tap, text};

/// The time after which a host that has nothing to do counts as at rest. Shorter than the interval
/// of the heartbeat, which is a write.
const REST: Duration = Duration::from_mins(2);
/// More hosts than are needed if each makes at least one step.
const MAX_HOSTS: usize = 100;
/// Parts of objects that differ in each run.
const VARIABLE: [&str; 5] =
    ["resourceVersion", "uid", "creationTimestamp", "managedFields", "generation"];
/// The finalizers on objects of bound kinds, and on bindings.
const FINALIZERS: [&str; 2] = ["kubebind.io/syncer", "kube-bind.mortise.dev/binding"];

/// Numbers that are the same in each run (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from(mixed % bound as u64).unwrap()
    }
}

/// Runs a host until it is killed, after this many writes to either cluster, or at rest. Returns
/// the number of its writes; `None` if it was killed.
async fn run(world: &World, writes: usize) -> Option<usize> {
    let tap = Tap::killing_after(writes);
    let mut host = world.start_behind(&tap);
    let lives = tokio::select! {
        () = tap.killed() => false,
        () = rests(&mut host) => true,
    };
    // Drops all its tasks, wherever they are.
    drop(host);
    lives.then(|| tap.writes())
}

async fn rests(host: &mut Host) {
    while let Ok(report) = timeout(REST, host.next_report()).await {
        report.unwrap();
    }
}

/// Returns the objects of both clusters, without events and what differs in each run.
fn state(world: &World) -> BTreeMap<String, Value> {
    let sides = [("home", &world.home), ("provider", &world.provider)];
    let all = sides
        .iter()
        .flat_map(|(side, api)| api.objects().into_iter().map(move |object| (*side, object)));
    let mut state = BTreeMap::new();
    for (side, mut object) in all.filter(|(_, object)| object["kind"] != "Event") {
        let place = ["/kind", "/metadata/namespace", "/metadata/name"];
        let place = format!("{side} {}", place.map(|part| text(&object, part)).join("/"));
        strip(&mut object);
        state.insert(place, object);
    }
    state
}

/// Removes uids and times.
fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, _| {
                !VARIABLE.contains(&key.as_str())
                    && !key.ends_with("Time")
                    && !key.ends_with("-uid")
            });
            fields.values_mut().for_each(strip);
        }
        Value::Array(list) => list.iter_mut().for_each(strip),
        _ => {}
    }
}

/// Returns the uids of the objects of a kind in a namespace, by name.
fn uids(api: &EmbeddedApi, namespace: &str) -> BTreeMap<String, String> {
    let objects = api.objects().into_iter();
    let of =
        objects.filter(|of| of["kind"] == "Rocket" && text(of, "/metadata/namespace") == namespace);
    of.map(|of| {
        let part = |pointer: &str| text(&of, pointer).to_owned();
        (part("/metadata/name"), part("/metadata/uid"))
    })
    .collect()
}

async fn create(world: &World, name: &str) {
    let object = rocket("team", name, 1);
    send(&world.home, "POST", &rockets("team"), Some(&object)).await;
}

async fn change(world: &World, name: &str, stages: u64) {
    let change = json!({"spec": {"stages": stages}});
    send(&world.home, "PATCH", &format!("{}/{name}", rockets("team")), Some(&change)).await;
}

async fn set_height(world: &World, name: &str, height: u64) {
    let path = format!("{}/{name}/status", rockets(TEAM));
    send(&world.provider, "PATCH", &path, Some(&json!({"status": {"height": height}}))).await;
}

async fn delete(world: &World, name: &str) {
    send(&world.home, "DELETE", &format!("{}/{name}", rockets("team")), None).await;
}

/// Returns two clusters with changes of each kind that no host has seen.
async fn changed() -> World {
    let world = World::bound().await;
    run(&world, usize::MAX).await.unwrap();
    for name in ["changed", "doomed"] {
        create(&world, name).await;
    }
    run(&world, usize::MAX).await.unwrap();
    create(&world, "new").await;
    change(&world, "changed", 2).await;
    set_height(&world, "changed", 7).await;
    delete(&world, "doomed").await;
    world
}

#[tokio::test(start_paused = true)]
async fn an_object_ends_alike_on_both_sides_wherever_the_host_is_killed() {
    let undisturbed = changed().await;
    let writes = run(&undisturbed, usize::MAX).await.unwrap();
    assert!(writes > 5, "{writes} writes are too few to show anything");
    let expected = state(&undisturbed);
    for kill in 1..=writes {
        let world = changed().await;
        let before = uids(&world.provider, TEAM);
        let mut hosts = 1;
        while run(&world, kill).await.is_none() {
            hosts += 1;
            assert!(hosts < MAX_HOSTS, "killed after {kill} writes each: no end");
        }
        assert_eq!(state(&world), expected, "killed after {kill} of {writes} writes each");
        let after = uids(&world.provider, TEAM);
        assert_eq!(after["changed"], before["changed"], "it is not made anew");
        assert!(hosts > 1 || kill == writes, "nothing was killed");
    }
}

/// Kills hosts at random writes while objects come, change and go. Each host finds work.
async fn killed_under_load(kills: usize) {
    let world = World::bound().await;
    run(&world, usize::MAX).await.unwrap();
    let mut random = Random(38);
    let mut names = BTreeSet::new();
    let mut killed = 0;
    for step in 0.. {
        for part in 0..3 {
            let name = format!("r{step}-{part}");
            create(&world, &name).await;
            names.insert(name);
        }
        let picked = names.iter().nth(random.below(names.len())).unwrap().clone();
        change(&world, &picked, 2 + step).await;
        if world.at_provider(&picked).is_some() {
            set_height(&world, &picked, step).await;
        }
        if names.len() > 10 {
            let picked = names.iter().nth(random.below(names.len())).unwrap().clone();
            delete(&world, &picked).await;
            names.remove(&picked);
        }
        killed += usize::from(run(&world, 1 + random.below(11)).await.is_none());
        if killed == kills {
            break;
        }
    }
    run(&world, usize::MAX).await.unwrap();
    let sides = [uids(&world.home, "team"), uids(&world.provider, TEAM)];
    for side in sides {
        assert_eq!(side.into_keys().collect::<BTreeSet<_>>(), names, "each is there once");
    }
    for name in &names {
        let (home, there) = (world.at_home(name).unwrap(), world.at_provider(name).unwrap());
        let parts = |of: &Value| (of["spec"].clone(), of["status"].clone());
        assert_eq!(parts(&home), parts(&there), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_object_is_lost_or_there_twice_after_30_kills_under_load() {
    killed_under_load(30).await;
}

#[tokio::test(start_paused = true)]
#[ignore = "kills 300 hosts"]
async fn no_object_is_lost_or_there_twice_after_300_kills_under_load() {
    killed_under_load(300).await;
}

/// Returns a state without the finalizers of ours.
fn released(mut state: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    for object in state.values_mut() {
        let Some(metadata) = object["metadata"].as_object_mut() else { continue };
        let Some(Value::Array(held)) = metadata.get_mut("finalizers") else { continue };
        held.retain(|name| !FINALIZERS.iter().any(|of_ours| name == of_ours));
        if held.is_empty() {
            metadata.remove("finalizers");
        }
    }
    state
}

#[tokio::test(start_paused = true)]
async fn a_release_takes_the_finalizers_away_and_leaves_all_else_to_the_original() {
    let mut world = World::bound().await;
    run(&world, usize::MAX).await.unwrap();
    create(&world, "kept").await;
    run(&world, usize::MAX).await.unwrap();
    set_height(&world, "kept", 7).await;
    run(&world, usize::MAX).await.unwrap();
    let before = state(&world);
    let held = ["home Rocket/team/kept", "home APIServiceBinding//rockets"];
    for (object, finalizer) in held.into_iter().zip(FINALIZERS) {
        assert_eq!(before[object]["metadata"]["finalizers"], json!([finalizer]), "{object}");
    }
    let both = |world: &World| [uids(&world.home, "team"), uids(&world.provider, TEAM)];
    let known = both(&world);
    world.loaded[0].settings.removal = Some(Removal::Release);
    run(&world, usize::MAX).await.unwrap();
    assert_eq!(state(&world), released(before));
    assert_eq!(both(&world), known, "nothing is made anew");
}
