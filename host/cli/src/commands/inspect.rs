//! `mortise inspect`: shows the reads and writes that a processor declares, and the Roles that it
//! needs; of a library, its imports and exports.

mod library;
mod outbound;
pub(super) mod page;
#[cfg(test)]
mod tests;
mod webhooks;

use std::{
    fmt::Write as _,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context as _;
use mortise_core::{
    contract::{
        Description, GrantedRule, Kind, Reconciler, Selection, WriteRule, api_version,
        bounds::text::escaped, display_kind, hooks::Hooks,
    },
    grant::{granted, rights::Account, role::Roles, verb_names},
    resource::Kinds,
};
use mortise_embedded_api::EmbeddedApi;
use mortise_host::{
    cluster::Cluster,
    host::Loaded,
    oci::artifact::{Annotations, annotation},
};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use self::library::LibraryInspection;
pub use self::outbound::OutboundEntry;
use crate::{
    args::{InspectArgs, Structured},
    commands::simulate,
    egress::Grant,
    files,
    local::{self, Parts},
    print,
    registry::Subject,
};

/// The reason for the role of the granted rules.
const GRANTED: &str = "\
# Rules that the processor grants in roles: the API server lets nobody write or bind a role with rules that they do not hold themselves.
# The processor uses these rights for nothing else.
";

/// The use of the roles for other clusters.
const ELSEWHERE: &str = "\
# For the other clusters: bind it there to the user of the kubeconfig. It has no binding here, and so no effect.
# Who may write the Secret of a kubeconfig decides which cluster this processor reads and writes, within `spec.clusters`.
";

/// A processor's description, with facts about its module.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Inspection {
    /// The processor's name.
    pub name: String,
    /// The processor's version.
    pub version: String,
    /// The path of the module; `None` if it was pulled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The artifact from which it was pulled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageEntry>,
    /// The digest of the module.
    pub digest: String,
    /// The size of the module in bytes.
    pub size: u64,
    /// The WIT package that the module was built for: `mortise:host@0.1.0`.
    pub contract: String,
    /// The component's imports.
    pub imports: Vec<String>,
    /// The libraries that it runs with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<LibraryEntry>,
    pub reconcilers: Vec<ReconcilerEntry>,
    /// The selections that are read besides the reconciled objects.
    pub reads: Vec<Selected>,
    /// The rules of what may be written.
    pub writes: Vec<WriteEntry>,
    /// The rules that it grants in roles, in the format of a role.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Value>,
    /// The systems outside of the cluster that it may call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outbound: Vec<OutboundEntry>,
    /// The grants of these systems, as `spec.egress` of a Processor.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub egress: Vec<Grant>,
    /// Declarations that reach further than they need to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The JSON schema of the configuration; `None` if the processor takes no configuration, or
    /// checks it itself.
    pub config_schema: Option<Value>,
}

/// An artifact in a registry.
#[derive(Debug, Clone, Serialize)]
pub struct ImageEntry {
    /// The reference, with the digest of the manifest.
    pub reference: String,
    /// The annotations, except the permissions: those are shown as the component declares them.
    pub annotations: Annotations,
}

#[derive(Debug, Clone, Serialize)]
pub struct LibraryEntry {
    /// The interface that it implements.
    pub interface: String,
    /// The digest of its module.
    pub digest: String,
    /// The functions that it implements, with their types as WIT writes them.
    pub functions: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReconcilerEntry {
    pub name: String,
    /// The reconciled objects.
    pub of: Selected,
    /// The finalizers that the processor may put on the objects.
    pub finalizers: Vec<String>,
    /// The interval at which an object is reconciled again without a change; 0 for never.
    #[serde(rename = "resyncSeconds", serialize_with = "in_seconds")]
    pub resync: Duration,
    /// The minimum time between the starts of two runs of an object.
    #[serde(rename = "minIntervalSeconds", serialize_with = "in_seconds")]
    pub min_interval: Duration,
    /// True if a change of the status alone triggers a reconcile.
    pub triggered_by_status: bool,
    /// True if it runs for the objects that outcomes start it for, within `of`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub on_demand: bool,
    /// True if an outcome's status replaces the whole status.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub whole_status: bool,
}

/// A declared selection.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Selected {
    /// The cluster: empty for the home cluster, `*` for every one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// The API version: `v1` or `apps/v1`.
    pub api_version: String,
    pub kind: String,
    /// The namespace; `None` for all namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name; `None` for all names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A label selector; an empty one selects all objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub labels: String,
    /// The values that objects must have at certain paths; `*` only asks for an index.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub matching: Vec<Match>,
    /// The selected fields; empty for whole objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
}

