//! The systems outside of the cluster that a Processor grants: `spec.egress`.

use std::{fmt, sync::Arc};

use mortise_core::{
    labels::LabelSelector,
    outbound::{Egress, GrantedCredential, Origin, Rate},
};

use super::{
    api::{self, ProcessorSpec},
    fault::Fault,
};
use crate::{
    cluster::remote::listed,
    http::{Address, Trust, build_with},
    outbound,
    reason::Reason,
};

/// The entries of `spec.egress`.
const MAX_ENTRIES: usize = 32;
/// The credentials of an entry.
const MAX_CREDENTIALS: usize = 16;
/// The longest `caBundle`, in bytes: some twenty certificates.
const MAX_CA_BUNDLE_BYTES: usize = 64 << 10;
/// The largest number of a rate.
const MAX_RATE: u32 = 10_000;

/// An entry of `spec.egress`, for messages.
#[derive(Clone, Copy)]
struct Field(usize);

/// Returns what a spec grants.
///
/// # Errors
///
/// Fails for an entry that cannot be read.
pub(super) fn grants(spec: &ProcessorSpec) -> Result<Arc<[Arc<Egress>]>, Fault> {
    if spec.egress.len() > MAX_ENTRIES {
        let count = spec.egress.len();
        return Err(invalid(format!(
            "spec.egress has {count} entries; at most {MAX_ENTRIES} are accepted"
        )));
    }
    let mut known: Vec<String> = Vec::new();
    let mut all = Vec::new();
    for (at, of) in spec.egress.iter().enumerate() {
        let egress = Field(at).grant(of)?;
        if let Some(first) = known.iter().position(|origin| *origin == egress.origin) {
            let origin = &egress.origin;
            let why = format!(
                "`{origin}` is granted by spec.egress[{first}] already; one entry for each origin is accepted"
            );
            return Err(Field(at).invalid("origin", why));
        }
        known.push(egress.origin.clone());
        all.push(Arc::new(egress));
    }
    Ok(all.into())
}

/// Returns what entries of `spec.egress` grant, for a developer's command.
///
/// # Errors
///
/// Fails for an entry that cannot be read. The message says what would be accepted.
pub fn granted(egress: Vec<api::Egress>) -> Result<Arc<[Arc<Egress>]>, String> {
    let spec = ProcessorSpec { egress, ..ProcessorSpec::default() };
    grants(&spec).map_err(|fault| fault.message)
}

/// Checks that the host allows what a spec grants.
///
/// # Errors
///
/// Fails for an entry that cannot be read, or that the host does not allow.
pub(super) fn check(spec: &ProcessorSpec, host: &outbound::Options) -> Result<(), Fault> {
    for (at, egress) in grants(spec)?.iter().enumerate() {
        Field(at).check(egress, host)?;
    }
    Ok(())
}

fn invalid(message: String) -> Fault {
    Fault::new(Reason::EgressInvalid, message)
}

// === impl Field ===

impl fmt::Display for Field {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "spec.egress[{}]", self.0)
    }
}

impl Field {
    fn invalid(self, part: &str, why: impl fmt::Display) -> Fault {
        invalid(format!("{self}.{part}: {why}"))
    }

    fn grant(self, of: &api::Egress) -> Result<Egress, Fault> {
        let origin = of.origin.parse().map_err(|why: String| self.invalid("origin", why))?;
        Ok(Egress {
            credentials: self.credentials(of, &origin)?,
            origin: origin.to_string(),
            rate: of.rate.map(|rate| self.rate(rate)).transpose()?,
            ca_bundle: of.ca_bundle.as_deref().map(|pem| self.ca_bundle(pem)).transpose()?,
            private: of.private,
            connect: of.connect.as_deref().map(|to| self.connect(to)).transpose()?,
        })
    }

    fn credentials(
        self,
        of: &api::Egress,
        origin: &Origin,
    ) -> Result<Vec<GrantedCredential>, Fault> {
        let count = of.credentials.len();
        if count > MAX_CREDENTIALS {
            let why = format!("{count} entries; at most {MAX_CREDENTIALS} are accepted");
            return Err(self.invalid("credentials", why));
        }
        if count > 0 && !origin.is_tls() {
            let why = format!(
                "credentials are sent over TLS only, and not to `{origin}`; an origin with `https://` is accepted"
            );
            return Err(self.invalid("credentials", why));
        }
        let credential = |(at, of): (usize, &api::EgressCredential)| {
            let part = |part: &str| format!("credentials[{at}].{part}");
            if of.kind.is_empty() {
                let why = "no kind; the name of a kind is accepted, as `Secret`";
                return Err(self.invalid(&part("kind"), why));
            }
            if let Err(why) = LabelSelector::parse(&of.labels) {
                return Err(self.invalid(&part("labels"), why));
            }
            let (group, kind, labels) = (of.group.clone(), of.kind.clone(), of.labels.clone());
            Ok(GrantedCredential { group, kind, labels })
        };
        of.credentials.iter().enumerate().map(credential).collect()
    }

