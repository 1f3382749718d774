//! Random bytes: secure ones of the operating system, which mark the run as not repeatable, and
//! insecure ones from the call's seed, which do not. In a simulation all bytes are derived from the
//! call.

use rand::{TryRngCore, rngs::OsRng};
use wasmtime_wasi::p2::bindings::random::{insecure, insecure_seed, random};

use crate::wasm::{
    bounds::RANDOM_BYTES,
    state::{Exceeded, State},
};

/// A seeded random number generator: `SplitMix64`. Good enough for hash tables, but not for
/// secrets.
#[derive(Debug)]
pub(in crate::wasm) struct Chance {
    state: u64,
}

// === impl Chance ===

impl Chance {
    pub(in crate::wasm) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}

/// Converts the requested number of bytes, if it is within the bound.
fn length(asked: u64) -> wasmtime::Result<usize> {
    let length = usize::try_from(asked).ok().filter(|length| *length <= RANDOM_BYTES);
    length.ok_or_else(|| Exceeded::RandomBytes { asked, limit: RANDOM_BYTES }.into())
}

impl random::Host for State {
    fn get_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        self.asked.random = true;
        let length = length(len)?;
        if let Some(chance) = &mut self.secure {
            return Ok(chance.bytes(length));
        }
        let mut bytes = vec![0; length];
        OsRng.try_fill_bytes(&mut bytes)?;
        Ok(bytes)
    }

    fn get_random_u64(&mut self) -> wasmtime::Result<u64> {
        self.asked.random = true;
        match &mut self.secure {
            Some(chance) => Ok(chance.next()),
            None => Ok(OsRng.try_next_u64()?),
        }
    }
}

impl insecure::Host for State {
    fn get_insecure_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        Ok(self.chance.bytes(length(len)?))
    }

    fn get_insecure_random_u64(&mut self) -> wasmtime::Result<u64> {
        Ok(self.chance.next())
    }
}

impl insecure_seed::Host for State {
    fn insecure_seed(&mut self) -> wasmtime::Result<(u64, u64)> {
        Ok((self.chance.next(), self.chance.next()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let draw = |seed| {
            let mut chance = Chance::new(seed);
            [chance.next(), chance.next(), chance.next()]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn too_many_bytes_at_once_are_refused() {
        assert_eq!(length(1 << 20).unwrap(), 1 << 20);
        let error = length((1 << 20) + 1).unwrap_err();
        let exceeded = Exceeded::RandomBytes { asked: (1 << 20) + 1, limit: 1 << 20 };
        assert_eq!(error.downcast_ref(), Some(&exceeded));
    }
}
