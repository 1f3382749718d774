//! The effects of deleting a Processor on the objects that its processor holds.

use serde_json::json;

use super::*;

const SECRET_COPY: &str = "guests/secret-copy";
const COPY: &str = "copy.mortise.dev/v1/SecretCopy";
const FINALIZER: &str = "copy.mortise.dev/copies";

/// Sets up a `SecretCopy` that has been carried out: the Secret `s` is copied to the namespace
/// `default`.
async fn copied(spec: &Value) -> Place {
    let place = Place::new().await;
    place.put("copy.wasm", SECRET_COPY);
    let mut objects = mortise_tests::definitions(SECRET_COPY).unwrap();
    objects.extend([
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {"team": "t"}}}),
        object("v1/Secret", "s", &json!({"data": {"k": "dg=="}})),
        object(COPY, "c", &json!({"spec": {"secret": "s", "namespaces": "team=t"}})),
    ]);
    place.apply(&objects).await;
    let mut fields = json!({"module": {"path": "copy.wasm"}, "serviceAccountName": "puppet"});
    merge(&mut fields, spec);
    place
        .apply(&[object("mortise.dev/v1alpha1/Processor", "copies", &json!({"spec": fields}))])
        .await;
    let is_ready = |found: Option<&Value>| {
        found.is_some_and(|found| found["status"]["conditions"][0]["status"] == "True")
    };
    place.until_object(COPY, "c", "the copy is made", is_ready).await;
    assert!(place.has_copy());
    assert_eq!(place.copy().await["metadata"]["finalizers"], json!([FINALIZER]));
    place.reason("copies", "Synced", "Synced").await;
    place
}

impl Place {
    fn has_copy(&self) -> bool {
        let is_copy = |object: &Value| {
            object["kind"] == "Secret" && object["metadata"]["namespace"] == "default"
        };
        self.api.objects().iter().any(is_copy)
    }

    async fn copy(&self) -> Value {
        serde_json::to_value(self.objects(COPY).await.get("c").await.unwrap()).unwrap()
    }

    /// Asserts that the `SecretCopy` was left without the processor's finalizer.
    async fn assert_let_go(&self) {
        let copy = self.copy().await;
        assert_eq!(copy["metadata"].get("finalizers"), None, "{copy:#}");
        assert_eq!(copy["metadata"].get("deletionTimestamp"), None, "{copy:#}");
        assert!(self.host.status().is_empty(), "nothing of it runs");
    }
}

#[tokio::test(start_paused = true)]
async fn finalize_runs_the_finalizers_and_keeps_the_objects() {
    let place = copied(&json!({"onDelete": "Finalize"})).await;
    place.delete("copies").await;
    place.until_gone("copies").await;
    assert!(!place.has_copy(), "as if the SecretCopy had been deleted");
    place.assert_let_go().await;
}

#[tokio::test(start_paused = true)]
async fn release_drops_the_finalizers_and_leaves_the_rest() {
    let place = copied(&json!({"onDelete": "Release"})).await;
    place.delete("copies").await;
    place.until_gone("copies").await;
    assert!(place.has_copy());
    place.assert_let_go().await;
}

