use proptest::prelude::*;
use serde_json::json;

use super::*;

fn kind(name: &str) -> Kind {
    let group = if matches!(name, "ConfigMap" | "Pod") { "" } else { "example.dev" };
    Kind::home(group, "v1", name)
}

fn selection(name: &str, namespace: Option<&str>, object: Option<&str>) -> Selection {
    Selection {
        kind: kind(name).into(),
        namespace: namespace.map(str::to_owned),
        name: object.map(str::to_owned),
        labels: String::new(),
        matching: Vec::new(),
        fields: [].into(),
    }
}

fn reconciler(of: Selection, finalizers: &[&str]) -> Reconciler {
    Reconciler {
        name: "r".into(),
        of,
        finalizers: finalizers.iter().map(|&name| name.into()).collect(),
        resync: 0,
        triggered_by_status: false,
        min_interval: 0,
        on_demand: false,
        whole_status: false,
    }
}

fn description(
    reconcilers: Vec<Reconciler>,
    reads: Vec<Selection>,
    writes: Vec<(Selection, Verbs)>,
) -> Description {
    let writes = writes.into_iter().map(|(of, verbs)| WriteRule { of, verbs, fields: Vec::new() });
    Description {
        name: "p".into(),
        version: "1".into(),
        reconcilers,
        reads,
        writes: writes.collect(),
        grants: Vec::new(),
        outbound: Vec::new(),
        config_schema: None,
    }
}

/// Returns how a kind is served: config maps have no status, zones no namespace.
fn served(kind: &Kind) -> Served {
    Served {
        plural: format!("{}s", kind.kind.to_lowercase()),
        namespaced: kind.kind != "Zone",
        status: kind.kind != "ConfigMap",
    }
}

fn objects(description: &Description, account: Option<&Account>) -> Vec<Value> {
    Roles::of(description, served).objects(&description.name, account)
}

/// Returns the rules, each in one line, prefixed with the namespace of the role that holds them.
fn text(description: &Description) -> Vec<String> {
    let mut lines = Vec::new();
    for role in objects(description, None) {
        let place = role["metadata"]["namespace"].as_str().unwrap_or("*");
        for rule in role["rules"].as_array().unwrap() {
            let list = |key: &str| {
                let items = rule[key].as_array().into_iter().flatten();
                items.map(|item| item.as_str().unwrap()).collect::<Vec<_>>().join(",")
            };
            let (group, names) = (list("apiGroups"), list("resourceNames"));
            lines.push(format!(
                "{place}: {group} {}[{names}] {}",
                list("resources"),
                list("verbs")
            ));
        }
    }
    lines
}

#[test]
fn each_declaration_needs_the_verbs_of_its_requests() {
    let written =
        |verbs| description(vec![], vec![], vec![(selection("Widget", None, None), verbs)]);
    let read = |name| description(vec![], vec![selection(name, None, None)], vec![]);
    let cases: [(&str, Description, &[&str]); 8] = [
        ("read", read("Widget"), &["*: example.dev widgets[] get,list,watch"]),
        (
            "apply",
            written(Verbs::CREATE | Verbs::UPDATE),
            &["*: example.dev widgets[] create,get,list,patch,watch"],
        ),
        (
            "create only",
            written(Verbs::CREATE),
            &["*: example.dev widgets[] create,get,list,watch"],
        ),
        ("patch", written(Verbs::UPDATE), &["*: example.dev widgets[] get,list,patch,watch"]),
        (
            "delete and prune",
            written(Verbs::DELETE),
            &["*: example.dev widgets[] delete,get,list,watch"],
        ),
        (
            "evict",
            written(Verbs::EVICT),
            &[
                "*: example.dev widgets[] get,list,watch",
                "*: example.dev widgets/eviction[] create",
            ],
        ),
        (
            "reconcile",
            description(vec![reconciler(selection("Widget", None, None), &[])], vec![], vec![]),
            &[
                "*:  events[] create,patch",
                "*: example.dev widgets[] get,list,watch",
                "*: example.dev widgets/status[] patch",
            ],
        ),
        (
            "reconcile with a finalizer what has no status",
            description(
                vec![reconciler(selection("ConfigMap", Some("a"), None), &["example.dev/f"])],
                vec![],
                vec![],
            ),
            &["a:  configmaps[] get,list,patch,watch", "a:  events[] create,patch"],
        ),
    ];
    for (case, description, expected) in cases {
        assert_eq!(text(&description), expected, "{case}");
    }
}

