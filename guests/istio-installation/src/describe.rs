//! The declaration of the objects that the processor reconciles, reads and writes.

use istio::{
    api::{FINALIZER, ISTIO_NAMESPACE, Istio, MODULE_NAMESPACE},
    blocking,
    cluster::{ELB_DEPRECATED, Flavour, PROVISIONING_INFO},
    features,
    installed::{COMPONENT_LABEL, NAMED},
    kubernetes::{Node, Pod},
    last_applied::ANNOTATION,
    predicate::MODULE_LABEL,
};
use mortise_sdk::{
    Description, Kind, Reconciler, Selection, Verbs,
    kubernetes::{ConfigMap, Namespace, Secret, Service},
};

use crate::{
    Rendering, cause, config::Config, grants, kind::WRITTEN, surroundings, webhook, workload,
};

/// The fields that are read of objects which only have to be found.
pub(crate) const LABELS: [&str; 1] = ["metadata.labels"];

pub(crate) fn describe<R: Rendering>(config: &Config) -> Result<Description, String> {
    config.check()?;
    let release = R::version().release;
    let istios = Reconciler::new("istios", Selection::of::<Istio>())
        .finalizer(FINALIZER)
        .triggered_by_status()
        .resync(config.resync());
    let version = format!("{}+istio.{release}", env!("CARGO_PKG_VERSION"));
    let description = Description::new("istio-installation", version).reconciles(istios);
    let description = reads(config).into_iter().fold(description, Description::reads);
    let description = writes()
        .into_iter()
        .fold(description, |description, (of, verbs)| description.writes(of, verbs));
    Ok(limited_writes(description).grants(grants::all::<R>(config, &release)?))
}

fn reads(config: &Config) -> Vec<Selection> {
    let config_map =
        |namespace: &str, name: &str| Selection::of::<ConfigMap>().namespace(namespace).name(name);
    let mut reads = vec![
        Selection::of::<Node>().fields(surroundings::NODE_FIELDS),
        config_map(ISTIO_NAMESPACE, ELB_DEPRECATED).fields(["metadata.name"]),
        config_map(MODULE_NAMESPACE, features::NAME).fields(surroundings::FEATURE_FIELDS),
        Selection::of::<Service>()
            .namespace(ISTIO_NAMESPACE)
            .name(istio::cluster::INGRESS_GATEWAY)
            .fields(surroundings::SERVICE_FIELDS),
        Selection::of::<Namespace>().name(ISTIO_NAMESPACE).fields(["metadata.name"]),
        Selection::new(cause::event())
            .namespace(ISTIO_NAMESPACE)
            .matching("involvedObject.uid", "*")
            .fields(cause::EVENT_FIELDS),
        Selection::of::<istio::installed::MutatingWebhookConfiguration>().fields(webhook::FIELDS),
    ];
    if config.flavour() == Flavour::Experimental {
        let info = config_map(MODULE_NAMESPACE, PROVISIONING_INFO);
        reads.push(info.fields(surroundings::PROVISIONING_FIELDS));
    }
    for (kind, name) in NAMED {
        let of = Selection::new(Kind::new("", "v1", kind)).namespace(ISTIO_NAMESPACE).name(name);
        reads.push(of.fields(LABELS));
    }
    for kind in WRITTEN {
        for namespace in kind.namespaces() {
            let of = within(Selection::new(kind.kind()), *namespace);
            reads.push(of.labels(COMPONENT_LABEL).fields(LABELS));
        }
    }
    for kind in WRITTEN.iter().filter(|kind| workload::is_one(&kind.kind().kind)) {
        for namespace in kind.namespaces() {
            let of = within(Selection::new(kind.kind()), *namespace);
            reads.push(of.fields(workload::FIELDS));
        }
    }
    for namespace in workload::NAMESPACES {
        let of = Selection::of::<Pod>().namespace(namespace);
        reads.push(of.labels(format!("{MODULE_LABEL}=istio")).fields(cause::POD_FIELDS));
    }
    reads.extend(blocking::kinds().map(|kind| Selection::new(kind).fields(LABELS)));
    reads
}

fn writes() -> Vec<(Selection, Verbs)> {
    let all = Verbs::CREATE | Verbs::UPDATE | Verbs::DELETE;
    let mut writes = vec![(Selection::of::<Namespace>().name(ISTIO_NAMESPACE), all)];
    for kind in WRITTEN {
        for namespace in kind.namespaces() {
            writes.push((within(Selection::new(kind.kind()), *namespace), all));
        }
    }
    writes
}

/// Adds the writes that are limited to single fields.
fn limited_writes(description: Description) -> Description {
    let label = format!("metadata.labels[\"{MODULE_LABEL}\"]");
    let annotation = format!("metadata.annotations[\"{ANNOTATION}\"]");
    let secrets = NAMED.iter().filter(|(kind, _)| *kind == "Secret");
    secrets
        .fold(description, |description, (_, name)| {
            let secret = Selection::of::<Secret>().namespace(ISTIO_NAMESPACE).name(*name);
            description.writes_fields(secret, Verbs::UPDATE, [label.as_str()])
        })
        .writes_fields(
            Selection::of::<Istio>().namespace(MODULE_NAMESPACE),
            Verbs::UPDATE,
            [annotation],
        )
}

pub(crate) fn within(of: Selection, namespace: Option<&str>) -> Selection {
    match namespace {
        Some(namespace) => of.namespace(namespace),
        None => of,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::double::{Double, Next};

    fn described() -> Description {
        describe::<Double>(&Config::default()).unwrap()
    }

    #[test]
    fn the_version_names_that_of_the_library() {
        assert!(described().version.ends_with("+istio.1.30.2"));
        let next = describe::<Next>(&Config::default()).unwrap();
        assert!(next.version.ends_with("+istio.1.31.0"));
    }

    #[test]
    fn a_resource_is_reconciled_every_five_minutes_and_when_other_conditions_change() {
        let description = described();
        let [istios] = description.reconcilers.as_slice() else { panic!("{description:?}") };
        assert_eq!((istios.resync, istios.triggered_by_status), (300_000, true));
        assert_eq!(istios.finalizers, [FINALIZER]);
    }

    #[test]
    fn nothing_is_read_whole() {
        for read in described().reads {
            assert!(!read.fields.is_empty(), "{read:?}");
        }
    }

    #[test]
    fn only_the_namespaces_of_istio_are_written() {
        for rule in described().writes {
            let is_istio = rule.of.kind.kind == "Istio";
            let namespace = rule.of.namespace.as_deref();
            let expected = if is_istio { &["kyma-system"][..] } else { &workload::NAMESPACES };
            assert!(namespace.is_none_or(|namespace| expected.contains(&namespace)), "{rule:?}");
            assert!(!is_istio || rule.fields.len() == 1, "{rule:?}");
        }
    }

    #[test]
    fn a_configuration_that_the_original_would_not_start_with_is_refused() {
        let config = Config { env: [].into(), ..Config::default() };
        let error = describe::<Double>(&config).unwrap_err();
        assert!(error.starts_with("missing required environment variables env"), "{error}");
    }
}
