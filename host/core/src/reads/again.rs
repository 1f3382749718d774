//! Repeats the reads of a run record, to verify that a run would get the same answers.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use super::{
    Cut, Kept, View,
    dependencies::of_kept,
    pace::{TooMuch, Yielding},
};
use crate::{
    contract::{Kind, ObjectRef, Selection},
    grant::rights::ReadTarget,
    reads::record::{self, Digest, Question, can_be_asked, is_digest},
    store::{Entry, StoreId},
};

/// The most cached answers: more lists than the keys of a processor share.
const MAX_CACHED_ANSWERS: usize = 1024;
/// The most bytes of the questions of these answers.
const MAX_CACHED_BYTES: usize = 4 << 20;
/// The most objects that are compared directly, which is faster than a cache lookup.
const MAX_UNCACHED_OBJECTS: usize = 16;

/// The most pauses of all questions about one record, each after about a millisecond of host code.
const MAX_PAUSES: usize = 64;

/// The most bytes of the objects that are fetched from the API server for all questions about one
/// record. Those of a run are bounded, but the objects may have grown since.
const MAX_FETCHED_BYTES: usize = 16 << 20;

/// The cached answers to lists, for all keys of one version of a processor: a list that many keys
/// read is evaluated once until its store changes.
#[derive(Debug, Default)]
pub struct Answers(Mutex<Cached>);

#[derive(Debug, Default)]
struct Cached {
    of: HashMap<Question, Answer>,
    /// The bytes of the questions.
    bytes: usize,
}

/// A store's answer at a sequence number. Sequence numbers are never reused, so the answer is valid
/// as long as the store's number is the same.
#[derive(Clone, Copy, Debug)]
struct Answer {
    store: StoreId,
    sequence: u64,
    digest: Digest,
    kept: Option<Digest>,
    objects: usize,
    bytes: usize,
}

// === impl Answers ===

impl Answers {
    fn get(&self, question: &Question, store: StoreId, sequence: u64) -> Option<Answer> {
        let answers = self.0.lock();
        answers.of.get(question).filter(|of| of.store == store && of.sequence == sequence).copied()
    }

    fn keep(&self, question: &Question, answer: Answer) {
        let mut answers = self.0.lock();
        let bytes = question.bytes();
        if answers.of.contains_key(question) {
            answers.bytes -= bytes;
        } else if answers.of.len() >= MAX_CACHED_ANSWERS || answers.bytes + bytes > MAX_CACHED_BYTES
        {
            *answers = Cached::default();
        }
        answers.bytes += bytes;
        answers.of.insert(question.clone(), answer);
    }
}

// === impl View ===

impl View {
    /// Reserves memory for the reads and writes that a run is known to make.
    pub fn reserve(&mut self, reads: usize, writes: usize) {
        self.reads.reserve(reads, writes);
    }

    /// Repeats a recorded read, and returns the digest of its current answer. The read is recorded
    /// as in a run.
    ///
    /// Returns `None` if the record holds digests in place of the question's texts, if the read is
    /// refused and not recorded, or if the questions examine or fetch so much that a run, which has
    /// bounds, has to repeat them.
    pub async fn ask_again(&mut self, asked: record::Read, answers: &Answers) -> Option<Digest> {
        if self.fetched > MAX_FETCHED_BYTES {
            return None;
        }
        let before = self.reads.records().len();
        let pace = &mut Yielding { most: MAX_PAUSES };
        self.pause_if_due(pace).await.ok()?;
        match &asked.question {
            Question::Get { of, fields } => {
                let (of, fields) = (of.clone(), Arc::clone(fields));
                let target = ReadTarget::object(of.namespace.as_deref(), &of.name);
                if self.is_at_hand(&of.kind, target) {
                    self.get_again(asked, &of, &fields);
                } else {
                    // The answer or its error is in the recorded read.
                    let _ = self.get_allowed(&of, &fields).await;
                }
            }
            Question::List { of, limit, from } => {
                let (limit, from) = (*limit, from.clone());
                let (of, from) = (of.clone(), from.as_deref());
                if !can_be_asked(&of) || from.is_some_and(is_digest) {
                    return None;
                }
                let target = ReadTarget::list(of.namespace.as_deref(), of.name.as_deref());
                if self.is_at_hand(&of.kind, target) {
                    self.list_again(asked, &of, (limit, from), answers, pace).await.ok()?;
                } else {
                    let _ = self.list_allowed(&of, limit, from, pace).await.ok()?;
                }
            }
        }
        // Invalid reads, and most undeclared ones, are not recorded.
        self.reads.records().get(before).map(|read| read.answer)
    }