#[test]
fn events_are_granted_for_all_objects_but_needed_for_reconciled_ones() {
    let of = |namespace| selection("ConfigMap", Some(namespace), None);
    let description = description(
        vec![reconciler(of("a"), &[])],
        vec![of("b"), selection("Zone", None, None)],
        vec![(of("c"), Verbs::DELETE)],
    );
    let printed: Vec<String> =
        text(&description).into_iter().filter(|rule| rule.contains("events")).collect();
    let everywhere =
        ["a", "b", "c", "default"].map(|place| format!("{place}:  events[] create,patch"));
    assert_eq!(printed, everywhere);
    let needed = Roles::needed(&description, served).questions();
    let of_events: Vec<_> = needed.iter().filter(|one| &*one.resource == "events").collect();
    assert!(of_events.iter().all(|one| one.namespace.as_deref() == Some("a")), "{of_events:?}");
    assert_eq!(of_events.len(), 2);
}

#[test]
fn rules_are_as_narrow_as_their_declarations() {
    let both = Verbs::CREATE | Verbs::UPDATE;
    let cases: [(&str, Description, &[&str]); 6] = [
        (
            "names of one kind stand together",
            description(
                vec![],
                ["y", "x"].map(|name| selection("Widget", Some("a"), Some(name))).into(),
                vec![],
            ),
            &["a: example.dev widgets[x,y] get,list,watch"],
        ),
        (
            "an apply is authorized by its name, a mere create is not",
            description(
                vec![],
                vec![],
                vec![
                    (selection("Widget", Some("a"), Some("x")), both),
                    (selection("Pod", Some("a"), Some("x")), Verbs::CREATE),
                ],
            ),
            &[
                "a:  pods[] create",
                "a:  pods[x] get,list,watch",
                "a: example.dev widgets[x] create,get,list,patch,watch",
            ],
        ),
        (
            "what all namespaces allow is not said again for one",
            description(
                vec![],
                vec![
                    selection("Widget", Some("a"), None),
                    selection("Widget", None, None),
                    selection("Widget", None, Some("x")),
                    selection("Pod", Some("a"), None),
                ],
                vec![],
            ),
            &["*: example.dev widgets[] get,list,watch", "a:  pods[] get,list,watch"],
        ),
        (
            "events on what has no namespace live in default",
            description(vec![reconciler(selection("Zone", None, None), &[])], vec![], vec![]),
            &[
                "*: example.dev zones[] get,list,watch",
                "*: example.dev zones/status[] patch",
                "default:  events[] create,patch",
            ],
        ),
        (
            "a namespace means nothing to a kind that has none",
            description(vec![], vec![selection("Zone", Some("a"), None)], vec![]),
            &["*: example.dev zones[] get,list,watch"],
        ),
        (
            "resources with the same verbs stand together",
            description(
                vec![],
                vec![selection("Pod", None, None), selection("ConfigMap", None, None)],
                vec![(selection("Pod", None, None), Verbs::EVICT)],
            ),
            &["*:  configmaps,pods[] get,list,watch", "*:  pods/eviction[] create"],
        ),
    ];
    for (case, description, expected) in cases {
        assert_eq!(text(&description), expected, "{case}");
    }
}

#[test]
fn any_kind_covers_the_kinds_that_are_named() {
    let any = |group: &str| {
        let kind = Kind::home(group, "*", "*");
        Selection { kind: kind.into(), ..selection("Widget", None, None) }
    };
    let of = |group| {
        let widgets = selection("Widget", None, None);
        description(
            vec![],
            vec![any(group), widgets.clone()],
            vec![(any(group), Verbs::EVICT), (widgets, Verbs::EVICT)],
        )
    };
    assert_eq!(
        text(&of("example.dev")),
        ["*: example.dev *[] get,list,watch", "*: example.dev */eviction[] create"]
    );
    assert_eq!(text(&of("*")), ["*: * *[] get,list,watch", "*: * */eviction[] create"]);
}

#[test]
fn each_role_has_a_binding_where_there_is_an_account() {
    let description = description(
        vec![],
        vec![selection("Widget", None, None), selection("Pod", Some("a"), None)],
        vec![],
    );
    let account = "shop/api-rule".parse().unwrap();
    let objects = objects(&description, Some(&account));
    let heads: Vec<_> = objects
        .iter()
        .map(|object| {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            assert_eq!(object["metadata"]["name"], "mortise-p");
            format!("{} {namespace}", object["kind"].as_str().unwrap())
        })
        .collect();
    assert_eq!(heads, ["ClusterRole ", "ClusterRoleBinding ", "Role a", "RoleBinding a"]);
    for (role, binding) in [(&objects[0], &objects[1]), (&objects[2], &objects[3])] {
        assert_eq!(
            binding["roleRef"],
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": role["kind"], "name": "mortise-p"})
        );
        let account = json!({"kind": "ServiceAccount", "namespace": "shop", "name": "api-rule"});
        assert_eq!(binding["subjects"], json!([account]));
    }
    for wrong in ["api-rule", "/api-rule", "shop/", "a/b/c"] {
        let error = wrong.parse::<Account>().unwrap_err().to_string();
        assert!(error.contains(wrong) && error.contains("NAMESPACE/NAME"), "{error}");
    }
}

