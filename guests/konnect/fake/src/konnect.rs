//! One Konnect: what is stored, and the order of steps of an answer.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    answer,
    api::{self, Api, Context, Room},
    change::{self, Change},
    fault::{self, Fault, Faults},
    id::{self, Ids},
    log::{Entry, Log},
    message::{Answer, End, Reply, Request},
    path,
    tenant::{Organization, Tokens},
};

/// Bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of a request's body.
    pub body: usize,
    /// The most entities, control planes and organizations together.
    pub entities: usize,
    /// The most bytes of all entities, and of the log.
    pub bytes: usize,
    /// The most requests in the log; the oldest go.
    pub log: usize,
    /// The most faults.
    pub faults: usize,
}

/// The settings of a [`Konnect`].
pub struct Config {
    pub tokens: Tokens,
    pub limits: Limits,
    /// Chooses identifiers.
    pub ids: id::Source,
    /// The status of the answer to `DELETE` of an unknown entity of a control plane: 404 or 204.
    pub delete_unknown: u16,
}

/// One Konnect, of all organizations and regions.
pub struct Konnect {
    tokens: Tokens,
    limits: Limits,
    ids: Ids,
    delete_unknown: u16,
    revoked: BTreeSet<String>,
    /// Organizations by the name that [`Tokens`] gives them.
    organizations: BTreeMap<String, Organization>,
    /// The name of the organization that was seen first.
    first: Option<String>,
    faults: Faults,
    log: Log,
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self { body: 1 << 20, entities: 100_000, bytes: 256 << 20, log: 20_000, faults: 1_000 }
    }
}

// === impl Config ===

impl Default for Config {
    /// Every token is a tenant, and identifiers are the same in each [`Konnect`].
    fn default() -> Self {
        let tokens = Tokens::default();
        Self { tokens, limits: Limits::default(), ids: id::seeded(""), delete_unknown: 404 }
    }
}

// === impl Konnect ===

impl Konnect {
    pub fn new(config: Config) -> Self {
        let Config { tokens, limits, ids, delete_unknown } = config;
        Self {
            tokens,
            limits,
            ids: Ids::new(ids),
            delete_unknown,
            revoked: BTreeSet::new(),
            organizations: BTreeMap::new(),
            first: None,
            faults: Faults::default(),
            log: Log::new(limits.log, limits.bytes),
        }
    }

    /// Answers a request that came at `now`, in milliseconds since 1970.
    pub fn answer(&mut self, now: u64, request: &Request) -> Reply {
        let fault = self.faults.take(request);
        let reply = match &fault {
            None => Reply { delay: 0, end: End::Answer(self.carry_out(now, request)) },
            Some(fault) => {
                let usual = fault.carries_out().then(|| self.carry_out(now, request));
                fault.reply(usual)
            }
        };
        self.log.add(now, request, &reply, fault.is_some());
        reply
    }

    /// Sets the faults, in place of those set before. The first one that matches applies.
    pub fn set_faults(&mut self, faults: Vec<Fault>) -> Result<(), fault::Invalid> {
        self.faults = Faults::set(faults, self.limits.faults)?;
        Ok(())
    }

    /// Changes stored data behind the caller's back.
    pub fn change(&mut self, now: u64, change: &Change) -> Result<(), change::Invalid> {
        change.check()?;
        if let Some(token) = &change.restore {
            self.revoked.remove(token);
            return Ok(());
        }
        if let Some(token) = &change.revoke {
            if self.revoked.len() >= self.limits.entities {
                return Err(change::Invalid::Full);
            }
            self.revoked.insert(token.clone());
            return Ok(());
        }
        let name = self.organization_of(change)?;
        let room = self.room();
        let host = change.host.as_deref().unwrap_or_default();
        change::apply(&mut self.api(now, host, name, room), change)
    }

    /// Returns the requests after number `since` that are still in the log, oldest first.
    pub fn log(&self, since: u64) -> impl Iterator<Item = &Entry> {
        self.log.since(since)
    }

    /// Returns how many requests have come so far: the number of the last one.
    pub fn requests(&self) -> u64 {
        self.log.count
    }

    /// Returns the bounds.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns the collection and number of an identifier that was chosen here.
    pub fn minted(&self, id: &str) -> Option<&id::Minted> {
        self.ids.minted(id)
    }

    /// Returns the entities of a collection in all control planes, as they are stored, oldest
    /// first in each: `services`, `key-auth`, `dp-client-certificates`, `control-planes`, …
    pub fn entities(&self, collection: &str) -> Vec<Value> {
        let planes = self.organizations.values().flat_map(|organization| &organization.planes);
        if collection == "control-planes" {
            return planes.map(|plane| Value::Object(plane.shown.clone())).collect();
        }
        let tables = planes.filter_map(|plane| plane.table(collection));
        let entities = tables.flat_map(|table| table.after(0));
        entities.map(|(_, entity)| Value::Object(entity.clone())).collect()
    }

    fn carry_out(&mut self, now: u64, request: &Request) -> Answer {
        let errors = path::errors(&request.path);
        let token = request.token.as_deref().unwrap_or_default();
        let Some(name) = self.organization(token) else { return errors.unauthorized() };
        let room = self.room();
        if !self.organizations.contains_key(&name) && room.is_full() {
            return errors.full();
        }
        let is_second = self.tokens.is_of_second(token);
        let mut api = self.api(now, &request.host, name, room);
        if is_second && api.organization.second.is_none() {
            api.organization.second = Some(api.context.ids.mint("organizations"));
        }
        api.is_second = is_second;
        answer::answer(&mut api, request)
    }

    /// Returns what a request of an organization may use. The organization is made if need be.
    fn api<'a>(&'a mut self, now: u64, host: &'a str, name: String, room: Room) -> Api<'a> {
        self.first.get_or_insert_with(|| name.clone());
        let ids = &mut self.ids;
        let new = || Organization::new(ids.mint("organizations"), now);
        let organization = self.organizations.entry(name).or_insert_with(new);
        let (region, domain) = api::region_and_domain(host);
        let (ids, delete_unknown) = (&mut self.ids, self.delete_unknown);
        let context = Context { now, ids, room, delete_unknown };
        let body = self.limits.body;
        Api { organization, is_second: false, region, domain, body, context }
    }

    fn organization(&self, token: &str) -> Option<String> {
        self.tokens.organization(token).filter(|_| !self.revoked.contains(token))
    }

    /// Returns the name of the organization that a change is for.
    fn organization_of(&self, change: &Change) -> Result<String, change::Invalid> {
        let name = match &change.token {
            Some(token) => self.tokens.organization(token),
            None => self.first.clone(),
        };
        name.ok_or(change::Invalid::Organization)
    }

    /// Returns what may still be stored.
    fn room(&self) -> Room {
        let mut room = Room { entities: self.limits.entities, bytes: self.limits.bytes };
        for organization in self.organizations.values() {
            room.take(1, 0);
            for plane in &organization.planes {
                room.take(plane.len(), plane.bytes());
            }
        }
        room
    }
}

#[cfg(test)]
mod tests;
