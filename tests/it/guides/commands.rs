//! The commands of the guides.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use Run::{By, Dev, Here, In, InRegistry, Like, New, Not};
use mortise_tests::{guest, tool};
use regex::Regex;
use rustix::process::{Pid, Signal, kill_process};

use super::{GUIDES, mortise, read, root};
use crate::registry::{KEY, PUBLIC, Setup};

/// The text before the arguments of `mortise` in the commands of a checkout.
const CARGO_RUN: &str = "cargo run -- ";
/// Timeout that only a fault reaches: a guest may have to be built.
const TIMEOUT: Duration = Duration::from_mins(10);
/// The folder of built guests in commands.
const RELEASE: &str = "target/wasm32-wasip2/release/";
/// The guest whose library is built with Go.
const ISTIO: &str = "guests/istio-installation";
/// The registry in commands.
const REGISTRY: &str = "registry.example.com";
/// The scripts that run commands. A test or a workflow runs each of them: the file, and its text.
const SCRIPTS: &[(&str, &str, &str)] = &[
    (".ci/run", ".github/workflows/ci.yml", "- run: .ci/run\n"),
    ("tests/whole-run", "tests/it/cluster/whole_run.rs", "run(\"whole-run\", "),
    ("tests/whole-run-registry", "tests/it/cluster/whole_run.rs", "run(\"whole-run-registry\", "),
    ("tests/whole-run.sh", "tests/whole-run", "\n. tests/whole-run.sh\n"),
    ("tests/whole-run.sh", "tests/whole-run-registry", "\n. tests/whole-run.sh\n"),
];

