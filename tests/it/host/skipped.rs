//! Runs that are skipped at a resync, and the reasons that prevent a skip.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use mortise_core::{queue::Cause, reads::record::NotSkippable, reconcile::Report};
use mortise_host::{
    host::{Drive, Mode},
    metrics::Sample,
    operator::admin::Admin,
};
use serde_json::{Value, json};

use super::{
    CONFIG_MAP, POLICY, Scene, Stage, applies, manifest, merge, object, outcome,
    play::{Play, deletion},
    pod, rule, scripted, selection, service, text,
};

/// The interval of resyncs.
pub(super) const RESYNC_INTERVAL: Duration = Duration::from_mins(30);
const RULES: [&str; 5] = ["r0", "r1", "r2", "r3", "r4"];

/// Starts a host with rules, one Service and one Pod, and settles. Each rule has read the clock in
/// its first run, and so runs at the first resync, which is over.
async fn rules() -> Stage {
    let scene = Scene::of_rules().await;
    scene.load(&service("shop"));
    scene.load(&pod("shop-1", "shop"));
    for name in RULES {
        scene.load(&rule(name, "shop"));
    }
    let stage = scene.start_skipping(Drive::Caller);
    stage.settle().await;
    assert!(RULES.iter().all(|rule| stage.is_ready(rule)));
    assert_eq!(keys(&resync(&stage).await), RULES.into());
    assert_eq!(not_skipped(&stage, "api-rule", "clock"), 5);
    stage.api.reset_requests();
    stage
}

/// Starts a host with an object with a script, and a puppet with a resync.
async fn puppet(script: &Value) -> Stage {
    let play = Play::new("puppet")
        .reconciles_with(
            "objects",
            &selection(CONFIG_MAP, "play=yes"),
            &json!({"finalizers": ["example.com/held"], "resync": RESYNC_INTERVAL.as_millis()}),
        )
        .reads(&selection("v1/Secret", ""))
        .reads(&selection("v1/Service", ""))
        .writes(&selection(CONFIG_MAP, ""), &["create", "update", "delete"]);
    let scene = Scene::of_play(&play).await;
    scene.load(&object(CONFIG_MAP, "theirs", &json!({"data": {"mine": "no", "gone": "soon"}})));
    scene.load(&scripted("play", &script.to_string()));
    let stage = scene.start_skipping(Drive::Caller);
    let reports = stage.settle().await;
    assert!(reports.iter().all(|report| report.failure.is_none()), "{reports:#?}");
    stage.api.reset_requests();
    stage
}

/// Advances to the next resync, and returns all reports, without those of skipped runs.
async fn resync(stage: &Stage) -> Vec<Report> {
    tokio::time::advance(RESYNC_INTERVAL).await;
    let due = stage.ready().await;
    assert!(!due.is_empty() && due.iter().all(|run| run.causes == [Cause::Resync]), "{due:?}");
    let mut reports = stage.run(due).await;
    reports.extend(stage.settle().await);
    ran(reports)
}

fn ran(mut reports: Vec<Report>) -> Vec<Report> {
    reports.retain(|report| !report.skipped);
    reports
}

fn keys(reports: &[Report]) -> BTreeSet<&str> {
    reports.iter().map(|report| report.key.name()).collect()
}

/// Returns the metrics of skipping, without the parts that all of their names share.
fn counted(stage: &Stage) -> BTreeMap<String, u64> {
    let admin = Admin::of(&stage.host);
    let text = admin.metrics.text(&Sample::default()).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("mortise_reconciles_"));
    let lines = lines.filter(|line| line.contains("skipped_total"));
    let count = |line: &str| {
        let (name, count) = line.rsplit_once(' ')?;
        Some((name.to_owned(), count.parse().ok()?))
    };
    lines.filter_map(count).collect()
}

fn skipped(stage: &Stage, processor: &str, kind: &str) -> u64 {
    let name = format!("skipped_total{{processor=\"{processor}\",kind=\"{kind}\"}}");
    counted(stage).remove(&name).unwrap_or_default()
}

fn not_skipped(stage: &Stage, processor: &str, reason: &str) -> u64 {
    let name = format!("not_skipped_total{{processor=\"{processor}\",reason=\"{reason}\"}}");
    counted(stage).remove(&name).unwrap_or_default()
}

// === resyncs ===

