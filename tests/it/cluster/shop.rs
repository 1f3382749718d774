//! A control plane with APIRules, for hosts that run as processes of their own, and for faults
//! between host and control plane.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use mortise::local;
use mortise_core::grant::rights::Account;
use mortise_host::{cluster::Cluster, operator::api::definition};
use mortise_tests::{
    cluster::{self, Event},
    definitions, guest, loaded,
    rules::{self, NAMESPACE},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    line::Line,
    program::{POLL_INTERVAL, Ports, Program, TIMEOUT, get},
};

const GUEST: &str = "guests/api-rule";
const RULES: (&str, &str, &str) = ("gateway.kyma-project.io", "v2", "APIRule");
const SERVICES: (&str, &str, &str) = ("networking.istio.io", "v1", "VirtualService");
/// The kinds of the rules and of the objects that are made for them.
const KINDS: [(&str, &str, &str); 4] = [
    RULES,
    SERVICES,
    ("security.istio.io", "v1", "AuthorizationPolicy"),
    ("security.istio.io", "v1", "RequestAuthentication"),
];
/// Number of objects that are made for one rule.
const OBJECTS_PER_RULE: usize = 6;
/// Number of an administrator's concurrent requests.
const CONCURRENT_REQUESTS: usize = 8;
/// The interval of changes.
const CHANGE_INTERVAL: Duration = Duration::from_millis(20);
/// The namespace of the Processor and its account.
pub(super) const HOME: &str = "kyma-system";
const PROCESSOR: &str = "api-rule";

/// A control plane of one test, with a Processor that no host runs yet.
pub(super) struct Shop {
    pub(super) plane: cluster::Cluster,
    client: Client,
    folder: TempDir,
}

/// The rules and the objects made for them, by kind, namespace and name, without fields that differ
/// in each run.
pub(super) type State = BTreeMap<String, Value>;

/// A task that changes rules until it is stopped.
pub(super) struct Load {
    stop: CancellationToken,
    task: JoinHandle<usize>,
}

// === impl Shop ===

