//! The builders of the filters, the `Gateway` and the Secret.

use api_gateway_module::ISTIO_NAMESPACE;
use mortise_sdk::{Kind, object::OwnerReference};
use serde_json::{Value, json};

use crate::{
    api::ExternalGateway,
    authority,
    names::{self, Names},
};

const CONNECTION_MANAGER: &str = "envoy.filters.network.http_connection_manager";
const MANAGER_TYPE: &str = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const ROUTER: &str = "envoy.filters.http.router";
const LUA_TYPE: &str = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua";

/// The script after the subjects: it refuses requests of clients without one of them.
const SCRIPT: &str = include_str!("validation.lua");

pub(crate) fn envoy_filter() -> Kind {
    Kind::new("networking.istio.io", "v1alpha3", "EnvoyFilter")
}

pub(crate) fn gateway_kind() -> Kind {
    Kind::new("networking.istio.io", "v1beta1", "Gateway")
}

/// Returns the filter that decides what workloads are told of the client's certificate.
pub(crate) fn forwarding(gateway: &ExternalGateway, names: &Names) -> Value {
    let details = if gateway.spec.include_ext_gateway_client_cert {
        "APPEND_FORWARD"
    } else {
        "FORWARD_ONLY"
    };
    let config = json!({"@type": MANAGER_TYPE, "forward_client_cert_details": details});
    let filter = json!({"name": CONNECTION_MANAGER});
    filter_object(
        gateway,
        &names.forwarding,
        "NETWORK_FILTER",
        &filter,
        &json!({
            "operation": "MERGE",
            "value": {"typed_config": config},
        }),
    )
}

/// Returns the filter that lets only clients with one of these subjects through.
pub(crate) fn validation(gateway: &ExternalGateway, names: &Names, subjects: &[String]) -> Value {
    let name = &names.validation;
    let config =
        json!({"@type": LUA_TYPE, "defaultSourceCode": {"inlineString": script(subjects)}});
    let filter = json!({"name": CONNECTION_MANAGER, "subFilter": {"name": ROUTER}});
    filter_object(
        gateway,
        name,
        "HTTP_FILTER",
        &filter,
        &json!({
            "operation": "INSERT_BEFORE",
            "value": {
                "name": format!("api_gateway.external_gateway.cert_validation.{name}"),
                "typed_config": config,
            },
        }),
    )
}

fn filter_object(
    gateway: &ExternalGateway,
    name: &str,
    to: &str,
    filter: &Value,
    patch: &Value,
) -> Value {
    let chain = json!({"sni": gateway.spec.external_domain, "filter": filter});
    json!({
        "apiVersion": envoy_filter().api_version(),
        "kind": envoy_filter().kind,
        "metadata": {"name": name, "namespace": ISTIO_NAMESPACE, "labels": names::labels(gateway)},
        "spec": {
            "workloadSelector": {
                "labels": {"app": "istio-ingressgateway", "istio": "ingressgateway"},
            },
            "configPatches": [{
                "applyTo": to,
                "match": {"context": "GATEWAY", "listener": {"filterChain": chain}},
                "patch": patch,
            }],
        },
    })
}

fn script(subjects: &[String]) -> String {
    let quoted = |subject: &String| format!("  \"{}\"", escaped(subject));
    let subjects: Vec<String> = subjects.iter().map(quoted).collect();
    format!("local expectedSubjects = {{\n{}\n}}\n\n{SCRIPT}", subjects.join(",\n"))
}

/// Escapes a text for a Lua string in double quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\r', "\\r")
}

/// Returns the `Gateway` for both domains, with mutual TLS.
pub(crate) fn gateway(gateway: &ExternalGateway, names: &Names, internal_domain: &str) -> Value {
    json!({
        "apiVersion": gateway_kind().api_version(),
        "kind": gateway_kind().kind,
        "metadata": {
            "name": names.gateway,
            "namespace": gateway.namespace(),
            "labels": names::labels(gateway),
            "ownerReferences": [OwnerReference::controller::<ExternalGateway>(&gateway.metadata)],
        },
        "spec": {
            "selector": {"istio": "ingressgateway"},
            "servers": [{
                "port": {"number": 443, "name": "https-external", "protocol": "HTTPS"},
                "hosts": [gateway.spec.external_domain, internal_domain],
                "tls": {"mode": "MUTUAL", "credentialName": names.tls},
            }],
        },
    })
}

/// Returns the Secret from which Istio reads the authorities, with this bundle in base64.
pub(crate) fn authorities(gateway: &ExternalGateway, names: &Names, bundle: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": names.authorities,
            "namespace": ISTIO_NAMESPACE,
            "labels": names::labels(gateway),
        },
        "type": "Opaque",
        "data": {authority::KEY: bundle},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_cannot_leave_its_quotes() {
        let subjects = ["CN=a\"b\\".to_owned(), "O=\n\r".to_owned()];
        let script = script(&subjects);
        let begin =
            "local expectedSubjects = {\n  \"CN=a\\\"b\\\\\",\n  \"O=\\n\\r\"\n}\n\nfunction fail";
        assert!(script.starts_with(begin), "{script}");
    }

    #[test]
    fn workloads_are_told_the_gateways_certificate_where_that_is_asked_for() {
        let details = |include: bool| {
            let mut gateway = ExternalGateway::default();
            gateway.spec.include_ext_gateway_client_cert = include;
            let filter = forwarding(&gateway, &Names::of(&gateway));
            let value = &filter["spec"]["configPatches"][0]["patch"]["value"];
            value["typed_config"]["forward_client_cert_details"].clone()
        };
        assert_eq!([details(false), details(true)], ["FORWARD_ONLY", "APPEND_FORWARD"]);
    }
}
