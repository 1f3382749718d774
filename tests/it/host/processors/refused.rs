//! Processors that cannot run as specified: a condition says why in one sentence, and nothing else
//! is affected.

use mortise_core::grant::rights::Account;
use serde_json::json;

use super::*;

const MISBEHAVE: &str = "tests/guests/misbehave";

/// A faulty Processor: its name, its spec, the condition's reason and a part of its message.
struct Case {
    name: &'static str,
    spec: Value,
    reason: &'static str,
    says: &'static str,
}

fn case(name: &'static str, spec: Value, reason: &'static str, says: &'static str) -> Case {
    Case { name, spec, reason, says }
}

impl Place {
    /// Applies all cases beside a valid Processor, and checks the condition of each.
    async fn refuses(&self, cases: Vec<Case>) {
        for case in &cases {
            let mut spec =
                json!({"module": {"path": "puppet.wasm"}, "serviceAccountName": "puppet"});
            // The module is replaced as a whole: a path beside an image would be a second source.
            spec.as_object_mut().unwrap().extend(case.spec.as_object().unwrap().clone());
            let object =
                object("mortise.dev/v1alpha1/Processor", case.name, &json!({"spec": spec}));
            self.apply(&[object]).await;
        }
        self.puppet("well", &puppet(), &json!({})).await;
        for case in &cases {
            let (status, message) = self.reason(case.name, "Loaded", case.reason).await;
            assert_eq!(status, "False", "{}", case.name);
            assert!(message.contains(case.says), "{}: {message}", case.name);
            let (status, message) = self.reason(case.name, "Ready", case.reason).await;
            assert_eq!(status, "False", "{}", case.name);
            assert!(message.starts_with("nothing runs: "), "{}: {message}", case.name);
        }
        self.reason("well", "Ready", "Runs").await;
        self.apply(&[scripted("a", &applies(&[made("b", &json!({}))]))]).await;
        self.until_object(CONFIG_MAP, "b", "nothing else stops", |found| found.is_some()).await;
        assert_eq!(self.host.status().len(), 1, "only the one that is well runs");
    }

    /// Waits until a condition of a Processor that does not fit its Rust type has this reason and
    /// message.
    async fn raw_reason(&self, name: &str, kind: &str, reason: &str, says: &str) {
        let is_it = |condition: &Value| {
            condition["type"] == kind
                && condition["reason"] == reason
                && condition["message"].as_str().is_some_and(|message| message.contains(says))
        };
        let holds = |found: Option<&Value>| {
            let conditions = found.and_then(|found| found["status"]["conditions"].as_array());
            conditions.is_some_and(|conditions| conditions.iter().any(is_it))
        };
        self.until_object("mortise.dev/v1alpha1/Processor", name, says, holds).await;
    }

