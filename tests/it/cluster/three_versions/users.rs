//! Users of APIRules, in three versions, while hosts come and go.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::StreamExt as _;
use kube::{
    Api,
    api::{DynamicObject, ListParams, Patch, PatchParams, WatchEvent, WatchParams},
};
use mortise_tests::{
    rebuilt,
    rules::{self, NAMESPACE},
};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{interval, sleep, timeout},
};

use super::{
    Converter, GROUP, Gateway, HOME, MODULE, Served, VERSIONS, old, rule, served, written,
};
use crate::{
    cluster::program::{POLL_INTERVAL, TIMEOUT, get},
    host::{
        merge,
        webhooks::{Issued, issued_for},
    },
};

/// The interval of reads.
const READ_INTERVAL: Duration = Duration::from_millis(10);
/// The maximum number of reads under way: fewer than the connections that a host keeps open, so
/// that on a slow machine none is closed for another.
const MAX_OPEN_READS: usize = 200;
const RULES: usize = 30;

/// Reads of APIRules in three versions, at a constant rate, until it is dropped.
struct Reads {
    counted: Arc<Counted>,
    _running: JoinSet<()>,
}

#[derive(Default)]
struct Counted {
    begun: AtomicUsize,
    done: AtomicUsize,
    failed: Mutex<Vec<String>>,
}

// === impl Reads ===

impl Reads {
    async fn start(gateway: &Gateway) -> Self {
        let mut apis = Vec::new();
        for version in VERSIONS {
            apis.push(gateway.rules(version).await);
        }
        let (counted, mut running) = (Arc::<Counted>::default(), JoinSet::new());
        running.spawn(Arc::clone(&counted).read(apis.clone()));
        running.spawn(change(apis[2].clone()));
        Self { counted, _running: running }
    }

    fn begun(&self) -> usize {
        self.counted.begun.load(Ordering::Relaxed)
    }

    fn done(&self) -> usize {
        self.counted.done.load(Ordering::Relaxed)
    }

