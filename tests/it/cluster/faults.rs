//! The API server is stopped and started again.

use mortise_sdk::{
    Description, Manifest, ObjectRef, Outcome, Reconciler, Selection, Verbs,
    kubernetes::{ConfigMap, Secret},
};
use mortise_tests::cluster::{self, Part};
use serde_json::{Value, json};

use super::{
    answers, kind,
    stage::{Stage, returns},
};

const NAME: &str = "painter";

/// Adds a puppet that reads the Secret `input`, and applies the Secret of its own name.
async fn paint(stage: &Stage) {
    let namespace = &stage.namespace;
    let mine = Selection::of::<ConfigMap>().namespace(namespace).labels(format!("play={NAME}"));
    let secrets = Selection::of::<Secret>().namespace(namespace);
    let description = Description::new(NAME, "1.0.0")
        .reconciles(Reconciler::new("objects", mine))
        .reads(secrets.clone())
        .writes(secrets, Verbs::CREATE | Verbs::UPDATE);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": stage.named(NAME)});
    let mut script = returns(&Outcome::new().apply(Manifest::json(&secret)));
    let input = ObjectRef::of::<Secret>(Some(namespace), "input");
    script["reads"] = json!([{"get": {"ref": input}}]);
    stage.puppet(NAME, &description, &script).await;
}

fn input(stage: &Stage, value: &str) -> Value {
    let metadata = stage.named("input");
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"value": value}})
}

/// Returns the input that the last run has read. Values of fewer than six bytes are not masked in
/// the log of a run.
fn read(answers: &[Value]) -> Option<Value> {
    let secret: Value = serde_json::from_str(answers.first()?.get("Ok")?.as_str()?).ok()?;
    Some(secret["data"]["value"].clone())
}

#[tokio::test]
async fn no_change_is_lost_when_the_api_server_comes_back() {
    let Some(control_plane) = cluster::own().await.unwrap() else { return };
    let stage = Stage::before(&control_plane, "away").await;
    stage.let_act_as(&[NAME.to_owned()]).await;
    let rights = [
        ("configmaps", "get list watch"),
        ("events", "create patch"),
        ("secrets", "get list watch create patch"),
    ];
    stage.account(NAME, &rights).await;
    let mut object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": stage.named(NAME)});
    object["metadata"]["labels"] = json!({"play": NAME});
    stage.apply(vec![object, input(&stage, "old")]).await;
    paint(&stage).await;
    let has_read = async |value: &str| {
        let value = json!(value);
        stage.last_run(NAME, |report| read(&answers(report)).as_ref() == Some(&value)).await;
    };
    has_read("b2xk").await;
    let secret = kind("v1/Secret");
    stage.until("it is written", async || stage.get(&secret, NAME).await.is_some()).await;

    for (value, encoded) in [("one", "b25l"), ("two", "dHdv")] {
        control_plane.kill(Part::ApiServer).await.unwrap();
        control_plane.restart(Part::ApiServer).await.unwrap();
        // The change comes before the host's watches are open again.
        stage.apply(vec![input(&stage, value)]).await;
        stage.delete(&secret, NAME).await;
        has_read(encoded).await;
        stage.until("it is made again", async || stage.get(&secret, NAME).await.is_some()).await;
    }
    stage.host.stop().await.unwrap();
}
