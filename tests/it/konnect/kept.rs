//! The program with its cache directory: no token is in what it keeps, says or answers.

use std::{collections::BTreeSet, fs, path::Path};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use konnect_fake::Fault;
use serde_json::{Value, json};

use super::{
    objects,
    rig::{HOME, NAME, Rig, cache},
    watched::{PAGES, assert_has_record, holds_none_of, records},
};
use crate::cluster::program::get;

const TOKEN: &str = "kpat_marker-that-is-not-kept";
/// What all secrets in bodies begin with.
const SECRET: &str = "marker-of-a-body";
/// The collections whose bodies hold a secret, the kind, and the number of its objects.
const BODIES: [(&str, &str, usize); 7] = [
    ("key-auth", "KongCredentialAPIKey", 1),
    ("basic-auth", "KongCredentialBasicAuth", 1),
    ("hmac-auth", "KongCredentialHMAC", 1),
    ("jwt", "KongCredentialJWT", 1),
    ("certificates", CERTIFICATE, 2),
    ("keys", "KongKey", 2),
    ("vaults", "KongVault", 1),
];
const CERTIFICATE: &str = "KongCertificate";

/// Returns the secret in the bodies of a kind.
fn marker(kind: &str) -> String {
    format!("{SECRET}-{kind}")
}

/// Returns a certificate whose key is in a Secret, and a key in PEM.
fn more() -> Vec<Value> {
    let labels = json!({"konghq.com/secret": "true"});
    let data = [("tls.crt", objects::CERTIFICATE.to_owned()), ("tls.key", marker(CERTIFICATE))];
    let data = data.map(|(key, text)| (key.to_owned(), BASE64_STANDARD.encode(text).into()));
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "data": Value::Object(data.into_iter().collect()),
        "metadata": {"name": "tls", "namespace": objects::NAMESPACE, "labels": labels},
    });
    let of_secret = json!({"type": "secretRef", "secretRef": {"name": "tls"}});
    let pem = json!({"private_key": marker("KongKey"), "public_key": "public"});
    let pem = json!({"kid": "pem", "name": "pem", "pem": pem});
    let plain = |kind, name, spec: &Value| objects::in_plane(1, kind, name, spec, &json!({}));
    vec![secret, plain(CERTIFICATE, "of-secret", &of_secret), plain("KongKey", "pem", &pem)]
}

/// Returns objects of each kind, with a token in the object of authentication, and in its copy.
fn planted() -> Vec<Value> {
    let mut all = [objects::shared(), objects::round(1), more()].concat();
    for object in &mut all {
        let marker = marker(object["kind"].as_str().unwrap());
        let spec = object.get_mut("spec").and_then(Value::as_object_mut);
        let Some(spec) = spec else { continue };
        let fields = [
            ("token", TOKEN.into()),
            ("key", marker.as_str().into()),
            ("password", marker.as_str().into()),
            ("secret", marker.as_str().into()),
            ("jwk", json!({"kty": "oct", "k": marker}).to_string().into()),
            ("config", json!({"token": marker})),
        ];
        for (field, planted) in fields {
            if let Some(value) = spec.get_mut(field) {
                *value = planted;
            }
        }
        let copy = object.to_string();
        let copy = json!({"kubectl.kubernetes.io/last-applied-configuration": copy});
        object["metadata"]["annotations"] = copy;
    }
    all
}

/// Returns a fault that quotes what was sent.
fn quoting((collection, kind, _): (&str, &str, usize)) -> Fault {
    Fault {
        method: Some("POST".to_owned()),
        path: format!("/{collection}$"),
        times: Some(1),
        status: Some(400),
        body: Some(json!({"message": format!("{} of Bearer {TOKEN}", marker(kind))})),
        ..Fault::default()
    }
}

/// Returns the files below a folder.
fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of = |path: std::path::PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.flat_map(of).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_keeps_no_token() {
    let config = json!({"syncPeriodSeconds": 2});
    let rig = Rig::start().await.with_processor(&config, &json!({})).await;
    rig.fake.konnect().lock().set_faults(BODIES.map(quoting).into()).unwrap();
    rig.apply(planted()).await;
    let mut host = rig.host(&["--log", "trace"]);
    let ports = host.ports().await;
    rig.until_programmed().await;
    let quoted = rig.requests("POST").iter().filter(|request| request.ends_with(" 400")).count();
    assert!(quoted >= BODIES.len(), "each fault was met: {quoted}");
    for (collection, kind, count) in BODIES {
        let konnect = rig.fake.konnect().lock();
        let sent = konnect.log(0).filter(|entry| entry.path.ends_with(&format!("/{collection}")));
        let bodies = sent.filter_map(|entry| entry.body.as_ref());
        let secret = bodies.filter(|body| body.to_string().contains(&marker(kind)));
        let tags: BTreeSet<String> = secret.map(|body| body["tags"].to_string()).collect();
        assert_eq!(tags.len(), count, "{kind}: bodies are the guest's to send: {tags:#?}");
    }
    let mut places = Vec::new();
    for page in PAGES {
        places.push((page.to_owned(), get(&ports.admin, page).await.1));
    }
    let reports = get(&ports.admin, "/reports").await.1;
    let reports: Vec<Value> = serde_json::from_str(&reports).unwrap();
    let keys = reports.iter().map(|report| report["key"].as_str().unwrap().to_owned()).collect();
    for page in records(&keys) {
        let text = get(&ports.admin, &page).await.1;
        places.push((page, text));
    }
    assert_has_record(&places);
    let of_processor = format!("/keys?processor={HOME}/{NAME}");
    places.push((of_processor.clone(), get(&ports.admin, &of_processor).await.1));
    places.push(("/metrics".to_owned(), get(&ports.public, "/metrics").await.1));
    host.terminate();
    let (status, log) = host.ended().await;
    assert!(status.success(), "{log}");
    assert!(log.contains("called outside"), "calls are in the log of this level");
    places.push(("the log".to_owned(), log));
    let kept = files(&cache());
    assert!(!kept.is_empty());
    for file in kept {
        let text = String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned();
        places.push((file.display().to_string(), text));
    }
    let encoded = BASE64_STANDARD.encode(marker(CERTIFICATE));
    for (place, text) in places {
        holds_none_of(&place, &text, &[TOKEN, SECRET, &encoded]);
    }
}
