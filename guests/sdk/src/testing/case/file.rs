//! The files of a case: reads them, and refuses files and fields that are unknown.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use mortise_embedded_api::yaml;
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

use super::{calls::Calls, document::Document};
use crate::testing::{cluster::Write, identity::Pattern};

pub(super) const OBJECTS: &str = "objects.yaml";
pub(super) const CONFIG: &str = "config.yaml";
pub(super) const CASE: &str = "case.yaml";
const CALLS: &str = "calls.yaml";
pub(super) const EXPECTED: &str = "expected.yaml";
/// The name of the folder of object files, which may replace the single file.
pub(super) const FOLDER: &str = "objects";
/// The folder of the objects of other clusters, a folder for each.
const CLUSTERS: &str = "clusters";
/// The folder of the cases of conversions.
pub(super) const CONVERT: &str = "convert";
/// The folder of the cases of reviews.
pub(super) const REVIEW: &str = "review";
const DEFAULT_NOW: &str = "2026-01-01T00:00:00Z";

/// A case, as its folder describes it.
#[derive(Debug, Clone)]
pub struct Case {
    /// The name of its folder.
    pub name: String,
    /// The path of its folder.
    pub folder: PathBuf,
    /// The objects that exist in the home cluster.
    pub objects: Vec<Value>,
    /// The other clusters.
    pub clusters: Vec<Remote>,
    /// The configuration, as JSON.
    pub config: String,
    /// The time at the beginning.
    pub now: Timestamp,
    /// A pattern of the only object that is reconciled; `None` for all objects.
    pub only: Option<Pattern>,
    /// True if the objects must be valid under their schemas.
    pub validate: bool,
    /// The steps. The first one is the beginning of the case: it holds kinds that are missing and
    /// writes that are refused, and changes no object.
    pub steps: Vec<Step>,
    /// The calls to systems outside of the cluster, of the first reconciles and of each step.
    pub calls: Vec<Calls>,
    /// The expected results; `None` if `expected.yaml` does not exist yet.
    pub expected: Option<Expected>,
}

/// A cluster besides the home cluster.
#[derive(Debug, Clone)]
pub struct Remote {
    /// The name of its folder in `clusters`.
    pub folder: String,
    /// The name of the cluster, `namespace/name/key`.
    pub name: String,
    /// The objects that exist there.
    pub objects: Vec<Value>,
}

/// The expected results, as `expected.yaml` holds them.
#[derive(Debug, Clone)]
pub struct Expected {
    /// The texts of the documents, each without its separator.
    pub texts: Vec<String>,
    /// The parsed documents.
    pub documents: Vec<Document>,
}

/// A change to the cluster, after which everything that is due is reconciled.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Step {
    /// A note for readers of the case, if any.
    pub note: Option<String>,
    /// The time span by which the clock moves, if any.
    #[serde(deserialize_with = "duration")]
    pub after: Option<Duration>,
    /// The kinds that are not installed from this step on, as `plural.group`; `None` if they stay
    /// as they are.
    pub missing: Option<Vec<String>>,
    /// The objects that are deleted: patterns.
    pub delete: Vec<String>,
    /// The objects that are applied.
    #[serde(deserialize_with = "yaml::values")]
    pub apply: Vec<Value>,
    /// The JSON merge patches, each of which names its object.
    #[serde(deserialize_with = "yaml::values")]
    pub patch: Vec<Value>,
    /// The writes that are refused until the next step.
    pub refuse: Vec<Refuse>,
    /// True if the cluster cannot be reached from this step on; `None` if that stays as it is. Not
    /// for the home cluster.
    pub unreachable: Option<bool>,
    /// The changes of the step to other clusters, by their folders. They have no `note`, `after`
    /// and `clusters`.
    pub clusters: BTreeMap<String, Step>,
}

/// A set of writes that the API refuses.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refuse {
    /// The objects whose writes are refused: a pattern.
    pub write: String,
    /// The kind of write that is refused.
    #[serde(default = "any")]
    pub verb: Write,
    /// The HTTP status of the refusal.
    #[serde(default = "forbidden")]
    pub code: u16,
    /// The message of the refusal.
    #[serde(default = "refused")]
    pub message: String,
    /// The number of refusals; `None` means until the next step.
    pub times: Option<usize>,
}

