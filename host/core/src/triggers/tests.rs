use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    applied_fields,
    contract::{self, ObjectRef, Selection},
    fixture::{
        all, declared, description, fields, key, kind, labelled, list, matching, object,
        reconciler, reference, with,
    },
    grant::Grant,
    reads::{PAGE_BYTES, View},
    store::Scope,
};

/// Stores, triggers and a description that may read everything of `Thing` and `Rule`.
struct World {
    stores: Stores,
    log: Log,
    triggers: Triggers,
    /// The steps that the triggers do at once.
    slice: usize,
    grant: Arc<Grant>,
    revision: u64,
    /// Answers to writes that the watch has not reported yet.
    unseen: Vec<Value>,
}

impl World {
    fn new() -> Self {
        let things = matching(all("Thing"), "spec.hosts[]", "*");
        let grant = Grant::new(&description(all("Rule"), vec![things, all("Late")])).unwrap();
        let stores = Stores::new();
        for (of, scope, wanted) in grant.wanted() {
            stores.open(of, scope, wanted);
            if of.kind != "Late" {
                list(&stores, &of.kind, scope, &[]);
            }
        }
        stores.take_events();
        let log = Log::default();
        Self {
            stores,
            triggers: Triggers::new(&log),
            log,
            slice: usize::MAX,
            grant: Arc::new(grant),
            revision: 10,
            unseen: Vec::new(),
        }
    }

    fn view(&self) -> View {
        View::new(self.stores.clone(), Arc::clone(&self.grant), PAGE_BYTES)
    }

    /// Runs a key that reads and does nothing else. Returns the causes of another run.
    fn run(&mut self, key: &Key, read: impl FnOnce(&mut View)) -> Vec<Cause> {
        let began = self.triggers.begin(key);
        let mut view = self.view();
        read(&mut view);
        self.triggers.end(began, &mut view.finish())
    }

    fn newer(&mut self, mut object: Value) -> Value {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        object
    }

    /// Lets the watch report the writes that it has not reported yet, as it does before any later
    /// change.
    fn watch(&mut self) {
        for object in std::mem::take(&mut self.unseen) {
            let of = kind(object["kind"].as_str().unwrap());
            self.stores.feed(&of, &Scope::default()).unwrap().upsert(&object);
        }
    }

    fn upsert(&mut self, object: Value) {
        self.watch();
        let object = self.newer(object);
        let of = kind(object["kind"].as_str().unwrap());
        self.stores.feed(&of, &Scope::default()).unwrap().upsert(&object);
    }

    fn delete(&mut self, object: Value) {
        self.watch();
        let object = self.newer(object);
        let of = kind(object["kind"].as_str().unwrap());
        self.stores.feed(&of, &Scope::default()).unwrap().delete(&object);
    }

    fn wrote(&mut self, object: Value, by: &Key, sent: &Value) {
        let object = self.newer(object);
        let of = kind(object["kind"].as_str().unwrap());
        self.stores.wrote(&of, &object, by, &Arc::new(sent.clone()));
        self.unseen.push(object);
    }

    /// Writes as `wrote` does, but the watch event arrives before the answer.
    fn shown_and_wrote(&mut self, object: Value, by: &Key, sent: &Value) {
        self.watch();
        let object = self.newer(object);
        let of = kind(object["kind"].as_str().unwrap());
        self.stores.feed(&of, &Scope::default()).unwrap().upsert(&object);
        self.stores.wrote(&of, &object, by, &Arc::new(sent.clone()));
    }

    fn write(&mut self, is_shown_first: bool, object: Value, by: &Key, sent: &Value) {
        if is_shown_first {
            self.shown_and_wrote(object, by, sent);
        } else {
            self.wrote(object, by, sent);
        }
    }

    /// Hands the events to the triggers. Returns the names of the keys that are queued.
    fn queued(&mut self) -> Vec<String> {
        self.log.take_from(&self.stores);
        let mut keys = Vec::new();
        let mut queue = |key: &Key, _| keys.push(key.name().to_owned());
        while self.triggers.work_off(&self.stores, self.slice, &mut queue) {}
        keys.sort();
        keys
    }
}

fn thing(name: &str) -> Value {
    object("Thing", name, 0)
}

fn get(name: &'static str, field: &'static str) -> impl Fn(&mut View) {
    move |view| {
        view.get(&reference("Thing", name), &[field.to_owned()]).unwrap();
    }
}

fn listed(of: Selection) -> impl Fn(&mut View) {
    move |view| {
        view.list(&of, 1, None).unwrap();
    }
}

#[test]
fn a_change_in_a_field_that_was_read_triggers_and_no_other_does() {
    let mut world = World::new();
    let a = with(thing("a"), "spec/x", json!(1));
    world.upsert(a.clone());
    world.run(&key("k"), get("a", "spec.x"));
    world.queued();
    let cases = [
        ("another field", with(a.clone(), "spec/y", json!(2)), 0),
        ("a label", with(a.clone(), "metadata/labels", json!({"a": "b"})), 0),
        ("the generation", with(a.clone(), "metadata/generation", json!(7)), 0),
        ("the field", with(a.clone(), "spec/x", json!(2)), 1),
        ("the field again", a.clone(), 1),
        ("the deletion's time", with(a.clone(), "metadata/deletionTimestamp", json!("now")), 1),
        ("another object", with(thing("b"), "spec/x", json!(2)), 0),
    ];
    for (case, change, count) in cases {
        world.upsert(change);
        assert_eq!(world.queued().len(), count, "{case}");
    }
    world.delete(a);
    assert_eq!(world.queued(), ["k"]);
}

#[test]
fn an_absent_object_that_was_read_triggers_when_it_comes() {
    let mut world = World::new();
    world.run(&key("k"), get("a", "spec.x"));
    world.upsert(thing("b"));
    assert_eq!(world.queued(), [""; 0]);
    world.upsert(thing("a"));
    assert_eq!(world.queued(), ["k"]);
}

