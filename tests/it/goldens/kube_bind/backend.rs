//! The part of the provider's backend that makes the consumer's namespaces at the provider.

use serde_json::{Value, json};

use crate::goldens::scenario::{Requests, Verb, send, text};

/// The annotation of a namespace that names its `APIServiceNamespace`.
const ANNOTATION: &str = "kube-bind.io/api-service-namespace";
const NAMESPACES: &str = "/api/v1/namespaces";

/// Makes the missing namespaces, and deletes those that nothing asks for any more. Returns whether
/// there was something to do.
///
/// # Errors
///
/// Fails if the API refuses a write.
pub(super) fn act(provider: &impl Requests, objects: &[Value]) -> anyhow::Result<bool> {
    let mut has_acted = false;
    let of_kind = |kind: &'static str| objects.iter().filter(move |object| object["kind"] == kind);
    for asked in of_kind("APIServiceNamespace") {
        let is_new = text(asked, "/status/namespace").is_empty() && !is_deleting(asked);
        if is_new
            && !of_kind("Namespace").any(|one| named(one, &name_of(asked)) && is_deleting(one))
        {
            make(provider, asked, of_kind("Namespace"))?;
            has_acted = true;
        }
    }
    let is_asked_for =
        |title: &str| of_kind("APIServiceNamespace").any(|asked| title_of(asked) == title);
    for namespace in of_kind("Namespace").filter(|namespace| !is_deleting(namespace)) {
        let title = namespace["metadata"]["annotations"][ANNOTATION].as_str();
        if title.is_some_and(|title| !is_asked_for(title)) {
            let path = format!("{NAMESPACES}/{}", text(namespace, "/metadata/name"));
            send(provider, Verb::Delete, &path, &Value::Null)?;
            has_acted = true;
        }
    }
    Ok(has_acted)
}

fn make<'a>(
    provider: &impl Requests,
    asked: &Value,
    mut namespaces: impl Iterator<Item = &'a Value>,
) -> anyhow::Result<()> {
    let name = name_of(asked);
    if !namespaces.any(|namespace| named(namespace, &name)) {
        let annotations = json!({ANNOTATION: title_of(asked)});
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "annotations": annotations},
        });
        send(provider, Verb::Create, NAMESPACES, &namespace)?;
    }
    let place = text(asked, "/metadata/namespace");
    let path = format!(
        "/apis/{}/namespaces/{place}/apiservicenamespaces/{}/status",
        text(asked, "/apiVersion"),
        text(asked, "/metadata/name")
    );
    send(provider, Verb::Merge, &path, &json!({"status": {"namespace": name}})).map(|_| ())
}

fn title_of(asked: &Value) -> String {
    format!("{}/{}", text(asked, "/metadata/namespace"), text(asked, "/metadata/name"))
}

/// Returns the name of the namespace that an `APIServiceNamespace` asks for.
fn name_of(asked: &Value) -> String {
    format!("{}-{}", text(asked, "/metadata/namespace"), text(asked, "/metadata/name"))
}

fn named(object: &Value, name: &str) -> bool {
    text(object, "/metadata/name") == name
}

fn is_deleting(object: &Value) -> bool {
    object["metadata"].get("deletionTimestamp").is_some()
}
