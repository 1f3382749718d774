//! Versions of Istio, and which of them may follow another.

use std::{fmt, num::IntErrorKind};

/// A semantic version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The numbers: major, minor, patch.
    pub numbers: [i64; 3],
    /// The flavour, such as `distroless`; empty if there is none.
    pub pre_release: String,
    metadata: String,
}

impl Version {
    /// Reads a version.
    ///
    /// # Errors
    ///
    /// Fails with the message of the original's parser.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (text, metadata) = text.split_once('+').unwrap_or((text, ""));
        let (text, pre_release) = text.split_once('-').unwrap_or((text, ""));
        let parts: Vec<&str> = text.splitn(3, '.').collect();
        let [major, minor, patch] = parts.as_slice() else {
            return Err(format!("{text} is not in dotted-tri format"));
        };
        for (name, identifier) in [("pre-release", pre_release), ("metadata", metadata)] {
            if !is_identifier(identifier) {
                return Err(format!(
                    "failed to validate {name}: {identifier} is not a valid semver identifier"
                ));
            }
        }
        Ok(Self {
            numbers: [number(major)?, number(minor)?, number(patch)?],
            pre_release: pre_release.to_owned(),
            metadata: metadata.to_owned(),
        })
    }

    /// Returns the version without its flavour.
    #[must_use]
    pub fn without_flavour(mut self) -> Self {
        self.pre_release.clear();
        self
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(formatter, "{major}.{minor}.{patch}")?;
        for (sign, part) in [('-', &self.pre_release), ('+', &self.metadata)] {
            if !part.is_empty() {
                write!(formatter, "{sign}{part}")?;
            }
        }
        Ok(())
    }
}

fn is_identifier(text: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    text.is_empty() || text.split('.').all(is_part)
}

fn number(text: &str) -> Result<i64, String> {
    text.parse::<i64>().map_err(|error| {
        let why = match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        format!("strconv.ParseInt: parsing {text:?}: {why}")
    })
}

/// Checks that a version may follow another: it is not lower, of the same major version, and at
/// most one minor version higher. The flavour does not count.
///
/// # Errors
///
/// Fails with the reason if it may not, or if one of the texts is no version.
pub fn check_update(current: &str, target: &str) -> Result<(), String> {
    let (current, target) = (Version::parse(current)?, Version::parse(target)?);
    let ([major, minor, _], [new_major, new_minor, _]) = (current.numbers, target.numbers);
    if target.numbers < current.numbers {
        return Err(format!(
            "target Istio version ({target}) is lower than current version ({current}) - \
             downgrade not supported"
        ));
    }
    if new_major != major {
        return Err(format!(
            "target Istio version ({target}) is different than current Istio version ({current}) - \
             major version upgrade is not supported"
        ));
    }
    if new_minor.saturating_sub(minor) > 1 {
        return Err(format!(
            "target Istio version ({target}) is higher than current Istio version ({current}) - \
             the difference between versions exceed one minor version"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_written() {
        for text in ["1.30.2", "1.30.2-distroless", "1.30.2-rc.1+build-7", "1.30.2+x"] {
            assert_eq!(Version::parse(text).unwrap().to_string(), text);
        }
        let version = Version::parse("1.30.2-distroless").unwrap();
        assert_eq!(version.pre_release, "distroless");
        assert_eq!(version.without_flavour().to_string(), "1.30.2");
        assert_eq!(Version::parse("1.030.2").unwrap().to_string(), "1.30.2");
    }

    #[test]
    fn other_texts_are_refused_with_the_parsers_message() {
        let cases = [
            ("latest", "latest is not in dotted-tri format"),
            ("", " is not in dotted-tri format"),
            ("1.30-distroless", "1.30 is not in dotted-tri format"),
            ("v1.30.2", r#"strconv.ParseInt: parsing "v1": invalid syntax"#),
            ("1.30.2.1", r#"strconv.ParseInt: parsing "2.1": invalid syntax"#),
            ("1..2", r#"strconv.ParseInt: parsing "": invalid syntax"#),
            (
                "1.99999999999999999999.2",
                r#"strconv.ParseInt: parsing "99999999999999999999": value out of range"#,
            ),
            ("1.30.2-a_b", "failed to validate pre-release: a_b is not a valid semver identifier"),
        ];
        for (text, expected) in cases {
            assert_eq!(Version::parse(text).unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn flavours_do_not_count() {
        assert_eq!(check_update("1.30.2-distroless", "1.30.2"), Ok(()));
        assert_eq!(check_update("1.30.2", "1.30.2-distroless"), Ok(()));
        assert_eq!(check_update("1.30.2-z", "1.30.3-a"), Ok(()));
    }
}
