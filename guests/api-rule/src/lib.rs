//! Reconciles APIRules of gateway.kyma-project.io, versions v2 and v2alpha1, as the Kyma API
//! Gateway operator does.
//!
//! For each APIRule, the processor writes a `VirtualService`, `AuthorizationPolicies` and
//! `RequestAuthentications`. This file connects the processor's contract with the logic, which is
//! pure over what it reads. In all modules, "the original" is the Kyma API Gateway operator.
//!
//! | module | holds |
//! | --- | --- |
//! | [`api`] | the types of the APIRule, and its `CustomResourceDefinition` |
//! | `describe`, [`config`] | the declared reads and writes; the configuration |
//! | [`reconcile`] | the steps of a reconcile: read, validate, build, compare |
//! | `gateway`, `workload` | reads of gateways; reads of services and the Pods behind them |
//! | [`validation`] | all errors that an APIRule can have |
//! | `virtual_service`, `authorization_policy` | builders of these two kinds |
//! | `request_authentication`, `istio` | the builder of this kind; the types of Istio's kinds |
//! | `existing`, `hash` | the objects that exist; the label that identifies a policy |
//! | [`change`] | the changes from existing to desired objects |
//! | `status` | the texts of the status |
//! | `hostname`, `path`, `uri`, `yaml` | parsers of small languages |

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

/// The processor for APIRules.
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
