//! The program with its cache directory: no token is in what it keeps, says or answers.

use std::{fs, path::Path};

use konnect_fake::Fault;
use serde_json::{Value, json};

use super::{
    objects,
    rig::{HOME, NAME, Rig, cache},
    watched::{PAGES, holds_none_of},
};
use crate::cluster::program::get;

const TOKEN: &str = "kpat_marker-that-is-not-kept";
/// A secret in bodies.
const SECRET: &str = "marker-of-a-body";

/// Returns objects of each kind, with a token in the object of authentication, and in its copy.
fn planted() -> Vec<Value> {
    let mut all = [objects::shared(), objects::round(1)].concat();
    for object in &mut all {
        let spec = object.get_mut("spec").and_then(Value::as_object_mut);
        let Some(spec) = spec else { continue };
        for field in ["token", "key", "password", "secret"] {
            let planted = if field == "token" { TOKEN } else { SECRET };
            if spec.get(field).is_some_and(Value::is_string) {
                spec.insert(field.to_owned(), planted.into());
            }
        }
        let copy = object.to_string();
        let copy = json!({"kubectl.kubernetes.io/last-applied-configuration": copy});
        object["metadata"]["annotations"] = copy;
    }
    all
}

/// Returns a fault that quotes what was sent.
fn quoting(collection: &str) -> Fault {
    Fault {
        method: Some("POST".to_owned()),
        path: format!("/{collection}$"),
        times: Some(1),
        status: Some(400),
        body: Some(json!({"message": format!("{SECRET} of Bearer {TOKEN}")})),
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
    let faults = ["key-auth", "basic-auth", "hmac-auth", "jwt", "certificates"].map(quoting);
    rig.fake.konnect().lock().set_faults(faults.into()).unwrap();
    rig.apply(planted()).await;
    let mut host = rig.host(&["--log", "trace"]);
    let ports = host.ports().await;
    rig.until_programmed().await;
    let quoted = rig.requests("POST").iter().filter(|request| request.ends_with(" 400")).count();
    assert!(quoted >= 5, "each fault was met: {quoted}");
    let mut places = Vec::new();
    for page in PAGES {
        places.push((page.to_owned(), get(&ports.admin, page).await.1));
    }
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
    for (place, text) in places {
        holds_none_of(&place, &text, &[TOKEN, SECRET]);
    }
}
