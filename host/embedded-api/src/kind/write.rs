//! Conversions of the objects of a resource when they are written and read.

use std::fmt::Display;

use serde_json::{Value, json};

use super::{Form, Resource};
use crate::{
    Failure,
    builtin::{
        self, Conversion, admission, decode, default, definition,
        edit::{at, child, copy, members, remove, set, text},
        strategy,
    },
    structural::{CustomSchema, integral_floats},
};

/// The stamp of a built-in object that is read in another form than it is stored.
const READ_OTHERWISE: u64 = 1;

/// A decoded object, and the paths of its fields that the schema does not know.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) object: Value,
    pub(crate) unknown: Vec<String>,
}

impl Resource {
    /// Decodes an object of this kind: checks its types, drops unknown fields, and brings values to
    /// their canonical form.
    ///
    /// An object without `apiVersion` and `kind` gets those of the resource if it is built in.
    pub(crate) fn decode(&self, body: Value) -> Result<Decoded, Failure> {
        let mut decoded = self.read(body, true)?;
        if let Form::Custom(custom) = &self.form {
            custom.schema.drop_nulls(&mut decoded.object);
        }
        Ok(decoded)
    }

    /// Decodes the result of an apply. A custom resource is stored as it was merged: with nulls,
    /// which are refused where they are not allowed, with fields that are not in its schema, and
    /// with its metadata unchanged ([`Self::complete`]).
    pub(crate) fn decode_applied(&self, body: Value) -> Result<Decoded, Failure> {
        self.read(body, false)
    }

    /// Decodes an object; for a custom resource that was merged, without bringing it to its
    /// canonical form.
    fn read(&self, mut body: Value, is_sent: bool) -> Result<Decoded, Failure> {
        if !body.is_object() {
            let why = "json: cannot unmarshal a value that is no object";
            return Err(self.unreadable(&why));
        }
        self.check_type(&mut body)?;
        let mut unknown = Vec::new();
        // An empty list of managers resets them; an absent one does not.
        // The metadata of a custom resource are decoded and encoded once more before that, and lose
        // the list.
        let resets =
            !self.is_custom() && body.pointer("/metadata/managedFields") == Some(&json!([]));
        let mut object = match &self.form {
            Form::BuiltIn(name) => match definition::find(name) {
                Some(definition) => decode::object(definition, body, &mut unknown)
                    .map_err(|wrong| self.unreadable(&wrong))?,
                None => body,
            },
            Form::Custom(custom) => {
                if is_sent {
                    self.decode_metadata(&mut body, &mut unknown)?;
                } else {
                    child(&mut body, "metadata");
                }
                // A null status counts as absent, also where null is refused elsewhere.
                if self.has_status() && body.get("status").is_some_and(Value::is_null) {
                    remove(&mut body, "status");
                }
                custom.schema.default(&mut body);
                integral_floats(&mut body);
                if is_sent {
                    unknown.extend(custom.schema.prune(&mut body));
                }
                if let Some(fault) = custom.schema.unreadable(&body) {
                    return Err(self.unreadable(&fault));
                }
                body
            }
            Form::Untyped => {
                self.decode_metadata(&mut body, &mut unknown)?;
                body
            }
        };
        if let Some(metadata) = child(&mut object, "metadata").filter(|_| resets) {
            set(metadata, "managedFields", json!([]));
        }
        Ok(Decoded { object, unknown })
    }

    /// Returns the 400 for errors of strict decoding.
    pub(crate) fn strict(&self, faults: &str) -> Failure {
        self.unreadable(&format!("strict decoding error: {faults}"))
    }

    /// Fills in defaults.
    pub(crate) fn default(&self, object: &mut Value) {
        match &self.form {
            Form::BuiltIn(definition) => default::fill(definition, object),
            Form::Custom(custom) => custom.schema.default(object),
            Form::Untyped => {}
        }
    }

