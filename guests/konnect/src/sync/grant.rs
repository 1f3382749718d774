//! `KongReferenceGrant`s: permission for references into another namespace.

use mortise_sdk::{Error, Host};
use serde_json::Value;

use crate::kind::{Entity, GRANT, Name};

/// An object that refers to another one.
#[derive(Clone, Copy)]
pub(crate) struct From<'a> {
    /// The kind.
    pub(crate) entity: &'static Entity,
    /// The namespace; "" for an object without one.
    pub(crate) namespace: &'a str,
}

/// The kind that is referred to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct To {
    pub(crate) group: &'static str,
    pub(crate) kind: &'static str,
}

/// Secrets, as grants name them.
pub(crate) const SECRET: To = To { group: "core", kind: "Secret" };

// === impl To ===

impl std::convert::From<&'static Entity> for To {
    fn from(entity: &'static Entity) -> Self {
        Self { group: entity.group, kind: entity.kind }
    }
}

/// Fails, with the text of the condition, if a reference into another namespace is not granted.
pub(crate) fn check(
    host: &Host,
    from: From<'_>,
    to: To,
    name: &Name,
) -> Result<Result<(), String>, Error> {
    if !name.is_foreign {
        return Ok(Ok(()));
    }
    let grants = GRANT.selection().namespace(&name.namespace).fields(["spec"]);
    let grants: Vec<Value> = host.list(&grants)?;
    if grants.iter().any(|grant| permits(grant, from, to, &name.name)) {
        return Ok(Ok(()));
    }
    Ok(Err(format!(
        "cross-namespace reference to {} {} in namespace {} from {} in namespace {} is not granted by \
         any KongReferenceGrant",
        to.kind,
        name.name,
        name.namespace,
        from.entity.display(),
        from.namespace
    )))
}

fn permits(grant: &Value, from: From<'_>, to: To, name: &str) -> bool {
    let list = |field| {
        let list = grant.pointer(field).and_then(Value::as_array);
        list.map(Vec::as_slice).unwrap_or_default()
    };
    let field =
        |of: &Value, field| of.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_from = |of: &Value| {
        field(of, "group") == from.entity.group
            && field(of, "kind") == from.entity.kind
            && field(of, "namespace") == from.namespace
    };
    let is_group = |group: &str| group == to.group || (to.group == "core" && group.is_empty());
    let is_to = |of: &Value| {
        let granted = field(of, "name");
        is_group(&field(of, "group"))
            && field(of, "kind") == to.kind
            && (granted.is_empty() || granted == name)
    };
    list("/spec/from").iter().any(is_from) && list("/spec/to").iter().any(is_to)
}

#[cfg(test)]
mod tests {
    use mortise_sdk::testing::Stub;
    use serde_json::json;

    use super::*;
    use crate::kind;

    #[test]
    fn a_grant_names_both_ends() {
        let granted = |from: Value, to: Value, at: &str| {
            let stub = Stub::new().objects([json!({
                "apiVersion": "configuration.konghq.com/v1alpha1", "kind": "KongReferenceGrant",
                "metadata": {"name": "g", "namespace": at}, "spec": {"from": [from], "to": [to]},
            })]);
            let entity = kind::find("KonnectAPIAuthConfiguration").unwrap();
            let name = Name { namespace: "b".to_owned(), name: "tok".to_owned(), is_foreign: true };
            let from = From { entity, namespace: "a" };
            check(&stub.host(), from, SECRET, &name).unwrap().is_ok()
        };
        let from = json!({"group": "konnect.konghq.com", "kind": "KonnectAPIAuthConfiguration", "namespace": "a"});
        let other = json!({"group": "konnect.konghq.com", "kind": "KonnectGatewayControlPlane", "namespace": "a"});
        let elsewhere = json!({"group": "konnect.konghq.com", "kind": "KonnectAPIAuthConfiguration", "namespace": "c"});
        let to = json!({"group": "core", "kind": "Secret"});
        let named = |name| json!({"group": "", "kind": "Secret", "name": name});
        let cases = [
            ("any Secret", &from, to.clone(), "b", true),
            ("this Secret", &from, named("tok"), "b", true),
            ("another Secret", &from, named("other"), "b", false),
            ("another kind", &other, to.clone(), "b", false),
            ("another namespace", &elsewhere, to.clone(), "b", false),
            ("a grant elsewhere", &from, to.clone(), "a", false),
            ("another target", &from, json!({"group": "core", "kind": "ConfigMap"}), "b", false),
        ];
        for (case, from, to, at, expected) in cases {
            assert_eq!(granted(from.clone(), to, at), expected, "{case}");
        }
    }
}
