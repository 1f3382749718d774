//! Draws the model: a heading, the processors, the tabs, the body, a line of keys. Forty columns
//! suffice.

use mortise_core::contract::display_kind;
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    text::{Line, Span},
    widgets::{Cell, Clear, Paragraph, Row, Table, Wrap},
};

use super::{
    body,
    keys::HELP,
    model::{Build, Guest, Model, Tab},
    styled::{BOLD, DIM, GREEN, RED, YELLOW},
};

/// The width from which all columns fit.
pub(super) const ALL_COLUMNS_WIDTH: u16 = 76;

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, model: &mut Model) {
    let guests = u16::try_from(model.guests.len()).unwrap_or(u16::MAX);
    // The processors take a third of the screen at most; the rest is for the body.
    let processors = if guests == 0 { 0 } else { (guests + 1).min(frame.area().height / 3).max(2) };
    let [heading, top, tabs, rest, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(processors),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_heading(frame, model, heading);
    if processors > 0 {
        draw_processors(frame, model, top);
    }
    draw_tabs(frame, model, tabs);
    body::draw(frame, model, rest);
    draw_keys(frame, model, keys);
    if model.help {
        draw_help(frame);
    }
}

fn draw_heading(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let scene = model.scene();
    if area.width < ALL_COLUMNS_WIDTH {
        // A truncated command would be useless, so only the path is shown.
        return frame.render_widget(Line::styled(scene.kubeconfig.as_str(), BOLD), area);
    }
    let spans = vec![
        Span::styled("mortise dev  ", BOLD),
        Span::raw(format!("export KUBECONFIG={}", scene.kubeconfig)),
        Span::styled(format!("  {}", scene.address), DIM),
    ];
    frame.render_widget(Line::from(spans), area);
}

fn draw_processors(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let is_wide = area.width >= ALL_COLUMNS_WIDTH;
    let (names, widths): (&[&str], &[Constraint]) = if is_wide {
        (
            &["PROCESSOR", "VERSION", "DIGEST", "HEALTH", "RUNS/S", "QUEUED", "BACK-OFF"],
            &[
                Constraint::Fill(2),
                Constraint::Length(9),
                Constraint::Length(9),
                Constraint::Fill(3),
                Constraint::Length(6),
                Constraint::Length(6),
                Constraint::Length(8),
            ],
        )
    } else {
        (
            &["PROCESSOR", "HEALTH", "Q", "B"],
            &[
                Constraint::Fill(2),
                Constraint::Fill(3),
                Constraint::Length(3),
                Constraint::Length(3),
            ],
        )
    };
    let rows = model.guests.iter().map(|guest| processor(model, guest, is_wide));
    let table = Table::new(rows, widths)
        .header(Row::new(names.iter().copied()).style(DIM))
        .column_spacing(1);
    frame.render_widget(table, area);
}

fn processor<'a>(model: &Model, guest: &'a Guest, is_wide: bool) -> Row<'a> {
    let name = guest.running.as_ref().map_or(&*guest.package, |running| &*running.name);
    let count = |count: fn(&mortise_host::host::ProcessorStatus) -> usize| {
        guest.status.as_ref().map_or_else(String::new, |status| count(status).to_string())
    };
    let queued = count(|status| status.ready + status.running);
    let backing_off = count(|status| status.backing_off);
    let health = Cell::from(health(guest));
    if !is_wide {
        return Row::new([Cell::from(name), health, Cell::from(queued), Cell::from(backing_off)]);
    }
    let running = guest.running.as_ref();
    Row::new([
        Cell::from(Span::styled(name, BOLD)),
        Cell::from(running.map_or("", |running| &running.version)),
        Cell::from(running.map_or("", |running| &running.digest)),
        health,
        Cell::from(format!("{:.1}", model.rate(name))),
        Cell::from(queued),
        Cell::from(backing_off),
    ])
}

/// Returns the health of a guest; the most urgent problem comes first.
fn health(guest: &Guest) -> Span<'_> {
    let status = guest.status.as_ref();
    match &guest.build {
        Build::Failed(_) if guest.running.is_some() => Span::styled("former runs, see Build", RED),
        Build::Failed(_) => Span::styled("does not build", RED),
        Build::Building if guest.progress.is_empty() => Span::styled("building", YELLOW),
        Build::Building => Span::styled(guest.progress.to_lowercase(), YELLOW),
        Build::Waiting => Span::styled("waiting", DIM),
        Build::Built => match status {
            None if guest.running.is_some() => Span::styled("starting", YELLOW),
            None => Span::styled("waiting for the others", DIM),
            Some(status) if !status.missing.is_empty() => Span::styled(
                format!(
                    "no CRD of {}",
                    status.missing.iter().map(display_kind).next().unwrap_or_default()
                ),
                RED,
            ),
            Some(status) if status.failing > 0 => {
                Span::styled(format!("{} failing", status.failing), RED)
            }
            Some(_) if guest.renewed.0 > 0 => {
                let (ran, wrote) = guest.renewed;
                Span::styled(format!("ok, {wrote} of {ran} changed"), GREEN)
            }
            Some(_) => Span::styled("ok", GREEN),
        },
    }
}

fn draw_tabs(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let tab = |tab: Tab, text: String| {
        let is_shown = model.tab == tab && model.detail.is_none();
        Span::styled(text, if is_shown { BOLD.reversed() } else { DIM })
    };
    let failed = model.guests.iter().any(|guest| matches!(guest.build, Build::Failed(_)));
    let mut spans = vec![
        tab(Tab::Reconciles, format!(" 1 Reconciles {} ", model.forgotten + model.ran.len())),
        tab(Tab::Logs, format!(" 2 Logs {} ", model.logs.len())),
        tab(Tab::Build, " 3 Build ".to_owned()),
    ];
    if failed {
        spans.push(Span::styled("✗", RED));
    }
    frame.render_widget(Line::from(spans), area);
}

fn draw_keys(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let line = if model.typing {
        Line::from(format!("filter: {}▏", model.filter))
    } else if !model.filter.is_empty() {
        Line::from(format!("filter: {}  (Esc ends it)", model.filter))
    } else if model.detail.is_some() {
        Line::styled("Esc back  ←→ others  ↑↓ scroll  ? help", DIM)
    } else {
        Line::styled("? help  ↵ detail  / filter  q quit", DIM)
    };
    frame.render_widget(line, area);
}

fn draw_help(frame: &mut Frame<'_>) {
    let lines: Vec<Line<'_>> = std::iter::once(Line::styled("Keys", BOLD))
        .chain(HELP.iter().map(|(keys, does)| {
            Line::from(vec![Span::styled(format!("{keys:<12}"), BOLD), Span::raw(*does)])
        }))
        .chain(
            ["", "Save a file: it is built, and takes over."].map(|text| Line::styled(text, DIM)),
        )
        .collect();
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX).min(frame.area().height);
    let area = Rect { height, ..frame.area() };
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), area);
}
