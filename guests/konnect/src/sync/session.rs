//! Calls to the API with the token of one object.

use std::{fmt::Write as _, time::Duration};

use mortise_sdk::{
    Host,
    outbound::{Answer, Credential, Method},
};
use serde_json::Value;

use super::fault::{Fault, Refusal};

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
        let mut offset: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let mut query = query.to_vec();
            query.extend(offset.as_deref().map(|offset| ("offset", offset)));
            let mut page = self.get(host, path, &query)?;
            let Some(Value::Array(list)) = page.get_mut(items).map(Value::take) else {
                return Err(Fault::NoEntity);
            };
            found.extend(list);
            offset = page.get("offset").and_then(Value::as_str).map(str::to_owned);
            if offset.as_deref().is_none_or(str::is_empty) {
                return Ok(found);
            }
        }
        Err(Fault::NoEntity)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_holds_any_text() {
        let mut url = String::new();
        encode(&mut url, "k8s-uid:a b,ä&=/");
        assert_eq!(url, "k8s-uid%3Aa%20b%2C%C3%A4%26%3D%2F");
    }

    #[test]
    fn an_answer_of_success_is_json_by_its_content_type() {
        let read = |status, content_type: &str, body: &str| {
            let headers = vec![("content-type".to_owned(), content_type.to_owned())];
            read(&Answer { status, headers, body: body.into() })
        };
        assert_eq!(read(200, "application/json; charset=utf-8", "[1]"), Ok(serde_json::json!([1])));
        assert_eq!(read(201, "text/plain", "created"), Ok(Value::Null));
        assert_eq!(read(204, "", ""), Ok(Value::Null));
        assert_eq!(read(201, "application/json", "{"), Ok(Value::Null));
        assert!(matches!(read(302, "", ""), Err(Fault::Refused(_))));
    }
}
