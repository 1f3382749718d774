//! The program `mortise` and a real registry, Debian's, with TLS and a password; `mortise run` and
//! a registry of the tests' own.

mod run;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use mortise::{args::RegistryClientArgs, registry::RegistryClient};
use mortise_host::{
    args::RegistryArgs,
    oci::{
        Reference,
        artifact::{Annotations, annotation},
    },
};
use mortise_tests::{
    guest,
    registry::{Registry, docker_config, fake},
};
use serde_json::{Value, json};

const TESTS: &str = "the tests of it::registry";
/// The recorded key of cosign, and its password.
pub(crate) const KEY: &str = "host/src/oci/signature/recorded/cosign.key";
pub(crate) const PUBLIC: &str = "host/src/oci/signature/recorded/cosign.pub";
const OTHER: &str = "host/src/oci/signature/recorded/other.pub";
pub(crate) const PASSWORD: &str = "mortise";
/// The annotation with the permissions that a processor declares.
const PERMISSIONS: &str = "dev.mortise.permissions";

/// A registry, and a folder for the files of `mortise`, which is started with access to it.
pub(crate) struct Setup {
    pub(crate) registry: Registry,
    pub(crate) folder: tempfile::TempDir,
}

/// What a command has printed.
#[derive(Debug)]
pub(crate) struct Said {
    code: Option<i32>,
    pub(crate) out: String,
    error: String,
}

impl Setup {
    /// Starts a registry; `None` where there is no program for it.
    pub(crate) fn open(tests: &str) -> Option<Self> {
        let registry = Registry::start(tests)?;
        Some(Self { registry, folder: tempfile::tempdir().unwrap() })
    }

    pub(crate) fn reference(&self, name: &str) -> String {
        format!("{}/{name}", self.registry.host())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mortise-tested"));
        command
            .args(arguments)
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap())
            .env("MORTISE_REGISTRY_CA", self.registry.authority())
            .env("MORTISE_CACHE", self.folder.path().join("cache"))
            .env("DOCKER_CONFIG", self.registry.docker_config())
            .env("COSIGN_PASSWORD", PASSWORD);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        said(&mut self.command(arguments))
    }

    /// Runs a command that succeeds; returns what it printed.
    pub(crate) fn well(&self, arguments: &[&str]) -> String {
        self.run(arguments).well()
    }

    /// Adds a Docker credential helper: a shell script with this body.
    fn add_helper(&self, name: &str, body: &str) {
        let (source, program) = (self.path("source"), format!("docker-credential-{name}"));
        std::fs::write(&source, format!("#!/bin/sh\n{body}\n")).unwrap();
        // Written by another process: a program that a fork of this one has open for writing cannot
        // be started.
        let mut install = Command::new("install");
        install.args(["-m", "755", &source, &self.path(&program)]);
        assert!(install.status().unwrap().success());
    }

    /// Pulls an artifact with this Docker configuration file, and the helpers of this folder.
    fn pull_with(&self, config: &Value, reference: &str) -> Said {
        std::fs::write(self.path("config.json"), config.to_string()).unwrap();
        let (folder, others) = (self.folder.path(), std::env::var("PATH").unwrap());
        let mut command = self.command(&["pull", reference, "-o", &self.path("pulled.wasm")]);
        command.env("DOCKER_CONFIG", folder).env("PATH", format!("{}:{others}", folder.display()));
        said(&mut command)
    }

    /// Returns the annotations of an artifact, as they are in the registry.
    fn annotations(&self, reference: &str) -> Annotations {
        let registry_ca = Some(self.registry.authority());
        let registry = RegistryArgs { registry_ca, ..RegistryArgs::default() };
        let docker_config = Some(self.registry.docker_config());
        let client = RegistryClient::open(&RegistryClientArgs { registry, docker_config }).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let reference: Reference = reference.parse().unwrap();
        runtime.block_on(client.pull(&reference)).unwrap().annotations
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }
}

impl Said {
    fn well(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    /// The one line that says what is wrong.
    pub(crate) fn line(self) -> String {
        assert_eq!(self.code, Some(1), "{self:?}");
        assert_eq!(self.error.trim_end().lines().count(), 1, "{self:?}");
        self.error
    }
}

fn said(command: &mut Command) -> Said {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code(), out: text(output.stdout), error: text(output.stderr) }
}

fn module(folder: &str) -> PathBuf {
    guest(folder).unwrap()
}

