//! The bounds of a run against an API server that answers as it likes.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use serde_json::json;
use tokio::time::advance;

use super::*;
use crate::{
    api::{Answer, Cause, NotEstablished, Outgoing, Unavailable},
    fixture::{elsewhere, kind, labelled, object_ref, reference, resource, whole},
    labels::LabelSelector,
    outcome::Prune,
    path::Path,
};

type Respond = fn(&Outgoing, usize) -> Result<Value, Refusal>;

/// An API server, of which a function answers each request, given its number.
struct Hostile {
    respond: Respond,
    requests: AtomicUsize,
}

impl fmt::Debug for Hostile {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Hostile").finish_non_exhaustive()
    }
}

impl Api for Hostile {
    fn is_leading(&self) -> bool {
        true
    }

    fn send<'a>(&'a self, outgoing: &'a Outgoing) -> BoxFuture<'a, Result<Answer, Refusal>> {
        async move {
            // The time of a slow answer, for tests with paused time.
            advance(Duration::from_millis(100)).await;
            let number = self.requests.fetch_add(1, Ordering::Relaxed);
            (self.respond)(outgoing, number).map(|body| Answer { created: false, body })
        }
        .boxed()
    }

    fn resolve<'a>(
        &'a self,
        kind: &'a Kind,
    ) -> BoxFuture<'a, Result<Option<Arc<Resource>>, Unavailable>> {
        async { Ok(Some(Arc::new(resource(kind)))) }.boxed()
    }

    fn forget(&self, _kind: &Kind) {}

    fn established<'a>(
        &'a self,
        _definition: &'a ObjectRef,
    ) -> BoxFuture<'a, Result<(), NotEstablished>> {
        async { Ok(()) }.boxed()
    }
}

/// The manager of what the key applies in another cluster.
fn manager() -> String {
    let object = reference("Rule", "a");
    let owner =
        Owner { namespace: "shop", processor: "p", reconciler: "r", object: &object, home: "home" };
    FieldManagers::new(&owner).apply
}

