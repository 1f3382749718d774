use serde_json::json;

use super::Path;

#[test]
fn paths_lead_to_the_first_value() {
    let object = json!({
        "metadata": {"annotations": {"a.b/c": "x"}},
        "spec": {"l": [{"name": "one"}, {"name": "two", "on": true, "p": 80}], "n": 5, "none": []},
        "status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]},
    });
    let cases = [
        (".spec.n", Some(json!(5))),
        ("$.spec.n", Some(json!(5))),
        (".spec.l[0].name", Some(json!("one"))),
        (".spec.l[-1].name", Some(json!("two"))),
        (".spec.l[-1:].name", Some(json!("two"))),
        (".spec.l[0:2].name", Some(json!("one"))),
        (".spec.l[1:2:1].name", Some(json!("two"))),
        (".spec.l[*].name", Some(json!("one"))),
        (".spec.l[].name", Some(json!("one"))),
        (".spec.l[:].on", Some(json!(true))),
        // An empty pair of brackets is the first item, which has no such field.
        (".spec.l[].on", None),
        (".spec.l.*.p", Some(json!(80))),
        (".spec..p", Some(json!(80))),
        ("..type", Some(json!("Other"))),
        (".spec.l[1,0].name", Some(json!("two"))),
        (".spec.l[?(@.name=='two')].name", Some(json!("two"))),
        (".spec.l[?(@.name!=\"one\")].name", Some(json!("two"))),
        (".spec.l[?(@.on)].name", Some(json!("two"))),
        (".spec.l[?(@.on==true)].name", Some(json!("two"))),
        (".spec.l[?(@.p>79)].name", Some(json!("two"))),
        (".spec.l[?(@.p <= 79)].name", None),
        (".status.conditions[?(@.type==\"Ready\")].status", Some(json!("True"))),
        (".status.conditions[?(@.type==\")]\")].status", None),
        (".metadata.annotations.a\\.b/c", Some(json!("x"))),
        (".metadata.annotations['a\\.b/c']", Some(json!("x"))),
        (".metadata.annotations['a.b/c']", None),
        (".spec.missing", None),
        (".spec.", None),
        // Steps that fail, rather than lead nowhere.
        (".spec.l[7].name", None),
        (".spec.l[0:3].name", None),
        (".spec.none[0]", None),
        (".spec.n[0]", None),
        (".spec.l[?(@.on==\"true\")].name", None),
        (".spec.l[?(@.name==two)].name", None),
        // Paths that cannot be read.
        ("{.spec.n}", None),
        (".spec.l[x].name", None),
        (".spec.l[\"name\"]", None),
        (".spec....name", None),
    ];
    for (path, expected) in cases {
        let found = Path::parse(path).and_then(|path| path.first(&object));
        assert_eq!(found, expected, "{path}");
    }
}

#[test]
fn paths_that_cannot_be_read_are_known() {
    let cases = [".spec.n", ".spec..n", ".l[]", ".l[?(@.a==b)]", ".l[0,1]"];
    assert!(cases.into_iter().all(|path| Path::parse(path).is_some()));
    let cases = [".l[x]", ".l[0", ".a{", ".a]", "..*", ".l[1:2:3:4]", ".l[?(@.a==*)]", ".l[+1]"];
    for path in cases {
        assert!(Path::parse(path).is_none(), "{path}");
    }
}
