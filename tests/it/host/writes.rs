//! Writes that the API server refuses.

use std::{collections::BTreeSet, time::Duration};

use kube::api::{Patch, PatchParams};
use mortise_core::{queue::Cause, write::Action};
use mortise_embedded_api::{Fault, Filter, Verb};
use mortise_host::host::Drive;
use serde_json::{Value, json};

use super::{
    CONFIG_MAP, NAMESPACE, RULE, Scene, VIRTUAL_SERVICE, actions, applies, manifest, names, object,
    outcome,
    play::{Play, deletion},
    pod, rule, scripted, selection, service, text,
};

#[tokio::test(start_paused = true)]
async fn a_refused_write_is_told_to_the_processor_at_once_and_tried_again_after_a_while() {
    let scene = Scene::of_rules().await;
    scene.load(&service("shop"));
    scene.load(&pod("shop-1", "shop"));
    scene.load(&rule("orders", "shop"));
    let stage = scene.start(Drive::Caller);
    stage.settle().await;
    assert!(stage.is_ready("orders"));

    // The key of another processor applies another gateway to the same object.
    let made = stage.only(VIRTUAL_SERVICE, "orders-");
    let name = text(&made, "/metadata/name");
    let theirs = json!({
        "apiVersion": made["apiVersion"], "kind": made["kind"], "metadata": {"name": name}, "spec": {"gateways": ["b/theirs"]},
    });
    let other = PatchParams::apply("mortise/b/other/0123456789abcdef/apply").force();
    let client = stage.client(VIRTUAL_SERVICE, NAMESPACE).await;
    client.patch(name, &other, &Patch::Apply(theirs)).await.unwrap();

    let ready = stage.ready().await;
    assert_eq!(names(&ready), ["orders".to_owned()].into());
    let reports = stage.run(ready).await;
    let failure = reports[0].failure.as_deref().unwrap();
    let named = "VirtualService networking.istio.io/v1beta1 `a/orders-";
    assert!(failure.contains(named) && failure.contains("(409)"), "{failure}");
    // Of the second outcome, only the status is written.
    assert_eq!(actions(&reports[0]), [(Action::Status, "orders".to_owned())]);
    let rule = stage.get(RULE, "orders").unwrap();
    assert_eq!(text(&rule, "/status/state"), "Error");
    let description = text(&rule, "/status/description");
    assert!(description.contains("VirtualServiceErrors: "), "{description}");
    assert_eq!(stage.get(VIRTUAL_SERVICE, name).unwrap()["spec"]["gateways"], json!(["b/theirs"]));

    // Back-off: the key does not run at once, but after a time that grows with each attempt.
    let mut wait = Duration::from_millis(5);
    for attempt in 1..=4 {
        assert_eq!(stage.ready().await.len(), 0, "attempt {attempt}: not at once");
        tokio::time::advance(wait + Duration::from_millis(1)).await;
        let ready = stage.ready().await;
        assert_eq!(names(&ready), ["orders".to_owned()].into(), "attempt {attempt}");
        assert_eq!((ready[0].attempt, &ready[0].causes[..]), (attempt, &[Cause::Retry][..]));
        let reports = stage.run(ready).await;
        assert!(reports[0].changes.is_empty(), "the status says so already: {reports:#?}");
        wait *= 2;
    }

    // The other processor releases its fields: the next attempt succeeds.
    let nothing =
        json!({"apiVersion": made["apiVersion"], "kind": made["kind"], "metadata": {"name": name}});
    client.patch(name, &other, &Patch::Apply(nothing)).await.unwrap();
    let reports = stage.settle().await;
    assert!(reports.iter().all(|report| report.failure.is_none()), "{reports:#?}");
    assert!(stage.is_ready("orders"));
    assert_eq!(stage.get(VIRTUAL_SERVICE, name).unwrap()["spec"], made["spec"]);
}

#[tokio::test(start_paused = true)]
async fn a_field_that_must_be_absent_is_removed_whenever_it_is_set() {
    let scene = Scene::of_puppet(CONFIG_MAP).await;
    let script = |absent: Value| {
        let mut wanted = manifest(&object(CONFIG_MAP, "made", &json!({"data": {"k": "v"}})));
        wanted["absent"] = absent;
        json!({"returns": outcome(&json!({"apply": [wanted]}))}).to_string()
    };
    scene.load(&scripted("first", &script(json!(["data.old"]))));
    let stage = scene.start(Drive::Caller);
    stage.settle().await;
    for round in 1..=2 {
        stage.edit(CONFIG_MAP, "made", json!({"data": {"theirs": round.to_string()}})).await;
        assert_eq!(names(&stage.ready().await), BTreeSet::new(), "nothing that counts");
        stage.edit(CONFIG_MAP, "made", json!({"data": {"old": "v"}})).await;
        let ready = stage.ready().await;
        assert_eq!(names(&ready), ["first".to_owned()].into(), "round {round}");
        stage.run(ready).await;
        let data = stage.get(CONFIG_MAP, "made").unwrap()["data"].clone();
        assert_eq!(data, json!({"k": "v", "theirs": round.to_string()}));
    }
    // The next outcome does not require the field to be absent any more.
    stage.apply(&[scripted("first", &script(json!([])))]).await;
    stage.settle().await;
    stage.edit(CONFIG_MAP, "made", json!({"data": {"old": "v"}})).await;
    assert_eq!(names(&stage.ready().await), BTreeSet::new(), "it may be there");
}

