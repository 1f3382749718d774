//! References in the words of the original: grants, control planes that are not there yet, groups
//! of consumers, and what goes with a parent.

use serde_json::{Value, json};

use super::fixture::{World, auth, control_plane, in_cp, merge, object, service};

pub(super) const KONG: &str = "configuration.konghq.com";
pub(super) const KONNECT: &str = "konnect.konghq.com";
const CLEANUP: &str = "gateway.konghq.com/konnect-cleanup";

/// Moves an object into a namespace; a control plane that it names stays where it is.
fn moved(mut of: Value, namespace: &str) -> Value {
    of["metadata"]["namespace"] = namespace.into();
    if let Some(named) = of.pointer_mut("/spec/controlPlaneRef/konnectNamespacedRef") {
        named["namespace"] = "ns".into();
    }
    of
}

pub(super) fn grant(
    name: &str,
    at: &str,
    (group, from, of): (&str, &str, &str),
    to: (&str, &str),
) -> Value {
    let spec = json!({
        "from": [{"group": group, "kind": from, "namespace": of}],
        "to": [{"group": to.0, "kind": to.1}],
    });
    let mut grant = object("KongReferenceGrant", name, json!({"spec": spec}));
    grant["metadata"]["namespace"] = at.into();
    grant
}

fn route(service: &Value) -> Value {
    let spec = json!({"name": "o", "paths": ["/x"], "serviceRef": {"type": "namespacedRef", "namespacedRef": service}});
    object("KongRoute", "o", json!({"spec": spec}))
}

fn vault(more: Value) -> Value {
    let mut vault =
        in_cp("KongVault", "o", json!({"backend": "konnect", "prefix": "p", "config": {"a": 1}}));
    vault["spec"]["controlPlaneRef"]["konnectNamespacedRef"]["namespace"] = "ns".into();
    merge(&mut vault["spec"], more);
    vault
}

fn conditions(world: &World, kind: &str, of: &[&str]) -> Vec<String> {
    of.iter().map(|condition| world.condition(kind, "o", condition)).collect()
}

/// A referenced object, one that refers to it, the kind that a grant names, the conditions without
/// the grant, and `ResolvedRefs` with it.
type Case = (Value, Value, &'static str, Vec<(&'static str, String)>, String);

fn across_namespaces() -> Vec<Case> {
    let there = json!({"name": "r", "namespace": "b"});
    let store = json!({
        "apiSpec": {"name": "s"},
        "controlPlaneRef": {"type": "namespacedRef", "namespacedRef": {"name": "cp", "namespace": "ns"}},
    });
    let store = moved(object("KonnectConfigStore", "r", json!({"spec": store})), "b");
    let plugin = object("KongPlugin", "r", json!({"plugin": "key-auth"}));
    let certificate = in_cp("KongCertificate", "r", json!({"cert": "c", "key": "k"}));
    let upstream = in_cp("KongUpstream", "r", json!({"name": "r"}));
    let sni = json!({"spec": {"name": "h.example", "certificateRef": there}});
    let target = json!({"spec": {"target": "10.0.0.1:80", "upstreamRef": there}});
    let words = "cross-namespace reference to KongService r in namespace b from \
                 KongRoute.configuration.konghq.com in namespace ns is not granted by any KongReferenceGrant";
    let no = "KongReferenceGrants do not allow access to";
    let yes = "KongReferenceGrants allow access to";
    let refused = |kind: &str| format!("False/RefNotPermitted {no} {kind} b/r");
    let of_certificate = refused("KongCertificate");
    vec![
        (
            moved(service("r"), "b"),
            route(&there),
            "KongService",
            vec![("ResolvedRefs", format!("False/RefNotPermitted {words}"))],
            format!("True/ResolvedRefs {yes} KongService"),
        ),
        (
            moved(certificate, "b"),
            object("KongSNI", "o", sni),
            "KongCertificate",
            vec![
                ("KongCertificateRefValid", of_certificate.clone()),
                ("ResolvedRefs", of_certificate),
            ],
            format!("True/ResolvedRefs {yes} KongCertificate"),
        ),
        (
            moved(upstream, "b"),
            object("KongTarget", "o", target),
            "KongUpstream",
            vec![("KongUpstreamRefValid", refused("KongUpstream"))],
            String::new(),
        ),
        (
            moved(plugin, "b"),
            in_cp(
                "KongPluginBinding",
                "o",
                json!({"pluginRef": there, "scope": "GlobalInControlPlane"}),
            ),
            "KongPlugin",
            vec![("PluginRefValid", refused("KongPlugin"))],
            String::new(),
        ),
        (
            store,
            vault(json!({"configStoreRef": there})),
            "KonnectConfigStore",
            vec![("ConfigStoreRefValid", refused("KonnectConfigStore"))],
            format!(
                "True/ResolvedRefs {yes} KonnectGatewayControlPlane <konnectNamespacedRef:ns/cp>"
            ),
        ),
    ]
}

