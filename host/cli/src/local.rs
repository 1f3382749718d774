//! Functions that the commands share: loading a processor from a file, applying objects in a
//! working order, and serving kinds without a CRD.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use mortise_core::{
    api::{Method, Outgoing},
    contract::{Description, Kind, display_kind},
    grant::role::Served,
    resource::Kinds,
};
use mortise_embedded_api::EmbeddedApi;
use mortise_host::{
    cache_dir,
    cluster::Cluster,
    host::{Loaded, Settings},
    wasm::{self, Engine, LibraryModule, Limits, Module, Processor},
};
use serde_json::Value;

use crate::{
    args::{LibraryFile, ModuleArgs},
    files,
    guest::{Guest, Source},
    print, remotes,
};

/// The field manager under which example objects are applied: kubectl's own, so that
/// `kubectl apply --server-side` of a changed example meets no conflict.
const MANAGER: &str = "kubectl";

/// The namespace in the names of field managers if there is no Processor resource.
const NAMESPACE: &str = "default";

/// A module's file, with its libraries and its limits.
#[derive(Debug, Clone)]
pub struct Parts {
    /// The component's file.
    pub module: PathBuf,
    /// The limits of one call.
    pub limits: Limits,
    pub libraries: Vec<LibraryFile>,
}

/// Returns a processor's configuration as JSON text; an empty object if there is no file.
///
/// # Errors
///
/// Fails for a file that cannot be read or parsed, or that does not hold an object.
pub fn config(path: Option<&Path>) -> Result<String, files::Error> {
    Ok(Value::Object(path.map(files::load_config).transpose()?.unwrap_or_default()).to_string())
}

/// Loads a component and asks it for its description.
///
/// # Errors
///
/// Fails for a file that cannot be read, a component that does not load, or a configuration that
/// the component refuses.
pub async fn load(
    parts: impl Into<Parts>,
    config: String,
    cache: Option<&Path>,
) -> anyhow::Result<Loaded> {
    load_into(&engine(cache, false)?, parts, config).await
}

/// Creates the engine that compiles and runs components, with a folder for compiled code.
/// `repeatable`: [`wasm::Options::repeatable`].
///
/// # Errors
///
/// Fails for an unusable folder, or if the machine lacks resources for the engine.
pub fn engine(cache: Option<&Path>, repeatable: bool) -> anyhow::Result<Engine> {
    // Compiles in this process: a child process would take the waiting user longer, and the module
    // is their own.
    let cache = cache_dir::open(cache)?;
    Ok(Engine::new(wasm::Options { cache, repeatable, ..wasm::Options::default() })?)
}

/// Does what [`load`] does, with an existing engine.
///
/// # Errors
///
/// Fails as [`load`] does.
pub async fn load_into(
    engine: &Engine,
    parts: impl Into<Parts>,
    config: String,
) -> anyhow::Result<Loaded> {
    describe(component(engine, parts).await?, &config).await
}

/// Asks a component for its description, given a configuration.
///
/// # Errors
///
/// Fails if the component fails or refuses the configuration.
pub async fn describe(processor: Processor, config: &str) -> anyhow::Result<Loaded> {
    let settings = Settings { clusters: remotes::granted(), ..Settings::in_namespace(NAMESPACE) };
    Loaded::describe(processor, config, settings).await
}

/// Loads a component with its libraries.
///
/// # Errors
///
/// Fails for a file that cannot be read, or a component that does not load.
pub async fn component(engine: &Engine, parts: impl Into<Parts>) -> anyhow::Result<Processor> {
    let Parts { module, limits, libraries } = parts.into();
    let module = read(&module, limits, "module")?;
    let library = |LibraryFile { interface, path, limits }: LibraryFile| {
        let module = read(&path, limits, "library")?;
        anyhow::Ok(LibraryModule { interface, module })
    };
    let libraries = libraries.into_iter().map(library).collect::<Result<_, _>>()?;
    Ok(Processor::load_with(engine, None, module, libraries).await?)
}

fn read(path: &Path, limits: Limits, what: &str) -> anyhow::Result<Module> {
    let bytes = std::fs::read(path).with_context(|| {
        let path = path.display();
        format!("cannot read the {what} `{path}`, which is to be a component's .wasm file")
    })?;
    Ok(Module { name: path.display().to_string(), content: bytes.into(), limits })
}

