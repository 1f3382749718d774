//! `mortise run` with the options about registries, and a registry of the tests' own.

use std::{fs, time::Duration};

use kube::{Api, Client, runtime::wait::await_condition};
use mortise_embedded_api::{EmbeddedApi, Options};
use mortise_host::{
    oci::{
        Digest,
        artifact::{Annotations, Artifact, Descriptor, LAYER},
    },
    operator::api::{Condition, Processor, definition},
};
use mortise_tests::{
    rebuilt,
    registry::fake::{self, Fake, Proxy},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::mpsc, task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

use super::module;
use crate::cluster::program::Program;

/// Timeout that only a fault reaches. It is shorter than the interval of a host without the option.
const TIMEOUT: Duration = Duration::from_mins(2);
const NAMESPACES: [&str; 2] = ["a", "b"];
/// The account of all Processors.
const ACCOUNT: &str = "team";
/// The tag of all artifacts.
const TAG: &str = "stable";
/// The number of resolutions, one a second, in which 3600 ms would have passed.
const RESOLUTIONS: usize = 5;

/// A cluster without a host, a registry, and a folder for hosts.
struct Place {
    api: EmbeddedApi,
    fake: Fake,
    folder: TempDir,
    /// Serves the API until it is dropped.
    _serving: JoinSet<()>,
}

// === impl Place ===

impl Place {
    async fn open(fake: Fake) -> Self {
        let namespaces = ["default"].into_iter().chain(NAMESPACES).map(str::to_owned).collect();
        let api = EmbeddedApi::new(Options { namespaces, ..Options::default() });
        let accounts = NAMESPACES.into_iter().flat_map(account);
        for object in [definition::processors()].into_iter().chain(accounts) {
            api.load(object, true).unwrap();
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let mut serving = JoinSet::new();
        serving.spawn({
            let api = api.clone();
            async move { api.serve(listener, CancellationToken::new()).await.unwrap() }
        });
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("modules")).unwrap();
        let kubeconfig = mortise_tests::cluster::kubeconfig(&server);
        fs::write(folder.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
        Self { api, fake, folder, _serving: serving }
    }

    /// Starts a host with a cache in this folder, and waits until it listens.
    async fn start(&self, cache: &str, arguments: &[&str]) -> Program {
        let at = |name: &str| self.folder.path().join(name);
        let mut host = Program::start(&at("kubeconfig"), &at("modules"), &at(cache), arguments);
        host.ports().await;
        host
    }

    fn image(&self, repository: &str) -> String {
        format!("{}/{repository}:{TAG}", self.fake.host())
    }

    /// Adds a Processor whose module is in this repository; returns the reference of the module.
    fn add(&self, namespace: &str, name: &str, repository: &str) -> String {
        let image = self.image(repository);
        self.add_image((namespace, name), &image);
        image
    }

    /// Adds a Processor with this module.
    fn add_image(&self, (namespace, name): (&str, &str), image: &str) {
        let object = json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"module": {"image": image}, "serviceAccountName": ACCOUNT},
        });
        self.api.load(object, true).unwrap();
    }

    /// Returns the reference of a module under another name of the registry's host.
    fn alias(&self, repository: &str) -> String {
        format!("{}/{repository}:{TAG}", self.fake.alias())
    }

    /// Writes the certificate of the registry's authority to a file; returns its path.
    fn authority(&self) -> String {
        let path = self.folder.path().join("ca.pem");
        fs::write(&path, fake::AUTHORITY).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Waits until `holds` is true of a Processor.
    async fn until(
        &self,
        (namespace, name): (&str, &str),
        what: &str,
        holds: impl Fn(&Processor) -> bool,
    ) -> Processor {
        let client = Client::new(self.api.router(), "default");
        let processors: Api<Processor> = Api::namespaced(client, namespace);
        let holds = |processor: Option<&Processor>| processor.is_some_and(&holds);
        match timeout(TIMEOUT, await_condition(processors.clone(), name, holds)).await {
            Ok(found) => found.unwrap().unwrap(),
            Err(elapsed) => panic!(
                "not reached, {elapsed}: {what}; {:#?}",
                processors.get(name).await.map(|it| it.status)
            ),
        }
    }

    /// Waits until a Processor runs the artifact with this manifest.
    async fn until_runs(&self, processor: (&str, &str), manifest: Digest) {
        let manifest = manifest.to_string();
        let runs = |processor: &Processor| {
            let module = processor.status.as_ref().and_then(|status| status.module.as_ref());
            let image = module.and_then(|module| module.image.as_ref());
            let is_ready =
                condition(processor, "Ready").is_some_and(|ready| ready.reason == "Runs");
            is_ready && image.is_some_and(|image| image.ends_with(&manifest))
        };
        self.until(processor, &format!("{manifest} runs"), runs).await;
    }

    /// Waits until a module is not loaded for this reason; returns the message of the condition.
    async fn until_not_loaded(&self, processor: (&str, &str), reason: &str) -> String {
        let is_it = |processor: &Processor| {
            condition(processor, "Loaded")
                .is_some_and(|loaded| loaded.status == "False" && loaded.reason == reason)
        };
        let found = self.until(processor, reason, is_it).await;
        condition(&found, "Loaded").unwrap().message.clone()
    }

    /// Returns the number of requests up to now whose path ends so.
    fn requests(&self, end: &str) -> usize {
        self.fake.seen().iter().filter(|request| request.target.ends_with(end)).count()
    }

    /// Returns the number of times that the registry was asked what the tag of a repository names.
    fn resolutions(&self, repository: &str) -> usize {
        self.requests(&format!("/{repository}/manifests/{TAG}"))
    }
}

