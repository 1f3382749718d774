//! The command line of `mortise`. Nothing past here reads flags or the environment.

mod help;
#[cfg(test)]
mod tests;

use std::{net::SocketAddr, path::PathBuf, str::FromStr};

use clap::{Parser, Subcommand, ValueEnum};
use mortise_core::{contract::bounds::text::cluster_secret, grant::rights::Account};
use mortise_host::{
    args::{ChildArgs, GlobalArgs, RegistryArgs, RunArgs, help as host_help, value},
    operator::limits_of_call,
    wasm::Limits,
};

/// A Kubernetes operator host whose reconciliation logic comes as WebAssembly components.
#[derive(Debug, Parser)]
#[command(name = "mortise", version, about, after_long_help = help::MORTISE)]
pub struct Args {
    /// The command of the program.
    #[command(subcommand)]
    pub command: Command,
    /// The options of every command.
    #[command(flatten)]
    pub global: GlobalArgs,
}

/// The command of the program.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs the Processors of a cluster.
    #[command(after_long_help = host_help::RUN)]
    Run(RunArgs),
    /// Builds a guest and runs it against a Kubernetes API in memory that kubectl can use.
    #[command(after_long_help = help::DEV)]
    Dev(DevArgs),
    /// Reconciles given objects in memory until nothing changes any more, and prints the result.
    #[command(after_long_help = help::SIMULATE)]
    Simulate(SimulateArgs),
    /// Prints what a processor reconciles, reads and writes, or the Roles that it needs.
    #[command(after_long_help = help::INSPECT)]
    Inspect(InspectArgs),
    /// Measures the cost of a processor's calls on given objects; compares two modules.
    #[command(after_long_help = help::BENCH)]
    Bench(BenchArgs),
    /// Compiles a component to machine code, within limits; `mortise run` starts it for each
    /// module.
    #[command(after_long_help = host_help::COMPILE)]
    Compile(ChildArgs),
    /// Checks a configuration against a schema, within limits; `mortise run` starts it for each
    /// processor that declares a schema.
    #[command(hide = true, after_long_help = host_help::CHECK_CONFIG)]
    CheckConfig(ChildArgs),
    /// Prints a completion script for a shell.
    #[command(after_long_help = help::COMPLETION)]
    Completion(CompletionArgs),
    /// Creates a guest that builds, passes its tests and runs in `mortise dev`.
    #[command(after_long_help = help::NEW)]
    New(NewArgs),
    /// Runs a guest's cases against its component.
    #[command(after_long_help = help::TEST)]
    Test(TestArgs),
    /// Pushes a component to a registry.
    #[command(after_long_help = help::PUSH)]
    Push(PushArgs),
    /// Pulls a component from a registry.
    #[command(after_long_help = help::PULL)]
    Pull(PullArgs),
    /// Compares two modules: their permissions, the rules that they grant, their kinds, imports and
    /// sizes.
    #[command(after_long_help = help::DIFF)]
    Diff(DiffArgs),
    /// Signs a component in a registry, or a file, as cosign does.
    #[command(after_long_help = help::SIGN)]
    Sign(SignArgs),
    /// Verifies the signatures of a component in a registry, or of a file, as the host does.
    #[command(after_long_help = help::VERIFY)]
    Verify(VerifyArgs),
}

/// The options of a command that talks to registries.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct RegistryClientArgs {
    /// The options of the registry client.
    #[command(flatten)]
    pub registry: RegistryArgs,
    /// The folder of Docker's configuration file, which holds the credentials for registries;
    /// `~/.docker` if absent.
    #[arg(long, env = "DOCKER_CONFIG", value_name = "DIR")]
    pub docker_config: Option<PathBuf>,
}

/// `mortise push`.
#[derive(Debug, clap::Args)]
pub struct PushArgs {
    /// The component, or the folder of a guest, which is built. A component without a processor is
    /// pushed as a library.
    #[arg(value_name = "FILE")]
    pub module: PathBuf,
    /// The target: a registry, a repository and a tag.
    #[arg(value_name = "REF")]
    pub reference: String,
    /// The description of the component; the one in the guest's Cargo.toml if absent.
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,
    /// The revision of the sources; if absent, that of the git checkout that holds the module, if
    /// there is one.
    #[arg(long, value_name = "TEXT")]
    pub revision: Option<String>,
    /// The processor's configuration: a YAML or JSON file. The processor's declarations may depend
    /// on it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The options of the call that asks the module what it declares.
    #[command(flatten)]
    pub with: ModuleArgs,
    /// The options of the registry client, and its credentials.
    #[command(flatten)]
    pub client: RegistryClientArgs,
}

