//! A real Kubernetes control plane: the Go program in `tests/cluster`, built on first use, which
//! takes minutes the first time.
//!
//! The tests of a process share one control plane ([`shared`]), each in a namespace of its own; a
//! test that breaks it has one of its own ([`own`]). The control plane ends with the process,
//! however that ends; the rest of its folder can be inspected until the next run.

mod audit;
mod folder;

pub use self::audit::{Audit, Event, ObjectReference, Status, User};

use std::{
    path::{Path, PathBuf},
    process::{self, Command},
    sync::OnceLock,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::{
    Api, Client, Config,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::ObjectMeta,
    discovery::ApiResource,
    runtime::{conditions, wait::await_condition},
};
use serde_json::{Value, json};

use self::folder::Folder;
use crate::go;

/// The tests named in the message that Go is missing.
const TESTS: &str = "the tests that need a control plane";
/// Timeout that only a fault reaches.
const SERVED_TIMEOUT: Duration = Duration::from_mins(1);
/// The controllers that act only on deleted objects and on RBAC.
const FEW_CONTROLLERS: &str = "garbage-collector-controller,namespace-controller,disruption-controller,\
    clusterrole-aggregation-controller";

/// A running control plane. It ends on drop, or with the process.
pub struct Cluster {
    program: PathBuf,
    folder: Folder,
}

/// A process of a control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Stores all objects.
    Etcd,
    /// Serves the Kubernetes API.
    ApiServer,
    /// Runs the controllers of Deployments, garbage, namespaces, service accounts, and so on.
    ControllerManager,
    /// Assigns nodes to pods.
    Scheduler,
    /// Simulates the node, and the pods on it.
    Kwok,
}

#[derive(Clone, Copy)]
enum Form {
    Whole,
    Bare,
}

/// Returns the control plane of this process, started on first use. Returns `None` without Go, and
/// reports that.
///
/// # Errors
///
/// Fails if it cannot be built or started; the error is the same for all callers.
pub async fn shared() -> Result<Option<&'static Cluster>> {
    static SHARED: OnceLock<Result<Option<Cluster>, String>> = OnceLock::new();
    of_process(&SHARED, Form::Whole).await
}

/// Returns another control plane of this process, in which objects have few effects: no scheduler,
/// no nodes, and only the controllers for garbage, namespaces, disruption budgets and aggregated
/// roles.
///
/// # Errors
///
/// Fails as [`shared`] does.
pub async fn bare() -> Result<Option<&'static Cluster>> {
    static BARE: OnceLock<Result<Option<Cluster>, String>> = OnceLock::new();
    of_process(&BARE, Form::Bare).await
}

/// Returns a kubeconfig for a server that asks nobody who they are.
pub fn kubeconfig(server: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": server}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me", "namespace": "default"}}],
        "users": [{"name": "me", "user": {}}],
    })
}

/// Starts a control plane for the caller alone.
///
/// # Errors
///
/// Fails if it cannot be built or started.
pub async fn own() -> Result<Option<Cluster>> {
    own_of(process::id()).await
}

/// Starts a control plane for the caller alone, with as few controllers as [`bare`].
///
/// # Errors
///
/// Fails as [`own`] does.
pub async fn own_bare() -> Result<Option<Cluster>> {
    blocking(|| Cluster::start(Form::Bare, process::id())).await
}

/// Starts a control plane that ends with the process `parent` instead of this process.
///
/// # Errors
///
/// Fails as [`own`] does.
pub async fn own_of(parent: u32) -> Result<Option<Cluster>> {
    blocking(move || Cluster::start(Form::Whole, parent)).await
}

/// Returns Istio's definitions of its kinds, from its Go module. Returns `None` without Go.
///
/// # Errors
///
/// Fails if the definitions cannot be read.
pub async fn istio() -> Result<Option<Vec<Value>>> {
    blocking(|| {
        let Some(program) = program()? else { return Ok(None) };
        let text = run(&program, ["crds", "istio"])?;
        // The text exceeds the budget that the parser has for untrusted input.
        let options = serde_saphyr::options! { budget: None };
        Ok(Some(serde_saphyr::from_multiple_with_options(&text, options)?))
    })
    .await
}

async fn of_process(
    place: &'static OnceLock<Result<Option<Cluster>, String>>,
    form: Form,
) -> Result<Option<&'static Cluster>> {
    blocking(move || {
        let started = place.get_or_init(|| {
            Cluster::start(form, process::id()).map_err(|error| format!("{error:#}"))
        });
        started.as_ref().map(Option::as_ref).map_err(|error| anyhow!(error.clone()))
    })
    .await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.context("the blocking task did not finish")?
}

fn program() -> Result<Option<PathBuf>> {
    go::program("cluster", TESTS)
}

/// Runs the program to its end and returns its standard output.
fn run(
    program: &Path,
    arguments: impl IntoIterator<Item: AsRef<std::ffi::OsStr>>,
) -> Result<String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "tests/cluster: {}", error.trim_end());
    String::from_utf8(output.stdout).context("the output of tests/cluster is not UTF-8")
}

// === impl Cluster ===

