//! References to artifacts in registries: `registry.example.com/team/rules:2.3.0@sha256:…`.

use std::{fmt, net::Ipv6Addr, num::NonZeroU16, str::FromStr};

use super::Digest;

/// The longest name of a repository that registries accept.
const MAX_REPOSITORY_BYTES: usize = 255;
const MAX_TAG_BYTES: usize = 128;
const FORM: &str = "HOST/REPOSITORY:TAG or HOST/REPOSITORY@sha256:DIGEST is accepted";

/// An artifact in a registry, by tag, digest or both.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reference {
    /// The host of the registry, with the port if one is named.
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

/// The reason why a text is not a reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` {found}; {FORM}")]
pub struct InvalidReference {
    text: String,
    found: String,
}

// === impl Reference ===

impl Reference {
    /// Returns the host of the registry, with the port if one is named.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Returns the repository in the registry.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Returns registry and repository: the name that signature policies use. The port of HTTPS is
    /// left out, so that one repository has one name.
    pub fn name(&self) -> String {
        format!("{}/{}", without_default_port(&self.registry), self.repository)
    }

    /// Returns the tag, if one is named.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// Returns the digest of the manifest, if one is named. The tag is ignored then.
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// Returns the same reference with this digest of its manifest.
    #[must_use]
    pub fn at(&self, digest: Digest) -> Self {
        Self { digest: Some(digest), ..self.clone() }
    }

    /// Returns the same reference without a digest; `None` if it names no tag.
    pub fn by_tag(&self) -> Option<Self> {
        self.tag.is_some().then(|| Self { digest: None, ..self.clone() })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(to, ":{tag}")?;
        }
        self.digest.iter().try_for_each(|digest| write!(to, "@{digest}"))
    }
}

impl FromStr for Reference {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        if may_hold_credentials(text) {
            let (text, found) = ("the reference".to_owned(), CREDENTIALS.to_owned());
            return Err(InvalidReference { text, found });
        }
        let invalid =
            |found: &str| InvalidReference { text: text.to_owned(), found: found.to_owned() };
        parse(text).map_err(invalid)
    }
}

const CREDENTIALS: &str = "holds credentials, which belong into a pull secret or into the Docker configuration file (after an `@`, only a digest is accepted)";

/// Returns whether a text may hold credentials, as `user:password@example.com/a` does. Such a text
/// is never printed. An `@` before a digest, valid or not, does not count.
fn may_hold_credentials(text: &str) -> bool {
    let is_digest = |part: &str| {
        part.split_once(':').is_some_and(|(algorithm, hex)| {
            let known = ["sha256", "sha512"];
            known.iter().any(|known| algorithm.eq_ignore_ascii_case(known))
                && hex.chars().all(|sign| sign.is_ascii_hexdigit())
        })
    };
    !text.split('@').skip(1).all(is_digest)
}

fn parse(text: &str) -> Result<Reference, &'static str> {
    if text.contains("://") {
        return Err("begins with a scheme, which is left out");
    }
    let Some((registry, rest)) = text.split_once('/') else {
        return Err("names no registry and repository");
    };
    if !is_registry(registry) {
        return Err("names no registry: the part before the first `/` is no host");
    }
    let (rest, digest) = match rest.split_once('@') {
        None => (rest, None),
        Some((rest, digest)) => {
            let digest = digest.parse().map_err(|_| "has a digest that is none")?;
            (rest, Some(digest))
        }
    };
    let (repository, tag) = match rest.rsplit_once(':') {
        None => (rest, None),
        Some((repository, tag)) if is_tag(tag) => (repository, Some(tag.to_owned())),
        Some(_) => return Err("has a tag that is none"),
    };
    if !is_repository(repository) {
        return Err("has a repository that is none: lower-case letters, digits, `.`, `_` and `-`");
    }
    if tag.is_none() && digest.is_none() {
        return Err("names neither a tag nor a digest");
    }
    Ok(Reference { registry: canonical(registry), repository: repository.to_owned(), tag, digest })
}

/// Returns a registry as it is named in policies and credentials: one registry has one name.
fn canonical(registry: &str) -> String {
    let registry = registry.to_ascii_lowercase();
    let Some((address, port)) = registry.strip_prefix('[').and_then(|of| of.split_once(']')) else {
        return registry;
    };
    let address: Result<Ipv6Addr, _> = address.parse();
    address.map(|address| format!("[{address}]{port}")).unwrap_or(registry)
}

/// Returns a registry, or the part of a name before the first `/`, without the port of HTTPS.
pub(super) fn without_default_port(registry: &str) -> &str {
    registry.strip_suffix(":443").unwrap_or(registry)
}

/// Returns whether a text is a host with or without a port. A word without a dot and a port counts
/// as a part of a repository, except `localhost`.
pub fn is_registry(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    // Other spellings of a number, such as `+443` or `0443`, would be other names of one registry.
    let is_port = |port: &str| port.parse().is_ok_and(|of: NonZeroU16| of.to_string() == port);
    if !port.is_none_or(is_port) {
        return false;
    }
    if let Some(address) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        return address.parse::<Ipv6Addr>().is_ok();
    }
    let is_label = |label: &str| {
        let inner = |sign: char| sign.is_ascii_alphanumeric() || sign == '-';
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(inner)
    };
    let is_named = host.contains('.') || port.is_some() || host == "localhost";
    is_named && host.split('.').all(is_label)
}

