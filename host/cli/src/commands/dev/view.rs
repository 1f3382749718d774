//! The live view: a model, changed by messages and keys, and drawn anew for each frame. Neither the
//! model nor the drawing accesses the terminal.

mod body;
mod keys;
mod model;
mod render;
mod styled;
#[cfg(test)]
mod tests;

use std::time::Duration;

use anyhow::Context as _;
use crossterm::event::{Event, EventStream, KeyEventKind};
use futures::StreamExt as _;
use jiff::Timestamp;
use mortise_host::telemetry::Redirected;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use self::model::{Model, Wish};
use super::message::{Receiver, Scene};

/// The interval between frames, which are drawn even without messages: ages and rates change by
/// themselves.
const FRAME_INTERVAL: Duration = Duration::from_millis(100);

/// Restores the terminal when dropped. A panic restores it too.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows the messages until the user quits or `stop` is cancelled. The program's log is shown with
/// them meanwhile.
///
/// # Errors
///
/// Fails if the terminal cannot be used.
pub(super) async fn run(
    scene: &Scene,
    mut messages: Receiver,
    redirected: Redirected,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let mut terminal =
        ratatui::try_init().context("cannot use the terminal: --plain does without")?;
    let restore = Restore;
    let mut model = Model::new(scene.clone());
    let mut events = EventStream::new();
    let mut frames = tokio::time::interval(FRAME_INTERVAL);
    frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut open = true;
    while open && !stop.is_cancelled() {
        tokio::select! {
            _ = frames.tick() => {
                model.set_time(Timestamp::now());
                terminal.draw(|frame| render::draw(frame, &mut model)).context("cannot draw")?;
            }
            message = messages.recv() => match message {
                Some(message) => model.take(message, Timestamp::now()),
                None => open = false,
            },
            event = events.next() => {
                let event = event.context("the terminal is gone")?.context("cannot read keys")?;
                if let Event::Key(key) = event
                    && key.kind != KeyEventKind::Release
                    && keys::press(&mut model, key) == Some(Wish::Quit)
                {
                    stop.cancel();
                }
            }
            () = stop.cancelled() => {}
        }
    }
    drop((restore, redirected));
    // For example the note about saved objects.
    super::plain::last(messages).await
}
