//! The places of objects at the provider, by the way in which consumers are kept apart.

use crate::api::{BoundSchemaSpec, ExportSpec};

/// The way in which objects of one kind are kept apart from those of other consumers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// In a namespace for each namespace of the consumer: all namespaced kinds.
    ServiceNamespaced,
    /// Under the same name.
    None,
    /// Under the name with the cluster namespace before it.
    Prefixed,
    /// In the cluster namespace.
    Namespaced,
}

/// The namespace, if any, and the name of an object.
pub(crate) type Name = (Option<String>, String);

/// The longest name of an object, in bytes.
const MAX_NAME_BYTES: usize = 253;

impl Isolation {
    /// Returns the isolation of a kind with this scope at the consumer.
    pub(crate) fn of(is_namespaced: bool, export: &ExportSpec) -> Self {
        if is_namespaced {
            return Self::ServiceNamespaced;
        }
        match export.isolation.as_str() {
            "Prefixed" => Self::Prefixed,
            "Namespaced" => Self::Namespaced,
            _ => Self::None,
        }
    }

    /// Returns whether the objects at the provider belong to the cluster namespace.
    pub(crate) fn is_owned(self) -> bool {
        matches!(self, Self::None | Self::Prefixed)
    }

    /// Returns whether the original looks at one namespace of the provider after the other.
    pub(crate) fn is_watched_by_namespace(self, schema: &BoundSchemaSpec) -> bool {
        self == Self::ServiceNamespaced && schema.informer_scope != "Cluster"
    }

    /// Returns the place at the provider of an object of the consumer. `namespace` is the
    /// provider's namespace for that of the object.
    ///
    /// # Errors
    ///
    /// The name is too long.
    pub(crate) fn to_provider(
        self,
        cluster_namespace: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Name, String> {
        Ok(match self {
            Self::ServiceNamespaced => (namespace.map(str::to_owned), name.to_owned()),
            Self::None => (None, name.to_owned()),
            Self::Namespaced => (Some(cluster_namespace.to_owned()), name.to_owned()),
            Self::Prefixed => {
                let prefixed = format!("{cluster_namespace}-{name}");
                if prefixed.len() > MAX_NAME_BYTES {
                    return Err(format!(
                        "the name at the provider, `{prefixed}`, is longer than {MAX_NAME_BYTES} bytes"
                    ));
                }
                (None, prefixed)
            }
        })
    }

    /// Returns the place at the consumer of an object of the provider; `None` if it is none of this
    /// consumer. `mapped` is the consumer's namespace for that of the object.
    pub(crate) fn to_consumer(
        self,
        cluster_namespace: &str,
        namespace: Option<&str>,
        name: &str,
        mapped: Option<&str>,
    ) -> Option<Name> {
        match self {
            Self::ServiceNamespaced => Some((Some(mapped?.to_owned()), name.to_owned())),
            Self::None => Some((None, name.to_owned())),
            Self::Namespaced => {
                (namespace == Some(cluster_namespace)).then(|| (None, name.to_owned()))
            }
            Self::Prefixed => {
                let rest = name.strip_prefix(cluster_namespace)?.strip_prefix('-')?;
                (!rest.is_empty()).then(|| (None, rest.to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scope_decides_before_the_export_does() {
        let cases = [
            (true, "None", Isolation::ServiceNamespaced),
            (false, "None", Isolation::None),
            (false, "Prefixed", Isolation::Prefixed),
            (false, "Namespaced", Isolation::Namespaced),
            (false, "Unknown", Isolation::None),
        ];
        for (is_namespaced, isolation, expected) in cases {
            let export = ExportSpec { isolation: isolation.into(), ..ExportSpec::default() };
            assert_eq!(Isolation::of(is_namespaced, &export), expected, "{isolation}");
        }
    }

    #[test]
    fn places_lead_there_and_back() {
        let cases = [
            (
                Isolation::ServiceNamespaced,
                Some("team"),
                Some("cn-team"),
                (Some("cn-team"), "luna"),
            ),
            (Isolation::None, None, None, (None, "luna")),
            (Isolation::Prefixed, None, None, (None, "cn-luna")),
            (Isolation::Namespaced, None, None, (Some("cn"), "luna")),
        ];
        for (isolation, consumer, provider, (namespace, name)) in cases {
            let there = isolation.to_provider("cn", provider, "luna").unwrap();
            assert_eq!(there, (namespace.map(str::to_owned), name.to_owned()), "{isolation:?}");
            let back = isolation.to_consumer("cn", namespace, name, consumer);
            assert_eq!(
                back,
                Some((consumer.map(str::to_owned), "luna".to_owned())),
                "{isolation:?}"
            );
        }
    }

    #[test]
    fn objects_of_others_have_no_place_at_the_consumer() {
        let cases = [
            (Isolation::ServiceNamespaced, Some("elsewhere"), "luna"),
            (Isolation::Prefixed, None, "luna"),
            (Isolation::Prefixed, None, "cn-"),
            (Isolation::Prefixed, None, "cnluna"),
            (Isolation::Namespaced, Some("other"), "luna"),
        ];
        for (isolation, namespace, name) in cases {
            assert_eq!(
                isolation.to_consumer("cn", namespace, name, None),
                None,
                "{isolation:?} {name}"
            );
        }
    }

    #[test]
    fn a_name_that_grows_too_long_is_refused() {
        let error = Isolation::Prefixed.to_provider("cn", None, &"x".repeat(251)).unwrap_err();
        assert!(error.ends_with("is longer than 253 bytes"), "{error}");
        Isolation::Prefixed.to_provider("cn", None, &"x".repeat(250)).unwrap();
    }
}
