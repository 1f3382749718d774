//! Pauses in reads that examine many objects, so that they neither keep a thread nor outlast the
//! deadline of their call.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    task::Poll,
};

/// Decides on the pauses of reads.
pub trait Pace: Send {
    /// The reason why a read ends without an answer.
    type Stop: Send;

    /// Waits until the reads of a view may go on. `pauses` is the number of
    /// slices that the view has examined, of which one large object may take several.
    fn pause(&mut self, pauses: usize) -> impl Future<Output = Result<(), Self::Stop>> + Send;
}

/// Reads go on without a pause.
#[derive(Clone, Copy, Debug)]
pub struct Unpaced;

/// Reads yield to other tasks, and end after a number of pauses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Yielding {
    pub(super) most: usize,
}

/// A read that has ended since it examines too much.
#[derive(Clone, Copy, Debug)]
pub(super) struct TooMuch;

// === impl Unpaced ===

impl Pace for Unpaced {
    type Stop = Infallible;

    async fn pause(&mut self, _pauses: usize) -> Result<(), Infallible> {
        Ok(())
    }
}

// === impl Yielding ===

impl Pace for Yielding {
    type Stop = TooMuch;

    async fn pause(&mut self, pauses: usize) -> Result<(), TooMuch> {
        yield_now().await;
        if pauses > self.most { Err(TooMuch) } else { Ok(()) }
    }
}

/// Lets other tasks run.
pub(crate) async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
