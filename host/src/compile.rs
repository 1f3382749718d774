//! `mortise compile`: makes machine code of one component, within limits, and ends. It is what `mortise run` starts for each module
//! that is not in its cache.

use std::{
    io::{self, IsTerminal as _, Read as _, Write as _},
    process::ExitCode,
};

use anyhow::Context as _;

use crate::{
    args::ChildArgs,
    child,
    processor::{self, CompileError},
};

/// What the message starts with when it is the module that is wrong.
pub(crate) const REFUSED: &str = "cannot compile the module: ";
/// The exit code then.
pub(crate) const BAD_INPUT: i32 = 1;

/// Reads a module from standard input and writes its code to standard output.
///
/// Nothing else of the program may have been started: see [`child::confine()`].
///
/// # Errors
///
/// Limits that cannot be set, a module that is none, code that cannot be written.
pub fn run(args: &ChildArgs) -> anyhow::Result<ExitCode> {
    child::confine(args)?;
    let mut output = io::stdout().lock();
    anyhow::ensure!(
        !output.is_terminal(),
        "the code would be written to the terminal: redirect it, as in `mortise compile < my.wasm > my.code`"
    );
    let mut module = Vec::new();
    io::stdin().lock().read_to_end(&mut module).context("cannot read the module")?;
    let code = processor::compile(&module).map_err(|error| match error {
        CompileError::Refused(cause) => anyhow::anyhow!("{REFUSED}{cause}"),
        error => error.into(),
    })?;
    output.write_all(&code).and_then(|()| output.flush()).context("cannot write the code")?;
    Ok(ExitCode::SUCCESS)
}
