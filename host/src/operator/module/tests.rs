use std::{
    fs,
    io::{Seek as _, Write as _},
    os::unix::{fs::symlink, net::UnixListener},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;

/// Creates a folder of modules, and a secret beside it.
fn folder() -> (tempfile::TempDir, Modules) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("secret"), "s").unwrap();
    let modules = folder.path().join("modules");
    fs::create_dir_all(modules.join("team")).unwrap();
    fs::write(modules.join("a.wasm"), "a").unwrap();
    fs::write(modules.join("team/b.wasm"), "b").unwrap();
    let modules = Modules::open(&modules).unwrap();
    (folder, modules)
}

#[tokio::test]
async fn a_module_is_read_by_its_path_below_the_folder() {
    let (folder, modules) = folder();
    symlink("a.wasm", folder.path().join("modules/current.wasm")).unwrap();
    let cases = [
        ("a.wasm", "a"),
        ("/modules/a.wasm", "a"),
        ("team/b.wasm", "b"),
        ("/modules/team/b.wasm", "b"),
        // The layout of a kubelet volume.
        ("current.wasm", "a"),
    ];
    for (path, expected) in cases {
        assert_eq!(modules.read(path).await.unwrap().bytes, expected, "{path}");
    }
}

#[tokio::test]
async fn paths_and_links_out_of_the_folder_are_refused() {
    let (folder, modules) = folder();
    let inside = folder.path().join("modules");
    symlink("../secret", inside.join("relative.wasm")).unwrap();
    symlink(folder.path().join("secret"), inside.join("absolute.wasm")).unwrap();
    symlink("..", inside.join("up")).unwrap();
    let outside = folder.path().join("secret");
    let paths =
        ["../secret", "relative.wasm", "absolute.wasm", "up/secret", outside.to_str().unwrap()];
    for path in paths {
        let fault = modules.read(path).await.expect_err(path);
        assert_eq!(fault.reason, Reason::ModuleUnreadable, "{path}: {}", fault.message);
        let says =
            "leads out of the folder of modules: a path and a link may lead to what is below it";
        assert!(fault.message.ends_with(says), "{path}: {}", fault.message);
    }
}

#[tokio::test]
async fn the_fault_of_an_unreadable_module_names_it_and_the_reason() {
    let (folder, modules) = folder();
    let large = fs::File::create(folder.path().join("modules/large.wasm")).unwrap();
    large.set_len(MAX_MODULE_BYTES + (1 << 20)).unwrap();
    let cases = [
        (
            "b.wasm",
            Reason::ModuleNotFound,
            "no module `b.wasm` in the folder of modules; it holds: a.wasm, large.wasm",
        ),
        ("team", Reason::ModuleUnreadable, "`team` in the folder of modules is not a file"),
        (
            "large.wasm",
            Reason::ModuleTooLarge,
            "`large.wasm` has 65 MiB or more; modules of up to 64 MiB are accepted",
        ),
    ];
    for (path, reason, message) in cases {
        let fault = modules.read(path).await.expect_err(path);
        assert_eq!(fault.reason, reason, "{path}");
        assert!(fault.message.contains(message), "{path}: {}", fault.message);
    }
}

