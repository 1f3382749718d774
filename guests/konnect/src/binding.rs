//! The bindings that the annotation `konghq.com/plugins` asks for.
//!
//! A `KongPlugin` is bound to the services, routes, consumers and groups of its namespace whose
//! annotation names it: within each control plane to each consumer, or else each group, together
//! with each service and each route; without consumers and groups to services and routes alone;
//! without services and routes to consumers or groups alone. Each combination has one
//! `KongPluginBinding`, which the plugin owns.

use std::collections::BTreeSet;

use mortise_sdk::{
    Deletion, Error, Event, Failure, Host, Manifest, ObjectRef, Outcome, Request, derived_name,
};
use serde_json::{Map, Value, json};

use crate::kind::{self, BINDING, CONFIGURATION, Entity, PLUGIN, Reference, at, text};

/// The finalizer of a plugin while a binding names it.
pub(crate) const IN_USE: &str = "gateway.konghq.com/plugin-in-use";
/// The finalizer of a target while a binding that was made for a plugin names it.
pub(crate) const CLEANUP: &str = "gateway.konghq.com/cleanup-plugin-binding";
/// The annotation with the names of plugins, separated by commas.
pub(crate) const PLUGINS: &str = r#"metadata.annotations["konghq.com/plugins"]"#;
/// The kinds that plugins are bound to, each with its field in `spec.targets`.
pub(crate) const TARGETS: [(&str, &str); 4] = [
    ("KongService", "serviceRef"),
    ("KongRoute", "routeRef"),
    ("KongConsumer", "consumerRef"),
    ("KongConsumerGroup", "consumerGroupRef"),
];

/// The most bindings of a plugin. Their number is a product: 100 consumers and 100 services would
/// make 10,000 entities.
const MOST: usize = 2_000;
/// The fields of bindings that are read.
pub(crate) const FIELDS: [&str; 3] = ["metadata.ownerReferences", "metadata.finalizers", "spec"];

/// Namespace and name of a control plane.
type ControlPlane = (String, String);

/// The targets of a plugin in one control plane, by name.
#[derive(Debug, Default, PartialEq, Eq)]
struct Targets {
    services: BTreeSet<String>,
    routes: BTreeSet<String>,
    consumers: BTreeSet<String>,
    groups: BTreeSet<String>,
}

/// The fields of `spec.targets`, with names.
type Combination = Vec<(&'static str, String)>;

/// Reconciles a `KongPlugin`: keeps its bindings, and holds it while a binding names it.
pub(crate) fn reconcile(request: &Request, host: &Host) -> Result<Outcome, Failure> {
    let Some(plugin) = request.object::<Value>()? else { return Ok(Outcome::new()) };
    if !request.failed_writes.is_empty() {
        return Ok(Outcome::new());
    }
    let run = Run { host, plugin: &plugin };
    let bindings = run.bindings()?;
    let wanted = match run.wanted()? {
        Ok(wanted) => wanted,
        Err(count) => {
            let message = format!(
                "the plugin would have {count} bindings, at most {MOST} are made: name it at fewer \
                 objects"
            );
            let event = Event::warning("TooManyBindings", message.clone());
            return Err(Failure::new(message).event(event).retry_on_change());
        }
    };
    Ok(run.outcome(&bindings, &wanted))
}

/// Reconciles a target: holds it while a binding that was made for a plugin names it. The plugin
/// deletes the bindings of a target that is being deleted.
pub(crate) fn hold_target(request: &Request, host: &Host) -> Result<Outcome, Failure> {
    let Some(target) = request.object::<Value>()? else { return Ok(Outcome::new()) };
    let kind = request.ref_.kind.kind.as_str();
    let field = TARGETS.into_iter().find(|(of, _)| *of == kind).map(|(_, field)| field);
    let field = field.ok_or_else(|| Failure::new(format!("`{kind}` is not a target")))?;
    let path = format!("spec.targets.{field}.name");
    let of = BINDING.selection().namespace(own(&target, "namespace"));
    let of = of.matching(path, own(&target, "name")).fields(["metadata.ownerReferences"]);
    let bindings: Vec<Value> = host.list(&of)?;
    Ok(held(&target, CLEANUP, bindings.iter().any(is_managed)))
}

/// Returns an outcome that holds an object, or no longer. A finalizer cannot be added to an object
/// that is being deleted.
pub(crate) fn held(object: &Value, finalizer: &'static str, is_used: bool) -> Outcome {
    let finalizers = at(object, "metadata.finalizers").and_then(Value::as_array);
    let is_held = finalizers.is_some_and(|all| all.iter().any(|one| one == finalizer));
    let is_used = is_used && (is_held || !is_deleted(object));
    Outcome::new().finalizers(is_used.then_some(finalizer))
}

struct Run<'a> {
    host: &'a Host,
    plugin: &'a Value,
}

