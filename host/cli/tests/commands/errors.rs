//! Whatever is wrong with a command line or with what it names: one line says what, and what would
//! be accepted.

use std::{collections::BTreeSet, fs, path::Path, process::Output};

use clap::CommandFactory as _;
use mortise::args::Args;

use crate::{mortise, root, simulate::module};

/// A command line, in a folder with [`FILES`], and what its line of error holds. In both, `MODULE`
/// is a component.
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

const GLOBAL: [Case; 4] = [
    (
        "--log a=loud new b",
        &["`--log a=loud`", "TARGET=LEVEL", "off, error, warn, info, debug or trace"],
    ),
    ("--cache list.yaml inspect MODULE", &["`list.yaml`", "name another with --cache"]),
    ("simulat", &["'simulat'", "'simulate'"]),
    ("new --nme a", &["'--nme'"]),
];

const NEW: [Case; 9] = [
    ("new", &["<NAME>"]),
    ("new No_Name", &["`No_Name`", "lower-case letters", "as `my-guest`"]),
    ("new fn", &["`fn`", "no word of Rust"]),
    ("new guest", &["guest` is there already", "another name", "--path"]),
    ("new a --kind Greeting", &["`Greeting`", "GROUP/VERSION/KIND", "`v1/ConfigMap`"]),
    ("new a --kind apps/v1/Greeting", &["`apps/v1/Greeting`", "a group like `example.com`"]),
    ("new a --kind b/c/d/e", &["`b/c/d/e`", "GROUP/VERSION/KIND"]),
    ("new a --language go", &["'go'", "rust, python, typescript"]),
    ("new a --path list.yaml/a", &["list.yaml/a`", "name another folder with --path"]),
];

const DEV: [Case; 25] = [
    (
        "dev guest other --config third=map.yaml",
        &["`--config third=map.yaml`", "PACKAGE=FILE", "`guest`, `other`"],
    ),
    ("dev", &["<GUEST_DIR>"]),
    ("dev absent", &["`absent`", "Cargo.toml", "`mortise new NAME`"]),
    ("dev empty", &["`empty`", "Cargo.toml", "`mortise new NAME`"]),
    ("dev list.yaml", &["`list.yaml`", "Cargo.toml", "`mortise new NAME`"]),
    ("dev guest guest", &["guest` is given twice", "name each once"]),
    ("dev guest --apply absent", &["`absent`", READABLE]),
    ("dev guest --apply empty", &["`empty` holds no .yaml, .yml or .json file"]),
    (
        "dev --api-only --apply kindless.yaml",
        &["`kindless.yaml`, document 1", "needs `apiVersion` and `kind`"],
    ),
    ("dev --api-only --apply unserved.yaml", &["`unserved.yaml`, document 1", "Thing", "--crds"]),
    ("dev --api-only --load broken.yaml", &["`broken.yaml`, document 1, line 1, column 4"]),
    ("dev guest --load absent", &["`absent`", READABLE]),
    ("dev guest --crds absent", &["`absent`", READABLE]),
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
];

const SIMULATE: [Case; 20] = [
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
    ("simulate --module MODULE --objects absent", &["`absent`", READABLE]),
    ("simulate --module MODULE --objects broken.yaml", &["`broken.yaml`, document 1, line 1"]),
    (
        "simulate --module MODULE --objects list.yaml",
        &["`list.yaml`, document 1", "an object is expected"],
    ),
    (
        "simulate --module MODULE --objects unserved.yaml",
        &["Thing g.dev/v1 a is refused", "--crds"],
    ),
    ("simulate --module MODULE --objects map.yaml --crds absent", &["`absent`", READABLE]),
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
    ("simulate --module MODULE --objects map.yaml --memory lots", &["--memory is `lots`", MEMORY]),
    (
        "simulate --module MODULE --objects map.yaml --deadline soon",
        &["--deadline is `soon`", DEADLINE],
    ),
    (
        "simulate --module MODULE --objects map.yaml --library shout.wasm",
        &["'shout.wasm'", LIBRARY],
    ),
];

