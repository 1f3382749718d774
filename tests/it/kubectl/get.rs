//! `get` and `describe`, with every output format.

use serde_json::json;

use super::{CONFIG_MAP, CRON_TAB, CRON_TABS, DEPLOYMENT, Shell};

/// A shell with a Deployment, a `ConfigMap`, a custom resource, and a `ConfigMap` in another
/// namespace.
fn shell() -> Option<Shell> {
    let shell = Shell::open()?;
    shell.write("all.yaml", &[CRON_TABS, DEPLOYMENT, CONFIG_MAP].join("\n---\n"));
    shell.write("crontab.yaml", CRON_TAB);
    shell.output("kubectl apply -f all.yaml");
    shell.output("kubectl apply -f crontab.yaml");
    shell.output("kubectl create ns other");
    shell.output("kubectl create cm far --from-literal=a=b -n other");
    Some(shell)
}

#[test]
fn objects_are_printed_in_every_output() {
    let Some(shell) = shell() else { return };
    let image = "jsonpath='{.spec.template.spec.containers[*].image}'";
    shell.table(&[
        ("kubectl get deploy", 0, "NAME READY UP-TO-DATE AVAILABLE AGE\nweb 0/2 0 0 …s"),
        (
            "kubectl get deploy web -o wide",
            0,
            "NAME READY UP-TO-DATE AVAILABLE AGE CONTAINERS IMAGES SELECTOR\nweb 0/2 0 0 …s web nginx:1 app=web",
        ),
        ("kubectl get deploy web --no-headers", 0, "web 0/2 0 0 …s"),
        ("kubectl get deploy -o name", 0, "deployment.apps/web"),
        (&format!("kubectl get deploy web -o {image}"), 0, "nginx:1"),
        (
            "kubectl get deploy -o jsonpath='{range .items[*]}{.metadata.name}={.spec.replicas}{\"\\n\"}{end}'",
            0,
            "web=2",
        ),
        (
            "kubectl get deploy -o custom-columns=NAME:.metadata.name,WANTED:.spec.replicas,READY:.status.readyReplicas",
            0,
            "NAME WANTED READY\nweb 2 <none>",
        ),
        ("kubectl get deploy -o go-template='{{len .items}}'", 0, "1"),
        ("kubectl get ct", 0, "NAME SPEC REPLICAS AGE\nmine */5 * * * * 1 …s"),
        ("kubectl get crontab mine -o wide", 0, "NAME SPEC REPLICAS IMAGE AGE\nmine */5 * * * * 1 runner …s"),
        ("kubectl get crontabs.v1.stable.example.com -o name", 0, "crontab.stable.example.com/mine"),
        ("kubectl get crd", 0, "NAME CREATED AT\ncrontabs.stable.example.com 2…Z"),
        ("kubectl get deploy,cm,ct -o name", 0, "deployment.apps/web\nconfigmap/colours\ncrontab.stable.example.com/mine"),
        ("kubectl get deploy/web cm/colours -o name", 0, "deployment.apps/web\nconfigmap/colours"),
        (
            "kubectl get all",
            0,
            "NAME READY UP-TO-DATE AVAILABLE AGE\ndeployment.apps/web 0/2 0 0 …s\n\n\
             NAME SPEC REPLICAS AGE\ncrontab.stable.example.com/mine */5 * * * * 1 …s",
        ),
    ]);
    let object = shell.json("kubectl get cm colours -o json");
    assert_eq!(object["data"], json!({"sky": "blue", "grass": "green"}));
    assert_eq!(object["metadata"].get("managedFields"), None, "kubectl hides them");
    let object = shell.json("kubectl get cm colours -o json --show-managed-fields");
    assert_eq!(object["metadata"]["managedFields"][0]["manager"], "kubectl-client-side-apply");
    let text = shell.output("kubectl get deploy web -o yaml");
    let object: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
    let spec = &object["spec"];
    assert_eq!(
        (&spec["replicas"], &spec["strategy"]["type"]),
        (&json!(2), &json!("RollingUpdate"))
    );
}

