//! What happens beside a Processor that attacks.

use std::{path::Path, time::Duration};

use anyhow::Result;
use mortise_host::{cluster::Cluster, desk};
use tokio::{io::AsyncWriteExt as _, net::TcpStream, task::JoinSet, time::interval};

use super::{
    attack::{Attack, Beside},
    benign,
};
use crate::rebuilt;

/// How often a Processor is changed.
const CHANGES: Duration = Duration::from_millis(10);
/// How often a module is replaced: more often than the host looks.
const MODULES: Duration = Duration::from_millis(100);
/// How soon one slow connection follows the other.
const CONNECTIONS: Duration = Duration::from_micros(500);

/// They end when these are dropped.
pub(super) type Besides = Vec<JoinSet<Result<()>>>;

/// Begins what happens beside an attack, where something does.
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
        Beside::Modules => drop(tasks.spawn(replace(module.to_owned()))),
        Beside::Connections(count) => drop(tasks.spawn(connect(count, public.to_owned()))),
    }
    Some(tasks)
}

async fn change(attack: &'static Attack, admin: Cluster) -> Result<()> {
    let mut due = interval(CHANGES);
    for number in 1.. {
        due.tick().await;
        let changed = attack.processor(benign::NAME, number);
        desk::apply(&admin, vec![changed]).await?;
    }
    Ok(())
}

async fn replace(module: std::path::PathBuf) -> Result<()> {
    let bytes = std::fs::read(&module)?;
    let mut due = interval(MODULES);
    for number in 0_u64.. {
        due.tick().await;
        let unfinished = module.with_extension("unfinished");
        std::fs::write(&unfinished, rebuilt(&bytes, &number.to_string()))?;
        std::fs::rename(&unfinished, &module)?;
    }
    Ok(())
}

/// Each begins a request, and says a little more of it now and then.
async fn connect(count: usize, public: String) -> Result<()> {
    let mut all: Vec<TcpStream> = Vec::new();
    let mut due = interval(CONNECTIONS);
    loop {
        due.tick().await;
        if all.len() < count {
            let mut stream = TcpStream::connect(&public).await?;
            // Where the host has closed it, another one follows.
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
