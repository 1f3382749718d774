//! The reconcilers over two clusters in memory.

mod bad_input;
mod bounds;
mod claims;
mod deletion;
mod fixture;
mod flow_chart;
mod hostile;
mod provider;
