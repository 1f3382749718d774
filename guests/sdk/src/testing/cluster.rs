//! A Kubernetes API in memory, called without an async runtime, and the changes to it that do not
//! come from a processor.

mod change;
mod request;
mod untyped;

pub use change::Write;

use std::{collections::BTreeSet, fmt, sync::Arc};

use jiff::Timestamp;
use mortise_core::{api::Method, contract};
use mortise_embedded_api::{EmbeddedApi, Options};
use parking_lot::Mutex;
use serde_json::{Value, json};

use self::request::Served;
use super::identity::{Identity, reference_of, text};
use crate::Kind;

/// `{}` in base64.
const NO_KUBECONFIG: &str = "e30=";

/// A cluster in memory: its API, its time, and the kinds that it knows. Clones share API and time.
#[derive(Clone)]
pub struct Cluster {
    /// The name; empty for the home cluster.
    name: Arc<str>,
    api: EmbeddedApi,
    now: Arc<Mutex<Timestamp>>,
    /// The definitions of kinds, installed or not.
    definitions: Vec<Value>,
    /// The objects that no test gave: the API's own namespaces, the definitions, and the namespaces
    /// that were created for objects.
    hidden: BTreeSet<Identity>,
    /// The kinds that discovery returned, by group and version, for one revision of the
    /// definitions.
    served: Arc<Mutex<Served>>,
}

// === impl Cluster ===

impl Cluster {
    /// Creates the home cluster at a time.
    ///
    /// It knows the built-in kinds, the kinds that `crds` define and, without a schema, the other
    /// declared `kinds`. The kinds in `missing` (`plural.group`) are not installed.
    ///
    /// # Errors
    ///
    /// The API refuses a definition, or no definition has a name in `missing`.
    pub fn new(
        now: Timestamp,
        crds: &[Value],
        kinds: &[contract::Kind],
        missing: &[String],
    ) -> Result<Self, String> {
        Self::with("", Arc::new(Mutex::new(now)), crds, kinds, missing)
    }

    /// Creates another cluster, which has the time of this one; otherwise as [`Cluster::new`].
    ///
    /// # Errors
    ///
    /// Fails as [`Cluster::new`] does.
    pub fn beside(
        &self,
        name: &str,
        crds: &[Value],
        kinds: &[contract::Kind],
        missing: &[String],
    ) -> Result<Self, String> {
        Self::with(name, Arc::clone(&self.now), crds, kinds, missing)
    }

    fn with(
        name: &str,
        now: Arc<Mutex<Timestamp>>,
        crds: &[Value],
        kinds: &[contract::Kind],
        missing: &[String],
    ) -> Result<Self, String> {
        let clock = Arc::clone(&now);
        let api = EmbeddedApi::new(Options {
            now: Arc::new(move || *clock.lock()),
            ..Options::default()
        });
        let hidden = api.objects().iter().map(Identity::of).collect();
        let (name, definitions, served) = (name.into(), crds.to_vec(), Arc::default());
        let mut cluster = Self { name, api, now, definitions, hidden, served };
        let untyped = cluster.untyped(kinds);
        cluster.definitions.extend(untyped);
        cluster.hidden.extend(cluster.definitions.iter().map(Identity::of));
        cluster.set_missing(missing)?;
        Ok(cluster)
    }

    /// Returns definitions without a schema for the declared kinds that no other definition covers.
    fn untyped(&self, declared: &[contract::Kind]) -> Vec<Value> {
        let mut kinds: Vec<(Kind, Vec<String>)> = Vec::new();
        for kind in declared {
            let is_defined = |definition: &Value| {
                text(definition, "/spec/group") == kind.group
                    && text(definition, "/spec/names/kind") == kind.kind
            };
            if self.api.serves(&kind.group, &kind.version, &kind.kind)
                || self.definitions.iter().any(is_defined)
            {
                continue;
            }
            let of =
                |(held, _): &&mut (Kind, _)| (&held.group, &held.kind) == (&kind.group, &kind.kind);
            match kinds.iter_mut().find(of) {
                Some((_, versions)) if versions.contains(&kind.version) => {}
                Some((_, versions)) => versions.push(kind.version.clone()),
                None => kinds.push((kind.clone().into(), vec![kind.version.clone()])),
            }
        }
        kinds.iter().map(|(kind, versions)| untyped::definition(kind, versions)).collect()
    }

    /// Returns the name; empty for the home cluster.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the same cluster under another name.
    #[must_use]
    pub fn named(&self, name: &str) -> Self {
        Self { name: name.into(), ..self.clone() }
    }

