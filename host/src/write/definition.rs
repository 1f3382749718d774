//! Waits until the `CustomResourceDefinition`s of a plan are established, before later writes.

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    runtime::wait::{self, await_condition},
};
use tokio::time::timeout;

use super::{Run, Stop};
use crate::{cluster::Resource, contract, grant::display_ref, outcome::Manifest, watch::refusal};

impl Run<'_> {
    /// Waits until all these definitions are established.
    pub(super) async fn establish(&mut self, definitions: &[Manifest]) {
        for definition in definitions {
            if let Err(stop) = self.established(definition).await {
                self.stopped(contract::Action::Apply, &definition.to, stop);
            }
        }
    }

    async fn established(&mut self, definition: &Manifest) -> Result<(), Stop> {
        let defined = Resource::of_definition(&definition.object);
        let was_sent = self.written.changes.iter().any(|change| change.of == definition.to);
        if was_sent && let Some(resource) = defined.first() {
            self.cluster.forget(&resource.kind.group);
        }
        let mut is_known = true;
        for resource in &defined {
            is_known &= self.resource_of(&resource.kind).await?.is_some();
        }
        if is_known {
            return Ok(());
        }
        self.await_established(definition).await?;
        for resource in defined {
            self.cluster.forget(&resource.kind.group);
            self.defined.insert(resource.kind.clone(), Arc::new(resource));
        }
        Ok(())
    }

    fn note_forbidden(&self, definition: &Manifest, error: &wait::Error) {
        let wait::Error::ProbeFailed(error) = error;
        if let Some(status) = refusal(error).filter(|status| status.code == 403) {
            let kind = definition.to.kind.clone();
            self.forbidden.lock().push((kind, status.message.clone()));
        }
    }

    async fn await_established(&self, definition: &Manifest) -> Result<(), Stop> {
        let name = &definition.to.name;
        let limit = self.cluster.policy().established;
        let api: Api<CustomResourceDefinition> = Api::all(self.cluster.client().clone());
        let is_decided = |found: Option<&CustomResourceDefinition>| {
            found.is_some_and(|found| {
                is(found, "Established", "True").is_some()
                    || is(found, "NamesAccepted", "False").is_some()
            })
        };
        let fail = |code, reason: &str, what: String| {
            Stop::unsent(code, reason, format!("{} {what}", display_ref(&definition.to)))
        };
        match timeout(limit, await_condition(api, name, is_decided)).await {
            Err(_) => Err(fail(504, "Timeout", format!("was not established within {limit:?}"))),
            Ok(Err(error)) => {
                self.note_forbidden(definition, &error);
                Err(fail(0, "", format!("could not be watched: {error}")))
            }
            Ok(Ok(found)) => {
                match found.as_ref().and_then(|found| is(found, "NamesAccepted", "False")) {
                    Some(message) => Err(fail(
                        409,
                        "Conflict",
                        format!("is not established, its names are not accepted: {message}"),
                    )),
                    None => Ok(()),
                }
            }
        }
    }
}

/// Returns the message of a condition, if the condition has that status.
fn is(definition: &CustomResourceDefinition, condition: &str, status: &str) -> Option<String> {
    let conditions = definition.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|held| held.type_ == condition && held.status == status)?;
    Some(found.message.clone().unwrap_or_default())
}
