use std::{collections::BTreeSet, fs, time::Duration};

use super::*;
use crate::oci::{
    Reference,
    artifact::{Annotations, Artifact, LAYER},
};

struct Fixture {
    _folder: tempfile::TempDir,
    store: Store,
}

impl Fixture {
    fn new(limit: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = CacheDir::open(&folder.path().join("cache")).unwrap();
        let store = Store::open(&dir, limit).unwrap().unwrap();
        Self { store, _folder: folder }
    }

    /// Stores an artifact for `shop`, which keeps nothing, and returns the digest of its manifest
    /// and the descriptor of its module.
    async fn put(&self, module: &[u8]) -> (Digest, Descriptor) {
        self.put_for("shop", module, keeps([])).await.unwrap()
    }

    /// Stores an artifact for a namespace.
    async fn put_for(
        &self,
        namespace: &str,
        module: &[u8],
        keeps: Keeps,
    ) -> Result<(Digest, Descriptor), Error> {
        let (manifest, incoming) = incoming(module);
        let layer = incoming.layer.clone();
        let room = self.store.admit(namespace, incoming, keeps).await?;
        let mut writer = self.store.begin(Some(room)).await?;
        for part in module.chunks(100) {
            writer.take(Bytes::copy_from_slice(part)).await?;
        }
        writer.finish(layer.digest).await?;
        Ok((manifest, layer))
    }

    async fn has(&self, layer: &Descriptor) -> bool {
        self.store.module(layer).await.is_some()
    }

    fn path(&self, digest: Digest) -> std::path::PathBuf {
        self.store.dir.path().join(blob_name(digest))
    }

