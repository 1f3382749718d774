//! The arrows between packages, and between the modules of core and of the host; the style of
//! imports of all packages.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// The packages of the host and what each may depend on, other than crates from elsewhere. What
/// only tests need is not meant.
const PACKAGES: [(&str, &[&str]); 5] = [
    ("mortise-embedded-api", &[]),
    ("mortise-core", &[]),
    ("mortise-sdk", &["mortise-core", "mortise-embedded-api"]),
    ("mortise-host", &["mortise-core"]),
    ("mortise", &["mortise-core", "mortise-embedded-api", "mortise-host", "mortise-sdk"]),
];

/// The modules of core, from the bottom. A module imports modules of its own layer and of those
/// below; none of them import each other in a cycle.
const CORE: [&[&str]; 6] = [
    &["contract", "digest", "error_chain", "key", "labels", "path"],
    &["api", "applied_fields", "resource"],
    &["grant", "outcome", "store"],
    &["queue", "reads", "triggers"],
    &["dispatch", "outbound", "write"],
    &["reconcile"],
];

/// The modules of the host, from the bottom, by the same rule.
const HOST: [&[&str]; 8] = [
    &["blocking", "cache_dir", "debounce", "http", "metrics", "reason", "share"],
    &["cluster", "oci", "outbound", "telemetry", "wasm"],
    &["host"],
    &["webhooks"],
    &["operator"],
    &["args"],
    &["serve"],
    &["program"],
];

/// Crates that core must not link: those of the network, of WebAssembly, and of Kubernetes' client.
const FOREIGN: [&str; 6] = ["axum", "hyper", "kube", "kube-client", "reqwest", "wasmtime"];

/// Features of tokio that core must not turn on: those of the runtime and of I/O.
const RUNTIME: [&str; 6] = ["fs", "io-util", "net", "process", "rt", "rt-multi-thread"];

fn cargo(arguments: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(arguments)
        .args(["--offline", "--locked"])
        .env("CARGO_TERM_COLOR", "never")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn packages_depend_along_the_arrow() {
    let metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--no-deps", "--format-version", "1"])).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let names: BTreeSet<&str> = PACKAGES.iter().map(|(name, _)| *name).collect();
    for (name, allowed) in PACKAGES {
        let package = packages.iter().find(|package| package["name"] == name).unwrap();
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        let ours = dependencies.filter(|of| of["kind"].is_null());
        let ours = ours.filter_map(|of| of["name"].as_str()).filter(|of| names.contains(of));
        let against: Vec<&str> = ours.filter(|of| !allowed.contains(of)).collect();
        assert!(against.is_empty(), "{name} depends on {against:?}; it may on {allowed:?}");
    }
}

#[test]
fn core_links_neither_network_nor_webassembly() {
    let tree = cargo(&["tree", "-p", "mortise-core", "-e", "normal", "--prefix", "none"]);
    let names: BTreeSet<&str> =
        tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.contains("serde_json"), "the tree is read: {tree}");
    let found: Vec<&str> = FOREIGN.into_iter().filter(|name| names.contains(name)).collect();
    assert!(found.is_empty(), "mortise-core depends on {found:?}");
}

#[test]
fn core_links_tokio_without_its_runtime() {
    let tree = cargo(&["tree", "-p", "mortise-core", "-e", "features,normal", "--prefix", "none"]);
    // Such a line is `tokio feature "sync"`, with `(*)` behind it when it comes again.
    let of_tokio = tree.lines().filter_map(|line| line.strip_prefix("tokio feature \""));
    let features: BTreeSet<&str> = of_tokio.filter_map(|rest| rest.split('"').next()).collect();
    assert!(features.contains("sync"), "the tree is read: {tree}");
    let found: Vec<&str> = RUNTIME.into_iter().filter(|name| features.contains(name)).collect();
    assert!(found.is_empty(), "mortise-core turns on {found:?} of tokio");
}

#[test]
fn modules_import_only_modules_below_them() {
    let core = Path::new(env!("CARGO_MANIFEST_DIR"));
    import_what_is_below(&core.join("src"), &CORE);
    import_what_is_below(&core.join("../src"), &HOST);
}

#[test]
fn modules_of_cluster_import_each_other_in_no_cycle() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/cluster");
    let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in fs::read_dir(&source).unwrap() {
        let path = entry.unwrap().path();
        let module = path.file_stem().unwrap().to_str().unwrap().to_owned();
        for file in sources(&path) {
            // In a file of this folder, `super` is `cluster`.
            let begins: &[&str] =
                if file == path { &["cluster::", "super::"] } else { &["cluster::"] };
            let imported = begins.iter().flat_map(|begin| imports(&file, begin));
            arrows.entry(module.clone()).or_default().extend(imported);
        }
    }
    assert!(arrows["clusters"].contains("remote"), "the imports are read: {arrows:?}");
    for module in arrows.keys() {
        assert!(!reaches(&arrows, module, module), "`{module}` is in a cycle of imports");
    }
}

