//! The part below the tabs: the reconciles, one reconcile in detail, the logs, or the builds.

use mortise_core::contract::{Level, bounds::text::escaped, display_kind};
use ratatui::{
    Frame,
    layout::{Constraint, Rect},
    style::Style,
    text::{Line, Span},
    widgets::{Cell, Paragraph, Row, Table},
};

use super::{
    model::{Build, Detail, Logged, Model, Tab, age, name, short},
    render::ALL_COLUMNS_WIDTH,
    styled::{self, BOLD, DIM, GREEN, RED, YELLOW},
};
use crate::{commands::dev::message::Ran, print::call};

/// Draws the detail or the tab that is shown.
pub(super) fn draw(frame: &mut Frame<'_>, model: &mut Model, area: Rect) {
    model.page = usize::from(area.height);
    if let Some(detail) = &model.detail {
        let lines = in_detail(detail);
        return draw_text(frame, model, lines, area);
    }
    match model.tab {
        Tab::Reconciles => draw_reconciles(frame, model, area),
        Tab::Logs => {
            let lines = logs(model);
            draw_text(frame, model, lines, area);
        }
        Tab::Build => {
            let lines = builds(model);
            draw_text(frame, model, lines, area);
        }
    }
}

/// Draws lines, wrapped at the edge and scrolled no further than their end.
fn draw_text(frame: &mut Frame<'_>, model: &mut Model, lines: Vec<Line<'static>>, area: Rect) {
    let width = usize::from(area.width.max(1));
    let rows: Vec<Line<'static>> = lines.into_iter().flat_map(|line| folded(line, width)).collect();
    model.scroll = model.scroll.min(rows.len().saturating_sub(usize::from(area.height)));
    let shown: Vec<Line<'static>> =
        rows.into_iter().skip(model.scroll).take(usize::from(area.height)).collect();
    frame.render_widget(Paragraph::new(shown), area);
}

/// Wraps a line into rows of at most `width` columns.
fn folded(line: Line<'static>, width: usize) -> Vec<Line<'static>> {
    if line.width() <= width {
        return vec![line];
    }
    let (mut rows, mut row, mut used) = (Vec::new(), Vec::<Span<'static>>::new(), 0);
    for grapheme in line.styled_graphemes(Style::new()) {
        let symbol = Span::styled(grapheme.symbol.to_owned(), grapheme.style);
        if used + symbol.width() > width {
            rows.push(Line::from(std::mem::take(&mut row)));
            used = 0;
        }
        used += symbol.width();
        match row.last_mut().filter(|last| last.style == symbol.style) {
            Some(last) => last.content.to_mut().push_str(&symbol.content),
            None => row.push(symbol),
        }
    }
    rows.push(Line::from(row));
    rows
}

fn draw_reconciles(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let visible = model.visible();
    if visible.is_empty() {
        let text = if model.filter.is_empty() {
            "no reconcile yet"
        } else {
            "none that passes the filter"
        };
        return frame.render_widget(Line::styled(text, DIM), area);
    }
    let choice = model.choice();
    let at = visible.iter().position(|number| Some(*number) == choice).unwrap_or(0);
    // The chosen reconcile stays in the middle, except near the ends.
    let page = usize::from(area.height).max(1);
    let first = at.saturating_sub(page / 2).min(visible.len().saturating_sub(page));
    let is_wide = area.width >= ALL_COLUMNS_WIDTH;
    let rows = visible.iter().skip(first).take(page).filter_map(|number| {
        let row = reconcile(model, model.reconcile(*number)?, is_wide);
        Some(if Some(*number) == choice { row.style(BOLD.reversed()) } else { row })
    });
    let widths: &[Constraint] = if is_wide {
        &[
            Constraint::Length(4),
            Constraint::Fill(3),
            Constraint::Length(8),
            Constraint::Length(9),
            Constraint::Fill(5),
        ]
    } else {
        &[Constraint::Length(4), Constraint::Fill(1), Constraint::Length(9)]
    };
    frame.render_widget(Table::new(rows, widths).column_spacing(1), area);
}

fn reconcile<'a>(model: &Model, ran: &'a Ran, is_wide: bool) -> Row<'a> {
    let report = &ran.report;
    let wrote = match (&report.failure, report.changes.len()) {
        (Some(_), _) => Span::styled("failed", RED),
        (None, 0) => Span::styled("no write", DIM),
        (None, 1) => Span::styled("1 write", GREEN),
        (None, writes) => Span::styled(format!("{writes} writes"), GREEN),
    };
    let since = Span::styled(short(age(ran.at, model.now)), DIM);
    // The kind alone: in a row of 40 columns the name matters more.
    let who = format!("{} {}", report.kind.kind, name(&report.key));
    if !is_wide {
        return Row::new([Cell::from(since), Cell::from(who), Cell::from(wrote)]);
    }
    let why = match &report.failure {
        Some(failure) => Span::styled(escaped(failure.lines().next().unwrap_or_default()), RED),
        None => Span::styled(causes(ran), DIM),
    };
    Row::new([
        Cell::from(since),
        Cell::from(who),
        Cell::from(format!("{:.1?}", report.took)),
        Cell::from(wrote),
        Cell::from(why),
    ])
}

