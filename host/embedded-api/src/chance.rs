//! Random values: uids, and the suffixes of generated names.

use parking_lot::Mutex;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use uuid::{Builder, Uuid};

/// A source of random values, seeded by the operating system or, for reproducible values, by a
/// given seed.
#[derive(Debug)]
pub(crate) struct Chance(Mutex<StdRng>);

// === impl Chance ===

impl Chance {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        Self(Mutex::new(seed.map_or_else(StdRng::from_os_rng, StdRng::seed_from_u64)))
    }

    /// Returns a source seeded by a uid: for values generated inside of one object.
    pub(crate) fn of(uid: &str) -> Self {
        let seed = Uuid::parse_str(uid).ok().map(|uid| uid.as_u64_pair().0);
        Self::new(seed)
    }

    pub(crate) fn uid(&self) -> String {
        Builder::from_random_bytes(self.0.lock().random()).into_uuid().to_string()
    }

    /// Returns five letters and digits, as Kubernetes appends to names: no vowels, and no
    /// characters that are easily mistaken for others.
    pub(crate) fn suffix(&self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut random = self.0.lock();
        let letters = std::iter::repeat_with(|| LETTERS.get(random.random_range(0..LETTERS.len())));
        letters.flatten().take(5).map(|&letter| char::from(letter)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_all_draws() {
        let draw = |chance: &Chance| [chance.uid(), chance.uid(), chance.suffix()];
        assert_eq!(draw(&Chance::new(Some(7))), draw(&Chance::new(Some(7))));
        assert_ne!(draw(&Chance::new(Some(7))), draw(&Chance::new(Some(8))));
        assert_ne!(draw(&Chance::new(None)), draw(&Chance::new(None)));
        let uid = Chance::new(None).uid();
        assert_eq!(Chance::of(&uid).suffix(), Chance::of(&uid).suffix());
        assert_eq!(Uuid::parse_str(&uid).unwrap().get_version_num(), 4, "{uid}");
    }
}