/// A value that objects must have at a path.
#[derive(Debug, Clone, Serialize)]
pub struct Match {
    pub path: String,
    pub value: String,
}

/// A rule of what may be written.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteEntry {
    /// The objects that may be written.
    pub of: Selected,
    /// The allowed verbs: `create`, `update`, `delete`, `evict`.
    pub verbs: Vec<&'static str>,
    /// The fields that may be applied and patched; empty for all fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
}

/// Runs the command.
///
/// # Errors
///
/// Fails for bad input: a guest that does not build, a module that does not load, a configuration
/// that the processor refuses.
pub async fn run(args: &InspectArgs, cache: Option<&Path>) -> anyhow::Result<ExitCode> {
    let config = local::config(args.config.as_deref())?;
    let account = args.service_account.clone();
    let subject = Subject::open(&args.module, &args.client).await?;
    let parts = Parts::of(&subject.source, subject.file.clone(), &args.with)?;
    let engine = local::engine(cache, false)?;
    let loaded = match local::load_into(&engine, parts, config).await {
        // The options are about processors.
        Err(error) if !args.rbac && args.webhooks.is_none() && library::is_one(&error) => {
            let library = LibraryInspection::of(&subject, &engine).await?;
            let text = match args.output {
                Some(format) => document(&json!(library), format)?,
                None => library.for_people(),
            };
            write(&text)?;
            return Ok(ExitCode::SUCCESS);
        }
        loaded => loaded?,
    };
    let text = if args.rbac {
        let crds = files::load_all(&[subject.source.crds(), &args.crds].concat())?;
        rbac(&loaded.description, crds, account.as_ref(), args.output).await?
    } else if let Some(processor) = &args.webhooks {
        anyhow::ensure!(!loaded.hooks.is_empty(), "`{}` has no hooks", subject.file.display());
        let crds = files::load_all(&[subject.source.crds(), &args.crds].concat())?;
        let known = known(crds, &kinds_of(&loaded.hooks)).await?;
        let objects = webhooks::objects(&loaded.hooks, processor, &args.service, &known);
        if args.output == Some(Structured::Json) {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
            document(&list, Structured::Json)?
        } else {
            let documents: Vec<String> = objects.iter().map(print::yaml).collect();
            format!("---\n{}", documents.join("---\n"))
        }
    } else {
        let inspection = Inspection::of_subject(&loaded, &subject)?;
        match args.output {
            Some(format) => document(&json!(inspection), format)?,
            None => inspection.for_people(),
        }
    };
    write(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn write(text: &str) -> anyhow::Result<()> {
    anstream::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
}

fn in_seconds<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    simulate::seconds(*time).serialize(to)
}

/// Formats a value as one document.
fn document(value: &Value, format: Structured) -> anyhow::Result<String> {
    Ok(match format {
        Structured::Json => print::json(value)?,
        Structured::Yaml => print::yaml(value),
    })
}

/// Returns the Roles that a description needs, as YAML for `kubectl apply`.
///
/// # Errors
///
/// Fails for CRDs that are not valid.
pub async fn rbac(
    description: &Description,
    crds: Vec<Value>,
    account: Option<&Account>,
    format: Option<Structured>,
) -> anyhow::Result<String> {
    let (home, others) = (description.at_home(), description.elsewhere());
    let mut kinds = home.kinds();
    kinds.extend(others.kinds().into_iter().filter(|kind| !home.kinds().contains(kind)));
    let known = known(crds, &kinds).await?;
    let served = |kind: &Kind| local::served(&known, kind);
    let objects = Roles::of(&home, served).objects(&description.name, account);
    let granted = granted::objects(&description.name, &description.grants, account);
    // Who the user of a kubeconfig is, is not known here.
    let elsewhere =
        Roles::of(&others, served).objects(&format!("{}-elsewhere", description.name), None);
    if format == Some(Structured::Json) {
        let items = [objects, granted, elsewhere].concat();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        return document(&list, Structured::Json);
    }
    let unknown = kinds.iter().filter(|kind| known.get(kind).is_none());
    let mut text = manifest(description, &objects, account, unknown);
    for (reason, objects) in [(GRANTED, granted), (ELSEWHERE, elsewhere)] {
        for (number, object) in objects.iter().enumerate() {
            text.push_str("---\n");
            if number == 0 {
                text.push_str(reason);
            }
            text.push_str(&print::yaml(object));
        }
    }
    Ok(text)
}

/// Returns how kinds are served by Kubernetes itself, or by one of these CRDs.
///
/// # Errors
///
/// Fails for CRDs that are not valid.
pub(super) async fn known(crds: Vec<Value>, kinds: &[Kind]) -> anyhow::Result<Kinds> {
    let api = EmbeddedApi::new(mortise_embedded_api::Options::default());
    let cluster = Cluster::new(kube::Client::new(api.router(), "default"));
    let definitions = crds.into_iter().filter(|object| local::rank(object) == 1).collect();
    local::apply(&cluster, definitions).await?;
    Ok(cluster.resolve_all(kinds).await?)
}

/// Returns the kinds of hooks, in each version.
fn kinds_of(hooks: &Hooks) -> Vec<Kind> {
    let converted = hooks.conversions.iter().flat_map(|of| {
        of.versions
            .iter()
            .map(|version| Kind::home(of.group.clone(), version.clone(), of.kind.clone()))
    });
    converted.chain(hooks.admission.iter().map(|hook| Kind::clone(&hook.of.kind))).collect()
}

/// Formats the objects as YAML, after comments that explain them.
fn manifest<'a>(
    description: &Description,
    objects: &[Value],
    account: Option<&Account>,
    unknown: impl Iterator<Item = &'a Kind>,
) -> String {
    let (name, version) = (escaped(&description.name), escaped(&description.version));
    let mut text = format!("# What `{name}` {version} declares.\n");
    if account.is_none() {
        text.push_str("# --service-account NAMESPACE/NAME adds the bindings.\n");
    }
    for kind in unknown {
        let (name, plural) = (display_kind(kind), local::plural(kind));
        let _ = writeln!(
            text,
            "# {name}: no CRD at hand, so the plural `{plural}` is derived from its name (--crds names the folder of its CRD)."
        );
    }
    for object in objects {
        text.push_str("---\n");
        text.push_str(&print::yaml(object));
    }
    text
}

