//! The Rules of Oathkeeper that guests produce, judged by Oathkeeper itself, with the configuration
//! that `api-gateway` installs.

use std::{path::Path, process::Command};

use serde_json::{Value, json};

use super::{judged::judgements, produced};

const CONFIGURATION: &str = "../guests/api-gateway/src/oathkeeper/configuration.yaml";

#[test]
#[ignore = "Oathkeeper takes minutes to build"]
fn oathkeeper_accepts_all_rules_that_guests_produce() {
    let Some(program) = mortise_tests::go::validate_oathkeeper().unwrap() else { return };
    let (cases, mut objects): (Vec<String>, Vec<Value>) =
        produced::applied(|api_version| api_version == "oathkeeper.ory.sh/v1alpha1")
            .into_iter()
            .unzip();
    println!("{} Rules", objects.len());
    assert!(objects.len() > 10, "the golden cases have more");
    // It refuses what Oathkeeper refuses.
    let mut bad = objects[0].clone();
    bad["spec"]["authenticators"] = json!([{"handler": "no such handler"}]);
    objects.push(bad);
    let mut command = Command::new(program);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(CONFIGURATION));
    let answers = judgements(command, &objects);
    assert_eq!(answers.len(), objects.len());
    assert_ne!(answers.last().unwrap()["error"], "", "a handler that is none");
    for (case, (object, answer)) in cases.iter().zip(objects.iter().zip(&answers)) {
        assert_eq!(answer["error"], "", "{case}: {object:#}");
    }
}
