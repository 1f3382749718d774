//! The gate before a cluster: the number of requests at once, and a breaker.

use std::time::Duration;

use http::{Response, StatusCode};
use parking_lot::Mutex;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};
use tower::BoxError;

use crate::cluster::request::Closing;

/// The number of requests to one cluster at once, up to the head of their answers.
pub(crate) const MAX_REQUESTS: usize = 8;
/// The number of failures in a row after which the gate closes.
const MAX_FAILURES: u32 = 5;
/// The time for which the gate is closed first, doubled with each failed probe.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// The longest time for which the gate is closed: a cluster that is back is used within a minute.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// The time from which on an answer is slow.
const SLOW: Duration = Duration::from_secs(2);

/// The requests to one cluster.
///
/// *Guarantee*: after [`MAX_FAILURES`] failures in a row, requests fail at once, but for one probe
/// after each pause.
#[derive(Debug)]
pub(crate) struct Gate {
    places: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// The error of the last failure, and the time of the first one in this row.
    failing: Option<(Instant, String)>,
    closed: Option<Closed>,
    /// The time of the last answer.
    answered: Option<Instant>,
    /// The time of the first of the last answers that were all slow, and how long the last one took.
    slow: Option<(Instant, Duration)>,
}

#[derive(Debug)]
struct Closed {
    until: Instant,
    pause: Duration,
    /// True while a probe is under way.
    probing: bool,
}

/// Ends a probe whose request was dropped.
struct Probe<'a>(Option<&'a Gate>);

// === impl Gate ===

impl Default for Gate {
    fn default() -> Self {
        Self { places: Semaphore::new(MAX_REQUESTS), state: Mutex::default() }
    }
}

impl Gate {
    /// Sends a request, if the gate is open or the request is the probe. `limit`: how long the wait
    /// for a place, and that for the head of the answer may take.
    pub(super) async fn pass<B>(
        &self,
        limit: Duration,
        sent: impl Future<Output = Result<Response<B>, BoxError>>,
    ) -> Result<Response<B>, BoxError> {
        let mut probe = self.begin(Instant::now())?;
        let late = |what: &str| BoxError::from(format!("{what} within {} s", limit.as_secs()));
        let place = timeout(limit, self.places.acquire()).await;
        let _place = place.map_err(|_| late("no place among the requests of the cluster"))??;
        let begun = Instant::now();
        let answer = timeout(limit, sent).await.unwrap_or_else(|_| Err(late("no answer")));
        self.took(begun);
        probe.0 = None;
        let failure = match &answer {
            // With other statuses the server is there. It takes none of the requests with credentials
            // that it refuses, and asks for fewer requests itself while it is too busy.
            Ok(answer) => {
                let is_failure = matches!(answer.status().as_u16(), 401 | 429 | 502..=504);
                let is_away = answer.status() != StatusCode::TOO_MANY_REQUESTS;
                is_failure.then(|| (format!("it answers {}", answer.status()), is_away))
            }
            Err(error) => Some((error.to_string(), true)),
        };
        self.end(Instant::now(), failure);
        answer
    }

    /// Returns why the cluster counts as unreachable, if it fails and its last answer, or the first
    /// failure if there was none, is older than `time`.
    pub(crate) fn unreachable_for(&self, time: Duration) -> Option<String> {
        let state = self.state.lock();
        let (failed, why) = state.failing.as_ref()?;
        let since = state.answered.unwrap_or(*failed);
        (since.elapsed() >= time).then(|| format!("the cluster does not answer: {why}"))
    }

    /// Returns whether the cluster has answered within a time.
    pub(crate) fn has_answered_within(&self, time: Duration) -> bool {
        self.state.lock().answered.is_some_and(|at| at.elapsed() < time)
    }

    /// Returns how long the last answer took, if all were slow for this time.
    pub(crate) fn slow_for(&self, time: Duration) -> Option<Duration> {
        let (since, took) = self.state.lock().slow?;
        (since.elapsed() >= time).then_some(took)
    }

    fn took(&self, begun: Instant) {
        let (now, took) = (Instant::now(), begun.elapsed());
        let mut state = self.state.lock();
        let since = state.slow.map_or(now, |(since, _)| since);
        state.slow = (took >= SLOW).then_some((since, took));
    }

