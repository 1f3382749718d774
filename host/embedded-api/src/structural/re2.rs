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
/// The letters of escapes, other than those of Unicode classes, numbers and quotations.
const ESCAPES: &str = "AabBdDfnrsStvwWz";
/// The same, inside of a class and as an end of a range there.
const CLASS_ESCAPES: &str = "afnrtv";
/// The names of Unicode classes that are no scripts.
const CATEGORIES: &str = "Any C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs";
/// The names of scripts that have four letters, as the short names have that Go does not know.
const SHORT_SCRIPTS: &str = "Ahom Cham Kawi Lisu Miao Modi Newa Thai Toto";
/// The names of classes in brackets and colons.
const NAMED_CLASSES: &str =
    "alnum alpha ascii blank cntrl digit graph lower print punct space upper word xdigit";

/// The reason why Go refuses a pattern, and the part of the pattern.
type Fault<'a> = (&'static str, &'a str);

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
            'p' | 'P' | 'x' => self.braced(character),
            '0'..='7' if self.is_octal(character) => self.octal(character),
            other if other.is_ascii_alphanumeric() => {
                self.text.push('\\');
                self.text.push(other);
            }
            other => self.push_literal(other),
        }
    }

    /// Translates a Unicode class or a number, after its letter: `^` before a name is the other
    /// letter.
    fn braced(&mut self, letter: char) {
        if self.rest.peek() != Some(&'{') {
            self.text.extend(['\\', letter]);
            return;
        }
        let inside = self.rest.by_ref().skip(1).take_while(|character| *character != '}');
        let inside: String = inside.collect();
        let (letter, name) = match inside.strip_prefix('^') {
            Some(name) => (if letter == 'p' { 'P' } else { 'p' }, name),
            None => (letter, inside.as_str()),
        };
        self.text.extend(["\\", letter.encode_utf8(&mut [0; 4]), "{", name, "}"]);
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
/// reason.
fn refuse(pattern: &str) -> Result<(), Fault<'_>> {
    let mut at = 0;
    // Copies of the smallest parts that repetitions make: of the last part, the most in this group,
    // and in each group around it.
    let (mut copies, mut most, mut open) = (1, 1, Vec::new());
    // The position of the repetition that has just ended, and whether there is something to repeat.
    let (mut repeated, mut is_empty): (Option<usize>, bool) = (None, true);
    while let Some(first) = pattern.get(at..).and_then(|rest| rest.chars().next()) {
        let rest = pattern.get(at..).unwrap_or_default();
        let part = |length: usize| rest.get(..length).unwrap_or(rest);
        let braces = repetition(rest).filter(|_| first == '{');
        let length = match first {
            '*' | '+' | '?' => 1,
            '{' => braces.map_or(1, |(inside, _)| inside.len() + 2),
            '\\' => escape(rest, ESCAPES)?,
            '[' => class(rest)?,
            '(' => group(rest)?,
            other => other.len_utf8(),
        };
        if matches!(first, '*' | '+' | '?') || braces.is_some() {
            let count = braces.map_or(Some(1), |(_, count)| count);
            let count = count.ok_or(("invalid repeat count", part(length)))?;
            let is_lazy = rest.get(length..).is_some_and(|rest| rest.starts_with('?'));
            let end = at + length + usize::from(is_lazy);
            if let Some(nested) = repeated.and_then(|begin| pattern.get(begin..end)) {
                return Err(("invalid nested repetition operator", nested));
            }
            if is_empty {
                return Err(("missing argument to repetition operator", part(end - at)));
            }
            copies *= count;
            if copies > MAX_REPETITIONS {
                return Err(("invalid repeat count", part(end - at)));
            }
            most = most.max(copies);
            (repeated, at) = (Some(at), end);
            continue;
        }
        let is_flags = first == '(' && part(length).ends_with(')');
        copies = 1;
        match first {
            '(' if !is_flags => open.push(std::mem::replace(&mut most, 1)),
            ')' => {
                copies = most;
                most = most.max(open.pop().ok_or(("unexpected )", pattern))?);
            }
            _ => {}
        }
        is_empty = matches!(first, '(' | '|') && (is_empty || !is_flags);
        (repeated, at) = (None, at + length);
    }
    if open.is_empty() { Ok(()) } else { Err(("missing closing )", pattern)) }
}

/// Returns the inside of the braces of a repetition that the text begins with, and the number of
/// copies that it makes; `None` if its counts are out of order or too large.
fn repetition(text: &str) -> Option<(&str, Option<u32>)> {
    let (inside, _) = text.strip_prefix('{')?.split_once('}')?;
    let (least, most) = inside.split_once(',').unwrap_or((inside, inside));
    let is_count = |text: &str| {
        let is_padded = text.len() > 1 && text.starts_with('0');
        !text.is_empty() && !is_padded && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    if !is_count(least) || !(most.is_empty() || is_count(most)) {
        return None;
    }
    let count = |text: &str| text.parse().unwrap_or(u32::MAX);
    let copies = if most.is_empty() { count(least).max(1) } else { count(most) };
    let is_small = (most.is_empty() || count(least) <= copies) && copies <= MAX_REPETITIONS;
    Some((inside, is_small.then_some(copies)))
}

/// Returns the length of the escape that the text begins with. `letters` are those that may be
/// escaped, besides numbers, quotations and Unicode classes.
fn escape<'a>(text: &'a str, letters: &str) -> Result<usize, Fault<'a>> {
    let mut characters = text.chars().skip(1);
    let Some(escaped) = characters.next() else {
        return Err(("trailing backslash at end of expression", ""));
    };
    let next = characters.next();
    let length = 1 + escaped.len_utf8();
    let invalid = || ("invalid escape sequence", text.get(..length).unwrap_or(text));
    match escaped {
        'Q' if letters == ESCAPES => Ok(text.find("\\E").map_or(text.len(), |end| end + 2)),
        'x' if next == Some('{') => Ok(text.find('}').map(|end| end + 1).ok_or_else(invalid)?),
        'p' | 'P' => unicode_class(text),
        '1'..='7' if !next.is_some_and(|next| matches!(next, '0'..='7')) => Err(invalid()),
        'x' | '0'..='7' => Ok(length),
        letter if letter.is_ascii_alphanumeric() && !letters.contains(letter) => Err(invalid()),
        other if !other.is_ascii() => Err(invalid()),
        _ => Ok(length),
    }
}

