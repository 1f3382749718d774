//! Values of options. What does not parse is told with what would.

use std::net::SocketAddr;

use clap::builder::RangedI64ValueParser;

/// A number of rounds, seconds, or the like.
pub(super) fn count(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("a whole number is expected, from 0 to {}", u32::MAX))
}

/// A TCP port.
pub(super) fn port(text: &str) -> Result<u16, String> {
    text.parse()
        .map_err(|_| format!("a port is expected, from 0 (any that is free) to {}", u16::MAX))
}

/// Where to listen.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "ADDRESS:PORT is expected, as `127.0.0.1:9090`".to_owned())
}

/// A moment.
pub(super) fn time(text: &str) -> Result<jiff::Timestamp, String> {
    text.parse().map_err(|_| "a time is expected, as `2026-01-31T12:00:00Z`".to_owned())
}

/// Memory of a compiler: below the least, none can start.
pub(super) fn mebibytes() -> RangedI64ValueParser<u32> {
    RangedI64ValueParser::new().range(64..=1 << 20)
}

/// Time of a compiler.
pub(super) fn compile_seconds() -> RangedI64ValueParser<u32> {
    RangedI64ValueParser::new().range(1..=86_400)
}
