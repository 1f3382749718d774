//! Commands of the guides, run as they stand there.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use Run::{Dev, Here, In, InRegistry, New};
use mortise_tests::{guest, tool};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{GUIDES, mortise, read, root};
use crate::registry::{KEY, PUBLIC, Setup};

/// The text before the arguments of `mortise` in the commands of a checkout.
const CARGO_RUN: &str = "cargo run -- ";
/// Timeout that only a fault reaches: a guest may have to be built.
const TIMEOUT: Duration = Duration::from_mins(10);
/// The time for what a command is about to come, which only a fault reaches: twice a sync period.
const SOON: Duration = Duration::from_mins(2);
/// Interval of polling where no notification exists.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The folder of built guests in commands.
const RELEASE: &str = "target/wasm32-wasip2/release/";
/// The guest whose library is built with Go.
const ISTIO: &str = "guests/istio-installation";
/// The guest with another cluster.
const KUBE_BIND: &str = "guests/kube-bind";
/// The guest with a companion.
const KONNECT: &str = "guests/konnect";
/// The token in its examples.
const TOKEN: &str = "kpat_example";
/// The registry in commands.
const REGISTRY: &str = "registry.example.com";

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
}

/// The commands that are run.
const COMMANDS: &[(&str, Run)] = &[
    // README.md
    ("cargo run -- dev guests/api-rule", Dev),
    ("kubectl get apirules,virtualservices -A", In("guests/api-rule")),
    ("kubectl delete virtualservices -n shop --all", In("guests/api-rule")),
    ("kubectl edit apirule orders -n shop", In("guests/api-rule")),
    ("mortise new greeter", New),
    ("mortise dev greeter", New),
    ("mortise test guests/secret-copy", Here),
    (
        "mortise inspect target/wasm32-wasip2/release/secret_copy.wasm --rbac --service-account platform/secret-copy",
        Here,
    ),
    // deploy/README.md
    ("kubectl apply --server-side -f guests/api-rule/examples", In("guests/api-rule")),
    ("kubectl get apirules,virtualservices -n shop", In("guests/api-rule")),
    ("mortise push guests/api-rule registry.example.com/team/api-rule:2.3.0", InRegistry),
    ("mortise sign registry.example.com/team/api-rule:2.3.0 --key cosign.key", InRegistry),
    ("mortise verify registry.example.com/team/api-rule:2.3.0 --key cosign.pub", InRegistry),
    (
        "mortise diff registry.example.com/team/api-rule:2.3.0 registry.example.com/team/api-rule:2.4.0",
        InRegistry,
    ),
    // guests/README.md
    ("mortise push guests/secret-copy registry.example.com/team/secret-copy:1.0.0", InRegistry),
    ("mortise sign registry.example.com/team/secret-copy:1.0.0 --key cosign.key", InRegistry),
    ("mortise diff registry.example.com/team/secret-copy:1.0.0 guests/secret-copy", InRegistry),
    ("mortise inspect registry.example.com/team/secret-copy:1.0.0", InRegistry),
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
    // guests/konnect/README.md
    ("mortise dev guests/konnect", Dev),
    ("kubectl get konnectgatewaycontrolplane,kongservice,kongroute -n shop", In(KONNECT)),
    ("kubectl get kongservice orders -n shop -o jsonpath={.status.konnect}", In(KONNECT)),
    ("curl -skf https://$FAKE/_log", In(KONNECT)),
    (
        r#"curl -skf https://$FAKE/_data -d '[{"edit": "services", "name": "orders", "set": {"host": "elsewhere"}}]'"#,
        In(KONNECT),
    ),
    (
        r#"curl -skf https://$FAKE/_faults -d '[{"method": "PUT", "path": "services", "status": 429, "headers": {"retry-after": "7"}}]'"#,
        In(KONNECT),
    ),
    // guests/kube-bind/README.md
    ("cargo run -- dev guests/kube-bind --config guests/kube-bind/config.yaml", Dev),
    ("kubectl get apiservicebindings,crds", In(KUBE_BIND)),
    (
        r#"kubectl apply -f - <<< '{"apiVersion": "example.com/v1", "kind": "Rocket", "metadata": {"name": "saturn", "namespace": "team"}, "spec": {"stages": 3}}'"#,
        In(KUBE_BIND),
    ),
    ("kubectl --kubeconfig $PROVIDER get rockets -A", In(KUBE_BIND)),
    (
        r#"kubectl --kubeconfig $PROVIDER patch rocket saturn -n kube-bind-example-team --subresource status --type merge -p '{"status": {"height": 7}}'"#,
        In(KUBE_BIND),
    ),
    ("kubectl get rocket saturn -n team -o jsonpath={.status}", In(KUBE_BIND)),
    ("kubectl delete rocket saturn -n team", In(KUBE_BIND)),
];

