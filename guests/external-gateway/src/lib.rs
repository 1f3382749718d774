//! Reconciles the ExternalGateway of gateway.kyma-project.io, as the Kyma API Gateway operator
//! does.
//!
//! For each ExternalGateway, the processor writes an Istio `Gateway` for a foreign domain, with
//! mutual TLS and with filters that let only the clients of one region through. In all modules,
//! "the original" is the Kyma API Gateway operator.
//!
//! | module | holds |
//! | --- | --- |
//! | [`api`] | the types of the ExternalGateway, and its `CustomResourceDefinition` |
//! | [`config`], `describe` | the configuration; the declared reads and writes |
//! | [`reconcile`] | the order of the steps, and what becomes of an ExternalGateway |
//! | `step` | the steps up to the first fault, and the objects that they need |
//! | `authority`, `region` | the bundle of authorities; the certificates' subjects of a region |
//! | `gardener`, `object` | the domain's record and certificate; filters and `Gateway` |
//! | `names`, `owned` | names and labels of the objects; objects that exist |
//! | `status` | conditions and texts of the status |

pub mod api;
mod authority;
pub mod config;
mod describe;
mod gardener;
mod names;
mod object;
mod owned;
pub mod reconcile;
mod region;
mod status;
mod step;

pub use config::Config;

use mortise_sdk::{Description, Failure, Host, Outcome, Processor, Request};

/// The processor for the ExternalGateway.
pub struct ExternalGateways;

impl Processor for ExternalGateways {
    type Config = Config;

    fn describe(config: &Config) -> Result<Description, String> {
        Ok(describe::describe(config))
    }

    fn reconcile(request: &Request, config: &Config, host: &Host) -> Result<Outcome, Failure> {
        reconcile::reconcile(request, config, host)
    }
}

mortise_sdk::export!(ExternalGateways);

#[cfg(test)]
mortise_sdk::testing::cases!(ExternalGateways, "cases");
