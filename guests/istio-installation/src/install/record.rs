//! The annotation of the last applied configuration, which this processor alone writes.

use istio::{
    api::{Istio, State},
    condition,
    last_applied::{ANNOTATION, Effect, LastApplied},
};
use mortise_sdk::{Manifest, Object as _};
use serde_json::json;

use crate::status::{self, Summary};

/// Returns the annotation to write once Istio is installed, if it differs from the one that is
/// there: all of the resource if nothing is wrong and no processor lags behind, else what has taken
/// effect.
pub(super) fn record(tag: &str, summary: &Summary, istio: &Istio) -> Option<Manifest> {
    let text = if summary.state == State::Ready && status::are_current(istio) {
        LastApplied::after(istio, Effect::All(tag)).ok()?
    } else {
        let mut effects = vec![Effect::Installed(tag)];
        // The original stops before it restarts anything if it cannot write its other objects.
        if summary.reason != condition::RESOURCES_FAILED {
            effects.extend(status::holds(istio, condition::GATEWAY).then_some(Effect::Gateway));
            effects.extend(status::holds(istio, condition::SIDECARS).then_some(Effect::Proxies));
        }
        after_all(istio, &effects).ok()?
    };
    let metadata = &istio.metadata;
    if metadata.annotations.get(ANNOTATION) == Some(&text) {
        return None;
    }
    Some(Manifest::json(&json!({
        "apiVersion": Istio::kind().api_version(),
        "kind": Istio::KIND,
        "metadata": {
            "name": metadata.name,
            "namespace": metadata.namespace,
            "annotations": {ANNOTATION: text},
        },
    })))
}

/// Returns the annotation after several effects.
fn after_all(istio: &Istio, effects: &[Effect]) -> Result<String, String> {
    let mut istio = istio.clone();
    let mut text = String::new();
    for effect in effects {
        text = LastApplied::after(&istio, *effect)?;
        istio.metadata.annotations.insert(ANNOTATION.to_owned(), text.clone());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn istio(annotation: &str, conditions: &Value) -> Istio {
        serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "b", "annotations": {ANNOTATION: annotation}},
            "spec": {"compatibilityMode": true, "config": {"numTrustedProxies": 2}},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    fn text(manifest: &Manifest) -> String {
        let object: Value = serde_json::from_str(&manifest.object).unwrap();
        object["metadata"]["annotations"][ANNOTATION].as_str().unwrap().to_owned()
    }

    #[test]
    fn only_what_has_taken_effect_is_recorded() {
        let gateway = json!([{"type": condition::GATEWAY, "status": "True", "reason": "a"}]);
        let metrics = r#""telemetry":{"metrics":{}}}"#;
        let cases = [
            (json!([]), State::Warning, format!(r#"{{"config":{{{metrics},"IstioTag":"2"}}"#)),
            (
                gateway,
                State::Warning,
                format!(r#"{{"config":{{"numTrustedProxies":2,{metrics},"IstioTag":"2"}}"#),
            ),
            (
                json!([]),
                State::Ready,
                format!(
                    r#"{{"config":{{"numTrustedProxies":2,{metrics},"compatibilityMode":true,"IstioTag":"2"}}"#
                ),
            ),
        ];
        for (conditions, state, expected) in cases {
            let istio = istio(r#"{"IstioTag":"1"}"#, &conditions);
            let summary = Summary { state, ..Summary::processing() };
            let manifest = record("2", &summary, &istio).unwrap();
            assert_eq!(text(&manifest), expected);
        }
    }

    #[test]
    fn an_annotation_that_is_right_is_not_written() {
        let summary = Summary { state: State::Ready, ..Summary::processing() };
        let first = record("2", &summary, &istio("{}", &json!([]))).unwrap();
        assert_eq!(record("2", &summary, &istio(&text(&first), &json!([]))), None);
    }
}
