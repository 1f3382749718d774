//! The granted rules of a description, compared with the roles of outcomes.

use mortise_core::{contract, grant::granted};
use serde_json::Value;

use crate::{Description, GrantedRule, Outcome};

/// The API group of roles.
const GROUP: &str = "rbac.authorization.k8s.io/";

/// Checks that a processor grants exactly the declared rules: all Roles and `ClusterRole`s that the
/// outcomes apply, together, must give the same rights as the description's `grants`. The
/// distribution of rights over rules does not matter.
///
/// Roles that are bound but not applied are not seen: their rules must be among the `grants` too.
///
/// ```
/// use mortise_sdk::{Description, GrantedRule, Manifest, Outcome, testing};
/// use serde_json::json;
///
/// let pods = GrantedRule::new([""], ["pods"], ["get", "list"]);
/// let description = Description::new("mesh", "1.0.0").grants([pods]);
/// let role = json!({
///     "apiVersion": "rbac.authorization.k8s.io/v1",
///     "kind": "ClusterRole",
///     "metadata": {"name": "mesh"},
///     "rules": [
///         {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
///         {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
///     ],
/// });
/// testing::check_grants(&description, [&Outcome::new().apply(Manifest::json(&role))]);
/// ```
///
/// # Panics
///
/// If they differ; the message has a line for each right that only one of them has.
pub fn check<'a>(description: &Description, outcomes: impl IntoIterator<Item = &'a Outcome>) {
    let manifests = outcomes.into_iter().flat_map(|outcome| &outcome.apply);
    let written: Vec<GrantedRule> = manifests
        .map(|manifest| serde_json::from_str(&manifest.object).unwrap_or_default())
        .filter(is_role)
        .flat_map(|role| GrantedRule::of_role(&role))
        .collect();
    let of_core = |rules: Vec<GrantedRule>| -> Vec<contract::GrantedRule> {
        rules.into_iter().map(contract::GrantedRule::from).collect()
    };
    let (granted, written) = (of_core(description.grants.clone()), of_core(written));
    let (unused, undeclared) = granted::difference(&granted, &written);
    let listed = |what: &str, rules: &[contract::GrantedRule]| match rules {
        [] => String::new(),
        rules => format!("\n{what}:\n{}", granted::lines(rules)),
    };
    assert!(
        unused.is_empty() && undeclared.is_empty(),
        "the roles of the outcomes and the `grants` of `{}` differ{}{}",
        description.name,
        listed("in roles, and not in `grants`", &undeclared),
        listed("in `grants`, and in no role", &unused),
    );
}

fn is_role(object: &Value) -> bool {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    text("apiVersion").starts_with(GROUP) && matches!(text("kind"), "Role" | "ClusterRole")
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use serde_json::json;

    use super::*;
    use crate::Manifest;

    fn role(kind: &str, name: &str, rules: &Value) -> Manifest {
        Manifest::json(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
            "metadata": {"name": name, "namespace": "a"}, "rules": rules,
        }))
    }

    fn described() -> Description {
        Description::new("mesh", "1.0.0").grants([
            GrantedRule::new(["apps"], ["deployments"], ["get", "patch"]).named(["a"]),
            GrantedRule::urls(["/metrics"], ["get"]),
        ])
    }

    fn message(outcomes: &[Outcome]) -> Option<String> {
        let outcomes = outcomes.to_vec();
        let caught = catch_unwind(move || check(&described(), &outcomes));
        caught.err().map(|message| message.downcast_ref::<String>().unwrap().clone())
    }

    #[test]
    fn roles_must_hand_on_what_is_declared_and_no_more() {
        let named = |verbs: &[&str]| {
            json!([{
                "apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["a"],
                "verbs": verbs,
            }])
        };
        let urls = json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]);
        let one = Outcome::new().apply(role("Role", "a", &named(&["get"])));
        let other = Outcome::new().apply(role("ClusterRole", "b", &named(&["patch"]))).apply(role(
            "ClusterRole",
            "c",
            &urls,
        ));
        assert_eq!(message(&[one.clone(), other.clone()]), None);
        let lacking = message(&[one]).unwrap();
        assert!(lacking.contains("in `grants`, and in no role:\n"), "{lacking}");
        assert!(lacking.contains(r#""verbs":["patch"]"#) && !lacking.contains("and not in"));
        let wider = Outcome::new().apply(role("Role", "a", &named(&["get", "delete"])));
        let more = message(&[other, wider]).unwrap();
        let line = r#"- {"apiGroups":["apps"],"resourceNames":["a"],"resources":["deployments"],"verbs":["delete"]}"#;
        assert!(more.contains("in roles, and not in `grants`:\n"), "{more}");
        assert!(more.contains(line) && !more.contains("in no role"), "{more}");
    }
}
