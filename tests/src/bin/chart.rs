//! Writes the version of the host into the charts, and `deploy/install.yaml` from the chart of the
//! host: `cargo chart`.

fn main() -> anyhow::Result<()> {
    mortise_tests::helm::write()
}
