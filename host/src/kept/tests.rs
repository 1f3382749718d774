use std::fs;

use proptest::prelude::*;

use super::*;
use crate::{
    fixture::key,
    record::{
        self, Basis, Digest, Ending, Finalizers, Held, Object, Own, Pruned, Question, Record,
        Selection, Stood, Wrote,
    },
};

/// A record that the next start can use, with fields that no other record has.
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

/// Starts a host with the records in the directory.
fn begin(folder: &tempfile::TempDir) -> (Kept, Records, usize) {
    let (kept, read) = Kept::open(directory(folder)).unwrap();
    let (records, damaged) = (Records::default(), read.damaged);
    records.begin_with(read.records);
    (kept, records, damaged)
}

fn held(records: &Records, name: &str) -> Option<Record> {
    match records.held(&key(name))? {
        Held::Known(last) => last.record(&key(name)).map(Arc::unwrap_or_clone),
        Held::Former(written) => record(&key(name), &written),
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
    // The record of a run that must not be skipped.
    let mut failed = Record::clone(&record_of("c", 3));
    failed.requeue = true;
    records.keep(&Arc::new(failed));
    assert!(kept.write(&records).await);
    drop(kept);

    let (mut kept, records, damaged) = begin(&folder);
    assert_eq!(damaged, 0);
    assert_eq!(held(&records, "a"), Some(Record::clone(&record_of("a", 2))));
    assert_eq!((held(&records, "b"), held(&records, "c")), (None, None));

    // Records that were not looked at are dropped in the end.
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
    let least = frame::frames(&[Unwritten::Record(key("a"), record_of("a", 9_999))]).len() as u64;
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
    // A child process that is being spawned meanwhile has the file open.
    let shared = kept.lock.as_ref().unwrap().0.try_clone().unwrap();
    drop(kept);
    assert!(Kept::open(directory(&folder)).is_ok());
    drop(shared);
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
    // No file can be put into a removed directory.
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
    let frames = frame::frames(&[Unwritten::Record(key("a"), record_of("a", 1))]);
    let read =
        |header: &str| frame::read(&[header.as_bytes(), &frames].concat().into()).records.len();
    assert_eq!(read(HEADER), 1);
    assert_eq!(read(&HEADER.replace(" 3 ", " 2 ")), 0);
    assert_eq!(read("mortise records 3 0.0.1\n"), 0);
    assert_eq!(read(""), 0);
}

/// Pins the encoding of a record: it does not describe itself, so a start would take for its own
/// what a former version encoded differently.
#[test]
fn what_a_record_is_made_of_is_what_the_header_says() {
    let mut record = Record::clone(&record_of("a", 1));
    let (kind, digest) = (Arc::new(crate::fixture::kind("Thing")), record.object.unwrap());
    let of = Object {
        cluster: "".into(),
        kind: Arc::clone(&kind),
        namespace: Some("n".into()),
        name: "a".into(),
    };
    let selection = Selection {
        cluster: "".into(),
        kind,
        namespace: None,
        name: Some("b".into()),
        labels: "l=1".into(),
        matching: [("spec.a".to_owned(), "2".to_owned())].into(),
        fields: ["spec.b".to_owned()].into(),
    };
    let read = |question| record::Read {
        question,
        answer: digest,
        kept: Some(digest),
        stood: Some(Stood { sequence: 300, revision: 70_000 }),
        live: true,
        objects: 1,
        bytes: 2,
    };
    record.reads = [
        read(Question::Get { of: of.clone(), fields: ["spec.c".to_owned()].into() }),
        read(Question::List { of: selection.clone().into(), limit: 3, from: Some("from".into()) }),
    ]
    .into();
    record.wrote = [Wrote {
        of: of.clone(),
        manager: "m".into(),
        subresource: "status".into(),
        own: Some(Own { fields: digest, values: digest }),
        absent: true,
    }]
    .into();
    record.removed = [of].into();
    record.pruned = [Pruned { of: selection, manager: "m".into() }].into();
    record.finalizers = Some(Finalizers { held: ["h".into()].into(), released: [].into() });
    (record.outcome, record.ending) = (Some(digest), Ending::Failure);
    let bytes = frame::bytes(&record);
    assert_eq!(frame::record(&key("a"), &bytes), Some(record));
    assert_eq!(
        Digest::of(false, [&bytes[..]]).to_string(),
        "xxh3:65c9c1e35d70b3bdd328af0dd9052cb4",
        "the form of records has changed: the number in the header has to be another one too"
    );
}

#[test]
fn the_record_of_another_key_is_none() {
    let bytes = frame::bytes(&*record_of("a", 1));
    assert!(record(&key("a"), &bytes).is_some());
    assert_eq!(record(&key("b"), &bytes), None);
    assert_eq!(record(&key("a"), b"{}"), None);
    assert_eq!(record(&key("a"), &[&bytes[..], b"x"].concat()), None);
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
        let mut file = [HEADER.as_bytes(), &frame::frames(&all)].concat();
        let written: Vec<Vec<u8>> =
            names.iter().zip(1..).map(|(name, seed)| frame::bytes(&*record_of(name, seed))).collect();
        file.truncate(file.len().saturating_sub(cut));
        for (at, bits) in flips {
            if let Some(byte) = file.get_mut(at) {
                *byte ^= bits;
            }
        }
        for (key, bytes) in frame::read(&file.into()).records {
            prop_assert!(written.contains(&bytes.to_vec()), "{key}: {bytes:?}");
            prop_assert!(record(&key, &bytes).is_some());
        }
    }
}
