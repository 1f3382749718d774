//! The run record of each run.

use mortise_core::{
    reads::record::{Ending, NotSkippable, Question},
    reconcile::Report,
};
use mortise_host::host::Drive;
use serde_json::json;

use super::{
    CONFIG_MAP, RULE, Scene, VIRTUAL_SERVICE, applies, object, pod, rule, scripted, service,
};

#[tokio::test(start_paused = true)]
async fn the_record_of_the_last_run_holds_its_reads_and_its_outcome() {
    let scene = Scene::of_rules().await;
    scene.load(&service("shop"));
    scene.load(&pod("shop-1", "shop"));
    scene.load(&rule("orders", "shop"));
    let stage = scene.start(Drive::Caller);
    let reports = stage.run(stage.ready().await).await;
    let first = &reports[0].record;
    assert_eq!((first.ending, first.attempt, first.refused), (Ending::Success, 0, 0));
    assert!(first.asked.clock && !first.asked.random, "the first status needs a time");
    assert_eq!(first.skippable(), Err(NotSkippable::Clock));
    let basis = first.ran_on.as_ref().unwrap();
    assert_eq!(*basis.module, stage.loaded[0].processor.digest().to_string());
    let kinds: Vec<&str> =
        first.reads.iter().map(|read| read.question.kind().kind.as_str()).collect();
    assert!(kinds.contains(&"Service") && kinds.contains(&"Gateway"), "{kinds:?}");
    assert_eq!(
        (reports[0].reads(), reports[0].read_bytes()),
        (first.reads.len(), first.read_bytes())
    );
    assert!(first.read_bytes() > 0 && first.memory >= 1 << 16);
    let wrote: Vec<&str> = first.wrote.iter().map(|wrote| wrote.of.kind.kind.as_str()).collect();
    assert!(wrote.contains(&"VirtualService"), "{wrote:?}");
    assert!(first.wrote.iter().all(|wrote| wrote.own.is_some()));

    // When nothing changes any more, the run reads only the cluster, and would have the same
    // outcome again.
    stage.settle().await;
    stage.edit(RULE, "orders", json!({"metadata": {"annotations": {"x": "y"}}})).await;
    let last = stage.settle().await.pop().unwrap().record;
    assert_eq!(last.skippable(), Ok(()));
    assert_eq!(stage.host.record(&last.key), Some(last.clone()));
    let again = stage.restart().await;
    let ran = again.run(again.ready().await).await;
    let record = &ran[0].record;
    assert_eq!((record.object, record.outcome), (last.object, last.outcome));
    let answers = |of: &[mortise_core::reads::record::Read]| {
        of.iter().map(|read| read.answer).collect::<Vec<_>>()
    };
    assert_eq!(answers(&record.reads), answers(&last.reads));
    assert_eq!(record.wrote, last.wrote);

    // The record is removed with its object.
    again.delete(RULE, "orders").await;
    again.settle().await;
    assert!(again.all(VIRTUAL_SERVICE).is_empty());
    assert_eq!(again.host.record(&last.key), None);
}

/// Returns the report of a puppet's run with this script.
async fn played(script: &str) -> Report {
    let scene = Scene::of_puppet(CONFIG_MAP).await;
    scene.load(&scripted("play", script));
    let stage = scene.start(Drive::Caller);
    stage.run(stage.ready().await).await.remove(0)
}

#[tokio::test(start_paused = true)]
async fn a_run_that_fails_or_asks_to_come_back_is_recorded_as_one() {
    let nowhere = object(CONFIG_MAP, "made", &json!({"metadata": {"namespace": "nowhere"}}));
    let refused = played(&applies(&[nowhere])).await;
    assert!(refused.failure.is_some(), "{refused:#?}");
    assert_eq!((refused.record.ending, refused.record.refused), (Ending::Failure, 1));
    assert!(refused.record.outcome.is_some());
    assert_eq!(refused.record.skippable(), Err(NotSkippable::Failed));

    let later = applies(&[]).replace("\"ByDefault\"", "{\"After\":1000}");
    let later = played(&later).await;
    assert_eq!(later.failure, None);
    assert_eq!(later.record.skippable(), Err(NotSkippable::Requeue));
    let of_nothing =
        later.record.reads.iter().any(|read| matches!(read.question, Question::List { .. }));
    assert!(!of_nothing);
}
