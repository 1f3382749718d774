//! Writes crds/.
fn main() {}
