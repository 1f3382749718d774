//! `mortise pull`: downloads a component from a registry.

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use mortise_host::oci::Reference;

use crate::{args::PullArgs, registry::RegistryClient};

/// Runs the command.
///
/// # Errors
///
/// Fails if the component cannot be pulled, or if the file cannot be written.
pub async fn run(args: &PullArgs) -> anyhow::Result<ExitCode> {
    let reference: Reference = args.reference.parse()?;
    let client = RegistryClient::open(&args.client)?;
    let pulled = client.pull(&reference).await?;
    let own = || {
        let name = reference.repository().rsplit('/').next().unwrap_or_default();
        PathBuf::from(format!("{name}.wasm"))
    };
    let path = args.output.clone().unwrap_or_else(own);
    // Copied, not renamed: a temporary file may be on another file system, with access for us only.
    std::fs::copy(pulled.file.path(), &path)
        .with_context(|| format!("cannot write `{}`", path.display()))?;
    writeln!(anstream::stdout(), "{} is in {}", pulled.reference, path.display())
        .context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}
