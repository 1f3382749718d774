//! The commands of the guide by which the Service of an operator's webhooks leads to a host, and
//! back.

use serde_json::json;

use super::Shell;
use crate::guides;

const GUIDE: &str = "deploy/README.md";

#[test]
fn the_service_of_the_webhooks_leads_to_the_host_and_back_as_the_guide_says() {
    let Some(shell) = Shell::open() else { return };
    shell.output("kubectl create namespace kyma-system");
    shell.load(&json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "api-gateway-webhook-service", "namespace": "kyma-system"},
        "spec": {
            "type": "ClusterIP", "clusterIP": "10.0.0.10",
            "selector": {
                "app.kubernetes.io/name": "api-gateway", "control-plane": "controller-manager",
            },
            "ports": [{
                "name": "https-convert", "port": 9443, "protocol": "TCP", "targetPort": "webhook",
            }],
        },
    }));
    let service = "kubectl get service api-gateway-webhook-service -n kyma-system -o json";
    let spec = || shell.json(service)["spec"].clone();
    let run = |step: &str| {
        let commands = guides::block(GUIDE, &format!("<!-- kubectl::hand_over: {step} -->"));
        for command in commands.lines() {
            shell.output(command);
        }
    };
    let before = spec();
    assert_eq!(before["ports"][0]["targetPort"], "webhook");
    run("keep");
    run("to-the-host");
    let mut led = before.clone();
    led["selector"] = json!({"app.kubernetes.io/name": "mortise"});
    led["ports"][0]["targetPort"] = json!(9443);
    assert_eq!(spec(), led, "it keeps its port, which the definition names");
    run("to-the-operator");
    assert_eq!(spec(), before);
}
