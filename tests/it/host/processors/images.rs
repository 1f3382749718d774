//! Processors whose modules come from registries. The clock of these tests is not paused: a
//! registry is at the other end of a socket.

use std::{path::Path, time::Duration};

use mortise_host::{
    cache_dir::CacheDir,
    oci::{Digest, Options, Registries, Store, Times},
};
use mortise_tests::{
    rebuilt,
    registry::fake::{self, Answer, Fake, Request},
};
use serde_json::json;
use tokio::time::sleep;

use super::{
    swaps::{makes, played, tried_and},
    *,
};

const REPOSITORY: &str = "team/puppet";
/// The time between two resolutions of a tag.
const RESOLUTION_INTERVAL: Duration = Duration::from_millis(200);
/// Several intervals, and several times what a status takes.
const QUIET_PERIOD: Duration = Duration::from_secs(3);

/// A host, its cluster, and a registry with the puppet.
pub(super) struct Scene {
    pub(super) place: Place,
    pub(super) fake: Fake,
    pub(super) cache: TempDir,
}

pub(super) fn module(build: &str) -> Vec<u8> {
    let module = fs::read(guest(PUPPET).unwrap()).unwrap();
    if build.is_empty() { module } else { rebuilt(&module, build) }
}

/// The repository of these tests in a registry.
pub(super) trait Images {
    /// Stores a component under a tag, and returns the digest of its manifest.
    fn push(&self, tag: &str, component: &[u8]) -> Digest;

    /// Returns the reference with this tag or digest.
    fn image(&self, name: &str) -> String;
}

impl Images for Fake {
    fn push(&self, tag: &str, component: &[u8]) -> Digest {
        self.push_to(REPOSITORY, tag, component)
    }

    fn image(&self, name: &str) -> String {
        format!("{}/{REPOSITORY}{name}", self.host())
    }
}

pub(super) fn store(cache: &Path) -> Option<Store> {
    Store::open(&CacheDir::open(&cache.join("cache")).unwrap(), 64 << 20).unwrap()
}

pub(super) fn options(cache: &Path) -> ImageOptions {
    let times = Times { idle: Duration::from_secs(2), ..Times::default() };
    let authorities = Some(fake::AUTHORITY.to_vec());
    let options = Options { authorities, times, ..Options::default() };
    let registries = Registries::build(options).unwrap();
    ImageOptions { registries, store: store(cache), interval: RESOLUTION_INTERVAL, policy: None }
}

impl Scene {
    pub(super) async fn new() -> Self {
        Self::with(Fake::plain().await).await
    }

    pub(super) async fn with(fake: Fake) -> Self {
        let cache = tempfile::tempdir().unwrap();
        let mut place = Place::new().await;
        place.images = options(cache.path());
        place.restart().await;
        Self { place, fake, cache }
    }

    /// Applies a Processor whose module is this artifact.
    pub(super) async fn processor(&self, name: &str, image: &str, rest: &Value) {
        self.processor_in(NAMESPACE, name, image, rest).await;
    }

