//! Processors that write roles: the API server lets their accounts grant no more than they hold.

use mortise::commands::inspect;
use mortise_core::{contract::Kind, reconcile::Report};
use mortise_sdk::{
    Description, GrantedRule, Manifest, Outcome, Reconciler, Selection, Verbs,
    kubernetes::ConfigMap,
};
use serde_json::{Value, json};

use super::{
    ground::RBAC,
    kind,
    stage::{Stage, returns},
};

const NAME: &str = "mesh";
const CLUSTER_ROLE: &str = "rbac.authorization.k8s.io/v1/ClusterRole";
const CLUSTER_ROLE_BINDING: &str = "rbac.authorization.k8s.io/v1/ClusterRoleBinding";

/// Returns the rules of the role that the processor writes.
fn granted_rules() -> Vec<GrantedRule> {
    vec![
        GrantedRule::new(["apps"], ["deployments", "deployments/scale"], ["get", "patch"]),
        GrantedRule::new([""], ["configmaps"], ["*"]).named(["mesh-settings"]),
        GrantedRule::urls(["/mesh/*"], ["get"]),
    ]
}

/// Returns the name of the role: it lives in no namespace.
fn role_name(stage: &Stage) -> String {
    format!("{NAME}-{}", stage.namespace)
}

/// Returns a processor that applies a `ClusterRole` and its binding, and declares these granted
/// rules.
fn description(stage: &Stage, version: &str, grants: Vec<GrantedRule>) -> Description {
    let namespace = &stage.namespace;
    let mine = Selection::of::<ConfigMap>().namespace(namespace).labels(format!("play={NAME}"));
    let of = |kind: &str| {
        let kind = mortise_sdk::Kind::new("rbac.authorization.k8s.io", "v1", kind);
        Selection::new(kind).name(role_name(stage))
    };
    let written = Verbs::CREATE | Verbs::UPDATE;
    Description::new(NAME, version)
        .reconciles(Reconciler::new("objects", mine))
        .writes(of("ClusterRole"), written)
        .writes(of("ClusterRoleBinding"), written)
        .grants(grants)
}

fn script(stage: &Stage) -> Value {
    let name = role_name(stage);
    let rules: Vec<Value> = granted_rules()
        .into_iter()
        .map(|rule| mortise_core::contract::GrantedRule {
            api_groups: rule.api_groups,
            resources: rule.resources,
            resource_names: rule.resource_names,
            verbs: rule.verbs,
            non_resource_urls: rule.non_resource_urls,
        })
        .map(|rule| rule.to_value())
        .collect();
    let role = json!({
        "apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules,
    });
    let binding = json!({
        "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [stage.subject("other")],
    });
    returns(&Outcome::new().apply(Manifest::json(&role)).apply(Manifest::json(&binding)))
}

/// Returns the account and the reconciled object.
fn objects(stage: &Stage) -> Vec<Value> {
    let named = |rest: Value| {
        let mut metadata = stage.named(NAME);
        super::merge(&mut metadata, &rest);
        metadata
    };
    let consents = json!({"annotations": {"mortise.dev/processor": NAME}});
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named(consents)}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": named(json!({"labels": {"play": NAME}}))}),
    ]
}

/// Returns the objects that `mortise inspect --rbac` prints: those of the declared reads and
/// writes, and those of the granted rules. Their names are the test's own: other tests share the
/// control plane.
async fn printed(stage: &Stage) -> (Vec<Value>, Vec<Value>) {
    let description = description(stage, "1.0.0", granted_rules());
    let loaded = stage.load(NAME, &description, &script(stage)).await;
    let account = loaded.settings.account.as_ref();
    let text = inspect::rbac(&loaded.description, Vec::new(), account, None).await.unwrap();
    assert!(text.contains("# Rules that the processor grants in roles: "), "{text}");
    let text = text.replace("name: mortise-mesh", &format!("name: printed-{}", stage.namespace));
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let is_granted =
        |object: &Value| object["metadata"]["name"].as_str().unwrap().ends_with("-grants");
    objects.into_iter().partition(|object| !is_granted(object))
}

fn is_whole(report: &Report) -> bool {
    report.failure.is_none() && report.denied.is_empty()
}

async fn cluster_wide(stage: &Stage, of: &Kind, name: &str) -> Option<Value> {
    let resource = stage.cluster.resolve(of).await.unwrap().unwrap();
    let get = mortise_core::api::Outgoing::get(resource.path_of(None, name));
    stage.cluster.send(&get).await.ok().map(|answer| answer.body)
}

