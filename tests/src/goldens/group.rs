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
    /// Instead of `to`: texts that begin with this, the original's and ours, count as equal.
    begins: Option<String>,
    /// The inputs to which the rule applies; all of them if it is missing.
    when: Option<When>,
    reason: String,
}

/// A condition on the input: a place in a file holds a text, or a value.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct When {
    file: String,
    /// A JSON pointer in the list of the file's documents, with `*` as above.
    at: String,
    /// The type of the value there: `string`, `number`, `boolean`, `array`, `object`.
    is: String,
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
            let applies = rule.when.as_ref().is_none_or(|when| when.holds(case));
            let path: Vec<&str> = rule.at.split('/').skip(1).collect();
            let changes = match &rule.begins {
                _ if !applies => false,
                None => rule.change(&mut expected, &path),
                Some(begin) => take_over(&mut expected, ours, &rule.at, begin),
            };
            if changes {
                reasons.push(rule.reason.clone());
            }
        }
        (expected, reasons)
    }
}

/// Replaces a text by ours, if the two differ and begin in the same way.
fn take_over(expected: &mut Value, ours: &Value, at: &str, begin: &str) -> bool {
    let begins = |text: &&str| text.starts_with(begin);
    let text = ours.pointer(at).and_then(Value::as_str).filter(begins);
    let (Some(expected), Some(text)) = (expected.pointer_mut(at), text) else { return false };
    let changes = expected.as_str().filter(begins).is_some_and(|original| original != text);
    if changes {
        *expected = text.into();
    }
    changes
}

impl Rule {
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

impl When {
    fn holds(&self, case: &GroupCase) -> bool {
        let path: Vec<&str> = self.at.split('/').skip(1).collect();
        let documents = Value::Array(case.documents(&self.file).to_vec());
        self.holds_at(&documents, &path)
    }

    fn holds_at(&self, value: &Value, path: &[&str]) -> bool {
        match (path, value) {
            ([], value) => self.is == type_of(value),
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
mod tests {
    use serde_json::json;

    use super::*;

    fn case(input: Value) -> GroupCase {
        GroupCase { name: "a".to_owned(), files: [("cluster.yaml".to_owned(), vec![input])].into() }
    }

    fn rules(rule: &Value) -> Rules {
        serde_json::from_value(json!([rule])).unwrap()
    }

    #[test]
    fn a_rule_changes_its_places_and_no_others() {
        let rules = rules(&json!({
            "group": "g", "part": "p", "at": "/list/*/port", "from": 0, "to": 443, "reason": "r",
            "when": {"file": "cluster.yaml", "at": "/*/port", "is": "string"},
        }));
        let original = json!({"list": [{"port": 0}, {"port": 1}, {"other": 0}]});
        let changed = json!({"list": [{"port": 443}, {"port": 1}, {"other": 0}]});
        let named = case(json!({"port": "api"}));
        let reasons = vec!["r".to_owned()];
        assert_eq!(rules.apply(("g", "p"), &named, &original, &json!(null)), (changed, reasons));
        for (group, part, port) in
            [("h", "p", json!("a")), ("g", "q", json!("a")), ("g", "p", json!(1))]
        {
            let case = case(json!({"port": port}));
            assert_eq!(
                rules.apply((group, part), &case, &original, &json!(null)),
                (original.clone(), vec![])
            );
        }
    }

    #[test]
    fn a_rule_adds_replaces_and_removes() {
        let cases = [
            (json!({"at": "/a", "to": null}), json!({"b": [1]})),
            (json!({"at": "/c", "to": 2}), json!({"a": {"x/y": 1}, "b": [1], "c": 2})),
            (json!({"at": "/a/x~1y", "to": 3}), json!({"a": {"x/y": 3}, "b": [1]})),
            (json!({"at": "/b/0", "to": 3}), json!({"a": {"x/y": 1}, "b": [3]})),
            (json!({"at": "/none/x", "to": 3}), json!({"a": {"x/y": 1}, "b": [1]})),
            (json!({"to": "whole"}), json!("whole")),
        ];
        for (rule, expected) in cases {
            let mut whole = json!({"group": "g", "part": "p", "reason": "r"});
            whole.as_object_mut().unwrap().extend(rule.as_object().unwrap().clone());
            let original = json!({"a": {"x/y": 1}, "b": [1]});
            let (changed, _) =
                rules(&whole).apply(("g", "p"), &case(json!({})), &original, &json!(null));
            assert_eq!(changed, expected, "{rule}");
        }
    }

    #[test]
    fn texts_that_begin_in_the_same_way_count_as_equal() {
        let rules = rules(&json!({
            "group": "g", "part": "p", "at": "/error", "begins": "broken: ", "reason": "r",
        }));
        let cases = [
            ("broken: one", "broken: two", "broken: two", 1),
            ("broken: one", "broken: one", "broken: one", 0),
            ("broken: one", "other", "broken: one", 0),
            ("other", "broken: two", "other", 0),
        ];
        for (original, ours, expected, reasons) in cases {
            let [original, ours, expected] =
                [original, ours, expected].map(|error| json!({"error": error}));
            let (changed, why) = rules.apply(("g", "p"), &case(json!({})), &original, &ours);
            assert_eq!((changed, why.len()), (expected, reasons));
        }
    }
}
