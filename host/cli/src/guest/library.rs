//! The libraries and limits of a guest, from its manifest.

use std::path::{Path, PathBuf};

use mortise_host::{operator::limits_of_call, wasm::Limits};
use serde::Deserialize;

use super::Made;

/// A component that implements an interface which a guest imports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// The interface, such as `example:shouting/shout@1.0.0`.
    pub interface: String,
    pub component: Made,
    /// The limits of one call.
    pub limits: Limits,
}

/// Limits of a call in a manifest, with the names of the Processor resource.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Given {
    memory: Option<String>,
    deadline: Option<String>,
}

/// A library in a manifest.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    interface: String,
    path: PathBuf,
    #[serde(default)]
    build: Vec<String>,
    #[serde(default)]
    watch: Vec<PathBuf>,
    #[serde(default)]
    limits: Given,
}

// === impl Given ===

impl Given {
    /// Returns the limits, by default the host's; `field` is their place.
    pub(super) fn limits(&self, field: &str) -> Result<Limits, String> {
        limits_of_call(field, self.memory.as_deref(), self.deadline.as_deref())
    }
}

// === impl Entry ===

impl Entry {
    /// Returns the library with its paths below the guest's folder.
    pub(super) fn library(self, folder: &Path) -> Result<Library, String> {
        let limits = self.limits.limits(&format!("libraries[{}]", self.interface))?;
        let component = Made {
            path: folder.join(self.path),
            build: self.build,
            watch: self.watch.iter().map(|path| folder.join(path)).collect(),
        };
        Ok(Library { interface: self.interface, component, limits })
    }
}
