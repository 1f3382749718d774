//! Fields that are removed, whoever owns them.

use std::{cmp::Ordering, sync::Arc};

use serde_json::{Value, json};

use super::{
    Action, Run, Stop,
    apply::Target,
    leave::ROUNDS,
    live::{resource_version, uid},
};
use crate::{outcome::Manifest, path::Path, store::Known};

impl Run<'_> {
    /// Removes what must be absent, by JSON patch with a test of what is there. `answer`: the object, if it was just written.
    pub(super) async fn remove_absent(
        &mut self,
        target: &Target<'_>,
        manifest: &Manifest,
        answer: Option<Value>,
    ) -> Result<(), Stop> {
        if manifest.absent.is_empty() {
            return Ok(());
        }
        let place = super::place(target.manager, target.to);
        self.touched.insert(place.clone());
        if answer.is_none()
            && let Known::Present(entry) = self.writer.stores.known(target.to)
            && self.writer.memory.is_nothing_present(
                self.managers.hash(),
                &place,
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
            let operations = removals(&object, &manifest.absent);
            if operations.is_empty() {
                self.writer.memory.nothing_present(
                    self.managers.hash(),
                    place,
                    resource_version(&object).unwrap_or_default(),
                );
                return Ok(());
            }
            match self
                .send(self.json_patch(target.resource, target.to, operations), target.to)
                .await
            {
                Ok(answer) => {
                    self.store(target.to, &answer.body, &Arc::new(manifest.object.clone()));
                    self.changed(Action::Update, target.to, answer.body.clone());
                    known = Some(answer.body);
                }
                // A test has failed: somebody was faster.
                Err(refusal) if matches!(refusal.code, 409 | 422) && round < ROUNDS => {}
                Err(refusal) => return Err(Stop::of(refusal, target.to)),
            }
        }
        Ok(())
    }
}

/// A JSON patch that removes what the paths find; nothing where they find nothing.
fn removals(object: &Value, absent: &[Path]) -> Vec<Value> {
    let mut pointers: Vec<String> = absent.iter().flat_map(|path| path.pointers(object)).collect();
    pointers.sort_by(|one, other| by_segments(other, one));
    pointers.dedup();
    let all = pointers.clone();
    let is_within = |pointer: &String| {
        all.iter().any(|other| {
            pointer.strip_prefix(other.as_str()).is_some_and(|rest| rest.starts_with('/'))
        })
    };
    pointers.retain(|pointer| !is_within(pointer));
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

/// Elements of a list by their number.
fn by_segments(one: &str, other: &str) -> Ordering {
    let mut others = other.split('/');
    for mine in one.split('/') {
        let Some(theirs) = others.next() else { return Ordering::Greater };
        let order = match (mine.parse::<usize>(), theirs.parse::<usize>()) {
            (Ok(mine), Ok(theirs)) => mine.cmp(&theirs),
            _ => mine.cmp(theirs),
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
    fn later_elements_of_a_list_are_removed_first_and_parts_of_what_goes_are_not_named() {
        let object = json!({"metadata": {"uid": "u"}, "a": [{"x": 1}, {"x": 2}, {"x": 3}, 4, 5, 6, 7, 8, 9, 10, {"x": 1}], "b": {"c/d": {"e": 1}}});
        let paths = ["a[x=1]", "a[x=3]", "a[x=3].x", "b[\"c/d\"]", "b[\"c/d\"].e", "none"];
        let paths: Vec<Path> = paths.iter().map(|path| path.parse().unwrap()).collect();
        let removed: Vec<String> = removals(&object, &paths)
            .iter()
            .filter(|operation| operation["op"] == "remove")
            .map(|operation| operation["path"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(removed, ["/b/c~1d", "/a/10", "/a/2", "/a/0"]);
        let patched = removals(&object, &paths);
        let mut result = object.clone();
        json_patch::patch(
            &mut result,
            &serde_json::from_value::<json_patch::Patch>(Value::Array(patched)).unwrap(),
        )
        .unwrap();
        assert_eq!(result["a"], json!([{"x": 2}, 4, 5, 6, 7, 8, 9, 10]));
        assert_eq!(removals(&result, &paths), Vec::<Value>::new());
    }
}
