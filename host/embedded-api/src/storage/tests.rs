use serde_json::json;

use super::*;

fn place(namespace: &str, name: &str) -> Place {
    Place::new(TableId::new("", "configmaps"), namespace, name)
}

fn object(name: &str, uid: &str, owner: Option<&str>) -> Value {
    let owners: Vec<Value> = owner
        .iter()
        .map(|uid| json!({"uid": uid, "name": "o", "kind": "K", "apiVersion": "v1"}))
        .collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "uid": uid, "ownerReferences": owners}})
}

fn put(storage: &mut Storage, namespace: &str, name: &str) -> u64 {
    storage
        .put(&place(namespace, name), &mut object(name, &format!("{namespace}-{name}"), None), 0)
        .revision()
}

fn names<'a>(list: impl IntoIterator<Item = (&'a Arc<str>, &'a Arc<Image>)>) -> Vec<&'a str> {
    list.into_iter().map(|(key, _)| &**key).collect()
}

#[test]
fn lists_are_in_the_order_of_namespace_and_name() {
    let mut storage = Storage::new(10);
    for (namespace, name) in [("a", "y"), ("a-1", "x"), ("a", "b"), ("b", "a")] {
        put(&mut storage, namespace, name);
    }
    let table = storage.table(&place("a", "b").table).unwrap();
    assert_eq!(names(table.list("", None)), ["a-1/x", "a/b", "a/y", "b/a"]);
    assert_eq!(names(table.list("a", None)), ["a/b", "a/y"]);
    assert_eq!(names(table.list("a", Some("a/b"))), ["a/y"]);
    assert_eq!(names(table.list("", Some("a/b"))), ["a/y", "b/a"]);
}

#[test]
fn the_past_can_be_listed_until_it_is_compacted() {
    let mut storage = Storage::new(3);
    let first = put(&mut storage, "a", "x");
    let second = put(&mut storage, "a", "y");
    storage.remove(&place("a", "x"));
    put(&mut storage, "a", "y");
    let table = storage.table(&place("a", "x").table).unwrap();
    let past = table.list_at("a", second).unwrap();
    assert_eq!(names(past.iter().map(|(key, image)| (key, image))), ["a/x", "a/y"]);
    assert_eq!(past.last().map(|(_, image)| image.revision()), Some(second));
    assert!(table.list_at("a", first - 1).is_err(), "the first event is forgotten");
    assert_eq!(table.events_after(first).unwrap().count(), 3);
    assert_eq!(table.events_after(first - 1).err(), Some(Compacted { oldest: first }));

    storage.compact();
    let now = storage.revision();
    let table = storage.table(&place("a", "x").table).unwrap();
    assert!(table.events_after(now - 1).is_err());
    assert_eq!(table.events_after(now).unwrap().count(), 0);
    assert_eq!(names(table.list("a", None)), ["a/y"]);
}

#[test]
fn revisions_rise_over_all_tables_and_are_in_the_object() {
    let mut storage = Storage::new(3);
    let first = put(&mut storage, "a", "x");
    let other = Place::new(TableId::new("apps", "deployments"), "a", "x");
    let image = storage.put(&other, &mut object("x", "u", None), 0);
    assert_eq!(image.revision(), first + 1);
    assert_eq!(
        image.value("apps/v1", "Deployment")["metadata"]["resourceVersion"],
        (first + 1).to_string()
    );
    let mut text = Vec::new();
    image.write("apps/v1", "Deployment", &mut text);
    assert_eq!(
        serde_json::from_slice::<Value>(&text).unwrap(),
        image.value("apps/v1", "Deployment")
    );
    assert_eq!(storage.table(&other.table).unwrap().last(), first + 1);
    assert_eq!(storage.table(&place("a", "x").table).unwrap().last(), first);
}

#[test]
fn owners_and_uids_are_indexed() {
    let mut storage = Storage::new(3);
    storage.put(&place("a", "x"), &mut object("x", "ux", Some("owner")), 0);
    storage.put(&place("a", "y"), &mut object("y", "uy", Some("owner")), 0);
    assert_eq!(storage.dependents("owner").count(), 2);
    assert_eq!(storage.by_uid("ux"), Some(&place("a", "x")));

    storage.put(&place("a", "x"), &mut object("x", "ux", None), 0);
    assert_eq!(storage.dependents("owner").collect::<Vec<_>>(), [&place("a", "y")]);
    storage.remove(&place("a", "y"));
    assert_eq!(storage.dependents("owner").count(), 0);
    assert_eq!(storage.by_uid("uy"), None);
}

#[test]
fn a_table_that_was_dropped_forgets_its_past() {
    let mut storage = Storage::new(3);
    let before = put(&mut storage, "a", "x");
    let last = put(&mut storage, "a", "y");
    let id = place("a", "x").table;
    let signal = storage.table_mut(&id).subscribe();
    storage.drop_table(&id);
    assert!(signal.has_changed().is_err(), "watches end");
    assert_eq!(storage.by_uid("a-x"), None);
    assert!(storage.table_mut(&id).events_after(before).is_err());
    assert!(storage.table_mut(&id).events_after(last).is_ok());
}
