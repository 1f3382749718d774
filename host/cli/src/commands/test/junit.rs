//! Writes the results as `JUnit`'s XML, for CI systems.

use std::time::Duration;

use anyhow::Context as _;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::Verdict;

/// Returns a report of one suite, with a test for each case.
///
/// # Errors
///
/// Fails for text that cannot be written as XML.
pub(super) fn report(suite: &str, verdicts: &[Verdict], took: Duration) -> anyhow::Result<String> {
    let mut tests = TestSuite::new(suite);
    tests.set_time(took);
    for verdict in verdicts {
        let mut test = TestCase::new(verdict.name.as_str(), status(verdict));
        test.set_classname(suite).set_time(verdict.took);
        tests.add_test_case(test);
    }
    let mut report = Report::new("mortise test");
    report.set_time(took).add_test_suite(tests);
    report.to_string().context("the result cannot be written as XML")
}

fn status(verdict: &Verdict) -> TestCaseStatus {
    if verdict.passed() {
        return TestCaseStatus::success();
    }
    let mut status;
    if let Some(error) = &verdict.error {
        status = TestCaseStatus::non_success(NonSuccessKind::Error);
        status.set_message(error.as_str());
    } else {
        let titles: Vec<&str> =
            verdict.differences.iter().map(|difference| difference.title.as_str()).collect();
        let text: String = verdict.differences.iter().map(ToString::to_string).collect();
        status = TestCaseStatus::non_success(NonSuccessKind::Failure);
        status.set_message(format!("differs: {}", titles.join(", "))).set_description(text);
    }
    status
}
