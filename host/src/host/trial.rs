//! The checks before a version replaces a running one: it declares no more than its account may do,
//! the kinds that it reconciles are served, it declares the finalizers that objects hold, it does
//! not break on most of the objects that it is tried with, and its conversions to other versions
//! and back preserve objects.
//!
//! *Guarantee.* A refused version has written nothing, and has no effect but requests to the API
//! server.

mod conversions;

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, LazyLock},
};

use mortise_core::{
    contract::{GrantedRule, Kind, display_kind, display_ref},
    grant::{
        granted,
        rights::{Account, Question, Rights as _},
        role::Roles,
    },
    queue::Key,
    reconcile::Tried,
    store::Entry,
};

use super::{
    Host,
    probation::{Probation, Trust},
    registry::Active,
    swap::Prepared,
};

/// The number of objects that a version is tried with.
const TRIED_OBJECTS: usize = 3;
/// The number of candidates for the trial: some of them may be paused, or not listed yet.
const CANDIDATE_OBJECTS: usize = 9;

/// The reason why a version was not swapped in. The former version, if any, runs on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotSwapped {
    /// The description is not valid.
    #[error(transparent)]
    Invalid(#[from] anyhow::Error),

    /// The version reconciles a kind that the cluster does not serve and that the former version
    /// does not reconcile.
    #[error("version {version} waits for the CustomResourceDefinition of {}", kinds(missing))]
    KindNotServed { version: String, missing: Vec<Kind> },

    /// The account lacks rights that the version declares; rights that the former version lacks too
    /// do not count.
    #[error(
        "the ServiceAccount `{}` lacks what version {version} declares; the rules for it:\n{}",
        account.name,
        missing.iter().cloned().collect::<Roles>().lines()
    )]
    RightsMissing { version: String, account: Account, missing: Vec<Question> },

    /// The account does not hold rules that the version grants; rules that the former version
    /// grants and that are not held either do not count.
    #[error(
        "the ServiceAccount `{}` does not hold in all namespaces the rules that version {version} grants; the rules of a ClusterRole for it:\n{}",
        account.name,
        granted::lines(rules)
    )]
    GrantsMissing { version: String, account: Account, rules: Vec<GrantedRule> },

    /// The version does not declare a finalizer that objects hold because of the former version:
    /// that finalizer would never be removed.
    #[error(
        "version {version} does not declare the finalizer `{finalizer}`, which {objects} objects hold, the first {first}: it has to be declared until the processor has given it up"
    )]
    FinalizersHeld { version: String, finalizer: String, objects: usize, first: String },

    /// The version broke on more than half of the objects that it was tried with.
    #[error(
        "version {version} broke on {broke} of the {tried} objects that it was tried with, without writing; the first, {key}: {message}"
    )]
    TrialFailed { version: String, broke: usize, tried: usize, key: Key, message: String },

    /// The version breaks an object in a conversion to another version and back, and the former
    /// version does not, or not in this way.
    #[error("version {version} breaks {object} on the way to {to} and back: {problem}")]
    ConversionFailed { version: String, object: String, to: String, problem: String },
}

// === impl Host ===

impl Host {
    /// Swaps in a version as [`Host::swap`] does, if it passes the checks: it is compared with the
    /// former version, and tried with dry runs of a few objects on the current stores. Once swapped
    /// in, it is on probation; see [`Host::trust`]. The first version of a processor is not tried.
    ///
    /// The trial ends after three calls that count for or against the version, and makes at most
    /// nine calls, each bounded by its deadline. Conversions are tried for at most 30 s.
    ///
    /// # Errors
    ///
    /// Fails with the reason why the version is refused. The former version runs on.
    pub async fn swap_tried(&self, loaded: super::Loaded) -> Result<(), NotSwapped> {
        let _turn = self.turn(&loaded.name()).await;
        let prepared = self.prepare(loaded)?;
        let claim = self.claim(&prepared).await;
        let former = self.active(&prepared.active.version.processor);
        let probation = match &former {
            None => None,
            Some(former) => {
                self.compare(former, &prepared).await?;
                let probation = self.try_out(former, &prepared).await?;
                self.try_conversions(&prepared).await?;
                Some(probation)
            }
        };
        if let Some(probation) = probation {
            prepared.active.put_on_probation(probation);
        }
        claim.keep();
        self.put(prepared);
        Ok(())
    }

