//! A provider that is not what it should be: what it sends is told, and goes no further.

use serde_json::{Value, json};

use super::fixture::{
    World, bind, binding, core, definition, export, kubeconfig, rocket, schema, service_namespace,
    with,
};

const ANY: &str = r#"{"groups": ["*"], "claims": [{"resources": ["configmaps", "secrets"]}]}"#;

/// Returns the messages of the conditions and events at home.
fn told(world: &World) -> Vec<String> {
    let all = world.home().all();
    let of = |object: &Value| match object["kind"].as_str() {
        Some("Event") => vec![object["message"].clone()],
        Some("APIServiceBinding") => {
            let conditions = object["status"]["conditions"].as_array().cloned();
            conditions.unwrap_or_default().iter().map(|of| of["message"].clone()).collect()
        }
        _ => Vec::new(),
    };
    let messages = all.iter().flat_map(of);
    messages.filter_map(|message| message.as_str().map(str::to_owned)).collect()
}

fn is_told(world: &World, part: &str) -> bool {
    told(world).iter().any(|message| message.contains(part))
}

/// Returns an export and a schema of another group.
fn of_group(group: &str) -> [Value; 2] {
    let (mut export, mut schema) = (export(), schema());
    export["spec"]["resources"][0]["group"] = group.into();
    schema["spec"]["group"] = group.into();
    schema["metadata"]["name"] = format!("rockets.{group}").into();
    [export, schema]
}

#[test]
fn kinds_of_kubernetes_and_of_the_host_are_never_bound() {
    let groups = [
        "mortise.dev",
        "kube-bind.io",
        "apps",
        "rbac.authorization.k8s.io",
        "apiextensions.k8s.io",
    ];
    for group in groups {
        let world = World::new([binding()], of_group(group));
        assert_eq!(world.failures_under(ANY), Vec::<String>::new(), "{group}");
        let name = format!("rockets.{group}");
        let is_it = |of: &Value| {
            of["kind"] == "CustomResourceDefinition" && of["metadata"]["name"] == *name
        };
        assert!(!world.home().all().iter().any(is_it), "{group}");
        assert!(is_told(&world, &format!("the API group {group:?} may not be bound")), "{group}");
    }
}

#[test]
fn a_definition_of_another_binding_stays_with_it() {
    let world = World::synchronised();
    let renamed = |object: Value| with(object, json!({"metadata": {"name": "other"}}));
    world.there().apply(&renamed(export()));
    world.home().apply(&renamed(binding()));
    world.settle();
    let other = World::conditions(world.at_home(&renamed(binding())));
    assert!(
        other.contains(&"Connected=False/ForeignCustomResourceDefinition".to_owned()),
        "{other:?}"
    );
    let owners = world.at_home(&definition()).unwrap()["metadata"]["ownerReferences"].clone();
    assert_eq!(owners[0]["name"], "rockets");
    assert_eq!(World::conditions(world.at_home(&binding()))[0], "Ready=True");
    world.home().delete("APIServiceBinding//other");
    world.settle();
    assert!(
        world.at_home(&definition()).is_some() && world.at_provider(&rocket("cn-team")).is_some()
    );
}

#[test]
fn a_schema_that_is_too_large_or_too_deep_is_told() {
    let with_schema = |inner: Value| {
        let mut large = schema();
        large["spec"]["versions"][0]["schema"]["properties"]["spec"] = inner;
        large
    };
    let deep = |levels: usize| {
        (0..levels).fold(
            json!({"type": "string"}),
            |inner, _| json!({"type": "object", "properties": {"a": inner}}),
        )
    };
    let long = json!({"type": "string", "description": "x".repeat(1 << 20)});
    let world = World::new([binding()], [export(), with_schema(long)]);
    assert!(is_told(&world, "is larger than 1024 KiB"), "{:?}", told(&world));
    // A level takes two of JSON, of which a parser accepts 128.
    for levels in [20, 50, 52, 54, 55, 56, 57, 58, 59, 60] {
        let world = World::new([binding()], [export(), schema()]);
        world.there().apply(&with_schema(deep(levels)));
        assert_eq!(world.failures(), Vec::<String>::new(), "{levels}");
        let conditions = World::conditions(world.at_home(&binding()));
        let is_refused = conditions[0].starts_with("Ready=False");
        assert!(is_refused || levels < 60, "{levels}: {conditions:?}");
    }
}

