//! The grammar of selectors, parsed token by token; the messages name the token that does not fit.

use super::{FieldSelector, FieldTerm, LabelSelector, Operator, Requirement, SelectorError};
use crate::field_error::aggregate;

const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Identifier,
    In,
    NotIn,
    Equals,
    NotEquals,
    Not,
    Open,
    Close,
    Comma,
    Greater,
    Less,
    End,
    Fault,
}

struct Parser {
    tokens: Vec<(Token, String)>,
    at: usize,
}

/// Parses a label selector.
pub(super) fn labels(text: &str) -> Result<LabelSelector, SelectorError> {
    let mut parser = Parser { tokens: tokens(text), at: 0 };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            (Token::Identifier | Token::Not, _) => {
                let requirement = parser.requirement();
                requirements.push(
                    requirement.map_err(|why| {
                        SelectorError(format!("unable to parse requirement: {why}"))
                    })?,
                );
                match parser.take() {
                    (Token::End, _) => break,
                    (Token::Comma, _) => parser.expect_another()?,
                    (_, found) => {
                        return Err(SelectorError(format!(
                            "found '{found}', expected: ',' or 'end of string'"
                        )));
                    }
                }
            }
            (Token::End, _) => break,
            (_, found) => {
                return Err(SelectorError(format!(
                    "found '{found}', expected: !, identifier, or 'end of string'"
                )));
            }
        }
    }
    requirements.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(LabelSelector { requirements })
}

// === impl Parser ===

impl Parser {
    /// Returns the next token where every word is a name, also `in` and `notin`.
    fn peek(&self) -> (Token, String) {
        match self.tokens.get(self.at).cloned().unwrap_or((Token::End, String::new())) {
            (Token::In | Token::NotIn, text) => (Token::Identifier, text),
            token => token,
        }
    }

