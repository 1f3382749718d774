use std::collections::BTreeSet;

use mortise_core::{
    contract::Kind,
    grant::Demand,
    path::Fields,
    store::{Feed, IndexUser, Scope, Stores},
};
use serde_json::json;

use super::*;
use crate::host::{
    Bounds,
    watches::{MAX_SPARE_PATHS, Owner},
};

const LIST: &[&str] = &["metadata.labels"];
/// The fields of a whole object.
const WHOLE: &[&str] = &[];

fn kind(name: &str) -> Kind {
    Kind::home("", "v1", name)
}

fn wanted(fields: &[&str]) -> Wanted {
    let fields = Fields::parse(fields).unwrap();
    Wanted { fields, matching: BTreeSet::new(), written: false }
}

fn watch(of: &str) -> Watch {
    Watch { kind: kind(of), scope: Scope::default() }
}

/// Watches within bounds, and the stores that they fill.
struct Bed {
    watches: Watches,
    stores: Stores,
    now: Instant,
}

impl Bed {
    fn new(watches: usize, store_mib: usize) -> Self {
        let watches = Watches::new(Bounds { watches, store_mib });
        Self { watches, stores: Stores::new(), now: Instant::now() }
    }

    fn add(&mut self, user: User, kinds: &[&str], fields: &[&str]) -> Limited {
        let want = |of: &&str| (kind(of), Scope::default(), wanted(fields));
        let (wants, limited) = (kinds.iter().map(want).collect::<Vec<_>>(), Limited::default());
        self.watches.add(user, None, &wants, limited.clone());
        let steps = self.watches.plan();
        self.carry_out(steps);
        limited
    }

    /// Carries out steps as the host does.
    fn carry_out(&self, steps: Steps) {
        for watch in steps.closed {
            self.stores.close(&watch.kind, &watch.scope);
        }
        for (Started { watch, .. }, wanted) in steps.narrowed {
            if !self.stores.narrow(&watch.kind, &watch.scope, &wanted) {
                self.stores.close(&watch.kind, &watch.scope);
                self.stores.open(&watch.kind, &watch.scope, &wanted);
            }
        }
        for (Started { watch, .. }, wanted) in steps.needed {
            self.stores.open(&watch.kind, &watch.scope, &wanted);
        }
    }

    fn feed(&self, of: &str) -> Feed {
        self.stores.feed(&kind(of), &Scope::default()).unwrap()
    }

    /// Lists this many objects of 1 MiB. Returns the highest number of bytes that were held.
    fn list(&mut self, of: &str, objects: usize) -> usize {
        let (feed, mut most) = (self.feed(of), 0);
        feed.begin_list();
        for at in 0..objects {
            let data = json!({"blob": "x".repeat(1 << 20)});
            let metadata = json!({"name": at.to_string(), "namespace": "a", "resourceVersion": (at + 1).to_string()});
            feed.list_item(
                &json!({"apiVersion": "v1", "kind": of, "metadata": metadata, "data": data}),
            );
            most = most.max(self.stores.held(&kind(of), &Scope::default()));
            if feed.has_grown() {
                self.grown(of);
            }
        }
        feed.end_list();
        most
    }

    fn grown(&mut self, of: &str) {
        let held = |Watch { kind, scope }: &Watch, alone: Option<(&Wanted, &IndexUser)>| match alone
        {
            Some((wanted, user)) => self.stores.held_with(kind, scope, wanted, user),
            None => self.stores.held(kind, scope),
        };
        if let Some(steps) = self.watches.grown(&watch(of), self.now, held) {
            self.carry_out(steps);
        }
    }

    fn open(&self) -> Vec<String> {
        self.watches.all().into_iter().map(|watch| watch.kind.kind).collect()
    }

