//! Calls to the API with the token of one object.

use std::{fmt::Write as _, time::Duration};

use mortise_sdk::{
    Host,
    outbound::{Answer, Credential, Method},
};
use serde_json::Value;

use super::fault::{Fault, Refusal};
use crate::kind::text;

/// The most pages of a list that are read.
const MAX_PAGES: usize = 32;

/// A server, and the token to call it with.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    /// The URL of the server, without a path.
    pub(crate) url: String,
    /// The object that holds the token.
    pub(crate) credential: Credential,
    /// The organization of the token.
    pub(crate) organization: Option<String>,
    /// The time for each call.
    pub(crate) timeout: Duration,
}

// === impl Session ===

impl Session {
    /// Sends a request, and returns the JSON of the answer; null if an answer of success has none.
    pub(crate) fn send(
        &self,
        host: &Host,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Value, Fault> {
        let mut url = format!("{}{path}", self.url);
        for (at, (key, value)) in query.iter().enumerate() {
            url.push(if at == 0 { '?' } else { '&' });
            encode(&mut url, key);
            url.push('=');
            encode(&mut url, value);
        }
        let call = host.outbound().call(method, url).header("accept", "application/json");
        let call = call.credential(self.credential.clone()).timeout(self.timeout);
        let call = match body {
            Some(body) => call.json(body),
            None => call,
        };
        read(&call.send().map_err(Fault::Call)?)
    }

    pub(crate) fn get(
        &self,
        host: &Host,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<Value, Fault> {
        self.send(host, Method::Get, path, query, None)
    }

    /// Reads a list, page by page. `items` is the member of a page with the entities. A list that
    /// does not end within the pages that are read is no answer.
    pub(crate) fn list(
        &self,
        host: &Host,
        path: &str,
        query: &[(&str, &str)],
        items: &str,
    ) -> Result<Vec<Value>, Fault> {
        let mut found = Vec::new();
        let mut after: Option<(&str, String)> = None;
        for _ in 0..MAX_PAGES {
            let mut query = query.to_vec();
            query.extend(after.as_ref().map(|(name, place)| (*name, place.as_str())));
            let mut page = self.get(host, path, &query)?;
            let Some(Value::Array(list)) = page.get_mut(items).map(Value::take) else {
                return Err(Fault::NoEntity);
            };
            found.extend(list);
            after = next(&page);
            if after.is_none() {
                return Ok(found);
            }
        }
        Err(Fault::NoEntity)
    }
}

/// Returns the parameter of the query with which a list goes on after a page; `None` after the last.
fn next(page: &Value) -> Option<(&'static str, String)> {
    const AFTER: &str = "page[after]";
    if let Some(offset) = text(page, "offset").filter(|offset| !offset.is_empty()) {
        return Some(("offset", offset.to_owned()));
    }
    // Lists beside the core entities give path and query of the next page.
    let (_, query) = text(page, "meta.page.next")?.split_once('?')?;
    let place = query.split('&').find_map(|parameter| {
        let (name, place) = parameter.split_once('=')?;
        (decode(name) == AFTER).then(|| decode(place))
    })?;
    (!place.is_empty()).then_some((AFTER, place))
}

/// Reads an answer: its JSON, or null if a success has none.
fn read(answer: &Answer) -> Result<Value, Fault> {
    if !answer.is_success() {
        return Err(Fault::Refused(Refusal::of(answer)));
    }
    let content_type = answer.header("content-type").unwrap_or_default();
    let is_json = content_type.split(';').next().is_some_and(|of| of.trim() == "application/json");
    if !is_json {
        return Ok(Value::Null);
    }
    // The request has succeeded, whatever the body is: only callers that need an entity miss it.
    Ok(serde_json::from_slice(&answer.body).unwrap_or_default())
}

/// Adds a text of a query, percent-encoded.
fn encode(url: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            // A `String` takes every text.
            let _ = write!(url, "%{byte:02X}");
        }
    }
}

/// Returns a text of a query without its percent-encoding. What is not encoded in this way stays as
/// it is.
fn decode(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, after @ ..] = rest {
        let code = after.get(..2).filter(|_| *first == b'%');
        let code = code.and_then(|code| u8::from_str_radix(str::from_utf8(code).ok()?, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_query_holds_any_text() {
        let mut url = String::new();
        let text = "k8s-uid:a b,ä&=/";
        encode(&mut url, text);
        assert_eq!(url, "k8s-uid%3Aa%20b%2C%C3%A4%26%3D%2F");
        assert_eq!(decode(&url), text);
        assert_eq!(decode("%5Ba%zz%5"), "[a%zz%5");
    }

    #[test]
    fn a_list_goes_on_where_a_page_says() {
        let meta = |next: Value| json!({"data": [], "meta": {"page": {"size": 1, "next": next}}});
        let cases = [
            (json!({"offset": "a/b", "next": "/x?offset=a%2Fb"}), Some(("offset", "a/b"))),
            (json!({"offset": "", "next": null}), None),
            (json!({"data": []}), None),
            (meta("/x?page[size]=1&page[after]=7".into()), Some(("page[after]", "7"))),
            (meta("https://h/x?page%5Bafter%5D=a%3D".into()), Some(("page[after]", "a="))),
            (meta("/x?page[after]=".into()), None),
            (meta("/x".into()), None),
            (meta("/x?page[before]=7".into()), None),
            (meta(Value::Null), None),
        ];
        for (page, expected) in cases {
            let expected = expected.map(|(name, place)| (name, place.to_owned()));
            assert_eq!(next(&page), expected, "{page}");
        }
    }

    #[test]
    fn an_answer_of_success_is_json_by_its_content_type() {
        let read = |status, content_type: &str, body: &str| {
            let headers = vec![("content-type".to_owned(), content_type.to_owned())];
            read(&Answer { status, headers, body: body.into() })
        };
        assert_eq!(read(200, "application/json; charset=utf-8", "[1]"), Ok(json!([1])));
        assert_eq!(read(201, "text/plain", "created"), Ok(Value::Null));
        assert_eq!(read(204, "", ""), Ok(Value::Null));
        assert_eq!(read(201, "application/json", "{"), Ok(Value::Null));
        assert!(matches!(read(302, "", ""), Err(Fault::Refused(_))));
    }
}
