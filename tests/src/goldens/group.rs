//! Cases in groups: a folder for each group holds a folder for each case, which holds files of
//! inputs and outputs. Intended differences are rules, never names of cases.

use std::{collections::BTreeMap, path::Path};

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::Value;

use super::Case;

/// A recorded case of a group.
#[derive(Debug, Clone)]
pub struct GroupCase {
    /// The name of the case's folder.
    pub name: String,
    /// The documents of each file, by the file's name.
    files: BTreeMap<String, Vec<Value>>,
}

/// The rules by which our output differs from the original's on purpose.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(transparent)]
pub struct Rules(Vec<Rule>);

/// A rule by which a part of the output of a group differs.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    group: String,
    part: String,
    /// The places that differ: a JSON pointer in which `*` stands for each item of a list. Empty:
    /// the whole part.
    #[serde(default)]
    at: String,
    /// Only values that equal this one differ.
    from: Option<Value>,
    /// Our value; null: none.
    #[serde(default)]
    to: Value,
    /// Instead of `to`: texts that begin with this, the original's and ours, count as equal. With
    /// `from`, only ours must begin with it.
    begins: Option<String>,
    /// Instead of `to`: the items of a list of texts, or the keys of a map, that ours may have
    /// besides; `*` stands for all.
    #[serde(default)]
    besides: Vec<String>,
    /// Instead of `to`: the items of a list of texts that ours may lack; `*` stands for all.
    #[serde(default)]
    lacks: Vec<String>,
    /// Instead of `to`: a map that is laid over the one at the place, and its maps over those there.
    over: Option<Value>,
    /// The cases to which the rule applies; all of them if it is missing.
    when: Option<Whens>,
    reason: String,
}

/// One condition, or several that must all hold.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Whens {
    One(When),
    All(Vec<When>),
}

/// A condition on a case: a place in a file, of inputs or of the original's outputs, holds a value.
#[derive(Debug, Clone, Deserialize)]
struct When {
    file: String,
    /// A JSON pointer in the list of the file's documents, with `*` as above.
    at: String,
    #[serde(flatten)]
    test: Test,
}

/// The test of the value at a place.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Test {
    /// It has this type: `string`, `number`, `boolean`, `array`, `object`.
    Is(String),
    /// It is one of these values.
    In(Vec<Value>),
    /// It is a text that begins with one of these.
    Begins(Vec<String>),
}

/// Returns the cases of a group, sorted by name.
///
/// # Errors
///
/// Fails if the folder cannot be read or holds no case, or if a file does not parse.
pub fn cases(folder: &Path) -> anyhow::Result<Vec<GroupCase>> {
    let mut cases = Vec::new();
    for path in entries(folder)? {
        if path.is_dir() {
            let files = entries(&path)?
                .into_iter()
                .map(|file| Ok((name(&file), documents(&file)?)))
                .collect::<anyhow::Result<_>>()?;
            cases.push(GroupCase { name: name(&path), files });
        }
    }
    anyhow::ensure!(!cases.is_empty(), "`{}` holds no case", folder.display());
    Ok(cases)
}

