//! Granted rules: the rights in roles that a processor writes, compared with those of its account
//! as Kubernetes compares them.
//!
//! Pure. The rules of comparison are those of `k8s.io/component-helpers/auth/rbac/validation`: a
//! rule is covered if each of its single rights is in one of the held rules.

use std::{collections::BTreeSet, fmt::Write as _};

use serde_json::{Map, Value, json};

use super::rights::Account;
use crate::contract::GrantedRule;

/// The wildcard in a rule.
const ANY: &str = "*";

/// A right of a rule: a verb, on a resource or on a non-resource path. Wildcards are not expanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Right<'a> {
    verb: &'a str,
    on: On<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum On<'a> {
    Resource { group: &'a str, resource: &'a str, name: Option<&'a str> },
    Url(&'a str),
}

/// An account's rules, as the API server listed them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The rules that hold for objects in all namespaces.
    pub rules: Vec<GrantedRule>,
    /// True if the API server reports that the list may be incomplete.
    pub is_incomplete: bool,
}

// === impl GrantedRule ===

impl GrantedRule {
    /// Returns the single rights of the rule: each verb on each resource and name, or on each URL.
    pub fn rights(&self) -> impl Iterator<Item = Right<'_>> {
        let mut names: Vec<Option<&str>> =
            self.resource_names.iter().map(|name| Some(name.as_str())).collect();
        if names.is_empty() {
            names.push(None);
        }
        let mut on: Vec<On<'_>> = self.non_resource_urls.iter().map(|url| On::Url(url)).collect();
        for group in &self.api_groups {
            for resource in &self.resources {
                on.extend(names.iter().map(|name| On::Resource { group, resource, name: *name }));
            }
        }
        self.verbs
            .iter()
            .flat_map(move |verb| on.clone().into_iter().map(move |on| Right { verb, on }))
    }

    /// Returns the rule as in a role: without the lists that are empty.
    pub fn to_value(&self) -> Value {
        let lists = [
            ("apiGroups", &self.api_groups),
            ("resources", &self.resources),
            ("resourceNames", &self.resource_names),
            ("verbs", &self.verbs),
            ("nonResourceURLs", &self.non_resource_urls),
        ];
        let given = lists.into_iter().filter(|(_, list)| !list.is_empty());
        given.map(|(key, list)| (key.to_owned(), json!(list))).collect::<Map<_, _>>().into()
    }

    /// Parses a rule of a role; values other than lists of strings are ignored.
    pub fn from_value(rule: &Value) -> Self {
        let list = |key: &str| {
            let texts = rule.get(key).and_then(Value::as_array).into_iter().flatten();
            texts.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            api_groups: list("apiGroups"),
            resources: list("resources"),
            resource_names: list("resourceNames"),
            verbs: list("verbs"),
            non_resource_urls: list("nonResourceURLs"),
        }
    }

    fn has(&self, right: &Right<'_>) -> bool {
        let among = |list: &[String], one: &str| list.iter().any(|of| of == ANY || of == one);
        among(&self.verbs, right.verb)
            && match right.on {
                On::Resource { group, resource, name } => {
                    let names = &self.resource_names;
                    among(&self.api_groups, group)
                        && self.resources.iter().any(|of| covers_resource(of, resource))
                        && (names.is_empty()
                            || name.is_some_and(|name| names.iter().any(|of| of == name)))
                }
                On::Url(url) => self.non_resource_urls.iter().any(|of| covers_url(of, url)),
            }
    }
}

fn covers_resource(held: &str, wanted: &str) -> bool {
    let below = |of: &str| of.split_once('/').map(|(_, below)| below.to_owned());
    let of_all = held.strip_prefix("*/");
    held == ANY || held == wanted || (of_all.is_some() && of_all == below(wanted).as_deref())
}

fn covers_url(held: &str, wanted: &str) -> bool {
    held == wanted || held.strip_suffix(ANY).is_some_and(|start| wanted.starts_with(start))
}

// === impl Held ===

