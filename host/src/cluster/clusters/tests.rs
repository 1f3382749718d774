//! Two clusters in memory: a home, and the one that a Secret there names.

#![expect(
    clippy::disallowed_methods,
    reason = "a test writes as another user, and its tasks end with it"
)]

use std::sync::atomic::AtomicUsize;

use kube::{Client, client::Body};
use mortise_core::{
    api::{Answer, Api as _, MOVED, Method, Refusal},
    contract::{Description, Kind, Selection},
    fixture::{elsewhere, fields, v1, whole},
};
use mortise_embedded_api::{EmbeddedApi, Fault, Filter, Options as ApiOptions};
use serde_json::json;

use super::*;
use crate::cluster::{
    Routes,
    remote::{Connected, Refused},
};

const NAME: &str = "shop/provider/kubeconfig";
const SERVER: &str = "https://api.provider.example:6443";

/// Takes the text of a kubeconfig for the name of an API in memory.
#[derive(Clone, Default)]
struct InMemory {
    apis: BTreeMap<String, EmbeddedApi>,
    mode: Arc<Mutex<Mode>>,
    /// The bytes that were read of versions.
    read: Arc<AtomicUsize>,
}

/// The way in which the other clusters answer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Mode {
    #[default]
    Well,
    Away,
    Hangs,
    Refuses(u16),
    /// A version of 1 GiB.
    Endless,
    /// A version of which a byte comes each second.
    Trickles,
}

/// A case, the kubeconfig, the granted server, the declared Secrets, and the expected problem.
type Case<'a> = (&'a str, Option<&'a str>, &'a str, Selection, Reason, &'a str);

/// A home and its other clusters.
struct Scene {
    home: EmbeddedApi,
    provider: EmbeddedApi,
    clusters: Clusters,
    moves: Arc<AtomicUsize>,
    grant: Arc<Grant>,
    mode: Arc<Mutex<Mode>>,
    read: Arc<AtomicUsize>,
}

impl Connect for InMemory {
    fn connect(&self, _: &str, kubeconfig: &[u8]) -> Result<Connected, Refused> {
        let name = String::from_utf8_lossy(kubeconfig).into_owned();
        let api = self.apis.get(&name).ok_or_else(|| Refused::new("no such API"))?;
        let server = if name == "other" { "https://other.example" } else { SERVER }.to_owned();
        let (router, mode, read) = (api.router(), Arc::clone(&self.mode), Arc::clone(&self.read));
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (mut router, mode, read) = (router.clone(), *mode.lock(), Arc::clone(&read));
            async move {
                let is_version = request.uri().path() == "/version";
                match mode {
                    Mode::Away => return Err(tower::BoxError::from("connection refused")),
                    Mode::Hangs => return std::future::pending().await,
                    Mode::Refuses(code) => {
                        return Ok(http::Response::builder().status(code).body("".into())?);
                    }
                    Mode::Endless | Mode::Trickles if is_version => {
                        return Ok(http::Response::new(version(mode == Mode::Trickles, read)));
                    }
                    Mode::Well | Mode::Endless | Mode::Trickles => {}
                }
                Ok(tower::Service::call(&mut router, request).await?)
            }
        });
        Ok(Connected { server, client: Client::new(service, "default") })
    }
}

/// Returns a version of 1 GiB, at once or byte by byte. Counts the bytes that are read.
fn version(is_slow: bool, read: Arc<AtomicUsize>) -> axum::body::Body {
    let (size, wait) =
        if is_slow { (1, Duration::from_secs(1)) } else { (1 << 16, Duration::ZERO) };
    axum::body::Body::from_stream(futures::stream::unfold(0, move |sent: usize| {
        let read = Arc::clone(&read);
        async move {
            sleep(wait).await;
            read.fetch_add(size, Ordering::Relaxed);
            (sent < 1 << 30).then(|| (Ok::<_, tower::BoxError>(vec![b'x'; size]), sent + size))
        }
    }))
}

fn api() -> EmbeddedApi {
    EmbeddedApi::new(ApiOptions::default())
}

