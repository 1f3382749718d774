//! `mortise run` against an API over HTTP.

mod api;
mod compile;
mod end;
mod lease;
mod pace;
mod start;

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    time::Duration,
};

use serde_json::Value;

use self::api::Api;
use crate::mortise;

/// What hangs shall not hang the tests.
const TIMEOUT: Duration = Duration::from_mins(2);

/// A `mortise run`, ended by its own id.
struct Run {
    child: Child,
    /// Standard error.
    lines: mpsc::Receiver<String>,
}

impl Run {
    /// With ports that are free, and a log in JSON.
    fn start(api: &Api, arguments: &[&str]) -> Self {
        Self::spawn(command(api).args(arguments))
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    /// The next event of the log with this message. Each line of the log is an object with a time,
    /// a level and a message.
    fn event(&self, message: &str) -> Value {
        let mut told = Vec::new();
        loop {
            let line = self
                .lines
                .recv_timeout(TIMEOUT)
                .unwrap_or_else(|_| panic!("no event `{message}`, but\n{}", told.join("\n")));
            let event: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
            for field in ["timestamp", "level", "message", "target"] {
                assert!(event[field].is_string(), "{field} is missing in {line}");
            }
            if event["message"] == message {
                return event;
            }
            told.push(line);
        }
    }

    fn signal(&self, name: &str) {
        let told = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(told.unwrap().success());
    }

    /// How it ended, and what it said until then that was not read before.
    fn wait(mut self) -> (ExitStatus, String) {
        let mut said = String::new();
        while let Ok(line) = self.lines.recv_timeout(TIMEOUT) {
            said = said + &line + "\n";
        }
        (self.child.wait().unwrap(), said)
    }

    /// Tells it to end; how it did.
    fn terminate(self) -> (ExitStatus, String) {
        self.signal("-TERM");
        self.wait()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Only a failed test leaves it running.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `mortise run` that finds nothing in the environment but what it is given.
fn bare() -> Command {
    let mut command = mortise();
    for (name, _) in std::env::vars_os() {
        let is_ours = name.to_str().is_some_and(|name| name.starts_with("MORTISE_"));
        if is_ours || name == "KUBECONFIG" {
            command.env_remove(name);
        }
    }
    command.env("HOME", env!("CARGO_TARGET_TMPDIR")).env("MORTISE_CACHE", cache());
    command
}

fn command(api: &Api) -> Command {
    let mut command = bare();
    command.arg("run").arg("--kubeconfig").arg(api.kubeconfig());
    command.arg("--modules").arg(api.modules());
    command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log-format", "json"]);
    command
}

/// Where compiled modules stay from one test to the next.
fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("run-cache")
}

/// Asks one of its ports.
async fn get(address: &str, path: &str) -> (u16, String) {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}")).await
}

/// Sends a request without a body; its last headers are added.
pub(crate) async fn ask(address: &str, head: &str) -> (u16, String) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("{head}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}
