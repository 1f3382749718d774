//! Writes `crds/`, and the definition in `deploy/install.yaml`, from the Rust types: `cargo crds`.

fn main() -> anyhow::Result<()> {
    mortise_tests::crds::write()
}