#[test]
fn coming_into_a_selection_and_leaving_it_triggers() {
    let selections = [
        labelled(all("Thing"), "app=x"),
        labelled(all("Thing"), "app in (x,z),!none"),
        matching(all("Thing"), "spec.hosts[]", "one"),
        matching(labelled(all("Thing"), "app=x"), "spec.hosts[]", "one"),
    ];
    for of in selections {
        let of = fields(of, &["spec.hosts"]);
        let mut world = World::new();
        let outside = thing("a");
        let labels = with(outside.clone(), "metadata/labels", json!({"app": "x"}));
        let inside = with(labels, "spec/hosts", json!(["one", "two"]));
        world.upsert(outside.clone());
        world.run(&key("k"), listed(of.clone()));
        world.queued();
        world.upsert(inside.clone());
        assert_eq!(world.queued(), ["k"], "in: {of:?}");
        world.upsert(with(inside.clone(), "spec/x", json!(1)));
        assert_eq!(world.queued(), [""; 0], "a field not asked for: {of:?}");
        world.upsert(outside);
        assert_eq!(world.queued(), ["k"], "out: {of:?}");
        world.upsert(inside.clone());
        world.delete(inside);
        assert_eq!(world.queued(), ["k", "k"], "gone: {of:?}");
    }
}

#[test]
fn an_object_with_too_many_values_for_an_index_triggers_those_that_read_by_one_of_them() {
    let mut world = World::new();
    for (name, host) in [("one", "h1499"), ("other", "h1500")] {
        let of = matching(all("Thing"), "spec.hosts[]", host);
        world.run(&key(name), listed(fields(of, &["spec.hosts"])));
    }
    let hosts: Vec<String> = (0..1500).map(|at| format!("h{at}")).collect();
    let many = with(thing("a"), "spec/hosts", json!(hosts));
    world.upsert(many.clone());
    assert_eq!(world.queued(), ["one"], "in");
    world.upsert(with(many.clone(), "spec/x", json!(1)));
    assert_eq!(world.queued(), [""; 0], "a field not asked for");
    world.upsert(with(thing("a"), "spec/hosts", json!(["h1"])));
    assert_eq!(world.queued(), ["one"], "out");
    world.upsert(many.clone());
    world.delete(many);
    assert_eq!(world.queued(), ["one", "one"], "in, and gone");
}

#[test]
fn changes_during_a_run_are_reported_at_its_end() {
    let mut world = World::new();
    let began = world.triggers.begin(&key("k"));
    let mut view = world.view();
    world.upsert(thing("before"));
    get("a", "spec.x")(&mut view);
    world.upsert(thing("a"));
    world.upsert(thing("b"));
    assert_eq!(world.queued(), [""; 0], "it runs");
    let causes = world.triggers.end(began, &mut view.finish());
    assert_eq!(
        causes.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["Thing g/v1 default/a created"]
    );
    assert_eq!(world.log.len(), 0);
}

#[test]
fn a_change_that_the_run_has_seen_does_not_trigger_it_however_late_it_is_handed_on() {
    let mut world = World::new();
    world.upsert(thing("a"));
    assert_eq!(world.run(&key("k"), get("a", "spec.x")), []);
    assert_eq!(world.queued(), [""; 0]);
    let began = world.triggers.begin(&key("k"));
    world.upsert(with(thing("a"), "spec/x", json!(1)));
    let mut view = world.view();
    get("a", "spec.x")(&mut view);
    assert_eq!(world.queued(), [""; 0]);
    assert_eq!(world.triggers.end(began, &mut view.finish()), []);
}

#[test]
fn two_calls_of_one_run_count_with_the_earlier_state_that_they_saw() {
    let mut world = World::new();
    let began = world.triggers.begin(&key("k"));
    let mut first = world.view();
    get("a", "spec.x")(&mut first);
    let mut reads = first.finish();
    world.upsert(thing("a"));
    let mut second = world.view();
    get("a", "spec.x")(&mut second);
    get("b", "spec.x")(&mut second);
    reads.merge(second.finish());
    world.queued();
    assert_eq!(world.triggers.end(began, &mut reads).len(), 1);
    world.upsert(thing("b"));
    assert_eq!(world.queued(), ["k"]);
}

#[test]
fn a_new_run_replaces_the_dependencies_of_the_former_run() {
    let mut world = World::new();
    world.run(&key("k"), get("a", "spec.x"));
    world.run(&key("k"), get("b", "spec.x"));
    world.upsert(thing("a"));
    assert_eq!(world.queued(), [""; 0]);
    world.upsert(thing("b"));
    assert_eq!(world.queued(), ["k"]);
    world.triggers.forget(&key("k"));
    world.delete(thing("b"));
    assert_eq!(world.queued(), [""; 0]);
}

#[test]
fn a_write_triggers_other_keys_and_its_own_only_on_unexpected_values() {
    let sent = with(thing("a"), "spec/x", json!(1));
    let mut unknown = sent.clone();
    unknown["metadata"].as_object_mut().unwrap().remove("uid");
    let read_x = |view: &mut View| get("a", "spec.x")(view);
    let cases = [
        ("as sent", json!({"x": 1, "given": 2}), &sent, vec!["other"]),
        ("otherwise than sent", json!({"x": 2}), &sent, vec!["other", "own"]),
        ("made, with a uid that nobody asked for", json!({"x": 1}), &unknown, vec!["other"]),
    ];
    for (case, answer, sent, expected) in cases {
        let mut world = World::new();
        for name in ["own", "other"] {
            world.run(&key(name), read_x);
        }
        world.wrote(with(thing("a"), "spec", answer), &key("own"), sent);
        assert_eq!(world.queued(), expected, "{case}");
    }
}

#[test]
fn server_set_fields_trigger_the_own_key_only_if_it_requested_them() {
    let mut sent = with(thing("a"), "spec/x", json!(1));
    sent["metadata"].as_object_mut().unwrap().remove("uid");
    let given = with(with(thing("a"), "spec/x", json!(1)), "spec/ip", json!("10.0.0.1"));
    let cases = [
        ("spec.x", 0),
        ("spec.ip", 1),
        ("metadata.labels", 0),
        ("metadata.uid", 1),
        ("metadata", 1),
        ("spec", 1),
    ];
    for (field, count) in cases {
        let mut world = World::new();
        world.run(&key("own"), get("a", field));
        world.wrote(given.clone(), &key("own"), &sent);
        assert_eq!(world.queued().len(), count, "{field}");
    }
}

