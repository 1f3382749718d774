//! A processor and its library from a real registry, with a password, on a real control plane:
//! signed, swapped under its tag, and taken back.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use mortise_host::{
    cache_dir::CacheDir,
    oci::{Options, Registries, Store, signature::Policy},
    operator::ImageOptions,
};
use mortise_tests::{rebuilt, registry::docker_config};
use serde_json::{Value, json};

use super::{ground::Rights, kind, stage::Stage};
use crate::registry::Setup;

const NAME: &str = "announce";
const ANNOUNCE: &str = "team/announce:stable";
const SHOUT: &str = "team/shout:1";
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

/// The registry of a test, and the modules that are pushed to it.
struct Modules {
    setup: Setup,
    announce: Vec<u8>,
    /// The file of the library.
    shout: PathBuf,
}

impl Modules {
    async fn prepare() -> Option<Self> {
        let setup = Setup::open(TESTS)?;
        let built = async |guest: &'static str| {
            let built = tokio::task::spawn_blocking(move || mortise_tests::guest(guest));
            built.await.unwrap().unwrap()
        };
        let announce = fs::read(built("tests/guests/announce").await).unwrap();
        Some(Self { setup, announce, shout: built("tests/guests/shout").await })
    }

    /// Pushes a module under a name, and returns its reference by digest.
    fn push(&self, bytes: &[u8], name: &str) -> String {
        let file = self.setup.folder.path().join("module.wasm");
        fs::write(&file, bytes).unwrap();
        let with = format!("example:shouting/shout@1.0.0={}", self.shout.display());
        let (file, reference) = (file.to_str().unwrap(), self.setup.reference(name));
        let pushed = ["push", file, &reference, "--revision", "none", "--library", &with];
        self.setup.well(&pushed).trim().to_owned()
    }

    fn sign(&self, name: &str) {
        self.setup.well(&["sign", &self.setup.reference(name), "--key", KEY]);
    }

    /// Returns the options of a host that takes signed modules only.
    fn images(&self) -> ImageOptions {
        let cache = CacheDir::open(&self.setup.folder.path().join("host")).unwrap();
        let authorities = Some(fs::read(self.setup.registry.authority()).unwrap());
        let pem = PUBLIC.replace('\n', "\n    ");
        let policy = Policy::parse(&format!("rules:\n- keys:\n  - |\n    {pem}\n")).unwrap();
        ImageOptions {
            registries: Registries::build(Options { authorities, ..Options::default() }).unwrap(),
            store: Store::open(&cache, 1 << 30).unwrap(),
            interval: Duration::from_secs(1),
            policy: Some(Arc::new(policy)),
        }
    }

    /// Returns the Processor and its pull secret.
    fn resources(&self, stage: &Stage, library: &str) -> Vec<Value> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": stage.named("pull"),
            "stringData": {".dockerconfigjson": docker_config(&self.setup.registry.host()).to_string()},
        });
        let processor = json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor", "metadata": stage.named(NAME),
            "spec": {
                "module": {"image": self.setup.reference(ANNOUNCE)}, "serviceAccountName": NAME,
                "imagePullSecrets": [{"name": "pull"}],
                "libraries": [{
                    "interface": "example:shouting/shout@1.0.0", "module": {"image": library},
                    "limits": {"memory": "16Mi", "deadline": "2s"},
                }],
                "config": {"namespace": stage.namespace},
            },
        });
        vec![secret, processor]
    }
}

#[tokio::test]
async fn a_processor_from_a_registry_is_swapped_under_its_tag_if_it_is_signed() {
    let Some(modules) = Modules::prepare().await else { return };
    let Some(stage) = Stage::new("images", &[NAME.to_owned()]).await else { return };
    stage.account(NAME, RIGHTS).await;
    stage.consent(NAME).await;
    let library = modules.push(&fs::read(&modules.shout).unwrap(), SHOUT);
    modules.sign(SHOUT);
    let first = modules.push(&modules.announce, ANNOUNCE);
    modules.sign(ANNOUNCE);
    let (_running, _modules) = stage.supervise_with(modules.images()).await;
    stage.apply(modules.resources(&stage, &library)).await;
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
    let second = modules.push(&rebuilt(&modules.announce, "2"), ANNOUNCE);
    let found = stage.until_loaded("SignatureMissing", runs(&first)).await;
    assert!(found.to_string().contains("(--require-signatures)"), "{found:#}");
    modules.sign(ANNOUNCE);
    stage.until_loaded("Loaded", runs(&second)).await;
    // And back.
    modules.push(&modules.announce, ANNOUNCE);
    modules.sign(ANNOUNCE);
    stage.until_loaded("Loaded", runs(&first)).await;
    assert_eq!(stage.beyond_installed(&stage.requests().await), Vec::<String>::new());
}
