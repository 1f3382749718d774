//! The Roles that a processor needs, derived from its description: the least rights with which its
//! `ServiceAccount` can do everything declared.
//!
//! Pure: no I/O, no clock. The verbs are those of the requests that the host sends on a processor's
//! behalf.

#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Value, json};

use crate::{
    contract::{Description, Kind, Reconciler, Selection, Verbs, WriteRule},
    grant::rights::{Account, Question},
    resource::Resource,
};

const GROUP: &str = "rbac.authorization.k8s.io";
const READ: [&str; 3] = ["get", "list", "watch"];
const WATCH: [&str; 2] = ["list", "watch"];
/// The namespace of events on cluster-scoped objects.
const EVENTS_OF_CLUSTER: &str = "default";
/// The wildcard in a declaration and in a rule.
const ANY: &str = "*";

/// The way in which a kind is served, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// The name in URLs.
    pub plural: String,
    /// True if its objects live in namespaces.
    pub namespaced: bool,
    /// True if it has the subresource `status`.
    pub status: bool,
}

// === impl Served ===

impl Served {
    /// Returns the properties of kind `*`, which stands for many kinds: those that need the most
    /// rights.
    pub fn of_any() -> Self {
        Self { plural: ANY.to_owned(), namespaced: true, status: true }
    }
}

impl From<&Resource> for Served {
    fn from(resource: &Resource) -> Self {
        let Resource { plural, namespaced, status, .. } = resource;
        Self { plural: plural.clone(), namespaced: *namespaced, status: *status }
    }
}

/// The rights by namespace; under the key `None` those for all namespaces and for cluster-scoped
/// objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roles(BTreeMap<Option<String>, BTreeSet<Allowed>>);

/// A right: one verb on a resource. The order is that in which rules are printed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Allowed {
    group: String,
    /// The resource with its subresource: `pods/eviction`.
    resource: String,
    /// The object's name; `None`: every object.
    name: Option<String>,
    verb: Cow<'static, str>,
}

/// A rule of a role: the verbs that hold for all of these resources and names.
type Rule = (String, BTreeSet<String>, BTreeSet<String>, Vec<String>);

// === impl Roles ===

impl Roles {
    /// Returns the roles for everything that a description declares. `served` resolves its kinds.
    pub fn of(description: &Description, served: impl Fn(&Kind) -> Served) -> Self {
        let mut roles = Self::needed(description, &served);
        // Without a reconciled object there are no runs, and so no events on other objects.
        let (reconcilers, reads, writes) = description.declared();
        if !reconcilers.is_empty() {
            for of in reads.iter().chain(writes.iter().map(|rule| &rule.of)) {
                roles.events(of, &served(&of.kind));
            }
            roles.drop_covered();
        }
        roles
    }

    /// Returns the same roles without events on objects that the processor reads or writes and does
    /// not reconcile: a processor that creates no such events does not need them.
    pub fn needed(description: &Description, served: impl Fn(&Kind) -> Served) -> Self {
        let (reconcilers, reads, writes) = description.declared();
        let mut roles = Self::default();
        for reconciler in reconcilers {
            roles.reconcile(reconciler, &served(&reconciler.of.kind));
        }
        for read in reads {
            roles.allow(read, &served(&read.kind), "", &READ);
        }
        for credential in description.credentials() {
            // Watched too: the next call has a changed credential.
            roles.allow(credential, &served(&credential.kind), "", &READ);
        }
        for write in writes {
            roles.write(write, &served(&write.of.kind));
        }
        roles.drop_covered();
        roles
    }

    /// Allows reading the reconciled objects, writing their status and finalizers, and putting
    /// events on them.
    fn reconcile(&mut self, reconciler: &Reconciler, served: &Served) {
        let of = &reconciler.of;
        self.allow(of, served, "", &READ);
        if served.status {
            self.allow(of, served, "status", &["patch"]);
        }
        if !reconciler.finalizers.is_empty() {
            self.allow(of, served, "", &["patch"]);
        }
        self.events(of, served);
    }

    /// Allows events on objects. Events are created, and patched when they occur again; their names
    /// are not known beforehand.
    fn events(&mut self, of: &Selection, served: &Served) {
        let namespace =
            if served.namespaced { of.namespace.clone() } else { Some(EVENTS_OF_CLUSTER.into()) };
        for verb in ["create", "patch"] {
            self.add(namespace.clone(), Allowed::new("", "events", None, verb));
        }
    }

