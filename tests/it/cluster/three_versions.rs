//! APIRules in three versions on a real control plane, which asks hosts for conversions: taken over
//! from the original operator and back, and used while hosts come and go.

mod admission;
mod former;
mod front;
mod hand_over;
mod users;

use std::{
    io::Write as _,
    net::SocketAddr,
    process::{Command, Stdio},
    sync::Arc,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::{
    Api,
    api::{DynamicObject, PostParams},
};
use mortise::local;
use mortise_core::{api::Outgoing, grant::rights::Account, key::NamespacedName};
use mortise_embedded_api::EmbeddedApi;
use mortise_host::{
    cluster::Cluster,
    host::{Host, Loaded, Options, Settings},
    operator::api::definition,
    webhooks::{Certificate, Paths, Stop, Webhooks},
};
use mortise_tests::{
    cluster, definitions, guest, loaded,
    rules::{self, NAMESPACE},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{net::TcpListener, task::JoinSet, time::timeout};

use self::front::Front;
use super::{
    kind,
    program::{POLL_INTERVAL, Ports, Program, TIMEOUT, get},
};
use crate::host::webhooks::{Issued, secret};

const GUEST: &str = "guests/api-rule";
/// The namespace of the Processor and of its account.
const HOME: &str = "kyma-system";
const NAME: &str = "api-rule";
const MODULE: &str = "api-rule.wasm";
const CONFIG: &str = r#"{"v1beta1":"allowed"}"#;
const GROUP: &str = "gateway.kyma-project.io";
const VERSIONS: [&str; 3] = ["v1beta1", "v2alpha1", "v2"];
/// The path that the original's definition names.
const OLD_PATH: &str = "/convert";
/// The annotation with the version in which an APIRule was written; the hook for v2alpha1 sets it.
const ORIGINAL_VERSION: &str = "gateway.kyma-project.io/original-version";
/// The field manager of the original.
const ORIGINAL: &str = "manager";
/// The version in which APIRules are stored.
const STORED: &str = "gateway.kyma-project.io/v2alpha1/APIRule";
const PROCESSOR: &str = "mortise.dev/v1alpha1/Processor";
/// The kinds that are made for APIRules.
const TRAFFIC: [&str; 4] = [
    "networking.istio.io/v1beta1/VirtualService",
    "oathkeeper.ory.sh/v1alpha1/Rule",
    "security.istio.io/v1beta1/AuthorizationPolicy",
    "security.istio.io/v1beta1/RequestAuthentication",
];

/// A control plane with APIRules whose definition names a front for conversions.
struct Gateway {
    cluster: Cluster,
    front: Front,
    /// The authority of the certificate, in PEM.
    authority: String,
    /// The Secret with the certificate that the hosts serve.
    certificate: Value,
    folder: TempDir,
    // Dropped last: it ends the control plane.
    plane: cluster::Cluster,
}

/// A host in a process of its own, with the address of its webhooks.
struct Served {
    program: Program,
    ports: Ports,
    webhooks: SocketAddr,
}

/// A host that converts and does nothing else: its account has no rights.
struct Converter {
    address: SocketAddr,
    host: Arc<Host>,
    stop: Stop,
    tasks: JoinSet<anyhow::Result<()>>,
}

// === impl Gateway ===

impl Gateway {
    /// Starts a control plane with the surroundings of APIRules, and no host. The hosts serve the
    /// certificate in a Secret; clients trust its authority. Returns `None` without Go.
    async fn open((authority, certificate): (String, Value)) -> Option<Self> {
        let plane = cluster::own_bare().await.unwrap()?;
        let cluster = Cluster::new(plane.client().await.unwrap());
        let (front, folder) = (Front::open().await, tempfile::tempdir().unwrap());
        let this = Self { cluster, front, authority, certificate, folder, plane };
        this.kinds().await;
        this.surroundings().await;
        this.guest(NAME, CONFIG).await;
        Some(this)
    }

    async fn kinds(&self) {
        let istio = cluster::istio().await.unwrap().unwrap();
        let rules = oathkeeper_rules();
        self.plane.install(&[istio, vec![definition::processors(), rules]].concat()).await.unwrap();
        self.plane.install(&self.definitions()).await.unwrap();
    }

    /// Returns the definitions of the guest, with all versions of APIRules served, and converted by
    /// who is behind the front.
    fn definitions(&self) -> Vec<Value> {
        let mut all = definitions(GUEST).unwrap();
        let names = format!("apirules.{GROUP}");
        let apirules = all.iter_mut().find(|one| one["metadata"]["name"] == *names).unwrap();
        for version in apirules["spec"]["versions"].as_array_mut().unwrap() {
            version["served"] = json!(true);
        }
        // The original names versions of which the API server knows one.
        apirules["spec"]["conversion"] = json!({
            "strategy": "Webhook",
            "webhook": {
                "clientConfig": self.client_config(OLD_PATH),
                "conversionReviewVersions": ["v2", "v1beta1"],
            },
        });
        all
    }

    /// Returns how the API server calls a path of the hosts: by the front.
    fn client_config(&self, path: &str) -> Value {
        let url = format!("https://localhost:{}{path}", self.front.port);
        json!({"url": url, "caBundle": STANDARD.encode(&self.authority)})
    }

    async fn surroundings(&self) {
        // Pods need the account, and no controller creates it here.
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"namespace": NAMESPACE, "name": "default"},
        });
        let (namespaces, objects): (Vec<_>, Vec<_>) = rules::surroundings()
            .unwrap()
            .into_iter()
            .partition(|object| object["kind"] == "Namespace");
        local::apply(&self.cluster, namespaces).await.unwrap();
        local::apply(&self.cluster, vec![account]).await.unwrap();
        self.create(ORIGINAL, &self.certificate).await;
        local::apply(&self.cluster, objects).await.unwrap();
    }

    /// Makes the account of a Processor, with the rights that `mortise inspect --rbac` prints, and
    /// puts its module where hosts look for it.
    async fn guest(&self, name: &str, config: &str) {
        let folder = format!("guests/{name}");
        let description = loaded(&folder, config).await.unwrap().description;
        let account = Account { namespace: HOME.to_owned(), name: name.to_owned() };
        let rights = rules::rights(&self.cluster, &account, &description).await.unwrap();
        local::apply(&self.cluster, rights).await.unwrap();
        let built = tokio::task::spawn_blocking(move || guest(&folder)).await.unwrap().unwrap();
        self.put(&format!("{name}.wasm"), &std::fs::read(built).unwrap());
    }

    /// Puts a module into the folder of modules.
    fn put(&self, name: &str, module: &[u8]) {
        let modules = self.folder.path().join("modules");
        std::fs::create_dir_all(&modules).unwrap();
        std::fs::write(modules.join(name), module).unwrap();
    }

    /// Returns a module of the folder of modules.
    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.folder.path().join("modules").join(name)).unwrap()
    }

    /// Starts a host whose webhooks are not behind the front yet.
    async fn host(&self, arguments: &[&str]) -> Served {
        let (modules, cache) = (self.folder.path().join("modules"), mortise_tests::code_cache());
        let (certificate, aliases) = (format!("{HOME}/{}", self.certificate_name()), aliases());
        let own = ["--namespace", HOME, "--webhooks", "127.0.0.1:0"];
        let own = own.into_iter().chain(["--webhook-certificate", &certificate]);
        let own = own.chain(aliases.iter().flat_map(|alias| ["--webhook-path", alias.as_str()]));
        let own = own.chain(arguments.iter().copied());
        let mut program = Program::start(&self.plane.kubeconfig(), &modules, &cache, own);
        let ports = program.ports().await;
        let listening = program.event("listening for webhooks").await;
        let webhooks = listening["webhooks"].as_str().unwrap().parse().unwrap();
        Served { program, ports, webhooks }
    }

    /// Returns the name of the Secret with the certificate.
    fn certificate_name(&self) -> &str {
        self.certificate["metadata"]["name"].as_str().unwrap()
    }

    /// Returns the Processor, with this module, as a hand-over has it.
    fn processor(module: &str, suspend: bool) -> Value {
        let config: Value = serde_json::from_str(CONFIG).unwrap();
        json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor",
            "metadata": {"namespace": HOME, "name": NAME},
            "spec": {
                "module": {"path": module}, "serviceAccountName": NAME, "config": config,
                "takeOver": ["manager"], "onDelete": "Release", "suspend": suspend,
            },
        })
    }

    async fn apply(&self, objects: Vec<Value>) {
        local::apply(&self.cluster, objects).await.unwrap();
    }

    /// Returns the API of an object's kind in its namespace.
    async fn api(&self, object: &Value) -> Api<DynamicObject> {
        let resource = self.cluster.resolve(&local::kind_of(object)).await.unwrap().unwrap();
        let resource = mortise_host::cluster::api_resource(&resource);
        let namespace = object["metadata"]["namespace"].as_str().unwrap();
        Api::namespaced_with(self.cluster.client().clone(), namespace, &resource)
    }

    /// Creates an object as a manager of fields that is not a processor.
    async fn create(&self, manager: &str, object: &Value) {
        let params = PostParams { field_manager: Some(manager.to_owned()), ..Default::default() };
        let typed = serde_json::from_value(object.clone()).unwrap();
        let created = self.api(object).await.create(&params, &typed).await;
        created.unwrap_or_else(|error| panic!("{object:#}: {error}"));
    }

    /// Returns the objects of a kind in all namespaces, by name, each with its kind.
    async fn list(&self, of: &str) -> Vec<Value> {
        let resource = self.cluster.resolve(&kind(of)).await.unwrap().unwrap();
        let answer = self.cluster.send(&Outgoing::get(resource.path(None))).await;
        let answer = answer.unwrap_or_else(|refusal| panic!("{of}: {}", refusal.message));
        let (api_version, kind) = of.rsplit_once('/').unwrap();
        let with_kind = |mut item: Value| {
            item["apiVersion"] = json!(api_version);
            item["kind"] = json!(kind);
            item
        };
        let items = answer.body["items"].as_array().cloned().unwrap_or_default();
        items.into_iter().map(with_kind).collect()
    }

    /// Returns all objects that are made for APIRules.
    async fn traffic(&self) -> Vec<Value> {
        let mut all = Vec::new();
        for of in TRAFFIC {
            all.extend(self.list(of).await);
        }
        all
    }

    /// Runs kubectl as an administrator; returns all that it prints.
    fn kubectl(&self, arguments: &str, input: &str) -> String {
        let mut command = self.kubectl_command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        String::from_utf8(said).unwrap()
    }

    fn kubectl_command(&self, arguments: &str) -> Command {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(self.plane.kubeconfig()).args(arguments.split(' '));
        command
    }

    /// Returns the APIRules of the users' namespace, in one of their versions.
    async fn rules(&self, version: &str) -> Api<DynamicObject> {
        self.api(&rule(version, "any", &Value::Null)).await
    }

    /// Waits until a host serves the webhooks of the Processor's module.
    async fn until_served(&self, host: &Served, module: &[u8]) {
        let digest = mortise_host::wasm::Digest::of(module).to_string();
        self.until(&format!("the host has {digest}"), async || {
            let (_, text) = get(&host.ports.admin, "/processors").await;
            text.contains(&digest)
        })
        .await;
    }

    async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let begun = tokio::time::Instant::now();
        while !holds().await {
            if begun.elapsed() > TIMEOUT {
                let said = (self.list(PROCESSOR).await, self.list(STORED).await);
                panic!("in vain: {what}\n{said:#?}");
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

// === impl Served ===

impl Served {
    /// Returns how many runs have ended.
    async fn runs(&self) -> u64 {
        self.sum_of(|line| line.starts_with("mortise_reconciles_total")).await
    }

    /// Returns how many keys wait for a slot.
    async fn waiting(&self) -> u64 {
        let is_ready =
            |line: &str| line.starts_with("mortise_queue_keys{") && line.contains("\"ready\"");
        self.sum_of(is_ready).await
    }

    async fn sum_of(&self, is_counted: impl Fn(&str) -> bool) -> u64 {
        let (status, text) = get(&self.ports.public, "/metrics").await;
        assert_eq!(status, 200, "{text}");
        let values = text.lines().filter(|line| is_counted(line));
        values.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
    }
}

// === impl Converter ===

impl Converter {
    async fn start(gateway: &Gateway) -> Self {
        Self::start_with(gateway, CONFIG).await
    }

    async fn start_with(gateway: &Gateway, config: &str) -> Self {
        let host = Host::start(&gateway.cluster, Vec::new(), &Options::default()).unwrap();
        let (host, stop, mut tasks) = (Arc::new(host), Stop::default(), JoinSet::new());
        put_to_work(&host, config).await;
        let place = NamespacedName::new(HOME, gateway.certificate_name());
        let (mut certificate, kept) = Certificate::watch(gateway.cluster.client().clone(), place);
        tasks.spawn(kept);
        let served = async {
            while certificate.problem().is_some() {
                certificate.changed().await;
            }
        };
        let is_served = timeout(TIMEOUT, served).await.is_ok();
        assert!(is_served, "the certificate is not served: {:?}", certificate.problem());
        let aliases = aliases().iter().map(|alias| alias.parse().unwrap()).collect();
        let webhooks = Webhooks::new(&host, Paths::new(aliases).unwrap(), None);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tasks.spawn(webhooks.serve(listener, certificate.source(), stop.clone()));
        Self { address, host, stop, tasks }
    }

    async fn end(mut self) {
        self.host.stop().await.unwrap();
        self.stop.closed.cancel();
        self.tasks.shutdown().await;
    }
}

/// Puts the component to work as the Processor, with a configuration and without rights.
async fn put_to_work(host: &Host, config: &str) {
    let settings = Settings {
        name: Some(NAME.into()),
        account: Some(format!("{HOME}/nobody").parse().unwrap()),
        ..Settings::in_namespace(HOME)
    };
    let processor = loaded(GUEST, config).await.unwrap().processor;
    host.swap(Loaded::describe(processor, config, settings).await.unwrap()).await.unwrap();
}

/// Returns a certificate for the hosts, valid for an hour, as [`Gateway::open`] takes it.
fn served(issued: &Issued) -> (String, Value) {
    let mut secret = secret(issued);
    secret["metadata"]["namespace"] = json!(HOME);
    (issued.authority.clone(), secret)
}

/// Returns the values of `--webhook-path` by which a host answers under the original's paths.
fn aliases() -> [String; 3] {
    let hook = |path: &str, hook: &str| format!("{path}=/admit/{HOME}/{NAME}/{hook}");
    [
        format!("{OLD_PATH}=/convert/{HOME}/{NAME}"),
        hook(former::MUTATING_PATH, "original-version"),
        hook(former::VALIDATING_PATH, "v1beta1"),
    ]
}

/// Returns a definition of Oathkeeper's `Rules`, without their schema.
fn oathkeeper_rules() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "rules.oathkeeper.ory.sh"},
        "spec": {
            "group": "oathkeeper.ory.sh", "scope": "Namespaced",
            "names": {"kind": "Rule", "plural": "rules"},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    })
}

