use std::fs;

use proptest::prelude::*;

use super::*;
use crate::{
    fixture::key,
    record::{Basis, Digest, Record},
};

/// A record that outlives its start, and is no other's.
fn record_of(name: &str, seed: u64) -> Arc<Record> {
    let digest = Digest::of(false, [name.as_bytes()]);
    let mut record = Record::new(&key(name), 0);
    record.ran_on = Some(Basis {
        module: "sha256:0".into(),
        config: digest,
        grant: digest,
        settings: digest,
        now_ms: seed,
        seed,
    });
    record.object = Some(digest);
    Arc::new(record)
}

fn directory(folder: &tempfile::TempDir) -> CacheDir {
    CacheDir::open(folder.path()).unwrap().subdir("records").unwrap()
}

/// A host that begins with what is in the directory.
fn begin(folder: &tempfile::TempDir) -> (Kept, Records, usize) {
    let (kept, read) = Kept::open(directory(folder)).unwrap();
    let (records, damaged) = (Records::default(), read.damaged);
    records.begin_with(read.records);
    (kept, records, damaged)
}

fn held(records: &Records, name: &str) -> Option<Record> {
    match records.held(&key(name))? {
        crate::record::Held::Known(record) => Some(Record::clone(&record)),
        crate::record::Held::Former(text) => record(&key(name), &text),
    }
}

#[tokio::test]
async fn what_one_start_keeps_the_next_one_knows() {
    let folder = tempfile::tempdir().unwrap();
    let (mut kept, records, _) = begin(&folder);
    for name in ["a", "b", "c", "a"] {
        records.keep(&record_of(name, 1));
        assert!(kept.write(&records).await);
    }
    records.keep(&record_of("a", 2));
    records.forget(&key("b"));
    // A run that cannot stand for another.
    let mut failed = Record::clone(&record_of("c", 3));
    failed.requeue = true;
    records.keep(&Arc::new(failed));
    assert!(kept.write(&records).await);
    drop(kept);

    let (mut kept, records, damaged) = begin(&folder);
    assert_eq!(damaged, 0);
    assert_eq!(held(&records, "a"), Some(Record::clone(&record_of("a", 2))));
    assert_eq!((held(&records, "b"), held(&records, "c")), (None, None));

    // What nobody looks at is forgotten in the end.
    records.keep(&record_of("d", 4));
    assert!(records.forget_former());
    assert!(kept.write(&records).await);
    drop(kept);
    let (_kept, records, _) = begin(&folder);
    assert_eq!(held(&records, "a"), None);
    assert_eq!(held(&records, "d"), Some(Record::clone(&record_of("d", 4))));
}

#[tokio::test]
async fn a_file_does_not_grow_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let (mut kept, records, _) = begin(&folder);
    let mut longest = 0;
    for seed in 0..10_000 {
        records.keep(&record_of("a", seed));
        assert!(kept.write(&records).await);
        longest = longest.max(kept.bytes);
    }
    let least = line::lines(&[Unwritten::Record(key("a"), record_of("a", 9_999))]).len() as u64;
    assert!(longest > SLACK, "it was written anew only when that was worth it");
    assert!(longest < 2 * (least + HEADER.len() as u64) + SLACK + 2 * least, "{longest}");
    drop(kept);
    let (_kept, records, damaged) = begin(&folder);
    assert_eq!((damaged, held(&records, "a")), (0, Some(Record::clone(&record_of("a", 9_999)))));
}

#[tokio::test]
async fn a_second_host_keeps_nothing_as_long_as_the_first_one_does() {
    let folder = tempfile::tempdir().unwrap();
    let (kept, ..) = begin(&folder);
    assert!(matches!(Kept::open(directory(&folder)), Err(Error::InUse(_))));
    drop(kept);
    assert!(Kept::open(directory(&folder)).is_ok());
}

#[tokio::test]
async fn what_a_killed_host_has_not_finished_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (mut kept, records, _) = begin(&folder);
    records.keep(&record_of("a", 1));
    assert!(kept.write(&records).await);
    drop(kept);
    let mut unfinished = directory(&folder);
    let file = unfinished.begin_file().unwrap();
    std::mem::forget(file);
    unfinished = directory(&folder);
    let names = || {
        let entries = fs::read_dir(unfinished.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(names().len(), 3, "{:?}", names());
    let (_kept, records, _) = begin(&folder);
    assert_eq!(names().len(), 2, "{:?}", names());
    assert!(held(&records, "a").is_some());
}

#[tokio::test]
async fn what_could_not_be_written_is_written_later() {
    let folder = tempfile::tempdir().unwrap();
    let (mut kept, records, _) = begin(&folder);
    let records_folder = folder.path().join("records");
    let aside = folder.path().join("aside");
    records.keep(&record_of("a", 1));
    assert!(kept.write(&records).await);
    // No file can be put into a directory that is no more.
    kept.file = None;
    fs::rename(&records_folder, &aside).unwrap();
    fs::remove_dir_all(&aside).unwrap();
    records.keep(&record_of("b", 2));
    assert!(!kept.write(&records).await);
    drop(kept);
    let (mut kept, read) = Kept::open(directory(&folder)).unwrap();
    assert!(read.records.is_empty());
    assert!(kept.write(&records).await);
    drop(kept);
    let (_kept, records, _) = begin(&folder);
    assert!(held(&records, "a").is_some() && held(&records, "b").is_some());
}

#[test]
fn a_file_of_another_version_is_not_read() {
    let lines = line::lines(&[Unwritten::Record(key("a"), record_of("a", 1))]);
    let read = |header: &str| line::read(format!("{header}{lines}").as_bytes()).records.len();
    assert_eq!(read(HEADER), 1);
    assert_eq!(read(&HEADER.replace(" 2 ", " 1 ")), 0);
    assert_eq!(read("mortise records 2 0.0.1\n"), 0);
    assert_eq!(read(""), 0);
}

#[test]
fn the_record_of_another_key_is_none() {
    let text = serde_json::to_string(&*record_of("a", 1)).unwrap();
    assert!(record(&key("a"), &text).is_some());
    assert_eq!(record(&key("b"), &text), None);
    assert_eq!(record(&key("a"), "{}"), None);
}

proptest! {
    #[test]
    fn of_a_damaged_file_nothing_is_read_that_was_not_written(
        cut in 0_usize..4000, flips in prop::collection::vec((0_usize..4000, 1_u8..=255), 0..4),
    ) {
        let names = ["a", "b", "c", "a", "d"];
        let all: Vec<Unwritten> = names.iter().zip(1..).map(|(name, seed)| {
            Unwritten::Record(key(name), record_of(name, seed))
        }).collect();
        let mut text = format!("{HEADER}{}", line::lines(&all)).into_bytes();
        let written: Vec<String> =
            names.iter().zip(1..).map(|(name, seed)| serde_json::to_string(&*record_of(name, seed)).unwrap()).collect();
        text.truncate(text.len().saturating_sub(cut));
        for (at, bits) in flips {
            if let Some(byte) = text.get_mut(at) {
                *byte ^= bits;
            }
        }
        for (key, record) in line::read(&text).records {
            prop_assert!(written.contains(&record.to_string()), "{key}: {record}");
            prop_assert!(record.contains(&serde_json::to_string(&key).unwrap()));
        }
    }
}
