//! The live view in a terminal of its own.

use std::{
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use clap::Parser as _;
use mortise::{
    args::{self, Args},
    commands::dev,
};
use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    greeter::{Greeter, with_target},
    mortise,
};

/// Long enough for a build of the guest; what hangs shall not hang the tests.
const TIMEOUT: Duration = Duration::from_mins(5);

/// A program on a terminal, whose screen can be read.
struct Screen {
    child: Child,
    keyboard: std::fs::File,
    shared: Arc<(Mutex<vt100::Parser>, Condvar)>,
}

impl Screen {
    fn start(arguments: &[&str], rows: u16, columns: u16) -> Self {
        let mut command = mortise();
        Self::spawn(with_target(&mut command).arg("dev").args(arguments), rows, columns)
    }

    fn spawn(command: &mut Command, rows: u16, columns: u16) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
        let open = || {
            let file = std::fs::OpenOptions::new().read(true).write(true).open(&name).unwrap();
            Stdio::from(OwnedFd::from(file))
        };
        let child = command
            .env("TERM", "xterm-256color")
            .stdin(open())
            .stdout(open())
            .stderr(open())
            .spawn()
            .unwrap();
        let keyboard = std::fs::File::from(terminal);
        let output = keyboard.try_clone().unwrap();
        let shared = Arc::new((Mutex::new(vt100::Parser::new(rows, columns, 0)), Condvar::new()));
        std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || read(output, &shared)
        });
        Self { child, keyboard, shared }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// The screen, once it fulfils something.
    fn when(&self, what: &str, holds: impl Fn(&vt100::Screen) -> bool) -> String {
        let (parser, changed) = &*self.shared;
        let (mut parser, end) = (parser.lock().unwrap(), Instant::now() + TIMEOUT);
        while !holds(parser.screen()) {
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no {what} on the screen:\n{}", parser.screen().contents());
            parser = changed.wait_timeout(parser, left).unwrap().0;
        }
        parser.screen().contents()
    }

    fn shows(&self, text: &str) -> String {
        let screen = self.when(text, |screen| screen.contents().contains(text));
        record(text, &screen);
        screen
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Only a failed test leaves it running.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(mut output: std::fs::File, shared: &(Mutex<vt100::Parser>, Condvar)) {
    let mut bytes = [0; 4096];
    // An error is the end: the other side was closed.
    while let Ok(count @ 1..) = output.read(&mut bytes) {
        shared.0.lock().unwrap().process(&bytes[..count]);
        shared.1.notify_all();
    }
}

/// Adds the screen to the file that `MORTISE_RECORD` names, for who wants to look at it.
fn record(moment: &str, screen: &str) {
    let Some(path) = std::env::var_os("MORTISE_RECORD") else { return };
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    writeln!(file, "=== when it shows `{moment}`\n{screen}\n").unwrap();
}

#[test]
fn the_view_shows_build_errors_and_changes_and_restores_the_terminal() {
    let guest = Greeter::new("viewed", "Welcome");
    let mut screen = Screen::start(&[guest.folder().to_str().unwrap()], 24, 100);
    screen.shows("Namespace shop");
    screen.press("\r");
    screen.shows("text: Welcome");
    screen.press("\x1b");
    guest.save("fn broken(");
    screen.shows("src/lib.rs:1");
    guest.say("Goodbye");
    screen.shows("1 of 1 changed");
    screen.press("\r");
    screen.shows("text: Goodbye");
    screen.press("?");
    screen.shows("q, Ctrl-C");
    screen.press("xq");
    assert!(screen.child.wait().unwrap().success());
    screen.when("former screen", |screen| !screen.alternate_screen() && !screen.hide_cursor());
}

#[test]
fn the_view_waits_for_a_guest_that_does_not_build_the_first_time_on_forty_columns() {
    let guest = Greeter::new("mended", "Welcome");
    guest.save("fn broken(");
    let mut screen = Screen::start(&[guest.folder().to_str().unwrap()], 16, 40);
    screen.shows("src/lib.rs:1");
    guest.say("Welcome");
    screen.shows("Namespace shop");
    screen.press("\x03");
    assert!(screen.child.wait().unwrap().success());
}

/// What the next test starts: the program, with a fault that strikes when it is sent a signal.
#[tokio::test]
#[ignore = "it panics: the test of what a panic leaves behind runs it on a terminal"]
async fn a_program_with_a_fault() {
    let args = Args::try_parse_from(["mortise", "dev", "--api-only"]).unwrap();
    let args::Command::Dev(args) = &args.command else { unreachable!() };
    let mut struck = signal(SignalKind::user_defined1()).unwrap();
    tokio::select! {
        ended = dev::run(args, None) => panic!("it ended by itself: {ended:?}"),
        _ = struck.recv() => panic!("a fault of ours"),
    }
}

#[test]
fn a_panic_restores_the_terminal_and_prints_its_message() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["view::a_program_with_a_fault", "--exact", "--ignored", "--nocapture"]);
    // A backtrace is longer than the screen.
    command.env("RUST_BACKTRACE", "0");
    let mut screen = Screen::spawn(&mut command, 24, 100);
    screen.when("live view", |screen| screen.alternate_screen() && screen.hide_cursor());
    screen.shows("export KUBECONFIG");
    let strike = ["-USR1", &screen.child.id().to_string()];
    assert!(Command::new("kill").args(strike).status().unwrap().success());
    assert!(!screen.child.wait().unwrap().success());
    let left = screen.when("former screen with what happened", |screen| {
        !screen.alternate_screen()
            && !screen.hide_cursor()
            && screen.contents().contains("a fault of ours")
    });
    assert!(!left.contains("export KUBECONFIG"), "nothing of the view is left: {left}");
}
