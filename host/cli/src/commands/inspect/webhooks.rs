//! The objects that configure the API server to call the hooks of a processor.

use mortise_core::{
    contract::{
        Kind,
        hooks::{Converted, Hook, Hooks, Operation, Otherwise},
    },
    grant::rights::Account,
    labels::{LabelSelector, Test},
    resource::Kinds,
};
use serde_json::{Value, json};

use crate::local;

const SERVICE_PORT: u16 = 443;
/// The match condition of a mutating hook, in CEL: all requests but those for objects that are
/// being deleted, so that finalizers can be removed while no host answers.
const NOT_BEING_DELETED: &str = "object == null || !has(object.metadata.deletionTimestamp)";
/// The port of the host in the guides.
const TARGET_PORT: u16 = 9443;

/// Returns the Service of a host's webhooks, the conversion of each definition, and the webhook
/// configurations of the hooks, for the Processor of this name. The CA bundles are left to the tool
/// that issues the certificate.
pub(super) fn objects(
    hooks: &Hooks,
    processor: &Account,
    service: &Account,
    known: &Kinds,
) -> Vec<Value> {
    let mut objects = vec![json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": service.namespace, "name": service.name},
        "spec": {
            "selector": {"app.kubernetes.io/name": "mortise"},
            "ports": [{"name": "webhooks", "port": SERVICE_PORT, "targetPort": TARGET_PORT}],
        },
    })];
    let client = |path: String| {
        let Account { namespace, name } = service;
        json!({"service": {"namespace": namespace, "name": name, "port": SERVICE_PORT, "path": path}})
    };
    let Account { namespace, name } = processor;
    let conversions = hooks.conversions.iter();
    objects.extend(
        conversions
            .map(|of| conversion(of, &client(format!("/convert/{namespace}/{name}")), known)),
    );
    for (kind, changes) in
        [("MutatingWebhookConfiguration", true), ("ValidatingWebhookConfiguration", false)]
    {
        let of = hooks.admission.iter().filter(|hook| hook.changes == changes);
        let webhooks = of.map(|hook| {
            let path = format!("/admit/{namespace}/{name}/{}", hook.name);
            webhook(hook, processor, &client(path), known)
        });
        let webhooks: Vec<Value> = webhooks.collect();
        if !webhooks.is_empty() {
            objects.push(json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
                "metadata": {"name": format!("{namespace}-{name}")}, "webhooks": webhooks,
            }));
        }
    }
    objects
}

fn conversion(of: &Converted, client: &Value, known: &Kinds) -> Value {
    let Converted { group, kind, versions } = of;
    let of_version = |version: &String| {
        let (group, version, kind) = (group.clone(), version.clone(), kind.clone());
        Kind::home(group, version, kind)
    };
    let kinds: Vec<Kind> = versions.iter().map(of_version).collect();
    let served = kinds.iter().find(|kind| known.get(kind).is_some()).or_else(|| kinds.first());
    let plural = served.map(|kind| local::served(known, kind).plural).unwrap_or_default();
    let webhook = json!({"clientConfig": client, "conversionReviewVersions": ["v1"]});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}},
    })
}

fn webhook(hook: &Hook, processor: &Account, client: &Value, known: &Kinds) -> Value {
    let Account { namespace, name } = processor;
    let kind = &hook.of.kind;
    let operation = |of: &Operation| match of {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
        Operation::Delete => "DELETE",
    };
    let operations: Vec<&str> = hook.operations.iter().map(operation).collect();
    let rule = json!({
        "apiGroups": [kind.group], "apiVersions": [kind.version], "operations": operations,
        "resources": [local::served(known, kind).plural], "scope": "*",
    });
    let on_failure = match hook.on_failure {
        Otherwise::Refuse => "Fail",
        Otherwise::LetPass => "Ignore",
    };
    let namespaces = hook
        .of
        .namespace
        .as_ref()
        .map(|namespace| json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}}));
    let is_changed = hook.changes && hook.operations.contains(&Operation::Update);
    let conditions = if is_changed {
        json!([{"name": "not-being-deleted", "expression": NOT_BEING_DELETED}])
    } else {
        json!([])
    };
    json!({
        "name": format!("{}.{name}.{namespace}.mortise.dev", hook.name),
        "clientConfig": client, "rules": [rule], "matchPolicy": "Exact",
        "failurePolicy": on_failure, "sideEffects": "None",
        "timeoutSeconds": hook.timeout.div_ceil(1_000), "admissionReviewVersions": ["v1"],
        "namespaceSelector": namespaces.unwrap_or_else(|| json!({})),
        "objectSelector": selector(&hook.of.labels),
        "matchConditions": conditions,
    })
}

