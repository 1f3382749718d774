//! From the original operator to the processor, and back. The original is played: what it makes is
//! carried out on an API in memory, and written as it writes, by whole objects under its manager.
//! Its webhook configurations stay; the front stands for its Service.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt as _;
use kube::{
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};

use super::{
    Converter, GROUP, Gateway, HOME, MODULE, ORIGINAL, ORIGINAL_VERSION, PROCESSOR, STORED, Served,
    TRAFFIC, aliases, carried_out, former, rule, written,
};
use crate::guides;

const GUIDE: &str = "deploy/README.md";
/// The guest that keeps the certificate of webhooks, and the name of its Processor.
const CERTIFICATE: &str = "webhook-certificate";
const USER: &str = "kubectl-client-side-apply";
const FINALIZER: &str = "gateway.kyma-project.io/subresources";

/// The states that each APIRule has had since they are followed.
struct States {
    seen: Arc<Mutex<BTreeSet<(String, String)>>>,
    _following: JoinSet<()>,
}

/// The uid of each object, and the part that people write.
type Seen = BTreeMap<(String, String), (Value, Value)>;

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

fn seen(objects: Vec<Value>) -> Seen {
    let of = |mut object: Value| {
        let key = (object["kind"].as_str().unwrap().to_owned(), name_of(&object));
        let metadata = object["metadata"].take();
        object["labels"] = metadata["labels"].clone();
        object["finalizers"] = metadata["finalizers"].clone();
        object.as_object_mut().unwrap().remove("status");
        (key, (metadata["uid"].clone(), object))
    };
    objects.into_iter().map(of).collect()
}

/// Returns an object as a client creates it.
fn fresh(object: &Value) -> Value {
    let mut fresh = object.clone();
    let metadata = json!({
        "name": object["metadata"]["name"], "namespace": object["metadata"]["namespace"],
        "labels": object["metadata"]["labels"], "annotations": object["metadata"]["annotations"],
    });
    fresh["metadata"] = metadata;
    fresh.as_object_mut().unwrap().remove("status");
    fresh
}

/// Returns the Processor that keeps the certificate, suspended.
fn certificate() -> Value {
    json!({
        "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor",
        "metadata": {"namespace": HOME, "name": CERTIFICATE},
        "spec": {
            "module": {"path": format!("{CERTIFICATE}.wasm")}, "serviceAccountName": CERTIFICATE,
            "takeOver": [ORIGINAL], "onDelete": "Release", "suspend": true,
        },
    })
}

fn params() -> PostParams {
    PostParams { field_manager: Some(ORIGINAL.to_owned()), ..PostParams::default() }
}

impl Gateway {
    /// Installs the original's configurations of webhooks, and waits until the API server calls
    /// both. No host answers yet.
    async fn install_original_hooks(&self) {
        self.apply(former::configurations(|path| self.client_config(path))).await;
        for (version, webhook) in [("v2alpha1", former::MUTATING), ("v1beta1", former::VALIDATING)]
        {
            let of_version = |rule: &Value| rule["apiVersion"] == format!("{GROUP}/{version}");
            let rule = written().into_iter().find(of_version).unwrap();
            let expected = format!("failed calling webhook \"{webhook}\"");
            self.until(&format!("the API server calls {webhook}"), async || {
                let answer = self.try_create(&rule).await;
                answer.is_err_and(|error| error.to_string().contains(&expected))
            })
            .await;
        }
    }

    /// Creates an object without storing it: webhooks and conversions are asked as for any other.
    async fn try_create(&self, object: &Value) -> kube::Result<DynamicObject> {
        let params = PostParams { dry_run: true, ..PostParams::default() };
        let typed = serde_json::from_value(object.clone()).unwrap();
        self.api(object).await.create(&params, &typed).await
    }

    /// Creates an APIRule in each version, without storing it, and changes those that are stored,
    /// each in the version in which it was written.
    async fn write_as_user(&self, when: &str) {
        for mut rule in written() {
            let api = self.api(&rule).await;
            let change = json!({"metadata": {"annotations": {"example.com/written": when}}});
            let change = Patch::Merge(change);
            let changed = api.patch(&name_of(&rule), &PatchParams::default(), &change).await;
            changed.unwrap_or_else(|error| panic!("{when}: {rule:#}: {error}"));
            rule["metadata"]["name"] = json!("tried");
            let created = self.try_create(&rule).await;
            let created = created.unwrap_or_else(|error| panic!("{when}: {rule:#}: {error}"));
            if rule["apiVersion"] == format!("{GROUP}/v2alpha1") {
                let annotations = created.metadata.annotations.unwrap();
                assert_eq!(annotations[ORIGINAL_VERSION], "v2alpha1", "{when}");
            }
        }
    }

