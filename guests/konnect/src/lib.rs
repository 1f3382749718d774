//! Keeps the entities of the Konnect API equal to objects of Kong's kinds.
//!
//! | module | holds |
//! | --- | --- |
//! | [`kind`] | the table of kinds |
//! | [`body`], [`tag`] | bodies, tags and labels: pure functions of an object |
//! | [`config`], `describe` | the configuration; what is reconciled, read and called |
//! | `auth` | tokens: whether the API takes them |
//! | `sync` | the loop that keeps the entity of one object |
//! | [`plugin`] | the configuration of a plugin, from its Secrets |
//! | `around` | the reconcilers that make no call: `binding`, `credential`, `token_secret` |
//! | `crd` | the definitions of the kinds (not in a component) |

mod around;
mod auth;
mod binding;
pub mod body;
pub mod config;
#[cfg(not(target_family = "wasm"))]
#[expect(clippy::indexing_slicing, reason = "it sets fields of JSON objects, in no component")]
mod crd;
mod credential;
mod describe;
pub mod kind;
pub mod plugin;
mod sync;
pub mod tag;
mod token_secret;

pub use config::Config;
#[cfg(not(target_family = "wasm"))]
pub use crd::crds;
pub use sync::delete::ABANDON;

use mortise_sdk::{Description, Failure, Host, Outcome, Processor, Reconcilers, Request};

/// The processor for everything that is kept in Konnect.
pub struct Konnect;

/// The reconcilers: the plural of a kind for the loop of its entities, and those around it.
const RECONCILERS: Reconcilers<Config> = Reconcilers(&[
    (kind::AUTH.plural, auth::reconcile),
    (kind::CONTROL_PLANE.plural, sync::reconcile),
    ("konnectconfigstores", sync::reconcile),
    ("kongcacertificates", sync::reconcile),
    ("kongcertificates", sync::reconcile),
    ("kongdataplaneclientcertificates", sync::reconcile),
    ("kongservices", sync::reconcile),
    ("kongroutes", sync::reconcile),
    ("kongconsumergroups", sync::reconcile),
    ("kongconsumers", sync::reconcile),
    ("kongcredentialacls", sync::reconcile),
    ("kongcredentialapikeys", sync::reconcile),
    ("kongcredentialbasicauths", sync::reconcile),
    ("kongcredentialhmacs", sync::reconcile),
    ("kongcredentialjwts", sync::reconcile),
    ("kongpluginbindings", sync::reconcile),
    ("kongupstreams", sync::reconcile),
    ("kongtargets", sync::reconcile),
    ("kongsnis", sync::reconcile),
    ("kongkeysets", sync::reconcile),
    ("kongkeys", sync::reconcile),
    ("kongvaults", sync::reconcile),
    (kind::PLUGIN.plural, around::reconcile),
    ("credentials", around::reconcile),
    ("token-secrets", around::reconcile),
    ("target-kongservices", around::reconcile),
    ("target-kongroutes", around::reconcile),
    ("target-kongconsumers", around::reconcile),
    ("target-kongconsumergroups", around::reconcile),
]);

impl Processor for Konnect {
    type Config = Config;

    fn describe(config: &Config) -> Result<Description, String> {
        RECONCILERS.check(describe::describe(config)?)
    }

    fn reconcile(request: &Request, config: &Config, host: &Host) -> Result<Outcome, Failure> {
        RECONCILERS.reconcile(request, config, host)
    }
}

mortise_sdk::export!(Konnect);

#[cfg(test)]
mortise_sdk::testing::cases!(Konnect, "cases");

#[cfg(test)]
mod tests;
