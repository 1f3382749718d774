//! Creates and deletes the objects of the host and its tenants: accounts, roles, objects and
//! Processors.

use std::{
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result};
use certificate::{Issued, Server, issue::issue};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::{authentication::v1::TokenRequest, core::v1::ServiceAccount};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams},
    config::{AuthInfo, Kubeconfig},
    core::GroupVersionKind,
};
use mortise::{files, local};
use mortise_host::cluster::Cluster;
use serde_json::{Value, json};

use super::{
    TREASURE,
    attack::{Attack, Flood, Metadata},
    benign,
};
use crate::cluster;

/// The namespace of the host, and its account, in `deploy/install.yaml`.
pub(super) const HOME: &str = "mortise";
const RBAC: &str = "rbac.authorization.k8s.io/v1";
/// The Secret with the certificate of the host's webhooks, in its namespace.
pub(super) const CERTIFICATE: &str = "webhooks";
/// The name in that certificate.
pub(super) const WEBHOOKS: &str = "webhooks.mortise.svc";
/// Number of an administrator's concurrent requests.
const CONCURRENT_REQUESTS: usize = 8;

/// Applies `deploy/install.yaml` except its Deployments, and the certificate of its webhooks, and
/// writes a kubeconfig of the host's account. Returns the authority of the certificate.
pub(super) async fn install(
    plane: &cluster::Cluster,
    admin: &Cluster,
    kubeconfig: &Path,
) -> Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut objects = files::load(&root.join("deploy/install.yaml"))?;
    objects.retain(|object| object["kind"] != "Deployment");
    let (definitions, others): (Vec<_>, Vec<_>) =
        objects.into_iter().partition(|object| object["kind"] == "CustomResourceDefinition");
    plane.install(&definitions).await?;
    local::apply(admin, others).await?;
    let issued = issued()?;
    let data = json!({"tls.crt": issued.chain, "tls.key": issued.key});
    let named = json!({"namespace": HOME, "name": CERTIFICATE});
    let subject = json!({"kind": "ServiceAccount", "namespace": HOME, "name": HOME});
    let of_certificate = vec![
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": named, "stringData": data}),
        json!({"apiVersion": RBAC, "kind": "Role", "metadata": named, "rules": [certificate_rule()]}),
        json!({
            "apiVersion": RBAC, "kind": "RoleBinding", "metadata": named, "subjects": [subject],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": CERTIFICATE},
        }),
    ];
    local::apply(admin, of_certificate).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.client().clone(), HOME);
    let asked = (PostParams::default(), TokenRequest::default());
    let answer = accounts.create_token_request(HOME, &asked.0, &asked.1).await?;
    let token = answer.status.context("a token")?.token;
    let mut config = Kubeconfig::read_from(plane.kubeconfig())?;
    for user in &mut config.auth_infos {
        let token = Some(token.clone().into());
        user.auth_info = Some(AuthInfo { token, ..AuthInfo::default() });
    }
    for context in &mut config.contexts {
        if let Some(context) = &mut context.context {
            context.namespace = Some(HOME.to_owned());
        }
    }
    std::fs::write(kubeconfig, serde_json::to_string(&config)?)?;
    Ok(issued.authority)
}

/// Returns the rule of the host's right to the certificate of its webhooks, as in the chart.
pub(super) fn certificate_rule() -> Value {
    json!({
        "apiGroups": [""], "resources": ["secrets"], "resourceNames": [CERTIFICATE],
        "verbs": ["list", "watch"],
    })
}

fn issued() -> Result<Issued> {
    #[expect(clippy::disallowed_methods, reason = "certificates are checked against the real time")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let (hosts, day) = ([WEBHOOKS.to_owned()], Duration::from_hours(24));
    let server = Server { hosts: &hosts, from: now.saturating_sub(day), until: now + day };
    issue(&server).map_err(|error| anyhow::anyhow!("{error}"))
}

