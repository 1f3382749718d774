//! Swaps under load: no change is lost, no key runs on two versions at once, and no call waits for
//! a swap.

use std::{collections::HashMap, fs, sync::Arc};

use mortise::local;
use mortise_core::contract::Description;
use mortise_host::{
    host::Settings,
    wasm::{Limits, Processor},
};
use mortise_tests::{guest, rebuilt};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::host::PUPPET;

/// The interval of swaps.
const SWAP_INTERVAL: Duration = Duration::from_millis(200);

/// Loads two compiled modules, each of which writes its own name into the objects that it makes.
async fn modules() -> [Loaded; 2] {
    let path = guest(PUPPET).unwrap();
    let engine = local::engine(Some(&mortise_tests::code_cache()), false).unwrap();
    let bytes = fs::read(&path).unwrap();
    let load = async |version: &str, module: Vec<u8>| {
        let limits = Limits::default();
        let processor = Processor::load(&engine, version, module.into(), limits).await.unwrap();
        let config = play("puppet", version).config().to_string();
        Loaded::describe(processor, &config, Settings::in_namespace("default")).await.unwrap()
    };
    [load("0", bytes.clone()).await, load("1", rebuilt(&bytes, "1")).await]
}

/// Returns the version of the swap with this number: one of the modules in turn, named by the
/// number.
fn version(modules: &[Loaded; 2], swap: u64) -> Loaded {
    let loaded = modules[usize::try_from(swap % 2).unwrap()].clone();
    let description = Description { version: swap.to_string(), ..(*loaded.description).clone() };
    Loaded { description: Arc::new(description), ..loaded }
}

/// Changes random objects as another user until told to stop. Returns the number of changes of each
/// object.
async fn change(stage: &Stage, objects: u64, stop: &CancellationToken) -> Vec<u64> {
    let mut dice = Dice(7);
    let mut sequences = vec![0; usize::try_from(objects).unwrap()];
    while !stop.is_cancelled() {
        let at = dice.roll(objects);
        let sequence = &mut sequences[usize::try_from(at).unwrap()];
        *sequence += 1;
        let data = json!({"data": {"sequence": sequence.to_string()}});
        stage.edit(CONFIG_MAP, &format!("o{at}"), data).await;
    }
    sequences
}

/// Swaps the two modules repeatedly.
async fn swap(stage: &Stage, modules: &[Loaded; 2], swaps: u64) {
    let begin = Instant::now();
    for swap in 1..=swaps {
        sleep_until(begin + SWAP_INTERVAL * u32::try_from(swap).unwrap()).await;
        stage.host.swap_tried(version(modules, swap)).await.unwrap();
    }
}

/// The versions that each key ran on, in order.
#[derive(Default)]
struct Ran(HashMap<String, Vec<u64>>);

impl Ran {
    /// Adds a report, and returns its version.
    fn take(&mut self, report: &Report) -> u64 {
        assert_eq!(report.failure, None, "{report:#?}");
        let version = report.version.as_ref().unwrap().version.parse().unwrap();
        self.0.entry(report.key.name().to_owned()).or_default().push(version);
        version
    }

    fn is_complete(&self, objects: u64, last: u64) -> bool {
        let ended = self.0.values().filter(|versions| versions.last() == Some(&last)).count();
        u64::try_from(ended).unwrap() == objects
    }
}

/// Reads reports until nothing is left to do after the last swap. Stops the changes when all keys
/// have run on the last version: each key runs once more for that, and would find a change that it
/// had missed.
async fn reports(
    stage: &Stage,
    stop: &CancellationToken,
    over: &CancellationToken,
    objects: u64,
    last: u64,
) -> Ran {
    let mut ran = Ran::default();
    loop {
        tokio::select! {
            biased;
            report = stage.host.next_report() => {
                if ran.take(&report.unwrap()) == last && ran.is_complete(objects, last) {
                    stop.cancel();
                }
            }
            () = async { over.cancelled().await; stage.host.drive().settled().await } => break,
        }
    }
    ran
}