// === impl Parts ===

impl Parts {
    /// Returns the parts of a component that was built from a source, or is it; options override
    /// the manifest of a guest.
    ///
    /// # Errors
    ///
    /// Fails for options that are not valid limits.
    pub fn of(source: &Source, module: PathBuf, args: &ModuleArgs) -> anyhow::Result<Self> {
        Self::of_guest(source.guest(), module, args)
    }

    /// Does what [`Parts::of`] does, for the component of a guest; `None` for one of a file.
    ///
    /// # Errors
    ///
    /// Fails as [`Parts::of`] does.
    pub fn of_guest(
        guest: Option<&Guest>,
        module: PathBuf,
        args: &ModuleArgs,
    ) -> anyhow::Result<Self> {
        let mut limits = guest.map(|guest| guest.limits.clone()).unwrap_or_default();
        let asked = args.limits().map_err(anyhow::Error::msg)?;
        if args.memory.is_some() {
            limits.memory = asked.memory;
        }
        if args.deadline.is_some() {
            limits.deadline = asked.deadline;
        }
        let mut libraries = args.library.clone();
        for library in guest.into_iter().flat_map(|guest| &guest.libraries) {
            if !libraries.iter().any(|given| given.interface == library.interface) {
                libraries.push(LibraryFile {
                    interface: library.interface.clone(),
                    path: library.component.path.clone(),
                    limits: library.limits.clone(),
                });
            }
        }
        Ok(Self { module, limits, libraries })
    }
}

/// A module without libraries, with the host's limits.
impl From<&Path> for Parts {
    fn from(module: &Path) -> Self {
        Self { module: module.to_owned(), limits: Limits::default(), libraries: Vec::new() }
    }
}

impl From<&PathBuf> for Parts {
    fn from(module: &PathBuf) -> Self {
        Self::from(module.as_path())
    }
}

/// Returns an object's rank in the order of applying: namespaces, then CRDs, then all others.
pub fn rank(object: &Value) -> u8 {
    match object.get("kind").and_then(Value::as_str) {
        Some("Namespace") => 0,
        Some("CustomResourceDefinition") => 1,
        _ => 2,
    }
}

/// Applies objects: namespaces and CRDs first, then the others in the given order.
///
/// # Errors
///
/// Fails for the first object that is refused, and names the object.
pub async fn apply(cluster: &Cluster, mut objects: Vec<Value>) -> anyhow::Result<()> {
    objects.sort_by_key(rank);
    for object in &objects {
        let cannot = || format!("cannot apply {}", print::title(object));
        apply_one(cluster, object).await.with_context(cannot)?;
    }
    Ok(())
}

/// Does what [`apply`] does, for objects from files.
///
/// # Errors
///
/// Fails for the first object that is refused, and names the object and its place.
pub async fn apply_files(cluster: &Cluster, mut objects: Vec<files::Object>) -> anyhow::Result<()> {
    objects.sort_by_key(|object| rank(&object.value));
    for object in &objects {
        apply_one(cluster, &object.value).await.with_context(|| cannot("apply", object))?;
    }
    Ok(())
}

/// Returns the message that an action failed on an object from a file.
pub fn cannot(action: &str, object: &files::Object) -> String {
    let (file, document) = (object.file.display(), object.document);
    format!("cannot {action} `{file}`, document {document} ({})", print::title(&object.value))
}

async fn apply_one(cluster: &Cluster, object: &Value) -> anyhow::Result<()> {
    let object = &unstored(object.clone());
    let kind = kind_of(object);
    let Some(resource) = cluster.resolve(&kind).await? else {
        anyhow::bail!(
            "no CRD serves {}: name its folder in the guest's `[package.metadata.mortise] crds`, or with --crds",
            display_kind(&kind)
        );
    };
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let name = text("/metadata/name")
        .context("an applied object needs `metadata.name`, not only `metadata.generateName`")?;
    let namespace = resource.namespaced.then(|| text("/metadata/namespace").unwrap_or("default"));
    let path = format!("{}?fieldManager={MANAGER}&force=true", resource.path_of(namespace, name));
    let apply = Outgoing::new(Method::Apply, path, Some(object.clone()));
    cluster.send(&apply).await.map_err(|refusal| anyhow::Error::msg(refusal.message))?;
    if kind.kind == "CustomResourceDefinition" {
        // A kind that was not served before may be served now.
        cluster.forget(text("/spec/group").unwrap_or_default());
    }
    Ok(())
}

