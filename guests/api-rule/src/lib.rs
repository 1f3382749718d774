//! Reconciles APIRules of gateway.kyma-project.io, as the Kyma API Gateway operator does.
//!
//! For each APIRule, the processor writes a `VirtualService`, `AuthorizationPolicies` and
//! `RequestAuthentications`, and for those of version v1beta1 `Rule`s of Ory Oathkeeper. This file
//! connects the processor's contract with the logic, which is pure over what it reads. In all
//! modules, "the original" is the Kyma API Gateway operator.
//!
//! | module | holds |
//! | --- | --- |
//! | [`api`], `annotation` | the APIRule, its `CustomResourceDefinition` and annotations |
//! | [`conversion`], [`admission`] | objects in other versions; decisions before they are stored |
//! | `hooks` | both of them as exports |
//! | `describe`, [`config`] | the declared reads and writes; the configuration |
//! | [`reconcile`] | the steps of a reconcile: read, validate, build, compare |
//! | [`v1beta1`] | the same for what was written in v1beta1, with the builders for it |
//! | `migration` | the steps from v1beta1 to v2 |
//! | `gateway`, `workload` | reads of gateways; reads of services and the Pods behind them |
//! | [`validation`] | all errors that an APIRule can have |
//! | `virtual_service`, `authorization_policy` | builders of these two kinds |
//! | `request_authentication`, `istio`, `ory` | the builder of this kind; types of their kinds |
//! | `existing`, `hash` | the objects that exist; the label that identifies a policy |
//! | `produced`, [`change`] | the changes from existing to desired objects, by kind and by object |
//! | `status`, `stop` | the texts of the status; the reasons why a reconcile fails |
//! | `hostname`, `path`, `uri`, `yaml`, `json` | parsers of small languages |

pub mod admission;
mod annotation;
pub mod api;
mod authorization_policy;
pub mod change;
pub mod config;
pub mod conversion;
mod describe;
mod existing;
mod gateway;
mod hash;
mod hooks;
mod hostname;
mod istio;
mod json;
mod migration;
mod ory;
mod path;
mod produced;
pub mod reconcile;
mod request_authentication;
mod status;
mod stop;
mod uri;
pub mod v1beta1;
pub mod validation;
mod virtual_service;
mod workload;
mod yaml;

pub use config::Config;

use mortise_sdk::{Description, Failure, Host, Outcome, Processor, Request};

/// The processor for APIRules.
pub struct ApiRules;

impl Processor for ApiRules {
    type Config = Config;

    fn describe(config: &Config) -> Result<Description, String> {
        describe::describe(config)
    }

    fn reconcile(request: &Request, config: &Config, host: &Host) -> Result<Outcome, Failure> {
        reconcile::reconcile(request, config, host)
    }
}

mortise_sdk::export!(ApiRules, conversion, admission);

#[cfg(test)]
mortise_sdk::testing::cases!(ApiRules, "cases", conversion, admission);