/// The contents of `case.yaml`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct How {
    now: Option<String>,
    only: Option<String>,
    missing: Vec<String>,
    validate: Option<bool>,
    refuse: Vec<Refuse>,
    clusters: BTreeMap<String, HowRemote>,
    steps: Vec<Step>,
}

/// Another cluster in `case.yaml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HowRemote {
    name: String,
    #[serde(default)]
    missing: Vec<String>,
    #[serde(default)]
    refuse: Vec<Refuse>,
    #[serde(default)]
    unreachable: bool,
}

fn any() -> Write {
    Write::Any
}

fn forbidden() -> u16 {
    403
}

fn refused() -> String {
    "the case refuses it".to_owned()
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    let invalid = || {
        serde::de::Error::custom(format!(
            "`{text}` is no time span: `90s`, `1h 30m` and the like are"
        ))
    };
    let parsed: SignedDuration = text.parse().map_err(|_| invalid())?;
    Duration::try_from(parsed).map(Some).map_err(|_| invalid())
}

/// Reads the cases of reconciles in a folder, ordered by name.
///
/// # Errors
///
/// There is no such folder, it holds no case, not even of a hook, or a case cannot be read. The
/// text names the file and the reason.
pub fn all(folder: &Path) -> Result<Vec<Case>, String> {
    let is_of_hooks = |path: &PathBuf| [CONVERT, REVIEW].iter().any(|name| path.ends_with(name));
    let (hooks, cases): (Vec<_>, Vec<_>) = folders(folder)?.into_iter().partition(is_of_hooks);
    if cases.is_empty() && hooks.is_empty() {
        return Err(format!(
            "`{}` holds no case: a folder with {OBJECTS} and {EXPECTED}",
            folder.display()
        ));
    }
    cases.iter().map(|path| Case::load(path)).collect()
}

/// Returns the folders of the cases in a folder, ordered by name.
pub(super) fn folders(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut paths = entries(folder)?;
    paths.retain(|path| path.is_dir() || path.file_name() != Some(OsStr::new("README.md")));
    match paths.iter().find(|path| !path.is_dir()) {
        None => Ok(paths),
        Some(file) => Err(format!(
            "`{}`: a folder of cases holds a folder for each, and README.md",
            file.display()
        )),
    }
}

/// Fails if a folder holds anything else than these files and folders.
pub(super) fn only(folder: &Path, known: &[&str]) -> Result<(), String> {
    let is_known = |path: &PathBuf| known.iter().any(|known| path.ends_with(known));
    match entries(folder)?.iter().find(|path| !is_known(path)) {
        None => Ok(()),
        Some(path) => {
            let known = known.join(", ");
            Err(format!("`{}` is unknown: a case holds {known}", path.display()))
        }
    }
}

/// Reads the configuration of a case, as JSON.
pub(super) fn config(folder: &Path) -> Result<String, String> {
    let config = value(&folder.join(CONFIG))?;
    Ok(config.map_or_else(|| "{}".to_owned(), |config| config.to_string()))
}

/// Reads the objects in the files of a case. There may be none.
pub(super) fn objects_of(folder: &Path) -> Result<Vec<Value>, String> {
    let paths = [folder.join(OBJECTS), folder.join(FOLDER)];
    let loaded: Result<Vec<_>, _> =
        paths.iter().filter(|path| path.exists()).map(|path| load_objects(path)).collect();
    Ok(loaded?.concat())
}

// === impl Case ===