#[test]
fn a_write_that_the_watch_shows_before_its_answer_is_an_own_write_too() {
    let mut world = World::new();
    let sent = with(thing("a"), "spec/x", json!(1));
    world.run(&key("other"), get("a", "spec.x"));
    let began = world.triggers.begin(&key("own"));
    let mut view = world.view();
    get("a", "spec.x")(&mut view);
    world.shown_and_wrote(sent.clone(), &key("own"), &sent);
    assert_eq!(world.queued(), ["other"]);
    assert_eq!(world.triggers.end(began, &mut view.finish()), []);

    // The same of a deletion.
    world.run(&key("other"), get("a", "spec.x"));
    let began = world.triggers.begin(&key("own"));
    let mut view = world.view();
    get("a", "spec.x")(&mut view);
    world.delete(sent.clone());
    world.stores.deleted(&kind("Thing"), Some("default"), "a", None, &key("own"));
    assert_eq!(world.queued(), ["other"]);
    assert_eq!(world.triggers.end(began, &mut view.finish()), []);

    // A concurrent change by another writer still triggers the key.
    let began = world.triggers.begin(&key("own"));
    let mut view = world.view();
    get("a", "spec.x")(&mut view);
    world.shown_and_wrote(sent.clone(), &key("own"), &sent);
    world.upsert(with(sent.clone(), "spec/x", json!(2)));
    world.queued();
    assert_eq!(world.triggers.end(began, &mut view.finish()).len(), 1);
}

/// A key whose reconciler is triggered by the status writes its own finalizers or status: first the
/// watch event arrives, then the answer, or the other way round.
#[test]
fn own_finalizers_and_own_status_are_no_news_unless_they_came_out_otherwise() {
    let mut of = reconciler(all("Rule"));
    of.triggered_by_status = true;
    let described = description(all("Rule"), vec![all("Thing")]);
    let rule = with(object("Rule", "a", 0), "spec/x", json!(1));
    let held = with(rule.clone(), "metadata/finalizers", json!(["example.com/held"]));
    let said = with(rule.clone(), "status/ready", json!(true));
    let finalizers = json!({"metadata": {"name": "a", "namespace": "default", "finalizers": ["example.com/held"]}});
    let status =
        json!({"metadata": {"name": "a", "namespace": "default"}, "status": {"ready": true}});
    let cases = [
        ("finalizers", &held, &finalizers, 0),
        ("status", &said, &status, 0),
        (
            "a status that came out otherwise",
            &with(rule.clone(), "status/ready", json!(false)),
            &status,
            1,
        ),
        (
            "finalizers, and what somebody else changed",
            &with(held.clone(), "spec/x", json!(2)),
            &finalizers,
            1,
        ),
    ];
    for (case, answer, sent, count) in cases {
        for is_shown_first in [false, true] {
            let mut world = World::new();
            let described =
                crate::contract::Description { reconcilers: vec![of.clone()], ..described.clone() };
            world.grant = Arc::new(Grant::new(&described).unwrap());
            world.upsert(rule.clone());
            world.queued();
            let began = world.triggers.begin(&key("a"));
            let mut view = world.view();
            view.reconciled_by_first(&reference("Rule", "a"));
            world.write(is_shown_first, answer.clone(), &key("a"), sent);
            assert_eq!(world.queued(), [""; 0], "{case}: it runs");
            let news = world.triggers.end(began, &mut view.finish());
            assert_eq!(news.len(), count, "{case}, shown first: {is_shown_first}: {news:?}");
        }
    }
}

#[test]
fn an_own_write_that_hides_a_foreign_change_triggers_the_own_key() {
    let mut world = World::new();
    world.upsert(with(thing("a"), "spec", json!({"x": 1, "theirs": 1})));
    world.run(&key("own"), get("a", "spec"));
    world.queued();
    // Another writer set `theirs` to 2; the answer to our write is the first to report it.
    world.wrote(
        with(thing("a"), "spec", json!({"x": 2, "theirs": 2})),
        &key("own"),
        &with(thing("a"), "spec/x", json!(2)),
    );
    assert_eq!(world.queued(), ["own"]);
}

#[test]
fn an_own_deletion_triggers_others_only() {
    let mut world = World::new();
    world.upsert(thing("a"));
    for name in ["own", "other"] {
        world.run(&key(name), get("a", "spec.x"));
    }
    world.queued();
    world.stores.deleted(&kind("Thing"), Some("default"), "a", None, &key("own"));
    assert_eq!(world.queued(), ["other"]);
}

/// Returns an object on which `manager` has applied `spec.x`.
fn applied(name: &str, manager: &str, x: u64) -> Value {
    let entry =
        json!([{"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": {"f:x": {}}}}]);
    with(with(thing(name), "spec/x", json!(x)), "metadata/managedFields", entry)
}

fn ours(object: &Value) -> Option<applied_fields::Pair> {
    applied_fields::of(object).get("mortise/m", "")
}

#[test]
fn a_foreign_change_to_written_fields_or_a_deletion_triggers_the_key() {
    let mut world = World::new();
    let a = applied("a", "mortise/m", 1);
    let write = |world: &mut World| {
        let began = world.triggers.begin(&key("k"));
        world.wrote(a.clone(), &key("k"), &a);
        let mut reads = world.view().finish();
        reads.wrote(&reference("Thing", "a"), "mortise/m", ours(&a));
        world.queued();
        let causes = world.triggers.end(began, &mut reads);
        assert_eq!(causes, [], "its own write");
    };
    write(&mut world);
    world.upsert(with(a.clone(), "spec/theirs", json!(1)));
    assert_eq!(world.queued(), [""; 0], "a field of others");
    world.upsert(applied("a", "mortise/m", 2));
    assert_eq!(world.queued(), ["k"], "our field");
    write(&mut world);
    world.upsert(with(thing("a"), "spec/x", json!(1)));
    assert_eq!(world.queued(), ["k"], "no longer ours");
    write(&mut world);
    world.delete(a.clone());
    assert_eq!(world.queued(), ["k"], "deleted");
}

