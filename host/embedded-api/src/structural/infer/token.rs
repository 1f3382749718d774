//! The tokens of an expression, which give the positions of its parts.

use kube_cel::cel::common::ast::operators;

/// Tokens with their positions, taken from the first to the last.
#[derive(Debug)]
pub(super) struct Tokens<'a> {
    all: Vec<(usize, &'a str)>,
    next: usize,
    /// The position of the literal taken last.
    literal: usize,
}

/// Returns the sign of an operator with two operands.
pub(super) fn operator(name: &str) -> Option<&'static str> {
    Some(match name {
        operators::LOGICAL_AND => "&&",
        operators::LOGICAL_OR => "||",
        operators::ADD => "+",
        operators::SUBSTRACT => "-",
        operators::MULTIPLY => "*",
        operators::DIVIDE => "/",
        operators::MODULO => "%",
        operators::EQUALS => "==",
        operators::NOT_EQUALS => "!=",
        operators::GREATER_EQUALS => ">=",
        operators::LESS_EQUALS => "<=",
        operators::GREATER => ">",
        operators::LESS => "<",
        operators::IN => "in",
        operators::INDEX => "[",
        operators::OPT_INDEX => "[?",
        _ => return None,
    })
}

impl<'a> Tokens<'a> {
    pub(super) fn read(source: &'a str) -> Self {
        let mut tokens = Vec::new();
        let mut at = 0;
        while let Some(rest) = source.get(at..).filter(|rest| !rest.is_empty()) {
            let length = length(rest);
            if let Some(token) = rest.get(..length).filter(|token| !token.trim().is_empty()) {
                tokens.push((at, token));
            }
            at += length.max(1);
        }
        Self { all: tokens, next: 0, literal: 0 }
    }

    /// Returns the position of the next token.
    pub(super) fn position(&self) -> usize {
        self.all.get(self.next).or(self.all.last()).map_or(0, |(at, _)| *at)
    }

    /// Advances behind the next place where these tokens follow each other, and returns the
    /// position of the last of them.
    pub(super) fn take(&mut self, wanted: &[&str]) -> usize {
        self.find(wanted, wanted.len().saturating_sub(1))
    }

    /// Advances as [`Self::take`] does, and returns the position of the first of the tokens.
    pub(super) fn take_first(&mut self, wanted: &[&str]) -> usize {
        self.find(wanted, 0)
    }

    fn find(&mut self, wanted: &[&str], shown: usize) -> usize {
        let rest = self.all.get(self.next..).unwrap_or_default();
        let found = rest
            .windows(wanted.len().max(1))
            .position(|window| window.iter().map(|(_, token)| *token).eq(wanted.iter().copied()));
        let Some(found) = found else { return self.position() };
        let at = rest.get(found + shown).map_or(0, |(at, _)| *at);
        self.next += found + wanted.len();
        at
    }

    /// Returns the position of the literal taken last.
    pub(super) fn last_literal(&self) -> usize {
        self.literal
    }

    /// Advances behind the next literal.
    pub(super) fn take_literal(&mut self) {
        let rest = self.all.get(self.next..).unwrap_or_default();
        let is_literal = |token: &str| {
            token.starts_with(|first: char| first.is_ascii_digit())
                || token.ends_with(['\'', '"'])
                || matches!(token, "true" | "false" | "null")
        };
        let found = rest.iter().position(|(_, token)| is_literal(token));
        let at = found.and_then(|found| rest.get(found)).map(|(at, _)| *at);
        self.next += found.map_or(0, |found| found + 1);
        self.literal = at.unwrap_or(self.literal);
    }
}

/// Returns the length of the first token of a text, in bytes.
fn length(text: &str) -> usize {
    let while_fits =
        |fits: fn(char) -> bool| text.find(|character| !fits(character)).unwrap_or(text.len());
    let prefix = text.len() - text.trim_start_matches(['r', 'R', 'b', 'B']).len();
    if prefix <= 2 && text.get(prefix..).is_some_and(|rest| rest.starts_with(['\'', '"'])) {
        return prefix
            + quoted_length(
                text.get(prefix..).unwrap_or_default(),
                text.get(..prefix).unwrap_or_default(),
            );
    }
    let Some(first) = text.chars().next() else { return 0 };
    if first.is_whitespace() {
        return while_fits(char::is_whitespace);
    }
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if first.is_alphabetic() || first == '_' {
        return while_fits(|character| character.is_alphanumeric() || character == '_');
    }
    if first.is_ascii_digit() {
        return while_fits(|character| character.is_ascii_alphanumeric() || character == '.');
    }
    let double = ["&&", "||", "==", "!=", "<=", ">=", ".?", "[?"];
    if double.iter().any(|sign| text.starts_with(sign)) { 2 } else { first.len_utf8() }
}

fn quoted_length(text: &str, prefix: &str) -> usize {
    let one = text.get(..1).unwrap_or_default();
    let three = one.repeat(3);
    let quote = if text.starts_with(&three) { three.as_str() } else { one };
    let raw = prefix.contains(['r', 'R']);
    let mut at = quote.len();
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with(quote) {
            return at + quote.len();
        }
        let mut characters = rest.chars();
        let first = characters.next().map_or(1, char::len_utf8);
        let skipped = if rest.starts_with('\\') && !raw {
            characters.next().map_or(0, char::len_utf8)
        } else {
            0
        };
        at += first + skipped;
    }
    text.len()
}