    /// Admits a new object, with its name set.
    pub(crate) fn admit_create(
        &self,
        object: &mut Value,
        stored: &dyn admission::Stored,
    ) -> Result<(), Failure> {
        match &self.form {
            Form::BuiltIn(definition) => admission::admit(definition, object, stored),
            Form::Custom(custom) if custom.terminating => Err(self.no_creation(object)),
            Form::Custom(_) | Form::Untyped => Ok(()),
        }
    }

    /// Checks a valid object, new (without `old`) or changed, against others.
    pub(crate) fn check_valid(
        &self,
        new: &Value,
        old: Option<&Value>,
        stored: &dyn admission::Stored,
    ) -> Result<(), Failure> {
        match &self.form {
            Form::BuiltIn(definition) => admission::check(definition, new, old, stored),
            Form::Custom(_) | Form::Untyped => Ok(()),
        }
    }

    /// Replaces empty lists by null where both are stored as the same; the fields were tracked
    /// before, as they were sent.
    pub(crate) fn settle(&self, object: &mut Value) {
        if let Form::BuiltIn(name) = &self.form
            && let Some(definition) = definition::find(name)
        {
            decode::without_empty_lists(definition, object);
        }
    }

    /// Prepares a new object, with name and uid set, for storing. An object that is created through
    /// its status gets nothing allotted.
    ///
    /// # Errors
    /// Fails if a requested value cannot be allotted.
    pub(crate) fn prepare_create(
        &self,
        object: &mut Value,
        subresource: Option<&str>,
    ) -> Result<(), Failure> {
        if let Form::BuiltIn(definition) = &self.form {
            let addresses = subresource.is_none().then_some(&*self.addresses);
            return strategy::prepare_create(definition, object, addresses);
        }
        if self.has_status() {
            remove(object, "status");
        }
        if let Some(metadata) = child(object, "metadata") {
            set(metadata, "generation", 1);
        }
        Ok(())
    }

    /// Prepares an update for storing: restores the fields that this path may not change. Both
    /// objects are in this version.
    ///
    /// # Errors
    /// Fails if a requested value cannot be allotted.
    pub(crate) fn prepare_update(
        &self,
        new: &mut Value,
        old: &Value,
        subresource: Option<&str>,
    ) -> Result<(), Failure> {
        if let Form::BuiltIn(definition) = &self.form {
            return strategy::prepare_update(definition, new, old, subresource, &self.addresses);
        }
        if subresource == Some("status") {
            only_status(new, old);
            return Ok(());
        }
        if self.has_status() {
            copy(new, "status", old);
        }
        let has_status = self.has_status();
        let content = |object| {
            let members = members(object);
            members.filter(move |(key, _)| *key != "metadata" && !(has_status && *key == "status"))
        };
        let changed = !content(new).eq(content(old));
        let generation = at(old, &["metadata", "generation"]).as_i64().unwrap_or(0);
        if let Some(metadata) = child(new, "metadata") {
            set(metadata, "generation", generation + i64::from(changed));
        }
        Ok(())
    }

    /// Converts an object of this version to its stored form, without webhooks: an object of a
    /// converted version is in its stored form already.
    pub(crate) fn to_stored(&self, mut object: Value) -> Value {
        if self.is_converted() {
            return object;
        }
        // An object written in another version is decoded once more before it is stored.
        if let Form::Custom(custom) = &self.form
            && self.version != self.storage_version
        {
            self.complete_by(custom.stored_schema(), &mut object);
        }
        if let Some(conversion) = self.conversion() {
            (conversion.to_stored)(&mut object);
        }
        set(&mut object, "apiVersion", self.storage_api_version());
        object
    }

