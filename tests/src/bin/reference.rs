//! Writes `deploy/REFERENCE.md` from the code: `cargo reference`.

fn main() -> anyhow::Result<()> {
    mortise_tests::reference::write()
}
