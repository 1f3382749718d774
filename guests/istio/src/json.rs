//! JSON as Go writes it, and the messages with which Go refuses it.

use std::io;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::ser::{CompactFormatter, Formatter, Serializer};

/// The deepest nesting that is looked into.
const MAX_DEPTH: usize = 100;

/// Returns compact JSON in which, as in Go's, `<`, `>`, `&` and two separators are escaped.
///
/// # Errors
///
/// Fails if a map has keys that are no texts.
pub fn write(value: &impl Serialize) -> serde_json::Result<String> {
    let mut bytes = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut bytes, Escaping))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

struct Escaping;

impl Formatter for Escaping {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        const ESCAPED: [char; 5] = ['<', '>', '&', '\u{2028}', '\u{2029}'];
        for part in fragment.split_inclusive(ESCAPED) {
            let plain = part.trim_end_matches(ESCAPED);
            CompactFormatter.write_string_fragment(writer, plain)?;
            for c in part.chars().skip(plain.chars().count()) {
                write!(writer, "\\u{:04x}", u32::from(c))?;
            }
        }
        Ok(())
    }
}

/// Reads a JSON text.
///
/// # Errors
///
/// Fails with Go's message if the text is no JSON. If it does not fit the type, the message only
/// begins as Go's.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    check_syntax(text)?;
    serde_json::from_str(text).map_err(|error| format!("json: cannot unmarshal: {error}"))
}

/// Checks the syntax of a JSON text.
///
/// # Errors
///
/// Fails with Go's message for the first error.
pub fn check_syntax(text: &str) -> Result<(), String> {
    let mut scanner = Scanner { bytes: text.as_bytes(), depth: 0 };
    scanner.value()?;
    match scanner.next_token() {
        None => Ok(()),
        Some(byte) => Err(invalid(byte, "after top-level value")),
    }
}

struct Scanner<'a> {
    bytes: &'a [u8],
    depth: usize,
}

impl Scanner<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.first().copied()
    }

    /// Returns the next byte that is no space.
    fn next_token(&mut self) -> Option<u8> {
        loop {
            match self.next() {
                Some(b' ' | b'\t' | b'\r' | b'\n') => {}
                other => return other,
            }
        }
    }

    /// Returns the next byte within a word or a number. Go takes the end of the text for a space.
    fn next_inside(&mut self) -> u8 {
        self.next().unwrap_or(b' ')
    }

    fn expect_token(&mut self) -> Result<u8, String> {
        self.next_token().ok_or_else(at_the_end)
    }

    fn value(&mut self) -> Result<(), String> {
        let byte = self.expect_token()?;
        self.value_from(byte)
    }

    fn value_from(&mut self, byte: u8) -> Result<(), String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("exceeded max depth".to_owned());
        }
        match byte {
            b'{' => self.object(),
            b'[' => self.array(),
            b'"' => self.string(),
            b'-' => match self.next_inside() {
                digit @ b'0'..=b'9' => self.number(digit),
                other => Err(invalid(other, "in numeric literal")),
            },
            b'0'..=b'9' => self.number(byte),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            other => Err(invalid(other, "looking for beginning of value")),
        }?;
        self.depth -= 1;
        Ok(())
    }

    fn object(&mut self) -> Result<(), String> {
        let mut byte = self.expect_token()?;
        if byte == b'}' {
            return Ok(());
        }
        loop {
            if byte != b'"' {
                return Err(invalid(byte, "looking for beginning of object key string"));
            }
            self.string()?;
            match self.expect_token()? {
                b':' => {}
                other => return Err(invalid(other, "after object key")),
            }
            self.value()?;
            match self.expect_token()? {
                b',' => byte = self.expect_token()?,
                b'}' => return Ok(()),
                other => return Err(invalid(other, "after object key:value pair")),
            }
        }
    }

    fn array(&mut self) -> Result<(), String> {
        let mut byte = self.expect_token()?;
        if byte == b']' {
            return Ok(());
        }
        loop {
            self.value_from(byte)?;
            match self.expect_token()? {
                b',' => byte = self.expect_token()?,
                b']' => return Ok(()),
                other => return Err(invalid(other, "after array element")),
            }
        }
    }

    fn string(&mut self) -> Result<(), String> {
        loop {
            match self.next().ok_or_else(at_the_end)? {
                b'"' => return Ok(()),
                b'\\' => self.escape()?,
                control @ 0..0x20 => return Err(invalid(control, "in string literal")),
                _ => {}
            }
        }
    }

    fn escape(&mut self) -> Result<(), String> {
        match self.next_inside() {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(()),
            b'u' => {
                for _ in 0..4 {
                    let digit = self.next_inside();
                    if !digit.is_ascii_hexdigit() {
                        return Err(invalid(digit, "in \\u hexadecimal character escape"));
                    }
                }
                Ok(())
            }
            other => Err(invalid(other, "in string escape code")),
        }
    }

    /// Reads the rest of a number after its first digit.
    fn number(&mut self, first: u8) -> Result<(), String> {
        if first != b'0' {
            self.digits();
        }
        if self.peek() == Some(b'.') {
            self.next();
            self.digit("after decimal point in numeric literal")?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.next();
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.next();
            }
            self.digit("in exponent of numeric literal")?;
        }
        Ok(())
    }

    fn digit(&mut self, place: &str) -> Result<(), String> {
        match self.next_inside() {
            b'0'..=b'9' => self.digits(),
            other => return Err(invalid(other, place)),
        }
        Ok(())
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.next();
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), String> {
        for expected in word.bytes().skip(1) {
            let byte = self.next_inside();
            if byte != expected {
                let place = format!("in literal {word} (expecting '{}')", char::from(expected));
                return Err(invalid(byte, &place));
            }
        }
        Ok(())
    }
}