/// `mortise pull`.
#[derive(Debug, clap::Args)]
pub struct PullArgs {
    /// The source: a registry, a repository, and a tag or a digest.
    #[arg(value_name = "REF")]
    pub reference: String,
    /// The file to write; the last part of the repository with `.wasm` if absent.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The options of the registry client, and its credentials.
    #[command(flatten)]
    pub client: RegistryClientArgs,
}

/// The libraries of a module, and the limits of its calls.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ModuleArgs {
    /// A component that implements an interface which the module imports, instead of the one that a
    /// guest names; may be repeated. The limits of its calls may follow:
    /// `,memory=256Mi,deadline=30s`.
    #[arg(long, value_name = "INTERFACE=FILE")]
    pub library: Vec<LibraryFile>,
    /// The memory of a call, as in a Processor: `256Mi`; the one in the guest's manifest, or 64Mi,
    /// if absent.
    #[arg(long, value_name = "QUANTITY")]
    pub memory: Option<String>,
    /// The time limit of a call, as in a Processor: `30s`; the one in the guest's manifest, or 5s,
    /// if absent.
    #[arg(long, value_name = "DURATION")]
    pub deadline: Option<String>,
}

/// The file of a library, with the limits of its calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibraryFile {
    /// The interface that the library implements.
    pub interface: String,
    /// The component's file.
    pub path: PathBuf,
    /// The limits of one call.
    pub limits: Limits,
}

/// The objects of another cluster in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterFolder {
    /// The name of the cluster: `namespace/name/key` of the Secret with its kubeconfig.
    pub name: String,
    /// The file or folder of the objects.
    pub objects: PathBuf,
    /// The namespace in the kubeconfig.
    pub namespace: String,
}

/// A system outside of the cluster that guests may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressOption {
    /// The origin, as in `spec.egress` of a Processor.
    pub origin: String,
    /// `HOST:PORT` to connect to instead.
    pub connect: Option<String>,
    /// The file with the authorities that the server's certificate is checked with, in PEM.
    pub authorities: Option<PathBuf>,
}

/// `mortise dev`.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[derive(Debug, clap::Args)]
pub struct DevArgs {
    /// The folders of the guests, each with a Cargo.toml or mortise.toml.
    #[arg(required_unless_present = "api_only", value_name = "GUEST_DIR")]
    pub guests: Vec<PathBuf>,
    /// The port on 127.0.0.1; a free one if absent.
    #[arg(long, value_parser = value::port)]
    pub port: Option<u16>,
    /// The file to write the kubeconfig to; one in a temporary folder, removed at the end, if
    /// absent. A file that holds other clusters is not overwritten.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The file or folder whose objects are applied at the start, instead of the guest's examples.
    #[arg(long, value_name = "DIR")]
    pub apply: Option<PathBuf>,
    /// Folders of CRDs that are installed besides those that the guest names; may be repeated.
    #[arg(long, value_name = "DIR")]
    pub crds: Vec<PathBuf>,
    /// The processor's configuration: a YAML or JSON file; for several guests, `PACKAGE=FILE` for
    /// each.
    #[arg(long, value_name = "FILE")]
    pub config: Vec<String>,
    /// The file or folder of the objects that exist at the start, as they were stored, with their
    /// status; the examples are not applied.
    #[arg(long, value_name = "DIR")]
    pub load: Option<PathBuf>,
    /// The folder that the objects are written to at the end, a file for each kind, which only
    /// their owner can read. Secrets, and objects that hold credentials which a guest declares, are
    /// left out, but with --show-secrets: then the folder holds their values.
    #[arg(long, value_name = "DIR")]
    pub save: Option<PathBuf>,
    /// Another cluster, an API in memory with the objects of a file or folder: the namespace, the
    /// name and the key of the Secret that holds its kubeconfig, which is created; may be repeated.
    /// `,namespace=NAMESPACE` may follow, the namespace in the kubeconfig. Takes precedence over
    /// the cluster of that name in the guest's manifest.
    #[arg(long, value_name = "NAME=DIR")]
    pub cluster: Vec<ClusterFolder>,
    /// A system outside of the cluster that the guests may call, besides those of their companions;
    /// may be repeated. It may have private addresses only if HOST:PORT names the one to connect
    /// to instead; CA is a file of the authorities of its certificate, in PEM. None: nothing is
    /// called.
    #[arg(long, value_name = "ORIGIN[=HOST:PORT[,CA]]", conflicts_with = "api_only")]
    pub egress: Vec<EgressOption>,
    /// Creates a Pod for each replica of Deployments, `StatefulSets` and `DaemonSets`, and marks
    /// all of these ready, as the controllers and a kubelet would.
    #[arg(long)]
    pub ready: bool,
    /// Prints lines instead of the live view; the default if standard output is not a terminal.
    #[arg(long)]
    pub plain: bool,
    /// The address of the host's `/livez`, `/readyz` and `/metrics`, such as `127.0.0.1:9090`; not
    /// served if absent.
    #[arg(long, value_name = "ADDR", value_parser = value::address, conflicts_with = "api_only")]
    pub listen: Option<SocketAddr>,
    /// Starts the API alone, with the objects of --apply and --load.
    #[arg(long, conflicts_with_all = ["guests", "config"])]
    pub api_only: bool,
    /// Prints the values of Secrets and of declared credentials.
    #[arg(long)]
    pub show_secrets: bool,
    /// The libraries of the guests, and the limits of their calls.
    #[command(flatten)]
    pub with: ModuleArgs,
}

