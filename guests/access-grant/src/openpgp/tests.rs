//! The fixtures: `vendor` and `stranger` are keys of version 6, whose messages `gopenpgp` v3.5.2
//! made in its profile of RFC 9580; `gpg` and `rsa` are keys of version 4, whose messages GnuPG
//! made. `-text` are signatures of a text, `gpg-expiring` is valid for a day.

use super::*;

const VENDOR: &str = include_str!("fixtures/vendor.asc");
const GPG: &str = include_str!("fixtures/gpg.asc");
const SIGNED: &[u8] = include_bytes!("fixtures/vendor.sig");
const EXPIRING: &[u8] = include_bytes!("fixtures/gpg-expiring.sig");
const DAY: u64 = 86_400;

fn verify(key: &str, message: &[u8]) -> Result<String, String> {
    let never = || panic!("nobody needs the time");
    let text = Key::parse(key)?.verify(message, never)?;
    Ok(String::from_utf8(text).unwrap())
}

#[test]
fn messages_of_other_programs_are_verified() {
    let cases: [(&str, &[u8], &str); 5] = [
        (VENDOR, SIGNED, "shop.example.com\n"),
        (VENDOR, include_bytes!("fixtures/vendor-text.sig"), "shop.example.com\r\n"),
        (VENDOR, include_bytes!("fixtures/vendor-wildcard.asc"), "*.example.com"),
        (GPG, include_bytes!("fixtures/gpg.sig"), "shop.example.com\n"),
        (GPG, include_bytes!("fixtures/gpg-text.sig"), "shop.example.com\r\nx"),
    ];
    for (key, message, text) in cases {
        assert_eq!(verify(key, message).as_deref(), Ok(text));
    }
}

#[test]
fn what_is_not_signed_with_the_key_is_refused() {
    let cases: [(&str, &str, &[u8], &str); 7] = [
        ("of another key", VENDOR, include_bytes!("fixtures/stranger.sig"), "not one of this key"),
        ("of another version", VENDOR, include_bytes!("fixtures/gpg.sig"), "another kind of key"),
        ("with RSA", GPG, include_bytes!("fixtures/rsa.sig"), "another kind of key"),
        (
            "compressed",
            GPG,
            include_bytes!("fixtures/gpg-compressed.sig"),
            "a packet with compressed content",
        ),
        ("a key", VENDOR, VENDOR.as_bytes(), "not a text from `-----BEGIN PGP MESSAGE-----`"),
        ("a text", VENDOR, b"shop.example.com", "not an OpenPGP message"),
        ("nothing", VENDOR, b"", "the message has no signature"),
    ];
    for (case, key, message, error) in cases {
        let refusal = verify(key, message).unwrap_err();
        assert!(refusal.contains(error), "{case}: {refusal}");
    }
}

#[test]
fn keys_of_other_algorithms_are_refused() {
    let rsa = Key::parse(include_str!("fixtures/rsa.asc")).unwrap_err();
    assert_eq!(rsa, "a key of algorithm 1: only Ed25519 is supported");
    let text = Key::parse("ssh-ed25519 AAAA").unwrap_err();
    assert!(text.starts_with("not a text from `-----BEGIN PGP PUBLIC KEY BLOCK-----`"), "{text}");
}

#[test]
fn no_byte_of_a_message_can_be_changed() {
    let key = Key::parse(VENDOR).unwrap();
    let whole = key.verify(SIGNED, || 0).unwrap();
    // What is not signed: the one-pass signature, name and date of the text, and the two bytes of
    // the digest, which only let a verifier give up early.
    let unsigned = [0..72, 74..80, 152..154];
    for at in 0..SIGNED.len() {
        let mut message = SIGNED.to_vec();
        message[at] ^= 1 << (at % 8);
        match key.verify(&message, || 0) {
            Err(_) => {}
            Ok(text) if text == whole => {
                assert!(unsigned.iter().any(|range| range.contains(&at)), "byte {at}");
            }
            Ok(text) => panic!("byte {at} changes the text to {text:?}"),
        }
    }
}

#[test]
fn a_message_that_is_cut_off_is_refused() {
    let key = Key::parse(VENDOR).unwrap();
    for length in 0..SIGNED.len() {
        assert!(key.verify(&SIGNED[..length], || 0).is_err(), "{length} bytes");
    }
}

#[test]
fn a_signature_expires() {
    let key = Key::parse(GPG).unwrap();
    let created = 1_795_538_871;
    assert!(key.verify(EXPIRING, || created + DAY - 1).is_ok());
    assert_eq!(key.verify(EXPIRING, || created + DAY), Err("the signature has expired".to_owned()));
}

#[test]
fn a_message_in_parts_is_put_together() {
    let text = b"shop.example.com\n";
    // The literal packet again, in a part of 16 bytes and the rest.
    let mut literal = vec![b'b', 0, 0, 0, 0, 0];
    literal.extend(text);
    let mut message = SIGNED[..72].to_vec();
    message.extend([0xcb, 0xe4]);
    message.extend(&literal[..16]);
    message.push(u8::try_from(literal.len() - 16).unwrap());
    message.extend(&literal[16..]);
    message.extend(&SIGNED[97..]);
    assert_eq!(verify(VENDOR, &message).as_deref(), Ok("shop.example.com\n"));
}

#[test]
fn an_unknown_critical_subpacket_is_refused() {
    let mut signature = SIGNED[99..].to_vec();
    // The type of the first hashed subpacket, which is at byte 9.
    assert_eq!(signature[9], 0x82);
    signature[9] = 0x80 + 21;
    let refusal = Signature::parse(&signature).err().unwrap();
    assert_eq!(refusal, "a signature with a critical subpacket 21");
}
