//! The home cluster: its address, whether the host can use it, and the host's account there. Each
//! error is reported in one sentence, before any part is started.

use std::{fmt::Write as _, path::Path, time::Duration};

use anyhow::Context as _;
use k8s_openapi::api::{
    authentication::v1::SelfSubjectReview,
    authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
};
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use mortise_core::{error_chain, key::NamespacedName};
use serde_json::{Map, Value};
use tracing::warn;

use super::version;
use crate::{args::RunArgs, cluster, http::shown};

/// The time limit for the cluster's answers at startup.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The prefix of rustls' message about a rejected server certificate.
const NOT_ACCEPTED: &str = "invalid peer certificate: ";

pub(super) struct Home {
    /// A client with the host's own rights.
    pub(super) client: Client,
    /// A client for the Secret of the webhooks' certificate, and its name, if one is given.
    pub(super) certificate: Option<(Client, NamespacedName)>,
    /// The namespace of the pod, or of the kubeconfig context.
    pub(super) namespace: String,
    /// The user name that the API server reports for the host.
    pub(super) user: String,
    /// The version that the cluster reports.
    pub(super) version: String,
    /// The address of the API server.
    pub(super) address: String,
    shown: Shown,
}

/// The type of the credentials that are sent to a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    Certificate,
    Token,
    Password,
    /// No credentials, or those of a credential plugin.
    Other,
}

/// A right that the host itself needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) verbs: &'static [&'static str],
    pub(super) group: &'static str,
    /// The plural, with a subresource after a slash.
    pub(super) resource: &'static str,
    /// The object's name; `None` for any name.
    pub(super) name: Option<String>,
    /// The namespace; `None` for all namespaces.
    pub(super) namespace: Option<String>,
}

// === impl Home ===

impl Home {
    /// Connects to the cluster, and requests its version and the host's user name.
    ///
    /// # Errors
    ///
    /// Fails if no cluster is configured, if it does not answer, if it rejects the host's
    /// credentials, or if it is too old.
    pub(super) async fn connect(args: &RunArgs) -> anyhow::Result<Self> {
        let config = config(args).await?;
        let (address, namespace) =
            (config.cluster_url.to_string(), config.default_namespace.clone());
        let address = address.trim_end_matches('/').to_owned();
        let shown = Shown::of(&config.auth_info);
        let client = client(config)?;
        let certificate = args.webhook_certificate.as_ref();
        let certificate = certificate.map(|of| (cluster::only_secret(&client, of), of.clone()));
        let client = cluster::only_own(&client);
        let asked = async {
            let version = version::check(&client, shown).await?;
            let user = whoami(&client, shown).await?;
            anyhow::Ok((version, user))
        };
        let answered = tokio::time::timeout(ANSWER_TIMEOUT, asked).await;
        let (version, user) = answered
            .unwrap_or_else(|_| Err(anyhow::anyhow!("no answer within {ANSWER_TIMEOUT:?}")))
            .with_context(|| format!("cannot work with the cluster at {address}"))?;
        Ok(Self { client, certificate, namespace, user, version, address, shown })
    }

    /// Returns the facts about the cluster that the admin port shows.
    pub(super) fn about(&self) -> Map<String, Value> {
        let fields = [
            ("mortise", env!("CARGO_PKG_VERSION")),
            ("cluster", &self.address),
            ("kubernetes", &self.version),
            ("user", &self.user),
        ];
        let workers = tokio::runtime::Handle::current().metrics().num_workers();
        let fields = fields.map(|(name, value)| (name.to_owned(), value.into())).into_iter();
        fields.chain([("workers".to_owned(), workers.into())]).collect()
    }

    /// Checks that the host has all these rights.
    ///
    /// # Errors
    ///
    /// Fails if the host lacks rights, and lists them.
    pub(super) async fn check(&self, needs: &[Need]) -> anyhow::Result<()> {
        let asked = needs.iter().flat_map(|need| need.verbs.iter().map(move |verb| (need, *verb)));
        let answers = futures::future::try_join_all(
            asked.map(async |(need, verb)| anyhow::Ok((need, verb, self.may(need, verb).await?))),
        );
        let answers = tokio::time::timeout(ANSWER_TIMEOUT, answers).await;
        let answers =
            answers.with_context(|| format!("no answer within {ANSWER_TIMEOUT:?}")).flatten();
        let answers = answers.context("cannot ask the cluster what the host may do")?;
        let refused: Vec<(&Need, &str)> = answers
            .into_iter()
            .filter(|(.., may)| !may)
            .map(|(need, verb, _)| (need, verb))
            .collect();
        anyhow::ensure!(
            refused.is_empty(),
            "`{}` may not {}: bind it to a role that allows it",
            self.user,
            listed(&refused)
        );
        Ok(())
    }