#[tokio::test(start_paused = true)]
async fn a_suspended_processor_is_ended_nevertheless() {
    let place = copied(&json!({})).await;
    place.edit("copies", json!({"suspend": true})).await;
    place.reason("copies", "Ready", "Suspended").await;
    place.delete("copies").await;
    place.until_gone("copies").await;
    assert!(!place.has_copy());
    place.assert_let_go().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_has_left_the_selection_is_let_go_too_by_a_host_that_is_new() {
    let mut place = Place::new().await;
    let finalizers = json!({"finalizers": ["example.com/held"]});
    let play = Play::new("puppet")
        .reconciles_with("objects", &selection(CONFIG_MAP, "play=yes"), &finalizers)
        .script(json!({"returns": outcome(&finalizers)}));
    place
        .apply(&[object(CONFIG_MAP, "a", &json!({"metadata": {"labels": {"play": "yes"}}}))])
        .await;
    place.puppet("rules", &play, &json!({"onDelete": "Release"})).await;
    let is_held = |found: Option<&Value>| {
        found.is_some_and(|found| found["metadata"]["finalizers"] == finalizers["finalizers"])
    };
    place.until_object(CONFIG_MAP, "a", "it is held", is_held).await;
    place.change(CONFIG_MAP, "a", json!({"metadata": {"labels": {"play": "no"}}})).await;
    place.restart().await;
    place.reason("rules", "Ready", "Runs").await;
    place.delete("rules").await;
    place.until_gone("rules").await;
    let left = place.objects(CONFIG_MAP).await.get("a").await.unwrap();
    assert_eq!(left.metadata.finalizers, None);
    assert!(place.host.status().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_left_the_selection_while_no_host_ran_is_let_go_by_the_next_one() {
    let mut place = Place::new().await;
    let finalizers = json!({"finalizers": ["example.com/held"]});
    // A finalizer of the same name on an object that another reconciler selects.
    let theirs = object(CONFIG_MAP, "theirs", &json!({"metadata": finalizers}));
    let play = |script: Value| {
        Play::new("puppet")
            .reconciles_with("objects", &selection(CONFIG_MAP, "play=yes"), &finalizers)
            .script(script)
    };
    let holds = play(json!({"returns": outcome(&finalizers)}));
    let ours = object(CONFIG_MAP, "a", &json!({"metadata": {"labels": {"play": "yes"}}}));
    place.apply(&[ours, theirs]).await;
    place.puppet("rules", &holds, &json!({})).await;
    let is_held = |found: Option<&Value>| {
        found.is_some_and(|found| found["metadata"]["finalizers"] == finalizers["finalizers"])
    };
    place.until_object(CONFIG_MAP, "a", "it is held", is_held).await;
    place.tasks.shutdown().await;
    place.change(CONFIG_MAP, "a", json!({"metadata": {"labels": {"play": "no"}}})).await;
    let lets_go = play(json!({"returns": outcome(&json!({"finalizers": []}))}));
    place.puppet("rules", &lets_go, &json!({})).await;
    place.restart().await;
    let is_free = |found: Option<&Value>| {
        found.is_some_and(|found| found["metadata"]["finalizers"].is_null())
    };
    place.until_object(CONFIG_MAP, "a", "it is let go", is_free).await;
    place.until_idle().await;
    assert_eq!(place.host.status_of("a/rules").unwrap().objects, 0, "the other one is not its own");
    place.until_object(CONFIG_MAP, "theirs", "it is left", is_held).await;
}

#[tokio::test(start_paused = true)]
async fn while_it_only_observes_nothing_is_given_up_and_the_condition_says_so() {
    let place = copied(&json!({})).await;
    place.edit("copies", json!({"mode": "Observe"})).await;
    place.reason("copies", "Ready", "Observes").await;
    place.delete("copies").await;
    let (status, message) = place.reason("copies", "Ready", "Ending").await;
    assert_eq!(status, "False");
    assert_eq!(
        message,
        "is being deleted: 1 objects still hold its finalizers (secret-copies a/c); nothing is written while spec.mode is Observe"
    );
    assert!(place.has_copy());
    place.edit("copies", json!({"mode": "Reconcile"})).await;
    place.until_gone("copies").await;
    place.assert_let_go().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_processor_without_its_module_waits_and_names_a_remedy() {
    let mut place = copied(&json!({})).await;
    fs::remove_file(place.modules.path().join("copy.wasm")).unwrap();
    place.restart().await;
    place.delete("copies").await;
    let (_, message) = place.reason("copies", "Ready", "ModuleNotFound").await;
    assert!(
        message.starts_with(
            "is being deleted, and its finalizers on other objects cannot be handled: there is no module `copy.wasm`"
        ),
        "{message}"
    );
    assert!(
        message.ends_with("or remove the finalizer mortise.dev/processor by hand"),
        "{message}"
    );
    place.put("copy.wasm", SECRET_COPY);
    place.until_gone("copies").await;
    place.assert_let_go().await;
}

#[tokio::test(start_paused = true)]
async fn a_processor_that_never_ran_is_deleted_at_once() {
    let place = Place::new().await;
    place.puppet("rules", &puppet(), &json!({"module": {"path": "none.wasm"}})).await;
    place.reason("rules", "Ready", "ModuleNotFound").await;
    assert_eq!(place.processors().get("rules").await.unwrap().metadata.finalizers, None);
    place.delete("rules").await;
    place.until_gone("rules").await;
}

#[tokio::test(start_paused = true)]
async fn deleting_a_processor_without_finalizers_keeps_its_objects() {
    let place = Place::new().await;
    place.apply(&[scripted("a", &applies(&[made("b", &json!({}))]))]).await;
    place.puppet("rules", &puppet(), &json!({})).await;
    place.until_object(CONFIG_MAP, "b", "it is made", |found| found.is_some()).await;
    place.delete("rules").await;
    place.until_gone("rules").await;
    assert!(place.host.status().is_empty());
    place.objects(CONFIG_MAP).await.get("b").await.unwrap();
    place.puppet("rules", &puppet(), &json!({})).await;
    place.reason("rules", "Ready", "Runs").await;
}
