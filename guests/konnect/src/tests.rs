//! The loop against a fake of the Konnect API, in memory.

mod adoption;
mod checks;
mod deletion;
mod drift;
mod faults;
mod fixture;
mod hand_over;
mod inputs;
mod life;
mod once;
mod pauses;
mod quoted;
mod references;
mod schedules;
mod table;
mod tokens;
mod told;
mod watch;
