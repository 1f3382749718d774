//! The guides: README.md, and those of deploy, guests and tests. Their commands for a developer's
//! machine are run; `deploy/REFERENCE.md` and `deploy/SECURITY.md` match the code.

mod commands;
mod reference;
mod security;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The guides whose commands are checked.
const GUIDES: [&str; 6] = [
    "README.md",
    "deploy/README.md",
    "guests/README.md",
    "tests/README.md",
    "guests/konnect/README.md",
    "guests/kube-bind/README.md",
];

/// Returns the path of this repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Reads a file of this repository.
fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the commands below a comment of a guide, line by line.
pub(crate) fn block(guide: &str, comment: &str) -> String {
    let text = read(guide);
    let (_, rest) = text.split_once(comment).unwrap_or_else(|| panic!("{guide}: {comment}"));
    let block = rest.split_once("```sh\n").and_then(|(_, rest)| rest.split_once("```"));
    block.unwrap_or_else(|| panic!("{guide}: no commands below {comment}")).0.to_owned()
}

/// Returns a command that starts `mortise` in this repository, with the compiled code that all
/// tests share, and without other options from the environment.
fn mortise() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mortise-tested"));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("MORTISE_")) {
            command.env_remove(name);
        }
    }
    command.current_dir(root()).env("MORTISE_CACHE", mortise_tests::code_cache());
    command
}
