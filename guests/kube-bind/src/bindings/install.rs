//! The CRDs of a binding, and the start of its kinds and claims.

use super::{
    Action, BoundResource, CONNECTED, Claimable, Condition, Definition, Error, Event, Export,
    FINALIZER, Object, Outcome, Place, Run, SCHEMA_IN_SYNC, ServiceNamespace, Severity, Shared,
    Starts, WriteFailure, find, start,
};
use crate::{
    api::{BoundSchema, ExportSpec, PermissionClaim},
    claim::{self, MAX_CLAIMS},
    definition, namespaces,
    valid::is_dns_label,
};

/// The most resources of an export.
const MAX_RESOURCES: usize = 128;
/// The most bytes of all definitions together, well below the limit of an outcome.
const MAX_BYTES: usize = 6 * 1024 * 1024;

/// The reason why a definition is not written.
struct Refusal {
    reason: &'static str,
    message: String,
}

impl Run<'_> {
    /// Writes the CRDs of an export, and starts what runs for it.
    pub(super) fn install(
        &mut self,
        place: &Place,
        export: &Export,
        mut outcome: Outcome,
    ) -> Result<Outcome, Error> {
        let schemas = self.schemas(place, export);
        let mut running = Vec::new();
        let mut refusals = Vec::new();
        let mut bytes = 0;
        let (found, missing) = schemas?;
        for schema in &found {
            let name = &schema.metadata.name;
            let former = Definition::get(self.host, name)?;
            let is_owned =
                former.as_ref().is_some_and(|former| former.owner_of(&self.binding).is_some());
            if missing.is_none() {
                match self.definition(schema, former.as_ref()) {
                    Ok(manifest) if bytes + manifest.object.len() <= MAX_BYTES => {
                        bytes += manifest.object.len();
                        outcome = outcome.apply(manifest);
                    }
                    Ok(_) => refusals.push(refused(name, "the export has too much of them")),
                    Err(refusal) => refusals.push(refusal),
                }
            }
            running.extend(former.filter(|_| is_owned && self.config.allows(&schema.spec.group)));
        }
        let mut leaving = Vec::new();
        if missing.is_none() {
            self.tell_bound(export, &found);
        } else {
            let names: Vec<&str> = running.iter().map(|of| of.metadata.name.as_str()).collect();
            leaving = Definition::owned_by(self.host, &self.binding)?;
            leaving.retain(|of| {
                !names.contains(&of.metadata.name.as_str()) && self.config.allows(&of.spec.group)
            });
        }
        // As with the original, the last of several refusals is the one that is told.
        self.judge(missing.or_else(|| refusals.pop()));
        if !outcome.apply.is_empty()
            || !running.is_empty()
            || !leaving.is_empty()
            || self.has_claims()
        {
            outcome = outcome.finalizers([FINALIZER]);
        }
        let share = start::share(self.host, &self.binding)?;
        let mut starts = Starts::new(&running, self.config, share);
        starts.leaving(&leaving);
        let (outcome, cut) = self.start_shared(place, &export.spec, starts, outcome)?;
        self.cut.extend(cut);
        Ok(outcome)
    }

    /// Starts the objects at home of a binding without an export, so that deleted ones are let go.
    pub(super) fn start_home(&mut self, outcome: Outcome) -> Result<Outcome, Error> {
        let mut running = Definition::owned_by(self.host, &self.binding)?;
        running.retain(|definition| self.config.allows(&definition.spec.group));
        if running.is_empty() {
            return Ok(outcome);
        }
        let share = start::share(self.host, &self.binding)?;
        let (outcome, cut) = Starts::new(&running, self.config, share).end(outcome);
        self.cut.extend(cut);
        Ok(outcome.finalizers([FINALIZER]))
    }

    /// Reads the schemas of an export: those that are there, and why not all of them are.
    fn schemas(
        &mut self,
        place: &Place,
        export: &Export,
    ) -> Result<(Vec<BoundSchema>, Option<Refusal>), Error> {
        let (mut found, mut missing) = (Vec::new(), None);
        let resources = export.spec.resources.len();
        if resources > MAX_RESOURCES {
            let cut = format!("{MAX_RESOURCES} of {resources} resources of the export are bound");
            self.cut.push(cut);
        }
        for resource in export.spec.resources.iter().take(MAX_RESOURCES) {
            let name = resource.schema_name();
            let message = match place.get::<BoundSchema>(self.host, &name, &["spec"]) {
                Ok(Some(schema)) => {
                    found.push(schema);
                    continue;
                }
                Ok(None) => format!("boundschemas.kube-bind.io \"{name}\" not found"),
                Err(Error::Shape { message, .. }) => message,
                Err(error) => return Err(error),
            };
            let message = format!(
                "Failed to fetch BoundSchema objects: failed to get Schema {name}: {message}"
            );
            missing.get_or_insert(Refusal { reason: "BoundSchemaFetchFailed", message });
        }
        Ok((found, missing))
    }

    /// Returns the manifest of the CRD of a schema.
    fn definition(
        &self,
        schema: &BoundSchema,
        former: Option<&Definition>,
    ) -> Result<mortise_sdk::Manifest, Refusal> {
        let name = &schema.metadata.name;
        if !self.config.allows(&schema.spec.group) {
            let message = format!(
                "the API group {:?} may not be bound; `groups` of the configuration allows {:?}",
                schema.spec.group, self.config.groups
            );
            return Err(refused(name, &message));
        }
        if former.is_some_and(|former| former.owner_of(&self.binding).is_none()) {
            return Err(Refusal {
                reason: "ForeignCustomResourceDefinition",
                message: format!("CustomResourceDefinition {name} is not owned by kube-bind.io."),
            });
        }
        let manifest = definition::manifest(schema, &self.binding, former)
            .map_err(|message| refused(name, &message))?;
        match self.request.failed_writes.iter().find(|write| is_of(write, name)) {
            None => Ok(manifest),
            Some(write) if former.is_none() => Err(refused(name, &write.message)),
            Some(write) => Err(Refusal {
                reason: "CustomResourceDefinitionUpdateFailed",
                // The original names the binding, too.
                message: format!(
                    "CustomResourceDefinition {} cannot be updated: {}",
                    self.binding.metadata.name, write.message
                ),
            }),
        }
    }

    fn tell_bound(&mut self, export: &Export, schemas: &[BoundSchema]) {
        let status = &mut self.binding.status;
        for schema in schemas {
            let bound = BoundResource {
                group: schema.spec.group.clone(),
                resource: schema.spec.names.plural.clone(),
            };
            if !status.bound_schemas.contains(&bound) {
                status.bound_schemas.push(bound);
            }
        }
        status.permission_claims.clone_from(&export.spec.permission_claims);
    }

    /// Returns whether the binding tells of claims: all schemas were there once. As with the
    /// original, claims need no definition, nor the schemas any longer.
    fn has_claims(&self) -> bool {
        !self.binding.status.permission_claims.is_empty()
    }

    /// Sets `Connected` and `SchemaInSync`. A binding that was never in sync has no `SchemaInSync`.
    fn judge(&mut self, refusal: Option<Refusal>) {
        let was_in_sync = find(&self.binding.status.conditions, SCHEMA_IN_SYNC).is_some();
        let types = [CONNECTED, SCHEMA_IN_SYNC];
        let Some(Refusal { reason, message }) = refusal else {
            self.next.extend(types.map(Condition::is_true));
            return;
        };
        let told = types.into_iter().filter(|of| *of == CONNECTED || was_in_sync);
        self.next.extend(
            told.map(|of| Condition::is_false(of, Severity::Error, reason, message.clone())),
        );
    }

    /// Starts what runs at the provider for an export, and its claims. Returns what bounds have left
    /// out, too.
    pub(super) fn start_shared(
        &self,
        place: &Place,
        export: &ExportSpec,
        mut starts: Starts,
        mut outcome: Outcome,
    ) -> Result<(Outcome, Vec<String>), Error> {
        let all = place.all::<ServiceNamespace>().fields(["status"]);
        let namespaces: Vec<ServiceNamespace> = self.host.list(&all)?;
        let names = namespaces.into_iter().map(|namespace| namespace.status.namespace);
        let mut namespaces: Vec<String> = names.filter(|name| is_dns_label(name)).collect();
        namespaces.sort();
        namespaces.dedup();
        let shared = Shared { place, export, namespaces: &namespaces };
        let mut cut: Vec<String> = namespaces::refused(self.host, place)?.into_iter().collect();
        starts.orphans(&shared);
        if self.has_claims() {
            let claims = export.permission_claims.len();
            if claims > MAX_CLAIMS {
                cut.push(format!("{MAX_CLAIMS} of {claims} claims of the export are honoured"));
            }
            let (claims, refused) = self.claims(export);
            starts.claims(&shared, &claims);
            outcome = refused.into_iter().fold(outcome, Outcome::event);
        }
        let (outcome, left_out) = starts.end(outcome);
        cut.extend(left_out);
        Ok((outcome, cut))
    }

    /// Returns the claims of an export that are honoured, and events for the others.
    fn claims<'a>(
        &self,
        export: &'a ExportSpec,
    ) -> (Vec<(Claimable, &'a PermissionClaim)>, Vec<Event>) {
        let (mut honoured, mut refused) = (Vec::new(), Vec::new());
        for claim in export.permission_claims.iter().take(MAX_CLAIMS) {
            let claimable = Claimable::of(&claim.group, &claim.resource);
            let allowed = claimable.filter(|of| self.config.rules_of(*of).next().is_some());
            let why = match allowed {
                Some(resource) if claim::is_valid(&claim.selector) => {
                    honoured.push((resource, claim));
                    continue;
                }
                Some(_) => "a name or label of its selector is not valid",
                None => "`claims` of the configuration does not allow it",
            };
            let message = format!("the provider claims {}: {why}", claim.resource);
            refused.push(Event::warning("PermissionClaimRefused", message));
        }
        (honoured, refused)
    }
}

fn refused(name: &str, message: &str) -> Refusal {
    Refusal {
        reason: "CustomResourceDefinitionCreateFailed",
        message: format!("CustomResourceDefinition {name} cannot be created: {message}"),
    }
}

fn is_of(write: &WriteFailure, name: &str) -> bool {
    write.action == Action::Apply
        && write.ref_.kind.kind == Definition::KIND
        && write.ref_.name == name
}
