//! The check of the selections that an outcome starts.

use std::{collections::HashSet, sync::Arc};

use super::{Check, Fault, Finalizers, Invalid, KIND_FORM, NAME_FORM, is_kind, is_name};
use crate::{
    contract::{
        Selection, Start,
        bounds::{FIELDS, SELECTOR, STARTS, text::is_label},
    },
    grant::{DeclaredReconciler, Selected, accepted},
    key::ReconcilerId,
    store::Query,
};

impl Check<'_> {
    /// Checks the started selections; equal ones become one. `finalizers` are those that the
    /// outcome wants for the reconciled object.
    pub(super) fn starts(
        &self,
        starts: &[Start],
        finalizers: Option<&Finalizers>,
    ) -> Result<Vec<Arc<Selected>>, Invalid> {
        if starts.len() > STARTS {
            return Err(Fault::TooMany { count: starts.len(), limit: STARTS }.at("start"));
        }
        if self.against.reconciler.on_demand && !starts.is_empty() {
            let reason = "the outcomes of an on-demand reconciler start nothing";
            return Err(Fault::refused("reconciler", reason).at("start[0]"));
        }
        let holds = self.will_hold_finalizer(finalizers);
        let (mut checked, mut seen) = (Vec::with_capacity(starts.len()), HashSet::new());
        for (index, start) in starts.iter().enumerate() {
            let place = |fault: Fault| fault.at(format!("start[{index}]"));
            let selected = Arc::new(self.start(start, holds).map_err(place)?);
            if seen.insert(Arc::clone(&selected)) {
                checked.push(selected);
            }
        }
        Ok(checked)
    }

    /// Returns whether the reconciled object holds a finalizer of its reconciler after the outcome.
    fn will_hold_finalizer(&self, finalizers: Option<&Finalizers>) -> bool {
        if let Some(finalizers) = finalizers {
            return !finalizers.wanted.is_empty();
        }
        let object = self.against.reconciled.object.as_ref();
        let held = object.and_then(|object| object.pointer("/metadata/finalizers")?.as_array());
        let own = &self.against.reconciler.finalizers;
        held.into_iter().flatten().any(|held| own.iter().any(|own| held == own))
    }

    fn start(&self, start: &Start, holds_finalizer: bool) -> Result<Selected, Fault> {
        let declared = self.on_demand(&start.reconciler)?;
        if !declared.spec.finalizers.is_empty() && !holds_finalizer {
            let reason = format!(
                "`{}` has finalizers, so only an object that holds a finalizer of its own reconciler starts it",
                start.reconciler
            );
            return Err(Fault::refused("reconciler", reason));
        }
        let of = &start.of;
        check_form(of)?;
        self.check_cluster(&of.kind.cluster)?;
        let query = Query::new(of).map_err(|error| Fault::malformed("of", error))?;
        for (path, _) in query.matching() {
            self.compares_no_credential(&of.kind, path)?;
        }
        match declared.readable.covers(of, &query) {
            Ok(()) => {}
            Err(None) => {
                let accepted = format!("declared: {}", declared.readable.of);
                return Err(Fault::FieldNotDeclared { field: "of".to_owned(), accepted });
            }
            Err(Some(path)) => {
                let accepted = "it stands neither in `fields` nor in `matching` of the reconciler";
                let accepted = accepted.to_owned();
                return Err(Fault::FieldNotDeclared { field: path.to_string(), accepted });
            }
        }
        let by = ReconcilerId::on_demand(&start.reconciler, &of.kind);
        Ok(Selected::new(by, of.clone(), query))
    }

    /// Returns the declared on-demand reconciler of this name.
    fn on_demand(&self, name: &str) -> Result<&DeclaredReconciler, Fault> {
        let grant = self.against.grant;
        if let Some(found) = grant.reconciler(name).filter(|found| found.spec.on_demand) {
            return Ok(found);
        }
        let all = grant.reconcilers().iter().filter(|one| one.spec.on_demand);
        let all = all.map(|one| format!("`{}`", one.spec.name));
        let accepted = accepted("on-demand reconcilers", all);
        Err(Fault::FieldNotDeclared { field: "reconciler".to_owned(), accepted })
    }
}

/// Fails if a selection is not of one kind, or is not well-formed.
fn check_form(of: &Selection) -> Result<(), Fault> {
    if !is_kind(&of.kind) {
        return Err(Fault::malformed("of.kind", KIND_FORM));
    }
    if !of.fields.is_empty() {
        return Err(Fault::malformed("of.fields", "empty: the declared fields are read"));
    }
    if of.namespace.as_ref().is_some_and(|namespace| !is_label(namespace)) {
        return Err(Fault::malformed("of.namespace", "a DNS label, or none"));
    }
    if of.name.as_ref().is_some_and(|name| !is_name(name)) {
        return Err(Fault::malformed("of.name", NAME_FORM));
    }
    if of.labels.len() > SELECTOR {
        return Err(Fault::malformed("of.labels", format!("at most {SELECTOR} bytes")));
    }
    if of.matching.len() > FIELDS {
        return Err(Fault::malformed("of.matching", format!("at most {FIELDS} entries")));
    }
    Ok(())
}