    /// Reads one object as [`View::get`] does, without returning it.
    fn get_again(&mut self, asked: record::Read, of: &ObjectRef, fields: &[String]) {
        let answer = self.find_kept(of, fields);
        if let Ok(found) = &answer
            && is_as_kept(&asked, found.iter().map(|(entry, _)| entry))
        {
            return self.record_again(asked);
        }
        let given = |(entry, fields): Kept| Cut::new(&fields).give(&entry);
        drop(self.record_get(of, fields, answer.map(|found| found.map(given))));
    }

    /// Reads a page as [`View::list`] does, without returning the objects.
    async fn list_again(
        &mut self,
        asked: record::Read,
        of: &Selection,
        (limit, from): (u32, Option<&str>),
        answers: &Answers,
        pace: &mut Yielding,
    ) -> Result<(), TooMuch> {
        let Ok(listing) = self.listing(of, from) else {
            // This read fails in the same way, and records the error.
            return self.list_paced(of, limit, from, pace).await.map(drop);
        };
        let answering = &listing.answering;
        let (store, sequence) = (answering.store, answering.snapshot.sequence());
        let is_shared = asked.objects > MAX_UNCACHED_OBJECTS && !record::is_secret(&of.kind);
        if is_shared && let Some(known) = answers.get(&asked.question, store, sequence) {
            let Answer { digest: answer, kept, objects, bytes, .. } = known;
            self.record_again(record::Read { answer, kept, objects, bytes, ..asked });
            return Ok(());
        }
        let selected = self.first(&listing, asked.objects + 1, pace).await?;
        if is_as_kept(&asked, selected.iter()) {
            for entry in &selected {
                self.reads.answered(&answering.kind, entry);
            }
            self.record_again(asked);
        } else {
            drop(self.list_paced(of, limit, from, pace).await?);
        }
        if is_shared && let Some(read) = self.reads.records().last() {
            let record::Read { answer: digest, kept, objects, bytes, .. } = *read;
            let answer = Answer { store, sequence, digest, kept, objects, bytes };
            answers.keep(&read.question, answer);
        }
        Ok(())
    }

    /// Records a read with the texts of the former record, to share them.
    fn record_again(&mut self, read: record::Read) {
        let stood = self.stood.take();
        self.reads.record_known(record::Read { stood, ..read });
    }
}

/// Returns whether these stored objects equal those of a recorded answer.
///
/// Equal objects need not be rendered again: the answer follows from the stored fields.
fn is_as_kept<'a>(asked: &record::Read, now: impl Iterator<Item = &'a Arc<Entry>>) -> bool {
    of_kept(asked.answer.is_keyed(), now) == asked.kept.unwrap_or(asked.answer)
}

