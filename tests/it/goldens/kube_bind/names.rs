//! The placeholders of the record: addresses, uids, kubeconfigs and times.

use std::{collections::BTreeMap, sync::LazyLock};

use anyhow::{Context as _, bail};
use regex::{Captures, Regex};
use serde_json::{Value, json};

use super::format::Side;
use crate::goldens::scenario::{TIME, UID, mapped, regex, text};

/// A uid that no object has.
const UNKNOWN: &str = "00000000-0000-4000-8000-000000000000";

static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| regex(r"\$\{([^}]*)\}"));
/// The API servers that a kubeconfig leads to, with their addresses in memory.
const HOSTS: [(Server, &str); 4] = [
    (Server::Provider, "provider.golden.example:6443"),
    (Server::Proxy, "proxy.golden.example:6443"),
    (Server::Dead, "dead.golden.example:6443"),
    (Server::Consumer, "consumer.golden.example:6443"),
];

/// An API server, as a kubeconfig names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Server {
    Provider,
    /// The provider by way of a proxy.
    Proxy,
    /// An address where nobody listens.
    Dead,
    Consumer,
}

/// An API server, and what kubeconfigs that lead to it say.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) server: Server,
    /// Host and port.
    pub(super) address: String,
    /// The cluster and the user of a kubeconfig.
    pub(super) cluster: Value,
    pub(super) user: Value,
}

/// The values of placeholders so far.
#[derive(Debug)]
pub(super) struct Names {
    sites: Vec<Site>,
    /// The placeholder of each uid, without the braces.
    uids: BTreeMap<String, String>,
    /// The number of objects of each title.
    numbers: BTreeMap<String, usize>,
    /// The placeholder of each kubeconfig that was given out, and the server.
    kubeconfigs: BTreeMap<String, (String, Server)>,
}

// === impl Server ===

impl Server {
    /// Returns the word of the record.
    fn name(self) -> &'static str {
        match self {
            Self::Provider => "P",
            Self::Proxy => "proxy",
            Self::Dead => "dead",
            Self::Consumer => "C",
        }
    }
}

// === impl Names ===

impl Default for Names {
    fn default() -> Self {
        let site = |(server, address): (Server, &str)| Site {
            server,
            address: address.to_owned(),
            cluster: json!({"server": format!("https://{address}")}),
            user: json!({"token": "admin"}),
        };
        Self::at(HOSTS.map(site))
    }
}

impl Names {
    /// Creates the names of a scenario with these API servers.
    pub(super) fn at(sites: impl IntoIterator<Item = Site>) -> Self {
        Self {
            sites: sites.into_iter().collect(),
            uids: BTreeMap::new(),
            numbers: BTreeMap::new(),
            kubeconfigs: BTreeMap::new(),
        }
    }

    /// Learns the uids of all objects of a cluster.
    pub(super) fn learn(&mut self, side: Side, objects: &[Value]) {
        for object in objects {
            let uid = text(object, "/metadata/uid");
            if uid.is_empty() || self.uids.contains_key(uid) {
                continue;
            }
            let [kind, namespace, name] =
                ["/kind", "/metadata/namespace", "/metadata/name"].map(|at| text(object, at));
            let slash = if namespace.is_empty() { "" } else { "/" };
            let title = format!("{side:?} {kind} {namespace}{slash}{name}");
            let number = self.numbers.entry(title.clone()).or_default();
            *number += 1;
            let title = if *number == 1 { title } else { format!("{title} #{number}") };
            self.uids.insert(uid.to_owned(), title);
        }
    }