    /// Returns the API, for clients.
    pub fn api(&self) -> &EmbeddedApi {
        &self.api
    }

    /// Returns the identity of the cluster: the uid of its namespace `kube-system`.
    pub(super) fn uid(&self) -> String {
        let namespace = self.send(Method::Get, "/api/v1/namespaces/kube-system", None);
        namespace.map(|answer| text(&answer.body, "/metadata/uid").to_owned()).unwrap_or_default()
    }

    /// Returns the present time of the cluster.
    pub fn now(&self) -> Timestamp {
        *self.now.lock()
    }

    /// Moves the time of the cluster forward.
    pub fn advance(&self, by: std::time::Duration) {
        let mut now = self.now.lock();
        *now = now
            .saturating_add(jiff::SignedDuration::try_from(by).unwrap_or(jiff::SignedDuration::MAX))
            .unwrap_or(Timestamp::MAX);
    }

    /// Stores objects as if they had existed before, and creates their namespaces. With `validate`,
    /// the objects must be valid under their schemas. Definitions of kinds are stored first,
    /// regardless of their order.
    ///
    /// # Errors
    ///
    /// The first object that the API refuses, by name.
    pub fn load(
        &mut self,
        objects: impl IntoIterator<Item = Value>,
        validate: bool,
    ) -> Result<(), String> {
        let mut objects: Vec<Value> = objects.into_iter().collect();
        objects.sort_by_key(|object| object["kind"] != "CustomResourceDefinition");
        for object in objects {
            self.add_namespace(&object)?;
            // A given object belongs to the case, so it is not hidden.
            self.hidden.remove(&Identity::of(&object));
            let title = Identity::of(&object);
            self.api
                .load(object, validate)
                .map_err(|failure| format!("{title} is refused: {}", failure.message()))?;
        }
        Ok(())
    }

    fn add_namespace(&mut self, of: &Value) -> Result<(), String> {
        let name = text(of, "/metadata/namespace");
        let path = format!("/api/v1/namespaces/{name}");
        if name.is_empty() || self.send(Method::Get, &path, None).is_ok() {
            return Ok(());
        }
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.hidden.insert(Identity::of(&namespace));
        self.api.load(namespace, true).map_err(|failure| failure.message().to_owned())
    }