#[tokio::test(start_paused = true)]
async fn a_resync_of_settled_rules_runs_and_writes_nothing() {
    let stage = rules().await;
    let (before, revision) = (stage.state(), stage.api.revision());
    for resyncs in 1..=3 {
        assert_eq!(keys(&resync(&stage).await), BTreeSet::new());
        assert_eq!(skipped(&stage, "api-rule", "APIRule.gateway.kyma-project.io"), 5 * resyncs);
    }
    assert_eq!(stage.host.status()[0].runs, 10, "a skipped run is not counted");
    assert_eq!(stage.writes(), 0);
    assert_eq!((stage.state(), stage.api.revision()), (before, revision));

    // Changes still trigger runs.
    let policy = stage.only(POLICY, "r2-");
    stage.delete(POLICY, text(&policy, "/metadata/name")).await;
    assert_eq!(keys(&stage.settle().await), ["r2"].into());
    assert_eq!(stage.only(POLICY, "r2-")["spec"], policy["spec"]);
}

#[tokio::test(start_paused = true)]
async fn a_change_before_the_verification_of_a_due_key_runs_it_once() {
    let stage = rules().await;
    tokio::time::advance(RESYNC_INTERVAL).await;
    let due = stage.ready().await;
    stage.edit("v1/Service", "shop", json!({"spec": {"selector": {"tier": "b"}}})).await;
    while stage.host.keys(|entry| !entry.causes.is_empty()).len() < RULES.len() {
        tokio::task::yield_now().await;
    }
    let reports = ran(stage.run(due).await);
    assert_eq!(keys(&reports), RULES.into(), "none is skipped");
    assert!(reports.iter().all(|report| report.causes.len() == 2), "{reports:#?}");
    assert_eq!(ran(stage.settle().await).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn without_skipping_no_run_is_counted_as_skipped() {
    let scene = Scene::of_puppet(CONFIG_MAP).await;
    scene.load(&scripted("play", &applies(&[])));
    let stage = scene.start(Drive::Caller);
    assert_eq!(stage.settle().await.len(), 1);
    assert_eq!(counted(&stage), BTreeMap::new());
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_last_run_asked_for_the_time_runs_at_the_next_resync() {
    let stage = rules().await;
    stage.apply(&[rule("new", "shop")]).await;
    let reports = stage.settle().await;
    assert!(reports[0].record.asked.clock);
    assert_eq!(reports[0].record.skippable(), Err(NotSkippable::Clock));
    assert_eq!(keys(&resync(&stage).await), ["new"].into());
    assert_eq!(keys(&resync(&stage).await), BTreeSet::new());

    let stage = puppet(&json!({"ask_clock": true})).await;
    for resyncs in 1..=2 {
        let again = resync(&stage).await;
        assert_eq!(again.len(), 1);
        assert_eq!(again[0].record.skippable(), Err(NotSkippable::Clock));
        assert_eq!(not_skipped(&stage, "puppet", "clock"), resyncs);
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_read_an_object_before_it_wrote_it_runs_at_the_next_resync() {
    let made = object(CONFIG_MAP, "made", &json!({"data": {"a": "1"}}));
    let of = &deletion(
        &json!({"cluster": "", "kind": selection(CONFIG_MAP, "")["kind"], "namespace": super::NAMESPACE, "name": "made"}),
    )["ref_"];
    let mut script: Value = serde_json::from_str(&applies(&[made])).unwrap();
    script["reads"] = json!([{"get": {"ref": of, "fields": ["data"]}}]);
    let play = Play::new("puppet")
        .reconciles_with(
            "objects",
            &selection(CONFIG_MAP, "play=yes"),
            &json!({"resync": RESYNC_INTERVAL.as_millis()}),
        )
        .reads(&selection(CONFIG_MAP, ""))
        .writes(&selection(CONFIG_MAP, ""), &["create", "update"]);
    let scene = Scene::of_play(&play).await;
    scene.load(&scripted("play", &script.to_string()));
    let stage = scene.start_skipping(Drive::Caller);
    assert_eq!(stage.settle().await.len(), 1);
    assert_eq!(resync(&stage).await.len(), 1);
    assert_eq!(not_skipped(&stage, "puppet", "read"), 1);
    assert_eq!(resync(&stage).await.len(), 0);
}

// === runs that are never skipped ===

#[tokio::test(start_paused = true)]
async fn requested_runs_are_not_skipped() {
    // The run was requested by a requeue.
    let later = applies(&[]).replace("\"ByDefault\"", "{\"After\":1000}");
    let stage = puppet(&serde_json::from_str(&later).unwrap()).await;
    for _ in 0..2 {
        tokio::time::advance(Duration::from_secs(1)).await;
        let reports = ran(stage.settle().await);
        assert_eq!(reports.len(), 1);
        assert_eq!(reports[0].causes, [Cause::Requeue]);
        assert_eq!(reports[0].record.skippable(), Err(NotSkippable::Requeue));
    }

    // The run was requested by the annotation, even with the same value as before if another host
    // has seen that value.
    let stage = puppet(&json!({})).await;
    let ask = |value: &str| json!({"metadata": {"annotations": {"mortise.dev/reconcile": value}}});
    for value in ["now", "again"] {
        stage.edit(CONFIG_MAP, "play", ask(value)).await;
        assert_eq!(ran(stage.settle().await).len(), 1, "{value}");
    }
    assert_eq!(resync(&stage).await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_run_after_a_failure_is_not_skipped() {
    let nowhere = object(CONFIG_MAP, "made", &json!({"metadata": {"namespace": "nowhere"}}));
    let scene = Scene::of_puppet(CONFIG_MAP).await;
    scene.load(&scripted("play", &applies(&[nowhere])));
    let stage = scene.start_skipping(Drive::Caller);
    let first = stage.run(stage.ready().await).await;
    assert!(first[0].failure.is_some());
    stage
        .apply(&[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "nowhere"}})])
        .await;
    tokio::time::advance(Duration::from_secs(1)).await;
    let second = stage.run(stage.ready().await).await;
    assert_eq!((second[0].attempt, second[0].skipped, &second[0].failure), (1, false, &None));
    assert_eq!(second[0].record.skippable(), Err(NotSkippable::AfterFailure));
}

// === restarts ===

#[tokio::test(start_paused = true)]
async fn a_restart_of_settled_rules_runs_each_once_and_writes_nothing() {
    let stage = rules().await;
    let (before, revision) = (stage.state(), stage.api.revision());
    let stage = stage.restart().await;
    let first = stage.ready().await;
    let reports = stage.run(first).await;
    assert_eq!((reports.len(), keys(&ran(reports))), (RULES.len(), RULES.into()));
    stage.settle().await;
    assert_eq!((stage.state(), stage.writes()), (before, 0));
    assert_eq!(stage.api.revision(), revision);
    assert_eq!(counted(&stage), BTreeMap::new(), "a first run is no run that could be skipped");

    // Their records are those of this start.
    assert_eq!(keys(&resync(&stage).await), BTreeSet::new());
    let policy = stage.only(POLICY, "r2-");
    stage.delete(POLICY, text(&policy, "/metadata/name")).await;
    assert_eq!(keys(&stage.settle().await), ["r2"].into());
}

// === the verification of records ===

/// Returns a script that makes every kind of write.
fn all_deeds() -> Value {
    let of = |name: &str| {
        let kind = selection(CONFIG_MAP, "")["kind"].clone();
        json!({"cluster": "", "kind": kind, "namespace": super::NAMESPACE, "name": name})
    };
    let made = |name: &str| {
        let rest = json!({"metadata": {"labels": {"of": "play"}}, "data": {"a": "1"}});
        manifest(&object(CONFIG_MAP, name, &rest))
    };
    let theirs = object(CONFIG_MAP, "theirs", &json!({"data": {"mine": "yes"}}));
    json!({
        "reads": [{"list": {"of": selection("v1/Service", "app=shop")}}],
        "returns": outcome(&json!({
            "apply": [made("one"), merged(made("generated"), &json!({"mode": "Create"}))],
            "patch": [manifest(&theirs)],
            "delete": [deletion(&of("doomed"))],
            "prune": [selection(CONFIG_MAP, "of=play")],
            "finalizers": ["example.com/held"],
        })),
    })
}

/// Waits for the next resync, lets `change` happen after the only due key was taken and before it
/// is verified, and returns whether the key was skipped. Then settles.
async fn is_skipped_after(stage: &Stage, change: impl AsyncFnOnce()) -> bool {
    tokio::time::advance(RESYNC_INTERVAL).await;
    let due = stage.ready().await;
    assert!(due.len() == 1 && due[0].causes == [Cause::Resync], "{due:?}");
    change().await;
    stage.caught_up().await;
    let reports = stage.run(due).await;
    stage.settle().await;
    reports[0].skipped
}

#[tokio::test(start_paused = true)]
async fn a_due_key_runs_if_an_object_that_it_read_wrote_or_deleted_has_changed() {
    let labelled =
        json!({"metadata": {"labels": {"app": "shop"}}, "spec": {"ports": [{"port": 80}]}});
    let forgotten = json!({"metadata": {"managedFields": [{}]}});
    let unrelated = json!({"metadata": {"annotations": {"x": "y"}}});
    let cases = [
        ("its finalizer", CONFIG_MAP, "play", json!({"metadata": {"finalizers": null}}), false),
        ("a field of an applied object", CONFIG_MAP, "one", json!({"data": {"a": "2"}}), false),
        ("an applied object is gone", CONFIG_MAP, "one", Value::Null, false),
        ("managed fields are lost", CONFIG_MAP, "one", forgotten, false),
        ("a created object is gone", CONFIG_MAP, "generated", Value::Null, false),
        ("a patched field", CONFIG_MAP, "theirs", json!({"data": {"mine": "no"}}), false),
        ("a deleted object is back", CONFIG_MAP, "doomed", json!({"data": {"a": "1"}}), false),
        ("an object to prune is there", CONFIG_MAP, "restored", json!({}), false),
        ("a list has an object", "v1/Service", "shop", labelled, false),
        ("a field that the key neither read nor wrote", CONFIG_MAP, "theirs", unrelated, true),
    ];
    let stage = puppet(&all_deeds()).await;
    let end = stage.state();
    for (case, kind, name, change, expected) in cases {
        let make = async || {
            if name == "restored" {
                // Restored from a backup, with its managed fields.
                let mut restored = stage.get(CONFIG_MAP, "one").unwrap();
                restored["metadata"]["name"] = json!(name);
                restored["metadata"]["uid"] = json!("9f0e6c7a-0000-4000-8000-000000000000");
                stage.api.load(restored, true).unwrap();
            } else if change.is_null() {
                stage.delete(kind, name).await;
            } else if stage.get(kind, name).is_none() {
                stage.apply(&[object(kind, name, &change)]).await;
            } else {
                stage.edit(kind, name, change).await;
            }
        };
        assert_eq!(is_skipped_after(&stage, make).await, expected, "{case}");
        let mut there = stage.state();
        there.retain(|place, _| !place.starts_with("Service/"));
        if !expected {
            assert_eq!(there, end, "after: {case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_due_key_runs_if_a_finalizer_is_gone_that_its_reconciler_does_not_read() {
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
    let stage = scene.start_skipping(Drive::Caller);
    stage.settle().await;
    let end = stage.state();
    let lost = async || {
        stage.edit(CONFIG_MAP, "play", json!({"metadata": {"finalizers": null}})).await;
    };
    assert!(!is_skipped_after(&stage, lost).await);
    assert_eq!(not_skipped(&stage, "puppet", "finalizers"), 1);
    assert_eq!(stage.state(), end);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_read_a_secret_or_removed_fields_is_skipped_at_a_resync() {
    let mut without = manifest(&object(CONFIG_MAP, "theirs", &json!({"data": {"mine": "yes"}})));
    without["absent"] = json!(["data.gone"]);
    let absent = json!({"returns": outcome(&json!({"patch": [without]}))});
    let of = json!({"cluster": "", "kind": {"group": "", "version": "v1", "kind": "Secret"}, "namespace": super::NAMESPACE, "name": "none"});
    let secret = json!({"reads": [{"get": {"ref": of}}], "returns": outcome(&json!({}))});
    for (case, script) in [("absent", absent), ("secret", secret)] {
        let stage = puppet(&script).await;
        if case == "secret" {
            let key = json!({"stringData": {"key": "c3dvcmRmaXNo"}});
            stage.apply(&[object("v1/Secret", "none", &key)]).await;
            assert_eq!(ran(stage.settle().await).len(), 1);
        }
        assert_eq!(resync(&stage).await.len(), 0, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_processor_that_observes_runs_at_each_resync() {
    let mut stage = puppet(&json!({})).await;
    stage.loaded[0].settings.mode = Mode::Observe;
    let stage = stage.restart().await;
    stage.settle().await;
    for resyncs in 1..=2 {
        assert_eq!(resync(&stage).await.len(), 1);
        assert_eq!(not_skipped(&stage, "puppet", "mode"), resyncs);
    }
}

/// Returns an object with another merged into it.
fn merged(mut object: Value, over: &Value) -> Value {
    merge(&mut object, over);
    object
}
