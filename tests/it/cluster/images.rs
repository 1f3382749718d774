//! A processor and its library from a real registry, with a password, on a real control plane:
//! signed, swapped under its tag, and taken back.

use std::{fs, sync::Arc, time::Duration};

use mortise_host::{
    cache_dir::CacheDir,
    oci::{Options, Registries, Store, signature::Policy},
    operator::ImageOptions,
};
use mortise_tests::{rebuilt, registry::docker_config};
use serde_json::{Value, json};

use super::{ground::Rights, kind, stage::Stage};
use crate::registry::Desk;

const NAME: &str = "announce";
const TESTS: &str = "the tests of it::cluster::images";
const KEY: &str = "host/src/oci/signature/recorded/cosign.key";
const PUBLIC: &str = include_str!("../../../host/src/oci/signature/recorded/cosign.pub");
const RIGHTS: Rights<'static> =
    &[("configmaps", "get list watch create patch"), ("events", "create patch")];

impl Stage {
    /// Waits until a condition has this reason, and returns the Processor.
    async fn until_loaded(&self, reason: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let found = async || {
            let processor = self.get(&kind("mortise.dev/v1alpha1/Processor"), NAME).await.unwrap();
            let conditions = processor["status"]["conditions"].as_array().cloned();
            let mut loaded = conditions.unwrap_or_default().into_iter();
            let loaded = loaded.find(|condition| condition["type"] == "Loaded");
            let holds =
                loaded.is_some_and(|loaded| loaded["reason"] == reason && is_it(&processor));
            holds.then_some(processor)
        };
        self.until(&format!("Loaded {reason}"), async || found().await.is_some()).await;
        found().await.unwrap()
    }
}

#[tokio::test]
async fn a_processor_from_a_registry_is_swapped_under_its_tag_if_it_is_signed() {
    let Some(desk) = Desk::open(TESTS) else { return };
    let Some(stage) = Stage::new("images", &[NAME.to_owned()]).await else { return };
    stage.account(NAME, RIGHTS).await;
    stage.consent(NAME).await;
    let built = |guest: &'static str| async move {
        let built = tokio::task::spawn_blocking(move || mortise_tests::guest(guest)).await.unwrap();
        fs::read(built.unwrap()).unwrap()
    };
    let (announce, shout) =
        (built("tests/guests/announce").await, built("tests/guests/shout").await);
    let file = desk.folder.path().join("module.wasm");
    let shout_file = desk.folder.path().join("shout.wasm");
    fs::write(&shout_file, &shout).unwrap();
    let with = format!("example:shouting/shout@1.0.0={}", shout_file.display());
    let push_only = |bytes: &[u8], reference: &str| {
        fs::write(&file, bytes).unwrap();
        let file = file.to_str().unwrap();
        let pushed =
            desk.well(&["push", file, reference, "--revision", "none", "--library", &with]);
        pushed.trim().to_owned()
    };
    let push = |bytes: &[u8], name: &str| {
        let reference = desk.reference(name);
        let pushed = push_only(bytes, &reference);
        desk.well(&["sign", &reference, "--key", KEY]);
        pushed
    };
    let library = push(&shout, "team/shout:1");
    let first = push(&announce, "team/announce:stable");

    let cache = CacheDir::open(&desk.folder.path().join("host")).unwrap();
    let authorities = Some(fs::read(desk.registry.authority()).unwrap());
    let pem = PUBLIC.replace('\n', "\n    ");
    let policy = Policy::parse(&format!("rules:\n- keys:\n  - |\n    {pem}\n")).unwrap();
    let images = ImageOptions {
        registries: Registries::build(Options { authorities, ..Options::default() }).unwrap(),
        store: Store::open(&cache, 1 << 30).unwrap(),
        interval: Duration::from_secs(1),
        policy: Some(Arc::new(policy)),
    };
    let (_running, _modules) = stage.supervise_with(images).await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": stage.named("pull"),
        "stringData": {".dockerconfigjson": docker_config(&desk.registry.host()).to_string()},
    });
    let processor = json!({
        "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor", "metadata": stage.named(NAME),
        "spec": {
            "module": {"image": desk.reference("team/announce:stable")}, "serviceAccountName": NAME,
            "imagePullSecrets": [{"name": "pull"}],
            "libraries": [{
                "interface": "example:shouting/shout@1.0.0", "module": {"image": library},
                "limits": {"memory": "16Mi", "deadline": "2s"},
            }],
            "config": {"namespace": stage.namespace},
        },
    });
    stage.apply(vec![secret, processor]).await;
    let message = stage.until_loaded("PullSecretUnreadable", |_| true).await;
    assert!(
        message["status"]["conditions"][0]["message"]
            .as_str()
            .unwrap()
            .contains("resourceNames [pull]"),
        "{message:#}"
    );
    let pulls: Rights<'_> = &[("secrets", "get"), RIGHTS[0], RIGHTS[1]];
    stage.grant(NAME, pulls).await;
    let runs = |image: &str| {
        let image = image.to_owned();
        move |processor: &Value| processor["status"]["module"]["image"] == image
    };
    let found = stage.until_loaded("Loaded", runs(&first)).await;
    assert_eq!(found["status"]["libraries"][0]["image"], library);

    // A version that is not signed is not loaded; it is once it is signed.
    let tag = desk.reference("team/announce:stable");
    let second = push_only(&rebuilt(&announce, "2"), &tag);
    let found = stage.until_loaded("SignatureMissing", runs(&first)).await;
    assert!(found.to_string().contains("(--require-signatures)"), "{found:#}");
    desk.well(&["sign", &tag, "--key", KEY]);
    stage.until_loaded("Loaded", runs(&second)).await;
    // And back.
    push(&announce, "team/announce:stable");
    stage.until_loaded("Loaded", runs(&first)).await;
    assert_eq!(stage.beyond_installed(&stage.requests().await), Vec::<String>::new());
}
