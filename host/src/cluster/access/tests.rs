use std::{collections::BTreeSet, convert::Infallible, sync::Arc};

use http::{Method, Request, Response};
use kube::client::Body;
use mortise_core::{
    contract::{GrantedRule, Kind},
    fixture::{description, fields, v1, whole, write_rule},
    grant::rights::{Permit, Question, ReadTarget},
    store::Scope,
};
use mortise_embedded_api::{EmbeddedApi, Options};
use serde_json::json;
use tower::ServiceExt as _;

use super::*;

/// Answers reviews from a table, and all other requests from the API in memory.
#[derive(Clone, Default)]
struct Judge(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    /// Rights as `verb resource[.group]`, followed by `namespace` or `namespace/name` if limited to
    /// it.
    allowed: Vec<&'static str>,
    reviews: Vec<serde_json::Value>,
    /// The answer to a review of rules; `None`: the account may not ask.
    rules: Option<serde_json::Value>,
    is_away: bool,
    /// The time that a review takes.
    takes: Duration,
    /// The paths of other requests.
    paths: Vec<String>,
}

/// A case's name, the rights, the read, and the permit or the missing right.
type Case =
    (&'static str, &'static [&'static str], ReadTarget<'static>, Result<Permit, &'static str>);

const ALL_OF_PODS: [&str; 3] = ["get pods", "list pods", "watch pods"];

// === impl Judge ===

impl Judge {
    fn allows(&self, allowed: &[&'static str]) {
        self.0.lock().allowed = allowed.to_vec();
    }

    fn count(&self) -> usize {
        self.0.lock().reviews.len()
    }

    fn cluster(&self, api: &EmbeddedApi) -> Cluster {
        let (judge, router) = (self.clone(), api.router());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (judge, router) = (judge.clone(), router.clone());
            async move {
                if request.uri().path() == "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews" {
                    let user = &request.headers()["impersonate-user"];
                    assert_eq!(user.to_str().unwrap(), account().user(), "the account itself asks");
                    return Ok(judge.rules());
                }
                let of_account = request.headers().contains_key("impersonate-user");
                match request.uri().path() {
                    "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {}
                    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" if of_account => {}
                    path => {
                        judge.0.lock().paths.push(path.to_owned());
                        return router.oneshot(request).await;
                    }
                }
                assert_eq!(request.method(), Method::POST);
                let takes = judge.0.lock().takes;
                sleep(takes).await;
                let body = request.into_body().collect_bytes().await.unwrap();
                Ok::<_, Infallible>(judge.review(serde_json::from_slice(&body).unwrap()))
            }
        });
        Cluster::new(kube::Client::new(service, "default"))
    }

    fn rules(&self) -> Response<axum::body::Body> {
        let table = self.0.lock();
        match (&table.rules, table.is_away) {
            (_, true) => Response::builder().status(422).body(axum::body::Body::empty()).unwrap(),
            (None, _) => Response::builder().status(403).body(axum::body::Body::empty()).unwrap(),
            (Some(status), _) => {
                let answer = json!({"kind": "SelfSubjectRulesReview", "status": status});
                Response::builder().status(201).body(answer.to_string().into()).unwrap()
            }
        }
    }

    fn review(&self, mut review: serde_json::Value) -> Response<axum::body::Body> {
        let mut table = self.0.lock();
        if table.is_away {
            return Response::builder().status(403).body(axum::body::Body::empty()).unwrap();
        }
        let of = &review["spec"]["resourceAttributes"];
        let text = |key: &str| of[key].as_str().unwrap_or_default();
        let below = |key: &str, before: &str| match text(key) {
            "" => String::new(),
            part => format!("{before}{part}"),
        };
        let what = format!(
            "{} {}{}{}",
            text("verb"),
            text("resource"),
            below("subresource", "/"),
            below("group", ".")
        );
        let place = [
            format!("{what} {}/{}", text("namespace"), text("name")),
            format!("{what} {}", text("namespace")),
            what,
        ];
        let allowed =
            table.allowed.iter().any(|allowed| place.iter().any(|place| place == allowed));
        review["status"] = json!({"allowed": allowed});
        table.reviews.push(review.clone());
        Response::builder().status(201).body(review.to_string().into()).unwrap()
    }
}

fn account() -> Account {
    "shop/painter".parse().unwrap()
}

fn fresh() -> Fresh {
    Fresh::until(Instant::now() + MAX_RENEWAL_TIME)
}

fn scene() -> (EmbeddedApi, Judge, Access) {
    let (api, judge) = (EmbeddedApi::new(Options::default()), Judge::default());
    let access = Access::new(&judge.cluster(&api), None);
    (api, judge, access)
}

/// Returns the description of a processor that reconciles config maps, reads pods and writes
/// services.
fn painter() -> Arc<Description> {
    let mut description =
        description(whole(v1("", "ConfigMap")), vec![fields(whole(v1("", "Pod")), &["spec"])]);
    let verbs = mortise_core::contract::Verbs::UPDATE;
    description.writes.push(write_rule(whole(v1("", "Service")), verbs, &[]));
    Arc::new(description)
}

fn pods() -> Kind {
    v1("", "Pod")
}

/// A host of one namespace has no right to ask about others.
#[tokio::test]
async fn with_rights_in_one_namespace_the_account_itself_asks_and_only_that_namespace_is_watched() {
    let (api, judge) = (EmbeddedApi::new(Options::default()), Judge::default());
    let access = Access::new(&judge.cluster(&api), Some("shop".to_owned()));
    judge.allows(&ALL_OF_PODS);
    let rights = access.of(&account(), &painter());
    rights.ask_needed().await;
    assert!(!rights.missing().iter().any(|missing| missing.ends_with("pods in all namespaces")));
    assert!(rights.missing().iter().any(|missing| missing.contains("services")), "{rights:?}");
    let reviews = judge.0.lock().reviews.clone();
    assert!(!reviews.is_empty());
    for review in reviews {
        assert_eq!(review["kind"], "SelfSubjectAccessReview");
        let spec: Vec<&String> = review["spec"].as_object().unwrap().keys().collect();
        assert_eq!(spec, ["resourceAttributes"]);
    }
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let expected = BTreeSet::from([
        format!("{rbac}/clusterrolebindings"),
        format!("{rbac}/clusterroles"),
        format!("{rbac}/namespaces/shop/rolebindings"),
        format!("{rbac}/namespaces/shop/roles"),
        "/api/v1/namespaces/shop/serviceaccounts".to_owned(),
    ]);
    judge.0.lock().paths.clear();
    let watched = async || {
        let paths: BTreeSet<String> = judge.0.lock().paths.iter().cloned().collect();
        paths.len() >= expected.len() && paths == expected
    };
    let watching = async {
        tokio::select! {
            () = access.watch_sources() => panic!("the watch has ended"),
            () = async { while !watched().await { tokio::task::yield_now().await } } => {}
        }
    };
    let within = tokio::time::timeout(Duration::from_secs(30), watching).await;
    within.unwrap_or_else(|_| panic!("{:#?}", judge.0.lock().paths));
}

#[tokio::test]
async fn the_account_is_named_with_the_groups_that_it_has_by_itself() {
    let (_api, judge, access) = scene();
    let rights = access.of(&account(), &painter());
    rights.permit(&pods(), ReadTarget::list(Some("a"), None)).await.unwrap();
    let spec = judge.0.lock().reviews[0]["spec"].clone();
    assert_eq!(spec["user"], "system:serviceaccount:shop:painter");
    let groups = ["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"];
    assert_eq!(spec["groups"], json!(groups));
}

#[tokio::test]
async fn a_read_is_answered_as_far_as_the_rights_go() {
    let denied = |text: &'static str| Err(text);
    let object = ReadTarget::object(Some("a"), "x");
    let cases: [Case; 11] = [
        ("get, all", &ALL_OF_PODS, object, Ok(Permit::Stored)),
        (
            "get, in the namespace",
            &["get pods a", "list pods a", "watch pods a"],
            object,
            Ok(Permit::Stored),
        ),
        (
            "get, of the one",
            &["get pods a/x", "list pods a/x", "watch pods a/x"],
            object,
            Ok(Permit::Stored),
        ),
        (
            "get, from several places",
            &["get pods a/x", "list pods", "watch pods a"],
            object,
            Ok(Permit::Stored),
        ),
        ("get only", &["get pods a/x"], object, Ok(Permit::Live)),
        ("get, not watched", &["get pods", "list pods"], object, Ok(Permit::Live)),
        ("no get", &["list pods", "watch pods"], object, denied("get pods `a/x`")),
        (
            "get elsewhere",
            &["get pods b", "list pods", "watch pods"],
            object,
            denied("get pods `a/x`"),
        ),
        (
            "list",
            &["list pods a", "watch pods a"],
            ReadTarget::list(Some("a"), None),
            Ok(Permit::Stored),
        ),
        (
            "wider list",
            &["list pods a", "watch pods a"],
            ReadTarget::list(None, None),
            denied("list pods in all namespaces"),
        ),
        (
            "reconciled, not watched",
            &["get pods", "list pods"],
            ReadTarget::reconciled(Some("a"), "x"),
            denied("watch pods `a/x`"),
        ),
    ];
    for (case, allowed, place, expected) in cases {
        let (_api, judge, access) = scene();
        judge.allows(allowed);
        let rights = access.of(&account(), &painter());
        let permit = match rights.permit(&pods(), place).await.unwrap() {
            Permit::Denied(question) => Err(question.to_string()),
            permit => Ok(permit),
        };
        assert_eq!(permit, expected.map_err(str::to_owned), "{case}");
        let asked = judge.count();
        assert!(rights.known(&pods(), place).is_some(), "{case}");
        rights.permit(&pods(), place).await.unwrap();
        assert_eq!(judge.count(), asked, "{case}: the answer is kept");
    }
}

#[tokio::test]
async fn rights_to_all_objects_of_a_kind_are_reviewed_once() {
    let (_api, judge, access) = scene();
    judge.allows(&ALL_OF_PODS);
    let rights = access.of(&account(), &painter());
    rights.permit(&pods(), ReadTarget::object(Some("a"), "x")).await.unwrap();
    assert_eq!(judge.count(), 3, "get, list and watch, of all");
    for place in [
        ReadTarget::object(Some("b"), "y"),
        ReadTarget::list(None, None),
        ReadTarget::list(Some("c"), None),
    ] {
        assert_eq!(rights.known(&pods(), place), Some(Permit::Stored));
    }
    assert_eq!(judge.count(), 3);
    let unserved =
        rights.permit(&v1("x.dev", "Thing"), ReadTarget::list(None, None)).await.unwrap();
    assert_eq!((unserved, judge.count()), (Permit::Unserved, 3));
}

#[tokio::test]
async fn a_read_is_not_answered_while_the_api_server_does_not_say_whether_it_may_be() {
    let (_api, judge, access) = scene();
    judge.allows(&ALL_OF_PODS);
    judge.0.lock().is_away = true;
    let rights = access.of(&account(), &painter());
    let error = rights.permit(&pods(), ReadTarget::list(Some("a"), None)).await.unwrap_err();
    assert_eq!(error, "could not ask whether `shop/painter` may list pods in namespace `a`");
    judge.0.lock().is_away = false;
    assert_eq!(
        rights.permit(&pods(), ReadTarget::list(Some("a"), None)).await.unwrap(),
        Permit::Stored
    );
}

#[tokio::test]
async fn declared_rights_that_are_denied_are_reported_as_missing() {
    let (_api, judge, access) = scene();
    judge.allows(&["get pods", "list pods", "watch pods", "patch services", "get services"]);
    let rights = access.of(&account(), &painter());
    rights.ask_needed().await;
    let missing = rights.missing();
    let says = |text: &str| missing.iter().any(|line| line == text);
    for text in [
        "may not watch configmaps in all namespaces",
        "may not create events in all namespaces",
        "may not watch services in all namespaces",
    ] {
        assert!(says(text), "{text}: {missing:#?}");
    }
    assert!(
        !missing.iter().any(|line| line.contains("pods") || line.contains("patch services")),
        "{missing:#?}"
    );
    let before = rights.digest();
    judge.0.lock().allowed.push("create events");
    assert!(rights.renew(Stale::ALL, &mut fresh()).await.changed);
    assert_ne!(rights.digest(), before);
    assert!(!rights.missing().iter().any(|line| line.contains("create events")));
}

/// A case's name, the account's own rules, the rights that reviews allow, the rules not held.
type GrantCase<'a> = (&'a str, Option<serde_json::Value>, &'a [&'static str], Vec<GrantedRule>);

