use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::{
    contract::Selection,
    fixture::{all, key, kind},
    store::Query,
};

/// Returns the selection of a namespace, for one of two kinds.
fn selected(number: usize) -> Arc<Selected> {
    let (of_kind, namespace) = (["Thing", "Other"][number % 2], format!("n{}", number / 2));
    let of = Selection { namespace: Some(namespace), ..all(of_kind) };
    let by = ReconcilerId::on_demand("objects", &kind(of_kind));
    let query = Query::new(&of).unwrap();
    Arc::new(Selected::new(by, of, query))
}

fn running(started: &Started) -> BTreeSet<String> {
    let of = |id: &ReconcilerId| started.selections(id).0;
    started.reconcilers().flat_map(of).map(|of| format!("{:?}", of.of)).collect()
}

fn texts(of: &BTreeSet<usize>) -> BTreeSet<String> {
    of.iter().map(|number| format!("{:?}", selected(*number).of)).collect()
}

/// A change of what a key asks for.
#[derive(Clone, Debug)]
enum Step {
    Asks(u8, BTreeSet<usize>),
    IsGone(u8),
    /// The last runs of all objects of the selections that end are done.
    AllDone,
}

fn step() -> impl Strategy<Value = Step> {
    let asks = (0..4_u8, proptest::collection::btree_set(0..6_usize, 0..4));
    prop_oneof![
        4 => asks.prop_map(|(key, wanted)| Step::Asks(key, wanted)),
        1 => (0..4_u8).prop_map(Step::IsGone),
        1 => Just(Step::AllDone),
    ]
}

proptest! {
    #[test]
    fn what_runs_is_the_union_of_what_is_asked_for_in_any_order(
        steps in proptest::collection::vec(step(), 0..40)
    ) {
        let (mut started, mut asked) = (Started::default(), BTreeMap::new());
        for step in steps {
            let before = running(&started);
            let changed = match step {
                Step::Asks(of, wanted) => {
                    let wanted_of: Vec<_> = wanted.iter().copied().map(selected).collect();
                    asked.insert(of, wanted);
                    started.ask(&key(&of.to_string()), &wanted_of).unwrap()
                }
                Step::IsGone(of) => {
                    asked.remove(&of);
                    started.forget(&key(&of.to_string()))
                }
                Step::AllDone => {
                    let ids: Vec<_> = started.reconcilers().cloned().collect();
                    for id in &ids {
                        started.set_left(id, &[]);
                    }
                    Changed::new()
                }
            };
            let union: BTreeSet<usize> = asked.values().flatten().copied().collect();
            prop_assert_eq!(running(&started), texts(&union));
            prop_assert_eq!(changed.is_empty(), before == running(&started));
            prop_assert_eq!(started.running, union.len());
        }
        for of in 0..4_u8 {
            started.forget(&key(&of.to_string()));
        }
        let ids: Vec<_> = started.reconcilers().cloned().collect();
        for id in &ids {
            started.set_left(id, &[]);
        }
        prop_assert_eq!((started.running, started.ending, started.bytes), (0, 0, 0));
        prop_assert!(started.of.is_empty() && started.asked.is_empty());
    }
}

#[test]
fn selections_are_bounded_in_number_and_a_key_that_asks_for_too_many_keeps_its_own() {
    let mut started = Started::default();
    let all: Vec<_> = (0..=STARTED).map(selected).collect();
    for (number, of) in all[1..].chunks(512).enumerate() {
        started.ask(&key(&number.to_string()), of).unwrap();
    }
    let refused = started.ask(&key("late"), &all[..1]).unwrap_err();
    assert_eq!(refused, Exceeded::Selections(STARTED + 1));
    assert!(refused.to_string().contains("at most 4096 may run"), "{refused}");
    let refused = started.ask(&key("0"), &all[..513]).unwrap_err();
    assert_eq!(refused, Exceeded::Selections(STARTED + 1));
    assert_eq!(started.running, STARTED, "nothing has changed");
    // Known ones are free, and one that is given up makes room.
    started.ask(&key("late"), &all[1..2]).unwrap();
    started.ask(&key("0"), &all[..512]).unwrap();
    assert_eq!(started.running, STARTED, "one was given up for the new one");
}

#[test]
fn the_entries_of_keys_that_ask_for_the_same_are_bounded() {
    let mut started = Started::default();
    let all: Vec<_> = (0..1024).map(selected).collect();
    let fits =
        (0..100).find(|number: &usize| started.ask(&key(&number.to_string()), &all).is_err());
    let fits = fits.unwrap();
    assert!((50..64).contains(&fits), "{fits} keys with 64 KiB of entries each");
    assert!(started.bytes <= STARTED_BYTES);
    let equal = (0..1024).map(selected).collect::<Vec<_>>();
    started.ask(&key("0"), &equal).unwrap();
    let kept = started.asked().flat_map(|(_, asked)| asked).map(Arc::as_ptr);
    assert_eq!(kept.collect::<HashSet<_>>().len(), 1024, "equal selections are kept once");
}

#[test]
fn a_selection_that_ends_is_kept_until_the_last_runs_of_its_objects_are_done() {
    let mut started = Started::default();
    let (one, other) = (selected(0), selected(2));
    let id = one.by.clone();
    started.ask(&key("a"), &[Arc::clone(&one), Arc::clone(&other)]).unwrap();
    let changed = started.ask(&key("a"), &[Arc::clone(&other)]).unwrap();
    assert_eq!(changed, Changed::from([(id.clone(), true)]));
    let object = |namespace| Key::new(&"p".into(), &id, Some(namespace), "x");
    assert!(!started.set_left(&id, &[object("n0"), object("n9")]), "the second is not its own");
    assert_eq!(*started.selections(&id).1, [Arc::clone(&one)]);
    assert!(!started.done(&object("n1")));
    assert!(started.done(&object("n0")));
    assert_eq!(started.selections(&id).1.len(), 0);
    // One that is started again while it ends runs as before.
    started.ask(&key("a"), std::slice::from_ref(&one)).unwrap();
    assert!(!started.set_left(&id, &[object("n1")]));
    started.ask(&key("b"), &[other]).unwrap();
    assert_eq!((started.selections(&id).0.len(), started.ending), (2, 0));
    assert!(!started.done(&object("n1")));
}
