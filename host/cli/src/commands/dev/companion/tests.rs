use tokio::sync::mpsc;

use super::*;
use crate::commands::dev::message::Receiver;

/// Runs a script of a shell.
fn run(script: &str) -> (Companion, Receiver) {
    let run: Vec<String> = ["sh", "-c", script].map(str::to_owned).into();
    let (messages, inbox) = mpsc::unbounded_channel();
    let command = command(Path::new("/"), &run).unwrap();
    (Companion::run("`it`".to_owned(), command, 0, &messages).unwrap(), inbox)
}

async fn said(inbox: &mut Receiver) -> String {
    match inbox.recv().await.unwrap() {
        Message::Said(0, said) => said.text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_first_line_is_the_grants_and_the_others_are_shown() {
    let script = r#"echo building >&2; echo '{"egress": [{"origin": "https://a.example", "private": true}]}'
        printf 'GET /a\033[2J\n'; exec sleep 1000"#;
    let (mut companion, mut inbox) = run(script);
    let grants = companion.grants().await.unwrap();
    assert_eq!(grants.len(), 1);
    assert_eq!(grants[0].origin, "https://a.example");
    let mut lines = [said(&mut inbox).await, said(&mut inbox).await];
    lines.sort();
    assert_eq!(lines, [r"GET /a\u{1b}[2J", "building"]);
    companion.end().await;
    assert!(inbox.recv().await.is_none(), "its threads have ended");
}

#[tokio::test]
async fn a_companion_that_does_not_say_its_grants_is_an_error_with_its_last_lines() {
    let long = "head -c 300000 /dev/zero | tr '\\0' a; echo; exec sleep 1000";
    let cases: [(&str, &[&str]); 7] = [
        (
            "echo no port is free >&2; exit 7",
            &["has ended (exit status: 7)", "\n  no port is free"],
        ),
        ("echo listening; exec sleep 1000", &["another first line", "is expected"]),
        (r#"echo '{"egress": [], "more": 1}'; exec sleep 1000"#, &["unknown field `more`"]),
        (
            r#"echo '{"egress": [{"origin": "a", "to": "b"}]}'; exec sleep 1000"#,
            &["unknown field `to`"],
        ),
        (
            r#"echo '{"egress": [{"origin": "ftp://a.example"}]}'; exec sleep 1000"#,
            &["`ftp://a.example`"],
        ),
        (long, &["a first line of more than 256 KiB"]),
        ("exec /nowhere/at/all", &["has ended (exit status: 127)"]),
    ];
    for (script, parts) in cases {
        let (mut companion, _inbox) = run(script);
        let error = companion.grants().await.unwrap_err().to_string();
        assert!(error.starts_with("`it` "), "{error}");
        for part in parts {
            assert!(error.contains(part), "{script}: {part} is missing in: {error}");
        }
    }
}

#[tokio::test]
async fn a_companion_that_ends_later_is_an_error_with_its_last_lines() {
    let script =
        r#"echo '{"egress": []}'; i=0; while [ $i -lt 30 ]; do echo line $i; i=$((i+1)); done"#;
    let (mut companion, _inbox) = run(script);
    assert!(companion.grants().await.unwrap().is_empty());
    let error = companion.ended().await.to_string();
    let lines: Vec<String> = (10..30).map(|number| format!("\n  line {number}")).collect();
    let lines = lines.concat();
    assert_eq!(error, format!("`it` has ended (exit status: 0); its last lines:{lines}"));
}

/// What waits to be shown is bounded, and what is left out is counted.
#[tokio::test]
async fn a_flood_of_lines_is_cut() {
    let script =
        r#"echo '{"egress": []}'; i=0; while [ $i -lt 1000 ]; do echo line $i; i=$((i+1)); done"#;
    let (mut companion, mut inbox) = run(script);
    companion.ended().await;
    for number in 0..MAX_WAITING {
        let Message::Said(0, line) = inbox.recv().await.unwrap() else { panic!("a line") };
        assert_eq!(line.text, format!("line {number}"));
    }
    assert!(inbox.try_recv().is_err());
    companion.lines.take("late");
    assert_eq!(said(&mut inbox).await, "(744 lines are left out)\nlate");
}

#[test]
fn a_line_is_cut_and_the_next_one_is_whole() {
    let mut text: &[u8] = b"abcdef\ngh\n\nij";
    let lines: Vec<Vec<u8>> = std::iter::from_fn(|| read_line(&mut text, 4)).collect();
    assert_eq!(lines, [&b"abcd"[..], b"gh", b"", b"ij"]);
}

#[tokio::test(start_paused = true)]
async fn silence_before_the_first_line_is_an_error() {
    let (mut companion, _inbox) = run("exec sleep 1000");
    let error = companion.grants().await.unwrap_err().to_string();
    assert_eq!(error, "`it` has said nothing for 300 s");
}

#[tokio::test]
async fn a_companion_that_ignores_sigterm_is_killed() {
    let (mut companion, mut inbox) = run(r#"trap '' TERM; echo '{"egress": []}'; sleep 1000"#);
    companion.grants().await.unwrap();
    tokio::time::pause();
    companion.end().await;
    assert!(inbox.recv().await.is_none(), "its threads have ended");
}
