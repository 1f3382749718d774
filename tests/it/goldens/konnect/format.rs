//! The format of the recorded scenarios.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::{Context as _, ensure};
use konnect_fake::{Change, Fault};
use mortise_sdk::duration;
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use super::request::Request;
use crate::goldens::scenario::{self, Of};

/// The version of each kind that is not in version `v1alpha1` of its group.
const VERSIONS: [(&str, &str); 4] = [
    ("KonnectGatewayControlPlane", "v1alpha2"),
    ("KongConsumer", "v1"),
    ("KongPlugin", "v1"),
    ("KongConsumerGroup", "v1beta1"),
];
/// The kinds without namespaces.
const CLUSTER_SCOPED: [&str; 1] = ["KongVault"];

/// A recorded scenario.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Scenario {
    /// The name of its file.
    #[serde(skip)]
    pub(super) name: String,
    #[serde(rename = "about")]
    _about: String,
    pub(super) sync_period: Period,
    /// The namespace of the objects that name none.
    pub(super) namespace: String,
    pub(super) second_namespace: Option<String>,
    /// True if the calls for the organization and the control plane itself are not recorded.
    #[serde(default)]
    pub(super) without_control_plane: bool,
    /// Where the original does less than one would ask. What is expected there is a rule.
    #[serde(rename = "fault")]
    _fault: Option<String>,
    pub(super) steps: Vec<Step>,
}

/// A duration that is written as in Go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Period {
    pub(super) time: Duration,
}

/// A step: what is done, how long to wait, and the recorded consequences.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct Step {
    #[serde(rename = "about")]
    _about: Option<String>,
    /// Only what is applied is recorded: all conditions come to be True.
    pub(super) setup: bool,
    /// The faults from this step on; absent: as before.
    pub(super) konnect: Option<Vec<Fault>>,
    pub(super) konnect_data: Vec<Data>,
    pub(super) operator: Option<Operator>,
    pub(super) apply: Vec<Value>,
    pub(super) patch: Vec<Patch>,
    pub(super) delete: Vec<Named>,
    pub(super) wait_seconds: Option<f64>,
    pub(super) wait_periods: Option<f64>,
    pub(super) refused: Vec<Refusal>,
    pub(super) requests: Vec<Request>,
    pub(super) requests_in_any_order: bool,
    pub(super) without_reads: bool,
    pub(super) objects: Vec<Object>,
    pub(super) gone: Vec<Named>,
}

/// A change of the stored data of Konnect, which may name ids of the record.
#[derive(Debug, Clone)]
pub(super) struct Data(pub(super) Value);

/// What happens to the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Operator {
    Start,
    Stop,
    Restart,
    /// It ends after the next request whose answer a fault delays.
    Kill,
}

/// A change of an object by a JSON merge patch.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Patch {
    kind: String,
    #[serde(default)]
    namespace: String,
    name: String,
    pub(super) merge: Value,
}

/// An object. Without a namespace, it is in that of the scenario.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Named {
    pub(super) kind: String,
    #[serde(default)]
    pub(super) namespace: String,
    pub(super) name: String,
}

/// The answer of the API server to an action that it refuses.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) message: String,
}

/// An object as it is at the end of a step.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Object {
    pub(super) kind: String,
    #[serde(default)]
    pub(super) namespace: String,
    pub(super) name: String,
    #[serde(default)]
    pub(super) finalizers: Vec<String>,
    #[serde(default)]
    pub(super) deleting: bool,
    pub(super) generation: Option<u64>,
    #[serde(default)]
    pub(super) status: Value,
    // Of objects that the operator has made.
    #[serde(default)]
    pub(super) owners: Vec<Owner>,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) annotations: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) spec: Value,
}

/// An owner of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Owner {
    pub(super) kind: String,
    pub(super) name: String,
}

/// Returns the scenarios of a folder, sorted by name.
///
/// # Errors
///
/// Fails if a file cannot be read, or if a scenario does not parse.
pub(super) fn scenarios(folder: &Path) -> anyhow::Result<Vec<Scenario>> {
    let texts = scenario::texts(folder)?;
    let parse = |(name, text): (&String, &String)| {
        Scenario::parse(name, text).with_context(|| format!("scenario `{name}`"))
    };
    texts.iter().map(parse).collect()
}

/// Returns the `apiVersion` of a kind.
///
/// # Errors
///
/// Fails if the kind is of neither Kong nor Konnect, and not `Secret`.
pub(super) fn api_version(kind: &str) -> anyhow::Result<String> {
    let group = match kind {
        "Secret" => return Ok("v1".to_owned()),
        _ if kind.starts_with("Konnect") => "konnect.konghq.com",
        _ => "configuration.konghq.com",
    };
    ensure!(kind.starts_with("Kon"), "the version of `{kind}` is not known");
    let version = VERSIONS.iter().find(|(of, _)| *of == kind).map_or("v1alpha1", |(_, of)| of);
    Ok(format!("{group}/{version}"))
}

// === impl Scenario ===

impl Scenario {
    pub(super) fn parse(name: &str, text: &str) -> anyhow::Result<Self> {
        // `y` and `no` are texts, as in YAML 1.2.
        let options = serde_saphyr::options! { strict_booleans: true };
        let mut scenario: Self = serde_saphyr::from_str_with_options(text, options)?;
        name.clone_into(&mut scenario.name);
        ensure!(!scenario.steps.is_empty(), "no steps");
        Ok(scenario)
    }

