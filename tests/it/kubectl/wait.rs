//! `get -w` and `wait`.

use super::{CONFIG_MAP, CRON_TAB, CRON_TABS, Shell, shell::until};

fn shell() -> Option<Shell> {
    let shell = Shell::open()?;
    shell.write("cm.yaml", CONFIG_MAP);
    shell.write("crontabs.yaml", CRON_TABS);
    shell.write("crontab.yaml", CRON_TAB);
    Some(shell)
}

fn watches(shell: &Shell, count: usize) {
    until("kubectl watches", || shell.api.faults().live_watches() == count);
}

#[test]
fn a_watch_prints_each_change() {
    let Some(shell) = shell() else { return };
    shell.output("kubectl apply -f cm.yaml");
    let events = shell.start("kubectl get cm -w --output-watch-events");
    events.expect("EVENT NAME DATA AGE");
    events.expect("ADDED colours 2 …s");
    shell.output("kubectl create cm other");
    events.expect("ADDED other 0 …s");
    shell.output("kubectl label cm other app=paint");
    events.expect("MODIFIED other 0 …s");
    let selected = shell.start("kubectl get cm -w -l app=paint -o name");
    selected.expect("configmap/colours");
    selected.expect("configmap/other");
    watches(&shell, 2);
    shell.output("kubectl label cm other app-");
    events.expect("MODIFIED other 0 …s");
    selected.expect("configmap/other");
    shell.output("kubectl delete cm other");
    events.expect("DELETED other 0 …s");
}

#[test]
fn a_watch_goes_on_from_where_the_list_ended() {
    let Some(shell) = shell() else { return };
    shell.output("kubectl apply -f cm.yaml");
    let columns = "-o custom-columns=NAME:.metadata.name,SKY:.data.sky";
    let only = shell.start(&format!("kubectl get cm colours --watch-only {columns}"));
    watches(&shell, 1);
    shell.output("kubectl patch cm colours -p '{\"data\":{\"sky\":\"grey\"}}'");
    only.expect("NAME SKY");
    only.expect("colours grey");
    shell.output("kubectl delete cm colours");
    only.expect("colours grey");
}

#[test]
fn a_custom_resource_is_watched_with_its_columns() {
    let Some(shell) = shell() else { return };
    shell.output("kubectl apply -f crontabs.yaml");
    shell.output("kubectl apply -f crontab.yaml");
    let events = shell.start("kubectl get ct -w");
    events.expect("NAME SPEC REPLICAS AGE");
    events.expect("mine */5 * * * * 1 …s");
    shell.output("kubectl scale ct mine --replicas 3");
    events.expect("mine */5 * * * * 3 …s");
}

#[test]
fn wait_ends_when_its_condition_is_met() {
    let Some(shell) = shell() else { return };
    let met = "crontab.stable.example.com/mine condition met";
    shell.table(&[
        ("kubectl apply -f crontabs.yaml", 0, "customresourcedefinition.apiextensions.k8s.io/crontabs.stable.example.com created"),
        ("kubectl wait --for condition=established crd/crontabs.stable.example.com", 0, "customresourcedefinition.apiextensions.k8s.io/crontabs.stable.example.com condition met"),
        ("kubectl apply -f crontab.yaml", 0, "crontab.stable.example.com/mine created"),
        ("kubectl wait ct/mine --for=jsonpath='{.spec.replicas}'=1", 0, met),
        ("kubectl wait ct/mine --for=condition=Ready --timeout=1s", 1, "…error: timed out waiting for the condition on crontabs/mine"),
        ("kubectl wait ct/gone --for=condition=Ready", 1, "Error from server (NotFound): crontabs.stable.example.com \"gone\" not found"),
    ]);
    let changes = [
        (
            "--for=condition=Ready",
            "kubectl patch ct mine --subresource status --type merge -p '{\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}'",
        ),
        ("--for=jsonpath='{.spec.replicas}'=4", "kubectl scale ct mine --replicas 4"),
        ("--for=jsonpath='{.metadata.labels.done}'", "kubectl label ct mine done=yes"),
        ("--for=delete", "kubectl delete ct mine"),
    ];
    for (wanted, change) in changes {
        let wait = shell.start(&format!("kubectl wait ct/mine {wanted}"));
        watches(&shell, 1);
        shell.output(change);
        wait.expect(met);
        wait.ends(0);
        watches(&shell, 0);
    }
}
