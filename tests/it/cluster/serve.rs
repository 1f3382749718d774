//! `mortise run` itself, with the rights of `deploy/install.yaml` and credentials as a pod has them: a token in a file.

use std::path::{Path, PathBuf};

use clap::Parser as _;
use k8s_openapi::api::{
    authentication::v1::TokenRequest,
    core::v1::{Secret, ServiceAccount},
};
use kube::{
    Api, Client,
    api::PostParams,
    config::{AuthInfo, Kubeconfig},
};
use mortise_host::{
    args::{Args, Command},
    cluster::Cluster,
    desk, files,
    processor::Compiler,
    serve,
};
use mortise_tests::{cluster, guest};
use serde_json::{Value, json};

use super::stage::RBAC;

const GUEST: &str = "guests/secret-copy";
/// The host's own account, in the namespace of the same name.
const HOST: &str = "mortise";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A kubeconfig whose user has a token in a file.
async fn kubeconfig(admin: &Client, from: &Path, folder: &Path) -> PathBuf {
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), HOST);
    let (asked, params) = (TokenRequest::default(), PostParams::default());
    let request = accounts.create_token_request(HOST, &params, &asked).await.unwrap();
    let (token, path) = (folder.join("token"), folder.join("kubeconfig"));
    std::fs::write(&token, request.status.unwrap().token).unwrap();
    let mut config = Kubeconfig::read_from(from).unwrap();
    for user in &mut config.auth_infos {
        let token_file = Some(token.to_str().unwrap().to_owned());
        user.auth_info = Some(AuthInfo { token_file, ..AuthInfo::default() });
    }
    std::fs::write(&path, serde_json::to_string(&config).unwrap()).unwrap();
    path
}

/// A Processor with an account that may do all, a Secret, a namespace that it is to be copied to, and the host's right to act as
/// the account.
fn objects(namespace: &str, target: &str) -> Vec<Value> {
    let named = |name: &str| json!({"name": name, "namespace": namespace});
    let binding = |name: &str, kind: &str, role: &str, subject: (&str, &str)| {
        json!({
            "apiVersion": RBAC, "kind": kind, "metadata": named(name),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": if role == "Role" { name } else { "cluster-admin" }},
            "subjects": [{"kind": "ServiceAccount", "namespace": subject.0, "name": subject.1}],
        })
    };
    let mut everything =
        binding(target, "ClusterRoleBinding", "ClusterRole", (namespace, "copier"));
    everything["metadata"] = json!({"name": target});
    let mut account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named("copier")});
    account["metadata"]["labels"] = json!({"mortise.dev/processor": "copier"});
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": target, "labels": {"team": target}}}),
        account,
        everything,
        json!({
            "apiVersion": RBAC, "kind": "Role", "metadata": named(HOST),
            "rules": [{"apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["copier"], "verbs": ["impersonate"]}],
        }),
        binding(HOST, "RoleBinding", "Role", (HOST, HOST)),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": named("registry"), "stringData": {"password": "example"}}),
        json!({
            "apiVersion": "copy.mortise.dev/v1", "kind": "SecretCopy", "metadata": named("registry"),
            "spec": {"secret": "registry", "namespaces": format!("team={target}")},
        }),
        json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor", "metadata": named("copier"),
            "spec": {"module": {"path": "secret-copy.wasm"}, "serviceAccountName": "copier"},
        }),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_with_the_role_of_deploy_does_all_that_it_has_to_and_is_refused_nothing() {
    let Some(plane) = cluster::shared().await.unwrap() else { return };
    let (namespace, target) =
        (plane.namespace("run").await.unwrap(), plane.namespace("copied").await.unwrap());
    let folders = ["crds/mortise.dev", "crds/copy.mortise.dev"].map(|folder| root().join(folder));
    plane.install(&files::load_all(&folders).unwrap()).await.unwrap();
    let client = plane.client().await.unwrap();
    let admin = Cluster::new(client.clone());
    let role = files::load(&root().join("deploy/install.yaml")).unwrap();
    desk::apply(&admin, role).await.unwrap();
    desk::apply(&admin, objects(&namespace, &target)).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = kubeconfig(&client, &plane.kubeconfig(), folder.path()).await;
    std::fs::copy(guest(GUEST).unwrap(), folder.path().join("secret-copy.wasm")).unwrap();

    let audit = plane.audit().await.unwrap();
    let words = [
        "mortise",
        "run",
        "--kubeconfig",
        kubeconfig.to_str().unwrap(),
        "--modules",
        folder.path().to_str().unwrap(),
        "--namespace",
        &namespace,
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--once",
        "--leader-elect",
        "--lease-namespace",
        HOST,
    ];
    let Command::Run(run) = Args::try_parse_from(words).unwrap().command else {
        panic!("another command")
    };
    let code = serve::run(&run, None, Compiler::InProcess).await.unwrap();
    assert_eq!(format!("{code:?}"), format!("{:?}", std::process::ExitCode::SUCCESS));

    let copies: Api<Secret> = Api::namespaced(client.clone(), &target);
    assert_eq!(copies.get("registry").await.unwrap().data.unwrap()["password"].0, b"example");
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> = Api::namespaced(client, HOST);
    let lease = leases.get("mortise").await.unwrap().spec.unwrap();
    assert_eq!(lease.holder_identity, None, "it was given back");
    let own = format!("system:serviceaccount:{HOST}:{HOST}");
    let events = audit.events().await.unwrap();
    let asked = events.iter().filter(|event| event.user.username == own);
    let refused =
        asked.filter(|event| event.response_status.as_ref().is_some_and(|of| of.code == 403));
    let refused: Vec<_> =
        refused.map(|event| (event.account(), &event.verb, event.resource())).collect();
    assert_eq!(refused, [], "nothing more is needed");
}
