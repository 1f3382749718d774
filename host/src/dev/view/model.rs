//! What the view shows: plain state, changed by news and by keys. No terminal, no clock, no I/O.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use jiff::Timestamp;

use crate::{
    contract::Level,
    dev::{
        build::Line,
        news::{News, Ran, Running, Scene},
    },
    queue::Key,
    run::ProcessorStatus,
};

/// How many reconciles and lines are kept.
const KEPT: usize = 2000;
/// Over how long the throughput is counted.
const RATE: Duration = Duration::from_secs(10);

/// All that is shown.
pub(super) struct Model {
    scene: Scene,
    pub(super) guests: Vec<Guest>,
    /// The last reconciles, the newest last.
    pub(super) ran: VecDeque<Ran>,
    /// How many reconciles were kept no longer: the number of the first one.
    pub(super) forgotten: usize,
    pub(super) logs: VecDeque<Logged>,
    pub(super) tab: Tab,
    /// A key whose detail covers the body.
    pub(super) detail: Option<Detail>,
    pub(super) help: bool,
    /// What is being typed after `/`.
    pub(super) typing: bool,
    pub(super) filter: String,
    /// Which reconcile is chosen, by number; the newest if none.
    pub(super) chosen: Option<usize>,
    /// How far the body is scrolled: of the logs and the build from the end, of others from the beginning.
    pub(super) scroll: usize,
    /// How many lines the body had when it was drawn last.
    pub(super) page: usize,
    /// The time for ages and rates.
    pub(super) now: Timestamp,
    /// What was shown before a build failed, as long as it is not mended.
    before_failure: Option<Tab>,
    /// When reconciles of each processor ended, lately.
    ended: HashMap<String, VecDeque<Timestamp>>,
}

/// A guest and its processor.
pub(super) struct Guest {
    pub(super) package: String,
    pub(super) build: Build,
    /// What Cargo is doing.
    pub(super) progress: String,
    /// What Cargo and the compiler said in the last build.
    pub(super) lines: Vec<String>,
    pub(super) running: Option<Running>,
    pub(super) status: Option<ProcessorStatus>,
    /// What a new version changed in its first runs: how many keys ran, how many wrote.
    pub(super) renewed: (usize, usize),
}

/// How the last build went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Build {
    Waiting,
    Building,
    Built,
    Failed(String),
}

/// A line of a guest, or of the program.
pub(super) struct Logged {
    pub(super) at: Timestamp,
    pub(super) level: Option<Level>,
    pub(super) of: String,
    pub(super) text: String,
}

/// What the body shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tab {
    Reconciles,
    Logs,
    Build,
}

/// A reconcile, and what it wrote.
pub(super) struct Detail {
    /// Its number.
    pub(super) number: usize,
    pub(super) ran: Ran,
    /// The difference, coloured; made once.
    pub(super) difference: String,
}

