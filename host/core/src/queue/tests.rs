use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use tokio::time::{Instant, advance};

use super::*;
use crate::contract::Kind;

fn key(processor: &str, name: &str) -> Key {
    Key::new(&processor.into(), &"r".into(), Some("default"), name)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn success() -> Done {
    Done::Success { requeue: None }
}

fn unlimited(queue: &Queue, processor: &str) {
    queue.set_processor(&processor.into(), Limits { concurrency: usize::MAX, rate: None });
}

fn names(queue: &Queue) -> Vec<String> {
    std::iter::from_fn(|| queue.try_next()).map(|run| run.key.name().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_key_added_twice_runs_once_with_both_causes() {
    let queue = Queue::new();
    queue.add(&key("p", "a"), Cause::Start, Priority::Change);
    queue.add(&key("p", "a"), Cause::Asked, Priority::Resync);
    let run = queue.next().await;
    assert_eq!((run.causes, run.more_causes), (vec![Cause::Start, Cause::Asked], 0));
    assert_eq!(queue.try_next(), None);
}

#[tokio::test(start_paused = true)]
async fn a_key_added_while_it_runs_runs_once_more_after_it() {
    let queue = Queue::new();
    queue.add(&key("p", "a"), Cause::Start, Priority::Change);
    let run = queue.next().await;
    queue.add(&run.key, Cause::Asked, Priority::Change);
    assert_eq!(queue.try_next(), None);
    queue.done(&run.key, success());
    assert_eq!(queue.try_next().unwrap().causes, [Cause::Asked]);
}

fn changed(name: &str) -> Cause {
    Cause::Object {
        kind: Kind::home("", "v1", "Pod").into(),
        namespace: None,
        name: name.into(),
        what: What::Changed,
        role: Role::Read,
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_takes_the_changes_along_that_came_before_it_looked_at_anything() {
    let queue = Queue::new();
    queue.add(&key("p", "a"), Cause::Start, Priority::Change);
    let mut run = queue.next().await;
    queue.add(&run.key, changed("one"), Priority::Change);
    queue.add(&run.key, changed("two"), Priority::Change);
    queue.join(&mut run);
    assert_eq!((run.causes.len(), run.more_causes), (3, 0));
    queue.add(&run.key, changed("three"), Priority::Change);
    queue.done(&run.key, success());
    let mut run = queue.try_next().unwrap();
    assert_eq!(run.causes, [changed("three")], "it came after that");
    for name in 0..20 {
        queue.add(&run.key, changed(&name.to_string()), Priority::Change);
    }
    queue.join(&mut run);
    queue.done(&run.key, success());
    assert_eq!(queue.try_next().unwrap().causes.len(), 8, "all that there were is not known");
}

#[tokio::test(start_paused = true)]
async fn causes_do_not_join_a_run_if_one_is_no_store_change() {
    let queue = Queue::new();
    for cause in [Cause::NewVersion, Cause::Rights, Cause::Asked, Cause::Overrun, Cause::Requeue] {
        queue.add(&key("p", "a"), Cause::Start, Priority::Change);
        let mut run = queue.next().await;
        queue.add(&run.key, changed("one"), Priority::Change);
        queue.add(&run.key, cause.clone(), Priority::Change);
        queue.join(&mut run);
        assert_eq!(run.causes, [Cause::Start]);
        queue.done(&run.key, success());
        let again = queue.try_next().unwrap();
        assert_eq!(again.causes, [changed("one"), cause], "the run cannot know that");
        queue.done(&again.key, success());
    }
}

#[tokio::test(start_paused = true)]
async fn delays_do_not_elapse_while_the_clock_stands_still() {
    let queue = Queue::new();
    queue.stand_still();
    queue.add(&key("p", "a"), Cause::Start, Priority::Change);
    let run = queue.next().await;
    queue.done(&run.key, Done::Failure(Again::BackOff));
    queue.add_after(&key("p", "b"), ms(1), Cause::Requeue, Priority::Change);
    advance(ms(60_000)).await;
    assert_eq!(queue.try_next(), None);
    assert_eq!(queue.state(), State { ready: 0, running: 0, delayed: 2 });
    // A change runs the key at once, and the failure still counts.
    queue.add(&key("p", "a"), Cause::Asked, Priority::Change);
    assert_eq!(queue.try_next().unwrap().attempt, 1);
    let waits = tokio::time::timeout(ms(60_000), queue.next()).await;
    assert!(waits.is_err(), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn a_time_that_stands_still_moves_when_it_is_told() {
    let queue = Queue::new();
    queue.stand_still();
    queue.add_after(&key("p", "a"), ms(10), Cause::Requeue, Priority::Change);
    advance(ms(20)).await;
    assert_eq!(queue.ready(), []);
    queue.advance(ms(10));
    assert_eq!(queue.ready(), [key("p", "a")]);
}

#[tokio::test(start_paused = true)]
async fn a_renewed_key_and_a_share_go_by_the_clock_that_stands_still() {
    let queue = Queue::new();
    queue.stand_still();
    let subject = key("p", "a");
    queue.set_min_interval(subject.processor(), subject.reconciler(), ms(10));
    queue.add(&subject, Cause::Start, Priority::Change);
    let run = queue.next().await;
    queue.done(&run.key, success());
    advance(ms(20)).await;
    queue.renew(&subject, Cause::Asked, Priority::Change);
    assert_eq!(queue.share_of("p").state, State { ready: 0, running: 0, delayed: 1 });
    queue.advance(ms(10));
    assert_eq!(queue.share_of("p").state, State { ready: 1, running: 0, delayed: 0 });
}

#[tokio::test(start_paused = true)]
async fn a_key_is_taken_out_of_turn_if_it_is_ready() {
    let queue = Queue::new();
    for name in ["b", "a", "c"] {
        queue.add(&key("p", name), Cause::Start, Priority::Change);
    }
    assert_eq!(queue.ready(), ["a", "b", "c"].map(|name| key("p", name)));
    assert_eq!(queue.take_key(&key("p", "c")).unwrap().key, key("p", "c"));
    assert_eq!(queue.take_key(&key("p", "c")), None);
    queue.done(&key("p", "c"), success());
    assert_eq!(names(&queue), ["b", "a"]);
}

#[tokio::test(start_paused = true)]
async fn the_earliest_of_two_delays_wins() {
    for delays in [[10, 50], [50, 10]] {
        let queue = Queue::new();
        for delay in delays {
            queue.add_after(&key("p", "a"), ms(delay), Cause::Requeue, Priority::Change);
        }
        let before = Instant::now();
        queue.next().await;
        assert_eq!(before.elapsed(), ms(10), "{delays:?}");
        assert_eq!(queue.state(), State { ready: 0, running: 1, delayed: 0 });
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_takes_the_pending_delay_along() {
    let queue = Queue::new();
    queue.add_after(&key("p", "a"), ms(10), Cause::Requeue, Priority::Change);
    queue.add(&key("p", "a"), Cause::Start, Priority::Change);
    let run = queue.next().await;
    queue.done(&run.key, success());
    advance(ms(20)).await;
    assert_eq!(queue.try_next(), None);
    assert!(!queue.contains(&run.key));
}

#[tokio::test(start_paused = true)]
async fn back_off_doubles_up_to_its_bound_and_ends_with_a_success() {
    let queue = Queue::new();
    queue.add(&key("p", "a"), Cause::Start, Priority::Change);
    let mut waits = Vec::new();
    for attempt in 0..20 {
        let before = Instant::now();
        let run = queue.next().await;
        assert_eq!(run.attempt, attempt);
        waits.push(before.elapsed());
        queue.done(&run.key, Done::Failure(Again::BackOff));
    }
    assert_eq!(waits[..4], [ms(0), ms(5), ms(10), ms(20)]);
    assert_eq!(waits[17..], [ms(5 << 16), ms(5 << 17), ms(1_000_000)]);
    let run = queue.next().await;
    queue.done(&run.key, Done::Success { requeue: Some((ms(7), Cause::Requeue)) });
    let before = Instant::now();
    let run = queue.next().await;
    assert_eq!((run.attempt, before.elapsed(), run.causes), (0, ms(7), vec![Cause::Requeue]));
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_waits_for_a_change_runs_only_then_and_counts() {
    let queue = Queue::new();
    queue.add(&key("p", "a"), Cause::Start, Priority::Change);
    let run = queue.next().await;
    queue.done(&run.key, Done::Failure(Again::OnChange));
    advance(Duration::from_secs(10_000)).await;
    assert_eq!(queue.try_next(), None);
    queue.add(&run.key, Cause::Asked, Priority::Change);
    assert_eq!(queue.try_next().unwrap().attempt, 1);
}

#[tokio::test(start_paused = true)]
async fn a_change_comes_before_a_resync_and_before_a_retry_is_due() {
    let queue = Queue::new();
    unlimited(&queue, "p");
    queue.add(&key("p", "background"), Cause::NewVersion, Priority::Background);
    queue.add(&key("p", "resync"), Cause::Resync, Priority::Resync);
    queue.add(&key("p", "change"), Cause::Start, Priority::Change);
    queue.add(&key("p", "raised"), Cause::Resync, Priority::Background);
    queue.add(&key("p", "raised"), Cause::Asked, Priority::Change);
    assert_eq!(names(&queue), ["change", "raised", "resync", "background"]);
    queue.done(&key("p", "change"), Done::Failure(Again::After(ms(60_000))));
    queue.add(&key("p", "change"), Cause::Asked, Priority::Change);
    assert_eq!(names(&queue), ["change"]);
}

#[tokio::test(start_paused = true)]
async fn a_low_priority_gets_its_share() {
    let queue = Queue::new();
    unlimited(&queue, "p");
    queue.add(&key("p", "low"), Cause::NewVersion, Priority::Background);
    for at in 0..40 {
        queue.add(&key("p", &at.to_string()), Cause::Start, Priority::Change);
    }
    assert_eq!(names(&queue).iter().position(|name| name == "low"), Some(15));
}

#[tokio::test(start_paused = true)]
async fn processors_take_turns() {
    let queue = Queue::new();
    for processor in ["p", "q"] {
        unlimited(&queue, processor);
    }
    for at in 0..5 {
        queue.add(&key("p", &at.to_string()), Cause::Start, Priority::Change);
    }
    queue.add(&key("q", "x"), Cause::Start, Priority::Background);
    assert_eq!(names(&queue)[..3], ["0", "x", "1"]);
}

#[tokio::test(start_paused = true)]
async fn no_more_keys_of_a_processor_run_than_it_may() {
    let queue = Queue::new();
    queue.set_processor(&"p".into(), Limits { concurrency: 2, rate: None });
    for name in ["a", "b", "c"] {
        queue.add(&key("p", name), Cause::Start, Priority::Change);
    }
    assert_eq!(names(&queue), ["a", "b"]);
    queue.done(&key("p", "a"), success());
    assert_eq!(names(&queue), ["c"]);
}

#[tokio::test(start_paused = true)]
async fn a_rate_spreads_the_runs() {
    let queue = Queue::new();
    queue.set_processor(&"p".into(), Limits { concurrency: usize::MAX, rate: Some(10.0) });
    for at in 0..40 {
        queue.add(&key("p", &at.to_string()), Cause::Start, Priority::Change);
    }
    assert_eq!(names(&queue).len(), 10);
    let before = Instant::now();
    for _ in 0..30 {
        queue.next().await;
    }
    let took = before.elapsed().as_secs_f64();
    assert!((2.9..3.2).contains(&took), "{took}");
}

#[tokio::test(start_paused = true)]
async fn changes_within_the_interval_are_taken_together() {
    let queue = Queue::new();
    let subject = key("p", "a");
    queue.set_min_interval(subject.processor(), subject.reconciler(), ms(100));
    queue.add(&subject, Cause::Start, Priority::Change);
    let run = queue.next().await;
    queue.add(&subject, Cause::Asked, Priority::Change);
    queue.done(&run.key, success());
    advance(ms(40)).await;
    queue.add(&subject, Cause::Start, Priority::Change);
    let expected = Delayed { key: subject.clone(), due_in: ms(60), cause: Cause::Coalesced };
    assert_eq!(queue.delayed(), [expected]);
    let before = Instant::now();
    assert_eq!(queue.next().await.causes, [Cause::Asked, Cause::Start]);
    assert_eq!(before.elapsed(), ms(60));
    queue.done(&subject, success());
    advance(ms(100)).await;
    queue.add(&subject, Cause::Start, Priority::Change);
    assert!(queue.try_next().is_some());
}

#[tokio::test(start_paused = true)]
async fn idle_waits_for_ready_and_running_keys_but_not_for_delayed_ones() {
    let queue = Queue::new();
    queue.add_after(&key("p", "later"), ms(1000), Cause::Requeue, Priority::Change);
    queue.add(&key("p", "a"), Cause::Start, Priority::Change);
    assert!(!queue.is_idle());
    let run = queue.next().await;
    let idle = queue.idle();
    let mut idle = std::pin::pin!(idle);
    assert!(futures::poll!(idle.as_mut()).is_pending());
    queue.done(&run.key, success());
    idle.await;
    assert_eq!(queue.delayed()[0].due_in, ms(1000));
}

#[tokio::test(start_paused = true)]
async fn every_waiting_worker_gets_one_of_the_keys_that_become_due_at_once() {
    let queue = Queue::new();
    for name in ["a", "b"] {
        queue.add_after(&key("p", name), ms(10), Cause::Requeue, Priority::Change);
    }
    let (one, two) = tokio::join!(queue.next(), queue.next());
    assert_ne!(one.key, two.key);
}

#[tokio::test(start_paused = true)]
async fn renewing_a_key_resets_its_failures() {
    let queue = Queue::new();
    queue.add(&key("p", "a"), Cause::Start, Priority::Change);
    for _ in 0..5 {
        let run = queue.next().await;
        queue.done(&run.key, Done::Failure(Again::BackOff));
    }
    let share = queue.share_of("p");
    assert_eq!((share.state.delayed, share.backing_off, share.failing), (1, 1, 1));
    queue.renew(&key("p", "a"), Cause::NewVersion, Priority::Background);
    let run = queue.try_next().unwrap();
    assert_eq!((run.attempt, &run.causes[..]), (0, &[Cause::NewVersion][..]));
    queue.done(&run.key, Done::Failure(Again::BackOff));
    assert_eq!(queue.delayed()[0].due_in, ms(5));
}

#[tokio::test(start_paused = true)]
async fn a_removed_reconciler_leaves_nothing_but_its_running_keys_alone() {
    let queue = Queue::new();
    let of = |reconciler: &str, name: &str| {
        Key::new(&"p".into(), &reconciler.into(), Some("default"), name)
    };
    queue.add(&of("gone", "a"), Cause::Start, Priority::Change);
    let run = queue.next().await;
    queue.add(&of("gone", "b"), Cause::Start, Priority::Change);
    queue.add(&of("stays", "c"), Cause::Start, Priority::Change);
    queue.add_after(&of("gone", "d"), ms(10), Cause::Requeue, Priority::Change);
    queue.remove_reconciler("p", &"gone".into());
    assert_eq!(names(&queue), ["c"]);
    // The reconciler is added again while a key of it runs.
    queue.add(&run.key, Cause::Start, Priority::Change);
    assert_eq!(queue.try_next(), None, "it runs still");
    queue.done(&run.key, Done::Failure(Again::BackOff));
    let again = queue.try_next().unwrap();
    assert_eq!((&again.key, again.attempt), (&run.key, 0), "how a dropped run ends does not count");
}

#[tokio::test(start_paused = true)]
async fn a_removed_processor_leaves_nothing_but_its_running_keys_alone() {
    let queue = Queue::new();
    queue.add(&key("p", "a"), Cause::Start, Priority::Change);
    let run = queue.next().await;
    queue.add(&key("p", "b"), Cause::Start, Priority::Change);
    queue.remove_processor("p");
    assert_eq!(queue.state(), State { ready: 0, running: 1, delayed: 0 });
    queue.add(&run.key, Cause::NewVersion, Priority::Change);
    assert_eq!(queue.try_next(), None, "it still runs");
    queue.done(&run.key, Done::Failure(Again::BackOff));
    assert_eq!(queue.next().await.attempt, 0);
}

#[tokio::test(start_paused = true)]
async fn the_share_of_a_processor_counts_its_own_keys_alone() {
    let queue = Queue::new();
    for name in ["a", "b", "c"] {
        queue.add(&key("p", name), Cause::Start, Priority::Change);
    }
    queue.add(&key("q", "a"), Cause::Start, Priority::Change);
    queue.add_after(&key("q", "b"), ms(10), Cause::Requeue, Priority::Change);
    let run = queue.take_key(&key("p", "a")).unwrap();
    queue.done(&run.key, Done::Failure(Again::After(ms(10))));
    queue.take_key(&key("p", "b")).unwrap();
    let state = |ready, running, delayed| State { ready, running, delayed };
    let expected = Share { state: state(1, 1, 1), backing_off: 1, failing: 1 };
    assert_eq!(queue.share_of("p"), expected);
    assert_eq!(queue.share_of("q"), Share { state: state(1, 0, 1), ..Share::default() });
    assert_eq!(queue.share_of("none"), Share::default());
    assert_eq!(queue.states(), [("p".into(), state(1, 1, 1)), ("q".into(), state(1, 0, 1))]);
    assert_eq!(queue.state(), state(2, 1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_removed_processor_leaves_no_state_after_its_last_run_ends() {
    let queue = Queue::new();
    queue.add(&key("p", "a"), Cause::Start, Priority::Change);
    let run = queue.next().await;
    queue.remove_processor("p");
    assert_eq!(queue.states().len(), 1);
    queue.done(&run.key, Done::Success { requeue: None });
    assert!(queue.states().is_empty());
    // A run that ends late queues its key again.
    queue.add(&key("p", "a"), Cause::Start, Priority::Change);
    let run = queue.next().await;
    queue.done(&run.key, Done::Success { requeue: None });
    assert!(queue.states().is_empty());
}

fn in_namespace(namespace: &str, name: &str) -> Key {
    Key::new(&"p".into(), &"r".into(), Some(namespace), name)
}

/// Adds a key whose last run failed.
fn add_failing(queue: &Queue, key: &Key, priority: Priority) {
    queue.add(key, Cause::Start, priority);
    let run = queue.take_key(key).unwrap();
    queue.done(&run.key, Done::Failure(Again::OnChange));
    queue.add(key, Cause::Asked, priority);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_with_many_keys_does_not_delay_the_key_of_another() {
    for failing in [false, true] {
        let queue = Queue::new();
        unlimited(&queue, "p");
        for name in 0..10_000 {
            let key = in_namespace("hostile", &name.to_string());
            if failing {
                add_failing(&queue, &key, Priority::Change);
            } else {
                queue.add(&key, Cause::Start, Priority::Change);
            }
        }
        for round in 0..20 {
            queue.add(&in_namespace("benign", &round.to_string()), Cause::Start, Priority::Change);
            let taken: Vec<Key> = (0..2).map(|_| queue.try_next().unwrap().key).collect();
            let is_there = taken.iter().any(|key| key.namespace() == Some("benign"));
            assert!(is_there, "failing {failing}, round {round}: {taken:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn keys_that_fail_leave_a_place_to_others() {
    for (concurrency, failing, beside) in [(4, 3, 1), (2, 1, 1), (1, 1, 0)] {
        let queue = Queue::new();
        queue.set_processor(&"p".into(), Limits { concurrency, rate: None });
        for name in 0..10 {
            add_failing(&queue, &in_namespace("hostile", &name.to_string()), Priority::Change);
        }
        assert_eq!(names(&queue).len(), failing, "of {concurrency}");
        assert_eq!(queue.state().ready, 10 - failing, "they wait");
        queue.add(&in_namespace("benign", "a"), Cause::Start, Priority::Change);
        assert_eq!(names(&queue).len(), beside, "of {concurrency}");
        queue.done(&in_namespace("hostile", "0"), Done::Failure(Again::OnChange));
        // The free place goes to the next failing key, unless another key has waited for it.
        let next = if beside == 0 { "a".to_owned() } else { failing.to_string() };
        assert_eq!(names(&queue), [next], "of {concurrency}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_begins_anew_does_not_come_after_those_that_do_not_fail() {
    let queue = Queue::new();
    unlimited(&queue, "p");
    for name in ["a", "b"] {
        add_failing(&queue, &key("p", name), Priority::Change);
    }
    queue.add(&key("p", "c"), Cause::Start, Priority::Change);
    queue.renew(&key("p", "b"), Cause::NewVersion, Priority::Background);
    assert_eq!(names(&queue), ["c", "b", "a"]);
}

#[tokio::test(start_paused = true)]
async fn every_key_is_taken_within_a_bounded_number_of_takes_whatever_comes_beside_it() {
    let priorities = [Priority::Change, Priority::Resync, Priority::Background];
    for (priority, failing) in priorities.into_iter().flat_map(|of| [(of, false), (of, true)]) {
        let queue = Queue::new();
        unlimited(&queue, "p");
        let waiting = in_namespace("benign", "a");
        if failing {
            add_failing(&queue, &waiting, priority);
        } else {
            queue.add(&waiting, Cause::Start, priority);
        }
        let mut takes = 0;
        loop {
            // Each line always holds keys of other namespaces.
            for (at, beside) in priorities.into_iter().enumerate() {
                for namespace in 0..3 {
                    let key = in_namespace(&format!("{at}-{namespace}"), &takes.to_string());
                    queue.add(&key, Cause::Start, beside);
                }
            }
            takes += 1;
            if queue.try_next().unwrap().key == waiting {
                break;
            }
            // The two lowest lines share every 16th take, a failing key gets every 9th take of its
            // line, and a namespace every 4th of these.
            assert!(takes <= 16 * 2 * 9 * 4, "{priority:?}, failing: {failing}");
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add(u8, Priority),
    AddAfter(u8, u64),
    Take,
    Done(u8, Done),
    Advance(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let priority =
        prop_oneof![Just(Priority::Change), Just(Priority::Resync), Just(Priority::Background)];
    let done = prop_oneof![
        Just(success()),
        (0..30_u64).prop_map(|after| Done::Success { requeue: Some((ms(after), Cause::Requeue)) }),
        Just(Done::Failure(Again::BackOff)),
        Just(Done::Failure(Again::OnChange)),
        Just(Done::Cancelled),
        (0..30_u64).prop_map(|after| Done::Failure(Again::After(ms(after)))),
        (0..30_u64).prop_map(|after| Done::Failure(Again::NotBefore(ms(after)))),
    ];
    prop_oneof![
        (0..8_u8, priority).prop_map(|(key, priority)| Step::Add(key, priority)),
        (0..8_u8, 0..30_u64).prop_map(|(key, after)| Step::AddAfter(key, after)),
        Just(Step::Take),
        (0..8_u8, done).prop_map(|(key, done)| Step::Done(key, done)),
        (0..20_u64).prop_map(Step::Advance),
    ]
}

/// The expected state of one key.
#[derive(Default)]
struct Expected {
    due: Option<Instant>,
    running: bool,
    failures: u32,
}

impl Expected {
    fn wants(&mut self, due: Instant) {
        self.due = Some(self.due.map_or(due, |held| held.min(due)));
    }

    fn is_ready(&self) -> bool {
        !self.running && self.due.is_some_and(|due| due <= Instant::now())
    }

    fn end(&mut self, done: &Done) {
        self.running = false;
        self.failures = match done {
            Done::Success { .. } => 0,
            Done::Failure(_) => self.failures + 1,
            Done::Cancelled => self.failures,
        };
        let after = match done {
            Done::Success { requeue } => requeue.as_ref().map(|(after, _)| *after),
            Done::Failure(Again::BackOff) => Some(ms(5 << (self.failures - 1).min(20))),
            Done::Failure(Again::NotBefore(least)) => {
                Some(ms(5 << (self.failures - 1).min(20)).max(*least))
            }
            Done::Failure(Again::After(after)) => Some(*after),
            Done::Failure(Again::OnChange) => None,
            Done::Cancelled => Some(Duration::ZERO),
        };
        if let Some(after) = after {
            self.wants(Instant::now() + after);
        }
    }
}

/// Returns a key of one of two processors, each with two namespaces.
fn numbered(number: u8) -> Key {
    let processor = if number.is_multiple_of(2) { "p" } else { "q" };
    let namespace = (number / 4).to_string();
    Key::new(&processor.into(), &"r".into(), Some(&namespace), &number.to_string())
}

async fn run_steps(steps: Vec<Step>) {
    let queue = Queue::new();
    unlimited(&queue, "p");
    unlimited(&queue, "q");
    let mut model: BTreeMap<Key, Expected> = BTreeMap::new();
    for step in steps {
        match step {
            Step::Add(number, priority) => {
                queue.add(&numbered(number), Cause::Start, priority);
                model.entry(numbered(number)).or_default().wants(Instant::now());
            }
            Step::AddAfter(number, after) => {
                queue.add_after(&numbered(number), ms(after), Cause::Requeue, Priority::Change);
                model.entry(numbered(number)).or_default().wants(Instant::now() + ms(after));
            }
            Step::Take => take(&queue, &mut model),
            Step::Done(number, done) => {
                let expected = model.entry(numbered(number)).or_default();
                if expected.running {
                    expected.end(&done);
                }
                queue.done(&numbered(number), done);
            }
            Step::Advance(by) => advance(ms(by)).await,
        }
    }
    for (key, expected) in &mut model {
        if expected.running {
            queue.done(key, success());
            expected.end(&success());
        }
    }
    advance(Duration::from_secs(10_000)).await;
    for _ in 0..=model.len() {
        take(&queue, &mut model);
    }
    assert!(model.values().all(|expected| expected.due.is_none()), "a key was lost");
}

fn take(queue: &Queue, model: &mut BTreeMap<Key, Expected>) {
    match queue.try_next() {
        None => assert!(
            !model.values().any(Expected::is_ready),
            "a key that is ready was not given out"
        ),
        Some(run) => {
            let expected = model.entry(run.key).or_default();
            assert!(expected.is_ready(), "given out twice, too early, or without being asked for");
            assert_eq!(run.attempt, expected.failures);
            (expected.running, expected.due) = (true, None);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_key_is_lost_and_none_runs_twice_at_once(steps in prop::collection::vec(step(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(run_steps(steps));
    }
}