    /// Returns how far the current version of a processor can be trusted. A processor that does not
    /// run is trusted.
    pub fn trust(&self, processor: &str) -> Trust {
        let now = tokio::time::Instant::now();
        self.active(processor).map_or(Trust::Proven, |active| active.trust(now))
    }

    fn active(&self, processor: &str) -> Option<Arc<Active>> {
        self.shared.registry.lock().get(processor).cloned()
    }

    /// Compares a version with the former one. Kinds and rights that the former version lacks too
    /// are no reason to refuse the new one.
    async fn compare(&self, former: &Active, new: &Prepared) -> Result<(), NotSwapped> {
        let version = || new.active.version.version.clone();
        let known = former.reconciler.reconciled_kinds();
        let mut missing = Vec::new();
        for kind in new.active.reconciler.reconciled_kinds() {
            // A cluster that does not answer is no reason to refuse: the watch waits for the kind.
            let is_missing = matches!(self.shared.cluster.resolve(&kind).await, Ok(None));
            if is_missing && !known.contains(&kind) {
                missing.push(kind);
            }
        }
        if !missing.is_empty() {
            return Err(NotSwapped::KindNotServed { version: version(), missing });
        }
        let abandoned = new.active.reconciler.abandoned(&former.reconciler);
        if let Some((finalizer, first)) = abandoned.first() {
            return Err(NotSwapped::FinalizersHeld {
                version: version(),
                finalizer: finalizer.clone(),
                objects: abandoned.len(),
                first: display_ref(first),
            });
        }
        let Some(rights) = &new.active.rights else { return Ok(()) };
        let lacked = former.rights.as_ref().map_or_else(Vec::new, |rights| rights.denied());
        let mut missing = rights.denied();
        missing.retain(|right| !lacked.contains(right));
        let account = rights.account().clone();
        if !missing.is_empty() {
            return Err(NotSwapped::RightsMissing { version: version(), account, missing });
        }
        let lacked = former.rights.as_ref().map_or_else(Vec::new, |rights| rights.not_held());
        let mut rules = rights.not_held();
        rules.retain(|rule| !lacked.contains(rule));
        if rules.is_empty() {
            return Ok(());
        }
        Err(NotSwapped::GrantsMissing { version: version(), account, rules })
    }

    /// Tries a version with a few objects, one after the other. Objects that broke the former
    /// version are not tried: they prove nothing about the new one.
    async fn try_out(&self, former: &Active, new: &Prepared) -> Result<Probation, NotSwapped> {
        let broken = former.broken();
        let stores = self.shared.parts.dispatch.stores();
        let registrations = new.active.reconciler.registrations();
        let of_reconcilers: Vec<Vec<Key>> =
            registrations.iter().map(|of| of.ranked_keys(stores, rank)).collect();
        let (mut tried, mut broke) = (0, Vec::new());
        for key in drawn(&of_reconcilers, |key| !broken.contains(key)) {
            match new.active.reconciler.try_out(key).await {
                Tried::Not => continue,
                Tried::Well => {}
                Tried::Broke(message) => broke.push((key.clone(), message)),
            }
            tried += 1;
            if tried == TRIED_OBJECTS {
                break;
            }
        }
        let is_refused = is_majority(broke.len(), tried);
        let count = broke.len();
        if is_refused && let Some((key, message)) = broke.into_iter().next() {
            let version = new.active.version.version.clone();
            return Err(NotSwapped::TrialFailed { version, broke: count, tried, key, message });
        }
        Ok(Probation::new(of_reconcilers.iter().flatten(), broken))
    }
}

/// Returns the rank of an object among the others. The hash key is random and secret, so that users
/// who create and name objects cannot choose those that a version is tried with.
fn rank(object: &Entry) -> u64 {
    static HASH: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    HASH.hash_one((object.uid(), object.namespace(), object.name()))
}

