//! The request of a call.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Uri,
    header::{CONTENT_LENGTH, HOST, USER_AGENT},
};
use http_body_util::Full;
use mortise_core::outbound::{Allowed, Method};

use crate::http::AGENT;

/// A request that can be sent more than once, as long as nothing of it was sent.
pub(super) struct Head {
    method: http::Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
}

// === impl Head ===

impl Head {
    /// Builds the request of a call. The rules have checked its headers.
    pub(super) fn of(call: &Allowed) -> Result<Self, String> {
        let body = call.body.clone().map(Bytes::from);
        let uri = call.target.path_and_query.parse();
        let uri = uri.map_err(|error| format!("the path and query of the URL: {error}"))?;
        let mut headers = HeaderMap::new();
        headers.insert(HOST, text(&call.target.authority())?);
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        // A body of a known length has its own; servers ask for one without a body, too.
        if body.is_none() && matches!(call.method, Method::Post | Method::Put | Method::Patch) {
            headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        for (name, value) in &call.headers {
            headers.insert(header_name(name)?, text(value)?);
        }
        if let Some(of) = &call.authorization {
            let mut value =
                text(&of.value).map_err(|_| "the credential is no header".to_owned())?;
            value.set_sensitive(true);
            headers.insert(header_name(&of.header)?, value);
        }
        let body = body.unwrap_or_default();
        Ok(Self { method: method(call.method), uri, headers, body })
    }

    pub(super) fn to_http(&self) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }
}

fn header_name(name: &str) -> Result<HeaderName, String> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| "a header has no valid name".to_owned())
}

fn text(value: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(value).map_err(|_| "a header has no valid value".to_owned())
}

fn method(of: Method) -> http::Method {
    match of {
        Method::Get => http::Method::GET,
        Method::Head => http::Method::HEAD,
        Method::Post => http::Method::POST,
        Method::Put => http::Method::PUT,
        Method::Patch => http::Method::PATCH,
        Method::Delete => http::Method::DELETE,
    }
}
