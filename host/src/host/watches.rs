//! The open watches: the versions that they are open for, and the rights that they run with. No
//! I/O.

mod limited;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use mortise_core::{
    contract::Kind,
    grant::{
        Demand, Limited,
        rights::{Account, Rights as _},
    },
    queue::ReconcilerId,
    reconcile::StartedReconciler,
    store::{Scope, Wanted},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::limited::Refused;
use super::Bounds;
use crate::cluster::{access::Rights, watch::Watch};

/// The most paths that a store keeps only for versions that were removed, so that it need not be
/// listed again after each swap.
const MAX_SPARE_PATHS: usize = 256;

/// The time after which a watch that reads have demanded is closed if no key depends on it: longer
/// than most back-offs, so that a key that fails for a while need not list its objects again.
pub(super) const UNUSED_PERIOD: Duration = Duration::from_mins(5);

/// The id of a loaded version of a processor, which needs watches.
pub(super) type User = u64;

/// A kind, a scope to watch, and the parts of the objects that are needed.
pub(super) type Want = (Kind, Scope, Wanted);

/// The part of a version that needs a want.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    /// The whole version: its description declares the want.
    Version,
    /// The reconciler of this name: its reads have demanded the want.
    Reconciler(ReconcilerId),
    /// The on-demand reconciler of this name: outcomes have started it for the want.
    Started(ReconcilerId),
}

/// A want with the parts of the version that need it.
#[derive(Debug)]
struct Owned {
    want: Want,
    owners: BTreeSet<Owner>,
    /// The time since which no key depends on a want that reads have demanded, as far as it was
    /// checked.
    unused_since: Option<Instant>,
}

/// The open watches. A watch stays open as long as the account of one of its versions may watch it,
/// and runs with the rights of such an account. Objects that a version's own account may not watch
/// are not watched for that version.
#[derive(Debug, Default)]
pub(super) struct Watches {
    open: Vec<Open>,
    users: BTreeMap<User, Needs>,
    bounds: Bounds,
}

/// The wants of a version, and its rights to watch them.
#[derive(Debug)]
struct Needs {
    /// The rights of the version's account; `None` for the host's own rights.
    rights: Option<Arc<Rights>>,
    /// The wants, in the order in which they came up, each with its owners. Bounds, rights and
    /// refusals are those of the version, whoever owns a want.
    wants: Vec<Owned>,
    refused: Refused,
}

#[derive(Debug)]
struct Open {
    started: Started,
    /// The parts of the objects that the store holds, or will hold.
    wanted: Wanted,
    users: BTreeSet<User>,
}

/// A watch with the rights that it runs with.
#[derive(Clone, Debug)]
pub(super) struct Started {
    pub(super) watch: Watch,
    /// The rights that the watch runs with; `None` for the host's own rights.
    pub(super) rights: Option<Arc<Rights>>,
    /// Cancelled when the watch is closed, or when another one runs in its place.
    pub(super) over: CancellationToken,
}

/// The steps that make the running watches match a plan.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// Watches that no version needs or may watch any more.
    pub(super) closed: Vec<Watch>,
    /// Watches that run with the rights of another account from now on.
    pub(super) handed_over: Vec<Started>,
    /// Watches, with the most that their stores may hold.
    pub(super) narrowed: Vec<(Started, Wanted)>,
    /// Watches, with the least that their stores must hold.
    pub(super) needed: Vec<(Started, Wanted)>,
}

// === impl Watches ===

