//! The names of our field managers: `mortise/<namespace>/<processor>/<letter><hash>`.
//!
//! The hash covers the processor, the reconciler and the reconciled object, and is the same across
//! versions and restarts; the letter stands for the kind of write. So the name of another manager
//! shows whether it applied an object or only patched it, and whether it is of the same reconciled
//! object.
//!
//! On objects of another cluster, the hash also covers the home cluster: the hosts of two clusters may
//! write to a third one for Processors of the same name.
//!
//! Managers are compared with namespace and processor, not by the hash alone: tenants choose names,
//! and the fast hash can be made to collide. If namespace and processor do not fit and are cut, the
//! hash is a cryptographic one.

use std::{
    fmt::Write,
    sync::{Arc, OnceLock},
};

use sha2::{Digest as _, Sha256};
use xxhash_rust::xxh3::xxh3_128;

use crate::{applied_fields::MANAGER_PREFIX, contract::ObjectRef};

/// The API server's limit for a manager's name, in bytes.
const MAX_MANAGER_BYTES: usize = 128;
/// The bytes of a name that are not namespace and processor: prefix, slash, letter and hash,
/// `/initial`.
const FIXED_BYTES: usize = MANAGER_PREFIX.len() + 1 + 33 + INITIAL.len();
const INITIAL: &str = "/initial";
/// The placeholder for the middle that was cut out: names of namespaces and Processors never hold
/// it.
const GAP: &str = "..";
/// The bytes of a name that are left for namespace and processor.
const MAX_VARIABLE_BYTES: usize = MAX_MANAGER_BYTES - FIXED_BYTES;

/// The reconciled object for which fields are owned.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// The namespace of the Processor.
    pub namespace: &'a str,
    /// The name of the Processor.
    pub processor: &'a str,
    /// The name of the reconciler.
    pub reconciler: &'a str,
    /// The reconciled object.
    pub object: &'a ObjectRef,
    /// The home cluster, for fields of objects in another cluster; empty for those of objects at
    /// home.
    pub home: &'a str,
}

/// The identity of the home cluster: the uid of its namespace `kube-system`. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Home(Arc<OnceLock<Box<str>>>);

/// The field managers of one reconciled object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldManagers {
    pub apply: String,
    /// The manager of the fields that are left alone after the creation.
    pub initial: String,
    pub patch: String,
    pub status: String,
    /// The manager of writes that are no apply: finalizers, removals, events.
    pub edit: String,
    identity: String,
}

/// The parts of a manager's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts<'a> {
    /// The letter: `a`, `p`, `s` or `e`.
    pub letter: char,
    /// The namespace and the processor, shortened.
    owner: &'a str,
    hash: &'a str,
}

// === impl Home ===

impl Home {
    /// Sets the identity. Only the first call has an effect.
    pub fn set(&self, uid: &str) {
        _ = self.0.set(uid.into());
    }

    /// Returns the identity, once it is known.
    pub fn get(&self) -> Option<&str> {
        self.0.get().map(|uid| &**uid)
    }

    /// Returns the home in the names of field managers of objects in a cluster.
    ///
    /// *Assumption*: nothing is written to another cluster before the identity is known.
    pub fn of_writes_to(&self, cluster: &str) -> &str {
        if cluster.is_empty() { "" } else { self.get().unwrap_or_default() }
    }
}

// === impl FieldManagers ===

impl FieldManagers {
    pub fn new(of: &Owner<'_>) -> Self {
        let (owner, hash) = (owner(of), hash(of));
        let name = |letter: char| format!("{MANAGER_PREFIX}{owner}/{letter}{hash}");
        Self {
            apply: name('a'),
            initial: format!("{}{INITIAL}", name('a')),
            patch: name('p'),
            status: name('s'),
            edit: name('e'),
            identity: format!("{owner}/{hash}"),
        }
    }

    /// Returns the identity: the part common to all manager names of the key, and unique to it.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Returns whether a `mortise/` manager belongs to another reconciled object or processor.
    pub fn is_other(&self, manager: &str) -> bool {
        manager.starts_with(MANAGER_PREFIX)
            && parts(manager).is_none_or(|parts| parts.identity() != self.identity)
    }

    /// Returns whether a `mortise/` manager of another key applies objects (and does not only patch
    /// them).
    pub fn is_other_apply(&self, manager: &str) -> bool {
        self.is_other(manager) && parts(manager).is_none_or(|parts| parts.letter == 'a')
    }
}

