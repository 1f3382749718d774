//! The common part of create, update, patch and apply: checks, metadata that the server sets, and
//! storing, in the order of kube-apiserver.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::{
    Call,
    admission::Question,
    metadata::{keep_system_fields, metadata_faults, text},
};
use crate::{
    Cause, Failure,
    access::{Grant, User},
    answer::{Answer, Shown},
    builtin::admission::Stored,
    field_error::FieldError,
    kind::{Form, Resource},
    managed_fields,
    request::{ResourcePath, WriteOptions},
    state::{State, time_text},
    status::Named,
    storage::{Image, Place, metadata_mut},
};

/// A write under the lock of the state.
pub(super) struct Writer<'a> {
    state: &'a mut State,
    resource: &'a Arc<Resource>,
    options: &'a WriteOptions,
    path: &'a ResourcePath,
    /// The user that is impersonated, if any; others may do everything.
    user: Option<User>,
    now: Timestamp,
    /// True for an update that creates an absent object: the version that it sends is ignored.
    by_update: bool,
    /// Texts for `Warning` headers: warnings, and errors that existed before.
    doubts: Vec<String>,
}

/// A stored object, in the version of the request.
pub(super) struct Live {
    pub(super) image: Arc<Image>,
    pub(super) value: Value,
}

// === impl Writer ===

impl<'a> Writer<'a> {
    pub(super) fn new(state: &'a mut State, call: &Call<'a>, options: &'a WriteOptions) -> Self {
        Self {
            state,
            resource: call.resource,
            options,
            path: call.path,
            user: call.user.clone(),
            now: call.now,
            by_update: false,
            doubts: Vec::new(),
        }
    }

    /// Marks the write as an update that creates an absent object.
    pub(super) fn by_update(self) -> Self {
        Self { by_update: true, ..self }
    }

    /// Stores a new object, which is decoded and whose fields are tracked, and answers with it.
    pub(super) fn answer_new(
        mut self,
        call: &mut Call<'_>,
        object: Value,
    ) -> Result<Answer, Failure> {
        let shown = self.create(&call.path.namespace, object, call.subresource());
        call.warnings.append(&mut self.doubts);
        Ok(Answer::object(201, shown?))
    }

    /// Stores a changed object, which is decoded and whose fields are tracked, and answers with it.
    pub(super) fn answer_changed(
        self,
        call: &mut Call<'_>,
        live: &Live,
        new: Value,
    ) -> Result<Answer, Failure> {
        Ok(Answer::object(200, self.change(call, live, new)?))
    }

    /// Stores a changed object as [`Self::answer_changed`] does, and returns it for an answer in
    /// another form.
    pub(super) fn change(
        mut self,
        call: &mut Call<'_>,
        live: &Live,
        new: Value,
    ) -> Result<Shown, Failure> {
        let shown = self.update(&call.place(), live, new, call.subresource())?;
        call.warnings.append(&mut self.doubts);
        Ok(shown)
    }

