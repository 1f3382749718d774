//! Who is reconciled, what is known of it since its last run, and whether it is due.

use std::{collections::BTreeSet, fmt, time::Duration};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{
    Description, Kind, ObjectRef, Reconciler, Selection,
    bindings::mortise::host::types::ReadError,
    testing::{
        cluster::Cluster,
        identity::Identity,
        known::{Known, Query, answer},
        path::{Fields, Path},
        place::managers,
        write::{self, Managers, Wrote},
    },
};

/// What of a reconciled object the host itself looks at.
const LOOKED_AT: [&str; 3] = [
    "metadata.finalizers",
    "metadata.annotations[\"mortise.dev/paused\"]",
    "metadata.annotations[\"mortise.dev/reconcile\"]",
];

/// What is reconciled: an object, by a reconciler.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::testing) struct Key {
    pub(super) reconciler: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// What is known of a key since its last run.
#[derive(Default)]
pub(in crate::testing) struct Ran {
    pub(super) asked: Vec<(Asked, Answer)>,
    pub(super) wrote: Vec<Wrote>,
    pub(super) pruned: Vec<(Selection, BTreeSet<Identity>)>,
    /// The kinds of all that, as far as they are served.
    pub(super) kinds: Vec<Kind>,
    /// Kinds that are not served, which kept it from writing.
    pub(super) waits: Vec<Kind>,
    /// The kinds of what it could not write.
    pub(super) refused: Vec<Kind>,
    /// Its own writes led to something else than it had to expect.
    pub(super) surprised: bool,
    pub(super) due: Option<Timestamp>,
    pub(super) failures: u32,
    pub(super) failure: Option<String>,
    pub(super) again: Option<Duration>,
    /// Nothing more is to be expected of it: its object is gone.
    pub(super) is_last: bool,
}

/// A read that was made.
#[derive(Clone)]
pub(super) enum Asked {
    /// The reconciled object.
    Object(ObjectRef, Fields, bool),
    Get(ObjectRef, Vec<String>),
    List(Selection),
}

/// What a read saw, as far as a change of it counts.
pub(super) type Answer = Result<Vec<Value>, ReadError>;

/// How a run ended.
pub(super) enum Done {
    Success(Option<u64>),
    BackOff,
    After(u64),
    OnChange,
}

/// How a key is called in a case: by its object, and by its reconciler where others are for the same kind; `kinds` are
/// those of all reconcilers.
pub fn title(of: &Identity, reconciler: &str, kinds: &[Kind]) -> String {
    let same = |kind: &&Kind| kind.kind == of.kind && kind.group == of.group;
    if kinds.iter().filter(same).count() > 1 {
        format!("{of} ({reconciler})")
    } else {
        of.to_string()
    }
}

// === impl Key ===

impl Key {
    pub(super) fn of(reconciler: &Reconciler, object: &Value) -> Self {
        let identity = Identity::of(object);
        Self {
            reconciler: reconciler.name.clone(),
            namespace: identity.namespace,
            name: identity.name,
        }
    }

    pub(super) fn reconciler<'a>(&self, description: &'a Description) -> Option<&'a Reconciler> {
        description.reconcilers.iter().find(|reconciler| reconciler.name == self.reconciler)
    }

    /// How the host's messages call it.
    pub(super) fn title(&self, description: &Description) -> String {
        format!("{}/{self}", description.name)
    }

    pub(super) fn object(&self, description: &Description) -> Option<ObjectRef> {
        let kind = self.reconciler(description)?.of.kind.clone();
        let namespace = Some(self.namespace.as_str()).filter(|text| !text.is_empty());
        Some(ObjectRef::new(kind, namespace, &self.name))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}/{}", self.reconciler, self.namespace, self.name)
    }
}

// === impl Asked ===

impl Asked {
    pub(super) fn object(reconciler: &Reconciler, of: &ObjectRef) -> Self {
        let kept = if reconciler.of.fields.is_empty() {
            Fields::whole()
        } else {
            let asked = reconciler.of.fields.iter().map(String::as_str);
            fields(&asked.chain(LOOKED_AT).collect::<Vec<_>>())
        };
        Self::Object(of.clone(), kept, reconciler.triggered_by_status)
    }

