use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use kube::{
    Api, Client, Config,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::GroupVersionKind,
    runtime::wait::await_condition,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use serde_json::json;

use crate::{
    greeter::{Greeter, with_target},
    mortise,
    run::ask,
};

/// Long enough for a build of the guest; what hangs shall not hang the tests.
const TIMEOUT: Duration = Duration::from_mins(5);
/// What a person waits for a repair.
const MAX_REPAIR_WAIT: Duration = Duration::from_secs(1);

/// A running `mortise dev`, ended by its own id.
pub(crate) struct Dev {
    child: Child,
    lines: mpsc::Receiver<String>,
    kubeconfig: PathBuf,
}

impl Dev {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::spawn(mortise().arg("dev").args(arguments))
    }

    /// Of greeters.
    pub(crate) fn greet(arguments: &[&str]) -> Self {
        Self::spawn(with_target(mortise().arg("dev").args(arguments)))
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        let mut dev = Self { child, lines, kubeconfig: PathBuf::new() };
        let line = dev.line("KUBECONFIG=");
        dev.kubeconfig = line.split_once("KUBECONFIG=").unwrap().1.into();
        dev
    }

    /// The next line that holds a text.
    pub(crate) fn line(&self, text: &str) -> String {
        loop {
            let line = self
                .lines
                .recv_timeout(TIMEOUT)
                .unwrap_or_else(|_| panic!("no line holds `{text}`"));
            if line.contains(text) {
                return line;
            }
        }
    }

    async fn client(&self) -> Client {
        Self::client_of(&self.kubeconfig).await
    }

    /// A client of the cluster of a kubeconfig.
    async fn client_of(kubeconfig: &Path) -> Client {
        let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .unwrap();
        Client::try_from(config).unwrap()
    }

    /// Ends it; the next line that holds a text.
    fn last_line(mut self, text: &str) -> String {
        self.signal();
        let line = self.line(text);
        assert!(self.child.wait().unwrap().success());
        line
    }

    fn signal(&self) {
        let told =
            Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
        assert!(told.success());
    }

    pub(crate) fn interrupt(mut self) -> std::process::ExitStatus {
        self.signal();
        self.child.wait().unwrap()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // Only a failed test leaves it running.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn secrets() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Secret"))
}

#[tokio::test]
async fn dev_repairs_deleted_and_edited_objects_and_logs_the_cause() {
    let dev = Dev::start(&["guests/secret-copy"]);
    dev.line("create Secret ");
    let client = dev.client().await;
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &secrets());
    let copies = ListParams::default().labels("copy.mortise.dev/of");
    let made = all.list(&copies).await.unwrap().items.remove(0);
    let name = made.metadata.name.clone().unwrap();
    let namespace = made.metadata.namespace.clone().unwrap();
    let api: Api<DynamicObject> = Api::namespaced_with(client, &namespace, &secrets());

    api.delete(&name, &DeleteParams::default()).await.unwrap();
    let is_back = |object: Option<&DynamicObject>| {
        object.is_some_and(|object| object.metadata.uid != made.metadata.uid)
    };
    tokio::time::timeout(MAX_REPAIR_WAIT, await_condition(api.clone(), &name, is_back))
        .await
        .unwrap()
        .unwrap();
    dev.line(&format!("{namespace}/{name} deleted"));

    let edit = json!({"data": {"password": "ZWRpdGVk"}});
    api.patch(&name, &PatchParams::default(), &Patch::Merge(&edit)).await.unwrap();
    let is_repaired = |object: Option<&DynamicObject>| {
        object.is_some_and(|object| object.data["data"] == made.data["data"])
    };
    tokio::time::timeout(MAX_REPAIR_WAIT, await_condition(api, &name, is_repaired))
        .await
        .unwrap()
        .unwrap();
    dev.line(&format!("{namespace}/{name} changed"));

    let folder = dev.kubeconfig.parent().unwrap().to_owned();
    assert!(dev.interrupt().success());
    assert!(!folder.exists(), "the kubeconfig is removed");
}