#[test]
fn a_field_that_must_be_absent_triggers_the_key_only_if_it_returns() {
    let mut world = World::new();
    let spec = |key: &str, value: u64| with(applied("a", "mortise/m", 1), key, json!(value));
    world.upsert(spec("spec/other", 1));
    world.queued();
    let began = world.triggers.begin(&key("k"));
    let mut reads = world.view().finish();
    let of = reference("Thing", "a");
    world.stores.must_be_absent(&of, "mortise/m", &["spec.old".parse().unwrap()]);
    reads.wrote(&of, "mortise/m", ours(&applied("a", "mortise/m", 1)));
    assert_eq!(world.triggers.end(began, &mut reads), []);
    let cases = [
        ("another field", spec("spec/other", 2), 1, 0),
        ("the field", spec("spec/old", 1), 1, 1),
        ("it is gone", spec("spec/other", 3), 1, 0),
        ("it may be there", spec("spec/old", 2), 0, 0),
    ];
    for (case, object, paths, count) in cases {
        let paths = vec!["spec.old".parse().unwrap(); paths];
        world.stores.must_be_absent(&of, "mortise/m", &paths);
        world.upsert(object);
        assert_eq!(world.queued().len(), count, "{case}");
    }
}

#[test]
fn drift_that_a_run_has_mended_itself_does_not_run_it_again_but_later_drift_does() {
    let mut world = World::new();
    let a = applied("a", "mortise/m", 1);
    let mut ended = |after: Option<Value>| {
        let began = world.triggers.begin(&key("k"));
        world.upsert(applied("a", "mortise/m", 2));
        world.wrote(a.clone(), &key("k"), &a);
        if let Some(after) = after {
            world.upsert(after);
        }
        let mut reads = world.view().finish();
        reads.wrote(&reference("Thing", "a"), "mortise/m", ours(&a));
        world.queued();
        world.triggers.end(began, &mut reads).len()
    };
    assert_eq!(ended(None), 0);
    assert_eq!(ended(Some(applied("a", "mortise/m", 3))), 1);
}

#[test]
fn an_object_that_would_be_pruned_triggers_and_others_in_the_selection_do_not() {
    let mut world = World::new();
    let labels = |object: Value| with(object, "metadata/labels", json!({"app": "x"}));
    let began = world.triggers.begin(&key("k"));
    let mut reads = world.view().finish();
    reads.pruned(&labelled(all("Thing"), "app=x"), "mortise/m");
    reads.wrote(
        &reference("Thing", "wanted"),
        "mortise/m",
        ours(&applied("wanted", "mortise/m", 1)),
    );
    assert_eq!(world.triggers.end(began, &mut reads), []);
    let cases = [
        ("of others", labels(applied("a", "mortise/other", 1)), 0),
        ("not in the selection", applied("b", "mortise/m", 1), 0),
        ("one that is wanted", labels(applied("wanted", "mortise/m", 1)), 0),
        ("left over", labels(applied("c", "mortise/m", 1)), 1),
        (
            "known to be left over",
            with(labels(applied("c", "mortise/m", 1)), "spec/y", json!(1)),
            0,
        ),
    ];
    for (case, object, count) in cases {
        world.upsert(object);
        assert_eq!(world.queued().len(), count, "{case}");
    }
}

#[test]
fn objects_of_a_reconciler_are_keys_and_their_status_does_not_trigger_unless_asked_for() {
    for triggered_by_status in [false, true] {
        let mut world = World::new();
        let mut of = reconciler(labelled(all("Rule"), "app=x"));
        of.triggered_by_status = triggered_by_status;
        let mut described = description(all("Rule"), vec![all("Thing")]);
        described.reconcilers = vec![of.clone()];
        world.grant = Arc::new(Grant::new(&described).unwrap());
        let rule = with(object("Rule", "a", 0), "metadata/labels", json!({"app": "x"}));
        world.upsert(rule.clone());
        world.queued();
        let there = world.triggers.add_reconciler(
            Registration::new(&"p".into(), &world.grant.reconcilers()[0]),
            &world.stores,
        );
        assert_eq!(there, [key("a")]);
        world.upsert(with(object("Rule", "b", 0), "metadata/labels", json!({"app": "x"})));
        world.upsert(object("Rule", "c", 0));
        assert_eq!(world.queued(), ["b"]);
        let run = |world: &mut World| {
            world.run(&key("a"), |view| {
                view.reconciled_by_first(&reference("Rule", "a"));
            })
        };
        assert_eq!(run(&mut world), []);
        world.upsert(with(rule.clone(), "status/ready", json!(true)));
        assert_eq!(world.queued().len(), usize::from(triggered_by_status));
        world.upsert(with(rule.clone(), "metadata/annotations", json!({"a": "b"})));
        assert_eq!(world.queued(), ["a"], "metadata counts");
        world.delete(rule.clone());
        assert_eq!(world.queued(), ["a"], "it is gone");
        world.run(&key("a"), |view| {
            assert!(view.reconciled_by_first(&reference("Rule", "a")).json.is_none());
            get("b", "spec.x")(view);
        });
        world.upsert(thing("b"));
        assert_eq!(world.queued(), [""; 0], "nothing runs for an object that is gone");
        world.upsert(rule.clone());
        assert_eq!(world.queued(), ["a"], "it is back");
        run(&mut world);
        world.upsert(object("Rule", "a", 0));
        assert_eq!(world.queued(), ["a"], "it leaves the selection");
        run(&mut world);
        world.upsert(with(object("Rule", "a", 0), "spec/x", json!(1)));
        assert_eq!(world.queued(), [""; 0], "it is not one of the reconciler's");
        world.upsert(rule);
        assert_eq!(world.queued(), ["a"], "it comes into the selection");
        world.triggers.remove_all();
        world.upsert(with(object("Rule", "d", 0), "metadata/labels", json!({"app": "x"})));
        assert_eq!(world.queued(), [""; 0]);
    }
}

#[test]
fn a_kind_that_comes_or_goes_triggers_those_that_read_it() {
    let mut world = World::new();
    let late = |view: &mut View| drop(view.get(&reference("Late", "a"), &[]));
    world.stores.set_unknown(&kind("Late"), &Scope::default());
    world.queued();
    assert_eq!(world.run(&key("k"), late), []);
    world.run(&key("other"), get("a", "spec.x"));
    world.stores.set_known(&kind("Late"));
    assert_eq!(world.queued(), ["k"], "known");
    world.run(&key("k"), late);
    list(&world.stores, "Late", &Scope::default(), &[]);
    assert_eq!(world.queued(), ["k"], "complete");
    world.run(&key("k"), late);
    let began = world.triggers.begin(&key("running"));
    let mut view = world.view();
    late(&mut view);
    world.stores.set_unknown(&kind("Late"), &Scope::default());
    assert_eq!(world.queued(), ["k"], "unknown");
    let causes = world.triggers.end(began, &mut view.finish());
    assert_eq!(causes, [Cause::KindUnknown(Arc::new(kind("Late")))]);
}

