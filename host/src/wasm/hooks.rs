//! Calls of hooks: conversions and admissions.
//!
//! *Guarantees.* A call of a hook never waits for a call of a reconciler: it has slots and turns of
//! its own. It runs although the processor is suspended and while the host drains, since pending
//! writes may wait for it. It ends at its caller's deadline.

use std::time::{Duration, Instant};

use mortise_core::{
    contract::{
        bounds::{self, ENTRY, HOOK_ANSWER},
        hooks::{Answer, Conversion, Hooks, Review, Verdict},
    },
    reads::{Reads, View, record::is_secret},
    reconcile::mask_texts,
};
use tokio::time::timeout_at;
use tokio_util::sync::CancellationToken;
use wasmtime::Store;

use super::{
    CLOSED, Error, Limits, Line, Moment, Outside, Processor, State,
    bindings::exports::mortise::host::{admission, conversion},
    library::Caller,
    shares::{Bounds, Shares, Slot, granted},
    tenant::Tenant,
    until,
};

/// The slots for calls of hooks. A call takes two: of the few that one processor may have, so that
/// it leaves some of its namespace's share to others there, and of those that namespaces share.
pub(super) struct HookSlots {
    of_processors: Shares,
    of_namespaces: Shares,
}

/// The result of the call of a hook.
pub struct Hooked<T> {
    /// The answer or the refusal that the component returned, or the error that ended the call.
    pub answer: Result<Result<T, String>, Error>,
    /// The lines that the guest logged.
    pub log: Vec<Line>,
}

// === impl Hooked ===

impl<T> Hooked<T> {
    /// Masks the values of the Secrets that the hook has read, or was given, in all texts but those
    /// of its answer.
    fn mask(&mut self, reads: &Reads) {
        let lines = self.log.iter_mut().flat_map(|Line { message, fields, .. }| {
            let fields = fields.iter_mut().flat_map(|(name, value)| [name, value]);
            std::iter::once(message).chain(fields)
        });
        let error = match &mut self.answer {
            Ok(Err(text))
            | Err(Error::Panicked { message: text, .. } | Error::Library { failed: text, .. }) => {
                Some(text)
            }
            _ => None,
        };
        mask_texts(reads, lines.chain(error).collect());
    }
}

// === impl HookSlots ===

impl HookSlots {
    pub(super) fn new(total: usize) -> Self {
        let bounds = Bounds::of_total(total);
        let of_one = Bounds { total: usize::MAX, reserve: 0, share: bounds.share - 1 };
        Self { of_processors: Shares::new(of_one), of_namespaces: Shares::new(bounds) }
    }

    /// Waits for the slots of a call; `delayed` is called after a long wait.
    async fn take(&self, tenant: &Tenant, delayed: impl Fn()) -> [Slot<'_>; 2] {
        let own = granted(self.of_processors.slot(tenant.hook_id()), &delayed).await;
        [own, granted(self.of_namespaces.slot(tenant.setup_id()), &delayed).await]
    }
}

// === impl Processor ===

impl Processor {
    /// Asks the processor for its conversions and hooks, under a configuration. A component that
    /// exports neither has none.
    ///
    /// # Errors
    ///
    /// Fails as any call can, and if the answer exceeds the bounds.
    pub async fn hooks(&self, config: &str) -> Result<Hooks, Error> {
        let exports = &self.shared.linked.exports;
        if exports.conversion.is_none() && exports.admission.is_none() {
            return Ok(Hooks::default());
        }
        let ends = self.tenant.setup();
        let asked = until(&ends, self.hooks_in_slot(config)).await;
        asked.unwrap_or_else(|| Err(self.cancelled()))
    }