    /// Returns a text of an object in the form of the record.
    pub(super) fn shown(&self, text: &str) -> String {
        if let Some((placeholder, _)) = self.kubeconfigs.get(text) {
            return placeholder.clone();
        }
        let uid = |found: &Captures<'_>| match (&found[0], self.uids.get(&found[0])) {
            (_, Some(title)) => format!("${{UID {title}}}"),
            (UNKNOWN, None) => "${UID ?}".to_owned(),
            (other, None) => other.to_owned(),
        };
        let mut shown = TIME.replace_all(&UID.replace_all(text, uid), "TIME").into_owned();
        for Site { server, address, .. } in &self.sites {
            shown = shown.replace(address, &format!("${{HOST {}}}", server.name()));
        }
        shown
    }

    /// Returns an object of an action with values for its placeholders.
    ///
    /// # Errors
    ///
    /// Fails if a placeholder is unknown, or names an object that was never there.
    pub(super) fn filled(&mut self, value: &Value) -> anyhow::Result<Value> {
        mapped(value, &mut |text| self.filled_text(text))
    }

    fn filled_text(&mut self, text: &str) -> anyhow::Result<String> {
        let (mut filled, mut end) = (String::new(), 0);
        for found in PLACEHOLDER.captures_iter(text) {
            let whole = found.get(0).context("a match")?;
            filled += &text[end..whole.start()];
            filled += &self.value(&found[1]).with_context(|| format!("`{}`", whole.as_str()))?;
            end = whole.end();
        }
        Ok(filled + &text[end..])
    }

    fn value(&mut self, placeholder: &str) -> anyhow::Result<String> {
        let words: Vec<&str> = placeholder.split_whitespace().collect();
        match words[..] {
            ["UID", "?"] => Ok(UNKNOWN.to_owned()),
            ["UID", ..] => {
                let title = words[1..].join(" ");
                let found = self.uids.iter().find(|(_, of)| **of == title);
                Ok(found.context("there was no such object")?.0.clone())
            }
            ["HOST", name] => Ok(self.site(name)?.address.clone()),
            ["KUBECONFIG", name, namespace, ref rest @ ..] => {
                let site = self.site(name)?;
                let (context, has_context) = match rest {
                    [] => ("default", true),
                    ["nocontext"] => ("default", false),
                    [context] => (*context, true),
                    [context, "nocontext"] => (*context, false),
                    _ => bail!("too many words"),
                };
                let text = kubeconfig(site, namespace, context, has_context);
                let placeholder = format!("${{{}}}", words.join(" "));
                let server = site.server;
                self.kubeconfigs.insert(text.clone(), (placeholder, server));
                Ok(text)
            }
            _ => bail!("unknown placeholder"),
        }
    }

    fn site(&self, name: &str) -> anyhow::Result<&Site> {
        let found = self.sites.iter().find(|site| site.server.name() == name);
        found.context("no such server")
    }

    /// Returns the server that a kubeconfig leads to; `None` if it was not given out.
    pub(super) fn server_of(&self, kubeconfig: &str) -> Option<Server> {
        self.kubeconfigs.get(kubeconfig).map(|(_, server)| *server)
    }
}

fn kubeconfig(site: &Site, namespace: &str, context: &str, has_context: bool) -> String {
    let current = if has_context { context } else { "elsewhere" };
    let namespace =
        if namespace == "-" { String::new() } else { format!(", namespace: {namespace}") };
    let Site { cluster, user, .. } = site;
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: {current}\n\
         clusters:\n- name: provider\n  cluster: {cluster}\n\
         users:\n- name: admin\n  user: {user}\n\
         contexts:\n- name: {context}\n  context: {{cluster: provider, user: admin{namespace}}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rocket(uid: &str) -> Value {
        json!({"kind": "Rocket", "metadata": {"name": "saturn", "namespace": "team", "uid": uid}})
    }

    const FIRST: &str = "11111111-2222-3333-4444-555555555555";
    const SECOND: &str = "aaaaaaaa-2222-3333-4444-555555555555";

    #[test]
    fn objects_of_one_name_are_numbered() {
        let mut names = Names::default();
        for uid in [FIRST, FIRST, SECOND] {
            names.learn(Side::P, &[rocket(uid)]);
        }
        let text = format!("{FIRST} {SECOND} {UNKNOWN} 2026-01-01T00:00:00Z");
        let shown = "${UID P Rocket team/saturn} ${UID P Rocket team/saturn #2} ${UID ?} TIME";
        assert_eq!(names.shown(&text), shown);
        let filled = names.filled(&json!({"a": ["${UID P Rocket team/saturn #2}"]})).unwrap();
        assert_eq!(filled, json!({"a": [SECOND]}));
    }

    #[test]
    fn kubeconfigs_are_known_again() {
        let mut names = Names::default();
        for (placeholder, server) in [
            ("${KUBECONFIG P kube-bind-a}", Server::Provider),
            ("${KUBECONFIG proxy - here}", Server::Proxy),
            ("${KUBECONFIG dead kube-bind-a here nocontext}", Server::Dead),
        ] {
            let text = names.filled_text(placeholder).unwrap();
            assert_eq!(
                (names.shown(&text), names.server_of(&text)),
                (placeholder.to_owned(), Some(server))
            );
        }
        assert_eq!(names.server_of("other"), None);
        assert_eq!(names.shown("https://dead.golden.example:6443/x"), "https://${HOST dead}/x");
    }

    #[test]
    fn placeholders_that_are_not_known_are_refused() {
        for text in ["${UID P Rocket a}", "${NAME}", "${HOST x}", "${KUBECONFIG P a b c}"] {
            let error = Names::default().filled_text(text).unwrap_err();
            assert!(format!("{error:#}").starts_with(&format!("`{text}`: ")), "{error:#}");
        }
    }
}
