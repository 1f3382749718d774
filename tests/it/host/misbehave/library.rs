//! A library that traps under istio-installation. The processor gets no outcome then: the run is
//! told as failed, with the library and its function, and the status of the Istio resource stays.

use std::{fmt::Write as _, path::PathBuf, time::Duration};

use mortise::{commands::test::run_case, local};
use mortise_host::wasm::{LibraryModule, Limits, Module, Processor};
use mortise_sdk::testing::case::{Case, Document, Step};
use mortise_tests::{definitions, istio_client};
use serde_json::{Value, json};

use super::super::text;

const INSTALLATION: &str = "guests/istio-installation";
const INTERFACE: &str = "istio:client/renderer@0.1.0";
/// The release of the library.
const RELEASE: &str = "1.31.0";
/// The Istio resource for which the library is called, as a case names it.
const CALLING: &str = "Istio/kyma-system/default";

/// The memory of a module before its first call.
#[derive(Default)]
struct Memory(Vec<u8>);

// === impl Memory ===

impl Memory {
    /// Adds bytes, and returns their place and their number.
    fn bytes(&mut self, bytes: &[u8]) -> [u32; 2] {
        let place = self.0.len().next_multiple_of(4);
        self.0.resize(place, 0);
        self.0.extend(bytes);
        [place, bytes.len()].map(|number| u32::try_from(number).unwrap())
    }

    fn text(&mut self, text: &str) -> [u32; 2] {
        self.bytes(text.as_bytes())
    }

    /// Adds numbers, and returns their place.
    fn numbers(&mut self, numbers: &[u32]) -> u32 {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.bytes(&bytes)[0]
    }

    /// Returns the bytes as WebAssembly's text format writes them.
    fn literal(&self) -> String {
        let mut text = String::new();
        for byte in &self.0 {
            write!(text, "\\{byte:02x}").unwrap();
        }
        text
    }
}

/// A library that renders one `ConfigMap`, and traps once it is told a version of Kubernetes.
fn traps_for_a_known_version() -> Vec<u8> {
    let mut memory = Memory::default();
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "istio", "namespace": "istio-system"}, "data": {"mesh": "{}"},
    });
    let version = [RELEASE, "double"].map(|text| memory.text(text)).concat();
    let version = memory.numbers(&version);
    let content = config_map.to_string();
    let manifest = ["ConfigMap", "istio-system", "istio", content.as_str()];
    let manifest = manifest.map(|text| memory.text(text)).concat();
    let manifests = memory.numbers(&manifest);
    let [name, length] = memory.text("Pilot");
    let components = memory.numbers(&[name, length, manifests, 1]);
    // No error; the components; an empty text as what was merged, and no warnings.
    let rendered = memory.numbers(&[0, components, 1, 0, 0, 0, 0]);
    let data = memory.literal();
    // A text, and an optional record of three texts and two optional parts.
    let parameters = "i32 ".repeat(15);
    let text = format!(
        r#"(component
            (core module $m
                (memory (export "memory") 16)
                (data (i32.const 0) "{data}")
                (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 65536))
                (func (export "version") (result i32) (i32.const {version}))
                (func (export "render") (param {parameters}) (result i32)
                    (if (local.get 2) (then unreachable))
                    (i32.const {rendered})))
            (core instance $i (instantiate $m))
            (type $version (record (field "release" string) (field "module" string)))
            (type $cluster (record
                (field "git-version" string) (field "major" string) (field "minor" string)
                (field "cilium-config" (option (list (tuple string string))))
                (field "felix-configuration" (option string))))
            (type $manifest (record
                (field "kind" string) (field "namespace" string) (field "name" string)
                (field "content" string)))
            (type $component (record (field "name" string) (field "manifests" (list $manifest))))
            (type $rendered (record
                (field "components" (list $component)) (field "merged" string)
                (field "warnings" (list string))))
            (func $version (result $version)
                (canon lift (core func $i "version") (memory $i "memory")))
            (func $render (param "spec" string) (param "cluster" (option $cluster))
                (result (result $rendered (error string)))
                (canon lift (core func $i "render") (memory $i "memory") (realloc (func $i "realloc"))))
            (instance $renderer
                (export "istio-version" (type $version)) (export "cluster" (type $cluster))
                (export "manifest" (type $manifest)) (export "component" (type $component))
                (export "rendered" (type $rendered))
                (export "version" (func $version)) (export "render" (func $render)))
            (export "{INTERFACE}" (instance $renderer)))"#
    );
    wat::parse_str(text).unwrap()
}

