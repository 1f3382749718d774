//! Fuzz targets for the inputs that strangers hand to the host: tests/fuzz runs them, and their
//! seeds run as ordinary tests.
//!
//! The module is built for these alone, so it may see what no other crate does.

mod lines;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use mortise_core::{
    contract::{Description, Kind, ObjectRef, Selection, Verbs, WriteRule},
    grant::Grant,
    labels::LabelSelector,
    outcome::{Against, Limits, Plan, Reconciled},
    path::{Extent, Fields, Path},
    reads,
    resource::{Kinds, Resource},
};
use serde_json::{Value, json};

use crate::{oci, operator};

/// A target: its name, which is also that of the folder with its seeds, and its function.
type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 7] = [
    ("description", description),
    ("outcome", outcome),
    ("path", path),
    ("label_selector", label_selector),
    ("page_token", page_token),
    ("processor_spec", processor_spec),
    ("registry", registry),
];

/// Runs a target.
///
/// # Panics
///
/// Panics if the target finds a fault, or if no target has this name.
pub fn run(name: &str, input: &[u8]) {
    let (_, target) = TARGETS.iter().find(|(target, _)| *target == name).expect("a known target");
    target(input);
}

/// Checks a description, and that it grants what it declares to be written.
fn description(input: &[u8]) {
    let description = lines::description(&String::from_utf8_lossy(input));
    let Ok(grant) = Grant::new(&description) else { return };
    for rule in &description.writes {
        let wanted = ObjectRef {
            kind: rule.of.kind.clone(),
            namespace: rule.of.namespace.clone(),
            name: rule.of.name.clone().unwrap_or_else(|| "a".to_owned()),
        };
        let is_declared = grant.may_write(rule.verbs, &wanted).is_ok();
        assert!(
            is_declared || rule.verbs == Verbs::empty(),
            "what is declared is granted: {wanted:?}"
        );
    }
}

/// Checks an outcome against a grant without Secrets.
fn outcome(input: &[u8]) {
    let outcome = lines::outcome(&String::from_utf8_lossy(input));
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "r", "namespace": "a", "uid": "u"}});
    let kind = |group: &str, kind: &str| Kind::home(group, "v1", kind);
    let reference = ObjectRef {
        kind: kind("", "ConfigMap").into(),
        namespace: Some("a".into()),
        name: "r".into(),
    };
    let reconciled = Reconciled { reference, object: Some(object) };
    let all = [
        kind("", "ConfigMap"),
        kind("", "Pod"),
        kind("apps", "Deployment"),
        kind("apiextensions.k8s.io", "CustomResourceDefinition"),
    ];
    let mut description =
        lines::description("reconciler\tr\t\tv1\tConfigMap\nfinalizer\tx.dev/f\n");
    let mut kinds = Kinds::default();
    for kind in all {
        let of = Selection { kind: kind.clone().into(), ..lines::selection(&mut "".split('\t')) };
        description.writes.push(WriteRule { of, verbs: Verbs::all(), fields: Vec::new() });
        kinds.insert(Arc::new(Resource {
            plural: kind.kind.to_lowercase() + "s",
            status: true,
            namespaced: kind.group != "apiextensions.k8s.io",
            kind,
        }));
    }
    let grant = Grant::new(&description).expect("a well-formed description");
    let by = description.reconcilers.first().expect("a reconciler");
    let against = Against {
        grant: &grant,
        reconciler: by,
        reconciled: &reconciled,
        kinds: &kinds,
        read: &|_| None,
        limits: Limits::default(),
    };
    let Ok(plan) = Plan::build(&outcome, &against) else { return };
    for manifest in plan.apply.iter().chain(&plan.patch) {
        assert!(manifest.to.kind.kind != "Secret", "nobody may write Secrets: {manifest:?}");
        let text = |place: &str| manifest.object.pointer(place).and_then(Value::as_str);
        assert_eq!(text("/metadata/name"), Some(manifest.to.name.as_str()));
        assert_eq!(text("/kind"), Some(manifest.to.kind.kind.as_str()));
    }
}

