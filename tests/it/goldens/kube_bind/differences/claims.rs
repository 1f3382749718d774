//! Shared objects: ours shares what is claimed now, and no credentials of accounts.

use serde_json::Value;

use super::{
    super::{
        format::Side,
        state::{GROUP, Key, State, without_empty_maps},
    },
    Facts,
    foreign::without_namespaces,
    objects::{CONSUMER_UID, PROVIDER_UID, is_deleting, marked},
};
use crate::goldens::scenario::text;

pub(super) const OWNER: &str = "/metadata/labels/kube-bind.io~1owner";
/// The label of Secrets at home with the kubeconfig of a provider.
const KUBECONFIG: &str = "/metadata/labels/kube-bind.io~1provider-kubeconfig";
/// The types of Secrets that are never shared.
const TOKENS: [&str; 2] = ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"];

/// A copy goes when no claim takes its source any more; the original keeps it. Without an export
/// nobody looks.
pub(super) fn claims_say_what_is_shared(facts: &Facts<'_>, expected: &mut State) {
    if !facts.is_running {
        return;
    }
    let unclaimed: Vec<Key> = shared(expected)
        .filter(|(copy, source)| {
            // Claims are told in names of the consumer.
            let home = if copy.side == Side::C { copy } else { source };
            claims(home, expected).next().is_some()
                && !is_claimed(home, &expected[source], expected)
        })
        .map(|(copy, _)| copy)
        .collect();
    expected.retain(|key, object| {
        // One that went so does not come back with the end of its source.
        let is_there = facts.is_there(key) || facts.before.contains_key(key);
        let is_left =
            || source_of(key, object).is_some_and(|source| !facts.actual.contains_key(&source));
        !unclaimed.contains(key) && (is_there || !is_left())
    });
}

/// Secrets with tokens of accounts are neither copied nor labelled, nor is the list of an account's
/// Secrets copied.
pub(super) fn tokens_are_never_copied(facts: &Facts<'_>, expected: &mut State) {
    let mut tokens = Vec::new();
    for (copy, source) in shared(expected).collect::<Vec<_>>() {
        let Some(object) = expected.get_mut(&copy) else { continue };
        if copy.kind == "ServiceAccount" {
            object.as_object_mut().map(|account| account.remove("secrets"));
        }
        if copy.kind == "Secret" && TOKENS.contains(&text(object, "/type")) {
            tokens.push((copy, source));
        }
    }
    unshare(facts, expected, tokens);
}

/// Neither the objects of the namespaces `kube-*` are shared, nor the kubeconfigs of providers.
pub(super) fn kubeconfigs_are_never_claimed(facts: &Facts<'_>, expected: &mut State) {
    let never: Vec<(Key, Key)> = expected
        .iter()
        .filter_map(|(copy, object)| Some((copy.clone(), source_of(copy, object)?)))
        .filter(|(copy, source)| {
            let home = if copy.side == Side::C { copy } else { source };
            home.namespace.starts_with("kube-") || is_kubeconfig(home, expected)
        })
        .collect();
    unshare(facts, expected, never);
}

/// Returns whether an object at home is the Secret that a binding or a bundle names, or has the
/// label of such Secrets.
fn is_kubeconfig(home: &Key, state: &State) -> bool {
    let users = state.iter().filter(|(key, _)| {
        ["APIServiceBinding", "APIServiceBindingBundle"].iter().any(|of| key.is(Side::C, GROUP, of))
    });
    let mut used = users.filter_map(|(_, user)| user.pointer("/spec/kubeconfigSecretRef"));
    let is_labelled = |secret: &Value| text(secret, KUBECONFIG) == "true";
    let is_named =
        |of: &Value| (text(of, "/namespace"), text(of, "/name")) == (&*home.namespace, &*home.name);
    home.kind == "Secret" && (state.get(home).is_some_and(is_labelled) || used.any(is_named))
}

