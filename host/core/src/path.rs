//! Paths in an object, as the contract writes them: `spec.hosts[]`,
//! `spec.containers[name=app].image`, `metadata.annotations["example.com/a.b"]`. Owns the grammar
//! and the evaluation of paths; knows nothing of reads or writes.

mod fields;
mod read;
#[cfg(test)]
mod tests;

pub(crate) use fields::NOT_COUNTED;
pub use fields::{Extent, Fields, Part};

use std::{borrow::Cow, fmt, str::FromStr};

use serde_json::Value;

use crate::contract::bounds::{PATH, PATH_PAIRS, PATH_STEPS, text::shortened};

/// A path to one or more values in an object. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path(Box<[Segment]>);

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Segment {
    /// The value under this key.
    Key(Box<str>),
    /// Every element of a list: `[]`.
    Each,
    /// The elements of a list that hold these texts under these keys: `[name=app]`,
    /// `[port=80,protocol=TCP]`.
    Where(Pairs),
}

/// Keys and the texts under them.
pub type Pairs = Box<[(Box<str>, Box<str>)]>;

/// The error for a text that is not a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("path `{path}`: {problem} at character {at}")]
pub struct Invalid {
    /// The text, shortened if it is too long.
    pub path: String,
    /// The reason why the text is not a path.
    pub problem: &'static str,
    /// The position of the problem, counted in characters from 1.
    pub at: usize,
}

// === impl Path ===

impl Path {
    /// Creates the path of these segments; `None` if there are none.
    pub fn from_segments(segments: impl IntoIterator<Item = Segment>) -> Option<Self> {
        let segments: Box<[Segment]> = segments.into_iter().collect();
        (!segments.is_empty()).then_some(Self(segments))
    }

    /// Creates the path of these keys, one under the other; `None` if there are none.
    pub fn from_keys<'a>(keys: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        Self::from_segments(keys.into_iter().map(|key| Segment::Key(key.into())))
    }

    /// Returns the steps, from the outside in.
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// Returns whether every value that `other` can find lies within a value that this path finds.
    pub fn covers(&self, other: &Self) -> bool {
        self.0.len() <= other.0.len()
            && self.0.iter().zip(&other.0).all(|(mine, theirs)| mine.covers(theirs))
    }

    /// Returns whether a value that this path finds may be, hold or lie within one that `other`
    /// finds.
    pub fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(mine, theirs)| mine.meets(theirs))
    }

    /// Returns the paths of the values that the steps `[key=value]` compare.
    pub fn compared(&self) -> impl Iterator<Item = Self> {
        let pairs = self.0.iter().enumerate().filter_map(|(at, segment)| match segment {
            Segment::Where(wanted) => Some((at, wanted)),
            Segment::Key(_) | Segment::Each => None,
        });
        pairs.flat_map(move |(at, wanted)| {
            wanted.iter().filter_map(move |(key, _)| {
                let list = self.0.iter().take(at).cloned();
                Self::from_segments(list.chain([Segment::Each, Segment::Key(key.clone())]))
            })
        })
    }

    /// Returns the number of pairs of all steps `[key=value]`, with which elements of lists are
    /// compared.
    pub(crate) fn pairs(&self) -> usize {
        self.0.iter().map(|segment| segment.pairs().len()).sum()
    }

    /// Returns the bytes of the texts in the path, and of its steps.
    pub(crate) fn bytes(&self) -> usize {
        let of = |segment: &Segment| match segment {
            Segment::Key(key) => key.len(),
            Segment::Each => 0,
            Segment::Where(wanted) => {
                let pairs = wanted.iter().map(|(key, value)| key.len() + value.len());
                pairs.sum::<usize>() + size_of_val(&**wanted)
            }
        };
        self.0.iter().map(of).sum::<usize>() + size_of_val(&*self.0)
    }

    /// Returns the values that the path finds, in the order of the lists.
    pub fn values<'a>(&self, of: &'a Value) -> Vec<&'a Value> {
        let mut found = Vec::new();
        find(&self.0, of, &mut |value| found.push(value));
        found
    }

    /// Returns the scalars that the path finds, as text, as `matching` compares them: strings,
    /// numbers and booleans. Skips lists, maps and nulls.
    pub fn texts<'a>(&self, of: &'a Value) -> Vec<Cow<'a, str>> {
        let mut found = Vec::new();
        find(&self.0, of, &mut |value| found.extend(text(value)));
        found
    }

    /// Returns whether the path finds a scalar with this text.
    pub fn holds(&self, of: &Value, wanted: &str) -> bool {
        let mut holds = false;
        find(&self.0, of, &mut |value| holds |= text(value).is_some_and(|text| text == wanted));
        holds
    }

    /// Returns whether the path finds a value. Takes the work off `steps`; once there are none
    /// left, the answer is true.
    pub(crate) fn finds(&self, of: &Value, steps: &mut usize) -> bool {
        finds(&self.0, of, steps)
    }

    /// Returns a JSON pointer (RFC 6901) for each value that the path finds.
    pub fn pointers(&self, of: &Value) -> Vec<String> {
        let mut steps = usize::MAX;
        self.pointers_within(of, &mut steps)
    }

    /// Returns the same as [`Path::pointers`]. Takes the work off `steps`; once there are none
    /// left, pointers are missing.
    pub(crate) fn pointers_within(&self, of: &Value, steps: &mut usize) -> Vec<String> {
        let mut found = Vec::new();
        point(&self.0, of, &mut String::new(), &mut found, steps);
        found
    }
}