#[test]
fn a_scope_is_used_while_a_key_depends_on_objects_in_it_or_waits_for_their_kind() {
    let mut world = World::new();
    let in_default = Scope { namespace: Some("default".into()), ..Scope::default() };
    let elsewhere = Scope { namespace: Some("x".into()), ..Scope::default() };
    assert!(!world.triggers.depends_on(&kind("Thing"), &Scope::default()));
    world.run(&key("a"), get("t", "spec"));
    world.run(&key("b"), |view| _ = view.get(&reference("Late", "l"), &[]));
    for scope in [&Scope::default(), &in_default] {
        assert!(world.triggers.depends_on(&kind("Thing"), scope));
    }
    assert!(!world.triggers.depends_on(&kind("Thing"), &elsewhere));
    assert!(world.triggers.depends_on(&kind("Late"), &elsewhere), "its list is waited for");
    world.run(&key("a"), |_| {});
    assert!(!world.triggers.depends_on(&kind("Thing"), &Scope::default()));
}

#[test]
fn closing_a_store_triggers_the_keys_that_read_from_it() {
    let mut world = World::new();
    world.run(&key("k"), get("a", "spec.x"));
    let rule = |view: &mut View| drop(view.reconciled_by_first(&reference("Rule", "r")));
    world.run(&key("of-rules"), rule);
    let began = world.triggers.begin(&key("running"));
    let mut view = world.view();
    get("a", "spec.x")(&mut view);
    world.stores.close(&kind("Thing"), &Scope::default());
    assert_eq!(world.queued(), ["k"]);
    let causes = world.triggers.end(began, &mut view.finish());
    assert_eq!(causes, [Cause::Moved(Arc::new(kind("Thing")))]);
}

#[test]
fn a_removed_reconciler_takes_its_keys_along_and_no_others() {
    let mut world = World::new();
    let registration = |name: &str| {
        let of = contract::Reconciler { name: name.into(), ..reconciler(all("Rule")) };
        Registration::new(&"p".into(), &declared(of))
    };
    for name in ["r", "other"] {
        assert!(world.triggers.add_reconciler(registration(name), &world.stores).is_empty());
    }
    let other = Key::new(&"p".into(), &"other".into(), Some("default"), "k");
    world.run(&key("k"), get("a", "spec.x"));
    world.run(&other, get("a", "spec.x"));
    let began = world.triggers.begin(&key("running"));
    let mut view = world.view();
    get("a", "spec.x")(&mut view);
    world.triggers.remove_reconciler(&"r".into());
    assert!(world.triggers.keys().eq([&other]));
    world.upsert(thing("a"));
    world.upsert(object("Rule", "new", 0));
    assert_eq!(world.queued(), ["k", "new"], "those of the other reconciler");
    assert_eq!(world.triggers.end(began, &mut view.finish()), [], "it leaves nothing behind");
    assert_eq!(world.triggers.keys().count(), 1);
}

#[test]
fn a_change_triggers_exactly_its_readers_among_a_thousand_keys() {
    let mut world = World::new();
    for at in 0..1000_u32 {
        let (group, name) = (at % 100, at.to_string());
        world.upsert(with(thing(&format!("t{group}")), "spec/hosts", json!([format!("h{group}")])));
        let service = ObjectRef { name: format!("t{group}"), ..reference("Thing", "") };
        let hosts = matching(all("Thing"), "spec.hosts[]", &format!("h{group}"));
        let pods = labelled(all("Thing"), &format!("app=a{group}"));
        world.run(&key(&name), |view| {
            view.get(&service, &["spec.x".to_owned()]).unwrap();
            view.list(&fields(hosts, &["spec.x"]), 0, None).unwrap();
            view.list(&fields(pods, &["metadata.labels"]), 0, None).unwrap();
        });
    }
    world.queued();
    let readers: Vec<String> =
        (0..10).map(|at| (at * 100 + 7).to_string()).collect::<BTreeSet<_>>().into_iter().collect();
    world.upsert(with(with(thing("t7"), "spec/hosts", json!(["h7"])), "spec/x", json!(1)));
    assert_eq!(world.queued(), readers, "one object");
    world.upsert(with(thing("new"), "spec/hosts", json!(["h7"])));
    assert_eq!(world.queued(), readers, "by a value");
    world.upsert(with(thing("pod"), "metadata/labels", json!({"app": "a7"})));
    assert_eq!(world.queued(), readers, "by a label");
    world.upsert(with(thing("unrelated"), "metadata/labels", json!({"app": "b"})));
    assert_eq!(world.queued(), [""; 0]);
}

/// Runs keys that prune by selections: each selection is a dependency.
fn prune(world: &mut World, keys: u32, selections: &[Selection]) {
    for number in 0..keys {
        let began = world.triggers.begin(&key(&number.to_string()));
        let mut reads = world.view().finish();
        for selection in selections {
            reads.pruned(selection, "mortise/m");
        }
        assert_eq!(world.triggers.end(began, &mut reads), []);
    }
}

/// Returns the numbers of comparisons and of parsed objects in a change of `a`, and the keys that
/// it queues.
fn spent(world: &mut World, a: Value) -> (usize, usize, usize) {
    let before = world.triggers.spent;
    world.upsert(a);
    let keys = world.queued().len();
    let after = world.triggers.spent;
    (after.compared - before.compared, after.parsed - before.parsed, keys)
}

#[test]
fn an_object_is_parsed_once_a_change_however_many_paths_without_an_index_are_looked_up() {
    let mut world = World::new();
    world.upsert(thing("a"));
    let paths: Vec<_> =
        (0..132).map(|number| matching(all("Thing"), &format!("data.k{number}"), "v")).collect();
    prune(&mut world, 20, &paths);
    world.queued();
    let changed = with(thing("a"), "spec/x", json!(1));
    assert_eq!(spent(&mut world, changed), (132, 2, 0));
    let ours = with(applied("a", "mortise/m", 1), "data", json!({"k7": "v"}));
    assert_eq!(spent(&mut world, ours), (8, 2, 20), "each key up to the path that it looks for");
}