impl Run<'_> {
    fn namespace(&self) -> &str {
        own(self.plugin, "namespace")
    }

    fn name(&self) -> &str {
        own(self.plugin, "name")
    }

    /// Returns the bindings of all namespaces that name the plugin.
    fn bindings(&self) -> Result<Vec<Value>, Error> {
        let of = BINDING.selection().matching("spec.pluginRef.name", self.name()).fields(FIELDS);
        let mut bindings: Vec<Value> = self.host.list(&of)?;
        bindings.retain(|binding| {
            let namespace = text(binding, "spec.pluginRef.namespace");
            let is_plugin = text(binding, "spec.pluginRef.kind").is_none_or(|of| of == PLUGIN.kind);
            let namespace = namespace.filter(|namespace| !namespace.is_empty());
            let namespace = namespace.unwrap_or_else(|| own(binding, "namespace"));
            is_plugin && namespace == self.namespace()
        });
        Ok(bindings)
    }

    /// Returns the specs of the wanted bindings, or their number if there are too many.
    fn wanted(&self) -> Result<Result<Vec<Value>, usize>, Error> {
        if is_deleted(self.plugin) {
            return Ok(Ok(Vec::new()));
        }
        let all = self.targets()?;
        let count: usize = all.iter().map(|(_, targets)| targets.count()).sum();
        if count > MOST {
            return Ok(Err(count));
        }
        let specs = all.iter().flat_map(|(control_plane, targets)| {
            let combinations = targets.combinations().into_iter();
            combinations.map(|combination| self.spec(control_plane, &combination))
        });
        Ok(Ok(specs.collect()))
    }

    /// Returns the targets that name the plugin, by control plane.
    fn targets(&self) -> Result<Vec<(ControlPlane, Targets)>, Error> {
        let mut all: Vec<(ControlPlane, Targets)> = Vec::new();
        for (kind, field) in TARGETS {
            let Some(entity) = kind::find(kind) else { continue };
            let paths = entity.parents().map(|reference| reference.at).chain([PLUGINS]);
            let of = entity.selection().namespace(self.namespace()).fields(paths);
            let mut targets: Vec<Value> = self.host.list(&of)?;
            targets.retain(|target| !is_deleted(target) && names_plugin(target, self.name()));
            for target in targets {
                let Some(control_plane) = self.control_plane(entity, &target)? else { continue };
                let at = all.iter().position(|(of, _)| *of == control_plane);
                let at = at.unwrap_or_else(|| {
                    all.push((control_plane, Targets::default()));
                    all.len() - 1
                });
                if let Some((_, targets)) = all.get_mut(at) {
                    targets.add(field, own(&target, "name"));
                }
            }
        }
        Ok(all)
    }

    /// Returns the control plane of a target: its own, or that of its service.
    fn control_plane(
        &self,
        entity: &Entity,
        target: &Value,
    ) -> Result<Option<ControlPlane>, Error> {
        let named = |reference: &Reference, object: &Value| {
            let name = reference.names(object).into_iter().next();
            name.map(|name| (name.namespace, name.name))
        };
        for reference in entity.parents() {
            let Some(found) = named(reference, target) else { continue };
            if reference.id == "controlPlaneID" {
                return Ok(Some(found));
            }
            let Some(parent) = kind::find(reference.to) else { continue };
            let Some(above) = parent.parents().next() else { continue };
            let parent = parent.object(&found.0, &found.1);
            let parent: Option<Value> = self.host.get_ref(&parent, &[above.at])?;
            return Ok(parent.and_then(|parent| named(above, &parent)));
        }
        Ok(None)
    }

    /// Returns the spec of a binding.
    fn spec(&self, (namespace, name): &ControlPlane, combination: &Combination) -> Value {
        let mut control_plane = Map::from_iter([("name".to_owned(), json!(name))]);
        if namespace != self.namespace() {
            control_plane.insert("namespace".to_owned(), json!(namespace));
        }
        let targets: Map<String, Value> = combination
            .iter()
            .map(|(field, name)| {
                let kind = TARGETS.into_iter().find(|(_, of)| of == field).map(|(kind, _)| kind);
                let target = match *field {
                    "serviceRef" | "routeRef" => {
                        json!({"group": CONFIGURATION, "kind": kind, "name": name})
                    }
                    _ => json!({"name": name}),
                };
                ((*field).to_owned(), target)
            })
            .collect();
        json!({
            "controlPlaneRef": {
                "type": "konnectNamespacedRef",
                "konnectNamespacedRef": control_plane,
            },
            "pluginRef": {"kind": PLUGIN.kind, "name": self.name()},
            "scope": "OnlyTargets",
            "targets": targets,
        })
    }

    /// Applies the wanted bindings, deletes the plugin's others, and holds the plugin.
    ///
    /// A binding that fits keeps its name, whoever made it: a new one would be a new entity.
    fn outcome(&self, bindings: &[Value], wanted: &[Value]) -> Outcome {
        let uid = own(self.plugin, "uid");
        let (owned, others): (Vec<&Value>, Vec<&Value>) =
            bindings.iter().partition(|binding| is_owned_by(binding, uid));
        let mut outcome = Outcome::new();
        let mut kept = BTreeSet::new();
        let placed = self.placed(bindings);
        for spec in wanted {
            let fitting = placed.iter().filter(|(of, _)| of == spec).map(|(_, binding)| *binding);
            let (fitting, of_users): (Vec<&Value>, Vec<&Value>) =
                fitting.partition(|binding| is_owned_by(binding, uid));
            // One that a user made does the same: Konnect would refuse a second one.
            if fitting.is_empty() && !of_users.is_empty() {
                continue;
            }
            let name = self.name_of(spec, &fitting);
            outcome = outcome.apply(self.manifest(&name, spec));
            kept.insert(name);
        }
        // An object without finalizers is gone with its deletion, which triggers no run here.
        let mut is_used = !kept.is_empty() || !others.is_empty();
        for binding in owned.into_iter().filter(|of| !kept.contains(own(of, "name"))) {
            is_used |= at(binding, "metadata.finalizers").is_some_and(|all| *all != json!([]));
            if !is_deleted(binding) {
                let of = reference(own(binding, "namespace"), own(binding, "name"));
                outcome = outcome.delete(Deletion::new(of).uid(own(binding, "uid")));
            }
        }
        Outcome { finalizers: held(self.plugin, IN_USE, is_used).finalizers, ..outcome }
    }

    /// Returns the bindings of the namespace, each after its spec as [`Run::spec`] writes it.
    fn placed<'b>(&self, bindings: &'b [Value]) -> Vec<(Value, &'b Value)> {
        let namespace = self.namespace();
        let placed = bindings.iter().filter(|of| own(of, "namespace") == namespace);
        let placed = placed.filter(|of| !is_deleted(of));
        placed.map(|of| (normalised(at(of, "spec"), namespace), of)).collect()
    }

    /// Returns the name of the binding with a spec; `fitting`: the plugin's own ones that have it.
    fn name_of(&self, spec: &Value, fitting: &[&Value]) -> String {
        let derived = derived_name(self.name(), &[&spec.to_string()]);
        let mut names = fitting.iter().map(|binding| own(binding, "name"));
        let first = names.clone().min().map(str::to_owned);
        if names.any(|name| name == derived) { derived } else { first.unwrap_or(derived) }
    }

    fn manifest(&self, name: &str, spec: &Value) -> Manifest {
        let owner = json!({
            "apiVersion": PLUGIN.of().api_version(), "kind": PLUGIN.kind, "name": self.name(),
            "uid": own(self.plugin, "uid"), "controller": true, "blockOwnerDeletion": true,
        });
        let metadata =
            json!({"name": name, "namespace": self.namespace(), "ownerReferences": [owner]});
        Manifest::with_kind(&BINDING.of(), &json!({"metadata": metadata, "spec": spec}))
    }
}

