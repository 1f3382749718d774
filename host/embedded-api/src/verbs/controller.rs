//! Writes by the controllers of Kubernetes, which the API carries out itself: of objects as they
//! are stored, without validation and without webhooks.

use jiff::Timestamp;
use serde_json::Value;

use super::write::{Tracking, goes_now};
use crate::{
    managed_fields,
    state::{State, time_text},
    storage::Place,
};

/// The manager of writes by the controllers of Kubernetes.
const CONTROLLER: &str = "kube-controller-manager";

/// Changes an object as a controller does: tracked under its manager, without validation. Removes
/// the object if the change removes its last finalizer.
pub(crate) fn internal_update(
    state: &mut State,
    place: &Place,
    subresource: &str,
    now: Timestamp,
    change: impl FnOnce(&mut Value),
) {
    update_as(state, place, [CONTROLLER, subresource], now, change);
}

/// Changes an object as another manager, at a subresource (empty for the object itself).
pub(crate) fn update_as(
    state: &mut State,
    place: &Place,
    [manager, subresource]: [&str; 2],
    now: Timestamp,
    change: impl FnOnce(&mut Value),
) {
    let Some(image) = state.storage.get(place).cloned() else { return };
    let Some(resource) = state.resource_of(&place.table).cloned() else { return };
    let live = State::plain_view(&resource, &image);
    let mut new = live.clone();
    change(&mut new);
    if new == live {
        return;
    }
    let new =
        Tracking { state, resource: &resource, now }.update(Some(&live), new, manager, subresource);
    if goes_now(&new, &image) {
        state.take(&resource, place);
    } else {
        state.commit(&resource, place, new);
    }
}

/// Applies to an object as a controller does, with force and without validation.
pub(crate) fn internal_apply(
    state: &mut State,
    place: &Place,
    manager: &str,
    applied: &Value,
    now: Timestamp,
) {
    let Some(image) = state.storage.get(place).cloned() else { return };
    let Some(resource) = state.resource_of(&place.table).cloned() else { return };
    let live = State::plain_view(&resource, &image);
    let (api_version, time) = (resource.api_version(), time_text(now));
    let writer =
        managed_fields::Writer { manager, api_version: &api_version, subresource: "", now: &time };
    let tracking = Tracking { state, resource: &resource, now };
    let merged = tracking
        .with_target(|target| managed_fields::apply(Some(&live), applied, target, &writer, true));
    match merged {
        Ok(new) if new != live => _ = state.commit(&resource, place, new),
        Ok(_) => {}
        Err(fault) => tracing::error!(%fault, key = %place.key, "cannot apply as a controller"),
    }
}