/// Removes the fields of a stored object, as `kubectl get -o yaml` prints them, that an apply
/// refuses because the object is not there yet.
fn unstored(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|field, _| {
            !matches!(field.as_str(), "uid" | "resourceVersion" | "managedFields")
        });
    }
    object
}

/// Returns the kind that an object declares.
pub fn kind_of(object: &Value) -> Kind {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("apiVersion").rsplit_once('/').unwrap_or(("", text("apiVersion")));
    Kind::home(group, version, text("kind"))
}

/// Lets the API of the home cluster serve, without a schema, each kind declared for it that it does
/// not serve yet, except missing kinds. Returns the kinds that it now serves so.
pub fn serve_untyped(
    api: &EmbeddedApi,
    description: &Description,
    missing: impl Fn(&Kind) -> bool,
) -> Vec<Kind> {
    let mut untyped: Vec<Kind> = Vec::new();
    for kind in description.at_home().kinds() {
        let plural = plural(&kind);
        if missing(&kind) || api.serves(&kind.group, &kind.version, &kind.kind) {
            continue;
        }
        api.serve_untyped(&kind.group, &kind.version, &kind.kind, &plural, true);
        untyped.push(kind);
    }
    untyped
}

/// Returns the plural that kube derives from a kind.
pub fn plural(kind: &Kind) -> String {
    let kind = kube::core::GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind);
    kube::api::ApiResource::from_gvk(&kind).plural
}

/// Returns how a kind is served; for an unknown kind, the usual plural, namespaced and with a
/// status.
pub fn served(known: &Kinds, kind: &Kind) -> Served {
    let expected = || Served { plural: plural(kind), namespaced: true, status: true };
    known.get(kind).map_or_else(expected, |resource| Served::from(&**resource))
}

/// Returns the message that a kind is served without a schema, with advice.
pub fn untyped(kind: &Kind) -> String {
    format!(
        "no CRD describes {}: it is served without a schema, its lists are atomic; name the folder of its CRD with --crds",
        display_kind(kind)
    )
}

/// Warns on standard error that a kind is served without a schema.
pub fn warn_untyped(kind: &Kind) {
    // There is nowhere to report a closed standard error.
    let _ = writeln!(std::io::stderr(), "{}", untyped(kind));
}

#[cfg(test)]
mod tests {
    use mortise_embedded_api::Options;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn objects_are_applied_as_kubectl_prints_them() {
        let stored = |api_version: &str, kind: &str, name: &str, spec: Value| {
            json!({"apiVersion": api_version, "kind": kind, "spec": spec, "metadata": {
                "name": name, "uid": "7623eae2-7852-40b9-bd12-b16a66d81610", "generation": 1,
                "resourceVersion": "4711", "creationTimestamp": "2026-01-01T00:00:00Z",
                "managedFields": [{"manager": "kubectl", "operation": "Update", "apiVersion": api_version,
                    "fieldsType": "FieldsV1", "fieldsV1": {}, "time": "2026-01-01T00:00:00Z"}],
            }})
        };
        let names = json!({"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"});
        let version = json!({"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object"}}});
        let crd = json!({"group": "example.dev", "scope": "Cluster", "names": names, "versions": [version]});
        let objects = vec![
            stored("v1", "Namespace", "team", json!({"finalizers": ["kubernetes"]})),
            stored(
                "apiextensions.k8s.io/v1",
                "CustomResourceDefinition",
                "things.example.dev",
                crd,
            ),
            stored("example.dev/v1", "Thing", "a", json!({})),
        ];
        let api = EmbeddedApi::new(Options::default());
        let cluster = Cluster::new(kube::Client::new(api.router(), "default"));
        apply(&cluster, objects).await.unwrap();
        let names: Vec<Value> =
            api.objects().iter().map(|object| object["metadata"]["name"].clone()).collect();
        for name in ["team", "things.example.dev", "a"] {
            assert!(names.contains(&json!(name)), "{name}: {names:?}");
        }
    }
}