fn entries(folder: &Path) -> anyhow::Result<Vec<std::path::PathBuf>> {
    let failed = || format!("cannot read the goldens in `{}`", folder.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(failed)? {
        paths.push(entry.with_context(failed)?.path());
    }
    paths.sort();
    Ok(paths)
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn documents(file: &Path) -> anyhow::Result<Vec<Value>> {
    let failed = || format!("golden `{}`", file.display());
    let text = std::fs::read_to_string(file).with_context(failed)?;
    if file.extension().is_some_and(|extension| extension == "json") {
        return Ok(vec![serde_json::from_str(&text).with_context(failed)?]);
    }
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).with_context(failed)?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

impl GroupCase {
    /// Returns the documents of a file; none if the file does not exist.
    pub fn documents(&self, file: &str) -> &[Value] {
        self.files.get(file).map(Vec::as_slice).unwrap_or_default()
    }

    /// Adds a file, such as one of facts that follow from the others.
    pub fn add(&mut self, file: &str, documents: Vec<Value>) {
        self.files.insert(file.to_owned(), documents);
    }

    /// Returns the only document of a file; null if the file does not exist.
    pub fn document(&self, file: &str) -> &Value {
        self.documents(file).first().unwrap_or(&Value::Null)
    }
}

/// A case without a group, as one whose only file is `input.yaml`.
impl From<&Case> for GroupCase {
    fn from(case: &Case) -> Self {
        let files = [("input.yaml".to_owned(), vec![case.input.clone()])];
        Self { name: case.name.clone(), files: files.into() }
    }
}

impl Rules {
    /// Reads rules.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or does not parse.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read the rules `{}`", file.display()))?;
        serde_saphyr::from_str(&text).with_context(|| format!("`{}`", file.display()))
    }

    /// Returns the output expected of ours, given the original's and ours, and the reasons why it
    /// differs from the original's.
    pub fn apply(
        &self,
        (group, part): (&str, &str),
        case: &GroupCase,
        original: &Value,
        ours: &Value,
    ) -> (Value, Vec<String>) {
        let (mut expected, mut reasons) = (original.clone(), Vec::new());
        for rule in self.0.iter().filter(|rule| rule.group == group && rule.part == part) {
            let applies = rule.when.as_ref().is_none_or(|when| when.hold(case));
            let path: Vec<&str> = rule.at.split('/').skip(1).collect();
            let changes = match &rule.begins {
                _ if !applies => false,
                Some(begin) => rule.take_over(&mut expected, ours, begin),
                None if !rule.besides.is_empty() => rule.add(&mut expected, ours),
                None if !rule.lacks.is_empty() => rule.drop(&mut expected, ours),
                None => match (&rule.over, expected.pointer_mut(&rule.at)) {
                    (None, _) => rule.change(&mut expected, &path),
                    (Some(over), Some(place)) => lay(over, place),
                    (Some(_), None) => false,
                },
            };
            if changes {
                reasons.push(rule.reason.clone());
            }
        }
        (expected, reasons)
    }
}

/// Lays a value over another one; returns whether anything differs now.
fn lay(over: &Value, value: &mut Value) -> bool {
    match (over, value) {
        (Value::Object(over), Value::Object(map)) => over
            .iter()
            .map(|(key, over)| lay(over, map.entry(key).or_insert(Value::Null)))
            .fold(false, |a, b| a | b),
        (over, value) => over != &std::mem::replace(value, over.clone()),
    }
}

impl Rule {
    /// Replaces a text by ours, if the two differ and count as equal.
    fn take_over(&self, expected: &mut Value, ours: &Value, begin: &str) -> bool {
        let begins = |text: &&str| text.starts_with(begin);
        let text = ours.pointer(&self.at).and_then(Value::as_str).filter(begins);
        let (Some(expected), Some(text)) = (expected.pointer_mut(&self.at), text) else {
            return false;
        };
        let is_meant = match &self.from {
            Some(from) => from == expected,
            None => expected.as_str().is_some_and(|text| text.starts_with(begin)),
        };
        let changes = is_meant && expected != text;
        if changes {
            *expected = text.into();
        }
        changes
    }

    /// Adds what ours may have besides, where it has it.
    fn add(&self, expected: &mut Value, ours: &Value) -> bool {
        let (Some(expected), Some(ours)) = (expected.pointer_mut(&self.at), ours.pointer(&self.at))
        else {
            return false;
        };
        let may_be = |name: &str| self.besides.iter().any(|key| key == "*" || key == name);
        let former = expected.clone();
        match (&mut *expected, ours) {
            (Value::Array(expected), Value::Array(ours)) => {
                let known = expected.clone();
                let more = ours.iter().filter(|item| item.as_str().is_some_and(may_be));
                expected.extend(more.filter(|item| !known.contains(item)).cloned());
                expected.sort_by_cached_key(Value::to_string);
            }
            (Value::Object(expected), Value::Object(ours)) => {
                for (key, value) in ours.iter().filter(|(key, _)| may_be(key)) {
                    expected.entry(key).or_insert_with(|| value.clone());
                }
            }
            _ => {}
        }
        *expected != former
    }

    /// Drops what ours may lack, where it lacks it.
    fn drop(&self, expected: &mut Value, ours: &Value) -> bool {
        let expected = expected.pointer_mut(&self.at).and_then(Value::as_array_mut);
        let ours = ours.pointer(&self.at).and_then(Value::as_array);
        let (Some(expected), Some(ours)) = (expected, ours) else { return false };
        let may_lack = |name: &str| self.lacks.iter().any(|key| key == "*" || key == name);
        let before = expected.len();
        expected.retain(|item| ours.contains(item) || !item.as_str().is_some_and(may_lack));
        expected.len() < before
    }

    /// Changes the value at a path; returns whether anything differs now.
    fn change(&self, value: &mut Value, path: &[&str]) -> bool {
        let is_meant = |value: &Value| self.from.as_ref().is_none_or(|from| from == value);
        match (path, value) {
            ([], value) => {
                let changes = is_meant(value) && *value != self.to;
                if changes {
                    *value = self.to.clone();
                }
                changes
            }
            (["*", rest @ ..], Value::Array(items)) => {
                items.iter_mut().map(|item| self.change(item, rest)).fold(false, |a, b| a | b)
            }
            ([key], Value::Object(map)) if self.to.is_null() => {
                let key = unescaped(key);
                map.get(&key).is_some_and(is_meant) && map.remove(&key).is_some()
            }
            ([key], Value::Object(map)) if self.from.is_none() => {
                map.insert(unescaped(key), self.to.clone()).as_ref() != Some(&self.to)
            }
            ([key, rest @ ..], Value::Object(map)) => {
                map.get_mut(&unescaped(key)).is_some_and(|value| self.change(value, rest))
            }
            ([key, rest @ ..], Value::Array(items)) => {
                let item = key.parse::<usize>().ok().and_then(|index| items.get_mut(index));
                item.is_some_and(|item| self.change(item, rest))
            }
            _ => false,
        }
    }
}

impl Whens {
    fn hold(&self, case: &GroupCase) -> bool {
        match self {
            Self::One(when) => when.holds(case),
            Self::All(whens) => whens.iter().all(|when| when.holds(case)),
        }
    }
}

impl Test {
    fn holds(&self, value: &Value) -> bool {
        match self {
            Self::Is(name) => name == type_of(value),
            Self::In(values) => values.contains(value),
            Self::Begins(texts) => {
                value.as_str().is_some_and(|text| texts.iter().any(|begin| text.starts_with(begin)))
            }
        }
    }
}

impl When {
    fn holds(&self, case: &GroupCase) -> bool {
        let path: Vec<&str> = self.at.split('/').skip(1).collect();
        let documents = Value::Array(case.documents(&self.file).to_vec());
        self.holds_at(&documents, &path)
    }

    fn holds_at(&self, value: &Value, path: &[&str]) -> bool {
        match (path, value) {
            ([], value) => self.test.holds(value),
            (["*", rest @ ..], Value::Array(items)) => {
                items.iter().any(|item| self.holds_at(item, rest))
            }
            ([key, rest @ ..], Value::Object(map)) => {
                map.get(&unescaped(key)).is_some_and(|value| self.holds_at(value, rest))
            }
            _ => false,
        }
    }
}

fn unescaped(key: &str) -> String {
    key.replace("~1", "/").replace("~0", "~")
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests;
