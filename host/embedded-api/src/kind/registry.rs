//! The registry of the served resources.

use super::{
    Arc, BTreeMap, Form, HashMap, Resource, Scale, ScaleSelector, Subresource, api_version,
    by_priority,
    table::{self, Row},
};
use crate::{builtin::address::Addresses, schema::Schema, webhooks::InUse};

/// The served resources, by group and version.
#[derive(Debug, Clone)]
pub(crate) struct Registry {
    groups: HashMap<String, Group>,
    /// The groups in the order of `/apis`: the built-in ones, then the others by name.
    order: Vec<String>,
    addresses: Arc<Addresses>,
    pub(crate) webhooks: Arc<InUse>,
    stamp: u64,
}

/// The versions of one group, the preferred one first.
#[derive(Debug, Clone, Default)]
struct Group {
    built_in: bool,
    versions: Vec<Version>,
}

#[derive(Debug, Clone)]
struct Version {
    name: String,
    resources: BTreeMap<String, Arc<Resource>>,
}

/// A group and its versions, the preferred one first, as discovery shows them.
pub(crate) struct GroupVersions<'a> {
    pub(crate) group: &'a str,
    pub(crate) versions: Vec<&'a str>,
}

// === impl Registry ===

impl Registry {
    /// Returns a registry of the built-in resources only.
    pub(crate) fn new() -> Self {
        let mut registry = Self {
            groups: HashMap::new(),
            order: Vec::new(),
            addresses: Arc::new(Addresses::new()),
            webhooks: Arc::default(),
            stamp: 0,
        };
        for row in table::ROWS {
            registry.add(built_in(row), true);
        }
        registry
    }

    /// Returns the resource that a path names.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.version(group, version)?.resources.get(plural)
    }

    /// Returns the resource of a kind, as an object or an owner reference names it.
    pub(crate) fn find_kind(
        &self,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Option<&Arc<Resource>> {
        self.version(group, version)?.resources.values().find(|resource| resource.kind == kind)
    }

    /// Returns the resource in its storage version, or in the preferred one.
    pub(crate) fn stored(&self, group: &str, plural: &str) -> Option<&Arc<Resource>> {
        let mut versions = self.versions_of(group, plural);
        let first = versions.next()?;
        if first.storage_version == first.version {
            return Some(first);
        }
        Some(
            versions.find(|resource| resource.storage_version == resource.version).unwrap_or(first),
        )
    }

    /// Returns all served versions of a resource, the preferred one first.
    pub(crate) fn versions_of<'a, 'p>(
        &'a self,
        group: &str,
        plural: &'p str,
    ) -> impl Iterator<Item = &'a Arc<Resource>> + use<'a, 'p> {
        let versions = self.groups.get(group).map_or(&[][..], |group| &group.versions);
        versions.iter().filter_map(move |version| version.resources.get(plural))
    }

    #[cfg(test)]
    pub(crate) fn has_group(&self, group: &str) -> bool {
        self.groups.contains_key(group)
    }

    pub(crate) fn has_version(&self, group: &str, version: &str) -> bool {
        self.version(group, version).is_some()
    }

    /// Returns all groups in the order of `/apis`, the core group first.
    pub(crate) fn groups(&self) -> impl Iterator<Item = GroupVersions<'_>> {
        self.order.iter().filter_map(|name| self.group(name))
    }

    /// Returns the versions of a group.
    pub(crate) fn group(&self, name: &str) -> Option<GroupVersions<'_>> {
        let (name, group) = self.groups.get_key_value(name)?;
        let versions = group.versions.iter().map(|version| version.name.as_str()).collect();
        Some(GroupVersions { group: name, versions })
    }

    /// Returns the resources of a version of a group, by name.
    pub(crate) fn resources(
        &self,
        group: &str,
        version: &str,
    ) -> impl Iterator<Item = &Arc<Resource>> {
        self.version(group, version).into_iter().flat_map(|version| version.resources.values())
    }

    /// Returns the served resources in all their versions.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        let groups = self.order.iter().filter_map(|name| self.groups.get(name));
        groups.flat_map(|group| &group.versions).flat_map(|version| version.resources.values())
    }

    /// Serves a kind without a schema.
    pub(crate) fn add_untyped(
        &mut self,
        (group, version): (&str, &str),
        kind: &str,
        plural: &str,
        namespaced: bool,
    ) {
        self.add(untyped((group, version), kind, plural, namespaced), false);
    }

    fn version(&self, group: &str, version: &str) -> Option<&Version> {
        self.groups.get(group)?.versions.iter().find(|candidate| candidate.name == version)
    }

    pub(super) fn next_stamp(&mut self) -> u64 {
        self.stamp += 1;
        self.stamp
    }

    pub(super) fn add(&mut self, mut resource: Resource, built_in: bool) {
        resource.addresses = Arc::clone(&self.addresses);
        resource.webhooks = Arc::clone(&self.webhooks);
        if !self.groups.contains_key(&resource.group) {
            self.insert_group(&resource.group, built_in);
        }
        let Some(group) = self.groups.get_mut(&resource.group) else { return };
        let position = group.versions.iter().position(|version| version.name == resource.version);
        let plural = resource.plural.clone();
        if let Some(version) = position.and_then(|position| group.versions.get_mut(position)) {
            version.resources.insert(plural, Arc::new(resource));
            return;
        }
        let name = resource.version.clone();
        let resources = BTreeMap::from([(plural, Arc::new(resource))]);
        group.versions.push(Version { name, resources });
        group.versions.sort_by(|left, right| by_priority(&left.name, &right.name));
    }

    fn insert_group(&mut self, name: &str, built_in: bool) {
        self.groups.insert(name.to_owned(), Group { built_in, versions: Vec::new() });
        let later = |other: &String| !self.is_built_in(other) && other.as_str() > name;
        let position = if built_in { None } else { self.order.iter().position(later) };
        self.order.insert(position.unwrap_or(self.order.len()), name.to_owned());
    }

    /// Returns whether a group is one of Kubernetes' own.
    pub(crate) fn is_built_in(&self, group: &str) -> bool {
        self.groups.get(group).is_some_and(|group| group.built_in)
    }

    /// Stops serving all versions of a resource, and a group without resources.
    pub(super) fn remove(&mut self, group: &str, plural: &str) {
        let Some(found) = self.groups.get_mut(group) else { return };
        for version in &mut found.versions {
            version.resources.remove(plural);
        }
        found.versions.retain(|version| !version.resources.is_empty());
        if found.versions.is_empty() {
            self.groups.remove(group);
            self.order.retain(|name| name != group);
        }
    }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn built_in(row: &Row) -> Resource {
    let (storage_group, storage_version) = row.stored.unwrap_or((row.group, row.version));
    let subresources = row.subresources.iter().map(|sub| Subresource {
        name: sub.name.to_owned(),
        kind: if sub.kind.is_empty() { row.kind } else { sub.kind }.to_owned(),
        group_version: sub
            .group_version
            .map(|(group, version)| (group.to_owned(), version.to_owned())),
        verbs: sub.verbs,
    });
    let subresources: Vec<_> = subresources.collect();
    let scales = subresources.iter().any(|sub| sub.name == "scale");
    Resource {
        group: row.group.to_owned(),
        version: row.version.to_owned(),
        plural: row.plural.to_owned(),
        singular: row.singular.to_owned(),
        kind: row.kind.to_owned(),
        list_kind: format!("{}List", row.kind),
        short_names: texts(row.short_names),
        categories: texts(row.categories),
        namespaced: row.namespaced,
        storage_group: storage_group.to_owned(),
        storage_version: storage_version.to_owned(),
        verbs: row.verbs,
        subresources,
        scale: scales.then(|| Scale {
            spec_replicas: texts(&["spec", "replicas"]),
            status_replicas: texts(&["status", "replicas"]),
            selector: ScaleSelector::Labels,
        }),
        schema: Schema::built_in(&api_version(row.group, row.version), row.kind)
            .unwrap_or_else(Schema::untyped),
        form: Form::BuiltIn(row.definition),
        addresses: Arc::default(),
        webhooks: Arc::default(),
    }
}

