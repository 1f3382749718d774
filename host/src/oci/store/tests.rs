use std::{fs, time::Duration};

use super::*;
use crate::oci::artifact::{Annotations, Artifact, LAYER};

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

    /// Stores an artifact, and returns the digest of its manifest and the descriptor of its module.
    async fn put(&self, module: &[u8]) -> (Digest, Descriptor) {
        let layer = Descriptor::of(LAYER, module);
        let names = (Vec::new(), Vec::new());
        let artifact = Artifact::build(layer.clone(), names, Annotations::new()).unwrap();
        let mut writer = self.store.begin(None).await.unwrap();
        for part in module.chunks(100) {
            writer.take(Bytes::copy_from_slice(part)).await.unwrap();
        }
        writer.finish(layer.digest).await.unwrap();
        self.store.put_manifest(&artifact.manifest).unwrap();
        (artifact.digest(), layer)
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
    store.put_signatures(manifest, b"[]").unwrap();
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

#[tokio::test]
async fn making_room_removes_unkept_modules_and_fails_if_kept_ones_do_not_fit() {
    // Space for two modules and their manifests, but not for three.
    let fixture = Fixture::new(3600);
    let mut put = Vec::new();
    for (of, minutes) in [(1, 3), (2, 2)] {
        let (manifest, layer) = fixture.put(&module(of)).await;
        fixture.age(layer.digest, Duration::from_mins(minutes));
        fixture.age(manifest, Duration::from_mins(minutes));
        put.push((manifest, layer));
    }
    let has = async |at: usize| fixture.store.module(&put[at].1).await.is_some();
    let kept = |at: &[usize]| at.iter().map(|at| put[*at].0).collect::<BTreeSet<_>>();
    fixture.store.put_signatures(put[0].0, b"[]").unwrap();
    fixture.store.make_room(1000, kept(&[0])).await.unwrap();
    assert!(has(0).await && !has(1).await, "the one that is kept is the older one");
    assert!(
        fixture.store.signatures(put[0].0).is_some() && fixture.store.manifest(put[0].0).is_some()
    );

    let (manifest, layer) = fixture.put(&module(3)).await;
    let all = BTreeSet::from([put[0].0, manifest]);
    let error = fixture.store.make_room(2000, all).await.unwrap_err();
    let expected = "the folder of modules has room for 0 MiB, and what Processors name, run or may go back to takes 1 (--max-modules-mib)";
    assert_eq!(error.to_string(), expected);
    assert!(has(0).await && fixture.store.module(&layer).await.is_some(), "nothing of it went");
    fixture.store.make_room(3600, BTreeSet::new()).await.unwrap();
    assert_eq!(fixture.names(), Vec::<String>::new());
}

#[tokio::test]
async fn blobs_that_are_written_at_the_same_time_do_not_take_the_same_room() {
    // Space for two modules, but not for three.
    let fixture = Fixture::new(2500);
    let make_room = async |bytes: u64| fixture.store.make_room(bytes, BTreeSet::new()).await;
    let (first, second) = (make_room(1000).await.unwrap(), make_room(1000).await.unwrap());
    let error = make_room(1000).await.unwrap_err();
    assert!(error.to_string().contains("may go back to takes 1 "), "{error}");
    drop(second);

    let digest = Digest::of(&module(1));
    let mut writer = fixture.store.begin(Some(first)).await.unwrap();
    writer.take(module(1).into()).await.unwrap();
    writer.finish(digest).await.unwrap();
    // An aborted blob releases its space, too.
    for _ in 0..2 {
        let room = make_room(1500).await.unwrap();
        drop(fixture.store.begin(Some(room)).await.unwrap());
    }
    assert!(fixture.path(digest).exists(), "what is written is counted once, as a file");
    make_room(1501).await.unwrap();
    assert!(!fixture.path(digest).exists());
}

#[tokio::test]
async fn access_is_noted_for_a_namespace_and_a_repository() {
    let fixture = Fixture::new(1 << 20);
    let store = &fixture.store;
    let (one, two) = (Digest::of(b"1"), Digest::of(b"2"));
    let tag: Reference = "example.com/a:1".parse().unwrap();
    let by_digest = tag.at(two);
    assert!(!store.has_access("shop", &tag, one));
    store.record_access("shop", &tag, one).unwrap();
    store.record_access("shop", &by_digest, two).unwrap();
    for digest in [one, two] {
        assert!(
            store.has_access("shop", &tag, digest) && store.has_access("shop", &by_digest, digest)
        );
        assert!(!store.has_access("other", &tag, digest));
        let other: Reference = "example.com/b:1".parse().unwrap();
        assert!(!store.has_access("shop", &other, digest));
    }
    assert_eq!(store.last_of_tag("shop", &tag), Some(one), "a digest says nothing about a tag");
    assert_eq!(store.last_of_tag("other", &tag), None);
    store.record_access("shop", &tag, two).unwrap();
    assert_eq!(store.last_of_tag("shop", &tag), Some(two));
    for number in 0..100_u32 {
        store.record_access("shop", &tag, Digest::of(&number.to_be_bytes())).unwrap();
    }
    assert!(!store.has_access("shop", &tag, one), "the oldest are forgotten");
}

#[tokio::test]
async fn a_full_disk_is_said() {
    let fixture = Fixture::new(1 << 20);
    let error = fixture.store.failed(io::ErrorKind::StorageFull.into());
    assert!(error.to_string().starts_with("cannot write to `"), "{error}");
    assert!(error.to_string().ends_with("/modules` (--cache)"), "{error}");
}
