//! The `ServiceAccount` whose rights a request has.

use std::fmt;

/// The namespace and name of a `ServiceAccount`: the identity of requests, not of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Account {
    pub namespace: String,
    pub name: String,
}

// === impl Account ===

impl Account {
    /// Returns the user name of the account at the API server.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// Returns the groups that the API server gives the account: all `ServiceAccount`s, those in
    /// its namespace, and all authenticated users.
    pub fn groups(&self) -> [String; 3] {
        [
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{}", self.namespace),
            "system:authenticated".to_owned(),
        ]
    }
}

impl std::str::FromStr for Account {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text.split_once('/') {
            Some((namespace, name))
                if !namespace.is_empty() && !name.is_empty() && !name.contains('/') =>
            {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => anyhow::bail!("`{text}` names no ServiceAccount: NAMESPACE/NAME is expected"),
        }
    }
}

impl fmt::Display for Account {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}
