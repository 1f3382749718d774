//! One call's reads.

use crate::contract::{ObjectRef, Page, ReadError, Selection};

/// What one call reads from.
#[derive(Debug, Default)]
pub struct View {}

impl View {
    /// One object.
    pub fn get(
        &mut self,
        _of: &ObjectRef,
        _fields: &[String],
    ) -> Result<Option<String>, ReadError> {
        Err(ReadError::Unavailable("nothing is watched".into()))
    }

    /// A page of a list.
    pub fn list(
        &mut self,
        _of: &Selection,
        _limit: u32,
        _from: Option<&str>,
    ) -> Result<Page, ReadError> {
        Err(ReadError::Unavailable("nothing is watched".into()))
    }
}
