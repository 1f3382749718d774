//! CRDs of public projects and samples of their kinds, applied by kubectl to the API in memory and
//! to a control plane: both say the same about them, and hold the same objects afterwards.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
    time::{Duration, Instant},
};

use mortise_embedded_api::{EmbeddedApi, Options, yaml};
use mortise_tests::{cluster, go, goldens, tool};
use regex::Regex;
use serde_json::{Value, json};
use similar::TextDiff;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const TESTS: &str = "the CRDs of the world";
const MIN_PROJECTS: usize = 5;
const SERVED_TIMEOUT: Duration = Duration::from_mins(1);

/// A project, by the path of its Go module or the name of its folder of recorded cases.
struct Project {
    name: &'static str,
    /// Files and folders with its CRDs.
    crds: &'static [&'static str],
    /// Files and folders with samples of its kinds.
    samples: &'static [&'static str],
}

const PROJECTS: [Project; 8] = [
    Project {
        name: "sigs.k8s.io/gateway-api",
        crds: &["config/crd/experimental"],
        samples: &["examples", "hack/invalid-examples"],
    },
    Project {
        name: "sigs.k8s.io/gateway-api-inference-extension",
        crds: &["config/crd/bases"],
        samples: &["config/manifests", "test"],
    },
    Project {
        name: "github.com/cert-manager/cert-manager",
        crds: &["deploy/crds"],
        samples: &["make", "test"],
    },
    Project {
        name: "github.com/prometheus-operator/prometheus-operator",
        crds: &["example/prometheus-operator-crd"],
        samples: &["example", "test"],
    },
    Project {
        name: "istio.io/istio",
        crds: &["manifests/charts/base/files/crd-all.gen.yaml"],
        samples: &["samples", "pkg/config/analysis/analyzers/testdata"],
    },
    Project {
        name: "sigs.k8s.io/kueue",
        crds: &["config/components/crd/bases"],
        samples: &["cmd", "config", "keps", "test"],
    },
    Project { name: "konnect", crds: &["crds"], samples: &["."] },
    Project { name: "kube-bind", crds: &["crds"], samples: &["."] },
];

/// A server, as kubectl finds it.
struct Server {
    kubeconfig: PathBuf,
    /// The files that kubectl applies, the same for each server.
    folder: PathBuf,
    /// The discovery that kubectl keeps of the server.
    cache: TempDir,
}

/// Times, uids and versions, in messages that quote an object.
static ALLOTTED: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r#"\d{4}-\d\d-\d\dT[0-9:]+Z|[0-9a-f]{8}(-[0-9a-f]{4,12}){4}|resourceVersion\\":\\"\d+"#,
    )
    .unwrap()
});

/// The answers of a server to a project.
#[derive(Default)]
struct Made {
    /// The output of kubectl, by command.
    printed: BTreeMap<&'static str, String>,
    /// The objects, by kind, namespace and name.
    objects: BTreeMap<String, Value>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "downloads the modules of the projects"]
async fn crds_and_samples_of_public_projects_are_answered_as_by_a_real_api_server() {
    if !tool::is_there("kubectl", TESTS) {
        return;
    }
    let Some(modules) = go::modules("world", TESTS).unwrap() else { return };
    let Some(plane) = cluster::own_bare().await.unwrap() else { return };
    let folder = tempfile::tempdir().unwrap();
    let servers = [
        Server::new(&served(folder.path()).await, folder.path()),
        Server::new(&plane.kubeconfig(), folder.path()),
    ];
    let (mut compared, mut differences) = (0, Vec::new());
    for project in &PROJECTS {
        let recorded = goldens::root().join(project.name);
        let Some(root) = modules.get(project.name).or(recorded.is_dir().then_some(&recorded))
        else {
            println!("not compared, since it is not here: {}", project.name);
            continue;
        };
        let (definitions, samples) = project.read(root);
        let names = write(folder.path(), &definitions, &samples);
        let [ours, real] = servers.each_ref().map(|server| server.play(&names));
        println!("{}: {} CRDs, {} samples", project.name, definitions.len(), samples.len());
        assert!(!samples.is_empty(), "{}: no samples", project.name);
        differences.extend(ours.differences(&real).map(|of| format!("{}: {of}", project.name)));
        compared += 1;
    }
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
    assert!(compared >= MIN_PROJECTS, "{compared} of {} were here", PROJECTS.len());
}

