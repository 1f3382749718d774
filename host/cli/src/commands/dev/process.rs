//! The process of a command, with all processes that it has started.

#[cfg(test)]
mod tests;

use std::{
    io,
    process::{Child, ChildStderr, ChildStdout, Command, ExitStatus},
};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// The process of a command in a process group of its own, shared by two tasks: one reads and
/// waits, the other may end it.
#[derive(Debug, Default)]
pub(super) struct Process(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The child process, from its start until it is waited for.
    child: Option<Child>,
    given_up: bool,
}

// === impl Process ===

impl Process {
    /// Starts the process, unless it was given up before. Returns its standard output and standard
    /// error, which the command has to pipe.
    pub(super) fn start(
        &self,
        command: &mut Command,
    ) -> io::Result<Option<(ChildStdout, ChildStderr)>> {
        let mut state = self.0.lock();
        if state.given_up {
            return Ok(None);
        }
        let mut child = command.spawn()?;
        let streams = child.stdout.take().zip(child.stderr.take());
        state.child = Some(child);
        Ok(streams)
    }

    /// Gives the process up: ends it and all processes that it has started.
    pub(super) fn give_up(&self) {
        let mut state = self.0.lock();
        state.given_up = true;
        state.signal(Signal::TERM);
    }

    /// Kills the process and all processes that it has started.
    pub(super) fn kill(&self) {
        let mut state = self.0.lock();
        state.given_up = true;
        state.signal(Signal::KILL);
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.0.lock().given_up
    }

    /// Waits for the process to end. Called once its output has ended.
    pub(super) fn wait(&self) -> io::Result<Option<ExitStatus>> {
        let child = self.0.lock().child.take();
        child.map(|mut child| child.wait()).transpose()
    }

    /// Waits for the process to end, then kills the processes that it has left behind. It can be
    /// given up meanwhile.
    pub(super) fn wait_and_clear(&self) -> io::Result<Option<ExitStatus>> {
        let id = self.0.lock().child.as_ref().map(Pid::from_child);
        if let Some(id) = id {
            // The process is reaped below: until then its number, which is that of the group, is
            // not used again.
            waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
            self.0.lock().signal(Signal::KILL);
        }
        self.wait()
    }
}

// === impl State ===

impl State {
    /// Sends a signal to the process and to all processes that it has started.
    fn signal(&mut self, signal: Signal) {
        if let Some(child) = &self.child {
            // The process may have ended just now, but is not reaped yet, so its number is not
            // used again.
            let _ = kill_process_group(Pid::from_child(child), signal);
        }
    }
}
