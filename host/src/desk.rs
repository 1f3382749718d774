//! What `dev` and `simulate` share: a processor from a file, objects in an order that works, kinds without a CRD.

use std::{io::Write as _, os::unix::fs::DirBuilderExt as _, path::Path};

use anyhow::Context as _;
use cap_std::{ambient_authority, fs::Dir};
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use mortise_embedded_api::EmbeddedApi;
use serde_json::Value;

use crate::{
    cluster::Cluster,
    contract::{Description, Kind},
    files, print,
    processor::{self, Engine, Limits, Processor},
    run::Loaded,
};

/// The manager under which example objects are applied: kubectl's own, so that `kubectl apply --server-side` of a changed
/// example meets no conflict.
const MANAGER: &str = "kubectl";

/// The namespace that stands in the field managers where there is no Processor resource.
const NAMESPACE: &str = "default";

/// A processor's configuration as JSON text; an empty object where there is no file.
///
/// # Errors
///
/// A file that cannot be read or parsed.
pub fn config(path: Option<&Path>) -> Result<String, files::Error> {
    Ok(path
        .map(files::load_value)
        .transpose()?
        .unwrap_or_else(|| serde_json::json!({}))
        .to_string())
}

/// Loads a component and asks it for its description.
///
/// # Errors
///
/// A file that cannot be read, a component that does not load, a configuration that it refuses.
pub async fn load(module: &Path, config: String, cache: Option<&Path>) -> anyhow::Result<Loaded> {
    let bytes = std::fs::read(module)
        .with_context(|| format!("cannot read the module `{}`", module.display()))?;
    let cache = cache.map(open_cache).transpose()?;
    let engine = Engine::new(processor::Options { cache })
        .context("cannot set up the WebAssembly engine")?;
    let name = module.display().to_string();
    let processor = Processor::load(&engine, &name, bytes.into(), Limits::default()).await?;
    Loaded::describe(processor, &config, NAMESPACE).await
}

/// The folder of compiled modules, made if it is not there. Only its owner may write to it: what is in it is run.
fn open_cache(folder: &Path) -> anyhow::Result<Dir> {
    let cannot =
        || format!("cannot open the cache `{}`: name another with --cache", folder.display());
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(cannot)?;
    Dir::open_ambient_dir(folder, ambient_authority()).with_context(cannot)
}

/// Where an object stands in an order that works: namespaces, then CRDs, then the others.
pub fn rank(object: &Value) -> u8 {
    match object.get("kind").and_then(Value::as_str) {
        Some("Namespace") => 0,
        Some("CustomResourceDefinition") => 1,
        _ => 2,
    }
}

/// Applies objects: namespaces and CRDs first, then the others as they come.
///
/// # Errors
///
/// The first object that is refused, by name.
pub async fn apply(cluster: &Cluster, mut objects: Vec<Value>) -> anyhow::Result<()> {
    objects.sort_by_key(rank);
    for object in objects {
        let title = print::title(&object);
        apply_one(cluster, object).await.with_context(|| format!("cannot apply {title}"))?;
    }
    Ok(())
}

async fn apply_one(cluster: &Cluster, object: Value) -> anyhow::Result<()> {
    let kind = kind_of(&object);
    let Some(resource) = cluster.resolve(&kind).await? else {
        anyhow::bail!("no CRD serves the kind {} of {}/{}", kind.kind, kind.group, kind.version);
    };
    let object: DynamicObject =
        serde_json::from_value(object).context("its metadata is not of the known shape")?;
    let client = cluster.client().clone();
    let api: Api<DynamicObject> = if resource.namespaced {
        let namespace = object.metadata.namespace.as_deref().unwrap_or("default");
        Api::namespaced_with(client, namespace, &resource.api_resource())
    } else {
        Api::all_with(client, &resource.api_resource())
    };
    let name = object.metadata.name.clone().context("it has no name")?;
    api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&object)).await?;
    Ok(())
}

/// The kind that an object says it is of.
pub fn kind_of(object: &Value) -> Kind {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("apiVersion").rsplit_once('/').unwrap_or(("", text("apiVersion")));
    Kind { group: group.to_owned(), version: version.to_owned(), kind: text("kind").to_owned() }
}

/// Lets the API serve, without a schema, each declared kind that it does not know; but none of `missing`, given as
/// `plural.group`. Returns those kinds.
pub fn serve_untyped(
    api: &EmbeddedApi,
    description: &Description,
    missing: &[String],
) -> Vec<Kind> {
    let mut untyped: Vec<Kind> = Vec::new();
    for kind in crate::run::declared_kinds(description) {
        let plural = plural(&kind);
        let is_missing = missing.iter().any(|name| *name == format!("{plural}.{}", kind.group));
        if kind.kind == "*"
            || kind.group == "*"
            || is_missing
            || api.serves(&kind.group, &kind.version, &kind.kind)
        {
            continue;
        }
        api.serve_untyped(&kind.group, &kind.version, &kind.kind, &plural, true);
        untyped.push(kind);
    }
    untyped
}

/// The plural that kube derives from a kind.
pub fn plural(kind: &Kind) -> String {
    let kind = kube::core::GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind);
    kube::api::ApiResource::from_gvk(&kind).plural
}

/// Says on standard error that a kind is served without a schema.
pub fn warn_untyped(kind: &Kind) {
    // Where standard error is gone there is nobody to tell.
    let _ = writeln!(
        std::io::stderr(),
        "no CRD describes {}.{}/{}: it is served without a schema, its lists are atomic",
        kind.kind,
        kind.group,
        kind.version
    );
}
