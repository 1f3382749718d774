//! Loads Kubernetes objects from files: YAML with many documents, JSON objects, and lists of
//! either.

#[cfg(test)]
mod tests;

use std::{
    fs::{DirBuilder, OpenOptions, Permissions},
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use mortise_embedded_api::yaml;
use serde_json::{Map, Value};
use walkdir::{DirEntry, WalkDir};

/// The extensions of the names of files that hold objects.
pub(crate) const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// The mode of a file that only its owner can read.
const PRIVATE: u32 = 0o600;
/// The mode of a folder that only its owner can enter.
const PRIVATE_FOLDER: u32 = 0o700;

/// The reason why a file gave no objects.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder could not be read.
    #[error("cannot read `{path}`, which is to be {expected}")]
    Unreadable {
        path: PathBuf,
        expected: &'static str,
        #[source]
        cause: std::io::Error,
    },

    /// A text is neither YAML nor JSON.
    #[error("`{path}`, document {document}, line {line}, column {column}: {message}")]
    Syntax { path: PathBuf, document: usize, line: u64, column: u64, message: String },

    /// A document is not an object with `apiVersion`, `kind` and `metadata.name`.
    #[error("`{path}`, document {document}: {message}")]
    NotAnObject { path: PathBuf, document: usize, message: String },

    /// A folder contains no files of objects.
    #[error("`{path}` holds no .yaml, .yml or .json file")]
    Empty { path: PathBuf },

    /// A configuration is not an object.
    #[error("`{path}`: a configuration is an object, found {found}")]
    NotAConfiguration { path: PathBuf, found: &'static str },
}

/// An object, and its place in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    pub file: Arc<Path>,
    /// The number of the document in the file, from 1.
    pub document: usize,
    pub value: Value,
}

/// Loads the objects of a file, or of all `.yaml`, `.yml` and `.json` files in a folder and the
/// folders in it, by name. Files and folders whose name begins with a dot are left out.
///
/// # Errors
///
/// Fails if a file cannot be read, does not parse, or holds no Kubernetes object, and names the
/// place. Fails if a folder contains no such file.
pub fn load(path: &Path) -> Result<Vec<Value>, Error> {
    Ok(open(path)?.into_iter().map(|object| object.value).collect())
}

/// Loads the objects of several files or folders, in the order given.
///
/// # Errors
///
/// The errors of [`load`].
pub fn load_all(paths: &[PathBuf]) -> Result<Vec<Value>, Error> {
    let objects: Result<Vec<Vec<Value>>, _> = paths.iter().map(|path| load(path)).collect();
    Ok(objects?.concat())
}

/// Loads objects as [`load`] does, with the place of each.
///
/// # Errors
///
/// The errors of [`load`].
pub fn open(path: &Path) -> Result<Vec<Object>, Error> {
    let unreadable = |cause| unreadable(path, cause);
    if !std::fs::metadata(path).map_err(unreadable)?.is_dir() {
        return parse(path, &read(path)?);
    }
    let files = files_in(path)?;
    if files.is_empty() {
        return Err(Error::Empty { path: path.to_owned() });
    }
    let objects: Result<Vec<_>, _> = files.iter().map(|file| parse(file, &read(file)?)).collect();
    Ok(objects?.concat())
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let is_shown = |entry: &DirEntry| {
        entry.depth() == 0 || !entry.file_name().as_encoded_bytes().starts_with(b".")
    };
    let holds_objects = |path: &Path| {
        path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known))
    };
    let mut files = Vec::new();
    for entry in WalkDir::new(folder)
        .follow_links(true)
        .sort_by_file_name()
        .into_iter()
        .filter_entry(is_shown)
    {
        let entry = entry.map_err(|error| {
            let path = error.path().unwrap_or(folder).to_owned();
            unreadable(&path, error.into())
        })?;
        if !entry.file_type().is_dir() && holds_objects(entry.path()) {
            files.push(entry.into_path());
        }
    }
    Ok(files)
}

/// Writes a file that only its owner can read, because it may hold credentials.
pub(crate) fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(PRIVATE).open(path)?;
    // One that was there has a mode already.
    file.set_permissions(Permissions::from_mode(PRIVATE))?;
    file.write_all(text.as_bytes())
}

/// Creates a folder and its parents, which only their owner can enter. A folder that is there keeps
/// its mode.
pub(crate) fn create_private_folder(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(path)
}

fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|cause| unreadable(path, cause))
}

