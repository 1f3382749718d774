//! The companion of a guest: a program that stands in for a system outside of the cluster. Its
//! first line says what the guest may call.
//!
//! *Guarantee*: the program and all processes that it has started end with the session. If this
//! process is killed, the kernel kills the program.

#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    io::{self, BufRead, BufReader, Read as _},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{ChildStdout, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use mortise_core::contract::bounds::text::escaped;
use parking_lot::Mutex;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::Deserialize;
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot},
    time::timeout,
};

use super::{
    message::{Message, Sender},
    process::Process,
};
use crate::{
    egress::{self, Grant},
    guest::Guest,
};

/// The most bytes of the first line.
const MAX_GRANTS_BYTES: usize = 256 << 10;
/// The most bytes of another line.
const MAX_LINE_BYTES: usize = 4 << 10;
/// The most lines that wait to be shown; further ones are left out.
const MAX_WAITING: usize = 256;
/// The number of last lines in an error.
const LAST_LINES: usize = 20;
/// The time without any line, on standard error either, after which the first line is given up.
/// Cargo, which may have to build the program, says what it builds; a package, or the wait for another
/// Cargo, takes minutes on a busy machine.
const MAX_SILENCE: Duration = Duration::from_mins(5);
/// The time to end after SIGTERM.
const TIME_TO_END: Duration = Duration::from_secs(3);

/// A line of a companion. It takes a place among those that wait to be shown, until it is dropped.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) text: String,
    _place: OwnedSemaphorePermit,
}

/// A running companion. Its processes are killed when it is dropped.
pub(super) struct Companion {
    /// The command and the guest, for errors.
    name: String,
    process: Arc<Process>,
    /// The first line; `None` once it was taken.
    first: Option<oneshot::Receiver<Vec<u8>>>,
    ended: oneshot::Receiver<io::Result<Option<ExitStatus>>>,
    lines: Arc<Lines>,
}

/// The lines after the first one.
struct Lines {
    /// The guest's place in the command line.
    guest: usize,
    messages: Sender,
    places: Arc<Semaphore>,
    /// The number of lines left out since the last one that was shown.
    left_out: AtomicUsize,
    last: Mutex<VecDeque<String>>,
    heard: Notify,
}

/// The first line of a companion.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct First {
    egress: Vec<Grant>,
}

#[cfg(test)]
impl Said {
    /// Creates a line that takes no place from others.
    pub(super) fn of(text: &str) -> Self {
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().expect("a free place");
        Self { text: text.to_owned(), _place: place }
    }
}

// === impl Companion ===

impl Companion {
    /// Starts the companion of a guest; `None` if it has none.
    ///
    /// # Errors
    ///
    /// Fails if no thread can be started.
    pub(super) fn start(
        guest: &Guest,
        index: usize,
        messages: &Sender,
    ) -> anyhow::Result<Option<Self>> {
        let Some(command) = command(guest.folder(), &guest.companion) else { return Ok(None) };
        let name =
            format!("`{}`, the companion of `{}`,", guest.companion.join(" "), guest.package);
        Self::run(name, command, index, messages).map(Some)
    }

    fn run(
        name: String,
        mut command: Command,
        guest: usize,
        messages: &Sender,
    ) -> anyhow::Result<Self> {
        let process = Arc::new(Process::default());
        let lines = Arc::new(Lines::new(guest, messages.clone()));
        let (first, first_line) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let (its, to) = (Arc::clone(&process), Arc::clone(&lines));
        // A thread of its own, since the program is killed when the thread that started it ends.
        let work = move || _ = end.send(work(&mut command, &its, &to, first));
        std::thread::Builder::new().spawn(work).context("cannot start a thread")?;
        Ok(Self { name, process, first: Some(first_line), ended, lines })
    }

    /// Waits for the first line, and returns the grants in it.
    ///
    /// # Errors
    ///
    /// Fails if the program ends or is silent before, and if the line is no such JSON.
    pub(super) async fn grants(&mut self) -> anyhow::Result<Vec<Grant>> {
        let Some(mut first) = self.first.take() else { return Ok(Vec::new()) };
        let line = loop {
            tokio::select! {
                line = &mut first => break line,
                heard = timeout(MAX_SILENCE, self.lines.heard.notified()) => if heard.is_err() {
                    let silent = MAX_SILENCE.as_secs();
                    return Err(self.error(&format!("has said nothing for {silent} s")));
                },
            }
        };
        let Ok(line) = line else {
            let ended = timeout(TIME_TO_END, self.ended()).await;
            return Err(ended.unwrap_or_else(|_| self.error("has closed its standard output")));
        };
        parse(&line).map_err(|problem| self.error(&problem))
    }

    /// Waits for the end of the program, and returns the error that this is.
    pub(super) async fn ended(&mut self) -> anyhow::Error {
        match (&mut self.ended).await {
            Ok(Ok(Some(status))) => self.error(&format!("has ended ({status})")),
            Ok(Err(error)) => self.error(&format!("cannot be run: {error}")),
            // The thread has panicked, which was reported, or was given up before it started.
            Ok(Ok(None)) | Err(_) => self.error("has ended"),
        }
    }

