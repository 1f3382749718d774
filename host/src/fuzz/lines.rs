//! Descriptions and outcomes as lines of words between tabs, which a fuzzer can put together and
//! people can read.

use std::sync::Arc;

use mortise_core::contract::{
    Deletion, Description, Event, EventType, Kind, Manifest, Mode, ObjectRef, Outcome, Propagation,
    Reconciler, Requeue, Selection, Verbs, WriteRule,
};

fn word<'a>(words: &mut impl Iterator<Item = &'a str>) -> String {
    words.next().unwrap_or_default().to_owned()
}

/// Reads a word; `None` if it is empty.
fn some<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<String> {
    Some(word(words)).filter(|word| !word.is_empty())
}

fn kind<'a>(words: &mut impl Iterator<Item = &'a str>) -> Kind {
    Kind::home(word(words), word(words), word(words))
}

/// Reads `GROUP VERSION KIND NAMESPACE NAME LABELS MATCHED-PATH MATCHED-VALUE FIELD...`
pub(super) fn selection<'a>(words: &mut impl Iterator<Item = &'a str>) -> Selection {
    let (kind, namespace, name) = (kind(words), some(words), some(words));
    let labels = word(words);
    let matching = some(words).map(|path| (path, word(words)));
    let fields = words.map(str::to_owned).collect();
    let matching = matching.into_iter().collect();
    Selection { kind: kind.into(), namespace, name, labels, matching, fields }
}

fn reference<'a>(words: &mut impl Iterator<Item = &'a str>) -> ObjectRef {
    let (kind, namespace) = (kind(words), some(words));
    ObjectRef { kind: kind.into(), namespace, name: word(words) }
}

/// Reads a description of these lines: `reconciler NAME SELECTION`, `finalizer NAME` of the last
/// reconciler, `read SELECTION`, `write VERBS SELECTION`, `field PATH` of the last write.
pub(super) fn description(text: &str) -> Description {
    let mut all = super::empty();
    for line in text.lines() {
        let mut words = line.split('\t');
        match words.next() {
            Some("reconciler") => all.reconcilers.push(Reconciler {
                name: word(&mut words),
                of: selection(&mut words),
                finalizers: Vec::new(),
                resync: 0,
                triggered_by_status: false,
                min_interval: 0,
                on_demand: false,
                whole_status: false,
            }),
            Some("finalizer") => {
                if let Some(last) = all.reconcilers.last_mut() {
                    last.finalizers.push(word(&mut words));
                }
            }
            Some("read") => all.reads.push(selection(&mut words)),
            Some("write") => {
                let verbs = verbs(&word(&mut words));
                let of = selection(&mut words);
                all.writes.push(WriteRule { of, verbs, fields: Vec::new() });
            }
            Some("field") => {
                if let Some(last) = all.writes.last_mut() {
                    last.fields.push(word(&mut words));
                }
            }
            _ => {}
        }
    }
    all
}

/// Reads verbs from letters: `cude` are create, update, delete and evict.
fn verbs(letters: &str) -> Verbs {
    let mut verbs = Verbs::empty();
    for letter in letters.chars() {
        verbs |= match letter {
            'c' => Verbs::CREATE,
            'u' => Verbs::UPDATE,
            'd' => Verbs::DELETE,
            'e' => Verbs::EVICT,
            _ => Verbs::empty(),
        };
    }
    verbs
}

/// Reads an outcome of these lines: `apply JSON`, `create JSON`, `patch JSON`, `leave PATH` and
/// `absent PATH` of the last apply, `delete UID OBJECT`, `evict UID OBJECT`, `prune SELECTION`,
/// `status JSON`, `finalizer NAME`, `event REASON MESSAGE OBJECT`.
pub(super) fn outcome(text: &str) -> Outcome {
    let mut all = Outcome {
        apply: Vec::new(),
        patch: Vec::new(),
        evict: Vec::new(),
        delete: Vec::new(),
        prune: Vec::new(),
        status: None,
        events: Vec::new(),
        requeue: Requeue::ByDefault,
        finalizers: None,
        start: Vec::new(),
        note: None,
    };
    for line in text.lines() {
        let mut words = line.split('\t');
        match words.next() {
            Some("apply") => all.apply.push(manifest(Mode::Apply, &mut words)),
            Some("create") => all.apply.push(manifest(Mode::Create, &mut words)),
            Some("patch") => all.patch.push(manifest(Mode::Apply, &mut words)),
            Some("leave") => {
                if let Some(last) = all.apply.last_mut() {
                    last.leave.push(word(&mut words));
                }
            }
            Some("absent") => {
                if let Some(last) = all.apply.last_mut() {
                    last.absent.push(word(&mut words));
                }
            }
            Some("delete") => all.delete.push(deletion(&mut words)),
            Some("evict") => all.evict.push(deletion(&mut words)),
            Some("prune") => all.prune.push(selection(&mut words)),
            Some("status") => all.status = Some(word(&mut words)),
            Some("finalizer") => {
                all.finalizers.get_or_insert_default().push(word(&mut words));
            }
            Some("event") => all.events.push(Event {
                reason: word(&mut words),
                message: word(&mut words),
                event_type: EventType::Normal,
                on: Some(reference(&mut words)).filter(|of| !of.name.is_empty()),
            }),
            _ => {}
        }
    }
    all
}

fn manifest<'a>(mode: Mode, words: &mut impl Iterator<Item = &'a str>) -> Manifest {
    let object = word(words);
    Manifest { cluster: Arc::default(), object, mode, leave: Vec::new(), absent: Vec::new() }
}

fn deletion<'a>(words: &mut impl Iterator<Item = &'a str>) -> Deletion {
    let (uid, ref_) = (some(words), reference(words));
    Deletion { ref_, uid, propagation: Propagation::Background, grace_period: None }
}
