//! Tests a processor that replaces a former operator and takes over its fields.

use super::*;

const FORMER: &str = "of-former";

/// Creates a `ConfigMap` as a Go operator left it: created by an update, and partly applied;
/// another part belongs to another manager.
async fn of_former(bed: &Bed) {
    let of = config_map_ref(FORMER);
    let made = config_map(FORMER, json!({"kept": "1", "old": "1"}));
    bed.foreign(Method::Post, &of, "?fieldManager=manager", made).await;
    for (manager, key) in [("applier", "applied"), ("somebody", "others")] {
        let applied = config_map(FORMER, json!({key: "1"}));
        bed.foreign(Method::Apply, &of, &format!("?fieldManager={manager}"), applied).await;
    }
}

fn wanted(data: Value) -> Outcome {
    apply([&config_map(FORMER, data)])
}

fn former() -> [String; 2] {
    ["manager".to_owned(), "applier".to_owned()]
}

/// Returns the values of the object, and the names of its managers.
async fn left(bed: &Bed) -> (Value, Vec<String>) {
    let object = bed.object(&config_map_ref(FORMER)).await;
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let names = entries.iter().map(|entry| entry["manager"].as_str().unwrap().to_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    (object["data"].clone(), names)
}

#[tokio::test]
async fn fields_of_a_former_operator_that_are_not_applied_are_removed() {
    let bed = Bed::new().await;
    of_former(&bed).await;
    let written = bed.run_taking(wanted(json!({"kept": "2", "new": "1"})), &former()).await;
    assert!(written.failures.is_empty() && written.forced.is_empty(), "{written:#?}");
    let (data, names) = left(&bed).await;
    assert_eq!(data, json!({"kept": "2", "new": "1", "others": "1"}));
    assert_eq!(names, [managers("r").apply, "somebody".to_owned()]);
}

#[tokio::test]
async fn only_the_managers_that_are_named_lose_their_fields() {
    let bed = Bed::new().await;
    of_former(&bed).await;
    bed.run_taking(wanted(json!({"kept": "1"})), &["applier".to_owned()]).await;
    assert_eq!(left(&bed).await.0, json!({"kept": "1", "old": "1", "others": "1"}));
}

#[tokio::test]
async fn fields_are_taken_over_once() {
    let bed = Bed::new().await;
    of_former(&bed).await;
    let outcome = || wanted(json!({"kept": "1"}));
    bed.run_taking(outcome(), &former()).await;
    let later = config_map(FORMER, json!({"later": "1"}));
    let of = config_map_ref(FORMER);
    bed.foreign(Method::Apply, &of, "?fieldManager=applier", later).await;
    bed.writes();
    bed.run_taking(outcome(), &former()).await;
    assert_eq!(bed.writes(), 0);
    assert_eq!(left(&bed).await.0, json!({"kept": "1", "later": "1", "others": "1"}));
}

#[tokio::test]
async fn a_crash_after_the_fields_were_taken_leads_to_the_same_end() {
    let mut bed = Bed::new().await;
    of_former(&bed).await;
    let outcome = || wanted(json!({"kept": "2"}));
    *bed.gate.lock() = Some(1);
    assert!(bed.run_taking(outcome(), &former()).await.is_failure());
    assert_eq!(left(&bed).await.0["kept"], "1", "the fields are ours, and as they were");
    *bed.gate.lock() = None;
    bed.restart().await;
    let written = bed.run_taking(outcome(), &former()).await;
    assert!(written.failures.is_empty() && written.forced.is_empty(), "{written:#?}");
    assert_eq!(left(&bed).await.0, json!({"kept": "2", "others": "1"}));
}

#[tokio::test]
async fn fields_that_are_left_alone_stay_as_the_former_operator_left_them() {
    let bed = Bed::new().await;
    let made = config_map(FORMER, json!({"count": "7", "old": "1"}));
    bed.foreign(Method::Post, &config_map_ref(FORMER), "?fieldManager=manager", made).await;
    let mut outcome = wanted(json!({"count": "1", "new": "1"}));
    outcome.apply[0].leave = vec!["data.count".to_owned()];
    let written = bed.run_taking(outcome, &former()).await;
    assert!(written.failures.is_empty(), "{written:#?}");
    assert_eq!(left(&bed).await.0, json!({"count": "7", "new": "1"}));
}

#[tokio::test]
async fn a_status_is_taken_over_by_itself() {
    let bed = Bed::new().await;
    let path = "/status?fieldManager=manager";
    let resource = rule_ref("r");
    let old = json!({"status": {"state": "Old", "old": "1"}});
    bed.foreign(Method::MergePatch, &resource, path, old).await;
    let mut outcome = outcome();
    let mut object = rule("r");
    object["status"] = json!({"state": "New"});
    outcome.status = Some(object.to_string());
    let written = bed.run_taking(outcome, &former()).await;
    assert!(written.failures.is_empty() && written.forced.is_empty(), "{written:#?}");
    assert_eq!(bed.object(&resource).await["status"], json!({"state": "New"}));
}