/// Returns a label selector in the format of Kubernetes' objects.
fn selector(labels: &str) -> Value {
    // A hook's selector was already parsed when it was loaded.
    let parsed = LabelSelector::parse(labels).unwrap_or_default();
    let requirements = parsed.requirements().iter().map(|requirement| {
        let key = &requirement.key;
        match &requirement.test {
            Test::Exists => json!({"key": key, "operator": "Exists"}),
            Test::Absent => json!({"key": key, "operator": "DoesNotExist"}),
            Test::In(values) => json!({"key": key, "operator": "In", "values": values}),
            Test::NotIn(values) => json!({"key": key, "operator": "NotIn", "values": values}),
        }
    });
    let requirements: Vec<Value> = requirements.collect();
    if requirements.is_empty() { json!({}) } else { json!({"matchExpressions": requirements}) }
}

#[cfg(test)]
mod tests {
    use mortise_core::fixture::{all, labelled};

    use super::*;

    #[test]
    fn objects_name_the_paths_of_the_host() {
        let versions = vec!["v1".to_owned(), "v2".to_owned()];
        let of = Converted { group: "g.dev".into(), kind: "Rule".into(), versions };
        let hook = Hook {
            name: "mark".into(),
            of: labelled(all("Rule"), "a in (b,c),!d"),
            operations: vec![Operation::Create, Operation::Update],
            changes: true,
            on_failure: Otherwise::LetPass,
            timeout: 1_500,
        };
        let check = Hook { name: "check".into(), changes: false, ..hook.clone() };
        let hooks = Hooks { conversions: vec![of], admission: vec![check, hook] };
        let (processor, service) = ("shop/rules".parse().unwrap(), "host/hooks".parse().unwrap());
        let objects = objects(&hooks, &processor, &service, &Kinds::default());
        let names: Vec<&str> =
            objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["hooks", "rules.g.dev", "shop-rules", "shop-rules"]);
        let unready = &objects[0]["spec"]["publishNotReadyAddresses"];
        assert!(unready.is_null(), "an endpoint goes before its host has ended");
        let client = &objects[1]["spec"]["conversion"]["webhook"]["clientConfig"]["service"];
        let path = "/convert/shop/rules";
        let expected = json!({"namespace": "host", "name": "hooks", "port": 443, "path": path});
        assert_eq!(*client, expected);
        let webhook = &objects[2]["webhooks"][0];
        assert_eq!(objects[2]["kind"], "MutatingWebhookConfiguration");
        assert_eq!(webhook["name"], "mark.rules.shop.mortise.dev");
        assert_eq!(webhook["clientConfig"]["service"]["path"], "/admit/shop/rules/mark");
        assert_eq!(
            (&webhook["failurePolicy"], &webhook["timeoutSeconds"]),
            (&json!("Ignore"), &json!(2))
        );
        let expected = json!({"matchExpressions": [
            {"key": "a", "operator": "In", "values": ["b", "c"]},
            {"key": "d", "operator": "DoesNotExist"},
        ]});
        assert_eq!(webhook["objectSelector"], expected);
        assert_eq!(webhook["rules"][0]["operations"], json!(["CREATE", "UPDATE"]));
        assert_eq!(webhook["matchConditions"][0]["expression"], NOT_BEING_DELETED);
        let check = &objects[3]["webhooks"][0];
        assert_eq!(check["matchConditions"], json!([]), "a check holds to the end of an object");
        assert_eq!(
            objects[3]["webhooks"][0]["clientConfig"]["service"]["path"],
            "/admit/shop/rules/check"
        );
    }
}
