//! The options of `mortise run`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::Context as _;
use mortise_core::{key::NamespacedName, outbound::Origin};

use super::{RegistryArgs, value};
use crate::{
    cluster::{lease::Times, remote::Servers, secret_name},
    host::Bounds,
    oci::signature::Policy,
    operator::Largest,
    telemetry::LogFormat,
    wasm::CompileLimits,
    webhooks::Alias,
};

/// `mortise run`.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// The kubeconfig: the address of the cluster and the credentials. If absent, the files that
    /// KUBECONFIG names or ~/.kube/config, else the pod's account.
    #[arg(long, env = "MORTISE_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; its current one if absent.
    #[arg(long, env = "MORTISE_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,
    /// The namespace whose Processors are run; those of all namespaces if absent.
    #[arg(long, env = "MORTISE_NAMESPACE", value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// The folder in which a Processor's `spec.module.path` is looked up.
    #[arg(long, env = "MORTISE_MODULES", value_name = "DIR")]
    pub modules: PathBuf,
    /// The signatures that all modules need, in addition to those of `spec.verification`: a YAML
    /// file of `rules`, each with a `prefix` of images or of paths below /modules/, and `keys` in
    /// PEM or `unsigned: true`. A module that no rule covers is not loaded.
    #[arg(long, env = "MORTISE_REQUIRE_SIGNATURES", value_name = "FILE")]
    pub require_signatures: Option<PathBuf>,
    /// The time after which a tag in `spec.module.image` is resolved again, in seconds.
    #[arg(
        long,
        env = "MORTISE_IMAGE_INTERVAL_SECONDS",
        value_name = "N",
        default_value_t = 300,
        value_parser = clap::value_parser!(u32).range(1..=86_400)
    )]
    pub image_interval_seconds: u32,
    /// The disk space of modules from registries in --cache, in MiB. A namespace gets half of what
    /// the others leave. Modules that Processors name, run or may roll back to are kept; the others
    /// are removed, the least recently used first.
    #[arg(
        long,
        env = "MORTISE_MAX_MODULES_MIB",
        value_name = "N",
        default_value_t = 2048,
        value_parser = clap::value_parser!(u32).range(64..=1 << 20)
    )]
    pub max_modules_mib: u32,
    /// The options of the registry client.
    #[command(flatten)]
    pub registry: RegistryArgs,
    /// The address of `/livez`, `/readyz` and `/metrics`; port 0: a free one.
    #[arg(long, env = "MORTISE_LISTEN", value_name = "ADDR", default_value = "0.0.0.0:8080", value_parser = value::address)]
    pub listen: SocketAddr,
    /// The address of the pages that name objects, as JSON: `/host`, `/processors`, `/keys`,
    /// `/reports`, `/records`, `/started` and `/watches`. Everyone who reaches this address can
    /// read them.
    #[arg(long, env = "MORTISE_ADMIN", value_name = "ADDR", default_value = "127.0.0.1:8081", value_parser = value::address)]
    pub admin: SocketAddr,
    /// A name by which clients reach --admin, such as that of a Service; may be repeated. Requests
    /// to other hosts are refused, except to IP addresses and `localhost`, and those of web pages.
    #[arg(long, env = "MORTISE_ADMIN_HOST", value_name = "NAME", value_delimiter = ',', value_parser = value::host)]
    pub admin_host: Vec<String>,
    /// The address of the webhooks for conversion and admission, over TLS; port 0: a free one. Not
    /// served if absent.
    #[arg(long, env = "MORTISE_WEBHOOKS", value_name = "ADDR", value_parser = value::address, requires = "webhook_certificate")]
    pub webhooks: Option<SocketAddr>,
    /// The Secret with the certificate of the webhooks: `tls.crt` and `tls.key`; required with
    /// --webhooks. It is read again when it changes.
    #[arg(
        long,
        env = "MORTISE_WEBHOOK_CERTIFICATE",
        value_name = "NAMESPACE/NAME",
        value_parser = secret_name,
        requires = "webhooks"
    )]
    pub webhook_certificate: Option<NamespacedName>,
    /// A file with certificates of authorities, in PEM, read again when it changes. If given,
    /// admissions are answered only to callers with a certificate of one of them, which
    /// kube-apiserver sends if its --admission-control-config-file names one. With conversions it
    /// sends none.
    #[arg(long, env = "MORTISE_WEBHOOK_CLIENT_CA", value_name = "FILE", requires = "webhooks")]
    pub webhook_client_ca: Option<PathBuf>,
    /// Serves the path OLD, which stored configurations name, as the path NEW of this host:
    /// `/convert=/convert/kyma-system/api-rule`; may be repeated.
    #[arg(
        long = "webhook-path",
        env = "MORTISE_WEBHOOK_PATHS",
        value_name = "OLD=NEW",
        value_delimiter = ',',
        requires = "webhooks"
    )]
    pub webhook_paths: Vec<Alias>,
    /// The number of threads for processors and the rest of the host; the number of CPUs that the
    /// host may use if absent.
    #[arg(
        long,
        env = "MORTISE_WORKERS",
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=1024)
    )]
    pub workers: Option<u16>,
    /// The format of the log: lines for people, or one JSON object per line.
    #[arg(long, env = "MORTISE_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
    /// Reconciles every object until no key is ready to run, then ends.
    #[arg(long, env = "MORTISE_ONCE")]
    pub once: bool,
    /// The time for running calls and their writes to end on shutdown, in seconds.
    #[arg(long, env = "MORTISE_DRAIN_SECONDS", value_name = "N", default_value_t = 25, value_parser = value::count)]
    pub drain_seconds: u32,
    /// The memory limit for compiling a module, in MiB. Each compiler is a process of its own, and
    /// two may run at once. A module that takes more is not loaded.
    #[arg(
        long,
        env = "MORTISE_COMPILE_MEMORY_MIB",
        value_name = "N",
        default_value_t = CompileLimits::default().memory_mib,
        value_parser = value::mebibytes()
    )]
    pub compile_memory_mib: u32,
    /// The limit on CPU time for compiling a module, in seconds. A module that takes more is not
    /// loaded.
    #[arg(
        long,
        env = "MORTISE_COMPILE_SECONDS",
        value_name = "N",
        default_value_t = CompileLimits::default().seconds,
        value_parser = value::compile_seconds()
    )]
    pub compile_seconds: u32,
    /// The maximum number of watches for the declarations and reads of one processor; a watch that
    /// several processors share counts for each. Above it, the processor's reads are answered as
    /// unavailable.
    #[arg(
        long,
        env = "MORTISE_MAX_WATCHES",
        value_name = "N",
        default_value_t = 256,
        value_parser = clap::value_parser!(u32).range(1..=100_000)
    )]
    pub max_watches: u32,
    /// The maximum size of the objects that are stored for one processor, in MiB; objects that are
    /// stored for several processors count for each. Above it, the processor's reads are answered
    /// as unavailable.
    #[arg(
        long,
        env = "MORTISE_MAX_STORE_MIB",
        value_name = "N",
        default_value_t = 256,
        value_parser = clap::value_parser!(u32).range(1..=1 << 20)
    )]
    pub max_store_mib: u32,
    /// The memory of all calls and of the tables of all loaded modules together, in MiB. The calls of
    /// one processor get no more of it than is left for others, those of a namespace three times as
    /// much. If absent: the memory limit of the container, minus that of two compilers, 320 MiB for
    /// the host itself and with --webhooks 256 MiB for reviews, at least 256; 1024 if the container
    /// has no limit.
    #[arg(
        long,
        env = "MORTISE_CALL_MEMORY_MIB",
        value_name = "N",
        value_parser = value::mebibytes()
    )]
    pub call_memory_mib: Option<u32>,
    /// The maximum of `spec.limits.memory`, and of that of a library, in MiB.
    #[arg(
        long,
        env = "MORTISE_MAX_MEMORY_MIB",
        value_name = "N",
        default_value_t = Largest::default().memory_mib,
        value_parser = clap::value_parser!(u32).range(1..=4096)
    )]
    pub max_memory_mib: u32,
    /// The maximum of `spec.limits.deadline`, and of that of a library, in seconds.
    #[arg(
        long,
        env = "MORTISE_MAX_DEADLINE_SECONDS",
        value_name = "N",
        default_value_t = 60,
        value_parser = clap::value_parser!(u32).range(1..=600)
    )]
    pub max_deadline_seconds: u32,
    /// The maximum of `spec.limits.concurrency`.
    #[arg(
        long,
        env = "MORTISE_MAX_CONCURRENCY",
        value_name = "N",
        default_value_t = Largest::default().concurrency,
        value_parser = clap::value_parser!(u32).range(1..=256)
    )]
    pub max_concurrency: u32,
    /// The servers of other clusters that `spec.clusters` of Processors may grant, as
    /// `https://10.0.0.7:6443` or `https://*.provider.example:6443`; may be repeated. No other
    /// cluster is used if absent.
    #[arg(long, env = "MORTISE_CLUSTERS", value_name = "SERVER", value_delimiter = ',')]
    pub clusters: Vec<Servers>,
    /// The origins outside of the cluster that `spec.egress` of Processors may grant, as
    /// `https://api.example.com` or `https://*.api.example.com`, where `*` stands for one label; may
    /// be repeated. Nothing is called if absent.
    #[arg(long, env = "MORTISE_EGRESS", value_name = "ORIGIN", value_delimiter = ',')]
    pub egress: Vec<Origin>,
    /// Lets `spec.egress` of Processors grant addresses that are not public (`private`), and name
    /// what is connected to (`connect`).
    #[arg(long, env = "MORTISE_EGRESS_PRIVATE")]
    pub egress_private: bool,
    /// Writes only while this host holds a Lease, so that several hosts can run: one leads, the
    /// others stand by.
    #[arg(long, env = "MORTISE_LEADER_ELECT")]
    pub leader_elect: bool,
    /// The name of the Lease, and its times.
    #[command(flatten)]
    pub lease: LeaseArgs,
}

