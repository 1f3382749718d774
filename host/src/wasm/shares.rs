//! Slots that processors share: for calls, and for the turns of calls that compute for long.
//!
//! *Guarantees.* A processor holds at most its share. Reserved slots go only to a processor that
//! holds none, so that no other processor can keep it waiting. Waiting processors get one slot each
//! in turn, however many calls they have; the calls of a processor are first come, first served.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};

use super::LONG_WAIT;

/// Identifies a holder of slots. Never reused for another holder.
pub(super) type Id = u64;

/// The number of slots, and limits on who may hold them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) total: usize,
    /// Slots reserved for holders that hold none.
    pub(super) reserve: usize,
    /// The maximum number of slots of one processor.
    pub(super) share: usize,
}

/// Calls waiting for a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    pub calls: usize,
    /// The wait of the first of them so far.
    pub longest: Duration,
}

/// Slots shared between processors.
pub(super) struct Shares {
    /// Locked for a few lines, never while waiting.
    core: Mutex<Core>,
}

/// A slot, held or waited for. Released on drop.
pub(super) struct Slot<'a> {
    shares: &'a Shares,
    ticket: Ticket,
}

/// A slot that owns its [`Shares`], for use in a task. Released on drop.
pub(super) struct OwnedSlot {
    shares: Arc<Shares>,
    ticket: Ticket,
}

/// Identifies one request for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    of: Id,
    number: u64,
}

/// Resolves once the slot is granted.
pub(super) type Granted = oneshot::Receiver<()>;

/// The state, without waiting.
struct Core {
    bounds: Bounds,
    taken: usize,
    /// Holders that hold slots or wait for one.
    holders: HashMap<Id, Holder>,
    /// Waiting holders, the next one first.
    turn: VecDeque<Id>,
    numbers: u64,
}

#[derive(Default)]
struct Holder {
    held: usize,
    waiting: VecDeque<Waiter>,
}

struct Waiter {
    number: u64,
    since: Instant,
    granted: oneshot::Sender<()>,
}

/// Waits for a requested slot. `delayed` is called after a wait of [`LONG_WAIT`].
pub(super) async fn granted<S>((slot, granted): (S, Option<Granted>), delayed: impl FnOnce()) -> S {
    if let Some(mut granted) = granted {
        let granted = if let Ok(granted) = timeout(LONG_WAIT, &mut granted).await {
            granted
        } else {
            delayed();
            granted.await
        };
        granted.expect("a waiter stays in the queue until its slot is granted");
    }
    slot
}

// === impl Bounds ===

impl Bounds {
    /// Reserves an eighth of the slots; one processor may hold half of the rest.
    pub(super) fn of_total(total: usize) -> Self {
        let reserve = total / 8;
        Self { total, reserve, share: (total - reserve) / 2 }
    }
}

// === impl Shares ===

impl Shares {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { core: Mutex::new(Core::new(bounds)) }
    }

    /// Requests a slot. Returns a receiver to wait on, unless the slot is granted at once. The
    /// ticket must be given back in any case.
    pub(super) fn ask(&self, of: Id) -> (Ticket, Option<Granted>) {
        self.core.lock().ask(of, Instant::now)
    }

    /// Requests a slot that is released on drop.
    pub(super) fn slot(&self, of: Id) -> (Slot<'_>, Option<Granted>) {
        let (ticket, granted) = self.ask(of);
        (Slot { shares: self, ticket }, granted)
    }

    /// Requests a slot that can be moved into a task.
    pub(super) fn owned_slot(self: &Arc<Self>, of: Id) -> (OwnedSlot, Option<Granted>) {
        let (ticket, granted) = self.ask(of);
        (OwnedSlot { shares: Arc::clone(self), ticket }, granted)
    }

    /// Releases a slot, or stops waiting for it.
    pub(super) fn give_back(&self, ticket: Ticket) {
        self.core.lock().give_back(ticket);
    }

    /// Requests a slot, or keeps the slot `held`. The holder keeps it if no holder waits and it
    /// holds no more than its share; otherwise it joins the end of the queue. `share` returns the
    /// share of one holder, given whether others hold or want slots.
    pub(super) fn renew(
        &self,
        of: Id,
        held: Option<Ticket>,
        share: impl FnOnce(bool) -> usize,
    ) -> (Ticket, Option<Granted>) {
        self.core.lock().renew(of, held, share, Instant::now)
    }

    pub(super) fn waiting(&self, of: Id) -> Waiting {
        self.core.lock().waiting(of, Instant::now())
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.shares.give_back(self.ticket);
    }
}

impl Drop for OwnedSlot {
    fn drop(&mut self) {
        self.shares.give_back(self.ticket);
    }
}

// === impl Core ===

impl Core {
    fn new(bounds: Bounds) -> Self {
        Self { bounds, taken: 0, holders: HashMap::new(), turn: VecDeque::new(), numbers: 0 }
    }

