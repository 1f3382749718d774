//! Remembers former writes of each reconciled object, so that they are not sent again. Lost at a
//! restart.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
};

use parking_lot::Mutex;

use crate::{
    applied_fields::Pair,
    contract::{ObjectRef, SameObject, bounds::ENTRY},
    path::Path,
};

/// The approximate bytes of an entry, and of each path that must be absent, beside its texts.
const ENTRY_BYTES: usize = 4 * ENTRY;

/// The memory of all reconciled objects, by the identity of their managers.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<HashMap<String, OfKey>>);

/// The memory of one reconciled object.
#[derive(Debug, Default)]
struct OfKey {
    held: HashMap<ManagedObject, Remembered>,
    /// The approximate bytes that it takes, with the paths that its stores keep.
    bytes: usize,
}

/// A field manager on an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ManagedObject {
    pub(super) manager: String,
    pub(super) of: SameObject<ObjectRef>,
}

#[derive(Clone, Debug, Default)]
struct Remembered {
    /// The digest of a manifest, and the digests of our own fields after it was sent.
    sent: Option<(u128, Option<Pair>)>,
    /// The `resourceVersion` at which no field of `absent` existed.
    nothing_present: Option<String>,
    absent: Option<Absent>,
}

/// The fields of an object that must be absent.
#[derive(Clone, Debug)]
struct Absent {
    from: ObjectRef,
    /// The bytes of their paths.
    bytes: usize,
    /// The digest of their paths.
    digest: u64,
}

impl Memory {
    /// Remembers our own fields after a manifest was applied, unless their digest equals that of
    /// the manifest: a later comparison then needs no memory.
    pub(super) fn sent(
        &self,
        key: &str,
        managed: ManagedObject,
        manifest: u128,
        own: Option<Pair>,
    ) {
        let mut all = self.0.lock();
        if own.is_some_and(|own| own.values == manifest) {
            if let Some(remembered) = all.get_mut(key).and_then(|of| of.held.get_mut(&managed)) {
                remembered.sent = None;
            }
            return;
        }
        all.entry(key.to_owned()).or_default().of(managed).sent = Some((manifest, own));
    }

    /// Returns whether applying a manifest resulted in exactly these own fields.
    pub(super) fn led_to(
        &self,
        key: &str,
        managed: &ManagedObject,
        manifest: u128,
        own: Option<Pair>,
    ) -> bool {
        let all = self.0.lock();
        all.get(key).and_then(|of| of.held.get(managed)?.sent) == Some((manifest, own))
    }

    /// Remembers the `resourceVersion` at which no field of `absent` existed.
    pub(super) fn nothing_present(
        &self,
        key: &str,
        managed: ManagedObject,
        resource_version: &str,
    ) {
        let mut all = self.0.lock();
        all.entry(key.to_owned()).or_default().of(managed).nothing_present =
            Some(resource_version.to_owned());
    }

    /// Returns whether no field of `absent` existed at that `resourceVersion`.
    pub(super) fn is_nothing_present(
        &self,
        key: &str,
        managed: &ManagedObject,
        resource_version: &str,
    ) -> bool {
        self.0
            .lock()
            .get(key)
            .and_then(|of| of.held.get(managed)?.nothing_present.as_ref())
            .is_some_and(|known| known == resource_version)
    }

    /// Remembers the object of which the fields at these paths must be absent, or forgets it if
    /// there are none. Returns whether fields must be absent now, or had to be before.
    pub(super) fn absent_from(
        &self,
        key: &str,
        managed: &ManagedObject,
        of: &ObjectRef,
        paths: &[Path],
    ) -> bool {
        let mut all = self.0.lock();
        if paths.is_empty() {
            let former =
                all.get_mut(key).and_then(|of| Some((of.held.get_mut(managed)?, &mut of.bytes)));
            let former = former.and_then(|(held, bytes)| Some((held.absent.take()?, bytes)));
            return former.map(|(former, bytes)| *bytes -= former.bytes).is_some();
        }
        let of_key = all.entry(key.to_owned()).or_default();
        let bytes = paths.iter().map(|path| ENTRY_BYTES + path.bytes()).sum();
        let digest = BuildHasherDefault::<DefaultHasher>::new().hash_one(paths);
        let held = of_key.of(managed.clone());
        let former = held.absent.replace(Absent { from: of.clone(), bytes, digest });
        if former.as_ref().is_none_or(|former| former.digest != digest) {
            held.nothing_present = None;
        }
        of_key.bytes = of_key.bytes + bytes - former.map_or(0, |former| former.bytes);
        true
    }

