//! Builds the component of `guests/istio-client` on first use.

use std::path::PathBuf;

use anyhow::Result;
use istio_client_build::Version;

use crate::tool;

const TESTS: &str = "the tests of it::istio_client";

/// Returns the version of Istio in a folder of `guests/istio-client`, such as `1.31`.
///
/// # Errors
///
/// Fails if there is no such version.
pub fn version(name: &str) -> Result<Version> {
    Version::open(&istio_client_build::root().join(name))
}

/// Builds the component of a version, if an input has changed. Returns `None` if Go is not on the
/// PATH or cannot get the modules, and reports that as [`tool::is_there`] does.
///
/// # Errors
///
/// Fails if the component cannot be built.
///
/// # Panics
///
/// Panics if Go or the modules are missing, and [`tool::VARIABLE`] requires Go.
pub fn component(version: Version) -> Result<Option<PathBuf>> {
    if !tool::is_there("go", TESTS) {
        return Ok(None);
    }
    match version.prepare() {
        Ok(prepared) => prepared.component().map(Some),
        Err(error) => {
            tool::say(
                "go",
                &format!("Istio's renderer cannot be built: {TESTS} not run\n{error:#}"),
            );
            Ok(None)
        }
    }
}
