//! Hosts that are killed at each write of an object's life, and modules that are swapped while
//! objects move.

use std::{fs, time::Duration};

use futures::future;
use mortise_core::api::Outgoing;
use mortise_host::wasm::Digest;
use mortise_tests::{cluster::Event, guest, rebuilt};
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::{
    GUEST, MODULE, NAME,
    backend::{self, EXPORTS, Export},
    both,
    consumer::{Consumer, Stand, TEAM},
};
use crate::cluster::{
    line::Line,
    program::{POLL_INTERVAL, Program, TIMEOUT},
};

/// The number of swaps, and the time between them.
const SWAPS: u32 = 3;
const SWAP_INTERVAL: Duration = Duration::from_secs(4);

/// The point of an object's life at which the host is killed.
#[derive(Debug, Clone, Copy)]
enum Point {
    /// After this many writes at home, before the answer to the last.
    Home(usize),
    /// After this many writes at the provider.
    Provider(usize),
    Never,
}

/// Lives an object's life: it goes up, its status comes back, its spec changes, and both go. There
/// is one object at the provider, from the beginning to the end.
async fn life(stand: &Stand, export: &Export) {
    let consumer = &stand.consumers[0];
    let (mut here, there) = (export.here(TEAM, "mars"), consumer.there(export, "mars"));
    here["spec"] = json!({"stages": 1});
    consumer.home.apply(&here).await;
    stand.provider.until_is(&there, "/spec/stages", &json!(1)).await;
    let made = stand.provider.get(&there).await.unwrap();
    stand.provider.merge(&there, "/status", json!({"status": {"height": 7}})).await;
    consumer.home.until_is(&here, "/status/height", &json!(7)).await;
    consumer.home.merge(&here, "", json!({"spec": {"stages": 2}})).await;
    stand.provider.until_is(&there, "/spec/stages", &json!(2)).await;
    let path = format!("/apis/{}/v1/{}", backend::GROUP, export.plural);
    let all = stand.provider.cluster.send(&Outgoing::get(path)).await.unwrap().body;
    let all = all["items"].as_array().unwrap();
    assert_eq!(all.len(), 1, "{all:#?}");
    assert_eq!(all[0]["metadata"]["uid"], made["metadata"]["uid"], "it is the same object");
    consumer.home.delete(&here).await;
    consumer.home.until_gone(&here).await;
    assert_eq!(stand.provider.get(&there).await, None, "it has gone at the provider before");
}

/// Starts a host that is killed at a point of the object's life, and then another. Returns the
/// writes of the first at home and at the provider.
async fn killed_at(
    stand: &Stand,
    consumer: &Consumer,
    export: &Export,
    point: Point,
) -> [usize; 2] {
    let last = if let Point::Home(writes) = point { Some(writes) } else { None };
    let line = Line::ending_after(&consumer.home.plane, last).await;
    let mut host = Some(start(consumer, &line).await);
    let writes_before = line.writes().len();
    assert_eq!(writes_before, 0, "a host that starts writes nothing: {}", line.told());
    let audit = stand.provider.plane.audit().await.unwrap();
    let account = backend::account(&consumer.place);
    let writes_there = async || {
        let events = audit.events().await.unwrap();
        let is_write = |event: &&Event| {
            let is_of_life = event.request_uri.contains(&format!("/{}/", export.plural));
            event.account() == account && is_of_life && event.code() < 300 && is_change(event)
        };
        events.iter().filter(is_write).count()
    };
    let kill = async {
        match point {
            Point::Never => return None,
            Point::Home(_) => line.ended().await,
            Point::Provider(writes) => {
                let until = async {
                    while writes_there().await < writes {
                        tokio::time::sleep(POLL_INTERVAL / 10).await;
                    }
                };
                tokio::time::timeout(TIMEOUT, until).await.expect("the writes come");
            }
        }
        host.take().unwrap().kill();
        Some(consumer.start())
    };
    let (_next, ()) = future::join(kill, life(stand, export)).await;
    if matches!(point, Point::Never) {
        println!("writes at home:{}", line.told());
    }
    [line.writes().len(), writes_there().await]
}

/// Starts a host on a line, and waits until it has started all reconcilers.
async fn start(consumer: &Consumer, line: &Line) -> Program {
    let folder = line.kubeconfig(consumer.folder.path());
    let mut host = consumer.start_with(&folder);
    let ports = host.ports().await;
    crate::cluster::shop::until_ready(&ports, true).await;
    host
}

fn is_change(event: &Event) -> bool {
    ["create", "update", "patch", "delete"].contains(&event.verb.as_str())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn an_object_ends_alike_whenever_the_host_is_killed() {
    let Some(mut stand) = Stand::open(&["cluster-a"]).await else { return };
    stand.consumers[0].until_bound().await;
    stand.consumers[0].host.take().unwrap().kill();
    let consumer = &stand.consumers[0];
    for export in EXPORTS.iter().filter(|export| ["rockets", "moons"].contains(&export.plural)) {
        let [home, there] = killed_at(&stand, consumer, export, Point::Never).await;
        println!("{}: {home} writes at home, {there} at the provider", export.plural);
        assert!(home > 2 && there > 2, "{home} {there}");
        let points = (1..=home).map(Point::Home).chain((1..=there).map(Point::Provider));
        for point in points {
            let writes = killed_at(&stand, consumer, export, point).await;
            println!("  killed at {point:?}: {writes:?}");
        }
    }
    stand.nothing_was_refused().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute"]
async fn nothing_is_lost_when_the_module_is_swapped_while_objects_move() {
    let Some(stand) = Stand::open(&["cluster-a"]).await else { return };
    let consumer = &stand.consumers[0];
    consumer.until_bound().await;
    let module = fs::read(tokio::task::spawn_blocking(|| guest(GUEST)).await.unwrap().unwrap());
    let module = module.unwrap();
    let begun = Instant::now();
    let swaps = async {
        for swap in 1..=SWAPS {
            sleep_until(begun + SWAP_INTERVAL * swap).await;
            swap_to(consumer, &rebuilt(&module, &swap.to_string())).await;
        }
    };
    let changes = both::sides_change(&stand, Duration::from_mins(1));
    future::join(swaps, changes).await;
    stand.nothing_was_refused().await;
}

/// Puts another module in the place of the former, and waits until it runs.
async fn swap_to(consumer: &Consumer, module: &[u8]) {
    let (folder, next) = (consumer.folder.path(), consumer.folder.path().join("next"));
    fs::write(&next, module).unwrap();
    fs::rename(next, folder.join(MODULE)).unwrap();
    let digest = json!(Digest::of(module).to_string());
    let mut processor = super::named("mortise.dev/v1alpha1", "Processor", NAME);
    processor["metadata"]["namespace"] = NAME.into();
    consumer.home.until_is(&processor, "/status/module/digest", &digest).await;
}
