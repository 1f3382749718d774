//! Fields of keys that are gone, and of keys that only seem to be.

use mortise_embedded_api::{Fault, Filter};
use serde_json::json;

use super::*;

const SHARED: &str = "shared";

/// Returns a puppet whose reconciler has this name, and which sets one field for each of its
/// objects.
fn sets(reconciler: &str, value: &str) -> Play {
    sets_for("play=yes", reconciler, value)
}

fn sets_for(labels: &str, reconciler: &str, value: &str) -> Play {
    let manifest = manifest(&made(SHARED, &json!({"value": value})));
    Play::new("puppet")
        .reconciles(reconciler, &selection(CONFIG_MAP, labels))
        .writes(&selection(CONFIG_MAP, ""), &["create", "update", "delete"])
        .script(json!({"returns": outcome(&json!({"apply": [manifest]}))}))
}

fn played(name: &str, label: &str) -> Value {
    object(CONFIG_MAP, name, &json!({"metadata": {"labels": {"play": label}}}))
}

impl Place {
    async fn until_shared_is(&self, value: &str) {
        let what = format!("the field is {value}");
        let holds =
            |found: Option<&Value>| found.is_some_and(|found| found["data"]["value"] == value);
        self.until_object(CONFIG_MAP, SHARED, &what, holds).await;
    }

    async fn until_version_runs(&self, name: &str, version: &str) {
        let mut activity = self.host.activity();
        let name = format!("{NAMESPACE}/{name}");
        let is_at_work = || {
            let status = self.host.status_of(&name);
            status.is_some_and(|status| status.version.version == version && status.runs > 0)
        };
        let waited = async {
            while !is_at_work() {
                activity.changed().await.unwrap();
            }
        };
        timeout(TIMEOUT, waited).await.expect("a run of the version");
    }

    async fn shared(&self) -> Value {
        self.objects(CONFIG_MAP).await.get(SHARED).await.unwrap().data["data"]["value"].clone()
    }

    /// Waits until a Processor has been refused the field again and again.
    async fn until_refused(&self, name: &str) {
        let (_, message) = self.reason(name, "Synced", "FieldConflict").await;
        assert!(message.contains("field conflict: "), "{message}");
        let before = self.runs(name);
        let mut activity = self.host.activity();
        let again = async {
            while self.runs(name) < before + 2 {
                activity.changed().await.unwrap();
            }
        };
        timeout(TIMEOUT, again).await.expect("two more runs of the processor");
    }
}

#[tokio::test(start_paused = true)]
async fn fields_of_deleted_objects_and_renamed_reconcilers_are_released() {
    let place = Place::new().await;
    place.apply(&[played("one", "yes")]).await;
    place.puppet("rules", &sets("objects", "$(name)"), &json!({})).await;
    place.until_shared_is("one").await;
    place.objects(CONFIG_MAP).await.delete("one", &DeleteParams::default()).await.unwrap();
    place.until_idle().await;
    place.apply(&[played("two", "yes")]).await;
    place.until_shared_is("two").await;

    // An object that has left the selection has no key either.
    place.change(CONFIG_MAP, "two", json!({"metadata": {"labels": {"play": "no"}}})).await;
    place.until_idle().await;
    place.apply(&[played("three", "yes")]).await;
    place.until_shared_is("three").await;

    place.puppet("rules", &sets("renamed", "4").version("2.0.0"), &json!({})).await;
    place.until_shared_is("4").await;
    place.reason("rules", "Synced", "Synced").await;
}