    async fn processor_in(&self, namespace: &str, name: &str, image: &str, rest: &Value) {
        let mut spec = json!({
            "module": {"image": image}, "serviceAccountName": "puppet", "config": puppet().config(),
        });
        merge(&mut spec, rest);
        spec.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        let metadata = json!({"name": name, "namespace": namespace});
        let object = json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor", "metadata": metadata, "spec": spec,
        });
        self.place.apply(&[object]).await;
    }

    /// Stores a module and its library under the tag `1`, and applies a Processor of them. Returns
    /// both components with the digests of their manifests, the module's first.
    async fn run_with_library(&self, name: &str) -> [(Vec<u8>, Digest); 2] {
        let stored = |guest: &str| {
            let path = mortise_tests::guest(&format!("tests/guests/{guest}")).unwrap();
            let component = fs::read(path).unwrap();
            let digest = self.fake.push_to(&format!("team/{guest}"), "1", &component);
            (component, digest)
        };
        let components = ["announce", "shout"].map(stored);
        let host = self.fake.host();
        let library = json!({
            "interface": "example:shouting/shout@1.0.0",
            "module": {"image": format!("{host}/team/shout:1")}, "limits": {"memory": "16Mi"},
        });
        let rest = json!({"config": null, "libraries": [library]});
        self.processor(name, &format!("{host}/team/announce:1"), &rest).await;
        components
    }

    /// Waits until a Processor calls the library from this artifact.
    async fn until_calls(&self, name: &str, manifest: Digest) {
        let manifest = manifest.to_string();
        let calls = |processor: &Processor| {
            let libraries = processor.status.iter().flat_map(|status| &status.libraries);
            let mut images = libraries.filter_map(|library| library.image.as_ref());
            images.any(|image| image.ends_with(&manifest))
        };
        self.place.until(name, "the library is called", calls).await;
    }

    /// Waits until this module runs, from this artifact; returns the Processor.
    pub(super) async fn until_runs(
        &self,
        name: &str,
        module: &[u8],
        manifest: Digest,
    ) -> Processor {
        let (digest, manifest) = (Digest::of(module).to_string(), manifest.to_string());
        let runs = |processor: &Processor| {
            let status = processor.status.as_ref().and_then(|status| status.module.as_ref());
            let image = |image: &String| image.ends_with(&manifest);
            let is_it = status.is_some_and(|status| {
                status.digest == digest && status.image.as_ref().is_some_and(image)
            });
            is_it && condition(processor, "Ready").is_some_and(|ready| ready.reason == "Runs")
        };
        self.place.until(name, "the module runs", runs).await
    }

    /// Starts another host in place of this one, with the cache of `keeps_cache`.
    pub(super) async fn restart(&mut self, keeps_cache: bool) {
        if !keeps_cache {
            self.cache = tempfile::tempdir().unwrap();
        }
        self.place.images = options(self.cache.path());
        self.place.restart().await;
    }

    /// Starts another host in place of this one, with an empty folder that has room for modules of
    /// so many bytes.
    async fn restart_with_room(&mut self, bytes: usize) {
        let folder = CacheDir::open(&self.cache.path().join("small")).unwrap();
        self.place.images.store = Store::open(&folder, bytes as u64).unwrap();
        self.place.restart().await;
    }

    /// Waits until a registry says nothing about this tag, for this reason, and what runs goes on.
    async fn until_away(&self, name: &str, image: &str, why: &str) {
        let says = format!("`{image}` has not been resolved since ");
        let found = |processor: &Processor| {
            condition(processor, "Loaded").is_some_and(|loaded| {
                loaded.reason == "RegistryUnavailable"
                    && loaded.status == "True"
                    && loaded.message.contains(&says)
                    && loaded.message.contains(why)
            })
        };
        self.place.until(name, &format!("{why} is said"), found).await;
        assert_eq!(self.place.reason(name, "Ready", "Runs").await.0, "True");
    }

    /// Starts another host, and waits until it runs this module, from this artifact.
    async fn restart_and_run(&mut self, keeps_cache: bool, module: &[u8], manifest: Digest) {
        self.restart(keeps_cache).await;
        self.place.until_at_work_are(&["1.0.0"]).await;
        self.until_runs("rules", module, manifest).await;
    }

    /// Adds the namespace `b` of another tenant, with an account that may do everything.
    async fn add_tenant(&self) {
        let everything = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "everything"});
        let account = json!({"name": "puppet", "namespace": "b"});
        let consents = json!({"annotations": {"mortise.dev/processor": "*"}});
        let mut metadata = account.clone();
        merge(&mut metadata, &consents);
        self.place
            .apply(&[
                json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
                json!({
                    "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                    "metadata": {"name": "puppet-b"}, "roleRef": everything,
                    "subjects": [{"kind": "ServiceAccount", "name": "puppet", "namespace": "b"}],
                }),
            ])
            .await;
    }

    /// Waits until the module of the other tenant's Processor `theirs` is not loaded for this
    /// reason.
    async fn until_theirs_not_loaded(&self, reason: &str) {
        let theirs: Api<Processor> = Api::namespaced(self.place.cluster.client().clone(), "b");
        let is_it = |processor: Option<&Processor>| {
            let loaded = processor.and_then(|processor| condition(processor, "Loaded"));
            loaded.is_some_and(|loaded| loaded.status == "False" && loaded.reason == reason)
        };
        timeout(TIMEOUT, await_condition(theirs, "theirs", is_it)).await.unwrap().unwrap();
    }

    /// Returns the number of requests for blobs up to now.
    fn blobs(&self) -> usize {
        let is_blob = |request: &&Request| request.target.contains("/blobs/");
        self.fake.seen().iter().filter(is_blob).count()
    }
}

#[tokio::test]
async fn a_tag_that_moves_brings_the_next_version() {
    let scene = Scene::new().await;
    let (one, two) = (module(""), module("2"));
    let first = scene.fake.push("stable", &one);
    scene.processor("rules", &scene.fake.image(":stable"), &json!({})).await;
    let found = scene.until_runs("rules", &one, first).await;
    let status = found.status.unwrap().module.unwrap();
    assert_eq!(status.image, Some(format!("{}@{first}", scene.fake.image(":stable"))));

    scene.fake.forget();
    sleep(QUIET_PERIOD).await;
    let asked = scene.fake.seen();
    assert!(asked.len() > 2 && asked.iter().all(|request| request.method == "HEAD"), "{asked:?}");

    let second = scene.fake.push("stable", &two);
    scene.until_runs("rules", &two, second).await;
    assert_eq!(scene.blobs(), 1, "the configuration is not asked for");
    // Back again: it is on the disk.
    scene.fake.push("stable", &one);
    scene.until_runs("rules", &one, first).await;
    assert_eq!(scene.blobs(), 1);
}

#[tokio::test]
async fn an_image_with_a_digest_is_not_resolved_again() {
    let scene = Scene::new().await;
    let (one, two) = (module(""), module("2"));
    let first = scene.fake.push("stable", &one);
    let image = scene.fake.image(&format!(":stable@{first}"));
    scene.processor("rules", &image, &json!({})).await;
    scene.until_runs("rules", &one, first).await;
    scene.fake.push("stable", &two);
    scene.fake.forget();
    sleep(QUIET_PERIOD).await;
    assert!(scene.fake.seen().is_empty(), "nothing is asked about a digest");
    scene.until_runs("rules", &one, first).await;
}

#[tokio::test]
async fn a_registry_that_is_away_changes_nothing_and_the_condition_says_since_when() {
    let mut scene = Scene::new().await;
    let (zero, one) = (module("0"), module(""));
    let before = scene.fake.push("stable", &zero);
    scene.processor("rules", &scene.fake.image(":stable"), &json!({})).await;
    scene.until_runs("rules", &zero, before).await;
    let first = scene.fake.push("stable", &one);
    scene.until_runs("rules", &one, first).await;

    scene.fake.stop().await;
    let (status, message) = scene.place.reason("rules", "Loaded", "RegistryUnavailable").await;
    assert_eq!(status, "True");
    let image = scene.fake.image(":stable");
    let says = format!("puppet 1.0.0 is loaded; `{image}` has not been resolved since 2");
    assert!(message.starts_with(&says), "{message}");
    assert!(message.contains(": `127.0.0.1` does not"), "{message}");
    assert_eq!(scene.place.reason("rules", "Ready", "Runs").await.0, "True");

    // A version that ran before is gone back to without the registry.
    for (module, manifest) in [(&zero, before), (&one, first)] {
        let by_digest = scene.fake.image(&format!(":stable@{manifest}"));
        scene.place.edit("rules", json!({"module": {"image": by_digest}})).await;
        scene.until_runs("rules", module, manifest).await;
    }
    scene.place.edit("rules", json!({"module": {"image": image}})).await;
    scene.place.reason("rules", "Loaded", "RegistryUnavailable").await;
    scene.until_runs("rules", &one, first).await;

    // A host that starts needs no registry for what is on the disk.
    scene.restart_and_run(true, &one, first).await;
    scene.place.reason("rules", "Loaded", "RegistryUnavailable").await;
    let script = applies(&[made("b", &json!({}))]);
    scene.place.apply(&[scripted("a", &script)]).await;
    scene.place.until_object(CONFIG_MAP, "b", "it reconciles", |found| found.is_some()).await;

    scene.fake.resume().await;
    scene.place.reason("rules", "Loaded", "Loaded").await;
}

