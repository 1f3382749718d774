//! Names for the objects that a processor creates.

/// The alphabet of the names that Kubernetes itself generates. It has no vowels, so that no words
/// come out, and no characters that look like another one.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_BYTES: usize = 5;
/// The longest DNS label, in bytes: every kind accepts it as a name, and every label as a value.
const MAX_LABEL_BYTES: usize = 63;

/// Returns a name for an object made on behalf of `name`: `<name>-` and 5 characters that depend on
/// `name` and `identity`.
///
/// The same input always gives the same name, so a crash between two writes cannot make a second
/// object. `identity` tells the object apart from others that are made for the same `name`. A long
/// `name` is cut so that the whole fits in 63 bytes.
pub fn derived_name(name: &str, identity: &[&str]) -> String {
    let mut hash = Fnv::default();
    hash.part(name);
    for part in identity {
        hash.part(part);
    }
    let mut end = name.len().min(MAX_LABEL_BYTES - SUFFIX_BYTES - 1);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let base = name.get(..end).unwrap_or_default().trim_end_matches(['-', '.']);
    let mut derived = String::with_capacity(base.len() + 1 + SUFFIX_BYTES);
    derived.push_str(base);
    derived.push('-');
    let mut rest = hash.finish();
    for _ in 0..SUFFIX_BYTES {
        let index = usize::try_from(rest % 27).unwrap_or_default();
        derived.push(char::from(ALPHABET.get(index).copied().unwrap_or(b'b')));
        rest /= 27;
    }
    derived
}

/// The FNV-1a hash with 64 bits, mixed at the end so that the low digits depend on all of it.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn part(&mut self, part: &str) {
        // The length keeps ("ab", "c") and ("a", "bc") apart.
        let length = part.len().to_le_bytes();
        for byte in length.iter().take(4).chain(part.as_bytes()) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed ^ (mixed >> 33)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_name_is_always_the_same() {
        // Written down on purpose: another value here would rename every object that exists.
        assert_eq!(derived_name("httpbin", &["default", "VirtualService"]), "httpbin-jhrj4");
    }

    #[test]
    fn names_differ_by_every_part() {
        let names: BTreeSet<String> = [
            derived_name("a", &[]),
            derived_name("a", &["x"]),
            derived_name("a", &["x", "y"]),
            derived_name("a", &["xy"]),
            derived_name("a", &["y", "x"]),
            derived_name("b", &["x"]),
        ]
        .into();
        assert_eq!(names.len(), 6);
    }

    #[test]
    fn long_names_are_cut_to_63_characters() {
        let long = "x".repeat(200);
        assert_eq!(derived_name(&long, &[]).len(), 63);
        assert_ne!(derived_name(&long, &[]), derived_name(&"x".repeat(201), &[]));
        let dotted = format!("{}.{}", "x".repeat(56), "y".repeat(40));
        assert!(
            derived_name(&dotted, &[]).starts_with(&format!("{}-", "x".repeat(56))),
            "no `.` stays before the `-`"
        );
    }
}