#[test]
fn pipes_sockets_and_folders_are_refused_without_blocking() {
    let (folder, modules) = folder();
    let inside = folder.path().join("modules");
    mknodat(CWD, inside.join("pipe.wasm"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let socket = UnixListener::bind(inside.join("socket.wasm")).unwrap();
    for (name, says) in [
        ("pipe.wasm", "`pipe.wasm` in the folder of modules is not a file"),
        ("team", "`team` in the folder of modules is not a file"),
        ("socket.wasm", "cannot read the module `socket.wasm`: No such device or address"),
    ] {
        let (tell, told) = mpsc::channel();
        let modules = modules.clone();
        // The read may hang: then its thread is left behind.
        thread::spawn(move || tell.send(read(&modules.0.dir, name)));
        let fault = told.recv_timeout(Duration::from_secs(30)).expect(name).expect_err(name);
        assert_eq!(fault.reason, Reason::ModuleUnreadable, "{name}");
        assert!(fault.message.starts_with(says), "{name}: {}", fault.message);
    }
    drop(socket);
}

#[test]
fn a_folder_that_is_not_there_is_named_with_its_flag() {
    let message = format!("{:#}", Modules::open(Path::new("/nowhere/at/all")).unwrap_err());
    assert!(message.contains("`/nowhere/at/all`: name another with --modules"), "{message}");
}

const BLOCK: usize = 4096;
const BLOCKS: usize = 256;

/// Writes a file in place, again and again, until `stop` is set. Each block holds the round in
/// which it was written.
fn rewrite(path: &Path, stop: &AtomicBool) {
    let mut file = fs::File::options().write(true).open(path).unwrap();
    for round in 1_u64.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        file.rewind().unwrap();
        for _ in 0..BLOCKS {
            file.write_all(&round.to_be_bytes().repeat(BLOCK / 8)).unwrap();
        }
    }
}

/// Returns whether a file has once held these bytes: blocks of one round up to the place where it
/// was written, and blocks of the round before from there on.
fn has_been(bytes: &[u8]) -> bool {
    let rounds = bytes.chunks(8).map(|round| u64::from_be_bytes(round.try_into().unwrap()));
    let rounds: Vec<u64> = rounds.collect();
    let (first, last) = (rounds[0], rounds[rounds.len() - 1]);
    rounds.is_sorted_by(|one, next| one >= next) && first - last <= 1
}

#[tokio::test]
async fn a_file_that_is_being_written_is_never_read_in_part() {
    let (folder, modules) = folder();
    let path = folder.path().join("modules/a.wasm");
    fs::write(&path, vec![0; BLOCK * BLOCKS]).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let stop = Arc::clone(&stop);
        thread::spawn(move || rewrite(&path, &stop))
    };
    for _ in 0..10 {
        match modules.read("a.wasm").await {
            // If the writer was held up, the file held these bytes for a while.
            Ok(module) => assert!(has_been(&module.bytes)),
            Err(fault) => {
                assert_eq!(fault.reason, Reason::ModuleChanging, "{}", fault.message);
                assert!(fault.passes);
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    let module = modules.read("a.wasm").await.unwrap();
    assert!(has_been(&module.bytes) && module.bytes[..8] == module.bytes[BLOCK * BLOCKS - 8..]);
    assert_eq!(module.digest, Digest::of(&module.bytes));
    assert_eq!(modules.stamp("a.wasm").await, Some(module.stamp));
}

/// A change of the folder of modules, and the name under which a module is read before and after
/// it.
struct Change {
    what: &'static str,
    name: &'static str,
    make: fn(&Path),
}

const CHANGES: [Change; 5] = [
    Change {
        what: "another file is renamed",
        name: "a.wasm",
        make: |folder| {
            fs::write(folder.join("next"), "b").unwrap();
            fs::rename(folder.join("next"), folder.join("a.wasm")).unwrap();
        },
    },
    Change {
        what: "it is written in place, with as many bytes",
        name: "a.wasm",
        make: |folder| fs::write(folder.join("a.wasm"), "b").unwrap(),
    },
    Change {
        what: "a link leads to another file",
        name: "link.wasm",
        make: |folder| {
            symlink("b.wasm", folder.join("next")).unwrap();
            fs::rename(folder.join("next"), folder.join("link.wasm")).unwrap();
        },
    },
    Change {
        what: "a volume of Kubernetes is changed",
        name: "volume.wasm",
        make: |folder| {
            fs::create_dir(folder.join("..2")).unwrap();
            fs::write(folder.join("..2/volume.wasm"), "b").unwrap();
            symlink("..2", folder.join("..data_tmp")).unwrap();
            fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
            fs::remove_dir_all(folder.join("..1")).unwrap();
        },
    },
    Change {
        what: "a file comes in a folder that is new",
        name: "new/a.wasm",
        make: |folder| {
            fs::create_dir(folder.join("made")).unwrap();
            fs::write(folder.join("made/a.wasm"), "b").unwrap();
            fs::rename(folder.join("made"), folder.join("new")).unwrap();
        },
    },
];

#[tokio::test]
async fn a_module_that_is_another_is_told_of() {
    for Change { what, name, make } in CHANGES {
        let (folder, modules) = folder();
        let inside = folder.path().join("modules");
        fs::write(inside.join("b.wasm"), "b").unwrap();
        symlink("a.wasm", inside.join("link.wasm")).unwrap();
        fs::create_dir(inside.join("..1")).unwrap();
        fs::write(inside.join("..1/volume.wasm"), "a").unwrap();
        symlink("..1", inside.join("..data")).unwrap();
        symlink("..data/volume.wasm", inside.join("volume.wasm")).unwrap();
        let before = modules.read(name).await.ok();
        assert!(before.is_none() || before.as_ref().unwrap().bytes == "a", "{what}");

        let stamp = before.map(|before| before.stamp);
        let mut moves = modules.moves();
        let told = async {
            // The folder is watched from here on: the next notification comes from `make`, or from
            // the next check.
            moves.changed().await.unwrap();
            assert_eq!(modules.stamp(name).await, stamp, "{what}: nothing was done yet");
            make(&inside);
            while modules.stamp(name).await == stamp {
                moves.changed().await.unwrap();
            }
            modules.read(name).await.unwrap().bytes
        };
        tokio::select! {
            bytes = told => assert_eq!(bytes, "b", "{what}"),
            () = modules.watch() => unreachable!("it never ends"),
        }
    }
}

#[tokio::test]
async fn changes_in_nested_folders_are_reported_without_polling() {
    let (folder, modules) = folder();
    let mut moves = modules.moves();
    let start = tokio::time::Instant::now();
    let told = async {
        moves.changed().await.unwrap();
        for number in 0..5 {
            let deep = folder.path().join(format!("modules/team/{number}"));
            fs::create_dir(&deep).unwrap();
            fs::write(deep.join("a.wasm"), "a").unwrap();
            moves.changed().await.unwrap();
        }
    };
    tokio::select! {
        () = told => {}
        () = modules.watch() => unreachable!("it never ends"),
    }
    // Otherwise the changes would have been noticed by the checks, one every ten seconds.
    assert!(start.elapsed() < watch::POLL_INTERVAL * 4, "{:?}", start.elapsed());
}
