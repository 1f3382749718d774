use mortise_core::{
    contract::{GrantedRule, Reconciler, Selection},
    queue::Key,
};
use serde_json::json;

use super::*;
use crate::{
    host::{ClustersStatus, LastFailure as Failed, Version},
    wasm::Digest,
};

fn kind(name: &str) -> Kind {
    Kind::home("x.dev", "v1", name)
}

fn description() -> Description {
    let of = Selection {
        kind: kind("Rule").into(),
        namespace: None,
        name: None,
        labels: String::new(),
        matching: Vec::new(),
        fields: [].into(),
    };
    let reconciler = Reconciler {
        name: "rules".into(),
        of,
        finalizers: vec!["x.dev/rule".into()],
        resync: 0,
        triggered_by_status: false,
        min_interval: 0,
        on_demand: false,
        whole_status: false,
    };
    Description {
        name: "api-rule".into(),
        version: "2.3.0".into(),
        reconcilers: vec![reconciler],
        reads: Vec::new(),
        writes: Vec::new(),
        grants: Vec::new(),
        outbound: Vec::new(),
        config_schema: None,
    }
}

fn host() -> host::ProcessorStatus {
    let version = Version {
        libraries: [].into(),
        processor: "a/rules".into(),
        version: "2.3.0".into(),
        digest: Digest::of(b"module"),
    };
    host::ProcessorStatus {
        version: version.into(),
        since: at("2026-01-01T00:00:00Z"),
        ready: 0,
        running: 0,
        on_former: 0,
        delayed: 0,
        backing_off: 0,
        failing: 0,
        runs: 7,
        failures: 0,
        last_failure: None,
        missing: Vec::new(),
        objects: 3,
        conflicts: Vec::new(),
        limits_met: Vec::new(),
        clusters: ClustersStatus::default(),
        hooks: None,
        missing_rights: Vec::new(),
        not_held: Vec::new(),
        unwatched: Vec::new(),
        denied: Vec::new(),
    }
}

fn pods() -> GrantedRule {
    let rule = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]});
    GrantedRule::from_value(&rule)
}

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

fn fault() -> Fault {
    Fault {
        reason: Reason::ModuleNotFound,
        message: "there is none".into(),
        former: crate::operator::Former::KeepsRunning,
        passes: true,
        unusable: None,
    }
}

/// Computes the status of a Processor that runs, after `change`.
fn computed(
    change: impl FnOnce(&mut host::ProcessorStatus),
    fault: Option<&Fault>,
    state: State<'_>,
) -> ProcessorStatus {
    let (description, mut status) = (description(), host());
    change(&mut status);
    let running =
        Running { description: &description, status: &status, images: Vec::new(), is_new: false };
    compute(&Known {
        generation: Some(4),
        fault,
        away: Vec::new(),
        lowered: None,
        running: Some(running),
        not_started: &[],
        finalizers: Vec::new(),
        state,
        before: &ProcessorStatus::default(),
        now: at("2026-01-02T03:04:05.6Z"),
    })
}

/// Returns the status, reason and message of a condition.
fn said<'a>(status: &'a ProcessorStatus, kind: &str) -> (&'a str, &'a str, &'a str) {
    let condition = status.conditions.iter().find(|condition| condition.type_ == kind).unwrap();
    (&condition.status, &condition.reason, &condition.message)
}

#[test]
fn a_running_processor_reports_its_module_kinds_and_counts() {
    let status = computed(|_| {}, None, State::Runs);
    let digest = Digest::of(b"module").to_string();
    let expected = json!({
        "observedGeneration": 4,
        "module": {"digest": digest, "name": "api-rule", "version": "2.3.0"},
        "reconciles": [{"name": "rules", "group": "x.dev", "version": "v1", "kind": "Rule", "finalizers": ["x.dev/rule"]}],
        "counts": {"objects": 3, "failing": 0},
        "conditions": [
            {"type": "Loaded", "status": "True", "reason": "Loaded", "message": "api-rule 2.3.0 is loaded"},
            {"type": "Synced", "status": "True", "reason": "Synced", "message": "all 3 objects are reconciled"},
            {"type": "Ready", "status": "True", "reason": "Runs", "message": "runs"},
        ],
    });
    let mut found = serde_json::to_value(&status).unwrap();
    for condition in found["conditions"].as_array_mut().unwrap() {
        let condition = condition.as_object_mut().unwrap();
        assert_eq!(condition.remove("lastTransitionTime"), Some(json!("2026-01-02T03:04:05Z")));
        assert_eq!(condition.remove("observedGeneration"), Some(json!(4)));
    }
    assert_eq!(found, expected);
}