    /// Creates an object.
    fn create(
        &mut self,
        namespace: &str,
        mut object: Value,
        subresource: Option<&str>,
    ) -> Result<Shown, Failure> {
        let resource = self.resource.clone();
        resource.settle(&mut object);
        let named_in_body = text(&object, "name");
        self.check_admission(namespace, &named_in_body)?;
        self.check_escalation(None, &object)?;
        let place = self.fill_system_fields(namespace, &mut object);
        let name = text(&object, "name");
        resource.admit_create(&mut object, self.state)?;
        if subresource.is_none() {
            self.ask_webhooks(namespace, &name, &mut object, None)?;
        }
        resource.prepare_create(&mut object, subresource)?;
        let faults = resource.validate_create(&object);
        self.refuse(&name, &object, faults)?;
        self.doubts.extend(resource.warnings(&object, None));
        if subresource.is_none() {
            resource.check_valid(&object, None, self.state)?;
        }
        // Storing checks the version, and a dry run stores nothing.
        if !self.by_update
            && !self.options.dry_run
            && !matches!(text(&object, "resourceVersion").as_str(), "" | "0")
        {
            return Err(Failure::unclassified(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        if let Some(image) = self.state.storage.get(&place) {
            let named = Named::new(&resource.group, &resource.plural, &name);
            let failure = Failure::already_exists(named);
            return Err(if image.head.is_deleting() {
                failure.map_texts(|text| format!("object is being deleted: {text}"))
            } else {
                failure
            });
        }
        if self.options.dry_run {
            return State::shown_at(&resource, object, subresource);
        }
        let shown = {
            let image = self.state.commit_as(&resource, &place, object, resource.stamp())?;
            State::show_at(&resource, &image, subresource)
        };
        self.state.after_write(&resource, &place, self.now);
        shown
    }

    /// Fails if admission refuses the object before anything else: its namespace does not exist, or
    /// is terminating.
    fn check_admission(&self, namespace: &str, name: &str) -> Result<(), Failure> {
        let resource = &self.resource;
        let named = Named::new(&resource.group, &resource.plural, name);
        if !resource.namespaced {
            return Ok(());
        }
        let Some(image) = self.state.storage.get(&State::namespace_place(namespace)) else {
            return Err(Failure::not_found(Named::new("", "namespaces", namespace)));
        };
        if !image.head.is_deleting() {
            return Ok(());
        }
        let why = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        let cause = Cause {
            reason: "NamespaceTerminating".to_owned(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        };
        Err(Failure::forbidden(named, &why).with_causes(vec![cause]))
    }

    /// Fails if the write would grant permissions that the impersonated user does not hold.
    fn check_escalation(&self, old: Option<&Value>, new: &Value) -> Result<(), Failure> {
        let Some(user) = &self.user else { return Ok(()) };
        let ResourcePath { namespace, name, .. } = self.path;
        let grant = Grant { user, resource: self.resource, namespace, name, old, new };
        self.state.check_escalation(&grant)
    }

    /// Asks the webhooks about the object, which they may change.
    fn ask_webhooks(
        &mut self,
        namespace: &str,
        name: &str,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Failure> {
        let (resource, user, dry_run) = (self.resource, self.user.as_ref(), self.options.dry_run);
        let question = Question { resource, namespace, name, user, dry_run };
        let mut admitted = question.ask(Some(object), old)?;
        self.doubts.append(&mut admitted.warnings);
        if let Some(changed) = admitted.object {
            *object = self.resource.decode(changed)?.object;
        }
        Ok(())
    }

    /// Sets name, uid and creation time. Returns the place of the object.
    fn fill_system_fields(&self, namespace: &str, object: &mut Value) -> Place {
        let mut name = text(object, "name");
        let prefix = text(object, "generateName");
        if name.is_empty() && !prefix.is_empty() {
            name = self.free_name(namespace, &prefix);
        }
        if let Some(fields) = object.as_object_mut() {
            let metadata = metadata_mut(fields);
            if !name.is_empty() {
                metadata.insert("name".to_owned(), Value::from(name.as_str()));
            }
            metadata.insert("uid".to_owned(), Value::from(self.state.chance.uid()));
            metadata.insert("creationTimestamp".to_owned(), Value::from(time_text(self.now)));
        }
        State::place_of(self.resource, namespace, &name)
    }

    /// Returns the prefix with five characters that make a free name.
    fn free_name(&self, namespace: &str, prefix: &str) -> String {
        const MAX_BASE_BYTES: usize = 58;
        let prefix: String = prefix.chars().take(MAX_BASE_BYTES).collect();
        loop {
            let name = format!("{prefix}{}", self.state.chance.suffix());
            if self.state.storage.get(&State::place_of(self.resource, namespace, &name)).is_none() {
                return name;
            }
        }
    }

    /// Stores a changed object. `new` is decoded; its fields are tracked already if it was applied.
    pub(super) fn update(
        &mut self,
        place: &Place,
        live: &Live,
        mut new: Value,
        subresource: Option<&str>,
    ) -> Result<Shown, Failure> {
        let resource = self.resource.clone();
        let name = live.image.head.name.clone();
        resource.settle(&mut new);
        self.check_escalation(Some(&live.value), &new)?;
        self.check_version(live, &mut new)?;
        if subresource.is_none() {
            self.ask_webhooks(live.image.head.namespace(), &name, &mut new, Some(&live.value))?;
        }
        resource.prepare_update(&mut new, &live.value, subresource)?;
        keep_system_fields(&mut new, &live.value);
        self.keep_times(live, &mut new, subresource);
        let found = metadata_faults(&new, &live.value);
        let faults =
            resource.validate_update(&new, &live.value, subresource, found, &mut self.doubts);
        self.refuse(&name, &new, faults)?;
        if subresource.is_none() {
            resource.check_valid(&new, Some(&live.value), self.state)?;
        }
        if matches!(subresource, None | Some(super::scale::SCALE)) {
            self.doubts.extend(resource.warnings(&new, Some(&live.value)));
        }
        if self.options.dry_run {
            return State::shown_at(&resource, new, subresource);
        }
        if goes_now(&new, &live.image) {
            self.state.take(&resource, place);
            self.state.settle(self.now);
            // A custom resource that is removed is not decoded again.
            return match resource.form {
                Form::BuiltIn(_) => State::shown_at(&resource, new, subresource),
                Form::Custom(_) | Form::Untyped => Ok(Shown::Value(new)),
            };
        }
        // An object written in another version is decoded again before it is stored.
        if resource.is_custom() && resource.version != resource.storage_version {
            resource.complete(&mut new);
        }
        if is_same(&resource, &new, live)? {
            return State::show_at(&resource, &live.image, subresource);
        }
        // The scale writes only the replicas, without the defaults of the fields beside them.
        let stamp = if subresource == Some(super::scale::SCALE) { 0 } else { resource.stamp() };
        let image = self.state.commit_as(&resource, place, new, stamp)?;
        let shown = State::show_at(&resource, &image, subresource);
        self.state.after_write(&resource, place, self.now);
        shown
    }

    /// Keeps the times of the managers if the write changes nothing; a write of the object itself
    /// is compared with the object as it is read.
    fn keep_times(&self, live: &Live, new: &mut Value, subresource: Option<&str>) {
        if subresource.is_some() || self.resource.shows_as_stored(live.image.stamp) {
            return managed_fields::keep_times(&live.value, new);
        }
        let mut read = live.value.clone();
        self.resource.complete(&mut read);
        managed_fields::keep_times(&read, new);
    }

    /// Fails with 409 unless the resource version of the new object is that of the live one; where
    /// it may be omitted, it is filled in.
    fn check_version(&self, live: &Live, new: &mut Value) -> Result<(), Failure> {
        let resource = self.resource;
        let named = Named::new(&resource.group, &resource.plural, &live.image.head.name);
        let sent = text(new, "resourceVersion");
        let number = super::read::parse_version(&sent)
            .map_err(|why| Failure::unclassified(format!("metadata.{why}")))?;
        match number {
            None | Some(0) if allows_unconditional_update(resource) => {
                if let Some(fields) = new.as_object_mut() {
                    let version = Value::from(live.image.head.resource_version.as_str());
                    metadata_mut(fields).insert("resourceVersion".to_owned(), version);
                }
                Ok(())
            }
            None | Some(0) => {
                let fault = FieldError::invalid(
                    "metadata.resourceVersion",
                    0,
                    "must be specified for an update",
                );
                Err(Failure::invalid(named, [fault]))
            }
            Some(number) if number == live.image.revision() => Ok(()),
            Some(_) => Err(Failure::modified(named)),
        }
    }

    /// Fails with 422 if there are errors; the kind is that of the object.
    fn refuse(&self, name: &str, object: &Value, faults: Vec<FieldError>) -> Result<(), Failure> {
        if faults.is_empty() {
            return Ok(());
        }
        let kind = object.get("kind").and_then(Value::as_str).unwrap_or(&self.resource.kind);
        Err(Failure::invalid(Named::new(&self.resource.storage_group, kind, name), faults))
    }

    /// Returns the object with `managedFields` that include the changes of this update.
    pub(super) fn track(
        &self,
        live: Option<&Value>,
        new: Value,
        subresource: Option<&str>,
    ) -> Value {
        let tracking = Tracking { state: self.state, resource: self.resource, now: self.now };
        tracking.update(live, new, &self.options.manager, subresource.unwrap_or_default())
    }

    /// Returns the object to store for an apply.
    pub(super) fn apply(
        &self,
        live: Option<&Value>,
        applied: &Value,
        subresource: Option<&str>,
    ) -> Result<Value, Failure> {
        let (api_version, now) = (self.resource.api_version(), time_text(self.now));
        let writer = managed_fields::Writer {
            manager: &self.options.manager,
            api_version: &api_version,
            subresource: subresource.unwrap_or_default(),
            now: &now,
        };
        let tracking = Tracking { state: self.state, resource: self.resource, now: self.now };
        tracking
            .with_target(|target| {
                managed_fields::apply(live, applied, target, &writer, self.options.force)
            })
            .map_err(Failure::from)
    }
}

/// The context for tracking fields.
pub(super) struct Tracking<'a> {
    pub(super) state: &'a State,
    pub(super) resource: &'a Resource,
    pub(super) now: Timestamp,
}

// === impl Tracking ===

impl Tracking<'_> {
    pub(super) fn update(
        &self,
        live: Option<&Value>,
        new: Value,
        manager: &str,
        subresource: &str,
    ) -> Value {
        let (api_version, now) = (self.resource.api_version(), time_text(self.now));
        let writer =
            managed_fields::Writer { manager, api_version: &api_version, subresource, now: &now };
        self.with_target(|target| managed_fields::update(live, new, target, &writer))
    }

    pub(super) fn with_target<T>(&self, run: impl FnOnce(&managed_fields::Target<'_>) -> T) -> T {
        let Self { state, resource, .. } = self;
        let other_version = |api_version: &str| {
            let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
            let other = state.registry.find(group, version, &resource.plural)?;
            (other.kind == resource.kind).then(|| other.schema.clone())
        };
        run(&managed_fields::Target {
            kind: &resource.kind,
            schema: &resource.schema,
            has_status: resource.has_status(),
            is_custom: resource.is_custom(),
            is_converted: resource.has_conversion(),
            other_version: &other_version,
        })
    }
}

impl Stored for State {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let resource = self.registry.stored(group, plural)?;
        let image = self.storage.get(&State::place_of(resource, namespace, name))?;
        Some(State::plain_view(resource, image))
    }

    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Value> {
        let Some(resource) = self.registry.stored(group, plural) else { return Vec::new() };
        let table = self.storage.table(&State::table_of(resource));
        let objects = table.into_iter().flat_map(|table| table.list(namespace, None));
        objects.map(|(_, image)| State::plain_view(resource, image)).collect()
    }
}

/// Returns whether an update may omit the resource version.
fn allows_unconditional_update(resource: &Resource) -> bool {
    const STRICT: [&str; 3] = ["leases", "poddisruptionbudgets", "customresourcedefinitions"];
    !resource.is_custom() && !STRICT.contains(&resource.plural.as_str())
}

/// Returns whether this update removes the last finalizer of an object that is being deleted.
pub(super) fn goes_now(new: &Value, live: &Image) -> bool {
    let has_finalizers = |pointer: &str| {
        new.pointer(pointer).and_then(Value::as_array).is_some_and(|list| !list.is_empty())
    };
    if !live.head.is_deleting()
        || has_finalizers("/metadata/finalizers")
        || has_finalizers("/spec/finalizers")
    {
        return false;
    }
    let is_namespace = new.get("kind").is_some_and(|kind| kind == "Namespace");
    is_namespace
        || new
            .pointer("/metadata/deletionGracePeriodSeconds")
            .and_then(Value::as_i64)
            .unwrap_or_default()
            == 0
}

/// Returns whether an object would be stored as it is stored already.
fn is_same(resource: &Resource, new: &Value, live: &Live) -> Result<bool, Failure> {
    if resource.shows_as_stored(live.image.stamp) {
        return Ok(*new == live.value);
    }
    let mut stored = resource.convert_to_stored(new.clone())?;
    if let Some(fields) = stored.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    Ok(stored == live.image.bare())
}
