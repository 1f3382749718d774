//! The built-in kinds: reading their objects, defaults, what a write may change, and validation.
//!
//! Types come from the definitions of Kubernetes ([`definition`]); the rest is code for each kind, for it is code in Kubernetes, too.

pub(crate) mod address;
pub(crate) mod admission;
pub(crate) mod decode;
pub(crate) mod default;
pub(crate) mod definition;
pub(crate) mod edit;
pub(crate) mod event;
pub(crate) mod pod;
pub(crate) mod protobuf;
pub(crate) mod quantity;
pub(crate) mod strategy;
pub(crate) mod validate;
pub(crate) mod warn;
