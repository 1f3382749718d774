//! Requests to the API, and discovery of the kinds that it serves.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use mortise_core::{
    api::{Answer, Method, NotEstablished, Outgoing, Refusal},
    contract::{self, Kind},
    resource::{Resource, api_path},
};
use serde_json::Value;

use super::{Cluster, text};
use crate::ObjectRef;

/// The kinds that discovery returned, by group and version, for one revision of the definitions.
#[derive(Default)]
pub(super) struct Served {
    revision: u64,
    resources: BTreeMap<(String, String), Resources>,
}

type Resources = Arc<[Arc<Resource>]>;

impl Cluster {
    pub(super) fn group_versions(&self) -> Vec<(String, String)> {
        let mut found = vec![(String::new(), "v1".to_owned())];
        let Ok(groups) = self.send(Method::Get, "/apis", None) else { return found };
        let groups =
            groups.body.get("groups").and_then(Value::as_array).cloned().unwrap_or_default();
        for group in &groups {
            let versions = group.get("versions").and_then(Value::as_array).into_iter().flatten();
            found.extend(versions.map(|version| {
                (text(group, "/name").to_owned(), text(version, "/version").to_owned())
            }));
        }
        found
    }

    pub(super) fn resources(&self, group: &str, version: &str) -> Resources {
        let revision = self.api.latest("apiextensions.k8s.io", "customresourcedefinitions");
        let of = (group.to_owned(), version.to_owned());
        let mut served = self.served.lock();
        if served.revision != revision {
            *served = Served { revision, ..Served::default() };
        }
        let discovered =
            served.resources.entry(of).or_insert_with(|| self.discover(group, version));
        Arc::clone(discovered)
    }

    fn discover(&self, group: &str, version: &str) -> Resources {
        let Ok(answer) = self.send(Method::Get, &api_path(group, version), None) else {
            return Arc::default();
        };
        let all =
            answer.body.get("resources").and_then(Value::as_array).cloned().unwrap_or_default();
        let name = |resource: &Value| text(resource, "/name").to_owned();
        let names: BTreeSet<String> = all.iter().map(name).collect();
        let whole = all.iter().filter(|resource| !name(resource).contains('/'));
        whole
            .map(|resource| {
                Arc::new(Resource {
                    kind: Kind {
                        cluster: Arc::clone(&self.name),
                        ..Kind::home(group, version, text(resource, "/kind"))
                    },
                    plural: name(resource),
                    namespaced: resource.get("namespaced") == Some(&Value::Bool(true)),
                    status: names.contains(&format!("{}/status", name(resource))),
                })
            })
            .collect()
    }

    /// Returns a kind as the API serves it, whatever its cluster; `None` if the API does not serve
    /// it.
    pub(in crate::testing) fn resource(&self, kind: &Kind) -> Option<Arc<Resource>> {
        let resources = self.resources(&kind.group, &kind.version);
        resources.iter().find(|resource| resource.kind.kind == kind.kind).cloned()
    }

    /// Returns the path of an object; `None` if the API does not serve its kind. A reference
    /// without a namespace means `default` if the kind has namespaces.
    pub(super) fn path_of(&self, of: &ObjectRef) -> Option<String> {
        let resource = self.resource(&of.kind.clone().into())?;
        Some(resource.path_of(Some(of.namespace.as_deref().unwrap_or("default")), &of.name))
    }

    /// Returns an object as it is now; `None` if there is no such object or kind.
    pub(in crate::testing) fn get(&self, of: &ObjectRef) -> Option<Value> {
        self.send(Method::Get, &self.path_of(of)?, None).ok().map(|answer| answer.body)
    }

    pub(in crate::testing) fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer, Refusal> {
        self.answer(&Outgoing::new(method, path.to_owned(), body.cloned()))
    }

    pub(in crate::testing) fn answer(&self, outgoing: &Outgoing) -> Result<Answer, Refusal> {
        let request = http::Request::builder()
            .method(outgoing.method.verb())
            .uri(&outgoing.path)
            .header("accept", outgoing.accept())
            .header("content-type", outgoing.method.content_type());
        let request = request
            .body(outgoing.body.as_ref().map(Value::to_string).unwrap_or_default())
            .map_err(|error| Refusal::unsendable(&error))?;
        match self.api.answer(request) {
            (code @ 200..=299, body) => Ok(Answer { created: code == 201, body }),
            (code, body) => Err(Refusal::read(code, None, Some(&body), b"")),
        }
    }

    /// Returns whether a `CustomResourceDefinition` is established, as the API decides at once.
    pub(in crate::testing) fn established(
        &self,
        definition: &contract::ObjectRef,
    ) -> Result<(), NotEstablished> {
        let name = &definition.name;
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        let found = self.send(Method::Get, &path, None);
        found
            .map_err(|refusal| NotEstablished::Unwatched {
                message: refusal.to_string(),
                forbidden: (refusal.code == 403).then_some(refusal.message),
            })
            .and_then(|answer| established(&answer.body))
    }
}

/// Reads the conditions of a `CustomResourceDefinition`, which the API sets at once.
fn established(definition: &Value) -> Result<(), NotEstablished> {
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array);
    let is = |condition: &str, status: &str| {
        conditions
            .into_iter()
            .flatten()
            .find(|held| text(held, "/type") == condition && text(held, "/status") == status)
    };
    match (is("NamesAccepted", "False"), is("Established", "True")) {
        (Some(refused), _) => Err(NotEstablished::Refused(text(refused, "/message").to_owned())),
        (None, Some(_)) => Ok(()),
        (None, None) => Err(NotEstablished::Late(Duration::ZERO)),
    }
}