impl Watches {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, ..Self::default() }
    }

    /// Adds a version with its wants. Refused wants are set in `limited`.
    pub(super) fn add(
        &mut self,
        user: User,
        rights: Option<Arc<Rights>>,
        wants: &[Want],
        limited: Limited,
    ) {
        let of_version = |want: &Want| Owned::new(want.clone(), Owner::Version);
        let wants = wants.iter().map(of_version).collect();
        self.users.insert(user, Needs { rights, wants, refused: Refused::new(limited) });
    }

    /// Removes a version. The next plan closes the watches that only this version needed.
    pub(super) fn remove(&mut self, user: User) {
        if let Some(needs) = self.users.remove(&user) {
            needs.refused.end();
        }
    }

    /// Adds a want that the reads of a version's reconciler have demanded. Returns whether the want
    /// is new, may be watched, and is within the bound on demands. The reconciler becomes an owner
    /// of a known want, too.
    pub(super) fn demand(
        &mut self,
        user: User,
        reconciler: &ReconcilerId,
        demand: &Demand,
    ) -> bool {
        let Some(needs) = self.users.get_mut(&user) else { return false };
        let Demand { kind, scopes, wanted } = demand;
        let is_allowed = |scope: &&Scope| needs.may_demand(kind, scope);
        let Some(scope) = scopes.iter().find(is_allowed) else { return false };
        let want = (kind.clone(), scope.clone(), wanted.clone());
        let owner = Owner::Reconciler(reconciler.clone());
        needs.own(want, owner, self.bounds.watches)
    }

    /// Sets the on-demand reconcilers that a version runs, with their wants. Returns whether the
    /// wants of the version have changed.
    pub(super) fn set_started(&mut self, user: User, started: &[StartedReconciler]) -> bool {
        let Some(needs) = self.users.get_mut(&user) else { return false };
        let is_owner = |want: &Want, owner: &Owner| match owner {
            Owner::Version => true,
            Owner::Reconciler(id) => !id.is_on_demand() || started.iter().any(|of| of.id == *id),
            Owner::Started(id) => {
                started.iter().any(|of| of.id == *id && of.watches.contains(want))
            }
        };
        let before = needs.wants.len();
        needs.wants.retain_mut(|of| {
            of.owners.retain(|owner| is_owner(&of.want, owner));
            !of.owners.is_empty()
        });
        let mut has_changed = needs.wants.len() < before;
        for StartedReconciler { id, watches, .. } in started {
            for want in watches {
                let owner = Owner::Started(id.clone());
                has_changed |= needs.own(want.clone(), owner, self.bounds.watches);
            }
        }
        has_changed
    }

    /// Returns the wants that only reads have demanded.
    pub(super) fn demanded(&self) -> Vec<(User, Kind, Scope)> {
        let of_user = |(user, needs): (&User, &Needs)| {
            let demanded = needs.wants.iter().filter(|of| of.is_demanded());
            let demanded = demanded.map(|of| (*user, of.want.0.clone(), of.want.1.clone()));
            demanded.collect::<Vec<_>>()
        };
        self.users.iter().flat_map(of_user).collect()
    }

    /// Gives up demanded wants that no key depends on now, and has not depended on for
    /// [`UNUSED_PERIOD`], by the calls of this function since. Returns whether there are any.
    pub(super) fn give_up_unused(&mut self, unused: &[(User, Kind, Scope)], now: Instant) -> bool {
        let mut is_less = false;
        for (user, needs) in &mut self.users {
            needs.wants.retain_mut(|of| {
                let (kind, scope, _) = &of.want;
                let is_it =
                    |one: &(User, Kind, Scope)| (one.0, &one.1, &one.2) == (*user, kind, scope);
                if !of.is_demanded() || !unused.iter().any(is_it) {
                    of.unused_since = None;
                    return true;
                }
                let since = *of.unused_since.get_or_insert(now);
                let stays = now.duration_since(since) < UNUSED_PERIOD;
                is_less |= !stays;
                stays
            });
        }
        is_less
    }

    /// Plans the fewest watches that cover the permitted wants of all versions: an open watch whose
    /// scope covers a want is shared, whichever version it was opened for.
    pub(super) fn plan(&mut self) -> Steps {
        let mut steps = Steps::default();
        self.drop_unneeded_users();
        let Self { open, users, .. } = self;
        for needs in users.values_mut() {
            needs.refused.plan_anew();
        }
        open.retain_mut(|open| {
            let Some(runner) = open.runner(users) else {
                open.started.over.cancel();
                steps.closed.push(open.started.watch.clone());
                return false;
            };
            steps.handed_over.extend(open.hand_over(runner));
            true
        });
        let narrowed = open.iter_mut().filter_map(|open| open.narrow(users, MAX_SPARE_PATHS));
        steps.narrowed.extend(narrowed);
        for (user, (kind, scope, wanted)) in self.unmet() {
            let Some(started) = self.take(user, &kind, &scope, &wanted) else { continue };
            let needed = steps.needed.iter_mut().find(|(held, _)| held.watch == started.watch);
            match needed {
                Some((_, all)) => *all = all.union(&wanted),
                None => steps.needed.push((started, wanted)),
            }
        }
        self.log_limits();
        steps
    }

    /// Plans the watches anew after a cluster has moved: those in it are closed, and opened again.
    pub(super) fn moved(&mut self, cluster: &str) -> Steps {
        let is_there = |open: &mut Open| *open.started.watch.kind.cluster == *cluster;
        let closed: Vec<Watch> = self
            .open
            .extract_if(.., is_there)
            .map(|open| {
                open.started.over.cancel();
                open.started.watch
            })
            .collect();
        let mut steps = self.plan();
        steps.closed.splice(..0, closed);
        steps
    }

    /// Removes versions from watches that they do not need or may not watch any more.
    fn drop_unneeded_users(&mut self) {
        let Self { open, users, .. } = self;
        for open in open {
            let watch = &open.started.watch;
            open.users.retain(|user| users.get(user).is_some_and(|needs| needs.needs(watch)));
        }
    }

    /// Returns the permitted wants without a watch, wide scopes first: then no later want covers a
    /// watch that was opened before, unless the scopes are equal.
    fn unmet(&self) -> Vec<(User, Want)> {
        // The watches of each version: those of all are many, and all versions are planned for.
        let mut open: BTreeMap<User, Vec<&Watch>> = BTreeMap::new();
        for Open { started, users, .. } in &self.open {
            for user in users {
                open.entry(*user).or_default().push(&started.watch);
            }
        }
        let of_user = |(user, needs): (&User, &Needs)| {
            let open = open.get(user).map_or(&[][..], Vec::as_slice);
            let is_unmet = |(kind, scope, _): &&Want| {
                let is_met = open.iter().any(|watch| watch.covers(kind, scope));
                !is_met && needs.may(kind, scope)
            };
            let unmet: Vec<Want> = needs.wants().filter(is_unmet).cloned().collect();
            unmet.into_iter().map(|want| (*user, want)).collect::<Vec<_>>()
        };
        let mut wants: Vec<(User, Want)> = self.users.iter().flat_map(of_user).collect();
        wants.sort_by_key(|(_, (_, scope, _))| {
            (scope.namespace.is_some(), scope.name.is_some(), !scope.labels.is_empty())
        });
        wants
    }

    fn take(&mut self, user: User, kind: &Kind, scope: &Scope, wanted: &Wanted) -> Option<Started> {
        let held = self.open.iter().filter(|open| open.users.contains(&user)).count();
        let needs = self.users.get_mut(&user)?;
        if held >= self.bounds.watches {
            needs.refused.no_more_watches();
            return None;
        }
        let watch = Watch { kind: kind.clone(), scope: scope.clone() };
        let is_given = |open: &&mut Open| {
            let watch = &open.started.watch;
            watch.covers(kind, scope) && !needs.refused.is_refused(watch)
        };
        if let Some(open) = self.open.iter_mut().find(is_given) {
            open.users.insert(user);
            open.wanted = open.wanted.union(wanted);
            return Some(open.started.clone());
        }
        if needs.refused.is_refused(&watch) {
            return None;
        }
        let rights = needs.rights.clone();
        let started = Started { watch, rights, over: CancellationToken::new() };
        let (users, wanted) = ([user].into(), wanted.clone());
        self.open.push(Open { started: started.clone(), wanted, users });
        Some(started)
    }

    /// Returns all open watches.
    pub(super) fn all(&self) -> Vec<Watch> {
        self.open.iter().map(|open| open.started.watch.clone()).collect()
    }

    /// Returns the open watches of these versions.
    pub(super) fn of_users(&self, users: &[User]) -> Vec<Watch> {
        let is_theirs = |open: &&Open| users.iter().any(|user| open.users.contains(user));
        self.open.iter().filter(is_theirs).map(|open| open.started.watch.clone()).collect()
    }
}

