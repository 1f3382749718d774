//! Removes the fields of `absent`, regardless of their owner.

use std::{cmp::Ordering, sync::Arc};

use serde_json::{Value, json};

use super::{
    Action, Run, Stop,
    apply::Target,
    leave::{MAX_ATTEMPTS, merged},
    live::{named, resource_version, uid},
};
use crate::{
    contract::{ObjectRef, display_ref},
    outcome::Manifest,
    path::Path,
    store::Known,
};

/// The most fields that are removed at once: the API server accepts 10,000 operations of a JSON
/// patch, and each field takes two.
const MAX_REMOVED: usize = 4_999;
/// The most fields that are found, with those that lie within others.
const MAX_FOUND: usize = 4 * MAX_REMOVED;
/// The most steps of looking for these fields in one object, some tens of milliseconds' worth.
const MAX_STEPS: usize = 1 << 21;

impl Run<'_> {
    /// Removes the fields that must be absent, by JSON patch with a test of their values. `answer`:
    /// the object, if it was just written. If a field comes back later, that counts as a change of
    /// the written object.
    pub(super) async fn remove_absent(
        &mut self,
        target: &Target<'_>,
        manifest: &Manifest,
        answer: Option<Value>,
    ) -> Result<(), Stop> {
        // Registered before the object is read, so that no change is missed.
        self.watch_absence(target.to, target.manager, &manifest.absent);
        if manifest.absent.is_empty() {
            return Ok(());
        }
        self.remove_present(target, &manifest.absent, answer).await
    }

    /// Makes the store check from now on whether these fields come back. With an empty list, also
    /// after a failed write, the store checks nothing.
    pub(super) fn watch_absence(&self, to: &ObjectRef, manager: &str, absent: &[Path]) {
        let key = super::managed(manager, to);
        if self.writer.memory.absent_from(self.managers.identity(), &key, to, absent) {
            self.writer.stores.must_be_absent(to, manager, absent);
        }
    }

    async fn remove_present(
        &mut self,
        target: &Target<'_>,
        absent: &[Path],
        answer: Option<Value>,
    ) -> Result<(), Stop> {
        let managed = super::managed(target.manager, target.to);
        self.touched.insert(managed.clone());
        if answer.is_none()
            && let Known::Present(entry) = self.known(target.to)
            && self.writer.memory.is_nothing_present(
                self.managers.identity(),
                &managed,
                entry.resource_version(),
            )
        {
            return Ok(());
        }
        let mut known = answer;
        for round in 1.. {
            let object = match known.take() {
                Some(object) => object,
                None => match self.live(target.resource, target.to).await? {
                    Some(live) => live,
                    None => return Ok(()),
                },
            };
            let pointers = pointers(&object, absent).ok_or_else(|| too_many(target.to))?;
            let operations = removals(&object, &pointers);
            if operations.is_empty() {
                self.writer.memory.nothing_present(
                    self.managers.identity(),
                    managed,
                    resource_version(&object).unwrap_or_default(),
                );
                return Ok(());
            }
            match self
                .send(self.json_patch(target.resource, target.to, operations), target.to)
                .await
            {
                Ok(answer) => {
                    let sent = without(named(target.to, uid(&object)), &pointers);
                    self.store(target.to, &answer.body, &Arc::new(sent));
                    self.changed(Action::Update, target.to, answer.body.clone());
                    let back = self::pointers(&answer.body, absent);
                    if let Some(back) = back.ok_or_else(|| too_many(target.to))?.first() {
                        return Err(came_back(back, target.to));
                    }
                    known = Some(answer.body);
                }
                // A test has failed: the object was changed meanwhile.
                Err(refusal) if matches!(refusal.code, 409 | 422) && round < MAX_ATTEMPTS => {}
                Err(refusal) => return Err(Stop::of(refusal, target.to)),
            }
        }
        Ok(())
    }
}

/// Returns the failure for a field that is there again in the answer to its removal. To remove it
/// once more would go on for ever.
fn came_back(pointer: &str, of: &ObjectRef) -> Stop {
    let message = format!(
        "`{pointer}` of {} is there again when it is removed: it has a default, or a webhook sets it",
        display_ref(of)
    );
    Stop::unsent(422, "Invalid", message)
}

fn too_many(of: &ObjectRef) -> Stop {
    let message = format!(
        "more than {MAX_REMOVED} fields of {} must be absent, or it takes too long to look for them",
        display_ref(of)
    );
    Stop::unsent(422, "Invalid", message)
}

