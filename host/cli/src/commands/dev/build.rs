//! A build that can be cancelled: by a newer save, or at the end of the program.
//!
//! *Guarantee*: when [`build`] returns, the commands that it ran (Cargo, and those of manifests)
//! have ended, and the compilers that they started were sent SIGTERM.

#[cfg(test)]
mod tests;

use std::{
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{ChildStderr, Stdio},
    sync::Arc,
};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::process::Process;
use crate::guest::{self, Guest, Made};

/// The width to which Cargo right-aligns the first word of a line of progress.
const VERB_WIDTH: usize = 12;

/// A line that Cargo or the compiler wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    Progress(String),
    /// An error or a warning, with colours; may span several lines.
    Message(String),
}

/// The result of a build.
#[derive(Debug)]
pub(super) enum Built {
    /// The path of the .wasm file.
    Component(PathBuf),
    /// The guest does not build; the reason is in the lines.
    Failed(guest::Error),
    /// The build was cancelled.
    GivenUp,
}

/// Builds a guest; `say` receives the lines as they are written. Commands are ended when `give_up`
/// is cancelled.
pub(super) async fn build(
    guest: &Guest,
    say: impl Fn(Line) + Clone + Send + 'static,
    give_up: &CancellationToken,
) -> Built {
    let process = Arc::new(Process::default());
    let (task, guest) = (Arc::clone(&process), guest.clone());
    let mut run = tokio::task::spawn_blocking(move || run(&guest, &task, &say));
    let ended = tokio::select! {
        ended = &mut run => ended,
        () = give_up.cancelled() => {
            process.give_up();
            run.await
        }
    };
    match ended {
        Ok(built) => built,
        // The thread panicked; the panic was reported.
        Err(_) => Built::GivenUp,
    }
}

fn run(guest: &Guest, process: &Process, say: &(impl Fn(Line) + Clone + Send + 'static)) -> Built {
    match try_run(guest, process, say) {
        Ok(Some(component)) => Built::Component(component),
        Ok(None) => Built::GivenUp,
        Err(_) if process.is_given_up() => Built::GivenUp,
        Err(error) => Built::Failed(error),
    }
}

/// Builds the component; `None` if the build was cancelled.
fn try_run(
    guest: &Guest,
    process: &Process,
    say: &(impl Fn(Line) + Clone + Send + 'static),
) -> Result<Option<PathBuf>, guest::Error> {
    guest.add_target()?;
    for made in guest.made() {
        if !make(made, guest, process, say)? {
            return Ok(None);
        }
    }
    match guest.component() {
        Some(component) => Ok(Some(component.path.clone())),
        None => build_package(guest, process, say),
    }
}

/// Runs the command that makes a file; false if the build was cancelled.
fn make(
    made: &Made,
    guest: &Guest,
    process: &Process,
    say: &(impl Fn(Line) + Clone + Send + 'static),
) -> Result<bool, guest::Error> {
    if let Some(mut command) = made.command(guest.folder())? {
        let not_run = |cause| made.not_run(cause);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let Some((stdout, stderr)) = process.start(&mut command).map_err(not_run)? else {
            return Ok(false);
        };
        let errors = std::thread::spawn({
            let say = say.clone();
            move || read_lines(stderr, &say)
        });
        read_lines(stdout, say);
        // A panic of that thread was reported, and costs only lines.
        let _ = errors.join();
        match process.wait().map_err(not_run)? {
            None => return Ok(false),
            Some(status) if !status.success() => return Err(made.failed()),
            Some(_) => {}
        }
    }
    made.check().map(|()| true)
}

/// Builds the package; `None` if the build was cancelled.
fn build_package(
    guest: &Guest,
    process: &Process,
    say: &(impl Fn(Line) + Clone + Send + 'static),
) -> Result<Option<PathBuf>, guest::Error> {
    let no_cargo = |cause| guest::Error::NoProgram { program: "cargo", cause };
    let mut cargo = guest.cargo("json-diagnostic-rendered-ansi");
    // A separate process group: Ctrl-C in the terminal then reaches only this program, and Cargo
    // and its compilers can be ended together.
    cargo.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let Some((stdout, stderr)) = process.start(&mut cargo).map_err(no_cargo)? else {
        return Ok(None);
    };
    let progress = std::thread::spawn({
        let say = say.clone();
        move || read_progress(stderr, &say)
    });
    let mut component = None;
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        component = guest.component_in(&line).or(component);
        if let Some(message) = rendered(&line) {
            say(Line::Message(message));
        }
    }
    // A panic of that thread was reported, and costs only lines.
    let _ = progress.join();
    match process.wait().map_err(no_cargo)? {
        None => Ok(None),
        Some(status) if !status.success() => {
            Err(guest::Error::Build { package: guest.package.clone() })
        }
        Some(_) => {
            let none = || guest::Error::NoComponent { package: guest.package.clone() };
            component.map(Some).ok_or_else(none)
        }
    }
}

fn read_lines(output: impl std::io::Read, say: &impl Fn(Line)) {
    let lines = BufReader::new(output).lines().map_while(Result::ok);
    for line in lines {
        say(Line::Message(line));
    }
}

fn read_progress(stderr: ChildStderr, say: &impl Fn(Line)) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        say(if is_progress(&line) {
            Line::Progress(line.trim().to_owned())
        } else {
            Line::Message(line)
        });
    }
}

/// Returns whether a line from Cargo is progress: its first word is right-aligned.
fn is_progress(line: &str) -> bool {
    let Some((verb, rest)) = line.split_at_checked(VERB_WIDTH) else { return false };
    rest.starts_with(' ') && !verb.trim_start().is_empty() && !verb.trim_start().contains(' ')
}

/// Returns the rendered text of a compiler message in Cargo's JSON output, if the line is one.
fn rendered(line: &str) -> Option<String> {
    let message: Value = serde_json::from_str(line).ok()?;
    let text = message.pointer("/message/rendered")?.as_str()?;
    Some(text.trim_end().to_owned())
}