impl Case {
    /// Reads the case in a folder.
    ///
    /// # Errors
    ///
    /// A file is unknown or does not parse, or a field is unknown.
    pub fn load(folder: &Path) -> Result<Self, String> {
        only(folder, &[OBJECTS, FOLDER, CLUSTERS, CONFIG, CASE, CALLS, EXPECTED])?;
        let objects = objects_of(folder)?;
        let how: How = one(&folder.join(CASE))?.unwrap_or_default();
        let wrong = |error: String| format!("`{}`: {error}", folder.join(CASE).display());
        let now = how.now.as_deref().unwrap_or(DEFAULT_NOW);
        let (clusters, of_clusters) = remotes(&folder.join(CLUSTERS), how.clusters)?;
        let first = Step {
            missing: Some(how.missing),
            refuse: how.refuse,
            clusters: of_clusters,
            ..Step::default()
        };
        let case = Self {
            name: folder.file_name().and_then(OsStr::to_str).unwrap_or_default().to_owned(),
            folder: folder.to_owned(),
            config: config(folder)?,
            now: now.parse().map_err(|error| wrong(format!("now: `{now}`: {error}")))?,
            only: how
                .only
                .as_deref()
                .map(Pattern::parse)
                .transpose()
                .map_err(|error| wrong(format!("only: {error}")))?,
            validate: how.validate.unwrap_or(true),
            steps: std::iter::once(first).chain(how.steps).collect(),
            calls: calls(&folder.join(CALLS))?,
            expected: Expected::load(&folder.join(EXPECTED))?,
            objects,
            clusters,
        };
        case.check().map_err(wrong)?;
        let documents = case.expected.as_ref().map_or(0, |expected| expected.documents.len());
        for (file, documents) in [(EXPECTED, documents), (CALLS, case.calls.len())] {
            if documents > case.steps.len() {
                return Err(format!(
                    "`{}` holds {documents} documents: one for the first reconciles and one for each of {} steps are expected",
                    folder.join(file).display(),
                    case.steps.len() - 1
                ));
            }
        }
        Ok(case)
    }

    fn check(&self) -> Result<(), String> {
        for (index, step) in self.steps.iter().enumerate() {
            let at = |error: String| match index {
                0 => error,
                _ => format!("steps[{}].{error}", index - 1),
            };
            step.check().map_err(at)?;
            if step.unreachable.is_some() {
                return Err(at("unreachable: the home cluster is always reachable".to_owned()));
            }
            for (folder, changes) in &step.clusters {
                let at = |error: String| at(format!("clusters.{folder}.{error}"));
                changes.check().map_err(at)?;
                self.check_changes(folder, changes).map_err(at)?;
            }
        }
        Ok(())
    }

    /// Checks that the changes of a step to another cluster are of a cluster, and of nothing else.
    fn check_changes(&self, folder: &str, changes: &Step) -> Result<(), String> {
        if !self.clusters.iter().any(|cluster| cluster.folder == folder) {
            return Err("name: `clusters` at the beginning names each cluster".to_owned());
        }
        let Step { note, after, clusters, .. } = changes;
        if note.is_some() || after.is_some() || !clusters.is_empty() {
            return Err("note, after, clusters: these are of a step, not of a cluster".to_owned());
        }
        Ok(())
    }

    /// Returns the path of `expected.yaml`.
    pub fn expected_file(&self) -> PathBuf {
        self.folder.join(EXPECTED)
    }
}

// === impl Step ===

impl Step {
    /// Checks the fields that each cluster has. An error begins with the field.
    fn check(&self) -> Result<(), String> {
        for text in &self.delete {
            Pattern::parse(text).map_err(|error| format!("delete: {error}"))?;
        }
        for object in self.apply.iter().chain(&self.patch) {
            named(object).map_err(|error| format!("apply or patch: {error}"))?;
        }
        for refuse in &self.refuse {
            Pattern::parse(&refuse.write).map_err(|error| format!("refuse: {error}"))?;
            if !(400..500).contains(&refuse.code) || refuse.code == 429 {
                let why = "the host asks again after 429 and 5xx, which never reach a processor";
                return Err(format!("refuse: code {}: a 4xx other than 429 ({why})", refuse.code));
            }
        }
        Ok(())
    }
}

// === impl Expected ===

impl Expected {
    fn load(path: &Path) -> Result<Option<Self>, String> {
        if !path.exists() {
            return Ok(None);
        }
        let text = read(path)?;
        let mut documents: Vec<Document> = parse(path, &text)?;
        let mut texts: Vec<String> = vec![String::new()];
        for line in text.lines() {
            if line.trim_end() == "---" {
                texts.push(String::new());
            } else if let Some(last) = texts.last_mut() {
                last.push_str(line);
                last.push('\n');
            }
        }
        let says = |text: &String| {
            text.lines().any(|line| !line.trim().is_empty() && !line.starts_with('#'))
        };
        if texts.len() > 1 && !texts.first().is_some_and(says) {
            // The file begins with a separator.
            let head = texts.remove(0);
            if let Some(first) = texts.first_mut() {
                *first = head + first;
            }
        }
        if documents.is_empty() {
            documents.push(Document::default());
        }
        Ok(Some(Self { texts, documents }))
    }
}

