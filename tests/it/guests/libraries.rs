//! Processors that call libraries: what a library may be, what becomes of one that misbehaves, and
//! how its answers are remembered.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use futures::future::join_all;
use mortise_core::{
    contract::{Level, Outcome},
    reads::View,
};
use mortise_host::{
    cache_dir::CacheDir,
    metrics::Metrics,
    wasm::{
        Called, Engine, Error, Input, LibraryModule, Limits, LoadError, Module, Options, Processor,
    },
};
use serde_json::{Value, json};

use super::{MOMENT, error, outcome, request};

const INTERFACE: &str = "example:shouting/shout@1.0.0";
const MIB: usize = 1 << 20;

/// An engine of the test's own, with metrics of its own.
struct Bench {
    engine: Engine,
    metrics: Metrics,
}

impl Bench {
    fn new() -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("code");
        let (cache, metrics) = (Some(CacheDir::open(&path).unwrap()), Metrics::new());
        let options = Options { cache, metrics: metrics.clone(), ..Options::default() };
        Self { engine: Engine::new(options).unwrap(), metrics }
    }

    async fn load(&self, limits: Limits, libraries: Vec<LibraryModule>) -> Processor {
        load(&self.engine, limits, libraries).await.unwrap()
    }

    /// Returns how many calls of libraries ended so.
    fn calls(&self, result: &str) -> u64 {
        let name =
            format!(r#"mortise_library_calls_total{{processor="announce",result="{result}"}} "#);
        let text = self.metrics.text(&mortise_host::metrics::Sample::default()).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(&name));
        value.map_or(0, |value| value.parse().unwrap())
    }
}

async fn built(guest: &str) -> Vec<u8> {
    let folder = format!("tests/guests/{guest}");
    let path = tokio::task::spawn_blocking(move || mortise_tests::guest(&folder)).await.unwrap();
    std::fs::read(path.unwrap()).unwrap()
}

fn module(name: &str, bytes: Vec<u8>, limits: Limits) -> Module {
    Module { name: name.to_owned(), content: bytes.into(), limits }
}

fn library(bytes: Vec<u8>, limits: Limits) -> LibraryModule {
    LibraryModule { interface: INTERFACE.to_owned(), module: module("lib.wasm", bytes, limits) }
}

/// The library that tests/guests/shout is, with limits that its attacks meet soon.
async fn shout() -> LibraryModule {
    let limits = Limits { memory: 16 * MIB, deadline: Duration::from_secs(5), ..Limits::default() };
    library(built("shout").await, limits)
}

async fn load(
    engine: &Engine,
    limits: Limits,
    libraries: Vec<LibraryModule>,
) -> Result<Processor, LoadError> {
    let module = module("announce", built("announce").await, limits);
    Processor::load_with(engine, None, module, libraries).await
}

/// Calls the processor with a text that it hands to its library, this many times with a number
/// behind it.
async fn announce(processor: &Processor, text: &str, times: u32) -> Called {
    let mut request = request("greeting");
    request.reconciler = "announcements".into();
    let mut object: Value = serde_json::from_str(request.object.as_ref().unwrap()).unwrap();
    object["data"] = json!({"text": text, "times": times.to_string()});
    request.object = Some(object.to_string());
    processor.call(Input::new(View::default(), &request, MOMENT)).await
}

fn announced(outcome: &Outcome) -> Value {
    let applied: Value = serde_json::from_str(&outcome.apply[0].object).unwrap();
    applied["data"].clone()
}

/// A library of the interface: `version` is what it says, `shout` is the body of a function that
/// returns the place of a result. At 32 is the result `AGAIN`.
pub(crate) fn written(version: &str, shout: &str) -> Vec<u8> {
    let length = version.len();
    let text = format!(
        r#"(component
            (core module $m
                (memory (export "memory") 1)
                (data (i32.const 0) "\10\00\00\00\{length:02x}\00\00\00")
                (data (i32.const 16) "{version}")
                (data (i32.const 32) "\00\00\00\00\40\00\00\00\05\00\00\00")
                (data (i32.const 64) "AGAIN")
                (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
                (func (export "version") (result i32) (i32.const 0))
                (func (export "shout") (param i32 i32) (result i32) {shout}))
            (core instance $i (instantiate $m))
            (func $version (result string)
                (canon lift (core func $i "version") (memory $i "memory")))
            (func $shout (param "text" string) (result (result string (error string)))
                (canon lift (core func $i "shout") (memory $i "memory") (realloc (func $i "realloc"))))
            (instance $shout
                (export "version" (func $version)) (export "shout" (func $shout)))
            (export "{INTERFACE}" (instance $shout)))"#
    );
    wat::parse_str(text).unwrap()
}

