//! How a host compiles, and where it keeps what comes of it.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, chown},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use kube::{
    Client,
    api::{Patch, PatchParams},
};
use mortise_host::operator::api::Processor;
use serde_json::{Value, json};

use super::{Api, Run, TIMEOUT, command, start::refused};
use crate::compile::{component, doubling_schema, modules, puppet};

/// What a condition of a Processor says.
fn condition(api: &Api, processor: &str, of: &str) -> Value {
    let processors = api.of_kind("Processor");
    let mut named = processors.iter().filter(|object| object["metadata"]["name"] == processor);
    let conditions = named.next().unwrap()["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|condition| condition["type"] == of).unwrap().clone()
}

/// The configuration of a puppet that declares nothing but a schema of it.
fn of_puppet(schema: Option<&str>) -> Value {
    let description = json!({
        "name": "puppet", "version": "1.0.0", "grants": [], "outbound": [], "config_schema": schema, "reconcilers": [], "reads": [], "writes": [],
    });
    json!({"description": description, "script": {}})
}

/// Waits until a version of a Processor is at work.
async fn until_loaded(api: &Api, processor: &str) {
    let start = Instant::now();
    let is_it = |object: &Value| {
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let mut loaded = conditions.filter(|of| of["type"] == "Loaded" && of["status"] == "True");
        object["metadata"]["name"] == processor && loaded.next().is_some()
    };
    while !api.of_kind("Processor").iter().any(is_it) {
        assert!(start.elapsed() < TIMEOUT, "{:?}", api.of_kind("Processor"));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Adds a Processor, its account and its module.
pub(super) fn add(api: &Api, name: &str, module: &[u8]) {
    add_with(api, name, module, &json!({}));
}

/// Adds one with a configuration.
fn add_with(api: &Api, name: &str, module: &[u8], config: &Value) {
    let metadata =
        json!({"name": name, "namespace": "platform", "labels": {"mortise.dev/processor": name}});
    let path = format!("{name}.wasm");
    let spec = json!({"module": {"path": path}, "serviceAccountName": name, "config": config});
    fs::write(api.modules().join(format!("{name}.wasm")), module).unwrap();
    for object in [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
        json!({"apiVersion": "mortise.dev/v1alpha1", "kind": "Processor", "metadata": metadata, "spec": spec}),
    ] {
        api.embedded.load(object, true).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_module_that_takes_too_much_to_compile_harms_no_other() {
    let api = Api::with_secret_copy().await;
    add(&api, "hostile", &modules::hostile(component(), 6_000, 6_000));
    let run = Run::start(&api, &["--once", "--compile-memory-mib", "400"]);
    let done = run.event("reconciled all objects");
    assert_eq!((&done["processors"], &done["faulty"]), (&1.into(), &1.into()), "{done}");
    let (status, said) = run.wait();
    assert_eq!(status.code(), Some(3), "{said}");
    let loaded = condition(&api, "hostile", "Loaded");
    assert_eq!((&loaded["status"], &loaded["reason"]), (&"False".into(), &"CompileFailed".into()));
    let message = loaded["message"].as_str().unwrap();
    assert!(
        message.contains(
            "`hostile.wasm` cannot be compiled: the compiler takes more than the 400 MiB"
        ),
        "{message}"
    );
    assert_eq!(condition(&api, "secret-copy", "Ready")["status"], "True");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_that_takes_for_ever_harms_no_other() {
    let api = Api::with_secret_copy().await;
    let config = of_puppet(Some(&doubling_schema().to_string()));
    // As many as there are threads.
    for name in ["hostile", "hostile-too"] {
        add_with(&api, name, puppet(), &config);
    }
    let run = Run::start(&api, &["--once", "--workers", "2"]);
    let done = run.event("reconciled all objects");
    assert_eq!((&done["processors"], &done["faulty"]), (&1.into(), &2.into()), "{done}");
    let (status, said) = run.wait();
    assert_eq!(status.code(), Some(3), "{said}");
    for name in ["hostile", "hostile-too"] {
        let loaded = condition(&api, name, "Loaded");
        assert_eq!(loaded["reason"], "ConfigSchemaInvalid", "{loaded}");
        let message = loaded["message"].as_str().unwrap();
        let says = "the check of spec.config against it takes too long: limit 1 s of CPU time";
        assert!(message.ends_with(says), "{message}");
    }
    assert_eq!(condition(&api, "secret-copy", "Ready")["status"], "True");
}

/// Children of a process that compile.
fn compilers(parent: u32) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let of_parent = format!("--parent={parent}");
    let lines = processes.filter_map(|path| fs::read_to_string(path.join("cmdline")).ok());
    lines.filter(|line| line.contains("\0compile\0") && line.contains(&of_parent)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_module_that_nobody_asks_for_any_more_is_not_compiled_to_its_end() {
    let api = Api::with_secret_copy().await;
    fs::write(api.modules().join("good.wasm"), puppet()).unwrap();
    // It would take minutes, and gigabytes.
    let arguments = ["--compile-seconds", "3600", "--compile-memory-mib", "100000"];
    let run = Run::start(&api, &arguments);
    // Its namespace compiles one module at a time.
    until_loaded(&api, "secret-copy").await;
    let hostile = modules::hostile(component(), 6_000, 6_000);
    add_with(&api, "hostile", &hostile, &of_puppet(None));
    let start = Instant::now();
    while compilers(run.child.id()).is_empty() {
        assert!(start.elapsed() < TIMEOUT);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let client = Client::new(api.embedded.router(), "default");
    let processors: kube::Api<Processor> = kube::Api::namespaced(client, "platform");
    let good = Patch::Merge(json!({"spec": {"module": {"path": "good.wasm"}}}));
    processors.patch("hostile", &PatchParams::default(), &good).await.unwrap();
    until_loaded(&api, "hostile").await;
    assert_eq!(compilers(run.child.id()), [""; 0], "none goes on");
    run.terminate();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_that_others_may_write_to_is_refused_before_anything_runs() {
    let api = Api::start().await;
    let cache = api.folder().join("cache");
    fs::create_dir(&cache).unwrap();
    fs::set_permissions(&cache, Permissions::from_mode(0o777)).unwrap();
    let refusal = |cache: &Path| refused(command(&api).arg("--cache").arg(cache));
    let message = refusal(&cache);
    assert!(message.contains("(mode 0777)") && message.contains("chmod go-w"), "{message}");
    // Who is not root cannot give a directory away, but does not own root's either.
    let theirs = match chown(&cache, Some(12_345), None) {
        Ok(()) => cache,
        Err(_) => "/usr".into(),
    };
    let message = refusal(&theirs);
    assert!(message.contains("is owned by user") && message.contains("--cache"), "{message}");
}

/// A host whose cache is in a file system of its own.
fn with_mount(api: &Api, options: &str) -> Command {
    let cache = api.folder().join("cache");
    fs::create_dir_all(&cache).unwrap();
    let inner = command(api);
    let mut outer = Command::new("unshare");
    outer.args(["--map-root-user", "--mount", "sh", "-c"]);
    outer.arg("mount -t tmpfs -o \"$1\" cache \"$2\" && shift && MORTISE_CACHE=\"$1\" && export MORTISE_CACHE && shift && exec \"$@\"");
    outer.args(["sh", options]).arg(&cache).arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer.arg("--once");
    outer
}

/// Whether this machine lets us mount in a namespace of our own.
fn can_mount() -> bool {
    let try_it = "mount -t tmpfs none /mnt";
    let tried =
        Command::new("unshare").args(["--map-root-user", "--mount", "sh", "-c", try_it]).output();
    let can = tried.is_ok_and(|output| output.status.success());
    if !can {
        eprintln!("not tested: there is no `unshare` with which a file system can be mounted here");
        assert_ne!(std::env::var("MORTISE_TOOLS").as_deref(), Ok("required"));
    }
    can
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_runs_without_a_cache_where_that_is_full_or_read_only() {
    if !can_mount() {
        return;
    }
    for (options, expected) in
        [("size=16k,mode=700", "No space left"), ("ro,mode=700", "Read-only file system")]
    {
        let api = Api::with_secret_copy().await;
        let (status, said) = Run::spawn(&mut with_mount(&api, options)).wait();
        assert_eq!(status.code(), Some(0), "{options}: {said}");
        let warnings: Vec<&str> =
            said.lines().filter(|line| line.contains("is not kept")).collect();
        assert_eq!(warnings.len(), 1, "{options}: {said}");
        assert!(
            warnings[0].contains("\"WARN\"") && warnings[0].contains(expected),
            "{options}: {warnings:?}"
        );
        assert_eq!(condition(&api, "secret-copy", "Ready")["status"], "True");
    }
}