#[test]
fn a_pushed_module_can_be_pulled_and_inspected() {
    let Some(setup) = Setup::open(TESTS) else { return };
    let (file, reference) = (module("guests/secret-copy"), setup.reference("team/secret-copy:1"));
    let file = file.to_str().unwrap();
    let pushed =
        setup.well(&["push", file, &reference, "--description", "copies", "--revision", "abc"]);
    let digest = pushed.trim().strip_prefix(&format!("{reference}@")).unwrap().to_owned();
    assert_eq!(
        setup.well(&["push", file, &reference, "--description", "copies", "--revision", "abc"]),
        pushed
    );

    let pulled = setup.path("pulled.wasm");
    let by_digest = setup.reference(&format!("team/secret-copy@{digest}"));
    for reference in [&reference, &by_digest] {
        let said = setup.well(&["pull", reference, "-o", &pulled]);
        assert!(said.contains(&digest), "{said}");
        assert_eq!(std::fs::read(&pulled).unwrap(), std::fs::read(file).unwrap());
        std::fs::remove_file(&pulled).unwrap();
    }
    let inspection: Value =
        serde_json::from_str(&setup.well(&["inspect", &reference, "-o", "json"])).unwrap();
    assert_eq!(inspection["name"], "secret-copy");
    assert_eq!(inspection["image"]["reference"], pushed.trim());
    let annotations = &inspection["image"]["annotations"];
    assert_eq!(annotations["org.opencontainers.image.description"], "copies");
    assert_eq!(annotations["org.opencontainers.image.revision"], "abc");
    assert_eq!(annotations["org.opencontainers.image.title"], "secret_copy.wasm");
    let pushed_with = setup.annotations(&reference);
    let permissions: Value = serde_json::from_str(&pushed_with[PERMISSIONS]).unwrap();
    assert_eq!(permissions["reconciles"][0]["kind"], "SecretCopy");
    assert_eq!(permissions["reconciles"][0], inspection["reconcilers"][0]["of"]);
    for declared in ["reads", "writes"] {
        let all = permissions[declared].as_array().unwrap();
        assert!(!all.is_empty() && permissions[declared] == inspection[declared], "{declared}");
    }
    assert_eq!(permissions["grants"].as_array().unwrap().len(), 0);
    let roles = setup.well(&["inspect", &reference, "--rbac", "--crds", "crds/copy.mortise.dev"]);
    assert!(roles.contains("resources:\n  - secrets"), "{roles}");

    // A library has no processor, and is pushed all the same.
    let shout = module("tests/guests/shout");
    let reference = setup.reference("team/shout:1");
    setup.well(&["push", shout.to_str().unwrap(), &reference]);
    assert_eq!(setup.annotations(&reference).get(PERMISSIONS), None);
}

#[test]
fn a_folder_with_a_mortise_toml_is_built_and_pushed_with_its_libraries() {
    let Some(setup) = Setup::open(TESTS) else { return };
    let announce = module("tests/guests/announce");
    let folder = setup.folder.path().join("announcer");
    std::fs::create_dir(&folder).unwrap();
    std::fs::copy(&announce, folder.join("source.wasm")).unwrap();
    std::fs::copy(module("tests/guests/shout"), folder.join("shout.wasm")).unwrap();
    let save = |build: &str| {
        let library = "interface = 'example:shouting/shout@1.0.0'\npath = 'shout.wasm'\n";
        let keys = format!("component = 'announcer.wasm'\nbuild = {build}\n");
        let text = format!("{keys}[[libraries]]\n{library}");
        std::fs::write(folder.join("mortise.toml"), text).unwrap();
    };
    let folder = folder.to_str().unwrap();
    let push = |reference: &str| setup.run(&["push", folder, reference, "--revision", "abc"]);
    let (reference, next) =
        (setup.reference("team/announcer:1"), setup.reference("team/announcer:2"));
    save("['cp', 'source.wasm', 'announcer.wasm']");
    let pushed = push(&reference).well();
    assert!(pushed.starts_with(&format!("{reference}@sha256:")), "{pushed}");
    let pulled = setup.path("pulled.wasm");
    setup.well(&["pull", &reference, "-o", &pulled]);
    assert_eq!(std::fs::read(&pulled).unwrap(), std::fs::read(&announce).unwrap());
    let annotations = setup.annotations(&reference);
    assert_eq!(annotations[annotation::TITLE], "announcer.wasm");
    assert_eq!(annotations[annotation::VERSION], "1.0.0", "only its library says that");
    assert!(annotations.contains_key(PERMISSIONS), "{annotations:?}");

    save("['false']");
    let line = push(&next).line();
    assert!(line.contains("is not built: `false` failed"), "{line}");
    let line = setup.run(&["pull", &next]).line();
    assert!(line.contains("answers 404 to GET manifests/2"), "nothing is pushed: {line}");
}

