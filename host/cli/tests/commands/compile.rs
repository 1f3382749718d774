//! `mortise compile`, by itself and as a host uses it.

mod child;
pub(crate) mod modules;

use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use mortise::guest::Guest;
use serde_json::{Value, json};

use crate::{mortise, root};

/// What hangs shall not hang the tests.
const TIMEOUT: Duration = Duration::from_mins(2);
/// Enough for any guest of this repository, and little for a compiler.
const MEMORY_MIB: u32 = 400;

/// The guest `secret-copy`.
pub(crate) fn component() -> &'static [u8] {
    static MODULE: OnceLock<Vec<u8>> = OnceLock::new();
    MODULE.get_or_init(|| {
        let path = Guest::open(&root().join("guests/secret-copy")).unwrap().build().unwrap();
        std::fs::read(path).unwrap()
    })
}

/// The guest `puppet`, which declares what its configuration says.
pub(crate) fn puppet() -> &'static [u8] {
    static MODULE: OnceLock<Vec<u8>> = OnceLock::new();
    MODULE.get_or_init(|| {
        let path = Guest::open(&root().join("tests/guests/puppet")).unwrap().build().unwrap();
        std::fs::read(path).unwrap()
    })
}

/// A schema of 3 KiB that nobody can evaluate: each part asks for the next one twice.
pub(crate) fn doubling_schema() -> Value {
    let mut parts = json!({"0": {"type": "null"}});
    for number in 1..=40 {
        let next = json!({"$ref": format!("#/$defs/{}", number - 1)});
        parts[number.to_string()] = json!({"anyOf": [next, next]});
    }
    json!({"$defs": parts, "$ref": "#/$defs/40"})
}

fn program() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_mortise")).to_owned()
}

fn compile(module: &[u8], arguments: &[&str]) -> Output {
    run("compile", module, arguments)
}

fn run(name: &str, input: &[u8], arguments: &[&str]) -> Output {
    let mut command = mortise();
    command.arg(name).args(arguments).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|threads| {
        // What ends before it has read all does not want the rest.
        threads.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().unwrap()
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_module_becomes_code() {
    let output = compile(component(), &[&format!("--memory-mib={MEMORY_MIB}")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(output.stdout.starts_with(b"\x7fELF") && output.stderr.is_empty());
}

#[test]
fn a_module_that_is_no_component_is_refused_in_one_line() {
    let output = compile(b"\0asm\x0d\0\x01\0\x07\x10", &[]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("error: cannot compile the module: ") && said.lines().count() == 1);
    assert!(output.stdout.is_empty());
}

#[test]
fn a_module_that_takes_too_much_ends_the_compiler() {
    let hostile = modules::hostile(component(), 6_000, 6_000);
    assert!(hostile.len() < component().len() + (128 << 10), "it need not be large for that");
    let memory = compile(&hostile, &[&format!("--memory-mib={MEMORY_MIB}")]);
    let said = text(&memory.stderr);
    assert_eq!(memory.status.signal(), Some(6), "{said}");
    assert!(said.contains("memory allocation of "), "{said}");
    let time = compile(&hostile, &["--memory-mib=1000000", "--seconds=1"]);
    assert_eq!(
        time.status.signal(),
        Some(24),
        "SIGXCPU, but {:?}: {}",
        time.status,
        text(&time.stderr)
    );
}

fn check_config(schema: &Value, config: &str, arguments: &[&str]) -> Output {
    let question = json!({"schema": schema.to_string(), "config": config});
    run("check-config", question.to_string().as_bytes(), arguments)
}

#[test]
fn a_configuration_is_checked_in_a_process_of_its_own() {
    let schema = json!({"properties": {"a": {"type": "integer"}}});
    for (config, expected) in [
        (r#"{"a": 1}"#, r#""Valid""#),
        (r#"{"a": "x"}"#, r#"{"Invalid":"`spec.config.a`: \"x\" is not of type \"integer\""}"#),
    ] {
        let output = check_config(&schema, config, &[]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), expected);
    }
}

#[test]
fn a_schema_that_takes_too_much_ends_the_check() {
    let time = check_config(&doubling_schema(), "{}", &["--seconds=1"]);
    assert_eq!(time.status.signal(), Some(24), "SIGXCPU, but {:?}", time.status);
    let wide: Value =
        (0..20_000).map(|number| json!({"pattern": format!("{number}\\w{{200}}")})).collect();
    let memory = check_config(&json!({"allOf": wide}), r#""a""#, &["--memory-mib=64"]);
    assert_eq!(memory.status.signal(), Some(6), "SIGABRT, but {:?}", memory.status);
    assert!(text(&memory.stderr).contains("memory allocation of "), "{}", text(&memory.stderr));
}

#[test]
fn the_compiler_runs_with_limits_and_no_inherited_files() {
    // It is given a file that it has no use for.
    let script = "exec 9</etc/passwd; exec \"$0\" compile --memory-mib=300 --seconds=7";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(program()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    wait_until_confined(child.id());
    let of = |file: &str| PathBuf::from(format!("/proc/{}/{file}", child.id()));
    let read = |file: &str| std::fs::read_to_string(of(file)).unwrap();
    let open = std::fs::read_dir(of("fd")).unwrap();
    let mut open: Vec<_> = open.map(|entry| entry.unwrap().file_name()).collect();
    open.sort();
    assert_eq!(open, ["0", "1", "2"]);
    let limits = read("limits");
    for limit in ["Max data size 314572800 314572800", "Max cpu time 7 8", "Max core file size 0 0"]
    {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(limits.lines().any(|line| words(line).starts_with(limit)), "{limit}: {limits}");
    }
    let stat = read("stat");
    let nice = stat.rsplit_once(") ").unwrap().1.split(' ').nth(16);
    assert_eq!(nice, Some("10"));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Waits until a compiler that was just started waits for its module: the last that it does before.
fn wait_until_confined(process: u32) {
    let start = Instant::now();
    let first_to_go = || std::fs::read_to_string(format!("/proc/{process}/oom_score_adj"));
    while !first_to_go().is_ok_and(|score| score == "1000\n") {
        assert!(start.elapsed() < TIMEOUT);
        std::thread::yield_now();
    }
}

#[test]
fn a_compiler_ends_with_its_parent() {
    // A shell is killed while its compiler waits for a module that never comes.
    let script = "exec 3<&0; \"$0\" compile --parent=$$ <&3 >&2 & echo $!; wait";
    let mut parent = Command::new("sh");
    parent.args(["-c", script]).arg(program()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut parent = parent.stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(parent.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let child: u32 = line.trim().parse().unwrap();
    wait_until_confined(child);
    parent.kill().unwrap();
    parent.wait().unwrap();
    let lives = || {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    let start = Instant::now();
    while lives() {
        assert!(start.elapsed() < TIMEOUT, "it outlives its parent");
        std::thread::yield_now();
    }
    let output = compile(component(), &["--parent=1"]);
    let said = text(&output.stderr);
    assert!(said.contains("the process 1 is not the parent of this one"), "{said}");
}

#[test]
fn invalid_compile_limits_are_refused_with_the_reason() {
    for (argument, accepted) in
        [("--memory-mib=8", "64..=1048576"), ("--seconds=0", "1..=86400"), ("--seconds=x", "x")]
    {
        let output = compile(b"", &[argument]);
        assert_eq!(output.status.code(), Some(1), "{argument}");
        let said = text(&output.stderr);
        assert!(said.contains(accepted), "{argument}: {said}");
    }
}
