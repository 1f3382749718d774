//! Bounds on failures: their messages are cut, never refused.

use super::{FAILURE, text};
use crate::contract::Failure;

/// Cuts a failure's message to its bound.
pub fn shorten_failure(failure: &mut Failure) {
    text::cut(&mut failure.message, FAILURE);
}