#[test]
fn a_reference_into_another_namespace_is_told_as_the_original_tells_it() {
    for (referenced, referring, to, refused, granted) in across_namespaces() {
        let world = World::with_control_plane();
        let (from, kind) =
            (referenced["kind"].as_str().unwrap(), referring["kind"].as_str().unwrap());
        let group = if from.starts_with("Konnect") { KONNECT } else { KONG };
        let cp = (KONNECT, "KonnectGatewayControlPlane");
        if from != "KongPlugin" {
            world.apply(&grant("of-cp", "ns", (group, from, "b"), cp));
        }
        world.apply(&grant("of-vault", "ns", (KONG, "KongVault", ""), cp));
        world.apply(&referenced);
        world.settle();
        world.apply(&referring);
        world.settle();
        for (condition, told) in refused {
            assert_eq!(world.condition(kind, "o", condition), told, "{kind}");
        }
        let of = if kind == "KongVault" { "" } else { "ns" };
        world.apply(&grant("g", "b", (KONG, kind, of), (group, to)));
        world.settle();
        assert_eq!(world.condition(kind, "o", "ResolvedRefs"), granted, "{kind}");
        assert_eq!(world.condition(kind, "o", "Programmed"), "True/Programmed ", "{kind}");
    }
}

#[test]
fn a_vault_tells_of_its_config_store_in_words_of_its_own() {
    let world = World::with_control_plane();
    let kind = "KongVault";
    for to in ["KonnectGatewayControlPlane", "KonnectConfigStore"] {
        world.apply(&grant(&to.to_lowercase(), "ns", (KONG, kind, ""), (KONNECT, to)));
    }
    world.apply(&vault(json!({"configStoreRef": {"name": "r", "namespace": "ns"}})));
    world.settle();
    let valid = || world.condition(kind, "o", "ConfigStoreRefValid");
    assert_eq!(valid(), "False/Invalid Referenced KonnectConfigStore ns/r does not exist");
    let fault = json!([{"method": "POST", "path": "config-stores", "status": 403, "times": -1}]);
    world.faults(fault);
    let spec = json!({"apiSpec": {"name": "s"}, "controlPlaneRef": {"type": "namespacedRef", "namespacedRef": {"name": "cp"}}});
    world.apply(&object("KonnectConfigStore", "r", json!({"spec": spec})));
    world.settle();
    assert_eq!(
        valid(),
        "False/NotProgrammed Referenced KonnectConfigStore ns/r is not programmed yet"
    );
    world.faults(json!([]));
    world.patch("KonnectConfigStore", "r", json!({"spec": {"apiSpec": {"name": "s2"}}}));
    world.settle();
    assert_eq!(valid(), "True/Valid Referenced KonnectConfigStore ns/r is programmed");
    let fault = json!([{"method": "PUT", "path": "config-stores", "status": 403, "times": -1}]);
    world.faults(fault);
    world.patch("KonnectConfigStore", "r", json!({"spec": {"apiSpec": {"name": "s3"}}}));
    world.settle();
    assert!(world.condition("KonnectConfigStore", "r", "Programmed").starts_with("False/"));
    world.patch(kind, "o", json!({"spec": {"description": "d"}}));
    world.settle();
    let with = ["Valid Referenced KonnectConfigStore ns/r is programmed", "Programmed "];
    let with = with.map(|of| format!("True/{of}"));
    assert_eq!(conditions(&world, kind, &["ConfigStoreRefValid", "Programmed"]), with);
    world.patch(kind, "o", json!({"spec": {"config": {"config_store_id": "i"}}}));
    world.settle();
    assert_eq!(
        valid(),
        "False/Invalid spec.configStoreRef cannot be used: it is mutually exclusive with \
         \"config_store_id\" in spec.config"
    );
    world.patch(kind, "o", json!({"spec": {"configStoreRef": null}}));
    world.settle();
    assert_eq!(valid(), "");
}