#[test]
fn equal_queries_of_many_keys_are_compared_once_a_change() {
    let mut world = World::new();
    world.upsert(thing("a"));
    let labels: Vec<_> =
        (0..400).map(|number| labelled(all("Thing"), &format!("k{number} in (a,b)"))).collect();
    prune(&mut world, 60, &labels);
    world.queued();
    assert_eq!(spent(&mut world, with(thing("a"), "spec/x", json!(1))), (400, 0, 0));
    let ours = with(applied("a", "mortise/m", 1), "metadata/labels", json!({"k7": "b"}));
    assert_eq!(spent(&mut world, ours), (8, 0, 60), "each key up to the one that it looks for");
}

#[test]
fn fields_with_many_pairs_count_as_much_work() {
    let list = |x: usize| json!(vec![json!({"name": "n", "x": x}); 1_000]);
    let work = |pairs: usize| {
        let mut world = World::new();
        world.upsert(with(thing("a"), "spec/list", list(0)));
        world.run(&key("k"), |view| {
            let path = |at: usize| format!("spec.list[name=n{at},k=v].y");
            let paths: Vec<String> = (0..pairs / 2).map(path).chain(["spec.y".into()]).collect();
            view.get(&reference("Thing", "a"), &paths).unwrap();
        });
        world.queued();
        let before = world.triggers.spent;
        world.upsert(with(thing("a"), "spec/list", list(1)));
        assert!(world.queued().is_empty());
        world.triggers.spent.steps - before.steps
    };
    let (few, many) = (work(0), work(100));
    // 16 bytes of both objects are compared in a step, with each pair.
    assert!(few < 100 && (200_000..400_000).contains(&many), "{few}, {many}");
}

/// Returns an object with so many labels that a comparison with them takes long.
fn with_many_labels(object: Value, more: &[(&str, &str)]) -> Value {
    let long = "x".repeat(60);
    let many = (0..2_000).map(|number| (format!("n{number}"), long.as_str()));
    let more = more.iter().map(|(key, value)| ((*key).to_owned(), *value));
    let labels: BTreeMap<String, &str> = many.chain(more).collect();
    with(object, "metadata/labels", json!(labels))
}

#[test]
fn a_change_that_would_be_compared_too_often_queues_every_key_that_it_may_affect() {
    let mut world = World::new();
    world.upsert(with_many_labels(thing("a"), &[]));
    for number in 0..60 {
        world.run(&key(&format!("{number:02}")), |view| {
            for label in 0..10 {
                let of = labelled(all("Thing"), &format!("k{number}-{label} in (a,b)"));
                view.list(&of, 1, None).unwrap();
            }
        });
    }
    world.run(&key("narrow"), get("b", "spec.x"));
    world.queued();
    assert_eq!(world.triggers.limited(), None);
    let changed = with_many_labels(thing("a"), &[("k59-9", "a")]);
    let before = world.triggers.spent;
    world.upsert(changed);
    let queued = world.queued();
    assert!(queued.contains(&"59".to_owned()), "the only one that it affects: {queued:?}");
    assert!(!queued.contains(&"narrow".to_owned()), "{queued:?}");
    assert!(queued.len() < 60, "those of the first comparisons are not affected");
    assert!(world.triggers.spent.compared - before.compared < 100);
    assert_eq!(world.triggers.limited().map(|kind| &*kind.kind), Some("Thing"));
}

#[test]
fn a_change_that_many_selections_of_a_reconciler_would_be_compared_with_takes_bounded_work() {
    let mut world = World::new();
    let value = |at: usize| matching(all("Thing"), "spec.list[].x", &at.to_string());
    let selected = (0..4000).map(value).map(|of| {
        let query = crate::store::Query::new(&of).unwrap();
        Arc::new(crate::grant::Selected::new("r".into(), of, query))
    });
    let reconciler = contract::Reconciler { on_demand: true, ..reconciler(all("Thing")) };
    let grant = Grant::new(&contract::Description {
        reconcilers: vec![reconciler],
        ..description(all("Rule"), Vec::new())
    })
    .unwrap();
    let id = ReconcilerId::on_demand("r", &kind("Thing"));
    let started = grant.started(&id, selected.collect(), Box::default()).unwrap();
    let registration = Registration::new(&"p".into(), &Arc::new(started));
    world.triggers.add_reconciler(registration, &world.stores);
    let list: Vec<Value> = (0..2000).map(|at| json!({"x": format!("v{at}")})).collect();
    let before = world.triggers.work();
    world.upsert(with(thing("a"), "spec/list", json!(list)));
    assert_eq!(world.queued().len(), 1, "the run finds out that it has nothing to do");
    let work = world.triggers.work() - before;
    assert!(work < 1 << 19, "{work} steps");
}

#[test]
fn nothing_is_kept_of_kinds_that_no_run_names_any_more() {
    let mut world = World::new();
    for at in 0..10 {
        let began = world.triggers.begin(&key("a"));
        let mut reads = world.view().finish();
        (0..100).for_each(|of| reads.not_written(&kind(&format!("K{at}x{of}"))));
        assert!(reads.kept_bytes() > 100 * 100);
        world.triggers.end(began, &mut reads);
        assert_eq!(world.triggers.kinds.len(), 100);
    }
}

#[test]
fn a_run_that_would_be_compared_too_often_at_its_end_runs_again_and_no_other_does() {
    let mut world = World::new();
    world.upsert(with_many_labels(thing("a"), &[]));
    world.queued();
    let began = world.triggers.begin(&key("wide"));
    let other = world.triggers.begin(&key("other"));
    let (mut view, mut view_of_other) = (world.view(), world.view());
    for number in 0..20 {
        view.list(&labelled(all("Thing"), &format!("k{number} in (a,b)")), 1, None).unwrap();
    }
    get("b", "spec.x")(&mut view_of_other);
    for number in 0..10 {
        world.upsert(with_many_labels(with(thing("a"), "spec/x", json!(number)), &[]));
    }
    world.queued();
    assert_eq!(world.triggers.end(began, &mut view.finish()), [Cause::Overrun]);
    assert_eq!(world.triggers.end(other, &mut view_of_other.finish()), []);
}