/// Returns an account that may do everything, and serves all Processors of its namespace.
fn account(namespace: &str) -> [Value; 3] {
    let rbac = "rbac.authorization.k8s.io";
    let subject = json!({"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace});
    let annotations = json!({"mortise.dev/processor": "*"});
    [
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": ACCOUNT, "namespace": namespace, "annotations": annotations},
        }),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole",
            "metadata": {"name": "everything"},
            "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
        }),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding",
            "metadata": {"name": format!("everything-{namespace}")},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "everything"},
            "subjects": [subject],
        }),
    ]
}

fn condition<'a>(processor: &'a Processor, kind: &str) -> Option<&'a Condition> {
    processor.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == kind)
}

fn idle() -> Vec<u8> {
    fs::read(module("tests/guests/idle")).unwrap()
}

async fn end(mut host: Program) {
    host.terminate();
    let (status, said) = host.ended().await;
    assert_eq!(status.code(), Some(0), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tag_is_resolved_again_after_the_interval_of_the_host_and_not_before() {
    let place = Place::open(Fake::plain().await).await;
    let [often, seldom] = NAMESPACES;
    let repository = |namespace: &str| format!("{namespace}/idle");
    // The manifest is the same in both repositories.
    let push = |component: &[u8]| {
        let push = |namespace: &str| place.fake.push_to(&repository(namespace), TAG, component);
        assert_eq!(push(often), push(seldom));
        push(often)
    };
    let one = idle();
    let first = push(&one);
    let mut hosts = Vec::new();
    for (namespace, seconds) in [(often, "1"), (seldom, "3600")] {
        place.add(namespace, "idle", &repository(namespace));
        let arguments = ["--namespace", namespace, "--image-interval-seconds", seconds];
        hosts.push(place.start(namespace, &arguments).await);
    }
    for namespace in NAMESPACES {
        place.until_runs((namespace, "idle"), first).await;
    }

    let (sender, mut requests) = mpsc::unbounded_channel();
    place.fake.set_mood(move |_| {
        // At the end nobody waits for them.
        let _ = sender.send(());
        None
    });
    let [of_often, of_seldom] =
        NAMESPACES.map(|namespace| place.resolutions(&repository(namespace)));
    assert!(of_often > 0 && of_seldom > 0, "{of_often}, {of_seldom}");
    let second = push(&rebuilt(&one, "2"));
    place.until_runs((often, "idle"), second).await;
    while place.resolutions(&repository(often)) < of_often + RESOLUTIONS {
        timeout(TIMEOUT, requests.recv()).await.expect("the tag is resolved again").unwrap();
    }
    assert_eq!(place.resolutions(&repository(seldom)), of_seldom, "it is not asked for again");
    place.until_runs((seldom, "idle"), first).await;
    for host in hosts {
        end(host).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registry_of_a_private_authority_is_asked_only_with_its_certificate() {
    let place = Place::open(Fake::tls().await).await;
    let processor = (NAMESPACES[0], "idle");
    let manifest = place.fake.push_to("team/idle", TAG, &idle());
    let image = place.add(processor.0, processor.1, "team/idle");
    let host = place.start("cache", &[]).await;
    let message = place.until_not_loaded(processor, "RegistryUnavailable").await;
    let says =
        format!("`{image}`: `127.0.0.1` does not answer: invalid peer certificate: UnknownIssuer");
    assert!(message.contains(&says), "{message}");
    let seen = place.fake.seen();
    assert!(seen.is_empty(), "nothing is sent to one that is not trusted: {seen:?}");
    end(host).await;

    let host = place.start("cache", &["--registry-ca", &place.authority()]).await;
    place.until_runs(processor, manifest).await;
    end(host).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registry_elsewhere_is_asked_without_tls_only_if_an_option_names_it() {
    let place = Place::open(Fake::plain().await).await;
    let processor = (NAMESPACES[0], "idle");
    let manifest = place.fake.push_to("team/idle", TAG, &idle());
    let image = place.alias("team/idle");
    place.add_image(processor, &image);
    let host = place.start("cache", &[]).await;
    let message = place.until_not_loaded(processor, "RegistryUnavailable").await;
    let says = format!("`{image}`: `{}` speaks no TLS: ", fake::ALIAS);
    assert!(message.contains(&says), "{message}");
    let seen = place.fake.seen();
    assert!(seen.is_empty(), "nothing is sent without TLS: {seen:?}");
    end(host).await;

    let host = place.start("cache", &["--plain-http", &place.fake.alias()]).await;
    place.until_runs(processor, manifest).await;
    end(host).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registry_is_asked_by_the_proxy_unless_an_option_excepts_it() {
    let place = Place::open(Fake::tls().await).await;
    let proxy = Proxy::start(place.fake.host()).await;
    let manifest = place.fake.push_to("team/idle", TAG, &idle());
    let (image, authority) = (place.alias("team/idle"), place.authority());
    let (by, connect) =
        (format!("http://{}", proxy.host()), format!("CONNECT {} ", place.fake.alias()));
    // Nothing is asked of the proxy before the second host.
    let [direct, proxied] = NAMESPACES;
    for (namespace, excepted) in [(direct, fake::ALIAS), (proxied, "example.com")] {
        place.add_image((namespace, "idle"), &image);
        let of_proxy = ["--https-proxy", &by, "--no-proxy", excepted];
        let others = ["--namespace", namespace, "--registry-ca", &authority];
        let host = place.start(namespace, &[of_proxy, others].concat()).await;
        place.until_runs((namespace, "idle"), manifest).await;
        end(host).await;
        let asked = proxy.asked();
        assert_eq!(!asked.is_empty(), namespace == proxied, "{excepted}: {asked:?}");
        assert!(asked.iter().all(|asked| *asked == connect), "{asked:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_pulls_no_module_beyond_the_disk_space_that_it_is_given() {
    let place = Place::open(Fake::plain().await).await;
    let (small, large) = ((NAMESPACES[0], "small"), (NAMESPACES[0], "large"));
    let manifest = place.fake.push_to("team/small", TAG, &idle());
    // The largest module that is accepted. It does not exist: a request for it shows that there is
    // room.
    let layer = Descriptor { size: 64 << 20, ..Descriptor::of(LAYER, b"large") };
    let blob = format!("/blobs/{}", layer.digest);
    let names = (Vec::new(), Vec::new());
    let artifact = Artifact::build(layer, names, Annotations::new()).unwrap();
    place.fake.put_manifest("team/large", TAG, &artifact.manifest);
    place.add(small.0, small.1, "team/small");
    let host = place.start("cache", &["--max-modules-mib", "64"]).await;
    place.until_runs(small, manifest).await;
    let image = place.add(large.0, large.1, "team/large");
    let message = place.until_not_loaded(large, "CacheFull").await;
    let says = format!("`{image}`: the folder of modules has room for 64 MiB ");
    assert!(message.starts_with(&says) && message.contains("(--max-modules-mib)"), "{message}");
    assert_eq!(place.requests(&blob), 0, "it is not pulled");
    end(host).await;

    // A namespace gets half.
    let host = place.start("cache", &["--max-modules-mib", "130"]).await;
    place.until_not_loaded(large, "ImageNotFound").await;
    assert!(place.requests(&blob) > 0, "it is pulled");
    end(host).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn layers_that_are_no_modules_take_no_room_from_another_namespace() {
    /// The number of layers, which are together larger than the folder of modules.
    const LAYERS: u8 = 5;
    let place = Place::open(Fake::plain().await).await;
    let host = place.start("cache", &["--max-modules-mib", "64"]).await;
    for of in 0..LAYERS {
        let name = format!("large-{of}");
        place.fake.push_to(&name, TAG, &vec![of; 15 << 20]);
        place.add(NAMESPACES[0], &name, &name);
    }
    for of in 0..LAYERS {
        place.until_not_loaded((NAMESPACES[0], &format!("large-{of}")), "ModuleInvalid").await;
    }
    let manifest = place.fake.push_to("team/idle", TAG, &idle());
    place.add(NAMESPACES[1], "idle", "team/idle");
    place.until_runs((NAMESPACES[1], "idle"), manifest).await;
    end(host).await;
}