// === impl Parts ===

impl<'a> Parts<'a> {
    /// Returns namespace and processor as they stand in the name: `<namespace>/<processor>`, with
    /// the middle cut out where they are too long.
    pub fn owner(&self) -> &'a str {
        self.owner
    }

    /// Returns the namespace and the name of the Processor; `None` if they are cut.
    pub fn processor(&self) -> Option<(&'a str, &'a str)> {
        self.owner.split_once('/').filter(|_| !self.owner.contains(GAP))
    }

    /// Returns the identity: the part common to all manager names of the key, and unique to it.
    pub fn identity(&self) -> String {
        format!("{}/{}", self.owner, self.hash)
    }
}

/// Returns the identity: the part common to all manager names of a key, and unique to it.
pub fn identity(of: &Owner<'_>) -> String {
    format!("{}/{}", owner(of), hash(of))
}

fn full_owner(of: &Owner<'_>) -> String {
    format!("{}/{}", of.namespace, of.processor)
}

/// Returns `<namespace>/<processor>`, cut to the room in a name.
fn owner(of: &Owner<'_>) -> String {
    shortened(&full_owner(of))
}

/// Returns namespace and name of a Processor as they stand in the names of its field managers.
pub fn owner_of(namespace: &str, processor: &str) -> String {
    shortened(&format!("{namespace}/{processor}"))
}

fn hash(of: &Owner<'_>) -> String {
    let object = of.object;
    let mut text = String::new();
    // Without the version: an object has the same managers in every version of its kind.
    let parts = [
        of.namespace,
        of.processor,
        of.reconciler,
        &object.kind.cluster,
        &object.kind.group,
        &object.kind.kind,
        object.namespace.as_deref().unwrap_or_default(),
        &object.name,
    ];
    // At home no part is added, so that names are those of earlier versions of the host.
    let home = (!of.home.is_empty()).then_some(of.home);
    for part in parts.into_iter().chain(home) {
        _ = write!(text, "{}:{part}", part.len());
    }
    // Another hash for all would orphan the fields that earlier versions of the host have applied.
    // Only if the owner is cut, the hash has to tell owners apart.
    if full_owner(of).len() <= MAX_VARIABLE_BYTES {
        return format!("{:032x}", xxh3_128(text.as_bytes()));
    }
    let mut hash = format!("{:x}", Sha256::digest(text.as_bytes()));
    hash.truncate(32);
    hash
}

/// Parses the name of one of our managers; `None` if it is not of this form.
pub fn parts(manager: &str) -> Option<Parts<'_>> {
    let name = manager.strip_prefix(MANAGER_PREFIX)?;
    let name = name.strip_suffix(INITIAL).unwrap_or(name);
    let (owner, last) = name.rsplit_once('/')?;
    let letter = last.chars().next().filter(|letter| "apse".contains(*letter))?;
    Some(Parts { letter, owner, hash: last.get(1..)? })
}

