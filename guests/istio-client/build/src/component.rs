//! A module of Go as a component.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use wit_bindgen_core::wit_parser::Resolve;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};

/// The crate that encodes, with the version that `Cargo.toml` names.
pub(crate) const ENCODER: &str = "wit-component 0.258";
/// The module under which Go imports WASI preview 1.
const PREVIEW1: &str = "wasi_snapshot_preview1";

/// Makes the module in a file a component of the world in `wit`.
///
/// # Errors
///
/// Fails if the module does not have the world's exports, or imports what the adapter does not
/// have.
pub(crate) fn encode(module: &Path, wit: &Path, adapter: &Path) -> Result<Vec<u8>> {
    let mut bytes =
        fs::read(module).with_context(|| format!("cannot read {}", module.display()))?;
    let adapter = wat::parse_file(adapter).context("cannot read the adapter")?;
    let mut resolve = Resolve::default();
    let (package, _) =
        resolve.push_path(wit).with_context(|| format!("cannot read {}", wit.display()))?;
    let world = resolve.select_world(&[package], None)?;
    embed_component_metadata(&mut bytes, &resolve, world, StringEncoding::UTF8)?;
    ComponentEncoder::default()
        .validate(true)
        .module(&bytes)?
        .adapter(PREVIEW1, &adapter)?
        .encode()
        .context("cannot make a component of the module")
}
