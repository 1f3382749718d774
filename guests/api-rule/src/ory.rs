//! The `Rule`s of Ory Oathkeeper. Fields are in alphabetical order, as the API server returns them.

use mortise_sdk::Kind;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Returns the kind of Oathkeeper's `Rule`.
pub(crate) fn kind() -> Kind {
    Kind::new("oathkeeper.ory.sh", "v1alpha1", "Rule")
}

/// The `Rule`s that an APIRule needs.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub(crate) specs: Vec<Spec>,
    /// Two rules of the APIRule have one path, so that their URLs do not tell them apart.
    pub(crate) same_path: bool,
}

/// The spec of a `Rule`.
#[derive(Debug, Serialize)]
pub(crate) struct Spec {
    pub(crate) authenticators: Vec<Handler>,
    pub(crate) authorizer: Handler,
    #[serde(rename = "match")]
    pub(crate) matches: Match,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) mutators: Vec<Handler>,
    pub(crate) upstream: Upstream,
}

/// A handler of a request, with its configuration.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Handler {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) config: Option<Value>,
    pub(crate) handler: String,
}

/// The requests that a `Rule` is for.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Match {
    pub(crate) methods: Vec<String>,
    pub(crate) url: String,
}

/// The service that a request is sent on to.
#[derive(Debug, Serialize)]
pub(crate) struct Upstream {
    pub(crate) url: String,
}

impl Rules {
    /// Returns the key that identifies a `Rule` among those of the APIRule.
    pub(crate) fn key(&self, of: &Match) -> String {
        if self.same_path { format!("{}:{}", of.url, of.methods.join(" ")) } else { of.url.clone() }
    }
}

/// Returns the requests that an existing `Rule` is for, given its spec as JSON.
pub(crate) fn matches_of(spec: &str) -> Option<Match> {
    #[derive(Deserialize)]
    struct Spec {
        #[serde(rename = "match")]
        matches: Match,
    }
    serde_json::from_str::<Spec>(spec).ok().map(|spec| spec.matches)
}