// === impl Owned ===

impl Owned {
    fn new(want: Want, owner: Owner) -> Self {
        Self { want, owners: [owner].into(), unused_since: None }
    }

    /// Returns whether only reads have demanded the want.
    fn is_demanded(&self) -> bool {
        self.owners.iter().all(|owner| matches!(owner, Owner::Reconciler(_)))
    }
}

// === impl Needs ===

impl Needs {
    fn wants(&self) -> impl Iterator<Item = &Want> {
        self.wants.iter().map(|of| &of.want)
    }

    /// Adds an owner to a want. Returns whether the want is new and within the bound on wants that
    /// only reconcilers own.
    fn own(&mut self, want: Want, owner: Owner, most: usize) -> bool {
        if let Some(known) = self.wants.iter_mut().find(|known| known.want == want) {
            known.owners.insert(owner);
            known.unused_since = None;
            return false;
        }
        let held = self.wants.iter().filter(|of| !of.owners.contains(&Owner::Version)).count();
        if held >= most {
            self.refused.turn_away();
            return false;
        }
        self.wants.push(Owned::new(want, owner));
        true
    }

    /// Returns whether a scope may be watched. An unknown right counts as granted: the API server
    /// decides when the watch is tried.
    fn may(&self, kind: &Kind, scope: &Scope) -> bool {
        self.rights.as_ref().is_none_or(|rights| rights.may_watch(kind, scope) != Some(false))
    }