/// The options of the Lease.
#[derive(Debug, clap::Args)]
pub struct LeaseArgs {
    /// The namespace of the Lease; if absent, that of the pod, or of the context.
    #[arg(long, env = "MORTISE_LEASE_NAMESPACE", value_name = "NAMESPACE")]
    pub lease_namespace: Option<String>,
    /// The name of the Lease.
    #[arg(long, env = "MORTISE_LEASE_NAME", value_name = "NAME", default_value = "mortise")]
    pub lease_name: String,
    /// The time without a renewal after which another host takes the Lease, in seconds.
    #[arg(
        long,
        env = "MORTISE_LEASE_SECONDS",
        value_name = "N",
        default_value_t = 15,
        value_parser = clap::value_parser!(u32).range(1..=3600)
    )]
    pub lease_seconds: u32,
    /// The time without a renewal after which the host that holds the Lease ends, in seconds; the
    /// difference to --lease-seconds is the time for a write.
    #[arg(long, env = "MORTISE_LEASE_RENEW_SECONDS", value_name = "N", default_value_t = 10, value_parser = value::count)]
    pub lease_renew_seconds: u32,
    /// The time between two attempts to get or renew the Lease, in seconds.
    #[arg(long, env = "MORTISE_LEASE_RETRY_SECONDS", value_name = "N", default_value_t = 2, value_parser = value::count)]
    pub lease_retry_seconds: u32,
}

