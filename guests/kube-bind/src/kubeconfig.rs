//! The checks of a kubeconfig in a Secret.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use mortise_sdk::{ClusterName, kubernetes::Secret};
use serde_json::{Map, Value};

use crate::{
    api::{Condition, SecretRef, Severity},
    place::Place,
    valid::is_dns_label,
};

/// The condition of a kubeconfig that can be used.
pub(crate) const SECRET_VALID: &str = "SecretValid";
/// The longest kubeconfig, in bytes.
const MAX_BYTES: usize = 256 * 1024;
/// Fields of a user or a cluster that lead out of the kubeconfig.
const REFUSED: [&str; 13] = [
    "exec",
    "auth-provider",
    "tokenFile",
    "client-certificate",
    "client-key",
    "certificate-authority",
    "proxy-url",
    "insecure-skip-tls-verify",
    "as",
    "as-uid",
    "as-groups",
    "as-user-extra",
    "username",
];

/// Returns the place that the Secret of a reference leads to.
///
/// # Errors
///
/// The condition that says what is wrong with the Secret. `hint` is added where the Secret is
/// missing.
pub(crate) fn place(
    of: &SecretRef,
    secret: Option<&Secret>,
    hint: &str,
) -> Result<Place, Box<Condition>> {
    let title = format!("Kubeconfig secret {}/{}", of.namespace, of.name);
    let wrong = |reason: &str, message: String| {
        Err(Box::new(Condition::is_false(SECRET_VALID, Severity::Error, reason, message)))
    };
    let invalid = |message: String| wrong("KubeconfigSecretInvalid", format!("{title} {message}"));
    let Some(secret) = secret else {
        return wrong("KubeconfigSecretNotFound", format!("{title} not found.{hint}"));
    };
    let Some(value) = secret.data.get(&of.key) else {
        return invalid(format!("is missing \"{}\" string key.", of.key));
    };
    let cluster = ClusterName::secret(&of.namespace, &of.name, &of.key);
    match decode(value).and_then(|text| parse(&text)) {
        Ok((namespace, server)) => Ok(Place { cluster, namespace, server }),
        Err(message) => invalid(format!("has an invalid kubeconfig: {message}")),
    }
}

fn decode(value: &str) -> Result<String, String> {
    if value.len() / 4 * 3 > MAX_BYTES {
        return Err(format!("it is larger than {} KiB", MAX_BYTES / 1024));
    }
    let bytes = BASE64_STANDARD.decode(value).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())
}

/// Returns the namespace of the current context, and the address of its server.
fn parse(text: &str) -> Result<(String, String), String> {
    let config: Value = if text.trim().is_empty() {
        Value::Object(Map::new())
    } else {
        serde_saphyr::from_str(text).map_err(|error| line(&error.to_string()))?
    };
    if !config.is_object() {
        return Err("it is not an object".to_owned());
    }
    let current = config.get("current-context").and_then(Value::as_str).unwrap_or_default();
    let Some(context) = named(&config, "contexts", current, "context") else {
        return Err(format!("current context {current:?} not found"));
    };
    let field = |name: &str| context.get(name).and_then(Value::as_str).unwrap_or_default();
    if field("namespace").is_empty() {
        return Err(format!("current context {current:?} has no namespace set"));
    }
    if !is_dns_label(field("namespace")) {
        return Err(format!("the namespace of current context {current:?} is not valid"));
    }
    let Some(cluster) = named(&config, "clusters", field("cluster"), "cluster") else {
        return Err(format!("cluster {:?} of the current context not found", field("cluster")));
    };
    let user = named(&config, "users", field("user"), "user");
    let is_set = |value: &Value| !matches!(value, Value::Null | Value::Bool(false));
    let mut fields = user.into_iter().flatten().chain(cluster);
    let refused =
        |(field, value): &(&String, &Value)| REFUSED.contains(&field.as_str()) && is_set(value);
    if let Some((field, _)) = fields.find(refused) {
        return Err(format!(
            "`{field}` is not accepted: credentials and authorities must stand in the kubeconfig \
             itself, as `token`, `client-certificate-data`, `client-key-data` and \
             `certificate-authority-data`"
        ));
    }
    match cluster.get("server").and_then(Value::as_str) {
        Some(server) if !server.is_empty() => {
            Ok((field("namespace").to_owned(), server.to_owned()))
        }
        _ => Err(format!("cluster {:?} has no server", field("cluster"))),
    }
}

