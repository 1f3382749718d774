use serde_json::{Value, json};

use super::*;

const MANIFEST: &[u8] = include_bytes!("recorded/manifest.json");
const COSIGN_2: &str = include_str!("recorded/cosign-2.json");
const COSIGN_3: &str = include_str!("recorded/cosign-3.json");
const ATTESTATION: &str = include_str!("recorded/cosign-3-attestation.json");
const FILE_2: &[u8] = include_bytes!("recorded/file.cosign-2.sig");
const FILE_3: &[u8] = include_bytes!("recorded/file.cosign-3.sig");
const FILE: &[u8] = b"\0asm\x0d\0\x01\0";
const KEY: &str = include_str!("recorded/cosign.pub");
const OTHER: &str = include_str!("recorded/other.pub");

fn key() -> PublicKey {
    PublicKey::parse(KEY).unwrap()
}

fn other() -> PublicKey {
    PublicKey::parse(OTHER).unwrap()
}

fn recorded(text: &str) -> Signature {
    serde_json::from_str(text).unwrap()
}

/// Returns the reason why this signature of the recorded artifact is refused.
fn refused(signature: Signature) -> String {
    refused_of(Digest::of(MANIFEST), signature)
}

fn refused_of(manifest: Digest, signature: Signature) -> String {
    let key = key();
    let verified = verify_manifest(manifest, &[signature], &[&key]);
    verified.require(&[key]).unwrap_err()
}

#[test]
fn signatures_of_cosign_2_and_3_are_verified() {
    let (key, other) = (key(), other());
    for text in [COSIGN_2, COSIGN_3] {
        let verified = verify_manifest(Digest::of(MANIFEST), &[recorded(text)], &[&other, &key]);
        assert_eq!(verified.by, [key.id()].into(), "{text}");
        verified.require(&[other.clone(), key.clone()]).unwrap();
        let message = verified.require(std::slice::from_ref(&other)).unwrap_err();
        assert!(message.starts_with("it is signed by other keys; "), "{message}");
    }
    for signature in [FILE_2, FILE_3] {
        let verified = verify_file(FILE, signature, &[&other, &key]);
        assert_eq!(verified.by, [key.id()].into());
    }
}

#[test]
fn a_signature_by_another_key_does_not_count() {
    let other = other();
    for text in [COSIGN_2, COSIGN_3] {
        let verified = verify_manifest(Digest::of(MANIFEST), &[recorded(text)], &[&other]);
        let message = verified.require(std::slice::from_ref(&other)).unwrap_err();
        let expected = format!(
            "it has one signature, and it is by none of the keys; one by a key of these is expected: {}",
            other.id()
        );
        assert_eq!(message, expected);
    }
    for signature in [FILE_2, FILE_3] {
        assert!(
            verify_file(FILE, signature, &[&other]).require(std::slice::from_ref(&other)).is_err()
        );
    }
}

#[test]
fn a_signature_of_another_artifact_does_not_count() {
    for text in [COSIGN_2, COSIGN_3] {
        let message = refused_of(Digest::of(b"another"), recorded(text));
        let expected = format!("it is of another artifact, `{}`", Digest::of(MANIFEST));
        assert!(message.contains(&expected), "{message}");
    }
    for signature in [FILE_2, FILE_3] {
        let (key, file) = (key(), b"another".as_slice());
        let message =
            verify_file(file, signature, &[&key]).require(std::slice::from_ref(&key)).unwrap_err();
        assert!(message.contains("it is by none of the keys"), "{message}");
    }
}

