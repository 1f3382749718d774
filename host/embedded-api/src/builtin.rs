//! The built-in kinds: reading their objects, defaults, what a write may change, and validation.
//!
//! Types come from the definitions of Kubernetes ([`definition`]); the rest is code for each kind, for it is code in Kubernetes, too.

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

/// How the form of a version and the stored one become each other.
pub(crate) struct Conversion {
    pub(crate) to_stored: fn(&mut Value),
    pub(crate) from_stored: fn(&mut Value),
}

/// The conversion of a kind that is stored in another form; `definition` is its name in the definitions.
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
