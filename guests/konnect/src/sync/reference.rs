//! The references of an object: each is checked, in order, and has its condition.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mortise_sdk::{Error, Selection, kubernetes::Secret};
use serde_json::Value;

use super::{
    grant::{self, From, SECRET, To},
    run::Run,
    status::{self, PROGRAMMED, reason},
};
use crate::{
    describe::READABLE,
    kind::{self, CONTROL_PLANE, Entity, Name, Reference, Shape, Special, Update},
    plugin::{self, SecretKey},
};

/// The condition of references into other namespaces.
const RESOLVED_REFS: &str = "ResolvedRefs";
/// The condition of the control plane.
const CONTROL_PLANE_REF: &str = "ControlPlaneRefValid";
/// The label without which a Secret is none for the operator.
pub(crate) const SECRET_LABEL: (&str, &str) = ("konghq.com/secret", "true");
/// The type of control planes to which only certificates of data planes are attached.
pub(crate) const GROUP: &str = "CLUSTER_TYPE_CONTROL_PLANE_GROUP";
/// Conditions that tell themselves of a missing grant; the last one beside [`RESOLVED_REFS`].
const WITH_PERMISSION: [&str; 4] =
    ["KongUpstreamRefValid", "PluginRefValid", "ConfigStoreRefValid", "KongCertificateRefValid"];
/// Conditions for whose references [`RESOLVED_REFS`] tells of no grant.
const WITHOUT_RESOLVED_REFS: [&str; 3] =
    ["KongUpstreamRefValid", "PluginRefValid", "ConfigStoreRefValid"];
/// Conditions for whose references a missing grant is told in the words of the check.
const IN_WORDS_OF_CHECK: [&str; 2] = ["KongServiceRefValid", "KongCACertificateRefsValid"];
/// The kind of which the original tells in words of its own.
const CONFIG_STORE: &str = "KonnectConfigStore";
/// The field for the ID of a store that is not an object.
const STORE_ID: &str = "spec.config.config_store_id";
const STORE_ID_TWICE: &str = "spec.configStoreRef cannot be used: it is mutually exclusive with \
                              \"config_store_id\" in spec.config";
/// Conditions of references that are told to be unset when the object had one.
const UNSET: [(&str, &str); 2] =
    [("KeySetRefValid", "KeySetRef is unset"), ("KongServiceRefValid", "ServiceRef is unset")];
/// Parents of which nothing is told until they are there for the first time, as with the original.
const SILENT: [&str; 2] = ["KongUpstream", "KongConsumer"];
/// References of which `Programmed` is not made False, as with the original.
const LEAVING_PROGRAMMED: [&str; 2] = ["KongServiceRefValid", "KongConsumerRefValid"];
/// The kind that is no parent, and takes along what refers to it all the same.
const KEY_SET: &str = "KongKeySet";
/// The only parent whose deletion in Konnect does not take its children along.
const WITHOUT_CASCADE: &str = "KongService";

/// How the check of references ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// The run goes on.
    Go,
    /// A reference is not valid: the run ends.
    Stop,
    /// The parent is gone, and with it the entity: the object needs no finalizer.
    Release,
    /// The parent is not there yet: the status stays as it is.
    Silent,
}

/// The result of a check of references.
enum Found {
    /// An entity of this ID.
    Valid(String),
    /// An entity that is on its way, here or out: the run goes on with what there is of it.
    Tolerated(Option<String>),
    /// Nothing to go on with.
    Broken(Check),
}

