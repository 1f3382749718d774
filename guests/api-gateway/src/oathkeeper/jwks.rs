//! The key with which Oathkeeper signs tokens, as a JSON Web Key Set.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use getrandom::{SysRng, rand_core::UnwrapErr};
use rsa::{
    PrivateKey,
    traits::{PrivateKeyParts as _, PublicKeyParts as _},
};
use serde_json::json;

/// The length of the key in bits.
const KEY_BITS: usize = 2048;

/// Returns a set with one new private key, for RSA over SHA-256.
///
/// # Errors
///
/// Fails if no key can be made.
pub(super) fn make() -> Result<String, String> {
    let failed = |what: &str| format!("cannot make the key that signs tokens: {what}");
    let key = PrivateKey::new(&mut UnwrapErr(SysRng), KEY_BITS)
        .map_err(|error| failed(&error.to_string()))?;
    let text = |bytes: Box<[u8]>| {
        let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
        URL_SAFE_NO_PAD.encode(bytes.get(first..).unwrap_or_default())
    };
    let [p, q] = key.primes() else { return Err(failed("it has not two primes")) };
    let (Some(dp), Some(dq), Some(qi)) = (key.dp(), key.dq(), key.crt_coefficient()) else {
        return Err(failed("it is not complete"));
    };
    let key = json!({
        "use": "sig",
        "kty": "RSA",
        "alg": "RS256",
        "kid": random_uuid().map_err(|error| failed(&error.to_string()))?,
        "n": text(key.n().to_be_bytes()),
        "e": text(key.e().to_be_bytes()),
        "d": text(key.d().to_be_bytes()),
        "p": text(p.to_be_bytes()),
        "q": text(q.to_be_bytes()),
        "dp": text(dp.to_be_bytes()),
        "dq": text(dq.to_be_bytes()),
        "qi": text(qi.to_be_bytes()),
    });
    Ok(json!({"keys": [key]}).to_string())
}

/// Returns a random UUID (version 4).
fn random_uuid() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    let number = u128::from_be_bytes(bytes);
    let number = number & !(0xf << 76) & !(0b11 << 62) | 0x4 << 76 | 0b10 << 62;
    let digits = format!("{number:032x}");
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    Ok([part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-"))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_key_is_complete_and_new_each_time() {
        let set: Value = serde_json::from_str(&make().unwrap()).unwrap();
        let [key] = set["keys"].as_array().unwrap().as_slice() else { panic!("{set}") };
        for (field, value) in [("kty", "RSA"), ("alg", "RS256"), ("use", "sig"), ("e", "AQAB")] {
            assert_eq!(key[field], value);
        }
        let lengths = [("n", 256), ("p", 128), ("q", 128)];
        for (field, length) in lengths {
            let bytes = URL_SAFE_NO_PAD.decode(key[field].as_str().unwrap()).unwrap();
            assert_eq!(bytes.len(), length, "{field}");
        }
        for field in ["d", "dp", "dq", "qi"] {
            assert!(key[field].as_str().unwrap().len() > 160, "{field}");
        }
    }

    #[test]
    fn an_id_is_a_uuid_of_version_4() {
        for _ in 0..20 {
            let id = random_uuid().unwrap();
            let lengths: Vec<usize> = id.split('-').map(str::len).collect();
            assert_eq!(lengths, [8, 4, 4, 4, 12]);
            let at = |index: usize| id.as_bytes()[index];
            assert!(at(14) == b'4' && b"89ab".contains(&at(19)), "{id}");
        }
    }
}
