//! The cells of Services, endpoints and ingresses.

use std::collections::BTreeSet;

use serde_json::Value;

use super::cell::{NONE, UNSET, join, map, or_none};
use crate::builtin::edit::{at, is_empty, items, text};

pub(super) fn service(name: Value, spec: &Value, status: &Value, old: Value) -> Vec<Value> {
    let kind = text(spec, "type");
    let address = match text(spec, "clusterIP") {
        "" => NONE,
        address => address,
    };
    let ingress = items(at(status, &["loadBalancer", "ingress"])).iter().map(|ingress| {
        let address = text(ingress, "ip");
        if address.is_empty() { text(ingress, "hostname") } else { address }
    });
    let externals = items(&spec["externalIPs"]).iter().filter_map(Value::as_str);
    let external = match kind {
        "ExternalName" => text(spec, "externalName").to_owned(),
        "LoadBalancer" => {
            let all = join(ingress.chain(externals));
            if all.is_empty() { "<pending>".to_owned() } else { all }
        }
        _ => {
            let all = join(externals);
            if all.is_empty() { NONE.to_owned() } else { all }
        }
    };
    let ports = items(&spec["ports"]).iter().map(|port| {
        let node = port["nodePort"].as_i64().map(|node| format!(":{node}")).unwrap_or_default();
        format!("{}{node}/{}", port["port"], text(port, "protocol"))
    });
    let ports = or_none(&join(ports));
    vec![
        name,
        kind.into(),
        address.into(),
        external.into(),
        ports,
        old,
        map(&spec["selector"]).into(),
    ]
}

pub(super) fn ingress(name: Value, spec: &Value, status: &Value, old: Value) -> Vec<Value> {
    let hosts =
        items(&spec["rules"]).iter().map(|rule| text(rule, "host")).filter(|host| !host.is_empty());
    let hosts = match join(hosts) {
        hosts if hosts.is_empty() => "*".to_owned(),
        hosts => hosts,
    };
    let addresses = items(at(status, &["loadBalancer", "ingress"])).iter().map(|ingress| {
        let address = text(ingress, "ip");
        if address.is_empty() { text(ingress, "hostname") } else { address }
    });
    let addresses: BTreeSet<&str> = addresses.filter(|address| !address.is_empty()).collect();
    let ports = if is_empty(&spec["tls"]) { "80" } else { "80, 443" };
    let class = or_none(text(spec, "ingressClassName"));
    vec![name, class, hosts.into(), join(addresses).into(), ports.into(), old]
}

/// Returns the first three of some texts, and the number of further ones.
fn few(all: &[String]) -> String {
    match all.get(3..) {
        None | Some([]) if all.is_empty() => NONE.to_owned(),
        None | Some([]) => join(all),
        Some(rest) => format!("{} + {} more...", join(all.iter().take(3)), rest.len()),
    }
}

pub(super) fn endpoints(object: &Value) -> String {
    let all = items(&object["subsets"]).iter().flat_map(|subset| {
        let ports = items(&subset["ports"]);
        items(&subset["addresses"]).iter().flat_map(move |address| {
            let ip = text(address, "ip").to_owned();
            let bare = ports.is_empty().then(|| ip.clone());
            bare.into_iter().chain(ports.iter().map(move |port| format!("{ip}:{}", port["port"])))
        })
    });
    few(&all.collect::<Vec<_>>())
}

pub(super) fn endpoint_slice(name: Value, object: &Value, old: Value) -> Vec<Value> {
    let ports = items(&object["ports"]).iter().map(|port| match port["port"].as_i64() {
        Some(number) => number.to_string(),
        None if port["name"].is_string() => text(port, "name").to_owned(),
        None => "*".to_owned(),
    });
    let addresses = items(&object["endpoints"])
        .iter()
        .flat_map(|endpoint| items(&endpoint["addresses"]))
        .filter_map(|address| address.as_str().map(str::to_owned));
    let ports: Vec<_> = ports.collect();
    let ports = if ports.is_empty() { UNSET.to_owned() } else { few(&ports) };
    let addresses: Vec<_> = addresses.collect();
    let addresses = if addresses.is_empty() { UNSET.to_owned() } else { few(&addresses) };
    vec![name, text(object, "addressType").into(), ports.into(), addresses.into(), old]
}
