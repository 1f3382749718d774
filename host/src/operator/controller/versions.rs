//! The versions of one Processor: the one that was read, the one that runs, and those that may be
//! restored, are refused or ran last. Pure: swaps happen elsewhere, and callers pass the time.
//!
//! *Guarantees.* The version to restore is one that is known to work, or that has replaced no
//! other. A version that was rolled back is refused until the spec or the module changes. The
//! version that ran last is waited for only while nothing runs.

use std::{collections::BTreeSet, iter, time::Duration};

use tokio::time::Instant;

use super::modules::{LastRead, Origins};
use crate::{
    host::{Loaded, Trust},
    oci::{Digest, Reference},
    operator::{
        claims::Claim,
        fault::Fault,
        recipe::{Pace, Recipe},
    },
};

/// The time in which a new process tries to run the version that ran last, before it loads that of
/// the spec without it. It counts from the first attempt.
const LAST_VERSION_PATIENCE: Duration = Duration::from_mins(2);

/// The versions of one Processor.
#[derive(Default)]
pub(super) struct Versions {
    /// The module and its libraries as they were last read; `None` if that failed.
    pub(super) read: Option<LastRead>,
    pub(super) running: Option<Running>,
    /// The version that was rolled back, if any.
    refused: Option<Refused>,
    /// The origins of the version that was replaced last.
    before: Option<Origins>,
    /// The end of the patience for the version that ran last; `None` before its first attempt.
    last_until: Option<Instant>,
}

/// A running version.
pub(super) struct Running {
    pub(super) served: Served,
    pub(super) pace: Pace,
    /// The version that this one has replaced, as long as it may be restored.
    pub(super) former: Option<Box<Served>>,
    /// True until the first runs are made.
    pub(super) is_new: bool,
    /// True if the objects that hold a finalizer have been queued because the processor ends.
    pub(super) end_queued: bool,
}

/// A loaded version that can be swapped in, and again to restore it.
#[derive(Debug, Clone)]
pub(super) struct Served {
    pub(super) recipe: Recipe,
    pub(super) loaded: Loaded,
    /// The finalizers that the version claims.
    pub(super) claim: Claim,
    pub(super) origins: Origins,
}

/// A version that was rolled back, or would have been if the former one could be restored. It is
/// refused while the same generation of the spec asks for it.
#[derive(Debug)]
struct Refused {
    recipe: Recipe,
    generation: Option<i64>,
    /// The reason of the rollback.
    fault: Fault,
}

// === impl Versions ===

impl Versions {
    /// Returns whether the running version has this recipe.
    pub(super) fn runs(&self, recipe: &Recipe) -> bool {
        self.running.as_ref().is_some_and(|running| running.served.recipe == *recipe)
    }

    /// Records that a version was swapped in. `trust` in the version that it replaces decides which
    /// one may be restored; without it, none may.
    pub(super) fn replace(&mut self, served: Served, pace: Pace, trust: Option<&Trust>) {
        let former = self.running.take();
        self.before = former.as_ref().map(|running| running.served.origins.clone());
        let former = former.zip(trust).map(|(running, trust)| running.last_good(trust));
        self.running = Some(Running::new(served, pace, former));
    }

    /// Records that the version from [`Versions::take_former`] was swapped in again.
    pub(super) fn restore(&mut self, former: Served) {
        let Some(broken) = self.running.take() else { return };
        self.before = Some(broken.served.origins);
        self.running = Some(Running::new(former, broken.pace, None));
    }

    /// Returns the version to restore, at the pace of the running one. It cannot be restored later.
    pub(super) fn take_former(&mut self) -> Option<Served> {
        let running = self.running.as_mut()?;
        running.former.take().map(|former| former.at_pace(running.pace))
    }

    /// Refuses the running version until the spec or the module changes.
    pub(super) fn refuse(&mut self, generation: Option<i64>, fault: &Fault) {
        let Some(running) = &self.running else { return };
        let recipe = running.served.recipe.clone();
        self.refused = Some(Refused { recipe, generation, fault: fault.clone() });
    }

