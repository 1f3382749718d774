//! `mortise verify`: verifies signatures, by the rules of the host.

use std::{io::Write as _, path::Path, process::ExitCode};

use anyhow::Context as _;
use mortise_host::oci::{
    artifact,
    signature::{self, PublicKey, Verified, verify_file, verify_manifest},
};

use super::sign::signature_of;
use crate::{
    args::VerifyArgs,
    registry::{self, RegistryClient},
};

/// Runs the command.
///
/// # Errors
///
/// Fails if a component has no signature by one of the keys, and for bad input.
pub async fn run(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let keys = args.key.iter().map(|path| key(path)).collect::<anyhow::Result<Vec<_>>>()?;
    let all: Vec<&PublicKey> = keys.iter().collect();
    let (shown, verified) = match registry::reference(&args.what)? {
        Some(reference) => {
            let repository = RegistryClient::open(&args.client)?.repository(&reference, false)?;
            let cannot = || format!("cannot verify `{reference}`");
            let document = repository.manifest(&registry::name_of(&reference)).await;
            let document = document.with_context(cannot)?;
            // Only components are verified, not other artifacts.
            artifact::parse(&document.bytes).with_context(cannot)?;
            let digest = document.digest;
            let found = signature::fetch(&repository, digest).await.with_context(cannot)?;
            (reference.at(digest).to_string(), verify_manifest(digest, &found, &all))
        }
        None => (args.what.display().to_string(), of_file(&args.what, &all)?),
    };
    verified.require(&keys).map_err(|found| anyhow::anyhow!("`{shown}`: {found}"))?;
    let by = verified.by.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    writeln!(anstream::stdout(), "{shown} is signed by {by}")
        .context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

fn of_file(path: &Path, keys: &[&PublicKey]) -> anyhow::Result<Verified> {
    let cannot = |path: &Path| format!("cannot read `{}`", path.display());
    let file = std::fs::read(path).with_context(|| cannot(path))?;
    let beside = signature_of(path);
    match std::fs::read(&beside) {
        Ok(signature) => Ok(verify_file(&file, &signature, keys)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Verified::default()),
        Err(error) => Err(error).with_context(|| cannot(&beside)),
    }
}

fn key(path: &Path) -> anyhow::Result<PublicKey> {
    let shown = path.display();
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("cannot read the key `{shown}`"))?;
    PublicKey::parse(&text).with_context(|| format!("cannot use the key `{shown}`"))
}