    async fn may(&self, need: &Need, verb: &str) -> anyhow::Result<bool> {
        let (resource, subresource) = need.resource.split_once('/').unwrap_or((need.resource, ""));
        let attributes = ResourceAttributes {
            group: Some(need.group.to_owned()),
            resource: Some(resource.to_owned()),
            subresource: Some(subresource.to_owned()).filter(|of| !of.is_empty()),
            verb: Some(verb.to_owned()),
            name: need.name.clone(),
            namespace: need.namespace.clone(),
            ..ResourceAttributes::default()
        };
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(attributes),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let api: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await;
        let answer = answer.map_err(|error| refused(error, self.shown))?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }
}

/// Formats the refused rights, one part for each resource:
/// `list, watch processors.mortise.dev in shop`.
fn listed(refused: &[(&Need, &str)]) -> String {
    let mut text = String::new();
    for of in refused.chunk_by(|(one, _), (next, _)| one == next) {
        let Some((need, _)) = of.first() else { continue };
        let verbs: Vec<&str> = of.iter().map(|(_, verb)| *verb).collect();
        let comma = if text.is_empty() { "" } else { "; " };
        let dot = if need.group.is_empty() { "" } else { "." };
        let (plural, subresource) = need.resource.split_once('/').unwrap_or((need.resource, ""));
        let slash = if subresource.is_empty() { "" } else { "/" };
        let name = need.name.as_ref().map(|of| format!(" `{of}`")).unwrap_or_default();
        let place = need.namespace.as_ref().map(|of| format!(" in {of}")).unwrap_or_default();
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "{comma}{} {plural}{dot}{}{slash}{subresource}{name}{place}",
            verbs.join(", "),
            need.group
        );
    }
    text
}

/// Returns the address of the cluster and the host's credentials.
async fn config(args: &RunArgs) -> anyhow::Result<Config> {
    let options =
        KubeConfigOptions { context: args.context.clone(), ..KubeConfigOptions::default() };
    let mut config = match &args.kubeconfig {
        Some(path) => from_file(path, &options).await?,
        None => by_default(&options).await?,
    };
    if config.accept_invalid_certs {
        let kubeconfig = args.kubeconfig.as_deref();
        warn!(
            kubeconfig = kubeconfig.map_or("by default".into(), Path::to_string_lossy).as_ref(),
            context = args.context.as_deref().unwrap_or("the current one"),
            cluster = shown(&config.cluster_url.to_string()),
            "the certificate of the API server is not verified (insecure-skip-tls-verify): anybody between can read and change all requests of this host, and read its token"
        );
    }
    // The host retries by itself, and needs to see `Retry-After`.
    config.default_retry = false;
    Ok(config)
}

async fn from_file(path: &Path, options: &KubeConfigOptions) -> anyhow::Result<Config> {
    let of = || format!("cannot use the kubeconfig `{}`", path.display());
    let kubeconfig = Kubeconfig::read_from(path).map_err(unusable).with_context(of)?;
    in_context(kubeconfig, options).await.with_context(of)
}

async fn by_default(options: &KubeConfigOptions) -> anyhow::Result<Config> {
    let of = "cannot use the kubeconfig that KUBECONFIG names, or ~/.kube/config";
    match Kubeconfig::read() {
        Ok(kubeconfig) => in_context(kubeconfig, options).await.context(of),
        Err(error) if is_absent(&error) && options.context.is_none() => {
            Config::incluster().map_err(|in_cluster| {
                anyhow::anyhow!(
                    "no cluster is named: give --kubeconfig, set KUBECONFIG, or run in a pod ({in_cluster})"
                )
            })
        }
        Err(error) => Err(unusable(error)).context(of),
    }
}

async fn in_context(kubeconfig: Kubeconfig, options: &KubeConfigOptions) -> anyhow::Result<Config> {
    let known: Vec<String> =
        kubeconfig.contexts.iter().map(|context| format!("`{}`", context.name)).collect();
    let proxy = proxy_of(&kubeconfig, options);
    let config = Config::from_custom_kubeconfig(kubeconfig, options).await;
    let mut config = config.map_err(|error| match error {
        KubeconfigError::LoadContext(name) => {
            anyhow::anyhow!("no context is called `{name}`; there is: {}", or_none(&known))
        }
        KubeconfigError::CurrentContextNotSet => anyhow::anyhow!(
            "it has no current context: name one with --context; there is: {}",
            or_none(&known)
        ),
        error => unusable(error),
    })?;
    if let Some(proxy) = proxy {
        anyhow::bail!(
            "it names the proxy `{}` (`proxy-url`): API servers are asked without a proxy",
            shown(&proxy)
        );
    }
    // kube takes HTTPS_PROXY from the environment, which is the proxy for registries here.
    config.proxy_url = None;
    Ok(config)
}

