//! Writes the status of the reconciled object.

use serde_json::Value;

use super::{
    Run, Stop,
    apply::Target,
    live::{named, uid},
};
use crate::{contract, outcome::Plan, store::Known};

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
        let mut object = named(of, reconciled.uid());
        if let Some(object) = object.as_object_mut() {
            object.insert("status".to_owned(), status.clone());
        }
        let manager = self.managers.status.clone();
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
}
