//! What `mortise inspect` shows of a library.

use std::{path::PathBuf, sync::Arc};

use mortise_host::wasm::{self, Content, Engine, LoadError, Names};
use serde::Serialize;

use super::ImageEntry;
use crate::registry::{self, Subject};

/// A component that is not a processor, with facts about its module.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LibraryInspection {
    /// The path of the module; `None` if it was pulled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<PathBuf>,
    /// The artifact from which it was pulled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) image: Option<ImageEntry>,
    /// The digest of the module.
    pub(super) digest: String,
    /// The size of the module in bytes.
    pub(super) size: u64,
    /// The interfaces that it imports.
    pub(super) imports: Vec<String>,
    /// The interfaces that it implements.
    pub(super) exports: Vec<String>,
}

/// Returns whether a component was not loaded because it is not a processor.
pub(super) fn is_one(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(LoadError::NotAProcessor { .. }))
}

// === impl LibraryInspection ===

impl LibraryInspection {
    /// Returns the inspection of a component.
    ///
    /// # Errors
    ///
    /// Fails for a file that cannot be read, and for one that is no component.
    pub(super) async fn of(subject: &Subject, engine: &Engine) -> anyhow::Result<Self> {
        let (file, digest, length) = registry::measured(&subject.file)?;
        let content = Content::File { file: Arc::clone(&file), digest, length };
        let shown = subject.file.display().to_string();
        let Names { imports, exports } = wasm::names(engine, &shown, content).await?;
        let image = ImageEntry::of(subject);
        Ok(Self {
            file: image.is_none().then(|| subject.file.clone()),
            image,
            digest: digest.to_string(),
            size: length,
            imports: imports.into_iter().collect(),
            exports: exports.into_iter().collect(),
        })
    }
}
