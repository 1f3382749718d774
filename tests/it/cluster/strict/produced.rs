//! What guests want written: in their cases, in the golden cases, and by a puppet that patches, since no guest of ours does.

use std::{cell::RefCell, marker::PhantomData, path::Path};

use mortise_sdk::{
    Description, Failure, Host, Manifest, Outcome, Processor, Request,
    testing::{Stub, case, request_for},
};
use serde_json::{Value, json};
use test_guest_puppet::Puppet;

use crate::goldens;

/// How a guest has an object written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    Apply,
    /// A part of this object of somebody else.
    Patch(String),
    Status,
}

/// An object that a guest has written.
#[derive(Debug, Clone)]
pub(super) struct Produced {
    /// Where it was produced.
    pub(super) case: String,
    pub(super) way: Way,
    pub(super) object: Value,
}

thread_local! {
    static WRITTEN: RefCell<Vec<(Way, Value)>> = const { RefCell::new(Vec::new()) };
}

/// A guest of which is kept what it wants written.
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
                // What it is a part of is known at the end.
                kept.extend(outcome.patch.iter().map(manifest(Way::Patch(String::new()))));
            }
            kept.extend(status.iter().map(|status| (Way::Status, parsed(status))));
        });
        outcome
    }
}

/// All sources, each with its name; none of them is empty.
pub(super) fn all() -> Vec<(&'static str, Vec<Produced>)> {
    vec![
        ("cases of api-rule", in_cases::<api_rule::ApiRules>("guests/api-rule")),
        ("cases of secret-copy", in_cases::<secret_copy::SecretCopies>("guests/secret-copy")),
        ("golden cases", in_goldens()),
        ("a puppet that patches", patched()),
    ]
}

/// What was written since it was last asked, where these objects are there.
fn written(case: &str, objects: &[Value]) -> Vec<Produced> {
    let is_same = |one: &Value, other: &Value| {
        ["/apiVersion", "/kind", "/metadata/namespace", "/metadata/name"]
            .iter()
            .all(|place| one.pointer(place) == other.pointer(place))
    };
    let produced = |(way, object): (Way, Value)| {
        let way = match way {
            Way::Patch(_) => {
                let whole = objects.iter().find(|whole| is_same(whole, &object));
                Way::Patch(whole.expect("what is patched is there").to_string())
            }
            way => way,
        };
        Produced { case: case.to_owned(), way, object }
    };
    WRITTEN.take().into_iter().map(produced).collect()
}

fn in_cases<P: Processor>(folder: &str) -> Vec<Produced> {
    let crds = mortise_tests::definitions(folder).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
    let mut all = Vec::new();
    for case in case::all(&root.join("cases")).unwrap() {
        let stage = case::run::<Recorded<P>>(&case, &crds).unwrap();
        let case = format!("{folder} {}", case.name);
        all.extend(written(&case, &stage.cluster().objects()));
    }
    all
}

/// What is applied for valid rules, also in the cases that end before it is, and what the status of every rule says.
fn in_goldens() -> Vec<Produced> {
    let applied = goldens::applied().into_iter();
    let applied = applied.map(|(case, object)| Produced { case, way: Way::Apply, object });
    let said = goldens::statuses().into_iter();
    let said = said.map(|(case, object)| Produced { case, way: Way::Status, object });
    applied.chain(said).collect()
}

/// Parts of objects of somebody else: one field of a map, one item of a list.
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
    written("a puppet", &[settings, web])
}
