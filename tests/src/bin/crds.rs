//! Writes `crds/` from the Rust types: `cargo crds`.

fn main() -> anyhow::Result<()> {
    mortise_tests::crds::write()
}
