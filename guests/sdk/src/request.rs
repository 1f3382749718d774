//! Access to the object of a request, as a Rust type.

use serde::de::DeserializeOwned;

use crate::{Error, Request, selection, shape};

impl Request {
    /// Returns the reconciled object; `None` if it is gone or has left the reconciler's selection.
    ///
    /// # Errors
    ///
    /// The object does not fit `T`: [`Error::Shape`].
    pub fn object<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        self.object
            .as_deref()
            .map(|text| serde_json::from_str(text).map_err(|error| self.shape(text, &error)))
            .transpose()
    }

    fn shape(&self, text: &str, error: &serde_json::Error) -> Error {
        Error::Shape {
            what: selection::display_ref(&self.ref_),
            message: shape::describe(text, error),
        }
    }
}
