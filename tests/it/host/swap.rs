//! Processors that are added, swapped and removed while the host runs.

mod conversions;
mod under_load;

use std::{collections::BTreeMap, time::Duration};

use mortise_core::{
    queue::Cause,
    reconcile::{Report, Version},
};
use mortise_embedded_api::{Fault, Filter, Verb};
use mortise_host::{
    host::{Drive, Loaded, ProcessorStatus},
    operator::admin::Admin,
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    CONFIG_MAP, NAMESPACE, Scene, Stage, TIMEOUT, manifest, merge, names, object, outcome,
    play::Play, pod, selection, service, text,
};

const SERVICE: &str = "v1/Service";
const SECRET: &str = "v1/Secret";
const POD: &str = "v1/Pod";

/// Returns a puppet that makes an object for each object labelled with its name, holding the
/// source's sequence and the puppet's major version, which `version` is.
fn play(name: &str, version: &str) -> Play {
    let made = json!({"data": {"version": version, "sequence": "$(sequence)"}});
    let made = object(CONFIG_MAP, &format!("{name}-$(name)"), &made);
    Play::new(name)
        .version(&format!("{version}.0.0"))
        .reconciles("objects", &selection(CONFIG_MAP, &format!("play={name}")))
        .writes(&selection(CONFIG_MAP, ""), &["create", "update"])
        .script(json!({"returns": outcome(&json!({"apply": [manifest(&made)]}))}))
}

/// Returns an object for which a puppet makes another.
fn source(name: &str, play: &str) -> Value {
    object(
        CONFIG_MAP,
        name,
        &json!({"metadata": {"labels": {"play": play}}, "data": {"sequence": "0"}}),
    )
}

fn reads(of: &str, fields: &[&str]) -> Value {
    let mut of = selection(of, "");
    merge(&mut of, &json!({"fields": fields}));
    of
}

/// Returns the major version of a play.
fn major(version: &Version) -> &str {
    version.version.strip_suffix(".0.0").unwrap()
}

/// Returns the keys that ran and their major versions, in order.
fn ran(reports: &[Report]) -> Vec<(String, String)> {
    let ran = |report: &Report| {
        let version = report.version.as_ref().unwrap();
        (report.key.name().to_owned(), major(version).to_owned())
    };
    reports.iter().map(ran).collect()
}

impl Stage {
    fn status(&self, name: &str) -> Option<ProcessorStatus> {
        self.host.status().into_iter().find(|status| &*status.version.processor == name)
    }

    /// Returns version and sequence of each object that a puppet made.
    fn made(&self, play: &str) -> BTreeMap<String, (String, String)> {
        let mut all = self.all(CONFIG_MAP);
        all.retain(|name, _| name.starts_with(&format!("{play}-")));
        let part = |object: &Value, part: &str| text(object, &format!("/data/{part}")).to_owned();
        all.into_iter()
            .map(|(name, made)| (name, (part(&made, "version"), part(&made, "sequence"))))
            .collect()
    }

    /// Returns all reports until nothing has happened for longer than any timer of the host.
    async fn rest(&self) -> Vec<Report> {
        let mut reports = Vec::new();
        while let Ok(report) = timeout(TIMEOUT, self.host.next_report()).await {
            reports.push(report.unwrap());
        }
        reports
    }
}

async fn with_sources(play: &Play, sources: &[&str], drive: Drive) -> Stage {
    let scene = Scene::of_play(play).await;
    for name in sources {
        scene.load(&source(name, "puppet"));
    }
    scene.start(drive)
}