/// Parses a field path, writes it, and follows it through an object.
fn path(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let Ok(path) = text.parse::<Path>() else { return };
    let again: Path = path.to_string().parse().expect("a written path parses");
    assert_eq!(again, path);
    assert!(path.covers(&path));
    let object: Value = json!({
        "metadata": {"name": "a", "labels": {"app.kubernetes.io/name": "b"}},
        "spec": {"ports": [{"name": "http", "port": 80}, {"name": "x", "port": 81}], "list": [[1], [2]]},
    });
    assert_eq!(path.pointers(&object).len(), path.values(&object).len(), "{path}");
    let fields = Fields::of([path.clone()]);
    assert!(fields.covers(&path));
    let part = fields.project(&object);
    assert_eq!(path.values(&part), path.values(&object), "{path} in {part}");
    assert!(!fields.differ(Some(&object), Some(&part), Extent::Counted), "{path} in {part}");
}

/// Parses a label selector, and matches it.
fn label_selector(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let Ok(selector) = LabelSelector::parse(&text) else { return };
    assert!(selector.covers(&selector), "{text}");
    let labels = json!({"metadata": {"labels": {"app": "a", "tier": "b"}}});
    if selector.is_empty() {
        assert!(selector.matches_object(&labels), "{text}");
    }
    selector.matches_object(&json!({}));
}

/// Reads the input as a page token, and a token that is made of the place which the input names.
fn page_token(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let of = lines::selection(&mut "\tv1\tConfigMap".split('\t'));
    if let Ok((namespace, _)) = reads::read_page_token(&of, &text) {
        assert!(!namespace.contains('\0'), "{text}");
    }
    let Some((namespace, name)) = text.split_once('/') else { return };
    if !namespace.contains('\0') {
        let read = reads::read_page_token(&of, &reads::page_token(&of, namespace, name));
        assert!(read.is_ok_and(|read| read == (namespace.into(), name.into())), "{text}");
    }
}

/// Reads a Processor as the API server may hold it, and what its spec asks for.
fn processor_spec(input: &[u8]) {
    let Ok(Value::Object(parts)) = serde_json::from_slice(input) else { return };
    let mut object = json!({"apiVersion": "mortise.dev/v1alpha1", "kind": "Processor", "metadata": {"name": "p", "namespace": "a"}});
    if let Some(fields) = object.as_object_mut() {
        fields.extend(parts.into_iter().filter(|(name, _)| name == "spec" || name == "status"));
    }
    operator::check_stored(&object.to_string());
}

/// Reads what a registry, or whoever names one, may hand over: references, manifests, credentials,
/// challenges and signatures.
fn registry(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Ok(reference) = text.trim().parse::<oci::Reference>() {
        assert_eq!(reference.to_string().parse(), Ok(reference));
    }
    if let Ok(parts) = oci::artifact::parse(input) {
        assert_eq!(parts.layer.media_type, oci::artifact::LAYER);
    }
    oci::check_answer(&text);
    let key = oci::signature::PublicKey::parse(KEY).expect("the key is valid");
    let (manifest, keys) = (oci::Digest::of(input), [&key]);
    let signatures = [
        oci::signature::Signature::Bundle(text.to_string()),
        oci::signature::Signature::Simple { payload: text.to_string(), signature: String::new() },
    ];
    let verified = oci::signature::verify_manifest(manifest, &signatures, &keys);
    // A text that holds its own digest would be news.
    assert!(verified.by.is_empty(), "it is signed: {text}");
    oci::signature::verify_file(b"\0asm", input, &keys);
}

/// The key of the recorded signatures.
const KEY: &str = include_str!("oci/signature/recorded/cosign.pub");

fn empty() -> Description {
    Description {
        name: "p".into(),
        version: "1".into(),
        reconcilers: Vec::new(),
        reads: Vec::new(),
        writes: Vec::new(),
        grants: Vec::new(),
        outbound: Vec::new(),
        config_schema: None,
    }
}
