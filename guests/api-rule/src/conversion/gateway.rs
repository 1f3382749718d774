//! The names of gateways: v1beta1 takes `name.namespace` and longer forms, v2 only
//! `namespace/name`.

/// The longest part of a name.
const MAX_NAME_PART_BYTES: usize = 63;

/// Returns the name of a gateway for v2; `None` if there is no such name.
pub(super) fn translate(name: &str, namespace: &str) -> Option<String> {
    if is_new(name) {
        return Some(name.to_owned());
    }
    let translated = if is_old(name) { from_old(name, namespace) } else { None };
    translated.filter(|name| is_new(name))
}

fn from_old(name: &str, namespace: &str) -> Option<String> {
    let parts: Vec<&str> = name.split('.').collect();
    match parts.as_slice() {
        [name] => Some(format!("{namespace}/{name}")),
        [name, namespace]
        | [name, namespace, "svc"]
        | [name, namespace, "svc", "cluster"]
        | [name, namespace, "svc", "cluster", "local"] => Some(format!("{namespace}/{name}")),
        _ => None,
    }
}

/// Returns whether a name is one of v2: `namespace/name`, both DNS labels.
fn is_new(name: &str) -> bool {
    name.split_once('/').is_some_and(|(namespace, name)| is_label(namespace) && is_label(name))
}

fn is_label(text: &str) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.len() <= MAX_NAME_PART_BYTES
        && bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && bytes.iter().all(|byte| *byte == b'-' || alphanumeric(byte))
}

/// Returns whether a name is one of v1beta1: parts with dots between them, or two with a slash.
fn is_old(name: &str) -> bool {
    let is_part = |part: &str| {
        let allowed = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_')
        };
        !part.is_empty() && part.bytes().all(allowed)
    };
    match name.split_once('/') {
        Some((namespace, name)) => is_part(namespace) && is_part(name),
        None => name.split('.').all(is_part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_forms_are_translated() {
        let long = "x".repeat(64);
        let cases = [
            ("kyma-system/kyma-gateway", Some("kyma-system/kyma-gateway")),
            ("kyma-gateway.kyma-system.svc.cluster.local", Some("kyma-system/kyma-gateway")),
            ("kyma-gateway.kyma-system.svc.cluster", Some("kyma-system/kyma-gateway")),
            ("kyma-gateway.kyma-system.svc", Some("kyma-system/kyma-gateway")),
            ("kyma-gateway.kyma-system", Some("kyma-system/kyma-gateway")),
            ("my-gateway", Some("shop/my-gateway")),
            ("a.b.c", None),
            ("a.b.svc.cluster.example", None),
            ("a.b.svc.cluster.local.more", None),
            ("a_b.c_d", None),
            ("a_b/c", None),
            ("Upper.case", None),
            ("a//b", None),
            ("", None),
            (&format!("{long}.a"), None),
        ];
        for (name, expected) in cases {
            assert_eq!(translate(name, "shop").as_deref(), expected, "{name}");
        }
    }
}
