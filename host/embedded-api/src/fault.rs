//! Fault injection for tests: errors, latency, lost answers and broken watches, on demand.

#[cfg(test)]
mod tests;

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{Failure, request::Verb, status::Named};

/// A fault that hits a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// 410: the resource version or the continue token is too old. A watch is refused with an
    /// event.
    Gone,
    /// 409: the object has been modified meanwhile.
    Conflict,
    /// 429, with a `Retry-After` of that many seconds if one is given.
    TooManyRequests(Option<u64>),
    /// 500: an internal error.
    InternalError,
    /// Refuses the request with this status and this text.
    Refused {
        /// The HTTP status.
        code: u16,
        /// The message for people.
        message: String,
    },
    /// Carries out the request after this time.
    Latency(Duration),
    /// Carries out the request, but breaks the connection before the answer comes.
    LostAnswer,
}

/// Selects the requests that a fault hits; the default selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// The verbs; all if empty.
    pub verbs: Vec<Verb>,
    /// The resource, by its plural (`virtualservices`) or by plural and group
    /// (`virtualservices.networking.istio.io`); `None` for all.
    pub resource: Option<String>,
    /// The namespace; empty for requests without a namespace only, `None` for all.
    pub namespace: Option<String>,
    /// The name of the object; `None` for all.
    pub name: Option<String>,
    /// The subresource; empty for the object itself only, `None` for all.
    pub subresource: Option<String>,
}

/// The parts of a request that filters match.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) verb: Verb,
    pub(crate) group: &'a str,
    pub(crate) plural: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) subresource: &'a str,
}

/// The faults that wait for requests, and the open watches.
#[derive(Debug, Default)]
pub struct Faults {
    waiting: Mutex<Vec<Waiting>>,
    hits: AtomicUsize,
    watches: Mutex<Watches>,
}

#[derive(Debug)]
struct Waiting {
    fault: Fault,
    filter: Filter,
    /// The number of requests that the fault still hits.
    times: usize,
}

#[derive(Debug, Default)]
struct Watches {
    next: u64,
    live: Vec<(u64, String, String, CancellationToken)>,
}

/// The effects of faults on one request.
#[derive(Debug, Default)]
pub(crate) struct Obstacles {
    pub(crate) latency: Duration,
    pub(crate) refusal: Option<Failure>,
    pub(crate) loses_answer: bool,
}

// === impl Filter ===

impl Filter {
    /// Returns a filter that selects all requests.
    pub fn all() -> Self {
        Self::default()
    }

    /// Returns a filter that selects the requests for one resource.
    pub fn resource(resource: impl Into<String>) -> Self {
        Self { resource: Some(resource.into()), ..Self::default() }
    }

    /// Restricts the filter to these verbs.
    #[must_use]
    pub fn verbs(mut self, verbs: impl IntoIterator<Item = Verb>) -> Self {
        self.verbs = verbs.into_iter().collect();
        self
    }

    /// Restricts the filter to the object of this name.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Restricts the filter to one namespace; empty: to requests without a namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Restricts the filter to one subresource; empty: to objects themselves.
    #[must_use]
    pub fn subresource(mut self, subresource: impl Into<String>) -> Self {
        self.subresource = Some(subresource.into());
        self
    }

    fn hits(&self, seen: Seen<'_>) -> bool {
        let is = |wanted: &Option<String>, seen: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == seen)
        };
        (self.verbs.is_empty() || self.verbs.contains(&seen.verb))
            && self.hits_resource(seen.group, seen.plural)
            && is(&self.namespace, seen.namespace)
            && is(&self.name, seen.name)
            && is(&self.subresource, seen.subresource)
    }

    fn hits_resource(&self, group: &str, plural: &str) -> bool {
        let Some(wanted) = &self.resource else { return true };
        match wanted.split_once('.') {
            None => wanted == plural,
            Some((wanted_plural, wanted_group)) => wanted_plural == plural && wanted_group == group,
        }
    }
}

// === impl Faults ===

impl Faults {
    /// Injects a fault into the next `times` requests that the filter selects. If several faults
    /// hit one request, all latencies and lost answers take effect, and the first refusal.
    pub fn inject(&self, fault: Fault, filter: Filter, times: usize) {
        self.waiting.lock().push(Waiting { fault, filter, times });
    }

    /// Removes all faults that have not hit yet.
    pub fn clear(&self) {
        self.waiting.lock().clear();
    }

    /// Returns the number of hits still to come.
    pub fn pending(&self) -> usize {
        self.waiting.lock().iter().map(|waiting| waiting.times).sum()
    }

    /// Returns how often a fault has hit a request so far.
    pub fn hits(&self) -> usize {
        self.hits.load(Ordering::Relaxed)
    }

    /// Breaks the open watches of the resource that the filter names (of all resources if it names
    /// none), and returns the number of broken watches.
    pub fn drop_watches(&self, filter: &Filter) -> usize {
        let watches = self.watches.lock();
        let hit =
            watches.live.iter().filter(|(_, group, plural, _)| filter.hits_resource(group, plural));
        hit.map(|(_, _, _, token)| token.cancel()).count()
    }

    /// Returns the number of open watches.
    pub fn live_watches(&self) -> usize {
        self.watches.lock().live.len()
    }

    /// Returns the effects of the faults that hit this request, and counts the hits.
    pub(crate) fn meet(&self, seen: Seen<'_>) -> Obstacles {
        let mut waiting = self.waiting.lock();
        let mut obstacles = Obstacles::default();
        for Waiting { fault, times, .. } in
            waiting.iter_mut().filter(|waiting| waiting.filter.hits(seen))
        {
            let refusal = match fault {
                Fault::Latency(latency) => {
                    obstacles.latency += *latency;
                    None
                }
                Fault::LostAnswer => {
                    obstacles.loses_answer = true;
                    None
                }
                _ if obstacles.refusal.is_some() => continue,
                fault => Some(refusal(fault, seen)),
            };
            obstacles.refusal = obstacles.refusal.or(refusal);
            *times -= 1;
            self.hits.fetch_add(1, Ordering::Relaxed);
        }
        waiting.retain(|waiting| waiting.times > 0);
        obstacles
    }

    /// Registers a watch. Returns its id, and a token that breaks the watch when cancelled.
    pub(crate) fn open_watch(&self, group: &str, plural: &str) -> (u64, CancellationToken) {
        let mut watches = self.watches.lock();
        let (id, token) = (watches.next, CancellationToken::new());
        watches.next += 1;
        watches.live.push((id, group.to_owned(), plural.to_owned(), token.clone()));
        (id, token)
    }

    pub(crate) fn close_watch(&self, id: u64) {
        self.watches.lock().live.retain(|(live, ..)| *live != id);
    }
}

fn refusal(fault: &Fault, seen: Seen<'_>) -> Failure {
    match fault {
        Fault::Gone => Failure::expired("too old resource version: injected fault"),
        Fault::Conflict => Failure::modified(Named::new(seen.group, seen.plural, seen.name)),
        Fault::TooManyRequests(after) => {
            Failure::too_many_requests("Too many requests, please try again later.", *after)
        }
        Fault::Refused { code, message } => Failure::refused(*code, message),
        _ => Failure::internal("injected fault"),
    }
}
