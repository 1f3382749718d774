//! Waits for `CustomResourceDefinition`s.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::runtime::wait::{self, await_condition};
use mortise_core::api::NotEstablished;
use tokio::time::timeout;

use super::{Cluster, Guarded, guarded::refusal};

impl Cluster {
    /// Waits until a `CustomResourceDefinition` is established, or its names are refused.
    pub(super) async fn established(&self, name: &str) -> Result<(), NotEstablished> {
        let limit = self.policy().established;
        let guarded = Guarded::new(self.client(), usize::MAX);
        let api: kube::Api<CustomResourceDefinition> = kube::Api::all(guarded.client().clone());
        let is_decided = |found: Option<&CustomResourceDefinition>| {
            found.is_some_and(|found| {
                is(found, "Established", "True").is_some()
                    || is(found, "NamesAccepted", "False").is_some()
            })
        };
        match timeout(limit, await_condition(api, name, is_decided)).await {
            Err(_) => Err(NotEstablished::Late(limit)),
            Ok(Err(error)) => {
                let wait::Error::ProbeFailed(cause) = &error;
                let status = refusal(cause).filter(|status| status.code == 403);
                let forbidden = status.map(|status| status.message.clone());
                Err(NotEstablished::Unwatched { message: error.to_string(), forbidden })
            }
            Ok(Ok(found)) => {
                let refused = found.as_ref().and_then(|found| is(found, "NamesAccepted", "False"));
                refused.map_or(Ok(()), |message| Err(NotEstablished::Refused(message)))
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