    fn reasons(&self, user: User) -> Vec<&'static str> {
        self.watches.limits_met(user).into_iter().map(|met| met.reason.as_str()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_user_has_no_more_watches_than_it_may_and_is_told() {
    let kinds: Vec<String> = (0..20).map(|at| format!("Kind{at}")).collect();
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    let mut bed = Bed::new(8, 8);
    let limited = bed.add(1, &kinds, LIST);
    assert_eq!(bed.open(), kinds[..8], "in the order of the declaration");
    assert_eq!(bed.reasons(1), ["WatchesLimited"]);
    let why = limited.why(&kind("Kind9")).unwrap();
    assert!(why.contains("more than 8 watches (`--max-watches`)"), "{why}");
    // A version that shares watches has its own bound.
    bed.add(2, &kinds[..8], LIST);
    assert!(bed.reasons(2).is_empty());
    bed.watches.remove(1);
    bed.watches.plan();
    assert_eq!(bed.open(), kinds[..8]);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_remembered_demands_is_bounded() {
    let mut bed = Bed::new(8, 8);
    let limited = bed.add(1, &["Rule"], LIST);
    for at in 0..1000 {
        let scopes = vec![Scope::default()];
        let demand = Demand { kind: kind(&format!("Kind{at}")), scopes, wanted: wanted(LIST) };
        bed.watches.demand(1, &"rules".into(), &demand);
        bed.watches.plan();
    }
    assert_eq!(bed.open().len(), 8);
    assert_eq!(bed.watches.users[&1].wants.len(), 1 + 8);
    assert_eq!(bed.reasons(1), ["WatchesLimited"]);
    assert!(limited.why(&kind("Kind999")).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_want_of_several_owners_is_kept_and_counted_once() {
    let mut bed = Bed::new(1, 8);
    bed.add(1, &["Rule"], LIST);
    let mut demand = |of: &str, by: &str| {
        let scopes = vec![Scope::default()];
        bed.watches.demand(1, &by.into(), &Demand { kind: kind(of), scopes, wanted: wanted(LIST) })
    };
    let found = [
        demand("Rule", "one"),
        demand("Pod", "one"),
        demand("Pod", "other"),
        demand("Secret", "other"),
    ];
    assert_eq!(found, [false, true, false, false], "declared, new, known, and past the bound");
    let (one, other) = (Owner::Reconciler("one".into()), Owner::Reconciler("other".into()));
    let wants = &bed.watches.users[&1].wants;
    let owners: Vec<&BTreeSet<Owner>> = wants.iter().map(|of| &of.owners).collect();
    assert_eq!(owners, [&[Owner::Version, one.clone()].into(), &[one, other].into()]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_too_large_is_closed_while_it_is_listed_and_tried_again_later() {
    let mut bed = Bed::new(8, 8);
    let limited = bed.add(1, &["ConfigMap", "Rule"], WHOLE);
    bed.list("Rule", 2);
    let most = bed.list("ConfigMap", 200);
    assert!(most <= 9 << 20, "{most} bytes");
    assert_eq!(bed.open(), ["Rule"]);
    assert_eq!(bed.reasons(1), ["StoresLimited"]);
    let message = &bed.watches.limits_met(1)[0].message;
    assert!(message.contains("8 MiB (`--max-store-mib`): ConfigMap v1 not kept"), "{message}");
    assert!(limited.is_refused(&kind("ConfigMap"), &Scope::default()));
    assert!(!limited.is_refused(&kind("Rule"), &Scope::default()));
    // The store is not opened at each plan.
    bed.watches.plan();
    assert!(bed.watches.try_again(bed.now + REOPEN_DELAY - Duration::from_secs(1)).is_none());
    assert_eq!(bed.open(), ["Rule"]);
    bed.watches.try_again(bed.now + REOPEN_DELAY).unwrap();
    assert_eq!(bed.open(), ["Rule", "ConfigMap"]);
    assert!(bed.reasons(1).is_empty() && limited.why(&kind("ConfigMap")).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_new_version_tries_at_once() {
    let mut bed = Bed::new(8, 8);
    bed.add(1, &["ConfigMap"], WHOLE);
    bed.list("ConfigMap", 20);
    assert!(bed.open().is_empty());
    bed.add(2, &["ConfigMap"], LIST);
    bed.list("ConfigMap", 20);
    assert_eq!((bed.open(), bed.reasons(2)), (vec!["ConfigMap".to_owned()], Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_version_keeps_its_store_if_a_wider_one_exceeds_the_limit() {
    let mut bed = Bed::new(8, 8);
    bed.add(1, &["ConfigMap"], LIST);
    bed.list("ConfigMap", 20);
    let is_read = |bed: &Bed| {
        let snapshots = bed.stores.snapshots(&kind("ConfigMap"), |_| true);
        snapshots.stores.iter().any(|(.., snapshot)| snapshot.is_complete() && snapshot.len() == 20)
    };
    assert!(is_read(&bed));
    // Another version wants the whole objects, which do not fit.
    bed.add(2, &["ConfigMap"], WHOLE);
    let most = bed.list("ConfigMap", 20);
    assert!(most <= 9 << 20, "{most} bytes");
    assert!(is_read(&bed) && bed.reasons(1).is_empty());
    assert_eq!(bed.reasons(2), ["StoresLimited"]);
    assert!(bed.stores.held(&kind("ConfigMap"), &Scope::default()) < 1 << 20);
}

#[tokio::test(start_paused = true)]
async fn fields_of_a_removed_version_are_dropped_before_another_is_refused() {
    let mut bed = Bed::new(8, 8);
    bed.add(1, &["ConfigMap"], LIST);
    bed.add(2, &["ConfigMap"], WHOLE);
    bed.list("ConfigMap", 5);
    bed.watches.remove(2);
    bed.watches.plan();
    bed.list("ConfigMap", 20);
    assert!(bed.reasons(1).is_empty(), "it asked for little");
    bed.list("ConfigMap", 20);
    assert_eq!((bed.open(), bed.reasons(1)), (vec!["ConfigMap".to_owned()], Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_version_is_not_limited_by_the_large_fields_of_another() {
    let mut bed = Bed::new(8, 8);
    bed.add(1, &["ConfigMap", "Rule"], &["metadata.labels", "data.small"]);
    // The rest of the object, so that neither version wants more than the other.
    bed.add(2, &["ConfigMap"], &["data.blob"]);
    bed.list("ConfigMap", 20);
    assert!(bed.reasons(1).is_empty(), "{:?}", bed.watches.limits_met(1));
    assert_eq!(bed.reasons(2), ["StoresLimited"]);
    assert_eq!(bed.open(), ["ConfigMap", "Rule"]);
}

#[tokio::test(start_paused = true)]
async fn bytes_that_only_another_version_needs_are_not_counted() {
    let mut bed = Bed::new(8, 8);
    let wants = [("Rule", WHOLE), ("ConfigMap", LIST)]
        .map(|(of, fields)| (kind(of), Scope::default(), wanted(fields)));
    bed.watches.add(1, None, &wants, Limited::default());
    bed.add(2, &["ConfigMap"], WHOLE);
    bed.list("Rule", 6);
    bed.list("ConfigMap", 6);
    assert!(bed.reasons(1).is_empty() && bed.reasons(2).is_empty(), "12 MiB, 6 of them for each");
    assert_eq!(bed.open(), ["Rule", "ConfigMap"]);
}

/// Objects with many texts at a path that one user indexes are not charged to another user.
#[tokio::test(start_paused = true)]
async fn a_store_is_taken_from_the_user_whose_index_is_too_large() {
    let mut bed = Bed::new(8, 8);
    let victim = bed.add(1, &["ConfigMap"], WHOLE);
    let want =
        Wanted { matching: ["metadata.finalizers[]".parse().unwrap()].into(), ..wanted(WHOLE) };
    let wants = [(kind("ConfigMap"), Scope::default(), want)];
    let greedy = Limited::default();
    bed.watches.add(2, None, &wants, greedy.clone());
    let steps = bed.watches.plan();
    bed.carry_out(steps);
    let feed = bed.feed("ConfigMap");
    feed.begin_list();
    for at in 0..100 {
        let finalizers: Vec<String> = (0..900).map(|of| format!("f/{at}-{of}")).collect();
        let metadata = json!({"name": at.to_string(), "namespace": "a",
            "resourceVersion": (at + 1).to_string(), "finalizers": finalizers});
        feed.list_item(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}));
        if feed.has_grown() {
            bed.grown("ConfigMap");
        }
    }
    assert_eq!(bed.reasons(2), ["StoresLimited"]);
    assert!(bed.reasons(1).is_empty());
    assert!(greedy.is_refused(&kind("ConfigMap"), &Scope::default()));
    assert!(!victim.is_refused(&kind("ConfigMap"), &Scope::default()));
}

#[tokio::test(start_paused = true)]
async fn paths_of_removed_users_are_dropped_above_a_number() {
    let mut bed = Bed::new(8, 8);
    bed.add(0, &["Rule"], LIST);
    for user in 1..100 {
        let paths: Vec<String> = (0..10).map(|at| format!("spec.p{user}-{at}")).collect();
        bed.add(user, &["Rule"], &paths.iter().map(String::as_str).collect::<Vec<_>>());
        bed.watches.remove(user);
        let steps = bed.watches.plan();
        bed.carry_out(steps);
        let kept = bed.watches.open[0].wanted.paths();
        assert!(kept <= 1 + MAX_SPARE_PATHS, "{kept}");
    }
}
