//! `apply` with its options, `replace`, `diff` and `--prune`.

use std::collections::BTreeSet;

use serde_json::json;

use super::{CONFIG_MAP, DEPLOYMENT, Shell};

fn shell() -> Option<Shell> {
    let shell = Shell::open()?;
    shell.write("cm.yaml", CONFIG_MAP);
    shell.write("red.yaml", &CONFIG_MAP.replace("blue", "red"));
    shell.write("deployment.yaml", DEPLOYMENT);
    Some(shell)
}

#[test]
fn client_side_apply_merges_three_ways() {
    let Some(shell) = shell() else { return };
    shell.write("sky.yaml", &CONFIG_MAP.replace(", grass: green", ""));
    shell.table(&[
        ("kubectl apply -f cm.yaml", 0, "configmap/colours created"),
        ("kubectl apply -f cm.yaml", 0, "configmap/colours unchanged"),
        (
            "kubectl patch cm colours --type merge -p '{\"data\":{\"sea\":\"deep\"}}'",
            0,
            "configmap/colours patched",
        ),
        ("kubectl apply -f red.yaml", 0, "configmap/colours configured"),
        ("kubectl apply -f sky.yaml", 0, "configmap/colours configured"),
        ("kubectl apply view-last-applied cm/colours -o json | grep grass", 1, ""),
        (
            "kubectl apply -f deployment.yaml -f cm.yaml",
            0,
            "deployment.apps/web created\nconfigmap/colours configured",
        ),
        ("kubectl scale deploy web --replicas 5", 0, "deployment.apps/web scaled"),
        ("kubectl apply -f deployment.yaml", 0, "deployment.apps/web configured"),
        ("kubectl get deploy web -o jsonpath='{.spec.replicas}'", 0, "2"),
        (
            "cat cm.yaml | kubectl apply -n other -f -",
            1,
            "Error from server (NotFound): …namespaces \"other\" not found",
        ),
    ]);
    let data = &shell.json("kubectl get cm colours -o json")["data"];
    assert_eq!(
        data,
        &json!({"sky": "blue", "grass": "green", "sea": "deep"}),
        "what others wrote stays"
    );
    shell.output("kubectl apply -f sky.yaml");
    let data = &shell.json("kubectl get cm colours -o json")["data"];
    assert_eq!(data, &json!({"sky": "blue", "sea": "deep"}), "what is no longer applied goes");
}

#[test]
fn server_side_apply_names_its_conflicts() {
    let Some(shell) = shell() else { return };
    shell.table(&[
        ("kubectl apply --server-side -f cm.yaml", 0, "configmap/colours serverside-applied"),
        ("kubectl apply --server-side -f cm.yaml --field-manager=twin", 0, "configmap/colours serverside-applied"),
        (
            "kubectl apply --server-side -f red.yaml --field-manager=other",
            1,
            "error: Apply failed with 2 conflicts: conflicts with \"kubectl\":\n- .data.sky\nconflicts with \"twin\":\n- .data.sky\n\
             Please review the fields above--they currently have other managers. …",
        ),
        (
            "kubectl apply --server-side -f red.yaml --field-manager=other --force-conflicts",
            0,
            "configmap/colours serverside-applied",
        ),
        ("kubectl get cm colours -o jsonpath='{.data.sky}'", 0, "red"),
    ]);
    let object = shell.json("kubectl get cm colours -o json --show-managed-fields");
    let managers = object["metadata"]["managedFields"].as_array().unwrap();
    let holder: Vec<_> = managers
        .iter()
        .filter(|entry| entry["fieldsV1"]["f:data"].get("f:sky").is_some())
        .map(|entry| &entry["manager"])
        .collect();
    assert_eq!(holder, ["other"]);
}

#[test]
fn client_side_apply_goes_over_to_server_side() {
    let Some(shell) = shell() else { return };
    shell.write("sky.yaml", &CONFIG_MAP.replace(", grass: green", ""));
    shell.table(&[
        ("kubectl apply -f cm.yaml", 0, "configmap/colours created"),
        ("kubectl apply --server-side -f cm.yaml", 0, "configmap/colours serverside-applied"),
        ("kubectl apply --server-side -f sky.yaml", 0, "configmap/colours serverside-applied"),
    ]);
    let object = shell.json("kubectl get cm colours -o json --show-managed-fields");
    assert_eq!(
        object["data"],
        json!({"sky": "blue"}),
        "what was applied from the client is given up"
    );
    let managers = object["metadata"]["managedFields"].as_array().unwrap();
    let managers: BTreeSet<_> = managers.iter().map(|entry| entry["manager"].as_str()).collect();
    assert_eq!(managers, BTreeSet::from([Some("kubectl"), Some("kubectl-last-applied")]));
}

