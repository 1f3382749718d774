//! A library in Rust. Without the standard library, which would import WASI, it imports nothing.

#![cfg_attr(target_family = "wasm", no_std)]

extern crate alloc;

#[allow(
    missing_docs,
    unsafe_code,
    unreachable_pub,
    clippy::pedantic,
    clippy::indexing_slicing,
    reason = "generated from wit/"
)]
mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "library", pub_export_macro: true });
}

use alloc::{borrow::ToOwned as _, string::String, vec::Vec};

use bindings::exports::example::shouting::shout::Guest;

/// The library.
pub struct Shout;

impl Guest for Shout {
    fn version() -> String {
        "1.0.0".to_owned()
    }

    fn shout(text: String) -> Result<String, String> {
        match text.as_str() {
            "nothing" => Err("there is nothing to shout".to_owned()),
            "trap" => trap(),
            "loop" => endless(),
            "memory" => fill(),
            "slow" => Ok(slow()),
            "huge" => Ok("A".repeat(9 << 20)),
            "large" => Ok("A".repeat(3 << 19)),
            "deep" => Ok(nested(1)),
            text => Ok(text.to_uppercase()),
        }
    }
}

#[expect(clippy::panic, reason = "the trap is what is asked for")]
fn trap() -> ! {
    panic!("told to")
}

fn endless() -> ! {
    loop {
        core::hint::black_box(());
    }
}

/// Computes for some seconds.
fn slow() -> String {
    let mut number = core::hint::black_box(1_u64);
    for _ in 0..5_000_000_000_u64 {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    }
    let text = if number == 0 { "SOON" } else { "SLOW" };
    text.to_owned()
}

fn fill() -> Result<String, String> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    loop {
        all.push(core::hint::black_box(alloc::vec![1; 1 << 20]));
    }
}

/// Calls itself until the stack ends.
fn nested(depth: u64) -> String {
    if core::hint::black_box(depth) == u64::MAX {
        return String::new();
    }
    let text = nested(depth + 1);
    core::hint::black_box(text)
}

/// Replaces the parts of the standard library and of the C library that other components have.
#[cfg(target_family = "wasm")]
#[allow(
    unsafe_code,
    unreachable_pub,
    clippy::pedantic,
    reason = "the component's own entry points"
)]
mod component {
    use alloc::alloc::{Layout, alloc, handle_alloc_error, realloc};

    use super::Shout;

    crate::bindings::export!(Shout with_types_in crate::bindings);

    #[global_allocator]
    static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

    #[panic_handler]
    fn panicked(_: &core::panic::PanicInfo<'_>) -> ! {
        core::arch::wasm32::unreachable()
    }

    /// Allocates the arguments that a caller hands over.
    ///
    /// # Safety
    ///
    /// As the canonical ABI says: `old` is null, or was allocated here with the other arguments.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn cabi_realloc(
        old: *mut u8,
        old_size: usize,
        align: usize,
        size: usize,
    ) -> *mut u8 {
        if size == 0 {
            return core::ptr::without_provenance_mut(align);
        }
        // SAFETY: sizes and alignments come from the canonical ABI.
        let (made, layout) = unsafe {
            let layout = Layout::from_size_align_unchecked(size, align);
            let made = if old_size == 0 {
                alloc(layout)
            } else {
                realloc(old, Layout::from_size_align_unchecked(old_size, align), size)
            };
            (made, layout)
        };
        if made.is_null() { handle_alloc_error(layout) } else { made }
    }
}
