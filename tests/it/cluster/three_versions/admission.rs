//! The hooks of api-rule on a real control plane, called as `mortise inspect --webhooks` prints it.

use std::{path::Path, process::Command};

use serde_json::{Value, json};

use super::{
    CONFIG, Converter, GROUP, Gateway, HOME, MODULE, NAME, NAMESPACE, ORIGINAL_VERSION, old,
    put_to_work, rule, rules, served,
};
use crate::{cluster::program::built, host::webhooks::issued_for};

/// The configuration of a cluster whose vendor has not allowed v1beta1.
const DENIED: &str = r#"{"v1beta1":"denied"}"#;
/// The original's answer to a write in v1beta1 without a grant.
const REFUSAL: &str = "v1beta1 APIRule version is no longer supported, please use v2 instead";

impl Gateway {
    /// Installs the configurations of the hooks. The API server reaches the hosts by the front.
    async fn install_hooks(&self) {
        let mut printed = self.print_hooks();
        printed.retain(|object| object["webhooks"].is_array());
        assert_eq!(printed.len(), 2, "one that changes, one that checks: {printed:#?}");
        for webhook in printed.iter_mut().flat_map(|of| of["webhooks"].as_array_mut().unwrap()) {
            let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap();
            webhook["clientConfig"] = self.client_config(path);
        }
        self.apply(printed).await;
    }

    fn print_hooks(&self) -> Vec<Value> {
        let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crds");
        let mut command = Command::new(built());
        command.arg("inspect").arg(self.folder.path().join("modules").join(MODULE));
        command.arg("--webhooks").arg(format!("{HOME}/{NAME}")).arg("--crds").arg(crds.join(GROUP));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap()
    }

