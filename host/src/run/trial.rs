//! Whether a version may take the place of one that works: it declares no more than its account may, what it reconciles is served, and
//! it does not break on the first objects.
//!
//! *Guarantee.* Of a version that is refused nothing was written, and nothing is left but what the API server was asked.

use std::sync::Arc;

use super::{
    Host,
    exchange::Prepared,
    probation::{Probation, Trust},
    registry::Active,
};
use crate::{
    cluster::Account,
    contract::Kind,
    grant::{display_kind, display_ref},
    queue::Key,
};

/// How many keys a version is tried with.
const KEYS: usize = 3;

/// Why a version was not put to work. The former one, if there is one, goes on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotExchanged {
    /// Its description makes no processor.
    #[error(transparent)]
    Invalid(#[from] anyhow::Error),

    /// It reconciles what the cluster does not serve, and the former version something else.
    #[error("version {version} waits for the CustomResourceDefinition of {}", kinds(missing))]
    #[expect(missing_docs, reason = "the message says what the fields are")]
    KindNotServed { version: String, missing: Vec<Kind> },

    /// It declares what its account may not do, and the former version does not.
    #[error(
        "the ServiceAccount `{}` lacks what version {version} declares: {}",
        account.name,
        missing.join("; ")
    )]
    #[expect(missing_docs, reason = "the message says what the fields are")]
    RightsMissing { version: String, account: Account, missing: Vec<String> },

    /// It does not declare a finalizer that objects hold because of the former version: nobody would ever take it away.
    #[error(
        "version {version} does not declare the finalizer `{finalizer}`, which {objects} objects hold, the first {first}: it has to be declared until the processor has given it up"
    )]
    #[expect(missing_docs, reason = "the message says what the fields are")]
    FinalizersHeld { version: String, finalizer: String, objects: usize, first: String },

    /// It broke where it was tried.
    #[error("version {version} broke on {key} when it was tried, without writing: {message}")]
    #[expect(missing_docs, reason = "the message says what the fields are")]
    TrialFailed { version: String, key: Key, message: String },
}

// === impl Host ===

impl Host {
    /// Puts a version in the place of the one of its name, as [`Host::exchange`] does, if it is fit for that: it is compared with the
    /// former one, and tried with the first keys, on what is known now and without writing. From then on it is on probation; see
    /// [`Host::trust`]. Where there is no former version there is nothing to protect, and nothing is tried.
    ///
    /// The trial calls the processor as often as there are keys to try it with; each call lasts as long as its deadline at most.
    ///
    /// # Errors
    ///
    /// Why it is not fit. The former version goes on.
    pub async fn exchange_tried(&self, loaded: super::Loaded) -> Result<(), NotExchanged> {
        let _turn = self.turn(&loaded.name()).await;
        let prepared = self.prepare(loaded)?;
        let claim = self.claim(&prepared).await;
        let former = self.active(&prepared.active.version.processor);
        let probation = match &former {
            None => None,
            Some(former) => {
                self.compare(former, &prepared).await?;
                Some(self.try_out(former, &prepared).await?)
            }
        };
        if let Some(probation) = probation {
            prepared.active.put_on_probation(probation);
        }
        claim.keep();
        self.put(prepared);
        Ok(())
    }

    /// How far a processor's version that works can be trusted. One that nobody runs is trusted.
    pub fn trust(&self, processor: &str) -> Trust {
        let now = tokio::time::Instant::now();
        self.active(processor).map_or(Trust::Proven, |active| active.trust(now))
    }

    fn active(&self, processor: &str) -> Option<Arc<Active>> {
        self.shared.registry.lock().get(processor).cloned()
    }