// === impl Inspection ===

impl Inspection {
    /// Returns the inspection of a loaded processor.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, or if the configuration's schema is not JSON.
    pub fn of(loaded: &Loaded, file: &Path) -> anyhow::Result<Self> {
        let Description {
            name,
            version,
            reconcilers,
            reads,
            writes,
            grants,
            outbound: rules,
            config_schema,
        } = &*loaded.description;
        let names = loaded.processor.names();
        let size = std::fs::metadata(file)
            .with_context(|| format!("cannot read the module `{}`", file.display()))?
            .len();
        let schema = config_schema.as_deref().map(serde_json::from_str).transpose();
        let libraries = loaded.processor.libraries().zip(loaded.processor.library_functions());
        let libraries = libraries.map(|((interface, digest), functions)| LibraryEntry {
            interface: interface.to_owned(),
            digest: digest.to_string(),
            functions,
        });
        Ok(Self {
            name: name.clone(),
            version: version.clone(),
            file: Some(file.to_owned()),
            image: None,
            digest: loaded.processor.digest().to_string(),
            size,
            contract: names.contract().context("the module exports no contract")?,
            imports: names.imports.iter().cloned().collect(),
            libraries: libraries.collect(),
            reconcilers: reconcilers.iter().map(ReconcilerEntry::of).collect(),
            reads: reads.iter().map(Selected::of).collect(),
            writes: writes.iter().map(WriteEntry::of).collect(),
            grants: grants.iter().map(GrantedRule::to_value).collect(),
            outbound: rules.iter().map(OutboundEntry::of).collect(),
            egress: Grant::declared(&loaded.description),
            warnings: outbound::warnings(&loaded.description, &loaded.hooks),
            config_schema: schema.context("the schema of its configuration is no JSON")?,
        })
    }
}

