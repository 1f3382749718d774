//! The claims of on-demand reconcilers: kind by kind, before one with finalizers runs.

use mortise_core::{
    contract::{Description, display_kind},
    grant::rights::Account,
    queue::ReconcilerId,
    reconcile::Finalizing,
};

use super::{Controller, versions::Running};
use crate::operator::{
    api::{HeldFinalizer, Processor},
    claims::Claim,
};

/// The maximum number of finalizers that a Processor holds for on-demand reconcilers: its status
/// holds each of them.
const MAX_CLAIMED: usize = 512;

/// The claims of the on-demand reconcilers of a Processor.
#[derive(Debug, Default)]
pub(super) struct Starts {
    /// The finalizers of the reconcilers that may run.
    pub(super) claim: Claim,
    /// The finalizers that were held before this host started, until it is known what runs.
    restored: Claim,
    /// The reasons why others do not run.
    pub(super) refused: Vec<String>,
    /// The state for which the claims were made.
    seen: Seen,
}

/// The reconcilers; true if these are known to be all, or are permitted to run; the releases of
/// finalizers by Processors, and the changes of rights.
type Seen = ((Vec<(ReconcilerId, bool)>, bool), u64, u64);

// === impl Starts ===

impl Starts {
    /// Creates the claims of a Processor whose last status holds these finalizers.
    pub(super) fn new(held: &[HeldFinalizer]) -> Self {
        Self { restored: held.to_vec().into(), ..Self::default() }
    }
}

// === impl Controller ===

impl Controller {
    /// Claims the finalizers of the on-demand reconcilers that outcomes ask for, and lets those run
    /// whose finalizers are held. Gives up the claims of those that have ended.
    pub(super) async fn claim_started(&mut self, newest: &Processor) {
        let Some(running) = &self.versions.running else { return };
        let account = running.served.recipe.account.clone();
        let (all, are_all) = self.shared.host.finalizing(&self.name);
        let ids = all.iter().map(|of| (of.id.clone(), of.is_permitted)).collect();
        let changes = (self.shared.claims.changes(), self.shared.host.circumstances());
        let seen = ((ids, are_all), *changes.0.borrow(), *changes.1.borrow());
        if self.starts.seen == seen || !self.shared.lease.is_held() {
            return;
        }
        self.starts.seen = seen;
        self.starts.refused.clear();
        if are_all {
            self.starts.restored = Claim::default();
        }
        let (permitted, waiting): (Vec<_>, Vec<_>) = all.iter().partition(|of| of.is_permitted);
        self.starts.claim =
            permitted.into_iter().fold(Claim::default(), |all, of| all.and(&on(of)));
        let mut started = Vec::new();
        // Mostly all of them are granted at once, with one write of the status.
        let together = waiting.iter().fold(Claim::default(), |all, of| all.and(&on(of)));
        if !waiting.is_empty() && self.claim_more(newest, &account, &together).await.is_ok() {
            started.extend(waiting.iter().map(|of| of.id.clone()));
        } else {
            for of in waiting {
                match self.claim_more(newest, &account, &on(of)).await {
                    Ok(()) => started.push(of.id.clone()),
                    Err(why) => {
                        let kind = display_kind(&of.of.kind);
                        let name = of.id.name();
                        self.starts
                            .refused
                            .push(format!("`{name}` does not run for {kind}: {why}"));
                    }
                }
            }
        }
        // What is refused leaves no claim, and what has ended gives its own up.
        let claim = self.claimed(None);
        self.shared.claims.keep_only(&self.name, claim.held());
        if !self.starts.refused.is_empty()
            && let Err(fault) = self.claim(newest, &account, claim).await
        {
            self.starts.refused.push(fault.message);
        }
        self.shared.host.permit(&self.name, &started);
    }

    /// Adds finalizers to the claims of the Processor. Fails with the reason, and adds none, if not
    /// all of them are granted.
    async fn claim_more(
        &mut self,
        newest: &Processor,
        account: &Account,
        more: &Claim,
    ) -> Result<(), String> {
        let started = self.starts.claim.clone().and(more);
        if started.held().len() > MAX_CLAIMED {
            return Err(format!("at most {MAX_CLAIMED} finalizers are held on demand"));
        }
        let claimed = self.claim(newest, account, self.claimed(None).and(more)).await;
        claimed.map_err(|fault| fault.message)?;
        let held = self.shared.claims.of(&self.name);
        if !more.held().iter().all(|more| held.contains(more)) {
            return Err(format!(
                "the ServiceAccount `{}` may not patch these objects",
                account.name
            ));
        }
        self.starts.claim = started;
        Ok(())
    }

    /// Returns the claims of the version that runs, of the one that may be restored, and of the
    /// on-demand reconcilers. Those from before the start of the host are limited to what the
    /// running version, or a `new` one, declares on demand.
    pub(super) fn claimed(&self, new: Option<&Description>) -> Claim {
        let running = self.versions.running.as_ref();
        let description = new.or_else(|| running.map(|of| &*of.served.loaded.description));
        let on_demand = description.map_or(&[][..], |of| &of.reconcilers).iter();
        let finalizers: Vec<&String> =
            on_demand.filter(|of| of.on_demand).flat_map(|of| &of.finalizers).collect();
        let mut restored = self.starts.restored.held().to_vec();
        restored.retain(|held| finalizers.contains(&&held.finalizer));
        let of_versions = running.map(Running::claim).unwrap_or_default();
        of_versions.and(&self.starts.claim).and(&restored.into())
    }
}

fn on(of: &Finalizing) -> Claim {
    Claim::on(&of.finalizers, &of.of)
}