impl Run<'_> {
    /// Checks all references in order, up to the first that is not valid.
    pub(crate) fn check_references(&mut self) -> Result<Check, Error> {
        for reference in self.entity.references {
            let check = match reference.to {
                "KonnectAPIAuthConfiguration" => Check::Go,
                "KonnectGatewayControlPlane" => self.check_control_plane(reference)?,
                "KongPlugin" => self.check_plugin(reference)?,
                "Secret" if reference.shape == Shape::Object => self.check_secret(reference)?,
                _ if reference.condition.is_empty() || reference.to == "Secret" => Check::Go,
                to => match kind::find(to) {
                    Some(target) => self.check_entities(reference, target)?,
                    None => Check::Go,
                },
            };
            if check != Check::Go {
                return Ok(check);
            }
        }
        Ok(Check::Go)
    }

    /// Checks the reference to the control plane.
    fn check_control_plane(&mut self, reference: &Reference) -> Result<Check, Error> {
        let Some(name) = reference.names(self.object).into_iter().next() else {
            return Ok(Check::Go);
        };
        if self.is_refused(reference, &CONTROL_PLANE, &name)? {
            return Ok(Check::Stop);
        }
        let is_foreign = |of: &Reference| of.names(self.object).iter().any(|of| of.is_foreign);
        if !self.entity.references.iter().any(is_foreign) {
            self.status.remove(RESOLVED_REFS);
        }
        let Some(found) = self.read(&CONTROL_PLANE, &name, &["spec", "status"])? else {
            let message = format!(
                "referenced Control Plane \"{}\" does not exist: {}",
                self.as_written(reference),
                not_found(&CONTROL_PLANE, &name)
            );
            return Ok(self.broken(reference, &message, true));
        };
        let shown = shown(&name);
        if !self.is(Special::AttachesToGroups) && is_group(&found) {
            let message = format!(
                "Attaching to ControlPlane {shown} with cluster type {GROUP} is not supported"
            );
            // As with a control plane that is not programmed, the run goes on without an ID of it.
            self.status.set(reference.condition, false, reason::INVALID, message);
            return Ok(Check::Go);
        }
        let is_programmed = status::is_true(&found, PROGRAMMED);
        let id = CONTROL_PLANE.id(&found, "id");
        self.accept_control_plane(&shown, &found, id.filter(|_| is_programmed));
        Ok(Check::Go)
    }

    /// Sets the condition of a control plane, and takes over its ID.
    fn accept_control_plane(&mut self, shown: &str, control_plane: &Value, id: Option<&str>) {
        if id.is_some() {
            let former = self.status.id("controlPlaneID");
            // An entity that is never sent again went with its former control plane.
            if former.is_some_and(|former| Some(former) != id) && self.api.update == Update::Never {
                self.status.set_id("id", None);
            }
            self.status.set_id("controlPlaneID", id);
        }
        if status::is_true(control_plane, PROGRAMMED) {
            let message = format!("Referenced ControlPlane {shown} is programmed");
            self.status.set(CONTROL_PLANE_REF, true, reason::VALID, message);
        } else {
            let message = format!("Referenced ControlPlane {shown} is not programmed yet");
            self.status.set(CONTROL_PLANE_REF, false, reason::NOT_PROGRAMMED, message);
        }
    }

    /// Confirms, for the generation of a deletion, the condition of the control plane.
    pub(crate) fn confirm_control_plane(&mut self) {
        self.status.confirm(CONTROL_PLANE_REF);
    }

    /// Checks references to objects that have entities.
    fn check_entities(
        &mut self,
        reference: &Reference,
        target: &'static Entity,
    ) -> Result<Check, Error> {
        let names = reference.names(self.object);
        if names.is_empty() {
            self.unset(reference);
            return Ok(Check::Go);
        }
        let (mut ids, mut is_valid) = (Vec::new(), true);
        for name in &names {
            if self.is_refused(reference, target, name)? {
                return Ok(Check::Stop);
            }
            if target.kind == CONFIG_STORE && kind::at(self.object, STORE_ID).is_some() {
                return Ok(self.broken(reference, STORE_ID_TWICE, false));
            }
            match self.check_entity(reference, target, name)? {
                Found::Valid(id) => ids.push(id),
                Found::Tolerated(id) => {
                    is_valid = false;
                    ids.extend(id);
                }
                Found::Broken(check) => return Ok(check),
            }
        }
        if is_valid {
            let message = match (reference.shape, names.first()) {
                (Shape::Object, Some(name)) => {
                    let is = if target.kind == CONFIG_STORE { "is " } else { "" };
                    format!("Referenced {} {} {is}programmed", target.kind, shown(name))
                }
                _ => format!("All referenced {}s are programmed", target.kind),
            };
            self.status.set(reference.condition, true, reason::VALID, message);
        }
        self.keep_ids(reference, ids);
        Ok(Check::Go)
    }

    /// Checks one reference, and sets its condition unless it is valid.
    fn check_entity(
        &mut self,
        reference: &Reference,
        target: &'static Entity,
        name: &Name,
    ) -> Result<Found, Error> {
        let Some(found) = self.read(target, name, &["spec", "status"])? else {
            if SILENT.contains(&target.kind) && self.status.id("controlPlaneID").is_none() {
                return Ok(Found::Broken(Check::Silent));
            }
            let is_cascading =
                target.kind == KEY_SET || reference.is_parent && target.kind != WITHOUT_CASCADE;
            let message = if target.kind == CONFIG_STORE {
                format!("Referenced {CONFIG_STORE} {} does not exist", shown(name))
            } else {
                not_found(target, name)
            };
            return Ok(Found::Broken(self.broken(reference, &message, is_cascading)));
        };
        let (id, shown) = (target.id(&found, "id").map(str::to_owned), shown(name));
        // As with the original, a store serves as long as it has an entity.
        if target.kind == CONFIG_STORE
            && let Some(id) = id
        {
            return Ok(Found::Valid(id));
        }
        let of_parent = target.id(&found, "controlPlaneID");
        if found.pointer("/metadata/deletionTimestamp").is_some() {
            let is_going_on = reference.is_parent && target.kind == WITHOUT_CASCADE;
            // The original tells nothing of other references until the object is gone.
            if is_going_on || reference.shape == Shape::Objects {
                let message = format!("Referenced {} {shown} is being deleted", target.kind);
                self.status.set(reference.condition, false, reason::INVALID, message);
            }
            return Ok(if is_going_on { Found::Tolerated(id) } else { Found::Broken(Check::Stop) });
        }
        if !reference.is_parent
            && of_parent.is_some()
            && of_parent != self.status.id("controlPlaneID")
        {
            let message =
                format!("Referenced {} {shown} belongs to a different ControlPlane", target.kind);
            return Ok(Found::Broken(self.broken(reference, &message, false)));
        }
        let id = match id {
            Some(id) if status::is_true(&found, PROGRAMMED) => id,
            id => return Ok(self.unprogrammed(reference, target, &found, &shown, id)),
        };
        if reference.is_parent {
            let of_parent = of_parent.map(str::to_owned);
            self.accept_parent(target, &found, &shown, of_parent.as_deref())?;
        }
        Ok(Found::Valid(id))
    }

    /// Ends or goes on with a reference to an object that is not programmed.
    fn unprogrammed(
        &mut self,
        reference: &Reference,
        target: &'static Entity,
        found: &Value,
        shown: &str,
        id: Option<String>,
    ) -> Found {
        let message = format!("Referenced {} {shown} is not programmed yet", target.kind);
        if !reference.is_parent {
            let check = self.broken(reference, &message, false);
            if target.kind == CONFIG_STORE {
                self.status.set(reference.condition, false, reason::NOT_PROGRAMMED, message);
            }
            return Found::Broken(check);
        }
        self.status.set(reference.condition, false, reason::INVALID, message);
        // A parent whose own references broke has lost its place, so the entity has too: it is found
        // again by its mark. One that only failed to be updated is still there.
        let condition = status::find(found, PROGRAMMED);
        if condition.is_some_and(|condition| condition.reason == reason::FALSE_EXISTS) {
            self.status.set_id("id", None);
        }
        Found::Tolerated(id)
    }

    /// Takes over the control plane of a parent.
    fn accept_parent(
        &mut self,
        target: &'static Entity,
        found: &Value,
        shown: &str,
        id: Option<&str>,
    ) -> Result<(), Error> {
        if target.kind == WITHOUT_CASCADE {
            if id.is_some() {
                self.status.set_id("controlPlaneID", id);
            }
            return Ok(());
        }
        if let Some((name, control_plane)) = self.control_plane_of(target, found)? {
            // As with the original, which names the parent here, but for certificates.
            let of_control_plane = self::shown(&name);
            let shown = if target.kind == "KongCertificate" { &of_control_plane } else { shown };
            self.accept_control_plane(shown, &control_plane, id);
        }
        Ok(())
    }

    /// Keeps the IDs of a reference for the body and, if it is so kept, in the status.
    fn keep_ids(&mut self, reference: &Reference, ids: Vec<String>) {
        if reference.id.is_empty() || ids.is_empty() {
            return;
        }
        let value = match reference.shape {
            Shape::Object => ids.into_iter().next().into(),
            Shape::Objects | Shape::Names => Value::from(ids),
        };
        if reference.is_stored {
            self.pending.insert(reference.id, Some(value.clone()));
        }
        self.resolved.ids.insert(reference.id.to_owned(), value);
    }

    /// Forgets a reference that the object does not have, or not any more.
    fn unset(&mut self, reference: &Reference) {
        let had_one = self.status.id(reference.id).is_some();
        if reference.is_stored {
            self.pending.insert(reference.id, None);
        }
        let unset = UNSET.into_iter().find(|(condition, _)| *condition == reference.condition);
        if let Some((condition, message)) = unset.filter(|_| had_one) {
            self.status.set(condition, true, reason::VALID, message);
        }
        if reference.to == CONFIG_STORE {
            self.status.remove(reference.condition);
        }
    }

    /// Takes the values of the body that are in plugins and Secrets, as far as these are there, and
    /// tells nothing of them.
    pub(crate) fn resolve_values(&mut self) -> Result<(), Error> {
        let told = self.status.clone();
        for reference in self.entity.references {
            match reference.to {
                "KongPlugin" => _ = self.check_plugin(reference)?,
                "Secret" if reference.shape == Shape::Object => _ = self.check_secret(reference)?,
                _ => {}
            }
        }
        self.status = told;
        Ok(())
    }

    /// Checks the reference to a plugin, and keeps the plugin for the body.
    fn check_plugin(&mut self, reference: &Reference) -> Result<Check, Error> {
        let Some(target) = kind::find(reference.to) else { return Ok(Check::Go) };
        let Some(name) = reference.names(self.object).into_iter().next() else {
            return Ok(Check::Go);
        };
        if self.is_refused(reference, target, &name)? {
            return Ok(Check::Stop);
        }
        let shown = shown(&name);
        let Some(found) = self.read(target, &name, &[])? else {
            let message = format!("KongPlugin {shown} not found");
            return Ok(self.broken(reference, &message, false));
        };
        let value = |key: &SecretKey| self.secret_value(&name.namespace, key);
        let found = match plugin::configured(&found, value)? {
            Ok(found) => found,
            Err(message) => return Ok(self.broken(reference, &message, false)),
        };
        let message = format!("KongPlugin {shown} exists and is accessible");
        self.status.set(reference.condition, true, reason::VALID, message);
        self.resolved.plugin = Some(found);
        Ok(Check::Go)
    }

    /// Reads a key of a Secret for a plugin, or says what is missing.
    fn secret_value(
        &self,
        namespace: &str,
        key: &SecretKey,
    ) -> Result<Result<String, String>, Error> {
        let of = Selection::of::<Secret>().namespace(namespace).name(&key.name);
        let of = of.labels(READABLE).fields(["data"]);
        let secret = self.host.list::<Secret>(&of)?.into_iter().next();
        let Some(secret) = secret else {
            return Ok(Err(format!("Secret \"{}\" not found", key.name)));
        };
        let value = secret.data.get(&key.key).and_then(|value| STANDARD.decode(value).ok());
        let value = value.and_then(|value| String::from_utf8(value).ok());
        let missing = || format!("Secret {namespace}/{} is missing key {}", key.name, key.key);
        Ok(value.ok_or_else(missing))
    }

    /// Checks the reference to a Secret, and takes its values for the body.
    fn check_secret(&mut self, reference: &Reference) -> Result<Check, Error> {
        let is_used = kind::text(self.object, "spec.type") == Some("secretRef");
        let name = reference.names(self.object).into_iter().next().filter(|_| is_used);
        let Some(name) = name else { return Ok(Check::Go) };
        if name.is_foreign {
            let from = From { entity: self.entity, namespace: self.namespace() };
            if grant::check(self.host, from, SECRET, &name)?.is_err() {
                let message =
                    format!("KongReferenceGrants do not allow access to Secret {}", shown(&name));
                self.status.set(RESOLVED_REFS, false, reason::NOT_PERMITTED, message);
                self.status.set_false_exists();
                return Ok(Check::Stop);
            }
        }
        let paths: Vec<String> =
            reference.keys.iter().map(|(key, _)| format!("data[\"{key}\"]")).collect();
        let mut fields = vec!["metadata.labels"];
        fields.extend(paths.iter().map(String::as_str));
        let secret: Option<Secret> = self.host.get(Some(&name.namespace), &name.name, &fields)?;
        let is_labelled = |secret: &Secret| {
            secret.metadata.labels.get(SECRET_LABEL.0).is_some_and(|value| value == SECRET_LABEL.1)
        };
        let Some(secret) = secret.filter(is_labelled) else {
            let message = format!("Secret \"{}\" not found", name.name);
            return Ok(self.broken(reference, &message, false));
        };
        if name.is_foreign {
            let message = "KongReferenceGrants allow access to Secrets";
            self.status.set(RESOLVED_REFS, true, RESOLVED_REFS, message);
        }
        for (key, field) in reference.keys {
            let value = secret.data.get(*key).and_then(|value| STANDARD.decode(value).ok());
            let Some(value) = value.and_then(|value| String::from_utf8(value).ok()) else {
                // As with the original, the reference is valid all the same.
                let lacking = format!("secret {} is missing key '{key}'", shown(&name));
                self.resolved.lacking.get_or_insert(lacking);
                continue;
            };
            self.resolved.values.insert((*field).to_owned(), value);
        }
        let message = "Referenced Secret(s) exist and contain the required key(s)";
        self.status.set(reference.condition, true, reason::VALID, message);
        Ok(Check::Go)
    }

    /// Sets the conditions of a reference that is not valid.
    fn broken(&mut self, reference: &Reference, message: &str, is_parent_gone: bool) -> Check {
        self.status.set(reference.condition, false, reason::INVALID, message);
        if !LEAVING_PROGRAMMED.contains(&reference.condition) {
            self.status.set_false_exists();
        }
        if is_parent_gone { Check::Release } else { Check::Stop }
    }

    /// Returns whether a reference into another namespace is not granted, and sets its conditions.
    fn is_refused(
        &mut self,
        reference: &Reference,
        target: &'static Entity,
        name: &Name,
    ) -> Result<bool, Error> {
        if !name.is_foreign {
            return Ok(false);
        }
        let from = From { entity: self.entity, namespace: self.namespace() };
        let granted = grant::check(self.host, from, To::from(target), name)?;
        let kind = target.kind;
        let is_control_plane = kind == CONTROL_PLANE.kind;
        let is_told = !WITHOUT_RESOLVED_REFS.contains(&reference.condition);
        let Err(words) = granted else {
            let which = if is_control_plane { self.as_written(reference) } else { String::new() };
            let message = format!("KongReferenceGrants allow access to {kind} {which}");
            if is_told {
                self.status.set(RESOLVED_REFS, true, RESOLVED_REFS, message.trim_end());
            }
            return Ok(false);
        };
        let which = if is_control_plane { self.as_written(reference) } else { shown(name) };
        let message = if IN_WORDS_OF_CHECK.contains(&reference.condition) {
            words
        } else {
            format!("KongReferenceGrants do not allow access to {kind} {which}")
        };
        if WITH_PERMISSION.contains(&reference.condition) {
            self.status.set(reference.condition, false, reason::NOT_PERMITTED, message.clone());
        }
        if is_told {
            self.status.set(RESOLVED_REFS, false, reason::NOT_PERMITTED, message);
        }
        self.status.set_false_exists();
        Ok(true)
    }

    /// Finds the control plane of an object through its references; `None` if one of them is broken.
    pub(crate) fn control_plane_of(
        &self,
        entity: &'static Entity,
        object: &Value,
    ) -> Result<Option<(Name, Value)>, Error> {
        if entity.kind == CONTROL_PLANE.kind {
            let namespace = kind::text(object, "metadata.namespace").unwrap_or_default().to_owned();
            let name = kind::text(object, "metadata.name").unwrap_or_default().to_owned();
            return Ok(Some((Name { namespace, name, is_foreign: false }, object.clone())));
        }
        for reference in entity.parents() {
            let Some(name) = reference.names(object).into_iter().next() else { continue };
            let Some(target) = kind::find(reference.to) else { continue };
            let Some(found) = self.read(target, &name, &["spec", "status"])? else { continue };
            // A chain has three objects at most: no kind is the parent of its own parents.
            if let Some(found) = self.control_plane_of(target, &found)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Returns the reference to a control plane as the object has it: with its namespace only if it
    /// names one.
    fn as_written(&self, reference: &Reference) -> String {
        let field = |field: &str| kind::text(self.object, &format!("{}.{field}", reference.at));
        let name = field("name").unwrap_or_default();
        match field("namespace").filter(|namespace| !namespace.is_empty()) {
            Some(namespace) => format!("<konnectNamespacedRef:{namespace}/{name}>"),
            None => format!("<konnectNamespacedRef:{name}>"),
        }
    }
}

/// Returns namespace and name, as messages show them.
pub(crate) fn shown(name: &Name) -> String {
    format!("{}/{}", name.namespace, name.name)
}

/// Returns the words in which the API server says that there is no such object.
pub(crate) fn not_found(entity: &Entity, name: &Name) -> String {
    format!("{} \"{}\" not found", entity.display(), name.name)
}

/// Returns whether a control plane is a group, as its spec says or, of a mirror, its status.
pub(crate) fn is_group(control_plane: &Value) -> bool {
    let of_spec = kind::text(control_plane, "spec.createControlPlaneRequest.cluster_type");
    of_spec.or_else(|| kind::text(control_plane, "status.clusterType")) == Some(GROUP)
}
