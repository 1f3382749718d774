//! Refusals: watches beyond the bound of a version, and stores that are too large.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use mortise_core::{
    contract::display_kind,
    grant::{Limited, LimitsMet},
    store::{IndexUser, Wanted},
};
use tokio::time::Instant;

use super::{Needs, Open, Started, Steps, User, Watches};
use crate::{cluster::watch::Watch, host::LimitMet, reason::Reason};

/// The time after which a store that was too large is tried again: objects may have been deleted,
/// and one list of them costs little in that time.
const REOPEN_DELAY: Duration = Duration::from_mins(10);

/// The refusals of one version.
#[derive(Debug, Default)]
pub(super) struct Refused {
    /// True if a want has no watch because the version has its maximum number of watches.
    watches: bool,
    /// True if a demand was dropped because the version has demanded its maximum number of watches.
    turned_away: bool,
    /// The watches whose stores were too large, each with the time of its next attempt.
    stores: Vec<(Watch, Instant)>,
    /// The handle that passes the refusals to the version's reads.
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

    /// Gives back the indexes of the version, which was removed.
    pub(super) fn end(&self) {
        self.index_user().end();
    }

    fn index_user(&self) -> &IndexUser {
        self.limited.index_user()
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

    /// Drops expired refusals of stores. Returns whether there were any.
    fn try_again(&mut self, now: Instant) -> bool {
        let before = self.stores.len();
        self.stores.retain(|(_, again)| *again > now);
        self.stores.len() < before
    }
}

// === impl Watches ===

impl Watches {
    /// Handles a store that has grown. Data that it holds only for removed versions is dropped
    /// first. Otherwise the store is taken from each version whose stores together would exceed
    /// [`Bounds::store_mib`] even if no other version used them. It is kept for the other versions,
    /// without the data that only the refused ones wanted, and closed when no version is left.
    /// Returns `None` if all versions are within their bounds, or if the watch is not open.
    ///
    /// `held` returns roughly the bytes of a store: all of them, or those of one version alone.
    ///
    /// [`Bounds::store_mib`]: crate::host::Bounds::store_mib
    pub(in crate::host) fn grown(
        &mut self,
        watch: &Watch,
        now: Instant,
        held: impl Fn(&Watch, Option<(&Wanted, &IndexUser)>) -> usize,
    ) -> Option<Steps> {
        let at = self.open.iter().position(|open| open.started.watch == *watch)?;
        // The size with the fields of one version alone takes time to compute, and is never more
        // than the size of the whole store.
        let open = self.open.get(at)?;
        let is_past = |user: &&User| self.is_past(**user, |watch| held(watch, None));
        let mut past: Vec<User> = open.users.iter().filter(is_past).copied().collect();
        if past.is_empty() {
            return None;
        }
        let wanted = |user: &User| self.users.get(user)?.wanted_of(watch);
        let all = union(open.users.iter().filter_map(wanted));
        let is_for_those_gone = all.is_some_and(|all| is_more(&open.wanted, &all));
        if !is_for_those_gone {
            past.retain(|user| {
                self.is_past(*user, |watch| {
                    let Some(needs) = self.users.get(user) else { return 0 };
                    let wanted = needs.wanted_of(watch);
                    wanted.map_or(0, |of| held(watch, Some((&of, needs.refused.index_user()))))
                })
            });
            if past.is_empty() {
                return None;
            }
            self.open.get_mut(at)?.users.retain(|user| !past.contains(user));
            for user in &past {
                if let Some(needs) = self.users.get_mut(user) {
                    needs.refused.stores.push((watch.clone(), now + REOPEN_DELAY));
                }
            }
        }
        let narrowed = self.open.get_mut(at)?.narrow(&self.users, 0);
        tracing::warn!(
            kind = display_kind(&watch.kind),
            "a store exceeds --max-store-mib, and is not kept for the processor"
        );
        let mut steps = self.plan();
        steps.narrowed.extend(narrowed);
        Some(steps)
    }

    /// Returns whether all stores of a version together exceed the bound, by the sizes that `held`
    /// returns.
    fn is_past(&self, user: User, held: impl Fn(&Watch) -> usize) -> bool {
        let most = self.bounds.store_mib.saturating_mul(1 << 20);
        let theirs = self.open.iter().filter(|open| open.users.contains(&user));
        theirs.map(|open| held(&open.started.watch)).fold(0, usize::saturating_add) > most
    }

    /// Plans the watches anew if refusals of stores have expired; `None` if none have.
    pub(in crate::host) fn try_again(&mut self, now: Instant) -> Option<Steps> {
        let again = |needs: &mut Needs| needs.refused.try_again(now);
        let is_any = self.users.values_mut().map(again).fold(false, |any, one| any | one);
        is_any.then(|| self.plan())
    }

    /// Returns the limits that a version meets.
    pub(in crate::host) fn limits_met(&self, user: User) -> Vec<LimitMet> {
        let Some(refused) = self.users.get(&user).map(|needs| &needs.refused) else {
            return Vec::new();
        };
        let mut met = Vec::new();
        if refused.has_too_many_watches() {
            met.push(LimitMet { reason: Reason::WatchesLimited, message: self.of_watches() });
        }
        if !refused.stores.is_empty() {
            let mut kinds: Vec<String> =
                refused.stores.iter().map(|(watch, _)| display_kind(&watch.kind)).collect();
            kinds.sort();
            kinds.dedup();
            let message = format!(
                "{}: {} not kept, and tried again after {} minutes",
                self.of_stores(),
                kinds.join(", "),
                REOPEN_DELAY.as_secs() / 60
            );
            met.push(LimitMet { reason: Reason::StoresLimited, message });
        }
        met
    }

    /// Passes the refusals of each version, with the reasons, to its reads.
    pub(super) fn log_limits(&self) {
        let why_watches: Arc<str> = self.of_watches().into();
        let why_stores: Arc<str> = self.of_stores().into();
        for Needs { refused, .. } in self.users.values() {
            let stores = refused.stores.iter().map(|(watch, _)| watch);
            refused.limited.set(LimitsMet {
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

// === impl Open ===

impl Open {
    /// Drops the parts of the objects that no version wants any more if these are more than `spare`
    /// paths. Returns the watch to narrow, and the parts that are left.
    pub(super) fn narrow(
        &mut self,
        users: &BTreeMap<User, Needs>,
        spare: usize,
    ) -> Option<(Started, Wanted)> {
        let watch = &self.started.watch;
        let wanted = self.users.iter().filter_map(|user| users.get(user)?.wanted_of(watch));
        let left = union(wanted).filter(|left| is_more(&self.wanted, left))?;
        if spare > 0 && self.wanted.paths() <= left.paths() + spare {
            return None;
        }
        self.wanted = left.clone();
        Some((self.started.clone(), left))
    }
}

// === impl Needs ===

impl Needs {
    /// Returns the union of the wants that a watch covers.
    fn wanted_of(&self, watch: &Watch) -> Option<Wanted> {
        let wants = self.wants().filter(|(kind, scope, _)| watch.covers(kind, scope));
        union(wants.map(|(.., wanted)| wanted.clone()))
    }
}

fn union(all: impl Iterator<Item = Wanted>) -> Option<Wanted> {
    Wanted::union_of(&all.collect::<Vec<_>>())
}

/// Returns whether `one` is a strict superset of `other`.
fn is_more(one: &Wanted, other: &Wanted) -> bool {
    let has_all = one.fields.covers_all(&other.fields)
        && one.matching.is_superset(&other.matching)
        && (one.written || !other.written);
    has_all && one != other
}

#[cfg(test)]
mod tests;
