//! Records of other modules, configurations, grants and modes than those of the running host.

use std::{fs, sync::Arc};

use mortise::local;
use mortise_core::contract::Description;
use mortise_host::host::Loaded;
use mortise_tests::{guest, rebuilt};
use serde_json::{Value, json};

use super::{Cache, RESYNC_INTERVAL, counted, not_skipped, puppet, ran};
use crate::host::{CONFIG_MAP, PUPPET, play::Play, selection};

/// Loads a component with the same behaviour and another digest.
async fn rebuilt_module(of: &Loaded) -> Loaded {
    let module = tokio::task::spawn_blocking(|| guest(PUPPET)).await.unwrap().unwrap();
    let (folder, cache) = (tempfile::tempdir().unwrap(), mortise_tests::code_cache());
    let path = folder.path().join("puppet.wasm");
    fs::write(&path, rebuilt(&fs::read(module).unwrap(), "2")).unwrap();
    local::load(&path, of.config.to_string(), Some(&cache)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn another_version_configuration_or_mode_runs_all() {
    let cache = Cache::new();
    let mut stage = puppet(&json!({}), cache.skip()).await;
    let play = |script: Value| {
        Play::new("puppet")
            .reconciles_with(
                "objects",
                &selection(CONFIG_MAP, "play=yes"),
                &json!({"finalizers": ["example.com/held"], "resync": RESYNC_INTERVAL.as_millis()}),
            )
            .script(script)
    };
    let as_it_was = stage.loaded.clone();
    let other_module = rebuilt_module(&as_it_was[0]).await;
    let mut other_grant = as_it_was[0].clone();
    let mut description = Description::clone(&other_grant.description);
    description.reads.push(description.reads[0].clone());
    other_grant.description = Arc::new(description);
    let other_config = play(json!({"ask_clock": false})).load().await;
    let mut other_mode = as_it_was[0].clone();
    other_mode.settings.mode = mortise_host::host::Mode::Observe;
    let mut other_take_over = as_it_was[0].clone();
    other_take_over.settings.take_over = ["manager".to_owned()].into();
    let cases = [
        ("module", vec![other_module]),
        ("grant", vec![other_grant]),
        ("config", vec![other_config]),
        ("mode", vec![other_mode]),
        ("settings", vec![other_take_over]),
    ];
    for (reason, loaded) in cases {
        for (loaded, runs) in [(loaded, 1), (as_it_was.clone(), 1)] {
            stage.host.stop().await.unwrap();
            stage.loaded = loaded;
            stage = stage.restart().await;
            assert_eq!(ran(stage.settle().await).len(), runs, "{reason}");
        }
        // A host that only observes keeps no record in place of the former one.
        let told =
            not_skipped(&stage, "puppet", reason) + not_skipped(&stage, "puppet", "settings");
        assert!(told > 0 || reason == "mode", "{:?}", counted(&stage));
    }
    let stage = stage.restart().await;
    assert_eq!(ran(stage.settle().await).len(), 0);
}
