//! Kubeconfigs with inline credentials. Whoever writes them is not trusted: what would start a
//! process, read a file, or lead elsewhere is refused by its name.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::HeaderValue;
use mortise_core::contract::bounds::text::quoted;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio_rustls::TlsConnector;

use super::server::is_loopback_address;
use crate::http::{Address, Trust, build_with, shown};

/// The largest kubeconfig, in bytes.
pub(crate) const MAX_KUBECONFIG_BYTES: usize = 256 << 10;
/// The number of values and of entries in a kubeconfig.
const MAX_NODES: usize = 4096;

/// The accepted fields of a cluster and of a user; also accepted, and ignored, are `extensions` and
/// `disable-compression`.
const CLUSTER: [&str; 3] = ["server", "certificate-authority-data", "tls-server-name"];
const USER: [&str; 3] = ["token", "client-certificate-data", "client-key-data"];
const IGNORED: [&str; 2] = ["extensions", "disable-compression"];

/// The reason why a kubeconfig is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(String);

/// The parts of a kubeconfig's current context.
pub(super) struct Kubeconfig {
    pub(super) server: Address,
    /// The name in the server's certificate, if it is not that of the address.
    pub(super) certified: Option<String>,
    pub(super) token: Option<HeaderValue>,
    pub(super) tls: TlsConnector,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct File {
    #[serde(default)]
    current_context: String,
    #[serde(default)]
    contexts: Vec<Named<ContextEntry>>,
    #[serde(default)]
    clusters: Vec<Named<ClusterEntry>>,
    #[serde(default)]
    users: Vec<Named<UserEntry>>,
}

#[derive(Deserialize)]
struct Named<T> {
    name: String,
    #[serde(flatten)]
    entry: T,
}

#[derive(Deserialize)]
struct ContextEntry {
    context: Context,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    #[serde(default)]
    user: String,
}

#[derive(Deserialize)]
struct ClusterEntry {
    cluster: Map<String, Value>,
}

#[derive(Deserialize)]
struct UserEntry {
    user: Map<String, Value>,
}

/// The fields of a cluster or a user, and its name for messages.
struct Part<'a> {
    place: &'static str,
    fields: &'a Map<String, Value>,
}

// === impl Refused ===

impl Refused {
    /// Creates the reason from a sentence, which names what would be accepted.
    pub fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

// === impl Kubeconfig ===

impl Kubeconfig {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Refused> {
        let file = File::parse(bytes)?;
        let current = &file.current_context;
        let context = find(&file.contexts, current, "current-context", "contexts")?;
        let Context { cluster, user } = &context.context;
        let cluster = find(&file.clusters, cluster, "cluster of the context", "clusters")?;
        let nobody = Map::new();
        let user = match user.as_str() {
            "" => &nobody,
            name => &find(&file.users, name, "user of the context", "users")?.user,
        };
        let cluster = Part::new("cluster", &cluster.cluster, &CLUSTER)?;
        let user = Part::new("user", user, &USER)?;
        let server = server(cluster.text("server")?.unwrap_or_default())?;
        let authorities = cluster.decoded("certificate-authority-data")?;
        let chain = user.decoded("client-certificate-data")?;
        let key = user.decoded("client-key-data")?;
        let identity = match (&chain, &key) {
            (Some(chain), Some(key)) => Some((&chain[..], &key[..])),
            (None, None) => None,
            _ => {
                return Err(Refused::new(
                    "`client-certificate-data` and `client-key-data` stand together in `user`",
                ));
            }
        };
        let trust = Trust { authorities: authorities.as_deref(), identity };
        let tls = build_with(&trust).map_err(Refused)?;
        let certified = cluster.text("tls-server-name")?.map(str::to_owned);
        let token = user.text("token")?.map(bearer).transpose()?;
        Ok(Self { server, certified, token, tls })
    }
}

// === impl File ===

impl File {
    fn parse(bytes: &[u8]) -> Result<Self, Refused> {
        if bytes.len() > MAX_KUBECONFIG_BYTES {
            let (size, most) = (bytes.len(), MAX_KUBECONFIG_BYTES >> 10);
            let why = format!("it has {size} bytes, at most {most} KiB are accepted");
            return Err(Refused(why));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| Refused::new("it is not UTF-8"))?;
        // Without anchors there are no aliases, which could expand.
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! {
                max_anchors: 0,
                max_aliases: 0,
                max_documents: 1,
                max_depth: 32,
                max_nodes: MAX_NODES,
                max_events: 4 * MAX_NODES,
            },
            // The text holds credentials.
            with_snippet: false,
        };
        serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let at = error.location().map(|at| format!(" at line {}", at.line()));
            let at = at.unwrap_or_default();
            Refused(format!("it is no kubeconfig in YAML or JSON without anchors and aliases{at}"))
        })
    }
}

// === impl Part ===

impl<'a> Part<'a> {
    /// Fails for a field that is not accepted.
    fn new(
        place: &'static str,
        fields: &'a Map<String, Value>,
        accepted: &[&str],
    ) -> Result<Self, Refused> {
        let is_accepted = |(name, value): &(&String, &Value)| {
            // An empty field says nothing.
            let is_empty =
                value.is_null() || matches!(value.as_str(), Some("")) || **value == false;
            is_empty || [accepted, &IGNORED].iter().any(|list| list.contains(&name.as_str()))
        };
        match fields.iter().find(|field| !is_accepted(field)) {
            Some((name, _)) => Err(Refused(format!(
                "`{place}` has {}, which is not accepted; accepted are `{}`",
                quoted(name),
                accepted.join("`, `")
            ))),
            None => Ok(Self { place, fields }),
        }
    }

    /// Returns a field that is not empty.
    fn text(&self, name: &str) -> Result<Option<&'a str>, Refused> {
        match self.fields.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            Some(_) => Err(Refused(format!("`{name}` of `{}` is a text", self.place))),
        }
    }

    fn decoded(&self, name: &str) -> Result<Option<Vec<u8>>, Refused> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let bytes = STANDARD.decode(text.trim());
        let wrong = |_| Refused(format!("`{name}` of `{}` is PEM in Base64", self.place));
        bytes.map(Some).map_err(wrong)
    }
}

fn find<'a, T>(all: &'a [Named<T>], name: &str, of: &str, list: &str) -> Result<&'a T, Refused> {
    let found = all.iter().find(|one| one.name == name).map(|one| &one.entry);
    let missing = || Refused(format!("the {of} is {}, which `{list}` lacks", quoted(name)));
    found.ok_or_else(missing)
}

fn server(text: &str) -> Result<Address, Refused> {
    let accepted = "`https://HOST:PORT` without user information and query; `http://` with a loopback address only";
    let address = Address::parse(text).filter(|of| !of.path_and_query.contains('?'));
    let address = address.filter(|of| of.is_tls || is_loopback_address(of));
    address.ok_or_else(|| {
        Refused(format!("`server` is {}; {accepted} is accepted", quoted(&shown(text))))
    })
}

fn bearer(token: &str) -> Result<HeaderValue, Refused> {
    let header = HeaderValue::try_from(format!("Bearer {}", token.trim()));
    let mut header = header.map_err(|_| Refused::new("`token` of `user` is no token"))?;
    header.set_sensitive(true);
    Ok(header)
}
