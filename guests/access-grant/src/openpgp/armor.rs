//! The armor of OpenPGP: base64 between a line that begins it and a line that ends it.

use base64::{Engine as _, prelude::BASE64_STANDARD};

/// Returns the bytes in an armor of this kind. Headers and the optional checksum are skipped.
pub(super) fn decode(text: &str, kind: &str) -> Result<Vec<u8>, String> {
    let (begin, end) = (format!("-----BEGIN {kind}-----"), format!("-----END {kind}-----"));
    let inside = text.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end));
    let Some((inside, _)) = inside else {
        return Err(format!("not a text from `{begin}` to `{end}`"));
    };
    let lines = inside.lines().map(str::trim).filter(|line| !line.is_empty());
    let body: String =
        lines.filter(|line| !line.contains(": ") && !line.starts_with('=')).collect();
    BASE64_STANDARD.decode(body).map_err(|error| format!("the armor of `{kind}`: {error}"))
}