#[test]
fn a_signature_that_was_changed_does_not_count() {
    let Signature::Simple { payload, signature } = recorded(COSIGN_2) else {
        panic!("it is simple")
    };
    let changed = Signature::Simple {
        payload: payload.replace(&Digest::of(MANIFEST).hex(), &Digest::of(b"another").hex()),
        signature: signature.clone(),
    };
    let message = refused_of(Digest::of(b"another"), changed);
    assert!(message.contains("it is by none of the keys"), "{message}");
    let Signature::Bundle(text) = recorded(COSIGN_3) else { panic!("it is a bundle") };
    let bundle: Value = serde_json::from_str(&text).unwrap();
    let with = |at: &str, value: Value| {
        let mut bundle = bundle.clone();
        *bundle.pointer_mut(at).unwrap() = value;
        Signature::Bundle(bundle.to_string())
    };
    let payload = bundle.pointer("/dsseEnvelope/payload").unwrap().as_str().unwrap();
    let payload = String::from_utf8(STANDARD.decode(payload).unwrap()).unwrap();
    let swapped = payload.replace(&Digest::of(MANIFEST).hex(), &Digest::of(b"another").hex());
    let swapped = with("/dsseEnvelope/payload", STANDARD.encode(swapped).into());
    let message = refused_of(Digest::of(b"another"), swapped);
    assert!(message.contains("it is by none of the keys"), "{message}");
    let cases = [
        (with("/mediaType", "a/b".into()), "it is no bundle of Sigstore, but `a/b`"),
        (with("/dsseEnvelope", Value::Null), "it is the signature of a file"),
        (with("/dsseEnvelope/payloadType", "text/plain".into()), "it holds `text/plain`"),
        (with("/dsseEnvelope/signatures", json!([])), "it is signed by nobody"),
        (
            with("/dsseEnvelope/signatures", json!(vec![json!({"sig": "AA=="}); 5])),
            "it holds 5 signatures, more than 4",
        ),
        (with("/dsseEnvelope/signatures/0/sig", "!".into()), "it is no base64"),
        (with("/dsseEnvelope/signatures/0/sig", "AA==".into()), "it is by none of the keys"),
        (Signature::Bundle("{}".to_owned()), "it is no bundle of Sigstore"),
        (Signature::Bundle("[".repeat(9999)), "it is no bundle of Sigstore"),
        (Signature::Simple { payload: "{}".to_owned(), signature }, "it is by none of the keys"),
    ];
    for (signature, expected) in cases {
        let message = refused(signature);
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_statement_of_another_type_is_no_signature() {
    let message = refused(recorded(ATTESTATION));
    assert!(message.contains("it is a statement of another type, `https://cosign"), "{message}");
    let key = key();
    let bundle = String::from_utf8(FILE_3.to_vec()).unwrap();
    let message = refused(Signature::Bundle(bundle));
    assert!(message.contains("it is the signature of a file"), "{message}");
    let Signature::Bundle(bundle) = recorded(COSIGN_3) else { panic!("it is a bundle") };
    let message = verify_file(FILE, bundle.as_bytes(), &[&key])
        .require(std::slice::from_ref(&key))
        .unwrap_err();
    assert!(message.contains("it is the signature of an artifact"), "{message}");
}

#[test]
fn missing_or_unusable_signatures_fail_with_a_short_reason() {
    let key = key();
    let message = Verified::default().require(std::slice::from_ref(&key)).unwrap_err();
    assert!(message.starts_with("it has no signature; one by a key of these"), "{message}");
    let many = vec![recorded(ATTESTATION); 5];
    let message =
        verify_manifest(Digest::of(MANIFEST), &many, &[&key]).require(&[key]).unwrap_err();
    assert!(message.starts_with("it has 5 signatures that do not count: "), "{message}");
    assert_eq!(message.matches("another type").count(), MAX_LISTED_SIGNATURES, "{message}");
}

#[test]
fn own_signatures_of_manifests_and_files_are_verified() {
    let pkcs8 = ring::signature::EcdsaKeyPair::generate_pkcs8(
        &ring::signature::ECDSA_P256_SHA256_ASN1_SIGNING,
        &ring::rand::SystemRandom::new(),
    );
    let private = PrivateKey::from_pkcs8(pkcs8.unwrap().as_ref()).unwrap();
    let public = private.public();
    let (manifest, reference) = (Digest::of(MANIFEST), "example.com/a:1".parse().unwrap());
    for format in [Format::Bundle, Format::Tag] {
        let signature = Signature::of_manifest(manifest, &reference, format, &private).unwrap();
        let kept = serde_json::to_string(&signature).unwrap();
        assert_eq!(serde_json::from_str::<Signature>(&kept).unwrap(), signature);
        let verified = verify_manifest(manifest, &[signature], &[&public, &key()]);
        assert_eq!(verified.by, [public.id()].into());
        let signature = sign_file(FILE, format, &private).unwrap();
        let verified = verify_file(FILE, signature.as_bytes(), &[&public, &key()]);
        assert_eq!(verified.by, [public.id()].into());
    }
}

#[test]
fn verify_found_keeps_one_signature_per_key() {
    let (manifest, good) = (Digest::of(MANIFEST), recorded(COSIGN_3));
    let found = vec![good.clone(), recorded(ATTESTATION), good.clone(), recorded(COSIGN_2)];
    let (verified, of_use) = verify_found(manifest, found, &[&key()]);
    assert_eq!((verified.by, of_use), ([key().id()].into(), vec![good]));
    assert_eq!(verified.refused.len(), 1);
    let (verified, of_use) = verify_found(manifest, vec![recorded(COSIGN_3)], &[&other()]);
    assert_eq!((verified.by.len(), of_use.len()), (0, 0));
}

#[test]
fn only_public_keys_of_one_kind_are_accepted() {
    // Keys on the curve P-384, and of Ed25519.
    let p384 = "-----BEGIN PUBLIC KEY-----\nMHYwEAYHKoZIzj0CAQYFK4EEACIDYgAE37pYhP5WIuY6ABBhWACNKYrG9V7P6kVf\naVDn/DVSSyxfVDsbCJKbMSjRdK+F5yJLv1b4g5ur2ZT9s3UvVbCTTUhhYZTYpVdC\n9PoCq2vNyhzpA8n1KgKTB/EzF1kB0BPr\n-----END PUBLIC KEY-----\n";
    let ed25519 = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";
    let cases = [
        (p384.to_owned(), "a key of another kind"),
        (ed25519.to_owned(), "a key of another kind"),
        (format!("{KEY}{OTHER}"), "more than one key"),
        (String::new(), "no public key"),
        ("sha256:abc".to_owned(), "no public key"),
        (KEY.replace("PUBLIC", "PRIVATE"), "no public key"),
        (KEY.replace("MFkw", "MFk!"), "no public key"),
    ];
    for (pem, expected) in cases {
        let message = PublicKey::parse(&pem).unwrap_err().to_string();
        assert!(message.contains(expected) && message.contains("is accepted"), "{pem}: {message}");
    }
}

#[test]
fn the_longest_rule_of_a_policy_counts_at_the_border_of_a_part() {
    let pem = |pem: &str| pem.replace('\n', "\n    ");
    let text = format!(
        "rules:\n- prefix: example.com:443/team\n  keys:\n  - |\n    {}\n- prefix: example.com/team/free/\n  unsigned: true\n- prefix: /modules/\n  keys:\n  - |\n    {}\n",
        pem(KEY),
        pem(OTHER)
    );
    let policy = Policy::parse(&text).unwrap();
    let keys = |name: &str| {
        let required =
            Requirement::of(name, None, Some(&policy)).map_err(|found| found.to_string())?;
        Ok::<_, String>(required.keys().iter().map(|key| key.id()).collect::<Vec<_>>())
    };
    let uncovered = |name: &str| {
        let message = keys(name).unwrap_err();
        assert!(message.starts_with("no rule of --require-signatures covers `"), "{message}");
    };
    assert_eq!(keys("example.com/team"), Ok(vec![key().id()]));
    assert_eq!(keys("example.com/team/a"), Ok(vec![key().id()]));
    assert_eq!(keys("example.com/team/free/a"), Ok(vec![]));
    assert_eq!(keys("example.com/team/freedom"), Ok(vec![key().id()]));
    assert_eq!(keys("/modules/a.wasm"), Ok(vec![other().id()]));
    uncovered("example.com/teams/a");
    uncovered("example.com");
    uncovered("/module");
    let all = Policy::parse("rules: [{unsigned: true}]").unwrap();
    assert!(Requirement::of("anything", None, Some(&all)).unwrap().is_nothing());
}

#[test]
fn keys_of_a_processor_add_to_those_of_the_host() {
    let pem = KEY.replace('\n', "\n    ");
    let policy = Policy::parse(&format!("rules:\n- keys:\n  - |\n    {pem}\n")).unwrap();
    let own = [other()];
    let both = Requirement::of("a", Some(&own), Some(&policy)).unwrap();
    let by = |keys: &[&PublicKey]| Verified {
        by: keys.iter().map(|key| key.id()).collect(),
        refused: Vec::new(),
    };
    let (key, other) = (key(), other());
    both.check(&by(&[&key, &other])).unwrap();
    let message = both.check(&by(&[&key])).unwrap_err().to_string();
    assert!(message.ends_with("(spec.verification)"), "{message}");
    let message = both.check(&by(&[&other])).unwrap_err().to_string();
    assert!(message.ends_with("(--require-signatures)"), "{message}");
    assert!(!both.is_met_by(|id| *id == other.id()) && both.is_met_by(|_| true));
    assert!(Requirement::of("a", None, None).unwrap().is_nothing());
}

#[test]
fn an_invalid_policy_is_refused_with_the_reason() {
    let cases = [
        ("", "unexpected end of input"),
        ("rules: 1", "sequence"),
        ("rule: []", "unknown field"),
        ("rules: [{prefix: a}]", "the rule for `a` has no keys"),
        ("rules: [{keys: []}]", "the rule for `all` has no keys"),
        ("rules: [{prefix: a, keys: [x], unsigned: true}]", "the rule for `a` has no keys"),
        (
            "rules: [{prefix: a, keys: [x]}]",
            "a key of the rule for `a` is none: it holds no public key",
        ),
    ];
    for (text, expected) in cases {
        let message = Policy::parse(text).unwrap_err().to_string();
        assert!(message.contains(expected) && message.contains("is accepted"), "{text}: {message}");
        assert!(!message.contains('\n'), "{message}");
    }
}
