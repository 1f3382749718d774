//! The format of the recorded scenarios: parses a scenario, and puts in what it names.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::state::Key;
use crate::goldens::scenario::{self, Of, merged};

/// The file of the objects, actions and conditions that scenarios name.
const NAMED: &str = "objects";
/// How long the conditions of a step may take if it does not say.
const WITHIN: f64 = 25.0;
/// How long nothing may change after a step if it does not say.
const QUIET: f64 = 2.5;
/// The most lists of actions that contain each other.
const MAX_DEPTH: usize = 8;

/// One of the two clusters of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(super) enum Side {
    /// The provider.
    P,
    /// The consumer, where the processor runs.
    C,
}

/// A recorded scenario, with everything in place that it names.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) name: String,
    /// True if somebody makes the provider's namespaces.
    pub(super) has_namespaces: bool,
    pub(super) steps: Vec<Step>,
}

/// A step: actions, what to wait for, and the recorded consequences.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) actions: Vec<Action>,
    pub(super) until: Vec<Condition>,
    pub(super) within: Duration,
    pub(super) quiet: Duration,
    pub(super) after: Vec<After>,
    pub(super) gone: Vec<Key>,
}

/// An action of a step.
#[derive(Debug, Clone)]
pub(super) enum Action {
    /// Creates an object, then writes its status.
    Create(Side, Value),
    /// Changes an object by a JSON merge patch.
    Patch(Side, Of, Value),
    /// Changes the status of an object by a JSON merge patch.
    Status(Side, Of, Value),
    Delete(Side, Of),
    Wait(Vec<Condition>),
    Sleep(Duration),
    /// Starts or stops the processor.
    Konnector(bool),
    /// Opens or closes the proxy to the provider.
    Proxy(bool),
}

/// A condition to wait for: an object has these values, or is absent.
#[derive(Debug, Clone)]
pub(super) struct Condition {
    pub(super) side: Side,
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) is_absent: bool,
    /// The values by JSON pointer, where `[type=x]` picks an item of a list. Null: not there.
    pub(super) values: BTreeMap<String, Value>,
}

/// A recorded consequence of a step.
#[derive(Debug)]
pub(super) enum After {
    /// An object that was not there before.
    New(Side, Value),
    /// Top-level fields of an object that have changed.
    Changed(Side, Vec<String>, Value),
}

/// Returns the scenarios of a folder, sorted by name.
///
/// # Errors
///
/// Fails if a file cannot be read, if a scenario does not parse, or if it names what is not there.
pub(super) fn scenarios(folder: &Path) -> anyhow::Result<Vec<Scenario>> {
    let mut texts = scenario::texts(folder)?;
    let named = Named::read(&texts.remove(NAMED).with_context(|| format!("no `{NAMED}.yaml`"))?);
    let named = named.context(NAMED)?;
    let parse = |(name, text): (&String, &String)| {
        Scenario::parse(name, text, &named).with_context(|| format!("scenario `{name}`"))
    };
    texts.iter().map(parse).collect()
}

fn seconds(seconds: f64) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(seconds).with_context(|| format!("{seconds} seconds"))
}

// === what is named ===

/// Objects, actions and conditions by name.
#[derive(Debug, Default)]
pub(super) struct Named {
    lists: BTreeMap<String, Vec<RawAction>>,
    waits: BTreeMap<String, Vec<RawCondition>>,
    objects: BTreeMap<String, Value>,
}

impl Named {
    pub(super) fn read(text: &str) -> anyhow::Result<Self> {
        let mut whole: Value = serde_saphyr::from_str(text)?;
        let mut named = Self::default();
        if let Some(fields) = whole.as_object_mut() {
            if let Some(lists) = fields.remove("lists") {
                named.lists = serde_json::from_value(lists).context("lists")?;
            }
            if let Some(waits) = fields.remove("waits") {
                named.waits = serde_json::from_value(waits).context("waits")?;
            }
        }
        named.objects = serde_json::from_value(whole)?;
        Ok(named)
    }

    fn conditions(&self, raw: &RawConditions) -> anyhow::Result<Vec<Condition>> {
        match raw {
            RawConditions::Named(name) => {
                let found = self.waits.get(name).with_context(|| format!("no wait `{name}`"))?;
                found.iter().map(RawCondition::condition).collect()
            }
            RawConditions::One(one) => Ok(vec![one.condition()?]),
        }
    }

    fn actions(&self, raw: &[RawAction], depth: usize) -> anyhow::Result<Vec<Action>> {
        ensure!(depth < MAX_DEPTH, "lists contain each other");
        let mut actions = Vec::new();
        for action in raw {
            match &action.list {
                Some(name) => {
                    let list = self.lists.get(name).with_context(|| format!("no list `{name}`"))?;
                    actions.extend(self.actions(list, depth + 1)?);
                }
                None => actions.push(self.action(action).with_context(|| format!("{action:?}"))?),
            }
        }
        Ok(actions)
    }

