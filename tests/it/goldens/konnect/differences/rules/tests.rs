use super::{
    super::{
        super::{
            format::Scenario,
            request::{Normal, Timed},
            state::{State, key_of, recorded},
        },
        History,
    },
    deletion::CLEANUP,
    *,
};

const POST: &str =
    "{method: POST, path: /x/services, body: {tags: ['k8s-uid:UID-KongService-svc']}";

/// Returns what a rule expects in the last of some steps. Ours has sent what the record has, but
/// for the last step, in which it has sent nothing.
fn expected(rule: Rule, steps: &str) -> Consequences {
    let text = format!("about: a\nsyncPeriod: 4s\nnamespace: ns\nsteps: {steps}");
    let scenario = Scenario::parse("test", &text).unwrap();
    let (step, earlier) = scenario.steps.split_last().unwrap();
    let (mut history, mut objects) = (History::default(), State::new());
    for step in earlier {
        let timed = step.requests.iter().cloned().map(|request| Timed { at: 0, request });
        history.learn(step, &timed.collect::<Vec<_>>());
    }
    for object in scenario.steps.iter().flat_map(|step| &step.objects) {
        objects.extend(recorded(object).map(|shown| (key_of(object), shown)));
    }
    let requests = Normal::new(false, false).recorded(step);
    let mut expected = Consequences { requests, objects };
    let ours = Consequences { requests: Vec::new(), objects: State::new() };
    let facts =
        Facts { scenario: &scenario, step, earlier, later: &[], ours: &ours, history: &history };
    rule(&facts, &mut expected);
    expected
}

/// Returns the requests that a rule expects in the last of some steps, in short.
fn requests(rule: Rule, steps: &str) -> Vec<String> {
    let short = |request: &Request| {
        let answer = &request.answer;
        let answer = answer.ids.clone().map_or_else(|| json!(answer.id), |ids| json!(ids));
        let times = (request.seconds_since_previous, request.periods_since_previous);
        let repeated = if request.repeated { " repeated" } else { "" };
        format!("{request} {answer} {times:?}{repeated}").replace(" eu.api.konghq.com", " ")
    };
    expected(rule, steps).requests.iter().map(short).collect()
}

#[test]
fn a_pause_is_as_long_as_konnect_asks_for() {
    let steps = |header: &str| {
        format!(
            "[{{requests: [{POST}, answer: {{status: 429, headers: {header}}}}}, \
             {POST}, answer: {{status: 201, id: a}}, secondsSincePrevious: 0}}]}}]"
        )
    };
    let cases = [
        ("{Retry-After: '2'}", 2),
        ("{Retry-After: '0'}", 15),
        ("{Retry-After: 'Wed, 21 Oct 2015 07:28:00 GMT'}", 15),
        ("{Retry-After: 'Wed, 21 Oct 2099 07:28:00 GMT'}", 600),
        ("{}", 15),
    ];
    for (header, pause) in cases {
        let found = requests(pauses_are_kept, &steps(header));
        let last = format!("POST /x/services (201) \"a\" (Some({pause}), None)");
        assert_eq!(found[1], last, "{header}");
    }
}

#[test]
fn what_is_refused_is_sent_once_and_again_after_a_change_or_a_period() {
    let refused = format!("{POST}, repeated: true, answer: {{status: 400}}}}");
    let once = "POST /x/services (400) null (None, None)";
    let found = requests(refused_is_sent_once, &format!("[{{requests: [{refused}]}}]"));
    assert_eq!(found, [once]);
    let later = |step: &str| format!("[{{requests: [{refused}]}}, {step}]");
    let again = |patch: &str| {
        let step = format!("{{patch: [{patch}], requests: [{refused}]}}");
        requests(refused_is_sent_once, &later(&step))
    };
    assert_eq!(again(""), Vec::<String>::new());
    assert_eq!(again("{kind: KongService, name: svc, merge: {}}"), [once]);
    let started = format!("{{operator: restart, requests: [{refused}]}}");
    assert_eq!(requests(refused_is_sent_once, &later(&started)), [once]);
    let found = requests(refused_is_sent_again_each_period, &later("{waitPeriods: 2}"));
    assert_eq!(found, ["POST /x/services (400) null (None, Some(1))"; 2]);
}

