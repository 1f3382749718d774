//! Every import and every field of an outcome: with the right and the declaration, and with one of them.

use std::collections::{BTreeMap, BTreeSet};

use mortise_host::{contract::Kind, reconciler::Report};
use mortise_sdk::{
    Deletion, Description, Event, Manifest, ObjectRef, Outcome, Reconciler, Selection, Verbs,
    kubernetes::{Pod, Secret},
};
use mortise_tests::cluster::Event as Request;
use serde_json::{Value, json};

use super::{
    answers, kind,
    log::Log,
    stage::{Rights, Stage, is_own_right, returns},
};

const FINALIZER: &str = "example.com/held";
/// The name of the reconciled object, and of the one that it is about, in a script.
const NAME: &str = "$(name)";
/// What every account here may do besides: what it reconciles is read, and what it says is heard.
const RECONCILES: Rights<'static> =
    &[("configmaps services", "get list watch"), ("events", "create patch")];

/// One way to the cluster.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    /// What is reconciled.
    of: &'static str,
    declare: fn(&mut Description, &str),
    script: fn(&str) -> Value,
    /// Without these it cannot be tried.
    rights: Rights<'static>,
    /// The right in question: the account that lacks it has all others.
    lacking: (&'static str, &'static str),
    /// What is there before, which it is about.
    before: fn() -> Value,
    /// What is so when it got through.
    through: Through,
}

#[derive(Clone, Copy)]
enum Through {
    /// All reads have an answer.
    Answered,
    /// An object of the name is there.
    There(&'static str),
    /// None is.
    Gone(&'static str),
    /// A place in it holds something.
    Holds(&'static str, &'static str),
    /// It holds nothing.
    Lacks(&'static str, &'static str),
    /// An event of this reason is on the reconciled object.
    Event(&'static str),
}

/// What an account and its processor have of a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Has {
    Both,
    /// The account lacks the right.
    Declaration,
    /// The processor declares nothing of it.
    Right,
}

const SECRET: &str = "v1/Secret";
const ALL: [Has; 3] = [Has::Both, Has::Declaration, Has::Right];

/// The same as a guest has it.
fn guest_kind(text: &str) -> mortise_sdk::Kind {
    let Kind { group, version, kind } = kind(text);
    mortise_sdk::Kind::new(group, version, kind)
}

fn secrets(namespace: &str) -> Selection {
    Selection::of::<Secret>().namespace(namespace)
}

fn writes(description: &mut Description, of: Selection, verbs: Verbs) {
    *description = description.clone().writes(of, verbs);
}

fn manifest(namespace: &str, rest: &Value) -> Manifest {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": namespace, "name": NAME},
    });
    super::merge(&mut object, rest);
    Manifest::json(&object)
}

fn secret_ref(namespace: &str) -> ObjectRef {
    ObjectRef::of::<Secret>(Some(namespace), NAME)
}

fn secret() -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"labels": {"former": "yes"}}})
}

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "a", "image": "a"}]}})
}

fn reads() -> [Way; 2] {
    let get = Way {
        name: "get",
        of: "v1/ConfigMap",
        declare: |description, namespace| description.reads.push(secrets(namespace)),
        script: |namespace| json!({"reads": [{"get": {"ref": secret_ref(namespace)}}]}),
        rights: &[],
        lacking: ("secrets", "get list watch"),
        before: secret,
        through: Through::Answered,
    };
    let list = Way {
        name: "list",
        script: |namespace| json!({"reads": [{"list": {"of": secrets(namespace)}}]}),
        rights: &[("secrets", "get")],
        lacking: ("secrets", "list watch"),
        ..get
    };
    [get, list]
}

fn applies() -> [Way; 5] {
    let create = Way {
        name: "apply-creates",
        of: "v1/ConfigMap",
        declare: |description, namespace| {
            writes(description, secrets(namespace), Verbs::CREATE | Verbs::UPDATE);
        },
        script: |namespace| returns(&Outcome::new().apply(manifest(namespace, &json!({})))),
        rights: &[("secrets", "get list watch patch")],
        lacking: ("secrets", "create"),
        before: nothing,
        through: Through::There(SECRET),
    };
    let update = Way {
        name: "apply-updates",
        script: |namespace| returns(&Outcome::new().apply(manifest(namespace, &annotated()))),
        rights: &[("secrets", "get list watch create")],
        lacking: ("secrets", "patch"),
        before: secret,
        through: Through::Holds(SECRET, "/metadata/annotations/written"),
        ..create
    };
    let create_only = Way {
        name: "create-only",
        script: |namespace| {
            returns(&Outcome::new().apply(manifest(namespace, &json!({})).create_only()))
        },
        declare: |description, namespace| writes(description, secrets(namespace), Verbs::CREATE),
        rights: &[("secrets", "get list watch")],
        ..create
    };
    let patch = Way {
        name: "patch",
        script: |namespace| returns(&Outcome::new().patch(manifest(namespace, &annotated()))),
        declare: |description, namespace| writes(description, secrets(namespace), Verbs::UPDATE),
        rights: &[("secrets", "get list watch")],
        ..update
    };
    let absent = Way {
        name: "absent",
        script: |namespace| {
            let manifest = manifest(namespace, &json!({})).absent("metadata.labels.former");
            returns(&Outcome::new().patch(manifest))
        },
        through: Through::Lacks(SECRET, "/metadata/labels/former"),
        ..patch
    };
    [create, update, create_only, patch, absent]
}

