//! The supported versions of Kubernetes.

use kube::Client;

use super::home::{Shown, refused};

/// The oldest supported version. It has `SelfSubjectReview` in its final form, from which the host
/// learns its own account. From 1.27 on, a server without streaming lists says so in a form that
/// watches understand; server-side apply is older. See host/decisions/0019.
const OLDEST: Version = Version { major: 1, minor: 28 };

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    major: u32,
    minor: u32,
}

/// Checks the version of the cluster, and returns it as the cluster writes it.
///
/// # Errors
///
/// Fails if the cluster reports no version, or one that is too old.
pub(super) async fn check(client: &Client, shown: Shown) -> anyhow::Result<String> {
    let answer = client.apiserver_version().await.map_err(|error| refused(error, shown))?;
    let Some(version) = Version::of(&answer.major, &answer.minor) else {
        anyhow::bail!(
            "it says that it is `{}`, which is no version of Kubernetes",
            answer.git_version
        );
    };
    anyhow::ensure!(
        version >= OLDEST,
        "it is Kubernetes {}, which is too old: {} or later is needed",
        answer.git_version,
        OLDEST
    );
    Ok(answer.git_version)
}

// === impl Version ===

impl Version {
    /// Parses a version. Some distributions of Kubernetes append a sign to the number: `27+`.
    fn of(major: &str, minor: &str) -> Option<Self> {
        let number = |text: &str| {
            let digits = text.find(|of: char| !of.is_ascii_digit()).unwrap_or(text.len());
            text.get(..digits)?.parse().ok()
        };
        Some(Self { major: number(major)?, minor: number(minor)? })
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubernetes_version_is_parsed_and_compared_as_numbers() {
        let cases = [
            ("plain", "1", "34", Some((1, 34))),
            ("with a plus", "1", "27+", Some((1, 27))),
            ("none", "", "", None),
            ("a text", "1", "new", None),
        ];
        for (case, major, minor, expected) in cases {
            let version = Version::of(major, minor).map(|of| (of.major, of.minor));
            assert_eq!(version, expected, "{case}");
        }
        assert!(Version { major: 1, minor: 9 } < OLDEST, "as numbers, not as texts");
        assert!(Version { major: 2, minor: 0 } > OLDEST);
    }
}
