//! Tokens and organizations.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{plane::Plane, time};

/// The tokens that are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Tokens {
    /// Each token is a tenant of its own: its organization is named by the text up to the first
    /// dot. One that ends in `.bad` is unknown; one that ends in `.org2` belongs to a second
    /// organization.
    #[default]
    Any,
    /// Organization (any name) by token.
    Known(BTreeMap<String, String>),
}

/// An organization with everything in it.
#[derive(Debug)]
pub(crate) struct Organization {
    pub(crate) id: String,
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
                match token.rsplit_once('.') {
                    Some((_, "bad")) => None,
                    Some((_, "org2")) => Some(format!("{tenant}.org2")),
                    _ => Some(tenant.to_owned()).filter(|tenant| !tenant.is_empty()),
                }
            }
        }
    }
}

// === impl Organization ===

impl Organization {
    pub(crate) fn new(id: String, now: u64) -> Self {
        Self { id, created_at: time::text(now), planes: Vec::new() }
    }

    /// Returns the organization as the API shows it.
    pub(crate) fn show(&self) -> Value {
        json!({
            "id": self.id,
            "name": format!("organization {}", self.id),
            "owner_id": self.id,
            "login_path": self.id,
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