    /// Fails if the version of this recipe is refused. Otherwise, none is refused any longer.
    pub(super) fn check(&mut self, recipe: &Recipe, generation: Option<i64>) -> Result<(), Fault> {
        self.refused.take_if(|of| of.recipe != *recipe || of.generation != generation);
        self.refused.as_ref().map_or(Ok(()), |of| Err(of.fault.clone()))
    }

    /// Fails if the running version is refused: it is broken, and the former one could not be
    /// restored.
    pub(super) fn check_running(&self, generation: Option<i64>) -> Result<(), Fault> {
        let runs = |of: &&Refused| of.generation == generation && self.runs(&of.recipe);
        self.refused.as_ref().filter(runs).map_or(Ok(()), |of| Err(of.fault.clone()))
    }

    /// Returns the artifacts of the running version, of the one that may be restored, and of the
    /// one that was replaced last; `None` if no version runs.
    pub(super) fn manifests(&self) -> Option<BTreeSet<Digest>> {
        let running = self.running.as_ref()?;
        let former = running.former.iter().map(|former| &former.origins);
        let all = iter::once(&running.served.origins).chain(former).chain(&self.before);
        Some(all.flat_map(Origins::images).flatten().filter_map(Reference::digest).collect())
    }

    /// Begins to wait for the version that ran last, unless that is done already. Returns whether
    /// it is waited for.
    pub(super) fn wait_for_last(&mut self, now: Instant) -> bool {
        self.last_until.get_or_insert(now + LAST_VERSION_PATIENCE);
        self.waits_for_last(now).is_some()
    }

    /// Returns the time until which the version that ran last is waited for; `None` if a version
    /// runs, or the time is over.
    pub(super) fn waits_for_last(&self, now: Instant) -> Option<Instant> {
        self.last_until.filter(|until| self.running.is_none() && *until > now)
    }

    /// Stops waiting for the version that ran last.
    pub(super) fn give_up_last(&mut self, now: Instant) {
        self.last_until = Some(now);
    }
}

// === impl Running ===

impl Running {
    fn new(served: Served, pace: Pace, former: Option<Served>) -> Self {
        let former = former.map(Box::new);
        Self { served, pace, former, is_new: true, end_queued: false }
    }

    /// Returns the claims of this version, and of the one that is restored if this one fails.
    pub(super) fn claim(&self) -> Claim {
        let own = self.served.claim.clone();
        self.former.iter().fold(own, |all, former| all.and(&former.claim))
    }

    /// Returns the version to restore if the next one fails: this one, unless it is not known to
    /// work yet and has itself replaced another.
    fn last_good(self, trust: &Trust) -> Served {
        let is_known = match trust {
            Trust::Proven => true,
            Trust::OnProbation { works, .. } => *works,
            Trust::Broken(_) => false,
        };
        match self.former {
            Some(former) if !is_known => *former,
            _ => self.served,
        }
    }
}

// === impl Served ===

impl Served {
    /// Returns the same version with another concurrency and rate.
    pub(super) fn at_pace(mut self, pace: Pace) -> Self {
        self.loaded.settings.concurrency = Some(pace.concurrency);
        self.loaded.settings.rate = pace.rate;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_that_ran_last_is_waited_for_two_minutes_from_the_first_attempt() {
        let (start, mut versions) = (Instant::now(), Versions::default());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(versions.waits_for_last(start), None, "it is not tried yet");
        assert!(versions.wait_for_last(start));
        assert!(versions.wait_for_last(after(119)), "a later attempt changes nothing");
        assert_eq!(versions.waits_for_last(after(119)), Some(after(120)));
        assert!(!versions.wait_for_last(after(120)));
        assert_eq!(versions.waits_for_last(after(120)), None);
    }

    #[test]
    fn the_version_that_ran_last_is_not_waited_for_again_once_it_is_given_up() {
        let (start, mut versions) = (Instant::now(), Versions::default());
        versions.wait_for_last(start);
        versions.give_up_last(start);
        assert!(!versions.wait_for_last(start));
    }
}
