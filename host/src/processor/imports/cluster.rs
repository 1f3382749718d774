//! Reads: answered from the view of the call, counted.

use std::time::Duration;

use crate::access::Place;
use crate::contract::{Kind, ObjectRef, Page, ReadError, Selection};
use crate::processor::bindings::mortise::host::cluster::Host;
use crate::processor::limits::Limits;
use crate::processor::state::{Exceeded, State};
use crate::view::View;

/// What a call reads from, and what is left of its limits.
pub(in crate::processor) struct Reading {
    view: Option<View>,
    reads_left: u32,
    bytes_left: usize,
}

// === impl Reading ===

impl Reading {
    /// Without a view, for `describe`, every read is denied.
    pub(in crate::processor) fn new(view: Option<View>, limits: &Limits) -> Self {
        Self { view, reads_left: limits.reads, bytes_left: limits.read_bytes }
    }

    /// The view, with what was read from it.
    pub(in crate::processor) fn finish(self) -> Option<View> {
        self.view
    }

    /// How many reads there were of these limits, and how many bytes they returned.
    pub(in crate::processor) fn used(&self, limits: &Limits) -> (u32, usize) {
        let reads = limits.reads.saturating_sub(self.reads_left);
        (reads, limits.read_bytes.saturating_sub(self.bytes_left))
    }

    /// Counts a read: what it is answered from if it can be a read at all.
    fn begin(
        &mut self,
        cluster: &str,
        kind: &Kind,
    ) -> Result<Result<&mut View, ReadError>, Exceeded> {
        self.reads_left = self.reads_left.checked_sub(1).ok_or(Exceeded::Reads)?;
        let Some(view) = &mut self.view else {
            let reason = "`describe` depends on nothing but the configuration; read in `reconcile`";
            return Ok(Err(ReadError::Denied(reason.into())));
        };
        Ok(check(cluster, kind).map(|()| view))
    }

    fn count(&mut self, bytes: usize) -> Result<(), Exceeded> {
        self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or(Exceeded::ReadBytes)?;
        Ok(())
    }
}

/// What no declaration can make right.
fn check(cluster: &str, kind: &Kind) -> Result<(), ReadError> {
    if !cluster.is_empty() {
        return Err(ReadError::Invalid(format!(
            "cluster `{cluster}` cannot be read: this version supports no cluster but \"\", the one that the host runs in"
        )));
    }
    if kind.kind.is_empty() || kind.version.is_empty() || kind.kind == "*" || kind.group == "*" {
        let Kind { group, version, kind } = kind;
        return Err(ReadError::Invalid(format!(
            "a read names one kind, by version and kind, and `*` only stands in a declaration: got group `{group}`, version \
             `{version}`, kind `{kind}`"
        )));
    }
    Ok(())
}

/// Waits for an answer no longer than the call may take.
async fn within<T>(left: Duration, answer: impl Future<Output = T>) -> Result<T, Exceeded> {
    tokio::time::timeout(left, answer).await.map_err(|_| Exceeded::Deadline)
}

impl Host for State {
    async fn get(
        &mut self,
        of: ObjectRef,
        fields: Vec<String>,
    ) -> wasmtime::Result<Result<Option<String>, ReadError>> {
        let left = self.left();
        let place = Place::object(of.namespace.as_deref(), &of.name);
        let answer = match self.reading.begin(&of.cluster, &of.kind)? {
            Ok(view) if view.is_at_hand(&of.kind, place) => view.get(&of, &fields),
            Ok(view) => {
                self.turn.give_back();
                within(left, view.get_allowed(&of, &fields)).await?
            }
            Err(error) => Err(error),
        };
        if let Ok(Some(object)) = &answer {
            self.reading.count(object.len())?;
        }
        Ok(answer)
    }

    async fn list(
        &mut self,
        of: Selection,
        limit: u32,
        from: Option<String>,
    ) -> wasmtime::Result<Result<Page, ReadError>> {
        let left = self.left();
        let place = Place::list(of.namespace.as_deref(), of.name.as_deref());
        let answer = match self.reading.begin(&of.cluster, &of.kind)? {
            Ok(view) if view.is_at_hand(&of.kind, place) => view.list(&of, limit, from.as_deref()),
            Ok(view) => {
                self.turn.give_back();
                within(left, view.list_allowed(&of, limit, from.as_deref())).await?
            }
            Err(error) => Err(error),
        };
        if let Ok(page) = &answer {
            self.reading.count(page.objects.iter().map(String::len).sum())?;
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(group: &str, version: &str, kind: &str) -> Kind {
        Kind { group: group.into(), version: version.into(), kind: kind.into() }
    }

    #[test]
    fn a_read_names_the_home_cluster_and_one_kind() {
        let cases = [
            ("core kind", "", kind("", "v1", "Pod"), None),
            ("other cluster", "ns/name/key", kind("", "v1", "Pod"), Some("`ns/name/key`")),
            ("any cluster", "*", kind("", "v1", "Pod"), Some("cluster `*`")),
            ("every kind", "", kind("apps", "v1", "*"), Some("kind `*`")),
            ("every group", "", kind("*", "v1", "Pod"), Some("group `*`")),
            ("no version", "", kind("", "", "Pod"), Some("version ``")),
        ];
        for (case, cluster, kind, expected) in cases {
            match (check(cluster, &kind), expected) {
                (Ok(()), None) => {}
                (Err(ReadError::Invalid(message)), Some(part)) => {
                    assert!(message.contains(part), "{case}: {message}");
                }
                (result, _) => panic!("{case}: {result:?}"),
            }
        }
    }

    #[test]
    fn a_description_reads_nothing() {
        let mut reading = Reading::new(None, &Limits { reads: 1, ..Limits::default() });
        let answer = reading.begin("", &kind("", "v1", "Pod")).map(|view| view.map(|_| ()));
        assert!(matches!(answer, Ok(Err(ReadError::Denied(_)))));
        let answer = reading.begin("", &kind("", "v1", "Pod")).map(|_| ());
        assert_eq!(answer, Err(Exceeded::Reads));
    }

    #[test]
    fn bytes_are_counted() {
        let mut reading = Reading::new(None, &Limits { read_bytes: 10, ..Limits::default() });
        assert_eq!(reading.count(6), Ok(()));
        assert_eq!(
            reading.used(&Limits { reads: 10_000, read_bytes: 10, ..Limits::default() }),
            (0, 6)
        );
        assert_eq!(reading.count(6), Err(Exceeded::ReadBytes));
    }
}