#[tokio::test]
async fn registry_errors_for_the_running_tag_are_reported_and_change_nothing() {
    let mut scene = Scene::new().await;
    let one = module("");
    let (first, image) = (scene.fake.push("stable", &one), scene.fake.image(":stable"));
    scene.processor("rules", &image, &json!({})).await;
    scene.until_runs("rules", &one, first).await;
    // Each answer follows the one before, without a good one between them.
    scene.fake.stop().await;
    scene.until_away("rules", &image, "does not answer: ").await;
    for status in [404, 401, 403, 429, 500] {
        scene.fake.set_mood(move |request| {
            let is_manifest = request.target.contains("/manifests/");
            is_manifest.then(|| Answer::error(status, "UNKNOWN", "x"))
        });
        if status == 404 {
            scene.fake.resume().await;
        }
        scene.until_away("rules", &image, &format!("answers {status} to ")).await;
    }
    scene.fake.behave();
    scene.place.reason("rules", "Loaded", "Loaded").await;
    scene.until_runs("rules", &one, first).await;
}

#[tokio::test]
async fn a_host_without_a_cache_begins_with_the_version_that_ran_last() {
    let mut scene = Scene::new().await;
    let (one, two) = (module(""), module("2"));
    let first = scene.fake.push("stable", &one);
    scene.processor("rules", &scene.fake.image(":stable"), &json!({})).await;
    scene.until_runs("rules", &one, first).await;
    scene.place.tasks.shutdown().await;
    let second = scene.fake.push("stable", &two);
    scene.fake.forget();
    scene.restart_and_run(false, &two, second).await;
    let asked: Vec<String> = scene.fake.seen().into_iter().map(|seen| seen.target).collect();
    assert!(asked[0].ends_with(&format!("/manifests/{first}")), "the digest first: {asked:?}");
    let version = scene.place.host.status();
    assert_eq!(version.len(), 1);
}

#[tokio::test]
async fn a_new_host_waits_for_the_last_version_while_the_registry_denies_it() {
    let mut scene = Scene::new().await;
    let (one, two) = (module(""), module("2"));
    let first = scene.fake.push("stable", &one);
    scene.processor("rules", &scene.fake.image(":stable"), &json!({})).await;
    scene.until_runs("rules", &one, first).await;
    scene.place.tasks.shutdown().await;
    scene.fake.push("stable", &two);
    let by_digest = format!("/manifests/{first}");
    scene.fake.set_mood(move |request| {
        let is_refused = request.target.ends_with(&by_digest);
        is_refused.then(|| Answer::error(403, "DENIED", "not yet"))
    });
    scene.fake.forget();
    scene.restart(false).await;
    scene.place.reason("rules", "Loaded", "RegistryDenied").await;
    let asked: Vec<String> = scene.fake.seen().into_iter().map(|seen| seen.target).collect();
    assert!(asked.iter().all(|target| !target.ends_with("/stable")), "not the tag: {asked:?}");
}

#[tokio::test]
async fn a_new_host_follows_the_tag_if_the_last_version_was_removed() {
    let mut scene = Scene::new().await;
    let (one, two) = (module(""), module("2"));
    let first = scene.fake.push("stable", &one);
    scene.processor("rules", &scene.fake.image(":stable"), &json!({})).await;
    scene.until_runs("rules", &one, first).await;
    scene.place.tasks.shutdown().await;
    let second = scene.fake.push("stable", &two);
    let gone = format!("/manifests/{first}");
    scene.fake.set_mood(move |request| {
        let is_gone = request.target.ends_with(&gone);
        is_gone.then(|| Answer::error(404, "MANIFEST_UNKNOWN", "it was removed"))
    });
    scene.restart_and_run(false, &two, second).await;
}

/// Runs version 1, lets the spec name `image`, and starts another host, without the registry:
/// version 1 runs in it. `reasons`: those of `Loaded` before and after.
async fn restart_beside(scene: &mut Scene, image: &str, reasons: [&str; 2], object: &str) {
    let one = module("");
    let first = scene.fake.push("1", &one);
    scene.place.edit("rules", json!({"module": {"image": scene.fake.image(":1")}})).await;
    scene.until_runs("rules", &one, first).await;
    scene.place.edit("rules", json!({"module": {"image": image}})).await;
    let [before, after] = reasons;
    scene.place.reason("rules", "Loaded", before).await;

    scene.place.tasks.shutdown().await;
    scene.fake.stop().await;
    scene.restart(true).await;
    let made = [made(object, &json!({}))];
    scene.place.apply(&[scripted(object, &applies(&made))]).await;
    let place = &scene.place;
    place.until_object(CONFIG_MAP, object, "it reconciles", |found| found.is_some()).await;
    let (_, message) = place.reason("rules", "Loaded", after).await;
    assert!(message.contains(&format!("`{image}`")), "{message}");
    assert!(message.ends_with("; the former version 1.0.0 keeps running"), "{message}");
    assert_eq!(place.reason("rules", "Ready", "FormerVersion").await.0, "True");
    scene.fake.resume().await;
}

