//! The JSON paths of printer columns, as [client-go] reads them: fields, `*`, `..`, items, slices,
//! unions, and filters such as `[?(@.type=="Ready")]`. Templates (`{range}`) are not supported.
//!
//! [client-go]: https://github.com/kubernetes/client-go/tree/v0.34.4/util/jsonpath

#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use serde_json::Value;

/// The letters that end the name of a field, unless a backslash stands before them.
const ENDS: &[char] = &[' ', '\t', '\r', '\n', '.', ',', '[', ']', '$', '@', '{', '}'];

/// A step of a path.
#[derive(Debug)]
enum Step {
    Field(String),
    /// The members of an object, or the items of a list.
    All,
    /// The value itself, and each value below it that is not empty.
    Levels,
    Slice(Slice),
    /// The values at each of several paths.
    Union(Vec<Vec<Step>>),
    /// The items in which the left path leads to something, or to what a comparison demands.
    Filter(Vec<Step>, Option<(String, Vec<Step>)>),
    /// A constant, in a filter.
    Constant(Value),
    /// A word without a meaning, which fails.
    Word,
}

/// The items from one index to before another; negative ones count from the end.
#[derive(Debug, Default)]
struct Slice {
    from: Option<i64>,
    to: Option<i64>,
    step: Option<i64>,
    /// True for `[i]`, which is `[i:i+1]`, and for `[]`, which is `[0]`.
    is_one: bool,
}

/// A path that has been read.
#[derive(Debug)]
pub(super) struct Path(Vec<Step>);

// === impl Path ===

impl Path {
    /// Reads a path; `None` if client-go cannot read it.
    pub(super) fn parse(path: &str) -> Option<Self> {
        parse(path).map(Self)
    }

    /// Returns the first value at the path; `None` if there is none, or if a step fails.
    pub(super) fn first(&self, value: &Value) -> Option<Value> {
        walk(&self.0, value)?.first().map(|found| (*found).clone())
    }
}

// === Evaluation ===

/// Returns all values at a path; `None` if a step fails.
fn walk<'a>(steps: &'a [Step], value: &'a Value) -> Option<Vec<&'a Value>> {
    let mut found = vec![value];
    for step in steps {
        let mut next = Vec::new();
        for value in found {
            step.take(value, &mut next)?;
        }
        found = next;
    }
    Some(found)
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(members) => members.values().collect(),
        _ => Vec::new(),
    }
}

fn levels<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    let below = children(value);
    if !below.is_empty() || value.as_str().is_some_and(|text| !text.is_empty()) {
        found.push(value);
        for child in below {
            levels(child, found);
        }
    }
}

/// Compares two values; `None` if they cannot be compared.
fn compare(left: &Value, operator: &str, right: &Value) -> Option<bool> {
    let order = match (left, right) {
        (Value::Bool(left), Value::Bool(right)) if matches!(operator, "==" | "!=") => {
            left.cmp(right)
        }
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Number(left), Value::Number(right)) if left.is_f64() == right.is_f64() => {
            match (left.as_i64(), right.as_i64()) {
                (Some(left), Some(right)) => left.cmp(&right),
                _ => left.as_f64()?.partial_cmp(&right.as_f64()?)?,
            }
        }
        _ => return None,
    };
    match operator {
        "==" => Some(order.is_eq()),
        "!=" => Some(order.is_ne()),
        "<" => Some(order == Ordering::Less),
        "<=" => Some(order.is_le()),
        ">" => Some(order == Ordering::Greater),
        ">=" => Some(order.is_ge()),
        _ => None,
    }
}

/// Returns whether a filter keeps an item; `None` if it fails.
fn keeps(item: &Value, left: &[Step], comparison: Option<&(String, Vec<Step>)>) -> Option<bool> {
    let found = walk(left, item);
    let Some((operator, right)) = comparison else {
        return Some(found.is_none_or(|found| !found.is_empty()));
    };
    let (left, right) = (found?, walk(right, item)?);
    match (left.as_slice(), right.as_slice()) {
        ([], _) | (_, []) => Some(false),
        ([left], [right]) => compare(left, operator, right),
        _ => None,
    }
}

// === impl Step ===

impl Step {
    /// Adds the values at this step of a value; `None` if the step fails.
    fn take<'a>(&'a self, value: &'a Value, found: &mut Vec<&'a Value>) -> Option<()> {
        match self {
            Self::Field(name) => found.extend(value.as_object().and_then(|map| map.get(name))),
            Self::All => found.extend(children(value)),
            Self::Levels => levels(value, found),
            Self::Slice(_) if value.is_null() => {}
            Self::Slice(slice) => found.extend(slice.of(value.as_array()?)?),
            Self::Union(paths) => {
                for path in paths {
                    found.extend(walk(path, value)?);
                }
            }
            Self::Filter(left, comparison) => {
                for item in value.as_array()? {
                    found.extend(keeps(item, left, comparison.as_ref())?.then_some(item));
                }
            }
            Self::Constant(constant) => found.push(constant),
            Self::Word => return None,
        }
        Some(())
    }
}

// === impl Slice ===

impl Slice {
    /// Parses `from:to:step`, of which each part may be empty or absent.
    fn parse(text: &str) -> Option<Self> {
        let index = |text: &str| match text {
            "" => Some(None),
            _ if text.starts_with('+') => None,
            _ => text.parse().ok().map(Some),
        };
        let mut parts = text.split(':');
        let from: Option<i64> = index(parts.next()?)?;
        let Some(to) = parts.next() else {
            let to = from.unwrap_or(0).checked_add(1);
            return Some(Self { from, to, step: None, is_one: true });
        };
        let (to, step) = (index(to)?, index(parts.next().unwrap_or_default())?);
        parts.next().is_none().then_some(Self { from, to, step, is_one: false })
    }

