//! Guests in Python and TypeScript: secret-copy, which is the same in three languages, and new
//! ones.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use mortise::guest::Guest;
use mortise_sdk::derived_name;
use mortise_tests::language::Language;

use crate::cases::{both, component};

/// Objects that break the expectations of secret-copy: no schema is checked.
const WITHOUT_SPEC: &str = "apiVersion: copy.mortise.dev/v1\nkind: SecretCopy\nmetadata: {name: registry, namespace: platform}\n";

const SECRET: &str =
    "apiVersion: v1\nkind: Secret\nmetadata: {name: registry, namespace: platform}\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Runs `mortise` with the compiled code that all tests share.
fn mortise(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mortise-tested"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    command.env("MORTISE_CACHE", mortise_tests::code_cache()).output().unwrap()
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).join("")
}

/// Returns the languages whose tools are there.
fn languages() -> impl Iterator<Item = Language> {
    Language::ALL.into_iter().filter(|language| language.is_there())
}

#[tokio::test]
async fn the_cases_of_secret_copy_end_the_same_in_three_languages() {
    for language in languages() {
        assert!(both::<secret_copy::SecretCopies>(language.secret_copy()).await >= 5);
    }
}

/// Simulates a guest on objects, and returns what it prints: the reconcile fails.
async fn failed(guest: &str, objects: &str) -> String {
    // The program finds the compiled code.
    drop(component(guest).await);
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    fs::write(file.path(), objects).unwrap();
    let module = mortise_tests::guest(guest).unwrap();
    let (module, objects) = (module.to_str().unwrap(), file.path().to_str().unwrap());
    let output = mortise(&["simulate", "--module", module, "--objects", objects], &root());
    assert_eq!(output.status.code(), Some(3), "{guest}: {}", said(&output));
    said(&output)
}

#[tokio::test]
async fn an_exception_fails_the_run_with_its_message_and_its_line() {
    for language in languages() {
        let (source, statement, message) = match language {
            Language::Python => {
                ("src/secret_copy.py", "copy[\"spec\"][\"secret\"]", "KeyError: 'spec'")
            }
            Language::TypeScript => (
                "src/index.ts",
                "copy.spec.secret;",
                "TypeError: can't access property \"secret\", copy.spec is undefined",
            ),
        };
        let folder = root().join(language.secret_copy());
        let text = fs::read_to_string(folder.join(source)).unwrap();
        let line = text.lines().position(|line| line.contains(statement)).unwrap() + 1;
        let expected = format!(
            "SecretCopy copy.mortise.dev/v1 platform/registry: {message} ({source}:{line}, in reconcile)"
        );
        let said = failed(language.secret_copy(), WITHOUT_SPEC).await;
        assert!(said.contains(&expected), "{expected}\n{said}");
    }
}

#[tokio::test]
async fn a_read_without_an_answer_is_told_the_same_in_three_languages() {
    let objects =
        format!("{WITHOUT_SPEC}spec: {{secret: registry, namespaces: \"a in (\"}}\n---\n{SECRET}");
    let expected = failed("guests/secret-copy", &objects).await;
    assert!(expected.contains("reading a list of Namespace v1 is not a valid query"), "{expected}");
    for language in languages() {
        assert_eq!(failed(language.secret_copy(), &objects).await, expected, "{language:?}");
    }
}

/// Makes a guest in a folder, and returns the guest's folder.
fn made(folder: &Path, language: Language, name: &str, kind: &str) -> PathBuf {
    let word = language.word();
    let made = mortise(&["new", name, "--kind", kind, "--language", word], folder);
    assert!(made.status.success(), "{}", said(&made));
    folder.join(name)
}

#[test]
fn a_new_guest_in_each_language_passes_its_cases() {
    for language in languages() {
        let folder = tempfile::tempdir().unwrap();
        let name = "greeter";
        let greeter = made(folder.path(), language, name, "example.com/v1/Status");
        let tested = mortise(&["test", name], folder.path());
        assert!(tested.status.success(), "{language:?}: {}", said(&tested));
        assert!(said(&tested).contains("1 passed, 0 failed"), "{language:?}: {}", said(&tested));

        // Only built: the rest of it is the same. Tools that can be moved are installed once.
        let keeper = made(folder.path(), language, "keeper", "v1/ConfigMap");
        let tools = greeter.join("node_modules");
        if tools.is_dir() {
            fs::rename(tools, keeper.join("node_modules")).unwrap();
        }
        Guest::open(&keeper).unwrap().build().unwrap();
    }
}

/// The files of a case, by their paths in it.
type Case = &'static [(&'static str, &'static str)];

/// A case for the programs of the guide that call something outside.
const OUTSIDE: Case = &[
    (
        "objects.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: prices, namespace: shop, uid: '1', labels: {item: 'yes'}}\n\
         data: {tea: '2'}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: items, namespace: shop}\n\
         data: {token: c2VjcmV0}\n",
    ),
    (
        "calls.yaml",
        "calls: []\n---\ncalls:\n\
         - {method: GET, url: 'https://api.example.com/v1/items?tag=1', token: secret, answer: {status: 200, body: []}}\n\
         - {method: POST, url: 'https://api.example.com/v1/items', token: secret, body: {tag: '1', values: {tea: '2'}}, answer: {status: 201, body: {id: '7'}}}\n\
         ---\n\
         calls:\n\
         - {method: DELETE, url: 'https://api.example.com/v1/items/7', token: secret, answer: {status: 404}}\n",
    ),
    ("case.yaml", "steps:\n- after: 1s\n- delete: [ConfigMap/shop/prices]\n"),
    (
        "expected.yaml",
        "objects:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: prices, namespace: shop, finalizers: [example.com/item]}\n\
         requeues: {ConfigMap/shop/prices: 1ms}\n---\nrequeues: {ConfigMap/shop/prices: null}\n\
         ---\ngone: [ConfigMap/shop/prices]\n",
    ),
];

