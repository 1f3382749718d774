//! The syntax of regular expressions, as Go judges it.
//!
//! The expressions are for Envoy, which uses RE2. Go's syntax is RE2's, but that only RE2 has `\C`
//! and only Go ignores case in the names of Unicode's classes and knows long ones, such as
//! `\p{Letter}`; here both are refused. The crate `regex` accepts more, such as `(?x)`, `[a&&b]`
//! and `a**`, and less, such as `\Q.\E` and `a{`, and its messages are others.

mod class;

use self::class::Class;

/// The largest number of repetitions, also of those within each other.
const MAX_REPETITIONS: u32 = 1000;
/// The deepest nesting of groups.
const MAX_DEPTH: usize = 1000;

/// Checks the syntax of a regular expression.
///
/// # Errors
///
/// Fails with Go's message for the first error.
pub fn check(expression: &str) -> Result<(), String> {
    let mut parser = Parser { whole: expression, rest: expression, groups: vec![Group::default()] };
    parser.run().map_err(|error| format!("error parsing regexp: {error}"))
}

struct Parser<'a> {
    whole: &'a str,
    rest: &'a str,
    /// The groups that are open, from the outermost, which is the expression itself.
    groups: Vec<Group<'a>>,
}

/// An open group.
#[derive(Default)]
struct Group<'a> {
    /// The largest product of repetitions within each other, of what is in the group.
    repeated: u32,
    /// The product of those of the last item; `None` if there is nothing that could be repeated.
    last: Option<u32>,
    /// The operator that repeats the last item.
    operator: Option<&'a str>,
}

impl<'a> Parser<'a> {
    fn run(&mut self) -> Result<(), String> {
        while let Some(c) = self.rest.chars().next() {
            match c {
                '(' => self.open()?,
                ')' => self.close()?,
                '|' => {
                    self.skip(1);
                    self.group().end_item();
                    self.group().last = None;
                }
                '*' | '+' | '?' => {
                    let before = self.rest;
                    self.skip(1);
                    self.repeat(before, 1)?;
                }
                '{' => self.braces()?,
                '[' => self.class()?,
                '\\' => self.escape()?,
                _ => self.item(c.len_utf8()),
            }
        }
        if self.groups.len() > 1 {
            return Err(format!("missing closing ): `{}`", self.whole));
        }
        Ok(())
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    fn group(&mut self) -> &mut Group<'a> {
        self.groups.last_mut().expect("the outermost group is never closed")
    }

    fn item(&mut self, bytes: usize) {
        self.skip(bytes);
        self.group().item(1);
    }

    fn open(&mut self) -> Result<(), String> {
        if self.groups.len() >= MAX_DEPTH {
            return Err(format!("expression nests too deeply: `{}`", self.whole));
        }
        if self.rest.starts_with("(?") {
            return self.flags();
        }
        self.skip(1);
        self.groups.push(Group::default());
        Ok(())
    }

    fn close(&mut self) -> Result<(), String> {
        if self.groups.len() == 1 {
            return Err(format!("unexpected ): `{}`", self.whole));
        }
        self.skip(1);
        let mut inner = self.groups.pop().unwrap_or_default();
        inner.end_item();
        self.group().item(inner.repeated.max(1));
        Ok(())
    }

    /// Reads `(?flags)`, `(?flags:`, `(?P<name>` or `(?<name>`.
    fn flags(&mut self) -> Result<(), String> {
        let start = self.rest;
        let name = start.strip_prefix("(?P<").or_else(|| start.strip_prefix("(?<"));
        if let Some(name) = name {
            let Some((name, rest)) = name.split_once('>') else {
                return Err(format!("invalid named capture: `{start}`"));
            };
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let end = start.len() - rest.len();
            let capture = start.get(..end).unwrap_or(start);
            if name.is_empty() || !name.chars().all(is_word) {
                return Err(format!("invalid named capture: `{capture}`"));
            }
            self.rest = rest;
            self.groups.push(Group::default());
            return Ok(());
        }
        let mut is_negative = false;
        let mut has_flag = false;
        for (place, c) in start.char_indices().skip(2) {
            let end = place + c.len_utf8();
            let invalid = || {
                let text = start.get(..end).unwrap_or(start);
                Err(format!("invalid or unsupported Perl syntax: `{text}`"))
            };
            match c {
                'i' | 'm' | 's' | 'U' => has_flag = true,
                '-' if !is_negative => (is_negative, has_flag) = (true, false),
                ':' | ')' if is_negative && !has_flag => return invalid(),
                ':' => {
                    self.skip(end);
                    self.groups.push(Group::default());
                    return Ok(());
                }
                ')' => {
                    self.skip(end);
                    self.group().operator = None;
                    return Ok(());
                }
                _ => return invalid(),
            }
        }
        Err(format!("invalid or unsupported Perl syntax: `{start}`"))
    }

