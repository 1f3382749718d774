use super::*;
use crate::issue::{Issued, Server, issue};

const DAY: u64 = 24 * 60 * 60;
/// 2026-01-01T00:00:00Z.
const NOW: Duration = Duration::from_hours(490_896);

fn hosts(hosts: &[&str]) -> Vec<String> {
    hosts.iter().map(|host| (*host).to_owned()).collect()
}

fn days(days: u64) -> Duration {
    Duration::from_secs(days * DAY)
}

fn issued(names: &[&str]) -> Issued {
    issue(&Server { hosts: &hosts(names), from: NOW, until: NOW + days(90) }).unwrap()
}

fn check(chain: &str, key: &str, host: &str, at: Duration) -> Result<(), Fault> {
    Chain::read(chain)?.check(key, &hosts(&[host]), at)
}

#[test]
fn a_chain_that_was_issued_is_valid_for_its_hosts_and_its_time() {
    let of = issued(&["a.b.svc", "*.local.dev"]);
    let cases = [
        ("a.b.svc", NOW, Ok(())),
        ("A.b.svc", NOW + days(90), Ok(())),
        ("x.local.dev", NOW, Ok(())),
        ("*.local.dev", NOW, Ok(())),
        ("y.x.local.dev", NOW, Err(Fault::Host("y.x.local.dev".to_owned()))),
        ("b.svc", NOW, Err(Fault::Host("b.svc".to_owned()))),
        (".local.dev", NOW, Err(Fault::Host(".local.dev".to_owned()))),
        ("a.b.svc", NOW.checked_sub(Duration::from_secs(1)).unwrap(), Err(Fault::Time)),
        ("a.b.svc", NOW + days(90) + Duration::from_secs(1), Err(Fault::Time)),
    ];
    for (host, at, expected) in cases {
        assert_eq!(check(&of.chain, &of.key, host, at), expected, "{host} at {at:?}");
    }
    assert_eq!(Chain::read(&of.chain).unwrap().from(), NOW);
}

#[test]
fn a_client_that_trusts_the_authority_accepts_the_server() {
    use rustls_pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _};
    use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert, ring::ECDSA_P256_SHA256};

    let of = issued(&["a.b.svc"]);
    let leaf = CertificateDer::from_pem_slice(of.chain.as_bytes()).unwrap();
    let leaf = EndEntityCert::try_from(&leaf).unwrap();
    let accepts = |authority: &str, at: Duration| {
        let authority = CertificateDer::from_pem_slice(authority.as_bytes()).unwrap();
        let anchors = [anchor_from_trusted_cert(&authority).unwrap()];
        let at = UnixTime::since_unix_epoch(at);
        let usage = KeyUsage::server_auth();
        leaf.verify_for_usage(&[ECDSA_P256_SHA256], &anchors, &[], at, usage, None, None).is_ok()
    };
    assert!(accepts(&of.authority, NOW + days(89)));
    assert!(!accepts(&of.authority, NOW + days(91)));
    assert!(!accepts(&issued(&["a.b.svc"]).authority, NOW));
    let names = |host: &'static str| {
        leaf.verify_is_valid_for_subject_name(&ServerName::try_from(host).unwrap()).is_ok()
    };
    assert_eq!([names("a.b.svc"), names("b.b.svc")], [true, false]);
}

#[test]
fn keys_and_authorities_of_others_are_noticed() {
    let (one, other) = (issued(&["a.b.svc"]), issued(&["a.b.svc"]));
    assert_eq!(check(&one.chain, &other.key, "a.b.svc", NOW), Err(Fault::Key));
    let leaf = leaf(&one.chain);
    let cases = [
        (leaf.to_owned(), Fault::Signature),
        (format!("{leaf}{}", other.authority), Fault::Signature),
        (String::new(), Fault::Unreadable),
        (leaf.replace("MII", "XXX"), Fault::Unreadable),
        (leaf.replace("-----END", "-----"), Fault::Unreadable),
        (one.authority.repeat(17), Fault::Unreadable),
        (" ".repeat(MAX_PEM_BYTES + 1), Fault::Unreadable),
    ];
    for (chain, expected) in cases {
        assert_eq!(check(&chain, &one.key, "a.b.svc", NOW), Err(expected), "{chain}");
    }
    for key in ["", "x", &one.chain, &" ".repeat(MAX_PEM_BYTES + 1)] {
        assert_eq!(check(&one.chain, key, "a.b.svc", NOW), Err(Fault::Key), "{key}");
    }
}

#[test]
fn a_pair_is_valid_without_an_authority() {
    let of = issued(&["a.b.svc"]);
    let pair = |key: &str, at| Chain::read(leaf(&of.chain)).unwrap().check_pair(key, at);
    assert_eq!(pair(&of.key, NOW), Ok(()));
    assert_eq!(pair(&of.key, NOW + days(91)), Err(Fault::Time));
    assert_eq!(pair(&issued(&["a.b.svc"]).key, NOW), Err(Fault::Key));
}

#[test]
fn only_authorities_are_authorities() {
    let of = issued(&["a.b.svc"]);
    assert_eq!(Chain::read(&of.chain).unwrap().authority().as_ref(), Some(&of.authority));
    assert_eq!(Chain::read(leaf(&of.chain)).unwrap().authority(), None);
    assert_eq!(authorities(&of.chain), Ok(vec![of.authority]));
    assert_eq!(authorities("no certificate"), Ok(vec![]));
}

#[test]
fn two_certificates_differ_and_long_hosts_are_cut_in_the_common_name() {
    let long = format!("{}.{}.svc", "a".repeat(63), "b".repeat(63));
    let of = issued(&[&long]);
    assert_eq!(check(&of.chain, &of.key, &long, NOW), Ok(()));
    assert_ne!(of.key, issued(&[&long]).key);
    assert!(!format!("{of:?}").contains("PRIVATE"));
    let early = Server { hosts: &[], from: Duration::ZERO, until: Duration::from_secs(u64::MAX) };
    assert!(issue(&early).is_err());
}

#[test]
fn a_chain_of_the_former_operator_is_valid() {
    // RSA with 4096 bits over SHA-256, key in PKCS #1; valid for 90 days from 2025-12-01T23:00:00Z.
    let (chain, key) = (include_str!("rsa.crt"), include_str!("rsa.key"));
    let host = "api-gateway-webhook-service.kyma-system.svc";
    let cases = [
        (chain.to_owned(), key.to_owned(), host, NOW, Ok(())),
        (chain.to_owned(), key.to_owned(), host, NOW + days(90), Err(Fault::Time)),
        (chain.to_owned(), key.to_owned(), "a.b", NOW, Err(Fault::Host("a.b".to_owned()))),
        (chain.to_owned(), issued(&[host]).key, host, NOW, Err(Fault::Key)),
        (chain.replacen("END", "XXX", 1), key.to_owned(), host, NOW, Err(Fault::Unreadable)),
    ];
    for (chain, key, host, at, expected) in cases {
        assert_eq!(check(&chain, &key, host, at), expected, "{host} at {at:?}");
    }
    let of_another = format!("{}{}", leaf(chain), issued(&[host]).authority);
    assert_eq!(check(&of_another, key, host, NOW), Err(Fault::Signature));
    assert_eq!(authorities(chain).unwrap().len(), 1);
}

/// Returns the first certificate of a chain.
fn leaf(chain: &str) -> &str {
    chain.get(..chain.find(END).unwrap() + END.len()).unwrap()
}