    /// Returns the items; `None` if they are not all within the list.
    fn of<'a>(&self, items: &'a [Value]) -> Option<Vec<&'a Value>> {
        let length = i64::try_from(items.len()).ok()?;
        let (mut from, mut to) = (self.from.unwrap_or(0), self.to.unwrap_or(length));
        if from < 0 {
            from += length;
        }
        if to < 0 || (to == 0 && self.is_one) {
            to += length;
        }
        if from == to {
            return Some(Vec::new());
        }
        let items = items.get(usize::try_from(from).ok()?..usize::try_from(to).ok()?)?;
        let step = usize::try_from(self.step.unwrap_or(1)).ok().filter(|step| *step > 0)?;
        Some(items.iter().step_by(step).collect())
    }
}

// === Parsing ===

fn parse(path: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = path;
    while let Some(letter) = rest.chars().next() {
        let after = rest.get(letter.len_utf8()..)?;
        rest = match letter {
            ' ' | '@' | '$' => after,
            '[' if after.starts_with("?(") => filter(after.get(2..)?, &mut steps)?,
            '[' => bracket(after, &mut steps)?,
            '.' if after.starts_with('.') => {
                if matches!(steps.last(), Some(Step::Levels)) {
                    return None;
                }
                steps.push(Step::Levels);
                let after = after.get(1..)?;
                if after.starts_with(is_word) { field(after, &mut steps) } else { after }
            }
            '.' => field(after, &mut steps),
            '"' | '\'' => quoted(letter, after, &mut steps)?,
            _ => constant(rest, &mut steps)?,
        };
    }
    Some(steps)
}

fn is_word(letter: char) -> bool {
    letter == '_' || letter.is_alphanumeric()
}

/// Reads a field up to the next letter that ends it. Each reader returns the text after its step.
fn field<'a>(text: &'a str, steps: &mut Vec<Step>) -> &'a str {
    let mut escaped = false;
    let end = text.find(|letter| {
        let ends = !escaped && ENDS.contains(&letter);
        escaped = !escaped && letter == '\\';
        ends
    });
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    steps.push(if name == "*" { Step::All } else { Step::Field(name.replace('\\', "")) });
    rest
}

/// Reads what is between brackets: a union, a field in quotes, or a slice.
fn bracket<'a>(text: &'a str, steps: &mut Vec<Step>) -> Option<&'a str> {
    let (inside, rest) = text.split_once(']')?;
    let name = inside.strip_prefix('\'').and_then(|inside| inside.strip_suffix('\''));
    if inside.contains(',') {
        let paths = inside.split(',').map(|part| parse(&format!("[{}]", part.trim_matches(' '))));
        steps.push(Step::Union(paths.collect::<Option<_>>()?));
    } else if let Some(name) = name.filter(|name| !name.contains('\'')) {
        steps.extend(parse(&format!(".{name}"))?);
    } else {
        let slice = Slice::parse(if inside == "*" { ":" } else { inside });
        steps.push(Step::Slice(slice?));
    }
    Some(rest)
}

/// Reads a filter up to `)]`; a parenthesis in quotes does not end it.
fn filter<'a>(text: &'a str, steps: &mut Vec<Step>) -> Option<&'a str> {
    let (mut quote, mut closed, mut before) = (None, false, ' ');
    let end = text.find(|letter| {
        match letter {
            '"' | '\'' if quote.is_none() => quote = Some(letter),
            '"' | '\'' => closed |= before != '\\' && quote == Some(letter),
            ')' if quote.is_some() == closed => return true,
            _ => {}
        }
        before = letter;
        false
    });
    let (inside, rest) = text.split_at(end?);
    let is_operator = |letter: char| matches!(letter, '!' | '<' | '>' | '=');
    let comparison = inside.find(is_operator).filter(|start| *start > 0).and_then(|start| {
        let (left, rest) = inside.split_at(start);
        let right = rest.trim_start_matches(is_operator);
        let operator = rest.strip_suffix(right)?;
        (!right.is_empty()).then_some((left, operator, right))
    });
    steps.push(match comparison {
        Some((left, operator, right)) => {
            Step::Filter(parse(left)?, Some((operator.to_owned(), parse(right)?)))
        }
        None => Step::Filter(parse(inside)?, None),
    });
    rest.strip_prefix(")]")
}

/// Reads a text up to its closing quote.
fn quoted<'a>(quote: char, text: &'a str, steps: &mut Vec<Step>) -> Option<&'a str> {
    let mut inside = String::new();
    let mut letters = text.char_indices();
    while let Some((index, letter)) = letters.next() {
        match letter {
            '\\' => inside.push(letters.next()?.1),
            _ if letter == quote => {
                steps.push(Step::Constant(inside.into()));
                return text.get(index + 1..);
            }
            _ => inside.push(letter),
        }
    }
    None
}

/// Reads a number or a word.
fn constant<'a>(text: &'a str, steps: &mut Vec<Step>) -> Option<&'a str> {
    let is_number = |letter: char| letter == '.' || letter.is_ascii_digit();
    let digits = text.trim_start_matches(['+', '-']);
    let rest = if digits.starts_with(is_number) {
        digits.trim_start_matches(is_number)
    } else {
        text.find(ENDS).map_or("", |end| text.get(end..).unwrap_or_default())
    };
    let word = text.strip_suffix(rest)?.trim_start_matches('+');
    steps.push(match serde_json::from_str::<Value>(word) {
        Ok(constant) if constant.is_number() || constant.is_boolean() => Step::Constant(constant),
        _ if word.starts_with(is_word) => Step::Word,
        _ => return None,
    });
    Some(rest)
}
