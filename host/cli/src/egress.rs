//! The systems outside of the cluster that processors may call under a developer's commands.

use std::{fmt, io::Read as _, path::Path, sync::Arc};

use anyhow::Context as _;
use mortise_core::{
    contract::{Description, Selection, bounds::text::escaped},
    outbound::Outbound,
    write::Clock,
};
use mortise_host::{
    host::{Loaded, Options},
    operator::{api, granted},
    outbound::Client,
};
use serde::{Deserialize, Serialize};

use crate::args::EgressOption;

/// The beginning of an origin with TLS.
const TLS: &str = "https://";
/// The most bytes of a file of authorities, as of a `caBundle`.
const MAX_AUTHORITIES_BYTES: u64 = 64 << 10;

/// An entry of a Processor's `spec.egress`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Grant {
    pub origin: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<GrantCredential>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<GrantRate>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub private: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect: Option<String>,
    /// True if it has all credentials that the processor declares: to name an origin on a command
    /// line is to trust it with them.
    #[serde(skip)]
    pub all_credentials: bool,
}

/// Objects that may hold credentials.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantCredential {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    pub kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub labels: String,
}

/// The rate of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GrantRate {
    pub per_second: u32,
    pub burst: u32,
}

// === impl Grant ===

impl Grant {
    /// Returns the grants of exactly what a description declares, by origin.
    pub fn declared(description: &Description) -> Vec<Self> {
        let mut grants: Vec<Self> = Vec::new();
        for rule in &description.outbound {
            let grant = match grants.iter_mut().find(|grant| grant.origin == rule.origin) {
                Some(grant) => grant,
                None => grants.push_mut(Self { origin: rule.origin.clone(), ..Self::default() }),
            };
            grant.add(rule.credentials.iter().map(GrantCredential::of));
        }
        grants
    }

    /// Returns the grant of an option.
    ///
    /// # Errors
    ///
    /// Fails for an invalid origin or address, and for a file of authorities that cannot be read.
    pub fn given(option: &EgressOption) -> anyhow::Result<Self> {
        let EgressOption { origin, connect, authorities } = option;
        let grant = Self {
            origin: origin.clone(),
            credentials: Vec::new(),
            rate: None,
            ca_bundle: authorities.as_deref().map(read).transpose()?,
            // The address that is named may be a private one.
            private: connect.is_some(),
            connect: connect.clone(),
            all_credentials: true,
        };
        let of_option = |error: String| error.replacen("egress[0].", "--egress: ", 1);
        check(std::slice::from_ref(&grant)).map_err(of_option).map_err(anyhow::Error::msg)?;
        Ok(grant)
    }

    /// Returns the entry of a spec for a processor that declares these credentials.
    fn of_spec(mut self, declared: &[GrantCredential]) -> api::Egress {
        // Nothing else is sent over connections without TLS.
        if self.all_credentials && self.origin.starts_with(TLS) {
            self.add(declared.iter().cloned());
        }
        let Self { origin, credentials, rate, ca_bundle, private, connect, all_credentials: _ } =
            self;
        let credential =
            |GrantCredential { group, kind, labels }| api::EgressCredential { group, kind, labels };
        let credentials = credentials.into_iter().map(credential).collect();
        let rate =
            rate.map(|GrantRate { per_second, burst }| api::EgressRate { per_second, burst });
        api::Egress { origin, credentials, rate, ca_bundle, private, connect }
    }

    fn add(&mut self, credentials: impl Iterator<Item = GrantCredential>) {
        for credential in credentials {
            if !self.credentials.contains(&credential) {
                self.credentials.push(credential);
            }
        }
    }
}

/// Shows the origin, and the address that is connected to instead, if any.
impl fmt::Display for Grant {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&escaped(&self.origin))?;
        match &self.connect {
            Some(connect) => write!(to, " at {}", escaped(connect)),
            None => Ok(()),
        }
    }
}

// === impl GrantCredential ===

impl GrantCredential {
    fn of(selection: &Selection) -> Self {
        let kind = &selection.kind;
        let labels = selection.labels.clone();
        Self { group: kind.group.clone(), kind: kind.kind.clone(), labels }
    }
}

/// Fails for grants that a Processor could not have either. The message says what would be accepted.
///
/// # Errors
///
/// The first such grant.
pub fn check(grants: &[Grant]) -> Result<(), String> {
    let entries = grants.iter().cloned().map(|grant| grant.of_spec(&[]));
    let checked = granted(entries.collect()).map(|_| ());
    checked.map_err(|error| error.replacen("spec.egress", "egress", 1))
}

/// Grants a loaded processor calls to systems outside of the cluster. Of two grants of one origin
/// the first counts.
///
/// # Errors
///
/// Fails for a grant that a Processor could not have either.
pub fn grant(loaded: &mut Loaded, grants: impl IntoIterator<Item = Grant>) -> anyhow::Result<()> {
    let declared = loaded.description.credentials().map(GrantCredential::of);
    let declared: Vec<GrantCredential> = declared.collect();
    let mut entries: Vec<api::Egress> = Vec::new();
    for grant in grants {
        if !entries.iter().any(|entry| entry.origin == grant.origin) {
            entries.push(grant.of_spec(&declared));
        }
    }
    loaded.settings.egress = granted(entries).map_err(anyhow::Error::msg)?;
    Ok(())
}

