//! The Istio `Gateway` that an APIRule uses, and the hosts of its servers.

use mortise_sdk::{Error, Host, Kind, ObjectRef, object::Metadata};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::{api::ApiRule, hostname, istio};

/// The fields that are read of a `Gateway`.
pub(crate) const FIELDS: [&str; 1] = ["spec.servers[].hosts"];

/// The choice of a gateway in an APIRule: by `gateway`, by `externalGateway`, by neither or by
/// both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice<'a> {
    Neither,
    Both,
    Gateway(&'a str),
    External(&'a str),
}

/// The choice of an APIRule, and the objects that were found for it.
#[derive(Debug)]
pub(crate) struct Lookup<'a> {
    pub(crate) choice: Choice<'a>,
    /// True if the `ExternalGateway` exists.
    pub(crate) external: bool,
    /// The Istio `Gateway`, if it exists: the one that was named, or the one that was made for the
    /// `ExternalGateway`.
    pub(crate) gateway: Option<Selected>,
    /// Namespace/name of the `Gateway` that was looked up, if any.
    pub(crate) expected: Option<String>,
}

/// An Istio `Gateway`.
#[derive(Debug)]
pub(crate) struct Selected {
    /// The `Gateway` as namespace/name.
    pub(crate) name: String,
    /// The hosts of its servers.
    servers: Vec<Vec<String>>,
}

pub(crate) fn external_gateway() -> Kind {
    Kind::new("gateway.kyma-project.io", "v1alpha1", "ExternalGateway")
}

/// Reads the objects that an APIRule chooses. A read that cannot be answered at the moment is an
/// error; any other failure counts as an absent object.
pub(crate) fn look_up<'a>(rule: &'a ApiRule, host: &Host) -> Result<Lookup<'a>, Error> {
    let choice = Choice::of(rule);
    let mut lookup = Lookup { choice, external: false, gateway: None, expected: None };
    let place = match choice {
        Choice::Neither | Choice::Both => None,
        Choice::Gateway(name) => split(name).map(|(namespace, name)| (namespace, name.to_owned())),
        Choice::External(name) => {
            let (namespace, name) = split(name).unwrap_or((rule.namespace(), name));
            let external = ObjectRef::new(external_gateway(), Some(namespace), name);
            lookup.external =
                present(host.get_ref::<Named>(&external, &["metadata.name"]))?.is_some();
            lookup.external.then(|| (namespace, generated_name(name)))
        }
    };
    if let Some((namespace, name)) = place {
        let reference = ObjectRef::new(istio::gateway(), Some(namespace), &name);
        let found = present(host.get_ref::<istio::Gateway>(&reference, &FIELDS))?;
        lookup.gateway = found.map(|gateway| Selected::new(namespace, gateway));
        lookup.expected = Some(format!("{namespace}/{name}"));
    }
    Ok(lookup)
}

#[derive(Deserialize)]
struct Named {
    #[serde(rename = "metadata")]
    _metadata: Metadata,
}

fn present<T>(read: Result<Option<T>, Error>) -> Result<Option<T>, Error> {
    match read {
        Err(error @ Error::Unavailable { .. }) => Err(error),
        Err(_) => Ok(None),
        found => found,
    }
}

/// Splits `namespace/name`; `None` if there are not two parts, or one of them is empty.
pub(crate) fn split(name: &str) -> Option<(&str, &str)> {
    let (namespace, name) = name.split_once('/')?;
    let whole = !namespace.is_empty() && !name.is_empty() && !name.contains('/');
    whole.then_some((namespace, name))
}

/// Returns the name of the Istio `Gateway` that is made for an `ExternalGateway`.
fn generated_name(external: &str) -> String {
    const MAX_NAME_BYTES: usize = 45;
    const KEPT_NAME_BYTES: usize = 37;
    if external.len() <= MAX_NAME_BYTES {
        return format!("{external}-gw");
    }
    // The first seven hexadecimal digits.
    let first = Sha256::digest(external)
        .iter()
        .take(4)
        .fold(0, |number, byte| number << 8 | u32::from(*byte))
        >> 4;
    format!("{}-{first:07x}-gw", external.get(..KEPT_NAME_BYTES).unwrap_or(external))
}

