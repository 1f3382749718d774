//! The admission plugins that are on by default in Kubernetes: amounts, accounts, priorities and
//! tolerations of new pods, the default priority class, the finalizers that protect claims and
//! volumes in use, and the growth of claims.

mod limits;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use super::{
    edit::{at, child, default, is_empty, items, items_mut, set, text},
    quantity::nanos,
};
use crate::{Failure, chance::Chance, status::Named};

/// The stored objects that admission asks for.
pub(crate) trait Stored {
    /// Returns an object by group, plural name, namespace (empty for none) and name.
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value>;

    /// Returns all objects of a kind in a namespace (empty for all).
    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Value>;
}

/// Admits a new object: fills in fields.
pub(crate) fn admit(
    definition: &str,
    object: &mut Value,
    stored: &dyn Stored,
) -> Result<(), Failure> {
    match definition {
        "api.core.v1.Pod" => {
            let namespace = text(&object["metadata"], "namespace").to_owned();
            for range in stored.list("", "limitranges", &namespace) {
                limits::fill(object, &range);
            }
            service_account(object, stored)?;
            priority(object, stored)?;
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

/// Checks a valid object: a new one (without `old`) or a changed one.
pub(crate) fn check(
    definition: &str,
    new: &Value,
    old: Option<&Value>,
    stored: &dyn Stored,
) -> Result<(), Failure> {
    match definition {
        // The amounts of a pod do not change later.
        "api.core.v1.Pod" if old.is_none() => check_limits(definition, "pods", new, stored),
        "api.core.v1.PersistentVolumeClaim" => {
            if new["metadata"].get("deletionTimestamp").is_none() {
                check_limits(definition, "persistentvolumeclaims", new, stored)?;
            }
            old.map_or(Ok(()), |old| check_growth(new, old, stored))
        }
        "api.scheduling.v1.PriorityClass" => check_default_class(new, old, stored),
        _ => Ok(()),
    }
}

fn check_limits(
    definition: &str,
    plural: &str,
    new: &Value,
    stored: &dyn Stored,
) -> Result<(), Failure> {
    let metadata = &new["metadata"];
    let ranges = stored.list("", "limitranges", text(metadata, "namespace"));
    match ranges.iter().find_map(|range| limits::check(definition, new, range)) {
        Some(why) => Err(Failure::forbidden(Named::new("", plural, text(metadata, "name")), &why)),
        None => Ok(()),
    }
}

/// A claim grows only if its storage class allows it.
fn check_growth(new: &Value, old: &Value, stored: &dyn Stored) -> Result<(), Failure> {
    let size = |claim: &Value| nanos(at(claim, &["spec", "resources", "requests", "storage"]));
    if size(new) <= size(old) {
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
    let found = stored.get("storage.k8s.io", "storageclasses", "", class);
    if found.is_some_and(|class| *at(&class, &["allowVolumeExpansion"]) == true) {
        return Ok(());
    }
    refused(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
    )
}

/// There is one default priority class at most.
fn check_default_class(
    new: &Value,
    old: Option<&Value>,
    stored: &dyn Stored,
) -> Result<(), Failure> {
    fn name(class: &Value) -> &str {
        text(&class["metadata"], "name")
    }
    if new["globalDefault"] != true {
        return Ok(());
    }
    let is_other = |class: &Value| old.is_none() || name(class) != name(new);
    let Some(other) = default_class(stored).filter(is_other) else { return Ok(()) };
    let why = format!(
        "PriorityClass {} is already marked as default. Only one default can exist",
        name(&other)
    );
    let named = Named::new("scheduling.k8s.io", "priorityclasses", name(new));
    Err(Failure::forbidden(named, &why))
}

/// Returns the default priority class; of several, one with the lowest priority.
fn default_class(stored: &dyn Stored) -> Option<Value> {
    let classes = stored.list("scheduling.k8s.io", "priorityclasses", "");
    let defaults = classes.into_iter().filter(|class| class["globalDefault"] == true);
    defaults.min_by_key(|class| class["value"].as_i64())
}

fn forbidden(pod: &Value, why: &str) -> Failure {
    Failure::forbidden(Named::new("", "pods", text(&pod["metadata"], "name")), why)
}

/// Fills in the account of a pod and its image secrets, and mounts the account's token unless the
/// pod or the account forbids it. Fails if the account does not exist, except for `default`, which
/// no controller creates here.
fn service_account(pod: &mut Value, stored: &dyn Stored) -> Result<(), Failure> {
    let namespace = text(&pod["metadata"], "namespace").to_owned();
    let uid = text(&pod["metadata"], "uid").to_owned();
    let Some(spec) = child(pod, "spec") else { return Ok(()) };
    default(spec, "serviceAccountName", "default");
    let name = text(spec, "serviceAccountName").to_owned();
    set(spec, "serviceAccount", name.clone());
    let account = stored.get("", "serviceaccounts", &namespace, &name);
    if account.is_none() && name != "default" {
        let why = format!(
            "error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found"
        );
        return Err(forbidden(pod, &why));
    }
    let Some(spec) = child(pod, "spec") else { return Ok(()) };
    let account = account.as_ref();
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

/// Returns the priority of a class of the system.
pub(super) fn system_priority(name: &str) -> Option<i64> {
    match name {
        "system-cluster-critical" => Some(2_000_000_000),
        "system-node-critical" => Some(2_000_001_000),
        _ => None,
    }
}

/// Sets the priority of a pod, and whether it preempts others, by its class or the default one.
fn priority(pod: &mut Value, stored: &dyn Stored) -> Result<(), Failure> {
    let name = text(&pod["spec"], "priorityClassName").to_owned();
    let of_value = |priority: i64| json!({"value": priority});
    let class = match system_priority(&name) {
        Some(priority) => Some(of_value(priority)),
        None if name.is_empty() => Some(default_class(stored).unwrap_or_else(|| of_value(0))),
        None => stored.get("scheduling.k8s.io", "priorityclasses", "", &name),
    };
    let Some(class) = class else {
        return Err(forbidden(pod, &format!("no PriorityClass with name {name} was found")));
    };
    let policy = at(&class, &["preemptionPolicy"]).as_str().unwrap_or("PreemptLowerPriority");
    let (asked, computed) = (at(pod, &["spec", "priority"]), at(&class, &["value"]));
    if !asked.is_null() && asked != computed {
        let why = format!(
            "the integer value of priority ({asked}) must not be provided in pod spec; priority admission controller computed {computed} from the given PriorityClass name"
        );
        return Err(forbidden(pod, &why));
    }
    let asked = text(&pod["spec"], "preemptionPolicy");
    if !asked.is_empty() && asked != policy {
        let why = format!(
            "the string value of PreemptionPolicy ({asked}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        );
        return Err(forbidden(pod, &why));
    }
    if let Some(spec) = child(pod, "spec") {
        if let Some(name) = at(&class, &["metadata", "name"]).as_str() {
            set(spec, "priorityClassName", name);
        }
        set(spec, "priority", computed.clone());
        set(spec, "preemptionPolicy", policy);
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
