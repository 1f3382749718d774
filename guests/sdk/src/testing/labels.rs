//! Label selectors, in kubectl's syntax.

use serde_json::Value;

/// A parsed label selector: all of its requirements must hold.
pub(super) struct Selector {
    requirements: Vec<Requirement>,
}

enum Requirement {
    Exists(String),
    Missing(String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
}

impl Selector {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let parts = split(text);
        let requirements: Result<Vec<_>, String> = parts
            .iter()
            .map(|part| part.trim())
            .filter(|part| !part.is_empty())
            .map(Requirement::parse)
            .collect();
        Ok(Self { requirements: requirements? })
    }

    pub(super) fn matches(&self, labels: Option<&Value>) -> bool {
        let value =
            |key: &String| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
        self.requirements.iter().all(|requirement| match requirement {
            Requirement::Exists(key) => value(key).is_some(),
            Requirement::Missing(key) => value(key).is_none(),
            Requirement::In(key, values) => {
                value(key).is_some_and(|value| values.iter().any(|other| other == value))
            }
            Requirement::NotIn(key, values) => {
                value(key).is_none_or(|value| values.iter().all(|other| other != value))
            }
        })
    }
}

impl Requirement {
    fn parse(text: &str) -> Result<Self, String> {
        let own = |text: &str| text.trim().to_owned();
        let set = |values: &str| values.split(',').map(own).collect();
        if let Some(key) = text.strip_prefix('!') {
            return Ok(Self::Missing(own(key)));
        }
        if let Some((key, value)) = text.split_once("!=") {
            return Ok(Self::NotIn(own(key), vec![own(value)]));
        }
        if let Some((key, value)) = text.split_once('=') {
            return Ok(Self::In(own(key), vec![own(value.strip_prefix('=').unwrap_or(value))]));
        }
        if let Some((left, values)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
            return match left.trim().rsplit_once(' ') {
                Some((key, "in")) => Ok(Self::In(own(key), set(values))),
                Some((key, "notin")) => Ok(Self::NotIn(own(key), set(values))),
                _ => Err(format!("label selector `{text}`: `in` or `notin` is missing")),
            };
        }
        if text.contains(char::is_whitespace) {
            Err(format!("label selector `{text}`"))
        } else {
            Ok(Self::Exists(own(text)))
        }
    }
}

/// At the commas that are not in parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0;
    text.split(|character| {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        character == ',' && depth == 0
    })
    .collect()
}
