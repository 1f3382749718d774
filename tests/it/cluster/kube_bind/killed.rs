//! Hosts that are killed at each write of an object's life, and modules that are swapped while
//! objects move.

use std::{fs, time::Duration};

use futures::future;
use mortise_host::wasm::Digest;
use mortise_tests::{guest, rebuilt};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::{
    GUEST, MODULE, NAME,
    backend::{self, EXPORTS, Export},
    both,
    consumer::{Consumer, Stand, TEAM},
};
use crate::cluster::{line::Line, program::Program, side};

/// The number of swaps, and the time between them.
const SWAPS: u32 = 3;
const SWAP_INTERVAL: Duration = Duration::from_secs(4);

/// A write of the host in an object's life: the clusters are in the order of [`Lines`].
#[derive(Debug, Clone, Copy)]
struct Point {
    cluster: usize,
    /// The number of the write, from 1.
    write: usize,
}

/// The lines of a host to home and to the provider.
type Lines = [Line; 2];

const CLUSTERS: [&str; 2] = ["home", "the provider"];

/// Lives an object's life: it goes up, its status comes back, its spec changes, and both go. There
/// is one object at the provider, from the beginning to the end.
pub(super) async fn life(stand: &Stand, export: &Export) {
    let consumer = &stand.consumers[0];
    let [mut here, there] = sides_of(consumer, export);
    here["spec"] = json!({"stages": 1});
    consumer.home.apply(&here).await;
    stand.provider.until_is(&there, "/spec/stages", &json!(1)).await;
    let made = stand.provider.get(&there).await.unwrap();
    stand.provider.merge(&there, "/status", json!({"status": {"height": 7}})).await;
    consumer.home.until_is(&here, "/status/height", &json!(7)).await;
    consumer.home.merge(&here, "", json!({"spec": {"stages": 2}})).await;
    stand.provider.until_is(&there, "/spec/stages", &json!(2)).await;
    let all = at_provider(stand, export).await;
    assert_eq!(all.len(), 1, "{all:#?}");
    assert_eq!(all[0]["metadata"]["uid"], made["metadata"]["uid"], "it is the same object");
    consumer.home.delete(&here).await;
    consumer.home.until_gone(&here).await;
    let all = at_provider(stand, export).await;
    assert_eq!(all, Vec::<Value>::new(), "it has gone at the provider before");
}

/// Returns the object at home, and at the provider.
fn sides_of(consumer: &Consumer, export: &Export) -> [Value; 2] {
    [export.here(TEAM, "mars"), consumer.there(export, "mars")]
}

/// Returns all objects of a kind at the provider.
async fn at_provider(stand: &Stand, export: &Export) -> Vec<Value> {
    side::list(&stand.provider.cluster, (backend::GROUP, "v1", export.kind)).await
}

/// Lives an object's life with a host that is killed at a point, when the API server has carried
/// out the write and the host has no answer yet, and with another host after it. Returns the number
/// of writes of the first one to the object, in each cluster.
async fn killed_at(
    stand: &Stand,
    lines: &mut Lines,
    export: &Export,
    point: Option<Point>,
) -> [usize; 2] {
    let consumer = &stand.consumers[0];
    let [here, there] = sides_of(consumer, export);
    let paths = [consumer.home.path(&here).await, stand.provider.path(&there).await];
    for (cluster, (line, path)) in lines.iter_mut().zip(&paths).enumerate() {
        let last = point.filter(|point| point.cluster == cluster).map(|point| point.write);
        line.open_for(path, last);
    }
    let host = start(consumer, &lines[0]).await;
    let Some(Point { cluster, write }) = point else {
        life(stand, export).await;
        let told = [0, 1].map(|of| format!("writes to {}:{}", CLUSTERS[of], lines[of].told()));
        println!("{}", told.join("\n"));
        return written(lines);
    };
    let kill = async {
        lines[cluster].ended().await;
        let writes = written(lines);
        assert_eq!(writes[cluster], write, "{}", lines[cluster].told());
        host.kill();
        lines[1].open_for(&paths[1], None);
        (writes, consumer.start())
    };
    let ((writes, _next), ()) = future::join(kill, life(stand, export)).await;
    writes
}

fn written(lines: &Lines) -> [usize; 2] {
    lines.each_ref().map(|line| line.writes().len())
}

/// Starts a host on a line to home, and waits until it has started all reconcilers.
async fn start(consumer: &Consumer, line: &Line) -> Program {
    let folder = line.kubeconfig(consumer.folder.path());
    let mut host = consumer.start_with(&folder);
    let ports = host.ports().await;
    crate::cluster::shop::until_ready(&ports, true).await;
    host
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn an_object_ends_alike_whenever_the_host_is_killed() {
    let Some(mut stand) = Stand::prepared(&["cluster-a"]).await else { return };
    let (provider, cluster) = Line::of_kubeconfig(&stand.provider.plane).await;
    let mut lines = [Line::to(&stand.consumers[0].home.plane).await, provider];
    stand.consumers[0].reach_provider_by(cluster, &stand.provider).await;
    let host = stand.consumers[0].start();
    stand.consumers[0].until_bound().await;
    host.kill();
    for export in EXPORTS.iter().filter(|export| ["rockets", "moons"].contains(&export.plural)) {
        let writes = killed_at(&stand, &mut lines, export, None).await;
        assert!(writes.iter().all(|count| *count > 2), "{writes:?}");
        for cluster in 0..2 {
            for write in 1..=writes[cluster] {
                let point = Point { cluster, write };
                let writes = killed_at(&stand, &mut lines, export, Some(point)).await;
                let title = export.plural;
                println!("{title} killed at write {write} to {}: {writes:?}", CLUSTERS[cluster]);
            }
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