/// Carries out a plan with a writer. Calls `then` with its key's context, and returns the result,
/// and the number of requests.
async fn carried_out_by<T>(
    writer: &Writer,
    plan: &Plan,
    respond: Respond,
    then: impl FnOnce(&Context<'_>) -> T,
) -> (Written, usize, T) {
    writer.home().set("home");
    let api = Hostile { respond, requests: AtomicUsize::new(0) };
    let key = Key::new(&"shop/p".into(), &"r".into(), Some("default"), "a");
    let reconciled = Reconciled { reference: reference("Rule", "a"), object: None };
    let context = Context {
        key: &key,
        namespace: "shop",
        processor: "p",
        reconciled: &reconciled,
        take_over: &[],
        rights: None,
        whole_status: false,
    };
    let written = writer.carry_out(plan, &api, &context).await;
    (written, api.requests.into_inner(), then(&context))
}

async fn carried_out(plan: &Plan, respond: Respond) -> (Written, usize) {
    let (written, requests, ()) = carried_out_by(&writer(), plan, respond, |_| ()).await;
    (written, requests)
}

fn writer() -> Writer {
    Writer::new(Stores::new(), Arc::new(|| jiff::Timestamp::UNIX_EPOCH))
}

fn prune() -> Plan {
    let of = labelled(whole(elsewhere(kind("Thing"), "shop/c/k")), "app=x");
    let labels = LabelSelector::parse(&of.labels).unwrap();
    Plan { prune: vec![Prune { of, labels, matching: Vec::new() }], ..Plan::default() }
}

/// A page of things, with a token for the next one.
fn page(number: usize, manager: &str) -> Value {
    let item = |at: usize| {
        json!({"metadata": {
            "name": format!("t{number}-{at}"), "namespace": "default", "uid": "u",
            "resourceVersion": "1", "labels": {"app": "x"},
            "managedFields": [{"manager": manager, "operation": "Apply", "fieldsV1": {}}],
        }})
    };
    let items: Vec<Value> = (0..500).map(item).collect();
    json!({"items": items, "metadata": {"continue": "more"}})
}

/// Returns the name of the object that a request is for.
fn name_in(outgoing: &Outgoing) -> &str {
    outgoing.path.split('?').next().unwrap().rsplit('/').next().unwrap()
}

fn applied(to: ObjectRef) -> Manifest {
    Manifest {
        object: live::named(&to, None),
        to,
        class: Class::of(&kind("Thing")),
        create_only: false,
        pinned: false,
        leave: Vec::new(),
        absent: Vec::new(),
        made_owners: Vec::new(),
        within: None,
    }
}

fn things(count: usize) -> Plan {
    let of = |at: usize| object_ref(kind("Thing"), Some("default"), &format!("t{at}"));
    Plan { apply: (0..count).map(of).map(applied).collect(), ..Plan::default() }
}

#[tokio::test(start_paused = true)]
async fn a_prune_of_a_list_without_an_end_deletes_some_and_fails() {
    let (written, requests) = carried_out(&prune(), |outgoing, number| match outgoing.method {
        crate::api::Method::Get => Ok(page(number, &manager())),
        _ => Ok(json!({"kind": "Status"})),
    })
    .await;
    let [failure] = &written.failures[..] else { panic!("{}", written.failures.len()) };
    assert_eq!((failure.code, &*failure.reason), (413, "TooManyObjects"));
    let pages = requests - written.changes.len();
    assert!(pages < 200 && written.changes.len() > 10_000, "{pages} {requests}");
}

#[tokio::test(start_paused = true)]
async fn a_prune_gives_up_a_list_that_takes_too_long() {
    let respond: Respond = |_, _| Ok(json!({"items": [], "metadata": {"continue": "more"}}));
    let (written, _) = carried_out(&prune(), respond).await;
    assert!(written.failures[0].message.contains("has not ended within"), "{written:?}");
}

#[tokio::test(start_paused = true)]
async fn the_answers_that_a_run_keeps_are_bounded_together() {
    let (written, _) = carried_out(&things(100), |outgoing, number| {
        let name = name_in(outgoing);
        Ok(json!({
            "metadata": {"name": name, "namespace": "default", "resourceVersion": number.to_string()},
            "data": "x".repeat(1 << 20),
        }))
    })
    .await;
    assert_eq!((written.changes.len(), written.failures.len()), (100, 0));
    let bytes: usize = written.changes.iter().map(|change| account_of(&change.object)).sum();
    assert!((MAX_ANSWER_BYTES / 2..MAX_ANSWER_BYTES + (1 << 16)).contains(&bytes), "{bytes}");
    assert_eq!(written.changes[99].object["metadata"]["name"], "t99");
    assert_eq!(written.warnings, ["69 written objects are shown by name only"]);
}

#[tokio::test(start_paused = true)]
async fn the_texts_of_the_failures_of_a_run_are_bounded_together() {
    let (written, _) = carried_out(&things(1000), |_, _| {
        let (long, text) = ("x".repeat(1 << 14), "x".repeat(1 << 11));
        let cause = json!({"reason": "FieldManagerConflict", "field": text, "message": text});
        let status = json!({
            "kind": "Status", "reason": long, "message": long,
            "details": {"causes": vec![cause; 80]},
        });
        Err(Refusal::read(403, None, Some(&status), b""))
    })
    .await;
    assert_eq!(written.failures.len(), 1000);
    let texts = |failed: &WriteFailure| failed.message.len() + failed.reason.len();
    let bytes: usize = written.failures.iter().map(texts).sum();
    assert!(bytes < MAX_FAILURE_BYTES + 1000 * 256, "{bytes}");
    assert!(written.failures[0].message.len() > 8000);
    assert_eq!(written.failures[999].message, UNTOLD);
    assert_eq!(written.forbidden.len(), MAX_FORBIDDEN);
    assert!(written.forbidden.iter().all(|(_, message)| message.len() <= MAX_FORBIDDEN_BYTES + 3));
}

/// Each run writes other objects, and fails at last.
#[tokio::test(start_paused = true)]
async fn fields_that_must_be_absent_count_for_the_key_until_they_are_forgotten() {
    let writer = writer();
    let respond: Respond = |outgoing, number| {
        let name = name_in(outgoing);
        let version = number.to_string();
        match name {
            "fails" => Err(Refusal { code: 403, ..Refusal::default() }),
            _ => Ok(
                json!({"metadata": {"name": name, "namespace": "default", "resourceVersion": version}}),
            ),
        }
    };
    let paths: Vec<Path> = (0..100).map(|at| format!("data.f{at}").parse().unwrap()).collect();
    let mut kept = Vec::new();
    for run in 0..3 {
        let absent_from = |name: String| {
            let to = object_ref(kind("Thing"), Some("default"), &name);
            Manifest { absent: paths.clone(), ..applied(to) }
        };
        let names = (0..10).map(|at| format!("t{run}-{at}")).chain(["fails".to_owned()]);
        let plan = Plan { apply: names.map(absent_from).collect(), ..Plan::default() };
        let (written, _, bytes) =
            carried_out_by(&writer, &plan, respond, |context| writer.kept_bytes(context)).await;
        assert_eq!(written.failures.len(), 1);
        kept.push(bytes);
    }
    assert!(kept[0] > 10 * 100 * 64 && kept[2] > 2 * kept[0], "{kept:?}");
    writer.forget_keys(|key| &**key.processor() == "shop/other");
    let last = Plan { apply: vec![applied(reference("Thing", "fails"))], ..Plan::default() };
    let forget = |context: &Context<'_>| {
        let before = writer.kept_bytes(context);
        writer.forget_keys(|key| &**key.processor() == "shop/p");
        (before, writer.kept_bytes(context))
    };
    let (_, _, (before, after)) = carried_out_by(&writer, &last, respond, forget).await;
    assert!(before > 0 && after == 0, "{before} {after}");
}

#[test]
fn a_refusal_has_texts_of_bounded_length() {
    let long = "x".repeat(1 << 16);
    let cause = json!({"reason": long, "field": long, "message": long});
    let status = json!({"kind": "Status", "reason": long, "message": long, "details": {"causes": vec![cause; 200]}});
    let Refusal { reason, message, causes, .. } = Refusal::read(409, None, Some(&status), b"");
    let of_causes = causes
        .iter()
        .map(|Cause { reason, field, message }| reason.len() + field.len() + message.len());
    assert!(reason.len() + message.len() + of_causes.sum::<usize>() < 200 << 10);
}
