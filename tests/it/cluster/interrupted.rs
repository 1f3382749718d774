//! Parts between a host and its cluster fail and recover while objects change: no change is lost,
//! no object is written without a change, and `/readyz` reports the state.

use std::{collections::BTreeSet, fmt, time::Duration};

use mortise_tests::cluster::{Event, Part};
use tokio::time::{Instant, interval, sleep};

use super::{
    line::{Line, Way},
    program::{Ports, Program},
    shop::{Shop, until_ready},
};

/// The number of rules, and the duration of each fault.
#[derive(Clone, Copy)]
struct Extent {
    /// Number of rules; half of them are changed repeatedly.
    rules: usize,
    lasts: Duration,
}

/// The effects of a fault.
struct Row {
    fault: &'static str,
    lasted: Duration,
    changes: usize,
    writes: usize,
    settled: Duration,
}

/// A running host, and the faults that it had.
struct Bench {
    shop: Shop,
    extent: Extent,
    host: Program,
    ports: Ports,
    rows: Vec<Row>,
}

const SHORT: Extent = Extent { rules: 12, lasts: Duration::from_secs(3) };
const LONG: Extent = Extent { rules: 60, lasts: Duration::from_secs(15) };

// === impl Bench ===

impl Bench {
    /// Starts a host that connects over this line, or directly.
    async fn open(shop: Shop, line: Option<&Line>, extent: Extent) -> Self {
        shop.make(0..extent.rules).await;
        let cache = shop.cache("host");
        let mut host = match line {
            Some(line) => shop.host(line, &cache, &[]),
            None => shop.host_with(&shop.plane.kubeconfig(), &cache, &[]),
        };
        let ports = host.ports().await;
        until_ready(&ports, true).await;
        shop.until_right(&ports).await;
        Self { shop, extent, host, ports, rows: Vec::new() }
    }

    /// Changes objects before, during and after a fault. In the end all of them must be as their
    /// rules want them, and unchanged objects must not have been written.
    async fn suffers(&mut self, fault: &'static str, disturb: impl AsyncFnOnce(&Self)) {
        let half = self.extent.rules / 2;
        let untouched = self.shop.versions(|rule| rule >= half).await;
        let audit = self.shop.plane.audit().await.unwrap();
        let load = self.shop.load(0..half);
        let begun = Instant::now();
        disturb(self).await;
        let (lasted, over) = (begun.elapsed(), Instant::now());
        let changes = load.stop().await;
        self.shop.until_right(&self.ports).await;
        let settled = over.elapsed();
        until_ready(&self.ports, true).await;
        assert_eq!(self.shop.versions(|rule| rule >= half).await, untouched, "{fault}");
        let mut events = audit.events().await.unwrap();
        events.retain(Shop::is_write);
        // A write without an effect counts too.
        let names: BTreeSet<&str> =
            untouched.keys().filter_map(|place| Some(place.split_once(' ')?.1)).collect();
        let is_untouched = |event: &&Event| names.contains(event.place().as_str());
        assert_eq!(
            events.iter().find(is_untouched).map(|event| &event.request_uri),
            None,
            "{fault}"
        );
        let writes = events.len();
        // A host name is in all six objects of a rule, and in its status. One change of each rule
        // and its writes may be repeated, since the first answer was lost.
        let most = (changes + half) * 7;
        assert!(writes <= most, "{fault}: {writes} writes for {changes} changes");
        self.rows.push(Row { fault, lasted, changes, writes, settled });
    }

    /// Kills a part of the control plane, and starts it some time later.
    async fn is_without(&self, part: Part) {
        self.shop.plane.kill(part).await.unwrap();
        let why = until_ready(&self.ports, false).await;
        assert!(why.starts_with("the API server is not ready: "), "{why}");
        println!("  /readyz without {}: {}", part.name(), why.trim_end());
        sleep(self.extent.lasts).await;
        self.shop.plane.restart(part).await.unwrap();
        until_ready(&self.ports, true).await;
    }