fn untyped((group, version): (&str, &str), kind: &str, plural: &str, namespaced: bool) -> Resource {
    Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        plural: plural.to_owned(),
        singular: kind.to_lowercase(),
        kind: kind.to_owned(),
        list_kind: format!("{kind}List"),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced,
        storage_group: group.to_owned(),
        storage_version: version.to_owned(),
        verbs: table::ALL,
        subresources: vec![Subresource {
            name: "status".to_owned(),
            kind: kind.to_owned(),
            group_version: None,
            verbs: table::READ_AND_CHANGE,
        }],
        scale: None,
        schema: Schema::untyped(),
        form: Form::Untyped,
        addresses: Arc::default(),
        webhooks: Arc::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::Registry;

    #[test]
    fn a_kind_without_description_is_served_until_it_is_removed() {
        let mut registry = Registry::new();
        registry.add_untyped(("b.example.dev", "v1beta1"), "Widget", "widgets", true);
        registry.add_untyped(("a.example.dev", "v1"), "Gadget", "gadgets", false);
        registry.add_untyped(("b.example.dev", "v1"), "Widget", "widgets", true);
        let groups: Vec<_> = registry.groups().map(|group| group.group.to_owned()).collect();
        assert_eq!(
            &groups[groups.len() - 3..],
            ["discovery.k8s.io", "a.example.dev", "b.example.dev"]
        );
        assert_eq!(registry.group("b.example.dev").unwrap().versions, ["v1", "v1beta1"]);
        assert!(registry.find("b.example.dev", "v1beta1", "widgets").is_some());
        registry.remove("b.example.dev", "widgets");
        assert!(!registry.has_group("b.example.dev"));
        assert!(registry.has_group("a.example.dev"));
    }

    #[test]
    fn built_in_resources_are_found_by_path_and_by_kind() {
        let registry = Registry::new();
        let deployment = registry.find("apps", "v1", "deployments").unwrap();
        assert!(deployment.has_status() && deployment.scale.is_some());
        assert_eq!(registry.find_kind("", "v1", "Endpoints").unwrap().plural, "endpoints");
        assert_eq!(
            registry.find("events.k8s.io", "v1", "events").unwrap().storage_key(),
            ("", "events")
        );
    }
}