#[test]
fn a_processor_with_hooks_says_whether_they_are_answered() {
    let without = computed(|_| {}, None, State::Runs);
    assert!(without.conditions.iter().all(|condition| condition.type_ != "Serving"));
    let hooks = |hooks| computed(|of| of.hooks = Some(hooks), None, State::Runs);
    let answered = hooks(Ok(()));
    let expected = ("True", "Serving", "conversions and admissions are answered");
    assert_eq!(said(&answered, "Serving"), expected);
    let expired =
        host::NotServed { reason: Reason::CertificateInvalid, message: "it has expired".into() };
    let not = hooks(Err(expired));
    assert_eq!(said(&not, "Serving"), ("False", "CertificateInvalid", "it has expired"));
}

/// The problems of other clusters, and the status, reason and message of `Connected`.
type Connected<'a> = (&'a [(&'a str, Reason, &'a str)], (&'a str, &'a str, &'a str));

#[test]
fn the_problems_of_other_clusters_set_connected() {
    let connected = |used: usize, problems: &[(&str, Reason, &str)]| {
        let problem = |(of, reason, message): &(&str, Reason, &str)| {
            ((*of).into(), Problem { reason: *reason, message: (*message).to_owned() })
        };
        let problems = problems.iter().map(problem).collect();
        computed(|of| of.clusters = ClustersStatus { used, problems }, None, State::Runs)
    };
    let without = connected(0, &[]);
    assert!(without.conditions.iter().all(|condition| condition.type_ != "Connected"));
    let connects = ("a/p/k", Reason::ClusterConnecting, "it has not answered yet");
    let unreadable = ("b/p/k", Reason::SecretUnreadable, "forbidden");
    let unknown = ("c/p/k", Reason::HomeUnknown, "no right");
    let many = [unreadable; 7];
    let cases: [Connected<'_>; 5] = [
        (&[], ("True", "Connected", "all 9 other clusters are connected")),
        (&[connects], ("Unknown", "ClusterConnecting", "cluster `a/p/k`: it has not answered yet")),
        (
            &[connects, unreadable],
            (
                "False",
                "SecretUnreadable",
                "cluster `a/p/k`: it has not answered yet; cluster `b/p/k`: forbidden",
            ),
        ),
        (
            &[unknown, unreadable],
            ("False", "HomeUnknown", "cluster `c/p/k`: no right; cluster `b/p/k`: forbidden"),
        ),
        (
            &many,
            (
                "False",
                "SecretUnreadable",
                "cluster `b/p/k`: forbidden; cluster `b/p/k`: forbidden; cluster `b/p/k`: forbidden; cluster `b/p/k`: forbidden; cluster `b/p/k`: forbidden; and 2 more",
            ),
        ),
    ];
    for (problems, expected) in cases {
        let status = connected(9, problems);
        assert_eq!(said(&status, "Connected"), expected);
        assert_eq!(said(&status, "Ready").0, "True", "{expected:?}");
    }
}

type Change = Box<dyn FnOnce(&mut host::ProcessorStatus)>;

/// The type of a condition, and its status, reason and message.
type Expected = (&'static str, (&'static str, &'static str, &'static str));

