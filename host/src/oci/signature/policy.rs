//! Signature policies: the keys that a Processor and the host require for modules.

use std::fmt;

use serde::Deserialize;

use super::{KeyId, PublicKey, Verified};
use crate::oci::reference::without_default_port;

/// The signatures that the host requires, regardless of the Processor.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    rules: Vec<Rule>,
}

/// A rule for all names that begin with its prefix.
#[derive(Debug, Clone)]
struct Rule {
    prefix: String,
    /// The accepted keys: one of them must have signed; `None` if no signature is required.
    keys: Option<Vec<PublicKey>>,
}

/// The format of the policy file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    rules: Vec<InFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InFile {
    /// Absent: all names.
    #[serde(default)]
    prefix: String,
    keys: Option<Vec<String>>,
    #[serde(default)]
    unsigned: bool,
}

/// The reason why a text is not a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0}; `rules:` is accepted, a list with a `prefix` (of an image or of a path below /modules/; all if absent), and `keys` in PEM or `unsigned: true`"
)]
pub struct InvalidPolicy(String);

/// The required signatures of a module: by at least one key of each list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requirement {
    lists: Vec<(Origin, Vec<PublicKey>)>,
}

/// The source of a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Processor,
    Host,
}

/// The error of a module that is not signed as required.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsigned {
    origin: Origin,
    found: String,
}

// === impl Policy ===

impl Policy {
    /// Reads the file of `--require-signatures`.
    ///
    /// # Errors
    ///
    /// Fails for a text of another format, and for invalid keys.
    pub fn parse(text: &str) -> Result<Self, InvalidPolicy> {
        let file: File = serde_saphyr::from_str(text)
            .map_err(|error| InvalidPolicy(error.to_string().replace('\n', " ")))?;
        let rule = |rule: InFile| {
            let of = if rule.prefix.is_empty() { "all" } else { &rule.prefix };
            let keys = match (rule.keys, rule.unsigned) {
                (Some(keys), false) if !keys.is_empty() => Some(keys),
                (None, true) => None,
                _ => return Err(InvalidPolicy(format!("the rule for `{of}` has no keys"))),
            };
            let parse = |keys: Vec<String>| keys.iter().map(|key| PublicKey::parse(key)).collect();
            let keys: Option<Result<Vec<PublicKey>, _>> = keys.map(parse);
            let keys = keys.transpose().map_err(|error| {
                InvalidPolicy(format!("a key of the rule for `{of}` is none: {error}"))
            })?;
            Ok(Rule { prefix: prefix(&rule.prefix), keys })
        };
        let rules = file.rules.into_iter().map(rule).collect::<Result<_, _>>()?;
        Ok(Self { rules })
    }

    /// Returns the keys, one of which must have signed the module of this name; `None` if no
    /// signature is required.
    ///
    /// # Errors
    ///
    /// Fails for a name that no rule covers: it is not loaded.
    fn keys(&self, name: &str) -> Result<Option<&[PublicKey]>, Unsigned> {
        let covering = self.rules.iter().filter(|rule| rule.covers(name));
        let rule = covering.max_by_key(|rule| rule.prefix.len());
        let rule = rule.ok_or_else(|| Unsigned {
            origin: Origin::Host,
            found: format!("no rule of --require-signatures covers `{name}`"),
        })?;
        Ok(rule.keys.as_deref())
    }
}

/// Returns a prefix in the form of [`Reference::name`], in which the port of HTTPS is left out.
///
/// [`Reference::name`]: crate::oci::Reference::name
fn prefix(text: &str) -> String {
    let text = text.trim_end_matches('/');
    let (registry, rest) = text.split_at(text.find('/').unwrap_or(text.len()));
    format!("{}{rest}", without_default_port(registry))
}

// === impl Rule ===

impl Rule {
    /// Returns whether the prefix matches the name, at a path separator.
    fn covers(&self, name: &str) -> bool {
        let rest = name.strip_prefix(self.prefix.as_str());
        let is_at_border =
            |rest: &str| self.prefix.is_empty() || rest.is_empty() || rest.starts_with('/');
        rest.is_some_and(is_at_border)
    }
}

// === impl Requirement ===

impl Requirement {
    /// Returns the requirement for a module's name: by the keys of its Processor, if there are
    /// some, and by the host's policy, if there is one.
    ///
    /// # Errors
    ///
    /// Fails for a name that no rule of the policy covers.
    pub fn of(
        name: &str,
        keys: Option<&[PublicKey]>,
        policy: Option<&Policy>,
    ) -> Result<Self, Unsigned> {
        let own = keys.map(|keys| (Origin::Processor, keys.to_vec()));
        let of_host = policy.map(|policy| policy.keys(name)).transpose()?.flatten();
        let of_host = of_host.map(|keys| (Origin::Host, keys.to_vec()));
        Ok(Self { lists: own.into_iter().chain(of_host).collect() })
    }

    /// Returns whether no signature is required.
    pub fn is_nothing(&self) -> bool {
        self.lists.is_empty()
    }

    /// Returns all accepted keys.
    pub fn keys(&self) -> Vec<&PublicKey> {
        self.lists.iter().flat_map(|(_, keys)| keys).collect()
    }

    /// Fails if the verified signatures do not meet the requirement.
    ///
    /// # Errors
    ///
    /// The message names the signatures found and the accepted keys.
    pub fn check(&self, verified: &Verified) -> Result<(), Unsigned> {
        for (origin, keys) in &self.lists {
            let required = verified.require(keys);
            required.map_err(|found| Unsigned { origin: *origin, found })?;
        }
        Ok(())
    }

    /// Returns whether signatures by these keys meet the requirement.
    pub fn is_met_by<'a>(&self, by: impl Fn(&KeyId) -> bool + 'a) -> bool {
        self.lists.iter().all(|(_, keys)| keys.iter().any(|key| by(&key.id())))
    }
}

// === impl Unsigned ===

impl fmt::Display for Unsigned {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = match self.origin {
            Origin::Processor => "spec.verification",
            Origin::Host => "--require-signatures",
        };
        write!(to, "{} ({by})", self.found)
    }
}
