//! A fault of a guest ends its call with a message, and has no other effect.
//!
//! `it/host.rs` tests that the host continues to reconcile other objects; these tests show that the
//! engine continues to serve calls.

use std::time::Duration;

use mortise_host::wasm::{Error, Limits, Next, Processor};

use super::{call, error, misbehave, outcome, processor};

/// Asserts that the processor works as before.
async fn still_serves(processor: &Processor) {
    let outcome = outcome(call(processor, "good").await);
    assert_eq!(outcome.apply.len(), 1);
}

async fn brief(deadline: Duration) -> Processor {
    processor("misbehave", Limits { deadline, ..Limits::default() }).await
}

#[tokio::test]
async fn a_panic_ends_the_call_with_its_message_and_place() {
    let processor = misbehave().await;
    let called = call(&processor, "panics").await;
    assert!(called.log.iter().any(|line| line.message.contains("told to panic")));
    let error = error(called);
    let message = error.to_string();
    assert!(message.starts_with("processor `misbehave` panicked: told to panic ("), "{message}");
    assert!(message.contains("src/lib.rs:"), "{message}");
    let trace = error.backtrace().unwrap().to_string();
    let first = trace.lines().next().unwrap();
    assert!(first.starts_with("at ") && first.contains("Misbehave"), "{trace}");
    assert!(trace.contains("#reconcile"), "{trace}");
    assert_eq!(error.next(), Next::Retry);
    still_serves(&processor).await;
}

#[tokio::test]
async fn a_guest_that_hangs_is_ended_at_its_deadline() {
    let limit = Duration::from_millis(200);
    let processor = brief(limit).await;
    let called = call(&processor, "hangs").await;
    assert!(called.took >= limit, "{:?}", called.took);
    let error = error(called);
    assert_eq!(error.to_string(), "processor `misbehave` ran past its limit of 200ms");
    assert!(error.backtrace().unwrap().to_string().contains("hang"));
    still_serves(&processor).await;
}

/// Runs on a single thread, so that the other call can only run if the hanging guest yields.
#[tokio::test]
async fn others_are_served_on_the_same_thread_while_a_guest_hangs() {
    let processor = brief(Duration::from_millis(500)).await;
    let hangs = call(&processor, "hangs");
    let others = async {
        for _ in 0..20 {
            still_serves(&processor).await;
        }
    };
    tokio::pin!(hangs);
    tokio::select! {
        biased;
        _ = &mut hangs => panic!("the others waited for the one that hangs"),
        () = others => {}
    }
    assert!(matches!(error(hangs.await), Error::OutOfTime { .. }));
}

#[tokio::test]
async fn memory_without_end_is_refused_at_the_limit() {
    let processor = misbehave().await;
    let error = error(call(&processor, "allocates").await);
    let Error::OutOfMemory { limit, asked, .. } = &error else { panic!("{error}") };
    assert_eq!(*limit, 64 << 20);
    assert!(asked > limit);
    let message = error.to_string();
    assert!(message.contains("its limit is 67108864"), "{message}");
    still_serves(&processor).await;
}

#[tokio::test]
async fn a_recursion_without_end_is_told_from_other_traps() {
    let processor = misbehave().await;
    for name in ["recurses", "recurses-with-data"] {
        let error = error(call(&processor, name).await);
        assert!(matches!(error, Error::StackOverflow { .. }), "{name}: {error}");
        let trace = error.backtrace().unwrap().to_string();
        assert!(trace.contains("::down (") && trace.contains(" times)"), "{name}: {trace}");
    }
    still_serves(&processor).await;
}

#[tokio::test]
async fn an_exit_is_no_outcome() {
    let processor = misbehave().await;
    let message = error(call(&processor, "exits").await).to_string();
    assert!(message.contains("exited with status"), "{message}");
    still_serves(&processor).await;
}

#[tokio::test]
async fn too_large_an_outcome_is_refused_and_its_object_named() {
    let processor = misbehave().await;
    let message = error(call(&processor, "huge").await).to_string();
    assert!(message.contains("`apply[0]`, ConfigMap default/huge ("), "{message}");
    assert!(message.contains("its limit is 8388608 bytes"), "{message}");
    still_serves(&processor).await;
}

#[tokio::test]
async fn an_outcome_that_names_the_same_memory_again_and_again_is_not_copied() {
    let processor = misbehave().await;
    let error = error(call(&processor, "endless-outcome").await);
    assert!(matches!(error, Error::OutcomeTooLarge { .. }), "{error}");
    assert!(error.to_string().contains("more than 16777216 bytes"), "{error}");
    still_serves(&processor).await;
}

#[tokio::test]
async fn an_argument_that_names_the_same_memory_again_and_again_is_not_copied() {
    let processor = misbehave().await;
    let called = call(&processor, "endless-argument").await;
    assert!(called.log.is_empty());
    let error = error(called);
    assert!(matches!(error, Error::ArgumentTooLarge { limit: 1_048_576, .. }), "{error}");
    assert!(error.backtrace().unwrap().to_string().contains("Misbehave"), "{error}");
    still_serves(&processor).await;
}

#[tokio::test]
async fn reads_without_end_are_ended() {
    let limits = Limits { reads: 50, ..Limits::default() };
    let processor = processor("misbehave", limits).await;
    let error = error(call(&processor, "reads-for-ever").await);
    assert_eq!(error.to_string(), "processor `misbehave` made more than 50 reads in one call");
    still_serves(&processor).await;
}

#[tokio::test]
async fn a_log_without_end_is_counted_not_kept() {
    let processor = misbehave().await;
    let called = call(&processor, "chatters").await;
    assert_eq!(called.log.len(), 200);
    assert_eq!(called.log_dropped, 9_800);
    outcome(called);
}

#[tokio::test]
async fn a_description_fails_as_a_call_does() {
    let processor = brief(Duration::from_millis(100)).await;
    let cases = [
        (r#"{"panic": true}"#, "panicked: told to panic in describe (", Next::Retry),
        (r#"{"hang": true}"#, "ran past its limit of 100ms", Next::Retry),
        (
            r#"{"refuse": true}"#,
            "does not accept its configuration: `refuse` must be false",
            Next::Wait,
        ),
        (
            r#"{"unknown": true}"#,
            "does not accept its configuration: the configuration cannot be read",
            Next::Wait,
        ),
    ];
    for (config, expected, next) in cases {
        let error = processor.describe(config).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{config}: {error}");
        assert_eq!(error.next(), next, "{config}");
    }
    let description = processor.describe("").await.unwrap();
    assert_eq!(description.name, "misbehave");
    assert!(description.config_schema.unwrap().contains("refuse"));
}
