//! A processor with a library on a real control plane: it is loaded, called, exchanged and rolled
//! back as the Processor resource says.

use std::{fs, path::Path};

use mortise_host::wasm::Digest;
use mortise_tests::rebuilt;
use serde_json::{Value, json};

use super::{ground::Rights, kind, stage::Stage};
use crate::guests::libraries::{of_other_type, written};

const PROCESSOR: &str = "mortise.dev/v1alpha1/Processor";
const NAME: &str = "announce";
const INTERFACE: &str = "example:shouting/shout@1.0.0";
const RIGHTS: Rights<'static> =
    &[("configmaps", "get list watch create patch"), ("events", "create patch")];

fn processor(stage: &Stage) -> Value {
    json!({
        "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor", "metadata": stage.named(NAME),
        "spec": {
            "module": {"path": "announce.wasm"}, "serviceAccountName": NAME,
            "libraries": [library("shout.wasm")], "config": {"namespace": stage.namespace},
        },
    })
}

fn library(path: &str) -> Value {
    json!({
        "interface": INTERFACE, "module": {"path": path},
        "limits": {"memory": "16Mi", "deadline": "2s"},
    })
}

fn object(stage: &Stage, text: &str) -> Value {
    let mut metadata = stage.named("greeting");
    super::merge(&mut metadata, &json!({"labels": {"announce": "yes"}}));
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": text}})
}

impl Stage {
    async fn until_announced(&self, data: Value) {
        self.until(&format!("announced is {data}"), async || {
            let announced = self.get(&kind("v1/ConfigMap"), "greeting-announced").await;
            announced.is_some_and(|announced| announced["data"] == data)
        })
        .await;
    }

    /// Waits until the Processor names this library, this version, and a reason of `Loaded` with a
    /// message that holds this text.
    async fn until_called(&self, library: &[u8], version: &str, reason: &str, message: &str) {
        let digest = Digest::of(library).to_string();
        let what = format!("{version}, {reason} {message}");
        self.until(&what, async || {
            let processor = self.get(&kind(PROCESSOR), NAME).await.unwrap();
            let of = |pointer: &str| processor.pointer(pointer).cloned().unwrap_or_default();
            let conditions = of("/status/conditions");
            let loaded = conditions.as_array().into_iter().flatten();
            let loaded = loaded.into_iter().find(|condition| condition["type"] == "Loaded");
            of("/status/libraries") == json!([{"interface": INTERFACE, "digest": digest}])
                && of("/status/module/version") == version
                && loaded.is_some_and(|loaded| {
                    let says = loaded["message"].as_str().unwrap_or_default();
                    loaded["reason"] == reason && says.contains(message)
                })
        })
        .await;
    }
}

async fn put(modules: &Path, name: &str, guest: &'static str) -> Vec<u8> {
    let built = tokio::task::spawn_blocking(move || mortise_tests::guest(guest)).await.unwrap();
    let bytes = fs::read(built.unwrap()).unwrap();
    fs::write(modules.join(name), &bytes).unwrap();
    bytes
}

#[tokio::test]
async fn a_library_is_exchanged_as_a_version_of_its_processor() {
    let Some(stage) = Stage::new("libraries", &[NAME.to_owned()]).await else { return };
    stage.account(NAME, RIGHTS).await;
    stage.consent(NAME).await;
    let (_running, modules) = stage.supervise().await;
    put(modules.path(), "announce.wasm", "tests/guests/announce").await;
    let shout = put(modules.path(), "shout.wasm", "tests/guests/shout").await;
    stage.apply(vec![object(&stage, "hello"), processor(&stage)]).await;
    stage.until_announced(json!({"text": "HELLO"})).await;
    stage.until_called(&shout, "1.0.0", "Loaded", "announce 1.0.0 is loaded").await;

    // Another library, and the same module: every object is reconciled by it.
    let again = written("2.0.0", "(i32.const 32)");
    fs::write(modules.path().join("again.wasm"), &again).unwrap();
    let with = |path: &str| {
        let mut wanted = processor(&stage);
        wanted["spec"]["libraries"] = json!([library(path)]);
        vec![wanted]
    };
    stage.apply(with("again.wasm")).await;
    stage.until_announced(json!({"text": "AGAIN"})).await;
    stage.until_called(&again, "2.0.0", "Loaded", "announce 2.0.0 is loaded").await;

    // One that breaks is tried without writing, and refused.
    let broken = written("3.0.0", "unreachable");
    fs::write(modules.path().join("broken.wasm"), &broken).unwrap();
    stage.apply(with("broken.wasm")).await;
    let told = "version 3.0.0 broke on 1 of the 1 objects that it was tried with";
    stage.until_called(&again, "2.0.0", "TrialFailed", told).await;
    stage.until_called(&again, "2.0.0", "TrialFailed", "`shout` of library `example:").await;

    // One of other types is not linked, and the condition says both.
    fs::write(modules.path().join("other.wasm"), of_other_type()).unwrap();
    stage.apply(with("other.wasm")).await;
    let told =
        "imports `version` of `example:shouting/shout@1.0.0` as `func() -> string`; the library";
    stage.until_called(&again, "2.0.0", "LibraryOtherTypes", told).await;
    let told = "exports it as `func() -> u32`";
    stage.until_called(&again, "2.0.0", "LibraryOtherTypes", told).await;

    // Without its library the module asks for what is not granted.
    let mut without = processor(&stage);
    without["spec"]["libraries"] = json!([]);
    stage.apply(vec![without]).await;
    stage.until_called(&again, "2.0.0", "ImportsNotGranted", "imports `example:shouting/").await;

    // The file is replaced in its place: that is another version, too.
    stage.apply(with("shout.wasm")).await;
    stage.until_announced(json!({"text": "HELLO"})).await;
    let next = rebuilt(&shout, "2");
    let place = modules.path().join("next");
    fs::write(&place, &next).unwrap();
    fs::rename(place, modules.path().join("shout.wasm")).unwrap();
    stage.until_called(&next, "1.0.0", "Loaded", "").await;
    stage.apply(vec![object(&stage, "changed")]).await;
    stage.until_announced(json!({"text": "CHANGED"})).await;

    // One that passes the trial, and breaks in its first minute, is taken back: the version that
    // comes back is the last that has passed its own.
    let breaks_on_long =
        "(if (i32.gt_u (local.get 1) (i32.const 7)) (then unreachable)) (i32.const 32)";
    let picky = written("4.0.0", breaks_on_long);
    fs::write(modules.path().join("picky.wasm"), &picky).unwrap();
    stage.apply(with("picky.wasm")).await;
    stage.until_announced(json!({"text": "AGAIN"})).await;
    stage.until_called(&picky, "4.0.0", "Loaded", "announce 4.0.0 is loaded").await;
    stage.apply(vec![object(&stage, "a longer text")]).await;
    stage.until_called(&shout, "1.0.0", "RolledBack", "version 4.0.0 was rolled back").await;
    stage.until_announced(json!({"text": "A LONGER TEXT"})).await;
    assert_eq!(stage.beyond_installed(&stage.requests().await), Vec::<String>::new());
}