const INSPECT: [Case; 23] = [
    ("inspect", &["<FILE|REF>"]),
    ("inspect absent", &["`absent`", "a guest's folder or a component's .wasm file"]),
    ("inspect empty", &["`empty`", "Cargo.toml", "`mortise new NAME`"]),
    ("inspect garbage.wasm", &["`garbage.wasm` is not WebAssembly", "wasm32-wasip2"]),
    ("inspect MODULE --config broken.yaml", &["`broken.yaml`, document 1"]),
    ("inspect MODULE --rbac --crds absent", &["`absent`", READABLE]),
    (
        "inspect MODULE --rbac --service-account a",
        &["`a` names no ServiceAccount", "NAMESPACE/NAME is expected"],
    ),
    ("inspect MODULE --service-account a/b", &["--rbac"]),
    ("inspect MODULE --webhooks a", &["'a'", "--webhooks", "NAMESPACE/NAME is expected"]),
    ("inspect MODULE --service a/b", &["--webhooks <NAMESPACE/NAME>"]),
    ("inspect MODULE --output xml", &["'xml'", "[possible values: json, yaml]"]),
    ("inspect MODULE --memory lots", &["--memory is `lots`", MEMORY]),
    ("inspect MODULE --deadline soon", &["--deadline is `soon`", DEADLINE]),
    ("inspect MODULE --library shout.wasm", &["'shout.wasm'", LIBRARY]),
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
];

const PUSH: [Case; 14] = [
    ("push", &["<FILE>", "<REF>"]),
    ("push MODULE a:1", &["`a:1` names no registry and repository", REFERENCE]),
    ("push MODULE user:pass@localhost:1/a:1", &["the reference` holds credentials", REFERENCE]),
    ("push MODULE user:p/pass@localhost:1/a:1", &["the reference` holds credentials", REFERENCE]),
    ("push absent localhost:1/a:1", &["`absent`", COMPONENT]),
    (
        "push garbage.wasm localhost:1/a:1 --description a --revision b",
        &["`garbage.wasm` is not WebAssembly"],
    ),
    (
        "push MODULE localhost:1/a:1 --config list.yaml",
        &["`list.yaml`", "is an object, found a list"],
    ),
    ("push MODULE localhost:1/a:1 --memory lots", &["--memory is `lots`", MEMORY]),
    (
        "push MODULE localhost:1/a:1 --deadline soon --library shout.wasm",
        &["'shout.wasm'", LIBRARY],
    ),
    ("push MODULE localhost:1/a:1 --registry-ca absent", &["cannot read `--registry-ca absent`"]),
    (
        "push MODULE localhost:1/a:1 --registry-ca list.yaml",
        &["it holds no certificate; PEM is accepted"],
    ),
    (
        "push MODULE localhost:1/a:1 --plain-http https://a",
        &["'https://a'", "--plain-http", "HOST or HOST:PORT is expected"],
    ),
    (
        "push MODULE localhost:1/a:1 --https-proxy socks5://a:1",
        &["the proxy is no address", "`http://HOST:PORT`"],
    ),
    (
        "push MODULE localhost:1/a:1 --docker-config list.yaml",
        &["cannot use `list.yaml/config.json`"],
    ),
];

const PULL: [Case; 9] = [
    ("pull", &["<REF>"]),
    (
        "pull localhost:1/a:1 --output b.wasm",
        &["cannot pull `localhost:1/a:1`: `localhost` does not answer: "],
    ),
    (
        "pull localhost:1/a@sha256:12",
        &["`localhost:1/a@sha256:12` has a digest that is none", REFERENCE],
    ),
    ("pull https://user:pass@localhost:1/a:1", &["`the reference` holds credentials", REFERENCE]),
    ("pull localhost:1/a:1 --registry-ca absent", &["cannot read `--registry-ca absent`"]),
    ("pull localhost:1/a:1 --registry-ca list.yaml", &["it holds no certificate; PEM is accepted"]),
    (
        "pull localhost:1/a:1 --plain-http https://a",
        &["'https://a'", "--plain-http", "HOST or HOST:PORT is expected"],
    ),
    (
        "pull localhost:1/a:1 --https-proxy socks5://a:1",
        &["the proxy is no address", "`http://HOST:PORT`"],
    ),
    ("pull localhost:1/a:1 --docker-config list.yaml", &["cannot use `list.yaml/config.json`"]),
];

