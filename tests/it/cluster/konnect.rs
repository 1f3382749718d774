//! `konnect` on a real control plane, against the fake of the Konnect API: an object of each kind from
//! nothing to nothing, with no rights but those that `mortise inspect --rbac` prints.

pub(crate) mod held;

use std::{collections::BTreeMap, time::Duration};

use konnect::kind;
use konnect_fake::{Change, Config, Konnect, Server, log::Entry, server::Options};
use mortise_host::operator::api::definition;
use mortise_tests::{cluster::Audit, definitions, objects_in};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use self::held::Breaches;
use super::{
    program::{POLL_INTERVAL, Program},
    side::{Side, folders, list, refused},
};

const GUEST: &str = "guests/konnect";
const NAME: &str = "konnect";
const EXAMPLE: &str = "guests/konnect/examples/shop.yaml";
const OTHERS: &str = "tests/it/cluster/konnect/kinds.yaml";
/// The organization of a token is named by its text up to the first dot.
const TOKENS: [&str; 2] = ["kpat_example", "kpat_example.two"];
/// A period in which nothing is sent a second time, and one that does not take long.
const PERIODS: [u32; 2] = [3600, 2];
/// Timeout that only a fault reaches.
const WAIT: Duration = Duration::from_mins(2);

/// A control plane with the guest, and the fake.
struct World {
    // Dropped first: no request is under way when the control plane ends.
    _host: Program,
    fake: Server,
    side: Side,
    breaches: Breaches,
    audit: Audit,
    /// The objects that give the account of the guest its rights.
    rights: Vec<Value>,
    _folders: [TempDir; 2],
}

fn condition<'a>(object: Option<&'a Value>, of: &str) -> Option<&'a Value> {
    let all = object?["status"]["conditions"].as_array()?;
    all.iter().find(|condition| condition["type"] == of)
}

fn is_true(object: Option<&Value>, of: &str) -> bool {
    condition(object, of).is_some_and(|condition| condition["status"] == "True")
}

/// Returns whether an object has come to where objects of its kind come to.
fn is_done(object: Option<&Value>) -> bool {
    let Some(kind) = object.and_then(|object| object["kind"].as_str()) else { return false };
    match kind {
        "KonnectAPIAuthConfiguration" => is_true(object, "APIAuthValid"),
        "KongPlugin" => object.is_some_and(|of| of["metadata"]["finalizers"].is_array()),
        kind => kind::find(kind).is_none_or(|of| of.api.is_none()) || is_true(object, "Programmed"),
    }
}

/// Returns the objects of the test, each kind of the table among them.
fn all() -> Vec<Value> {
    let all = [EXAMPLE, OTHERS].map(|file| objects_in(file).unwrap()).concat();
    for entity in kind::ALL {
        assert!(all.iter().any(|object| object["kind"] == entity.kind), "no {}", entity.kind);
    }
    all
}

// === impl World ===

impl World {
    async fn open() -> Option<Self> {
        let mut kinds = definitions(GUEST).unwrap();
        kinds.push(definition::processors());
        let side = Side::open(&kinds).await?;
        let audit = side.plane.audit().await.unwrap();
        let breaches = Breaches::default();
        let observer = Some(breaches.observer(side.cluster.clone()));
        let options = Options { observer, ..Options::default() };
        let fake = Server::start(Konnect::new(Config::default()), options).await.unwrap();
        let rights = side.set_up(GUEST, (NAME, NAME), "{}").await;
        let folders = folders(GUEST, NAME).await;
        let arguments = ["--egress", "https://*.api.konghq.com", "--egress-private"];
        let [modules, cache] = [folders[0].path(), folders[1].path()];
        let host = Program::start(&side.plane.kubeconfig(), modules, cache, arguments);
        let world = Self { side, fake, breaches, audit, rights, _host: host, _folders: folders };
        world.process(PERIODS[0]).await;
        Some(world)
    }

    /// Applies the Processor.
    async fn process(&self, period: u32) {
        let egress = json!({
            "origin": "https://*.api.konghq.com", "connect": self.fake.address().to_string(),
            "caBundle": self.fake.authority(), "private": true,
            "credentials": [
                {"kind": "Secret", "labels": "konghq.com/credential=konnect"},
                {"group": "konnect.konghq.com", "kind": "KonnectAPIAuthConfiguration"},
            ],
        });
        self.side
            .apply(&json!({
                "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor",
                "metadata": {"name": NAME, "namespace": NAME},
                "spec": {
                    "module": {"path": "konnect.wasm"}, "serviceAccountName": NAME,
                    "config": {"syncPeriodSeconds": period}, "egress": [egress],
                },
            }))
            .await;
    }

