//! What is wrong is said before anything runs, in one line that names the thing and what would be
//! accepted.

use std::{fs, os::unix::fs::PermissionsExt as _, process::Command};

use serde_json::{Value, json};

use super::{Api, Run, ask, bare, command, get};
use crate::root;

/// Runs it to its end: the code is 1, and the last line is an error, the only one. What it says.
pub(super) fn refused(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let errors: Vec<String> = text.lines().filter_map(error).collect();
    assert_eq!(errors.len(), 1, "{text}");
    error(text.lines().last().unwrap()).expect(&text)
}

/// What a line of the log says, of either form, if it is an error.
fn error(line: &str) -> Option<String> {
    let Ok(event) = serde_json::from_str::<Value>(line) else {
        return line.strip_prefix("error: ").map(str::to_owned);
    };
    (event["level"] == "ERROR").then(|| event["message"].as_str().unwrap().to_owned())
}

fn version(minor: &str) -> (u16, Value) {
    let version = json!({
        "major": "1", "minor": minor, "gitVersion": format!("v1.{minor}.3"), "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
    });
    (200, version)
}

fn holds(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "`{part}` is missing in: {message}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_says_where_it_listens_and_ends_when_it_is_told_to() {
    let api = Api::start().await;
    for signal in ["-TERM", "-INT"] {
        let run = Run::start(&api, &[]);
        let connected = run.event("connected");
        assert_eq!(connected["user"], "admin");
        assert_eq!(connected["cluster"], format!("http://{}", api.address));
        let ports = run.event("listening");
        let port = ports["listen"].as_str().unwrap();
        assert_eq!(get(port, "/livez").await, (200, "ok\n".into()));
        assert!(get(port, "/metrics").await.1.contains("mortise_leading 1"));
        assert_eq!(get(port, "/processors").await.0, 404, "what names objects is told elsewhere");
        run.signal(signal);
        let (status, said) = run.wait();
        assert_eq!(status.code(), Some(0), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_admin_port_answers_no_web_page_and_its_own_names() {
    let api = Api::start().await;
    let mut given = bare();
    given.arg("run").arg("--kubeconfig").arg(api.kubeconfig());
    given.arg("--modules").arg(api.modules()).args(["--listen", "127.0.0.1:0"]);
    given.args(["--admin", "0.0.0.0:0", "--admin-host", "admin.mortise", "--log-format", "json"]);
    let run = Run::spawn(&mut given);
    let ports = run.event("listening");
    let (_, port) = ports["admin"].as_str().unwrap().split_once(':').unwrap();
    let address = format!("127.0.0.1:{port}");
    let cases = [
        ("Host: admin.mortise:80", 200),
        ("Host: localhost", 200),
        ("Host: evil.example", 403),
        ("Host: localhost\r\nOrigin: http://localhost", 403),
    ];
    for (headers, status) in cases {
        let answer = ask(&address, &format!("GET /processors HTTP/1.1\r\n{headers}")).await;
        assert_eq!(answer.0, status, "{headers}: {}", answer.1);
    }
    assert_eq!(get(ports["listen"].as_str().unwrap(), "/livez").await.0, 200);
    run.terminate();
    let said = refused(command(&api).args(["--admin-host", "admin.mortise"]));
    holds(&said, &["`--admin-host`", "an address that is not loopback"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_comes_in_small_pages() {
    let api = Api::start().await;
    let run = Run::start(&api, &[]);
    run.event("listening");
    let status = fs::read_to_string(format!("/proc/{}/status", run.child.id())).unwrap();
    // Not every kernel tells.
    let told = status.lines().find_map(|line| line.strip_prefix("THP_enabled:"));
    assert!(told.is_none_or(|told| told.trim() == "0"), "{status}");
    let (end, said) = run.terminate();
    assert_eq!(end.code(), Some(0), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_option_can_be_an_environment_variable() {
    let api = Api::start().await;
    let mut command = bare();
    command.arg("run").envs([
        ("MORTISE_KUBECONFIG", api.kubeconfig().to_str().unwrap()),
        ("MORTISE_CONTEXT", "here"),
        ("MORTISE_NAMESPACE", "shop"),
        ("MORTISE_MODULES", api.modules().to_str().unwrap()),
        ("MORTISE_LISTEN", "127.0.0.1:0"),
        ("MORTISE_ADMIN", "127.0.0.1:0"),
        ("MORTISE_WORKERS", "1"),
        ("MORTISE_LOG_FORMAT", "json"),
        ("MORTISE_DRAIN_SECONDS", "20"),
        ("MORTISE_COMPILE_MEMORY_MIB", "500"),
        ("MORTISE_COMPILE_SECONDS", "60"),
        ("MORTISE_MAX_WATCHES", "100"),
        ("MORTISE_MAX_STORE_MIB", "100"),
        ("MORTISE_LEADER_ELECT", "true"),
        ("MORTISE_LEASE_NAMESPACE", "default"),
        ("MORTISE_LEASE_NAME", "elected"),
        ("MORTISE_LEASE_SECONDS", "7"),
        ("MORTISE_LEASE_RENEW_SECONDS", "5"),
        ("MORTISE_LEASE_RETRY_SECONDS", "1"),
    ]);
    let run = Run::spawn(&mut command);
    assert_eq!(run.event("leading")["lease"], "default/elected");
    let lease =
        api.embedded.objects().into_iter().find(|object| object["kind"] == "Lease").unwrap();
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 7);
    assert_eq!(run.terminate().0.code(), Some(0));

    let help = bare().args(["run", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let options = help.lines().filter_map(|line| line.trim().strip_prefix("--"));
    for option in options.map(|line| line.split([' ', '=']).next().unwrap()) {
        let name = option.replace('-', "_").to_uppercase();
        // Other programs have the variables of the proxy too; its address may hold a password.
        let variable = if option.ends_with("-proxy") {
            format!("[env: {name}]")
        } else {
            // Several may be given, also in the variable.
            let several = if option == "webhook-path" { "S" } else { "" };
            format!("[env: MORTISE_{name}{several}=")
        };
        assert!(help.contains(&variable), "{option}");
    }
}

#[test]
fn the_cluster_has_to_be_named_and_known() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let write = |name: &str, text: &str| fs::write(path(name), text).unwrap();
    write("broken", "users:\n- name: a\n  user: secret-token\n");
    write(
        "empty",
        "apiVersion: v1\nkind: Config\ncontexts: [{name: there, context: {cluster: c, user: u}}]\n",
    );
    write(
        "dead",
        "apiVersion: v1\nkind: Config\ncurrent-context: there\ncontexts: [{name: there, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n",
    );
    write(
        "proxied",
        "apiVersion: v1\nkind: Config\ncurrent-context: there\ncontexts: [{name: there, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1', proxy-url: 'http://user:secret@proxy:3128'}}]\n",
    );
    let run = |arguments: &[&str]| {
        let mut command = bare();
        command.env_remove("KUBERNETES_SERVICE_HOST");
        // The proxy for registries.
        command.env("HTTPS_PROXY", "http://127.0.0.1:2");
        refused(
            command.arg("run").args(["--modules", folder.path().to_str().unwrap()]).args(arguments),
        )
    };
    let of = |name: &str| run(&["--kubeconfig", &path(name)]);
    holds(&run(&[]), &["no cluster is named", "--kubeconfig", "KUBECONFIG", "pod"]);
    holds(&of("absent"), &["absent`", "No such file"]);
    let broken = of("broken");
    holds(&broken, &["broken`", "no kubeconfig in YAML or JSON at line 3"]);
    assert!(!broken.contains("secret-token"), "{broken}");
    holds(&of("empty"), &["empty`", "no current context", "--context", "`there`"]);
    holds(
        &run(&["--kubeconfig", &path("dead"), "--context", "here"]),
        &["no context is called `here`", "`there`"],
    );
    holds(&of("dead"), &["http://127.0.0.1:1", "refused"]);
    holds(&of("proxied"), &["proxied`", "`http://…@proxy:3128`", "without a proxy"]);
    holds(
        &run(&["--kubeconfig", &path("dead"), "--lease-seconds", "5", "--leader-elect"]),
        &["--lease-renew-seconds 10", "--lease-seconds 5"],
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubernetes_that_is_too_old_is_refused_with_the_oldest_that_is_not() {
    let api = Api::fake(|asked, _| (asked == "GET /version").then(|| version("27"))).await;
    let message = refused(&mut command(&api));
    holds(&message, &["v1.27.3", "too old", "1.28 or later", &api.address]);
    let api = Api::fake(|asked, _| (asked == "GET /version").then(|| version("28+"))).await;
    let message = refused(&mut command(&api));
    holds(&message, &["does not accept our credentials"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_without_rights_says_which_it_needs() {
    let api = Api::fake(|asked, who| match asked {
        "GET /version" => Some(version("34")),
        _ if who != "Bearer ours" => None,
        "GET /apis" => Some((200, json!({"kind": "APIGroupList", "groups": [
            {"name": "mortise.dev", "versions": [{"version": "v1alpha1"}]},
        ]}))),
        "GET /apis/mortise.dev/v1alpha1" => Some((200, json!({"kind": "APIResourceList", "resources": [
            {"name": "processors", "kind": "Processor", "namespaced": true, "verbs": ["list"]},
        ]}))),
        "POST /apis/authentication.k8s.io/v1/selfsubjectreviews" => Some((
            201,
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "status": {"userInfo": {"username": "nobody"}}}),
        )),
        _ => Some((
            201,
            json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {}, "status": {"allowed": false}}),
        )),
    })
    .await;
    holds(&refused(&mut command(&api)), &["does not accept our credentials", "--kubeconfig"]);
    api.write_kubeconfig(&json!({"token": "ours"}));
    holds(
        &refused(command(&api).args(["--namespace", "shop"])),
        &[
            "`nobody` may not",
            "list",
            "processors.mortise.dev in shop",
            "processors.mortise.dev/status in shop",
        ],
    );
    holds(
        &refused(command(&api).arg("--leader-elect")),
        &[
            "subjectaccessreviews",
            "create leases.coordination.k8s.io in ours",
            "get, watch, update leases.coordination.k8s.io `mortise` in ours",
        ],
    );

    // Credentials from a program, as kubectl has them.
    let program = api.folder().join("login");
    let login = |body: &str| {
        fs::write(&program, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    };
    api.write_kubeconfig(&json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": program.to_str().unwrap(),
    }}));
    login(
        r#"echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "ours"}}'"#,
    );
    holds(&refused(&mut command(&api)), &["`nobody` may not"]);
    login("echo secret-token; echo 'log in first' >&2; exit 3");
    let message = refused(&mut command(&api));
    holds(&message, &["login", "log in first"]);
    assert!(!message.contains("secret-token"), "{message}");
    login("echo 'status: [secret-token'");
    let message = refused(&mut command(&api));
    holds(&message, &["the credential plugin prints no credentials"]);
    assert!(!message.contains("secret-token"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn modules_and_ports_have_to_be_there() {
    let api = Api::start().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for option in ["--listen", "--admin"] {
        let variable = if option == "--listen" { "MORTISE_LISTEN" } else { "MORTISE_ADMIN" };
        let mut command = bare();
        command
            .arg("run")
            .arg("--kubeconfig")
            .arg(api.kubeconfig())
            .arg("--modules")
            .arg(api.modules());
        command
            .env("MORTISE_LISTEN", "127.0.0.1:0")
            .env("MORTISE_ADMIN", "127.0.0.1:0")
            .env(variable, &taken);
        holds(&refused(&mut command), &[&taken, option]);
    }
    fs::remove_dir(api.modules()).unwrap();
    holds(&refused(&mut command(&api)), &[api.modules().to_str().unwrap(), "--modules"]);
    let definition = kube::api::DeleteParams::default();
    let definitions: kube::Api<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition> =
        kube::Api::all(kube::Client::new(api.embedded.router(), "default"));
    definitions.delete("processors.mortise.dev", &definition).await.unwrap();
    holds(&refused(&mut command(&api)), &["does not know Processors", "deploy/install.yaml"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubeconfig_without_verification_of_the_server_is_warned_of() {
    const WARNING: &str = "insecure-skip-tls-verify";
    let api = Api::fake(|asked, _| (asked == "GET /version").then(|| version("34"))).await;
    let said = || {
        let output = command(&api).output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let text = said();
    assert!(!text.contains(WARNING), "{text}");
    let text = fs::read_to_string(api.kubeconfig()).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["clusters"][0]["cluster"][WARNING] = json!(true);
    fs::write(api.kubeconfig(), config.to_string()).unwrap();
    let text = said();
    let warning = text.lines().find(|line| line.contains(WARNING)).expect(&text);
    holds(warning, &["WARN", api.kubeconfig().to_str().unwrap(), &api.address]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_requires_signatures_runs_no_module_without_one() {
    let api = Api::with_secret_copy().await;
    let key = fs::read_to_string(root().join("host/src/oci/signature/recorded/cosign.pub"));
    let policy = api.folder().join("policy.yaml");
    fs::write(&policy, json!({"rules": [{"keys": [key.unwrap()]}]}).to_string()).unwrap();
    let run = Run::start(&api, &["--require-signatures", policy.to_str().unwrap()]);
    let refused = run.event("not run as asked for");
    assert_eq!(refused["reason"], "SignatureMissing", "{refused}");
    assert_eq!(
        refused["why"],
        "`secret-copy.wasm`: it has no signature; one by a key of these is expected: 0de03c5ad2aef8d3 (--require-signatures)",
    );
    let (status, said) = run.terminate();
    assert_eq!(status.code(), Some(0), "{said}");
}
