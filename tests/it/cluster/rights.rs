//! The API server decides what an account may do, in every form of RBAC and while roles change.

use std::time::Duration;

use mortise_core::reconcile::Report;
use mortise_sdk::{
    Description, ObjectRef, Reconciler, Selection,
    kubernetes::{ConfigMap, Secret},
};
use serde_json::{Value, json};

use super::{
    answers,
    ground::{RBAC, Rights},
    kind,
    stage::Stage,
};

/// The time after which a revoked right has no effect any more.
const REVOCATION_TIMEOUT: Duration = Duration::from_secs(5);
/// The rights that every account here has in addition.
const RECONCILES: Rights<'static> = &[("configmaps", "get list watch"), ("events", "create patch")];
const READ: &str = "get list watch";

/// The answer to a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    Given,
    Denied,
    /// No answer yet: the store that would answer is being filled.
    Awaited,
}

use Read::{Denied, Given};

fn outcome_of(answer: &Value) -> Read {
    let error = |case: &str| answer.pointer(&format!("/Err/{case}")).is_some();
    if answer.get("Ok").is_some() {
        Given
    } else if error("Denied") {
        Denied
    } else {
        assert!(error("Unavailable"), "{answer}");
        Read::Awaited
    }
}

fn read_by(report: &Report) -> Vec<Read> {
    answers(report).iter().map(outcome_of).collect()
}

impl Stage {
    /// Adds a Processor that gets the Secrets `one` and `two` and lists all, for the `ConfigMap` of
    /// its name.
    async fn reader(&self, name: &str) {
        let secrets = Selection::of::<Secret>().namespace(&self.namespace);
        let mine =
            Selection::of::<ConfigMap>().namespace(&self.namespace).labels(format!("play={name}"));
        let description = Description::new("reader", "1.0.0")
            .reconciles(Reconciler::new("objects", mine))
            .reads(secrets.clone());
        let get = |name: &str| json!({"get": {"ref": ObjectRef::of::<Secret>(Some(&self.namespace), name)}});
        let reads = json!([get("one"), get("two"), {"list": {"of": secrets}}]);
        let mut metadata = self.named(name);
        super::merge(&mut metadata, &json!({"labels": {"play": name}}));
        self.apply(vec![json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})])
            .await;
        self.puppet(name, &description, &json!({"reads": reads})).await;
    }

    async fn secrets(&self) {
        let secret = |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": self.named(name)});
        self.apply(vec![secret("one"), secret("two")]).await;
    }

    /// Changes the object that a processor reconciles, as another user.
    async fn touch(&self, processor: &str) {
        self.forget_runs(processor);
        let mut metadata = self.named(processor);
        let change = json!({"labels": {"play": processor}, "annotations": {"touched": "yes"}});
        super::merge(&mut metadata, &change);
        self.apply(vec![json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})])
            .await;
    }

    /// Waits until a processor's reads have these answers.
    async fn answered(&self, processor: &str, expected: [Read; 3]) {
        self.last_run(processor, |report| read_by(report) == expected).await;
    }

    fn watches_secrets(&self) -> bool {
        self.host.watches().iter().any(|watch| watch.kind == kind("v1/Secret"))
    }
}