/// Draws up to [`CANDIDATE_OBJECTS`] keys, round-robin over the reconcilers, since each has its own
/// code. Keys of a reconciler are sorted by how often their namespace was drawn, so that a
/// namespace with many objects has no more weight than others, and then by rank.
fn drawn(of_reconcilers: &[Vec<Key>], counts: impl Fn(&Key) -> bool) -> Vec<&Key> {
    let mut rows: Vec<Vec<&Key>> = Vec::new();
    rows.extend(of_reconcilers.iter().map(|keys| keys.iter().filter(|key| counts(key)).collect()));
    let mut drawn: Vec<&Key> = Vec::new();
    while drawn.len() < CANDIDATE_OBJECTS {
        let before = drawn.len();
        for keys in &mut rows {
            let times = |key: &Key| {
                drawn.iter().filter(|drawn| drawn.namespace() == key.namespace()).count()
            };
            // `min_by_key` returns the first of several minima: the key of the lowest rank.
            let next = (0..keys.len()).min_by_key(|index| keys.get(*index).map(|key| times(key)));
            drawn.extend(next.map(|index| keys.remove(index)));
        }
        if drawn.len() == before {
            break;
        }
    }
    drawn.truncate(CANDIDATE_OBJECTS);
    drawn
}

/// Returns whether `broke` is more than half of `tried`: two of three, two of two, or the only one.
fn is_majority(broke: usize, tried: usize) -> bool {
    broke * 2 > tried
}

fn kinds(kinds: &[Kind]) -> String {
    kinds.iter().map(display_kind).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns keys for names like `namespace/name`.
    fn keys(reconciler: &str, names: &[&str]) -> Vec<Key> {
        let key = |name: &&str| {
            let (namespace, name) = name.split_once('/').unwrap();
            Key::new(&"a/p".into(), &reconciler.into(), Some(namespace), name)
        };
        names.iter().map(key).collect()
    }

    #[test]
    fn each_reconciler_and_each_namespace_has_its_turn() {
        let cases: [(_, _, &[&str]); 7] = [
            ("no key", vec![keys("a", &[])], &[]),
            ("fewer", vec![keys("a", &["n/1", "n/2"])], &["1", "2"]),
            (
                "two",
                vec![keys("a", &["n/1", "n/2", "n/3"]), keys("b", &["n/7", "n/8"])],
                &["1", "7", "2", "8", "3"],
            ),
            (
                "one has few",
                vec![keys("a", &[]), keys("b", &["n/7"]), keys("c", &["n/8", "n/9"])],
                &["7", "8", "9"],
            ),
            (
                "one that does not count",
                vec![keys("a", &["n/bad", "n/1"]), keys("b", &["n/bad", "n/7"])],
                &["1", "7"],
            ),
            (
                "many of one namespace",
                vec![keys("a", &["x/1", "x/2", "x/3", "n/4", "m/5"])],
                &["1", "4", "5", "2", "3"],
            ),
            (
                "of another reconciler, too",
                vec![keys("a", &["x/1", "x/2", "n/3"]), keys("b", &["x/7", "n/8", "m/9"])],
                &["1", "8", "2", "9", "3", "7"],
            ),
        ];
        for (case, of_reconcilers, expected) in cases {
            let found = drawn(&of_reconcilers, |key| key.name() != "bad");
            let found: Vec<&str> = found.into_iter().map(Key::name).collect();
            assert_eq!(found, expected, "{case}");
        }
        let many: Vec<String> = (0..100).map(|number| format!("n/{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(drawn(&[keys("a", &many)], |_| true).len(), CANDIDATE_OBJECTS);
    }

    #[test]
    fn the_majority_decides() {
        let cases =
            [(0, 0, false), (1, 1, true), (1, 2, false), (2, 2, true), (1, 3, false), (2, 3, true)];
        for (broke, tried, expected) in cases {
            assert_eq!(is_majority(broke, tried), expected, "{broke} of {tried}");
        }
    }
}