#[tokio::test]
async fn dev_tells_its_metrics_where_it_is_asked_to() {
    let dev = Dev::start(&["guests/api-rule", "--listen", "127.0.0.1:0"]);
    let told = dev.line("/metrics");
    let uri = told.split_whitespace().last().unwrap();
    dev.line("create VirtualService");
    let config = Config::new(uri.strip_suffix("/metrics").unwrap().parse().unwrap());
    let client = Client::try_from(config).unwrap();
    let get = async |path: &str| {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        client.request_text(request).await.unwrap()
    };
    assert_eq!(get("/livez").await, "ok\n");
    assert_eq!(get("/readyz").await, "ok\n");
    let metrics = get("/metrics").await;
    assert!(metrics.contains("mortise_reconciles_total{processor=\"api-rule\""), "{metrics}");
    assert!(dev.interrupt().success());
}

/// A definition of Rules of example.com, which a guest converts.
fn rules() -> serde_json::Value {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = |name: &str, is_stored: bool| {
        json!({
            "name": name, "served": is_stored, "storage": is_stored,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": any}}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "rules.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Rule", "listKind": "RuleList", "plural": "rules", "singular": "rule"},
            "versions": [version("v1", true), version("v2", false)],
        },
    })
}

#[tokio::test]
async fn dev_asks_the_hooks_of_the_processor_as_an_api_server_does() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("rules.json"), rules().to_string()).unwrap();
    let dev = Dev::start(&["tests/guests/hooks", "--crds", path(folder.path())]);
    let note = dev.line("served because the processor converts it");
    assert!(note.ends_with("Rule example.com/v2"), "{note}");
    let client = dev.client().await;
    let api = |version: &str| -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("example.com", version, "Rule");
        Api::namespaced_with(client.clone(), "default", &ApiResource::from_gvk(&kind))
    };
    let (stored, newer) = (api("v1"), api("v2"));
    let rule = |name: &str, size: u64| -> DynamicObject {
        let object = json!({
            "apiVersion": "example.com/v1", "kind": "Rule", "metadata": {"name": name},
            "spec": {"size": size},
        });
        serde_json::from_value(object).unwrap()
    };
    let made = async {
        loop {
            // The hook reads, which it cannot before the host has its first lists.
            match stored.create(&PostParams::default(), &rule("small", 3)).await {
                Err(kube::Error::Api(refused)) if refused.code == 500 => {}
                made => return made,
            }
        }
    };
    let made = tokio::time::timeout(TIMEOUT, made).await.unwrap().unwrap();
    assert_eq!(made.metadata.annotations.unwrap()["example.com/marked-by"], "admin");
    assert_eq!(newer.get("small").await.unwrap().data["spec"], json!({"length": 3}));
    let longer = Patch::Merge(json!({"spec": {"length": 4}}));
    newer.patch("small", &PatchParams::default(), &longer).await.unwrap();
    assert_eq!(stored.get("small").await.unwrap().data["spec"], json!({"size": 4}));
    let refused = stored.create(&PostParams::default(), &rule("large", 11)).await.unwrap_err();
    let kube::Error::Api(refused) = refused else { panic!("{refused}") };
    assert_eq!(refused.code, 422);
    assert_eq!(
        refused.message,
        "admission webhook \"check.hooks.default.mortise.dev\" denied the request: spec.size is at most 10"
    );
    assert!(dev.interrupt().success());
}

/// Neither a page that asks an address, nor one whose own name leads to it.
#[tokio::test]
async fn dev_answers_no_web_page() {
    let dev = Dev::start(&["--api-only"]);
    let kubeconfig = Kubeconfig::read_from(&dev.kubeconfig).unwrap();
    let server = kubeconfig.clusters[0].cluster.as_ref().unwrap().server.clone().unwrap();
    let address = server.strip_prefix("http://").unwrap();
    let evil = "Host: evil.example:6443";
    let own = format!("Host: {address}");
    let page = format!("{own}\r\nOrigin: http://evil.example");
    let post = "POST /api/v1/namespaces/default/configmaps";
    let cases = [
        ("GET /version", own.as_str(), 200),
        ("GET /version", "Host: localhost:1", 200),
        ("GET /", evil, 403),
        ("GET /api/v1/secrets", evil, 403),
        ("GET /api/v1/secrets", &page, 403),
        (post, &page, 403),
        (post, &format!("{page}\r\nUpgrade: websocket"), 403),
        (&format!("GET http://evil.example{}", "/version"), &own, 403),
    ];
    for (line, headers, status) in cases {
        let head = format!("{line} HTTP/1.1\r\n{headers}");
        let answer = ask(address, &head).await;
        assert_eq!(answer.0, status, "{head}: {}", answer.1);
        assert!(status == 200 || answer.1.contains("answered"), "{}", answer.1);
    }
}

