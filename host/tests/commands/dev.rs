use std::{
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use kube::{
    Api, Client, Config,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::GroupVersionKind,
    runtime::wait::await_condition,
};
use serde_json::json;

use crate::mortise;

/// Long enough for a build of the guest; what hangs shall not hang the tests.
const PATIENCE: Duration = Duration::from_mins(5);
/// What a person waits for a repair.
const SECOND: Duration = Duration::from_secs(1);

/// A running `mortise dev`, ended by its own id.
struct Dev {
    child: Child,
    lines: mpsc::Receiver<String>,
    kubeconfig: PathBuf,
}

impl Dev {
    fn start(arguments: &[&str]) -> Self {
        let mut child =
            mortise().arg("dev").args(arguments).stdout(Stdio::piped()).spawn().unwrap();
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
    fn line(&self, text: &str) -> String {
        loop {
            let line = self
                .lines
                .recv_timeout(PATIENCE)
                .unwrap_or_else(|_| panic!("no line holds `{text}`"));
            if line.contains(text) {
                return line;
            }
        }
    }

    async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .unwrap();
        Client::try_from(config).unwrap()
    }

    fn interrupt(mut self) -> std::process::ExitStatus {
        let ended =
            Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
        assert!(ended.success());
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

fn virtual_service() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(
        "networking.istio.io",
        "v1beta1",
        "VirtualService",
    ))
}

#[tokio::test]
async fn dev_repairs_what_somebody_deletes_or_edits_and_says_why() {
    let dev = Dev::start(&["guests/api-rule"]);
    dev.line("create VirtualService");
    let client = dev.client().await;
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &virtual_service());
    let made = all.list(&ListParams::default()).await.unwrap().items.remove(0);
    let name = made.metadata.name.clone().unwrap();
    let namespace = made.metadata.namespace.clone().unwrap();
    let api: Api<DynamicObject> = Api::namespaced_with(client, &namespace, &virtual_service());

    api.delete(&name, &DeleteParams::default()).await.unwrap();
    let is_back = |object: Option<&DynamicObject>| {
        object.is_some_and(|object| object.metadata.uid != made.metadata.uid)
    };
    tokio::time::timeout(SECOND, await_condition(api.clone(), &name, is_back))
        .await
        .unwrap()
        .unwrap();
    assert!(dev.line("deleted").contains(&name));

    let edit = json!({"spec": {"hosts": ["edited.example.com"]}});
    api.patch(&name, &PatchParams::default(), &Patch::Merge(&edit)).await.unwrap();
    let is_repaired = |object: Option<&DynamicObject>| {
        object.is_some_and(|object| object.data["spec"]["hosts"] == made.data["spec"]["hosts"])
    };
    tokio::time::timeout(SECOND, await_condition(api, &name, is_repaired)).await.unwrap().unwrap();
    assert!(dev.line("changed").contains(&name));

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
