//! The state of the view, changed by messages and keys. It has no terminal and no clock, and does
//! no I/O.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use jiff::Timestamp;
use mortise_core::{
    contract::{Level, display_kind},
    queue::Key,
};
use mortise_host::host::ProcessorStatus;

use crate::commands::dev::{
    build::Line,
    message::{Message, Ran, Running, Scene},
};

/// The number of reconciles and of log lines that are kept.
const MAX_ENTRIES: usize = 2000;
/// The time span over which the rate of reconciles is counted.
const RATE_PERIOD: Duration = Duration::from_secs(10);

/// The state of the view.
pub(super) struct Model {
    scene: Scene,
    pub(super) guests: Vec<Guest>,
    /// The last reconciles, the newest at the end.
    pub(super) ran: VecDeque<Ran>,
    /// The number of reconciles that were dropped; also the number of the first one that is kept.
    pub(super) forgotten: usize,
    pub(super) logs: VecDeque<Logged>,
    pub(super) tab: Tab,
    /// The reconcile whose detail covers the body, if any.
    pub(super) detail: Option<Detail>,
    pub(super) help: bool,
    /// True while the user types a filter after `/`.
    pub(super) typing: bool,
    pub(super) filter: String,
    /// The number of the chosen reconcile; `None` for the newest.
    pub(super) chosen: Option<usize>,
    /// The number of lines by which the body is scrolled, from its first line.
    pub(super) scroll: usize,
    /// The number of lines that the body had when it was last drawn.
    pub(super) page: usize,
    /// The time for ages and rates.
    pub(super) now: Timestamp,
    /// The tab before a build failed; `None` once the build succeeds or another tab is chosen.
    before_failure: Option<Tab>,
    /// The times at which reconciles of each processor ended, within the last `RATE_PERIOD`.
    ended: HashMap<String, VecDeque<Timestamp>>,
}

/// A guest and its processor.
pub(super) struct Guest {
    pub(super) package: String,
    pub(super) build: Build,
    /// Cargo's last line of progress.
    pub(super) progress: String,
    /// The messages of Cargo and the compiler in the last build.
    pub(super) lines: Vec<String>,
    pub(super) running: Option<Running>,
    pub(super) status: Option<ProcessorStatus>,
    /// The first runs of a new version: the number of keys that ran, and of those that wrote.
    pub(super) renewed: (usize, usize),
}

/// The result of the last build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Build {
    Waiting,
    Building,
    Built,
    Failed(String),
}

/// A log line of a guest or of the program.
pub(super) struct Logged {
    pub(super) at: Timestamp,
    pub(super) level: Option<Level>,
    pub(super) of: String,
    pub(super) text: String,
}

/// The content of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tab {
    Reconciles,
    Logs,
    Build,
}

/// A reconcile, with the difference that it made.
pub(super) struct Detail {
    /// The number of the reconcile.
    pub(super) number: usize,
    pub(super) ran: Ran,
    /// The difference, coloured; computed once.
    pub(super) difference: String,
}

/// A request of the user to the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    Quit,
}

// === impl Model ===

impl Model {
    pub(super) fn new(scene: Scene) -> Self {
        let guest = |package: &String| Guest {
            package: package.clone(),
            build: Build::Waiting,
            progress: String::new(),
            lines: Vec::new(),
            running: None,
            status: None,
            renewed: (0, 0),
        };
        Self {
            guests: scene.guests.iter().map(guest).collect(),
            scene,
            ran: VecDeque::new(),
            forgotten: 0,
            logs: VecDeque::new(),
            tab: Tab::Reconciles,
            detail: None,
            help: false,
            typing: false,
            filter: String::new(),
            chosen: None,
            scroll: 0,
            page: 1,
            now: Timestamp::UNIX_EPOCH,
            before_failure: None,
            ended: HashMap::new(),
        }
    }

    pub(super) fn scene(&self) -> &Scene {
        &self.scene
    }

