//! Restarts Istio's ingress gateway, and its control plane, after changes of settings that they
//! read at their start, as the Kyma Istio operator does; and warns of other people's
//! `EnvoyFilter`s for the ingress gateway.
//!
//! This file connects the processor's contract with the logic. In all modules, "the original" is
//! the Kyma Istio operator.
//!
//! | module | holds |
//! | --- | --- |
//! | [`config`] | the configuration |
//! | `describe` | the declared reads and writes |
//! | [`reconcile`] | the steps of a reconcile |
//! | [`record`] | the annotation with the settings that were rolled out, and the decision |
//! | `mesh` | the settings that Istio's `ConfigMap` holds |
//! | `workload` | the workloads that are restarted |
//! | [`condition`] | the conditions that the processor writes, and their texts |

pub mod condition;
pub mod config;
mod describe;
mod mesh;
pub mod reconcile;
pub mod record;
mod workload;

pub use config::Config;

use mortise_sdk::{Description, Failure, Host, Outcome, Processor, Request};

/// The processor for the restart of the ingress gateway.
pub struct IngressGatewayRestarts;

impl Processor for IngressGatewayRestarts {
    type Config = Config;

    fn describe(config: &Config) -> Result<Description, String> {
        Ok(describe::describe(config))
    }

    fn reconcile(request: &Request, config: &Config, host: &Host) -> Result<Outcome, Failure> {
        reconcile::reconcile(request, config, host)
    }
}

mortise_sdk::export!(IngressGatewayRestarts);

#[cfg(test)]
mortise_sdk::testing::cases!(IngressGatewayRestarts, "cases");