/// `mortise simulate`.
#[derive(Debug, clap::Args)]
pub struct SimulateArgs {
    /// The processor: a WebAssembly component, or the folder of a guest, which is built.
    #[arg(long, value_name = "FILE")]
    pub module: PathBuf,
    /// The objects that exist: files of YAML documents, JSON objects or JSON lists, or folders of
    /// such files.
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    pub objects: Vec<PathBuf>,
    /// The processor's configuration: a YAML or JSON file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folders of CRDs; may be repeated.
    #[arg(long, value_name = "DIR")]
    pub crds: Vec<PathBuf>,
    /// Another cluster, an API in memory with the objects of a file or folder, as with `mortise
    /// dev`; may be repeated. It has the CRDs of --crds too.
    #[arg(long, value_name = "NAME=DIR")]
    pub cluster: Vec<ClusterFolder>,
    /// The time of all calls (RFC 3339); the present time if absent.
    #[arg(long, value_name = "TIME", value_parser = value::time)]
    pub now: Option<jiff::Timestamp>,
    /// A kind to treat as unknown, as if its CRD were not installed: one that the processor
    /// declares, or whose CRD is given; may be repeated. Its objects are left out.
    #[arg(long, value_name = "PLURAL.GROUP")]
    pub missing_kind: Vec<String>,
    /// Loads the objects without the validation of their CRDs, like objects that were stored under
    /// an older schema.
    #[arg(long)]
    pub no_validate: bool,
    /// Reconciles only this object; its kind may be the plural, in any case.
    #[arg(long, value_name = "KIND/NAMESPACE/NAME")]
    pub only: Option<String>,
    /// The maximum number of rounds; 100 if absent. Keys that are still queued then are reported on
    /// standard error.
    #[arg(long, value_name = "N", value_parser = value::count)]
    pub rounds: Option<u32>,
    /// Sends the calls to systems outside of the cluster that read only (GET and HEAD), within
    /// what the processor declares; without this option, they are refused. Any other call ends the
    /// simulation.
    #[arg(long)]
    pub call_safe: bool,
    /// A system outside of the cluster that --call-safe may call, as with `mortise dev`; may be
    /// repeated. All that the processor declares, at public addresses, if absent.
    #[arg(long, value_name = "ORIGIN[=HOST:PORT[,CA]]", requires = "call_safe")]
    pub egress: Vec<EgressOption>,
    /// Answers the calls to systems outside of the cluster from a file, in the format of the
    /// `calls.yaml` of a case; nothing is sent.
    #[arg(long, value_name = "FILE", conflicts_with = "call_safe")]
    pub answers: Option<PathBuf>,
    /// The format of the result; a coloured difference if absent.
    #[arg(short, long, value_name = "FORMAT")]
    pub output: Option<Output>,
    /// Prints the values of Secrets and of declared credentials.
    #[arg(long)]
    pub show_secrets: bool,
    /// The libraries of the module, and the limits of its calls.
    #[command(flatten)]
    pub with: ModuleArgs,
}

