//! `mortise push`: uploads a component to a registry, with its declared permissions.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, ExitCode},
    sync::Arc,
};

use anyhow::Context as _;
use mortise_host::{
    oci::{
        Blob, Reference, Repository,
        artifact::{self, Annotations, Artifact, Descriptor, LAYER, annotation},
    },
    wasm::{self, Content, Names},
};

use super::inspect::Inspection;
use crate::{
    args::PushArgs,
    guest::Source,
    local::{self, Parts},
    registry::{self, RegistryClient},
};

/// Runs the command.
///
/// # Errors
///
/// Fails for bad input, a module that does not load, and if the registry refuses the artifact.
pub async fn run(args: &PushArgs, cache: Option<&Path>) -> anyhow::Result<ExitCode> {
    let reference: &Reference = &args.reference.parse()?;
    let Some(tag) = reference.tag().filter(|_| reference.digest().is_none()) else {
        anyhow::bail!("`{reference}` names a digest, which follows from what is pushed: name a tag")
    };
    let source = Source::open(&args.module)?;
    let file = source.component()?;
    let (bytes, digest, length) = registry::measured(&file)?;
    let content = Content::File { file: Arc::clone(&bytes), digest, length };
    let engine = local::engine(cache, false)?;
    let shown = file.display().to_string();
    let names = wasm::names(&engine, &shown, content).await?;
    let mut annotations = about(args, &source, &file);
    if names.contract().is_some() {
        let parts = Parts::of(&source, file.clone(), &args.with)?;
        let config = local::config(args.config.as_deref())?;
        let loaded = local::load_into(&engine, parts, config).await?;
        let inspection = Inspection::of(&loaded, &file)?;
        annotations.insert(annotation::VERSION.to_owned(), inspection.version.clone());
        let permissions = serde_json::to_string(&inspection.permissions())?;
        annotations.insert(annotation::PERMISSIONS.to_owned(), permissions);
    }
    let layer = Descriptor { digest, size: length, ..Descriptor::of(LAYER, b"") };
    let Names { imports, exports } = names;
    let names = (imports.into_iter().collect(), exports.into_iter().collect());
    let artifact = Artifact::build(layer, names, annotations)?;
    let repository = RegistryClient::open(&args.client)?.repository(reference, true)?;
    let pushed = push(&repository, tag, &artifact, &bytes).await;
    pushed.with_context(|| format!("cannot push `{reference}`"))?;
    print(&reference.at(artifact.digest()))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the reference with its digest.
fn print(reference: &Reference) -> anyhow::Result<()> {
    writeln!(anstream::stdout(), "{reference}").context("cannot write to standard output")
}

async fn push(
    repository: &Repository,
    tag: &str,
    artifact: &Artifact,
    component: &Arc<std::fs::File>,
) -> anyhow::Result<()> {
    repository.push_blob(&artifact.layer, Blob::File(component)).await?;
    let config = Blob::Bytes(&artifact.config);
    repository.push_blob(&artifact.config_descriptor, config).await?;
    Ok(repository.push_manifest(tag, artifact::MANIFEST, &artifact.manifest).await?)
}

/// Returns the annotations from sources other than the component.
fn about(args: &PushArgs, source: &Source, file: &Path) -> Annotations {
    let title = file.file_name().map(|name| name.to_string_lossy().into_owned());
    let of_guest = || source.guest().and_then(|guest| guest.description.clone());
    let revision = || revision(file.parent().unwrap_or(Path::new(".")));
    let found = [
        (annotation::TITLE, title),
        (annotation::DESCRIPTION, args.description.clone().or_else(of_guest)),
        (annotation::REVISION, args.revision.clone().or_else(revision)),
    ];
    let found = found.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    found.collect()
}

/// Returns the commit of the checkout that holds a folder, with `-dirty` if files differ from it;
/// `None` without a checkout or git.
fn revision(folder: &Path) -> Option<String> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let output = Command::new("git")
        .args(["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"])
        .current_dir(folder)
        .stderr(std::process::Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}
