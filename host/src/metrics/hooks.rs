//! The metrics of hooks.

use std::{sync::Arc, time::Duration};

use prometheus_client::metrics::{counter::Counter, family::Family, histogram::Histogram};

use super::{
    Metrics,
    labels::{Answered, OfHook},
    series::{OTHER, Series},
};

/// The label of conversions. An admission has `admit/` and its hook's name, as in its path.
const CONVERT: &str = "convert";

/// The metrics of hooks.
pub(super) struct Hooks {
    pub(super) requests: Series<Answered, Counter>,
    pub(super) duration: Series<OfHook, Histogram>,
}

/// A request of the API server for a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookRequest<'a> {
    /// A conversion.
    Convert,
    /// An admission by the declared hook of this name.
    Admit(&'a str),
    /// An admission by an undeclared hook: callers can name any number.
    Unknown,
}

// === impl Hooks ===

impl Hooks {
    pub(super) fn new(histogram: fn() -> Histogram) -> Self {
        let duration = Series::new(Family::new_with_constructor(histogram));
        Self { requests: Series::default(), duration }
    }

    pub(super) fn forget(&self, processor: &str) {
        self.requests.forget(processor);
        self.duration.forget(processor);
    }
}

// === impl Metrics ===

impl Metrics {
    /// Counts a request for a hook and its duration. `result`: `success`, `refused` (by the
    /// processor), `failed` (the API server was answered with 5xx), or `invalid` (4xx).
    pub fn hooked(
        &self,
        processor: &str,
        request: HookRequest<'_>,
        result: &'static str,
        took: Duration,
    ) {
        let hooks = &self.0.hooks;
        let (processor, hook): (Arc<str>, _) = (processor.into(), request.label());
        let of = OfHook { processor: Arc::clone(&processor), hook: hook.clone() };
        hooks.duration.of(of).observe(took.as_secs_f64());
        hooks.requests.of(Answered { processor, hook, result }).inc();
    }
}

// === impl HookRequest ===

impl HookRequest<'_> {
    fn label(self) -> String {
        match self {
            Self::Convert => CONVERT.to_owned(),
            Self::Admit(hook) => format!("admit/{hook}"),
            Self::Unknown => OTHER.to_owned(),
        }
    }
}