// === the roles allow what is declared, and nothing else ===

const KINDS: [&str; 4] = ["ConfigMap", "Pod", "Widget", "Zone"];
const VERBS: [&str; 7] = ["get", "list", "watch", "create", "patch", "delete", "update"];
const SUBRESOURCES: [&str; 3] = ["", "status", "eviction"];

/// A request that the authorizer decides on.
#[derive(Debug, Clone, PartialEq)]
struct Asked {
    group: String,
    resource: String,
    verb: &'static str,
    /// The namespace; `None`: all namespaces, or a cluster-scoped resource.
    namespace: Option<&'static str>,
    /// The object's name; `None`: a list without a name, or a POST.
    name: Option<&'static str>,
}

/// Returns whether a request is allowed, as the authorizer of Kubernetes decides it.
fn is_allowed(roles: &[Value], asked: &Asked) -> bool {
    roles.iter().any(|role| {
        let namespace = role["metadata"]["namespace"].as_str();
        let holds = |rule: &Value, key: &str, value: &str| {
            rule[key].as_array().unwrap().iter().any(|item| item == value || item == "*")
        };
        let mut all = role["rules"].as_array().unwrap().iter();
        (namespace.is_none() || namespace == asked.namespace)
            && all.any(|rule| {
                let names = rule["resourceNames"].as_array();
                let is_among = |names: &Vec<Value>| {
                    asked.name.is_some_and(|name| names.iter().any(|item| item == name))
                };
                holds(rule, "apiGroups", &asked.group)
                    && holds(rule, "resources", &asked.resource)
                    && holds(rule, "verbs", asked.verb)
                    && names.is_none_or(is_among)
            })
    })
}

/// Returns whether a declaration needs the request, computed independently of the roles.
fn is_needed(description: &Description, asked: &Asked) -> bool {
    let (plural, below) = asked.resource.split_once('/').unwrap_or((&asked.resource, ""));
    let is_of = |of: &Selection| {
        let served = served(&of.kind);
        let place = of.namespace.as_deref().filter(|_| served.namespaced);
        of.kind.group == asked.group
            && served.plural == plural
            && place.is_none_or(|namespace| Some(namespace) == asked.namespace)
    };
    let is_named = |of: &Selection| of.name.as_deref().is_none_or(|name| Some(name) == asked.name);
    let selects = |of: &Selection| is_of(of) && is_named(of);
    let reads = below.is_empty() && ["get", "list", "watch"].contains(&asked.verb);
    let patches = asked.verb == "patch" && below.is_empty();
    let status = asked.verb == "patch" && below == "status";
    let on_events = asked.resource == "events" && ["create", "patch"].contains(&asked.verb);
    let events = |of: &Selection| match (&of.namespace, served(&of.kind).namespaced) {
        (Some(namespace), true) => Some(namespace.as_str()) == asked.namespace,
        (None, true) => true,
        (_, false) => asked.namespace == Some("default"),
    };
    let of_reconcilers = description.reconcilers.iter().map(|reconciler| &reconciler.of);
    let of_writes = description.writes.iter().map(|rule| &rule.of);
    let mut all = of_reconcilers.chain(&description.reads).chain(of_writes);
    let says = on_events && !description.reconcilers.is_empty() && all.any(events);
    let reconciles = description.reconcilers.iter().any(|reconciler| {
        let served = served(&reconciler.of.kind);
        selects(&reconciler.of)
            && (reads
                || (status && served.status)
                || (patches && !reconciler.finalizers.is_empty()))
    });
    let writes = description.writes.iter().any(|rule| {
        let (of, has) = (&rule.of, |verb| rule.verbs.contains(verb));
        let creates = asked.verb == "create" && below.is_empty() && has(Verbs::CREATE);
        let deletes = asked.verb == "delete" && below.is_empty();
        let watches = ["list", "watch"].contains(&asked.verb) && below.is_empty();
        let looked_at = [Verbs::CREATE, Verbs::UPDATE, Verbs::DELETE, Verbs::EVICT];
        let gets = asked.verb == "get" && below.is_empty() && looked_at.into_iter().any(has);
        (creates && if has(Verbs::UPDATE) { selects(of) } else { is_of(of) })
            || (patches && has(Verbs::UPDATE) && selects(of))
            || ((watches || gets) && selects(of))
            || (deletes && has(Verbs::DELETE) && selects(of))
            || (asked.verb == "create" && below == "eviction" && has(Verbs::EVICT) && selects(of))
    });
    says || reconciles || writes || (reads && description.reads.iter().any(selects))
}