    async fn hooks_in_slot(&self, config: &str) -> Result<Hooks, Error> {
        let _slot = self.slot(self.tenant.setup_id()).await;
        let _ticks = self.shared.engine.tick();
        let mut hooks = Hooks::default();
        if self.shared.linked.exports.conversion.is_some() {
            let asked = self.ask(async |store| {
                self.conversion(store).await?.call_conversions(store, config).await
            });
            hooks.conversions = asked.await?.into_iter().map(Into::into).collect();
        }
        if self.shared.linked.exports.admission.is_some() {
            let asked = self
                .ask(async |store| self.admission(store).await?.call_hooks(store, config).await);
            hooks.admission = asked.await?.into_iter().map(Into::into).collect();
        }
        match bounds::check_hooks(&hooks) {
            Ok(()) => Ok(hooks),
            Err(found) => {
                Err(Error::DescriptionRefused { processor: self.name().to_owned(), found })
            }
        }
    }

    /// Makes one call whose only input is the configuration. Its store is dropped with it: a kept
    /// store may hold a turn, for which the next call would wait until its deadline.
    async fn ask<T>(
        &self,
        call: impl AsyncFnOnce(&mut Store<State>) -> wasmtime::Result<T>,
    ) -> Result<T, Error> {
        let mut store = self.setup_store();
        let answer = call(&mut store).await;
        answer.map_err(|source| self.setup_error(&store, source))
    }

    /// Instantiates the component, and returns its export `conversion`.
    async fn conversion(&self, store: &mut Store<State>) -> wasmtime::Result<conversion::Guest> {
        let export = self.shared.linked.exports.conversion.as_ref();
        let export = export.ok_or_else(|| not_exported("conversion"))?;
        let instance = self.shared.linked.instances.instantiate(store).await?;
        export.load(store, &instance)
    }

    /// Instantiates the component, and returns its export `admission`.
    async fn admission(&self, store: &mut Store<State>) -> wasmtime::Result<admission::Guest> {
        let export = self.shared.linked.exports.admission.as_ref();
        let export = export.ok_or_else(|| not_exported("admission"))?;
        let instance = self.shared.linked.instances.instantiate(store).await?;
        export.load(store, &instance)
    }

    /// Converts a batch of objects. `ends` is the caller's deadline; the deadline of the
    /// processor's limits holds too.
    ///
    /// The future must be awaited to its end, like that of [`Processor::call`].
    pub async fn convert(&self, of: Conversion, ends: Instant) -> Hooked<Vec<String>> {
        let expected = of.objects.len();
        let moment = Moment { now_ms: 0, seed: 0 };
        let mut hooked = self
            .hooked(Err(CLOSED), moment, ends, async |store| {
                self.conversion(store).await?.call_convert(store, &of.into()).await
            })
            .await;
        if let Ok(Ok(objects)) = &hooked.answer {
            let size = objects.iter().map(|object| ENTRY + object.len()).sum();
            let returned = objects.len();
            if let Err(error) = self.check_answer(size) {
                hooked.answer = Err(error);
            } else if returned != expected {
                let message = format!(
                    "processor `{}` returned {returned} objects for {expected}",
                    self.name()
                );
                hooked.answer = Ok(Err(message));
            }
        }
        hooked
    }

    /// Asks a hook to review a request; see [`Processor::convert`] for `ends`.
    pub async fn admit(
        &self,
        mut view: View,
        of: Review,
        moment: Moment,
        ends: Instant,
    ) -> Hooked<Answer> {
        let kind = &of.ref_.kind;
        for object in [&of.object, &of.old].into_iter().flatten().filter(|_| is_secret(kind)) {
            if let Ok(object) = serde_json::from_str(object) {
                view.given(kind, &object);
            }
        }
        let hooked = self
            .hooked(Ok(view.into()), moment, ends, async |store| {
                self.admission(store).await?.call_admit(store, &of.into()).await
            })
            .await;
        let Hooked { answer, log } = hooked;
        let answer = match answer {
            Ok(Ok(answer)) => {
                let mut answer = Answer::from(answer);
                let size = answer_size(&answer);
                bounds::shorten_answer(&mut answer);
                self.check_answer(size).map(|()| Ok(answer))
            }
            Ok(Err(message)) => Ok(Err(message)),
            Err(error) => Err(error),
        };
        Hooked { answer, log }
    }

