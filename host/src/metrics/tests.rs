use std::time::Duration;

use mortise_core::{
    fixture::{key, kind, reference},
    queue::{Run, State},
    reads::record::NotSkippable,
    write::Action,
};
use prometheus_client::encoding::EncodeMetric;
use serde_json::Value;

use super::*;

/// Returns the report of a run that made these changes.
fn report(attempt: u32, changes: &[(Action, &str)]) -> Report {
    let run = Run { key: key("hidden"), causes: Vec::new(), more_causes: 0, attempt };
    let mut report = Report::new(&run);
    report.kind = kind("Rule").into();
    report.changes = changes
        .iter()
        .map(|(action, of)| Change {
            action: *action,
            of: reference(of, "hidden"),
            object: Arc::new(Value::Null),
        })
        .collect();
    report
}

fn lines(metrics: &Metrics, sample: &Sample) -> Vec<String> {
    metrics.text(sample).unwrap().lines().map(str::to_owned).collect()
}

/// Returns metrics each of which has a series; `every_metric_says_what_it_means` fails if one has
/// none.
fn busy() -> Metrics {
    let metrics = Metrics::new();
    let mut first = report(
        0,
        &[(Action::Create, "Thing"), (Action::Create, "Thing"), (Action::Status, "Rule")],
    );
    first.unchanged = 3;
    metrics.ran(&first);
    let mut second = report(2, &[]);
    let mut record = (*second.record).clone();
    record.ending = Ending::Failure;
    second.record = Arc::new(record);
    metrics.ran(&second);
    metrics.skipped(&first);
    metrics.not_skipped(&key("hidden"), MustRun::Record(NotSkippable::Clock));
    metrics.not_skipped(&key("hidden"), MustRun::Written);
    metrics.trapped(&key("hidden"), "panicked");
    metrics.waited(&key("hidden"), Duration::from_secs(1));
    metrics.waited(&key("hidden"), Duration::from_micros(1));
    metrics.called_library(&"p".into(), "memo");
    metrics.denied(&"p".into(), &denial("Thing"), &[]);
    metrics.log_dropped(&key("hidden"), 7);
    metrics.forced(&key("hidden"), &kind("Thing"));
    metrics.watch_restarted(&kind("Thing"));
    let second = Duration::from_secs(1);
    metrics.hooked("p", HookRequest::Convert, "success", second);
    metrics.hooked("p", HookRequest::Admit("mark"), "refused", second);
    metrics.hooked("p", HookRequest::Unknown, "invalid", second);
    metrics.code_looked_up("miss");
    metrics.compiled(Duration::from_secs(1), "memory");
    metrics
}

fn sample() -> Sample {
    let memory = Memory { objects: 2, json: 20, total: 30 };
    Sample {
        queues: vec![("p".into(), State { ready: 1, running: 2, delayed: 3 })],
        waiting: vec![("p".into(), 7)],
        stores: vec![(Arc::new(kind("Thing")), memory)],
        leads: true,
    }
}

#[test]
fn what_a_run_did_is_counted() {
    let text = lines(&busy(), &Sample::default());
    let expected = [
        r#"mortise_reconciles_total{processor="p",kind="Rule.g",result="success"} 1"#,
        r#"mortise_reconciles_total{processor="p",kind="Rule.g",result="failure"} 1"#,
        r#"mortise_reconcile_duration_seconds_count{processor="p",kind="Rule.g"} 2"#,
        r#"mortise_reconciles_skipped_total{processor="p",kind="Rule.g"} 1"#,
        r#"mortise_reconciles_not_skipped_total{processor="p",reason="clock"} 1"#,
        r#"mortise_reconciles_not_skipped_total{processor="p",reason="written"} 1"#,
        r#"mortise_queue_retries_total{processor="p"} 1"#,
        r#"mortise_calls_trapped_total{processor="p",reason="panicked"} 1"#,
        r#"mortise_call_wait_seconds_count{processor="p"} 1"#,
        r#"mortise_reads_total{processor="p"} 0"#,
        r#"mortise_writes_total{processor="p",kind="Thing.g",verb="create"} 2"#,
        r#"mortise_writes_total{processor="p",kind="Rule.g",verb="status"} 1"#,
        r#"mortise_writes_skipped_total{processor="p"} 3"#,
        r#"mortise_conflicts_forced_total{processor="p",kind="Thing.g"} 1"#,
        r#"mortise_hook_requests_total{processor="p",hook="convert",result="success"} 1"#,
        r#"mortise_hook_requests_total{processor="p",hook="admit/mark",result="refused"} 1"#,
        r#"mortise_hook_requests_total{processor="p",hook="other",result="invalid"} 1"#,
        r#"mortise_hook_duration_seconds_count{processor="p",hook="admit/mark"} 1"#,
        r#"mortise_watch_restarts_total{kind="Thing.g"} 1"#,
        r#"mortise_log_lines_dropped_total{processor="p"} 7"#,
        r#"mortise_code_lookups_total{result="miss"} 1"#,
        r#"mortise_compile_duration_seconds_count{result="memory"} 1"#,
    ];
    for line in expected {
        assert!(text.iter().any(|held| held == line), "{line} is not in\n{}", text.join("\n"));
    }
    assert!(!text.iter().any(|line| line.contains("hidden")), "an object's name is a label");
}

