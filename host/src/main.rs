//! The program `mortise`.
fn main() {}