#[test]
fn claims_never_reach_the_systems_objects_and_the_kubeconfigs() {
    let not_in = json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]});
    let named = json!([
        {"name": "root", "namespace": "kube-system"}, {"name": "kubeconfig-a", "namespace": "kube-bind"},
        {"name": "root"}, {"name": "../root", "namespace": "a/b"},
    ]);
    let claims = [
        json!({"labelSelector": not_in}),
        json!({"labelSelector": {}}),
        json!({"namedResources": named}),
    ];
    for selector in claims {
        let claim = json!([{"group": "", "resource": "secrets", "selector": selector}]);
        let export = with(export(), json!({"spec": {"permissionClaims": claim}}));
        let named = |namespace: &str| {
            with(
                service_namespace(),
                json!({"metadata": {"name": namespace}, "status": {"namespace": "cn-team"}}),
            )
        };
        let world =
            World::new([binding()], [export, schema(), named("kube-system"), named("kube-bind")]);
        let root = with(
            core("Secret", "kube-system", "root"),
            json!({"type": "Opaque", "data": {"k": "MQ=="}}),
        );
        world.home().apply(&core("Namespace", "", "kube-system"));
        world.home().apply(&root);
        world.settle();
        let is_taken = |of: &Value| {
            of["kind"] == "Secret"
                && (of["metadata"]["name"] == "root" || of["metadata"]["name"] == "kubeconfig-a")
        };
        assert!(!world.there().all().iter().any(is_taken), "{selector}");
        assert_eq!(World::conditions(world.at_home(&binding()))[0], "Ready=True", "{selector}");
    }
}

#[test]
fn a_copy_whose_owner_changes_takes_nothing_of_home_along() {
    let claim = json!([{"group": "", "resource": "secrets", "selector": {"labelSelector": {"matchLabels": {"app": "rocket"}}}}]);
    let export = with(export(), json!({"spec": {"permissionClaims": claim}}));
    let world = World::new([binding()], [export, schema()]);
    let secret = |namespace: &str, fields: Value| {
        with(with(core("Secret", namespace, "login"), json!({"type": "Opaque"})), fields)
    };
    let theirs = secret(
        "cn-team",
        json!({"metadata": {"labels": {"app": "rocket"}}, "data": {"k": "MQ=="}}),
    );
    world.there().apply(&theirs);
    world.settle();
    assert!(world.at_home(&secret("team", json!({}))).is_some());
    // The consumer's own Secret of another name is not claimed, whatever the provider labels.
    let own = with(core("Secret", "team", "own"), json!({"type": "Opaque", "data": {"k": "Mg=="}}));
    world.home().apply(&own);
    let owner = |name: &str, owner: &str| {
        let labels = json!({"metadata": {"labels": {"kube-bind.io/owner": owner}}});
        with(with(core("Secret", "cn-team", name), json!({"type": "Opaque"})), labels)
    };
    world.there().apply(&owner("own", "consumer"));
    world.there().patch(&owner("login", "consumer"));
    world.settle();
    assert_eq!(world.at_provider(&owner("own", "")).unwrap().get("data"), None);
    assert_eq!(world.at_home(&own).unwrap()["data"], json!({"k": "Mg=="}));
    world.there().patch(&owner("own", "provider"));
    world.there().patch(&owner("login", "nobody"));
    world.settle();
    assert_eq!(world.at_home(&own).unwrap()["data"], json!({"k": "Mg=="}), "it is not claimed");
    assert!(world.at_home(&secret("team", json!({}))).is_some());
}

