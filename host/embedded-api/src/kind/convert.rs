//! Conversion of the objects of a custom kind by webhooks, where they are stored and read.

use std::sync::Arc;

use serde_json::Value;

use super::{Form, Resource, api_version};
use crate::{Failure, builtin::edit::set, webhooks::Webhooks};

impl Resource {
    /// Returns the webhooks that convert objects between this version and the stored one; `None`
    /// for the stored version itself, and for kinds whose versions differ in their names alone.
    fn converter(&self) -> Option<Arc<dyn Webhooks>> {
        let Form::Custom(_) = &self.form else { return None };
        if self.version == self.storage_version {
            return None;
        }
        self.webhooks.get().filter(|webhooks| webhooks.converts(&self.group, &self.kind))
    }

    /// Returns whether webhooks convert objects between this version and the stored one.
    pub(crate) fn is_converted(&self) -> bool {
        self.converter().is_some()
    }

    /// Returns whether webhooks convert the objects of this kind, in whatever version.
    pub(crate) fn has_conversion(&self) -> bool {
        let webhooks = self.webhooks.get();
        self.is_custom()
            && webhooks.is_some_and(|webhooks| webhooks.converts(&self.group, &self.kind))
    }

    /// Converts stored objects to this version, all of them in one question.
    ///
    /// # Errors
    /// Fails if the webhooks convert the kind, and refuse one of the objects.
    pub(crate) fn convert_from_stored(&self, stored: Vec<Value>) -> Result<Vec<Value>, Failure> {
        let Some(webhooks) = self.converter() else {
            return Ok(stored.into_iter().map(|object| self.to_version(object)).collect());
        };
        let complete = |mut object: Value| {
            self.read_stored(&mut object);
            object
        };
        let stored = stored.into_iter().map(complete).collect();
        let (from, to) = (&self.storage_version, self.api_version());
        let mut objects = self.ask(&*webhooks, from, &to, stored)?;
        for object in &mut objects {
            self.complete(object);
        }
        Ok(objects)
    }

    /// Converts an object of this version to its stored form.
    ///
    /// # Errors
    /// Fails if the webhooks convert the kind, and refuse the object.
    pub(crate) fn convert_to_stored(&self, mut object: Value) -> Result<Value, Failure> {
        let (Form::Custom(custom), Some(webhooks)) = (&self.form, self.converter()) else {
            return Ok(self.to_stored(object));
        };
        self.complete(&mut object);
        let to = self.storage_api_version();
        let mut converted = self.ask(&*webhooks, &self.version, &to, vec![object])?;
        let mut stored = converted.pop().unwrap_or_default();
        self.complete_by(custom.stored_schema(), &mut stored);
        set(&mut stored, "apiVersion", to);
        Ok(stored)
    }

    fn ask(
        &self,
        webhooks: &dyn Webhooks,
        from: &str,
        to: &str,
        objects: Vec<Value>,
    ) -> Result<Vec<Value>, Failure> {
        let count = objects.len();
        if count == 0 {
            return Ok(objects);
        }
        let converted = webhooks.convert(&self.kind, to, objects).and_then(|converted| {
            let found = converted.len();
            let wrong = || format!("{found} objects were returned for {count}");
            (found == count).then_some(converted).ok_or_else(wrong)
        });
        converted.map_err(|why| {
            let (from, kind) = (api_version(&self.group, from), &self.kind);
            let why = format!("conversion webhook for {from}, Kind={kind} failed: {why}");
            Failure::unclassified(why)
        })
    }
}
