//! The validation of authorizers, which Istio's mesh configuration must define.

use std::rc::Rc;

use mortise_sdk::{Error, Host, kubernetes::ConfigMap};
use serde_json::Value;

use super::{Failure, jwt};
use crate::{api::ExtAuth, yaml};

/// Namespace and name of the `ConfigMap` with Istio's mesh configuration.
pub(crate) const MESH: (&str, &str) = ("istio-system", "istio");
/// The fields that are read of that `ConfigMap`.
pub(crate) const MESH_FIELDS: [&str; 1] = ["data.mesh"];

/// The extension providers of the mesh configuration, read when the first rule names an authorizer.
pub(super) struct Providers<'a> {
    host: &'a Host,
    read: Option<Rc<Result<Value, Unusable>>>,
}

/// The reason why there are no extension providers: the end of the attribute's path, and the
/// message.
struct Unusable(&'static str, &'static str);

impl<'a> Providers<'a> {
    pub(super) fn new(host: &'a Host) -> Self {
        Self { host, read: None }
    }

    pub(super) fn validate(
        &mut self,
        ext_auth: &ExtAuth,
        path: &str,
        failures: &mut Vec<Failure>,
    ) -> Result<(), Error> {
        let providers = self.get()?;
        match providers.as_ref() {
            Err(Unusable(field, message)) => {
                failures.push(Failure::new(format!("{path}{field}"), *message));
            }
            Ok(providers) => {
                for name in &ext_auth.authorizers {
                    let missing = check_provider(providers, name);
                    let path = || format!("{path}.externalAuthorizers.{name}");
                    failures.extend(missing.map(|message| Failure::new(path(), message)));
                }
            }
        }
        if let Some(restrictions) = &ext_auth.restrictions {
            jwt::validate(restrictions, path, failures);
        }
        Ok(())
    }

    fn get(&mut self) -> Result<Rc<Result<Value, Unusable>>, Error> {
        if let Some(read) = &self.read {
            return Ok(Rc::clone(read));
        }
        let map = match self.host.get::<ConfigMap>(Some(MESH.0), MESH.1, &MESH_FIELDS) {
            Err(error @ Error::Unavailable { .. }) => return Err(error),
            other => other.ok().flatten(),
        };
        let read = Rc::new(parse(map));
        self.read = Some(Rc::clone(&read));
        Ok(read)
    }
}

fn parse(map: Option<ConfigMap>) -> Result<Value, Unusable> {
    const FIELD: &str = ".externalAuthorizers";
    let map = map.ok_or(Unusable("", "Failed to get Istio ConfigMap"))?;
    let mesh =
        map.data.get("mesh").ok_or(Unusable(FIELD, "Istio ConfigMap does not contain mesh key"))?;
    let not_a_mesh = Unusable(FIELD, "Failed to unmarshal mesh data");
    let Ok(mut mesh @ (Value::Object(_) | Value::Null)) = yaml::parse(mesh) else {
        return Err(not_a_mesh);
    };
    match mesh.get_mut("extensionProviders").map(Value::take) {
        None | Some(Value::Null) => Ok(Value::Array(Vec::new())),
        Some(Value::Array(list)) if list.iter().all(|item| item.is_object() || item.is_null()) => {
            Ok(Value::Array(list))
        }
        Some(_) => Err(not_a_mesh),
    }
}

fn check_provider(providers: &Value, name: &str) -> Option<&'static str> {
    let mut list = providers.as_array().into_iter().flatten();
    let Some(provider) =
        list.find(|provider| provider.get("name").and_then(Value::as_str) == Some(name))
    else {
        return Some("Authorizer not found in Istio ConfigMap mesh data");
    };
    let http = provider.get("envoyExtAuthzHttp").filter(|http| !http.is_null());
    http.is_none()
        .then_some("EnvoyExtAuthzHttp not found in Istio ConfigMap mesh data for authorizer")
}
