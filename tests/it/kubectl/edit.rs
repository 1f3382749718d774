//! `edit`, `patch`, `label`, `annotate` and `set`.

use serde_json::json;

use super::{CONFIG_MAP, CRON_TAB, CRON_TABS, DEPLOYMENT, Shell};

fn shell() -> Option<Shell> {
    let shell = Shell::open()?;
    shell.write("all.yaml", &[CRON_TABS, DEPLOYMENT, CONFIG_MAP].join("\n---\n"));
    shell.write("crontab.yaml", CRON_TAB);
    shell.output("kubectl apply -f all.yaml");
    shell.output("kubectl apply -f crontab.yaml");
    Some(shell)
}

#[test]
fn an_edit_is_written_as_it_was_made() {
    let Some(shell) = shell() else { return };
    shell.write("four", "sed -i 's/replicas: 1/replicas: 4/' \"$1\"\n");
    shell.table(&[
        ("EDITOR='sed -i s/blue/grey/' kubectl edit cm colours", 0, "configmap/colours edited"),
        ("kubectl get cm colours -o jsonpath='{.data.sky}'", 0, "grey"),
        ("EDITOR=true kubectl edit cm colours", 0, "Edit cancelled, no changes made."),
        ("EDITOR='sed -i s/name:.colours/name:.other/' kubectl edit cm colours", 1, "error: …"),
        ("EDITOR='sh four' kubectl edit ct mine", 0, "crontab.stable.example.com/mine edited"),
        ("kubectl get ct mine -o jsonpath='{.spec.replicas} {.metadata.generation}'", 0, "4 2"),
        (
            "EDITOR=true kubectl edit cm gone",
            1,
            "Error from server (NotFound): configmaps \"gone\" not found",
        ),
    ]);
}

#[test]
fn an_edit_that_is_refused_opens_again_and_says_why() {
    let Some(shell) = shell() else { return };
    // The editor's first result breaks a rule. The second time it finds the reasons in the file,
    // and repairs it.
    shell.write(
        "editor",
        "cp \"$1\" seen\nif grep -q 'not valid' \"$1\"; then to=5; else to=30; fi\nsed -i \"s/replicas: .*/replicas: $to/\" \"$1\"\n",
    );
    shell.expect(
        "EDITOR='sh editor' kubectl edit ct mine",
        0,
        "error: crontabs.stable.example.com \"mine\" is invalid\ncrontab.stable.example.com/mine edited",
    );
    let seen = shell.read("seen");
    let reasons = "# crontabs.stable.example.com \"mine\" was not valid:\n\
        # * spec.replicas: Invalid value: 30: spec.replicas in body should be less than or equal to 10\n";
    assert!(seen.contains(reasons), "{seen}");
    shell.expect("kubectl get ct mine -o jsonpath='{.spec.replicas}'", 0, "5");
}

#[test]
fn three_types_of_patch_are_taken() {
    let Some(shell) = shell() else { return };
    let sidecar =
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"car"}]}}}}"#;
    let images = "kubectl get deploy web -o jsonpath='{.spec.template.spec.containers[*].image}'";
    shell.table(&[
        (&format!("kubectl patch deploy web -p '{sidecar}'"), 0, "deployment.apps/web patched"),
        (images, 0, "car nginx:1"),
        (&format!("kubectl patch deploy web --type merge -p '{sidecar}'"), 0, "deployment.apps/web patched"),
        (images, 0, "car"),
        (
            r#"kubectl patch deploy web --type json -p '[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"cart"}]'"#,
            0,
            "deployment.apps/web patched",
        ),
        (images, 0, "cart"),
        (&format!("kubectl patch deploy web --type merge -p '{}'", sidecar.replace("car\"", "cart\"")), 0, "deployment.apps/web patched (no change)"),
        (
            r#"kubectl patch cm colours --type json -p '[{"op":"test","path":"/data/sky","value":"red"},{"op":"remove","path":"/data/sky"}]'"#,
            1,
            "The request is invalid: the server rejected our request due to an error in our request",
        ),
        (
            "kubectl patch ct mine -p '{\"spec\":{\"replicas\":2}}'",
            1,
            "error: application/strategic-merge-patch+json is not supported by stable.example.com/v1, Kind=CronTab: the body of the \
             request was in an unknown format - accepted media types include: application/json-patch+json, \
             application/merge-patch+json, application/apply-patch+yaml…",
        ),
        ("kubectl patch ct mine --type merge -p '{\"spec\":{\"replicas\":2}}'", 0, "crontab.stable.example.com/mine patched"),
        (
            "kubectl patch ct mine --type merge --subresource status -p '{\"spec\":{\"replicas\":3},\"status\":{\"replicas\":2}}'",
            0,
            "crontab.stable.example.com/mine patched",
        ),
        ("kubectl get ct mine -o jsonpath='{.spec.replicas} {.status.replicas} {.metadata.generation}'", 0, "2 2 2"),
        ("kubectl patch cm gone -p '{}'", 1, "Error from server (NotFound): configmaps \"gone\" not found"),
    ]);
}

