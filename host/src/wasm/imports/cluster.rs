//! The `cluster` import: reads, answered from the view of the call and counted.

use std::time::Instant;

use mortise_core::{
    contract::{
        ObjectRef, Page, ReadError, Selection,
        bounds::{self, text},
    },
    grant::rights::ReadTarget,
    reads::{Pace, View},
};

use crate::wasm::{
    bindings::mortise::host::{cluster, types},
    limits::Limits,
    state::{Exceeded, State},
    turns::{self, Turn},
};

/// The reason why calls that do not reconcile or review read nothing.
pub(in crate::wasm) const CLOSED: &str = "`describe`, `conversions`, `hooks` and `convert` depend on nothing but what they are given; read in `reconcile` or `admit`";

/// The view that a call reads from, and the rest of its limits on reads.
pub(in crate::wasm) struct Reading {
    /// The view, or the reason why the call has none.
    view: Result<View, &'static str>,
    reads_left: u32,
    bytes_left: usize,
    arguments_left: usize,
}

// === impl Reading ===

impl Reading {
    /// Creates the state of a call's reads. Without a view, every read is denied for the given
    /// reason.
    pub(in crate::wasm) fn new(view: Result<View, &'static str>, limits: &Limits) -> Self {
        Self {
            view,
            reads_left: limits.reads,
            bytes_left: limits.read_bytes,
            arguments_left: bounds::CALL_ARGUMENTS,
        }
    }

    /// Returns the view, with the reads made from it.
    pub(in crate::wasm) fn finish(self) -> Option<View> {
        let asked = bounds::CALL_ARGUMENTS - self.arguments_left;
        let mut view = self.view.ok()?;
        view.asked_with(asked);
        Some(view)
    }

    /// Returns the view; `None` if the call has none.
    pub(super) fn view(&mut self) -> Option<&mut View> {
        self.view.as_mut().ok()
    }

    /// Returns the number of reads, and the bytes of their arguments and answers, counted against
    /// `limits`.
    pub(in crate::wasm) fn used(&self, limits: &Limits) -> (u32, usize) {
        let reads = limits.reads.saturating_sub(self.reads_left);
        (reads, limits.read_bytes.saturating_sub(self.bytes_left))
    }

    #[cfg(test)]
    pub(in crate::wasm) fn arguments_left(&self) -> usize {
        self.arguments_left
    }

    /// Counts a read with arguments of this size, and returns the view that answers it unless the
    /// read is invalid. The arguments of a refused read are not kept.
    fn begin(
        &mut self,
        size: usize,
        check: impl FnOnce() -> Result<(), String>,
    ) -> Result<Result<&mut View, ReadError>, Exceeded> {
        self.reads_left = self.reads_left.checked_sub(1).ok_or(Exceeded::Reads)?;
        self.count(size)?;
        let view = match &mut self.view {
            Ok(view) => view,
            Err(reason) => return Ok(Err(ReadError::Denied((*reason).to_owned()))),
        };
        if let Err(message) = check() {
            return Ok(Err(ReadError::Invalid(message)));
        }
        let left = self.arguments_left.checked_sub(size);
        self.arguments_left = left.ok_or(Exceeded::Arguments)?;
        Ok(Ok(view))
    }

    pub(super) fn count(&mut self, bytes: usize) -> Result<(), Exceeded> {
        self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or(Exceeded::ReadBytes)?;
        Ok(())
    }

    /// Counts the bytes returned, or those of the objects fetched for this read and kept until the
    /// end of the call, if more.
    pub(super) fn end(&mut self, returned: usize) -> Result<(), Exceeded> {
        let fetched = self.view.as_mut().map_or(0, View::take_fetched);
        self.count(returned.max(fetched))
    }
}

