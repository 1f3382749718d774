use std::fs;

use futures::FutureExt as _;
use mortise_core::{
    contract::{ObjectRef, Selection},
    fixture::key,
    reads::record::{
        self, Basis, Digest, Ending, Finalizers, Own, Pruned, Question, SnapshotPosition,
        WriteRecord,
    },
};
use proptest::prelude::*;

use super::*;

/// A record that the next start can use, with unique fields.
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
fn begin(folder: &tempfile::TempDir) -> (RecordFile, Records) {
    let (file, former) = RecordFile::open(directory(folder)).unwrap();
    let records = Records::default();
    records.begin_with(former);
    (file, records)
}

fn held(records: &Records, name: &str) -> Option<Arc<Record>> {
    records.held(&key(name)).map(|held| held.record)
}

fn is_written(folder: &tempfile::TempDir) -> bool {
    directory(folder).open_file(FILE).is_ok()
}

#[tokio::test]
async fn the_next_start_has_the_records_of_the_last_one() {
    let folder = tempfile::tempdir().unwrap();
    let (mut file, records) = begin(&folder);
    for name in ["a", "b", "c", "a"] {
        records.keep(&record_of(name, 1));
        file.write(&records).await;
    }
    records.keep(&record_of("a", 2));
    records.forget(&key("b"));
    // The record of a run that must not be skipped.
    let mut failed = Record::clone(&record_of("c", 3));
    failed.requeue = true;
    records.keep(&Arc::new(failed));
    file.close(&records).await;
    drop(file);

    let (mut file, records) = begin(&folder);
    assert_eq!(held(&records, "a"), Some(record_of("a", 2)));
    assert_eq!((held(&records, "b"), held(&records, "c")), (None, None));

    // Records of keys that were not verified are dropped in the end.
    records.keep(&record_of("d", 4));
    records.forget_former();
    file.write(&records).await;
    drop(file);
    let (_file, records) = begin(&folder);
    assert_eq!((held(&records, "a"), held(&records, "d")), (None, Some(record_of("d", 4))));
}

#[tokio::test]
async fn records_that_were_neither_verified_nor_replaced_yet_stay_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let (mut file, records) = begin(&folder);
    for name in ["a", "b", "c"] {
        records.keep(&record_of(name, 1));
    }
    file.close(&records).await;
    drop(file);
    let (mut file, records) = begin(&folder);
    records.adopt(&key("a"));
    records.keep(&record_of("b", 2));
    file.close(&records).await;
    drop(file);
    let (_file, records) = begin(&folder);
    let of = |name| held(&records, name).unwrap().ran_on.as_ref().unwrap().seed;
    assert_eq!((of("a"), of("b"), of("c")), (1, 2, 1));
}

#[tokio::test]
async fn nothing_is_written_unless_a_record_for_the_next_start_has_changed() {
    let folder = tempfile::tempdir().unwrap();
    let (mut file, records) = begin(&folder);
    file.write(&records).await;
    records.keep(&Arc::new(Record { requeue: true, ..Record::clone(&record_of("a", 1)) }));
    records.forget(&key("none"));
    file.write(&records).await;
    assert!(!is_written(&folder));
    records.keep(&record_of("a", 1));
    file.write(&records).await;
    assert!(is_written(&folder));
    directory(&folder).dir().remove_file(FILE).unwrap();
    records.adopt(&key("a"));
    file.close(&records).await;
    assert!(!is_written(&folder));
}

#[tokio::test(start_paused = true)]
async fn changes_are_written_together_while_the_host_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (file, records) = begin(&folder);
    let (file, records) = (Arc::new(tokio::sync::Mutex::new(file)), Arc::new(records));
    let changes = async {
        records.keep(&record_of("a", 1));
        sleep(WRITE_DELAY / 2).await;
        records.keep(&record_of("b", 1));
        assert!(!is_written(&folder));
        sleep(WRITE_DELAY).await;
        assert!(is_written(&folder));
    };
    // The host is killed after the changes: the writer is dropped.
    tokio::select! {
        () = run(file, Arc::clone(&records)) => panic!("the writer has ended"),
        () = changes => {}
    }
    let (_file, records) = begin(&folder);
    assert!(held(&records, "a").is_some() && held(&records, "b").is_some());
}

#[tokio::test]
async fn a_second_host_writes_no_records_as_long_as_the_first_one_does() {
    let folder = tempfile::tempdir().unwrap();
    let (file, _) = begin(&folder);
    assert!(matches!(RecordFile::open(directory(&folder)), Err(Error::InUse(_))));
    // A child process that is being spawned meanwhile has the file open.
    let shared = file.lock.as_ref().unwrap().0.try_clone().unwrap();
    drop(file);
    assert!(RecordFile::open(directory(&folder)).is_ok());
    drop(shared);
}