#[tokio::test]
async fn a_role_is_written_with_rules_that_the_account_holds_and_no_others() {
    let Some(stage) = Stage::new("grants", &[NAME.to_owned()]).await else { return };
    let (declared, granted) = printed(&stage).await;
    assert_eq!((declared.len(), granted.len()), (6, 2), "{declared:#?}\n{granted:#?}");
    stage.apply(objects(&stage)).await;
    stage.apply(declared).await;
    stage.puppet(NAME, &description(&stage, "1.0.0", granted_rules()), &script(&stage)).await;
    let is_refused = |report: &Report| {
        let failure = report.failure.as_deref().unwrap_or_default();
        failure.contains("attempting to grant RBAC permissions not currently held")
    };
    stage.last_run(NAME, is_refused).await;
    let (role, binding) = (kind(CLUSTER_ROLE), kind(CLUSTER_ROLE_BINDING));
    let name = role_name(&stage);
    assert_eq!(cluster_wide(&stage, &role, &name).await, None);
    let not_held = stage.status_of(NAME).not_held;
    assert_eq!(not_held.len(), granted_rules().len(), "{not_held:?}");

    // Neither `bind` nor `escalate` is needed.
    stage.apply(granted).await;
    stage.last_run(NAME, is_whole).await;
    let written = cluster_wide(&stage, &role, &name).await.unwrap();
    assert_eq!(written["rules"].as_array().unwrap().len(), granted_rules().len());
    assert!(cluster_wide(&stage, &binding, &name).await.is_some());
    stage.until("it holds them", async || stage.status_of(NAME).not_held.is_empty()).await;
}

#[tokio::test]
async fn a_version_that_grants_more_than_its_account_holds_does_not_replace_the_former() {
    let Some(stage) = Stage::new("more-grants", &[NAME.to_owned()]).await else { return };
    let (declared, _) = printed(&stage).await;
    stage.apply(objects(&stage)).await;
    stage.apply(declared).await;
    stage.until_granted_in_all("clusterroles", NAME).await;
    let processor = |version: &str, grants: Vec<GrantedRule>, script: Value| {
        json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor", "metadata": stage.named(NAME),
            "spec": {
                "module": {"path": "puppet.wasm"}, "serviceAccountName": NAME,
                "config": {"description": description(&stage, version, grants), "script": script},
            },
        })
    };
    let _running = stage.supervise().await;
    stage.apply(vec![processor("1.0.0", Vec::new(), returns(&Outcome::new()))]).await;
    stage.until_said_of(NAME, "Ready", "True", "Runs", "runs").await;

    stage.apply(vec![processor("2.0.0", granted_rules(), script(&stage))]).await;
    let part = "the rules that version 2.0.0 grants";
    stage.until_said_of(NAME, "Loaded", "False", "RightsMissing", part).await;
    let message = stage.message_of(NAME, "Loaded").await;
    let lines: Vec<&str> = message.lines().filter(|line| line.starts_with("- ")).collect();
    assert_eq!(lines.len(), granted_rules().len(), "{message}");
    assert!(message.starts_with("the former version 1.0.0 keeps running; "), "{message}");
    assert_eq!(cluster_wide(&stage, &kind(CLUSTER_ROLE), &role_name(&stage)).await, None);

    // One rule is held by now: the others are told.
    let rules: Vec<Value> = serde_saphyr::from_str(&lines.join("\n")).unwrap();
    let name = format!("{}-given", role_name(&stage));
    let given = |rules: &[Value]| {
        vec![
            json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}),
            json!({
                "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
                "subjects": [stage.subject(NAME)],
            }),
        ]
    };
    stage.apply(given(&rules[..1])).await;
    stage
        .until("the rest is told", async || {
            let message = stage.message_of(NAME, "Loaded").await;
            message.lines().filter(|line| line.starts_with("- ")).eq(lines[1..].iter().copied())
        })
        .await;

    stage.apply(given(&rules)).await;
    stage.until_said_of(NAME, "Loaded", "True", "Loaded", "2.0.0").await;
    stage
        .until("the role is written", async || {
            cluster_wide(&stage, &kind(CLUSTER_ROLE), &role_name(&stage)).await.is_some()
        })
        .await;
    let requests = stage.requests().await;
    assert_eq!(stage.beyond_installed(&requests), Vec::<String>::new());
}
