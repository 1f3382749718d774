//! The Cargo workspace that a new guest joins as a member.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use toml_edit::{Array, DocumentMut, Item};

use super::Error;

/// The workspace around a folder.
#[derive(Debug)]
pub(super) struct Workspace {
    /// The path of the workspace's Cargo.toml.
    pub(super) manifest: PathBuf,
    document: DocumentMut,
}

// === impl Workspace ===

impl Workspace {
    /// Returns the nearest workspace above `folder`, unless that workspace excludes the folder.
    pub(super) fn around(folder: &Path) -> Result<Option<Self>, Error> {
        for above in folder.ancestors().skip(1) {
            let manifest = above.join("Cargo.toml");
            let Ok(text) = fs::read_to_string(&manifest) else { continue };
            let failed = |error: toml_edit::TomlError| Error::Workspace {
                workspace: manifest.clone(),
                message: error.message().to_owned(),
            };
            let document: DocumentMut = text.parse().map_err(failed)?;
            if document.get("workspace").is_some() {
                let workspace = Self { manifest, document };
                return Ok((!workspace.excludes(folder)).then_some(workspace));
            }
        }
        Ok(None)
    }

    /// Returns whether `[workspace.dependencies]` has this dependency.
    pub(super) fn has_dependency(&self, name: &str) -> bool {
        self.table("dependencies").is_some_and(|dependencies| dependencies.get(name).is_some())
    }

    /// Returns whether the workspace has lints that members can inherit.
    pub(super) fn has_lints(&self) -> bool {
        self.table("lints").is_some()
    }

    /// Returns the folder of the workspace's Cargo.toml.
    pub(super) fn root(&self) -> &Path {
        self.manifest.parent().unwrap_or(&self.manifest)
    }

    /// Fails if a member has this name.
    pub(super) fn check_free(&self, name: &str) -> Result<(), Error> {
        let packages = self.packages()?;
        let has_name = |package: &Value| package.get("name").and_then(Value::as_str) == Some(name);
        if packages.iter().any(has_name) {
            let workspace = self.manifest.clone();
            return Err(Error::MemberTaken { workspace, name: name.to_owned() });
        }
        Ok(())
    }

    /// Adds a folder with a package to the members, unless a pattern already includes it. Returns
    /// whether the Cargo.toml was changed.
    pub(super) fn add(&self, folder: &Path) -> Result<bool, Error> {
        let manifest = folder.join("Cargo.toml");
        let is_it = |package: &Value| {
            let path = package.get("manifest_path").and_then(Value::as_str).map(Path::new);
            path.and_then(|path| path.canonicalize().ok()) == manifest.canonicalize().ok()
        };
        if self.packages()?.iter().any(is_it) {
            return Ok(false);
        }
        let member = folder.strip_prefix(self.root()).unwrap_or(folder).to_string_lossy();
        let text = with_member(self.document.clone(), &member).ok_or_else(|| Error::Workspace {
            workspace: self.manifest.clone(),
            message: "`workspace.members` is no list".to_owned(),
        })?;
        let unwritable = |cause| Error::Unwritable { path: self.manifest.clone(), cause };
        replace(&self.manifest, &text).map_err(unwritable)?;
        Ok(true)
    }

    fn table(&self, name: &str) -> Option<&Item> {
        self.document.get("workspace")?.get(name)
    }

    fn excludes(&self, folder: &Path) -> bool {
        let excluded = self.table("exclude").and_then(Item::as_array);
        excluded
            .into_iter()
            .flatten()
            .filter_map(toml_edit::Value::as_str)
            .any(|excluded| folder.starts_with(self.root().join(excluded)))
    }

    /// Returns the members, according to Cargo.
    fn packages(&self) -> Result<Vec<Value>, Error> {
        let failed =
            |message: String| Error::Workspace { workspace: self.manifest.clone(), message };
        let output = Command::new("cargo")
            .args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"])
            .arg(&self.manifest)
            .output()
            .map_err(|cause| failed(format!("cannot run `cargo`: {cause}")))?;
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        let mut metadata: Value =
            serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))?;
        match metadata.get_mut("packages").map(Value::take) {
            Some(Value::Array(packages)) => Ok(packages),
            _ => Err(failed("`cargo metadata` names no packages".to_owned())),
        }
    }
}

/// Returns the document with another member, in the format of the present ones; `None` if `members`
/// is not a list.
fn with_member(mut document: DocumentMut, member: &str) -> Option<String> {
    let workspace = document.get_mut("workspace")?.as_table_like_mut()?;
    let members = workspace.entry("members").or_insert(Item::from(Array::new()));
    let members = members.as_array_mut()?;
    let last = members.len().checked_sub(1).and_then(|last| members.get(last));
    let prefix = last.and_then(|last| last.decor().prefix()?.as_str());
    let indent =
        prefix.and_then(|prefix| prefix.rsplit_once('\n')).map(|(_, indent)| indent.to_owned());
    let Some(indent) = indent else {
        members.push(member);
        return Some(document.to_string());
    };
    // Each member has its own line, so the new one gets one too. Text between the last member and
    // the bracket, or the last comma, stays in its place.
    if let Some(last) = members.iter_mut().last() {
        last.decor_mut().set_suffix("");
    }
    let trailing = members.trailing().as_str().unwrap_or_default().to_owned();
    let comment = if members.trailing_comma() { trailing.trim_end() } else { "" };
    let mut value = toml_edit::Value::from(member);
    value.decor_mut().set_prefix(format!("{comment}\n{indent}"));
    members.push_formatted(value);
    if !comment.is_empty() || !members.trailing_comma() {
        members.set_trailing("\n");
    }
    Some(document.to_string())
}

/// Replaces a file atomically, so that no reader sees a partial file.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    let folder = path.parent().unwrap_or(path);
    let mut draft = tempfile::NamedTempFile::new_in(folder)?;
    draft.write_all(text.as_bytes())?;
    draft.as_file().set_permissions(fs::metadata(path)?.permissions())?;
    draft.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests;
