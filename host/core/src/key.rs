//! The name of an object within its kind, the identity of a reconciler, and the key of an object
//! for one reconciler of a processor.

use std::{fmt, sync::Arc};

use serde::Serialize;

use crate::contract::Kind;

/// The name of an object within its kind. Cheap to clone; sorts by namespace, then by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamespacedName {
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: Arc<str>,
    /// The name within the namespace.
    pub name: Arc<str>,
}

/// The identity of a reconciler within its processor: the name that the description declares, and
/// for an on-demand one also the kind that it was started for, as `name@cluster/group/version/Kind`.
/// Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ReconcilerId(Arc<str>);

/// The character between the name of an on-demand reconciler and its kind. Names are DNS labels.
const OF_KIND: char = '@';

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
    /// Returns the identity of an on-demand reconciler that was started for a kind.
    pub fn on_demand(name: &str, kind: &Kind) -> Self {
        let Kind { cluster, group, version, kind } = kind;
        Self(format!("{name}{OF_KIND}{cluster}/{group}/{version}/{kind}").into())
    }

    /// Returns the name of the reconciler in the description.
    pub fn name(&self) -> &str {
        self.0.split_once(OF_KIND).map_or(&*self.0, |(name, _)| name)
    }

    /// Returns the kind that an on-demand reconciler was started for; `None` for any other one.
    pub fn kind(&self) -> Option<Kind> {
        let (_, of) = self.0.split_once(OF_KIND)?;
        // Only the name of a cluster may hold further slashes.
        let mut parts = of.rsplitn(4, '/').map(str::to_owned);
        let (kind, version, group) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Kind { cluster: parts.next()?.into(), group, version, kind })
    }

    /// Returns whether the reconciler is an on-demand one.
    pub fn is_on_demand(&self) -> bool {
        self.0.contains(OF_KIND)
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

    /// Returns the namespace of the processor, as [`tenant_of`] does.
    pub(crate) fn tenant(&self) -> &str {
        tenant_of(&self.0.processor)
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

/// Returns the namespace of a processor `namespace/name`, whose processors share places; empty if it
/// has none.
pub fn tenant_of(processor: &str) -> &str {
    processor.split_once('/').map_or("", |(namespace, _)| namespace)
}
