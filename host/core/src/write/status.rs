//! Writes the status of the reconciled object.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Action, Run, Stop,
    apply::Target,
    live::{addressed, named, resource_version, uid},
};
use crate::{
    api::{Method, Outgoing},
    contract,
    outcome::Plan,
    path::Path,
    resource::Resource,
    store::Known,
};

/// The number of times that a whole status is compared and sent, if the object changes meanwhile.
const MAX_ATTEMPTS: usize = 2;

impl Run<'_> {
    pub(super) async fn status(&mut self, plan: &Plan) {
        let Some(status) = &plan.status else { return };
        if let Err(stop) = self.write_status(status).await {
            let reconciled = &self.context.reconciled.reference;
            self.stopped(contract::Action::Status, reconciled, stop);
        }
    }

    async fn write_status(&mut self, status: &Value) -> Result<(), Stop> {
        let reconciled = self.context.reconciled;
        let of = &reconciled.reference;
        // The API server ignores the uid in a status: a new object of the same name would get the
        // status of the old one.
        if let Known::Present(entry) = self.known(of)
            && entry.uid() != reconciled.uid()
        {
            return Ok(());
        }
        let resource = self.resource(of).await?;
        if self.context.whole_status {
            return self.write_whole_status(&resource, status).await;
        }
        let mut object = named(of, reconciled.uid());
        if let Some(object) = object.as_object_mut() {
            object.insert("status".to_owned(), status.clone());
        }
        let manager = self.managers_in(&of.kind.cluster).status.clone();
        let target =
            Target { resource: &resource, to: of, manager: &manager, subresource: "status" };
        self.take_over(&target).await?;
        match self.apply_to(target, &object).await {
            Ok(applied) => {
                self.written.status = Some((manager.clone(), applied.own));
                Ok(())
            }
            Err(Stop::Failed { refusal, managers })
                if matches!(refusal.code, 404 | 409 | 422) && managers.is_empty() =>
            {
                // An object that was deleted meanwhile needs no status.
                let live = self.live(&resource, of).await?;
                let is_there = live.as_ref().is_some_and(|live| uid(live) == reconciled.uid());
                if is_there { Err(Stop::Failed { refusal, managers }) } else { Ok(()) }
            }
            Err(stop) => Err(stop),
        }
    }

    /// Sets the status to exactly this one: by JSON patch with a test on the `resourceVersion`,
    /// since an apply leaves the fields of others. An empty status is no status.
    async fn write_whole_status(
        &mut self,
        resource: &Resource,
        status: &Value,
    ) -> Result<(), Stop> {
        let of = &self.context.reconciled.reference;
        let expected = self.context.reconciled.uid();
        let mut held = self.stored_with_status();
        for attempt in 1.. {
            let object = match held.take() {
                Some(object) => object,
                None => match self.live(resource, of).await? {
                    Some(live) if uid(&live) == expected => live,
                    // An object that was deleted meanwhile needs no status.
                    _ => return Ok(()),
                },
            };
            let is_none = |status: &Value| status.as_object().is_none_or(serde_json::Map::is_empty);
            let held = object.get("status").unwrap_or(&Value::Null);
            if held == status || (is_none(held) && is_none(status)) {
                self.written.skipped += 1;
                return Ok(());
            }
            let change = match (is_none(status), object.get("status")) {
                (true, Some(_)) => json!({"op": "remove", "path": "/status"}),
                _ => json!({"op": "add", "path": "/status", "value": status}),
            };
            let version = resource_version(&object).unwrap_or_default();
            let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": version});
            let manager = &self.managers_in(&of.kind.cluster).status;
            let to = addressed(resource, of, "status", manager, false);
            let patch = Outgoing::new(Method::JsonPatch, to, Some(json!([test, change])));
            match self.send(patch, of).await {
                Ok(answer) => {
                    let mut sent = named(of, uid(&answer.body));
                    if let Some(sent) = sent.as_object_mut() {
                        sent.insert("status".to_owned(), status.clone());
                    }
                    self.store(of, &answer.body, &Arc::new(sent));
                    if resource_version(&answer.body) != Some(version) {
                        self.changed(Action::Status, of, answer.body);
                    }
                    return Ok(());
                }
                Err(refusal)
                    if matches!(refusal.code, 404 | 409 | 422) && attempt < MAX_ATTEMPTS => {}
                Err(refusal) => return Err(Stop::of(refusal, of)),
            }
        }
        Ok(())
    }

    /// Returns the stored object, if the store holds its whole status.
    fn stored_with_status(&self) -> Option<Value> {
        let Known::Present(entry) = self.known(&self.context.reconciled.reference) else {
            return None;
        };
        let status: Path = "status".parse().ok()?;
        entry.shape().fields.covers(&status).then(|| entry.value())
    }
}