    /// What it sees, as far as a change of it counts.
    pub(super) fn answer(&self, known: &Known) -> Answer {
        let mut seen = match self {
            Self::Get(of, fields) => known.get(of, fields)?.into_iter().collect(),
            Self::List(of) => known.list(of)?,
            Self::Object(of, ..)
                if known.missing.contains(&(of.kind.group.clone(), of.kind.kind.clone())) =>
            {
                return Err(ReadError::UnknownKind);
            }
            Self::Object(of, fields, with_status) => {
                let mut found: Vec<Value> = known
                    .find(of)
                    .map(|object| answer(object, fields, &of.kind))
                    .into_iter()
                    .collect();
                for object in found.iter_mut().filter(|_| !with_status) {
                    object.as_object_mut().and_then(|object| object.remove("status"));
                }
                found
            }
        };
        for object in &mut seen {
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("generation");
                metadata.remove("resourceVersion");
            }
        }
        Ok(seen)
    }
}

// === impl Ran ===

impl Ran {
    pub(super) fn is_due(
        &self,
        known: &Known,
        cluster: &Cluster,
        key: &Key,
        description: &Description,
    ) -> bool {
        let is_other = |(asked, seen): &(Asked, Answer)| asked.answer(known) != *seen;
        // What is deleted counts; one that was not there counts no more. What is there must be as it was left.
        let is_undone = |wrote: &Wrote| {
            let own = write::own(cluster, &wrote.of, &wrote.manager);
            let is_back =
                |live: Value| wrote.absent.iter().any(|path| !path.pointers(&live).is_empty());
            (wrote.own.is_some() && own != wrote.own)
                || (!wrote.absent.is_empty() && cluster.get(&wrote.of).is_some_and(is_back))
        };
        let managers = key
            .object(description)
            .map(|of| Managers::new(&description.name, &key.reconciler, &of));
        let has_more = |(of, had): &(Selection, BTreeSet<Identity>)| {
            let now = managers.as_ref().map(|managers| prunable(cluster, of, managers));
            now.is_some_and(|now| !now.is_subset(had))
        };
        let is_served = |kind: &Kind| cluster.resource(kind).is_some();
        self.surprised
            || !self.kinds.iter().all(is_served)
            || self.waits.iter().any(is_served)
            || self.due.is_some_and(|due| due <= cluster.now())
            || self.asked.iter().any(is_other)
            || self.wrote.iter().any(is_undone)
            || self.pruned.iter().any(has_more)
    }

    /// Notes which of the kinds that it wrote there are.
    pub(super) fn note_kinds(&mut self, cluster: &Cluster) {
        let wrote = self.wrote.iter().map(|wrote| &wrote.of.kind);
        let kinds = wrote.chain(self.pruned.iter().map(|(of, _)| &of.kind)).cloned();
        (self.kinds, self.waits) = kinds.partition(|kind| cluster.resource(kind).is_some());
        let refused = &self.refused;
        self.waits.retain(|kind| refused.contains(kind));
    }

    pub(super) fn end(&mut self, done: &Done, now: Timestamp) {
        let after = match done {
            Done::Success(after) => {
                self.failures = 0;
                self.again = after.map(Duration::from_millis);
                self.again
            }
            failure => {
                self.failures += 1;
                match failure {
                    Done::After(after) => {
                        self.again = Some(Duration::from_millis(*after));
                        self.again
                    }
                    Done::BackOff => Some(back_off(self.failures)),
                    _ => None,
                }
            }
        };
        self.due =
            after.and_then(|after| now.checked_add(SignedDuration::try_from(after).ok()?).ok());
    }
}

/// 5 ms after the first failure in a row, twice as long after each more, at most 1000 s.
fn back_off(failures: u32) -> Duration {
    const LONGEST: Duration = Duration::from_secs(1000);
    let doubled = 2_u32.checked_pow(failures.saturating_sub(1));
    doubled
        .and_then(|times| Duration::from_millis(5).checked_mul(times))
        .unwrap_or(LONGEST)
        .min(LONGEST)
}

/// What of a selection was applied for a key.
pub(super) fn prunable(cluster: &Cluster, of: &Selection, ours: &Managers) -> BTreeSet<Identity> {
    let Ok(query) = Query::new(of) else { return BTreeSet::new() };
    let objects = cluster.api().objects();
    let is_ours = |object: &&Value| {
        query.matches(object) && managers(object).any(|(name, ..)| name == ours.apply)
    };
    objects.iter().filter(is_ours).map(Identity::of).collect()
}

pub(super) fn fields<S: AsRef<str>>(fields: &[S]) -> Fields {
    let paths: Vec<Path> =
        fields.iter().filter_map(|field| Path::parse(field.as_ref()).ok()).collect();
    if paths.is_empty() { Fields::whole() } else { Fields::of(&paths) }
}
