//! Processors with accounts: they read and write what their account may, and nothing else.

use std::time::Duration;

use mortise::local;
use mortise_core::{queue::Cause, reconcile::Report};
use mortise_embedded_api::{Fault, Filter, Verb};
use mortise_host::{
    host::{Drive, Loaded, ProcessorStatus},
    operator::admin::Admin,
};
use serde_json::{Value, json};

use super::{
    CONFIG_MAP, NAMESPACE, Scene, Stage, applies,
    kinds::{WIDGET, answers, definition},
    merge, names, object,
    play::Play,
    scripted, selection, text,
    webhooks::hooks_with,
};

const SECRET: &str = "v1/Secret";
const SERVICE: &str = "v1/Service";
const RBAC: &str = "rbac.authorization.k8s.io/v1";
/// The rights that a processor needs to reconcile `ConfigMaps`, and to write events.
const RECONCILES: [(&str, &str); 2] =
    [("configmaps", "get list watch patch"), ("events", "create patch")];
/// The time after which a revoked right has no effect any more.
const REVOCATION_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns a processor's `ClusterRole`, by resource and verbs.
fn role(name: &str, rules: &[(&str, &str)]) -> Value {
    let rule = |(resource, verbs): &(&str, &str)| {
        let verbs: Vec<&str> = verbs.split(' ').collect();
        json!({"apiGroups": ["", "example.com"], "resources": [resource], "verbs": verbs})
    };
    let rules: Vec<Value> = RECONCILES.iter().chain(rules).map(rule).collect();
    json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
}

/// Returns the binding of an account to the `ClusterRole` of its name.
fn binding(name: &str) -> Value {
    json!({
        "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": name}],
    })
}

/// Returns a Role in the namespace, and its binding to an account.
fn in_namespace(account: &str, rules: &[(&str, &str)]) -> [Value; 2] {
    let (mut role, mut binding) = (role("more", rules), binding("more"));
    merge(&mut role, &json!({"kind": "Role", "metadata": {"namespace": NAMESPACE}}));
    merge(&mut binding, &json!({"kind": "RoleBinding", "metadata": {"namespace": NAMESPACE}}));
    binding["roleRef"]["kind"] = json!("Role");
    binding["subjects"][0]["name"] = json!(account);
    [role, binding]
}

/// Returns a puppet for the `ConfigMaps` labelled with its name.
fn play(name: &str) -> Play {
    Play::new(name).reconciles("objects", &selection(CONFIG_MAP, &format!("play={name}")))
}

/// Loads a puppet as the Processor `a/NAME`, with the account of that name.
async fn with_account(play: &Play) -> Loaded {
    let mut loaded = play.load().await;
    let name = loaded.description.name.clone();
    loaded.settings.account = Some(format!("{NAMESPACE}/{name}").parse().unwrap());
    loaded.settings.namespace = NAMESPACE.into();
    loaded.settings.name = Some(name.as_str().into());
    loaded
}

/// Returns an object with a script for one of the puppets.
fn task(name: &str, play: &str, script: &Value) -> Value {
    let mut task = scripted(name, &script.to_string());
    task["metadata"]["labels"]["play"] = json!(play);
    task
}

/// Returns a script that reads a secret, and all secrets of the namespace.
fn reads_secrets() -> Value {
    let mut list = selection(SECRET, "");
    merge(&mut list, &json!({"namespace": NAMESPACE}));
    json!({"reads": [{"get": {"ref": secret_ref("s")}}, {"list": {"of": list}}]})
}

fn secret_ref(name: &str) -> Value {
    json!({"cluster": "", "kind": selection(SECRET, "")["kind"], "namespace": NAMESPACE, "name": name})
}

fn secret(value: &str) -> Value {
    object(SECRET, "s", &json!({"stringData": {"value": value}}))
}

/// Starts a host with these processors, whose accounts have the rights of the roles of their names.
async fn stage(objects: &[Value], plays: &[Play], roles: &[Value]) -> Stage {
    let scene = Scene::new(Vec::new());
    for object in objects.iter().chain(roles) {
        scene.load(object);
    }
    let mut stage = scene.start(Drive::Caller);
    for play in plays {
        let loaded = with_account(play).await;
        scene_binding(&stage, &loaded);
        stage.host.swap(loaded.clone()).await.unwrap();
        stage.loaded.push(loaded);
    }
    stage
}

fn scene_binding(stage: &Stage, loaded: &Loaded) {
    stage.api.load(binding(&loaded.description.name), true).unwrap();
}

