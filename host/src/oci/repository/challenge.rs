//! Authentication at a registry after a 401: basic authentication, or a token of its token service.

use http::{
    HeaderMap, HeaderValue, Method,
    header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, WWW_AUTHENTICATE},
};
use http_body_util::{BodyExt as _, Full};
use serde::Deserialize;

use super::{Repository, nothing};
use crate::{
    http::{Address, Body, Policy, encoded},
    oci::{Credentials, Error, artifact::shown},
};

/// The largest answer of a token service.
const MAX_TOKEN_BYTES: usize = 64 << 10;
/// The client ID that is sent to a token service.
const CLIENT: &str = "mortise";

/// The authentication scheme that a registry requests.
#[derive(Debug, PartialEq, Eq)]
enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String> },
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Repository {
    /// Returns the `Authorization` header for a registry that answered 401 with these headers.
    /// `is_loopback`: it is this machine.
    pub(super) async fn authorization(
        &self,
        (from, is_loopback): (&Address, bool),
        headers: &HeaderMap,
    ) -> Result<HeaderValue, Error> {
        let challenges = headers.get_all(WWW_AUTHENTICATE).into_iter();
        let challenges = challenges.filter_map(|value| value.to_str().ok()).filter_map(parse);
        // A token has fewer rights than a password.
        let challenge = challenges.max_by_key(|challenge| *challenge != Challenge::Basic);
        match challenge {
            Some(Challenge::Bearer { realm, service }) => {
                self.token((from, is_loopback), &realm, service.as_deref()).await
            }
            Some(Challenge::Basic) => self.basic(from),
            None => Err(self.denied("it does not say how it wants to know who asks")),
        }
    }

    fn basic(&self, at: &Address) -> Result<HeaderValue, Error> {
        let Some(credentials) = &self.credentials else {
            return Err(self.denied("it asks for credentials, and there are none for it"));
        };
        if !at.is_tls {
            return Err(self.denied("it asks for credentials, which are sent over TLS only"));
        }
        let basic = credentials.basic();
        basic.ok_or_else(|| self.denied("it asks for a password, and there is only a token for it"))
    }

    /// Requests a token from the registry's token service.
    async fn token(
        &self,
        (from, is_loopback): (&Address, bool),
        realm: &str,
        service: Option<&str>,
    ) -> Result<HeaderValue, Error> {
        let realm_at = Address::parse(realm);
        let Some(at) = realm_at else {
            let found = format!("its token service `{}` is no address", shown(realm));
            return Err(self.invalid("a request without a token".to_owned(), found));
        };
        self.check_scheme(&at)?;
        if from.is_tls && !at.is_tls {
            let found = "it is to give a token without TLS".to_owned();
            return Err(Error::AddressRefused { host: at.host, found });
        }
        // The token, too, would be sent to the registry without TLS.
        if self.credentials.is_some() && !(at.is_tls && from.is_tls) {
            return Err(self.denied("it asks for credentials, which are sent over TLS only"));
        }
        let actions = if self.pushes { "pull,push" } else { "pull" };
        let scope = format!("repository:{}:{actions}", self.name);
        let mut pairs = vec![("scope", scope.as_str())];
        pairs.extend(service.map(|service| ("service", service)));
        let (to, request) = self.token_request(at, &pairs);
        let (connector, policy) =
            (&self.registries.connector, Policy { loopback: is_loopback, ..Policy::default() });
        let mut given = connector.send(&to, policy, request, connector.times.answer).await?;
        if !given.status.is_success() {
            return Err(super::refused(&mut given, "a request for a token").await);
        }
        let body = given.small(MAX_TOKEN_BYTES).await;
        let token = body.ok().and_then(|body| serde_json::from_slice::<Token>(&body).ok());
        let token = token.and_then(|token| token.token.or(token.access_token));
        let header = token.and_then(|token| HeaderValue::try_from(format!("Bearer {token}")).ok());
        let Some(mut header) = header else {
            let (host, asked) = (to.host, "a request for a token".to_owned());
            return Err(Error::Invalid {
                host,
                asked,
                found: "there is no token in it".to_owned(),
            });
        };
        header.set_sensitive(true);
        Ok(header)
    }

    fn token_request(
        &self,
        at: Address,
        pairs: &[(&str, &str)],
    ) -> (Address, (Method, HeaderMap, Body)) {
        let mut headers = HeaderMap::new();
        if let Some(Credentials::IdentityToken(token)) = &self.credentials {
            let own =
                [("grant_type", "refresh_token"), ("refresh_token", token), ("client_id", CLIENT)];
            let pairs = pairs.iter().chain(&own);
            let form: Vec<String> =
                pairs.map(|(key, value)| format!("{key}={}", encoded(value))).collect();
            let form = form.join("&");
            headers.insert(CONTENT_LENGTH, HeaderValue::from(form.len()));
            let form_type = HeaderValue::from_static("application/x-www-form-urlencoded");
            headers.insert(CONTENT_TYPE, form_type);
            let body = Full::new(form.into()).map_err(|never| match never {}).boxed();
            return (at, (Method::POST, headers, body));
        }
        if let Some(basic) = self.credentials.as_ref().and_then(Credentials::basic) {
            headers.insert(AUTHORIZATION, basic);
        }
        let to = pairs.iter().fold(at, |at, (key, value)| at.with_query(key, value));
        (to, (Method::GET, headers, nothing()))
    }

    fn denied(&self, found: &str) -> Error {
        Error::Refused {
            host: self.registry.clone(),
            status: 401,
            asked: format!("a request about `{}`", self.name),
            found: format!(": {found}"),
            retry_after: None,
        }
    }
}

/// Parses a text as a challenge.
#[cfg(any(test, fuzzing))]
pub(super) fn check(text: &str) {
    drop(parse(text));
}

/// Parses one challenge; `None` for an unknown scheme.
fn parse(header: &str) -> Option<Challenge> {
    let (scheme, mut rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let (mut realm, mut service) = (None, None);
    while let Some((key, after)) = rest.split_once('=') {
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => after.split_once(',').unwrap_or((after, "")),
        };
        match key.trim_matches([' ', ',']).to_ascii_lowercase().as_str() {
            "realm" => realm = Some(value.to_owned()),
            "service" => service = Some(value.to_owned()),
            _ => {}
        }
        rest = after;
    }
    realm.map(|realm| Challenge::Bearer { realm, service })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read_in_any_order() {
        let bearer = |realm: &str, service: Option<&str>| {
            let (realm, service) = (realm.to_owned(), service.map(ToOwned::to_owned));
            Some(Challenge::Bearer { realm, service })
        };
        let cases = [
            ("Basic realm=\"x\"", Some(Challenge::Basic)),
            ("basic", Some(Challenge::Basic)),
            (
                "Bearer realm=\"https://a/b?c=d,e\",service=\"s\"",
                bearer("https://a/b?c=d,e", Some("s")),
            ),
            (
                "bearer service=s, scope=\"a:b:pull,push\", Realm=https://a",
                bearer("https://a", Some("s")),
            ),
            ("Bearer realm=\"https://a\"", bearer("https://a", None)),
            ("Bearer service=\"s\"", None),
            ("Bearer realm=\"open", None),
            ("Negotiate", None),
            ("", None),
        ];
        for (header, expected) in cases {
            assert_eq!(parse(header), expected, "{header}");
        }
    }
}
