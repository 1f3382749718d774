//! Builds Istio's renderer: `cargo istio-client`.

use std::{
    io::{self, Write as _},
    path::PathBuf,
};

use anyhow::Result;
use clap::Parser;
use istio_client_build::Version;

/// Build Istio's renderer as a component, for each version of Istio.
#[derive(Debug, Parser)]
#[command(name = "cargo istio-client")]
struct Args {
    /// Folders of versions to build; without any, all of guests/istio-client
    folders: Vec<PathBuf>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let versions = if args.folders.is_empty() {
        Version::all()?
    } else {
        args.folders.iter().map(|folder| Version::open(folder)).collect::<Result<_>>()?
    };
    for version in versions {
        let component = version.prepare()?.component()?;
        writeln!(io::stdout(), "{}", component.display())?;
    }
    Ok(())
}