    fn ask(&mut self, of: Id, now: impl FnOnce() -> Instant) -> (Ticket, Option<Granted>) {
        let waits = self.holders.get(&of).is_some_and(|holder| !holder.waiting.is_empty());
        if waits || !self.may_hold(of) {
            let (ticket, granted) = self.wait(of, now());
            return (ticket, Some(granted));
        }
        self.numbers += 1;
        self.holders.entry(of).or_default().held += 1;
        self.taken += 1;
        (Ticket { of, number: self.numbers }, None)
    }

    fn wait(&mut self, of: Id, since: Instant) -> (Ticket, Granted) {
        self.numbers += 1;
        let (granted, wait) = oneshot::channel();
        let holder = self.holders.entry(of).or_default();
        if holder.waiting.is_empty() {
            self.turn.push_back(of);
        }
        holder.waiting.push_back(Waiter { number: self.numbers, since, granted });
        (Ticket { of, number: self.numbers }, wait)
    }

    /// Returns whether this holder may have one more slot.
    fn may_hold(&self, of: Id) -> bool {
        let Bounds { total, reserve, share } = self.bounds;
        let free = total.saturating_sub(self.taken);
        let held = self.holders.get(&of).map_or(0, |holder| holder.held);
        if held == 0 { free > 0 } else { held < share && free > reserve }
    }

    fn give_back(&mut self, ticket: Ticket) {
        let Some(holder) = self.holders.get_mut(&ticket.of) else { return };
        let at = holder.waiting.iter().position(|waiter| waiter.number == ticket.number);
        if let Some(at) = at {
            holder.waiting.remove(at);
            if holder.waiting.is_empty() {
                self.turn.retain(|of| *of != ticket.of);
            }
        } else {
            holder.held -= 1;
            self.taken -= 1;
        }
        if holder.held == 0 && holder.waiting.is_empty() {
            self.holders.remove(&ticket.of);
        }
        self.grant();
    }

    /// Grants free slots to the waiting holders in turn.
    fn grant(&mut self) {
        while let Some(at) = self.turn.iter().position(|of| self.may_hold(*of)) {
            let Some(of) = self.turn.remove(at) else { return };
            let Some(holder) = self.holders.get_mut(&of) else { continue };
            let Some(waiter) = holder.waiting.pop_front() else { continue };
            holder.held += 1;
            self.taken += 1;
            if !holder.waiting.is_empty() {
                self.turn.push_back(of);
            }
            // A waiter that is gone gives back its ticket, and with it the slot.
            let _ = waiter.granted.send(());
        }
    }

    fn renew(
        &mut self,
        of: Id,
        held: Option<Ticket>,
        share: impl FnOnce(bool) -> usize,
        now: impl FnOnce() -> Instant,
    ) -> (Ticket, Option<Granted>) {
        let is_known = self.holders.contains_key(&of);
        self.bounds.share = share(self.holders.len() > usize::from(is_known));
        self.grant();
        let Some(ticket) = held else { return self.ask(of, now) };
        let held = self.holders.get(&of).map_or(0, |holder| holder.held);
        if self.turn.is_empty() && held <= self.bounds.share {
            return (ticket, None);
        }
        // Joins the queue before its slot is free, so that earlier waiters come first.
        let (next, granted) = self.wait(of, now());
        self.give_back(ticket);
        (next, Some(granted))
    }