/// The style is what rustfmt's `imports_granularity = "Crate"` makes, which stable rustfmt cannot.
#[test]
fn a_file_imports_from_each_crate_once() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files = ["host", "guests", "tests"].into_iter().flat_map(|folder| rust(&root.join(folder)));
    for file in files {
        let (text, mut seen, mut line_before) =
            (fs::read_to_string(&file).unwrap(), BTreeSet::new(), "");
        for line in text.lines() {
            let from = line.strip_prefix("use ").and_then(first_word);
            // An import under an attribute stands alone.
            if let Some(from) = from.filter(|_| !line_before.starts_with("#[")) {
                let is_first = seen.insert(from);
                assert!(is_first, "{}: `{line}` belongs to the import above", file.display());
            }
            line_before = line;
        }
    }
}

/// Returns the Rust files in a folder, without what was built or installed there.
fn rust(folder: &Path) -> Vec<PathBuf> {
    let is_ours = |name: &str| !name.starts_with('.') && name != "target" && name != "node_modules";
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let ours = paths.filter(|path| is_ours(path.file_name().unwrap().to_str().unwrap()));
    let files = ours.flat_map(|path| if path.is_dir() { rust(&path) } else { vec![path] });
    files.filter(|path| path.extension().is_some_and(|ending| ending == "rs")).collect()
}

fn import_what_is_below(source: &Path, layers: &[&[&str]]) {
    let layer = |module: &str| layers.iter().position(|layer| layer.contains(&module));
    let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in fs::read_dir(source).unwrap() {
        let path = entry.unwrap().path();
        let module = path.file_stem().unwrap().to_str().unwrap().to_owned();
        // `fixture` and `fuzz` are for tests, which import what they like.
        if ["lib", "main", "fixture", "fuzz"].contains(&module.as_str()) {
            continue;
        }
        assert!(layer(&module).is_some(), "module `{module}` has no layer in this test");
        for file in sources(&path) {
            arrows.entry(module.clone()).or_default().extend(imports(&file, "crate::"));
        }
    }
    for (module, imported) in &arrows {
        for of in imported.iter().filter(|of| *of != module) {
            let (from, to) = (layer(module), layer(of));
            assert!(to.is_some() && to <= from, "`{module}` imports `{of}`, which is above it");
        }
    }
    for module in arrows.keys() {
        assert!(!reaches(&arrows, module, module), "`{module}` is in a cycle of imports");
    }
}

/// Returns the files of production code at a path.
fn sources(path: &Path) -> Vec<PathBuf> {
    let is_test = path.file_stem().is_some_and(|stem| stem == "tests");
    if is_test {
        return Vec::new();
    }
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    fs::read_dir(path).unwrap().flat_map(|entry| sources(&entry.unwrap().path())).collect()
}

/// Returns the modules and items that a file names after `begin`, but for its tests.
fn imports(file: &Path, begin: &str) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    let code = code.lines().filter(is_code).collect::<Vec<_>>().join("\n");
    let mut found = Vec::new();
    for (at, _) in code.match_indices(begin) {
        let rest = &code[at + begin.len()..];
        match rest.strip_prefix('{') {
            None => found.extend(first_word(rest)),
            Some(group) => found.extend(roots(group)),
        }
    }
    found
}

/// Returns the first words of the items of a group, up to its closing brace.
fn roots(group: &str) -> Vec<String> {
    let (mut depth, mut found, mut item) = (0_usize, Vec::new(), String::new());
    for sign in group.chars() {
        match sign {
            '}' if depth == 0 => break,
            ',' if depth == 0 => {
                found.extend(first_word(item.trim()));
                item.clear();
                continue;
            }
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        item.push(sign);
    }
    found.extend(first_word(item.trim()));
    found
}

fn first_word(text: &str) -> Option<String> {
    let word: String =
        text.chars().take_while(|sign| *sign == '_' || sign.is_alphanumeric()).collect();
    (!word.is_empty()).then_some(word)
}

fn reaches(arrows: &BTreeMap<String, BTreeSet<String>>, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut next: Vec<&String> = arrows[from].iter().filter(|of| *of != from).collect();
    while let Some(module) = next.pop() {
        if module == to {
            return true;
        }
        if seen.insert(module) {
            let further = arrows.get(module).into_iter().flatten();
            next.extend(further.filter(|of| *of != module));
        }
    }
    false
}
