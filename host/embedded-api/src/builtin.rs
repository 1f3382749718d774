//! The built-in kinds: decoding, defaults, strategies (what a write may change), and validation.
//!
//! Types come from the definitions of Kubernetes ([`definition`]). The rest is code for each kind,
//! as it is in Kubernetes.

pub(crate) mod address;
pub(crate) mod admission;
mod autoscaler;
pub(crate) mod decode;
pub(crate) mod default;
pub(crate) mod definition;
pub(crate) mod edit;
mod event;
pub(crate) mod pod;
pub(crate) mod protobuf;
pub(crate) mod quantity;
pub(crate) mod strategy;
pub(crate) mod validate;
pub(crate) mod warn;

use serde_json::Value;

/// The conversions between a version of a kind and its stored form.
pub(crate) struct Conversion {
    pub(crate) to_stored: fn(&mut Value),
    pub(crate) from_stored: fn(&mut Value),
}

/// Returns the conversion of a kind that is stored in another form, if any; `definition` is the
/// kind's name in the definitions.
pub(crate) fn conversion(definition: &str) -> Option<Conversion> {
    match definition {
        "api.events.v1.Event" => {
            Some(Conversion { to_stored: event::to_core, from_stored: event::from_core })
        }
        "api.autoscaling.v1.HorizontalPodAutoscaler" => Some(Conversion {
            to_stored: autoscaler::to_stored,
            from_stored: autoscaler::from_stored,
        }),
        _ => None,
    }
}
