//! Swaps of versions: checked and tried before, and reverted if the new version fails.

use std::{collections::BTreeSet, time::Duration};

use mortise_embedded_api::{Fault, Filter, Verb};
use mortise_host::host::Trust;
use serde_json::json;

use super::*;

const POD: &str = "v1/Pod";
const WIDGET: &str = "x.dev/v1/Widget";
/// The kind that the guest `hooks` converts to another version.
const RULE: &str = "example.com/v1/Rule";

/// Returns a puppet that makes `<name>-made` of each of its objects, with the puppet's version in
/// it.
pub(super) fn makes(version: &str) -> Play {
    puppet().version(version).script(returns(version))
}

fn returns(version: &str) -> Value {
    let data = json!({"version": version, "sequence": "$(sequence)"});
    let made = manifest(&made("$(name)-made", &data));
    json!({"returns": outcome(&json!({"apply": [made]}))})
}

/// Returns a `ConfigMap` that the puppet reconciles.
pub(super) fn played(name: &str) -> Value {
    object(CONFIG_MAP, name, &json!({"metadata": {"labels": {"play": "yes"}}}))
}

/// Returns an object for which every version makes nothing, whatever its script.
fn harmless(name: &str) -> Value {
    scripted(name, "{}")
}

impl Place {
    /// Sets up these objects, reconciled by a first version of the Processor `rules`.
    pub(super) async fn with_first(objects: &[Value]) -> Self {
        let place = Self::new().await;
        place.apply(objects).await;
        place.puppet("rules", &makes("1.0.0"), &json!({})).await;
        place.reason("rules", "Synced", "Synced").await;
        place
    }

    /// Returns the version that made an object.
    async fn maker(&self, name: &str) -> String {
        let found = self.objects(CONFIG_MAP).await.get(&format!("{name}-made")).await.unwrap();
        found.data["data"]["version"].as_str().unwrap().to_owned()
    }

    pub(super) async fn until_made_by(&self, name: &str, version: &str) {
        let is_by =
            |found: Option<&Value>| found.is_some_and(|found| found["data"]["version"] == version);
        let (what, name) = (format!("{name} by {version}"), format!("{name}-made"));
        self.until_object(CONFIG_MAP, &name, &what, is_by).await;
    }

    /// Returns the versions that objects ran on, in the order of their first runs.
    fn versions(&self) -> Vec<String> {
        let mut versions: Vec<String> = Vec::new();
        for report in self.reports.borrow().iter() {
            let version = &report.version.as_ref().unwrap().version;
            if !versions.contains(version) {
                versions.push(version.clone());
            }
        }
        versions
    }

    /// Returns all objects except Processors.
    fn rest(&self) -> Vec<Value> {
        let mut objects = self.api.objects();
        objects.retain(|object| object["kind"] != "Processor");
        objects
    }