// === impl Targets ===

impl Targets {
    fn add(&mut self, field: &str, name: &str) {
        let names = match field {
            "serviceRef" => &mut self.services,
            "routeRef" => &mut self.routes,
            "consumerRef" => &mut self.consumers,
            _ => &mut self.groups,
        };
        names.insert(name.to_owned());
    }

    /// Returns the targets of people, and their field: consumers, or else groups.
    fn people(&self) -> (&'static str, &BTreeSet<String>) {
        if self.consumers.is_empty() {
            ("consumerGroupRef", &self.groups)
        } else {
            ("consumerRef", &self.consumers)
        }
    }

    /// Returns the number of combinations.
    fn count(&self) -> usize {
        let (people, entities) = (self.people().1.len(), self.services.len() + self.routes.len());
        if people == 0 || entities == 0 { people + entities } else { people * entities }
    }

    fn combinations(&self) -> Vec<Combination> {
        let services = self.services.iter().map(|name| ("serviceRef", name.clone()));
        let routes = self.routes.iter().map(|name| ("routeRef", name.clone()));
        let entities: Vec<_> = services.chain(routes).collect();
        let (field, people) = self.people();
        let people: Vec<_> = people.iter().map(|name| (field, name.clone())).collect();
        if entities.is_empty() || people.is_empty() {
            return entities.into_iter().chain(people).map(|target| vec![target]).collect();
        }
        let of = |person: &(&'static str, String)| {
            entities.iter().map(|entity| vec![entity.clone(), person.clone()]).collect::<Vec<_>>()
        };
        people.iter().flat_map(of).collect()
    }
}