const DIFF: [Case; 11] = [
    ("diff MODULE", &["<FILE|REF>"]),
    ("diff MODULE absent", &["`absent`", COMPONENT]),
    ("diff MODULE MODULE --config list.yaml", &["`list.yaml`", "is an object, found a list"]),
    ("diff MODULE MODULE --crds absent", &["`absent`", READABLE]),
    ("diff MODULE MODULE --output xml", &["'xml'", "[possible values: json]"]),
    (
        "diff MODULE MODULE --memory lots --deadline soon --library shout.wasm",
        &["'shout.wasm'", LIBRARY],
    ),
    ("diff localhost:1/a:1 MODULE --registry-ca absent", &["cannot read `--registry-ca absent`"]),
    (
        "diff localhost:1/a:1 MODULE --registry-ca list.yaml",
        &["it holds no certificate; PEM is accepted"],
    ),
    (
        "diff localhost:1/a:1 MODULE --plain-http https://a",
        &["'https://a'", "--plain-http", "HOST or HOST:PORT is expected"],
    ),
    (
        "diff localhost:1/a:1 MODULE --https-proxy socks5://a:1",
        &["the proxy is no address", "`http://HOST:PORT`"],
    ),
    (
        "diff localhost:1/a:1 MODULE --docker-config list.yaml",
        &["cannot use `list.yaml/config.json`"],
    ),
];

const SIGN: [Case; 10] = [
    ("sign MODULE", &["--key <FILE>"]),
    ("sign MODULE --key absent", &["cannot read the key `absent`"]),
    (
        "sign MODULE --key list.yaml",
        &["cannot use the key `list.yaml`: it holds no private key in PKCS #8"],
    ),
    ("sign MODULE --key list.yaml --format pgp", &["'pgp'", "[possible values: bundle, tag]"]),
    ("sign absent --key ours.key", &["cannot read the component `absent`"]),
    (
        "sign localhost:1/a:1 --key ours.key --registry-ca absent",
        &["cannot read `--registry-ca absent`"],
    ),
    (
        "sign localhost:1/a:1 --key ours.key --registry-ca list.yaml",
        &["it holds no certificate; PEM is accepted"],
    ),
    (
        "sign localhost:1/a:1 --key ours.key --plain-http https://a",
        &["'https://a'", "--plain-http", "HOST or HOST:PORT is expected"],
    ),
    (
        "sign localhost:1/a:1 --key ours.key --https-proxy socks5://a:1",
        &["the proxy is no address", "`http://HOST:PORT`"],
    ),
    (
        "sign localhost:1/a:1 --key ours.key --docker-config list.yaml",
        &["cannot use `list.yaml/config.json`"],
    ),
];

const VERIFY: [Case; 9] = [
    ("verify MODULE", &["--key <FILE>"]),
    ("verify MODULE --key absent", &["cannot read the key `absent`"]),
    (
        "verify MODULE --key list.yaml",
        &["cannot use the key `list.yaml`: it holds no public key", "`-----BEGIN PUBLIC KEY-----`"],
    ),
    ("verify MODULE --key ours.pub", &["it has no signature; one by a key of these is expected: "]),
    (
        "verify localhost:1/a:1 --key ours.pub --registry-ca absent",
        &["cannot read `--registry-ca absent`"],
    ),
    (
        "verify localhost:1/a:1 --key ours.pub --registry-ca list.yaml",
        &["it holds no certificate; PEM is accepted"],
    ),
    (
        "verify localhost:1/a:1 --key ours.pub --plain-http https://a",
        &["'https://a'", "--plain-http", "HOST or HOST:PORT is expected"],
    ),
    (
        "verify localhost:1/a:1 --key ours.pub --https-proxy socks5://a:1",
        &["the proxy is no address", "`http://HOST:PORT`"],
    ),
    (
        "verify localhost:1/a:1 --key ours.pub --docker-config list.yaml",
        &["cannot use `list.yaml/config.json`"],
    ),
];

const BENCH: [Case; 15] = [
    ("bench", &["--objects <FILE>", "<FILE>..."]),
    ("bench absent --objects map.yaml", &["`absent`", COMPONENT]),
    ("bench core.wasm --objects map.yaml", &["`core.wasm` is a core module", "wasm32-wasip2"]),
    ("bench MODULE MODULE MODULE --objects map.yaml", &["no more were expected"]),
    ("bench MODULE --objects absent", &["`absent`", READABLE]),
    ("bench MODULE --objects map.yaml", &["reconciles none of the objects", "APIRule"]),
    ("bench MODULE --objects map.yaml --crds absent", &["`absent`", READABLE]),
    (
        "bench MODULE --objects map.yaml --config list.yaml",
        &["`list.yaml`", "is an object, found a list"],
    ),
    (
        "bench MODULE --objects map.yaml --only a",
        &["`--only a`", "KIND/NAMESPACE/NAME is expected"],
    ),
    ("bench MODULE --objects map.yaml --now noon", &["'noon'", "--now", "`2026-01-31T12:00:00Z`"]),
    ("bench MODULE --objects map.yaml --seconds few", &["'few'", "--seconds", "a whole number"]),
    ("bench MODULE --objects map.yaml --output xml", &["'xml'", "[possible values: json]"]),
    ("bench MODULE --objects map.yaml --memory lots", &["--memory is `lots`", MEMORY]),
    ("bench MODULE --objects map.yaml --deadline soon", &["--deadline is `soon`", DEADLINE]),
    ("bench MODULE --objects map.yaml --library shout.wasm", &["'shout.wasm'", LIBRARY]),
];

