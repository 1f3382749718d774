//! The query of a URL.

use crate::Failure;

/// The parameters, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Query {
    parameters: Vec<(String, String)>,
}

// === impl Query ===

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        let parts = text.split('&').filter(|part| !part.is_empty());
        let pairs = parts.map(|part| part.split_once('=').unwrap_or((part, "")));
        let decode = |text: &str| decode_percent(&text.replace('+', " "));
        Self { parameters: pairs.map(|(key, value)| (decode(key), decode(value))).collect() }
    }

    /// Returns the first value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// Returns the first value of a parameter, empty if absent.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// Returns all values of a parameter.
    pub(crate) fn all<'a, 'n>(
        &'a self,
        name: &'n str,
    ) -> impl Iterator<Item = &'a str> + use<'a, 'n> {
        self.parameters.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns a boolean parameter: false if absent, `false` or `0`, true for all other values,
    /// including the empty one.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.optional_flag(name).unwrap_or_default()
    }

    /// Returns a boolean parameter; `None` if absent.
    pub(crate) fn optional_flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| !(value.eq_ignore_ascii_case("false") || value == "0"))
    }

    /// Returns an integer parameter.
    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, Failure> {
        let Some(text) = self.get(name).filter(|text| !text.is_empty()) else { return Ok(None) };
        let fault =
            |_| Failure::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"));
        text.parse().map(Some).map_err(fault)
    }
}

/// Decodes percent-encoding; invalid codes stay, and invalid UTF-8 is replaced.
pub(super) fn decode_percent(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let code = after.get(..2).filter(|_| byte == b'%');
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        if let Some(decoded) = code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            bytes.push(decoded);
            rest = after.get(2..).unwrap_or_default();
        } else {
            bytes.push(byte);
            rest = after;
        }
    }
    String::from_utf8(bytes)
        .unwrap_or_else(|fault| String::from_utf8_lossy(fault.as_bytes()).into_owned())
}
