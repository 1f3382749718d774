//! The loop against a fake of the Konnect API, in memory.

mod adoption;
mod checks;
mod fixture;
mod hand_over;
mod life;
mod once;
mod references;
mod table;
mod watch;
