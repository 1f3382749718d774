//! Label and field selectors: parsing, with the messages of Kubernetes, and matching.

mod parse;
#[cfg(test)]
mod tests;

pub(crate) use parse::fields as parse_fields;

use std::collections::BTreeMap;

use serde_json::Value;

/// A conjunction of requirements on labels; the empty one matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

/// A requirement on one label.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// The error of a selector that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);

/// A conjunction of comparisons of fields; the empty one matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector {
    terms: Vec<FieldTerm>,
}

/// A comparison of one field with a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldTerm {
    pub(crate) field: String,
    pub(crate) equal: bool,
    pub(crate) value: String,
}

// === impl LabelSelector ===

impl LabelSelector {
    /// Parses the text form: `app=web,tier in (front,back),!old`.
    ///
    /// # Errors
    ///
    /// Fails if the text is no selector; the message is the one of Kubernetes.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        parse::labels(text)
    }

    /// Reads the form of objects: `{matchLabels: {…}, matchExpressions: […]}`. Expressions with an
    /// unknown operator match nothing.
    pub fn from_value(selector: &Value) -> Self {
        let mut requirements = Vec::new();
        for (key, value) in
            selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten()
        {
            let values = vec![value.as_str().unwrap_or_default().to_owned()];
            requirements.push(Requirement { key: key.clone(), operator: Operator::In, values });
        }
        for expression in
            selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten()
        {
            requirements.push(Requirement::from_expression(expression));
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { requirements }
    }

    /// Returns whether labels satisfy all requirements.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matches_by(|key| labels.get(key).map(String::as_str))
    }

    /// Returns whether labels, given as a function from key to value, satisfy all requirements.
    pub fn matches_by<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(label(&requirement.key)))
    }

    /// Returns whether the selector has no requirements, and so matches everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns the requirements that a label has one certain value, for indexes.
    pub fn equalities(&self) -> impl Iterator<Item = (&str, &str)> {
        self.requirements.iter().filter_map(|requirement| {
            match (requirement.operator, requirement.values.as_slice()) {
                (Operator::In, [only]) => Some((requirement.key.as_str(), only.as_str())),
                _ => None,
            }
        })
    }
}

/// The text form, as in the status of a scale.
impl std::fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, Requirement { key, operator, values }) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            let joined = values.join(",");
            match (operator, values.len()) {
                (Operator::In, 1) => write!(f, "{key}={joined}")?,
                (Operator::In, _) => write!(f, "{key} in ({joined})")?,
                (Operator::NotIn, _) => write!(f, "{key} notin ({joined})")?,
                (Operator::Exists, _) => write!(f, "{key}")?,
                (Operator::DoesNotExist, _) => write!(f, "!{key}")?,
                (Operator::GreaterThan, _) => write!(f, "{key}>{joined}")?,
                (Operator::LessThan, _) => write!(f, "{key}<{joined}")?,
            }
        }
        Ok(())
    }
}

// === impl Requirement ===

impl Requirement {
    fn from_expression(expression: &Value) -> Self {
        let text = |key: &str| expression.get(key).and_then(Value::as_str).unwrap_or_default();
        let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
        let mut values: Vec<String> = values.filter_map(Value::as_str).map(str::to_owned).collect();
        values.sort();
        let operator = match text("operator") {
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "In" => Operator::In,
            _ => {
                values.clear();
                Operator::In
            }
        };
        Self { key: text("key").to_owned(), operator, values }
    }

    fn matches(&self, value: Option<&str>) -> bool {
        let is_one = |value: &str| self.values.iter().any(|wanted| wanted == value);
        let number = |text: &str| text.parse::<i64>().ok();
        let bound = self.values.first().and_then(|text| number(text));
        match self.operator {
            Operator::In => value.is_some_and(is_one),
            Operator::NotIn => !value.is_some_and(is_one),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => {
                value.and_then(number).zip(bound).is_some_and(|(value, bound)| value > bound)
            }
            Operator::LessThan => {
                value.and_then(number).zip(bound).is_some_and(|(value, bound)| value < bound)
            }
        }
    }
}

// === impl FieldSelector ===

impl FieldSelector {
    /// Returns the selector of the object of this name.
    pub(crate) fn of_name(name: &str) -> Self {
        let term =
            FieldTerm { field: "metadata.name".to_owned(), equal: true, value: name.to_owned() };
        Self { terms: vec![term] }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub(crate) fn terms(&self) -> &[FieldTerm] {
        &self.terms
    }

    /// Returns whether fields, given as a function from name to text (empty if absent), satisfy all
    /// terms.
    pub(crate) fn matches(&self, mut field: impl FnMut(&str) -> String) -> bool {
        self.terms.iter().all(|term| (field(&term.field) == term.value) == term.equal)
    }

    /// Returns the only name that can match, if the selector requires one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.terms
            .iter()
            .find(|term| term.equal && term.field == "metadata.name")
            .map(|term| term.value.as_str())
    }
}
