//! The program as a user runs it.

#![cfg_attr(
    test,
    expect(
        clippy::disallowed_methods,
        reason = "tests stand for other people, who write as they like"
    )
)]

#[cfg(test)]
mod bench;
#[cfg(test)]
mod compile;
#[cfg(test)]
mod completion;
#[cfg(test)]
mod dev;
#[cfg(test)]
mod errors;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod file;
#[cfg(test)]
mod greeter;
#[cfg(test)]
mod help;
#[cfg(test)]
mod inspect;
#[cfg(test)]
mod library;
#[cfg(test)]
mod new;
#[cfg(test)]
mod outbound;
#[cfg(test)]
mod run;
#[cfg(test)]
mod simulate;
#[cfg(test)]
mod test;
#[cfg(test)]
mod view;

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

fn mortise() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mortise"));
    command.stdin(Stdio::null()).current_dir(root());
    command
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
