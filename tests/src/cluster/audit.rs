//! The requests that an API server has answered, from its audit log.

use std::{
    collections::HashSet,
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context as _, Result};
use kube::Client;
use serde::Deserialize;
use uuid::Uuid;

/// The interval of reading the log while an expected event is missing.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The beginning of each event.
const BEGINNING: &str = r#"{"kind":"Event","#;

/// Reads the audit log from the position at which the `Audit` was made.
pub struct Audit {
    path: PathBuf,
    client: Client,
    offset: u64,
}

/// A request that was answered.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    #[serde(rename = "auditID")]
    id: String,
    /// The path and the query.
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    /// The verb as RBAC knows it: `get`, `list`, `watch`, `create`, `patch`, `deletecollection`,
    /// and so on.
    pub verb: String,
    /// The sender.
    pub user: User,
    /// The account whose rights the request used, if not the sender's.
    pub impersonated_user: Option<User>,
    /// The program that the sender claimed to be.
    #[serde(default)]
    pub user_agent: String,
    /// The requested object; `None` if the path is no resource, such as `/version`.
    pub object_ref: Option<ObjectReference>,
    /// The response; `None` if nobody waited for it.
    pub response_status: Option<Status>,
}

/// An account, according to a request's certificate or token.
#[derive(Clone, Debug, Deserialize)]
pub struct User {
    /// `system:serviceaccount:NAMESPACE:NAME` for a `ServiceAccount`.
    pub username: String,
    /// The groups that were sent or derived.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// The object of a request. Fields that the request did not state are empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// The plural, as in the URL.
    pub resource: String,
    /// The subresource, such as `status`.
    pub subresource: String,
    /// The namespace of the object.
    pub namespace: String,
    /// The name of the object; empty for lists.
    pub name: String,
    /// The API group; empty for the core group.
    pub api_group: String,
    /// The API version, such as `v1`.
    pub api_version: String,
}

/// The response to a request.
#[derive(Clone, Debug, Deserialize)]
pub struct Status {
    /// The status of the HTTP response.
    pub code: u16,
}

// === impl Audit ===

impl Audit {
    pub(super) fn begin(path: PathBuf, client: Client) -> Result<Self> {
        let offset = std::fs::metadata(&path)
            .with_context(|| format!("cannot read {}", path.display()))?
            .len();
        Ok(Self { path, client, offset })
    }

    /// Returns the requests since this `Audit` was made, in the order of their responses, each
    /// request once. Includes every request that was answered before this call; a watch counts as
    /// answered when it has begun.
    ///
    /// # Errors
    ///
    /// Fails if the API does not answer, or the log cannot be read.
    pub async fn events(&self) -> Result<Vec<Event>> {
        let marker = format!("/version?marker={}", Uuid::new_v4());
        let request = http::Request::get(&marker).body(Vec::new())?;
        self.client.request_text(request).await.context("the API does not answer")?;
        loop {
            let mut events = self.read()?;
            let mut seen = HashSet::new();
            events.retain(|event| seen.insert(event.id.clone()));
            if let Some(end) = events.iter().position(|event| event.request_uri == marker) {
                events.truncate(end);
                return Ok(events);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn read(&self) -> Result<Vec<Event>> {
        let path = self.path.display();
        let mut file = File::open(&self.path).with_context(|| format!("cannot open {path}"))?;
        file.seek(SeekFrom::Start(self.offset))?;
        let mut text = String::new();
        file.read_to_string(&mut text).with_context(|| format!("cannot read {path}"))?;
        // The last line may not be complete yet.
        let whole = text.rfind('\n').map_or("", |end| text.get(..end).unwrap_or_default());
        // The last event of a killed server is incomplete, and the first event of the next server
        // follows on the same line.
        let last =
            |line: &str| line.rfind(BEGINNING).and_then(|at| line.get(at..).map(str::to_owned));
        whole
            .lines()
            .filter_map(last)
            .map(|line| {
                serde_json::from_str(&line).with_context(|| format!("not an event: {line}"))
            })
            .collect()
    }
}

// === impl Event ===

impl Event {
    /// Returns the account whose rights the request used.
    pub fn account(&self) -> &str {
        &self.impersonated_user.as_ref().unwrap_or(&self.user).username
    }

    /// Returns `resource` or `resource/subresource`; empty if the path is no resource.
    pub fn resource(&self) -> String {
        let Some(of) = &self.object_ref else { return String::new() };
        let separator = if of.subresource.is_empty() { "" } else { "/" };
        format!("{}{separator}{}", of.resource, of.subresource)
    }

    /// Returns namespace and name, separated by a slash; only the slash without an object.
    pub fn place(&self) -> String {
        let of = self.object_ref.as_ref();
        of.map_or_else(|| "/".to_owned(), |of| format!("{}/{}", of.namespace, of.name))
    }

    /// Returns the status of the response, or 0.
    pub fn code(&self) -> u16 {
        self.response_status.as_ref().map_or(0, |status| status.code)
    }
}
