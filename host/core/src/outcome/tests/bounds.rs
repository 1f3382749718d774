//! Outcomes with many entries, long texts or odd names: a check costs no more than their size.

use std::time::{Duration, Instant};

use super::*;
use crate::contract::{Failure, bounds};

/// Checks an outcome with the host's own limits.
fn check(outcome: &Outcome) -> Result<Plan, Invalid> {
    with_limits(|against| Plan::build(outcome, against))
}

fn check_failure(failure: &Failure) -> Result<Plan, Invalid> {
    with_limits(|against| Plan::build_of_failure(failure, against))
}

fn with_limits<T>(check: impl FnOnce(&Against<'_>) -> T) -> T {
    let (reconciled, kinds, grant) = (reconciled(), known_kinds(), wide_grant());
    let against = Against {
        grant: &grant,
        reconciler: &reconciler(),
        reconciled: &reconciled,
        kinds: &kinds,
        read: &|_| None,
        limits: Limits::default(),
    };
    check(&against)
}

fn wide_grant() -> Grant {
    let all = Verbs::CREATE | Verbs::UPDATE | Verbs::DELETE;
    let description = Description {
        name: "p".into(),
        version: "1".into(),
        reconcilers: vec![reconciler()],
        reads: Vec::new(),
        writes: vec![write_rule(whole(v1("", "ConfigMap")), all, &[])],
        grants: Vec::new(),
        outbound: Vec::new(),
        config_schema: None,
    };
    Grant::new(&description).unwrap()
}

fn removal(kind: Kind, name: &str) -> Removal {
    let ref_ = object_ref(kind, Some("a"), name);
    Removal { ref_, uid: None, propagation: Propagation::Background, grace_period: None }
}

fn removing(of: Vec<Removal>) -> Outcome {
    Outcome { delete: of, ..outcome() }
}

/// Returns a `ConfigMap` with that many owners, all of them made by the same outcome.
fn owned(name: &str, owners: usize) -> Value {
    let owner =
        |number| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": format!("c{number}")});
    let owners: Vec<Value> = (0..owners).map(owner).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "a", "ownerReferences": owners}})
}

#[test]
fn owners_of_an_object_are_bounded_in_number() {
    let made = (0..=bounds::OWNERS).map(|number| given(&owned(&format!("c{number}"), 0)));
    let with = |count: usize| Outcome {
        apply: made.clone().chain([given(&owned("d", count))]).collect(),
        ..outcome()
    };
    assert_eq!(check(&with(bounds::OWNERS)).unwrap().apply.last().unwrap().made_owners.len(), 64);
    let refused = check(&with(bounds::OWNERS + 1)).unwrap_err().to_string();
    assert!(
        refused.contains("`metadata.ownerReferences`: at most 64 entries, it has 65"),
        "{refused}"
    );
}

/// Entries must not be compared with each other: that would be 50 million comparisons, or 64 owners
/// with each of 5,000 manifests.
#[test]
fn a_large_outcome_is_checked_in_time() {
    let begun = Instant::now();
    let deleted = (0..10_000).map(|number| removal(v1("", "ConfigMap"), &format!("c{number}")));
    assert_eq!(check(&removing(deleted.collect())).unwrap().delete.len(), 10_000);
    let first = (0..64).map(|number| given(&owned(&format!("c{number}"), 0)));
    let others = (0..1200).map(|number| given(&owned(&format!("d{number}"), 64)));
    let applied = Outcome { apply: others.chain(first).collect(), ..outcome() };
    assert_eq!(check(&applied).unwrap().apply.len(), 1264);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn what_objects_become_when_they_are_parsed_is_bounded_together() {
    let zeros = |name: &str, count: usize| {
        given(&json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "a"},
            "data": {"k": vec![0; count]},
        }))
    };
    let of = |counts: &[usize], status: Option<String>| {
        let apply = counts.iter().enumerate().map(|(at, count)| zeros(&format!("c{at}"), *count));
        check(&Outcome { apply: apply.collect(), status, ..outcome() })
    };
    let part = bounds::OUTCOME_ACCOUNT / (2 + bounds::ENTRY) / 2;
    assert_eq!(of(&[part - 100, part - 100], None).unwrap().apply.len(), 2);
    let refused = of(&[part - 100, part + 200], None).unwrap_err();
    assert_eq!(refused.place, "apply[1].object");
    let text = refused.to_string();
    assert!(
        text.contains("(ConfigMap v1 `a/c1`)") && text.contains("41943040 are allowed"),
        "{text}"
    );
    let status = json!({"zeros": vec![0; 2 * part]}).to_string();
    assert_eq!(of(&[1], Some(status.clone())).unwrap_err().place, "status");
    let failure = Failure {
        message: String::new(),
        status: Some(status),
        events: Vec::new(),
        retry: contract::Retry::BackOff,
        note: None,
    };
    assert_eq!(check_failure(&failure).unwrap_err().place, "status");
}

