//! Recorded cases of the Kyma Istio operator, compared with the functions of the crate `istio`.
//!
//! The groups `resources`, `gateway` and `actions` run through the processors too, natively and as
//! components (`processors`). The others run natively only: `cluster`, `crd`, `images`,
//! `last-applied`, `merge`, `predicates` and `tables` hold the answers of single functions, which no
//! component gives by itself, and `controller` needs a double of the library.

mod context;
mod controller;
mod processors;

use std::path::Path;

use istio::{
    action::{self, Action, ReplicaSets, Warning},
    api::{self, Istio},
    cluster::{Provider, Size},
    condition,
    features::Features,
    gateway,
    images::{Image, Images, PULL_SECRET},
    last_applied::{ANNOTATION, Effect, LastApplied},
    merge,
    predicate::{self, Amount, Expected, Phase, SidecarResources},
    resource::{self, AUTOSCALER_CRD},
    version,
};
use mortise_tests::goldens::{
    self, Tally,
    group::{self, GroupCase, Rules},
};
use serde_json::{Map, Value, json};

use self::context::{Surroundings, list, object, text};

/// A part of a case: its name, the output of the original, and ours.
type Part = (&'static str, Value, Value);

/// Runs all cases of a group.
fn run(name: &str, parts: impl Fn(&GroupCase) -> Vec<Part>) {
    run_with(name, |_| {}, parts);
}

/// Runs all cases of a group, after something was added to each.
fn run_with(name: &str, add: impl Fn(&mut GroupCase), parts: impl Fn(&GroupCase) -> Vec<Part>) {
    let folder = goldens::root().join("istio").join(name);
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("goldens-differ-istio.yaml");
    let (mut cases, rules) = (group::cases(&folder).unwrap(), Rules::read(&rules).unwrap());
    let mut tally = Tally::default();
    for case in &mut cases {
        add(case);
        for (part, original, ours) in parts(case) {
            let (expected, reasons) = rules.apply((name, part), case, &original, &ours);
            tally.compare(&case.name, part, (&expected, &reasons), &ours);
        }
    }
    println!("{}", tally.report());
    tally.check().unwrap();
}

/// Runs the rows of a table, each as a case of its own.
fn run_table(name: &str, row: impl Fn(&Value) -> (String, Value)) {
    let file = goldens::root().join("istio/tables").join(name).join("cases.json");
    let rows = std::fs::read_to_string(&file).unwrap();
    let rows: Vec<Value> = serde_json::from_str(&rows).unwrap();
    let mut tally = Tally::default();
    for expected in &rows {
        let (case, ours) = row(expected);
        tally.compare(&case, name, (expected, &[]), &ours);
    }
    println!("{}", tally.report());
    tally.check().unwrap();
}

fn istio_of(case: &GroupCase) -> Istio {
    serde_json::from_value(case.document("istio-cr.yaml").clone()).unwrap()
}

fn or_error<T>(result: &Result<T, String>) -> Value {
    result.as_ref().err().map(String::as_str).unwrap_or_default().into()
}

#[test]
fn istio_versions_follow_each_other_as_in_the_original() {
    run_table("version-check", |row| {
        let (current, target) = (text(row, "/current"), text(row, "/target"));
        let error = or_error(&version::check_update(current, target));
        let ours = json!({"current": current, "target": target, "error": error});
        (format!("from `{current}` to `{target}`"), ours)
    });
}

#[test]
fn istio_conditions_are_those_of_the_original() {
    run_table("conditions", |row| {
        let name = text(row, "/reason");
        let reason = condition::ALL.iter().find(|reason| reason.name == name);
        let condition = reason.map(|reason| reason.condition(""));
        let ours = condition.map(|condition| {
            json!({
                "type": condition.condition_type, "status": condition.status,
                "reason": condition.reason, "message": condition.message,
            })
        });
        (name.to_owned(), ours.unwrap_or_default())
    });
}

#[test]
fn istio_warnings_read_as_in_the_original() {
    run_table("warning-message", |row| {
        let count = row["warnings"].as_u64().unwrap();
        let warning = |index| {
            let pod = json!({"metadata": {"name": format!("p{index}"), "namespace": "ns"}});
            let pod = serde_json::from_value(pod).unwrap();
            match Action::of(&pod, &ReplicaSets::default()) {
                Action::Warn(warning) => warning,
                other => panic!("{other:?}"),
            }
        };
        let warnings: Vec<Warning> = (0..count).map(warning).collect();
        let ours = json!({"warnings": count, "message": action::message(&warnings)});
        (format!("{count} warnings"), ours)
    });
}

#[test]
fn istio_crd_is_that_of_the_original() {
    run("crd", |case| {
        let mut ours = api::definition();
        context::drop_descriptions(&mut ours);
        let original = case.document("crd-without-descriptions.yaml").clone();
        vec![("definition", original, ours)]
    });
}

#[test]
fn istio_clusters_are_told_as_by_the_original() {
    run("cluster", |case| {
        let surroundings = Surroundings::of(case);
        let nodes = &surroundings.nodes;
        let size = Size::of(nodes).map_err(|error| error.to_string());
        let mut ours = json!({
            "size": size.as_ref().map(|size| size.name()).unwrap_or_default(),
            "sizeError": or_error(&size),
            "provider": Provider::of(nodes).name(),
            "providerError": "",
        });
        let cluster = surroundings.cluster();
        ours["factoryError"] = or_error(&cluster);
        if let Ok(cluster) = cluster {
            ours["dualStack"] = cluster.dual_stack.into();
            ours["needsProxyProtocol"] = cluster.needs_proxy_protocol.into();
            ours["overrides"] = cluster.overrides;
        }
        vec![("cluster", case.document("expected.json").clone(), ours)]
    });
}

#[test]
fn istio_images_are_read_as_by_the_original() {
    run("images", |case| {
        let image = |image: &Image| json!({"Registry": image.registry, "Name": image.name, "Tag": image.tag});
        let images = Images::read(&context::environment(case));
        let ours = match &images {
            Err(error) => json!({"error": error}),
            Ok(images) => json!({
                "error": "",
                "pilot": image(&images.pilot),
                "installCni": image(&images.install_cni),
                "proxyv2": image(&images.proxy),
                "ztunnel": image(&images.ztunnel.clone().unwrap_or_default()),
                "proxyReference": images.proxy.to_string(),
                "registry": images.registry(),
                "tag": images.tag(),
            }),
        };
        vec![("images", case.document("expected.json").clone(), ours)]
    });
}

/// Returns the `IstioOperator` of a case.
fn merged(case: &GroupCase) -> Result<Value, String> {
    let surroundings = Surroundings::of(case);
    let (cluster, istio) = (surroundings.cluster()?, istio_of(case));
    let environment = context::environment(case);
    merge::merge(&merge::Input {
        spec: &istio.spec,
        cluster: &cluster,
        flavour: surroundings.flavour,
        features: Features::read(surroundings.features.as_ref()).unwrap_or_default(),
        images: &Images::read(&environment).unwrap(),
        pull_secret: environment.get(PULL_SECRET).map(String::as_str),
    })
}

/// Returns the `IstioOperator` of each case that has one, with the name of the case.
pub(crate) fn operators() -> Vec<(String, Value)> {
    let cases = group::cases(&goldens::root().join("istio/merge")).unwrap();
    cases.iter().filter_map(|case| Some((case.name.clone(), merged(case).ok()?))).collect()
}

#[test]
fn istio_operators_are_merged_as_by_the_original() {
    run("merge", |case| {
        let surroundings = Surroundings::of(case);
        let cluster = match surroundings.cluster() {
            Ok(cluster) => cluster,
            Err(error) => {
                let original = case.document("expected-meta.json").clone();
                return vec![("meta", original, json!({"error": error}))];
            }
        };
        let features = Features::read(surroundings.features.as_ref());
        let operator = merged(case);
        let meta = json!({
            "clusterSize": cluster.size.name(),
            "provider": cluster.provider.name(),
            "dualStack": cluster.dual_stack,
            "needsProxyProtocol": cluster.needs_proxy_protocol,
            "featuresRead": surroundings.features.is_some() && features.is_ok(),
            "features": features.unwrap_or_default(),
            "error": or_error(&operator),
        });
        vec![
            ("operator", case.document("expected.yaml").clone(), operator.unwrap_or_default()),
            ("meta", case.document("expected-meta.json").clone(), meta),
        ]
    });
}

#[test]
fn istio_annotations_are_written_as_by_the_original() {
    run("last-applied", |case| {
        let (istio, context) = (istio_of(case), case.document("context.yaml"));
        let tag = text(context, "/tag");
        let effect = match text(context, "/operation") {
            "full" => Effect::All(tag),
            "tag" => Effect::Installed(tag),
            "gateway" => Effect::Gateway,
            "proxy" => Effect::Proxies,
            other => panic!("{other}"),
        };
        let written = LastApplied::after(&istio, effect);
        let error = or_error(&written);
        let former = istio.metadata.annotations.get(ANNOTATION).cloned().unwrap_or_default();
        let ours = json!({"annotation": written.unwrap_or(former), "error": error});
        vec![("annotation", case.document("expected.json").clone(), ours)]
    });
}

#[test]
fn istio_gateways_are_restarted_as_by_the_original() {
    run("gateway", |case| {
        let needs_restart = gateway::needs_restart(&istio_of(case));
        let error = or_error(&needs_restart);
        let ours = json!({"requiresRestart": needs_restart.unwrap_or_default(), "error": error});
        vec![("gateway", case.document("expected.json").clone(), ours)]
    });
}

#[test]
fn istio_sidecars_are_judged_as_by_the_original() {
    run("predicates", |case| {
        let surroundings = Surroundings::of(case);
        let istio = istio_of(case);
        let pod = serde_json::from_value(case.document("pod.yaml").clone()).unwrap();
        let expected = Expected::of(&predicate::Input {
            istio: &istio,
            size: Size::of(&surroundings.nodes).unwrap(),
            features: Features::read(surroundings.features.as_ref()).unwrap_or_default(),
            image: text(case.document("context.yaml"), "/expectedProxyImage"),
            mesh: surroundings.mesh.as_deref(),
        });
        let expected = match expected {
            Ok(expected) => expected,
            Err(error) => {
                let original = case.document("expected.json").clone();
                return vec![("sidecar", original, json!({"error": error}))];
            }
        };
        let SidecarResources { limits, requests } = expected.resources;
        let amount = |amount: &Amount| json!({"cpu": amount.cpu.to_string(), "memory": amount.memory.to_string()});
        let ours = json!({
            "expectedProxyResources": {"limits": amount(&limits), "requests": amount(&requests)},
            "predicates": {
                "CniRestartPredicate": expected.cni_differs(&pod),
                "CompatibilityRestartPredicate": expected.compatibility_differs(),
                "CustomerWorkloadRestartPredicate": Phase::of(&pod) == Phase::Customer,
                "EnableDNSProxyingRestartPredicate": expected.dns_proxying_changed(),
                "ImageResourcesPredicate": expected.image_or_resources_differ(&pod),
                "KymaWorkloadRestartPredicate": Phase::of(&pod) == Phase::Kyma,
                "PrometheusMergeRestartPredicate": expected.prometheus_merge_differs(&pod),
                "ProxyStatsMatcherRestartPredicate": expected.regexps_changed(),
            },
            "readyWithStatusAnnotation": predicate::is_candidate(&pod),
            "selectedInCustomerPhase": expected.selects(&pod, Phase::Customer),
            "selectedInKymaPhase": expected.selects(&pod, Phase::Kyma),
            "selectedOnUninstall": predicate::is_left_behind(&pod),
        });
        vec![("sidecar", case.document("expected.json").clone(), ours)]
    });
}

#[test]
fn istio_restarts_go_through_owners_as_in_the_original() {
    run("actions", |case| {
        let pods: Vec<_> = list(case.documents("pods.yaml"), "Pod");
        let replica_sets: Vec<_> = list(case.documents("objects.yaml"), "ReplicaSet");
        let actions = Action::of_all(&pods, &ReplicaSets::new(&replica_sets));
        let fails = case.document("context.yaml")["failOnError"] == true;
        let done = context::carry_out(&actions, case.documents("objects.yaml"), fails);
        vec![("actions", case.document("expected.json").clone(), done)]
    });
}

#[test]
fn istio_resources_are_those_of_the_original() {
    run("resources", |case| {
        let (surroundings, istio) = (Surroundings::of(case), istio_of(case));
        let objects = case.documents("cluster.yaml");
        let cluster = match surroundings.cluster() {
            Ok(cluster) => cluster,
            Err(error) => {
                let original = case.document("expected.json").clone();
                return vec![("errors", original, json!({"cluster": error}))];
            }
        };
        let features = Features::read(surroundings.features.as_ref()).unwrap_or_default();
        let api_server = object(objects, "Service", "default", "kubernetes")
            .map(|service| serde_json::from_value(service.clone()).unwrap());
        let plan = resource::Plan::of(&resource::Input {
            istio: &istio,
            needs_proxy_protocol: cluster.needs_proxy_protocol,
            control_plane_autoscalers: features.enable_control_plane_vpa,
            has_autoscaler_crd: object(objects, "CustomResourceDefinition", "", AUTOSCALER_CRD)
                .is_some(),
            api_server: api_server.as_ref(),
            version: "dev",
        });
        let original = context::in_order(case.documents("expected.yaml").to_vec());
        vec![
            ("objects", original, context::after(objects, &plan)),
            ("errors", case.document("expected.json").clone(), Map::new().into()),
        ]
    });
}

#[test]
fn istio_groups_are_all_known() {
    let known = [
        "actions",
        "cluster",
        "controller",
        "crd",
        "gateway",
        "images",
        "last-applied",
        "merge",
        "predicates",
        "resources",
        "tables",
    ];
    let folder = goldens::root().join("istio");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(!path.is_dir() || known.contains(&name), "no test runs the group `{name}`");
    }
}
