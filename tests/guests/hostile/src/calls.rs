//! Calls that use all the time or memory that they may.

use std::hint::black_box;

use crate::Play;

/// Bytes that are allocated at once: a larger allocation would take its size twice.
const PART: usize = 1 << 20;

/// Runs for ever. Not inlined, so that its name is in the backtrace.
#[inline(never)]
pub(crate) fn endless() -> ! {
    let mut turns = 0_u64;
    loop {
        turns = black_box(turns.wrapping_add(1));
    }
}

/// Allocates `play.bytes`, touches each page, and runs until the call is ended.
pub(crate) fn memory(play: &Play) -> ! {
    let parts = play.bytes / PART;
    let held: Vec<Vec<u8>> = (0..parts).map(|_| black_box(vec![1_u8; PART])).collect();
    black_box(&held);
    endless()
}
