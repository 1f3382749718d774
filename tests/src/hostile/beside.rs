//! Side actions of attacks.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, api::DeleteParams};
use mortise::local;
use mortise_host::cluster::Cluster;
use rustls::{ClientConfig, pki_types::ServerName};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::interval,
};
use tokio_rustls::TlsConnector;

use super::{
    POLL_INTERVAL,
    attack::{Attack, Beside},
    host,
    registry::TAG,
    tenants::{self, WEBHOOKS},
};
use crate::{rebuilt, registry::fake::Fake, tls};

/// The interval in which the Processor is changed.
const CHANGE_INTERVAL: Duration = Duration::from_millis(10);
/// The interval in which the module is replaced: shorter than the one in which the host reads it.
const MODULE_INTERVAL: Duration = Duration::from_millis(100);
/// The interval in which the module in the registry is replaced: shorter than the one in which the
/// host resolves its tag.
const TAG_INTERVAL: Duration = Duration::from_millis(500);
/// The interval in which slow connections are opened.
const CONNECTION_INTERVAL: Duration = Duration::from_micros(500);

/// The pages of `--admin`.
const PAGES: [&str; 7] =
    ["/host", "/processors", "/keys", "/reports", "/records?key=x", "/started", "/watches"];
/// The interval of requests for them.
const PAGE_INTERVAL: Duration = Duration::from_millis(2);
/// Headers of which a browser sends one if a page reaches `--admin`: by a name of its own, or by the
/// address.
const OF_PAGES: [&str; 3] = [
    "Host: evil.example",
    "Host: localhost\r\nOrigin: http://evil.example",
    "Host: 127.0.0.1\r\nOrigin: null",
];

/// The group of the kind `Thing`.
const GROUP: &str = "hostile.example";
/// The plurals and scopes with which it is defined in turn.
const DEFINED: [(&str, &str); 4] = [
    ("things", "Namespaced"),
    ("things", "Cluster"),
    ("stuffs", "Cluster"),
    ("stuffs", "Namespaced"),
];
/// The time for which each definition stays at least.
const DEFINITION_INTERVAL: Duration = Duration::from_millis(500);

/// Running side actions, which end on drop.
pub(super) type Besides = Vec<JoinSet<Result<()>>>;

/// What side actions change and reach.
pub(super) struct Place<'a> {
    pub(super) admin: &'a Cluster,
    /// The address that serves `/livez`.
    pub(super) public: &'a str,
    /// The address that serves the pages that name objects.
    pub(super) objects: &'a str,
    /// The module that is replaced.
    pub(super) module: &'a Path,
    pub(super) webhooks: &'a Webhooks,
    pub(super) registry: &'a Arc<Fake>,
}

/// The port of webhooks, for a client.
#[derive(Clone)]
pub(super) struct Webhooks {
    address: String,
    config: Arc<ClientConfig>,
}

impl Webhooks {
    pub(super) fn new(address: String, authority: &str) -> Result<Self> {
        let config = tls::trusting(authority)?.with_no_client_auth();
        Ok(Self { address, config: Arc::new(config) })
    }
}

/// Begins the side action of an attack, if there is one.
pub(super) fn begin(attack: &'static Attack, place: &Place<'_>) -> Option<JoinSet<Result<()>>> {
    let Place { admin, public, objects, module, webhooks, registry } = *place;
    let mut tasks = JoinSet::new();
    match attack.beside {
        Beside::Nothing | Beside::Older | Beside::Layers => return None,
        Beside::Changes => drop(tasks.spawn(change(attack, registry.host(), admin.clone()))),
        Beside::Objects(bytes) => {
            drop(tasks.spawn(change_object(attack, admin.clone(), bytes)));
        }
        Beside::Modules => drop(tasks.spawn(replace(module.to_owned()))),
        Beside::Tag => {
            drop(tasks.spawn(retag(attack.module, module.to_owned(), Arc::clone(registry))));
        }
        Beside::Connections(count) => drop(tasks.spawn(connect(count, public.to_owned()))),
        Beside::Handshakes(count) => {
            (0..count).for_each(|_| drop(tasks.spawn(shake_hands(webhooks.clone()))));
        }
        Beside::Definitions => drop(tasks.spawn(define(attack, admin.clone()))),
        Beside::Pages => drop(tasks.spawn(browse(objects.to_owned()))),
        Beside::Reviews { object, bytes } => {
            let objects = vec![object; bytes / (object.len() + 1)].join(",");
            drop(tasks.spawn(review(attack.conversions(), objects, webhooks.clone())));
        }
    }
    Some(tasks)
}

/// Ends side actions, and returns the errors of those that have failed.
pub(super) fn end(besides: Besides) -> Vec<String> {
    let mut errors = Vec::new();
    for mut tasks in besides {
        while let Some(ended) = tasks.try_join_next() {
            if let Err(error) = ended.map_err(anyhow::Error::from).flatten() {
                errors.push(format!("{error:#}"));
            }
        }
    }
    errors
}

/// Has the host compute one handshake after the other.
async fn shake_hands(webhooks: Webhooks) -> Result<()> {
    let mut hello = Vec::new();
    let name = ServerName::try_from(WEBHOOKS)?;
    rustls::ClientConnection::new(webhooks.config, name)?.write_tls(&mut hello)?;
    loop {
        let mut stream = TcpStream::connect(&webhooks.address).await?;
        // The host may close the connection for another one.
        let _ = stream.write_all(&hello).await;
        let _ = stream.read(&mut [0]).await;
    }
}