/// The services that the fake of Konnect has.
const SERVICES: &str = r#"curl -skf -H 'host: eu.api.konghq.com' -H 'authorization: Bearer kpat_example' "https://$FAKE/v2/control-planes/$(kubectl get konnectgatewaycontrolplane shop -n shop -o jsonpath={.status.id})/core-entities/services""#;
/// The command whose effect is a pause, in milliseconds.
const PAUSING: (&str, u64) = (
    r#"curl -skf https://$FAKE/_faults -d '[{"method": "PUT", "path": "services", "status": 429, "headers": {"retry-after": "7"}}]'"#,
    7_000,
);

/// The milliseconds in which a request may come that was on its way.
const ON_THE_WAY: u64 = 100;

/// What comes of commands, soon or within the sync period: the command, another one, and a text that
/// the other one prints then.
const EFFECTS: &[(&str, &str, &str)] = &[
    (
        "kubectl get konnectgatewaycontrolplane,kongservice,kongroute -n shop",
        "kubectl wait --for=condition=Programmed konnectgatewaycontrolplane,kongservice,kongroute --all -n shop --timeout=10s",
        "kongservice.configuration.konghq.com/orders condition met",
    ),
    (
        "kubectl get kongservice orders -n shop -o jsonpath={.status.konnect}",
        "kubectl get kongservice orders -n shop -o jsonpath={.status.konnect}",
        "controlPlaneID",
    ),
    ("curl -skf https://$FAKE/_log", SERVICES, "orders.shop.svc"),
    (
        r#"curl -skf https://$FAKE/_data -d '[{"edit": "services", "name": "orders", "set": {"host": "elsewhere"}}]'"#,
        SERVICES,
        "orders.shop.svc",
    ),
    ("kubectl get apiservicebindings,crds", "kubectl get crds -o name", "rockets.example.com"),
    (
        "kubectl --kubeconfig $PROVIDER get rockets -A",
        "kubectl --kubeconfig $PROVIDER get rockets -A",
        "saturn",
    ),
    (
        "kubectl get rocket saturn -n team -o jsonpath={.status}",
        "kubectl get rocket saturn -n team -o jsonpath={.status}",
        r#""height":7"#,
    ),
    (
        "kubectl delete rocket saturn -n team",
        "{ kubectl get rockets -A; kubectl --kubeconfig $PROVIDER get rockets -A; } 2>&1 | sort -u",
        "No resources found",
    ),
];