#[test]
fn replace_takes_the_place_of_the_whole() {
    let Some(shell) = shell() else { return };
    shell.write("other.yaml", &CONFIG_MAP.replace("name: colours", "name: other"));
    shell.table(&[
        ("kubectl replace -f cm.yaml", 1, "Error from server (NotFound): error when replacing \"cm.yaml\": configmaps \"colours\" not found"),
        ("kubectl create --save-config -f cm.yaml", 0, "configmap/colours created"),
        ("kubectl apply -f cm.yaml", 0, "configmap/colours unchanged"),
        (
            "kubectl create -f cm.yaml",
            1,
            "Error from server (AlreadyExists): error when creating \"cm.yaml\": configmaps \"colours\" already exists",
        ),
        ("kubectl annotate cm colours note=mine", 0, "configmap/colours annotated"),
        ("kubectl get cm colours -o yaml > old.yaml; kubectl replace -f red.yaml", 0, "configmap/colours replaced"),
        ("kubectl get cm colours -o jsonpath='{.data.sky} {.metadata.annotations}'", 0, "red"),
        (
            "kubectl replace -f old.yaml",
            1,
            "Error from server (Conflict): error when replacing \"old.yaml\": Operation cannot be fulfilled on configmaps \
             \"colours\": the object has been modified; please apply your changes to the latest version and try again",
        ),
        (
            "kubectl apply -f old.yaml",
            1,
            "Warning: resource configmaps/colours is missing …\nError from server (Conflict): error when applying patch:\n…Operation \
             cannot be fulfilled on configmaps \"colours\": the object has been modified; please apply your changes to the latest \
             version and try again",
        ),
    ]);
    let before = shell.output("kubectl get cm colours -o jsonpath='{.metadata.uid}'");
    shell.expect(
        "kubectl replace --force -f cm.yaml",
        0,
        "configmap \"colours\" deleted…\nconfigmap/colours replaced",
    );
    assert_ne!(shell.output("kubectl get cm colours -o jsonpath='{.metadata.uid}'"), before);
}

#[test]
fn diff_tells_by_its_code_whether_something_would_change() {
    let Some(shell) = shell() else { return };
    shell.table(&[
        ("kubectl diff -f cm.yaml", 1, "diff …+kind: ConfigMap\n…"),
        ("kubectl get cm", 0, "No resources found in default namespace."),
        (
            "kubectl apply -f cm.yaml -f deployment.yaml",
            0,
            "configmap/colours created\ndeployment.apps/web created",
        ),
        ("kubectl diff -f cm.yaml -f deployment.yaml", 0, ""),
        ("kubectl diff -f red.yaml", 1, "diff …\n- sky: blue\n+ sky: red\n…"),
        ("kubectl diff --server-side -f cm.yaml --field-manager=kubectl-client-side-apply", 0, ""),
        (
            "sed 's/replicas: 2/replicas: many/' deployment.yaml | kubectl diff -f -",
            2,
            "The request is invalid: patch: Invalid value: \"map[…spec:map[replicas:many]]\": unrecognized type: int32",
        ),
    ]);
}

#[test]
fn a_dry_run_changes_nothing() {
    let Some(shell) = shell() else { return };
    shell.output("kubectl apply -f cm.yaml");
    let before = shell.api.revision();
    shell.table(&[
        ("kubectl apply -f red.yaml --dry-run=server", 0, "configmap/colours configured (server dry run)"),
        ("kubectl apply --server-side -f deployment.yaml --dry-run=server", 0, "deployment.apps/web serverside-applied (server dry run)"),
        ("kubectl create -f deployment.yaml --dry-run=server -o jsonpath='{.spec.strategy.type}'", 0, "RollingUpdate"),
        ("kubectl patch cm colours -p '{\"data\":null}' --dry-run=server", 0, "configmap/colours patched"),
        ("kubectl replace -f red.yaml --dry-run=server", 0, "configmap/colours replaced (server dry run)"),
        ("kubectl label cm colours a=b --dry-run=server", 0, "configmap/colours labeled (server dry run)"),
        ("kubectl delete cm colours --dry-run=server", 0, "configmap \"colours\" deleted …(server dry run)"),
        ("kubectl delete cm --all --dry-run=server", 0, "configmap \"colours\" deleted …(server dry run)"),
    ]);
    assert_eq!(shell.api.revision(), before);
}

#[test]
fn prune_deletes_objects_that_are_no_longer_applied() {
    let Some(shell) = shell() else { return };
    for name in ["one", "two", "three"] {
        let text = CONFIG_MAP.replace("colours", name).replace("app: paint", "set: all");
        shell.write(&format!("all/{name}.yaml"), &text);
    }
    let prune = "kubectl apply -f all --prune -l set=all --prune-allowlist=core/v1/ConfigMap";
    let apply_set = "KUBECTL_APPLYSET=true kubectl apply -n sets -f all --prune --applyset=paint";
    shell.table(&[
        ("kubectl apply -f cm.yaml", 0, "configmap/colours created"),
        (prune, 0, "configmap/one created\nconfigmap/three created\nconfigmap/two created"),
        ("kubectl create ns sets", 0, "namespace/sets created"),
        (apply_set, 0, "configmap/one created\nconfigmap/three created\nconfigmap/two created"),
        (
            &format!("rm all/two.yaml; {prune}"),
            0,
            "configmap/one unchanged\nconfigmap/three unchanged\nconfigmap/two pruned",
        ),
        ("kubectl get cm -o name", 0, "configmap/colours\nconfigmap/one\nconfigmap/three"),
        (apply_set, 0, "configmap/one unchanged\nconfigmap/three unchanged\nconfigmap/two pruned"),
        (
            "rm all/three.yaml; kubectl apply -f all --prune -l set=all",
            0,
            "configmap/one unchanged\n…configmap/three pruned…",
        ),
        ("kubectl get cm -n sets -o name", 0, "configmap/one\nconfigmap/three"),
    ]);
}

#[test]
fn a_kustomization_is_applied() {
    let Some(shell) = shell() else { return };
    shell.write(
        "kustomization.yaml",
        "resources: [cm.yaml]\nnameSuffix: -two\nlabels: [{pairs: {team: blue}}]\n",
    );
    shell.expect("kubectl apply -k .", 0, "configmap/colours-two created");
    shell.expect(
        "kubectl get -k . --show-labels",
        0,
        "NAME DATA AGE LABELS\ncolours-two 2 …s app=paint,team=blue",
    );
}