    /// Converts a stored object to this version, without webhooks: for a converted version the
    /// object stays in its stored form.
    pub(crate) fn to_version(&self, mut object: Value) -> Value {
        if self.is_converted() {
            return object;
        }
        self.read_stored(&mut object);
        if let Form::Custom(custom) = &self.form
            && custom.storage_schema.is_some()
        {
            self.complete_by(&custom.schema, &mut object);
        }
        if let Some(conversion) = self.conversion() {
            (conversion.from_stored)(&mut object);
        }
        set(&mut object, "apiVersion", self.api_version());
        set(&mut object, "kind", self.kind.clone());
        object
    }

    /// Completes a stored object as it is read: for custom resources, metadata are brought to their
    /// canonical form, and unknown fields and nulls that are not allowed are dropped.
    pub(crate) fn complete(&self, object: &mut Value) {
        match &self.form {
            Form::BuiltIn(definition) => strategy::complete(definition, object),
            Form::Custom(custom) => self.complete_by(&custom.schema, object),
            Form::Untyped => {}
        }
    }

    /// Completes a custom resource by the schema of one of its versions.
    pub(super) fn complete_by(&self, schema: &CustomSchema, object: &mut Value) {
        schema.prune(object);
        schema.drop_nulls(object);
        let before = object.get("metadata").cloned();
        // Metadata that cannot be decoded are shown as they are stored: the types of applied
        // metadata were checked before.
        if self.decode_metadata(object, &mut Vec::new()).is_err()
            && let Some(before) = before
        {
            set(object, "metadata", before);
        }
    }

    /// Completes a stored custom resource in its stored version, whose defaults it gets; those of
    /// the version that is asked for are filled in where an object is sent, but not here.
    pub(super) fn read_stored(&self, object: &mut Value) {
        if let Form::Custom(custom) = &self.form {
            let schema = custom.stored_schema();
            self.complete_by(schema, object);
            schema.default(object);
        }
    }

    fn reads_otherwise(&self, object: &Value) -> bool {
        let mut read = object.clone();
        match &self.form {
            Form::BuiltIn(_) if self.plural == "services" => self.complete(&mut read),
            Form::Custom(_) => self.read_stored(&mut read),
            Form::BuiltIn(_) | Form::Untyped => return false,
        }
        read != *object
    }

    /// Returns a number that changes when objects stored before may be shown in another form; zero
    /// if they never are.
    pub(crate) fn stamp(&self) -> u64 {
        match &self.form {
            Form::Custom(custom) => custom.stamp,
            Form::BuiltIn(_) | Form::Untyped => 0,
        }
    }

    /// Returns the stamp under which this object is stored; `others` is that of other objects of
    /// its kind.
    pub(crate) fn stamp_of(&self, object: &Value, others: u64) -> u64 {
        match &self.form {
            _ if !self.reads_otherwise(object) => others,
            Form::BuiltIn(_) => READ_OTHERWISE,
            // The object counts as one stored under another schema.
            Form::Custom(_) | Form::Untyped => 0,
        }
    }

    /// Returns whether an object stored under a stamp is shown unchanged in this version, except
    /// for `apiVersion` and `kind`.
    pub(crate) fn shows_as_stored(&self, stamp: u64) -> bool {
        match &self.form {
            Form::BuiltIn(_) => self.conversion().is_none() && stamp != READ_OTHERWISE,
            Form::Untyped => true,
            Form::Custom(custom) => {
                custom.stamp == stamp && custom.storage_schema.is_none() && !self.is_converted()
            }
        }
    }

    /// Returns the conversions between this version and the stored form, if they differ.
    fn conversion(&self) -> Option<Conversion> {
        match &self.form {
            Form::BuiltIn(definition) => builtin::conversion(definition),
            Form::Custom(_) | Form::Untyped => None,
        }
    }

    /// Updates the addresses in use after an object was stored, changed or removed.
    pub(crate) fn committed(&self, old: Option<&Value>, new: Option<&Value>) {
        if self.plural == "services" && self.group.is_empty() {
            self.addresses.committed(old, new);
        }
    }

