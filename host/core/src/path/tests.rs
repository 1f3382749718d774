use serde_json::{Value, json};

use super::*;

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "a", "uid": "u", "generation": 1, "resourceVersion": "7",
            "annotations": {"example.com/a.b": "x", "other": "y"},
            "managedFields": [{"manager": "me"}]
        },
        "spec": {"hosts": ["one", "two"], "replicas": 3, "on": true, "containers": [
            {"name": "app", "image": "i1", "ports": [{"port": 80, "protocol": "TCP"}, {"port": 80, "protocol": "UDP"}]},
            {"name": "side", "image": "i2"}
        ]},
        "status": {"phase": "Running"}
    })
}

#[test]
fn a_path_is_shown_as_it_is_read() {
    let cases = [
        "spec",
        "spec.hosts[]",
        "spec.containers[name=app].image",
        "metadata.annotations[\"example.com/a.b\"]",
        "spec.ports[port=80,protocol=TCP]",
        "spec.a[host=a.example].b",
        "[\"a.b\"].c",
        "spec.a[k=\"x,y]\"]",
        "spec[\"q\\\"\\\\\"]",
        "a/b-c",
    ];
    for case in cases {
        assert_eq!(path(case).to_string(), case, "{case}");
        assert_eq!(path(&path(case).to_string()), path(case), "{case}");
    }
}

#[test]
fn a_text_that_is_no_path_is_refused_with_the_place() {
    let cases = [
        ("", "path ``: is empty at character 1"),
        ("spec.", "path `spec.`: a name was expected (quote others as `[\"…\"]`) at character 6"),
        (
            "spec..a",
            "path `spec..a`: a name was expected (quote others as `[\"…\"]`) at character 6",
        ),
        (
            "spec[a",
            "path `spec[a`: `=` was expected (an element is named as `[key=value]`) at character 7",
        ),
        (
            "spec[0]",
            "path `spec[0]`: `=` was expected (an element is named as `[key=value]`) at character 7",
        ),
        ("spec[a=b", "path `spec[a=b`: `]` was expected at character 9"),
        ("ß[\"a", "path `ß[\"a`: the quotation is not closed at character 4"),
        ("a[]b", "path `a[]b`: `.` or `[` was expected at character 4"),
        ("a[b=1,c=2,b=1]", "path `a[b=1,c=2,b=1]`: a step names a key twice at character 12"),
        (
            "a[a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1]",
            "path `a[a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1]`: a step names more than 8 pairs at character 36",
        ),
        ("a]", "path `a]`: `.` or `[` was expected at character 2"),
    ];
    for (text, message) in cases {
        assert_eq!(text.parse::<Path>().unwrap_err().to_string(), message, "{text}");
    }
}

#[test]
fn texts_are_scalars_at_any_element() {
    let pod = pod();
    let cases: [(&str, &[&str]); 8] = [
        ("spec.hosts[]", &["one", "two"]),
        ("spec.hosts", &[]),
        ("spec.replicas", &["3"]),
        ("spec.on", &["true"]),
        ("spec.containers[].name", &["app", "side"]),
        ("spec.containers[name=side].image", &["i2"]),
        ("spec.containers[].ports[port=80,protocol=UDP].protocol", &["UDP"]),
        ("spec.none[].a", &[]),
    ];
    for (text, wanted) in cases {
        assert_eq!(path(text).texts(&pod), wanted, "{text}");
        for wanted in wanted {
            assert!(path(text).holds(&pod, wanted), "{text}");
        }
    }
}

#[test]
fn pointers_name_each_place_that_is_there() {
    let pod = pod();
    assert_eq!(
        path("spec.containers[].image").pointers(&pod),
        ["/spec/containers/0/image", "/spec/containers/1/image"]
    );
    assert_eq!(
        path("metadata.annotations[\"example.com/a.b\"]").pointers(&pod),
        ["/metadata/annotations/example.com~1a.b"]
    );
    assert_eq!(path("spec.containers[name=none]").pointers(&pod), [""; 0]);
}

#[test]
fn a_path_covers_the_paths_under_it() {
    let cases = [
        ("spec", "spec.hosts[]", true),
        ("spec.hosts[]", "spec.hosts", false),
        ("spec.c[]", "spec.c[name=a].image", true),
        ("spec.c[name=a]", "spec.c[].image", false),
        ("spec.c[name=a]", "spec.c[name=a,x=y].image", true),
        ("spec.c[name=a].image", "spec.c[name=a]", false),
        ("metadata.labels.a", "metadata.labels.ab", false),
    ];
    for (outer, inner, covered) in cases {
        assert_eq!(path(outer).covers(&path(inner)), covered, "{outer} {inner}");
        assert_eq!(Fields::of([path(outer)]).covers(&path(inner)), covered, "set: {outer} {inner}");
    }
    assert!(Fields::of([path("spec")]).covers(&path("metadata.name")));
    assert!(!Fields::of([path("spec")]).covers(&path("metadata.labels")));
    assert!(Fields::whole().covers(&path("metadata.labels")));
    assert!(!Fields::of([path("spec")]).covers_all(&Fields::whole()));
}

