//! The writes that guests want, from all tests that run a guest: the cases of all guests, the
//! golden cases, and the APIRules of the tests of the whole host (`it::host`).
//!
//! Every guest with cases is in [`of_guests`], or a test fails; all cases and golden
//! cases are used. Our own guests patch annotations only, so a puppet makes other
//! patches. Not sent:
//!
//! - the writes of puppets in `it::host`, which are chosen by those tests and by no guest:
//!   `ConfigMaps` with labels and data, which test nothing beyond the objects that are sent here;
//! - the outcomes of guests in `it::guests`, which tests calls: they are never written, in no
//!   cluster;
//! - the writes in `it::cluster`: a real API server validates them there;
//! - parts of objects in the unit tests of a guest: the same functions make the whole objects in
//!   its cases.
//!
//! The script of a puppet may be wrong on purpose, to test the refusal. So the object is sent to the embedded API first: an object that it accepts, the real
//! server must accept; an object that it refuses, the real server must refuse with the same
//! message. An object of any other guest must be accepted.

use std::{cell::RefCell, collections::BTreeMap, marker::PhantomData, path::Path};

use api_rule::ApiRules;
use ingress_gateway_restart::IngressGatewayRestarts;
use mortise_sdk::{
    Description, Failure, Host, Manifest, Outcome, Processor, Request,
    testing::{
        Stub,
        case::{self, Native},
        request_for,
    },
};
use peer_authentication::PeerAuthentications;
use serde_json::{Value, json};
use test_guest_announce::{Announcements, Double};
use test_guest_puppet::Puppet;

use crate::{cases, goldens, host};

/// The way in which a guest writes an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    Apply,
    /// A patch of this object of another owner.
    Patch(String),
    /// The status of any object of the kind.
    Status,
}

/// The origin of an object's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// The guest.
    ByGuest,
    /// The test, through a puppet.
    ByTest,
}

/// An object that a guest has written.
#[derive(Debug, Clone)]
pub(super) struct Produced {
    /// The name of the case that produced it.
    pub(super) case: String,
    pub(super) said: Said,
    pub(super) way: Way,
    pub(super) object: Value,
}

/// Everything that was produced, and the definitions of kinds that only tests have.
pub(super) struct All {
    /// The objects by source; no source is empty.
    pub(super) sources: Vec<(&'static str, Vec<Produced>)>,
    pub(super) definitions: Vec<Value>,
}

thread_local! {
    static WRITTEN: RefCell<Vec<(Way, Value)>> = const { RefCell::new(Vec::new()) };
}

/// A guest that records the writes of its outcomes.
struct Recorded<P>(PhantomData<P>);

impl<P: Processor> Processor for Recorded<P> {
    type Config = P::Config;

    fn describe(config: &P::Config) -> Result<Description, String> {
        P::describe(config)
    }

