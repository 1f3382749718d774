//! A provider that lies about the objects of a kind: it is told, a processor at home is served, and
//! what the host reads of an answer is bounded.

use std::{
    convert::Infallible,
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::body::{Body as Answered, Bytes};
use futures::{StreamExt as _, stream};
use http::{Response, Uri};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    faults::{WELL, is_well, mode, neighbour_is_served, synchronised, told},
    world::{Mode, TEAM, World, rocket},
};

/// The bytes that the host reads of an answer at most, with the last chunk.
const MAX_READ: usize = 33 << 20;
/// The bytes of a lie that is large.
const LARGE: usize = 300 << 20;
const CHUNK: usize = 1 << 20;

/// An answer to lists and watches of rockets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Lie {
    /// A list that is far too large, in pages of any size.
    LargeList,
    /// A watch with an object that is far too large.
    LargeObject,
    /// Pages without end, one each second.
    EndlessPages,
    /// A list of which little comes at a time, and that does not end.
    Trickle,
    /// Objects of another kind.
    OtherKind,
    /// So many changes at once.
    Flood(usize),
    /// A million kinds in the group of the rockets.
    Kinds,
}

/// The bytes that were read of the answer of which most was read.
#[derive(Clone, Debug, Default)]
pub(super) struct Taken {
    most: Arc<AtomicUsize>,
    /// Ends the answers that are open.
    over: CancellationToken,
}

fn event(name: &str, version: usize) -> String {
    let mut object = rocket(TEAM, name, 1);
    object["metadata"]["resourceVersion"] = version.to_string().into();
    format!("{}\n", json!({"type": "MODIFIED", "object": object}))
}

fn status(code: u16, message: &str) -> Response<Answered> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "Invalid", "code": code,
    });
    Response::builder().status(code).body(Answered::from(status.to_string())).unwrap()
}

/// The event of a watch whose resource version is too old.
fn gone() -> String {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old", "reason": "Expired", "code": 410,
    });
    format!("{}\n", json!({"type": "ERROR", "object": status}))
}

impl Taken {
    /// Returns a text, and after it many bytes.
    fn large(&self, text: String) -> Response<Answered> {
        let (most, chunk) = (Arc::clone(&self.most), Bytes::from(vec![b'x'; CHUNK]));
        let begin = stream::iter([Ok::<_, Infallible>(Bytes::from(text))]);
        let rest = stream::iter(1..=LARGE / CHUNK).map(move |number| {
            most.fetch_max(number * CHUNK, Ordering::Relaxed);
            Ok(chunk.clone())
        });
        Response::new(Answered::from_stream(begin.chain(rest)))
    }
}

