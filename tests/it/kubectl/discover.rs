//! Discovery: kinds, schemas, versions, rights.

use super::{CRON_TABS, Shell};

fn shell() -> Option<Shell> {
    let shell = Shell::open()?;
    shell.write("crontabs.yaml", CRON_TABS);
    shell.output("kubectl apply -f crontabs.yaml");
    // `explain` uses kubectl's cache of kinds; this refreshes it.
    shell.output("kubectl api-resources");
    Some(shell)
}

#[test]
fn schemas_are_explained() {
    let Some(shell) = shell() else { return };
    shell.table(&[
        (
            "kubectl explain ct",
            0,
            "GROUP: stable.example.com\nKIND: CronTab\nVERSION: v1\n\nDESCRIPTION:\nA CronTab runs something at times.\n\nFIELDS:\n…\
             spec <Object>\nWhat is to be run, and when.\n…",
        ),
        (
            "kubectl explain crontabs.spec",
            0,
            "…FIELD: spec <Object>\n…cronSpec <string> -required-\nFive fields with spaces between them.\n…mode <string>\nenum: once, always\n…",
        ),
        ("kubectl explain ct.spec.cronSpec", 0, "…FIELD: cronSpec <string>\n\nDESCRIPTION:\nFive fields with spaces between them."),
        ("kubectl explain ct --recursive", 0, "…metadata <ObjectMeta>\n…finalizers <[]string>\n…spec <Object>\ncronSpec <string> -required-\n…"),
        ("kubectl explain ct.spec.nope", 1, "…error: field \"nope\" does not exist"),
        ("kubectl explain deploy.spec.strategy", 0, "GROUP: apps\nKIND: Deployment\nVERSION: v1\n\nFIELD: strategy <DeploymentStrategy>\n…rollingUpdate <RollingUpdateDeployment>\n…type <string>\n…"),
        ("kubectl explain deploy --recursive", 0, "…template <PodTemplateSpec> -required-\n…containers <[]Container> -required-\n…imagePullPolicy <string>\n…"),
        ("kubectl explain hpa --api-version=autoscaling/v2", 0, "GROUP: autoscaling\nKIND: HorizontalPodAutoscaler\nVERSION: v2\n…"),
        ("kubectl explain nope", 1, "…the server doesn't have a resource type \"nope\""),
    ]);
}

#[test]
fn kinds_and_versions_are_listed() {
    let Some(shell) = shell() else { return };
    shell.table(&[
        ("kubectl api-resources --api-group=stable.example.com", 0, "NAME SHORTNAMES APIVERSION NAMESPACED KIND\ncrontabs ct stable.example.com/v1 true CronTab"),
        ("kubectl api-resources --namespaced=false -o name | grep -v '\\.'", 0, "namespaces\nnodes…"),
        (
            "kubectl api-resources --api-group=apps --no-headers",
            0,
            "controllerrevisions apps/v1 true ControllerRevision\ndaemonsets ds apps/v1 true DaemonSet\ndeployments deploy apps/v1 true Deployment\n\
             replicasets rs apps/v1 true ReplicaSet\nstatefulsets sts apps/v1 true StatefulSet",
        ),
        ("kubectl api-resources --categories=all -o name", 0, "…crontabs.stable.example.com…"),
        ("kubectl api-resources --api-group=stable.example.com -o wide --no-headers", 0, "crontabs ct stable.example.com/v1 true CronTab delete,deletecollection,get,list,patch,create,update,watch all"),
        ("kubectl api-versions", 0, "…apps/v1\n…rbac.authorization.k8s.io/v1\n…stable.example.com/v1\n…v1"),
        ("kubectl version", 0, "Client Version: v…\nServer Version: v1.34.…"),
        ("kubectl cluster-info", 0, "…Kubernetes control plane… is running at …http://127.0.0.1:…"),
        ("kubectl get --raw /readyz", 0, "ok"),
        ("kubectl get --raw /nope", 1, "Error from server (NotFound): the server could not find the requested resource"),
        ("kubectl auth whoami", 0, "ATTRIBUTE VALUE\nUsername …\nGroups [system:masters system:authenticated]"),
        ("kubectl top pod", 1, "error: Metrics API not available"),
    ]);
}

#[test]
fn only_impersonated_users_are_subject_to_rbac() {
    let Some(shell) = shell() else { return };
    shell.table(&[
        ("kubectl auth can-i '*' '*'", 0, "yes"),
        ("kubectl auth can-i delete crontabs -A", 0, "yes"),
        ("kubectl auth can-i --list", 0, "Resources Non-Resource URLs Resource Names Verbs\n*.* [] [] [*]\n[*] [] [*]"),
        ("kubectl auth can-i get pods --as jane", 1, "no…"),
        ("kubectl get pods --as jane", 1, "Error from server (Forbidden): pods is forbidden: User \"jane\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\""),
        ("kubectl create role r --verb=list --resource=pods; kubectl create rolebinding rb --role=r --user=jane", 0, "…"),
        ("kubectl auth can-i list pods --as jane", 0, "yes"),
        ("kubectl get pods --as jane", 0, "No resources found in default namespace."),
    ]);
}
