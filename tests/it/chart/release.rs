//! `deploy/release`: with programs that stand for built ones everything but the two builds, and in
//! an ignored test all of it.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use mortise_tests::tool;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use walkdir::WalkDir;

use super::{HOST, Helm, PROCESSOR, read};
use crate::registry::{KEY, PASSWORD, PUBLIC, Setup};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The architectures, and how a program's header names them.
const ARCHITECTURES: [(&str, u8); 2] = [("amd64", 0x3e), ("arm64", 0xb7)];

/// A place for releases, with Helm.
struct Bench {
    helm: Helm,
    folder: TempDir,
}

// === impl Bench ===

impl Bench {
    /// Returns `None` without Go.
    fn open() -> Option<Self> {
        let helm = Helm::open()?;
        symlink(&helm.program, helm.home.path().join("helm")).unwrap();
        Some(Self { helm, folder: tempfile::tempdir().unwrap() })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file that begins as a program of an architecture does.
    fn program(&self, architecture: &str, machine: u8) -> String {
        let mut header = b"\x7fELF\x02\x01\x01".to_vec();
        header.resize(64, 0);
        header[18] = machine;
        let path = self.path(architecture);
        fs::write(&path, header).unwrap();
        format!("{architecture}={}", path.display())
    }

    /// Makes a release in a folder of this name, in a process with these permissions for new files.
    fn release(&self, name: &str, umask: &str, arguments: &[String]) -> Output {
        let mut path = vec![self.helm.home.path().to_owned()];
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let script = format!("umask {umask}; exec deploy/release \"$@\"");
        let mut command = Command::new("bash");
        command.args(["-c", &script, "bash"]).args(arguments).arg(self.path(name));
        command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
        command.env("CARGO_TARGET_DIR", self.path("target"));
        command.env("PATH", std::env::join_paths(path).unwrap()).output().unwrap()
    }

    /// Makes a release of programs and a module that stand for built ones.
    #[track_caller]
    fn of_test_build(&self, name: &str, umask: &str) -> PathBuf {
        fs::write(self.path("secret_copy.wasm"), "a module").unwrap();
        self.of_modules(name, umask, &[self.path("secret_copy.wasm")])
    }

    /// Makes a release of programs that stand for built ones, and of these modules.
    #[track_caller]
    fn of_modules(&self, name: &str, umask: &str, modules: &[PathBuf]) -> PathBuf {
        let mut arguments = Vec::new();
        for (architecture, machine) in ARCHITECTURES {
            arguments.extend(["--program".to_owned(), self.program(architecture, machine)]);
        }
        for module in modules {
            arguments.extend(["--module".to_owned(), module.display().to_string()]);
        }
        succeeded(&self.release(name, umask, &arguments));
        self.path(name)
    }
}

impl Bench {
    /// Publishes with the programs of the tests, and with the password of the registry.
    fn publish(&self, setup: &Setup, arguments: &[&str]) -> Output {
        let home = self.helm.home.path();
        let program = home.join("mortise");
        if !program.exists() {
            symlink(env!("CARGO_BIN_EXE_mortise-tested"), program).unwrap();
        }
        let mut path = vec![home.to_owned()];
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let mut command = Command::new("deploy/publish");
        command.arg("--registry-ca").arg(setup.registry.authority()).args(arguments);
        command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
        command.env("DOCKER_CONFIG", setup.registry.docker_config());
        command.env("COSIGN_PASSWORD", PASSWORD).env("MORTISE_CACHE", self.path("cache"));
        command.env("PATH", std::env::join_paths(path).unwrap()).output().unwrap()
    }
}

#[track_caller]
fn succeeded(output: &Output) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {error}", output.status);
}

/// Returns the files in a folder by their paths within it.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = WalkDir::new(folder).into_iter().map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_type().is_file()).map(|entry| {
        let name = entry.path().strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
        (name, fs::read(entry.path()).unwrap())
    });
    files.collect()
}