/// Parses the namespace and the name of an object.
fn place(text: &str) -> Result<Account, String> {
    let refused = |_| "NAMESPACE/NAME is expected, as `kyma-system/api-rule`".to_owned();
    text.parse().map_err(refused)
}

/// `mortise inspect`.
#[derive(Debug, clap::Args)]
pub struct InspectArgs {
    /// The processor: a WebAssembly component, the folder of a guest, which is built, or a
    /// reference to an artifact.
    #[arg(value_name = "FILE|REF")]
    pub module: PathBuf,
    /// The processor's configuration: a YAML or JSON file. The processor's declarations may depend
    /// on it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Prints the minimal Roles of the processor, as YAML that can be applied.
    #[arg(long)]
    pub rbac: bool,
    /// The account that the roles are bound to.
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "rbac")]
    pub service_account: Option<Account>,
    /// Prints the objects that configure the webhooks of this Processor, as YAML: a Service, the
    /// conversion of the CRDs of its kinds, and webhook configurations. Each but the Service needs
    /// a `caBundle`.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = place, conflicts_with = "rbac")]
    pub webhooks: Option<Account>,
    /// The Service of the webhooks.
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        value_parser = place,
        requires = "webhooks",
        default_value = "mortise/mortise-webhooks"
    )]
    pub service: Account,
    /// Folders of CRDs, for the plurals of kinds, besides those that a guest names; may be
    /// repeated.
    #[arg(long, value_name = "DIR")]
    pub crds: Vec<PathBuf>,
    /// The format of the output; text for people if absent.
    #[arg(short, long, value_name = "FORMAT")]
    pub output: Option<Structured>,
    /// The libraries of the module, and the limits of its calls.
    #[command(flatten)]
    pub with: ModuleArgs,
    /// The options of the registry client, and its credentials.
    #[command(flatten)]
    pub client: RegistryClientArgs,
}

/// `mortise diff`.
#[derive(Debug, clap::Args)]
pub struct DiffArgs {
    /// The module that runs: a component, the folder of a guest, which is built, or a reference to
    /// an artifact.
    #[arg(value_name = "FILE|REF")]
    pub before: PathBuf,
    /// The module that replaces it.
    #[arg(value_name = "FILE|REF")]
    pub after: PathBuf,
    /// The configuration of both modules: a YAML or JSON file. Their declarations may depend on it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folders of CRDs, for the plurals of kinds, besides those that a guest names; may be
    /// repeated.
    #[arg(long, value_name = "DIR")]
    pub crds: Vec<PathBuf>,
    /// The format of the output; text for people if absent.
    #[arg(short, long, value_name = "FORMAT")]
    pub output: Option<Output>,
    /// The libraries of the modules, and the limits of their calls.
    #[command(flatten)]
    pub with: ModuleArgs,
    /// The options of the registry client, and its credentials.
    #[command(flatten)]
    pub client: RegistryClientArgs,
}

