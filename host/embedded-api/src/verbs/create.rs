//! Create: a POST to a collection.

use super::{Call, metadata::wipe_system_fields, write::Writer};
use crate::{Failure, answer::Answer, request::WriteOptions};

/// Creates an object.
pub(super) fn create(call: &mut Call<'_>) -> Result<Answer, Failure> {
    let options = WriteOptions::of(call.request, "CreateOptions", None)?;
    let mut object = call.decode(&options)?;
    wipe_system_fields(&mut object);
    call.fit(&mut object, false)?;
    let mut state = call.shared.state.write();
    let writer = Writer::new(&mut state, call, &options);
    let object = writer.track(None, object, None);
    writer.answer_new(call, object)
}
