//! Fields that are sent when an object is created, and left alone afterwards.
//!
//! A later apply that omits such a field would remove it, since our manager owns it. So after the
//! creation these fields are applied once more, with the values that they have by then, under the
//! manager with the suffix `/initial`; our own manager omits them as soon as `/initial` holds them,
//! also after a crash in between. A manager that changes such a field later takes it from
//! `/initial`.

use serde_json::{Map, Value};

use super::{
    Run, Stop,
    apply::{Applied, Target},
    conflict::conflicts,
    live::{named, uid},
};
use crate::{
    api::Refusal,
    applied_fields::{applied_fields, digest, project, sent_fields},
    contract::display_ref,
    outcome::place::{only, without},
    path::Path,
};

/// The maximum number of reads of the live object when others change it at the same time.
pub(super) const MAX_ATTEMPTS: usize = 5;

impl Run<'_> {
    /// Applies an object; if the object exists, without the fields of `leave`.
    pub(super) async fn apply_leaving(
        &mut self,
        target: Target<'_>,
        object: &Value,
        leave: &[Path],
    ) -> Result<Applied, Stop> {
        let reduced = without(object.clone(), leave);
        if !leave.is_empty()
            && let Some(skipped) = self.skip(&target, &reduced)
        {
            return Ok(skipped);
        }
        let mut live = match self.live(target.resource, target.to).await? {
            Some(live) => live,
            None => self.answered(target, object).await?,
        };
        let mut rounds = 0;
        while let Some(refusal) = self.hold_initial(target, &mut live, leave).await? {
            rounds += 1;
            if rounds == MAX_ATTEMPTS {
                return Err(Stop::of(refusal, target.to));
            }
            live = self
                .live(target.resource, target.to)
                .await?
                .ok_or_else(|| Stop::not_found(target.to))?;
        }
        let applied = self.apply_now(target, &reduced).await?;
        let answer = applied.answer.unwrap_or(live);
        let released = self.release_initial(target, &answer, leave).await?;
        Ok(Applied { own: applied.own, answer: Some(released.unwrap_or(answer)) })
    }

    async fn answered(&mut self, target: Target<'_>, object: &Value) -> Result<Value, Stop> {
        let missing = || Stop::unsent(0, "", format!("no answer for {}", display_ref(target.to)));
        self.apply_now(target, object).await?.answer.ok_or_else(missing)
    }

    /// Applies under `/initial` the fields of `leave` that our own manager still owns. Returns the
    /// conflict if another manager was faster.
    async fn hold_initial(
        &mut self,
        target: Target<'_>,
        live: &mut Value,
        leave: &[Path],
    ) -> Result<Option<Refusal>, Stop> {
        let held = held_by(live, &self.managers_in(&target.to.kind.cluster).initial);
        let ours = only(&held_by(live, target.manager), leave);
        let grown = merged(held.clone(), ours);
        if digest(&grown) == digest(&held) {
            return Ok(None);
        }
        match self.apply_initial(target, live, grown).await? {
            Ok(answer) => {
                *live = answer;
                Ok(None)
            }
            Err(refusal) => Ok(Some(refusal)),
        }
    }

    /// Gives up the fields of `/initial` that are no longer in `leave`; our own manager has applied
    /// them by now, if the manifest holds them.
    async fn release_initial(
        &mut self,
        target: Target<'_>,
        live: &Value,
        leave: &[Path],
    ) -> Result<Option<Value>, Stop> {
        let held = held_by(live, &self.managers_in(&target.to.kind.cluster).initial);
        let kept = only(&held, leave);
        if digest(&kept) == digest(&held) {
            return Ok(None);
        }
        self.apply_initial(target, live, kept)
            .await?
            .map(Some)
            .map_err(|refusal| Stop::of(refusal, target.to))
    }

    /// Applies fields under `/initial`, without force: the values are those of the live object, so
    /// a conflict means that they have changed since. The inner error is the conflict.
    async fn apply_initial(
        &mut self,
        target: Target<'_>,
        live: &Value,
        fields: Value,
    ) -> Result<Result<Value, Refusal>, Stop> {
        let object = merged(fields, named(target.to, uid(live)));
        let initial = self.managers_in(&target.to.kind.cluster).initial.clone();
        let to_initial = Target { manager: &initial, ..target };
        match self.send_apply(to_initial, &object, false).await {
            Ok(answer) => {
                self.store(target.to, &answer.body, &std::sync::Arc::new(object));
                Ok(Ok(answer.body))
            }
            Err(refusal) if !conflicts(&refusal).is_empty() => Ok(Err(refusal)),
            Err(refusal) => Err(Stop::of(refusal, target.to)),
        }
    }
}

/// Returns the object's values at the fields that a manager has applied.
fn held_by(live: &Value, manager: &str) -> Value {
    applied_fields(live, manager)
        .map_or_else(|| Value::Object(Map::new()), |fields| sent_fields(&project(live, fields)))
}

/// Merges two parts of one object. Lists are taken whole, from `more`.
pub(super) fn merged(part: Value, more: Value) -> Value {
    match (part, more) {
        (Value::Object(mut part), Value::Object(more)) => {
            for (key, value) in more {
                let value = match part.remove(&key) {
                    Some(held) => merged(held, value),
                    None => value,
                };
                part.insert(key, value);
            }
            Value::Object(part)
        }
        (_, more) => more,
    }
}