#[test]
fn triggers_that_are_too_late_for_the_log_queue_all_keys_once() {
    let of = Registration::new(&"p".into(), &declared(reconciler(all("Rule"))));
    // Events are lost, or their objects.
    for bounds in [(0, usize::MAX), (usize::MAX, 0)] {
        let mut world = World::new();
        world.triggers.add_reconciler(of.clone(), &world.stores);
        world.upsert(thing("a"));
        world.queued();
        world.run(&key("k"), get("a", "spec.x"));
        let began = world.triggers.begin(&key("running"));
        let mut view = world.view();
        get("a", "spec.x")(&mut view);
        let other = world.triggers.begin(&key("other"));
        world.upsert(object("Rule", "new", 0));
        world.upsert(with(thing("a"), "spec/x", json!(1)));
        world.log.take_from(&world.stores);
        world.log.trim(bounds.0, bounds.1);
        assert_eq!(world.queued(), ["k", "new"]);
        assert_eq!(world.queued(), [""; 0]);
        assert_eq!(world.triggers.end(began, &mut view.finish()), [Cause::Overrun]);
        let causes = world.triggers.end(other, &mut world.view().finish());
        assert_eq!(causes.is_empty(), bounds.1 == 0, "it has read nothing: {bounds:?}");
    }
}

#[test]
fn keys_of_skipped_events_are_queued_in_slices() {
    let mut world = World::new();
    for number in 0..100 {
        world.run(&key(&format!("{number:03}")), get("a", "spec.x"));
    }
    world.upsert(thing("a"));
    world.log.take_from(&world.stores);
    world.log.trim(0, usize::MAX);
    let mut queued = Vec::new();
    let mut slices = 0;
    loop {
        let before = queued.len();
        let queue = |key: &Key, _| queued.push(key.name().to_owned());
        let is_left = world.triggers.work_off(&world.stores, 10 * OVERRUN_STEPS, queue);
        assert!(queued.len() - before <= 10);
        slices += 1;
        if !is_left {
            break;
        }
        // A run that begins now sees all changes that were skipped.
        if slices == 5 {
            let _ = world.triggers.begin(&key("099"));
        }
    }
    assert!(slices >= 10 && queued.len() == 99, "{slices}, {queued:?}");
    assert!(queued.is_sorted());
}

/// Returns the selections that the model supports too.
fn questions() -> Vec<Selection> {
    let mut questions = Vec::new();
    for name in [None, Some("0".to_owned()), Some("1".to_owned())] {
        for labels in ["", "app=1", "app!=1"] {
            for host in ["", "h1"] {
                let mut of = fields(labelled(all("Thing"), labels), &["spec.x"]);
                of.name.clone_from(&name);
                of.namespace = name.as_ref().map(|_| "default".to_owned());
                if !host.is_empty() {
                    of = matching(of, "spec.hosts[]", host);
                }
                questions.push(of);
            }
        }
    }
    questions
}

#[derive(Clone, Debug)]
enum Step {
    Put {
        name: u8,
        app: u8,
        host: u8,
        x: u8,
    },
    Answer {
        name: u8,
        app: u8,
        host: u8,
        x: u8,
        by: u8,
        shown: bool,
    },
    Other(u8),
    Delete(u8),
    Begin(u8),
    Ask {
        key: u8,
        question: u8,
        get: bool,
    },
    End(u8),
    HandOn,
    /// The log loses its events, or their objects.
    Lose(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let object = || (0..3_u8, 0..2_u8, 0..2_u8, 0..2_u8);
    prop_oneof![
        3 => object().prop_map(|(name, app, host, x)| Step::Put { name, app, host, x }),
        2 => (object(), 0..3_u8, any::<bool>())
            .prop_map(|((name, app, host, x), by, shown)| Step::Answer { name, app, host, x, by, shown }),
        1 => (0..3_u8).prop_map(Step::Other),
        2 => (0..3_u8).prop_map(Step::Delete),
        3 => (0..3_u8).prop_map(Step::Begin),
        5 => (0..3_u8, any::<u8>(), any::<bool>()).prop_map(|(key, question, get)| Step::Ask { key, question, get }),
        3 => (0..3_u8).prop_map(Step::End),
        2 => Just(Step::HandOn),
        1 => any::<bool>().prop_map(Step::Lose),
    ]
}

/// The questions of a run and their answers.
type Answers = Vec<(Asking, Vec<Value>)>;

#[derive(Clone, Debug)]
enum Asking {
    Get(String),
    List(Selection),
}

/// A world with a model, which answers by a scan of all objects, and the keys that are queued.
struct Model {
    world: World,
    objects: BTreeMap<String, Value>,
    running: BTreeMap<u8, (Began, View, Answers)>,
    ended: BTreeMap<u8, Answers>,
    queued: BTreeSet<String>,
    /// The keys that have written: their own writes need not trigger them.
    own: BTreeSet<u8>,
}

impl Model {
    fn new() -> Self {
        Self {
            world: World::new(),
            objects: BTreeMap::new(),
            running: BTreeMap::new(),
            ended: BTreeMap::new(),
            queued: BTreeSet::new(),
            own: BTreeSet::new(),
        }
    }

    fn put(&mut self, name: u8, app: u8, host: u8, x: u8) -> Value {
        let object =
            with(thing(&name.to_string()), "metadata/labels", json!({"app": app.to_string()}));
        let object =
            with(with(object, "spec/hosts", json!([format!("h{host}")])), "spec/x", json!(x));
        self.objects.insert(name.to_string(), object.clone());
        object
    }

    /// Returns the parts of an object that count in an answer.
    fn counted(object: &Value) -> Value {
        json!([object["metadata"]["name"], object["metadata"]["uid"], object["spec"]["x"]])
    }