/// Loads istio-installation with a library. Returns `None` without Go: with the processor, the
/// library that it names is built too.
async fn installation(library: Vec<u8>) -> Option<Processor> {
    let built = || {
        istio_client::component(istio_client::version("1.31").unwrap()).unwrap()?;
        Some(mortise_tests::parts(INSTALLATION).unwrap())
    };
    let parts = tokio::task::spawn_blocking(built).await.unwrap()?;
    let module = |name: &str, bytes: Vec<u8>, limits: Limits| Module {
        name: name.to_owned(),
        content: bytes.into(),
        limits,
    };
    let library = LibraryModule {
        interface: INTERFACE.to_owned(),
        module: module("library.wasm", library, Limits::default()),
    };
    let bytes = std::fs::read(&parts.module).unwrap();
    let module = module("istio-installation", bytes, parts.limits);
    let engine = local::engine(Some(&mortise_tests::code_cache()), true).unwrap();
    Some(Processor::load_with(&engine, None, module, vec![library]).await.unwrap())
}

fn istio(name: &str) -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1alpha2", "kind": "Istio",
        "metadata": {"name": name, "namespace": "kyma-system"}, "spec": {},
    })
}

/// Returns a Node whose kubelet has this version; a text that is none is not handed on.
fn node(version: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
        "status": {
            "capacity": {"cpu": "12", "memory": "32Gi"},
            "nodeInfo": {"kubeletVersion": version, "osImage": "Linux"},
        },
    })
}

/// Returns a case in which Istio is installed, then the library traps while another Istio resource
/// is made, and then it renders again.
fn installed_before_it_traps() -> Case {
    let istiod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "istiod-1", "namespace": "istio-system",
            "labels": {"kyma-project.io/module": "istio"},
        },
        "spec": {"containers": [
            {"name": "discovery", "image": format!("example.com/pilot:{RELEASE}-distroless")},
        ]},
    });
    let after = |after| Step { after: Some(after), ..Step::default() };
    let moment = Duration::from_secs(1);
    Case {
        name: "a library that traps".to_owned(),
        folder: PathBuf::new(),
        clusters: Vec::new(),
        objects: vec![node("unknown"), istiod, istio("default")],
        config: "{}".to_owned(),
        now: "2026-01-01T00:00:00Z".parse().unwrap(),
        only: None,
        validate: true,
        steps: vec![
            Step::default(),
            after(moment),
            Step { patch: vec![node("v1.34.3")], apply: vec![istio("other")], ..after(moment) },
            Step { patch: vec![node("unknown")], ..after(Duration::from_mins(10)) },
        ],
        expected: None,
        calls: Vec::new(),
    }
}

/// Returns the states of the Istio resources that a step has changed, with their names.
fn states(step: &Document) -> Vec<(&str, &str)> {
    let istios = step.objects.iter().filter(|object| object["kind"] == "Istio");
    istios.map(|one| (text(one, "/metadata/name"), text(one, "/status/state"))).collect()
}

#[tokio::test]
async fn a_library_that_traps_is_named_and_rendered_objects_stay() {
    let Some(processor) = installation(traps_for_a_known_version()).await else { return };
    let crds = definitions(INSTALLATION).unwrap();
    let stage = run_case(processor, installed_before_it_traps(), &crds).await.unwrap();
    let steps = stage.documents();
    let [first, installed, trapped, again] = &steps[..] else { panic!("{steps:?}") };
    assert!(first.objects.iter().any(|one| one["metadata"]["name"] == "istio"), "{first:?}");
    assert_eq!(states(installed), [("default", "Ready")]);

    // The run says which function of which library, and nobody's objects change.
    let expected = format!(
        "processor `istio-installation` got no answer of a library: `render` of library `{INTERFACE}` trapped: wasm trap: wasm `unreachable` instruction executed"
    );
    let failures: Vec<_> = trapped.failures.iter().collect();
    let [(of, Some(failure))] = &failures[..] else { panic!("{failures:?}") };
    assert!(*of == CALLING && failure.starts_with(&expected), "{of}: {failure}");
    let [event] = &trapped.events[..] else { panic!("{:?}", trapped.events) };
    assert_eq!((event.on.as_str(), event.event_type.as_str()), (CALLING, "Warning"));
    assert!(event.message.starts_with(&expected), "{}", event.message);
    assert_eq!(trapped.gone, Vec::<String>::new(), "what is installed stays");
    assert_eq!(states(trapped), [("other", "Warning")], "the other resource is reconciled");
    assert_eq!(trapped.objects.len(), 1, "{:?}", trapped.objects);

    // Once it renders again, the failure is over, and nothing is to be done.
    assert_eq!(again.failures, [(CALLING.to_owned(), None)].into());
    assert!(again.objects.is_empty() && again.gone.is_empty(), "{again:?}");
}
