//! What a request holds, as Rust types.

use serde::de::DeserializeOwned;

use crate::{Error, Request, selection, shape};

impl Request {
    /// The reconciled object; none when it is gone, or has left the selection.
    pub fn object<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        self.object
            .as_deref()
            .map(|text| serde_json::from_str(text).map_err(|error| self.shape(text, &error)))
            .transpose()
    }

    fn shape(&self, text: &str, error: &serde_json::Error) -> Error {
        Error::Shape { what: selection::named(&self.ref_), message: shape::describe(text, error) }
    }
}