#[test]
fn failed_pushes_and_pulls_are_reported_in_one_line() {
    let Some(setup) = Setup::open(TESTS) else { return };
    let (file, reference) = (module("tests/guests/idle"), setup.reference("team/idle:1"));
    let file = file.to_str().unwrap();
    let stranger = |arguments: &[&str]| {
        let nobody = setup.folder.path().join("nobody");
        said(setup.command(arguments).env("DOCKER_CONFIG", nobody)).line()
    };
    let line = stranger(&["push", file, &reference]);
    assert!(line.contains(&format!("cannot push `{reference}`")), "{line}");
    assert!(line.contains("it asks for credentials, and there are none for it"), "{line}");
    let line = stranger(&["pull", &reference]);
    assert!(line.contains(&format!("cannot pull `{reference}`")), "{line}");
    let line = setup.run(&["pull", &reference]).line();
    assert!(line.contains("answers 404 to GET manifests/1 (MANIFEST_UNKNOWN"), "{line}");
    let line = said(setup.command(&["pull", &reference]).env_remove("MORTISE_REGISTRY_CA")).line();
    assert!(line.contains("does not answer: invalid peer certificate"), "{line}");
    let digest = format!("sha256:{}", "0".repeat(64));
    let line = setup.run(&["push", file, &setup.reference(&format!("a@{digest}"))]).line();
    assert!(
        line.contains("names a digest, which follows from what is pushed: name a tag"),
        "{line}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn https_proxy_and_no_proxy_apply_to_requests_to_registries() {
    let (registry, folder) = (fake::Fake::tls().await, tempfile::tempdir().unwrap());
    let proxy = fake::Proxy::start(registry.host()).await;
    registry.push_to("team/idle", "1", &std::fs::read(module("tests/guests/idle")).unwrap());
    let (authority, pulled) = (folder.path().join("ca.pem"), folder.path().join("pulled.wasm"));
    std::fs::write(&authority, fake::AUTHORITY).unwrap();
    let image = format!("{}/team/idle:1", registry.alias());
    // Nothing is asked of the proxy before the second command.
    for (excepted, is_by_proxy) in [(fake::ALIAS, false), ("example.com", true)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mortise-tested"));
        command
            .args(["pull", &image, "-o"])
            .arg(&pulled)
            .env("MORTISE_REGISTRY_CA", &authority)
            .env("DOCKER_CONFIG", folder.path())
            .env("HTTPS_PROXY", format!("http://{}", proxy.host()))
            .env("NO_PROXY", excepted);
        tokio::task::block_in_place(|| said(&mut command)).well();
        let asked = proxy.asked();
        assert_eq!(!asked.is_empty(), is_by_proxy, "{excepted}: {asked:?}");
    }
}

#[test]
fn credentials_come_from_the_helper_that_docker_names() {
    let Some(setup) = Setup::open(TESTS) else { return };
    let (host, reference) = (setup.registry.host(), setup.reference("team/idle:1"));
    setup.well(&["push", module("tests/guests/idle").to_str().unwrap(), &reference]);
    let given = r#"echo '{"ServerURL": "x", "Username": "user", "Secret": "secret"}'"#;
    let is_asked = format!(r#"[ "$1" = get ] && [ "$(cat)" = {host} ]"#);
    setup.add_helper("knows", &format!("{is_asked} && {given}"));
    let not_found = "echo 'credentials not found in native keychain'; exit 1";
    setup.add_helper("lacks", &format!("cat > /dev/null; {not_found}"));
    // Neither reads what it is asked.
    setup.add_helper("fails", "echo 'the keychain is locked'; exit 1");
    setup.add_helper("babbles", "echo secret");

    let own = docker_config(&host)["auths"].clone();
    let suffices = [
        json!({"credHelpers": {&host: "knows"}, "credsStore": "absent"}),
        json!({"credHelpers": {"other.example.com": "absent"}, "credsStore": "knows"}),
        json!({"credHelpers": {"other.example.com": "absent"}, "auths": own}),
        json!({"credHelpers": {&host: "lacks"}, "auths": own}),
    ];
    for config in suffices {
        let said = setup.pull_with(&config, &reference);
        assert_eq!(said.code, Some(0), "{config}: {said:?}");
    }
    let cases = [
        ("absent", "`docker-credential-absent`, which Docker's configuration file names: No such"),
        ("fails", "`docker-credential-fails`, which Docker's configuration file names, fails: the"),
        ("babbles", "`docker-credential-babbles`, which Docker's configuration file names, prints"),
        ("lacks", "it asks for credentials, and there are none for it"),
    ];
    for (helper, expected) in cases {
        for config in [json!({"credHelpers": {&host: helper}}), json!({"credsStore": helper})] {
            let line = setup.pull_with(&config, &reference).line();
            assert!(line.contains(&format!("cannot pull `{reference}`: ")), "{line}");
            assert!(line.contains(expected) && !line.contains("secret"), "{line}");
        }
    }
}

#[test]
fn diff_shows_the_additional_permissions_of_the_second_module() {
    let Some(setup) = Setup::open(TESTS) else { return };
    let (idle, copy) = (module("tests/guests/idle"), module("guests/secret-copy"));
    let reference = setup.reference("team/idle:1");
    setup.well(&["push", idle.to_str().unwrap(), &reference]);
    let crds = ["--crds", "crds/copy.mortise.dev"];
    let diff = |before: &str, after: &str, rest: &[&str]| {
        setup.run(&[&["diff", before, after][..], &crds, rest].concat())
    };
    let same = diff(&reference, idle.to_str().unwrap(), &[]).well();
    assert_eq!(same.matches("  as before").count(), 5, "{same}");
    let more = diff(&reference, copy.to_str().unwrap(), &[]);
    assert_eq!(more.code, Some(5), "{more:?}");
    for line in [
        "+ - {\"apiGroups\":[\"\"],\"resources\":[\"secrets\"]",
        "+ SecretCopy copy.mortise.dev/v1",
        "- ConfigMap v1",
        "  mortise:host@0.1.0 as before",
    ] {
        assert!(more.out.contains(line), "{line} is missing in:\n{}", more.out);
    }
    let json = diff(&reference, copy.to_str().unwrap(), &["-o", "json"]);
    let difference: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(difference["asksForMore"], true);
    assert_eq!(difference["less"]["reconciles"][0], "ConfigMap v1");
    let fewer = diff(copy.to_str().unwrap(), &reference, &[]);
    assert_eq!(fewer.code, Some(5), "it reconciles another kind: {fewer:?}");
}

#[test]
fn signatures_are_verified_in_a_registry_and_beside_a_file() {
    let Some(setup) = Setup::open(TESTS) else { return };
    let idle = module("tests/guests/idle");
    let file = setup.path("idle.wasm");
    std::fs::copy(idle, &file).unwrap();
    let reference = setup.reference("team/idle:1");
    let pushed = setup.well(&["push", &file, &reference]);
    for what in [&reference, &file] {
        let line = setup.run(&["verify", what, "--key", PUBLIC]).line();
        assert!(line.contains("it has no signature; one by a key of these"), "{line}");
    }
    for format in ["bundle", "tag"] {
        assert_eq!(setup.well(&["sign", &reference, "--key", KEY, "--format", format]), pushed);
        assert_eq!(
            setup.well(&["sign", &file, "--key", KEY, "--format", format]).trim(),
            format!("{file}.sig")
        );
        for what in [&reference, &file] {
            let said = setup.well(&["verify", what, "--key", OTHER, "--key", PUBLIC]);
            assert!(said.contains("is signed by "), "{said}");
            let line = setup.run(&["verify", what, "--key", OTHER]).line();
            assert!(line.contains("by none of the keys"), "{line}");
        }
    }
    std::fs::write(&file, "other bytes").unwrap();
    setup.run(&["verify", &file, "--key", PUBLIC]).line();
    let line =
        said(setup.command(&["sign", &file, "--key", KEY]).env("COSIGN_PASSWORD", "x")).line();
    assert!(line.contains("the password of the key is wrong: set COSIGN_PASSWORD"), "{line}");
    let line = setup.run(&["sign", &file, "--key", PUBLIC]).line();
    assert!(line.contains("it holds no private key in PKCS #8"), "{line}");
}