/// Returns the client that sends calls, with what the host itself obeys.
pub fn client(options: &Options) -> Arc<dyn Outbound> {
    Arc::new(Client::new(None, Clock::clone(&options.now), options.metrics.clone()))
}

fn read(path: &Path) -> anyhow::Result<String> {
    let read = || {
        let mut text = String::new();
        let file = std::fs::File::open(path)?;
        file.take(MAX_AUTHORITIES_BYTES + 1).read_to_string(&mut text)?;
        std::io::Result::Ok(text)
    };
    let path = path.display();
    let text = read().with_context(|| {
        format!("cannot read `{path}`, which is to be a file of certificates of authorities in PEM")
    })?;
    let is_short = u64::try_from(text.len()).is_ok_and(|length| length <= MAX_AUTHORITIES_BYTES);
    anyhow::ensure!(
        is_short && text.contains("-----BEGIN CERTIFICATE-----"),
        "`{path}` is no file of certificates of authorities in PEM of at most {} KiB",
        MAX_AUTHORITIES_BYTES >> 10
    );
    Ok(text)
}

#[cfg(test)]
mod tests {
    use mortise_core::{
        contract::{Methods, OutboundRule},
        fixture::{all, description},
    };

    use super::*;

    /// A description of calls to two origins, with a credential each, and with one in common.
    fn calling() -> Description {
        let of = |kind: &str| Selection { labels: "a=b".into(), ..all(kind) };
        let rule = |origin: &str, methods, credentials| OutboundRule {
            origin: origin.into(),
            methods,
            credentials,
            pause: 0,
        };
        let outbound = vec![
            rule("https://a.example", Methods::GET, vec![of("Account")]),
            rule("https://b.example", Methods::GET, vec![of("Shop")]),
            rule("https://a.example", Methods::POST, vec![of("Account"), of("Key")]),
        ];
        Description { outbound, ..description(all("Rule"), vec![]) }
    }

    fn declared() -> Vec<GrantCredential> {
        calling().credentials().map(GrantCredential::of).collect()
    }

    fn kinds(of: &[api::EgressCredential]) -> Vec<&str> {
        of.iter().map(|of| of.kind.as_str()).collect()
    }

    #[test]
    fn what_is_declared_is_granted_once_for_each_origin() {
        let grants = Grant::declared(&calling());
        let granted: Vec<_> = grants.into_iter().map(|of| of.of_spec(&declared())).collect();
        let [a, b] = granted.as_slice() else { panic!("two") };
        assert_eq!(
            (a.origin.as_str(), kinds(&a.credentials)),
            ("https://a.example", vec!["Account", "Key"])
        );
        assert_eq!((b.origin.as_str(), kinds(&b.credentials)), ("https://b.example", vec!["Shop"]));
        assert!(!a.private && a.connect.is_none() && a.credentials[0].labels == "a=b");
    }

    #[test]
    fn an_option_grants_all_credentials_and_private_addresses_only_where_it_names_one() {
        let given = |text: &str| Grant::given(&text.parse().unwrap()).unwrap().of_spec(&declared());
        let named = given("https://a.example=127.0.0.1:8443");
        assert_eq!(kinds(&named.credentials), ["Account", "Shop", "Key"]);
        assert_eq!((named.private, named.connect.as_deref()), (true, Some("127.0.0.1:8443")));
        let plain = given("http://a.example=127.0.0.1:8080");
        assert!(plain.credentials.is_empty(), "over TLS only");
        let public = given("https://*.a.example");
        assert_eq!((public.private, public.connect, public.ca_bundle), (false, None, None));
    }

    #[test]
    fn authorities_are_read_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca,1.pem");
        let given = || {
            let text = format!("https://a.example=b:1,{}", file.display());
            Grant::given(&text.parse().unwrap()).map_err(|error| format!("{error:#}"))
        };
        assert!(given().unwrap_err().contains("authorities in PEM: "));
        let certificate = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
        std::fs::write(&file, certificate).unwrap();
        assert_eq!(read(&file).unwrap(), certificate);
        assert!(given().unwrap_err().contains("--egress: caBundle: "), "it is no certificate");
        std::fs::write(&file, certificate.repeat(2_000)).unwrap();
        assert!(given().unwrap_err().ends_with("in PEM of at most 64 KiB"));
    }

    #[test]
    fn a_grant_of_another_form_is_refused() {
        for (grant, part) in [
            (r#"{"origin": "a"}"#, "an origin is"),
            (r#"{"origin": "https://a.example/path"}"#, "an origin is"),
            (r#"{"origin": "https://a.example", "connect": "b"}"#, "connect: "),
            (
                r#"{"origin": "https://a.example", "credentials": [{"kind": ""}]}"#,
                "credentials[0].kind: ",
            ),
            (r#"{"origin": "https://a.example", "connect": "b:70000"}"#, "connect: "),
        ] {
            let error = check(&[serde_json::from_str(grant).unwrap()]).unwrap_err();
            assert!(error.contains(part), "{grant}: {error}");
        }
        for unknown in ["allCredentials", "methods", "ca"] {
            let grant = format!(r#"{{"origin": "https://a.example", "{unknown}": true}}"#);
            let error = serde_json::from_str::<Grant>(&grant).unwrap_err().to_string();
            assert!(error.contains("unknown field"), "{error}");
        }
    }
}
