//! The compiler as a child of a host.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use mortise_host::{
    cache_dir::CacheDir,
    metrics::{Metrics, Sample},
    wasm::{CompileLimits, Compiler, Engine, Limits, LoadError, Options, Processor},
};
use tempfile::TempDir;

use super::{MEMORY_MIB, component, modules, program};

/// An engine, and the folder of all that belongs to it.
struct Stage {
    folder: TempDir,
    engine: Engine,
    metrics: Metrics,
}

impl Stage {
    fn new(program: PathBuf, limits: CompileLimits) -> Self {
        Self::in_folder(tempfile::tempdir().unwrap(), program, limits)
    }

    fn in_folder(folder: TempDir, program: PathBuf, limits: CompileLimits) -> Self {
        let cache = Some(CacheDir::open(&folder.path().join("cache")).unwrap());
        let metrics = Metrics::new();
        let compiler = Compiler::Child { program, limits };
        let options = Options { cache, compiler, metrics: metrics.clone(), ..Options::default() };
        Self { folder, engine: Engine::new(options).unwrap(), metrics }
    }

    /// One with the real program.
    fn real() -> Self {
        Self::new(program(), limits())
    }

    /// One with a program that a shell runs.
    fn with_script(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        fs::write(&path, format!("#!/bin/sh\ncd '{}'\n{script}\n", folder.path().display()))
            .unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        Self::in_folder(folder, path, CompileLimits { memory_mib: 300, seconds: 100 })
    }

    async fn load(&self, module: &[u8]) -> Result<Processor, LoadError> {
        Processor::load(&self.engine, "m.wasm", module.to_vec().into(), Limits::default()).await
    }

    /// Why a module is not loaded.
    async fn refusal(&self, module: &[u8]) -> String {
        let error = self.load(module).await.unwrap_err();
        format!("{:#}", anyhow::Error::from(error))
    }

    fn entries(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.path().join("cache/code")).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    fn counts(&self, line: &str) -> bool {
        let text = self.metrics.text(&Sample::default()).unwrap();
        text.lines().any(|held| held == line)
    }
}

fn limits() -> CompileLimits {
    CompileLimits { memory_mib: MEMORY_MIB, ..CompileLimits::default() }
}

async fn describes(processor: &Processor) {
    assert_eq!(processor.describe("{}").await.unwrap().name, "secret-copy");
}

#[tokio::test]
async fn code_compiled_by_a_child_process_runs_and_is_cached() {
    let stage = Stage::real();
    describes(&stage.load(component()).await.unwrap()).await;
    assert_eq!(stage.entries().len(), 1);
    let again = Stage::in_folder(stage.folder, "/nowhere/at/all".into(), limits());
    describes(&again.load(component()).await.unwrap()).await;
    assert!(stage.metrics.text(&Sample::default()).unwrap().contains("result=\"success\""));
    assert!(again.counts("mortise_code_lookups_total{result=\"hit\"} 1"));
}

#[tokio::test]
async fn code_that_was_tampered_with_is_compiled_again() {
    let stage = Stage::real();
    stage.load(component()).await.unwrap();
    let entry = stage.entries().pop().unwrap();
    let good = fs::read(&entry).unwrap();
    let mut bad = good.clone();
    let middle = bad.len() / 2;
    bad[middle] ^= 0x55;
    fs::write(&entry, &bad).unwrap();
    describes(&stage.load(component()).await.unwrap()).await;
    assert!(stage.counts("mortise_code_lookups_total{result=\"refused\"} 1"));
    assert_ne!(fs::read(&entry).unwrap(), bad, "it is replaced");
    describes(&stage.load(component()).await.unwrap()).await;
    assert!(stage.counts("mortise_code_lookups_total{result=\"hit\"} 1"));
}

#[tokio::test]
async fn without_a_directory_a_child_compiles_too() {
    let compiler = Compiler::Child { program: program(), limits: limits() };
    let engine = Engine::new(Options { compiler, ..Options::default() }).unwrap();
    let load = Processor::load(&engine, "m", component().into(), Limits::default());
    describes(&load.await.unwrap()).await;
}

#[tokio::test]
async fn a_module_that_takes_too_much_is_refused_and_the_limit_named() {
    let stage = Stage::real();
    let hostile = modules::hostile(component(), 6_000, 6_000);
    let message = stage.refusal(&hostile).await;
    let expected = format!(
        "module `m.wasm` cannot be compiled: the compiler takes more than the {MEMORY_MIB} MiB of memory that --compile-memory-mib allows"
    );
    assert_eq!(message, expected);
    let quick = Stage::new(program(), CompileLimits { memory_mib: 1 << 20, seconds: 1 });
    let message = quick.refusal(&hostile).await;
    assert!(
        message.ends_with(
            "the compiler takes more than the 1 s of CPU time that --compile-seconds allows"
        ),
        "{message}"
    );
    describes(&stage.load(component()).await.unwrap()).await;
    assert_eq!(stage.entries().len(), 1);
}

#[tokio::test]
async fn a_module_that_is_no_component_fails_with_the_compiler_error() {
    let message = Stage::real().refusal(b"\0asm\x0d\0\x01\0\x07\x01\x05").await;
    let expected = "module `m.wasm` is not a component that this host can compile: ";
    assert!(message.starts_with(expected) && message.contains("unexpected end"), "{message}");
}

