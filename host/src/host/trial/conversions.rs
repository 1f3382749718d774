//! The trial of the conversions of a version: objects are converted to each other version and back,
//! and compared with the originals.
//!
//! *Guarantees.* Objects that the processor's account may not read are not tried, since messages
//! say how a field changed. Objects that the former version breaks in the same way do not count.
//! Time, memory and message length are bounded for all inputs; objects that are not tried before
//! the timeout count as passed.

use std::time::{Duration, Instant};

use bytes::Bytes;
use mortise_core::{
    contract::{
        Kind, display_ref,
        hooks::{Converted, batches, first_difference},
    },
    reconcile::Fault,
    triggers::Registration,
};
use serde_json::Value;

use super::{Host, NotSwapped, Prepared, rank};
use crate::host::{Hooking, NoAnswer};

/// The maximum number of objects of a kind that a version is tried with.
const TRIED_OBJECTS: usize = 100;
/// The maximum number of candidates of a kind: the account may not read some of them.
const CANDIDATE_OBJECTS: usize = 3 * TRIED_OBJECTS;
/// The total size of the objects of a kind, in bytes, at which no more are added.
const MAX_OBJECTS_BYTES: usize = 8 << 20;
/// The maximum growth of an object in conversions, in bytes: the API server accepts 256 KiB of
/// annotations.
const MAX_ADDED_BYTES: usize = 1 << 20;
/// The timeout of all conversions of a trial.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(30);

/// The conversions of a version and those of the former one.
struct Trial<'a> {
    new: &'a Hooking,
    /// The conversions of the former version; `None` if it converts nothing.
    former: Option<&'a Hooking>,
    ends: Instant,
}

/// An object from its store.
struct Held {
    name: String,
    json: Bytes,
}

/// A round trip: a conversion to another version and back.
struct Way<'a> {
    kind: &'a str,
    /// The apiVersion of the objects.
    from: String,
    /// The other apiVersion.
    to: String,
}

/// A conversion that breaks an object.
struct Broken {
    object: String,
    problem: String,
}

// === impl Host ===

impl Host {
    /// Converts objects that the version reconciles, up to [`TRIED_OBJECTS`] of a kind, to each
    /// version of their kind and back. Nothing is written, recorded or counted.
    ///
    /// # Errors
    ///
    /// Fails if a round trip breaks an object and the former version does not break it in the same
    /// way.
    pub(super) async fn try_conversions(&self, new: &Prepared) -> Result<(), NotSwapped> {
        let former = self.hooking(new.name());
        let ends = Instant::now() + TRIAL_TIMEOUT;
        let trial = Trial { new: &new.hooking, former: former.as_ref(), ends };
        for registration in new.active.reconciler.registrations() {
            let kind = &registration.reconciler().spec.of.kind;
            let Some(of) = new.hooking.hooks().converted(&kind.group, &kind.kind) else { continue };
            let objects = self.at_hand(new, &registration).await;
            for way in ways(kind, of) {
                if let Some(Broken { object, problem }) = trial.first_broken(&way, &objects).await {
                    let version = new.active.version.version.clone();
                    return Err(NotSwapped::ConversionFailed {
                        version,
                        object,
                        to: way.to,
                        problem,
                    });
                }
            }
        }
        if trial.is_over() {
            tracing::warn!(processor = %new.name(), "not all conversions were tried in time");
        }
        Ok(())
    }

    /// Returns the listed objects of a reconciler that the account may read.
    async fn at_hand(&self, new: &Prepared, registration: &Registration) -> Vec<Held> {
        let mut view = new.hooking.view();
        let (mut held, mut bytes) = (Vec::new(), 0);
        let keys = registration.ranked_keys(self.shared.parts.dispatch.stores(), rank);
        for key in keys.iter().take(CANDIDATE_OBJECTS) {
            let Some(of) = new.active.reconciler.object_of(key) else { continue };
            if view.check_reconciled(&of).await.is_err() {
                continue;
            }
            let found =
                view.reconciled(&of, registration.reconciler()).ok().and_then(|object| object.json);
            let Some(json) = found else { continue };
            bytes += json.len();
            held.push(Held { name: display_ref(&of), json: json.into() });
            if held.len() == TRIED_OBJECTS || bytes > MAX_OBJECTS_BYTES {
                break;
            }
        }
        held
    }
}

