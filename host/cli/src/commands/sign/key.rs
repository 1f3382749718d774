//! Private keys: PKCS #8, unencrypted or as cosign encrypts it with a password.

use std::path::Path;

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use crypto_secretbox::{
    Key, Nonce, XSalsa20Poly1305,
    aead::{Aead as _, KeyInit as _},
};
use mortise_host::oci::signature::PrivateKey;
use serde::Deserialize;

/// The PEM labels of encrypted keys that cosign has used.
const ENCRYPTED: [&str; 2] = ["ENCRYPTED SIGSTORE PRIVATE KEY", "ENCRYPTED COSIGN PRIVATE KEY"];
/// The maximum memory of the key derivation (scrypt): 128 bytes times N times r.
const MAX_DERIVATION_MEMORY_BYTES: u64 = 256 << 20;

#[derive(Deserialize)]
struct Encrypted {
    kdf: Derivation,
    cipher: Cipher,
    ciphertext: String,
}

#[derive(Deserialize)]
struct Derivation {
    name: String,
    params: Costs,
    salt: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
struct Costs {
    n: u64,
    #[serde(rename = "r")]
    block: u32,
    #[serde(rename = "p")]
    parallel: u32,
}

#[derive(Deserialize)]
struct Cipher {
    name: String,
    nonce: String,
}

/// Reads the file of a key.
pub(super) fn read(path: &Path, password: &str) -> anyhow::Result<PrivateKey> {
    let shown = path.display();
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("cannot read the key `{shown}`"))?;
    parse(&text, password).with_context(|| format!("cannot use the key `{shown}`"))
}

fn parse(text: &str, password: &str) -> anyhow::Result<PrivateKey> {
    let encrypted = ENCRYPTED.iter().find_map(|kind| block(text, kind));
    let Some(encrypted) = encrypted else { return PrivateKey::parse(text.as_bytes()) };
    let json = STANDARD.decode(encrypted).context("the PEM block is not base64")?;
    let encrypted =
        serde_json::from_slice(&json).context("the PEM block is not one of cosign's")?;
    PrivateKey::from_pkcs8(&decrypt(&encrypted, password)?)
}

/// Returns the base64 text of a PEM block.
fn block(text: &str, kind: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("-----BEGIN {kind}-----"))?;
    let (block, _) = rest.split_once(&format!("-----END {kind}-----"))?;
    Some(block.split_whitespace().collect())
}

fn decrypt(encrypted: &Encrypted, password: &str) -> anyhow::Result<Vec<u8>> {
    let Encrypted { kdf, cipher, ciphertext } = encrypted;
    anyhow::ensure!(
        kdf.name == "scrypt" && cipher.name == "nacl/secretbox",
        "the key is encrypted by `{}` with a key of `{}`; cosign's `nacl/secretbox` and `scrypt` are accepted",
        cipher.name,
        kdf.name
    );
    let Costs { n, block, parallel } = kdf.params;
    let memory = n.saturating_mul(block.into()).saturating_mul(128);
    anyhow::ensure!(
        n.is_power_of_two() && n > 1 && memory <= MAX_DERIVATION_MEMORY_BYTES && parallel == 1,
        "the password of the key takes too much to check"
    );
    let unfit = || anyhow::anyhow!("the password of the key cannot be checked");
    let mut key = Key::default();
    let costs = scrypt::Params::new(n.trailing_zeros().try_into()?, block, parallel, key.len());
    let costs = costs.map_err(|_| unfit())?;
    let decode = |text: &str| STANDARD.decode(text).context("a part of it is no base64");
    scrypt::scrypt(password.as_bytes(), &decode(&kdf.salt)?, &costs, &mut key)
        .map_err(|_| unfit())?;
    let nonce = decode(&cipher.nonce)?;
    anyhow::ensure!(nonce.len() == Nonce::default().len(), "the nonce has the wrong length");
    let opened = XSalsa20Poly1305::new(&key)
        .decrypt(Nonce::from_slice(&nonce), decode(ciphertext)?.as_slice());
    opened.map_err(|_| anyhow::anyhow!("the password of the key is wrong: set COSIGN_PASSWORD"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSIGN: &str = include_str!("../../../../src/oci/signature/recorded/cosign.key");
    const PUBLIC: &str = include_str!("../../../../src/oci/signature/recorded/cosign.pub");

    #[test]
    fn a_key_of_cosign_opens_with_its_password() {
        let key = parse(COSIGN, "mortise").unwrap();
        let public = mortise_host::oci::signature::PublicKey::parse(PUBLIC).unwrap();
        assert_eq!(key.public(), public);
        let message = format!("{:#}", parse(COSIGN, "other").err().unwrap());
        assert!(message.contains("the password of the key is wrong"), "{message}");
    }

    #[test]
    fn a_key_that_would_take_all_memory_is_refused() {
        let encrypted = |n: u64, block: u32| Encrypted {
            kdf: Derivation {
                name: "scrypt".to_owned(),
                params: Costs { n, block, parallel: 1 },
                salt: String::new(),
            },
            cipher: Cipher { name: "nacl/secretbox".to_owned(), nonce: String::new() },
            ciphertext: String::new(),
        };
        for (n, block) in [(1 << 40, 8), (u64::MAX, 8), (3, 8), (0, 8), (1 << 16, 1 << 20)] {
            let message = decrypt(&encrypted(n, block), "").unwrap_err().to_string();
            assert!(message.contains("takes too much to check"), "{n} {block}: {message}");
        }
    }
}