    /// Ends the host, and prints the table.
    async fn close(mut self) {
        self.host.terminate();
        let (status, said) = self.host.ended().await;
        assert_eq!(status.code(), Some(0), "{said}");
        println!(
            "| fault | lasted | changes | lost | objects written that had not changed | writes | settled after |"
        );
        for row in &self.rows {
            println!("{row}");
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fault, lasted, changes, writes, settled } = self;
        // Lost changes and needless writes make the test fail.
        write!(
            formatter,
            "| {fault} | {lasted:.1?} | {changes} | 0 | 0 | {writes} | {settled:.1?} |"
        )
    }
}

/// Tests servers that are killed and started.
async fn servers(extent: Extent) {
    let Some(shop) = Shop::open().await else { return };
    let mut bench = Bench::open(shop, None, extent).await;
    bench.suffers("none", async |bench| sleep(bench.extent.lasts).await).await;
    bench
        .suffers("API server killed and started", async |bench| {
            bench.is_without(Part::ApiServer).await;
        })
        .await;
    bench
        .suffers("etcd killed and started", async |bench| bench.is_without(Part::Etcd).await)
        .await;
    bench.close().await;
}

/// Tests a line with different faults.
async fn lines(extent: Extent) {
    let Some(shop) = Shop::open().await else { return };
    let line = Line::to(&shop.plane).await;
    let mut bench = Bench::open(shop, Some(&line), extent).await;
    bench
        .suffers("all watches cut, each second", async |bench| {
            let mut second = interval(Duration::from_secs(1));
            for _ in 0..=bench.extent.lasts.as_secs() {
                second.tick().await;
                line.cut_watches();
            }
        })
        .await;
    bench
        .suffers("no answers, nothing heard", async |bench| {
            line.set(Way::Blocked);
            let why = until_ready(&bench.ports, false).await;
            println!("  /readyz without answers: {}", why.trim_end());
            sleep(bench.extent.lasts).await;
            line.set(Way::Open);
        })
        .await;
    bench
        .suffers("429 with Retry-After: 1 to all requests", async |bench| busy(bench, &line).await)
        .await;
    bench
        .suffers("all that was watched is compacted (410)", async |bench| {
            compacted(bench, &line).await;
        })
        .await;
    assert!(line.gone() > 0, "no watch was told that it is too long ago");
    println!("  watches that were told so: {}", line.gone());
    bench.close().await;
}

async fn busy(bench: &Bench, line: &Line) {
    line.set(Way::Busy(1));
    // Open watches still deliver changes, so the host has something to write.
    line.until("a request is turned away", |line| line.busy().0 > 0).await;
    let why = until_ready(&bench.ports, false).await;
    assert_eq!(why, "the API server is not ready: 429 Too Many Requests\n");
    sleep(bench.extent.lasts).await;
    line.set(Way::Open);
    let (refused, impatient) = line.busy();
    assert_eq!(impatient, Vec::<String>::new(), "what was to wait a second did not");
    println!("  {refused} requests were answered with 429");
}

async fn compacted(bench: &Bench, line: &Line) {
    line.set(Way::Blocked);
    line.cut_watches();
    // The host misses the changes of this time.
    sleep(bench.extent.lasts).await;
    bench.shop.plane.compact().await.unwrap();
    bench.shop.plane.kill(Part::ApiServer).await.unwrap();
    bench.shop.plane.restart(Part::ApiServer).await.unwrap();
    line.set(Way::Open);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_change_is_lost_when_servers_are_killed_and_started() {
    servers(SHORT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_change_is_lost_on_a_bad_line() {
    lines(SHORT).await;
}

/// `cargo test -p mortise-tests --test it -- --ignored --nocapture interrupted::`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn no_change_is_lost_when_servers_are_away_for_long() {
    servers(LONG).await;
}

/// See [`no_change_is_lost_when_servers_are_away_for_long`].
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn no_change_is_lost_on_a_line_that_is_bad_for_long() {
    lines(LONG).await;
}
