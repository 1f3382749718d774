use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

fn key(namespace: u32, name: u32) -> Key {
    Key::new(&"p".into(), &"r".into(), Some(&namespace.to_string()), &name.to_string())
}

fn taken(line: &mut Line) -> Vec<(String, String)> {
    let take = || line.take(true).map(|(key, _)| key);
    let name = |key: Key| (key.namespace().unwrap_or_default().to_owned(), key.name().to_owned());
    std::iter::from_fn(take).map(name).collect()
}

#[test]
fn namespaces_take_turns_and_each_is_first_in_first_out() {
    let mut line = Line::default();
    for (ticket, (namespace, name)) in
        [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (3, 1)].into_iter().enumerate()
    {
        line.push(key(namespace, name), false, ticket as Ticket);
    }
    let expected = [("1", "1"), ("2", "1"), ("3", "1"), ("1", "2"), ("2", "2"), ("1", "3")];
    assert_eq!(
        taken(&mut line),
        expected.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()))
    );
}

#[test]
fn a_namespace_that_is_always_there_does_not_pass_over_others() {
    let mut line = Line::default();
    let mut ticket = 0;
    let mut push = |line: &mut Line, namespace, name| {
        ticket += 1;
        line.push(key(namespace, name), false, ticket)
    };
    for name in 0..100 {
        push(&mut line, 1, name);
    }
    for name in 0..100 {
        // The namespace gets a new key as soon as its last one was taken.
        push(&mut line, 2, name);
        let both = [line.take(true), line.take(true)]
            .map(|taken| taken.unwrap().0.namespace().unwrap().to_owned());
        assert!(both.contains(&"1".to_owned()) && both.contains(&"2".to_owned()), "{both:?}");
    }
}

#[test]
fn a_key_that_fails_is_late_and_not_left_out() {
    let mut line = Line::default();
    line.push(key(1, 0), true, 0);
    for name in 1..100 {
        line.push(key(2, name), false, name.into());
    }
    let at = taken(&mut line).iter().position(|(namespace, _)| namespace == "1");
    assert_eq!(at, Some(FAILING_PERIOD as usize));
}

#[test]
fn a_failing_key_is_not_taken_if_failing_keys_are_excluded() {
    let mut line = Line::default();
    line.push(key(1, 0), true, 0);
    assert!(!line.has(false) && line.take(false).is_none());
    assert!(line.has(true) && line.take(true).is_some_and(|(_, place)| place.failing));
    assert!(!line.has(true));
}

#[test]
fn namespaces_that_wait_for_nothing_are_forgotten() {
    let mut line = Line::default();
    for namespace in 0..100_000 {
        line.push(key(namespace, 0), false, namespace.into());
    }
    // Namespace 0 has more keys: the others are dropped once its next round has begun.
    line.push(key(0, 1), false, 100_000);
    line.push(key(0, 2), false, 100_001);
    for _ in 0..100_001 {
        line.take(true).unwrap();
    }
    assert_eq!(line.fresh.last.len(), 1);
    assert!(line.fresh.last.capacity() < 200, "{}", line.fresh.last.capacity());
    line.take(true).unwrap();
    assert!(line.fresh.last.is_empty());
    for namespace in 0..100_000 {
        let place = line.push(key(namespace, 0), true, namespace.into());
        line.remove(place);
    }
    assert!(line.failing.last.is_empty() && line.failing.last.capacity() < 200);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Keys come in any order and number, with takes in between: no other namespace gets more than
    /// two turns while a namespace waits, a namespace's keys are first in, first out, and no key is
    /// lost.
    #[test]
    fn no_namespace_waits_for_more_than_one_key_of_each_other(
        steps in prop::collection::vec((0..5_u32, 0..3_u8), 1..200),
    ) {
        let (mut turns, mut held) = (Turns::default(), HashMap::<u32, Vec<(u64, Ticket)>>::new());
        // The number of turns of each other namespace while one waited.
        let mut passed: HashMap<(u32, u32), usize> = HashMap::new();
        let mut ticket = 0;
        for (namespace, what) in steps {
            if what < 2 {
                ticket += 1;
                let round = turns.push(key(namespace, 0), ticket);
                held.entry(namespace).or_default().push((round, ticket));
                continue;
            }
            let Some(((round, ticket), key)) = turns.take() else {
                prop_assert!(held.values().all(Vec::is_empty), "a key was lost");
                continue;
            };
            let chosen: u32 = key.namespace().unwrap().parse().unwrap();
            prop_assert_eq!(held.get_mut(&chosen).unwrap().remove(0), (round, ticket), "first in, first out");
            passed.retain(|(waiting, _), _| *waiting != chosen);
            for waiting in held.iter().filter(|(of, keys)| **of != chosen && !keys.is_empty()).map(|(of, _)| *of) {
                let times = passed.entry((waiting, chosen)).or_default();
                *times += 1;
                prop_assert!(*times <= 2, "{} passed {} over", chosen, waiting);
            }
        }
    }
}
