//! The values of credentials: found in an object, and put into the header of a call. They are kept
//! in buffers that are overwritten when they are dropped.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use memchr::memmem;
use serde_json::Value;
use zeroize::Zeroizing;

use super::{Answer, Authorization, Credential, CredentialFault, Scheme, header};
use crate::{
    contract::{Kind, bounds},
    path::{Fields, Path, Segment},
};

/// The header of `bearer` and `basic`.
const AUTHORIZATION: &str = "authorization";

/// The shortest value that is masked in answers, as in the texts of a processor: shorter ones
/// occur in many.
const MIN_MASKED_BYTES: usize = 6;
/// The replacement of a value in an answer.
const MASK: &[u8] = b"***";

// === impl Authorization ===

impl Authorization {
    /// Returns the value as it stands in the header, without the scheme, if that encodes it.
    pub(super) fn encoded(&self) -> Option<Zeroizing<String>> {
        let encoded = self.value.strip_prefix("Basic ")?;
        Some(Zeroizing::new(encoded.to_owned()))
    }
}

// === impl Credential ===

impl Credential {
    /// Returns the name of the header that holds the value. Fails if the processor may not set it.
    pub(super) fn header(&self) -> Result<String, String> {
        match &self.scheme {
            Scheme::Basic(user) if user.contains(|at: char| at == ':' || at.is_control()) => {
                Err("the user of a credential holds a colon or a control character".to_owned())
            }
            Scheme::Bearer | Scheme::Basic(_) => Ok(AUTHORIZATION.to_owned()),
            Scheme::Header(name) => header::name(name),
        }
    }

    /// Parses the path of the value.
    pub(super) fn path(&self) -> Result<Path, String> {
        let path: Path =
            self.at.parse().map_err(|invalid| format!("`credential.at`: {invalid}"))?;
        if path.segments().contains(&Segment::Each) {
            return Err("`credential.at` names one value: `[]` is not accepted".to_owned());
        }
        Ok(path)
    }

    /// Returns the header that authenticates a call with this value.
    pub(super) fn authorize(
        self,
        header: String,
        value: Zeroizing<String>,
    ) -> Result<Authorization, CredentialFault> {
        let value = match &self.scheme {
            Scheme::Bearer => Zeroizing::new(format!("Bearer {}", *value)),
            Scheme::Basic(user) => {
                if value.contains(char::is_control) {
                    return Err(CredentialFault::NotText);
                }
                let pair = Zeroizing::new(format!("{user}:{}", *value));
                let encoded = Zeroizing::new(BASE64_STANDARD.encode(pair.as_bytes()));
                Zeroizing::new(format!("Basic {}", *encoded))
            }
            Scheme::Header(_) => value,
        };
        let is_trimmed = value.trim_ascii().len() == value.len();
        if !is_trimmed || !header::is_value(&value) {
            return Err(CredentialFault::NotText);
        }
        Ok(Authorization { credential: self, header, value })
    }
}

/// Returns the text at a path of an object in JSON; of a Secret's `data`, the decoded text.
pub(super) fn value_at(
    kind: &Kind,
    path: &Path,
    json: &str,
) -> Result<Zeroizing<String>, CredentialFault> {
    let mut object = Fields::of([path.clone()]).read(json);
    let places = path.pointers(&object);
    let [place] = places.as_slice() else {
        return Err(if places.is_empty() {
            CredentialFault::NoValue
        } else {
            CredentialFault::NotText
        });
    };
    let value = match object.pointer_mut(place).map(Value::take) {
        Some(Value::String(text)) => Zeroizing::new(text),
        None | Some(Value::Null) => return Err(CredentialFault::NoValue),
        Some(_) => return Err(CredentialFault::NotText),
    };
    let is_encoded = kind.group.is_empty()
        && kind.kind == "Secret"
        && matches!(path.segments().first(), Some(Segment::Key(key)) if **key == *"data");
    let value = if is_encoded { decoded(&value)? } else { value };
    match value.len() {
        0 => Err(CredentialFault::NoValue),
        bytes if bytes > bounds::CREDENTIAL => Err(CredentialFault::NotText),
        _ => Ok(value),
    }
}

/// Masks values in an answer: servers quote what they were sent, and the processor chooses the
/// header and the path.
pub(super) fn masked<'a>(answer: Answer, values: impl Iterator<Item = &'a str>) -> Answer {
    let Answer { status, mut headers, mut body } = answer;
    for value in values.filter(|value| value.len() >= MIN_MASKED_BYTES) {
        for (_, text) in headers.iter_mut().filter(|(_, text)| text.contains(value)) {
            *text = text.replace(value, &String::from_utf8_lossy(MASK));
        }
        body = without(body, value.as_bytes());
    }
    Answer { status, headers, body }
}

/// Returns the bytes with [`MASK`] in place of a value.
fn without(bytes: Vec<u8>, value: &[u8]) -> Vec<u8> {
    let (mut masked, mut end) = (Vec::new(), 0);
    for at in memmem::find_iter(&bytes, value) {
        masked.extend_from_slice(bytes.get(end..at).unwrap_or_default());
        masked.extend_from_slice(MASK);
        end = at + value.len();
    }
    if end == 0 {
        return bytes;
    }
    masked.extend_from_slice(bytes.get(end..).unwrap_or_default());
    masked
}

