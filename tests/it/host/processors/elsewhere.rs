//! Processors that use other clusters.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mortise_host::cluster::{
    clusters,
    remote::{Connect, Connected, Refused},
};
use serde_json::json;

use super::*;

const SERVER: &str = "https://api.provider.example:6443";

/// Connects each cluster to one API in memory, unless its kubeconfig is `refused`.
struct Provider(EmbeddedApi);

impl Connect for Provider {
    fn connect(&self, _: &str, kubeconfig: &[u8]) -> Result<Connected, Refused> {
        if kubeconfig == b"refused" {
            return Err(Refused::new("as the test wants it"));
        }
        let client = kube::Client::new(self.0.router(), "default");
        Ok(Connected { server: SERVER.to_owned(), client })
    }
}

fn secret(kubeconfig: &str) -> Value {
    let data = json!({"kubeconfig": STANDARD.encode(kubeconfig)});
    object("v1/Secret", "provider", &json!({ "data": data }))
}

#[tokio::test(start_paused = true)]
async fn connected_names_the_cluster_that_cannot_be_used_and_why() {
    let mut place = Place::new().await;
    let connect = Arc::new(Provider(EmbeddedApi::new(mortise_embedded_api::Options::default())));
    let servers = [SERVER.parse().unwrap()].into();
    place.options.clusters = clusters::Options { connect, servers };
    place.restart().await;
    // The host knows its fields in other clusters by the uid of this namespace.
    let system =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}});
    let played = object(CONFIG_MAP, "a", &json!({"metadata": {"labels": {"play": "yes"}}}));
    place.apply(&[system, played, secret("refused")]).await;

    let mut there = selection(CONFIG_MAP, "");
    let of = json!({
        "kind": there["kind"], "namespace": NAMESPACE, "name": "source",
        "cluster": format!("{NAMESPACE}/provider/kubeconfig"),
    });
    there["cluster"] = json!("*");
    let script = json!({"reads": [{"get": {"ref": of}}], "returns": outcome(&json!({}))});
    let play = puppet().reads(&selection("v1/Secret", "")).reads(&there).script(script);
    let clusters =
        json!({"clusters": [{"servers": [SERVER], "secrets": {"namespace": NAMESPACE}}]});
    place.puppet("sync", &play, &clusters).await;
    let cases = [
        ("KubeconfigRefused", "False", "the kubeconfig is refused: as the test wants it"),
        ("Connected", "True", "all 1 other clusters are connected"),
        ("KubeconfigMissing", "False", "there is no Secret `a/provider`"),
    ];
    for (reason, status, says) in cases {
        let expected = match status {
            "False" => format!("cluster `{NAMESPACE}/provider/kubeconfig`: {says}"),
            _ => says.to_owned(),
        };
        let told = place.reason("sync", "Connected", reason).await;
        assert_eq!(told, (status.to_owned(), expected));
        if reason == "KubeconfigRefused" {
            place.change("v1/Secret", "provider", secret("right")).await;
        } else if reason == "Connected" {
            let secrets = place.objects("v1/Secret").await;
            secrets.delete("provider", &DeleteParams::default()).await.unwrap();
        }
        assert_eq!(place.reason("sync", "Ready", "Runs").await.0, "True", "{reason}");
    }
}
