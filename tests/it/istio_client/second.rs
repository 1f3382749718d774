//! A second version: the first one's module, copied and changed, under another release number.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use istio_client_build::Version;
use mortise_tests::istio_client;
use walkdir::WalkDir;

use super::{VERSION, answer::Rendered};

pub(crate) const RELEASE: &str = "1.32.0";
/// The folders of the copy and of the version, below `guests/istio-client`.
const COPY: &str = ".build/second-copy/istio";
const FOLDER: &str = ".build/versions/second";

const MORE: &str = "
apiVersion: v1
kind: ConfigMap
metadata:
  name: second
  namespace: {{ .Values.global.istioNamespace }}
";

/// The objects of the default profile that are not the same.
pub(crate) const CHANGES: [&str; 3] = [
    "+ ConfigMap istio-system/second",
    "- ServiceAccount istio-system/istio-reader-service-account",
    "~ Service istio-system/istiod",
];

/// Makes the version anew.
pub(crate) fn version() -> Version {
    let first = istio_client::version(VERSION).unwrap();
    let root = istio_client_build::root();
    let (copy, folder) = (root.join(COPY), root.join(FOLDER));
    let _lock = locked(&root.join(".build/second.lock"));
    copy_folder(&first.module().unwrap(), &copy);
    change(&copy.join("manifests/charts"));
    fs::create_dir_all(&folder).unwrap();
    for file in ["go.sum", "overlay.json"] {
        write(&folder.join(file), &fs::read(first.folder().join(file)).unwrap());
    }
    let requirements = fs::read_to_string(first.folder().join("go.mod")).unwrap();
    let requirements = format!("{requirements}\nreplace istio.io/istio => ./{COPY}\n");
    write(&folder.join("go.mod"), requirements.as_bytes());
    write(&folder.join("release"), RELEASE.as_bytes());
    Version::open(&folder).unwrap()
}

fn locked(file: &Path) -> fs::File {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let lock = fs::File::create(file).unwrap();
    lock.lock().unwrap();
    lock
}

/// Changes the templates: an object more, one less, and a field of one.
fn change(charts: &Path) {
    let base = charts.join("base/templates");
    write(&base.join("second.yaml"), MORE.as_bytes());
    fs::remove_file(base.join("reader-serviceaccount.yaml")).unwrap();
    let service = charts.join("istio-control/istio-discovery/templates/service.yaml");
    let before = fs::read_to_string(&service).unwrap();
    let after = before.replace("port: 15010", "port: 15009");
    assert_ne!(after, before);
    write(&service, after.as_bytes());
}

/// Copies a folder, without its permissions: Go's module cache is read-only.
fn copy_folder(from: &Path, to: &Path) {
    if to.exists() {
        fs::remove_dir_all(to).unwrap();
    }
    for entry in WalkDir::new(from) {
        let entry = entry.unwrap();
        let place: PathBuf = to.join(entry.path().strip_prefix(from).unwrap());
        if entry.file_type().is_dir() {
            fs::create_dir_all(&place).unwrap();
        } else {
            write(&place, &fs::read(entry.path()).unwrap());
        }
    }
}

fn write(file: &Path, content: &[u8]) {
    fs::write(file, content).unwrap();
}

/// Returns the differences of the objects, sorted: `+` more, `-` less, `~` changed.
pub(crate) fn changes(before: &Rendered, after: &Rendered) -> Vec<String> {
    let (before, after) = (objects(before), objects(after));
    let more = after.keys().filter(|name| !before.contains_key(*name));
    let less = before.keys().filter(|name| !after.contains_key(*name));
    let changed = before
        .iter()
        .filter(|(name, content)| after.get(*name).is_some_and(|other| other != *content));
    let more = more.map(|name| format!("+ {name}"));
    let less = less.map(|name| format!("- {name}"));
    let changed = changed.map(|(name, _)| format!("~ {name}"));
    more.chain(less).chain(changed).collect()
}

fn objects(rendered: &Rendered) -> BTreeMap<String, &str> {
    let manifests = rendered.components.iter().flat_map(|component| &component.manifests);
    manifests
        .map(|manifest| {
            let name = format!("{} {}/{}", manifest.kind, manifest.namespace, manifest.name);
            (name, manifest.content.as_str())
        })
        .collect()
}
