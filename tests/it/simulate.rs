//! `mortise simulate` with another cluster.

use std::path::Path;

use mortise::{
    args::ClusterFolder,
    commands::simulate::{Input, OtherCluster, simulate},
    files,
    print::Secrets,
    remotes,
};
use mortise_tests::{definitions, loaded};
use serde_json::Value;

const GUEST: &str = "guests/kube-bind";
const PROVIDER: &str = "kube-bind/provider/kubeconfig";

#[tokio::test]
async fn another_cluster_is_read_and_written_and_its_objects_are_told_apart() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(GUEST);
    let provider =
        ClusterFolder::new(PROVIDER, folder.join("provider"), Some("kube-bind-example")).unwrap();
    let input = Input {
        objects: files::load(&folder.join("examples")).unwrap(),
        crds: definitions(GUEST).unwrap(),
        clusters: vec![OtherCluster::open(&provider).unwrap()],
        now: "2026-01-01T00:00:00Z".parse().unwrap(),
        missing_kinds: Vec::new(),
        validate: true,
        only: None,
        rounds: None,
    };
    let mut guest = loaded(GUEST, r#"{"groups": ["example.com"]}"#).await.unwrap();
    guest.settings.clusters = remotes::granted();
    let end = simulate(guest, input).await.unwrap();
    assert!(end.failures.is_empty(), "{:#?}", end.failures);
    let kinds = |objects: &[Value]| -> Vec<String> {
        objects.iter().filter_map(|of| of["kind"].as_str().map(str::to_owned)).collect()
    };
    let (home, there) = (kinds(&end.objects), kinds(&end.clusters[PROVIDER]));
    for (kind, is_home) in [("APIServiceExport", false), ("APIServiceBinding", true)] {
        assert_eq!(home.iter().any(|of| of == kind), is_home, "{kind}: {home:?}");
        assert_eq!(there.iter().any(|of| of == kind), !is_home, "{kind}: {there:?}");
    }
    let written: Vec<&str> = end.changes.iter().map(|change| &*change.cluster).collect();
    assert!(written.contains(&PROVIDER) && written.contains(&""), "{written:?}");
    let text = end.for_people(&Secrets::new(false, []));
    let title = "APIServiceExport kube-bind.io/v1alpha2 kube-bind-example/rockets";
    assert!(text.contains(&format!("{title} in {PROVIDER}")), "{text}");
}
