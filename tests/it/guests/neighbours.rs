//! Calls beside those of a processor that takes as much as it can get.

use std::time::Duration;

use mortise_core::reconcile::Fault;
use mortise_host::wasm::{Called, Engine, Error, Input, Limits, Occasion, Options, Processor};
use tokio::{task::JoinSet, time::timeout};

use super::{MOMENT, View, call, error, outcome, processor_in, request};

/// Longer than any of these tests takes, so that no call ends by its deadline.
const DEADLINE: Duration = Duration::from_mins(10);
/// The time after which an event is taken to be missing.
const EVENT_TIMEOUT: Duration = Duration::from_mins(1);
/// More calls than there are slots.
const CALLS: usize = 141;
/// Slots of the small lane that one processor may have.
const MAX_SLOTS_PER_PROCESSOR: usize = 56;

async fn misbehave(engine: &Engine, limits: Limits) -> Processor {
    let processor = processor_in(engine, "misbehave", limits).await;
    processor.of_new(&"tenant/misbehave".into())
}

/// Starts calls that never end, and waits until as many as possible run. Returns their processor
/// and the calls.
async fn hanging(engine: &Engine) -> (Processor, JoinSet<Called>) {
    let hostile = misbehave(engine, Limits { deadline: DEADLINE, ..Limits::default() }).await;
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let hostile = hostile.clone();
        calls.spawn(async move { call(&hostile, "hangs").await });
    }
    let all_others_wait = async {
        while hostile.waiting().calls < CALLS - MAX_SLOTS_PER_PROCESSOR {
            tokio::task::yield_now().await;
        }
    };
    timeout(EVENT_TIMEOUT, all_others_wait).await.expect("every call over the share waits");
    (hostile, calls)
}

async fn all_are_cancelled(calls: JoinSet<Called>) {
    let ended = timeout(EVENT_TIMEOUT, calls.join_all()).await.expect("the calls end");
    for called in ended {
        assert!(called.took < DEADLINE);
        let error = error(called);
        assert!(matches!(error, Error::Cancelled { .. }), "{error}");
        assert_eq!(error.fault(), Fault::Cancelled);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_endless_calls_than_there_are_slots_leave_some_to_others() {
    let engine = Engine::new(Options::default()).unwrap();
    let (hostile, calls) = hanging(&engine).await;
    let benign = misbehave(&engine, Limits::default()).await;
    for _ in 0..20 {
        let called = timeout(EVENT_TIMEOUT, call(&benign, "good")).await.expect("a free slot");
        assert_eq!(outcome(called).apply.len(), 1);
    }
    timeout(EVENT_TIMEOUT, benign.describe("{}")).await.expect("a free slot").unwrap();
    timeout(EVENT_TIMEOUT, hostile.describe("{}"))
        .await
        .expect("a free slot for the hostile processor")
        .unwrap();
    assert_eq!(hostile.waiting().calls, CALLS - MAX_SLOTS_PER_PROCESSOR);
    hostile.tenant().cancel_calls();
    all_are_cancelled(calls).await;
    assert_eq!(outcome(call(&hostile, "good").await).apply.len(), 1, "all slots are free again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelling_the_engine_cancels_running_and_later_calls() {
    let engine = Engine::new(Options::default()).unwrap();
    let (hostile, calls) = hanging(&engine).await;
    engine.cancel_calls();
    all_are_cancelled(calls).await;
    let late = error(call(&hostile, "good").await);
    assert!(matches!(late, Error::Cancelled { .. }), "{late}");
}

#[tokio::test]
async fn a_closed_processor_refuses_calls_but_is_described_and_tried() {
    let engine = Engine::new(Options::default()).unwrap();
    let processor = misbehave(&engine, Limits::default()).await;
    processor.tenant().close();
    let late = error(call(&processor, "good").await);
    assert!(matches!(late, Error::Cancelled { .. }), "{late}");
    processor.describe("{}").await.unwrap();
    let request = request("good");
    let input = Input::new(View::default(), &request, MOMENT);
    let tried = processor.call(Input { occasion: Occasion::Trial, ..input }).await;
    assert_eq!(outcome(tried).apply.len(), 1);
    processor.tenant().open();
    assert_eq!(outcome(call(&processor, "good").await).apply.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_without_end_stops_where_it_would_be_that_of_others() {
    let budget = 128 << 20;
    let engine = Engine::new(Options { call_memory: Some(budget), ..Options::default() }).unwrap();
    let hostile = misbehave(&engine, Limits { memory: 2 << 30, ..Limits::default() }).await;
    let benign = misbehave(&engine, Limits::default()).await;
    let (one, other) = tokio::join!(call(&hostile, "allocates"), call(&hostile, "allocates"));
    assert!(one.memory + other.memory <= budget, "{} and {}", one.memory, other.memory);
    let errors = [error(one), error(other)];
    for error in errors {
        let Error::OutOfHostMemory { limit, .. } = &error else { panic!("{error}") };
        assert_eq!(*limit, budget);
        assert!(error.to_string().contains("--call-memory-mib"), "{error}");
    }
    assert!(hostile.tenant().short_of_memory().is_some());
    assert_eq!(hostile.tenant().memory_used(), 0);
    assert_eq!(outcome(call(&benign, "good").await).apply.len(), 1);
    assert!(benign.tenant().short_of_memory().is_none());
}
