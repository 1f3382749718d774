//! The `outbound` import: calls to systems outside of the cluster.

use mortise_core::outbound::{Answer, Call, CallError};

use crate::wasm::{
    bindings::mortise::host::outbound,
    state::{Exceeded, State},
};

impl State {
    /// Makes a call; see `send` in wit/outbound.wit.
    pub(super) async fn send_call(
        &mut self,
        call: Call,
    ) -> Result<Result<Answer, CallError>, Exceeded> {
        let Some(view) = self.reading.view() else {
            return Ok(Err(CallError::Denied(CLOSED.to_owned())));
        };
        Ok(self.sending.send(view, call).await)
    }
}

/// The reason why calls that do not reconcile send nothing.
const CLOSED: &str = "only `reconcile` may call systems outside of the cluster";

impl outbound::Host for State {
    async fn send(
        &mut self,
        of: outbound::Call,
    ) -> wasmtime::Result<Result<outbound::Answer, outbound::CallError>> {
        let answer = self.send_call(of.into()).await?;
        Ok(answer.map(Into::into).map_err(Into::into))
    }
}
