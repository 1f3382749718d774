//! Page tokens: the digest of the selection, and the last object on the page.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    contract::{ReadError, Selection},
    store::Entry,
};

/// Returns the token of the page that follows this object.
pub(super) fn write(of: &Selection, last: &Entry) -> String {
    token(of, last.namespace().unwrap_or_default(), last.name())
}

pub fn token(of: &Selection, namespace: &str, name: &str) -> String {
    let mut token = digest(of).to_be_bytes().to_vec();
    token.extend_from_slice(namespace.as_bytes());
    token.push(0);
    token.extend_from_slice(name.as_bytes());
    URL_SAFE_NO_PAD.encode(token)
}

/// Returns the namespace and name after which the page begins. Fails if the token is malformed or
/// was given for another selection.
pub fn read(of: &Selection, token: &str) -> Result<(String, String), ReadError> {
    let invalid = |why: &str| ReadError::Invalid(format!("page token `{token}`: {why}"));
    let bytes =
        URL_SAFE_NO_PAD.decode(token).map_err(|_| invalid("it was not given by this host"))?;
    let (held, place) =
        bytes.split_first_chunk().ok_or_else(|| invalid("it was not given by this host"))?;
    if u64::from_be_bytes(*held) != digest(of) {
        return Err(invalid("it belongs to another selection"));
    }
    let place = std::str::from_utf8(place).ok().and_then(|place| place.split_once('\0'));
    let (namespace, name) = place.ok_or_else(|| invalid("it was not given by this host"))?;
    Ok((namespace.to_owned(), name.to_owned()))
}

/// Returns the digest of the parts of a selection that select objects: all but the fields.
fn digest(of: &Selection) -> u64 {
    xxh3_64(
        format!("{:?}", (&of.kind, &of.namespace, &of.name, &of.labels, &of.matching)).as_bytes(),
    )
}