#[tokio::test]
async fn a_compiler_that_fails_is_told_with_how_it_ended() {
    let cases = [
        ("kill -SEGV $$", "the compiler crashed (signal: 11 (SIGSEGV)"),
        ("echo; echo 'a panic' >&2; exit 101", "the compiler crashed (exit status: 101): a panic"),
        (
            "kill -KILL $$",
            "the compiler was killed (signal: 9 (SIGKILL)), most likely for want of memory",
        ),
        (
            "echo 'error: no such option' >&2; exit 1",
            "the compiler crashed (exit status: 1): error: no such option",
        ),
        ("kill -XCPU $$", "the compiler takes more than the 100 s of CPU time"),
        (
            "echo 'memory allocation of 8 bytes failed' >&2; kill -ABRT $$",
            "the compiler takes more than the 300 MiB of memory",
        ),
        ("echo no code", "is not a component that this host can compile"),
    ];
    for (script, expected) in cases {
        let stage = Stage::with_script(script);
        let message = stage.refusal(component()).await;
        assert!(message.contains(expected), "{script}: {message}");
    }
    let stage = Stage::new("/nowhere/at/all".into(), limits());
    let message = stage.refusal(component()).await;
    assert!(message.contains("the compiler cannot be run: No such file or directory"), "{message}");
}

#[tokio::test]
async fn a_child_has_nothing_of_its_host() {
    let script = "env > env; ls -l /proc/$$/fd > descriptors; echo \"$@\" > arguments; exit 9";
    let stage = Stage::with_script(script);
    let _held = fs::File::open("/proc/self/status").unwrap();
    stage.refusal(component()).await;
    let read = |name: &str| fs::read_to_string(stage.folder.path().join(name)).unwrap();
    let environment = read("env");
    let names = environment.lines().filter_map(|line| line.split('=').next());
    // A shell sets some by itself.
    let ours: Vec<&str> =
        names.filter(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name)).collect();
    // See host/decisions/0027.
    assert_eq!(ours, ["MIMALLOC_ARENA_EAGER_COMMIT"]);
    let descriptors = read("descriptors");
    let open = |of: &str| descriptors.lines().filter(|line| line.contains(of)).count();
    // The code goes to the file that becomes the entry of the cache.
    assert_eq!((open("memfd:"), open("/cache/code/")), (2, 1), "{descriptors}");
    assert_eq!(open("status"), 0, "{descriptors}");
    let expected =
        format!("compile --memory-mib=300 --seconds=100 --parent={}\n", std::process::id());
    assert_eq!(read("arguments"), expected);
}

#[tokio::test]
async fn calls_of_others_go_on_while_a_module_compiles() {
    // Compiles when it is told to: by order, not by time, the calls come first.
    let script = format!("read told < gate; exec {} \"$@\"", program().display());
    let stage = Arc::new(Stage::with_script(&script));
    let gate = stage.folder.path().join("gate");
    make_pipe(&gate);
    let other = Stage::real();
    let small = other.load(component()).await.unwrap();
    let large = modules::with_data(component(), 50 << 20);
    let loading = tokio::spawn({
        let stage = Arc::clone(&stage);
        async move { stage.load(&large).await.map(|_| ()) }
    });
    for _ in 0..100 {
        describes(&small).await;
    }
    assert!(!loading.is_finished());
    let tell = tokio::task::spawn_blocking(move || fs::write(gate, "go\n").unwrap());
    loading.await.unwrap().unwrap();
    tell.await.unwrap();
}

#[test]
fn loading_a_large_module_does_not_block_the_thread_that_runs_calls() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let stage = Stage::real();
        let small = stage.load(component()).await.unwrap();
        // The only other thread is busy: whatever is done meanwhile is done by the one that runs
        // calls.
        let (release, released) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || released.recv());
        let large = modules::with_data(component(), 50 << 20);
        let missed = "mortise_code_lookups_total{result=\"miss\"} 2";
        let calls = async {
            for _ in 0..100 {
                describes(&small).await;
            }
            assert!(!stage.counts(missed), "it was hashed and looked for");
            release.send(()).unwrap();
        };
        let (loaded, ()) = tokio::join!(stage.load(&large), calls);
        describes(&loaded.unwrap()).await;
        assert!(stage.counts(missed));
        busy.await.unwrap().unwrap();
    });
}

#[tokio::test]
async fn calls_go_on_while_much_code_compiles() {
    beside_calls(2_000).await;
}

/// Takes a minute or more; the figures are in the benchmarks.
#[tokio::test]
#[ignore = "takes minutes: `cargo test -p mortise --test commands -- --ignored much_code`"]
async fn calls_go_on_while_very_much_code_compiles() {
    beside_calls(27_000).await;
}

/// Calls one processor as long as another one with so many functions, of 2 KiB each, is compiled
/// and loaded.
async fn beside_calls(functions: usize) {
    let stage = Stage::new(program(), CompileLimits::default());
    let small = stage.load(component()).await.unwrap();
    let large = modules::with_code(component(), functions);
    let loading = stage.load(&large);
    tokio::pin!(loading);
    let mut calls = 0;
    let loaded = loop {
        tokio::select! {
            biased;
            loaded = &mut loading => break loaded.unwrap(),
            () = describes(&small) => calls += 1,
        }
    };
    assert!(calls >= 50, "{calls}");
    describes(&loaded).await;
}

fn make_pipe(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}