fn annotated() -> Value {
    json!({"metadata": {"annotations": {"written": "yes"}}})
}

fn removals() -> [Way; 2] {
    let delete = Way {
        name: "delete",
        of: "v1/ConfigMap",
        declare: |description, namespace| writes(description, secrets(namespace), Verbs::DELETE),
        script: |namespace| returns(&Outcome::new().delete(Deletion::new(secret_ref(namespace)))),
        rights: &[("secrets", "get list watch")],
        lacking: ("secrets", "delete"),
        before: secret,
        through: Through::Gone(SECRET),
    };
    let evict = Way {
        name: "evict",
        declare: |description, namespace| {
            writes(description, Selection::of::<Pod>().namespace(namespace), Verbs::EVICT);
        },
        script: |namespace| {
            let pod = ObjectRef::of::<Pod>(Some(namespace), NAME);
            returns(&Outcome::new().evict(Deletion::new(pod)))
        },
        rights: &[("pods", "get list watch")],
        lacking: ("pods/eviction", "create"),
        before: pod,
        through: Through::Gone("v1/Pod"),
        ..delete
    };
    [delete, evict]
}

/// What is written on the reconciled object itself, and events, which may be on others.
fn own() -> [Way; 3] {
    let finalizers = Way {
        name: "finalizers",
        of: "v1/ConfigMap",
        declare: |description, _| description.reconcilers[0].finalizers.push(FINALIZER.to_owned()),
        script: |_| returns(&Outcome::new().finalizers([FINALIZER])),
        rights: &[],
        lacking: ("configmaps", "patch"),
        before: nothing,
        through: Through::Holds("v1/ConfigMap", "/metadata/finalizers"),
    };
    let status = Way {
        name: "status",
        of: "v1/Service",
        declare: |_, _| {},
        script: |namespace| {
            let status = json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": NAME},
                "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
            });
            returns(&Outcome { status: Some(status.to_string()), ..Outcome::new() })
        },
        lacking: ("services/status", "patch"),
        before: service,
        through: Through::Holds("v1/Service", "/status/loadBalancer/ingress"),
        ..finalizers
    };
    let events = Way {
        name: "events",
        declare: |description, namespace| description.reads.push(secrets(namespace)),
        script: |namespace| {
            let said = Event::normal("Said", "something").on(secret_ref(namespace));
            returns(&Outcome::new().event(said))
        },
        rights: &[("secrets", "get list watch")],
        lacking: ("events", "create patch"),
        before: secret,
        through: Through::Event("Said"),
        ..finalizers
    };
    [finalizers, status, events]
}

fn service() -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}})
}

/// What is reconciled in any case.
fn nothing() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap"})
}

// === impl Way ===

impl Way {
    fn account(&self, has: Has) -> String {
        format!("{}-{has:?}", self.name).to_lowercase()
    }

    /// One reconciler, of what carries the account's name; what is not declared is reconciled from a `ConfigMap`.
    fn description(&self, has: Has, namespace: &str) -> Description {
        let of = if has == Has::Right { "v1/ConfigMap" } else { self.of };
        let mine = format!("play={}", self.account(has));
        let of = Selection::new(guest_kind(of)).namespace(namespace).labels(mine);
        let mut description =
            Description::new("puppet", "1.0.0").reconciles(Reconciler::new("objects", of));
        if has != Has::Right {
            (self.declare)(&mut description, namespace);
        }
        description
    }

    fn rights(&self, has: Has) -> Vec<(&'static str, &'static str)> {
        let all = RECONCILES.iter().chain(self.rights).copied();
        if has == Has::Declaration {
            // Also where it is what everybody else here has.
            all.filter(|right| *right != self.lacking).collect()
        } else {
            all.chain([self.lacking]).collect()
        }
    }

