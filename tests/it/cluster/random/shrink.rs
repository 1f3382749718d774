//! Plays a sequence that failed again, makes it as short as possible, and prints it.

use proptest::strategy::ValueTree as _;
use serde_json::json;

use super::{
    Comparison, SEED, SEQUENCES,
    play::{Difference, Played},
};

/// The maximum number of plays of a sequence to shorten it.
const MAX_TRIES: usize = 100;

/// Number of times that a sequence which failed once is played alone before it counts as one that
/// does not fail.
const REPLAYS: usize = 3;

/// Returns whether the sequence of a seed fails again.
pub(super) async fn fails_again(comparison: &Comparison, seed: u64) -> bool {
    let sequence = comparison.tree(seed).current();
    for _ in 0..REPLAYS {
        if comparison.play(&sequence).await.difference.is_some() {
            return true;
        }
    }
    false
}

/// Returns the failure of a seed's sequence at its shortest; `None` if it does not fail when played
/// again.
pub(super) async fn shortest(comparison: &Comparison, seed: u64) -> Option<String> {
    let mut tree = comparison.tree(seed);
    let mut shortest: Option<Played> = None;
    for _ in 0..MAX_TRIES {
        let played = comparison.play(&tree.current()).await;
        let fails = played.difference.is_some();
        if fails {
            shortest = Some(played);
        }
        let goes_on = if fails { tree.simplify() } else { tree.complicate() };
        if !goes_on {
            break;
        }
    }
    let replay = format!("{SEED}={seed} {SEQUENCES}=1");
    let Difference { text, steps, .. } = shortest.and_then(|played| played.difference)?;
    let scenario = serde_saphyr::to_string(&json!({"about": replay, "steps": steps}));
    let scenario = scenario.expect("a scenario is plain data");
    Some(format!("{replay}\n{text}\nas a scenario, with the real server's answers:\n{scenario}"))
}
