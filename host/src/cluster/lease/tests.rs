use std::sync::Arc;

use mortise_embedded_api::{EmbeddedApi, Fault, Filter, Options, Verb};
use serde_json::{Value, json};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const TIMES: Times = Times {
    duration: Duration::from_secs(15),
    renew: Duration::from_secs(10),
    retry: Duration::from_secs(2),
};

/// A host that tries to get the Lease `default/mortise`.
struct Host {
    guard: Guard,
    stop: CancellationToken,
    run: tokio::task::JoinHandle<Result<(), Lost>>,
}

impl Host {
    #[expect(
        clippy::disallowed_methods,
        reason = "a test has no owner of tasks; it joins or aborts this one"
    )]
    fn start(api: &EmbeddedApi, identity: &str) -> Self {
        let settings = Settings {
            namespace: "default".into(),
            name: "mortise".into(),
            identity: identity.into(),
            times: TIMES,
            now: Arc::new(jiff::Timestamp::now),
        };
        let (lease, guard) = Lease::new(Client::new(api.router(), "default"), settings);
        let stop = CancellationToken::new();
        Self { guard, run: tokio::spawn(lease.run(stop.clone())), stop }
    }

    async fn stop(self) -> Result<(), Lost> {
        self.stop.cancel();
        self.run.await.unwrap()
    }
}

fn api() -> EmbeddedApi {
    EmbeddedApi::new(Options::default())
}

fn holder(api: &EmbeddedApi) -> Value {
    let lease = api.objects().into_iter().find(|object| object["kind"] == "Lease").unwrap();
    lease["spec"]["holderIdentity"].clone()
}

/// Returns how long a future takes, in the time of the test.
async fn time(what: impl Future<Output = ()>) -> Duration {
    let began = Instant::now();
    what.await;
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_second_host_leads_only_once_the_first_releases_the_lease() {
    let api = api();
    let first = Host::start(&api, "first");
    first.guard.held().await;
    let second = Host::start(&api, "second");
    // Longer than the Lease would last without renewals.
    tokio::time::sleep(TIMES.duration * 4).await;
    assert!(first.guard.is_held());
    assert!(!second.guard.is_held());
    assert_eq!(holder(&api), "first");
    let guard = first.guard.clone();
    first.stop().await.unwrap();
    assert!(!guard.is_held());
    let waited = time(second.guard.held()).await;
    assert!(waited < SECOND, "{waited:?}: the Lease was given back");
    assert_eq!(holder(&api), "second");
    second.stop().await.unwrap();
}

/// Returns the time from the end of a host, which had renewed its Lease, until another host holds
/// it.
async fn taken_over_after(api: &EmbeddedApi) -> Duration {
    let first = Host::start(api, "first");
    first.guard.held().await;
    let second = Host::start(api, "second");
    tokio::time::sleep(TIMES.duration).await;
    first.run.abort();
    let waited = time(second.guard.held()).await;
    assert!(waited >= TIMES.duration.saturating_sub(TIMES.retry), "{waited:?}");
    assert!(!first.guard.is_held(), "it has run out for its former holder before");
    second.stop().await.unwrap();
    waited
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_host_that_is_gone_is_taken_when_it_has_run_out_and_not_before() {
    let waited = taken_over_after(&api()).await;
    assert!(waited <= TIMES.duration, "{waited:?} after the end of its holder");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_cannot_watch_the_lease_looks_at_it_again_and_again() {
    let api = api();
    let fault = Fault::Refused { code: 403, message: "no watches".into() };
    let watches = Filter::resource("leases").verbs([Verb::Watch]);
    api.faults().inject(fault, watches, usize::MAX);
    let waited = taken_over_after(&api).await;
    assert!(waited <= TIMES.duration + TIMES.retry, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_cannot_renew_stops_writing_before_another_may_begin_and_ends() {
    let api = api();
    let host = Host::start(&api, "first");
    host.guard.held().await;
    let fault = Fault::Refused { code: 500, message: "away".into() };
    api.faults().inject(fault, Filter::resource("leases"), usize::MAX);
    let ended = time(async {
        let lost = host.run.await.unwrap().unwrap_err().to_string();
        assert!(
            lost.contains("`default/mortise` could not be renewed within 10s: away (500)"),
            "{lost}"
        );
    });
    let ended = ended.await;
    assert!(ended <= TIMES.renew, "{ended:?}");
    assert!(!host.guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_lease_another_has_taken_ends_with_the_name_of_the_other() {
    let api = api();
    let host = Host::start(&api, "first");
    host.guard.held().await;
    patch(&api, &json!({"spec": {"holderIdentity": "somebody", "renewTime": "2026-01-01T00:00:00.000000Z"}})).await;
    let lost = host.run.await.unwrap().unwrap_err().to_string();
    assert_eq!(lost, "the Lease `default/mortise` was taken by `somebody`");
    assert!(!host.guard.is_held());
    assert_eq!(holder(&api), "somebody", "it is left to the other");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_annotates_stays_with_its_holder() {
    let api = api();
    let host = Host::start(&api, "first");
    host.guard.held().await;
    for number in 0..5 {
        patch(&api, &json!({"metadata": {"annotations": {"number": number.to_string()}}})).await;
        tokio::time::sleep(TIMES.retry).await;
    }
    assert!(host.guard.is_held());
    host.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_host_that_never_led_leaves_the_lease_alone() {
    let api = api();
    let first = Host::start(&api, "first");
    first.guard.held().await;
    let second = Host::start(&api, "second");
    tokio::time::sleep(TIMES.retry).await;
    second.stop().await.unwrap();
    assert_eq!(holder(&api), "first");
    assert!(first.guard.is_held());
    first.stop().await.unwrap();
}

async fn patch(api: &EmbeddedApi, with: &Value) {
    let leases: Api<Object> = Api::namespaced(Client::new(api.router(), "default"), "default");
    let merge = kube::api::Patch::Merge(with);
    #[expect(clippy::disallowed_methods, reason = "a test stands for other people")]
    leases.patch("mortise", &kube::api::PatchParams::default(), &merge).await.unwrap();
}
