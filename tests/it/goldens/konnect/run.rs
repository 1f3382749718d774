//! Runs a scenario, and compares requests and objects after each step with the record.

use super::{
    differences::{Consequences, Differences, Facts, History},
    format::{Refusal, Scenario, Step},
    request::{self, Normal, Request, Timed},
    stage::{Api, Settle, Stage},
    state::{self, Key, State, key_of, recorded, state_of},
};
use crate::goldens::scenario::{Report, caught, of_step, subject, text};
use konnect_fake::log::Entry;
use mortise_sdk::testing::Stub;
use serde_json::Value;

/// The subject of the scenarios in which the look-ups of control planes do not count.
const RESTART: &str = "restart";

/// The scenario as it goes on.
struct Course<'a> {
    scenario: &'a Scenario,
    stage: Stage<'a>,
    /// The objects according to the record and the rules.
    record: State,
    /// What is left out of the requests of the record, and of ours.
    normals: [Normal; 2],
    history: History,
}

/// Runs a scenario to the first step that differs from the record.
pub(super) fn run(
    scenario: &Scenario,
    crds: &[Value],
    start: fn(Stub, &Api) -> Stub,
    settle: Settle,
    intended: &Differences,
) -> Report {
    let mut report = Report::default();
    let stage = match Stage::new(scenario, crds, start, settle) {
        Ok(stage) => stage,
        Err(error) => {
            report.differences.push(format!("{error:#}"));
            return report;
        }
    };
    let is_without_lookups = subject(&scenario.name) == RESTART;
    let normal = || Normal::new(scenario.without_control_plane, is_without_lookups);
    let mut course = Course {
        scenario,
        stage,
        record: State::new(),
        normals: [normal(), normal()],
        history: History::default(),
    };
    for index in 0..scenario.steps.len() {
        let outcome = caught(|| course.step(index, intended, &mut report));
        let differences = outcome.unwrap_or_else(|error| vec![error]);
        if !differences.is_empty() {
            let step = (index, scenario.steps.len());
            report.differences = of_step(step, differences, &course.stage.failures);
            break;
        }
    }
    report
}

// === impl Course ===

impl Course<'_> {
    /// Runs a step. Returns the differences from the record.
    fn step(
        &mut self,
        index: usize,
        intended: &Differences,
        report: &mut Report,
    ) -> anyhow::Result<Vec<String>> {
        let step = &self.scenario.steps[index];
        let refused = self.stage.act(step)?;
        self.stage.wait(step)?;
        let objects = self.stage.objects()?;
        let timed = self.requests(step, &objects);
        let state = state_of(&objects, &self.stage.names, self.scenario);
        let mut found = differ(&step.refused, &refused);
        if step.setup {
            found.extend(Self::unready(step, &state));
            self.history.learn(step, &timed);
            self.normals[1].skip(timed);
        } else {
            found.extend(self.compare(index, timed, &state, intended, report));
        }
        self.record = state;
        Ok(found)
    }

    /// Returns the requests of ours in a step, in the form of the record.
    fn requests(&mut self, step: &Step, objects: &[Value]) -> Vec<Timed> {
        let token = format!("kpat_{}", self.scenario.name);
        let log = self.stage.requests(step, objects);
        let names = &self.stage.names;
        let timed =
            |entry: &Entry| Timed { at: entry.at, request: Request::of(entry, names, &token) };
        log.iter().map(timed).collect()
    }

    /// Returns the applied objects of a setup step that do not come to be as they should.
    fn unready(step: &Step, state: &State) -> Vec<String> {
        let mut found = Vec::new();
        for object in &step.apply {
            let name = |field: &str| text(object, field).to_owned();
            let key = Key {
                kind: name("/kind"),
                namespace: name("/metadata/namespace"),
                name: name("/metadata/name"),
            };
            let conditions = state.get(&key).map(state::conditions).unwrap_or_default();
            let bad: Vec<&Value> =
                conditions.values().filter(|condition| condition["status"] != "True").collect();
            if conditions.is_empty() || !bad.is_empty() {
                found.push(format!("{key}: does not come to be as in a setup: {bad:?}"));
            }
        }
        found
    }

    fn compare(
        &mut self,
        index: usize,
        timed: Vec<Timed>,
        actual: &State,
        intended: &Differences,
        report: &mut Report,
    ) -> Vec<String> {
        let (earlier, rest) = self.scenario.steps.split_at(index);
        let (step, later) = (&rest[0], &rest[1..]);
        let period = u64::try_from(self.scenario.sync_period.time.as_millis()).unwrap_or(u64::MAX);
        let before = std::mem::take(&mut self.record);
        let sent = timed.clone();
        let ours = Consequences {
            requests: self.normals[1].ours(timed, step, period),
            objects: actual.clone(),
        };
        let record = Consequences {
            requests: self.normals[0].recorded(step),
            objects: applied(before, step),
        };
        let (scenario, history) = (self.scenario, &self.history);
        let facts = Facts { scenario, step, earlier, later, ours: &ours, history };
        let (expected, reasons) = intended.apply(&facts, &record);
        report.reasons.extend(reasons);
        self.history.learn(step, &sent);
        let mut found = request::differences(&expected.requests, &ours.requests);
        found.extend(state::differences(&expected.objects, actual));
        found
    }
}