impl Lie {
    /// Returns the answer to a request; `None` if it is answered as by any cluster.
    pub(super) async fn answer(self, uri: &Uri, taken: &Taken) -> Option<Response<Answered>> {
        let query = uri.query().unwrap_or_default();
        if self == Self::Kinds && uri.path() == "/apis/example.com/v1" {
            let begin = r#"{"kind":"APIResourceList","groupVersion":"example.com/v1","resources":[{"name":""#;
            return Some(taken.large(begin.to_owned()));
        }
        let is_read = query.contains("limit=") || query.contains("watch=");
        if !uri.path().ends_with("/rockets") || !is_read {
            return None;
        }
        let streams = query.contains("sendInitialEvents=true");
        let list = |items: &Value, more: &str| {
            let metadata = json!({"resourceVersion": "9", "continue": more});
            let list = json!({"kind": "RocketList", "apiVersion": "example.com/v1", "metadata": metadata, "items": items});
            Response::new(Answered::from(list.to_string()))
        };
        Some(match self {
            Self::Kinds => status(404, "the server could not find the requested resource"),
            // The watch begins anew with a list.
            Self::LargeList | Self::EndlessPages | Self::OtherKind | Self::Trickle
                if query.contains("watch=") && !streams =>
            {
                Response::new(Answered::from(gone()))
            }
            Self::LargeList | Self::EndlessPages | Self::OtherKind if streams => {
                status(422, "sendInitialEvents is forbidden")
            }
            Self::LargeList => {
                let begin =
                    r#"{"kind":"RocketList","apiVersion":"example.com/v1","items":[{"spec":""#;
                taken.large(begin.to_owned())
            }
            Self::LargeObject => {
                taken.large(r#"{"type":"MODIFIED","object":{"spec":{"intent":""#.to_owned())
            }
            Self::EndlessPages => {
                sleep(Duration::from_secs(1)).await;
                list(&json!([]), "next")
            }
            Self::OtherKind => {
                let secret = json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a", "namespace": TEAM, "resourceVersion": "9"}});
                list(&json!([secret]), "")
            }
            Self::Trickle => {
                let bytes = stream::repeat(Bytes::from_static(b"x")).then(async |byte| {
                    sleep(Duration::from_secs(1)).await;
                    Ok::<_, Infallible>(byte)
                });
                let over = taken.over.clone().cancelled_owned();
                Response::new(Answered::from_stream(bytes.take_until(Box::pin(over))))
            }
            Self::Flood(_) if streams => return None,
            Self::Flood(events) => {
                let first = 1 << 20;
                let flood = (first..first + events).map(|version| event("flood", version));
                let begin = stream::iter([Bytes::from(flood.collect::<String>())]);
                let over = taken.over.clone();
                let end = stream::once(async move {
                    over.cancelled().await;
                    Bytes::from(gone())
                });
                let bytes = begin.chain(end).map(Ok::<_, Infallible>);
                Response::new(Answered::from_stream(bytes))
            }
        })
    }
}

/// Checks that a lie is told in time, and that nothing of it stays.
async fn is_told(lie: Lie, tells: &str, within: Duration) {
    println!("{lie:?}");
    let (world, host) = synchronised().await;
    is_well(&world, 2).await;
    let uid = world.at_provider("saturn").unwrap()["metadata"]["uid"].clone();
    mode(&world, Mode::Lies(lie));
    neighbour_is_served(&world, &host, "at-once").await;
    let has_told = |world: &World| {
        let of_provider = world.provider.objects().into_iter();
        let events = of_provider.filter(|of| of["kind"] == "Event");
        let reasons = events.map(|of| of["reason"].to_string());
        told(world, &host).into_iter().chain(reasons).any(|message| message.contains(tells))
    };
    sleep(within.saturating_sub(Duration::from_mins(1))).await;
    world.within(within, &format!("{lie:?}: `{tells}` is told"), has_told).await;
    neighbour_is_served(&world, &host, "later").await;
    let taken = world.line.taken().most.load(Ordering::Relaxed);
    assert!(taken <= MAX_READ, "{lie:?}: {taken} bytes of one answer");
    mode(&world, Mode::Well);
    world.line.taken().over.cancel();
    is_well(&world, 3).await;
    assert_eq!(world.at_provider("saturn").unwrap()["metadata"]["uid"], uid, "{lie:?}");
    timeout(WELL, host.stop()).await.unwrap().unwrap();
}

/// Checks all lies, of which a flood has so many changes.
async fn all_are_told(flood: usize) {
    let soon = Duration::from_secs(40);
    for (lie, tells, within) in [
        (Lie::LargeList, "the API server sends more than 32 MiB at once", soon),
        (Lie::LargeObject, "the API server sends more than 32 MiB at once", soon),
        (Lie::OtherKind, "the API server sent an object of kind `Secret` in its place", soon),
        (Lie::Kinds, "the API server sends more than 16 MiB at once", soon),
        // The list may still end within this time.
        (Lie::Trickle, "the API server ends it before its list is complete", soon * 10),
        (Lie::EndlessPages, "the list has not ended within 15 min", Duration::from_mins(16)),
        // It is no fault by itself; its object is nobody's.
        (Lie::Flood(flood), "NotOfConsumer", soon),
    ] {
        is_told(lie, tells, within).await;
    }
}

#[tokio::test(start_paused = true)]
async fn lies_of_a_provider_are_told_and_pass() {
    all_are_told(10_000).await;
}

/// Returns the memory that this process had at its peak, in bytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

#[tokio::test(start_paused = true)]
#[ignore = "measures the memory of the process"]
async fn lies_of_a_provider_take_little_memory() {
    is_told(Lie::OtherKind, "in its place", Duration::from_secs(40)).await;
    let before = peak();
    all_are_told(100_000).await;
    let grown = peak() - before;
    assert!(grown < 256 << 20, "{} MiB", grown >> 20);
}
