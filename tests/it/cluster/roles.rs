//! The output of `mortise inspect --rbac` suffices for everything that is declared, and each line
//! of it is needed.

use mortise::commands::inspect;
use mortise_core::reconcile::Report;
use mortise_sdk::{
    Deletion, Description, Event, Manifest, ObjectRef, Outcome, Reconciler, Selection, Verbs,
    kubernetes::{ConfigMap, Pod, Secret, Service},
};
use serde_json::{Value, json};

use super::{
    answers, kind,
    stage::{Stage, returns},
};

const FINALIZER: &str = "example.com/held";
const WHOLE: &str = "whole";

/// Returns a processor that declares everything that can be declared, for the Service of its name.
fn description(name: &str, namespace: &str) -> Description {
    let mine = Selection::of::<Service>().namespace(namespace).labels(format!("play={name}"));
    let written = Verbs::CREATE | Verbs::UPDATE | Verbs::DELETE;
    Description::new(name, "1.0.0")
        .reconciles(Reconciler::new("services", mine).finalizer(FINALIZER))
        .reads(Selection::of::<Secret>().namespace(namespace))
        .writes(Selection::of::<ConfigMap>().namespace(namespace), written)
        .writes(Selection::of::<Pod>().namespace(namespace), Verbs::EVICT)
}

fn script(name: &str, namespace: &str) -> Value {
    let written = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": namespace, "name": name, "labels": {"written-by": name}},
    });
    let status = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": name},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
    });
    let former = ObjectRef::of::<ConfigMap>(Some(namespace), format!("{name}-former"));
    let pod = ObjectRef::of::<Pod>(Some(namespace), name);
    let own =
        Selection::of::<ConfigMap>().namespace(namespace).labels(format!("written-by={name}"));
    let outcome = Outcome::new()
        .finalizers([FINALIZER])
        .apply(Manifest::json(&written))
        .delete(Deletion::new(former))
        .prune(own)
        .evict(Deletion::new(pod))
        .event(Event::normal("Done", "as always"));
    let mut script = returns(&Outcome { status: Some(status.to_string()), ..outcome });
    let secret = ObjectRef::of::<Secret>(Some(namespace), name);
    let secrets = Selection::of::<Secret>().namespace(namespace);
    script["reads"] = json!([{"get": {"ref": secret}}, {"list": {"of": secrets}}]);
    script
}

/// Returns the objects that the processor reads and writes.
fn objects(name: &str, namespace: &str) -> Vec<Value> {
    let object = |kind: &str, name: &str, rest: Value| {
        let mut object = json!({
            "apiVersion": "v1", "kind": kind, "metadata": {"namespace": namespace, "name": name},
        });
        super::merge(&mut object, &rest);
        object
    };
    let service = json!({
        "metadata": {"labels": {"play": name}},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    });
    vec![
        object("ServiceAccount", name, json!({})),
        object("Secret", name, json!({})),
        object("ConfigMap", &format!("{name}-former"), json!({})),
        object("Pod", name, json!({"spec": {"containers": [{"name": "a", "image": "a"}]}})),
        object("Service", name, service),
    ]
}

