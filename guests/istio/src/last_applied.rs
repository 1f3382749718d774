//! The annotation that holds the last applied configuration.

use serde::{Deserialize, Serialize};

use crate::{
    api::{Istio, IstioSpec, null_is_default},
    json,
};

/// The key of the annotation.
pub const ANNOTATION: &str = "operator.kyma-project.io/lastAppliedConfiguration";

/// The last applied configuration: a spec, and the tag of the Istio that was installed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LastApplied {
    /// The spec, or the parts of it that took effect.
    #[serde(flatten)]
    pub spec: IstioSpec,
    /// The tag of the Istio that was installed.
    #[serde(rename = "IstioTag", deserialize_with = "null_is_default")]
    pub tag: String,
}

/// A part of the configuration that has taken effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect<'a> {
    /// All of it, with Istio of this tag.
    All(&'a str),
    /// The installation of Istio of this tag.
    Installed(&'a str),
    /// The settings for which the ingress gateway is restarted.
    Gateway,
    /// The settings for which sidecars are restarted.
    Proxies,
}

impl LastApplied {
    /// Reads the annotation of a resource; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Fails if the annotation is no such configuration, with Go's message if it is no JSON.
    pub fn read(istio: &Istio) -> Result<Option<Self>, String> {
        let Some(text) = istio.metadata.annotations.get(ANNOTATION) else { return Ok(None) };
        let read: Option<Self> = json::parse(text)?;
        Ok(Some(read.unwrap_or_default()))
    }

    /// Returns the text of the annotation once a part of the resource's spec has taken effect.
    ///
    /// # Errors
    ///
    /// Fails if a part is to be changed in an annotation that cannot be read.
    pub fn after(istio: &Istio, effect: Effect) -> Result<String, String> {
        let spec = &istio.spec;
        let applied = match effect {
            Effect::All(tag) => Self { spec: spec.clone(), tag: tag.to_owned() },
            part => Self::read(istio)?.unwrap_or_default().with(spec, part),
        };
        json::write(&applied).map_err(|error| error.to_string())
    }

    fn with(mut self, spec: &IstioSpec, effect: Effect) -> Self {
        let (config, new) = (&mut self.spec.config, &spec.config);
        match effect {
            Effect::All(tag) | Effect::Installed(tag) => tag.clone_into(&mut self.tag),
            Effect::Gateway => {
                config.num_trusted_proxies = new.num_trusted_proxies;
                config.forward_client_cert_details.clone_from(&new.forward_client_cert_details);
                config.trust_domain.clone_from(&new.trust_domain);
            }
            Effect::Proxies => {
                config.enable_dns_proxying = new.enable_dns_proxying;
                config.proxy_stats_matcher.clone_from(&new.proxy_stats_matcher);
                self.spec.compatibility_mode = spec.compatibility_mode;
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn istio(annotation: Option<&str>, spec: serde_json::Value) -> Istio {
        let annotations = annotation.map(|text| json!({ANNOTATION: text})).unwrap_or(json!({}));
        let mut istio = json!({"metadata": {"annotations": annotations}});
        istio["spec"] = spec;
        serde_json::from_value(istio).unwrap()
    }

    #[test]
    fn unknown_keys_are_dropped_by_every_writer() {
        let istio = istio(
            Some(r#"{"later":1,"config":{"later":2,"trustDomain":"x"},"IstioTag":"1.0.0"}"#),
            json!({}),
        );
        let cases = [
            (Effect::Installed("2"), r#""trustDomain":"x"},"IstioTag":"2"}"#),
            (Effect::Gateway, r#"}},"IstioTag":"1.0.0"}"#),
            (Effect::Proxies, r#""trustDomain":"x"},"IstioTag":"1.0.0"}"#),
            (Effect::All("2"), r#"}},"IstioTag":"2"}"#),
        ];
        for (effect, end) in cases {
            let text = LastApplied::after(&istio, effect).unwrap();
            assert!(!text.contains("later") && text.ends_with(end), "{effect:?}: {text}");
        }
    }

    #[test]
    fn only_the_writer_of_everything_replaces_an_annotation_that_is_no_json() {
        let istio = istio(Some("{"), json!({}));
        let message = Err("unexpected end of JSON input".to_owned());
        for effect in [Effect::Installed("2"), Effect::Gateway, Effect::Proxies] {
            assert_eq!(LastApplied::after(&istio, effect), message, "{effect:?}");
        }
        let expected = r#"{"config":{"telemetry":{"metrics":{}}},"IstioTag":"2"}"#;
        assert_eq!(LastApplied::after(&istio, Effect::All("2")).as_deref(), Ok(expected));
    }

    #[test]
    fn an_annotation_without_a_tag_has_an_empty_one() {
        for text in ["{}", "null", r#"{"IstioTag":""}"#, r#"{"IstioTag":null}"#] {
            let read = LastApplied::read(&istio(Some(text), json!({})));
            assert_eq!(read, Ok(Some(LastApplied::default())), "{text}");
        }
        assert_eq!(LastApplied::read(&istio(None, json!({}))), Ok(None));
    }

    #[test]
    fn regular_expressions_keep_their_order_and_are_escaped() {
        let istio = istio(
            None,
            json!({"config": {"proxyStatsMatcher": {"inclusionRegexps": ["b<", "a&"]}}}),
        );
        let expected = r#"{"config":{"telemetry":{"metrics":{}},"proxyStatsMatcher":{"inclusionRegexps":["b\u003c","a\u0026"]}},"IstioTag":""}"#;
        assert_eq!(LastApplied::after(&istio, Effect::Proxies).as_deref(), Ok(expected));
    }
}