    /// Runs the commands below a comment of the guide, as an administrator.
    fn guide(&self, step: &str) {
        let comment = format!("<!-- cluster::three_versions::hand_over: {step} -->");
        let commands = guides::block(GUIDE, &comment);
        let mut shell = Command::new("timeout");
        shell.args(["300", "sh", "-e", "-c", &commands]);
        shell.env("KUBECONFIG", self.plane.kubeconfig());
        let output = shell.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}\n{commands}{said}", output.status);
    }

    /// Returns what the original makes of the APIRules that are stored, and these with its status.
    async fn made_by_original(&self) -> (Vec<Value>, Vec<Value>) {
        let stored = self.list(STORED).await;
        let surroundings = mortise_tests::rules::surroundings().unwrap();
        let objects = surroundings.into_iter().chain(stored.iter().map(fresh)).collect();
        let all = carried_out(objects).await.objects();
        let of = |kinds: &[&str]| -> Vec<Value> {
            let kind = |object: &Value| object["kind"].as_str().unwrap().to_owned();
            let is_of = |object: &&Value| {
                kinds.iter().any(|of| of.ends_with(&format!("/{}", kind(object))))
            };
            all.iter().filter(is_of).cloned().collect()
        };
        (of(&TRAFFIC), of(&[STORED]))
    }

    /// Writes what the original writes.
    async fn write_as_original(&self, (traffic, rules): &(Vec<Value>, Vec<Value>)) {
        for wanted in traffic {
            let api = self.api(wanted).await;
            let Some(mut live) = api.get_opt(&name_of(wanted)).await.unwrap() else {
                self.create(ORIGINAL, &fresh(wanted)).await;
                continue;
            };
            live.data["spec"] = wanted["spec"].clone();
            live.metadata.labels =
                serde_json::from_value(wanted["metadata"]["labels"].clone()).unwrap();
            api.replace(&name_of(wanted), &params(), &live).await.unwrap();
        }
        for wanted in rules {
            let (api, name) = (self.api(wanted).await, name_of(wanted));
            let mut live = api.get(&name).await.unwrap();
            live.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
            let mut live = api.replace(&name, &params(), &live).await.unwrap();
            live.data["status"] = wanted["status"].clone();
            api.replace_status(&name, &params(), &live).await.unwrap();
        }
    }

    /// Follows the states of APIRules from now on.
    async fn states(&self) -> States {
        let api = self.api(&rule("v2alpha1", "any", &Value::Null)).await;
        let (seen, mut following) = (Arc::<Mutex<BTreeSet<_>>>::default(), JoinSet::new());
        let all = Arc::clone(&seen);
        following.spawn(async move {
            let objects = watcher(api, watcher::Config::default()).touched_objects();
            objects
                .for_each(|object| {
                    let object: DynamicObject = object.unwrap();
                    let state = object.data["status"]["state"].as_str().unwrap_or_default();
                    all.lock().unwrap().insert((object.metadata.name.unwrap(), state.to_owned()));
                    std::future::ready(())
                })
                .await;
        });
        let states = States { seen, _following: following };
        let count = written().len();
        self.until("the states are followed", async || states.seen().len() == count).await;
        states
    }

    /// Waits until no field of what is made for APIRules is the original's.
    async fn until_taken_over(&self) {
        let is_original_s = |object: &Value| {
            let fields = object["metadata"]["managedFields"].as_array().cloned();
            fields.unwrap_or_default().iter().any(|entry| entry["manager"] == ORIGINAL)
        };
        self.until("all fields are the processor's", async || {
            !self.traffic().await.iter().any(is_original_s)
        })
        .await;
    }

    /// Waits until nothing has run for two seconds.
    async fn until_quiet(&self, host: &Served) {
        let last = Mutex::new((host.runs().await, Instant::now()));
        self.until("nothing runs any more", async || {
            let now = host.runs().await;
            let mut last = last.lock().unwrap();
            if last.0 != now {
                *last = (now, Instant::now());
            }
            last.1.elapsed() > Duration::from_secs(2)
        })
        .await;
    }

    /// Makes the Deployment of the original, which owns the Secret with the certificate.
    async fn own_certificate(&self) -> Value {
        let owner = former::deployment();
        self.create(ORIGINAL, &owner).await;
        let uid = self.api(&owner).await.get(&name_of(&owner)).await.unwrap().metadata.uid;
        let reference = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "name": name_of(&owner), "uid": uid,
        });
        let (api, name) = (self.api(&self.certificate).await, name_of(&self.certificate));
        let mut secret = api.get(&name).await.unwrap();
        secret.metadata.owner_references = serde_json::from_value(json!([reference])).unwrap();
        api.replace(&name, &params(), &secret).await.unwrap();
        owner
    }

    /// Returns the data of the Secret with the certificate, and how many owners it has.
    async fn pair(&self) -> (Value, usize) {
        let name = name_of(&self.certificate);
        let secret = self.api(&self.certificate).await.get(&name).await.unwrap();
        (secret.data["data"].clone(), secret.metadata.owner_references.map_or(0, |of| of.len()))
    }

    /// Deletes the original's Deployment once it does not own the Secret any more.
    async fn end_owner(&self, owner: &Value, pair: &Value) {
        self.until("the Secret has no owner", async || self.pair().await == (pair.clone(), 0))
            .await;
        let deployments = self.api(owner).await;
        deployments.delete(&name_of(owner), &DeleteParams::foreground()).await.unwrap();
        self.until("the Deployment is gone with all that it owns", async || {
            deployments.get_opt(&name_of(owner)).await.unwrap().is_none()
        })
        .await;
    }

    /// Deletes all `VirtualServices`, and waits until the processor has made them again. Returns
    /// the objects, as [`seen`] does.
    async fn repaired(&self, host: &Served) -> Seen {
        let all = self.traffic().await;
        for object in all.iter().filter(|object| object["kind"] == "VirtualService") {
            let params = DeleteParams::default();
            self.api(object).await.delete(&name_of(object), &params).await.unwrap();
        }
        self.until("all is made again", async || seen(self.traffic().await).len() == all.len())
            .await;
        self.until_quiet(host).await;
        seen(self.traffic().await)
    }
}

