use std::sync::mpsc;

use mortise_core::{
    contract::bounds::text::{is_unsafe, quoted},
    fixture::HOSTILE_TEXTS,
};
use serde_json::Value;
use tracing::{error, info, info_span};

use super::*;
use crate::metrics::{HookRequest, Metrics, Sample};

/// Collects the text that is written.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Written {
    fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().clone()).unwrap();
        text.split_terminator('\n').map(str::to_owned).collect()
    }
}

/// Returns the lines that `say` logs.
fn logged(format: LogFormat, say: impl FnOnce()) -> Vec<String> {
    let written = Written::default();
    let to = written.clone();
    let log = subscriber(EnvFilter::new("info"), format, false, Arc::default(), move || to.clone());
    tracing::subscriber::with_default(log, say);
    written.lines()
}

/// The same table is walked for the formats of the program `mortise`, in its package.
#[test]
fn a_hostile_text_stays_in_its_place_in_the_log_in_metrics_and_in_messages() {
    for hostile in HOSTILE_TEXTS {
        let say = || {
            let _span = info_span!("reconcile", processor = %hostile, name = hostile).entered();
            info!(fields = %hostile, note = hostile, also = ?hostile, "{hostile}");
        };
        let mut lines: Vec<String> = Vec::new();
        for format in [LogFormat::Text, LogFormat::Json] {
            let logged = logged(format, say);
            assert_eq!(logged.len(), 1, "{logged:#?}");
            lines.extend(logged);
        }
        let line: Value = serde_json::from_str(&lines[1]).unwrap();
        for value in [&line["message"], &line["fields"], &line["note"], &line["span"]["processor"]]
        {
            assert_eq!(value, hostile, "JSON means what was said");
        }
        let metrics = Metrics::new();
        metrics.hooked("p", HookRequest::Admit(hostile), "success", Duration::ZERO);
        let text = metrics.text(&Sample::default()).unwrap();
        let series = text.split('\n').filter(|line| line.contains("hook=\""));
        let series: Vec<&str> = series.filter(|line| line.contains("_requests_total{")).collect();
        let [only] = series[..] else { panic!("{hostile:?}: {series:#?}") };
        assert!(only.ends_with("\",result=\"success\"} 1"), "{only}");
        lines.extend([only.to_owned(), quoted(hostile)]);
        for line in lines {
            assert_eq!(line.chars().find(|character| is_unsafe(*character)), None, "{line:?}");
        }
    }
}

#[test]
fn a_line_is_bounded() {
    let long = "\u{1b}é\"".repeat(1 << 18);
    let say = || info!(fields = %long, note = long, also = ?long, "{long}");
    // An escape that is cut within `Debug`'s output, and JSON's punctuation, come on top.
    for format in [LogFormat::Text, LogFormat::Json] {
        let lines = logged(format, say);
        assert!(lines[0].len() < escape::MAX_LINE_BYTES + 1024, "{format:?}: {}", lines[0].len());
    }
}

#[test]
fn a_chatty_processor_hides_neither_its_own_failure_nor_other_processors() {
    for format in [LogFormat::Text, LogFormat::Json] {
        let lines = logged(format, || {
            let span = info_span!("reconcile", processor = %"shop/chatty").entered();
            for _ in 0..10_000 {
                info!("chatter");
            }
            error!("the call broke");
            drop(span);
            info!(processor = "shop/other", "a line of another");
            info!("a line of the host");
        });
        let count = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
        // The burst, the allowance that is refilled during the test, and one line past the limit.
        assert!((501..2000).contains(&count("chatter")), "{}", count("chatter"));
        for what in ["the call broke", "a line of another", "a line of the host"] {
            assert_eq!(count(what), 1, "{what}");
        }
    }
}

/// A standard error that is blocked until it is released.
struct Still {
    begun: mpsc::Sender<()>,
    go: mpsc::Receiver<()>,
    written: usize,
}

impl io::Write for Still {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.written == 0 {
            self.begun.send(()).unwrap();
            self.go.recv().unwrap();
        }
        self.written += 1;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn nobody_waits_for_standard_error() {
    let lines = Lines::default();
    let ((begun, has_begun), (go, may_go)) = (mpsc::channel(), mpsc::channel());
    let mut to = Still { begun, go: may_go, written: 0 };
    let (told, lost) = mpsc::channel();
    let kept = thread::scope(|scope| {
        let (lines, to) = (&lines, &mut to);
        assert!(lines.push(b"first"));
        // The time after which the writer returns: longer than the lines below take on a busy
        // machine.
        let wait = Duration::from_secs(5);
        let writer = scope.spawn(move || lines.write(to, wait, |lost| told.send(lost).unwrap()));
        has_begun.recv().unwrap();
        let kept = (0..100_000).filter(|_| lines.push(b"line")).count();
        assert!((1..20_000).contains(&kept), "{kept}");
        assert!(!lines.push(&vec![b'x'; 64 << 20]), "bytes are bounded, too");
        assert!(!lines.drained(Duration::ZERO));
        lines.push_last(b"last");
        go.send(()).unwrap();
        assert!(lines.drained(Duration::from_mins(1)));
        assert_eq!(lost.recv().unwrap(), 100_001 - kept as u64);
        writer.join().unwrap();
        kept
    });
    assert_eq!(to.written, kept + 2);
}

#[test]
fn a_level_alone_is_that_of_our_own_crates() {
    let cases = [
        ("debug", "warn,mortise=debug"),
        ("error", "error"),
        ("tower=debug", "tower=debug"),
        ("info,tower=debug", "warn,mortise=info,tower=debug"),
    ];
    for (given, filter) in cases {
        assert_eq!(own_levels(given), filter);
        EnvFilter::try_new(own_levels(given)).unwrap();
    }
    assert!(EnvFilter::try_new(own_levels("tower=loud")).is_err());
}

#[test]
fn only_a_processor_with_dropped_lines_counts_as_limited() {
    let say = |name: &str, times: usize| {
        logged(LogFormat::Text, || {
            for _ in 0..times {
                info!(processor = name, "chatter");
            }
        })
    };
    say("counted/quiet", 100);
    say("counted/chatty", 10_000);
    assert!(dropped_lines::is_limited("counted/chatty"));
    assert!(!dropped_lines::is_limited("counted/quiet"));
}
