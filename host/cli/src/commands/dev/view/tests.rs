use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use mortise_core::{
    contract::{Kind, Level, ObjectRef, bounds::text::escaped},
    fixture::HOSTILE_TEXTS,
    outbound::{Made, Method},
    queue::{Cause, Key, Run},
    reads::record::Record,
    reconcile::Report,
    write::{Action, Change},
};
use mortise_host::wasm::{Line as GuestLine, Source};
use ratatui::{Terminal, backend::TestBackend};
use serde_json::json;

use super::{
    model::{Build, Tab},
    *,
};
use crate::{
    commands::dev::{
        build::Line,
        companion::Said,
        message::{Message, Ran, Running},
    },
    print::Secrets,
};

fn start() -> Timestamp {
    "2024-01-01T00:00:00Z".parse().unwrap()
}

fn model(guests: &[&str]) -> Model {
    Model::new(Scene {
        metrics: None,
        address: "http://127.0.0.1:6443".to_owned(),
        kubeconfig: "/tmp/mortise-a/kubeconfig".to_owned(),
        guests: guests.iter().map(|guest| (*guest).to_owned()).collect(),
    })
}

fn running(former: Option<&str>) -> Message {
    Message::Running(Running {
        guest: 0,
        name: "greeter".to_owned(),
        version: "0.1.0".to_owned(),
        digest: "1a2b3c4d".to_owned(),
        former: former.map(str::to_owned),
        built: Duration::from_millis(2500),
        taken_up: Duration::from_millis(80),
    })
}

fn ran(name: &str) -> Ran {
    let key = Key::new(&"greeter".into(), &"all".into(), Some("shop"), name);
    let run = Run { key, causes: vec![Cause::Start], more_causes: 0, attempt: 0 };
    let mut report = Report::new(&run);
    report.kind = Kind::home("", "v1", "Namespace").into();
    report.took = Duration::from_micros(1500);
    Ran { at: start(), ..Ran::new(report, |_| None, Secrets::Shown) }
}

/// A reconcile that created a ConfigMap.
fn wrote(name: &str) -> Ran {
    let mut ran = ran(name);
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"},
        "data": {"text": "Welcome"}});
    ran.report.changes.push(Change {
        action: Action::Create,
        of: ObjectRef {
            kind: Kind::home("", "v1", "ConfigMap").into(),
            namespace: Some("shop".to_owned()),
            name: name.to_owned(),
        },
        object: Arc::new(object),
    });
    let api = mortise_embedded_api::EmbeddedApi::new(mortise_embedded_api::Options::default());
    Ran { at: start(), ..Ran::new(ran.report, |_| Some(&api), Secrets::Shown) }
}

fn show(model: &mut Model, messages: impl IntoIterator<Item = Message>) {
    messages.into_iter().for_each(|message| model.take(message, start()));
}

fn typed(model: &mut Model, keys: &str) {
    for letter in keys.chars() {
        press(model, KeyCode::Char(letter));
    }
}

fn press(model: &mut Model, code: KeyCode) -> Option<Wish> {
    keys::press(model, KeyEvent::new(code, KeyModifiers::NONE))
}

fn screen(model: &mut Model, width: u16, height: u16) -> String {
    model.set_time(start() + Duration::from_secs(3));
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| render::draw(frame, model)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| line(y).trim_end().to_owned() + "\n").collect()
}

#[test]
fn processors_and_reconciles_are_seen_at_once() {
    let mut model = model(&["greeter"]);
    show(
        &mut model,
        [running(None), Message::Ran(Box::new(ran("a"))), Message::Ran(Box::new(wrote("b")))],
    );
    assert_eq!(
        screen(&mut model, 90, 8),
        "mortise dev  export KUBECONFIG=/tmp/mortise-a/kubeconfig  http://127.0.0.1:6443\n\
         PROCESSOR          VERSION   DIGEST    HEALTH                       RUNS/S QUEUED BACK-OFF\n\
         greeter            0.1.0     1a2b3c4d  starting                     0.2\n \
         1 Reconciles 2  2 Logs 0  3 Build\n\
         3s   Namespace shop/b         1.5ms    1 write   new\n\
         3s   Namespace shop/a         1.5ms    no write  new\n\
         \n\
         ? help  ↵ detail  / filter  q quit\n"
    );
}