/// Returns the contents of objects, whatever their names are.
fn specs(objects: &Seen) -> Vec<Value> {
    let mut specs: Vec<Value> =
        objects.values().map(|(_, content)| content["spec"].clone()).collect();
    specs.sort_by_key(Value::to_string);
    specs
}

// === impl States ===

impl States {
    fn seen(&self) -> BTreeSet<(String, String)> {
        self.seen.lock().unwrap().clone()
    }
}

#[test]
fn the_guide_names_the_paths_that_the_hosts_of_these_tests_answer() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(GUIDE);
    let guide = std::fs::read_to_string(guide).unwrap();
    for alias in aliases() {
        assert!(guide.contains(&format!("\n--webhook-path {alias}\n")), "{alias}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_of_three_versions_go_from_the_original_to_the_processor_and_back_untouched() {
    let Some(gateway) = Gateway::open(former::secret()).await else { return };
    gateway.install_original_hooks().await;
    let original = Converter::start(&gateway).await;
    gateway.front.set(&[original.address]);
    for rule in written() {
        gateway.create(USER, &rule).await;
    }
    gateway.write_as_user("before").await;
    let made = gateway.made_by_original().await;
    gateway.write_as_original(&made).await;
    let of_kind = |kind: &str| made.0.iter().filter(|object| object["kind"] == kind).count();
    assert_eq!((of_kind("VirtualService"), of_kind("Rule")), (5, 1));
    let (traffic, rules) = (seen(gateway.traffic().await), seen(gateway.list(STORED).await));
    let owner = gateway.own_certificate().await;
    let (pair, owners) = gateway.pair().await;
    assert_eq!(owners, 1);
    let states = gateway.states().await;
    let settled = states.seen();

    // To the processor: suspended, it answers webhooks before the original ends.
    gateway.guest(CERTIFICATE, "").await;
    let host = gateway.host(&[]).await;
    gateway.apply(vec![Gateway::processor(MODULE, true), certificate()]).await;
    gateway.until_served(&host, &gateway.read(MODULE)).await;
    gateway.front.set(&[host.webhooks]);
    let address = original.address;
    original.end().await;
    gateway.front.until_left(address).await;
    gateway.write_as_user("while nobody reconciles").await;
    assert_eq!(seen(gateway.traffic().await), traffic);
    gateway.guide("go-on");
    gateway.write_as_user("while fields are taken over").await;
    gateway.until_taken_over().await;
    gateway.end_owner(&owner, &pair).await;
    gateway.until_quiet(&host).await;
    assert_eq!(seen(gateway.traffic().await), traffic);
    assert_eq!(seen(gateway.list(STORED).await), rules);
    assert_eq!(states.seen(), settled, "no state has changed");
    for written in written() {
        let live = gateway.api(&written).await.get(&name_of(&written)).await.unwrap();
        assert_eq!(live.data["spec"], written["spec"], "{written:#}");
    }
    // It repairs what it has taken over, of each version.
    let repaired = gateway.repaired(&host).await;
    assert_eq!(specs(&repaired), specs(&traffic));

    // And back: the Processor lets go, and the original writes what it wants.
    let original = Converter::start(&gateway).await;
    gateway.guide("back");
    assert_eq!(gateway.list(PROCESSOR).await, Vec::<Value>::new());
    gateway.front.set(&[original.address]);
    let address = host.webhooks;
    drop(host);
    gateway.front.until_left(address).await;
    gateway.write_as_user("after").await;
    let (_, wanted) = gateway.made_by_original().await;
    gateway.write_as_original(&(gateway.traffic().await, wanted)).await;
    assert_eq!(seen(gateway.traffic().await), repaired);
    assert_eq!(seen(gateway.list(STORED).await), rules);
    assert_eq!(states.seen(), settled, "no state has changed");
    assert_eq!(gateway.pair().await, (pair, 0), "a certificate that is valid stays");
    original.end().await;
}