impl Stage {
    /// Replaces the rights of the account of this name.
    async fn grant(&self, name: &str, rules: &[(&str, &str)]) {
        self.apply(&[role(name, rules)]).await;
    }

    /// Returns the runs within the time that a change of rights may take to be noticed.
    async fn noticed(&self) -> Vec<Report> {
        tokio::time::sleep(REVOCATION_TIMEOUT).await;
        self.settle().await
    }

    fn status_of(&self, name: &str) -> ProcessorStatus {
        let is_it =
            |status: &ProcessorStatus| *status.version.processor == *format!("{NAMESPACE}/{name}");
        self.host.status().into_iter().find(is_it).unwrap()
    }

    fn is_watched(&self, of: &str) -> bool {
        self.host.watches().iter().any(|watch| watch.kind == super::kind(of))
    }

    async fn metric(&self, series: &str) -> Option<String> {
        let client = kube::Client::new(Admin::of(&self.host).router(), "default");
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        let text = client.request_text(request).await.unwrap();
        let mut values = text.lines().filter_map(|line| line.strip_prefix(series));
        values.next().map(|value| value.trim().to_owned())
    }
}

fn last(reports: &[Report]) -> &Report {
    reports.last().expect("at least one run")
}

#[tokio::test(start_paused = true)]
async fn reads_are_given_while_the_account_may_and_denied_soon_after() {
    let reader = task("reader", "one", &reads_secrets());
    let play = play("one").reads(&selection(SECRET, ""));
    let stage = stage(&[secret("x"), reader], &[play], &[role("one", &[])]).await;
    let reports = stage.settle().await;
    let denied = |text: &str| json!({"Err": {"Denied": format!("`a/one` may not {text}")}});
    let nothing = [denied("get secrets `a/s`"), denied("list secrets in namespace `a`")];
    assert_eq!(answers(last(&reports)), nothing);
    assert!(!stage.is_watched(SECRET), "nobody may");
    let told = ["may not get secrets `a/s`", "may not list secrets in namespace `a`"];
    assert_eq!(stage.status_of("one").denied, told);
    assert!(
        stage
            .status_of("one")
            .missing_rights
            .contains(&"may not watch secrets in all namespaces".to_owned())
    );
    let series = r#"mortise_denied_total{processor="a/one",verb="get",kind="Secret",cluster=""}"#;
    assert_eq!(stage.metric(series).await.as_deref(), Some("1"));
    let grant = last(&reports).record.ran_on.clone().unwrap().grant;

    stage.grant("one", &[("secrets", "get list watch")]).await;
    let reports = stage.noticed().await;
    let is_by_rights = |report: &Report| report.causes.contains(&Cause::Rights);
    assert!(reports.iter().any(is_by_rights), "{reports:#?}");
    let given = answers(last(&reports));
    assert!(text(&given[0], "/Ok").contains("\"name\":\"s\""), "{given:?}");
    assert_eq!(given[1]["Ok"].as_array().map(Vec::len), Some(1), "{given:?}");
    let status = stage.status_of("one");
    assert_eq!((status.denied, status.missing_rights), (vec![], vec![]));
    assert_ne!(last(&reports).record.ran_on.clone().unwrap().grant, grant);

    stage.edit(SECRET, "s", json!({"metadata": {"labels": {"a": "b"}}})).await;
    let woken = stage.ready().await;
    assert_eq!(names(&woken), ["reader".to_owned()].into(), "it is watched");
    stage.run(woken).await;

    stage.grant("one", &[]).await;
    let reports = stage.noticed().await;
    assert_eq!(answers(last(&reports)), nothing);
    assert!(!stage.is_watched(SECRET), "nobody may any more");
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_handed_over_to_another_account_that_may() {
    let plays = ["one", "two"].map(|name| play(name).reads(&selection(SECRET, "")));
    let tasks = ["one", "two"].map(|name| task(&format!("reader-{name}"), name, &reads_secrets()));
    let rights = [("secrets", "get list watch")];
    let objects = [&tasks[..], &[secret("x")]].concat();
    let stage = stage(&objects, &plays, &[role("one", &rights), role("two", &rights)]).await;
    stage.settle().await;
    let lists = stage.tap.lists("secrets");
    assert_eq!(lists, 1, "one watch for both");

    stage.grant("one", &[]).await;
    let reports = stage.noticed().await;
    assert!(stage.is_watched(SECRET));
    assert_eq!(stage.tap.lists("secrets"), 2, "another account has begun to watch");
    let of = |name: &str| reports.iter().rfind(|report| report.key.name() == name).map(answers);
    assert!(of("reader-one").unwrap()[0]["Err"]["Denied"].is_string());
    stage.edit(SECRET, "s", json!({"metadata": {"labels": {"a": "b"}}})).await;
    let reports = stage.settle().await;
    let ran: Vec<&str> = reports.iter().map(|report| report.key.name()).collect();
    assert_eq!(ran, ["reader-two"], "who may not read it hears nothing of it");
    assert!(text(&answers(&reports[0])[0], "/Ok").contains("\"a\":\"b\""));

    stage.grant("two", &[]).await;
    stage.noticed().await;
    assert!(!stage.is_watched(SECRET));
}

#[tokio::test(start_paused = true)]
async fn objects_readable_only_by_get_are_read_live_and_not_watched() {
    let reader = task("reader", "one", &reads_secrets());
    let play = play("one").reads(&selection(SECRET, ""));
    let rights = [("secrets", "get")];
    let stage = stage(&[secret("x"), reader.clone()], &[play], &[role("one", &rights)]).await;
    let reports = stage.settle().await;
    let given = answers(last(&reports));
    assert!(text(&given[0], "/Ok").contains("\"name\":\"s\""), "{given:?}");
    assert!(given[1]["Err"]["Denied"].is_string(), "{given:?}");
    assert!(last(&reports).record.reads[0].live);
    assert!(last(&reports).record.skippable().is_err(), "it may have changed unnoticed");
    assert!(!stage.is_watched(SECRET));

    stage.edit(SECRET, "s", json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert!(stage.settle().await.is_empty(), "nobody watches it");
    stage.edit(CONFIG_MAP, "reader", json!({"metadata": {"annotations": {"again": "yes"}}})).await;
    let reports = stage.settle().await;
    assert!(text(&answers(last(&reports))[0], "/Ok").contains("\"a\":\"b\""), "as it is now");
    stage.delete(SECRET, "s").await;
    stage.edit(CONFIG_MAP, "reader", json!({"metadata": {"annotations": {"again": "2"}}})).await;
    assert_eq!(answers(last(&stage.settle().await))[0], json!({"Ok": null}));
}

#[tokio::test(start_paused = true)]
async fn a_live_read_that_is_not_answered_takes_no_longer_than_the_call_may() {
    let reader = task("reader", "one", &reads_secrets());
    let play = play("one").reads(&selection(SECRET, ""));
    let rights = [("secrets", "get")];
    let stage = stage(&[secret("x"), reader], &[play], &[role("one", &rights)]).await;
    let ready = stage.ready().await;
    let gets = Filter::resource("secrets").verbs([Verb::Get]);
    stage.api.faults().inject(Fault::Latency(Duration::from_hours(1)), gets, usize::MAX);
    let reports = stage.run(ready).await;
    let failure = last(&reports).failure.as_deref().unwrap_or_default();
    assert!(failure.contains("ran past its limit of"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn rights_in_one_namespace_suffice_for_reads_in_that_namespace() {
    let reader = task("reader", "one", &reads_secrets());
    let play = play("one").reads(&selection(SECRET, ""));
    let [role_of, bound] = in_namespace("one", &[("secrets", "get list watch")]);
    let roles = [role("one", &[]), role_of, bound];
    let stage = stage(&[secret("x"), reader], &[play], &roles).await;
    let reports = stage.settle().await;
    assert!(answers(&reports[0])[0]["Err"]["Unavailable"].is_string(), "it is not watched yet");
    let given = answers(last(&reports));
    assert!(text(&given[0], "/Ok").contains("\"name\":\"s\""), "{given:?}");
    let watch = stage.host.watches().into_iter().find(|watch| watch.kind.kind == "Secret").unwrap();
    assert_eq!(watch.scope.namespace.as_deref(), Some(NAMESPACE));
}

/// Prepares a processor that will apply the Service `made`, with an account without rights.
async fn about_to_write() -> Stage {
    let made = object(SERVICE, "made", &json!({"spec": {"ports": [{"port": 80}]}}));
    let mut writer = task("writer", "one", &json!({}));
    writer["data"]["script"] = json!(applies(&[made]));
    let play = play("one").writes(&selection(SERVICE, ""), &["create", "update"]);
    stage(&[writer], &[play], &[role("one", &[])]).await
}

#[tokio::test(start_paused = true)]
async fn a_write_that_the_account_may_not_make_fails_and_is_made_when_it_may() {
    let stage = about_to_write().await;
    let ready = stage.ready().await;
    let reports = stage.run(ready).await;
    let failure = reports[0].failure.as_deref().unwrap_or_default();
    assert!(failure.contains("(403)") && failure.contains("cannot patch resource"), "{failure}");
    assert_eq!(stage.status_of("one").denied, ["may not patch services `a/made`"]);
    let series =
        r#"mortise_denied_total{processor="a/one",verb="patch",kind="Service",cluster=""}"#;
    assert_eq!(stage.metric(series).await.as_deref(), Some("1"));

    stage.grant("one", &[("services", "get list watch create patch")]).await;
    stage.noticed().await;
    assert!(stage.get(SERVICE, "made").is_some());
    assert_eq!(stage.status_of("one").denied, Vec::<String>::new());
    let made = stage.get(SERVICE, "made").unwrap();
    assert_eq!(text(&made, "/metadata/managedFields/0/operation"), "Apply");

    // The host itself has requested nothing but roles, accounts and kinds.
    let allowed = |request: &&String| {
        let is_source =
            ["rbac.authorization.k8s.io/v1/", "/serviceaccounts", "/customresourcedefinitions"]
                .iter()
                .any(|part| request.starts_with("GET ") && request.contains(part));
        let discovery =
            ["/api/v1", "/apis/apps/v1"].iter().any(|path| **request == format!("GET {path}"));
        is_source
            || discovery
            || ["subjectaccessreviews", "selfsubjectaccessreviews"]
                .iter()
                .any(|of| **request == format!("POST /apis/authorization.k8s.io/v1/{of}"))
    };
    let own = stage.tap.own();
    let other: Vec<&String> = own.iter().filter(|request| !allowed(request)).collect();
    assert!(other.is_empty(), "{other:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_write_is_made_as_soon_as_the_account_may_make_that_one() {
    let stage = about_to_write().await;
    let ready = stage.ready().await;
    stage.run(ready).await;
    let missing = stage.status_of("one").missing_rights;
    // Less than the processor declares, but enough for the refused write.
    stage.apply(&in_namespace("one", &[("services", "get list watch create patch")])).await;
    let reports = stage.noticed().await;
    let is_by_rights = |report: &Report| report.causes.contains(&Cause::Rights);
    assert!(reports.iter().any(is_by_rights), "{reports:#?}");
    assert!(stage.get(SERVICE, "made").is_some());
    assert_eq!(stage.status_of("one").missing_rights, missing);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_the_account_may_not_read_is_not_reconciled() {
    let writer = task("object", "one", &json!({}));
    let mut less = role("one", &[]);
    less["rules"][0]["verbs"] = json!(["list", "watch", "patch"]);
    let stage = stage(&[writer], &[play("one")], &[less]).await;
    let reports = stage.settle().await;
    let failure = last(&reports).failure.as_deref().unwrap_or_default();
    assert!(failure.contains("may not get configmaps `a/object`"), "{failure}");
    assert!(last(&reports).record.ran_on.is_none(), "it was not called");
    stage.grant("one", &[]).await;
    assert_eq!(last(&stage.noticed().await).failure, None);
}

#[tokio::test(start_paused = true)]
async fn reads_of_any_kind_are_limited_to_the_rights_of_the_account() {
    let mut any = selection(SECRET, "");
    merge(&mut any, &json!({"kind": {"version": "*", "kind": "*"}}));
    let services = selection(SERVICE, "");
    let reads = json!({"reads": [
        {"get": {"ref": secret_ref("s")}}, {"list": {"of": services}},
        {"get": {"ref": {"cluster": "", "kind": {"group": "apps", "version": "v1", "kind": "Deployment"}, "namespace": NAMESPACE, "name": "d"}}},
    ]});
    let rights = [("secrets", "get list watch")];
    let objects = [secret("x"), task("reader", "one", &reads)];
    let stage = stage(&objects, &[play("one").reads(&any)], &[role("one", &rights)]).await;
    let reports = stage.settle().await;
    assert!(
        answers(&reports[0])[0]["Err"]["Unavailable"].is_string(),
        "{:?}",
        answers(&reports[0])
    );
    let given = answers(last(&reports));
    assert!(text(&given[0], "/Ok").contains("\"name\":\"s\""), "{given:?}");
    assert_eq!(given[1]["Err"]["Denied"], "`a/one` may not list services in all namespaces");
    assert!(text(&given[2], "/Err/Denied").contains("is not declared"), "another group: {given:?}");
    stage.edit(SECRET, "s", json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(names(&stage.ready().await), ["reader".to_owned()].into());
}

#[tokio::test(start_paused = true)]
async fn objects_of_any_kind_are_written_and_restored_without_an_account() {
    let any = json!({
        "cluster": "", "kind": {"group": "*", "version": "*", "kind": "*"}, "namespace": null, "name": null,
        "labels": "", "matching": [], "fields": [],
    });
    let made = object(SERVICE, "made", &json!({"spec": {"ports": [{"port": 80}]}}));
    let mut script: Value = serde_json::from_str(&applies(&[made])).unwrap();
    merge(&mut script, &reads_secrets());
    let play = play("one").reads(&selection(SECRET, "")).writes(&any, &["create", "update"]);
    let scene = Scene::of_play(&play).await;
    scene.load(&secret("x"));
    scene.load(&task("reader", "one", &script));
    let stage = scene.start(Drive::Caller);
    let reports = stage.settle().await;
    assert!(text(&answers(last(&reports))[0], "/Ok").contains("\"name\":\"s\""), "{reports:#?}");
    assert!(stage.get(SERVICE, "made").is_some());
    // A produced object is restored, as objects of declared kinds are.
    stage.delete(SERVICE, "made").await;
    stage.settle().await;
    assert!(stage.get(SERVICE, "made").is_some());
}

#[tokio::test(start_paused = true)]
async fn reads_of_any_kind_include_kinds_that_are_served_later() {
    let mut any = selection(WIDGET, "");
    merge(&mut any, &json!({"kind": {"version": "*", "kind": "*"}}));
    let first = json!({"cluster": "", "kind": selection(WIDGET, "")["kind"], "namespace": NAMESPACE, "name": "first"});
    let reader = task("reader", "one", &json!({"reads": [{"get": {"ref": first}}]}));
    let rights = [("widgets", "get list watch")];
    let stage = stage(&[reader], &[play("one").reads(&any)], &[role("one", &rights)]).await;
    let reports = stage.settle().await;
    assert_eq!(answers(last(&reports)), [json!({"Err": "UnknownKind"})]);
    stage.apply(&[definition(), object(WIDGET, "first", &json!({}))]).await;
    // The host notices the CRD, reviews access, and watches and lists the kind.
    let reports = stage.noticed().await;
    assert!(
        text(&answers(last(&reports))[0], "/Ok").contains("\"name\":\"first\""),
        "{reports:#?}"
    );
}

#[tokio::test(start_paused = true)]
async fn reads_of_any_kind_include_fields_that_another_watch_omits() {
    let (mut any, mut little) = (selection(WIDGET, ""), selection(WIDGET, ""));
    merge(&mut any, &json!({"kind": {"version": "*", "kind": "*"}}));
    merge(&mut little, &json!({"fields": ["metadata.labels"]}));
    let first = json!({"cluster": "", "kind": selection(WIDGET, "")["kind"], "namespace": NAMESPACE, "name": "first"});
    let rights = [("widgets", "get list watch")];
    let plays = [play("two").reads(&little), play("one").reads(&any)];
    let stage = stage(&[], &plays, &[role("one", &rights), role("two", &rights)]).await;
    stage
        .apply(&[definition(), object(WIDGET, "first", &json!({"data": {"more": "than that"}}))])
        .await;
    stage.noticed().await;
    assert!(stage.is_watched(WIDGET));
    let reader = task("reader", "one", &json!({"reads": [{"get": {"ref": first}}]}));
    stage.apply(&[reader]).await;
    let reports = stage.noticed().await;
    assert!(text(&answers(last(&reports))[0], "/Ok").contains("than that"), "{reports:#?}");
}

/// Another processor holds objects in the stores of the host. What becomes of one in a conversion
/// would tell its fields to somebody who may not read them.
#[tokio::test]
async fn conversions_are_tried_only_with_objects_that_the_account_may_read() {
    for (rules, is_refused) in [(&[][..], false), (&[("rules", "get list watch")], true)] {
        let scene = Scene::new(vec![hooks_with("{}").await]);
        local::serve_untyped(&scene.api, &scene.loaded[0].description, |_| false);
        let rule = object("example.com/v1/Rule", "rule", &json!({"spec": {"note": "secret"}}));
        for object in [rule, role("hooks", rules), binding("hooks")] {
            scene.load(&object);
        }
        let stage = scene.start(Drive::Caller);
        stage.settle().await;
        let version = async |config: &str| {
            let mut loaded = hooks_with(config).await;
            loaded.settings.account = Some(format!("{NAMESPACE}/hooks").parse().unwrap());
            loaded.settings.namespace = NAMESPACE.into();
            loaded
        };
        stage.host.swap(version("{}").await).await.unwrap();
        let swapped = stage.host.swap_tried(version(r#"{"do": "forget"}"#).await).await;
        assert_eq!(swapped.is_err(), is_refused, "{rules:?}: {swapped:?}");
    }
}
