//! The arrows of the original's flow chart, on both clusters.

use mortise_sdk::testing::request_for;
use serde_json::json;

use super::fixture::{
    World, bind, binding, core, definition, export, kubeconfig, rocket, schema, with,
};
use crate::link::Link;

fn labelled_secret() -> serde_json::Value {
    with(
        kubeconfig("cn"),
        json!({"metadata": {"labels": {"kube-bind.io/provider-kubeconfig": "true"}}}),
    )
}

#[test]
fn export_there_and_binding_there_and_schemas_there_starts_the_sync() {
    let world = World::synchronised();
    let there = world.at_provider(&rocket("cn-team")).unwrap();
    assert_eq!(there["spec"], json!({"intent": "fly", "stages": 3}));
    let marks = &there["metadata"]["annotations"];
    assert_eq!(marks["kube-bind.io/cluster-namespace"], "cn");
    assert_eq!(marks["kube-bind.io/consumer-namespace"], "team");
    let home = world.at_home(&rocket("team")).unwrap();
    assert_eq!(marks["kube-bind.io/consumer-uid"], home["metadata"]["uid"]);
    assert_eq!(home["metadata"]["finalizers"], json!(["kubebind.io/syncer"]));
    assert_eq!(
        home["metadata"]["annotations"]["kube-bind.io/provider-uid"],
        there["metadata"]["uid"]
    );
    assert_eq!(home["metadata"]["annotations"]["kube-bind.io/provider-namespace"], "cn-team");
}

#[test]
fn export_gone_stops_the_sync() {
    let world = World::synchronised();
    world.there().delete("APIServiceExport/cn/rockets");
    world.settle();
    let conditions = World::conditions(world.at_home(&binding()));
    assert!(
        conditions.contains(&"Connected=False/APIServiceExportNotFound".to_owned()),
        "{conditions:?}"
    );
    world.home().patch(&with(rocket("team"), json!({"spec": {"intent": "late"}})));
    world.settle();
    assert_eq!(world.at_provider(&rocket("cn-team")).unwrap()["spec"]["intent"], "fly");
    // The object at home can still go, and the one at the provider is left alone.
    world.home().delete("Rocket/team/saturn");
    world.settle();
    assert_eq!(world.at_home(&rocket("team")), None);
    assert!(world.at_provider(&rocket("cn-team")).is_some());
    world.there().apply(&export());
    world.settle();
    assert_eq!(world.at_provider(&rocket("cn-team")), None);
}

