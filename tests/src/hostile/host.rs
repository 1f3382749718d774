//! The host in its own process, with as much memory as a Pod would have, and measurements of its
//! memory and output.

use std::{
    collections::VecDeque,
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::{
    FORGED, POLL_INTERVAL, TREASURE,
    registry::MAX_MODULES_MIB,
    tenants::{CERTIFICATE, HOME},
};

/// `RLIMIT_DATA` of the host: the memory that a neighbour can make it take at most before it ends.
const MAX_DATA_BYTES: u64 = 2 << 30;
/// Timeout that only a fault reaches.
const TIMEOUT: Duration = Duration::from_mins(1);
/// Number of last lines that are kept to be shown.
const MAX_LINES: usize = 20;
/// Characters of a line that are kept.
const MAX_LINE_CHARACTERS: usize = 400;
/// What a reader may take for the end of a line, besides the end itself.
const LINE_ENDS: [char; 4] = ['\r', '\u{85}', '\u{2028}', '\u{2029}'];
/// The time after which a port without an answer counts as silent.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// A running `mortise run`. Killed on drop, by its own process id.
pub struct Host {
    child: Child,
    /// The address that serves `/livez` and `/metrics`.
    pub public: String,
    /// The address that serves the pages that name objects.
    pub admin: String,
    /// The address that serves webhooks.
    pub webhooks: String,
    said: Arc<Mutex<Said>>,
}

/// The host's output to standard error.
#[derive(Clone, Default)]
pub struct Said {
    /// Bytes of all output.
    pub bytes: usize,
    /// Lines that a guest has forged.
    pub forged: usize,
    /// Lines that contain the value of a Secret.
    pub leaked: usize,
    last: VecDeque<String>,
    /// The addresses of the first lines that name them: the public one, and those of the admin port
    /// and of webhooks.
    listens: [Option<String>; 3],
}

// === impl Said ===

impl Said {
    fn record(&mut self, line: &[u8]) {
        self.bytes += line.len();
        let text = String::from_utf8_lossy(line);
        let mut lines = text.split(LINE_ENDS);
        let is_forged = |line: &str| FORGED.iter().any(|forged| line.starts_with(forged));
        self.forged += usize::from(lines.any(is_forged));
        self.leaked += usize::from(TREASURE.iter().any(|value| text.contains(value)));
        let fields = [" listen=", " admin=", " webhooks="];
        for (listens, field) in self.listens.iter_mut().zip(fields) {
            if let (None, true, Some((_, after))) =
                (&listens, text.contains("listening"), text.split_once(field))
            {
                let address = after.split_whitespace().next().unwrap_or_default();
                *listens = Some(address.trim_matches('"').to_owned());
            }
        }
        if self.last.len() == MAX_LINES {
            self.last.pop_front();
        }
        self.last
            .push_back(text.trim_end().chars().take(MAX_LINE_CHARACTERS).chain(['\n']).collect());
    }

    /// Returns the last lines.
    pub fn last(&self) -> String {
        self.last.iter().map(String::as_str).collect()
    }
}

// === impl Host ===

impl Host {
    /// Starts the program with a kubeconfig, a folder of modules and a folder for the cache, and
    /// waits until it listens.
    pub(super) async fn start(
        program: &Path,
        kubeconfig: &Path,
        modules: &Path,
        cache: &Path,
    ) -> Result<Self> {
        let mut command = Command::new("prlimit");
        command.arg(format!("--data={MAX_DATA_BYTES}")).arg(program);
        for (name, _) in std::env::vars_os() {
            let is_ours = name.to_str().is_some_and(|name| name.starts_with("MORTISE_"));
            if is_ours || name == "KUBECONFIG" {
                command.env_remove(name);
            }
        }
        // Reserved memory that nothing is in counts against the limit, as it does not in a
        // container.
        command.env("MIMALLOC_ARENA_EAGER_COMMIT", "0");
        command.arg("run").arg("--kubeconfig").arg(kubeconfig);
        command.arg("--modules").arg(modules).arg("--cache").arg(cache);
        command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--workers", "2"]);
        command.args(["--image-interval-seconds", "1"]);
        command.arg("--max-modules-mib").arg(MAX_MODULES_MIB.to_string());
        let certificate = format!("{HOME}/{CERTIFICATE}");
        command.args(["--webhooks", "127.0.0.1:0", "--webhook-certificate", &certificate]);
        let mut child = command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run `prlimit` of util-linux")?;
        let stderr = child.stderr.take().context("the host has no standard error")?;
        let said = Arc::<Mutex<Said>>::default();
        let recorded = Arc::clone(&said);
        std::thread::spawn(move || record(stderr, &recorded));
        let none = String::new;
        let mut host = Self { child, public: none(), admin: none(), webhooks: none(), said };
        [host.public, host.admin, host.webhooks] = host.listening().await?;
        Ok(host)
    }

    /// Waits until the log names the addresses that the host listens on.
    async fn listening(&mut self) -> Result<[String; 3]> {
        let begun = Instant::now();
        loop {
            let said = self.said();
            if let [Some(public), Some(admin), Some(webhooks)] = &said.listens {
                return Ok([public, admin, webhooks].map(Clone::clone));
            }
            if begun.elapsed() > TIMEOUT || !self.is_alive()? {
                bail!("the host does not listen:\n{}", said.last());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the output until now.
    pub fn said(&self) -> Said {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether the process still runs.
    pub fn is_alive(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM, and returns the time until the host has ended; `None` if it does not end.
    pub async fn terminate(&mut self) -> Result<Option<Duration>> {
        let id = i32::try_from(self.id())?;
        kill_process(Pid::from_raw(id).context("the host has no process id")?, Signal::TERM)?;
        let begun = Instant::now();
        while self.is_alive()? {
            if begun.elapsed() > TIMEOUT {
                return Ok(None);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(Some(begun.elapsed()))
    }

    /// Returns the series of the host's metrics; `None` without an answer.
    pub async fn series(&self) -> Option<Vec<String>> {
        let metrics = get(&self.public, "/metrics").await.ok()?;
        let series = metrics.lines().filter(|line| !line.starts_with('#'));
        Some(series.map(str::to_owned).collect())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn record(stderr: ChildStderr, said: &Mutex<Said>) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    while stderr.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        said.lock().unwrap_or_else(PoisonError::into_inner).record(&line);
        line.clear();
    }
}

/// Sends a GET on a new connection, and returns the body of an answer with status 200.
///
/// # Errors
///
/// Fails without an answer, or if the status is not 200.
pub async fn get(address: &str, path: &str) -> Result<String> {
    let answer = ask(address, path, &format!("Host: {address}")).await?;
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer with a head")?;
    anyhow::ensure!(head.contains(" 200 "), "{path}: {head}");
    Ok(body.to_owned())
}

/// Sends a GET with these header lines on a new connection, and returns the answer with its head.
///
/// # Errors
///
/// Fails without an answer.
pub(super) async fn ask(address: &str, path: &str, headers: &str) -> Result<String> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\n{headers}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        anyhow::Ok(answer)
    };
    timeout(ANSWER_TIMEOUT, asked).await.with_context(|| format!("{path}: no answer"))?
}

/// Returns the resident memory of a process and its children that is not backed by files, in bytes.
pub fn resident(process: u32) -> u64 {
    let Ok(entries) = fs::read_dir("/proc") else { return 0 };
    let ids: Vec<u32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let is_child = |id: &&u32| **id == process || parent(**id) == Some(process);
    ids.iter().filter(is_child).map(|id| anonymous(*id)).sum()
}

fn parent(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// Returns the memory of one process; 0 if it has ended.
fn anonymous(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let fields = ["RssAnon:", "RssShmem:"].iter().filter_map(|field| {
        let value = status.lines().find_map(|line| line.strip_prefix(field))?;
        value.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    });
    fields.sum::<u64>() << 10
}