    fn answer(&self, asking: &Asking) -> Vec<Value> {
        let of = match asking {
            Asking::Get(name) => {
                return self.objects.get(name).map(Self::counted).into_iter().collect();
            }
            Asking::List(of) => of,
        };
        let labels = crate::labels::LabelSelector::parse(&of.labels).unwrap();
        let selected = self.objects.iter().filter(|(name, object)| {
            let holds = |(path, value): &(String, String)| {
                path.parse::<crate::path::Path>().unwrap().holds(object, value)
            };
            of.name.as_ref().is_none_or(|wanted| wanted == *name)
                && labels.matches_object(object)
                && of.matching.iter().all(holds)
        });
        selected.map(|(_, object)| Self::counted(object)).collect()
    }

    fn ask(&mut self, key: u8, question: u8, get: bool) {
        let Some((_, view, answers)) = self.running.get_mut(&key) else { return };
        let (asking, objects) = if get {
            let name = (question % 3).to_string();
            let of = ObjectRef { name: name.clone(), ..reference("Thing", "") };
            let object = view.get(&of, &["spec.x".to_owned()]).unwrap();
            (Asking::Get(name), object.into_iter().collect())
        } else {
            let questions = questions();
            let of = questions[usize::from(question) % questions.len()].clone();
            let page = view.list(&of, 0, None).unwrap();
            (Asking::List(of), page.objects)
        };
        let objects =
            objects.iter().map(|json| Self::counted(&serde_json::from_str(json).unwrap()));
        answers.push((asking, objects.collect()));
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Put { name, app, host, x } => {
                let object = self.put(name, app, host, x);
                self.world.upsert(object);
            }
            Step::Answer { name, app, host, x, by, shown } => {
                let object = self.put(name, app, host, x);
                self.own.insert(by);
                self.world.write(shown, object.clone(), &key(&by.to_string()), &object);
            }
            Step::Other(name) => {
                if let Some(object) = self.objects.get(&name.to_string()).cloned() {
                    let other = with(object, "spec/other", json!(self.world.revision));
                    self.world.upsert(other);
                }
            }
            Step::Delete(name) => {
                if let Some(object) = self.objects.remove(&name.to_string()) {
                    self.world.delete(object);
                }
            }
            Step::Begin(number) => {
                if !self.running.contains_key(&number) {
                    let began = self.world.triggers.begin(&key(&number.to_string()));
                    self.running.insert(number, (began, self.world.view(), Vec::new()));
                    self.ended.remove(&number);
                    self.own.remove(&number);
                    self.queued.remove(&number.to_string());
                }
            }
            Step::Ask { key, question, get } => self.ask(key, question, get),
            Step::End(number) => {
                if let Some((began, view, answers)) = self.running.remove(&number) {
                    if !self.world.triggers.end(began, &mut view.finish()).is_empty() {
                        self.queued.insert(number.to_string());
                    }
                    self.ended.insert(number, answers);
                }
            }
            Step::HandOn => {
                let queued = self.world.queued();
                self.queued.extend(queued);
            }
            Step::Lose(events) => {
                let World { log, stores, .. } = &self.world;
                log.take_from(stores);
                log.trim(if events { 0 } else { usize::MAX }, if events { usize::MAX } else { 0 });
            }
        }
    }

    /// Checks that every key that is not queued would get the same answers again.
    fn check(&self) {
        for (number, answers) in &self.ended {
            // A key need not be triggered by its own writes; the tests above cover those.
            if self.queued.contains(&number.to_string()) || self.own.contains(number) {
                continue;
            }
            for (asking, answer) in answers {
                assert_eq!(
                    self.answer(asking),
                    *answer,
                    "key {number} was not told of a change: {asking:?}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_answer_triggers_the_key_that_asked(
        slice in prop::sample::select(vec![1, 10, usize::MAX]),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut model = Model::new();
        model.world.slice = slice;
        for step in &steps {
            model.step(step);
        }
        (0..3).for_each(|number| model.step(&Step::End(number)));
        model.step(&Step::HandOn);
        model.check();
    }

    #[test]
    fn a_change_of_a_field_that_was_not_asked_for_triggers_nothing(
        before in prop::collection::vec((0..3_u8, 0..2_u8, 0..2_u8, 0..2_u8), 1..5),
        asks in prop::collection::vec((any::<u8>(), any::<bool>()), 1..8),
        others in prop::collection::vec((0..3_u8, any::<bool>()), 1..8),
    ) {
        let mut model = Model::new();
        for (name, app, host, x) in before {
            model.step(&Step::Put { name, app, host, x });
        }
        model.step(&Step::HandOn);
        model.step(&Step::Begin(0));
        for (question, get) in asks {
            model.step(&Step::Ask { key: 0, question, get });
        }
        for (at, (name, during)) in others.iter().enumerate() {
            if !during && at == others.len() / 2 {
                model.step(&Step::End(0));
            }
            model.step(&Step::Other(*name));
            model.step(&Step::HandOn);
        }
        model.step(&Step::End(0));
        model.step(&Step::HandOn);
        prop_assert!(model.queued.is_empty(), "{:?}", model.queued);
    }

    #[test]
    fn the_order_of_watch_event_and_answer_does_not_affect_triggers(
        before in (0..2_u8, 0..2_u8, 0..2_u8),
        writes in prop::collection::vec((any::<bool>(), (0..2_u8, 0..2_u8, 0..3_u8), 0..3_u8), 1..5),
        asks in prop::collection::vec((any::<u8>(), any::<bool>()), 1..5),
    ) {
        // Returns whether the run ends without a cause for another one; a write that is not ours is
        // a foreign change.
        let outcome = |is_shown_first: bool| {
            let mut model = Model::new();
            let (app, host, x) = before;
            model.step(&Step::Put { name: 0, app, host, x });
            model.step(&Step::HandOn);
            model.step(&Step::Begin(0));
            for (question, get) in &asks {
                model.step(&Step::Ask { key: 0, question: *question, get: *get });
            }
            for (is_ours, (app, host, x), given) in &writes {
                let sent = model.put(0, *app, *host, *x);
                let answer = with(sent.clone(), "spec/x", json!(given));
                match is_ours {
                    true => model.world.write(is_shown_first, answer, &key("0"), &sent),
                    false => model.world.upsert(answer),
                }
            }
            model.step(&Step::HandOn);
            let (began, view, _) = model.running.remove(&0).unwrap();
            model.world.triggers.end(began, &mut view.finish()).is_empty()
        };
        prop_assert_eq!(outcome(false), outcome(true));
    }
}
