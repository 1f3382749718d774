//! Calls that take all that they may.

use std::hint::black_box;

use crate::Play;

/// How much is asked for at once: more would be asked for twice.
const PART: usize = 1 << 20;

/// With a name in the backtrace.
#[inline(never)]
pub(crate) fn endless() -> ! {
    let mut turns = 0_u64;
    loop {
        turns = black_box(turns.wrapping_add(1));
    }
}

/// As much as is said, each page touched, until the call is ended.
pub(crate) fn memory(play: &Play) -> ! {
    let parts = play.bytes / PART;
    let held: Vec<Vec<u8>> = (0..parts).map(|_| black_box(vec![1_u8; PART])).collect();
    black_box(&held);
    endless()
}