impl FromStr for Path {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let mut parser = Parser { text, at: 0 };
        if text.len() > PATH {
            return Err(parser.invalid("is longer than 1024 bytes"));
        }
        let mut segments = vec![parser.first()?];
        while let Some(segment) = parser.next()? {
            if segments.len() == PATH_STEPS {
                return Err(parser.invalid("has more than 64 steps"));
            }
            segments.push(segment);
        }
        Ok(Self(segments.into()))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Key(key) if is_plain(key) => {
                    write!(to, "{}{key}", if at == 0 { "" } else { "." })?;
                }
                Segment::Key(key) => write!(to, "[{}]", quoted(key))?,
                Segment::Each => to.write_str("[]")?,
                Segment::Where(wanted) => {
                    for (at, (key, value)) in wanted.iter().enumerate() {
                        write!(to, "{}{}=", if at == 0 { "[" } else { "," }, plain_or_quoted(key))?;
                        to.write_str(&plain_or_quoted(value))?;
                    }
                    to.write_str("]")?;
                }
            }
        }
        Ok(())
    }
}

// === impl Segment ===

impl Segment {
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Each, Self::Each | Self::Where(_)) => true,
            (Self::Where(mine), Self::Where(theirs)) => {
                mine.iter().all(|wanted| theirs.contains(wanted))
            }
            (mine, theirs) => mine == theirs,
        }
    }

    /// Returns whether one value may be under both. Steps into a list may find the same element.
    fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Key(mine), Self::Key(theirs)) => mine == theirs,
            (Self::Key(_), _) | (_, Self::Key(_)) => false,
            (Self::Each | Self::Where(_), Self::Each | Self::Where(_)) => true,
        }
    }

    /// Returns the keys and texts by which the segment selects elements of a list.
    pub(crate) fn pairs(&self) -> &[(Box<str>, Box<str>)] {
        if let Self::Where(wanted) = self { wanted } else { &[] }
    }

    /// Returns whether the segment selects this element of a list.
    pub fn selects(&self, element: &Value) -> bool {
        match self {
            Self::Key(_) => false,
            Self::Each => true,
            Self::Where(wanted) => holds_all(wanted, element),
        }
    }
}

fn holds_all(wanted: &[(Box<str>, Box<str>)], element: &Value) -> bool {
    wanted
        .iter()
        .all(|(key, value)| element.get(&**key).and_then(text).is_some_and(|text| text == **value))
}

/// Returns a scalar as text; `None` for a list, a map and null.
pub fn text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        Value::Bool(true) => Some(Cow::Borrowed("true")),
        Value::Bool(false) => Some(Cow::Borrowed("false")),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn find<'a>(segments: &[Segment], value: &'a Value, found: &mut impl FnMut(&'a Value)) {
    let Some((first, rest)) = segments.split_first() else { return found(value) };
    match first {
        Segment::Key(key) => {
            if let Some(child) = value.get(&**key) {
                find(rest, child, found);
            }
        }
        Segment::Each | Segment::Where(_) => {
            let elements = value.as_array().into_iter().flatten();
            for element in elements.filter(|element| first.selects(element)) {
                find(rest, element, found);
            }
        }
    }
}

fn finds(segments: &[Segment], value: &Value, steps: &mut usize) -> bool {
    let Some((first, rest)) = segments.split_first() else { return true };
    let cost = 1 + first.pairs().len();
    let is_over = |steps: &mut usize| {
        *steps = steps.saturating_sub(cost);
        *steps == 0
    };
    match first {
        Segment::Key(key) => {
            let child = value.get(&**key);
            is_over(steps) || child.is_some_and(|child| finds(rest, child, steps))
        }
        Segment::Each | Segment::Where(_) => {
            let mut elements = value.as_array().into_iter().flatten();
            elements.any(|element| {
                is_over(steps) || first.selects(element) && finds(rest, element, steps)
            })
        }
    }
}

