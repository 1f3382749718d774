//! `create` with each of its generators, and the output of `get` and `describe` for the created
//! objects.

use super::Shell;

/// Arguments of `kubectl create`, the created object, its line of `get`, and a part of its
/// description.
const ROWS: [(&str, &str, &str, &str); 21] = [
    ("ns team", "namespace/team", "team Active …s", "Status: Active"),
    ("cm c --from-literal=a=b", "configmap/c", "c 1 …s", "a:\n----\nb"),
    ("secret generic s --from-literal=p=word", "secret/s", "s Opaque 1 …s", "p: 4 bytes"),
    (
        "secret docker-registry r --docker-server=a --docker-username=b --docker-password=c",
        "secret/r",
        "r kubernetes.io/dockerconfigjson 1 …s",
        "Type: kubernetes.io/dockerconfigjson",
    ),
    ("sa robot", "serviceaccount/robot", "robot 0 …s", "Name: robot"),
    (
        "deploy d --image=nginx --replicas=3",
        "deployment.apps/d",
        "d 0/3 0 0 …s",
        "Replicas: 3 desired",
    ),
    (
        "role r --verb=get,list --resource=pods",
        "role.rbac.authorization.k8s.io/r",
        "r 2…Z",
        "pods [] [] [get list]",
    ),
    (
        "rolebinding rb --role=r --serviceaccount=default:robot",
        "rolebinding.rbac.authorization.k8s.io/rb",
        "rb Role/r …s",
        "ServiceAccount robot default",
    ),
    (
        "clusterrole cr --verb=get --resource=nodes",
        "clusterrole.rbac.authorization.k8s.io/cr",
        "cr 2…Z",
        "nodes [] [] [get]",
    ),
    (
        "clusterrolebinding crb --clusterrole=cr --user=me",
        "clusterrolebinding.rbac.authorization.k8s.io/crb",
        "crb ClusterRole/cr …s",
        "User me",
    ),
    ("quota q --hard=pods=3", "resourcequota/q", "q …s", "Resource Used Hard"),
    ("job j --image=busybox -- date", "job.batch/j", "j Running 0/1 …s", "Completions: 1"),
    (
        "cronjob cj --image=busybox --schedule='0 * * * *' -- date",
        "cronjob.batch/cj",
        "cj 0 * * * * <none> … 0 <none> …s",
        "Concurrency Policy: Allow",
    ),
    ("job j2 --from=cronjob/cj", "job.batch/j2", "j2 Running 0/1 …s", "Controlled By: CronJob/cj"),
    (
        "ingress i --rule=a.com/=web:80",
        "ingress.networking.k8s.io/i",
        "i <none> a.com 80 …s",
        "/ web:80",
    ),
    (
        "pdb p --selector=app=web --min-available=1",
        "poddisruptionbudget.policy/p",
        "p 1 N/A 0 …s",
        "Min available: 1",
    ),
    (
        "priorityclass pc --value=5",
        "priorityclass.scheduling.k8s.io/pc",
        "pc 5 false …s PreemptLowerPriority",
        "Value: 5",
    ),
    (
        "svc clusterip cip --tcp=80:8080",
        "service/cip",
        "cip ClusterIP 10.… <none> 80/TCP …s",
        "TargetPort: 8080/TCP",
    ),
    (
        "svc nodeport np --tcp=80",
        "service/np",
        "np NodePort 10.… <none> 80:3…/TCP …s",
        "NodePort: 80 3…/TCP",
    ),
    (
        "svc loadbalancer lb --tcp=80",
        "service/lb",
        "lb LoadBalancer 10.… <pending> 80:3…/TCP …s",
        "Type: LoadBalancer",
    ),
    (
        "svc externalname en --external-name=a.com",
        "service/en",
        "en ExternalName <none> a.com <none> …s",
        "External Name: a.com",
    ),
];

#[test]
fn each_generator_makes_its_kind() {
    let Some(shell) = Shell::open() else { return };
    for (arguments, created, line, described) in ROWS {
        shell.expect(&format!("kubectl create {arguments}"), 0, &format!("{created} created"));
        shell.expect(&format!("kubectl get {created} --no-headers"), 0, line);
        shell.expect(&format!("kubectl describe {created}"), 0, &format!("…{described}…"));
    }
}

#[test]
fn tokens_are_made_for_accounts() {
    let Some(shell) = Shell::open() else { return };
    shell.table(&[
        ("kubectl create sa robot", 0, "serviceaccount/robot created"),
        ("kubectl create token robot | cut -d. -f2 | wc -w", 0, "1"),
        ("kubectl create token robot --duration=10s", 1, "…spec.expirationSeconds: Invalid value: 10: may not specify a duration less than 10 minutes"),
        ("kubectl create token nobody", 1, "error: failed to create token: serviceaccounts \"nobody\" not found"),
    ]);
}

#[test]
fn failed_creations_name_the_object_or_the_field() {
    let Some(shell) = Shell::open() else { return };
    shell.table(&[
        ("kubectl create cm c", 0, "configmap/c created"),
        ("kubectl create cm c", 1, "error: failed to create configmap: configmaps \"c\" already exists"),
        ("kubectl create cm c -n nowhere", 1, "error: failed to create configmap: namespaces \"nowhere\" not found"),
        ("kubectl create ns default", 1, "Error from server (AlreadyExists): namespaces \"default\" already exists"),
        (
            "kubectl create cm Not_A_Name",
            1,
            "error: failed to create configmap: ConfigMap \"Not_A_Name\" is invalid: metadata.name: Invalid value: \"Not_A_Name\": a \
             lowercase RFC 1123 subdomain must consist of …",
        ),
        (
            "kubectl create ns not_a_name",
            1,
            "The Namespace \"not_a_name\" is invalid: metadata.name: Invalid value: \"not_a_name\": a lowercase RFC 1123 label must \
             consist of …",
        ),
        (
            "kubectl create cronjob cj --image=busybox --schedule=never",
            1,
            "…spec.schedule: Invalid value: \"never\": …",
        ),
        (
            "kubectl create rolebinding rb --role=r --user=me; kubectl patch rolebinding rb -p '{\"roleRef\":{\"name\":\"other\"}}'",
            1,
            "rolebinding.rbac.authorization.k8s.io/rb created\nThe RoleBinding \"rb\" is invalid: roleRef: Invalid value: …: cannot change roleRef",
        ),
    ]);
}
