//! A running case: the clusters, the steps so far, and their results.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use mortise_core::{
    contract::Description,
    outbound::{Egress, Outbound},
    write::Clock,
};
use mortise_embedded_api::Webhooks;
use serde_json::Value;

use super::{
    calls::Script,
    document::{Difference, Document, State},
    file::{Case, Remote, Step},
};
use crate::testing::{
    Settled,
    cluster::Cluster,
    clusters::Clusters,
    identity::Pattern,
    outbound::{Replies, granted},
};

/// A running case.
///
/// The caller reconciles in [`Stage::clusters`] until nothing is due, reports that with
/// [`Stage::settled`], and continues with [`Stage::next_step`] until there is no further step.
#[derive(Debug)]
pub struct Stage {
    case: Case,
    clusters: Clusters,
    script: Script,
    egress: Vec<Arc<Egress>>,
    /// The state before the reconciles of the current step.
    before: State,
    /// The states before and after the reconciles of each finished step.
    over: Vec<(State, State)>,
}

// === impl Stage ===

impl Stage {
    /// Loads the objects of a case into new clusters, which know the built-in kinds, those that
    /// `crds` define, and the declared ones. The `webhooks` convert those of the home cluster.
    ///
    /// # Errors
    ///
    /// The API refuses an object or a definition, or the case names a kind that no definition
    /// covers.
    pub fn open(
        case: Case,
        crds: &[Value],
        description: &Description,
        webhooks: Option<Arc<dyn Webhooks>>,
    ) -> Result<Self, String> {
        let first = case.steps.first().cloned().unwrap_or_default();
        let missing = first.missing.clone().unwrap_or_default();
        let kinds = description.at_home().kinds();
        let mut home = Cluster::new(case.now, crds, &kinds, &missing)?;
        home.api().set_webhooks(webhooks);
        home.load(in_order(&case.objects), case.validate)?;
        let mut clusters = Clusters::new(home);
        let kinds = description.elsewhere().kinds();
        for Remote { folder, name, objects } in &case.clusters {
            clusters.get_mut("")?.add_kubeconfig(name)?;
            let missing = first.clusters.get(folder).and_then(|of| of.missing.clone());
            let missing = missing.unwrap_or_default();
            let mut cluster = clusters.home().beside(name, crds, &kinds, &missing)?;
            cluster
                .load(in_order(objects), case.validate)
                .map_err(|error| format!("clusters.{folder}: {error}"))?;
            clusters.add(cluster);
        }
        let script = Script::new(case.calls.first().cloned().unwrap_or_default());
        let egress = granted(&description.outbound)?;
        let (before, over) = (State::default(), Vec::new());
        let mut stage = Self { case, clusters, script, egress, before, over };
        stage.before = stage.state(&Settled::default());
        stage.obstruct(&first)?;
        Ok(stage)
    }

    /// Returns the home cluster.
    pub fn cluster(&self) -> &Cluster {
        self.clusters.home()
    }

    /// Returns the clusters in which the case runs.
    pub fn clusters(&self) -> &Clusters {
        &self.clusters
    }

    /// Prepares a run of the case in which the caller forgets all notes before each reconcile: calls
    /// may be left out then, or made again.
    #[must_use]
    pub fn without_notes(self) -> Self {
        self.script.set_loose();
        self
    }

    /// Returns a client that answers calls to systems outside of the cluster as the case says.
    pub fn outbound(&self) -> Arc<dyn Outbound> {
        let home = self.clusters.home().clone();
        let clock: Clock = Arc::new(move || home.now());
        self.script.client(clock)
    }

    /// Returns the grants of such calls: all that the processor declares.
    pub fn egress(&self) -> &[Arc<Egress>] {
        &self.egress
    }

    pub(super) fn replies(&self) -> Replies {
        self.script.replies()
    }

    /// Returns the case.
    pub fn case(&self) -> &Case {
        &self.case
    }