/// Returns JSON pointers to the fields that the paths select, later elements of a list first, and
/// no field that lies within another; `None` if they are too many, or take too long to be found.
fn pointers(object: &Value, absent: &[Path]) -> Option<Vec<String>> {
    let (mut pointers, mut steps) = (Vec::new(), MAX_STEPS);
    for path in absent {
        pointers.extend(path.pointers_within(object, &mut steps));
        if pointers.len() > MAX_FOUND || steps == 0 {
            return None;
        }
    }
    pointers.sort_by(|one, other| by_segments(one, other));
    // What lies within a field follows it.
    pointers.dedup_by(|pointer, outer| {
        let within = pointer.strip_prefix(outer.as_str());
        within.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    pointers.reverse();
    (pointers.len() <= MAX_REMOVED).then_some(pointers)
}

/// Returns the removal as a manifest that the store can lay over the former object, with null for
/// each removed field. List elements cannot be removed that way: keys that read them run once more.
fn without(named: Value, pointers: &[String]) -> Value {
    let key = |token: &str| token.replace("~1", "/").replace("~0", "~");
    let gone = |pointer: &String| {
        let keys = pointer.split('/').skip(1).collect::<Vec<_>>().into_iter().rev().map(key);
        keys.fold(Value::Null, |within, key| json!({key: within}))
    };
    pointers.iter().map(gone).fold(named, merged)
}

/// Returns a JSON patch that removes the fields at these pointers; empty if there are no pointers.
fn removals(object: &Value, pointers: &[String]) -> Vec<Value> {
    if pointers.is_empty() {
        return Vec::new();
    }
    let same = uid(object).map(|uid| json!({"op": "test", "path": "/metadata/uid", "value": uid}));
    let each = pointers.iter().flat_map(|pointer| {
        let held = object.pointer(pointer).cloned().unwrap_or_default();
        [
            json!({"op": "test", "path": pointer, "value": held}),
            json!({"op": "remove", "path": pointer}),
        ]
    });
    same.into_iter().chain(each).collect()
}

/// Compares two JSON pointers; elements of a list are compared by their number.
fn by_segments(one: &str, other: &str) -> Ordering {
    let mut others = other.split('/');
    for mine in one.split('/') {
        let Some(theirs) = others.next() else { return Ordering::Greater };
        let order = match (mine.parse::<usize>(), theirs.parse::<usize>()) {
            (Ok(mine), Ok(theirs)) => mine.cmp(&theirs),
            // Numbers first: an order in which "2" is below "10", "10" below "1a" and "1a" below "2"
            // is none.
            (Ok(_), Err(_)) => Ordering::Less,
            (Err(_), Ok(_)) => Ordering::Greater,
            (Err(_), Err(_)) => mine.cmp(theirs),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    if others.next().is_some() { Ordering::Less } else { Ordering::Equal }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_list_elements_are_removed_first_and_nested_paths_are_skipped() {
        let object = json!({"metadata": {"uid": "u"}, "a": [{"x": 1}, {"x": 2}, {"x": 3}, 4, 5, 6, 7, 8, 9, 10, {"x": 1}], "b": {"c/d": {"e": 1}}});
        let paths = ["a[x=1]", "a[x=3]", "a[x=3].x", "b[\"c/d\"]", "b[\"c/d\"].e", "none"];
        let paths: Vec<Path> = paths.iter().map(|path| path.parse().unwrap()).collect();
        let pointers = |object: &Value| pointers(object, &paths).unwrap();
        let removed: Vec<String> = removals(&object, &pointers(&object))
            .iter()
            .filter(|operation| operation["op"] == "remove")
            .map(|operation| operation["path"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(removed, ["/b/c~1d", "/a/10", "/a/2", "/a/0"]);
        let patched = removals(&object, &pointers(&object));
        let mut result = object.clone();
        json_patch::patch(
            &mut result,
            &serde_json::from_value::<json_patch::Patch>(Value::Array(patched)).unwrap(),
        )
        .unwrap();
        assert_eq!(result["a"], json!([{"x": 2}, 4, 5, 6, 7, 8, 9, 10]));
        assert_eq!(removals(&result, &pointers(&result)), Vec::<Value>::new());
    }

    #[test]
    fn only_as_many_fields_as_can_be_removed_are_looked_for_within_bounded_work() {
        let object = |items: usize| json!({"a": vec![json!({"x": 1}); items]});
        let paths = |count: usize, path: &str| vec![path.parse::<Path>().unwrap(); count];
        assert_eq!(pointers(&object(4_999), &paths(2, "a[].x")).unwrap().len(), 4_999);
        assert_eq!(pointers(&object(5_000), &paths(1, "a[].x")), None, "too many");
        assert_eq!(
            pointers(&object(4_999), &paths(128, "a[].x")),
            None,
            "too many with equal ones"
        );
        let none = "a[x=1,y=1,z=1]";
        assert_eq!(pointers(&object(6_000), &paths(64, none)), Some(Vec::new()));
        assert_eq!(pointers(&object(6_000), &paths(128, none)), None, "too much work");
    }

    #[test]
    fn pointers_are_in_one_order_with_numbers_first() {
        let mut pointers = ["/1a", "/10", "/2", "/a", "", "/10/b", "/a/3/c", "/a/3"];
        pointers.sort_by(|one, other| by_segments(one, other));
        assert_eq!(pointers, ["", "/2", "/10", "/10/b", "/1a", "/a", "/a/3", "/a/3/c"]);
    }

    #[test]
    fn removed_paths_are_absent_from_the_overlaid_object() {
        let there = json!({"metadata": {"name": "n", "labels": {"a/b": "1", "c": "2"}}, "data": {"x": "1"}});
        let paths = ["metadata.labels[\"a/b\"]", "data"].map(|path| path.parse().unwrap());
        let sent = without(json!({"metadata": {"name": "n"}}), &pointers(&there, &paths).unwrap());
        let left = json!({"metadata": {"name": "n", "labels": {"c": "2"}}});
        assert_eq!(crate::store::lay_over(Some(&there), &sent), left);
    }
}
