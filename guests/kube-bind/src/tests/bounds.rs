//! What a provider may have at home is bounded, and what is left out is told.

use serde_json::{Value, json};

use super::fixture::{
    PROVIDER, World, bind, binding, core, definition, export, kubeconfig, rocket, schema, with,
};

const OTHER: &str = "kube-bind/kubeconfig-b/kubeconfig";

/// Returns the message of the condition that names what was left out.
fn cut(world: &World, of: &Value) -> Option<String> {
    let found = world.at_home(of).unwrap();
    let conditions = found["status"]["conditions"].as_array().unwrap();
    let bounds = conditions.iter().find(|one| one["type"] == "WithinBounds")?;
    assert_eq!((&bounds["status"], &bounds["reason"]), (&"False".into(), &"BoundExceeded".into()));
    Some(bounds["message"].as_str().unwrap().to_owned())
}

fn claim(resource: &str, selector: &Value) -> Value {
    json!({"group": "", "resource": resource, "selector": selector})
}

fn with_claims(claims: &[Value]) -> Value {
    with(export(), json!({"spec": {"permissionClaims": claims}}))
}

fn asked(name: &str, namespace: &str) -> Value {
    let asked = bind("APIServiceNamespace", "cn", name);
    with(asked, json!({"spec": {}, "status": {"namespace": namespace}}))
}

/// Returns an object of a kind of its own, for the other provider.
fn moon(object: &Value) -> Value {
    let text = object.to_string().replace("rocket", "moon").replace("Rocket", "Moon");
    serde_json::from_str(&text.replace("kubeconfig-a", "kubeconfig-b")).unwrap()
}

#[test]
fn what_a_provider_claims_takes_no_places_of_another_one() {
    let everything = json!({"labelSelector": {}});
    let claims = ["configmaps", "secrets"].map(|resource| claim(resource, &everything));
    let many = (0..1_100).map(|number| asked(&format!("n{number}"), &format!("cn-n{number}")));
    let there = [with_claims(&claims), schema()].into_iter().chain(many);
    let home = (0..1_100).map(|number| core("Namespace", "", &format!("n{number}")));
    let home = home.chain([binding(), moon(&binding()), moon(&kubeconfig("cn"))]);
    let other = [export(), schema(), definition()].map(|object| moon(&object));
    let namespaces = ["cn", "cn-team"].map(|name| core("Namespace", "", name));
    let other = other.into_iter().chain(namespaces).chain([asked("team", "cn-team")]);
    let world = World::unsettled(home, there).beside(OTHER, other).settled();
    world.home().apply(&moon(&rocket("team")));
    world.settle();

    let started = world.home().started();
    let of = |cluster: &str| started.iter().filter(|one| *one.of.cluster == *cluster).count();
    assert!(started.len() <= 4_096 / 2 && of(PROVIDER) > 900, "{} {}", started.len(), of(PROVIDER));
    let told = cut(&world, &binding()).unwrap();
    assert!(told.contains("`claimed-back-configmaps` runs for 50"), "{told}");
    assert!(told.contains("of 1101 selections, not for cn-n"), "{told}");
    assert_eq!(World::conditions(world.at_home(&binding()))[0], "Ready=False/BoundExceeded");
    assert_eq!((cut(&world, &moon(&binding())), of(OTHER)), (None, 5));
    assert_eq!(World::conditions(world.at_home(&moon(&binding())))[0], "Ready=True");
}

