//! The `outbound` import: calls to systems outside of the cluster.

use std::time::Duration;

use mortise_core::{
    outbound::{Answer, Call, CallError, Ended},
    reads::View,
};

use crate::wasm::{
    bindings::mortise::host::outbound,
    state::{Exceeded, State},
};

/// The part of a call's time that calls to the outside leave, so that the guest can still return a
/// status.
const RESERVED: Duration = Duration::from_millis(200);
/// The time for a client to report that a timeout is over, before its call is given up.
const GRACE: Duration = Duration::from_millis(50);

impl State {
    /// Makes a call; see `send` in wit/outbound.wit.
    pub(super) async fn send_call(
        &mut self,
        call: Call,
    ) -> Result<Result<Answer, CallError>, Exceeded> {
        self.reading.count(call.size())?;
        let timeout = self.left().saturating_sub(RESERVED).min(Duration::from_millis(call.timeout));
        let call = Call { timeout: milliseconds(timeout), ..call };
        // A call without a view sends nothing, and so reads no credential.
        let mut nothing = View::default();
        let view = self.reading.view().unwrap_or(&mut nothing);
        self.turn.give_back();
        let answer = tokio::time::timeout(timeout + GRACE, self.sending.send(view, call)).await;
        let answer = answer.unwrap_or_else(|_| Err(self.sending.late()));
        match self.sending.ended() {
            Some(Ended::TooMany) => return Err(Exceeded::Calls),
            Some(Ended::Trial) => return Err(Exceeded::Trial),
            None => {}
        }
        self.reading.end(answer.as_ref().map_or(0, Answer::size))?;
        Ok(answer)
    }
}

fn milliseconds(of: Duration) -> u64 {
    u64::try_from(of.as_millis()).unwrap_or(u64::MAX)
}

impl outbound::Host for State {
    async fn send(
        &mut self,
        of: outbound::Call,
    ) -> wasmtime::Result<Result<outbound::Answer, outbound::CallError>> {
        let answer = self.send_call(of.into()).await?;
        Ok(answer.map(Into::into).map_err(Into::into))
    }
}

#[cfg(test)]
mod tests {
    use mortise_core::{contract::bounds, outbound::Method};

    use super::*;

    fn call(body: usize) -> Call {
        Call {
            method: Method::Post,
            url: "https://a.example/".to_owned(),
            headers: Vec::new(),
            body: Some(vec![0; body]),
            credential: None,
            timeout: u64::MAX,
        }
    }

    #[tokio::test]
    async fn calls_are_counted_also_where_nothing_is_sent() {
        let mut state = State::alone(View::default());
        for _ in 0..bounds::CALLS {
            let answer = state.send_call(call(0)).await;
            assert!(matches!(answer, Ok(Err(CallError::Denied(_)))), "{answer:?}");
        }
        assert_eq!(state.send_call(call(0)).await, Err(Exceeded::Calls));
    }

    #[tokio::test]
    async fn arguments_count_as_bytes_that_are_read() {
        let mut state = State::alone(View::default());
        let (_, before) = state.reading.used(&crate::wasm::limits::Limits::default());
        state.send_call(call(1000)).await.unwrap().unwrap_err();
        let (_, bytes) = state.reading.used(&crate::wasm::limits::Limits::default());
        assert_eq!(bytes - before, 1000 + "https://a.example/".len());
        let large = call(crate::wasm::limits::Limits::default().read_bytes);
        assert_eq!(state.send_call(large).await, Err(Exceeded::ReadBytes));
    }
}
