//! `mortise sign`: signs components in cosign's formats.

mod key;

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use mortise_host::oci::{
    Reference,
    artifact::{self, Descriptor},
    signature::{self, Format, PrivateKey, Signature, sign_file, verify_manifest},
};

use crate::{
    args::{RegistryClientArgs, SignArgs, SignatureFormat},
    registry::{self, RegistryClient},
};

/// Runs the command.
///
/// # Errors
///
/// Fails for an unusable key, for anything but a component, and if the registry refuses the
/// signature.
pub async fn run(args: &SignArgs) -> anyhow::Result<ExitCode> {
    let key = key::read(&args.key, &args.password)?;
    let format = match args.format {
        SignatureFormat::Bundle => Format::Bundle,
        SignatureFormat::Tag => Format::Tag,
    };
    let signed = match registry::reference(&args.what)? {
        Some(reference) => {
            let signed = in_registry(&reference, format, &key, &args.client).await;
            signed.with_context(|| format!("cannot sign `{reference}`"))?.to_string()
        }
        None => beside(&args.what, format, &key)?,
    };
    writeln!(anstream::stdout(), "{signed}").context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the path of a file's signature: the file's path with `.sig`.
pub(super) fn signature_of(path: &Path) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".sig");
    beside.into()
}

/// Signs an artifact in its registry, unless this key has already signed it.
async fn in_registry(
    reference: &Reference,
    format: Format,
    key: &PrivateKey,
    args: &RegistryClientArgs,
) -> anyhow::Result<Reference> {
    let repository = RegistryClient::open(args)?.repository(reference, true)?;
    let document = repository.manifest(&registry::name_of(reference)).await?;
    // Only components are signed, not other artifacts.
    artifact::parse(&document.bytes)?;
    let (public, signed) = (key.public(), reference.at(document.digest));
    let known = signature::fetch(&repository, document.digest).await?;
    let is_of_format = |signature: &&Signature| {
        matches!(
            (signature, format),
            (Signature::Bundle(_), Format::Bundle) | (Signature::Simple { .. }, Format::Tag)
        )
    };
    let known: Vec<Signature> = known.iter().filter(is_of_format).cloned().collect();
    if !verify_manifest(document.digest, &known, &[&public]).by.is_empty() {
        return Ok(signed);
    }
    let signature = Signature::of_manifest(document.digest, reference, format, key)?;
    let of = Descriptor::of(artifact::MANIFEST, &document.bytes);
    signature::push(&repository, &of, &signature).await?;
    Ok(signed)
}

/// Writes the signature of a file beside it.
fn beside(path: &Path, format: Format, key: &PrivateKey) -> anyhow::Result<String> {
    let file = std::fs::read(path)
        .with_context(|| format!("cannot read the component `{}`", path.display()))?;
    let beside = signature_of(path);
    let signature = sign_file(&file, format, key)?;
    std::fs::write(&beside, signature)
        .with_context(|| format!("cannot write `{}`", beside.display()))?;
    Ok(beside.display().to_string())
}