impl Shop {
    /// Starts a control plane with the rules' surroundings. Returns `None` without Go.
    pub(super) async fn open() -> Option<Self> {
        let plane = cluster::own_bare().await.unwrap()?;
        plane.install(&cluster::istio().await.unwrap()?).await.unwrap();
        plane.install(&definitions(GUEST).unwrap()).await.unwrap();
        plane.install(&[definition::processors()]).await.unwrap();
        let client = plane.client().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("modules")).unwrap();
        let module = tokio::task::spawn_blocking(|| guest(GUEST)).await.unwrap().unwrap();
        std::fs::copy(module, folder.path().join("modules/api-rule.wasm")).unwrap();
        let shop = Self { plane, client, folder };
        shop.set_up().await;
        Some(shop)
    }

    async fn set_up(&self) {
        let admin = Cluster::new(self.client.clone());
        let account = Account { namespace: HOME.to_owned(), name: PROCESSOR.to_owned() };
        let description = loaded(GUEST, "{}").await.unwrap().description;
        // Pods need the account, and no controller creates it here.
        let default = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": NAMESPACE, "name": "default"},
        });
        let (namespaces, mut objects): (Vec<_>, Vec<_>) =
            rules::surroundings().unwrap().into_iter().partition(|of| of["kind"] == "Namespace");
        local::apply(&admin, namespaces).await.unwrap();
        local::apply(&admin, vec![default]).await.unwrap();
        objects.extend(rules::rights(&admin, &account, &description).await.unwrap());
        objects.push(json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor",
            "metadata": {"namespace": HOME, "name": PROCESSOR},
            "spec": {"module": {"path": "api-rule.wasm"}, "serviceAccountName": PROCESSOR},
        }));
        local::apply(&admin, objects).await.unwrap();
    }

    /// Starts a host that connects over a line.
    pub(super) fn host(&self, line: &Line, cache: &Path, arguments: &[&str]) -> Program {
        self.host_with(&line.kubeconfig(self.folder.path()), cache, arguments)
    }

    /// Starts a host that connects directly.
    pub(super) fn host_with(&self, kubeconfig: &Path, cache: &Path, arguments: &[&str]) -> Program {
        let modules = self.folder.path().join("modules");
        let home = ["--namespace", HOME].into_iter().chain(arguments.iter().copied());
        Program::start(kubeconfig, &modules, cache, home)
    }

    /// Returns the folder of a host's cache, the same for the same name; empty at first.
    pub(super) fn cache(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("cache-{name}"))
    }

    /// Lets a host reconcile everything once, over the returned line.
    pub(super) async fn reconcile_once(&self, cache: &Path) -> Line {
        let line = Line::to(&self.plane).await;
        let (status, said) = self.host(&line, cache, &["--once"]).ended().await;
        assert_eq!(status.code(), Some(0), "{said}");
        line
    }

    pub(super) async fn make(&self, rules: impl IntoIterator<Item = usize>) {
        let api = &self.rules();
        let make = |rule| async move {
            let rule = serde_json::from_value(rules::rule(rule)).unwrap();
            api.create(&PostParams::default(), &rule).await.unwrap();
        };
        in_parallel(rules.into_iter().map(make)).await;
    }

    pub(super) async fn delete(&self, rules: impl IntoIterator<Item = usize>) {
        let api = &self.rules();
        let delete = |rule| async move {
            api.delete(&name(rule), &DeleteParams::default()).await.unwrap();
        };
        in_parallel(rules.into_iter().map(delete)).await;
    }

    /// Gives a rule another host name, which is in all objects made for it.
    async fn change(rules: &Api<DynamicObject>, rule: usize, number: usize) -> kube::Result<()> {
        let host = format!("shop-{rule}-{number}.local.kyma.dev");
        let patch = Patch::Merge(json!({"spec": {"hosts": [host]}}));
        rules.patch(&name(rule), &PatchParams::default(), &patch).await.map(drop)
    }

    /// Changes rules in turn until stopped; repeats requests without an answer.
    pub(super) fn load(&self, of: std::ops::Range<usize>) -> Load {
        let stop = CancellationToken::new();
        let (rules, stopped) = (self.rules(), stop.clone());
        let task = tokio::spawn(async move {
            let (mut made, mut due) = (0, tokio::time::interval(CHANGE_INTERVAL));
            for rule in of.cycle() {
                while Self::change(&rules, rule, made).await.is_err() {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                made += 1;
                due.tick().await;
                if stopped.is_cancelled() {
                    break;
                }
            }
            made
        });
        Load { stop, task }
    }

    fn rules(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), NAMESPACE, &resource(RULES))
    }

    async fn all(&self) -> kube::Result<Vec<Value>> {
        let mut objects = Vec::new();
        for kind in KINDS {
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource(kind));
            for mut object in api.list(&ListParams::default()).await?.items {
                object.types = Some(kube::core::TypeMeta {
                    api_version: format!("{}/{}", kind.0, kind.1),
                    kind: kind.2.to_owned(),
                });
                objects.push(serde_json::to_value(object).unwrap());
            }
        }
        Ok(objects)
    }

    pub(super) async fn state(&self) -> State {
        let all = self.all().await.unwrap();
        all.into_iter().map(|object| (place(&object), without_chance(object))).collect()
    }

    /// Returns the resourceVersions of all objects of the selected rules.
    pub(super) async fn versions(&self, of: impl Fn(usize) -> bool) -> BTreeMap<String, String> {
        let mut all = self.all().await.unwrap();
        all.retain(|object| of(rule_of(object)));
        let version = |object: &Value| {
            (place(object), object["metadata"]["resourceVersion"].as_str().unwrap().to_owned())
        };
        all.iter().map(version).collect()
    }

    /// Returns the objects that are missing or differ from their rules.
    async fn wrong(&self) -> kube::Result<Vec<String>> {
        let all = self.all().await?;
        let (rules, made): (Vec<_>, Vec<_>) = all.iter().partition(|of| of["kind"] == RULES.2);
        let known: BTreeSet<usize> = rules.iter().map(|rule| rule_of(rule)).collect();
        let mut wrong = Vec::new();
        for rule in rules {
            let host = rule["spec"]["hosts"][0].as_str().unwrap();
            let of_rule: Vec<_> =
                made.iter().filter(|object| rule_of(object) == rule_of(rule)).collect();
            let has_host = |object: &&&&Value| object["spec"].to_string().contains(host);
            let services = of_rule.iter().filter(|object| object["kind"] == SERVICES.2);
            if rule["status"]["state"] != "Ready"
                || of_rule.len() != OBJECTS_PER_RULE
                || services.filter(has_host).count() != 1
            {
                wrong.push(place(rule));
            }
        }
        let orphans = made.iter().filter(|object| !known.contains(&rule_of(object)));
        wrong.extend(orphans.map(|object| place(object)));
        Ok(wrong)
    }

    /// Waits until all objects are as the rules want them, and the host has nothing left to do;
    /// returns the time that took.
    pub(super) async fn until_right(&self, ports: &Ports) -> Duration {
        let begun = Instant::now();
        loop {
            let wrong = match self.wrong().await {
                Ok(wrong) => wrong,
                Err(error) => vec![error.to_string()],
            };
            if wrong.is_empty() && is_idle(ports).await {
                return begun.elapsed();
            }
            assert!(begun.elapsed() < TIMEOUT, "these are not as they should be: {wrong:?}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns whether a request is a successful write for the processor, other than of events.
    pub(super) fn is_write(event: &Event) -> bool {
        let account = format!("system:serviceaccount:{HOME}:{PROCESSOR}");
        event.account() == account
            && ["create", "update", "patch", "delete"].contains(&event.verb.as_str())
            && !["events", "selfsubjectaccessreviews"].contains(&&*event.resource())
            && (200..300).contains(&event.code())
    }
}

async fn in_parallel(requests: impl Iterator<Item = impl Future<Output = ()>>) {
    stream::iter(requests).buffer_unordered(CONCURRENT_REQUESTS).collect::<()>().await;
}

/// Returns whether none of the host's keys is ready, running or backing off.
async fn is_idle(ports: &Ports) -> bool {
    let (code, body) = get(&ports.admin, "/processors").await;
    assert_eq!(code, 200, "{body}");
    let processors: Value = serde_json::from_str(&body).unwrap();
    let of = &processors[0];
    ["ready", "running", "backingOff"].iter().all(|count| of[count] == 0)
}

/// Waits until a host is ready, or not ready; returns the text of `/readyz`.
pub(super) async fn until_ready(ports: &Ports, ready: bool) -> String {
    let begun = Instant::now();
    loop {
        let (code, body) = get(&ports.public, "/readyz").await;
        if (code == 200) == ready {
            return body;
        }
        assert!(begun.elapsed() < TIMEOUT, "/readyz: {code} {body}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn name(rule: usize) -> String {
    format!("shop-{rule}")
}

/// Returns the number of the rule that an object is, or is made for.
fn rule_of(object: &Value) -> usize {
    let metadata = &object["metadata"];
    let owner = metadata["labels"]["apirule.gateway.kyma-project.io/name"].as_str();
    let name = owner.or(metadata["name"].as_str()).unwrap();
    let number = name.strip_prefix("shop-").and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("whose is {object}"))
}

fn resource((group, version, kind): (&str, &str, &str)) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

fn place(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    format!(
        "{} {}/{}",
        text(&object["kind"]),
        text(&metadata["namespace"]),
        text(&metadata["name"])
    )
}

/// Removes uids, times and resourceVersions, and sorts the managed fields.
fn without_chance(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        metadata.remove(field);
    }
    for owner in
        metadata.get_mut("ownerReferences").and_then(Value::as_array_mut).into_iter().flatten()
    {
        owner.as_object_mut().unwrap().remove("uid");
    }
    if let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
        for entry in entries.iter_mut() {
            entry.as_object_mut().unwrap().remove("time");
        }
        entries.sort_by_key(Value::to_string);
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("lastProcessedTime");
    }
    object
}

/// Compares two states object by object.
pub(super) fn assert_same(there: &State, expected: &State) {
    let places: BTreeSet<&String> = there.keys().chain(expected.keys()).collect();
    for place in places {
        assert_eq!(there.get(place), expected.get(place), "{place}");
    }
}

// === impl Load ===

impl Load {
    /// Stops the task; returns the number of changes.
    pub(super) async fn stop(self) -> usize {
        self.stop.cancel();
        tokio::time::timeout(TIMEOUT, self.task).await.expect("the API answers again").unwrap()
    }
}