/// Truncates the guest's texts in a refusal.
fn bounded(error: ReadError) -> ReadError {
    let cut = |mut message: String| {
        text::cut(&mut message, bounds::READ_ERROR);
        message
    };
    match error {
        ReadError::Denied(message) => ReadError::Denied(cut(message)),
        ReadError::Invalid(message) => ReadError::Invalid(cut(message)),
        ReadError::Unavailable(message) => ReadError::Unavailable(cut(message)),
        ReadError::UnknownKind => ReadError::UnknownKind,
    }
}

/// Waits for an answer, until the call's deadline at most.
async fn within<T>(deadline: Instant, answer: impl Future<Output = T>) -> Result<T, Exceeded> {
    let left = deadline.saturating_duration_since(Instant::now());
    tokio::time::timeout(left, answer).await.map_err(|_| Exceeded::Deadline)
}

/// The pace of a call's reads: the call yields, waits for its turn, and ends at its deadline, as the
/// guest does.
struct Paced<'a> {
    turn: &'a mut Turn,
    deadline: Instant,
}

impl Pace for Paced<'_> {
    type Stop = Exceeded;

    async fn pause(&mut self, _pauses: usize) -> Result<(), Exceeded> {
        let granted = self.turn.next();
        turns::wait(granted, self.deadline).await;
        if Instant::now() >= self.deadline { Err(Exceeded::Deadline) } else { Ok(()) }
    }
}

impl State {
    /// Reads one object; see `get` in wit/cluster.wit.
    pub(super) async fn get_object(
        &mut self,
        of: &ObjectRef,
        fields: &[String],
    ) -> Result<Result<Option<String>, ReadError>, Exceeded> {
        let deadline = self.deadline;
        let place = ReadTarget::object(of.namespace.as_deref(), &of.name);
        let size = bounds::get_size(of, fields);
        let answer = match self.reading.begin(size, || bounds::check_get(of, fields))? {
            Ok(view) => {
                view.pause_if_due(&mut Paced { turn: &mut self.turn, deadline }).await?;
                if view.is_at_hand(&of.kind, place) {
                    view.get(of, fields)
                } else {
                    self.turn.give_back();
                    within(deadline, view.get_allowed(of, fields)).await?
                }
            }
            Err(error) => Err(error),
        };
        let returned = answer.as_ref().ok().and_then(Option::as_ref).map_or(0, String::len);
        self.reading.end(returned)?;
        Ok(answer.map_err(bounded))
    }

    /// Reads a page of a list; see `list` in wit/cluster.wit.
    pub(super) async fn list_page(
        &mut self,
        of: &Selection,
        limit: u32,
        from: Option<&str>,
    ) -> Result<Result<Page, ReadError>, Exceeded> {
        let (deadline, size) = (self.deadline, bounds::list_size(of, from));
        let target = ReadTarget::list(of.namespace.as_deref(), of.name.as_deref());
        let answer = match self.reading.begin(size, || bounds::check_list(of, from))? {
            Ok(view) if view.is_at_hand(&of.kind, target) => {
                let pace = &mut Paced { turn: &mut self.turn, deadline };
                view.list_paced(of, limit, from, pace).await?
            }
            Ok(view) => {
                self.turn.give_back();
                let pace = &mut Paced { turn: &mut self.turn, deadline };
                within(deadline, view.list_allowed(of, limit, from, pace)).await??
            }
            Err(error) => Err(error),
        };
        let returned = answer.as_ref().map(|page| page.objects.iter().map(String::len).sum());
        self.reading.end(returned.unwrap_or_default())?;
        Ok(answer.map_err(bounded))
    }
}

impl cluster::Host for State {
    async fn get(
        &mut self,
        of: types::ObjectRef,
        fields: Vec<String>,
    ) -> wasmtime::Result<Result<Option<String>, types::ReadError>> {
        Ok(self.get_object(&of.into(), &fields).await?.map_err(Into::into))
    }

