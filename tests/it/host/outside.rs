//! A system outside of the cluster that hangs.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{FutureExt as _, future::BoxFuture};
use mortise::egress::{self, Grant};
use mortise_core::outbound::{Allowed, Answer, CallError, Outbound};
use mortise_host::outbound;

use super::*;

const KEYS: usize = 1_000;
const NEIGHBOURS: usize = 20;
/// The calls of one processor at once, by default.
const AT_ONCE: usize = 4;

/// Lets each call wait for its whole time.
#[derive(Default)]
struct Hanging {
    now: AtomicUsize,
    most: AtomicUsize,
    ended: AtomicUsize,
}

impl Outbound for Hanging {
    fn send(&self, call: Allowed) -> BoxFuture<'_, Result<Answer, CallError>> {
        async move {
            let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
            self.most.fetch_max(now, Ordering::Relaxed);
            tokio::time::sleep(call.timeout).await;
            self.now.fetch_sub(1, Ordering::Relaxed);
            self.ended.fetch_add(1, Ordering::Relaxed);
            Err(CallError::NoAnswer("it hangs".to_owned()))
        }
        .boxed()
    }
}

/// Loads a puppet that makes these calls, and then an object for each of its own.
async fn makes(name: &str, calls: &Value) -> Loaded {
    let made = object(CONFIG_MAP, "$(name)-made", &json!({}));
    let returns = outcome(&json!({"apply": [manifest(&made)]}));
    let play = Play::new(name)
        .reconciles("maps", &selection(CONFIG_MAP, &format!("play={name}")))
        .writes(&selection(CONFIG_MAP, ""), &["create", "update"])
        .calls("https://hanging.example.com")
        .script(json!({"calls": calls, "returns": returns}));
    let mut loaded = play.load().await;
    let grants = Grant::declared(&loaded.description);
    egress::grant(&mut loaded, grants).unwrap();
    loaded
}

/// Returns how many objects were made for a puppet's.
fn made(stage: &Stage, of: &str) -> usize {
    let made = stage.all(CONFIG_MAP).into_keys();
    made.filter(|name| name.starts_with(of) && name.ends_with("-made")).count()
}

#[tokio::test(start_paused = true)]
async fn keys_at_a_hung_system_still_write_and_leave_other_processors_going() {
    let call = json!({
        "method": "Get", "url": "https://hanging.example.com/", "headers": [], "body": null,
        "credential": null, "timeout": 3_600_000,
    });
    let processors = vec![makes("hung", &json!([call])).await, makes("free", &json!([])).await];
    let Scene { api, cluster, loaded } = Scene::new(processors);
    for (of, count) in [("hung", KEYS), ("free", NEIGHBOURS)] {
        for at in 0..count {
            let labels = json!({"metadata": {"labels": {"play": of}}});
            api.load(object(CONFIG_MAP, &format!("{of}-{at}"), &labels), true).unwrap();
        }
    }
    let (hanging, tap, drive) = (Arc::new(Hanging::default()), Tap::default(), Drive::Host);
    let client = Arc::clone(&hanging) as Arc<dyn Outbound>;
    let outbound = outbound::Options { client: Some(client), ..outbound::Options::default() };
    let options = Options { now: now(), drive, outbound, ..Options::default() };
    let host = Host::start(&tap.cluster(&api), loaded.clone(), &options).unwrap();
    let mut stage = Stage { api, cluster, loaded, drive, skips: false, tap, host };

    stage.until("the neighbours are served", |stage| made(stage, "free") == NEIGHBOURS).await;
    assert!(made(&stage, "hung") < KEYS / 2, "they do not wait for those that hang");
    let have_ended = |_: &Stage| hanging.ended.load(Ordering::Relaxed) == KEYS;
    let mut reports = stage.until("all calls end", have_ended).await;
    reports.extend(stage.until("all have written", |stage| made(stage, "hung") == KEYS).await);
    let mut calls = reports.iter().flat_map(|report| &report.record.calls);
    assert!(calls.all(|call| call.error == Some("no-answer")), "{:#?}", reports.last());
    assert_eq!(reports.iter().find_map(|report| report.failure.as_ref()), None);
    assert_eq!(hanging.most.load(Ordering::Relaxed), AT_ONCE);
    stage.host.stop().await.unwrap();
}
