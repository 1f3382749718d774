//! Builders for the records that name objects: kinds, references and selections.

use crate::{Kind, Object, ObjectRef, Selection};

impl Kind {
    /// Creates a kind from its group ("" for the core group), its version and its name.
    pub fn new(
        group: impl Into<String>,
        version: impl Into<String>,
        kind: impl Into<String>,
    ) -> Self {
        Self { group: group.into(), version: version.into(), kind: kind.into() }
    }

    /// Returns `group/version`, or only the version for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

impl ObjectRef {
    /// Creates a reference to an object of the home cluster, which is the one that the host runs
    /// in. `namespace` is `None` for cluster-scoped kinds.
    pub fn new(kind: Kind, namespace: Option<&str>, name: impl Into<String>) -> Self {
        Self {
            cluster: String::new(),
            kind,
            namespace: namespace.map(ToOwned::to_owned),
            name: name.into(),
        }
    }

    /// Creates a reference to an object of the home cluster, of the kind of `T`.
    pub fn of<T: Object>(namespace: Option<&str>, name: impl Into<String>) -> Self {
        Self::new(T::kind(), namespace, name)
    }
}

/// Formats a kind as the host does: `ConfigMap v1`, `VirtualService networking.istio.io/v1`.
pub(crate) fn display_kind(kind: &Kind) -> String {
    format!("{} {}", kind.kind, kind.api_version())
}

/// Formats a kind with namespace and name, as the host does.
pub(crate) fn display_ref(of: &ObjectRef) -> String {
    let kind = display_kind(&of.kind);
    let cluster =
        if of.cluster.is_empty() { String::new() } else { format!(" in cluster `{}`", of.cluster) };
    match &of.namespace {
        Some(namespace) => format!("{kind} `{namespace}/{}`{cluster}", of.name),
        None => format!("{kind} `{}`{cluster}", of.name),
    }
}

impl Selection {
    /// Selects all objects of a kind, in all namespaces of the home cluster, which is the one that
    /// the host runs in.
    pub fn new(kind: Kind) -> Self {
        Self {
            cluster: String::new(),
            kind,
            namespace: None,
            name: None,
            labels: String::new(),
            matching: Vec::new(),
            fields: Vec::new(),
        }
    }

    /// Selects all objects of the kind of `T`, in all namespaces of the home cluster.
    pub fn of<T: Object>() -> Self {
        Self::new(T::kind())
    }

    /// Limits the selection to objects in this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Limits the selection to objects with this name.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Limits the selection to objects that match this label selector, in kubectl's syntax:
    /// `a=b,c!=d,e in (f,g),h,!i`.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = selector.into();
        self
    }

    /// Limits the selection to objects that hold `value` at `path`. May be called more than once:
    /// an object must then fulfil every condition.
    ///
    /// A number or a boolean counts as text. If `path` leads through a list, any of its elements
    /// may hold the value.
    #[must_use]
    pub fn matching(mut self, path: impl Into<String>, value: impl Into<String>) -> Self {
        self.matching.push((path.into(), value.into()));
        self
    }

    /// Adds paths to read. Other fields are left out of the answer, and changes of them do not
    /// trigger a reconcile.
    ///
    /// Without any path, a read returns all declared fields, and a declaration means whole objects.
    #[must_use]
    pub fn fields<S: Into<String>>(mut self, fields: impl IntoIterator<Item = S>) -> Self {
        self.fields.extend(fields.into_iter().map(Into::into));
        self
    }
}
