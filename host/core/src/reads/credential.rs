//! Reads the objects that hold credentials. The processor is not given them.

use std::sync::Arc;

use zeroize::Zeroizing;

use super::{DependsOn, View};
use crate::{
    contract::{ObjectRef, ReadError},
    grant::{
        Readable,
        rights::{Permit, ReadTarget},
    },
    path::{Fields, Path},
    store::Entry,
};

impl View {
    /// Reads the object of a credential, if one of the declared selections holds it and the account
    /// may get it. A change of the value, of the labels, or of whether the object exists triggers
    /// the key again.
    pub(crate) async fn credential(
        &mut self,
        of: &ObjectRef,
        at: &Path,
        holders: impl Iterator<Item = &Arc<Readable>>,
    ) -> Result<Option<Arc<Entry>>, ReadError> {
        let (namespace, name) = (of.namespace.as_deref(), of.name.as_str());
        let target = ReadTarget::object(namespace, name);
        let permit = self.permit(&of.kind, target, || true).await;
        let is_live = match permit {
            Ok(Permit::Stored) => false,
            Ok(Permit::Live) => true,
            refused => return Err(self.refuse(&of.kind, target, refused)),
        };
        if is_live {
            let entry = self.live(of).await?;
            let mut holders = holders;
            return Ok(entry.filter(|entry| holders.any(|held| held.of.query.matches(entry))));
        }
        let labels = Path::from_keys(["metadata", "labels"]);
        let fields = Arc::new(Fields::of([at.clone()].into_iter().chain(labels)));
        let mut found = None;
        for held in holders {
            let query = Arc::new(held.of.query.narrowed(namespace, name));
            let answering = self.answering(&of.kind, &query, &fields)?;
            let depends_on =
                DependsOn::Read { query: Arc::clone(&query), fields: Arc::clone(&fields) };
            self.depends_on(&answering, depends_on);
            let entry = answering.snapshot.get(namespace.unwrap_or_default(), name);
            found = found.or_else(|| entry.filter(|entry| query.matches(entry)).cloned());
        }
        // Taken by the next recorded read otherwise.
        self.stood = None;
        Ok(found)
    }

    /// Returns the values of the credentials that the call has used.
    pub(crate) fn credentials(&self) -> impl Iterator<Item = &str> {
        self.reads.credentials()
    }

    /// Records the value of a credential, which no text of the run's report may show.
    pub(crate) fn saw_credential(&mut self, value: Zeroizing<String>) {
        self.reads.saw_credential(value);
    }
}
