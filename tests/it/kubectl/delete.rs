//! `delete`: dependents, propagation and finalizers.

use serde_json::json;

use super::{CONFIG_MAP, DEPLOYMENT, Shell};

const REPLICA_SETS: &str = "kubectl get rs -o name";

/// A shell with a Deployment that has a `ReplicaSet`, whose `ConfigMap` is its own.
fn shell() -> Option<Shell> {
    let shell = Shell::open()?;
    shell.write("deployment.yaml", DEPLOYMENT);
    shell.write("cm.yaml", CONFIG_MAP);
    own(&shell);
    Some(shell)
}

/// Creates the Deployment and its `ReplicaSet`.
fn own(shell: &Shell) {
    shell.output("kubectl apply -f deployment.yaml");
    let uid = shell.output("kubectl get deploy web -o jsonpath='{.metadata.uid}'");
    shell.load(&json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": "web-1", "namespace": "default", "finalizers": ["example.com/held"], "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": uid, "controller": true, "blockOwnerDeletion": true},
        ]},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "nginx:1"}]}},
        },
    }));
}

/// Removes the finalizer of the `ReplicaSet`.
const RELEASE: &str = "kubectl patch rs web-1 --type json -p '[{\"op\":\"remove\",\"path\":\"/metadata/finalizers\"}]'";

#[test]
fn in_the_background_dependents_go_after_their_owner() {
    let Some(shell) = shell() else { return };
    shell.table(&[
        ("kubectl delete deploy web", 0, "deployment.apps \"web\" deleted…"),
        ("kubectl get deploy", 0, "No resources found in default namespace."),
        ("kubectl get rs web-1 -o jsonpath='{.metadata.deletionTimestamp}'", 0, "2…Z"),
        (RELEASE, 0, "replicaset.apps/web-1 patched"),
        (REPLICA_SETS, 0, ""),
    ]);
}

#[test]
fn in_the_foreground_the_owner_waits_for_its_dependents() {
    let Some(shell) = shell() else { return };
    let deletion = shell.start("kubectl delete deploy web --cascade=foreground");
    deletion.expect("deployment.apps \"web\" deleted…");
    shell.expect(
        "kubectl get deploy web -o jsonpath='{.metadata.finalizers}'",
        0,
        "[\"foregroundDeletion\"]",
    );
    super::shell::until("kubectl waits", || shell.api.faults().live_watches() == 1);
    shell.expect(RELEASE, 0, "replicaset.apps/web-1 patched");
    deletion.ends(0);
    shell.expect("kubectl get deploy,rs", 0, "No resources found in default namespace.");
}

#[test]
fn orphans_stay() {
    let Some(shell) = shell() else { return };
    shell.table(&[
        ("kubectl delete deploy web --cascade=orphan", 0, "deployment.apps \"web\" deleted…"),
        (REPLICA_SETS, 0, "replicaset.apps/web-1"),
        ("kubectl get rs web-1 -o jsonpath='{.metadata.ownerReferences}'", 0, ""),
    ]);
}

#[test]
fn a_finalizer_holds_its_object() {
    let Some(shell) = shell() else { return };
    shell.write(
        "held.yaml",
        &CONFIG_MAP.replace("name: colours", "name: held, finalizers: [example.com/held]"),
    );
    shell.table(&[
        ("kubectl create -f held.yaml", 0, "configmap/held created"),
        ("kubectl delete cm held --timeout=1s", 1, "configmap \"held\" deleted…error: timed out waiting for the condition on configmaps/held"),
        ("kubectl delete cm held --wait=false", 0, "configmap \"held\" deleted…"),
        ("kubectl get cm held -o jsonpath='{.metadata.deletionGracePeriodSeconds}'", 0, "0"),
        (
            "kubectl patch cm held --type merge -p '{\"metadata\":{\"finalizers\":[\"example.com/held\",\"example.com/more\"]}}'",
            1,
            "The ConfigMap \"held\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers …",
        ),
        ("kubectl patch cm held --type merge -p '{\"metadata\":{\"finalizers\":null}}'", 0, "configmap/held patched"),
        ("kubectl get cm held", 1, "Error from server (NotFound): configmaps \"held\" not found"),
    ]);
}

#[test]
fn many_are_deleted_at_once() {
    let Some(shell) = shell() else { return };
    shell.table(&[
        ("kubectl create cm a; kubectl create cm b; kubectl create cm c", 0, "configmap/a created\nconfigmap/b created\nconfigmap/c created"),
        ("kubectl label cm a b team=x", 0, "configmap/a labeled\nconfigmap/b labeled"),
        ("kubectl delete cm -l team=x", 0, "configmap \"a\" deleted…\nconfigmap \"b\" deleted…"),
        ("kubectl delete cm -l team=x", 0, "No resources found"),
        ("kubectl delete cm c d", 1, "configmap \"c\" deleted…\nError from server (NotFound): configmaps \"d\" not found"),
        ("kubectl delete cm d --ignore-not-found", 0, ""),
        ("kubectl apply -f cm.yaml", 0, "configmap/colours created"),
        ("kubectl delete -f cm.yaml", 0, "configmap \"colours\" deleted…"),
        ("kubectl delete -f cm.yaml", 1, "Error from server (NotFound): error when deleting \"cm.yaml\": configmaps \"colours\" not found"),
        ("kubectl create cm e; kubectl delete cm --all", 0, "configmap/e created\nconfigmap \"e\" deleted…"),
    ]);
}

#[test]
fn a_namespace_ends_with_its_objects() {
    let Some(shell) = shell() else { return };
    shell.table(&[
        ("kubectl create ns team; kubectl create cm a -n team; kubectl create sa b -n team", 0, "namespace/team created\nconfigmap/a created\nserviceaccount/b created"),
        ("kubectl patch cm a -n team --type merge -p '{\"metadata\":{\"finalizers\":[\"example.com/held\"]}}'", 0, "configmap/a patched"),
        ("kubectl delete ns team --wait=false", 0, "namespace \"team\" deleted"),
        ("kubectl get ns team", 0, "NAME STATUS AGE\nteam Terminating …s"),
        ("kubectl get cm,sa -n team -o name", 0, "configmap/a"),
        (
            "kubectl create cm b -n team",
            1,
            "error: failed to create configmap: configmaps \"b\" is forbidden: unable to create new content in namespace team because it is being terminated",
        ),
        ("kubectl patch cm a -n team --type merge -p '{\"metadata\":{\"finalizers\":null}}'", 0, "configmap/a patched"),
        (
            "kubectl delete ns default",
            1,
            "Error from server (Forbidden): namespaces \"default\" is forbidden: this namespace may not be deleted",
        ),
        ("kubectl get ns team", 1, "Error from server (NotFound): namespaces \"team\" not found"),
    ]);
}

#[test]
fn a_pod_is_deleted_by_force() {
    let Some(shell) = shell() else { return };
    shell.table(&[
        ("kubectl run one --image=busybox", 0, "pod/one created"),
        (
            "kubectl delete pod one --grace-period=0 --force",
            0,
            "Warning: Immediate deletion does not wait …\npod \"one\" force deleted…",
        ),
        ("kubectl get pod one", 1, "Error from server (NotFound): pods \"one\" not found"),
    ]);
}