fn is_repository(text: &str) -> bool {
    let is_part = |part: &str| {
        let is_word = |sign: char| sign.is_ascii_lowercase() || sign.is_ascii_digit();
        let separators = part.split(is_word).filter(|separator| !separator.is_empty());
        let is_separator = |separator: &str| {
            matches!(separator, "." | "_" | "__") || separator.chars().all(|sign| sign == '-')
        };
        part.starts_with(is_word)
            && part.ends_with(is_word)
            && separators.into_iter().all(is_separator)
    };
    text.len() <= MAX_REPOSITORY_BYTES && text.split('/').all(is_part)
}

fn is_tag(text: &str) -> bool {
    let is_word = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
    text.len() <= MAX_TAG_BYTES
        && text.starts_with(is_word)
        && text.chars().all(|sign| is_word(sign) || matches!(sign, '.' | '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_reference_is_read_and_written() {
        let cases = [
            ("registry.example.com/a:1", "registry.example.com", "a", Some("1")),
            ("localhost/a/b-c/d__e.f:v1.0_x-y", "localhost", "a/b-c/d__e.f", Some("v1.0_x-y")),
            ("registry:5000/a:1", "registry:5000", "a", Some("1")),
            ("[::1]:5000/a:1", "[::1]:5000", "a", Some("1")),
            ("127.0.0.1:5000/a---b:1", "127.0.0.1:5000", "a---b", Some("1")),
        ];
        for (text, registry, repository, tag) in cases {
            for text in [text.to_owned(), format!("{text}@{DIGEST}")] {
                let reference: Reference = text.parse().unwrap();
                assert_eq!(reference.registry(), registry, "{text}");
                assert_eq!(reference.repository(), repository, "{text}");
                assert_eq!(reference.tag(), tag, "{text}");
                assert_eq!(reference.digest().is_some(), text.contains('@'), "{text}");
                assert_eq!(reference.to_string(), text);
            }
        }
        let by_digest: Reference = format!("Example.com/a@{DIGEST}").parse().unwrap();
        assert_eq!(by_digest.to_string(), format!("example.com/a@{DIGEST}"));
        assert_eq!(by_digest.by_tag(), None);
    }

    #[test]
    fn a_repository_has_one_name() {
        let cases = [
            ("Registry.example.com/a:1", "registry.example.com/a"),
            ("registry.example.com:443/a:1", "registry.example.com/a"),
            ("registry.example.com:4430/a:1", "registry.example.com:4430/a"),
            ("[::1]:443/a:1", "[::1]/a"),
            ("[0:0::0:1]:5000/a:1", "[::1]:5000/a"),
            ("[FE00::1]/a:1", "[fe00::1]/a"),
        ];
        for (text, name) in cases {
            assert_eq!(text.parse::<Reference>().unwrap().name(), name, "{text}");
        }
    }

    #[test]
    fn an_invalid_reference_is_refused_with_the_reason() {
        let cases = [
            ("a", "names no registry and repository"),
            ("team/a:1", "names no registry: "),
            ("https://example.com/a:1", "begins with a scheme"),
            ("example.com/a", "names neither a tag nor a digest"),
            ("example.com:0/a:1", "names no registry"),
            ("example.com:x/a:1", "names no registry"),
            ("example.com:+443/a:1", "names no registry"),
            ("example.com:0443/a:1", "names no registry"),
            ("example.com:65536/a:1", "names no registry"),
            ("-example.com/a:1", "names no registry"),
            ("[::g]:1/a:1", "names no registry"),
            ("example.com/:1", "has a repository that is none"),
            ("example.com/A:1", "has a repository that is none"),
            ("example.com/a/../b:1", "has a repository that is none"),
            ("example.com/a//b:1", "has a repository that is none"),
            ("example.com/a b:1", "has a repository that is none"),
            ("example.com/a___b:1", "has a repository that is none"),
            ("example.com/a:", "has a tag that is none"),
            ("example.com/a:.1", "has a tag that is none"),
            ("example.com/a:1 ", "has a tag that is none"),
            ("example.com/a@sha256:12", "has a digest that is none"),
            ("example.com/a@sha512:12", "has a digest that is none"),
            ("example.com/a:1@sha256:", "has a digest that is none"),
            ("example.com@sha256:12", "names no registry and repository"),
            (&format!("example.com/a@{}", DIGEST.to_uppercase()), "has a digest that is none"),
            (&format!("example.com/{}:1", "a".repeat(256)), "has a repository that is none"),
            (&format!("example.com/a:{}", "a".repeat(129)), "has a tag that is none"),
        ];
        for (text, expected) in cases {
            let message = text.parse::<Reference>().unwrap_err().to_string();
            assert!(message.contains(expected) && message.ends_with(FORM), "{text}: {message}");
        }
    }

    #[test]
    fn a_reference_that_may_hold_credentials_is_never_repeated() {
        let texts: [&str; 12] = [
            "user:password@example.com/a:1",
            "password@example.com/a:1",
            "https://user:password@example.com/a:1",
            "https://password@example.com/a:1",
            "user:pass/word@example.com/a:1",
            "user:p@ss/word@example.com:5000/a:1",
            "user:password@sha256:5000/a:1",
            "user:password@example.com:5000",
            "user:password@",
            "example.com/user:password@a:1",
            &format!("https://user:password@example.com/a@{DIGEST}"),
            &format!("user:pass/word@example.com/a:1@{DIGEST}"),
        ];
        for text in texts {
            let error = text.parse::<Reference>().unwrap_err();
            assert_eq!(error.to_string(), format!("`the reference` {CREDENTIALS}; {FORM}"));
            assert_eq!(error.text, "the reference", "{text}");
        }
    }
}