// === files ===

/// Reads the calls of a case; there may be none.
fn calls(path: &Path) -> Result<Vec<Calls>, String> {
    if path.exists() { scripted(path) } else { Ok(Vec::new()) }
}

/// Reads the calls in a file.
pub(super) fn scripted(path: &Path) -> Result<Vec<Calls>, String> {
    let documents: Vec<Calls> = parse(path, &read(path)?)?;
    for (index, calls) in documents.iter().enumerate() {
        calls
            .check()
            .map_err(|error| format!("`{}`, document {}: {error}", path.display(), index + 1))?;
    }
    Ok(documents)
}

/// Reads the objects of the other clusters, and returns the beginning of each besides.
fn remotes(
    folder: &Path,
    how: BTreeMap<String, HowRemote>,
) -> Result<(Vec<Remote>, BTreeMap<String, Step>), String> {
    let known: Vec<&str> = how.keys().map(String::as_str).collect();
    if folder.exists() {
        let is_known = |path: &PathBuf| known.iter().any(|known| path.ends_with(known));
        if let Some(unknown) = entries(folder)?.iter().find(|path| !is_known(path)) {
            let path = unknown.display();
            return Err(format!(
                "`{path}` is unknown: `clusters` in {CASE} names each folder and its cluster"
            ));
        }
    }
    let (mut clusters, mut beginnings) = (Vec::new(), BTreeMap::new());
    for (name_of_folder, HowRemote { name, missing, refuse, unreachable }) in how {
        let path = folder.join(&name_of_folder);
        let objects = if path.exists() { load_objects(&path)? } else { Vec::new() };
        let (missing, unreachable) = (Some(missing), Some(unreachable));
        let beginning = Step { missing, refuse, unreachable, ..Step::default() };
        beginnings.insert(name_of_folder.clone(), beginning);
        clusters.push(Remote { folder: name_of_folder, name, objects });
    }
    Ok((clusters, beginnings))
}

/// Returns the paths of a folder's entries, ordered by name.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let unreadable = |error: std::io::Error| {
        let folder = folder.display();
        format!("cannot read `{folder}`, which is to be a folder of cases: {error}")
    };
    let entries: Result<Vec<PathBuf>, _> = std::fs::read_dir(folder)
        .map_err(unreadable)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect();
    let mut entries = entries.map_err(unreadable)?;
    entries.sort();
    Ok(entries)
}

/// Reads the objects of a file, or of all `.yaml`, `.yml` and `.json` files right in a folder,
/// ordered by name.
///
/// # Errors
///
/// A file cannot be read or parsed, a value is no object, or a folder holds no object.
pub fn load_objects(path: &Path) -> Result<Vec<Value>, String> {
    let is_object_file = |path: &PathBuf| {
        let ending = path.extension().and_then(OsStr::to_str);
        ending.is_some_and(|ending| ["yaml", "yml", "json"].contains(&ending))
    };
    let files = if path.is_dir() {
        entries(path)?.into_iter().filter(is_object_file).collect()
    } else {
        vec![path.to_owned()]
    };
    let mut objects = Vec::new();
    for file in &files {
        for yaml::Document(document) in parse(file, &read(file)?)? {
            collect(document, &mut objects)
                .map_err(|error| format!("`{}`: {error}", file.display()))?;
        }
    }
    if objects.is_empty() && path.is_dir() {
        return Err(format!("`{}` holds no object in a .yaml, .yml or .json file", path.display()));
    }
    Ok(objects)
}

fn collect(document: Value, objects: &mut Vec<Value>) -> Result<(), String> {
    match document {
        Value::Null => Ok(()),
        Value::Array(items) => items.into_iter().try_for_each(|item| collect(item, objects)),
        object => {
            named(&object)?;
            objects.push(object);
            Ok(())
        }
    }
}