/// Returns the round trips from the version of a kind to all other versions.
fn ways<'a>(kind: &'a Kind, of: &'a Converted) -> impl Iterator<Item = Way<'a>> {
    let api_version = |version: &str| format!("{}/{version}", kind.group);
    let others = of.versions.iter().filter(|version| **version != kind.version);
    others.map(move |to| Way {
        kind: &kind.kind,
        from: api_version(&kind.version),
        to: api_version(to),
    })
}

// === impl Trial ===

impl Trial<'_> {
    fn is_over(&self) -> bool {
        Instant::now() >= self.ends
    }

    /// Returns the first object that the new version breaks in a round trip, if any. Objects are
    /// converted in batches, as for lists; those that come back different are converted again one
    /// by one.
    async fn first_broken(&self, way: &Way<'_>, objects: &[Held]) -> Option<Broken> {
        let sizes: Vec<usize> = objects.iter().map(|object| object.json.len()).collect();
        for batch in batches(&sizes) {
            let batch = objects.get(batch).unwrap_or_default();
            let back = self.there_and_back(self.new, way, batch).await;
            let is_suspect = |at: usize, object: &Held| match &back {
                Ok(back) => back.get(at).is_none_or(|back| object.damage(back, None).is_some()),
                Err(_) => true,
            };
            for (at, object) in batch.iter().enumerate() {
                if self.is_over() {
                    return None;
                }
                if is_suspect(at, object)
                    && let Some(problem) = self.problem(way, object).await
                {
                    return Some(Broken { object: object.name.clone(), problem });
                }
            }
        }
        None
    }

    /// Returns how the new version breaks an object, unless the former version breaks it, too.
    async fn problem(&self, way: &Way<'_>, object: &Held) -> Option<String> {
        let only = std::slice::from_ref(object);
        let found = self.there_and_back(self.new, way, only).await;
        let former = match self.former {
            Some(former) => self.there_and_back(former, way, only).await,
            None => Err(NoAnswer::NotAsked(String::new())),
        };
        let former = match &former {
            Ok(former) => former.first(),
            // The former version does not convert this kind, or not to this version.
            Err(NoAnswer::NotAsked(_)) => None,
            Err(_) => return None,
        };
        match found {
            Ok(back) => object.damage(back.first()?, former),
            Err(error) if self.is_of_version(&error) => Some(error.message()),
            Err(_) => None,
        }
    }

    /// Returns whether the version is the cause of an error.
    fn is_of_version(&self, error: &NoAnswer) -> bool {
        match error {
            NoAnswer::Failed(error) => error.fault() == Fault::Processor && !self.is_over(),
            NoAnswer::NotAsked(_) | NoAnswer::Refused(_) | NoAnswer::Broken(_) => true,
        }
    }

    async fn there_and_back(
        &self,
        by: &Hooking,
        Way { kind, from, to }: &Way<'_>,
        objects: &[Held],
    ) -> Result<Vec<String>, NoAnswer> {
        let objects = objects.iter().map(|object| object.json.clone()).collect();
        let there = by.convert(kind, to, objects, self.ends).await?;
        let there = there.into_iter().map(Bytes::from).collect();
        by.convert(kind, from, there, self.ends).await
    }
}

// === impl Held ===

impl Held {
    /// Describes the first difference between the object and `back`, its round trip. Differences
    /// that are also in `former`, the round trip of the former version, do not count.
    fn damage(&self, back: &str, former: Option<&String>) -> Option<String> {
        if former.is_some_and(|former| self.is_outgrown_by(former)) {
            return None;
        }
        if self.is_outgrown_by(back) {
            return Some(format!("it grows from {} to {} bytes", self.json.len(), back.len()));
        }
        let parsed = |text: &[u8]| serde_json::from_slice::<Value>(text).unwrap_or_default();
        let former = former.map(|former| parsed(former.as_bytes()));
        let path = first_difference(&parsed(&self.json), parsed(back.as_bytes()), former)?;
        Some(format!("`{path}` is not as it was"))
    }

    /// Returns whether `back` is too large to equal the object, so that it is not parsed.
    fn is_outgrown_by(&self, back: &str) -> bool {
        back.len() > self.json.len() + MAX_ADDED_BYTES
    }
}