#[tokio::test]
async fn dev_api_only_serves_and_ends_cleanly() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("config");
    let objects = folder.path().join("objects/inner");
    std::fs::create_dir_all(&objects).unwrap();
    std::fs::write(
        objects.join("a.yaml"),
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v}\n",
    )
    .unwrap();
    let dev = Dev::start(&[
        "--api-only",
        "--kubeconfig",
        kubeconfig.to_str().unwrap(),
        "--apply",
        folder.path().join("objects").to_str().unwrap(),
    ]);
    assert_eq!(dev.kubeconfig, kubeconfig);
    dev.line("1 object");
    let client = dev.client().await;
    let version = client.apiserver_version().await.unwrap();
    assert!(version.git_version.starts_with('v'), "{version:?}");
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
    let api: Api<DynamicObject> = Api::namespaced_with(client, "default", &kind);
    assert_eq!(api.get("a").await.unwrap().data["data"], json!({"k": "v"}));
    assert!(dev.interrupt().success());
}

#[tokio::test]
async fn dev_serves_another_cluster_whose_kubeconfig_is_in_a_secret() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("a.yaml"),
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: there, namespace: team}\n",
    )
    .unwrap();
    let cluster = format!("shop/provider/kubeconfig={},namespace=team", path(folder.path()));
    let dev = Dev::start(&["--api-only", "--cluster", &cluster]);
    let line = dev.line("cluster shop/provider/kubeconfig");
    let (_, file) = line.split_once("KUBECONFIG=").unwrap();
    dev.line("0 objects applied");

    let secrets: Api<DynamicObject> = Api::namespaced_with(dev.client().await, "shop", &secrets());
    let secret = secrets.get("provider").await.unwrap();
    let text = secret.data["data"]["kubeconfig"].as_str().unwrap();
    let text = String::from_utf8(BASE64.decode(text).unwrap()).unwrap();
    assert_eq!(text, std::fs::read_to_string(file).unwrap(), "the printed one");
    // The namespace is that of the context.
    let there = config_maps(Dev::client_of(Path::new(file)).await, "team");
    assert_eq!(there.list(&ListParams::default()).await.unwrap().items.len(), 1);
    let config = Kubeconfig::from_yaml(&text).unwrap();
    let context = config.contexts[0].context.as_ref().unwrap();
    assert_eq!(context.namespace.as_deref(), Some("team"));
    let at_home = config_maps(dev.client().await, "team");
    assert_eq!(at_home.list(&ListParams::default()).await.unwrap().items.len(), 0);
    assert!(dev.interrupt().success());
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn config_maps(client: Client, namespace: &str) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
    Api::namespaced_with(client, namespace, &kind)
}

/// Waits until a greeter's object says this.
async fn says(api: &Api<DynamicObject>, name: &str, text: &str) {
    let says = |object: Option<&DynamicObject>| {
        object.is_some_and(|object| object.data["data"]["text"] == text)
    };
    let said = await_condition(api.clone(), name, says);
    tokio::time::timeout(TIMEOUT, said).await.unwrap_or_else(|_| panic!("`{text}`")).unwrap();
}

#[tokio::test]
async fn a_saved_version_takes_over_and_one_that_does_not_build_leaves_the_former_one() {
    let guest = Greeter::new("greeter", "Welcome");
    let dev = Dev::greet(&[path(guest.folder())]);
    dev.line("create ConfigMap v1 shop/greeter");
    let api = config_maps(dev.client().await, "shop");
    says(&api, "greeter", "Welcome").await;

    guest.save("fn broken(");
    dev.line("the former version keeps running");
    api.delete("greeter", &DeleteParams::default()).await.unwrap();
    says(&api, "greeter", "Welcome").await;

    guest.say("Goodbye");
    dev.line("took over from");
    says(&api, "greeter", "Goodbye").await;
    assert!(dev.line("Welcome").contains("- "), "the difference is shown");
    assert!(dev.line("Goodbye").contains("+ "));

    // Nothing that matters: it is built, and what runs goes on.
    std::fs::write(
        guest.folder().join("Cargo.lock"),
        std::fs::read(guest.folder().join("Cargo.lock")).unwrap(),
    )
    .unwrap();
    dev.line("is unchanged");
    assert!(dev.interrupt().success());
}