#[test]
fn a_projection_holds_the_requested_and_the_always_included_fields() {
    let fields =
        Fields::parse(&["spec.containers[name=app].image", "spec.containers[].name", "spec.none"])
            .unwrap();
    assert_eq!(
        fields.project(&pod()),
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "uid": "u", "generation": 1, "resourceVersion": "7"},
            "spec": {"containers": [{"name": "app", "image": "i1"}, {"name": "side"}]}
        })
    );
    for fields in
        [&fields, &Fields::parse(&["spec.containers[].ports[].port", "spec.hosts"]).unwrap()]
    {
        assert_eq!(fields.read(&pod().to_string()), fields.project(&pod()), "{fields}");
    }
    let mut whole = pod();
    whole["metadata"].as_object_mut().unwrap().remove("managedFields");
    assert_eq!(Fields::whole().project(&pod()), whole);
    assert_eq!(
        serde_json::to_value(fields.select(&pod(), Extent::Shown)).unwrap(),
        fields.project(&pod())
    );
}

#[test]
fn every_element_is_there_even_without_the_fields() {
    let gateway = json!({"kind": "Gateway", "spec": {
        "servers": [{"hosts": ["a"]}, {"port": 1}, {}, 1], "named": [{"name": "x", "a": 1}, {"b": 1}], "none": [],
    }});
    let cases = [
        ("spec.servers[].hosts", json!({"servers": [{"hosts": ["a"]}, {}, {}]})),
        ("spec.servers[].port", json!({"servers": [{}, {"port": 1}, {}]})),
        ("spec.named[name=x].b", json!({"named": [{"name": "x"}]})),
        ("spec.named[].in[name=x].b", json!({"named": [{}, {}]})),
        ("spec.none[].a", json!(null)),
    ];
    for (paths, expected) in cases {
        let fields = Fields::parse(&[paths]).unwrap();
        let selected = fields.project(&gateway);
        assert_eq!(selected.get("spec").unwrap_or(&json!(null)), &expected, "{paths}");
        assert_eq!(fields.read(&gateway.to_string()), selected, "{paths}, from JSON");
    }
}

#[test]
fn only_requested_fields_and_the_uid_count_as_a_difference() {
    let cases = [
        ("an asked field", "/spec/replicas", true),
        ("a field not asked", "/spec/on", false),
        ("the revision", "/metadata/resourceVersion", false),
        ("the generation", "/metadata/generation", false),
        ("the uid", "/metadata/uid", true),
    ];
    let fields = Fields::parse(&["spec.replicas"]).unwrap();
    for (case, pointer, differs) in cases {
        let (old, mut new) = (pod(), pod());
        *new.pointer_mut(pointer).unwrap() = json!("changed");
        assert_eq!(fields.differ(Some(&old), Some(&new), Extent::Counted), differs, "{case}");
    }
    let (old, mut new) = (pod(), pod());
    new["status"]["phase"] = json!("Failed");
    assert!(Fields::whole().differ(Some(&old), Some(&new), Extent::Counted));
    assert!(!Fields::whole().differ(Some(&old), Some(&new), Extent::WithoutStatus));
    assert!(fields.differ(None, Some(&new), Extent::Counted));
}

#[test]
fn always_included_fields_surprise_only_if_they_were_requested() {
    let expected = json!({"metadata": {"name": "a"}, "spec": {"x": 1}});
    let found =
        json!({"apiVersion": "v1", "metadata": {"name": "a", "uid": "u"}, "spec": {"x": 1}});
    let cases: [(&[&str], bool); 5] = [
        (&["spec"], false),
        (&["spec", "metadata.uid"], true),
        (&["metadata"], true),
        (&["apiVersion"], true),
        (&[], true),
    ];
    for (fields, surprise) in cases {
        let fields = Fields::parse(fields).unwrap();
        assert_eq!(fields.surprise(&expected, &found, Extent::Counted), surprise, "{fields}");
    }
    let other = json!({"metadata": {"name": "a"}, "spec": {"x": 2}});
    assert!(Fields::parse(&["spec"]).unwrap().surprise(&expected, &other, Extent::Counted));
}

#[test]
fn many_conditions_are_stored_as_all_elements_with_what_the_conditions_compare() {
    let paths = |count: usize| -> Vec<String> {
        (0..count).map(|at| format!("spec.list[k{at}=v].sub[a=b].x")).collect()
    };
    let few = Fields::parse(&paths(8)).unwrap();
    assert_eq!(few.clone().with_few_conditions(), few);
    let pairs = "spec.list[a=1,b=2,c=3,d=4,e=5,f=6,g=7,h=8]";
    let with_pairs = |at: usize| Fields::parse(&[format!("{pairs}.sub[k{at}=v]")]).unwrap();
    let same_step = Fields::union_of(&[with_pairs(0), with_pairs(1)]);
    assert_eq!((same_step.cost(), few.cost()), (1 + 8 + 2, 1 + 8 + 8));
    let step = |at: usize| format!("spec.list[k={at},a=1,b=2,c=3,d=4,e=5,f=6,g=7]");
    let steps = Fields::parse(&(0..9).map(step).collect::<Vec<_>>()).unwrap();
    assert_eq!(steps.with_few_conditions().cost(), 1, "each pair counts");
    let many = Fields::parse(&paths(100)).unwrap();
    let stored = many.clone().with_few_conditions();
    assert!(stored.covers_all(&many) && !stored.is_whole());
    let object = json!({"spec": {"other": 1, "list": [
        {"k7": "v", "y": 1, "sub": [{"a": "b", "x": 1}, {"a": "c", "x": 2}]},
        {"k7": "w", "sub": [{"a": "b", "x": 3}]},
    ]}});
    let kept = stored.project(&object);
    assert_eq!(many.project(&kept), many.project(&object));
    assert_eq!(kept["spec"]["other"], json!(null));
}
