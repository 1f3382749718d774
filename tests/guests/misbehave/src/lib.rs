//! A processor that misbehaves in the way that the name of its object says.
//!
//! Misbehave reconciles `ConfigMaps` with the label `test=misbehave`, and may only read and write
//! `ConfigMaps`. An object with a name that is not listed below is reconciled correctly: it gets a
//! companion `<name>-made`.

mod outcomes;
mod sandbox;

use std::hint::black_box;

use mortise_sdk::{
    Description, Failure, Host, Level, Outcome, Processor, Reconciler, Request, Selection, Verbs,
    kubernetes::ConfigMap, object::Metadata,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// The misbehaving processor.
pub struct Misbehave;

/// The misbehaviour in `describe`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Panics.
    panic: bool,
    /// Runs for ever.
    hang: bool,
    /// Refuses this configuration.
    refuse: bool,
}

impl Processor for Misbehave {
    type Config = Config;

    fn describe(config: &Config) -> Result<Description, String> {
        assert!(!config.panic, "told to panic in describe");
        if config.hang {
            hang();
        }
        if config.refuse {
            return Err("`refuse` must be false".into());
        }
        let reconciled = Selection::of::<ConfigMap>().labels("test=misbehave");
        Ok(Description::new("misbehave", "0.1.0")
            .reconciles(Reconciler::new("config-maps", reconciled))
            .reads(Selection::of::<ConfigMap>())
            .writes(Selection::of::<ConfigMap>(), Verbs::CREATE | Verbs::UPDATE))
    }

    fn reconcile(request: &Request, _: &Config, host: &Host) -> Result<Outcome, Failure> {
        match request.ref_.name.as_str() {
            "panics" => panic!("told to panic"),
            "hangs" => hang(),
            "allocates" => allocate(),
            "recurses" => recurse(host),
            "recurses-with-data" => recurse_with_data(host),
            "exits" => std::process::exit(3),
            "chatters" => Ok(chatter(host)),
            "prints" => Ok(sandbox::print()),
            "reads-for-ever" => read_for_ever(host),
            "asks-clock" => Ok(sandbox::ask_clock(host)),
            "asks-system-time" => Ok(sandbox::ask_system_time(request)),
            "asks-random" => Ok(sandbox::ask_random(request)),
            "hashes" => Ok(sandbox::hash()),
            "sleeps" => Ok(sandbox::sleep()),
            "looks-around" => Ok(sandbox::look_around(request)),
            "nameless" => Ok(outcomes::nameless()),
            "undeclared-kind" => Ok(outcomes::undeclared_kind(request)),
            "huge" => Ok(outcomes::huge(request)),
            "endless-outcome" => Ok(outcomes::endless()),
            "endless-argument" => Ok(outcomes::endless_argument()),
            "not-json" => Ok(outcomes::not_json()),
            _ => Ok(behave(request)),
        }
    }
}

mortise_sdk::export!(Misbehave);

/// Returns a correct outcome.
fn behave(request: &Request) -> Outcome {
    let namespace = request.ref_.namespace.as_deref().unwrap_or_default();
    let name = format!("{}-made", request.ref_.name);
    let made = ConfigMap {
        metadata: Metadata::new(name).namespace(namespace),
        data: [("made".to_owned(), "yes".to_owned())].into(),
        ..ConfigMap::default()
    };
    Outcome::new().apply(&made)
}

/// Runs for ever. Not inlined, so that its name is in the backtrace.
#[inline(never)]
fn hang() -> ! {
    let mut turns = 0_u64;
    loop {
        turns = black_box(turns.wrapping_add(1));
    }
}

fn allocate() -> ! {
    let mut all = Vec::new();
    loop {
        all.push(black_box(vec![1_u8; 1 << 20]));
    }
}

/// Recurses with small frames: the engine's stack overflows first.
fn recurse(host: &Host) -> ! {
    fn down(depth: u64) -> u64 {
        if black_box(depth) == u64::MAX { depth } else { down(depth + 1) + black_box(1) }
    }
    host.log(Level::Info, "reached the bottom", &[("depth", &down(0).to_string())]);
    panic!("a recursion without end ended")
}

/// Recurses with data in memory: the guest's own stack overflows first.
fn recurse_with_data(host: &Host) -> ! {
    fn down(depth: u64) -> u64 {
        let data = black_box([depth; 512]);
        if depth == u64::MAX { 0 } else { down(depth + 1) + black_box(data).len() as u64 }
    }
    host.log(Level::Info, "reached the bottom", &[("depth", &down(0).to_string())]);
    panic!("a recursion without end ended")
}

fn chatter(host: &Host) -> Outcome {
    for line in 0..10_000 {
        host.log(Level::Info, "still here", &[("line", &line.to_string())]);
    }
    Outcome::new()
}

fn read_for_ever(host: &Host) -> ! {
    loop {
        // The answer is ignored; the read itself is tested.
        drop(black_box(host.get::<ConfigMap>(Some("default"), "none", &[])));
    }
}
