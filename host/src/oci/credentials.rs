//! Credentials for registries, parsed from Docker configuration files and pull secrets.

use std::{collections::BTreeMap, fmt};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::HeaderValue;
use serde::Deserialize;

use super::Reference;

/// The credentials for a registry.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A user name and a password.
    Basic {
        /// The user name.
        user: String,
        password: String,
    },
    /// An identity token: the token service exchanges it for access tokens.
    IdentityToken(String),
}

/// The reason why a file holds no usable credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0}; JSON is accepted of the form {{\"auths\": {{\"registry.example.com\": {{\"auth\": …}}}}}}"
)]
pub struct InvalidCredentials(String);

/// A Docker configuration file.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
    /// The credential helpers of single registries: `docker-credential-NAME`.
    #[serde(default)]
    pub cred_helpers: BTreeMap<String, String>,
    /// The credential helper of all other registries.
    pub creds_store: Option<String>,
}

#[derive(Default, Deserialize)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
}

// === impl Credentials ===

impl Credentials {
    /// Returns the header of basic authentication; `None` for an identity token.
    pub(super) fn basic(&self) -> Option<HeaderValue> {
        let Self::Basic { user, password } = self else { return None };
        let text = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
        let mut header = HeaderValue::try_from(text).ok()?;
        header.set_sensitive(true);
        Some(header)
    }
}

/// Shows the type only: credentials are never printed.
impl fmt::Debug for Credentials {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Basic { .. } => "Basic",
            Self::IdentityToken(_) => "IdentityToken",
        })
    }
}

// === impl DockerConfig ===

impl DockerConfig {
    /// Parses a configuration file, `.dockerconfigjson` of a pull secret, or the older
    /// `.dockercfg`, which holds the entries at the top level.
    ///
    /// # Errors
    ///
    /// Fails for any other format. The message repeats no part of the text.
    pub fn parse(text: &[u8]) -> Result<Self, InvalidCredentials> {
        let invalid = |error: serde_json::Error| {
            let place = format!("line {}, column {}", error.line(), error.column());
            InvalidCredentials(format!("it cannot be read at {place}"))
        };
        let value: serde_json::Value = serde_json::from_slice(text).map_err(invalid)?;
        let is_of_entries = value.as_object().is_some_and(|fields| {
            let known = ["auths", "credHelpers", "credsStore", "HttpHeaders"];
            !fields.is_empty() && !known.iter().any(|known| fields.contains_key(*known))
        });
        if is_of_entries && let Ok(auths) = BTreeMap::<String, Entry>::deserialize(&value) {
            return Ok(Self { auths, cred_helpers: BTreeMap::new(), creds_store: None });
        }
        Self::deserialize(&value).map_err(|_| InvalidCredentials("it has another form".to_owned()))
    }

    /// Returns the credentials for a repository: those of the longest entry that is a prefix of its
    /// name.
    ///
    /// # Errors
    ///
    /// Fails for an entry that cannot be parsed.
    pub fn credentials(&self, of: &Reference) -> Result<Option<Credentials>, InvalidCredentials> {
        let name = of.name();
        let covers = |entry: &str| {
            let entry = place(entry);
            let rest = name.strip_prefix(entry);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')).then_some(entry.len())
        };
        let entries = self.auths.iter().filter_map(|(at, entry)| Some((covers(at)?, at, entry)));
        let found = entries.max_by_key(|(length, ..)| *length);
        let Some((_, at, entry)) = found else { return Ok(None) };
        entry.credentials().map_err(|found| InvalidCredentials(format!("`{}` {found}", place(at))))
    }
}

/// Returns the host and the path, if any, of an entry's key; some keys are URLs.
fn place(key: &str) -> &str {
    let key = key.split_once("://").map_or(key, |(_, rest)| rest);
    key.trim_end_matches('/').trim_end_matches("/v1").trim_end_matches("/v2")
}

// === impl Entry ===

