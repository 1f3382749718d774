//! A cluster: its client, and the kinds that it serves.
//!
//! Discovery is requested per group and version, when one of its kinds is first looked up, and
//! cached. [`Cluster::forget`] drops the cached kinds of a group; call it when a
//! `CustomResourceDefinition` changes. The answer that a kind is *not* served is cached for
//! [`UNKNOWN_KIND_TTL`] only, so that a new kind is found without a notification too.
//!
//! The names of kinds are untrusted, and discovery is a request with the host's own rights. So
//! discovery is requested only for groups and versions that the server lists itself: no untrusted
//! text gets into a path, and the cache is bounded by the kinds that the server serves.

pub mod access;
mod answers;
mod bounded;
pub mod clusters;
mod definition;
mod guarded;
mod health;
mod impersonate;
pub(crate) mod lean;
pub mod lease;
mod own;
mod reach;
pub mod remote;
mod request;
mod routes;
#[cfg(test)]
mod tests;
pub mod watch;
mod withheld;

pub(crate) use guarded::Guarded;
pub use own::{is_own, only_own, only_secret, secret_name};
pub use reach::Reach;
pub use request::Policy;
pub use routes::Routes;
pub(crate) use withheld::withheld;

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use futures::{
    FutureExt as _,
    future::{self, BoxFuture},
};
use kube::Client;
use mortise_core::{
    api::{Answer, Api, NotEstablished, Outgoing, Refusal, Unavailable},
    contract::{Kind, ObjectRef, bounds::text},
    grant::rights::Account,
    resource::{Kinds, Resource, api_path},
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use self::lease::Guard;

/// The time for which a kind counts as not served after the server said so.
pub const UNKNOWN_KIND_TTL: Duration = Duration::from_secs(5);

/// The longest time for which a kind of another cluster counts as not served: it doubles with each
/// answer, as changes of its `CustomResourceDefinition`s are not watched.
pub(crate) const MAX_UNKNOWN_KIND_TTL: Duration = Duration::from_mins(5);

/// The number of groups and versions that another cluster may list, and of those whose kinds are
/// kept, and the number of kinds in all of them: more than any processor uses.
const MAX_LISTED_ELSEWHERE: usize = 2048;
const MAX_VERSIONS_ELSEWHERE: usize = 256;
const MAX_KINDS_ELSEWHERE: usize = 2048;

/// The number of unlisted groups and versions that are looked up within [`UNKNOWN_KIND_TTL`]: more
/// than are needed at once, and few requests.
const MAX_MISSING_LOOKUPS: usize = 8;

/// A cluster: objects are read from it and written to it. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    /// The name; empty for the home cluster.
    name: Arc<str>,
    client: Client,
    policy: Policy,
    lease: Guard,
    served: Arc<Mutex<HashMap<GroupVersion, Served>>>,
    listed: Arc<Listed>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct GroupVersion {
    group: String,
    version: String,
}

struct Served {
    since: Instant,
    /// The time for which the kinds that are not among them count as not served.
    ttl: Duration,
    kinds: HashMap<String, Arc<Resource>>,
    /// Why the last request for them has failed, if it has: no other kind is asked for meanwhile.
    failed: Option<String>,
}

/// The groups and versions that the server lists.
#[derive(Default)]
struct Listed {
    /// Locked during the request, so that concurrent callers share one request.
    versions: tokio::sync::Mutex<Versions>,
    /// The groups of which a `CustomResourceDefinition` has changed since the list was made.
    forgotten: Mutex<HashSet<String>>,
}

#[derive(Default)]
struct Versions {
    /// The start of the period in which at most [`MAX_MISSING_LOOKUPS`] unlisted versions are
    /// looked up.
    since: Option<Instant>,
    all: HashSet<GroupVersion>,
    /// The groups and versions that were looked up in that period and are not listed.
    missing: HashSet<GroupVersion>,
    /// The length of the period.
    ttl: Duration,
}

// === impl Cluster ===

impl fmt::Debug for Cluster {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Cluster").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Creates a cluster behind a client, with the default [`Policy`] for requests that find it
    /// busy or down.
    pub fn new(client: Client) -> Self {
        Self::with_policy(client, Policy::default())
    }

    /// Creates a cluster behind a client, with this policy.
    pub fn with_policy(client: Client, policy: Policy) -> Self {
        Self {
            name: Arc::default(),
            client,
            policy,
            lease: Guard::none(),
            served: Arc::default(),
            listed: Arc::default(),
        }
    }

    /// Returns the cluster under another name than that of the home cluster.
    #[must_use]
    pub fn named(self, name: &Arc<str>) -> Self {
        Self { name: Arc::clone(name), ..self }
    }

    /// Returns the same cluster, with writes only while a Lease is held. The known kinds are
    /// shared.
    #[must_use]
    pub fn guarded(&self, lease: &Guard) -> Self {
        Self { lease: lease.clone(), ..self.clone() }
    }

    /// Returns the same cluster, with every request made as an account. The known kinds are shared.
    #[must_use]
    pub fn acting_as(&self, account: &Account) -> Self {
        Self { client: impersonate::acting_as(account, &self.client), ..self.clone() }
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns how the cluster serves a kind; `None` if it does not, or if no cluster could serve a
    /// kind of that name.
    pub async fn resolve(&self, kind: &Kind) -> Result<Option<Arc<Resource>>, Unavailable> {
        if let Err(other) = self.check(&kind.cluster) {
            return Err(Unavailable { kind: kind.clone(), message: other.to_string() });
        }
        if !text::is_kind(kind) {
            return Ok(None);
        }
        let of = GroupVersion { group: kind.group.clone(), version: kind.version.clone() };
        let unavailable = |message: String| Unavailable { kind: kind.clone(), message };
        if let Some(known) = self.remembered(&of, &kind.kind) {
            return known.map_err(unavailable);
        }
        if !self.lists(&of).await.map_err(|refusal| unavailable(refusal.to_string()))? {
            return Ok(None);
        }
        let served = self.discover(&of).await.map_err(|refusal| refusal.to_string());
        let found = served.as_ref().map(|kinds| kinds.get(&kind.kind).cloned());
        let found = found.map_err(|why| unavailable(why.clone()));
        self.remember(of, served);
        found
    }

    /// Returns how the cluster serves a kind, if that is cached. Sends no request.
    pub(crate) fn known(&self, kind: &Kind) -> Option<Arc<Resource>> {
        self.check(&kind.cluster).ok()?;
        let of = GroupVersion { group: kind.group.clone(), version: kind.version.clone() };
        self.remembered(&of, &kind.kind)?.ok().flatten()
    }

    /// Looks up several kinds. The answer lacks the kinds that are not served.
    pub async fn resolve_all<'a>(
        &self,
        kinds: impl IntoIterator<Item = &'a Kind>,
    ) -> Result<Kinds, Unavailable> {
        let mut found = Kinds::default();
        for kind in kinds {
            if let Some(resource) = self.resolve(kind).await? {
                found.insert(resource);
            }
        }
        Ok(found)
    }

    /// Forgets the kinds of a group: one of its `CustomResourceDefinition`s has changed.
    pub fn forget(&self, group: &str) {
        self.served.lock().retain(|of, _| of.group != group);
        self.listed.forgotten.lock().insert(group.to_owned());
    }

    /// Returns whether the server lists a group and version. A missing one is looked up again after
    /// [`UNKNOWN_KIND_TTL`], or when its group was forgotten.
    async fn lists(&self, of: &GroupVersion) -> Result<bool, Refusal> {
        // Every server has the core group, and no list of groups names it.
        if of.group.is_empty() {
            return Ok(of.version == "v1");
        }
        let mut versions = self.listed.versions.lock().await;
        if versions.all.contains(of) {
            return Ok(true);
        }
        let is_over = versions.since.is_none_or(|since| since.elapsed() >= versions.ttl);
        if is_over {
            let former = versions.since.map(|_| versions.ttl);
            let ttl = self.next_ttl(former.filter(|_| versions.missing.contains(of)));
            *versions = Versions { since: Some(Instant::now()), ttl, ..Versions::default() };
        }
        let is_new = versions.missing.len() < MAX_MISSING_LOOKUPS && !versions.missing.contains(of);
        if !is_new && !self.listed.forgotten.lock().contains(&of.group) {
            return Ok(false);
        }
        // The answer may lack changes that come after this point.
        let forgotten = std::mem::take(&mut *self.listed.forgotten.lock());
        let answer = self.send(&Outgoing::get("/apis".to_owned()).to(&self.name)).await;
        let answer = answer.inspect_err(|_| self.listed.forgotten.lock().extend(forgotten))?;
        let listed = group_versions(&answer.body);
        if !self.is_home() && listed.len() > MAX_LISTED_ELSEWHERE {
            versions.missing.insert(of.clone());
            let message = format!("it lists more than {MAX_LISTED_ELSEWHERE} groups and versions");
            return Err(Refusal { message, ..Refusal::default() });
        }
        versions.all = listed;
        let is_listed = versions.all.contains(of);
        if !is_listed && is_new {
            versions.missing.insert(of.clone());
        }
        Ok(is_listed)
    }

    /// Returns the cached answer, which may be a failure; `None` if the cluster has to be asked.
    fn remembered(
        &self,
        of: &GroupVersion,
        kind: &str,
    ) -> Option<Result<Option<Arc<Resource>>, String>> {
        let served = self.served.lock();
        let known = served.get(of)?;
        if let Some(found) = known.kinds.get(kind) {
            return Some(Ok(Some(Arc::clone(found))));
        }
        let is_fresh = known.since.elapsed() < known.ttl;
        is_fresh.then(|| known.failed.clone().map_or(Ok(None), Err))
    }

    /// Caches the answer to a request for the kinds of a group and version. The kinds of the last
    /// answer stay after a failure.
    fn remember(&self, of: GroupVersion, served: Result<HashMap<String, Arc<Resource>>, String>) {
        let mut all = self.served.lock();
        let former = all.remove(&of);
        let (kinds, ttl, failed) = match served {
            Ok(kinds) => (kinds, self.next_ttl(former.map(|former| former.ttl)), None),
            Err(why) => {
                let kinds = former.map(|former| former.kinds).unwrap_or_default();
                (kinds, UNKNOWN_KIND_TTL, Some(why))
            }
        };
        let count = kinds.len() + all.values().map(|of| of.kinds.len()).sum::<usize>();
        let is_full = all.len() >= MAX_VERSIONS_ELSEWHERE || count > MAX_KINDS_ELSEWHERE;
        if !self.is_home() && is_full {
            all.clear();
        }
        all.insert(of, Served { since: Instant::now(), ttl, kinds, failed });
    }

    /// Returns the time for which a kind counts as not served, after another one of `former`.
    fn next_ttl(&self, former: Option<Duration>) -> Duration {
        match former {
            Some(former) if !self.is_home() => former.saturating_mul(2).min(MAX_UNKNOWN_KIND_TTL),
            _ => UNKNOWN_KIND_TTL,
        }
    }

    fn is_home(&self) -> bool {
        self.name.is_empty()
    }

    /// Fails for what concerns another cluster.
    fn check(&self, cluster: &str) -> Result<(), OtherCluster> {
        if *self.name == *cluster { Ok(()) } else { Err(OtherCluster(cluster.to_owned())) }
    }

    async fn discover(&self, of: &GroupVersion) -> Result<HashMap<String, Arc<Resource>>, Refusal> {
        let path = api_path(&of.group, &of.version);
        match self.send(&Outgoing::get(path).to(&self.name)).await {
            Ok(answer) => {
                let kind = answer.body.get("kind").and_then(Value::as_str).unwrap_or_default();
                if kind != "APIResourceList" {
                    // Otherwise all kinds of the group would count as gone.
                    let message = format!("the answer is of kind `{kind}`, not `APIResourceList`");
                    return Err(Refusal { message, ..Refusal::default() });
                }
                let mut kinds = parse(of, &self.name, &answer.body);
                if !self.is_home() && kinds.len() > MAX_KINDS_ELSEWHERE {
                    let message = format!("it has more than {MAX_KINDS_ELSEWHERE} kinds");
                    return Err(Refusal { message, ..Refusal::default() });
                }
                kinds.shrink_to_fit();
                Ok(kinds)
            }
            Err(refusal) if refusal.code == 404 => Ok(HashMap::new()),
            Err(refusal) => Err(refusal),
        }
    }
}

/// The error of a request to another cluster than it came to.
#[derive(Debug, thiserror::Error)]
#[error("cluster `{0}` is not known here")]
struct OtherCluster(String);

impl Api for Cluster {
    fn is_leading(&self) -> bool {
        self.lease.is_held()
    }

    fn send<'a>(&'a self, outgoing: &'a Outgoing) -> BoxFuture<'a, Result<Answer, Refusal>> {
        self.send(outgoing).boxed()
    }

    fn resolve<'a>(
        &'a self,
        kind: &'a Kind,
    ) -> BoxFuture<'a, Result<Option<Arc<Resource>>, Unavailable>> {
        self.resolve(kind).boxed()
    }

    fn forget(&self, kind: &Kind) {
        if self.check(&kind.cluster).is_ok() {
            self.forget(&kind.group);
        }
    }

    fn established<'a>(
        &'a self,
        definition: &'a ObjectRef,
    ) -> BoxFuture<'a, Result<(), NotEstablished>> {
        if let Err(other) = self.check(&definition.kind.cluster) {
            let unwatched =
                NotEstablished::Unwatched { message: other.to_string(), forbidden: None };
            return future::ready(Err(unwatched)).boxed();
        }
        self.established(&definition.name).boxed()
    }
}