/// Fails if an object lacks apiVersion, kind or metadata.name.
fn named(object: &Value) -> Result<(), String> {
    let is_there = |pointer: &str| {
        object.pointer(pointer).and_then(Value::as_str).is_some_and(|text| !text.is_empty())
    };
    match ["/apiVersion", "/kind", "/metadata/name"].iter().find(|pointer| !is_there(pointer)) {
        None => Ok(()),
        Some(missing) => {
            let field = missing.trim_start_matches('/').replace('/', ".");
            Err(format!(
                "an object needs `apiVersion`, `kind` and `metadata.name`; `{field}` is missing"
            ))
        }
    }
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read `{}`: {error}", path.display()))
}

/// Reads the only document of a file; `None` if the file does not exist or holds no document.
pub(super) fn one<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, String> {
    if !path.exists() {
        return Ok(None);
    }
    let mut documents = parse::<T>(path, &read(path)?)?;
    if documents.len() > 1 {
        return Err(format!(
            "`{}`: one document is expected, {} are there",
            path.display(),
            documents.len()
        ));
    }
    Ok(documents.pop())
}

/// Reads the only document of a file as [`one`] does, as kubectl reads an object.
pub(super) fn value(path: &Path) -> Result<Option<Value>, String> {
    Ok(one::<yaml::Document>(path)?.map(|document| document.0))
}

/// Parses the documents of a file: by the rules of kubectl, as far as they are objects.
fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<Vec<T>, String> {
    serde_saphyr::from_multiple_with_options(text, yaml::options())
        .map_err(|error| format!("`{}`: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn other_clusters_of_a_case_are_named() {
        let how = |text: &str| parse::<How>(Path::new("case.yaml"), text).unwrap().remove(0);
        let text = "clusters: {provider: {name: a/b/c, missing: [d.e], unreachable: true}}";
        let (clusters, beginnings) = remotes(Path::new("nowhere"), how(text).clusters).unwrap();
        assert_eq!((&*clusters[0].folder, &*clusters[0].name), ("provider", "a/b/c"));
        let beginning = &beginnings["provider"];
        assert_eq!(beginning.missing.as_deref(), Some(&["d.e".to_owned()][..]));
        assert_eq!(beginning.unreachable, Some(true));

        let step = |text: &str| how(&format!("steps: [{text}]")).steps.remove(0);
        let cases = [
            ("{unreachable: true}", "steps[0].unreachable: the home cluster is always reachable"),
            ("{clusters: {other: {}}}", "steps[0].clusters.other.name: "),
            ("{clusters: {provider: {after: 1s}}}", "steps[0].clusters.provider.note, after"),
            ("{clusters: {provider: {delete: [a]}}}", "steps[0].clusters.provider.delete: `a`"),
        ];
        for (text, expected) in cases {
            let case = Case {
                name: String::new(),
                folder: PathBuf::new(),
                objects: Vec::new(),
                clusters: clusters.clone(),
                config: String::new(),
                now: Timestamp::UNIX_EPOCH,
                only: None,
                validate: true,
                steps: vec![Step::default(), step(text)],
                calls: Vec::new(),
                expected: None,
            };
            let error = case.check().unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn objects_of_a_case_are_read_as_kubectl_reads_them() {
        let path = Path::new("case.yaml");
        let text =
            "steps:\n- apply: [{mode: 0400, no: 08}]\n  patch: [{mode: '0400'}]\n- after: 1s\n";
        let steps = parse::<How>(path, text).unwrap().remove(0).steps;
        assert_eq!(steps[0].apply, [json!({"mode": 256, "false": 8})]);
        assert_eq!(steps[0].patch, [json!({"mode": "0400"})]);
        assert_eq!((steps[1].apply.len(), steps[1].patch.len()), (0, 0));
        let expected =
            parse::<Document>(path, "objects: [{y: 010}]\n---\ngone: [a/b/c]\n").unwrap();
        assert_eq!(expected[0].objects, [json!({"true": 8})]);
        assert_eq!(expected[1].objects, [json!(null); 0]);
    }
}
