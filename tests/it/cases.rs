//! The same cases natively through the host stub, and through the real host with the component: the
//! rules are the same code, and only the border to WebAssembly and the watches differ.

use std::path::{Path, PathBuf};

use api_rule::ApiRules;
use istio_installation::Installations;
use mortise::{
    commands::test::{ask, run_case},
    guest::Guest,
    local,
};
use mortise_host::wasm::Processor as Component;
use mortise_sdk::{
    Processor,
    testing::case::{self, Case, Native, Stage, Step},
};
use mortise_tests::istio_client;
use serde_json::{Value, json};
use test_guest_announce::{Announcements, Double};
use test_guest_hooks::Hooks;
use test_guest_puppet::Puppet;
use tokio::sync::Mutex;

/// The guest whose component needs Istio's own renderer. Natively, a double stands for it.
pub(crate) const INSTALLATION: &str = "guests/istio-installation";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The folders of the guests that have cases, in order.
pub(crate) fn with_cases() -> Vec<String> {
    let folders = ["guests", "tests/guests"];
    let guests = folders.iter().flat_map(|folder| {
        let guests = std::fs::read_dir(root().join(folder)).unwrap();
        guests.map(move |guest| (folder, guest.unwrap()))
    });
    let with_cases = guests.filter(|(_, guest)| guest.path().join("cases").is_dir());
    let mut names: Vec<String> = with_cases
        .map(|(folder, guest)| format!("{folder}/{}", guest.file_name().into_string().unwrap()))
        .collect();
    names.sort();
    names
}

/// The component of a guest.
pub(crate) async fn component(folder: &str) -> Component {
    /// Tests that load one component at the same time would each compile it.
    static COMPILING: Mutex<()> = Mutex::const_new(());
    let name = folder.to_owned();
    let parts = tokio::task::spawn_blocking(move || mortise_tests::parts(&name));
    let parts = parts.await.unwrap().unwrap();
    let cache = mortise_tests::code_cache();
    let _compiling = COMPILING.lock().await;
    local::component(&local::engine(Some(&cache), true).unwrap(), parts).await.unwrap()
}

/// Returns the end of a case in the form of its file.
fn text(stage: &Stage) -> String {
    let documents: Vec<String> = stage.documents().iter().map(case::Document::to_yaml).collect();
    documents.join("---\n")
}

/// Runs the cases of a guest without hooks on stub and host; returns the number of cases.
pub(crate) async fn both<P: Processor>(folder: &str) -> usize {
    both_with::<P>(folder, &[]).await
}

/// Runs the cases of a guest on stub and host; returns the number of cases.
async fn both_with<P: Processor>(folder: &str, natives: &[Native]) -> usize {
    let crds: Vec<Value> = mortise_tests::definitions(folder).unwrap();
    let cases_of = Guest::open(&root().join(folder)).unwrap().cases;
    let (cases, hooks) = (case::all(&cases_of).unwrap(), case::hooks(&cases_of).unwrap());
    let component = component(folder).await;
    for case in &hooks {
        let name = format!("{folder}, case `{}`", case.name);
        let native = Native::answer(natives, case).unwrap();
        let real = ask(component.clone(), case).await.unwrap();
        assert_eq!(native, real, "{name}: natively (left) and as a component (right)");
        assert_eq!(case.differences(&real), [], "{name}");
    }
    for case in &cases {
        let name = format!("{folder}, case `{}`", case.name);
        let native = case::run::<P>(case, &crds, natives);
        let native = native.unwrap_or_else(|error| panic!("{name}: {error}"));
        let real = run_case(component.clone(), case.clone(), &crds).await;
        let real = real.unwrap_or_else(|error| panic!("{name}: {error:#}"));
        assert_eq!(
            text(&native),
            text(&real),
            "{name}: natively (left) and as a component (right)"
        );
        assert_eq!(real.differences(), [], "{name}");
    }
    cases.len() + hooks.len()
}