/// Swaps `swaps` times while `objects` change at random, and checks the final state.
async fn storm(objects: u64, swaps: u64) {
    let modules = modules().await;
    let scene = Scene::new(vec![version(&modules, 0)]);
    for number in 0..objects {
        scene.load(&source(&format!("o{number}"), "puppet"));
    }
    let stage = scene.start(Drive::Host);
    let (stop, over) = (CancellationToken::new(), CancellationToken::new());
    let changed = async {
        let swapped = swap(&stage, &modules, swaps);
        let ((), sequences) = tokio::join!(swapped, change(&stage, objects, &stop));
        over.cancel();
        sequences
    };
    let all =
        Box::pin(async { tokio::join!(changed, reports(&stage, &stop, &over, objects, swaps)) });
    let all = timeout(Duration::from_mins(15), all);
    let (sequences, mut ran) = all.await.expect("every key runs on the last version");

    let expected = |(number, sequence): (usize, &u64)| {
        let last = ((swaps % 2).to_string(), sequence.to_string());
        (format!("puppet-o{number}"), last)
    };
    let expected: BTreeMap<_, _> = sequences.iter().enumerate().map(expected).collect();
    // The watch may not have delivered the last changes yet.
    while let Some((name, made)) =
        stage.made("puppet").into_iter().find(|(name, made)| expected[name] != *made)
    {
        let report = timeout(TIMEOUT, stage.host.next_report()).await;
        let report =
            report.unwrap_or_else(|_| panic!("{name} is {made:?}, not {:?}", expected[&name]));
        ran.take(&report.unwrap());
    }
    assert_eq!(stage.made("puppet"), expected);
    assert_eq!(stage.tap.most_at_once(), 1, "no key runs on two versions");
    for (name, versions) in &ran.0 {
        assert!(versions.is_sorted(), "{name} goes from one version to the next: {versions:?}");
    }
    let count: u64 = sequences.iter().sum();
    assert!(count > swaps, "there was a storm: {count} changes, {swaps} swaps");
    assert_eq!(stage.tap.lists("configmaps"), 1, "none was listed again");
    assert_eq!(stage.tap.watches(), 2, "and none watched again: these, and CRDs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_storm_of_swaps_loses_nothing() {
    storm(400, 25).await;
}

/// A minute of swaps: `cargo test -p mortise-tests --test it -- --ignored a_storm_of_swaps`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes some minutes"]
async fn a_storm_of_swaps_loses_nothing() {
    storm(2_000, 300).await;
}

const ANSWER_DELAY: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_a_free_place_and_never_for_a_swap() {
    let names: Vec<String> = (0..12).map(|number| format!("o{number:02}")).collect();
    let sources: Vec<&str> = names.iter().map(String::as_str).collect();
    let stage = with_sources(&play("puppet", "1"), &sources, Drive::Host).await;
    stage.rest().await;
    for name in &names {
        let made =
            Filter::resource("configmaps").verbs([Verb::Patch]).name(format!("puppet-{name}"));
        stage.api.faults().inject(Fault::Latency(ANSWER_DELAY), made, 2);
    }
    let begin = Instant::now();
    for name in &names {
        stage.edit(CONFIG_MAP, name, json!({"data": {"sequence": "1"}})).await;
    }
    let mut ended = Vec::new();
    let swap = async {
        sleep(ANSWER_DELAY / 2).await;
        stage.host.swap_tried(play("puppet", "2").load().await).await.unwrap();
    };
    let read = async {
        while let Ok(report) = timeout(TIMEOUT, stage.host.next_report()).await {
            let report = report.unwrap();
            let seconds = begin.elapsed().as_secs();
            ended.push((
                seconds,
                major(&report.version.unwrap()).to_owned(),
                report.key.name().to_owned(),
            ));
        }
    };
    tokio::join!(swap, read);
    // Four calls run at once, each for a second, whatever is swapped meanwhile. Calls that ran at
    // the swap end on their version; the changed keys come next; then the keys that the new version
    // has not seen run once more.
    let rows: Vec<(u64, &str, &[String])> = vec![
        (1, "1", &names[..4]),
        (2, "2", &names[4..8]),
        (3, "2", &names[8..]),
        (4, "2", &names[..4]),
    ];
    for ((second, version, names), ended) in rows.into_iter().zip(ended.chunks(4)) {
        let mut ended = ended.to_vec();
        ended.sort();
        let expected = names.iter().map(|name| (second, version.to_owned(), name.clone()));
        assert_eq!(ended, expected.collect::<Vec<_>>());
    }
    assert_eq!(ended.len(), 16);
}
