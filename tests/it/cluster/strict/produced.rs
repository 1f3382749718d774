//! What guests want written, wherever a test runs one: in the cases of all guests, in the golden cases, in the generated cases, and
//! for the APIRules of the tests of the whole host (`it::host`).
//!
//! A guest that has cases is in [`of_guests`], or its folder is missed; the cases, the golden ones and the generated ones are all that
//! there are. So that a guest of ours, which never patches, does not keep patches out, a puppet makes some. Not sent:
//!
//! - what puppets are told to write in `it::host`: the words of those tests, and no guest's; `ConfigMaps` with labels and data, with
//!   which everything that is sent here has more in common than the test could learn from them;
//! - what a guest returns to `it::guests`, where calls are looked at: nothing comes of it, in no cluster;
//! - what is written in `it::cluster`: a real API server judges it there;
//! - parts of objects that the unit tests of a guest look at: the same functions make the whole ones in its cases.
//!
//! What a puppet is told may be wrong on purpose, to see it refused, also in the generated cases. So the embedded API is asked first:
//! what that takes, the real server must take; what that refuses, the real server must refuse in the same words. What any other guest
//! produces must be taken.

use std::{cell::RefCell, marker::PhantomData, path::Path};

use mortise_sdk::{
    Description, Failure, Host, Manifest, Outcome, Processor, Request,
    testing::{Stub, case, request_for},
};
use serde_json::{Value, json};
use test_guest_puppet::Puppet;

use crate::{
    cases::{self, generated},
    goldens, host,
};

/// How a guest has an object written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    Apply,
    /// To this object of somebody else.
    Patch(String),
    /// Of any object of the kind.
    Status,
}

/// Who says what is written.
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
    /// Where it was produced.
    pub(super) case: String,
    pub(super) said: Said,
    pub(super) way: Way,
    pub(super) object: Value,
}

/// All that was produced, and the definitions of the kinds that only tests have.
pub(super) struct All {
    /// By source; none of them is empty.
    pub(super) sources: Vec<(&'static str, Vec<Produced>)>,
    pub(super) definitions: Vec<Value>,
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

/// All sources.
pub(super) fn all() -> All {
    let mut sources = of_guests();
    let named: Vec<&str> = sources.iter().map(|(folder, _)| *folder).collect();
    assert_eq!(named, cases::with_cases(), "what each guest with cases produces is sent");
    sources.extend([
        ("golden cases", in_goldens()),
        ("generated cases", in_generated()),
        ("a puppet that patches", patched()),
        ("rules of the tests of the whole host", of_hosts()),
    ]);
    All { sources, definitions: generated::crds() }
}

/// Each guest that has cases, by its folder.
fn of_guests() -> Vec<(&'static str, Vec<Produced>)> {
    vec![
        ("guests/api-rule", in_cases::<api_rule::ApiRules>("guests/api-rule")),
        ("guests/secret-copy", in_cases::<secret_copy::SecretCopies>("guests/secret-copy")),
    ]
}

/// What was written since it was last asked, where these objects are there; patches of others come to nothing.
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
        // What names no kind the host refuses.
        let is_object = object["kind"].is_string();
        is_object.then(|| Produced { case: case.to_owned(), said, way, object })
    };
    WRITTEN.take().into_iter().filter_map(produced).collect()
}

fn in_cases<P: Processor>(folder: &str) -> Vec<Produced> {
    let crds = mortise_tests::definitions(folder).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
    let mut all = Vec::new();
    for case in case::all(&root.join("cases")).unwrap() {
        let stage = case::run::<Recorded<P>>(&case, &crds).unwrap();
        let case = format!("{folder} {}", case.name);
        all.extend(written(&case, Said::ByGuest, &stage.cluster().objects()));
    }
    all
}

/// What is applied for valid rules, also in the cases that end before it is, and what the status of every rule says.
fn in_goldens() -> Vec<Produced> {
    let applied = goldens::applied().into_iter();
    let by_guest = |way: Way| {
        move |(case, object)| Produced { case, said: Said::ByGuest, way: way.clone(), object }
    };
    let applied = applied.map(by_guest(Way::Apply));
    let said = goldens::statuses().into_iter();
    applied.chain(said.map(by_guest(Way::Status))).collect()
}

/// What an APIRule of the tests of the whole host leads to.
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

/// The same cases that both hosts are compared by.
fn in_generated() -> Vec<Produced> {
    let crds = generated::crds();
    let mut all = Vec::new();
    for (index, case) in generated::all().iter().enumerate() {
        // One that comes to no rest has written all the same.
        let _ = case::run::<Recorded<Puppet>>(case, &crds);
        all.extend(written(&format!("generated {index}"), Said::ByTest, &case.objects));
    }
    all
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
    written("a puppet", Said::ByGuest, &[settings, web])
}