    fn take(&mut self) -> (Token, String) {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn expect_another(&self) -> Result<(), SelectorError> {
        match self.peek() {
            (Token::Identifier | Token::Not, _) => Ok(()),
            (_, found) => {
                Err(SelectorError(format!("found '{found}', expected: identifier after ','")))
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let (mut token, mut key) = self.take();
        let negated = token == Token::Not;
        if negated {
            (token, key) = self.take();
        }
        if token != Token::Identifier {
            return Err(format!("found '{key}', expected: identifier"));
        }
        check("", &key, &crate::name::is_qualified_name(&key))?;
        if negated {
            return Ok(Requirement { key, operator: Operator::DoesNotExist, values: Vec::new() });
        }
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Ok(Requirement { key, operator: Operator::Exists, values: Vec::new() });
        }
        let (token, found) =
            self.tokens.get(self.at).cloned().unwrap_or((Token::End, String::new()));
        self.at += 1;
        let operator = match token {
            Token::In | Token::Equals => Operator::In,
            Token::NotIn | Token::NotEquals => Operator::NotIn,
            Token::Greater => Operator::GreaterThan,
            Token::Less => Operator::LessThan,
            _ => return Err(format!("found '{found}', expected: {OPERATORS}")),
        };
        let listed = matches!(token, Token::In | Token::NotIn);
        let mut values = if listed { self.values()? } else { vec![self.exact_value()?] };
        values.sort();
        values.dedup();
        check_values(&key, operator, &values)?;
        Ok(Requirement { key, operator, values })
    }

    fn exact_value(&mut self) -> Result<String, String> {
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Ok(String::new());
        }
        match self.take() {
            (Token::Identifier, value) => Ok(value),
            (_, found) => Err(format!("found '{found}', expected: identifier")),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        let (token, found) = self.take();
        if token != Token::Open {
            return Err(format!("found '{found}' expected: '('"));
        }
        match self.peek() {
            (Token::Identifier | Token::Comma, _) => {}
            (Token::Close, _) => {
                self.at += 1;
                return Ok(vec![String::new()]);
            }
            (_, found) => return Err(format!("found '{found}', expected: ',', ')' or identifier")),
        }
        let values = self.listed_values()?;
        match self.take() {
            (Token::Close, _) => Ok(values),
            (_, found) => Err(format!("found '{found}', expected: ')'")),
        }
    }

    /// Returns the values between parentheses, up to the closing one; between two commas is the
    /// empty value.
    fn listed_values(&mut self) -> Result<Vec<String>, String> {
        let mut values = Vec::new();
        loop {
            match self.take() {
                (Token::Identifier, value) => {
                    values.push(value);
                    match self.peek() {
                        (Token::Comma, _) => {}
                        (Token::Close, _) => return Ok(values),
                        (_, found) => return Err(format!("found '{found}', expected: ',' or ')'")),
                    }
                }
                (Token::Comma, _) => {
                    if values.is_empty() {
                        values.push(String::new());
                    }
                    match self.peek().0 {
                        Token::Close => {
                            values.push(String::new());
                            return Ok(values);
                        }
                        Token::Comma => {
                            self.at += 1;
                            values.push(String::new());
                        }
                        _ => {}
                    }
                }
                (_, found) => return Err(format!("found '{found}', expected: ',', or identifier")),
            }
        }
    }
}

fn check_values(key: &str, operator: Operator, values: &[String]) -> Result<(), String> {
    let mut faults = Vec::new();
    if matches!(operator, Operator::GreaterThan | Operator::LessThan) {
        let no_numbers =
            values.iter().enumerate().filter(|(_, value)| value.parse::<i64>().is_err());
        faults.extend(no_numbers.map(|(index, value)| {
            let why = "for 'Gt', 'Lt' operators, the value must be an integer";
            format!("values[{index}]: Invalid value: {value:?}: {why}")
        }));
    }
    for (index, value) in values.iter().enumerate() {
        let found =
            check(&format!("values[{index}][{key}]"), value, &crate::name::is_label_value(value));
        faults.extend(found.err());
    }
    aggregate(&faults).map_or(Ok(()), Err)
}

fn check(field: &str, value: &str, faults: &[String]) -> Result<(), String> {
    if faults.is_empty() {
        return Ok(());
    }
    let field = if field.is_empty() { "<nil>" } else { field };
    Err(format!("{field}: Invalid value: {value:?}: {}", faults.join("; ")))
}

/// Splits the text into tokens; the end is one, too.
fn tokens(text: &str) -> Vec<(Token, String)> {
    let special = |c: char| "=!(),><".contains(c);
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let Some(first) = rest.chars().next() else { break };
        let (token, length) = if special(first) {
            symbol(rest)
        } else {
            let length =
                rest.find(|c: char| special(c) || " \t\r\n".contains(c)).unwrap_or(rest.len());
            let token = match rest.get(..length) {
                Some("in") => Token::In,
                Some("notin") => Token::NotIn,
                _ => Token::Identifier,
            };
            (token, length)
        };
        let (found, after) = rest.split_at(length);
        tokens.push((token, found.to_owned()));
        rest = after;
    }
    tokens.push((Token::End, String::new()));
    tokens
}

/// Returns the longest symbol that the text begins with, and its length.
fn symbol(text: &str) -> (Token, usize) {
    let known = [
        ("==", Token::Equals),
        ("!=", Token::NotEquals),
        ("=", Token::Equals),
        ("!", Token::Not),
        ("(", Token::Open),
        (")", Token::Close),
        (",", Token::Comma),
        (">", Token::Greater),
        ("<", Token::Less),
    ];
    let found = known.into_iter().find(|(symbol, _)| text.starts_with(symbol));
    found.map_or((Token::Fault, text.len()), |(symbol, token)| (token, symbol.len()))
}

/// Parses a field selector: `metadata.name=a,status.phase!=Running`; a backslash escapes a comma,
/// an equals sign and a backslash.
pub(crate) fn fields(text: &str) -> Result<FieldSelector, SelectorError> {
    let mut parts = terms(text);
    parts.sort_unstable();
    let mut found = Vec::new();
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        let Some((field, equal, value)) = split(part) else {
            return Err(SelectorError(format!(
                "invalid selector: '{text}'; can't understand '{part}'"
            )));
        };
        found.push(FieldTerm { field: field.to_owned(), equal, value: unescape(value)? });
    }
    Ok(FieldSelector { terms: found })
}

/// Splits at the commas that no backslash precedes.
fn terms(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (index, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.extend(text.get(start..index));
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.extend(text.get(start..));
    parts
}

fn split(part: &str) -> Option<(&str, bool, &str)> {
    let at = part.char_indices().map(|(index, _)| index).find(|index| {
        part.get(*index..).is_some_and(|rest| rest.starts_with("!=") || rest.starts_with('='))
    })?;
    let (field, rest) = part.split_at(at);
    let operators = [("!=", false), ("==", true), ("=", true)];
    operators.into_iter().find_map(|(operator, equal)| {
        rest.strip_prefix(operator).map(|value| (field, equal, value))
    })
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let mut text = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => text.push(escaped),
                Some(other) => {
                    return Err(SelectorError(format!(
                        "invalid field selector: invalid escape sequence: \\{other}"
                    )));
                }
                None => {
                    return Err(SelectorError(
                        "invalid field selector: invalid escape sequence: \\".to_owned(),
                    ));
                }
            },
            ',' | '=' => {
                return Err(SelectorError(format!(
                    "invalid field selector: unescaped character in value: {c}"
                )));
            }
            _ => text.push(c),
        }
    }
    Ok(text)
}
