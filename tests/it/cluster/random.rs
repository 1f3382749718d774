//! Random sequences of requests, sent to the embedded API and to a real API server: answers,
//! managed fields and the final objects are the same, or the difference is one that the embedded
//! API's documentation names.
//!
//! `MORTISE_SEED` is the seed of the first sequence; the next ones have the numbers after it.
//! `random` chooses a seed. The default is always the same, so that a change is tested with the
//! same sequences as the one before it. `MORTISE_SEQUENCES` is the number of sequences. A sequence
//! that fails is made as short as proptest can, and printed as a scenario with the real server's
//! answers.

mod accepted;
mod kind;
mod play;
mod shrink;
mod step;
mod value;

use std::{
    collections::BTreeMap,
    env,
    hash::{BuildHasher as _, RandomState},
    process,
    sync::atomic::{AtomicU64, Ordering},
};

use axum::Router;
use futures::{StreamExt as _, stream};
use mortise_embedded_api::{EmbeddedApi, Options};
use proptest::{
    strategy::{BoxedStrategy, Strategy as _, ValueTree},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde_json::{Value, json};

use self::{
    play::{Difference, Played, Servers, play},
    step::Sequence,
};
use super::{normalise::Names, run};

/// The environment variables.
const SEED: &str = "MORTISE_SEED";
const SEQUENCES: &str = "MORTISE_SEQUENCES";
/// The default number of sequences.
const DEFAULT_SEQUENCES: u64 = 1000;
/// The default of the first seed.
const DEFAULT_SEED: u64 = 20_260_601;
/// Number of sequences that run at the same time.
const MAX_CONCURRENT_SEQUENCES: usize = 8;
/// Number of failing sequences that are shortened: each takes some seconds.
const MAX_SHRUNK_SEQUENCES: usize = 5;

/// The sequences with differences.
#[derive(Default)]
struct Verdict {
    /// Sequences that differ again when they are played alone; the first ones in their shortest
    /// form.
    again: Vec<String>,
    /// Sequences that do not differ again, without a known reason why the difference passes.
    once: Vec<String>,
}

/// The servers and the generator of sequences.
struct Comparison {
    servers: Servers,
    sequences: BoxedStrategy<Sequence>,
    /// Number of namespaces; each play of a sequence has a namespace of its own.
    namespaces: AtomicU64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_sequences_are_answered_as_by_a_real_api_server() {
    let Some(real) = super::bare().await else { return };
    let seed = seed();
    let count = number(SEQUENCES).unwrap_or(DEFAULT_SEQUENCES);
    println!("{count} sequences from {SEED}={seed}");
    let comparison = Comparison::new(real).await;
    let sequences: Vec<(u64, Sequence)> =
        (0..count).map(|index| (seed + index, comparison.tree(seed + index).current())).collect();
    let plays = stream::iter(&sequences)
        .map(async |(seed, sequence)| (*seed, comparison.play(sequence).await));
    let mut played: Vec<(u64, Played)> =
        plays.buffer_unordered(MAX_CONCURRENT_SEQUENCES).collect().await;
    played.sort_by_key(|(seed, _)| *seed);
    println!("{}", summary(&played));
    let mut verdict = Verdict::default();
    for (seed, played) in &played {
        if let Some(difference) = &played.difference {
            verdict.judge(&comparison, *seed, difference).await;
        }
    }
    verdict.pronounce(count);
    let occurred = |name| played.iter().any(|(_, played)| played.accepted.contains(&name));
    for accepted in
        accepted::ALL.iter().filter(|_| seed == DEFAULT_SEED && count == DEFAULT_SEQUENCES)
    {
        assert!(occurred(accepted.name), "`{}` never occurs any more", accepted.name);
    }
}

// === impl Verdict ===

impl Verdict {
    /// Plays a sequence with a difference again, and records the result.
    async fn judge(&mut self, comparison: &Comparison, seed: u64, difference: &Difference) {
        let text = format!("{SEED}={seed}: {}", difference.text);
        if shrink::fails_again(comparison, seed).await {
            let is_shrunk = self.again.len() < MAX_SHRUNK_SEQUENCES;
            let shortest = if is_shrunk { shrink::shortest(comparison, seed).await } else { None };
            return self.again.push(shortest.unwrap_or(text));
        }
        match difference.passing {
            Some(passing) => println!("{text}: not when it was played again: {passing:?}"),
            None => self.once.push(text),
        }
    }

    /// Fails if there are differences that persist, or that pass without a known reason.
    fn pronounce(&self, count: u64) {
        let Self { again, once } = self;
        assert!(
            again.is_empty() && once.is_empty(),
            "of {count} sequences {} differ:\n{}\n{} differed, and not when they were played again:\n{}",
            again.len(),
            again.join("\n"),
            once.len(),
            once.join("\n")
        );
    }
}

fn seed() -> u64 {
    if env::var(SEED).is_ok_and(|seed| seed == "random") {
        // Small enough to be typed.
        return RandomState::new().hash_one("seed") % 1_000_000_000;
    }
    number(SEED).unwrap_or(DEFAULT_SEED)
}

fn number(variable: &str) -> Option<u64> {
    let value = env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable}=`{value}` is no number")))
}

/// Counts the answers by status, and the accepted differences.
fn summary(played: &[(u64, Played)]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (_, played) in played {
        let statuses = played.statuses.iter().map(|status| format!("status {status}"));
        for what in statuses.chain(played.accepted.iter().map(|name| format!("accepted {name}"))) {
            *counts.entry(what).or_default() += 1;
        }
    }
    counts.iter().map(|(what, count)| format!("{what}: {count}")).collect::<Vec<_>>().join(", ")
}

// === impl Comparison ===

impl Comparison {
    /// Sets up both servers with the custom kinds.
    async fn new(real: Router) -> Self {
        let api = EmbeddedApi::new(Options::default());
        let servers = Servers { embedded: api.router(), real };
        for definition in kind::definitions() {
            for server in [&servers.embedded, &servers.real] {
                define(server, &definition).await;
            }
        }
        // Custom kinds twice: they offer more opportunities for differences.
        let kinds = [kind::built_in(), kind::custom(), kind::custom()].concat();
        let sequences = step::sequence(kinds);
        Self { servers, sequences, namespaces: AtomicU64::new(0) }
    }

    /// Returns the sequence of a seed, which can be shortened.
    fn tree(&self, seed: u64) -> impl ValueTree<Value = Sequence> + use<> {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(Config::default(), random);
        self.sequences.new_tree(&mut runner).expect("a strategy without filters")
    }

    async fn play(&self, sequence: &Sequence) -> Played {
        let number = self.namespaces.fetch_add(1, Ordering::Relaxed);
        play(&self.servers, sequence, &format!("random-{}-{number}", process::id())).await
    }
}

/// Applies a CRD and waits until it is served.
async fn define(server: &Router, definition: &Value) {
    let name = definition["metadata"]["name"].as_str().expect("a CRD has a name");
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
    let apply = json!({"method": "PATCH", "path": format!("{path}?fieldManager=tests"),
        "contentType": "application/apply-patch+yaml", "body": definition});
    let got = run::request(server, &apply, &Names::default()).await;
    assert!(matches!(got.status, 200 | 201), "CRD {name}: {:?}", got.body);
    let place = "/status/conditions/[type=Established]/status";
    let read = json!({"method": "GET", "path": path, "select": [place],
        "until": {"withinSeconds": 20, "match": {place: "True"}},
        "answer": {"status": 200, "body": {place: "True"}}});
    run::scenario(server, &json!({"steps": [read]})).await.expect("the CRD is served");
}
