use std::collections::BTreeMap;

use futures::FutureExt as _;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    applied_fields,
    fixture::with,
    path::{Extent, Fields, Path},
};

fn kind() -> Kind {
    Kind::home("g", "v1", "Thing")
}

fn key() -> Key {
    Key::new(&"p".into(), &"r".into(), Some("default"), "a")
}

fn wanted(fields: &[&str], matching: &[&str]) -> Wanted {
    let matching = matching.iter().map(|path| path.parse::<Path>().unwrap()).collect();
    Wanted { fields: Fields::parse(fields).unwrap(), matching, written: false }
}

fn thing(namespace: &str, name: &str, revision: u64) -> Value {
    json!({
        "apiVersion": "g/v1", "kind": "Thing",
        "metadata": {"name": name, "namespace": namespace, "uid": format!("{namespace}-{name}"),
            "resourceVersion": revision.to_string()}
    })
}

fn selection() -> Selection {
    Selection {
        kind: kind().into(),
        namespace: None,
        name: None,
        labels: String::new(),
        matching: Vec::new(),
        fields: [].into(),
    }
}

/// Opens a store of all objects, and ends an empty list.
fn stores(wanted: &Wanted) -> Stores {
    let stores = Stores::new();
    assert!(stores.open(&kind(), &Scope::default(), wanted).is_some());
    list(&stores, &Scope::default(), &[]);
    stores.take_events();
    stores
}

fn list(stores: &Stores, scope: &Scope, objects: &[Value]) {
    stores.feed(&kind(), scope).unwrap().begin_list();
    for object in objects {
        stores.feed(&kind(), scope).unwrap().list_item(object);
    }
    stores.feed(&kind(), scope).unwrap().end_list();
}

fn snapshot(stores: &Stores) -> Snapshot {
    stores.snapshots(&kind(), |_| true).stores.remove(0).2
}

fn labelled(labels: &str) -> Selection {
    Selection { labels: labels.into(), ..selection() }
}

fn matching(path: &str, value: &str) -> Selection {
    Selection { matching: vec![(path.into(), value.into())], ..selection() }
}

/// Requests an index as a read does.
fn request(stores: &Stores, of: &Selection, user: &IndexUser) {
    for (_, _, snapshot) in stores.snapshots(&kind(), |_| true).stores {
        snapshot.request_index(&Query::new(of).unwrap(), user);
    }
}

/// Takes enough snapshots to make all requested changes of the indexes.
fn settle(stores: &Stores) {
    (0..32).for_each(|_| drop(snapshot(stores)));
}

fn upsert(stores: &Stores, object: &Value) {
    stores.feed(&kind(), &Scope::default()).unwrap().upsert(object);
}

fn delete(stores: &Stores, object: &Value) {
    stores.feed(&kind(), &Scope::default()).unwrap().delete(object);
}

fn names(stores: &Stores, selection: &Selection) -> Vec<String> {
    let name =
        |entry: Arc<Entry>| format!("{}/{}", entry.namespace().unwrap_or_default(), entry.name());
    stores.candidates(selection).unwrap().unwrap().into_iter().map(name).collect()
}

/// Returns the changes since the last call, as text.
fn changes(stores: &Stores) -> Vec<String> {
    let version = |entry: &Option<Arc<Entry>>| {
        entry.as_ref().map_or("-", |entry| entry.resource_version()).to_owned()
    };
    let change = |event: Event| match event {
        Event::Object(change) => Some(format!("{} {}", version(&change.old), version(&change.new))),
        Event::Claimed(_) => None,
        Event::Known(_) => Some("known".to_owned()),
        Event::Unknown(_) => Some("unknown".to_owned()),
        Event::Complete(_) => Some("complete".to_owned()),
        Event::Closed(..) => Some("closed".to_owned()),
    };
    stores.take_events().into_iter().filter_map(change).collect()
}