fn decoded(encoded: &str) -> Result<Zeroizing<String>, CredentialFault> {
    let bytes = BASE64_STANDARD.decode(encoded).map_err(|_| CredentialFault::NotText)?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Zeroizing::new(text)),
        Err(error) => {
            drop(Zeroizing::new(error.into_bytes()));
            Err(CredentialFault::NotText)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::{kind, object_ref, v1};

    fn credential(scheme: Scheme) -> Credential {
        let of = object_ref(v1("", "Secret"), Some("default"), "token");
        Credential { of, at: "data.token".to_owned(), scheme }
    }

    fn sent(scheme: Scheme, value: &str) -> Result<(String, String), CredentialFault> {
        let credential = credential(scheme);
        let header = credential.header().unwrap();
        let sent = credential.authorize(header, Zeroizing::new(value.to_owned()))?;
        let shown = format!("{sent:?}");
        assert!(!shown.contains(value) && !shown.contains(&*sent.value), "{shown}");
        Ok((sent.header, sent.value.to_string()))
    }

    #[test]
    fn a_value_is_sent_by_its_scheme() {
        let pair = |header: &str, value: &str| Ok((header.to_owned(), value.to_owned()));
        assert_eq!(sent(Scheme::Bearer, "abc-def"), pair("authorization", "Bearer abc-def"));
        // `user:pässword`
        let basic = pair("authorization", "Basic dXNlcjpww6Rzc3dvcmQ=");
        assert_eq!(sent(Scheme::Basic("user".into()), "pässword"), basic);
        assert_eq!(sent(Scheme::Header("X-Key".into()), "abc-def"), pair("x-key", "abc-def"));
    }

    #[test]
    fn a_value_that_does_not_fit_a_header_is_not_sent() {
        let header = || Scheme::Header("x-key".into());
        for value in
            ["a-value\n", "a\r\nHost: evil.example", "a\0value", "välue", " value", "value "]
        {
            assert_eq!(sent(header(), value), Err(CredentialFault::NotText), "{value:?}");
            if value != " value" {
                assert_eq!(sent(Scheme::Bearer, value), Err(CredentialFault::NotText), "{value:?}");
            }
        }
        assert_eq!(sent(Scheme::Basic(String::new()), "pass\nword"), Err(CredentialFault::NotText));
        for scheme in [
            Scheme::Basic("a:b".into()),
            Scheme::Basic("a\n".into()),
            Scheme::Header("Host".into()),
            Scheme::Header("proxy-authorization".into()),
            Scheme::Header("a\r\nb".into()),
        ] {
            assert!(credential(scheme.clone()).header().is_err(), "{scheme:?}");
        }
    }

    #[test]
    fn a_value_is_masked_wherever_an_answer_quotes_it() {
        let answer = |location: &str, body: &str| Answer {
            status: 400,
            headers: vec![("location".to_owned(), location.to_owned())],
            body: body.as_bytes().to_vec(),
        };
        let cases = [
            (answer("/a?t=abc-def", "abc-def"), answer("/a?t=***", "***")),
            (answer("/", "xabc-defabc-defx"), answer("/", "x******x")),
            (answer("/", "abc-de"), answer("/", "abc-de")),
            (answer("", ""), answer("", "")),
            (answer("short", "short"), answer("short", "short")),
        ];
        for (given, expected) in cases {
            assert_eq!(masked(given, ["abc-def", "short"].into_iter()), expected);
        }
        // `user:abc-def`
        let basic = credential(Scheme::Basic("user".into()));
        let sent = basic.authorize(AUTHORIZATION.to_owned(), Zeroizing::new("abc-def".to_owned()));
        assert_eq!(**sent.unwrap().encoded().unwrap(), *"dXNlcjphYmMtZGVm");
    }

    #[test]
    fn a_value_is_found_in_its_object() {
        let long = "x".repeat(bounds::CREDENTIAL + 1);
        let object = json!({
            "data": {"token": "c2VjcmV0", "empty": "", "binary": "/w==", "bad": "%"},
            "spec": {"token": "plain", "number": 7, "map": {}, "null": null, "long": long,
                "keys": [{"name": "a", "value": "one"}, {"name": "b", "value": "two"},
                    {"name": "b", "value": "three"}]},
        });
        let (json, secret) = (object.to_string(), v1("", "Secret"));
        let cases = [
            (&secret, "data.token", Ok("secret")),
            (&secret, "data.other", Err(CredentialFault::NoValue)),
            (&secret, "data.empty", Err(CredentialFault::NoValue)),
            (&secret, "data.binary", Err(CredentialFault::NotText)),
            (&secret, "data.bad", Err(CredentialFault::NotText)),
            (&secret, "spec.token", Ok("plain")),
            (&kind("Secret"), "data.token", Ok("c2VjcmV0")),
            (&kind("Auth"), "spec.token", Ok("plain")),
            (&kind("Auth"), "spec.keys[name=a].value", Ok("one")),
            (&kind("Auth"), "spec.keys[name=b].value", Err(CredentialFault::NotText)),
            (&kind("Auth"), "spec.number", Err(CredentialFault::NotText)),
            (&kind("Auth"), "spec.map", Err(CredentialFault::NotText)),
            (&kind("Auth"), "spec.null", Err(CredentialFault::NoValue)),
            (&kind("Auth"), "spec.long", Err(CredentialFault::NotText)),
            (&kind("Auth"), "spec.token.more", Err(CredentialFault::NoValue)),
        ];
        for (kind, path, expected) in cases {
            let found = value_at(kind, &path.parse().unwrap(), &json);
            assert_eq!(
                found.as_ref().map(|value| value.as_str()),
                expected.as_ref().copied(),
                "{path}"
            );
        }
    }
}