#[tokio::test]
async fn a_new_host_runs_the_last_version_if_the_new_image_cannot_be_loaded() {
    let mut scene = Scene::new().await;
    let (one, two) = (module(""), module("2"));
    let first = scene.fake.push("1", &one);
    scene.processor("rules", &scene.fake.image(":1"), &json!({})).await;
    scene.until_runs("rules", &one, first).await;
    scene.fake.push("bad", b"\0asm, but nothing else");
    let missing = scene.fake.image(":2");
    let absent = scene.fake.image(&format!("@{}", Digest::of(b"absent")));
    let away = ["ImageNotFound", "RegistryUnavailable"];
    restart_beside(&mut scene, &absent, away, "b1").await;
    // What was pulled is on the disk.
    let bad = scene.fake.image(":bad");
    restart_beside(&mut scene, &bad, ["ModuleInvalid"; 2], "b2").await;
    restart_beside(&mut scene, &missing, away, "b3").await;

    let second = scene.fake.push("2", &two);
    scene.until_runs("rules", &two, second).await;
}

#[tokio::test]
async fn a_new_host_waits_for_the_last_version_before_it_loads_the_new_one() {
    let mut scene = Scene::new().await;
    let (one, two) = (module(""), module("2"));
    let first = scene.fake.push("1", &one);
    scene.processor("rules", &scene.fake.image(":1"), &json!({})).await;
    scene.until_runs("rules", &one, first).await;
    scene.place.tasks.shutdown().await;
    let second = scene.fake.push("2", &two);
    scene.place.edit("rules", json!({"module": {"image": scene.fake.image(":2")}})).await;
    let by_digest = format!("/manifests/{first}");
    scene.fake.set_mood(move |request| {
        let is_refused = request.target.ends_with(&by_digest);
        is_refused.then(|| Answer::error(403, "DENIED", "not yet"))
    });
    scene.fake.forget();
    scene.restart(false).await;
    let (_, message) = scene.place.reason("rules", "Loaded", "RegistryDenied").await;
    let says = "the version that ran last, which is started first: `";
    assert!(message.starts_with(says), "{message}");
    let is_second = |request: &Request| request.target.ends_with("/manifests/2");
    assert!(!scene.fake.seen().iter().any(is_second), "nothing runs untried");

    scene.fake.behave();
    scene.until_runs("rules", &two, second).await;
    let blobs = scene.fake.seen().into_iter().filter(|seen| seen.target.contains("/blobs/"));
    let blobs: Vec<String> = blobs.map(|seen| seen.target).collect();
    assert!(blobs[0].ends_with(&Digest::of(&one).to_string()), "what ran last first: {blobs:?}");
}

#[tokio::test]
async fn a_new_host_tries_an_unseen_version_beside_the_last_version() {
    let mut scene = Scene::new().await;
    let (one, two) = (module(""), module("2"));
    let first = scene.fake.push("1", &one);
    scene.processor("rules", &scene.fake.image(":1"), &json!({})).await;
    scene.until_runs("rules", &one, first).await;
    scene.place.tasks.shutdown().await;
    let second = scene.fake.push("2", &two);
    scene.place.edit("rules", json!({"module": {"image": scene.fake.image(":2")}})).await;
    scene.fake.forget();
    scene.restart_and_run(false, &two, second).await;
    let asked: Vec<String> = scene.fake.seen().into_iter().map(|seen| seen.target).collect();
    assert!(asked[0].ends_with(&format!("/manifests/{first}")), "what ran last first: {asked:?}");

    // What is gone from the registry holds nothing up.
    scene.place.tasks.shutdown().await;
    let three = module("3");
    let third = scene.fake.push("3", &three);
    scene.place.edit("rules", json!({"module": {"image": scene.fake.image(":3")}})).await;
    let gone = format!("/manifests/{second}");
    scene.fake.set_mood(move |request| {
        let is_gone = request.target.ends_with(&gone);
        is_gone.then(|| Answer::error(404, "MANIFEST_UNKNOWN", "it was removed"))
    });
    scene.restart_and_run(false, &three, third).await;
}

/// A registry's answer about a new version, and the condition that it becomes.
struct Case {
    name: &'static str,
    mood: fake::Mood,
    reason: &'static str,
    says: &'static str,
}

fn case(
    name: &'static str,
    to: &'static str,
    answer: Answer,
    (reason, says): (&'static str, &'static str),
) -> Case {
    let mood = move |request: &Request| request.target.contains(to).then(|| answer.clone());
    Case { name, mood: Box::new(mood), reason, says }
}

/// Answers that are errors.
fn errors() -> Vec<Case> {
    let error = Answer::error;
    vec![
        case(
            "401",
            "/manifests/",
            error(401, "UNAUTHORIZED", "x"),
            ("RegistryDenied", "answers 401 to a request about `team/puppet`"),
        ),
        case(
            "403",
            "/manifests/",
            error(403, "DENIED", "not yours"),
            ("RegistryDenied", "answers 403 to HEAD manifests/2"),
        ),
        case(
            "404",
            "/manifests/",
            error(404, "MANIFEST_UNKNOWN", "x"),
            ("ImageNotFound", "answers 404 to HEAD manifests/2"),
        ),
        case(
            "429",
            "/manifests/",
            error(429, "TOOMANYREQUESTS", "slow down"),
            ("RegistryBusy", "answers 429 to HEAD manifests/2"),
        ),
        case(
            "500",
            "/manifests/",
            error(500, "UNKNOWN", "x"),
            ("RegistryUnavailable", "answers 500 to HEAD manifests/2"),
        ),
    ]
}