    /// Applies the operator before the rest to the last item.
    fn repeat(&mut self, before: &'a str, times: u32) -> Result<(), String> {
        if let Some(rest) = self.rest.strip_prefix('?') {
            self.rest = rest;
        }
        let operator = before.get(..before.len() - self.rest.len()).unwrap_or(before);
        let group = self.group();
        let Some(last) = group.last else {
            return Err(format!("missing argument to repetition operator: `{operator}`"));
        };
        if let Some(former) = group.operator {
            return Err(format!("invalid nested repetition operator: `{former}{operator}`"));
        }
        let product = last.saturating_mul(times.max(1));
        if product > MAX_REPETITIONS {
            return Err(format!("invalid repeat count: `{operator}`"));
        }
        group.last = Some(product);
        group.operator = Some(operator);
        Ok(())
    }

    /// Reads `{n}`, `{n,}` or `{n,m}`; any other brace is an ordinary character.
    fn braces(&mut self) -> Result<(), String> {
        let before = self.rest;
        let Some((least, most, rest)) = bounds(before) else {
            self.item(1);
            return Ok(());
        };
        let operator = before.get(..before.len() - rest.len()).unwrap_or(before);
        let is_wrong = least > MAX_REPETITIONS || most.is_some_and(|most| most > MAX_REPETITIONS);
        if is_wrong || most.is_some_and(|most| least > most) {
            return Err(format!("invalid repeat count: `{operator}`"));
        }
        self.rest = rest;
        self.repeat(before, most.unwrap_or(least))?;
        if most == Some(0) {
            // Go counts no repetitions within one that takes nothing.
            self.group().last = Some(1);
        }
        Ok(())
    }

    fn class(&mut self) -> Result<(), String> {
        self.rest = Class::skip(self.rest)?;
        self.group().item(1);
        Ok(())
    }

    fn escape(&mut self) -> Result<(), String> {
        if let Some(literal) = self.rest.strip_prefix("\\Q") {
            let (literal, rest) = literal.split_once("\\E").unwrap_or((literal, ""));
            self.rest = rest;
            if literal.is_empty() {
                self.group().operator = None;
            } else {
                self.group().item(1);
            }
            return Ok(());
        }
        let is_assertion =
            ["\\A", "\\b", "\\B", "\\z"].iter().any(|known| self.rest.starts_with(known));
        if is_assertion {
            self.item(2);
            return Ok(());
        }
        self.rest = class::skip_escape(self.rest, false)?;
        self.group().item(1);
        Ok(())
    }
}

impl Group<'_> {
    fn item(&mut self, repeated: u32) {
        self.end_item();
        self.last = Some(repeated);
    }

    fn end_item(&mut self) {
        self.repeated = self.repeated.max(self.last.unwrap_or_default());
        self.operator = None;
    }
}

/// Returns the bounds of a repetition in braces, and the text after it.
fn bounds(text: &str) -> Option<(u32, Option<u32>, &str)> {
    let (least, rest) = number(text.strip_prefix('{')?)?;
    if let Some(rest) = rest.strip_prefix('}') {
        return Some((least, Some(least), rest));
    }
    let rest = rest.strip_prefix(',')?;
    if let Some(rest) = rest.strip_prefix('}') {
        return Some((least, None, rest));
    }
    let (most, rest) = number(rest)?;
    Some((least, Some(most), rest.strip_prefix('}')?))
}

fn number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if digits.is_empty() || digits.len() > 1 && digits.starts_with('0') {
        return None;
    }
    Some((digits.parse().unwrap_or(u32::MAX), rest))
}

#[cfg(test)]
mod tests;