/// `mortise sign`.
#[derive(Debug, clap::Args)]
pub struct SignArgs {
    /// The component: a reference to an artifact, or a file. The signature of FILE is written to
    /// FILE.sig.
    #[arg(value_name = "REF|FILE")]
    pub what: PathBuf,
    /// The private key: one of cosign, with its password in `COSIGN_PASSWORD`, or an ECDSA key on
    /// P-256 in PKCS #8 (PEM).
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// The password of the key.
    #[arg(long, env = "COSIGN_PASSWORD", hide_env_values = true, hide = true, default_value = "")]
    pub password: String,
    /// The format of the signature.
    #[arg(long, value_name = "FORMAT", default_value = "bundle")]
    pub format: SignatureFormat,
    /// The options of the registry client, and its credentials.
    #[command(flatten)]
    pub client: RegistryClientArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SignatureFormat {
    /// The format of cosign 3: a bundle, which refers to the artifact.
    Bundle,
    /// The format of cosign 2: the tag `sha256-….sig`; for a file, the plain signature.
    Tag,
}

/// `mortise verify`.
#[derive(Debug, clap::Args)]
pub struct VerifyArgs {
    /// The component: a reference to an artifact, or a file. The signature of FILE is FILE.sig.
    #[arg(value_name = "REF|FILE")]
    pub what: PathBuf,
    /// A public key (PEM), as in `spec.verification.keys`; a signature by one of several is enough.
    #[arg(long, value_name = "FILE", required = true)]
    pub key: Vec<PathBuf>,
    /// The options of the registry client, and its credentials.
    #[command(flatten)]
    pub client: RegistryClientArgs,
}

/// `mortise completion`.
#[derive(Debug, clap::Args)]
pub struct CompletionArgs {
    /// The shell.
    pub shell: clap_complete::Shell,
}

/// `mortise bench`.
#[derive(Debug, clap::Args)]
pub struct BenchArgs {
    /// The processor: a WebAssembly component, or the folder of a guest, which is built; and a
    /// second one to compare it with.
    #[arg(value_name = "FILE", required = true, num_args = 1..=2)]
    pub modules: Vec<PathBuf>,
    /// The objects that exist: files of YAML documents, JSON objects or JSON lists, or folders of
    /// such files.
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    pub objects: Vec<PathBuf>,
    /// Calls only this object; its kind may be the plural, in any case.
    #[arg(long, value_name = "KIND/NAMESPACE/NAME")]
    pub only: Option<String>,
    /// The configuration of both modules: a YAML or JSON file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folders of CRDs; may be repeated.
    #[arg(long, value_name = "DIR")]
    pub crds: Vec<PathBuf>,
    /// The time of all calls (RFC 3339); the present time if absent.
    #[arg(long, value_name = "TIME", value_parser = value::time)]
    pub now: Option<jiff::Timestamp>,
    /// Loads the objects without the validation of their CRDs, like objects that were stored under
    /// an older schema.
    #[arg(long)]
    pub no_validate: bool,
    /// The total time to measure, in seconds; each object is called at least once.
    #[arg(long, value_name = "N", value_parser = value::count, default_value_t = 4)]
    pub seconds: u32,
    /// The format of the output; text for people if absent.
    #[arg(short, long, value_name = "FORMAT")]
    pub output: Option<Output>,
    /// The libraries of the modules, and the limits of their calls.
    #[command(flatten)]
    pub with: ModuleArgs,
}

/// A machine-readable output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Structured {
    /// A JSON document.
    Json,
    /// YAML.
    Yaml,
}

/// `mortise new`.
#[derive(Debug, clap::Args)]
pub struct NewArgs {
    /// The name by which users will know the guest: `my-guest`.
    pub name: String,
    /// The kind to reconcile: GROUP/VERSION/KIND, or VERSION/KIND for the core group; a new kind
    /// with the guest's name if absent.
    #[arg(long, value_name = "KIND")]
    pub kind: Option<String>,
    /// The folder to create; if absent, one with the guest's name in the current folder.
    #[arg(long, value_name = "DIR")]
    pub path: Option<PathBuf>,
    /// The language of the guest.
    #[arg(long, value_name = "LANGUAGE", default_value = "rust")]
    pub language: NewLanguage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NewLanguage {
    /// A crate that depends on mortise-sdk.
    Rust,
    /// A folder with a mortise.toml, built by componentize-py.
    Python,
    /// A folder with a mortise.toml, built by componentize-js.
    Typescript,
}

/// `mortise test`.
#[derive(Debug, clap::Args)]
pub struct TestArgs {
    /// The guest's folder, which is built, or a WebAssembly component.
    #[arg(value_name = "GUEST_DIR|FILE.wasm")]
    pub target: PathBuf,
    /// The folder that holds a folder for each case; the guest's own if absent.
    #[arg(long, value_name = "DIR")]
    pub cases: Option<PathBuf>,
    /// Files or folders of CRDs besides those that the guest names; may be repeated.
    #[arg(long, value_name = "DIR")]
    pub crds: Vec<PathBuf>,
    /// Runs only the cases whose names hold this text.
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// Writes the results to expected.yaml where they differ.
    #[arg(long)]
    pub update: bool,
    /// The format of the result; lines for people if absent.
    #[arg(short, long, value_name = "FORMAT")]
    pub output: Option<TestOutput>,
    /// The file to write --output to; standard output if absent.
    #[arg(long, value_name = "FILE", requires = "output")]
    pub output_file: Option<PathBuf>,
    /// The libraries of the component, and the limits of its calls.
    #[command(flatten)]
    pub with: ModuleArgs,
}

/// A machine-readable result of tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TestOutput {
    /// A report in XML, as CI systems read it.
    Junit,
}

