//! Calls of a guest to a system outside of the cluster, which the test itself is.

use std::{net::SocketAddr, path::Path, process::Output, sync::Arc};

use axum::{Router, extract::State, http::Request};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{
    dev::Dev,
    greeter::{Greeter, with_target},
    mortise,
};

/// A guest that gets a greeting from an API, keeps it in a ConfigMap, and then, if its configuration
/// asks for it, posts one.
const CALLER: &str = r#"use std::collections::BTreeMap;

use mortise_sdk::{
    Description, Failure, Host, Methods, OutboundRule, Outcome, Processor, Reconciler, Request,
    Selection, Verbs,
    kubernetes::{ConfigMap, Namespace},
    object::Metadata,
};

const FINALIZER: &str = "example.com/greeted";

struct Caller;

impl Processor for Caller {
    type Config = BTreeMap<String, String>;

    fn describe(_config: &Self::Config) -> Result<Description, String> {
        let namespaces = Selection::of::<Namespace>().labels("greet=yes");
        Ok(Description::new("NAME", "0.1.0")
            .reconciles(Reconciler::new("namespaces", namespaces).finalizer(FINALIZER))
            .writes(Selection::of::<ConfigMap>(), Verbs::CREATE | Verbs::UPDATE)
            .outbound([OutboundRule::new("http://api.example.com").methods(Methods::GET | Methods::POST)]))
    }

    fn reconcile(request: &Request, config: &Self::Config, host: &Host) -> Result<Outcome, Failure> {
        let Some(namespace) = request.object::<Namespace>()? else { return Ok(Outcome::new()) };
        let answer = host.outbound().get("http://api.example.com/greeting?name=hidden").send();
        let mut text = match answer {
            Ok(answer) => String::from_utf8_lossy(&answer.body).into_owned(),
            Err(error) => error.to_string(),
        };
        if config.contains_key("posts") {
            let posted = host.outbound().post("http://api.example.com/greetings?name=hidden").send();
            text = posted.map_or_else(|error| error.to_string(), |answer| answer.status.to_string());
        }
        let greeting = ConfigMap {
            metadata: Metadata::new("NAME").namespace(&namespace.metadata.name),
            data: [("text".to_owned(), text)].into(),
            ..ConfigMap::default()
        };
        Ok(Outcome::new().apply(&greeting).finalizers([FINALIZER]))
    }
}

mortise_sdk::export!(Caller);
"#;

/// A server that greets, and the requests that it got.
struct Api {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Api {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let greet = async |State(asked): State<Arc<Mutex<Vec<String>>>>,
                           request: Request<axum::body::Body>| {
            asked.lock().push(format!("{} {}", request.method(), request.uri()));
            "Welcome"
        };
        let router = Router::new().fallback(greet).with_state(Arc::clone(&asked));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, asked }
    }

    /// The option that lets a guest call it.
    fn egress(&self) -> String {
        format!("http://api.example.com={}", self.address)
    }
}

