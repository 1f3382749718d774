use std::time::Duration;

use mortise_core::{
    fixture::{elsewhere, key, kind, reference},
    grant::rights::{Account, Question},
    outbound::Method,
    queue::{Run, State},
    reads::record::{MustRun, NotSkippable},
    write::Action,
};
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

/// Returns metrics each of which has a series; `every_metric_has_a_help_text_and_a_series` fails if
/// one has none.
fn busy() -> Metrics {
    let metrics = Metrics::new();
    let first = Report {
        unchanged: 3,
        not_skipped: Some(MustRun::Record(NotSkippable::Clock)),
        trapped: vec!["panicked"],
        waited: vec![Duration::from_secs(1), Duration::from_micros(1)],
        forced: vec![kind("Thing").into()],
        refused_events: vec!["".into(), "shop/p/k".into(), "shop/p/k".into()],
        log_dropped: 7,
        ..report(
            0,
            &[(Action::Create, "Thing"), (Action::Create, "Thing"), (Action::Status, "Rule")],
        )
    };
    let mut record = (*first.record).clone();
    let refused = |origin: &str, error| Made {
        method: Method::Put,
        url: "https://guest-chosen.example/".to_owned(),
        status: None,
        took: Duration::ZERO,
        error: Some(error),
        refused: Some(origin.to_owned()),
    };
    let sent = Made { status: Some(200), error: None, refused: None, ..refused("", "") };
    let granted = "https://*.example.com";
    record.calls = [refused(granted, "credential-no-value"), refused("", "denied"), sent].into();
    let first = Report { record: Arc::new(record), ..first };
    metrics.ended(&first);
    let mut second = Report { not_skipped: Some(MustRun::Written), ..report(2, &[]) };
    let mut record = (*second.record).clone();
    record.ending = Ending::Failure;
    second.record = Arc::new(record);
    metrics.ended(&second);
    metrics.ended(&Report { skipped: true, ..report(0, &[]) });
    metrics.called_library(&"p".into(), "memo");
    let called = ("https://*.example.com", "post", "201");
    metrics.called_outside(&"p".into(), called, Duration::from_secs(1));
    metrics.call_paused(&"p".into(), "https://*.example.com", "rate");
    metrics.denied(&"p".into(), &denial("Thing"), &[]);
    metrics.watch_restarted(&kind("Thing"));
    metrics.watch_restarted(&elsewhere(kind("Thing"), "shop/p/k"));
    let second = Duration::from_secs(1);
    metrics.hooked("p", HookRequest::Convert, "success", second);
    metrics.hooked("p", HookRequest::Admit("mark"), "refused", second);
    metrics.hooked("p", HookRequest::Unknown, "invalid", second);
    metrics.code_looked_up("miss");
    metrics.compiled(Duration::from_secs(1), "memory");
    OBJECTS_TOO_LARGE.inc();
    metrics
}

fn sample() -> Sample {
    let memory = Memory { objects: 2, json: 20, total: 30 };
    Sample {
        queues: vec![("p".into(), State { ready: 1, running: 2, delayed: 3 })],
        waiting: vec![("p".into(), 7)],
        stores: vec![
            (Arc::new(kind("Thing")), memory),
            (elsewhere(kind("Thing"), "shop/p/k"), Memory { objects: 1, json: 10, total: 20 }),
        ],
        clusters: vec![("shop/p/k".into(), true)],
        leads: true,
    }
}

#[test]
fn a_run_is_counted() {
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
        r#"mortise_events_refused_total{processor="p",cluster=""} 1"#,
        r#"mortise_events_refused_total{processor="p",cluster="shop/p/k"} 2"#,
        r#"mortise_hook_requests_total{processor="p",hook="convert",result="success"} 1"#,
        r#"mortise_hook_requests_total{processor="p",hook="admit/mark",result="refused"} 1"#,
        r#"mortise_hook_requests_total{processor="p",hook="other",result="invalid"} 1"#,
        r#"mortise_hook_duration_seconds_count{processor="p",hook="admit/mark"} 1"#,
        r#"mortise_denied_total{processor="p",verb="get",kind="other",cluster=""} 1"#,
        r#"mortise_watch_restarts_total{kind="Thing.g",cluster=""} 1"#,
        r#"mortise_watch_restarts_total{kind="Thing.g",cluster="shop/p/k"} 1"#,
        r#"mortise_log_lines_dropped_total{processor="p"} 7"#,
        r#"mortise_outbound_calls_total{processor="p",origin="https://*.example.com",method="post",code="201"} 1"#,
        r#"mortise_outbound_calls_total{processor="p",origin="https://*.example.com",method="put",code="credential"} 1"#,
        r#"mortise_outbound_calls_total{processor="p",origin="other",method="put",code="denied"} 1"#,
        r#"mortise_outbound_duration_seconds_count{processor="p",origin="https://*.example.com"} 1"#,
        r#"mortise_outbound_paused_total{processor="p",origin="https://*.example.com",reason="rate"} 1"#,
        r#"mortise_code_lookups_total{result="miss"} 1"#,
        r#"mortise_compile_duration_seconds_count{result="memory"} 1"#,
    ];
    for line in expected {
        assert!(text.iter().any(|held| held == line), "{line} is not in\n{}", text.join("\n"));
    }
    assert!(!text.iter().any(|line| line.contains("hidden")), "an object's name is a label");
}

