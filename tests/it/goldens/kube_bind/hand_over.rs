//! From the original to ours, and back: the objects are as the original leaves them, with its field
//! managers. They are played from the record: what it creates and updates is written under the name
//! of its program, and a changed spec at the provider is applied under `kube-bind.io`.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{
    format::{Action, After, Scenario, Side, Step},
    memory::{self, Memory},
    recorded, settle,
    stage::{self, World as _},
    state::{GROUP, Key, State, differences},
};
use crate::goldens::scenario::{Of, Verb, conditions_mut, mapped, merged, path_of, send, text};

type Stage = stage::Stage<Memory>;

/// The field managers of the original: its program, and what it applies with.
const MANAGERS: [&str; 2] = ["konnector", "kube-bind.io"];
/// The time of the original's conditions and heartbeat: shortly before the hand-over.
const TIME: &str = "2025-12-31T23:59:00Z";
const CALM: std::time::Duration = std::time::Duration::from_secs(4);

/// Writes as the original.
fn write(stage: &Stage, side: Side, method: &str, path: &str, body: &Value) -> anyhow::Result<()> {
    let (content, manager) = match method {
        "APPLY" => ("application/apply-patch+yaml", "kube-bind.io&force=true"),
        "PATCH" => ("application/merge-patch+json", MANAGERS[0]),
        _ => ("application/json", MANAGERS[0]),
    };
    let request = http::Request::builder()
        .method(if method == "POST" { "POST" } else { "PATCH" })
        .uri(format!("{path}?fieldManager={manager}"))
        .header("content-type", content);
    let (status, answer) = stage.world.cluster(side).api().answer(request.body(body.to_string())?);
    ensure!((200..=299).contains(&status), "{method} {path}: {answer}");
    Ok(())
}

/// Returns an object of the record as it can be written: with values for its placeholders.
fn writable(stage: &mut Stage, object: &Value) -> anyhow::Result<Value> {
    let filled = stage.names.filled(object)?;
    let mut written = mapped(&filled, &mut |text| {
        Ok(if text == "TIME" { TIME.to_owned() } else { text.to_owned() })
    })?;
    for condition in conditions_mut(&mut written) {
        condition["lastTransitionTime"] = TIME.into();
    }
    Ok(written)
}

fn create(stage: &mut Stage, side: Side, object: &Value) -> anyhow::Result<()> {
    let object = writable(stage, object)?;
    let path = path_of(stage.world.cluster(side), &Of::object(&object)?)?;
    // What the backend has made is there already.
    let objects = stage.world.cluster(side).api().objects();
    if !objects.iter().any(|made| Key::of(side, made) == Key::of(side, &object)) {
        let (collection, _) = path.rsplit_once('/').context("a path")?;
        write(stage, side, "POST", collection, &object)?;
    }
    change(stage, side, &["status".to_owned()], &object)
}

fn change(stage: &mut Stage, side: Side, fields: &[String], object: &Value) -> anyhow::Result<()> {
    let object = writable(stage, object)?;
    let path = path_of(stage.world.cluster(side), &Of::object(&object)?)?;
    for field in fields.iter().filter(|field| object.get(*field).is_some()) {
        match field.as_str() {
            // Definitions get theirs from the API server.
            "status" if object["kind"] == "CustomResourceDefinition" => {}
            "status" => {
                let status = json!({"status": object["status"]});
                write(stage, side, "PATCH", &format!("{path}/status"), &status)?;
            }
            "spec" if side == Side::P => {
                let whole = send(stage.world.cluster(side), Verb::Get, &path, &Value::Null)?;
                let mut whole = merged(&whole, &json!({"metadata": {"managedFields": null}}));
                whole["spec"] = object["spec"].clone();
                write(stage, side, "APPLY", &path, &whole)?;
            }
            field => write(stage, side, "PATCH", &path, &json!({field: object[field]}))?,
        }
    }
    Ok(())
}

/// Plays a step: the actions, and what the original then does.
fn play(stage: &mut Stage, step: &Step) -> anyhow::Result<()> {
    for action in &step.actions {
        if !matches!(action, Action::Konnector(_) | Action::Wait(_) | Action::Sleep(_)) {
            stage.act(action)?;
        }
    }
    stage.learn()?;
    // Namespaces come after what asks for them, and objects of bound kinds after their namespaces.
    let mut in_order: Vec<&After> = step.after.iter().collect();
    in_order.sort_by_key(|after| (after.key().is_custom(), after.key().kind == "Namespace"));
    for after in in_order {
        if let After::New(side, object) = after {
            create(stage, *side, object)?;
            stage.rest()?;
        }
    }
    for after in &step.after {
        if let After::Changed(side, fields, object) = after {
            change(stage, *side, fields, object)?;
            stage.rest()?;
        }
    }
    Ok(())
}

/// Returns whether an object is synchronised in the second step of a scenario.
fn has_object(scenario: &Scenario) -> bool {
    let starts = |step: &Step| {
        let installs =
            |after: &After| matches!(after, After::New(..)) && after.key().is_definition();
        let is_start = matches!(step.actions.last(), Some(Action::Konnector(true)));
        is_start && step.gone.is_empty() && step.after.iter().any(installs)
    };
    let is_copy = |after: &After| {
        let key = after.key();
        matches!(after, After::New(..)) && key.side == Side::P && key.is_custom()
    };
    match &scenario.steps[..] {
        [first, second, ..] => {
            starts(first) && second.gone.is_empty() && second.after.iter().any(is_copy)
        }
        _ => false,
    }
}