#[test]
fn a_repeated_delete_is_refused_even_if_not_adjacent() {
    let twice = [removal(v1("", "ConfigMap"), "c"), removal(v1("", "ConfigMap"), "d")];
    let refused = check(&removing([&twice[..], &twice[..1]].concat())).unwrap_err();
    assert_eq!(refused.fault, Fault::Duplicate { other: "delete[0]".into() });
    assert_eq!(refused.place, "delete[2].ref");
}

#[test]
fn names_that_no_api_server_takes_are_refused_before_anything_is_looked_up() {
    let long = "x".repeat(254);
    let cases = [
        (
            "a path as group",
            removal(v1("g/v1/x?watch=true&x=", "Rule"), "c"),
            "`kind`: a kind is named",
        ),
        ("a subresource as kind", removal(v1("", "Pod/status"), "c"), "`kind`: a kind is named"),
        (
            "a subresource",
            removal(v1("", "ConfigMap"), "c/scale"),
            "`name`: a name has 1 to 253 bytes",
        ),
        ("a long name", removal(v1("", "ConfigMap"), &long), "`name`: a name has 1 to 253 bytes"),
    ];
    for (case, removal, part) in cases {
        let refused = check(&removing(vec![removal])).unwrap_err().to_string();
        assert!(refused.contains(part), "{case}: {refused}");
    }
}

#[test]
fn lists_of_a_manifest_and_events_of_a_failure_are_bounded_in_number() {
    let many = vec!["data.a".to_owned(); bounds::FIELDS + 1];
    for refused in [
        applied(|given| given.leave.clone_from(&many)),
        applied(|given| given.absent.clone_from(&many)),
    ] {
        let refused = check(&refused).unwrap_err().fault;
        assert_eq!(refused, Fault::TooMany { count: 129, limit: 128 });
    }
    let event = Said {
        on: None,
        event_type: EventType::Normal,
        reason: "A".into(),
        message: String::new(),
    };
    let failure = Failure {
        message: String::new(),
        status: None,
        events: vec![event; 100_000],
        retry: contract::Retry::BackOff,
        note: None,
    };
    let refused = check_failure(&failure).unwrap_err().fault;
    assert_eq!(refused, Fault::TooMany { count: 100_000, limit: 10_000 });
}

/// Paths are walked by recursion, and an object is nested no deeper than 128.
#[test]
fn a_path_is_short_and_has_few_steps() {
    let parse = |text: &str| text.parse::<Path>().map(|_| ()).map_err(|error| error.to_string());
    assert_eq!(parse(&"[]".repeat(64)), Ok(()));
    for (text, part) in [
        ("[]".repeat(65), "has more than 64 steps"),
        ("[".repeat(10_000), "is longer than 1024 bytes"),
        ("a".repeat(1025), "is longer than 1024 bytes"),
        ("x".repeat(15 << 20), "is longer than 1024 bytes"),
    ] {
        let refused = parse(&text).unwrap_err();
        assert!(refused.contains(part) && refused.len() < 2048, "{}", refused.len());
    }
}