impl Cluster {
    fn start(form: Form, parent: u32) -> Result<Option<Self>> {
        let Some(program) = program()? else { return Ok(None) };
        let folder = Folder::new(&program)?;
        let mut command = vec!["up".to_owned(), "--parent".into(), parent.to_string()];
        if matches!(form, Form::Bare) {
            let options = ["--without", "kube-scheduler,kwok", "--controllers", FEW_CONTROLLERS];
            command.extend(options.map(str::to_owned));
        }
        command.push(folder.text()?.to_owned());
        run(&program, command)?;
        Ok(Some(Self { program, folder }))
    }

    /// Returns the path of an administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// Returns the folder of certificates, keys and logs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns an administrator's client configuration.
    ///
    /// # Errors
    ///
    /// Fails if the kubeconfig cannot be used.
    pub async fn config(&self) -> Result<Config> {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig())?;
        Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
    }

    /// Returns an administrator's client. It must be used in the runtime that it is made in.
    ///
    /// # Errors
    ///
    /// Fails if the kubeconfig cannot be used.
    pub async fn client(&self) -> Result<Client> {
        Ok(Client::try_from(self.config().await?)?)
    }

    /// Creates a namespace for one test, and waits until pods can be created in it. The name begins
    /// with `prefix`.
    ///
    /// # Errors
    ///
    /// Fails if the API refuses a request.
    pub async fn namespace(&self, prefix: &str) -> Result<String> {
        let client = self.client().await?;
        let wanted = Namespace {
            metadata: ObjectMeta {
                generate_name: Some(format!("{prefix}-")),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let made = namespaces.create(&PostParams::default(), &wanted).await?;
        let name = made.metadata.name.context("the API gave it no name")?;
        let accounts: Api<ServiceAccount> = Api::namespaced(client, &name);
        let is_there = |account: Option<&ServiceAccount>| account.is_some();
        await_condition(accounts, "default", is_there).await?;
        Ok(name)
    }

    /// Applies definitions of kinds, and waits until the kinds are served.
    ///
    /// # Errors
    ///
    /// Fails if the API refuses a request, or a definition has no name.
    #[expect(clippy::disallowed_methods, reason = "what a test finds there is no processor's")]
    pub async fn install(&self, definitions: &[Value]) -> Result<()> {
        let kinds = ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
        ));
        let api: Api<DynamicObject> = Api::all_with(self.client().await?, &kinds);
        let force = PatchParams::apply("tests").force();
        for definition in definitions {
            let name = definition.pointer("/metadata/name").and_then(Value::as_str);
            let name = name.context("a definition without a name")?;
            api.patch(name, &force, &Patch::Apply(definition)).await?;
        }
        let typed = Api::all(self.client().await?);
        for name in definitions.iter().filter_map(|of| of.pointer("/metadata/name")?.as_str()) {
            await_condition(typed.clone(), name, conditions::is_crd_established()).await?;
        }
        tokio::time::timeout(SERVED_TIMEOUT, self.served(definitions)).await?
    }

    /// Waits until the API server's discovery lists the versions of definitions, which is a moment
    /// after they are established.
    async fn served(&self, definitions: &[Value]) -> Result<()> {
        let client = self.client().await?;
        for definition in definitions {
            let text = |value: &Value, at: &str| {
                value.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned()
            };
            let (group, plural) =
                (text(definition, "/spec/group"), text(definition, "/spec/names/plural"));
            let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
            let served = versions
                .into_iter()
                .flatten()
                .filter(|of| of.get("served") == Some(&Value::Bool(true)));
            for version in served {
                let version = format!("{group}/{}", text(version, "/name"));
                let is_listed = async || match client.list_api_group_resources(&version).await {
                    Ok(list) => list.resources.iter().any(|of| of.name == plural),
                    Err(_) => false,
                };
                // Discovery cannot be watched.
                while !is_listed().await {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
        Ok(())
    }

    /// Starts reading the requests to the API from now on.
    ///
    /// # Errors
    ///
    /// Fails if the audit log cannot be read.
    pub async fn audit(&self) -> Result<Audit> {
        Audit::begin(self.folder.path().join("audit.log"), self.client().await?)
    }

    /// Kills a part, as a crash would.
    ///
    /// # Errors
    ///
    /// Fails if the part does not run.
    pub async fn kill(&self, part: Part) -> Result<()> {
        self.command("kill", part).await
    }

    /// Starts a part again, and returns when the part is ready.
    ///
    /// # Errors
    ///
    /// Fails if the part already runs, or does not start.
    pub async fn restart(&self, part: Part) -> Result<()> {
        self.command("start", part).await
    }

    /// Makes etcd forget all former revisions. A watch from one of them gets an error once the API
    /// server, which caches some revisions, was killed and started again.
    ///
    /// # Errors
    ///
    /// Fails if etcd does not run.
    pub async fn compact(&self) -> Result<()> {
        self.command("compact", None).await
    }

    async fn command(&self, command: &'static str, part: impl Into<Option<Part>>) -> Result<()> {
        let (program, folder) = (self.program.clone(), self.folder.text()?.to_owned());
        let part = part.into().map(Part::name);
        blocking(move || {
            let words = [Some(command), part, Some(&folder)].into_iter().flatten();
            run(&program, words).map(drop)
        })
        .await
    }
}

// === impl Part ===

impl Part {
    /// Returns the name that the Go program uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kwok => "kwok",
        }
    }
}
