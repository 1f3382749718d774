//! Reports to the host whether the API server can call the hooks, whenever that may have changed.
//!
//! Definitions are read again when one of them has changed. Webhook configurations are not watched,
//! and certificates expire without an event: both are checked each minute.

use std::{sync::Arc, time::Duration};

use mortise_core::{contract::hooks::Hooks, write::Clock};
use parking_lot::Mutex;
use tokio::time::sleep;
use tracing::debug;

use super::{
    Certificate, Paths,
    client_config::{self, ClientConfig},
};
use crate::host::{Hooking, Host, NotServed, Port};

/// The longest time between two checks.
const MAX_CHECK_INTERVAL: Duration = Duration::from_mins(1);
/// The shortest time between two checks: many definitions may change at once.
const MIN_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The certificate and the `clientConfig`s by which the API server calls the hooks.
struct Callers {
    certificate: Certificate,
    configs: Mutex<Vec<ClientConfig>>,
    now: Clock,
}

/// Reports the state of the hooks as long as it is awaited.
pub(super) async fn report(host: &Host, paths: &Paths, mut certificate: Certificate) {
    let callers = Arc::new(Callers {
        certificate: certificate.clone(),
        configs: Mutex::default(),
        now: Arc::clone(&host.options().now),
    });
    let port: Port = {
        let callers = Arc::clone(&callers);
        Arc::new(move |processor| callers.not_served(processor))
    };
    host.hooks_served_at(Arc::clone(&port));
    let (mut definitions, mut activity) = (host.definitions(), host.activity());
    let mut told = Vec::new();
    loop {
        definitions.mark_unchanged();
        let hooks = host.all_hooks();
        let of: Vec<Hooking> = hooks.iter().map(|(_, hooking)| hooking.clone()).collect();
        match client_config::read(host.cluster(), &of, paths).await {
            Ok(found) => *callers.configs.lock() = found,
            Err(problem) => debug!(problem, "the callers of webhooks are not known"),
        }
        let state = hooks.iter().map(|(name, _)| (Arc::clone(name), callers.not_served(name)));
        let state: Vec<(Arc<str>, Option<NotServed>)> = state.collect();
        if state != told {
            host.hooks_served_at(Arc::clone(&port));
            told = state;
        }
        sleep(MIN_CHECK_INTERVAL).await;
        let other_hooks = async {
            while activity.changed().await.is_ok() && is_same(&hooks, &host.all_hooks()) {}
        };
        tokio::select! {
            () = certificate.changed() => {}
            Ok(()) = definitions.changed() => {}
            () = other_hooks => {}
            () = sleep(MAX_CHECK_INTERVAL) => {}
        }
    }
}

/// Returns whether the same processors have the same hooks.
fn is_same(before: &[(Arc<str>, Hooking)], after: &[(Arc<str>, Hooking)]) -> bool {
    fn hooks(of: &[(Arc<str>, Hooking)]) -> impl Iterator<Item = (&str, &Hooks)> {
        of.iter().map(|(name, hooking)| (&**name, hooking.hooks()))
    }
    hooks(before).eq(hooks(after))
}

// === impl Callers ===

impl Callers {
    fn not_served(&self, processor: &str) -> Option<NotServed> {
        let now = Duration::try_from((self.now)().as_duration()).unwrap_or_default();
        self.certificate.not_served(now).or_else(|| {
            let served = (self.certificate.source())()?;
            let configs = self.configs.lock();
            let mut own = configs.iter().filter(|config| config.processor == processor);
            own.find_map(|config| served.not_accepted(config, now))
        })
    }
}
