//! Reconciles RateLimits of gateway.kyma-project.io, as the Kyma API Gateway operator does.
//!
//! For each RateLimit, the processor writes an `EnvoyFilter` that limits the requests to Pods. In
//! all modules, "the original" is the Kyma API Gateway operator.
//!
//! | module | holds |
//! | --- | --- |
//! | [`api`] | the types of the RateLimit, and its `CustomResourceDefinition` |
//! | [`config`], `describe` | the configuration; the declared reads and writes |
//! | [`reconcile`] | the steps of a reconcile, and the texts of the status |
//! | `validation`, `workload` | the checks of a RateLimit; the Pods that it selects |
//! | `envoy_filter` | the builder of the `EnvoyFilter` |

pub mod api;
pub mod config;
mod describe;
mod envoy_filter;
pub mod reconcile;
mod validation;
mod workload;

pub use config::Config;

use mortise_sdk::{Description, Failure, Host, Outcome, Processor, Request};

/// The processor for RateLimits.
pub struct RateLimits;

impl Processor for RateLimits {
    type Config = Config;

    fn describe(config: &Config) -> Result<Description, String> {
        Ok(describe::describe(config))
    }

    fn reconcile(request: &Request, _config: &Config, host: &Host) -> Result<Outcome, Failure> {
        reconcile::reconcile(request, host)
    }
}

mortise_sdk::export!(RateLimits);

#[cfg(test)]
mortise_sdk::testing::cases!(RateLimits, "cases");
