//! One run of Cargo, which can be given up: for a newer save, or because the program ends.
//!
//! *Guarantee*: when [`build`] returns, its Cargo has ended, and the compilers that it had started were told to.

use std::{
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio},
    sync::Arc,
};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::guest::{self, Guest};

#[cfg(test)]
mod tests;

/// The width at which Cargo ends the word that begins a line of progress.
const VERB: usize = 12;

/// A line that Cargo or the compiler wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    /// What is being done.
    Progress(String),
    /// What is wrong, or could be better; with colours, maybe of several lines.
    Message(String),
}

/// How a build ended.
#[derive(Debug)]
pub(super) enum Built {
    /// The .wasm file.
    Component(PathBuf),
    /// It does not build; the lines have said why.
    Failed(guest::Error),
    /// It was given up.
    GivenUp,
}

/// The process, which two tasks share: one reads and waits, one may give it up.
#[derive(Debug, Default)]
struct Process(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// From its start until its output has ended.
    child: Option<Child>,
    given_up: bool,
}

/// Builds a guest; `say` takes the lines as they come. Cargo is ended when `give_up` is cancelled.
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
        // The thread panicked, and has said so.
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

/// The component; none where the build was given up.
fn try_run(
    guest: &Guest,
    process: &Process,
    say: &(impl Fn(Line) + Clone + Send + 'static),
) -> Result<Option<PathBuf>, guest::Error> {
    let no_cargo = |cause| guest::Error::NoProgram { program: "cargo", cause };
    guest.add_target()?;
    let mut cargo = guest.cargo("json-diagnostic-rendered-ansi");
    // A group of its own: Ctrl-C in the terminal is for us, and all of it can be ended at once.
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
    // A panic of it was reported, and costs lines only.
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

fn read_progress(stderr: ChildStderr, say: &impl Fn(Line)) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        say(if is_progress(&line) {
            Line::Progress(line.trim().to_owned())
        } else {
            Line::Message(line)
        });
    }
}

/// Whether a line of Cargo's says what is being done: it begins with one word, set to the right.
fn is_progress(line: &str) -> bool {
    let Some((verb, rest)) = line.split_at_checked(VERB) else { return false };
    rest.starts_with(' ') && !verb.trim_start().is_empty() && !verb.trim_start().contains(' ')
}

/// What a compiler's message, as Cargo hands it on, looks like.
fn rendered(line: &str) -> Option<String> {
    let message: Value = serde_json::from_str(line).ok()?;
    let text = message.pointer("/message/rendered")?.as_str()?;
    Some(text.trim_end().to_owned())
}

// === impl Process ===

impl Process {
    /// Starts it, unless it was given up before. Its output and its errors.
    fn start(&self, command: &mut Command) -> std::io::Result<Option<(ChildStdout, ChildStderr)>> {
        let mut state = self.0.lock();
        if state.given_up {
            return Ok(None);
        }
        let mut child = command.spawn()?;
        let streams = child.stdout.take().zip(child.stderr.take());
        state.child = Some(child);
        Ok(streams)
    }

    /// Tells it and all that it has started to end.
    fn give_up(&self) {
        let mut state = self.0.lock();
        state.given_up = true;
        let group = state.child.as_ref().and_then(|child| i32::try_from(child.id()).ok());
        if let Some(group) = group.and_then(Pid::from_raw) {
            // It may have ended just now. It is not reaped yet, so its number is nobody else's.
            let _ = kill_process_group(group, Signal::TERM);
        }
    }

    fn is_given_up(&self) -> bool {
        self.0.lock().given_up
    }

    /// How it ended, once its output has.
    fn wait(&self) -> std::io::Result<Option<ExitStatus>> {
        let child = self.0.lock().child.take();
        child.map(|mut child| child.wait()).transpose()
    }
}
