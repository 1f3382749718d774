//! Processor resources, with a host that may do no more than it needs.

use std::collections::BTreeSet;

use mortise_sdk::{
    Description, Manifest, Outcome, Reconciler, Selection, Verbs,
    kubernetes::{ConfigMap, Secret},
};
use mortise_tests::cluster::Event;
use serde_json::{Value, json};

use super::{
    ground::Rights,
    kind,
    stage::{Stage, returns},
};

const PROCESSOR: &str = "mortise.dev/v1alpha1/Processor";
const NAME: &str = "painter";
const RECONCILES: Rights<'static> = &[("configmaps", "get list watch"), ("events", "create patch")];
const WRITES: Rights<'static> = &[("secrets", "get list watch create patch")];

/// Returns a Processor that applies a Secret for a `ConfigMap`, both of the Processor's name.
fn processor(stage: &Stage) -> Value {
    let namespace = &stage.namespace;
    let mine = Selection::of::<ConfigMap>().namespace(namespace).labels(format!("play={NAME}"));
    let secrets = Selection::of::<Secret>().namespace(namespace);
    let description = Description::new(NAME, "1.0.0")
        .reconciles(Reconciler::new("objects", mine))
        .writes(secrets, Verbs::CREATE | Verbs::UPDATE);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": stage.named(NAME)});
    let script = returns(&Outcome::new().apply(Manifest::json(&secret)));
    json!({
        "apiVersion": "mortise.dev/v1alpha1", "kind": "Processor", "metadata": stage.named(NAME),
        "spec": {
            "module": {"path": "puppet.wasm"}, "serviceAccountName": NAME,
            "config": {"description": description, "script": script},
        },
    })
}

/// Returns the reconciled object.
fn object(stage: &Stage) -> Value {
    let mut metadata = stage.named(NAME);
    super::merge(&mut metadata, &json!({"labels": {"play": NAME}}));
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
}

fn condition<'a>(processor: &'a Value, name: &str) -> Option<&'a Value> {
    let conditions = processor.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| condition["type"] == name)
}

/// Returns the status, reason and message of a condition.
fn said<'a>(processor: &'a Value, name: &str) -> [&'a str; 3] {
    let text = |key: &str| condition(processor, name).and_then(|of| of[key].as_str()).unwrap_or("");
    ["status", "reason", "message"].map(text)
}

impl Stage {
    async fn until_said(&self, name: &str, status: &str, reason: &str, message: &str) {
        self.until_said_of(NAME, name, status, reason, message).await;
    }

    /// Waits until a condition of a Processor has this status and reason, and this text in its
    /// message.
    pub(super) async fn until_said_of(
        &self,
        processor: &str,
        name: &str,
        status: &str,
        reason: &str,
        message: &str,
    ) {
        let what = format!("{processor}: {name} {status} {reason} {message}");
        self.until(&what, async || {
            let processor = self.get(&kind(PROCESSOR), processor).await.unwrap();
            let said = said(&processor, name);
            said[..2] == [status, reason] && said[2].contains(message)
        })
        .await;
    }

    /// Returns the message of a condition of a Processor.
    pub(super) async fn message_of(&self, processor: &str, name: &str) -> String {
        let processor = self.get(&kind(PROCESSOR), processor).await.unwrap();
        said(&processor, name)[2].to_owned()
    }
}

#[tokio::test]
async fn a_denial_shows_in_the_conditions_until_the_right_is_given() {
    let Some(stage) = Stage::new("conditions", &[NAME.to_owned()]).await else { return };
    stage.account(NAME, RECONCILES).await;
    let mut account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": stage.named(NAME)});
    account["metadata"]["labels"] = json!({"mortise.dev/processor": NAME});
    let _running = stage.supervise().await;
    stage.apply(vec![account, object(&stage), processor(&stage)]).await;
    let secret = kind("v1/Secret");
    stage.until_said("Ready", "False", "RightsMissing", "may not create secrets").await;
    stage.until_said("Synced", "False", "Denied", "may not patch secrets").await;
    assert_eq!(stage.get(&secret, NAME).await, None);

    stage.grant(NAME, &[RECONCILES, WRITES].concat()).await;
    stage.until("it is written", async || stage.get(&secret, NAME).await.is_some()).await;
    stage.until_said("Synced", "True", "Synced", "").await;
    stage.until_said("Ready", "True", "Runs", "runs").await;

    let requests = stage.requests().await;
    assert_eq!(stage.beyond_installed(&requests), Vec::<String>::new());
    let own = requests.iter().filter(|request| request.impersonated_user.is_none());
    let is_write = |verb: &str| !["get", "list", "watch"].contains(&verb);
    let written: BTreeSet<_> = own
        .filter(|request| request.object_ref.is_some())
        .filter(|request| is_write(&request.verb))
        .map(Event::resource)
        .collect();
    let expected = [
        "processors",
        "processors/status",
        "subjectaccessreviews",
        "selfsubjectaccessreviews",
        "selfsubjectreviews",
    ];
    assert_eq!(written, expected.map(str::to_owned).into());
}

#[tokio::test]
async fn an_account_that_the_host_may_not_act_as_gets_nothing_of_the_shared_store() {
    const SLY: &str = "sly";
    let Some(stage) = Stage::new("not-granted", &[NAME.to_owned()]).await else { return };
    let rights = [RECONCILES, WRITES].concat();
    for name in [NAME, SLY] {
        stage.account(name, &rights).await;
        stage.consent(name).await;
    }
    stage.until_granted(&[NAME.to_owned(), SLY.to_owned()]).await;
    let _running = stage.supervise().await;
    // The same objects, whose store is filled with the rights of the other Processor.
    let mut sly = processor(&stage);
    sly["metadata"]["name"] = json!(SLY);
    sly["spec"]["serviceAccountName"] = json!(SLY);
    let leak = json!({"message": "leaked", "status": null, "events": [], "retry": "OnChange"});
    sly["spec"]["config"]["script"] = json!({"returns": {"failure": leak}});
    stage.apply(vec![object(&stage), processor(&stage)]).await;
    stage.until_said("Synced", "True", "Synced", "").await;
    stage.apply(vec![sly]).await;
    let reason_of_sly = async || {
        let found = stage.get(&kind(PROCESSOR), SLY).await.unwrap();
        said(&found, "Ready").map(str::to_owned)
    };
    let is_refused = async || reason_of_sly().await[1] == "AccountNotGranted";
    stage.until("the host may not act as it", is_refused).await;
    let found = stage.get(&kind(PROCESSOR), SLY).await.unwrap();
    assert_eq!(found.pointer("/status/lastFailure"), None, "{found}");
    let acted = stage.requests().await;
    let user = stage.user(SLY);
    let acted = acted.iter().filter(|event| event.account() == user);
    assert_eq!(acted.map(|event| &event.request_uri).collect::<Vec<_>>(), Vec::<&String>::new());

    stage.let_act_as(&[NAME.to_owned(), SLY.to_owned()]).await;
    let has_run = async || {
        let found = stage.get(&kind(PROCESSOR), SLY).await.unwrap();
        found.pointer("/status/lastFailure/message") == Some(&json!("leaked"))
    };
    stage.until("it starts by itself", has_run).await;
    stage.let_act_as(&[NAME.to_owned()]).await;
    stage.until("it is taken out", is_refused).await;
    stage.until_said("Ready", "True", "Runs", "runs").await;
    assert_eq!(stage.beyond_installed(&stage.requests().await), Vec::<String>::new());
}