/// Manifests of something else, or of too much. `digest` is of something that is there.
fn manifests(digest: Digest) -> Vec<Case> {
    let container = json!({
        "schemaVersion": 2, "layers": [],
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest, "size": 1},
    });
    let container = container.to_string().into_bytes();
    let container_digest = Digest::of(&container);
    let as_container = Answer::of(200)
        .body(&container)
        .header("docker-content-digest", &container_digest.to_string());
    let index = Answer::of(200).body(br#"{"schemaVersion": 2, "manifests": []}"#);
    let wide = json!({
        "schemaVersion": 2,
        "config": {"mediaType": "application/vnd.wasm.config.v0+json", "digest": digest, "size": 1},
        "layers": [{"mediaType": "application/wasm", "digest": digest, "size": 1_u64 << 40}],
    });
    let wide = Answer::of(200).body(wide.to_string().as_bytes());
    vec![
        case(
            "container",
            "/manifests/",
            as_container,
            ("ImageNotWasm", "so it is an image of a container"),
        ),
        case(
            "index",
            "/manifests/",
            index,
            ("ImageNotWasm", "it is a list of images for several platforms"),
        ),
        case(
            "wide",
            "/manifests/",
            wide,
            ("ModuleTooLarge", "has 1099511627776 bytes; up to 67108864 are accepted"),
        ),
    ]
}

/// Answers in place of the bytes of a module.
fn blobs(two: &[u8]) -> Vec<Case> {
    let mut flipped = two.to_vec();
    flipped[20] ^= 1;
    let cut = Answer { cut: Some(1000), ..Answer::of(200).body(two) };
    let slow = Answer { pace: Some((1000, Duration::from_mins(1))), ..Answer::of(200).body(two) };
    vec![
        case("cut", "/blobs/", cut, ("PullFailed", "broke off after 1000 of ")),
        case("slow", "/blobs/", slow, ("PullFailed", "silent for 2 s")),
        case(
            "digest",
            "/blobs/",
            Answer::of(200).body(&flipped),
            ("ImageDiffers", "with the digest sha256:"),
        ),
        case(
            "length",
            "/blobs/",
            Answer::of(200).body(&two[..2000]),
            ("ImageDiffers", "of 2000 bytes; "),
        ),
        case(
            "metadata",
            "/blobs/",
            Answer::redirect("http://169.254.169.254/latest/meta-data"),
            ("AddressRefused", "it would be asked without TLS"),
        ),
        case(
            "link",
            "/blobs/",
            Answer::redirect("https://[fe80::1]/"),
            ("AddressRefused", "fe80::1 is a link-local address"),
        ),
    ]
}

