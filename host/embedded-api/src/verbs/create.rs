//! Create: a POST to a collection.

use super::Call;
use super::write::{Writer, fit_namespace, wipe_system_fields};
use crate::Failure;
use crate::answer::Answer;
use crate::request::WriteOptions;

/// Stores a new object.
pub(super) fn create(call: &mut Call<'_>) -> Result<Answer, Failure> {
    let options = WriteOptions::of(call.request, "CreateOptions", None)?;
    let mut object = call.decode(&options)?;
    wipe_system_fields(&mut object);
    fit_namespace(&mut object, &call.path.namespace)?;
    call.dedup_owners(&mut object);
    let mut state = call.shared.state.write();
    let mut writer = Writer {
        state: &mut state,
        resource: call.resource,
        options: &options,
        now: call.now,
        doubts: Vec::new(),
    };
    let object = writer.track(None, object, None);
    let doubts = call.resource.warnings(&object, None);
    let shown = writer.create(&call.path.namespace, object)?;
    call.warnings.extend(doubts);
    Ok(Answer::object(201, shown))
}
