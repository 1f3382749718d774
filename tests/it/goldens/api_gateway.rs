//! Recorded cases of the Kyma API Gateway operator, compared with `api-rule`.
//!
//! The parts of an APIRule's case were recorded separately. Status and requeue are compared with
//! those of the real component, with objects loaded without validation. The changes are the
//! component's too if that status says that all is well, else those of the guest's own function.
//! Validation failures, the default domain and v1beta1's status by kind are compared with those of
//! the guest's own functions. Conversions are functions of the guest as well.

mod controller;
mod conversion;
mod differences;
mod input;
mod output;
mod v1beta1;
mod v2;

use api_rule::change::Change;
use mortise_sdk::testing::request_for;
use mortise_tests::{
    goldens::{self, Case, Tally},
    loaded,
};
use serde_json::Value;

use self::differences::Differences;
use super::{COVERED, SCENARIOS, gateway};

/// The original that `api-rule` replaces in part.
pub(super) const ORIGINAL: &str = "api-gateway";
const GUEST: &str = "guests/api-rule";
/// The modes of the cases that `api-rule` covers.
const MODES: [&str; 4] = ["v2", "v1beta1", "convert", "controller"];

/// The cases of one mode under way.
struct Comparison {
    tally: Tally,
    differences: Differences,
}

impl Comparison {
    /// Compares one part of a case, after the rules by which ours differs were applied.
    fn part(&mut self, case: &Case, name: &str, original: &Value, ours: &Value) {
        let (expected, reasons) = self.differences.apply(case, name, original, ours);
        self.tally.compare(&case.name, name, (&expected, &reasons), ours);
    }
}

fn cases_of(mode: &str) -> Vec<Case> {
    let cases = goldens::cases(&goldens::root(), ORIGINAL).unwrap().into_iter();
    cases.filter(|case| input::mode(case) == mode).collect()
}

/// Runs the cases of a mode; a folder of other cases may have none.
async fn run(mode: &str) {
    let mut comparison = Comparison { tally: Tally::default(), differences: Differences::read() };
    let denied = loaded(GUEST, &input::config(false)).await.unwrap();
    let allowed = loaded(GUEST, &input::config(true)).await.unwrap();
    let cases = cases_of(mode);
    for case in &cases {
        let module = if input::is_granted(case) { &allowed } else { &denied };
        match mode {
            "v2" => v2::run(case, module, &mut comparison).await,
            "v1beta1" => v1beta1::run(case, module, &mut comparison).await,
            "convert" => conversion::run(case, &mut comparison),
            _ => controller::run(case, module, &mut comparison).await,
        }
    }
    if mode == MODES[0] {
        count_others(&mut comparison.tally);
    }
    println!("{}", comparison.tally.report());
    assert!(
        !cases.is_empty() || std::env::var_os(goldens::VARIABLE).is_some(),
        "no case of {mode}"
    );
    if !cases.is_empty() {
        comparison.tally.check().unwrap();
    }
}

#[tokio::test]
async fn api_rules_are_as_the_original_left_them() {
    run("v2").await;
}

#[tokio::test]
async fn api_rules_of_v1beta1_are_as_the_original_left_them() {
    run("v1beta1").await;
}

#[tokio::test]
async fn api_rules_are_converted_as_by_the_original() {
    run("convert").await;
}

#[tokio::test]
async fn api_rules_migrate_and_wait_as_in_the_original() {
    run("controller").await;
}

/// Counts the cases that no guest of ours covers.
fn count_others(tally: &mut Tally) {
    let root = goldens::root();
    for case in goldens::cases(&root, ORIGINAL).unwrap() {
        let mode = input::mode(&case);
        if !MODES.contains(&mode) && !gateway::covers(mode) {
            tally.not_covered(format!("{ORIGINAL}, mode {mode}"));
        }
    }
    for (original, cases) in goldens::others(&root, &[&COVERED[..], &[SCENARIOS]].concat()).unwrap()
    {
        for _ in 0..cases {
            tally.not_covered(original.as_str());
        }
    }
}

/// Returns the objects that the guest's own function applies, in the cases that it covers and in
/// which the rule is valid, each with the name of the case.
pub(crate) fn applied() -> Vec<(String, Value)> {
    let mut applied = Vec::new();
    for case in cases_of("v2").iter().chain(&cases_of("v1beta1")) {
        for change in v2::changes(case).into_iter().chain(v1beta1::changes(case)).flatten() {
            if let Change::Create(manifest) | Change::Update(manifest) = change {
                let object = serde_json::from_str(&manifest.object).unwrap();
                applied.push((format!("golden {}", case.name), object));
            }
        }
    }
    applied
}

/// Returns the status that the guest sets on each rule of the cases that it covers, each with the
/// name of the case.
pub(crate) fn statuses() -> Vec<(String, Value)> {
    let mut statuses = Vec::new();
    for case in cases_of("v2").iter().chain(&cases_of("v1beta1")) {
        let stub = input::stub(case);
        let request = request_for(&input::objects(case)[0]);
        let config = serde_json::from_str(&input::config(input::is_granted(case))).unwrap();
        let outcome = api_rule::reconcile::reconcile(&request, &config, &stub.host());
        let status = outcome.map_or_else(|failure| failure.status, |outcome| outcome.status);
        let status = status.map(|status| serde_json::from_str(&status).unwrap());
        statuses.extend(status.map(|status| (format!("golden {}", case.name), status)));
    }
    statuses
}

#[tokio::test]
async fn api_rules_of_ory_are_valid() {
    let rules: Vec<_> =
        applied().into_iter().filter(|(_, object)| object["kind"] == "Rule").collect();
    assert!(!rules.is_empty());
    let api = crate::crds::with([api_gateway::oathkeeper::rule_definition()]).await;
    for (case, mut rule) in rules {
        let name = rule["metadata"]["name"].as_str().unwrap().to_owned();
        // Rules of several cases have one name.
        rule["metadata"]["name"] = format!("{}.{name}", case.replace(' ', ".")).into();
        rule["metadata"]["namespace"] = "default".into();
        crate::crds::create(&api, rule).await.unwrap_or_else(|error| panic!("{case}: {error}"));
    }
}