    /// Returns the approximate bytes that are kept of the writes of a reconciled object.
    pub(super) fn bytes(&self, key: &str) -> usize {
        self.0.lock().get(key).map_or(0, |of| of.bytes)
    }

    /// Forgets the entries that a run did not touch. Returns the objects of which fields had to be
    /// absent, each with the manager.
    pub(super) fn keep_only(
        &self,
        key: &str,
        touched: &HashSet<ManagedObject>,
    ) -> Vec<(ObjectRef, String)> {
        let mut all = self.0.lock();
        let Some(of_key) = all.get_mut(key) else { return Vec::new() };
        let gone = of_key.held.extract_if(|managed, _| !touched.contains(managed));
        let gone: Vec<_> = gone.collect();
        of_key.bytes -= gone.iter().map(|(managed, held)| bytes_of(managed, held)).sum::<usize>();
        if of_key.held.is_empty() {
            all.remove(key);
        }
        gone.into_iter().filter_map(absence).collect()
    }

    /// Forgets a reconciled object. Returns the same as [`Memory::keep_only`].
    pub(super) fn forget(&self, key: &str) -> Vec<(ObjectRef, String)> {
        let forgotten = self.0.lock().remove(key);
        forgotten.into_iter().flat_map(|of| of.held).filter_map(absence).collect()
    }
}

// === impl OfKey ===

impl OfKey {
    /// Returns the entry of a managed object, which is counted from now on.
    fn of(&mut self, managed: ManagedObject) -> &mut Remembered {
        let Self { held, bytes } = self;
        match held.entry(managed) {
            Entry::Occupied(held) => held.into_mut(),
            Entry::Vacant(place) => {
                *bytes += bytes_of(place.key(), &Remembered::default());
                place.insert(Remembered::default())
            }
        }
    }
}

fn bytes_of(ManagedObject { manager, of }: &ManagedObject, held: &Remembered) -> usize {
    let paths = held.absent.as_ref().map_or(0, |absent| absent.bytes);
    ENTRY_BYTES + manager.len() + of.0.name.len() + paths
}

fn absence((managed, remembered): (ManagedObject, Remembered)) -> Option<(ObjectRef, String)> {
    Some((remembered.absent?.from, managed.manager))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::reference;

    #[test]
    fn what_is_kept_of_the_writes_of_a_key_is_counted() {
        let memory = Memory::default();
        let managed = |name: &str| ManagedObject {
            manager: "mortise/a/p/a0".to_owned(),
            of: SameObject(reference("Thing", name)),
        };
        let paths: Vec<Path> = (0..128).map(|at| format!("data.f{at}").parse().unwrap()).collect();
        let absent = |name: &str, paths: &[Path]| {
            memory.absent_from("k", &managed(name), &reference("Thing", name), paths)
        };
        assert!(absent("one", &paths) && memory.bytes("k") > 128 * ENTRY_BYTES);
        let bytes = memory.bytes("k");
        assert!(absent("one", &paths));
        assert_eq!(memory.bytes("k"), bytes, "in place of the former ones");
        assert!(absent("two", &paths));
        memory.sent("k", managed("two"), 1, None);
        assert_eq!(memory.bytes("k"), 2 * bytes);
        assert!(absent("two", &[]) && !absent("two", &[]) && !absent("three", &[]));
        memory.nothing_present("k", managed("two"), "7");
        let of_two = memory.bytes("k") - bytes;
        assert!((1..1024).contains(&of_two), "{of_two}");
        assert_eq!(memory.keep_only("k", &[managed("two")].into()).len(), 1);
        assert_eq!(memory.bytes("k"), of_two);
        assert!(memory.forget("k").is_empty());
        assert_eq!((memory.bytes("k"), memory.0.lock().len()), (0, 0));
    }

    #[test]
    fn fields_are_looked_for_anew_when_others_must_be_absent() {
        let memory = Memory::default();
        let of = reference("Thing", "one");
        let managed =
            ManagedObject { manager: "mortise/a/p/a0".to_owned(), of: SameObject(of.clone()) };
        let absent = |paths: &[&str]| {
            let paths: Vec<Path> = paths.iter().map(|path| path.parse().unwrap()).collect();
            memory.absent_from("k", &managed, &of, &paths);
            memory.is_nothing_present("k", &managed, "7")
        };
        assert!(!absent(&["data.a"]));
        memory.nothing_present("k", managed.clone(), "7");
        assert!(absent(&["data.a"]));
        assert!(!absent(&["data.a", "data.b"]));
        memory.nothing_present("k", managed.clone(), "7");
        assert!(absent(&["data.a", "data.b"]));
        absent(&[]);
        assert!(!absent(&["data.a", "data.b"]), "forgotten in between");
    }
}