#[test]
fn an_entity_follows_its_source_at_once() {
    let steps = |merge: &str| {
        let body = "body: {config: {minute: 5}, tags: ['k8s-uid:UID-KongPluginBinding-b']}";
        format!(
            "[{{apply: [{{kind: KongPlugin, metadata: {{name: p}}, config: {{minute: 5}}}}], \
             requests: [{{method: POST, path: /x/plugins, {body}, answer: {{status: 201, id: i}}}}]}}, \
             {{patch: [{{kind: KongPlugin, name: p, merge: {merge}}}]}}]"
        )
    };
    let found = expected(sources_are_sent_at_once, &steps("{config: {minute: 9}}"));
    let [request] = &found.requests[..] else { panic!("{found:?}") };
    assert_eq!((request.method.as_str(), request.path.as_str()), ("PUT", "/x/plugins/i"));
    assert_eq!(request.body["config"], json!({"minute": 9}));
    let found = requests(sources_are_sent_at_once, &steps("{metadata: {labels: {a: b}}}"));
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn what_was_created_before_is_found_and_not_created_again() {
    let post = |id: &str| {
        let path = "/x/dp-client-certificates";
        format!(
            "{{method: POST, path: {path}, body: {{cert: c}}, answer: {{status: 201, id: {id}}}}}"
        )
    };
    let object = "{kind: KongDataPlaneClientCertificate, name: dp, status: {konnect: {id: d-2}}}";
    let first = format!("{{requests: [{}]}}", post("d-1"));
    let found = requests(looked_up_before_created, &format!("[{first}]"));
    let path = "/x/dp-client-certificates";
    let created = format!("POST {path} (201) \"d-1\" (None, None)");
    assert_eq!(found, [format!("GET {path} (200) [] (None, None)"), created]);
    let steps = format!("[{first}, {{requests: [{}], objects: [{object}]}}]", post("d-2"));
    let found = requests(looked_up_before_created, &steps);
    assert_eq!(found, [format!("GET {path} (200) [\"d-1\"] (None, None)")]);
    let found = expected(looked_up_before_created, &steps).objects;
    assert_eq!(found.values().next().unwrap()["status"]["konnect"]["id"], "d-1");
}

#[test]
fn a_deletion_without_a_grant_takes_the_entity_first() {
    let object = "{kind: KongService, name: svc, deleting: true, finalizers: [gateway.konghq.com/konnect-cleanup], \
         status: {conditions: [{type: A, reason: RefNotPermitted}]}}";
    let steps = format!(
        "[{{requests: [{POST}, answer: {{status: 201, id: a}}}}]}}, {{objects: [{object}]}}]"
    );
    let found = requests(deletions_complete, &steps);
    assert_eq!(found, ["DELETE /x/services/a (204) null (None, None)"]);
    assert!(expected(deletions_complete, &steps).objects.is_empty());
}

#[test]
fn a_deletion_without_a_token_says_so() {
    let programmed = |status: &str| {
        let steps = format!(
            "[{{objects: [{{kind: KongRoute, name: r, deleting: true, finalizers: [{CLEANUP}], status: {{conditions: [\
             {{type: APIAuthValid, status: '{status}'}}, {{type: Programmed, status: 'True', reason: Programmed}}]}}}}]}}]"
        );
        let found = expected(deletions_without_token_say_so, &steps);
        conditions(found.objects.values().next().unwrap())["Programmed"]["reason"].clone()
    };
    assert_eq!(programmed("False"), "KonnectAPIOpFailed");
    assert_eq!(programmed("True"), "Programmed");
}

#[test]
fn a_service_whose_certificate_is_gone_takes_its_entity_along() {
    let steps = |status: &str| {
        let object = format!(
            "{{kind: KongService, name: svc, status: {{konnect: {{id: a}}, conditions: [\
             {{type: KongCertificateRefValid, status: '{status}', message: 'KongCertificate c not found'}}]}}}}"
        );
        let made = format!("{{requests: [{POST}, answer: {{status: 201, id: a}}}}]}}");
        format!("[{made}, {{objects: [{object}]}}, {{gone: [{{kind: KongService, name: svc}}]}}]")
    };
    let found = requests(services_take_their_entities_along, &steps("False"));
    assert_eq!(found, ["DELETE /x/services/a (204) null (None, None)"]);
    let found = requests(services_take_their_entities_along, &steps("True"));
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn an_entity_waits_for_what_it_refers_to() {
    let late = "{kind: KongKey, name: k, status: {konnect: {controlPlaneID: c, id: i}, conditions: [\
         {type: KeySetRefValid, status: 'False', message: 'KongKeySet s is not programmed yet'}, \
         {type: Programmed, status: 'True', reason: Programmed}]}}";
    let post = "{method: POST, path: /x/keys, body: {tags: ['k8s-uid:UID-KongKey-k']}, answer: {status: 201, id: i}}";
    let steps = format!("[{{requests: [{post}], objects: [{late}]}}]");
    let found = expected(unprogrammed_references_are_waited_for, &steps);
    assert_eq!(found.requests.len(), 0);
    let object = found.objects.values().next().unwrap();
    assert_eq!(object["status"]["konnect"], json!({"controlPlaneID": "c"}));
    assert_eq!(
        conditions(object)["Programmed"]["message"],
        "Some conditions have status set to False"
    );
}

#[test]
fn a_group_that_was_joined_is_not_joined_again() {
    let consumer = "{kind: KongConsumer, name: c, status: {konnect: {id: i}, conditions: [\
         {type: Programmed, status: 'False', reason: FailedToAttachConsumerToConsumerGroup}]}}";
    let join = |group: &str| {
        let path = format!("/x/consumer_groups/{group}/consumers");
        format!("{{method: POST, path: {path}, body: {{consumer: i}}, answer: {{status: 201}}}}")
    };
    let (a, b) = (join("a"), join("b"));
    let steps = format!("[{{objects: [{consumer}], requests: [{a}]}}, {{requests: [{a}, {b}]}}]");
    let found = requests(groups_that_are_there_are_joined, &steps);
    assert_eq!(found, ["POST /x/consumer_groups/b/consumers (201) null (None, None)"]);
}

#[test]
fn an_unmet_reference_is_told() {
    for (held, reason) in [
        (
            "{type: ResolvedRefs, status: 'False', reason: RefNotPermitted}",
            "ConditionWithStatusFalseExists",
        ),
        (
            "{type: SecretRefValid, status: 'False', reason: Invalid}",
            "ConditionWithStatusFalseExists",
        ),
        ("{type: SecretRefValid, status: 'True', reason: Valid}", "Pending"),
    ] {
        let steps = format!(
            "[{{objects: [{{kind: KongCACertificate, name: c, status: {{conditions: [{held}, \
             {{type: Programmed, status: Unknown, reason: Pending}}]}}}}]}}]"
        );
        let found = expected(unmet_references_are_told, &steps);
        let told = conditions(found.objects.values().next().unwrap())["Programmed"].clone();
        assert_eq!(told["reason"], reason, "{held}");
    }
}

#[test]
fn a_pause_that_outlasts_its_step_is_told() {
    let answer = "answer: {status: 429, headers: {Retry-After: '60'}}";
    let message = r#"API error occurred: Status 429\n{\"a\": 1}"#;
    let object = format!(
        "{{kind: KongService, name: svc, status: {{conditions: [{{type: Programmed, message: \"{message}\"}}]}}}}"
    );
    let steps = format!(
        "[{{waitSeconds: 9, requests: [{POST}, {answer}}}, {POST}, {answer}, secondsSincePrevious: 0}}], objects: [{object}]}}]"
    );
    let found = expected(pauses_are_kept, &steps);
    assert_eq!(found.requests.len(), 1);
    let object = found.objects.values().next().unwrap();
    let told = text(&conditions(object)["Programmed"], "/message").to_owned();
    assert!(told.ends_with("; nothing is sent until TIME"), "{told}");
}

#[test]
fn an_entity_waits_for_its_control_plane_without_a_call() {
    let object = |state: &str| {
        format!(
            "{{kind: KongService, name: svc, {state}, finalizers: [gateway.konghq.com/konnect-cleanup], status: {{conditions: [\
             {{type: ControlPlaneRefValid, status: 'False', reason: NotProgrammed}}, \
             {{type: Programmed, status: Unknown, reason: Pending}}]}}}}"
        )
    };
    let asked =
        "{method: GET, path: /v2/control-planes//core-entities/services, answer: {status: 404}}";
    let steps = |state: &str| format!("[{{requests: [{asked}], objects: [{}]}}]", object(state));
    let found = expected(control_planes_are_waited_for, &steps("generation: 1"));
    assert_eq!(found.requests.len(), 0);
    let programmed = conditions(found.objects.values().next().unwrap())["Programmed"].clone();
    assert_eq!(
        programmed["message"],
        "can't create KongService ns/svc without a Konnect ControlPlane ID"
    );
    let found = expected(control_planes_are_waited_for, &steps("deleting: true"));
    assert!(found.objects.is_empty());
}

#[test]
fn a_binding_goes_with_any_kind_of_target() {
    let finalizer = "gateway.konghq.com/cleanup-plugin-binding";
    for (kind, field) in [("KongRoute", "routeRef"), ("KongConsumer", "consumerRef")] {
        let steps = format!(
            "[{{objects: [{{kind: {kind}, name: t, deleting: true, finalizers: [{finalizer}]}}, \
             {{kind: KongPluginBinding, name: b, spec: {{targets: {{{field}: {{name: t}}}}}}}}]}}]"
        );
        let found = expected(targets_take_their_bindings_along, &steps);
        assert!(found.objects.is_empty(), "{kind}: {found:?}");
    }
}

#[test]
fn a_configuration_is_patched_from_secrets() {
    let plugin = "{kind: KongPlugin, metadata: {name: p}, plugin: rate-limiting, config: {policy: local}, configPatches: [\
         {path: /minute, valueFrom: {secretKeyRef: {name: s, key: k}}}]}";
    let body =
        "{name: rate-limiting, config: {policy: local}, tags: ['k8s-uid:UID-KongPluginBinding-b']}";
    let steps = format!(
        "[{{apply: [{{kind: Secret, metadata: {{name: s}}, stringData: {{k: '7'}}}}, {plugin}], \
         requests: [{{method: POST, path: /x/plugins, body: {body}, answer: {{status: 201, id: i}}}}]}}]"
    );
    let found = expected(configuration_from_secrets_is_sent, &steps);
    assert_eq!(found.requests[0].body["config"], json!({"policy": "local", "minute": 7}));
}
