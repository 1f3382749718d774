//! Runs a scenario, and compares the clusters after each step with the record.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::{
    differences::{Differences, Facts},
    format::{Action, After, Scenario, Side, Step},
    stage::{Acted, Sight, Stage, World},
    state::{Key, State, differences, recorded},
};
use crate::goldens::scenario::{Refused, Report, caught, change, merged, of_step};

/// The state according to the record.
#[derive(Debug, Default)]
struct Record {
    state: State,
    /// The last form of each object that the record no longer has.
    removed: State,
    /// The objects that actions have deleted.
    deleted: BTreeSet<Key>,
    /// The objects that the record has lost at any time, and not by an action.
    lost: BTreeSet<Key>,
    /// The objects of ours as actions have left them.
    given: State,
    /// The state of ours after the step before.
    before: State,
    /// The former specs of each object at home.
    former: BTreeMap<Key, Vec<Value>>,
}

/// Runs a scenario to the first step that differs from the record.
pub(super) fn run<W: World>(
    scenario: &Scenario,
    stage: &mut Stage<W>,
    intended: &Differences,
) -> Report {
    let mut report = Report::default();
    let mut record = Record::default();
    for index in 0..scenario.steps.len() {
        let outcome = caught(|| run_step(stage, &mut record, scenario, index, intended));
        let differences = match outcome {
            Ok((differences, reasons)) => {
                report.reasons.extend(reasons);
                differences
            }
            Err(error) => vec![error],
        };
        if !differences.is_empty() {
            let step = (index, scenario.steps.len());
            report.differences = of_step(step, differences, &stage.world.failures());
            break;
        }
    }
    report
}

/// Returns the differences between the clusters and the record after a step, and the reasons of
/// those that are intended. Conditions that did not come to hold are told only together with a
/// difference: the state is what counts.
fn run_step<W: World>(
    stage: &mut Stage<W>,
    record: &mut Record,
    scenario: &Scenario,
    index: usize,
    intended: &Differences,
) -> anyhow::Result<(Vec<String>, BTreeSet<String>)> {
    let (step, later) = (&scenario.steps[index], &scenario.steps[index + 1..]);
    for action in &step.actions {
        let acted = match stage.act(action) {
            Err(error) if record.has_alone(action, &stage.sight().state, &error) => None,
            acted => acted.with_context(|| format!("{action:?}"))?,
        };
        if let Action::Delete(side, of) = action {
            let key = Key::named(*side, of);
            record.given.remove(&key);
            record.deleted.insert(key);
        }
        if let Some(acted) = acted {
            record.answered(acted);
        }
    }
    record.apply(step)?;
    let is_as_recorded = |sight: &Sight| record.compare(sight, later, intended).0.is_empty();
    let unmet = stage.reach(&step.until, step.within, Some(&is_as_recorded))?;
    stage.calm_down(step.quiet)?;
    let sight = stage.sight();
    let (found, reasons) = record.compare(&sight, later, intended);
    record.learn(sight.state);
    let unmet = unmet.into_iter().filter(|_| !found.is_empty());
    let unmet = unmet.map(|unmet| format!("waited in vain: {unmet}"));
    Ok((unmet.chain(found.iter().cloned()).collect(), reasons))
}

// === impl Record ===

impl Record {
    /// Returns the differences between the clusters and the record, and the reasons of those that
    /// are intended.
    fn compare(
        &self,
        sight: &Sight,
        later: &[Step],
        intended: &Differences,
    ) -> (Vec<String>, BTreeSet<String>) {
        let Self { state, removed, deleted, lost, given, before, former } = self;
        let Sight { state: actual, is_running, unreachable } = sight;
        let is_running = *is_running;
        let facts = Facts {
            actual,
            before,
            removed,
            deleted,
            lost,
            given,
            former,
            unreachable,
            is_running,
            later,
        };
        let (expected, reasons) = intended.apply(&facts, state);
        (differences(&expected, actual), reasons)
    }

    /// Takes over what an action has made of the state of ours: an object that it has created, or
    /// its change of an object. The status of a definition is the work of others.
    fn answered(&mut self, Acted { key, before, after }: Acted) {
        let Some(object) = after else { return };
        self.given.insert(key.clone(), object.clone());
        let object = match (before, self.state.get(&key)) {
            (Some(former), Some(recorded)) => {
                let mut change = change(&former, &object);
                if let Some(fields) = change.as_object_mut().filter(|_| key.is_definition()) {
                    fields.remove("status");
                }
                merged(recorded, &change)
            }
            _ => object,
        };
        self.removed.remove(&key);
        self.state.insert(key, object);
    }