#[tokio::test(start_paused = true)]
async fn every_key_runs_once_on_a_new_version_and_changed_keys_run_first() {
    let stage = with_sources(&play("puppet", "1"), &["a", "b", "c"], Drive::Caller).await;
    stage.settle().await;
    let digest = stage.loaded[0].processor.digest();

    stage.host.swap(play("puppet", "2").load().await).await.unwrap();
    stage.edit(CONFIG_MAP, "c", json!({"data": {"sequence": "1"}})).await;
    let ready = stage.ready().await;
    let keys: Vec<&str> = ready.iter().map(|run| run.key.name()).collect();
    assert_eq!(keys, ["c", "a", "b"], "what has changed comes first");
    let is_new = |run: &mortise_core::queue::Run| run.causes.contains(&Cause::NewVersion);
    assert!(ready.iter().all(is_new) && ready[0].causes.len() == 2, "{ready:?}");
    let reports = stage.run(ready).await;
    assert!(ran(&reports).iter().all(|(_, version)| version == "2"), "{:?}", ran(&reports));
    let version = reports[0].version.as_ref().unwrap();
    assert_eq!((&*version.processor, version.digest), ("puppet", digest));
    assert_eq!(stage.settle().await.len(), 0, "once");
    let made = [("a", "0"), ("b", "0"), ("c", "1")];
    let made = made.map(|(of, seen)| (format!("puppet-{of}"), ("2".to_owned(), seen.to_owned())));
    assert_eq!(stage.made("puppet"), made.into());
    let status = stage.status("puppet").unwrap();
    assert_eq!((major(&status.version), status.runs, status.failures), ("2", 3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_on_its_way_ends_on_the_former_version_and_its_key_waits_for_that() {
    let mut stage = with_sources(&play("puppet", "1"), &["a"], Drive::Host).await;
    stage.until("made", |stage| stage.made("puppet").len() == 1).await;
    stage.rest().await;
    let slow = Filter::resource("configmaps").verbs([Verb::Patch]).name("puppet-a");
    stage.api.faults().inject(Fault::Latency(Duration::from_secs(20)), slow, 1);
    stage.edit(CONFIG_MAP, "a", json!({"data": {"sequence": "1"}})).await;
    let is_running = |stage: &Stage| stage.status("puppet").unwrap().running == 1;
    while !is_running(&stage) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    stage.host.swap(play("puppet", "2").load().await).await.unwrap();
    // A change arrives while the call runs.
    stage.edit(CONFIG_MAP, "a", json!({"data": {"sequence": "2"}})).await;
    let status = stage.status("puppet").unwrap();
    assert_eq!((status.running, status.on_former, status.runs), (1, 1, 0));
    assert_eq!(major(&status.version), "2");
    assert_eq!(stage.made("puppet")["puppet-a"], ("1".into(), "0".into()), "it is on its way");
    let reports = stage.rest().await;
    let own = |version: &str| ("a".to_owned(), version.to_owned());
    assert_eq!(ran(&reports), [own("1"), own("2")]);
    assert_eq!(reports[0].changes.len(), 1, "it was written");
    assert_eq!(stage.made("puppet")["puppet-a"], ("2".into(), "2".into()));
    assert_eq!(stage.tap.most_at_once(), 1);
    let status = stage.status("puppet").unwrap();
    assert_eq!((status.running, status.on_former, status.runs), (0, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn watches_that_both_versions_need_stay_and_the_others_come_and_go() {
    let first = play("puppet", "1").reads(&selection(SERVICE, ""));
    let other = play("other", "1").reads(&selection(SECRET, ""));
    let scene = Scene::new(vec![first.load().await, other.load().await]);
    scene.load(&service("shop"));
    scene.load(&source("a", "puppet"));
    scene.load(&source("b", "other"));
    let stage = scene.start(Drive::Host);
    stage.rest().await;
    let lists = |stage: &Stage| {
        ["configmaps", "services", "secrets", "pods"].map(|plural| stage.tap.lists(plural))
    };
    assert_eq!(lists(&stage), [1, 1, 1, 0]);
    let open = stage.api.faults().live_watches();

    let second = play("puppet", "2").reads(&selection(SECRET, "")).reads(&selection(POD, ""));
    stage.host.swap(second.load().await).await.unwrap();
    stage.rest().await;
    assert_eq!(lists(&stage), [1, 1, 1, 1], "only what is new is listed");
    assert_eq!(stage.api.faults().live_watches(), open, "one has come, and one has gone");
    let kinds = |stage: &Stage| {
        let mut kinds: Vec<_> = stage.host.watches().into_iter().map(|of| of.kind.kind).collect();
        kinds.sort();
        kinds
    };
    assert_eq!(kinds(&stage), ["ConfigMap", "Pod", "Secret"]);
    let memory = stage.host.drive().stores().memory().objects;
    assert_eq!(memory, stage.all(CONFIG_MAP).len(), "the store of Services is gone");

    stage.host.remove("other").await.unwrap();
    stage.rest().await;
    assert_eq!(kinds(&stage), ["ConfigMap", "Pod", "Secret"], "the new version needs them");
    stage.host.swap(play("puppet", "3").load().await).await.unwrap();
    stage.rest().await;
    assert_eq!(kinds(&stage), ["ConfigMap"]);
    assert_eq!(lists(&stage), [1, 1, 1, 1]);
    assert_eq!(stage.api.faults().live_watches(), open - 2);
}

#[tokio::test(start_paused = true)]
async fn a_kind_of_which_more_is_read_is_listed_beside_the_store_that_serves() {
    let first = play("puppet", "1").reads(&reads(POD, &["metadata.labels"]));
    let script = |fields: Value| {
        let of = json!({"cluster": "", "kind": selection(POD, "")["kind"], "namespace": NAMESPACE, "name": "p"});
        json!({"reads": [{"get": {"ref": of, "fields": fields}}]})
    };
    let first = first.script(script(json!(["metadata.labels"])));
    let stage = with_sources(&first, &["a"], Drive::Host).await;
    stage.api.load(pod("p", "one"), true).unwrap();
    stage.rest().await;
    assert_eq!(stage.tap.lists("pods"), 1);

    let fields = ["metadata.labels", "spec.containers"];
    let second = play("puppet", "2").reads(&reads(POD, &fields)).script(script(json!(fields)));
    let slow = Filter::resource("pods").verbs([Verb::List, Verb::Watch]);
    stage.api.faults().inject(Fault::Latency(Duration::from_secs(5)), slow, 1);
    let second = second.load().await;
    let meanwhile = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        stage.edit(POD, "p", json!({"metadata": {"labels": {"app": "two"}}})).await;
        let report = timeout(TIMEOUT, stage.host.next_report()).await.unwrap().unwrap();
        (major(report.version.as_ref().unwrap()).to_owned(), format!("{:?}", report.log))
    };
    let (swapped, (version, log)) = tokio::join!(stage.host.swap(second), meanwhile);
    swapped.unwrap();
    assert_eq!(version, "1", "the former version goes on while the new list is on its way");
    assert!(log.contains("two") && !log.contains("containers"), "{log}");
    assert_eq!(stage.tap.lists("pods"), 2);

    let reports = stage.rest().await;
    assert_eq!(ran(&reports), [("a".to_owned(), "2".to_owned())]);
    let log = format!("{:?}", reports[0].log);
    assert!(log.contains("two") && log.contains("example.com/main:1"), "{log}");
    // The wider watch replaces the former one, so one change causes one run.
    stage.edit(POD, "p", json!({"metadata": {"labels": {"app": "three"}}})).await;
    let reports = stage.rest().await;
    assert_eq!(reports.len(), 1, "{reports:#?}");
    // The version that reads less again needs no list.
    stage.host.swap(first.load().await).await.unwrap();
    stage.rest().await;
    assert_eq!(stage.tap.lists("pods"), 2);
    assert_eq!(stage.host.watches().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_not_valid_leaves_the_former_one_at_work() {
    let stage = with_sources(&play("puppet", "1"), &["a"], Drive::Caller).await;
    stage.settle().await;
    let cases = [
        ("no selector", play("puppet", "2").reads(&selection(SERVICE, "a b")), "reads[0].labels"),
        ("no field", play("puppet", "2").reads(&reads(SERVICE, &["spec..x"])), "reads[0].fields"),
    ];
    for (case, invalid, place) in cases {
        let refused = stage.host.swap(invalid.load().await).await.unwrap_err();
        let refused = format!("{refused:#}");
        assert!(refused.contains("`puppet`") && refused.contains(place), "{case}: {refused}");
        assert_eq!(stage.ready().await.len(), 0, "{case}");
        assert_eq!(stage.host.watches().len(), 1, "{case}");
    }
    assert_eq!(major(&stage.status("puppet").unwrap().version), "1");
    stage.edit(CONFIG_MAP, "a", json!({"data": {"sequence": "1"}})).await;
    stage.settle().await;
    assert_eq!(stage.made("puppet")["puppet-a"], ("1".into(), "1".into()));
}

#[tokio::test(start_paused = true)]
async fn a_swap_that_is_given_up_exchanges_nothing() {
    let stage = with_sources(&play("puppet", "1"), &["a"], Drive::Host).await;
    stage.rest().await;
    let slow = Filter::resource("services").verbs([Verb::List, Verb::Watch]);
    stage.api.faults().inject(Fault::Latency(Duration::from_secs(8)), slow, 1);
    let second = play("puppet", "2").reads(&selection(SERVICE, "")).load().await;
    let given_up = timeout(Duration::from_secs(1), stage.host.swap(second.clone())).await;
    assert!(given_up.is_err());
    assert_eq!(stage.host.watches().len(), 1, "what it opened is closed");
    assert_eq!(stage.rest().await.len(), 0);
    assert_eq!(major(&stage.status("puppet").unwrap().version), "1");
    stage.host.swap(second).await.unwrap();
    assert_eq!(ran(&stage.rest().await), [("a".to_owned(), "2".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_processor_comes_and_goes_and_comes_again() {
    let scene = Scene::new(Vec::new());
    scene.load(&source("a", "puppet"));
    let stage = scene.start(Drive::Host);
    assert_eq!(stage.host.status(), []);
    let admin = Admin::of(&stage.host);
    assert_eq!((admin.watches)(), []);
    stage.host.swap(play("puppet", "1").load().await).await.unwrap();
    assert_eq!((admin.watches)(), stage.host.watches(), "those of now make it ready");
    assert_eq!(stage.host.watches().len(), 1);
    let reports = stage.rest().await;
    assert_eq!(ran(&reports), [("a".to_owned(), "1".to_owned())]);
    assert!(reports[0].causes.contains(&Cause::Start));

    let unknown = stage.host.remove("other").await.unwrap_err().to_string();
    assert_eq!(unknown, "no processor is called `other`; running: puppet");
    let slow = Filter::resource("configmaps").verbs([Verb::Patch]).name("puppet-a");
    stage.api.faults().inject(Fault::Latency(Duration::from_secs(20)), slow, 1);
    stage.edit(CONFIG_MAP, "a", json!({"data": {"sequence": "1"}})).await;
    while stage.status("puppet").unwrap().running == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stage.host.remove("puppet").await.unwrap();
    assert_eq!(stage.host.status(), []);
    assert_eq!(stage.host.watches().len(), 1, "a run is on its way");
    // The processor comes back before its former call has ended.
    stage.host.swap(play("puppet", "2").load().await).await.unwrap();
    let own = |version: &str| ("a".to_owned(), version.to_owned());
    assert_eq!(ran(&stage.rest().await), [own("1"), own("2")]);
    assert_eq!(stage.tap.most_at_once(), 1);

    let key = &reports[0].key;
    assert!(stage.host.record(key).is_some());
    stage.host.remove("puppet").await.unwrap();
    assert_eq!(stage.host.record(key), None, "its records go with it");
    assert_eq!(stage.host.watches(), []);
    stage.edit(CONFIG_MAP, "a", json!({"data": {"sequence": "3"}})).await;
    assert_eq!(stage.rest().await.len(), 0);
    assert_eq!(stage.api.faults().live_watches(), 1, "that of CRDs");
    assert_eq!(stage.made("puppet")["puppet-a"], ("2".into(), "1".into()), "what it made stays");
}

#[tokio::test(start_paused = true)]
async fn reconcilers_come_and_go_with_versions_and_selections_change() {
    let base = |version: &str| {
        Play::new("puppet")
            .version(version)
            .writes(&selection(CONFIG_MAP, ""), &["create", "update"])
    };
    let of = |label: &str| selection(CONFIG_MAP, &format!("play={label}"));
    let first = base("1.0.0").reconciles("ones", &of("one")).reconciles("twos", &of("two"));
    let scene = Scene::of_play(&first).await;
    for label in ["one", "two", "three"] {
        scene.load(&source(label, label));
    }
    let stage = scene.start(Drive::Caller);
    let ready = stage.ready().await;
    assert_eq!(names(&ready), ["one", "two"].map(str::to_owned).into());
    let first_runs = stage.run(ready).await;
    stage.settle().await;
    assert!(first_runs.iter().all(|report| stage.host.record(&report.key).is_some()));

    // `ones` is gone, `twos` selects other objects, `threes` is new.
    let second = base("2.0.0").reconciles("twos", &of("one")).reconciles("threes", &of("three"));
    stage.edit(CONFIG_MAP, "one", json!({"data": {"sequence": "1"}})).await;
    stage.host.swap(second.load().await).await.unwrap();
    for report in &first_runs {
        let is_gone = report.key.reconciler().name() == "ones";
        assert_eq!(stage.host.record(&report.key).is_none(), is_gone, "{}", report.key);
    }
    let ready = stage.ready().await;
    let keys: Vec<String> = ready.iter().map(|run| run.key.to_string()).collect();
    let mut sorted = keys.clone();
    sorted.sort();
    // Objects that have left the selection get a last run.
    assert_eq!(sorted, ["puppet/threes:a/three", "puppet/twos:a/one", "puppet/twos:a/two"]);
    let reports = stage.run(ready).await;
    assert!(reports.iter().all(|report| report.failure.is_none()), "{reports:#?}");
    for (label, runs) in [("one", 1), ("two", 0), ("three", 1)] {
        stage.edit(CONFIG_MAP, label, json!({"data": {"sequence": "2"}})).await;
        assert_eq!(stage.settle().await.len(), runs, "{label}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_new_versions_intervals_count() {
    let with = |version: &str, rest: Value| {
        let own = selection(CONFIG_MAP, "play=puppet");
        Play::new("puppet").version(version).reconciles_with("objects", &own, &rest)
    };
    let stage = with_sources(&with("1.0.0", json!({})), &["a"], Drive::Host).await;
    stage.rest().await;
    let second = with("2.0.0", json!({"resync": 60_000, "min_interval": 5_000}));
    stage.host.swap(second.load().await).await.unwrap();
    let report = timeout(TIMEOUT, stage.host.next_report()).await.unwrap().unwrap();
    assert_eq!(report.again, Some(Duration::from_mins(1)));
    let began = tokio::time::Instant::now();
    stage.edit(CONFIG_MAP, "a", json!({"data": {"sequence": "1"}})).await;
    timeout(TIMEOUT, stage.host.next_report()).await.unwrap().unwrap();
    let waited = began.elapsed();
    assert!(waited > Duration::from_secs(4) && waited < Duration::from_secs(6), "{waited:?}");
    let report = timeout(TIMEOUT, stage.host.next_report()).await.unwrap().unwrap();
    assert_eq!(report.causes, [Cause::Resync]);
    stage.host.swap(with("3.0.0", json!({})).load().await).await.unwrap();
    let reports = stage.rest().await;
    assert_eq!(reports.len(), 1, "there is no resync any more: {reports:#?}");
}

#[tokio::test(start_paused = true)]
async fn failures_of_the_former_version_do_not_slow_the_new_one_down() {
    let failure = json!({"returns": {"failure": {
        "message": "not yet written", "status": null, "events": [], "retry": "BackOff",
    }}});
    let stage = with_sources(&play("puppet", "1").script(failure), &["a"], Drive::Caller).await;
    let mut wait = Duration::from_millis(5);
    for _ in 0..10 {
        let ready = stage.ready().await;
        stage.run(ready).await;
        stage.settle().await;
        tokio::time::advance(wait + Duration::from_millis(1)).await;
        wait *= 2;
    }
    let ready = stage.ready().await;
    stage.run(ready).await;
    stage.settle().await;
    let status = stage.status("puppet").unwrap();
    assert_eq!((status.backing_off, status.failing, status.failures), (1, 1, status.runs));
    let last = status.last_failure.unwrap();
    assert_eq!((last.key.name(), last.message.as_str()), ("a", "not yet written"));

    stage.host.swap(play("puppet", "2").load().await).await.unwrap();
    let ready = stage.ready().await;
    assert_eq!((ready.len(), ready[0].attempt), (1, 0));
    stage.run(ready).await;
    let status = stage.status("puppet").unwrap();
    assert_eq!((status.failing, status.runs, status.last_failure), (0, 1, None));
}

#[tokio::test(start_paused = true)]
async fn a_version_whose_kinds_are_missing_is_put_to_work_and_says_which() {
    let stage = with_sources(&play("puppet", "1"), &["a"], Drive::Host).await;
    stage.rest().await;
    let second = play("puppet", "2").reads(&selection("example.com/v1/Widget", ""));
    let began = tokio::time::Instant::now();
    stage.host.swap(second.load().await).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1), "there is nothing to wait for");
    stage.rest().await;
    assert_eq!(stage.made("puppet")["puppet-a"].0, "2");
    let missing = stage.status("puppet").unwrap().missing;
    assert_eq!(missing, [super::kind("example.com/v1/Widget")]);
}

/// A deterministic random number generator.
struct Dice(u64);

impl Dice {
    /// Returns a number below `below`.
    fn roll(&mut self, below: u64) -> u64 {
        // xorshift64: https://www.jstatsoft.org/article/view/v008i14
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

const PLAYS: [&str; 2] = ["puppet", "other"];
const SOURCES: [&str; 4] = ["a", "b", "c", "d"];

/// Returns a version whose reads depend on its number, so that watches are opened, closed and
/// widened.
async fn version(name: &str, version: u64) -> Loaded {
    let play = play(name, &version.to_string());
    let play = match version % 5 {
        0 => play,
        1 => play.reads(&reads(POD, &["metadata.labels"])),
        2 => play.reads(&reads(POD, &["spec.nodeName"])).reads(&selection(SERVICE, "")),
        3 => play.reads(&selection(POD, "")),
        _ => play.reads(&selection(SECRET, "")),
    };
    play.load().await
}

#[tokio::test(start_paused = true)]
async fn no_change_is_lost_and_no_key_runs_twice_at_once_whatever_is_swapped_when() {
    for seed in 1..=12 {
        let mut dice = Dice(seed);
        let mut versions = [1, 1];
        let scene = Scene::new(vec![version("puppet", 1).await, version("other", 1).await]);
        let mut sequences = BTreeMap::new();
        for (play, name) in PLAYS.iter().flat_map(|play| SOURCES.map(|name| (*play, name))) {
            let name = format!("{name}-of-{play}");
            scene.load(&source(&name, play));
            sequences.insert((play, name), 0);
        }
        let stage = scene.start(Drive::Host);
        for _ in 0..30 {
            let at = usize::try_from(dice.roll(2)).unwrap();
            if dice.roll(3) == 0 {
                versions[at] += 1;
                let loaded = version(PLAYS[at], versions[at]).await;
                let (swapped, ()) = tokio::join!(
                    stage.host.swap(loaded),
                    changes(&stage, &mut dice, &mut sequences)
                );
                swapped.unwrap();
            } else {
                changes(&stage, &mut dice, &mut sequences).await;
            }
        }
        let reports = stage.rest().await;
        for report in &reports {
            assert_eq!(report.failure, None, "seed {seed}: {report:#?}");
        }
        assert_eq!(stage.tap.most_at_once(), 1, "seed {seed}");
        for ((play, name), sequence) in &sequences {
            let at = PLAYS.iter().position(|of| of == play).unwrap();
            let made = &stage.made(play)[&format!("{play}-{name}")];
            assert_eq!(
                *made,
                (versions[at].to_string(), sequence.to_string()),
                "seed {seed}: {name}"
            );
        }
        let mut last: BTreeMap<&str, u64> = BTreeMap::new();
        for report in &reports {
            let ran: u64 = major(report.version.as_ref().unwrap()).parse().unwrap();
            let before = last.insert(report.key.name(), ran).unwrap_or_default();
            assert!(before <= ran, "seed {seed}: {} ran on {before}, then on {ran}", report.key);
        }
    }
}

/// Changes some objects as another user; now and then makes requests slow, and lets time pass.
async fn changes(
    stage: &Stage,
    dice: &mut Dice,
    sequences: &mut BTreeMap<(&'static str, String), u64>,
) {
    for _ in 0..dice.roll(4) {
        let at = usize::try_from(dice.roll(sequences.len() as u64)).unwrap();
        let ((_, name), sequence) = sequences.iter_mut().nth(at).unwrap();
        *sequence += 1;
        let name = name.clone();
        stage.edit(CONFIG_MAP, &name, json!({"data": {"sequence": sequence.to_string()}})).await;
        let latency = Fault::Latency(Duration::from_millis(dice.roll(3_000)));
        let verbs = [Verb::Patch, Verb::List, Verb::Watch];
        stage.api.faults().inject(latency, Filter::all().verbs(verbs), 2);
        if dice.roll(8) == 0 {
            stage.api.faults().drop_watches(&Filter::all());
        }
        for _ in 0..dice.roll(40) {
            tokio::task::yield_now().await;
        }
        if dice.roll(3) == 0 {
            tokio::time::sleep(Duration::from_millis(dice.roll(4_000))).await;
        }
    }
}