#[tokio::test(start_paused = true)]
async fn fields_of_a_deleted_processor_are_released_even_after_a_restart() {
    let mut place = Place::new().await;
    place.apply(&[played("one", "yes")]).await;
    let release = json!({"onDelete": "Release"});
    // Two whose names are the same where they are cut in the names of managers.
    let long = format!("{}.{}", "a".repeat(60), "b".repeat(60));
    let alike = format!("{}.x.{}", "a".repeat(60), "b".repeat(60));
    for (number, name) in
        ["former", "renamed", long.as_str(), alike.as_str()].into_iter().enumerate()
    {
        let value = number.to_string();
        place.puppet(name, &sets("objects", &value), &release).await;
        place.until_shared_is(&value).await;
        if number % 2 == 0 {
            place.restart().await;
        }
        place.delete(name).await;
        place.until_gone(name).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_is_pruned_though_a_deleted_key_had_applied_it_too() {
    let place = Place::new().await;
    place.apply(&[played("one", "yes")]).await;
    let labelled = json!({"metadata": {"labels": {"made": "yes"}}});
    let wanted = manifest(&object(CONFIG_MAP, SHARED, &labelled));
    let with = |apply: &[Value]| {
        let prune = selection(CONFIG_MAP, "made=yes");
        let script = outcome(&json!({"apply": apply, "prune": [prune]}));
        sets("objects", "").script(json!({"returns": script}))
    };
    let release = json!({"onDelete": "Release"});
    for name in ["former", "later"] {
        place.puppet(name, &with(std::slice::from_ref(&wanted)), &release).await;
        place.reason(name, "Synced", "Synced").await;
    }
    // Both have applied it: as long as one is there, the other only lets go.
    place.puppet("later", &with(&[]).version("2.0.0"), &release).await;
    place.until_version_runs("later", "2.0.0").await;
    place.until_idle().await;
    assert!(place.objects(CONFIG_MAP).await.get_opt(SHARED).await.unwrap().is_some());
    place.puppet("later", &with(std::slice::from_ref(&wanted)).version("3.0.0"), &release).await;
    place.until_version_runs("later", "3.0.0").await;
    place.until_idle().await;
    place.delete("former").await;
    place.until_gone("former").await;
    place.puppet("later", &with(&[]).version("4.0.0"), &release).await;
    place.until_object(CONFIG_MAP, SHARED, "it is pruned", |found| found.is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_living_key_keeps_its_fields_whatever_its_processor_is_doing() {
    let mut place = Place::new().await;
    place.account("of-victim", &json!({"annotations": {"mortise.dev/processor": "*"}})).await;
    place.apply(&[played("one", "yes"), played("other", "attack")]).await;
    let of_victim = json!({"serviceAccountName": "of-victim"});
    place.puppet("victim", &sets("objects", "1"), &of_victim).await;
    place.until_shared_is("1").await;
    let attack = sets_for("play=attack", "objects", "2");

    // It runs.
    place.puppet("attacker", &attack, &json!({})).await;
    place.until_refused("attacker").await;

    // It is suspended, also over a restart.
    place.edit("victim", json!({"suspend": true})).await;
    place.reason("victim", "Ready", "Suspended").await;
    place.restart().await;
    place.until_refused("attacker").await;

    // It does not run: its module is not there when the host starts.
    place.edit("victim", json!({"suspend": false, "module": {"path": "gone.wasm"}})).await;
    place.restart().await;
    place.reason("victim", "Loaded", "ModuleNotFound").await;
    place.until_refused("attacker").await;
    assert_eq!(place.shared().await, "1");

    // It runs again: its objects are not known while the API server does not list them.
    place.edit("victim", json!({"module": {"path": "puppet.wasm"}})).await;
    place.reason("victim", "Ready", "Runs").await;
    place.until_refused("attacker").await;
    assert_eq!(place.shared().await, "1");

    place.delete("victim").await;
    place.until_gone("victim").await;
    place.edit("attacker", json!({"limits": {"concurrency": 2}})).await;
    place.until_shared_is("2").await;
}

#[tokio::test(start_paused = true)]
async fn a_processor_that_cannot_be_looked_up_keeps_its_fields() {
    let place = Place::new().await;
    place.apply(&[played("one", "yes")]).await;
    place.puppet("former", &sets("objects", "1"), &json!({"onDelete": "Release"})).await;
    place.until_shared_is("1").await;
    place.delete("former").await;
    place.until_gone("former").await;
    // The host may not see whether there is such a Processor.
    let refused = Fault::Refused { code: 403, message: "no Processors".into() };
    let faults = place.api.faults();
    faults.inject(refused, Filter::resource("processors").name("former"), 100_000);
    place.puppet("later", &sets("objects", "2"), &json!({})).await;
    place.until_refused("later").await;
    assert_eq!(place.shared().await, "1");
    faults.clear();
    place.edit("later", json!({"limits": {"concurrency": 2}})).await;
    place.until_shared_is("2").await;
}

#[tokio::test(start_paused = true)]
async fn a_host_of_one_namespace_takes_nothing_of_processors_elsewhere() {
    let mut place = Place::new().await;
    place.served = Some(NAMESPACE.to_owned());
    place.restart().await;
    place.apply(&[played("one", "yes")]).await;
    // Another host's Processor, which this host cannot know.
    let client = place.cluster.client().clone();
    let resource = place.cluster.resolve(&super::super::kind(CONFIG_MAP)).await.unwrap().unwrap();
    let of_all: Api<DynamicObject> =
        Api::namespaced_with(client, NAMESPACE, &mortise_host::cluster::api_resource(&resource));
    let set_by = async |manager: &str| {
        let params = PatchParams::apply(manager).force();
        let wanted = made(SHARED, &json!({"value": "1"}));
        of_all.patch(SHARED, &params, &Patch::Apply(&wanted)).await.unwrap();
    };
    set_by("mortise/elsewhere/rules/a0123456789abcdef0123456789abcdef").await;
    place.puppet("rules", &sets("objects", "2"), &json!({})).await;
    place.until_refused("rules").await;
    assert_eq!(place.shared().await, "1");

    // A host of all namespaces knows that there is none.
    place.served = None;
    place.restart().await;
    place.until_shared_is("2").await;
}
