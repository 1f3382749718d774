//! Faults.

use super::*;
use crate::{Answer, Fault, fault::Invalid};

const SERVICES: &str = "/core-entities/services";

/// Returns a caller with a fault, and sends a creation of a service.
fn with(fault: Value) -> (Caller, Reply) {
    let mut caller = Caller::new();
    let fault: Fault = serde_json::from_value(fault).unwrap();
    caller.konnect.set_faults(vec![fault]).unwrap();
    let reply = create(&mut caller);
    (caller, reply)
}

fn create(caller: &mut Caller) -> Reply {
    caller.reply("POST", SERVICES, &json!({"host": "h"}))
}

fn status(reply: &Reply) -> Option<u16> {
    reply.answer().map(|answer| answer.status)
}

#[test]
fn a_status_comes_in_place_of_the_usual_answer() {
    let headers = json!({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"});
    let (mut caller, reply) = with(json!({"method": "POST", "path": "/services$", "status": 429,
        "body": {"message": "rate limited"}, "headers": headers}));
    let answer = reply.answer().unwrap();
    assert_eq!(answer.status, 429);
    assert_eq!(answer.header("retry-after"), headers["Retry-After"].as_str());
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.body_value(), Some(json!({"message": "rate limited"})));
    assert!(caller.ids(SERVICES).is_empty(), "it was not carried out");
    assert!(caller.konnect.log(1).next().unwrap().fault);
    assert_eq!(status(&create(&mut caller)), Some(201), "once");
}

#[test]
fn a_text_is_sent_as_it_is_and_no_body_is_empty() {
    let headers = json!({"Content-Type": "text/plain"});
    let fault = json!({"path": "", "status": 502, "body": "bad gateway", "headers": headers});
    let (_, reply) = with(fault);
    let headers = vec![("Content-Type".to_owned(), "text/plain".to_owned())];
    let expected = Answer { status: 502, headers, body: b"bad gateway".to_vec() };
    assert_eq!(reply.answer(), Some(&expected));
    let (_, reply) = with(json!({"path": "", "status": 201}));
    assert_eq!(reply.answer().unwrap().body, b"");
}

#[test]
fn an_answer_is_lost_after_the_request_was_carried_out() {
    for (fault, reset) in [("drop", false), ("reset", true)] {
        for done in [false, true] {
            let (mut caller, reply) = with(json!({"path": "/services$", fault: true, "act": done}));
            assert_eq!(reply, Reply { delay: 0, end: End::Closed { reset, done } });
            assert_eq!(caller.ids(SERVICES).len(), usize::from(done), "{fault} {done}");
            assert!(caller.konnect.log(1).next().unwrap().answer.is_none());
        }
    }
}

#[test]
fn a_wrong_answer_comes_after_the_request_was_carried_out() {
    let (mut caller, reply) = with(json!({"path": "/services$", "status": 409, "act": true}));
    assert_eq!(status(&reply), Some(409));
    assert_eq!(caller.ids(SERVICES).len(), 1);
}

#[test]
fn an_answer_comes_later() {
    let (_, reply) = with(json!({"path": "/services$", "delaySeconds": 2.5, "act": true}));
    assert_eq!((reply.delay, status(&reply)), (2_500, Some(201)));
    let (_, reply) = with(json!({"path": "/services$", "delaySeconds": 1}));
    assert_eq!((reply.delay, status(&reply)), (1_000, Some(201)));
    let (_, reply) = with(json!({"path": "/services$", "delaySeconds": 1, "status": 500}));
    assert_eq!((reply.delay, status(&reply)), (1_000, Some(500)));
}

#[test]
fn faults_apply_as_often_as_they_say() {
    for (times, expected) in [(json!(null), 1), (json!(2), 2), (json!(0), 0), (json!(-1), 5)] {
        let fault = json!({"path": "/services$", "status": 500, "times": times});
        let (mut caller, first) = with(fault);
        let rest = (1..5).map(|_| create(&mut caller)).collect::<Vec<_>>();
        let replies = std::iter::once(&first).chain(&rest);
        let failed = replies.filter(|reply| status(reply) == Some(500)).count();
        assert_eq!(failed, expected, "{times}");
    }
}

#[test]
fn faults_are_chosen_by_method_path_and_token() {
    let cases = [
        (json!({"method": "POST", "path": "/services$"}), true),
        (json!({"method": "post", "path": "core-.*es$"}), true),
        (json!({"path": "/services$", "token": "kpat_a"}), true),
        (json!({"method": "PUT", "path": "/services$"}), false),
        (json!({"path": "/routes$"}), false),
        (json!({"path": "/services$", "token": "kpat_b"}), false),
    ];
    for (mut fault, applies) in cases {
        fault["status"] = json!(500);
        let (_, reply) = with(fault.clone());
        assert_eq!(status(&reply) == Some(500), applies, "{fault}");
    }
}

#[test]
fn later_faults_take_the_place_of_earlier_ones_and_the_first_applies() {
    let (mut caller, _) = with(json!({"path": "", "status": 500, "times": -1}));
    let fault = |status| Fault { status: Some(status), ..Fault::default() };
    caller.konnect.set_faults(vec![fault(501), fault(502)]).unwrap();
    let statuses = [(); 3].map(|()| status(&create(&mut caller)));
    assert_eq!(statuses, [Some(501), Some(502), Some(201)]);
}

#[test]
fn faults_that_cannot_be_are_refused() {
    let mut caller = Caller::new();
    let path = Fault { path: "(".to_owned(), ..Fault::default() };
    assert!(matches!(caller.konnect.set_faults(vec![path]), Err(Invalid::Path { .. })));
    let informational = Fault { status: Some(100), ..Fault::default() };
    let set = caller.konnect.set_faults(vec![informational]);
    assert!(matches!(set, Err(Invalid::Status(100))));
    let delay = Fault { delay_seconds: Some(f64::NAN), ..Fault::default() };
    assert!(matches!(caller.konnect.set_faults(vec![delay]), Err(Invalid::Delay(_))));
    let many = vec![Fault::default(); 1_001];
    assert!(matches!(caller.konnect.set_faults(many), Err(Invalid::TooMany { .. })));
    assert!(serde_json::from_value::<Fault>(json!({"path": "", "sleep": 1})).is_err());
}
