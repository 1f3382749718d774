//! The objects that exist for an APIRule, and their comparison with those that it needs.

use mortise_sdk::{Error, Host, Kind, Level, Selection};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::{
    api::ApiRule,
    authorization_policy::{self, Policy},
    change::{self, Change, Comparison, Desired},
    existing::{self, Existing, HASH, INDEX},
    istio, ory, request_authentication, virtual_service,
};

/// The objects that exist for an APIRule.
pub(crate) struct Produced {
    pub(crate) virtual_services: Vec<Existing>,
    pub(crate) authorization_policies: Vec<Existing>,
    pub(crate) request_authentications: Vec<Existing>,
    pub(crate) ory_rules: Vec<Existing>,
}

/// The objects that an APIRule needs.
#[derive(Default)]
pub(crate) struct Needed {
    /// `None` if the `VirtualService` stays as it is.
    pub(crate) virtual_service: Option<istio::VirtualServiceSpec>,
    /// The policies, each with its namespace.
    pub(crate) policies: Vec<(String, Policy)>,
    /// The specs of `RequestAuthentications`, each with its namespace.
    pub(crate) authentications: Vec<(String, istio::RequestAuthenticationSpec)>,
    /// `None` if Ory's `Rule`s stay as they are.
    pub(crate) ory_rules: Option<ory::Rules>,
}

/// The part that Ory's `Rule`s have for an APIRule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OryRules {
    /// They are written, so their kind must be installed.
    Written,
    /// They are only deleted.
    Deleted,
}

/// The reason why the existing objects cannot be told.
pub(crate) enum Unlisted {
    /// A CRD must be installed first; with a text for the status.
    Missing(String),
    /// A read is refused; with a text for the status.
    Unreadable(String),
    /// A read cannot be answered at the moment.
    Unavailable(Error),
}

impl Produced {
    /// Reads the objects that belong to an APIRule by their labels.
    pub(crate) fn list(rule: &ApiRule, host: &Host, ory_rules: OryRules) -> Result<Self, Unlisted> {
        let list = |kind: Kind, plural| {
            required(existing::list(host, &kind, rule, &existing::FIELDS), plural, host)
        };
        let virtual_services =
            list(istio::virtual_service(), "virtualservices.networking.istio.io")?;
        let written = match ory_rules {
            OryRules::Written => Some(list(ory::kind(), "rules.oathkeeper.ory.sh")?),
            OryRules::Deleted => None,
        };
        let authorization_policies =
            list(istio::authorization_policy(), "authorizationpolicies.security.istio.io")?;
        let request_authentications =
            list(istio::request_authentication(), "requestauthentications.security.istio.io")?;
        let ory_rules = match written {
            Some(written) => written,
            None => known(existing::list(host, &ory::kind(), rule, &existing::NAME_ONLY))?
                .unwrap_or_default(),
        };
        Ok(Self { virtual_services, authorization_policies, request_authentications, ory_rules })
    }

    /// Returns the changes from the existing objects to the needed ones.
    pub(crate) fn changes(
        self,
        rule: &ApiRule,
        needed: Needed,
        host: &Host,
    ) -> Result<Vec<Change>, Error> {
        let mut changes = Vec::new();
        if let Some(service) = &needed.virtual_service {
            changes.extend(virtual_services(rule, service, self.virtual_services, host)?);
        }
        changes.extend(policies(rule, needed.policies, self.authorization_policies, host)?);
        let authentications = needed.authentications;
        changes.extend(request_authentications(
            rule,
            &authentications,
            self.request_authentications,
            host,
        )?);
        if let Some(rules) = needed.ory_rules {
            changes.extend(ory_rules(rule, &rules, self.ory_rules, host)?);
        }
        Ok(changes)
    }
}

/// Returns `None` if the cluster does not know the kind.
pub(crate) fn known<T>(read: Result<T, Error>) -> Result<Option<T>, Error> {
    match read {
        Err(error) if error.is_unknown_kind() => Ok(None),
        read => read.map(Some),
    }
}

impl From<Error> for Unlisted {
    fn from(error: Error) -> Self {
        match error {
            Error::Unavailable { .. } => Self::Unavailable(error),
            _ => Self::Unreadable("Error happened during discovering dependencies".to_owned()),
        }
    }
}

fn required<T>(read: Result<T, Error>, crd: &str, host: &Host) -> Result<T, Unlisted> {
    read.map_err(|error| {
        if error.is_unknown_kind() {
            return Unlisted::Missing(format!(
                "CRD {crd} is not present. Make sure to install required dependencies for the component"
            ));
        }
        let message = error.to_string();
        let unlisted = Unlisted::from(error);
        if matches!(unlisted, Unlisted::Unreadable(_)) {
            let fields = [("crd", crd), ("error", message.as_str())];
            host.log(Level::Warn, "cannot read a dependency", &fields);
        }
        unlisted
    })
}

/// Returns the changes of the only `VirtualService`. If several are found, one in the APIRule's own
/// namespace is preferred, and the others stay as they are.
fn virtual_services(
    rule: &ApiRule,
    service: &istio::VirtualServiceSpec,
    mut existing: Vec<Existing>,
    host: &Host,
) -> Result<Vec<Change>, Error> {
    let kind = istio::virtual_service();
    existing.sort_by_key(|object| {
        let is_here = object.metadata.namespace.as_deref() == Some(rule.namespace());
        (!is_here, !virtual_service::is_made_for(rule, &object.metadata))
    });
    existing.truncate(1);
    let there = existing.first().and_then(|object| object.metadata.namespace.clone());
    let desired = Desired {
        key: virtual_service::KEY.to_owned(),
        namespace: there.unwrap_or_else(|| rule.namespace().to_owned()),
        labels: existing::labels(rule),
        spec: raw(service)?,
    };
    let existing = existing
        .into_iter()
        .map(|object| (Some(virtual_service::KEY.to_owned()), object))
        .collect();
    let lost = |desired: &Desired, name: &str| {
        let found = existing::get(host, &kind, &desired.namespace, name, &existing::FIELDS)?;
        if found.is_some() {
            return Ok(found);
        }
        let with_host = |host| Selection::new(kind.clone()).matching("spec.hosts[]", host);
        let selections = service.hosts.iter().map(with_host);
        first_generated(rule, host, selections.map(|of| of.namespace(&desired.namespace)))
    };
    let desired = vec![desired];
    Comparison { rule, kind: kind.clone(), existing, desired, lost: &lost }.changes()
}