    /// Returns whether a scope that a read has demanded may be watched. The read asks for its rights
    /// in another cluster first. If they are unknown by now, the connection is another one: the next
    /// read asks again.
    fn may_demand(&self, kind: &Kind, scope: &Scope) -> bool {
        let may_watch = |rights: &Arc<Rights>| rights.may_watch(kind, scope) == Some(true);
        if kind.cluster.is_empty() {
            self.may(kind, scope)
        } else {
            self.rights.as_ref().is_none_or(may_watch)
        }
    }

    /// Returns whether the account may run a watch. An unknown right counts as granted if a want of
    /// the version covers the scope of the watch, and otherwise as denied.
    fn may_run(&self, Watch { kind, scope }: &Watch) -> bool {
        let Some(rights) = &self.rights else { return true };
        rights.may_watch(kind, scope).unwrap_or_else(|| {
            self.wants().any(|(of, wanted, _)| of == kind && wanted.covers_scope(scope))
        })
    }

    /// Returns whether a watch covers a want that may be watched.
    fn needs(&self, watch: &Watch) -> bool {
        self.wants().any(|(kind, scope, _)| watch.covers(kind, scope) && self.may(kind, scope))
    }

    fn account(&self) -> Option<&Account> {
        self.rights.as_ref().map(|rights| rights.account())
    }
}

// === impl Open ===

impl Open {
    /// Returns a version of the watch whose account may run it, preferably one with the current
    /// account.
    fn runner<'a>(&self, users: &'a BTreeMap<User, Needs>) -> Option<&'a Needs> {
        let able = self.users.iter().filter_map(|user| users.get(user));
        let able: Vec<&Needs> = able.filter(|needs| needs.may_run(&self.started.watch)).collect();
        let present = able.iter().find(|needs| needs.account() == self.account());
        present.or(able.first()).copied()
    }

    /// Gives the watch the rights of `runner`. Returns the watch to restart if it ran with the
    /// rights of another account.
    fn hand_over(&mut self, runner: &Needs) -> Option<Started> {
        let is_same = runner.account() == self.account();
        self.started.rights.clone_from(&runner.rights);
        if is_same {
            return None;
        }
        let former = std::mem::take(&mut self.started.over);
        former.cancel();
        Some(self.started.clone())
    }

    fn account(&self) -> Option<&Account> {
        self.started.rights.as_ref().map(|rights| rights.account())
    }
}

#[cfg(test)]
mod tests {
    use mortise_core::{
        fixture::{description, v1, whole},
        path::Fields,
    };

    use super::*;
    use crate::cluster::{Cluster, access::Access};

    impl Watches {
        /// Adds users with the rights of the host, and returns the watches that their wants need.
        fn assign<'a>(
            &mut self,
            wants: impl IntoIterator<Item = (User, &'a [Want])>,
        ) -> Vec<(Watch, Wanted)> {
            for (user, wants) in wants {
                self.add(user, None, wants, Limited::default());
            }
            let needed = self.plan().needed;
            needed.into_iter().map(|(started, wanted)| (started.watch, wanted)).collect()
        }

        fn release(&mut self, user: User) -> Vec<Watch> {
            self.remove(user);
            self.plan().closed
        }
    }

