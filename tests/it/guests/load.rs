//! Modules that are not loaded, and the error messages.

use mortise_host::wasm::{Digest, Limits, LoadError, Processor};

use super::{engine, misbehave};

async fn load(module: Vec<u8>) -> Result<Processor, LoadError> {
    Processor::load(engine(), "some.wasm", module.into(), Limits::default()).await
}

/// Returns the error chain of a module that is not loaded.
async fn refusal(module: Vec<u8>) -> String {
    format!("{:#}", anyhow::Error::from(load(module).await.unwrap_err()))
}

fn component(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap()
}

#[tokio::test]
async fn a_module_that_is_not_a_component_is_not_loaded() {
    let cases = [
        ("core module", component("(module)"), "`some.wasm` is a core module, not a component"),
        ("text", b"(component)".to_vec(), "`some.wasm` is not WebAssembly"),
        ("nothing", Vec::new(), "`some.wasm` is not WebAssembly: it starts with `nothing`"),
        (
            "cut short",
            b"\0asm\x0d\0\x01\0\x07\x10".to_vec(),
            "is not a component that this host can compile: ",
        ),
    ];
    for (case, module, expected) in cases {
        let message = refusal(module).await;
        assert!(message.contains(expected), "{case}: {message}");
    }
}

#[tokio::test]
async fn another_version_of_the_contract_is_not_loaded() {
    let exports =
        r#"(component (instance $i) (export "mortise:host/reconciliation@0.2.0" (instance $i)))"#;
    let imports = r#"(component
        (import "mortise:host/cluster@0.2.0" (instance))
        (instance $i) (export "mortise:host/reconciliation@0.1.0" (instance $i)))"#;
    for (text, found) in [(exports, "reconciliation@0.2.0"), (imports, "cluster@0.2.0")] {
        let message = refusal(component(text)).await;
        let expected =
            format!("was built for `mortise:host/{found}`; this host accepts `mortise:host@0.1.0`");
        assert!(message.contains(&expected), "{message}");
    }
}

#[tokio::test]
async fn an_import_that_is_not_granted_is_not_loaded() {
    for import in [
        "wasi:http/outgoing-handler@0.2.6",
        "wasi:keyvalue/store@0.2.0-draft",
        "acme:secrets/vault",
    ] {
        let text = format!(
            r#"(component (import "{import}" (instance))
                (instance $i) (export "mortise:host/reconciliation@0.1.0" (instance $i)))"#
        );
        let message = refusal(component(&text)).await;
        let expected =
            format!("imports `{import}`, which is not granted; it may import `mortise:host@0.1.0`");
        assert!(message.contains(&expected), "{message}");
    }
}

#[tokio::test]
async fn a_component_for_something_else_is_not_loaded() {
    let command = r#"(component (instance $i) (export "wasi:cli/run@0.2.6" (instance $i)))"#;
    let message = refusal(component(command)).await;
    assert!(message.contains("is not a processor: it does not export `mortise:host/reconciliation@0.1.0`; it exports `wasi:cli/run@0.2.6`"), "{message}");
    let hollow =
        r#"(component (instance $i) (export "mortise:host/reconciliation@0.1.0" (instance $i)))"#;
    let message = refusal(component(hollow)).await;
    assert!(message.contains("does not fit the contract `mortise:host@0.1.0`: "), "{message}");
    assert!(message.contains("describe"), "{message}");
}

#[tokio::test]
async fn a_processor_is_known_by_the_digest_of_its_module() {
    let path = tokio::task::spawn_blocking(|| mortise_tests::guest("tests/guests/misbehave"));
    let module = std::fs::read(path.await.unwrap().unwrap()).unwrap();
    assert_eq!(misbehave().await.digest(), Digest::of(&module));
}

/// Loads a component of more than 8 MiB: little code, and a large section without meaning.
#[tokio::test]
async fn a_large_module_runs_too() {
    let path = tokio::task::spawn_blocking(|| mortise_tests::guest("tests/guests/idle"));
    let mut module = std::fs::read(path.await.unwrap().unwrap()).unwrap();
    let name = b"\x04more";
    let size = 9 << 20;
    module.push(0);
    module.extend(leb128(name.len() + size));
    module.extend(name);
    module.resize(module.len() + size, 0);
    let processor = load(module).await.unwrap();
    assert_eq!(processor.describe("").await.unwrap().name, "idle");
    let called = super::call(&processor, "good").await;
    assert!(super::outcome(called).apply.is_empty());
}

fn leb128(mut number: usize) -> Vec<u8> {
    let low = |number: usize| u8::try_from(number & 0x7f).unwrap();
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(low(number) | 0x80);
        number >>= 7;
    }
    bytes.push(low(number));
    bytes
}