fn point(
    segments: &[Segment],
    value: &Value,
    prefix: &mut String,
    found: &mut Vec<String>,
    steps: &mut usize,
) {
    let Some((first, rest)) = segments.split_first() else { return found.push(prefix.clone()) };
    let length = prefix.len();
    let cost = 1 + first.pairs().len();
    *steps = steps.saturating_sub(cost);
    let mut step = |token: &str, child: &Value, steps: &mut usize| {
        prefix.push('/');
        prefix.push_str(&token.replace('~', "~0").replace('/', "~1"));
        point(rest, child, prefix, found, steps);
        prefix.truncate(length);
    };
    match (first, value) {
        (Segment::Key(key), Value::Object(map)) => {
            if let Some(child) = map.get(&**key) {
                step(key, child, steps);
            }
        }
        (Segment::Each | Segment::Where(_), Value::Array(list)) => {
            for (at, element) in list.iter().enumerate() {
                *steps = steps.saturating_sub(cost);
                if *steps == 0 {
                    return;
                }
                if first.selects(element) {
                    step(&at.to_string(), element, steps);
                }
            }
        }
        _ => {}
    }
}

fn is_special(char: char) -> bool {
    matches!(char, '.' | '[' | ']' | '"' | '=' | ',') || char.is_whitespace()
}

fn is_plain(key: &str) -> bool {
    !key.is_empty() && !key.contains(is_special)
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Quotes a text in brackets if it needs quotes. Only these characters end a text there, so that
/// `host=a.example` needs none.
fn plain_or_quoted(text: &str) -> Cow<'_, str> {
    if text.is_empty() || text.contains(['"', '=', ',', ']']) || text.contains(char::is_whitespace)
    {
        Cow::Owned(quoted(text))
    } else {
        Cow::Borrowed(text)
    }
}

/// Reads segments from a text.
struct Parser<'a> {
    text: &'a str,
    /// The position in the text, in bytes.
    at: usize,
}

// === impl Parser ===

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn eat(&mut self, wanted: &str) -> bool {
        let eats = self.rest().starts_with(wanted);
        if eats {
            self.at += wanted.len();
        }
        eats
    }

    fn invalid(&self, problem: &'static str) -> Invalid {
        let before = self.text.get(..self.at).unwrap_or_default();
        let path = shortened(self.text, PATH);
        Invalid { path, problem, at: before.chars().count() + 1 }
    }

    fn first(&mut self) -> Result<Segment, Invalid> {
        if self.text.is_empty() {
            return Err(self.invalid("is empty"));
        }
        if self.eat("[") { self.bracket() } else { self.name() }
    }

    fn next(&mut self) -> Result<Option<Segment>, Invalid> {
        if self.rest().is_empty() {
            return Ok(None);
        }
        if self.eat("[") {
            return self.bracket().map(Some);
        }
        if self.eat(".") {
            return self.name().map(Some);
        }
        Err(self.invalid("`.` or `[` was expected"))
    }

    fn name(&mut self) -> Result<Segment, Invalid> {
        let rest = self.rest();
        let name = rest.split(is_special).next().unwrap_or_default();
        if name.is_empty() {
            return Err(self.invalid("a name was expected (quote others as `[\"…\"]`)"));
        }
        self.at += name.len();
        Ok(Segment::Key(name.into()))
    }

    /// Reads the part of a segment that follows `[`.
    fn bracket(&mut self) -> Result<Segment, Invalid> {
        if self.eat("]") {
            return Ok(Segment::Each);
        }
        let is_quoted = self.rest().starts_with('"');
        let mut key = self.word()?;
        if is_quoted && self.eat("]") {
            return Ok(Segment::Key(key));
        }
        let mut wanted: Vec<(Box<str>, Box<str>)> = Vec::new();
        loop {
            if wanted.len() == PATH_PAIRS {
                return Err(self.invalid("a step names more than 8 pairs"));
            }
            if wanted.iter().any(|(named, _)| *named == key) {
                return Err(self.invalid("a step names a key twice"));
            }
            if !self.eat("=") {
                return Err(self.invalid("`=` was expected (an element is named as `[key=value]`)"));
            }
            wanted.push((key, self.word()?));
            if self.eat("]") {
                return Ok(Segment::Where(wanted.into()));
            }
            if !self.eat(",") {
                return Err(self.invalid("`]` was expected"));
            }
            key = self.word()?;
        }
    }

    /// Reads a quoted text, or one that ends before `=`, `,` or `]`.
    fn word(&mut self) -> Result<Box<str>, Invalid> {
        if self.eat("\"") {
            return self.quoted();
        }
        let word = self.rest().split(['=', ',', ']', '"']).next().unwrap_or_default();
        if word.is_empty() {
            return Err(self.invalid("a name or value was expected"));
        }
        self.at += word.len();
        Ok(word.into())
    }

    /// Reads the part of a quoted text that follows the first quotation mark.
    fn quoted(&mut self) -> Result<Box<str>, Invalid> {
        let mut text = String::new();
        let mut chars = self.rest().char_indices();
        while let Some((at, char)) = chars.next() {
            match char {
                '"' => {
                    self.at += at + 1;
                    return Ok(text.into());
                }
                '\\' => text.extend(chars.next().map(|(_, escaped)| escaped)),
                other => text.push(other),
            }
        }
        Err(self.invalid("the quotation is not closed"))
    }
}