#[test]
fn failures_and_missing_rights_or_kinds_set_the_matching_condition() {
    let failed = Failed {
        key: Key::new(&"a/rules".into(), &"rules".into(), Some("b"), "web"),
        at: at("2026-01-01T00:00:00Z"),
        message: "no Gateway".into(),
    };
    let cases: [(Change, Expected); 8] = [
        (
            Box::new(move |host| (host.failing, host.last_failure) = (2, Some(failed))),
            ("Synced", ("False", "ObjectsFail", "2 of 3 objects fail; the last: no Gateway")),
        ),
        (
            Box::new(|host| (host.failing, host.conflicts) = (1, vec!["two want one".into()])),
            ("Synced", ("False", "FieldConflict", "two want one")),
        ),
        (
            Box::new(|host| (host.failing, host.denied) = (1, vec!["may not get a".into()])),
            ("Synced", ("False", "Denied", "may not get a")),
        ),
        (
            Box::new(|host| host.missing_rights = vec!["may not get a".into(), "nor b".into()]),
            (
                "Ready",
                (
                    "False",
                    "RightsMissing",
                    "the ServiceAccount lacks what the processor declares: may not get a; nor b",
                ),
            ),
        ),
        (
            Box::new(|host| host.not_held = vec![pods()]),
            (
                "Ready",
                (
                    "False",
                    "RightsMissing",
                    "the ServiceAccount does not hold in all namespaces the rules that the processor grants; the rules of a ClusterRole for it:\n- {\"apiGroups\":[\"\"],\"resources\":[\"pods\"],\"verbs\":[\"get\"]}",
                ),
            ),
        ),
        (
            Box::new(|host| host.missing = vec![kind("Rule")]),
            (
                "Ready",
                (
                    "False",
                    "KindNotServed",
                    "waits for the CustomResourceDefinition of Rule x.dev/v1",
                ),
            ),
        ),
        (
            Box::new(|host| host.missing = vec![kind("Gateway")]),
            ("Ready", ("True", "Runs", "runs; not served by the cluster: Gateway x.dev/v1")),
        ),
        (
            Box::new(|host| host.objects = 0),
            ("Synced", ("True", "Synced", "all 0 objects are reconciled")),
        ),
    ];
    for (change, (kind, expected)) in cases {
        assert_eq!(said(&computed(change, None, State::Runs), kind), expected);
    }
}