    /// Makes one call of a hook.
    async fn hooked<T>(
        &self,
        outside: Result<Outside, &'static str>,
        moment: Moment,
        ends: Instant,
        call: impl AsyncFnOnce(&mut Store<State>) -> wasmtime::Result<Result<T, String>>,
    ) -> Hooked<T> {
        let asked = Instant::now();
        let engine = &self.shared.engine;
        let slots = engine.hook_slots().take(&self.tenant, || engine.delayed());
        let slots = timeout_at(ends.into(), slots).await;
        let start = Instant::now();
        let (Ok(_slots), false) = (slots, start >= ends) else {
            let limit = ends.saturating_duration_since(asked);
            let error = Error::Crowded { processor: self.name().to_owned(), limit };
            return Hooked { answer: Err(error), log: Vec::new() };
        };
        let _ticks = self.shared.engine.tick();
        let limits = self.hook_limits(ends - start);
        let caller = Caller {
            tenant: self.tenant.clone(),
            slot_of: self.tenant.hook_id(),
            turn_of: self.tenant.hook_id(),
            // Not cancellable: the deadline is near.
            ends: CancellationToken::new(),
        };
        let mut store =
            self.store(&limits, outside, moment, (start, limits.outcome_copy()), caller);
        let answer = call(&mut store).await;
        let answer = answer.map_err(|source| self.error(&limits, &store, source));
        let answer = answer.map(|answer| {
            answer.map_err(|mut message| {
                bounds::text::cut(&mut message, bounds::FAILURE);
                message
            })
        });
        let State { reading, log, .. } = store.into_data();
        let (log, _) = log.lock().finish();
        let mut hooked = Hooked { answer, log };
        if let Some(view) = reading.finish() {
            hooked.mask(&view.finish());
        }
        hooked
    }

    fn hook_limits(&self, left: Duration) -> Limits {
        let limits = self.limits().clone();
        Limits { deadline: limits.deadline.min(left), outcome: HOOK_ANSWER, ..limits }
    }

    fn check_answer(&self, size: usize) -> Result<(), Error> {
        if size <= HOOK_ANSWER {
            return Ok(());
        }
        Err(Error::OutcomeTooLarge {
            processor: self.name().to_owned(),
            limit: HOOK_ANSWER,
            found: format!("the answer of a hook has {size} bytes"),
        })
    }
}

fn not_exported(interface: &str) -> wasmtime::Error {
    wasmtime::Error::msg(format!("the component does not export `{interface}`"))
}

fn answer_size(answer: &Answer) -> usize {
    let warnings: usize = answer.warnings.iter().map(|warning| ENTRY + warning.len()).sum();
    warnings
        + match &answer.verdict {
            Verdict::Allow => 0,
            Verdict::Deny(denial) => denial.message.len(),
            Verdict::Change(object) => object.len(),
        }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt as _;

    use super::{
        super::{budget::Budget, library::answers::Answers},
        *,
    };

    #[tokio::test]
    async fn no_namespace_takes_the_last_slots_and_no_processor_those_of_its_namespace() {
        let (slots, over) = (HookSlots::new(16), CancellationToken::new());
        let tenant =
            |name: &str| Tenant::new(name, &over, &Arc::new(Answers::new(0)), &Budget::new(0));
        let take = |name: &str| slots.take(&tenant(name), || ()).now_or_never();
        let processors: Vec<Tenant> = (0..16).map(|at| tenant(&format!("hostile/p{at}"))).collect();
        let greedy = &processors[0];
        let mut held = Vec::new();
        while let Some(taken) = slots.take(greedy, || ()).now_or_never() {
            held.push(taken);
        }
        assert_eq!(held.len(), 6);
        let of_others = processors[1..].iter();
        held.extend(of_others.filter_map(|of| slots.take(of, || ()).now_or_never()));
        assert_eq!(held.len(), 7, "the share of the namespace");
        let mut others = ["a/p", "b/p", "c/p", "d/p"].map(take);
        assert!(others.iter().all(Option::is_some));
        others[0] = None;
        held.pop();
        assert!(slots.take(&processors[1], || ()).now_or_never().is_some(), "one was given back");
    }
}