/// Serves an API in memory. Returns its kubeconfig.
async fn served(folder: &Path) -> PathBuf {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let api = EmbeddedApi::new(Options::default());
    tokio::spawn(async move { api.serve(listener, CancellationToken::new()).await });
    let file = folder.join("kubeconfig");
    fs::write(&file, cluster::kubeconfig(&format!("http://{address}")).to_string()).unwrap();
    file
}

/// Writes the files to apply. Returns the kinds as kubectl names them.
fn write(folder: &Path, definitions: &[Value], samples: &[Value]) -> Vec<String> {
    let spaces: BTreeSet<_> =
        samples.iter().filter_map(|of| of["metadata"]["namespace"].as_str()).collect();
    let spaces = spaces
        .into_iter()
        .filter(|name| *name != "default")
        .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
    let spaces: Vec<Value> = spaces.collect();
    for (name, documents) in
        [("crds.json", definitions), ("namespaces.json", &spaces), ("samples.json", samples)]
    {
        let texts: Vec<String> = documents.iter().map(Value::to_string).collect();
        fs::write(folder.join(name), texts.join("\n")).unwrap();
    }
    definitions.iter().map(|of| of["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// Returns the files of a file or folder whose names end in `.yaml`, in the order of their names.
fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    let is_wanted =
        |path: &PathBuf| path.is_dir() || path.extension().is_some_and(|end| end == "yaml");
    entries.into_iter().filter(is_wanted).flat_map(|path| files(&path)).collect()
}

/// Collects the objects of these kinds in a document; one that names only its kind gets the
/// version of its definition. Objects with owners are left out: the owners are not there.
fn collect(document: &Value, versions: &BTreeMap<&str, Vec<String>>, found: &mut Vec<Value>) {
    let of_kind = document["kind"].as_str().and_then(|kind| versions.get(kind));
    let metadata = &document["metadata"];
    if let (Some(of_kind), true) = (of_kind, metadata["name"].is_string())
        && metadata.get("ownerReferences").is_none()
    {
        let mut object = document.clone();
        match object.get("apiVersion").and_then(Value::as_str) {
            None => object["apiVersion"] = of_kind[0].clone().into(),
            Some(version) if !of_kind.iter().any(|known| known == version) => return,
            Some(_) => {}
        }
        found.push(object);
    }
    match document {
        Value::Array(items) => items.iter().for_each(|item| collect(item, versions, found)),
        Value::Object(members) => {
            members.values().for_each(|member| collect(member, versions, found));
        }
        _ => {}
    }
}

/// Removes what differs between any two servers: what they allot, and times, order and author of
/// the conditions of definitions.
fn normalise(object: &mut Value) {
    let is_definition = object["kind"] == "CustomResourceDefinition";
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        metadata.remove(field);
    }
    let entries = metadata.get_mut("managedFields").and_then(Value::as_array_mut);
    for entry in entries.into_iter().flatten() {
        entry["time"].take();
        if is_definition && entry["subresource"] == "status" {
            entry["manager"].take();
        }
    }
    let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    if let Some(conditions) = conditions.filter(|_| is_definition) {
        for condition in &mut *conditions {
            condition["lastTransitionTime"].take();
        }
        // Several controllers set them.
        conditions.sort_by_key(|of| of["type"].to_string());
    }
}

/// Sorts the faults of an object, which Kubernetes names in no order.
fn ordered(printed: &str) -> String {
    let lines = printed.lines().map(|line| match line.split_once(" is invalid: [") {
        Some((object, faults)) => {
            let mut faults: Vec<&str> = faults.trim_end_matches(']').split(", ").collect();
            faults.sort_unstable();
            format!("{object} is invalid: [{}]\n", faults.join(", "))
        }
        None => format!("{line}\n"),
    });
    lines.collect()
}

// === impl Project ===

impl Project {
    /// Returns the CRDs, and the samples of their kinds.
    fn read(&self, root: &Path) -> (Vec<Value>, Vec<Value>) {
        let of = |paths: &[&str]| -> Vec<PathBuf> {
            paths.iter().flat_map(|path| files(&root.join(path))).collect()
        };
        let read = |file: PathBuf| yaml::documents(&fs::read_to_string(file).unwrap());
        let definitions = of(self.crds).into_iter().flat_map(|file| read(file).unwrap());
        let definitions: Vec<Value> =
            definitions.filter(|of| of["kind"] == "CustomResourceDefinition").collect();
        let mut versions: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for spec in definitions.iter().map(|of| &of["spec"]) {
            let group = spec["group"].as_str().unwrap();
            let kind = spec["names"]["kind"].as_str().unwrap();
            for version in spec["versions"].as_array().unwrap() {
                let version = version["name"].as_str().unwrap();
                versions.entry(kind).or_default().push(format!("{group}/{version}"));
            }
        }
        let mut samples = Vec::new();
        // A template is no YAML.
        for document in of(self.samples).into_iter().filter_map(|file| read(file).ok()).flatten() {
            collect(&document, &versions, &mut samples);
        }
        (definitions, samples)
    }
}

// === impl Server ===

impl Server {
    fn new(kubeconfig: &Path, folder: &Path) -> Self {
        let cache = tempfile::tempdir().unwrap();
        Self { kubeconfig: kubeconfig.to_owned(), folder: folder.to_owned(), cache }
    }

    /// Returns whether the command succeeded, and what it printed.
    fn kubectl(&self, command: &str) -> (bool, String) {
        let mut process = Command::new("kubectl");
        process.args(command.split(' ')).current_dir(&self.folder);
        process.env("KUBECONFIG", &self.kubeconfig).env("KUBECACHEDIR", self.cache.path());
        let ended = process.output().unwrap();
        let texts = [ended.stdout, ended.stderr];
        let texts = texts.map(|text| String::from_utf8_lossy(&text).into_owned());
        (ended.status.success(), texts.concat())
    }

    fn play(&self, kinds: &[String]) -> Made {
        let kinds = kinds.join(",");
        let mut made = Made::default();
        let (_, printed) = self.kubectl("apply --server-side -f crds.json");
        made.printed.insert("apply the CRDs", printed);
        let wait = format!(
            "wait crd {} --for condition=Established --timeout {SERVED_TIMEOUT:?}",
            kinds.replace(',', " ")
        );
        let (is_established, printed) = self.kubectl(&wait);
        assert!(is_established, "{printed}");
        // Discovery cannot be watched; it follows a moment after the condition.
        let begun = Instant::now();
        while !self.kubectl(&format!("get {kinds} -A")).0 {
            assert!(begun.elapsed() < SERVED_TIMEOUT, "not all of {kinds} are served");
        }
        let (are_made, printed) = self.kubectl("apply -f namespaces.json");
        assert!(are_made || printed.contains("no objects passed"), "{printed}");
        for command in ["apply the samples", "apply the samples again"] {
            let printed = self.kubectl("apply -f samples.json").1;
            made.printed.insert(command, ordered(&ALLOTTED.replace_all(&printed, "…")));
        }
        let definitions = format!("get crd {} -o json", kinds.replace(',', " "));
        let objects = format!("get {kinds} -A -o json");
        for command in [definitions, format!("{objects} --show-managed-fields")] {
            let (is_read, printed) = self.kubectl(&command);
            assert!(is_read, "{printed}");
            let mut read: Value = serde_json::from_str(&printed).unwrap();
            for mut object in read["items"].take().as_array_mut().unwrap().drain(..) {
                normalise(&mut object);
                let of = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or("");
                let key = [of("/kind"), of("/metadata/namespace"), of("/metadata/name")].join("/");
                made.objects.insert(key, object);
            }
        }
        made
    }
}

// === impl Made ===

impl Made {
    fn differences<'a>(&'a self, real: &'a Self) -> impl Iterator<Item = String> + 'a {
        let printed = real.printed.iter().map(|(command, printed)| {
            ((*command).to_owned(), self.printed[command].clone(), printed.clone())
        });
        let keys: BTreeSet<&String> = self.objects.keys().chain(real.objects.keys()).collect();
        let text = |made: &Self, key| {
            made.objects.get(key).map_or_else(String::new, |of| format!("{of:#}"))
        };
        let objects =
            keys.into_iter().map(move |key| (key.clone(), text(self, key), text(real, key)));
        printed.chain(objects).filter(|(_, ours, real)| ours != real).map(|(what, ours, real)| {
            let difference = TextDiff::from_lines(&real, &ours);
            format!("{what}\n{}", difference.unified_diff().context_radius(2))
        })
    }
}