impl Held {
    /// Reads the answer to a `SelfSubjectRulesReview`.
    pub fn of_review(answer: &Value) -> Self {
        let rules = ["/status/resourceRules", "/status/nonResourceRules"].into_iter();
        let rules = rules.filter_map(|list| answer.pointer(list)?.as_array()).flatten();
        let is_incomplete = answer.pointer("/status/incomplete").and_then(Value::as_bool);
        Self {
            rules: rules.map(GrantedRule::from_value).collect(),
            // An answer without this field proves nothing, so the list counts as incomplete.
            is_incomplete: is_incomplete.unwrap_or(true),
        }
    }

    /// Returns whether the rules include each single right of a rule.
    pub fn covers(&self, rule: &GrantedRule) -> bool {
        rule.rights().all(|right| self.has(&right))
    }

    /// Returns whether one of the rules includes a single right.
    pub fn has(&self, right: &Right<'_>) -> bool {
        self.rules.iter().any(|held| held.has(right))
    }
}

// === impl Right ===

impl Right<'_> {
    /// Returns the `SubjectAccessReview` that asks whether an account has the right. A wildcard is
    /// sent as it is written: only a rule with the same wildcard allows it.
    pub fn review(&self, account: &Account) -> Value {
        let (key, attributes) = match self.on {
            On::Resource { group, resource, name } => {
                let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
                let attributes = json!({
                    "group": group, "resource": resource, "subresource": subresource,
                    "verb": self.verb, "name": name.unwrap_or_default(),
                });
                ("resourceAttributes", attributes)
            }
            On::Url(path) => ("nonResourceAttributes", json!({"path": path, "verb": self.verb})),
        };
        json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "metadata": {},
            "spec": {"user": account.user(), "groups": account.groups(), key: attributes},
        })
    }
}

/// Returns the `SelfSubjectRulesReview` for the rules that hold in all namespaces. A review
/// requires a namespace: this one cannot have a role, as its name is not a DNS label.
pub fn rules_review() -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "metadata": {},
        "spec": {"namespace": "no.namespace"},
    })
}

/// Returns the `ClusterRole` of the granted rules, with its binding if there is an account to bind
/// it to; nothing without rules.
pub fn objects(processor: &str, rules: &[GrantedRule], account: Option<&Account>) -> Vec<Value> {
    if rules.is_empty() {
        return Vec::new();
    }
    let name = format!("mortise-{processor}-grants");
    let api_version = "rbac.authorization.k8s.io/v1";
    let role = json!({
        "apiVersion": api_version,
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules.iter().map(GrantedRule::to_value).collect::<Vec<_>>(),
    });
    let binding = account.map(|account| {
        json!({
            "apiVersion": api_version,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "namespace": account.namespace, "name": account.name}],
        })
    });
    std::iter::once(role).chain(binding).collect()
}

/// Bytes of the text that [`lines`] returns.
pub const MAX_LINES_BYTES: usize = 16 << 10;

/// Returns rules as lines of a role's `rules`: one a line, in YAML's flow style. Past
/// [`MAX_LINES_BYTES`] a comment says how many are left out.
pub fn lines(rules: &[GrantedRule]) -> String {
    bounded(rules.iter().map(|rule| format!("- {}", rule.to_value())))
}

/// Joins lines, up to [`MAX_LINES_BYTES`].
pub(super) fn bounded(lines: impl Iterator<Item = String>) -> String {
    /// Bytes for the last line.
    const LAST_LINE_BYTES: usize = 64;
    let (mut text, mut left) = (String::new(), 0);
    for line in lines {
        if left > 0 || text.len() + line.len() + LAST_LINE_BYTES > MAX_LINES_BYTES {
            left += 1;
            continue;
        }
        text.push_str(&line);
        text.push('\n');
    }
    if left > 0 {
        _ = writeln!(text, "# {left} more: see `mortise inspect --rbac`");
    }
    text.truncate(text.trim_end().len());
    text
}

/// Compares declared grants with the rules of written roles, by their single rights. Returns the
/// rights that only `granted` has and those that only `written` has, each as a rule.
pub fn difference(
    granted: &[GrantedRule],
    written: &[GrantedRule],
) -> (Vec<GrantedRule>, Vec<GrantedRule>) {
    fn rights(rules: &[GrantedRule]) -> BTreeSet<Right<'_>> {
        rules.iter().flat_map(GrantedRule::rights).collect()
    }
    let (granted, written) = (rights(granted), rights(written));
    let only = |one: &BTreeSet<Right<'_>>, other: &BTreeSet<Right<'_>>| {
        one.difference(other).map(|right| GrantedRule::from(*right)).collect()
    };
    (only(&granted, &written), only(&written, &granted))
}

