//! Runs that are skipped, on a resync and after a restart; and the reasons that prevent a skip.

mod kept;
mod versions;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    time::Duration,
};

use mortise_core::{queue::Cause, reads::record::NotSkippable, reconcile::Report, write::Action};
use mortise_host::{
    cache_dir::CacheDir,
    host::{Drive, Skip},
    metrics::Sample,
    operator::admin::Admin,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    CONFIG_MAP, POLICY, RULE, Scene, Stage, VIRTUAL_SERVICE, actions, applies, manifest, merge,
    object, outcome,
    play::{Play, deletion},
    pod, rule, scripted, selection, service, text,
};

/// The interval of resyncs.
pub(super) const RESYNC_INTERVAL: Duration = Duration::from_mins(30);
const RULES: [&str; 5] = ["r0", "r1", "r2", "r3", "r4"];

/// Returns the name of an object, which may be known only once the object exists.
type NameOf = fn(&Stage) -> String;

/// A directory for the record files, which outlives the hosts.
pub(super) struct Cache(TempDir);

// === impl Cache ===

impl Cache {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(super) fn skip(&self) -> Skip {
        Skip::BetweenStarts(CacheDir::open(self.0.path()).unwrap().subdir("records").unwrap())
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("records/runs")
    }

    /// Waits until the running host has written a record file. The paused clock advances when
    /// nothing is left to do.
    pub(super) async fn written(&self) {
        while !self.file().exists() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Waits until no host uses the directory any more: a dropped host holds its lock until all of
    /// its tasks are gone.
    async fn unlocked(&self) {
        let lock = fs::File::open(self.0.path().join("records/lock")).unwrap();
        while lock.try_lock().is_err() {
            tokio::task::yield_now().await;
        }
        // Closing its file is not enough: see `Lock` in host/src/record_file.rs.
        lock.unlock().unwrap();
    }
}

/// Starts a host with rules, one Service and one Pod, and settles; the rules that have read the
/// clock have run once more.
async fn rules(skip: Skip) -> Stage {
    let scene = Scene::of_rules().await;
    scene.load(&service("shop"));
    scene.load(&pod("shop-1", "shop"));
    for name in RULES {
        scene.load(&rule(name, "shop"));
    }
    let stage = scene.start_skipping(Drive::Caller, skip);
    let reports = stage.settle().await;
    assert!(RULES.iter().all(|rule| stage.is_ready(rule)));
    let confirmed = reports.iter().filter(|report| report.causes == [Cause::Confirmation]);
    assert_eq!(confirmed.count(), RULES.len());
    stage.api.reset_requests();
    stage
}

/// Starts a host with an object with a script, and a puppet with a resync.
async fn puppet(script: &Value, skip: Skip) -> Stage {
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
    let stage = scene.start_skipping(Drive::Caller, skip);
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
    let stage = rules(Skip::WhileRunning).await;
    let (before, revision) = (stage.state(), stage.api.revision());
    for resyncs in 1..=3 {
        assert_eq!(keys(&resync(&stage).await), BTreeSet::new());
        assert_eq!(skipped(&stage, "api-rule", "APIRule.gateway.kyma-project.io"), 5 * resyncs);
    }
    assert_eq!(stage.host.status()[0].runs, 10, "what is left out is no run");
    assert_eq!(stage.writes(), 0);
    assert_eq!((stage.state(), stage.api.revision()), (before, revision));

    // Changes still trigger runs.
    let policy = stage.only(POLICY, "r2-");
    stage.delete(POLICY, text(&policy, "/metadata/name")).await;
    assert_eq!(keys(&stage.settle().await), ["r2"].into());
    assert_eq!(stage.only(POLICY, "r2-")["spec"], policy["spec"]);
}

#[tokio::test(start_paused = true)]
async fn what_changes_before_a_key_that_was_given_out_looks_at_anything_runs_it_once() {
    let stage = rules(Skip::WhileRunning).await;
    tokio::time::advance(RESYNC_INTERVAL).await;
    let due = stage.ready().await;
    stage.edit("v1/Service", "shop", json!({"spec": {"selector": {"tier": "b"}}})).await;
    while stage.host.keys(|entry| !entry.causes.is_empty()).len() < RULES.len() {
        tokio::task::yield_now().await;
    }
    let reports = ran(stage.run(due).await);
    assert_eq!(keys(&reports), RULES.into(), "they are not left out");
    assert!(reports.iter().all(|report| report.causes.len() == 2), "{reports:#?}");
    let again = ran(stage.settle().await);
    assert!(again.iter().all(|report| report.causes == [Cause::Confirmation]), "{again:#?}");
}

#[tokio::test(start_paused = true)]
async fn where_nothing_is_to_be_left_out_nothing_is() {
    let scene = Scene::of_puppet(CONFIG_MAP).await;
    scene.load(&scripted("play", &applies(&[])));
    let stage = scene.start_skipping(Drive::Caller, Skip::Never);
    assert_eq!(stage.settle().await.len(), 1);
    assert_eq!(counted(&stage), BTreeMap::new());
}

#[tokio::test(start_paused = true)]
async fn one_that_asks_for_the_time_is_run_once_more_and_then_left_out_unless_it_asked_again() {
    let stage = rules(Skip::WhileRunning).await;
    let key = stage.host.keys(|entry| entry.key.name() == "r1").remove(0).key;
    assert_eq!(stage.host.record(&key).unwrap().skippable(), Ok(()));
    stage.edit(RULE, "r1", json!({"spec": {"gateway": "kyma-system/none"}})).await;
    assert!(stage.settle().await.iter().all(|report| report.failure.is_some()));
    stage.edit(RULE, "r1", json!({"spec": {"gateway": "kyma-system/gateway"}})).await;
    let reports = stage.settle().await;
    let causes: Vec<bool> =
        reports.iter().map(|report| report.causes == [Cause::Confirmation]).collect();
    assert_eq!(causes, [false, true], "{reports:#?}");
    assert!(reports[0].record.asked.clock && reports[0].attempt > 0);
    assert_eq!(reports[0].record.skippable(), Err(NotSkippable::AfterFailure));
    assert_eq!(stage.host.record(&key).unwrap().skippable(), Ok(()));

    let always = json!({"ask_clock": true});
    let stage = puppet(&always, Skip::WhileRunning).await;
    assert_eq!(stage.host.status()[0].runs, 2, "once, and once more");
    for resyncs in 1..=2 {
        let again = resync(&stage).await;
        assert_eq!(again.len(), 1);
        assert_eq!(again[0].record.skippable(), Err(NotSkippable::Clock));
        assert_eq!(not_skipped(&stage, "puppet", "clock"), resyncs);
    }
}

#[tokio::test(start_paused = true)]
async fn a_confirmation_waits_until_there_is_nothing_else_to_do() {
    let scene = Scene::of_rules().await;
    scene.load(&service("shop"));
    scene.load(&pod("shop-1", "shop"));
    for name in RULES {
        scene.load(&rule(name, "shop"));
    }
    let mut stage = scene.start_skipping(Drive::Host, Skip::WhileRunning);
    let all = 2 * RULES.len();
    let reports = stage.until("all run twice", |stage| {
        stage.host.status().first().is_some_and(|status| status.runs == all as u64)
    });
    let mut reports = reports.await;
    while reports.len() < all {
        reports.push(stage.host.next_report().await.unwrap());
    }
    let (first, second) = reports.split_at(RULES.len());
    let is_confirmation = |report: &Report| report.causes == [Cause::Confirmation];
    assert!(!first.iter().any(is_confirmation), "{first:#?}");
    assert!(second.iter().all(is_confirmation), "{second:#?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_run_writes_and_reads_itself_is_confirmed() {
    let made = object(CONFIG_MAP, "made", &json!({"data": {"a": "1"}}));
    let of = &deletion(
        &json!({"cluster": "", "kind": selection(CONFIG_MAP, "")["kind"], "namespace": super::NAMESPACE, "name": "made"}),
    )["ref_"];
    let mut script: Value = serde_json::from_str(&applies(&[made])).unwrap();
    script["reads"] = json!([{"get": {"ref": of, "fields": ["data"]}}]);
    let play = Play::new("puppet")
        .reconciles("objects", &selection(CONFIG_MAP, "play=yes"))
        .reads(&selection(CONFIG_MAP, ""))
        .writes(&selection(CONFIG_MAP, ""), &["create", "update"]);
    let scene = Scene::of_play(&play).await;
    scene.load(&scripted("play", &script.to_string()));
    let cache = Cache::new();
    let stage = scene.start_skipping(Drive::Caller, cache.skip());
    let reports = stage.settle().await;
    assert_eq!(reports.len(), 2, "{reports:#?}");
    assert_eq!(reports[1].causes, [Cause::Confirmation]);
    let stage = stage.restart().await;
    assert_eq!(ran(stage.settle().await).len(), 0);
}

// === runs that are never skipped ===

#[tokio::test(start_paused = true)]
async fn what_was_asked_for_is_not_left_out() {
    // The run was requested by a requeue.
    let later = applies(&[]).replace("\"ByDefault\"", "{\"After\":1000}");
    let stage = puppet(&serde_json::from_str(&later).unwrap(), Skip::WhileRunning).await;
    for _ in 0..2 {
        tokio::time::advance(Duration::from_secs(1)).await;
        let reports = ran(stage.settle().await);
        assert_eq!(reports.len(), 1);
        assert_eq!(reports[0].causes, [Cause::Requeue]);
        assert_eq!(reports[0].record.skippable(), Err(NotSkippable::Requeue));
    }

    // The run was requested by the annotation, even with the same value as before if another host
    // has seen that value.
    let stage = puppet(&json!({}), Skip::WhileRunning).await;
    let ask = |value: &str| json!({"metadata": {"annotations": {"mortise.dev/reconcile": value}}});
    for value in ["now", "again"] {
        stage.edit(CONFIG_MAP, "play", ask(value)).await;
        assert_eq!(ran(stage.settle().await).len(), 1, "{value}");
    }
    assert_eq!(resync(&stage).await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_run_after_a_failure_is_not_left_out_and_leaves_no_record_for_others() {
    let nowhere = object(CONFIG_MAP, "made", &json!({"metadata": {"namespace": "nowhere"}}));
    let scene = Scene::of_puppet(CONFIG_MAP).await;
    scene.load(&scripted("play", &applies(&[nowhere])));
    let cache = Cache::new();
    let stage = scene.start_skipping(Drive::Caller, cache.skip());
    let first = stage.run(stage.ready().await).await;
    assert!(first[0].failure.is_some());
    stage
        .apply(&[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "nowhere"}})])
        .await;
    tokio::time::advance(Duration::from_secs(1)).await;
    let second = stage.run(stage.ready().await).await;
    assert_eq!((second[0].attempt, second[0].skipped, &second[0].failure), (1, false, &None));
    assert_eq!(second[0].record.skippable(), Err(NotSkippable::AfterFailure));
    let stage = stage.restart().await;
    assert_eq!(ran(stage.settle().await).len(), 1);
    assert_eq!(not_skipped(&stage, "puppet", "no-record"), 1);
    // The run of that host followed no failure, so its record counts.
    let stage = stage.restart().await;
    assert_eq!(ran(stage.settle().await).len(), 0);
}

// === restarts ===

#[tokio::test(start_paused = true)]
async fn a_restart_of_settled_rules_runs_and_writes_nothing_and_hears_of_changes_as_before() {
    let cache = Cache::new();
    let stage = rules(cache.skip()).await;
    let (before, revision) = (stage.state(), stage.api.revision());
    let stage = stage.restart().await;
    let all = stage.settle().await;
    assert_eq!((all.len(), ran(all).len()), (RULES.len(), 0));
    assert_eq!((stage.writes(), stage.api.revision()), (0, revision));
    assert_eq!(stage.host.status()[0].runs, 0);
    assert_eq!(stage.host.status()[0].objects, RULES.len());
    let rule = "APIRule.gateway.kyma-project.io";
    assert_eq!(skipped(&stage, "api-rule", rule), RULES.len() as u64);

    // Both objects that were read and objects that were written trigger runs.
    stage.edit("v1/Service", "shop", json!({"spec": {"selector": {"tier": "b"}}})).await;
    assert_eq!(keys(&ran(stage.settle().await)), RULES.into());
    stage.edit("v1/Service", "shop", json!({"spec": {"selector": {"tier": null}}})).await;
    stage.settle().await;
    assert_eq!(stage.state(), before);
    let made = stage.only(VIRTUAL_SERVICE, "r3-");
    let name = text(&made, "/metadata/name").to_owned();
    stage.edit(VIRTUAL_SERVICE, &name, json!({"spec": {"hosts": ["other.example.com"]}})).await;
    let reports = stage.settle().await;
    assert_eq!(keys(&reports), ["r3"].into());
    assert_eq!(reports.iter().flat_map(actions).collect::<Vec<_>>(), [(Action::Update, name)]);
    stage.delete(RULE, "r4").await;
    stage.settle().await;
    assert!(stage.get(RULE, "r4").is_none());

    // The time of the resync survives a restart too; the resync is skipped.
    tokio::time::advance(RESYNC_INTERVAL).await;
    assert_eq!(ran(stage.settle().await).len(), 0);
    let again = stage.restart().await;
    assert_eq!(ran(again.settle().await).len(), 0, "what was gone is not missed");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_killed_leaves_its_records_behind() {
    let cache = Cache::new();
    let stage = rules(cache.skip()).await;
    cache.written().await;
    let stage = killed(stage, &cache).await;
    assert_eq!(ran(stage.settle().await).len(), 0);
    assert_eq!(stage.writes(), 0);
}

#[tokio::test(start_paused = true)]
async fn two_hosts_with_one_directory_do_not_write_the_same_records() {
    let cache = Cache::new();
    let stage = rules(cache.skip()).await;
    cache.written().await;
    let before = fs::read(cache.file()).unwrap();
    let other = rules(cache.skip()).await;
    other.host.stop().await.unwrap();
    assert_eq!(fs::read(cache.file()).unwrap(), before, "the second one keeps nothing");
    let stage = stage.restart().await;
    assert_eq!(ran(stage.settle().await).len(), 0);
}

/// Kills the host, and starts another one when all of its tasks are gone.
pub(super) async fn killed(stage: Stage, cache: &Cache) -> Stage {
    let Stage { api, cluster, loaded, drive, skip, tap, host } = stage;
    drop(host);
    cache.unlocked().await;
    let host = super::start_skipping(&tap.cluster(&api), &loaded, drive, skip.clone());
    Stage { api, cluster, loaded, drive, skip, tap, host }
}

/// A change of the record file while no host runs.
type Damage = fn(&mut Vec<u8>);

#[tokio::test(start_paused = true)]
async fn damaged_records_cost_runs_and_nothing_else() {
    let damages: [(&str, Damage, usize); 7] = [
        ("as they are", |_| {}, 0),
        ("without the last byte", |file| file.truncate(file.len() - 1), RULES.len()),
        ("a bit of the digest", |file| file[30] ^= 1, RULES.len()),
        ("a bit of a record", |file| file[100] ^= 1, RULES.len()),
        ("of another version", |file| file[16] ^= 1, RULES.len()),
        ("garbage", |file| file.iter_mut().for_each(|byte| *byte ^= 7), RULES.len()),
        ("empty", Vec::clear, RULES.len()),
    ];
    let cache = Cache::new();
    let mut stage = rules(cache.skip()).await;
    let (end, revision) = (stage.state(), stage.api.revision());
    for (damage, apply, expected) in damages {
        stage.host.stop().await.unwrap();
        let mut file = fs::read(cache.file()).unwrap();
        apply(&mut file);
        fs::write(cache.file(), file).unwrap();
        stage.api.reset_requests();
        stage = stage.restart().await;
        let runs = ran(stage.settle().await).len();
        assert_eq!(runs, expected, "{damage}");
        assert_eq!((stage.writes(), stage.api.revision()), (0, revision), "{damage}");
        assert_eq!(stage.state(), end, "{damage}");
    }
    // The record file is missing.
    stage.host.stop().await.unwrap();
    fs::remove_file(cache.file()).unwrap();
    let stage = stage.restart().await;
    assert_eq!(ran(stage.settle().await).len(), RULES.len());
    assert_eq!((stage.writes(), stage.api.revision()), (0, revision));
}

// === foreign changes while no host is there ===

/// Makes a change while the host is down: an edit, or a deletion if `edit` is null. Returns the
/// names of the keys that ran after the next start.
async fn changed_meanwhile(
    stage: Stage,
    of: &str,
    name: &str,
    edit: &Value,
) -> (Stage, BTreeSet<String>) {
    stage.host.stop().await.unwrap();
    if edit.is_null() {
        stage.delete(of, name).await;
    } else {
        stage.edit(of, name, edit.clone()).await;
    }
    let stage = stage.restart().await;
    let ran = ran(stage.settle().await);
    let keys = ran.iter().map(|report| report.key.name().to_owned()).collect();
    (stage, keys)
}

#[tokio::test(start_paused = true)]
async fn what_somebody_changes_while_no_host_is_there_runs_those_whom_it_concerns() {
    let all = RULES.as_slice();
    let one = &["r1"][..];
    let of_virtual_service: NameOf =
        |stage| text(&stage.only(VIRTUAL_SERVICE, "r1-"), "/metadata/name").to_owned();
    let of_policy: NameOf = |stage| text(&stage.only(POLICY, "r1-"), "/metadata/name").to_owned();
    let of_rule: NameOf = |_| "r1".to_owned();
    let of_service: NameOf = |_| "shop".to_owned();
    let cases: [(&str, &str, NameOf, Value, &[&str]); 11] = [
        (
            "a field that was written",
            VIRTUAL_SERVICE,
            of_virtual_service,
            json!({"spec": {"hosts": ["other.example.com"]}}),
            one,
        ),
        ("what was written, deleted", VIRTUAL_SERVICE, of_virtual_service, Value::Null, one),
        ("another object, deleted", POLICY, of_policy, Value::Null, one),
        (
            "nobody's field of what was written",
            VIRTUAL_SERVICE,
            of_virtual_service,
            json!({"metadata": {"annotations": {"x": "y"}}}),
            &[],
        ),
        ("the object", RULE, of_rule, json!({"spec": {"timeout": 9}}), one),
        ("its status", RULE, of_rule, json!({"status": {"state": "Warning"}}), one),
        (
            "the annotation that asks for a run",
            RULE,
            of_rule,
            json!({"metadata": {"annotations": {"mortise.dev/reconcile": "now"}}}),
            one,
        ),
        ("its finalizer", RULE, of_rule, json!({"metadata": {"finalizers": null}}), one),
        (
            "what is read",
            "v1/Service",
            of_service,
            json!({"spec": {"selector": {"tier": "b"}}}),
            all,
        ),
        (
            "nobody's field of what is read",
            "v1/Service",
            of_service,
            json!({"metadata": {"labels": {"x": "y"}}}),
            &[],
        ),
        ("the object, deleted", RULE, of_rule, Value::Null, one),
    ];
    let cache = Cache::new();
    let mut stage = rules(cache.skip()).await;
    for (case, of, name, edit, expected) in cases {
        let name = name(&stage);
        let (next, ran) = changed_meanwhile(stage, of, &name, &edit).await;
        stage = next;
        let expected: BTreeSet<String> = expected.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(ran, expected, "{case}");
        // Once the keys are settled, the next start has nothing to run.
        stage = stage.restart().await;
        assert_eq!(
            keys(&super::skipped::ran(stage.settle().await)),
            BTreeSet::new(),
            "after {case}"
        );
    }
    assert!(stage.get(RULE, "r1").is_none());
}

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

#[tokio::test(start_paused = true)]
async fn whatever_a_run_left_is_looked_at_before_the_next_one_is_left_out() {
    let labelled =
        json!({"metadata": {"labels": {"app": "shop"}}, "spec": {"ports": [{"port": 80}]}});
    let forgotten = json!({"metadata": {"managedFields": [{}]}});
    let cases = [
        ("a finalizer is lost", CONFIG_MAP, "play", json!({"metadata": {"finalizers": null}})),
        ("a field of what was applied", CONFIG_MAP, "one", json!({"data": {"a": "2"}})),
        ("what was applied is gone", CONFIG_MAP, "one", Value::Null),
        ("it is forgotten whose its fields are", CONFIG_MAP, "one", forgotten),
        ("what was only created is gone", CONFIG_MAP, "generated", Value::Null),
        ("a field of what was patched", CONFIG_MAP, "theirs", json!({"data": {"mine": "no"}})),
        ("what was deleted is back", CONFIG_MAP, "doomed", json!({"data": {"a": "1"}})),
        ("what would be pruned is there", CONFIG_MAP, "restored", json!({})),
        ("a list finds something", "v1/Service", "shop", labelled),
    ];
    let cache = Cache::new();
    let mut stage = puppet(&all_deeds(), cache.skip()).await;
    let end = stage.state();
    for (case, kind, name, change) in cases {
        stage.host.stop().await.unwrap();
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
        stage = stage.restart().await;
        let runs = ran(stage.settle().await);
        assert!(!runs.is_empty(), "{case}");
        let mut there = stage.state();
        there.retain(|place, _| !place.starts_with("Service/"));
        assert_eq!(there, end, "after: {case}");
        stage = stage.restart().await;
        assert_eq!(ran(stage.settle().await).len(), 0, "settled after: {case}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_must_be_absent_and_what_came_from_a_secret_runs_after_a_restart_and_not_at_a_resync()
{
    let mut without = manifest(&object(CONFIG_MAP, "theirs", &json!({"data": {"mine": "yes"}})));
    without["absent"] = json!(["data.gone"]);
    let absent = json!({"returns": outcome(&json!({"patch": [without]}))});
    let of = json!({"cluster": "", "kind": {"group": "", "version": "v1", "kind": "Secret"}, "namespace": super::NAMESPACE, "name": "none"});
    let secret = json!({"reads": [{"get": {"ref": of}}], "returns": outcome(&json!({}))});
    for (case, script) in [("absent", absent), ("secret", secret)] {
        let cache = Cache::new();
        let stage = puppet(&script, cache.skip()).await;
        if case == "secret" {
            let key = json!({"stringData": {"key": "c3dvcmRmaXNo"}});
            stage.apply(&[object("v1/Secret", "none", &key)]).await;
            assert_eq!(ran(stage.settle().await).len(), 1);
        }
        assert_eq!(resync(&stage).await.len(), 0, "{case}");
        let stage = stage.restart().await;
        assert_eq!(ran(stage.settle().await).len(), 1, "{case}");
        assert_eq!(not_skipped(&stage, "puppet", "no-record"), 1, "{case}");
        stage.host.stop().await.unwrap();
        let file = fs::read(cache.file()).unwrap_or_default();
        let file = String::from_utf8_lossy(&file);
        assert!(!file.contains("c3dvcmRmaXNo"), "{file}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_to_be_called_again_after_a_time_is_so_after_a_restart_too() {
    let later = applies(&[]).replace("\"ByDefault\"", "{\"After\":60000}");
    let cache = Cache::new();
    let stage = puppet(&serde_json::from_str(&later).unwrap(), cache.skip()).await;
    let stage = killed(stage, &cache).await;
    assert_eq!(ran(stage.settle().await).len(), 1, "it is not known how long it has waited");
    tokio::time::advance(Duration::from_mins(1)).await;
    assert_eq!(ran(stage.settle().await)[0].causes, [Cause::Requeue]);
}

/// Returns an object with another merged into it.
fn merged(mut object: Value, over: &Value) -> Value {
    merge(&mut object, over);
    object
}