    fn waiting(&self, of: Id, now: Instant) -> Waiting {
        let Some(holder) = self.holders.get(&of) else { return Waiting::default() };
        let first = holder.waiting.front().map(|first| now.saturating_duration_since(first.since));
        Waiting { calls: holder.waiting.len(), longest: first.unwrap_or_default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn core(total: usize, reserve: usize, share: usize) -> Core {
        Core::new(Bounds { total, reserve, share })
    }

    /// Requests `times` slots for one holder. Returns the granted tickets, and the waiting ones.
    fn ask(core: &mut Core, of: Id, times: usize) -> (Vec<Ticket>, Vec<(Ticket, Granted)>) {
        let (mut held, mut waits) = (Vec::new(), Vec::new());
        for _ in 0..times {
            match core.ask(of, Instant::now) {
                (ticket, None) => held.push(ticket),
                (ticket, Some(granted)) => waits.push((ticket, granted)),
            }
        }
        (held, waits)
    }

    fn granted(waits: &mut [(Ticket, Granted)]) -> usize {
        waits.iter_mut().filter_map(|(_, granted)| granted.try_recv().ok()).count()
    }

    #[test]
    fn a_processor_holds_no_more_slots_than_its_share() {
        let mut core = core(16, 2, 7);
        let (held, waits) = ask(&mut core, 1, 256);
        assert_eq!((held.len(), waits.len()), (7, 249));
        let (others, _) = ask(&mut core, 2, 256);
        assert_eq!(others.len(), 7);
        assert_eq!(core.waiting(1, Instant::now()).calls, 249);
    }

    #[test]
    fn reserved_slots_go_only_to_holders_without_slots() {
        let mut core = core(16, 2, 7);
        let all: Vec<usize> = (1..5).map(|of| ask(&mut core, of, 8).0.len()).collect();
        assert_eq!(all, [7, 7, 1, 1]);
        let (held, waits) = ask(&mut core, 5, 1);
        assert_eq!((held.len(), waits.len()), (0, 1), "all are taken");
    }

    #[test]
    fn waiting_holders_are_granted_slots_in_turn() {
        let mut core = core(2, 0, 2);
        let (held, _) = ask(&mut core, 1, 2);
        let (_, mut many) = ask(&mut core, 2, 100);
        let (_, mut few) = ask(&mut core, 3, 2);
        for ticket in held {
            core.give_back(ticket);
        }
        assert_eq!((granted(&mut many), granted(&mut few)), (1, 1), "though 100 came before");
    }

    #[test]
    fn a_processor_that_holds_none_comes_before_one_that_has_its_share() {
        let mut core = core(4, 1, 3);
        let (mut held, mut waits) = ask(&mut core, 1, 10);
        assert_eq!(held.len(), 3);
        assert_eq!(ask(&mut core, 2, 1).0.len(), 1);
        let (_, mut newcomer) = ask(&mut core, 3, 1);
        core.give_back(held.pop().unwrap());
        assert_eq!((granted(&mut waits), granted(&mut newcomer)), (0, 1));
    }

    #[test]
    fn a_cancelled_request_leaves_the_queue() {
        let mut core = core(1, 0, 1);
        let (held, _) = ask(&mut core, 1, 1);
        let (_, waits) = ask(&mut core, 2, 2);
        let (_, mut last) = ask(&mut core, 3, 1);
        for (ticket, _) in waits {
            core.give_back(ticket);
        }
        for ticket in held {
            core.give_back(ticket);
        }
        assert_eq!(granted(&mut last), 1);
        for (ticket, _) in last {
            core.give_back(ticket);
        }
        assert!(core.holders.is_empty() && core.turn.is_empty() && core.taken == 0);
    }

    /// Simulates 64 loops of processor 1 beside one loop of processor 2, on two threads. Returns
    /// the number of turns of each.
    fn turns(milliseconds: usize) -> [usize; 2] {
        let mut core = core(2, 0, 2);
        let share = |others: bool| if others { 1 } else { 2 };
        let mut calls: Vec<(Id, Ticket, Option<Granted>)> = Vec::new();
        for of in std::iter::repeat_n(1, 64).chain([2]) {
            let (ticket, granted) = core.renew(of, None, share, Instant::now);
            calls.push((of, ticket, granted));
        }
        let mut computed = [0; 2];
        for _ in 0..milliseconds {
            let has_turn = |(_, _, waits): &mut (Id, Ticket, Option<Granted>)| {
                waits.as_mut().is_none_or(|granted| granted.try_recv().is_ok())
            };
            let now: Vec<bool> = calls.iter_mut().map(has_turn).collect();
            for ((of, ticket, waits), _) in calls.iter_mut().zip(now).filter(|(_, now)| *now) {
                computed[usize::try_from(*of - 1).unwrap()] += 1;
                (*ticket, *waits) = core.renew(*of, Some(*ticket), share, Instant::now);
            }
        }
        computed
    }

    #[test]
    fn many_loops_of_one_processor_compute_as_much_as_one_of_another() {
        let [many, one] = turns(1000);
        assert!(one >= 990, "{one} of 1000");
        assert!((990..=1010).contains(&many), "{many} of 1000");
    }

    #[test]
    fn a_processor_that_is_alone_has_all_of_it() {
        let mut core = core(2, 0, 2);
        let share = |others: bool| if others { 1 } else { 2 };
        for _ in 0..2 {
            assert!(core.renew(1, None, share, Instant::now).1.is_none());
        }
        let (ticket, granted) = core.renew(1, None, share, Instant::now);
        assert!(granted.is_some());
        core.give_back(ticket);
    }

    #[test]
    fn a_holder_above_its_share_releases_a_slot_on_renewal() {
        let mut core = core(2, 0, 2);
        let both = [(); 2].map(|()| core.renew(1, None, |_| 2, Instant::now).0);
        let (_, granted) = core.renew(1, Some(both[0]), |_| 1, Instant::now);
        assert!(granted.unwrap().try_recv().is_err(), "it waits for its other call");
        assert!(
            core.renew(1, Some(both[1]), |_| 1, Instant::now).1.is_some(),
            "and they alternate"
        );
        assert_eq!(core.taken, 1);
    }
}