impl Inspection {
    /// Returns the inspection of a loaded processor, and of its artifact.
    ///
    /// # Errors
    ///
    /// Fails as [`Inspection::of`] does.
    pub fn of_subject(loaded: &Loaded, subject: &Subject) -> anyhow::Result<Self> {
        let inspection = Self::of(loaded, &subject.file)?;
        let Some(image) = ImageEntry::of(subject) else { return Ok(inspection) };
        Ok(Self { file: None, image: Some(image), ..inspection })
    }

    /// Returns the processor's permissions, as JSON.
    pub fn permissions(&self) -> Value {
        let mut permissions = json!({
            "reconciles": self.reconcilers.iter().map(|of| &of.of).collect::<Vec<_>>(),
            "reads": self.reads,
            "writes": self.writes,
            "grants": self.grants,
        });
        if let (false, Some(fields)) = (self.outbound.is_empty(), permissions.as_object_mut()) {
            fields.insert("outbound".to_owned(), json!(self.outbound));
        }
        permissions
    }
}

// === impl ImageEntry ===

impl ImageEntry {
    /// Returns the artifact that a component was pulled from; `None` for a file.
    fn of(subject: &Subject) -> Option<Self> {
        let pulled = subject.pulled.as_ref()?;
        let mut annotations = pulled.annotations.clone();
        annotations.remove(annotation::PERMISSIONS);
        Some(Self { reference: pulled.reference.to_string(), annotations })
    }
}

// === impl ReconcilerEntry ===

impl ReconcilerEntry {
    fn of(reconciler: &Reconciler) -> Self {
        Self {
            name: reconciler.name.clone(),
            of: Selected::of(&reconciler.of),
            finalizers: reconciler.finalizers.clone(),
            resync: Duration::from_millis(reconciler.resync),
            min_interval: Duration::from_millis(reconciler.min_interval),
            triggered_by_status: reconciler.triggered_by_status,
            on_demand: reconciler.on_demand,
            whole_status: reconciler.whole_status,
        }
    }
}

// === impl Selected ===

impl Selected {
    fn of(selection: &Selection) -> Self {
        let matching = selection.matching.iter();
        Self {
            cluster: selection.kind.cluster.as_ref().to_owned(),
            api_version: api_version(&selection.kind),
            kind: selection.kind.kind.clone(),
            namespace: selection.namespace.clone(),
            name: selection.name.clone(),
            labels: selection.labels.clone(),
            matching: matching
                .map(|(path, value)| Match { path: path.clone(), value: value.clone() })
                .collect(),
            fields: selection.fields.to_vec(),
        }
    }
}

// === impl WriteEntry ===

impl WriteEntry {
    fn of(rule: &WriteRule) -> Self {
        Self {
            of: Selected::of(&rule.of),
            verbs: verb_names(rule.verbs).collect(),
            fields: rule.fields.clone(),
        }
    }
}