/// Returns the item of a name in one of the lists of a kubeconfig.
fn named<'a>(
    config: &'a Value,
    list: &str,
    name: &str,
    field: &str,
) -> Option<&'a Map<String, Value>> {
    let items = config.get(list)?.as_array()?;
    let item = items.iter().find(|item| item.get("name").is_some_and(|found| found == name))?;
    item.get(field)?.as_object()
}

/// Returns the first line of a parser's message, which may quote the text after it.
fn line(message: &str) -> String {
    message.lines().next().unwrap_or_default().trim_end_matches(':').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(context: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: here\ncontexts:\n- name: here\n  context: {context}\n\
             clusters:\n- name: p\n  cluster: {{server: 'https://p.example:6443'}}\nusers:\n- name: u\n  user: {user}\n"
        )
    }

    fn found(text: Option<&str>) -> Result<Place, String> {
        let of =
            SecretRef { namespace: "kube-bind".into(), name: "p".into(), key: "kubeconfig".into() };
        let secret = text.map(|text| Secret {
            data: [("kubeconfig".to_owned(), BASE64_STANDARD.encode(text))].into(),
            ..Secret::default()
        });
        place(&of, secret.as_ref(), " Rerun kubectl bind for repair.").map_err(|condition| {
            format!(
                "{}/{}/{} {}",
                condition.status, condition.severity, condition.reason, condition.message
            )
        })
    }

    #[test]
    fn a_kubeconfig_names_cluster_and_namespace() {
        let text = kubeconfig("{cluster: p, user: u, namespace: kube-bind-a}", "{token: x}");
        let place = found(Some(&text)).unwrap();
        assert_eq!(&*place.cluster, "kube-bind/p/kubeconfig");
        assert_eq!(
            (place.namespace.as_str(), place.server.as_str()),
            ("kube-bind-a", "https://p.example:6443")
        );
    }

    #[test]
    fn the_condition_says_what_is_wrong() {
        let wrong = |context: &str, user: &str| Some(kubeconfig(context, user));
        let cases = [
            (
                None,
                "False/Error/KubeconfigSecretNotFound Kubeconfig secret kube-bind/p not found. Rerun kubectl bind for repair.",
            ),
            (Some(String::new()), r#"has an invalid kubeconfig: current context "" not found"#),
            (
                Some("no kubeconfig".to_owned()),
                "KubeconfigSecretInvalid Kubeconfig secret kube-bind/p has an invalid kubeconfig: ",
            ),
            (
                Some("current-context: elsewhere\n".to_owned()),
                r#"current context "elsewhere" not found"#,
            ),
            (
                wrong("{cluster: p, user: u}", "{}"),
                r#"current context "here" has no namespace set"#,
            ),
            (
                wrong("{cluster: p, user: u, namespace: ../kube-system}", "{}"),
                r#"the namespace of current context "here" is not valid"#,
            ),
            (
                wrong("{cluster: q, user: u, namespace: a}", "{}"),
                r#"cluster "q" of the current context not found"#,
            ),
            (
                wrong("{cluster: p, user: u, namespace: a}", "{exec: {command: rm}}"),
                "`exec` is not accepted",
            ),
            (
                wrong("{cluster: p, user: u, namespace: a}", "{tokenFile: /etc/passwd}"),
                "`tokenFile` is not accepted",
            ),
            (Some("x".repeat(MAX_BYTES + 10)), "it is larger than 256 KiB"),
        ];
        for (text, expected) in cases {
            let error = found(text.as_deref()).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn aliases_that_expand_are_refused() {
        let level = |name: char, of: char| {
            let items = vec![format!("*{of}"); 9].join(", ");
            format!("{name}: &{name} [{items}]\n")
        };
        let names: Vec<char> = ('a'..='i').collect();
        let levels = names.windows(2).map(|pair| level(pair[1], pair[0])).collect::<String>();
        let valid = kubeconfig("{cluster: p, user: u, namespace: a}", "{token: x}");
        let text = format!("a: &a [x, x, x, x, x, x, x, x, x]\n{levels}{valid}");
        let error = found(Some(&text)).unwrap_err();
        assert!(error.contains("has an invalid kubeconfig: "), "{error}");
        assert!(error.len() < 1024, "{} bytes", error.len());
    }

    #[test]
    fn a_missing_key_is_named() {
        let of =
            SecretRef { namespace: "kube-bind".into(), name: "p".into(), key: "kubeconfig".into() };
        let condition = place(&of, Some(&Secret::default()), "").unwrap_err();
        assert_eq!(
            condition.message,
            r#"Kubeconfig secret kube-bind/p is missing "kubeconfig" string key."#
        );
    }
}