    fn write(&mut self, rule: &WriteRule, served: &Served) {
        let (of, verbs) = (&rule.of, rule.verbs);
        if verbs.contains(Verbs::CREATE) && !verbs.contains(Verbs::UPDATE) {
            // A create is a POST, which RBAC cannot restrict to a name.
            self.allow(&Selection { name: None, ..of.clone() }, served, "", &["create"]);
        } else if verbs.contains(Verbs::CREATE) {
            self.allow(of, served, "", &["create"]);
        }
        // Written objects are watched, so that changes by others can be undone.
        self.allow(of, served, "", &WATCH);
        let looked_at = Verbs::CREATE | Verbs::UPDATE | Verbs::DELETE | Verbs::EVICT;
        let others: [(Verbs, &str, &[&'static str]); 4] = [
            // An object that is not watched yet, or was changed by others meanwhile, is read before
            // or after it is written.
            (looked_at, "", &["get"]),
            (Verbs::UPDATE, "", &["patch"]),
            (Verbs::DELETE, "", &["delete"]),
            (Verbs::EVICT, "eviction", &["create"]),
        ];
        for (_, subresource, needed) in others.iter().filter(|(verb, ..)| verbs.intersects(*verb)) {
            self.allow(of, served, subresource, needed);
        }
    }

    fn allow(
        &mut self,
        of: &Selection,
        served: &Served,
        subresource: &str,
        verbs: &[&'static str],
    ) {
        let plural = if of.kind.kind == ANY { ANY } else { &served.plural };
        let resource = match subresource {
            "" => plural.to_owned(),
            subresource => format!("{plural}/{subresource}"),
        };
        let namespace = of.namespace.clone().filter(|_| served.namespaced);
        for verb in verbs {
            let allowed = Allowed::new(&of.kind.group, &resource, of.name.clone(), verb);
            self.add(namespace.clone(), allowed);
        }
    }

    fn add(&mut self, namespace: Option<String>, allowed: Allowed) {
        self.0.entry(namespace).or_default().insert(allowed);
    }

    /// Drops the rights that a wider right includes.
    fn drop_covered(&mut self) {
        let all = self.0.clone();
        for (namespace, allowed) in &mut self.0 {
            let wider = [None, namespace.clone()];
            allowed.retain(|one| {
                let same_place = |place: &Option<String>| place == namespace;
                !wider.iter().any(|place| {
                    let others = all.get(place).into_iter().flatten();
                    let mut others = others.filter(|other| !same_place(place) || *other != one);
                    others.any(|other| other.covers(one))
                })
            });
        }
        self.0.retain(|_, allowed| !allowed.is_empty());
    }

    /// Returns a question to the API server for each of these rights.
    pub fn questions(&self) -> Vec<Question> {
        let of_place = self.0.iter().flat_map(|(namespace, allowed)| {
            allowed.iter().map(move |one| Question {
                cluster: Arc::default(),
                group: one.group.as_str().into(),
                resource: one.resource.as_str().into(),
                verb: one.verb.clone(),
                namespace: namespace.as_deref().map(Into::into),
                name: one.name.as_deref().map(Into::into),
            })
        });
        of_place.collect()
    }

    /// Returns the rules as lines of roles: one a line, in YAML's flow style, after a comment that
    /// names the role.
    pub fn lines(&self) -> String {
        let of_place = self.0.iter().flat_map(|(namespace, allowed)| {
            let head = namespace.as_ref().map_or_else(
                || "# of a ClusterRole".to_owned(),
                |namespace| format!("# of a Role in the namespace {namespace}"),
            );
            let rules = rules(allowed);
            let lines: Vec<String> = rules.iter().map(|of| format!("- {}", rule(of))).collect();
            std::iter::once(head).chain(lines)
        });
        super::granted::bounded(of_place)
    }

    /// Returns the rights that these roles hold and `other` does not. A right of `other` for all
    /// namespaces or names covers each of them.
    #[must_use]
    pub fn beyond(&self, other: &Self) -> Self {
        let covered = |namespace: &Option<String>, allowed: &Allowed| {
            let places = [Some(namespace), Some(&None)];
            let held = places.into_iter().flatten().filter_map(|place| other.0.get(place));
            held.flatten().any(|held| held.covers(allowed))
        };
        let of_place = self.0.iter().map(|(namespace, allowed)| {
            let more = allowed.iter().filter(|allowed| !covered(namespace, allowed));
            (namespace.clone(), more.cloned().collect::<BTreeSet<_>>())
        });
        Self(of_place.filter(|(_, allowed)| !allowed.is_empty()).collect())
    }

    /// Returns whether there is no right.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the roles as objects, each with its binding if there is an account to bind it to.
    pub fn objects(&self, processor: &str, account: Option<&Account>) -> Vec<Value> {
        let name = format!("mortise-{processor}");
        let mut objects = Vec::new();
        for (namespace, allowed) in &self.0 {
            let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
            objects.push(json!({
                "apiVersion": format!("{GROUP}/v1"),
                "kind": kind,
                "metadata": metadata(&name, namespace.as_deref()),
                "rules": rules(allowed).iter().map(rule).collect::<Vec<_>>(),
            }));
            objects.extend(account.map(|account| {
                json!({
                    "apiVersion": format!("{GROUP}/v1"),
                    "kind": format!("{kind}Binding"),
                    "metadata": metadata(&name, namespace.as_deref()),
                    "roleRef": {"apiGroup": GROUP, "kind": kind, "name": name},
                    "subjects": [{"kind": "ServiceAccount", "namespace": account.namespace, "name": account.name}],
                })
            }));
        }
        objects
    }
}

impl FromIterator<Question> for Roles {
    /// Collects rights, so that they can be printed as rules.
    fn from_iter<I: IntoIterator<Item = Question>>(questions: I) -> Self {
        let mut roles = Self::default();
        for Question { cluster: _, group, resource, verb, namespace, name } in questions {
            let (group, resource) = (group.into_string(), resource.into_string());
            let allowed = Allowed { group, resource, name: name.map(Into::into), verb };
            roles.0.entry(namespace.map(Into::into)).or_default().insert(allowed);
        }
        roles
    }
}

// === impl Allowed ===

impl Allowed {
    fn new(group: &str, resource: &str, name: Option<String>, verb: &'static str) -> Self {
        let verb = Cow::Borrowed(verb);
        Self { group: group.to_owned(), resource: resource.to_owned(), name, verb }
    }

    /// Returns whether this right includes the other one, where both hold.
    fn covers(&self, other: &Self) -> bool {
        let group = self.group == other.group || self.group == ANY;
        // `*` stands for all resources with their subresources, `*/status` for the status of all.
        let below = |resource: &str| resource.split_once('/').map(|(_, below)| below.to_owned());
        let is_of_any = self.resource.starts_with("*/");
        let resource = self.resource == ANY
            || self.resource == other.resource
            || (is_of_any && below(&self.resource) == below(&other.resource));
        let name = self.name.is_none() || self.name == other.name;
        group && resource && name && self.verb == other.verb
    }
}

/// Returns the fewest rules that express the rights: names with the same verbs are put together,
/// then resources with the same verbs and names.
fn rules(allowed: &BTreeSet<Allowed>) -> Vec<Rule> {
    let mut verbs: BTreeMap<(&str, &str, Option<&str>), Vec<String>> = BTreeMap::new();
    for one in allowed {
        let of = (one.group.as_str(), one.resource.as_str(), one.name.as_deref());
        verbs.entry(of).or_default().push(one.verb.to_string());
    }
    let mut names: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for ((group, resource, name), verbs) in verbs {
        let together = names.entry((group, resource, name.is_some(), verbs)).or_default();
        together.extend(name.map(str::to_owned));
    }
    let mut resources: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for ((group, resource, _, verbs), names) in names {
        resources.entry((group, names, verbs)).or_default().insert(resource.to_owned());
    }
    let mut rules: Vec<Rule> = resources
        .into_iter()
        .map(|((group, names, verbs), resources)| (group.to_owned(), resources, names, verbs))
        .collect();
    rules.sort();
    rules
}

fn rule((group, resources, names, verbs): &Rule) -> Value {
    let mut rule = json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    if let Some(rule) = rule.as_object_mut().filter(|_| !names.is_empty()) {
        rule.insert("resourceNames".to_owned(), json!(names));
    }
    rule
}

fn metadata(name: &str, namespace: Option<&str>) -> Value {
    let mut metadata = json!({"name": name});
    if let (Some(metadata), Some(namespace)) = (metadata.as_object_mut(), namespace) {
        metadata.insert("namespace".to_owned(), Value::from(namespace));
    }
    metadata
}