#[test]
fn names_that_are_many_are_claimed_and_claims_that_are_too_many_are_told() {
    let one = |name: String| json!({"name": name, "namespace": "team"});
    let names: Vec<Value> = (0..300).map(|number| one(format!("key-{number}"))).collect();
    let mut claims = vec![claim("secrets", &json!({"namedResources": names}))];
    let numbers = 1..17;
    claims.extend(numbers.map(|number| {
        claim("configmaps", &json!({"namedResources": [one(format!("plan-{number}"))]}))
    }));
    let world = World::new([binding()], [with_claims(&claims), schema()]);
    let secret = |namespace: &str, name: &str| {
        with(core("Secret", namespace, name), json!({"type": "Opaque"}))
    };
    for name in ["key-299", "other"] {
        world.home().apply(&secret("team", name));
    }
    for name in ["plan-15", "plan-16"] {
        world.home().apply(&core("ConfigMap", "team", name));
    }
    world.settle();
    assert!(world.at_provider(&secret("cn-team", "key-299")).is_some());
    assert_eq!(world.at_provider(&secret("cn-team", "other")), None);
    assert!(world.at_provider(&core("ConfigMap", "cn-team", "plan-15")).is_some());
    assert_eq!(world.at_provider(&core("ConfigMap", "cn-team", "plan-16")), None);
    let told = cut(&world, &binding());
    assert_eq!(told.unwrap(), "16 of 17 claims of the export are honoured");
    // The condition goes when no selection is left out.
    world.there().delete("APIServiceExport/cn/rockets");
    world.there().apply(&with_claims(&claims[..16]));
    world.settle();
    assert_eq!(cut(&world, &binding()), None);
    assert_eq!(World::conditions(world.at_home(&binding()))[0], "Ready=True");
}

#[test]
fn resources_of_an_export_that_are_too_many_are_told() {
    let of = |number: u32| json!({"group": "golden.example.dev", "resource": format!("r{number}"), "versions": ["v1"]});
    let mut export = export();
    let more = (1..129).map(of);
    export["spec"]["resources"].as_array_mut().unwrap().extend(more);
    let world = World::new([binding()], [export, schema()]);
    assert_eq!(cut(&world, &binding()).unwrap(), "128 of 129 resources of the export are bound");
}

#[test]
fn namespaces_that_a_provider_asks_for_are_made_up_to_a_bound() {
    let labels = json!({"metadata": {"labels": {"kube-bind.io/owner": "provider"}}});
    let seeded = |number: u32| with(asked(&format!("s{number:03}"), ""), labels.clone());
    let there = [export(), schema()].into_iter().chain((0..102).map(seeded));
    let world = World::new([binding()], there);
    let is_made =
        |number: u32| world.at_home(&core("Namespace", "", &format!("s{number:03}"))).is_some();
    let made = (0..102).filter(|number| is_made(*number)).count();
    assert_eq!((made, is_made(99), is_made(100)), (100, true, false));
    let expected = "100 of 102 namespaces that the provider asks for are made, not \"s100\" and those after it";
    assert_eq!(cut(&world, &binding()).unwrap(), expected);
    // The namespaces that were made stay, so a provider that asks for others meets the bound, too.
    let made =
        (0..900).map(|number| with(core("Namespace", "", &format!("m{number}")), labels.clone()));
    made.for_each(|namespace| world.home().apply(&namespace));
    for number in 0..3 {
        world.there().delete(&format!("APIServiceNamespace/cn/s{number:03}"));
    }
    world.settle();
    assert!(!is_made(100) && !is_made(101));
    let told = cut(&world, &binding()).unwrap();
    assert!(told.starts_with("no more namespaces are made for the provider: 1000 have"), "{told}");
}

#[test]
fn annotations_of_an_object_that_are_too_many_are_told() {
    let world = World::bound();
    let annotations: serde_json::Map<String, Value> =
        (0..101).map(|number| (format!("a{number}"), "".into())).collect();
    world.home().apply(&with(rocket("team"), json!({"metadata": {"annotations": annotations}})));
    world.settle();
    assert!(world.at_provider(&rocket("cn-team")).is_some());
    assert!(World::events(world.home()).contains(&"BoundExceeded".to_owned()));
}

#[test]
fn labelled_secrets_are_taken_up_to_a_bound() {
    let labels = json!({"metadata": {"labels": {"kube-bind.io/provider-kubeconfig": "true"}}});
    let named = |number: u32| {
        let name =
            json!({"metadata": {"name": format!("labelled-{number:03}"), "namespace": "team"}});
        with(with(kubeconfig("cn"), name), labels.clone())
    };
    let world = World::unsettled((0..130).map(named).chain([binding()]), [export(), schema()]);
    world.failures();
    let started = world.home().started();
    let exports = started.iter().filter(|one| one.reconciler == "exports").count();
    assert_eq!(exports, 128 + 1);
    let reasons = World::events(world.home());
    assert_eq!(reasons.iter().filter(|reason| *reason == "BoundExceeded").count(), 2);
}