impl View {
    /// Returns an object as it was read; `None` if it was not read, or if so many objects were read
    /// that a store lookup is faster.
    pub fn answered(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> Option<&Arc<Entry>> {
        if self.reads.answers() > MAX_UNCACHED_OBJECTS {
            None
        } else {
            self.reads.find(kind, namespace, name)
        }
    }

    /// Returns the digest of the object that a run would record; see [`View::reconciled`].
    pub fn object_digest(&self) -> Option<Digest> {
        self.reads.object()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{
        fixture::{all, description, fields, kind, labelled, object, reference, with},
        grant::Grant,
        store::{Scope, Stores},
    };

    #[test]
    fn the_questions_of_cached_answers_are_bounded_in_bytes() {
        let grant = Grant::new(&description(all("Rule"), vec![all("Thing")])).unwrap();
        let stores = Stores::new();
        for (of, scope, wanted) in grant.wanted() {
            stores.open(of, scope, wanted).unwrap();
        }
        let (store, ..) = stores.snapshots(&kind("Thing"), |_| true).stores.remove(0);
        let digest = Digest::of(false, [b"x".as_slice()]);
        let answer = Answer { store, sequence: 1, digest, kept: None, objects: 20, bytes: 1 };
        let question = |at: usize| Question::List {
            of: Box::new(labelled(all("Thing"), &format!("l={at:01000}"))),
            limit: 0,
            from: None,
        };
        let answers = Answers::default();
        for at in 0..1_000 {
            answers.keep(&question(at), answer);
            answers.keep(&question(at), answer);
        }
        assert_eq!(answers.0.lock().of.len(), 1_000, "each counts once");
        let long = |at: usize| Question::List {
            of: Box::new(labelled(all("Thing"), &format!("l={at:050000}"))),
            limit: 0,
            from: None,
        };
        for at in 0..1_000 {
            answers.keep(&long(at), answer);
            let held = answers.0.lock();
            assert!(held.bytes <= MAX_CACHED_BYTES, "{}", held.bytes);
            if at % 100 == 0 {
                assert_eq!(held.of.keys().map(Question::bytes).sum::<usize>(), held.bytes);
            }
        }
        assert!(answers.get(&long(999), store, 1).is_some());
    }

    /// A change of one of three things, or of an object that nothing reads.
    #[derive(Clone, Debug)]
    enum Step {
        Set { name: u8, label: u8, value: u8 },
        Delete { name: u8 },
        Other,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0_u8..3, 0_u8..2, 0_u8..2).prop_map(|(name, label, value)| Step::Set {
                name,
                label,
                value
            }),
            (0_u8..3).prop_map(|name| Step::Delete { name }),
            Just(Step::Other),
        ]
    }

    fn carry_out(stores: &Stores, step: &Step, revision: u64) {
        let feed = |of: &Kind| stores.feed(of, &Scope::default()).unwrap();
        let thing = |name: &u8| object("Thing", &format!("t{name}"), revision);
        match step {
            Step::Set { name, label, value } => {
                let set = with(thing(name), "metadata/labels", json!({"l": label.to_string()}));
                feed(&kind("Thing")).upsert(&with(set, "spec/a", json!(value)));
            }
            Step::Delete { name } => feed(&kind("Thing")).delete(&thing(name)),
            Step::Other => feed(&kind("Rule")).upsert(&object("Rule", "r", revision)),
        }
    }

    fn asked(view: &mut View) {
        let of = || fields(all("Thing"), &["spec.a"]);
        view.get(&reference("Thing", "t0"), &["spec.a".to_owned()]).unwrap();
        view.list(&of(), 0, None).unwrap();
        view.list(&labelled(of(), "l=1"), 0, None).unwrap();
        let first = view.list(&of(), 1, None).unwrap();
        if let Some(next) = first.next {
            view.list(&of(), 0, Some(&next)).unwrap();
        }
        assert!(view.list(&all("Denied"), 0, None).is_err());
    }

    proptest! {
        #[test]
        fn a_question_that_is_asked_again_is_answered_as_a_run_would_be(
            steps in prop::collection::vec(step(), 1..24),
        ) {
            let grant =
                Arc::new(Grant::new(&description(all("Rule"), vec![all("Thing")])).unwrap());
            let stores = Stores::new();
            for (of, scope, wanted) in grant.wanted() {
                let feed = stores.open(of, scope, wanted).unwrap();
                feed.begin_list();
                feed.end_list();
            }
            let new = || View::new(stores.clone(), Arc::clone(&grant), super::super::PAGE_BYTES);
            // Shared by all steps: an answer for a former state must not be given for a later one.
            let answers = Answers::default();
            let mut first = new();
            asked(&mut first);
            let questions = first.finish();
            for (step, revision) in steps.iter().zip(100..) {
                carry_out(&stores, step, revision);
                for _ in 0..2 {
                    let (mut again, mut plain) = (new(), new());
                    for read in questions.records() {
                        let now = again.ask_again(read.clone(), &answers);
                        let now = now.now_or_never().flatten().unwrap();
                        match &read.question {
                            Question::Get { of, fields } => drop(plain.get(of, fields)),
                            Question::List { of, limit, from } => {
                                drop(plain.list(of, *limit, from.as_deref()));
                            }
                        }
                        prop_assert_eq!(now, plain.reads.records().last().unwrap().answer);
                    }
                    let (again, plain) = (again.finish(), plain.finish());
                    prop_assert_eq!(again.records(), plain.records());
                    let of = |reads: &crate::reads::Reads| format!("{:?}", reads.dependencies());
                    prop_assert_eq!(of(&again), of(&plain));
                }
            }
        }
    }
}