/// The way in which a command is run.
#[derive(Debug, PartialEq)]
enum Run {
    /// A test of this module runs `mortise`, which succeeds.
    Here,
    /// The same with a registry of the tests instead of the one in the command, and with a recorded
    /// key.
    InRegistry,
    /// A test of this module creates the guest, or runs the new guest.
    New,
    /// A test of this module starts this `mortise dev`.
    Dev,
    /// A test of this module runs kubectl while `mortise dev` runs this guest, in the order of the
    /// table.
    In(&'static str),
    /// This script or workflow runs it, word for word.
    By(&'static str),
    /// It is run with other paths or by its parts: these files hold these texts. One of the files
    /// is a test, a workflow, or one of the scripts.
    Like(&'static [(&'static str, &'static str)]),
    /// Nothing runs it, for this reason.
    Not(&'static str),
}

/// Every command of the guides that is in no block with a comment above it, which names what runs
/// the block.
const COMMANDS: &[(&str, Run)] = &[
    // README.md
    ("cargo run -- dev guests/api-rule", Dev),
    ("cargo test --workspace", By(".ci/run")),
    ("export KUBECONFIG=…", Not("tests of this module set the variable")),
    ("kubectl get apirules,virtualservices -A", In("guests/api-rule")),
    ("kubectl delete virtualservices -n shop --all", In("guests/api-rule")),
    ("kubectl edit apirule orders -n shop", In("guests/api-rule")),
    ("cargo install --path host/cli", Not("it installs into the user's home")),
    ("mortise new greeter", New),
    ("mortise dev greeter", New),
    ("mortise test guests/secret-copy", Here),
    (
        "mortise inspect target/wasm32-wasip2/release/secret_copy.wasm --rbac --service-account platform/secret-copy",
        Here,
    ),
    // deploy/README.md
    (
        "docker build -f deploy/Dockerfile -t mortise:0.1.0 .",
        Not("no container engine where the tests run"),
    ),
    ("kubectl apply --server-side -f guests/api-rule/examples", In("guests/api-rule")),
    ("kubectl get apirules,virtualservices -n shop", In("guests/api-rule")),
    ("cargo install --locked cargo-deny@0.18.3", By(".github/workflows/ci.yml")),
    (".ci/advisories", By(".github/workflows/ci.yml")),
    (
        "docker buildx imagetools inspect rust:1.95.0-slim-bookworm --format '{{.Manifest.Digest}}'",
        Not("no registry where the tests run"),
    ),
    ("mortise push guests/api-rule registry.example.com/team/api-rule:2.3.0", InRegistry),
    ("mortise sign registry.example.com/team/api-rule:2.3.0 --key cosign.key", InRegistry),
    ("mortise verify registry.example.com/team/api-rule:2.3.0 --key cosign.pub", InRegistry),
    (
        "mortise diff registry.example.com/team/api-rule:2.3.0 registry.example.com/team/api-rule:2.4.0",
        InRegistry,
    ),
    (
        "deploy/release target/release-0.1.0",
        Like(&[
            ("tests/it/chart/release.rs", r#"exec deploy/release \"$@\""#),
            ("tests/it/chart/release.rs", r#"succeeded(&bench.release("release", "022", &[]))"#),
        ]),
    ),
    (
        "deploy/publish target/release-0.1.0 registry.example.com/team cosign.key",
        Like(&[
            ("tests/it/chart/release.rs", r#"Command::new("deploy/publish")"#),
            ("tests/it/chart/release.rs", "release.to_str().unwrap(), &registry, KEY]"),
        ]),
    ),
    (
        "kubectl scale deployment api-gateway-controller-manager -n kyma-system --replicas=1",
        Not("the operator cannot be had here"),
    ),
    // guests/README.md
    ("mortise push guests/secret-copy registry.example.com/team/secret-copy:1.0.0", InRegistry),
    ("mortise sign registry.example.com/team/secret-copy:1.0.0 --key cosign.key", InRegistry),
    ("mortise diff registry.example.com/team/secret-copy:1.0.0 guests/secret-copy", InRegistry),
    ("mortise inspect registry.example.com/team/secret-copy:1.0.0", InRegistry),
    (
        "mortise new greeter-python --language python",
        Like(&[(
            "tests/it/languages.rs",
            r#"&["new", name, "--kind", kind, "--language", word], folder"#,
        )]),
    ),
    (
        "mortise test greeter-python",
        Like(&[("tests/it/languages.rs", r#"&["test", name], folder.path()"#)]),
    ),
    (
        "mortise new greeter-typescript --language typescript",
        Like(&[(
            "tests/it/languages.rs",
            r#"&["new", name, "--kind", kind, "--language", word], folder"#,
        )]),
    ),
    (
        "mortise test greeter-typescript",
        Like(&[("tests/it/languages.rs", r#"&["test", name], folder.path()"#)]),
    ),
    ("cargo istio-client guests/istio-client/1.31", By("tests/whole-run-registry")),
    ("kubectl get apirules.v1beta1.gateway.kyma-project.io -A", In("guests/api-rule")),
    ("mortise dev guests/secret-copy --plain", Dev),
    ("kubectl label namespace shop team-", In("guests/secret-copy")),
    ("kubectl delete secret registry -n orders", In("guests/secret-copy")),
    ("kubectl get secrets -A", In("guests/secret-copy")),
    ("kubectl delete secretcopy registry -n platform", In("guests/secret-copy")),
    (
        "mortise dev guests/istio-installation guests/sidecar-restart guests/ingress-gateway-restart guests/peer-authentication --ready --apply guests/istio-installation/examples",
        Dev,
    ),
    (
        "kubectl wait --for=jsonpath={.status.state}=Ready istio/default -n kyma-system --timeout=60s",
        In(ISTIO),
    ),
    ("kubectl get deployments,daemonsets,services,pods -n istio-system", In(ISTIO)),
    ("kubectl delete service istiod -n istio-system", In(ISTIO)),
    ("kubectl get istio default -n kyma-system -o yaml", In(ISTIO)),
    ("mortise test guests/secret-copy --filter deleted", Here),
    ("mortise test guests/secret-copy -o junit", Here),
    (
        "mortise simulate --module target/wasm32-wasip2/release/secret_copy.wasm --crds crds/copy.mortise.dev --objects guests/secret-copy/examples",
        Here,
    ),
    ("mortise inspect target/wasm32-wasip2/release/secret_copy.wasm", Here),
    (
        "mortise inspect target/wasm32-wasip2/release/secret_copy.wasm --crds crds/copy.mortise.dev --rbac --service-account platform/secret-copy",
        Here,
    ),
    (
        "mortise bench target/wasm32-wasip2/release/secret_copy.wasm --crds crds/copy.mortise.dev --objects guests/secret-copy/examples",
        Here,
    ),
    // tests/README.md
    ("cargo unit", By(".github/workflows/ci.yml")),
    (
        "cargo guests",
        Like(&[
            (".cargo/config.toml", "guests = \"test -p mortise-tests guests::\"\n"),
            ("tests/it/main.rs", "\nmod guests;\n"),
            (".ci/run", "\ncargo test --workspace\n"),
        ]),
    ),
    ("cargo lint", By(".ci/run")),
    (".ci/run", By(".github/workflows/ci.yml")),
    (
        "cargo crds",
        Like(&[
            (".cargo/config.toml", "crds = \"run -p mortise-tests --bin crds\"\n"),
            ("tests/src/bin/crds.rs", "mortise_tests::crds::write()"),
            ("tests/src/crds.rs", "[(folder(), files()?), (deploy(), charts()?)]"),
            ("tests/src/crds.rs", "found == files().unwrap()"),
            (".ci/run", "\ncargo test --workspace\n"),
        ]),
    ),
    (
        "cargo chart",
        Like(&[
            (".cargo/config.toml", "chart = \"run -p mortise-tests --bin chart\"\n"),
            ("tests/src/bin/chart.rs", "mortise_tests::helm::write()"),
            ("tests/src/helm.rs", "let text = rendered()?"),
            ("tests/it/chart.rs", "helm::rendered()"),
        ]),
    ),
    ("cargo test -p mortise-tests --test it -- --ignored", Not("it takes many minutes")),
    ("cargo test -p mortise --test commands -- --ignored much_code", Not("it takes many minutes")),
    (
        "cargo test --profile bench -p mortise-tests --test it -- --ignored hostile::",
        Not("it takes many minutes"),
    ),
    (
        "tests/whole-run",
        Like(&[
            ("tests/it/cluster/whole_run.rs", r#"run("whole-run", "#),
            ("tests/it/cluster/whole_run.rs", "Command::new(path).status()"),
        ]),
    ),
    (
        "tests/whole-run-registry",
        Like(&[
            ("tests/it/cluster/whole_run.rs", r#"run("whole-run-registry", "#),
            ("tests/it/cluster/whole_run.rs", "Command::new(path).status()"),
        ]),
    ),
    (
        "cargo test -p mortise-tests --test it -- --nocapture cluster::istio::life",
        Like(&[
            (".ci/run", "\ncargo test --workspace\n"),
            ("tests/it/cluster/istio.rs", "\nmod life;\n"),
        ]),
    ),
    (
        "cargo test -p mortise-tests --test it -- --ignored --nocapture cluster::istio",
        Not("it takes half an hour"),
    ),
    (
        "(cd tests/cluster && go build -o ../../target/cluster .)",
        Like(&[("tests/whole-run.sh", "(cd tests/cluster && go build -o \"$work/cluster\" .)")]),
    ),
    (
        "target/cluster up \"$PWD/target/plane\"",
        Like(&[("tests/whole-run.sh", "\"$work/cluster\" up --parent $$ \"$plane\"")]),
    ),
    (
        "export KUBECONFIG=\"$PWD/target/plane/kubeconfig\"",
        Like(&[("tests/whole-run.sh", "export KUBECONFIG=$plane/kubeconfig")]),
    ),
    (
        "target/cluster crds istio | kubectl apply --server-side -f -",
        Like(&[
            ("tests/whole-run", "\"$work/cluster\" crds istio | apply -f -"),
            ("tests/whole-run.sh", "apply() { kubectl apply --server-side \"$@\""),
        ]),
    ),
    ("target/cluster help", Not("it prints what it can do")),
    (
        "target/cluster down \"$PWD/target/plane\"",
        Like(&[("tests/whole-run.sh", "\"$work/cluster\" down \"$plane\"")]),
    ),
    ("cargo bench -p mortise-tests", Not("it takes half an hour")),
    ("cargo bench -p mortise-tests -- api rules", Not("it takes many minutes")),
    ("cargo bench --profile release -p mortise-tests", Not("it takes half an hour")),
];

/// A command of a guide, and the block that it is in if there is a comment above the block.
#[derive(Debug)]
struct Line {
    guide: &'static str,
    command: String,
    block: Option<Block>,
}

/// A block of commands below the comment `<!-- RUNNER: NAME -->`. The runner is a script, or a
/// module of these tests.
#[derive(Debug, Clone)]
struct Block {
    runner: String,
    name: String,
}

/// A running `mortise dev`. Interrupted on drop, by its own process id.
struct Session {
    child: Child,
    kubeconfig: String,
}

/// Returns the commands of all guides: the lines of `sh` blocks, and those of `text` blocks after
/// `$ `.
fn lines() -> Vec<Line> {
    GUIDES.into_iter().flat_map(lines_of).collect()
}

fn lines_of(guide: &'static str) -> Vec<Line> {
    let (mut fence, mut mark, mut found) = (None, None, Vec::new());
    for line in read(guide).lines() {
        match fence {
            None if line.starts_with("```") => {
                fence = Some(line.trim_start_matches('`').to_owned());
            }
            None => mark = block_of(line),
            Some(_) if line == "```" => fence = None,
            Some(ref kind) => {
                let command = match kind.as_str() {
                    "sh" => Some(line),
                    _ => line.strip_prefix("$ "),
                };
                let command = command.and_then(|line| line.split("  #").next()).map(str::trim);
                if let Some(command) = command.filter(|command| !command.is_empty()) {
                    found.push(Line { guide, command: command.to_owned(), block: mark.clone() });
                }
            }
        }
    }
    found
}

/// Returns the block below a comment, if the comment names one.
fn block_of(comment: &str) -> Option<Block> {
    let text = comment.strip_prefix("<!-- ")?.strip_suffix(" -->")?;
    let (runner, name) = text.split_once(": ")?;
    Some(Block { runner: runner.to_owned(), name: name.to_owned() })
}

/// Returns whether a file is a test or a workflow, or a script that one of them runs.
fn is_run(file: &str) -> bool {
    let is_script = || SCRIPTS.iter().any(|(script, ..)| *script == file);
    file.starts_with("tests/it/") || file.starts_with(".github/workflows/") || is_script()
}

/// Returns whether a line of a script, which is no comment, holds a command.
fn has(script: &str, command: &str) -> bool {
    let text = read(script);
    let mut lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    lines.any(|line| line.contains(command))
}

/// Returns the arguments of a command that starts `mortise`, with built guests.
fn arguments(command: &str) -> Vec<String> {
    let arguments = command.strip_prefix("mortise ").or(command.strip_prefix(CARGO_RUN));
    let arguments = arguments.unwrap_or_else(|| panic!("`{command}` does not start mortise"));
    arguments.split(' ').map(built).collect()
}

fn built(argument: &str) -> String {
    let Some(module) = argument.strip_prefix(RELEASE) else { return argument.to_owned() };
    let name = module.strip_suffix(".wasm").unwrap().replace('_', "-");
    let path = guest(&format!("guests/{name}")).unwrap();
    assert!(path.ends_with(Path::new("wasm32-wasip2/release").join(module)), "{path:?}");
    path.into_os_string().into_string().unwrap()
}

fn commands(wanted: &Run) -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().filter(move |(_, run)| run == wanted).map(|(command, _)| *command)
}

/// Runs a command to its end, which has to be a success.
fn succeed(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let (said, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{said}{errors}", output.status);
}

// === impl Block ===

impl Block {
    /// Returns the file that runs the block.
    fn file(&self) -> String {
        if self.runner.contains("::") {
            format!("tests/it/{}.rs", self.runner.replace("::", "/"))
        } else {
            self.runner.clone()
        }
    }

    /// Returns whether the file runs the block: by a call with its name in a test, by `guide NAME`
    /// or with the runner and the name in a script.
    fn is_run(&self) -> bool {
        let (name, runner) = (regex::escape(&self.name), regex::escape(&self.runner));
        let call = format!(r#"(?m)\("{name}"\)|\b(?:guide|{runner}) {name}(?:[ )]|$)"#);
        is_run(&self.file()) && Regex::new(&call).unwrap().is_match(&read(&self.file()))
    }
}

// === impl Session ===

impl Session {
    /// Starts `mortise dev`, and returns after its first reconcile.
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut session = Self { child, kubeconfig: String::new() };
        let (send, printed) = mpsc::channel();
        // It reads to the end, also when nobody listens any more: `mortise dev` must not wait.
        thread::spawn(move || lines.for_each(|line| drop(send.send(line))));
        let next = |text: &str| loop {
            let line = printed.recv_timeout(TIMEOUT);
            let line = line.unwrap_or_else(|_| panic!("{command:?} does not print `{text}`"));
            if line.contains(text) {
                return line;
            }
        };
        next("KUBECONFIG=").split_once('=').unwrap().1.clone_into(&mut session.kubeconfig);
        next("  because: ");
        session
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // It removes its kubeconfig when it is interrupted.
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        let _ = self.child.wait();
    }
}

// === tests ===

#[test]
fn every_command_is_accounted_for() {
    let lines = lines();
    let run: BTreeSet<&str> =
        lines.iter().filter(|line| line.block.is_some()).map(|line| &*line.command).collect();
    for Line { guide, command, block } in &lines {
        let is_run = block.as_ref().is_none_or(Block::is_run);
        assert!(is_run, "{guide}: {block:?} is not run by the file that it names");
        assert!(
            run.contains(&**command) || COMMANDS.iter().any(|(known, _)| known == command),
            "{guide}: `{command}` is not in COMMANDS, and in no block with a comment that names what runs it"
        );
    }
}

#[test]
fn no_known_command_is_missing_in_the_guides() {
    let lines: BTreeSet<String> = lines().into_iter().map(|line| line.command).collect();
    for (command, _) in COMMANDS {
        assert!(lines.contains(*command), "no guide has `{command}`");
    }
}

#[test]
fn commands_that_other_files_run_are_there() {
    for (command, run) in COMMANDS {
        match run {
            By(file) => assert!(is_run(file) && has(file, command), "{file}: `{command}`"),
            Like(texts) => {
                for (file, text) in *texts {
                    assert!(read(file).contains(text), "`{command}`: {file} lacks `{text}`");
                }
                assert!(texts.iter().any(|(file, _)| is_run(file)), "`{command}`");
            }
            Not(reason) => assert!(!reason.is_empty(), "`{command}`"),
            Here | InRegistry | New | Dev | In(_) => {}
        }
    }
}

#[test]
fn scripts_that_run_commands_are_run() {
    for (script, file, text) in SCRIPTS {
        assert!(read(file).contains(text), "{file} does not run {script}");
    }
}

#[test]
fn commands_about_a_registry_succeed() {
    let Some(setup) = Setup::open("the tests of it::guides") else { return };
    // The version that a guide compares with the one that it pushes.
    setup.well(&["push", "guests/api-rule", &setup.reference("team/api-rule:2.4.0")]);
    for command in commands(&InRegistry) {
        let replaced = |argument: String| match &*argument {
            "cosign.key" => KEY.to_owned(),
            "cosign.pub" => PUBLIC.to_owned(),
            _ => argument.replace(REGISTRY, &setup.registry.host()),
        };
        let arguments: Vec<String> = arguments(command).into_iter().map(replaced).collect();
        setup.well(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn commands_of_the_program_succeed() {
    for command in commands(&Here) {
        succeed(mortise().args(arguments(command)));
    }
}

#[test]
fn a_new_guest_is_created_and_runs() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("outside");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(root.path().join("Cargo.toml"), "[workspace]\nexclude = [\"outside\"]\n")
        .unwrap();
    let mut new = commands(&New);
    succeed(mortise().args(arguments(new.next().unwrap())).current_dir(&folder));
    // The versions that are there already.
    std::fs::copy(super::root().join("Cargo.lock"), folder.join("greeter/Cargo.lock")).unwrap();
    let dev = arguments(new.next().unwrap());
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.unwrap_or_else(|| super::root().join("target/new").into());
    let mut dev_new = mortise();
    dev_new.args(dev).current_dir(&folder).env("CARGO_TARGET_DIR", target);
    Session::start(dev_new.env("CARGO_NET_OFFLINE", "true"));
    assert_eq!(new.next(), None);
}

#[test]
fn kubectl_does_what_the_guides_say_while_dev_runs() {
    if !tool::is_there("kubectl", "the tests of it::guides") {
        return;
    }
    for dev in commands(&Dev) {
        let arguments = arguments(dev);
        if arguments[1] == ISTIO && !tool::is_there("go", "the tests of it::guides") {
            continue;
        }
        let session = Session::start(mortise().args(&arguments));
        for (command, run) in COMMANDS {
            if matches!(run, In(folder) if *folder == arguments[1]) {
                // `kubectl edit` takes an editor that changes nothing.
                let mut kubectl = Command::new("sh");
                kubectl.args(["-c", command]).current_dir(root()).env("EDITOR", "true");
                succeed(kubectl.env("KUBECONFIG", &session.kubeconfig));
            }
        }
    }
}