/// Removes the middle of a text that is too long.
fn shortened(owner: &str) -> String {
    if owner.len() <= MAX_VARIABLE_BYTES {
        return owner.to_owned();
    }
    let half = (MAX_VARIABLE_BYTES - GAP.len()) / 2;
    let start: String = owner.chars().take(half).collect();
    let end: String =
        owner.chars().rev().take(half).collect::<Vec<_>>().into_iter().rev().collect();
    format!("{start}{GAP}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Kind, ObjectRef};

    fn managers(
        namespace: &str,
        processor: &str,
        reconciler: &str,
        version: &str,
        name: &str,
    ) -> FieldManagers {
        let kind = Kind::home("x.dev", version, "Rule");
        let object =
            ObjectRef { kind: kind.into(), namespace: Some("default".into()), name: name.into() };
        FieldManagers::new(&Owner { namespace, processor, reconciler, object: &object, home: "" })
    }

    /// The names before clusters came, for objects of the home cluster.
    #[test]
    fn names_at_home_are_those_that_were_written_before_there_were_other_clusters() {
        let home = Home::default();
        home.set("1b0e1e6e-8a1c-4f6b-9d11-3f2f0f6f0a01");
        assert_eq!(home.of_writes_to(""), "");
        let (owner, hash) = ("kyma/api-rule", "665b18121139fb702101c31db55ae2b9");
        let names = ["a", "p", "s", "e"].map(|letter| format!("mortise/{owner}/{letter}{hash}"));
        let FieldManagers { apply, initial, patch, status, edit, identity } =
            managers("kyma", "api-rule", "rule", "v1", "a");
        assert_eq!([&apply, &patch, &status, &edit], names.each_ref());
        assert_eq!((initial, identity), (format!("{apply}/initial"), format!("{owner}/{hash}")));
    }

    #[test]
    fn two_homes_have_different_managers_in_a_third_cluster() {
        let object = ObjectRef {
            kind: Kind::home("x.dev", "v1", "Rule").into(),
            namespace: Some("default".into()),
            name: "a".into(),
        };
        let of = |home| {
            let (namespace, processor, reconciler) = ("shop", "sync", "rule");
            FieldManagers::new(&Owner { namespace, processor, reconciler, object: &object, home })
        };
        let [at_home, one, two] = ["", "1b0e", "2c1f"].map(of);
        assert!(one.is_other(&two.apply) && one.is_other(&at_home.apply));
        assert_eq!(parts(&one.apply).unwrap().owner(), parts(&two.apply).unwrap().owner());
    }

    #[test]
    fn a_manager_belongs_to_one_reconciled_object_and_outlives_versions() {
        let own = managers("kyma", "api-rule", "rule", "v1", "a");
        assert!(own.apply.starts_with("mortise/kyma/api-rule/a"), "{}", own.apply);
        // Another name would orphan all fields that earlier versions of the host have applied.
        assert_eq!(own.apply, "mortise/kyma/api-rule/a665b18121139fb702101c31db55ae2b9");
        assert_eq!(own, managers("kyma", "api-rule", "rule", "v2", "a"));
        let others = [
            managers("other", "api-rule", "rule", "v1", "a"),
            managers("kyma", "other", "rule", "v1", "a"),
            managers("kyma", "api-rule", "other", "v1", "a"),
            managers("kyma", "api-rule", "rule", "v1", "b"),
        ];
        for other in others {
            assert_ne!(own.identity, other.identity);
            assert!(own.is_other(&other.patch) && !own.is_other_apply(&other.patch));
            assert!(own.is_other_apply(&other.apply) && own.is_other_apply(&other.initial));
        }
        let mine = [&own.apply, &own.initial, &own.patch, &own.status, &own.edit];
        assert_eq!(std::collections::BTreeSet::from(mine).len(), mine.len());
        assert!(mine.iter().all(|manager| !own.is_other(manager)) && !own.is_other("kubectl-edit"));
    }

    #[test]
    fn a_manager_has_at_most_128_bytes() {
        let long = managers(&"n".repeat(63), &"p".repeat(253), "rule", "v1", "a");
        assert!(long.initial.len() <= 128, "{} bytes", long.initial.len());
        assert!(long.initial.contains("nn..pp"), "the middle is cut: {}", long.initial);
        assert_ne!(
            long.apply,
            managers(&"n".repeat(63), &"p".repeat(252), "rule", "v1", "a").apply
        );
        let parts = parts(&long.initial).unwrap();
        assert_eq!((parts.letter, parts.identity().as_str()), ('a', long.identity()));
    }

    #[test]
    fn a_manager_with_the_hash_of_another_s_key_is_not_that_key_s() {
        let victim = managers("shop", "rules", "rule", "v1", "a");
        // The case of two names with the same hash.
        let hash = victim.identity.rsplit_once('/').unwrap().1;
        for owner in ["evil/rules", "shop/other", "shop/rules/x", "shop"] {
            let manager = format!("mortise/{owner}/a{hash}");
            assert!(victim.is_other(&manager) && victim.is_other_apply(&manager), "{owner}");
        }
        assert!(!victim.is_other(&format!("mortise/shop/rules/a{hash}")));
    }

    #[test]
    fn owners_that_look_alike_when_they_are_cut_are_told_apart_by_a_cryptographic_hash() {
        let one = managers(&format!("{}a", "n".repeat(40)), &"p".repeat(80), "rule", "v1", "a");
        let two = managers(&format!("{}b", "n".repeat(40)), &"p".repeat(80), "rule", "v1", "a");
        let owner = |of: &FieldManagers| of.identity.rsplit_once('/').unwrap().0.to_owned();
        assert_eq!(owner(&one), owner(&two), "the ends are the same");
        assert!(one.is_other(&two.apply) && two.is_other(&one.apply));
        // SHA-256: another hash would orphan applied fields.
        assert!(one.apply.ends_with("44628059e61b17a38536c0017a393277"), "{}", one.apply);
    }
}