/// Creates a namespace with a Secret and an account that consents to all Processors. The host may
/// impersonate the account if `may_be`.
pub(super) async fn tenant(
    admin: &Cluster,
    namespace: &str,
    account: &str,
    rights: &[(&str, &str)],
    may_be: bool,
) -> Result<()> {
    let named = |name: &str| json!({"namespace": namespace, "name": name});
    let metadata = json!({
        "namespace": namespace, "name": account, "annotations": {"mortise.dev/processor": "*"},
    });
    let role = |name: &str, rules: Value| json!({"apiVersion": RBAC, "kind": "Role", "metadata": named(name), "rules": rules});
    let binding = |name: &str, subject: Value| {
        json!({
            "apiVersion": RBAC, "kind": "RoleBinding", "metadata": named(name),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [subject],
        })
    };
    let subject = |namespace: &str, name: &str| json!({"kind": "ServiceAccount", "namespace": namespace, "name": name});
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
        role(account, rules(rights)),
        binding(account, subject(namespace, account)),
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": named("treasure"),
            "stringData": {"value": TREASURE[0]},
        }),
    ];
    if may_be {
        let impersonates = json!([{
            "apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": [account],
            "verbs": ["impersonate"],
        }]);
        let name = "impersonates";
        objects.extend([role(name, impersonates), binding(name, subject(HOME, HOME))]);
    }
    local::apply(admin, objects).await
}

/// Returns the rules of a role.
fn rules(rights: &[(&str, &str)]) -> Value {
    let mut rules = Vec::new();
    for (resources, verbs) in rights {
        let verbs: Vec<&str> = verbs.split(' ').collect();
        for resource in resources.split(' ') {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
            let slash = if subresource.is_empty() { "" } else { "/" };
            let resource = format!("{plural}{slash}{subresource}");
            rules.push(json!({"apiGroups": [group], "resources": [resource], "verbs": verbs}));
        }
    }
    Value::Array(rules)
}

/// Gives the account of an attack its additional rights in the benign namespace too.
async fn grant(admin: &Cluster, attack: &Attack) -> Result<()> {
    let metadata = json!({"namespace": benign::NAME, "name": attack.name});
    let subject =
        json!({"kind": "ServiceAccount", "namespace": attack.namespace(), "name": attack.name});
    let objects = vec![
        json!({"apiVersion": RBAC, "kind": "Role", "metadata": metadata, "rules": rules(attack.rights)}),
        json!({
            "apiVersion": RBAC, "kind": "RoleBinding", "metadata": metadata, "subjects": [subject],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": attack.name},
        }),
    ];
    local::apply(admin, objects).await
}

/// Gives the account of an attack the right to read all objects of a group.
pub(super) async fn grant_everywhere(admin: &Cluster, attack: &Attack, group: &str) -> Result<()> {
    let (namespace, name) = (attack.namespace(), attack.name);
    let subject = json!({"kind": "ServiceAccount", "namespace": namespace, "name": name});
    let rules =
        json!([{"apiGroups": [group], "resources": ["*"], "verbs": ["get", "list", "watch"]}]);
    let objects = vec![
        json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": namespace}, "rules": rules}),
        json!({
            "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": namespace}, "subjects": [subject],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": namespace},
        }),
    ];
    local::apply(admin, objects).await
}