    fn want(kind: &str, namespace: Option<&str>, name: Option<&str>, fields: &[&str]) -> Want {
        let kind = Kind::home("", "v1", kind);
        let scope = Scope {
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            labels: String::new(),
        };
        let fields = Fields::of(fields.iter().map(|path| path.parse().unwrap()));
        (kind, scope, Wanted { fields, matching: BTreeSet::new(), written: false })
    }

    fn shown(watches: impl IntoIterator<Item = Watch>) -> Vec<String> {
        let part = |part: Option<String>| part.unwrap_or_else(|| "*".into());
        let shown = |watch: Watch| {
            let (namespace, name) = (part(watch.scope.namespace), part(watch.scope.name));
            format!("{} {namespace}/{name}", watch.kind.kind)
        };
        watches.into_iter().map(shown).collect()
    }

    #[test]
    fn a_wide_watch_replaces_narrower_ones_and_distinct_scopes_stay_apart() {
        let mut watches = Watches::default();
        let one = [
            want("ConfigMap", Some("a"), Some("one"), &["data"]),
            want("ConfigMap", Some("b"), Some("two"), &["data"]),
            want("Pod", Some("a"), None, &["metadata.labels"]),
        ];
        let other = [want("Pod", None, None, &["spec.nodeName"])];
        let needed = watches.assign([(1, &one[..]), (2, &other[..])]);
        assert_eq!(shown(watches.all()), ["Pod */*", "ConfigMap a/one", "ConfigMap b/two"]);
        let (_, of_pods) = &needed[0];
        for path in ["metadata.labels", "spec.nodeName"] {
            assert!(of_pods.fields.covers(&path.parse().unwrap()), "{path} is wanted by one");
        }
    }

    #[test]
    fn a_watch_stays_while_one_needs_it_that_was_given_it() {
        let mut watches = Watches::default();
        let (narrow, wide) = ([want("Pod", Some("a"), None, &[])], [want("Pod", None, None, &[])]);
        watches.assign([(1, &narrow[..])]);
        watches.assign([(2, &wide[..]), (3, &narrow[..])]);
        assert_eq!(shown(watches.all()), ["Pod a/*", "Pod */*"]);
        assert!(watches.release(1).is_empty(), "3 was given it too");
        assert_eq!(shown(watches.release(2)), ["Pod */*"]);
        assert!(watches.release(2).is_empty());
        assert_eq!(shown(watches.release(3)), ["Pod a/*"]);
        assert!(watches.all().is_empty());
    }

    #[test]
    fn a_new_version_is_given_the_watches_of_the_former_one() {
        let mut watches = Watches::default();
        let former = [want("Pod", None, None, &[]), want("Secret", Some("a"), None, &[])];
        let new = [want("Pod", Some("a"), None, &[]), want("Service", None, None, &[])];
        watches.assign([(1, &former[..])]);
        let needed = watches.assign([(2, &new[..])]);
        assert_eq!(shown(needed.into_iter().map(|(watch, _)| watch)), ["Service */*", "Pod */*"]);
        assert_eq!(shown(watches.release(1)), ["Secret a/*"]);
    }

    /// Returns the rights of an account to list and watch config maps, in these namespaces (`*`: in
    /// all).
    fn rights(access: &Access, account: &str, namespaces: &[&str]) -> Arc<Rights> {
        let description = Arc::new(description(whole(v1("g", "Rule")), Vec::new()));
        let rights = access.of(&account.parse().unwrap(), &description);
        may(&rights, namespaces);
        rights
    }

    fn may(rights: &Rights, namespaces: &[&str]) {
        for namespace in [None, Some("a"), Some("b")] {
            let is_allowed = namespaces.contains(&namespace.unwrap_or("*"));
            rights.set_answer("ConfigMap", namespace, is_allowed || namespaces.contains(&"*"));
        }
    }

    async fn access() -> Access {
        let api = mortise_embedded_api::EmbeddedApi::new(mortise_embedded_api::Options::default());
        let cluster = Cluster::new(kube::Client::new(api.router(), "default"));
        cluster.resolve(&v1("", "ConfigMap")).await.unwrap().unwrap();
        Access::new(&cluster, None)
    }

    fn runs(steps: &[Started]) -> Vec<String> {
        let account =
            |started: &Started| started.rights.as_ref().map(|of| of.account().to_string());
        steps.iter().map(|started| account(started).unwrap_or_default()).collect()
    }