/// Returns a state with the recorded consequences of a step.
fn applied(mut state: State, step: &Step) -> State {
    for object in &step.objects {
        match recorded(object) {
            Some(shown) => state.insert(key_of(object), shown),
            None => state.remove(&key_of(object)),
        };
    }
    for named in &step.gone {
        state.remove(&Key::named(named));
    }
    state
}

fn differ(expected: &[Refusal], actual: &[Refusal]) -> Vec<String> {
    let is_same = expected == actual;
    let text = || format!("refused: expected {expected:?}, found {actual:?}");
    (!is_same).then(text).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use konnect_fake::Reply;
    use mortise_sdk::testing::Settled;
    use serde_json::json;

    use super::{
        super::{definitions, stage::Running},
        *,
    };

    const PATH: &str = "/v2/control-planes";
    const APPLY: &str = "{kind: KongService, metadata: {name: svc}, spec: {host: a.example, controlPlaneRef: {type: konnectNamespacedRef, konnectNamespacedRef: {name: cp}}}}";
    const OBJECT: &str = "{kind: KongService, name: svc, finalizers: [a/b], generation: 1, status: {konnect: {id: ID-control-planes-1}, \
         conditions: [{type: Programmed, status: Unknown, reason: Pending, message: Waiting for controller}]}}";
    const REQUEST: &str = "{method: POST, path: /v2/control-planes, body: {name: UID-KongService-svc}, answer: {status: 201, id: ID-control-planes-1}}";

    fn post(running: &Running, body: &Value) -> Reply {
        running.api.answer(&konnect_fake::Request {
            method: "POST".to_owned(),
            host: "eu.api.konghq.com".to_owned(),
            path: PATH.to_owned(),
            token: Some("kpat_test".to_owned()),
            body: body.to_string().into_bytes(),
            ..konnect_fake::Request::default()
        })
    }

    fn nothing(_: &Running) -> Settled {
        Settled::default()
    }

    /// A processor that creates something for each service that has no finalizer yet.
    fn creates(running: &Running) -> Settled {
        for service in running.stub.all() {
            if service["kind"] != "KongService" || service["metadata"].get("finalizers").is_some() {
                continue;
            }
            let name = service["metadata"]["uid"].clone();
            let reply = post(running, &json!({"name": name}));
            let Some(answer) = reply.answer().filter(|answer| answer.status == 201) else {
                continue;
            };
            let id = answer.body_value().unwrap()["id"].clone();
            running.stub.patch(&json!({
                "apiVersion": service["apiVersion"], "kind": "KongService", "status": {"konnect": {"id": id}},
                "metadata": {"name": "svc", "namespace": "test", "finalizers": ["a/b"]},
            }));
        }
        Settled::default()
    }

    fn creates_twice(running: &Running) -> Settled {
        let is_new = |object: &Value| {
            object["kind"] == "KongService" && object["metadata"].get("finalizers").is_none()
        };
        let has_new = running.stub.all().iter().any(is_new);
        let settled = creates(running);
        if has_new {
            post(running, &json!({"name": "more"}));
        }
        settled
    }

    fn fails(_: &Running) -> Settled {
        panic!("a fault")
    }

    fn run_text(steps: &str, settle: Settle) -> Vec<String> {
        let text = format!("about: a test\nsyncPeriod: 1h\nnamespace: test\nsteps: {steps}");
        let scenario = Scenario::parse("test", &text).unwrap();
        run(&scenario, &definitions(), |stub, _| stub, settle, &Differences::none()).differences
    }

    #[test]
    fn a_scenario_differs_by_step_request_object_and_field() {
        let step = |requests: &str, objects: &str| {
            format!("[{{apply: [{APPLY}], requests: [{requests}], objects: [{objects}]}}]")
        };
        let cases: [(String, Settle, &[&str]); 8] = [
            (step(REQUEST, OBJECT), creates, &[]),
            (
                step(&REQUEST.replace("name: UID", "name: UI"), OBJECT),
                creates,
                &["/body/name: expected \"UI-KongService-svc\", found \"UID-KongService-svc\""],
            ),
            (step("", OBJECT), creates, &["(201): is sent, which it is not in the record"]),
            (
                step(REQUEST, OBJECT),
                creates_twice,
                &["(201): is sent, which it is not in the record: {\"name\":\"more\"}"],
            ),
            (
                step(REQUEST, OBJECT),
                nothing,
                &[
                    "(201): is not sent",
                    "/finalizers: expected [\"a/b\"], found null",
                    "/status/konnect",
                ],
            ),
            (
                step(REQUEST, &format!("{OBJECT}, {{kind: KongRoute, name: rt}}")),
                creates,
                &["KongRoute rt: is not there"],
            ),
            (step(REQUEST, ""), creates, &["KongService svc: is there"]),
            (step(REQUEST, OBJECT), fails, &["panicked: a fault"]),
        ];
        for (text, settle, expected) in cases {
            let found = run_text(&text, settle);
            assert_eq!(found.len(), expected.len(), "{text}: {found:#?}");
            for (found, expected) in found.iter().zip(expected) {
                assert!(found.starts_with("step 1 of 1: ") && found.contains(expected), "{found}");
            }
        }
    }

    #[test]
    fn what_does_not_change_stays_as_recorded() {
        let first = format!("{{apply: [{APPLY}], requests: [{REQUEST}], objects: [{OBJECT}]}}");
        let patch = "patch: [{kind: KongService, name: svc, merge: {metadata: {labels: {a: b}}}}]";
        assert_eq!(run_text(&format!("[{first}, {{{patch}}}]"), creates), Vec::<String>::new());
        let patch = "patch: [{kind: KongService, name: svc, merge: {spec: {host: b.example}}}]";
        let found = run_text(&format!("[{first}, {{{patch}}}]"), creates);
        assert_eq!(found, ["step 2 of 2: KongService svc /generation: expected 1, found 2"]);
    }

    #[test]
    fn an_operator_that_is_killed_in_a_call_leaves_what_konnect_has_done() {
        let fault = "konnect: [{method: POST, path: control-planes, act: true, delaySeconds: 2.5}]";
        let before = OBJECT
            .replace("finalizers: [a/b], ", "")
            .replace("konnect: {id: ID-control-planes-1}, ", "");
        let killed = format!(
            "{fault}, operator: kill, apply: [{APPLY}], waitSeconds: 2, requests: [{REQUEST}], objects: [{before}]"
        );
        let clash = REQUEST.replace("{status: 201, id: ID-control-planes-1}", "{status: 409, contentType: application/problem+json, body: {status: 409, title: Conflict, \
             instance: 'kong:trace:1234567890123456789', detail: 'Key (org_id, name)=(ID-organization, UID-KongService-svc) already exists.'}}");
        let started = format!("konnect: [], operator: start, waitSeconds: 0, requests: [{clash}]");
        let found = run_text(&format!("[{{{killed}}}, {{}}, {{{started}}}]"), creates);
        assert_eq!(found, Vec::<String>::new());
        let found = run_text(&format!("[{{{killed}}}]"), nothing);
        assert!(
            found[0].ends_with("no request came in which the operator was to be killed"),
            "{found:#?}"
        );
    }

    #[test]
    fn refusals_of_the_api_server_are_compared() {
        let patch = "patch: [{kind: KongService, name: svc, merge: {spec: {host: null}}}]";
        let found = run_text(&format!("[{{apply: [{APPLY}], setup: true}}, {{{patch}}}]"), nothing);
        assert!(found[0].contains("does not come to be as in a setup"), "{found:#?}");
        let first = format!("{{apply: [{APPLY}], requests: [{REQUEST}], objects: [{OBJECT}]}}");
        let found = run_text(&format!("[{first}, {{{patch}}}]"), creates);
        assert!(
            found[0].contains("refused: expected [], found [Refusal { status: 422"),
            "{found:#?}"
        );
        let found = run_text("[{delete: [{kind: KongService, name: none}]}]", nothing);
        assert!(found[0].contains("found [Refusal { status: 404"), "{found:#?}");
    }
}
