//! `mortise run` as a process of its own, and what it says.

use std::{
    ffi::OsStr,
    io::{BufRead as _, BufReader},
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

/// Names a program that is run instead of the one that is built with the tests.
const STATIC: &str = "MORTISE_STATIC";
/// Only a fault takes longer.
pub(super) const GUARD: Duration = Duration::from_mins(5);
/// How often something is looked at that nobody tells of.
pub(super) const GLANCE: Duration = Duration::from_millis(50);

/// A `mortise run`. It is killed when this is dropped, by its own id.
pub(super) struct Program {
    child: Child,
    /// Standard error: a log in JSON.
    lines: mpsc::UnboundedReceiver<String>,
    /// All of it that was read.
    said: Vec<String>,
}

/// Where it answers.
pub(super) struct Ports {
    pub(super) public: String,
    pub(super) admin: String,
}

/// A static program, as `deploy/Dockerfile` makes it, where one is given.
pub(super) fn given() -> Option<PathBuf> {
    std::env::var_os(STATIC).map(PathBuf::from)
}

/// The one that is built with the tests.
pub(super) fn built() -> PathBuf {
    env!("CARGO_BIN_EXE_mortise-tested").into()
}

// === impl Program ===

impl Program {
    /// With ports that are free, and nothing in its environment that says how it runs.
    pub(super) fn start<I>(kubeconfig: &Path, modules: &Path, cache: &Path, arguments: I) -> Self
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

    /// One that is started so; its log is in JSON.
    pub(super) fn spawn(mut command: Command) -> Self {
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

    /// The next event of the log with this message.
    pub(super) async fn event(&mut self, message: &str) -> Value {
        loop {
            let line = timeout(GUARD, self.lines.recv()).await.ok().flatten();
            let said = || self.said.join("\n");
            let line = line.unwrap_or_else(|| panic!("no event `{message}`, but\n{}", said()));
            let event: Value = serde_json::from_str(&line).unwrap_or_default();
            self.said.push(line);
            if event["message"] == message {
                return event;
            }
        }
    }

    /// The events of its log until now.
    pub(super) fn said(&mut self) -> Vec<Value> {
        while let Ok(line) = self.lines.try_recv() {
            self.said.push(line);
        }
        self.said.iter().map(|line| serde_json::from_str(line).unwrap_or_default()).collect()
    }

    pub(super) async fn ports(&mut self) -> Ports {
        let listening = self.event("listening").await;
        let address = |name: &str| listening[name].as_str().unwrap().to_owned();
        Ports { public: address("listen"), admin: address("admin") }
    }

    /// As `kill -9` does it.
    pub(super) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The id of its process.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Tells it to end.
    pub(super) fn terminate(&self) {
        let id = self.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    }

    /// Waits for its end: how it ended, and all that it has said.
    pub(super) async fn ended(&mut self) -> (ExitStatus, String) {
        while let Some(line) = timeout(GUARD, self.lines.recv()).await.expect("it does not end") {
            self.said.push(line);
        }
        (self.child.wait().unwrap(), self.said.join("\n"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks one of its ports: the code and the text of the answer.
pub(super) async fn get(address: &str, path: &str) -> (u16, String) {
    let asked = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = timeout(GUARD, asked).await.expect("it does not answer");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}