    fn rate(self, of: api::EgressRate) -> Result<Rate, Fault> {
        let api::EgressRate { per_second, burst } = of;
        for (part, number) in [("rate.perSecond", per_second), ("rate.burst", burst)] {
            if !(1..=MAX_RATE).contains(&number) {
                let why = format!("{number}; 1 to {MAX_RATE} is accepted, or no rate for no limit");
                return Err(self.invalid(part, why));
            }
        }
        Ok(Rate { per_second, burst })
    }

    fn ca_bundle(self, pem: &str) -> Result<Arc<str>, Fault> {
        if pem.len() > MAX_CA_BUNDLE_BYTES {
            let most = MAX_CA_BUNDLE_BYTES >> 10;
            return Err(self.invalid("caBundle", format!("at most {most} KiB are accepted")));
        }
        let trust = Trust { authorities: Some(pem.as_bytes()), identity: None };
        match build_with(&trust) {
            Ok(_) => Ok(pem.into()),
            Err(why) => Err(self.invalid("caBundle", why)),
        }
    }

    fn connect(self, to: &str) -> Result<Arc<str>, Fault> {
        // The port stands there, as the origin's is not used.
        let has_port = to.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let address = Address::at(true, to, "").filter(|of| has_port && of.path_and_query == "/");
        match address {
            Some(_) => Ok(to.into()),
            None => Err(self
                .invalid("connect", format!("`{}`; `HOST:PORT` is accepted", to.escape_debug()))),
        }
    }

