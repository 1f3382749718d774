//! The options by which registries are reached.

use std::path::PathBuf;

use anyhow::Context as _;

use super::value;
use crate::oci::{Options, Registries, Times};

/// The options of the registry client.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct RegistryArgs {
    /// Certificates of authorities (PEM) that are trusted for registries, besides Mozilla's, which
    /// are compiled in.
    #[arg(long, env = "MORTISE_REGISTRY_CA", value_name = "FILE")]
    pub registry_ca: Option<PathBuf>,
    /// Registries that are accessed without TLS, and so without credentials, separated by commas.
    /// Registries of this machine need not be named: if they do not speak TLS, they are accessed
    /// without it.
    #[arg(long, env = "MORTISE_PLAIN_HTTP", value_name = "HOST", value_delimiter = ',', value_parser = value::registry)]
    pub plain_http: Vec<String>,
    /// The proxy for registries: `http://proxy.example.com:3128`.
    #[arg(long, env = "HTTPS_PROXY", hide_env_values = true, value_name = "URL")]
    pub https_proxy: Option<String>,
    /// Hosts that are accessed without the proxy, and domains with all hosts below them, separated
    /// by commas.
    #[arg(
        long,
        env = "NO_PROXY",
        hide_env_values = true,
        value_name = "HOST",
        value_delimiter = ','
    )]
    pub no_proxy: Vec<String>,
}

// === impl RegistryArgs ===

impl RegistryArgs {
    /// Prepares the way to registries.
    ///
    /// # Errors
    ///
    /// Fails for a file of certificates that cannot be read, and for a proxy that is none.
    pub fn registries(&self) -> anyhow::Result<Registries> {
        let authorities = self.registry_ca.as_ref().map(|path| {
            let shown = path.display();
            std::fs::read(path).with_context(|| format!("cannot read `--registry-ca {shown}`"))
        });
        let proxy = self.https_proxy.clone().filter(|proxy| !proxy.is_empty());
        let options = Options {
            authorities: authorities.transpose()?,
            proxy,
            no_proxy: self.no_proxy.clone(),
            times: Times::default(),
        };
        let registries = Registries::build(options);
        let registries = registries.context("registries cannot be reached with these options")?;
        Ok(registries.with_plain(self.plain_http.clone()))
    }
}