/// What a key wants of the program.
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

    /// Takes the time.
    pub(super) fn look(&mut self, now: Timestamp) {
        self.now = now;
        for ended in self.ended.values_mut() {
            while ended.front().is_some_and(|at| age(*at, now) > RATE) {
                ended.pop_front();
            }
        }
    }

    /// Takes a piece of news.
    pub(super) fn take(&mut self, news: News, now: Timestamp) {
        match news {
            News::Note(text) => {
                self.log(Logged { at: now, level: None, of: "mortise".to_owned(), text });
            }
            News::Log(text) => self.log(Logged {
                at: now,
                level: Some(Level::Warn),
                of: "mortise".to_owned(),
                text,
            }),
            News::Ran(ran) => self.take_ran(*ran),
            News::Status(status) => self.take_status(status),
            News::Running(running) => {
                if let Some(guest) = self.guests.get_mut(running.guest) {
                    guest.build = Build::Built;
                    guest.renewed = (0, 0);
                    guest.running = Some(running);
                }
            }
            News::Building(of) => self.with_guest(of, |guest| {
                guest.build = Build::Building;
                guest.progress.clear();
                guest.lines.clear();
            }),
            News::Line(of, line) => self.with_guest(of, |guest| match line {
                Line::Progress(line) => guest.progress = line,
                Line::Message(text) => guest.lines.extend(text.lines().map(str::to_owned)),
            }),
            News::Failed(of, message) => {
                self.with_guest(of, |guest| guest.build = Build::Failed(message));
                // Who looks at a reconcile is not taken away from it.
                if self.detail.is_none() && self.tab != Tab::Build {
                    let before = self.tab;
                    self.show(Tab::Build);
                    self.before_failure = Some(before);
                }
            }
            News::Unchanged(of) | News::Waiting(of) => {
                self.with_guest(of, |guest| guest.build = Build::Built);
            }
        }
        self.leave_mended_build();
    }

    /// Goes back from a build error that is mended to what was shown before it.
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
        if self.logs.len() > KEPT {
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
        if self.ran.len() > KEPT {
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

    /// Reconciles of a processor per second, lately.
    pub(super) fn rate(&self, processor: &str) -> f64 {
        let ended = self.ended.get(processor).map_or(0, VecDeque::len);
        // No program has so many that the number is not exact.
        #[expect(clippy::cast_precision_loss, reason = "a count of some thousands")]
        let ended = ended as f64;
        ended / RATE.as_secs_f64()
    }

    /// Shows another tab.
    pub(super) fn show(&mut self, tab: Tab) {
        self.before_failure = None;
        self.tab = tab;
        self.scroll = 0;
    }

    /// The numbers of the reconciles that pass the filter, the newest first.
    pub(super) fn visible(&self) -> Vec<usize> {
        if self.filter.is_empty() {
            return (self.forgotten..self.forgotten + self.ran.len()).rev().collect();
        }
        let passes = |(index, ran): (usize, &Ran)| {
            let text = format!(
                "{} {} {} {}",
                ran.report.key.processor(),
                ran.report.kind.kind,
                name(&ran.report.key),
                if ran.report.failure.is_some() { "failed" } else { "" }
            );
            self.passes(&text).then_some(self.forgotten + index)
        };
        self.ran.iter().enumerate().filter_map(passes).rev().collect()
    }

    /// Whether a text holds what is filtered by.
    pub(super) fn passes(&self, text: &str) -> bool {
        self.filter.is_empty() || text.to_lowercase().contains(&self.filter.to_lowercase())
    }

    /// A reconcile by its number, if it is still kept.
    pub(super) fn reconcile(&self, number: usize) -> Option<&Ran> {
        self.ran.get(number.checked_sub(self.forgotten)?)
    }

    /// Chooses a reconcile some lines further down, or up.
    pub(super) fn choose(&mut self, by: isize) {
        let visible = self.visible();
        let at = self.chosen.and_then(|number| visible.iter().position(|seen| *seen == number));
        let to = at.unwrap_or(0).saturating_add_signed(by).min(visible.len().saturating_sub(1));
        // At the top the newest one stays chosen, whichever that is.
        self.chosen = visible.get(to).copied().filter(|_| to > 0);
    }

    /// The chosen reconcile's number.
    pub(super) fn choice(&self) -> Option<usize> {
        let visible = self.visible();
        self.chosen.filter(|number| visible.contains(number)).or_else(|| visible.first().copied())
    }

    /// Shows what the chosen reconcile did.
    pub(super) fn open_detail(&mut self) {
        let Some(number) = self.choice() else { return };
        let Some(ran) = self.reconcile(number).cloned() else { return };
        let difference = ran.written.difference(self.scene.secrets);
        self.scroll = 0;
        self.detail = Some(Detail { number, ran, difference });
    }
}

/// The object of a key, without the processor.
pub(super) fn name(key: &Key) -> String {
    match key.namespace() {
        Some(namespace) => format!("{namespace}/{}", key.name()),
        None => key.name().to_owned(),
    }
}

/// How long ago something was.
pub(super) fn age(at: Timestamp, now: Timestamp) -> Duration {
    now.duration_since(at).try_into().unwrap_or_default()
}

/// A time span in as few characters as say enough: `3s`, `12m`, `4h`.
pub(super) fn short(span: Duration) -> String {
    match span.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m", seconds / 60),
        seconds => format!("{}h", seconds / 3600),
    }
}