    fn begin(&self, now: Instant) -> Result<Probe<'_>, Closing> {
        let mut state = self.state.lock();
        let State { closed, failing, .. } = &mut *state;
        let Some(closed) = closed else { return Ok(Probe(None)) };
        if closed.probing || now < closed.until {
            let wait = closed.until.saturating_duration_since(now);
            let why = failing.as_ref().map(|(_, why)| why.clone()).unwrap_or_default();
            return Err(Closing { wait, why });
        }
        closed.probing = true;
        Ok(Probe(Some(self)))
    }

    /// Records the end of a request: why it failed, and whether that counts for the breaker.
    fn end(&self, now: Instant, failure: Option<(String, bool)>) {
        let mut state = self.state.lock();
        let Some((why, is_away)) = failure else {
            *state = State { answered: Some(now), slow: state.slow, ..State::default() };
            return;
        };
        let since = state.failing.take().map_or(now, |(since, _)| since);
        state.failing = Some((since, why));
        if !is_away {
            state.closed = None;
            return;
        }
        state.failures = state.failures.saturating_add(1);
        let pause = match &state.closed {
            Some(closed) if closed.probing => closed.pause.saturating_mul(2).min(MAX_PAUSE),
            Some(_) => return,
            None if state.failures < MAX_FAILURES => return,
            None => FIRST_PAUSE,
        };
        state.closed = Some(Closed { until: now + pause, pause, probing: false });
    }
}

// === impl Probe ===

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        let Some(gate) = self.0 else { return };
        if let Some(closed) = &mut gate.state.lock().closed {
            closed.probing = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn send(gate: &Gate, status: Option<u16>) -> Result<u16, String> {
        let answer = async move {
            let status = status.ok_or("connection refused")?;
            Ok(Response::builder().status(status).body(())?)
        };
        let sent = gate.pass(Duration::from_secs(10), answer).await;
        sent.map(|answer| answer.status().as_u16()).map_err(|error| error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_fails_is_probed_ever_later_and_one_answer_opens_the_gate() {
        let gate = Gate::default();
        for status in [None, Some(502), None, Some(401), Some(504)] {
            let sent = send(&gate, status).await;
            assert!(!sent.is_err_and(|error| error.contains("asked again")));
        }
        let mut why = "it answers 504 Gateway Timeout";
        for seconds in [10, 20, 30, 30] {
            let sent = send(&gate, Some(200)).await.unwrap_err();
            assert!(sent.ends_with(&format!("asked again in {seconds} s: {why}")), "{sent}");
            why = "connection refused";
            tokio::time::advance(Duration::from_secs(seconds)).await;
            assert_eq!(send(&gate, None).await.unwrap_err(), "connection refused", "the probe");
        }
        assert!(gate.unreachable_for(Duration::from_secs(90)).is_some());
        tokio::time::advance(MAX_PAUSE).await;
        assert_eq!(send(&gate, Some(200)).await, Ok(200));
        assert_eq!(gate.unreachable_for(Duration::ZERO), None);
        assert!(gate.has_answered_within(Duration::from_secs(1)));
        for _ in 0..4 {
            send(&gate, None).await.unwrap_err();
        }
        assert_eq!(send(&gate, Some(403)).await, Ok(403), "failures in a row count");
        for _ in 0..=MAX_FAILURES {
            assert_eq!(send(&gate, Some(429)).await, Ok(429), "it asks for fewer itself");
        }
        assert!(gate.unreachable_for(Duration::ZERO).unwrap().contains("429"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_is_slow_while_all_answers_are() {
        let gate = Gate::default();
        let send = async |took: Duration| {
            let answer = async {
                tokio::time::sleep(took).await;
                Ok::<_, BoxError>(Response::new(()))
            };
            gate.pass(Duration::from_secs(10), answer).await.unwrap();
        };
        for _ in 0..4 {
            send(SLOW * 2).await;
        }
        assert_eq!(gate.slow_for(SLOW * 6), Some(SLOW * 2));
        assert_eq!(gate.slow_for(SLOW * 7), None);
        send(SLOW / 2).await;
        send(SLOW * 2).await;
        assert_eq!(gate.slow_for(SLOW), None);
    }

    #[tokio::test(start_paused = true)]
    async fn one_probe_is_sent_at_once_and_a_dropped_one_makes_room() {
        let gate = Gate::default();
        for _ in 0..MAX_FAILURES {
            send(&gate, None).await.unwrap_err();
        }
        tokio::time::advance(FIRST_PAUSE).await;
        let hangs = std::future::pending::<Result<Response<()>, BoxError>>();
        {
            let mut probe = std::pin::pin!(gate.pass(Duration::from_secs(10), hangs));
            assert!(futures::poll!(&mut probe).is_pending());
            assert!(send(&gate, Some(200)).await.unwrap_err().contains("asked again"));
        }
        assert_eq!(send(&gate, Some(200)).await, Ok(200));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_beyond_the_limit_wait() {
        let gate = Gate::default();
        let hang = || std::future::pending::<Result<Response<()>, BoxError>>();
        let mut held: Vec<_> = (0..MAX_REQUESTS)
            .map(|_| Box::pin(gate.pass(Duration::from_mins(1), hang())))
            .collect();
        for one in &mut held {
            assert!(futures::poll!(one).is_pending());
        }
        let error = send(&gate, Some(200)).await.unwrap_err();
        assert_eq!(error, "no place among the requests of the cluster within 10 s");
        held.pop();
        assert_eq!(send(&gate, Some(200)).await, Ok(200));
    }
}
