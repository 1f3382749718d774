//! Workloads: `scale`, `rollout`, `expose`, `run`.

use serde_json::{Value, json};

use super::{DEPLOYMENT, Shell};

fn shell() -> Option<Shell> {
    let shell = Shell::open()?;
    shell.write("deployment.yaml", &DEPLOYMENT.replace("nginx:1", "nginx:2"));
    shell.output("kubectl apply -f deployment.yaml");
    Some(shell)
}

/// Returns the `ReplicaSet` that a cluster's controllers create for a Deployment.
fn replica_set(revision: u32, uid: &str) -> Value {
    let number = revision.to_string();
    let labels = json!({"app": "web", "pod-template-hash": number});
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": format!("web-{revision}"), "namespace": "default", "labels": labels,
            "annotations": {"deployment.kubernetes.io/revision": number, "kubernetes.io/change-cause": format!("cause {revision}")},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": uid, "controller": true}],
        },
        "spec": {
            "replicas": 0, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "web", "image": format!("nginx:{revision}"), "ports": [{"containerPort": 80}]}]},
            },
        },
    })
}

#[test]
fn a_rollout_is_restarted_paused_and_undone() {
    let Some(shell) = shell() else { return };
    let uid = shell.output("kubectl get deploy web -o jsonpath='{.metadata.uid}'");
    shell.table(&[
        ("kubectl rollout history deploy web", 0, "deployment.apps/web\nNo rollout history found."),
        ("kubectl rollout undo deploy web", 1, "error: no rollout history found for deployment \"web\""),
        ("kubectl rollout restart deploy web", 0, "deployment.apps/web restarted"),
        ("kubectl get deploy web -o jsonpath='{.spec.template.metadata.annotations}'", 0, "{\"kubectl.kubernetes.io/restartedAt\":\"2…\"}"),
        ("kubectl rollout pause deploy web", 0, "deployment.apps/web paused"),
        ("kubectl rollout restart deploy web", 1, "error: deployments.apps \"web\" can't restart paused deployment (run rollout resume first)"),
        ("kubectl rollout resume deploy web", 0, "deployment.apps/web resumed"),
    ]);
    for revision in [1, 2] {
        shell.load(&replica_set(revision, &uid));
    }
    shell.table(&[
        (
            "kubectl rollout history deploy web",
            0,
            "deployment.apps/web\nREVISION CHANGE-CAUSE\n1 cause 1\n2 cause 2",
        ),
        (
            "kubectl rollout history deploy web --revision=1",
            0,
            "deployment.apps/web with revision #1\n…Image: nginx:1\n…",
        ),
        (
            "kubectl rollout undo deploy web --to-revision=7",
            1,
            "error: unable to find specified revision 7 in history",
        ),
        ("kubectl rollout undo deploy web", 0, "deployment.apps/web rolled back"),
        ("kubectl get deploy web -o jsonpath='{..image}'", 0, "nginx:1"),
    ]);
}

#[test]
fn a_rollout_is_followed_to_its_end() {
    let Some(shell) = shell() else { return };
    let status = shell.start("kubectl rollout status deploy web");
    status.expect("Waiting for deployment spec update to be observed...");
    for (ready, line) in [
        (
            1,
            "Waiting for deployment \"web\" rollout to finish: 1 of 2 updated replicas are available...",
        ),
        (2, "deployment \"web\" successfully rolled out"),
    ] {
        let counts = json!({"status": {
            "observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": ready, "availableReplicas": ready,
        }});
        shell.output(&format!(
            "kubectl patch deploy web --subresource status --type merge -p '{counts}'"
        ));
        status.expect(line);
    }
    status.ends(0);
    shell.expect("kubectl get deploy web --no-headers", 0, "web 2/2 2 2 …s");
}

