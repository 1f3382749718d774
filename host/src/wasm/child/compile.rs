//! `mortise compile`: compiles one component to machine code, within limits. `mortise run` starts
//! this command for each module that is not in its cache.

use std::{
    io::{self, IsTerminal as _, Read as _, Write as _},
    process::ExitCode,
};

use anyhow::Context as _;

use super::OwnLimits;
use crate::wasm::{self, CompileError};

/// The prefix of the message if the module itself is invalid.
pub(crate) const REFUSED: &str = "cannot compile the module: ";
/// The prefix of the message if the code cannot be written.
pub(crate) const NOT_WRITTEN: &str = "cannot write the code";
/// The exit code if the module itself is invalid.
pub(crate) const BAD_INPUT_EXIT_CODE: i32 = 1;

/// Reads a module from standard input and writes its code to standard output.
///
/// No other part of the program may have been started: see [`super::confine()`].
///
/// # Errors
///
/// A limit cannot be set, the input is no module, or the code cannot be written.
pub(crate) fn run(limits: &OwnLimits) -> anyhow::Result<ExitCode> {
    super::confine(limits)?;
    let mut output = io::stdout().lock();
    anyhow::ensure!(
        !output.is_terminal(),
        "the code would be written to the terminal: redirect it, as in `mortise compile < my.wasm > my.code`"
    );
    let mut module = Vec::new();
    io::stdin().lock().read_to_end(&mut module).context("cannot read the module")?;
    let code = wasm::compile(&module).map_err(|error| match error {
        CompileError::Refused(cause) => anyhow::anyhow!("{REFUSED}{cause}"),
        error => error.into(),
    })?;
    output.write_all(&code).and_then(|()| output.flush()).context(NOT_WRITTEN)?;
    Ok(ExitCode::SUCCESS)
}