#[tokio::test]
async fn errors_of_a_new_image_are_reported_and_the_former_version_runs_on() {
    let scene = Scene::new().await;
    let (one, two) = (module(""), module("2"));
    let first = scene.fake.push("1", &one);
    scene.processor("rules", &scene.fake.image(":1"), &json!({})).await;
    scene.until_runs("rules", &one, first).await;
    let second = scene.fake.push("2", &two);
    let changed = Answer::of(200).body(br#"{"schemaVersion": 2, "layers": []}"#);
    let by_digest = format!("/manifests/{second}");
    let tampered = Case {
        name: "a manifest of another digest",
        mood: Box::new(move |request| {
            request.target.ends_with(&by_digest).then(|| changed.clone())
        }),
        reason: "ImageDiffers",
        says: "with the digest sha256:",
    };
    let cases = errors().into_iter().chain(manifests(second)).chain(blobs(&two)).chain([tampered]);
    for Case { name, mood, reason, says } in cases {
        scene.fake.set_mood(mood);
        let image = scene.fake.image(":2");
        scene.place.edit("rules", json!({"module": {"image": &image}})).await;
        let (status, message) = scene.place.reason("rules", "Loaded", reason).await;
        assert_eq!(status, "False", "{name}");
        assert!(
            message.contains(says) && message.contains(&format!("`{image}`: ")),
            "{name}: {message}"
        );
        assert!(message.ends_with("; the former version 1.0.0 keeps running"), "{name}: {message}");
        let (status, _) = scene.place.reason("rules", "Ready", "FormerVersion").await;
        assert_eq!(status, "True", "{name}");
        scene.fake.behave();
        scene.place.edit("rules", json!({"module": {"image": scene.fake.image(":1")}})).await;
        scene.until_runs("rules", &one, first).await;
    }
    scene.place.edit("rules", json!({"module": {"image": scene.fake.image(":2")}})).await;
    scene.until_runs("rules", &two, second).await;
}

#[tokio::test]
async fn a_version_from_a_registry_that_breaks_on_most_objects_is_rolled_back() {
    let scene = Scene::new().await;
    let (one, two) = (module(""), module("2"));
    let (first, second) = (scene.fake.push("1", &one), scene.fake.push("2", &two));
    scene.place.apply(&tried_and(&["b1", "b2", "b3", "b4"])).await;
    let plays = |play: &Play| json!({"config": play.config()});
    scene.processor("rules", &scene.fake.image(":1"), &plays(&makes("1.0.0"))).await;
    scene.until_runs("rules", &one, first).await;
    scene.place.reason("rules", "Synced", "Synced").await;

    scene.fake.forget();
    let bad = makes("2.0.0").script(json!({"panics": "no such rule"}));
    scene.processor("rules", &scene.fake.image(":2"), &plays(&bad)).await;
    let message = scene.place.refused("rules", "RolledBack").await;
    assert!(message.contains("2.0.0") && message.contains("no such rule"), "{message}");
    let found = scene.place.processors().get("rules").await.unwrap().status.unwrap();
    let image = found.module.unwrap().image.unwrap();
    assert!(image.ends_with(&format!(":1@{first}")), "{image} runs");
    scene.place.apply(&[played("b5")]).await;
    scene.place.until_made_by("b5", "1.0.0").await;
    let seen = scene.fake.seen();
    let is_of_first = |digest: Digest| {
        let digest = digest.to_string();
        seen.iter().any(|seen| seen.target.ends_with(&digest))
    };
    assert!(![first, Digest::of(&one)].into_iter().any(is_of_first), "it is still here: {seen:?}");

    scene.processor("rules", &scene.fake.image(":2"), &plays(&makes("2.0.0"))).await;
    scene.until_runs("rules", &two, second).await;
    scene.place.until_made_by("b5", "2.0.0").await;
}

#[tokio::test]
async fn a_full_cache_refuses_a_new_module_until_space_is_freed() {
    let (one, two) = (module(""), module("2"));
    let mut scene = Scene::new().await;
    // The namespace gets half: room for one module, and not for two.
    scene.restart_with_room(one.len() * 3).await;
    let first = scene.fake.push("1", &one);
    let second = scene.fake.push("2", &two);
    scene.processor("rules", &scene.fake.image(":1"), &json!({})).await;
    scene.until_runs("rules", &one, first).await;

    let image = scene.fake.image(":2");
    scene.place.edit("rules", json!({"module": {"image": &image}})).await;
    let (status, message) = scene.place.reason("rules", "Loaded", "CacheFull").await;
    assert_eq!(status, "False", "{message}");
    let says = format!("`{image}`: the folder of modules has room for ");
    assert!(message.starts_with(&says) && message.contains("(--max-modules-mib)"), "{message}");
    assert!(message.ends_with("; the former version 1.0.0 keeps running"), "{message}");
    assert_eq!(scene.place.reason("rules", "Ready", "FormerVersion").await.0, "True");

    // Nobody names the first any more.
    scene.place.delete("rules").await;
    scene.place.until_gone("rules").await;
    scene.processor("others", &image, &json!({})).await;
    scene.until_runs("others", &two, second).await;
}

#[tokio::test]
async fn a_version_that_may_be_gone_back_to_makes_no_room_for_the_next() {
    let (one, two) = (module(""), module("2"));
    let mut scene = Scene::new().await;
    // The namespace gets half: room for two modules, and not for three.
    scene.restart_with_room(one.len() * 5).await;
    let first = scene.fake.push("1", &one);
    let second = scene.fake.push("2", &two);
    scene.fake.push("3", &module("3"));
    scene.processor("rules", &scene.fake.image(":1"), &json!({})).await;
    scene.until_runs("rules", &one, first).await;
    scene.place.edit("rules", json!({"module": {"image": scene.fake.image(":2")}})).await;
    scene.until_runs("rules", &two, second).await;

    scene.place.edit("rules", json!({"module": {"image": scene.fake.image(":3")}})).await;
    let (status, message) = scene.place.reason("rules", "Loaded", "CacheFull").await;
    assert_eq!(status, "False", "{message}");
    assert!(message.contains("(--max-modules-mib)"), "{message}");

    scene.fake.stop().await;
    let back = scene.fake.image(&format!(":1@{first}"));
    scene.place.edit("rules", json!({"module": {"image": back}})).await;
    scene.until_runs("rules", &one, first).await;
}

#[tokio::test]
async fn a_file_of_the_cache_that_was_changed_is_pulled_again() {
    let mut scene = Scene::new().await;
    let one = module("");
    let first = scene.fake.push("stable", &one);
    scene.processor("rules", &scene.fake.image(":stable"), &json!({})).await;
    scene.until_runs("rules", &one, first).await;
    scene.place.tasks.shutdown().await;
    let folder = scene.cache.path().join("cache/modules");
    let change = |digest: Digest| {
        let path = folder.join(format!("sha256-{}", digest.hex()));
        let mut bytes = fs::read(&path).unwrap();
        bytes[15] ^= 1;
        fs::write(&path, bytes).unwrap();
    };
    change(Digest::of(&one));
    scene.fake.forget();
    scene.restart_and_run(true, &one, first).await;
    assert_eq!(scene.blobs(), 1, "the module came again");
    scene.place.tasks.shutdown().await;
    change(first);
    scene.restart_and_run(true, &one, first).await;

    // Without the registry nothing stands in for it, and nothing that was changed is loaded.
    scene.place.tasks.shutdown().await;
    change(Digest::of(&one));
    scene.fake.stop().await;
    scene.restart(true).await;
    let (status, message) = scene.place.reason("rules", "Loaded", "RegistryUnavailable").await;
    assert_eq!(status, "False", "{message}");
    assert!(scene.place.host.status().is_empty());
    let last = scene.place.processors().get("rules").await.unwrap().status.unwrap().module;
    assert!(
        last.unwrap().image.unwrap().ends_with(&first.to_string()),
        "it is known what ran last"
    );
    scene.fake.resume().await;
    scene.until_runs("rules", &one, first).await;
}

/// Asks for the password `secret` of `user`.
fn wants_password(request: &Request) -> Option<Answer> {
    let given = request.headers.get("authorization").map(String::as_str);
    (given != Some("Basic dXNlcjpzZWNyZXQ=")).then(|| {
        Answer::error(401, "UNAUTHORIZED", "who are you").header("www-authenticate", "Basic")
    })
}

fn pull_secret(namespace: &str, host: &str, password: &str) -> Value {
    let config = json!({"auths": {host: {"username": "user", "password": password}}});
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": "pull", "namespace": namespace},
        "stringData": {".dockerconfigjson": config.to_string()},
    })
}

