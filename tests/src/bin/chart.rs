//! Writes `deploy/install.yaml` from the chart of the host: `cargo chart`.

fn main() -> anyhow::Result<()> {
    mortise_tests::helm::write()
}