#[test]
fn forty_columns_are_enough() {
    let mut model = model(&["greeter"]);
    show(&mut model, [running(None), Message::Ran(Box::new(wrote("b")))]);
    assert_eq!(
        screen(&mut model, 40, 8),
        "/tmp/mortise-a/kubeconfig\n\
         PROCESSOR    HEALTH              Q   B\n\
         greeter      starting\n \
         1 Reconciles 1  2 Logs 0  3 Build\n\
         3s   Namespace shop/b          1 write\n\
         \n\
         \n\
         ? help  ↵ detail  / filter  q quit\n"
    );
    press(&mut model, KeyCode::Char('?'));
    let help = screen(&mut model, 40, 16);
    assert!(help.contains("q, Ctrl-C   quit"), "{help}");
    // Not even the smallest screen may panic.
    for (width, height) in [(1, 1), (5, 3), (10, 6)] {
        screen(&mut model, width, height);
    }
}

#[test]
fn a_build_error_is_shown_until_it_is_mended() {
    let mut model = model(&["greeter"]);
    let error = "error[E0425]: cannot find value `x`\n --> src/lib.rs:3:5";
    show(
        &mut model,
        [running(None), Message::Building(0), Message::Line(0, Line::Message(error.into()))],
    );
    assert!(screen(&mut model, 90, 12).contains("building"));
    show(&mut model, [Message::Failed(0, "`greeter` does not build".into())]);
    let text = screen(&mut model, 90, 12);
    for part in [
        "\n`greeter` does not build\n",
        "former runs, see Build",
        "\nthe former version keeps running\n",
        "error[E0425]",
        "src/lib.rs:3:5",
        "1a2b3c4d",
    ] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
    show(&mut model, [Message::Building(0), running(Some("0a0a0a0a"))]);
    assert!(model.tab == Tab::Reconciles && model.guests[0].build == Build::Built);
    typed(&mut model, "3");
    let text = screen(&mut model, 90, 12);
    assert!(text.contains("built in 2.5s, swapped in 80.0ms") && !text.contains("E0425"), "{text}");
}

#[test]
fn a_tab_that_the_user_has_chosen_stays() {
    let mut model = model(&["greeter"]);
    show(&mut model, [running(None), Message::Failed(0, "no".into())]);
    typed(&mut model, "2");
    show(&mut model, [running(Some("0a0a0a0a"))]);
    assert_eq!(model.tab, Tab::Logs);
}

#[test]
fn the_detail_view_shows_the_writes_of_a_reconcile() {
    let mut model = model(&["greeter"]);
    show(&mut model, [running(None), Message::Ran(Box::new(wrote("b")))]);
    press(&mut model, KeyCode::Enter);
    let text = screen(&mut model, 90, 24);
    for part in [
        "Namespace v1 shop/b",
        "because  new",
        "reads    0, 0 bytes",
        "writes   1",
        "+ ConfigMap v1 shop/b",
        "text: Welcome",
    ] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
    typed(&mut model, "G");
    let end = screen(&mut model, 40, 8);
    assert!(end.contains("namespace: shop") && !end.contains("because"), "{end}");
    press(&mut model, KeyCode::Esc);
    assert!(screen(&mut model, 90, 24).contains("1 write"));
}

#[test]
fn the_chosen_reconcile_stays_chosen_while_others_come() {
    let mut model = model(&["greeter"]);
    show(&mut model, ["a", "b", "c"].map(|name| Message::Ran(Box::new(ran(name)))));
    let chosen =
        |model: &Model| model::name(&model.reconcile(model.choice().unwrap()).unwrap().report.key);
    assert_eq!(chosen(&model), "shop/c", "the newest");
    typed(&mut model, "j");
    assert_eq!(chosen(&model), "shop/b");
    show(&mut model, [Message::Ran(Box::new(ran("d")))]);
    assert_eq!(chosen(&model), "shop/b");
    typed(&mut model, "G");
    assert_eq!(chosen(&model), "shop/a");
    typed(&mut model, "g");
    show(&mut model, [Message::Ran(Box::new(ran("e")))]);
    assert_eq!(chosen(&model), "shop/e", "the newest again");
}

#[test]
fn a_filter_shows_only_the_matching_reconciles() {
    let mut model = model(&["greeter"]);
    let mut failed = ran("b");
    failed.report.failure = Some("no".to_owned());
    show(&mut model, [Message::Ran(Box::new(ran("a"))), Message::Ran(Box::new(failed))]);
    typed(&mut model, "/failed");
    let text = screen(&mut model, 90, 8);
    assert!(
        text.contains("shop/b") && !text.contains("shop/a") && text.contains("filter: failed"),
        "{text}"
    );
    press(&mut model, KeyCode::Enter);
    typed(&mut model, "q");
    press(&mut model, KeyCode::Esc);
    assert!(screen(&mut model, 90, 8).contains("shop/a"));
}