#[test]
fn a_group_of_control_planes_takes_no_entities() {
    let world = World::new(&json!({}));
    let mut group = control_plane();
    group["spec"]["createControlPlaneRequest"]["cluster_type"] =
        "CLUSTER_TYPE_CONTROL_PLANE_GROUP".into();
    for object in [auth(), group, service("o")] {
        world.apply(&object);
        world.settle();
    }
    assert_eq!(
        conditions(&world, "KongService", &["ControlPlaneRefValid", "Programmed"]),
        [
            "False/Invalid Attaching to ControlPlane ns/cp with cluster type \
             CLUSTER_TYPE_CONTROL_PLANE_GROUP is not supported",
            "False/FailedToCreate can't create KongService ns/o without a Konnect ControlPlane ID",
        ]
    );
    let stored = world.get("KongService", "o").unwrap();
    assert_eq!(stored["metadata"]["finalizers"], json!([CLEANUP]));
    assert_eq!(stored["status"].get("konnect"), None);
    world.requests();
    world.delete("KongService", "o");
    world.settle();
    assert_eq!((world.requests().len(), world.get("KongService", "o")), (0, None));
}

#[test]
fn a_route_tells_that_it_has_no_service_any_more() {
    let world = World::with_control_plane();
    world.apply(&service("svc"));
    world.apply(&in_cp("KongRoute", "o", json!({"name": "o", "paths": ["/x"]})));
    world.settle();
    let named = json!({"type": "namespacedRef", "namespacedRef": {"name": "svc"}});
    let cases = [
        (json!({"serviceRef": named}), 2, "True/Valid Referenced KongService ns/svc programmed"),
        (json!({"serviceRef": null}), 3, "True/Valid ServiceRef is unset"),
        (json!({"paths": ["/y"]}), 3, "True/Valid ServiceRef is unset"),
    ];
    for (spec, generation, told) in cases {
        world.patch("KongRoute", "o", json!({"spec": spec}));
        world.settle();
        assert_eq!(world.condition("KongRoute", "o", "KongServiceRefValid"), told);
        let route = world.get("KongRoute", "o").unwrap();
        let conditions = route["status"]["conditions"].as_array().unwrap();
        let held = conditions.iter().find(|held| held["type"] == "KongServiceRefValid").unwrap();
        assert_eq!(held["observedGeneration"], generation, "{told}");
    }
}

#[test]
fn a_consumer_is_in_the_groups_that_are_there_and_says_which_are_not() {
    let world = World::with_control_plane();
    let group = |name: &str| in_cp("KongConsumerGroup", name, json!({"name": name}));
    world.apply(&group("one"));
    world.settle();
    let mut consumer = in_cp("KongConsumer", "o", json!({}));
    merge(&mut consumer, json!({"username": "o", "consumerGroups": ["one", "two"]}));
    world.apply(&consumer);
    world.settle();
    let told = conditions(&world, "KongConsumer", &["KongConsumerGroupRefsValid", "Programmed"]);
    assert_eq!(told[0], "False/Invalid Invalid ConsumerGroup references: two: NotFound");
    assert!(
        told[1].starts_with("False/FailedToAttachConsumerToConsumerGroup Konnect entity (ID: ")
    );
    assert!(told[1].ends_with("see KongConsumer status for details"), "{}", told[1]);
    let joined = |world: &World| {
        let requests = world.requests();
        requests.iter().filter(|of| of.starts_with("POST") && of.ends_with("/consumers")).count()
    };
    assert_eq!(joined(&world), 2, "the consumer, and its place in a group");
    world.settle();
    assert_eq!(world.requests(), [""; 0]);
    world.apply(&group("two"));
    world.settle();
    assert_eq!(joined(&world), 1, "in the other group");
    assert_eq!(world.condition("KongConsumer", "o", "Programmed"), "True/Programmed ");
}

