//! Both sides change the same objects at the same time: nothing that was written is lost.

use std::time::Duration;

use futures::future;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{
    backend::{EXPORTS, Export},
    consumer::{Consumer, Stand, TEAM},
};

/// The number of objects of each kind.
const OBJECTS: usize = 4;
/// The number of fields that come and go in each object.
const PARTS: usize = 5;

/// The writers of one object, each with all it has written.
struct Written {
    spec: Map<String, Value>,
    status: Map<String, Value>,
    /// The number of the last annotation at home, and at the provider.
    noted: usize,
}

/// Writes spec and annotations at home, status and annotations at the provider, as long as told.
/// Then all that was written is on both sides, and no more.
pub(super) async fn sides_change(stand: &Stand, lasts: Duration) {
    let consumer = &stand.consumers[0];
    let names: Vec<String> = (0..OBJECTS).map(|number| format!("both-{number}")).collect();
    let objects = EXPORTS.iter().flat_map(|of| names.iter().map(move |name| (of, name.as_str())));
    let changed = objects.map(|(export, name)| change(stand, consumer, (export, name), lasts));
    let rounds: usize = future::join_all(changed).await.into_iter().sum();
    println!("{rounds} rounds of changes in {} objects", EXPORTS.len() * OBJECTS);
}

/// Returns the number of rounds.
async fn change(
    stand: &Stand,
    consumer: &Consumer,
    (export, name): (&Export, &str),
    lasts: Duration,
) -> usize {
    let (here, there) = (export.here(TEAM, name), consumer.there(export, name));
    let mut made = here.clone();
    made["spec"] = json!({"stages": 0});
    consumer.home.apply(&made).await;
    stand.provider.until_is(&there, "/spec/stages", &json!(0)).await;
    let mut written = Written { spec: Map::new(), status: Map::new(), noted: 0 };
    let until = Instant::now() + lasts;
    let mut rounds = 0;
    while Instant::now() < until {
        rounds += 1;
        written.round(stand, consumer, (&here, &there), rounds).await;
    }
    let (spec, status) = (json!(written.spec), json!(written.status));
    let noted = json!(written.noted.to_string());
    for (side, object) in [(&consumer.home, &here), (&stand.provider, &there)] {
        side.until_is(object, "/spec/parts", &spec).await;
        side.until_is(object, "/spec/stages", &json!(rounds)).await;
        side.until_is(object, "/status/parts", &status).await;
        side.until_is(object, "/metadata/annotations/somebody", &noted).await;
    }
    rounds
}

impl Written {
    /// Changes each side once, both at the same time: a number, a part that comes, changes or goes,
    /// and an annotation of its own.
    async fn round(
        &mut self,
        stand: &Stand,
        consumer: &Consumer,
        (here, there): (&Value, &Value),
        round: usize,
    ) {
        let (spec, status) = (part(&mut self.spec, round), part(&mut self.status, round * 3));
        self.noted = round;
        let noted = json!({"annotations": {"somebody": round.to_string()}});
        let home = async {
            let change = json!({"metadata": noted, "spec": {"stages": round, "parts": spec}});
            consumer.home.merge(here, "", change).await;
        };
        let provider = async {
            stand.provider.merge(there, "", json!({"metadata": noted})).await;
            let status = json!({"status": {"height": round, "parts": status}});
            stand.provider.merge(there, "/status", status).await;
        };
        future::join(home, provider).await;
    }
}

/// Changes a part, or takes it out. Returns the merge patch.
fn part(parts: &mut Map<String, Value>, round: usize) -> Value {
    let key = format!("part-{}", round % PARTS);
    if round.is_multiple_of(4) {
        parts.remove(&key);
        return json!({key: null});
    }
    let value = json!(format!("round {round}"));
    parts.insert(key.clone(), value.clone());
    json!({key: value})
}