    /// Applies objects, and waits until all have come to their end.
    async fn make(&self, objects: &[Value]) {
        for object in objects {
            self.side.apply(object).await;
        }
        for object in objects {
            self.side.until(object, "the object is programmed", is_done).await;
        }
    }

    /// Deletes objects at once, in their order, and waits until all are gone.
    async fn unmake(&self, objects: &[Value]) {
        for object in objects {
            self.side.delete(object).await;
        }
        for object in objects {
            self.side.until(object, "the object goes", |of| of.is_none()).await;
        }
    }

    async fn until(&self, what: &str, holds: impl Fn(&Konnect) -> bool) {
        let wait = async {
            while !holds(&self.fake.konnect().lock()) {
                sleep(POLL_INTERVAL).await;
            }
        };
        let waited = timeout(WAIT, wait).await;
        assert!(waited.is_ok(), "{what}: {:#?}", ids(&self.fake.konnect().lock()));
    }

    /// Waits until there is no object of a kind any more, also none that the guest has made.
    async fn until_none(&self, entity: &kind::Entity) {
        let wait = async {
            let of = (entity.group, entity.version, entity.kind);
            while !list(&self.side.cluster, of).await.is_empty() {
                sleep(POLL_INTERVAL).await;
            }
        };
        assert!(timeout(WAIT, wait).await.is_ok(), "{} are left", entity.plural);
    }

    fn change(&self, change: Value) {
        let change: Change = serde_json::from_value(change).unwrap();
        self.fake.konnect().lock().change(0, &change).unwrap();
    }

    fn requests(&self) -> u64 {
        self.fake.konnect().lock().requests()
    }

    fn log(&self, since: u64) -> Vec<Entry> {
        self.fake.konnect().lock().log(since).cloned().collect()
    }
}

/// Returns the IDs of all entities, by collection.
fn ids(konnect: &Konnect) -> BTreeMap<&'static str, Vec<String>> {
    let collection = |api: &'static kind::Api| api.collection.rsplit('/').next().unwrap();
    let ids = |collection| {
        let entities = konnect.entities(collection);
        let mut ids: Vec<String> =
            entities.iter().map(|of| of["id"].as_str().unwrap().to_owned()).collect();
        ids.sort();
        ids
    };
    kind::entities().map(|(_, api)| (collection(api), ids(collection(api)))).collect()
}

/// Returns the number of entities, by collection.
fn counts(konnect: &Konnect) -> BTreeMap<&'static str, usize> {
    ids(konnect).into_iter().map(|(collection, ids)| (collection, ids.len())).collect()
}

/// Returns whether the second binding and the second API key are there, which the guest has made, and
/// the membership of the consumer.
fn has_made(konnect: &Konnect) -> bool {
    let is_membership =
        |entry: &Entry| entry.method == "POST" && entry.path.ends_with("/consumers");
    ["plugins", "key-auth"].iter().all(|of| konnect.entities(of).len() == 2)
        && konnect.log(0).any(|of| is_membership(of) && of.path.contains("/consumer_groups/"))
}

// === the steps of the test ===

/// The token is replaced in its Secret: the next call has the new one.
async fn rotate(world: &World, all: &[Value]) {
    let mut secret =
        all.iter().find(|of| of["metadata"]["name"] == "konnect-token").unwrap().clone();
    secret["stringData"]["token"] = TOKENS[1].into();
    let since = world.requests();
    world.side.apply(&secret).await;
    let is_new = |entry: &Entry| entry.token.as_deref() == Some(TOKENS[1]);
    world.until("the new token is sent", |konnect| konnect.log(since).any(is_new)).await;
    let log = world.log(since);
    assert!(log.iter().skip_while(|entry| !is_new(entry)).all(is_new), "{log:#?}");
    world.change(json!({"revoke": TOKENS[0]}));
}