#[test]
fn what_is_gone_is_told_no_more() {
    let metrics = Metrics::new();
    let text = lines(&metrics, &sample());
    for line in [
        r#"mortise_queue_keys{processor="p",state="ready"} 1"#,
        r#"mortise_queue_keys{processor="p",state="running"} 2"#,
        r#"mortise_queue_keys{processor="p",state="delayed"} 3"#,
        r#"mortise_calls_waiting{processor="p"} 7"#,
        r#"mortise_store_objects{kind="Thing.g"} 2"#,
        r#"mortise_store_bytes{kind="Thing.g"} 30"#,
    ] {
        assert!(text.iter().any(|held| held == line), "{line} is not in\n{}", text.join("\n"));
    }
    let later = lines(&metrics, &Sample::default());
    // There is one log in a process, and other tests write many lines to it.
    let of_log = |line: &&String| line.starts_with("mortise_log_lines_limited_total");
    let told = |line: &&String| line.contains('{') && !of_log(line);
    assert_eq!(later.iter().find(told), None);
}

/// Returns a denial for a kind of the group `g`.
fn denial(of: &str) -> Denial {
    Denial::of_declaration("get", &kind(of), "not declared")
}

#[test]
fn what_a_guest_makes_up_is_no_label() {
    let metrics = Metrics::new();
    let declared = [kind("Thing")];
    for number in 0..9000 {
        metrics.denied(&"p".into(), &denial(&format!("Made{number}")), &declared);
    }
    metrics.denied(&"p".into(), &denial("Thing"), &declared);
    let text = lines(&metrics, &Sample::default());
    let denied: Vec<_> =
        text.iter().filter(|line| line.starts_with("mortise_denied_total")).collect();
    assert_eq!(denied.len(), 2, "{denied:#?}");
    for line in [
        r#"mortise_denied_total{processor="p",verb="get",kind="other"} 9000"#,
        r#"mortise_denied_total{processor="p",verb="get",kind="Thing.g"} 1"#,
    ] {
        assert!(denied.iter().any(|held| *held == line), "{line} is not in {denied:#?}");
    }
}

#[test]
fn descriptions_that_are_swapped_without_end_make_series_with_an_end() {
    let metrics = Metrics::new();
    for number in 0..9000 {
        let mut report = report(0, &[]);
        report.kind = kind(&format!("Kind{number}")).into();
        metrics.ran(&report);
        metrics.watch_restarted(&report.kind);
    }
    let series = |name: &str| {
        let text = lines(&metrics, &Sample::default());
        text.iter().filter(|line| line.starts_with(name)).count()
    };
    for number in 0..9000 {
        let hook = format!("hook-{number}");
        metrics.hooked("p", HookRequest::Admit(&hook), "success", Duration::ZERO);
    }
    assert_eq!(series("mortise_reconciles_total"), 513);
    assert_eq!(series("mortise_hook_requests_total"), 513);
    assert_eq!(series("mortise_watch_restarts_total"), 0, "none of them is watched any more");
}

#[test]
fn a_processor_that_is_gone_leaves_no_series() {
    let metrics = busy();
    let of_processor = || {
        let text = lines(&metrics, &Sample::default());
        text.into_iter().filter(|line| line.contains(r#"processor="p""#)).collect::<Vec<_>>()
    };
    assert!(of_processor().len() > 20);
    metrics.forget_processor("p");
    assert_eq!(of_processor(), [""; 0]);
}

/// Returns the metrics of a host. Every field is named: a new metric does not compile until it is
/// here.
fn every(of: &All) -> Vec<&dyn EncodeMetric> {
    let All {
        registry: _,
        reconciles,
        reconcile_duration,
        reconciles_skipped,
        reconciles_not_skipped,
        queue_keys,
        queue_retries,
        calls_trapped,
        library_calls,
        calls_waiting,
        call_wait,
        hooks: Hooks { requests, duration },
        reads,
        read_bytes,
        writes,
        writes_skipped,
        conflicts_forced,
        store_objects,
        store_bytes,
        denied,
        watch_restarts,
        restarted: _,
        log_lines_dropped,
        code_lookups,
        compile_duration,
        leading,
    } = of;
    vec![
        &reconciles.family,
        &reconcile_duration.family,
        &reconciles_skipped.family,
        &reconciles_not_skipped.family,
        queue_keys,
        &queue_retries.family,
        &calls_trapped.family,
        &library_calls.family,
        calls_waiting,
        &call_wait.family,
        &requests.family,
        &duration.family,
        &reads.family,
        &read_bytes.family,
        &writes.family,
        &writes_skipped.family,
        &conflicts_forced.family,
        store_objects,
        store_bytes,
        &denied.family,
        watch_restarts,
        &log_lines_dropped.family,
        code_lookups,
        compile_duration,
        leading,
    ]
}

#[test]
fn every_metric_says_what_it_means() {
    let metrics = busy();
    let text = metrics.text(&sample()).unwrap();
    let empty = every(&metrics.0).iter().filter(|metric| metric.is_empty()).count();
    assert_eq!(empty, 0, "`busy` or `sample` lacks a metric:\n{text}");
    // Another metric counts the lost lines of the log.
    let expected = every(&metrics.0).len() + 1;
    // The log is shared by the process: other tests can add and remove its series.
    let of_log = |line: &&str| line.contains("mortise_log_lines_limited");
    let lines = || text.lines().filter(|line| !of_log(line));
    let helps: Vec<&str> = lines().filter(|line| line.starts_with("# HELP ")).collect();
    let types = lines().filter(|line| line.starts_with("# TYPE ")).count();
    assert_eq!((helps.len(), types), (expected, expected), "{text}");
    assert!(helps.iter().all(|help| help.starts_with("# HELP mortise_")), "{text}");
}

#[test]
fn a_kind_of_the_core_group_is_named_without_a_group() {
    let core = Kind { group: String::new(), version: "v1".into(), kind: "Pod".into() };
    assert_eq!((kind_label(&core), kind_label(&kind("Thing"))), ("Pod".into(), "Thing.g".into()));
}
