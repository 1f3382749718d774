use serde_json::json;

use super::*;
use crate::{
    Error, Verbs,
    kubernetes::{ConfigMap, Pod, Service},
};

fn pods() -> Stub {
    let pod = |name: &str, app: &str, tier: Option<&str>| {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "shop", "uid": name, "labels": {"app": app}},
            "spec": {"containers": [{"name": "app", "image": "x"}, {"name": "istio-proxy", "image": "p"}], "nodeName": "one"},
            "status": {"phase": "Running"},
        });
        if let Some(tier) = tier {
            pod["metadata"]["labels"]["tier"] = tier.into();
        }
        pod
    };
    Stub::new().objects([
        pod("b", "web", Some("front")),
        pod("a", "web", None),
        pod("c", "db", Some("back")),
    ])
}

fn names(pods: &[Pod]) -> Vec<&str> {
    pods.iter().map(|pod| pod.metadata.name.as_str()).collect()
}

#[test]
fn an_answer_holds_the_fields_that_were_asked_for_and_what_always_is_there() {
    let fields =
        ["spec.containers[].name", "spec.containers[name=app].image", "metadata.labels[\"app\"]"];
    let pod: Value =
        pods().host().get_ref(&ObjectRef::of::<Pod>(Some("shop"), "a"), &fields).unwrap().unwrap();
    let expected = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "shop", "uid": "a", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "app", "image": "x"}, {"name": "istio-proxy"}]},
    });
    assert_eq!(pod, expected);
}

#[test]
fn a_list_is_ordered_and_comes_in_pages() {
    for page in [1, 2, 3, 9] {
        let stub = pods().page(page);
        let found: Vec<Pod> = stub.host().list(&Selection::of::<Pod>()).unwrap();
        assert_eq!(names(&found), ["a", "b", "c"], "pages of {page}");
        assert_eq!(stub.reads().len(), 3usize.div_ceil(page), "pages of {page}");
    }
    let stub = pods();
    let selection = Selection::of::<Pod>();
    let first: Vec<Pod> =
        stub.host().objects(&selection, 1).take(2).collect::<Result<_, _>>().unwrap();
    assert_eq!(
        (names(&first), stub.reads().len()),
        (vec!["a", "b"], 2),
        "no page more than is taken"
    );
}

#[test]
fn selections_select() {
    let of = Selection::of::<Pod>;
    let cases = [
        ("all", of(), vec!["a", "b", "c"]),
        ("equal", of().labels("app=web"), vec!["a", "b"]),
        ("equal, twice", of().labels("app==web, tier=front"), vec!["b"]),
        ("not equal", of().labels("tier!=front"), vec!["a", "c"]),
        ("set", of().labels("tier in (front,back),app"), vec!["b", "c"]),
        ("not in set", of().labels("tier notin (front,back)"), vec!["a"]),
        ("missing", of().labels("!tier"), vec!["a"]),
        ("name", of().name("c"), vec!["c"]),
        ("namespace", of().namespace("elsewhere"), vec![]),
        (
            "matching",
            of().matching("spec.containers[].image", "p")
                .matching("metadata.labels[\"app\"]", "db"),
            vec!["c"],
        ),
        ("matching one element", of().matching("spec.containers[name=app].image", "p"), vec![]),
    ];
    for (case, selection, expected) in cases {
        let found: Vec<Pod> = pods().host().list(&selection).unwrap();
        assert_eq!(names(&found), expected, "{case}");
    }
}

#[test]
fn reads_fail_as_the_contract_says() {
    let declared = Description::new("test", "1")
        .reads(Selection::of::<Pod>().namespace("shop").fields(["spec.containers[].name"]))
        .writes(Selection::of::<ConfigMap>(), Verbs::CREATE);
    let list = |stub: &Stub, selection: &Selection| stub.host().list::<Pod>(selection).unwrap_err();
    let asked = |field: &str| Selection::of::<Pod>().namespace("shop").fields([field]);

    let stub = pods().declared(declared);
    assert!(stub.host().list::<Pod>(&asked("spec.containers[].name")).is_ok());
    assert!(stub.host().list::<Pod>(&asked("metadata.uid")).is_ok());
    assert!(matches!(list(&stub, &asked("spec.nodeName")), Error::Denied { .. }), "another field");
    assert!(
        matches!(list(&stub, &Selection::of::<Pod>()), Error::Denied { .. }),
        "another namespace"
    );
    assert!(
        matches!(list(&stub, &Selection::of::<Service>()), Error::Denied { .. }),
        "another kind"
    );
    let indexed = Selection::of::<Pod>().matching("spec.nodeName", "*").fields(["spec.nodeName"]);
    let stub = pods().declared(Description::new("test", "1").reads(indexed));
    assert!(
        stub.host().list::<Pod>(&asked("spec.nodeName").matching("spec.nodeName", "one")).is_ok()
    );
    let only = Selection::of::<Pod>().matching("spec.nodeName", "one");
    let stub = pods().declared(Description::new("test", "1").reads(only));
    assert!(
        matches!(list(&stub, &asked("spec.nodeName")), Error::Denied { .. }),
        "all where some were declared"
    );
    assert!(list(&pods().without_kind("", "Pod"), &Selection::of::<Pod>()).is_unknown_kind());
    assert!(matches!(
        list(&pods().unavailable("Pod"), &Selection::of::<Pod>()),
        Error::Unavailable { .. }
    ));
    for selection in
        [Selection::of::<Pod>().labels("app in web"), Selection::of::<Pod>().fields(["spec..x"])]
    {
        assert!(matches!(list(&pods(), &selection), Error::Invalid { .. }), "{selection:?}");
    }
    let shape = pods().host().list::<Vec<String>>(&Selection::of::<Pod>()).unwrap_err();
    assert!(matches!(&shape, Error::Shape { what, .. } if what == "a list of Pod v1"), "{shape}");
}

#[test]
fn without_fields_all_that_was_declared_is_answered() {
    let declared =
        Description::new("test", "1").reads(Selection::of::<Pod>().fields(["spec.nodeName"]));
    let pod: Pod = pods().declared(declared).host().get(Some("shop"), "a", &[]).unwrap().unwrap();
    assert_eq!((pod.spec.node_name.as_deref(), pod.spec.containers.len()), (Some("one"), 0));
    let pod: Pod = pods().host().get(Some("shop"), "a", &[]).unwrap().unwrap();
    assert_eq!(pod.spec.containers.len(), 2, "nothing declared: the whole object");
}

#[test]
fn the_log_is_kept() {
    let stub = Stub::new();
    stub.host().log(Level::Info, "hello", &[("to", "you")]);
    let line = Line {
        level: Level::Info,
        message: "hello".to_owned(),
        fields: vec![("to".to_owned(), "you".to_owned())],
    };
    assert_eq!(stub.lines(), [line]);
}