    fn file(&self, name: &str, bytes: &[u8]) {
        fs::write(self.modules.path().join(name), bytes).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_module_that_cannot_be_loaded_is_named() {
    let place = Place::new().await;
    let wat = |text: &str| wat::parse_str(text).unwrap();
    place.file("text.wasm", b"#!/bin/sh");
    place.file("core.wasm", &wat("(module)"));
    place.file("other.wasm", &wat(r#"(component (instance $i) (export "mortise:host/reconciliation@0.2.0" (instance $i)))"#));
    place.file(
        "command.wasm",
        &wat(r#"(component (instance $i) (export "wasi:cli/run@0.2.6" (instance $i)))"#),
    );
    place.file(
        "http.wasm",
        &wat(r#"(component (import "wasi:http/outgoing-handler@0.2.6" (instance))
        (instance $i) (export "mortise:host/reconciliation@0.1.0" (instance $i)))"#),
    );
    fs::File::create(place.modules.path().join("large.wasm")).unwrap().set_len(65 << 20).unwrap();
    let path = |path: &str| json!({"module": {"path": path}});
    let cases = vec![
        case(
            "missing",
            path("none.wasm"),
            "ModuleNotFound",
            "there is no module `none.wasm` in the folder of modules; it holds: ",
        ),
        case(
            "text",
            path("text.wasm"),
            "ModuleInvalid",
            "`text.wasm` is not WebAssembly: it starts with `#!/bin/s`; a component",
        ),
        case(
            "core",
            path("core.wasm"),
            "ModuleInvalid",
            "`core.wasm` is a core module, not a component; build it for the target wasm32-wasip2",
        ),
        case(
            "other",
            path("/modules/other.wasm"),
            "ModuleOtherVersion",
            "was built for `mortise:host/reconciliation@0.2.0`; this host accepts `mortise:host@0.1.0`",
        ),
        case(
            "command",
            path("command.wasm"),
            "ModuleInvalid",
            "is not a processor: it does not export `mortise:host/reconciliation@0.1.0`",
        ),
        case(
            "http",
            path("http.wasm"),
            "ImportsNotGranted",
            "imports `wasi:http/outgoing-handler@0.2.6`, which is not granted; it may import ",
        ),
        case(
            "large",
            path("large.wasm"),
            "ModuleTooLarge",
            "`large.wasm` has 65 MiB or more; modules of up to 64 MiB are accepted",
        ),
    ];
    place.refuses(cases).await;
}

#[tokio::test(start_paused = true)]
async fn invalid_and_unsupported_spec_fields_are_refused_by_name() {
    let place = Place::new().await;
    let cases = vec![
        case(
            "no-tag",
            json!({"module": {"image": "registry.example.com/a"}}),
            "ImageInvalid",
            "spec.module.image: `registry.example.com/a` names neither a tag nor a digest; HOST/REPOSITORY:TAG",
        ),
        case(
            "no-digest",
            json!({"module": {"image": "registry.example.com/a@sha256:12"}}),
            "ImageInvalid",
            "`registry.example.com/a@sha256:12` has a digest that is none",
        ),
        case(
            "password",
            json!({"module": {"image": "user:password@registry.example.com/a:1"}}),
            "ImageInvalid",
            "`the reference` holds credentials, which belong into a pull secret",
        ),
        case(
            "key",
            json!({"verification": {"keys": ["secret"]}}),
            "VerificationInvalid",
            "spec.verification.keys[0]: it holds no public key; a public key of ECDSA on P-256",
        ),
        case(
            "egress",
            json!({"egress": [{"origin": "https://a.example.com"}]}),
            "EgressInvalid",
            "spec.egress[0].origin: this host does not allow `https://a.example.com`; --egress allows none",
        ),
        case(
            "memory",
            json!({"limits": {"memory": "5Gi"}}),
            "LimitsInvalid",
            "spec.limits.memory is `5Gi`; 1Mi to 4Gi is accepted",
        ),
        case(
            "deadline",
            json!({"limits": {"deadline": "11m"}}),
            "LimitsInvalid",
            "spec.limits.deadline is `11m`; 1ms to 10m is accepted",
        ),
    ];
    place.refuses(cases).await;
}

#[tokio::test(start_paused = true)]
async fn a_spec_without_the_egress_that_is_declared_runs_and_says_so() {
    let place = Place::new().await;
    place.puppet("caller", &puppet().calls("https://a.example.com"), &json!({})).await;
    let (status, message) = place.reason("caller", "Limited", "EgressNotGranted").await;
    assert_eq!(status, "True");
    let expected = "calls to `https://a.example.com`, which are denied: spec.egress grants none";
    assert!(message.contains(expected), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_spec_with_egress_that_is_not_declared_runs_and_names_field_and_origin() {
    let mut place = Place::new().await;
    place.options.outbound.origins = ["https://*.example.com".parse().unwrap()].into();
    place.restart().await;
    let origins = ["https://a.example.com", "https://b.example.com"];
    let egress = json!({"egress": origins.map(|origin| json!({"origin": origin}))});
    place.puppet("caller", &puppet().calls(origins[0]), &egress).await;
    let told = place.reason("caller", "Limited", "EgressNotDeclared").await;
    let expected = "spec.egress[1].origin: the processor does not declare calls to `https://b.example.com`; it declares `https://a.example.com`";
    assert_eq!(told, ("True".to_owned(), expected.to_owned()));
    assert_eq!(place.reason("caller", "Ready", "Runs").await.0, "True");
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_the_processor_cannot_take_is_refused() {
    let place = Place::new().await;
    place.put("misbehave.wasm", MISBEHAVE);
    let of = |config: Value| json!({"module": {"path": "misbehave.wasm"}, "config": config, "limits": {"deadline": "200ms"}});
    let cases = vec![
        case(
            "type",
            of(json!({"hang": "yes"})),
            "ConfigInvalid",
            "spec.config breaks the schema that the processor declares: `spec.config.hang`: \"yes\" is not of type \"boolean\"",
        ),
        case("unknown", of(json!({"hangs": true})), "ConfigInvalid", "('hangs' was unexpected)"),
        case(
            "refused",
            of(json!({"refuse": true})),
            "ConfigInvalid",
            "the processor does not accept spec.config: `refuse` must be false",
        ),
        case(
            "panics",
            of(json!({"panic": true})),
            "DescribeFailed",
            "panicked: told to panic in describe",
        ),
        case("hangs", of(json!({"hang": true})), "DescribeFailed", "ran past its limit of 200ms"),
    ];
    place.refuses(cases).await;
}

#[tokio::test(start_paused = true)]
async fn an_account_that_does_not_let_itself_be_acted_as_is_refused() {
    let mut place = Place::new().await;
    place.account("silent", &json!({})).await;
    place.account("others", &json!({"labels": {"mortise.dev/processor": "another"}})).await;
    place.account("host", &json!({"annotations": {"mortise.dev/processor": "*"}})).await;
    // From here on the host acts as a `ServiceAccount`.
    place.me = Some(Account { namespace: NAMESPACE.into(), name: "host".into() });
    place.restart().await;
    let account = |name: &str| json!({"serviceAccountName": name});
    let cases = vec![
        case(
            "missing",
            account("none"),
            "AccountNotFound",
            "there is no ServiceAccount `none` in the namespace `a`: make it, with the label mortise.dev/processor: missing",
        ),
        case(
            "silent",
            account("silent"),
            "AccountDoesNotConsent",
            "the ServiceAccount `silent` does not consent: give it the label mortise.dev/processor: silent",
        ),
        case("others", account("others"), "AccountDoesNotConsent", "`others` does not consent"),
        case(
            "own",
            account("host"),
            "AccountIsHosts",
            "the ServiceAccount `host` is the host's own",
        ),
    ];
    place.refuses(cases).await;
}

#[tokio::test(start_paused = true)]
async fn withdrawn_consent_stops_a_processor_and_new_consent_starts_it() {
    let place = Place::new().await;
    place.account("own", &json!({"labels": {"mortise.dev/processor": "rules"}})).await;
    place.puppet("rules", &puppet(), &json!({"serviceAccountName": "own"})).await;
    place.reason("rules", "Ready", "Runs").await;
    let label = async |value: Value| {
        let labels = json!({"metadata": {"labels": {"mortise.dev/processor": value}}});
        place.change("v1/ServiceAccount", "own", labels).await;
    };
    label(Value::Null).await;
    assert_eq!(place.reason("rules", "Ready", "AccountDoesNotConsent").await.0, "False");
    assert!(place.host.status().is_empty());
    label(json!("rules")).await;
    place.reason("rules", "Ready", "Runs").await;
    place.objects("v1/ServiceAccount").await.delete("own", &DeleteParams::default()).await.unwrap();
    place.reason("rules", "Ready", "AccountNotFound").await;
    assert!(place.host.status().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_former_version_runs_on_if_the_new_account_does_not_consent() {
    let place = Place::new().await;
    place.account("silent", &json!({})).await;
    place.puppet("rules", &puppet(), &json!({})).await;
    place.reason("rules", "Ready", "Runs").await;
    place.edit("rules", json!({"serviceAccountName": "silent"})).await;
    place.reason("rules", "Loaded", "AccountDoesNotConsent").await;
    assert_eq!(place.reason("rules", "Ready", "FormerVersion").await.0, "True");
    assert_eq!(place.host.status().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_kind_without_a_definition_is_named_comes_and_goes() {
    let place = Place::new().await;
    let of_widgets =
        |name: &str| Play::new(name).reconciles("widgets", &selection("x.dev/v1/Widget", ""));
    place.puppet("rules", &of_widgets("rules"), &json!({})).await;
    for _ in 0..2 {
        let (status, message) = place.reason("rules", "Ready", "KindNotServed").await;
        assert_eq!(status, "False");
        assert_eq!(message, "waits for the CustomResourceDefinition of Widget x.dev/v1");
        place.apply(&[widgets()]).await;
        place.apply(&[object("x.dev/v1/Widget", "w", &json!({}))]).await;
        place.reason("rules", "Ready", "Runs").await;
        place
            .until("rules", "it is reconciled", |processor| {
                let counts = processor.status.as_ref().and_then(|status| status.counts.clone());
                counts.is_some_and(|counts| counts.objects == 1)
            })
            .await;
        let definitions: Api<DynamicObject> = {
            let kind = super::super::kind("apiextensions.k8s.io/v1/CustomResourceDefinition");
            let resource = place.cluster.resolve(&kind).await.unwrap().unwrap();
            Api::all_with(
                place.cluster.client().clone(),
                &mortise_host::cluster::api_resource(&resource),
            )
        };
        definitions.delete("widgets.x.dev", &DeleteParams::default()).await.unwrap();
    }
    place.reason("rules", "Ready", "KindNotServed").await;
}

pub(super) fn widgets() -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.x.dev"},
        "spec": {
            "group": "x.dev", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

#[tokio::test(start_paused = true)]
async fn a_processor_of_another_definition_of_the_kind_is_told_which_field_is_wrong() {
    let place = Place::new().await;
    place.puppet("was-well", &puppet(), &json!({})).await;
    place.reason("was-well", "Ready", "Runs").await;
    // The definition of another release, with a spec without a schema.
    let mut other = definition::processors();
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    *other.pointer_mut(spec).unwrap() =
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    place.apply(&[other]).await;
    let spec = |wrong: &Value| {
        let mut spec = json!({"module": {"path": "puppet.wasm"}, "serviceAccountName": "puppet"});
        spec.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
        json!({"spec": spec})
    };
    let cases = [
        (
            "a-text",
            json!({"suspend": "yes"}),
            "`spec.suspend`: invalid type: string \"yes\", expected a boolean",
        ),
        (
            "a-number",
            json!({"limits": {"concurrency": -1}}),
            "`spec.limits`: invalid value: integer `-1`",
        ),
        (
            "no-object",
            json!({"module": "puppet.wasm"}),
            "`spec.module`: invalid type: string \"puppet.wasm\", expected struct Module",
        ),
    ];
    for (name, wrong, _) in &cases {
        let processor = object("mortise.dev/v1alpha1/Processor", name, &spec(wrong));
        place.apply(&[processor]).await;
    }
    for (name, _, says) in &cases {
        place.raw_reason(name, "Loaded", "SpecInvalid", says).await;
        place.raw_reason(name, "Ready", "SpecInvalid", "nothing runs: ").await;
    }
    // A running Processor keeps its version, and a condition says so.
    place
        .change("mortise.dev/v1alpha1/Processor", "was-well", json!({"spec": {"suspend": "yes"}}))
        .await;
    place
        .raw_reason("was-well", "Loaded", "SpecInvalid", "the former version 1.0.0 keeps running")
        .await;
    assert_eq!(place.host.status().len(), 1);
}
