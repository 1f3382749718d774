//! A host with a processor beside the fake of Konnect, and everything that can be seen of its runs.

use std::{collections::BTreeSet, io, sync::Arc, time::Duration};

use konnect_fake::{Konnect, Server, server, tenant::Tokens};
use kube::Client;
use mortise::{
    commands::dev::message::Ran,
    egress::{self, Grant},
    local,
    print::{self, Secrets},
};
use mortise_core::{
    fixture,
    reconcile::{Mode, Report},
};
use mortise_embedded_api::EmbeddedApi;
use mortise_host::{
    cluster::Cluster,
    host::{Drive, Host, Loaded, Options},
    operator::admin::{Admin, Objects, Reports},
};
use mortise_tests::definitions;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tracing::{Dispatch, subscriber::DefaultGuard};

pub(super) const NAMESPACE: &str = "shop";
/// More rounds than any of these tests needs.
const MAX_ROUNDS: usize = 200;
/// The seconds that pass while a cluster settles: more than until a run that was asked for.
const SECONDS: usize = 5;
/// A place in which a text may be seen.
const DEV: &str = "the view of `mortise dev`";
/// The pages of the admin port.
pub(super) const PAGES: [&str; 6] =
    ["/host", "/processors", "/watches", "/started", "/keys", "/reports"];

/// A cluster in memory, the fake over TLS, and a host between them.
pub(super) struct Watched {
    pub(super) api: EmbeddedApi,
    pub(super) fake: Server,
    cluster: Cluster,
    host: Option<Arc<Host>>,
    reports: Reports,
    /// What `mortise dev` masks.
    secrets: Secrets,
    /// The keys that have run.
    keys: BTreeSet<String>,
    /// The reports in words, by place.
    said: Vec<(&'static str, String)>,
    log: Log,
    _listening: (DefaultGuard, Dispatch),
}

/// The lines of all levels of this thread's log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn listen(to: &Log) -> (DefaultGuard, Dispatch) {
    let to = to.clone();
    let lines = tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::TRACE);
    fixture::listen(lines.with_writer(move || to.clone()).finish())
}

// === impl Watched ===

impl Watched {
    /// Starts the fake, which knows these tokens, and a cluster with the kinds of Konnect.
    pub(super) async fn new(tokens: &[&str]) -> Self {
        let log = Log::default();
        let listening = listen(&log);
        let known = tokens.iter().map(|token| ((*token).to_owned(), format!("of {}", token.len())));
        let config =
            konnect_fake::Config { tokens: Tokens::Known(known.collect()), ..Default::default() };
        let fake = Server::start(Konnect::new(config), server::Options::default()).await.unwrap();
        let namespaces = vec!["default".into(), NAMESPACE.into()];
        let api =
            EmbeddedApi::new(mortise_embedded_api::Options { namespaces, ..Default::default() });
        let cluster = crate::host::cluster(&api);
        local::apply(&cluster, definitions("guests/konnect").unwrap()).await.unwrap();
        Self {
            api,
            fake,
            cluster,
            host: None,
            reports: Reports::default(),
            secrets: Secrets::new(false, []),
            keys: BTreeSet::new(),
            said: Vec::new(),
            log,
            _listening: listening,
        }
    }

    /// Starts a host with a processor that may call the fake, in place of the last one.
    pub(super) fn start(&mut self, mut loaded: Loaded, mode: Mode) {
        let grant = |origin: &str| Grant {
            origin: origin.to_owned(),
            private: true,
            connect: Some(self.fake.address().to_string()),
            ca_bundle: Some(self.fake.authority().to_owned()),
            all_credentials: true,
            ..Grant::default()
        };
        let grants = loaded.description.outbound.iter().map(|rule| grant(&rule.origin));
        let grants: Vec<Grant> = grants.collect();
        egress::grant(&mut loaded, grants).unwrap();
        self.start_as_it_is(loaded, mode);
    }

    /// Starts a host with a processor that may call what is granted to it already.
    pub(super) fn start_as_it_is(&mut self, mut loaded: Loaded, mode: Mode) {
        loaded.settings.mode = mode;
        self.secrets = Secrets::new(false, loaded.description.credentials().cloned());
        local::serve_untyped(&self.api, &loaded.description, |_| false);
        self.host = None;
        let options = Options { drive: Drive::Caller, ..Options::default() };
        let cluster = crate::host::cluster(&self.api);
        let host = Host::start(&cluster, vec![loaded], &options).unwrap();
        host.drive().stand_still();
        self.host = Some(Arc::new(host));
    }

    pub(super) fn host(&self) -> &Arc<Host> {
        self.host.as_ref().unwrap()
    }

    pub(super) async fn apply(&self, objects: Vec<Value>) {
        local::apply(&self.cluster, objects).await.unwrap();
    }

