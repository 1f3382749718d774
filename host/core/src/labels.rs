//! Label selectors in kubectl's syntax: `app=web,tier in (a,b),!old`. Owns the syntax, and which
//! labels a selector matches.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde_json::Value;

/// A parsed label selector: all requirements must hold. The empty one selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

/// A requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requirement {
    /// The label's key.
    pub key: Box<str>,
    /// The test that the label's value must pass.
    pub test: Test,
}

/// The test that a label's value must pass.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Test {
    /// The label must be there, with any value.
    Exists,
    /// The label must not be there.
    Absent,
    /// The value must be one of these.
    In(BTreeSet<Box<str>>),
    /// The value must be none of these, or the label must not be there.
    NotIn(BTreeSet<Box<str>>),
}

/// The error for a text that is not a label selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("label selector `{selector}`: {problem}")]
pub struct Invalid {
    pub selector: String,
    /// The reason why the text is not a label selector.
    pub problem: String,
}

// === impl LabelSelector ===

impl LabelSelector {
    /// Parses a selector in kubectl's syntax.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let mut parser = Parser { rest: text.trim_start() };
        let mut requirements = Vec::new();
        while !parser.rest.is_empty() {
            let requirement = parser.requirement().and_then(|requirement| {
                parser.end_of_requirement()?;
                Ok(requirement)
            });
            requirements.push(
                requirement.map_err(|problem| Invalid { selector: text.to_owned(), problem })?,
            );
        }
        Ok(Self { requirements })
    }

    /// Returns whether the selector selects every object.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns the requirements, all of which must hold.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Returns whether an object with these labels is selected; `label` returns the value of a
    /// label.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.test.holds(label(&requirement.key)))
    }

    /// Returns whether an object is selected by its `metadata.labels`.
    pub fn matches_object(&self, object: &Value) -> bool {
        let labels = object.pointer("/metadata/labels");
        self.matches(|key| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str))
    }

    /// Returns whether every object that `other` selects is selected too. Compares single
    /// requirements, so it may return false for some that are.
    pub fn covers(&self, other: &Self) -> bool {
        let implied = |mine: &Requirement| {
            let implies =
                |theirs: &&Requirement| theirs.key == mine.key && mine.test.covers(&theirs.test);
            other.requirements.iter().any(|theirs| implies(&theirs))
        };
        self.requirements.iter().all(implied)
    }
}

// === impl Test ===

impl Test {
    fn holds(&self, value: Option<&str>) -> bool {
        match self {
            Self::Exists => value.is_some(),
            Self::Absent => value.is_none(),
            Self::In(values) => value.is_some_and(|value| values.contains(value)),
            Self::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
        }
    }

    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exists, Self::Exists | Self::In(_))
            | (Self::Absent | Self::NotIn(_), Self::Absent) => true,
            (Self::In(mine), Self::In(theirs)) => theirs.is_subset(mine),
            (Self::NotIn(mine), Self::NotIn(theirs)) => mine.is_subset(theirs),
            (Self::NotIn(mine), Self::In(theirs)) => mine.is_disjoint(theirs),
            _ => false,
        }
    }
}

/// Reads requirements from a text; blanks are skipped after each token.
struct Parser<'a> {
    rest: &'a str,
}

// === impl Parser ===

impl<'a> Parser<'a> {
    fn requirement(&mut self) -> Result<Requirement, String> {
        if self.eat("!") {
            return Ok(Requirement { key: self.key()?, test: Test::Absent });
        }
        let key = self.key()?;
        let test = if self.rest.is_empty() || self.rest.starts_with(',') {
            Test::Exists
        } else if self.eat("!=") {
            Test::NotIn(BTreeSet::from([self.word().into()]))
        } else if self.eat("==") || self.eat("=") {
            Test::In(BTreeSet::from([self.word().into()]))
        } else {
            self.set_test(&key)?
        };
        Ok(Requirement { key, test })
    }

    fn set_test(&mut self, key: &str) -> Result<Test, String> {
        match self.word() {
            "in" => self.values().map(Test::In),
            "notin" => self.values().map(Test::NotIn),
            _ => Err(format!(
                "after `{key}` one of `=`, `==`, `!=`, `in`, `notin` or `,` was expected"
            )),
        }
    }

    fn end_of_requirement(&mut self) -> Result<(), String> {
        if self.rest.is_empty() {
            return Ok(());
        }
        if !self.eat(",") {
            return Err(format!("`,` was expected before `{}`", self.rest));
        }
        if self.rest.is_empty() {
            Err("a label was expected after the last `,`".to_owned())
        } else {
            Ok(())
        }
    }

    fn values(&mut self) -> Result<BTreeSet<Box<str>>, String> {
        if !self.eat("(") {
            return Err("`(` was expected".to_owned());
        }
        let mut values = BTreeSet::new();
        loop {
            let value = self.word();
            if self.eat(",") {
                values.insert(value.into());
            } else if self.eat(")") {
                if !value.is_empty() || !values.is_empty() {
                    values.insert(value.into());
                    return Ok(values);
                }
                return Err("the list of values is empty".to_owned());
            } else {
                return Err("`)` was expected".to_owned());
            }
        }
    }

    fn key(&mut self) -> Result<Box<str>, String> {
        let key = self.word();
        if key.is_empty() { Err("a label was expected".to_owned()) } else { Ok(key.into()) }
    }

    fn eat(&mut self, token: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix(token) else { return false };
        self.rest = rest.trim_start();
        true
    }

    /// Reads a key, a value or an operator's name; may be empty.
    fn word(&mut self) -> &'a str {
        let ends = |char: char| {
            char.is_whitespace() || matches!(char, ',' | '(' | ')' | '=' | '!' | '<' | '>')
        };
        let (word, rest) = self.rest.split_at(self.rest.find(ends).unwrap_or(self.rest.len()));
        self.rest = rest.trim_start();
        word
    }
}
