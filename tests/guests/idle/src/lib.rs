//! A processor that does nothing, to measure the cost of a call itself.

use mortise_sdk::{
    Description, Failure, Host, NoConfig, Outcome, Processor, Reconciler, Request, Selection,
    kubernetes::ConfigMap,
};

/// The idle processor.
pub struct Idle;

impl Processor for Idle {
    type Config = NoConfig;

    fn describe(_config: &NoConfig) -> Result<Description, String> {
        let reconciler = Reconciler::new("idle", Selection::of::<ConfigMap>());
        Ok(Description::new("idle", "0.1.0").reconciles(reconciler))
    }

    fn reconcile(_request: &Request, _: &NoConfig, _host: &Host) -> Result<Outcome, Failure> {
        Ok(Outcome::new())
    }
}

mortise_sdk::export!(Idle);