    async fn list(
        &mut self,
        of: types::Selection,
        limit: u32,
        from: Option<String>,
    ) -> wasmtime::Result<Result<cluster::Page, types::ReadError>> {
        let page = self.list_page(&of.into(), limit, from.as_deref()).await?;
        Ok(page.map(Into::into).map_err(Into::into))
    }
}

#[cfg(test)]
mod tests {
    use mortise_core::fixture::{reference, v1};

    use super::*;

    fn reading(limits: &Limits) -> Reading {
        Reading::new(Ok(View::default()), limits)
    }

    #[test]
    fn a_description_reads_nothing() {
        let mut reading = Reading::new(Err(CLOSED), &Limits { reads: 1, ..Limits::default() });
        let answer = reading.begin(0, || Ok(())).map(|view| view.map(|_| ()));
        assert!(matches!(answer, Ok(Err(ReadError::Denied(_)))));
        let answer = reading.begin(0, || Ok(())).map(|_| ());
        assert_eq!(answer, Err(Exceeded::Reads));
    }

    #[test]
    fn bytes_are_counted_those_of_arguments_too() {
        let limits = Limits { read_bytes: 10, ..Limits::default() };
        let mut reading = reading(&limits);
        assert!(matches!(reading.begin(3, || Err("no read".to_owned())), Ok(Err(_))));
        assert_eq!(reading.end(3), Ok(()));
        assert_eq!(reading.used(&limits), (1, 6));
        assert_eq!(reading.end(5), Err(Exceeded::ReadBytes));
        assert_eq!(reading.begin(5, || Ok(())).map(|_| ()), Err(Exceeded::ReadBytes));
    }

    #[test]
    fn the_arguments_of_all_reads_of_a_call_are_bounded() {
        let mut reading = reading(&Limits::default());
        let all = bounds::CALL_ARGUMENTS / bounds::READ_ARGUMENTS;
        for _ in 0..all {
            assert!(reading.begin(bounds::READ_ARGUMENTS, || Ok(())).is_ok());
        }
        assert!(matches!(reading.begin(1, || Ok(())), Err(Exceeded::Arguments)));
        // The arguments of a refused read are not charged.
        assert!(reading.begin(1, || Err("no read".to_owned())).is_ok());
    }

    /// Regression against long names: the refusal is short, and no argument is kept.
    #[tokio::test]
    async fn a_read_with_megabytes_of_arguments_is_refused_and_leaves_nothing() {
        let long = "x".repeat(15 << 20);
        let named = reference("Rule", &long);
        let of_kind = ObjectRef { kind: v1(&long, "Rule").into(), ..reference("Rule", "a") };
        let cases = [
            ("name", named, Vec::new()),
            ("group", of_kind, Vec::new()),
            ("field", reference("Rule", "a"), vec![long.clone()]),
        ];
        for (case, of, fields) in cases {
            let mut state = State::alone(View::default());
            let answer = state.get_object(&of, &fields).await.unwrap();
            let Err(ReadError::Invalid(message)) = answer else { panic!("{case}: {answer:?}") };
            assert!(message.len() < 512, "{case}: {message}");
            let (_, bytes) = state.reading.used(&Limits::default());
            assert!(bytes >= 15 << 20, "{case}: counted as bytes read, got {bytes}");
            let mut reads = state.reading.finish().unwrap().finish();
            let denials = reads.take_denials();
            let kept = format!("{:?}{:?}{denials:?}", reads.records(), reads.dependencies());
            assert!(kept.len() < 100, "{case}: {}", kept.len());
        }
    }

    #[tokio::test]
    async fn the_message_of_a_denied_list_is_bounded() {
        let mut state = State::alone(View::default());
        let of = Selection { labels: "a,".repeat(400) + "a", ..mortise_core::fixture::all("Rule") };
        let Err(ReadError::Denied(message)) = state.list_page(&of, 0, None).await.unwrap() else {
            panic!("nothing is declared")
        };
        assert!(message.len() <= bounds::READ_ERROR + 3, "{}", message.len());
    }
}
