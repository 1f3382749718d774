//! Reconciles APIRules of gateway.kyma-project.io, in versions v2 and v2alpha1, as the Kyma API Gateway operator does.
//!
//! An APIRule becomes a `VirtualService`, `AuthorizationPolicies` and `RequestAuthentications`. This file is the glue between
//! the processor's contract and the logic, which is pure over what it reads.
//!
//! | module | holds |
//! | --- | --- |
//! | [`api`] | the APIRule, and its `CustomResourceDefinition` |
//! | `describe`, [`config`] | what is reconciled, read and written; the configuration |
//! | [`reconcile`] | the story: find, check, build, compare |
//! | `gateway`, `workload` | reads of gateways; of services and the Pods behind them |
//! | [`validation`] | all that can be wrong |
//! | `virtual_service`, `authorization_policy`, `request_authentication` | what is built, of the types in `istio` |
//! | `existing`, [`change`], `hash` | what is there, and what has to happen; by which labels policies are found again |
//! | `status` | what the status says |
//! | `hostname`, `path`, `uri`, `yaml` | small languages |

pub mod api;
mod authorization_policy;
pub mod change;
pub mod config;
mod describe;
mod existing;
mod gateway;
mod hash;
mod hostname;
mod istio;
mod path;
pub mod reconcile;
mod request_authentication;
mod status;
mod uri;
pub mod validation;
mod virtual_service;
mod workload;
mod yaml;

use mortise_sdk::{Description, Failure, Host, Outcome, Processor, Request};

pub use config::Config;

/// The processor.
pub struct ApiRules;

impl Processor for ApiRules {
    type Config = Config;

    fn describe(config: &Config) -> Result<Description, String> {
        Ok(describe::describe(config))
    }

    fn reconcile(request: &Request, _config: &Config, host: &Host) -> Result<Outcome, Failure> {
        reconcile::reconcile(request, host)
    }
}

mortise_sdk::export!(ApiRules);

#[cfg(test)]
mortise_sdk::testing::cases!(ApiRules, "cases");