/// Returns an APIRule of a user.
fn rule(version: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{version}"), "kind": "APIRule",
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
    })
}

/// Returns an APIRule in v1beta1 with this access strategy.
fn old(name: &str, strategy: &Value) -> Value {
    let spec = json!({
        "host": format!("{name}.local.kyma.dev"), "gateway": "kyma-system/kyma-gateway",
        "service": {"name": "orders", "port": 8000},
        "rules": [{"path": "/status", "methods": ["GET"], "accessStrategies": [strategy]}],
    });
    rule("v1beta1", name, &spec)
}

/// Returns APIRules that users have written, in three versions.
fn written() -> Vec<Value> {
    let issuer = "https://id.example.com";
    let jwt = json!({"authentications": [{"issuer": issuer, "jwksUri": format!("{issuer}/keys")}]});
    let introspection = json!({"required_scope": ["read"]});
    let mut all = vec![
        old("open", &json!({"handler": "no_auth"})),
        old("jwt", &json!({"handler": "jwt", "config": jwt})),
        old("oauth2", &json!({"handler": "oauth2_introspection", "config": introspection})),
    ];
    for (index, version) in ["v2alpha1", "v2"].into_iter().enumerate() {
        let like = rules::rule(index);
        all.push(rule(version, &format!("new-{version}"), &like["spec"]));
    }
    all
}

/// Carries the objects out on an API in memory; returns that API.
async fn carried_out(objects: Vec<Value>) -> EmbeddedApi {
    let api = EmbeddedApi::new(mortise_embedded_api::Options::default());
    let cluster = crate::host::cluster(&api);
    let loaded = loaded(GUEST, CONFIG).await.unwrap();
    local::apply(&cluster, definitions(GUEST).unwrap()).await.unwrap();
    local::serve_untyped(&api, &loaded.description, |_| false);
    for object in objects {
        // What a conversion makes is stored without being validated.
        api.load(object, false).unwrap();
    }
    let host = Host::start(&cluster, vec![loaded], &Options::default()).unwrap();
    host.drive().settled().await;
    host.stop().await.unwrap();
    api
}