#[test]
fn the_state_and_the_fault_set_the_matching_conditions() {
    let broken = fault();
    let suspended = "no runs begin: spec.suspend is true";
    let cases: [(Option<&Fault>, State<'_>, Expected); 7] = [
        (None, State::Suspended, ("Ready", ("False", "Suspended", suspended))),
        (None, State::Suspended, ("Synced", ("Unknown", "Suspended", suspended))),
        (
            None,
            State::Observes,
            ("Ready", ("True", "Observes", "runs, and nothing is written: spec.mode is Observe")),
        ),
        (
            None,
            State::Observes,
            ("Synced", ("Unknown", "Observed", "nothing is written: spec.mode is Observe")),
        ),
        (None, State::Ends("2 are held"), ("Ready", ("False", "Ending", "2 are held"))),
        (
            Some(&broken),
            State::Runs,
            (
                "Loaded",
                (
                    "False",
                    "ModuleNotFound",
                    "there is none; the former version 2.3.0 keeps running",
                ),
            ),
        ),
        (
            Some(&broken),
            State::Runs,
            (
                "Ready",
                (
                    "True",
                    "FormerVersion",
                    "the former version 2.3.0 runs; what the spec asks for is not loaded (ModuleNotFound)",
                ),
            ),
        ),
    ];
    for (fault, state, (kind, expected)) in cases {
        assert_eq!(said(&computed(|_| {}, fault, state), kind), expected);
    }
}

#[test]
fn a_processor_that_does_not_run_reports_its_fault_and_last_failure() {
    let broken = fault();
    let before = ProcessorStatus {
        last_failure: Some(LastFailure { object: "rules b/web".into(), ..LastFailure::default() }),
        ..ProcessorStatus::default()
    };
    let known = |fault| Known {
        generation: Some(1),
        fault,
        away: Vec::new(),
        lowered: None,
        running: None,
        not_started: &[],
        finalizers: Vec::new(),
        state: State::Runs,
        before: &before,
        now: at("2026-01-01T00:00:00Z"),
    };
    let status = compute(&known(Some(&broken)));
    assert_eq!(said(&status, "Loaded"), ("False", "ModuleNotFound", "there is none"));
    assert_eq!(said(&status, "Ready"), ("False", "ModuleNotFound", "nothing runs: there is none"));
    assert_eq!(said(&status, "Synced"), ("Unknown", "NotRunning", "nothing runs"));
    assert_eq!((status.module, status.counts), (None, None));
    assert_eq!(status.last_failure, before.last_failure);
    assert_eq!(said(&compute(&known(None)), "Loaded").0, "Unknown");
}

#[test]
fn the_time_of_a_condition_is_that_of_its_last_change_of_status() {
    let first = computed(|_| {}, None, State::Runs);
    let (description, status) = (description(), host());
    let later = |state, before: &ProcessorStatus, now| {
        let running = Running {
            description: &description,
            status: &status,
            images: Vec::new(),
            is_new: false,
        };
        let known = Known {
            generation: Some(5),
            fault: None,
            away: Vec::new(),
            lowered: None,
            running: Some(running),
            not_started: &[],
            finalizers: Vec::new(),
            state,
            before,
            now: at(now),
        };
        compute(&known)
    };
    let time = |status: &ProcessorStatus| {
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
        ready.last_transition_time.clone()
    };
    let observed = later(State::Observes, &first, "2026-02-01T00:00:00Z");
    assert_eq!(said(&observed, "Ready").1, "Observes");
    assert_eq!(time(&observed), time(&first), "another reason, the same status");
    let suspended = later(State::Suspended, &observed, "2026-03-01T00:00:00Z");
    assert_eq!(time(&suspended), "2026-03-01T00:00:00Z");
}

#[test]
fn a_new_host_keeps_the_last_status_of_a_spec_until_its_first_runs() {
    let settled = computed(|_| {}, None, State::Runs);
    let (description, mut status) = (description(), host());
    (status.objects, status.ready, status.runs) = (0, 3, 0);
    let started = |generation, before: &ProcessorStatus| {
        let running = Running {
            description: &description,
            status: &status,
            images: Vec::new(),
            is_new: true,
        };
        compute(&Known {
            generation: Some(generation),
            fault: None,
            away: Vec::new(),
            lowered: None,
            running: Some(running.clone()),
            not_started: &[],
            finalizers: Vec::new(),
            state: State::Runs,
            before,
            now: at("2026-05-01T00:00:00Z"),
        })
    };
    assert_eq!(started(4, &settled), settled);
    let other = started(5, &settled);
    assert_eq!(said(&other, "Synced").1, "Reconciling", "another spec has other runs");
    assert_eq!(said(&started(4, &ProcessorStatus::default()), "Synced").1, "Reconciling");
}

#[test]
fn many_things_are_counted_and_long_messages_cut() {
    let texts: Vec<String> = (0..8).map(|number| number.to_string()).collect();
    assert_eq!(listed(&texts), "0; 1; 2; 3; 4; and 3 more");
    let status = computed(|host| host.conflicts = vec!["é".repeat(3000)], None, State::Runs);
    assert_eq!(said(&status, "Synced").2.chars().count(), MAX_MESSAGE_CHARACTERS + 1);
}

#[test]
fn a_limit_of_the_host_is_said_once_it_is_met() {
    let met =
        host::LimitMet { reason: Reason::WatchesLimited, message: "256 watches are open".into() };
    let mut status = computed(|status| status.limits_met.push(met), None, State::Runs);
    assert_eq!(said(&status, "Limited"), ("True", "WatchesLimited", "256 watches are open"));
    assert_eq!(said(&status, "Ready").0, "True");
    let (description, host) = (description(), host());
    let running =
        Running { description: &description, status: &host, images: Vec::new(), is_new: false };
    let later = |before: &ProcessorStatus| {
        compute(&Known {
            generation: Some(4),
            fault: None,
            away: Vec::new(),
            lowered: None,
            running: Some(running.clone()),
            not_started: &[],
            finalizers: Vec::new(),
            state: State::Runs,
            before,
            now: at("2026-01-02T03:04:05.6Z"),
        })
    };
    status = later(&status);
    assert_eq!(said(&status, "Limited"), ("False", "WithinLimits", "no limit of the host is met"));
    let never = later(&ProcessorStatus::default());
    assert!(never.conditions.iter().all(|condition| condition.type_ != "Limited"));
}

#[test]
fn lowered_limits_are_reported_even_if_no_version_runs() {
    let met = host::LimitMet { reason: Reason::LimitsLowered, message: "given is 256Mi".into() };
    let status = compute(&Known {
        generation: Some(4),
        fault: None,
        away: Vec::new(),
        lowered: Some(met),
        running: None,
        not_started: &[],
        finalizers: Vec::new(),
        state: State::Runs,
        before: &ProcessorStatus::default(),
        now: at("2026-01-02T03:04:05.6Z"),
    });
    assert_eq!(said(&status, "Limited"), ("True", "LimitsLowered", "given is 256Mi"));
}

#[test]
fn an_artifact_is_named_by_its_digest_and_kept_while_it_comes_again() {
    let (description, host) = (description(), host());
    let tagged: Reference = "example.com/a:1".parse().unwrap();
    let image = tagged.at(Digest::of(b"manifest"));
    let before = ProcessorStatus::default();
    let known = |fault, running, before| Known {
        generation: Some(4),
        fault,
        away: Vec::new(),
        lowered: None,
        running,
        not_started: &[],
        finalizers: Vec::new(),
        state: State::Runs,
        before,
        now: at("2026-01-02T03:04:05Z"),
    };
    let images = vec![Some(image.clone())];
    let running = Running { description: &description, status: &host, images, is_new: false };
    let runs = compute(&known(None, Some(running.clone()), &before));
    assert_eq!(runs.module.as_ref().unwrap().image, Some(image.to_string()));
    assert_eq!(said(&runs, "Loaded").1, "Loaded");

    // An unavailable registry does not affect the running version.
    let why = "`example.com` does not answer: no address".to_owned();
    let away = vec![(tagged.clone(), Away { since: at("2026-01-02T01:00:00Z"), why })];
    let status = compute(&Known { away, ..known(None, Some(running.clone()), &runs) });
    let expected = "api-rule 2.3.0 is loaded; `example.com/a:1` has not been resolved since 2026-01-02T01:00:00Z: `example.com` does not answer: no address";
    assert_eq!(said(&status, "Loaded"), ("True", "RegistryUnavailable", expected));

    // The next host starts with the artifact that ran last, as long as that may run.
    let pulling = Fault::pulling(&tagged);
    let comes = compute(&known(Some(&pulling), None, &runs));
    assert_eq!(comes.module, runs.module);
    let expected = "`example.com/a:1` is being pulled";
    assert_eq!(said(&comes, "Loaded"), ("Unknown", "Pulling", expected));
    let pulled = compute(&known(Some(&pulling), Some(running), &runs));
    let expected = "`example.com/a:1` is being pulled; the former version 2.3.0 keeps running";
    assert_eq!(said(&pulled, "Loaded"), ("Unknown", "Pulling", expected));
    let lasting = Fault::new(Reason::ImageInvalid, "it is none");
    assert_eq!(compute(&known(Some(&lasting), None, &comes)).module, runs.module);
    let ended = lasting.clone().ending_what_runs();
    assert_eq!(compute(&known(Some(&ended), None, &comes)).module, None);
}

#[test]
fn an_on_demand_reconciler_that_does_not_run_makes_the_processor_not_ready() {
    let (description, status) = (description(), host());
    let why = "`objects` does not run for Rule x.dev/v1: the Processor `b/other` holds `f`";
    let (not_started, before) = ([why.to_owned()], ProcessorStatus::default());
    let running =
        Running { description: &description, status: &status, images: Vec::new(), is_new: false };
    let computed = compute(&Known {
        generation: Some(4),
        fault: None,
        away: Vec::new(),
        lowered: None,
        running: Some(running),
        not_started: &not_started,
        finalizers: Vec::new(),
        state: State::Runs,
        before: &before,
        now: at("2026-01-02T03:04:05.6Z"),
    });
    assert_eq!(said(&computed, "Ready"), ("False", "FinalizerShared", why));
}