/// A component with one function, of another type than the interface's.
pub(crate) fn of_other_type() -> Vec<u8> {
    wat::parse_str(of_version("u32", "")).unwrap()
}

fn of_version(ty: &str, import: &str) -> String {
    format!(
        r#"(component
            {import}
            (core module $m (func (export "version") (result i32) (i32.const 7)))
            (core instance $i (instantiate $m))
            (func $version (result {ty}) (canon lift (core func $i "version")))
            (instance $shout (export "version" (func $version)))
            (export "{INTERFACE}" (instance $shout)))"#
    )
}

#[tokio::test]
async fn a_processor_calls_its_library_and_its_answer_is_remembered() {
    let bench = Bench::new();
    let processor = bench.load(Limits::default(), vec![shout().await]).await;
    assert_eq!(processor.describe("").await.unwrap().version, "1.0.0", "the library says so");
    for _ in 0..3 {
        let outcome = outcome(announce(&processor, "hello", 1).await);
        assert_eq!(announced(&outcome), json!({"text": "HELLO"}));
    }
    assert_eq!((bench.calls("call"), bench.calls("memo")), (1, 2));
    for _ in 0..2 {
        let refused = outcome(announce(&processor, "nothing", 1).await);
        assert_eq!(announced(&refused), json!({"error": "there is nothing to shout"}));
    }
    assert_eq!((bench.calls("call"), bench.calls("memo")), (2, 3), "an error is an answer");
    let large = outcome(announce(&processor, "large", 1).await);
    assert_eq!(announced(&large), json!({"text": format!("{} bytes", 3 << 19)}));
}

#[tokio::test]
async fn a_library_that_misbehaves_ends_the_call_and_nothing_else() {
    let bench = Bench::new();
    let processor = bench.load(Limits::default(), vec![shout().await]).await;
    let cases = [
        ("trap", "trapped: wasm trap: wasm `unreachable` instruction executed"),
        ("memory", "ran out of memory: it asked for "),
        ("huge", "returned more than 8388608 bytes"),
        ("deep", "overflowed its stack"),
    ];
    for (text, expected) in cases {
        let expected = format!(
            "processor `announce` got no answer of a library: `shout` of library `{INTERFACE}` {expected}"
        );
        for attempt in 1..3 {
            let error = error(announce(&processor, text, 1).await);
            assert!(matches!(error, Error::Library { .. }), "{text}: {error:?}");
            assert!(error.to_string().starts_with(&expected), "{text}: {error}");
            assert_eq!(error.reason(), "library");
            assert_eq!(bench.calls("memo"), 0, "{text}, {attempt}: a failure is not remembered");
        }
        let trace = error(announce(&processor, text, 1).await).backtrace().unwrap().to_string();
        assert!(trace.contains("Announcements") || trace.contains("reconcile"), "{text}: {trace}");
    }
    let outcome = outcome(announce(&processor, "still here", 1).await);
    assert_eq!(announced(&outcome), json!({"text": "STILL HERE"}));
    assert_eq!(processor.tenant().memory_used(), 0, "the memory of the library is given back");
}

#[tokio::test]
async fn a_library_that_never_answers_ends_at_its_deadline() {
    let bench = Bench::new();
    let limits = Limits { deadline: Duration::from_millis(200), ..Limits::default() };
    let library = library(built("shout").await, limits);
    let processor = bench.load(Limits::default(), vec![library]).await;
    let error = error(announce(&processor, "loop", 1).await);
    let expected = format!("`shout` of library `{INTERFACE}` ran past its limit of 200ms");
    assert!(error.to_string().ends_with(&expected), "{error}");
    assert_eq!(processor.tenant().memory_used(), 0);
}