    /// Sets the time, and drops reconciles that no longer count for the rate.
    pub(super) fn set_time(&mut self, now: Timestamp) {
        self.now = now;
        for ended in self.ended.values_mut() {
            while ended.front().is_some_and(|at| age(*at, now) > RATE_PERIOD) {
                ended.pop_front();
            }
        }
    }

    /// Applies a message from the session.
    pub(super) fn take(&mut self, message: Message, now: Timestamp) {
        match message {
            Message::Note(text) => {
                self.log(Logged { at: now, level: None, of: "mortise".to_owned(), text });
            }
            Message::Log(text) => self.log(Logged {
                at: now,
                level: Some(Level::Warn),
                of: "mortise".to_owned(),
                text,
            }),
            Message::Said(of, said) => {
                let guest = self.guests.get(of).map_or("", |guest| &guest.package);
                let of = format!("{guest}'s companion");
                self.log(Logged { at: now, level: None, of, text: said.text });
            }
            Message::Ran(ran) => self.take_ran(*ran),
            Message::Status(status) => self.take_status(status),
            Message::Running(running) => {
                if let Some(guest) = self.guests.get_mut(running.guest) {
                    guest.build = Build::Built;
                    guest.renewed = (0, 0);
                    guest.running = Some(running);
                }
            }
            Message::Building(of) => self.with_guest(of, |guest| {
                guest.build = Build::Building;
                guest.progress.clear();
                guest.lines.clear();
            }),
            Message::Line(of, line) => self.with_guest(of, |guest| match line {
                Line::Progress(line) => guest.progress = line,
                Line::Message(text) => guest.lines.extend(text.lines().map(str::to_owned)),
            }),
            Message::Failed(of, message) => {
                self.with_guest(of, |guest| guest.build = Build::Failed(message));
                // The detail of a reconcile stays open.
                if self.detail.is_none() && self.tab != Tab::Build {
                    let before = self.tab;
                    self.show(Tab::Build);
                    self.before_failure = Some(before);
                }
            }
            Message::Unchanged(of) | Message::Waiting(of) => {
                self.with_guest(of, |guest| guest.build = Build::Built);
            }
        }
        self.leave_mended_build();
    }

    /// Returns to the tab before a build failed, once all builds succeed.
    fn leave_mended_build(&mut self) {
        let is_well = |guest: &Guest| guest.build == Build::Built;
        if self.guests.iter().all(is_well)
            && let Some(tab) = self.before_failure.take()
        {
            self.show(tab);
        }
    }

    fn with_guest(&mut self, index: usize, change: impl FnOnce(&mut Guest)) {
        if let Some(guest) = self.guests.get_mut(index) {
            change(guest);
        }
    }

    fn log(&mut self, line: Logged) {
        self.logs.push_back(line);
        if self.logs.len() > MAX_ENTRIES {
            self.logs.pop_front();
        }
    }

    fn take_ran(&mut self, ran: Ran) {
        let processor = ran.report.key.processor().to_string();
        self.ended.entry(processor.clone()).or_default().push_back(ran.at);
        for line in &ran.report.log {
            let fields = line.fields.iter().map(|(name, value)| format!(" {name}={value}"));
            self.log(Logged {
                at: ran.at,
                level: Some(line.level),
                of: name(&ran.report.key),
                text: line.message.clone() + &fields.collect::<String>(),
            });
        }
        let is_its = |guest: &&mut Guest| {
            guest.running.as_ref().is_some_and(|running| running.name == processor)
        };
        if let Some(guest) = self.guests.iter_mut().find(is_its).filter(|_| ran.is_of_new_version())
        {
            guest.renewed.0 += 1;
            guest.renewed.1 += usize::from(!ran.report.changes.is_empty());
        }
        self.ran.push_back(ran);
        if self.ran.len() > MAX_ENTRIES {
            self.ran.pop_front();
            self.forgotten += 1;
        }
    }