#[tokio::test]
async fn a_pull_secret_is_read_as_the_account() {
    let scene = Scene::with(Fake::tls().await).await;
    scene.fake.set_mood(wants_password);
    let one = module("");
    let first = scene.fake.push("stable", &one);
    let place = &scene.place;
    place.limited("rules").await;
    let needed = [
        ("configmaps", vec!["get", "list", "watch", "create", "patch", "delete"]),
        ("events", vec!["create", "patch"]),
    ];
    place.may("rules", &needed).await;
    let image = scene.fake.image(":stable");
    let with = json!({"serviceAccountName": "rules", "imagePullSecrets": [{"name": "pull"}]});
    scene.processor("rules", &image, &json!({"serviceAccountName": "rules"})).await;
    let (_, message) = place.reason("rules", "Loaded", "RegistryDenied").await;
    assert!(message.contains("it asks for credentials, and there are none for it"), "{message}");

    scene.processor("rules", &image, &with).await;
    let (_, message) = place.reason("rules", "Loaded", "PullSecretUnreadable").await;
    let expected = "the ServiceAccount `rules` may not get the pull secret `pull`: bind it to a Role in the namespace `a` with apiGroups [\"\"], resources [secrets], resourceNames [pull], verbs [get]";
    assert_eq!(message, format!("`{image}` cannot be pulled: {expected}"));
    let mut more = needed.to_vec();
    more.push(("secrets", vec!["get"]));
    place.may("rules", &more).await;
    let says = |reason: &'static str, says: &'static str| {
        move |processor: &Processor| {
            condition(processor, "Loaded")
                .is_some_and(|loaded| loaded.reason == reason && loaded.message.contains(says))
        }
    };
    place.until("rules", "no secret", says("PullSecretUnreadable", "cannot be read")).await;
    let wrong = json!({"data": {}, "metadata": {"name": "pull", "namespace": NAMESPACE}, "kind": "Secret", "apiVersion": "v1"});
    place.apply(&[wrong]).await;
    place
        .until(
            "rules",
            "nothing in it",
            says("PullSecretInvalid", "it holds no credentials; one of the type"),
        )
        .await;
    place.objects("v1/Secret").await.delete("pull", &DeleteParams::default()).await.unwrap();
    place.apply(&[pull_secret(NAMESPACE, &scene.fake.host(), "other")]).await;
    place.until("rules", "a wrong one", says("RegistryDenied", "answers 401")).await;
    place.apply(&[pull_secret(NAMESPACE, &scene.fake.host(), "secret")]).await;
    scene.until_runs("rules", &one, first).await;
    let own = place.tap.own();
    assert!(!own.iter().any(|request| request.contains("secrets")), "as the host itself: {own:?}");
}

#[tokio::test]
async fn cached_modules_are_loaded_only_with_valid_registry_credentials() {
    let scene = Scene::with(Fake::tls().await).await;
    scene.fake.set_mood(wants_password);
    let one = module("");
    let first = scene.fake.push("stable", &one);
    let image = scene.fake.image(&format!("@{first}"));
    let host = scene.fake.host();
    scene
        .place
        .apply(&[pull_secret(NAMESPACE, &host, "secret"), pull_secret("b", &host, "guessed")])
        .await;
    let secrets = json!({"imagePullSecrets": [{"name": "pull"}]});
    scene.processor("rules", &image, &secrets).await;
    scene.until_runs("rules", &one, first).await;
    let blobs = scene.blobs();
    // Another one of the namespace.
    scene.processor("others", &image, &secrets).await;
    scene.until_runs("others", &one, first).await;
    assert_eq!(scene.blobs(), blobs, "it is on the disk");

    scene.add_tenant().await;
    let own = json!({"config": {"description": {"name": "other"}}, "imagePullSecrets": [{"name": "pull"}]});
    scene.processor_in("b", "theirs", &image, &own).await;
    scene.until_theirs_not_loaded("RegistryDenied").await;
}

/// Answers HEAD requests about the blobs of the repository `evil`, and has none.
fn has_no_blobs(request: &Request) -> Option<Answer> {
    let is_theirs = request.target.starts_with("/v2/evil/blobs/");
    let status = if request.method == "HEAD" { 200 } else { 404 };
    is_theirs.then(|| Answer::error(status, "BLOB_UNKNOWN", "no such blob"))
}