impl Entry {
    fn credentials(&self) -> Result<Option<Credentials>, &'static str> {
        let is_some = |text: &&String| !text.is_empty();
        if let Some(token) = self.identitytoken.as_ref().filter(is_some) {
            return Ok(Some(Credentials::IdentityToken(token.clone())));
        }
        if let (Some(user), Some(password)) = (&self.username, &self.password)
            && !user.is_empty()
        {
            let (user, password) = (user.clone(), password.clone());
            return Ok(Some(Credentials::Basic { user, password }));
        }
        let Some(auth) = self.auth.as_ref().filter(is_some) else { return Ok(None) };
        let text = STANDARD.decode(auth.trim()).ok().and_then(|text| String::from_utf8(text).ok());
        let text = text.ok_or("has an `auth` that is no base64 of a text")?;
        let (user, password) =
            text.split_once(':').ok_or("has an `auth` that is not USER:PASSWORD")?;
        // Docker appends a zero byte to some passwords.
        let (user, password) = (user.to_owned(), password.trim_end_matches('\0').to_owned());
        Ok(Some(Credentials::Basic { user, password }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(config: &str, reference: &str) -> Result<Option<Credentials>, String> {
        let config = DockerConfig::parse(config.as_bytes()).map_err(|error| error.to_string())?;
        config.credentials(&reference.parse().unwrap()).map_err(|error| error.to_string())
    }

    fn basic(user: &str, password: &str) -> Credentials {
        Credentials::Basic { user: user.to_owned(), password: password.to_owned() }
    }

    #[test]
    fn the_longest_entry_that_covers_a_repository_counts() {
        let config = r#"{"auths": {
            "example.com": {"auth": "YTpi"},
            "https://example.com/team/": {"username": "c", "password": "d:e"},
            "https://index.example.com/v1/": {"auth": "Zjpn"},
            "127.0.0.1:5000": {"identitytoken": "t", "auth": "YTpi"},
            "empty.example.com": {}
        }}"#;
        assert_eq!(find(config, "example.com/x:1"), Ok(Some(basic("a", "b"))));
        assert_eq!(find(config, "example.com/teams/x:1"), Ok(Some(basic("a", "b"))));
        assert_eq!(find(config, "example.com/team/x:1"), Ok(Some(basic("c", "d:e"))));
        assert_eq!(find(config, "index.example.com/x:1"), Ok(Some(basic("f", "g"))));
        let token = Ok(Some(Credentials::IdentityToken("t".to_owned())));
        assert_eq!(find(config, "127.0.0.1:5000/x:1"), token);
        for none in ["example.com:5000/x:1", "a.example.com/x:1", "empty.example.com/x:1"] {
            assert_eq!(find(config, none), Ok(None), "{none}");
        }
    }

    #[test]
    fn the_older_form_has_nothing_around_its_entries() {
        assert_eq!(
            find(r#"{"example.com": {"auth": "YTpi"}}"#, "example.com/x:1"),
            Ok(Some(basic("a", "b")))
        );
        assert_eq!(find("{}", "example.com/x:1"), Ok(None));
        assert_eq!(find(r#"{"credsStore": "desktop"}"#, "example.com/x:1"), Ok(None));
    }

    #[test]
    fn errors_of_malformed_credentials_do_not_contain_their_text() {
        let cases = [
            ("geheim", "it cannot be read at line 1, column 1"),
            ("[\"geheim\"]", "it has another form"),
            (r#"{"auths": "geheim"}"#, "it has another form"),
            (r#"{"auths": {"example.com": {"auth": "geheim!"}}}"#, "`example.com` has an `auth`"),
            (r#"{"auths": {"example.com": {"auth": "Z2VoZWlt"}}}"#, "is not USER:PASSWORD"),
        ];
        for (config, expected) in cases {
            let message = find(config, "example.com/x:1").unwrap_err();
            assert!(message.contains(expected) && !message.contains("geheim"), "{message}");
        }
        assert_eq!(format!("{:?}", basic("a", "b")), "Basic");
    }
}
