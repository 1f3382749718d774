//! A real Kubernetes control plane: the Go program in `tests/cluster`, built on first use, which takes minutes the first time.
//!
//! The tests of a process share one ([`shared`]), each in a namespace of its own; a test that breaks one has its own ([`own`]).
//! However the process ends, it ends with it; what is left in its folder is there to be looked at until the next run.

mod audit;
mod folder;

use std::{
    path::{Path, PathBuf},
    process::{self, Command},
    sync::OnceLock,
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
use serde_json::Value;

pub use self::audit::{Audit, Event, ObjectReference, Status, User};
use self::folder::Folder;
use crate::go;

/// What the program is for, as it is said where Go is missing.
const TESTS: &str = "the tests that need a control plane";
/// The controllers that act on nothing but what is deleted, and on RBAC.
const FEW_CONTROLLERS: &str = "garbage-collector-controller,namespace-controller,disruption-controller,\
    clusterrole-aggregation-controller";

/// A control plane that runs. It ends when this is dropped, or with the process.
pub struct Cluster {
    program: PathBuf,
    folder: Folder,
}

/// A process of a control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Where all is kept.
    Etcd,
    /// The API.
    ApiServer,
    /// Deployments, garbage, namespaces, service accounts, and so on.
    ControllerManager,
    /// Gives pods a node.
    Scheduler,
    /// Simulates the node, and the pods on it.
    Kwok,
}

#[derive(Clone, Copy)]
enum Form {
    Whole,
    Bare,
}

/// The control plane of this process, started on first use. None without Go, which is said then.
///
/// # Errors
///
/// What keeps it from being built or started, the same for all who ask.
pub async fn shared() -> Result<Option<&'static Cluster>> {
    static SHARED: OnceLock<Result<Option<Cluster>, String>> = OnceLock::new();
    of_process(&SHARED, Form::Whole).await
}

/// Another one of this process, in which nothing becomes of what is there: no scheduler, no nodes, and of the controllers only
/// those for garbage, namespaces, disruption budgets and aggregated roles.
///
/// # Errors
///
/// As for [`shared`].
pub async fn bare() -> Result<Option<&'static Cluster>> {
    static BARE: OnceLock<Result<Option<Cluster>, String>> = OnceLock::new();
    of_process(&BARE, Form::Bare).await
}

/// One that is nobody else's.
///
/// # Errors
///
/// What keeps it from being built or started.
pub async fn own() -> Result<Option<Cluster>> {
    own_of(process::id()).await
}

/// One that is nobody else's, in which as little happens by itself as in [`bare`].
///
/// # Errors
///
/// As for [`own`].
pub async fn own_bare() -> Result<Option<Cluster>> {
    blocking(|| Cluster::start(Form::Bare, process::id())).await
}

/// One that ends with another process than this.
///
/// # Errors
///
/// As for [`own`].
pub async fn own_of(parent: u32) -> Result<Option<Cluster>> {
    blocking(move || Cluster::start(Form::Whole, parent)).await
}

/// Istio's definitions of its kinds, from its own Go module. None without Go.
///
/// # Errors
///
/// What keeps them from being read.
pub async fn istio() -> Result<Option<Vec<Value>>> {
    blocking(|| {
        let Some(program) = program()? else { return Ok(None) };
        let text = run(&program, ["crds", "istio"])?;
        // Longer than what the parser takes from strangers.
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
    tokio::task::spawn_blocking(work).await.context("it broke off")?
}

fn program() -> Result<Option<PathBuf>> {
    go::program("cluster", TESTS)
}

/// Runs the program to its end; what it prints.
fn run(
    program: &Path,
    arguments: impl IntoIterator<Item: AsRef<std::ffi::OsStr>>,
) -> Result<String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "tests/cluster: {}", error.trim_end());
    String::from_utf8(output.stdout).context("it prints what is no text")
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

    /// An administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// Where its certificates, keys and logs are.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// How an administrator connects.
    ///
    /// # Errors
    ///
    /// A kubeconfig that cannot be used.
    pub async fn config(&self) -> Result<Config> {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig())?;
        Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
    }

    /// An administrator's client. It belongs to the runtime that it is made in.
    ///
    /// # Errors
    ///
    /// A kubeconfig that cannot be used.
    pub async fn client(&self) -> Result<Client> {
        Ok(Client::try_from(self.config().await?)?)
    }

    /// Makes a namespace for one test, and waits until pods can be made in it. The name begins as is said.
    ///
    /// # Errors
    ///
    /// What the API says.
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

    /// Applies definitions of kinds, and waits until they are served.
    ///
    /// # Errors
    ///
    /// What the API says.
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
        Ok(())
    }

    /// Begins to read what is asked of the API from now on.
    ///
    /// # Errors
    ///
    /// A log that cannot be read.
    pub async fn audit(&self) -> Result<Audit> {
        Audit::begin(self.folder.path().join("audit.log"), self.client().await?)
    }

    /// Ends a part at once, as a crash would.
    ///
    /// # Errors
    ///
    /// A part that does not run.
    pub async fn kill(&self, part: Part) -> Result<()> {
        self.command("kill", part).await
    }

    /// Starts a part again, and returns when it is ready.
    ///
    /// # Errors
    ///
    /// A part that runs, or does not start.
    pub async fn restart(&self, part: Part) -> Result<()> {
        self.command("start", part).await
    }

    /// Makes etcd forget all former states of what it holds. Who watches from one of them is told so once the API server, which
    /// remembers some by itself, was killed and started again.
    ///
    /// # Errors
    ///
    /// An etcd that does not run.
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
    /// As the program calls it.
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
