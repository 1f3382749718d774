//! Reads with long, strange or undeclared arguments. The answers are ignored: the attack is the
//! host's work on the arguments.

use mortise_sdk::{
    Kind, ObjectRef, Outcome, Selection,
    bindings::mortise::host::cluster,
    kubernetes::{ConfigMap, Secret},
};

use crate::{Play, describe};

/// A group that the API server would take for a watch of `ClusterRoles` if the host put it into a
/// path.
const PATH: &str = "rbac.authorization.k8s.io/v1/clusterroles?watch=true&x=";

pub(crate) fn names(play: &Play) {
    for number in 0..play.times {
        let of = ObjectRef::of::<Secret>(Some(&play.namespace), long(number, play.bytes));
        let _ = cluster::get(&of, &[]);
    }
}

pub(crate) fn fields(play: &Play) {
    let of = ObjectRef::of::<ConfigMap>(Some(&play.namespace), "none");
    for number in 0..play.times {
        let _ = cluster::get(&of, &[format!("data.{}", long(number, play.bytes))]);
    }
}

pub(crate) fn brackets(play: &Play) {
    let of = ObjectRef::of::<ConfigMap>(Some(&play.namespace), "none");
    let path = format!("data{}", "[]".repeat(play.bytes));
    for _ in 0..play.times {
        let _ = cluster::get(&of, std::slice::from_ref(&path));
    }
}

pub(crate) fn selectors(play: &Play) {
    let all = Selection::of::<ConfigMap>().namespace(&play.namespace);
    for number in 0..play.times {
        let long = long(number, play.bytes);
        let _ = cluster::list(&all, 1, Some(&long));
        let _ = cluster::list(&all.clone().labels(format!("a={long}")), 1, None);
    }
}

pub(crate) fn unindexed(play: &Play) -> Outcome {
    for number in 0..play.times {
        let all = Selection::of::<ConfigMap>().namespace(&play.namespace);
        let _ = cluster::list(&all.matching(format!("data.k{number}"), "a"), 1, None);
    }
    Outcome::new()
}

pub(crate) fn in_labels(play: &Play) -> Outcome {
    for number in 0..play.times {
        let all = Selection::of::<ConfigMap>().namespace(&play.namespace);
        let _ = cluster::list(&all.labels(format!("k{number} in (a,b)")), 1, None);
    }
    Outcome::new()
}

pub(crate) fn lists(play: &Play) {
    let all = || Selection::of::<ConfigMap>().namespace(&play.namespace);
    for number in 0..play.times {
        list(&all().matching(format!("data.k{number}"), "a"));
        list(&all().labels(format!("l{number} in (a,b)")));
    }
}

/// Reads all pages of a list.
fn list(of: &Selection) {
    let mut from = None;
    while let Ok(page) = cluster::list(of, 0, from.as_deref()) {
        let Some(next) = page.next else { return };
        from = Some(next);
    }
}

pub(crate) fn kinds(play: &Play) {
    for number in 0..play.times {
        let group = format!("none-{number}.example.com");
        let kind = Kind { group, version: "v1".into(), kind: format!("None{number}") };
        let _ = cluster::get(&ObjectRef::new(kind, Some(&play.namespace), "none"), &[]);
    }
}

pub(crate) fn path(play: &Play) {
    let _ = cluster::get(&strange(play), &[]);
}

pub(crate) fn scale(play: &Play) {
    let of = ObjectRef::new(describe::deployment(), Some(&play.namespace), "d/scale");
    let _ = cluster::get(&of, &[]);
}

/// Returns an object of a kind whose group is a path with a query.
pub(crate) fn strange(play: &Play) -> ObjectRef {
    let kind = Kind { group: PATH.into(), version: "v1".into(), kind: "ClusterRole".into() };
    ObjectRef::new(kind, Some(&play.namespace), "none")
}

/// Returns a long text, different for each number.
fn long(number: u32, bytes: usize) -> String {
    let mut text = format!("n{number}-");
    text.extend(std::iter::repeat_n('x', bytes.saturating_sub(text.len())));
    text
}