/// Returns the roles that `mortise inspect --rbac` prints for a processor and its account, with
/// their bindings.
async fn printed(stage: &Stage, name: &str) -> Vec<Value> {
    let loaded = stage.load(name, &description(name, &stage.namespace), &json!({})).await;
    let account = loaded.settings.account.as_ref();
    let text = inspect::rbac(&loaded.description, Vec::new(), account, None).await.unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

fn rules(objects: &mut [Value]) -> &mut Vec<Value> {
    let role = objects.iter_mut().find(|object| object["kind"] == "Role");
    role.expect("the Role for the only namespace")["rules"].as_array_mut().unwrap()
}

/// The printed roles without a rule or a verb.
struct Narrowed {
    /// The name of the processor and its account.
    name: String,
    roles: Vec<Value>,
    /// The missing rights, as the host reports them.
    missing: Vec<String>,
    is_whole_rule: bool,
}

/// Returns a case without each rule, and without each verb of a rule with several verbs.
async fn narrowed(stage: &Stage) -> Vec<Narrowed> {
    let whole = rules(&mut printed(stage, WHOLE).await).clone();
    let words = |rule: &Value, key: &str| -> Vec<String> {
        let words = rule[key].as_array().unwrap();
        words.iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let mut cases = Vec::new();
    for (number, rule) in whole.iter().enumerate() {
        let (resources, verbs) = (words(rule, "resources"), words(rule, "verbs"));
        let of_one = |verb: &String| std::slice::from_ref(verb).to_vec();
        let single = verbs.iter().map(of_one).filter(|_| verbs.len() > 1);
        for taken in single.chain([verbs.clone()]) {
            let is_whole_rule = taken == verbs;
            let of = if is_whole_rule { "all" } else { &taken[0] };
            let name = format!("no-{of}-{}", resources[0].replace('/', "-"));
            let mut roles = printed(stage, &name).await;
            let left = rules(&mut roles);
            if is_whole_rule {
                left.remove(number);
            } else {
                left[number]["verbs"].as_array_mut().unwrap().retain(|verb| *verb != taken[0]);
            }
            let missing = resources.iter().flat_map(|resource| {
                taken.iter().map(move |verb| format!("may not {verb} {resource} "))
            });
            cases.push(Narrowed { name, roles, missing: missing.collect(), is_whole_rule });
        }
    }
    cases
}

fn is_whole(report: &Report) -> bool {
    let given = answers(report).iter().all(|answer| answer.get("Ok").is_some());
    given && report.failure.is_none() && report.denied.is_empty()
}

/// Returns what the host reports for an account that lacks rights, if the report is wrong.
fn fault(stage: &Stage, case: &Narrowed, report: &Report) -> Option<String> {
    let said = stage.status_of(&case.name).missing_rights;
    let is_said = |missing: &&String| said.iter().any(|said| said.starts_with(missing.as_str()));
    if case.missing.iter().filter(is_said).count() != said.len() || said.is_empty() {
        Some(format!("{}: missing is {:?}, said is {said:?}", case.name, case.missing))
    } else if case.is_whole_rule && is_whole(report) {
        Some(format!("{}: nothing fails", case.name))
    } else {
        None
    }
}

#[tokio::test]
async fn each_rule_that_is_printed_is_needed() {
    let Some(stage) = Stage::bare("rules").await else { return };
    let namespace = stage.namespace.clone();
    let cases = narrowed(&stage).await;
    let names: Vec<String> =
        cases.iter().map(|case| case.name.clone()).chain([WHOLE.to_owned()]).collect();
    stage.let_act_as(&names).await;
    for case in &cases {
        stage.apply(objects(&case.name, &namespace)).await;
        stage.apply(case.roles.clone()).await;
    }
    // With the watches of a processor that has all rights, processors without the right to watch
    // run too.
    stage.apply(objects(WHOLE, &namespace)).await;
    stage.apply(printed(&stage, WHOLE).await).await;
    for name in &names {
        stage.puppet(name, &description(name, &namespace), &script(name, &namespace)).await;
    }
    let reports = stage.first_reports(&names.into_iter().collect()).await;
    let faults = cases.iter().filter_map(|case| fault(&stage, case, &reports[&case.name]));
    let faults: Vec<String> = faults.collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test]
async fn the_printed_roles_suffice_for_everything_declared() {
    let Some(stage) = Stage::new("roles", &[WHOLE.to_owned()]).await else { return };
    let namespace = stage.namespace.clone();
    stage.apply(objects(WHOLE, &namespace)).await;
    stage.apply(printed(&stage, WHOLE).await).await;
    stage.puppet(WHOLE, &description(WHOLE, &namespace), &script(WHOLE, &namespace)).await;
    stage.last_run(WHOLE, is_whole).await;

    // A repeated event is counted, which is a patch.
    stage.forget_runs(WHOLE);
    let mut changed = objects(WHOLE, &namespace).pop().unwrap();
    super::merge(&mut changed, &json!({"metadata": {"annotations": {"changed": "yes"}}}));
    stage.apply(vec![changed]).await;
    stage.last_run(WHOLE, is_whole).await;
    let events = stage.list(&kind("v1/Event")).await;
    assert!(
        events.iter().any(|event| event["reason"] == "Done" && event["count"] == 2),
        "{events:?}"
    );

    // A deleted object is restored, since written objects are watched.
    let written = kind("v1/ConfigMap");
    let before = stage.get(&written, WHOLE).await.unwrap();
    stage.delete(&written, WHOLE).await;
    stage
        .until("it is made again", async || {
            let after = stage.get(&written, WHOLE).await;
            after.is_some_and(|after| after["metadata"]["uid"] != before["metadata"]["uid"])
        })
        .await;

    let status = stage.status_of(WHOLE);
    assert_eq!((status.denied, status.missing_rights), (Vec::new(), Vec::new()));
    assert_eq!(status.failures, 0);
}