fn sha256(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

/// Returns the content that a descriptor names, after a look at its digest and its size.
fn blob(files: &BTreeMap<String, Vec<u8>>, descriptor: &Value) -> Vec<u8> {
    let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    let content = &files[&format!("image/blobs/sha256/{digest}")];
    assert_eq!(sha256(content), digest);
    assert_eq!(descriptor["size"], content.len());
    content.clone()
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// Unpacks the only layer of an image's manifest, and returns its files.
fn unpacked(files: &BTreeMap<String, Vec<u8>>, manifest: &Value) -> TempDir {
    let [layer] = manifest["layers"].as_array().unwrap().as_slice() else { panic!("one layer") };
    let root = tempfile::tempdir().unwrap();
    let archive = root.path().with_extension("tar.gz");
    fs::write(&archive, blob(files, layer)).unwrap();
    let tar = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(root.path()).output();
    succeeded(&tar.unwrap());
    fs::remove_file(archive).unwrap();
    root
}

// === tests ===

#[test]
fn a_release_has_the_same_bytes_again_and_their_digests() {
    let Some(bench) = Bench::open() else { return };
    let (first, second) =
        (bench.of_test_build("first", "022"), bench.of_test_build("second", "077"));
    let (first, second) = (files(&first), files(&second));
    let names: Vec<&String> = first.keys().collect();
    assert_eq!(names, second.keys().collect::<Vec<_>>());
    let differing: Vec<_> = names.iter().filter(|name| first[**name] != second[**name]).collect();
    assert!(differing.is_empty(), "{differing:?}");

    let sums = String::from_utf8(first["SHA256SUMS"].clone()).unwrap();
    let stated: BTreeMap<&str, &str> = sums
        .lines()
        .map(|line| line.split_once("  ").unwrap())
        .map(|(sum, name)| (name, sum))
        .collect();
    let is_stated = |(name, content): (&String, &Vec<u8>)| {
        name == "SHA256SUMS" || stated.get(&**name) == Some(&&*sha256(content))
    };
    assert!(first.iter().all(is_stated), "{sums}");
    assert_eq!(stated.len(), first.len() - 1);
}

#[test]
fn the_image_is_one_program_for_each_architecture() {
    let Some(bench) = Bench::open() else { return };
    let files = files(&bench.of_test_build("release", "022"));
    let named = json(&files["image/index.json"]);
    let [index] = named["manifests"].as_array().unwrap().as_slice() else { panic!("one index") };
    assert_eq!(index["annotations"]["org.opencontainers.image.ref.name"], VERSION);
    let index = json(&blob(&files, index));
    let manifests = index["manifests"].as_array().unwrap();
    assert_eq!(manifests.len(), ARCHITECTURES.len());
    for (descriptor, (architecture, _)) in manifests.iter().zip(ARCHITECTURES) {
        assert_eq!(descriptor["platform"]["architecture"], architecture);
        let manifest = json(&blob(&files, descriptor));
        let config = json(&blob(&files, &manifest["config"]));
        assert_eq!(config["architecture"], architecture);
        assert_eq!(config["config"]["Entrypoint"][0], "/mortise-host");
        assert_eq!(config["config"]["User"], "65532:65532", "Kubernetes sees that it is not root");
        assert_eq!(config.get("created"), None);
        let root = unpacked(&files, &manifest);
        let program = root.path().join("mortise-host");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "nothing else");
        assert_eq!(fs::metadata(&program).unwrap().permissions().mode() & 0o7777, 0o755);
        let name = format!("mortise-host-{VERSION}-linux-{architecture}");
        assert_eq!(fs::read(program).unwrap(), files[&name]);
    }
}

#[test]
fn skopeo_copies_the_image_as_it_is() {
    if !tool::is_there("skopeo", "the test of it::chart::release that copies an image") {
        return;
    }
    let Some(bench) = Bench::open() else { return };
    let release = bench.of_test_build("release", "022");
    let copy = bench.path("copy");
    let mut skopeo = Command::new("skopeo");
    skopeo.args(["copy", "--all", "--insecure-policy"]);
    skopeo.arg(format!("oci:{}/image:{VERSION}", release.display()));
    succeeded(&skopeo.arg(format!("oci:{}:{VERSION}", copy.display())).output().unwrap());
    assert_eq!(files(&release.join("image/blobs")), files(&copy.join("blobs")));
}

#[test]
fn a_release_is_put_into_a_registry_and_its_processors_are_signed() {
    const TESTS: &str = "the test of it::chart::release that publishes";
    if !tool::is_there("skopeo", TESTS) {
        return;
    }
    let (Some(bench), Some(setup)) = (Bench::open(), Setup::open(TESTS)) else { return };
    let guests = ["guests/secret-copy", "tests/guests/announce", "tests/guests/shout"];
    let modules = guests.map(|folder| mortise_tests::guest(folder).unwrap());
    let release = bench.of_modules("release", "022", &modules);
    let registry = setup.reference("team");
    let library = release.join("test-guest-shout.wasm").display().to_string();
    let library = format!("example:shouting/shout@1.0.0={library}");
    let publish = || {
        let arguments = ["--library", &library, release.to_str().unwrap(), &registry, KEY];
        bench.publish(&setup, &arguments)
    };
    let output = publish();
    succeeded(&output);
    let said = String::from_utf8(output.stdout).unwrap();
    let processors = ["secret-copy", "test-guest-announce", "test-guest-shout"];
    let processors = processors.map(|name| format!("processors/{name}"));
    let names = ["mortise", "charts/mortise", "charts/mortise-processor"].map(str::to_owned);
    let expected: Vec<String> = names.into_iter().chain(processors).collect();
    let expected = expected.iter().map(|name| format!("{registry}/{name}:{VERSION}"));
    let expected: Vec<String> = expected.collect();
    let lines: Vec<&str> = said.lines().map(|line| line.split('@').next().unwrap()).collect();
    assert_eq!(lines, expected);
    for reference in &expected[3..] {
        setup.well(&["verify", reference, "--key", PUBLIC]);
    }
    // An image is no component, whoever has signed it.
    let error = setup.run(&["verify", &expected[0], "--key", PUBLIC]).line();
    assert!(error.contains(&expected[0]) && error.contains("application/wasm"), "{error}");
    assert_eq!(String::from_utf8(publish().stdout).unwrap(), said, "the same digests again");
    // The registry gives out the image as it was made.
    let (copy, certificates) = (bench.path("copy"), bench.path("certificates"));
    fs::create_dir(&certificates).unwrap();
    fs::copy(setup.registry.authority(), certificates.join("ca.crt")).unwrap();
    let mut skopeo = Command::new("skopeo");
    skopeo.args(["copy", "--all", "--insecure-policy", "--src-cert-dir"]).arg(&certificates);
    skopeo.arg("--src-authfile").arg(setup.registry.docker_config().join("config.json"));
    skopeo.arg(format!("docker://{}", expected[0]));
    succeeded(&skopeo.arg(format!("oci:{}:{VERSION}", copy.display())).output().unwrap());
    assert_eq!(files(&release.join("image/blobs")), files(&copy.join("blobs")));

    // A release that was changed is not put there.
    fs::write(release.join("secret-copy.wasm"), "another").unwrap();
    let error = String::from_utf8(publish().stderr).unwrap();
    assert!(error.contains("are not those that were made"), "{error}");
    for (arguments, expected) in [
        ([".", &registry, KEY], ". is no release"),
        ([release.to_str().unwrap(), "https://a.example.com/b", KEY], "without a scheme"),
        ([release.to_str().unwrap(), &registry, "none"], "none cannot be read"),
    ] {
        let output = bench.publish(&setup, &arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn packaged_charts_render_the_same_as_their_folders() {
    let Some(bench) = Bench::open() else { return };
    let release = bench.of_test_build("release", "022");
    for (chart, name) in [(HOST, "mortise"), (PROCESSOR, "mortise-processor")] {
        let package = release.join(format!("{name}-{VERSION}.tgz"));
        let render = |chart: &str| {
            bench.helm.output(&[
                "template",
                "a",
                chart,
                "--set",
                if name == "mortise" { "replicas=1" } else { "spec.module.path=a.wasm" },
            ])
        };
        assert_eq!(render(package.to_str().unwrap()), render(chart));
    }
}

#[test]
fn the_packages_and_the_changes_are_listed() {
    let Some(bench) = Bench::open() else { return };
    let files = files(&bench.of_test_build("release", "022"));
    let components = json(&files["sbom.cdx.json"])["components"].clone();
    let components = components.as_array().unwrap();
    let lock = read("Cargo.lock");
    let (_, wasmtime) = lock.split_once("name = \"wasmtime\"\n").unwrap();
    let field = |name: &str| {
        let (_, rest) = wasmtime.split_once(&format!("{name} = \"")).unwrap();
        rest.split_once('"').unwrap().0
    };
    let found = components.iter().find(|component| component["name"] == "wasmtime").unwrap();
    assert_eq!(found["version"], field("version"));
    assert_eq!(found["hashes"][0]["content"], field("checksum"));
    let is_there = |name: &str| components.iter().any(|component| component["name"] == name);
    assert!(is_there("mortise-core") && !is_there("proptest"));

    let notes = String::from_utf8(files["NOTES.md"].clone()).unwrap();
    let section = format!("## {VERSION} (not released)\n\n{notes}");
    assert!(!notes.is_empty() && read("host/CHANGELOG.md").contains(&section), "{notes}");
    assert!(!notes.contains("\n## "));
}

#[test]
fn a_release_that_cannot_be_whole_is_not_there() {
    let Some(bench) = Bench::open() else { return };
    let [amd64, arm64] = ARCHITECTURES.map(|(name, machine)| bench.program(name, machine));
    let swapped = format!("amd64={}", arm64.split_once('=').unwrap().1);
    let owned = |arguments: &[&str]| -> Vec<String> {
        arguments.iter().map(|&argument| argument.to_owned()).collect()
    };
    let cases = [
        (owned(&["--program", &swapped, "--program", &arm64]), "is no program for amd64"),
        (owned(&["--program", &amd64, "--program", "arm=a"]), "expected amd64=FILE or arm64=FILE"),
        (owned(&["--version", "1"]), "--version: not known"),
        (owned(&["another"]), "expected one folder for the release, found 2 arguments"),
    ];
    for (arguments, expected) in cases {
        let output = bench.release("release", "022", &arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(expected), "{arguments:?}: {error}");
        assert!(!bench.path("release").exists(), "{arguments:?}");
    }
    fs::create_dir(bench.path("release")).unwrap();
    let output = bench.release("release", "022", &[]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("name a new folder"));
}

#[test]
fn a_former_program_does_not_stand_for_one_that_is_not_built() {
    let Some(bench) = Bench::open() else { return };
    let [amd64, arm64] = ARCHITECTURES.map(|(name, machine)| bench.program(name, machine));
    let former = bench.path("target/x86_64-unknown-linux-gnu/release");
    fs::create_dir_all(&former).unwrap();
    fs::copy(amd64.split_once('=').unwrap().1, former.join("mortise-host")).unwrap();
    let cargo = bench.helm.home.path().join("cargo");
    fs::write(&cargo, "#!/bin/sh\necho it does not compile >&2\nexit 101\n").unwrap();
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
    let output = bench.release("release", "022", &["--program".to_owned(), arm64]);
    assert!(!output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "it does not compile\n");
    assert!(!bench.path("release").exists());
}

/// `cargo test -p mortise-tests --test it -- --ignored --nocapture release::`
#[test]
#[ignore = "builds two release programs, which takes half an hour"]
fn programs_of_both_architectures_start() {
    let tests = "the test of it::chart::release that builds everything";
    if !["aarch64-linux-gnu-gcc", "qemu-aarch64-static"].iter().all(|of| tool::is_there(of, tests))
    {
        return;
    }
    let Some(bench) = Bench::open() else { return };
    succeeded(&bench.release("release", "022", &[]));
    for (architecture, starter) in [("amd64", None), ("arm64", Some("qemu-aarch64-static"))] {
        let program =
            bench.path("release").join(format!("mortise-host-{VERSION}-linux-{architecture}"));
        let mut command = Command::new(starter.map_or(program.as_os_str(), std::ffi::OsStr::new));
        command.args(starter.map(|_| &program)).args(["run", "--help"]);
        let output = command.output().unwrap();
        succeeded(&output);
        assert!(String::from_utf8_lossy(&output.stdout).contains("--modules"));
    }
}