impl<'a> Choice<'a> {
    pub(crate) fn of(rule: &'a ApiRule) -> Self {
        match (&rule.spec.gateway, &rule.spec.external_gateway) {
            (None, None) => Self::Neither,
            (Some(_), Some(_)) => Self::Both,
            (Some(gateway), None) => Self::Gateway(gateway),
            (None, Some(external)) => Self::External(external),
        }
    }
}

impl Selected {
    fn new(namespace: &str, gateway: istio::Gateway) -> Self {
        let servers = gateway.spec.servers.into_iter().map(|server| server.hosts).collect();
        Self { name: format!("{namespace}/{}", gateway.metadata.name), servers }
    }

    /// Returns the domain: the first host that a server has, without `*.`.
    pub(crate) fn domain(&self) -> Option<&str> {
        let first = self.servers.iter().find_map(|hosts| hosts.first())?;
        Some(first.strip_prefix("*.").unwrap_or(first))
    }

    /// Returns whether short hosts have exactly one meaning: all servers have the same single host,
    /// which is a wildcard.
    pub(crate) fn has_one_wildcard_host(&self) -> bool {
        let single = |hosts: &Vec<String>| match hosts.as_slice() {
            [host] => host.starts_with("*."),
            _ => false,
        };
        let mut servers = self.servers.iter();
        let Some(first) = servers.next() else { return false };
        single(first) && servers.all(|hosts| hosts == first)
    }

    /// Returns a host of the APIRule as a fully qualified domain name.
    pub(crate) fn qualified(&self, host: &str) -> Result<String, &'static str> {
        if !hostname::is_short(host) {
            return Ok(host.to_owned());
        }
        let domain = self
            .domain()
            .ok_or("gateway with host definition must be provided when using short host name")?;
        Ok(format!("{host}.{domain}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Servers<'a> = &'a [&'a [&'a str]];

    fn gateway(servers: Servers<'_>) -> Selected {
        let servers = servers
            .iter()
            .map(|hosts| hosts.iter().map(|host| (*host).to_owned()).collect())
            .collect();
        Selected { name: "a/b".to_owned(), servers }
    }

    #[test]
    fn a_gateway_may_lend_its_domain_to_short_hosts() {
        let cases: [(Servers<'_>, Option<&str>, bool); 7] = [
            (&[&["*.a.com"], &["*.a.com"]], Some("a.com"), true),
            (&[&["*.a.com"], &["*.b.com"]], Some("a.com"), false),
            (&[&["*.a.com", "*.b.com"]], Some("a.com"), false),
            (&[&["a.com"]], Some("a.com"), false),
            (&[&[], &["*.a.com"]], Some("a.com"), false),
            (&[&[]], None, false),
            (&[], None, false),
        ];
        for (servers, domain, single) in cases {
            let gateway = gateway(servers);
            assert_eq!(
                (gateway.domain(), gateway.has_one_wildcard_host()),
                (domain, single),
                "{servers:?}"
            );
            assert_eq!(
                gateway.qualified("x").ok(),
                domain.map(|domain| format!("x.{domain}")),
                "{servers:?}"
            );
            assert_eq!(gateway.qualified("x.org").unwrap(), "x.org");
        }
    }

    #[test]
    fn a_long_name_is_cut_and_gets_a_hash() {
        assert_eq!(generated_name("ext"), "ext-gw");
        assert_eq!(generated_name(&"a".repeat(45)), format!("{}-gw", "a".repeat(45)));
        assert_eq!(generated_name(&"a".repeat(46)), format!("{}-6643110-gw", "a".repeat(37)));
    }

    #[test]
    fn a_name_has_two_parts() {
        assert_eq!(split("a/b"), Some(("a", "b")));
        for name in ["", "a", "/", "a/", "/b", "a/b/c", "a.b.svc.cluster.local"] {
            assert_eq!(split(name), None, "{name}");
        }
    }
}