/// Takes away copies that ours does not make, each with its source, and what was asked for them.
fn unshare(facts: &Facts<'_>, expected: &mut State, copies: Vec<(Key, Key)>) {
    let mut asked = Vec::new();
    for (copy, source) in copies {
        match facts.given.get(&copy) {
            Some(given) => expected.insert(copy, given.clone()),
            None => expected.remove(&copy),
        };
        asked.push(source.namespace.clone());
        let was_given =
            facts.given.get(&source).is_some_and(|given| !text(given, OWNER).is_empty());
        if let Some(source) = expected.get_mut(&source).filter(|_| !was_given) {
            let labels = source.pointer_mut("/metadata/labels").and_then(Value::as_object_mut);
            labels.map(|labels| labels.remove("kube-bind.io/owner"));
            without_empty_maps(source);
        }
    }
    without_namespaces(facts, expected, &asked);
}

/// Returns the copies of shared objects, each with its source.
fn shared(state: &State) -> impl Iterator<Item = (Key, Key)> {
    state.iter().filter_map(|(key, object)| {
        let source = source_of(key, object).filter(|source| state.contains_key(source))?;
        Some((key.clone(), source))
    })
}

/// Returns the source of a copy, which may be gone.
fn source_of(key: &Key, object: &Value) -> Option<Key> {
    match (key.side, text(object, OWNER)) {
        (Side::P, "consumer") => marked(object, CONSUMER_UID, Side::C),
        (Side::C, "provider") => marked(object, PROVIDER_UID, Side::P),
        _ => None,
    }
}

/// Returns the claims of all exports on the kind of an object, each with the name of its export.
fn claims<'a>(home: &Key, state: &'a State) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let resource = format!("{}s", home.kind.to_lowercase());
    let exports = state.iter().filter(|(key, _)| key.is(Side::P, GROUP, "APIServiceExport"));
    exports
        .flat_map(|(key, export)| {
            list(export, "/spec/permissionClaims").map(move |claim| (key.name.as_str(), claim))
        })
        .filter(move |(_, claim)| text(claim, "/resource") == resource)
}

/// Returns whether a claim of an export that is bound takes an object.
pub(super) fn is_claimed(home: &Key, source: &Value, state: &State) -> bool {
    let is_bound = |name: &str| {
        let mut bindings =
            state.iter().filter(|(key, _)| key.is(Side::C, GROUP, "APIServiceBinding"));
        bindings.any(|(key, binding)| key.name == name && !is_deleting(binding))
    };
    claims(home, state).filter(|(export, _)| is_bound(export)).any(|(_, claim)| {
        let named = list(claim, "/selector/namedResources").any(|named| {
            let namespace = text(named, "/namespace");
            text(named, "/name") == home.name
                && (namespace.is_empty() || namespace == home.namespace)
        });
        let by_labels = claim.pointer("/selector/labelSelector");
        named || by_labels.is_some_and(|by| fits(by, source)) || refers(claim, home, state)
    })
}

fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn fits(selector: &Value, object: &Value) -> bool {
    let label = |key: &str| object.pointer("/metadata/labels").and_then(|labels| labels.get(key));
    let wanted = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let are_equal = wanted.into_iter().all(|(key, value)| label(key) == Some(value));
    are_equal
        && list(selector, "/matchExpressions").all(|of| {
            let value = label(text(of, "/key"));
            let is_in = value.is_some_and(|value| list(of, "/values").any(|one| one == value));
            match text(of, "/operator") {
                "In" => is_in,
                "NotIn" => !is_in,
                "Exists" => value.is_some(),
                _ => value.is_none(),
            }
        })
}