/// Returns a field of an object's metadata; "" if it is absent.
pub(crate) fn own<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get("metadata").and_then(|of| of.get(field)).and_then(Value::as_str).unwrap_or_default()
}

fn is_deleted(object: &Value) -> bool {
    at(object, "metadata.deletionTimestamp").is_some()
}

pub(crate) fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    at(object, "metadata.ownerReferences").and_then(Value::as_array).into_iter().flatten()
}

/// Returns whether an object is owned by the object with this uid.
pub(crate) fn is_owned_by(object: &Value, uid: &str) -> bool {
    owners(object).any(|owner| text(owner, "uid") == Some(uid))
}

fn is_managed(binding: &Value) -> bool {
    owners(binding).any(|owner| text(owner, "kind") == Some(PLUGIN.kind))
}

fn names_plugin(target: &Value, plugin: &str) -> bool {
    let annotations = at(target, "metadata.annotations");
    let list = annotations.and_then(|all| all.get("konghq.com/plugins")).and_then(Value::as_str);
    list.is_some_and(|list| list.split(',').any(|name| name.trim() == plugin))
}

/// Returns a spec as [`Run::spec`] writes it, to compare the two.
fn normalised(spec: Option<&Value>, namespace: &str) -> Value {
    let mut spec = spec.cloned().unwrap_or_default();
    for path in ["/controlPlaneRef/konnectNamespacedRef", "/pluginRef"] {
        let of = spec.pointer_mut(path).and_then(Value::as_object_mut);
        if let Some(of) = of.filter(|of| of.get("namespace").is_some_and(|of| of == namespace)) {
            of.remove("namespace");
        }
    }
    spec
}

fn reference(namespace: &str, name: &str) -> ObjectRef {
    BINDING.object(namespace, name)
}