/// The uid of each object, and the times of its conditions.
fn identities(stage: &Stage) -> BTreeMap<String, (String, Vec<String>)> {
    let mut identities = BTreeMap::new();
    for side in [Side::P, Side::C] {
        for mut object in stage.world.cluster(side).api().objects() {
            let times = conditions_mut(&mut object)
                .map(|of| format!("{} {}", text(of, "/type"), text(of, "/lastTransitionTime")))
                .collect();
            let key = Key::of(side, &object).to_string();
            identities.insert(key, (text(&object, "/metadata/uid").to_owned(), times));
        }
    }
    identities
}

/// Returns a state without what ours adds to bindings.
fn without_finalizers(mut state: State) -> State {
    for (_, binding) in
        state.iter_mut().filter(|(key, _)| key.is(Side::C, GROUP, "APIServiceBinding"))
    {
        binding["metadata"].as_object_mut().and_then(|metadata| metadata.remove("finalizers"));
    }
    state
}

/// Hands over to ours, which must change nothing but its finalizers.
fn to_ours(stage: &mut Stage) -> anyhow::Result<()> {
    stage.learn()?;
    let (before, known) = (stage.sight().state, identities(stage));
    stage.world.hand_over(Some(&MANAGERS));
    stage.calm_down(CALM)?;
    let found = differences(&without_finalizers(before), &without_finalizers(stage.sight().state));
    ensure!(found.is_empty(), "{found:#?}");
    let now = identities(stage);
    for (key, identity) in known {
        ensure!(now.get(&key) == Some(&identity), "{key}: {identity:?}, {:?}", now.get(&key));
    }
    let failures = stage.world.failures();
    ensure!(failures.is_empty(), "{failures:?}");
    Ok(())
}

fn spec(stage: &Stage, key: &Key) -> Value {
    stage.sight().state.get(key).and_then(|object| object.get("spec")).cloned().unwrap_or_default()
}

/// Takes a field out of spec at home, and looks for it at the provider.
fn take_out(stage: &mut Stage, home: &Key, there: &Key) -> anyhow::Result<()> {
    let object = stage.sight().state.get(home).cloned().context("the object at home")?;
    let path = path_of(stage.world.cluster(Side::C), &Of::object(&object)?)?;
    let field = spec(stage, home).as_object().and_then(|spec| spec.keys().next().cloned());
    let field = field.context("a field of spec")?;
    ensure!(spec(stage, there).get(&field).is_some(), "{there}: {}", spec(stage, there));
    send(
        stage.world.cluster(Side::C),
        Verb::Merge,
        &path,
        &json!({"spec": {field.clone(): null}}),
    )?;
    stage.calm_down(CALM)?;
    ensure!(spec(stage, there).get(&field).is_none(), "{there}: {}", spec(stage, there));
    Ok(())
}

/// Returns the pairs of objects at home and at the provider that a scenario synchronises.
fn pairs(scenario: &Scenario) -> Vec<(Key, Key)> {
    let step = &scenario.steps[1];
    let copies = step.after.iter().filter_map(|after| match after {
        After::New(Side::P, object) if after.key().is_custom() => {
            let uid = text(object, "/metadata/annotations/kube-bind.io~1consumer-uid");
            let title = uid.strip_prefix("${UID C ")?.strip_suffix('}')?;
            let (kind, name) = title.split_once(' ')?;
            let (namespace, name) = name.split_once('/').unwrap_or(("", name));
            let [kind, namespace, name] = [kind, namespace, name].map(str::to_owned);
            let home = Key { side: Side::C, kind, namespace, name, ..after.key() };
            Some((home, after.key()))
        }
        _ => None,
    });
    copies.collect()
}

fn there_and_back(scenario: &Scenario, definitions: &[Value]) -> anyhow::Result<()> {
    let mut stage = memory::stage(scenario, definitions, settle)?;
    for step in &scenario.steps[..2] {
        play(&mut stage, step)?;
    }
    to_ours(&mut stage)?;
    let pairs = pairs(scenario);
    for (home, there) in &pairs {
        while spec(&stage, home).as_object().is_some_and(|spec| !spec.is_empty()) {
            take_out(&mut stage, home, there)?;
        }
    }
    // Back: the original goes on with a changed spec, which it applies by force.
    stage.world.hand_over(None);
    for (home, there) in &pairs {
        let mut copy =
            stage.sight().state.get(there).cloned().context("the object at the provider")?;
        copy["spec"] = json!({"intent": "back", "stages": 5});
        let home = stage.sight().state.get(home).cloned().context("the object at home")?;
        let path = path_of(stage.world.cluster(Side::C), &Of::object(&home)?)?;
        let spec = json!({"spec": copy["spec"]});
        send(stage.world.cluster(Side::C), Verb::Merge, &path, &spec)?;
        change(&mut stage, Side::P, &["spec".to_owned()], &copy)?;
    }
    // And to ours once more.
    to_ours(&mut stage)
}

#[test]
fn objects_of_the_original_are_taken_over_and_given_back_as_they_are() {
    let (scenarios, definitions) = recorded();
    let mut count = 0;
    for scenario in scenarios.iter().filter(|scenario| has_object(scenario)) {
        let done = there_and_back(scenario, &definitions);
        done.unwrap_or_else(|error| panic!("{}: {error:#}", scenario.name));
        count += 1;
    }
    assert!(count > 0, "no scenario synchronises an object in its second step");
}
