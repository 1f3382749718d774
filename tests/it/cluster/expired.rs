//! Expired certificates: the host's own, and that of the API server.

use std::{fs, path::Path};

use kube::Client;
use mortise_tests::cluster::{self, Cluster};
use serde_json::Value;

use super::program::{POLL_INTERVAL, Program, TIMEOUT};

/// Runs a host that cannot start, which must log one line and exit with code 1; returns its
/// message.
async fn refused(kubeconfig: &Path) -> String {
    let folder = tempfile::tempdir().unwrap();
    let nothing: [&str; 0] = [];
    let mut host = Program::start(kubeconfig, folder.path(), &folder.path().join("cache"), nothing);
    let (status, said) = host.ended().await;
    assert_eq!(status.code(), Some(1), "{said}");
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [line] = lines.as_slice() else { panic!("more than one line: {said}") };
    assert_eq!(line["level"], "ERROR", "{line}");
    line["message"].as_str().unwrap().to_owned()
}

/// Makes the API server use the expired certificate for new connections.
async fn serve_expired(plane: &Cluster) {
    let file = |name: &str| plane.folder().join(name);
    for ending in ["key", "crt"] {
        fs::copy(file(&format!("expired.{ending}")), file(&format!("serving.{ending}"))).unwrap();
    }
    // The API server reads the files again by itself.
    let shown = async {
        while Client::try_from(plane.config().await.unwrap())
            .unwrap()
            .apiserver_version()
            .await
            .is_ok()
        {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(TIMEOUT, shown).await.expect("the expired certificate is served");
}

#[tokio::test]
async fn expired_certificates_are_named_with_a_remedy() {
    let Some(plane) = cluster::own_bare().await.unwrap() else { return };
    let address = plane.config().await.unwrap().cluster_url.to_string();
    let address = address.trim_end_matches('/');
    let message = refused(&plane.folder().join("expired.kubeconfig")).await;
    let expected = format!(
        "cannot work with the cluster at {address}: it does not accept our client certificate (401): wrong, expired or revoked; \
         renew that, or name another one with --kubeconfig or --context"
    );
    assert_eq!(message, expected);

    serve_expired(&plane).await;
    let message = refused(&plane.kubeconfig()).await;
    let begins = format!(
        "cannot work with the cluster at {address}: the certificate that it shows is not accepted: certificate expired: "
    );
    assert!(message.starts_with(&begins), "{message}");
    let does = "; renew it there, or correct this machine's clock";
    assert!(message.ends_with(does), "{message}");
}
