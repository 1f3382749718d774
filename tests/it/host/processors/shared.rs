//! Two Processors that want the same.

use serde_json::json;

use super::*;

/// A puppet that reconciles all its `ConfigMaps` and applies one object for each, with this in it.
fn sets(name: &str, value: &str) -> Play {
    let manifest = manifest(&made("shared", &json!({"value": value})));
    let script = outcome(&json!({"apply": [manifest]}));
    Play::new(name)
        .reconciles("objects", &selection(CONFIG_MAP, "play=yes"))
        .writes(&selection(CONFIG_MAP, ""), &["create", "update"])
        .script(json!({"returns": script}))
}

fn held(name: &str, labels: &str) -> Play {
    let finalizers = json!({"finalizers": ["example.com/held"]});
    Play::new(name).reconciles_with("objects", &selection(CONFIG_MAP, labels), &finalizers)
}

#[tokio::test(start_paused = true)]
async fn two_that_reconcile_the_same_both_run_and_a_conflict_shows_in_both() {
    let place = Place::new().await;
    let played = object(CONFIG_MAP, "a", &json!({"metadata": {"labels": {"play": "yes"}}}));
    place.apply(&[played]).await;
    place.puppet("one", &sets("one", "1"), &json!({})).await;
    place.reason("one", "Synced", "Synced").await;
    place.puppet("two", &sets("two", "2"), &json!({})).await;
    let (status, message) = place.reason("two", "Synced", "FieldConflict").await;
    assert_eq!(status, "False");
    assert!(message.contains("`a/one/objects:a/a` has set `.data.value` of"), "{message}");
    let (status, message) = place.reason("one", "Synced", "FieldConflict").await;
    assert_eq!(status, "False");
    assert!(message.contains("`a/two/objects:a/a` wants `.data.value` of"), "{message}");
    for name in ["one", "two"] {
        assert_eq!(place.reason(name, "Ready", "Runs").await.0, "True");
    }
    let kept = place.objects(CONFIG_MAP).await.get("shared").await.unwrap();
    assert_eq!(kept.data["data"]["value"], "1", "what was there first stays");

    place.puppet("two", &sets("two", "1"), &json!({})).await;
    for name in ["one", "two"] {
        place.reason(name, "Synced", "Synced").await;
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_with_the_same_finalizer_the_older_runs_and_both_say_so() {
    let place = Place::new().await;
    place.puppet("older", &held("older", "play=yes"), &json!({})).await;
    place.reason("older", "Ready", "Runs").await;
    place.puppet("younger", &held("younger", "play=yes"), &json!({})).await;
    let (status, message) = place.reason("younger", "Ready", "FinalizerShared").await;
    assert_eq!(status, "False");
    assert!(
        message.contains(
            "`a/older` declares the finalizer `example.com/held` of ConfigMap too, and is older"
        ),
        "{message}"
    );
    let (status, message) = place.reason("older", "Ready", "FinalizerShared").await;
    assert_eq!(status, "True");
    assert!(message.contains("`a/younger` declares the finalizer `example.com/held` of ConfigMap too, is younger, and is not run"), "{message}");
    place.delete("older").await;
    place.until_gone("older").await;
    place.reason("younger", "Ready", "Runs").await;
}

#[tokio::test(start_paused = true)]
async fn two_with_the_same_finalizer_on_other_objects_both_run() {
    let place = Place::new().await;
    place.puppet("one", &held("one", "class=a"), &json!({})).await;
    place.puppet("two", &held("two", "class=b"), &json!({})).await;
    for name in ["one", "two"] {
        place.reason(name, "Ready", "Runs").await;
    }
}