/// Returns the proxy that a kubeconfig names for the cluster of its context.
fn proxy_of(kubeconfig: &Kubeconfig, options: &KubeConfigOptions) -> Option<String> {
    let name = options.context.as_ref().or(kubeconfig.current_context.as_ref())?;
    let context = kubeconfig.contexts.iter().find(|of| of.name == *name)?.context.as_ref()?;
    let cluster = kubeconfig.clusters.iter().find(|of| of.name == context.cluster)?;
    cluster.cluster.as_ref()?.proxy_url.clone().filter(|proxy| !proxy.is_empty())
}

fn or_none(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn is_absent(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::FindPath => true,
        KubeconfigError::ReadConfig(error, _) => error.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}

/// Returns why a kubeconfig cannot be used. kube's messages already contain their sources.
fn unusable(error: KubeconfigError) -> anyhow::Error {
    match error {
        KubeconfigError::ReadConfig(error, _) => anyhow::Error::new(error),
        // The parser's message may repeat a token.
        KubeconfigError::Parse(error) => {
            let at = error.location().map(|at| format!(" at line {}", at.line()));
            anyhow::anyhow!("it is no kubeconfig in YAML or JSON{}", at.unwrap_or_default())
        }
        error => anyhow::anyhow!("{}", error.to_string().lines().next().unwrap_or_default()),
    }
}

fn client(config: Config) -> anyhow::Result<Client> {
    let client = Client::try_from(config).map_err(|error| match error {
        kube::Error::Auth(_) => refused(error, Shown::Other),
        // An unusable certificate: the error chain names its file before the innermost cause.
        error => {
            let withheld = cluster::withheld(&error);
            let message = withheld.unwrap_or_else(|| error_chain::without_repeats(&error));
            anyhow::Error::msg(message)
        }
    });
    client.context("cannot get the credentials for the cluster")
}

async fn whoami(client: &Client, shown: Shown) -> anyhow::Result<String> {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = api.create(&PostParams::default(), &SelfSubjectReview::default()).await;
    let review = review.map_err(|error| refused(error, shown))?;
    let user = review.status.and_then(|status| status.user_info?.username);
    user.context("the API server does not name the host's user")
}

/// Returns the error of a failed request, for people.
pub(super) fn refused(error: kube::Error, shown: Shown) -> anyhow::Error {
    match error {
        kube::Error::Api(status) if status.code == 401 => anyhow::anyhow!(
            "it does not accept {} (401): wrong, expired or revoked; renew that, or name another one with --kubeconfig or --context",
            shown.in_words()
        ),
        error => {
            let withheld = cluster::withheld(&error);
            let message = withheld.unwrap_or_else(|| cluster::cause_of(&error));
            match message.strip_prefix(NOT_ACCEPTED) {
                Some(why) => certificate_of_server(why),
                None => anyhow::Error::msg(message),
            }
        }
    }
}

/// Returns why the API server's certificate is rejected, with advice for its administrator and the
/// host's, who may be two people.
fn certificate_of_server(why: &str) -> anyhow::Error {
    let is_of_time = ["expired", "not valid yet"].iter().any(|time| why.contains(time));
    let what_to_do = if is_of_time {
        "renew it there, or correct this machine's clock"
    } else {
        "the kubeconfig names the authority that has to have signed it, and the address that it has to be for"
    };
    anyhow::anyhow!("the certificate that it shows is not accepted: {why}; {what_to_do}")
}

// === impl Shown ===

impl Shown {
    fn of(credentials: &AuthInfo) -> Self {
        let AuthInfo { client_certificate, client_certificate_data, token, token_file, .. } =
            credentials;
        if token.is_some() || token_file.is_some() {
            Self::Token
        } else if client_certificate.is_some() || client_certificate_data.is_some() {
            Self::Certificate
        } else if credentials.username.is_some() {
            Self::Password
        } else {
            Self::Other
        }
    }

    fn in_words(self) -> &'static str {
        match self {
            Self::Certificate => "our client certificate",
            Self::Token => "our token",
            Self::Password => "our user name and password",
            Self::Other => "our credentials",
        }
    }
}