    /// Waits until this many more reads have ended.
    async fn more(&self, reads: usize) {
        let until = self.done() + reads;
        while self.done() < until {
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the errors of reads since the last time.
    fn failed(&self) -> Vec<String> {
        std::mem::take(&mut self.counted.failed.lock().unwrap())
    }
}

// === impl Counted ===

impl Counted {
    /// Reads an APIRule, and in every tenth turn all, in each of the versions in turn.
    async fn read(self: Arc<Self>, apis: Vec<Api<DynamicObject>>) {
        let (mut due, mut open) = (interval(READ_INTERVAL), JoinSet::new());
        for turn in 0.. {
            due.tick().await;
            let (api, counted) = (apis[turn % apis.len()].clone(), Arc::clone(&self));
            self.begun.fetch_add(1, Ordering::Relaxed);
            open.spawn(async move {
                let read = match turn % 10 {
                    0 => api.list(&ListParams::default()).await.map(drop),
                    _ => api.get(&format!("rule-{}", turn % RULES)).await.map(drop),
                };
                if let Err(error) = read {
                    counted.failed.lock().unwrap().push(error.to_string());
                }
                counted.done.fetch_add(1, Ordering::Relaxed);
            });
            while open.try_join_next().is_some() {}
            if open.len() >= MAX_OPEN_READS {
                open.join_next().await;
            }
        }
    }
}

/// Changes the APIRules in turn, as fast as the API server answers, so that they are reconciled all
/// the time.
async fn change(api: Api<DynamicObject>) {
    for turn in 0.. {
        let timeout = 1 + turn / RULES % 100;
        let patch = Patch::Merge(json!({"spec": {"timeout": timeout}}));
        let name = format!("rule-{}", turn % RULES);
        // A failure of the API server's question to a host is seen by reads.
        #[expect(clippy::disallowed_methods, reason = "what a test writes is no processor's")]
        let _ = api.patch(&name, &PatchParams::default(), &patch).await;
    }
}

impl Gateway {
    /// Starts a host that competes for the Lease.
    async fn replica(&self) -> Served {
        self.host(&["--leader-elect", "--lease-namespace", HOME]).await
    }

    /// Has the API server trust both authorities, and waits until it does: a column of the same
    /// definition shows when it has taken that.
    async fn trust(&self, from: &Issued, to: &Issued) {
        let bundle = format!("{}{}", from.authority, to.authority);
        let mut all = self.definitions();
        let of = all.iter_mut().find(|one| one["spec"]["conversion"]["webhook"].is_object());
        let spec = &mut of.unwrap()["spec"];
        spec["conversion"]["webhook"]["clientConfig"]["caBundle"] = json!(STANDARD.encode(bundle));
        let column = json!({"name": "Trusted", "type": "string", "jsonPath": ".metadata.name"});
        for version in spec["versions"].as_array_mut().unwrap() {
            version["additionalPrinterColumns"] = json!([column]);
        }
        self.plane.install(&all).await.unwrap();
        self.until("the API server has taken the definition", async || {
            let path = format!("/apis/{GROUP}/v2/namespaces/{NAMESPACE}/apirules?limit=1");
            let asked = http::Request::get(path)
                .header(http::header::ACCEPT, "application/json;as=Table;v=v1;g=meta.k8s.io")
                .body(Vec::new())
                .unwrap();
            let table: Value = self.cluster.client().request(asked).await.unwrap();
            let columns = table["columnDefinitions"].as_array().unwrap();
            columns.iter().any(|column| column["name"] == "Trusted")
        })
        .await;
    }

    /// Returns the Processor with this module, and one slot for reconciles.
    fn narrow(module: &str) -> Value {
        let mut processor = Self::processor(module, false);
        processor["spec"]["limits"] = json!({"concurrency": 1});
        processor
    }

    /// Waits until keys wait for a slot of one of these hosts.
    async fn until_busy(&self, hosts: &[&Served]) {
        self.until("every slot is taken", async || {
            for host in hosts {
                if host.waiting().await > 0 {
                    return true;
                }
            }
            false
        })
        .await;
    }

    /// Has kubectl watch the APIRules in a version for two seconds, in which one of them is changed
    /// again and again. Returns the changes that kubectl prints.
    async fn watched(&self, version: &str, name: &str) -> Vec<Value> {
        let mut watch = self.kubectl_command(&format!(
            "get apirules.{version}.{GROUP} -n {NAMESPACE} --watch-only -o json --request-timeout=2s"
        ));
        let watch = tokio::task::spawn_blocking(move || watch.output().unwrap());
        let api = self.rules("v2alpha1").await;
        for turn in 0.. {
            if watch.is_finished() {
                break;
            }
            let change = Patch::Merge(json!({"metadata": {"labels": {"turn": turn.to_string()}}}));
            #[expect(clippy::disallowed_methods, reason = "what a test writes is no processor's")]
            api.patch(name, &PatchParams::default(), &change).await.unwrap();
            sleep(POLL_INTERVAL).await;
        }
        let said = watch.await.unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        let changes = serde_json::Deserializer::from_slice(&said.stdout).into_iter();
        changes.collect::<Result<_, _>>().unwrap()
    }

    /// Returns whether a host holds the Lease.
    async fn leads(&self, host: &Served) -> bool {
        {
            let (_, text) = get(&host.ports.admin, "/host").await;
            let host: Value = serde_json::from_str(&text).unwrap();
            host["leads"] == true
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_read_fails_while_hosts_components_and_certificates_are_replaced() {
    let issued = issued_for("localhost", -1, 1);
    let Some(gateway) = Gateway::open(served(&issued)).await else { return };
    let (first, second) = (gateway.replica().await, gateway.replica().await);
    gateway.front.set(&[first.webhooks, second.webhooks]);
    gateway.apply(vec![Gateway::narrow(MODULE)]).await;
    let module = gateway.read(MODULE);
    for host in [&first, &second] {
        gateway.until_served(host, &module).await;
    }
    for index in 0..RULES {
        let version = VERSIONS[index % 3];
        let name = format!("rule-{index}");
        let written = match version {
            "v1beta1" => old(&name, &json!({"handler": "no_auth"})),
            _ => rule(version, &name, &rules::rule(index)["spec"]),
        };
        gateway.create("kubectl-client-side-apply", &written).await;
    }
    let reads = Reads::start(&gateway).await;
    reads.more(300).await;
    assert_eq!(reads.failed(), Vec::<String>::new(), "nothing happens");

    let again = rebuilt(&module, "2");
    gateway.put("again.wasm", &again);
    gateway.until_busy(&[&first, &second]).await;
    gateway.apply(vec![Gateway::narrow("again.wasm")]).await;
    for host in [&first, &second] {
        gateway.until_served(host, &again).await;
    }
    reads.more(300).await;
    assert_eq!(reads.failed(), Vec::<String>::new(), "the component is swapped");

    let next = issued_for("localhost", -1, 1);
    gateway.trust(&issued, &next).await;
    // Reads that began before are over.
    reads.more(100).await;
    gateway.until_busy(&[&first, &second]).await;
    let (_, secret) = served(&next);
    gateway.apply(vec![secret]).await;
    reads.more(500).await;
    assert_eq!(reads.failed(), Vec::<String>::new(), "the certificate is renewed");

    // The leader is told to end. Its endpoint goes a second later, its port after that.
    gateway
        .until("a host leads", async || gateway.leads(&first).await || gateway.leads(&second).await)
        .await;
    let (mut leader, other) =
        if gateway.leads(&first).await { (first, second) } else { (second, first) };
    gateway.until_busy(&[&leader]).await;
    leader.program.terminate();
    reads.more(100).await;
    gateway.front.set(&[other.webhooks]);
    let (status, said) = leader.program.ended().await;
    assert!(status.success(), "{said}");
    gateway.until("the other host leads", async || gateway.leads(&other).await).await;
    reads.more(300).await;
    assert_eq!(reads.failed(), Vec::<String>::new(), "the leader is ended");
    assert_eq!(gateway.front.refused(), 0);

    // One that is killed fails what is led to it until its endpoint is gone, and nothing else.
    let third = gateway.replica().await;
    gateway.until_served(&third, &again).await;
    gateway.front.set(&[other.webhooks, third.webhooks]);
    reads.more(100).await;
    gateway.until_busy(&[&other]).await;
    assert_eq!(reads.failed(), Vec::<String>::new(), "a third host is an endpoint");
    assert_only_led_reads_fail(&gateway, &reads, other, &third).await;
}

/// Kills a host, and removes its endpoint after a while. Asserts that reads fail only if they were
/// sent to its address: at most those that were under way until the API server had closed its
/// connections to the host, and one for each connection that was refused.
async fn assert_only_led_reads_fail(
    gateway: &Gateway,
    reads: &Reads,
    killed: Served,
    left: &Served,
) {
    let (address, done, refused) = (killed.webhooks, reads.done(), gateway.front.refused());
    killed.program.kill();
    gateway.front.until_left(address).await;
    let cut_off = reads.begun() - done;
    reads.more(100).await;
    gateway.front.set(&[left.webhooks]);
    reads.more(300).await;
    let (failed, refused) = (reads.failed(), gateway.front.refused() - refused);
    println!(
        "{} reads failed with a killed host: {cut_off} were under way, {refused} refused",
        failed.len()
    );
    assert!(failed.len() <= cut_off + refused, "{failed:#?}");
    reads.more(300).await;
    assert_eq!(reads.failed(), Vec::<String>::new(), "its endpoint is gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_works_in_each_version() {
    let issued = issued_for("localhost", -1, 1);
    let Some(gateway) = Gateway::open(served(&issued)).await else { return };
    let original = Converter::start(&gateway).await;
    gateway.front.set(&[original.address]);
    let all = written();
    let labels = json!({"metadata": {"labels": {"changed": "yes"}}});
    for mut written in all.clone() {
        let mut apply = |options: &str, answer: &str, change: &Value| {
            merge(&mut written, change);
            let said = gateway.kubectl(&format!("apply {options}-f -"), &written.to_string());
            assert!(said.contains(answer), "{answer}: {said}");
            let is_old = written["apiVersion"].as_str().unwrap().ends_with("/v1beta1");
            assert_eq!(said.contains("Warning: Version v1beta1"), is_old, "{said}");
        };
        apply("", "created", &json!({}));
        apply("", "unchanged", &json!({}));
        apply("", "configured", &labels);
        apply("--server-side ", "serverside-applied", &json!({}));
    }
    // All of them can be read, listed and watched in each version.
    for version in VERSIONS {
        let kinds = format!("apirules.{version}.{GROUP}");
        let listed = gateway.kubectl(&format!("get {kinds} -n {NAMESPACE} -o json"), "");
        // A warning follows.
        let mut listed = serde_json::Deserializer::from_str(&listed).into_iter::<Value>();
        let listed = listed.next().unwrap().unwrap();
        let listed = listed["items"].as_array().unwrap();
        assert_eq!(listed.len(), all.len());
        assert!(listed.iter().all(|one| one["apiVersion"] == format!("{GROUP}/{version}")));
        let own = all.iter().find(|one| one["apiVersion"] == format!("{GROUP}/{version}")).unwrap();
        let changes = gateway.watched(version, own["metadata"]["name"].as_str().unwrap()).await;
        assert!(!changes.is_empty(), "kubectl sees changes in {version}");
        for change in changes {
            assert_eq!(change["apiVersion"], own["apiVersion"]);
            assert_eq!(change["spec"], own["spec"]);
        }
        let api = gateway.rules(version).await;
        let watched = api.watch(&WatchParams::default(), "0").await.unwrap();
        let watched: Vec<_> = timeout(TIMEOUT, watched.take(all.len()).collect()).await.unwrap();
        for event in watched {
            let WatchEvent::Added(object) = event.unwrap() else { panic!("nothing has changed") };
            let name = object.metadata.name.unwrap();
            let of = all.iter().find(|one| one["metadata"]["name"] == *name).unwrap();
            if of["apiVersion"] == format!("{GROUP}/{version}") {
                assert_eq!(object.data["spec"], of["spec"], "{name}");
            }
        }
    }
    // Fields that are applied in another version than the stored one are its manager's, and no
    // other's.
    for (version, written) in [("v2", &all[3]), ("v1beta1", &all[1])] {
        let name = written["metadata"]["name"].as_str().unwrap();
        let api = gateway.api(written).await;
        for (seconds, case) in [(Some(10), "another manager's field"), (None, "it is given up")] {
            let (mut applied, mut expected) = (json!({}), written["spec"].clone());
            if let Some(seconds) = seconds {
                applied["timeout"] = json!(seconds);
                expected["timeout"] = json!(seconds);
            }
            let applied = rule(version, name, &applied).to_string();
            let apply = "apply --server-side --field-manager=other -f -";
            let said = gateway.kubectl(apply, &applied);
            assert!(said.contains("serverside-applied"), "{version}, {case}: {said}");
            let live = api.get(name).await.unwrap();
            assert_eq!(live.data["spec"], expected, "{version}, {case}");
        }
    }
    original.end().await;
}
