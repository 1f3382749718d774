//! Reconciles the APIGateway of operator.kyma-project.io, as the Kyma API Gateway operator does:
//! the default Gateway of a cluster, its network policy, its autoscaler, and Ory Oathkeeper.
//!
//! In all modules, "the original" is the Kyma API Gateway operator.
//!
//! | module | holds |
//! | --- | --- |
//! | [`config`], `describe` | the configuration; the declared reads and writes |
//! | [`reconcile`] | the order of the steps |
//! | `work` | the objects and the finalizers that a run wants so far |
//! | `status` | the conditions and texts of the status |
//! | `blocker` | objects of people that block a deletion |
//! | `kyma_gateway`, `network_policy`, `autoscaler` | the objects of these steps |
//! | `names` | the kinds and names of the default Gateway's objects |
//! | `local_certificate` | the certificate of a cluster that is not Gardener's |
//! | [`oathkeeper`] | the objects of Ory Oathkeeper |

mod autoscaler;
mod blocker;
pub mod config;
mod describe;
mod kyma_gateway;
mod local_certificate;
mod names;
mod network_policy;
pub mod oathkeeper;
pub mod reconcile;
mod status;
mod work;

pub use config::Config;

use mortise_sdk::{Description, Failure, Host, Outcome, Processor, Request};

/// The processor for APIGateways.
pub struct ApiGateways;

impl Processor for ApiGateways {
    type Config = Config;

    fn describe(config: &Config) -> Result<Description, String> {
        config.check()?;
        describe::describe(config)
    }

    fn reconcile(request: &Request, config: &Config, host: &Host) -> Result<Outcome, Failure> {
        reconcile::reconcile(request, config, host)
    }
}

mortise_sdk::export!(ApiGateways);

#[cfg(test)]
mortise_sdk::testing::cases!(ApiGateways, "cases");