/// Returns the length of the Unicode class that the text begins with, such as `\pL` or `\p{Greek}`.
fn unicode_class(text: &str) -> Result<usize, Fault<'_>> {
    const UNKNOWN: &str = "invalid character class range";
    let length = match text.chars().nth(2) {
        Some('{') => text.find('}').map(|end| end + 1).ok_or((UNKNOWN, text))?,
        other => 2 + other.map_or(0, char::len_utf8),
    };
    let whole = text.get(..length).unwrap_or(text);
    let name = whole.get(2..).unwrap_or_default();
    let name = name.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(name);
    let name = name.strip_prefix('^').unwrap_or(name);
    let is_known = CATEGORIES.split(' ').any(|known| known == name) || is_script(name);
    if is_known { Ok(length) } else { Err((UNKNOWN, whole)) }
}

/// Returns whether Go has a script of the name, which it wants as Unicode spells it.
fn is_script(name: &str) -> bool {
    let is_spelled = name.split('_').all(|word| {
        let (first, rest) = word.split_at_checked(1).unwrap_or_default();
        let is_lower = rest.bytes().all(|byte| byte.is_ascii_lowercase());
        first.bytes().all(|byte| byte.is_ascii_uppercase()) && !rest.is_empty() && is_lower
    });
    let is_long = name.len() != 4 || SHORT_SCRIPTS.split(' ').any(|known| known == name);
    (is_spelled || name == "SignWriting")
        && is_long
        && Regex::new(&format!("\\p{{Script={name}}}")).is_ok()
}

/// Returns the length of the beginning of a group that the text begins with; of all of it if it
/// sets flags only.
fn group(text: &str) -> Result<usize, Fault<'_>> {
    let Some(inside) = text.strip_prefix("(?") else { return Ok(1) };
    let named = inside.strip_prefix("P<").or_else(|| inside.strip_prefix('<'));
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        const INVALID: &str = "invalid named capture";
        let (name, rest) = named.split_once('>').ok_or((INVALID, text))?;
        let length = text.len() - rest.len();
        let is_word = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric();
        if name.is_empty() || !name.bytes().all(is_word) {
            return Err((INVALID, text.get(..length).unwrap_or(text)));
        }
        return Ok(length);
    }
    let flags = inside.trim_start_matches(['i', 'm', 's', 'U', '-']);
    let length = text.len() - flags.len();
    match flags.chars().next() {
        Some(':' | ')') => Ok(length + 1),
        other => {
            let end = length + other.map_or(0, char::len_utf8);
            Err(("invalid or unsupported Perl syntax", text.get(..end).unwrap_or(text)))
        }
    }
}

/// Returns the length of the class that the text begins with.
fn class(text: &str) -> Result<usize, Fault<'_>> {
    const RANGE: &str = "invalid character class range";
    let begin = if text.starts_with("[^") { 2 } else { 1 };
    let mut at = begin;
    loop {
        let rest = text.get(at..).filter(|rest| !rest.is_empty());
        let rest = rest.ok_or(("missing closing ]", text))?;
        if rest.starts_with(']') && at > begin {
            return Ok(at + 1);
        }
        if let Some((name, _)) = rest.strip_prefix("[:").and_then(|rest| rest.split_once(":]")) {
            let whole = rest.get(..name.len() + 4).unwrap_or(rest);
            let name = name.strip_prefix('^').unwrap_or(name);
            if !NAMED_CLASSES.split(' ').any(|known| known == name) {
                return Err((RANGE, whole));
            }
            at += whole.len();
            continue;
        }
        let escaped = rest.strip_prefix('\\').and_then(|rest| rest.chars().next());
        if escaped.is_some_and(|letter| "dDsSwWpP".contains(letter)) {
            at += escape(rest, ESCAPES)?;
            continue;
        }
        let (low, mut length) = class_character(rest)?;
        let end = rest.get(length..).and_then(|rest| rest.strip_prefix('-'));
        if let Some(end) = end.filter(|end| !end.is_empty() && !end.starts_with(']')) {
            let (high, end) = class_character(end)?;
            length += 1 + end;
            if low.zip(high).is_some_and(|(low, high)| high < low) {
                return Err((RANGE, rest.get(..length).unwrap_or(rest)));
            }
        }
        at += length;
    }
}

/// Returns the character of a class that the text begins with, unless it is escaped by a letter or
/// a number, and its length.
fn class_character(text: &str) -> Result<(Option<char>, usize), Fault<'_>> {
    let first = text.chars().next();
    if first == Some('\\') {
        let escaped = text.chars().nth(1).filter(|escaped| !escaped.is_alphanumeric());
        return Ok((escaped, escape(text, CLASS_ESCAPES)?));
    }
    Ok((first, first.map_or(0, char::len_utf8)))
}
