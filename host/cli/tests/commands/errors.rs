//! Errors of a command line, or of the files that it names: one line says the fault, and the values
//! that would be accepted.

use std::{fs, path::Path, process::Output};

use crate::{mortise, root, simulate::module};

/// A command line, in a folder with [`FILES`], and the parts of its error. `MODULE` is a component.
type Case = (&'static str, &'static [&'static str]);

const FILES: [(&str, &str); 13] = [
    ("garbage.wasm", "garbage"),
    ("core.wasm", "\0asm\u{1}\0\0\0"),
    ("list.yaml", "- a\n"),
    ("broken.yaml", "a: [\n"),
    ("map.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"),
    ("kindless.yaml", "apiVersion: v1\nmetadata: {name: a}\n"),
    ("unserved.yaml", "apiVersion: g.dev/v1\nkind: Thing\nmetadata: {name: a}\n"),
    ("theirs", "contexts: [{name: kind, context: {cluster: kind, user: kind}}]\n"),
    ("none/README.md", "# No case\n"),
    (
        "guest/Cargo.toml",
        "[package]\nname = \"guest\"\nedition = \"2024\"\n[workspace]\n[lib]\ncrate-type = [\"cdylib\"]\n",
    ),
    ("guest/src/lib.rs", "this is no Rust"),
    (
        "other/Cargo.toml",
        "[package]\nname = \"other\"\nedition = \"2024\"\n[workspace]\n[lib]\ncrate-type = [\"cdylib\"]\n",
    ),
    ("other/src/lib.rs", ""),
];

/// A key without a password, and its public half.
const KEYS: [(&str, &str); 2] = [
    (
        "ours.key",
        "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQggZZRygzlLerUz6AU\nkbSVKUWRg81B0X7M3dsN6J5duSuhRANCAATrTiAOUuUE7fljtVdX2fz2RrUN20vG\nqSBI6MAvHiJY0k+gQGxaC/hoY0+eNxrpZDuo2FDNaYfxXbxmMaGdpUHD\n-----END PRIVATE KEY-----\n",
    ),
    (
        "ours.pub",
        "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE604gDlLlBO35Y7VXV9n89ka1DdtL\nxqkgSOjALx4iWNJPoEBsWgv4aGNPnjca6WQ7qNhQzWmH8V28ZjGhnaVBww==\n-----END PUBLIC KEY-----\n",
    ),
];

const REFERENCE: &str = "HOST/REPOSITORY:TAG or HOST/REPOSITORY@sha256:DIGEST is accepted";
const READABLE: &str = "which is to be a file of YAML or JSON, or a folder of such";
const COMPONENT: &str = "a component's .wasm file";

/// The values that `--memory`, `--deadline` and `--library` take.
const MEMORY: &str = "1Mi to 4Gi is accepted";
const DEADLINE: &str = "1ms to 10m is accepted";
const LIBRARY: &str = "INTERFACE=FILE is expected, as `example:shouting/shout@1.0.0=shout.wasm`";

/// A command line for each kind of refusal.
const CASES: &[Case] = &[
    (
        "--log a=loud new b",
        &["`--log a=loud`", "TARGET=LEVEL", "off, error, warn, info, debug or trace"],
    ),
    ("--cache list.yaml inspect MODULE", &["`list.yaml`", "name another with --cache"]),
    ("simulat", &["'simulat'", "'simulate'"]),
    ("new --nme a", &["'--nme'"]),
    ("new", &["<NAME>"]),
    ("new No_Name", &["`No_Name`", "lower-case letters", "as `my-guest`"]),
    ("new fn", &["`fn`", "no word of Rust"]),
    ("new guest", &["guest` is there already", "another name", "--path"]),
    ("new a --kind Greeting", &["`Greeting`", "GROUP/VERSION/KIND", "`v1/ConfigMap`"]),
    ("new a --kind apps/v1/Greeting", &["`apps/v1/Greeting`", "a group like `example.com`"]),
    ("new a --kind b/c/d/e", &["`b/c/d/e`", "GROUP/VERSION/KIND"]),
    ("new a --language go", &["'go'", "rust, python, typescript"]),
    ("new a --path list.yaml/a", &["list.yaml/a`", "name another folder with --path"]),
    (
        "dev guest other --config third=map.yaml",
        &["`--config third=map.yaml`", "PACKAGE=FILE", "`guest`, `other`"],
    ),
    ("dev", &["<GUEST_DIR>"]),
    ("dev absent", &["`absent`", "Cargo.toml", "`mortise new NAME`"]),
    ("dev guest guest", &["guest` is given twice", "name each once"]),
    ("dev guest --apply absent", &["`absent`", READABLE]),
    ("dev guest --apply empty", &["`empty` holds no .yaml, .yml or .json file"]),
    (
        "dev --api-only --apply kindless.yaml",
        &["`kindless.yaml`, document 1", "needs `apiVersion` and `kind`"],
    ),
    ("dev --api-only --apply unserved.yaml", &["`unserved.yaml`, document 1", "Thing", "--crds"]),
    ("dev --api-only --load broken.yaml", &["`broken.yaml`, document 1, line 1, column 4"]),
    ("dev --api-only --cluster provider=empty", &["'provider=empty'", "NAME=DIR is expected"]),
    ("dev --api-only --cluster a/b/c=absent", &["`absent`", READABLE]),
    ("dev guest --egress =a", &["'=a'", "ORIGIN is expected", "`https://*.example.com`"]),
    ("dev guest --egress https://a.example=", &["'https://a.example='", "ORIGIN is expected"]),
    ("dev guest --egress a.example", &["--egress: origin: `a.example`", "an origin is `https://"]),
    (
        "dev guest --egress https://a.example=b",
        &["--egress: connect: `b`", "`HOST:PORT` is accepted"],
    ),
    ("dev guest --egress https://a.example=b:1,absent", &["`absent`", "authorities in PEM"]),
    ("dev guest --egress https://a.example=b:1,map.yaml", &["`map.yaml` is no", "in PEM"]),
    ("dev --api-only --egress https://a.example", &["--egress", "--api-only"]),
    ("dev guest --save list.yaml", &["`list.yaml`", "name another folder with --save"]),
    ("dev guest --config absent", &["`absent`, which is to be a file of YAML or JSON:"]),
    ("dev guest --config list.yaml", &["`list.yaml`: a configuration is an object, found a list"]),
    (
        "dev guest --config map.yaml --config map.yaml",
        &["`--config map.yaml`", "one file for each guest"],
    ),
    (
        "dev guest --kubeconfig theirs",
        &["`theirs`", "`kind`", "name another file with --kubeconfig"],
    ),
    ("dev guest --kubeconfig no/place", &["`no/place`", "name another with --kubeconfig"]),
    ("dev guest --port many", &["'many'", "--port", "from 0 (any that is free) to 65535"]),
    ("dev guest --listen here", &["'here'", "--listen", "`127.0.0.1:9090`"]),
    ("dev guest --api-only", &["--api-only", "GUEST_DIR"]),
    ("dev guest --memory lots", &["--memory is `lots`", MEMORY]),
    ("dev guest --deadline soon", &["--deadline is `soon`", DEADLINE]),
    ("dev guest --library shout.wasm", &["'shout.wasm'", LIBRARY]),
    ("simulate", &["--module <FILE>", "--objects <FILE>"]),
    ("simulate --module absent --objects map.yaml", &["`absent`", COMPONENT]),
    ("simulate --module empty --objects map.yaml", &["`empty` is no guest", "`mortise new NAME`"]),
    (
        "simulate --module garbage.wasm --objects map.yaml",
        &["`garbage.wasm` is not WebAssembly", "wasm32-wasip2"],
    ),
    (
        "simulate --module core.wasm --objects map.yaml",
        &["`core.wasm` is a core module", "wasm32-wasip2"],
    ),
    ("simulate --module MODULE --objects broken.yaml", &["`broken.yaml`, document 1, line 1"]),
    (
        "simulate --module MODULE --objects list.yaml",
        &["`list.yaml`, document 1", "an object is expected"],
    ),
    (
        "simulate --module MODULE --objects unserved.yaml",
        &["Thing g.dev/v1 a is refused", "--crds"],
    ),
    (
        "simulate --module MODULE --objects map.yaml --config list.yaml",
        &["`list.yaml`", "is an object, found a list"],
    ),
    (
        "simulate --module MODULE --objects map.yaml --now noon",
        &["'noon'", "--now", "`2026-01-31T12:00:00Z`"],
    ),
    (
        "simulate --module MODULE --objects map.yaml --missing-kind a.b",
        &["`--missing-kind a.b`", "accepted: "],
    ),
    (
        "simulate --module MODULE --objects map.yaml --only a",
        &["`--only a`", "KIND/NAMESPACE/NAME is expected"],
    ),
    (
        "simulate --module MODULE --objects map.yaml --only pod/a/b",
        &["`--only pod/a/b`", "accepted: APIRule"],
    ),
    (
        "simulate --module MODULE --objects map.yaml --rounds few",
        &["'few'", "--rounds", "a whole number"],
    ),
    (
        "simulate --module MODULE --objects map.yaml --output xml",
        &["'xml'", "[possible values: json]"],
    ),
    ("inspect", &["<FILE|REF>"]),
    ("inspect absent", &["`absent`", "a guest's folder or a component's .wasm file"]),
    ("inspect MODULE --config broken.yaml", &["`broken.yaml`, document 1"]),
    (
        "inspect MODULE --rbac --service-account a",
        &["`a` names no ServiceAccount", "NAMESPACE/NAME is expected"],
    ),
    ("inspect MODULE --service-account a/b", &["--rbac"]),
    ("inspect MODULE --webhooks a", &["'a'", "--webhooks", "NAMESPACE/NAME is expected"]),
    ("inspect MODULE --service a/b", &["--webhooks <NAMESPACE/NAME>"]),
    ("inspect MODULE --output xml", &["'xml'", "[possible values: json, yaml]"]),
    ("inspect localhost:1/a", &["`localhost:1/a` names neither a tag nor a digest", REFERENCE]),
    (
        "inspect registry.example.com/team/a",
        &["`registry.example.com/team/a` names neither a tag nor a digest", REFERENCE],
    ),
    ("inspect localhost/a", &["`localhost/a` names neither a tag nor a digest", REFERENCE]),
    (
        "inspect https://user:pass@localhost:1/a.wasm",
        &["`the reference` holds credentials", REFERENCE],
    ),
    ("inspect localhost:1/a:1 --registry-ca absent", &["cannot read `--registry-ca absent`"]),
    (
        "inspect localhost:1/a:1 --registry-ca list.yaml",
        &["it holds no certificate; PEM is accepted"],
    ),
    (
        "inspect localhost:1/a:1 --plain-http https://a",
        &["'https://a'", "--plain-http", "HOST or HOST:PORT is expected"],
    ),
    (
        "inspect localhost:1/a:1 --https-proxy socks5://a:1",
        &["the proxy is no address", "`http://HOST:PORT`"],
    ),
    ("inspect localhost:1/a:1 --docker-config list.yaml", &["cannot use `list.yaml/config.json`"]),
    ("push", &["<FILE>", "<REF>"]),
    ("push MODULE a:1", &["`a:1` names no registry and repository", REFERENCE]),
    ("push MODULE user:pass@localhost:1/a:1", &["the reference` holds credentials", REFERENCE]),
    (
        "push garbage.wasm localhost:1/a:1 --description a --revision b",
        &["`garbage.wasm` is not WebAssembly"],
    ),
    ("pull", &["<REF>"]),
    (
        "pull localhost:1/a:1 --output b.wasm",
        &["cannot pull `localhost:1/a:1`: `localhost` does not answer: "],
    ),
    (
        "pull localhost:1/a@sha256:12",
        &["`localhost:1/a@sha256:12` has a digest that is none", REFERENCE],
    ),
    ("sign MODULE", &["--key <FILE>"]),
    ("sign MODULE --key absent", &["cannot read the key `absent`"]),
    (
        "sign MODULE --key list.yaml",
        &["cannot use the key `list.yaml`: it holds no private key in PKCS #8"],
    ),
    ("sign MODULE --key list.yaml --format pgp", &["'pgp'", "[possible values: bundle, tag]"]),
    ("sign absent --key ours.key", &["cannot read the component `absent`"]),
    (
        "verify MODULE --key list.yaml",
        &["cannot use the key `list.yaml`: it holds no public key", "`-----BEGIN PUBLIC KEY-----`"],
    ),
    ("verify MODULE --key ours.pub", &["it has no signature; one by a key of these is expected: "]),
    ("bench", &["--objects <FILE>", "<FILE>..."]),
    ("bench MODULE MODULE MODULE --objects map.yaml", &["no more were expected"]),
    ("bench MODULE --objects map.yaml", &["reconciles none of the objects", "APIRule"]),
    ("test", &["<GUEST_DIR|FILE.wasm>"]),
    ("test MODULE", &["is a component", "--cases"]),
    ("test MODULE --cases absent", &["`absent`, which is to be a folder of cases"]),
    ("test MODULE --cases none", &["`none` holds no case", "objects.yaml and expected.yaml"]),
    (
        "test MODULE --cases CASES --filter nosuch",
        &["`--filter nosuch`", "leaves no case of: ", "exposed"],
    ),
    ("test MODULE --cases CASES --output xml", &["'xml'", "[possible values: junit]"]),
    ("test MODULE --cases CASES --output-file a", &["--output <FORMAT>"]),
    ("completion", &["<SHELL>"]),
    ("completion tcsh", &["'tcsh'", "[possible values: bash, elvish, fish, powershell, zsh]"]),
    ("run", &["--modules <DIR>"]),
    ("run --modules empty --kubeconfig absent", &["the kubeconfig `absent`"]),
    ("run --modules empty --kubeconfig theirs", &["`theirs`", "--context", "there is: `kind`"]),
    (
        "run --modules empty --kubeconfig theirs --context a",
        &["`theirs`", "no context is called `a`", "`kind`"],
    ),
    (
        "run --modules empty --require-signatures list.yaml",
        &["cannot use `--require-signatures list.yaml`", "`rules:` is accepted"],
    ),
    (
        "run --modules empty --image-interval-seconds 0",
        &["'0'", "--image-interval-seconds", "1..=86400"],
    ),
    (
        "run --modules empty --webhooks 127.0.0.1:0 --webhook-certificate a/b --webhook-path /a=b",
        &["'/a=b'", "--webhook-path", "/convert/NAMESPACE/PROCESSOR"],
    ),
    ("run --modules empty --log-format xml", &["'xml'", "[possible values: text, json]"]),
    (
        "run --modules empty --lease-retry-seconds 20",
        &["`--lease-retry-seconds 20`", "each must be more"],
    ),
    ("check-config --parent me", &["'me'", "--parent"]),
    ("check-config", &["the input is not a configuration and a schema: "]),
    ("compile", &["cannot compile the module: "]),
];

fn run(line: &str, folder: &Path) -> Output {
    let cases = root().join("guests/api-rule/cases");
    let words = line.split(' ').map(|word| match word {
        "MODULE" => module().as_os_str(),
        "CASES" => cases.as_os_str(),
        word => word.as_ref(),
    });
    let mut command = mortise();
    command.env_remove("KUBECONFIG").env_remove("MORTISE_KUBECONFIG");
    command.args(words).current_dir(folder).output().unwrap()
}

/// Returns the line of the error. If the command line does not parse, usage follows after an empty
/// line.
fn told(text: &str) -> Result<String, &'static str> {
    let (told, rest) = text.split_once("\n\n").unwrap_or((text, ""));
    let lines: Vec<&str> = told.lines().map(str::trim).collect();
    match rest {
        "" if lines.len() != 1 => return Err("it is one line"),
        "" => {}
        rest if rest.ends_with("For more information, try '--help'.\n") => {}
        _ => return Err("nothing but usage follows"),
    }
    let tips = rest.lines().filter(|line| line.trim_start().starts_with("tip: "));
    Ok(lines.into_iter().chain(tips).collect::<Vec<_>>().join(" "))
}

/// Returns the fault of an error's text, if any.
fn fault(output: &Output, parts: &[&str]) -> Option<String> {
    let text = String::from_utf8_lossy(&output.stderr);
    let told = match told(&text) {
        Ok(told) => told,
        Err(rule) => return Some(format!("{rule}: {text}")),
    };
    let missing = parts.iter().find(|part| !told.contains(**part));
    // The last is the password of some command lines.
    let for_us = [" { ", "Error(", "Some(", "panicked", "pass@"]
        .into_iter()
        .find(|part| told.contains(part));
    match (output.status.code(), missing, for_us) {
        (Some(1), None, None) if text.starts_with("error: ") => None,
        (Some(1), Some(part), _) => Some(format!("`{part}` is missing in: {told}")),
        (Some(1), _, Some(part)) => Some(format!("`{part}` is not for users: {told}")),
        (code, ..) => Some(format!("exit code {code:?}: {output:?}")),
    }
}

#[test]
fn every_error_names_the_fault_and_the_accepted_input() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("empty")).unwrap();
    for (name, text) in FILES.into_iter().chain(KEYS) {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    let faults = CASES.iter().filter_map(|(line, parts)| {
        Some(format!("{line}\n    {}", fault(&run(line, folder.path()), parts)?))
    });
    let faults: Vec<String> = faults.collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(!folder.path().join("a").exists(), "nothing is left behind");
}