#[tokio::test]
async fn the_unfinished_file_of_a_killed_host_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (mut file, records) = begin(&folder);
    records.keep(&record_of("a", 1));
    file.write(&records).await;
    drop(file);
    let directory = directory(&folder);
    std::mem::forget(directory.begin_file().unwrap());
    let names = || {
        let entries = fs::read_dir(directory.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(names().len(), 3, "{:?}", names());
    let (_file, records) = begin(&folder);
    assert_eq!(names().len(), 2, "{:?}", names());
    assert!(held(&records, "a").is_some());
}

#[tokio::test]
async fn a_write_that_failed_is_made_later() {
    let folder = tempfile::tempdir().unwrap();
    let (mut file, records) = begin(&folder);
    let records_folder = folder.path().join("records");
    let aside = folder.path().join("aside");
    records.keep(&record_of("a", 1));
    file.write(&records).await;
    // No file can be put into a removed directory.
    fs::rename(&records_folder, &aside).unwrap();
    fs::remove_dir_all(&aside).unwrap();
    records.keep(&record_of("b", 2));
    file.write(&records).await;
    assert!(file.failed && !is_written(&folder));
    drop(file);
    let (mut file, former) = RecordFile::open(directory(&folder)).unwrap();
    assert!(former.is_empty());
    file.write(&records).await;
    drop(file);
    let (_file, records) = begin(&folder);
    assert!(held(&records, "a").is_some() && held(&records, "b").is_some());
}

#[tokio::test]
async fn a_write_that_was_cancelled_is_made_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let (mut file, records) = begin(&folder);
    let names: Vec<String> = (0..=RECORDS_PER_TURN).map(|at| at.to_string()).collect();
    for name in &names {
        records.keep(&record_of(name, 1));
    }
    assert!(file.write(&records).now_or_never().is_none(), "it lets others run");
    assert!(!is_written(&folder));
    file.close(&records).await;
    drop(file);
    let (_file, records) = begin(&folder);
    assert!(names.iter().all(|name| held(&records, name).is_some()));
}

#[test]
fn a_file_of_another_version_or_with_other_content_is_ignored() {
    let file = file_of(&encode(&record_of("a", 1)));
    let with = |header: &str| [header.as_bytes(), &file[HEADER.len()..]].concat();
    let cases = [
        ("as it is", file.clone(), Some(1)),
        ("of another format", with(&HEADER.replace(" 4 ", " 3 ")), None),
        ("of another version", with("mortise records 4 0.0.1\n"), None),
        ("without a header", with(""), None),
        ("empty", Vec::new(), None),
        ("a header alone", HEADER.into(), None),
        ("no records", file_of(b""), Some(0)),
        ("something else, with a digest", file_of(b"{}"), None),
    ];
    for (case, file, records) in cases {
        assert_eq!(count(&file), records, "{case}");
    }
}

#[test]
fn records_of_one_file_share_what_they_have_in_common() {
    let record = |name: &str| Record {
        wrote: [WriteRecord {
            of: ObjectRef {
                cluster: String::new(),
                kind: Arc::new(mortise_core::fixture::kind("Thing")),
                namespace: None,
                name: name.into(),
            },
            manager: "m".into(),
            subresource: "".into(),
            own: None,
            absent: false,
        }]
        .into(),
        ..Record::clone(&record_of(name, 1))
    };
    let (one, other) = (record("a"), record("b"));
    let read = decode(&file_of(&[encode(&one), encode(&other)].concat())).unwrap();
    let [a, b] = ["a", "b"].map(|name| Arc::clone(&read[&key(name)]));
    assert_eq!((&*a, &*b), (&one, &other));
    assert!(Arc::ptr_eq(&a.wrote[0].of.kind, &b.wrote[0].of.kind));
    assert!(Arc::ptr_eq(&a.wrote[0].manager, &b.wrote[0].manager));
}

/// Pins the encoding of a record: postcard is not self-describing, so a host would misread records
/// that a former version encoded differently.
#[test]
fn what_a_record_is_made_of_is_what_the_header_says() {
    let mut record = Record::clone(&record_of("a", 1));
    let (kind, digest) = (Arc::new(mortise_core::fixture::kind("Thing")), record.object.unwrap());
    let of = ObjectRef {
        cluster: String::new(),
        kind: Arc::clone(&kind),
        namespace: Some("n".into()),
        name: "a".into(),
    };
    let selection = Selection {
        cluster: String::new(),
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
        stood: Some(SnapshotPosition { sequence: 300, revision: 70_000 }),
        live: true,
        objects: 1,
        bytes: 2,
    };
    record.reads = [
        read(Question::Get { of: of.clone(), fields: ["spec.c".to_owned()].into() }),
        read(Question::List { of: selection.clone().into(), limit: 3, from: Some("from".into()) }),
    ]
    .into();
    record.wrote = [WriteRecord {
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
    let bytes = encode(&record);
    assert_eq!(*decode(&file_of(&bytes)).unwrap()[&key("a")], record);
    assert_eq!(
        Digest::of(false, [&bytes[..]]).to_string(),
        "xxh3:65c9c1e35d70b3bdd328af0dd9052cb4",
        "the form of records has changed: the number in the header has to be another one too"
    );
}

proptest! {
    #[test]
    fn a_file_is_read_as_it_was_written_or_not_at_all(
        cut in 0_usize..400, flips in prop::collection::vec((0_usize..600, 1_u8..=255), 0..4),
    ) {
        let records = ["a", "b", "c"].map(|name| encode(&record_of(name, 1)));
        let written = file_of(&records.concat());
        let mut file = written.clone();
        file.truncate(file.len().saturating_sub(cut));
        for (at, bits) in flips {
            if let Some(byte) = file.get_mut(at) {
                *byte ^= bits;
            }
        }
        prop_assert_eq!(count(&file), (file == written).then_some(3));
    }
}