/// Two keys of one processor in a conflict over one object.
#[tokio::test(start_paused = true)]
async fn two_keys_that_want_one_object_are_both_told_and_back_off() {
    let scene = Scene::of_puppet(CONFIG_MAP).await;
    let wants =
        |value: &str| applies(&[object(CONFIG_MAP, "shared", &json!({"data": {"k": value}}))]);
    scene.load(&scripted("first", &wants("1")));
    let stage = scene.start(Drive::Caller);
    stage.settle().await;
    stage.apply(&[scripted("second", &wants("2"))]).await;
    let reports = stage.run(stage.ready().await).await;
    assert_eq!(reports.len(), 1, "{reports:#?}");
    let failure = reports[0].failure.as_deref().unwrap();
    assert!(
        failure.starts_with("apply of ConfigMap v1 `a/shared` failed (409): field conflict: `puppet/objects:a/first` has set other values in `.data.k`"),
        "{failure}"
    );
    assert_eq!(stage.ready().await.len(), 0, "not at once");
    assert_eq!(stage.get(CONFIG_MAP, "shared").unwrap()["data"], json!({"k": "1"}));

    stage.edit(CONFIG_MAP, "first", json!({"metadata": {"annotations": {"x": "y"}}})).await;
    let reports = stage.run(stage.ready().await).await;
    let [first] = &reports[..] else { panic!("{reports:#?}") };
    assert_eq!(first.failure, None);
    let told = "field conflict: `puppet/objects:a/second` wants other values in `.data.k`";
    assert!(first.notes.iter().any(|note| note.starts_with(told)), "{:?}", first.notes);

    // The back-off of the attempts grows.
    let (mut attempts, mut waited) = (0, Duration::ZERO);
    while waited < Duration::from_secs(10) {
        tokio::time::advance(Duration::from_millis(5)).await;
        waited += Duration::from_millis(5);
        attempts += stage.run(stage.host.drive().take_ready()).await.len();
    }
    assert!((5..=12).contains(&attempts), "{attempts} attempts in 10 s");
}