    fn opened(steps: Steps) -> (Vec<String>, Vec<String>) {
        let started: Vec<Started> = steps.needed.into_iter().map(|(started, _)| started).collect();
        (runs(&started), shown(started.into_iter().map(|started| started.watch)))
    }

    #[tokio::test]
    async fn a_watch_goes_on_with_the_rights_of_another_and_ends_where_nobody_may() {
        let (access, mut watches) = (access().await, Watches::default());
        let wants = [want("ConfigMap", None, None, &[])];
        let (one, two) = (rights(&access, "a/one", &["*"]), rights(&access, "a/two", &["*"]));
        watches.add(1, Some(Arc::clone(&one)), &wants, Limited::default());
        watches.add(2, Some(Arc::clone(&two)), &wants, Limited::default());
        let steps = watches.plan();
        let first = steps.needed[0].0.over.clone();
        assert_eq!(opened(steps), (vec!["a/one".to_owned()], vec!["ConfigMap */*".to_owned()]));
        // A new version of the processor has the same account.
        watches.add(3, Some(rights(&access, "a/one", &["*"])), &wants, Limited::default());
        watches.plan();
        watches.remove(1);
        assert!(watches.plan().handed_over.is_empty() && !first.is_cancelled());
        watches.remove(3);
        let steps = watches.plan();
        assert_eq!(runs(&steps.handed_over), ["a/two"]);
        assert!(first.is_cancelled() && !steps.handed_over[0].over.is_cancelled());
        let second = steps.handed_over[0].over.clone();
        may(&two, &[]);
        assert_eq!(shown(watches.plan().closed), ["ConfigMap */*"]);
        assert!(second.is_cancelled() && watches.all().is_empty());
        may(&two, &["*"]);
        assert_eq!(opened(watches.plan()).0, ["a/two"], "as soon as it may again");
    }

    #[tokio::test]
    async fn a_wide_watch_is_not_handed_to_an_account_that_was_asked_for_a_part_only() {
        let (access, mut watches) = (access().await, Watches::default());
        let wide = rights(&access, "a/one", &["*"]);
        let description = Arc::new(description(whole(v1("g", "Rule")), Vec::new()));
        let narrow = access.of(&"a/two".parse().unwrap(), &description);
        narrow.set_answer("ConfigMap", Some("a"), true);
        let of_a = [want("ConfigMap", Some("a"), None, &[])];
        watches.add(
            1,
            Some(Arc::clone(&wide)),
            &[want("ConfigMap", None, None, &[])],
            Limited::default(),
        );
        watches.add(2, Some(narrow), &of_a, Limited::default());
        watches.plan();
        assert_eq!(shown(watches.all()), ["ConfigMap */*"]);
        may(&wide, &[]);
        let steps = watches.plan();
        assert!(steps.handed_over.is_empty(), "the API server would refuse it again and again");
        assert_eq!(shown(steps.closed.clone()), ["ConfigMap */*"]);
        assert_eq!(opened(steps), (vec!["a/two".to_owned()], vec!["ConfigMap a/*".to_owned()]));
    }

    #[tokio::test]
    async fn an_account_with_rights_in_one_namespace_gets_a_watch_of_it() {
        let (access, mut watches) = (access().await, Watches::default());
        let (wide, narrow) = (rights(&access, "a/one", &["*"]), rights(&access, "a/two", &["a"]));
        let of_all = [want("ConfigMap", None, None, &[])];
        let of_a = [want("ConfigMap", Some("a"), None, &[])];
        watches.add(1, Some(Arc::clone(&wide)), &of_all, Limited::default());
        watches.add(2, Some(narrow), &of_a, Limited::default());
        let three = Some(rights(&access, "a/three", &["b"]));
        watches.add(3, three, &of_all, Limited::default());
        watches.plan();
        assert_eq!(shown(watches.all()), ["ConfigMap */*"]);
        assert!(watches.of_users(&[3]).is_empty(), "it may not watch what it wants");
        may(&wide, &[]);
        let steps = watches.plan();
        assert_eq!(shown(steps.closed.clone()), ["ConfigMap */*"]);
        assert_eq!(opened(steps), (vec!["a/two".to_owned()], vec!["ConfigMap a/*".to_owned()]));

        let (kind, scope, wanted) = of_all[0].clone();
        let in_b = Scope { namespace: Some("b".into()), ..scope.clone() };
        let demand = Demand { kind, scopes: vec![scope, in_b], wanted };
        let by = "rules".into();
        assert!(watches.demand(3, &by, &demand), "of what it wants it may watch a part");
        assert_eq!(opened(watches.plan()).1, ["ConfigMap b/*"]);
        assert!(!watches.demand(3, &by, &demand));
    }

