//! Failures, which are never too long to be told.

use super::{FAILURE, text};
use crate::contract::Failure;

/// Cuts a failure's message to what is kept of it.
pub(in crate::processor) fn shorten_failure(failure: &mut Failure) {
    text::cut(&mut failure.message, FAILURE);
}
