//! The module's own objects, as they are and as they should be.

use istio::{
    api::Istio,
    resource::{Input, Plan},
};
use mortise_sdk::{
    Deletion, Error, Host, Kind, Manifest, ObjectRef, Outcome, Selection, object::Metadata,
};
use serde::Deserialize;
use serde_json::Value;

/// The fields that are read of the objects.
pub(crate) const FIELDS: [&str; 1] = ["spec"];

/// The kind of vertical autoscalers, without whose CRD there are none.
pub(crate) const AUTOSCALER: &str = "VerticalPodAutoscaler";

/// The most paths that a manifest may name in `absent`, by the contract.
const MAX_PATHS: usize = 128;
/// The most bytes of a path, by the contract.
const MAX_PATH_BYTES: usize = 1024;

/// An object of the module: its name, and how it is written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Own {
    pub(crate) kind: Kind,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The Istio resource owns the object.
    pub(crate) has_owner: bool,
}

/// An object of the module as it is.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Existing {
    metadata: Metadata,
    spec: Value,
}

impl Own {
    /// Returns all objects that there can be, in the order in which they are applied.
    pub(crate) fn all() -> Vec<Self> {
        let mut istio = Istio::default();
        istio.spec.network_policies_enabled = true;
        let plan = Plan::of(&Input {
            istio: &istio,
            needs_proxy_protocol: true,
            control_plane_autoscalers: true,
            has_autoscaler_crd: true,
            api_server: None,
            version: "",
        });
        plan.apply.iter().map(Self::of).collect()
    }

    /// Returns the name of an object in a plan.
    fn of(object: &Value) -> Self {
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let api_version = text("/apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self {
            kind: Kind::new(group, version, text("/kind")),
            namespace: text("/metadata/namespace").to_owned(),
            name: text("/metadata/name").to_owned(),
            has_owner: object.pointer("/metadata/ownerReferences").is_some(),
        }
    }

    pub(crate) fn selection(&self) -> Selection {
        Selection::new(self.kind.clone()).namespace(&self.namespace).name(&self.name)
    }

    fn reference(&self) -> ObjectRef {
        ObjectRef::new(self.kind.clone(), Some(&self.namespace), &self.name)
    }

    fn fault(&self, cause: Cause) -> Fault {
        Fault { title: title(&self.kind.kind, &self.name), cause }
    }

    fn read(&self, host: &Host) -> Result<Option<Existing>, Error> {
        host.get_ref(&self.reference(), &FIELDS)
    }
}

/// Returns the original's name for an object, in messages.
pub(crate) fn title(kind: &str, name: &str) -> String {
    match (kind, name) {
        ("NetworkPolicy", _) => "NetworkPolicies".to_owned(),
        (AUTOSCALER, name) if name != "istio-operator-vpa" => format!("{AUTOSCALER}/control-plane"),
        (kind, name) => format!("{kind}/{name}"),
    }
}

/// Returns whether the cluster knows vertical autoscalers.
pub(crate) fn has_autoscalers(host: &Host) -> Result<bool, Error> {
    let all = Own::all();
    let Some(own) = all.iter().find(|own| own.kind.kind == AUTOSCALER) else { return Ok(false) };
    match own.read(host) {
        Err(error) if error.is_unknown_kind() => Ok(false),
        read => read.map(|_| true),
    }
}

/// The reason why an object cannot be reconciled, with the original's name of the object.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) title: String,
    pub(crate) cause: Cause,
}

/// The reason why an object cannot be reconciled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cause {
    /// The object cannot be read.
    #[error(transparent)]
    Read(#[from] Error),
    /// More foreign fields than an outcome may name, or one with too long a name.
    #[error("`{0}` has too many foreign fields to remove them one by one: delete it")]
    ForeignFields(String),
}

/// Adds a plan to an outcome: objects are applied and lose the fields of their spec that the plan
/// does not name; objects that exist and should not are deleted.
pub(crate) fn carry_out(plan: &Plan, mut outcome: Outcome, host: &Host) -> Result<Outcome, Fault> {
    for desired in &plan.apply {
        let (own, existing) = read(desired, host)?;
        let mut manifest = Manifest::json(desired);
        if let Some(existing) = existing {
            add_absent(&existing.spec, &desired["spec"], "spec", &mut manifest.absent);
        }
        let absent = &manifest.absent;
        if absent.len() > MAX_PATHS || absent.iter().any(|path| path.len() > MAX_PATH_BYTES) {
            return Err(own.fault(Cause::ForeignFields(own.name.clone())));
        }
        outcome = outcome.apply(manifest);
    }
    for unwanted in &plan.delete {
        let (own, existing) = read(unwanted, host)?;
        if let Some(existing) = existing.filter(|existing| !existing.metadata.is_deleted()) {
            let deletion = Deletion::new(own.reference());
            outcome = outcome.delete(match existing.metadata.uid {
                Some(uid) => deletion.uid(uid),
                None => deletion,
            });
        }
    }
    Ok(outcome)
}

fn read(object: &Value, host: &Host) -> Result<(Own, Option<Existing>), Fault> {
    let own = Own::of(object);
    match own.read(host) {
        Ok(existing) => Ok((own, existing)),
        Err(error) => Err(own.fault(error.into())),
    }
}

/// Adds the paths of fields that exist and are not desired. Lists are replaced as a whole, so only
/// maps are compared field by field.
fn add_absent(existing: &Value, desired: &Value, path: &str, absent: &mut Vec<String>) {
    let (Value::Object(existing), Value::Object(desired)) = (existing, desired) else { return };
    for (key, value) in existing {
        let path = member(path, key);
        match desired.get(key) {
            Some(desired) => add_absent(value, desired, &path, absent),
            None => absent.push(path),
        }
    }
}

fn member(path: &str, key: &str) -> String {
    let is_plain =
        key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if is_plain && !key.is_empty() {
        return format!("{path}.{key}");
    }
    let key = key.replace('\\', "\\\\").replace('"', "\\\"");
    format!("{path}[\"{key}\"]")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_that_nobody_asked_for_are_named_by_their_paths() {
        let existing = json!({
            "mtls": {"mode": "PERMISSIVE", "a.b": 1, "q\"": 2},
            "portLevelMtls": {"8080": {"mode": "DISABLE"}},
            "list": [{"more": 1}],
        });
        let desired = json!({"mtls": {"mode": "STRICT"}, "list": []});
        let mut absent = Vec::new();
        add_absent(&existing, &desired, "spec", &mut absent);
        let expected = [r#"spec.mtls["a.b"]"#, r#"spec.mtls["q\""]"#, "spec.portLevelMtls"];
        assert_eq!(absent, expected);
    }

    #[test]
    fn objects_have_the_originals_names_in_messages() {
        let mut titles: Vec<String> =
            Own::all().iter().map(|own| title(&own.kind.kind, &own.name)).collect();
        titles.dedup();
        let expected = [
            "PeerAuthentication/default",
            "NetworkPolicies",
            "VerticalPodAutoscaler/istio-operator-vpa",
            "VerticalPodAutoscaler/control-plane",
            "EnvoyFilter/proxy-protocol",
        ];
        assert_eq!(titles, expected);
    }
}
