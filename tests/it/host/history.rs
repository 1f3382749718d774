//! Random histories: users change objects, resyncs happen, and hosts end and start. A host that
//! skips runs must reach the same state as one that never does, at every rest.

use std::collections::BTreeMap;

use mortise_host::host::Drive;
use proptest::{
    collection::vec,
    prelude::{Just, Strategy, any, prop_oneof},
    prop_assert_eq,
    test_runner::{Config, RngSeed, TestCaseResult, TestRunner},
};
use serde_json::{Value, json};

use super::{
    RULE, Scene, Stage, VIRTUAL_SERVICE, pod, rule, service, skipped::RESYNC_INTERVAL, text,
};

const CASES: u32 = 12;
const MAX_STEPS: usize = 13;
const RULES: usize = 3;
const SERVICES: usize = 2;

/// A change by a user.
#[derive(Clone, Debug)]
enum Change {
    /// Applies a rule for this Service.
    Rule(usize, usize),
    NoRule(usize),
    /// Applies a Service that selects the Pods of this tier.
    Service(usize, bool),
    NoService(usize),
    /// Changes or deletes an object that was written for a rule.
    Drift(usize, bool),
}

#[derive(Clone, Debug)]
enum Step {
    Change(Change),
    /// The host runs everything that is ready.
    Rest,
    /// Lets time pass until the rules' resync.
    Resync,
    /// Stops the host, makes these changes, and starts another host.
    Restart(Vec<Change>),
    /// Kills the host instead of stopping it.
    Kill(Vec<Change>),
}

/// The objects at each rest, and the number of skipped runs.
type Lived = (Vec<BTreeMap<String, Value>>, usize);

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (0..RULES, 0..SERVICES).prop_map(|(rule, service)| Change::Rule(rule, service)),
        (0..RULES).prop_map(Change::NoRule),
        (0..SERVICES, any::<bool>()).prop_map(|(service, tier)| Change::Service(service, tier)),
        (0..SERVICES).prop_map(Change::NoService),
        (0..RULES, any::<bool>()).prop_map(|(rule, deletes)| Change::Drift(rule, deletes)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => change().prop_map(Step::Change),
        2 => Just(Step::Rest),
        1 => Just(Step::Resync),
        1 => vec(change(), 0..3).prop_map(Step::Restart),
        1 => vec(change(), 0..3).prop_map(Step::Kill),
    ]
}

fn rule_name(rule: usize) -> String {
    format!("r{rule}")
}

fn service_name(service: usize) -> String {
    format!("s{service}")
}

impl Stage {
    async fn make(&self, change: &Change) {
        match change {
            Change::Rule(of, to) => {
                self.apply(&[rule(&rule_name(*of), &service_name(*to))]).await;
            }
            Change::NoRule(of) => self.delete_if_there(RULE, &rule_name(*of)).await,
            Change::Service(of, has_tier) => {
                let mut service = service(&service_name(*of));
                service["spec"]["selector"]["tier"] = json!(if *has_tier { "a" } else { "b" });
                self.apply(&[service]).await;
            }
            Change::NoService(of) => self.delete_if_there("v1/Service", &service_name(*of)).await,
            Change::Drift(of, deletes) => self.disturb(&format!("r{of}-"), *deletes).await,
        }
    }

    async fn delete_if_there(&self, of: &str, name: &str) {
        if self.get(of, name).is_some() {
            self.delete(of, name).await;
        }
    }

    async fn disturb(&self, prefix: &str, deletes: bool) {
        let mut written = self.all(VIRTUAL_SERVICE).into_values();
        let Some(written) = written.find(|of| text(of, "/metadata/name").starts_with(prefix))
        else {
            return;
        };
        let name = text(&written, "/metadata/name");
        if deletes {
            self.delete(VIRTUAL_SERVICE, name).await;
        } else {
            let theirs = json!({"spec": {"hosts": ["theirs.example.com"]}});
            self.edit(VIRTUAL_SERVICE, name, theirs).await;
        }
    }
}

/// Plays a history, with hosts that skip runs or not.
async fn live(history: &[Step], skips: bool) -> Lived {
    let scene = Scene::of_rules().await;
    scene.load(&pod("s0-1", "s0"));
    let mut stage = scene.start_with(Drive::Caller, skips);
    let (mut rests, mut skipped) = (Vec::new(), 0);
    // The final state is at rest; a resync and another host then have nothing to do.
    let end = [Step::Rest, Step::Resync, Step::Rest, Step::Restart(Vec::new()), Step::Rest];
    for step in history.iter().chain(&end) {
        match step {
            Step::Change(change) => stage.make(change).await,
            Step::Rest => {
                let reports = stage.settle().await;
                skipped += reports.iter().filter(|report| report.skipped).count();
                rests.push(stage.state());
            }
            Step::Resync => tokio::time::advance(RESYNC_INTERVAL).await,
            Step::Restart(changes) => {
                stage.host.stop().await.unwrap();
                make_all(&stage, changes).await;
                stage = stage.kill();
            }
            Step::Kill(changes) => {
                make_all(&stage, changes).await;
                stage = stage.kill();
            }
        }
    }
    (rests, skipped)
}

async fn make_all(stage: &Stage, changes: &[Change]) {
    for change in changes {
        stage.make(change).await;
    }
}

/// Plays the same histories each time, unless `PROPTEST_RNG_SEED` or `PROPTEST_CASES` are set.
fn config() -> Config {
    let is_asked_for = |name| std::env::var_os(name).is_some();
    let mut config = Config { failure_persistence: None, ..Config::default() };
    if !is_asked_for("PROPTEST_CASES") {
        config.cases = CASES;
    }
    if !is_asked_for("PROPTEST_RNG_SEED") {
        config.rng_seed = RngSeed::Fixed(0);
    }
    config
}

/// Compares hosts that skip with one that does not, and returns the number of skipped runs.
fn ends_alike(history: &[Step]) -> Result<usize, proptest::test_runner::TestCaseError> {
    let live = |skips| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(live(history, skips))
    };
    let (expected, _) = live(false);
    let (rests, skipped) = live(true);
    for (number, (rest, expected)) in rests.iter().zip(&expected).enumerate() {
        prop_assert_eq!(rest, expected, "at rest {}", number);
    }
    Ok(skipped)
}

#[test]
fn a_host_that_skips_runs_ends_in_the_same_state_as_one_that_does_not() {
    let mut runner = TestRunner::new(config());
    let skipped = std::cell::Cell::new(0);
    let ran = runner.run(&vec(step(), 1..=MAX_STEPS), |history| -> TestCaseResult {
        skipped.set(skipped.get() + ends_alike(&history)?);
        Ok(())
    });
    ran.unwrap_or_else(|error| panic!("{error}"));
    assert!(skipped.get() > 0, "some runs were skipped");
}
