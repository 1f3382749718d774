//! Modules that are not loaded, and the error messages.

use mortise_host::wasm::{
    Content, Digest, Engine, Error, LibraryModule, Limits, LoadError, Module, Options, Processor,
};

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
    let mut module = bytes("tests/guests/idle").await;
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

/// Returns a component that makes core instances with large contexts before its code runs.
fn contexts() -> Vec<u8> {
    let globals = "(global i32 (i32.const 0))".repeat(70_000);
    let instances = "(core instance (instantiate $m))".repeat(2);
    component(&format!("(component (core module $m {globals}) {instances})"))
}

#[tokio::test]
async fn a_module_that_takes_much_beside_its_memory_is_not_loaded() {
    let mut large = contexts();
    large.push(0);
    large.extend(leb128(9 << 20));
    large.resize(large.len() + (9 << 20), 0);
    let module = Module {
        name: "lib.wasm".to_owned(),
        content: contexts().into(),
        limits: Limits::default(),
    };
    let library = LibraryModule { interface: "a:b/c".to_owned(), module: module.clone() };
    let user = Module { name: "some.wasm".to_owned(), ..module };
    let as_library = Processor::load_with(engine(), None, user, vec![library]).await.unwrap_err();
    for error in [load(contexts()).await.unwrap_err(), load(large).await.unwrap_err(), as_library] {
        assert!(matches!(error, LoadError::TooLarge { .. }), "{error}");
        let message = error.to_string();
        let expected =
            "bytes of contexts and tables in an instance or more, at most 8388608 are accepted";
        assert!(message.contains(expected), "{message}");
    }
}

#[tokio::test]
async fn a_call_is_charged_for_its_instance_beside_the_linear_memory() {
    let called = super::call(&misbehave().await, "good").await;
    assert_ne!(called.memory % (64 << 10), 0, "{} bytes are not only pages", called.memory);
    let limits = Limits { memory: 16 << 10, ..Limits::default() };
    let called = super::call(&super::processor("misbehave", limits).await, "good").await;
    let Error::OutOfMemory { asked, .. } = super::error(called) else {
        panic!("a call without memory")
    };
    assert!(asked < 64 << 10, "{asked} bytes: no page was asked for");
}

#[tokio::test]
async fn loaded_modules_take_of_the_memory_of_their_namespace() {
    let options = Options { call_memory: Some(2 << 20), ..Options::default() };
    let engine = Engine::new(options).unwrap();
    let content = Content::from(bytes("tests/guests/misbehave").await);
    let load = |tenant: &'static str| {
        let module =
            Module { name: tenant.to_owned(), content: content.clone(), limits: Limits::default() };
        Processor::load_with(&engine, Some(tenant), module, Vec::new())
    };
    let mut loaded = Vec::new();
    let error = loop {
        match load("a").await {
            Ok(processor) => loaded.push(processor),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, LoadError::OutOfMemory { limit, .. } if limit == 2 << 20), "{error}");
    assert!(error.to_string().contains("--call-memory-mib"), "{error}");
    load("b").await.unwrap();
    loaded.pop();
    load("a").await.unwrap();
}

async fn bytes(guest: &'static str) -> Vec<u8> {
    let path = tokio::task::spawn_blocking(move || mortise_tests::guest(guest)).await.unwrap();
    std::fs::read(path.unwrap()).unwrap()
}