#[test]
fn labels_and_annotations_are_set_and_taken_away() {
    let Some(shell) = shell() else { return };
    shell.table(&[
        ("kubectl label cm colours mood=good", 0, "configmap/colours labeled"),
        ("kubectl label cm colours mood=good", 0, "configmap/colours not labeled"),
        ("kubectl label cm colours mood=bad", 1, "error: 'mood' already has a value (good), and --overwrite is false"),
        ("kubectl label cm colours mood=bad --overwrite", 0, "configmap/colours labeled"),
        ("kubectl label cm -l mood=bad mood- also=x", 0, "configmap/colours …labeled"),
        ("kubectl label cm colours --list | sort", 0, "also=x\napp=paint"),
        ("kubectl label cm colours mood-", 0, "label \"mood\" not found.\nconfigmap/colours not labeled"),
        ("kubectl annotate cm colours note='two words'", 0, "configmap/colours annotated"),
        ("kubectl get cm colours -o jsonpath='{.metadata.annotations.note}'", 0, "two words"),
        ("kubectl annotate cm colours note-", 0, "configmap/colours annotated"),
        ("kubectl label cm colours also=y --overwrite --resource-version=1", 1, "Error from server (Conflict): Operation cannot be fulfilled on configmaps \"colours\": …"),
        (
            "kubectl label cm colours 'two words=x'",
            1,
            "The ConfigMap \"colours\" is invalid: metadata.labels: Invalid value: \"two words\": name part must consist of …",
        ),
    ]);
    assert_eq!(
        shell.json("kubectl get cm colours -o json")["metadata"]["labels"],
        json!({"also": "x", "app": "paint"})
    );
}

#[test]
fn set_changes_pod_templates() {
    let Some(shell) = shell() else { return };
    shell.table(&[
        ("kubectl set image deploy/web web=nginx:2", 0, "deployment.apps/web image updated"),
        ("kubectl set image deploy/web other=nginx:2", 1, "error: unable to find container named \"other\"…"),
        ("kubectl set env deploy/web COLOUR=blue", 0, "deployment.apps/web env updated"),
        ("kubectl set env deploy/web --from=cm/colours --prefix=MY_", 0, "…deployment.apps/web env updated"),
        ("kubectl set resources deploy web --limits=cpu=1,memory=64Mi", 0, "deployment.apps/web resource requirements updated"),
        ("kubectl set serviceaccount deploy web robot", 0, "deployment.apps/web serviceaccount updated"),
        ("kubectl set env deploy/web --list | sort", 0, "# Deployment web, container web\n# MY_GRASS from configmap colours, key grass\n# MY_SKY from configmap colours, key sky\nCOLOUR=blue"),
    ]);
    let template = &shell.json("kubectl get deploy web -o json")["spec"]["template"]["spec"];
    let container = &template["containers"][0];
    assert_eq!(container["image"], "nginx:2");
    assert_eq!(container["resources"]["limits"], json!({"cpu": "1", "memory": "64Mi"}));
    assert_eq!(
        (&template["serviceAccountName"], &template["serviceAccount"]),
        (&json!("robot"), &json!("robot"))
    );
}
