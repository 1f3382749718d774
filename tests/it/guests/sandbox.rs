//! A guest can find out nothing about its environment; time and random numbers are those of its
//! call.

use mortise_core::{contract::Level, reads::View};
use mortise_host::wasm::{Engine, Input, Limits, Moment, Options, Source};
use serde_json::json;

use super::{NOW_MS, call, misbehave, outcome, processor_in, request, status};

#[tokio::test]
async fn there_is_nothing_around_a_guest() {
    let processor = misbehave().await;
    let outcome = outcome(call(&processor, "looks-around").await);
    let nothing =
        json!({"environment": 0, "arguments": 0, "files": 0, "written": false, "connected": false});
    assert_eq!(status(&outcome), nothing);
}

#[tokio::test]
async fn the_clock_shows_the_time_of_the_call_and_marks_the_run() {
    let processor = misbehave().await;
    let called = call(&processor, "asks-clock").await;
    assert!(called.asked.clock && !called.asked.random);
    assert_eq!(called.log[0].fields, [("now".to_owned(), NOW_MS.to_string())]);
    let called = call(&processor, "asks-system-time").await;
    assert!(called.asked.clock);
    assert_eq!(status(&outcome(called)), json!({"now": NOW_MS.to_string()}));
}

#[tokio::test]
async fn random_bytes_are_never_the_same_and_mark_the_run() {
    let processor = misbehave().await;
    let first = call(&processor, "asks-random").await;
    let second = call(&processor, "asks-random").await;
    assert!(first.asked.random && !first.asked.clock);
    assert_ne!(status(&outcome(first)), status(&outcome(second)));
}

#[tokio::test]
async fn random_bytes_follow_from_the_call_where_calls_are_repeatable() {
    let engine = Engine::new(Options { repeatable: true, ..Options::default() }).unwrap();
    let processor = processor_in(&engine, "misbehave", Limits::default()).await;
    let first = call(&processor, "asks-random").await;
    let second = call(&processor, "asks-random").await;
    assert!(first.asked.random);
    let first = status(&outcome(first));
    assert_eq!(first, status(&outcome(second)));
    // Another object draws other bytes.
    let moment = Moment { now_ms: NOW_MS, seed: 7 };
    let mut request = request("asks-random");
    request.ref_.namespace = Some("elsewhere".into());
    let other = processor.call(Input::new(View::default(), &request, moment)).await;
    assert_ne!(first, status(&outcome(other)));
}

#[tokio::test]
async fn hash_tables_follow_the_seed_and_mark_nothing() {
    let processor = misbehave().await;
    let first = call(&processor, "hashes").await;
    let second = call(&processor, "hashes").await;
    assert!(!first.asked.random && !first.asked.clock);
    assert_eq!(outcome(first), outcome(second));
}

#[tokio::test]
async fn a_wait_ends_at_once() {
    let processor = misbehave().await;
    let called = call(&processor, "sleeps").await;
    assert!(!called.asked.clock);
    outcome(called);
}

#[tokio::test]
async fn standard_output_and_error_go_to_the_log() {
    let processor = misbehave().await;
    let called = call(&processor, "prints").await;
    let lines: Vec<_> =
        called.log.iter().map(|line| (line.source, line.level, line.message.as_str())).collect();
    let expected = [
        (Source::Output, Level::Info, "to standard output"),
        (Source::Error, Level::Warn, "to standard error"),
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn a_call_that_asks_nothing_is_marked_with_nothing() {
    let processor = misbehave().await;
    let called = call(&processor, "good").await;
    assert!(!called.asked.clock && !called.asked.random);
    assert!(called.log.is_empty());
    assert_eq!(called.log_dropped, 0);
}
