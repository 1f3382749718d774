//! Regular expressions of schemas and rules, which are written for Go's engine (RE2).
//!
//! The `regex` crate understands nearly the same language; the differences are rewritten: classes
//! without the meaning of `[`, `&&`, `--`, `~~` inside, `\d`, `\s`, `\w` and `\b` for ASCII only,
//! braces that are no repetition, escapes of any punctuation, `\Q…\E`.

use std::{fmt::Write as _, iter::Peekable, str::Chars};

use regex::{Regex, RegexBuilder};

/// The largest size of a compiled pattern, in bytes: Go has no such limit, so it is far above the
/// size that repetitions of common classes take.
const MAX_PATTERN_BYTES: usize = 64 << 20;

/// Compiles a pattern; the error is Go's message.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    let translated = Translation::new(pattern).run();
    RegexBuilder::new(&translated).size_limit(MAX_PATTERN_BYTES).build().map_err(|_| fault(pattern))
}

struct Translation<'a> {
    rest: Peekable<Chars<'a>>,
    text: String,
}

impl<'a> Translation<'a> {
    fn new(pattern: &'a str) -> Self {
        Self { rest: pattern.chars().peekable(), text: String::with_capacity(pattern.len() + 16) }
    }

    fn run(mut self) -> String {
        while let Some(character) = self.rest.next() {
            match character {
                '\\' => self.escape(false),
                '[' => self.class(),
                '{' => self.brace(),
                '}' => self.text.push_str("\\}"),
                other => self.text.push(other),
            }
        }
        self.text
    }

    /// Translates an escape after its backslash.
    fn escape(&mut self, in_class: bool) {
        let Some(character) = self.rest.next() else {
            self.text.push('\\');
            return;
        };
        match character {
            'd' => self.push_class(in_class, "0-9", "[0-9]"),
            's' => self.push_class(in_class, r"\t\n\x0C\r ", r"[\t\n\x0C\r ]"),
            'w' => self.push_class(in_class, "0-9A-Za-z_", "[0-9A-Za-z_]"),
            'D' => self.text.push_str("[^0-9]"),
            'S' => self.text.push_str(r"[^\t\n\x0C\r ]"),
            'W' => self.text.push_str("[^0-9A-Za-z_]"),
            'b' if !in_class => self.text.push_str(r"(?-u:\b)"),
            'B' if !in_class => self.text.push_str(r"(?-u:\B)"),
            'Q' if !in_class => self.quoted(),
            'C' if !in_class => self.text.push_str("(?s:.)"),
            '0'..='7' if self.is_octal(character) => self.octal(character),
            other if other.is_ascii_alphanumeric() => {
                self.text.push('\\');
                self.text.push(other);
            }
            other => self.push_literal(other),
        }
    }

    fn push_class(&mut self, in_class: bool, inside: &str, alone: &str) {
        self.text.push_str(if in_class { inside } else { alone });
    }

    fn push_literal(&mut self, character: char) {
        if character.is_ascii_punctuation() && !matches!(character, '<' | '>') {
            self.text.push('\\');
        }
        self.text.push(character);
    }

    fn is_octal(&mut self, first: char) -> bool {
        first == '0' || self.rest.peek().is_some_and(|next| ('0'..='7').contains(next))
    }

    fn octal(&mut self, first: char) {
        let mut code = first.to_digit(8).unwrap_or(0);
        for _ in 0..2 {
            let Some(digit) = self.rest.peek().and_then(|next| next.to_digit(8)) else { break };
            code = code * 8 + digit;
            self.rest.next();
        }
        let written = write!(self.text, "\\x{{{code:x}}}");
        debug_assert!(written.is_ok(), "a String takes every text");
    }

    /// Translates the text after `\Q`: everything up to `\E` stands for itself.
    fn quoted(&mut self) {
        while let Some(character) = self.rest.next() {
            if character == '\\' && self.rest.peek() == Some(&'E') {
                self.rest.next();
                return;
            }
            self.push_literal(character);
        }
    }