#[test]
fn letters_of_a_filter_are_no_commands_and_q_quits() {
    let mut model = model(&["greeter"]);
    typed(&mut model, "/");
    assert_eq!(press(&mut model, KeyCode::Char('q')), None);
    press(&mut model, KeyCode::Enter);
    assert_eq!(press(&mut model, KeyCode::Char('q')), Some(Wish::Quit));
    let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    typed(&mut model, "/");
    assert_eq!(keys::press(&mut model, control), Some(Wish::Quit));
}

#[test]
fn log_lines_are_shown_with_their_source() {
    let mut model = model(&["greeter"]);
    let mut said = ran("a");
    said.report.log.push(GuestLine {
        level: Level::Info,
        message: "hello".to_owned(),
        fields: vec![("to".to_owned(), "you".to_owned())],
        source: Source::Log,
    });
    show(&mut model, [Message::Ran(Box::new(said)), Message::Log("WARN something".to_owned())]);
    typed(&mut model, "2");
    let text = screen(&mut model, 60, 8);
    assert!(
        text.contains("shop/a hello to=you") && text.contains("mortise WARN something"),
        "{text}"
    );
}

#[test]
fn lines_of_a_companion_are_shown_among_the_logs() {
    let mut model = model(&["greeter"]);
    show(&mut model, [Message::Said(0, Said::of("(2 lines are left out)\nGET /items 200"))]);
    typed(&mut model, "2");
    let text = screen(&mut model, 60, 8);
    for part in ["greeter's companion (2 lines are left out)\n", "     GET /items 200\n"] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
}

#[test]
fn the_detail_view_shows_the_calls_of_a_reconcile() {
    let made = |url: &str, status, error| Made {
        method: Method::Post,
        url: url.to_owned(),
        status,
        took: Duration::from_millis(12),
        error,
        refused: None,
    };
    let mut called = ran("a");
    let mut record = Record::clone(&called.report.record);
    record.calls = [
        made("https://a.example/items", Some(201), None),
        made("https://a.example/\u{1b}[2J", None, Some("not-sent")),
    ]
    .into();
    called.report.record = Arc::new(record);
    let mut model = model(&["greeter"]);
    show(&mut model, [running(None), Message::Ran(Box::new(called))]);
    press(&mut model, KeyCode::Enter);
    let text = screen(&mut model, 90, 24);
    for part in [
        "called   POST https://a.example/items 201, 12.0ms\n",
        r"called   POST https://a.example/\u{1b}[2J not-sent, 12.0ms",
    ] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
}

#[test]
fn the_throughput_is_that_of_the_last_seconds() {
    let mut model = model(&["greeter"]);
    show(&mut model, (0..20).map(|_| Message::Ran(Box::new(ran("a")))));
    model.set_time(start() + Duration::from_secs(5));
    assert!((model.rate("greeter") - 2.0).abs() < 1e-9);
    model.set_time(start() + Duration::from_secs(11));
    assert!(model.rate("greeter").abs() < 1e-9);
}

#[test]
fn the_oldest_reconciles_are_dropped_and_the_rest_keep_their_numbers() {
    let mut model = model(&["greeter"]);
    show(&mut model, (0..2001).map(|at| Message::Ran(Box::new(ran(&at.to_string())))));
    assert_eq!(model.visible().len(), 2000);
    assert!(model.reconcile(0).is_none());
    assert_eq!(model.reconcile(1).unwrap().report.key.name(), "1");
}

#[test]
fn a_hostile_text_is_shown_escaped() {
    for hostile in HOSTILE_TEXTS {
        let mut model = model(&["greeter"]);
        let mut failed = ran("a");
        failed.report.failure = Some(hostile.to_owned());
        show(&mut model, [running(None), Message::Ran(Box::new(failed))]);
        let first = escaped(hostile.lines().next().unwrap());
        assert!(screen(&mut model, 200, 8).contains(&*first), "{first}");
        press(&mut model, KeyCode::Enter);
        assert!(screen(&mut model, 200, 40).contains(&*first), "{first}");
    }
}
