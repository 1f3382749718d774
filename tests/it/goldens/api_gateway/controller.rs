//! Cases of whole reconciles, one or several in a row.

use std::time::Duration;

use mortise::commands::simulate::{Input, simulate};
use mortise_host::host::Loaded;
use mortise_tests::goldens::{Case, sorted};
use serde_json::{Value, json};

use super::{Comparison, input, output};

const STEP: &str = "gateway.kyma-project.io/migration-step";

pub(super) async fn run(case: &Case, loaded: &Loaded, comparison: &mut Comparison) {
    let rounds = case.expected["controllerRounds"].as_array().cloned();
    let rounds = rounds.unwrap_or_else(|| vec![case.expected["controller"].clone()]);
    let mut input = input::of(case);
    for (number, original) in (1..).zip(&rounds) {
        let name = format!("round {number}");
        let next = Input { objects: input.objects.clone(), crds: input.crds.clone(), ..at(&input) };
        let end = match simulate(loaded.clone(), next).await {
            Ok(end) => end,
            Err(error) => return comparison.tally.failed(&case.name, &name, &format!("{error:#}")),
        };
        let status = output::status(&end, case);
        comparison.part(
            case,
            &format!("{name} status"),
            &output::recorded_status(original),
            &status,
        );
        let object = output::object(&end, case);
        let step = object.and_then(|object| object["metadata"]["annotations"].get(STEP));
        comparison.part(case, &format!("{name} step"), &original["migrationStep"], &json!(step));
        if let Some(objects) = original["objects"].as_array() {
            let produced = end.objects.iter().filter(|object| output::is_produced(object));
            let ours = sorted(produced.map(output::produced).collect());
            let original = sorted(objects.iter().map(output::produced).collect());
            comparison.part(case, &format!("{name} objects"), &original, &ours);
        }
        let after = status["requeueAfterSeconds"].as_u64().unwrap_or_default();
        input.now += Duration::from_secs(after);
        input.objects = end.objects.into_iter().map(loadable).collect();
    }
}

/// Returns the part of an input that is the same in each round.
fn at(input: &Input) -> Input {
    Input {
        objects: Vec::new(),
        crds: Vec::new(),
        clusters: Vec::new(),
        now: input.now,
        missing_kinds: input.missing_kinds.clone(),
        validate: input.validate,
        only: input.only.clone(),
        rounds: input.rounds,
    }
}

/// Returns an object without what the server sets.
fn loadable(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["managedFields", "resourceVersion", "generation"] {
        metadata.remove(field);
    }
    object
}
