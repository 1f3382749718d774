//! A real registry, Debian's `docker-registry`, on a free port of this machine: with TLS and a
//! password.

#[expect(
    clippy::return_self_not_must_use,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "it is written for tests, those of the registry's client too"
)]
#[path = "../../host/src/oci/tests/fake.rs"]
pub mod fake;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mortise_host::{
    oci::{
        Digest, Options, Registries,
        artifact::{Annotations, Artifact, Descriptor, LAYER},
    },
    operator::ImageOptions,
};
use serde_json::json;
use tempfile::TempDir;

use self::fake::Fake;
use crate::tool;

/// The user of the registry, and the password.
pub const USER: (&str, &str) = ("user", "secret");
/// The hash of the password (bcrypt).
const PASSWORDS: &str = "user:$2y$04$grYn8uT7QSuiVpBG8egFtumKrOGca7At9z3.S8RrKNATBFSsJWrLG\n";
const CERTIFICATE: &str = include_str!("../../host/src/oci/tests/tls/server.pem");
const KEY: &str = include_str!("../../host/src/oci/tests/tls/server.key");
const AUTHORITY: &str = include_str!("../../host/src/oci/tests/tls/ca.pem");
const PROGRAM: &str = "docker-registry";

/// A registry that runs. It is ended when this is dropped.
pub struct Registry {
    process: Child,
    folder: TempDir,
    port: u16,
}

// === impl Fake ===

impl Fake {
    /// Stores a component in a repository under a tag, and returns the digest of its manifest.
    ///
    /// # Panics
    ///
    /// Panics if the component is no part of an artifact.
    pub fn push_to(&self, repository: &str, tag: &str, component: &[u8]) -> Digest {
        let layer = Descriptor::of(LAYER, component);
        let artifact = Artifact::build(layer, (Vec::new(), Vec::new()), Annotations::new());
        let artifact = artifact.expect("a component fits into an artifact");
        self.put_blob(component);
        self.put_blob(&artifact.config);
        self.put_manifest(repository, tag, &artifact.manifest)
    }
}

// === impl Registry ===

impl Registry {
    /// Starts a registry; `None` if the program is not on the PATH, which is said as
    /// [`tool::is_there`] does.
    ///
    /// # Panics
    ///
    /// Panics if the registry does not start, and if the program is missing and
    /// [`tool::VARIABLE`] requires it.
    pub fn start(tests: &str) -> Option<Self> {
        if !tool::is_there(PROGRAM, tests) {
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| fs::write(at(name), text).expect("a writable folder");
        write("server.pem", CERTIFICATE);
        write("server.key", KEY);
        write("ca.pem", AUTHORITY);
        write("passwords", PASSWORDS);
        let config = json!({
            "version": "0.1",
            "log": {"level": "info", "accesslog": {"disabled": true}},
            "storage": {"filesystem": {"rootdirectory": at("data")}, "delete": {"enabled": true}},
            "auth": {"htpasswd": {"realm": "tests", "path": at("passwords")}},
            "http": {
                "addr": "127.0.0.1:0",
                "tls": {"certificate": at("server.pem"), "key": at("server.key")},
            },
        });
        write("config.yml", &config.to_string());
        let mut process = Command::new(PROGRAM)
            .arg("serve")
            .arg(at("config.yml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the registry starts");
        let port = port(&mut process);
        write("config.json", &docker_config(&format!("127.0.0.1:{port}")).to_string());
        Some(Self { process, folder, port })
    }

    /// Returns host and port.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the file with the certificate of the authority that has signed the registry's own.
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Returns the folder of a Docker configuration file with the password.
    pub fn docker_config(&self) -> PathBuf {
        self.folder.path().to_owned()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns a Docker configuration with the password for a registry.
pub fn docker_config(host: &str) -> serde_json::Value {
    let auth = STANDARD.encode(format!("{}:{}", USER.0, USER.1));
    json!({"auths": {host: {"auth": auth}}})
}

/// Reads the port from the line in which the registry names it.
fn port(process: &mut Child) -> u16 {
    let stderr = process.stderr.take().expect("standard error is a pipe");
    let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
    let port = lines.find_map(|line| {
        let (_, rest) = line.split_once("listening on 127.0.0.1:")?;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    });
    // It goes on writing, and must not wait for a reader.
    std::thread::spawn(move || lines.for_each(drop));
    port.expect("the registry says where it listens")
}

/// Returns the options of a host that has no folder for modules from registries.
///
/// # Panics
///
/// Never: there is nothing in the options that could be wrong.
pub fn none() -> ImageOptions {
    ImageOptions {
        registries: Registries::build(Options::default()).expect("the default options are valid"),
        store: None,
        interval: Duration::from_mins(5),
        policy: None,
    }
}
