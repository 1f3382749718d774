//! What users are refused: more watches than they may have, and stores that are too large.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Needs, Open, Started, Steps, User, Watches};
use crate::{
    grant,
    path::Fields,
    run::LimitMet,
    store::Wanted,
    view::{Limited, Met},
    watch::Watch,
};

/// After this long a store that was too large is tried again: objects may have gone, and one list of them is little in that time.
const TRIED_AGAIN: Duration = Duration::from_mins(10);

/// What a user is refused.
#[derive(Debug, Default)]
pub(super) struct Refused {
    /// Whether something is not watched since the user has as many watches as it may.
    watches: bool,
    /// Whether something was demanded beyond that, which is not remembered.
    turned_away: bool,
    /// What was too large, and when it is tried again.
    stores: Vec<(Watch, Instant)>,
    /// Tells the reads.
    limited: Limited,
}

// === impl Refused ===

impl Refused {
    pub(super) fn new(limited: Limited) -> Self {
        Self { limited, ..Self::default() }
    }

    pub(super) fn plan_anew(&mut self) {
        self.watches = false;
    }

    pub(super) fn no_more_watches(&mut self) {
        self.watches = true;
    }

    pub(super) fn turn_away(&mut self) {
        self.turned_away = true;
    }

    pub(super) fn is_refused(&self, watch: &Watch) -> bool {
        self.stores.iter().any(|(refused, _)| refused == watch)
    }

    fn has_too_many_watches(&self) -> bool {
        self.watches || self.turned_away
    }

    /// Says whether something is tried again.
    fn try_again(&mut self, now: Instant) -> bool {
        let before = self.stores.len();
        self.stores.retain(|(_, again)| *again > now);
        self.stores.len() < before
    }
}

// === impl Watches ===

impl Watches {
    /// A store has grown. What it holds for users that are gone is dropped first. Then it is not read any more for users that would
    /// have more in all their stores together than they may if nobody else read these; for the others it is kept on, without what
    /// only those wanted. It is closed when nobody is left.
    ///
    /// `held`: roughly the bytes of a store, all of them or with these fields alone.
    pub(in crate::run) fn grown(
        &mut self,
        watch: &Watch,
        now: Instant,
        held: impl Fn(&Watch, Option<&Fields>) -> usize,
    ) -> Option<Steps> {
        let at = self.open.iter().position(|open| open.started.watch == *watch)?;
        // To know what one alone makes the host hold takes time, and all of it is never less.
        if self.past(at, |_, watch| held(watch, None)).is_empty() {
            return None;
        }
        let wanted = |user: &User| self.users.get(user)?.wanted_of(watch);
        let is_for_those_gone = |open: &Open| {
            let all = union(open.users.iter().filter_map(wanted));
            all.is_some_and(|all| is_more(&open.wanted, &all))
        };
        if !self.open.get(at).is_some_and(is_for_those_gone) {
            let alone = |user: &User, watch: &Watch| {
                let wanted = self.users.get(user).and_then(|needs| needs.wanted_of(watch));
                wanted.map_or(0, |wanted| held(watch, Some(&wanted.fields)))
            };
            let past = self.past(at, alone);
            if past.is_empty() {
                return None;
            }
            self.open.get_mut(at)?.users.retain(|user| !past.contains(user));
            for user in &past {
                if let Some(needs) = self.users.get_mut(user) {
                    needs.refused.stores.push((watch.clone(), now + TRIED_AGAIN));
                }
            }
        }
        let open = self.open.get_mut(at)?;
        let wanted = |user: &User| self.users.get(user)?.wanted_of(watch);
        let left =
            union(open.users.iter().filter_map(wanted)).filter(|left| is_more(&open.wanted, left));
        let narrowed: Option<(Started, Wanted)> = left.map(|left| {
            open.wanted = left.clone();
            (open.started.clone(), left)
        });
        tracing::warn!(kind = %watch.kind.kind, group = %watch.kind.group, "a store is larger than a processor may have, and is not kept for it");
        let mut steps = self.plan();
        steps.narrowed.extend(narrowed);
        Some(steps)
    }

