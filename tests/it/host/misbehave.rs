//! A processor that fails for some objects serves the others, and every failure is reported.

mod library;

use std::{sync::OnceLock, time::Duration};

use mortise_core::write::Action;
use mortise_host::{
    host::{Drive, Loaded, Settings},
    wasm::{Engine, Limits, Options, Processor},
};
use serde_json::json;

use super::{CONFIG_MAP, Scene, actions, object};

/// Each misbehaviour, with parts of its message.
const CASES: [(&str, &[&str]); 9] = [
    (
        "panics",
        &[
            "processor `misbehave` panicked: told to panic (",
            "\nat <test_guest_misbehave::Misbehave",
        ],
    ),
    ("hangs", &["processor `misbehave` ran past its limit of 2s"]),
    ("allocates", &["processor `misbehave` ran out of memory: ", "its limit is 67108864"]),
    ("recurses", &["processor `misbehave` overflowed its stack"]),
    ("recurses-with-data", &["processor `misbehave` overflowed its stack"]),
    ("nameless", &["the outcome is not valid: `apply[0]", "metadata.name"]),
    ("undeclared-kind", &["the outcome is not valid: `apply[0]", "Secret", "stolen"]),
    ("huge", &["`apply[0]`, ConfigMap a/huge (", "its limit is 8388608 bytes"]),
    ("not-json", &["the outcome is not valid: `apply[0]", "not JSON"]),
];

async fn misbehave() -> Loaded {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    let path = tokio::task::spawn_blocking(|| mortise_tests::guest("tests/guests/misbehave"));
    let module = std::fs::read(path.await.unwrap().unwrap()).unwrap();
    let engine = ENGINE.get_or_init(|| Engine::new(Options::default()).unwrap());
    let limits = Limits { deadline: Duration::from_secs(2), ..Limits::default() };
    let processor = Processor::load(engine, "misbehave", module.into(), limits).await.unwrap();
    Loaded::describe(processor, "{}", Settings::in_namespace("default")).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_guest_failure_is_reported_and_affects_no_other_object() {
    let scene = Scene::new(vec![misbehave().await]);
    let stage = scene.start(Drive::Caller);
    let marked = json!({"metadata": {"labels": {"test": "misbehave"}}});
    for (name, expected) in CASES {
        let good = format!("good-after-{name}");
        stage.apply(&[object(CONFIG_MAP, name, &marked)]).await;
        let before = stage.state();
        let ready = stage.ready().await;
        assert_eq!(ready.len(), 1, "{name}");
        let reports = stage.run(ready).await;
        let [report] = &reports[..] else { panic!("{name}: {reports:?}") };
        let failure = report.failure.as_deref().unwrap();
        let events = stage.events(name);
        let [event] = &events[..] else { panic!("{name}: {events:?}") };
        for part in expected {
            assert!(failure.contains(part), "{name}: {failure}");
            assert!(event.contains(part), "{name}: {event}");
        }
        assert!(actions(report).iter().all(|(action, _)| *action == Action::Event), "{report:?}");
        assert_eq!(stage.state(), before, "{name}: nothing but the event is written");

        // The failing object is deleted, so that only the good one runs next.
        stage.delete(CONFIG_MAP, name).await;
        stage.apply(&[object(CONFIG_MAP, &good, &marked)]).await;
        let reports = stage.settle().await;
        let of_good = reports.iter().find(|report| report.key.name() == good).unwrap();
        assert_eq!(of_good.failure, None);
        assert_eq!(actions(of_good), [(Action::Create, format!("{good}-made"))]);
    }
}

/// The same objects at once, with `Drive::Host`: hanging and failing calls delay no other key.
#[tokio::test(start_paused = true)]
async fn concurrent_guest_failures_do_not_block_other_objects() {
    let scene = Scene::new(vec![misbehave().await]);
    let marked = json!({"metadata": {"labels": {"test": "misbehave"}}});
    for (name, _) in CASES {
        scene.load(&object(CONFIG_MAP, name, &marked));
    }
    for number in 0..5 {
        scene.load(&object(CONFIG_MAP, &format!("good-{number}"), &marked));
    }
    let mut stage = scene.start(Drive::Host);
    let made = |number| format!("good-{number}-made");
    stage
        .until("all good ones are served", |stage| {
            (0..5).all(|number| stage.get(CONFIG_MAP, &made(number)).is_some())
        })
        .await;
    stage
        .until("all others have an event", |stage| {
            CASES.iter().all(|(name, _)| !stage.events(name).is_empty())
        })
        .await;
    // The host still reacts to changes.
    stage.delete(CONFIG_MAP, &made(3)).await;
    stage.until("it is made again", |stage| stage.get(CONFIG_MAP, &made(3)).is_some()).await;
    stage.host.stop().await.unwrap();
}