    /// Adds the Secret by which another cluster is named, unless it is there. It holds no kubeconfig
    /// that could be used.
    pub(super) fn add_kubeconfig(&mut self, cluster: &str) -> Result<(), String> {
        let wrong = || format!("`{cluster}`: NAMESPACE/NAME/KEY of a Secret is expected");
        let (namespace, rest) = cluster.split_once('/').ok_or_else(wrong)?;
        let (name, key) = rest.split_once('/').ok_or_else(wrong)?;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": {key: NO_KUBECONFIG},
            "metadata": {"namespace": namespace, "name": name},
        });
        if self.get(&reference_of(&secret)).is_some() {
            return Ok(());
        }
        self.add_namespace(&secret)?;
        self.hidden.insert(Identity::of(&secret));
        self.api.load(secret, true).map_err(|failure| failure.message().to_owned())
    }

    /// Returns the objects as they are stored, without the API's own namespaces, definitions, and
    /// namespaces that no test gave.
    pub fn objects(&self) -> Vec<Value> {
        let mut objects = self.api.objects();
        objects.retain(|object| !self.hidden.contains(&Identity::of(object)));
        objects
    }

    /// Installs every known kind except these (`plural.group`), and removes these kinds together
    /// with their objects.
    ///
    /// # Errors
    ///
    /// No definition has one of the names, or the API refuses a definition.
    pub fn set_missing(&self, missing: &[String]) -> Result<(), String> {
        let name = |definition: &Value| text(definition, "/metadata/name").to_owned();
        let known: Vec<String> = self.definitions.iter().map(name).collect();
        if let Some(unknown) = missing.iter().find(|name| !known.contains(name)) {
            let known = known.join("`, `");
            return Err(format!(
                "missing: no kind is defined as `{unknown}`; defined are `{known}`"
            ));
        }
        for definition in &self.definitions {
            let name = name(definition);
            let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
            let is_there = self.send(Method::Get, &path, None).is_ok();
            if is_there && missing.contains(&name) {
                self.send(Method::Delete, &path, None).map_err(|refusal| refusal.message)?;
            } else if !is_there && !missing.contains(&name) {
                let loaded = self.api.load(definition.clone(), true);
                loaded.map_err(|failure| format!("{name} is refused: {}", failure.message()))?;
            }
        }
        Ok(())
    }

    /// Returns the names of the definitions of these groups and kinds; kinds without a definition
    /// are left out.
    pub(super) fn names_of(&self, kinds: &BTreeSet<(String, String)>) -> Vec<String> {
        let is_meant = |definition: &&Value| {
            let part = |pointer| text(definition, pointer).to_owned();
            kinds.contains(&(part("/spec/group"), part("/spec/names/kind")))
        };
        let meant = self.definitions.iter().filter(is_meant);
        meant.map(|definition| text(definition, "/metadata/name").to_owned()).collect()
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("name", &self.name)
            .field("api", &self.api)
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::identity::Pattern;

    /// A new action does not compile in the match, and belongs into the list above it, too.
    #[test]
    fn each_write_of_an_outcome_can_be_refused_by_a_documented_verb() {
        use contract::Action::{Apply, Delete, Evict, Finalize, Patch, Prune, Status};
        for action in [Apply, Patch, Evict, Delete, Prune, Finalize, Status] {
            let verb = match action {
                Apply | Patch | Finalize => Write::Apply,
                Status => Write::Status,
                Delete | Prune => Write::Delete,
                Evict => Write::Evict,
            };
            let row = format!("//! | `{}` |", format!("{verb:?}").to_lowercase());
            assert!(include_str!("case.rs").contains(&row), "{row}");
        }
    }

    #[test]
    fn kinds_come_and_go() {
        let thing = Kind::new("example.com", "v1", "Thing");
        let kinds = [thing.clone().into()];
        let missing = ["things.example.com".to_owned()];
        let mut cluster = Cluster::new(Timestamp::UNIX_EPOCH, &[], &kinds, &missing).unwrap();
        let object = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a", "namespace": "shop"}, "any": 1});
        assert_eq!(cluster.resource(&thing.clone().into()), None);
        let error = cluster.load([object.clone()], true).unwrap_err();
        assert!(error.contains("Thing/shop/a is refused: no matches for kind"), "{error}");
        cluster.set_missing(&[]).unwrap();
        cluster.load([object], true).unwrap();
        assert_eq!(cluster.objects().len(), 1, "neither the definition nor the namespace");
        cluster.set_missing(&missing).unwrap();
        assert_eq!((cluster.objects(), cluster.resource(&thing.clone().into())), (vec![], None));
        let error = cluster.set_missing(&["thing.example.com".to_owned()]).unwrap_err();
        assert!(error.contains("`thing.example.com`; defined are `things.example.com`"), "{error}");
    }

    #[test]
    fn an_object_may_be_given_before_the_definition_of_its_kind() {
        let mut cluster = Cluster::new(Timestamp::UNIX_EPOCH, &[], &[], &[]).unwrap();
        let kind = Kind::new("example.com", "v1", "Late");
        let definition = untyped::definition(&kind, &["v1".to_owned()]);
        let object = json!({"apiVersion": "example.com/v1", "kind": "Late", "metadata": {"name": "a", "namespace": "shop"}});
        cluster.load([object, definition], true).unwrap();
        assert!(cluster.resource(&kind.into()).is_some());
    }

    #[test]
    fn people_change_objects_and_their_status() {
        let mut cluster = Cluster::new(Timestamp::UNIX_EPOCH, &[], &[], &[]).unwrap();
        let pod = |extra: Value| {
            let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "shop"}});
            json_patch::merge(&mut pod, &extra);
            pod
        };
        cluster
            .apply(&pod(json!({"spec": {"containers": [{"name": "a", "image": "b"}]}})))
            .unwrap();
        cluster.patch(&pod(json!({"status": {"phase": "Running"}}))).unwrap();
        cluster
            .patch(&pod(json!({"metadata": {"labels": {"a": "b"}}, "status": {"reason": "x"}})))
            .unwrap();
        let held = cluster.get(&reference_of(&pod(json!({})))).unwrap();
        assert_eq!(held["status"]["phase"], "Running");
        assert_eq!(
            (&held["status"]["reason"], &held["metadata"]["labels"]["a"]),
            (&json!("x"), &json!("b"))
        );
        cluster.delete(&Pattern::parse("Pod/*/a").unwrap()).unwrap();
        assert_eq!(cluster.get(&reference_of(&pod(json!({})))), None);
        let error = cluster.delete(&Pattern::parse("Pod/shop/a").unwrap()).unwrap_err();
        assert_eq!(error, "delete: there is no Pod/shop/a");
    }
}