    pub(super) fn client(&self) -> &Client {
        self.cluster.client()
    }

    /// Runs keys for some seconds, until none is ready, and returns their reports.
    pub(super) async fn settle(&mut self) -> Vec<Report> {
        let (mut reports, mut seconds) = (Vec::new(), 0);
        for _ in 0..MAX_ROUNDS {
            let host = Arc::clone(self.host());
            host.drive().caught_up(|| self.api.objects()).await.unwrap();
            let ready = host.drive().take_ready();
            if ready.is_empty() && seconds == SECONDS {
                return reports;
            }
            if ready.is_empty() {
                host.drive().advance(Duration::from_secs(1));
                seconds += 1;
            }
            for run in ready {
                let report = host.drive().run(run).await;
                self.reports.keep(&report, (host.options().now)());
                self.keep(&report);
                reports.push(report);
            }
        }
        panic!("the host does not come to rest: {:#?}", reports.last());
    }

    /// Keeps what a report says, and what `mortise dev` shows of it.
    fn keep(&mut self, report: &Report) {
        self.keys.insert(report.key.to_string());
        let record = serde_json::to_string(&*report.record).unwrap();
        self.said.push(("a report", format!("{report:?}\n{record}")));
        let ran = Ran::new(report.clone(), |_| Some(&self.api), self.secrets.clone());
        let written = ran.difference();
        self.said.push((DEV, print::report(report) + "\n" + &written));
    }

    pub(super) async fn metrics(&self) -> String {
        page_of(Admin::of(self.host()).router(), "/metrics").await
    }

    pub(super) fn log(&self) -> String {
        String::from_utf8_lossy(&self.log.0.lock()).into_owned()
    }

    /// Returns an object as it is stored.
    pub(super) fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let is_it = |of: &Value| of["kind"] == kind && of["metadata"]["name"] == name;
        self.api.objects().into_iter().find(is_it)
    }

    /// Fails if one of the texts can be seen where the host or its guest says something: in the log,
    /// reports, records, pages, metrics, events and statuses, and in the view of `mortise dev`. That
    /// shows objects, so texts of `bodies` may be there, which no Secret holds.
    pub(super) async fn says_nothing_of(&self, tokens: &[&str], bodies: &[&str]) {
        let mut places = vec![("the log".to_owned(), self.log())];
        let said = self.said.iter().map(|(place, said)| ((*place).to_owned(), said.clone()));
        places.extend(said);
        let objects = Objects {
            host: Arc::clone(self.host()),
            reports: self.reports.clone(),
            lease: self.host().options().lease.clone(),
            about: Map::new(),
        };
        for page in PAGES.map(str::to_owned).into_iter().chain(records(&self.keys)) {
            let text = page_of(objects.clone().router(), &page).await;
            places.push((page, text));
        }
        assert_has_record(&places);
        places.push(("/metrics".to_owned(), self.metrics().await));
        for object in self.api.objects() {
            let mut said = json!({"status": object["status"], "kind": object["kind"]});
            if object["kind"] == "Event" {
                said = object;
            }
            places.push(("the cluster".to_owned(), said.to_string()));
        }
        for (place, text) in places {
            let bodies: &[&str] = if place == DEV { &[] } else { bodies };
            holds_none_of(&place, &text, tokens.iter().chain(bodies));
        }
    }
}

/// Returns the pages with the records of keys.
pub(super) fn records(keys: &BTreeSet<String>) -> impl Iterator<Item = String> {
    keys.iter().map(|key| format!("/records?key={}", key.replace('/', "%2F")))
}

/// Fails if no record is at these places. That of a key whose object is gone is not kept.
pub(super) fn assert_has_record(places: &[(String, String)]) {
    let is_record = |(place, text): &(String, String)| {
        place.starts_with("/records") && text.contains("\"reads\"")
    };
    assert!(places.iter().any(is_record), "{places:#?}");
}

/// Fails if a text at a place holds one of these.
pub(super) fn holds_none_of<'a>(
    place: &str,
    text: &str,
    markers: impl IntoIterator<Item = &'a &'a str>,
) {
    for marker in markers {
        let Some(at) = text.find(marker) else { continue };
        let start = text.floor_char_boundary(at.saturating_sub(600));
        let end = text.ceil_char_boundary(text.len().min(at + 200));
        panic!("{place} holds `{marker}`: …{}…", &text[start..end]);
    }
}

async fn page_of(router: axum::Router, page: &str) -> String {
    let request = http::Request::get(page).body(Vec::new()).unwrap();
    // A page that asks for more says so, and is a text too.
    Client::new(router, "default")
        .request_text(request)
        .await
        .unwrap_or_else(|error| error.to_string())
}
