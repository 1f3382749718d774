//! The claim of one Processor: finalizers, as far as its account may patch the objects.

use std::sync::Arc;

use mortise_core::grant::rights::Account;

use super::Controller;
use crate::{
    cluster::access::Rights,
    operator::{
        api::{HeldFinalizer, Processor},
        claims::Claim,
        fault::Fault,
    },
    reason::Reason,
};

/// The finalizers that a Processor wants to claim, and the rights of its account to patch the
/// objects.
pub(super) struct Stake {
    account: Account,
    wanted: Claim,
    rights: Arc<Rights>,
}

// === impl Stake ===

impl Stake {
    /// Returns the finalizers that may be claimed: the account may patch their objects.
    fn backed(&self) -> Vec<HeldFinalizer> {
        let may = |held: &&HeldFinalizer| self.may_patch(held) == Some(true);
        self.wanted.held().iter().filter(may).cloned().collect()
    }

    fn may_patch(&self, held: &HeldFinalizer) -> Option<bool> {
        let (namespace, name) = (held.namespace.as_deref(), held.object_name.as_deref());
        self.rights.may_patch(&held.of_kind(), namespace, name)
    }
}

// === impl Controller ===

impl Controller {
    /// Claims finalizers, as far as the account may patch the objects: an account without that
    /// right cannot put a finalizer on them, and takes nothing from other Processors. The claim is
    /// written into the status before the version runs, so that it holds over a restart.
    pub(super) async fn claim(
        &mut self,
        newest: &Processor,
        account: &Account,
        wanted: Claim,
    ) -> Result<(), Fault> {
        self.shared.claims.listed().await;
        self.stake = None;
        if wanted.held().is_empty() {
            self.shared.claims.keep_only(&self.name, &[]);
            return Ok(());
        }
        let (stake, is_answered) = self.stake_in(account, wanted).await;
        if !is_answered {
            let message = "the API server does not say whether the ServiceAccount may patch the objects that finalizers are put on; it is asked again";
            return Err(Fault::passing(Reason::RightsUnknown, message));
        }
        self.shared.claims.claim(&self.name, &stake.backed())?;
        self.stake = Some(stake);
        if self.shared.claims.of(&self.name) != self.last_status.finalizers {
            self.write_status_at_once(newest).await;
        }
        if self.pacing.is_status_due()
            && self.shared.claims.of(&self.name) != self.last_status.finalizers
        {
            let message = "the finalizers that it holds cannot be written into its status, and would not be known to be its own after a restart; it is tried again";
            return Err(Fault::passing(Reason::ClaimNotWritten, message));
        }
        Ok(())
    }

    /// Asks for the rights that a claim needs. Returns whether every question was answered.
    async fn stake_in(&self, account: &Account, wanted: Claim) -> (Stake, bool) {
        let rights = self.shared.host.rights_of(account);
        let places: Vec<_> = wanted
            .held()
            .iter()
            .map(|held| (held.of_kind(), held.namespace.clone(), held.object_name.clone()))
            .collect();
        let is_answered = rights.ask_patches(&places).await;
        (Stake { account: account.clone(), wanted, rights }, is_answered)
    }

    /// Gives up the claims that the account has no right to any longer. A Processor that cannot be
    /// loaded after a restart gives them up too.
    pub(super) async fn give_up_claims(&mut self, newest: &Processor) {
        let held = self.shared.claims.of(&self.name);
        if held.is_empty() {
            return;
        }
        let account = match &self.versions.running {
            Some(running) => running.served.recipe.account.clone(),
            None => self.account(newest),
        };
        let is_known = |stake: &Stake| {
            let wanted = stake.wanted.held();
            stake.account == account && held.iter().all(|held| wanted.contains(held))
        };
        let stake = match self.stake.take().filter(is_known) {
            Some(stake) => stake,
            None => self.stake_in(&account, Claim::from(held.clone())).await.0,
        };
        let is_left = |held: &&HeldFinalizer| stake.may_patch(held) != Some(false);
        let left: Vec<HeldFinalizer> = held.iter().filter(is_left).cloned().collect();
        if left.len() < held.len() {
            tracing::warn!(processor = %self.name, %account, "a finalizer is not held any more: the account may not patch the objects");
            self.shared.claims.keep_only(&self.name, &left);
        }
        self.stake = Some(stake);
    }

    /// Returns whether the claim holds all finalizers that the rights allow. False if a right is
    /// unknown: it is asked for again, since its kind may be served by now.
    pub(super) fn is_claim_settled(&self) -> bool {
        let Some(stake) = &self.stake else { return true };
        let is_known = |held: &HeldFinalizer| stake.may_patch(held).is_some();
        stake.wanted.held().iter().all(is_known)
            && stake.backed() == self.shared.claims.of(&self.name)
    }

    /// Returns whether the claims of other Processors decide what this Processor runs.
    pub(super) fn waits_for_claim(&self) -> bool {
        let is_shared = |fault: &Fault| fault.reason == Reason::FinalizerShared;
        let is_refused = self.fault.as_ref().is_some_and(is_shared);
        // The leader decides; a standby follows.
        is_refused
            || !self.starts.refused.is_empty()
            || (self.stake.is_some() && !self.shared.lease.is_held())
    }
}
