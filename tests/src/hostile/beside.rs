//! Side actions of attacks.

use std::{path::Path, time::Duration};

use anyhow::Result;
use mortise::local;
use mortise_host::cluster::Cluster;
use serde_json::json;
use tokio::{io::AsyncWriteExt as _, net::TcpStream, task::JoinSet, time::interval};

use super::{
    attack::{Attack, Beside},
    benign,
};
use crate::rebuilt;

/// The interval in which the Processor is changed.
const CHANGE_INTERVAL: Duration = Duration::from_millis(10);
/// The interval in which the module is replaced: shorter than the one in which the host reads it.
const MODULE_INTERVAL: Duration = Duration::from_millis(100);
/// The interval in which slow connections are opened.
const CONNECTION_INTERVAL: Duration = Duration::from_micros(500);

/// Running side actions, which end on drop.
pub(super) type Besides = Vec<JoinSet<Result<()>>>;

/// Begins the side action of an attack, if there is one.
pub(super) fn begin(
    attack: &'static Attack,
    admin: &Cluster,
    public: &str,
    module: &Path,
) -> Option<JoinSet<Result<()>>> {
    let mut tasks = JoinSet::new();
    match attack.beside {
        Beside::Nothing | Beside::Older => return None,
        Beside::Changes => drop(tasks.spawn(change(attack, admin.clone()))),
        Beside::Objects(bytes) => {
            drop(tasks.spawn(change_object(attack, admin.clone(), bytes)));
        }
        Beside::Modules => drop(tasks.spawn(replace(module.to_owned()))),
        Beside::Connections(count) => drop(tasks.spawn(connect(count, public.to_owned()))),
    }
    Some(tasks)
}

async fn change(attack: &'static Attack, admin: Cluster) -> Result<()> {
    let mut due = interval(CHANGE_INTERVAL);
    for number in 1.. {
        due.tick().await;
        let changed = attack.processor(benign::NAME, number);
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

async fn replace(module: std::path::PathBuf) -> Result<()> {
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
