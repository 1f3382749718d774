//! `mortise run` as a process of its own, and its log.

use std::{
    ffi::OsStr,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::mpsc,
    time::timeout,
};

/// The environment variable that names a program to run instead of the one built with the tests.
const STATIC: &str = "MORTISE_STATIC";
/// Timeout that only a fault reaches.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(5);
/// The lines of a host's log that a failed test shows.
const LAST_LINES: usize = 20;
/// Interval of polling where no notification exists.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A running `mortise run`. Killed on drop, by its own process id.
pub(crate) struct Program {
    child: Child,
    /// Lines of standard error, which is a log in JSON.
    lines: mpsc::UnboundedReceiver<String>,
    /// The lines that have been read.
    said: Vec<String>,
}

/// The addresses that the host listens on.
pub(crate) struct Ports {
    pub(crate) public: String,
    pub(crate) admin: String,
}

/// Returns the path of a static program, as `deploy/Dockerfile` makes it, if one is given.
pub(crate) fn given() -> Option<PathBuf> {
    std::env::var_os(STATIC).map(PathBuf::from)
}

/// Returns the path of the program that is built with the tests.
pub(crate) fn built() -> PathBuf {
    env!("CARGO_BIN_EXE_mortise-tested").into()
}

// === impl Program ===

impl Program {
    /// Starts the program with free ports, and without variables in its environment that configure
    /// it.
    pub(crate) fn start<I>(kubeconfig: &Path, modules: &Path, cache: &Path, arguments: I) -> Self
    where
        I: IntoIterator<Item: AsRef<OsStr>>,
    {
        let mut command = Command::new(given().unwrap_or_else(built));
        for (name, _) in std::env::vars_os() {
            let is_ours = name.to_str().is_some_and(|name| name.starts_with("MORTISE_"));
            if is_ours || name == "KUBECONFIG" {
                command.env_remove(name);
            }
        }
        command.arg("run").arg("--kubeconfig").arg(kubeconfig);
        command.arg("--modules").arg(modules).arg("--cache").arg(cache);
        command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log-format", "json"]);
        command.args(arguments);
        Self::spawn(command)
    }

    /// Starts a command whose log is in JSON.
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        let (send, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines, said: Vec::new() }
    }

    /// Returns the next event of the log with this message.
    pub(crate) async fn event(&mut self, message: &str) -> Value {
        loop {
            let line = timeout(TIMEOUT, self.lines.recv()).await.ok().flatten();
            let said = || self.said.join("\n");
            let line = line.unwrap_or_else(|| panic!("no event `{message}`, but\n{}", said()));
            let event: Value = serde_json::from_str(&line).unwrap_or_default();
            self.said.push(line);
            if event["message"] == message {
                return event;
            }
        }
    }

    /// Returns the events of the log until now.
    pub(crate) fn said(&mut self) -> Vec<Value> {
        while let Ok(line) = self.lines.try_recv() {
            self.said.push(line);
        }
        self.said.iter().map(|line| serde_json::from_str(line).unwrap_or_default()).collect()
    }

    pub(crate) async fn ports(&mut self) -> Ports {
        let listening = self.event("listening").await;
        let address = |name: &str| listening[name].as_str().unwrap().to_owned();
        Ports { public: address("listen"), admin: address("admin") }
    }

    /// Kills the process as `kill -9` does.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        let id = self.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    }

    /// Waits for the end of the process; returns its exit status and its whole log.
    pub(crate) async fn ended(&mut self) -> (ExitStatus, String) {
        while let Some(line) = timeout(TIMEOUT, self.lines.recv()).await.expect("a line in time") {
            self.said.push(line);
        }
        (self.child.wait().unwrap(), self.said.join("\n"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The process may have ended by itself: the log of a failed test says why.
        let ended = self.child.try_wait();
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            while let Ok(line) = self.lines.try_recv() {
                self.said.push(line);
            }
            let said = self.said.split_off(self.said.len().saturating_sub(LAST_LINES));
            let said = said.join("\n");
            let _ = writeln!(std::io::stderr(), "the host {} ({ended:?}): {said}", self.id());
        }
    }
}

/// Sends a GET to one of the ports; returns the status and the body of the answer.
pub(crate) async fn get(address: &str, path: &str) -> (u16, String) {
    let asked = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = timeout(TIMEOUT, asked).await.expect("the program answers");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}
