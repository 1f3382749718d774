//! Reconciles the objects that the Kyma Istio module adds to Istio's own, as the Kyma Istio
//! operator does: mTLS by default, network policies, vertical autoscalers, the PROXY protocol.
//!
//! This file connects the processor's contract with the logic. The objects themselves are in
//! [`istio::resource`]. In all modules, "the original" is the Kyma Istio operator.
//!
//! | module | holds |
//! | --- | --- |
//! | [`config`] | the configuration |
//! | `describe` | the declared reads and writes |
//! | [`reconcile`] | the steps of a reconcile |
//! | `surroundings` | reads of the cluster: provider, features, port of the API server |
//! | `object` | the objects that exist, and the changes that they need |
//! | [`condition`] | the condition that the processor writes, and its texts |

pub mod condition;
pub mod config;
mod describe;
mod object;
pub mod reconcile;
mod surroundings;

pub use config::Config;

use mortise_sdk::{Description, Failure, Host, Outcome, Processor, Request};

/// The processor for the module's own objects.
pub struct PeerAuthentications;

impl Processor for PeerAuthentications {
    type Config = Config;

    fn describe(config: &Config) -> Result<Description, String> {
        config.check()?;
        Ok(describe::describe(config))
    }

    fn reconcile(request: &Request, config: &Config, host: &Host) -> Result<Outcome, Failure> {
        reconcile::reconcile(request, config, host)
    }
}

mortise_sdk::export!(PeerAuthentications);

#[cfg(test)]
mortise_sdk::testing::cases!(PeerAuthentications, "cases");