#[tokio::test]
async fn the_last_of_several_saves_during_builds_wins() {
    let guest = Greeter::new("hasty", "0");
    let dev = Dev::greet(&[path(guest.folder())]);
    let api = config_maps(dev.client().await, "shop");
    says(&api, "hasty", "0").await;
    for text in ["1", "2", "3", "4", "5"] {
        guest.say(text);
        // A build is on its way when the next one is saved.
        dev.line("building");
    }
    says(&api, "hasty", "5").await;
    // All that was saved is built: what comes now is what is saved now.
    guest.say("6");
    says(&api, "hasty", "6").await;
    assert!(dev.interrupt().success());
}

#[tokio::test]
async fn several_guests_run_together_and_two_of_one_name_do_not() {
    let (first, second) = (Greeter::new("one", "1"), Greeter::new("two", "2"));
    let dev = Dev::greet(&[path(first.folder()), path(second.folder())]);
    dev.line("one 0.1.0");
    dev.line("two 0.1.0");
    second.rename("one");
    let message = dev.line("the former version keeps running");
    assert!(message.contains("`one` too") && message.contains(path(first.folder())), "{message}");
    assert!(dev.interrupt().success());

    let mut command = mortise();
    with_target(&mut command).args(["dev", path(first.folder()), path(second.folder())]);
    let output = command.output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = message.lines().last().unwrap();
    assert_eq!(output.status.code(), Some(1));
    for part in ["both called `one`", path(first.folder()), path(second.folder())] {
        assert!(last.contains(part), "{part} is missing in: {last}");
    }
}

#[tokio::test]
async fn each_guest_has_its_configuration_and_starts_with_loaded_objects() {
    let (first, second) = (Greeter::new("first", "1"), Greeter::new("second", "2"));
    let folder = tempfile::tempdir().unwrap();
    let (config, objects) = (folder.path().join("first.yaml"), folder.path().join("objects.yaml"));
    std::fs::write(&config, "text: configured\n").unwrap();
    let namespace =
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: office, labels: {greet: \"yes\"}}\n";
    let former = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: first, namespace: office}\ndata: {text: former, theirs: x}\n";
    std::fs::write(&objects, format!("{namespace}---\n{former}")).unwrap();
    let config = format!("first={}", path(&config));
    let guests = [path(first.folder()), path(second.folder())];
    let dev = Dev::greet(&[&guests[..], &["--config", &config, "--load", path(&objects)]].concat());
    dev.line("2 objects loaded");
    let client = dev.client().await;
    let api = config_maps(client.clone(), "office");
    says(&api, "first", "configured").await;
    says(&api, "second", "2").await;
    assert_eq!(api.get("first").await.unwrap().data["data"]["theirs"], "x", "as it was loaded");
    let examples = config_maps(client, "shop").list(&ListParams::default()).await.unwrap();
    assert!(examples.items.is_empty(), "the examples are not applied");

    // A saved version has the configuration that the former one had.
    first.say("3");
    dev.line("took over from");
    second.say("4");
    says(&api, "second", "4").await;
    says(&api, "first", "configured").await;
    assert!(dev.interrupt().success());
}