fn description(secrets: Selection) -> Description {
    Description {
        name: "sync".into(),
        version: "1.0.0".into(),
        reconcilers: Vec::new(),
        reads: vec![whole(elsewhere(v1("", "ConfigMap"), "*")), secrets],
        writes: Vec::new(),
        grants: Vec::new(),
        outbound: Vec::new(),
        config_schema: None,
    }
}

fn secrets(labels: &str) -> Selection {
    let of = fields(whole(v1("", "Secret")), &["metadata.labels"]);
    Selection { namespace: Some("shop".into()), labels: labels.into(), ..of }
}

fn secret(kubeconfig: &str) -> Value {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "provider", "namespace": "shop", "labels": {"role": "provider"}},
        "data": {"kubeconfig": STANDARD.encode(kubeconfig)},
    })
}

fn granted(server: &str) -> Vec<ClusterGrant> {
    vec![ClusterGrant { servers: vec![server.to_owned()], namespace: None }]
}

impl Scene {
    fn new(servers: &[&str], secrets: Selection) -> Self {
        let (home, provider) = (api(), api());
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
        for api in [&home, &provider] {
            api.load(namespace.clone(), true).unwrap();
        }
        let named = [("provider", &provider), ("home", &home), ("other", &provider)];
        let apis = named.map(|(name, api)| (name.to_owned(), api.clone())).into();
        let connect = InMemory { apis, ..InMemory::default() };
        let (mode, read) = (Arc::clone(&connect.mode), Arc::clone(&connect.read));
        let servers = servers.iter().map(|text| text.parse().unwrap()).collect();
        let options = Options { connect: Arc::new(connect), servers };
        let cluster = Cluster::new(Client::new(home.router(), "default"));
        let clusters = Clusters::new(&cluster, &Home::default(), &Guard::none(), &options);
        let moves = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&moves);
        clusters.on_change(move |_, change| {
            if let Change::Moved = change {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        tokio::spawn(clusters.clone().run());
        let grant = Arc::new(Grant::new(&description(secrets)).unwrap());
        Self { home, provider, clusters, moves, grant, mode, read }
    }

    fn user(&self, processor: &str, granted: &[ClusterGrant]) -> Arc<Remotes> {
        let cluster = Cluster::new(Client::new(self.home.router(), "default"));
        let (namespace, _) = processor.split_once('/').unwrap();
        let names = (&processor.into(), &namespace.into());
        self.clusters.of(names, granted, &self.grant, &cluster).unwrap()
    }

    fn routes(&self, user: &Arc<Remotes>) -> Routes {
        Routes::new(&Cluster::new(Client::new(self.home.router(), "default")), user, None)
    }

    /// Changes the kubeconfig.
    async fn set(&self, kubeconfig: &str) {
        let client = Client::new(self.home.router(), "default");
        let api = kube::Api::<k8s_openapi::api::core::v1::Secret>::namespaced(client, "shop");
        let patch = kube::api::Patch::Merge(secret(kubeconfig));
        api.patch("provider", &kube::api::PatchParams::default(), &patch).await.unwrap();
    }
}

/// Waits until a user can use the cluster, or cannot for a reason.
async fn state(user: &Arc<Remotes>, reason: Option<Reason>) -> String {
    let mut changes = user.changes(&NAME.into()).unwrap();
    let reached = async {
        loop {
            let now = user.connected(&NAME.into()).err();
            if now.as_ref().map(|problem| problem.reason) == reason {
                return now.map(|problem| problem.message).unwrap_or_default();
            }
            changes.changed().await.unwrap();
        }
    };
    let late = |_| panic!("not {reason:?}: {:?}", user.connected(&NAME.into()).err());
    tokio::time::timeout(Duration::from_hours(1), reached).await.unwrap_or_else(late)
}

async fn create(api: &dyn mortise_core::api::Api, name: &str) -> Result<Answer, Refusal> {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let path = "/api/v1/namespaces/shop/configmaps".to_owned();
    api.send(&Outgoing::new(Method::Post, path, Some(object)).to(&NAME.into())).await
}

fn config_maps(api: &EmbeddedApi) -> Vec<String> {
    let all = api.objects().into_iter().filter(|of| of["kind"] == "ConfigMap");
    let shop = all.filter(|of| of["metadata"]["namespace"] == "shop");
    shop.map(|of| of["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn requests_go_to_the_cluster_that_they_name() {
    let scene = Scene::new(&[SERVER], secrets(""));
    scene.home.load(secret("provider"), true).unwrap();
    let user = scene.user("shop/sync", &granted(SERVER));
    state(&user, None).await;
    let routes = scene.routes(&user);
    create(&routes, "there").await.unwrap();
    assert_eq!(
        (config_maps(&scene.provider), config_maps(&scene.home)),
        (vec!["there".into()], vec![])
    );
    let kind = Kind::clone(&elsewhere(v1("", "ConfigMap"), NAME));
    let resource = routes.resolve(&kind).await.unwrap().unwrap();
    assert_eq!(resource.kind, kind);
    assert_eq!(
        routes.resolve(&v1("", "ConfigMap")).await.unwrap().unwrap().kind.cluster,
        "".into()
    );
    let unknown = Kind::clone(&elsewhere(v1("", "ConfigMap"), "bank/provider/kubeconfig"));
    let error = routes.resolve(&unknown).await.unwrap_err().to_string();
    assert!(error.contains("by which a cluster is named, is not declared"), "{error}");
    assert_eq!(scene.clusters.users_of(NAME), ["shop/sync".into()]);
    assert_eq!(scene.clusters.state_of("shop/sync"), (1, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_cannot_be_used_says_why_and_what_would_be_accepted() {
    let other = "https://other.example";
    let cases: [Case<'_>; 6] = [
        (
            "no Secret",
            None,
            SERVER,
            secrets(""),
            Reason::KubeconfigMissing,
            "no Secret `shop/provider`",
        ),
        (
            "a bad one",
            Some("x"),
            SERVER,
            secrets(""),
            Reason::KubeconfigRefused,
            "refused: no such API",
        ),
        (
            "home",
            Some("home"),
            SERVER,
            secrets(""),
            Reason::KubeconfigRefused,
            "it is the home cluster",
        ),
        (
            "not the Processor's",
            Some("provider"),
            "https://a.provider.example:6443",
            secrets(""),
            Reason::ServerNotGranted,
            "spec.clusters grants `https://a.provider.example:6443`",
        ),
        (
            "not the host's",
            Some("other"),
            other,
            secrets(""),
            Reason::ServerNotGranted,
            "--clusters grants `https://*.provider.example:6443`",
        ),
        (
            "not selected",
            Some("provider"),
            SERVER,
            secrets("role=consumer"),
            Reason::ServerNotGranted,
            "lacks the labels",
        ),
    ];
    for (case, kubeconfig, server, secrets, reason, says) in cases {
        let scene = Scene::new(&["https://*.provider.example:6443"], secrets);
        if let Some(kubeconfig) = kubeconfig {
            scene.home.load(secret(kubeconfig), true).unwrap();
        }
        let user = scene.user("shop/sync", &granted(server));
        let message = state(&user, Some(reason)).await;
        assert!(message.contains(says), "{case}: {message}");
        create(&scene.routes(&user), "there").await.unwrap_err();
        assert_eq!(
            config_maps(&scene.provider).len() + config_maps(&scene.home).len(),
            0,
            "{case}"
        );
        assert_eq!(scene.clusters.state_of("shop/sync").1.len(), 1, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_the_account_may_not_watch_names_no_cluster_until_it_may() {
    let scene = Scene::new(&[SERVER], secrets(""));
    scene.home.load(secret("provider"), true).unwrap();
    let forbidden = Fault::Refused { code: 403, message: "no secrets".into() };
    scene.home.faults().inject(forbidden, Filter::resource("secrets"), usize::MAX);
    let user = scene.user("shop/sync", &granted(SERVER));
    let message = state(&user, Some(Reason::SecretUnreadable)).await;
    assert!(message.starts_with("Secret v1 `shop/provider` cannot be watched: "), "{message}");
    assert!(message.contains("no secrets"), "{message}");
    create(&scene.routes(&user), "there").await.unwrap_err();
    assert_eq!(config_maps(&scene.provider).len() + config_maps(&scene.home).len(), 0);
    scene.home.faults().clear();
    state(&user, None).await;
    create(&scene.routes(&user), "there").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_cluster_is_used_as_long_as_the_host_cannot_know_its_home() {
    let right = "grant it get on namespaces with resourceNames [kube-system]";
    let cases = [(403, right), (500, "as the test wants it")];
    for (code, says) in cases {
        let scene = Scene::new(&[SERVER], secrets(""));
        scene.home.load(secret("provider"), true).unwrap();
        let refused = Fault::Refused { code, message: "as the test wants it".into() };
        let system = Filter::resource("namespaces").name("kube-system");
        scene.home.faults().inject(refused, system, usize::MAX);
        let user = scene.user("shop/sync", &granted(SERVER));
        let message = state(&user, Some(Reason::HomeUnknown)).await;
        assert!(message.contains(says), "{code}: {message}");
        create(&scene.routes(&user), "there").await.unwrap_err();
        assert_eq!(config_maps(&scene.provider), [""; 0], "{code}");
        scene.home.faults().clear();
        state(&user, None).await;
        create(&scene.routes(&user), "there").await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn secrets_of_other_namespaces_than_the_granted_one_name_no_cluster() {
    let scene = Scene::new(&[SERVER], secrets(""));
    let of = |namespace: Option<&str>| ClusterGrant {
        servers: vec![SERVER.to_owned()],
        namespace: namespace.map(str::to_owned),
    };
    let cases = [(vec![], false), (vec![of(Some("bank"))], false), (vec![of(Some("shop"))], true)];
    for (granted, expected) in cases {
        let user = scene.user("shop/sync", &granted);
        assert_eq!(user.changes(&NAME.into()).is_ok(), expected, "{granted:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_began_before_a_kubeconfig_changed_writes_nothing() {
    let scene = Scene::new(&[SERVER], secrets(""));
    scene.home.load(secret("provider"), true).unwrap();
    let user = scene.user("shop/sync", &granted(SERVER));
    state(&user, None).await;
    let begun = scene.routes(&user).pinned().unwrap();
    create(&*begun, "before").await.unwrap();
    scene.set("x").await;
    state(&user, Some(Reason::KubeconfigRefused)).await;
    assert_eq!(scene.moves.load(Ordering::Relaxed), 1);
    let refusal = create(&*begun, "after").await.unwrap_err();
    assert_eq!((refusal.reason.as_str(), refusal.is_passing()), (MOVED, false));
    let path = "/api/v1/namespaces/shop/configmaps".to_owned();
    let at_home = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "home"}});
    let at_home = Outgoing::new(Method::Post, path, Some(at_home));
    assert_eq!(begun.send(&at_home).await.unwrap_err().reason, MOVED, "at home neither");
    scene.set("provider").await;
    state(&user, None).await;
    assert_eq!(create(&*begun, "after").await.unwrap_err().reason, MOVED);
    let next = scene.routes(&user).pinned().unwrap();
    create(&*next, "next").await.unwrap();
    assert_eq!(config_maps(&scene.provider), ["before", "next"]);
    let others = scene.user("shop/other", &granted(SERVER));
    assert!(scene.routes(&others).pinned().is_some());
    assert_eq!(scene.moves.load(Ordering::Relaxed), 1, "nothing was connected before the second");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_fails_is_left_alone_and_used_again_when_it_answers() {
    let scene = Scene::new(&[SERVER], secrets(""));
    scene.home.load(secret("provider"), true).unwrap();
    let user = scene.user("shop/sync", &granted(SERVER));
    state(&user, None).await;
    let _watched = user.changes(&NAME.into()).unwrap();
    *scene.mode.lock() = Mode::Away;
    tokio::time::sleep(Duration::from_mins(2)).await;
    let problem = user.connected(&NAME.into()).unwrap_err();
    assert_eq!(problem.reason, Reason::ClusterUnreachable);
    scene.provider.reset_requests();
    let refusal = create(&scene.routes(&user), "there").await.unwrap_err();
    assert_eq!(refusal.code, 0);
    assert!(scene.provider.requests().is_empty(), "the breaker is open");
    *scene.mode.lock() = Mode::Well;
    tokio::time::sleep(Duration::from_mins(1)).await;
    user.connected(&NAME.into()).unwrap();
    create(&scene.routes(&user), "there").await.unwrap();
    assert_eq!(scene.moves.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_fails_is_told_within_30_s_and_used_a_minute_after_its_return() {
    let cases = [Mode::Away, Mode::Hangs, Mode::Refuses(401), Mode::Refuses(429)];
    let lies = [Mode::Endless, Mode::Trickles];
    for mode in cases.into_iter().chain(lies) {
        let scene = Scene::new(&[SERVER], secrets(""));
        scene.home.load(secret("provider"), true).unwrap();
        let user = scene.user("shop/sync", &granted(SERVER));
        state(&user, None).await;
        let _watched = user.changes(&NAME.into()).unwrap();
        *scene.mode.lock() = mode;
        tokio::time::sleep(Duration::from_secs(30)).await;
        let problem = user.connected(&NAME.into()).err();
        if lies.contains(&mode) {
            assert_eq!(problem, None, "{mode:?}: it answers");
            // The next fault is noticed all the same.
            *scene.mode.lock() = Mode::Hangs;
            tokio::time::sleep(Duration::from_secs(30)).await;
            user.connected(&NAME.into()).unwrap_err();
            let read = scene.read.load(Ordering::Relaxed);
            assert!(0 < read && read <= 3 * (17 << 20), "{mode:?}: {read} bytes");
        } else {
            assert_eq!(problem.unwrap().reason, Reason::ClusterUnreachable, "{mode:?}");
        }
        tokio::time::sleep(Duration::from_mins(9)).await;
        *scene.mode.lock() = Mode::Well;
        tokio::time::sleep(Duration::from_mins(1)).await;
        user.connected(&NAME.into()).unwrap();
        create(&scene.routes(&user), "there").await.unwrap();
        assert_eq!(scene.moves.load(Ordering::Relaxed), 0, "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_nothing_uses_is_closed() {
    let scene = Scene::new(&[SERVER], secrets(""));
    scene.home.load(secret("provider"), true).unwrap();
    let user = scene.user("shop/sync", &granted(SERVER));
    state(&user, None).await;
    let watched = user.changes(&NAME.into()).unwrap();
    tokio::time::sleep(IDLE_TIMEOUT * 2).await;
    assert_eq!(scene.clusters.users_of(NAME).len(), 1, "it is watched");
    drop(watched);
    tokio::time::sleep(IDLE_TIMEOUT + IDLE_INTERVAL * 2).await;
    assert!(scene.clusters.users_of(NAME).is_empty());
    scene.provider.reset_requests();
    tokio::time::sleep(IDLE_TIMEOUT).await;
    assert!(scene.provider.requests().is_empty());
    state(&user, None).await;
}

#[tokio::test(start_paused = true)]
async fn one_namespace_leaves_places_for_others() {
    let scene = Scene::new(&[SERVER], secrets(""));
    let take = |of: &str, first: usize| {
        let mut opened = 0;
        for processor in 0..8 {
            let user = scene.user(&format!("{of}/p{processor}"), &granted(SERVER));
            for number in 0..100 {
                let name = format!("shop/s{}/k", first + processor * 1000 + number);
                match user.connected(&name.into()) {
                    Err(problem) if problem.reason == Reason::ClustersLimited => break,
                    _ => opened += 1,
                }
            }
            // It stays for as long as the processor runs.
            std::mem::forget(user);
        }
        opened
    };
    assert_eq!(take("shop", 0), 128);
    assert_eq!(take("bank", 10_000), 64);
    assert!(take("other", 20_000) > 0);
    let lone = scene.user("lone/p", &granted(SERVER));
    lone.connected(&"shop/lone/k".into()).unwrap_err();
    assert_eq!(scene.clusters.users_of("shop/lone/k").len(), 1);
}
