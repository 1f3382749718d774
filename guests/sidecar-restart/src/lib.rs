//! Restarts workloads whose Istio sidecars are out of date, as the Kyma Istio operator does.
//!
//! The processor reads all Pods, and rolls out the workloads of those whose sidecar is not as the
//! Istio resource asks for. In all modules, "the original" is the Kyma Istio operator. Rules that
//! other processors need too are in the crate `istio`.
//!
//! | module | holds |
//! | --- | --- |
//! | `describe`, [`config`] | the declared reads and writes; the configuration |
//! | [`reconcile`], `uninstall` | the steps of a run, of an Istio resource that stays or goes |
//! | [`mesh`] | the sidecar as it should be, and what the injector makes |
//! | [`record`] | the annotation that says since when each setting is as it is |
//! | [`survey`], `injection` | the Pods to be restarted, by their owners; Pods without a sidecar |
//! | `workload` | the workloads behind these owners |
//! | [`plan`] | the restarts of one run |
//! | [`status`], [`window`] | the condition and its texts; daily windows |

pub mod config;
mod describe;
mod injection;
pub mod mesh;
pub mod plan;
pub mod reconcile;
pub mod record;
pub mod status;
pub mod survey;
mod uninstall;
pub mod window;
mod workload;

pub use config::Config;

use mortise_sdk::{Description, Failure, Host, Outcome, Processor, Request};

/// The processor that restarts sidecars.
pub struct Sidecars;

impl Processor for Sidecars {
    type Config = Config;

    fn describe(config: &Config) -> Result<Description, String> {
        config.check()?;
        Ok(describe::describe(config))
    }

    fn reconcile(request: &Request, config: &Config, host: &Host) -> Result<Outcome, Failure> {
        reconcile::reconcile(request, config, host)
    }
}

mortise_sdk::export!(Sidecars);

#[cfg(test)]
mod tests;

#[cfg(test)]
mortise_sdk::testing::cases!(Sidecars, "cases");