#[test]
fn a_first_build_that_fails_ends_dev_where_nobody_can_mend_it() {
    let guest = Greeter::new("broken", "0");
    guest.save("fn broken(");
    let mut command = mortise();
    let output = with_target(&mut command).args(["dev", path(guest.folder())]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(message.contains("src/lib.rs:1"), "the compiler says where: {message}");
    assert!(message.ends_with("error: `broken` does not build\n"), "{message}");
}

/// A companion that says its number, and the one of a process that it has started.
const COMPANION: &str = "echo '{\"egress\": [{\"origin\": \"https://*.api.example\", \"connect\": \"127.0.0.1:9\", \"private\": true}]}'\nsleep 1000 & echo numbers $$ $!; wait\n";

/// Handles on processes, by which their end is seen.
fn processes(line: &str) -> Vec<OwnedFd> {
    let (_, numbers) = line.split_once("numbers ").unwrap();
    let open = |number: &str| {
        let id = Pid::from_raw(number.parse().unwrap()).unwrap();
        pidfd_open(id, PidfdFlags::empty()).unwrap()
    };
    numbers.split(' ').map(open).collect()
}

/// Waits for the end of a process.
fn ends(process: &OwnedFd) {
    let limit = Timespec::try_from(TIMEOUT).unwrap();
    let ended = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&limit)).unwrap();
    assert_eq!(ended, 1, "the process goes on");
}

#[test]
fn a_companion_starts_and_ends_with_dev() {
    let guest = Greeter::new("accompanied", "0").with_companion(COMPANION);
    let dev = Dev::greet(&[path(guest.folder())]);
    // In any order: one is the session's, the other the companion's.
    let (mut note, mut numbers) = (None, None);
    while note.is_none() || numbers.is_none() {
        let line = dev.line("");
        if line.contains("the companion of `accompanied` grants") {
            note = Some(line);
        } else if line.contains("numbers ") {
            numbers = Some(line);
        }
    }
    assert!(note.unwrap().contains("https://*.api.example at 127.0.0.1:9"));
    let processes = processes(&numbers.unwrap());
    dev.line("create ConfigMap v1 shop/accompanied");
    assert!(dev.interrupt().success());
    processes.iter().for_each(ends);
}

#[test]
fn a_companion_ends_when_dev_is_killed() {
    let guest = Greeter::new("orphaned", "0").with_companion(COMPANION);
    let mut dev = Dev::greet(&[path(guest.folder())]);
    let processes = processes(&dev.line("numbers "));
    dev.child.kill().unwrap();
    ends(&processes[0]);
    // The kernel ends the program alone: what it has started is its own to end.
    let _ = pidfd_send_signal(&processes[1], Signal::KILL);
}

#[test]
fn a_companion_that_ends_is_an_error_with_its_last_lines() {
    let script = "echo '{\"egress\": []}'; echo no port is free >&2; exit 7\n";
    let guest = Greeter::new("deserted", "0").with_companion(script);
    let mut command = mortise();
    let output = with_target(&mut command).args(["dev", path(guest.folder())]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    let expected = "the companion of `deserted`, has ended (exit status: 7); its last lines:\n  no port is free\n";
    assert!(message.contains(expected), "{message}");
}

#[tokio::test]
async fn a_session_starts_with_the_objects_that_another_one_saved() {
    let folder = tempfile::tempdir().unwrap();
    let (objects, saved) = (folder.path().join("objects"), folder.path().join("saved"));
    std::fs::create_dir(&objects).unwrap();
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec:\n  replicas: 2\n  selector: {matchLabels: {a: b}}\n  \
                      template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: b}]}}\n";
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: hidden}\nstringData: {k: v}\n";
    std::fs::write(objects.join("a.yaml"), format!("{deployment}---\n{secret}")).unwrap();
    let arguments = ["--api-only", "--ready", "--apply", path(&objects), "--save", path(&saved)];
    let dev = Dev::start(&arguments);
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "Deployment"));
    let api: Api<DynamicObject> = Api::default_namespaced_with(dev.client().await, &kind);
    let is_available = |object: Option<&DynamicObject>| {
        object.is_some_and(|object| object.data["status"]["availableReplicas"] == 2)
    };
    tokio::time::timeout(TIMEOUT, await_condition(api, "a", is_available)).await.unwrap().unwrap();
    let note = dev.last_line("objects saved");
    assert!(note.contains("1 with values of Secrets or credentials were not"), "{note}");

    let dev = Dev::start(&["--api-only", "--load", path(&saved)]);
    dev.line("objects loaded");
    let api: Api<DynamicObject> = Api::default_namespaced_with(dev.client().await, &kind);
    assert_eq!(api.get("a").await.unwrap().data["status"]["availableReplicas"], 2);
    assert!(dev.interrupt().success());
}