// === impl RunArgs ===

impl RunArgs {
    /// Returns the bounds on what one processor's declarations may make the host hold.
    pub fn bounds(&self) -> Bounds {
        let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Bounds { watches: number(self.max_watches), store_mib: number(self.max_store_mib) }
    }

    /// Returns the signatures that all modules need, if an option names them.
    ///
    /// # Errors
    ///
    /// Fails for a file that cannot be read, or holds something else.
    pub fn policy(&self) -> anyhow::Result<Option<Policy>> {
        let Some(path) = &self.require_signatures else { return Ok(None) };
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read `--require-signatures {shown}`"))?;
        let policy = Policy::parse(&text);
        Ok(Some(policy.with_context(|| format!("cannot use `--require-signatures {shown}`"))?))
    }

    /// Returns the limits on the compilation of one module.
    pub fn compile_limits(&self) -> CompileLimits {
        CompileLimits { memory_mib: self.compile_memory_mib, seconds: self.compile_seconds }
    }

    /// Returns the upper bounds on the limits of a Processor.
    pub fn largest(&self) -> Largest {
        Largest {
            memory_mib: self.max_memory_mib,
            deadline: Duration::from_secs(self.max_deadline_seconds.into()),
            concurrency: self.max_concurrency,
        }
    }
}

// === impl LeaseArgs ===

impl LeaseArgs {
    /// Returns the durations of the leader election.
    ///
    /// # Errors
    ///
    /// Fails for times that leave no room for a second attempt, or for a write.
    pub fn times(&self) -> anyhow::Result<Times> {
        let (lease, renew, retry) =
            (self.lease_seconds, self.lease_renew_seconds, self.lease_retry_seconds);
        anyhow::ensure!(
            0 < retry && retry < renew && renew < lease,
            "`--lease-retry-seconds {retry}`, `--lease-renew-seconds {renew}` and `--lease-seconds {lease}` do not fit: \
             each must be more than the one before, the first at least 1"
        );
        let seconds = |number: u32| Duration::from_secs(number.into());
        Ok(Times { duration: seconds(lease), renew: seconds(renew), retry: seconds(retry) })
    }
}