#[tokio::test]
async fn a_caller_waits_until_its_own_deadline_and_the_next_one_finds_the_answer() {
    let bench = Bench::new();
    let limits = Limits { deadline: Duration::from_millis(300), ..Limits::default() };
    let library = library(
        built("shout").await,
        Limits { deadline: Duration::from_mins(1), ..Limits::default() },
    );
    let processor = bench.load(limits, vec![library]).await;
    let start = Instant::now();
    let first = announce(&processor, "slow", 1).await;
    let message = error(first).to_string();
    assert!(message.contains("had not answered when the call was at its deadline"), "{message}");
    let answer = loop {
        let called = announce(&processor, "slow", 1).await;
        if let Ok(Ok(outcome)) = called.outcome {
            break announced(&outcome);
        }
        assert!(start.elapsed() < Duration::from_mins(1), "the call does not go on");
    };
    assert_eq!(answer, json!({"text": "SLOW"}));
    assert_eq!(
        bench.calls("call"),
        0,
        "only the first began a call, and it was not there any more"
    );
}

#[tokio::test]
async fn callers_with_equal_arguments_wait_for_one_call() {
    let bench = Bench::new();
    let limits = Limits { deadline: Duration::from_mins(1), ..Limits::default() };
    let library = library(built("shout").await, limits.clone());
    let processor = bench.load(limits, vec![library]).await;
    let callers = (0..50).map(|_| announce(&processor, "slow", 1));
    for called in join_all(callers).await {
        assert_eq!(announced(&outcome(called)), json!({"text": "SLOW"}));
    }
    assert_eq!(bench.calls("call"), 1);
    assert_eq!(bench.calls("shared") + bench.calls("memo"), 49);
}

#[tokio::test]
async fn many_different_calls_leave_a_bounded_number_of_answers() {
    let bench = Bench::new();
    let limits = Limits { deadline: Duration::from_mins(2), ..Limits::default() };
    let processor = bench.load(limits, vec![shout().await]).await;
    let text = "x".repeat(20_000);
    let called = announce(&processor, &text, 10_000).await;
    assert_eq!(announced(&outcome(called)), json!({"text": "20005 bytes"}));
    assert_eq!(bench.calls("call"), 10_000);
    let bytes = bench.engine.answer_bytes();
    assert!((60 * MIB..=64 * MIB).contains(&bytes), "{bytes} of 200 MB");
    drop(processor);
    assert_eq!(bench.engine.answer_bytes(), 0, "they go with the processor");
}

#[tokio::test]
async fn a_cancelled_processor_ends_the_calls_of_its_library() {
    let bench = Bench::new();
    let limits = Limits { deadline: Duration::from_mins(10), ..Limits::default() };
    let library = library(built("shout").await, limits.clone());
    let processor = bench.load(limits, vec![library]).await;
    let called = announce(&processor, "loop", 1);
    let cancel = async {
        while processor.tenant().memory_used() == 0 {
            tokio::task::yield_now().await;
        }
        processor.tenant().cancel_calls();
    };
    let (called, ()) = futures::join!(called, cancel);
    assert!(matches!(error(called), Error::Cancelled { .. }));
    while processor.tenant().memory_used() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_module_that_is_no_library_of_the_interface_is_not_loaded() {
    let bench = Bench::new();
    let limits = Limits::default;
    let import = r#"(import "wasi:cli/environment@0.2.6" (instance (export "get" (func))))"#;
    let resource = format!(
        r#"(component (type $r (resource (rep i32))) (instance $i (export "thing" (type $r)))
            (export "{INTERFACE}" (instance $i)))"#
    );
    let empty = "(component)";
    let cases = [
        (
            "imports",
            of_version("u32", import),
            "it imports `wasi:cli/environment@0.2.6`; a library may import `mortise:host/log@0.1.0` and nothing else",
        ),
        ("nothing", empty.to_owned(), "it does not export it; it exports nothing"),
        ("resource", resource, "its export `thing` is no function of plain values"),
        (
            "another type",
            of_version("u32", ""),
            "imports `version` of `example:shouting/shout@1.0.0` as `func() -> string`; the library",
        ),
        ("another type, both", of_version("u32", ""), "exports it as `func() -> u32`"),
    ];
    for (case, text, expected) in cases {
        let library = library(wat::parse_str(&text).unwrap(), limits());
        let error = load(&bench.engine, limits(), vec![library]).await.unwrap_err();
        let message = format!("{:#}", anyhow::Error::from(error));
        assert!(message.contains(expected), "{case}: {message}");
    }
    let without = load(&bench.engine, limits(), Vec::new()).await.unwrap_err().to_string();
    assert!(
        without.contains("imports `example:shouting/shout@1.0.0`, which is not granted"),
        "{without}"
    );
    for (interface, expected) in [
        ("mortise:host/cluster@0.1.0", "the host itself answers the interfaces of `mortise:host`"),
        ("wasi:cli/environment@0.2.6", "the host itself answers the interfaces of `wasi:cli`"),
        ("shout", "`shout` is no name of an interface"),
        ("example:shouting/shout@2.0.0", "it does not export it; it exports `example:shouting/"),
    ] {
        let library = LibraryModule { interface: interface.to_owned(), ..shout().await };
        let error = load(&bench.engine, limits(), vec![library]).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{interface}: {error}");
    }
    let one_too_few = r#"(component
        (core module $m (func (export "other")))
        (core instance $i (instantiate $m))
        (func $other (canon lift (core func $i "other")))
        (instance $shout (export "other" (func $other)))
        (export "example:shouting/shout@1.0.0" (instance $shout)))"#;
    let library = library(wat::parse_str(one_too_few).unwrap(), limits());
    let error = load(&bench.engine, limits(), vec![library]).await.unwrap_err().to_string();
    assert!(error.ends_with("exports `other`"), "{error}");
}

