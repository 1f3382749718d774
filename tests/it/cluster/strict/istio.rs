//! The objects of Istio's kinds that guests produce, and the `IstioOperators` that Istio is
//! rendered from, judged by Istio's own validation.

use std::{collections::BTreeMap, process::Command};

use serde_json::Value;

use super::{judged::judgements, produced};
use crate::goldens;

/// The end of the groups of Istio, with what follows.
const GROUP: &str = ".istio.io/";

/// Returns the objects to judge, with the name of a case that each is from.
async fn judged() -> Vec<(String, Value)> {
    let mut of_gateways = goldens::made_by_gateways().await;
    of_gateways.retain(|(_, object)| object["apiVersion"].as_str().unwrap().contains(GROUP));
    assert!(!of_gateways.is_empty());
    produced::applied(|api_version| api_version.contains(GROUP))
        .into_iter()
        .chain(of_gateways)
        .chain(goldens::operators())
        .collect()
}

#[tokio::test]
#[ignore = "Istio's validation takes minutes to build"]
async fn istio_accepts_all_that_guests_produce() {
    let Some(program) = mortise_tests::go::validate().unwrap() else { return };
    let (cases, mut objects): (Vec<String>, Vec<Value>) = judged().await.into_iter().unzip();
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for object in &objects {
        *kinds.entry(object["kind"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    println!("{kinds:?}");
    // It refuses what Istio refuses.
    let mut bad = objects.iter().find(|one| one["kind"] == "VirtualService").unwrap().clone();
    bad["spec"]["hosts"] = serde_json::json!(["no host"]);
    objects.push(bad);
    let answers = judgements(Command::new(program), &objects);
    assert_eq!(answers.len(), objects.len());
    assert_ne!(answers.last().unwrap()["error"], "", "a host with a space");
    for (case, (object, answer)) in cases.iter().zip(objects.iter().zip(&answers)) {
        assert_eq!(answer["error"], "", "{case}: {object:#}");
        if answer["warning"] != "" {
            println!("{case}: {}", answer["warning"]);
        }
    }
}