#[test]
fn the_states_of_the_last_sample_are_not_kept() {
    let metrics = Metrics::new();
    let text = lines(&metrics, &sample());
    for line in [
        r#"mortise_queue_keys{processor="p",state="ready"} 1"#,
        r#"mortise_queue_keys{processor="p",state="running"} 2"#,
        r#"mortise_queue_keys{processor="p",state="delayed"} 3"#,
        r#"mortise_calls_waiting{processor="p"} 7"#,
        r#"mortise_store_objects{kind="Thing.g"} 2"#,
        r#"mortise_store_bytes{kind="Thing.g"} 30"#,
        r#"mortise_cluster_store_bytes{cluster="shop/p/k",kind="Thing.g"} 20"#,
        r#"mortise_cluster_connected{cluster="shop/p/k"} 1"#,
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
fn a_kind_that_a_guest_makes_up_is_no_label() {
    let metrics = Metrics::new();
    let declared = [kind("Thing")];
    for number in 0..9000 {
        metrics.denied(&"p".into(), &denial(&format!("Made{number}")), &declared);
    }
    metrics.denied(&"p".into(), &denial("Thing"), &declared);
    for (of, number) in [("Thing", 0), ("Made", 0), ("Made", 1)] {
        let of = elsewhere(kind(of), &format!("shop/{number}/k"));
        let denial = Denial::of_declaration("get", &of, "not declared");
        metrics.denied(&"p".into(), &denial, &declared);
    }
    let text = lines(&metrics, &Sample::default());
    let denied: Vec<_> =
        text.iter().filter(|line| line.starts_with("mortise_denied_total")).collect();
    assert_eq!(denied.len(), 4, "{denied:#?}");
    for line in [
        r#"mortise_denied_total{processor="p",verb="get",kind="other",cluster=""} 9000"#,
        r#"mortise_denied_total{processor="p",verb="get",kind="Thing.g",cluster=""} 1"#,
        r#"mortise_denied_total{processor="p",verb="get",kind="Thing.g",cluster="shop/0/k"} 1"#,
        r#"mortise_denied_total{processor="p",verb="get",kind="other",cluster="other"} 2"#,
    ] {
        assert!(denied.iter().any(|held| *held == line), "{line} is not in {denied:#?}");
    }
}

#[test]
fn the_series_of_a_processor_are_bounded_whatever_it_declares_and_others_answer() {
    let metrics = Metrics::new();
    let user: Account = "shop/painter".parse().unwrap();
    for number in 0..9000 {
        let mut report = report(0, &[]);
        report.kind = kind(&format!("Kind{number}")).into();
        report.refused_events = vec![format!("shop/cluster-{number}/kubeconfig").into()];
        metrics.ended(&report);
        // Another cluster names the verb that it denies.
        let message = format!("User \"{}\" cannot verb-{number} resource \"pods\"", user.user());
        let right = Question::refused(&message, &user, &"shop/cluster/kubeconfig".into()).unwrap();
        metrics.denied(&"p".into(), &Denial::of_right(right, &kind("Thing")), &[kind("Thing")]);
        metrics.called_outside(&"p".into(), ("o", "get", &number.to_string()), Duration::ZERO);
        metrics.watch_restarted(&report.kind);
        let cluster = format!("shop/cluster-{}/kubeconfig", number / 9);
        metrics.watch_restarted(&elsewhere(Kind::clone(&report.kind), &cluster));
    }
    let series = |name: &str| {
        let text = lines(&metrics, &Sample::default());
        text.iter().filter(|line| line.starts_with(name)).count()
    };
    for number in 0..9000 {
        let hook = format!("hook-{number}");
        metrics.hooked("p", HookRequest::Admit(&hook), "success", Duration::ZERO);
    }
    for name in ["reconciles", "hook_requests", "events_refused", "denied", "outbound_calls"] {
        assert_eq!(series(&format!("mortise_{name}_total")), 513, "{name}");
    }
    assert_eq!(series("mortise_watch_restarts_total"), 0, "none of them is watched any more");
    for number in 0..9000 {
        let cluster = format!("shop/cluster-{number}/kubeconfig");
        metrics.watch_restarted(&elsewhere(kind("Thing"), &cluster));
    }
    metrics.watch_restarted(&kind("Thing"));
    let watched = [Arc::new(kind("Thing")), elsewhere(kind("Thing"), "shop/cluster-7/kubeconfig")];
    let stores = watched.map(|kind| (kind, Memory { objects: 0, json: 0, total: 0 })).into();
    let text = lines(&metrics, &Sample { stores, ..Sample::default() });
    let told = text.iter().filter(|line| line.starts_with("mortise_watch_restarts_total"));
    let expected = [
        r#"mortise_watch_restarts_total{kind="Thing.g",cluster=""} 1"#,
        r#"mortise_watch_restarts_total{kind="Thing.g",cluster="shop/cluster-7/kubeconfig"} 1"#,
    ];
    assert!(expected.iter().all(|line| text.iter().any(|held| held == line)), "{text:#?}");
    assert_eq!(told.count(), 2);
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

#[test]
fn every_metric_has_a_help_text_and_a_series() {
    let metrics = busy();
    let text = metrics.text(&sample()).unwrap();
    for (name, help) in metrics.described() {
        assert!(!help.is_empty(), "{name}");
        // The log is shared by the process: other tests can add and remove its series.
        let is_of_log = name == "mortise_log_lines_limited_total";
        let has_series = text.lines().any(|line| line.starts_with(name.as_str()));
        assert!(has_series || is_of_log, "`busy` or `sample` lacks `{name}`:\n{text}");
    }
}

#[test]
fn a_kind_of_the_core_group_is_named_without_a_group() {
    let core = Kind::home("", "v1", "Pod");
    assert_eq!((kind_label(&core), kind_label(&kind("Thing"))), ("Pod".into(), "Thing.g".into()));
}
