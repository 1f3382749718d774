//! A case on its way: the cluster, what happens to it, and what came of it.

use std::time::Duration;

use serde_json::Value;

use super::{
    document::{Difference, Document, State},
    file::{Case, Step},
};
use crate::{
    Kind,
    testing::{Settled, cluster::Cluster, identity::Pattern},
};

/// A case that runs. Who runs it reconciles in the [`Stage::cluster`] until nothing is due, says so with [`Stage::settled`], and goes
/// on with [`Stage::next_step`] as long as there is one.
#[derive(Debug)]
pub struct Stage {
    case: Case,
    cluster: Cluster,
    /// Before the reconciles of this step.
    before: State,
    /// Of each step that is over: before and after its reconciles.
    over: Vec<(State, State)>,
}

// === impl Stage ===

impl Stage {
    /// Loads what is there at the beginning, into a cluster that knows the built-in kinds, those that `crds` define, and the declared
    /// `kinds`.
    ///
    /// # Errors
    ///
    /// Objects and definitions that the API refuses, kinds that nothing defines.
    pub fn open(case: Case, crds: &[Value], kinds: &[Kind]) -> Result<Self, String> {
        let first = case.steps.first().cloned().unwrap_or_default();
        let missing = first.missing.clone().unwrap_or_default();
        let mut cluster = Cluster::new(case.now, crds, kinds, &missing)?;
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

    /// Where it runs.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The case.
    pub fn case(&self) -> &Case {
        &self.case
    }

    /// Nothing is due any more.
    pub fn settled(&mut self, settled: &Settled) {
        self.cluster.refuse_nothing();
        let after = State::of(&self.cluster, settled);
        let before = std::mem::replace(&mut self.before, after.clone());
        self.over.push((before, after));
    }

    /// Does what the next step says, and tells how much later it is; none if there is no further step.
    ///
    /// # Errors
    ///
    /// Something that the API refuses, or that is not there.
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

    /// What the steps led to.
    pub fn documents(&self) -> Vec<Document> {
        self.over.iter().map(|(before, after)| before.changes(after)).collect()
    }

    /// Where that differs from what is expected.
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

    /// What is expected of each step that is over, as [`Stage::documents`] would say it.
    fn expected(&self) -> Vec<Option<Document>> {
        let documents = self.case.expected.as_ref().map(|expected| &expected.documents[..]);
        let expected = |(index, (before, after)): (usize, &(State, State))| {
            let document = documents?.get(index)?;
            Some(before.normal(document, after))
        };
        self.over.iter().enumerate().map(expected).collect()
    }

    /// What `expected.yaml` has to hold; documents that are right stay as they are written.
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

/// Has writes refused.
fn refuse(cluster: &Cluster, step: &Step) -> Result<(), String> {
    for refuse in &step.refuse {
        let pattern = Pattern::parse(&refuse.write)?;
        cluster
            .refuse(&pattern, refuse.verb, (refuse.code, &refuse.message), refuse.times)
            .map_err(|error| format!("refuse: {error}"))?;
    }
    Ok(())
}
