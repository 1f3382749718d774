use std::{fs, path::PathBuf};

use super::*;

fn seeds(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/seeds").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|_| panic!("no seeds: {folder:?}"));
    let seeds = entries.map(|entry| entry.unwrap().path());
    seeds.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[test]
fn the_seeds_of_each_target_break_nothing() {
    for (name, target) in TARGETS {
        let seeds = seeds(name);
        assert!(seeds.len() >= 2, "{name}");
        for (_, seed) in seeds {
            target(&seed);
            // Cut short anywhere, and with each byte another: a little of what the fuzzer does.
            for at in 0..seed.len().min(512) {
                target(&seed[..at]);
                let mut other = seed.clone();
                other[at] ^= 0x15;
                target(&other);
            }
        }
    }
}

/// A seed that is refused at its first byte shows nothing.
#[test]
fn the_seeds_named_good_are() {
    let of = |target: &str| {
        let seeds = seeds(target).into_iter();
        let mut good =
            seeds.filter(|(path, _)| path.file_name().is_some_and(|name| name == "good"));
        String::from_utf8(good.next().expect(target).1).unwrap()
    };
    let description = lines::description(&of("description"));
    Grant::new(&description).unwrap();
    let outcome = lines::outcome(&of("outcome"));
    let counts = (outcome.apply.len(), outcome.patch.len(), outcome.delete.len());
    assert!(counts >= (1, 1, 1) && outcome.status.is_some(), "{counts:?}");
    of("path").parse::<Path>().unwrap();
    LabelSelector::parse(&of("label_selector")).unwrap();
}
