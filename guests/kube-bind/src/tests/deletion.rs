//! Deletions: the objects that go, and their order.

use mortise_sdk::{Action, Request, WriteFailure, testing::request_for};
use serde_json::json;

use super::fixture::{PROVIDER, World, binding, definition, export, rocket, with};
use crate::{Config, link::WITHOUT_PROVIDER, objects};

#[test]
fn an_object_goes_when_the_one_at_the_provider_is_gone() {
    let world = World::synchronised();
    let held = json!({"metadata": {"finalizers": ["golden.example.dev/hold"]}});
    world.there().patch(&with(rocket("cn-team"), held));
    world.home().delete("Rocket/team/saturn");
    world.settle();
    assert!(
        world.at_provider(&rocket("cn-team")).unwrap()["metadata"]["deletionTimestamp"].is_string()
    );
    assert!(world.at_home(&rocket("team")).is_some(), "the provider's finalizer is waited for");
    world.there().patch(&with(rocket("cn-team"), json!({"metadata": {"finalizers": null}})));
    world.settle();
    assert_eq!(
        (world.at_home(&rocket("team")), world.at_provider(&rocket("cn-team"))),
        (None, None)
    );
}

#[test]
fn an_object_waits_for_a_finalizer_that_it_has_not_seen() {
    let world = World::synchronised();
    world.home().delete("Rocket/team/saturn");
    let home = world.at_home(&rocket("team")).unwrap();
    let run = || {
        let request = request_for(&home);
        objects::reconcile(&request, &Config::default(), &world.home().host()).unwrap()
    };
    let outcome = run();
    assert_eq!((outcome.delete.len(), outcome.finalizers), (1, None), "it is not read as gone");
    let held = json!({"metadata": {"finalizers": ["golden.example.dev/hold"]}});
    world.there().patch(&with(rocket("cn-team"), held));
    world.there().delete("Rocket/cn-team/saturn");
    assert_eq!(run().finalizers, None);
    world.there().patch(&with(rocket("cn-team"), json!({"metadata": {"finalizers": null}})));
    assert_eq!(run().finalizers, Some(Vec::new()));
}

#[test]
fn an_object_without_finalizers_goes_on_both_sides_at_once() {
    let world = World::synchronised();
    world.home().delete("Rocket/team/saturn");
    world.settle();
    // The next run is due at once.
    world.home().advance(std::time::Duration::from_millis(1));
    world.settle();
    assert_eq!(
        (world.at_home(&rocket("team")), world.at_provider(&rocket("cn-team"))),
        (None, None)
    );
}

#[test]
fn an_object_that_is_deleted_at_the_provider_is_made_again() {
    let world = World::synchronised();
    world.there().delete("Rocket/cn-team/saturn");
    world.settle();
    let there = world.at_provider(&rocket("cn-team")).unwrap();
    let home = world.at_home(&rocket("team")).unwrap();
    assert_eq!(
        home["metadata"]["annotations"]["kube-bind.io/provider-uid"],
        there["metadata"]["uid"]
    );
}

#[test]
fn a_binding_takes_all_along_but_what_is_not_its_own() {
    let world = World::synchronised();
    world.there().apply(&with(rocket("cn-team"), json!({"metadata": {"name": "theirs"}})));
    world.home().delete("APIServiceBinding//rockets");
    world.settle();
    world.home().advance(std::time::Duration::from_secs(1));
    world.settle();
    assert_eq!(world.at_home(&binding()), None);
    assert_eq!(world.at_home(&definition()), None);
    assert_eq!(world.at_home(&rocket("team")), None);
    assert_eq!(world.at_provider(&rocket("cn-team")), None);
    assert!(
        world
            .at_provider(&with(rocket("cn-team"), json!({"metadata": {"name": "theirs"}})))
            .is_some()
    );
    let conditions = World::conditions(world.at_provider(&export()));
    assert_eq!(
        conditions,
        ["Connected=False/APIServiceBindingNotFound", "ConsumerInSync=False/NA"]
    );
}

#[test]
fn a_binding_goes_after_its_definition_which_goes_after_the_finalizers() {
    let world = World::synchronised();
    let held = |namespace: &str, finalizers: serde_json::Value| {
        with(rocket(namespace), json!({"metadata": {"finalizers": finalizers}}))
    };
    world.there().patch(&held("cn-team", json!(["golden.example.dev/hold"])));
    world.home().patch(&held("team", json!(["kubebind.io/syncer", "golden.example.dev/hold"])));
    world.home().delete("APIServiceBinding//rockets");
    // The deletion of the definition, the finalizers at home, and the existence of the binding.
    let state = || {
        let definition = world.at_home(&definition());
        let is_deleted = definition.map(|of| of["metadata"]["deletionTimestamp"].is_string());
        let home = world.at_home(&rocket("team"));
        let finalizers = home.map(|of| of["metadata"]["finalizers"].clone());
        (is_deleted, finalizers, world.at_home(&binding()).is_some())
    };
    let rest = || {
        for _ in 0..3 {
            world.settle();
            world.home().advance(std::time::Duration::from_secs(1));
        }
        world.settle();
    };
    rest();
    let both = json!(["kubebind.io/syncer", "golden.example.dev/hold"]);
    assert_eq!(state(), (Some(false), Some(both), true));
    world.there().patch(&held("cn-team", json!(null)));
    rest();
    assert_eq!(state(), (Some(true), Some(json!(["golden.example.dev/hold"])), true));
    world.home().patch(&held("team", json!(null)));
    rest();
    assert_eq!(state(), (None, None, false));
}

