//! Which watches are open, and for whom. Pure.

use std::collections::BTreeSet;

use crate::{
    contract::Kind,
    store::{Scope, Wanted},
    watch::Watch,
};

/// Who needs a watch: a loaded version of a processor.
pub(super) type User = u64;

/// What a user wants to be watched.
pub(super) type Want = (Kind, Scope, Wanted);

/// The open watches. A watch that somebody was given stays open until nobody that was given it is left.
#[derive(Debug, Default)]
pub(super) struct Watches {
    open: Vec<Open>,
}

#[derive(Debug)]
struct Open {
    watch: Watch,
    users: BTreeSet<User>,
}

// === impl Watches ===

impl Watches {
    /// Gives users what they want, by the fewest watches: one whose scope covers a want is taken, whoever it was opened for.
    /// Says what each watch has to bring for them.
    pub(super) fn assign<'a>(
        &mut self,
        wants: impl IntoIterator<Item = (User, &'a [Want])>,
    ) -> Vec<(Watch, Wanted)> {
        let of_user =
            |(user, wants): (User, &'a [Want])| wants.iter().map(move |want| (user, want));
        let mut wants: Vec<(User, &Want)> = wants.into_iter().flat_map(of_user).collect();
        // Wide ones first: nothing that comes later can then cover what was opened before, but for its equals.
        wants.sort_by_key(|(_, (_, scope, _))| {
            (scope.namespace.is_some(), scope.name.is_some(), !scope.labels.is_empty())
        });
        let mut needed: Vec<(Watch, Wanted)> = Vec::new();
        for (user, (kind, scope, wanted)) in wants {
            let watch = self.take(user, kind, scope);
            match needed.iter_mut().find(|(held, _)| *held == watch) {
                Some((_, all)) => *all = all.union(wanted),
                None => needed.push((watch, wanted.clone())),
            }
        }
        needed
    }

    fn take(&mut self, user: User, kind: &Kind, scope: &Scope) -> Watch {
        let covers =
            |open: &&mut Open| open.watch.kind == *kind && open.watch.scope.covers_scope(scope);
        if let Some(open) = self.open.iter_mut().find(covers) {
            open.users.insert(user);
            return open.watch.clone();
        }
        let watch = Watch { kind: kind.clone(), scope: scope.clone() };
        self.open.push(Open { watch: watch.clone(), users: [user].into() });
        watch
    }

    /// A user is gone: the watches that nobody needs any more, to be closed.
    pub(super) fn release(&mut self, user: User) -> Vec<Watch> {
        let is_free = |open: &mut Open| open.users.remove(&user) && open.users.is_empty();
        self.open.extract_if(.., is_free).map(|open| open.watch).collect()
    }

    /// All that are open.
    pub(super) fn all(&self) -> Vec<Watch> {
        self.open.iter().map(|open| open.watch.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Fields;

    fn want(kind: &str, namespace: Option<&str>, name: Option<&str>, fields: &[&str]) -> Want {
        let kind = Kind { group: String::new(), version: "v1".into(), kind: kind.into() };
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
    fn a_wide_scope_takes_in_what_it_covers_and_distinct_ones_stay_apart() {
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
}
