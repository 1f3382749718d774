//! The `Rule`s of Oathkeeper: who may send a request, and to which service it goes on.

use std::collections::BTreeSet;

use super::{
    Subject,
    strategy::{self, INTROSPECTION, NOOP},
};
use crate::{
    api::v1beta1::{self, Rule},
    config,
    ory::{Handler, Match, Rules, Spec, Upstream},
};

/// Builds a `Rule` for each rule that Oathkeeper has a part in.
pub(super) fn build(subject: &Subject<'_>) -> Rules {
    let rules = subject.spec.rules();
    let mut paths = BTreeSet::new();
    let same_path = !rules.iter().all(|of| paths.insert(of.path.as_str()));
    Rules { specs: rules.iter().filter_map(|of| spec(subject, of)).collect(), same_path }
}

fn spec(subject: &Subject<'_>, of: &Rule) -> Option<Spec> {
    if !strategy::is_secured(of) {
        return None;
    }
    // Istio checks tokens itself; the original leaves all other strategies out as well.
    let is_left = |strategy: &&v1beta1::Handler| match subject.handler {
        config::Handler::Ory => true,
        config::Handler::Istio => [NOOP, INTROSPECTION].contains(&strategy.name.as_str()),
    };
    let authenticators: Vec<Handler> =
        of.access_strategies.iter().filter(is_left).map(handler).collect();
    if authenticators.is_empty() {
        return None;
    }
    let (host, port) = subject.service(of);
    Some(Spec {
        authenticators,
        authorizer: Handler { config: None, handler: "allow".to_owned() },
        matches: Match {
            methods: of.methods.clone(),
            url: format!("<http|https>://{}<{}>", subject.host, of.path),
        },
        mutators: of.mutators.iter().map(handler).collect(),
        upstream: Upstream { url: format!("http://{host}:{port}") },
    })
}

fn handler(of: &v1beta1::Handler) -> Handler {
    Handler { config: of.config.clone(), handler: of.name.clone() }
}