/// What others do in Konnect is put right within a period, under the same IDs where the API allows it.
async fn drift(world: &World, control_plane: &Value) {
    world.process(PERIODS[1]).await;
    let before = ids(&world.fake.konnect().lock());
    let set = json!({"host": "elsewhere"});
    world.change(json!({"edit": "services", "name": "orders", "set": set, "controlPlane": "shop"}));
    let is_back = |konnect: &Konnect| konnect.entities("services")[0]["host"] == "orders.shop.svc";
    world.until("the service is put right", is_back).await;
    for (collection, name) in [("upstreams", "orders.shop.svc"), ("consumers", "ada")] {
        world.change(json!({"remove": collection, "name": name, "controlPlane": "shop"}));
    }
    world.until("what was removed comes back", |konnect| ids(konnect) == before).await;

    let wanted = counts(&world.fake.konnect().lock());
    world.change(json!({"removeControlPlane": "shop"}));
    world.until("the control plane comes back", |konnect| counts(konnect) == wanted).await;
    let after = ids(&world.fake.konnect().lock());
    let is_new = |of: &&str| before[of] != after[of];
    let new: Vec<&str> = before.keys().copied().filter(is_new).collect();
    assert_eq!(new, ["config-stores", "control-planes", "dp-client-certificates"]);
    let is_known = |of: Option<&Value>| {
        let id = of.and_then(|of| of["status"]["id"].as_str());
        id.is_some_and(|id| after["control-planes"].iter().any(|of| of == id))
    };
    world.side.until(control_plane, "its ID is that of the new one", is_known).await;
}

/// Everything is deleted: first what is in the control plane, then the rest, parents first.
async fn delete(world: &World, all: &[Value]) {
    let is_left = |object: &Value| {
        let kind = object["kind"].as_str().unwrap();
        kind == "KonnectAPIAuthConfiguration"
            || kind == "KonnectGatewayControlPlane"
            || object["metadata"]["name"] == "konnect-token"
    };
    let objects = all.iter().filter(|object| object["kind"] != "Namespace").cloned();
    let (left, objects): (Vec<Value>, Vec<Value>) = objects.partition(is_left);
    world.unmake(&objects).await;
    for entity in kind::ALL.iter().filter(|of| of.kind.starts_with("Kong")) {
        world.until_none(entity).await;
    }
    let deleted: Vec<String> =
        world.log(0).into_iter().filter(is_deletion).map(|of| of.path).collect();
    let at = |part: &str| deleted.iter().position(|path| path.contains(part)).unwrap();
    assert!(at("/routes/") < at("/services/"), "{deleted:#?}");
    world.unmake(&left).await;
    let stored = ids(&world.fake.konnect().lock());
    assert!(stored.values().all(Vec::is_empty), "{stored:#?}");
}

fn is_deletion(entry: &Entry) -> bool {
    entry.method == "DELETE" && entry.answer.as_ref().is_some_and(|answer| answer.status == 204)
}

/// The account may read no Secret any more: the token is not used any more, and the status says why.
async fn revoke(world: &World, all: &[Value]) {
    let (example, service) = (&all[..4], &all[4]);
    world.change(json!({"restore": TOKENS[0]}));
    world.make(example).await;
    for object in &world.rights {
        let mut object = object.clone();
        if let Some(rules) = object.get_mut("rules").and_then(Value::as_array_mut) {
            rules.retain(|rule| rule["resources"] != json!(["secrets"]));
            world.side.apply(&object).await;
        }
    }
    let auth = example.iter().find(|of| of["kind"] == "KonnectAPIAuthConfiguration").unwrap();
    let is_invalid = |of: Option<&Value>| {
        condition(of, "APIAuthValid").is_some_and(|of| of["status"] == "False")
    };
    world.side.until(auth, "the token is not valid", is_invalid).await;
    let since = world.requests();
    world.side.apply(service).await;
    let is_told =
        |of: Option<&Value>| condition(of, "Programmed").is_some_and(|of| of["status"] == "False");
    world.side.until(service, "the service is not programmed", is_told).await;
    assert_eq!(world.log(since), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_of_each_kind_is_kept_on_a_control_plane_and_goes() {
    let Some(world) = World::open().await else { return };
    let all = all();
    world.make(&all).await;
    world.until("what annotation and Secret ask for is there", has_made).await;
    rotate(&world, &all).await;
    drift(&world, &all[3]).await;
    delete(&world, &all).await;
    let refused = refused(&world.audit, NAME).await;
    assert!(refused.is_empty(), "{refused:#?}");
    revoke(&world, &all).await;
    assert_eq!(world.breaches.all(), [""; 0], "calls for objects without the finalizer");
}
