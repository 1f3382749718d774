//! Recorded cases of the original systems, compared with ours.

mod api_gateway;
mod gateway;
mod istio;
mod konnect;
mod kube_bind;
mod scenario;

pub(crate) use api_gateway::{applied, statuses};
pub(crate) use gateway::made as made_by_gateways;
pub(crate) use istio::operators;

/// The originals whose cases the tests here compare.
const COVERED: [&str; 4] = ["api-gateway", "istio", "konnect", "kube-bind"];
/// The folder of cases for the embedded API's own tests.
const SCENARIOS: &str = "kubernetes-api";
