use super::*;

fn seen(verb: Verb, plural: &'static str) -> Seen<'static> {
    Seen { verb, group: "apps", plural, namespace: "shop", name: "web", subresource: "" }
}

#[test]
fn a_fault_hits_matching_requests_the_given_number_of_times() {
    let faults = Faults::default();
    let filter = Filter::resource("deployments").verbs([Verb::Patch]);
    faults.inject(Fault::Conflict, filter, 2);
    let codes: Vec<Option<u16>> = [
        seen(Verb::Get, "deployments"),
        seen(Verb::Patch, "replicasets"),
        seen(Verb::Patch, "deployments"),
        seen(Verb::Patch, "deployments"),
        seen(Verb::Patch, "deployments"),
    ]
    .map(|seen| faults.meet(seen).refusal.map(|refusal| refusal.code()))
    .into();
    assert_eq!(codes, [None, None, Some(409), Some(409), None]);
    assert_eq!((faults.pending(), faults.hits()), (0, 2));
}

#[test]
fn a_filter_looks_at_namespace_and_subresource() {
    let refused = Fault::Refused { code: 403, message: "no".to_owned() };
    let faults = Faults::default();
    let of_status = Filter::resource("deployments").namespace("shop").subresource("status");
    faults.inject(refused, of_status, 1);
    let hits = |seen| faults.meet(seen).refusal.map(|refusal| refusal.to_status());
    let status = Seen { subresource: "status", ..seen(Verb::Patch, "deployments") };
    assert_eq!(hits(seen(Verb::Patch, "deployments")), None);
    assert_eq!(hits(Seen { namespace: "other", ..status }), None);
    let refusal = hits(status).unwrap();
    assert_eq!(
        (&refusal["code"], &refusal["reason"], &refusal["message"]),
        (&403.into(), &"Forbidden".into(), &"no".into())
    );
}

#[test]
fn latency_and_a_lost_answer_come_together_with_a_refusal() {
    let faults = Faults::default();
    faults.inject(Fault::Latency(Duration::from_secs(1)), Filter::all(), 1);
    faults.inject(Fault::LostAnswer, Filter::all().name("web"), 1);
    faults.inject(Fault::TooManyRequests(Some(3)), Filter::resource("deployments.apps"), 1);
    faults.inject(Fault::InternalError, Filter::all(), 1);
    let obstacles = faults.meet(seen(Verb::Create, "deployments"));
    assert_eq!(obstacles.latency, Duration::from_secs(1));
    assert!(obstacles.loses_answer);
    assert_eq!(obstacles.refusal.and_then(|refusal| refusal.retry_after()), Some(3));
    assert_eq!(faults.pending(), 1, "the second refusal waits for the next request");
}

#[test]
fn watches_are_dropped_by_resource() {
    let faults = Faults::default();
    let (id, token) = faults.open_watch("apps", "deployments");
    let (_, other) = faults.open_watch("", "pods");
    assert_eq!(faults.drop_watches(&Filter::resource("deployments.apps")), 1);
    assert!(token.is_cancelled() && !other.is_cancelled());
    faults.close_watch(id);
    assert_eq!(faults.live_watches(), 1);
}