/// A machine-readable output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A JSON document.
    Json,
}

// === impl ModuleArgs ===

impl ModuleArgs {
    /// Returns the limits of a call, those of the host where an option is absent.
    ///
    /// # Errors
    ///
    /// Fails, with what is accepted, for an option that is no limit.
    pub fn limits(&self) -> Result<Limits, String> {
        limits_of_call("--", self.memory.as_deref(), self.deadline.as_deref())
            .map_err(|message| message.replacen("--.", "--", 1))
    }
}

// === impl ClusterFolder ===

impl FromStr for ClusterFolder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('=').and_then(|(name, rest)| {
            let (objects, namespace) = match rest.rsplit_once(",namespace=") {
                Some((objects, namespace)) => (objects, Some(namespace)),
                None => (rest, None),
            };
            Self::new(name, objects.into(), namespace)
        });
        parsed.ok_or_else(|| {
            "NAME=DIR is expected, as `shop/provider/kubeconfig=provider`, and as needed `,namespace=NAMESPACE`"
                .to_owned()
        })
    }
}

impl ClusterFolder {
    /// Returns a cluster; `None` if its name is not one, or a part is empty.
    pub fn new(name: &str, objects: PathBuf, namespace: Option<&str>) -> Option<Self> {
        cluster_secret(name)?;
        let namespace = namespace.unwrap_or("default").to_owned();
        let is_given = !objects.as_os_str().is_empty() && !namespace.is_empty();
        is_given.then(|| Self { name: name.to_owned(), objects, namespace })
    }

    /// Returns the namespace and the name of the Secret, and the key of the kubeconfig in it.
    pub fn secret(&self) -> Option<(&str, &str, &str)> {
        cluster_secret(&self.name)
    }
}

// === impl EgressOption ===

impl FromStr for EgressOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (origin, rest) = match text.split_once('=') {
            Some((origin, rest)) => (origin, Some(rest)),
            None => (text, None),
        };
        let (connect, authorities) = match rest.map(|rest| rest.split_once(',')) {
            Some(Some((connect, file))) => (Some(connect), Some(file)),
            Some(None) => (rest, None),
            None => (None, None),
        };
        let is_empty = [connect, authorities].into_iter().flatten().any(str::is_empty);
        if origin.is_empty() || is_empty {
            return Err("ORIGIN is expected, as `https://*.example.com`, and as needed =HOST:PORT and ,CA: `https://*.example.com=127.0.0.1:8443,ca.pem`".to_owned());
        }
        Ok(Self {
            origin: origin.to_owned(),
            connect: connect.map(str::to_owned),
            authorities: authorities.map(PathBuf::from),
        })
    }
}

// === impl LibraryFile ===

impl FromStr for LibraryFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            "INTERFACE=FILE is expected, as `example:shouting/shout@1.0.0=shout.wasm`, and as needed `,memory=256Mi` and `,deadline=30s`"
                .to_owned()
        };
        let mut parts = text.split(',');
        let (interface, path) =
            parts.next().and_then(|part| part.split_once('=')).ok_or_else(expected)?;
        let (mut memory, mut deadline) = (None, None);
        for part in parts {
            match part.split_once('=') {
                Some(("memory", value)) => memory = Some(value),
                Some(("deadline", value)) => deadline = Some(value),
                _ => return Err(expected()),
            }
        }
        if interface.is_empty() || path.is_empty() {
            return Err(expected());
        }
        let limits = limits_of_call(interface, memory, deadline)?;
        Ok(Self { interface: interface.to_owned(), path: path.into(), limits })
    }
}
