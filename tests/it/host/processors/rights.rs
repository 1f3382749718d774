//! Processors whose accounts lack declared rights, and the access reviews for them.

use mortise_embedded_api::Verb;
use serde_json::json;

use super::*;

const RBAC: &str = "rbac.authorization.k8s.io";
/// The rights that `puppet()` needs in all namespaces.
const NEEDED: [(&str, &[&str]); 2] = [
    ("configmaps", &["get", "list", "watch", "create", "patch", "delete"]),
    ("events", &["create", "patch"]),
];

impl Place {
    /// Creates an account that consents, with the rights of the `ClusterRole` of its name.
    pub(super) async fn limited(&self, name: &str) {
        let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE});
        let consents = json!({"metadata": {"labels": {"mortise.dev/processor": name}}});
        self.apply(&[
            object("v1/ServiceAccount", name, &consents),
            json!({
                "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}, "subjects": [subject],
            }),
        ])
        .await;
    }

    /// Replaces the rights of an account.
    pub(super) async fn may(&self, name: &str, rules: &[(&str, Vec<&str>)]) {
        let rules = rules.iter().map(
            |(resource, verbs)| json!({"apiGroups": [""], "resources": [resource], "verbs": verbs}),
        );
        let rules: Vec<Value> = rules.collect();
        self.apply(&[json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules,
        })])
        .await;
    }

    /// Waits until the condition Ready has this reason and message.
    pub(super) async fn until_ready_says(&self, name: &str, reason: &str, says: &str) -> String {
        let is_it = |processor: &Processor| {
            condition(processor, "Ready")
                .is_some_and(|ready| ready.reason == reason && ready.message.contains(says))
        };
        let found = self.until(name, &format!("{reason}: {says}"), is_it).await;
        condition(&found, "Ready").unwrap().message.clone()
    }

    /// Returns the number of access reviews.
    fn reviews(&self) -> u64 {
        let requests = self.api.requests();
        let reviews = requests
            .iter()
            .filter(|(of, _)| of.verb == Verb::Create && of.resource == "subjectaccessreviews");
        reviews.map(|(_, count)| count).sum()
    }
}

