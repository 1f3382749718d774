//! A system outside of the cluster that hangs.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{FutureExt as _, future::BoxFuture};
use mortise::egress::{self, Grant};
use mortise_core::outbound::{Allowed, Answer, CallError, Outbound};
use mortise_host::outbound;
use tokio::{
    io::{copy, sink},
    net::TcpListener,
    task::JoinSet,
};

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

// === over sockets ===

const SERVICE: &str = "v1/Service";
const SILENT: &str = "https://silent.example.com";
const WELL: &str = "http://well.example.com";
/// The calls of one processor at once: more than the host has places for.
const WIDE: usize = 100;
/// The places of one origin.
const PLACES: usize = 16;
/// The time of a call, in milliseconds: short where nothing answers, else one that only a fault
/// reaches.
const TIMES: [(&str, u64); 2] = [(SILENT, 100), (WELL, 60_000)];

/// The connections of a server that reads and never answers.
#[derive(Default)]
struct Silent {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// Takes the connections of a listener.
async fn listen(listener: TcpListener, silent: Arc<Silent>) {
    let mut open = JoinSet::new();
    while let Ok((mut stream, _)) = listener.accept().await {
        let now = silent.now.fetch_add(1, Ordering::Relaxed) + 1;
        silent.most.fetch_max(now, Ordering::Relaxed);
        let silent = Arc::clone(&silent);
        open.spawn(async move {
            // Until the host closes it.
            let _ = copy(&mut stream, &mut sink()).await;
            silent.now.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// Loads a puppet of a namespace that calls origins, each at an address, and then writes the status
/// of its Services.
async fn calls(namespace: &str, name: &str, origins: &[(&str, &str)]) -> Loaded {
    let service = object(
        SERVICE,
        "$(name)",
        &json!({"status": {"loadBalancer": {"ingress": [{"hostname": "called.example"}]}}}),
    );
    let call = |(origin, _): &(&str, &str)| {
        let (_, time) = TIMES.iter().find(|(of, _)| of == origin).unwrap();
        json!({
            "method": "Get", "url": format!("{origin}/"), "headers": [], "body": null,
            "credential": null, "timeout": time,
        })
    };
    let script = json!({
        "calls": origins.iter().map(call).collect::<Vec<_>>(),
        "returns": outcome(&json!({"status": service.to_string()})),
    });
    let play = Play::new(name)
        .reconciles("services", &selection(SERVICE, &format!("play={name}")))
        .script(script);
    let play = origins.iter().fold(play, |play, (origin, _)| play.calls(origin));
    let mut loaded = play.load().await;
    let grant = |(origin, at): &(&str, &str)| Grant {
        origin: (*origin).to_owned(),
        private: true,
        connect: Some((*at).to_owned()),
        ..Grant::default()
    };
    egress::grant(&mut loaded, origins.iter().map(grant).collect::<Vec<_>>()).unwrap();
    (loaded.settings.namespace, loaded.settings.name) = (namespace.into(), Some(name.into()));
    loaded.settings.concurrency = Some(WIDE);
    loaded
}

/// Returns how many Services have their status.
fn called(stage: &Stage, of: &str) -> usize {
    let all = stage.all(SERVICE).into_iter();
    let all = all.filter(|(name, _)| name.starts_with(of));
    all.filter(|(_, service)| service.pointer("/status/loadBalancer/ingress").is_some()).count()
}

/// Waits until so many objects of a processor have run.
async fn until_ran(host: &Host, processor: &str, count: usize, reports: &mut Vec<Report>) {
    let mut names = BTreeSet::new();
    for at in 0.. {
        if at == reports.len() {
            let next = timeout(TIMEOUT, host.next_report()).await;
            reports.push(next.unwrap_or_else(|_| panic!("{} have run", names.len())).unwrap());
        }
        let key = &reports[at].key;
        if &**key.processor() == processor {
            names.insert(key.name().to_owned());
        }
        if names.len() == count {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_system_has_few_connections_and_a_neighbour_of_another_namespace_goes_on() {
    let (mut tasks, silent) = (JoinSet::new(), Arc::new(Silent::default()));
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0"));
    let [never, well] = listeners.map(|listener| listener.now_or_never().unwrap().unwrap());
    let addresses = [&never, &well].map(|of| of.local_addr().unwrap().to_string());
    let [to_never, to_well] = addresses.each_ref().map(String::as_str);
    tasks.spawn(listen(never, Arc::clone(&silent)));
    let router = axum::Router::new().fallback(async || "well");
    tasks.spawn(async move { axum::serve(well, router).await.unwrap() });
    let processors = vec![
        calls("a", "hung", &[(SILENT, to_never)]).await,
        calls("b", "free", &[(SILENT, to_never), (WELL, to_well)]).await,
    ];
    let Scene { api, cluster, loaded } = Scene::new(processors);
    for (of, count) in [("hung", KEYS), ("free", NEIGHBOURS)] {
        for at in 0..count {
            let fields = json!({
                "metadata": {"labels": {"play": of}}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
            });
            api.load(object(SERVICE, &format!("{of}-{at}"), &fields), true).unwrap();
        }
    }
    let (tap, drive) = (Tap::default(), Drive::Host);
    let options = Options { now: now(), drive, ..Options::default() };
    let host = Host::start(&tap.cluster(&api), loaded.clone(), &options).unwrap();
    let stage = Stage { api, cluster, loaded, drive, skips: false, tap, host };

    let mut reports = Vec::new();
    until_ran(&stage.host, "b/free", NEIGHBOURS, &mut reports).await;
    assert!(called(&stage, "hung") < KEYS, "they do not wait for those that hang");
    until_ran(&stage.host, "a/hung", KEYS, &mut reports).await;
    assert_eq!((called(&stage, "free"), called(&stage, "hung")), (NEIGHBOURS, KEYS));
    let is_silent = |error: Option<&str>| matches!(error, Some("no-answer" | "not-sent"));
    for report in &reports {
        let calls = &report.record.calls;
        assert!(is_silent(calls[0].error), "{calls:?}");
        assert!(calls[1..].iter().all(|call| call.status == Some(200)), "{calls:?}");
        assert_eq!(report.failure, None);
    }
    // The server may see an end after the beginning of the next connection.
    let most = silent.most.load(Ordering::Relaxed);
    assert!((PLACES / 2..2 * PLACES).contains(&most), "{most} connections at once");
    stage.host.stop().await.unwrap();
}
