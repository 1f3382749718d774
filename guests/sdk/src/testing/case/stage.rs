//! A running case: the cluster, the steps so far, and their results.

use std::{sync::Arc, time::Duration};

use mortise_embedded_api::Webhooks;
use serde_json::Value;

use super::{
    document::{Difference, Document, State},
    file::{Case, Step},
};
use crate::{
    Kind,
    testing::{Settled, cluster::Cluster, identity::Pattern},
};

/// A running case.
///
/// The caller reconciles in [`Stage::cluster`] until nothing is due, reports that with
/// [`Stage::settled`], and continues with [`Stage::next_step`] until there is no further step.
#[derive(Debug)]
pub struct Stage {
    case: Case,
    cluster: Cluster,
    /// The state before the reconciles of the current step.
    before: State,
    /// The states before and after the reconciles of each finished step.
    over: Vec<(State, State)>,
}

// === impl Stage ===

impl Stage {
    /// Loads the objects of a case into a new cluster, which knows the built-in kinds, those that
    /// `crds` define, and the declared `kinds`. The `webhooks` convert them.
    ///
    /// # Errors
    ///
    /// The API refuses an object or a definition, or the case names a kind that no definition
    /// covers.
    pub fn open(
        case: Case,
        crds: &[Value],
        kinds: &[Kind],
        webhooks: Option<Arc<dyn Webhooks>>,
    ) -> Result<Self, String> {
        let first = case.steps.first().cloned().unwrap_or_default();
        let missing = first.missing.clone().unwrap_or_default();
        let mut cluster = Cluster::new(case.now, crds, kinds, &missing)?;
        cluster.api().set_webhooks(webhooks);
        let mut objects = case.objects.clone();
        objects.sort_by_key(|object| match object.get("kind").and_then(Value::as_str) {
            Some("Namespace") => 0,
            Some("CustomResourceDefinition") => 1,
            _ => 2,
        });
        cluster.load(objects, case.validate)?;
        let before = State::of(&cluster, &Settled::default());
        refuse(&cluster, &first)?;
        Ok(Self { case, cluster, before, over: Vec::new() })
    }

    /// Returns the cluster in which the case runs.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns the case.
    pub fn case(&self) -> &Case {
        &self.case
    }

    /// Ends the current step: no reconcile is due any more.
    pub fn settled(&mut self, settled: &Settled) {
        self.cluster.refuse_nothing();
        let after = State::of(&self.cluster, settled);
        let before = std::mem::replace(&mut self.before, after.clone());
        self.over.push((before, after));
    }

    /// Carries out the next step, and returns the time span by which it moved the clock; `None` if
    /// there is no further step.
    ///
    /// # Errors
    ///
    /// The API refuses a change of the step, or an object of the step does not exist.
    pub fn next_step(&mut self) -> Result<Option<Duration>, String> {
        let index = self.over.len();
        let Some(step) = self.case.steps.get(index).cloned() else { return Ok(None) };
        self.step(&step).map_err(|error| format!("{}: {error}", self.title(index)))?;
        Ok(Some(step.after.unwrap_or_default()))
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        self.cluster.advance(step.after.unwrap_or_default());
        if let Some(missing) = &step.missing {
            self.cluster.set_missing(missing)?;
        }
        for text in &step.delete {
            self.cluster.delete(&Pattern::parse(text)?)?;
        }
        for object in &step.apply {
            self.cluster.apply(object)?;
        }
        for patch in &step.patch {
            self.cluster.patch(patch)?;
        }
        self.before = State::of(&self.cluster, &Settled::default()).with_settled(&self.before);
        refuse(&self.cluster, step)
    }

    /// Returns the changes that the reconciles of each finished step made.
    pub fn documents(&self) -> Vec<Document> {
        self.over.iter().map(|(before, after)| before.changes(after)).collect()
    }

    /// Returns where the changes of the finished steps differ from the expected ones.
    pub fn differences(&self) -> Vec<Difference> {
        let pairs = self.documents().into_iter().zip(self.expected()).enumerate();
        pairs
            .filter(|(_, (actual, expected))| Some(actual) != expected.as_ref())
            .map(|(index, (actual, expected))| Difference {
                title: self.title(index),
                expected: expected.map(|expected| expected.to_yaml()).unwrap_or_default(),
                actual: actual.to_yaml(),
            })
            .collect()
    }

    /// Returns the expected changes of each finished step, in the form of [`Stage::documents`].
    fn expected(&self) -> Vec<Option<Document>> {
        let documents = self.case.expected.as_ref().map(|expected| &expected.documents[..]);
        let expected = |(index, (before, after)): (usize, &(State, State))| {
            let document = documents?.get(index)?;
            Some(before.normal(document, after))
        };
        self.over.iter().enumerate().map(expected).collect()
    }

    /// Returns the text that `expected.yaml` should hold. Documents that are right keep their text.
    pub fn accepted(&self) -> String {
        let texts = self.case.expected.as_ref().map_or(&[][..], |expected| &expected.texts);
        let pairs = self.documents().into_iter().zip(self.expected()).enumerate();
        let texts: Vec<String> = pairs
            .map(|(index, (actual, expected))| match texts.get(index) {
                Some(text) if Some(&actual) == expected.as_ref() => text.clone(),
                _ => actual.to_yaml(),
            })
            .collect();
        texts.join("---\n")
    }

    fn title(&self, index: usize) -> String {
        let note = self.case.steps.get(index).and_then(|step| step.note.as_ref());
        match (index, note) {
            (0, _) => "the first reconciles".to_owned(),
            (index, None) => format!("step {index}"),
            (index, Some(note)) => format!("step {index} ({note})"),
        }
    }
}

/// Refuses the writes that a step names.
fn refuse(cluster: &Cluster, step: &Step) -> Result<(), String> {
    for refuse in &step.refuse {
        let pattern = Pattern::parse(&refuse.write)?;
        cluster
            .refuse(&pattern, refuse.verb, (refuse.code, &refuse.message), refuse.times)
            .map_err(|error| format!("refuse: {error}"))?;
    }
    Ok(())
}
