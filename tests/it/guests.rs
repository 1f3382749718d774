//! Real components through the real processor module: what a guest can find out, and what happens
//! to one that misbehaves.

mod api_rule;
mod contract;
mod hooks;
pub(crate) mod libraries;
mod load;
mod misbehave;
mod neighbours;
mod reads;
mod refused;
mod sandbox;

use std::{path::Path, sync::OnceLock};

use mortise_core::{
    contract::{Kind, ObjectRef, Outcome, Request},
    reads::View,
};
use mortise_host::{
    cache_dir::CacheDir,
    wasm::{Called, Engine, Error, Input, Limits, Moment, Options, Processor},
};
use serde_json::json;
use tokio::sync::Mutex;

/// 2023-11-14T22:13:20Z.
const NOW_MS: u64 = 1_700_000_000_000;
const MOMENT: Moment = Moment { now_ms: NOW_MS, seed: 7 };

/// Returns the engine that all tests share: it is a part of what they show that a call of one guest
/// does not harm another. The engine keeps compiled code, so that each guest is compiled once.
fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("code");
        let cache = CacheDir::open(&path).unwrap();
        Engine::new(Options { cache: Some(cache), ..Options::default() }).unwrap()
    })
}

async fn processor(guest: &str, limits: Limits) -> Processor {
    processor_in(engine(), guest, limits).await
}

async fn processor_in(engine: &Engine, guest: &str, limits: Limits) -> Processor {
    // One load at a time: the first compiles, the others find the code.
    static LOADING: Mutex<()> = Mutex::const_new(());
    let _loading = LOADING.lock().await;
    let folder = format!("tests/guests/{guest}");
    let path = tokio::task::spawn_blocking(move || mortise_tests::guest(&folder)).await.unwrap();
    let module = std::fs::read(path.unwrap()).unwrap();
    Processor::load(engine, guest, module.into(), limits).await.unwrap()
}

async fn misbehave() -> Processor {
    processor("misbehave", Limits::default()).await
}

/// A request for a `ConfigMap` of this name.
fn request(name: &str) -> Request {
    let kind = Kind::home("", "v1", "ConfigMap");
    let metadata = json!({"name": name, "namespace": "default", "labels": {"test": "misbehave"}});
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    Request {
        reconciler: "config-maps".into(),
        ref_: ObjectRef { kind: kind.into(), namespace: Some("default".into()), name: name.into() },
        object: Some(object.to_string()),
        config: String::new(),
        attempt: 0,
        failed_writes: Vec::new(),
        note: None,
    }
}

async fn call(processor: &Processor, name: &str) -> Called {
    processor.call(Input::new(View::default(), &request(name), MOMENT)).await
}

/// Returns the outcome of a call that is expected to succeed.
fn outcome(called: Called) -> Outcome {
    called.outcome.unwrap().unwrap()
}

fn error(called: Called) -> Error {
    called.outcome.unwrap_err()
}

/// The status of an outcome, as JSON.
fn status(outcome: &Outcome) -> serde_json::Value {
    let object: serde_json::Value = serde_json::from_str(outcome.status.as_ref().unwrap()).unwrap();
    object["status"].clone()
}
