use std::fmt::{self, Write as _};

use proptest::prelude::*;
use serde::Deserialize as _;
use serde_json::json;

use super::{document::Span, *};
use crate::own_fields::{self, FieldSets, MANAGER_PREFIX};

/// A set of fields as an API server may send it, with keys that JSON has to escape.
fn field_set() -> impl Strategy<Value = Value> {
    let leaf = Just(json!({}));
    leaf.prop_recursive(3, 24, 5, |below| {
        let key = prop_oneof![
            "f:[a-c]",
            Just(".".to_owned()),
            Just(r#"k:{"name":"a","port":80}"#.to_owned()),
            Just(r#"v:"ä\"\\""#.to_owned()),
            Just("f:a\u{1}b".to_owned()),
        ];
        prop::collection::btree_map(key, below, 0..5).prop_map(|map| json!(map))
    })
}

/// Any JSON, with maps whose keys are not sorted.
fn any_json() -> impl Strategy<Value = Unordered> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(|held| json!(held)),
        any::<i64>().prop_map(|number| json!(number)),
        any::<f64>().prop_map(|number| json!(number)),
        "[a-cä\"\\\\\n]{0,3}".prop_map(|text| json!(text)),
    ];
    leaf.prop_map(Unordered::Leaf).prop_recursive(4, 48, 6, |below| {
        let keys = prop::collection::vec(("[a-cä\"]{0,2}", below.clone()), 0..6);
        prop_oneof![
            keys.prop_map(Unordered::Map),
            prop::collection::vec(below, 0..6).prop_map(Unordered::List),
        ]
    })
}

/// JSON as it may be sent: the same key may come twice.
#[derive(Clone, Debug)]
enum Unordered {
    Leaf(Value),
    List(Vec<Unordered>),
    Map(Vec<(String, Unordered)>),
}

impl fmt::Display for Unordered {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leaf(value) => write!(to, "{value}"),
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(ToString::to_string).collect();
                write!(to, "[{}]", items.join(","))
            }
            Self::Map(entries) => {
                let entry = |(key, held): &(String, Self)| format!("{}:{held}", json!(key));
                let entries: Vec<String> = entries.iter().map(entry).collect();
                write!(to, "{{{}}}", entries.join(","))
            }
        }
    }
}

/// Writes everything that [`Json`] shows of a value.
fn seen<'a>(value: impl Json<'a>, to: &mut String) {
    write!(to, "{:?} {:?} {}", value.form(), value.text(), value.size()).unwrap();
    value.items().for_each(|item| seen(item, to));
    for (key, held) in value.entries() {
        write!(to, "{key:?}").unwrap();
        seen(held, to);
        let found = value.get(key).unwrap();
        assert_eq!(json!(found), json!(held));
    }
    for missing in ["", "b", "zz"] {
        assert_eq!(value.get(missing).is_some(), value.entries().any(|(key, _)| key == missing));
    }
}

proptest! {
    #[test]
    fn a_document_is_seen_as_a_value_is(json in any_json()) {
        let text = json.to_string();
        let (value, document): (Value, Document) =
            (serde_json::from_str(&text).unwrap(), serde_json::from_str(&text).unwrap());
        let [mut of_value, mut of_document] = [String::new(), String::new()];
        seen(&value, &mut of_value);
        seen(document.root(), &mut of_document);
        prop_assert_eq!(of_document, of_value);
        prop_assert_eq!(json!(document.root()), json!(&value));
        prop_assert_eq!(own_fields::digest(document.root()), own_fields::digest(&value));
        let copied = Document::of(&value).unwrap();
        prop_assert_eq!(json!(copied.root()), value);
    }
}

#[test]
fn what_no_span_reaches_is_refused() {
    let last = u32::MAX as usize;
    assert!(Span::new(last..last).is_some());
    assert!(Span::new(0..last + 1).is_none());
}

/// Returns an object with its sets of fields parsed from text again.
fn restored(mut object: Value) -> Value {
    let entries = object["metadata"]["managedFields"].as_array_mut();
    for entry in entries.into_iter().flatten() {
        if let Some(Value::String(text)) = entry.get("fieldsV1") {
            entry["fieldsV1"] = serde_json::from_str(text).unwrap();
        }
    }
    object
}

proptest! {
    #[test]
    fn an_object_is_taken_as_it_is_and_its_sets_of_fields_are_what_they_were(
        sets in prop::collection::vec((any::<bool>(), any::<bool>(), field_set()), 0..4),
    ) {
        let entry = |(ours, applied, set): &(bool, bool, Value)| json!({
            "manager": format!("{}x", if *ours { MANAGER_PREFIX } else { "kubectl" }),
            "operation": if *applied { "Apply" } else { "Update" },
            "fieldsType": "FieldsV1",
            "fieldsV1": set,
        });
        let managed: Vec<Value> = sets.iter().map(entry).collect();
        let object = json!({
            "apiVersion": "v1", "kind": "Thing", "a": {"port": 80, "": null}, "b": [1, -2, 3.5, true, "ä"],
            "metadata": {"name": "n", "resourceVersion": "7", "managedFields": managed},
        });
        let read: Document = serde_json::from_str(&object.to_string()).unwrap();
        prop_assert_eq!(&restored(json!(read.root())), &object);
        let mut known = FieldSets::default();
        for _ in 0..2 {
            prop_assert_eq!(own_fields::of_with(read.root(), &mut known), own_fields::of(&object));
        }
        // This way of reading is used where the type of an event follows its object.
        let read = Document::deserialize(object.clone()).unwrap();
        prop_assert_eq!(restored(json!(read.root())), object);
    }
}

#[test]
fn what_is_nowhere_else_so_is_taken_as_it_is() {
    for object in [
        json!({"metadata": null}),
        json!({"metadata": {"managedFields": {"fieldsV1": {"f:a": {}}}}}),
        json!({"metadata": {"managedFields": [null, 1, ["fieldsV1"], {"fieldsV1": null}, {}]}}),
        json!({"spec": {"metadata": {"managedFields": [{"fieldsV1": {"f:a": {}}}]}}}),
        json!([{"metadata": {}}]),
        json!("text"),
    ] {
        let read: Document = serde_json::from_str(&object.to_string()).unwrap();
        assert_eq!(json!(read.root()), object);
    }
    let bad = r#"{"metadata": {"managedFields": [{"fieldsV1": {"f:a": 1}}]}}"#;
    let error = serde_json::from_str::<Document>(bad).err().unwrap().to_string();
    assert!(error.contains("a set of fields: a map of maps"), "{error}");
}
