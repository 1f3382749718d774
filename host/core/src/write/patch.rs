//! Patches parts of objects that belong to others. A patch never creates an object.

use serde_json::Value;

use super::{Run, Stop, apply::Target};
use crate::{
    applied_fields::Pair,
    contract::{self, Verbs},
    outcome::Manifest,
};

impl Run<'_> {
    pub(super) async fn patch(&mut self, manifest: &Manifest) {
        let manager = self.managers_in(&manifest.to.kind.cluster).patch.clone();
        let own = match self.try_patch(manifest, &manager).await {
            Ok(own) => own,
            Err(stop) => {
                self.watch_absence(&manifest.to, &manager, &[]);
                self.stopped(contract::Action::Patch, &manifest.to, stop);
                None
            }
        };
        self.wrote(manifest, &manager, own);
    }

    async fn try_patch(
        &mut self,
        manifest: &Manifest,
        manager: &str,
    ) -> Result<Option<Pair>, Stop> {
        let resource = self.resource(&manifest.to).await?;
        let target = Target { resource: &resource, to: &manifest.to, manager, subresource: "" };
        if let Some(skipped) = self.skip(&target, &manifest.object) {
            self.remove_absent(&target, manifest, None).await?;
            return Ok(skipped.own);
        }
        // Without a uid, an apply would create the object.
        let uid = self
            .uid(&resource, &manifest.to)
            .await?
            .ok_or_else(|| Stop::not_found(&manifest.to))?;
        if let Some(within) = &manifest.within {
            self.check_within(&resource, &manifest.to, Verbs::UPDATE, within).await?;
        }
        let mut object = manifest.object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.entry("uid").or_insert(Value::String(uid));
        }
        let applied = match self.apply_now(target, &object).await {
            // Gone since the store saw it: the 409 is about the uid then.
            Err(Stop::Failed { refusal, managers })
                if refusal.code == 409 && managers.is_empty() =>
            {
                let is_there = self.live(&resource, &manifest.to).await?.is_some();
                return Err(if is_there {
                    Stop::Failed { refusal, managers }
                } else {
                    Stop::not_found(&manifest.to)
                });
            }
            applied => applied?,
        };
        self.remove_absent(&target, manifest, applied.answer).await?;
        Ok(applied.own)
    }
}
