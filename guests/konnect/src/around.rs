//! The reconcilers that make no call: bindings, credentials, and finalizers of what is in use.

use mortise_sdk::{
    Description, Failure, Host, Outcome, Reconciler, Request, Selection, Verbs, kubernetes::Secret,
};

use crate::{
    binding::{self, PLUGINS, TARGETS},
    config::Config,
    credential,
    kind::{self, AUTH, BINDING, CONSUMER, PLUGIN},
    token_secret,
};

/// The reconciler of Secrets with tokens.
const SECRETS: &str = "token-secrets";
/// The reconciler of the Secrets of consumers.
const CREDENTIALS: &str = "credentials";
/// The beginning of the names of the reconcilers of targets.
const TARGET: &str = "target-";

/// Adds the reconcilers, and what they read and write.
pub(crate) fn describe(description: Description) -> Description {
    let plugin = PLUGIN.selection().fields(["metadata.finalizers"]);
    let plugin = Reconciler::new(PLUGIN.plural, plugin).finalizer(binding::IN_USE);
    let secrets = Selection::of::<Secret>().labels(token_secret::SECRETS);
    let secrets = secrets.fields(["metadata.finalizers"]);
    let secrets = Reconciler::new(SECRETS, secrets).finalizer(token_secret::IN_USE);
    let paths = CONSUMER.references.iter().map(|reference| reference.at);
    let consumers = Reconciler::new(CREDENTIALS, CONSUMER.selection().fields(paths));
    let description = description.reconciles(plugin).reconciles(secrets).reconciles(consumers);
    let description = targets(description);
    let values = Selection::of::<Secret>().labels(credential::SECRETS);
    let description = description.reads(values.fields(["metadata.labels", "data"]));
    let tokens = AUTH.references.iter().fold(description, |description, reference| {
        let of = AUTH.selection().matching(reference.name_path(), "*");
        description.reads(of.fields([reference.at]))
    });
    credential::kinds().fold(tokens, |description, entity| {
        let of = entity.selection().matching(credential::OWNER, "*").fields(credential::FIELDS);
        let all = Verbs::CREATE | Verbs::UPDATE | Verbs::DELETE;
        description.reads(of).writes(entity.selection(), all)
    })
}

fn targets(description: Description) -> Description {
    let all = Verbs::CREATE | Verbs::UPDATE | Verbs::DELETE;
    let bindings = BINDING.selection().fields(binding::FIELDS);
    let bindings = bindings.matching("spec.pluginRef.name", "*");
    let description = description.reads(bindings).writes(BINDING.selection(), all);
    TARGETS.into_iter().fold(description, |description, (kind, field)| {
        let Some(entity) = kind::find(kind) else { return description };
        let held = entity.selection().fields(["metadata.finalizers"]);
        let name = format!("{TARGET}{}", entity.plural);
        let paths = entity.parents().map(|reference| reference.at).chain([PLUGINS]);
        let bindings = BINDING.selection().fields(["metadata.ownerReferences"]);
        description
            .reconciles(Reconciler::new(name, held).finalizer(binding::CLEANUP))
            .reads(entity.selection().fields(paths))
            .reads(bindings.matching(format!("spec.targets.{field}.name"), "*"))
    })
}

/// Reconciles an object for one of the reconcilers of this module.
pub(crate) fn reconcile(
    request: &Request,
    _config: &Config,
    host: &Host,
) -> Result<Outcome, Failure> {
    let name = request.reconciler.as_str();
    match name {
        CREDENTIALS => credential::reconcile(request, host),
        SECRETS => token_secret::reconcile(request, host),
        _ if name == PLUGIN.plural => binding::reconcile(request, host),
        _ => binding::hold_target(request, host),
    }
}

#[cfg(test)]
mod tests;
