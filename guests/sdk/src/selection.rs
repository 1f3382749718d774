//! Builders for the contract's ways to name objects.

use crate::{Kind, Object, ObjectRef, Selection};

impl Kind {
    /// A kind by its group ("" for the core group), version and name.
    pub fn new(
        group: impl Into<String>,
        version: impl Into<String>,
        kind: impl Into<String>,
    ) -> Self {
        Self { group: group.into(), version: version.into(), kind: kind.into() }
    }

    /// `group/version`, or the version alone for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

impl ObjectRef {
    /// An object of the home cluster; `namespace` none for cluster-scoped kinds.
    pub fn new(kind: Kind, namespace: Option<&str>, name: impl Into<String>) -> Self {
        Self {
            cluster: String::new(),
            kind,
            namespace: namespace.map(ToOwned::to_owned),
            name: name.into(),
        }
    }

    /// An object of the home cluster, by its Rust type.
    pub fn of<T: Object>(namespace: Option<&str>, name: impl Into<String>) -> Self {
        Self::new(T::kind(), namespace, name)
    }
}

/// `Service default/httpbin`, as messages name it.
pub(crate) fn named(reference: &ObjectRef) -> String {
    match &reference.namespace {
        Some(namespace) => format!("`{} {namespace}/{}`", reference.kind.kind, reference.name),
        None => format!("`{} {}`", reference.kind.kind, reference.name),
    }
}

impl Selection {
    /// All objects of a kind, in all namespaces of the home cluster.
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

    /// All objects of a Rust type's kind.
    pub fn of<T: Object>() -> Self {
        Self::new(T::kind())
    }

    /// Only in this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Only of this name.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Only those whose labels this selector takes, in kubectl's syntax.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = selector.into();
        self
    }

    /// Only those that hold `value` at `path`; may be called more than once.
    #[must_use]
    pub fn matching(mut self, path: impl Into<String>, value: impl Into<String>) -> Self {
        self.matching.push((path.into(), value.into()));
        self
    }

    /// What the answer must hold: all else neither arrives nor triggers.
    #[must_use]
    pub fn fields<S: Into<String>>(mut self, fields: impl IntoIterator<Item = S>) -> Self {
        self.fields.extend(fields.into_iter().map(Into::into));
        self
    }
}
