//! Hostile neighbours beside a benign one, on a real control plane; `mortise_tests::hostile` lists
//! the measurements and their bounds. The short form makes the attacks that were found once, and
//! the cheaper ones of their kind, for some seconds each, several at the same time. The long form
//! makes all of them for longer, one after the other, and measures once more a minute later. All of
//! them measure latencies, so they run without other tests:
//!
//! `cargo test --profile bench -p mortise-tests --test it -- --ignored --nocapture hostile:: --test-threads=1`

use std::time::Duration;

use mortise_tests::hostile::{
    Form, Street,
    attack::{ATTACKS, Attack},
};

use crate::cluster::program;

/// The environment variable that selects attacks of the long form, separated by commas; all if
/// absent.
const NAMES: &str = "MORTISE_ATTACKS";
/// Attacks of the short form; those of a group run at the same time.
const BESIDE: &[&[&str]] = &[
    &["long-names", "long-paths", "many-kinds"],
    &["impersonation", "brackets", "owners"],
    &["finalizer"],
    &["schema", "schema-too", "many-selections", "many-grants", "long-version", "forged-version"],
    &["loops", "delete-path", "scale"],
    &["memory"],
    &["path", "log", "forged-lines", "long-failure"],
    &["trapping", "endless-describe"],
    &["deep", "wide", "labels"],
    &["finalizers", "events", "long-status"],
    &["changes", "modules"],
    &["bindings-flood"],
    &["unindexed-lists", "label-lists"],
    &["handshakes", "reviews", "growing-reviews"],
    &["pages", "definitions-within", "tags", "layers"],
];

/// Runs the attacks group by group, and fails if a measurement exceeds a bound.
async fn made(beside: &[Vec<&'static Attack>], form: Form) {
    let program = program::given().unwrap_or_else(program::built);
    let Some(mut street) = Street::open(&program).await.unwrap() else { return };
    let mut faults = Vec::new();
    for attacks in beside {
        let seen = street.attacked(attacks, form).await.unwrap();
        println!("{seen}");
        let found = seen.faults();
        println!("{}", found.join("\n"));
        faults.extend(found);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures"]
async fn no_attack_harms_a_neighbour() {
    let beside: Vec<Vec<_>> =
        BESIDE.iter().map(|names| names.iter().map(|name| Attack::named(name)).collect()).collect();
    let form = Form { lasting: Duration::from_secs(5), after: Duration::ZERO, terminate: false };
    made(&beside, form).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures"]
async fn a_host_ends_in_time_beside_an_attack() {
    let form = Form { lasting: Duration::from_secs(3), after: Duration::ZERO, terminate: true };
    made(&[vec![Attack::named("loops")]], form).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes two hours"]
async fn no_attack_harms_a_neighbour_for_long() {
    let names = std::env::var(NAMES).unwrap_or_default();
    let is_wanted =
        |attack: &&Attack| names.is_empty() || names.split(',').any(|name| name == attack.name);
    let attacks: Vec<Vec<_>> =
        ATTACKS.iter().filter(is_wanted).map(|attack| vec![attack]).collect();
    let form =
        Form { lasting: Duration::from_secs(15), after: Duration::from_mins(1), terminate: true };
    made(&attacks, form).await;
}