    /// Asserts that writes in v1beta1 are denied in the original's words, of new APIRules and of
    /// this one, which stays as it is.
    async fn assert_v1beta1_denied(&self, name: &str) {
        let webhook = format!("v1beta1.{NAME}.{HOME}.mortise.dev");
        let denied = format!("admission webhook \"{webhook}\" denied the request: {REFUSAL}");
        let new = old("new", &json!({"handler": "no_auth"})).to_string();
        self.until("writes in v1beta1 are denied", async || {
            self.kubectl("apply --dry-run=server -f -", &new).contains(&denied)
        })
        .await;
        let before = self.rules("v2alpha1").await.get(name).await.unwrap();
        let of = format!("apirules.v1beta1.{GROUP} {name} -n {NAMESPACE}");
        for (arguments, input) in [
            ("apply -f -".to_owned(), &*new),
            (format!("label {of} a=b"), ""),
            (format!("delete {of} --wait=false"), ""),
        ] {
            let said = self.kubectl(&arguments, input);
            assert!(said.contains(&denied), "{arguments}: {said}");
        }
        let said = self.kubectl(&format!("get apirules.v2alpha1.{GROUP} new -n {NAMESPACE}"), "");
        assert!(said.contains("NotFound"), "{said}");
        assert_eq!(self.rules("v2alpha1").await.get(name).await.unwrap(), before);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_are_admitted_or_denied_and_deletions_need_no_host() {
    let Some(gateway) = Gateway::open(served(&issued_for("localhost", -1, 1))).await else {
        return;
    };
    let host = Converter::start_with(&gateway, DENIED).await;
    gateway.front.set(&[host.address]);
    gateway.install_hooks().await;
    let apply = |object: &Value| gateway.kubectl("apply -f -", &object.to_string());
    let plain = |version: &str, name: &str| rule(version, name, &rules::rule(0)["spec"]);
    // A configuration is used a moment after it is stored.
    gateway
        .until("the hook marks what is written", async || {
            apply(&plain("v2alpha1", "marked"));
            let stored = gateway.rules("v2alpha1").await.get("marked").await.unwrap();
            let is_marked =
                stored.metadata.annotations.is_some_and(|all| all.contains_key(ORIGINAL_VERSION));
            if !is_marked {
                gateway.kubectl(
                    &format!("delete apirules.v2alpha1.{GROUP} marked -n {NAMESPACE}"),
                    "",
                );
            }
            is_marked
        })
        .await;
    // A dry run is marked, too, and not stored.
    let tried = plain("v2alpha1", "tried").to_string();
    let said = gateway.kubectl("create --dry-run=server -o json -f -", &tried);
    let tried: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
    assert_eq!(tried["metadata"]["annotations"][ORIGINAL_VERSION], "v2alpha1");
    let of_tried = format!("apirules.v2alpha1.{GROUP} tried -n {NAMESPACE}");
    let said = gateway.kubectl(&format!("get {of_tried}"), "");
    assert!(said.contains("NotFound"), "{said}");

    gateway.assert_v1beta1_denied("marked").await;
    put_to_work(&host.host, CONFIG).await;
    let said = apply(&old("old", &json!({"handler": "no_auth"})));
    assert!(said.contains("created"), "{said}");
    let of_old = format!("apirules.v1beta1.{GROUP} old -n {NAMESPACE}");
    let said = gateway.kubectl(&format!("delete {of_old} --wait=false"), "");
    assert!(said.contains("\"old\" deleted"), "{said}");
    let of_marked = format!("apirules.v2alpha1.{GROUP} marked -n {NAMESPACE}");
    let held = r#"{"metadata":{"finalizers":["example.com/held"]}}"#;
    let said = gateway.kubectl(&format!("patch {of_marked} --type=merge -p {held}"), "");
    assert!(said.contains("patched"), "{said}");

    host.end().await;
    gateway.front.set(&[]);
    // Without a version, kubectl asks for v2, which nobody converts now.
    let said = gateway.kubectl(&format!("get apirules marked -n {NAMESPACE}"), "");
    assert!(said.contains("conversion webhook for"), "{said}");
    let renamed = r#"{"metadata":{"labels":{"a":"b"}}}"#;
    let said = gateway.kubectl(&format!("patch {of_marked} --type=merge -p {renamed}"), "");
    assert!(said.contains("failed calling webhook"), "{said}");
    gateway.kubectl(&format!("delete {of_marked} --wait=false"), "");
    let free = r#"{"metadata":{"finalizers":null}}"#;
    let said = gateway.kubectl(&format!("patch {of_marked} --type=merge -p {free}"), "");
    assert!(said.contains("patched"), "{said}");
    let said = gateway.kubectl(&format!("get {of_marked}"), "");
    assert!(said.contains("NotFound"), "{said}");
}

/// What the conversion drops is not stored: a rule in v2 with empty lists ends as one without them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_lists_of_v2_are_not_stored() {
    let Some(gateway) = Gateway::open(served(&issued_for("localhost", -1, 1))).await else {
        return;
    };
    let host = gateway.host(&[]).await;
    gateway.apply(vec![Gateway::processor(MODULE, false)]).await;
    gateway.until_served(&host, &gateway.read(MODULE)).await;
    gateway.front.set(&[host.webhooks]);
    let none = json!({
        "authentications": [{"issuer": "https://id.example.com", "jwksUri": "https://id.example.com/keys"}],
    });
    let with = |authorizations: Value| {
        let mut jwt = none.clone();
        jwt["authorizations"] = authorizations;
        jwt
    };
    let empty_lists = json!([{"requiredScopes": [], "audiences": []}]);
    // Each is stored as the other one of its pair.
    let pairs = [
        (("without", none.clone()), ("empty", with(json!([])))),
        (("without-claims", with(json!([{}]))), ("empty-claims", with(empty_lists))),
    ];
    let all: Vec<_> = pairs.iter().flat_map(|(without, empty)| [without, empty]).collect();
    for (index, (name, jwt)) in all.iter().enumerate() {
        let mut spec = rules::rule(index)["spec"].clone();
        spec["rules"] = json!([{"path": "/*", "methods": ["GET"], "jwt": jwt}]);
        gateway.create("kubectl", &rule("v2", name, &spec)).await;
    }
    let api = gateway.rules("v2alpha1").await;
    gateway
        .until("all are Ready", async || {
            for (name, _) in &all {
                if api.get(name).await.unwrap().data["status"]["state"] != "Ready" {
                    return false;
                }
            }
            true
        })
        .await;
    for ((without, jwt), (empty, _)) in &pairs {
        for name in [without, empty] {
            let stored = api.get(name).await.unwrap();
            assert_eq!(stored.data["spec"]["rules"][0]["jwt"], *jwt, "{name}");
        }
    }
}