    fn action(&self, raw: &RawAction) -> anyhow::Result<Action> {
        let of = || raw.of.clone().context("`of` is missing");
        let merge = || raw.merge.clone().context("`merge` is missing");
        Ok(match raw {
            RawAction { create: Some(side), .. } => Action::Create(*side, self.object(raw)?),
            RawAction { patch: Some(side), .. } => Action::Patch(*side, of()?, merge()?),
            RawAction { status: Some(side), .. } => Action::Status(*side, of()?, merge()?),
            RawAction { delete: Some(side), .. } => Action::Delete(*side, of()?),
            RawAction { wait: Some(wait), .. } => Action::Wait(self.conditions(wait)?),
            RawAction { sleep: Some(time), .. } => Action::Sleep(seconds(*time)?),
            RawAction { konnector: Some(Switch::Start), .. } => Action::Konnector(true),
            RawAction { konnector: Some(Switch::Stop), .. } => Action::Konnector(false),
            RawAction { proxy: Some(Gate::Up), .. } => Action::Proxy(true),
            RawAction { proxy: Some(Gate::Down), .. } => Action::Proxy(false),
            _ => bail!(
                "an action is create, patch, status, delete, list, wait, sleep, konnector or proxy"
            ),
        })
    }

    fn object(&self, raw: &RawAction) -> anyhow::Result<Value> {
        let object = match (&raw.named, &raw.object) {
            (Some(name), None) => {
                self.objects.get(name).with_context(|| format!("no object `{name}`"))?
            }
            (None, Some(object)) => object,
            _ => bail!("either `use` or `object`"),
        };
        Ok(match &raw.change {
            Some(change) => merged(object, change),
            None => object.clone(),
        })
    }
}

// === impl Scenario ===

impl Scenario {
    pub(super) fn parse(name: &str, text: &str, named: &Named) -> anyhow::Result<Self> {
        let raw: RawScenario = serde_saphyr::from_str(text)?;
        let mut steps = Vec::new();
        for (index, step) in raw.steps.iter().enumerate() {
            steps.push(step.step(named).with_context(|| format!("step {}", index + 1))?);
        }
        ensure!(!steps.is_empty(), "no steps");
        Ok(Self { name: name.to_owned(), has_namespaces: !raw.backend.is_empty(), steps })
    }
}

// === files as they are ===

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawScenario {
    #[serde(rename = "about")]
    _about: String,
    #[serde(default)]
    backend: Vec<Part>,
    /// Flags of the original's process. Ours watches what the original polls.
    #[serde(default, rename = "konnectorArgs")]
    _arguments: Vec<String>,
    steps: Vec<RawStep>,
}