fn caller(name: &str) -> Greeter {
    let guest = Greeter::new(name, "");
    guest.save(&CALLER.replace("NAME", name));
    guest
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_calls_what_an_option_names_and_shows_the_call_without_its_query() {
    let (api, guest) = (Api::start().await, caller("option-caller"));
    let dev = Dev::greet(&[path(guest.folder()), "--egress", &api.egress()]);
    let line = dev.line("called: ");
    assert!(line.contains("GET http://api.example.com/greeting 200"), "{line}");
    assert!(api.asked.lock().iter().all(|asked| asked == "GET /greeting?name=hidden"));
    assert!(dev.interrupt().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_calls_what_a_companion_grants() {
    let api = Api::start().await;
    let grant = json!({"egress": [{
        "origin": "http://api.example.com", "connect": api.address.to_string(), "private": true,
    }]});
    let script = format!("echo '{grant}'\nexec sleep 1000\n");
    let guest = caller("companion-caller").with_companion(&script);
    let dev = Dev::greet(&[path(guest.folder())]);
    let line = dev.line("called: ");
    assert!(line.contains("GET http://api.example.com/greeting 200"), "{line}");
    assert!(dev.interrupt().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_calls_nothing_that_is_not_granted() {
    let (api, guest) = (Api::start().await, caller("lonely-caller"));
    let other = format!("http://other.example.com={}", api.address);
    for arguments in [&[][..], &["--egress", &other]] {
        let dev = Dev::greet(&[&[path(guest.folder())], arguments].concat());
        let line = dev.line("called: ");
        assert!(line.contains("GET http://api.example.com/greeting denied"), "{line}");
        assert!(dev.interrupt().success());
    }
    assert!(api.asked.lock().is_empty());
}

/// Simulates a guest on a namespace that holds its finalizer, as after a first run.
fn simulate(guest: &Greeter, arguments: &[&str]) -> Output {
    let objects = guest.folder().join("held.yaml");
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: shop\n  labels: {greet: \"yes\"}\n  finalizers: [example.com/greeted]\n";
    std::fs::write(&objects, namespace).unwrap();
    let mut command = mortise();
    let command = with_target(&mut command).args(["simulate", "--module", path(guest.folder())]);
    command.arg("--objects").arg(objects).args(arguments).output().unwrap()
}

fn document(output: &Output) -> Value {
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{message}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {message}"))
}

/// The text in the ConfigMap of a simulation.
fn said(document: &Value) -> &str {
    let objects = document["objects"].as_array().unwrap();
    let made = objects.iter().find(|object| object["kind"] == "ConfigMap").unwrap();
    made["data"]["text"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn simulate_sends_what_only_reads_and_ends_at_another_call() {
    let (api, guest) = (Api::start().await, caller("simulated-caller"));
    let config = guest.folder().join("config.yaml");
    std::fs::write(&config, "posts: please\n").unwrap();
    let egress = api.egress();
    let safe = ["-o", "json", "--call-safe", "--egress", &egress];

    let refused = document(&simulate(&guest, &["-o", "json"]));
    assert!(said(&refused).contains("--call-safe sends GET and HEAD"), "{refused:#}");
    assert_eq!(refused["calls"][0]["error"], "denied");
    assert!(api.asked.lock().is_empty());

    let sent = document(&simulate(&guest, &safe));
    assert_eq!(said(&sent), "Welcome");
    assert_eq!(sent["calls"][0]["url"], "http://api.example.com/greeting");
    assert_eq!(sent["calls"][0]["status"], 200);
    assert_eq!(sent.get("wouldCall"), None);

    let posts = [&safe[..], &["--config", path(&config)]].concat();
    let ended = document(&simulate(&guest, &posts));
    let expected = json!({
        "method": "POST", "url": "http://api.example.com/greetings",
        "object": {"apiVersion": "v1", "kind": "Namespace", "name": "shop"},
    });
    assert_eq!(ended["wouldCall"], expected);
    assert_eq!(ended["changes"], json!([]), "nothing of the run is written");
    assert!(api.asked.lock().iter().all(|asked| asked == "GET /greeting?name=hidden"));
    let people = simulate(&guest, &posts[2..]);
    let text = String::from_utf8(people.stdout).unwrap();
    assert!(
        text.contains("would POST http://api.example.com/greetings for Namespace v1 shop"),
        "{text}"
    );
    let note = String::from_utf8(people.stderr).unwrap();
    assert!(note.contains("--answers FILE answers it"), "{note}");
}

#[test]
fn simulate_answers_from_a_file() {
    let guest = caller("answered-caller");
    let (config, answers) = (guest.folder().join("config.yaml"), guest.folder().join("calls.yaml"));
    std::fs::write(&config, "posts: please\n").unwrap();
    let get = "method: GET, url: 'http://api.example.com/greeting?name=hidden'";
    let post = "method: POST, url: 'http://api.example.com/greetings?name=hidden'";
    let text = format!(
        "any-order: true\ncalls:\n- {{{get}, answer: {{status: 200, body: Welcome}}}}\n- {{{get}, answer: {{status: 200, body: Welcome}}}}\n\
         - {{{post}, answer: {{status: 201}}}}\n"
    );
    std::fs::write(&answers, text).unwrap();
    let arguments = ["-o", "json", "--config", path(&config), "--answers", path(&answers)];
    let answered = document(&simulate(&guest, &arguments));
    assert_eq!(said(&answered), "201", "{answered:#}");
    assert_eq!(answered["calls"].as_array().unwrap().last().unwrap()["status"], 201);
}