/// Returns the message of a failed request for people: the API server's own message, else the
/// innermost cause. The outer causes only name the layer in which the request failed.
pub(crate) fn cause_of(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return format!("{} ({})", status.message, status.code);
    }
    anyhow::Chain::new(error).last().map(ToString::to_string).unwrap_or_default()
}

/// Reads an `APIGroupList`.
fn group_versions(list: &Value) -> HashSet<GroupVersion> {
    let of_group = |group: &'_ Value| {
        let name = text_of(group, "name").to_owned();
        let versions = entries(group, "versions").map(|version| text_of(version, "version"));
        let of = |version: &str| GroupVersion { group: name.clone(), version: version.to_owned() };
        let is_served = |version: &&str| text::is_group(&name) && text::is_version(version);
        versions.filter(is_served).map(of).collect::<Vec<_>>()
    };
    entries(list, "groups").flat_map(of_group).collect()
}

/// Reads an `APIResourceList` of a cluster.
fn parse(of: &GroupVersion, cluster: &Arc<str>, list: &Value) -> HashMap<String, Arc<Resource>> {
    let entries = || entries(list, "resources");
    let names: HashSet<&str> = entries().map(|entry| text_of(entry, "name")).collect();
    let resource = |entry: &Value| {
        let (plural, kind) = (text_of(entry, "name"), text_of(entry, "kind"));
        let is_one = text::is_label(plural) && text::is_kind_name(kind);
        is_one.then(|| Resource {
            kind: Kind {
                cluster: Arc::clone(cluster),
                ..Kind::home(of.group.clone(), of.version.clone(), kind)
            },
            namespaced: entry.get("namespaced").and_then(Value::as_bool).unwrap_or_default(),
            status: names.contains(&*format!("{plural}/status")),
            plural: plural.to_owned(),
        })
    };
    let resources = entries().filter_map(resource);
    resources.map(|resource| (resource.kind.kind.clone(), Arc::new(resource))).collect()
}

fn entries<'a>(of: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    of.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn text_of<'a>(of: &'a Value, key: &str) -> &'a str {
    of.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Returns a resource as kube's type, for watches.
pub fn api_resource(of: &Resource) -> kube::core::ApiResource {
    let Kind { cluster: _, group, version, kind } = &of.kind;
    kube::core::ApiResource::from_gvk_with_plural(
        &kube::core::GroupVersionKind::gvk(group, version, kind),
        &of.plural,
    )
}