/// Returns the single rights of rules that others do not include, each as a rule.
pub fn beyond(rules: &[GrantedRule], others: &[GrantedRule]) -> Vec<GrantedRule> {
    let rights: BTreeSet<Right<'_>> = rules.iter().flat_map(GrantedRule::rights).collect();
    let more = rights.iter().filter(|right| !others.iter().any(|other| other.has(right)));
    more.map(|right| GrantedRule::from(*right)).collect()
}

impl From<Right<'_>> for GrantedRule {
    fn from(right: Right<'_>) -> Self {
        let one = |text: &str| vec![text.to_owned()];
        let verbs = one(right.verb);
        match right.on {
            On::Resource { group, resource, name } => Self {
                api_groups: one(group),
                resources: one(resource),
                resource_names: name.map(str::to_owned).into_iter().collect(),
                verbs,
                ..Self::default()
            },
            On::Url(url) => Self { non_resource_urls: one(url), verbs, ..Self::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_that_others_do_not_include_are_beyond_them() {
        let all = of(&["*"], &["pods", "secrets"], &[], &["get", "list"]);
        let some = of(&[""], &["pods"], &["a"], &["get", "watch"]);
        let more = beyond(std::slice::from_ref(&some), std::slice::from_ref(&all));
        assert_eq!(more, [of(&[""], &["pods"], &["a"], &["watch"])]);
        assert_eq!(beyond(std::slice::from_ref(&all), std::slice::from_ref(&all)), []);
        assert_eq!(beyond(&[all], &[some]).len(), 4);
    }

    #[expect(clippy::needless_pass_by_value, reason = "values are made where they are used")]
    fn rule(value: Value) -> GrantedRule {
        GrantedRule::from_value(&value)
    }

    fn of(groups: &[&str], resources: &[&str], names: &[&str], verbs: &[&str]) -> GrantedRule {
        rule(
            json!({"apiGroups": groups, "resources": resources, "resourceNames": names, "verbs": verbs}),
        )
    }

    fn urls(urls: &[&str], verbs: &[&str]) -> GrantedRule {
        rule(json!({"nonResourceURLs": urls, "verbs": verbs}))
    }

    #[test]
    fn a_rule_is_held_if_each_of_its_rights_is() {
        let pods = of(&[""], &["pods"], &[], &["get", "list"]);
        let cases = [
            ("the same", vec![pods.clone()], pods.clone(), true),
            ("nothing", vec![], pods.clone(), false),
            (
                "from two rules",
                vec![of(&[""], &["pods"], &[], &["get"]), of(&[""], &["pods"], &[], &["list"])],
                pods.clone(),
                true,
            ),
            ("another group", vec![of(&["apps"], &["pods"], &[], &["*"])], pods.clone(), false),
            ("any of all", vec![of(&["*"], &["*"], &[], &["*"])], pods.clone(), true),
            ("a name only", vec![of(&[""], &["pods"], &["a"], &["*"])], pods.clone(), false),
            (
                "a name of all",
                vec![pods.clone()],
                of(&[""], &["pods"], &["a", "b"], &["get"]),
                true,
            ),
            (
                "one of two names",
                vec![of(&[""], &["pods"], &["a"], &["get"])],
                of(&[""], &["pods"], &["a", "b"], &["get"]),
                false,
            ),
            ("a wildcard of verbs", vec![pods.clone()], of(&[""], &["pods"], &[], &["*"]), false),
            (
                "a subresource of all",
                vec![of(&["apps"], &["*/scale"], &[], &["get"])],
                of(&["apps"], &["deployments/scale"], &[], &["get"]),
                true,
            ),
            (
                "another subresource",
                vec![of(&["apps"], &["*/scale"], &[], &["get"])],
                of(&["apps"], &["deployments/status", "deployments"], &[], &["get"]),
                false,
            ),
            (
                "a subresource of a resource",
                vec![pods.clone()],
                of(&[""], &["pods/log"], &[], &["get"]),
                false,
            ),
            (
                "a path below",
                vec![urls(&["/healthz*"], &["get"])],
                urls(&["/healthz/etcd"], &["get"]),
                true,
            ),
            (
                "a path beside",
                vec![urls(&["/healthz/*"], &["get"])],
                urls(&["/healthz"], &["get"]),
                false,
            ),
            (
                "a path, held as a resource",
                vec![of(&["*"], &["*"], &[], &["*"])],
                urls(&["/metrics"], &["get"]),
                false,
            ),
        ];
        for (case, rules, wanted, expected) in cases {
            let held = Held { rules, is_incomplete: false };
            assert_eq!(held.covers(&wanted), expected, "{case}");
        }
    }

    #[test]
    fn a_review_gives_the_held_rules_and_their_completeness() {
        let answer = json!({"status": {
            "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}],
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}],
            "incomplete": false,
        }});
        let held = Held::of_review(&answer);
        let rules = vec![of(&[""], &["pods"], &[], &["get"]), urls(&["/metrics"], &["get"])];
        assert_eq!(held, Held { rules, is_incomplete: false });
        assert!(Held::of_review(&json!({"status": {"resourceRules": []}})).is_incomplete);
    }

    #[test]
    fn each_right_is_a_question_with_its_wildcards() {
        let account = "shop/meshes".parse().unwrap();
        let rules = [of(&["apps"], &["*/scale"], &["a"], &["*"]), urls(&["/a/*"], &["get"])];
        let asked: Vec<Value> = rules
            .iter()
            .flat_map(GrantedRule::rights)
            .map(|right| right.review(&account)["spec"].clone())
            .collect();
        let of_account = |rest: Value| {
            let mut spec = json!({"user": account.user(), "groups": account.groups()});
            spec.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            spec
        };
        let scale = json!({"group": "apps", "resource": "*", "subresource": "scale", "verb": "*", "name": "a"});
        assert_eq!(
            asked,
            [
                of_account(json!({"resourceAttributes": scale})),
                of_account(json!({"nonResourceAttributes": {"path": "/a/*", "verb": "get"}})),
            ]
        );
    }

    #[test]
    fn the_rules_are_printed_as_they_are_with_a_binding_for_an_account() {
        let rules = [of(&[""], &["pods"], &[], &["get"]), urls(&["/metrics"], &["get"])];
        assert_eq!(objects("meshes", &[], None), Vec::<Value>::new());
        let printed = objects("meshes", &rules, Some(&"shop/meshes".parse().unwrap()));
        let [role, binding] = &printed[..] else { panic!("{printed:?}") };
        assert_eq!(role["metadata"], json!({"name": "mortise-meshes-grants"}));
        assert_eq!(
            role["rules"],
            json!([
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
                {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
            ])
        );
        assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
        assert_eq!(binding["subjects"][0]["name"], "meshes");
        let line = r#"- {"apiGroups":[""],"resources":["pods"],"verbs":["get"]}"#;
        assert_eq!(lines(&rules).lines().next(), Some(line));
        let many = lines(&vec![rules[0].clone(); 1_000]);
        assert!(many.len() <= MAX_LINES_BYTES && many.starts_with(line));
        let listed = many.lines().count() - 1;
        let rest = format!("# {} more: see `mortise inspect --rbac`", 1_000 - listed);
        assert_eq!(many.lines().last(), Some(&*rest));
    }

    #[test]
    fn sets_of_rules_are_equal_if_their_rights_are() {
        let one = [of(&[""], &["pods", "services"], &[], &["get", "list"])];
        let other = [
            of(&[""], &["services"], &[], &["list", "get"]),
            of(&[""], &["pods"], &[], &["list"]),
            of(&[""], &["pods"], &[], &["get"]),
        ];
        assert_eq!(difference(&one, &other), (vec![], vec![]));
        let (missing, more) = difference(&one, &other[..2]);
        assert_eq!((missing, more), (vec![of(&[""], &["pods"], &[], &["get"])], vec![]));
    }
}
