//! Writes `crds/`, and the kind Processor in the charts, from the Rust types: `cargo crds`.

fn main() -> anyhow::Result<()> {
    mortise_tests::crds::write()
}
