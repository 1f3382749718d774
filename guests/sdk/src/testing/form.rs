//! Checks of names, by Kubernetes' own rules: the host refuses the same names in reads and
//! outcomes, with the same messages. The host's bounds on sizes are not checked.

use crate::{Kind, ObjectRef, Selection};

pub(super) const NAME: &str =
    "a name has 1 to 253 bytes, is neither `.` nor `..`, and holds no `/` and no `%`";
pub(super) const KIND: &str = "a kind is named as Kubernetes names it: a group that is a DNS subdomain or \"\", a version and a kind of at most 63 \
                               letters, digits and `-`";
const NAMESPACE: &str = "a namespace is a DNS label of at most 63 lower-case letters, digits and `-`; for objects without namespace, and for all \
                         namespaces, it is none";

/// Fails if a `get` names its object in a way that no declaration can allow.
pub(super) fn check_get(of: &ObjectRef) -> Result<(), String> {
    check(&of.kind, of.namespace.as_deref(), Some(&of.name))
}

/// Fails if a `list` names its objects in a way that no declaration can allow.
pub(super) fn check_list(of: &Selection) -> Result<(), String> {
    check(&of.kind, of.namespace.as_deref(), of.name.as_deref())
}

fn check(kind: &Kind, namespace: Option<&str>, name: Option<&str>) -> Result<(), String> {
    if !is_kind(kind) {
        let Kind { group, version, kind } = kind;
        return Err(format!("{KIND}: got group `{group}`, version `{version}`, kind `{kind}`"));
    }
    if let Some(namespace) = namespace.filter(|namespace| !is_label(namespace)) {
        return Err(format!("namespace `{namespace}`: {NAMESPACE}"));
    }
    match name.filter(|name| !is_name(name)) {
        Some(name) => Err(format!("name `{name}`: {NAME}")),
        None => Ok(()),
    }
}

/// Returns whether a text is a name: a segment of a URL's path, as the API server demands.
pub(super) fn is_name(text: &str) -> bool {
    let is_segment = text != "." && text != ".." && !text.contains(['/', '%']);
    is_segment && (1..=253).contains(&text.len())
}

/// Returns whether a `CustomResourceDefinition` may have this group, version and kind.
pub(super) fn is_kind(of: &Kind) -> bool {
    let is_group = of.group.len() <= 253 && of.group.split('.').all(is_label);
    let is_word =
        |text: &str| is_label(text) && text.starts_with(|first: char| first.is_ascii_lowercase());
    (of.group.is_empty() || is_group)
        && is_word(&of.version)
        && is_word(&of.kind.to_ascii_lowercase())
}

fn is_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_name_objects_as_the_api_server_would_have_it() {
        let get = |namespace: Option<&str>, name: &str| {
            check_get(&ObjectRef::new(Kind::new("apps", "v1", "Deployment"), namespace, name))
        };
        assert_eq!(get(Some("shop"), "a"), Ok(()));
        assert!(get(Some(""), "a").unwrap_err().contains("namespace ``: a namespace is"));
        assert!(get(Some("shop"), "d/scale").unwrap_err().contains("name `d/scale`: a name has"));
        let of = Selection::new(Kind::new("a/v1/b?watch=true", "v1", "Pod"));
        assert!(check_list(&of).unwrap_err().contains("group `a/v1/b?watch=true`"));
    }
}