/// Returns a world as a restart finds it: an object at home is being deleted.
fn restarted(there: Option<serde_json::Value>) -> World {
    let owner = json!([{"apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceBinding", "name": "rockets", "uid": "u1"}]);
    let leaving =
        json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kubebind.io/syncer"]});
    let in_sync = json!([{"type": "SchemaInSync", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let binding = json!({"metadata": {"uid": "u1"}, "status": {"conditions": in_sync}});
    World::unsettled(
        [
            with(self::binding(), binding),
            with(definition(), json!({"metadata": {"ownerReferences": owner}})),
            with(rocket("team"), json!({"metadata": leaving})),
        ],
        there,
    )
}

#[test]
fn export_gone_lets_deleted_objects_go_after_a_restart_too() {
    let world = restarted(None);
    assert!(world.at_home(&rocket("team")).is_some());
    world.settle();
    assert_eq!(world.at_home(&rocket("team")), None);
}

#[test]
fn schema_gone_is_told_and_lets_deleted_objects_go_after_a_restart_too() {
    let world = restarted(Some(export())).settled();
    let failed =
        ["Connected", "SchemaInSync"].map(|of| format!("{of}=False/BoundSchemaFetchFailed"));
    let conditions = World::conditions(world.at_home(&binding()));
    assert!(failed.iter().all(|of| conditions.contains(of)), "{conditions:?}");
    let told = ["Connected=True", "ConsumerInSync=False/BoundSchemaFetchFailed"];
    assert_eq!(World::conditions(world.at_provider(&export())), told);
    assert_eq!(world.at_home(&rocket("team")), None);
}

#[test]
fn export_back_starts_the_sync_again() {
    let world = World::synchronised();
    world.there().delete("APIServiceExport/cn/rockets");
    world.settle();
    world.home().patch(&with(rocket("team"), json!({"spec": {"intent": "late"}})));
    world.there().apply(&export());
    world.settle();
    assert_eq!(world.at_provider(&rocket("cn-team")).unwrap()["spec"]["intent"], "late");
}

#[test]
fn binding_missing_leaves_the_export_unconnected() {
    let world = World::new([labelled_secret()], [export(), schema()]);
    let conditions = World::conditions(world.at_provider(&export()));
    assert_eq!(
        conditions,
        ["Connected=False/APIServiceBindingNotFound", "ConsumerInSync=False/NA"]
    );
    assert_eq!(world.at_home(&definition()), None);
    world.home().apply(&binding());
    world.settle();
    assert_eq!(
        World::conditions(world.at_provider(&export())),
        ["Connected=True", "ConsumerInSync=True"]
    );
    assert!(world.at_home(&definition()).is_some());
}

#[test]
fn schema_missing_makes_no_definition_and_stops_the_sync() {
    let world = World::new([binding()], [export()]);
    let failed = "Connected=False/BoundSchemaFetchFailed".to_owned();
    assert!(World::conditions(world.at_home(&binding())).contains(&failed));
    assert_eq!(world.at_home(&definition()), None);
    let unknown = ["Connected=True", "ConsumerInSync=False/Unknown"];
    assert_eq!(World::conditions(world.at_provider(&export())), unknown);

    let world = World::synchronised();
    world.there().delete("BoundSchema/cn/*");
    world.settle();
    let conditions = World::conditions(world.at_home(&binding()));
    assert!(conditions.contains(&failed), "{conditions:?}");
    world.home().patch(&with(rocket("team"), json!({"spec": {"intent": "lost"}})));
    world.settle();
    assert_eq!(world.at_provider(&rocket("cn-team")).unwrap()["spec"]["intent"], "fly");
    world.there().apply(&schema());
    world.settle();
    assert_eq!(world.at_provider(&rocket("cn-team")).unwrap()["spec"]["intent"], "lost");
}

#[test]
fn binding_connected_and_in_sync_is_told_on_all_four() {
    let world = World::bound();
    let found = world.at_home(&binding()).unwrap();
    assert_eq!(found["status"]["providerPrettyName"], "Golden");
    let bound = json!([{"group": "golden.example.dev", "resource": "rockets"}]);
    assert_eq!(found["status"]["boundSchemas"], bound);
    assert_eq!(
        World::conditions(Some(found)),
        [
            "Ready=True",
            "Connected=True",
            "Heartbeating=True",
            "InformersSynced=True",
            "SchemaInSync=True",
            "SecretValid=True"
        ]
    );
    assert_eq!(
        World::conditions(world.at_provider(&export())),
        ["Connected=True", "ConsumerInSync=True"]
    );
    let schema = world.at_provider(&schema()).unwrap();
    assert_eq!(schema["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(
        World::conditions(Some(schema)),
        ["Ready=True", "Established=True", "NamesAccepted=True"]
    );
    let cluster_binding = world.at_provider(&bind("ClusterBinding", "cn", "cluster")).unwrap();
    let status = &cluster_binding["status"];
    assert_eq!(status["heartbeatInterval"], "5m0s");
    assert_eq!(
        status["consumerSecretRef"],
        json!({"name": "kubeconfig-a", "namespace": "kube-bind"})
    );
    assert_eq!(
        World::conditions(Some(cluster_binding.clone())),
        ["Ready=True", "SecretValid=True", "ValidVersion=True"]
    );
}

#[test]
fn conditions_of_the_definition_are_those_of_the_schema_with_their_summary() {
    let taken = with(
        definition(),
        json!({
            "metadata": {"name": "missiles.golden.example.dev"},
            "spec": {"names": {"plural": "missiles", "singular": "missile"}},
        }),
    );
    let world = World::new([taken, binding()], [export(), schema()]);
    let conditions = World::conditions(world.at_provider(&schema()));
    assert_eq!(
        conditions,
        [
            "Ready=False/NotAccepted",
            "Established=False/NotAccepted",
            "NamesAccepted=False/ListKindConflict"
        ]
    );
}

#[test]
fn status_comes_back_whole_and_goes_with_its_source() {
    let world = World::synchronised();
    world.there().patch(&with(rocket("cn-team"), json!({"status": {"result": "flown"}})));
    world.settle();
    assert_eq!(world.at_home(&rocket("team")).unwrap()["status"], json!({"result": "flown"}));
    world.home().patch(&with(rocket("team"), json!({"status": {"result": "forged"}})));
    world.settle();
    assert_eq!(world.at_home(&rocket("team")).unwrap()["status"], json!({"result": "flown"}));
}

#[test]
fn a_field_that_is_taken_out_goes_and_labels_stay_as_at_creation() {
    let world = World::synchronised();
    let change = json!({"metadata": {"labels": {"color": "red"}}, "spec": {"intent": "land", "stages": null}});
    world.home().patch(&with(rocket("team"), change));
    world.there().patch(&with(rocket("cn-team"), json!({"spec": {"secretName": "theirs"}})));
    world.settle();
    let there = world.at_provider(&rocket("cn-team")).unwrap();
    assert_eq!(there["spec"], json!({"intent": "land", "secretName": "theirs"}));
    assert_eq!(there["metadata"].get("labels"), None);
}

#[test]
fn the_last_field_goes_with_the_second_try_and_may_come_back() {
    let world = World::synchronised();
    let there = || world.at_provider(&rocket("cn-team")).unwrap()["spec"].clone();
    world.home().patch(&with(rocket("team"), json!({"spec": {"intent": null, "stages": null}})));
    assert_eq!(world.failures().len(), 1);
    world.home().advance(std::time::Duration::from_secs(30));
    world.settle();
    assert!(there().as_object().is_none_or(serde_json::Map::is_empty), "{}", there());
    world.home().patch(&with(rocket("team"), json!({"spec": {"intent": "land"}})));
    world.settle();
    assert_eq!(there(), json!({"intent": "land", "stages": 3}));
}

#[test]
fn labels_and_annotations_that_are_taken_out_stay_as_at_creation() {
    let world = World::bound();
    let extra = json!({"labels": {"size": "big"}, "annotations": {"note": "x", "price": "5"}});
    world.home().apply(&with(rocket("team"), json!({"metadata": extra})));
    world.settle();
    let none = json!({"labels": {"size": null}, "annotations": {"note": null}});
    for spec in [json!({}), json!({"intent": "land"}), json!({"intent": "rest"})] {
        world.home().patch(&with(rocket("team"), json!({"metadata": none, "spec": spec})));
        world.settle();
        let there = world.at_provider(&rocket("cn-team")).unwrap();
        let metadata = &there["metadata"];
        assert_eq!(metadata["labels"], json!({"size": "big"}), "{spec}");
        for (key, value) in [("note", "x"), ("price", "5")] {
            assert_eq!(metadata["annotations"][key], value, "{spec}");
        }
    }
}

#[test]
fn an_object_waits_for_its_namespace_at_the_provider() {
    let world = World::bound();
    world.home().apply(&core("Namespace", "", "crew"));
    world.home().apply(&rocket("crew"));
    world.settle();
    let asked = bind("APIServiceNamespace", "cn", "crew");
    let found = world.at_provider(&asked).unwrap();
    assert_eq!(found["metadata"]["ownerReferences"][0]["kind"], "APIServiceExport");
    assert_eq!(world.at_home(&rocket("crew")).unwrap()["metadata"].get("finalizers"), None);
    world.there().apply(&core("Namespace", "", "somewhere"));
    world.there().patch(&with(asked, json!({"status": {"namespace": "somewhere"}})));
    world.settle();
    assert!(world.at_provider(&rocket("somewhere")).is_some());
}

#[test]
fn binding_gone_stops_the_sync_and_binding_back_starts_it_again() {
    let world = World::synchronised();
    world.home().delete("APIServiceBinding//rockets");
    world.settle();
    world.home().advance(std::time::Duration::from_secs(1));
    world.settle();
    assert_eq!((world.at_home(&definition()), world.at_provider(&rocket("cn-team"))), (None, None));
    world.there().apply(&rocket("cn-team"));
    world.settle();
    assert!(world.at_provider(&rocket("cn-team")).is_some(), "nobody looks for orphans any more");
    world.home().apply(&binding());
    world.settle();
    world.home().apply(&rocket("team"));
    world.settle();
    let marks = &world.at_provider(&rocket("cn-team")).unwrap()["metadata"]["annotations"];
    assert_eq!(marks["kube-bind.io/cluster-namespace"], "cn");
    let conditions = World::conditions(world.at_provider(&export()));
    assert_eq!(conditions, ["Connected=True", "ConsumerInSync=True"]);
}

#[test]
fn one_schema_gone_stops_its_kind_and_the_others_go_on() {
    let moons = |object: serde_json::Value| {
        let names =
            json!({"kind": "Moon", "listKind": "MoonList", "plural": "moons", "singular": "moon"});
        let name = json!({"metadata": {"name": "moons.golden.example.dev"}});
        with(with(object, json!({"spec": {"names": names}})), name)
    };
    let resources = json!([
        {"group": "golden.example.dev", "resource": "rockets", "versions": ["v1"]},
        {"group": "golden.example.dev", "resource": "moons", "versions": ["v1"]},
    ]);
    let export = with(export(), json!({"spec": {"resources": resources}}));
    let there = [export, schema(), moons(schema()), moons(definition())];
    let world = World::new([binding()], there);
    let moon = |namespace| with(rocket(namespace), json!({"kind": "Moon"}));
    world.home().apply(&rocket("team"));
    world.home().apply(&moon("team"));
    world.settle();
    assert!(world.at_provider(&moon("cn-team")).is_some());
    world.there().delete("BoundSchema/cn/moons.golden.example.dev");
    world.settle();
    let change = json!({"spec": {"intent": "late"}});
    world.home().patch(&with(rocket("team"), change.clone()));
    world.home().patch(&with(moon("team"), change));
    world.settle();
    assert_eq!(world.at_provider(&rocket("cn-team")).unwrap()["spec"]["intent"], "late");
    assert_eq!(world.at_provider(&moon("cn-team")).unwrap()["spec"]["intent"], "fly");
    world.there().apply(&moons(schema()));
    world.settle();
    assert_eq!(world.at_provider(&moon("cn-team")).unwrap()["spec"]["intent"], "late");
}

#[test]
fn schema_in_sync_goes_to_the_export_with_reason_and_message_and_comes_back() {
    let world = World::bound();
    world.there().delete("BoundSchema/cn/*");
    world.settle();
    let condition = |of: serde_json::Value, index: usize| of["status"]["conditions"][index].clone();
    let told = condition(world.at_home(&binding()).unwrap(), 4);
    let in_sync = condition(world.at_provider(&export()).unwrap(), 1);
    assert_eq!(told["type"], "SchemaInSync");
    assert_eq!(in_sync, with(told, json!({"type": "ConsumerInSync"})));
    assert_eq!(in_sync["reason"], "BoundSchemaFetchFailed");
    world.there().apply(&schema());
    world.settle();
    let conditions = World::conditions(world.at_provider(&export()));
    assert_eq!(conditions, ["Connected=True", "ConsumerInSync=True"]);
}

#[test]
fn definition_gone_is_made_again_and_its_conditions_are_told() {
    let world = World::bound();
    world.home().delete("CustomResourceDefinition//rockets.golden.example.dev");
    world.settle();
    let made = world.at_home(&definition()).unwrap();
    assert_eq!(made["metadata"]["ownerReferences"][0]["name"], "rockets");
    let conditions = World::conditions(world.at_provider(&schema()));
    assert_eq!(conditions, ["Ready=True", "Established=True", "NamesAccepted=True"]);
    world.home().apply(&rocket("team"));
    world.settle();
    assert!(world.at_provider(&rocket("cn-team")).is_some());
}

#[test]
fn the_binding_is_found_behind_an_owner_reference_that_leads_nowhere() {
    let named =
        |name: &str, uid: &str| with(binding(), json!({"metadata": {"name": name, "uid": uid}}));
    let owner = |name: &str, uid: &str| json!({"apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceBinding", "name": name, "uid": uid});
    let owners = [owner("renamed", "u0"), owner("rockets", "u1")];
    let of_both = with(definition(), json!({"metadata": {"ownerReferences": owners}}));
    let world = World::unsettled([named("other", "u0"), named("rockets", "u1"), of_both], []);
    world.failures();
    let kind = request_for(&rocket("team")).ref_.kind;
    let link = Link::of_kind(&world.home().host(), &kind).unwrap().unwrap();
    assert_eq!(link.definition.metadata.owner_references.len(), 2);
    assert_eq!(link.binding.metadata.name, "rockets");
}

#[test]
fn definition_missing_leaves_the_schema_without_a_status() {
    let mut wrong = schema();
    wrong["spec"]["versions"][0]["schema"] =
        json!({"type": "object", "properties": {"spec": {"type": "thing"}}});
    let world = World::unsettled([binding()], [export(), wrong]);
    assert_eq!(world.failures().len(), 1);
    assert_eq!(world.at_home(&definition()), None);
    assert_eq!(world.at_provider(&schema()).unwrap().get("status"), None);
    world.there().apply(&schema());
    world.settle();
    assert_eq!(World::conditions(world.at_provider(&schema()))[0], "Ready=True");
}
