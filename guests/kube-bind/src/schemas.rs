//! `BoundSchema`s at the provider: their status is that of the CRD at home.

use mortise_sdk::{Failure, Host, Outcome, Request};

use crate::{
    api::{BoundSchema, BoundSchemaStatus, Condition, Export, READY, find, set, summarize},
    definition::Definition,
    exports::here,
    link::offers,
};

/// The condition of a CRD that is being deleted.
const TERMINATING: &str = "Terminating";

/// Reconciles a `BoundSchema`: copies the CRD's conditions, accepted names and stored versions.
pub(crate) fn reconcile(request: &Request, host: &Host) -> Result<Outcome, Failure> {
    let Some(schema) = request.object::<BoundSchema>()? else { return Ok(Outcome::new()) };
    let Some(place) = here(request, host)? else { return Ok(Outcome::new()) };
    let name = &schema.metadata.name;
    let exports: Vec<Export> = host.list(&place.all::<Export>().fields(["spec"]))?;
    if !exports.iter().any(|export| offers(export, name)) {
        return Ok(Outcome::new());
    }
    let Some(definition) = Definition::get(host, name)? else { return Ok(Outcome::new()) };
    let of = definition.status;
    let is_terminating = find(&of.conditions, TERMINATING).is_some();
    let mut conditions = schema.status.conditions;
    conditions.retain(|condition| is_terminating || condition.condition_type != TERMINATING);
    let others = of.conditions.into_iter().filter(|condition| condition.condition_type != READY);
    set(&mut conditions, others.map(with_severity), host);
    summarize(&mut conditions, host);
    let status = BoundSchemaStatus {
        accepted_names: of.accepted_names,
        stored_versions: of.stored_versions,
        conditions,
        ..schema.status
    };
    Ok(Outcome::new().status(request, &status))
}

fn with_severity(condition: Condition) -> Condition {
    let severity = if condition.holds() { "" } else { "Error" };
    Condition { severity: severity.to_owned(), ..condition }
}
