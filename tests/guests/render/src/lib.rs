//! A processor that calls Istio's renderer with its configuration, and returns the answer as JSON
//! in place of a status.

use bindings::istio::client::renderer as wit;
use mortise_sdk::{
    Description, Failure, Host, Outcome, Processor, Reconciler, Request, Selection,
    kubernetes::ConfigMap,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

mortise_sdk::library! {
    mod bindings in ["../../../guests/istio-client/wit", "wit"],
        world "example:rendering/render";

    /// Istio's renderer.
    pub trait Rendering, imported as Renderer {
        /// Returns the version of Istio.
        fn version() -> wit::IstioVersion = bindings::istio::client::renderer::version;

        /// Renders an `IstioOperator`.
        fn render(spec: &str, cluster: Option<&wit::Cluster>) -> Result<wit::Rendered, String>
            = bindings::istio::client::renderer::render;
    }
}

/// The arguments of the renderer.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    spec: String,
    cluster: Option<Cluster>,
    /// Returns only the length of the answer.
    brief: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Cluster {
    git_version: String,
    major: String,
    minor: String,
    cilium_config: Option<std::collections::BTreeMap<String, String>>,
    felix_configuration: Option<String>,
}

/// The processor.
pub struct Renders;

impl Processor for Renders {
    type Config = Config;

    fn describe(_: &Config) -> Result<Description, String> {
        let all = Selection::of::<ConfigMap>().labels("render=yes");
        let wit::IstioVersion { release, module } = Renderer::version();
        Ok(Description::new("render", format!("{release}+{module}"))
            .reconciles(Reconciler::new("renders", all)))
    }

    fn reconcile(_: &Request, config: &Config, _: &Host) -> Result<Outcome, Failure> {
        let cluster = config.cluster.as_ref().map(|cluster| wit::Cluster {
            git_version: cluster.git_version.clone(),
            major: cluster.major.clone(),
            minor: cluster.minor.clone(),
            cilium_config: cluster.cilium_config.clone().map(|data| data.into_iter().collect()),
            felix_configuration: cluster.felix_configuration.clone(),
        });
        let answer = match Renderer::render(&config.spec, cluster.as_ref()) {
            Ok(rendered) if config.brief => json!({"bytes": length(&rendered)}),
            Ok(rendered) => json!({"rendered": of(&rendered)}),
            Err(error) => json!({"error": error}),
        };
        Ok(Outcome { status: Some(answer.to_string()), ..Outcome::new() })
    }
}

fn length(rendered: &wit::Rendered) -> usize {
    let manifests = rendered.components.iter().flat_map(|component| &component.manifests);
    rendered.merged.len() + manifests.map(|manifest| manifest.content.len()).sum::<usize>()
}

fn of(rendered: &wit::Rendered) -> Value {
    let manifest = |one: &wit::Manifest| {
        json!({
            "kind": one.kind, "namespace": one.namespace, "name": one.name, "content": one.content,
        })
    };
    let component = |one: &wit::Component| {
        let manifests: Vec<Value> = one.manifests.iter().map(manifest).collect();
        json!({"name": one.name, "manifests": manifests})
    };
    let components: Vec<Value> = rendered.components.iter().map(component).collect();
    json!({"components": components, "merged": rendered.merged, "warnings": rendered.warnings})
}

mortise_sdk::export!(Renders);