#[tokio::test]
async fn a_layer_of_another_tenant_is_run_only_if_the_own_repository_sends_its_bytes() {
    let mut scene = Scene::new().await;
    let one = module("");
    let first = scene.fake.push_to("private", "1", &one);
    let image = |repository: &str| format!("{}/{repository}:1", scene.fake.host());
    scene.processor("rules", &image("private"), &json!({})).await;
    scene.until_runs("rules", &one, first).await;

    // The other tenant knows the digest of the layer, and has not its bytes.
    let theirs = scene.fake.push_to("evil", "1", &one);
    scene.fake.set_mood(has_no_blobs);
    scene.add_tenant().await;
    let other = json!({"config": {"description": {"name": "other"}}});
    scene.processor_in("b", "theirs", &image("evil"), &other).await;
    scene.until_theirs_not_loaded("ImageNotFound").await;
    scene.place.tasks.shutdown().await;
    scene.restart(true).await;
    scene.until_theirs_not_loaded("ImageNotFound").await;

    // A repository that sends them is the tenant's own.
    scene.fake.behave();
    let runs = |processor: Option<&Processor>| {
        let module = processor.and_then(|of| of.status.as_ref()?.module.as_ref()?.image.as_ref());
        module.is_some_and(|image| image.ends_with(&theirs.to_string()))
    };
    let processors: Api<Processor> = Api::namespaced(scene.place.cluster.client().clone(), "b");
    timeout(TIMEOUT, await_condition(processors, "theirs", runs)).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_layer_that_is_no_component_is_given_up_until_the_tag_names_another() {
    let scene = Scene::new().await;
    let (bad, good) = (b"no module at all".to_vec(), module(""));
    scene.fake.push("stable", &bad);
    scene.processor("rules", &scene.fake.image(":stable"), &json!({})).await;
    scene.place.reason("rules", "Loaded", "ModuleInvalid").await;
    let folder = scene.cache.path().join("cache/modules");
    let is_there = |digest: Digest| folder.join(format!("sha256-{}", digest.hex())).exists();
    assert!(!is_there(Digest::of(&bad)), "it takes no space");
    assert_eq!(scene.blobs(), 1);

    scene.place.edit("rules", json!({"config": {"description": {"name": "rules"}}})).await;
    let manifest = scene.fake.push("stable", &good);
    scene.until_runs("rules", &good, manifest).await;
    assert!(is_there(Digest::of(&good)));
    assert_eq!(scene.blobs(), 2, "the first was not pulled again");
}

#[tokio::test]
async fn a_library_comes_from_a_registry_too() {
    let scene = Scene::new().await;
    let [(announce, first), (shout, library)] = scene.run_with_library("rules").await;
    let found = scene.until_runs("rules", &announce, first).await;
    let libraries = found.status.unwrap().libraries;
    assert_eq!(libraries[0].digest, Digest::of(&shout).to_string());
    let image = format!("{}/team/shout:1@{library}", scene.fake.host());
    assert_eq!(libraries[0].image, Some(image));
    let next = scene.fake.push_to("team/shout", "1", &rebuilt(&shout, "2"));
    scene.until_calls("rules", next).await;
}

#[tokio::test]
async fn a_host_without_a_cache_begins_with_the_library_that_ran_last() {
    let mut scene = Scene::new().await;
    let [(announce, first), (shout, library)] = scene.run_with_library("rules").await;
    scene.until_runs("rules", &announce, first).await;
    scene.until_calls("rules", library).await;
    scene.place.tasks.shutdown().await;
    let next = scene.fake.push_to("team/shout", "1", &rebuilt(&shout, "2"));
    scene.fake.forget();
    scene.restart_and_run(false, &announce, first).await;
    scene.until_calls("rules", next).await;
    let seen = scene.fake.seen();
    let of_library = seen.iter().filter_map(|seen| seen.target.strip_prefix("/v2/team/shout/"));
    let asked: Vec<String> = of_library.map(str::to_owned).collect();
    let ran_last = [format!("manifests/{library}"), format!("blobs/{}", Digest::of(&shout))];
    assert_eq!(asked[..2], ran_last, "before the tag: {asked:?}");
    assert_eq!(asked[2], "manifests/1", "{asked:?}");
}

#[tokio::test]
async fn a_library_that_ran_last_runs_in_a_new_host_though_the_spec_names_one_that_is_missing() {
    let mut scene = Scene::new().await;
    let [(announce, first), (shout, library)] = scene.run_with_library("rules").await;
    scene.until_runs("rules", &announce, first).await;
    scene.until_calls("rules", library).await;
    let missing = json!([{
        "interface": "example:shouting/shout@1.0.0",
        "module": {"image": format!("{}/team/shout:2", scene.fake.host())},
    }]);
    scene.place.edit("rules", json!({"libraries": missing})).await;
    scene.place.reason("rules", "Loaded", "ImageNotFound").await;
    scene.restart(true).await;
    scene.place.until_at_work_are(&["1.0.0"]).await;
    let next = scene.fake.push_to("team/shout", "2", &rebuilt(&shout, "2"));
    scene.until_calls("rules", next).await;
}

#[tokio::test]
async fn a_version_under_a_tag_that_asks_for_more_waits_until_it_may() {
    let mut scene = Scene::new().await;
    let built = |guest: &str| fs::read(mortise_tests::guest(guest).unwrap()).unwrap();
    let (modest, greedy) = (built("tests/guests/idle"), built("guests/secret-copy"));
    scene.place.apply(&mortise_tests::definitions("guests/secret-copy").unwrap()).await;
    scene.place.limited("rules").await;
    let few = [
        ("configmaps", vec!["get", "list", "watch", "create", "patch"]),
        ("events", vec!["create", "patch"]),
    ];
    scene.place.may("rules", &few).await;
    let first = scene.fake.push("stable", &modest);
    let own = json!({"serviceAccountName": "rules", "config": null});
    scene.processor("rules", &scene.fake.image(":stable"), &own).await;
    scene.until_runs("rules", &modest, first).await;
    let second = scene.fake.push("stable", &greedy);
    let (status, message) = scene.place.reason("rules", "Loaded", "RightsMissing").await;
    assert_eq!(status, "False");
    let (head, rules) = message.split_once('\n').unwrap();
    assert!(
        head.starts_with(
            "the former version 0.1.0 keeps running; the ServiceAccount `rules` lacks "
        ),
        "{head}"
    );
    assert_eq!(scene.place.reason("rules", "Ready", "FormerVersion").await.0, "True");
    let rules = rules.to_owned();
    scene.restart(true).await;
    scene.place.until_at_work_are(&["0.1.0"]).await;
    scene.place.reason("rules", "Loaded", "RightsMissing").await;

    // What it says is pasted into the role, and nothing else is done.
    let pasted: Value = serde_saphyr::from_str(&rules).unwrap();
    let mut all: Vec<Value> = pasted.as_array().unwrap().clone();
    all.extend(few.iter().map(
        |(resource, verbs)| json!({"apiGroups": [""], "resources": [resource], "verbs": verbs}),
    ));
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "rules"}, "rules": all,
    });
    scene.place.apply(&[role]).await;
    scene.until_runs("rules", &greedy, second).await;
}

#[tokio::test]
async fn a_host_without_a_folder_says_so() {
    let place = Place::new().await;
    let spec =
        json!({"module": {"image": "registry.example.com/a:1"}, "serviceAccountName": "puppet"});
    place.apply(&[object("mortise.dev/v1alpha1/Processor", "rules", &json!({"spec": spec}))]).await;
    let (_, message) = place.reason("rules", "Loaded", "CacheMissing").await;
    assert!(message.contains("give it one with --cache"), "{message}");
}