#[test]
fn a_binding_waits_for_the_provider_unless_it_is_told_not_to() {
    let world = World::synchronised();
    world.home().unreachable(PROVIDER);
    world.home().delete("APIServiceBinding//rockets");
    world.failures();
    assert!(world.at_home(&binding()).is_some() && world.at_home(&rocket("team")).is_some());
    let events = World::events(world.home());
    assert!(events.contains(&"WaitingForProvider".to_owned()), "{events:?}");
    world
        .home()
        .patch(&with(binding(), json!({"metadata": {"annotations": {WITHOUT_PROVIDER: "true"}}})));
    world.failures();
    world.home().advance(std::time::Duration::from_secs(1));
    world.failures();
    assert_eq!((world.at_home(&binding()), world.at_home(&definition())), (None, None));
    world.home().reachable(PROVIDER);
    assert!(world.at_provider(&rocket("cn-team")).is_some());
}

#[test]
fn a_binding_that_waits_for_its_objects_says_so() {
    let waiting = |world: &World| {
        let events = world.home().all().into_iter().filter(|of| of["kind"] == "Event");
        let mut events = events.filter(|of| of["involvedObject"]["kind"] == "APIServiceBinding");
        events.any(|of| of["reason"] == "WaitingForProvider")
    };
    let world = World::synchronised();
    let held = json!({"metadata": {"finalizers": ["golden.example.dev/hold"]}});
    world.there().patch(&with(rocket("cn-team"), held));
    world.home().delete("APIServiceBinding//rockets");
    world.settle();
    assert!(!waiting(&world), "objects take a moment to go");
    world.home().advance(std::time::Duration::from_secs(10));
    world.settle();
    assert!(waiting(&world));
    world.there().patch(&with(rocket("cn-team"), json!({"metadata": {"finalizers": null}})));
    world.settle();
    world.home().advance(std::time::Duration::from_secs(1));
    world.settle();
    assert_eq!((world.at_home(&binding()), world.at_home(&definition())), (None, None));
}

#[test]
fn a_deletion_that_the_provider_refuses_is_told_on_the_object() {
    let world = World::synchronised();
    let failure = WriteFailure {
        action: Action::Delete,
        ref_: request_for(&rocket("cn-team")).ref_.in_cluster(PROVIDER),
        code: 0,
        reason: String::new(),
        message: "no answer".to_owned(),
        conflicting_managers: Vec::new(),
    };
    let home = world.at_home(&rocket("team")).unwrap();
    let request = Request { failed_writes: vec![failure], ..request_for(&home) };
    let outcome = objects::reconcile(&request, &Config::default(), &world.home().host()).unwrap();
    assert_eq!(outcome.events[0].reason, "WaitingForProvider");
}

#[test]
fn only_objects_with_our_marks_are_orphans() {
    let world = World::bound();
    let named = |name: &str, annotations: serde_json::Value| {
        with(rocket("cn-team"), json!({"metadata": {"name": name, "annotations": annotations}}))
    };
    let ours = named(
        "ours",
        json!({"kube-bind.io/cluster-namespace": "cn", "kube-bind.io/consumer-uid": "u"}),
    );
    let theirs = named(
        "theirs",
        json!({"kube-bind.io/cluster-namespace": "other", "kube-bind.io/consumer-uid": "u"}),
    );
    let nobody = named("nobody", json!({}));
    for object in [&ours, &theirs, &nobody] {
        world.there().apply(object);
    }
    world.settle();
    assert_eq!(world.at_provider(&ours), None);
    assert!(world.at_provider(&theirs).is_some() && world.at_provider(&nobody).is_some());
    assert_eq!(World::events(&world.there()), ["NotOfConsumer"]);
}

#[test]
fn an_object_of_another_consumer_is_neither_read_nor_deleted() {
    let world = World::bound();
    let marks = json!({"metadata": {"annotations": {"kube-bind.io/cluster-namespace": "other"}}});
    let theirs = with(rocket("cn-team"), with(marks, json!({"status": {"result": "theirs"}})));
    world.there().apply(&theirs);
    world.home().apply(&rocket("team"));
    world.settle();
    let home = world.at_home(&rocket("team")).unwrap();
    assert_eq!((home.get("status"), home["metadata"].get("finalizers")), (None, None));
    let events = world.home().all().into_iter().filter(|of| of["reason"] == "OtherConsumer");
    let messages: Vec<_> = events.map(|event| event["message"].clone()).collect();
    let message =
        "cn-team/saturn at the provider belongs to the cluster namespace other, not to cn";
    assert_eq!(messages, [message]);
    world.home().delete("Rocket/team/saturn");
    world.settle();
    assert!(world.at_provider(&rocket("cn-team")).is_some());
}
