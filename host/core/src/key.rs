//! The name of an object within its kind, the identity of a reconciler, and the key of an object
//! for one reconciler of a processor.

use std::{fmt, sync::Arc};

use serde::Serialize;

/// The name of an object within its kind. Cheap to clone; sorts by namespace, then by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamespacedName {
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: Arc<str>,
    /// The name within the namespace.
    pub name: Arc<str>,
}

/// The identity of a reconciler within its processor: the name that the description declares. Cheap
/// to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ReconcilerId(Arc<str>);

/// The unit that is queued and reconciled: an object, for a reconciler of a processor. Cheap to
/// clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Key(Arc<Parts>);

#[derive(PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
struct Parts {
    processor: Arc<str>,
    reconciler: ReconcilerId,
    namespace: Option<Box<str>>,
    name: Box<str>,
}

// === impl NamespacedName ===

impl NamespacedName {
    /// Returns the name of an object; `namespace` is empty for a cluster-scoped one.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}/{}", self.namespace, self.name)
    }
}

// === impl ReconcilerId ===

impl ReconcilerId {
    /// Returns the name of the reconciler in the description.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ReconcilerId {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for ReconcilerId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

// === impl Key ===

impl Key {
    /// Returns the key of an object; without a namespace, of a cluster-scoped object.
    pub fn new(
        processor: &Arc<str>,
        reconciler: &ReconcilerId,
        namespace: Option<&str>,
        name: &str,
    ) -> Self {
        Self(Arc::new(Parts {
            processor: Arc::clone(processor),
            reconciler: reconciler.clone(),
            namespace: namespace.map(Into::into),
            name: name.into(),
        }))
    }

    /// Returns the name of the processor.
    pub fn processor(&self) -> &Arc<str> {
        &self.0.processor
    }

    /// Returns the identity of the processor's reconciler.
    pub fn reconciler(&self) -> &ReconcilerId {
        &self.0.reconciler
    }

    /// Returns the namespace of the object; `None` if the object is cluster-scoped.
    pub fn namespace(&self) -> Option<&str> {
        self.0.namespace.as_deref()
    }

    /// Returns the name of the object.
    pub fn name(&self) -> &str {
        &self.0.name
    }
}

impl fmt::Display for Key {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}/{}:", self.0.processor, self.0.reconciler)?;
        if let Some(namespace) = self.namespace() {
            write!(to, "{namespace}/")?;
        }
        to.write_str(self.name())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, to)
    }
}