fn accounts(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[tokio::test]
async fn revoked_rights_are_denied_within_five_seconds() {
    let names = accounts(&["first", "second"]);
    let Some(stage) = Stage::new("taken-away", &names).await else { return };
    stage.secrets().await;
    for name in &names {
        stage.account(name, &[RECONCILES, &[("secrets", READ)]].concat()).await;
    }
    stage.until_granted(&names).await;
    for name in &names {
        stage.reader(name).await;
    }
    for name in &names {
        stage.answered(name, [Given; 3]).await;
    }
    assert!(stage.watches_secrets());

    stage.grant("first", RECONCILES).await;
    let begun = tokio::time::Instant::now();
    stage.answered("first", [Denied; 3]).await;
    assert!(begun.elapsed() < REVOCATION_TIMEOUT, "{:?}", begun.elapsed());
    assert!(stage.watches_secrets(), "the second may still read");
    stage.touch("second").await;
    stage.answered("second", [Given; 3]).await;

    stage.grant("second", RECONCILES).await;
    let begun = tokio::time::Instant::now();
    stage.answered("second", [Denied; 3]).await;
    stage.until("the store goes", async || !stage.watches_secrets()).await;
    assert!(begun.elapsed() < REVOCATION_TIMEOUT, "{:?}", begun.elapsed());
    assert_eq!(
        stage.metric(r#"mortise_store_objects{kind="Secret""#).await,
        None,
        "nothing is kept"
    );

    stage.grant("first", &[RECONCILES, &[("secrets", READ)]].concat()).await;
    stage.answered("first", [Given; 3]).await;
    assert_eq!(stage.status_of("first").denied, Vec::<String>::new());
}

#[tokio::test]
async fn rules_hold_as_the_api_server_reads_them() {
    let names = accounts(&["wildcard", "by-name", "nobody"]);
    let Some(stage) = Stage::new("forms", &names).await else { return };
    stage.secrets().await;
    for name in &names {
        stage.account(name, RECONCILES).await;
    }
    let role = |name: &str, rule: Value| json!({"apiVersion": RBAC, "kind": "Role", "metadata": stage.named(name), "rules": [rule]});
    let any = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]});
    let one = json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one"], "verbs": ["get"]});
    stage
        .apply(vec![
            role("any", any),
            stage.binding("any", "Role", "any", &stage.subject("wildcard")),
            role("one", one),
            stage.binding("one", "Role", "one", &stage.subject("by-name")),
        ])
        .await;
    let cases =
        [("wildcard", [Given; 3]), ("by-name", [Given, Denied, Denied]), ("nobody", [Denied; 3])];
    for (name, expected) in cases {
        stage.reader(name).await;
        stage.answered(name, expected).await;
    }
}

#[tokio::test]
async fn an_aggregated_role_grants_rights_only_while_they_are_aggregated() {
    let names = accounts(&["aggregated"]);
    let Some(stage) = Stage::new("aggregated", &names).await else { return };
    stage.secrets().await;
    stage.account("aggregated", RECONCILES).await;
    let (whole, part) = (format!("whole-{}", stage.namespace), format!("part-{}", stage.namespace));
    let labels = json!({"aggregate-to": stage.namespace});
    stage
        .apply(vec![
            json!({
                "apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": whole},
                "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": labels}]},
            }),
            json!({
                "apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": part, "labels": labels},
                "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"]}],
            }),
            stage.binding("whole", "ClusterRole", &whole, &stage.subject("aggregated")),
        ])
        .await;
    stage.reader("aggregated").await;
    stage.answered("aggregated", [Given; 3]).await;
    stage.delete(&kind(&format!("{RBAC}/ClusterRole")), &part).await;
    stage.answered("aggregated", [Denied; 3]).await;
}

#[tokio::test]
async fn a_binding_to_the_accounts_of_a_namespace_holds_for_each() {
    let names = accounts(&["one-of-many"]);
    let Some(stage) = Stage::new("group", &names).await else { return };
    stage.secrets().await;
    stage.account("one-of-many", RECONCILES).await;
    stage.reader("one-of-many").await;
    stage.answered("one-of-many", [Denied; 3]).await;
    let group = json!({
        "apiGroup": "rbac.authorization.k8s.io", "kind": "Group",
        "name": format!("system:serviceaccounts:{}", stage.namespace),
    });
    let rules =
        json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"]}]);
    stage
        .apply(vec![
            json!({"apiVersion": RBAC, "kind": "Role", "metadata": stage.named("all"), "rules": rules}),
            stage.binding("all", "Role", "all", &group),
        ])
        .await;
    stage.answered("one-of-many", [Given; 3]).await;
    stage.delete(&kind(&format!("{RBAC}/RoleBinding")), "all").await;
    stage.answered("one-of-many", [Denied; 3]).await;
}
