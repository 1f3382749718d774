//! Exports at the provider: their conditions tell whether the consumer has bound them.

use mortise_sdk::{Failure, Host, Outcome, Request};

use crate::{
    api::{Binding, ClusterBinding, Condition, Export, Severity, find, set},
    bindings::{CONNECTED, SCHEMA_IN_SYNC},
    place::{CLUSTER_BINDING, Place},
};

/// The condition of an export whose schemas are in use at the consumer.
pub(crate) const CONSUMER_IN_SYNC: &str = "ConsumerInSync";
/// The reason of [`CONSUMER_IN_SYNC`] for exports that nobody has bound.
pub(crate) const NOT_BOUND: &str = "NA";

/// Reconciles an export: its conditions are those of the binding.
pub(crate) fn reconcile(request: &Request, host: &Host) -> Result<Outcome, Failure> {
    let Some(export) = request.object::<Export>()? else { return Ok(Outcome::new()) };
    let Some(place) = here(request, host)? else { return Ok(Outcome::new()) };
    let name = &export.metadata.name;
    let fields = ["spec", "status.conditions", "metadata.deletionTimestamp"];
    let mut binding: Option<Binding> = host.get(None, name, &fields)?;
    let lead = Lead::of(host, &place)?;
    if lead == Lead::Other {
        return Ok(Outcome::new());
    }
    if let Some(found) = &binding
        && found.spec.kubeconfig_secret_ref != place.secret()
    {
        let other = Place::read(host, &found.spec.kubeconfig_secret_ref, "")?;
        if !other.is_ok_and(|other| other.is_same(&place)) {
            binding = None;
        } else if lead == Lead::Nobody {
            // The connection of the binding's own Secret tells of it.
            return Ok(Outcome::new());
        }
    }
    let mut status = export.status;
    let next = conditions(name, binding.filter(|binding| !binding.metadata.is_deleted()).as_ref());
    set(&mut status.conditions, next, host);
    Ok(Outcome::new().status(request, &status))
}

/// Which of the connections to one place, each with a Secret of its own, writes there for all.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lead {
    /// This one: it sends the heartbeat.
    Own,
    /// Another one.
    Other,
    /// None sends a heartbeat.
    Nobody,
}

impl Lead {
    fn of(host: &Host, place: &Place) -> Result<Self, Failure> {
        let fields = ["status.consumerSecretRef"];
        let found: Option<ClusterBinding> = place.get(host, CLUSTER_BINDING, &fields)?;
        let Some(sender) = found.and_then(|found| found.status.consumer_secret_ref) else {
            return Ok(Self::Nobody);
        };
        if sender.is(&place.secret()) {
            return Ok(Self::Own);
        }
        Ok(if place.is_shared_with(host, &sender)? { Self::Other } else { Self::Nobody })
    }
}

/// Returns the place of a reconciled object, if the kubeconfig still leads to its namespace.
pub(crate) fn here(request: &Request, host: &Host) -> Result<Option<Place>, Failure> {
    let place = Place::of_object(host, &request.ref_)?;
    let namespace = request.ref_.namespace.as_deref();
    Ok(place.filter(|place| namespace == Some(place.namespace.as_str())))
}

/// Returns the conditions of the export of a name.
fn conditions(name: &str, binding: Option<&Binding>) -> [Condition; 2] {
    let info = |condition: &str, reason: &str, message: String| {
        Condition::is_false(condition, Severity::Info, reason, message)
    };
    let Some(binding) = binding else {
        let message = "No APIServiceBinding exists.".to_owned();
        return [
            info(CONNECTED, "APIServiceBindingNotFound", message.clone()),
            info(CONSUMER_IN_SYNC, NOT_BOUND, message),
        ];
    };
    let told = find(&binding.status.conditions, SCHEMA_IN_SYNC).cloned();
    let in_sync = told.unwrap_or_else(|| {
        let message = format!(
            "APIServiceBinding {name} in the consumer cluster does not have a SchemaInSync condition."
        );
        info(CONSUMER_IN_SYNC, "Unknown", message)
    });
    let in_sync = Condition { condition_type: CONSUMER_IN_SYNC.to_owned(), ..in_sync };
    [Condition::is_true(CONNECTED), in_sync]
}