fn unreadable(path: &Path, cause: std::io::Error) -> Error {
    let expected = "a file of YAML or JSON, or a folder of such";
    Error::Unreadable { path: path.to_owned(), expected, cause }
}

/// Loads a processor's configuration: a file of one document, an object. An empty file is an empty
/// configuration.
///
/// # Errors
///
/// Fails if the file cannot be read, does not parse, or is not one document with an object.
pub fn load_config(path: &Path) -> Result<Map<String, Value>, Error> {
    let text = std::fs::read_to_string(path).map_err(|cause| Error::Unreadable {
        path: path.to_owned(),
        expected: "a file of YAML or JSON",
        cause,
    })?;
    let mut documents = documents(path, &text)?;
    if documents.len() > 1 {
        return Err(Error::NotAnObject {
            path: path.to_owned(),
            document: 2,
            message: format!("one document is expected, {} are there", documents.len()),
        });
    }
    match documents.pop() {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(config)) => Ok(config),
        Some(other) => {
            Err(Error::NotAConfiguration { path: path.to_owned(), found: type_of(&other) })
        }
    }
}

/// Returns the type of a value in words, for messages: the value itself may be a secret.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Object(_) => "an object",
        Value::Array(_) => "a list",
        Value::String(_) => "a text",
        Value::Number(_) => "a number",
        Value::Bool(_) => "a truth value",
    }
}

/// Parses the objects of a text. Errors name `path`, and its extension tells JSON from YAML.
///
/// # Errors
///
/// The errors of [`load`].
pub fn parse(path: &Path, text: &str) -> Result<Vec<Object>, Error> {
    let file: Arc<Path> = path.into();
    let mut objects = Vec::new();
    for (index, value) in documents(path, text)?.into_iter().enumerate() {
        let document = index + 1;
        let mut values = Vec::new();
        collect(value, &mut values).map_err(|message| Error::NotAnObject {
            path: path.to_owned(),
            document,
            message,
        })?;
        let placed = |value| Object { file: Arc::clone(&file), document, value };
        objects.extend(values.into_iter().map(placed));
    }
    Ok(objects)
}

/// Parses the documents of a text; YAML is read as kubectl reads it. JSON is YAML as well, but its
/// own parser is quicker and its messages fit better.
fn documents(path: &Path, text: &str) -> Result<Vec<Value>, Error> {
    let is_json = path.extension().is_some_and(|ending| ending == "json");
    if is_json {
        let one: Result<Vec<Value>, _> =
            serde_json::Deserializer::from_str(text).into_iter().collect();
        return one.map_err(|error| Error::Syntax {
            path: path.to_owned(),
            document: 1,
            line: error.line() as u64,
            column: error.column() as u64,
            message: error.to_string(),
        });
    }
    yaml::documents(text).map_err(|error| syntax(path, text, &error))
}

fn syntax(path: &Path, text: &str, error: &serde_saphyr::Error) -> Error {
    let (line, column) = error.location().map_or((1, 1), |place| (place.line(), place.column()));
    let before = usize::try_from(line).unwrap_or(usize::MAX);
    let separators =
        text.lines().take(before).filter(|line| *line == "---" || line.starts_with("--- ")).count();
    let opened =
        text.lines().find(|line| !line.trim().is_empty() && !line.starts_with('#')) == Some("---");
    Error::Syntax {
        path: path.to_owned(),
        document: separators + usize::from(!opened),
        line,
        column,
        message: error.to_string(),
    }
}

fn collect(document: Value, objects: &mut Vec<Value>) -> Result<(), String> {
    match document {
        Value::Null => Ok(()),
        Value::Array(items) => items.into_iter().try_for_each(|item| collect(item, objects)),
        Value::Object(mut map) => {
            let text =
                |name: &str| map.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            let (version, kind) = (text("apiVersion"), text("kind"));
            if version.is_empty() || kind.is_empty() {
                return Err("an object needs `apiVersion` and `kind`".to_owned());
            }
            if kind.ends_with("List") && map.get("items").is_some_and(Value::is_array) {
                return collect(map.remove("items").unwrap_or_default(), objects);
            }
            let object = Value::Object(map);
            let metadata = object.get("metadata").and_then(Value::as_object);
            let name =
                |key: &str| metadata.and_then(|metadata| metadata.get(key)).and_then(Value::as_str);
            if name("name").or_else(|| name("generateName")).is_none_or(str::is_empty) {
                return Err(format!("{kind} {version} needs `metadata.name`, a text"));
            }
            objects.push(object);
            Ok(())
        }
        other => Err(format!("an object is expected, found {}", type_of(&other))),
    }
}
