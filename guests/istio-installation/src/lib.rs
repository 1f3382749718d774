//! Installs Istio, as the Kyma Istio operator does.
//!
//! For the oldest Istio resource in `kyma-system`, the processor merges the resource into the
//! default `IstioOperator`, lets Istio's own renderer (a library) make objects of it, and returns
//! them as one outcome. It alone writes `state`, `description` and the condition `Ready` of the
//! Istio resource, also on behalf of the processors that restart sidecars and gateways and keep the
//! module's other objects. In all modules, "the original" is the Kyma Istio operator.
//!
//! | module | holds |
//! | --- | --- |
//! | `describe`, `kind`, `grants` | the declared reads and writes; the rules that the processor grants |
//! | [`config`] | the configuration |
//! | `reconcile`, `run` | the order of checks, and what is refused; the input of a run |
//! | `surroundings` | reads about the cluster |
//! | `render` | the objects of the library, with the labels of the original |
//! | `install` | the outcome for a resource that is there |
//! | `workload`, `cause` | what is ready, and why something is not |
//! | `webhook` | fields of webhooks that istiod sets; webhooks that are in the way |
//! | `uninstall` | the outcome for a resource that is being deleted |
//! | `status` | the status, from all conditions |

mod cause;
pub mod config;
mod describe;
#[cfg(not(target_family = "wasm"))]
pub mod double;
mod grants;
mod install;
mod kind;
mod reconcile;
mod render;
mod run;
mod status;
mod surroundings;
mod uninstall;
mod webhook;
mod workload;

pub use bindings::istio::client::renderer::{
    Cluster, Component, IstioVersion, Manifest as RenderedManifest, Rendered,
};
pub use config::Config;

use std::marker::PhantomData;

use mortise_sdk::{Description, Failure, Host, Outcome, Processor, Request};

mortise_sdk::library! {
    mod bindings in ["../istio-client/wit", "wit"], world "mortise:istio-installation/installation";

    /// Istio's own renderer, for one version of Istio.
    pub trait Rendering, imported as Renderer {
        /// Returns the version of Istio.
        fn version() -> IstioVersion = bindings::istio::client::renderer::version;

        /// Renders an `IstioOperator`.
        fn render(spec: &str, cluster: Option<&Cluster>) -> Result<Rendered, String>
            = bindings::istio::client::renderer::render;
    }
}

/// The processor, over the renderer itself or a double of it.
pub struct Installations<R = Renderer>(PhantomData<R>);

impl<R: Rendering> Processor for Installations<R> {
    type Config = Config;

    fn describe(config: &Config) -> Result<Description, String> {
        describe::describe::<R>(config)
    }

    fn reconcile(request: &Request, config: &Config, host: &Host) -> Result<Outcome, Failure> {
        reconcile::reconcile::<R>(request, config, host)
    }
}

mortise_sdk::export!(Installations);

#[cfg(test)]
mod tests;