/// Returns whether an object at home refers to another one.
fn refers(claim: &Value, home: &Key, state: &State) -> bool {
    list(claim, "/selector/references").any(|reference| {
        let resource = text(reference, "/resource");
        let is_of = |key: &Key| {
            key.side == Side::C
                && key.group == text(reference, "/group")
                && format!("{}s", key.kind.to_lowercase()) == resource
        };
        state.iter().filter(|(key, _)| is_of(key)).any(|(_, object)| {
            let at = |path: &str| values(object, text(reference, path));
            let namespaces = at("/jsonPath/namespace");
            at("/jsonPath/name").contains(&home.name.as_str())
                && (namespaces.is_empty() || namespaces.contains(&home.namespace.as_str()))
        })
    })
}

/// Returns the texts at a place in dot syntax, where `#` stands for each item of a list.
fn values<'a>(object: &'a Value, path: &str) -> Vec<&'a str> {
    let parts = path.split('.').filter(|part| !part.is_empty());
    let found = parts.fold(vec![object], |found, part| {
        let step = |value: &'a Value| match value {
            Value::Array(items) if part == "#" => items.iter().collect(),
            value => value.get(part).into_iter().collect::<Vec<_>>(),
        };
        found.into_iter().flat_map(step).collect()
    });
    let items = found.into_iter().flat_map(|value| match value {
        Value::Array(items) => items.iter().collect(),
        other => vec![other],
    });
    if path.is_empty() {
        Vec::new()
    } else {
        items.filter_map(Value::as_str).map(str::trim).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use serde_json::json;

    use super::*;

    fn state(objects: &[(Side, Value)]) -> State {
        objects.iter().map(|(side, object)| (Key::of(*side, object), object.clone())).collect()
    }

    fn secret(namespace: &str, name: &str, metadata: &Value) -> Value {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": namespace, "name": name}});
        crate::goldens::scenario::merged(&secret, &json!({"metadata": metadata}))
    }

    fn copy(home: &str, name: &str) -> Value {
        let uid = format!("${{UID C Secret {home}/{name}}}");
        let metadata = json!({
            "labels": {"kube-bind.io/owner": "consumer"}, "annotations": {"kube-bind.io/consumer-uid": uid},
        });
        secret(&format!("cn-{home}"), name, &metadata)
    }

    fn asked(namespace: &str) -> Value {
        json!({
            "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceNamespace",
            "metadata": {"namespace": "cn", "name": namespace, "ownerReferences": []},
            "status": {"namespace": format!("cn-{namespace}")},
        })
    }

    #[test]
    fn kubeconfigs_and_namespaces_of_the_cluster_are_taken_out_of_the_record() {
        let owned = json!({"labels": {"kube-bind.io/owner": "consumer"}});
        let labelled = json!({"labels": {"kube-bind.io/provider-kubeconfig": "true"}});
        let named = json!({"namespace": "team", "name": "named"});
        let binding = json!({
            "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceBinding",
            "metadata": {"name": "rockets"}, "spec": {"kubeconfigSecretRef": named},
        });
        let plain = [
            (Side::C, binding),
            (Side::C, secret("team", "labelled", &labelled)),
            (Side::C, secret("team", "plain", &owned)),
            (Side::P, copy("team", "plain")),
            (Side::P, asked("team")),
        ];
        let mut record = state(&plain);
        record.extend(state(&[
            (Side::C, secret("team", "named", &owned)),
            (Side::P, copy("kube-system", "any")),
            (Side::P, copy("team", "named")),
            (Side::P, copy("team", "labelled")),
            (Side::P, asked("kube-system")),
        ]));
        let none = State::new();
        let facts = Facts {
            actual: &none,
            before: &none,
            removed: &none,
            deleted: &BTreeSet::new(),
            lost: &BTreeSet::new(),
            given: &none,
            former: &BTreeMap::new(),
            unreachable: &BTreeMap::new(),
            is_running: true,
            later: &[],
        };
        kubeconfigs_are_never_claimed(&facts, &mut record);
        let mut expected = state(&plain);
        expected.extend(state(&[(Side::C, secret("team", "named", &json!({})))]));
        assert_eq!(record, expected);
    }
}