const TEST: [Case; 12] = [
    ("test", &["<GUEST_DIR|FILE.wasm>"]),
    ("test absent", &["`absent`", "a guest's folder or a component's .wasm file"]),
    ("test MODULE", &["is a component", "--cases"]),
    ("test MODULE --cases absent", &["`absent`, which is to be a folder of cases"]),
    ("test MODULE --cases none", &["`none` holds no case", "objects.yaml and expected.yaml"]),
    (
        "test MODULE --cases CASES --filter nosuch",
        &["`--filter nosuch`", "leaves no case of: ", "exposed"],
    ),
    ("test MODULE --cases CASES --crds absent", &["`absent`", READABLE]),
    ("test MODULE --cases CASES --output xml", &["'xml'", "[possible values: junit]"]),
    ("test MODULE --cases CASES --output-file a", &["--output <FORMAT>"]),
    ("test MODULE --cases CASES --memory lots", &["--memory is `lots`", MEMORY]),
    ("test MODULE --cases CASES --deadline soon", &["--deadline is `soon`", DEADLINE]),
    ("test MODULE --cases CASES --library shout.wasm", &["'shout.wasm'", LIBRARY]),
];

const COMPLETION: [Case; 2] = [
    ("completion", &["<SHELL>"]),
    ("completion tcsh", &["'tcsh'", "[possible values: bash, elvish, fish, powershell, zsh]"]),
];

/// What is wrong with the cluster is tested with `mortise run`.
const RUN: [Case; 33] = [
    ("run", &["--modules <DIR>"]),
    ("run --modules empty --kubeconfig absent", &["the kubeconfig `absent`"]),
    ("run --modules empty --kubeconfig theirs", &["`theirs`", "--context", "there is: `kind`"]),
    (
        "run --modules empty --kubeconfig theirs --context a",
        &["`theirs`", "no context is called `a`", "`kind`"],
    ),
    (
        "run --modules empty --require-signatures absent",
        &["cannot read `--require-signatures absent`"],
    ),
    (
        "run --modules empty --require-signatures list.yaml",
        &["cannot use `--require-signatures list.yaml`", "`rules:` is accepted"],
    ),
    (
        "run --modules empty --image-interval-seconds 0",
        &["'0'", "--image-interval-seconds", "1..=86400"],
    ),
    ("run --modules empty --max-modules-mib 1", &["'1'", "--max-modules-mib", "64..=1048576"]),
    ("run --modules empty --registry-ca absent", &["cannot read `--registry-ca absent`"]),
    (
        "run --modules empty --plain-http a",
        &["'a'", "--plain-http", "HOST or HOST:PORT is expected"],
    ),
    (
        "run --modules empty --https-proxy socks5://a:1",
        &["the proxy is no address", "`http://HOST:PORT`"],
    ),
    ("run --modules empty --listen here", &["'here'", "--listen", "`127.0.0.1:9090`"]),
    ("run --modules empty --webhooks 127.0.0.1:0", &["--webhook-certificate"]),
    (
        "run --modules empty --webhooks here --webhook-certificate a/b",
        &["'here'", "--webhooks", "`127.0.0.1:9090`"],
    ),
    (
        "run --modules empty --webhooks 127.0.0.1:0 --webhook-certificate a",
        &["'a'", "--webhook-certificate", "NAMESPACE/NAME is expected"],
    ),
    (
        "run --modules empty --webhooks 127.0.0.1:0 --webhook-certificate a/b --webhook-path /a=b",
        &["'/a=b'", "--webhook-path", "/convert/NAMESPACE/PROCESSOR"],
    ),
    ("run --modules empty --admin here", &["'here'", "--admin", "`127.0.0.1:9090`"]),
    ("run --modules empty --workers 0", &["'0'", "--workers", "1..=1024"]),
    (
        "run --modules empty --compile-memory-mib 8",
        &["'8'", "--compile-memory-mib", "64..=1048576"],
    ),
    ("run --modules empty --compile-seconds 0", &["'0'", "--compile-seconds", "1..=86400"]),
    ("run --modules empty --call-memory-mib 8", &["'8'", "--call-memory-mib", "64..=1048576"]),
    ("run --modules empty --max-memory-mib 0", &["'0'", "--max-memory-mib", "1..=4096"]),
    ("run --modules empty --max-deadline-seconds 0", &["'0'", "--max-deadline-seconds", "1..=600"]),
    ("run --modules empty --max-concurrency 0", &["'0'", "--max-concurrency", "1..=256"]),
    ("run --modules empty --max-watches 0", &["'0'", "--max-watches", "1..=100000"]),
    ("run --modules empty --max-store-mib 0", &["'0'", "--max-store-mib", "1..=1048576"]),
    ("run --modules empty --log-format xml", &["'xml'", "[possible values: text, json]"]),
    ("run --modules empty --drain-seconds few", &["'few'", "--drain-seconds", "a whole number"]),
    ("run --modules empty --lease-seconds 0", &["'0'", "--lease-seconds", "1..=3600"]),
    (
        "run --modules empty --lease-renew-seconds few",
        &["'few'", "--lease-renew-seconds", "a whole number"],
    ),
    (
        "run --modules empty --lease-retry-seconds few",
        &["'few'", "--lease-retry-seconds", "a whole number"],
    ),
    (
        "run --modules empty --lease-retry-seconds 20",
        &["`--lease-retry-seconds 20`", "each must be more"],
    ),
    ("run --modules empty --once --kubeconfig list.yaml", &["the kubeconfig `list.yaml`"]),
];