#[test]
fn a_consumer_is_in_more_groups_than_a_page_has() {
    let world = World::with_control_plane();
    let names: Vec<String> = (0..101).map(|at| format!("g{at}")).collect();
    for name in &names {
        world.apply(&in_cp("KongConsumerGroup", name, json!({"name": name})));
    }
    world.settle();
    let mut consumer = in_cp("KongConsumer", "o", json!({}));
    merge(&mut consumer, json!({"username": "o", "consumerGroups": names}));
    world.apply(&consumer);
    world.settle();
    assert_eq!(world.condition("KongConsumer", "o", "Programmed"), "True/Programmed ");
    let joins = |method: &str| {
        let requests = world.requests();
        let is_join = |of: &&String| {
            let parts = of.split_once("/consumer_groups/");
            of.starts_with(method) && parts.is_some_and(|(_, rest)| rest.contains("/consumers"))
        };
        requests.iter().filter(is_join).count()
    };
    assert_eq!(joins("POST"), 101);
    // Each place is seen: none is asked for again, and the one that goes is of the second page.
    world.patch("KongConsumer", "o", json!({"consumerGroups": names[..100]}));
    world.settle();
    assert_eq!(joins(""), 1);
    assert_eq!(world.condition("KongConsumer", "o", "Programmed"), "True/Programmed ");
}

#[test]
fn a_consumer_joins_its_groups_in_the_order_of_its_list() {
    let world = World::with_control_plane();
    let names = ["d", "a", "c", "b", "e"];
    for name in names {
        world.apply(&in_cp("KongConsumerGroup", name, json!({"name": name})));
    }
    let mut consumer = in_cp("KongConsumer", "o", json!({}));
    merge(&mut consumer, json!({"username": "o", "consumerGroups": names}));
    world.apply(&consumer);
    world.settle();
    let groups = names.map(|name| world.get("KongConsumerGroup", name).unwrap());
    let ids = groups.each_ref().map(|group| group["status"]["konnect"]["id"].as_str().unwrap());
    let requests = world.requests();
    let group = |request: &'_ String| {
        let (_, rest) = request.strip_prefix("POST ")?.split_once("/consumer_groups/")?;
        rest.strip_suffix("/consumers").map(str::to_owned)
    };
    assert_eq!(requests.iter().filter_map(group).collect::<Vec<_>>(), ids);
}

#[test]
fn groups_are_not_asked_for_while_all_of_a_new_consumer_are_missing() {
    let world = World::with_control_plane();
    let mut consumer = in_cp("KongConsumer", "o", json!({}));
    merge(&mut consumer, json!({"username": "o", "consumerGroups": ["one", "two"]}));
    world.apply(&consumer);
    world.settle();
    let requests = world.requests();
    assert_eq!((requests.len(), requests[0].ends_with("/consumers")), (1, true), "{requests:?}");
    world.apply(&in_cp("KongConsumerGroup", "one", json!({"name": "one"})));
    world.settle();
    assert_eq!(
        world.condition("KongConsumer", "o", "KongConsumerGroupRefsValid"),
        "False/Invalid Invalid ConsumerGroup references: two: NotFound"
    );
    let joins = world.requests();
    let joins = joins.iter().filter(|request| request.contains("/consumer_groups/"));
    assert_eq!(joins.count(), 1);
}