    fn check(self, of: &Egress, host: &outbound::Options) -> Result<(), Fault> {
        let origin: Origin =
            of.origin.parse().map_err(|why: String| self.invalid("origin", why))?;
        if !host.origins.iter().any(|allowed| allowed.covers(&origin)) {
            let accepted = listed(&host.origins);
            let why = format!("this host does not allow `{origin}`; --egress allows {accepted}");
            return Err(self.invalid("origin", why));
        }
        for (part, is_set) in [("private", of.private), ("connect", of.connect.is_some())] {
            if is_set && !host.private {
                let why = "this host does not allow it; leave it out, or start the host with --egress-private";
                return Err(self.invalid(part, why));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ORIGIN: &str = "https://a.example.com";

    fn spec(egress: &Value) -> ProcessorSpec {
        let spec = json!({
            "module": {"path": "a.wasm"}, "serviceAccountName": "a", "egress": egress,
        });
        serde_json::from_value(spec).unwrap()
    }

    fn host(origins: &[&str], private: bool) -> outbound::Options {
        let origins = origins.iter().map(|text| text.parse().unwrap()).collect();
        outbound::Options { origins, private, ..outbound::Options::default() }
    }

    fn refusal(egress: &Value, host: &outbound::Options) -> String {
        let fault = check(&spec(egress), host).unwrap_err();
        assert_eq!(fault.reason, Reason::EgressInvalid, "{}", fault.message);
        fault.message
    }

    #[test]
    fn an_entry_grants_what_its_fields_say() {
        let egress = json!([
            {
                "origin": "https://*.example.com:443", "rate": {"perSecond": 20, "burst": 100},
                "credentials": [{"kind": "Secret", "labels": "a.example/b=c"}, {"group": "g", "kind": "Auth"}],
            },
            {"origin": "http://10.0.0.7:8080", "private": true, "connect": "[::1]:8443"},
        ]);
        let credential = |group: &str, kind: &str, labels: &str| GrantedCredential {
            group: group.to_owned(),
            kind: kind.to_owned(),
            labels: labels.to_owned(),
        };
        let expected = [
            Egress {
                origin: "https://*.example.com".to_owned(),
                credentials: vec![
                    credential("", "Secret", "a.example/b=c"),
                    credential("g", "Auth", ""),
                ],
                rate: Some(Rate { per_second: 20, burst: 100 }),
                ca_bundle: None,
                private: false,
                connect: None,
            },
            Egress {
                origin: "http://10.0.0.7:8080".to_owned(),
                credentials: Vec::new(),
                rate: None,
                ca_bundle: None,
                private: true,
                connect: Some("[::1]:8443".into()),
            },
        ];
        let granted = grants(&spec(&egress)).unwrap();
        assert_eq!(granted.iter().map(|of| (**of).clone()).collect::<Vec<_>>(), expected);
        check(&spec(&egress), &host(&["https://*.example.com", "http://10.0.0.7:8080"], true))
            .unwrap();
    }

    #[expect(clippy::too_many_lines, reason = "a flat table")]
    #[test]
    fn an_entry_that_cannot_be_read_is_refused_by_its_field() {
        let host = host(&["https://*.example.com", "http://a.example.com"], true);
        let with = |field: &str, value: Value| {
            let mut entry = json!({"origin": ORIGIN});
            entry[field] = value;
            json!([entry])
        };
        let long = "a".repeat(MAX_CA_BUNDLE_BYTES + 1);
        let cases = [
            (json!([{"origin": "ftp://a.example.com"}]), "[0].origin: ", "an origin is `https://"),
            (
                json!([{"origin": "https://a.example.com/v1"}]),
                "[0].origin: ",
                "an origin is `https://",
            ),
            (
                json!([{"origin": "https://u@a.example.com"}]),
                "[0].origin: ",
                "an origin is `https://",
            ),
            (json!([{"origin": "https://*.com"}]), "[0].origin: ", "an origin is `https://"),
            (
                json!([{"origin": ORIGIN}, {"origin": "https://a.example.com:443"}]),
                "[1].origin: ",
                "granted by spec.egress[0] already",
            ),
            (
                with("rate", json!({"perSecond": 0, "burst": 1})),
                "[0].rate.perSecond: 0; ",
                "1 to 10000 is accepted",
            ),
            (
                with("rate", json!({"perSecond": 1, "burst": 0})),
                "[0].rate.burst: 0; ",
                "1 to 10000 is accepted",
            ),
            (
                with("rate", json!({"perSecond": 1, "burst": 10_001})),
                "[0].rate.burst: 10001; ",
                "1 to 10000",
            ),
            (with("caBundle", json!("no PEM")), "[0].caBundle: ", "-----BEGIN CERTIFICATE-----"),
            (with("caBundle", json!(long)), "[0].caBundle: ", "at most 64 KiB"),
            (with("connect", json!("a.example.com")), "[0].connect: ", "`HOST:PORT` is accepted"),
            (
                with("connect", json!("a.example.com:443/x")),
                "[0].connect: ",
                "`HOST:PORT` is accepted",
            ),
            (
                with("connect", json!("u@a.example.com:443")),
                "[0].connect: ",
                "`HOST:PORT` is accepted",
            ),
            (with("connect", json!("a:0")), "[0].connect: ", "`HOST:PORT` is accepted"),
            (
                with("credentials", json!([{"kind": "Secret", "labels": "a in"}])),
                "[0].credentials[0].labels: ",
                "",
            ),
            (
                with("credentials", json!([{"kind": ""}])),
                "[0].credentials[0].kind: ",
                "as `Secret`",
            ),
            (
                json!([{"origin": "http://a.example.com", "credentials": [{"kind": "Secret"}]}]),
                "[0].credentials: ",
                "over TLS only",
            ),
        ];
        for (egress, field, accepted) in cases {
            let message = refusal(&egress, &host);
            let is_it = message.starts_with(&format!("spec.egress{field}"));
            assert!(is_it && message.contains(accepted), "{egress}: {message}");
        }
    }

    #[test]
    fn what_the_host_does_not_allow_is_refused_with_what_it_does() {
        let allowed = ["https://*.example.com"];
        let plain = json!([{"origin": ORIGIN}]);
        check(&spec(&plain), &host(&allowed, false)).unwrap();
        check(&spec(&json!([])), &host(&[], false)).unwrap();
        assert_eq!(
            refusal(&plain, &host(&[], false)),
            "spec.egress[0].origin: this host does not allow `https://a.example.com`; --egress allows none"
        );
        let refused = [
            "https://a.b.example.com",
            "https://example.com",
            "https://a.example.com:8443",
            "http://a.example.com",
            "https://a.example.com.evil.example",
        ];
        for origin in refused {
            let message = refusal(&json!([{"origin": origin}]), &host(&allowed, true));
            assert!(message.ends_with("--egress allows `https://*.example.com`"), "{message}");
        }
        for (field, value) in [("private", json!(true)), ("connect", json!("b.example.com:443"))] {
            let mut entry = json!({"origin": ORIGIN});
            entry[field] = value;
            let egress = json!([entry]);
            check(&spec(&egress), &host(&allowed, true)).unwrap();
            let message = refusal(&egress, &host(&allowed, false));
            let expected = format!(
                "spec.egress[0].{field}: this host does not allow it; leave it out, or start the host with --egress-private"
            );
            assert_eq!(message, expected);
        }
    }
}