    /// What is reconciled, and what it is about.
    fn objects(&self, has: Has, namespace: &str) -> Vec<Value> {
        let account = self.account(has);
        let metadata = json!({"metadata": {
            "namespace": namespace, "name": account, "labels": {"play": account},
        }});
        [(self.before)(), nothing()]
            .map(|mut object| {
                super::merge(&mut object, &metadata);
                object
            })
            .to_vec()
    }

    async fn is_through(&self, stage: &Stage, has: Has, report: &Report) -> bool {
        let name = self.account(has);
        let get = async |of: &str| stage.get(&kind(of), &name).await;
        let holds = |object: Option<Value>, place: &str| {
            object.is_some_and(|object| object.pointer(place).is_some())
        };
        match self.through {
            Through::Answered => answers(report).iter().all(|answer| answer.get("Ok").is_some()),
            Through::There(of) => get(of).await.is_some(),
            Through::Gone(of) => {
                let object = get(of).await;
                object.is_none() || holds(object, "/metadata/deletionTimestamp")
            }
            Through::Holds(of, place) => holds(get(of).await, place),
            Through::Lacks(of, place) => !holds(get(of).await, place),
            Through::Event(reason) => {
                let events = stage.list(&kind("v1/Event")).await;
                events.iter().any(|event| {
                    event["reason"] == reason && event["involvedObject"]["name"] == *name
                })
            }
        }
    }
}

/// Makes the accounts and the objects, puts the puppets to work, and waits until each has run.
async fn play(ways: &[Way]) -> Option<(Stage, BTreeMap<String, Report>)> {
    let cases: Vec<(&Way, Has)> = ways.iter().flat_map(|way| ALL.map(|has| (way, has))).collect();
    let accounts: Vec<String> = cases.iter().map(|(way, has)| way.account(*has)).collect();
    let stage = Stage::new("permissions", &accounts).await?;
    for (way, has) in &cases {
        stage.account(&way.account(*has), &way.rights(*has)).await;
        stage.apply(way.objects(*has, &stage.namespace)).await;
    }
    stage.until_granted(&accounts).await;
    for (way, has) in &cases {
        let description = way.description(*has, &stage.namespace);
        stage.puppet(&way.account(*has), &description, &(way.script)(&stage.namespace)).await;
    }
    let reports = stage.first_reports(&accounts.into_iter().collect()).await;
    Some((stage, reports))
}