    /// Of the users of an open watch, those whose stores hold more than they may.
    fn past(&self, at: usize, held: impl Fn(&User, &Watch) -> usize) -> Vec<User> {
        let most = self.bounds.store_mib.saturating_mul(1 << 20);
        let users = self.open.get(at).map(|open| &open.users);
        let all = |user: &User| {
            let theirs = self.open.iter().filter(|open| open.users.contains(user));
            theirs.map(|open| held(user, &open.started.watch)).fold(0, usize::saturating_add)
        };
        users.into_iter().flatten().copied().filter(|user| all(user) > most).collect()
    }

    /// Opens again what was refused long enough ago.
    pub(in crate::run) fn try_again(&mut self, now: Instant) -> Option<Steps> {
        let again = |needs: &mut Needs| needs.refused.try_again(now);
        let is_any = self.users.values_mut().map(again).fold(false, |any, one| any | one);
        is_any.then(|| self.plan())
    }

    /// The limits that a user meets.
    pub(in crate::run) fn limits_met(&self, user: User) -> Vec<LimitMet> {
        let Some(refused) = self.users.get(&user).map(|needs| &needs.refused) else {
            return Vec::new();
        };
        let mut met = Vec::new();
        if refused.has_too_many_watches() {
            met.push(LimitMet { reason: "WatchesLimited", message: self.of_watches() });
        }
        if !refused.stores.is_empty() {
            let mut kinds: Vec<String> =
                refused.stores.iter().map(|(watch, _)| grant::display_kind(&watch.kind)).collect();
            kinds.sort();
            kinds.dedup();
            let message = format!(
                "{}: {} not kept, and tried again after {} minutes",
                self.of_stores(),
                kinds.join(", "),
                TRIED_AGAIN.as_secs() / 60
            );
            met.push(LimitMet { reason: "StoresLimited", message });
        }
        met
    }

    /// Tells the reads of users what they are refused.
    pub(super) fn tell_limits(&self) {
        let why_watches: Arc<str> = self.of_watches().into();
        let why_stores: Arc<str> = self.of_stores().into();
        for Needs { refused, .. } in self.users.values() {
            let stores = refused.stores.iter().map(|(watch, _)| watch);
            refused.limited.set(Met {
                watches: refused.has_too_many_watches().then(|| Arc::clone(&why_watches)),
                stores: stores.map(|watch| (watch.kind.clone(), watch.scope.clone())).collect(),
                stores_why: Arc::clone(&why_stores),
            });
        }
    }

    fn of_watches(&self) -> String {
        format!(
            "it is not watched, as the processor needs more than {} watches (`--max-watches`)",
            self.bounds.watches
        )
    }

    fn of_stores(&self) -> String {
        format!(
            "what is watched for the processor takes more than {} MiB (`--max-store-mib`)",
            self.bounds.store_mib
        )
    }
}

// === impl Needs ===

impl Needs {
    /// All that is wanted of the objects of a watch.
    fn wanted_of(&self, watch: &Watch) -> Option<Wanted> {
        let wants = self.wants.iter().filter(|(kind, scope, _)| watch.covers(kind, scope));
        union(wants.map(|(.., wanted)| wanted.clone()))
    }
}

fn union(all: impl Iterator<Item = Wanted>) -> Option<Wanted> {
    all.reduce(|all, more| all.union(&more))
}

/// Whether one has all that the other has, and more.
fn is_more(one: &Wanted, other: &Wanted) -> bool {
    let has_all = one.fields.covers_all(&other.fields)
        && one.matching.is_superset(&other.matching)
        && (one.written || !other.written);
    has_all && one != other
}

#[cfg(test)]
mod tests;
