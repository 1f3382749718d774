//! The Go bindings of `wit`.

use std::path::Path;

use anyhow::{Context as _, Result};
use wit_bindgen_core::{Files, wit_parser::Resolve};

/// The path of the Go module.
const MODULE: &str = "mortise/istio-client";
/// The import path of the support packages, which the generator does not let one choose.
const SUPPORT: &str = "\"go.bytecodealliance.org/pkg/wit/";

/// Returns the files of the bindings, by paths relative to the root of the Go module.
///
/// # Errors
///
/// Fails if the WIT package is invalid.
pub(crate) fn generate(wit: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut resolve = Resolve::default();
    let (package, _) =
        resolve.push_path(wit).with_context(|| format!("cannot read {}", wit.display()))?;
    let world = resolve.select_world(&[package], None)?;
    let mut files = Files::default();
    let options = wit_bindgen_go::Opts {
        // Go's formatter may be missing.
        format: wit_bindgen_go::Format::False,
        pkg_name: Some(format!("{MODULE}/bindings")),
        export_pkg_name: Some(format!("{MODULE}/component")),
        ..Default::default()
    };
    options
        .build()
        .generate(&mut resolve, world, &mut files)
        .context("cannot generate bindings for Go")?;
    // Files of assembly are for builds that are not for WebAssembly.
    let go = files
        .iter()
        .filter(|(path, _)| Path::new(path).extension().is_some_and(|extension| extension == "go"));
    go.map(|(path, content)| Ok((format!("bindings/{path}"), with_own_support(content)?))).collect()
}

/// Puts the support packages in `abi` in the place of the generator's own.
fn with_own_support(source: &[u8]) -> Result<Vec<u8>> {
    let source = std::str::from_utf8(source).context("the bindings are no UTF-8")?;
    Ok(source.replace(SUPPORT, &format!("\"{MODULE}/abi/")).into_bytes())
}
