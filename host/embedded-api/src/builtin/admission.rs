//! The admission plugins that are on by default in Kubernetes: accounts, priorities and tolerations
//! of new pods, the finalizers that protect claims and volumes in use, and the growth of claims.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    edit::{at, child, default, is_empty, items, items_mut, set, text},
    quantity::nanos,
};
use crate::{Failure, chance::Chance, status::Named};

/// Finds a stored object by group, plural name, namespace (empty for none) and name.
pub(crate) type Find<'a> = &'a dyn Fn(&str, &str, &str, &str) -> Option<Arc<Value>>;

/// Admits a new object: fills in fields and validates them.
pub(crate) fn admit(definition: &str, object: &mut Value, find: Find<'_>) -> Result<(), Failure> {
    match definition {
        "api.core.v1.Pod" => {
            service_account(object, find)?;
            priority(object, find)?;
            tolerations(object);
            Ok(())
        }
        "api.core.v1.PersistentVolumeClaim" => {
            protect(object, "kubernetes.io/pvc-protection");
            Ok(())
        }
        "api.core.v1.PersistentVolume" => {
            protect(object, "kubernetes.io/pv-protection");
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Admits a changed object that is valid: a claim grows only if its storage class allows it.
pub(crate) fn admit_update(
    definition: &str,
    new: &Value,
    old: &Value,
    find: Find<'_>,
) -> Result<(), Failure> {
    let size = |claim: &Value| nanos(at(claim, &["spec", "resources", "requests", "storage"]));
    if definition != "api.core.v1.PersistentVolumeClaim" || size(new) <= size(old) {
        return Ok(());
    }
    let refused = |why: &str| {
        let name = text(&new["metadata"], "name");
        Err(Failure::forbidden(Named::new("", "persistentvolumeclaims", name), why))
    };
    if text(&old["status"], "phase") != "Bound" {
        return refused("Only bound persistent volume claims can be expanded");
    }
    let class = text(&new["spec"], "storageClassName");
    let class = if class == text(&old["spec"], "storageClassName") { class } else { "" };
    let found = find("storage.k8s.io", "storageclasses", "", class);
    if found.is_some_and(|class| *at(&class, &["allowVolumeExpansion"]) == true) {
        return Ok(());
    }
    refused(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
    )
}

fn forbidden(pod: &Value, why: &str) -> Failure {
    Failure::forbidden(Named::new("", "pods", text(&pod["metadata"], "name")), why)
}

/// Fills in the account of a pod and its image secrets, and mounts the account's token unless the
/// pod or the account forbids it. Fails if the account does not exist, except for `default`, which
/// no controller creates here.
fn service_account(pod: &mut Value, find: Find<'_>) -> Result<(), Failure> {
    let namespace = text(&pod["metadata"], "namespace").to_owned();
    let uid = text(&pod["metadata"], "uid").to_owned();
    let Some(spec) = child(pod, "spec") else { return Ok(()) };
    default(spec, "serviceAccountName", "default");
    let name = text(spec, "serviceAccountName").to_owned();
    set(spec, "serviceAccount", name.clone());
    let account = find("", "serviceaccounts", &namespace, &name);
    if account.is_none() && name != "default" {
        let why = format!(
            "error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found"
        );
        return Err(forbidden(pod, &why));
    }
    let Some(spec) = child(pod, "spec") else { return Ok(()) };
    let account = account.as_deref();
    if is_empty(&spec["imagePullSecrets"])
        && let Some(secrets) = account.map(|account| &account["imagePullSecrets"])
        && !is_empty(secrets)
    {
        set(spec, "imagePullSecrets", secrets.clone());
    }
    let asked = [Some(&*spec), account]
        .into_iter()
        .flatten()
        .find_map(|from| from["automountServiceAccountToken"].as_bool());
    if asked.unwrap_or(true) {
        mount_token(spec, &uid);
    }
    Ok(())
}

const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

fn mount_token(spec: &mut Value, uid: &str) {
    let name = format!("kube-api-access-{}", Chance::of(uid).suffix());
    let mut mounted = false;
    for list in ["initContainers", "containers"] {
        for container in items_mut(spec, list) {
            let has = items(&container["volumeMounts"])
                .iter()
                .any(|mount| mount["mountPath"] == TOKEN_PATH);
            if has {
                continue;
            }
            let mount = json!({"name": name, "readOnly": true, "mountPath": TOKEN_PATH});
            push(container, "volumeMounts", mount);
            mounted = true;
        }
    }
    if mounted {
        push(spec, "volumes", token_volume(&name));
    }
}

fn token_volume(name: &str) -> Value {
    let field = json!({"apiVersion": "v1", "fieldPath": "metadata.namespace"});
    json!({
        "name": name,
        "projected": {
            "defaultMode": 0o644,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}},
            ],
        },
    })
}

fn push(value: &mut Value, key: &str, item: Value) {
    default(value, key, json!([]));
    if let Some(list) = value[key].as_array_mut() {
        list.push(item);
    }
}

fn priority(pod: &mut Value, find: Find<'_>) -> Result<(), Failure> {
    let name = text(&pod["spec"], "priorityClassName").to_owned();
    let (priority, policy) = match name.as_str() {
        "" => (json!(0), json!("PreemptLowerPriority")),
        "system-cluster-critical" => (json!(2_000_000_000), json!("PreemptLowerPriority")),
        "system-node-critical" => (json!(2_000_001_000), json!("PreemptLowerPriority")),
        _ => match find("scheduling.k8s.io", "priorityclasses", "", &name) {
            Some(class) => {
                (at(&class, &["value"]).clone(), at(&class, &["preemptionPolicy"]).clone())
            }
            None => {
                return Err(forbidden(
                    pod,
                    &format!("no PriorityClass with name {name} was found"),
                ));
            }
        },
    };
    let asked = at(pod, &["spec", "priority"]);
    if !asked.is_null() && *asked != priority {
        let why = format!(
            "the integer value of priority ({asked}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
        );
        return Err(forbidden(pod, &why));
    }
    if let Some(spec) = child(pod, "spec") {
        set(spec, "priority", priority);
        default(spec, "preemptionPolicy", policy);
    }
    Ok(())
}

/// Adds tolerations: a pod stays for five minutes on a node that is not ready or not reachable.
fn tolerations(pod: &mut Value) {
    let Some(spec) = child(pod, "spec") else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = items(&spec["tolerations"]).iter().any(|toleration| {
            (text(toleration, "key") == key || text(toleration, "key").is_empty())
                && matches!(text(toleration, "effect"), "NoExecute" | "")
        });
        if !tolerated {
            let toleration = json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
            push(spec, "tolerations", toleration);
        }
    }
}

fn protect(object: &mut Value, finalizer: &str) {
    let Some(metadata) = child(object, "metadata") else { return };
    if !items(&metadata["finalizers"]).iter().any(|known| known == finalizer) {
        push(metadata, "finalizers", finalizer.into());
    }
}
