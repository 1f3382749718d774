//! Bundles at home: a binding for each export of a provider.

use std::collections::BTreeSet;

use mortise_sdk::{
    Deletion, Error, Failure, Host, Manifest, Object, ObjectRef, Outcome, Request, Selection,
    object::{Metadata, OwnerReference},
};
use serde_json::json;

use crate::{
    api::{Binding, Bundle, Condition, Export, Severity, find, set, summarize},
    bindings::{PATIENCE, is_passing},
    kubeconfig::SECRET_VALID,
    place::Place,
};

/// The condition of a bundle whose bindings are those of the exports.
const SYNCED: &str = "Synced";
/// The most bindings of a bundle.
const MAX_BINDINGS: usize = 5_000;

/// Reconciles a bundle.
pub(crate) fn reconcile(request: &Request, host: &Host) -> Result<Outcome, Failure> {
    let Some(bundle) = request.object::<Bundle>()? else { return Ok(Outcome::new()) };
    if bundle.metadata.is_deleted() {
        return Ok(Outcome::new());
    }
    let place = match Place::read(host, &bundle.spec.kubeconfig_secret_ref, "")? {
        Ok(place) => place,
        Err(condition) => {
            return Ok(told(request, host, bundle, [*condition], Outcome::new()));
        }
    };
    let valid = Condition::is_true(SECRET_VALID);
    let exports = match host.list::<Export>(&place.all::<Export>().fields(["metadata.name"])) {
        Ok(exports) => exports,
        Err(error) => {
            let told = find(&bundle.status.conditions, SYNCED);
            let is_passing = is_passing(request, &error, told);
            if is_passing && told.is_some() {
                return Err(Failure::from(error).retry_after(PATIENCE));
            }
            let message =
                format!("Failed to list APIServiceExports from provider cluster: {error}");
            let synced = not_synced(Severity::Error, "ListExportsFailed", message);
            let failure = failed(request, host, bundle, [valid, synced], error);
            return Err(if is_passing { failure.retry_after(PATIENCE) } else { failure });
        }
    };
    let bindings: Vec<Binding> =
        host.list(&Selection::of::<Binding>().fields(["metadata.ownerReferences", "spec"]))?;
    let outcome = bound(&bundle, &exports, &bindings);
    let synced = match request.failed_writes.len() {
        0 if exports.len() > MAX_BINDINGS => {
            let message = format!(
                "The provider has {} APIServiceExports; the first {MAX_BINDINGS} by name are bound",
                exports.len()
            );
            not_synced(Severity::Warning, "TooManyExports", message)
        }
        0 => Condition::is_true(SYNCED),
        errors => not_synced(
            Severity::Warning,
            "SyncErrors",
            format!("Failed to sync some APIServiceBindings: {errors} error(s)"),
        ),
    };
    Ok(told(request, host, bundle, [valid, synced], outcome))
}

/// Returns the outcome with the bindings of a bundle.
fn bound(bundle: &Bundle, exports: &[Export], bindings: &[Binding]) -> Outcome {
    let is_owned = |binding: &&Binding| {
        let owners = &binding.metadata.owner_references;
        owners.iter().any(|owner| Some(&owner.uid) == bundle.metadata.uid.as_ref())
    };
    let all: BTreeSet<&str> = exports.iter().map(|export| export.metadata.name.as_str()).collect();
    let wanted: BTreeSet<&str> = all.into_iter().take(MAX_BINDINGS).collect();
    let missing = wanted.iter().filter(|name| {
        let there = bindings.iter().find(|binding| binding.metadata.name == **name);
        there.is_none_or(|there| {
            is_owned(&there) && there.spec == bundle.spec && !there.metadata.is_deleted()
        })
    });
    let outcome =
        missing.fold(Outcome::new(), |outcome, name| outcome.apply(manifest(bundle, name)));
    let gone = bindings.iter().filter(is_owned).filter(|binding| {
        !wanted.contains(binding.metadata.name.as_str()) && !binding.metadata.is_deleted()
    });
    gone.fold(outcome, |outcome, binding| {
        let deletion = Deletion::new(ObjectRef::of::<Binding>(None, &binding.metadata.name));
        outcome.delete(deletion.uid(binding.metadata.uid.clone().unwrap_or_default()))
    })
}

fn manifest(bundle: &Bundle, name: &str) -> Manifest {
    let owner = OwnerReference {
        block_owner_deletion: None,
        ..OwnerReference::controller::<Bundle>(&bundle.metadata)
    };
    let metadata = Metadata::new(name).owned_by(owner);
    Manifest::with_kind(&Binding::kind(), &json!({"metadata": metadata, "spec": bundle.spec}))
}

fn not_synced(severity: Severity, reason: &str, message: String) -> Condition {
    Condition::is_false(SYNCED, severity, reason, message)
}

fn told(
    request: &Request,
    host: &Host,
    bundle: Bundle,
    next: impl IntoIterator<Item = Condition>,
    outcome: Outcome,
) -> Outcome {
    let mut status = bundle.status;
    set(&mut status.conditions, next, host);
    summarize(&mut status.conditions, host);
    outcome.status(request, &status)
}

fn failed(
    request: &Request,
    host: &Host,
    bundle: Bundle,
    next: [Condition; 2],
    error: Error,
) -> Failure {
    let outcome = told(request, host, bundle, next, Outcome::new());
    Failure { status: outcome.status, ..Failure::from(error) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_exports_by_name_are_bound() {
        let bundle = serde_json::from_value(json!({
            "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceBindingBundle",
            "metadata": {"name": "all", "uid": "u"},
            "spec": {"kubeconfigSecretRef": {"namespace": "a", "name": "b", "key": "c"}},
        }));
        let export = |number: usize| {
            serde_json::from_value(json!({
                "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceExport",
                "metadata": {"namespace": "cn", "name": format!("e{number:04}")}, "spec": {},
            }))
            .unwrap()
        };
        let exports: Vec<Export> = (0..=MAX_BINDINGS).rev().map(export).collect();
        let outcome = bound(&bundle.unwrap(), &exports, &[]);
        assert_eq!(outcome.apply.len(), MAX_BINDINGS);
        let last = format!("\"e{MAX_BINDINGS:04}\"");
        assert!(!outcome.apply.iter().any(|part| part.object.contains(&last)));
    }
}
