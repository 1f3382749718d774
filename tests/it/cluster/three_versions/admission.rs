//! The hooks of api-rule on a real control plane, called as `mortise inspect --webhooks` prints it.

use std::{path::Path, process::Command};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{Converter, GROUP, Gateway, HOME, MODULE, NAME, NAMESPACE, old, rule, rules, served};
use crate::{cluster::program::built, host::webhooks::issued_for};

/// An annotation that the hook for v2alpha1 puts on a rule.
const ORIGINAL_VERSION: &str = "gateway.kyma-project.io/original-version";

impl Gateway {
    /// Installs the configurations of the hooks. The API server reaches the hosts by the front.
    async fn install_hooks(&self) {
        let mut printed = self.print_hooks();
        printed.retain(|object| object["webhooks"].is_array());
        assert_eq!(printed.len(), 2, "one that changes, one that checks: {printed:#?}");
        for webhook in printed.iter_mut().flat_map(|of| of["webhooks"].as_array_mut().unwrap()) {
            let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap();
            let url = format!("https://localhost:{}{path}", self.front.port);
            let bundle = STANDARD.encode(&self.authority);
            webhook["clientConfig"] = json!({"url": url, "caBundle": bundle});
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
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_are_admitted_and_what_is_deleted_goes_while_no_host_answers() {
    let Some(gateway) = Gateway::open(served(&issued_for("localhost", -1, 1))).await else {
        return;
    };
    let host = Converter::start(&gateway).await;
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
    let said = apply(&old("old", &json!({"handler": "no_auth"})));
    assert!(said.contains("created"), "{said}");
    let of_marked = format!("apirules.v2alpha1.{GROUP} marked -n {NAMESPACE}");
    let held = r#"{"metadata":{"finalizers":["example.com/held"]}}"#;
    let said = gateway.kubectl(&format!("patch {of_marked} --type=merge -p {held}"), "");
    assert!(said.contains("patched"), "{said}");

    host.end().await;
    gateway.front.set(&[]);
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
    let mut jwt = json!({
        "authentications": [{"issuer": "https://id.example.com", "jwksUri": "https://id.example.com/keys"}],
    });
    let of = |index: usize, name: &str, jwt: &Value| {
        let mut spec = rules::rule(index)["spec"].clone();
        spec["rules"] = json!([{"path": "/*", "methods": ["GET"], "jwt": jwt}]);
        rule("v2", name, &spec)
    };
    gateway.create("kubectl", &of(0, "without", &jwt)).await;
    jwt["authorizations"] = json!([]);
    gateway.create("kubectl", &of(1, "empty", &jwt)).await;
    let api = gateway.rules("v2alpha1").await;
    gateway
        .until("both are Ready", async || {
            let states = [api.get("without").await.unwrap(), api.get("empty").await.unwrap()];
            states.iter().all(|of| of.data["status"]["state"] == "Ready")
        })
        .await;
    let [without, empty] = [api.get("without").await.unwrap(), api.get("empty").await.unwrap()];
    assert_eq!(empty.data["spec"]["rules"], without.data["spec"]["rules"]);
    assert!(empty.data["spec"]["rules"][0]["jwt"].get("authorizations").is_none());
}
