use serde_json::json;

use super::*;
use crate::testing::{api, send};

fn rule(text: serde_json::Value) -> Value {
    text
}

fn action(verb: &str, resource: &str, subresource: &str, name: &str) -> Action {
    let text = str::to_owned;
    Action::Resource {
        verb: text(verb),
        group: text("apps"),
        resource: text(resource),
        subresource: text(subresource),
        namespace: text("n"),
        name: text(name),
    }
}

#[test]
fn a_rule_allows_only_the_actions_that_it_names() {
    let named = rule(
        json!({"apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["web"], "verbs": ["get"]}),
    );
    let scales = rule(json!({"apiGroups": ["*"], "resources": ["*/scale"], "verbs": ["*"]}));
    let all = rule(json!({"apiGroups": ["apps"], "resources": ["*"], "verbs": ["get"]}));
    let cases = [
        ("its name", &named, action("get", "deployments", "", "web"), true),
        ("another name", &named, action("get", "deployments", "", "db"), false),
        ("no name", &named, action("list", "deployments", "", ""), false),
        ("a subresource", &named, action("get", "deployments", "status", "web"), false),
        ("any scale", &scales, action("patch", "deployments", "scale", "x"), true),
        ("not the object", &scales, action("patch", "deployments", "", "x"), false),
        ("everything", &all, action("get", "deployments", "status", "x"), true),
        ("another verb", &all, action("watch", "deployments", "", ""), false),
    ];
    for (case, rule, action, allowed) in cases {
        assert_eq!(action.is_allowed_by(rule), allowed, "{case}");
    }
}

#[tokio::test]
async fn bindings_give_roles_to_subjects() {
    let api = api().await;
    let group = "rbac.authorization.k8s.io";
    let role = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": "r"},
        "rules": [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]}],
    });
    assert_eq!(
        send(&api, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await.0,
        201
    );
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": {"name": "b"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "Group", "apiGroup": group, "name": "team"}],
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/n/rolebindings";
    assert_eq!(send(&api, "POST", path, &binding).await.0, 201);
    let state = api.shared.state.read();
    let user = |group: &str| User { name: "u".to_owned(), groups: vec![group.to_owned()] };
    let get = action("get", "deployments", "", "web");
    let reason = "RBAC: allowed by RoleBinding \"b/n\" of ClusterRole \"r\" to Group \"team\"";
    assert_eq!(state.allows(&user("team"), &get).as_deref(), Some(reason));
    assert_eq!(state.allows(&user("other"), &get), None);
    assert_eq!(
        state.allows(&User::administrator(), &action("delete", "deployments", "", "x")).as_deref(),
        Some("")
    );
}

#[test]
fn a_collection_of_one_name_is_that_object() {
    let path = |name: &str| ResourcePath { name: name.into(), ..ResourcePath::default() };
    let cases = [
        (Verb::List, "", "metadata.name=web", "web"),
        (Verb::Watch, "", "spec.a=b,metadata.name==web", "web"),
        (Verb::DeleteCollection, "", "metadata.name=web", "web"),
        (Verb::List, "", "metadata.name!=web", ""),
        (Verb::List, "", "metadata.name=a/b", ""),
        (Verb::List, "", "no selector", ""),
        (Verb::Watch, "", "", ""),
        (Verb::Watch, "api", "metadata.name=web", "api"),
        (Verb::Get, "api", "metadata.name=web", "api"),
    ];
    for (verb, of, fields, expected) in cases {
        let Action::Resource { name, .. } = Action::of(&path(of), verb, fields) else { panic!() };
        assert_eq!(name, expected, "{verb:?} {of} {fields}");
    }
}
