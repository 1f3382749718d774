//! Paths of the contract: `spec.hosts[]`, `spec.containers[name=app].image`, `metadata.annotations["example.com/a.b"]`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A place in an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Path {
    steps: Vec<Step>,
}

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Key(String),
    Every,
    /// The elements of a list that hold these texts under these keys.
    Item(Vec<(String, String)>),
}

/// A set of paths, as a tree.
#[derive(Debug, Clone, Default)]
pub(super) struct Fields {
    whole: bool,
    below: BTreeMap<Step, Fields>,
}

/// In every answer, whatever was asked for.
const ALWAYS: [&str; 6] =
    ["name", "namespace", "uid", "deletionTimestamp", "generation", "resourceVersion"];

impl Path {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let invalid = |why: &str| format!("path `{text}`: {why}");
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(inner) = rest.strip_prefix('[') {
                let (step, after) =
                    bracket(inner).ok_or_else(|| invalid("a bracket does not end"))?;
                steps.push(step);
                rest = after;
                continue;
            }
            let rest_of = if steps.is_empty() {
                rest
            } else {
                rest.strip_prefix('.').ok_or_else(|| invalid("a `.` is missing"))?
            };
            let end = rest_of.find(['.', '[']).unwrap_or(rest_of.len());
            let (key, after) = rest_of.split_at(end);
            if key.is_empty() {
                return Err(invalid("a name is empty"));
            }
            steps.push(Step::Key(key.to_owned()));
            rest = after;
        }
        if steps.is_empty() { Err(invalid("it is empty")) } else { Ok(Self { steps }) }
    }

    /// Whether the object holds this value there, as text; of a path through lists, at any element.
    pub(super) fn holds(&self, object: &Value, value: &str) -> bool {
        fn any(steps: &[Step], value: &Value, wanted: &str) -> bool {
            match steps.split_first() {
                None => is_text(value, wanted),
                Some((step, rest)) => {
                    children(step, value).any(|(_, child)| any(rest, child, wanted))
                }
            }
        }
        any(&self.steps, object, value)
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// A JSON pointer for everything that the path finds.
    pub(super) fn pointers(&self, object: &Value) -> Vec<String> {
        fn all(steps: &[Step], value: &Value, pointer: &str, found: &mut Vec<String>) {
            let Some((step, rest)) = steps.split_first() else {
                return found.push(pointer.to_owned());
            };
            for (token, child) in children(step, value) {
                let token = token.replace('~', "~0").replace('/', "~1");
                all(rest, child, &format!("{pointer}/{token}"), found);
            }
        }
        let mut found = Vec::new();
        all(&self.steps, object, "", &mut found);
        found
    }

    /// Whether all that `other` can find lies in what this one finds.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let covers = |mine: &Step, theirs: &Step| match (mine, theirs) {
            (Step::Every, Step::Every | Step::Item(_)) => true,
            (Step::Item(mine), Step::Item(theirs)) => mine.iter().all(|pair| theirs.contains(pair)),
            (mine, theirs) => mine == theirs,
        };
        self.steps.len() <= other.steps.len()
            && self.steps.iter().zip(&other.steps).all(|(mine, theirs)| covers(mine, theirs))
    }

    /// Whether every answer holds it.
    pub(super) fn is_always_there(&self) -> bool {
        match self.steps.as_slice() {
            [Step::Key(key)] => key == "apiVersion" || key == "kind",
            [Step::Key(first), Step::Key(second)] => {
                first == "metadata" && ALWAYS.contains(&second.as_str())
            }
            _ => false,
        }
    }
}

/// One step in brackets, and what comes after it.
fn bracket(inner: &str) -> Option<(Step, &str)> {
    if let Some(after) = inner.strip_prefix(']') {
        return Some((Step::Every, after));
    }
    let (key, mut rest) = word(inner)?;
    if inner.starts_with('"') && rest.starts_with(']') {
        return Some((Step::Key(key), rest.get(1..)?));
    }
    let (value, after) = word(rest.strip_prefix('=')?)?;
    let mut pairs = vec![(key, value)];
    rest = after;
    while let Some(more) = rest.strip_prefix(',') {
        let (key, after) = word(more)?;
        let (value, after) = word(after.strip_prefix('=')?)?;
        pairs.push((key, value));
        rest = after;
    }
    Some((Step::Item(pairs), rest.strip_prefix(']')?))
}