    fn take_status(&mut self, status: Vec<ProcessorStatus>) {
        for guest in &mut self.guests {
            guest.status = None;
        }
        for status in status {
            let is_its = |guest: &&mut Guest| {
                guest
                    .running
                    .as_ref()
                    .is_some_and(|running| *running.name == *status.version.processor)
            };
            if let Some(guest) = self.guests.iter_mut().find(is_its) {
                guest.status = Some(status);
            }
        }
    }

    /// Returns the reconciles of a processor per second, over the last `RATE_PERIOD`.
    pub(super) fn rate(&self, processor: &str) -> f64 {
        let ended = self.ended.get(processor).map_or(0, VecDeque::len);
        // The number is far too small to lose precision.
        #[expect(clippy::cast_precision_loss, reason = "a count of some thousands")]
        let ended = ended as f64;
        ended / RATE_PERIOD.as_secs_f64()
    }

    /// Switches to another tab.
    pub(super) fn show(&mut self, tab: Tab) {
        self.before_failure = None;
        self.tab = tab;
        self.scroll = 0;
    }

    /// Returns the numbers of the reconciles that pass the filter, the newest first.
    pub(super) fn visible(&self) -> Vec<usize> {
        if self.filter.is_empty() {
            return (self.forgotten..self.forgotten + self.ran.len()).rev().collect();
        }
        let passes = |(index, ran): (usize, &Ran)| {
            let text = format!(
                "{} {} {} {}",
                ran.report.key.processor(),
                display_kind(&ran.report.kind),
                name(&ran.report.key),
                if ran.report.failure.is_some() { "failed" } else { "" }
            );
            self.passes(&text).then_some(self.forgotten + index)
        };
        self.ran.iter().enumerate().filter_map(passes).rev().collect()
    }

    /// Returns whether a text contains the filter.
    pub(super) fn passes(&self, text: &str) -> bool {
        self.filter.is_empty() || text.to_lowercase().contains(&self.filter.to_lowercase())
    }

    /// Returns a reconcile by its number, if it is still kept.
    pub(super) fn reconcile(&self, number: usize) -> Option<&Ran> {
        self.ran.get(number.checked_sub(self.forgotten)?)
    }

    /// Moves the choice down by `by` lines, or up if `by` is negative.
    pub(super) fn choose(&mut self, by: isize) {
        let visible = self.visible();
        let at = self.chosen.and_then(|number| visible.iter().position(|seen| *seen == number));
        let to = at.unwrap_or(0).saturating_add_signed(by).min(visible.len().saturating_sub(1));
        // At the top the newest reconcile stays chosen, even when newer ones arrive.
        self.chosen = visible.get(to).copied().filter(|_| to > 0);
    }

    /// Returns the number of the chosen reconcile, or of the newest one that passes the filter.
    pub(super) fn choice(&self) -> Option<usize> {
        let visible = self.visible();
        self.chosen.filter(|number| visible.contains(number)).or_else(|| visible.first().copied())
    }

    /// Shows the chosen reconcile in detail.
    pub(super) fn open_detail(&mut self) {
        let Some(number) = self.choice() else { return };
        let Some(ran) = self.reconcile(number).cloned() else { return };
        let difference = ran.difference();
        self.scroll = 0;
        self.detail = Some(Detail { number, ran, difference });
    }
}

/// Returns the object's namespace and name of a key, without the processor.
pub(super) fn name(key: &Key) -> String {
    match key.namespace() {
        Some(namespace) => format!("{namespace}/{}", key.name()),
        None => key.name().to_owned(),
    }
}

/// Returns the time since `at`.
pub(super) fn age(at: Timestamp, now: Timestamp) -> Duration {
    now.duration_since(at).try_into().unwrap_or_default()
}

/// Formats a time span in few characters: `3s`, `12m`, `4h`.
pub(super) fn short(span: Duration) -> String {
    match span.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m", seconds / 60),
        seconds => format!("{}h", seconds / 3600),
    }
}
