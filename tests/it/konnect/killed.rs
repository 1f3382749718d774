//! A host that is killed between the answer to a creation and the write of the status: exactly one
//! entity for each object.

use std::{
    env,
    hash::{BuildHasher as _, RandomState},
};

use konnect_fake::Fault;
use rustix::process::Signal;
use serde_json::json;

use super::{objects, rig::Rig, trap::Point};

/// The environment variable with the seed of a run.
const SEED: &str = "MORTISE_SEED";
/// The most creations of a host before it is killed.
const MAX_CREATIONS: u64 = 4;
/// The objects that have no entity yet when a host starts, at least.
const MIN_NEW: usize = 8;

/// Numbers that follow from a seed.
struct Chance(u64);

// === impl Chance ===

impl Chance {
    fn new() -> Self {
        let given = env::var(SEED).ok().map(|seed| seed.parse().unwrap());
        let seed = given.unwrap_or_else(|| RandomState::new().hash_one(SEED));
        println!("{SEED}={seed}");
        Self(seed)
    }

    /// Returns a number below another one.
    fn below(&mut self, end: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// Starts hosts, each of which is killed in the middle of creations, and then one that lives.
async fn kill_again_and_again(kills: usize) {
    let mut chance = Chance::new();
    let config = json!({"syncPeriodSeconds": 3600});
    let rig = Rig::start().await.with_processor(&config, &json!({})).await;
    rig.apply(objects::shared()).await;
    let mut rounds = 0;
    for kill in 1..=kills {
        while rig.objects().len() < rig.entities() + MIN_NEW {
            rounds += 1;
            rig.apply(objects::round(rounds)).await;
        }
        let lost = i64::try_from(chance.below(3)).unwrap();
        let fault = Fault {
            method: Some("POST".to_owned()),
            times: Some(lost),
            act: true,
            drop: true,
            ..Fault::default()
        };
        rig.fake.konnect().lock().set_faults(vec![fault]).unwrap();
        let points = [Point::Created, Point::Write, Point::Written];
        let point = points[usize::try_from(chance.below(3)).unwrap()];
        let creations = usize::try_from(1 + chance.below(MAX_CREATIONS)).unwrap();
        let host = rig.host(&[]);
        rig.trap.set(point, creations, host.id(), Signal::KILL);
        println!("kill {kill}: {point:?} after {creations} creations, {lost} answers lost");
        rig.trap.gone_off().await;
        host.kill();
    }
    let _host = rig.host(&[]);
    rig.until_programmed().await;
    println!("{rounds} rounds, {} entities", rig.entities());
    rig.assert_one_each();
    // There never were two: nothing was deleted.
    assert_eq!(rig.requests("DELETE"), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_object_has_one_entity_after_30_kills() {
    kill_again_and_again(30).await;
}

/// `cargo test -p mortise-tests --test it -- --ignored --nocapture konnect::killed::`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn each_object_has_one_entity_after_300_kills() {
    kill_again_and_again(300).await;
}
