//! The lifetime of records of former starts: as long as the key, even for objects that the
//! processor itself does not see.

use std::time::Duration;

use mortise_host::host::Drive;
use serde_json::json;

use super::{Cache, RESYNC_INTERVAL, merge, not_skipped, puppet, ran};
use crate::host::{CONFIG_MAP, Scene, outcome, play::Play, scripted, selection};

/// Longer than an hour, after which a record that no key has asked for is dropped.
const LONG_AFTER: Duration = Duration::from_hours(2);

#[tokio::test(start_paused = true)]
async fn the_record_of_a_key_that_was_left_out_is_kept_as_long_as_the_key() {
    let cache = Cache::new();
    let stage = puppet(&json!({}), cache.skip()).await.restart().await;
    assert_eq!(ran(stage.settle().await).len(), 0);
    tokio::time::sleep(LONG_AFTER).await;
    let resynced = stage.settle().await;
    assert_eq!((resynced.len(), ran(resynced).len()), (1, 0), "it came back, and was left out");
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_is_looked_at_that_the_processor_does_not_see() {
    let mut data_alone = selection(CONFIG_MAP, "play=yes");
    merge(&mut data_alone, &json!({"fields": ["data"]}));
    let held = json!({"finalizers": ["example.com/held"]});
    let play = Play::new("puppet").reconciles_with(
        "objects",
        &data_alone,
        &json!({"finalizers": held["finalizers"], "resync": RESYNC_INTERVAL.as_millis()}),
    );
    let scene = Scene::of_play(&play).await;
    let script = json!({"returns": outcome(&held)});
    scene.load(&scripted("play", &script.to_string()));
    let cache = Cache::new();
    let stage = scene.start_skipping(Drive::Caller, cache.skip());
    stage.settle().await;
    let stage = stage.restart().await;
    assert_eq!(ran(stage.settle().await).len(), 0);
    let end = stage.state();

    stage.host.stop().await.unwrap();
    stage.edit(CONFIG_MAP, "play", json!({"metadata": {"finalizers": null}})).await;
    let stage = stage.restart().await;
    assert!(!ran(stage.settle().await).is_empty());
    assert_eq!(not_skipped(&stage, "puppet", "finalizers"), 1);
    assert_eq!(stage.state(), end);
}