    /// Translates `{`: a repetition, or a literal character.
    fn brace(&mut self) {
        let mut ahead = self.rest.clone();
        let mut inside = String::new();
        let closed = loop {
            match ahead.next() {
                Some('}') => break true,
                Some(character) if character.is_ascii_digit() || character == ',' => {
                    inside.push(character);
                }
                _ => break false,
            }
        };
        let repetition = closed
            && inside.starts_with(|first: char| first.is_ascii_digit())
            && inside.matches(',').count() <= 1;
        if repetition {
            self.text.push('{');
            self.text.push_str(&inside);
            self.text.push('}');
            self.rest = ahead;
        } else {
            self.text.push_str("\\{");
        }
    }

    /// Translates a class after its `[`.
    fn class(&mut self) {
        self.text.push('[');
        if self.rest.next_if_eq(&'^').is_some() {
            self.text.push('^');
        }
        if self.rest.next_if_eq(&']').is_some() {
            self.text.push_str("\\]");
        }
        while let Some(character) = self.rest.next() {
            match character {
                ']' => {
                    self.text.push(']');
                    return;
                }
                '[' if self.rest.peek() == Some(&':') && self.named_class() => {}
                '[' | '&' | '~' => {
                    self.text.push('\\');
                    self.text.push(character);
                }
                '-' if self.rest.peek() == Some(&'-') => self.text.push_str("\\-"),
                '\\' => self.escape(true),
                other => self.text.push(other),
            }
        }
    }

    /// Translates a class such as `[:alpha:]` inside of a class, after its `[`. Returns false if
    /// there is none.
    fn named_class(&mut self) -> bool {
        let ahead: String = self.rest.clone().take(12).collect();
        let Some(end) = ahead.find(":]").filter(|end| *end > 0) else { return false };
        let length = end + 2;
        self.text.push('[');
        for _ in 0..length {
            self.text.extend(self.rest.next());
        }
        true
    }
}

/// Returns Go's message for an invalid pattern, for common mistakes.
fn fault(pattern: &str) -> String {
    let text = |what: &str, part: &str| format!("error parsing regexp: {what}: `{part}`");
    let mut open = 0_i64;
    let mut last = None;
    let mut characters = pattern.char_indices();
    while let Some((at, character)) = characters.next() {
        let rest = pattern.get(at..).unwrap_or_default();
        match character {
            '\\' => match characters.next() {
                None => {
                    return "error parsing regexp: trailing backslash at end of expression: ``"
                        .to_owned();
                }
                Some((_, escaped))
                    if "deghijklmoruyXYZEFGHIJKLMNORTUV".contains(escaped)
                        && !"dfnrtvs".contains(escaped) =>
                {
                    return text("invalid escape sequence", &format!("\\{escaped}"));
                }
                Some(_) => {}
            },
            '[' => {
                let Some(end) = class_end(rest) else { return text("missing closing ]", rest) };
                characters = pattern_from(pattern, at + end);
            }
            '(' => {
                if let Some(flag) = rest
                    .strip_prefix("(?")
                    .and_then(|rest| rest.get(..1))
                    .filter(|flag| "=!<".contains(*flag))
                {
                    return text("invalid or unsupported Perl syntax", &format!("(?{flag}"));
                }
                open += 1;
            }
            ')' => {
                open -= 1;
                if open < 0 {
                    return text("unexpected )", pattern);
                }
            }
            '*' | '+' | '?' if matches!(last, None | Some('(' | '|')) => {
                return text("missing argument to repetition operator", &character.to_string());
            }
            '*' | '+' if matches!(last, Some('*' | '+')) => {
                return text(
                    "invalid nested repetition operator",
                    &format!("{}{character}", last.unwrap_or_default()),
                );
            }
            _ => {}
        }
        last = Some(character);
    }
    if open > 0 { text("missing closing )", pattern) } else { text("invalid regexp", pattern) }
}

/// Returns the offset at which the class ends that the text begins with.
fn class_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().skip(1).find_map(|(at, character)| {
        let first = at == 1 || (at == 2 && text.starts_with("[^"));
        let end = character == ']' && !escaped && !first;
        escaped = character == '\\' && !escaped;
        end.then_some(at)
    })
}

fn pattern_from(pattern: &str, at: usize) -> std::str::CharIndices<'_> {
    let mut characters = pattern.char_indices();
    while characters.offset() <= at && characters.next().is_some() {}
    characters
}