    /// Returns the warning in answers to all requests for a deprecated version, if any.
    pub(crate) fn deprecation(&self) -> Option<&str> {
        match &self.form {
            Form::Custom(custom) => custom.deprecation.as_deref(),
            Form::BuiltIn("api.core.v1.Endpoints") => {
                Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
            }
            Form::BuiltIn(_) | Form::Untyped => None,
        }
    }

    /// Returns the 403 for a creation while the CRD is being deleted.
    pub(crate) fn no_creation(&self, object: &Value) -> Failure {
        let name = text(&object["metadata"], "name");
        let named = crate::status::Named::new(&self.group, &self.plural, name);
        Failure::forbidden(
            named,
            "create not allowed while custom resource definition is terminating",
        )
    }

    fn check_type(&self, body: &mut Value) -> Result<(), Failure> {
        let expected = self.api_version();
        let found = text(body, "apiVersion").to_owned();
        let kind = text(body, "kind").to_owned();
        if self.is_custom() {
            if kind.is_empty() {
                return Err(Failure::bad_request("Object 'Kind' is missing"));
            }
            if found.is_empty() {
                return Err(Failure::bad_request("Object 'apiVersion' is missing"));
            }
        }
        if !found.is_empty() && found != expected {
            return Err(Failure::bad_request(format!(
                "the API version in the data ({found}) does not match the expected API version ({expected})"
            )));
        }
        if !self.is_custom() && !kind.is_empty() && kind != self.kind {
            let why = match definition::of_kind(&found, &kind) {
                Some(_) => {
                    format!("converting (v1.{kind}) to (core.{}): unknown conversion", self.kind)
                }
                None => format!("no kind \"{kind}\" is registered for version \"{expected}\""),
            };
            return Err(Failure::bad_request(format!(
                "{kind} in version \"{}\" cannot be handled as a {}: {why}",
                self.version, self.kind
            )));
        }
        if !self.is_custom() {
            set(body, "apiVersion", expected);
            set(body, "kind", self.kind.clone());
        }
        Ok(())
    }

    /// Returns the text before the error of a body that is no object of this kind.
    pub(crate) fn unhandled(&self) -> String {
        let Self { kind, version, .. } = self;
        format!("{kind} in version \"{version}\" cannot be handled as a {kind}: ")
    }

    fn unreadable(&self, wrong: &impl Display) -> Failure {
        Failure::bad_request(format!("{}{wrong}", self.unhandled()))
    }

    fn decode_metadata(&self, body: &mut Value, unknown: &mut Vec<String>) -> Result<(), Failure> {
        let metadata = remove(body, "metadata").filter(|metadata| !metadata.is_null());
        let definition = definition::find("apimachinery.pkg.apis.meta.v1.ObjectMeta");
        let (Some(metadata), Some(definition)) = (metadata, definition) else {
            set(body, "metadata", json!({}));
            return Ok(());
        };
        let mut found = Vec::new();
        let metadata = decode::object(definition, metadata, &mut found)
            .map_err(|wrong| self.unreadable(&wrong))?;
        unknown.extend(found.into_iter().map(|path| format!("metadata.{path}")));
        set(body, "metadata", metadata);
        Ok(())
    }
}

/// Restores everything but the status, the managers and the resource version, for a write through
/// the status path.
fn only_status(new: &mut Value, old: &Value) {
    let status = remove(new, "status");
    let managed = new["metadata"].get("managedFields").cloned();
    let version = new["metadata"].get("resourceVersion").cloned();
    let (api_version, kind) = (new["apiVersion"].clone(), new["kind"].clone());
    *new = old.clone();
    set(new, "apiVersion", api_version);
    set(new, "kind", kind);
    if let Some(metadata) = child(new, "metadata") {
        for (key, value) in [("managedFields", managed), ("resourceVersion", version)] {
            match value {
                Some(value) => set(metadata, key, value),
                None => _ = remove(metadata, key),
            }
        }
    }
    match status {
        Some(status) => set(new, "status", status),
        None => _ = remove(new, "status"),
    }
}
