//! The cluster of a simulation: an API in memory with the given CRDs and objects.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use anyhow::Context as _;
use mortise_core::{
    contract::{self, Description, Kind, display_kind, hooks::serve_converted},
    write::Clock,
};
use mortise_embedded_api::EmbeddedApi;
use mortise_host::{
    cluster::Cluster,
    host::{Host, Loaded},
};
use mortise_sdk::testing::identity::Identity;
use serde_json::{Value, json};

use super::{Input, Missing, end::InVersion, others::Others};
use crate::{
    hooks::{self, Hooks},
    local, print, remotes,
};

pub(super) const UID_SEED: u64 = 0;

/// A cluster in memory, with a record of the objects that the user gave.
pub struct World {
    /// The API in memory.
    pub api: EmbeddedApi,
    /// The API's client, as used by a host.
    pub cluster: Cluster,
    /// The other clusters.
    pub(super) others: Others,
    /// Kinds that are served without a schema.
    pub untyped: Vec<Kind>,
    /// Notes for the user.
    pub notes: Vec<String>,
    given: BTreeSet<Identity>,
    /// The hooks of the processor; `None` if it has none.
    hooks: Option<Arc<Hooks>>,
    /// The objects created by the API and by this module, not by the user.
    hidden: BTreeSet<Identity>,
}

// === impl World ===

impl World {
    /// Loads CRDs, namespaces and objects, with the help of the hooks of a processor that
    /// reconciles them.
    ///
    /// # Errors
    ///
    /// Fails for objects that the API refuses, and for a missing kind that is unknown or that every
    /// cluster has.
    pub async fn load(loaded: &Loaded, input: &Input, clock: &Clock) -> anyhow::Result<Self> {
        let description = &loaded.description;
        let api = EmbeddedApi::new(mortise_embedded_api::Options {
            now: Clock::clone(clock),
            seed: Some(UID_SEED),
            ..Default::default()
        });
        let secrets = input.clusters.iter();
        let secrets = secrets.flat_map(|of| remotes::secret(&of.cluster, remotes::SERVER));
        let given: BTreeSet<Identity> = input.objects.iter().map(identity).collect();
        let secrets: Vec<Value> = secrets.filter(|of| !given.contains(&identity(of))).collect();
        let all = input.crds.iter().chain(&secrets).chain(&input.objects);
        let missing = Missing::find(&api, description, all.clone(), &input.missing_kinds)?;
        let mut objects: Vec<Value> =
            all.filter(|object| !missing.takes(object)).cloned().collect();
        let hooks = hooks_of(&api, loaded, clock)?;
        let served = objects.iter_mut();
        let served = served.flat_map(|object| serve_converted(object, &loaded.hooks));
        let served: Vec<String> = served.collect();
        let mut world = Self {
            cluster: Cluster::new(kube::Client::new(api.router(), "default")),
            others: Others::load(&input.clusters, &input.crds, clock)?,
            api,
            untyped: Vec::new(),
            notes: not_loaded(&missing, &input.objects),
            given,
            hooks,
            hidden: BTreeSet::new(),
        };
        if !served.is_empty() {
            world.notes.push(hooks::served_note(&served));
        }
        world.fill(description, objects, &missing, input.validate).await?;
        world.hidden = not_given(&world.api, &world.given);
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

    /// Answers webhooks with the hooks of the processor that a host runs.
    pub fn follow(&self, host: &Host, processor: Arc<str>) {
        if let Some(hooks) = &self.hooks {
            hooks.follow(host, &[processor]);
        }
    }

    /// Returns the objects of converted kinds in those of their versions in which
    /// [`World::visible`] does not show them.
    pub fn in_other_versions(&self, hooks: &contract::hooks::Hooks) -> Vec<InVersion> {
        let mut all = Vec::new();
        // In their stored form: a conversion to another version may lose fields.
        for object in self.stored() {
            let kind = local::kind_of(&object);
            let of = hooks.converted(&kind.group, &kind.kind);
            let shown = self.api.preferred_version(&kind.group, &kind.kind);
            let versions = of.map_or(&[][..], |of| &of.versions).iter();
            let others = versions.filter(|version| {
                shown.as_ref() != Some(version) && self.api.serves(&kind.group, version, &kind.kind)
            });
            all.extend(others.map(|version| {
                let shown = self.api.in_version(&object, version);
                InVersion::new(&object, version, shown.map_err(|error| error.to_string()))
            }));
        }
        all
    }

    /// Returns the objects that matter to a user, in the version that kubectl would show, without
    /// the managed fields of server-side apply.
    pub fn visible(&self) -> Vec<Value> {
        let mut objects = self.stored();
        for object in &mut objects {
            self.in_preferred_version(object);
            super::end::drop_managed_fields(object);
        }
        objects
    }

    fn stored(&self) -> Vec<Value> {
        without(&self.api, &self.hidden)
    }

    /// Converts an object to the version in which its kind is served by default. An object that
    /// cannot be converted stays as it is.
    pub fn in_preferred_version(&self, object: &mut Value) {
        let kind = local::kind_of(object);
        let preferred = self.api.preferred_version(&kind.group, &kind.kind);
        let shown = preferred.map(|version| self.api.in_version(object, &version));
        if let Some(Ok(shown)) = shown {
            *object = shown;
        }
    }

    /// Returns whether the user gave the object.
    pub fn was_given(&self, object: &Value) -> bool {
        self.given.contains(&identity(object))
    }
}

/// Returns the webhooks of an API, if the processor has hooks.
fn hooks_of(
    api: &EmbeddedApi,
    loaded: &Loaded,
    clock: &Clock,
) -> anyhow::Result<Option<Arc<Hooks>>> {
    if loaded.hooks.is_empty() {
        return Ok(None);
    }
    let hooks = Hooks::of_api(api)?;
    hooks.begin(loaded, clock)?;
    Ok(Some(hooks))
}

/// Returns notes about objects whose kinds are missing.
fn not_loaded(missing: &Missing, objects: &[Value]) -> Vec<String> {
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

/// Returns the objects of an API that a user has not given.
pub(super) fn not_given(api: &EmbeddedApi, given: &BTreeSet<Identity>) -> BTreeSet<Identity> {
    let there: BTreeSet<Identity> = api.objects().iter().map(identity).collect();
    there.difference(given).cloned().collect()
}

/// Returns the objects of an API but for hidden ones.
pub(super) fn without(api: &EmbeddedApi, hidden: &BTreeSet<Identity>) -> Vec<Value> {
    let mut objects = api.objects();
    objects.retain(|object| !hidden.contains(&identity(object)));
    objects
}

/// Returns an object's identity. Objects without a namespace are loaded into `default` if their
/// kind has namespaces.
pub(super) fn identity(object: &Value) -> Identity {
    let mut of = Identity::of(object);
    if of.namespace.is_empty() {
        "default".clone_into(&mut of.namespace);
    }
    of
}
