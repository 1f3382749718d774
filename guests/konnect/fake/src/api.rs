//! The data of one organization, for its requests.

use serde_json::Value;

use crate::{
    error::Errors,
    id::Ids,
    kind::Entity,
    message::{Answer, Request},
    plane::Plane,
    tenant::Organization,
    time,
};

/// The region of hosts that name none.
const REGION: &str = "eu";
/// The domain of hosts that have none.
const DOMAIN: &str = "konghq.com";

/// The data that a request reads and writes.
pub(crate) struct Api<'a> {
    pub(crate) organization: &'a mut Organization,
    /// True for a token of the second organization with the same data.
    pub(crate) is_second: bool,
    pub(crate) region: &'a str,
    pub(crate) domain: &'a str,
    /// The most bytes of a body.
    pub(crate) body: usize,
    pub(crate) context: Context<'a>,
}

/// The data that a request for a part of a control plane uses beside it.
pub(crate) struct Context<'a> {
    /// The time, in milliseconds since 1970.
    pub(crate) now: u64,
    pub(crate) ids: &'a mut Ids,
    pub(crate) room: Room,
    /// The status of the answer to `DELETE` of an unknown entity.
    pub(crate) delete_unknown: u16,
}

/// The room that is left in the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) entities: usize,
    pub(crate) bytes: usize,
}

/// Returns region and domain of a host such as `eu.api.konghq.com:443`.
pub(crate) fn region_and_domain(host: &str) -> (&str, &str) {
    let name = host.split(':').next().unwrap_or_default();
    let Some((region, rest)) = name.split_once('.') else { return (REGION, DOMAIN) };
    let is_region = region.len() == 2 && region.bytes().all(|byte| byte.is_ascii_lowercase());
    let domain = rest.strip_prefix("api.").unwrap_or(DOMAIN);
    (if is_region || region == "global" { region } else { REGION }, domain)
}

/// Reads the body of a request as an object.
pub(crate) fn body(request: &Request, errors: Errors) -> Result<Entity, Answer> {
    match serde_json::from_slice(&request.body) {
        Ok(Value::Object(body)) => Ok(body),
        _ => Err(errors.field("", "the body must be a JSON object")),
    }
}

// === impl Room ===

impl Room {
    pub(crate) fn take(&mut self, entities: usize, bytes: usize) {
        self.entities = self.entities.saturating_sub(entities);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.entities == 0 || self.bytes == 0
    }
}

// === impl Context ===

impl Context<'_> {
    /// Returns the time as text.
    pub(crate) fn time(&self) -> String {
        time::text(self.now)
    }

    /// Refuses to store more than the most.
    pub(crate) fn check_room(&self, errors: Errors) -> Result<(), Answer> {
        if self.room.is_full() { Err(errors.full()) } else { Ok(()) }
    }
}

// === impl Api ===

impl Api<'_> {
    /// Returns the control planes of the region, oldest first.
    pub(crate) fn planes(&self) -> impl Iterator<Item = &Plane> {
        self.organization.planes.iter().filter(|plane| plane.region == self.region)
    }

    pub(crate) fn plane(&self, id: &str) -> Option<&Plane> {
        self.planes().find(|plane| plane.id() == id)
    }
}