    /// Returns the identity of an object that a step names.
    ///
    /// # Errors
    ///
    /// Fails if the version of its kind is not known.
    pub(super) fn of(&self, kind: &str, namespace: &str, name: &str) -> anyhow::Result<Of> {
        let namespace = match namespace {
            _ if CLUSTER_SCOPED.contains(&kind) => "",
            "" => &self.namespace,
            namespace => namespace,
        };
        Ok(Of {
            api_version: api_version(kind)?,
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

// === impl Period ===

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let nanoseconds = duration::parse(&text).map_err(de::Error::custom)?;
        let nanoseconds = u64::try_from(nanoseconds).map_err(de::Error::custom)?;
        Ok(Self { time: Duration::from_nanos(nanoseconds) })
    }
}

// === impl Step ===

impl Step {
    /// Returns how long the step takes; `None` if it ends when nothing has changed for a while.
    ///
    /// # Errors
    ///
    /// Fails if it takes both seconds and periods, or a time that is none.
    pub(super) fn wait(&self, period: &Period) -> anyhow::Result<Option<Duration>> {
        let seconds = match (self.wait_seconds, self.wait_periods) {
            (None, None) => return Ok(None),
            (Some(seconds), None) => seconds,
            (None, Some(periods)) => periods * period.time.as_secs_f64(),
            (Some(_), Some(_)) => anyhow::bail!("either `waitSeconds` or `waitPeriods`"),
        };
        Ok(Some(Duration::try_from_secs_f64(seconds).context("the time to wait")?))
    }

    /// Returns whether the times between the requests of the step are recorded.
    pub(super) fn has_times(&self) -> bool {
        self.has_periods()
            || self.requests.iter().any(|request| request.seconds_since_previous.is_some())
    }

    /// Returns whether the periods between the requests of the step are recorded.
    pub(super) fn has_periods(&self) -> bool {
        self.wait_periods.is_some_and(|periods| periods >= 1.0)
    }
}

// === impl Patch ===

impl Patch {
    pub(super) fn of(&self) -> Named {
        let Self { kind, namespace, name, .. } = self;
        Named { kind: kind.clone(), namespace: namespace.clone(), name: name.clone() }
    }
}

// === impl Data ===

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        serde_json::from_value::<Change>(value.clone()).map_err(de::Error::custom)?;
        Ok(Self(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> anyhow::Result<Scenario> {
        let text = format!("about: a test\nsyncPeriod: 4s\nnamespace: a\n{text}");
        Scenario::parse("one-case", &text)
    }

    #[test]
    fn a_step_takes_the_time_that_it_says() {
        let scenario = parse("steps: [{waitPeriods: 0.5}, {waitSeconds: 3}, {}]").unwrap();
        let wait = |index: usize| scenario.steps[index].wait(&scenario.sync_period).unwrap();
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!([wait(0), wait(1), wait(2)], [seconds(2), seconds(3), None]);
        assert!(!scenario.steps[0].has_times());
    }

    #[test]
    fn a_word_is_a_text() {
        let scenario = parse("steps: [{apply: [{kind: Secret, a: y, b: no, c: true}]}]").unwrap();
        let object = &scenario.steps[0].apply[0];
        assert_eq!(
            (&object["a"], &object["b"], &object["c"]),
            (&"y".into(), &"no".into(), &true.into())
        );
    }

    #[test]
    fn kinds_have_the_versions_of_the_record() {
        let cases = [
            ("Secret", "v1"),
            ("KongConsumer", "configuration.konghq.com/v1"),
            ("KongService", "configuration.konghq.com/v1alpha1"),
            ("KonnectGatewayControlPlane", "konnect.konghq.com/v1alpha2"),
            ("KonnectAPIAuthConfiguration", "konnect.konghq.com/v1alpha1"),
        ];
        for (kind, expected) in cases {
            assert_eq!(api_version(kind).unwrap(), expected);
        }
        assert!(api_version("Pod").is_err());
        let scenario = parse("steps: [{}]").unwrap();
        let of = |kind| scenario.of(kind, "", "x").unwrap().namespace;
        assert_eq!((of("KongVault").as_str(), of("KongSNI").as_str()), ("", "a"));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let cases = [
            ("steps: []", "no steps"),
            ("steps: [{jump: 1}]", "jump"),
            ("more: 1\nsteps: [{}]", "more"),
            ("steps: [{operator: pause}]", "pause"),
            ("steps: [{konnect: [{path: /x, sometimes: 1}]}]", "sometimes"),
            ("steps: [{konnectData: [{take: services}]}]", "take"),
            ("steps: [{patch: [{kind: KongSNI, name: a}]}]", "merge"),
            ("steps: [{delete: [{kind: KongSNI, nam: a}]}]", "nam"),
            ("steps: [{requests: [{method: GET, path: /x, answer: {}, color: red}]}]", "color"),
            ("steps: [{requests: [{method: GET, path: /x, answer: {code: 1}}]}]", "code"),
            ("steps: [{objects: [{kind: KongSNI, name: a, data: {}}]}]", "data"),
            ("steps: [{refused: [{status: 1, message: a, reason: b}]}]", "reason"),
        ];
        for (text, expected) in cases {
            let error = parse(text).map(|_| ()).unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{text}: {error:#}");
        }
        let both = parse("steps: [{waitSeconds: 1, waitPeriods: 1}]").unwrap();
        assert!(both.steps[0].wait(&both.sync_period).is_err());
    }
}