/// A quoted text, or one that ends before `=`, `,` or `]`; and what comes after it.
fn word(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(['=', ',', ']', '"'])?;
        let (word, after) = text.split_at(end);
        return (!word.is_empty()).then(|| (word.to_owned(), after));
    };
    let mut word = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((word, quoted.get(at + 1..)?)),
            '\\' => word.extend(characters.next().map(|(_, escaped)| escaped)),
            other => word.push(other),
        }
    }
    None
}

/// What a step finds, with the tokens of its JSON pointers.
fn children<'a>(
    step: &'a Step,
    value: &'a Value,
) -> Box<dyn Iterator<Item = (String, &'a Value)> + 'a> {
    match (step, value) {
        (Step::Key(key), Value::Object(map)) => {
            Box::new(map.get(key).into_iter().map(|value| (key.clone(), value)))
        }
        (Step::Every | Step::Item(_), Value::Array(list)) => Box::new(
            list.iter()
                .enumerate()
                .filter(|(_, element)| step.is_item(element))
                .map(|(at, element)| (at.to_string(), element)),
        ),
        _ => Box::new(std::iter::empty()),
    }
}

/// Whether a scalar is written so.
fn is_text(value: &Value, wanted: &str) -> bool {
    match value {
        Value::String(text) => text == wanted,
        Value::Number(number) => number.to_string() == wanted,
        Value::Bool(value) => (if *value { "true" } else { "false" }) == wanted,
        _ => false,
    }
}

impl Step {
    /// Whether it means this element of a list.
    pub(super) fn is_item(&self, element: &Value) -> bool {
        match self {
            Self::Item(pairs) => pairs
                .iter()
                .all(|(key, wanted)| element.get(key).is_some_and(|held| is_text(held, wanted))),
            Self::Every => true,
            Self::Key(_) => false,
        }
    }
}

impl Fields {
    pub(super) fn whole() -> Self {
        Self { whole: true, below: BTreeMap::new() }
    }

    pub(super) fn of(paths: &[Path]) -> Self {
        let mut root = Self::default();
        for path in paths {
            let mut node = &mut root;
            for step in &path.steps {
                node = node.below.entry(step.clone()).or_default();
            }
            node.whole = true;
        }
        root
    }

    /// The object with these fields, and those that are in every answer.
    pub(super) fn project(&self, object: &Value) -> Value {
        let mut answer = self.cut(object).unwrap_or_else(|| Value::Object(Map::new()));
        if let (Some(kind), Some(answer)) = (object.get("kind"), answer.as_object_mut()) {
            answer.insert("kind".to_owned(), kind.clone());
            let metadata = answer.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
            if let Some(metadata) = metadata.as_object_mut() {
                let always = ALWAYS
                    .iter()
                    .filter_map(|key| Some((*key, object.get("metadata")?.get(*key)?)));
                metadata.extend(always.map(|(key, value)| (key.to_owned(), value.clone())));
                metadata.remove("managedFields");
            }
        }
        answer
    }

    fn cut(&self, value: &Value) -> Option<Value> {
        if self.whole {
            return Some(value.clone());
        }
        match value {
            Value::Object(map) => {
                let kept = self.below.iter().filter_map(|(step, below)| {
                    let Step::Key(key) = step else { return None };
                    Some((key.clone(), below.cut(map.get(key)?)?))
                });
                Some(Value::Object(kept.collect()))
            }
            Value::Array(list) => {
                Some(list.iter().filter_map(|element| self.cut_element(element)).collect())
            }
            _ => None,
        }
    }

    fn cut_element(&self, element: &Value) -> Option<Value> {
        let mut parts = self
            .below
            .iter()
            .filter(|(step, _)| step.is_item(element))
            .map(|(_, below)| below.cut(element));
        let first = parts.next()??;
        Some(parts.flatten().fold(first, merge))
    }
}

fn merge(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Object(mut a), Value::Object(b)) => {
            for (key, value) in b {
                let merged = match a.remove(&key) {
                    Some(former) => merge(former, value),
                    None => value,
                };
                a.insert(key, merged);
            }
            Value::Object(a)
        }
        (a, _) => a,
    }
}