/// Sends reviews that would take much more memory than their text.
async fn review(path: String, objects: String, webhooks: Webhooks) -> Result<()> {
    let body = format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{{"uid":"u","desiredAPIVersion":"example.com/v2","objects":[{objects}]}}}}"#
    );
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {WEBHOOKS}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    loop {
        let stream = TcpStream::connect(&webhooks.address).await?;
        let connector = TlsConnector::from(Arc::clone(&webhooks.config));
        let mut stream = connector.connect(ServerName::try_from(WEBHOOKS)?, stream).await?;
        stream.write_all(head.as_bytes()).await?;
        // An answer may come before all of it was taken.
        let _ = stream.write_all(body.as_bytes()).await;
        let _ = stream.read(&mut [0; 1024]).await;
    }
}

/// Asks for pages as a browser does for the page of another origin, and fails if it gets one.
async fn browse(objects: String) -> Result<()> {
    let mut due = interval(PAGE_INTERVAL);
    loop {
        for path in PAGES {
            for headers in OF_PAGES {
                due.tick().await;
                let answer = host::ask(&objects, path, headers).await?;
                ensure!(answer.starts_with("HTTP/1.1 403 "), "{path}, {headers}: {answer}");
            }
        }
    }
}

/// Defines a kind that the Processor reconciles in all namespaces, again and again in another way.
async fn define(attack: &'static Attack, admin: Cluster) -> Result<()> {
    tenants::grant_everywhere(&admin, attack, GROUP).await?;
    let all: Api<CustomResourceDefinition> = Api::all(admin.client().clone());
    let mut due = interval(DEFINITION_INTERVAL);
    loop {
        for (plural, scope) in DEFINED {
            for (former, _) in DEFINED {
                undefine(&all, &format!("{former}.{GROUP}")).await?;
            }
            let names = json!({"plural": plural, "kind": "Thing"});
            let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
            let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
            let definition = json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": format!("{plural}.{GROUP}")},
                "spec": {"group": GROUP, "scope": scope, "names": names, "versions": [version]},
            });
            let thing = json!({
                "apiVersion": format!("{GROUP}/v1"), "kind": "Thing",
                "metadata": {"name": plural, "namespace": attack.namespace()},
            });
            local::apply(&admin, vec![definition]).await?;
            // The API server serves the kind some time later.
            while local::apply(&admin, vec![thing.clone()]).await.is_err() {
                admin.forget(GROUP);
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            due.tick().await;
        }
    }
}

/// Deletes a definition, and waits until it is gone.
async fn undefine(all: &Api<CustomResourceDefinition>, name: &str) -> Result<()> {
    while all.get_opt(name).await?.is_some() {
        // It may be gone by now.
        let _ = all.delete(name, &DeleteParams::default()).await;
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

async fn change(attack: &'static Attack, registry: String, admin: Cluster) -> Result<()> {
    let mut due = interval(CHANGE_INTERVAL);
    for number in 1.. {
        due.tick().await;
        let changed = attack.processor(&registry, number);
        local::apply(&admin, vec![changed]).await?;
    }
    Ok(())
}

/// Changes an object that the attack's Processor has read, as often as the API server accepts it.
async fn change_object(attack: &'static Attack, admin: Cluster, bytes: usize) -> Result<()> {
    let data = "x".repeat(bytes);
    let mut due = interval(CHANGE_INTERVAL);
    for number in 0_u64.. {
        due.tick().await;
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": attack.namespace(), "name": "changed"},
            "data": {"text": data, "number": number.to_string()},
        });
        local::apply(&admin, vec![object]).await?;
    }
    Ok(())
}

async fn replace(module: PathBuf) -> Result<()> {
    let bytes = std::fs::read(&module)?;
    let mut due = interval(MODULE_INTERVAL);
    for number in 0_u64.. {
        due.tick().await;
        let unfinished = module.with_extension("unfinished");
        std::fs::write(&unfinished, rebuilt(&bytes, &number.to_string()))?;
        std::fs::rename(&unfinished, &module)?;
    }
    Ok(())
}

/// Replaces a module in the registry.
async fn retag(repository: &str, module: PathBuf, registry: Arc<Fake>) -> Result<()> {
    let bytes = std::fs::read(&module)?;
    let mut due = interval(TAG_INTERVAL);
    for number in 0_u64.. {
        due.tick().await;
        registry.push_to(repository, TAG, &rebuilt(&bytes, &number.to_string()));
    }
    Ok(())
}

/// Opens connections that begin a request and continue it slowly.
async fn connect(count: usize, public: String) -> Result<()> {
    let mut all: Vec<TcpStream> = Vec::new();
    let mut due = interval(CONNECTION_INTERVAL);
    loop {
        due.tick().await;
        if all.len() < count {
            let mut stream = TcpStream::connect(&public).await?;
            // Another connection replaces one that the host has closed.
            if stream.write_all(b"GET /livez HTTP/1.1\r\nX: ").await.is_ok() {
                all.push(stream);
            }
            continue;
        }
        let mut open = Vec::with_capacity(count);
        for mut stream in all {
            if stream.write_all(b"x").await.is_ok() {
                open.push(stream);
            }
        }
        all = open;
    }
}