/// A library that logs a line before it answers.
fn logging() -> Vec<u8> {
    let text = format!(
        r#"(component
            (import "mortise:host/log@0.1.0" (instance $log
                (type $level' (enum "trace" "debug" "info" "warn" "error"))
                (export "level" (type $level (eq $level')))
                (export "write" (func
                    (param "level" $level) (param "message" string)
                    (param "fields" (list (tuple string string)))))))
            (core module $memory
                (memory (export "memory") 1)
                (data (i32.const 0) "\10\00\00\00\05\00\00\00")
                (data (i32.const 16) "4.0.0")
                (data (i32.const 32) "\00\00\00\00\40\00\00\00\05\00\00\00")
                (data (i32.const 64) "AGAIN"))
            (core instance $memory (instantiate $memory))
            (alias export $log "write" (func $write))
            (core func $write' (canon lower (func $write) (memory $memory "memory")))
            (core module $m
                (import "log" "write" (func $write (param i32 i32 i32 i32 i32)))
                (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
                (func (export "version") (result i32) (i32.const 0))
                (func (export "shout") (param i32 i32) (result i32)
                    (call $write (i32.const 3) (i32.const 64) (i32.const 5) (i32.const 0) (i32.const 0))
                    (i32.const 32)))
            (core instance $i (instantiate $m
                (with "log" (instance (export "write" (func $write'))))))
            (func $version (result string)
                (canon lift (core func $i "version") (memory $memory "memory")))
            (func $shout (param "text" string) (result (result string (error string)))
                (canon lift (core func $i "shout") (memory $memory "memory")
                    (realloc (func $i "realloc"))))
            (instance $shout
                (export "version" (func $version)) (export "shout" (func $shout)))
            (export "{INTERFACE}" (instance $shout)))"#
    );
    wat::parse_str(text).unwrap()
}

#[tokio::test]
async fn log_lines_of_a_library_are_in_the_log_of_the_call() {
    let bench = Bench::new();
    let library = library(logging(), Limits::default());
    let processor = bench.load(Limits::default(), vec![library]).await;
    let called = announce(&processor, "hello", 1).await;
    let [line] = called.log.as_slice() else { panic!("{:?}", called.log) };
    assert_eq!((line.message.as_str(), line.level), ("AGAIN", Level::Warn));
    assert_eq!(line.fields, [("library".to_owned(), INTERFACE.to_owned())]);
    assert_eq!(announced(&outcome(called)), json!({"text": "AGAIN"}));
    let called = announce(&processor, "hello", 1).await;
    assert!(called.log.is_empty(), "a remembered answer logs nothing");
}

#[tokio::test]
async fn another_library_of_the_interface_serves_the_same_module() {
    let bench = Bench::new();
    let library = library(written("2.0.0", "(i32.const 32)"), Limits::default());
    let processor = bench.load(Limits::default(), vec![library]).await;
    assert_eq!(processor.describe("").await.unwrap().version, "2.0.0");
    let outcome = outcome(announce(&processor, "hello", 1).await);
    assert_eq!(announced(&outcome), json!({"text": "AGAIN"}));
}