    /// Returns whether an action fails since ours, on purpose, does not have the object, which the
    /// record has. The action is then done on the record alone.
    fn has_alone(&mut self, action: &Action, ours: &State, error: &anyhow::Error) -> bool {
        let is_missing = error.downcast_ref::<Refused>().is_some_and(|error| error.status == 404);
        let (side, of, change) = match action {
            Action::Patch(side, of, merge) => (side, of, merge.clone()),
            Action::Status(side, of, merge) => (side, of, json!({"status": merge})),
            Action::Delete(side, of) => (side, of, Value::Null),
            _ => return false,
        };
        let key = Key::named(*side, of);
        match self.state.get_mut(&key).filter(|_| is_missing && !ours.contains_key(&key)) {
            Some(object) => {
                if !change.is_null() {
                    *object = merged(object, &change);
                }
                true
            }
            None => false,
        }
    }

    /// Learns the state of ours after a step.
    fn learn(&mut self, actual: State) {
        for (key, object) in actual.iter().filter(|(key, _)| key.side == Side::C && key.is_custom())
        {
            let former = self.former.entry(key.clone()).or_default();
            former.extend(object.get("spec").filter(|spec| former.last() != Some(spec)).cloned());
        }
        self.before = actual;
    }

    /// Applies the recorded consequences of a step.
    fn apply(&mut self, step: &Step) -> anyhow::Result<()> {
        for after in &step.after {
            after.apply(&mut self.state)?;
            self.removed.remove(&after.key());
        }
        for key in &step.gone {
            let last = self.state.remove(key).with_context(|| format!("{key} was not there"))?;
            self.removed.insert(key.clone(), last);
            if !self.deleted.contains(key) {
                self.lost.insert(key.clone());
            }
        }
        Ok(())
    }
}

// === impl After ===

impl After {
    pub(super) fn key(&self) -> Key {
        match self {
            Self::New(side, object) | Self::Changed(side, _, object) => Key::of(*side, object),
        }
    }