#[test]
fn everything_with_a_scale_is_scaled() {
    let Some(shell) = shell() else { return };
    shell.write("crontabs.yaml", super::CRON_TABS);
    shell.write("crontab.yaml", super::CRON_TAB);
    shell.output("kubectl apply -f crontabs.yaml");
    shell.output("kubectl apply -f crontab.yaml");
    shell.table(&[
        ("kubectl scale deploy web --replicas 3", 0, "deployment.apps/web scaled"),
        (
            "kubectl scale deploy web --replicas 4 --current-replicas 2",
            1,
            "error: Expected replicas to be 2, was 3",
        ),
        ("kubectl scale ct mine --replicas 2", 0, "crontab.stable.example.com/mine scaled"),
        ("kubectl scale ct mine --replicas 20", 1, "…spec.replicas…"),
        ("kubectl get deploy web --subresource scale", 0, "NAME DESIRED AVAILABLE AGE\nweb 3 0 …s"),
        ("kubectl get ct/mine -o jsonpath='{.spec.replicas}'", 0, "2"),
        (
            "kubectl scale ns default --replicas 2",
            1,
            "Error from server (NotFound): the server could not find the requested resource…",
        ),
        ("kubectl autoscale deploy web --min 1 --max 3 --cpu-percent 50", 0, "horizontalpodautoscaler.autoscaling/web autoscaled"),
        ("kubectl get hpa", 0, "NAME REFERENCE TARGETS MINPODS MAXPODS REPLICAS AGE\nweb Deployment/web cpu: <unknown>/50% 1 3 0 …s"),
        ("kubectl describe hpa web", 0, "Name: web\n…Reference: Deployment/web\n…Min replicas: 1\nMax replicas: 3\n…"),
    ]);
}

#[test]
fn pods_and_services_are_made_from_the_command_line() {
    let Some(shell) = shell() else { return };
    shell.table(&[
        ("kubectl expose deploy web --port 80 --target-port 8080", 0, "service/web exposed"),
        ("kubectl get svc web", 0, "NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE\nweb ClusterIP 10.… <none> 80/TCP …s"),
        ("kubectl get svc web -o jsonpath='{.spec.selector} {.spec.ports[0].targetPort}'", 0, "{\"app\":\"web\"} 8080"),
        ("kubectl run one --image=busybox --labels=app=one -- sleep 9", 0, "pod/one created"),
        ("kubectl get po one -o wide", 0, "NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES\none 0/1 Pending 0 …s <none> <none> <none> <none>"),
        ("kubectl get po one -o jsonpath='{.spec.containers[0].args}'", 0, "[\"sleep\",\"9\"]"),
        ("kubectl expose pod one --port 81 --name one", 0, "service/one exposed"),
        ("kubectl describe pod one", 0, "Name: one\n…Status: Pending\n…QoS Class: BestEffort\n…"),
    ]);
}

#[test]
fn commands_that_need_a_node_are_refused_with_a_reason() {
    let Some(shell) = shell() else { return };
    let why = "the embedded API keeps pods as objects and runs no containers";
    let status =
        "kubectl patch pod one --subresource status -p '{\"status\":{\"phase\":\"Running\"}}'";
    shell.table(&[
        ("kubectl run one --image=busybox", 0, "pod/one created"),
        (status, 0, "pod/one patched"),
        ("kubectl logs one", 1, &format!("Error from server (NotImplemented): pods \"one\": there are no logs: {why}")),
        ("kubectl exec one -- ls", 1, &format!("Error from server (NotImplemented): pods \"one\": cannot run a command in a container: {why}")),
        ("kubectl attach one", 1, &format!("…cannot attach to a container: {why}")),
        ("kubectl port-forward pod/one 80", 1, &format!("…cannot forward ports to a pod: {why}")),
        ("kubectl debug one --image=busybox --profile=general", 1, &format!("…cannot add a container for debugging: {why}")),
        ("kubectl cp kubeconfig one:/tmp", 1, &format!("…cannot run a command in a container: {why}")),
        ("kubectl logs gone", 1, "error: error from server (NotFound): pods \"gone\" not found in namespace \"default\""),
    ]);
}