#[test]
fn names_that_collide_or_grow_too_long_are_told_and_the_others_go_up() {
    let (mut schema, mut definition) = (schema(), definition());
    schema["spec"]["scope"] = "Cluster".into();
    definition["spec"]["scope"] = "Cluster".into();
    let world = World::new_with_definition([binding()], [export(), schema], definition);
    let named = |name: &str| {
        let mut of = rocket("");
        of["metadata"] = json!({"name": name});
        of
    };
    let marks = json!({"metadata": {"annotations": {"kube-bind.io/cluster-namespace": "cn-a"}}});
    world.there().apply(&with(named("cn-a-b"), marks));
    let long = "x".repeat(251);
    for name in ["a-b", &long, "luna"] {
        world.home().apply(&named(name));
    }
    world.settle();
    let reasons = World::events(world.home());
    assert!(reasons.contains(&"NameTooLong".to_owned()), "{reasons:?}");
    assert!(reasons.contains(&"OtherConsumer".to_owned()), "{reasons:?}");
    assert!(world.at_provider(&named("cn-luna")).is_some());
    for name in ["a-b", &long] {
        world.home().delete(&format!("Rocket//{name}"));
    }
    world.settle();
    assert!(world.at_provider(&named("cn-a-b")).is_some(), "it is another consumer's");
    assert!(world.at_home(&named("a-b")).is_none() && world.at_home(&named(&long)).is_none());
}

#[test]
fn a_namespace_that_no_object_can_have_is_told_and_breaks_nothing_else() {
    for namespace in ["../kube-system", "a/b", "..", "A", "\u{1b}[2J", &"x".repeat(1 << 16)] {
        let world = World::synchronised();
        let status = json!({"status": {"namespace": namespace}});
        let other = with(with(service_namespace(), json!({"metadata": {"name": "crew"}})), status);
        world.there().apply(&other);
        world.home().apply(&core("Namespace", "", "crew"));
        world.home().apply(&rocket("crew"));
        world.home().patch(&with(rocket("team"), json!({"spec": {"intent": "land"}})));
        world.settle();
        let shown = namespace.chars().take(20).collect::<String>();
        assert_eq!(
            world.at_provider(&rocket("cn-team")).unwrap()["spec"]["intent"],
            "land",
            "{shown:?}"
        );
        assert_eq!(World::conditions(world.at_home(&binding()))[0], "Ready=True", "{shown:?}");
        let events = World::events(world.home());
        assert!(events.contains(&"NamespaceInvalid".to_owned()), "{shown:?}: {events:?}");
        world.home().delete("Rocket/crew/saturn");
        world.settle();
        assert_eq!(world.at_home(&rocket("crew")), None, "{shown:?}");
    }
}

#[test]
fn a_selector_that_is_none_starts_nothing_and_breaks_nothing_else() {
    let selectors = [
        json!({"labelSelector": {"matchLabels": {"a b!": "x,y"}}}),
        json!({"labelSelector": {"matchLabels": {"a": "b,c=d"}}}),
        json!({"labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b),!c,d in (e"]}]}}),
        json!({"namedResources": [{"name": "..", "namespace": "team"}, {"name": "a/b"}]}),
        json!({"namedResources": [{"name": "a", "namespace": "../kube-system"}]}),
        json!({"references": [{"group": "golden.example.dev", "resource": "rockets", "jsonPath": {"name": "spec[*](((.x", "namespace": "\u{0}"}}]}),
    ];
    for selector in selectors {
        let claim = json!([{"group": "", "resource": "secrets", "selector": selector}]);
        let world = World::bound();
        world.there().patch(&with(export(), json!({"spec": {"permissionClaims": claim}})));
        world.home().apply(&rocket("team"));
        world.settle();
        assert!(world.at_provider(&rocket("cn-team")).is_some(), "{selector}");
        assert_eq!(World::conditions(world.at_home(&binding()))[0], "Ready=True", "{selector}");
    }
}

#[test]
fn messages_of_the_provider_hold_no_control_characters_and_are_bounded() {
    let message = format!("\u{1b}[2J\n\u{202e}{}", "x".repeat(1 << 17));
    let request = with(
        bind("APIServiceExportRequest", "cn", "rockets"),
        json!({"spec": {"resources": export()["spec"]["resources"]}, "status": {"phase": "Failed", "terminalMessage": message}}),
    );
    let world = World::new([binding()], [request]);
    assert!(is_told(&world, "[2J"), "{:?}", told(&world));
    let told = told(&world);
    assert!(told.iter().all(|message| message.len() <= 32 * 1024), "a message is too long");
    assert!(!told.iter().any(|message| message.contains(char::is_control)), "{told:?}");
    // The kubeconfig stays as it is.
    assert_eq!(world.at_home(&kubeconfig("cn")).unwrap()["data"], kubeconfig("cn")["data"]);
}
