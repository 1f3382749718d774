//! What is rendered.

use std::{
    fs,
    path::{Path, PathBuf},
};

use istio::{cluster::Size, template};
use mortise_tests::goldens;
use serde::Serialize;
use serde_json::{Value, json};

/// The `IstioOperator`s that the original of `guests/istio` merged: a folder for each case.
const MERGED: &str = "istio/merge";

/// The `IstioOperator`s of [`MERGED`] in the repository that have a recorded answer.
pub(crate) const RECORDED: [&str; 22] = [
    "authorizers-two",
    "cni-affinity",
    "cni-resources",
    "cni-resources-gke",
    "compatibility-mode",
    "compatibility-mode-evaluation",
    "dns-proxying-false",
    "egress-disabled-with-k8s",
    "empty-aws-elb-cm-service-nlb",
    "empty-k3d-evaluation",
    "empty-production",
    "everything-aws-nlb",
    "everything-evaluation-k3d",
    "everything-production",
    "exp-ambient",
    "exp-dual-stack-aws",
    "exp-multi-network",
    "feature-disable-cni",
    "images-digest-and-port",
    "ingress-hpa-zero",
    "pilot-full",
    "stats-matcher",
];

/// The arguments of a call.
#[derive(Debug, Serialize)]
pub(crate) struct Case {
    #[serde(skip)]
    pub(crate) name: String,
    pub(crate) spec: String,
    pub(crate) cluster: Option<Cluster>,
}

#[derive(Debug, Default, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cluster {
    pub(crate) git_version: String,
    pub(crate) major: String,
    pub(crate) minor: String,
    pub(crate) cilium_config: Option<std::collections::BTreeMap<String, String>>,
    pub(crate) felix_configuration: Option<String>,
}

/// Returns an `IstioOperator` with a spec.
fn operator(name: &str, spec: &Value) -> Case {
    let spec = json!({
        "apiVersion": "install.istio.io/v1alpha1",
        "kind": "IstioOperator",
        "metadata": {"name": "default", "namespace": "istio-system"},
        "spec": spec,
    });
    Case { name: name.to_owned(), spec: spec.to_string(), cluster: None }
}

fn text(name: &str, spec: &str) -> Case {
    Case { name: name.to_owned(), spec: spec.to_owned(), cluster: None }
}

fn on(case: Case, cluster: Cluster) -> Case {
    Case { cluster: Some(cluster), ..case }
}

/// Returns the case of a bare profile.
pub(crate) fn profile(name: &str) -> Case {
    operator(&format!("profile {name}"), &json!({"profile": name}))
}

/// Returns a case in which upstream panics.
pub(crate) fn panics() -> Case {
    operator("panics", &json!({"values": {"global": "x"}}))
}

/// Returns the case of the default `IstioOperator` of a size of cluster.
fn size(size: Size) -> Case {
    text(&format!("size {}", size.name()), &template::of(size).to_string())
}

/// Returns the cases with a recorded answer: those of this file, and [`RECORDED`]. They are the
/// same with another folder of goldens.
pub(crate) fn recorded() -> Vec<Case> {
    let merged = merged(&in_repository()).into_iter();
    let merged: Vec<Case> = merged.filter(|case| RECORDED.contains(&case.name.as_str())).collect();
    assert_eq!(merged.len(), RECORDED.len());
    own().into_iter().chain(merged).collect()
}

/// Returns all cases: those of this file, the merged `IstioOperator`s in the repository, and with
/// [`goldens::VARIABLE`] those of that folder, too.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = own();
    cases.extend(merged(&in_repository()));
    let given = goldens::root();
    if given != in_repository() {
        let name = |case: &Case| format!("{} of {}", case.name, goldens::VARIABLE);
        let given = merged(&given).into_iter();
        cases.extend(given.map(|case| Case { name: name(&case), ..case }));
    }
    cases
}

fn in_repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("goldens")
}

fn merged(root: &Path) -> Vec<Case> {
    let mut cases = Vec::new();
    for entry in fs::read_dir(root.join(MERGED)).unwrap() {
        let folder = entry.unwrap().path();
        let file = folder.join("expected.yaml");
        // Not all folders hold the result of a merge.
        if file.is_file() {
            let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
            cases.push(Case { name, spec: fs::read_to_string(file).unwrap(), cluster: None });
        }
    }
    assert!(!cases.is_empty(), "no case in {}", root.display());
    cases
}

fn own() -> Vec<Case> {
    let mut cases: Vec<Case> = ["default", "demo", "ambient"].map(profile).into();
    cases.extend([Size::Evaluation, Size::Production].map(size));
    cases.extend(clusters());
    cases.extend(invalid());
    // The default profile.
    cases.push(text("empty", ""));
    cases
}

fn clusters() -> [Case; 3] {
    let plain = Cluster {
        git_version: "v1.34.4".to_owned(),
        major: "1".to_owned(),
        minor: "34".to_owned(),
        ..Cluster::default()
    };
    let gke = Cluster { git_version: "v1.34.4-gke.1000000".to_owned(), ..plain.clone() };
    let cilium = [("cni-exclusive", "true"), ("bpf-lb-sock", "true")];
    let networks = Cluster {
        cilium_config: Some(cilium.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
        felix_configuration: Some(
            json!({"spec": {"bpfConnectTimeLoadBalancing": "TCP"}}).to_string(),
        ),
        ..plain.clone()
    };
    let spec = json!({"components": {"cni": {"enabled": true}}});
    [
        on(operator("cluster", &spec), plain),
        on(operator("cluster of Google", &spec), gke),
        on(operator("cluster with Cilium and Calico", &spec), networks),
    ]
}

/// Returns cases that upstream refuses.
fn invalid() -> Vec<Case> {
    vec![
        operator("unknown field", &json!({"colour": "red"})),
        operator("unknown component", &json!({"components": {"colour": {"enabled": true}}})),
        operator("wrong type of a value", &json!({"values": {"pilot": {"replicaCount": "many"}}})),
        operator("invalid revision", &json!({"revision": "A b"})),
        operator(
            "invalid address",
            &json!({"values": {"global": {"proxy": {"includeIPRanges": "1.1.0.300/16"}}}}),
        ),
        profile("no-such-profile"),
        on(
            profile("default on no FelixConfiguration"),
            Cluster { felix_configuration: Some("x".to_owned()), ..Cluster::default() },
        ),
        text("no kind", "{\"spec\": {}}"),
        text("no YAML", "a: b: c"),
    ]
}
