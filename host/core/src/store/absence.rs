//! Fields that field managers require to be absent from the objects of one kind, and the check for
//! their presence.
//!
//! Projection may drop these fields, since no processor requests them. So the check runs on the
//! whole object, before projection.

use std::{collections::HashMap, sync::Arc};

use parking_lot::RwLock;
use serde_json::Value;

use super::place::NamespacedName;
use crate::path::Path;

/// The most steps of looking for fields in one object: about a millisecond, in which its store is
/// locked.
const MAX_STEPS: usize = 1 << 16;

/// The field managers for which an object has a field that must be absent.
pub(super) type Managers = Arc<[Box<str>]>;

/// The paths that must be absent, by object and field manager. Clones are handles of the same map.
#[derive(Clone, Debug, Default)]
pub(super) struct Absences(Arc<RwLock<HashMap<NamespacedName, ByManager>>>);

type ByManager = Vec<(Box<str>, Arc<[Path]>)>;

impl Absences {
    /// Sets the fields that a manager requires to be absent from an object, replacing its former
    /// ones; without fields, removes the manager.
    pub(super) fn set(&self, place: &NamespacedName, manager: &str, paths: &[Path]) {
        if paths.is_empty() && self.0.read().is_empty() {
            return;
        }
        let mut all = self.0.write();
        let wanted = all.entry(place.clone()).or_default();
        wanted.retain(|(held, _)| **held != *manager);
        if !paths.is_empty() {
            wanted.push((manager.into(), paths.into()));
        }
        if wanted.is_empty() {
            all.remove(place);
        }
    }

    /// Returns the managers for which a whole object has a field that must be absent, if any. Those
    /// whose fields would take too long to be looked for are among them.
    pub(super) fn broken(&self, place: &NamespacedName, object: &Value) -> Option<Managers> {
        let all = self.0.read();
        let wanted = all.get(place)?;
        let mut steps = MAX_STEPS;
        let mut is_broken =
            |paths: &[Path]| paths.iter().any(|path| path.finds(object, &mut steps));
        let broken = wanted.iter().filter(|(_, paths)| is_broken(paths));
        let managers: Managers = broken.map(|(manager, _)| manager.clone()).collect();
        (!managers.is_empty()).then_some(managers)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_manager_is_told_of_its_own_fields_for_as_long_as_it_wants_them_absent() {
        let paths = |texts: &[&str]| -> Vec<Path> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let object = json!({"data": {"x": "1", "y": null}});
        let absences = Absences::default();
        let broken_of = |namespace: &str| {
            let managers = absences.broken(&NamespacedName::new(namespace, "a"), &object);
            managers.iter().flat_map(|all| all.iter()).map(ToString::to_string).collect::<Vec<_>>()
        };
        absences.set(&NamespacedName::new("n", "a"), "one", &paths(&["data.x", "data.z"]));
        absences.set(&NamespacedName::new("n", "a"), "two", &paths(&["data.y"]));
        absences.set(&NamespacedName::new("n", "b"), "one", &paths(&["data.x"]));
        assert_eq!(broken_of("n"), ["one", "two"]);
        assert!(broken_of("m").is_empty());
        absences.set(&NamespacedName::new("n", "a"), "one", &paths(&["data.z"]));
        assert_eq!(broken_of("n"), ["two"]);
        for name in ["a", "b"] {
            absences.set(&NamespacedName::new("n", name), "one", &[]);
        }
        absences.set(&NamespacedName::new("n", "a"), "two", &[]);
        assert!(broken_of("n").is_empty());
        assert!(absences.0.read().is_empty(), "nothing is left behind");
    }

    #[test]
    fn fields_that_take_long_to_be_looked_for_count_as_present() {
        let items: Vec<Value> = (0..10_000).map(|at| json!({"a": at, "b": "x"})).collect();
        let object = json!({"data": {"x": "1"}, "items": items});
        let absences = Absences::default();
        let path: Path = "items[b=x].c".parse().unwrap();
        let place = NamespacedName::new("n", "a");
        for manager in 0..100 {
            absences.set(&place, &manager.to_string(), std::slice::from_ref(&path));
        }
        let broken = absences.broken(&place, &object).unwrap();
        let first: usize = broken.first().unwrap().parse().unwrap();
        assert!((1..10).contains(&first) && broken.len() == 100 - first, "{first}");
    }
}