/// Returns a description that grants three rules in roles.
fn granting() -> Arc<Description> {
    let rule = |value: &serde_json::Value| GrantedRule::from_value(value);
    let grants = vec![
        rule(
            &json!({"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "patch"]}),
        ),
        rule(&json!({"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]})),
        rule(&json!({"apiGroups": [""], "resources": ["*"], "verbs": ["list"]})),
    ];
    Arc::new(Description { grants, ..Description::clone(&painter()) })
}

#[tokio::test]
async fn granted_rules_are_compared_with_those_that_the_account_holds() {
    let (_api, judge, access) = scene();
    let description = granting();
    let [deployments, log, all] = &description.grants[..] else { panic!("three rules") };
    let held = |rules: &[&GrantedRule], is_incomplete: bool| {
        let rules: Vec<_> = rules.iter().map(|rule| rule.to_value()).collect();
        Some(json!({"resourceRules": rules, "nonResourceRules": [], "incomplete": is_incomplete}))
    };
    let rights = access.of(&account(), &description);
    let cases: [GrantCase<'_>; 5] = [
        ("all", held(&[deployments, log, all], false), &[], vec![]),
        ("one is not", held(&[deployments, all], false), &["get pods/log"], vec![log.clone()]),
        ("others are asked for", held(&[deployments, all], true), &["get pods/log"], vec![]),
        (
            "a verb and a wildcard are not",
            held(&[log], true),
            &["get deployments.apps", "list pods"],
            vec![deployments.clone(), all.clone()],
        ),
        (
            "the account may not ask",
            None,
            &["get deployments.apps", "patch deployments.apps", "get pods/log", "list *"],
            vec![],
        ),
    ];
    for (case, rules, allowed, expected) in cases {
        judge.0.lock().rules = rules;
        judge.allows(allowed);
        rights.renew(Stale::default(), &mut fresh()).await;
        assert_eq!(rights.not_held(), expected, "{case}");
    }
    judge.0.lock().rules = held(&[log], false);
    assert!(rights.renew(Stale::default(), &mut fresh()).await.changed);
    let before = rights.not_held();
    assert_eq!(before.len(), 2);
    judge.0.lock().is_away = true;
    let renewed = rights.renew(Stale::default(), &mut fresh()).await;
    assert!(renewed.unanswered && !renewed.changed, "no answer is no answer: {renewed:?}");
    assert_eq!(rights.not_held(), before);
}

/// Returns the rights changed by the first renewal that changes any, or none after `within`
/// milliseconds.
async fn renewed(access: &Access, within: u64) -> Vec<Arc<Rights>> {
    let mut renewals = access.renewals();
    let next = async {
        loop {
            let changed = renewals.next().await;
            if !changed.is_empty() {
                return changed;
            }
        }
    };
    tokio::select! {
        () = access.watch_sources() => panic!("the watch has ended"),
        changed = tokio::time::timeout(Duration::from_millis(within), next) => changed.unwrap_or_default(),
    }
}

#[tokio::test(start_paused = true)]
async fn answers_are_renewed_within_seconds_of_a_change_of_roles() {
    let (api, judge, access) = scene();
    judge.allows(&ALL_OF_PODS);
    let rights = access.of(&account(), &painter());
    rights.ask_needed().await;
    rights.permit(&pods(), ReadTarget::object(Some("a"), "x")).await.unwrap();
    assert!(renewed(&access, 30_000).await.is_empty(), "nothing has changed");
    let sources = [
        ("Role", "default"),
        ("ClusterRole", ""),
        ("RoleBinding", "default"),
        ("ClusterRoleBinding", ""),
    ];
    for (turn, (kind, namespace)) in sources.into_iter().enumerate() {
        let changed_later = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            judge.allows(if turn % 2 == 0 { &[] } else { &ALL_OF_PODS });
            let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"});
            api.load(
                json!({
                    "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "rules": [], "roleRef": role,
                    "metadata": {"name": "r", "namespace": namespace},
                }),
                true,
            )
            .unwrap();
        };
        let ((), changed) = tokio::join!(changed_later, renewed(&access, 8_000));
        assert_eq!(changed.len(), 1, "{kind}");
    }
}

/// Objects that tenants may make large and numerous are in the same lists as those of others.
#[tokio::test(start_paused = true)]
async fn a_flood_of_large_roles_and_bindings_delays_no_renewal() {
    let (api, judge, access) = scene();
    judge.allows(&ALL_OF_PODS);
    let rights = access.of(&account(), &painter());
    rights.ask_needed().await;
    rights.permit(&pods(), ReadTarget::object(Some("a"), "x")).await.unwrap();
    let annotations = json!({"a": "x".repeat(240_000)});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"});
    let kinds = [
        ("rbac.authorization.k8s.io/v1", "Role"),
        ("rbac.authorization.k8s.io/v1", "RoleBinding"),
        ("v1", "ServiceAccount"),
    ];
    for (version, kind) in kinds {
        for number in 0..80 {
            api.load(
                json!({
                    "apiVersion": version, "kind": kind, "rules": [], "roleRef": role,
                    "metadata": {"name": format!("a-{number}"), "namespace": "default", "annotations": annotations},
                }),
                true,
            )
            .unwrap();
        }
        let changed_later = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            judge.allows(if kind == "RoleBinding" { &ALL_OF_PODS } else { &[] });
            let revoked = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "roleRef": role,
                "metadata": {"name": "z", "namespace": "default"},
            });
            api.load(revoked, true).unwrap();
        };
        let ((), changed) = tokio::join!(changed_later, renewed(&access, 8_000));
        assert_eq!(changed.len(), 1, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn answers_are_renewed_after_a_minute_without_any_event() {
    let (_api, judge, access) = scene();
    judge.allows(&ALL_OF_PODS);
    let rights = access.of(&account(), &painter());
    rights.permit(&pods(), ReadTarget::object(Some("a"), "x")).await.unwrap();
    rights.ask_needed().await;
    let mut renewals = access.renewals();
    judge.allows(&[]);
    let begun = Instant::now();
    assert_eq!(renewals.next().await.len(), 1);
    assert_eq!(begun.elapsed(), MAX_ANSWER_AGE);
    let place = ReadTarget::object(Some("a"), "x");
    assert_eq!(rights.known(&pods(), place), None, "of all no more: it is asked of this one");
    let denied = rights.permit(&pods(), place).await.unwrap();
    assert!(matches!(denied, Permit::Denied(_)), "{denied:?}");
}

#[tokio::test(start_paused = true)]
async fn the_questions_of_one_namespace_do_not_delay_those_of_others() {
    let (_api, judge, access) = scene();
    let flood = access.of(&"evil/flood".parse().unwrap(), &painter());
    for at in 0..1000 {
        let namespace = format!("n{at}");
        let place = ReadTarget::object(Some(&namespace), "x");
        flood.permit(&pods(), place).await.unwrap();
    }
    let rights = access.of(&account(), &painter());
    rights.ask_needed().await;
    judge.allows(&ALL_OF_PODS);
    judge.0.lock().takes = Duration::from_millis(100);
    let (mut renewals, asked, begun) = (access.renewals(), judge.count(), Instant::now());
    assert!(asked > 3000, "{asked}");
    access.renew_soon();
    let changed = renewals.next().await;
    assert!(changed.iter().any(|one| Arc::ptr_eq(one, &rights)));
    let took = begun.elapsed();
    assert!(took < MAX_RENEWAL_TIME + Duration::from_secs(3), "{took:?}");
    while judge.count() < 2 * asked {
        renewals.next().await;
    }
    assert!(begun.elapsed() < MAX_ANSWER_AGE, "what was left over is asked again soon");
}

#[tokio::test(start_paused = true)]
async fn known_rights_stay_valid_while_the_api_server_does_not_answer() {
    let (_api, judge, access) = scene();
    judge.allows(&ALL_OF_PODS);
    let rights = access.of(&account(), &painter());
    rights.permit(&pods(), ReadTarget::object(Some("a"), "x")).await.unwrap();
    rights.ask_needed().await;
    judge.0.lock().is_away = true;
    let mut renewals = access.renewals();
    assert!(renewals.next().await.is_empty());
    assert_eq!(rights.known(&pods(), ReadTarget::object(Some("a"), "x")), Some(Permit::Stored));
    judge.0.lock().is_away = false;
    judge.allows(&[]);
    let begun = Instant::now();
    assert_eq!(renewals.next().await.len(), 1, "it is asked again soon");
    assert_eq!(begun.elapsed(), SECOND_RENEWAL_DELAY);
}

#[tokio::test(start_paused = true)]
async fn without_an_account_nothing_is_asked_and_nothing_watched() {
    let (api, judge, access) = scene();
    api.reset_requests();
    tokio::time::timeout(Duration::from_hours(1), access.needed()).await.unwrap_err();
    assert_eq!((api.requests().len(), judge.count()), (0, 0));
    let _rights = access.of(&account(), &painter());
    access.needed().await;
}

#[tokio::test]
async fn a_scope_may_be_watched_with_rights_to_list_and_watch_it() {
    let scope = |namespace: Option<&str>| Scope {
        namespace: namespace.map(str::to_owned),
        ..Scope::default()
    };
    let (_api, judge, access) = scene();
    judge.allows(&["list pods a", "watch pods a"]);
    let rights = access.of(&account(), &painter());
    assert_eq!(rights.may_watch(&pods(), &scope(Some("a"))), None, "not asked yet");
    let scopes = [Some("a"), Some("b"), None].map(|namespace| (pods(), scope(namespace)));
    rights.ask_watches(&scopes).await;
    let may = scopes.map(|(kind, scope)| rights.may_watch(&kind, &scope));
    assert_eq!(may, [Some(true), Some(false), Some(false)]);
}

#[tokio::test]
async fn processors_of_one_account_share_its_reviewed_rights() {
    let (_api, judge, access) = scene();
    judge.allows(&ALL_OF_PODS);
    let former = access.of(&account(), &painter());
    former.ask_needed().await;
    let asked = judge.count();
    let new = access.of(&account(), &painter());
    new.ask_needed().await;
    assert_eq!(judge.count(), asked);
    assert_eq!(new.missing(), former.missing());
    let of_another = access.of(&"shop/another".parse().unwrap(), &painter());
    of_another.ask_needed().await;
    assert_eq!(judge.count(), 2 * asked, "another account has other rights");

    judge.allows(&[]);
    let (changed, is_open) = access.renew(Stale::ALL).await;
    assert_eq!((changed.len(), is_open), (3, false), "each has changed");
    assert_eq!(judge.count(), 4 * asked, "each account is asked for once");
}

#[tokio::test(start_paused = true)]
async fn the_first_lists_renew_only_older_answers_and_later_the_denials() {
    let (_api, judge, access) = scene();
    judge.allows(&ALL_OF_PODS);
    let rights = access.of(&account(), &painter());
    rights.ask_needed().await;
    let needed = judge.count();
    let denied = rights.missing().len();
    tokio::time::advance(Duration::from_millis(1)).await;
    let of_another = access.of(&"shop/another".parse().unwrap(), &painter());
    let within = MAX_ANSWER_AGE.saturating_sub(Duration::from_secs(1));
    let ended = tokio::time::timeout(within, async {
        let mut renewals = access.renewals();
        tokio::select! {
            () = access.watch_sources() => {}
            () = async { loop { renewals.next().await; } } => {}
        }
    });
    ended.await.expect_err("the watches go on");
    let denied = denied + of_another.missing().len();
    // The second account is asked for by the first renewal.
    assert_eq!(judge.count(), needed + (needed + needed) + denied);
    assert!(denied > 0 && denied < 2 * needed);
}

#[test]
fn a_refusal_of_the_api_server_is_parsed_into_the_missing_right() {
    let user = r#"User "system:serviceaccount:shop:painter" cannot"#;
    let cases = [
        (
            format!(r#"widgets.apps.example.com "x" is forbidden: {user} patch resource "widgets" in API group "apps.example.com" in the namespace "a""#),
            Some("patch widgets.apps.example.com `a/x`"),
        ),
        (
            format!(r#"pods "x" is forbidden: {user} create resource "pods/eviction" in API group "" in the namespace "a""#),
            Some("create pods/eviction `a/x`"),
        ),
        (
            format!(r#"secrets is forbidden: {user} list resource "secrets" in API group "" at the cluster scope"#),
            Some("list secrets in all namespaces"),
        ),
        (
            r#"pods "x" is forbidden: User "somebody" cannot get resource "pods" in API group "" in the namespace "a""#.to_owned(),
            None,
        ),
        (r#"pods "x" is forbidden: exceeded quota: q"#.to_owned(), None),
    ];
    for (message, expected) in cases {
        let told = Question::refused(&message, &account(), &Arc::default())
            .map(|question| question.to_string());
        assert_eq!(told.as_deref(), expected, "{message}");
    }
}
