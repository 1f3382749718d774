//! Copies a Secret into every namespace that a label selector takes.

use mortise_sdk::{
    Description, Failure, Host, NoConfig, Object, Outcome, Processor, Reconciler, Request,
    Selection, Verbs, derived_name,
    kubernetes::{Namespace, Secret},
    object::{Condition, Metadata},
    status::set_condition,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const FINALIZER: &str = "copy.mortise.dev/copies";
/// The label of a copy: the mark of its `SecretCopy`. Secrets of others lack it and are left alone.
const COPY_OF: &str = "copy.mortise.dev/of";

/// Copies a Secret of its own namespace into others.
#[derive(Deserialize, JsonSchema)]
pub struct SecretCopy {
    #[schemars(skip)]
    metadata: Metadata,
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize, JsonSchema)]
struct Spec {
    /// The name of the Secret.
    secret: String,
    /// The namespaces: a label selector, as kubectl takes it.
    namespaces: String,
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct Status {
    /// The number of copies that are wanted.
    copies: usize,
    /// Ready: whether all of them are there.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    conditions: Vec<Condition>,
}

impl Object for SecretCopy {
    const GROUP: &'static str = "copy.mortise.dev";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "SecretCopy";
}

/// The processor for `SecretCopy` objects.
pub struct SecretCopies;

impl Processor for SecretCopies {
    type Config = NoConfig;

    fn describe(_: &NoConfig) -> Result<Description, String> {
        let copies = Reconciler::new("secret-copies", Selection::of::<SecretCopy>());
        Ok(Description::new("secret-copy", env!("CARGO_PKG_VERSION"))
            .reconciles(copies.finalizer(FINALIZER))
            .reads(Selection::of::<Namespace>().fields(["metadata.labels"]))
            .reads(Selection::of::<Secret>().fields(["data", "type", "metadata.labels"]))
            .writes(Selection::of::<Secret>(), Verbs::CREATE | Verbs::UPDATE | Verbs::DELETE))
    }

    fn reconcile(request: &Request, _: &NoConfig, host: &Host) -> Result<Outcome, Failure> {
        let Some(copy) = request.object::<SecretCopy>()? else { return Ok(Outcome::new()) };
        let (home, name) = (copy.metadata.namespace.as_deref(), copy.spec.secret.as_str());
        let mark = derived_name(&copy.metadata.name, &[home.unwrap_or_default()]);
        let former = Selection::of::<Secret>().labels(format!("{COPY_OF}={mark}"));
        let mut outcome = Outcome::new().prune(former);
        if copy.metadata.is_deleted() {
            return Ok(outcome.finalizers::<&str>([]));
        }
        let refused = request.failed_writes.iter().map(|failure| failure.message.clone());
        let mut wrong: Vec<String> = refused.collect();
        if let Some(secret) = host.get::<Secret>(home, name, &[])? {
            let selected = Selection::of::<Namespace>().labels(&copy.spec.namespaces);
            for to in host.list::<Namespace>(&selected)?.into_iter().map(|to| to.metadata.name) {
                let there = host.get::<Secret>(Some(&to), name, &["metadata.labels"])?;
                if there.is_none_or(|there| there.metadata.labels.get(COPY_OF) == Some(&mark)) {
                    let metadata = Metadata::new(name).namespace(to).label(COPY_OF, &mark);
                    outcome = outcome.apply(&Secret { metadata, ..secret.clone() });
                } else if Some(to.as_str()) != home {
                    wrong.push(format!("the Secret {name} in {to} is not a copy"));
                }
            }
        } else {
            wrong.push(format!("there is no Secret {name} to copy"));
        }
        let reason = if wrong.is_empty() { "Copied" } else { "Incomplete" };
        let mut status = Status { copies: outcome.apply.len(), ..copy.status };
        let ready = Condition::new("Ready", wrong.is_empty().into(), reason, wrong.join("; "));
        set_condition(&mut status.conditions, ready, host);
        Ok(outcome.finalizers([FINALIZER]).status(request, &status))
    }
}

mortise_sdk::export!(SecretCopies);

#[cfg(test)]
mod tests;