/// Creates the objects that an attack needs, except its Processor.
pub(super) async fn prepare(admin: &Cluster, attack: &Attack) -> Result<()> {
    let namespace = attack.namespace();
    tenant(admin, &namespace, attack.name, &attack.all_rights(), attack.may_be).await?;
    if attack.within && !attack.rights.is_empty() {
        grant(admin, attack).await?;
    }
    let fields = attack.kind.fields(attack.name, attack.object_bytes);
    let [group, version, kind] = attack.kind.kind();
    let resource = resource(group, version, kind);
    #[expect(clippy::indexing_slicing, reason = "all of the objects are made here")]
    let object = |number: usize| {
        let mut object = fields.clone();
        object["apiVersion"] = json!(resource.api_version);
        object["kind"] = json!(kind);
        object["metadata"]["name"] = json!(format!("{}-{number}", attack.name));
        object["metadata"]["labels"] = json!({"hostile": attack.name});
        let annotation = |of: usize| (format!("a{of:x}"), Value::from(""));
        let finalizer = |of: usize| Value::from(format!("f.example/{number}-{of}"));
        let metadata = &mut object["metadata"];
        match attack.metadata {
            Metadata::Nothing => {}
            Metadata::Annotations(count) => {
                metadata["annotations"] = (0..count).map(annotation).collect();
            }
            Metadata::Finalizers(count) => {
                metadata["finalizers"] = (0..count).map(finalizer).collect();
            }
        }
        object
    };
    let objects: Api<DynamicObject> =
        Api::namespaced_with(admin.client().clone(), &attack.reconciled(), &resource);
    let make = |number: usize| {
        let (objects, object) = (&objects, object(number));
        async move {
            let object = serde_json::from_value(object)?;
            match objects.create(&PostParams::default(), &object).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
                other => other.map(drop).map_err(anyhow::Error::from),
            }
        }
    };
    stream::iter(0..attack.objects)
        .map(make)
        .buffer_unordered(CONCURRENT_REQUESTS)
        .try_collect::<()>()
        .await
}

/// Deletes the objects that an attack has made, other than `ConfigMap`s of its own namespace.
pub(super) async fn clear(admin: &Cluster, attack: &Attack) -> Result<()> {
    if attack.kind == Flood::ConfigMaps && !attack.within {
        return Ok(());
    }
    let [group, version, kind] = attack.kind.kind();
    let (client, resource) = (admin.client().clone(), resource(group, version, kind));
    let objects: Api<DynamicObject> = Api::namespaced_with(client, &attack.reconciled(), &resource);
    let made = ListParams::default().labels(&format!("hostile={}", attack.name));
    objects.delete_collection(&DeleteParams::default(), &made).await?;
    Ok(())
}

/// Creates the namespace and account of the benign tenant.
pub(super) async fn prepare_benign(admin: &Cluster) -> Result<()> {
    tenant(admin, benign::NAME, benign::NAME, benign::RIGHTS, true).await
}

/// Returns a Processor's conditions, each as `Type Status Reason message`; `None` if the Processor
/// is gone.
pub(super) async fn conditions(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<Vec<String>>> {
    let Some(processor) = processors(client, namespace).get_opt(name).await? else {
        return Ok(None);
    };
    let text = |of: &Value, key: &str| of[key].as_str().unwrap_or_default().to_owned();
    let conditions = processor.data.pointer("/status/conditions").and_then(Value::as_array);
    let said = conditions.into_iter().flatten().map(|condition| {
        ["type", "status", "reason", "message"].map(|key| text(condition, key)).join(" ")
    });
    Ok(Some(said.collect()))
}

/// Returns a Processor's data, including its whole status, as text.
pub(super) async fn status(client: &Client, namespace: &str, name: &str) -> Result<String> {
    let processor = processors(client, namespace).get_opt(name).await?;
    Ok(processor.map(|of| of.data.to_string()).unwrap_or_default())
}

/// Deletes a Processor, unless it is gone already.
pub(super) async fn delete(client: &Client, namespace: &str, name: &str) -> Result<()> {
    match processors(client, namespace).delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => other.map(drop).map_err(anyhow::Error::from),
    }
}

fn processors(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(
        client.clone(),
        namespace,
        &resource("mortise.dev", "v1alpha1", "Processor"),
    )
}

pub(super) fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// Deletes a Processor that no host serves any more, by removing its finalizers.
pub(super) async fn unfinish(admin: &Cluster, namespace: &str, name: &str) -> Result<()> {
    let api = processors(admin.client(), namespace);
    delete(admin.client(), namespace, name).await?;
    if let Some(mut processor) = api.get_opt(name).await? {
        processor.metadata.finalizers = None;
        match api.replace(name, &PostParams::default(), &processor).await {
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
            other => drop(other?),
        }
    }
    Ok(())
}
