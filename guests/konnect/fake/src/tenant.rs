//! Tokens and organizations.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{plane::Plane, time};

/// The tokens that are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Tokens {
    /// Each token is a tenant of its own: its organization is named by the text up to the first
    /// dot. One that ends in `.bad` is unknown; one that ends in `.org2` belongs to a second
    /// organization, which has the same data: a token that is moved finds what it has made.
    #[default]
    Any,
    /// Organization (any name) by token.
    Known(BTreeMap<String, String>),
}

/// An organization with everything in it.
#[derive(Debug)]
pub(crate) struct Organization {
    pub(crate) id: String,
    /// The identifier of the second organization with the same data, once a token of it was seen.
    pub(crate) second: Option<String>,
    created_at: String,
    /// Control planes of all regions, oldest first.
    pub(crate) planes: Vec<Plane>,
}

// === impl Tokens ===

impl Tokens {
    /// Returns the name of a token's organization; nothing if the token is unknown.
    pub(crate) fn organization(&self, token: &str) -> Option<String> {
        match self {
            Self::Known(organizations) => organizations.get(token).cloned(),
            Self::Any => {
                let tenant = token.split('.').next().unwrap_or_default();
                let is_known = !tenant.is_empty() && ending(token) != Some("bad");
                is_known.then(|| tenant.to_owned())
            }
        }
    }

    /// Returns whether a token belongs to the second organization with the same data.
    pub(crate) fn is_of_second(&self, token: &str) -> bool {
        *self == Self::Any && ending(token) == Some("org2")
    }
}

/// Returns what follows the last dot of a token.
fn ending(token: &str) -> Option<&str> {
    token.rsplit_once('.').map(|(_, ending)| ending)
}

// === impl Organization ===

impl Organization {
    pub(crate) fn new(id: String, now: u64) -> Self {
        Self { id, second: None, created_at: time::text(now), planes: Vec::new() }
    }

    /// Returns the organization, or the second one with its data, as the API shows it.
    pub(crate) fn show(&self, is_second: bool) -> Value {
        let id = self.second.as_ref().filter(|_| is_second).unwrap_or(&self.id);
        json!({
            "id": id,
            "name": format!("organization {id}"),
            "owner_id": id,
            "login_path": id,
            "state": "active",
            "created_at": self.created_at,
            "updated_at": self.created_at,
        })
    }

    /// Returns the control plane of a region.
    pub(crate) fn plane_mut(&mut self, region: &str, id: &str) -> Option<&mut Plane> {
        self.planes.iter_mut().find(|plane| plane.region == region && plane.id() == id)
    }

    /// Removes a control plane and everything in it, also from groups; returns whether there was
    /// one.
    pub(crate) fn remove_plane(&mut self, id: &str) -> bool {
        let before = self.planes.len();
        self.planes.retain(|plane| plane.id() != id);
        for plane in &mut self.planes {
            plane.members.remove(id);
        }
        self.planes.len() < before
    }
}