fn causes(ran: &Ran) -> String {
    let mut causes: Vec<String> = ran.report.causes.iter().map(ToString::to_string).collect();
    if ran.report.more_causes > 0 {
        causes.push(format!("{} more", ran.report.more_causes));
    }
    causes.join(", ")
}

/// Returns the lines of a reconcile in detail.
fn in_detail(detail: &Detail) -> Vec<Line<'static>> {
    let ran = &detail.ran;
    let report = &ran.report;
    let field = |title: &str, text: String| {
        Line::from(vec![Span::styled(format!("{title:<9}"), DIM), Span::raw(text)])
    };
    let mut lines = vec![
        Line::styled(format!("{} {}", display_kind(&report.kind), name(&report.key)), BOLD),
        field("by", report.key.processor().to_string()),
        field("at", ran.at.strftime("%H:%M:%S%.3f UTC").to_string()),
        field("because", causes(ran)),
        field("took", format!("{:.1?}", report.took)),
        field(
            "reads",
            format!("{}, {} bytes", report.record.reads.len(), report.record.read_bytes()),
        ),
        field("writes", writes(report.changes.len(), report.unchanged)),
    ];
    if report.attempt > 0 {
        lines.push(field("attempt", (report.attempt + 1).to_string()));
    }
    if let Some(again) = report.again {
        lines.push(field("again in", short(again)));
    }
    let calls = report.record.calls.iter();
    lines.extend(calls.map(|made| field("called", format!("{}, {:.1?}", call(made), made.took))));
    let failure = report.failure.iter().flat_map(|failure| failure.lines());
    lines.extend(failure.map(|line| Line::styled(escaped(line).into_owned(), RED)));
    let notes = report.notes.iter().flat_map(|note| note.lines());
    lines.extend(notes.map(|line| Line::styled(escaped(line).into_owned(), YELLOW)));
    for line in &report.log {
        let fields = line.fields.iter().map(|(name, value)| format!(" {name}={value}"));
        let text = line.message.clone() + &fields.collect::<String>();
        let texts = text.lines().map(escaped);
        lines.extend(texts.map(|text| Line::from(format!("{:?}: {text}", line.level))));
    }
    lines.push(Line::default());
    if detail.difference.is_empty() {
        lines.push(Line::styled("it changed no object", DIM));
    }
    lines.extend(styled::difference(&detail.difference));
    lines
}

/// Returns the log lines of the guests and the program, the newest first.
fn logs(model: &Model) -> Vec<Line<'static>> {
    let passing =
        model.logs.iter().rev().filter(|line| model.passes(&format!("{} {}", line.of, line.text)));
    let lines: Vec<Line<'static>> = passing.flat_map(|line| logged(model, line)).collect();
    if lines.is_empty() { vec![Line::styled("nothing was said yet", DIM)] } else { lines }
}

fn logged(model: &Model, line: &Logged) -> Vec<Line<'static>> {
    let style = match line.level {
        Some(Level::Error) => RED,
        Some(Level::Warn) => YELLOW,
        Some(Level::Info) => Style::new(),
        Some(Level::Debug | Level::Trace) | None => DIM,
    };
    let since = format!("{:<4} ", short(age(line.at, model.now)));
    let mut texts = line.text.lines().map(escaped);
    let first = Line::from(vec![
        Span::styled(since, DIM),
        Span::styled(format!("{} ", line.of), BOLD),
        Span::styled(texts.next().unwrap_or_default().into_owned(), style),
    ]);
    let further = texts.map(|text| Line::styled(format!("     {text}"), style));
    std::iter::once(first).chain(further).collect()
}

/// Returns the builds of all guests as lines: the state of each, then Cargo's output.
fn builds(model: &Model) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for guest in &model.guests {
        let (how, style) = match &guest.build {
            Build::Waiting => ("waits".to_owned(), DIM),
            Build::Building => ("is being built".to_owned(), YELLOW),
            Build::Failed(message) => (message.clone(), RED),
            Build::Built => match &guest.running {
                None => ("is built".to_owned(), GREEN),
                Some(running) => {
                    let built =
                        format!("runs as {}, built in {:.1?}", running.digest, running.built);
                    let taken_up = format!(", swapped in {:.1?}", running.taken_up);
                    let former = running.former.as_ref().map_or("", |_| &taken_up);
                    (built + former, GREEN)
                }
            },
        };
        // The message may already begin with the guest's name.
        let is_named = how.starts_with(&format!("`{}`", guest.package));
        let package = if is_named { String::new() } else { format!("{} ", guest.package) };
        lines.push(Line::from(vec![
            Span::styled(package, BOLD),
            Span::styled(how.lines().next().unwrap_or_default().to_owned(), style),
        ]));
        lines.extend(how.lines().skip(1).map(|line| Line::styled(line.to_owned(), style)));
        if matches!(guest.build, Build::Failed(_)) && guest.running.is_some() {
            lines.push(Line::styled("the former version keeps running", DIM));
        }
        lines.extend(guest.lines.iter().map(|line| styled::compiler(line)));
        lines.push(Line::default());
    }
    lines
}

/// Returns the number of writes sent, and of those skipped because they would change nothing.
fn writes(sent: usize, unchanged: usize) -> String {
    match unchanged {
        0 => sent.to_string(),
        unchanged => format!("{sent}; {unchanged} not sent, all was so already"),
    }
}
