//! The selection of a list, a watch or the deletion of a collection: a namespace, labels and
//! fields.

use std::borrow::Cow;

use serde_json::Value;

use crate::{
    Failure,
    kind::Resource,
    request::{ListOptions, ResourcePath},
    selector::{FieldSelector, LabelSelector, parse_fields},
    state::State,
    storage::Image,
};

/// The selected objects of a resource.
#[derive(Debug, Clone)]
pub(super) struct Selection {
    pub(super) namespace: String,
    labels: LabelSelector,
    fields: FieldSelector,
    /// True if the field selector needs fields that are not known without parsing the object.
    parses: bool,
}

// === impl Selection ===

impl Selection {
    /// Returns the selection of the path and the options; a name in the path (the old form of a
    /// watch) counts as a field selector.
    pub(super) fn of(
        path: &ResourcePath,
        options: &ListOptions,
        resource: &Resource,
    ) -> Result<Self, Failure> {
        let bad = |why: crate::selector::SelectorError| Failure::bad_request(why.to_string());
        let labels = LabelSelector::parse(&options.label_selector).map_err(bad)?;
        let fields = if path.name.is_empty() {
            parse_fields(&options.field_selector).map_err(bad)?
        } else {
            FieldSelector::of_name(&path.name)
        };
        let unknown =
            fields.terms().iter().find(|term| resource.field(&Value::Null, &term.field).is_none());
        if let Some(term) = unknown {
            return Err(Failure::bad_request(resource.unknown_field(&term.field)));
        }
        let parses = fields.terms().iter().any(|term| !is_in_head(&term.field));
        Ok(Self { namespace: path.namespace.clone(), labels, fields, parses })
    }

    /// Returns whether all objects in the namespace are selected.
    pub(super) fn is_whole(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns the only name that can match, if any.
    pub(super) fn name(&self) -> Option<&str> {
        self.fields.name()
    }

    pub(super) fn matches(&self, resource: &Resource, image: &Image) -> bool {
        let head = &image.head;
        if !self.labels.matches_by(|key| head.labels.get(key)) {
            return false;
        }
        if self.fields.is_empty() {
            return true;
        }
        let object = match self.parses.then(|| State::view(resource, image)) {
            None => Value::Null,
            Some(Ok(object)) => object,
            // Selected, so that the request fails when the object is shown.
            Some(Err(_)) => return true,
        };
        self.fields.matches(|field| match field {
            "metadata.name" => head.name.clone(),
            "metadata.namespace" => head.namespace().to_owned(),
            _ => resource.field(&object, field).map(Cow::into_owned).unwrap_or_default(),
        })
    }
}

fn is_in_head(field: &str) -> bool {
    matches!(field, "metadata.name" | "metadata.namespace")
}