const CHECK_CONFIG: [Case; 4] = [
    ("check-config --memory-mib 8", &["'8'", "--memory-mib", "64..=1048576"]),
    ("check-config --seconds 0", &["'0'", "--seconds", "1..=86400"]),
    ("check-config --parent me", &["'me'", "--parent"]),
    ("check-config", &["the input is not a configuration and a schema: "]),
];
const COMPILE: [Case; 4] = [
    ("compile --memory-mib 8", &["'8'", "--memory-mib", "64..=1048576"]),
    ("compile --seconds 0", &["'0'", "--seconds", "1..=86400"]),
    ("compile --parent me", &["'me'", "--parent"]),
    ("compile", &["cannot compile the module: "]),
];

/// Names, of which any text is one.
const ANY_TEXT: [&str; 11] = [
    "run --namespace",
    "run --lease-namespace",
    "run --lease-name",
    "run --no-proxy",
    "inspect --no-proxy",
    "push --no-proxy",
    "pull --no-proxy",
    "diff --no-proxy",
    "sign --no-proxy",
    "sign --password",
    "verify --no-proxy",
];

fn cases() -> impl Iterator<Item = &'static Case> {
    let commands: [&[Case]; 16] = [
        &GLOBAL,
        &NEW,
        &DEV,
        &SIMULATE,
        &INSPECT,
        &PUSH,
        &PULL,
        &DIFF,
        &SIGN,
        &VERIFY,
        &BENCH,
        &TEST,
        &COMPILE,
        &CHECK_CONFIG,
        &COMPLETION,
        &RUN,
    ];
    commands.into_iter().flatten()
}

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

/// The line that says what is wrong. Where the command line does not parse, usage follows after an
/// empty line.
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

/// What is wrong with how an error was told.
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
fn every_error_names_what_is_wrong_and_what_would_be_accepted() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("empty")).unwrap();
    for (name, text) in FILES.into_iter().chain(KEYS) {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    let faults = cases().filter_map(|(line, parts)| {
        Some(format!("{line}\n    {}", fault(&run(line, folder.path()), parts)?))
    });
    let faults: Vec<String> = faults.collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(!folder.path().join("a").exists(), "nothing is left behind");
}

/// What takes a value can be given a bad one.
#[test]
fn every_option_of_every_command_has_a_case_of_bad_input() {
    let mut missing = BTreeSet::new();
    for command in Args::command().get_subcommands() {
        let name = command.get_name();
        let lines: Vec<&str> =
            cases().map(|(line, _)| *line).filter(|line| line.starts_with(name)).collect();
        let options =
            command.get_arguments().filter(|argument| argument.get_action().takes_values());
        for option in options.filter_map(|argument| argument.get_long()) {
            let option = format!("--{option}");
            if !lines.iter().any(|line| line.split(' ').any(|word| word == option)) {
                missing.insert(format!("{name} {option}"));
            }
        }
        if lines.is_empty() {
            missing.insert(name.to_owned());
        }
    }
    let any_text: BTreeSet<String> = ANY_TEXT.map(str::to_owned).into();
    assert_eq!(missing, any_text);
}
