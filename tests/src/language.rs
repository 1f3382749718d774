//! The tools of guests in Python and TypeScript.

use std::{
    path::Path,
    process::{Command, Stdio},
    sync::OnceLock,
};

use crate::tool;

/// A language of guests that Cargo does not build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// Python, by componentize-py.
    Python,
    /// TypeScript, by componentize-js.
    TypeScript,
}

// === impl Language ===

impl Language {
    pub const ALL: [Self; 2] = [Self::Python, Self::TypeScript];

    /// Returns the word of `mortise new --language`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::TypeScript => "typescript",
        }
    }

    /// Returns the folder of secret-copy in this language.
    #[must_use]
    pub fn secret_copy(self) -> &'static str {
        match self {
            Self::Python => "guests/secret-copy-python",
            Self::TypeScript => "guests/secret-copy-typescript",
        }
    }

    /// Returns whether guests in this language can be built here: its program is on the PATH, and
    /// the tools of secret-copy are installed or can be. If not, its tests pass without having run,
    /// and one line says so.
    ///
    /// # Panics
    ///
    /// Panics if a tool is missing and [`tool::VARIABLE`] requires it.
    #[must_use]
    pub fn is_there(self) -> bool {
        static TOOLS: [OnceLock<bool>; 2] = [const { OnceLock::new() }; 2];
        let [python, typescript] = &TOOLS;
        let (of, program, script) = match self {
            Self::Python => (python, "python3", "../sdk-python/build.py"),
            Self::TypeScript => (typescript, "node", "../sdk-typescript/build.mjs"),
        };
        let tests = format!("the tests of guests in {}", self.word());
        *of.get_or_init(|| tool::is_there(program, &tests) && self.install(program, script, &tests))
    }

    fn install(self, program: &str, script: &str, tests: &str) -> bool {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut command = Command::new(program);
        command.arg(script).current_dir(root.join(self.secret_copy())).stdin(Stdio::null());
        let output = command.output();
        if output.as_ref().is_ok_and(|output| output.status.success()) {
            return true;
        }
        let said = output.map_or_else(
            |error| error.to_string(),
            |output| String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        );
        tool::say(program, &format!("{program} cannot install its tools: {tests} not run: {said}"));
        false
    }
}