    fn state(&self, settled: &Settled) -> State {
        let remotes = self.case.clusters.iter().filter_map(|Remote { folder, name, .. }| {
            Some((folder.as_str(), self.clusters.get(name).ok()?))
        });
        let all = std::iter::once(("", self.clusters.home())).chain(remotes);
        State::of(all, settled, &self.before)
    }

    /// Ends the current step: no reconcile is due any more.
    pub fn settled(&mut self, settled: &Settled) {
        self.clusters.iter().for_each(Cluster::refuse_nothing);
        let after = self.state(settled);
        let before = std::mem::replace(&mut self.before, after.clone());
        self.over.push((before, after));
        let index = self.over.len();
        let next = self.case.calls.get(index).cloned().unwrap_or_default();
        self.script.end_step(&self.title(index - 1), next);
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
        self.clusters.home().advance(step.after.unwrap_or_default());
        change(self.clusters.get_mut("")?, step)?;
        for (name, changes) in self.by_name(step) {
            change(self.clusters.get_mut(&name)?, changes)
                .map_err(|error| format!("{name}: {error}"))?;
        }
        self.before = self.state(&Settled::default()).with_settled(&self.before);
        self.obstruct(step)
    }

    /// Returns the changes of a step to other clusters, by the names of the clusters.
    fn by_name<'a>(&self, step: &'a Step) -> Vec<(String, &'a Step)> {
        let name = |folder: &String| {
            let of = self.case.clusters.iter().find(|cluster| cluster.folder == *folder)?;
            Some(of.name.clone())
        };
        let named = step.clusters.iter().map(|(folder, changes)| Some((name(folder)?, changes)));
        named.flatten().collect()
    }

    /// Refuses the writes that a step names, and cuts clusters off, or makes them reachable again.
    fn obstruct(&self, step: &Step) -> Result<(), String> {
        refuse(self.clusters.home(), step)?;
        for (name, changes) in self.by_name(step) {
            refuse(self.clusters.get(&name)?, changes)
                .map_err(|error| format!("{name}: {error}"))?;
            if let Some(unreachable) = changes.unreachable {
                self.clusters.set_reachable(&name, !unreachable);
            }
        }
        Ok(())
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

    /// Returns the calls of the finished steps that the case does not script, and those that it
    /// scripts and that were not made.
    pub fn wrong_calls(&self) -> Vec<Difference> {
        self.script.wrong()
    }

    /// Returns where the results of a run without notes differ from those of this one. Requeue
    /// delays do not count.
    pub fn differences_without_notes(&self, forgetful: &Self) -> Vec<Difference> {
        let bare = |stage: &Self| -> Vec<Document> {
            let documents = stage.documents().into_iter();
            documents.map(|of| Document { requeues: BTreeMap::new(), ..of }).collect()
        };
        let pairs = bare(self).into_iter().zip(bare(forgetful)).enumerate();
        let differences = pairs.filter(|(_, (with, without))| with != without);
        let differences = differences.map(|(index, (with, without))| Difference {
            title: format!("{}, with all notes forgotten", self.title(index)),
            expected: with.to_yaml(),
            actual: without.to_yaml(),
        });
        let calls = forgetful.wrong_calls().into_iter().map(|of| Difference {
            title: format!("{}, with all notes forgotten", of.title),
            ..of
        });
        differences.chain(calls).collect()
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

/// Returns objects in the order in which they are loaded.
fn in_order(objects: &[Value]) -> Vec<Value> {
    let mut objects = objects.to_vec();
    objects.sort_by_key(|object| match object.get("kind").and_then(Value::as_str) {
        Some("Namespace") => 0,
        Some("CustomResourceDefinition") => 1,
        _ => 2,
    });
    objects
}

/// Makes the changes of a step to one cluster.
fn change(cluster: &mut Cluster, step: &Step) -> Result<(), String> {
    if let Some(missing) = &step.missing {
        cluster.set_missing(missing)?;
    }
    for text in &step.delete {
        cluster.delete(&Pattern::parse(text)?)?;
    }
    for object in &step.apply {
        cluster.apply(object)?;
    }
    for patch in &step.patch {
        cluster.patch(patch)?;
    }
    Ok(())
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