#[tokio::test]
async fn the_cases_of_all_guests_end_the_same_natively_and_as_a_component() {
    assert!(both::<api_gateway::ApiGateways>("guests/api-gateway").await >= 1);
    let natives = [Native::conversion::<ApiRules>(), Native::admission::<ApiRules>()];
    assert!(both_with::<ApiRules>("guests/api-rule", &natives).await >= 30);
    let folder = "guests/external-gateway";
    assert!(both::<external_gateway::ExternalGateways>(folder).await >= 1);
    assert!(both::<konnect::Konnect>("guests/konnect").await >= 3);
    assert!(both::<kube_bind::KubeBind>("guests/kube-bind").await >= 5);
    assert!(both::<rate_limit::RateLimits>("guests/rate-limit").await >= 1);
    assert!(both::<secret_copy::SecretCopies>("guests/secret-copy").await >= 1);
    let folder = "guests/ingress-gateway-restart";
    assert!(both::<ingress_gateway_restart::IngressGatewayRestarts>(folder).await >= 1);
    let folder = "guests/peer-authentication";
    assert!(both::<peer_authentication::PeerAuthentications>(folder).await >= 1);
    let folder = "guests/sidecar-restart";
    assert!(both::<sidecar_restart::Sidecars>(folder).await >= 1);
    let folder = "guests/webhook-certificate";
    assert!(both::<webhook_certificate::WebhookCertificate>(folder).await >= 1);
    let announce = "tests/guests/announce";
    assert!(both::<Announcements<Double>>(announce).await >= 2);
    let hooks = "tests/guests/hooks";
    let natives = [Native::conversion::<Hooks>(), Native::admission::<Hooks>()];
    assert!(both_with::<Hooks>(hooks, &natives).await >= 8);
    let tested = [
        "guests/api-gateway",
        "guests/api-rule",
        "guests/external-gateway",
        "guests/ingress-gateway-restart",
        INSTALLATION,
        "guests/konnect",
        "guests/kube-bind",
        "guests/peer-authentication",
        "guests/rate-limit",
        "guests/secret-copy",
        "guests/sidecar-restart",
        "guests/webhook-certificate",
        announce,
        hooks,
    ];
    assert_eq!(with_cases(), tested, "each guest with cases is tested here");
}

#[tokio::test]
async fn the_cases_of_istio_installation_end_the_same_with_a_double_and_the_real_library() {
    let build = || istio_client::component(istio_client::version("1.31")?);
    if tokio::task::spawn_blocking(build).await.unwrap().unwrap().is_some() {
        assert!(both::<Installations<istio_installation::double::Double>>(INSTALLATION).await >= 1);
    }
}

/// Returns a case of two `ConfigMaps` in a conflict without end: the puppet applies a field for one
/// and removes the field for the other.
fn restless() -> Case {
    let kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    let selection = |labels: &str| {
        json!({
            "cluster": "", "kind": kind, "namespace": null, "name": null, "labels": labels, "matching": [], "fields": [],
        })
    };
    let config = json!({"description": {
        "name": "puppet", "version": "1.0.0", "grants": [], "outbound": [], "config_schema": null,
        "reconcilers": [{
            "name": "things", "of": selection("play=yes"), "finalizers": [], "resync": 0,
            "triggered_by_status": false, "min_interval": 0, "on_demand": false, "whole_status": false,
        }],
        "reads": [selection("")],
        "writes": [{"of": selection(""), "verbs": ["create", "update"], "fields": []}],
    }});
    let read = json!({"cluster": "", "kind": kind, "namespace": "shop", "name": "a"});
    let object = |name: &str, rest: &Value| {
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"}});
        crate::host::merge(&mut object, rest);
        object
    };
    let scripted = |name: &str, write: &str, data: Value, absent: Value| {
        let manifest = json!({
            "cluster": "", "object": object("a", &data).to_string(), "mode": "Apply", "leave": [], "absent": absent,
        });
        let mut outcome = json!({
            "apply": [], "patch": [], "evict": [], "delete": [], "prune": [], "status": null, "events": [],
            "requeue": "ByDefault", "finalizers": null, "start": [],
        });
        outcome[write] = json!([manifest]);
        let script = json!({"reads": [{"get": {"ref": read}}], "returns": {"outcome": outcome}});
        let script = json!({"metadata": {"labels": {"play": "yes"}}, "data": {"script": script.to_string()}});
        object(name, &script)
    };
    Case {
        name: "restless".to_owned(),
        folder: PathBuf::new(),
        clusters: Vec::new(),
        objects: vec![
            scripted("one", "apply", json!({"data": {"k": "v"}}), json!([])),
            scripted("two", "patch", json!({}), json!(["data.k"])),
        ],
        config: config.to_string(),
        now: "2026-01-01T00:00:00Z".parse().unwrap(),
        only: None,
        validate: true,
        steps: vec![Step::default()],
        expected: None,
        calls: Vec::new(),
    }
}

#[tokio::test]
async fn a_case_that_does_not_come_to_rest_is_told() {
    let folder = "tests/guests/puppet";
    let case = restless();
    let native = case::run::<Puppet>(&case, &[], &[]).unwrap_err();
    let real = run_case(component(folder).await, case, &[]).await.unwrap_err().to_string();
    for error in [native, real] {
        assert!(error.starts_with("no rest: "), "{error}");
    }
}