    /// Waits until a version is refused for this reason while the former one stays active; returns
    /// the message.
    pub(super) async fn refused(&self, name: &str, reason: &str) -> String {
        let (status, message) = self.reason(name, "Loaded", reason).await;
        assert_eq!(status, "False");
        // Rules stand at the end.
        let keeps_running = message.starts_with("the former version 1.0.0 keeps running; ")
            || message.ends_with("; the former version 1.0.0 keeps running");
        assert!(keeps_running, "{message}");
        let (status, message_of_ready) = self.reason(name, "Ready", "FormerVersion").await;
        assert_eq!(status, "True");
        assert!(message_of_ready.contains(&format!("({reason})")), "{message_of_ready}");
        message
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_breaks_when_it_is_tried_is_refused_and_leaves_nothing_behind() {
    let place = Place::with_first(&[played("a")]).await;
    let undeclared = manifest(&object("v1/Secret", "s", &json!({})));
    let cases = [
        ("panics", json!({"panics": "no such rule"}), "panicked: no such rule"),
        ("hangs", json!({"hangs": true}), "ran past its limit of 200ms"),
        (
            "returns what is not valid",
            json!({"returns": outcome(&json!({"apply": [undeclared]}))}),
            "the outcome is not valid: ",
        ),
    ];
    let key = place.reports.borrow()[0].key.clone();
    let (before, record) = (place.rest(), place.host.record(&key).unwrap());
    let runs = place.runs("rules");
    for (case, script, expected) in cases {
        let next = makes("2.0.0").script(script);
        place.puppet("rules", &next, &json!({"limits": {"deadline": "200ms"}})).await;
        let message = place.refused("rules", "TrialFailed").await;
        let begin = "version 2.0.0 broke on 1 of the 1 objects that it was tried with, without writing; the first, a/rules/objects:a/a: ";
        assert!(message.starts_with(begin) && message.contains(expected), "{case}: {message}");
        assert_eq!(place.rest(), before, "{case}: nothing was written, no event either");
        assert_eq!(place.host.record(&key).unwrap(), record, "{case}");
        assert_eq!(
            (place.runs("rules"), place.versions()),
            (runs, vec!["1.0.0".to_owned()]),
            "{case}"
        );
    }
    place.apply(&[played("b")]).await;
    place.until_made_by("b", "1.0.0").await;
    // A better version.
    place.puppet("rules", &makes("3.0.0"), &json!({})).await;
    place.until_made_by("a", "3.0.0").await;
    assert_eq!(place.reason("rules", "Loaded", "Loaded").await.1, "puppet 3.0.0 is loaded");
    assert_eq!(place.versions(), ["1.0.0", "3.0.0"]);
}

/// Returns the definition of Rules.
fn rules() -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "rules.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Rule", "plural": "rules", "singular": "rule", "listKind": "RuleList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// Returns a Processor of the guest `hooks`, whose conversions misbehave like this.
fn converts(deed: &str) -> Value {
    let spec = json!({
        "module": {"path": "hooks.wasm"}, "serviceAccountName": "puppet", "config": {"do": deed},
    });
    object("mortise.dev/v1alpha1/Processor", "rules", &json!({"spec": spec}))
}

/// In real time, in which conversions are tried.
#[tokio::test]
async fn a_version_whose_conversions_lose_a_field_is_refused_and_the_object_is_named() {
    let place = Place::new().await;
    place.put("hooks.wasm", "tests/guests/hooks");
    let rule = |name: &str, spec: Value| object(RULE, name, &json!({"spec": spec}));
    let noted = rule("noted", json!({"size": 2, "note": "kept"}));
    place.apply(&[rules()]).await;
    place.apply(&[rule("bare", json!({"size": 1})), noted, converts("")]).await;
    place.reason("rules", "Synced", "Synced").await;

    place.apply(&[converts("forget")]).await;
    let (status, message) = place.reason("rules", "Loaded", "TrialFailed").await;
    assert_eq!(status, "False");
    let expected = "version 0.1.0 breaks Rule example.com/v1 `a/noted` on the way to example.com/v2 and back: `spec.note` is not as it was; the former version 0.1.0 keeps running";
    assert_eq!(message, expected);
    let (status, message) = place.reason("rules", "Ready", "FormerVersion").await;
    assert_eq!(status, "True");
    assert!(message.contains("(TrialFailed)"), "{message}");

    // An annotation that is added is no loss.
    place.apply(&[converts("annotate")]).await;
    assert_eq!(place.reason("rules", "Loaded", "Loaded").await.1, "hooks 0.1.0 is loaded");
}

#[tokio::test(start_paused = true)]
async fn the_first_version_of_a_processor_runs_without_a_trial() {
    let place = Place::new().await;
    place.apply(&[played("a"), harmless("b")]).await;
    place.puppet("rules", &makes("1.0.0").script(json!({"panics": "no"})), &json!({})).await;
    let (_, message) = place.reason("rules", "Synced", "ObjectsFail").await;
    assert!(
        message.starts_with("1 of 2 objects fail") && message.contains("panicked: no"),
        "{message}"
    );
    assert_eq!(place.reason("rules", "Ready", "Runs").await.0, "True");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_breaks_every_version_keeps_none_from_being_swapped_in() {
    let bad = [scripted("a1", r#"{"panics": "bad"}"#), scripted("a2", r#"{"panics": "bad"}"#)];
    let place = Place::new().await;
    place.apply(&bad).await;
    place.apply(&[played("b")]).await;
    place.puppet("rules", &makes("1.0.0"), &json!({})).await;
    place.until_made_by("b", "1.0.0").await;
    let (_, message) = place.reason("rules", "Synced", "ObjectsFail").await;
    assert!(message.starts_with("2 of 3 objects fail"), "{message}");
    place.puppet("rules", &makes("2.0.0"), &json!({})).await;
    place.until_made_by("b", "2.0.0").await;
    // The version also passes its first minute: most of its calls fail, and none of that is its
    // fault.
    tokio::time::sleep(Duration::from_secs(90)).await;
    assert_eq!(place.host.trust("a/rules"), Trust::Proven);
    assert_eq!(place.reason("rules", "Loaded", "Loaded").await.0, "True");
    assert_eq!(place.maker("b").await, "2.0.0");
}

/// Returns three objects with which every version succeeds, in two other namespaces, and `others`.
/// One object of each namespace is tried, so most trials succeed.
pub(super) fn tried_and(others: &[&str]) -> Vec<Value> {
    let tried = [("a1", "b"), ("a2", "c"), ("a3", "b")];
    let tried = tried.map(|(name, namespace)| {
        let mut object = harmless(name);
        merge(&mut object, &json!({"metadata": {"namespace": namespace}}));
        object
    });
    tried.into_iter().chain(others.iter().map(|name| played(name))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_trial_accepts_a_single_failing_object_and_skips_paused_objects() {
    let place = Place::with_first(&[played("a"), played("b"), played("c")]).await;
    let (suspended, runs) = (json!({"suspend": true}), json!({"suspend": false}));
    place.puppet("rules", &makes("1.0.0"), &suspended).await;
    place.reason("rules", "Ready", "Suspended").await;
    place.until_idle().await;
    // The first object by name; it is not known yet that it breaks every version.
    let breaks = json!({"data": {"script": r#"{"panics": "hostile"}"#}});
    place.change(CONFIG_MAP, "a", breaks).await;
    place.puppet("rules", &makes("2.0.0"), &runs).await;
    place.until_made_by("b", "2.0.0").await;
    place.until_made_by("c", "2.0.0").await;
    place.reason("rules", "Synced", "ObjectsFail").await;
    let paused = ["p1", "p2", "p3"].map(|name| {
        let mut object = played(name);
        merge(&mut object, &json!({"metadata": {"annotations": {"mortise.dev/paused": "true"}}}));
        object
    });
    place.apply(&paused).await;
    place.until_idle().await;
    place.puppet("rules", &makes("3.0.0").script(json!({"panics": "no"})), &json!({})).await;
    let (_, message) = place.reason("rules", "Loaded", "TrialFailed").await;
    assert!(message.starts_with("version 3.0.0 broke on 2 of the 2 objects"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_version_that_breaks_on_most_objects_is_taken_back() {
    let others = ["b1", "b2", "b3", "b4"];
    let place = Place::with_first(&tried_and(&others)).await;
    let bad = makes("2.0.0").script(json!({"panics": "no such rule"}));
    place.puppet("rules", &bad, &json!({})).await;
    let message = place.refused("rules", "RolledBack").await;
    assert!(
        message.starts_with("version 2.0.0 was rolled back: it broke on 4 of the first ")
            && message.contains("objects that it was called for; the first, a/rules/objects:a/b"),
        "{message}"
    );
    assert!(message.contains("panicked: no such rule"), "{message}");
    assert!(
        message.contains("it is tried again when the Processor or the module is changed"),
        "{message}"
    );
    place.reason("rules", "Synced", "Synced").await;
    for name in others {
        assert_eq!(place.maker(name).await, "1.0.0", "nothing was lost");
    }
    place.change(CONFIG_MAP, "b1", json!({"data": {"sequence": "1"}})).await;
    place.until_idle().await;

    // The version is tried again only after a change of spec or module.
    let runs_of_bad = || {
        let is_bad = |report: &&Report| report.version.as_ref().unwrap().version == "2.0.0";
        place.reports.borrow().iter().filter(is_bad).count()
    };
    let before = runs_of_bad();
    place.account("another", &json!({"labels": {"mortise.dev/processor": "rules"}})).await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    place.refused("rules", "RolledBack").await;
    assert_eq!(runs_of_bad(), before);
    place.edit("rules", json!({"limits": {"concurrency": 2}})).await;
    place.until("rules", "it is tried again", |_| runs_of_bad() > before).await;
    place.refused("rules", "RolledBack").await;
    place.puppet("rules", &makes("3.0.0"), &json!({})).await;
    place.until_made_by("b1", "3.0.0").await;
    assert_eq!(place.reason("rules", "Loaded", "Loaded").await.0, "True");
}

#[tokio::test(start_paused = true)]
async fn a_version_does_not_come_back_as_an_account_that_the_host_may_no_longer_act_as() {
    let place = Place::new().await;
    place.apply(&tried_and(&["b1", "b2", "b3", "b4"])).await;
    place.account("former", &json!({"labels": {"mortise.dev/processor": "rules"}})).await;
    place.puppet("rules", &makes("1.0.0"), &json!({"serviceAccountName": "former"})).await;
    place.reason("rules", "Synced", "Synced").await;
    place.tap.lets_act_as("former", false);
    let bad = makes("2.0.0").script(json!({"panics": "no such rule"}));
    place.puppet("rules", &bad, &json!({})).await;
    let (status, message) = place.reason("rules", "Loaded", "AccountNotGranted").await;
    assert_eq!(status, "False", "{message}");
    assert!(message.starts_with("version 2.0.0 broke on 4 of the first "), "{message}");
    let says =
        "and version 1.0.0 is not restored: this host may not act as the ServiceAccount `former`";
    assert!(message.contains(says), "{message}");
    place.until_idle().await;
    place.until_at_work_are(&["2.0.0"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_version_that_breaks_on_half_of_the_objects_or_after_its_minute_stays() {
    let place = Place::with_first(&tried_and(&["b1", "b2", "b3"])).await;
    let next = makes("2.0.0").script(json!({"panics": "no"}));
    place.puppet("rules", &next, &json!({})).await;
    let (_, message) = place.reason("rules", "Synced", "ObjectsFail").await;
    assert!(message.starts_with("3 of 6 objects fail"), "{message}");
    assert!(matches!(
        place.host.trust("a/rules"),
        Trust::OnProbation { until: Some(_), works: true }
    ));
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(place.host.trust("a/rules"), Trust::Proven);
    for name in ["c1", "c2", "c3", "c4"] {
        place.apply(&[played(name)]).await;
    }
    let (_, message) = place.reason("rules", "Synced", "ObjectsFail").await;
    place
        .until("rules", &format!("all fail, after {message}"), |processor| {
            condition(processor, "Synced")
                .is_some_and(|of| of.message.starts_with("7 of 10 objects fail"))
        })
        .await;
    assert_eq!(place.reason("rules", "Loaded", "Loaded").await.1, "puppet 2.0.0 is loaded");
}

#[tokio::test(start_paused = true)]
async fn behind_a_version_that_is_not_known_yet_stands_the_last_that_is() {
    // Nothing runs while the Processor is suspended, so no version is proven.
    let place = Place::with_first(&tried_and(&["b1", "b2", "b3", "b4"])).await;
    let suspended = json!({"suspend": true});
    place.puppet("rules", &makes("2.0.0"), &suspended).await;
    assert_eq!(place.reason("rules", "Loaded", "Loaded").await.1, "puppet 2.0.0 is loaded");
    let bad = makes("3.0.0").script(json!({"panics": "no"}));
    place.puppet("rules", &bad, &suspended).await;
    assert_eq!(place.reason("rules", "Loaded", "Loaded").await.1, "puppet 3.0.0 is loaded");
    place.puppet("rules", &bad, &json!({"suspend": false})).await;
    place.refused("rules", "RolledBack").await;
    place.until_idle().await;
    assert_eq!(place.versions(), ["1.0.0", "3.0.0"]);
}

#[tokio::test(start_paused = true)]
async fn a_spec_that_is_changed_again_and_again_is_put_to_work_once() {
    let place = Place::with_first(&[played("a")]).await;
    for version in 2..=11 {
        place.puppet("rules", &makes(&format!("{version}.0.0")), &json!({})).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    place.until_made_by("a", "11.0.0").await;
    assert_eq!(place.reason("rules", "Loaded", "Loaded").await.1, "puppet 11.0.0 is loaded");
    place.reason("rules", "Synced", "Synced").await;
    assert_eq!(place.versions(), ["1.0.0", "11.0.0"], "one swap, not ten");
    let report = |version: &str| {
        let reports = place.reports.borrow();
        reports.iter().filter(|report| report.version.as_ref().unwrap().version == version).count()
    };
    assert_eq!((report("1.0.0"), report("11.0.0")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn kinds_that_both_versions_read_are_not_listed_or_watched_again() {
    let place = Place::with_first(&[played("a")]).await;
    let asked = |place: &Place| (place.tap.all_lists(), place.tap.watches());
    let (before, watches) = (asked(&place), place.host.watches());
    for version in ["2.0.0", "3.0.0"] {
        place.puppet("rules", &makes(version), &json!({})).await;
        place.until_made_by("a", version).await;
    }
    // A refused version opens no watch either.
    place.puppet("rules", &makes("4.0.0").script(json!({"panics": "no"})), &json!({})).await;
    place.reason("rules", "Loaded", "TrialFailed").await;
    assert_eq!(asked(&place), before);
    assert_eq!(place.host.watches(), watches, "none has gone");
}

#[tokio::test(start_paused = true)]
async fn a_new_field_is_listed_while_the_former_version_keeps_running() {
    let reads = |version: &str, fields: &[&str]| {
        let mut of = selection(POD, "");
        merge(&mut of, &json!({"fields": fields}));
        makes(version).reads(&of)
    };
    let place = Place::new().await;
    place.apply(&[played("a")]).await;
    place.puppet("rules", &reads("1.0.0", &["metadata.labels"]), &json!({})).await;
    place.reason("rules", "Synced", "Synced").await;
    let lists = place.tap.lists("pods");
    let slow = Filter::resource("pods").verbs([Verb::List, Verb::Watch]);
    place.api.faults().inject(Fault::Latency(Duration::from_secs(5)), slow, 1);
    place.puppet("rules", &reads("2.0.0", &["metadata.labels", "spec.nodeName"]), &json!({})).await;
    // While the list is in progress, the former version stays active.
    while place.api.faults().pending() > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    place.apply(&[played("b")]).await;
    place.until_made_by("b", "1.0.0").await;
    place.until_made_by("b", "2.0.0").await;
    assert_eq!(place.reason("rules", "Loaded", "Loaded").await.1, "puppet 2.0.0 is loaded");
    assert_eq!(place.tap.lists("pods"), lists + 1);
    assert_eq!(place.reason("rules", "Ready", "Runs").await.0, "True");
}

#[tokio::test(start_paused = true)]
async fn a_version_for_a_missing_kind_waits_and_keeps_existing_objects() {
    let place = Place::with_first(&[played("a")]).await;
    let other = Play::new("puppet")
        .version("2.0.0")
        .reconciles("objects", &selection(WIDGET, ""))
        .writes(&selection(CONFIG_MAP, ""), &["create", "update", "delete"])
        .script(returns("2.0.0"));
    place.puppet("rules", &other, &json!({})).await;
    let message = place.refused("rules", "KindNotServed").await;
    assert!(
        message.starts_with(
            "version 2.0.0 waits for the CustomResourceDefinition of Widget x.dev/v1;"
        ),
        "{message}"
    );
    place.apply(&[played("b")]).await;
    place.until_made_by("b", "1.0.0").await;

    place.apply(&[refused::widgets()]).await;
    place.apply(&[object(WIDGET, "w", &json!({}))]).await;
    place.until_made_by("w", "2.0.0").await;
    assert_eq!(place.reason("rules", "Loaded", "Loaded").await.1, "puppet 2.0.0 is loaded");
    let synced = place.reason("rules", "Synced", "Synced").await;
    assert_eq!(synced.1, "all 1 objects are reconciled", "of the new kind");
    let status = place.processors().get("rules").await.unwrap().status.unwrap();
    assert_eq!(status.reconciles[0].kind, "Widget");
    assert_eq!((place.maker("a").await, place.maker("b").await), ("1.0.0".into(), "1.0.0".into()));
    // Back to the first kind.
    place.puppet("rules", &makes("3.0.0"), &json!({})).await;
    place.until_made_by("a", "3.0.0").await;
}

#[tokio::test(start_paused = true)]
async fn a_version_that_declares_more_than_the_account_may_is_refused_until_it_may() {
    let place = Place::new().await;
    let rbac = "rbac.authorization.k8s.io";
    let role = |rules: Value| json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "own"}, "rules": rules});
    let rules = json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
    ]);
    let subject = json!({"kind": "ServiceAccount", "name": "own", "namespace": NAMESPACE});
    place
        .apply(&[
            role(rules.clone()),
            json!({
                "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "own"},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "own"}, "subjects": [subject],
            }),
            object("v1/ServiceAccount", "own", &json!({"metadata": {"labels": {"mortise.dev/processor": "rules"}}})),
            played("a"),
        ])
        .await;
    let own = json!({"serviceAccountName": "own"});
    place.puppet("rules", &makes("1.0.0"), &own).await;
    place.reason("rules", "Synced", "Synced").await;

    let more = |version: &str| makes(version).reads(&selection("v1/Secret", ""));
    place.puppet("rules", &more("2.0.0"), &own).await;
    let message = place.refused("rules", "RightsMissing").await;
    assert!(
        message.ends_with(
            "the ServiceAccount `own` lacks what version 2.0.0 declares; the rules for it:\n# of a ClusterRole\n- {\"apiGroups\":[\"\"],\"resources\":[\"secrets\"],\"verbs\":[\"get\",\"list\",\"watch\"]}"
        ),
        "{message}"
    );
    place.apply(&[played("b")]).await;
    place.until_made_by("b", "1.0.0").await;

    let mut wider = rules.clone();
    let secrets =
        json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"]});
    wider.as_array_mut().unwrap().push(secrets);
    place.apply(&[role(wider)]).await;
    place.until_made_by("b", "2.0.0").await;
    assert_eq!(place.reason("rules", "Ready", "Runs").await.0, "True");

    // A right that the former version lacks too is no reason for a refusal.
    place.apply(&[role(rules)]).await;
    place.reason("rules", "Ready", "RightsMissing").await;
    place.puppet("rules", &more("3.0.0"), &own).await;
    place.until_made_by("b", "3.0.0").await;
}

#[tokio::test(start_paused = true)]
async fn a_version_that_would_leave_finalizers_to_nobody_is_refused_until_none_is_held() {
    let held = json!({"finalizers": ["example.com/held"]});
    let declares = |version: &str| {
        Play::new("puppet").version(version).reconciles_with(
            "objects",
            &selection(CONFIG_MAP, "play=yes"),
            &held,
        )
    };
    let place = Place::new().await;
    place.apply(&[played("a"), harmless("b")]).await;
    let holds = declares("1.0.0").script(json!({"returns": outcome(&held)}));
    place.puppet("rules", &holds, &json!({})).await;
    place.reason("rules", "Synced", "Synced").await;

    place.puppet("rules", &makes("2.0.0"), &json!({})).await;
    let message = place.refused("rules", "FinalizersHeld").await;
    assert!(
        message.starts_with(
            "version 2.0.0 does not declare the finalizer `example.com/held`, which 1 objects hold, the first ConfigMap v1 `a/a`: "
        ),
        "{message}"
    );

    // A version that still declares the finalizer gives it up.
    let gives_up =
        declares("1.1.0").script(json!({"returns": outcome(&json!({"finalizers": []}))}));
    place.puppet("rules", &gives_up, &json!({})).await;
    let is_free = |found: Option<&Value>| {
        found.is_some_and(|found| found["metadata"]["finalizers"].is_null())
    };
    place.until_object(CONFIG_MAP, "a", "given up", is_free).await;
    place.puppet("rules", &makes("2.0.0"), &json!({})).await;
    place.until_made_by("a", "2.0.0").await;
}

#[tokio::test(start_paused = true)]
async fn concurrent_swaps_of_two_processors_do_not_wait_for_each_other() {
    let place = Place::with_first(&[played("a")]).await;
    let other = |version: &str| {
        let data = json!({"version": version, "sequence": "$(sequence)"});
        let made = manifest(&made("$(name)-of-other", &data));
        Play::new("other")
            .version(version)
            .reconciles("others", &selection(CONFIG_MAP, "play=yes"))
            .writes(&selection(CONFIG_MAP, ""), &["create", "update"])
            .script(json!({"returns": outcome(&json!({"apply": [made]}))}))
    };
    place.puppet("other", &other("1.0.0"), &json!({})).await;
    place.reason("other", "Synced", "Synced").await;
    let slow = Filter::resource("pods").verbs([Verb::List, Verb::Watch]);
    place.api.faults().inject(Fault::Latency(Duration::from_secs(8)), slow, 1);
    place.puppet("rules", &makes("2.0.0").reads(&selection(POD, "")), &json!({})).await;
    place.puppet("other", &other("2.0.0"), &json!({})).await;
    place.change(CONFIG_MAP, "a", json!({"data": {"sequence": "1"}})).await;
    let is_by = |version: &'static str| {
        move |found: Option<&Value>| found.is_some_and(|found| found["data"]["version"] == version)
    };
    place.until_object(CONFIG_MAP, "a-of-other", "the fast one", is_by("2.0.0")).await;
    assert_eq!(place.maker("a").await, "1.0.0", "the slow one lists still");
    place.until_made_by("a", "2.0.0").await;
    for name in ["rules", "other"] {
        assert!(place.reason(name, "Loaded", "Loaded").await.1.ends_with(" 2.0.0 is loaded"));
        place.reason(name, "Synced", "Synced").await;
    }
    // Each object has run on its new version by now; neither loses a later change.
    for sequence in ["2", "3"] {
        place.change(CONFIG_MAP, "a", json!({"data": {"sequence": sequence}})).await;
        for name in ["a-made", "a-of-other"] {
            let has_it = |found: Option<&Value>| {
                found.is_some_and(|found| found["data"]["sequence"] == sequence)
            };
            place.until_object(CONFIG_MAP, name, sequence, has_it).await;
        }
    }
    let last: BTreeSet<String> = place
        .host
        .status()
        .iter()
        .map(|status| format!("{} {}", status.version.processor, status.version.version))
        .collect();
    assert_eq!(last, ["a/other 2.0.0", "a/rules 2.0.0"].map(str::to_owned).into());
}

#[tokio::test(start_paused = true)]
async fn the_former_version_finalizes_if_the_requested_version_is_refused() {
    let finalizers = json!({"finalizers": ["example.com/held"]});
    let held = |version: &str, script: Value| {
        Play::new("puppet")
            .version(version)
            .reconciles_with("objects", &selection(CONFIG_MAP, "play=yes"), &finalizers)
            .script(script)
    };
    let place = Place::new().await;
    place.apply(&[played("a")]).await;
    // The processor removes its finalizer when the object is deleted, by the object's own script.
    let holds = json!({"returns": outcome(&finalizers)});
    place.puppet("rules", &held("1.0.0", holds), &json!({})).await;
    let is_held = |found: Option<&Value>| {
        found.is_some_and(|found| found["metadata"]["finalizers"] == finalizers["finalizers"])
    };
    place.until_object(CONFIG_MAP, "a", "it is held", is_held).await;
    place.puppet("rules", &held("2.0.0", json!({"panics": "no"})), &json!({})).await;
    place.refused("rules", "TrialFailed").await;
    let gives_back = json!({"returns": outcome(&json!({"finalizers": []}))}).to_string();
    place.change(CONFIG_MAP, "a", json!({"data": {"script": gives_back}})).await;
    place.change(CONFIG_MAP, "a", json!({"metadata": {"finalizers": ["example.com/held"]}})).await;
    place.delete("rules").await;
    place.until_gone("rules").await;
    let left = place.objects(CONFIG_MAP).await.get("a").await.unwrap();
    assert_eq!(left.metadata.finalizers, None);
    assert!(!place.versions().contains(&"2.0.0".to_owned()));
}
