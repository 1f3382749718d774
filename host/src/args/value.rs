//! Parsers of the values of options. An error names the values that would be accepted.

use std::net::SocketAddr;

use clap::builder::RangedI64ValueParser;

/// Parses a number of rounds, seconds, or the like.
pub fn count(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("a whole number is expected, from 0 to {}", u32::MAX))
}

/// Parses a TCP port.
pub fn port(text: &str) -> Result<u16, String> {
    text.parse()
        .map_err(|_| format!("a port is expected, from 0 (any that is free) to {}", u16::MAX))
}

/// Parses an address to listen on.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "ADDRESS:PORT is expected, as `127.0.0.1:9090`".to_owned())
}

/// Parses the name of a host.
pub fn host(text: &str) -> Result<String, String> {
    let is_one = mortise_core::contract::bounds::text::is_subdomain(text);
    is_one.then(|| text.to_owned()).ok_or_else(|| "a DNS name is expected, without port".to_owned())
}

/// Parses a time.
pub fn time(text: &str) -> Result<jiff::Timestamp, String> {
    text.parse().map_err(|_| "a time is expected, as `2026-01-31T12:00:00Z`".to_owned())
}

/// Parses the host of a registry.
pub fn registry(text: &str) -> Result<String, String> {
    let is_one = crate::oci::is_registry(text);
    is_one.then(|| text.to_owned()).ok_or_else(|| "HOST or HOST:PORT is expected".to_owned())
}

/// Memory of a compiler: below the least, none can start.
pub fn mebibytes() -> RangedI64ValueParser<u32> {
    RangedI64ValueParser::new().range(64..=1 << 20)
}

/// Time of a compiler.
pub fn compile_seconds() -> RangedI64ValueParser<u32> {
    RangedI64ValueParser::new().range(1..=86_400)
}