/// A running `mortise dev`. Interrupted on drop, by its own process id.
struct Session {
    child: Child,
    kubeconfig: String,
    /// The kubeconfig of the other cluster; empty if there is none.
    provider: String,
    /// The address of the companion; empty if there is none.
    fake: String,
    /// The lines that it has printed until it was ready, and those after them.
    said: Vec<String>,
    printed: mpsc::Receiver<String>,
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

/// Runs a command of a shell until it succeeds and what it prints is right: what it is about may be on
/// its way. Returns what it prints.
fn succeed_soon(command: &str, session: &Session, is_right: impl Fn(&str) -> bool) -> String {
    let deadline = Instant::now() + SOON;
    loop {
        let mut shell = Command::new("bash");
        // `kubectl edit` takes an editor that changes nothing.
        shell.args(["-c", command]).current_dir(root()).env("EDITOR", "true");
        shell.env("KUBECONFIG", &session.kubeconfig).env("PROVIDER", &session.provider);
        shell.env("FAKE", &session.fake);
        let output = shell.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() && is_right(&said) {
            return said;
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(Instant::now() < deadline, "{command}: {}\n{said}{errors}", output.status);
        thread::sleep(POLL_INTERVAL);
    }
}

/// Waits for what comes of a command.
fn await_effect(of: &str, session: &Session) {
    for (command, effect, text) in EFFECTS {
        if *command == of {
            succeed_soon(effect, session, |said| said.contains(text));
        }
    }
    if of == PAUSING.0 {
        let edit = r#"kubectl patch kongservice orders -n shop --type merge -p '{"spec": {"port": 8081}}'"#;
        succeed_soon(edit, session, |_| true);
        let is_over = |said: &str| pause(said).is_some();
        let said = succeed_soon("curl -skf https://$FAKE/_log", session, is_over);
        let pause = pause(&said);
        assert!(pause >= Some(PAUSING.1), "asked again {pause:?} ms after the 429");
    }
}

/// Returns the milliseconds between the first answer of 429 in a log of the fake and the next request
/// that was not on its way yet.
fn pause(log: &str) -> Option<u64> {
    let log: Vec<Value> = serde_json::from_str(log).unwrap();
    let mut entries = log.iter().skip_while(|entry| entry["answer"]["status"] != 429);
    let at = |entry: &Value| entry["at"].as_u64().unwrap();
    let paused_at = entries.next().map(at)?;
    entries.map(|entry| at(entry) - paused_at).find(|after| *after > ON_THE_WAY)
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
        let [kubeconfig, provider, fake] = <[String; 3]>::default();
        let (send, printed) = mpsc::channel();
        let mut session = Self { child, kubeconfig, provider, fake, said: Vec::new(), printed };
        // It reads to the end, also when nobody listens any more: `mortise dev` must not wait.
        thread::spawn(move || lines.for_each(|line| drop(send.send(line))));
        loop {
            let line = session.printed.recv_timeout(TIMEOUT);
            let line = line.unwrap_or_else(|_| panic!("{command:?} does not reconcile"));
            session.said.push(line.clone());
            if let Some((_, kubeconfig)) = line.split_once("KUBECONFIG=") {
                let is_first = session.kubeconfig.is_empty();
                let of = if is_first { &mut session.kubeconfig } else { &mut session.provider };
                kubeconfig.clone_into(of);
            } else if let Some((_, granted)) = line.split_once(" grants ") {
                granted.rsplit_once(" at ").map_or("", |(_, at)| at).clone_into(&mut session.fake);
            } else if line.contains("  because: ") {
                return session;
            }
        }
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
fn each_command_is_in_a_guide() {
    let guides = GUIDES.map(read).concat();
    let missing = COMMANDS.iter().filter(|(command, _)| !guides.contains(command));
    assert_eq!(missing.map(|(command, _)| *command).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn each_effect_is_one_of_a_command() {
    let known = |command: &str| COMMANDS.iter().any(|(known, _)| *known == command);
    assert!(EFFECTS.iter().all(|(command, ..)| known(command)) && known(PAUSING.0));
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
fn kubectl_commands_of_the_guides_succeed_while_dev_runs() {
    if !tool::is_there("kubectl", "the tests of it::guides") {
        return;
    }
    for dev in commands(&Dev) {
        let arguments = arguments(dev);
        let needed = match &*arguments[1] {
            ISTIO => "go",
            KONNECT => "curl",
            _ => "kubectl",
        };
        if !tool::is_there(needed, "the tests of it::guides") {
            continue;
        }
        let session = Session::start(mortise().args(&arguments));
        for (command, run) in COMMANDS {
            if matches!(run, In(folder) if *folder == arguments[1]) {
                succeed_soon(command, &session, |_| true);
                await_effect(command, &session);
            }
        }
        let mut said = session.said.iter().cloned().chain(session.printed.try_iter());
        assert_eq!(said.find(|line| line.contains(TOKEN)), None);
    }
}