#[test]
fn an_entry_gives_back_the_kept_fields_of_its_object() {
    let object = json!({
        "apiVersion": "g/v1", "kind": "Thing", "spec": {"a": 1, "b": [true, null]}, "status": {"phase": "Ready"},
        "metadata": {"name": "n\"ame", "namespace": "ns", "uid": "u-1", "generation": 3, "resourceVersion": "77",
            "labels": {"app": "web"}, "managedFields": [{"manager": "me"}]}
    });
    let stores = stores(&wanted(&[], &["spec.b[]"]));
    upsert(&stores, &object);
    let entry = stores.candidates(&selection()).unwrap().unwrap().remove(0);
    assert_eq!(entry.value(), Fields::whole().project(&object));
    let read = (entry.namespace(), entry.name(), entry.uid(), entry.resource_version());
    assert_eq!(read, (Some("ns"), "n\"ame", Some("u-1"), "77"));
    let counted = |extent| entry.rendered().counted(extent);
    assert!(entry.json().starts_with(r#"{"status":{"phase":"Ready"},"#), "{}", entry.json());
    assert!(
        entry.json().ends_with(r#","generation":3,"resourceVersion":"77"}}"#),
        "{}",
        entry.json()
    );
    assert!(
        counted(Extent::Counted).starts_with(r#"{"status":{"#)
            && !counted(Extent::Counted).contains("77")
    );
    assert!(counted(Extent::WithoutStatus).starts_with(r#""apiVersion""#));
    let of = |labels: &str| Selection { labels: labels.into(), ..selection() };
    let selected = |labels: &str| Query::new(&of(labels)).unwrap().matches(&entry);
    assert!(selected("app=web,!other") && !selected("app in (a,b)"));
}

#[test]
fn an_object_is_not_replaced_by_an_older_version() {
    let stores = stores(&wanted(&[], &[]));
    upsert(&stores, &thing("a", "x", 10));
    upsert(&stores, &thing("a", "x", 9));
    stores.wrote(&kind(), &thing("a", "x", 9), &key(), &Arc::default());
    delete(&stores, &thing("a", "x", 9));
    upsert(&stores, &thing("a", "x", 10));
    assert_eq!(changes(&stores), ["- 10"]);
    upsert(&stores, &thing("a", "x", 100));
    assert_eq!(changes(&stores), ["10 100"]);
}

#[test]
fn versions_that_are_no_numbers_count_in_the_order_in_which_they_come() {
    let stores = stores(&wanted(&[], &[]));
    let version =
        |version: &str| with(thing("a", "x", 0), "metadata/resourceVersion", json!(version));
    for text in ["b", "a", "a"] {
        upsert(&stores, &version(text));
    }
    delete(&stores, &version("c"));
    upsert(&stores, &version("d"));
    assert_eq!(changes(&stores), ["- b", "b a", "a -", "- d"]);
}

#[test]
fn a_late_event_does_not_bring_a_deleted_object_back() {
    let stores = stores(&wanted(&[], &[]));
    upsert(&stores, &thing("a", "x", 10));
    delete(&stores, &thing("a", "x", 12));
    for revision in [10, 11, 12] {
        upsert(&stores, &thing("a", "x", revision));
        stores.wrote(&kind(), &thing("a", "x", revision), &key(), &Arc::default());
    }
    assert_eq!(changes(&stores), ["- 10", "10 -"]);
    upsert(&stores, &thing("a", "x", 13));
    assert_eq!(changes(&stores), ["- 13"]);
}

#[test]
fn an_object_that_we_deleted_does_not_come_back_in_a_later_version_but_a_new_one_does() {
    let stores = stores(&wanted(&[], &[]));
    upsert(&stores, &thing("a", "x", 10));
    stores.deleted(&kind(), Some("a"), "x", Some("another"), &key());
    assert_eq!(changes(&stores), ["- 10"], "another object was meant");
    stores.deleted(&kind(), Some("a"), "x", Some("a-x"), &key());
    upsert(&stores, &thing("a", "x", 11));
    delete(&stores, &thing("a", "x", 12));
    assert_eq!(changes(&stores), ["10 -"]);
    upsert(&stores, &with(thing("a", "x", 13), "metadata/uid", json!("new")));
    assert_eq!(changes(&stores), ["- 13"]);
}

#[test]
fn an_object_absent_from_a_list_is_removed_unless_it_is_newer() {
    let stores = stores(&wanted(&[], &[]));
    for (name, revision) in [("gone", 5), ("stays", 6)] {
        upsert(&stores, &thing("a", name, revision));
    }
    stores.take_events();
    stores.feed(&kind(), &Scope::default()).unwrap().begin_list();
    stores.feed(&kind(), &Scope::default()).unwrap().list_item(&thing("a", "stays", 8));
    stores.wrote(&kind(), &thing("a", "new", 9), &key(), &Arc::default());
    stores.wrote(&kind(), &thing("a", "newer", 10), &key(), &Arc::default());
    assert_eq!(names(&stores, &selection()), ["a/gone", "a/new", "a/newer", "a/stays"]);
    stores.feed(&kind(), &Scope::default()).unwrap().end_list();
    assert_eq!(names(&stores, &selection()), ["a/new", "a/newer", "a/stays"]);
    // The watch reports `newer`, but not `new`: `new` was deleted before the list.
    upsert(&stores, &thing("a", "newer", 10));
    assert_eq!(names(&stores, &selection()), ["a/newer", "a/stays"]);
}

#[test]
fn an_object_that_a_list_missed_by_being_older_comes_back_with_the_watch() {
    let stores = stores(&wanted(&[], &[]));
    upsert(&stores, &thing("a", "x", 10));
    // The newest object of the list is older than `x`, so the list may be older or newer than `x`.
    list(&stores, &Scope::default(), &[thing("a", "other", 8)]);
    assert_eq!(names(&stores, &selection()), ["a/other"]);
    upsert(&stores, &thing("a", "x", 10));
    assert_eq!(names(&stores, &selection()), ["a/other", "a/x"]);
}

#[test]
fn an_answer_that_one_list_did_not_confirm_is_confirmed_by_the_next() {
    let stores = stores(&wanted(&[], &[]));
    stores.feed(&kind(), &Scope::default()).unwrap().begin_list();
    stores.wrote(&kind(), &thing("a", "new", 9), &key(), &Arc::default());
    stores.feed(&kind(), &Scope::default()).unwrap().end_list();
    list(&stores, &Scope::default(), &[thing("a", "new", 9)]);
    upsert(&stores, &thing("a", "other", 10));
    assert_eq!(names(&stores, &selection()), ["a/new", "a/other"]);
}

#[test]
fn an_answer_that_comes_after_the_list_that_lacks_its_object_is_late() {
    let stores = stores(&wanted(&[], &[]));
    list(&stores, &Scope::default(), &[thing("a", "other", 20)]);
    stores.wrote(&kind(), &thing("a", "x", 15), &key(), &Arc::default());
    assert_eq!(names(&stores, &selection()), ["a/other"]);
}

#[test]
fn more_fields_are_read_only_when_all_objects_have_them() {
    let stores = stores(&wanted(&["spec.a"], &[]));
    let object = with(with(thing("a", "x", 5), "spec/a", json!(1)), "spec/b", json!(2));
    upsert(&stores, &object);
    let open = |fields: &[&str], matching: &[&str]| {
        stores.open(&kind(), &Scope::default(), &wanted(fields, matching))
    };
    let former = stores.feed(&kind(), &Scope::default()).unwrap();
    assert!(open(&["spec.a"], &[]).is_none(), "it is there");
    let never = open(&["spec.b"], &[]).unwrap();
    let feed = open(&["spec.b"], &["spec.c"]).unwrap();
    assert!(open(&["spec.b"], &[]).is_none(), "it is on its way");
    let is_over = |feed: &Feed| feed.over().now_or_never().is_some();
    assert!(is_over(&never) && !is_over(&former), "the widest of those on their way is enough");
    never.begin_list();
    never.end_list();
    let shape = || stores.snapshots(&kind(), |_| true).stores[0].2.shape().fields.clone();
    stores.take_events();
    feed.begin_list();
    feed.list_item(&object);
    // The former watch sees changes made meanwhile; the new watch sees them when it gets that far.
    let [changed, other] = [thing("a", "x", 7), thing("a", "other", 8)];
    former.upsert(&changed);
    stores.wrote(&kind(), &other, &key(), &Arc::default());
    assert_eq!(changes(&stores), ["5 7", "- 8"]);
    feed.end_list();
    assert_eq!(shape(), Fields::parse(&["spec.a"]).unwrap(), "it is behind");
    assert!(!stores.is_settled(&kind(), &Scope::default()) && !is_over(&former));
    feed.upsert(&changed);
    assert_eq!(changes(&stores), ["complete"], "nothing is new to readers");
    assert_eq!(shape(), Fields::parse(&["spec.a", "spec.b"]).unwrap());
    assert!(stores.is_settled(&kind(), &Scope::default()) && is_over(&former));
    assert_eq!(names(&stores, &selection()), ["a/other", "a/x"]);
    former.upsert(&thing("a", "late", 9));
    assert_eq!(
        names(&stores, &selection()),
        ["a/other", "a/x"],
        "a watch that is over is not heard"
    );
    let wide = with(thing("a", "x", 10), "spec/b", json!(2));
    feed.upsert(&wide);
    let mut of = selection();
    of.matching = vec![("spec.b".into(), "2".into())];
    assert_eq!(stores.candidates(&of).unwrap().unwrap()[0].value(), wide);
}

#[test]
fn a_completed_wider_list_reports_its_differences_as_changes() {
    let stores = stores(&wanted(&["spec.a"], &[]));
    for (name, revision) in [("changed", 5), ("gone", 6), ("same", 7)] {
        upsert(&stores, &thing("a", name, revision));
    }
    stores.take_events();
    let feed = stores.open(&kind(), &Scope::default(), &wanted(&["spec.b"], &[])).unwrap();
    feed.begin_list();
    for (name, revision) in [("changed", 9), ("same", 7), ("new", 8)] {
        feed.list_item(&thing("a", name, revision));
    }
    assert_eq!(changes(&stores), [""; 0], "the present store serves until the list is complete");
    assert_eq!(names(&stores, &selection()), ["a/changed", "a/gone", "a/same"]);
    feed.end_list();
    assert_eq!(changes(&stores), ["5 9", "6 -", "- 8", "complete"]);
    // Objects that were deleted before do not come back.
    stores.wrote(&kind(), &thing("a", "gone", 6), &key(), &Arc::default());
    assert_eq!(names(&stores, &selection()), ["a/changed", "a/new", "a/same"]);
}

#[test]
fn an_object_deleted_during_a_wider_list_does_not_come_back() {
    for is_listed in [false, true] {
        let stores = stores(&wanted(&["spec.a"], &[]));
        upsert(&stores, &thing("a", "x", 5));
        let former = stores.feed(&kind(), &Scope::default()).unwrap();
        let feed = stores.open(&kind(), &Scope::default(), &wanted(&["spec.b"], &[])).unwrap();
        feed.begin_list();
        if is_listed {
            feed.list_item(&thing("a", "x", 5));
        }
        former.delete(&thing("a", "x", 16));
        stores.take_events();
        feed.end_list();
        assert_eq!(names(&stores, &selection()), [""; 0], "listed: {is_listed}");
        assert_eq!(stores.is_settled(&kind(), &Scope::default()), !is_listed, "it is behind");
        if is_listed {
            feed.delete(&thing("a", "x", 16));
        }
        assert_eq!(changes(&stores), ["complete"], "listed: {is_listed}");
        // A late answer to a write that preceded the deletion.
        stores.wrote(&kind(), &thing("a", "x", 15), &key(), &Arc::default());
        assert_eq!(names(&stores, &selection()), [""; 0], "listed: {is_listed}");
    }
}

#[test]
fn metadata_alone_is_not_enough_where_objects_are_written() {
    let metadata = wanted(&["metadata.labels"], &[]);
    let stores = stores(&metadata);
    assert!(stores.feed(&kind(), &Scope::default()).unwrap().is_metadata_only());
    let written = Wanted { written: true, ..metadata.clone() };
    let feed = stores.open(&kind(), &Scope::default(), &written).unwrap();
    assert!(!feed.is_metadata_only());
    list(&stores, &Scope::default(), &[]);
    assert!(stores.open(&kind(), &Scope::default(), &metadata).is_none());
}

/// A watch of metadata brings no values, from which the digests of our own fields are computed.
#[test]
fn a_write_is_compared_with_the_whole_object_when_another_store_has_only_its_metadata() {
    let manager = "mortise/a/b";
    let manifest = json!({"spec": {"size": 1}});
    let mut whole = thing("a", "x", 5);
    whole["spec"] = manifest["spec"].clone();
    whole["metadata"]["managedFields"] = json!([{
        "manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": {"f:size": {}}},
    }]);
    let mut metadata = whole.clone();
    metadata.as_object_mut().unwrap().remove("spec");
    let narrow = Scope { namespace: Some("a".into()), ..Scope::default() };
    let of_metadata = (&narrow, wanted(&["metadata.labels"], &[]), &metadata);
    let of_all = (&Scope::default(), wanted(&[], &[]), &whole);
    for order in [[&of_metadata, &of_all], [&of_all, &of_metadata]] {
        let stores = Stores::new();
        for (scope, wanted, object) in order {
            stores.open(&kind(), scope, wanted);
            list(&stores, scope, std::slice::from_ref(object));
        }
        let Known::Present(entry) = stores.known_by_name(&kind(), Some("a"), "x") else { panic!() };
        let held = entry.own().get(manager, "").unwrap().values;
        assert_eq!(held, applied_fields::of_manifest(&manifest));
    }
}

#[test]
fn a_store_that_is_closed_is_told_of_and_heard_of_no_more() {
    let stores = stores(&wanted(&[], &[]));
    let feed = stores.feed(&kind(), &Scope::default()).unwrap();
    upsert(&stores, &thing("a", "x", 5));
    stores.take_events();
    stores.close(&kind(), &Scope::default());
    assert_eq!(changes(&stores), ["closed"]);
    assert!(feed.over().now_or_never().is_some());
    feed.upsert(&thing("a", "y", 6));
    assert_eq!(changes(&stores), [""; 0]);
    assert!(stores.candidates(&selection()).unwrap().is_none());
    assert!(stores.feed(&kind(), &Scope::default()).is_none());
}

#[test]
fn a_kind_that_is_no_longer_served_is_forgotten_and_can_come_again() {
    let stores = stores(&wanted(&[], &[]));
    upsert(&stores, &thing("a", "x", 5));
    stores.take_events();
    stores.set_unknown(&kind(), &Scope::default());
    stores.set_unknown(&kind(), &Scope::default());
    assert!(stores.is_settled(&kind(), &Scope::default()));
    assert_eq!(changes(&stores), ["unknown"]);
    list(&stores, &Scope::default(), &[thing("a", "y", 7)]);
    assert_eq!(changes(&stores), ["- 7", "known", "complete"]);
    assert_eq!(names(&stores, &selection()), ["a/y"]);
}

#[test]
fn a_watch_that_finds_a_kind_not_served_drops_its_own_objects_only() {
    let stores = Stores::new();
    let scope = |namespace: &str| Scope { namespace: Some(namespace.into()), ..Scope::default() };
    for namespace in ["a", "b"] {
        stores.open(&kind(), &scope(namespace), &wanted(&[], &[]));
        list(&stores, &scope(namespace), &[thing(namespace, "x", 5)]);
    }
    let of = |namespace: &str| ObjectRef {
        kind: kind().into(),
        namespace: Some(namespace.into()),
        name: "x".into(),
    };
    // The API server of this watch does not know the kind yet; the watch of `b` goes on at another.
    stores.set_unknown(&kind(), &scope("a"));
    assert!(stores.is_unknown(&kind()));
    list(&stores, &scope("a"), &[thing("a", "x", 5)]);
    for namespace in ["a", "b"] {
        assert!(matches!(stores.known(&of(namespace)), Known::Present(_)), "{namespace}");
        assert!(stores.is_settled(&kind(), &scope(namespace)), "{namespace}");
    }
}

#[test]
fn an_object_is_known_only_within_the_listed_scopes() {
    let stores = Stores::new();
    let scope = Scope { namespace: Some("a".into()), ..Scope::default() };
    stores.open(&kind(), &scope, &wanted(&[], &[]));
    let of = |namespace: &str| ObjectRef {
        kind: kind().into(),
        namespace: Some(namespace.into()),
        name: "x".into(),
    };
    assert!(matches!(stores.known(&of("a")), Known::Unwatched), "not listed yet");
    list(&stores, &scope, &[thing("a", "y", 1)]);
    assert!(matches!(stores.known(&of("a")), Known::Absent));
    assert!(matches!(stores.known(&of("b")), Known::Unwatched));
    stores.feed(&kind(), &scope).unwrap().upsert(&thing("a", "x", 2));
    assert!(matches!(stores.known(&of("a")), Known::Present(_)));
    assert!(stores.candidates(&selection()).unwrap().is_none(), "no store covers all namespaces");
}

#[test]
fn a_label_is_indexed_once_it_was_asked_for_and_the_cost_follows_the_matches() {
    let stores = stores(&wanted(&["spec.a"], &[]));
    for at in 0..800 {
        let object = with(
            thing("a", &at.to_string(), at + 1),
            "metadata/labels",
            json!({"app": (at % 400).to_string()}),
        );
        upsert(&stores, &object);
    }
    let (of, user) = (labelled("app=7"), IndexUser::default());
    request(&stores, &of, &user);
    let query = Query::new(&of).unwrap();
    // The index is built a part at a time: at first all objects are compared.
    for compared in [800, 2, 2] {
        let snapshot = snapshot(&stores);
        assert_eq!(snapshot.candidates(&query, None).count(), compared);
        assert_eq!(snapshot.select(&query, None).count(), 2);
    }
    assert_eq!(names(&stores, &of), ["a/407", "a/7"]);
    upsert(&stores, &with(thing("a", "7", 900), "metadata/labels", json!({"app": "8"})));
    delete(&stores, &thing("a", "407", 901));
    upsert(&stores, &with(thing("a", "new", 902), "metadata/labels", json!({"app": "7"})));
    assert_eq!(names(&stores, &of), ["a/new"]);
}

#[test]
fn a_later_declared_match_path_is_indexed_by_another_list() {
    let stores = stores(&wanted(&[], &[]));
    upsert(&stores, &thing("a", "x", 1));
    let feed = stores.open(&kind(), &Scope::default(), &wanted(&[], &["spec.a"])).unwrap();
    feed.begin_list();
    feed.list_item(&with(thing("a", "x", 1), "spec/a", json!("one")));
    feed.end_list();
    let query = Query::new(&matching("spec.a", "one")).unwrap();
    assert_eq!(snapshot(&stores).index_term(&query), query.terms().next().map(hashed));
    assert!(stores.open(&kind(), &Scope::default(), &wanted(&["spec.b"], &["spec.a"])).is_none());
}

#[test]
fn a_declared_path_stays_indexed_after_a_wider_list() {
    let stores = stores(&wanted(&["spec.a"], &["spec.a"]));
    let object = with(thing("a", "x", 5), "spec/a", json!("one"));
    upsert(&stores, &object);
    let feed = stores.open(&kind(), &Scope::default(), &wanted(&["spec.b"], &[])).unwrap();
    let of = matching("spec.a", "one");
    let (_, before) = stores.best_for(&kind(), &Query::new(&of).unwrap(), &IndexUser::default());
    feed.begin_list();
    feed.list_item(&object);
    feed.end_list();
    let term = before.unwrap().1.unwrap();
    let found = stores.candidates(&of).unwrap().unwrap();
    assert!(found[0].terms().any(|held| held == term), "the triggers look for it");
}

#[test]
fn each_user_has_its_own_share_of_indexed_labels_and_gives_it_back() {
    let stores = stores(&wanted(&[], &[]));
    for at in 0..600 {
        let labels: serde_json::Map<String, Value> =
            (0..1000).step_by(50).map(|of| (format!("label-{of}"), json!("x"))).collect();
        upsert(
            &stores,
            &with(thing("a", &at.to_string(), at + 1), "metadata/labels", labels.into()),
        );
    }
    let before = snapshot(&stores).held();
    let (greedy, other) = (IndexUser::default(), IndexUser::default());
    for at in 0..1000 {
        request(&stores, &labelled(&format!("label-{at}=x")), &greedy);
        settle(&stores);
    }
    let taken = |stores: &Stores| snapshot(stores).indexed_labels();
    assert_eq!(taken(&stores), 32);
    assert!(snapshot(&stores).held() > before);
    request(&stores, &labelled("label-950=x"), &other);
    request(&stores, &labelled("label-0=x"), &other);
    settle(&stores);
    assert_eq!(taken(&stores), 33, "one that the greedy user has, too");
    let of = labelled("label-950=none");
    assert_eq!(snapshot(&stores).candidates(&Query::new(&of).unwrap(), None).count(), 0);
    greedy.end();
    stores.check_index_users();
    settle(&stores);
    assert_eq!(taken(&stores), 2);
    drop(other);
    stores.check_index_users();
    settle(&stores);
    assert_eq!((taken(&stores), snapshot(&stores).held()), (0, before));
}

#[test]
fn objects_with_many_labels_are_indexed_a_few_at_once() {
    let stores = stores(&wanted(&[], &[]));
    let labels: serde_json::Map<String, Value> =
        (0..2_000).map(|of| (format!("label-{of}"), json!("x"))).collect();
    for at in 0..100 {
        let object = thing("a", &at.to_string(), at + 1);
        upsert(&stores, &with(object, "metadata/labels", labels.clone().into()));
    }
    let user = IndexUser::default();
    request(&stores, &labelled("label-7=x"), &user);
    for _ in 0..100 {
        assert_eq!(snapshot(&stores).indexed_labels(), 0, "one object at once");
    }
    assert_eq!(snapshot(&stores).indexed_labels(), 1);
}

#[test]
fn a_store_is_charged_to_each_user_for_its_own_indexes() {
    let stores = stores(&wanted(&[], &["spec.own", "spec.texts[]"]));
    let texts: Vec<String> = (0..900).map(|at| at.to_string()).collect();
    for at in 0..100 {
        let object = with(thing("a", &at.to_string(), at + 1), "spec/own", json!(at.to_string()));
        upsert(&stores, &with(object, "spec/texts", json!(texts)));
    }
    let held = |paths: &[&str]| {
        let user = IndexUser::default();
        stores.held_with(&kind(), &Scope::default(), &wanted(&[], paths), &user)
    };
    let all = stores.held(&kind(), &Scope::default());
    assert_eq!(held(&["spec.own", "spec.texts[]"]), all);
    let (own, texts) = (held(&["spec.own"]), held(&["spec.texts[]"]));
    assert!(100 * 900 * 112 < all && 5 * own < all, "{own} of {all}");
    assert!(10 * texts > 9 * all, "{texts} of {all}");
}

/// An object with too many texts for an index, or as many as fit.
fn large(name: &str, revision: u64, texts: usize) -> Value {
    let names: Vec<String> = (0..texts).map(|at| format!("{name}-{at}")).collect();
    with(thing("a", name, revision), "spec", json!({"names": names, "other": [name]}))
}

#[test]
fn the_index_rows_of_one_object_are_bounded_and_all_its_texts_are_found() {
    // The second store keeps nothing of what it indexes.
    for fields in [&[][..], &["spec.none"]] {
        let stores = stores(&wanted(fields, &["spec.names[]", "spec.other[]"]));
        let small = snapshot(&stores).held();
        let objects = [("few", 1000), ("many", 1001), ("most", 100_000)];
        for ((name, texts), revision) in objects.into_iter().zip(1..) {
            upsert(&stores, &large(name, revision, texts));
        }
        let held = snapshot(&stores).held() - small;
        let json = snapshot(&stores).json();
        assert!(held < json + 4_000_000, "{held} bytes for {json} bytes of JSON");
        let cases = [
            ("few-999", vec!["a/few"], 3),
            ("many-1000", vec!["a/many"], 2),
            ("most-99999", vec!["a/most"], 2),
            ("none", vec![], 2),
        ];
        for (text, expected, compared) in cases {
            let of = matching("spec.names[]", text);
            assert_eq!(names(&stores, &of), expected, "{text}");
            let query = Query::new(&of).unwrap();
            let snapshot = snapshot(&stores);
            assert_eq!(snapshot.candidates(&query, None).count(), compared, "{text}");
        }
        assert_eq!(names(&stores, &matching("spec.other[]", "most")), ["a/most"]);
        delete(&stores, &large("most", 9, 0));
        upsert(&stores, &large("many", 10, 3));
        assert_eq!(names(&stores, &matching("spec.names[]", "many-2")), ["a/many"]);
        assert_eq!(snapshot(&stores).held(), snapshot(&stores).recount());
    }
}

#[test]
fn the_metric_and_the_bound_of_stores_are_one_sum() {
    let stores = stores(&wanted(&["spec.names"], &["spec.names[]"]));
    for at in 0..20 {
        upsert(&stores, &large(&at.to_string(), at + 1, 500));
    }
    let held = || stores.held(&kind(), &Scope::default());
    assert_eq!((stores.memory().total, held()), (held(), snapshot(&stores).recount()));
    assert!(held() > 20 * 500 * 2 * 112);
    // Both tables count while another list runs.
    let feed = stores.open(&kind(), &Scope::default(), &wanted(&["spec.more"], &[])).unwrap();
    feed.begin_list();
    feed.list_item(&large("0", 1, 500));
    assert_eq!(stores.memory().total, held());
    assert!(held() > snapshot(&stores).recount());
}

#[test]
fn an_entry_knows_its_finalizers_whatever_is_kept() {
    let held = json!(["example.org/a", "quoted \"b\"", ""]);
    let object = with(thing("n", "a", 1), "metadata/finalizers", held);
    let object = with(object, "metadata/annotations", json!({"finalizers": "[\"c\"]"}));
    for fields in [&[][..], &["metadata.finalizers"], &["spec"]] {
        let stores = stores(&wanted(fields, &[]));
        upsert(&stores, &object);
        let entry = stores.candidates(&selection()).unwrap().unwrap().remove(0);
        let holds =
            ["example.org/a", "quoted \"b\"", "", "c"].map(|name| entry.holds_finalizer(name));
        assert_eq!(holds, [true, true, true, false], "{fields:?}");
    }
}

#[test]
fn an_object_of_3_kb_takes_at_most_half_as_much_again_as_its_json() {
    let rule = |at| json!({"path": format!("/some/path/{at}"), "methods": ["GET", "POST"]});
    let rules: Vec<Value> = (0..55).map(rule).collect();
    let stores = stores(&wanted(&[], &["spec.owner"]));
    for at in 0..100 {
        let labels = json!({"app.kubernetes.io/name": "web", "pod-template-hash": at.to_string()});
        let object =
            with(thing("default", &format!("thing-{at}"), at + 1), "metadata/labels", labels);
        let spec = json!({"owner": format!("owner-{at}"), "rules": rules});
        upsert(&stores, &with(object, "spec", spec));
    }
    let Memory { json, total, .. } = stores.memory();
    assert!((2_900..3_100).contains(&(json / 100)), "{json} bytes of JSON");
    assert!(2 * total < 3 * json, "{total} bytes for {json} bytes of JSON");
}

/// A small API server: its objects and the history of its changes.
#[derive(Default)]
struct Api {
    objects: BTreeMap<(String, String), Value>,
    /// The object before and after, with the revision.
    history: Vec<(u64, Option<Value>, Option<Value>)>,
    revision: u64,
}

#[derive(Clone, Debug)]
enum Step {
    Write {
        name: u8,
        label: u8,
        host: u8,
    },
    Delete(u8),
    Watch {
        scope: u8,
        count: u8,
    },
    Answer(u8),
    BeginList(u8),
    ListItems {
        scope: u8,
        count: u8,
    },
    EndList(u8),
    Look(u8),
    /// Widens a scope: another watch begins, and the former one continues until it is over.
    Widen {
        scope: u8,
        field: u8,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6_u8, 0..3_u8, 0..3_u8).prop_map(|(name, label, host)| Step::Write { name, label, host }),
        2 => (0..6_u8).prop_map(Step::Delete),
        4 => (0..4_u8, 1..4_u8).prop_map(|(scope, count)| Step::Watch { scope, count }),
        3 => any::<u8>().prop_map(Step::Answer),
        1 => (0..4_u8).prop_map(Step::BeginList),
        2 => (0..4_u8, 1..4_u8).prop_map(|(scope, count)| Step::ListItems { scope, count }),
        1 => (0..4_u8).prop_map(Step::EndList),
        1 => (0..3_u8).prop_map(Step::Look),
        1 => (0..2_u8, 0..3_u8).prop_map(|(scope, field)| Step::Widen { scope, field }),
    ]
}

/// A watch, as the store sees it.
struct Watching {
    scope: Scope,
    feed: Feed,
    /// The next event of the history; `None` before the first list.
    position: Option<usize>,
    /// The rest of a list, in reverse order.
    items: Option<Vec<Value>>,
}

struct World {
    api: Api,
    stores: Stores,
    watches: Vec<Watching>,
    /// The state that results from the events: versions by store and object.
    told: BTreeMap<(StoreId, String, String), String>,
    user: Option<IndexUser>,
}

impl World {
    fn new() -> Self {
        let (stores, told) = (Stores::new(), BTreeMap::new());
        let mut world = Self { api: Api::default(), stores, watches: Vec::new(), told, user: None };
        for labels in ["", "app=1"] {
            let scope = Scope { labels: labels.into(), ..Scope::default() };
            world.open(&scope, &wanted(&["spec.other"], &["spec.hosts[]"]));
        }
        (0..2).for_each(|scope| world.relist(scope));
        world
    }

    fn open(&mut self, scope: &Scope, wanted: &Wanted) {
        if let Some(feed) = self.stores.open(&kind(), scope, wanted) {
            self.watches.push(Watching { scope: scope.clone(), feed, position: None, items: None });
        }
    }

    fn watching(&mut self, at: u8) -> &mut Watching {
        let count = self.watches.len();
        &mut self.watches[usize::from(at) % count]
    }

    fn write(&mut self, name: u8, new: Option<Value>) {
        let place = (format!("ns{}", name % 2), name.to_string());
        self.api.revision += 1;
        let revision = self.api.revision;
        let new = new.map(|new| with(new, "metadata/resourceVersion", json!(revision.to_string())));
        let old = self.api.objects.remove(&place);
        if let Some(new) = &new {
            self.api.objects.insert(place, new.clone());
        }
        if old.is_some() || new.is_some() {
            self.api.history.push((revision, old, new));
        }
    }

    fn watch(&mut self, at: u8) {
        let (count, history) = (self.watches.len(), &self.api.history);
        let watching = &mut self.watches[usize::from(at) % count];
        let Some(position) = watching.position.filter(|_| watching.items.is_none()) else { return };
        let Some((revision, old, new)) = history.get(position) else { return };
        watching.position = Some(position + 1);
        let is_within = |object: &&Value| watching.scope.holds(object);
        match (old.as_ref().filter(is_within), new.as_ref().filter(is_within)) {
            (_, Some(new)) => watching.feed.upsert(new),
            (Some(old), None) => {
                let last =
                    with(old.clone(), "metadata/resourceVersion", json!(revision.to_string()));
                watching.feed.delete(&last);
            }
            (None, None) => {}
        }
    }

    fn begin_list(&mut self, at: u8) {
        let (objects, end) = (self.api.objects.clone(), self.api.history.len());
        let watching = self.watching(at);
        watching.feed.begin_list();
        let is_within = |object: &Value| watching.scope.holds(object);
        watching.items = Some(objects.into_values().filter(is_within).collect());
        watching.position = Some(end);
    }

    fn list_item(&mut self, at: u8) {
        let watching = self.watching(at);
        if let Some(item) = watching.items.as_mut().and_then(Vec::pop) {
            watching.feed.list_item(&item);
        }
    }

    fn relist(&mut self, at: u8) {
        if self.watching(at).items.is_none() {
            self.begin_list(at);
        }
        while self.watching(at).items.as_ref().is_some_and(|items| !items.is_empty()) {
            self.list_item(at);
        }
        let watching = self.watching(at);
        watching.feed.end_list();
        watching.items = None;
    }

    /// Applies the events of the stores to the state in `told`.
    fn hear(&mut self) {
        for event in self.stores.take_events() {
            let Event::Object(change) = event else { continue };
            let entry = change.new.as_ref().or(change.old.as_ref()).unwrap();
            let place = entry.namespace().unwrap_or_default().to_owned();
            let place = (change.store, place, entry.name().to_owned());
            let version = |entry: &Arc<Entry>| entry.resource_version().to_owned();
            let held = match &change.new {
                Some(new) => self.told.insert(place, version(new)),
                None => self.told.remove(&place),
            };
            assert_eq!(held, change.old.as_ref().map(version), "a change that was not told");
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Write { name, label, host } => {
                let place = (format!("ns{}", name % 2), name.to_string());
                let uid = match self.api.objects.get(&place) {
                    Some(held) => held["metadata"]["uid"].clone(),
                    None => json!(format!("u{}", self.api.revision)),
                };
                let object = with(
                    thing(&place.0, &place.1, 0),
                    "metadata/labels",
                    json!({"app": label.to_string()}),
                );
                // Some objects have too many texts for the index.
                let mut hosts = vec![host.to_string(), "all".into()];
                hosts.extend(
                    (0..1100).take(usize::from(host / 2) * 1100).map(|at| format!("h{at}")),
                );
                let object = with(with(object, "metadata/uid", uid), "spec/hosts", json!(hosts));
                self.write(name, Some(object));
            }
            Step::Delete(name) => self.write(name, None),
            Step::Watch { scope, count } => (0..count).for_each(|_| self.watch(scope)),
            Step::Answer(at) => {
                // Any write can be answered, however old.
                let at = usize::from(at) % self.api.history.len().max(1);
                if let Some((_, _, Some(new))) = self.api.history.get(at) {
                    self.stores.wrote(&kind(), new, &key(), &Arc::default());
                }
            }
            Step::BeginList(scope) => self.begin_list(scope),
            Step::ListItems { scope, count } => (0..count).for_each(|_| self.list_item(scope)),
            Step::EndList(scope) => {
                if self.watching(scope).items.is_some() {
                    self.relist(scope);
                }
            }
            Step::Widen { scope, field } => {
                let scope = self.watches[usize::from(scope)].scope.clone();
                self.open(&scope, &wanted(&[&format!("spec.more{field}")], &[]));
            }
            Step::Look(label) => {
                let of = labelled(&format!("app={label}"));
                if self.user.is_none() || label == 2 {
                    // The former user ends, and its index is given back.
                    self.user = Some(IndexUser::default());
                    self.stores.check_index_users();
                }
                request(&self.stores, &of, self.user.as_ref().unwrap());
            }
        }
    }

    /// Lets all watches catch up, so that the stores must equal a list.
    fn settle(&mut self) {
        for at in 0..u8::try_from(self.watches.len()).unwrap() {
            let watching = self.watching(at);
            if watching.items.is_some() || watching.position.is_none() {
                self.relist(at);
            }
            // A last write of another object: its event shows how far the watch has come.
            let object = with(thing("ns0", "8", 0), "metadata/labels", json!({"app": "1"}));
            self.write(8, Some(object));
            (0..=self.api.history.len()).for_each(|_| self.watch(at));
        }
        for at in 0..u8::try_from(self.watches.len()).unwrap() {
            (0..=self.api.history.len()).for_each(|_| self.watch(at));
        }
        self.hear();
    }

    fn check(&self) {
        let kept = self.stores.snapshots(&kind(), |_| true);
        assert_eq!(kept.stores.len(), 2);
        for (store, scope, snapshot) in &kept.stores {
            assert!(self.stores.is_settled(&kind(), scope), "all that was wanted is served");
            let told = self.told.iter().filter(|((of, _, _), _)| of == store);
            let told: Vec<&String> = told.map(|(_, version)| version).collect();
            let held: Vec<_> = snapshot.entries().map(|entry| entry.resource_version()).collect();
            assert_eq!(told, held, "what was told in {scope:?}");
            assert_eq!(snapshot.held(), snapshot.recount(), "bytes in {scope:?}");
            for query in queries() {
                let expected: Vec<_> = self
                    .api
                    .objects
                    .values()
                    .filter(|object| scope.holds(object) && selects(&query, object))
                    .map(|object| object["metadata"]["resourceVersion"].as_str().unwrap())
                    .collect();
                let query = Query::new(&query).unwrap();
                let found: Vec<_> =
                    snapshot.select(&query, None).map(|entry| entry.resource_version()).collect();
                assert_eq!(found, expected, "{query:?} in {scope:?}");
            }
        }
    }
}

fn queries() -> Vec<Selection> {
    let mut queries = Vec::new();
    for namespace in [None, Some("ns0".to_owned()), Some("ns1".to_owned())] {
        for labels in ["", "app=1", "app in (1,2)", "!app", "app!=1"] {
            for host in ["", "1", "2", "all", "h1099", "none"] {
                for name in [None, Some("3".to_owned())] {
                    let mut query = selection();
                    (query.namespace, query.labels, query.name) =
                        (namespace.clone(), labels.into(), name);
                    if !host.is_empty() {
                        query.matching = vec![("spec.hosts[]".into(), host.into())];
                    }
                    queries.push(query);
                }
            }
        }
    }
    queries
}

/// A second, simple implementation of selections.
fn selects(selection: &Selection, object: &Value) -> bool {
    let is = |wanted: &Option<String>, key: &str| {
        wanted.as_ref().is_none_or(|wanted| object["metadata"][key] == **wanted)
    };
    let labels = crate::labels::LabelSelector::parse(&selection.labels).unwrap();
    is(&selection.namespace, "namespace")
        && is(&selection.name, "name")
        && labels.matches_object(object)
        && selection
            .matching
            .iter()
            .all(|(path, value)| path.parse::<Path>().unwrap().holds(object, value))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn after_any_events_the_store_and_its_indexes_equal_the_list(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            world.hear();
        }
        world.settle();
        world.check();
    }
}

#[test]
fn an_entry_is_built_without_the_lock_for_each_table_that_lacks_its_object() {
    let stores = stores(&wanted(&["spec.a"], &[]));
    let store = stores.of_kind(&kind()).find(&Scope::default()).unwrap();
    let shapes = |object: &Value| store.tables.lock().shapes_for(None, object);
    let first = thing("default", "a", 5);
    assert_eq!(shapes(&first).len(), 1);
    upsert(&stores, &first);
    assert!(shapes(&first).is_empty(), "it is known");
    let second = thing("default", "a", 6);
    stores.open(&kind(), &Scope::default(), &wanted(&["spec.b"], &[])).unwrap();
    let update = Update::Wrote(&second);
    let mut entries = update.entries(&shapes(&second));
    let built: Vec<*const u8> = entries.iter().map(|entry| entry.json().as_ptr()).collect();
    assert_eq!(built.len(), 2, "the served table and the one that is listed");
    let changes = store.tables.lock().update(None, update, &mut entries);
    let (_, new) = &changes.differences[0];
    assert!(entries.is_empty() && built.contains(&new.as_ref().unwrap().json().as_ptr()));
}

#[test]
fn only_stores_that_may_hold_an_object_are_asked_about_it() {
    let stores = Stores::new();
    let scope = |namespace: &str| Scope { namespace: Some(namespace.into()), ..Scope::default() };
    for namespace in ["a", "b"] {
        stores.open(&kind(), &scope(namespace), &wanted(&[], &[])).unwrap();
        list(&stores, &scope(namespace), &[]);
    }
    stores.take_events();
    stores.wrote(&kind(), &thing("a", "x", 7), &key(), &Arc::new(json!({})));
    stores.deleted(&kind(), Some("b"), "x", None, &key());
    let events = stores.take_events();
    assert_eq!(events.len(), 2, "one for each: {events:?}");
    assert!(matches!(stores.known_by_name(&kind(), Some("a"), "x"), Known::Present(_)));
    assert!(matches!(stores.known_by_name(&kind(), Some("b"), "x"), Known::Absent));
    // A store that is not asked is not locked.
    let other = stores.of_kind(&kind()).find(&scope("b")).unwrap();
    let locked = other.tables.lock();
    assert!(matches!(stores.known_by_name(&kind(), Some("a"), "x"), Known::Present(_)));
    let query = Query::object(Some("a"), "x");
    assert_eq!(stores.selected(&kind(), &query).unwrap().len(), 1);
    stores.wrote(&kind(), &thing("a", "x", 8), &key(), &Arc::new(json!({})));
    drop(locked);
}
