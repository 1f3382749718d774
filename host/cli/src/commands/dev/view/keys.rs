//! The effect of each key.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::model::{Model, Tab, Wish};

/// The keys and their effects, for the help.
pub(super) const HELP: [(&str, &str); 10] = [
    ("1 2 3, Tab", "reconciles, logs, build"),
    ("↑ ↓, j k", "choose, or scroll"),
    ("PgUp PgDn", "a page up or down"),
    ("g G", "to the newest, to the oldest"),
    ("Enter", "what it read, wrote and said"),
    ("← →, h l", "the one before, after it"),
    ("/", "filter: a name, or `failed`"),
    ("Esc", "back; ends the filter"),
    ("?", "this help"),
    ("q, Ctrl-C", "quit"),
];

/// Handles a pressed key.
pub(super) fn press(model: &mut Model, key: KeyEvent) -> Option<Wish> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return (key.code == KeyCode::Char('c')).then_some(Wish::Quit);
    }
    if model.typing {
        type_filter(model, key.code);
        return None;
    }
    if model.help {
        // Any key closes the help.
        model.help = false;
        return None;
    }
    match key.code {
        KeyCode::Char('q') => return Some(Wish::Quit),
        KeyCode::Char('?') => model.help = true,
        KeyCode::Esc => back(model),
        _ if model.detail.is_some() => in_detail(model, key.code),
        KeyCode::Char('1') => model.show(Tab::Reconciles),
        KeyCode::Char('2') => model.show(Tab::Logs),
        KeyCode::Char('3') => model.show(Tab::Build),
        KeyCode::Tab => model.show(next(model.tab)),
        KeyCode::Char('/') => model.typing = true,
        KeyCode::Enter if model.tab == Tab::Reconciles => model.open_detail(),
        code => walk(model, code),
    }
    None
}

fn type_filter(model: &mut Model, code: KeyCode) {
    match code {
        KeyCode::Char(letter) => model.filter.push(letter),
        KeyCode::Backspace => _ = model.filter.pop(),
        KeyCode::Enter => model.typing = false,
        KeyCode::Esc => {
            model.typing = false;
            model.filter.clear();
        }
        _ => {}
    }
    model.chosen = None;
    model.scroll = 0;
}

fn back(model: &mut Model) {
    if model.detail.take().is_none() {
        model.filter.clear();
    }
    model.scroll = 0;
}

fn in_detail(model: &mut Model, code: KeyCode) {
    match code {
        KeyCode::Left | KeyCode::Char('h') => neighbour(model, 1),
        KeyCode::Right | KeyCode::Char('l') => neighbour(model, -1),
        code => model.scroll = scrolled(model, code),
    }
}

/// Opens the detail of another reconcile. The list begins with the newest one, so older ones are
/// further down.
fn neighbour(model: &mut Model, by: isize) {
    model.chosen = model.detail.as_ref().map(|detail| detail.number);
    model.choose(by);
    model.open_detail();
}

fn next(tab: Tab) -> Tab {
    match tab {
        Tab::Reconciles => Tab::Logs,
        Tab::Logs => Tab::Build,
        Tab::Build => Tab::Reconciles,
    }
}

fn walk(model: &mut Model, code: KeyCode) {
    if model.tab != Tab::Reconciles {
        model.scroll = scrolled(model, code);
        return;
    }
    let page = isize::try_from(model.page).unwrap_or(1);
    match code {
        KeyCode::Up | KeyCode::Char('k') => model.choose(-1),
        KeyCode::Down | KeyCode::Char('j') => model.choose(1),
        KeyCode::PageUp => model.choose(-page),
        KeyCode::PageDown => model.choose(page),
        KeyCode::Home | KeyCode::Char('g') => model.chosen = None,
        KeyCode::End | KeyCode::Char('G') => model.choose(isize::MAX),
        _ => {}
    }
}

/// Returns the scroll position after a key. Drawing limits it to the lines that exist.
fn scrolled(model: &Model, code: KeyCode) -> usize {
    match code {
        KeyCode::Up | KeyCode::Char('k') => model.scroll.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => model.scroll.saturating_add(1),
        KeyCode::PageUp => model.scroll.saturating_sub(model.page),
        KeyCode::PageDown => model.scroll.saturating_add(model.page),
        KeyCode::Home | KeyCode::Char('g') => 0,
        KeyCode::End | KeyCode::Char('G') => usize::MAX,
        _ => model.scroll,
    }
}