    fn reconcile(request: &Request, config: &P::Config, host: &Host) -> Result<Outcome, Failure> {
        let outcome = P::reconcile(request, config, host);
        let status = match &outcome {
            Ok(outcome) => &outcome.status,
            Err(failure) => &failure.status,
        };
        let parsed = |text: &String| -> Value { serde_json::from_str(text).unwrap() };
        let manifest =
            |way: Way| move |manifest: &Manifest| (way.clone(), parsed(&manifest.object));
        WRITTEN.with_borrow_mut(|kept| {
            if let Ok(outcome) = &outcome {
                kept.extend(outcome.apply.iter().map(manifest(Way::Apply)));
                // The patched object is known at the end of the case.
                kept.extend(outcome.patch.iter().map(manifest(Way::Patch(String::new()))));
            }
            kept.extend(status.iter().map(|status| (Way::Status, parsed(status))));
        });
        outcome
    }
}

/// Guests with cases whose objects are not sent here. One answers webhooks, and writes nothing. What
/// the others write is applied to control planes by `cluster::istio`, `cluster::konnect` and
/// `cluster::kube_bind`.
const ELSEWHERE: [&str; 4] =
    ["tests/guests/hooks", cases::INSTALLATION, "guests/konnect", "guests/kube-bind"];

/// Returns the objects of all sources.
pub(super) fn all() -> All {
    let mut sources = of_guests();
    let named: Vec<&str> = sources.iter().map(|(folder, _)| *folder).collect();
    let mut with_cases = cases::with_cases();
    with_cases.retain(|folder| !ELSEWHERE.contains(&&**folder));
    assert_eq!(named, with_cases, "what each guest with cases produces is sent");
    sources.extend([
        ("golden cases", in_goldens()),
        ("a puppet that patches", patched()),
        ("rules of the tests of the whole host", of_hosts()),
    ]);
    let mut definitions = foreign();
    definitions.push(api_gateway::oathkeeper::rule_definition());
    All { sources, definitions }
}

/// Returns definitions, without a schema, of kinds that are no part of Kubernetes or Istio.
pub(in crate::cluster) fn foreign() -> Vec<Value> {
    let kinds = [
        ("autoscaling.k8s.io", "v1", "VerticalPodAutoscaler", "verticalpodautoscalers"),
        (
            "autoscaling.k8s.io",
            "v1",
            "VerticalPodAutoscalerCheckpoint",
            "verticalpodautoscalercheckpoints",
        ),
        ("cert.gardener.cloud", "v1alpha1", "Certificate", "certificates"),
        ("dns.gardener.cloud", "v1alpha1", "DNSEntry", "dnsentries"),
    ];
    kinds.map(|(group, version, kind, plural)| definition(group, version, kind, plural)).into()
}

fn definition(group: &str, version: &str, kind: &str, plural: &str) -> Value {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{group}"),
            "annotations": {"api-approved.kubernetes.io": "unapproved, a double for tests"},
        },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {
                "kind": kind, "listKind": format!("{kind}List"),
                "plural": plural, "singular": kind.to_lowercase(),
            },
            "versions": [{
                "name": version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": any},
            }],
        },
    })
}

/// Returns the objects of each guest that has cases, by its folder.
fn of_guests() -> Vec<(&'static str, Vec<Produced>)> {
    let announce = "tests/guests/announce";
    vec![
        ("guests/api-gateway", in_cases::<api_gateway::ApiGateways>("guests/api-gateway")),
        (
            "guests/api-rule",
            in_cases_with::<ApiRules>("guests/api-rule", &[Native::conversion::<ApiRules>()]),
        ),
        (
            "guests/external-gateway",
            in_cases::<external_gateway::ExternalGateways>("guests/external-gateway"),
        ),
        (
            "guests/ingress-gateway-restart",
            in_cases::<IngressGatewayRestarts>("guests/ingress-gateway-restart"),
        ),
        (
            "guests/peer-authentication",
            in_cases::<PeerAuthentications>("guests/peer-authentication"),
        ),
        ("guests/rate-limit", in_cases::<rate_limit::RateLimits>("guests/rate-limit")),
        ("guests/secret-copy", in_cases::<secret_copy::SecretCopies>("guests/secret-copy")),
        ("guests/sidecar-restart", in_cases::<sidecar_restart::Sidecars>("guests/sidecar-restart")),
        (
            "guests/webhook-certificate",
            in_cases::<webhook_certificate::WebhookCertificate>("guests/webhook-certificate"),
        ),
        (announce, in_cases::<Announcements<Double>>(announce)),
    ]
}

/// Takes the recorded writes, for a case with these objects. Patches of missing objects are
/// dropped: they have no effect.
fn written(case: &str, said: Said, objects: &[Value]) -> Vec<Produced> {
    let is_same = |one: &Value, other: &Value| {
        ["/apiVersion", "/kind", "/metadata/namespace", "/metadata/name"]
            .iter()
            .all(|place| one.pointer(place) == other.pointer(place))
    };
    let produced = |(way, object): (Way, Value)| {
        let way = match way {
            Way::Patch(_) => {
                Way::Patch(objects.iter().find(|whole| is_same(whole, &object))?.to_string())
            }
            way => way,
        };
        // The host refuses an object without a kind.
        let is_object = object["kind"].is_string();
        is_object.then(|| Produced { case: case.to_owned(), said, way, object })
    };
    WRITTEN.take().into_iter().filter_map(produced).collect()
}