fn at_the_end() -> String {
    "unexpected end of JSON input".to_owned()
}

fn invalid(byte: u8, place: &str) -> String {
    let quoted = match char::from(byte) {
        '\'' => r"'\''".to_owned(),
        '"' => r#"'"'"#.to_owned(),
        c @ '\0'..' ' if !matches!(c, '\n' | '\r' | '\t') => format!("'\\x{byte:02x}'"),
        c => format!("'{}'", c.escape_debug()),
    };
    format!("invalid character {quoted} {place}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_html_could_misread_is_escaped() {
        let value = json!({"a": "<b>&\"c\"", "d": ["\u{2028}", "ä\n\u{1}", "<<"]});
        let expected =
            r#"{"a":"\u003cb\u003e\u0026\"c\"","d":["\u2028","ä\n\u0001","\u003c\u003c"]}"#;
        assert_eq!(write(&value).unwrap(), expected);
    }

    #[test]
    fn json_is_accepted() {
        for text in [
            "{}",
            " [ ] ",
            r#"{"a": [1, -0.5e+3, true, false, null, "\u00e4\n"], "b": {"c": 0}}"#,
            "0",
            "\"\"",
        ] {
            assert_eq!(check_syntax(text), Ok(()), "{text}");
            assert!(serde_json::from_str::<serde_json::Value>(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused_with_gos_messages() {
        let cases = [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            ("[1,", "unexpected end of JSON input"),
            ("\"a", "unexpected end of JSON input"),
            ("tru", "invalid character ' ' in literal true (expecting 'e')"),
            ("-", "invalid character ' ' in numeric literal"),
            ("\"\\", "invalid character ' ' in string escape code"),
            ("é", "invalid character 'Ã' looking for beginning of value"),
            ("not json", "invalid character 'o' in literal null (expecting 'u')"),
            ("{disableCni", "invalid character 'd' looking for beginning of object key string"),
            ("{'a'", r"invalid character '\'' looking for beginning of object key string"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("01", "invalid character '1' after top-level value"),
            ("-a", "invalid character 'a' in numeric literal"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("1ex", "invalid character 'x' in exponent of numeric literal"),
            ("\"\\x\"", "invalid character 'x' in string escape code"),
            ("\"\\u00g0\"", "invalid character 'g' in \\u hexadecimal character escape"),
            ("\"\n\"", r"invalid character '\n' in string literal"),
            ("\"\u{1}\"", r"invalid character '\x01' in string literal"),
            ("{}x", "invalid character 'x' after top-level value"),
            ("@", "invalid character '@' looking for beginning of value"),
        ];
        for (text, expected) in cases {
            assert_eq!(check_syntax(text), Err(expected.to_owned()), "{text}");
            assert!(serde_json::from_str::<serde_json::Value>(text).is_err(), "{text}");
        }
        assert!(check_syntax(&"[".repeat(100_000)).is_err());
    }
}