#[test]
fn objects_are_selected_and_sorted() {
    let Some(shell) = shell() else { return };
    shell.table(&[
        ("kubectl get cm --show-labels", 0, "NAME DATA AGE LABELS\ncolours 2 …s app=paint"),
        ("kubectl get cm -L app", 0, "NAME DATA AGE APP\ncolours 2 …s paint"),
        ("kubectl get cm -A", 0, "NAMESPACE NAME DATA AGE\ndefault colours 2 …s\nother far 1 …s"),
        ("kubectl get cm -A --no-headers -l app=paint", 0, "default colours 2 …s"),
        ("kubectl get cm -l 'app in (paint, glue),!gone' -o name", 0, "configmap/colours"),
        ("kubectl get cm -l app!=paint -A -o name", 0, "configmap/far"),
        ("kubectl get cm -l app=glue", 0, "No resources found in default namespace."),
        ("kubectl get cm -l 'app in'", 1, "… unable to parse requirement…"),
        ("kubectl get cm -A --field-selector metadata.namespace=other -o name", 0, "configmap/far"),
        ("kubectl get cm -A --field-selector metadata.name!=far -o name", 0, "configmap/colours"),
        ("kubectl get ct --field-selector spec.image=runner -o name", 0, "crontab.stable.example.com/mine"),
        ("kubectl get ct --field-selector spec.image=other", 0, "No resources found in default namespace."),
        (
            "kubectl get ct --field-selector spec.mode=once",
            1,
            "Error from server (BadRequest): Unable to find \"stable.example.com/v1, Resource=crontabs\" that match \
             label selector \"\", field selector \"spec.mode=once\": field label not supported: spec.mode",
        ),
        (
            "kubectl get ns --sort-by='{.metadata.name}' --no-headers -o custom-columns=N:.metadata.name",
            0,
            "default\nkube-node-lease\nkube-public\nkube-system\nother",
        ),
        ("kubectl get ns --chunk-size=2 -o name | wc -l", 0, "5"),
        ("kubectl get cm far", 1, "Error from server (NotFound): configmaps \"far\" not found"),
        ("kubectl get cm far --ignore-not-found", 0, ""),
        ("kubectl get cm -n nowhere", 0, "No resources found in nowhere namespace."),
        ("kubectl get paint", 1, "error: the server doesn't have a resource type \"paint\""),
        ("kubectl get --raw '/api/v1/namespaces/other/configmaps/far' | grep -o '\"data\":{[^}]*}'", 0, r#""data":{"a":"b"}"#),
    ]);
}

#[test]
fn objects_are_described() {
    let Some(shell) = shell() else { return };
    let uid = shell.output("kubectl get cm colours -o jsonpath='{.metadata.uid}'");
    shell.load(&json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "colours.1", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "colours", "uid": uid},
        "reason": "Faded", "message": "the sky is grey", "type": "Warning", "count": 3,
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:05:00Z", "source": {"component": "weather"},
    }));
    shell.table(&[
        (
            "kubectl describe cm colours",
            0,
            "Name: colours\nNamespace: default\nLabels: app=paint\nAnnotations: <none>\n\nData\n====\n…sky:\n----\nblue\n\
             …Events:\n Type Reason Age From Message\n ---- ------ ---- ---- -------\n Warning Faded … (x3 over …) weather the sky is grey",
        ),
        (
            "kubectl describe deploy web",
            0,
            "Name: web\n…Selector: app=web\nReplicas: 2 desired | 0 updated | 0 total | 0 available | 0 unavailable\n\
             StrategyType: RollingUpdate\n…RollingUpdateStrategy: 25% max unavailable, 25% max surge\n…Image: nginx:1\n…",
        ),
        (
            "kubectl describe ct mine",
            0,
            "Name: mine\n…API Version: stable.example.com/v1\nKind: CronTab\n…Spec:\n…Image: runner\n…Replicas: 1\nEvents: <none>",
        ),
        ("kubectl describe ns other", 0, "Name: other\n…Status: Active\n…"),
        ("kubectl describe crd crontabs.stable.example.com", 0, "…Type: Established\n…"),
        ("kubectl describe cm gone", 1, "Error from server (NotFound): configmaps \"gone\" not found"),
        (
            "kubectl events",
            0,
            "LAST SEEN TYPE REASON OBJECT MESSAGE\n… (x3 over …) Warning Faded ConfigMap/colours the sky is grey",
        ),
        ("kubectl events --for cm/colours --no-headers | wc -l", 0, "1"),
        ("kubectl events --types=Normal", 0, "No events found in default namespace."),
        ("kubectl get events", 0, "LAST SEEN TYPE REASON OBJECT MESSAGE\n… Warning Faded configmap/colours the sky is grey"),
        ("kubectl get events --field-selector involvedObject.name=other", 0, "No resources found in default namespace."),
    ]);
}
