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

use Run::{By, Dev, Here, In, New, Not};
use mortise_tests::{guest, tool};
use rustix::process::{Pid, Signal, kill_process};

use super::{GUIDES, mortise, read, root};

/// The comment above a block that `tests/whole-run` runs.
const MARK: &str = "<!-- tests/whole-run: ";
/// The comment above a block that `cluster::chart` runs.
const OF_CHART: &str = "<!-- cluster::chart: ";
/// The text before the arguments of `mortise` in the commands of a checkout.
const CARGO_RUN: &str = "cargo run -- ";
/// Timeout that only a fault reaches: a guest may have to be built.
const TIMEOUT: Duration = Duration::from_mins(10);
/// The folder of built guests in commands.
const RELEASE: &str = "target/wasm32-wasip2/release/";
/// The guest whose library is built with Go.
const ISTIO: &str = "guests/istio-installation";

/// The way in which a command is run.
#[derive(Debug, PartialEq)]
enum Run {
    /// A test of this module runs `mortise`, which succeeds.
    Here,
    /// A test of this module creates the guest, or runs the new guest.
    New,
    /// A test of this module starts this `mortise dev`.
    Dev,
    /// A test of this module runs kubectl while `mortise dev` runs this guest, in the order of the
    /// table.
    In(&'static str),
    /// This file runs it, with this text.
    By(&'static str, &'static str),
    /// Nothing runs it, for this reason.
    Not(&'static str),
}

/// Every command of the guides that neither `tests/whole-run` nor `cluster::chart` reads from them.
const COMMANDS: &[(&str, Run)] = &[
    // README.md
    ("cargo run -- dev guests/api-rule", Dev),
    ("cargo test --workspace", By(".ci/run", "cargo test --workspace")),
    ("export KUBECONFIG=…", Not("tests of this module set the variable")),
    ("kubectl get apirules,virtualservices -A", In("guests/api-rule")),
    ("kubectl delete virtualservices -n shop --all", In("guests/api-rule")),
    ("kubectl edit apirule orders -n shop", In("guests/api-rule")),
    ("cargo install --path host/cli", Not("it installs into the user's home")),
    ("mortise new greeter", New),
    ("mortise dev greeter", New),
    ("mortise test guests/secret-copy", Here),
    (
        "cargo build --release --target wasm32-wasip2 -p secret-copy",
        By("tests/src/guest.rs", "guest.build()"),
    ),
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
    (
        "mortise run --kubeconfig target/host.kubeconfig --modules target/modules",
        By("tests/whole-run", "run --kubeconfig \"$target/host.kubeconfig\" --modules"),
    ),
    (
        "cargo install --locked cargo-deny@0.18.3",
        By(".github/workflows/ci.yml", "cargo install --locked cargo-deny@0.18.3"),
    ),
    (".ci/advisories", By(".github/workflows/ci.yml", ".ci/advisories")),
    (
        "docker buildx imagetools inspect rust:1.95.0-slim-bookworm --format '{{.Manifest.Digest}}'",
        Not("no registry where the tests run"),
    ),
    (
        "mortise push guests/api-rule registry.example.com/team/api-rule:2.3.0",
        By("tests/it/registry.rs", "\"push\", file, &reference"),
    ),
    (
        "mortise sign registry.example.com/team/api-rule:2.3.0 --key cosign.key",
        By("tests/it/registry.rs", "\"sign\", &reference, \"--key\", KEY"),
    ),
    (
        "mortise verify registry.example.com/team/api-rule:2.3.0 --key cosign.pub",
        By("tests/it/registry.rs", "\"verify\", what, \"--key\", OTHER"),
    ),
    (
        "mortise diff registry.example.com/team/api-rule:2.3.0 registry.example.com/team/api-rule:2.4.0",
        By("tests/it/registry.rs", "\"diff\", before, after"),
    ),
    ("deploy/release target/release-0.1.0", By("tests/it/chart/release.rs", "exec deploy/release")),
    (
        "deploy/publish target/release-0.1.0 registry.example.com/team cosign.key",
        By("tests/it/chart/release.rs", "deploy/publish"),
    ),
    (
        "kubectl get service api-gateway-webhook-service -n kyma-system -o jsonpath='{.spec}' > operator-service.json",
        By("tests/it/kubectl/hand_over.rs", "run(\"keep\")"),
    ),
    (
        "kubectl patch service api-gateway-webhook-service -n kyma-system --type=json --patch '[{\"op\": \"replace\", \"path\": \"/spec/selector\", \"value\": {\"app.kubernetes.io/name\": \"mortise\"}}, {\"op\": \"replace\", \"path\": \"/spec/ports/0/targetPort\", \"value\": 9443}]'",
        By("tests/it/kubectl/hand_over.rs", "run(\"to-the-host\")"),
    ),
    (
        "kubectl scale deployment api-gateway-controller-manager -n kyma-system --replicas=0",
        By("tests/it/cluster/three_versions/hand_over.rs", "gateway.guide(\"go-on\")"),
    ),
    (
        "kubectl patch processor api-rule -n kyma-system --type=merge --patch '{\"spec\": {\"suspend\": false}}'",
        By("tests/it/cluster/three_versions/hand_over.rs", "gateway.guide(\"go-on\")"),
    ),
    (
        "kubectl patch processor webhook-certificate -n kyma-system --type=merge --patch '{\"spec\": {\"suspend\": false}}'",
        By("tests/it/cluster/three_versions/hand_over.rs", "gateway.guide(\"go-on\")"),
    ),
    (
        "kubectl delete processor api-rule webhook-certificate -n kyma-system",
        By("tests/it/cluster/three_versions/hand_over.rs", "gateway.guide(\"back\")"),
    ),
    (
        "kubectl scale deployment api-gateway-controller-manager -n kyma-system --replicas=1",
        Not("the operator cannot be had here"),
    ),
    (
        "kubectl patch service api-gateway-webhook-service -n kyma-system --type=json --patch '[{\"op\": \"replace\", \"path\": \"/spec\", \"value\": '\"$(cat operator-service.json)\"'}]'",
        By("tests/it/kubectl/hand_over.rs", "run(\"to-the-operator\")"),
    ),
    // guests/README.md
    (
        "mortise push guests/secret-copy registry.example.com/team/secret-copy:1.0.0",
        By("tests/it/registry.rs", "\"push\", file, &reference"),
    ),
    (
        "mortise sign registry.example.com/team/secret-copy:1.0.0 --key cosign.key",
        By("tests/it/registry.rs", "\"sign\", &reference, \"--key\", KEY"),
    ),
    (
        "mortise diff registry.example.com/team/secret-copy:1.0.0 guests/secret-copy",
        By("tests/it/registry.rs", "\"diff\", before, after"),
    ),
    (
        "mortise inspect registry.example.com/team/secret-copy:1.0.0",
        By("tests/it/registry.rs", "\"inspect\", &reference"),
    ),
    (
        "mortise new greeter-python --language python",
        By("tests/it/languages.rs", "\"--language\", word"),
    ),
    ("mortise test greeter-python", By("tests/it/languages.rs", "&[\"test\", name]")),
    (
        "mortise new greeter-typescript --language typescript",
        By("tests/it/languages.rs", "\"--language\", word"),
    ),
    ("mortise test greeter-typescript", By("tests/it/languages.rs", "&[\"test\", name]")),
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
    ("cargo unit", By(".github/workflows/ci.yml", "cargo unit")),
    ("cargo guests", By(".cargo/config.toml", "guests = \"test -p mortise-tests guests::\"")),
    ("cargo lint", By(".ci/run", "cargo lint")),
    (".ci/run", By(".github/workflows/ci.yml", ".ci/run")),
    ("cargo crds", By("tests/it/crds.rs", "crds::files()")),
    ("cargo chart", By("tests/it/chart.rs", "helm::rendered()")),
    ("cargo test -p mortise-tests --test it -- --ignored", Not("it takes many minutes")),
    ("cargo test -p mortise --test commands -- --ignored much_code", Not("it takes many minutes")),
    (
        "cargo test --profile bench -p mortise-tests --test it -- --ignored hostile::",
        Not("it takes many minutes"),
    ),
    ("tests/whole-run", By("tests/it/cluster/whole_run.rs", "\"whole-run\"")),
    ("tests/whole-run-registry", By("tests/it/cluster/whole_run.rs", "\"whole-run-registry\"")),
    (
        "cargo test -p mortise-tests --test it -- --nocapture cluster::istio::life",
        By(".ci/run", "cargo test --workspace"),
    ),
    (
        "cargo test -p mortise-tests --test it -- --ignored --nocapture cluster::istio",
        Not("it takes half an hour"),
    ),
    (
        "(cd tests/cluster && go build -o ../../target/cluster .)",
        By("tests/whole-run", "go build -C tests/cluster -o"),
    ),
    (
        "target/cluster up \"$PWD/target/plane\"",
        By("tests/whole-run.sh", "\"$work/cluster\" up --parent $$ \"$plane\""),
    ),
    (
        "export KUBECONFIG=\"$PWD/target/plane/kubeconfig\"",
        By("tests/whole-run.sh", "export KUBECONFIG=$plane/kubeconfig"),
    ),
    (
        "target/cluster crds istio | kubectl apply --server-side -f -",
        By("tests/whole-run", "\"$work/cluster\" crds istio | apply -f -"),
    ),
    ("target/cluster help", Not("it prints what it can do")),
    (
        "target/cluster down \"$PWD/target/plane\"",
        By("tests/whole-run.sh", "\"$work/cluster\" down \"$plane\""),
    ),
    ("cargo bench -p mortise-tests", Not("it takes half an hour")),
    ("cargo bench -p mortise-tests -- api rules", Not("it takes many minutes")),
    ("cargo bench --profile release -p mortise-tests", Not("it takes half an hour")),
];

/// A command of a guide, and the block that it is in, as the file that runs the block names it.
#[derive(Debug)]
struct Line {
    guide: &'static str,
    command: String,
    block: Option<String>,
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

/// Returns the text by which a file runs the block below this comment.
fn block_of(comment: &str) -> Option<String> {
    let of_script = comment.strip_prefix(MARK).map(|name| format!("guide {name}\n"));
    let of_chart = || comment.strip_prefix(OF_CHART).map(|name| format!("guide(\"{name}\")"));
    of_script.or_else(of_chart).map(|text| text.replace(" -->", ""))
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
    let run_by = [read("tests/whole-run"), read("tests/it/cluster/chart.rs")];
    let runs = |block: &String| run_by.iter().any(|file| file.contains(block));
    let is_run = |line: &&Line| line.block.as_ref().is_some_and(runs);
    let run: BTreeSet<&str> = lines.iter().filter(is_run).map(|line| &*line.command).collect();
    for Line { guide, command, .. } in &lines {
        assert!(
            run.contains(&**command) || COMMANDS.iter().any(|(known, _)| known == command),
            "{guide}: `{command}` is not in COMMANDS, and in no block that tests/whole-run or cluster::chart runs"
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
fn what_other_files_run_is_there() {
    for (command, run) in COMMANDS {
        match run {
            By(file, text) => assert!(read(file).contains(text), "{file}: `{command}`"),
            Not(reason) => assert!(!reason.is_empty(), "`{command}`"),
            Here | New | Dev | In(_) => {}
        }
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