/// What a report and the host say of what was refused; none: all that should be said.
async fn untold(stage: &Stage, way: &Way, has: Has, report: &Report, log: &Log) -> Option<String> {
    let account = way.account(has);
    let denied = stage.status_of(&account).denied;
    if has != Has::Declaration {
        return (!report.denied.is_empty()).then(|| format!("it is called a denial: {denied:?}"));
    }
    let (resource, verbs) = way.lacking;
    let is_it = |text: &str| {
        verbs.split(' ').any(|verb| text.contains(&format!("may not {verb} {resource}")))
    };
    let processor = format!("{}/{account}", stage.namespace);
    let is_counted = async |verb: &str| {
        let series = format!(r#"mortise_denied_total{{processor="{processor}",verb="{verb}","#);
        stage.metric(&series).await.is_some()
    };
    if !denied.iter().any(|text| is_it(text)) {
        Some(format!("the status says {denied:?}"))
    } else if !log.has(&processor, is_it) {
        Some("no line in the log".into())
    } else if !futures::future::join_all(verbs.split(' ').map(is_counted)).await.contains(&true) {
        Some("not counted".into())
    } else {
        None
    }
}

/// What is wrong with the requests that the host has sent.
async fn wrong_requests(stage: &Stage, ways: &[Way]) -> Vec<String> {
    let undeclared: BTreeSet<String> =
        ways.iter().map(|way| stage.user(&way.account(Has::Right))).collect();
    let accounts: BTreeSet<String> =
        ways.iter().flat_map(|way| ALL.map(|has| stage.user(&way.account(has)))).collect();
    let is_wrong = |event: &Request| {
        let is_read = ["get", "list", "watch"].contains(&event.verb.as_str());
        match &event.impersonated_user {
            None => event.object_ref.is_some() && !is_own_right(event),
            Some(user) if undeclared.contains(&user.username) => {
                !is_read && event.resource() != "events"
            }
            Some(user) => !accounts.contains(&user.username),
        }
    };
    let requests = stage.requests().await;
    assert!(requests.iter().any(|event| event.impersonated_user.is_some()), "nobody acted");
    let wrong = requests.iter().filter(|event| is_wrong(event));
    wrong
        .map(|event| format!("{} {} as {}", event.verb, event.request_uri, event.account()))
        .collect()
}

#[tokio::test]
async fn nothing_gets_through_without_the_right_and_the_declaration() {
    let log = Log::default();
    let _listening = log.listen();
    let ways: Vec<Way> =
        reads().into_iter().chain(applies()).chain(removals()).chain(own()).collect();
    let Some((stage, reports)) = play(&ways).await else { return };
    let mut faults = Vec::new();
    for (way, has) in ways.iter().flat_map(|way| ALL.map(|has| (way, has))) {
        let report = &reports[&way.account(has)];
        let is_through = way.is_through(&stage, has, report).await;
        if is_through != (has == Has::Both) {
            faults
                .push(format!("{} {has:?}: through: {is_through}, {:?}", way.name, report.failure));
        }
        if let Some(fault) = untold(&stage, way, has, report, &log).await {
            faults.push(format!("{} {has:?}: {fault}", way.name));
        }
    }
    stage.host.stop().await.unwrap();
    faults.extend(wrong_requests(&stage, &ways).await);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// What an account and its processor have of pruning.
struct Pruning {
    name: &'static str,
    rights: Rights<'static>,
    is_declared: bool,
    /// What the failure says; none: it is pruned.
    refused: Option<&'static str>,
}

const PRUNING: [Pruning; 4] = [
    Pruning {
        name: "prunes",
        rights: &[("secrets", "get list watch create patch delete")],
        is_declared: true,
        refused: None,
    },
    Pruning {
        name: "may-not-delete",
        rights: &[("secrets", "get list watch create patch")],
        is_declared: true,
        refused: Some("cannot delete resource"),
    },
    Pruning {
        name: "may-not-list",
        rights: &[("secrets", "get watch create patch delete")],
        is_declared: true,
        refused: Some("cannot list resource"),
    },
    Pruning {
        name: "does-not-declare",
        rights: &[("secrets", "get list watch create patch delete")],
        is_declared: false,
        refused: Some("`prune[0]`"),
    },
];

impl Stage {
    /// A puppet's object tells it to apply these Secrets, and perhaps to prune the others that it has applied.
    async fn tell_to_keep(&self, puppet: &str, secrets: &[String], prunes: bool) {
        let manifest = |name: &String| {
            let metadata =
                json!({"namespace": self.namespace, "name": name, "labels": {"of": puppet}});
            Manifest::json(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata}))
        };
        let mut outcome = secrets.iter().map(manifest).fold(Outcome::new(), Outcome::apply);
        if prunes {
            let selection = Selection::of::<Secret>().namespace(&self.namespace);
            outcome = outcome.prune(selection.labels(format!("of={puppet}")));
        }
        self.apply(vec![json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": self.namespace, "name": puppet, "labels": {"play": puppet}},
            "data": {"script": returns(&outcome).to_string()},
        })])
        .await;
    }
}

#[tokio::test]
async fn nothing_is_pruned_without_the_right_and_the_declaration() {
    let names = PRUNING.map(|case| case.name.to_owned());
    let Some(stage) = Stage::new("pruning", &names).await else { return };
    let secret = kind(SECRET);
    for case in PRUNING {
        let (name, namespace) = (case.name, &stage.namespace);
        stage.account(name, &[RECONCILES, case.rights].concat()).await;
        let secrets = [name.to_owned(), format!("{name}-former")];
        stage.tell_to_keep(name, &secrets, false).await;
        let mine = Selection::new(guest_kind("v1/ConfigMap"));
        let mine = mine.namespace(namespace).labels(format!("play={name}"));
        let deletes = if case.is_declared { Verbs::DELETE } else { Verbs::empty() };
        let verbs = Verbs::CREATE | Verbs::UPDATE | deletes;
        let description = Description::new("puppet", "1.0.0")
            .reconciles(Reconciler::new("objects", mine))
            .writes(self::secrets(namespace), verbs);
        stage.puppet(name, &description, &json!({})).await;
        stage.last_run(name, |report| report.failure.is_none() && report.changes.len() == 2).await;

        let [kept, former] = &secrets;
        stage.tell_to_keep(name, std::slice::from_ref(kept), true).await;
        match case.refused {
            None => {
                let is_gone = async || stage.get(&secret, former).await.is_none();
                stage.until("it is pruned", is_gone).await;
            }
            Some(says) => {
                let is_it = |failure: &String| failure.contains(says);
                stage.last_run(name, |report| report.failure.as_ref().is_some_and(is_it)).await;
                assert!(stage.get(&secret, former).await.is_some(), "{name}");
            }
        }
        assert!(stage.get(&secret, kept).await.is_some(), "{name}");
    }
}