#[test]
fn a_consumer_names_all_secrets_that_are_not_there() {
    let world = World::with_control_plane();
    let mut consumer = in_cp("KongConsumer", "o", json!({}));
    merge(&mut consumer, json!({"username": "o", "credentials": ["one", "two"]}));
    world.apply(&consumer);
    world.settle();
    assert_eq!(
        conditions(
            &world,
            "KongConsumer",
            &["CredentialSecretRefsValid", "KongConsumerGroupRefsValid"]
        ),
        ["False/Invalid Secret \"one\" not found\nSecret \"two\" not found", ""]
    );
    assert_eq!(world.requests(), [""; 0]);
}

#[test]
fn a_key_is_let_go_with_its_set() {
    let world = World::with_control_plane();
    let set = json!({"type": "namespacedRef", "namespacedRef": {"name": "set"}});
    world.apply(&in_cp("KongKeySet", "set", json!({"name": "set"})));
    world.settle();
    world.apply(&in_cp("KongKey", "o", json!({"kid": "k", "jwk": "{}", "keySetRef": set})));
    world.settle();
    world.delete("KongKeySet", "set");
    world.settle();
    assert_eq!(
        world.condition("KongKey", "o", "KeySetRefValid"),
        "False/Invalid KongKeySet.configuration.konghq.com \"set\" not found"
    );
    assert_eq!(world.get("KongKey", "o").unwrap()["metadata"].get("finalizers"), None);
}

#[test]
fn entities_follow_a_control_plane_that_is_made_again() {
    let world = World::with_control_plane();
    let mut consumer = in_cp("KongConsumer", "con", json!({}));
    consumer["username"] = "con".into();
    let key = json!({"spec": {"consumerRef": {"name": "con"}, "key": "k"}});
    let kinds = [
        ("KongService", "svc"),
        ("KongRoute", "o"),
        ("KongConsumer", "con"),
        ("KongCredentialAPIKey", "o"),
    ];
    for object in [
        service("svc"),
        route(&json!({"name": "svc"})),
        consumer,
        object("KongCredentialAPIKey", "o", key),
    ] {
        world.apply(&object);
        world.settle();
    }
    let before = world.get("KongService", "svc").unwrap()["status"]["konnect"].clone();
    world.requests();
    world.delete("KonnectGatewayControlPlane", "cp");
    world.settle();
    for (kind, name) in kinds {
        let stored = world.get(kind, name).unwrap();
        assert_eq!(stored["metadata"].get("finalizers"), None, "{kind}: the entity went along");
    }
    let requests = world.requests();
    assert_eq!(requests.iter().filter(|request| !request.starts_with("GET")).count(), 1);
    world.apply(&control_plane());
    world.settle();
    let old = before["controlPlaneID"].as_str().unwrap();
    let requests = world.requests();
    assert!(!requests.iter().any(|request| request.contains(old)), "{requests:?}");
    for (kind, name) in kinds {
        assert_eq!(world.condition(kind, name, "Programmed"), "True/Programmed ", "{kind}");
    }
    let after = world.get("KongService", "svc").unwrap()["status"]["konnect"].clone();
    assert_eq!(after["id"], before["id"], "a service is put under its old ID");
    assert_ne!(after["controlPlaneID"], before["controlPlaneID"]);
}

#[test]
fn the_bindings_of_an_annotation_go_before_their_target() {
    let annotations = json!({"metadata": {"annotations": {"konghq.com/plugins": "plug"}}});
    let mut consumer = in_cp("KongConsumer", "o", json!({}));
    consumer["username"] = "o".into();
    for mut target in
        [service("o"), consumer, in_cp("KongConsumerGroup", "o", json!({"name": "o"}))]
    {
        let world = World::with_control_plane();
        merge(&mut target, annotations.clone());
        world.apply(&object("KongPlugin", "plug", json!({"plugin": "key-auth"})));
        world.apply(&target);
        world.settle();
        world.requests();
        let kind = target["kind"].as_str().unwrap();
        world.delete(kind, "o");
        world.settle();
        let requests = world.requests();
        let first = requests.first().map(String::as_str).unwrap_or_default();
        assert!(first.starts_with("DELETE") && first.contains("/plugins/"), "{kind}: {requests:?}");
        assert_eq!((requests.len(), world.get(kind, "o")), (2, None), "{kind}");
    }
}