/// A part of the provider's backend that is played.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Part {
    Namespaces,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawStep {
    #[serde(rename = "about")]
    _about: Option<String>,
    #[serde(default, rename = "do")]
    actions: Vec<RawAction>,
    #[serde(default)]
    until: Vec<RawConditions>,
    within_seconds: Option<f64>,
    quiet_seconds: Option<f64>,
    #[serde(default)]
    after: Vec<RawAfter>,
    #[serde(default)]
    gone: Vec<RawGone>,
    /// The values that conditions took. Another order of the same writes is possible; the last
    /// value is in the state.
    #[serde(default, rename = "transitions")]
    _transitions: Vec<RawTransition>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAction {
    create: Option<Side>,
    #[serde(rename = "use")]
    named: Option<String>,
    object: Option<Value>,
    change: Option<Value>,
    patch: Option<Side>,
    status: Option<Side>,
    delete: Option<Side>,
    of: Option<Of>,
    merge: Option<Value>,
    list: Option<String>,
    wait: Option<RawConditions>,
    sleep: Option<f64>,
    konnector: Option<Switch>,
    proxy: Option<Gate>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Switch {
    Start,
    Stop,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Gate {
    Up,
    Down,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum RawConditions {
    Named(String),
    One(RawCondition),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCondition {
    #[serde(rename = "C")]
    consumer: Option<Object>,
    #[serde(rename = "P")]
    provider: Option<Object>,
    #[serde(default, rename = "match")]
    values: BTreeMap<String, Value>,
    #[serde(default)]
    absent: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Object {
    kind: String,
    #[serde(default)]
    namespace: String,
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAfter {
    cluster: Side,
    new: Option<Value>,
    changed: Option<Vec<String>>,
    object: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawGone {
    cluster: Side,
    #[serde(default)]
    group: String,
    kind: String,
    #[serde(default)]
    namespace: String,
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTransition {
    #[serde(rename = "of")]
    _of: String,
    #[serde(rename = "type")]
    _type: String,
    #[serde(rename = "values")]
    _values: Vec<String>,
}

impl RawStep {
    fn step(&self, named: &Named) -> anyhow::Result<Step> {
        let until: Vec<Vec<Condition>> =
            self.until.iter().map(|raw| named.conditions(raw)).collect::<Result<_, _>>()?;
        let gone = |gone: &RawGone| Key {
            side: gone.cluster,
            group: gone.group.clone(),
            kind: gone.kind.clone(),
            namespace: gone.namespace.clone(),
            name: gone.name.clone(),
        };
        Ok(Step {
            actions: named.actions(&self.actions, 0)?,
            until: until.into_iter().flatten().collect(),
            within: seconds(self.within_seconds.unwrap_or(WITHIN))?,
            quiet: seconds(self.quiet_seconds.unwrap_or(QUIET))?,
            after: self.after.iter().map(RawAfter::after).collect::<Result<_, _>>()?,
            gone: self.gone.iter().map(gone).collect(),
        })
    }
}

impl RawCondition {
    fn condition(&self) -> anyhow::Result<Condition> {
        let (side, Object { kind, namespace, name }) = match (&self.consumer, &self.provider) {
            (Some(object), None) => (Side::C, object.clone()),
            (None, Some(object)) => (Side::P, object.clone()),
            _ => bail!("a condition is of an object on either C or P"),
        };
        let values = self.values.clone();
        Ok(Condition { side, kind, namespace, name, is_absent: self.absent, values })
    }
}

impl RawAfter {
    fn after(&self) -> anyhow::Result<After> {
        Ok(match (&self.new, &self.changed, &self.object) {
            (Some(new), None, None) => After::New(self.cluster, new.clone()),
            (None, Some(changed), Some(object)) => {
                After::Changed(self.cluster, changed.clone(), object.clone())
            }
            _ => bail!("a consequence is either `new`, or `changed` with `object`"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECTS: &str = "
room: {apiVersion: v1, kind: Namespace, metadata: {name: room, labels: {a: b}}}
lists:
  all: [{create: P, use: room}, {list: more}]
  more: [{konnector: start}]
waits:
  there: [{P: {kind: Namespace, name: room}}]
";

    fn parse(text: &str) -> anyhow::Result<Scenario> {
        let text = format!("about: a test\n{text}");
        Scenario::parse("one-case", &text, &Named::read(OBJECTS).unwrap())
    }

    #[test]
    fn what_is_named_stands_in_its_place() {
        let scenario = parse(
            "steps: [{do: [{list: all}, {create: C, use: room, change: {metadata: {labels: null}}}, {wait: there}], until: [there]}]",
        )
        .unwrap();
        let [step] = &scenario.steps[..] else { panic!("{scenario:?}") };
        let [
            Action::Create(Side::P, first),
            Action::Konnector(true),
            Action::Create(Side::C, second),
            Action::Wait(wait),
        ] = &step.actions[..]
        else {
            panic!("{step:?}")
        };
        assert_eq!(first["metadata"]["labels"]["a"], "b");
        assert_eq!(second["metadata"].get("labels"), None);
        assert_eq!((wait[0].name.as_str(), step.until.len()), ("room", 1));
        assert_eq!((step.within.as_secs(), step.quiet.as_millis()), (25, 2500));
        assert!(!scenario.has_namespaces);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let cases = [
            ("steps: []", "no steps"),
            ("steps: [{do: [{jump: P}]}]", "jump"),
            ("steps: [{do: [{create: P}]}]", "either `use` or `object`"),
            ("steps: [{do: [{create: X, use: room}]}]", "X"),
            ("steps: [{do: [{create: P, use: hall}]}]", "no object `hall`"),
            ("steps: [{do: [{list: none}]}]", "no list `none`"),
            ("steps: [{do: [{patch: P, merge: {}}]}]", "`of` is missing"),
            ("steps: [{do: [{konnector: pause}]}]", "pause"),
            ("steps: [{until: [never]}]", "no wait `never`"),
            ("steps: [{until: [{match: {}}]}]", "either C or P"),
            ("steps: [{after: [{cluster: C, changed: [spec]}]}]", "`changed` with `object`"),
            ("steps: [{withinSeconds: -1}]", "-1 seconds"),
            ("backend: [rights]\nsteps: [{}]", "rights"),
            ("more: 1\nsteps: [{}]", "more"),
        ];
        for (text, expected) in cases {
            let error = parse(text).map(|_| ()).unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{text}: {error:#}");
        }
    }

    #[test]
    fn lists_that_contain_each_other_are_refused() {
        let named = Named::read("lists: {a: [{list: b}], b: [{list: a}]}").unwrap();
        let error = Scenario::parse("a", "about: a\nsteps: [{do: [{list: a}]}]", &named);
        assert!(format!("{:#}", error.unwrap_err()).contains("contain each other"));
    }
}