/// A case for the programs of the guide that copy objects of kinds on demand to another cluster.
const ELSEWHERE: Case = &[
    (
        "objects.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: services, namespace: shop, labels: {kinds: 'yes'}}\n\
         data: {apiVersion: v1, kind: Service}\n---\napiVersion: v1\nkind: Service\n\
         metadata: {name: web, namespace: shop}\nspec: {type: LoadBalancer, ports: [{port: 80}]}\n\
         status: {conditions: [{type: Old, status: 'True', reason: Old, message: '', lastTransitionTime: '2026-01-01T00:00:00Z'}]}\n",
    ),
    (
        "clusters/provider/objects.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n\
         spec: {type: LoadBalancer, ports: [{port: 80}]}\n\
         status: {loadBalancer: {ingress: [{ip: 10.0.0.1}]}}\n",
    ),
    (
        "case.yaml",
        "clusters: {provider: {name: shop/provider/kubeconfig}}\nsteps:\n\
         - delete: [ConfigMap/shop/services]\n\
         - patch: [{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {ports: [{port: 82}]}}]\n",
    ),
    (
        "expected.yaml",
        "objects:\n- apiVersion: v1\n  kind: Service\n  metadata: {name: web, namespace: shop}\n\
         \x20 status: {conditions: null, loadBalancer: {ingress: [{ip: 10.0.0.1, ipMode: VIP}]}}\n\
         clusters:\n  provider:\n    objects:\n    - apiVersion: v1\n      kind: Service\n\
         \x20     metadata: {name: web, namespace: shop, labels: {copied: 'yes'}}\n\
         ---\nclusters: {provider: {gone: [Service/shop/web]}}\n---\n{}\n",
    ),
];

/// Returns the program in a language of a section of the guide.
fn program_of_guide(section: &str, language: &str) -> String {
    let guide = fs::read_to_string(root().join("guests/README.md")).unwrap();
    let (_, text) = guide.split_once(&format!("### {section}\n")).unwrap();
    let (_, text) = text.split_once(&format!("\n```{language}\n")).unwrap();
    let program = text.split_once("\n```\n").unwrap().0.to_owned();
    // Lines that begin with `# ` are run in Rust, and not shown.
    assert!(program.lines().filter(|line| !line.starts_with("# ")).count() < 80, "{language}");
    program
}

#[test]
fn the_programs_of_the_guide_call_outside_and_use_another_cluster_in_each_language() {
    let sections = [("Call something outside", OUTSIDE), ("On-demand reconcilers", ELSEWHERE)];
    for (section, _) in sections {
        // Those in Rust run as doc tests of the SDK.
        program_of_guide(section, "rust");
    }
    for language in languages() {
        let (folder, word) = (tempfile::tempdir().unwrap(), language.word());
        // The tools are installed once.
        let guest = made(folder.path(), language, "guest", "v1/ConfigMap");
        let source = match language {
            Language::Python => "src/app.py",
            Language::TypeScript => "src/index.ts",
        };
        assert!(guest.join(source).is_file());
        for (section, case) in sections {
            fs::write(guest.join(source), program_of_guide(section, word)).unwrap();
            fs::remove_dir_all(guest.join("cases")).unwrap();
            for (name, text) in case {
                let file = guest.join("cases/one").join(name);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
            let tested = mortise(&["test", "guest"], folder.path());
            let told = said(&tested);
            assert!(tested.status.success(), "{section}, {word}: {told}");
            assert!(told.contains("1 passed, 0 failed"), "{section}, {word}: {told}");
        }
    }
}

#[test]
fn derived_names_are_the_same_in_three_languages() {
    let long = "x".repeat(80);
    let dotted = format!("{}.{}", "x".repeat(56), "y".repeat(40));
    let accents = "\u{e9}".repeat(40);
    let cases: [&[&str]; 7] = [
        &["httpbin", "default", "VirtualService"],
        &["registry", "platform"],
        &["a"],
        &["a", "", "bc"],
        &[&long, "b"],
        &[&dotted],
        &[&accents, "\u{1f980}"],
    ];
    let expected = cases.map(|case| derived_name(case[0], &case[1..]));
    let given = serde_json::to_string(&cases).unwrap();
    for language in languages() {
        let (program, code) = match language {
            Language::Python => (
                "python3",
                "import json, sys\nsys.path.insert(0, '../sdk-python/mortise_sdk')\nsys.dont_write_bytecode = True\n\
                 from names import derived_name\nprint(json.dumps([derived_name(*case) for case in json.loads(sys.argv[1])]))",
            ),
            Language::TypeScript => (
                "node",
                "const { buildSync } = require('esbuild');\n\
                 const built = buildSync({ entryPoints: ['../sdk-typescript/src/names.ts'], write: false, format: 'cjs' });\n\
                 const loaded = { exports: {} };\nnew Function('module', built.outputFiles[0].text)(loaded);\n\
                 const names = JSON.parse(process.argv[1]).map((given) => loaded.exports.derivedName(...given));\n\
                 console.log(JSON.stringify(names));",
            ),
        };
        let flag = if language == Language::Python { "-c" } else { "-e" };
        let mut command = Command::new(program);
        command.args([flag, code, &given]).current_dir(root().join(language.secret_copy()));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        let names: Vec<String> = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(names, expected, "{language:?}");
    }
}