fn in_cases<P: Processor>(folder: &str) -> Vec<Produced> {
    in_cases_with::<P>(folder, &[])
}

fn in_cases_with<P: Processor>(folder: &str, natives: &[Native]) -> Vec<Produced> {
    let crds = mortise_tests::definitions(folder).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
    let mut all = Vec::new();
    for case in case::all(&root.join("cases")).unwrap() {
        let stage = case::run::<Recorded<P>>(&case, &crds, natives).unwrap();
        let case = format!("{folder} {}", case.name);
        all.extend(written(&case, Said::ByGuest, &stage.cluster().objects()));
    }
    all
}

/// Returns the objects applied for valid rules, also in cases that end before that, and the status
/// of every rule.
fn in_goldens() -> Vec<Produced> {
    let applied = goldens::applied().into_iter();
    let by_guest = |way: Way| {
        move |(case, object)| Produced { case, said: Said::ByGuest, way: way.clone(), object }
    };
    let applied = applied.map(by_guest(Way::Apply));
    let said = goldens::statuses().into_iter();
    applied.chain(said.map(by_guest(Way::Status))).collect()
}

/// Returns the objects that guests apply in these versions of kinds, each once, with the name of a
/// case that it is from.
pub(super) fn applied(is_wanted: impl Fn(&str) -> bool) -> Vec<(String, Value)> {
    let mut distinct = BTreeMap::new();
    for produced in all().sources.into_iter().flat_map(|(_, produced)| produced) {
        let is_wanted = is_wanted(produced.object["apiVersion"].as_str().unwrap());
        if is_wanted && produced.way == Way::Apply && produced.said == Said::ByGuest {
            distinct.entry(produced.object.to_string()).or_insert((produced.case, produced.object));
        }
    }
    distinct.into_values().collect()
}

/// Returns the objects written for an APIRule of the tests of the whole host.
fn of_hosts() -> Vec<Produced> {
    let objects = host::shop();
    let stub = Stub::new().objects(objects.clone());
    for rule in objects.iter().filter(|object| object["kind"] == "APIRule") {
        let config = serde_json::from_str("{}").unwrap();
        Recorded::<api_rule::ApiRules>::reconcile(&request_for(rule), &config, &stub.host())
            .unwrap();
    }
    written("the whole host", Said::ByGuest, &objects)
}

/// Returns patches of other owners' objects: one field of a map, one item of a list.
fn patched() -> Vec<Produced> {
    let metadata = |name: &str| json!({"name": name, "namespace": "default"});
    let settings = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("settings"), "data": {"theirs": "1"}});
    let container =
        json!({"name": "main", "image": "web", "env": [{"name": "THEIRS", "value": "1"}]});
    let labels = json!({"app": "web"});
    let web = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata("web"),
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    });
    let restarted = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata("web"),
        "spec": {"template": {
            "metadata": {"annotations": {"example.com/restarted": "1"}},
            "spec": {"containers": [{"name": "main", "env": [{"name": "OURS", "value": "1"}]}]},
        }},
    });
    let said = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("settings"), "data": {"ours": "1"},
    });
    let outcome = Outcome::new()
        .patch(Manifest::text(restarted.to_string()))
        .patch(Manifest::text(said.to_string()));
    let description = Description::new("puppet", "0.1.0");
    let play = json!({"description": description, "script": {"returns": {"outcome": outcome}}});
    let stub = Stub::new().objects([settings.clone(), web.clone()]);
    let request = Request { config: play.to_string(), ..request_for(&settings) };
    let play = serde_json::from_value(play).unwrap();
    Recorded::<Puppet>::reconcile(&request, &play, &stub.host()).unwrap();
    written("a puppet", Said::ByGuest, &[settings, web])
}