/// Returns every request of a small test cluster.
fn requests() -> Vec<Asked> {
    let mut all = Vec::new();
    let resources = KINDS.iter().flat_map(|name| {
        let of = kind(name);
        SUBRESOURCES.iter().map(move |below| {
            let plural = served(&of).plural;
            let resource = if below.is_empty() { plural } else { format!("{plural}/{below}") };
            (of.group.clone(), resource)
        })
    });
    for (group, resource) in resources.chain([(String::new(), "events".to_owned())]) {
        for verb in VERBS {
            for namespace in [None, Some("a"), Some("b"), Some("default")] {
                for name in [None, Some("x"), Some("y")] {
                    let (group, resource) = (group.clone(), resource.clone());
                    all.push(Asked { group, resource, verb, namespace, name });
                }
            }
        }
    }
    all
}

fn selections() -> impl Strategy<Value = Selection> {
    let place = proptest::option::of(prop::sample::select(vec!["a", "b"]));
    let name = proptest::option::of(prop::sample::select(vec!["x", "y"]));
    (prop::sample::select(KINDS.to_vec()), place, name)
        .prop_map(|(kind, namespace, name)| selection(kind, namespace, name))
}

fn descriptions() -> impl Strategy<Value = Description> {
    let reconcilers = (selections(), any::<bool>()).prop_map(|(of, finalizes)| {
        reconciler(of, if finalizes { &["example.dev/f"] } else { &[] })
    });
    let writes = (selections(), 0_u8..16).prop_map(|(of, bits)| {
        let verbs = [Verbs::CREATE, Verbs::UPDATE, Verbs::DELETE, Verbs::EVICT];
        let held = verbs.into_iter().enumerate().filter(|(bit, _)| bits & (1 << bit) != 0);
        (of, held.fold(Verbs::empty(), |all, (_, verb)| all | verb))
    });
    (
        prop::collection::vec(reconcilers, 0..3),
        prop::collection::vec(selections(), 0..4),
        prop::collection::vec(writes, 0..4),
    )
        .prop_map(|(reconcilers, reads, writes)| description(reconcilers, reads, writes))
}

proptest! {
    #[test]
    fn the_roles_allow_exactly_the_declared_access(description in descriptions()) {
        let roles = objects(&description, None);
        for asked in requests() {
            prop_assert_eq!(is_allowed(&roles, &asked), is_needed(&description, &asked), "{:?}\n{:#?}", asked, text(&description));
        }
    }

    #[test]
    fn no_rule_can_be_left_out(description in descriptions()) {
        let roles = objects(&description, None);
        for (role, rules) in roles.iter().map(|role| role["rules"].as_array().unwrap()).enumerate() {
            for (index, rule) in rules.iter().enumerate() {
                let mut fewer = roles.clone();
                fewer[role]["rules"].as_array_mut().unwrap().remove(index);
                let missed = requests()
                    .into_iter()
                    .any(|asked| is_needed(&description, &asked) && !is_allowed(&fewer, &asked));
                prop_assert!(missed, "{:?} says nothing new", rule);
            }
        }
    }
}

#[test]
fn rules_beyond_other_roles_are_printed_one_per_line() {
    let read = |of: Vec<Selection>| Roles::of(&description(Vec::new(), of, Vec::new()), served);
    let (all, shop) = (selection("Pod", None, None), selection("Pod", Some("shop"), None));
    let (map, zone) =
        (selection("ConfigMap", Some("shop"), Some("a")), selection("Zone", None, None));
    let lines = |more: &[&Selection], than: &[&Selection]| {
        let of = |of: &[&Selection]| read(of.iter().map(|of| (*of).clone()).collect());
        of(more).beyond(&of(than)).lines()
    };
    let pods = r#"- {"apiGroups":[""],"resources":["pods"],"verbs":["get","list","watch"]}"#;
    let zones =
        r#"- {"apiGroups":["example.dev"],"resources":["zones"],"verbs":["get","list","watch"]}"#;
    let maps = r#"- {"apiGroups":[""],"resourceNames":["a"],"resources":["configmaps"],"verbs":["get","list","watch"]}"#;
    let cases = [
        (vec![&all], vec![&all], String::new()),
        (vec![&shop], vec![&all], String::new()),
        (vec![&all], vec![&shop], format!("# of a ClusterRole\n{pods}")),
        (
            vec![&shop, &map, &zone],
            vec![],
            format!(
                "# of a ClusterRole\n{zones}\n# of a Role in the namespace shop\n{maps}\n{pods}"
            ),
        ),
        (vec![&map, &shop], vec![&shop], format!("# of a Role in the namespace shop\n{maps}")),
    ];
    for (more, than, expected) in cases {
        assert_eq!(lines(&more, &than), expected);
    }
    let roles = read(vec![all, map]);
    assert_eq!(roles.questions().into_iter().collect::<Roles>(), roles);
    assert!(roles.beyond(&roles).is_empty());
}
