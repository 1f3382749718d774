//! Outcomes that start on-demand reconcilers.

use super::*;
use crate::{
    contract::{Start, bounds::STARTS},
    fixture::{labelled, matching},
};

/// Returns a grant for the reconciler `rule`, for `things` in the namespaces of the group `x.dev`
/// with `app=x`, and for `held`, which has a finalizer.
fn on_demand() -> Grant {
    let any = || labelled(whole(v1("x.dev", "*")), "app=x");
    let things = Reconciler {
        name: "things".into(),
        of: Selection { fields: ["spec.a".to_owned()].into(), ..any() },
        finalizers: Vec::new(),
        on_demand: true,
        ..reconciler()
    };
    let finalizers = vec!["x.dev/held".to_owned()];
    let held = Reconciler { name: "held".into(), finalizers, ..things.clone() };
    let reconcilers = vec![reconciler(), things, held];
    let outbound = vec![OutboundRule {
        origin: "https://api.example.com".into(),
        methods: Methods::GET,
        credentials: vec![fields(whole(v1("x.dev", "Thing")), &["spec.a[].value"])],
        pause: 0,
    }];
    let of = crate::fixture::description(any(), Vec::new());
    let description = Description { reconcilers, outbound, ..of };
    Grant::new(&description).unwrap()
}

fn check_of(by: &Reconciler, outcome: &Outcome, held: &[&str]) -> Result<Plan, Invalid> {
    let mut reconciled = reconciled();
    reconciled.object.as_mut().unwrap()["metadata"]["finalizers"] = json!(held);
    let against = Against {
        grant: &on_demand(),
        reconciler: by,
        reconciled: &reconciled,
        kinds: &known_kinds(),
        read: &|_| None,
        limits: Limits::default(),
    };
    Plan::build(outcome, &against)
}

fn check(start: Vec<Start>) -> Result<Plan, Invalid> {
    check_of(&reconciler(), &Outcome { start, ..outcome() }, &[])
}

fn start(of: Selection) -> Start {
    Start { reconciler: "things".into(), of }
}

fn things() -> Selection {
    labelled(whole(v1("x.dev", "Thing")), "app=x")
}

#[test]
fn a_selection_outside_of_the_declaration_is_refused_with_the_reason() {
    let of = |kind: Kind| start(Selection { kind: kind.into(), ..things() });
    let named = |name: &str| Start { reconciler: name.into(), of: things() };
    let cases = [
        ("unknown", named("other"), "declared on-demand reconcilers: `things`; `held`"),
        ("not on demand", named("rule"), "declared on-demand reconcilers: `things`; `held`"),
        ("other group", of(v1("y.dev", "Thing")), "`of` is not declared"),
        ("any kind", of(v1("x.dev", "*")), "`of.kind`"),
        ("any version", of(Kind::home("x.dev", "*", "Thing")), "`of.kind`"),
        ("every cluster", of(Kind::clone(&elsewhere(v1("x.dev", "Thing"), "*"))), "`cluster`"),
        (
            "undeclared cluster",
            start(Selection { kind: elsewhere(v1("x.dev", "Thing"), "a/b/c"), ..things() }),
            "a read of Secret v1 `a/b`",
        ),
        ("without the labels", start(whole(v1("x.dev", "Thing"))), "with labels `app=x`"),
        ("bad labels", start(labelled(things(), "app=x,(")), "label selector"),
        ("fields", start(crate::fixture::fields(things(), &["spec.a"])), "`of.fields`"),
        ("undeclared path", start(matching(things(), "spec.b", "1")), "`spec.b` is not declared"),
        (
            "comparison with a credential",
            start(matching(things(), "spec.a[value=guess].name", "1")),
            "compares the credential `spec.a[].value`",
        ),
        ("no path", start(matching(things(), "spec[", "1")), "`of`"),
        (
            "bad namespace",
            start(Selection { namespace: Some("A/b".into()), ..things() }),
            "`of.namespace`",
        ),
        ("bad name", start(Selection { name: Some("a/b".into()), ..things() }), "`of.name`"),
        (
            "long labels",
            start(labelled(things(), &format!("app=x,{}", "a".repeat(5000)))),
            "4096 bytes",
        ),
    ];
    for (case, wanted, says) in cases {
        let message = check(vec![start(things()), wanted]).expect_err(case).to_string();
        assert!(message.contains("`start[1]`") && message.contains(says), "{case}: {message}");
    }
}

#[test]
fn starts_are_bounded_and_equal_ones_are_one() {
    let in_namespace =
        |number: usize| start(Selection { namespace: Some(format!("n{number}")), ..things() });
    let refused = check((0..10_000).map(in_namespace).collect()).unwrap_err();
    assert_eq!(refused.fault, Fault::TooMany { count: 10_000, limit: STARTS });
    let plan = check((0..STARTS).map(|number| in_namespace(number % 3)).collect()).unwrap();
    let ids: Vec<String> = plan.start.iter().map(|of| of.by.to_string()).collect();
    assert_eq!(ids, ["things@/x.dev/v1/Thing"; 3]);
    assert!(plan.only_report().start.is_empty());
}

#[test]
fn an_on_demand_reconciler_starts_nothing() {
    let declared = on_demand().reconciler("things").unwrap().spec.clone();
    let starting = Outcome { start: vec![start(things())], ..outcome() };
    let refused = check_of(&declared, &starting, &[]).unwrap_err().to_string();
    assert!(refused.contains("start nothing"), "{refused}");
    assert!(check_of(&declared, &outcome(), &[]).is_ok());
}

/// A case: its name, the stored finalizers, those of the outcome, and whether it is accepted.
type Case<'a> = (&'a str, &'a [&'a str], Option<&'a [&'a str]>, bool);

#[test]
fn a_reconciler_with_finalizers_is_started_by_an_object_that_holds_one_of_its_own() {
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    let cases: [Case<'_>; 6] = [
        ("none", &[], None, false),
        ("that of another", &["y.dev/f", "x.dev/held"], None, false),
        ("stored", &["x.dev/f"], None, true),
        ("wanted now", &[], Some(&["x.dev/g"]), true),
        ("released now", &["x.dev/f"], Some(&[]), false),
        ("one of two released", &["x.dev/f", "x.dev/g"], Some(&["x.dev/g"]), true),
    ];
    for (case, stored, wanted, is_accepted) in cases {
        let start = vec![Start { reconciler: "held".into(), of: things() }];
        let outcome = Outcome { start, finalizers: wanted.map(texts), ..outcome() };
        assert_eq!(check_of(&reconciler(), &outcome, stored).is_ok(), is_accepted, "{case}");
    }
}
