//! The requests of a host, sent again by a client that does nothing else.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use http::Request;
use kube::{Client, client::Body};
use regex::Regex;

use super::{
    plane::{Plane, Used, Versions},
    tap::Recorded,
};
use crate::process;

/// What it took.
pub(super) struct Sent {
    pub(super) wall: Duration,
    pub(super) client: Duration,
    pub(super) used: Used,
}

/// Sends what was sent to another control plane: what belongs to one rule in its order, so many rules at once.
pub(super) async fn send(
    plane: &Plane,
    recorded: Vec<Recorded>,
    before: &Versions,
    after: &Versions,
    parallel: usize,
) -> anyhow::Result<Sent> {
    let groups = groups(recorded, before, after)?;
    let client = plane.client().await?;
    let (cpu, used, start) = (process::cpu()?, plane.used()?, Instant::now());
    let groups =
        futures::stream::iter(groups.into_iter().map(|group| in_order(client.clone(), group)));
    let () = groups.buffer_unordered(parallel).try_collect().await?;
    Ok(Sent {
        wall: start.elapsed(),
        client: (process::cpu()? - cpu).host,
        used: plane.used()? - used,
    })
}

/// The requests of each rule, with what the other server has decided of it.
fn groups(
    recorded: Vec<Recorded>,
    before: &Versions,
    after: &Versions,
) -> anyhow::Result<Vec<Vec<Recorded>>> {
    let named = Regex::new(r"shop-\d+")?;
    let mut groups: BTreeMap<String, Vec<Recorded>> = BTreeMap::new();
    for mut request in recorded {
        let text = format!("{} {}", request.uri, request.body);
        let name = named.find(&text).with_context(|| format!("no rule in `{text}`"))?.as_str();
        let (old, new) = (before.get(name), after.get(name));
        let (old, new) = old.zip(new).with_context(|| format!("there is no rule `{name}`"))?;
        let quoted = |text: &str| format!("\"{text}\"");
        let body = request.body.replace(&old.0, &new.0);
        request.body = body.replace(&quoted(&old.1), &quoted(&new.1));
        groups.entry(name.to_owned()).or_default().push(request);
    }
    Ok(groups.into_values().collect())
}

async fn in_order(client: Client, group: Vec<Recorded>) -> anyhow::Result<()> {
    for Recorded { method, uri, headers, body } in group {
        let shown = format!("{method} {uri}");
        let mut request = Request::builder().method(method).uri(uri);
        if let Some(place) = request.headers_mut() {
            *place = headers;
        }
        let answer = client.send(request.body(Body::from(body.into_bytes()))?).await?;
        let status = answer.status();
        let text = answer.into_body().collect_bytes().await?;
        anyhow::ensure!(
            status.is_success(),
            "{shown}: {status}: {}",
            String::from_utf8_lossy(&text)
        );
    }
    Ok(())
}
