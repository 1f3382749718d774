//! What was asked of an API server, from its audit log.

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

/// How often the log is looked at while something is awaited that was just asked.
const GLANCE: Duration = Duration::from_millis(10);

/// How each event begins.
const BEGINNING: &str = r#"{"kind":"Event","#;

/// Reads the log from where it stood when this was made.
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
    /// As RBAC knows it: `get`, `list`, `watch`, `create`, `patch`, `deletecollection`, and so on.
    pub verb: String,
    /// Who sent it.
    pub user: User,
    /// With whose rights, where these are not the sender's.
    pub impersonated_user: Option<User>,
    /// What program it said that it was.
    #[serde(default)]
    pub user_agent: String,
    /// None for what is no resource, as `/version`.
    pub object_ref: Option<ObjectReference>,
    /// None where nobody waited for the answer.
    pub response_status: Option<Status>,
}

/// An account, as a request's certificate or token says.
#[derive(Clone, Debug, Deserialize)]
pub struct User {
    /// `system:serviceaccount:NAMESPACE:NAME` for a `ServiceAccount`.
    pub username: String,
    /// The groups that were sent or derived.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// What a request is about. What is empty was not given.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// The plural, as in the URL.
    pub resource: String,
    /// As `status`.
    pub subresource: String,
    /// Where it is.
    pub namespace: String,
    /// None for lists.
    pub name: String,
    /// Empty for the core group.
    pub api_group: String,
    /// As `v1`.
    pub api_version: String,
}

/// How a request was answered.
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

    /// What was asked since this was made, in the order in which it was answered. What had its answer before this is called is
    /// among it, each request once; a watch is when it has begun.
    ///
    /// # Errors
    ///
    /// An API that does not answer, or a log that cannot be read.
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
            tokio::time::sleep(GLANCE).await;
        }
    }

    fn read(&self) -> Result<Vec<Event>> {
        let path = self.path.display();
        let mut file = File::open(&self.path).with_context(|| format!("cannot open {path}"))?;
        file.seek(SeekFrom::Start(self.offset))?;
        let mut text = String::new();
        file.read_to_string(&mut text).with_context(|| format!("cannot read {path}"))?;
        // The last line may be on its way.
        let whole = text.rfind('\n').map_or("", |end| text.get(..end).unwrap_or_default());
        // What a server was writing when it was killed has no end: the next one's first event follows it.
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
    /// With whose rights it was sent.
    pub fn account(&self) -> &str {
        &self.impersonated_user.as_ref().unwrap_or(&self.user).username
    }

    /// `resource` or `resource/subresource`; empty for what is no resource.
    pub fn resource(&self) -> String {
        let Some(of) = &self.object_ref else { return String::new() };
        let separator = if of.subresource.is_empty() { "" } else { "/" };
        format!("{}{separator}{}", of.resource, of.subresource)
    }

    /// Namespace and name, with a slash in between; without them, no more than the slash.
    pub fn place(&self) -> String {
        let of = self.object_ref.as_ref();
        of.map_or_else(|| "/".to_owned(), |of| format!("{}/{}", of.namespace, of.name))
    }

    /// The status of the answer, or 0.
    pub fn code(&self) -> u16 {
        self.response_status.as_ref().map_or(0, |status| status.code)
    }
}