    /// Ends the program: by SIGTERM, and by SIGKILL if it has not ended soon.
    pub(super) async fn end(mut self) {
        self.process.give_up();
        // The receiver was used if the program has ended already.
        if !self.ended.is_terminated() {
            let _ = timeout(TIME_TO_END, &mut self.ended).await;
        }
    }

    fn error(&self, problem: &str) -> anyhow::Error {
        let last = self.lines.last.lock();
        let heading = if last.is_empty() { "" } else { "; its last lines:" };
        let last: Vec<String> = last.iter().map(|line| format!("\n  {line}")).collect();
        anyhow::anyhow!("{} {problem}{heading}{}", self.name, last.concat())
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        self.process.kill();
    }
}

/// Returns the command of a companion; `None` if it names no program.
fn command(folder: &Path, run: &[String]) -> Option<Command> {
    let (program, arguments) = run.split_first()?;
    // A path is relative to the guest's folder, like all others in its manifest.
    let program = if program.contains('/') { folder.join(program) } else { program.into() };
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    end_with_this_process(&mut command);
    Some(command)
}

/// Lets the kernel kill the program when this process is killed. What Cargo runs is the same
/// process: Cargo becomes the program.
#[expect(unsafe_code, reason = "only the new process can ask for it")]
fn end_with_this_process(command: &mut Command) {
    // SAFETY: the closure makes one system call, and neither allocates nor locks.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
    }
}

/// Runs the program to its end.
fn work(
    command: &mut Command,
    process: &Process,
    lines: &Arc<Lines>,
    first: oneshot::Sender<Vec<u8>>,
) -> io::Result<Option<ExitStatus>> {
    let Some((stdout, stderr)) = process.start(command)? else { return Ok(None) };
    let (of_output, of_errors) = (Arc::clone(lines), Arc::clone(lines));
    let output = std::thread::spawn(move || read_output(stdout, &of_output, first));
    let errors = std::thread::spawn(move || of_errors.read(BufReader::new(stderr)));
    let ended = process.wait_and_clear();
    // A panic of such a thread was reported, and costs only lines.
    let _ = (output.join(), errors.join());
    ended
}

fn read_output(stdout: ChildStdout, lines: &Lines, first: oneshot::Sender<Vec<u8>>) {
    let mut output = BufReader::new(stdout);
    // One byte more than is accepted shows that it is too long.
    let line = read_line(&mut output, MAX_GRANTS_BYTES + 1);
    if let Some(line) = line {
        // Nobody waits for it if the session ends.
        let _ = first.send(line);
        lines.read(output);
    }
}

/// Reads a line without its end, at most `limit` bytes of it; `None` at the end of the output.
fn read_line(from: &mut impl BufRead, limit: usize) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    let read = from.by_ref().take(u64::try_from(limit).ok()?).read_until(b'\n', &mut line).ok()?;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if read == limit {
        from.skip_until(b'\n').ok()?;
    }
    (read > 0).then_some(line)
}

fn parse(line: &[u8]) -> Result<Vec<Grant>, String> {
    let expected = r#"`{"egress": [{"origin": …}]}` is expected, with the fields of a Processor's `spec.egress`"#;
    if line.len() > MAX_GRANTS_BYTES {
        let limit = MAX_GRANTS_BYTES >> 10;
        return Err(format!("has a first line of more than {limit} KiB: {expected}"));
    }
    let wrong = |error: &str| {
        format!("has another first line than JSON of grants ({}): {expected}", escaped(error))
    };
    let first: First = serde_json::from_slice(line).map_err(|error| wrong(&error.to_string()))?;
    egress::check(&first.egress).map_err(|error| wrong(&error))?;
    Ok(first.egress)
}

// === impl Lines ===

impl Lines {
    fn new(guest: usize, messages: Sender) -> Self {
        let places = Arc::new(Semaphore::new(MAX_WAITING));
        let (left_out, last, heard) = (AtomicUsize::new(0), Mutex::default(), Notify::new());
        Self { guest, messages, places, left_out, last, heard }
    }

    fn read(&self, mut output: impl BufRead) {
        while let Some(line) = read_line(&mut output, MAX_LINE_BYTES) {
            self.take(String::from_utf8_lossy(&line).trim_end());
        }
    }

    fn take(&self, line: &str) {
        let line = escaped(line).into_owned();
        self.show(&line);
        let mut last = self.last.lock();
        if last.len() == LAST_LINES {
            last.pop_front();
        }
        last.push_back(line);
        drop(last);
        self.heard.notify_one();
    }

    /// Shows a line, unless too many wait to be shown.
    fn show(&self, line: &str) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let text = match self.left_out.swap(0, Ordering::Relaxed) {
            0 => line.to_owned(),
            left_out => format!("({left_out} lines are left out)\n{line}"),
        };
        let said = Said { text, _place: place };
        // A closed channel means that the program ends.
        let _ = self.messages.send(Message::Said(self.guest, said));
    }
}
