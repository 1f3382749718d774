//! A shell in which kubectl finds an embedded API of its own.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    net::Ipv4Addr,
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use mortise_embedded_api::{EmbeddedApi, Options};
use mortise_tests::{cluster, tool};
use regex::Regex;
use serde_json::Value;
use tempfile::TempDir;
use tokio::{net::TcpListener, runtime::Runtime};
use tokio_util::sync::CancellationToken;

/// Timeout that only a fault reaches: a command takes a tenth of a second.
const TIMEOUT: Duration = Duration::from_mins(1);

/// An API, a working folder, and a shell in that folder.
pub(super) struct Shell {
    pub(super) api: EmbeddedApi,
    folder: TempDir,
    /// Serves the API until it is dropped.
    _serving: Runtime,
}

/// A running command. It ends on drop.
pub(super) struct Running {
    child: Child,
    lines: Receiver<String>,
}

/// The output of a command, standard error included, and its exit code.
struct Ended {
    output: String,
    code: Option<i32>,
}

// === impl Shell ===

impl Shell {
    /// Opens a shell; returns `None` if kubectl is missing.
    pub(super) fn open() -> Option<Self> {
        if !tool::is_there("kubectl", "the tests of it::kubectl") {
            return None;
        }
        let serving = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let api = EmbeddedApi::new(Options::default());
        let listener = serving.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        serving.spawn({
            let api = api.clone();
            async move { api.serve(listener, CancellationToken::new()).await }
        });
        let shell = Self { api, folder: tempfile::tempdir().unwrap(), _serving: serving };
        let kubeconfig = cluster::kubeconfig(&format!("http://{address}"));
        shell.write("kubeconfig", &kubeconfig.to_string());
        Some(shell)
    }

    /// Writes a file into the folder of this shell, and the folders above it.
    pub(super) fn write(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A file of the folder of this shell.
    pub(super) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap()
    }

    /// Stores an object without kubectl, including its status.
    pub(super) fn load(&self, object: &Value) {
        self.api.load(object.clone(), true).unwrap();
    }

    /// Runs a command, which must exit with this code and print this text. Runs of spaces count as
    /// one space, empty lines are ignored, and `…` stands for any text.
    #[track_caller]
    pub(super) fn expect(&self, line: &str, code: i32, pattern: &str) {
        let ended = self.run(line);
        let is_as_expected = ended.code == Some(code) && matches(pattern, &ended.output);
        assert!(
            is_as_expected,
            "$ {line}\n{}[exit {:?}]\nexpected:\n{pattern}\n[exit {code}]",
            ended.output, ended.code
        );
    }

    /// Runs commands one after the other; each row is a command, its exit code and its output.
    #[track_caller]
    pub(super) fn table(&self, rows: &[(&str, i32, &str)]) {
        for (line, code, pattern) in rows {
            self.expect(line, *code, pattern);
        }
    }

    /// Runs a command that must not fail, and returns its output.
    #[track_caller]
    pub(super) fn output(&self, line: &str) -> String {
        let ended = self.run(line);
        assert_eq!(ended.code, Some(0), "$ {line}\n{}", ended.output);
        ended.output
    }

    /// Runs a command that must not fail, and returns the JSON document that it prints.
    #[track_caller]
    pub(super) fn json(&self, line: &str) -> Value {
        let output = self.output(line);
        serde_json::from_str(&output).unwrap_or_else(|error| panic!("$ {line}\n{output}\n{error}"))
    }

    /// Starts a command without waiting for its end.
    pub(super) fn start(&self, line: &str) -> Running {
        let mut child = self.command(line).spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        // The thread ends with the command's output, or once the receiver is dropped.
        thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Running { child, lines }
    }

    fn run(&self, line: &str) -> Ended {
        let mut child = self.command(line).spawn().unwrap();
        let (sender, receiver) = mpsc::channel();
        let mut stdout = child.stdout.take().unwrap();
        thread::spawn(move || {
            let mut output = Vec::new();
            let read = stdout.read_to_end(&mut output);
            let _ = sender.send(read.map(|_| String::from_utf8_lossy(&output).into_owned()));
        });
        let Ok(output) = receiver.recv_timeout(TIMEOUT) else {
            end(&mut child);
            panic!("`{line}` did not end");
        };
        Ended { output: output.unwrap(), code: child.wait().unwrap().code() }
    }

    /// Prepares a command in a process group of its own, so that it can be killed with all
    /// processes that it started.
    fn command(&self, line: &str) -> Command {
        let folder = self.folder.path();
        // With an environment of its own and a name to look up, the standard library forks, which
        // copies the page tables of all tests; with a path it spawns.
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", &format!("exec 2>&1\n{line}")])
            .current_dir(folder)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", folder)
            .env("TMPDIR", folder)
            .env("KUBECONFIG", folder.join("kubeconfig"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0);
        command
    }
}

// === impl Running ===

impl Running {
    /// Waits for the next line, which must match `pattern`.
    #[track_caller]
    pub(super) fn expect(&self, pattern: &str) {
        let line = self.lines.recv_timeout(TIMEOUT);
        let line = line.unwrap_or_else(|_| panic!("nothing came, instead of `{pattern}`"));
        assert!(matches(pattern, &line), "`{line}` came, not `{pattern}`");
    }

    /// Waits for the end of the command, which must print no more lines and exit with this code.
    #[track_caller]
    pub(super) fn ends(mut self, code: i32) {
        let rest = self.lines.recv_timeout(TIMEOUT);
        assert_eq!(rest, Err(mpsc::RecvTimeoutError::Disconnected), "it goes on");
        assert_eq!(self.child.wait().unwrap().code(), Some(code));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Polls until `is_so` holds, where no notification exists.
#[track_caller]
pub(super) fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < TIMEOUT, "it did not come to this: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Kills a command with all processes that it started, if it still runs.
fn end(child: &mut Child) {
    if child.try_wait().is_ok_and(|ended| ended.is_none()) {
        let group = format!("-{}", child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = child.wait();
    }
}

fn matches(pattern: &str, output: &str) -> bool {
    let squeeze = |text: &str| {
        let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
    };
    let parts: Vec<String> = squeeze(pattern).split('…').map(regex::escape).collect();
    let regex = Regex::new(&format!("^{}$", parts.join("(?s:.*)"))).unwrap();
    regex.is_match(&squeeze(output))
}

#[test]
fn a_pattern_matches_other_text_only_at_an_ellipsis() {
    let cases = [
        ("configmap/a created", "configmap/a created\n", true),
        ("configmap/a created", "configmap/a created\nWarning: b\n", false),
        ("NAME AGE\nweb …", "\nNAME   AGE\n\nweb    3s\n", true),
        ("NAME AGE\nweb …", "NAME AGE\nother 3s\n", false),
        ("… refused …", "a\nis refused by\nb", true),
        ("", "something", false),
    ];
    for (pattern, output, is_match) in cases {
        assert_eq!(matches(pattern, output), is_match, "{pattern:?} of {output:?}");
    }
}
