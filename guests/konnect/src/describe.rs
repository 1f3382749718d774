//! The declaration of what the processor reconciles, reads, writes and calls.

use mortise_sdk::{Description, Methods, OutboundRule, Reconciler, Selection, kubernetes::Secret};

use crate::{
    around, auth,
    config::Config,
    kind::{self, AUTH, CLEANUP, CONTROL_PLANE, Entity, GRANT, OLD_CLEANUP, PLUGIN},
    sync::{credential, fault},
};

/// Where the API is.
const ORIGINS: [&str; 2] = ["https://*.api.konghq.com", "https://*.api.konghq.tech"];
/// Secrets that the processor may use.
const SECRETS: &str = "konghq.com/secret=true";
/// Those whose values it may read: never a token.
pub(crate) const READABLE: &str = "konghq.com/secret=true,konghq.com/credential!=konnect";
/// Those whose values the host adds to calls.
const TOKENS: &str = "konghq.com/secret=true,konghq.com/credential=konnect";

/// Returns the declaration.
pub(crate) fn describe(config: &Config) -> Result<Description, String> {
    config.check()?;
    let mut description = Description::new("konnect", env!("CARGO_PKG_VERSION"))
        .reconciles(auth())
        .reads(GRANT.selection())
        .reads(PLUGIN.selection())
        .reads(Selection::of::<Secret>().labels(SECRETS).fields(["metadata.labels"]))
        .reads(Selection::of::<Secret>().labels(READABLE).fields(["metadata.labels", "data"]))
        .reads(CONTROL_PLANE.selection().matching("status.id", "*"));
    for (entity, _) in kind::entities() {
        description = description.reconciles(reconciler(entity));
        // Reverse look-ups: the objects that refer to one.
        for reference in entity.parents() {
            let of = entity.selection().matching(reference.name_path(), "*");
            description = description.reads(of);
        }
    }
    Ok(around::describe(description.outbound(ORIGINS.map(outbound))))
}

fn auth() -> Reconciler {
    let of = AUTH.selection().fields(credential::FIELDS);
    Reconciler::new(AUTH.plural, of).finalizer(auth::IN_USE)
}

fn reconciler(entity: &Entity) -> Reconciler {
    let reconciler = Reconciler::new(entity.plural, entity.selection()).finalizer(CLEANUP);
    let is_old = entity.kind == CONTROL_PLANE.kind;
    if is_old { reconciler.finalizer(OLD_CLEANUP) } else { reconciler }
}

fn outbound(origin: &str) -> OutboundRule {
    let methods = Methods::GET | Methods::POST | Methods::PUT | Methods::PATCH | Methods::DELETE;
    OutboundRule::new(origin).methods(methods).pause(fault::PAUSE).credentials([
        Selection::of::<Secret>().labels(TOKENS).fields(["data.token"]),
        AUTH.selection().fields(["spec.token"]),
    ])
}
