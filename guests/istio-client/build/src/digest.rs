//! A digest of the inputs of a build.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};
use walkdir::WalkDir;

/// The inputs of a build, in the order in which they are added.
#[derive(Default)]
pub(crate) struct Inputs {
    digest: Sha256,
}

impl Inputs {
    pub(crate) fn text(&mut self, name: &str, text: &str) {
        self.add(name.as_bytes(), text.as_bytes());
    }

    pub(crate) fn file(&mut self, file: &Path) -> Result<()> {
        let content = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let name = file.file_name().unwrap_or_default();
        self.add(name.as_encoded_bytes(), &content);
        Ok(())
    }

    /// Adds the files in a folder and below it.
    pub(crate) fn folder(&mut self, folder: &Path) -> Result<()> {
        for entry in WalkDir::new(folder).sort_by_file_name() {
            let entry = entry.with_context(|| format!("cannot read {}", folder.display()))?;
            self.text("entry", &entry.path().strip_prefix(folder)?.to_string_lossy());
            if entry.file_type().is_file() {
                self.file(entry.path())?;
            }
        }
        Ok(())
    }

    pub(crate) fn digest(self) -> String {
        format!("{:x}", self.digest.finalize())
    }

    fn add(&mut self, name: &[u8], content: &[u8]) {
        for part in [name, content] {
            self.digest.update(part.len().to_be_bytes());
            self.digest.update(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> String {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, content).unwrap();
        }
        let mut inputs = Inputs::default();
        inputs.folder(folder.path()).unwrap();
        inputs.digest()
    }

    #[test]
    fn a_digest_changes_with_name_place_and_content_of_a_file() {
        let before = of(&[("a", "1"), ("folder/b", "2")]);
        assert_eq!(of(&[("folder/b", "2"), ("a", "1")]), before);
        let changes: [&[(&str, &str)]; 4] = [
            &[("a", "1"), ("folder/b", "3")],
            &[("a", "1"), ("folder/c", "2")],
            &[("a", "1"), ("b", "2")],
            &[("a", "1")],
        ];
        for change in changes {
            assert_ne!(of(change), before, "{change:?}");
        }
    }
}