    /// Changes a state as the record says.
    ///
    /// # Errors
    ///
    /// Fails if the record changes an object that is not there.
    pub(super) fn apply(&self, state: &mut State) -> anyhow::Result<()> {
        let key = self.key();
        match self {
            Self::New(_, object) => {
                state.insert(key, recorded(object.clone()));
            }
            Self::Changed(_, fields, object) => {
                let held = state.get_mut(&key).and_then(Value::as_object_mut);
                let held = held.with_context(|| format!("{key} has changed, but was not there"))?;
                let recorded = recorded(object.clone());
                for field in fields {
                    match recorded.get(field).filter(|value| !value.is_null()) {
                        Some(value) => held.insert(field.clone(), value.clone()),
                        None => held.remove(field),
                    };
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use mortise_sdk::testing::{Settled, Stub};
    use mortise_tests::goldens;

    use super::{
        super::{
            ORIGINAL,
            format::Named,
            memory::{Settle, run},
        },
        *,
    };
    use crate::goldens::scenario::definitions;

    const OBJECTS: &str = "
team: {apiVersion: v1, kind: Namespace, metadata: {name: team}}
room: {apiVersion: v1, kind: Namespace, metadata: {name: room}}
asked: {apiVersion: kube-bind.io/v1alpha2, kind: APIServiceNamespace, metadata: {name: team, namespace: room}, spec: {}}
";
    const MADE: &str = "{cluster: C, new: {apiVersion: v1, kind: ConfigMap, metadata: {name: made, namespace: team}, data: {a: b}}}";

    fn nothing(_: &Stub) -> Settled {
        Settled::default()
    }

    /// A processor that makes one object, ten seconds after its start.
    fn late(stub: &Stub) -> Settled {
        const START: u64 = 1_767_225_600_000;
        let made = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made", "namespace": "team"}, "data": {"a": "b"}});
        if stub.host().now() >= START + 10_000 {
            stub.apply(&made);
        }
        Settled::default()
    }

    fn fails(_: &Stub) -> Settled {
        panic!("a fault")
    }

    fn run_text(text: &str, settle: Settle) -> Vec<String> {
        let named = Named::read(OBJECTS).unwrap();
        let scenario = Scenario::parse("test", &format!("about: a test\n{text}"), &named).unwrap();
        let crds = definitions(&goldens::root().join(ORIGINAL).join("crds")).unwrap();
        run(&scenario, &crds, settle, &Differences::none()).differences
    }

    #[test]
    fn a_scenario_differs_by_step_object_and_field() {
        let step = |rest: &str| {
            format!("steps: [{{do: [{{create: C, use: team}}, {{konnector: start}}], {rest}}}]")
        };
        let until = "until: [{C: {kind: ConfigMap, namespace: team, name: made}}]";
        let cases: [(String, Settle, &[&str]); 9] = [
            (step(&format!("{until}, after: [{MADE}]")), late, &[]),
            (step("after: []"), nothing, &[]),
            (
                step(&format!("{until}, after: [{MADE}]")),
                nothing,
                &[
                    "waited in vain: C ConfigMap team/made is not there",
                    "C ConfigMap team/made: is not there",
                ],
            ),
            (
                step(&format!("{until}, withinSeconds: 5, after: [{MADE}]")),
                late,
                &[
                    "waited in vain: C ConfigMap team/made is not there",
                    "C ConfigMap team/made: is not there",
                ],
            ),
            (step("quietSeconds: 9, after: []"), late, &[]),
            (step("quietSeconds: 12, after: []"), late, &["C ConfigMap team/made: is there"]),
            (
                step(&format!("{until}, after: [{}]", MADE.replace("a: b", "a: c"))),
                late,
                &["C ConfigMap team/made /data/a: expected \"c\", found \"b\""],
            ),
            (
                step("gone: [{cluster: C, kind: Namespace, name: team}]"),
                nothing,
                &["C Namespace team: is there"],
            ),
            (step("after: []"), fails, &["panicked: a fault"]),
        ];
        for (text, settle, expected) in cases {
            let found = run_text(&text, settle);
            assert_eq!(found.len(), expected.len(), "{text}: {found:#?}");
            for (found, expected) in found.iter().zip(expected) {
                let expected = format!("step 1 of 1: {expected}");
                assert!(found.starts_with(&expected), "{text}: {found}");
            }
        }
    }

    #[test]
    fn what_an_action_makes_is_expected_in_the_next_steps() {
        let text = |gone: &str| {
            format!(
                "steps: [{{do: [{{create: C, use: team}}]}}, {{do: [{{patch: C, of: {{apiVersion: v1, kind: Namespace, name: team}}, \
                 merge: {{metadata: {{labels: {{a: b}}}}}}}}]}}, {{do: [{{delete: C, of: {{apiVersion: v1, kind: Namespace, name: team}}}}], {gone}}}]"
            )
        };
        let gone = "gone: [{cluster: C, kind: Namespace, name: team}]";
        assert_eq!(run_text(&text(gone), nothing), Vec::<String>::new());
        let found = run_text(&text("after: []"), nothing);
        assert_eq!(found, ["step 3 of 3: C Namespace team: is not there"]);
    }

    /// A processor that adds a label at once.
    fn labels(stub: &Stub) -> Settled {
        stub.patch(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": {"c": "d"}}}));
        Settled::default()
    }

    #[test]
    fn a_fault_does_not_hide_behind_an_action_on_the_same_object() {
        let patch = "{patch: C, of: {apiVersion: v1, kind: Namespace, name: team}, merge: {metadata: {annotations: {a: b}}}}";
        let text = format!(
            "steps: [{{do: [{{create: C, use: team}}, {{konnector: start}}, {{sleep: 1}}, {patch}]}}]"
        );
        let found = run_text(&text, labels);
        let expected =
            "step 1 of 1: C Namespace team /metadata/labels: expected null, found {\"c\":\"d\"}";
        assert_eq!(found, [expected]);
    }

    #[test]
    fn a_processor_that_is_stopped_does_nothing() {
        let start = "{create: C, use: team}, {konnector: start}, {konnector: stop}, {sleep: 20}";
        let found = run_text(&format!("steps: [{{do: [{start}]}}]"), late);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn the_backend_makes_namespaces_and_takes_them_away() {
        let asked = "{apiVersion: kube-bind.io/v1alpha2, kind: APIServiceNamespace, namespace: room, name: team}";
        let made = "{cluster: P, new: {apiVersion: v1, kind: Namespace, metadata: {name: room-team, annotations: {kube-bind.io/api-service-namespace: room/team}}}}, \
             {cluster: P, changed: [status], object: {apiVersion: kube-bind.io/v1alpha2, kind: APIServiceNamespace, metadata: {name: team, namespace: room}, status: {namespace: room-team}}}";
        let gone = "{cluster: P, kind: Namespace, name: room-team}, {cluster: P, group: kube-bind.io, kind: APIServiceNamespace, namespace: room, name: team}";
        let text = format!(
            "steps: [{{do: [{{create: P, use: room}}, {{create: P, use: asked}}], after: [{made}]}}, \
             {{do: [{{delete: P, of: {asked}}}], gone: [{gone}]}}]"
        );
        assert_eq!(
            run_text(&format!("backend: [namespaces]\n{text}"), nothing),
            Vec::<String>::new()
        );
        let found = run_text(&text, nothing);
        let [namespace, status] = &found[..] else { panic!("{found:#?}") };
        assert!(namespace.ends_with("P Namespace room-team: is not there"), "{namespace}");
        assert!(status.contains("APIServiceNamespace room/team /status: expected"), "{status}");
    }

    #[test]
    fn an_action_that_is_refused_is_told() {
        let found = run_text("steps: [{do: [{create: C, use: asked}]}]", nothing);
        assert!(found[0].starts_with("step 1 of 1: Create(C, "), "{found:#?}");
        assert!(found[0].contains("is not served"), "{found:#?}");
    }
}
