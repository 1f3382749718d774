//! `--only`: the single object that is reconciled.

use std::{fmt, str::FromStr, sync::Arc};

use mortise_core::contract::{Description, Kind, ObjectRef};
use mortise_host::cluster::Cluster;
use serde_json::Value;

use crate::local;

/// The most objects that a message names.
const MAX_LISTED_OBJECTS: usize = 10;

/// The value `KIND/NAMESPACE/NAME`; the namespace is empty for cluster-scoped kinds. The kind may
/// be given as its plural, and in any case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Only {
    kind: String,
    namespace: String,
    name: String,
}

/// The objects that `--only` selects: one namespace and name, in one or more reconciled kinds.
#[derive(Debug, Clone)]
pub struct Chosen {
    kinds: Vec<Arc<Kind>>,
    namespace: String,
    name: String,
}

impl FromStr for Only {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let parts: Vec<&str> = text.split('/').collect();
        match parts.as_slice() {
            [kind, namespace, name] if !kind.is_empty() && !name.is_empty() => Ok(Self {
                kind: (*kind).to_owned(),
                namespace: (*namespace).to_owned(),
                name: (*name).to_owned(),
            }),
            _ => anyhow::bail!(
                "`--only {text}`: KIND/NAMESPACE/NAME is expected (KIND//NAME for cluster-scoped kinds)"
            ),
        }
    }
}

impl fmt::Display for Only {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.kind, self.namespace, self.name)
    }
}

impl Only {
    /// Finds the object among the reconciled objects.
    ///
    /// # Errors
    ///
    /// Fails if the kind is not reconciled, or if there is no such object.
    pub async fn find(
        &self,
        description: &Description,
        cluster: &Cluster,
        objects: &[Value],
    ) -> anyhow::Result<Chosen> {
        let mut named = Vec::new();
        let mut accepted = Vec::new();
        for reconciler in &description.reconcilers {
            let kind = &reconciler.of.kind;
            let resource = cluster.resolve(kind).await?;
            let plural = resource.map_or_else(|| local::plural(kind), |known| known.plural.clone());
            if self.names(kind, &plural) {
                named.push(kind.clone());
            }
            accepted.push(format!("{} ({plural})", kind.kind));
        }
        accepted.dedup();
        anyhow::ensure!(
            !named.is_empty(),
            "`--only {self}`: `{}` is not reconciled; accepted: {}",
            self.kind,
            accepted.join(", ")
        );
        let chosen =
            Chosen { kinds: named, namespace: self.namespace.clone(), name: self.name.clone() };
        let candidates = objects.iter().filter(|object| chosen.is_of_kind(&local::kind_of(object)));
        let there: Vec<String> = candidates.map(address).collect();
        let wanted = format!("{}/{}", self.namespace, self.name);
        let known = |address: &String| {
            address.split_once('/').is_some_and(|(_, address)| address == wanted)
        };
        if there.iter().any(known) {
            return Ok(chosen);
        }
        anyhow::bail!("`--only {self}`: there is no such object; {}", shown(&there))
    }

    fn names(&self, kind: &Kind, plural: &str) -> bool {
        let full = format!("{plural}.{}", kind.group);
        [&kind.kind, plural, &full].iter().any(|name| name.eq_ignore_ascii_case(&self.kind))
    }
}

// === impl Chosen ===

impl Chosen {
    /// Returns whether the object is chosen.
    pub fn is(&self, object: &ObjectRef) -> bool {
        let namespace = object.namespace.as_deref().unwrap_or_default();
        self.is_of_kind(&object.kind) && self.namespace == namespace && self.name == object.name
    }

    fn is_of_kind(&self, kind: &Kind) -> bool {
        self.kinds.iter().any(|known| known.is_same(kind))
    }
}

/// Formats an object as `--only` names it.
fn address(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    format!("{}/{}/{}", text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
}

fn shown(there: &[String]) -> String {
    if there.is_empty() {
        return "no object of that kind is among --objects".to_owned();
    }
    let named: Vec<&str> = there.iter().take(MAX_LISTED_OBJECTS).map(String::as_str).collect();
    let more = match there.len().saturating_sub(MAX_LISTED_OBJECTS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("accepted: {}{more}", named.join(", "))
}
