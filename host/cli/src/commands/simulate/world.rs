//! The cluster of a simulation: an API in memory with the given CRDs and objects.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use mortise_embedded_api::EmbeddedApi;
use serde_json::{Value, json};

use super::{Input, Missing};
use crate::{local, print};
use mortise_core::{
    contract::{Description, Kind},
    grant::display_kind,
    write::Clock,
};
use mortise_host::cluster::Cluster;

/// The seed of uids.
const SEED: u64 = 0;

/// The identity of an object, whatever its version: group, kind, namespace, name.
type Identity = [String; 4];

/// A cluster in memory, with a record of the objects that the user gave.
pub struct World {
    /// The API in memory.
    pub api: EmbeddedApi,
    /// The API as a host sees it.
    pub cluster: Cluster,
    /// Kinds that are served without a schema.
    pub untyped: Vec<Kind>,
    /// Notes for the user.
    pub notes: Vec<String>,
    given: BTreeSet<Identity>,
    /// The objects that the API and this module have made themselves, and that the user did not ask
    /// for.
    hidden: BTreeSet<Identity>,
}

// === impl World ===

impl World {
    /// Loads CRDs, namespaces and objects.
    ///
    /// # Errors
    ///
    /// Fails for objects that the API refuses, and for a missing kind that is unknown or that every
    /// cluster has.
    pub async fn load(
        description: &Description,
        input: &Input,
        clock: &Clock,
    ) -> anyhow::Result<Self> {
        let api = EmbeddedApi::new(mortise_embedded_api::Options {
            now: Clock::clone(clock),
            seed: Some(SEED),
            ..Default::default()
        });
        let all = input.crds.iter().chain(&input.objects);
        let missing = Missing::find(&api, description, all.clone(), &input.missing_kinds)?;
        let objects = all.filter(|object| !missing.takes(object)).cloned().collect();
        let mut world = Self {
            cluster: Cluster::new(kube::Client::new(api.router(), "default")),
            api,
            untyped: Vec::new(),
            notes: left_out(&missing, &input.objects),
            given: input.objects.iter().map(identity).collect(),
            hidden: BTreeSet::new(),
        };
        world.fill(description, objects, &missing, input.validate).await?;
        let made = world.api.objects().iter().map(identity).collect::<BTreeSet<_>>();
        world.hidden = made.difference(&world.given).cloned().collect();
        Ok(world)
    }

    async fn fill(
        &mut self,
        description: &Description,
        mut objects: Vec<Value>,
        missing: &Missing,
        validate: bool,
    ) -> anyhow::Result<()> {
        objects.sort_by_key(local::rank);
        let split = objects.partition_point(|object| local::rank(object) < 2);
        let rest = objects.split_off(split);
        local::apply(&self.cluster, objects).await?;
        self.untyped = local::serve_untyped(&self.api, description, |kind| missing.holds(kind));
        self.add_namespaces(&rest)?;
        for object in rest {
            self.put(object, validate)?;
        }
        Ok(())
    }

    /// Adds the namespaces of the objects, so that users need not write them down.
    fn add_namespaces(&self, objects: &[Value]) -> anyhow::Result<()> {
        let there: BTreeSet<String> = self.api.objects().iter().filter_map(namespace).collect();
        let named = |object: &Value| {
            object.pointer("/metadata/namespace").and_then(Value::as_str).map(str::to_owned)
        };
        let needed: BTreeSet<String> = objects.iter().filter_map(named).collect();
        for name in needed.difference(&there) {
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            self.put(namespace, true)?;
        }
        Ok(())
    }

    fn put(&self, object: Value, validate: bool) -> anyhow::Result<()> {
        let title = print::title(&object);
        let kind = local::kind_of(&object);
        let is_served = self.api.serves(&kind.group, &kind.version, &kind.kind);
        let hint = if is_served { "" } else { " (--crds names the folder of its CRD)" };
        self.api.load(object, validate).with_context(|| format!("{title} is refused{hint}"))
    }

    /// Returns the objects that matter to a user, in the version that kubectl would show, without
    /// the managed fields of server-side apply.
    pub fn visible(&self) -> Vec<Value> {
        let mut objects = self.api.objects();
        objects.retain(|object| !self.hidden.contains(&identity(object)));
        for object in &mut objects {
            self.in_preferred_version(object);
            super::end::drop_managed_fields(object);
        }
        objects
    }

    /// Changes an object to the version in which its kind is shown if no version is asked for.
    pub fn in_preferred_version(&self, object: &mut Value) {
        let kind = local::kind_of(object);
        let preferred = self.api.preferred_version(&kind.group, &kind.kind);
        // Versions of a kind differ only in their names here.
        if let (Some(version), Some(object)) = (preferred, object.as_object_mut()) {
            let version =
                if kind.group.is_empty() { version } else { format!("{}/{version}", kind.group) };
            object.insert("apiVersion".to_owned(), Value::from(version));
        }
    }

    /// Returns whether the user gave the object.
    pub fn was_given(&self, object: &Value) -> bool {
        self.given.contains(&identity(object))
    }
}

/// Returns notes about objects whose kinds are missing.
fn left_out(missing: &Missing, objects: &[Value]) -> Vec<String> {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for kind in objects.iter().map(local::kind_of).filter(|kind| missing.holds(kind)) {
        *kinds.entry(display_kind(&kind)).or_default() += 1;
    }
    let note = |(kind, count): (&String, &usize)| {
        let objects = if *count == 1 { "object is" } else { "objects are" };
        format!("{count} {objects} left out: {kind} is missing")
    };
    kinds.iter().map(note).collect()
}

/// Returns the name of an object if it is a Namespace.
fn namespace(object: &Value) -> Option<String> {
    let is_one = object.get("kind").and_then(Value::as_str) == Some("Namespace");
    object.pointer("/metadata/name").filter(|_| is_one).and_then(Value::as_str).map(str::to_owned)
}

/// Returns an object's identity. Objects without a namespace are loaded into `default` if their
/// kind has namespaces.
fn identity(object: &Value) -> Identity {
    let text = |pointer: &str| {
        object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let kind = local::kind_of(object);
    let namespace = match text("/metadata/namespace") {
        none if none.is_empty() => "default".to_owned(),
        namespace => namespace,
    };
    [kind.group, kind.kind, namespace, text("/metadata/name")]
}
