//! The declaration of the objects that the processor reconciles, reads and writes.

use api_gateway_module::{api::ApiGateway, domain, ingress, object};
use istio::kubernetes::Node;
use mortise_sdk::{Description, ObjectRef, Reconciler, Selection, Verbs};

use crate::{
    Config, autoscaler, blocker, kyma_gateway, local_certificate,
    names::{self, selection},
    network_policy, oathkeeper, reconcile,
};

/// The field that is read of objects which only have to be found.
const LABELS: [&str; 1] = ["metadata.labels"];

pub(crate) fn describe(config: &Config) -> Result<Description, String> {
    let grant = config.grant()?;
    let gateways = Selection::of::<ApiGateway>().fields(reconcile::FIELDS);
    let gateways = Reconciler::new("api-gateways", gateways)
        .finalizer(reconcile::FINALIZER)
        .finalizer(kyma_gateway::FINALIZER)
        .resync(config.resync());
    let description =
        Description::new("api-gateway", env!("CARGO_PKG_VERSION")).reconciles(gateways);
    let reads = reads().into_iter().chain(grant.reads());
    let description = writes(reads.fold(description, Description::reads));
    let grants = grant.is_possible().then(oathkeeper::grants);
    Ok(description.grants(grants.into_iter().flatten()))
}

fn reads() -> Vec<Selection> {
    let mut reads = blocker::selections();
    reads.extend([
        domain::selection(),
        ingress::selection(),
        Selection::of::<Node>().fields(oathkeeper::NODE_FIELDS),
        Selection::new(names::gateway()).fields(["metadata.name"]),
        selection(&names::secret()).fields(local_certificate::FIELDS),
        selection(&oathkeeper::deployment()).fields(oathkeeper::DEPLOYMENT_FIELDS),
        network_policy::selection().fields(object::FIELDS),
        autoscaler::selection().fields(object::FIELDS),
        autoscaler::checkpoint_selection().fields(LABELS),
    ]);
    reads.extend(names::replaced().iter().map(|of| selection(of).fields(object::FIELDS)));
    reads.extend(names::former().map(|of| selection(&of).fields(LABELS)));
    reads.extend(oathkeeper::parts().iter().map(|of| selection(of).fields(LABELS)));
    reads
}

fn writes(description: Description) -> Description {
    let all = Verbs::CREATE | Verbs::UPDATE | Verbs::DELETE;
    let of_metadata = ["metadata.annotations", "metadata.labels"];
    let with = |field: &'static str| of_metadata.into_iter().chain([field]);
    let description = names::replaced().iter().fold(description, |description, of| {
        description.writes_fields(selection(of), all, with("spec"))
    });
    let description = names::former()
        .fold(description, |description, of| description.writes(selection(&of), Verbs::DELETE));
    let secret = selection(&names::secret());
    let description = description
        .writes_fields(secret, all, with("data").chain(["type"]))
        .writes_fields(network_policy::selection(), all, ["metadata.labels", "spec"])
        .writes_fields(autoscaler::selection(), all, ["metadata.labels", "spec"])
        .writes_fields(autoscaler::checkpoint_selection(), Verbs::UPDATE, ["metadata.labels"]);
    oathkeeper::parts().iter().fold(description, |description, of| {
        // What is only made, and never changed, is made by a request of its own.
        let is_made_once = of.kind.kind == "Secret";
        let verbs = if is_made_once { Verbs::CREATE | Verbs::DELETE } else { all };
        let fields = with("spec").chain(own_fields(of).iter().copied());
        description.writes_fields(selection(of), verbs, fields)
    })
}

/// Returns the fields of a part of Oathkeeper beside metadata and spec.
fn own_fields(of: &ObjectRef) -> &'static [&'static str] {
    match of.kind.kind.as_str() {
        "ClusterRole" => &["rules"],
        "ClusterRoleBinding" => &["roleRef", "subjects"],
        "ConfigMap" | "Secret" => &["data"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use access_grant::Access;

    use super::*;
    use crate::config::Images;

    #[test]
    fn the_module_is_reconciled_every_ten_hours_and_held_by_two_finalizers() {
        let description = describe(&Config::default()).unwrap();
        let [gateways] = description.reconcilers.as_slice() else { panic!("{description:?}") };
        assert_eq!((gateways.resync, gateways.triggered_by_status), (36_000_000, false));
        let finalizers = [
            "gateways.operator.kyma-project.io/api-gateway",
            "gateways.operator.kyma-project.io/kyma-gateway",
        ];
        assert_eq!(gateways.finalizers, finalizers);
    }

    #[test]
    fn nothing_is_read_whole_and_each_object_is_written_by_its_name() {
        let description = describe(&Config::default()).unwrap();
        for read in &description.reads {
            assert!(!read.fields.is_empty(), "{read:?}");
        }
        for rule in &description.writes {
            assert!(rule.of.name.is_some(), "{rule:?}");
            assert_eq!(rule.fields.is_empty(), rule.verbs == Verbs::DELETE, "{rule:?}");
        }
    }

    #[test]
    fn only_with_v1beta1_rights_are_granted() {
        assert!(describe(&Config::default()).unwrap().grants.is_empty());
        let images =
            Images { oathkeeper: "a".into(), oathkeeper_maester: "b".into(), busybox: "c".into() };
        let config = Config { v1beta1: Some(Access::Allowed), images, ..Config::default() };
        assert_eq!(describe(&config).unwrap().grants, oathkeeper::grants());
    }
}