#[tokio::test(start_paused = true)]
async fn an_object_is_created_when_the_server_stops_refusing_it() {
    let scene = Scene::of_rules().await;
    scene.load(&service("shop"));
    scene.load(&pod("shop-1", "shop"));
    scene.load(&rule("orders", "shop"));
    let writes = Filter::resource("virtualservices").verbs([Verb::Create, Verb::Patch]);
    scene.api.faults().inject(Fault::Conflict, writes, 100);
    let stage = scene.start(Drive::Caller);
    let ready = stage.ready().await;
    let reports = stage.run(ready).await;
    assert!(reports[0].failure.as_deref().unwrap().contains("(409)"), "{reports:#?}");
    assert!(stage.all(VIRTUAL_SERVICE).is_empty());
    let rule = stage.get(RULE, "orders").unwrap();
    assert_eq!(text(&rule, "/status/state"), "Error");
    let description = text(&rule, "/status/description");
    assert!(description.contains("object has been modified"), "{description}");

    stage.api.faults().clear();
    tokio::time::advance(Duration::from_secs(1)).await;
    let reports = stage.settle().await;
    assert!(!reports.is_empty() && reports.iter().all(|report| report.failure.is_none()));
    assert!(stage.is_ready("orders"));
    stage.only(VIRTUAL_SERVICE, "orders-");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_for_time_is_given_it() {
    let scene = Scene::of_puppet(CONFIG_MAP).await;
    let made = object(CONFIG_MAP, "made", &json!({"data": {"k": "v"}}));
    scene.load(&scripted("play", &applies(&[made])));
    let busy = Filter::resource("configmaps").verbs([Verb::Create, Verb::Patch]);
    scene.api.faults().inject(Fault::TooManyRequests(Some(60)), busy, usize::MAX);
    let stage = scene.start(Drive::Caller);
    for _ in 0..2 {
        let reports = stage.run(stage.ready().await).await;
        let [report] = &reports[..] else { panic!("{reports:#?}") };
        assert!(report.failure.as_deref().unwrap().contains("(429)"), "{report:#?}");
        tokio::time::advance(Duration::from_secs(59)).await;
        assert!(stage.ready().await.is_empty(), "it came back too soon");
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    stage.api.faults().clear();
    stage.settle().await;
    assert!(stage.get(CONFIG_MAP, "made").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_for_time_when_a_failure_is_reported_is_given_it() {
    let scene = Scene::of_rules().await;
    scene.load(&service("shop"));
    scene.load(&pod("shop-1", "shop"));
    scene.load(&rule("orders", "shop"));
    let writes = Filter::resource("virtualservices").verbs([Verb::Create, Verb::Patch]);
    scene.api.faults().inject(Fault::Conflict, writes, usize::MAX);
    let report = Filter::resource("apirules").subresource("status").verbs([Verb::Patch]);
    scene.api.faults().inject(Fault::TooManyRequests(Some(60)), report, usize::MAX);
    let stage = scene.start(Drive::Caller);
    let reports = stage.run(stage.ready().await).await;
    assert!(reports[0].failure.as_deref().unwrap().contains("(409)"), "{reports:#?}");
    tokio::time::advance(Duration::from_secs(59)).await;
    assert!(stage.ready().await.is_empty(), "it came back too soon");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(stage.ready().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_that_a_budget_refuses_is_an_answer() {
    let play = Play::new("puppet")
        .reconciles("objects", &selection(CONFIG_MAP, "play=yes"))
        .writes(&selection(CONFIG_MAP, ""), &["create", "update", "delete"])
        .writes(&selection("v1/Pod", ""), &["evict"]);
    let scene = Scene::of_play(&play).await;
    let healthy = json!({"status": {
        "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
    }});
    let mut web = pod("web-1", "web");
    super::merge(&mut web, &healthy);
    scene.load(&web);
    let budget = |allowed: u32| {
        object(
            "policy/v1/PodDisruptionBudget",
            "web",
            &json!({
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
                "status": {"observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
            }),
        )
    };
    scene.load(&budget(0));
    scene.load(&object(CONFIG_MAP, "doomed", &json!({})));
    let place = |of: &str, name: &str| json!({"cluster": "", "kind": selection(of, "")["kind"], "namespace": NAMESPACE, "name": name});
    let event = |reason: &str| json!({"on": null, "event_type": "Normal", "reason": reason, "message": reason});
    let script = json!({
        "returns": outcome(&json!({
            "apply": [manifest(&object(CONFIG_MAP, "made", &json!({"data": {"made": "yes"}})))],
            "evict": [deletion(&place("v1/Pod", "web-1"))], "delete": [deletion(&place(CONFIG_MAP, "doomed"))],
            "events": [event("First")], "requeue": "Never",
        })),
        "refused": outcome(&json!({"events": [event("Waits")], "requeue": {"After": 7000}})),
    });
    scene.load(&scripted("restart", &script.to_string()));
    let stage = scene.start(Drive::Caller);

    let ready = stage.ready().await;
    assert_eq!(names(&ready), ["restart".to_owned()].into());
    let reports = stage.run(ready).await;
    assert_eq!(reports[0].failure, None, "{reports:#?}");
    // All writes of the first outcome, then the events of the second one, which follows at once.
    let done: Vec<Action> = reports[0].changes.iter().map(|change| change.action).collect();
    assert_eq!(done, [Action::Create, Action::Delete, Action::Event, Action::Event]);
    assert!(stage.get(CONFIG_MAP, "made").is_some());
    let told = BTreeSet::from_iter(stage.events("restart"));
    assert_eq!(told, ["First".to_owned(), "Waits".to_owned()].into());
    let refused: Vec<_> = reports[0].log.iter().filter(|line| line.message == "refused").collect();
    let told = format!("{refused:?}");
    assert_eq!(refused.len(), 1, "{told}");
    assert!(
        told.contains("Evict") && told.contains("429") && told.contains("disruption budget"),
        "{told}"
    );
    assert!(stage.get("v1/Pod", "web-1").is_some());
    assert_eq!(stage.get(CONFIG_MAP, "doomed"), None);

    // Its requeue is used, and there is no back-off.
    assert_eq!(reports[0].again, Some(Duration::from_secs(7)));
    stage.settle().await;
    tokio::time::advance(Duration::from_millis(6_900)).await;
    assert_eq!(stage.ready().await.len(), 0);
    tokio::time::advance(Duration::from_millis(101)).await;
    let ready = stage.ready().await;
    assert_eq!(names(&ready), ["restart".to_owned()].into());
    assert_eq!((ready[0].attempt, &ready[0].causes[..]), (0, &[Cause::Requeue][..]));
    stage.api.load(budget(1), true).unwrap();
    let reports = stage.run(ready).await;
    assert_eq!(actions(&reports[0])[0], (Action::Evict, "web-1".to_owned()));
    assert!(stage.get("v1/Pod", "web-1").is_none());
    assert_eq!(reports[0].again, None);
}
