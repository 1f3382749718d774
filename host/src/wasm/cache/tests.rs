use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::PathBuf,
    time::Duration,
};

use super::*;

const CODE: &[u8] = b"machine code";

struct Fixture {
    _folder: tempfile::TempDir,
    dir: CacheDir,
    cache: Cache,
}

impl Fixture {
    fn new() -> Self {
        Self::with(&wasmtime::Engine::default(), MAX_TOTAL_BYTES)
    }

    fn with(engine: &wasmtime::Engine, limit: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = CacheDir::open(&folder.path().join("code")).unwrap();
        Self { cache: Cache::new(dir.clone(), engine, limit), dir, _folder: folder }
    }

    fn path(&self, module: &[u8]) -> PathBuf {
        self.dir.path().join(self.cache.entry_name(Digest::of(module)))
    }

    fn put(&self, module: &[u8]) {
        assert!(self.cache.put(Digest::of(module), CODE));
    }

    fn has(&self, module: &[u8]) -> bool {
        matches!(self.cache.get(Digest::of(module)), Found::Code(_))
    }

    fn refuses(&self, module: &[u8]) -> bool {
        matches!(self.cache.get(Digest::of(module)), Found::Refused)
    }

    fn count(&self) -> usize {
        self.dir.path().read_dir().unwrap().count()
    }

    /// Sets the entry's last use to `age` ago.
    fn age(&self, path: &PathBuf, age: Duration) {
        let file = File::options().write(true).open(path).unwrap();
        let now = fs::metadata(self.dir.path()).unwrap().modified().unwrap();
        file.set_modified(now - age).unwrap();
    }
}

#[test]
fn code_is_found_again_by_its_module() {
    let fixture = Fixture::new();
    assert!(matches!(fixture.cache.get(Digest::of(b"a")), Found::Nothing));
    fixture.put(b"a");
    assert!(fixture.has(b"a"));
    assert!(!fixture.has(b"b"));
    assert_eq!(fixture.count(), 1);
}

#[test]
fn code_for_other_settings_is_another_entry() {
    let mut config = wasmtime::Config::new();
    config.epoch_interruption(true);
    let other = wasmtime::Engine::new(&config).unwrap();
    let fixture = Fixture::new();
    fixture.put(b"a");
    let cache = Cache::new(fixture.dir.clone(), &other, MAX_TOTAL_BYTES);
    assert!(matches!(cache.get(Digest::of(b"a")), Found::Nothing));
}

#[test]
fn a_damaged_entry_is_not_taken() {
    let fixture = Fixture::new();
    fixture.put(b"a");
    let path = fixture.path(b"a");
    let whole = fs::read(&path).unwrap();
    let mut flipped = whole.clone();
    flipped[CODE.len() / 2] ^= 1;
    let cut = &whole[..whole.len() - 1];
    let longer = [&whole[..], b"\0"].concat();
    let cases: [(&str, &[u8]); 5] = [
        ("flipped", &flipped),
        ("cut", cut),
        ("longer", &longer),
        ("shorter than a digest", b"a"),
        ("empty", b""),
    ];
    for (case, bytes) in cases {
        fs::write(&path, bytes).unwrap();
        assert!(fixture.refuses(b"a"), "{case}");
    }
    fs::write(&path, &whole).unwrap();
    assert!(fixture.has(b"a"));
}

#[test]
fn code_of_another_module_is_not_taken() {
    let fixture = Fixture::new();
    fixture.put(b"a");
    fs::copy(fixture.path(b"a"), fixture.path(b"b")).unwrap();
    assert!(fixture.refuses(b"b"));
}

#[test]
fn entries_writable_by_others_and_links_are_refused_and_replaced() {
    let fixture = Fixture::new();
    let path = fixture.path(b"a");
    fixture.put(b"a");
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    assert!(fixture.refuses(b"a"));
    fixture.put(b"a");
    assert!(fixture.has(b"a"));

    let moved = fixture.dir.path().join("moved");
    fs::rename(&path, &moved).unwrap();
    symlink(&moved, &path).unwrap();
    assert!(fixture.refuses(b"a"));
    fixture.put(b"a");
    assert!(fixture.has(b"a") && path.symlink_metadata().unwrap().is_file());
}

#[test]
fn the_least_recently_used_entry_is_evicted() {
    let size = CODE.len() as u64 + CHECKSUM_BYTES;
    let fixture = Fixture::with(&wasmtime::Engine::default(), 2 * size);
    for (module, age) in [(b"a", 3), (b"b", 2)] {
        fixture.put(module);
        fixture.age(&fixture.path(module), Duration::from_secs(age * 60));
    }
    assert!(fixture.has(b"a"), "it is used");
    fixture.put(b"c");
    assert!(fixture.has(b"a") && !fixture.has(b"b") && fixture.has(b"c"));

    // The newest entry stays though it alone exceeds the limit.
    let small = Fixture::with(&wasmtime::Engine::default(), size - 1);
    small.put(b"a");
    assert!(small.has(b"a"));
    small.put(b"b");
    assert!(!small.has(b"a") && small.has(b"b"));
}

#[test]
fn old_unfinished_files_are_removed_and_young_ones_stay() {
    let fixture = Fixture::new();
    let leave = |name: &str| {
        let path = fixture.dir.path().join(name);
        fs::write(&path, "half").unwrap();
        path
    };
    let (old, young) = (leave("unfinished-1"), leave("unfinished-2"));
    fixture.age(&old, FORGOTTEN_FOR);
    fixture.put(b"a");
    assert!(!old.exists() && young.exists());
}

const FORGOTTEN_FOR: Duration = Duration::from_hours(2);

#[test]
fn code_that_cannot_be_read_is_not_cached() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
    }
    let fixture = Fixture::new();
    assert!(!fixture.cache.put(Digest::of(b"a"), Broken));
    assert_eq!(fixture.count(), 0);
    fixture.put(b"a");
    assert!(fixture.has(b"a"));
}