    #[tokio::test]
    async fn rights_in_another_cluster_that_are_not_known_allow_no_demand() {
        let (access, mut watches) = (access().await, Watches::default());
        watches.add(1, Some(rights(&access, "a/one", &["*"])), &[], Limited::default());
        let (kind, scope, wanted) = want("ConfigMap", None, None, &[]);
        let kind = Kind { cluster: "there".into(), ..kind };
        let demand = Demand { kind, scopes: vec![scope], wanted };
        assert!(!watches.demand(1, &"rules".into(), &demand));
    }

    /// Returns `objects`, started for a kind with these wants.
    fn started(kind: &str, watches: &[Want]) -> StartedReconciler {
        StartedReconciler {
            id: ReconcilerId::on_demand("objects", &Kind::home("", "v1", kind)),
            watches: watches.to_vec(),
            min_interval: 0,
            selections: Vec::new(),
        }
    }

    fn demand_of(of: &Want) -> Demand {
        let (kind, scope, wanted) = of.clone();
        Demand { kind, scopes: vec![scope], wanted }
    }

    #[test]
    fn as_many_watches_are_closed_as_were_opened_when_selections_are_stopped() {
        let mut watches = Watches::default();
        watches.assign([(1, &[want("Rule", None, None, &[])][..])]);
        let of = |namespace: &str| want("Pod", Some(namespace), None, &[]);
        let (mut opened, mut closed) = (0, 0);
        for round in 0..100 {
            let namespaces = [format!("n{round}"), format!("n{}", round + 1)];
            let wants: Vec<Want> = namespaces.iter().map(|of_it| of(of_it)).collect();
            assert!(watches.set_started(1, &[started("Pod", &wants)]));
            assert!(!watches.set_started(1, &[started("Pod", &wants)]), "nothing new");
            let steps = watches.plan();
            (opened, closed) = (opened + steps.needed.len(), closed + steps.closed.len());
        }
        // Its reads demand a watch, too, which is given up with the reconciler.
        let id = ReconcilerId::on_demand("objects", &Kind::home("", "v1", "Pod"));
        assert!(watches.demand(1, &id, &demand_of(&want("Secret", None, None, &[]))));
        opened += watches.plan().needed.len();
        assert!(watches.set_started(1, &[]));
        closed += watches.plan().closed.len();
        assert_eq!((opened, closed), (102, 102));
        assert_eq!(shown(watches.all()), ["Rule */*"]);
    }

    #[test]
    fn a_demanded_watch_is_closed_after_five_minutes_without_a_key_that_depends_on_it() {
        let (mut watches, start) = (Watches::default(), Instant::now());
        let (read, declared) = (want("Secret", None, None, &[]), want("Pod", None, None, &[]));
        watches.assign([(1, std::slice::from_ref(&declared))]);
        let by = "rules".into();
        assert!(watches.demand(1, &by, &demand_of(&read)));
        watches.demand(1, &by, &demand_of(&declared));
        watches.plan();
        let demanded = watches.demanded();
        assert_eq!(demanded.len(), 1, "what is declared stays");
        let mut closes = |minutes: u64, is_used: bool| {
            let unused = if is_used { &[][..] } else { &demanded };
            let now = start + Duration::from_secs(60 * minutes);
            let is_less = watches.give_up_unused(unused, now);
            (is_less, shown(watches.plan().closed))
        };
        let cases = [(0, false), (4, false), (5, true), (6, false), (10, false)];
        for (minutes, is_used) in cases {
            assert!(!closes(minutes, is_used).0, "after {minutes} minutes");
        }
        assert_eq!(closes(11, false), (true, vec!["Secret */*".to_owned()]));
        assert_eq!(shown(watches.all()), ["Pod */*"]);
        assert!(watches.demand(1, &by, &demand_of(&read)), "the next read demands it again");
    }
}