    /// Sets the last use of a module to `age` ago.
    fn age(&self, digest: Digest, age: Duration) {
        let file = File::options().write(true).open(self.path(digest)).unwrap();
        let now = fs::metadata(self.store.dir.path()).unwrap().modified().unwrap();
        file.set_modified(now - age).unwrap();
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.store.dir.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn module(of: u8) -> Vec<u8> {
    vec![of; 1000]
}

/// Returns an artifact without signatures, and the digest of its manifest.
fn incoming(module: &[u8]) -> (Digest, Incoming) {
    let layer = Descriptor::of(LAYER, module);
    let names = (Vec::new(), Vec::new());
    let artifact = Artifact::build(layer.clone(), names, Annotations::new()).unwrap();
    (artifact.digest(), Incoming { manifest: artifact.manifest, signatures: None, layer })
}

/// Returns what Processors keep, all of which are known: namespace, manifest, and whether it runs.
fn keeps<const N: usize>(of: [(&str, Digest, bool); N]) -> Keeps {
    let keep = |(namespace, manifest, runs): (&str, Digest, bool)| Keep {
        namespace: namespace.to_owned(),
        manifest,
        runs,
    };
    Keeps { is_complete: true, manifests: of.map(keep).into() }
}

#[tokio::test]
async fn stored_modules_and_manifests_are_found_until_their_files_change() {
    let fixture = Fixture::new(1 << 20);
    let store = &fixture.store;
    let (manifest, layer) = fixture.put(&module(1)).await;
    let stored = store.module(&layer).await.unwrap();
    assert_eq!((stored.digest, stored.length), (layer.digest, 1000));
    let mut bytes = Vec::new();
    (&*stored.file).read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, module(1));
    assert_eq!(Digest::of(&store.manifest(manifest).unwrap()), manifest);
    let longer = Descriptor { size: 1001, ..layer.clone() };
    assert!(store.module(&longer).await.is_none(), "of another length");
    for digest in [layer.digest, manifest] {
        let mut bytes = fs::read(fixture.path(digest)).unwrap();
        bytes[9] ^= 1;
        fs::write(fixture.path(digest), bytes).unwrap();
    }
    assert!(store.module(&layer).await.is_none() && store.manifest(manifest).is_none());
    fs::remove_file(fixture.path(layer.digest)).unwrap();
    assert!(store.module(&layer).await.is_none());
    assert!(store.signatures(manifest).is_none());
    let (manifest, unsigned) = incoming(&module(1));
    let signed = Incoming { signatures: Some(b"[]".to_vec()), ..unsigned };
    store.admit("shop", signed, keeps([])).await.unwrap();
    assert_eq!(store.signatures(manifest).unwrap(), b"[]");
}

#[tokio::test]
async fn half_a_blob_is_not_seen_and_leaves_nothing() {
    let fixture = Fixture::new(1 << 20);
    let mut writer = fixture.store.begin(None).await.unwrap();
    let large = Bytes::from(vec![1; CHUNK_BYTES + 1]);
    writer.take(large).await.unwrap();
    let names = fixture.names();
    assert!(matches!(names.as_slice(), [name] if CacheDir::is_unfinished(name)), "{names:?}");
    drop(writer);
    assert_eq!(fixture.names(), Vec::<String>::new());
}

/// The bytes of a manifest in these tests, at most.
const MANIFEST: u64 = 600;

#[tokio::test]
async fn unused_layers_make_room_first_then_named_ones_for_running_ones() {
    // Space for four modules and their manifests, but not for five.
    let fixture = Fixture::new(4 * (1000 + MANIFEST));
    let mut put = Vec::new();
    for (of, minutes) in [(0, 9), (1, 8), (2, 7), (3, 6)] {
        let (manifest, layer) = fixture.put(&module(of)).await;
        for digest in [layer.digest, manifest] {
            fixture.age(digest, Duration::from_mins(minutes));
        }
        put.push((manifest, layer));
    }
    let named = |of: u8| incoming(&module(of)).0;
    let mut kept = keeps([("a", put[0].0, true), ("b", put[1].0, false)]);
    let keep = |kept: &mut Keeps, of: u8| {
        kept.manifests.extend(keeps([("c", named(of), true)]).manifests);
    };
    fixture.put_for("c", &module(4), kept.clone()).await.unwrap();
    assert!(fixture.has(&put[0].1).await && fixture.has(&put[1].1).await);
    assert!(!fixture.has(&put[2].1).await, "what nobody keeps goes first");

    keep(&mut kept, 4);
    let error = fixture.put_for("c", &module(5), kept.clone()).await.unwrap_err();
    assert!(error.to_string().contains("--max-modules-mib"), "{error}");
    keep(&mut kept, 5);
    fixture.put_for("c", &module(5), kept.clone()).await.unwrap();
    assert!(!fixture.has(&put[3].1).await && fixture.has(&put[1].1).await);
    keep(&mut kept, 6);
    fixture.put_for("c", &module(6), kept).await.unwrap();
    assert!(fixture.has(&put[0].1).await, "what runs stays");
    assert!(!fixture.has(&put[1].1).await, "what is only named goes for what runs");
}

#[tokio::test]
async fn a_namespace_gets_half_of_the_remaining_room_until_it_gives_some_back() {
    let fixture = Fixture::new(10 * (1000 + MANIFEST));
    let (mut kept, mut refused) = (keeps([]), None);
    // As many as `namespace` gets.
    let mut fill = async |namespace: &str, kept: &mut Keeps| {
        for of in 0..=u8::MAX {
            let bytes = [namespace.as_bytes(), &module(of)].concat();
            let manifest = incoming(&bytes).0;
            let keep = Keep { namespace: namespace.to_owned(), manifest, runs: false };
            kept.manifests.push(keep);
            if let Err(error) = fixture.put_for(namespace, &bytes, kept.clone()).await {
                kept.manifests.pop();
                refused = Some(error.to_string());
                return usize::from(of);
            }
        }
        unreachable!("all modules fit")
    };
    let of_evil = fill("evil", &mut kept).await;
    assert!((4..8).contains(&of_evil), "{of_evil}");
    let (of_shop, of_more) = (fill("shop", &mut kept).await, fill("more", &mut kept).await);
    assert!(of_shop >= of_evil / 2 - 1 && of_shop >= 1 && of_more >= 1, "{of_shop}, {of_more}");
    let expected = "the folder of modules has room for 0 MiB (--max-modules-mib), of which the Processors of `more` would take 1, and those of others take 1: a namespace gets half of what the others leave";
    assert_eq!(refused.unwrap(), expected);

    let before = kept.clone();
    kept.manifests.retain(|keep| keep.namespace != "evil");
    let gone = before.manifests.iter().filter(|keep| keep.namespace == "evil");
    let gone = gone.map(|keep| keep.manifest).collect();
    fixture.store.release("evil", gone, kept.clone()).await;
    let left = kept.manifests.len() * 2;
    assert_eq!(fixture.names().len(), left, "what only `evil` kept is removed at once");
    let more = Keep { namespace: "shop".to_owned(), manifest: incoming(&module(9)).0, runs: false };
    kept.manifests.push(more);
    fixture.put_for("shop", &module(9), kept).await.unwrap();
}

#[tokio::test]
async fn a_layer_that_ran_is_stored_again_beyond_the_share() {
    let fixture = Fixture::new(4 * (1000 + MANIFEST));
    let mut kept = keeps([]);
    for of in 0..4 {
        let manifest = incoming(&module(of)).0;
        kept.manifests.push(Keep { namespace: "shop".to_owned(), manifest, runs: true });
    }
    for of in 0..4 {
        fixture.put_for("shop", &module(of), kept.clone()).await.unwrap();
    }
}

#[tokio::test]
async fn a_large_manifest_takes_room_too() {
    let fixture = Fixture::new(4 * (1000 + MANIFEST));
    let (_, unsigned) = incoming(&module(1));
    for (case, manifest, signatures) in
        [("manifest", vec![0; 4000], None), ("signatures", Vec::new(), Some(vec![0; 4000]))]
    {
        let layer = unsigned.layer.clone();
        let refused = Incoming { manifest, signatures, layer };
        fixture.store.admit("shop", refused, keeps([])).await.expect_err(case);
    }
    assert_eq!(fixture.names(), Vec::<String>::new());
}

#[tokio::test]
async fn until_all_processors_are_known_nothing_goes_and_the_limit_holds() {
    let fixture = Fixture::new(3 * (1000 + MANIFEST));
    let starting = || Keeps { is_complete: false, ..keeps([]) };
    let (_, first) = fixture.put_for("a", &module(1), starting()).await.unwrap();
    let (_, second) = fixture.put_for("b", &module(2), starting()).await.unwrap();
    let mut refused = 0;
    for of in 3..6 {
        refused += usize::from(fixture.put_for("c", &module(of), starting()).await.is_err());
    }
    assert!(refused >= 2, "{refused}");
    assert!(fixture.has(&first).await && fixture.has(&second).await);
}

#[tokio::test]
async fn artifacts_that_are_written_at_the_same_time_do_not_take_the_same_room() {
    // A namespace gets two modules with their manifests, and not three.
    let fixture = Fixture::new(5 * (1000 + MANIFEST));
    let admit = async |of: u8| {
        let (_, incoming) = incoming(&module(of));
        fixture.store.admit("shop", incoming, keeps([])).await
    };
    let (first, second) = (admit(1).await.unwrap(), admit(2).await.unwrap());
    admit(3).await.unwrap_err();
    drop(second);
    // An aborted artifact releases its space, too.
    for _ in 0..2 {
        let room = admit(3).await.unwrap();
        drop(fixture.store.begin(Some(room)).await.unwrap());
    }
    let digest = Digest::of(&module(1));
    let mut writer = fixture.store.begin(Some(first)).await.unwrap();
    writer.take(module(1).into()).await.unwrap();
    writer.finish(digest).await.unwrap();
    assert!(fixture.path(digest).exists());
    let rooms = (admit(4).await.unwrap(), admit(5).await.unwrap());
    assert!(fixture.store.reserved.of("shop").1 > 2000);
    drop(rooms);
    assert_eq!(fixture.store.reserved.of("shop"), (0, 0));
}

/// A day in 2026, and the days after it.
fn day(number: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_second(1_780_000_000 + number * 24 * 3600).unwrap()
}

fn reference(text: &str) -> Reference {
    text.parse().unwrap()
}

#[tokio::test]
async fn access_is_noted_for_a_namespace_a_repository_a_manifest_and_its_layer() {
    let fixture = Fixture::new(1 << 20);
    let store = &fixture.store;
    let ((one, layer), (two, _)) = (fixture.put(&module(1)).await, fixture.put(&module(2)).await);
    let tag = reference("example.com/a:1");
    let has = async |namespace: &str, of: &Reference, digest: Digest| {
        store.has_access((namespace, of), digest, (&keeps([]), day(0))).await
    };
    let record = async |of: &Reference, digest: Digest| {
        let artifact = (digest, layer.digest);
        store.record_access(("shop", of), artifact, true, (keeps([]), day(0))).await.unwrap();
    };
    assert!(!has("shop", &tag, one).await);
    record(&tag, one).await;
    record(&tag.at(two), two).await;
    for digest in [one, two, layer.digest] {
        assert!(has("shop", &tag, digest).await && has("shop", &tag.at(two), digest).await);
        assert!(!has("other", &tag, digest).await);
        assert!(!has("shop", &reference("example.com/b:1"), digest).await);
        assert!(!has("shop", &reference("elsewhere.example.com/a:1"), digest).await);
    }
    assert!(!has("shop", &tag, Digest::of(b"other")).await);
    assert_eq!(store.last_of_tag("shop", &tag).await, Some(one), "a digest is of no tag");
    assert_eq!(store.last_of_tag("other", &tag).await, None);
    record(&tag, two).await;
    assert_eq!(store.last_of_tag("shop", &tag).await, Some(two));
}

#[tokio::test]
async fn access_ends_after_a_month_without_an_answer_unless_the_artifact_runs() {
    let fixture = Fixture::new(1 << 20);
    let (manifest, layer) = fixture.put(&module(1)).await;
    let of = reference("example.com/a:1");
    let record = async |is_served: bool, now| {
        let (artifact, none) = ((manifest, layer.digest), keeps([]));
        fixture.store.record_access(("shop", &of), artifact, is_served, (none, now)).await.unwrap();
    };
    let has = async |kept: Keeps, now| {
        fixture.store.has_access(("shop", &of), layer.digest, (&kept, now)).await
    };
    record(true, day(0)).await;
    record(false, day(20)).await;
    assert!(has(keeps([]), day(29)).await);
    assert!(!has(keeps([]), day(31)).await, "it was read from the disk on day 20, and not served");
    assert!(!has(keeps([("shop", manifest, false)]), day(31)).await);
    assert!(!has(keeps([("other", manifest, true)]), day(31)).await);
    assert!(has(keeps([("shop", manifest, true)]), day(31)).await);
    record(true, day(40)).await;
    assert!(has(keeps([]), day(69)).await);
}

/// Returns the names of the files with records.
fn records(fixture: &Fixture) -> Vec<String> {
    fixture.names().into_iter().filter(|name| name.starts_with(ACCESS)).collect()
}

#[tokio::test]
async fn records_go_with_their_artifacts_and_with_the_processors_of_a_namespace() {
    let fixture = Fixture::new(1 << 20);
    let store = &fixture.store;
    let (kept, layer) = fixture.put(&module(0)).await;
    let record = async |namespace: &str, tag: &str, manifest: Digest| {
        let of = reference(&format!("example.com/a:{tag}"));
        let circumstances = (keeps([]), day(0));
        let artifact = (manifest, layer.digest);
        store.record_access((namespace, &of), artifact, true, circumstances).await.unwrap();
    };
    record("shop", "kept", kept).await;
    for of in 1..31 {
        let (manifest, _) = fixture.put(&module(of)).await;
        record("shop", &format!("{of}"), manifest).await;
        record("other", &format!("{of}"), manifest).await;
    }
    assert_eq!(records(&fixture).len(), 2, "one file for each namespace");
    assert_eq!(store.read_records("shop").len(), 31);
    for digest in [incoming(&module(1)).0, Digest::of(&module(1))] {
        fs::remove_file(fixture.path(digest)).unwrap();
    }
    record("shop", "kept", kept).await;
    assert_eq!(store.read_records("shop").len(), 30, "one manifest is gone");
    let left = || keeps([("shop", kept, true)]);
    // All but the last one were given up before, as when a tag moves.
    store.release("shop", [incoming(&module(30)).0].into(), left()).await;
    assert_eq!(store.read_records("shop").len(), 1);
    assert_eq!(fixture.names().len(), 2 + 2, "a manifest, a layer, and two files of records");
    store.release("other", BTreeSet::new(), left()).await;
    store.release("shop", [kept].into(), keeps([])).await;
    assert_eq!(fixture.names(), Vec::<String>::new());
}

#[tokio::test]
async fn records_of_a_namespace_are_bounded_and_those_of_running_modules_stay() {
    let fixture = Fixture::new(1 << 20);
    let (manifest, layer) = fixture.put(&module(0)).await;
    let (other, _) = fixture.put(&module(1)).await;
    let kept = || keeps([("shop", manifest, true)]);
    let record = async |tag: &str, manifest: Digest| {
        let of = reference(&format!("example.com/a:{tag}"));
        let artifact = (manifest, layer.digest);
        let circumstances = (kept(), day(0));
        fixture.store.record_access(("shop", &of), artifact, true, circumstances).await.unwrap();
    };
    let written = |tag: String, manifest: Digest| {
        serde_json::json!({
            "repository": "example.com/a", "tag": tag, "manifest": manifest, "layer": layer.digest,
            "served": day(0).as_second(),
        })
    };
    // The newest comes first.
    let mut all: Vec<_> = (0..1023).map(|tag| written(tag.to_string(), other)).collect();
    all.push(written("first".to_owned(), manifest));
    let text = serde_json::to_vec(&all).unwrap();
    fixture.store.put(&access_name("shop"), &text).unwrap();
    record("new", other).await;
    assert_eq!(fixture.store.read_records("shop").len(), 1024);
    let last = async |tag: &str| {
        let of = reference(&format!("example.com/a:{tag}"));
        fixture.store.last_of_tag("shop", &of).await
    };
    assert_eq!(last("first").await, Some(manifest));
    let others = [last("1022").await, last("1021").await, last("new").await];
    assert_eq!(others, [None, Some(other), Some(other)]);
}

#[tokio::test]
async fn records_of_a_namespace_without_processors_go_after_a_month() {
    let fixture = Fixture::new(1 << 20);
    let (manifest, layer) = fixture.put(&module(0)).await;
    for namespace in ["gone", "shop", "new"] {
        let of = reference("example.com/a:1");
        let artifact = (manifest, layer.digest);
        let circumstances = (keeps([]), day(0));
        fixture.store.record_access((namespace, &of), artifact, true, circumstances).await.unwrap();
    }
    let now = fs::metadata(fixture.store.dir.path()).unwrap().modified().unwrap();
    for namespace in ["gone", "shop"] {
        let path = fixture.store.dir.path().join(access_name(namespace));
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(now - Duration::from_hours(24 * 31)).unwrap();
    }
    fixture.put_for("shop", &module(1), keeps([("shop", manifest, true)])).await.unwrap();
    let mut expected = ["shop", "new"].map(access_name);
    expected.sort();
    let mut left = records(&fixture);
    left.sort();
    assert_eq!(left, expected);
}

#[tokio::test]
async fn a_full_disk_is_said() {
    let fixture = Fixture::new(1 << 20);
    let error = fixture.store.failed(io::ErrorKind::StorageFull.into());
    assert!(error.to_string().starts_with("cannot write to `"), "{error}");
    assert!(error.to_string().ends_with("/modules` (--cache)"), "{error}");
}

#[tokio::test]
async fn the_manifest_of_a_kept_artifact_is_read_once() {
    let fixture = Fixture::new(1 << 20);
    let (manifest, layer) = fixture.put(&module(1)).await;
    let all = fixture.store.files_of(manifest);
    assert_eq!(
        all.values().sum::<u64>(),
        1000 + fs::metadata(fixture.path(manifest)).unwrap().len()
    );
    fs::write(fixture.path(manifest), "").unwrap();
    assert!(fixture.store.files_of(manifest).contains_key(&blob_name(layer.digest)));
    // The store forgets a manifest that nobody keeps.
    let (_, other) = incoming(&module(2));
    fixture.store.admit("shop", other, keeps([])).await.unwrap();
    assert!(!fixture.store.files_of(manifest).contains_key(&blob_name(layer.digest)));
}
