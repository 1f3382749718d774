//! The requests of a host, sent again by a client that does nothing else.
//!
//! The comparison is as fair as possible: the headers are the same, so that the API server
//! authorises the same account; reviews are included, and watches, which are open all the time and
//! whose events are dropped, since the API server works for them with each write; the requests of
//! one rule are in their order, and as many rules run at once. The client omits only the host's
//! work between requests and with the answers.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use regex::Regex;
use tokio::task::JoinSet;

use super::{
    plane::{Plane, Used, Versions},
    tap::{Recorded, Verb},
};
use crate::process;

/// The cost of the requests.
pub(super) struct Sent {
    pub(super) wall: Duration,
    pub(super) client: Duration,
    pub(super) used: Used,
}

/// Sends recorded requests to another control plane, `parallel` at a time.
pub(super) async fn send(
    plane: &Plane,
    recorded: Vec<Recorded>,
    before: &Versions,
    after: &Versions,
    parallel: usize,
) -> anyhow::Result<Sent> {
    let (watches, rest): (Vec<_>, Vec<_>) =
        recorded.into_iter().partition(|request| request.verb == Verb::Watch);
    let (writes, questions): (Vec<_>, Vec<_>) =
        rest.into_iter().partition(|request| request.verb.is_write());
    let rules = by_rule(writes, before, after)?;
    let client = plane.client().await?;
    let (cpu, used, start) = (process::cpu()?, plane.used()?, Instant::now());
    let _open = follow(&client, watches).await?;
    let groups = std::iter::once(questions).chain(rules);
    let groups = futures::stream::iter(groups.map(|group| in_order(&client, group)));
    let () = groups.buffer_unordered(parallel).try_collect().await?;
    Ok(Sent {
        wall: start.elapsed(),
        client: (process::cpu()? - cpu).host,
        used: plane.used()? - used,
    })
}

/// Groups the requests by rule, and replaces uids and versions by those of the other server.
fn by_rule(
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

/// Opens the watches, and reads their events until the result is dropped. A watch that continued
/// from a list may begin at any version of this server: no request depends on earlier events.
async fn follow(client: &Client, watches: Vec<Recorded>) -> anyhow::Result<JoinSet<()>> {
    let version = Regex::new(r"\bresourceVersion=\d+")?;
    let mut open = JoinSet::new();
    for mut watch in watches {
        watch.uri = version.replace(&watch.uri.to_string(), "resourceVersion=0").parse()?;
        let mut body = send_one(client, watch).await?.into_body();
        open.spawn(async move { while let Some(Ok(_)) = body.frame().await {} });
    }
    Ok(open)
}

async fn in_order(client: &Client, group: Vec<Recorded>) -> anyhow::Result<()> {
    for request in group {
        send_one(client, request).await?.into_body().collect_bytes().await?;
    }
    Ok(())
}

/// Sends a request, and fails unless the status is the one that the host got.
async fn send_one(client: &Client, request: Recorded) -> anyhow::Result<Response<Body>> {
    let Recorded { method, uri, headers, body, status, .. } = request;
    let shown = format!("{method} {uri}");
    let mut request = Request::builder().method(method).uri(uri);
    if let Some(place) = request.headers_mut() {
        *place = headers;
    }
    let answer = client.send(request.body(Body::from(body.into_bytes()))?).await?;
    let answered = answer.status();
    ensure!(answered == status, "{shown}: {answered}, where the host was answered {status}");
    Ok(answer)
}
