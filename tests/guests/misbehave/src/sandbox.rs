//! Probes of the environment that a guest runs in.

use std::{
    collections::HashSet,
    time::{Duration, SystemTime},
};

use mortise_sdk::{Host, Level, Outcome, Request};
use serde_json::json;

pub(crate) fn ask_clock(host: &Host) -> Outcome {
    host.log(Level::Info, "the time", &[("now", &host.now().to_string())]);
    Outcome::new()
}

#[expect(clippy::disallowed_methods, reason = "which time that is is what is tested")]
pub(crate) fn ask_system_time(request: &Request) -> Outcome {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map(|now| now.as_millis());
    Outcome::new().status(request, &json!({"now": now.unwrap_or_default().to_string()}))
}

/// The seed of a hash table must not be a reason to run again.
pub(crate) fn hash() -> Outcome {
    let set: HashSet<&str> = ["a", "b", "c", "d", "e", "f"].into();
    Outcome::new().finalizers(set)
}

pub(crate) fn ask_random(request: &Request) -> Outcome {
    let mut bytes = [0; 16];
    fill(&mut bytes);
    Outcome::new().status(request, &json!({"random": format!("{bytes:02x?}")}))
}

#[cfg(target_family = "wasm")]
#[expect(unsafe_code, reason = "the standard library has no stable way to ask for random bytes")]
fn fill(bytes: &mut [u8]) {
    unsafe extern "C" {
        /// A function of wasi-libc: `wasi:random/random`.
        fn getentropy(buffer: *mut u8, length: usize) -> i32;
    }
    // SAFETY: the buffer has the given length.
    let status = unsafe { getentropy(bytes.as_mut_ptr(), bytes.len()) };
    assert_eq!(status, 0, "getentropy failed");
}

#[cfg(not(target_family = "wasm"))]
fn fill(_bytes: &mut [u8]) {}

/// Sleeps for an hour, of which the host must not wait a millisecond.
pub(crate) fn sleep() -> Outcome {
    std::thread::sleep(Duration::from_secs(3600));
    Outcome::new()
}

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "where it goes is what is tested")]
pub(crate) fn print() -> Outcome {
    println!("to standard output");
    eprintln!("to standard error");
    Outcome::new()
}

pub(crate) fn look_around(request: &Request) -> Outcome {
    let files = std::fs::read_dir("/").map(Iterator::count);
    let written = std::fs::write("/tmp/mortise", "x").is_ok();
    let connected = std::net::TcpStream::connect("127.0.0.1:80").is_ok();
    let status = json!({
        "environment": std::env::vars().count(),
        "arguments": std::env::args().count(),
        "files": files.unwrap_or_default(),
        "written": written,
        "connected": connected,
    });
    Outcome::new().status(request, &status)
}
