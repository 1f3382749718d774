//! Recorded cases of the original systems, compared with ours.

mod api_gateway;
mod gateway;
mod istio;

pub(crate) use api_gateway::{applied, statuses};

/// The originals whose cases the tests here compare.
const COVERED: [&str; 2] = ["api-gateway", "istio"];
/// The folder of cases for the embedded API's own tests.
const SCENARIOS: &str = "kubernetes-api";
