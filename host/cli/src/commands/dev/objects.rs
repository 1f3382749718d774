//! Loading and saving of objects: `--load` and `--save`.
//!
//! All objects are saved except those with values that are masked where they are printed: a masked
//! Secret would be wrong when loaded again. Each kind has a file. Loading restores objects as they were stored:
//! with status, uid, owners and field managers.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use mortise_embedded_api::EmbeddedApi;
use serde_json::{Value, json};

use crate::{
    files::{self, Object},
    local,
    print::{self, Secrets},
};

/// The first line of each file, which identifies a folder of saved objects.
const HEADER: &str = "# Saved by mortise dev; `mortise dev --load` starts with it.";

/// Loads objects as they were stored; missing namespaces are created.
///
/// # Errors
///
/// Fails for the first object that does not match the schema of its kind, and names its place.
pub(crate) fn load(api: &EmbeddedApi, mut objects: Vec<Object>) -> anyhow::Result<()> {
    objects.sort_by_key(|object| local::rank(&object.value));
    let (first, rest): (Vec<Object>, Vec<Object>) =
        objects.into_iter().partition(|object| local::rank(&object.value) < 2);
    put(api, first)?;
    let text = |object: &Value, pointer: &str| {
        object.pointer(pointer).and_then(Value::as_str).map(str::to_owned)
    };
    let is_namespace = |object: &Value| text(object, "/kind").as_deref() == Some("Namespace");
    let there: BTreeSet<String> = api
        .objects()
        .iter()
        .filter(|object| is_namespace(object))
        .filter_map(|object| text(object, "/metadata/name"))
        .collect();
    let needed: BTreeSet<String> =
        rest.iter().filter_map(|object| text(&object.value, "/metadata/namespace")).collect();
    for name in needed.difference(&there) {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        api.load(namespace, true).with_context(|| format!("cannot make the namespace `{name}`"))?;
    }
    put(api, rest)
}

fn put(api: &EmbeddedApi, objects: Vec<Object>) -> anyhow::Result<()> {
    for object in objects {
        let cannot = local::cannot("load", &object);
        api.load(object.value, true).context(cannot)?;
    }
    Ok(())
}

/// Prepares a folder for saving, before any state can be lost. One that is created can be entered
/// by its owner only.
///
/// # Errors
///
/// Fails if the folder cannot be created, or holds objects that were not saved by us.
pub(super) fn prepare(folder: &Path) -> anyhow::Result<()> {
    let cannot =
        || format!("cannot save into `{}`: name another folder with --save", folder.display());
    files::create_private_folder(folder).with_context(cannot)?;
    for file in objects_in(folder).with_context(cannot)? {
        let text = std::fs::read_to_string(&file).with_context(cannot)?;
        anyhow::ensure!(
            text.starts_with(HEADER),
            "`{}` was not saved by `mortise dev`, and would be loaded with what is: name another folder with --save",
            file.display()
        );
    }
    Ok(())
}

/// Saves all objects in a folder, replacing the objects saved there before. Returns a note for the
/// user.
///
/// # Errors
///
/// Fails if a file cannot be written.
pub(super) fn save(api: &EmbeddedApi, folder: &Path, secrets: &Secrets) -> anyhow::Result<String> {
    let cannot = || format!("cannot save into `{}`", folder.display());
    let (mut kinds, mut saved, mut not_saved) = (BTreeMap::<PathBuf, String>::new(), 0, 0);
    for mut object in api.objects() {
        if print::printable(&object, secrets) != object {
            not_saved += 1;
            continue;
        }
        let kind = local::kind_of(&object);
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("resourceVersion");
        }
        let name = format!("{}.{}", kind.kind, kind.group).to_lowercase();
        let file = folder.join(format!("{}.yaml", name.trim_end_matches('.')));
        let text = kinds.entry(file).or_insert_with(|| format!("{HEADER}\n"));
        text.push_str("---\n");
        text.push_str(&print::yaml(&object));
        saved += 1;
    }
    for former in objects_in(folder).with_context(cannot)? {
        std::fs::remove_file(former).with_context(cannot)?;
    }
    for (file, text) in kinds {
        files::write_private(&file, &text).with_context(cannot)?;
    }
    let mut note = format!("{saved} objects saved in {}", folder.display());
    if not_saved > 0 {
        let _ = write!(
            note,
            "; {not_saved} with values of Secrets or credentials were not: --show-secrets saves them too"
        );
    }
    Ok(note)
}

/// Returns the files of objects directly in a folder.
fn objects_in(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|ending| files::ENDINGS.iter().any(|known| ending == *known))
        {
            files.push(path);
        }
    }
    Ok(files)
}