/// Returns the first object whose name the original generated for an APIRule.
fn first_generated(
    rule: &ApiRule,
    host: &Host,
    selections: impl Iterator<Item = Selection>,
) -> Result<Option<Existing>, Error> {
    for selection in selections {
        let selection = selection.fields(existing::FIELDS);
        for object in host.objects::<Existing>(&selection, 0) {
            let object = object?;
            if existing::is_generated(&object.metadata, rule) {
                return Ok(Some(object));
            }
        }
    }
    Ok(None)
}

fn policies(
    rule: &ApiRule,
    policies: Vec<(String, Policy)>,
    existing: Vec<Existing>,
    host: &Host,
) -> Result<Vec<Change>, Error> {
    let kind = istio::authorization_policy();
    let mut desired = Vec::new();
    for (namespace, policy) in policies {
        let mut labels = existing::labels(rule);
        let key = authorization_policy::key(&namespace, &policy.hash, &policy.index);
        labels.extend([(HASH.to_owned(), policy.hash), (INDEX.to_owned(), policy.index)]);
        desired.push(Desired { key, namespace, labels, spec: raw(&policy.spec)? });
    }
    let key = |object: &Existing| {
        let labels = &object.metadata.labels;
        Some(authorization_policy::key(
            object.metadata.namespace.as_deref()?,
            labels.get(HASH)?,
            labels.get(INDEX)?,
        ))
    };
    let existing = existing.into_iter().map(|object| (key(&object), object)).collect();
    let lost = |desired: &Desired, name: &str| {
        let found = existing::get(host, &kind, &desired.namespace, name, &existing::FIELDS)?;
        if found.is_some() {
            return Ok(found);
        }
        let label = |name: &str| desired.labels.get(name).map_or("", String::as_str);
        let selector = format!("{HASH}={},{INDEX}={}", label(HASH), label(INDEX));
        // Rules that allow the same have policies of the same hash: the prefix tells them apart.
        let selection = Selection::new(kind.clone())
            .namespace(&desired.namespace)
            .labels(selector)
            .matching(existing::GENERATE_NAME, existing::generate_name(rule));
        first_generated(rule, host, [selection].into_iter())
    };
    Comparison { rule, kind: kind.clone(), existing, desired, lost: &lost }.changes()
}

fn request_authentications(
    rule: &ApiRule,
    authentications: &[(String, istio::RequestAuthenticationSpec)],
    existing: Vec<Existing>,
    host: &Host,
) -> Result<Vec<Change>, Error> {
    let kind = istio::request_authentication();
    let mut desired = Vec::new();
    for (namespace, spec) in authentications {
        let key = request_authentication::key(namespace, spec);
        let labels = existing::labels(rule);
        desired.push(Desired { key, namespace: namespace.clone(), labels, spec: raw(spec)? });
    }
    let key = |object: &Existing| {
        let spec = serde_json::from_str(object.spec.as_deref()?.get()).ok()?;
        Some(request_authentication::key(object.metadata.namespace.as_deref()?, &spec))
    };
    by_name(rule, &kind, existing.into_iter().map(|object| (key(&object), object)), desired, host)
}

fn ory_rules(
    rule: &ApiRule,
    rules: &ory::Rules,
    existing: Vec<Existing>,
    host: &Host,
) -> Result<Vec<Change>, Error> {
    if rules.specs.is_empty() {
        return Ok(change::deletions(&ory::kind(), existing).collect());
    }
    let mut desired = Vec::new();
    for spec in &rules.specs {
        let (namespace, labels) = (rule.namespace().to_owned(), existing::labels(rule));
        desired.push(Desired {
            key: rules.key(&spec.matches),
            namespace,
            labels,
            spec: raw(spec)?,
        });
    }
    // The original writes them in the APIRule's own namespace only.
    let key = |object: &Existing| {
        let is_here = object.metadata.namespace.as_deref() == Some(rule.namespace());
        let matches = ory::matches_of(object.spec.as_deref()?.get())?;
        is_here.then(|| rules.key(&matches))
    };
    let existing = existing.into_iter().map(|object| (key(&object), object));
    by_name(rule, &ory::kind(), existing, desired, host)
}

/// Compares objects that are found by their name if their labels were changed.
fn by_name(
    rule: &ApiRule,
    kind: &Kind,
    existing: impl Iterator<Item = (Option<String>, Existing)>,
    desired: Vec<Desired>,
    host: &Host,
) -> Result<Vec<Change>, Error> {
    let lost = |desired: &Desired, name: &str| {
        existing::get(host, kind, &desired.namespace, name, &existing::FIELDS)
    };
    let existing = existing.collect();
    Comparison { rule, kind: kind.clone(), existing, desired, lost: &lost }.changes()
}

fn raw(spec: &impl Serialize) -> Result<Box<RawValue>, Error> {
    to_raw_value(spec).map_err(|error| Error::Shape {
        what: "a spec to write".to_owned(),
        message: error.to_string(),
    })
}
