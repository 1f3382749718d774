use super::*;

async fn events(bed: &Bed) -> Vec<Value> {
    let list =
        bed.cluster.send(&Outgoing::get("/api/v1/namespaces/a/events".into())).await.unwrap().body;
    list["items"].as_array().unwrap().clone()
}

fn saying(message: &str) -> Outcome {
    Outcome { events: vec![said("Done", message)], ..outcome() }
}

#[tokio::test(start_paused = true)]
async fn an_event_is_made_once_and_counted() {
    let bed = Bed::new().await;
    for _ in 0..3 {
        let written = bed.run(saying("m")).await;
        fine(&written);
        assert_eq!(actions(&written), ["event Event"]);
    }
    let all = events(&bed).await;
    assert_eq!(all.len(), 1);
    let event = &all[0];
    assert_eq!(
        (&event["count"], &event["reason"], &event["message"], &event["type"]),
        (&json!(3), &json!("Done"), &json!("m"), &json!("Normal"))
    );
    let rule = bed.object(&rule_ref("r")).await;
    assert_eq!(
        (&event["involvedObject"]["uid"], &event["involvedObject"]["kind"]),
        (&rule["metadata"]["uid"], &json!("Rule"))
    );
    assert_eq!(event["source"]["component"], "p");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_has_expired_is_made_again() {
    let bed = Bed::new().await;
    fine(&bed.run(saying("m")).await);
    let name = events(&bed).await[0]["metadata"]["name"].as_str().unwrap().to_owned();
    bed.foreign(Method::Delete, &object_ref(v1("", "Event"), Some("a"), &name), "", json!({}))
        .await;
    fine(&bed.run(saying("m")).await);
    assert_eq!(events(&bed).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn many_events_that_differ_in_their_message_become_one() {
    let bed = Bed::new().await;
    for number in 0..15 {
        fine(&bed.run_for("r", saying(&format!("m {number}"))).await);
    }
    let all = events(&bed).await;
    assert_eq!(all.len(), 11);
    let combined = all
        .iter()
        .find(|event| {
            event["message"].as_str().unwrap().starts_with("(combined from similar events): ")
        })
        .unwrap();
    assert_eq!(
        (&combined["count"], &combined["message"]),
        (&json!(5), &json!("(combined from similar events): m 14"))
    );
}

#[tokio::test(start_paused = true)]
async fn an_object_has_a_bounded_number_of_events() {
    let bed = Bed::new().await;
    bed.writes();
    for _ in 0..40 {
        fine(&bed.run_for("r", saying("m")).await);
    }
    assert_eq!(bed.writes(), 25);
    tokio::time::advance(Duration::from_mins(5)).await;
    fine(&bed.run_for("r", saying("m")).await);
    fine(&bed.run_for("r", saying("m")).await);
    assert_eq!(bed.writes(), 1);
    fine(&bed.run_for("s", saying("m")).await);
    assert_eq!(bed.writes(), 1, "another object has its own");
}

#[tokio::test]
async fn an_event_that_is_refused_is_no_failure() {
    let bed = Bed::new().await;
    let on = Some(ObjectRef { namespace: Some("none".into()), ..config_map_ref("c") });
    let outcome =
        Outcome { events: vec![contract::Event { on, ..said("Done", "m") }], ..outcome() };
    let written = bed.run(outcome).await;
    fine(&written);
    assert!(written.changes.is_empty());
    assert_eq!(written.refused_events, ["".into()]);
}

#[tokio::test]
async fn a_long_message_is_cut() {
    let bed = Bed::new().await;
    fine(&bed.run(saying(&"ä".repeat(2000))).await);
    let message = events(&bed).await[0]["message"].as_str().unwrap().to_owned();
    assert!(message.len() <= 1024 && message.ends_with("ä..."), "{} bytes", message.len());
}

#[tokio::test]
async fn control_characters_of_a_message_are_escaped() {
    let bed = Bed::new().await;
    fine(&bed.run(saying("a\u{1b}[2J\u{202e}b\nc")).await);
    assert_eq!(events(&bed).await[0]["message"], "a\\u{1b}[2J\\u{202e}b\nc");
}