/// Returns the needed rights without one verb.
fn without<'a>(taken: Option<(&str, &str)>) -> Vec<(&'a str, Vec<&'a str>)> {
    let left = |resource: &str, verbs: &[&'static str]| -> Vec<&'static str> {
        verbs.iter().copied().filter(|verb| Some((resource, *verb)) != taken).collect()
    };
    NEEDED.iter().map(|(resource, verbs)| (*resource, left(resource, verbs))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_single_verb_that_the_account_lacks_is_named_until_it_is_given() {
    let place = Place::new().await;
    place.limited("limited").await;
    place.may("limited", &without(None)).await;
    place.puppet("limited", &puppet(), &json!({"serviceAccountName": "limited"})).await;
    place.until_ready_says("limited", "Runs", "runs").await;
    for (resource, verbs) in NEEDED {
        for verb in verbs {
            place.may("limited", &without(Some((resource, verb)))).await;
            let lacks = format!("may not {verb} {resource} in all namespaces");
            let said = place.until_ready_says("limited", "RightsMissing", &lacks).await;
            assert_eq!(
                said.matches("may not ").count(),
                1 + usize::from(said.contains("nothing is reconciled")),
                "{said}"
            );
            place.may("limited", &without(None)).await;
            place.until_ready_says("limited", "Runs", "runs").await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rights_in_one_namespace_do_not_suffice_to_reconcile_all_namespaces() {
    let place = Place::new().await;
    place.limited("limited").await;
    let (role, account) =
        ("in-a", json!({"kind": "ServiceAccount", "name": "limited", "namespace": NAMESPACE}));
    let rules = NEEDED.map(
        |(resource, verbs)| json!({"apiGroups": [""], "resources": [resource], "verbs": verbs}),
    );
    let metadata = json!({"name": role, "namespace": NAMESPACE});
    place
        .apply(&[
            json!({"apiVersion": format!("{RBAC}/v1"), "kind": "Role", "metadata": metadata, "rules": rules}),
            json!({
                "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding", "metadata": metadata,
                "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": role}, "subjects": [account],
            }),
            scripted("a", &applies(&[made("b", &json!({}))])),
        ])
        .await;
    place.puppet("limited", &puppet(), &json!({"serviceAccountName": "limited"})).await;
    let (status, message) = place.reason("limited", "Ready", "RightsMissing").await;
    assert_eq!(status, "False");
    assert!(message.contains("may not list configmaps in all namespaces"), "{message}");
    assert!(message.contains("nothing is reconciled of ConfigMap v1"), "{message}");
    assert_eq!(place.reason("limited", "Synced", "NotWatched").await.0, "Unknown");

    // The usual remedy: the processor declares the namespace in which its account has rights.
    let mut of_namespace = selection(CONFIG_MAP, "play=yes");
    merge(&mut of_namespace, &json!({"namespace": NAMESPACE}));
    let mut writes = selection(CONFIG_MAP, "");
    merge(&mut writes, &json!({"namespace": NAMESPACE}));
    let play = Play::new("puppet")
        .reconciles("objects", &of_namespace)
        .writes(&writes, &["create", "update", "delete"]);
    place.puppet("limited", &play, &json!({"serviceAccountName": "limited"})).await;
    place.until_object(CONFIG_MAP, "b", "it is reconciled", |found| found.is_some()).await;
    place.until_ready_says("limited", "Runs", "runs").await;
}

#[tokio::test(start_paused = true)]
async fn at_a_start_each_account_is_asked_for_once() {
    const PROCESSORS: u64 = 12;
    let mut place = Place::new().await;
    for number in 0..PROCESSORS {
        let name = format!("p{number}");
        place.limited(&name).await;
        place.may(&name, &without(None)).await;
        let play = Play::new(&name)
            .reconciles("objects", &selection(CONFIG_MAP, &format!("play={name}")))
            .writes(&selection(CONFIG_MAP, ""), &["create", "update", "delete"]);
        place.puppet(&name, &play, &json!({"serviceAccountName": name})).await;
    }
    for number in 0..PROCESSORS {
        place.until_ready_says(&format!("p{number}"), "Runs", "runs").await;
    }
    // Only a new host, while nothing changes, shows the number of reviews at a start.
    place.tasks.shutdown().await;
    place.api.reset_requests();
    place.restart().await;
    let needed: u64 = NEEDED.iter().map(|(_, verbs)| verbs.len() as u64).sum();
    let all_run = || place.host.status().len() as u64 == PROCESSORS;
    let mut activity = place.host.activity();
    while !all_run() {
        activity.changed().await.unwrap();
    }
    // After the effects of the first lists, and before old answers are renewed.
    tokio::time::sleep(std::time::Duration::from_secs(20)).await;
    let asked = place.reviews();
    let least = PROCESSORS * needed;
    assert!((least..least * 3 / 2).contains(&asked), "{asked} for {PROCESSORS} times {needed}");
}

#[tokio::test(start_paused = true)]
async fn an_account_that_the_host_may_not_act_as_is_neither_run_nor_read_for() {
    let place = Place::new().await;
    // The store of the granted Processor's watch is shared by all.
    place.apply(&[scripted("a", &applies(&[made("b", &json!({}))]))]).await;
    place.puppet("granted", &puppet(), &json!({})).await;
    place.reason("granted", "Synced", "Synced").await;
    place.tap.lets_act_as("sly", false);
    place.account("sly", &json!({"annotations": {"mortise.dev/processor": "*"}})).await;
    let leak = json!({"returns": {"failure": {
        "message": "leaked", "status": null, "events": [], "retry": "OnChange",
    }}});
    let sly = Play::new("sly").reconciles("objects", &selection(CONFIG_MAP, "play=yes"));
    let as_sly = json!({"serviceAccountName": "sly"});
    place.puppet("sly", &sly.clone().script(leak), &as_sly).await;
    for kind in ["Loaded", "Ready"] {
        let (status, message) = place.reason("sly", kind, "AccountNotGranted").await;
        assert_eq!(status, "False");
        let lacks = "resources [serviceaccounts], resourceNames [sly], verbs [impersonate]";
        assert!(message.contains("ServiceAccount `sly`") && message.contains(lacks), "{message}");
    }
    place.until_idle().await;
    let status = place.processors().get("sly").await.unwrap().status.unwrap();
    assert_eq!((status.last_failure, status.module), (None, None), "nothing of it ran");
    assert_eq!(place.tap.as_account("sly"), Vec::<String>::new(), "nothing was asked as it");

    place.tap.lets_act_as("sly", true);
    // A change of roles, which makes the host check again.
    place.may("role-of-the-host", &[]).await;
    place.reason("sly", "Ready", "Runs").await;

    place.tap.lets_act_as("sly", false);
    let revoked = tokio::time::Instant::now();
    place.may("role-of-the-host", &[("pods", vec!["get"])]).await;
    place.reason("sly", "Ready", "AccountNotGranted").await;
    assert!(place.host.status_of(&format!("{NAMESPACE}/sly")).is_none(), "it is taken out");
    assert!(revoked.elapsed() < std::time::Duration::from_secs(5), "{:?}", revoked.elapsed());
    place.reason("granted", "Ready", "Runs").await;
}

#[tokio::test(start_paused = true)]
async fn former_access_reviews_count_while_new_ones_are_not_answered() {
    let place = Place::new().await;
    place.puppet("granted", &puppet(), &json!({})).await;
    place.reason("granted", "Ready", "Runs").await;
    place.tap.answers_no_more_of("selfsubjectaccessreviews", true);
    place.account("late", &json!({"annotations": {"mortise.dev/processor": "*"}})).await;
    place.puppet("late", &puppet(), &json!({"serviceAccountName": "late"})).await;
    let (_, message) = place.reason("late", "Ready", "AccountNotGranted").await;
    assert!(message.contains("does not say whether this host may act"), "{message}");
    assert_eq!(place.runs("late"), 0);
    assert!(place.host.status_of(&format!("{NAMESPACE}/granted")).is_some(), "it goes on");
    place.tap.answers_no_more_of("selfsubjectaccessreviews", false);
    place.reason("late", "Ready", "Runs").await;
}
