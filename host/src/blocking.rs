//! Work on large texts of others, on threads for blocking work instead of those that answer.

use tokio::{sync::Semaphore, task::JoinError};

/// The size of a text up to which a task works on it itself, in bytes: about a millisecond of parsing.
const SMALL_BYTES: usize = 256 << 10;

/// The number of large texts that are worked on at the same time.
static PLACES: Semaphore = Semaphore::const_new(2);

/// Does work on a text of so many bytes. Work on a large one waits for a place.
///
/// # Errors
///
/// Fails if the work panics, or if the program ends.
pub(crate) async fn on_text<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    if bytes <= SMALL_BYTES {
        return Ok(work());
    }
    let place = PLACES.acquire().await;
    tokio::task::spawn_blocking(move || {
        let _place = place;
        work()
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn only_large_texts_are_worked_on_by_another_thread() {
        let of = |bytes| on_text(bytes, || thread::current().id());
        assert_eq!(of(SMALL_BYTES).await.unwrap(), thread::current().id());
        assert_ne!(of(SMALL_BYTES + 1).await.unwrap(), thread::current().id());
        assert_eq!(PLACES.available_permits(), 2, "places are given back");
    }
}
