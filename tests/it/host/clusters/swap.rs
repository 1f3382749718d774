//! Another build of the guest that is swapped in while objects move.

use std::{collections::BTreeMap, fs, time::Duration};

use mortise::local;
use mortise_embedded_api::EmbeddedApi;
use mortise_host::{
    host::Loaded,
    wasm::{Limits, Processor},
};
use mortise_tests::{guest, rebuilt};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::world::{CONFIG, GUEST, TEAM, World, rocket, rockets, send};
use crate::host::text;

const SOON: Duration = Duration::from_mins(5);

/// Returns the guest of a world as another build.
async fn other_build(world: &World) -> Loaded {
    let module = rebuilt(&fs::read(guest(GUEST).unwrap()).unwrap(), "2");
    let engine = local::engine(Some(&mortise_tests::code_cache()), false).unwrap();
    let loaded = Processor::load(&engine, "kube-bind", module.into(), Limits::default()).await;
    Loaded::describe(loaded.unwrap(), CONFIG, world.loaded[0].settings.clone()).await.unwrap()
}

/// Returns uid and spec of each rocket in a namespace, by name.
fn all(api: &EmbeddedApi, namespace: &str) -> BTreeMap<String, (String, Value)> {
    let objects = api.objects().into_iter().filter(|of| of["kind"] == "Rocket");
    let of = objects.filter(|of| text(of, "/metadata/namespace") == namespace);
    of.map(|of| {
        let part = |pointer: &str| text(&of, pointer).to_owned();
        (part("/metadata/name"), (part("/metadata/uid"), of["spec"].clone()))
    })
    .collect()
}

fn specs(of: &BTreeMap<String, (String, Value)>) -> Vec<(&String, &Value)> {
    of.iter().map(|(name, (_, spec))| (name, spec)).collect()
}

fn uids(of: &BTreeMap<String, (String, Value)>) -> Vec<(&String, &String)> {
    of.iter().map(|(name, (uid, _))| (name, uid)).collect()
}

fn sides(world: &World) -> [BTreeMap<String, (String, Value)>; 2] {
    [all(&world.home, "team"), all(&world.provider, TEAM)]
}

async fn change(world: &World, numbers: impl Iterator<Item = usize>) {
    for number in numbers {
        let path = format!("{}/r{number}", rockets("team"));
        send(&world.home, "PATCH", &path, Some(&json!({"spec": {"stages": 2}}))).await;
    }
}

/// Swaps the guest while half of so many objects change.
async fn swapped_under_load(objects: usize) {
    let world = World::bound().await;
    let next = other_build(&world).await;
    let former = world.loaded[0].processor.digest();
    assert_ne!(next.processor.digest(), former);
    let host = world.start();
    let moved = async {
        world.within(SOON, "the binding is ready", |world| world.is_ready("rockets")).await;
        for number in 0..objects {
            world.home.load(rocket("team", &format!("r{number}"), 1), true).unwrap();
        }
        let are_up = |world: &World| all(&world.provider, TEAM).len() == objects;
        world.within(SOON, "the objects are up", are_up).await;
        let before = sides(&world);
        change(&world, 0..objects / 4).await;
        host.swap(next).await.unwrap();
        change(&world, objects / 4..objects / 2).await;
        let is_done = |world: &World| {
            let [home, there] = sides(world);
            specs(&home) == specs(&there)
        };
        world.within(SOON, "all changes are up", is_done).await;
        let after = sides(&world);
        assert_eq!(before.each_ref().map(uids), after.each_ref().map(uids));
        let changed = after[1].values().filter(|(_, spec)| spec["stages"] == 2);
        assert_eq!(changed.count(), objects / 2);
        assert_ne!(host.status()[0].version.digest, former);
    };
    let taken = async {
        // A host runs no more keys while too many reports wait.
        while host.next_report().await.is_ok() {}
    };
    tokio::select! {
        () = moved => {}
        () = taken => panic!("the host has ended"),
    }
    timeout(SOON, host.stop()).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_object_is_lost_or_there_twice_after_a_swap_while_100_move() {
    swapped_under_load(100).await;
}

#[tokio::test(start_paused = true)]
#[ignore = "1,000 objects"]
async fn no_object_is_lost_or_there_twice_after_a_swap_while_1000_move() {
    swapped_under_load(1_000).await;
}
