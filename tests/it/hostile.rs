//! Hostile neighbours beside a benign one, before a real control plane: `mortise_tests::hostile` says what is seen, and what must
//! not be. The attacks that were found once, and the cheaper ones of their kind, are made here for some seconds each, several beside
//! each other; all of them for longer, one after the other, and a minute later:
//!
//! `cargo test --profile bench -p mortise-tests --test it -- --ignored --nocapture hostile::`

use std::{path::PathBuf, time::Duration};

use mortise_tests::hostile::{
    Form, Street,
    attack::{ATTACKS, Attack},
};

/// Names a program that is run instead of the one that is built with the tests.
const STATIC: &str = "MORTISE_STATIC";
/// Names the attacks of the whole that are made, with commas between; all if absent.
const NAMES: &str = "MORTISE_ATTACKS";
/// Those that are made beside each other in the short form.
const BESIDE: &[&[&str]] = &[
    &["long-names", "long-paths", "many-kinds"],
    &["impersonation", "brackets", "owners"],
    &["finalizer"],
    &["schema", "schema-too", "many-selections", "long-version"],
    &["loops", "delete-path", "scale"],
    &["memory"],
    &["path", "log", "forged-lines", "long-failure"],
    &["trapping", "endless-describe"],
    &["deep", "wide", "labels"],
    &["finalizers", "events", "long-status"],
    &["changes", "modules"],
];

fn program() -> PathBuf {
    let given = std::env::var_os(STATIC).map(PathBuf::from);
    given.unwrap_or_else(|| env!("CARGO_BIN_EXE_mortise-tested").into())
}

/// Makes attacks, some at a time; what must not be of what was seen.
async fn made(beside: &[Vec<&'static Attack>], form: Form) {
    let Some(mut street) = Street::open(&program()).await.unwrap() else { return };
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
async fn no_attack_harms_a_neighbour() {
    let beside: Vec<Vec<_>> =
        BESIDE.iter().map(|names| names.iter().map(|name| Attack::named(name)).collect()).collect();
    let form = Form { lasting: Duration::from_secs(5), after: Duration::ZERO, terminate: false };
    made(&beside, form).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_ends_in_time_beside_an_attack() {
    let form = Form { lasting: Duration::from_secs(3), after: Duration::ZERO, terminate: true };
    made(&[vec![Attack::named("loops")]], form).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes an hour"]
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
