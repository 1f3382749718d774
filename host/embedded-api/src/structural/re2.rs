//! Regular expressions of schemas and rules, which are written for Go's engine (RE2).
//!
//! The `regex` crate understands nearly the same language; the differences are rewritten: classes
//! without the meaning of `[`, `&&`, `--`, `~~` inside, `\d`, `\s`, `\w` and `\b` for ASCII only,
//! braces that are no repetition, escapes of any punctuation, `\Q…\E`. Patterns that only the crate
//! accepts are refused before.

use std::{fmt::Write as _, iter::Peekable, str::Chars};

use regex::{Regex, RegexBuilder};

/// The largest size of a compiled pattern, in bytes: Go has no such limit, so it is far above the
/// size that repetitions of common classes take.
const MAX_PATTERN_BYTES: usize = 64 << 20;

/// The largest count of a repetition in braces.
const MAX_REPETITIONS: u32 = 1000;
/// The letters of escapes, other than those of classes, numbers and quotations.
const ESCAPES: &str = "AabBdDfnrsStvwWz";

/// Compiles a pattern; the error is Go's message.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    refuse(pattern).map_err(|(what, part)| format!("error parsing regexp: {what}: `{part}`"))?;
    let translated = Translation::new(pattern).run();
    let built = RegexBuilder::new(&translated).size_limit(MAX_PATTERN_BYTES).build();
    built.map_err(|_| format!("error parsing regexp: invalid regexp: `{pattern}`"))
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
            'p' | 'P' | 'x' => {
                self.text.extend(['\\', character]);
                if self.rest.peek() == Some(&'{') {
                    let name = self.rest.by_ref().take_while(|character| *character != '}');
                    self.text.extend(name);
                    self.text.push('}');
                }
            }
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
        let ahead: String = std::iter::once('{').chain(self.rest.clone()).collect();
        let Some((inside, _)) = repetition(&ahead) else { return self.text.push_str("\\{") };
        self.text.push('{');
        self.text.push_str(inside);
        self.text.push('}');
        self.rest.nth(inside.len());
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

/// Refuses a pattern that Go refuses, as far as the `regex` crate accepts it or gives no usable
/// reason. The error is Go's reason, and the part of the pattern.
fn refuse(pattern: &str) -> Result<(), (&'static str, &str)> {
    let (mut at, mut open) = (0, 0_usize);
    // The position of the repetition that has just ended, and whether there is something to repeat.
    let (mut repeated, mut is_empty): (Option<usize>, bool) = (None, true);
    while let Some(first) = pattern.get(at..).and_then(|rest| rest.chars().next()) {
        let rest = pattern.get(at..).unwrap_or_default();
        let part = |length: usize| rest.get(..length).unwrap_or(rest);
        let braces = repetition(rest).filter(|_| first == '{');
        let length = match first {
            '*' | '+' | '?' => 1,
            '{' => braces.map_or(1, |(inside, _)| inside.len() + 2),
            '\\' => escape(rest)?,
            '[' => class_end(rest).ok_or(("missing closing ]", rest))? + 1,
            '(' => group(rest)?,
            other => other.len_utf8(),
        };
        if matches!(first, '*' | '+' | '?') || braces.is_some() {
            if braces.is_some_and(|(_, is_small)| !is_small) {
                return Err(("invalid repeat count", part(length)));
            }
            let is_lazy = rest.get(length..).is_some_and(|rest| rest.starts_with('?'));
            let end = at + length + usize::from(is_lazy);
            if is_empty {
                let what = "missing argument to repetition operator";
                return Err((what, part(end - at)));
            }
            if let Some(nested) = repeated.and_then(|begin| pattern.get(begin..end)) {
                return Err(("invalid nested repetition operator", nested));
            }
            (repeated, at) = (Some(at), end);
            continue;
        }
        let is_flags = first == '(' && part(length).ends_with(')');
        match first {
            '(' if !is_flags => open += 1,
            ')' => open = open.checked_sub(1).ok_or(("unexpected )", pattern))?,
            _ => {}
        }
        is_empty = matches!(first, '(' | '|') && (is_empty || !is_flags);
        (repeated, at) = (None, at + length);
    }
    if open > 0 { Err(("missing closing )", pattern)) } else { Ok(()) }
}

/// Returns the inside of the braces of a repetition that the text begins with, and whether its
/// counts are in order and not too large.
fn repetition(text: &str) -> Option<(&str, bool)> {
    let (inside, _) = text.strip_prefix('{')?.split_once('}')?;
    let (least, most) = inside.split_once(',').unwrap_or((inside, inside));
    let is_count = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_count(least) || !(most.is_empty() || is_count(most)) {
        return None;
    }
    let count = |text: &str| text.parse().unwrap_or(u32::MAX);
    let most = if most.is_empty() { count(least) } else { count(most) };
    Some((inside, count(least) <= most && most <= MAX_REPETITIONS))
}

/// Returns the length of the escape that the text begins with.
fn escape(text: &str) -> Result<usize, (&'static str, &str)> {
    let mut characters = text.chars().skip(1);
    let Some(escaped) = characters.next() else {
        return Err(("trailing backslash at end of expression", ""));
    };
    let next = characters.next();
    let length = 1 + escaped.len_utf8();
    let invalid = || ("invalid escape sequence", text.get(..length).unwrap_or(text));
    match escaped {
        'Q' => Ok(text.find("\\E").map_or(text.len(), |end| end + 2)),
        'p' | 'P' | 'x' if next == Some('{') => {
            Ok(text.find('}').map(|end| end + 1).ok_or_else(invalid)?)
        }
        'p' | 'P' => Ok(length + next.map_or(0, char::len_utf8)),
        '1'..='7' if !next.is_some_and(|next| matches!(next, '0'..='7')) => Err(invalid()),
        'x' | '0'..='7' => Ok(length),
        letter if letter.is_ascii_alphanumeric() && !ESCAPES.contains(letter) => Err(invalid()),
        other if !other.is_ascii() => Err(invalid()),
        _ => Ok(length),
    }
}

/// Returns the length of the beginning of a group that the text begins with; of all of it if it
/// sets flags only.
fn group(text: &str) -> Result<usize, (&'static str, &str)> {
    let Some(inside) = text.strip_prefix("(?") else { return Ok(1) };
    let flags = inside.trim_start_matches(['i', 'm', 's', 'U', '-']);
    let length = text.len() - flags.len();
    let is_named = inside.starts_with("P<")
        || (inside.starts_with('<') && !inside.starts_with("<=") && !inside.starts_with("<!"));
    match flags.chars().next() {
        Some(':' | ')') => Ok(length + 1),
        _ if is_named => Ok(text.find('>').map_or(text.len(), |end| end + 1)),
        other => {
            let end = length + other.map_or(0, char::len_utf8);
            Err(("invalid or unsupported Perl syntax", text.get(..end).unwrap_or(text)))
        }
    }
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
