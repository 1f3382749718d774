//! Prints the messages as lines, for pipes and for users who prefer them. Output of Cargo and the
//! compiler goes to standard error.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
};

use anyhow::Context as _;
use mortise_core::contract::display_kind;

use super::{
    build::Line,
    message::{Message, Receiver, Running, Scene},
};
use crate::print::{self, BOLD, DIM, RED};

/// The kinds that the cluster does not serve, by processor, as last printed.
#[derive(Debug, Default)]
struct Missing(BTreeMap<String, BTreeSet<String>>);

/// Prints the messages until the channel closes.
///
/// # Errors
///
/// Fails if standard output is closed.
pub(super) async fn run(scene: &Scene, messages: Receiver) -> anyhow::Result<()> {
    say(&format!("{BOLD}Kubernetes API in memory{BOLD:#}  {}", scene.address))?;
    say(&format!("{BOLD}export KUBECONFIG={}{BOLD:#}", scene.kubeconfig))?;
    if let Some(metrics) = &scene.metrics {
        say(&format!("{BOLD}metrics{BOLD:#}  {metrics}"))?;
    }
    print(scene, messages).await
}

/// Prints the messages that arrive after the view has ended.
///
/// # Errors
///
/// Fails if standard output is closed.
pub(super) async fn last(mut messages: Receiver) -> anyhow::Result<()> {
    while let Some(message) = messages.recv().await {
        if let Message::Note(note) = message {
            say(&note)?;
        }
    }
    Ok(())
}

async fn print(scene: &Scene, mut messages: Receiver) -> anyhow::Result<()> {
    let mut missing = Missing::default();
    while let Some(message) = messages.recv().await {
        match &message {
            Message::Line(_, Line::Progress(line) | Line::Message(line)) | Message::Log(line) => {
                complain(line);
            }
            Message::Status(processors) => {
                for processor in processors {
                    let kinds = processor.missing.iter().map(display_kind).collect();
                    for line in missing.changed(&processor.version.processor, kinds) {
                        say(&line)?;
                    }
                }
            }
            _ => {
                if let Some(text) = text(scene, &message) {
                    say(&text)?;
                }
            }
        }
    }
    Ok(())
}

impl Missing {
    /// Returns the lines to print about a processor whose missing kinds are now `kinds`: newly
    /// missing kinds, and kinds that are served again.
    fn changed(&mut self, processor: &str, kinds: BTreeSet<String>) -> Vec<String> {
        let known = self.0.entry(processor.to_owned()).or_default();
        let gone = kinds.difference(known).map(|kind| {
            format!(
                "{RED}{processor}:{RED:#} {kind} is missing: what reconciles it waits for its CRD"
            )
        });
        let back = known.difference(&kinds).map(|kind| format!("{processor}: {kind} is there"));
        let lines = gone.chain(back).collect();
        *known = kinds;
        lines
    }
}

fn text(scene: &Scene, message: &Message) -> Option<String> {
    let guest = |index: &usize| scene.guests.get(*index).map_or("", String::as_str);
    match message {
        Message::Note(note) => Some(format!("{DIM}{note}{DIM:#}")),
        Message::Building(of) => Some(format!("{DIM}building {}{DIM:#}", guest(of))),
        Message::Said(of, said) => {
            let text = said.text.replace('\n', "\n    ");
            Some(format!("{DIM}{}'s companion{DIM:#}  {text}", guest(of)))
        }
        Message::Failed(of, message) => {
            let advice = "the former version keeps running; save a file to try again";
            Some(format!(
                "{RED}{}:{RED:#} {} {DIM}({advice}){DIM:#}",
                guest(of),
                print::guest_text(message)
            ))
        }
        Message::Unchanged(of) => Some(format!("{DIM}{} is unchanged{DIM:#}", guest(of))),
        Message::Running(running) => Some(version(running)),
        Message::Ran(ran) => {
            let report = print::report(&ran.report);
            let mut text = of_several(&scene.guests, ran.report.key.processor(), report);
            if ran.is_of_new_version() {
                for line in ran.difference().lines() {
                    text.push_str("\n  ");
                    text.push_str(line);
                }
            }
            Some(text)
        }
        Message::Waiting(_) | Message::Status(_) | Message::Line(..) | Message::Log(_) => None,
    }
}

/// Returns the line about a reconcile; it begins with the processor's name if there are several.
fn of_several(guests: &[String], processor: &str, line: String) -> String {
    if guests.len() < 2 {
        return line;
    }
    let (_, name) = processor.rsplit_once('/').unwrap_or(("", processor));
    format!("{DIM}{name}{DIM:#}  {line}")
}

/// Returns the line that reports a loaded version: `greeter 0.1.0 1a2b3c4d loaded, built in 2.5s`.
fn version(running: &Running) -> String {
    let Running { name, version, digest, built, taken_up, .. } = running;
    let how = match &running.former {
        None => format!("loaded, built in {built:.1?}"),
        Some(former) => {
            format!("took over from {former}, built in {built:.1?}, swapped in {taken_up:.1?}")
        }
    };
    format!("{BOLD}{name} {version} {digest}{BOLD:#} {how}")
}

fn say(line: &str) -> anyhow::Result<()> {
    writeln!(anstream::stdout(), "{line}").context("cannot write to standard output")
}

fn complain(line: &str) {
    // There is nowhere to report a closed standard error.
    let _ = writeln!(anstream::stderr(), "{line}");
}