    /// What the former version lacks too is no reason against a new one.
    async fn compare(&self, former: &Active, new: &Prepared) -> Result<(), NotExchanged> {
        let version = || new.active.version.version.clone();
        let known = former.reconciler.reconciled_kinds();
        let mut missing = Vec::new();
        for kind in new.active.reconciler.reconciled_kinds() {
            // Where the cluster does not answer, the watch waits for it as ever.
            let is_missing = matches!(self.shared.parts.cluster.resolve(&kind).await, Ok(None));
            if is_missing && !known.contains(&kind) {
                missing.push(kind);
            }
        }
        if !missing.is_empty() {
            return Err(NotExchanged::KindNotServed { version: version(), missing });
        }
        let abandoned = new.active.reconciler.abandoned(&former.reconciler);
        if let Some((finalizer, first)) = abandoned.first() {
            return Err(NotExchanged::FinalizersHeld {
                version: version(),
                finalizer: finalizer.clone(),
                objects: abandoned.len(),
                first: display_ref(first),
            });
        }
        let Some(rights) = new.active.reconciler.rights() else { return Ok(()) };
        let lacked = former.reconciler.rights().map_or_else(Vec::new, |rights| rights.missing());
        let mut missing = rights.missing();
        missing.retain(|right| !lacked.contains(right));
        if missing.is_empty() {
            return Ok(());
        }
        let account = rights.account().clone();
        Err(NotExchanged::RightsMissing { version: version(), account, missing })
    }

    /// Tries a version, one key after the other. A key that breaks the former version as well says nothing.
    async fn try_out(&self, former: &Active, new: &Prepared) -> Result<Probation, NotExchanged> {
        let broken = former.broken();
        let stores = &self.shared.parts.stores;
        let of_reconcilers = new.standing.iter().map(|standing| standing.keys(stores));
        let of_reconcilers: Vec<Vec<Key>> = of_reconcilers.collect();
        let new = &new.active;
        for key in first(&of_reconcilers, |key| !broken.contains(key)) {
            new.reconciler.try_out(key).await.map_err(|message| NotExchanged::TrialFailed {
                version: new.version.version.clone(),
                key: key.clone(),
                message,
            })?;
        }
        Ok(Probation::new(of_reconcilers.iter().flatten(), broken))
    }
}

/// The first few, one of each reconciler in turn: each has code of its own.
fn first(of_reconcilers: &[Vec<Key>], counts: impl Fn(&Key) -> bool) -> Vec<&Key> {
    let counting = |keys| Iterator::filter(<[Key]>::iter(keys), |key| counts(key));
    let mut rows: Vec<_> = of_reconcilers.iter().map(|keys| counting(keys)).collect();
    let mut first = Vec::new();
    while first.len() < KEYS {
        let before = first.len();
        first.extend(rows.iter_mut().filter_map(Iterator::next).take(KEYS - before));
        if first.len() == before {
            break;
        }
    }
    first
}

fn kinds(kinds: &[Kind]) -> String {
    kinds.iter().map(display_kind).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(reconciler: &str, names: &[&str]) -> Vec<Key> {
        let key = |name: &&str| Key::new(&"a/p".into(), &reconciler.into(), None, name);
        names.iter().map(key).collect()
    }

    #[test]
    fn each_reconciler_has_its_turn() {
        let cases: [(_, _, &[&str]); 6] = [
            ("no key", vec![keys("a", &[])], &[]),
            ("fewer", vec![keys("a", &["1", "2"])], &["1", "2"]),
            ("more", vec![keys("a", &["1", "2", "3", "4"])], &["1", "2", "3"]),
            ("two", vec![keys("a", &["1", "2", "3"]), keys("b", &["7", "8"])], &["1", "7", "2"]),
            (
                "one has few",
                vec![keys("a", &[]), keys("b", &["7"]), keys("c", &["8", "9"])],
                &["7", "8", "9"],
            ),
            (
                "one that does not count",
                vec![keys("a", &["bad", "1"]), keys("b", &["bad", "7"])],
                &["1", "7"],
            ),
        ];
        for (case, of_reconcilers, expected) in cases {
            let found = first(&of_reconcilers, |key| key.name() != "bad");
            let found: Vec<&str> = found.into_iter().map(Key::name).collect();
            assert_eq!(found, expected, "{case}");
        }
    }
}
