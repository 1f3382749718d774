//! Keeps the certificate of a processor's webhooks in a Secret, and has the API server trust it.
//!
//! The processor reconciles the `CustomResourceDefinition` whose objects a webhook converts, and
//! the two configurations of its admission webhooks. In all modules, a "client" is one of these
//! three: through it the API server calls the webhooks, and trusts the authorities that its
//! `caBundle` holds. "The original" is the Kyma API Gateway operator.
//!
//! | module | holds |
//! | --- | --- |
//! | [`config`], `describe` | the configuration; the declared reads and writes |
//! | `client` | the clients: the Services that they name, and their `caBundle` |
//! | [`store`] | the Secret |
//! | [`renewal`] | the pair that is served, and the pair that comes next |
//! | [`reconcile`] | the reconciliation of each client |

mod client;
pub mod config;
mod describe;
pub mod reconcile;
pub mod renewal;
pub mod store;

pub use config::Config;

use mortise_sdk::{Description, Failure, Host, Outcome, Processor, Request};

/// The processor for the certificate.
pub struct WebhookCertificate;

impl Processor for WebhookCertificate {
    type Config = Config;

    fn describe(config: &Config) -> Result<Description, String> {
        config.check()?;
        Ok(describe::describe(config))
    }

    fn reconcile(request: &Request, config: &Config, host: &Host) -> Result<Outcome, Failure> {
        reconcile::reconcile(request, config, host)
    }
}

mortise_sdk::export!(WebhookCertificate);

#[cfg(test)]
mortise_sdk::testing::cases!(WebhookCertificate, "cases");
