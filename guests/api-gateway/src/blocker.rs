//! Objects of people that block the deletion of the APIGateway, or of the default Gateway.

use mortise_sdk::{Error, Host, Kind, Selection, object::Metadata};
use serde::Deserialize;

use crate::{
    names::{self, FULL_NAME},
    status::{Reason, Report},
    work::{Stop, unreadable},
};

/// The most names that are listed.
const MAX_LISTED_NAMES: usize = 5;
const HINT: &str = "Please take a look at kyma-system/api-gateway-controller-manager logs to see \
     more information about the warning";
/// The annotation with the version in which an APIRule was written.
const VERSION: &str = "metadata.annotations[\"gateway.kyma-project.io/original-version\"]";

/// An object of which only its name matters.
#[derive(Deserialize)]
struct Named {
    metadata: Metadata,
}

pub(crate) fn api_rule() -> Kind {
    Kind::new("gateway.kyma-project.io", "v2alpha1", "APIRule")
}

pub(crate) fn ory_rule() -> Kind {
    Kind::new("oathkeeper.ory.sh", "v1alpha1", "Rule")
}

fn rate_limit() -> Kind {
    Kind::new("gateway.kyma-project.io", "v1alpha1", "RateLimit")
}

/// Returns the selections that are read.
pub(crate) fn selections() -> Vec<Selection> {
    vec![
        Selection::new(api_rule()).matching("spec.gateway", "*").fields([VERSION, "spec.gateway"]),
        Selection::new(ory_rule()).fields(["metadata.name"]),
        Selection::new(rate_limit()).fields(["metadata.name"]),
        Selection::new(names::virtual_service())
            .matching("spec.gateways[]", "*")
            .fields(["spec.gateways"]),
    ]
}

/// Fails if there are objects that need the module.
pub(crate) fn of_module(host: &Host) -> Result<(), Stop> {
    let kinds = [
        (api_rule(), "APIRule(s)", "APIRules", MAX_LISTED_NAMES),
        (ory_rule(), "ORY Oathkeeper Rule(s)", "ORY Oathkeeper Rules", MAX_LISTED_NAMES),
        (rate_limit(), "RateLimit(s)", "Rate Limit", usize::MAX),
    ];
    for (kind, what, plural, most) in kinds {
        let failed = format!("Error during listing existing {plural}");
        let found = list(host, &Selection::new(kind)).map_err(unreadable(
            Reason::ReconcileFailed,
            &failed,
            host,
        ))?;
        if !found.is_empty() {
            let description =
                format!("There are {what} that block the deletion of API-Gateway CR. {HINT}");
            let names = found.iter().take(most).map(full_name).collect();
            let reason = Reason::DeletionBlockedExistingResources;
            return Err(Stop::Report(Report::warning(reason, description, names)));
        }
    }
    Ok(())
}

/// Fails if there are objects of people that use the default Gateway: a `VirtualService`, or an
/// APIRule that was written in version v1beta1. One of a later version uses it through its
/// `VirtualService`.
pub(crate) fn of_kyma_gateway(host: &Host) -> Result<(), Stop> {
    let reason = Reason::KymaGatewayReconcileFailed;
    let failed = unreadable(reason, "Could not get customer resources from the cluster", host);
    let rules = Selection::new(api_rule()).matching("spec.gateway", FULL_NAME);
    let rules = list(host, &rules.fields([VERSION])).map_err(&failed)?;
    let services = Selection::new(names::virtual_service());
    let services = services.matching("spec.gateways[]", FULL_NAME).fields(["metadata.name"]);
    let services = list(host, &services).map_err(&failed)?;
    let is_v1beta1 = |rule: &&Named| {
        let version = rule.metadata.annotations.get("gateway.kyma-project.io/original-version");
        version.is_some_and(|version| version == "v1beta1")
    };
    let is_foreign = |service: &&Named| !names::is_health(&service.metadata);
    let users = rules.iter().filter(is_v1beta1).chain(services.iter().filter(is_foreign));
    let names: Vec<String> =
        users.take(MAX_LISTED_NAMES).map(|user| user.metadata.name.clone()).collect();
    if names.is_empty() {
        return Ok(());
    }
    let description =
        format!("There are custom resources that block the deletion of Kyma Gateway. {HINT}");
    Err(Stop::Report(Report::warning(Reason::KymaGatewayDeletionBlocked, description, names)))
}

/// Returns whether there is an Ory Rule.
pub(crate) fn has_ory_rules(host: &Host) -> Result<bool, Error> {
    let rules = Selection::new(ory_rule()).fields(["metadata.name"]);
    match host.objects::<Named>(&rules, 1).next() {
        Some(Err(error)) if error.is_unknown_kind() => Ok(false),
        Some(found) => found.map(|_| true),
        None => Ok(false),
    }
}

fn list(host: &Host, of: &Selection) -> Result<Vec<Named>, Error> {
    match host.list(of) {
        Err(error) if error.is_unknown_kind() => Ok(Vec::new()),
        list => list,
    }
}

fn full_name(of: &Named) -> String {
    let namespace = of.metadata.namespace.as_deref().unwrap_or_default();
    format!("{namespace}/{}", of.metadata.name)
}
