//! How a host works through what there is, and how it ends.

use std::time::{Duration, Instant};

use mortise_embedded_api::{Fault, Filter, Verb};
use serde_json::Value;

use super::{Api, Run, TIMEOUT, get, pace::until};

/// Longer than any test waits.
const FOR_EVER: Duration = Duration::from_mins(10);

fn writes_of_secrets() -> Filter {
    Filter::resource("secrets").verbs([Verb::Create, Verb::Patch])
}

fn copies(api: &Api) -> Vec<Value> {
    let mut copies: Vec<Value> = api.of_kind("Secret");
    copies.retain(|copy| copy["metadata"]["namespace"] != "platform");
    copies
}

/// Waits until a request has met a fault: what runs is on its way then.
async fn met(api: &Api) {
    let met = async {
        while api.embedded.faults().hits() == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, met).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn once_reconciles_all_that_there_is_and_ends() {
    let api = Api::with_secret_copy().await;
    let elsewhere = Run::start(&api, &["--once", "--namespace", "shop"]);
    assert_eq!(elsewhere.event("reconciled all objects")["processors"], 0);
    assert_eq!(elsewhere.wait().0.code(), Some(0));
    let run = Run::start(&api, &["--once"]);
    let done = run.event("reconciled all objects");
    assert_eq!((&done["processors"], &done["failing"]), (&1.into(), &0.into()));
    let (status, said) = run.wait();
    assert_eq!(status.code(), Some(0), "{said}");
    assert_eq!(copies(&api).len(), 2);
    assert_eq!(api.of_kind("SecretCopy")[0]["status"]["conditions"][0]["status"], "True");

    api.embedded.reset_requests();
    let (status, said) = Run::start(&api, &["--once"]).wait();
    assert_eq!(status.code(), Some(0), "{said}");
    let written = api.embedded.requests().into_iter().filter(|(of, _)| of.resource == "secrets");
    let written: Vec<_> = written
        .filter(|(of, _)| ![Verb::Get, Verb::List, Verb::Watch].contains(&of.verb))
        .collect();
    assert_eq!(written, [], "all is as it should be");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn once_ends_with_3_where_a_reconcile_fails_or_a_processor_is_not_at_work() {
    let api = Api::with_secret_copy().await;
    let no = Fault::Refused { code: 403, message: "not here".into() };
    api.embedded.faults().inject(no, writes_of_secrets().namespace("shop"), usize::MAX);
    let run = Run::start(&api, &["--once"]);
    let failed = run.event("a reconcile failed");
    assert!(failed["failure"].as_str().unwrap().contains("not here"), "{failed}");
    assert_eq!(failed["in"], "reconcile");
    let span = &failed["span"];
    assert_eq!(span["processor"], "platform/secret-copy", "{failed}");
    assert_eq!((&span["namespace"], &span["name"]), (&"platform".into(), &"registry".into()));
    assert_eq!(span["kind"], "SecretCopy copy.mortise.dev/v1");
    assert!(span["digest"].as_str().unwrap().starts_with("sha256:"));
    assert_eq!(run.event("reconciled all objects")["failing"], 1);
    assert_eq!(run.wait().0.code(), Some(3));

    api.embedded.faults().clear();
    std::fs::remove_file(api.modules().join("secret-copy.wasm")).unwrap();
    let run = Run::start(&api, &["--once"]);
    assert_eq!(run.event("reconciled all objects")["faulty"], 1);
    assert_eq!(run.wait().0.code(), Some(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_host_completes_running_reconciles_before_it_ends() {
    let api = Api::with_secret_copy().await;
    let slow = Fault::Latency(Duration::from_secs(2));
    api.embedded.faults().inject(slow, writes_of_secrets(), usize::MAX);
    let run = Run::start(&api, &["--leader-elect", "--lease-namespace", "platform"]);
    met(&api).await;
    let (status, said) = run.terminate();
    assert_eq!(status.code(), Some(0), "{said}");
    assert_eq!(copies(&api).len(), 2);
    assert_eq!(api.of_kind("SecretCopy")[0]["status"]["conditions"][0]["status"], "True");
    let released = said.find("released the Lease").expect("the Lease is released");
    assert!(released > said.find("no new runs start").unwrap(), "{said}");
    assert_eq!(api.of_kind("Lease")[0]["spec"]["holderIdentity"], Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_and_a_drain_that_takes_too_long_end_a_host_at_once() {
    let api = Api::with_secret_copy().await;
    api.embedded.faults().inject(Fault::Latency(FOR_EVER), writes_of_secrets(), usize::MAX);
    let run = Run::start(&api, &["--drain-seconds", "600"]);
    met(&api).await;
    run.signal("-TERM");
    run.event("shutting down: no new runs start, running ones finish");
    run.signal("-INT");
    assert_eq!(run.event("ended at once")["running"], 1);
    assert_eq!(run.wait().0.code(), Some(4));

    let hits = api.embedded.faults().hits();
    let run = Run::start(&api, &["--drain-seconds", "1"]);
    while api.embedded.faults().hits() == hits {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let told = Instant::now();
    run.signal("-TERM");
    run.event("runs did not finish within --drain-seconds");
    assert_eq!(run.wait().0.code(), Some(4));
    assert!(told.elapsed() >= Duration::from_secs(1));
}

/// The call may take longer than the host waits for what runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_still_computes_is_cancelled_before_a_host_ends() {
    let api = Api::with_hanging_call().await;
    let run = Run::start(&api, &[]);
    let admin = run.event("listening")["admin"].as_str().unwrap().to_owned();
    until(&admin, 1, 0).await;
    run.signal("-TERM");
    assert_eq!(run.event("calls that still run are cancelled")["running"], 1);
    let (status, said) = run.wait();
    assert_eq!(status.code(), Some(0), "{said}");
    assert_eq!(api.of_kind("Event").len(), 0, "nothing is said of it on the object");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_admin_port_serves_reports_and_records_without_secret_values() {
    let api = Api::with_secret_copy().await;
    let run = Run::start(&api, &[]);
    let ports = run.event("listening");
    let (public, admin) = (ports["listen"].as_str().unwrap(), ports["admin"].as_str().unwrap());
    let ask = async |path: &str| {
        let (code, body) = get(admin, path).await;
        assert_eq!(code, 200, "{path}: {body}");
        for value in ["robot", "cm9ib3Q", "ZXhhbXBsZQ"] {
            assert!(!body.contains(value), "{path}: {body}");
        }
        serde_json::from_str::<Value>(&body).unwrap()
    };
    let reported = async {
        while ask("/reports").await.as_array().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, reported).await.unwrap();
    assert_eq!(get(public, "/readyz").await, (200, "ok\n".into()));

    let processors = ask("/processors").await;
    assert_eq!(processors[0]["name"], "platform/secret-copy", "{processors}");
    assert_eq!(processors[0]["failing"], 0);
    assert_eq!(ask("/host").await["leads"], true);
    let report = &ask("/reports?processor=platform/secret-copy").await[0];
    let key = report["key"].as_str().unwrap();
    assert_eq!((&report["namespace"], &report["name"]), (&"platform".into(), &"registry".into()));
    let record = ask(&format!("/records?key={}", key.replace('/', "%2F"))).await;
    assert_eq!(record["key"]["name"], "registry");
    assert!(!record["reads"].as_array().unwrap().is_empty());
    assert_eq!(ask("/reports?failed=true").await, serde_json::json!([]));
    assert_eq!(ask("/keys?state=running").await["more"], 0);
    let watches = ask("/watches").await;
    let secrets = watches.as_array().unwrap().iter().find(|of| of["kind"]["kind"] == "Secret");
    assert_eq!(secrets.map(|of| &of["listed"]), Some(&true.into()), "{watches}");

    assert_eq!(get(admin, "/records?key=nobody/at:home").await.0, 404);
    let (code, body) = get(admin, "/keys?state=lost").await;
    assert_eq!(code, 400);
    assert!(body.contains("`ready`, `running`, `delayed`, `failing`"), "{body}");
    assert_eq!(run.terminate().0.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_events_of_a_watch_name_the_watched_resource() {
    let api = Api::with_secret_copy().await;
    let watches = Filter::resource("secrets").verbs([Verb::List, Verb::Watch]);
    api.embedded.faults().inject(Fault::InternalError, watches, 1);
    let run = Run::start(&api, &["--log", "debug"]);
    let failed = run.event("watch failed, trying again");
    assert_eq!((&failed["in"], &failed["span"]["resource"]), (&"watch".into(), &"secrets".into()));
    assert_eq!(run.terminate().0.code(), Some(0));
}
