//! The trial of the conversions of a new version, with the objects that are there.

use mortise::local;
use mortise_host::host::{Drive, NotSwapped};
use serde_json::{Value, json};

use crate::host::{NAMESPACE, Scene, Stage, object, webhooks::hooks_with};

const RULE: &str = "example.com/v1/Rule";

/// Returns a stage where the faithful version of the guest `hooks` works, with Rules of these
/// specs, `rule-0` and so on.
async fn with_rules(specs: &[Value]) -> Stage {
    let scene = Scene::new(vec![hooks_with("{}").await]);
    local::serve_untyped(&scene.api, &scene.loaded[0].description, |_| false);
    for (at, spec) in specs.iter().enumerate() {
        scene.load(&object(RULE, &format!("rule-{at}"), &json!({"spec": spec})));
    }
    let stage = scene.start(Drive::Caller);
    stage.settle().await;
    stage
}

/// Swaps in a version whose conversions misbehave like this. Returns why it is refused.
async fn refusal(stage: &Stage, deed: &str) -> Option<String> {
    let config = json!({"do": deed}).to_string();
    let swapped = stage.host.swap_tried(hooks_with(&config).await).await;
    let refused = swapped.err()?;
    assert!(matches!(refused, NotSwapped::ConversionFailed { .. }), "{refused}");
    Some(refused.to_string())
}

/// Returns whether the version whose hooks are served is the one that keeps notes.
async fn is_former_served(stage: &Stage) -> bool {
    let hooking = stage.host.hooking("default/hooks").unwrap();
    let rule = object(RULE, "asked", &json!({"spec": {"size": 1, "note": "n"}}));
    let (to, ends) = ("example.com/v2", std::time::Instant::now() + super::TIMEOUT);
    let converted = hooking.convert("Rule", to, vec![rule.to_string().into()], ends).await;
    converted.is_ok_and(|objects| objects[0].contains(r#""note":"n""#))
}

#[tokio::test]
async fn a_version_that_loses_or_breaks_any_object_is_refused_and_the_former_one_goes_on() {
    let stage = with_rules(&[json!({"size": 1}), json!({"size": 2, "note": "kept"})]).await;
    let cases = [
        ("forget", "`spec.note` is not as it was"),
        ("refuse", "told to refuse"),
        ("panic", "panicked: told to panic"),
        ("hang", "ran past its limit"),
        ("rename", "metadata.name is another one"),
        ("stay", "wanted are `example.com/v2`"),
        ("grow", "the answer of a hook has"),
        ("swell", "it grows from "),
    ];
    for (deed, expected) in cases {
        let message = refusal(&stage, deed).await.unwrap();
        let object = format!("version 0.1.0 breaks Rule example.com/v1 `{NAMESPACE}/rule-");
        assert!(message.starts_with(&object), "{deed}: {message}");
        assert!(message.contains("on the way to example.com/v2 and back: "), "{deed}: {message}");
        assert!(message.contains(expected), "{deed}, {expected}: {message}");
        assert!(message.len() < 1000, "{deed}: {message}");
        assert!(is_former_served(&stage).await, "{deed}: the former version goes on");
    }
    let message = refusal(&stage, "forget").await.unwrap();
    assert!(message.contains(&format!("`{NAMESPACE}/rule-1`")), "the one with a note: {message}");
}

#[tokio::test]
async fn a_version_that_converts_objects_back_as_they_were_is_put_to_work() {
    let specs: Vec<Value> = (0..250).map(|size| json!({"size": size, "note": "kept"})).collect();
    let stage = with_rules(&specs).await;
    assert_eq!(refusal(&stage, "annotate").await, None, "an annotation that was added is no loss");
    assert_eq!(refusal(&stage, "").await, None);
}

#[tokio::test]
async fn objects_that_the_former_version_breaks_too_keep_no_version_out() {
    let specs = [
        json!({"do": "refuse"}),
        json!({"do": "panic"}),
        json!({"do": "rename"}),
        json!({"do": "hang"}),
        json!({"do": "forget", "note": "lost by both"}),
        json!({"size": 1}),
    ];
    let stage = with_rules(&specs).await;
    assert_eq!(refusal(&stage, "annotate").await, None);
    // They hide nothing, either: all but one are broken by both.
    let message = refusal(&stage, "refuse").await.unwrap();
    assert!(message.contains(&format!("`{NAMESPACE}/rule-5`")), "{message}");
}
